//! Records that a connector's task makes: none, one or several of a row, a message, or the beginning or end of a transaction.
//!
//! They are queued with their tickets, in order, and given out one at a time.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Output, PgTime, Ticket,
    lsn::Position,
    outbox::{Outbox, Poison, Reason, TableName},
    pgoutput::{Relation, Tuple, Value},
    record::{Event, Headers, Record},
    wire::WireError,
};
use crate::debezium::{Cell, Message, Task};

/// The schema of what [`source_of`] names.
const MESSAGES: &str = "pg_logical_emit_message";

/// Logical messages with this prefix, as the source of an event.
pub fn source_of(prefix: &str) -> TableName {
    TableName { schema: MESSAGES.to_owned(), table: prefix.to_owned() }
}

/// Where a relation's rows keep what is told of an event, as far as they have it.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    id: Option<usize>,
    aggregate_type: Option<usize>,
    aggregate_id: Option<usize>,
    event_type: Option<usize>,
    payload: Option<usize>,
}

impl Parts {
    pub(super) fn new(outbox: &Outbox, relation: &Relation<'_>) -> Parts {
        let index_of = |column: &str| relation.columns.iter().position(|known| known.name == column);
        let columns = &outbox.columns;
        Parts {
            id: index_of(&columns.id),
            aggregate_type: index_of(&columns.aggregate_type.name),
            aggregate_id: index_of(&columns.aggregate_id),
            event_type: index_of(&columns.event_type.name),
            payload: index_of(&columns.payload),
        }
    }

    /// What is told of an event, of its row.
    pub(super) fn told(&self, row: &[Cell<'_>]) -> Told {
        let owned = |index: Option<usize>| match row.get(index?)? {
            Cell::Text(text) => Some(text.as_bytes().to_vec()),
            Cell::Null | Cell::Unchanged => None,
        };
        Told {
            id: owned(self.id).unwrap_or_default(),
            aggregate_type: owned(self.aggregate_type),
            aggregate_id: owned(self.aggregate_id),
            event_type: owned(self.event_type),
            payload: owned(self.payload),
        }
    }
}

/// What a row says of its event; the id is empty where there is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) id: Vec<u8>,
    pub(super) aggregate_type: Option<Vec<u8>>,
    pub(super) aggregate_id: Option<Vec<u8>>,
    pub(super) event_type: Option<Vec<u8>>,
    pub(super) payload: Option<Vec<u8>>,
}

impl Told {
    /// Of a logical message of which no record is made.
    pub(super) fn of_message(task: &Task, content: &[u8]) -> Told {
        let [id, aggregate_type, aggregate_id] = task.told(content).map(|text| text.map(String::into_bytes));
        let payload = Some(content.to_vec());
        Told { id: id.unwrap_or_default(), aggregate_type, aggregate_id, event_type: None, payload }
    }

    pub(super) fn id(&self) -> String {
        String::from_utf8_lossy(&self.id).into_owned()
    }

    /// In bytes.
    pub(super) fn size(&self) -> usize {
        self.id.len() + self.payload.as_ref().map_or(0, Vec::len)
    }

    pub(super) fn poison(
        self,
        position: Position,
        table: TableName,
        reason: Reason,
        xid: u32,
        commit_time: PgTime,
    ) -> Poison {
        let Told { id: _, aggregate_type, aggregate_id, event_type, payload } = &self;
        let (aggregate_type, aggregate_id) = (aggregate_type.clone(), aggregate_id.clone());
        let (event_type, payload) = (event_type.clone(), payload.clone());
        let id = self.id();
        Poison {
            id,
            position,
            table,
            reason,
            xid,
            commit_time,
            aggregate_type,
            aggregate_id,
            event_type,
            payload,
            headers: None,
        }
    }

    fn event(&self) -> Event<'_> {
        Event {
            id: &self.id,
            aggregate_type: self.aggregate_type.as_deref(),
            aggregate_id: self.aggregate_id.as_deref(),
            event_type: self.event_type.as_deref(),
        }
    }
}

/// A record that is queued.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) ticket: Ticket,
    pub(super) position: Position,
    pub(super) xid: u32,
    pub(super) table: Arc<TableName>,
    pub(super) told: Told,
    pub(super) message: Message,
}

impl Made {
    pub(super) fn lend(&self) -> Record<'_> {
        let Message { topic, partition, key, value, headers, timestamp_ms } = &self.message;
        Record {
            ticket: self.ticket,
            position: self.position,
            xid: self.xid,
            table: &self.table,
            event: self.told.event(),
            topic,
            partition: *partition,
            key: key.as_deref(),
            value: value.as_deref(),
            timestamp_ms: *timestamp_ms,
            headers: Headers::new(headers),
        }
    }
}

/// What is queued for an event.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // most of them are records
pub(super) enum Queued {
    Record(Made),
    Poison(Ticket, Box<Poison>),
    Passed { ticket: Ticket, position: Position, table: Arc<TableName>, id: String },
}

/// What was made and is not given out yet, and what was given out last.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queued: VecDeque<Queued>,
    given: Option<Queued>,
}

impl Queue {
    pub(super) fn push(&mut self, queued: Queued) {
        self.queued.push_back(queued);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The next one; [`Output::None`] where there is none.
    pub(super) fn give(&mut self) -> Output<'_> {
        self.given = self.queued.pop_front();
        match &mut self.given {
            None => Output::None,
            Some(Queued::Record(made)) => Output::Record(made.lend()),
            Some(Queued::Poison(ticket, poison)) => Output::Poison { ticket: *ticket, poison: poison.clone() },
            Some(Queued::Passed { ticket, position, table, id }) => {
                Output::Passed { ticket: *ticket, position: *position, table, id: std::mem::take(id) }
            }
        }
    }
}

/// Why a row's columns are no texts.
#[derive(Debug)]
pub(super) enum Unread {
    Wire(WireError),
    /// Of this column.
    Encoding(usize),
}

/// A row's columns, in order.
pub(super) fn cells<'a>(row: Tuple<'a>) -> Result<Vec<Cell<'a>>, Unread> {
    let mut cells = Vec::new();
    let mut undecodable = None;
    row.read(|index, value| {
        cells.push(match value {
            Value::Null => Cell::Null,
            Value::Unchanged => Cell::Unchanged,
            Value::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Cell::Text(text),
                Err(_) => {
                    undecodable.get_or_insert(index);
                    Cell::Null
                }
            },
        });
    })
    .map_err(Unread::Wire)?;
    undecodable.map_or(Ok(cells), |index| Err(Unread::Encoding(index)))
}
