//! Sinks that take records one by one: webhooks, and RabbitMQ.
//!
//! [`Lanes`] says whose turn it is, the [`Courier`] tries, and what comes of it is kept until the session asks.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};

use super::{
    Setbacks,
    courier::{Courier, Opened, Outcome},
    error::{Error, GivenUp},
    lanes::{Fate, LaneId, Lanes},
    owned::OwnedRecord,
};
use crate::{
    config::Config,
    pipeline::{Record, Ticket},
    printable::origin,
    status::{Recent, Recents},
};

/// What an event's attempts are kept under: the text of its position, and its id.
pub type Name = (String, String);

/// How often events were tried in vain.
pub type Known = HashMap<Name, u32>;

/// What the next session is to know of events that were tried in vain: how often, and why. 0: it is delivered, or given up.
pub type Attempts = HashMap<Name, (u32, String)>;

/// Most places that are counted apart, and the name of the others.
const PLACES_MAX: usize = 200;
const OTHER: &str = "other";
/// How often it is told that records wait.
const TELL: Duration = Duration::from_secs(10);

type UnderWay = Pin<Box<dyn Future<Output = (LaneId, Outcome)> + Send>>;

/// Delivers records by a courier.
pub struct Singly {
    courier: Courier,
    lanes: Lanes,
    under_way: FuturesUnordered<UnderWay>,
    acknowledged: Vec<Ticket>,
    given_up: VecDeque<(OwnedRecord, GivenUp)>,
    /// What waited behind those.
    behind: VecDeque<OwnedRecord>,
    /// The same for what was sent again: it can be asked for once more.
    withdrawn: Vec<Ticket>,
    /// By place, in the order in which they were met; those beyond the first [`PLACES_MAX`] share one.
    delivered: Vec<(String, u64)>,
    last_records: Recents,
    by_place: HashMap<String, usize>,
    /// Attempts of earlier sessions, until the event is met.
    known: Known,
    attempts: Attempts,
    /// Tickets whose attempts the next session would know of.
    counted: HashSet<Ticket>,
    /// Why a record is tried again, the last time that one had to be, and when that was told.
    trouble: Option<String>,
    told: Option<Instant>,
    random: RandomState,
    tries: u64,
    setbacks: Setbacks,
}

impl Singly {
    /// `known` are attempts of earlier sessions.
    pub(super) fn open(config: &Config, known: Known) -> Result<Singly, Error> {
        let Opened { courier, patience, width } = Courier::open(config)?;
        Ok(Singly {
            courier,
            lanes: Lanes::new(patience, width),
            under_way: FuturesUnordered::new(),
            acknowledged: Vec::new(),
            given_up: VecDeque::new(),
            behind: VecDeque::new(),
            withdrawn: Vec::new(),
            delivered: Vec::new(),
            last_records: Recents::default(),
            by_place: HashMap::new(),
            known,
            attempts: Attempts::new(),
            counted: HashSet::new(),
            trouble: None,
            told: None,
            random: RandomState::new(),
            tries: 0,
            setbacks: Setbacks::default(),
        })
    }

    pub(super) fn send(&mut self, record: &Record<'_>) {
        self.queue(OwnedRecord::new(record));
    }

    fn queue(&mut self, record: OwnedRecord) {
        let mut attempts = 0;
        if !self.known.is_empty() && record.ticket.is_of_stream() {
            attempts = self.known.remove(&name(&record)).unwrap_or(0);
            if attempts > 0 {
                self.counted.insert(record.ticket);
            }
        }
        self.lanes.add(record, attempts);
    }

    /// Waits until a try has ended, or a pause. Cancel safe: what is under way stays so.
    pub(super) async fn ready(&mut self) {
        while let Some((id, record, attempts)) = self.lanes.next(Instant::now()) {
            let deliver = self.courier.deliver(record, attempts + 1);
            self.under_way.push(Box::pin(async move { (id, deliver.await) }));
        }
        let due = self.lanes.due();
        tokio::select! {
            biased;
            Some((id, outcome)) = self.under_way.next() => {
                self.tried(id, outcome);
                while let Some(Some((id, outcome))) = self.under_way.next().now_or_never() {
                    self.tried(id, outcome);
                }
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {}
            else => std::future::pending().await,
        }
    }

    fn tried(&mut self, id: LaneId, outcome: Outcome) {
        self.tries += 1;
        let random = self.random.hash_one(self.tries) as u32;
        match self.lanes.tried(id, outcome, Instant::now(), f64::from(random) / f64::from(u32::MAX)) {
            Fate::Delivered(record) => {
                self.settled(&record);
                self.acknowledged.push(record.ticket);
                self.count_delivered(place(&record.topic));
                self.last_records.push(record.lend(|record| {
                    Recent::new(origin(record.topic), record.event.id, record.event.event_type, record.key)
                }));
            }
            Fate::Again { record, attempts, counts, pause, reason } => {
                self.setbacks.retries += 1;
                let destination = origin(&record.topic);
                tracing::debug!(destination, position = %record.position(), attempts, ?pause, "tried in vain: {reason}");
                let now = Instant::now();
                if self.told.is_none_or(|told| now - told >= TELL) {
                    tracing::warn!(destination, "records wait, and are tried again: {reason}");
                    self.told = Some(now);
                }
                if counts && record.ticket.is_of_stream() {
                    self.counted.insert(record.ticket);
                    self.count(&record, attempts, reason.clone());
                }
                self.trouble = Some(reason);
            }
            Fate::GivenUp { record, attempts, class, reason, behind } => {
                let error = GivenUp::new(&record, class, reason, attempts);
                self.given_up.push_back((unshared(record), error));
                let (stream, again): (Vec<_>, Vec<_>) =
                    behind.into_iter().partition(|record| record.ticket.is_of_stream());
                self.behind.extend(stream.into_iter().map(unshared));
                self.withdrawn.extend(again.iter().map(|record| record.ticket));
            }
        }
    }

    fn count_delivered(&mut self, place: &str) {
        let place = match self.by_place.get(place) {
            None if self.delivered.len() >= PLACES_MAX => OTHER,
            Some(_) | None => place,
        };
        let index = self.by_place.get(place).copied().unwrap_or_else(|| {
            self.by_place.insert(place.to_owned(), self.delivered.len());
            self.delivered.push((place.to_owned(), 0));
            self.delivered.len() - 1
        });
        self.delivered[index].1 += 1;
    }

    /// The next session need not know of its attempts.
    fn settled(&mut self, record: &OwnedRecord) {
        if self.counted.remove(&record.ticket) {
            self.count(record, 0, String::new());
        }
    }

    fn count(&mut self, record: &OwnedRecord, count: u32, reason: String) {
        self.attempts.insert(name(record), (count, reason));
    }

    pub(super) fn take_acknowledged(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.acknowledged)
    }

    pub(super) fn take_given_up(&mut self) -> Option<(OwnedRecord, GivenUp)> {
        let (record, error) = self.given_up.pop_front()?;
        self.settled(&record);
        Some((record, error))
    }

    /// The first of those in the stream.
    pub(super) fn given_up(&self) -> Option<&GivenUp> {
        self.given_up.iter().map(|(_, error)| error).min_by_key(|error| error.position)
    }

    pub(super) fn take_withdrawn(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.withdrawn)
    }

    /// A record of the stream that waited behind one that was given up, in order.
    pub(super) fn take_behind(&mut self) -> Option<OwnedRecord> {
        self.behind.pop_front()
    }

    /// Records that are given up or were behind such, and that nobody has taken.
    pub(super) fn stuck(&self) -> usize {
        self.given_up.len() + self.behind.len()
    }

    pub(super) fn take_attempts(&mut self) -> Attempts {
        std::mem::take(&mut self.attempts)
    }

    pub(super) fn last_records(&mut self) -> &mut Recents {
        &mut self.last_records
    }

    pub(super) fn delivered(&self) -> &[(String, u64)] {
        &self.delivered
    }

    /// Records that wait for their turn, or for another try.
    pub(super) fn queued(&self) -> usize {
        self.lanes.waiting()
    }

    pub(super) fn take_setbacks(&mut self) -> Setbacks {
        std::mem::take(&mut self.setbacks)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.courier.trouble().or_else(|| self.trouble.clone().filter(|_| self.lanes.fails()))
    }
}

/// Where a record went, as it is counted: the origin of a URL, an exchange, or a queue of the default exchange.
fn place(destination: &str) -> &str {
    match destination.split_once('/') {
        Some((exchange, _)) if !destination.contains("://") && !exchange.is_empty() => exchange,
        Some(_) | None => origin(destination),
    }
}

fn name(record: &OwnedRecord) -> Name {
    (record.position().to_string(), record.event_id().into_owned())
}

/// Its try has ended, or never began.
fn unshared(record: Arc<OwnedRecord>) -> OwnedRecord {
    Arc::try_unwrap(record).unwrap_or_else(|shared| shared.lend(OwnedRecord::new))
}

impl fmt::Debug for Singly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Singly").field("courier", &self.courier).field("lanes", &self.lanes).finish_non_exhaustive()
    }
}
