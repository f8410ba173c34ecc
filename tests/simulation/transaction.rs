//! The driver's Kafka transaction, as the sink keeps it: fence, read the position, then one transaction at a time.

use std::time::Duration;

use walpost::{
    pipeline::{Position, Ticket, resume::Stored},
    sink::kafka::Cut,
};

use crate::{
    broker::{Broker, ProducerId},
    relay::Outgoing,
};

/// When a transaction is large or old enough.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    pub(crate) interval: Duration,
    pub(crate) records: usize,
}

pub(crate) struct Transaction {
    cuts: Cuts,
    timeline: u32,
    producer: Option<ProducerId>,
    /// A saboteur reads the position while older producers can still move it.
    reads_first: bool,
    read: Option<Option<Stored>>,
    phase: Phase,
}

enum Phase {
    /// Older producers are being fenced, and the position is read.
    Opening,
    Closed,
    Open(Batch),
    /// The position is sent; answers are awaited.
    Closing(Batch),
    Committing(Batch),
}

struct Batch {
    begun: Duration,
    tickets: Vec<Ticket>,
    unanswered: usize,
    last: (Position, String),
}

impl Transaction {
    pub(crate) fn new(cuts: Cuts, timeline: u32, reads_first: bool) -> Transaction {
        Transaction { cuts, timeline, producer: None, reads_first, read: None, phase: Phase::Opening }
    }

    pub(crate) fn producer(&self) -> Option<ProducerId> {
        self.producer
    }

    /// The next step of fencing first and reading then; gives what was stored after the last one.
    pub(crate) fn open(&mut self, broker: &mut Broker) -> Option<Option<Stored>> {
        let Phase::Opening = self.phase else { return None };
        let reads = self.reads_first == self.producer.is_none();
        match reads && self.read.is_none() {
            true => self.read = Some(broker.stored()),
            false => self.producer = Some(broker.fence()),
        }
        let read = self.read.take_if(|_| self.producer.is_some());
        if read.is_some() {
            self.phase = Phase::Closed;
        }
        read
    }

    /// Nothing may be sent now.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.phase {
            Phase::Closed => false,
            Phase::Open(batch) => batch.tickets.len() >= self.cuts.records,
            Phase::Opening | Phase::Closing(_) | Phase::Committing(_) => true,
        }
    }

    /// When a cut between two transactions of PostgreSQL is due.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Open(batch) => Some(batch.begun + self.cuts.interval),
            Phase::Opening | Phase::Closed | Phase::Closing(_) | Phase::Committing(_) => None,
        }
    }

    /// A record is about to be sent.
    pub(crate) fn add(&mut self, record: &Outgoing, now: Duration) {
        if let Phase::Closed = self.phase {
            let last = (record.position, String::new());
            self.phase = Phase::Open(Batch { begun: now, tickets: Vec::new(), unanswered: 0, last });
        }
        let Phase::Open(batch) = &mut self.phase else { panic!("a record while the transaction closes") };
        batch.tickets.push(record.ticket);
        batch.unanswered += 1;
        batch.last = (record.position, record.id().to_owned());
    }

    /// Ends the open transaction if it is time; gives the position to send inside it.
    pub(crate) fn cut(&mut self, cut: Cut, now: Duration) -> Option<Stored> {
        let Phase::Open(batch) = &mut self.phase else { return None };
        let large = batch.tickets.len() >= self.cuts.records;
        let due = match cut {
            Cut::Inside => large,
            Cut::Between => large || now >= batch.begun + self.cuts.interval,
            Cut::Now => true,
        };
        if !due {
            return None;
        }
        let Phase::Open(mut batch) = std::mem::replace(&mut self.phase, Phase::Closed) else { return None };
        batch.unanswered += 1;
        let (position, event_id) = batch.last.clone();
        self.phase = Phase::Closing(batch);
        Some(Stored { timeline: self.timeline, position, event_id })
    }

    /// A record of the transaction is written. True: that was the last one, commit now.
    pub(crate) fn answered(&mut self) -> bool {
        let (Phase::Open(batch) | Phase::Closing(batch)) = &mut self.phase else { panic!("an answer too many") };
        batch.unanswered -= 1;
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Closing(batch) if batch.unanswered == 0 => {
                self.phase = Phase::Committing(batch);
                true
            }
            phase => {
                self.phase = phase;
                false
            }
        }
    }

    /// The commit is answered; gives the records that it made final.
    pub(crate) fn committed(&mut self) -> Vec<Ticket> {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Committing(batch) => batch.tickets,
            _ => panic!("an answer to no commit"),
        }
    }
}
