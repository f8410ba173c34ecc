//! Where a relation's rows keep the parts of an event, and how those are read.

use super::{
    Format, Optional, Outbox, TableName, Timestamp,
    address::Addressing,
    cloudevents, native,
    pattern::{Pattern, Unfilled},
    poison::{Poison, Reason},
};
use crate::pipeline::{
    frame::PgTime,
    lsn::Position,
    origin::Origin,
    pgoutput::{Relation, Tuple, TypeOid, Value},
    record::{Event, Headers},
    time_text::{Rfc3339, Time},
    wire::WireError,
};

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

/// Where a relation's rows keep the parts of an event.
#[derive(Clone, Debug)]
pub(in crate::pipeline) struct Layout {
    pub(in crate::pipeline) name: TableName,
    id: usize,
    aggregate_id: usize,
    payload: usize,
    kind: Payload,
    aggregate_type: Option<usize>,
    event_type: Option<usize>,
    headers: Option<usize>,
    destination: Option<usize>,
    idempotency_key: Option<usize>,
    aggregate_version: Option<usize>,
    occurred_at: Option<usize>,
    /// Its type is a timestamp; any other goes as PostgreSQL prints it.
    occurred_at_is_time: bool,
    traceparent: Option<usize>,
    tracestate: Option<usize>,
    topic: Pattern,
    addressing: Addressing,
    timestamp: Timestamp,
    writer: Writer,
}

/// What writes the records.
#[derive(Clone, Debug)]
enum Writer {
    Native,
    CloudEvents(Box<cloudevents::Writer>),
}

/// What the payload's column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Json,
    Bytea,
    Xml,
    Text,
}

/// What a row says of its event: the texts of its columns; none for NULL, and for what the table lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) id: Option<&'a [u8]>,
    pub(super) aggregate_id: Option<&'a [u8]>,
    pub(super) payload: Option<&'a [u8]>,
    pub(super) aggregate_type: Option<&'a [u8]>,
    pub(super) event_type: Option<&'a [u8]>,
    pub(super) headers: Option<&'a [u8]>,
    pub(super) destination: Option<&'a [u8]>,
    pub(super) idempotency_key: Option<&'a [u8]>,
    pub(super) aggregate_version: Option<&'a [u8]>,
    pub(super) occurred_at: Option<&'a [u8]>,
    pub(super) traceparent: Option<&'a [u8]>,
    pub(super) tracestate: Option<&'a [u8]>,
}

/// What a format writes a record from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content<'a> {
    pub(super) id: &'a [u8],
    pub(super) parts: Parts<'a>,
    pub(super) payload: Payload,
    row: Row<'a>,
    /// Where the column is a timestamp, and one that has a form in RFC 3339.
    pub(super) occurred_at: Option<Time>,
    /// None: the record has none.
    pub(super) position: Option<Position>,
    /// Name of the last header.
    pub(super) mark: Option<&'static str>,
}

/// Space for what a format makes anew, left from the row before.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// The row's own headers.
    pub(super) own: &'a mut Vec<(String, Option<Vec<u8>>)>,
    pub(super) occurred_at: &'a mut Rfc3339,
    pub(super) position: &'a mut [u8; Position::TEXT_LEN],
    pub(super) payload: &'a mut Vec<u8>,
    /// `type` of CloudEvents, and an event in structured mode.
    pub(super) event_type: &'a mut String,
    pub(super) envelope: &'a mut Vec<u8>,
}

/// What a format makes of a row.
#[derive(Debug)]
pub(super) struct Written<'a> {
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Headers<'a>,
}

/// Space for what is not a slice of the frame; used again for every row.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct Scratch {
    values: Vec<Span>,
    topic: String,
    payload: Vec<u8>,
    position: [u8; Position::TEXT_LEN],
    occurred_at: Rfc3339,
    headers: Vec<(String, Option<Vec<u8>>)>,
    event_type: String,
    envelope: Vec<u8>,
}

/// A column's place in the message; `None` is NULL.
type Span = Option<(usize, usize)>;

/// A row whose columns can be had by index.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    message: &'a [u8],
    values: &'a [Span],
}

/// A record but for its ticket.
#[derive(Debug)]
pub(in crate::pipeline) struct Draft<'a> {
    pub(in crate::pipeline) event: Event<'a>,
    pub(in crate::pipeline) topic: &'a str,
    pub(in crate::pipeline) key: Option<&'a [u8]>,
    pub(in crate::pipeline) value: Option<&'a [u8]>,
    pub(in crate::pipeline) timestamp_ms: i64,
    /// `occurred_at` was to be the timestamp and cannot be.
    pub(in crate::pipeline) timestamp_replaced: bool,
    pub(in crate::pipeline) headers: Headers<'a>,
}

/// A row that gives no record.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum Refused {
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

/// As [`Refused`], before it is known what event it is.
#[derive(Debug)]
pub(super) enum Unwritten {
    Shape,
    Poison(Reason),
}

impl From<Reason> for Unwritten {
    fn from(reason: Reason) -> Unwritten {
        Unwritten::Poison(reason)
    }
}

impl Layout {
    pub(in crate::pipeline) fn new(outbox: &Outbox, relation: &Relation<'_>) -> Result<Layout, MissingColumn> {
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
        let type_of = |index: usize| relation.columns[index].type_oid;
        let topic = Pattern::new(&outbox.topic, |name| required(columns.column_of(name), "the topic template"))?;
        let addressing = outbox.address.of_rows(|name| required(columns.column_of(name), "rabbitmq.exchange"))?;
        let occurred_at = optional(&columns.occurred_at, "occurred_at")?;
        if outbox.timestamp == Timestamp::Column && occurred_at.is_none() {
            return Err(missing(&columns.occurred_at.name, "record.timestamp = \"column\""));
        }
        let payload = required(&columns.payload, "payload")?;
        let kind = match type_of(payload) {
            TypeOid::JSON | TypeOid::JSONB => Payload::Json,
            TypeOid::BYTEA => Payload::Bytea,
            TypeOid::XML => Payload::Xml,
            _ => Payload::Text,
        };
        let writer = match &outbox.format {
            Format::CloudEvents(format) => {
                let index_of = |name: &str| required(columns.column_of(name), "cloudevents.type");
                Writer::CloudEvents(Box::new(cloudevents::Writer::new(format, columns, kind, index_of)?))
            }
            // A connector's rows have no layout.
            Format::Native | Format::Debezium(_) => Writer::Native,
        };
        Ok(Layout {
            name: outbox.name.clone(),
            id: required(&columns.id, "id")?,
            aggregate_id: required(&columns.aggregate_id, "aggregate_id")?,
            payload,
            kind,
            aggregate_type: optional(&columns.aggregate_type, "aggregate_type")?,
            event_type: optional(&columns.event_type, "event_type")?,
            headers: optional(&columns.headers, "headers")?,
            destination: optional(&columns.destination, "destination")?,
            idempotency_key: optional(&columns.idempotency_key, "idempotency_key")?,
            aggregate_version: optional(&columns.aggregate_version, "aggregate_version")?,
            occurred_at,
            occurred_at_is_time: occurred_at.map(type_of).is_some_and(TypeOid::is_time),
            traceparent: optional(&columns.traceparent, "traceparent")?,
            tracestate: optional(&columns.tracestate, "tracestate")?,
            topic,
            addressing,
            timestamp: outbox.timestamp,
            writer,
        })
    }

    /// The id of a row, as text; empty where it has none.
    pub(in crate::pipeline) fn event_id(&self, row: &Tuple<'_>) -> String {
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
    pub(in crate::pipeline) fn record<'a>(
        &'a self,
        message: &'a [u8],
        row: Tuple<'a>,
        position: Position,
        commit_time: PgTime,
        origin: Origin,
        scratch: &'a mut Scratch,
    ) -> Result<Draft<'a>, Refused> {
        scratch.read(message, row)?;
        let Scratch {
            values,
            topic,
            payload,
            position: position_text,
            occurred_at,
            headers: own,
            event_type,
            envelope,
        } = scratch;
        let row = Row { message, values };
        let parts = self.parts(row).ok_or(Refused::Shape)?;
        let room = Room { own, occurred_at, position: position_text, payload, event_type, envelope };
        self.draft(row, parts, position, commit_time, origin, topic, room).map_err(|unwritten| match unwritten {
            Unwritten::Shape => Refused::Shape,
            Unwritten::Poison(reason) => {
                Refused::Poison(Box::new(parts.poison(self.name.clone(), position, commit_time, reason)))
            }
        })
    }

    /// None: the row has fewer columns than its relation.
    fn parts<'a>(&self, row: Row<'a>) -> Option<Parts<'a>> {
        let optional = |index: Option<usize>| index.map_or(Some(None), |index| row.value(index));
        Some(Parts {
            id: row.value(self.id)?,
            aggregate_id: row.value(self.aggregate_id)?,
            payload: row.value(self.payload)?,
            aggregate_type: optional(self.aggregate_type)?,
            event_type: optional(self.event_type)?,
            headers: optional(self.headers)?,
            destination: optional(self.destination)?,
            idempotency_key: optional(self.idempotency_key)?,
            aggregate_version: optional(self.aggregate_version)?,
            occurred_at: optional(self.occurred_at)?,
            traceparent: optional(self.traceparent)?,
            tracestate: optional(self.tracestate)?,
        })
    }

    #[allow(clippy::too_many_arguments)] // what a row is, and space for its record
    fn draft<'a>(
        &'a self,
        row: Row<'a>,
        parts: Parts<'a>,
        position: Position,
        commit_time: PgTime,
        origin: Origin,
        topic: &'a mut String,
        room: Room<'a>,
    ) -> Result<Draft<'a>, Unwritten> {
        let id = parts.id.ok_or(Reason::NoId)?;
        self.route(row, &parts, topic)?;
        let occurred_at = parts.occurred_at.filter(|_| self.occurred_at_is_time).and_then(Time::parse);
        let content = Content {
            id,
            parts,
            payload: self.kind,
            row,
            occurred_at,
            position: origin.has_position().then_some(position),
            mark: origin.mark(),
        };
        let Written { value, headers } = match &self.writer {
            Writer::Native => native::write(&content, room)?,
            Writer::CloudEvents(writer) => writer.write(&content, room)?,
        };
        let (timestamp_ms, timestamp_replaced) = self.timestamp(occurred_at, commit_time, origin);
        let Parts { aggregate_type, aggregate_id, event_type, .. } = parts;
        let event = Event { id, aggregate_type, aggregate_id, event_type };
        Ok(Draft { event, topic, key: aggregate_id, value, timestamp_ms, timestamp_replaced, headers })
    }

    fn route(&self, row: Row<'_>, parts: &Parts<'_>, topic: &mut String) -> Result<(), Unwritten> {
        topic.clear();
        let no_text = |bytes: &[u8]| self.addressing.no_text(bytes);
        let fill = |pattern: &Pattern, topic: &mut String| {
            let filled = pattern.fill(topic, |index| row.value(index), |text| self.addressing.part(text));
            filled.map_err(|unfilled| match unfilled {
                Unfilled::Null(name) => Unwritten::Poison(Reason::NullInTopic(name.to_owned())),
                Unfilled::Encoding(_, bytes) => Unwritten::Poison(no_text(bytes)),
                Unfilled::Text(name) => Unwritten::Poison(Reason::DotsInUrl(name.to_owned())),
                Unfilled::Shape => Unwritten::Shape,
            })
        };
        if let Addressing::Exchange(exchange) = &self.addressing {
            exchange.iter().try_for_each(|exchange| fill(exchange, topic))?;
            topic.push('/');
        }
        if let Some(destination) = parts.destination {
            let destination = std::str::from_utf8(destination).map_err(|_| no_text(destination))?;
            self.addressing.of_destination(destination, topic)?;
        } else if let Some(url) = self.addressing.of_type(parts.event_type) {
            topic.push_str(url);
        } else {
            fill(&self.topic, topic)?;
        }
        Ok(self.addressing.check(topic)?)
    }

    /// In milliseconds since 1970, and whether it stands in for what the configuration asks for.
    fn timestamp(&self, occurred_at: Option<Time>, commit_time: PgTime, origin: Origin) -> (i64, bool) {
        // Kafka has no time before 1970, and librdkafka takes 0 for now.
        let kafka_time = occurred_at.map(|time| time.unix_ms()).filter(|ms| *ms > 0);
        match self.timestamp {
            // Nobody knows the time of its commit any more, which was no later than this. Kafka refuses times that lie ahead.
            Timestamp::Commit if origin.is_table() => {
                let read_at = commit_time.unix_ms();
                (kafka_time.map_or(read_at, |ms| ms.min(read_at)), false)
            }
            Timestamp::Commit => (commit_time.unix_ms(), false),
            Timestamp::Column => (kafka_time.unwrap_or(commit_time.unix_ms()), kafka_time.is_none()),
        }
    }
}

impl Parts<'_> {
    fn poison(&self, table: TableName, position: Position, commit_time: PgTime, reason: Reason) -> Poison {
        let copy = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        Poison {
            id: self.id.map_or_else(|| "without an id".to_owned(), |id| String::from_utf8_lossy(id).into_owned()),
            position,
            table,
            reason,
            xid: 0,
            commit_time,
            aggregate_type: copy(self.aggregate_type),
            aggregate_id: copy(self.aggregate_id),
            event_type: copy(self.event_type),
            payload: copy(self.payload),
            headers: copy(self.headers),
        }
    }
}

impl<'a> Content<'a> {
    /// The row's column at an index, where it has one.
    pub(super) fn column(&self, index: usize) -> Option<Option<&'a [u8]>> {
        self.row.value(index)
    }

    /// When it occurred, where a column of any type says so in PostgreSQL's form or that of RFC 3339.
    pub(super) fn time(&self) -> Option<Time> {
        let text = self.parts.occurred_at?;
        self.occurred_at.or_else(|| Time::parse(text)).or_else(|| Time::parse_rfc3339(text))
    }

    /// The payload as it is sent; `payload` is space for bytes that are no part of the row.
    pub(super) fn value(&self, payload: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>, Reason> {
        match self.parts.payload {
            Some(hex) if self.payload == Payload::Bytea => {
                bytea(hex, payload).ok_or(Reason::Bytea)?;
                Ok(Some(payload))
            }
            text => Ok(text),
        }
    }
}

impl<'a> Row<'a> {
    /// The column's text; None: the row has no such column.
    fn value(self, index: usize) -> Option<Option<&'a [u8]>> {
        let span = self.values.get(index)?;
        Some(span.map(|(start, end)| &self.message[start..end]))
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

/// Kafka's own rule for topics that clients write to.
pub(crate) fn is_topic(name: &str) -> bool {
    const LENGTH_MAX: usize = 249;
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    const INTERNAL: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
    let is_taken = matches!(name, "." | "..") || INTERNAL.contains(&name);
    (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(legal) && !is_taken
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
