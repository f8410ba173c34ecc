//! What becomes of events that cannot be delivered, and of those behind them: the decisions, without the table.
//!
//! The stream's events come in ([`Parking::verdict`] and what it asks for), work on the table goes out
//! ([`Parking::next_work`]), one piece at a time, and comes back as [`Parking::done`] or [`Parking::failed`]. Nothing is
//! stepped while [`Parking::holds`].
//!
//! An aggregate is given back to the stream by the hand-over of [`dead_letter`](crate::postgres::dead_letter): rows are
//! settled while nothing is stepped and nothing waits to be written, so what is unparked then has no row left.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use super::{Culprit, Error};
use crate::{
    pipeline::{
        Headers, Lsn, Position, Record, Ticket,
        outbox::{Poison, TableName},
    },
    postgres::dead_letter::{DeadLetter, Known, ParkKey, ReasonClass, Stored},
};

/// How often the table is looked at for what people asked for.
const LOOK: Duration = Duration::from_secs(2);
/// How long a table that cannot be worked on is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// Parked events for which the stream waits when they are all that is left of what was sent again: while it goes on, it
/// may park as many as are sent, without end.
const LAST: u64 = 500;

/// What may be parked.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// False: poison is dead alone, and only what is parked already stays so.
    pub parks: bool,
    pub aggregates_max: usize,
    pub events_max: usize,
}

/// What is to be done with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Send,
    /// The table has it already: its row says what becomes of it.
    Follow,
    Park(ParkKey),
}

/// Work on the table.
#[derive(Clone, Debug)]
pub enum Work {
    Write(Vec<(Ticket, DeadLetter)>),
    Settle(Vec<i64>),
    /// See what people did. The culprit, if it was sent again, was refused again.
    Look(Option<Culprit>),
}

/// Work that is done.
#[derive(Debug)]
pub enum Done {
    /// These have durable rows.
    Written(Vec<Ticket>),
    /// So many rows; these keys have none any more.
    Settled { rows: usize, keys: Vec<ParkKey> },
    /// What is asked for, and then how many events are parked under each key.
    Seen { requested: Vec<Stored>, parked: HashMap<ParkKey, u64> },
}

pub struct Parking {
    bounds: Bounds,
    /// Rows of events that may be streamed again.
    known: Known,
    /// The last of them.
    known_last: Option<Position>,
    parked: Parked,
    culprit: Option<Culprit>,
    /// Not in the table yet.
    unwritten: Vec<(Ticket, DeadLetter)>,
    /// One of them is poison: nothing later may overtake it.
    holds: bool,
    acknowledged: Vec<Ticket>,
    counts: HashMap<ReasonClass, u64>,
    replay: Replay,
    /// Little is left of what is replayed: nothing is added before that is handed over.
    closing: bool,
    /// The session is to end: no more replays begin.
    draining: bool,
    /// When to look at the table.
    look: Instant,
    /// The last piece of work failed, and this is when to try again.
    again: Option<Instant>,
    /// A piece of work is under way.
    works: bool,
}

/// Events parked under each key.
struct Parked {
    keys: HashMap<ParkKey, u64>,
    events: u64,
}

impl Parked {
    fn new(keys: HashMap<ParkKey, u64>) -> Parked {
        let events = keys.values().sum();
        Parked { keys, events }
    }

    fn add(&mut self, key: ParkKey) {
        *self.keys.entry(key).or_default() += 1;
        self.events += 1;
    }

    fn count(&self, key: &ParkKey) -> u64 {
        self.keys.get(key).copied().unwrap_or_default()
    }

    /// One of the key is settled. Whether that was the last is the table's to say.
    fn settle(&mut self, key: &ParkKey) {
        if let Some(count) = self.keys.get_mut(key).filter(|count| **count > 0) {
            *count -= 1;
            self.events -= 1;
        }
    }

    fn remove(&mut self, key: &ParkKey) {
        self.events -= self.keys.remove(key).unwrap_or_default();
    }
}

/// What was asked for again.
#[derive(Default)]
struct Replay {
    unsent: VecDeque<Stored>,
    /// Under way, by ticket.
    sent: HashMap<Ticket, Sent>,
    acknowledged: Vec<Sent>,
    next: u64,
}

struct Sent {
    row: i64,
    park_key: Option<ParkKey>,
}

impl Parking {
    /// `known` and `parked` are what the table has, `culprit` is what ended the session before.
    pub fn new(
        bounds: Bounds,
        known: Known,
        parked: HashMap<ParkKey, u64>,
        culprit: Option<Culprit>,
        now: Instant,
    ) -> Parking {
        Parking {
            bounds,
            known_last: known.last(),
            known,
            parked: Parked::new(parked),
            culprit,
            unwritten: Vec::new(),
            holds: false,
            acknowledged: Vec::new(),
            counts: HashMap::new(),
            replay: Replay::default(),
            closing: false,
            draining: false,
            look: now,
            again: None,
            works: false,
        }
    }

    /// Nothing may be stepped now: poison is not durable yet, or an aggregate is being handed over.
    pub fn holds(&self) -> bool {
        self.holds || self.closing || self.hands_over()
    }

    pub fn verdict(&mut self, record: &Record<'_>) -> Verdict {
        let id = || String::from_utf8_lossy(record.headers.get("id").unwrap_or_default());
        if !self.known.is_empty() && self.meets(record.position, &id()) {
            return Verdict::Follow;
        }
        if self.parked.keys.is_empty() {
            return Verdict::Send;
        }
        let Some(key) = record.key else { return Verdict::Send };
        let own = ParkKey::of_record(record.topic, key);
        let aggregate_type = record.headers.get("aggregate_type");
        let of_aggregate = || ParkKey::of_aggregate(&record.table.to_string(), aggregate_type, key);
        let is_parked = self.parked.keys.contains_key(&own) || self.parked.keys.contains_key(&of_aggregate());
        if is_parked { Verdict::Park(own) } else { Verdict::Send }
    }

    /// The verdict on what makes no record: the table has it already.
    pub fn follows(&mut self, poison: &Poison) -> bool {
        self.meets(poison.position, &poison.id)
    }

    /// The stream has come to this event: does the table have it?
    fn meets(&mut self, position: Position, id: &str) -> bool {
        let has = self.known.state(position, id).is_some();
        self.known.forget_before(Position { ordinal: position.ordinal.saturating_add(1), ..position });
        has
    }

    /// The slot's position. What lies before it is not met any more, even if it was passed over.
    pub fn confirmed(&mut self, lsn: Lsn) {
        if !self.known.is_empty() {
            self.known.forget_before(Position { commit_lsn: lsn, ordinal: 0 });
        }
    }

    /// The event follows its row: it is done with here.
    pub fn follow(&mut self, ticket: Ticket) {
        self.acknowledged.push(ticket);
    }

    /// Nothing is wrong with it, but it waits behind another.
    pub fn park(&mut self, record: &Record<'_>, key: ParkKey, at: SystemTime) -> Result<(), Error> {
        let reason = "waits behind an earlier event of its aggregate";
        self.take(record.ticket, DeadLetter::of_record(record, ReasonClass::Parked, reason, 0, Some(key), at))
    }

    /// Kafka does not take it.
    pub fn refused(&mut self, record: &Record<'_>, culprit: &Culprit, at: SystemTime) -> Result<(), Error> {
        let Culprit { class, reason, .. } = culprit;
        let key = record.key.filter(|_| self.bounds.parks).map(|key| ParkKey::of_record(record.topic, key));
        self.holds = true;
        self.take(record.ticket, DeadLetter::of_record(record, *class, reason, 1, key, at))
    }

    /// No record can be made of it.
    pub fn poison(&mut self, ticket: Ticket, poison: &Poison, at: SystemTime) -> Result<(), Error> {
        let id = poison.aggregate_id.as_deref().filter(|_| self.bounds.parks);
        let table = poison.table.to_string();
        let key = id.map(|id| ParkKey::of_aggregate(&table, poison.aggregate_type.as_deref(), id));
        self.holds = true;
        self.take(ticket, DeadLetter::of_poison(poison, key, at))
    }

    /// Events and aggregates that are parked.
    pub fn parked(&self) -> (u64, u64) {
        (self.parked.events, self.parked.keys.len() as u64)
    }

    /// How many events became dead letters since the last call, by reason.
    pub fn take_counts(&mut self) -> HashMap<ReasonClass, u64> {
        std::mem::take(&mut self.counts)
    }

    fn take(&mut self, ticket: Ticket, letter: DeadLetter) -> Result<(), Error> {
        *self.counts.entry(letter.class).or_default() += 1;
        if let Some(key) = letter.park_key {
            self.parked.add(key);
            let (aggregates, events) = (self.parked.keys.len(), self.parked.events as usize);
            let full = |what, count, key| Err(Error::Full { what, count, key });
            if aggregates > self.bounds.aggregates_max {
                return full("aggregates", aggregates, "park_max_aggregates");
            }
            if events > self.bounds.events_max {
                return full("events", events, "park_max_events");
            }
        }
        self.unwritten.push((ticket, letter));
        Ok(())
    }

    /// The next record to send again; it is taken for sent when `send` takes it.
    pub fn send_next<E>(&mut self, send: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<bool, E> {
        let Some(row) = self.replay.unsent.pop_front() else { return Ok(false) };
        let ticket = Ticket(Ticket::OTHERS.0 + self.replay.next);
        self.replay.next += 1;
        let Stored { id: row, letter, .. } = row;
        self.replay.sent.insert(ticket, Sent { row, park_key: letter.park_key });
        let mut headers = letter.headers;
        headers.push(("replay".to_owned(), b"dead-letter".to_vec()));
        send(&Record {
            ticket,
            position: letter.position,
            xid: letter.xid,
            table: &TableName::default(),
            topic: letter.topic.as_deref().unwrap_or_default(),
            key: letter.key.as_deref(),
            value: letter.payload.as_deref(),
            timestamp_ms: letter.timestamp_ms,
            headers: Headers::new(&headers),
        })?;
        Ok(true)
    }

    /// Kafka has the replayed record.
    pub fn replayed(&mut self, ticket: Ticket) {
        let sent = self.replay.sent.remove(&ticket).expect("the record was sent, and is acknowledged once");
        self.replay.acknowledged.push(sent);
    }

    /// Tickets whose rows are durable.
    pub fn take_acknowledged(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.acknowledged)
    }

    /// Records are under way again, or wait for it.
    pub fn replays(&self) -> bool {
        !self.replay.unsent.is_empty() || !self.replay.sent.is_empty() || !self.replay.acknowledged.is_empty()
    }

    /// All that was sent again is acknowledged, and not settled yet.
    fn hands_over(&self) -> bool {
        let Replay { unsent, sent, acknowledged, .. } = &self.replay;
        unsent.is_empty() && sent.is_empty() && !acknowledged.is_empty()
    }

    /// Sends nothing more again: what was not sent stays asked for.
    pub fn drain(&mut self) {
        self.replay.unsent.clear();
        (self.closing, self.draining) = (false, true);
    }

    /// When there may be work without any other call. None: a piece of work is under way.
    pub fn due(&self) -> Option<Instant> {
        (!self.works).then_some(self.again.unwrap_or(self.look))
    }

    /// What to do on the table now. It ends in [`Parking::done`] or [`Parking::failed`]; until then there is no more.
    pub fn next_work(&mut self, now: Instant) -> Option<Work> {
        if self.works || self.again.is_some_and(|again| now < again) {
            return None;
        }
        self.again = None;
        let looks = now >= self.look;
        if looks {
            self.look = now + LOOK;
        }
        // A look is first, or what is parked without end would put it off without end.
        let work = if looks && self.may_look() {
            Work::Look(self.culprit.clone())
        } else if !self.unwritten.is_empty() {
            Work::Write(std::mem::take(&mut self.unwritten))
        } else if self.hands_over() {
            Work::Settle(self.replay.acknowledged.iter().map(|sent| sent.row).collect())
        } else {
            return None;
        };
        self.works = true;
        Some(work)
    }

    /// Not while rows are on their way: they would come again. Not before the stream has met all that an earlier session
    /// wrote, and what it parked on the way is written: of the same keys it brings what was sent before that, and lost, and
    /// what is replayed must not overtake it.
    fn may_look(&self) -> bool {
        let is_later = |letter: &DeadLetter| Some(letter.position) > self.known_last;
        let has_caught_up = self.known.is_empty() && self.unwritten.first().is_none_or(|(_, letter)| is_later(letter));
        has_caught_up && !self.replays() && !self.draining
    }

    pub fn done(&mut self, done: Done, now: Instant) {
        self.works = false;
        match done {
            Done::Written(tickets) => {
                self.acknowledged.extend(tickets);
                self.holds &= !self.unwritten.is_empty();
            }
            Done::Settled { keys, .. } => {
                let settled: Vec<_> = self.replay.acknowledged.drain(..).filter_map(|sent| sent.park_key).collect();
                settled.iter().for_each(|key| self.parked.settle(key));
                // What has no row yet is parked as well.
                let is_unwritten = |key| self.unwritten.iter().any(|(_, letter)| letter.park_key == Some(key));
                keys.iter().filter(|key| !is_unwritten(**key)).for_each(|key| self.parked.remove(key));
                let of_keys: HashSet<_> = settled.into_iter().collect();
                let left: u64 = of_keys.iter().map(|key| self.parked.count(key)).sum();
                self.closing = (1..=LAST).contains(&left) && !self.draining;
                self.look = now;
            }
            Done::Seen { requested, parked } => {
                // Discarded keys are gone. What was parked since the look has no row yet.
                self.parked = Parked::new(parked);
                self.unwritten.iter().filter_map(|(_, letter)| letter.park_key).for_each(|key| self.parked.add(key));
                self.culprit = None;
                if self.draining {
                    return;
                }
                self.replay.unsent.extend(requested.into_iter().filter(|row| row.letter.topic.is_some()));
                self.closing &= self.replays();
            }
        }
    }

    /// Not done; it comes again.
    pub fn failed(&mut self, work: Work, now: Instant) {
        self.works = false;
        self.again = Some(now + AGAIN);
        if let Work::Write(letters) = work {
            self.unwritten.splice(..0, letters);
        }
    }
}
