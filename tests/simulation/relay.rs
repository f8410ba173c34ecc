//! The driver: does for the pipeline what the session does, as the pipeline's own page demands, on a virtual clock.

use std::{
    fmt,
    time::{Duration, Instant},
};

use walpost::pipeline::{
    self, Limits, Lsn, OnUpdate, Output, PgTime, Pipeline, Position, Record, Ticket,
    feedback::Feedback,
    resume::{Log, Mismatch, Resume, Stored},
};
use walpost::sink::kafka::Cut;

use crate::{
    broker::{Answer, Broker, ProducerId},
    catalog,
    kafka::Report,
    sabotage::{Sabotage, Saboteur},
    transaction::Transaction,
};

pub(crate) const CONFIRM_INTERVAL: Duration = Duration::from_millis(20);
pub(crate) const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// A record that the producer has taken.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) ticket: Ticket,
    /// The event's number, by its id header.
    pub(crate) event: Option<usize>,
    pub(crate) position: Position,
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp_ms: i64,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Outgoing {
    fn new(record: &Record<'_>) -> Outgoing {
        let id = record.headers.get("id").and_then(|id| std::str::from_utf8(id).ok());
        Outgoing {
            ticket: record.ticket,
            event: id.and_then(event_of),
            position: record.position,
            topic: record.topic.to_owned(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            timestamp_ms: record.timestamp_ms,
            headers: record
                .headers
                .iter()
                .map(|(name, value)| (name.to_owned(), value.expect("none is null").to_vec()))
                .collect(),
        }
    }

    /// The event's id, as text.
    pub(crate) fn id(&self) -> &str {
        let id = self.headers.iter().find(|(name, _)| name == "id");
        id.map_or("", |(_, id)| std::str::from_utf8(id).expect("the model's ids are texts"))
    }

    /// Bytes that nobody can save: what the record holds.
    pub(crate) fn bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.topic.len() + self.key.as_ref().map_or(0, Vec::len) + self.value.as_ref().map_or(0, Vec::len) + headers
    }
}

/// The event's number, which its id holds.
pub(crate) fn event_of(id: &str) -> Option<usize> {
    id.strip_prefix("event-")?.parse().ok()
}

impl fmt::Display for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_ref().map(|key| String::from_utf8_lossy(key));
        write!(f, "event {:?} at {} to {}, key {key:?}", self.event, self.position, self.topic)
    }
}

/// The record will not be written: the session ends, the next one starts from the slot.
#[derive(Debug)]
pub(crate) struct DeliveryFailed;

pub(crate) struct Relay {
    pipeline: Pipeline,
    feedback: Feedback,
    epoch: Instant,
    saboteur: Option<Saboteur>,
    /// Exactly once only.
    transaction: Option<Transaction>,
}

impl Relay {
    /// A session that starts at the slot's position.
    pub(crate) fn start(
        slot: u64,
        limits: Limits,
        sabotage: Option<Sabotage>,
        transaction: Option<Transaction>,
        now: Duration,
    ) -> Relay {
        let epoch = Instant::now();
        Relay {
            pipeline: Pipeline::new(catalog::outboxes(), OnUpdate::Ignore, Lsn(slot), limits),
            feedback: Feedback::new(Lsn(slot), CONFIRM_INTERVAL, STATUS_INTERVAL, epoch + now),
            epoch,
            saboteur: sabotage.map(Saboteur::new),
            transaction,
        }
    }

    fn is(&self, kind: Sabotage) -> bool {
        self.saboteur.as_ref().is_some_and(|saboteur| saboteur.kind == kind)
    }

    /// Whether to read on (G4), which a Kafka transaction that opens or closes forbids too.
    pub(crate) fn has_room(&self) -> bool {
        let is_busy = self.transaction.as_ref().is_some_and(Transaction::is_busy);
        !is_busy && (self.pipeline.has_room() || self.is(Sabotage::ReadsWithoutRoom))
    }

    /// The producer, once it has fenced older ones.
    pub(crate) fn producer(&self) -> Option<ProducerId> {
        self.transaction.as_ref()?.producer()
    }

    /// The next step of opening the Kafka transactions; gives what was stored after the last one.
    pub(crate) fn open(&mut self, broker: &mut Broker) -> Option<Option<Stored>> {
        self.transaction.as_mut()?.open(broker)
    }

    /// Goes on after what Kafka has.
    pub(crate) fn resume(&mut self, stored: Option<Stored>, log: &Log) -> Result<(), Mismatch> {
        if self.is(Sabotage::ForgetsToSkip) {
            return Ok(());
        }
        let resume = Resume::new(stored, log)?;
        if resume.is_pending() {
            self.saboteur.iter_mut().for_each(Saboteur::waits);
        }
        self.pipeline.resume(resume);
        Ok(())
    }

    /// Takes what Kafka says of the producer's transaction, commits it where it is time, and gives what is delivered.
    pub(crate) fn transact(
        &mut self,
        answers: &[Answer],
        stopping: bool,
        now: Duration,
        broker: &mut Broker,
    ) -> Result<Vec<Ticket>, DeliveryFailed> {
        let too_early = self.is(Sabotage::AcknowledgesBeforeTheCommit);
        let Relay { pipeline, transaction, .. } = self;
        let Some(transaction) = transaction else { return Ok(Vec::new()) };
        let Some(producer) = transaction.producer() else { return Ok(Vec::new()) };
        let mut delivered = Vec::new();
        for answer in answers {
            match answer {
                Answer::Written(ticket) => {
                    delivered.extend(ticket.filter(|_| too_early));
                    if transaction.answered() {
                        broker.commit(producer);
                    }
                }
                Answer::Committed => {
                    let committed = transaction.committed();
                    delivered.extend(committed.into_iter().filter(|_| !too_early));
                }
                Answer::Refused => return Err(DeliveryFailed),
            }
        }
        delivered.iter().for_each(|ticket| pipeline.acknowledge(*ticket));
        pipeline.take_completed();
        let cut = match pipeline.in_transaction() && !transaction.is_busy() {
            _ if !pipeline.has_room() => Cut::Now,
            true => Cut::Inside,
            false if stopping => Cut::Now,
            false => Cut::Between,
        };
        if let Some(position) = transaction.cut(cut, now) {
            broker.send_position(producer, position);
        }
        Ok(delivered)
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.pipeline.in_transaction()
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.pipeline.ledger().outstanding()
    }

    /// Takes a frame; gives what to send because of it, in order.
    pub(crate) fn read(&mut self, frame: &[u8], now: Duration) -> Result<Vec<Outgoing>, pipeline::Error> {
        if let Some(saboteur) = &mut self.saboteur {
            saboteur.reading(frame, &self.pipeline);
        }
        if self.is(Sabotage::IgnoresKeepalives) && frame[0] == b'k' {
            return Ok(Vec::new());
        }
        let ignores_requests = self.is(Sabotage::IgnoresRequestsForReplies);
        let record = match self.pipeline.step(frame)? {
            Output::Record(record) => Outgoing::new(&record),
            Output::ReplyRequested => {
                if !ignores_requests {
                    self.feedback.reply_requested();
                }
                return Ok(Vec::new());
            }
            Output::None | Output::Ignored { .. } | Output::Undescribed(_) => return Ok(Vec::new()),
            Output::Passed { .. } => unreachable!("the model's outbox keeps its rows as they are"),
            Output::Poison { poison, .. } => panic!("the model makes no poison, and yet: {poison}"),
        };
        let records = match &mut self.saboteur {
            Some(saboteur) => saboteur.sending(record, &mut self.pipeline),
            None => vec![record],
        };
        if let Some(transaction) = &mut self.transaction {
            records.iter().for_each(|record| transaction.add(record, now));
        }
        Ok(records)
    }

    /// Takes what the producer says of a record.
    pub(crate) fn report(&mut self, report: Report) -> Result<(), DeliveryFailed> {
        let Report { ticket, written } = report;
        if self.is(Sabotage::AcknowledgesOnReceipt) {
            return Ok(());
        }
        match written || self.is(Sabotage::SwallowsFailures) {
            true => {
                self.pipeline.acknowledge(ticket);
                self.pipeline.take_completed();
            }
            false => return Err(DeliveryFailed),
        }
        Ok(())
    }

    fn confirmed(&self) -> Lsn {
        let confirmed = || self.pipeline.confirmed();
        self.saboteur.as_ref().map_or_else(confirmed, |saboteur| saboteur.confirmed(&self.pipeline))
    }

    fn is_silent(&self) -> bool {
        self.is(Sabotage::SilentWhileBlocked) && !self.pipeline.has_room()
    }

    /// When to look at the clock again.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.is_silent() {
            return None;
        }
        let feedback = self.feedback.deadline(self.confirmed()).saturating_duration_since(self.epoch);
        let cut = self.transaction.as_ref().filter(|_| !self.in_transaction()).and_then(Transaction::deadline);
        Some(cut.map_or(feedback, |cut| feedback.min(cut)))
    }

    /// The status to send now, if any (G6).
    pub(crate) fn status(&mut self, now: Duration) -> Option<[u8; 34]> {
        if self.is_silent() {
            return None;
        }
        let status = self.feedback.due(self.confirmed(), self.epoch + now)?;
        Some(status.encode(PgTime(0)))
    }

    /// The last status of a clean stop.
    pub(crate) fn last_status(&mut self, now: Duration) -> [u8; 34] {
        self.feedback.last(self.confirmed(), self.epoch + now).encode(PgTime(0))
    }
}
