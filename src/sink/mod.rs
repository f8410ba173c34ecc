//! Where records go: one delivery path and one set of guarantees for all sinks.
//!
//! A sink takes records in the order of the stream, delivers those of one destination and key in that order, and
//! acknowledges each by its ticket. What it does not take is set aside, with what waited behind it; what ends the sink ends
//! the session.

mod content_type;
mod courier;
mod diagnosis;
mod error;
pub mod kafka;
mod lanes;
mod librdkafka;
mod limits;
mod line;
pub mod owned;
mod partitions;
mod positions;
pub(crate) mod properties;
pub mod rabbitmq;
mod refusal;
mod singly;
mod stdout;
mod topics;
mod transaction;
pub(crate) mod webhook;

use std::{collections::BTreeMap, time::Instant};

use kafka::{BatchBytes, Cut, Kafka, Opened, Source};
use owned::OwnedRecord;
use singly::Singly;
pub use singly::{Attempts, Known, Name};
use stdout::Stdout;

use crate::{
    config::{self, Config},
    pipeline::{Place, Position, Record, Ticket},
    postgres::dead_letter::Replayed,
    status::Recents,
};
pub use error::{Error, GivenUp};

/// The sink of one session.
#[derive(Debug)]
pub enum Sink {
    Kafka(Box<Kafka>),
    Singly(Box<Singly>),
    Stdout(Box<Stdout>),
}

/// What went wrong on the way, and was tried again or told by Kafka.
#[derive(Debug, Default)]
pub struct Setbacks {
    /// Records that were sent again.
    pub retries: u64,
    /// By librdkafka's names.
    pub kafka_errors: BTreeMap<&'static str, u64>,
}

/// Where a record has come to lie in its topic.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    pub ticket: Ticket,
    pub partition: usize,
    /// None: Kafka did not tell.
    pub offset: Option<i64>,
}

impl Setbacks {
    fn error(&mut self, name: &'static str) {
        *self.kafka_errors.entry(name).or_default() += 1;
    }
}

impl Sink {
    /// For what `source` streams. `sets_aside`: a record that is not taken is not the end. `known`: attempts of earlier
    /// sessions.
    pub fn new(
        config: &Config,
        batches: BatchBytes,
        source: Source<'_>,
        sets_aside: bool,
        known: Known,
    ) -> Result<Sink, Error> {
        Ok(match config.sink {
            config::Sink::Kafka => Sink::Kafka(Box::new(Kafka::new(config, batches, source, sets_aside)?)),
            config::Sink::Webhook | config::Sink::RabbitMq => Sink::Singly(Box::new(Singly::open(config, known)?)),
            config::Sink::Stdout => Sink::Stdout(Box::new(Stdout::open()?)),
        })
    }

    /// Standard output, whatever is configured.
    pub fn stdout() -> Sink {
        Sink::Stdout(Box::default())
    }

    /// For what is sent again beside the stream.
    pub fn aside(config: &Config, source: Source<'_>) -> Result<Sink, Error> {
        Ok(match config.sink {
            config::Sink::Kafka => Sink::Kafka(Box::new(Kafka::aside(config, source)?)),
            config::Sink::Webhook | config::Sink::RabbitMq | config::Sink::Stdout => {
                Sink::new(config, BatchBytes::of(config), source, true, Known::new())?
            }
        })
    }

    /// Takes a record. What was given up comes by [`Sink::take_refused`].
    pub fn send(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match self {
            Sink::Kafka(kafka) => kafka.send(record)?,
            Sink::Singly(singly) => singly.send(record),
            Sink::Stdout(stdout) => stdout.send(record),
        }
        Ok(())
    }

    /// Nothing may be sent now.
    pub fn is_holding(&self) -> bool {
        self.kafka().is_some_and(Kafka::is_holding)
    }

    /// Waits until [`Sink::poll`] has something to do. Cancel safe.
    pub async fn ready(&mut self) -> Result<(), Error> {
        match self {
            Sink::Kafka(kafka) => Ok(kafka.ready().await?),
            Sink::Singly(singly) => {
                singly.ready().await;
                Ok(())
            }
            Sink::Stdout(stdout) => stdout.ready().await,
        }
    }

    /// Acknowledges what is delivered.
    pub fn poll(&mut self, acknowledge: impl FnMut(Ticket)) -> Result<(), Error> {
        match self {
            Sink::Kafka(kafka) => return Ok(kafka.poll(acknowledge)?),
            Sink::Singly(singly) => singly.take_acknowledged().into_iter().for_each(acknowledge),
            Sink::Stdout(stdout) => stdout.take_acknowledged().into_iter().for_each(acknowledge),
        }
        Ok(())
    }

    /// A record that is refused for good while everything else goes on. To be asked after each send and poll.
    pub fn take_refused(&mut self) -> Option<(OwnedRecord, Error)> {
        match self {
            Sink::Kafka(kafka) => kafka.take_refused().map(|(record, error)| (record, error.into())),
            Sink::Singly(singly) => singly.take_given_up().map(|(record, error)| (record, Box::new(error).into())),
            Sink::Stdout(_) => None,
        }
    }

    /// Records that were sent again, waited behind one that was refused, and were not delivered. To be asked after each
    /// [`Sink::take_refused`].
    pub fn take_withdrawn(&mut self) -> Vec<Ticket> {
        match self {
            Sink::Singly(singly) => singly.take_withdrawn(),
            Sink::Kafka(_) | Sink::Stdout(_) => Vec::new(),
        }
    }

    /// A record of the stream that waited behind one that was refused, and was not sent; in order for each key. Nothing else
    /// is to be sent before those are dealt with.
    pub fn take_behind(&mut self) -> Option<OwnedRecord> {
        match self {
            Sink::Singly(singly) => singly.take_behind(),
            Sink::Kafka(_) | Sink::Stdout(_) => None,
        }
    }

    /// Why the first record that is refused is, where refused ones are left alone: the session is to end.
    pub fn refusal(&self) -> Option<Error> {
        match self {
            Sink::Singly(singly) => singly.given_up().map(|error| Box::new(error.clone()).into()),
            Sink::Kafka(_) | Sink::Stdout(_) => None,
        }
    }

    /// Records that are refused or waited behind such, and that nobody has taken.
    pub fn stuck(&self) -> usize {
        match self {
            Sink::Singly(singly) => singly.stuck(),
            Sink::Kafka(_) | Sink::Stdout(_) => 0,
        }
    }

    /// Attempts that the next session is to know of.
    pub fn take_attempts(&mut self) -> Attempts {
        match self {
            Sink::Singly(singly) => singly.take_attempts(),
            Sink::Kafka(_) | Sink::Stdout(_) => Attempts::new(),
        }
    }

    /// How many records each destination has, in a fixed order.
    pub fn delivered(&self) -> impl Iterator<Item = (&str, u64)> {
        let topics = self.kafka().map(Kafka::topics).unwrap_or_default();
        let (origins, stdout) = match self {
            Sink::Kafka(_) => (&[][..], None),
            Sink::Singly(singly) => (singly.delivered(), None),
            Sink::Stdout(stdout) => (&[][..], Some(("stdout", stdout.delivered()))),
        };
        let topics = topics.iter().map(|topic| (&*topic.name, topic.delivered));
        let origins = origins.iter().map(|(origin, count)| (&**origin, *count));
        topics.chain(origins).chain(stdout)
    }

    /// What was delivered last, to be taken.
    pub fn last_records(&mut self) -> Option<&mut Recents> {
        match self {
            Sink::Kafka(kafka) => Some(kafka.last_records()),
            Sink::Singly(singly) => Some(singly.last_records()),
            Sink::Stdout(_) => None,
        }
    }

    /// Why records wait.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Sink::Kafka(kafka) => kafka.last_error().map(str::to_owned),
            Sink::Singly(singly) => singly.trouble(),
            Sink::Stdout(_) => None,
        }
    }

    /// From now on it is kept where records come to lie, if this is Kafka.
    pub fn keep_landings(&mut self) {
        self.kafka_mut().into_iter().for_each(Kafka::keep_landings);
    }

    /// Of what Kafka has taken since the last call, in a transaction too.
    pub fn take_landings(&mut self) -> Vec<Landing> {
        self.kafka_mut().map(Kafka::take_landings).unwrap_or_default()
    }

    /// Records that wait in librdkafka, or for their turn among those that are delivered one by one.
    pub fn queued(&self) -> usize {
        match self {
            Sink::Kafka(kafka) => kafka.queued(),
            Sink::Singly(singly) => singly.queued(),
            Sink::Stdout(_) => 0,
        }
    }

    /// What went wrong since this was last asked.
    pub fn take_setbacks(&mut self) -> Setbacks {
        match self {
            Sink::Kafka(kafka) => kafka.take_setbacks(),
            Sink::Singly(singly) => singly.take_setbacks(),
            Sink::Stdout(_) => Setbacks::default(),
        }
    }

    /// It delivers on threads of its own, so that this one may rest.
    pub fn works_aside(&self) -> bool {
        matches!(self, Sink::Kafka(_))
    }

    /// What the brokers call their cluster; none before one of them was met.
    pub fn cluster_id(&self) -> Option<String> {
        self.kafka()?.cluster_id()
    }

    /// Exactly once: records wait for the open transaction's end.
    pub fn is_in_transaction(&self) -> bool {
        self.kafka().is_some_and(Kafka::is_in_transaction)
    }

    /// Exactly once: see [`Kafka::take_opened`].
    pub fn take_opened(&mut self) -> Option<Opened> {
        self.kafka_mut()?.take_opened()
    }

    /// Exactly once: when [`Sink::cut`] between two transactions of PostgreSQL is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.kafka()?.deadline()
    }

    /// Exactly once: see [`Kafka::cut`].
    pub fn cut(
        &mut self,
        cut: Cut,
        unwritten: Option<Position>,
        place: impl FnOnce(Position) -> Option<Place>,
        replayed: impl FnOnce() -> Vec<Replayed>,
    ) -> Result<(), Error> {
        match self.kafka_mut() {
            Some(kafka) => Ok(kafka.cut(cut, unwritten, place, replayed)?),
            None => Ok(()),
        }
    }

    /// Gives up what nobody waits for any more.
    pub async fn close(&mut self) {
        if let Some(kafka) = self.kafka_mut() {
            kafka.close().await;
        }
    }

    fn kafka(&self) -> Option<&Kafka> {
        match self {
            Sink::Kafka(kafka) => Some(kafka),
            Sink::Singly(_) | Sink::Stdout(_) => None,
        }
    }

    fn kafka_mut(&mut self) -> Option<&mut Kafka> {
        match self {
            Sink::Kafka(kafka) => Some(kafka),
            Sink::Singly(_) | Sink::Stdout(_) => None,
        }
    }
}

/// Whether the broker of the configuration lets us in; none where there is none, or it is Kafka. The error has no secret.
pub async fn reach(config: &Config) -> Option<Result<(), String>> {
    let rabbitmq = config.rabbitmq.as_ref().filter(|_| config.sink == config::Sink::RabbitMq)?;
    Some(rabbitmq::reach(rabbitmq).await)
}
