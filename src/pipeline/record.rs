//! What a sink receives for an event.

use super::{ledger::Ticket, lsn::Position, outbox::TableName};

/// Most headers that walpost itself sends: of a CloudEvent its attributes, and two of tracing once more by their own names.
const FIXED_HEADERS_MAX: usize = 16;

/// An event, ready to send. Everything is borrowed from the frame it came in or from the pipeline's scratch space, so
/// a sink takes it before the next frame.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// The name under which the sink acknowledges it.
    pub ticket: Ticket,
    pub position: Position,
    /// The transaction that inserted the row.
    pub xid: u32,
    /// The outbox that the row is in.
    pub table: &'a TableName,
    pub event: Event<'a>,
    pub topic: &'a str,
    /// None: the key decides.
    pub partition: Option<i32>,
    /// None: no key.
    pub key: Option<&'a [u8]>,
    /// None: a tombstone.
    pub value: Option<&'a [u8]>,
    /// Milliseconds since 1970; 0: the time of sending.
    pub timestamp_ms: i64,
    pub headers: Headers<'a>,
}

/// What a row says of its event, as bytes of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    pub id: &'a [u8],
    pub aggregate_type: Option<&'a [u8]>,
    pub aggregate_id: Option<&'a [u8]>,
    pub event_type: Option<&'a [u8]>,
}

/// An [`Event`] that outlives its row.
#[derive(Clone, Debug, Default)]
pub struct OwnedEvent {
    pub id: Vec<u8>,
    pub aggregate_type: Option<Vec<u8>>,
    pub aggregate_id: Option<Vec<u8>>,
    pub event_type: Option<Vec<u8>>,
}

impl OwnedEvent {
    pub fn lend(&self) -> Event<'_> {
        Event {
            id: &self.id,
            aggregate_type: self.aggregate_type.as_deref(),
            aggregate_id: self.aggregate_id.as_deref(),
            event_type: self.event_type.as_deref(),
        }
    }
}

impl From<Event<'_>> for OwnedEvent {
    fn from(event: Event<'_>) -> OwnedEvent {
        let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        OwnedEvent {
            id: event.id.to_vec(),
            aggregate_type: owned(event.aggregate_type),
            aggregate_id: owned(event.aggregate_id),
            event_type: owned(event.event_type),
        }
    }
}

/// Names and values in the order in which they are sent; a name may stand more than once, and a value be null.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    fixed: [(&'static str, &'a [u8]); FIXED_HEADERS_MAX],
    fixed_len: usize,
    own: &'a [(String, Option<Vec<u8>>)],
    /// The name of the last one, whose value is `true`.
    mark: Option<&'static str>,
}

impl<'a> Headers<'a> {
    /// `own` are the row's, which follow the fixed ones.
    pub fn new(own: &'a [(String, Option<Vec<u8>>)]) -> Headers<'a> {
        Headers { fixed: [("", &[]); FIXED_HEADERS_MAX], fixed_len: 0, own, mark: None }
    }

    pub(super) fn push(&mut self, name: &'static str, value: &'a [u8]) {
        self.fixed[self.fixed_len] = (name, value);
        self.fixed_len += 1;
    }

    /// Walpost's own headers tell the record's id and position.
    pub fn tell_event(&self) -> bool {
        self.fixed[..self.fixed_len].iter().any(|(name, _)| matches!(*name, "position" | "ce_position"))
    }

    pub(super) fn mark(&mut self, name: Option<&'static str>) {
        self.mark = name;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> {
        let own: &'a [(String, Option<Vec<u8>>)] = self.own;
        let fixed = self.fixed[..self.fixed_len].iter().map(|(name, value)| (*name, Some(*value)));
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        let mark = self.mark.map(|name| (name, Some(&b"true"[..])));
        fixed.chain(own).chain(mark)
    }

    /// Names and values, in bytes.
    pub fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum()
    }

    pub fn len(&self) -> usize {
        self.fixed_len + self.own.len() + usize::from(self.mark.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first value under `name`.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value)
    }
}

impl Record<'_> {
    /// Most bytes that the record takes in a batch, uncompressed: what Kafka's limits are compared with.
    pub fn size_in_batch(&self) -> usize {
        // The batch's own head, and the lengths, offsets and times of one record; each header has two lengths.
        const BATCH: usize = 61 + 6 * 5;
        const HEADER: usize = 2 * 5;
        BATCH + self.size() + HEADER * self.headers.len() + self.headers.size()
    }

    /// What it counts for in flight: topic, key, value and headers, in bytes, and a little for each.
    pub(super) fn weight(&self) -> usize {
        const OVERHEAD: usize = 64;
        OVERHEAD + self.topic.len() + self.size() + self.headers.size()
    }

    /// Key and value, in bytes.
    pub fn size(&self) -> usize {
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len)
    }
}
