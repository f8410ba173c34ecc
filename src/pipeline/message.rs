//! Outboxes without a table: events that are sent with `pg_logical_emit_message`, under the prefix of an outbox.
//!
//! The content of such a message is a JSON object. Its members have the names of walpost's columns ([`MEMBERS`]), and it is
//! translated into the row that a table would have for them, so that the record is the same to the byte. `payload` may be
//! any JSON and is kept as it is written; `payload_base64` stands in its place for bytes. The others are strings, or numbers
//! as they are written; `headers` is an object. A member that is absent or null is SQL NULL, but for `payload`: null is JSON
//! there, as in a column of that type, and only its absence is a tombstone.
//!
//! A content that says anything else is malformed, and its event is poison: what is misspelt would be lost.

use std::{borrow::Cow, fmt};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    frame::PgTime,
    lsn::Position,
    outbox::{Format, Layout, Outbox, Poison, Reason, fault},
    pgoutput::{Column, Message, Relation, RelationId, Tuple, TypeOid},
    template::Part,
    time_text::Time,
};

/// What a message may say of its event, beside what the templates of topic and type name.
pub const MEMBERS: [&str; 12] = [
    ID,
    AGGREGATE_TYPE,
    AGGREGATE_ID,
    EVENT_TYPE,
    PAYLOAD,
    HEADERS,
    "destination",
    "idempotency_key",
    "aggregate_version",
    OCCURRED_AT,
    "traceparent",
    "tracestate",
];
const ID: &str = "id";
const AGGREGATE_TYPE: &str = "aggregate_type";
const AGGREGATE_ID: &str = "aggregate_id";
const EVENT_TYPE: &str = "event_type";
const PAYLOAD: &str = "payload";
const PAYLOAD_BASE64: &str = "payload_base64";
const HEADERS: &str = "headers";
const OCCURRED_AT: &str = "occurred_at";

/// Names of members are shown up to this many characters: they may be anything.
const NAME_SHOWN_MAX: usize = 64;

/// The space for rows that is kept between two of them, in bytes.
const ROW_KEPT: usize = 64 << 10;

/// Why a message is no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the message is no JSON object ({0})")]
    NoObject(String),
    #[error("the message has no id; give each event one, as walpost.emit does")]
    NoId,
    #[error(
        "the message has a member {0:?}, which no event has: there are id, aggregate_type, aggregate_id, event_type, payload, \
         payload_base64, headers, destination, idempotency_key, aggregate_version, occurred_at, traceparent, tracestate and what route.topic and \
         cloudevents.type name"
    )]
    Unknown(String),
    #[error("the message has member {0:?} twice")]
    Twice(String),
    #[error("the message has both payload and payload_base64; leave one of them out")]
    TwoPayloads,
    #[error("the message's member {member:?} is not {wanted}")]
    Kind { member: String, wanted: &'static str },
}

/// An outbox without a table.
#[derive(Debug)]
pub(super) struct MessageOutbox {
    pub(super) prefix: String,
    json: Layout,
    /// Where the payload is bytes.
    bytes: Layout,
    /// Of the row, in its order.
    columns: Vec<String>,
}

impl MessageOutbox {
    /// The outbox is named by [`source_of`](super::source_of) its prefix, and its columns are walpost's own.
    pub(super) fn new(outbox: &Outbox) -> MessageOutbox {
        let mut columns: Vec<String> = MEMBERS.map(str::to_owned).into();
        let event_type = match &outbox.format {
            Format::CloudEvents(format) => format.event_type.parts(),
            Format::Native | Format::Debezium(_) => &[],
        };
        for part in outbox.topic.parts().iter().chain(event_type) {
            if let Part::Column(name) = part {
                if !columns.contains(name) {
                    columns.push(name.clone());
                }
            }
        }
        let layout = |payload| {
            let column = |name| {
                let type_oid = match name {
                    PAYLOAD => payload,
                    OCCURRED_AT => TypeOid::TIMESTAMPTZ,
                    _ => TypeOid::TEXT,
                };
                Column { name, type_oid, typmod: -1 }
            };
            let relation = Relation {
                id: RelationId(0),
                schema: &outbox.name.schema,
                name: &outbox.name.table,
                columns: columns.iter().map(|name| column(name.as_str())).collect(),
            };
            Layout::new(outbox, &relation).expect("the relation has all that the outbox names")
        };
        let (json, bytes) = (layout(TypeOid::JSON), layout(TypeOid::BYTEA));
        MessageOutbox { prefix: outbox.name.table.clone(), json, bytes, columns }
    }

    /// Of the row that a message becomes.
    pub(super) fn layout(&self, said: &Said<'_>) -> &Layout {
        if said.has_bytes { &self.bytes } else { &self.json }
    }

    /// What a message says.
    pub(super) fn read<'c>(&self, content: &'c [u8]) -> Said<'c> {
        let mut said = Said { values: vec![None; self.columns.len()], has_bytes: false, fault: None };
        let reading = Reading { columns: &self.columns, said: &mut said };
        match std::str::from_utf8(content) {
            Ok(text) => {
                let mut json = serde_json::Deserializer::from_str(text);
                let read = json.deserialize_map(reading).and_then(|()| json.end());
                if let Err(error) = read {
                    said.fault = Some(Malformed::NoObject(fault(&error)));
                }
            }
            Err(error) => said.fault = Some(Malformed::NoObject(format!("it is no UTF-8: {error}"))),
        }
        if said.fault.is_none() && said.value(self.index(ID)).is_none() {
            said.fault = Some(Malformed::NoId);
        }
        said
    }

    fn index(&self, column: &str) -> usize {
        self.columns.iter().position(|known| known == column).expect("every member has its column")
    }

    /// The id of the event, as far as the message has one.
    pub(super) fn id(&self, said: &Said<'_>) -> String {
        String::from_utf8_lossy(said.value(self.index(ID)).unwrap_or_default()).into_owned()
    }

    /// The event of a message of which no record can be made: what it says of itself, and all of it as payload.
    pub(super) fn poison(
        &self,
        said: &Said<'_>,
        reason: Reason,
        content: &[u8],
        position: Position,
        xid: u32,
        commit_time: PgTime,
    ) -> Poison {
        let copy = |column| said.value(self.index(column)).map(<[u8]>::to_vec);
        Poison {
            id: self.id(said),
            position,
            table: self.json.name.clone(),
            reason,
            xid,
            commit_time,
            aggregate_type: copy(AGGREGATE_TYPE),
            aggregate_id: copy(AGGREGATE_ID),
            event_type: copy(EVENT_TYPE),
            payload: Some(content.to_vec()),
            headers: copy(HEADERS),
        }
    }
}

/// Columns as a message gives them.
#[derive(Debug)]
pub(super) struct Said<'c> {
    values: Vec<Option<Cow<'c, [u8]>>>,
    /// The payload is of type bytea.
    has_bytes: bool,
    /// The first thing that is wrong. What could be read beside it is there.
    fault: Option<Malformed>,
}

impl Said<'_> {
    pub(super) fn take_fault(&mut self) -> Option<Malformed> {
        self.fault.take()
    }

    fn value(&self, index: usize) -> Option<&[u8]> {
        self.values.get(index)?.as_deref()
    }

    /// Writes the inserted row as the log would have it.
    pub(super) fn write(&self, row: &mut Vec<u8>) {
        row.clear();
        row.shrink_to(ROW_KEPT);
        row.extend(b"I\0\0\0\0N");
        let count = u16::try_from(self.values.len()).expect("a template names few columns");
        row.extend(count.to_be_bytes());
        for value in &self.values {
            match value {
                None => row.push(b'n'),
                Some(bytes) => {
                    let len = i32::try_from(bytes.len()).expect("PostgreSQL's messages stay below 1 GiB");
                    row.push(b't');
                    row.extend(len.to_be_bytes());
                    row.extend(&**bytes);
                }
            }
        }
    }
}

/// The row that [`Said::write`] wrote.
pub(super) fn row(insert: &[u8]) -> Tuple<'_> {
    match Message::parse(insert) {
        Ok(Message::Insert { new, .. }) => new,
        _ => unreachable!("it was written as an insert"),
    }
}

/// Reads the members into their columns.
struct Reading<'r, 'c> {
    columns: &'r [String],
    said: &'r mut Said<'c>,
}

impl<'c> Reading<'_, 'c> {
    fn member(&mut self, name: &str, json: &'c str) {
        let is_bytes = name == PAYLOAD_BASE64;
        let column = if is_bytes { PAYLOAD } else { name };
        let Some(index) = self.columns.iter().position(|known| known == column) else {
            return self.fault(Malformed::Unknown(shown(name)));
        };
        if json == "null" && name != PAYLOAD {
            return;
        }
        if self.said.values[index].is_some() {
            return self.fault(match column == PAYLOAD && is_bytes != self.said.has_bytes {
                true => Malformed::TwoPayloads,
                false => Malformed::Twice(shown(name)),
            });
        }
        self.said.has_bytes |= is_bytes;
        match value(name, json) {
            Ok(value) => self.said.values[index] = Some(value),
            Err(wanted) => self.fault(Malformed::Kind { member: shown(name), wanted }),
        }
    }

    fn fault(&mut self, fault: Malformed) {
        self.said.fault.get_or_insert(fault);
    }
}

impl<'c> Visitor<'c> for Reading<'_, 'c> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'c>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, json)) = map.next_entry::<String, &'c RawValue>()? {
            self.member(&name, json.get());
        }
        Ok(())
    }
}

/// The column's value for a member's JSON, which is not null but for the payload; an error: what it is not.
fn value<'c>(name: &str, json: &'c str) -> Result<Cow<'c, [u8]>, &'static str> {
    match name {
        PAYLOAD => Ok(Cow::Borrowed(json.as_bytes())),
        PAYLOAD_BASE64 => {
            const WANTED: &str = "a string of base64";
            let text = string(json).ok_or(WANTED)?;
            // PostgreSQL breaks lines after 76 characters.
            let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            STANDARD.decode(digits).map(|bytes| Cow::Owned(bytea(&bytes))).map_err(|_| WANTED)
        }
        HEADERS if json.starts_with('{') => Ok(Cow::Borrowed(json.as_bytes())),
        HEADERS => Err("a JSON object"),
        OCCURRED_AT => {
            const WANTED: &str = "a time in the years 1 to 9999 with its offset, as \"2026-01-31T08:15:00Z\" is";
            string(json).and_then(time).ok_or(WANTED)
        }
        _ if json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Ok(Cow::Borrowed(json.as_bytes())),
        _ => match string(json) {
            Some(text) if text.contains('\0') => Err("a text that PostgreSQL can hold: it has a NUL"),
            Some(Cow::Borrowed(text)) => Ok(Cow::Borrowed(text.as_bytes())),
            Some(Cow::Owned(text)) => Ok(Cow::Owned(text.into_bytes())),
            None => Err("a string or a number"),
        },
    }
}

/// The text of a JSON string.
fn string(json: &str) -> Option<Cow<'_, str>> {
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    if inside.contains('\\') { serde_json::from_str(json).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inside)) }
}

/// Bytes as the stream prints them.
fn bytea(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    b"\\x".iter().copied().chain(digits).collect()
}

/// A time as the stream prints it.
fn time(text: Cow<'_, str>) -> Option<Cow<'_, [u8]>> {
    if matches!(&*text, "infinity" | "-infinity") {
        return Some(Cow::Owned(text.into_owned().into_bytes()));
    }
    let rounded = TimestampRound::new().smallest(Unit::Microsecond).mode(RoundMode::HalfExpand);
    let time = text.parse::<Timestamp>().ok()?.round(rounded).ok()?;
    let printed = time.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string().into_bytes();
    let is_known = !printed.starts_with(b"0000") && Time::parse(&printed).is_some();
    is_known.then_some(Cow::Owned(printed))
}

fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_MAX).collect()
}
