//! Why no record can be made of a row or of a message.

use super::columns::ConversionError;
use crate::connect::{DataError, regex::TooManySteps};

/// The event is poison. Columns and options are named, values are not, save topics, partitions and timestamps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Column(#[from] ConversionError),
    #[error("the event has no {column:?}, which {option} names; add the column or change the option")]
    Missing { column: String, option: &'static str },
    #[error(
        "{column:?}, which {option} names, is {found}, and only {expected} will do; change the column or the option"
    )]
    Kind { column: String, option: &'static str, expected: &'static str, found: &'static str },
    #[error(
        "{column:?}, which {option} names, has a form that says no time ({found}); it must be a timestamp without time \
         zone, and time.precision.mode neither connect nor isostring"
    )]
    NoTime { column: String, option: &'static str, found: String },
    #[error("{column:?} is null, and by it (route.by.field) events find their topic; give it a value")]
    Unrouted { column: String },
    #[error("{option}: {source}")]
    Steps { option: String, source: TooManySteps },
    #[error(
        "the topic {topic:?} is illegal: a topic has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-', and is none of \
         Kafka's own; mend the route or its pattern"
    )]
    Topic { topic: String },
    #[error("the partition is {partition}; it must not be negative")]
    Partition { partition: i32 },
    #[error("the timestamp is {timestamp_ms} ms, which Kafka does not take: it must lie between 1970 and infinity")]
    Timestamp { timestamp_ms: i64 },
    #[error(
        "the payload is JSON that table.expand.json.payload cannot put into one schema, and nothing else can stand in \
         the envelope; mend the payload or set table.expand.json.payload=false"
    )]
    Misfit,
    #[error(
        "two members of the envelope are named {name:?}; give them other names in table.fields.additional.placement"
    )]
    Twice { name: String },
    #[error("an update of an event; table.op.invalid.behavior=fatal refuses it")]
    Update,
    #[error("a truncate, which an outbox cannot have; add t to skipped.operations")]
    Truncate,
    #[error("the content of the logical message is no json object, as DecodeLogicalDecodingMessageContent expects")]
    NotJson,
    #[error(
        "the JSON of the logical message has no schema: an array of mixed kinds, a number out of range, or an empty name"
    )]
    NoSchema,
    #[error(
        "the transform {name:?} ({class}) applies to this record and is not available; keep it away by a predicate"
    )]
    Foreign { name: String, class: String },
    #[error("{part}: {source}")]
    Convert { part: String, source: DataError },
}
