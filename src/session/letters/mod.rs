//! Events that cannot be delivered, on their way among the dead letters and back into the stream.
//!
//! Every event here has a ticket, which is acknowledged when its row is durable, or the topic has it, or both: until then
//! nothing of its transaction is confirmed (G1, G7). What is to be done is decided by [`Parking`]. Here it is done: the
//! table is worked on by one task at a time, over a connection that it closes again, so that no shutdown of the server
//! waits for it (G8). A table that cannot be worked on is tried again while the stream waits.

mod letter;
mod parked;
pub mod parking;
mod replay;

use std::{
    collections::HashMap,
    time::{Instant, SystemTime},
};

use super::{
    job::{Job, Trouble},
    marks::{self, Markers},
};
pub(super) use parking::Verdict;
use parking::{Done, Parking, Rules, Work};

use crate::{
    chain::Chain,
    config::{Config, Delivery, OnPoison},
    pipeline::{Lsn, Position, Record, Ticket, outbox::Poison},
    postgres::{
        self,
        conninfo::ConnInfo,
        dead_letter::{Access, DeadLetter, KnownLetter, ParkKey, ReasonClass, Store},
        progress::Hold,
        sql::{self, Sql},
    },
    printable::origin,
    setup::names,
    sink::{
        self, GivenUp,
        kafka::{self, TopicRefusal},
    },
};

/// Most that is replayed at once.
const REPLAY_RECORDS: usize = 500;
const REPLAY_BYTES: usize = 8 << 20;

/// An event that the stream met, and that an earlier session could not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub position: String,
    /// Where it did not arrive.
    pub topic: String,
    pub class: ReasonClass,
    pub reason: String,
    /// How often it was tried.
    pub attempts: i32,
    /// No event would have arrived there.
    pub is_of_topic: bool,
}

impl Culprit {
    /// The event that an error is about, where the stream can go on past it.
    pub fn of(error: &sink::Error) -> Option<Culprit> {
        match error {
            sink::Error::Kafka(error) => Culprit::of_kafka(error),
            sink::Error::GivenUp(given_up) => {
                let GivenUp { position, destination, class, reason, attempts, .. } = &**given_up;
                Some(Culprit {
                    position: position.to_string(),
                    topic: destination.clone(),
                    class: *class,
                    reason: reason.clone(),
                    attempts: i32::try_from(*attempts).unwrap_or(i32::MAX),
                    is_of_topic: false,
                })
            }
            sink::Error::Webhook(_)
            | sink::Error::RabbitMq(_)
            | sink::Error::Stdout(_)
            | sink::Error::NoReader
            | sink::Error::Closed => None,
        }
    }

    fn of_kafka(error: &kafka::Error) -> Option<Culprit> {
        let (event, class, reason) = match error {
            kafka::Error::Rejected { event, limit, reason, too_large, .. } => {
                let class = if *too_large { ReasonClass::TooLarge } else { ReasonClass::Rejected };
                (event, class, format!("{reason} ({} bytes, limit {limit})", event.size + event.headers_size))
            }
            kafka::Error::UnknownTopic { event, waited, .. } if error.is_permanent() => {
                (event, ReasonClass::UnknownTopic, format!("kafka has had no topic {} in {waited:?}", event.topic))
            }
            kafka::Error::NoTopic { event, reason, refusal } => {
                let class = match refusal {
                    TopicRefusal::Name => ReasonClass::InvalidTopic,
                    TopicRefusal::Settings => ReasonClass::Rejected,
                };
                (event, class, format!("kafka does not create topic {}: {reason}", event.topic))
            }
            _ => return None,
        };
        let is_of_topic = !matches!(error, kafka::Error::Rejected { .. });
        let (position, topic) = (event.position.clone(), event.topic.clone());
        Some(Culprit { position, topic, class, reason, attempts: 1, is_of_topic })
    }

    /// The stream has not confirmed it, and meets it again.
    pub fn is_ahead_of(&self, confirmed: Lsn) -> bool {
        self.position >= Position::first_of(confirmed).to_string()
    }

    /// Whether this is the record of this position for this topic.
    pub fn is_at(&self, position: Position, topic: &str) -> bool {
        position.text() == *self.position.as_bytes() && topic == self.topic
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
        "the event at position {} is a dead letter, and topic {}, where it is to go, does not take it ({}): nothing from that \
         event on is confirmed. Mend the topic, or run walpost setup, which makes a table for what Kafka does not take",
        .0.position, .0.topic, .0.reason
    )]
    Topic(Culprit),
    #[error(
        "{count} {what} are parked, and {key} allows no more: replay or discard them (walpost dead-letter list), or raise it"
    )]
    Full { what: &'static str, count: usize, key: &'static str },
    #[error(
        "{events} events of {aggregates} aggregates are parked, and with on_poison = \"halt\" later ones would overtake them: \
         replay or discard them first (walpost dead-letter list), or set on_poison = \"dead_letter\", which parks nothing new"
    )]
    StillParked { events: u64, aggregates: usize },
}

pub(super) struct Letters {
    pub(super) parking: Parking,
    table: Table,
    /// Work on the table that is under way.
    job: Job<Result<Done, Failed>>,
    /// Why the table cannot be worked on.
    trouble: Trouble,
    /// Another process has the slot.
    superseded: Option<postgres::Error>,
}

/// Not done; it can be done again.
struct Failed {
    work: Work,
    error: postgres::Error,
}

/// The table of dead letters, and those of the events.
#[derive(Clone)]
pub(super) struct Table {
    at: ConnInfo,
    system_identifier: String,
    slot: String,
    /// What each write asks for first.
    hold: Option<Hold>,
    schema: String,
    /// Outboxes whose rows say when an event was sent after all.
    markers: Markers,
}

impl Letters {
    /// None: the stream halts at poison. `from` is the slot's confirmed position.
    pub(super) async fn open(
        config: &Config,
        table: Table,
        client: Sql,
        from: Lsn,
        culprits: &[Culprit],
    ) -> Result<Option<Letters>, Error> {
        let store = table.open(client).await?;
        let access = store.access().await?;
        let usable = access.is_some_and(Access::streams);
        let halts = config.on_poison == Some(OnPoison::Halt);
        match access {
            Some(access) if halts && access.select => none_is_parked(&store.parked().await?)?,
            // What is parked there would not be known, and overtaken.
            Some(access) if access.used && !usable => return Err(table.missing()),
            Some(_) | None => {}
        }
        match (config.on_poison, &config.dead_letter_topic) {
            (Some(OnPoison::Halt), _) => return Ok(None),
            _ if usable => {}
            (None, None) => return Ok(None),
            (None | Some(OnPoison::DeadLetter), Some(_)) => {}
            (Some(_), _) => return Err(table.missing()),
        }
        let rules = Rules {
            table: usable,
            topic: config.dead_letter_topic.clone(),
            parks: usable && config.on_poison != Some(OnPoison::DeadLetter),
            aggregates_max: config.park_max_aggregates,
            events_max: config.park_max_events,
        };
        let (known, parked) = match usable {
            true => (store.known(from).await?, store.parked().await?),
            false => ([].into_iter().collect(), HashMap::new()),
        };
        let mut parking = Parking::new(rules, known, parked, culprits.to_vec(), Instant::now());
        if config.delivery == Delivery::AtLeastOnce {
            parking.open(Vec::new());
        }
        let (events, aggregates) = parking.parked();
        if events > 0 {
            tracing::info!(
                events,
                aggregates,
                "events are parked until they are replayed or discarded: walpost dead-letter list"
            );
        }
        Ok(Some(Letters { parking, table, job: Job::default(), trouble: Trouble::default(), superseded: None }))
    }

    /// Why the table cannot be worked on.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The event follows its row.
    pub(super) fn follow(&mut self, record: &Record<'_>, known: &KnownLetter) {
        self.parking.follow(record, known, SystemTime::now());
    }

    /// Nothing is wrong with it, but it waits behind another.
    pub(super) fn park(&mut self, record: &Record<'_>, key: ParkKey) -> Result<(), Error> {
        self.parking.park(record, key, SystemTime::now())
    }

    /// Kafka does not take it.
    pub(super) fn refused(&mut self, record: &Record<'_>, culprit: &Culprit) -> Result<(), Error> {
        let reason = &culprit.reason;
        tracing::error!(topic = origin(record.topic), position = %record.position, "an event becomes a dead letter: {reason}");
        self.parking.refused(record, culprit, SystemTime::now())
    }

    /// No record can be made of it.
    pub(super) fn poison(&mut self, ticket: Ticket, poison: &Poison) -> Result<(), Error> {
        if self.parking.poison(ticket, poison, SystemTime::now())? {
            tracing::error!("an event becomes a dead letter: {poison}");
        }
        Ok(())
    }

    /// What a dead letter's own way to Kafka ends in, if this is that.
    pub(super) fn end(&self, error: &sink::Error) -> Option<Error> {
        Culprit::of(error).filter(|culprit| self.parking.ends_at(culprit)).map(Error::Topic)
    }

    /// Waits until a piece of work on the table has ended, or may be due. Cancel safe.
    pub(super) async fn ready(&mut self) {
        if self.job.is_under_way() {
            let ended = self.job.ended().await;
            return self.worked(ended);
        }
        match self.parking.due() {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Starts what is due. Called once a turn. Fails when another process has the slot.
    pub(super) fn work(&mut self) -> Result<(), postgres::Error> {
        if let Some(error) = self.superseded.take() {
            return Err(error);
        }
        if let Some(work) = self.parking.next_work(Instant::now()) {
            self.job = Job::of(self.table.clone().work(work));
        }
        Ok(())
    }

    fn worked(&mut self, ended: Result<Done, Failed>) {
        match ended {
            Ok(done) => {
                self.trouble.is_over("the table of dead letters can be worked on again");
                if let Done::Settled { rows: rows @ 1.., keys } = &done {
                    tracing::info!(
                        events = rows,
                        aggregates = keys.len(),
                        "replayed events are delivered, and these aggregates go on in the stream"
                    );
                }
                self.parking.done(done, Instant::now());
            }
            Err(Failed { error: error @ postgres::Error::Superseded { .. }, .. }) => self.superseded = Some(error),
            Err(Failed { work, error }) => {
                let why = Chain(&error);
                self.trouble.is(format!("dead letters cannot be written or read, the stream waits: {why}"));
                self.parking.failed(work, Instant::now());
            }
        }
    }
}

fn none_is_parked(parked: &HashMap<ParkKey, u64>) -> Result<(), Error> {
    match parked.len() {
        0 => Ok(()),
        aggregates => Err(Error::StillParked { events: parked.values().sum(), aggregates }),
    }
}

impl Table {
    pub(super) fn new(
        config: &Config,
        server: &ConnInfo,
        system_identifier: &str,
        hold: Option<&Hold>,
        markers: Markers,
    ) -> Table {
        Table {
            at: server.clone(),
            system_identifier: system_identifier.to_owned(),
            slot: config.slot.clone(),
            hold: hold.cloned(),
            schema: names::home(config).to_owned(),
            markers,
        }
    }

    fn missing(&self) -> Error {
        Error::NoTable { table: format!("{}.dead_letter", self.schema) }
    }

    async fn open(&self, client: Sql) -> Result<Store, postgres::Error> {
        Store::open(client, &self.system_identifier, &self.slot, &self.schema, self.hold.clone()).await
    }

    async fn work(self, work: Work) -> Result<Done, Failed> {
        self.attempt(&work).await.map_err(|error| Failed { work, error })
    }

    async fn attempt(&self, work: &Work) -> Result<Done, postgres::Error> {
        let store = self.open(sql::connect(&self.at).await?).await?;
        Ok(match work {
            Work::Write(letters) => {
                store.write(letters.iter().map(|(_, letter)| letter)).await?;
                Done::Written(letters.clone())
            }
            Work::Settle(sent) => {
                if !self.markers.is_empty() {
                    marks::mark_replayed(&self.at, &self.markers, &store.events(sent).await?).await?;
                }
                let (rows, keys) = store.settle(sent).await?;
                Done::Settled { rows, keys }
            }
            Work::Look(culprits) => {
                let mut requested = store.requested(REPLAY_RECORDS, REPLAY_BYTES).await?;
                // Sent again, and refused again: that ended the session before this one.
                for culprit in culprits {
                    let is_it = |letter: &DeadLetter| {
                        letter.topic.as_ref().is_some_and(|topic| culprit.is_at(letter.position, topic))
                    };
                    if let Some(row) = requested.iter().find(|row| is_it(&row.letter)) {
                        store.refuse(row.id, culprit.class, &culprit.reason).await?;
                        tracing::warn!(
                            topic = origin(&culprit.topic),
                            position = culprit.position,
                            "a replayed event is refused again, and waits among the dead letters: {}",
                            culprit.reason
                        );
                        requested = store.requested(REPLAY_RECORDS, REPLAY_BYTES).await?;
                    }
                }
                Done::Seen { requested, parked: store.parked().await? }
            }
        })
    }
}
