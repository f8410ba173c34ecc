//! How far each exactly-once stream reaches, in a compacted topic.
//!
//! The record is written inside the Kafka transaction whose events it speaks of, so that both are there or neither is.
//! Its key names the stream by the server's system identifier and the slot. Dead letters that are sent again stand beside
//! the stream; which of them Kafka has goes under a key of its own.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    config::ClientConfig,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use serde::{Deserialize, Serialize};

use super::{
    refusal::Error,
    topics::{self, new_topic},
};
use crate::{
    config::{Config, ExactlyOnce},
    kafka::{
        client::{Reasons, consumer_properties},
        tail::passes,
    },
    pipeline::{
        Place, Position,
        resume::{Stored, id_beginning},
    },
    postgres::dead_letter::Replayed,
};

/// How long one question to the brokers may take before it is asked again.
const ANSWER: Duration = Duration::from_secs(5);
/// How long one poll rests without records.
const POLL: Duration = Duration::from_millis(100);
/// A wait that is longer is told.
const TELL: Duration = Duration::from_secs(5);

/// The positions topic, and this stream's place in it.
#[derive(Clone, Debug)]
pub(super) struct Positions {
    pub(super) topic: String,
    replication: Option<i32>,
    /// `route.unknown_topic_timeout`.
    patience: Duration,
    transactional_id: String,
    system_identifier: String,
    timeline: u32,
    slot: String,
    generation: i64,
    consumer: ClientConfig,
    principal: String,
    /// None is read or written: what is sent is no part of the stream.
    aside: bool,
}

/// The value of a record, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    system_identifier: String,
    timeline: u32,
    slot: String,
    transactional_id: String,
    /// Of the last event that Kafka has.
    position: String,
    event_id: String,
    /// Of an event that was read from the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    /// See [`Source::generation`]; left out where it is 0.
    #[serde(default, skip_serializing_if = "is_first")]
    generation: i64,
}

/// Which dead letters Kafka has and the table may not know of yet: the value of the other key, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct ReplayedEntry {
    system_identifier: String,
    slot: String,
    /// Row of the table, and position.
    replayed: Vec<(i64, String)>,
}

/// How far Kafka's records of a stream reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub stored: Option<Stored>,
    /// Of the stored event, where it was read from the table.
    pub place: Option<Place>,
    /// Of what is stored from now on.
    pub generation: i64,
    /// Dead letters that were sent again last.
    pub replayed: Vec<Replayed>,
}

/// The server whose log is read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub system_identifier: &'a str,
    pub timeline: u32,
    /// Raised each time that the stream begins again at an earlier position, after which what an earlier one stored says
    /// nothing; 0 as long as it never did.
    pub generation: i64,
}

impl Positions {
    pub(super) fn new(config: &Config, exactly_once: &ExactlyOnce, source: Source<'_>, principal: String) -> Positions {
        Positions {
            topic: exactly_once.positions_topic.clone(),
            replication: exactly_once.positions_replication,
            patience: config.unknown_topic_timeout,
            transactional_id: transactional_id(config, exactly_once, source),
            system_identifier: source.system_identifier.to_owned(),
            timeline: source.timeline,
            slot: config.slot.clone(),
            generation: source.generation,
            consumer: consumer_properties(config),
            principal,
            aside: false,
        }
    }

    /// For what is sent again beside the stream: by a producer of its own, which leaves the stream's and its position alone.
    pub(super) fn aside(self) -> Positions {
        Positions { transactional_id: format!("{}-replay", self.transactional_id), aside: true, ..self }
    }

    pub(super) fn is_aside(&self) -> bool {
        self.aside
    }

    pub(super) fn transactional_id(&self) -> &str {
        &self.transactional_id
    }

    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.system_identifier, self.slot)
    }

    /// The record for a stream that reaches this event. `place`: of one that was read from the table.
    pub(super) fn value(&self, position: Position, event_id: &str, place: Option<Place>) -> Vec<u8> {
        json(&Entry {
            system_identifier: self.system_identifier.clone(),
            timeline: self.timeline,
            slot: self.slot.clone(),
            transactional_id: self.transactional_id.clone(),
            position: position.to_string(),
            event_id: id_beginning(event_id).to_owned(),
            place,
            generation: self.generation,
        })
    }

    pub(super) fn replayed_key(&self) -> String {
        format!("{}/replayed", self.key())
    }

    /// The record for dead letters that are sent again.
    pub(super) fn replayed_value(&self, replayed: &[Replayed]) -> Vec<u8> {
        json(&ReplayedEntry {
            system_identifier: self.system_identifier.clone(),
            slot: self.slot.clone(),
            replayed: replayed.iter().map(|Replayed { row, position }| (*row, position.to_string())).collect(),
        })
    }

    /// Reads this stream's position, after every older producer of it was fenced. Makes the topic where there is none.
    /// Blocks; gives up with nothing when nobody `wants` the answer any more.
    pub(super) fn read(&self, wants: impl Fn() -> bool) -> Result<Opened, Error> {
        if self.aside {
            return Ok(Opened::default());
        }
        let uncommitted = self.consumer(&[("isolation.level", "read_uncommitted")])?;
        let committed = self.consumer(&[("isolation.level", "read_committed"), ("enable.partition.eof", "true")])?;
        while wants() {
            match self.partitions(&uncommitted) {
                Ok(0) => self.create()?,
                Ok(partitions) => return self.read_partitions(&uncommitted, &committed, partitions, &wants),
                Err(error) if passes(&error) => {}
                Err(error) => return Err(self.unreadable(&error)),
            }
        }
        Ok(Opened::default())
    }

    fn consumer(&self, properties: &[(&str, &str)]) -> Result<Reader, Error> {
        let mut consumer = self.consumer.clone();
        for (name, value) in properties {
            consumer.set(*name, *value);
        }
        consumer.create_with_context(Reasons::default()).map_err(|error| self.unreadable(&error))
    }

    /// How many partitions the topic has; 0 where there is none.
    fn partitions(&self, consumer: &Reader) -> Result<i32, KafkaError> {
        let metadata = consumer.fetch_metadata(Some(&self.topic), ANSWER)?;
        let Some(topic) = metadata.topics().first() else { return Ok(0) };
        match topic.error().map(Code::from) {
            None => Ok(i32::try_from(topic.partitions().len()).expect("partitions are numbered by i32")),
            Some(Code::UnknownTopicOrPartition) => Ok(0),
            Some(code) => Err(KafkaError::MetadataFetch(code)),
        }
    }

    fn read_partitions(
        &self,
        uncommitted: &Reader,
        committed: &Reader,
        partitions: i32,
        wants: &impl Fn() -> bool,
    ) -> Result<Opened, Error> {
        let mut assignment = TopicPartitionList::new();
        for partition in 0..partitions {
            // An open transaction of another stream hides what was committed after it began: until that has ended, the
            // committed end stays below the end.
            let end = self.end(uncommitted, partition, wants)?;
            let begun = Instant::now();
            let mut told = false;
            while wants() && self.end(committed, partition, wants)? < end {
                if !told && begun.elapsed() > TELL {
                    tracing::info!(topic = self.topic, "waiting for another stream's open Kafka transaction");
                    told = true;
                }
                std::thread::sleep(POLL);
            }
            let added = assignment.add_partition_offset(&self.topic, partition, Offset::Beginning);
            added.map_err(|error| self.unreadable(&error))?;
        }
        committed.assign(&assignment).map_err(|error| self.unreadable(&error))?;
        let mut found = Found::default();
        let mut unread = partitions;
        while unread > 0 && wants() {
            match committed.poll(POLL) {
                None => {}
                Some(Ok(record)) => self.take(&record, &mut found)?,
                Some(Err(KafkaError::PartitionEOF(_))) => unread -= 1,
                Some(Err(error)) if passes(&error) => {}
                Some(Err(error)) => return Err(self.unreadable(&error)),
            }
        }
        let Found { stored, replayed, other } = found;
        // A topic that got more partitions may have an earlier generation's, further on, in another one.
        let last =
            stored.into_values().max_by_key(|found| (found.generation, found.stored.timeline, found.stored.position));
        match other.filter(|_| last.is_none()) {
            Some(other) => Err(Error::OtherSource {
                transactional_id: self.transactional_id.clone(),
                topic: self.topic.clone(),
                other,
                own: self.key(),
            }),
            None => Ok(self.opened(last, replayed.into_values().flatten().collect())),
        }
    }

    fn opened(&self, last: Option<Last>, replayed: Vec<Replayed>) -> Opened {
        let Some(Last { stored, place, generation }) = last else {
            return Opened { stored: None, place: None, generation: self.generation, replayed };
        };
        if generation < self.generation {
            tracing::info!("the stream began again since, so position {} in Kafka no longer counts", stored.position);
            return Opened { stored: None, place: None, generation: self.generation, replayed };
        }
        Opened { stored: Some(stored), place, generation, replayed }
    }

    /// What is stored from now on is of this generation.
    pub(super) fn raise(&mut self, generation: i64) {
        self.generation = self.generation.max(generation);
    }

    fn end(&self, consumer: &Reader, partition: i32, wants: &impl Fn() -> bool) -> Result<i64, Error> {
        loop {
            match consumer.fetch_watermarks(&self.topic, partition, ANSWER) {
                Ok((_, end)) => return Ok(end),
                Err(error) if passes(&error) && wants() => std::thread::sleep(POLL),
                Err(error) => return Err(self.unreadable(&error)),
            }
        }
    }

    fn take(&self, record: &impl Message, found: &mut Found) -> Result<(), Error> {
        let Some(value) = record.payload() else { return Ok(()) };
        let is = |own: String| record.key() == Some(own.as_bytes());
        let foreign = |key: String| {
            let reason = format!(
                "the record of key {key} is not one of walpost's; name another exactly_once.positions_topic: the stream goes \
                 on from the slot, and what Kafka has from there on comes again"
            );
            Error::Positions { topic: self.topic.clone(), reason, passing: false }
        };
        if is(self.key()) {
            found.stored.insert(record.partition(), last(value).ok_or_else(|| foreign(self.key()))?);
        } else if is(self.replayed_key()) {
            let replayed = replayed(value).ok_or_else(|| foreign(self.replayed_key()))?;
            found.replayed.insert(record.partition(), replayed);
        } else if let Ok(entry) = serde_json::from_slice::<Entry>(value) {
            if entry.transactional_id == self.transactional_id {
                found.other = Some(format!("{}/{}", entry.system_identifier, entry.slot));
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<(), Error> {
        let admin: AdminClient<DefaultClientContext> =
            self.consumer.create().map_err(|error| self.unreadable(&error))?;
        let topic = new_topic(&self.topic, Some(1), self.replication).set("cleanup.policy", "compact");
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        let created = topics::create(&admin, &topic, &options, self.patience, &self.principal);
        tokio::runtime::Handle::current().block_on(created).map(|_made| ())
    }

    fn unreadable(&self, error: &KafkaError) -> Error {
        match error.rdkafka_error_code() {
            Some(Code::TopicAuthorizationFailed) => Error::Unauthorized {
                principal: self.principal.clone(),
                right: format!("READ and WRITE on topic {} (and CREATE, where walpost is to make it)", self.topic),
                reason: error.to_string(),
            },
            _ => Error::Positions { topic: self.topic.clone(), reason: error.to_string(), passing: true },
        }
    }
}

/// Keeps what is no more than a wait out of the log.
type Reader = BaseConsumer<Reasons>;

#[derive(Debug, Default)]
struct Found {
    /// The last of each partition: a topic that got more partitions has older records of a key in another one.
    stored: BTreeMap<i32, Last>,
    replayed: BTreeMap<i32, Vec<Replayed>>,
    /// Another stream under our transactional id.
    other: Option<String>,
}

fn json(entry: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(entry).expect("texts and numbers have a JSON form")
}

/// What an [`Entry`] says.
#[derive(Debug)]
struct Last {
    stored: Stored,
    place: Option<Place>,
    generation: i64,
}

fn last(value: &[u8]) -> Option<Last> {
    let Entry { timeline, position, event_id, place, generation, .. } = serde_json::from_slice(value).ok()?;
    Some(Last { stored: Stored { timeline, position: position.parse().ok()?, event_id }, place, generation })
}

fn is_first(generation: &i64) -> bool {
    *generation == 0
}

fn replayed(value: &[u8]) -> Option<Vec<Replayed>> {
    let entry: ReplayedEntry = serde_json::from_slice(value).ok()?;
    let rows = entry.replayed.into_iter();
    rows.map(|(row, position)| Some(Replayed { row, position: position.parse().ok()? })).collect()
}

fn transactional_id(config: &Config, exactly_once: &ExactlyOnce, source: Source<'_>) -> String {
    let made = || format!("walpost-{}-{}", source.system_identifier, config.slot);
    exactly_once.transactional_id.clone().unwrap_or_else(made)
}
