//! Where a change comes from (`source` of an envelope), and its place in the transaction (`transaction`).

use std::sync::Arc;

use super::modes::NameAdjustment;
use crate::connect::{Field, Kind, Schema, Struct, Value};
use crate::pipeline::{Lsn, PgTime, Position};

/// Where a row or message comes from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its place in the one order of events.
    pub position: Position,
    /// Where the log data (`XLogData`) starts that it came in.
    pub lsn: Lsn,
    /// Where that of the last commit before it started, as far as this process has seen one.
    pub last_commit_lsn: Option<Lsn>,
    /// Of the top-level transaction.
    pub xid: u32,
    pub commit_time: PgTime,
    /// It was read from the table, not from the log.
    pub snapshot: bool,
    /// The time of processing.
    pub now: PgTime,
}

/// An event's place in its transaction, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) total: u64,
    /// Among those of its table.
    pub(super) in_collection: u64,
}

const VERSION: &str = "3.6.1.Final";

/// What does not change from event to event.
#[derive(Clone, Debug)]
pub(super) struct SourceForm {
    pub(super) schema: Arc<Schema>,
    /// `transaction`.
    pub(super) transaction: Arc<Schema>,
    name: String,
    database: String,
}

impl SourceForm {
    pub(super) fn new(name: &str, database: &str) -> SourceForm {
        let snapshot = Schema::new(Kind::String)
            .named("io.debezium.data.Enum", 1)
            .parameter("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental")
            .with_default(Value::String("false".to_owned()))
            .optional();
        let source = Schema::new(Kind::Struct(vec![
            required("version", Kind::String),
            required("connector", Kind::String),
            required("name", Kind::String),
            required("ts_ms", Kind::Int64),
            Field { name: "snapshot".to_owned(), schema: Arc::new(snapshot) },
            required("db", Kind::String),
            optional("sequence", Kind::String),
            optional("ts_us", Kind::Int64),
            optional("ts_ns", Kind::Int64),
            required("schema", Kind::String),
            required("table", Kind::String),
            optional("txId", Kind::Int64),
            optional("lsn", Kind::Int64),
            optional("xmin", Kind::Int64),
            optional("origin", Kind::String),
            optional("origin_lsn", Kind::Int64),
        ]));
        let transaction = Schema::new(Kind::Struct(vec![
            required("id", Kind::String),
            required("total_order", Kind::Int64),
            required("data_collection_order", Kind::Int64),
        ]));
        SourceForm {
            schema: Arc::new(source.named("io.debezium.connector.postgresql.Source", 1)),
            transaction: Arc::new(transaction.named("event.block", 1).optional()),
            name: name.to_owned(),
            database: database.to_owned(),
        }
    }

    /// Of an event of this table, both names empty for a message; `transactional` ones have an xid.
    pub(super) fn value(&self, source: &Source, schema: &str, table: &str, transactional: bool) -> Value {
        let us = source.commit_time.unix_us();
        let text = |text: &str| Value::String(text.to_owned());
        let last_commit = source.last_commit_lsn.map_or("null".to_owned(), |lsn| format!("\"{}\"", lsn.0));
        let values = vec![
            text(VERSION),
            text("postgresql"),
            text(&self.name),
            Value::Int64(us.div_euclid(1000)),
            if source.snapshot { text("true") } else { Value::Null },
            text(&self.database),
            Value::String(format!("[{last_commit},\"{}\"]", source.lsn.0)),
            Value::Int64(us),
            Value::Int64(us.saturating_mul(1000)),
            text(schema),
            text(table),
            if transactional { Value::Int64(source.xid.into()) } else { Value::Null },
            lsn(source.lsn),
            Value::Null,
            Value::Null,
            Value::Null,
        ];
        Value::Struct(Struct { schema: self.schema.clone(), values })
    }

    /// `transaction`, or null.
    pub(super) fn transaction(&self, source: &Source, order: Option<Order>) -> Value {
        let Some(order) = order else { return Value::Null };
        let count = |count: u64| Value::Int64(count.try_into().unwrap_or(i64::MAX));
        let values = vec![Value::String(source.transaction_id()), count(order.total), count(order.in_collection)];
        Value::Struct(Struct { schema: self.transaction.clone(), values })
    }
}

impl Source {
    /// As records name the transaction: its id and where the log data starts that they are made for.
    pub(super) fn transaction_id(&self) -> String {
        format!("{}:{}", self.xid, self.lsn.0)
    }

    /// `ts_ms`, `ts_us`, `ts_ns`: the time of processing.
    pub(super) fn processed(&self) -> [Value; 3] {
        let us = self.now.unix_us();
        [us.div_euclid(1000), us, us.saturating_mul(1000)].map(Value::Int64)
    }
}

fn lsn(lsn: Lsn) -> Value {
    // Java's `long` has the same bits.
    Value::Int64(lsn.0 as i64)
}

pub(super) fn required(name: &str, kind: Kind) -> Field {
    Field { name: name.to_owned(), schema: Arc::new(Schema::new(kind)) }
}

pub(super) fn optional(name: &str, kind: Kind) -> Field {
    Field { name: name.to_owned(), schema: Arc::new(Schema::new(kind).optional()) }
}

/// A struct's schema, its name adjusted.
pub(super) fn named(fields: Vec<Field>, names: NameAdjustment, name: &str) -> Schema {
    Schema::new(Kind::Struct(fields)).named(&names.schema(name), 1)
}
