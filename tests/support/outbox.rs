//! Outbox tables as a configuration would describe them.
#![allow(dead_code)] // each test needs another part

use walpost::pipeline::{
    outbox::{Address, AfterPublish, Columns, Format, Optional, Outbox, TableName, Timestamp},
    source_of,
};

fn optional(name: &str) -> Optional {
    Optional { name: name.to_owned(), named: false }
}

/// The `walpost` preset.
pub(crate) fn walpost(schema: &str, table: &str) -> Outbox {
    Outbox {
        name: TableName { schema: schema.to_owned(), table: table.to_owned() },
        columns: Columns {
            id: "id".to_owned(),
            aggregate_id: "aggregate_id".to_owned(),
            payload: "payload".to_owned(),
            aggregate_type: optional("aggregate_type"),
            event_type: optional("event_type"),
            headers: optional("headers"),
            destination: optional("destination"),
            idempotency_key: optional("idempotency_key"),
            aggregate_version: optional("aggregate_version"),
            occurred_at: optional("occurred_at"),
            traceparent: optional("traceparent"),
            tracestate: optional("tracestate"),
            seq: optional("seq"),
            txid: optional("txid"),
        },
        topic: "outbox.event.${aggregate_type}".parse().expect("a template"),
        address: Address::Topic,
        timestamp: Timestamp::Commit,
        order_by: Vec::new(),
        after_publish: AfterPublish::Keep,
        format: Format::Native,
    }
}

/// One without a table.
pub(crate) fn messages(prefix: &str) -> Outbox {
    Outbox { name: source_of(prefix), ..walpost("", "") }
}

/// The `debezium` preset: other names for the same parts.
pub(crate) fn debezium(schema: &str, table: &str) -> Outbox {
    let walpost = walpost(schema, table);
    let columns = Columns {
        aggregate_id: "aggregateid".to_owned(),
        aggregate_type: optional("aggregatetype"),
        event_type: optional("type"),
        ..walpost.columns
    };
    Outbox { columns, ..walpost }
}
