//! What a sink receives for an event.

use super::{ledger::Ticket, lsn::Position, outbox::TableName};

/// Headers that walpost itself sends: `id`, `event_type`, `aggregate_type`, `occurred_at`, `position`,
/// `idempotency_key`, `traceparent`.
const FIXED_HEADERS_MAX: usize = 7;

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
    pub topic: &'a str,
    /// None: no key.
    pub key: Option<&'a [u8]>,
    /// None: a tombstone.
    pub value: Option<&'a [u8]>,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    pub headers: Headers<'a>,
}

/// Names and values in the order in which they are sent; a name may stand more than once.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    fixed: [(&'static str, &'a [u8]); FIXED_HEADERS_MAX],
    fixed_len: usize,
    own: &'a [(String, Vec<u8>)],
    /// How many of them, from the first, walpost makes of columns.
    of_columns: usize,
    /// The name of the last one, whose value is `true`.
    mark: Option<&'static str>,
}

impl<'a> Headers<'a> {
    /// `own` are the row's, which follow the fixed ones.
    pub fn new(own: &'a [(String, Vec<u8>)]) -> Headers<'a> {
        Headers { fixed: [("", &[]); FIXED_HEADERS_MAX], fixed_len: 0, own, of_columns: 0, mark: None }
    }

    /// All of a record's headers, of which so many are [`Headers::of_columns`].
    pub fn kept(all: &'a [(String, Vec<u8>)], of_columns: usize) -> Headers<'a> {
        Headers { of_columns, ..Headers::new(all) }
    }

    /// How many of them, from the first, walpost makes of columns; the row's own come after.
    pub fn of_columns(&self) -> usize {
        self.of_columns
    }

    pub(super) fn push(&mut self, name: &'static str, value: &'a [u8]) {
        self.fixed[self.fixed_len] = (name, value);
        self.fixed_len += 1;
        self.of_columns += 1;
    }

    pub(super) fn mark(&mut self, name: Option<&'static str>) {
        self.mark = name;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let own: &'a [(String, Vec<u8>)] = self.own;
        let fixed = self.fixed;
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mark = self.mark.map(|name| (name, &b"true"[..]));
        fixed.into_iter().take(self.fixed_len).chain(own).chain(mark)
    }

    pub fn len(&self) -> usize {
        self.fixed_len + self.own.len() + usize::from(self.mark.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What walpost sends of a column that may be NULL. The row's own headers may have the name too.
    pub fn column(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().take(self.of_columns).find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The first value under `name`.
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl Record<'_> {
    /// Most bytes that the record takes in a batch, uncompressed: what Kafka's limits are compared with.
    pub fn size_in_batch(&self) -> usize {
        // The batch's own head, and the lengths, offsets and times of one record; each header has two lengths.
        const BATCH: usize = 61 + 6 * 5;
        const HEADER: usize = 2 * 5;
        let headers: usize = self.headers.iter().map(|(name, value)| HEADER + name.len() + value.len()).sum();
        BATCH + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }

    /// Topic, key, value and headers, in bytes, and a little for each.
    pub(super) fn size(topic: &str, key: Option<&[u8]>, value: Option<&[u8]>, headers: &Headers<'_>) -> usize {
        const OVERHEAD: usize = 64;
        let headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        OVERHEAD + topic.len() + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + headers
    }
}
