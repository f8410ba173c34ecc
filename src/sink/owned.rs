//! A record that waits to be sent.

use std::borrow::Cow;

use crate::pipeline::{Headers, OwnedEvent, Position, Record, Ticket, outbox::TableName};

/// A record that outlives its frame.
#[derive(Debug)]
pub struct OwnedRecord {
    pub ticket: Ticket,
    position: Position,
    xid: u32,
    table: TableName,
    event: OwnedEvent,
    pub(super) topic: String,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl OwnedRecord {
    pub fn new(record: &Record<'_>) -> OwnedRecord {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        OwnedRecord {
            ticket: record.ticket,
            position: record.position,
            xid: record.xid,
            table: record.table.clone(),
            event: record.event.into(),
            topic: record.topic.to_owned(),
            partition: record.partition,
            key: owned(record.key),
            value: owned(record.value),
            timestamp_ms: record.timestamp_ms,
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), owned(value))).collect(),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// As text; what is no UTF-8 in it shows as replacement characters.
    pub(super) fn event_id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.event.id)
    }

    pub fn lend<T>(&self, to: impl FnOnce(&Record<'_>) -> T) -> T {
        to(&Record {
            ticket: self.ticket,
            position: self.position,
            xid: self.xid,
            table: &self.table,
            event: self.event.lend(),
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            timestamp_ms: self.timestamp_ms,
            headers: Headers::new(&self.headers),
        })
    }
}
