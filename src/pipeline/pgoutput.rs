//! pgoutput, protocol version 1: the messages inside XLogData.
//!
//! <https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html>
//!
//! With this version only committed transactions arrive, whole and in commit order. Decoding is total: any bytes give
//! a message or a [`WireError`]; what a message holds are slices of the frame.

use super::{
    frame::PgTime,
    lsn::Lsn,
    wire::{Reader, WireError},
};

/// A relation's identity in the stream (`pg_class.oid`, or that of the partition root).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelationId(pub u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    Begin(Begin),
    Commit(Commit),
    /// The transaction came from another server.
    Origin,
    Relation(Relation<'a>),
    /// A type that is not built in; relations carry all that is needed.
    Type,
    Insert {
        relation: RelationId,
        new: Tuple<'a>,
    },
    Update {
        relation: RelationId,
        /// Its key before, where that changed, or the whole row (replica identity full).
        old: Option<Tuple<'a>>,
        new: Tuple<'a>,
    },
    Delete {
        relation: RelationId,
        /// Its key, or the whole row (replica identity full).
        old: Tuple<'a>,
    },
    Truncate {
        relations: Vec<RelationId>,
    },
    /// `pg_logical_emit_message`.
    Logical(Logical<'a>),
    /// Of a streamed transaction; PostgreSQL 18 may send one to a client that never asked for streaming.
    StreamAbort,
}

/// `B`: a transaction's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Start of the commit record: the transaction's place in the one order.
    pub final_lsn: Lsn,
    pub commit_time: PgTime,
    /// Of the top-level transaction.
    pub xid: u32,
}

/// `C`: a transaction's last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Start of the commit record, as Begin had it.
    pub commit_lsn: Lsn,
    /// End of the commit record: the exact acknowledgement (G1).
    pub end_lsn: Lsn,
}

/// `R`: name and columns, sent before the first row that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation<'a> {
    pub id: RelationId,
    pub schema: &'a str,
    pub name: &'a str,
    /// In the order of the rows that follow.
    pub columns: Vec<Column<'a>>,
}

/// A column as a relation message describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    pub name: &'a str,
    pub type_oid: TypeOid,
    /// `atttypmod`; -1 where the type has none.
    pub typmod: i32,
}

/// `pg_type.oid`; fixed for built-in types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeOid(pub u32);

impl TypeOid {
    pub const BYTEA: TypeOid = TypeOid(17);
    pub const TEXT: TypeOid = TypeOid(25);
    pub const JSON: TypeOid = TypeOid(114);
    pub const XML: TypeOid = TypeOid(142);
    pub const TIMESTAMP: TypeOid = TypeOid(1114);
    pub const TIMESTAMPTZ: TypeOid = TypeOid(1184);
    pub const JSONB: TypeOid = TypeOid(3802);

    pub(super) fn is_time(self) -> bool {
        matches!(self, TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ)
    }
}

/// `M`: a message from `pg_logical_emit_message`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logical<'a> {
    pub transactional: bool,
    pub lsn: Lsn,
    pub prefix: &'a str,
    pub content: &'a [u8],
}

impl<'a> Message<'a> {
    pub fn parse(message: &'a [u8]) -> Result<Message<'a>, WireError> {
        let mut r = Reader::new(message);
        match r.u8()? {
            b'B' => {
                let (final_lsn, commit_time) = (Lsn(r.u64()?), PgTime(r.i64()?));
                let begin = Begin { final_lsn, commit_time, xid: r.u32()? };
                Ok(Message::Begin(begin))
            }
            b'C' => {
                let _flags = r.u8()?;
                let commit = Commit { commit_lsn: Lsn(r.u64()?), end_lsn: Lsn(r.u64()?) };
                let _commit_time = r.i64()?;
                Ok(Message::Commit(commit))
            }
            b'I' => {
                let relation = RelationId(r.u32()?);
                marker(&mut r, b"N", "kind of new row")?;
                Ok(Message::Insert { relation, new: Tuple { reader: r } })
            }
            b'R' => Relation::parse(r).map(Message::Relation),
            b'U' => {
                let relation = RelationId(r.u32()?);
                let mut old = None;
                if marker(&mut r, b"KON", "kind of row")? != b'N' {
                    old = Some(Tuple { reader: r.clone() });
                    Tuple { reader: r.clone() }.skip(&mut r)?;
                    marker(&mut r, b"N", "kind of new row")?;
                }
                let new = Tuple { reader: r.clone() };
                new.clone().skip(&mut r)?;
                Ok(Message::Update { relation, old, new })
            }
            b'D' => {
                let relation = RelationId(r.u32()?);
                marker(&mut r, b"KO", "kind of old row")?;
                let old = Tuple { reader: r.clone() };
                old.clone().skip(&mut r)?;
                Ok(Message::Delete { relation, old })
            }
            b'T' => {
                let count = r.length()?;
                let _options = r.u8()?;
                let relations = (0..count).map(|_| r.u32().map(RelationId)).collect::<Result<_, _>>()?;
                Ok(Message::Truncate { relations })
            }
            b'M' => {
                let transactional = r.u8()? & 1 != 0;
                let lsn = Lsn(r.u64()?);
                let prefix = r.text()?;
                let len = r.length()?;
                Ok(Message::Logical(Logical { transactional, lsn, prefix, content: r.take(len)? }))
            }
            b'O' => {
                let _lsn = r.u64()?;
                let _name = r.text()?;
                Ok(Message::Origin)
            }
            b'Y' => {
                let _oid = r.u32()?;
                let _schema = r.text()?;
                let _name = r.text()?;
                Ok(Message::Type)
            }
            b'A' => Ok(Message::StreamAbort),
            value => Err(WireError::Unknown { offset: 0, value, what: "pgoutput message" }),
        }
    }
}

/// A byte that must be one of `known`.
fn marker(r: &mut Reader<'_>, known: &[u8], what: &'static str) -> Result<u8, WireError> {
    let offset = r.offset();
    let value = r.u8()?;
    if known.contains(&value) { Ok(value) } else { Err(WireError::Unknown { offset, value, what }) }
}

impl<'a> Relation<'a> {
    fn parse(mut r: Reader<'a>) -> Result<Relation<'a>, WireError> {
        let id = RelationId(r.u32()?);
        let schema = match r.text()? {
            "" => "pg_catalog",
            schema => schema,
        };
        let name = r.text()?;
        let _replica_identity = r.u8()?;
        let count = r.u16()?;
        let mut columns = Vec::new();
        for _ in 0..count {
            let _flags = r.u8()?;
            columns.push(Column { name: r.text()?, type_oid: TypeOid(r.u32()?), typmod: r.i32()? });
        }
        Ok(Relation { id, schema, name, columns })
    }
}

/// A row: a count, then for each column `n` (NULL), `u` (unchanged TOAST value, not sent), or `t` with length and text.
#[derive(Clone, Debug)]
pub struct Tuple<'a> {
    reader: Reader<'a>,
}

impl PartialEq for Tuple<'_> {
    fn eq(&self, other: &Tuple<'_>) -> bool {
        self.reader.rest() == other.reader.rest()
    }
}

impl Eq for Tuple<'_> {}

/// One column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Null,
    Unchanged,
    Text(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// Calls `each` with index and value of every column, in order.
    pub fn read(mut self, each: impl FnMut(usize, Value<'a>)) -> Result<(), WireError> {
        read(&mut self.reader, each)
    }

    fn skip(mut self, r: &mut Reader<'a>) -> Result<(), WireError> {
        read(&mut self.reader, |_, _| ())?;
        *r = self.reader;
        Ok(())
    }
}

fn read<'a>(r: &mut Reader<'a>, mut each: impl FnMut(usize, Value<'a>)) -> Result<(), WireError> {
    for column in 0..usize::from(r.u16()?) {
        let offset = r.offset();
        let value = match r.u8()? {
            b'n' => Value::Null,
            b'u' => Value::Unchanged,
            b't' => {
                let len = r.length()?;
                Value::Text(r.take(len)?)
            }
            value => return Err(WireError::Unknown { offset, value, what: "kind of column in text format" }),
        };
        each(column, value);
    }
    Ok(())
}
