//! Judges what the driver does by what the server wrote and what Kafka holds. It shares no code with the pipeline:
//! it looks at the few bytes of a frame that it needs by itself, and keeps sets where the ledger keeps counters.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt,
    time::Duration,
};

use walpost::pipeline::{Limits, Ticket, resume::Stored};

use crate::{
    catalog::{Event, Expected, Shape},
    glance::{self, Seen},
    postgres::{Postgres, Transaction},
    relay::{CONFIRM_INTERVAL, Outgoing, STATUS_INTERVAL},
    story::At,
};

/// What was promised: the design's numbers, and the shape of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// No loss: nothing undelivered is confirmed, and nothing but a position that the server named.
    G1,
    /// Order of first occurrences within topic and key.
    G2,
    /// No duplicate without a fault; exactly once, none at all.
    G3,
    /// What is in flight is bounded.
    G4,
    /// With nothing outstanding the confirmed position follows the server.
    G5,
    /// Status updates keep flowing.
    G6,
    /// Every event ends in Kafka.
    G7,
    /// The record holds what the event holds.
    Content,
}

#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is broken: {}", self.promise, self.what)
    }
}

pub(crate) type Verdict = Result<(), Violation>;

pub(crate) fn violation(promise: Promise, what: String) -> Violation {
    Violation { promise, what }
}

macro_rules! demand {
    ($holds:expr, $promise:ident, $($what:tt)+) => {
        if !$holds {
            return Err(violation(Promise::$promise, format!($($what)+)));
        }
    };
}

/// A committed event: what its record must be, and what became of it.
struct Fate {
    expected: Expected,
    /// Place among all events, in commit order and then in order of insertion.
    place: usize,
    position: String,
    timestamp_ms: i64,
    /// A consumer can read it: exactly once, its Kafka transaction is committed.
    written: bool,
    /// The server that had it was replaced by an older copy.
    gone: bool,
    /// Number of faults that had happened when it was last sent.
    sent_after_faults: Option<usize>,
}

/// What one session of the driver has seen and done.
struct Session {
    /// Positions that may be reported.
    legal: HashSet<u64>,
    /// Records of the open transaction that are not acknowledged.
    open: Option<BTreeSet<Ticket>>,
    /// Ended transactions that are not confirmable, each with its end and its unacknowledged records.
    ended: VecDeque<(u64, BTreeSet<Ticket>)>,
    /// What the driver may report by now.
    confirmable: u64,
    reported: u64,
    reported_at: Duration,
    reply_due: bool,
    in_flight: BTreeMap<Ticket, usize>,
    awaits: Awaits,
}

/// What has to come before anything is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// The transaction that commits there holds the stored event.
    Transaction(u64),
    /// It is being read.
    ItsEnd,
    /// The stored event is not of this log: an error.
    InVain,
}

/// Highest values seen, for the curious.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    in_flight_records: usize,
    in_flight_bytes: usize,
    span: u64,
}

impl Peaks {
    pub(crate) fn max(self, other: Peaks) -> Peaks {
        Peaks {
            in_flight_records: self.in_flight_records.max(other.in_flight_records),
            in_flight_bytes: self.in_flight_bytes.max(other.in_flight_bytes),
            span: self.span.max(other.span),
        }
    }
}

impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Peaks { in_flight_records, in_flight_bytes, span } = self;
        write!(f, "at most {in_flight_records} records and {in_flight_bytes} bytes in flight, span {span}")
    }
}

pub(crate) struct Oracle {
    limits: Limits,
    exactly_once: bool,
    fates: HashMap<usize, Fate>,
    committed: usize,
    /// Transactions in commit order: start and end of the commit record, events.
    transactions: Vec<(u64, u64, Vec<usize>)>,
    /// Transactions that are known to be wholly in Kafka.
    delivered: usize,
    last_place: HashMap<(String, Vec<u8>), usize>,
    session: Option<Session>,
    faults: usize,
    pub(crate) duplicates: usize,
    /// Stored positions that happened to a server that is gone.
    pub(crate) phantoms: usize,
    pub(crate) peaks: Peaks,
}

impl Oracle {
    pub(crate) fn new(limits: Limits, exactly_once: bool) -> Oracle {
        Oracle {
            limits,
            exactly_once,
            fates: HashMap::new(),
            committed: 0,
            transactions: Vec::new(),
            delivered: 0,
            last_place: HashMap::new(),
            session: None,
            faults: 0,
            duplicates: 0,
            phantoms: 0,
            peaks: Peaks::default(),
        }
    }

    pub(crate) fn events(&self) -> usize {
        self.committed
    }

    pub(crate) fn faults(&self) -> usize {
        self.faults
    }

    /// The server committed a transaction.
    pub(crate) fn committed<'a>(
        &mut self,
        transaction: &Transaction,
        event_of: impl Fn(usize) -> (&'a Event, &'a Shape),
    ) {
        const PG_EPOCH_UNIX_US: i64 = 946_684_800_000_000;
        let events: Vec<usize> = transaction.changes.iter().filter_map(|change| change.event).collect();
        for (ordinal, number) in events.iter().enumerate() {
            let (event, shape) = event_of(*number);
            let fate = Fate {
                expected: event.expected(shape),
                place: self.committed,
                position: format!("{:016X}-{ordinal:08X}", transaction.commit_lsn),
                timestamp_ms: (transaction.commit_time + PG_EPOCH_UNIX_US).div_euclid(1000),
                written: false,
                gone: false,
                sent_after_faults: None,
            };
            self.fates.insert(*number, fate);
            self.committed += 1;
        }
        self.transactions.push((transaction.commit_lsn, transaction.end_lsn, events));
    }

    pub(crate) fn session_started(&mut self, slot: u64, now: Duration) {
        self.session = Some(Session {
            legal: HashSet::from([slot]),
            open: None,
            ended: VecDeque::new(),
            confirmable: slot,
            reported: slot,
            reported_at: now,
            reply_due: false,
            in_flight: BTreeMap::new(),
            awaits: Awaits::Nothing,
        });
    }

    /// The driver read the stored position.
    pub(crate) fn resumed(&mut self, stored: Option<&Stored>, postgres: &Postgres) {
        let Some(stored) = stored else { return };
        let session = self.session();
        let commit_lsn = stored.position.commit_lsn.0;
        let is_beyond = postgres.left(stored.timeline).is_some_and(|switch| commit_lsn >= switch);
        session.awaits = match postgres.comes_from(stored.timeline) {
            false => Awaits::InVain,
            true if is_beyond || commit_lsn < session.reported => Awaits::Nothing,
            true if postgres.holds(stored) => Awaits::Transaction(commit_lsn),
            true => Awaits::InVain,
        };
        self.phantoms += usize::from(is_beyond);
    }

    /// The driver refused to go on, because the stored position does not belong to the log.
    pub(crate) fn refused(&mut self, why: &dyn fmt::Display) -> Verdict {
        let awaits = self.session().awaits;
        demand!(awaits == Awaits::InVain, G7, "the stream is refused where {awaits:?} is awaited: {why}");
        Ok(())
    }

    /// An older copy took the server's place: what it does not have need not come any more.
    pub(crate) fn restored(&mut self, branches_at: u64) {
        let kept = self.transactions.partition_point(|(commit_lsn, ..)| *commit_lsn < branches_at);
        for event in self.transactions.drain(kept..).flat_map(|(.., events)| events) {
            self.fates.get_mut(&event).expect("it was committed").gone = true;
        }
        self.delivered = self.delivered.min(kept);
    }

    pub(crate) fn session_ended(&mut self) {
        self.session = None;
    }

    /// Something broke: what the slot has not confirmed may be sent again.
    pub(crate) fn fault(&mut self) {
        self.faults += 1;
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("the driver acts only in a session")
    }

    /// The driver read a frame.
    pub(crate) fn read(&mut self, frame: &[u8]) {
        let session = self.session();
        match glance::frame(frame) {
            Seen::Begin { commit_lsn } => {
                session.open = Some(BTreeSet::new());
                if session.awaits == Awaits::Transaction(commit_lsn) {
                    session.awaits = Awaits::ItsEnd;
                }
            }
            Seen::Commit { end_lsn } => {
                session.legal.insert(end_lsn);
                let records = session.open.take().expect("the model sends begin before commit");
                session.ended.push_back((end_lsn, records));
                if let Awaits::ItsEnd = session.awaits {
                    session.awaits = Awaits::Nothing;
                }
                session.advance();
            }
            Seen::Keepalive { wal_end, asks } => {
                if session.open.is_none() && session.ended.is_empty() {
                    session.legal.insert(wal_end);
                    session.confirmable = session.confirmable.max(wal_end);
                }
                session.reply_due |= asks;
            }
            Seen::Other => {}
        }
    }

    /// The driver handed a record to the producer.
    pub(crate) fn sent(&mut self, record: &Outgoing) -> Verdict {
        let Some(fate) = record.event.and_then(|event| self.fates.get_mut(&event)) else {
            return Err(violation(Promise::Content, format!("a record of no committed event: {record}")));
        };
        fate.check(record)?;
        let event = record.event;
        demand!(fate.sent_after_faults != Some(self.faults), G3, "event {event:?} is sent twice without a fault");
        fate.sent_after_faults = Some(self.faults);

        let limits = self.limits;
        let session = self.session.as_mut().expect("the driver sends only in a session");
        let bytes: usize = session.in_flight.values().sum();
        demand!(bytes < limits.bytes, G4, "event {event:?} is sent while {bytes} bytes are in flight");
        session.in_flight.insert(record.ticket, record.bytes());
        if let Some(open) = &mut session.open {
            open.insert(record.ticket);
        }
        let oldest = session.in_flight.keys().next().expect("it was just put there").0;
        let newest = session.in_flight.keys().next_back().expect("it was just put there").0;
        let span = newest - oldest + 1;
        demand!(span <= limits.records as u64, G4, "{span} records lie between the oldest and the newest in flight");
        self.peaks.span = self.peaks.span.max(span);
        self.peaks.in_flight_records = self.peaks.in_flight_records.max(session.in_flight.len());
        self.peaks.in_flight_bytes = self.peaks.in_flight_bytes.max(bytes + record.bytes());
        Ok(())
    }

    /// The driver was told that a record is written.
    pub(crate) fn acknowledged(&mut self, ticket: Ticket) {
        let session = self.session();
        session.in_flight.remove(&ticket);
        if let Some(open) = &mut session.open {
            open.remove(&ticket);
        }
        for (_, records) in &mut session.ended {
            if records.remove(&ticket) {
                break;
            }
        }
        session.advance();
    }

    /// Kafka wrote a record.
    pub(crate) fn written(&mut self, record: &Outgoing) -> Verdict {
        let event = record.event.expect("checked when it was sent");
        let fate = self.fates.get_mut(&event).expect("checked when it was sent");
        if fate.written {
            demand!(!self.exactly_once, G3, "event {event} comes twice");
            self.duplicates += 1;
            return Ok(());
        }
        fate.written = true;
        if let Some(key) = &record.key {
            let place = fate.place;
            let before = self.last_place.insert((record.topic.clone(), key.clone()), place);
            demand!(before < Some(place), G2, "event {event} follows a later one of its key in {}", record.topic);
        }
        Ok(())
    }

    /// The driver sent a status.
    pub(crate) fn reported(&mut self, position: u64, now: Duration) -> Verdict {
        while let Some((commit_lsn, end_lsn, events)) = self.transactions.get(self.delivered)
            && (*commit_lsn < position || *end_lsn <= position)
        {
            let lost = events.iter().find(|event| !self.fates[*event].written);
            demand!(lost.is_none(), G1, "{} is confirmed, and event {lost:?} is not in Kafka", At(position));
            self.delivered += 1;
        }
        let session = self.session.as_mut().expect("the driver reports only in a session");
        demand!(session.legal.contains(&position), G1, "{} is no position that may be confirmed", At(position));
        let (low, high) = session.confirmable();
        demand!(position <= high, G1, "{} is confirmed where {} is right", At(position), At(high));
        demand!(position >= low, G5, "{} is confirmed where {} is right", At(position), At(low));
        demand!(position >= session.reported, G1, "{} is confirmed after {}", At(position), At(session.reported));
        session.reported = position;
        session.reported_at = now;
        session.reply_due = false;
        Ok(())
    }

    /// The driver had its turn: whatever was due is sent.
    pub(crate) fn turn_ended(&mut self, now: Duration) -> Verdict {
        let Some(session) = &self.session else { return Ok(()) };
        let silence = now - session.reported_at;
        demand!(!session.reply_due, G6, "the server asked for a status and got none");
        demand!(silence < STATUS_INTERVAL, G6, "no status for {silence:?}");
        let moved = session.confirmable().0 > session.reported;
        demand!(
            !moved || silence < CONFIRM_INTERVAL,
            G6,
            "the confirmed position moved, and no status for {silence:?}"
        );
        Ok(())
    }

    /// Every committed event is in Kafka.
    pub(crate) fn everything_is_delivered(&self) -> bool {
        self.fates.values().all(|fate| fate.written || fate.gone)
    }

    /// The end: nothing is missing, nothing more was sent than a fault excuses, and the slot is where the server is.
    pub(crate) fn finish(&self, postgres: &Postgres, wal_end: u64) -> Verdict {
        let missing = self.fates.iter().filter(|(_, fate)| !fate.written && !fate.gone).map(|(event, _)| event).min();
        demand!(missing.is_none(), G7, "event {missing:?} never came to Kafka");
        demand!(self.faults > 0 || self.duplicates == 0, G3, "{} duplicates without a fault", self.duplicates);
        let slot = postgres.slot.confirmed;
        demand!(slot == wal_end, G5, "the slot rests at {} where {} was sent", At(slot), At(wal_end));
        Ok(())
    }
}

impl Session {
    /// The least and the most that is right. The stored event is met somewhere in its transaction.
    fn confirmable(&self) -> (u64, u64) {
        match self.awaits {
            Awaits::Nothing => (self.confirmable, self.confirmable),
            Awaits::ItsEnd => (self.reported, self.confirmable),
            Awaits::Transaction(_) | Awaits::InVain => (self.reported, self.reported),
        }
    }

    fn advance(&mut self) {
        while let Some((end_lsn, records)) = self.ended.front()
            && records.is_empty()
        {
            self.confirmable = *end_lsn;
            self.ended.pop_front();
        }
    }
}

impl Fate {
    fn check(&self, record: &Outgoing) -> Verdict {
        let Fate { expected, position, timestamp_ms, .. } = self;
        let headers: Vec<_> = record.headers.iter().filter(|(name, _)| name != "position").cloned().collect();
        let found =
            Expected { topic: record.topic.clone(), key: record.key.clone(), value: record.value.clone(), headers };
        demand!(found == *expected, Content, "the record is {found:?}, and should be {expected:?}");
        let header = record.headers.iter().find(|(name, _)| name == "position").map(|(_, value)| value.as_slice());
        demand!(header == Some(position.as_bytes()), Content, "the position header is not {position}");
        demand!(record.position.to_string() == *position, Content, "{} is not {position}", record.position);
        demand!(record.timestamp_ms == *timestamp_ms, Content, "the time is not {timestamp_ms}");
        Ok(())
    }
}
