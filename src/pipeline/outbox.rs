//! What an outbox table is: its name, its columns, where its events go.

use super::template::Template;

/// One outbox table as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    /// Schema, as the catalog holds it (no quotes).
    pub schema: String,
    /// Table, as the catalog holds it (no quotes).
    pub table: String,
    /// Which column plays which part.
    pub columns: Columns,
    /// `route.topic`.
    pub topic: Template,
    /// `record.timestamp`.
    pub timestamp: Timestamp,
}

/// The table's column for each part of an event (`[columns]` over the preset). Names as the catalog holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The event's id. Must exist, never NULL.
    pub id: String,
    /// The record's key. Must exist; NULL means a record without a key.
    pub aggregate_id: String,
    /// The record's value. Must exist; NULL means a tombstone.
    pub payload: String,
    /// These become headers (or route) when the table has them.
    pub aggregate_type: Optional,
    pub event_type: Optional,
    pub headers: Optional,
    pub destination: Optional,
    pub idempotency_key: Optional,
    pub occurred_at: Optional,
    pub traceparent: Optional,
}

/// A column that a table may lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optional {
    pub name: String,
    /// The configuration names it, so its absence is an error.
    pub named: bool,
}

/// Where a record's timestamp comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timestamp {
    /// Time of the commit.
    #[default]
    Commit,
    /// The `occurred_at` column; the commit's where that is no time Kafka can hold.
    Column,
}
