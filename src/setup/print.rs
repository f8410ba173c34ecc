//! The whole set-up as a script for psql, without a look at any database.

use super::{
    connector, names,
    plan::{self, Wish},
};
use crate::{
    config::Config,
    pipeline::outbox::Outbox,
    postgres::{
        coverage, progress, quote,
        schema::{self, Variant},
    },
};

/// The SQL that set-up would run on an empty database. It may be run again. A slot that is adopted must exist.
pub fn script(config: &Config, wish: Wish) -> String {
    let variant = if wish.partitioned { Variant::Partitioned } else { Variant::Plain };
    let mut parts = Vec::new();
    for outbox in &config.outboxes {
        let names = names::of(config, outbox);
        if names::is_own(&outbox.columns) {
            parts.push(names.outbox(variant));
            parts.push(names.txid());
            if names::is_first_in_schema(config, outbox) {
                parts.push(names.enqueue(variant));
            }
        } else {
            parts.push(format!(
                "-- The table {} is yours to make.\n",
                quote::qualified(&outbox.name.schema, &outbox.name.table)
            ));
        }
    }
    let home = names::home(config);
    parts.push(schema::dead_letter(home));
    if config.sink.counts_attempts() {
        parts.push(schema::attempt(home));
    }
    parts.push(schema::progress(home));
    if let Some(own) = config.outboxes.iter().find(|outbox| names::is_own(&outbox.columns)) {
        parts.push(names::of(config, own).event_state());
    }
    if names::makes_keys(config) {
        parts.push(schema::idempotency_key(home));
    }
    if let Some(Outbox { name, .. }) = config.messages.first() {
        parts.push(schema::emit(home, &name.table));
    }
    match (&config.debezium, &config.outboxes[..]) {
        _ if wish.adopt => {}
        (Some(debezium), _) => parts.push(connector::script(config, debezium.connector())),
        (None, []) => parts.push(names::at_home(config).publication_of_messages()),
        (None, [first, more @ ..]) => {
            parts.push(names::of(config, first).publication());
            parts.extend(more.iter().map(|outbox| names::of(config, outbox).publication_table()));
        }
    }
    let own: Vec<_> = config.outboxes.iter().filter(|outbox| names::is_own(&outbox.columns)).collect();
    parts.extend(own.iter().map(|outbox| names::of(config, outbox).roles()));
    if own.is_empty() && !config.messages.is_empty() {
        parts.push(names::at_home(config).roles());
    }
    let published = coverage::published(&config.publication, &config.outboxes, 14);
    parts.push(if wish.adopt {
        format!(
            "-- Where the slot stands, while nobody uses it.\n{}\n",
            progress::begin_sql(home, &config.slot, &config.publication, &published)
        )
    } else {
        format!(
            "-- The slot comes last: it sees only what exists before it. This waits for every transaction that is writing.\n\
             {}\n{}\n{}\n",
            progress::prepare_sql(home, &config.slot, &config.publication, &published),
            plan::slot_statement(&config.slot, config.failover),
            progress::settle_sql(home, &config.slot)
        )
    });
    parts.join("\n")
}
