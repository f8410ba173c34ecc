//! The pure core: frames from the walsender and acknowledgements from the sink go in, records and the confirmed
//! position come out. No IO, no clock, no async, so that a simulation can drive it through anything.
//!
//! The caller's part:
//! 1. While [`Pipeline::has_room`], hand each CopyData body to [`Pipeline::step`], in order. Without room, read on
//!    only after acknowledgements (G4).
//! 2. Send each [`Output::Record`] before the next step, in order within a topic and key (G2).
//! 3. Call [`Pipeline::acknowledge`] when, and only when, the sink has the record for good (G1).
//! 4. Report [`Pipeline::confirmed`] when [`feedback::Feedback`] says so.
//! 5. On an error throw the pipeline away and start a new one from the slot's own position.
//!
//! Nothing is buffered: protocol 1 sends committed transactions only, whole and in commit order, so a row is a record
//! as soon as it arrives, and a transaction of any size costs no memory.

pub mod feedback;
pub mod frame;
pub mod ledger;
pub mod lsn;
pub mod origin;
pub mod outbox;
pub mod pgoutput;
pub mod record;
pub mod resume;
pub mod template;
mod time_text;
pub mod wire;

use std::collections::{HashMap, HashSet};

pub use frame::PgTime;
pub use ledger::{Limits, Ticket};
pub use lsn::{Lsn, Position};
pub use origin::{Origin, Place, Reading};
pub use record::{Event, Headers, Record};

use frame::Frame;
use ledger::Ledger;
use outbox::{AfterPublish, Draft, Layout, MissingColumn, Outbox, Poison, Refused, Scratch, TableName};
use pgoutput::{Begin, Commit, Message, Relation, RelationId, Tuple};
use resume::{Mismatch, Resume};
use wire::WireError;

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

/// Turns one session's stream into records.
#[derive(Debug)]
pub struct Pipeline {
    outboxes: Vec<Outbox>,
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
}

/// What a relation is to us.
#[derive(Debug)]
enum Role {
    /// Index among the outboxes, and where its rows keep things.
    Outbox(usize, Layout),
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

/// Totals since the pipeline began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transactions that ended, with events or without.
    pub transactions: u64,
    /// Events decoded, for each outbox in the order of the configuration.
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
        }
    }

    /// Takes one CopyData body.
    pub fn step<'a>(&'a mut self, body: &'a [u8]) -> Result<Output<'a>, Error> {
        match Frame::parse(body).map_err(|source| Error::Wire { context: "frame", source })? {
            Frame::XLogData { message } => self.message(message),
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

    /// Commit time of the oldest transaction that is not confirmed, the open one included.
    pub fn oldest_unconfirmed(&self) -> Option<PgTime> {
        self.ledger.oldest_unconfirmed().or(self.transaction.map(|open| open.begin.commit_time))
    }

    /// Commit times of the transactions with records that were confirmed since the last call.
    pub fn take_completed(&mut self) -> std::vec::Drain<'_, PgTime> {
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
            Message::Begin(begin) => self.begin(begin)?,
            Message::Commit(commit) => self.commit(commit)?,
            Message::Relation(relation) => self.relation(&relation)?,
            Message::Insert { relation, new } => return self.insert(bytes, relation, new),
            Message::Update { relation } => return self.change(&[relation], Change::Update),
            Message::Delete { relation } => return self.change(&[relation], Change::Delete),
            Message::Truncate { relations } => return self.change(&relations, Change::Truncate),
            Message::Origin | Message::Type | Message::Logical(_) | Message::StreamAbort => {}
        }
        Ok(Output::None)
    }

    fn begin(&mut self, begin: Begin) -> Result<(), Error> {
        if self.transaction.replace(Transaction { begin, origin: self.origin, ordinal: 0 }).is_some() {
            return Err(Error::Order("a transaction begins inside another"));
        }
        self.ledger.begin();
        Ok(())
    }

    fn commit(&mut self, commit: Commit) -> Result<(), Error> {
        let Some(Transaction { begin, .. }) = self.transaction.take() else {
            return Err(Error::Order("a commit without a begin"));
        };
        if commit.commit_lsn != begin.final_lsn {
            return Err(Error::Order("a commit with another position than its begin"));
        }
        if commit.end_lsn < self.ledger.newest() {
            return Err(Error::Order("a commit that ends below what came before it"));
        }
        self.resume.passed(commit.end_lsn)?;
        self.ledger.commit(commit.end_lsn, begin.commit_time);
        self.counters.transactions += 1;
        Ok(())
    }

    fn relation(&mut self, relation: &Relation<'_>) -> Result<(), Error> {
        let is_it = |outbox: &Outbox| outbox.name.schema == relation.schema && outbox.name.table == relation.name;
        let role = match self.outboxes.iter().position(is_it) {
            Some(index) => Role::Outbox(index, Layout::new(&self.outboxes[index], relation)?),
            None => Role::Other(TableName { schema: relation.schema.to_owned(), table: relation.name.to_owned() }),
        };
        self.relations.insert(relation.id, role);
        Ok(())
    }

    fn insert<'a>(&'a mut self, message: &'a [u8], id: RelationId, row: Tuple<'a>) -> Result<Output<'a>, Error> {
        let Some(transaction) = &mut self.transaction else {
            return Err(Error::Order("a row outside a transaction"));
        };
        let (index, layout) = match self.relations.get(&id) {
            Some(Role::Outbox(index, layout)) => (*index, layout),
            Some(Role::Other(table)) => return Ok(ignored(&mut self.noticed, id, table, Change::Insert)),
            None => return Err(Error::Order("a row of a relation that was not described")),
        };
        let position = Position { commit_lsn: transaction.begin.final_lsn, ordinal: transaction.ordinal };
        transaction.ordinal += 1;
        let Transaction { begin: Begin { commit_time, xid, .. }, origin, .. } = *transaction;
        if !origin.is_table() && !self.resume.admits(position, || layout.event_id(&row))? {
            // Whoever marks rows marks this one too before it is confirmed.
            if self.outboxes[index].after_publish == AfterPublish::Keep {
                return Ok(Output::None);
            }
            let id = layout.event_id(&row);
            let ticket = self.ledger.send(message.len());
            return Ok(Output::Passed { ticket, position, table: &layout.name, id });
        }
        let draft = layout.record(message, row, position, commit_time, origin, &mut self.scratch);
        let Draft { event, topic, key, value, timestamp_ms, timestamp_replaced, headers } = match draft {
            Ok(draft) => draft,
            Err(Refused::Poison(poison)) => {
                let ticket = self.ledger.send(message.len());
                return Ok(Output::Poison { ticket, poison: Box::new(Poison { xid, ..*poison }) });
            }
            Err(Refused::Wire(source)) => return Err(Error::Wire { context: "row", source }),
            Err(Refused::Shape) => return Err(Error::Order("a row that does not fit its relation")),
        };
        self.counters.events[index] += 1;
        self.counters.timestamps_replaced += u64::from(timestamp_replaced);
        let mut record = Record {
            ticket: Ticket(0),
            position,
            xid,
            table: &layout.name,
            event,
            topic,
            partition: None,
            key,
            value,
            timestamp_ms,
            headers,
        };
        record.ticket = self.ledger.send(record.weight());
        Ok(Output::Record(record))
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
