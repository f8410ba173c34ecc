//! What becomes of events that cannot be delivered, and of those behind them: the decisions, without table and Kafka.
//!
//! The stream's events come in ([`Parking::verdict`] and what it asks for), work on the table goes out
//! ([`Parking::next_work`]), one piece at a time, and comes back as [`Parking::done`] or [`Parking::failed`]. Nothing is
//! stepped while [`Parking::holds`].
//!
//! An aggregate is given back to the stream by the hand-over of [`dead_letter`](crate::postgres::dead_letter): rows are
//! settled while nothing is stepped and nothing waits to be written, so what is unparked then has no row left.
//!
//! Where a topic of dead letters is named, each is announced there once its row is durable, or instead of a row, and is
//! done with when Kafka has the announcement. Whether it has is not known of rows that an earlier session wrote, so they
//! are announced again when they are met; exactly once it has not, or its transaction would have passed over them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use super::{Culprit, Error, parked::Parked, replay::Replay};
use crate::{
    pipeline::{Event, Lsn, Position, Record, Ticket, outbox::Poison},
    postgres::dead_letter::{DeadLetter, Known, KnownLetter, ParkKey, ReasonClass, Replayed, Stored},
};

/// How often the table is looked at for what people asked for.
const LOOK: Duration = Duration::from_secs(2);
/// A look that found nothing to send is followed by a rest of so many times as long: it reads all that is parked, which
/// may cost the server a second.
const REST: u32 = 5;
const REST_MAX: Duration = Duration::from_secs(10);
/// How long a table that cannot be worked on is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// Parked events for which the stream waits when they are all that is left of what was sent again: while it goes on, it
/// may park as many as are sent, without end.
const LAST: u64 = 500;

/// The reason of an event with which nothing is wrong.
pub const WAITS: &str = "waits behind an earlier event of its aggregate";

/// Where dead letters go, and how many may be parked. They go to the table, or to the topic, or to both.
#[derive(Clone, Debug)]
pub struct Rules {
    pub table: bool,
    /// Nothing that only waits behind another goes there.
    pub topic: Option<String>,
    /// False: poison is dead alone, and only what is parked already stays so. Without the table nothing parks.
    pub parks: bool,
    pub aggregates_max: usize,
    pub events_max: usize,
}

/// What is to be done with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Send,
    /// The table has it already: its row says what becomes of it.
    Follow(KnownLetter),
    Park(ParkKey),
    /// An earlier session could not deliver it.
    Refuse(Culprit),
}

/// Work on the table.
#[derive(Clone, Debug)]
pub enum Work {
    Write(Vec<(Ticket, DeadLetter)>),
    /// Kafka has these.
    Settle(Vec<Replayed>),
    /// See what people did. What of these was sent again was refused again.
    Look(Vec<Culprit>),
}

/// Work that is done.
#[derive(Debug)]
pub enum Done {
    /// These have durable rows.
    Written(Vec<(Ticket, DeadLetter)>),
    /// So many rows; these keys have none any more.
    Settled { rows: u64, keys: Vec<ParkKey> },
    /// What is asked for, and then how many events are parked under each key.
    Seen { requested: Vec<Stored>, parked: HashMap<ParkKey, u64> },
}

pub struct Parking {
    rules: Rules,
    /// Rows of events that may be streamed again.
    known: Known,
    /// The last of them.
    known_last: Option<Position>,
    parked: Parked,
    culprits: Vec<Culprit>,
    /// Dead letters that were sent again and refused again, for the next look.
    refused_again: Vec<Culprit>,
    /// Not on their way into the table yet.
    unwritten: Vec<(Ticket, DeadLetter)>,
    /// The first of what is being written.
    writing: Option<Position>,
    /// One of them is poison: nothing later may overtake it.
    holds: bool,
    /// To be sent to the topic.
    unannounced: VecDeque<(Ticket, DeadLetter)>,
    /// Under way to the topic.
    announced: HashMap<Ticket, Position>,
    acknowledged: Vec<Ticket>,
    counts: HashMap<ReasonClass, u64>,
    replay: Replay,
    /// What Kafka has of earlier replays is known.
    opened: bool,
    /// Little is left of what is replayed: nothing is added before that is handed over.
    closing: bool,
    /// The session is to end: no more replays begin.
    draining: bool,
    /// When to look at the table.
    look: Instant,
    /// It has been looked at.
    looked: bool,
    /// The last piece of work failed, and this is when to try again.
    again: Option<Instant>,
    /// A piece of work is under way.
    works: bool,
}

impl Parking {
    /// `known` and `parked` are what the table has, `culprits` are what ended sessions before.
    pub fn new(
        rules: Rules,
        known: Known,
        parked: HashMap<ParkKey, u64>,
        culprits: Vec<Culprit>,
        now: Instant,
    ) -> Parking {
        Parking {
            rules,
            known_last: known.last(),
            known,
            parked: Parked::new(parked),
            culprits,
            refused_again: Vec::new(),
            unwritten: Vec::new(),
            writing: None,
            holds: false,
            unannounced: VecDeque::new(),
            announced: HashMap::new(),
            acknowledged: Vec::new(),
            counts: HashMap::new(),
            replay: Replay::default(),
            opened: false,
            closing: false,
            draining: false,
            look: now,
            looked: false,
            again: None,
            works: false,
        }
    }

    /// Nothing may be stepped now: [`Parking::settles`], or an aggregate is soon to be handed over.
    pub fn holds(&self) -> bool {
        self.closing || self.settles()
    }

    /// Poison is not durable or not announced yet, or an aggregate is being handed over: what came back from the sink waits
    /// too. What is sent again waits behind that, so it does not wait for the end of a hand-over.
    pub fn settles(&self) -> bool {
        let announces = !self.unannounced.is_empty() || !self.rules.table && !self.announced.is_empty();
        self.holds || announces || self.replay.hands_over()
    }

    pub fn verdict(&mut self, record: &Record<'_>) -> Verdict {
        let id = || String::from_utf8_lossy(record.event.id);
        if !self.known.is_empty() {
            if let Some(known) = self.meet(record.position, &id()) {
                self.forget(record);
                return Verdict::Follow(known);
            }
        }
        if let Some(key) = self.parked_by(record) {
            return Verdict::Park(key);
        }
        let culprit = self.culprits.iter().find(|culprit| culprit.is_at(record.position, record.topic));
        culprit.map_or(Verdict::Send, |culprit| Verdict::Refuse(culprit.clone()))
    }

    /// The key by which it waits, if an earlier event of its aggregate is parked.
    fn parked_by(&self, record: &Record<'_>) -> Option<ParkKey> {
        let key = record.key.filter(|_| self.parked.keys() > 0)?;
        let own = ParkKey::of_record(record.topic, key);
        let Event { aggregate_type, aggregate_id, .. } = record.event;
        let of_aggregate = |id| ParkKey::of_aggregate(&record.table.to_string(), aggregate_type, id);
        let is_parked = self.parked.has(&own) || aggregate_id.is_some_and(|id| self.parked.has(&of_aggregate(id)));
        is_parked.then_some(own)
    }

    /// Kafka has passed over this event already, or has it: what the table has of it.
    pub fn passed(&mut self, position: Position, id: &str) -> Option<KnownLetter> {
        if self.known.is_empty() { None } else { self.meet(position, id) }
    }

    /// The stream has come to this event: what the table has of it.
    fn meet(&mut self, position: Position, id: &str) -> Option<KnownLetter> {
        let known = self.known.letter(position, id).cloned();
        self.known.forget_before(Position { ordinal: position.ordinal.saturating_add(1), ..position });
        known
    }

    /// The slot's position. What lies before it is not met any more, even if it was passed over.
    pub fn confirmed(&mut self, lsn: Lsn) {
        if !self.known.is_empty() {
            self.known.forget_before(Position::first_of(lsn));
        }
    }

    /// The event follows its row.
    pub fn follow(&mut self, record: &Record<'_>, known: &KnownLetter, at: SystemTime) {
        match self.is_announced(known.class) {
            true => {
                let letter = DeadLetter::of_record(record, known.class, &known.reason, 1, None, at);
                self.unannounced.push_back((record.ticket, letter));
            }
            false => self.acknowledged.push(record.ticket),
        }
    }

    /// Nothing is wrong with it, but it waits behind another.
    pub fn park(&mut self, record: &Record<'_>, key: ParkKey, at: SystemTime) -> Result<(), Error> {
        self.take(record.ticket, DeadLetter::of_record(record, ReasonClass::Parked, WAITS, 0, Some(key), at))
    }

    /// Kafka does not take it.
    pub fn refused(&mut self, record: &Record<'_>, culprit: &Culprit, at: SystemTime) -> Result<(), Error> {
        let Culprit { class, reason, attempts, .. } = culprit;
        self.forget(record);
        let key = record.key.filter(|_| self.rules.parks).map(|key| ParkKey::of_record(record.topic, key));
        self.holds = self.rules.table;
        self.take(record.ticket, DeadLetter::of_record(record, *class, reason, *attempts, key, at))
    }

    /// The culprit was no replay, so a request that its row has by now is a new one.
    fn forget(&mut self, record: &Record<'_>) {
        self.culprits.retain(|culprit| !culprit.is_at(record.position, record.topic));
    }

    /// No record can be made of it. False: the table has it already, and it follows its row.
    pub fn poison(&mut self, ticket: Ticket, poison: &Poison, at: SystemTime) -> Result<bool, Error> {
        if self.meet(poison.position, &poison.id).is_some() {
            match self.rules.topic {
                Some(_) => self.unannounced.push_back((ticket, DeadLetter::of_poison(poison, None, at))),
                None => self.acknowledged.push(ticket),
            }
            return Ok(false);
        }
        let id = poison.aggregate_id.as_deref().filter(|_| self.rules.parks);
        let table = poison.table.to_string();
        let key = id.map(|id| ParkKey::of_aggregate(&table, poison.aggregate_type.as_deref(), id));
        self.holds = self.rules.table;
        self.take(ticket, DeadLetter::of_poison(poison, key, at))?;
        Ok(true)
    }

    /// Events and aggregates that are parked.
    pub fn parked(&self) -> (u64, u64) {
        (self.parked.events(), self.parked.keys() as u64)
    }

    /// How many events became dead letters since the last call, by reason.
    pub fn take_counts(&mut self) -> HashMap<ReasonClass, u64> {
        std::mem::take(&mut self.counts)
    }

    fn take(&mut self, ticket: Ticket, letter: DeadLetter) -> Result<(), Error> {
        *self.counts.entry(letter.class).or_default() += 1;
        if let Some(key) = letter.park_key {
            self.replay.withhold(key, letter.position);
            self.parked.add(key);
            let (aggregates, events) = (self.parked.keys(), self.parked.events() as usize);
            let full = |what, count, key| Err(Error::Full { what, count, key });
            if aggregates > self.rules.aggregates_max {
                return full("aggregates", aggregates, "park_max_aggregates");
            }
            if events > self.rules.events_max {
                return full("events", events, "park_max_events");
            }
        }
        match self.rules.table {
            true => self.unwritten.push((ticket, letter)),
            false => self.unannounced.push_back((ticket, letter)),
        }
        Ok(())
    }

    fn is_announced(&self, class: ReasonClass) -> bool {
        self.rules.topic.is_some() && class != ReasonClass::Parked
    }

    /// The next record for the topic of dead letters; it is taken for sent when `send` takes it.
    pub fn announce_next<E>(&mut self, send: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<bool, E> {
        let Some((ticket, letter)) = self.unannounced.pop_front() else { return Ok(false) };
        let topic = self.rules.topic.as_deref().expect("what is announced has a topic to go to");
        let mut refused = self.culprits.iter().filter(|_| self.rules.table);
        if let Some(culprit) = refused.find(|culprit| culprit.is_at(letter.position, topic)) {
            keep_to_the_table(culprit);
            self.acknowledged.push(ticket);
            return Ok(true);
        }
        self.announced.insert(ticket, letter.position);
        letter.announce(ticket, topic, send)?;
        Ok(true)
    }

    /// Kafka has a record of the stream, or for the topic of dead letters, or a replayed one.
    pub fn delivered(&mut self, ticket: Ticket) {
        if !ticket.is_of_stream() {
            self.replay.delivered(ticket);
        } else if !self.announced.is_empty() {
            self.announced.remove(&ticket);
        }
    }

    /// Kafka does not take a record of the stream. True: it was one for the topic of dead letters, and its row has to do.
    pub fn refuses_announcement(&mut self, ticket: Ticket, culprit: &Culprit) -> Result<bool, Error> {
        if self.ends_at(culprit) {
            return Err(Error::Topic(culprit.clone()));
        }
        let refuses = self.announced.remove(&ticket).is_some();
        if refuses {
            keep_to_the_table(culprit);
            self.acknowledged.push(ticket);
        }
        Ok(refuses)
    }

    /// Whether this is about a letter that is under way to the topic, and its row is nothing to fall back on.
    pub fn ends_at(&self, culprit: &Culprit) -> bool {
        let is_announcement = || self.announced.values().any(|position| culprit.is_at(*position, &culprit.topic));
        let has_row = self.rules.table && !culprit.is_of_topic;
        self.rules.topic.as_ref() == Some(&culprit.topic) && is_announcement() && !has_row
    }

    /// The next record to send again; it is taken for sent when `send` takes it.
    pub fn send_next<E>(&mut self, send: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<bool, E> {
        self.replay.send_next(send)
    }

    /// A dead letter that was sent again is refused again: its row is told with the next look.
    pub fn refuse_again(&mut self, ticket: Ticket, culprit: Culprit) {
        self.replay.withdraw(ticket);
        self.refused_again.push(culprit);
    }

    /// A dead letter that was sent again comes back, since something before it was refused. It stays asked for.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.replay.withdraw(ticket);
    }

    /// What was sent again and is not settled.
    pub fn unsettled(&self) -> Vec<Replayed> {
        self.replay.unsettled()
    }

    /// Records are under way again, or wait for it.
    pub fn replays(&self) -> bool {
        self.replay.is_under_way()
    }

    /// The first event that has no durable row yet.
    pub fn unwritten(&self) -> Option<Position> {
        self.writing.or_else(|| self.unwritten.first().map(|(_, letter)| letter.position))
    }

    /// Replays may begin: Kafka has these of earlier ones, whether the table knows of it or not.
    pub fn open(&mut self, replayed: Vec<Replayed>) {
        self.opened = true;
        self.replay.found(replayed);
    }

    /// Tickets that are done with here.
    pub fn take_acknowledged(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.acknowledged)
    }

    /// Sends nothing more again: what was not sent stays asked for.
    pub fn drain(&mut self) {
        self.replay.stop();
        (self.closing, self.draining) = (false, true);
    }

    /// When there may be work without any other call. None: a piece of work is under way, or there is no table.
    pub fn due(&self) -> Option<Instant> {
        (self.rules.table && !self.works).then_some(self.again.unwrap_or(self.look))
    }

    /// What to do on the table now. It ends in [`Parking::done`] or [`Parking::failed`]; until then there is no more.
    pub fn next_work(&mut self, now: Instant) -> Option<Work> {
        if !self.rules.table || self.works || self.again.is_some_and(|again| now < again) {
            return None;
        }
        self.again = None;
        let looks = now >= self.look;
        if looks {
            self.look = now + LOOK;
        }
        // A look is first, or what is parked without end would put it off without end.
        let work = if looks && self.may_look() {
            let earlier = if self.looked { &[][..] } else { &self.culprits };
            Work::Look(earlier.iter().cloned().chain(self.refused_again.drain(..)).collect())
        } else if !self.unwritten.is_empty() {
            self.writing = self.unwritten();
            Work::Write(std::mem::take(&mut self.unwritten))
        } else if self.replay.hands_over() {
            Work::Settle(self.replay.unsettled())
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
        has_caught_up && self.opened && !self.replay.is_under_way() && !self.draining
    }

    pub fn done(&mut self, done: Done, now: Instant) {
        self.works = false;
        match done {
            Done::Written(letters) => {
                self.writing = None;
                for (ticket, letter) in letters {
                    match self.is_announced(letter.class) {
                        true => self.unannounced.push_back((ticket, letter)),
                        false => self.acknowledged.push(ticket),
                    }
                }
                self.holds &= !self.unwritten.is_empty();
            }
            Done::Settled { keys, .. } => {
                let settled = self.replay.settled();
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
                self.looked = true;
                if requested.is_empty() {
                    let took = (now + LOOK).saturating_duration_since(self.look);
                    self.look = self.look.max(now + (took * REST).min(REST_MAX));
                }
                if self.draining {
                    return;
                }
                self.replay.request(requested);
                // What was refused since the look comes before them.
                for (_, letter) in &self.unwritten {
                    letter.park_key.into_iter().for_each(|key| self.replay.withhold(key, letter.position));
                }
                self.closing &= self.replay.is_under_way();
            }
        }
    }

    /// Not done; it comes again.
    pub fn failed(&mut self, work: Work, now: Instant) {
        self.works = false;
        self.again = Some(now + AGAIN);
        match work {
            Work::Write(letters) => {
                self.writing = None;
                self.unwritten.splice(..0, letters);
            }
            Work::Look(culprits) => self.refused_again = culprits,
            Work::Settle(_) => {}
        }
    }
}

fn keep_to_the_table(Culprit { position, topic, reason, .. }: &Culprit) {
    tracing::warn!(position, topic, "the topic does not take a dead letter, which is in the table only: {reason}");
}
