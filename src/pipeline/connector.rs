//! Where a connector runs: its task makes the records of tables and messages, and the catalog is asked what the log does not
//! tell of a table.

use std::sync::Arc;

use super::{
    Change, Error, OUTSIDE, Output, Pipeline, Role, Transaction,
    captured::{Made, Queue, Queued, Telling, Told, cells, source_of, values},
    frame::PgTime,
    ignored,
    ledger::Ticket,
    lsn::Lsn,
    outbox::{AfterPublish, Reason, TableName},
    pgoutput::{self, Begin, Relation, RelationId, Tuple, TypeOid, Value},
};
use crate::debezium::{Counts, Message, Refusal, Source, Table, Task, columns::Attribute};

/// A connector whose task makes the records.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) task: Arc<Task>,
    /// Records that are made and not given out.
    queue: Queue,
    /// Of the open transaction.
    pub(super) counts: Counts,
    /// Where the log data started that is stepped, and that of the last commit.
    pub(super) at: Lsn,
    pub(super) last_commit: Option<Lsn>,
}

/// A table whose rows a connector's task makes records of.
#[derive(Debug)]
pub(super) struct Captured {
    name: Arc<TableName>,
    /// Its place among the outboxes.
    index: usize,
    telling: Telling,
    /// None: the catalog has not been asked.
    table: Option<Table>,
}

/// A relation that the catalog is to be asked about, for [`Pipeline::describe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undescribed {
    pub id: RelationId,
    pub table: TableName,
    /// In the order of the rows that follow.
    pub columns: Vec<UndescribedColumn>,
}

/// A column as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndescribedColumn {
    pub name: String,
    pub type_oid: TypeOid,
    /// `atttypmod`; -1 where the type has none.
    pub typmod: i32,
}

/// What the catalog knows of a relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// In the order of the rows.
    pub columns: Vec<Attribute>,
    /// Names of the columns that identify a row, in the order of the key.
    pub key: Vec<String>,
}

impl Pipeline {
    /// The connector's task makes the records, of tables whose format that is and of messages that are no outbox's own.
    /// Before the first step.
    pub fn run(&mut self, task: Arc<Task>) {
        self.connector =
            Some(Connector { task, queue: Queue::default(), counts: Counts::default(), at: Lsn(0), last_commit: None });
    }

    /// The last step led to more than it gave.
    pub fn has_more(&self) -> bool {
        self.connector.as_ref().is_some_and(|connector| !connector.queue.is_empty())
    }

    /// That, one at a time. Take it all before the next step.
    pub fn more(&mut self) -> Output<'_> {
        self.connector.as_mut().map_or(Output::None, |connector| connector.queue.give())
    }

    /// Says what the catalog knows of a relation.
    pub fn describe(&mut self, id: RelationId, description: &Description) {
        let Description { columns, key } = description;
        if let (Some(connector), Some(Role::Captured(captured))) = (&self.connector, self.relations.get_mut(&id)) {
            captured.table = Some(connector.task.table(&captured.name, columns, key));
        }
    }

    /// What is worth telling of a relation that was described.
    pub fn warnings(&self, id: RelationId) -> &[String] {
        match self.relations.get(&id) {
            Some(Role::Captured(Captured { table: Some(table), .. })) => table.warnings(),
            _ => &[],
        }
    }

    pub(super) fn capture_table(&mut self, index: usize, relation: &Relation<'_>) -> Output<'_> {
        let outbox = &self.outboxes[index];
        let column = |column: &pgoutput::Column<'_>| UndescribedColumn {
            name: column.name.to_owned(),
            type_oid: column.type_oid,
            typmod: column.typmod,
        };
        let columns = relation.columns.iter().map(column).collect();
        let undescribed = Undescribed { id: relation.id, table: outbox.name.clone(), columns };
        let telling = Telling::new(outbox, relation);
        let captured = Captured { name: Arc::new(outbox.name.clone()), index, telling, table: None };
        self.relations.insert(relation.id, Role::Captured(captured));
        Output::Undescribed(undescribed)
    }

    pub(super) fn is_captured(&self, id: RelationId) -> bool {
        self.connector.is_some() && matches!(self.relations.get(&id), Some(Role::Captured(_)))
    }

    /// Makes the records of a change of a row.
    pub(super) fn capture<'t>(
        &mut self,
        id: RelationId,
        change: Change,
        old: Option<Tuple<'t>>,
        new: Option<Tuple<'t>>,
    ) -> Result<(), Error> {
        let Some(transaction) = &self.transaction else {
            return Err(Error::Order("a row outside a transaction"));
        };
        let (Some(Role::Captured(Captured { name, index, telling, table: Some(table) })), Some(connector)) =
            (self.relations.get(&id), &mut self.connector)
        else {
            return Err(Error::Order("a row of a relation that was not described"));
        };
        let source = connector.source(transaction, self.now);
        let (name, index) = (Arc::clone(name), *index);
        let row = |row: Option<Tuple<'t>>| row.map(values).transpose();
        let wire = |source| Error::Wire { context: "row", source };
        let (old, new) = (row(old).map_err(wire)?, row(new).map_err(wire)?);
        let told = telling.read(new.as_deref().or(old.as_deref()).unwrap_or_default());
        let texts = |values: &Option<Vec<Value<'t>>>| values.as_deref().map(cells).transpose();
        let (old, new) = match (texts(&old), texts(&new)) {
            (Ok(old), Ok(new)) => (old, new),
            (Err(column), _) | (_, Err(column)) => {
                return self.queue_all(&name, Some(index), told, Err(Reason::Encoding(column)));
            }
        };
        let (task, counts) = (&connector.task, &mut connector.counts);
        let made = match (change, old, new) {
            (Change::Insert, _, Some(new)) => task.insert(table, &new, &source, counts),
            (Change::Update, old, Some(new)) => task.update(table, old.as_deref(), &new, &source, counts),
            (Change::Delete, Some(old), _) => task.delete(table, &old, &source, counts),
            _ => task.truncate(table, &source, counts),
        };
        self.queue_all(&name, Some(index), told, made.map_err(Reason::Connector))
    }

    /// A change of a captured row that gives no record: an outbox's router drops updates.
    pub(super) fn dropped(&mut self, id: RelationId, change: Change) -> Output<'_> {
        match self.relations.get(&id) {
            Some(Role::Captured(captured)) => ignored(&mut self.noticed, id, &captured.name, change),
            _ => Output::None,
        }
    }

    /// Makes the records of a message.
    pub(super) fn capture_message(&mut self, prefix: &str, content: &[u8]) -> Result<(), Error> {
        let (Some(transaction), Some(connector)) = (&self.transaction, &mut self.connector) else {
            return Err(Error::Order(OUTSIDE));
        };
        let source = connector.source(transaction, self.now);
        let made = connector.task.message(prefix, content, true, &source, &mut connector.counts);
        let told = Told::of_message(&connector.task, content, made.as_deref().ok());
        self.queue_all(&Arc::new(source_of(prefix)), None, told, made.map_err(Reason::Connector))
    }

    /// Queues what a task makes of the beginning or end of the transaction.
    pub(super) fn queue_transaction(
        &mut self,
        make: impl FnOnce(&Task, &Source, &Counts) -> Result<Option<Message>, Refusal>,
    ) -> Result<(), Error> {
        let (Some(transaction), Some(connector)) = (&self.transaction, &self.connector) else {
            return Ok(());
        };
        let made = make(&connector.task, &connector.source(transaction, self.now), &connector.counts);
        let made = made.map(|message| message.into_iter().collect()).map_err(Reason::Connector);
        self.queue_all(&Arc::default(), None, Told::default(), made)
    }

    /// Queues records of an event, or that none can be made of it.
    fn queue_all(
        &mut self,
        table: &Arc<TableName>,
        outbox: Option<usize>,
        told: Told<'_>,
        made: Result<Vec<Message>, Reason>,
    ) -> Result<(), Error> {
        let (Some(transaction), Some(connector)) = (&mut self.transaction, &mut self.connector) else {
            return Err(Error::Order("a record outside a transaction"));
        };
        let records = match made {
            Ok(messages) => messages.into_iter().map(Ok).collect(),
            Err(reason) => vec![Err(reason)],
        };
        for record in records {
            let position = transaction.take_position();
            let Begin { commit_time, xid, .. } = transaction.begin;
            if !transaction.origin.is_table() && !self.resume.admits(position, || told.id())? {
                // Whoever marks rows marks this one too before it is confirmed.
                if outbox.is_some_and(|index| self.outboxes[index].after_publish != AfterPublish::Keep) {
                    let ticket = self.ledger.send(told.size());
                    connector.queue.push(Queued::Passed { ticket, position, table: Arc::clone(table), id: told.id() });
                }
                continue;
            }
            match record {
                Ok(message) => {
                    let (table, event) = (Arc::clone(table), told.event.clone());
                    let mut made = Made { ticket: Ticket(0), position, xid, table, event, message };
                    made.ticket = self.ledger.send(made.lend().weight());
                    connector.queue.push(Queued::Record(made));
                    outbox.into_iter().for_each(|index| self.counters.events[index] += 1);
                }
                Err(reason) => {
                    let ticket = self.ledger.send(told.size());
                    let poison = told.poison(position, TableName::clone(table), reason, xid, commit_time);
                    connector.queue.push(Queued::Poison(ticket, Box::new(poison)));
                }
            }
        }
        Ok(())
    }
}

impl Connector {
    fn source(&self, transaction: &Transaction, now: PgTime) -> Source {
        let Begin { commit_time, xid, .. } = transaction.begin;
        Source {
            position: transaction.position(),
            lsn: self.at,
            last_commit_lsn: self.last_commit,
            xid,
            commit_time,
            snapshot: transaction.origin.is_table(),
            now,
        }
    }
}
