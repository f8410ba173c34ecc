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
    /// Nothing is confirmed, or passed over by a stored position, before it is delivered or durable.
    Confirmed,
    /// Nothing that is wrong is confirmed, or passed over, before the topic of dead letters has it, if it takes it.
    Announced,
    /// A row is settled as replayed when Kafka has its record, and every event ends somewhere.
    Vanished,
    /// Without a fault nothing is delivered or announced twice; exactly once, with faults neither.
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
    announcements: u32,
    row: Option<State>,
    /// The topic of dead letters is to have it.
    to_announce: bool,
}

impl Fate {
    /// It is delivered, or durable among the dead letters.
    fn is_somewhere(&self) -> bool {
        self.deliveries > 0 || self.announcements > 0 || self.row.is_some()
    }
}

#[derive(Default)]
pub(crate) struct Oracle {
    /// By place in the log.
    events: Vec<Fate>,
    pub(crate) faults: bool,
    exactly_once: bool,
    pub(crate) twice: u64,
}

impl Oracle {
    pub(crate) fn new(faults: bool, exactly_once: bool) -> Oracle {
        Oracle { faults, exactly_once, ..Oracle::default() }
    }

    pub(crate) fn inserted(&mut self, key: Option<u8>, routable: bool) {
        let (deliveries, announcements) = (0, 0);
        self.events.push(Fate { key, routable, deliveries, announcements, row: None, to_announce: false });
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
                let is_dead = matches!(fate.row, Some(State::Discarded | State::Dead)) || fate.announcements > 0;
                let passed_over = is_dead && fate.row != Some(State::Parked) || waits_for_good;
                fate.deliveries == 0 && !passed_over
            });
            demand(owed.is_none(), Promise::Order, || {
                format!("event {event} was delivered before {:?} of its key", owed.map(|(n, _)| n))
            })?;
        }
        let may_repeat = self.faults && !self.exactly_once;
        demand(deliveries == 0 || may_repeat, Promise::Once, || format!("event {event} was delivered twice"))?;
        self.twice += u64::from(deliveries > 0);
        self.events[event].deliveries += 1;
        self.events[event].to_announce &= !live;
        Ok(())
    }

    /// The topic of dead letters has it.
    pub(crate) fn announced(&mut self, event: usize) -> Judged {
        let may_repeat = self.faults && !self.exactly_once;
        let fate = &mut self.events[event];
        fate.announcements += 1;
        demand(fate.announcements == 1 || may_repeat, Promise::Once, || format!("event {event} was announced twice"))
    }

    /// It is known for wrong, and the topic of dead letters takes it or not.
    pub(crate) fn wrong(&mut self, event: usize, to_announce: bool) {
        self.events[event].to_announce = to_announce;
    }

    /// It has a row because it waits behind another.
    pub(crate) fn waits(&mut self, event: usize) {
        self.events[event].to_announce = false;
    }

    pub(crate) fn row(&mut self, event: usize, state: State) -> Judged {
        let fate = &mut self.events[event];
        fate.row = Some(state);
        demand(state != State::Replayed || fate.deliveries > 0, Promise::Vanished, || {
            format!("event {event} counts as replayed, and Kafka has it not")
        })
    }

    /// All before `end` is confirmed, or passed over.
    pub(crate) fn confirmed(&self, end: usize) -> Judged {
        let lost = self.events[..end].iter().position(|fate| !fate.is_somewhere());
        demand(lost.is_none(), Promise::Confirmed, || format!("event {lost:?} is confirmed, and is nowhere"))?;
        let silent = self.events[..end].iter().position(|fate| fate.to_announce && fate.announcements == 0);
        demand(silent.is_none(), Promise::Announced, || format!("event {silent:?} is confirmed, and not announced"))
    }

    pub(crate) fn ended(&self) -> Judged {
        let parked = self.events.iter().position(|fate| fate.row == Some(State::Parked));
        demand(parked.is_none(), Promise::HandedOver, || format!("event {parked:?} stays parked"))?;
        let is_dead = |fate: &Fate| fate.row.is_none() && fate.announcements > 0;
        let settled = |fate: &Fate| fate.deliveries > 0 || fate.row == Some(State::Discarded) || is_dead(fate);
        let lost = self.events.iter().position(|fate| !settled(fate));
        demand(lost.is_none(), Promise::Vanished, || format!("event {lost:?} is nowhere"))
    }
}
