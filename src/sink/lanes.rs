//! Records that are delivered one by one, each by a call of its own: one under way in each lane, many lanes at once.
//!
//! A lane is a key, wherever its records go, so that order holds within an aggregate (G2): the next record is tried when the
//! one before it is delivered. A record without a key has a lane to itself. What fails is tried again after a pause that doubles; what is
//! refused for good, or has used up its attempts, is given up, and what waits behind it is given back: whether it may
//! overtake is not decided here. What is queued is in flight, and bounded as that is (G4).

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{courier::Outcome, owned::OwnedRecord};
use crate::postgres::dead_letter::ReasonClass;

/// When a record is tried again, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// Before the second try.
    pub(super) first: Duration,
    /// The longest pause.
    pub(super) longest: Duration,
    /// None: without end.
    pub(super) attempts_max: Option<u32>,
}

impl Patience {
    /// Before the try after `failures`: `first` doubled with each but for the longest. `random` is from 0 to 1, and takes up
    /// to half of it away, that many do not return as one.
    fn pause(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        let pause = doubled.min(self.longest);
        pause - (pause / 2).mul_f64(random)
    }
}

/// Names a lane while it has records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneId(u64);

#[derive(Debug)]
struct Lane {
    /// None: of one record without a key.
    key: Option<Vec<u8>>,
    /// The first is under way, or waits for its turn.
    records: VecDeque<Arc<OwnedRecord>>,
    /// Of the first record: attempts that count, and failures in a row.
    attempts: u32,
    failures: u32,
    turn: Turn,
}

/// What the first record of a lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Room among those that are under way.
    Ready,
    UnderWay,
    /// The end of its pause.
    Paused(Instant),
}

/// What became of a lane's first record.
#[derive(Debug)]
pub(super) enum Fate {
    Delivered(Arc<OwnedRecord>),
    /// It is tried again after the pause.
    Again {
        record: Arc<OwnedRecord>,
        attempts: u32,
        counts: bool,
        pause: Duration,
        reason: String,
    },
    /// Never, and these were behind it.
    GivenUp {
        record: Arc<OwnedRecord>,
        attempts: u32,
        class: ReasonClass,
        reason: String,
        behind: VecDeque<Arc<OwnedRecord>>,
    },
}

/// The lanes, and whose turn it is. Without IO and clock.
#[derive(Debug)]
pub(super) struct Lanes {
    patience: Patience,
    /// Most records under way at once.
    width: usize,
    lanes: HashMap<LaneId, Lane>,
    by_key: HashMap<Vec<u8>, LaneId>,
    next: u64,
    ready: VecDeque<LaneId>,
    paused: BTreeSet<(Instant, LaneId)>,
    records: usize,
    under_way: usize,
    /// Lanes whose first record failed the last time.
    failing: usize,
}

impl Lanes {
    pub(super) fn new(patience: Patience, width: usize) -> Lanes {
        Lanes {
            patience,
            width,
            lanes: HashMap::new(),
            by_key: HashMap::new(),
            next: 0,
            ready: VecDeque::new(),
            paused: BTreeSet::new(),
            records: 0,
            under_way: 0,
            failing: 0,
        }
    }

    /// Puts a record behind those of its lane. `attempts` that count it has had already.
    pub(super) fn add(&mut self, record: OwnedRecord, attempts: u32) {
        self.records += 1;
        if let Some(id) = record.key.as_ref().and_then(|key| self.by_key.get(key)) {
            let lane = self.lanes.get_mut(id).expect("a key names a lane that has records");
            return lane.records.push_back(Arc::new(record));
        }
        let key = record.key.clone();
        let id = LaneId(self.next);
        self.next += 1;
        if let Some(key) = &key {
            self.by_key.insert(key.clone(), id);
        }
        let records = VecDeque::from([Arc::new(record)]);
        self.lanes.insert(id, Lane { key, records, attempts, failures: 0, turn: Turn::Ready });
        self.ready.push_back(id);
    }

    /// The next record to try, and its attempts so far; it is under way until [`Lanes::tried`].
    pub(super) fn next(&mut self, now: Instant) -> Option<(LaneId, Arc<OwnedRecord>, u32)> {
        while let Some((until, id)) = self.paused.first().copied().filter(|(until, _)| *until <= now) {
            self.paused.remove(&(until, id));
            self.lane(id).turn = Turn::Ready;
            self.ready.push_back(id);
        }
        if self.under_way >= self.width {
            return None;
        }
        let id = self.ready.pop_front()?;
        self.under_way += 1;
        let lane = self.lane(id);
        lane.turn = Turn::UnderWay;
        Some((id, Arc::clone(&lane.records[0]), lane.attempts))
    }

    /// Records that are not under way.
    pub(super) fn waiting(&self) -> usize {
        self.records - self.under_way
    }

    /// Records are tried again.
    pub(super) fn fails(&self) -> bool {
        self.failing > 0
    }

    /// When a pause ends, if room is all that is needed.
    pub(super) fn due(&self) -> Option<Instant> {
        let first = self.paused.first().map(|(until, _)| *until);
        first.filter(|_| self.under_way < self.width)
    }

    /// A try has ended.
    pub(super) fn tried(&mut self, id: LaneId, outcome: Outcome, now: Instant, random: f64) -> Fate {
        let patience = self.patience;
        self.under_way -= 1;
        let lane = self.lanes.get_mut(&id).expect("it is there until it is removed");
        assert_eq!(lane.turn, Turn::UnderWay, "what is tried is under way");
        self.failing -= usize::from(lane.failures > 0);
        match outcome {
            Outcome::Delivered => {
                let record = lane.records.pop_front().expect("a lane has a first record");
                self.records -= 1;
                (lane.attempts, lane.failures, lane.turn) = (0, 0, Turn::Ready);
                match lane.records.is_empty() {
                    true => drop(self.remove(id)),
                    false => self.ready.push_back(id),
                }
                Fate::Delivered(record)
            }
            Outcome::Failed { reason, after, counts } => {
                lane.attempts += u32::from(counts);
                lane.failures = lane.failures.saturating_add(1);
                let attempts = lane.attempts;
                if counts && patience.attempts_max.is_some_and(|most| attempts >= most) {
                    let reason = format!("{reason}; that was attempt {attempts}, and there are no more");
                    return self.give_up(id, ReasonClass::Rejected, reason);
                }
                let pause = patience.pause(lane.failures, random).max(after.unwrap_or_default());
                let until = now + pause;
                lane.turn = Turn::Paused(until);
                let record = Arc::clone(&lane.records[0]);
                self.failing += 1;
                self.paused.insert((until, id));
                Fate::Again { record, attempts, counts, pause, reason }
            }
            Outcome::Refused { class, reason } => {
                lane.attempts += 1;
                self.give_up(id, class, reason)
            }
        }
    }

    fn give_up(&mut self, id: LaneId, class: ReasonClass, reason: String) -> Fate {
        let Lane { mut records, attempts, .. } = self.remove(id);
        self.records -= records.len();
        let record = records.pop_front().expect("a lane has a first record");
        Fate::GivenUp { record, attempts, class, reason, behind: records }
    }

    fn remove(&mut self, id: LaneId) -> Lane {
        let lane = self.lanes.remove(&id).expect("it is there until it is removed");
        if let Some(key) = &lane.key {
            self.by_key.remove(key);
        }
        lane
    }

    fn lane(&mut self, id: LaneId) -> &mut Lane {
        self.lanes.get_mut(&id).expect("it is there until it is removed")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pipeline::{Event, Headers, Lsn, Position, Record, Ticket, outbox::TableName};

    const PATIENCE: Patience =
        Patience { first: Duration::from_secs(1), longest: Duration::from_secs(60), attempts_max: Some(3) };

    fn record(ticket: u64, key: Option<&str>) -> OwnedRecord {
        OwnedRecord::new(&Record {
            ticket: Ticket(ticket),
            position: Position { commit_lsn: Lsn::INVALID, ordinal: ticket as u32 },
            xid: 1,
            table: &TableName::default(),
            event: Event::default(),
            topic: "t",
            partition: None,
            key: key.map(str::as_bytes),
            value: None,
            timestamp_ms: 0,
            headers: Headers::new(&[]),
        })
    }

    fn failed() -> Outcome {
        Outcome::Failed { reason: "down".to_owned(), after: None, counts: true }
    }

    #[test]
    fn a_record_waits_for_the_one_before_it_and_for_no_other_key() {
        let now = Instant::now();
        let mut lanes = Lanes::new(PATIENCE, 10);
        for (ticket, key) in [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, None), (5, None)] {
            lanes.add(record(ticket, key), 0);
        }
        let under_way: Vec<_> = std::iter::from_fn(|| lanes.next(now)).collect();
        assert_eq!(under_way.iter().map(|(_, record, _)| record.ticket.0).collect::<Vec<_>>(), [1, 3, 4, 5]);
        let a = under_way[0].0;
        let Fate::Again { pause, attempts: 1, .. } = lanes.tried(a, failed(), now, 0.0) else { panic!("it fails") };
        assert_eq!(pause, PATIENCE.first);
        assert!(lanes.next(now).is_none());
        assert_eq!(lanes.due(), Some(now + pause));
        let (again, first, attempts) = lanes.next(now + pause).expect("its pause is over");
        assert_eq!((again, first.ticket.0, attempts), (a, 1, 1));
        assert!(
            matches!(lanes.tried(a, Outcome::Delivered, now, 0.0), Fate::Delivered(record) if record.ticket.0 == 1)
        );
        assert_eq!(lanes.next(now).expect("the second has its turn").1.ticket.0, 2);
    }

    #[test]
    fn attempts_run_out_and_what_is_behind_comes_back() {
        let mut now = Instant::now();
        let mut lanes = Lanes::new(PATIENCE, 1);
        lanes.add(record(1, Some("a")), 1);
        lanes.add(record(2, Some("a")), 0);
        lanes.add(record(3, Some("a")), 0);
        let mut pauses = Vec::new();
        loop {
            let (id, _, _) = lanes.next(now).expect("it has its turn");
            match lanes.tried(id, failed(), now, 1.0) {
                Fate::Again { pause, .. } => {
                    pauses.push(pause);
                    now += pause;
                }
                Fate::GivenUp { record, attempts, behind, .. } => {
                    assert_eq!((record.ticket.0, attempts), (1, 3));
                    assert_eq!(behind.iter().map(|record| record.ticket.0).collect::<Vec<_>>(), [2, 3]);
                    break;
                }
                Fate::Delivered(_) => panic!("nothing is delivered"),
            }
        }
        assert_eq!(pauses, [PATIENCE.first / 2], "one attempt was made before, and jitter takes half at most");
        assert!(lanes.next(now).is_none());
        assert!(lanes.lanes.is_empty() && lanes.by_key.is_empty());
    }

    #[test]
    fn pauses_double_to_a_limit_and_give_way_to_the_receiver() {
        let pause = |failures| PATIENCE.pause(failures, 0.0);
        assert_eq!([1, 2, 3, 7, 40, u32::MAX].map(|n| pause(n).as_secs()), [1, 2, 4, 60, 60, 60]);
        let now = Instant::now();
        let mut lanes = Lanes::new(Patience { attempts_max: None, ..PATIENCE }, 1);
        lanes.add(record(1, None), 0);
        let (id, _, _) = lanes.next(now).expect("it has its turn");
        let asked = Outcome::Failed { reason: String::new(), after: Some(Duration::from_secs(90)), counts: true };
        let Fate::Again { pause, .. } = lanes.tried(id, asked, now, 0.5) else { panic!("it fails") };
        assert_eq!(pause, Duration::from_secs(90));
    }

    proptest! {
        /// Whatever fails and whenever: each record of a key is delivered, or given up, before the next is tried, and none
        /// is lost.
        #[test]
        fn nothing_is_overtaken_or_lost(
            keys in proptest::collection::vec(proptest::option::of(0_u8..4), 1..60),
            outcomes in proptest::collection::vec(0_u8..6, 1..40),
            width in 1_usize..6,
        ) {
            let mut now = Instant::now();
            let mut lanes = Lanes::new(PATIENCE, width);
            let mut arriving: VecDeque<_> = keys.iter().enumerate().collect();
            let mut under_way: Vec<(LaneId, u64)> = Vec::new();
            let mut done: Vec<u64> = Vec::new();
            let mut outcomes = outcomes.iter().cycle();
            let key_of = |ticket: u64| keys[ticket as usize];
            while done.len() < keys.len() {
                if let Some((ticket, key)) = arriving.pop_front() {
                    lanes.add(record(ticket as u64, key.map(|key| key.to_string()).as_deref()), 0);
                }
                while let Some((id, record, _)) = lanes.next(now) {
                    let ticket = record.ticket.0;
                    let earlier = |other: u64| other < ticket && key_of(other).is_some() && key_of(other) == key_of(ticket);
                    prop_assert!((0..ticket).filter(|other| earlier(*other)).all(|other| done.contains(&other)));
                    under_way.push((id, ticket));
                }
                prop_assert!(under_way.len() <= width);
                let added = keys.len() - arriving.len();
                prop_assert!(lanes.waiting() + under_way.len() + done.len() <= added);
                let Some((id, ticket)) = under_way.pop() else {
                    now = lanes.due().unwrap_or(now);
                    continue;
                };
                let outcome = match outcomes.next().expect("it goes round") {
                    0 | 1 => failed(),
                    2 => Outcome::Refused { class: ReasonClass::Rejected, reason: String::new() },
                    _ => Outcome::Delivered,
                };
                match lanes.tried(id, outcome, now, 0.5) {
                    Fate::Delivered(record) => { prop_assert_eq!(record.ticket.0, ticket); done.push(ticket); }
                    Fate::Again { .. } => {}
                    Fate::GivenUp { behind, .. } => {
                        done.push(ticket);
                        // They may overtake here.
                        behind.into_iter().for_each(|record| lanes.add(Arc::try_unwrap(record).expect("it is ours"), 0));
                    }
                }
            }
            prop_assert!(lanes.lanes.is_empty() && lanes.by_key.is_empty() && lanes.paused.is_empty());
            prop_assert_eq!(lanes.waiting(), 0);
        }
    }
}
