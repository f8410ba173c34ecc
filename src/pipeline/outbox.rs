//! What an outbox table is, and how one of its rows becomes a record.
//!
//! A relation message is parsed once into a [`Layout`]: which column of the stream plays which part. Rows then go by
//! index: their parts are read the same way whatever the format, and the format says how a record is written from them.
//! Columns are matched by the names in the relation message, never by the catalog: the message is what the rows that
//! follow it were written under.

mod address;
mod cloudevents;
pub(crate) mod cloudevents_text;
mod headers;
mod layout;
mod native;
mod pattern;
mod poison;

use std::{fmt, sync::Arc};

use super::template::Template;
use crate::debezium::Task;

pub use address::{Address, Endpoint, HostRule, Urls};
pub use cloudevents::{CloudEvents, Mode};
pub use cloudevents_text::Flaw;
pub(super) use headers::fault;
pub use layout::MissingColumn;
pub(crate) use layout::is_topic;
pub(super) use layout::{Draft, Layout, Refused, Scratch};
pub use poison::{Poison, Reason};

/// One outbox as configured, a table or messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    pub name: TableName,
    /// Which column plays which part.
    pub columns: Columns,
    /// `route.topic`, or `webhook.url`.
    pub topic: Template,
    /// What the filled template is.
    pub address: Address,
    /// `record.timestamp`.
    pub timestamp: Timestamp,
    /// `order_by`: the order in which rows are read from the table. Empty: by `seq`, else by primary key.
    pub order_by: Vec<String>,
    pub after_publish: AfterPublish,
    pub format: Format,
}

/// `format`: what a row becomes.
#[derive(Clone, Debug, Default)]
pub enum Format {
    /// Columns are key, value and headers as they are, by walpost's own rules.
    #[default]
    Native,
    /// An event of CloudEvents 1.0.
    CloudEvents(CloudEvents),
    /// What Debezium's connector makes of it, by the connector's keys.
    Debezium(Arc<Task>),
}

impl PartialEq for Format {
    /// Two tasks are the same where they are one.
    fn eq(&self, other: &Format) -> bool {
        match (self, other) {
            (Format::Native, Format::Native) => true,
            (Format::Debezium(task), Format::Debezium(other)) => Arc::ptr_eq(task, other),
            (Format::CloudEvents(own), Format::CloudEvents(other)) => own == other,
            (Format::Native | Format::CloudEvents(_) | Format::Debezium(_), _) => false,
        }
    }
}

impl Eq for Format {}

/// `after_publish`: what is done with the row of an event that is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AfterPublish {
    #[default]
    Keep,
    /// These of its columns say so.
    Mark(Marks),
    Delete,
}

/// Columns that say what became of an event, as far as the table has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// A time.
    pub published_at: Optional,
    /// `PUBLISHED` or `DEAD_LETTER`.
    pub status: Optional,
    /// How often it was sent.
    pub attempts: Optional,
    /// How often that was in vain.
    pub retry_count: Optional,
    pub last_error: Optional,
    pub updated_at: Optional,
}

impl Marks {
    /// Of all columns, whether the table has them or not.
    pub fn names(&self) -> Vec<&str> {
        let Marks { published_at, status, attempts, retry_count, last_error, updated_at } = self;
        [published_at, status, attempts, retry_count, last_error, updated_at].map(|column| column.name.as_str()).into()
    }
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
    pub aggregate_version: Optional,
    pub occurred_at: Optional,
    pub traceparent: Optional,
    pub tracestate: Optional,
    /// Order of insertion: in which rows are read from the table. In no record.
    pub seq: Optional,
    /// The inserting transaction, an `xid8`: proves that a row is published. In no record.
    pub txid: Optional,
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
    /// Time of the commit; for rows that were read from the table, as for `Column`.
    #[default]
    Commit,
    /// The `occurred_at` column; the commit's where that is no time Kafka can hold.
    Column,
}

/// Schema and table as the catalog holds them; printed as SQL wants them, quoted where it must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    pub schema: String,
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let quoted =
            |name: &str| if plain(name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) };
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.table))
    }
}

impl Columns {
    /// The table's column for a name in a template: walpost's name for a part, else the column's own.
    pub fn column_of<'a>(&'a self, name: &'a str) -> &'a str {
        match name {
            "id" => &self.id,
            "aggregate_id" => &self.aggregate_id,
            "aggregate_type" => &self.aggregate_type.name,
            "event_type" => &self.event_type.name,
            "destination" => &self.destination.name,
            own => own,
        }
    }
}
