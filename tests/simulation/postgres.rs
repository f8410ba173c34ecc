//! PostgreSQL as far as a walsender's client can tell: sessions that write into one log, and a slot.
//!
//! Rows get their positions when they are written, transactions their place when they commit, so rows of interleaved
//! transactions reach the client with positions that jump back. A commit record may start exactly where the one before
//! it ended. The slot moves by status updates only, and what it reported may be lost in a crash of the server.

use std::rc::Rc;

use walpost::pipeline::{
    Lsn,
    resume::{Log, Stored},
};

use crate::{
    catalog::{self, Event, OUTBOXES, Shape, TABLES},
    encode,
    random::Random,
    relay::event_of,
    story::{At, Story},
};

/// Something that the log holds for the publication, at its place in commit order.
pub(crate) enum Entry {
    Transaction(Transaction),
    /// `pg_logical_emit_message` outside a transaction.
    Message {
        lsn: u64,
        message: Vec<u8>,
    },
}

impl Entry {
    /// A walsender skips what starts below the slot's position.
    pub(crate) fn start(&self) -> u64 {
        match self {
            Entry::Transaction(transaction) => transaction.commit_lsn,
            Entry::Message { lsn, .. } => *lsn,
        }
    }
}

pub(crate) struct Transaction {
    pub(crate) xid: u32,
    /// Start of the commit record.
    pub(crate) commit_lsn: u64,
    /// End of the commit record.
    pub(crate) end_lsn: u64,
    /// Microseconds since 2000-01-01.
    pub(crate) commit_time: i64,
    /// It came from another server by logical replication.
    pub(crate) foreign: bool,
    pub(crate) changes: Vec<Change>,
}

pub(crate) struct Change {
    pub(crate) lsn: u64,
    /// The table as it was for this change; none for a logical message.
    pub(crate) shape: Option<Rc<Shape>>,
    pub(crate) message: Vec<u8>,
    /// Number of the event that this change is.
    pub(crate) event: Option<usize>,
}

/// What a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No transaction that reaches the log.
    Nothing,
    /// A transaction: it is the log's last entry.
    Committed,
}

struct Open {
    xid: u32,
    changes: Vec<Change>,
    /// Where the savepoint lies, if there is one.
    savepoint: Option<usize>,
}

/// The slot's confirmed position, as the view shows it and as it would be after a crash of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) confirmed: u64,
    durable: u64,
}

pub(crate) struct Postgres {
    /// Where the next record goes.
    pub(crate) wal: u64,
    pub(crate) log: Vec<Entry>,
    pub(crate) slot: Slot,
    /// Every row ever inserted into an outbox, and the table's shape at that time; committed or not.
    pub(crate) events: Vec<(Event, Rc<Shape>)>,
    shapes: [Rc<Shape>; TABLES],
    open: Vec<Open>,
    last_xid: u32,
    /// Different keys of events.
    keys: usize,
    timeline: u32,
    /// The timelines before this one, each with the position at which it was left.
    history: Vec<(u32, Lsn)>,
    last_timeline: u32,
    copy: Option<Copy>,
}

/// What somebody kept of the server: a base backup, a copy of its storage, or a standby.
struct Copy {
    wal: u64,
    entries: usize,
    slot: Slot,
    timeline: u32,
    history: Vec<(u32, Lsn)>,
}

const SESSIONS_MAX: usize = 4;
/// Before 16/… so that both halves of a position are in use.
const START: u64 = 0x15_FFFF_F000;

impl Postgres {
    pub(crate) fn new(keys: usize, random: &mut Random) -> Postgres {
        let shapes = std::array::from_fn(|table| Shape::deal(table, random));
        Postgres {
            wal: START,
            log: Vec::new(),
            slot: Slot { confirmed: START, durable: START },
            events: Vec::new(),
            shapes,
            open: Vec::new(),
            last_xid: 700,
            keys,
            timeline: 1,
            history: Vec::new(),
            last_timeline: 1,
            copy: None,
        }
    }

    fn write(&mut self, len: usize) -> u64 {
        let start = self.wal;
        self.wal += len as u64 * 8;
        start
    }

    /// One statement of one of the sessions.
    pub(crate) fn statement(&mut self, now_us: i64, random: &mut Random, story: &mut Story) -> Ended {
        if self.open.is_empty() || (self.open.len() < SESSIONS_MAX && random.one_in(4)) {
            self.last_xid += 1;
            let xid = self.last_xid;
            self.open.push(Open { xid, changes: Vec::new(), savepoint: None });
            story.tell("app", || format!("begins {xid}"));
            return Ended::Nothing;
        }
        let session = random.below(self.open.len());
        match random.below(14) {
            0..=5 => {
                let rows = if random.one_in(60) { 80 } else { random.between(1, 4) };
                (0..rows).for_each(|_| self.insert_event(session, random, story));
            }
            6 => self.other_change(session, random),
            7 => {
                let open = &mut self.open[session];
                match open.savepoint.take() {
                    Some(savepoint) => open.changes.truncate(savepoint),
                    None => open.savepoint = Some(open.changes.len()),
                }
            }
            8 => {
                let open = self.open.swap_remove(session);
                story.tell("app", || format!("rolls back {} with {} changes", open.xid, open.changes.len()));
            }
            9 => {
                let table = random.below(TABLES);
                self.shapes[table] = Shape::deal(table, random);
                story.tell("app", || format!("alters {}", catalog::table_name(table)));
            }
            10.. => {
                self.commit(session, now_us, random, story);
                return Ended::Committed;
            }
        }
        Ended::Nothing
    }

    fn insert_event(&mut self, session: usize, random: &mut Random, story: &mut Story) {
        let number = self.events.len();
        let shape = Rc::clone(&self.shapes[random.below(OUTBOXES)]);
        let event = Event::random(number, self.keys, random);
        let lsn = self.write(random.between(10, 30));
        let message = shape.insert(&event);
        let open = &mut self.open[session];
        story.tell("app", || format!("{} inserts event {number} at {}", open.xid, At(lsn)));
        open.changes.push(Change { lsn, shape: Some(Rc::clone(&shape)), message, event: Some(number) });
        self.events.push((event, shape));
    }

    /// A change that is no event: of an outbox, of another table, or a logical message.
    fn other_change(&mut self, session: usize, random: &mut Random) {
        let lsn = self.write(random.between(10, 30));
        let outbox = Rc::clone(&self.shapes[random.below(OUTBOXES)]);
        let (shape, message) = match random.below(5) {
            0 => (None, encode::logical(true, lsn, "another tool", b"\x00\xFFB")),
            1 => (Some(Rc::clone(&self.shapes[OUTBOXES])), catalog::other_insert(&self.shapes[OUTBOXES])),
            2 => (Some(Rc::clone(&outbox)), catalog::update(&outbox, random)),
            3 => (Some(Rc::clone(&outbox)), catalog::delete(&outbox)),
            _ => (Some(Rc::clone(&outbox)), catalog::truncate(&outbox)),
        };
        self.open[session].changes.push(Change { lsn, shape, message, event: None });
    }

    fn commit(&mut self, session: usize, now_us: i64, random: &mut Random, story: &mut Story) {
        let Open { xid, changes, .. } = self.open.swap_remove(session);
        let commit_lsn = self.write(random.between(5, 9));
        let end_lsn = self.wal;
        if random.one_in(3) {
            self.write(1);
        }
        story.tell("app", || {
            let events: Vec<_> = changes.iter().filter_map(|change| change.event).collect();
            format!("commits {xid} at {} to {}: events {events:?}", At(commit_lsn), At(end_lsn))
        });
        let foreign = random.one_in(10);
        self.log.push(Entry::Transaction(Transaction {
            xid,
            commit_lsn,
            end_lsn,
            commit_time: now_us,
            foreign,
            changes,
        }));
    }

    /// Log that the publication has nothing of: other tables, other databases, vacuum.
    pub(crate) fn other_traffic(&mut self, random: &mut Random) {
        self.write(random.between(1, 500));
    }

    /// A logical message that belongs to no transaction.
    pub(crate) fn emit(&mut self, random: &mut Random) {
        let lsn = self.write(random.between(5, 20));
        let message = encode::logical(false, lsn, "", b"");
        self.log.push(Entry::Message { lsn, message });
    }

    /// Ends the sessions that still hold transactions open.
    pub(crate) fn roll_back_all(&mut self) {
        self.open.clear();
    }

    /// A status update moves the slot, never back. It is on disk some time later.
    pub(crate) fn confirm(&mut self, position: u64, random: &mut Random) {
        self.slot.confirmed = self.slot.confirmed.max(position);
        if random.one_in(3) {
            self.slot.durable = self.slot.confirmed;
        }
    }

    /// Open transactions are gone, and the slot is what was on disk.
    pub(crate) fn crash(&mut self, story: &mut Story) {
        self.open.clear();
        self.slot.confirmed = self.slot.durable;
        story.tell("server", || format!("crashes; the slot is at {}", At(self.slot.confirmed)));
    }

    pub(crate) fn copy(&mut self, story: &mut Story) {
        story.tell("server", || format!("is copied at {}", At(self.wal)));
        let (timeline, history) = (self.timeline, self.history.clone());
        self.copy = Some(Copy { wal: self.wal, entries: self.log.len(), slot: self.slot, timeline, history });
    }

    /// The copy takes the server's place: under a timeline of its own if it is promoted, else as if nothing had been.
    /// Gives the position from which on the log is another one; none without a copy.
    pub(crate) fn restore(&mut self, promoted: bool, story: &mut Story) -> Option<u64> {
        let Copy { wal, entries, slot, timeline, history } = self.copy.as_ref()?;
        (self.wal, self.slot, self.timeline, self.history) = (*wal, *slot, *timeline, history.clone());
        let branches_at = self.wal;
        self.log.truncate(*entries);
        self.open.clear();
        if promoted {
            self.history.push((self.timeline, Lsn(self.wal)));
            self.last_timeline += 1;
            self.timeline = self.last_timeline;
            self.write(4);
        }
        story.tell("server", || format!("is a copy from {} on timeline {}", At(branches_at), self.timeline));
        Some(branches_at)
    }

    /// The log as a session finds it that starts at the slot's position.
    pub(crate) fn log(&self) -> Log {
        let (start, end) = (Lsn(self.slot.confirmed), Lsn(self.wal));
        Log { timeline: self.timeline, history: self.history.clone(), start, end }
    }

    /// Where the log left that timeline, if it once was on it and is on another.
    pub(crate) fn left(&self, timeline: u32) -> Option<u64> {
        self.history.iter().find(|(left, _)| *left == timeline).map(|(_, at)| at.0)
    }

    /// Whether the log is that of the timeline, up to its end or a switch.
    pub(crate) fn comes_from(&self, timeline: u32) -> bool {
        self.timeline == timeline || self.left(timeline).is_some()
    }

    /// Whether the log has the event at the position.
    pub(crate) fn holds(&self, stored: &Stored) -> bool {
        let Stored { position, event_id, .. } = stored;
        let entry = self.log.iter().find_map(|entry| match entry {
            Entry::Transaction(transaction) if transaction.commit_lsn == position.commit_lsn.0 => Some(transaction),
            Entry::Transaction(_) | Entry::Message { .. } => None,
        });
        let event_at = |transaction: &Transaction| {
            transaction.changes.iter().filter_map(|change| change.event).nth(position.ordinal as usize)
        };
        entry.and_then(event_at).is_some_and(|event| event_of(event_id) == Some(event))
    }
}
