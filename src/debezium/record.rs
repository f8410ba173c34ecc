//! A record on its way: Kafka Connect's `SourceRecord`, whose key and value are made when somebody asks for them.

use std::sync::Arc;

use super::refusal::Refusal;
use super::source::{Order, Source};
use super::table::{Row, Table};
use crate::config::connector::Router;
use crate::connect::{Schema, Struct, Value};

/// A value with its schema.
#[derive(Clone, Debug)]
pub(super) struct Datum {
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) value: Value,
}

impl Datum {
    pub(super) const NULL: Datum = Datum { schema: None, value: Value::Null };

    pub(super) fn new(schema: &Arc<Schema>, value: Value) -> Datum {
        Datum { schema: Some(schema.clone()), value }
    }

    pub(super) fn of(value: Struct) -> Datum {
        Datum { schema: Some(value.schema.clone()), value: Value::Struct(value) }
    }
}

pub(super) struct Record<'a> {
    pub(super) topic: String,
    pub(super) partition: Option<i32>,
    pub(super) key: Key<'a>,
    pub(super) body: Body<'a>,
    pub(super) headers: Vec<Header>,
    /// 0: the time of sending.
    pub(super) timestamp_ms: i64,
    /// What routed it.
    pub(super) router: Option<&'a Router>,
}

pub(super) enum Key<'a> {
    Made(Datum),
    /// Of the row's key columns.
    Of(Row<'a>),
}

pub(super) enum Body<'a> {
    Made(Datum),
    Change(Change<'a>),
    Message(Logical<'a>),
    /// A logical message whose content is read.
    Decoded(Struct, Logical<'a>),
}

/// What happened to a row.
pub(super) struct Change<'a> {
    pub(super) table: &'a Table,
    pub(super) operation: Operation,
    pub(super) before: Option<Row<'a>>,
    pub(super) after: Option<Row<'a>>,
    pub(super) source: &'a Source,
    /// Where it stands in its transaction, if that is told.
    pub(super) order: Option<Order>,
}

impl<'a> Change<'a> {
    /// Without rows.
    pub(super) fn new(table: &'a Table, operation: Operation, source: &'a Source) -> Change<'a> {
        Change { table, operation, before: None, after: None, source, order: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Read,
    Update,
    Delete,
    Truncate,
}

impl Operation {
    pub(super) fn code(self) -> &'static str {
        match self {
            Operation::Create => "c",
            Operation::Read => "r",
            Operation::Update => "u",
            Operation::Delete => "d",
            Operation::Truncate => "t",
        }
    }
}

/// A logical message.
pub(super) struct Logical<'a> {
    pub(super) prefix: &'a str,
    pub(super) content: &'a [u8],
    pub(super) transactional: bool,
    pub(super) source: &'a Source,
    pub(super) order: Option<Order>,
}

#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: HeaderValue,
}

#[derive(Clone, Debug)]
pub(super) enum HeaderValue {
    /// The same in each record, and converted once.
    Ready(Option<Vec<u8>>),
    Datum(Datum),
}

impl Header {
    pub(super) fn new(name: &str, value: Datum) -> Header {
        Header { name: name.to_owned(), value: HeaderValue::Datum(value) }
    }

    pub(super) fn ready(name: &str, value: Option<Vec<u8>>) -> Header {
        Header { name: name.to_owned(), value: HeaderValue::Ready(value) }
    }
}

impl Record<'_> {
    /// Kafka's tombstone: no value at all.
    pub(super) fn is_tombstone(&self) -> bool {
        matches!(&self.body, Body::Made(Datum { value: Value::Null, .. }))
    }
}

impl Key<'_> {
    pub(super) fn make(self) -> Result<Datum, Refusal> {
        match self {
            Key::Made(datum) => Ok(datum),
            Key::Of(row) => Ok(row.key()?.unwrap_or(Datum::NULL)),
        }
    }
}
