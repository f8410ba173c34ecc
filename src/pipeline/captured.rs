//! Records that a connector's task makes: none, one or several of a row, a message, or the beginning or end of a transaction.
//!
//! They are queued with their tickets, in order, and given out one at a time.

use std::{collections::VecDeque, sync::Arc};

use super::{
    Output, PgTime, Ticket,
    lsn::Position,
    outbox::{Outbox, Poison, Reason, TableName},
    pgoutput::{Relation, Tuple, Value},
    record::{Event, Headers, OwnedEvent, Record},
    wire::WireError,
};
use crate::debezium::{Cell, Message, Task};

/// The schema of what [`source_of`] names.
const MESSAGES: &str = "pg_logical_emit_message";

/// Logical messages with this prefix, as the source of an event.
pub fn source_of(prefix: &str) -> TableName {
    TableName { schema: MESSAGES.to_owned(), table: prefix.to_owned() }
}

/// Which of a relation's columns tell of an event, as far as it has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Telling {
    id: Option<usize>,
    aggregate_type: Option<usize>,
    aggregate_id: Option<usize>,
    event_type: Option<usize>,
    payload: Option<usize>,
}

impl Telling {
    pub(super) fn new(outbox: &Outbox, relation: &Relation<'_>) -> Telling {
        let index_of = |column: &str| relation.columns.iter().position(|known| known.name == column);
        let columns = &outbox.columns;
        Telling {
            id: index_of(&columns.id),
            aggregate_type: index_of(&columns.aggregate_type.name),
            aggregate_id: index_of(&columns.aggregate_id),
            event_type: index_of(&columns.event_type.name),
            payload: index_of(&columns.payload),
        }
    }

    /// Of a row whose columns need not be texts.
    pub(super) fn read<'a>(&self, row: &[Value<'a>]) -> Told<'a> {
        let bytes = |column: Option<usize>| match row.get(column?)? {
            Value::Text(bytes) => Some(*bytes),
            Value::Null | Value::Unchanged => None,
        };
        let event = Event {
            id: bytes(self.id).unwrap_or_default(),
            aggregate_type: bytes(self.aggregate_type),
            aggregate_id: bytes(self.aggregate_id),
            event_type: bytes(self.event_type),
        };
        Told { event: event.into(), payload: bytes(self.payload) }
    }
}

/// What a row or message says of its event; the id is empty where there is none.
#[derive(Debug, Default)]
pub(super) struct Told<'a> {
    pub(super) event: OwnedEvent,
    payload: Option<&'a [u8]>,
}

impl<'a> Told<'a> {
    /// Of a logical message that became these records, or none.
    pub(super) fn of_message(task: &Task, content: &'a [u8], made: Option<&[Message]>) -> Told<'a> {
        let [id, aggregate_type, aggregate_id] = match made {
            Some([message, ..]) => {
                let id = message.headers.iter().find(|(name, _)| name == "id");
                [id.and_then(|(_, id)| id.clone()), None, None]
            }
            Some([]) => Default::default(),
            None => task.told(content).map(|text| text.map(String::into_bytes)),
        };
        let event = OwnedEvent { id: id.unwrap_or_default(), aggregate_type, aggregate_id, event_type: None };
        Told { event, payload: Some(content) }
    }

    pub(super) fn id(&self) -> String {
        String::from_utf8_lossy(&self.event.id).into_owned()
    }

    /// In bytes.
    pub(super) fn size(&self) -> usize {
        self.event.id.len() + self.payload.map_or(0, <[u8]>::len)
    }

    pub(super) fn poison(
        &self,
        position: Position,
        table: TableName,
        reason: Reason,
        xid: u32,
        commit_time: PgTime,
    ) -> Poison {
        let OwnedEvent { aggregate_type, aggregate_id, event_type, .. } = self.event.clone();
        Poison {
            id: self.id(),
            position,
            table,
            reason,
            xid,
            commit_time,
            aggregate_type,
            aggregate_id,
            event_type,
            payload: self.payload.map(<[u8]>::to_vec),
            headers: None,
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
    pub(super) event: OwnedEvent,
    pub(super) message: Message,
}

impl Made {
    pub(super) fn lend(&self) -> Record<'_> {
        Record {
            ticket: self.ticket,
            position: self.position,
            xid: self.xid,
            table: &self.table,
            event: self.event.lend(),
            ..Record::from(&self.message)
        }
    }
}

/// A record that is no event, and for which nobody waits.
impl<'a> From<&'a Message> for Record<'a> {
    fn from(message: &'a Message) -> Record<'a> {
        static NO_TABLE: TableName = TableName { schema: String::new(), table: String::new() };
        let Message { topic, partition, key, value, headers, timestamp_ms } = message;
        Record {
            ticket: Ticket::NONE,
            position: Position::default(),
            xid: 0,
            table: &NO_TABLE,
            event: Event::default(),
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

/// A row's columns, in order.
pub(super) fn values<'a>(row: Tuple<'a>) -> Result<Vec<Value<'a>>, WireError> {
    let mut values = Vec::new();
    row.read(|_, value| values.push(value))?;
    Ok(values)
}

/// The same as texts; or the first column that is none.
pub(super) fn cells<'a>(row: &[Value<'a>]) -> Result<Vec<Cell<'a>>, usize> {
    let cell = |(index, value): (usize, &Value<'a>)| match *value {
        Value::Null => Ok(Cell::Null),
        Value::Unchanged => Ok(Cell::Unchanged),
        Value::Text(bytes) => std::str::from_utf8(bytes).map(Cell::Text).map_err(|_| index),
    };
    row.iter().enumerate().map(cell).collect()
}
