//! Writes what a walsender sends: pgoutput messages of protocol version 1 and the frames around them.
//!
//! The decoder's counterpart, made from the manual and not from the decoder, and shared by simulation, pipeline tests,
//! benchmark and fuzz seeds:
//! <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>
#![allow(dead_code)] // each of them needs another part

/// One column of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Null,
    /// A TOAST value that the change did not touch.
    Unchanged,
    Text(&'a [u8]),
}

pub(crate) fn text(value: &str) -> Cell<'_> {
    Cell::Text(value.as_bytes())
}

/// OIDs of built-in types, and one of a type that somebody created.
pub(crate) mod oid {
    pub(crate) const BOOL: u32 = 16;
    pub(crate) const BYTEA: u32 = 17;
    pub(crate) const INT8: u32 = 20;
    pub(crate) const TEXT: u32 = 25;
    pub(crate) const JSON: u32 = 114;
    pub(crate) const TIMESTAMP: u32 = 1114;
    pub(crate) const TIMESTAMPTZ: u32 = 1184;
    pub(crate) const UUID: u32 = 2950;
    pub(crate) const JSONB: u32 = 3802;
    pub(crate) const ENUM: u32 = 16_411;
}

/// A message under construction.
struct Message(Vec<u8>);

impl Message {
    fn new(tag: u8) -> Message {
        Message(vec![tag])
    }

    fn bytes(mut self, bytes: &[u8]) -> Message {
        self.0.extend(bytes);
        self
    }

    fn u8(self, value: u8) -> Message {
        self.bytes(&[value])
    }

    fn u16(self, value: usize) -> Message {
        self.bytes(&u16::try_from(value).expect("a table has at most 1,600 columns").to_be_bytes())
    }

    fn u32(self, value: u32) -> Message {
        self.bytes(&value.to_be_bytes())
    }

    fn length(self, value: usize) -> Message {
        self.bytes(&i32::try_from(value).expect("PostgreSQL's values stay below 1 GiB").to_be_bytes())
    }

    fn u64(self, value: u64) -> Message {
        self.bytes(&value.to_be_bytes())
    }

    fn i64(self, value: i64) -> Message {
        self.bytes(&value.to_be_bytes())
    }

    fn name(self, name: &str) -> Message {
        assert!(!name.contains('\0'), "PostgreSQL's names hold no zero byte");
        self.bytes(name.as_bytes()).u8(0)
    }

    fn row(self, cells: &[Cell<'_>]) -> Message {
        cells.iter().fold(self.u16(cells.len()), |message, cell| match cell {
            Cell::Null => message.u8(b'n'),
            Cell::Unchanged => message.u8(b'u'),
            Cell::Text(value) => message.u8(b't').length(value.len()).bytes(value),
        })
    }
}

/// `final_lsn`: start of the commit record. `commit_time`: microseconds since 2000-01-01.
pub(crate) fn begin(final_lsn: u64, commit_time: i64, xid: u32) -> Vec<u8> {
    Message::new(b'B').u64(final_lsn).i64(commit_time).u32(xid).0
}

pub(crate) fn commit(commit_lsn: u64, end_lsn: u64, commit_time: i64) -> Vec<u8> {
    Message::new(b'C').u8(0).u64(commit_lsn).u64(end_lsn).i64(commit_time).0
}

pub(crate) fn origin(lsn: u64, name: &str) -> Vec<u8> {
    Message::new(b'O').u64(lsn).name(name).0
}

/// `columns`: name and type OID, in the order of the rows that follow.
pub(crate) fn relation(id: u32, schema: &str, table: &str, columns: &[(&str, u32)]) -> Vec<u8> {
    let head = Message::new(b'R').u32(id).name(schema).name(table).u8(b'd').u16(columns.len());
    columns
        .iter()
        .fold(head, |message, (name, oid)| message.u8(0).name(name).u32(*oid).bytes(&(-1_i32).to_be_bytes()))
        .0
}

pub(crate) fn type_name(oid: u32, schema: &str, name: &str) -> Vec<u8> {
    Message::new(b'Y').u32(oid).name(schema).name(name).0
}

pub(crate) fn insert(relation: u32, new: &[Cell<'_>]) -> Vec<u8> {
    Message::new(b'I').u32(relation).u8(b'N').row(new).0
}

/// The old row of an update or delete: only what identifies it, or all of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Old<'a> {
    Key(&'a [Cell<'a>]),
    Full(&'a [Cell<'a>]),
}

impl Old<'_> {
    fn write(self, message: Message) -> Message {
        match self {
            Old::Key(row) => message.u8(b'K').row(row),
            Old::Full(row) => message.u8(b'O').row(row),
        }
    }
}

pub(crate) fn update(relation: u32, old: Option<Old<'_>>, new: &[Cell<'_>]) -> Vec<u8> {
    let head = Message::new(b'U').u32(relation);
    let head = match old {
        Some(old) => old.write(head),
        None => head,
    };
    head.u8(b'N').row(new).0
}

pub(crate) fn delete(relation: u32, old: Old<'_>) -> Vec<u8> {
    old.write(Message::new(b'D').u32(relation)).0
}

pub(crate) fn truncate(relations: &[u32]) -> Vec<u8> {
    let head = Message::new(b'T').length(relations.len()).u8(0);
    relations.iter().fold(head, |message, relation| message.u32(*relation)).0
}

pub(crate) fn logical(transactional: bool, lsn: u64, prefix: &str, content: &[u8]) -> Vec<u8> {
    let head = Message::new(b'M').u8(u8::from(transactional)).u64(lsn).name(prefix);
    head.length(content.len()).bytes(content).0
}

pub(crate) fn stream_abort(xid: u32, subxid: u32) -> Vec<u8> {
    Message::new(b'A').u32(xid).u32(subxid).0
}

/// The XLogData frame around a message. `start` is the row's own position and follows no order.
pub(crate) fn xlog_data(start: u64, wal_end: u64, message: &[u8]) -> Vec<u8> {
    Message::new(b'w').u64(start).u64(wal_end).i64(0).bytes(message).0
}

pub(crate) fn keepalive(wal_end: u64, reply_requested: bool) -> Vec<u8> {
    Message::new(b'k').u64(wal_end).i64(0).u8(u8::from(reply_requested)).0
}
