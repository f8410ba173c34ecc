//! Events that cannot be delivered, on their way into the table of dead letters and back into the stream.
//!
//! Every event here has a ticket, which is acknowledged when its row is durable: until then nothing of its transaction
//! is confirmed (G1, G7). The table is worked on by one task at a time, over a connection that it closes again, so that
//! no shutdown of the server waits for it (G8). A table that cannot be worked on is tried again while the stream waits.
//!
//! An aggregate is given back to the stream by the hand-over of [`dead_letter`](crate::postgres::dead_letter): rows are
//! settled while nothing is stepped and nothing waits to be written, so what is unparked then has no row left.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use tokio::task::JoinHandle;

use crate::{
    chain::Chain,
    config::{Config, OnPoison},
    pipeline::{
        Headers, Lsn, Position, Record, Ticket,
        outbox::{Poison, Reason, TableName},
    },
    postgres::{
        self,
        conninfo::ConnInfo,
        dead_letter::{DeadLetter, Known, ParkKey, ReasonClass, Store, Stored},
    },
    setup::names,
    sink::kafka,
};

/// How often the table is looked at for what people asked for.
const LOOK: Duration = Duration::from_secs(2);
/// How long a table that cannot be worked on is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// Most that is replayed at once.
const REPLAY_RECORDS: usize = 500;
const REPLAY_BYTES: usize = 8 << 20;

/// An event that the stream met, and that an earlier session could not deliver.
#[derive(Clone, Debug)]
pub struct Culprit {
    pub position: String,
    pub class: ReasonClass,
    pub reason: String,
}

impl Culprit {
    /// The event that an error is about, where the stream can go on past it.
    pub fn of(error: &kafka::Error) -> Option<Culprit> {
        let (event, class, reason) = match error {
            kafka::Error::Rejected { event, limit, reason, too_large, .. } => {
                let class = if *too_large { ReasonClass::TooLarge } else { ReasonClass::Rejected };
                (event, class, format!("{reason} ({} bytes, limit {limit})", event.size + event.headers_size))
            }
            kafka::Error::UnknownTopic { event, waited, .. } if error.is_permanent() => {
                (event, ReasonClass::UnknownTopic, format!("kafka has had no topic {} in {waited:?}", event.topic))
            }
            _ => return None,
        };
        Some(Culprit { position: event.position.clone(), class, reason })
    }

    pub(super) fn is_at(&self, position: Position) -> bool {
        position.text() == *self.position.as_bytes()
    }
}

/// Why there can be no dead letters, or no more of them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(
        "on_poison rests on table {table}, which does not exist or may not be read and written: walpost setup makes it, \
         with the rights of the streaming role; or set on_poison = \"halt\""
    )]
    NoTable { table: String },
    #[error(
        "{count} {what} are parked, and {key} allows no more: replay or discard them (walpost dead-letter list), or raise it"
    )]
    Full { what: &'static str, count: usize, key: &'static str },
}

/// What is to be done with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Send,
    /// The table has it already: its row says what becomes of it.
    Follow,
    Park(ParkKey),
}

pub(super) struct Letters {
    parks: bool,
    aggregates_max: usize,
    events_max: usize,
    table: Table,
    /// Rows of events that may be streamed again.
    known: Known,
    parked: Parked,
    culprit: Option<Culprit>,
    /// Not in the table yet.
    unwritten: Vec<(Ticket, DeadLetter)>,
    /// One of them is poison: nothing later may overtake it.
    holds: bool,
    acknowledged: Vec<Ticket>,
    counts: HashMap<ReasonClass, u64>,
    replay: Replay,
    task: Task,
    /// Why the table cannot be worked on.
    trouble: Option<String>,
}

/// Events parked under each key.
#[derive(Default)]
struct Parked {
    keys: HashMap<ParkKey, u64>,
    events: u64,
}

impl Parked {
    fn new(keys: HashMap<ParkKey, u64>) -> Parked {
        let events = keys.values().sum();
        Parked { keys, events }
    }

    fn add(&mut self, key: ParkKey) {
        *self.keys.entry(key).or_default() += 1;
        self.events += 1;
    }

    fn remove(&mut self, key: &ParkKey) {
        self.events -= self.keys.remove(key).unwrap_or_default();
    }
}

/// What was asked for again.
#[derive(Default)]
struct Replay {
    unsent: VecDeque<Stored>,
    /// Rows whose records are under way, by ticket.
    sent: HashMap<Ticket, i64>,
    acknowledged: Vec<i64>,
    next: u64,
}

enum Task {
    /// When to look at the table.
    Idle(Instant),
    Running(JoinHandle<Result<Done, Failed>>),
}

/// Work on the table.
#[derive(Clone)]
enum Work {
    Write(Vec<(Ticket, DeadLetter)>),
    Settle(Vec<i64>),
    Look(Option<Culprit>),
}

enum Done {
    Written(Vec<Ticket>),
    Settled(Vec<ParkKey>),
    Seen { parked: HashMap<ParkKey, u64>, requested: Vec<Stored> },
}

/// Not done; it can be done again.
struct Failed {
    work: Work,
    error: postgres::Error,
}

#[derive(Clone)]
struct Table {
    at: ConnInfo,
    system_identifier: String,
    slot: String,
    schema: String,
}

impl Letters {
    /// None: the stream halts at poison. `from` is the slot's confirmed position.
    pub(super) async fn open(
        config: &Config,
        server: &ConnInfo,
        system_identifier: &str,
        from: Lsn,
        culprit: Option<&Culprit>,
    ) -> Result<Option<Letters>, Error> {
        if config.on_poison == Some(OnPoison::Halt) {
            return Ok(None);
        }
        let table = Table {
            at: server.clone(),
            system_identifier: system_identifier.to_owned(),
            slot: config.slot.clone(),
            schema: names::home(config).to_owned(),
        };
        let store = table.connect().await?;
        if !store.exists().await? {
            return match config.on_poison {
                None => Ok(None),
                Some(_) => Err(Error::NoTable { table: format!("{}.dead_letter", table.schema) }),
            };
        }
        Ok(Some(Letters {
            parks: config.on_poison != Some(OnPoison::DeadLetter),
            aggregates_max: config.park_max_aggregates,
            events_max: config.park_max_events,
            known: store.known(from).await?,
            parked: Parked::new(store.parked().await?),
            table,
            culprit: culprit.cloned(),
            unwritten: Vec::new(),
            holds: false,
            acknowledged: Vec::new(),
            counts: HashMap::new(),
            replay: Replay::default(),
            task: Task::Idle(Instant::now()),
            trouble: None,
        }))
    }

    /// Nothing may be stepped now: poison is not durable yet, or an aggregate is being handed over.
    pub(super) fn holds(&self) -> bool {
        self.holds || self.hands_over()
    }

    /// Why the table cannot be worked on.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(super) fn verdict(&mut self, record: &Record<'_>) -> Verdict {
        if !self.known.is_empty() {
            self.known.forget_before(record.position);
            let id = String::from_utf8_lossy(record.headers.get("id").unwrap_or_default());
            if self.known.state(record.position, &id).is_some() {
                return Verdict::Follow;
            }
        }
        if self.parked.keys.is_empty() {
            return Verdict::Send;
        }
        let Some(key) = record.key else { return Verdict::Send };
        let own = ParkKey::of_record(record.topic, key);
        let aggregate_type = record.headers.get("aggregate_type");
        let of_aggregate = || ParkKey::of_aggregate(&record.table.to_string(), aggregate_type, key);
        let is_parked = self.parked.keys.contains_key(&own) || self.parked.keys.contains_key(&of_aggregate());
        if is_parked { Verdict::Park(own) } else { Verdict::Send }
    }

    /// The event follows its row: it is done with here.
    pub(super) fn follow(&mut self, ticket: Ticket) {
        self.acknowledged.push(ticket);
    }

    /// Nothing is wrong with it, but it waits behind another.
    pub(super) fn park(&mut self, record: &Record<'_>, key: ParkKey) -> Result<(), Error> {
        let reason = "waits behind an earlier event of its aggregate";
        self.take(record.ticket, letter(record, ReasonClass::Parked, reason, 0, Some(key)))
    }

    /// Kafka does not take it.
    pub(super) fn refused(&mut self, record: &Record<'_>, culprit: &Culprit) -> Result<(), Error> {
        let Culprit { class, reason, .. } = culprit;
        let key = record.key.filter(|_| self.parks).map(|key| ParkKey::of_record(record.topic, key));
        tracing::error!(topic = record.topic, position = %record.position, "an event becomes a dead letter: {reason}");
        self.holds = true;
        self.take(record.ticket, letter(record, *class, reason, 1, key))
    }

    /// No record can be made of it.
    pub(super) fn poison(&mut self, ticket: Ticket, poison: &Poison) -> Result<(), Error> {
        if self.known.state(poison.position, &poison.id).is_some() {
            self.follow(ticket);
            return Ok(());
        }
        tracing::error!("an event becomes a dead letter: {poison}");
        self.holds = true;
        let table = poison.table.to_string();
        let id = poison.aggregate_id.as_deref().filter(|_| self.parks);
        let park_key = id.map(|id| ParkKey::of_aggregate(&table, poison.aggregate_type.as_deref(), id));
        let now = SystemTime::now();
        self.take(
            ticket,
            DeadLetter {
                position: poison.position,
                event_id: poison.id.clone(),
                xid: poison.xid,
                source_table: table,
                aggregate_type: poison.aggregate_type.as_deref().map(text),
                aggregate_id: poison.aggregate_id.as_deref().map(text),
                event_type: poison.event_type.as_deref().map(text),
                topic: None,
                key: poison.aggregate_id.clone(),
                payload: poison.payload.clone(),
                headers: poison.headers.iter().map(|headers| ("headers".to_owned(), headers.clone())).collect(),
                timestamp_ms: poison.commit_time.unix_ms(),
                class: match poison.reason {
                    Reason::IllegalTopic(_) => ReasonClass::InvalidTopic,
                    Reason::NoId | Reason::NullInTopic(_) | Reason::Headers(_) | Reason::Bytea => {
                        ReasonClass::Unroutable
                    }
                },
                reason: poison.reason.to_string(),
                attempts: 0,
                first_failed_at: now,
                last_failed_at: now,
                later_delivered: false,
                park_key,
            },
        )
    }

    /// Events and aggregates that are parked.
    pub(super) fn parked(&self) -> (u64, u64) {
        (self.parked.events, self.parked.keys.len() as u64)
    }

    /// How many events became dead letters since the last call, by reason.
    pub(super) fn take_counts(&mut self) -> HashMap<ReasonClass, u64> {
        std::mem::take(&mut self.counts)
    }

    fn take(&mut self, ticket: Ticket, letter: DeadLetter) -> Result<(), Error> {
        *self.counts.entry(letter.class).or_default() += 1;
        if let Some(key) = letter.park_key {
            self.parked.add(key);
            let (aggregates, events) = (self.parked.keys.len(), self.parked.events as usize);
            let full = |what, count, key| Err(Error::Full { what, count, key });
            if aggregates > self.aggregates_max {
                return full("aggregates", aggregates, "park_max_aggregates");
            }
            if events > self.events_max {
                return full("events", events, "park_max_events");
            }
        }
        self.unwritten.push((ticket, letter));
        Ok(())
    }

    /// The next record to send again; it is taken for sent when `send` takes it.
    pub(super) fn send_next<E>(&mut self, send: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<bool, E> {
        let Some(row) = self.replay.unsent.pop_front() else { return Ok(false) };
        let ticket = Ticket(Ticket::OTHERS.0 + self.replay.next);
        self.replay.next += 1;
        self.replay.sent.insert(ticket, row.id);
        let letter = row.letter;
        let mut headers = letter.headers;
        headers.push(("replay".to_owned(), b"dead-letter".to_vec()));
        send(&Record {
            ticket,
            position: letter.position,
            xid: letter.xid,
            table: &TableName::default(),
            topic: letter.topic.as_deref().unwrap_or_default(),
            key: letter.key.as_deref(),
            value: letter.payload.as_deref(),
            timestamp_ms: letter.timestamp_ms,
            headers: Headers::new(&headers),
        })?;
        Ok(true)
    }

    /// Kafka has the replayed record.
    pub(super) fn replayed(&mut self, ticket: Ticket) {
        let row = self.replay.sent.remove(&ticket).expect("the record was sent, and is acknowledged once");
        self.replay.acknowledged.push(row);
    }

    /// Tickets whose rows are durable.
    pub(super) fn take_acknowledged(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.acknowledged)
    }

    /// Records are under way again, or wait for it.
    pub(super) fn replays(&self) -> bool {
        !self.replay.unsent.is_empty() || !self.replay.sent.is_empty() || !self.replay.acknowledged.is_empty()
    }

    /// All that was sent again is acknowledged, and not settled yet.
    fn hands_over(&self) -> bool {
        let Replay { unsent, sent, acknowledged, .. } = &self.replay;
        unsent.is_empty() && sent.is_empty() && !acknowledged.is_empty()
    }

    /// Waits until a piece of work on the table has ended. Cancel safe.
    pub(super) async fn ready(&mut self) {
        let until = match &mut self.task {
            Task::Running(task) => {
                let ended = task.await.expect("work on the table does not panic");
                self.end(ended);
                return;
            }
            Task::Idle(until) => *until,
        };
        tokio::time::sleep_until(until.into()).await;
    }

    /// Starts what is due. Called once a turn.
    pub(super) fn work(&mut self) {
        let Task::Idle(until) = self.task else { return };
        let due = Instant::now() >= until;
        if self.trouble.is_some() && !due {
            return;
        }
        if !self.unwritten.is_empty() {
            self.task = self.table.start(Work::Write(std::mem::take(&mut self.unwritten)));
        } else if self.hands_over() {
            self.task = self.table.start(Work::Settle(self.replay.acknowledged.clone()));
        } else if due {
            self.task = match self.replays() {
                // The same rows would come again.
                true => Task::Idle(Instant::now() + LOOK),
                false => self.table.start(Work::Look(self.culprit.clone())),
            };
        }
    }

    /// Sends nothing more again: what was not sent stays asked for.
    pub(super) fn drain(&mut self) {
        self.replay.unsent.clear();
    }

    fn end(&mut self, ended: Result<Done, Failed>) {
        let now = Instant::now();
        self.task = Task::Idle(now + LOOK);
        match ended {
            Ok(done) => {
                if self.trouble.take().is_some() {
                    tracing::info!("the table of dead letters can be worked on again");
                }
                self.done(done);
            }
            Err(Failed { work, error }) => {
                let trouble = format!("dead letters cannot be written or read, the stream waits: {}", Chain(&error));
                if self.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!("{trouble}");
                }
                self.trouble = Some(trouble);
                self.task = Task::Idle(now + AGAIN);
                if let Work::Write(letters) = work {
                    self.unwritten.splice(..0, letters);
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Written(tickets) => {
                self.acknowledged.extend(tickets);
                self.holds &= !self.unwritten.is_empty();
            }
            Done::Settled(keys) => {
                let asked: usize = self.replay.acknowledged.drain(..).count();
                for key in &keys {
                    self.parked.remove(key);
                }
                tracing::info!(
                    events = asked,
                    aggregates = keys.len(),
                    "replayed; so many aggregates are the stream's again"
                );
                self.task = Task::Idle(Instant::now());
            }
            Done::Seen { parked, requested } => {
                // Discarded keys are gone. What was parked since the look has no row yet.
                self.parked = Parked::new(parked);
                self.unwritten.iter().filter_map(|(_, letter)| letter.park_key).for_each(|key| self.parked.add(key));
                self.culprit = None;
                self.replay.unsent.extend(requested.into_iter().filter(|row| row.letter.topic.is_some()));
            }
        }
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        if let Task::Running(task) = &self.task {
            task.abort();
        }
    }
}

impl Table {
    async fn connect(&self) -> Result<Store, postgres::Error> {
        Store::connect(&self.at, &self.system_identifier, &self.slot, &self.schema).await
    }

    fn start(&self, work: Work) -> Task {
        let table = self.clone();
        Task::Running(tokio::spawn(async move { table.work(&work).await.map_err(|error| Failed { work, error }) }))
    }

    async fn work(&self, work: &Work) -> Result<Done, postgres::Error> {
        let store = self.connect().await?;
        Ok(match work {
            Work::Write(letters) => {
                let rows: Vec<DeadLetter> = letters.iter().map(|(_, letter)| letter.clone()).collect();
                store.write(&rows).await?;
                Done::Written(letters.iter().map(|(ticket, _)| *ticket).collect())
            }
            Work::Settle(rows) => Done::Settled(store.settle(rows).await?),
            Work::Look(culprit) => {
                let mut requested = store.requested(REPLAY_RECORDS, REPLAY_BYTES).await?;
                // Sent again, and refused again: that ended the session before this one.
                if let Some(culprit) = culprit {
                    if let Some(row) = requested.iter().find(|row| culprit.is_at(row.letter.position)) {
                        store.refuse(row.id, culprit.class, &culprit.reason).await?;
                        requested = store.requested(REPLAY_RECORDS, REPLAY_BYTES).await?;
                    }
                }
                Done::Seen { parked: store.parked().await?, requested }
            }
        })
    }
}

fn letter(
    record: &Record<'_>,
    class: ReasonClass,
    reason: &str,
    attempts: i32,
    park_key: Option<ParkKey>,
) -> DeadLetter {
    let header = |name: &str| record.headers.get(name);
    let now = SystemTime::now();
    DeadLetter {
        position: record.position,
        event_id: header("id").map(text).unwrap_or_default(),
        xid: record.xid,
        source_table: record.table.to_string(),
        aggregate_type: header("aggregate_type").map(text),
        aggregate_id: record.key.map(text),
        event_type: header("event_type").map(text),
        topic: Some(record.topic.to_owned()),
        key: record.key.map(<[u8]>::to_vec),
        payload: record.value.map(<[u8]>::to_vec),
        headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        timestamp_ms: record.timestamp_ms,
        class,
        reason: reason.to_owned(),
        attempts,
        first_failed_at: now,
        last_failed_at: now,
        later_delivered: false,
        park_key,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
