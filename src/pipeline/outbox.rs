//! What an outbox table is, and how one of its rows becomes a record.
//!
//! A relation message is parsed once into a [`Layout`]: which column of the stream plays which part. Rows then go by
//! index. Columns are matched by the names in the relation message, never by the catalog: the message is what the rows
//! that follow it were written under. Nothing in a payload is parsed or printed again.

use std::{fmt, sync::Arc};

use serde_json::error::Category;

use super::{
    frame::PgTime,
    lsn::Position,
    origin::Origin,
    pgoutput::{Relation, Tuple, TypeOid, Value},
    record::{Event, Headers},
    template::{Part, Template},
    time_text::{Rfc3339, Time},
    wire::WireError,
};
use crate::debezium::{Refusal, Task};

/// One outbox table as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbox {
    pub name: TableName,
    /// Which column plays which part.
    pub columns: Columns,
    /// `route.topic`.
    pub topic: Template,
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
    /// What Debezium's connector makes of it, by the connector's keys.
    Debezium(Arc<Task>),
}

impl PartialEq for Format {
    /// Two tasks are the same where they are one.
    fn eq(&self, other: &Format) -> bool {
        match (self, other) {
            (Format::Native, Format::Native) => true,
            (Format::Debezium(task), Format::Debezium(other)) => Arc::ptr_eq(task, other),
            (Format::Native, Format::Debezium(_)) | (Format::Debezium(_), Format::Native) => false,
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
    pub occurred_at: Optional,
    pub traceparent: Optional,
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

/// A column that the configuration needs and the relation message lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the outbox {outbox} has no column {column:?}, which {part} needs (it has: {present}); add the column to the table and to \
     the publication's column list, or name another in the configuration"
)]
pub struct MissingColumn {
    outbox: TableName,
    column: String,
    part: String,
    present: String,
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

/// Where a relation's rows keep the parts of an event.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) name: TableName,
    id: usize,
    aggregate_id: usize,
    payload: usize,
    payload_is_bytea: bool,
    aggregate_type: Option<usize>,
    event_type: Option<usize>,
    headers: Option<usize>,
    destination: Option<usize>,
    idempotency_key: Option<usize>,
    occurred_at: Option<(usize, OccurredAt)>,
    traceparent: Option<usize>,
    topic: Vec<TopicPart>,
    timestamp: Timestamp,
}

#[derive(Clone, Copy, Debug)]
enum OccurredAt {
    /// A timestamp: becomes RFC 3339.
    Time,
    /// Any other type: goes as PostgreSQL prints it.
    Text,
}

#[derive(Clone, Debug)]
enum TopicPart {
    Text(String),
    Column { index: usize, name: String },
}

impl Layout {
    pub(super) fn new(outbox: &Outbox, relation: &Relation<'_>) -> Result<Layout, MissingColumn> {
        let index_of = |column: &str| relation.columns.iter().position(|known| known.name == column);
        let missing = |column: &str, part: &str| MissingColumn {
            outbox: outbox.name.clone(),
            column: column.to_owned(),
            part: part.to_owned(),
            present: relation.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", "),
        };
        let required = |column: &str, part: &str| index_of(column).ok_or_else(|| missing(column, part));
        let optional = |column: &Optional, part: &str| match index_of(&column.name) {
            None if column.named => Err(missing(&column.name, part)),
            found => Ok(found),
        };
        let columns = &outbox.columns;
        let topic = outbox.topic.parts().iter().map(|part| match part {
            Part::Text(text) => Ok(TopicPart::Text(text.clone())),
            Part::Column(name) => {
                let index = required(columns.column_of(name), "the topic template")?;
                Ok(TopicPart::Column { index, name: name.clone() })
            }
        });
        let occurred_at =
            optional(&columns.occurred_at, "occurred_at")?.map(|index| match relation.columns[index].type_oid {
                TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ => (index, OccurredAt::Time),
                _ => (index, OccurredAt::Text),
            });
        if outbox.timestamp == Timestamp::Column && occurred_at.is_none() {
            return Err(missing(&columns.occurred_at.name, "record.timestamp = \"column\""));
        }
        let payload = required(&columns.payload, "payload")?;
        Ok(Layout {
            name: outbox.name.clone(),
            id: required(&columns.id, "id")?,
            aggregate_id: required(&columns.aggregate_id, "aggregate_id")?,
            payload,
            payload_is_bytea: relation.columns[payload].type_oid == TypeOid::BYTEA,
            aggregate_type: optional(&columns.aggregate_type, "aggregate_type")?,
            event_type: optional(&columns.event_type, "event_type")?,
            headers: optional(&columns.headers, "headers")?,
            destination: optional(&columns.destination, "destination")?,
            idempotency_key: optional(&columns.idempotency_key, "idempotency_key")?,
            occurred_at,
            traceparent: optional(&columns.traceparent, "traceparent")?,
            topic: topic.collect::<Result<_, _>>()?,
            timestamp: outbox.timestamp,
        })
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

/// An event that no sink can take as it is, and why. It is never skipped: what happens next is the session's decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {id} at position {position} of {table} cannot be routed: {reason}")]
pub struct Poison {
    /// As text; what is no UTF-8 in it shows as replacement characters.
    pub id: String,
    pub position: Position,
    pub table: TableName,
    pub reason: Reason,
    /// The transaction that inserted the row.
    pub xid: u32,
    pub commit_time: PgTime,
    /// What the row has, as bytes of its text.
    pub aggregate_type: Option<Vec<u8>>,
    pub aggregate_id: Option<Vec<u8>>,
    pub event_type: Option<Vec<u8>>,
    pub payload: Option<Vec<u8>>,
    pub headers: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("its id is NULL; the id column must be NOT NULL")]
    NoId,
    #[error("the topic template names column {0:?}, which is NULL in this row")]
    NullInTopic(String),
    #[error(
        "its topic is {0:?}; Kafka allows 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither \".\" nor \"..\" nor its own \
         __consumer_offsets, __transaction_state and __share_group_state"
    )]
    IllegalTopic(String),
    #[error("its headers column holds no JSON object ({0})")]
    Headers(String),
    #[error("its payload is no bytea text")]
    Bytea,
    #[error("column {} of its row is no UTF-8", .0 + 1)]
    Encoding(usize),
    #[error(
        "the message is not transactional: it would come whatever becomes of the transaction that sent it; send true as the first argument of pg_logical_emit_message"
    )]
    Untransactional,
    #[error(transparent)]
    Connector(Refusal),
}

/// Space for what is not a slice of the frame; used again for every row.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    values: Vec<Span>,
    topic: String,
    payload: Vec<u8>,
    position: [u8; Position::TEXT_LEN],
    occurred_at: Rfc3339,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A column's place in the message; `None` is NULL.
type Span = Option<(usize, usize)>;

/// A record but for its ticket.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) event: Event<'a>,
    pub(super) topic: &'a str,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) timestamp_ms: i64,
    /// `occurred_at` was to be the timestamp and cannot be.
    pub(super) timestamp_replaced: bool,
    pub(super) headers: Headers<'a>,
}

/// A row that gives no record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Wire(WireError),
    /// A row with other columns than its relation, or an inserted row with a column left out.
    Shape,
    Poison(Box<Poison>),
}

impl From<WireError> for Refused {
    fn from(error: WireError) -> Refused {
        Refused::Wire(error)
    }
}

impl Layout {
    /// The id of a row, as text; empty where it has none.
    pub(super) fn event_id(&self, row: &Tuple<'_>) -> String {
        let mut id = String::new();
        let read = row.clone().read(|index, value| match value {
            Value::Text(text) if index == self.id => id = String::from_utf8_lossy(text).into_owned(),
            Value::Text(_) | Value::Null | Value::Unchanged => {}
        });
        // A row that cannot be read is refused by whoever reads it whole.
        read.map_or_else(|_| String::new(), |()| id)
    }

    /// Makes the record of an inserted row. `message` is the slice that `row` reads from; of a row that was read from the
    /// table `commit_time` is when.
    pub(super) fn record<'a>(
        &self,
        message: &'a [u8],
        row: Tuple<'a>,
        position: Position,
        commit_time: PgTime,
        origin: Origin,
        scratch: &'a mut Scratch,
    ) -> Result<Draft<'a>, Refused> {
        scratch.read(message, row)?;
        let Scratch { values, topic, payload, position: position_text, occurred_at, headers } = scratch;
        let value = |index: usize| match values.get(index) {
            Some(span) => Ok(span.map(|(start, end)| &message[start..end])),
            None => Err(Refused::Shape),
        };
        let optional = |index: Option<usize>| index.map_or(Ok(None), &value);

        let id = value(self.id)?;
        let poison = |reason| {
            let id = id.map_or_else(|| "without an id".to_owned(), |id| String::from_utf8_lossy(id).into_owned());
            let copy = |index: Option<usize>| {
                let span = index.and_then(|index| values.get(index).copied().flatten());
                span.map(|(start, end)| message[start..end].to_vec())
            };
            Refused::Poison(Box::new(Poison {
                id,
                position,
                table: self.name.clone(),
                reason,
                xid: 0,
                commit_time,
                aggregate_type: copy(self.aggregate_type),
                aggregate_id: copy(Some(self.aggregate_id)),
                event_type: copy(self.event_type),
                payload: copy(Some(self.payload)),
                headers: copy(self.headers),
            }))
        };
        let Some(id) = id else { return Err(poison(Reason::NoId)) };

        topic.clear();
        match optional(self.destination)? {
            Some(destination) => push_topic(topic, destination).map_err(&poison)?,
            None => {
                for part in &self.topic {
                    match part {
                        TopicPart::Text(text) => topic.push_str(text),
                        TopicPart::Column { index, name } => match value(*index)? {
                            Some(text) => push_topic(topic, text).map_err(&poison)?,
                            None => return Err(poison(Reason::NullInTopic(name.clone()))),
                        },
                    }
                }
            }
        }
        if !is_topic(topic) {
            return Err(poison(Reason::IllegalTopic(topic.clone())));
        }

        headers.clear();
        if let Some(json) = optional(self.headers)? {
            own_headers(json, headers).map_err(|error| poison(Reason::Headers(fault(&error))))?;
        }

        let body = match value(self.payload)? {
            Some(hex) if self.payload_is_bytea => {
                bytea(hex, payload).ok_or_else(|| poison(Reason::Bytea))?;
                Some(payload.as_slice())
            }
            body => body,
        };

        let (occurred_at_text, time) = match self.occurred_at {
            None => (None, None),
            Some((index, kind)) => match (value(index)?, kind) {
                (Some(text), OccurredAt::Time) => match Time::parse(text) {
                    Some(time) => {
                        *occurred_at = *time.rfc3339();
                        (Some(occurred_at.as_slice()), Some(time))
                    }
                    None => (Some(text), None),
                },
                (text, _) => (text, None),
            },
        };
        // Kafka has no time before 1970, and librdkafka takes 0 for now.
        let kafka_time = time.map(|time| time.unix_ms()).filter(|ms| *ms > 0);
        let (timestamp_ms, timestamp_replaced) = match self.timestamp {
            // Nobody knows the time of its commit any more, which was no later than this. Kafka refuses times that lie ahead.
            Timestamp::Commit if origin.is_table() => {
                let read_at = commit_time.unix_ms();
                (kafka_time.map_or(read_at, |ms| ms.min(read_at)), false)
            }
            Timestamp::Commit => (commit_time.unix_ms(), false),
            Timestamp::Column => (kafka_time.unwrap_or(commit_time.unix_ms()), kafka_time.is_none()),
        };

        let event = Event {
            id,
            aggregate_type: optional(self.aggregate_type)?,
            aggregate_id: value(self.aggregate_id)?,
            event_type: optional(self.event_type)?,
        };
        *position_text = position.text();
        let mut out = Headers::new(headers);
        out.push("id", id);
        for (name, text) in [
            ("event_type", event.event_type),
            ("aggregate_type", event.aggregate_type),
            ("occurred_at", occurred_at_text),
            ("position", origin.has_position().then_some(position_text.as_slice())),
            ("idempotency_key", optional(self.idempotency_key)?),
            ("traceparent", optional(self.traceparent)?),
        ] {
            if let Some(text) = text {
                out.push(name, text);
            }
        }
        out.mark(origin.mark());
        Ok(Draft { event, topic, key: event.aggregate_id, value: body, timestamp_ms, timestamp_replaced, headers: out })
    }
}

impl Scratch {
    fn read(&mut self, message: &[u8], row: Tuple<'_>) -> Result<(), Refused> {
        self.values.clear();
        let mut unchanged = false;
        let values = &mut self.values;
        row.read(|_, value| match value {
            Value::Null => values.push(None),
            Value::Unchanged => unchanged = true,
            Value::Text(text) => {
                let start = text.as_ptr() as usize - message.as_ptr() as usize;
                values.push(Some((start, start + text.len())));
            }
        })?;
        if unchanged { Err(Refused::Shape) } else { Ok(()) }
    }
}

/// Appends a column's text to the topic.
fn push_topic(topic: &mut String, text: &[u8]) -> Result<(), Reason> {
    match std::str::from_utf8(text) {
        Ok(text) => topic.push_str(text),
        Err(_) => return Err(Reason::IllegalTopic(String::from_utf8_lossy(text).into_owned())),
    }
    Ok(())
}

/// Kafka's own rule for topics that clients write to.
pub(crate) fn is_topic(name: &str) -> bool {
    const LENGTH_MAX: usize = 249;
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
    let is_taken = matches!(name, "." | "..") || INTERNAL.contains(&name);
    (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(legal) && !is_taken
}

/// The members of a JSON object: strings as they are, other values as their JSON text.
fn own_headers(json: &[u8], headers: &mut Vec<(String, Option<Vec<u8>>)>) -> Result<(), serde_json::Error> {
    struct Members<'h>(&'h mut Vec<(String, Option<Vec<u8>>)>);

    impl<'de> serde::de::Visitor<'de> for Members<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, value)) = map.next_entry::<String, &serde_json::value::RawValue>()? {
                let value = match serde_json::from_str::<String>(value.get()) {
                    Ok(text) => text.into_bytes(),
                    Err(_) => value.get().as_bytes().to_vec(),
                };
                self.0.push((name, Some(value)));
            }
            Ok(())
        }
    }

    let mut deserializer = serde_json::Deserializer::from_slice(json);
    serde::Deserializer::deserialize_map(&mut deserializer, Members(headers))?;
    deserializer.end()
}

/// What is wrong, and nothing of what the column holds: serde's words for another kind of value repeat the value.
fn fault(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => "it is JSON of another kind".to_owned(),
        Category::Io | Category::Syntax | Category::Eof => error.to_string(),
    }
}

/// The bytes behind bytea's text form, `\x` and two hexadecimal digits a byte.
fn bytea(text: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix(b"\\x").filter(|digits| digits.len() % 2 == 0)?;
    let digit = |b: u8| (b as char).to_digit(16).map(|digit| digit as u8);
    bytes.clear();
    bytes.reserve(digits.len() / 2);
    for pair in digits.chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(())
}
