//! Which outboxes have walpost's own shape, and where walpost keeps what is its own.

use super::record;
use crate::{
    config::Config,
    pipeline::outbox::{Columns, Outbox, TableName},
    postgres::{
        attempt, dead_letter, progress,
        schema::{INBOX_TABLES, Names},
    },
};

/// The schema for what is walpost's own: that of the first outbox of walpost's own shape, else `walpost`.
pub fn home(config: &Config) -> &str {
    config.outboxes.iter().find(|outbox| is_own(&outbox.columns)).map_or("walpost", |outbox| &outbox.name.schema)
}

/// The table is one that walpost keeps for itself: a publication for all tables has it too.
pub fn keeps(config: &Config, table: &TableName) -> bool {
    table.schema == home(config)
        && [
            &[attempt::TABLE, dead_letter::TABLE, progress::TABLE, record::TABLE, "idempotency", "aggregate_version"][..],
            &INBOX_TABLES,
        ]
        .concat()
        .contains(&&*table.table)
}

/// The table has the columns of `sql/outbox.sql`, by those names: setup can make it. Any other is its owner's to make.
pub fn is_own(columns: &Columns) -> bool {
    let Columns {
        id,
        aggregate_id,
        payload,
        aggregate_type,
        event_type,
        headers,
        destination,
        idempotency_key,
        aggregate_version,
        occurred_at,
        // No columns of it; a table that was given them is still ours.
        traceparent: _,
        tracestate: _,
        seq,
        txid,
    } = columns;
    [
        (id, "id"),
        (aggregate_id, "aggregate_id"),
        (payload, "payload"),
        (&aggregate_type.name, "aggregate_type"),
        (&event_type.name, "event_type"),
        (&headers.name, "headers"),
        (&destination.name, "destination"),
        (&idempotency_key.name, "idempotency_key"),
        (&aggregate_version.name, "aggregate_version"),
        (&occurred_at.name, "occurred_at"),
        (&seq.name, "seq"),
        (&txid.name, "txid"),
    ]
    .iter()
    .all(|(name, own)| name == own)
}

/// There is a function that takes idempotency keys, and so one that makes them, at home.
pub fn makes_keys(config: &Config) -> bool {
    !config.messages.is_empty() || config.outboxes.iter().any(|outbox| is_own(&outbox.columns))
}

/// The first outbox of walpost's own shape in its schema: the one that the schema's `enqueue` serves.
pub fn is_first_in_schema(config: &Config, outbox: &Outbox) -> bool {
    let mut own =
        config.outboxes.iter().filter(|other| is_own(&other.columns) && other.name.schema == outbox.name.schema);
    own.next().is_some_and(|first| first.name.table == outbox.name.table)
}

/// The same where an outbox is none of the tables: those of the first table of walpost's own shape, at home.
pub fn at_home(config: &Config) -> Names {
    let own = config.outboxes.iter().find(|outbox| is_own(&outbox.columns));
    Names {
        schema: home(config).to_owned(),
        table: own.map_or("outbox", |outbox| &outbox.name.table).to_owned(),
        publication: config.publication.clone(),
    }
}

/// The names that the SQL files take for an outbox.
pub fn of(config: &Config, outbox: &Outbox) -> Names {
    Names {
        schema: outbox.name.schema.clone(),
        table: outbox.name.table.clone(),
        publication: config.publication.clone(),
    }
}
