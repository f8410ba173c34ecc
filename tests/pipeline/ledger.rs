//! The ledger against a model that keeps everything and counts anew each time (G1, G4, G5).

use proptest::{collection::vec, prelude::*};
use walpost::pipeline::{Limits, Lsn, PgTime, Ticket, ledger::Ledger};

const LIMITS: Limits = Limits { records: 8, bytes: 300 };
const START: u64 = 1_000;

/// Something that happens to a ledger. What makes no sense at its time is left out.
#[derive(Clone, Debug)]
enum Act {
    Begin,
    Send {
        bytes: usize,
    },
    /// So many bytes of log after the newest position.
    Commit {
        after: u64,
    },
    /// Of the records in flight, by index.
    Acknowledge {
        which: prop::sample::Index,
    },
    /// So many bytes of log after the newest position, or before it.
    Keepalive {
        after: i64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => Just(Act::Begin),
        5 => (0..120_usize).prop_map(|bytes| Act::Send { bytes }),
        2 => (0..40_u64).prop_map(|after| Act::Commit { after }),
        5 => any::<prop::sample::Index>().prop_map(|which| Act::Acknowledge { which }),
        1 => (-40..40_i64).prop_map(|after| Act::Keepalive { after }),
    ]
}

#[derive(Debug, Default)]
struct Model {
    /// Bytes of every record ever, and whether it is acknowledged.
    records: Vec<(usize, bool)>,
    /// For every commit: how many records came before it, its end, whether it had records, its time.
    commits: Vec<(usize, u64, bool, PgTime)>,
    /// The start, or the highest keepalive that counted.
    floor: u64,
    /// Records before the open transaction.
    open: Option<usize>,
}

impl Model {
    fn is_delivered(&self, before: usize) -> bool {
        self.records[..before].iter().all(|(_, acknowledged)| *acknowledged)
    }

    fn in_flight(&self) -> Vec<usize> {
        (0..self.records.len()).filter(|ticket| !self.records[*ticket].1).collect()
    }

    fn is_idle(&self) -> bool {
        self.open.is_none() && self.in_flight().is_empty()
    }

    fn confirmed(&self) -> u64 {
        let ends = self.commits.iter().filter(|(before, ..)| self.is_delivered(*before)).map(|(_, end, ..)| *end);
        ends.chain([self.floor]).max().expect("there is a floor")
    }

    fn newest(&self) -> u64 {
        self.commits.last().map_or(self.floor, |(_, end, ..)| self.floor.max(*end))
    }

    fn bytes(&self) -> usize {
        self.in_flight().iter().map(|ticket| self.records[*ticket].0.max(1)).sum()
    }

    fn has_room(&self) -> bool {
        let span = self.in_flight().first().map_or(0, |oldest| self.records.len() - oldest);
        span < LIMITS.records && self.bytes() < LIMITS.bytes
    }

    fn oldest_unconfirmed(&self) -> Option<PgTime> {
        let open =
            |(before, _, has_records, _): &&(usize, u64, bool, PgTime)| *has_records && !self.is_delivered(*before);
        self.commits.iter().find(open).map(|(.., time)| *time)
    }

    fn completed(&self) -> usize {
        let done =
            |(before, _, has_records, _): &&(usize, u64, bool, PgTime)| *has_records && self.is_delivered(*before);
        self.commits.iter().filter(done).count()
    }
}

proptest! {
    #[test]
    fn the_ledger_does_what_the_model_does(acts in vec(act(), 0..200)) {
        let mut ledger = Ledger::new(Lsn(START), LIMITS);
        let mut model = Model { floor: START, ..Model::default() };
        let mut completed = Vec::new();
        for (time, act) in acts.into_iter().enumerate() {
            let time = PgTime(time as i64);
            match act {
                Act::Begin if model.open.is_none() => {
                    ledger.begin();
                    model.open = Some(model.records.len());
                }
                Act::Send { bytes } if model.open.is_some() && model.has_room() => {
                    prop_assert_eq!(ledger.send(bytes), Ticket(model.records.len() as u64));
                    model.records.push((bytes, false));
                }
                Act::Commit { after } => {
                    if let Some(first) = model.open.take() {
                        let end = model.newest() + after;
                        ledger.commit(Lsn(end), time);
                        model.commits.push((model.records.len(), end, model.records.len() > first, time));
                    }
                }
                Act::Acknowledge { which } if !model.in_flight().is_empty() => {
                    let in_flight = model.in_flight();
                    let ticket = *which.get(&in_flight);
                    ledger.acknowledge(Ticket(ticket as u64));
                    model.records[ticket].1 = true;
                }
                Act::Keepalive { after } => {
                    let wal_end = model.newest().saturating_add_signed(after);
                    ledger.keepalive(Lsn(wal_end));
                    if model.is_idle() {
                        model.floor = model.floor.max(wal_end);
                    }
                }
                Act::Begin | Act::Send { .. } | Act::Acknowledge { .. } => {}
            }
            completed.extend(ledger.take_completed().map(|transaction| transaction.commit));
            prop_assert_eq!(ledger.confirmed(), Lsn(model.confirmed()));
            prop_assert_eq!(ledger.newest(), Lsn(model.newest()));
            prop_assert_eq!(ledger.outstanding(), model.in_flight().len());
            prop_assert_eq!(ledger.outstanding_bytes(), model.bytes());
            prop_assert_eq!(ledger.has_room(), model.has_room());
            prop_assert_eq!(ledger.is_idle(), model.is_idle());
            prop_assert_eq!(ledger.oldest_unconfirmed(), model.oldest_unconfirmed());
            prop_assert_eq!(completed.len(), model.completed());
            prop_assert!(completed.is_sorted());
        }
    }
}
