//! A record that waits to be sent.

use crate::pipeline::{Headers, Position, Record, Ticket, outbox::TableName};

/// A record that outlives its frame.
#[derive(Debug)]
pub struct OwnedRecord {
    pub ticket: Ticket,
    position: Position,
    xid: u32,
    table: TableName,
    pub(super) topic: String,
    pub(super) key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
    headers: Vec<(String, Vec<u8>)>,
    headers_of_columns: usize,
}

impl OwnedRecord {
    pub(super) fn new(record: &Record<'_>) -> OwnedRecord {
        OwnedRecord {
            ticket: record.ticket,
            position: record.position,
            xid: record.xid,
            table: record.table.clone(),
            topic: record.topic.to_owned(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            timestamp_ms: record.timestamp_ms,
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            headers_of_columns: record.headers.of_columns(),
        }
    }

    pub fn lend<T>(&self, to: impl FnOnce(&Record<'_>) -> T) -> T {
        to(&Record {
            ticket: self.ticket,
            position: self.position,
            xid: self.xid,
            table: &self.table,
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            timestamp_ms: self.timestamp_ms,
            headers: Headers::kept(&self.headers, self.headers_of_columns),
        })
    }
}
