//! Debezium's own form of a change: the row before and after, where it comes from, what was done.

use std::sync::Arc;

use super::record::{Change, Datum};
use super::refusal::Refusal;
use super::source::{optional, required};
use super::task::Task;
use crate::connect::{Field, Kind, Schema, Struct, Value};

impl Task {
    /// Of changes of a table whose rows have the schema `row`.
    pub(super) fn envelope_schema(&self, name: &str, row: &Arc<Schema>) -> Schema {
        let field = |name: &str, schema: &Arc<Schema>| Field { name: name.to_owned(), schema: schema.clone() };
        Schema::new(Kind::Struct(vec![
            field("before", row),
            field("after", row),
            field("source", &self.source.schema),
            field("transaction", &self.source.transaction),
            required("op", Kind::String),
            optional("ts_ms", Kind::Int64),
            optional("ts_us", Kind::Int64),
            optional("ts_ns", Kind::Int64),
        ]))
        .named(name, 2)
    }

    pub(super) fn envelope(&self, change: &Change<'_>) -> Result<Datum, Refusal> {
        let row = |row: &Option<super::table::Row<'_>>| match row {
            Some(row) => row.whole().map(Value::Struct),
            None => Ok(Value::Null),
        };
        let name = change.table.name();
        let [ts_ms, ts_us, ts_ns] = change.source.processed();
        let values = vec![
            row(&change.before)?,
            row(&change.after)?,
            self.source.value(change.source, &name.schema, &name.table, true),
            self.source.transaction(change.source, change.order),
            Value::String(change.operation.code().to_owned()),
            ts_ms,
            ts_us,
            ts_ns,
        ];
        Ok(Datum::of(Struct { schema: change.table.envelope.clone(), values }))
    }
}
