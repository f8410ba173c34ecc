//! The Kafka transaction of an exactly-once stream.
//!
//! Records count as delivered only when the transaction that holds them is committed, together with the position that
//! they reach. One transaction is open at a time; while it closes nothing is sent. Whatever goes wrong ends the session:
//! the next one fences this producer, which aborts what it had not committed, and reads from Kafka how far it came.
//! So the outcome of a commit that got no answer is known before anything else is sent.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::{sync::oneshot, task::JoinHandle};

use super::{
    librdkafka::{TransactionError, Transactions},
    positions::{Opened, Positions},
    refusal::Error,
};
use crate::{
    config::ExactlyOnce,
    pipeline::{Place, Position, Record, Ticket},
};

/// How long one call waits before it looks whether it is still wanted, and how often a transaction whose records are not
/// answered is asked whether it is whole.
const PATIENCE: Duration = Duration::from_secs(1);

/// Held by the one call of this process that fences older producers.
static FENCING: Mutex<()> = Mutex::new(());

#[derive(Debug)]
pub(super) struct Transaction {
    transactions: Transactions,
    pub(super) positions: Positions,
    principal: String,
    interval: Duration,
    records_max: usize,
    /// `transaction.timeout.ms`: the broker aborts what is open for longer.
    timeout: Duration,
    phase: Phase,
    committed: Vec<Ticket>,
}

#[derive(Debug)]
enum Phase {
    /// Older producers are being fenced, and the position is read.
    Opening(oneshot::Receiver<Result<Opened, Error>>),
    /// The position is read, and waits to be taken.
    Opened(Opened),
    /// No transaction is open.
    Closed,
    Open(Batch),
    /// The position is sent; the answers to what is under way are awaited.
    /// With when it is asked next whether it is whole.
    Closing(Batch, Instant),
    Committing(Batch, JoinHandle<Result<(), TransactionError>>),
}

/// What a transaction holds.
#[derive(Debug)]
struct Batch {
    begun: Instant,
    tickets: Vec<Ticket>,
    /// Records that Kafka has not answered, those of the positions topic included.
    unanswered: usize,
    /// The last event of the stream. None: only replayed ones, which reach no further.
    reached: Option<Position>,
    /// Its id.
    event_id: String,
    /// Of the last record.
    timestamp_ms: i64,
    /// It holds dead letters that are sent again.
    replays: bool,
    /// It is time to commit: nothing is added any more.
    due: bool,
}

/// What goes into a transaction as its last.
#[derive(Debug)]
pub(super) struct Ending {
    /// The position that its events reach, and the record that says so.
    pub(super) reached: Option<(Position, Vec<u8>)>,
    pub(super) replays: bool,
    /// Of the records that say so: that of a record which Kafka takes as well. Our own clock may be so far ahead of the
    /// broker's that it refuses it.
    pub(super) timestamp_ms: i64,
}

/// Where the stream stands when a transaction might end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Inside a transaction of PostgreSQL: only where it has grown to its most records.
    Inside,
    /// Between two: where its time is over too.
    Between,
    /// Wherever it is: nothing more comes, or nothing more fits.
    Now,
}

impl Transaction {
    /// Begins to fence older producers. The caller polls the producer meanwhile.
    pub(super) fn open(
        transactions: Transactions,
        positions: Positions,
        exactly_once: &ExactlyOnce,
        principal: String,
    ) -> Transaction {
        let (sender, receiver) = oneshot::channel();
        let (calls, place, who) = (transactions.clone(), positions.clone(), principal.clone());
        tokio::task::spawn_blocking(move || {
            let fenced = {
                // A session that ended while it fenced must be through with it, or it would fence this one.
                let _turn = FENCING.lock().unwrap_or_else(PoisonError::into_inner);
                fence(&calls, place.transactional_id(), &who, || !sender.is_closed())
            };
            let read = fenced.and_then(|()| place.read(|| !sender.is_closed()));
            // Nobody wants it any more.
            let _ = sender.send(read);
        });
        Transaction {
            transactions,
            positions,
            principal,
            interval: exactly_once.commit_interval,
            records_max: exactly_once.commit_records,
            timeout: exactly_once.transaction_timeout,
            phase: Phase::Opening(receiver),
            committed: Vec::new(),
        }
    }

    /// Nothing may be sent now.
    pub(super) fn is_busy(&self) -> bool {
        match &self.phase {
            Phase::Closed => false,
            Phase::Open(batch) => batch.due || batch.tickets.len() >= self.records_max,
            Phase::Opening(_) | Phase::Opened(_) | Phase::Closing(..) | Phase::Committing(..) => true,
        }
    }

    /// Some records wait for its end.
    pub(super) fn is_open(&self) -> bool {
        matches!(&self.phase, Phase::Open(batch) if !batch.tickets.is_empty())
    }

    /// What was stored, once it is known that no older producer can add to it.
    pub(super) fn take_opened(&mut self) -> Option<Opened> {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Opened(opened) => Some(opened),
            phase => {
                self.phase = phase;
                None
            }
        }
    }

    /// Begins a transaction where none is open.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if let Phase::Closed = self.phase {
            self.transactions.begin().map_err(|error| self.failed(&error))?;
            self.phase = Phase::Open(Batch {
                begun: Instant::now(),
                tickets: Vec::new(),
                unanswered: 0,
                reached: None,
                event_id: String::new(),
                timestamp_ms: 0,
                replays: false,
                due: false,
            });
        }
        Ok(())
    }

    /// Takes a record that was sent.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        let Phase::Open(batch) = &mut self.phase else { panic!("a record while the transaction closes") };
        if batch.tickets.is_empty() {
            batch.begun = Instant::now();
        }
        batch.tickets.push(record.ticket);
        batch.unanswered += 1;
        batch.timestamp_ms = record.timestamp_ms;
        batch.replays |= record.ticket.is_replay();
        if record.ticket.is_of_stream() {
            batch.reached = Some(record.position);
            batch.event_id.clear();
            batch.event_id.push_str(&String::from_utf8_lossy(record.event.id));
        }
    }

    /// Kafka has a record of the transaction.
    pub(super) fn answered(&mut self) {
        let (Phase::Open(batch) | Phase::Closing(batch, _)) = &mut self.phase else {
            panic!("an answer outside a transaction");
        };
        batch.unanswered -= 1;
    }

    /// When the open transaction is to end, between two of PostgreSQL's.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Open(batch) if !batch.tickets.is_empty() && !batch.due => Some(batch.begun + self.interval),
            Phase::Open(_)
            | Phase::Opening(_)
            | Phase::Opened(_)
            | Phase::Closed
            | Phase::Closing(..)
            | Phase::Committing(..) => None,
        }
    }

    /// Ends the open transaction if it is time, and gives what belongs into it as its last. The caller sends that.
    /// `unwritten`: the first event whose dead letter is not durable yet. A stored position passes over it, so it waits.
    /// `place` is asked for that of the event that is stored, if it was read from the table.
    pub(super) fn cut(
        &mut self,
        cut: Cut,
        now: Instant,
        unwritten: Option<Position>,
        place: impl FnOnce(Position) -> Option<Place>,
    ) -> Option<Ending> {
        let Phase::Open(batch) = &mut self.phase else { return None };
        let large = batch.tickets.len() >= self.records_max;
        let over = now >= batch.begun + self.interval;
        let due = match cut {
            Cut::Inside => large,
            Cut::Between => large || over,
            Cut::Now => true,
        };
        batch.due |= due && !batch.tickets.is_empty();
        let passes_over = unwritten.is_some_and(|unwritten| batch.reached.is_some_and(|reached| unwritten < reached));
        if !batch.due || passes_over {
            return None;
        }
        let Phase::Open(mut batch) = std::mem::replace(&mut self.phase, Phase::Closed) else { return None };
        let value = |position| self.positions.value(position, &batch.event_id, place(position));
        let kept = batch.reached.filter(|_| !self.positions.is_aside());
        let reached = kept.map(|position| (position, value(position)));
        let replays = batch.replays;
        batch.unanswered += usize::from(reached.is_some()) + usize::from(replays);
        let timestamp_ms = batch.timestamp_ms;
        self.phase = Phase::Closing(batch, now + PATIENCE);
        Some(Ending { reached, replays, timestamp_ms })
    }

    /// Commits once everything is answered: a commit that finds something under way waits in long steps.
    pub(super) fn commit_if_answered(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Closing(batch, _) if batch.unanswered == 0 => {
                let (transactions, until) = (self.transactions.clone(), batch.begun + self.timeout);
                let commit = tokio::task::spawn_blocking(move || {
                    loop {
                        match transactions.commit(PATIENCE) {
                            Err(error) if error.retriable && Instant::now() < until => {}
                            outcome => return outcome,
                        }
                    }
                });
                self.phase = Phase::Committing(batch, commit);
            }
            phase => self.phase = phase,
        }
    }

    /// Waits until the position is read, or a commit has its answer, or none can have any. Cancel safe.
    pub(super) async fn ready(&mut self) -> Result<(), Error> {
        match &mut self.phase {
            Phase::Opening(opening) => {
                let read = opening.await.expect("it answers as long as it is awaited");
                let opened = read?;
                self.positions.raise(opened.generation);
                self.phase = Phase::Opened(opened);
            }
            Phase::Committing(_, commit) => {
                let outcome = commit.await.expect("a commit does not panic");
                outcome.map_err(|error| self.failed(&error))?;
                if let Phase::Committing(batch, _) = std::mem::replace(&mut self.phase, Phase::Closed) {
                    self.committed = batch.tickets;
                }
            }
            // What is queued for one that is broken, such as by a topic that is gone, is never answered. One that is open
            // learns it from the next record; this one gets none.
            Phase::Closing(_, ask) => {
                tokio::time::sleep_until((*ask).into()).await;
                *ask = Instant::now() + PATIENCE;
                self.transactions.whole().map_err(|error| self.failed(&error))?;
            }
            Phase::Opened(_) | Phase::Closed | Phase::Open(_) => std::future::pending().await,
        }
        Ok(())
    }

    /// The records of the transaction that was committed last.
    pub(super) fn take_committed(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.committed)
    }

    /// The calls, where a transaction is open that nobody will commit.
    pub(super) fn to_abort(&self) -> Option<Transactions> {
        match self.phase {
            Phase::Open(_) | Phase::Closing(..) => Some(self.transactions.clone()),
            Phase::Opening(_) | Phase::Opened(_) | Phase::Closed | Phase::Committing(..) => None,
        }
    }

    /// What a transactional error, or the producer's end, means.
    pub(super) fn failed(&self, error: &TransactionError) -> Error {
        let id = self.positions.transactional_id();
        match error.code {
            // A broker that gives up a transaction for its age fences its producer too. Nobody has to be behind that.
            Code::Fenced if self.age().is_none_or(|age| age < self.timeout) => {
                Error::Fenced { transactional_id: id.to_owned() }
            }
            _ => unopened(error, id, &self.principal),
        }
    }

    fn age(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Open(batch) | Phase::Closing(batch, _) | Phase::Committing(batch, _) => Some(batch.begun.elapsed()),
            Phase::Opening(_) | Phase::Opened(_) | Phase::Closed => None,
        }
    }
}

/// Ends every older producer of the transactional id. Blocks while brokers are away.
fn fence(calls: &Transactions, id: &str, principal: &str, wanted: impl Fn() -> bool) -> Result<(), Error> {
    const TELL: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    let mut told = false;
    while wanted() {
        match calls.init(PATIENCE) {
            Ok(()) => return Ok(()),
            Err(error) if error.retriable => {
                if !told && begun.elapsed() > TELL {
                    tracing::warn!(
                        "no producer id for transactional id {id} yet, trying on: {}; are there as many brokers as \
                         transaction.state.log.replication.factor asks for?",
                        error.text
                    );
                    told = true;
                }
            }
            Err(error) => return Err(unopened(&error, id, principal)),
        }
    }
    Ok(())
}

fn unopened(error: &TransactionError, id: &str, principal: &str) -> Error {
    let reason = error.text.clone();
    let right = match error.code {
        Code::TransactionalIdAuthorizationFailed => format!("WRITE and DESCRIBE on transactional id {id}"),
        Code::ClusterAuthorizationFailed => "IDEMPOTENT_WRITE on the cluster".to_owned(),
        _ => return Error::Aborted { reason },
    };
    Error::Unauthorized { principal: principal.to_owned(), right, reason }
}
