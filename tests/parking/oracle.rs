//! Judges by what Kafka and the table hold, and by what the slot was told.

use std::fmt;

use walpost::postgres::dead_letter::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// First deliveries of a key come in the order of the log, but for what a person discarded or what is dead alone.
    Order,
    /// Nothing of a key comes from the stream while an earlier event of it is parked.
    Overtaken,
    /// What has a row follows it, and never comes from the stream.
    Followed,
    /// Nothing is confirmed before it is delivered or its row is durable.
    Confirmed,
    /// A row is settled as replayed when Kafka has its record, and every event ends somewhere.
    Vanished,
    /// Without a fault nothing is delivered twice.
    Once,
    /// When all that Kafka refused is taken, and all is asked for, nothing stays parked, though the stream goes on.
    HandedOver,
}

#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is broken: {}", self.promise, self.what)
    }
}

pub(crate) type Judged = Result<(), Violation>;

pub(crate) fn demand(holds: bool, promise: Promise, what: impl FnOnce() -> String) -> Judged {
    if holds { Ok(()) } else { Err(Violation { promise, what: what() }) }
}

struct Fate {
    key: Option<u8>,
    routable: bool,
    deliveries: u32,
    row: Option<State>,
}

#[derive(Default)]
pub(crate) struct Oracle {
    /// By place in the log.
    events: Vec<Fate>,
    pub(crate) faults: bool,
    pub(crate) twice: u64,
}

impl Oracle {
    pub(crate) fn new(faults: bool) -> Oracle {
        Oracle { faults, ..Oracle::default() }
    }

    pub(crate) fn inserted(&mut self, key: Option<u8>, routable: bool) {
        self.events.push(Fate { key, routable, deliveries: 0, row: None });
    }

    pub(crate) fn delivered(&mut self, event: usize, live: bool) -> Judged {
        let Fate { key, deliveries, row, .. } = self.events[event];
        let earlier = || self.events[..event].iter().enumerate().filter(|(_, fate)| key.is_some() && fate.key == key);
        if live {
            demand(row.is_none(), Promise::Followed, || {
                format!("event {event} came from the stream, its row is {row:?}")
            })?;
            let parked = earlier().find(|(_, fate)| fate.row == Some(State::Parked));
            demand(parked.is_none(), Promise::Overtaken, || {
                format!("event {event} came from the stream, {:?} is parked", parked.map(|(n, _)| n))
            })?;
        }
        if deliveries == 0 {
            let owed = earlier().find(|(_, fate)| {
                let waits_for_good = fate.row == Some(State::Parked) && !fate.routable && !live;
                let passed_over = matches!(fate.row, Some(State::Discarded | State::Dead)) || waits_for_good;
                fate.deliveries == 0 && !passed_over
            });
            demand(owed.is_none(), Promise::Order, || {
                format!("event {event} was delivered before {:?} of its key", owed.map(|(n, _)| n))
            })?;
        }
        demand(deliveries == 0 || self.faults, Promise::Once, || format!("event {event} was delivered twice"))?;
        self.twice += u64::from(deliveries > 0);
        self.events[event].deliveries += 1;
        Ok(())
    }

    pub(crate) fn row(&mut self, event: usize, state: State) -> Judged {
        let fate = &mut self.events[event];
        fate.row = Some(state);
        demand(state != State::Replayed || fate.deliveries > 0, Promise::Vanished, || {
            format!("event {event} counts as replayed, and Kafka has it not")
        })
    }

    /// All before `end` is confirmed.
    pub(crate) fn confirmed(&self, end: usize) -> Judged {
        let lost = self.events[..end].iter().position(|fate| fate.deliveries == 0 && fate.row.is_none());
        demand(lost.is_none(), Promise::Confirmed, || format!("event {lost:?} is confirmed, and is nowhere"))
    }

    pub(crate) fn ended(&self) -> Judged {
        let parked = self.events.iter().position(|fate| fate.row == Some(State::Parked));
        demand(parked.is_none(), Promise::HandedOver, || format!("event {parked:?} stays parked"))?;
        let settled = |fate: &Fate| fate.deliveries > 0 || fate.row == Some(State::Discarded);
        let lost = self.events.iter().position(|fate| !settled(fate));
        demand(lost.is_none(), Promise::Vanished, || format!("event {lost:?} is nowhere"))
    }
}
