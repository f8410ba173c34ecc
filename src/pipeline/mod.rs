//! The pure core: frames from the walsender and acknowledgements from the sink go in, records and the confirmed
//! position come out. No IO, no clock, no async, so that a simulation can drive it through anything.
//!
//! The caller's part:
//! 1. While [`Pipeline::has_room`], hand each CopyData body to [`Pipeline::step`], in order. Without room, read on
//!    only after acknowledgements (G4).
//! 2. Send each [`Output::Record`] before the next step, in order within a topic and key (G2). A connector's task may make
//!    several records of a row: while the pipeline [has more](Pipeline::has_more), take [that](Pipeline::more) first.
//! 3. [Describe](Pipeline::describe) each [`Output::Undescribed`] relation before the next step.
//! 4. Call [`Pipeline::acknowledge`] when, and only when, the sink has the record for good (G1).
//! 5. Report [`Pipeline::confirmed`] when [`feedback::Feedback`] says so.
//! 6. On an error throw the pipeline away and start a new one from the slot's own position.
//!
//! No row is buffered: protocol 1 sends committed transactions only, whole and in commit order, so a row is a record
//! as soon as it arrives, and a transaction of any size costs no memory.

mod captured;
mod connector;
pub mod feedback;
pub mod frame;
pub mod ledger;
pub mod lsn;
pub mod message;
pub mod origin;
pub mod outbox;
pub mod pgoutput;
pub mod record;
pub mod resume;
mod row;
pub mod template;
mod time_text;
pub mod wire;

use std::collections::{HashMap, HashSet};

pub use frame::PgTime;
pub use ledger::{Completed, Limits, Ticket};
pub use lsn::{Lsn, Position};
pub use origin::{Origin, Place, Reading};
pub use record::{Event, Headers, OwnedEvent, Record};

use captured::Told;
pub use captured::source_of;
use connector::{Captured, Connector};
pub use connector::{Description, Undescribed, UndescribedColumn};
use frame::Frame;
use ledger::Ledger;
use message::MessageOutbox;
use outbox::{AfterPublish, Format, Layout, MissingColumn, Outbox, Poison, Reason, Scratch, TableName};
pub use pgoutput::RelationId;
use pgoutput::{Begin, Commit, Logical, Message, Relation, Tuple};
use resume::{Mismatch, Resume};
use row::Passage;
use wire::WireError;

use crate::debezium::Counts;

/// What an update, delete or truncate of an outbox does: none of them is an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUpdate {
    /// Say so once a table and go on.
    #[default]
    Ignore,
    /// Stop: the table is not used as an outbox.
    Halt,
}

const OUTSIDE: &str = "a transactional message outside a transaction";

/// Turns one session's stream into records.
#[derive(Debug)]
pub struct Pipeline {
    outboxes: Vec<Outbox>,
    messages: Vec<MessageOutbox>,
    on_update: OnUpdate,
    relations: HashMap<RelationId, Role>,
    transaction: Option<Transaction>,
    ledger: Ledger,
    resume: Resume,
    /// Of what [`Pipeline::step`] brings.
    origin: Origin,
    /// Reported until the stored position is met.
    start: Lsn,
    counters: Counters,
    noticed: HashSet<(RelationId, Change)>,
    scratch: Scratch,
    /// The row of the last message.
    row: Vec<u8>,
    now: PgTime,
    connector: Option<Connector>,
}

/// What a relation is to us.
#[derive(Debug)]
enum Role {
    /// Index among the outboxes, and where its rows keep things.
    Outbox(usize, Layout),
    /// What a connector takes.
    Captured(Captured),
    /// A table that the connector takes and that was not known. It has no rows yet: with those of a root that are published
    /// as such, each partition is described too.
    New(TableName),
    /// A table that the publication has beside the outboxes.
    Other(TableName),
}

#[derive(Clone, Copy, Debug)]
struct Transaction {
    begin: Begin,
    origin: Origin,
    /// Ordinal of the next event.
    ordinal: u32,
}

impl Transaction {
    /// The place of the next event.
    fn position(&self) -> Position {
        Position { commit_lsn: self.begin.final_lsn, ordinal: self.ordinal }
    }

    /// That, which is taken by it.
    fn take_position(&mut self) -> Position {
        let position = self.position();
        self.ordinal += 1;
        position
    }
}

/// Totals since the pipeline began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that ended, with events or without.
    pub transactions: u64,
    /// Events decoded, for each outbox in the order of the configuration, those without a table last.
    pub events: Vec<u64>,
    /// Events that `record.timestamp = "column"` could not stamp.
    pub timestamps_replaced: u64,
}

/// What the caller does after a step.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // made once a row, used at once, never stored
pub enum Output<'a> {
    /// Nothing.
    None,
    /// Send it.
    Record(Record<'a>),
    /// An event that cannot be sent. It keeps its place in flight: nothing of its transaction or after it is confirmed
    /// until its ticket is acknowledged, which is for whoever has put the event somewhere durable (G1, G7).
    Poison { ticket: Ticket, poison: Box<Poison> },
    /// The sink has it from an earlier session; the row of it is to be marked (`after_publish`), and the ticket waits for that.
    Passed { ticket: Ticket, position: Position, table: &'a TableName, id: String },
    /// Ask the catalog, and [describe](Pipeline::describe) the relation before the next step.
    Undescribed(Undescribed),
    /// Send a status now.
    ReplyRequested,
    /// A change that is no event, seen for the first time: say so.
    Ignored { table: TableName, change: Change },
}

/// A row-level change as pgoutput names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Insert,
    Update,
    Delete,
    Truncate,
}

/// Why the stream cannot go on. Permanent: the same bytes would come again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the server's replication stream cannot be read ({context}); please report it")]
    Wire { context: &'static str, source: WireError },
    #[error("the server's replication stream breaks its own order: {0}; please report it")]
    Order(&'static str),
    #[error(transparent)]
    MissingColumn(#[from] MissingColumn),
    #[error(
        "{0}; nothing was sent or confirmed: to stream from this log all the same, name another \
         exactly_once.positions_topic, which may repeat what was sent"
    )]
    Resume(#[from] Mismatch),
    #[error(
        "table {table} has appeared, and the connector takes it (table.include.list): start walpost again, or leave the table out"
    )]
    NewTable { table: TableName },
    #[error(
        "a row of outbox {table} was changed ({change:?}) and on_update is \"halt\"; an outbox is only inserted into and \
         deleted from by pruning: publish inserts only (ALTER PUBLICATION … SET (publish = 'insert')) or set on_update = \"ignore\""
    )]
    Changed { table: TableName, change: Change },
}

impl Pipeline {
    /// A pipeline that continues from `start`, the slot's confirmed position.
    pub fn new(outboxes: Vec<Outbox>, on_update: OnUpdate, start: Lsn, limits: Limits) -> Pipeline {
        let counters = Counters { events: vec![0; outboxes.len()], ..Counters::default() };
        Pipeline {
            outboxes,
            messages: Vec::new(),
            on_update,
            relations: HashMap::new(),
            transaction: None,
            ledger: Ledger::new(start, limits),
            resume: Resume::default(),
            origin: Origin::Stream,
            start,
            counters,
            noticed: HashSet::new(),
            scratch: Scratch::default(),
            row: Vec::new(),
            now: PgTime(0),
            connector: None,
        }
    }

    /// These are outboxes too, without a table: each is named by [`source_of`] the prefix of its messages. Before the first
    /// step.
    pub fn take_messages(&mut self, outboxes: &[Outbox]) {
        self.messages = outboxes.iter().map(MessageOutbox::new).collect();
        self.counters.events.resize(self.outboxes.len() + outboxes.len(), 0);
    }

    /// The time, which some records of a connector tell, and dead letters of messages that came in no transaction.
    pub fn clock(&mut self, now: PgTime) {
        self.now = now;
    }

    /// Takes one CopyData body.
    pub fn step<'a>(&'a mut self, body: &'a [u8]) -> Result<Output<'a>, Error> {
        match Frame::parse(body).map_err(|source| Error::Wire { context: "frame", source })? {
            Frame::XLogData { start, message } => {
                self.connector.iter_mut().for_each(|connector| connector.at = start);
                self.message(message)
            }
            Frame::Keepalive { wal_end, reply_requested } => {
                if self.transaction.is_none() {
                    self.resume.passed(wal_end)?;
                }
                self.ledger.keepalive(wal_end);
                Ok(if reply_requested { Output::ReplyRequested } else { Output::None })
            }
        }
    }

    /// What is stepped is no stream of its own, and its records are to say so. Before the first step.
    pub fn mark(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Rows of the tables come in front of the stream, as one transaction: [`Pipeline::read`] takes them,
    /// [`Pipeline::end_reading`] ends it. Between two transactions.
    pub fn begin_reading(&mut self, reading: Reading) {
        let Reading { origin, commit_lsn, first, at } = reading;
        let begin = Begin { final_lsn: commit_lsn, commit_time: at, xid: 0 };
        let outer = self.transaction.replace(Transaction { begin, origin, ordinal: first });
        assert!(outer.is_none(), "tables are read inside a transaction");
        self.ledger.begin();
    }

    /// Takes one pgoutput message about a row that was read: a relation, or an insert.
    pub fn read<'a>(&'a mut self, message: &'a [u8]) -> Result<Output<'a>, Error> {
        assert!(self.is_reading(), "a row of a table outside of a reading");
        self.message(message)
    }

    /// All rows were read. What is acknowledged then confirms nothing: none of them is in the log.
    pub fn end_reading(&mut self) {
        assert!(self.is_reading(), "the end of a reading without its beginning");
        if let Some(Transaction { begin, .. }) = self.transaction.take() {
            self.ledger.commit(self.ledger.newest(), begin.commit_time);
        }
    }

    /// Rows of the tables are being read.
    pub fn is_reading(&self) -> bool {
        self.transaction.is_some_and(|open| open.origin.is_table())
    }

    /// The sink has the record for good.
    pub fn acknowledge(&mut self, ticket: Ticket) {
        self.ledger.acknowledge(ticket);
    }

    /// Passes over what Kafka has already. Before the first step.
    pub fn resume(&mut self, resume: Resume) {
        self.resume = resume;
    }

    /// The position that may be reported to PostgreSQL (G1).
    pub fn confirmed(&self) -> Lsn {
        if self.resume.is_pending() { self.start } else { self.ledger.confirmed() }
    }

    /// Whether another frame may be stepped (G4).
    pub fn has_room(&self) -> bool {
        self.ledger.has_room()
    }

    /// Commit time of the open transaction of the log.
    pub fn commit_time(&self) -> Option<PgTime> {
        self.transaction.filter(|open| !open.origin.is_table()).map(|open| open.begin.commit_time)
    }

    /// Commit time of the oldest transaction that is not confirmed, the open one included.
    pub fn oldest_unconfirmed(&self) -> Option<PgTime> {
        self.ledger.oldest_unconfirmed().or(self.transaction.map(|open| open.begin.commit_time))
    }

    /// The transactions with records that were confirmed since the last call.
    pub fn take_completed(&mut self) -> std::vec::Drain<'_, Completed> {
        self.ledger.take_completed()
    }

    /// What is in flight.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A transaction of the log has begun and not ended.
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some_and(|open| !open.origin.is_table())
    }

    fn message<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Output<'a>, Error> {
        match Message::parse(bytes).map_err(|source| Error::Wire { context: "pgoutput message", source })? {
            Message::Begin(begin) => return self.begin(begin),
            Message::Commit(commit) => return self.commit(commit),
            Message::Relation(relation) => return self.relation(&relation),
            Message::Insert { relation, new } => {
                self.refuse_new(relation)?;
                return self.insert(bytes, relation, new);
            }
            Message::Update { relation, old, new } => {
                self.refuse_new(relation)?;
                if self.is_captured(relation) {
                    self.capture(relation, Change::Update, old, Some(new))?;
                    if !self.has_more() {
                        return Ok(self.dropped(relation, Change::Update));
                    }
                    return Ok(self.more());
                }
                return self.change(&[relation], Change::Update);
            }
            Message::Delete { relation, old } => {
                self.refuse_new(relation)?;
                if self.is_captured(relation) {
                    self.capture(relation, Change::Delete, Some(old), None)?;
                    return Ok(self.more());
                }
                return self.change(&[relation], Change::Delete);
            }
            Message::Truncate { relations } => return self.truncate(&relations),
            Message::Logical(logical) => return self.logical(&logical),
            Message::Origin | Message::Type | Message::StreamAbort => {}
        }
        Ok(Output::None)
    }

    fn begin(&mut self, begin: Begin) -> Result<Output<'_>, Error> {
        if self.transaction.replace(Transaction { begin, origin: self.origin, ordinal: 0 }).is_some() {
            return Err(Error::Order("a transaction begins inside another"));
        }
        self.ledger.begin();
        let Some(connector) = &mut self.connector else { return Ok(Output::None) };
        connector.counts = Counts::default();
        self.queue_transaction(|task, source, _| task.begin(source))?;
        Ok(self.more())
    }

    fn commit(&mut self, commit: Commit) -> Result<Output<'_>, Error> {
        let Some(Transaction { begin, .. }) = self.transaction else {
            return Err(Error::Order("a commit without a begin"));
        };
        if commit.commit_lsn != begin.final_lsn {
            return Err(Error::Order("a commit with another position than its begin"));
        }
        if commit.end_lsn < self.ledger.newest() {
            return Err(Error::Order("a commit that ends below what came before it"));
        }
        if self.connector.is_some() {
            self.queue_transaction(|task, source, counts| task.end(source, counts))?;
        }
        self.transaction = None;
        self.resume.passed(commit.end_lsn)?;
        self.ledger.commit(commit.end_lsn, begin.commit_time);
        self.counters.transactions += 1;
        let Some(connector) = &mut self.connector else { return Ok(Output::None) };
        connector.last_commit = Some(connector.at);
        Ok(self.more())
    }

    fn relation(&mut self, relation: &Relation<'_>) -> Result<Output<'_>, Error> {
        let is_it = |outbox: &Outbox| outbox.name.schema == relation.schema && outbox.name.table == relation.name;
        let role = match self.outboxes.iter().position(is_it) {
            Some(index) => match &self.outboxes[index].format {
                Format::Debezium(_) => return Ok(self.capture_table(index, relation)),
                Format::Native | Format::CloudEvents(_) => {
                    Role::Outbox(index, Layout::new(&self.outboxes[index], relation)?)
                }
            },
            None => {
                let table = TableName { schema: relation.schema.to_owned(), table: relation.name.to_owned() };
                match &self.connector {
                    Some(connector) if connector.task.takes(&table) => Role::New(table),
                    _ => Role::Other(table),
                }
            }
        };
        self.relations.insert(relation.id, role);
        Ok(Output::None)
    }

    /// Changes of a table that was not known come again when it is.
    fn refuse_new(&self, id: RelationId) -> Result<(), Error> {
        match self.relations.get(&id) {
            Some(Role::New(table)) => Err(Error::NewTable { table: table.clone() }),
            _ => Ok(()),
        }
    }

    fn insert<'a>(&'a mut self, message: &'a [u8], id: RelationId, row: Tuple<'a>) -> Result<Output<'a>, Error> {
        if self.is_captured(id) {
            self.capture(id, Change::Insert, None, Some(row))?;
            return Ok(self.more());
        }
        let Some(transaction) = &mut self.transaction else {
            return Err(Error::Order("a row outside a transaction"));
        };
        let (index, layout) = match self.relations.get(&id) {
            Some(Role::Outbox(index, layout)) => (*index, layout),
            Some(Role::Other(table)) => return Ok(ignored(&mut self.noticed, id, table, Change::Insert)),
            Some(Role::Captured(_) | Role::New(_)) | None => {
                return Err(Error::Order("a row of a relation that was not described"));
            }
        };
        let marks = self.outboxes[index].after_publish != AfterPublish::Keep;
        let Pipeline { resume, ledger, counters, scratch, .. } = self;
        Passage { transaction, resume, ledger, counters, scratch }.row(layout, index, marks, message, row)
    }

    /// Takes a message from `pg_logical_emit_message`.
    fn logical(&mut self, logical: &Logical<'_>) -> Result<Output<'_>, Error> {
        let Logical { transactional, prefix, content, .. } = *logical;
        let own = self.messages.iter().position(|outbox| outbox.prefix == prefix);
        let is_taken =
            own.is_some() || self.connector.as_ref().is_some_and(|connector| connector.task.takes_message(prefix));
        if !is_taken {
            return Ok(Output::None);
        }
        if !transactional {
            return self.untransactional(own, logical);
        }
        match own {
            Some(index) => self.event(index, content),
            None => {
                self.capture_message(prefix, content)?;
                Ok(self.more())
            }
        }
    }

    /// Takes a message of an outbox without a table.
    fn event(&mut self, index: usize, content: &[u8]) -> Result<Output<'_>, Error> {
        let Pipeline { outboxes, messages, transaction, resume, ledger, counters, scratch, row, .. } = self;
        let Some(transaction) = transaction else { return Err(Error::Order(OUTSIDE)) };
        let outbox = &messages[index];
        let mut said = outbox.read(content);
        let passage = Passage { transaction, resume, ledger, counters, scratch };
        if let Some(malformed) = said.take_fault() {
            let position = passage.transaction.take_position();
            if !passage.resume.admits(position, || outbox.id(&said))? {
                return Ok(Output::None);
            }
            let ticket = passage.ledger.send(content.len());
            let Begin { commit_time, xid, .. } = passage.transaction.begin;
            let reason = Reason::Malformed(malformed);
            let poison = outbox.poison(&said, reason, content, position, xid, commit_time);
            return Ok(Output::Poison { ticket, poison: Box::new(poison) });
        }
        said.write(row);
        passage.row(outbox.layout(&said), outboxes.len() + index, false, row, message::row(row))
    }

    /// A message that was sent whatever became of its transaction is no event that can be relied on. It comes between
    /// transactions, and is one by itself.
    fn untransactional(&mut self, own: Option<usize>, logical: &Logical<'_>) -> Result<Output<'_>, Error> {
        if self.transaction.is_some() {
            return Err(Error::Order("a message that is not transactional inside a transaction"));
        }
        let Logical { lsn, prefix, content, .. } = *logical;
        let position = Position { commit_lsn: lsn, ordinal: 0 };
        let (reason, now) = (Reason::Untransactional, self.now);
        let poison = match (own.map(|index| &self.messages[index]), &self.connector) {
            (Some(outbox), _) => outbox.poison(&outbox.read(content), reason, content, position, 0, now),
            (None, Some(connector)) => {
                Told::of_message(&connector.task, content, None).poison(position, source_of(prefix), reason, 0, now)
            }
            (None, None) => return Ok(Output::None),
        };
        if !self.resume.admits(position, || poison.id.clone())? {
            return Ok(Output::None);
        }
        self.ledger.begin();
        let ticket = self.ledger.send(content.len());
        // Nobody knows where its log record ends: the next keepalive or commit does.
        self.ledger.commit(lsn.max(self.ledger.newest()), now);
        Ok(Output::Poison { ticket, poison: Box::new(poison) })
    }

    fn truncate(&mut self, relations: &[RelationId]) -> Result<Output<'_>, Error> {
        for id in relations {
            self.refuse_new(*id)?;
            if self.is_captured(*id) {
                self.capture(*id, Change::Truncate, None, None)?;
            }
        }
        if self.has_more() {
            return Ok(self.more());
        }
        self.change(relations, Change::Truncate)
    }

    fn change(&mut self, relations: &[RelationId], change: Change) -> Result<Output<'_>, Error> {
        for id in relations {
            if let Some(Role::Outbox(_, Layout { name, .. })) = self.relations.get(id) {
                if self.on_update == OnUpdate::Halt {
                    return Err(Error::Changed { table: name.clone(), change });
                }
                if let notice @ Output::Ignored { .. } = ignored(&mut self.noticed, *id, name, change) {
                    return Ok(notice);
                }
            }
        }
        Ok(Output::None)
    }
}

/// A notice for the first such change of the relation.
fn ignored<'a>(
    noticed: &mut HashSet<(RelationId, Change)>,
    id: RelationId,
    table: &TableName,
    change: Change,
) -> Output<'a> {
    match noticed.insert((id, change)) {
        true => Output::Ignored { table: table.clone(), change },
        false => Output::None,
    }
}
