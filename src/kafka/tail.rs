//! Reads topics from a place on, without a group: nothing is committed and no other consumer notices.
//!
//! Topics that come up later are read from their first record, since all of it is new.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::BorrowedMessage,
};

use super::{
    client::{self, Reasons, Unreachable},
    topics::Pattern,
};

/// How often new topics and partitions are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the brokers may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one poll rests without records.
const POLL: Duration = Duration::from_millis(100);

/// Where to begin in the partitions that exist at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Beginning,
    /// The first record with this time or a later one, in milliseconds since 1970.
    Time(i64),
    End,
}

/// A consumer of all topics that match.
pub struct Tail {
    consumer: BaseConsumer<Reasons>,
    patterns: Vec<Pattern>,
    /// None: all.
    partitions: Vec<i32>,
    assigned: BTreeSet<(String, i32)>,
    looked: Instant,
    /// When a record came last, and when the brokers answered last.
    heard: Instant,
    answered: Instant,
}

/// Why no more records come.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    #[error("kafka cannot be reached; start the brokers, or mend `brokers`")]
    Unreachable(#[from] Unreachable),
    #[error("kafka does not let records be read")]
    Kafka(#[from] KafkaError),
}

impl Tail {
    /// Stands at the given place in all partitions that match, or in those with these numbers; records produced from then on
    /// are seen.
    pub fn start(
        properties: &ClientConfig,
        patterns: Vec<Pattern>,
        partitions: Vec<i32>,
        from: From,
    ) -> Result<Tail, TailError> {
        let consumer = properties.create_with_context(Reasons::default())?;
        let now = Instant::now();
        let (assigned, looked, heard, answered) = (BTreeSet::new(), now, now, now);
        let mut tail = Tail { consumer, patterns, partitions, assigned, looked, heard, answered };
        let found = tail.find()?;
        tail.assign(found, from)?;
        Ok(tail)
    }

    /// Partitions that are read.
    pub fn partitions(&self) -> usize {
        self.assigned.len()
    }

    /// No record has come for so long, though the brokers answer.
    pub fn is_quiet_for(&self, time: Duration) -> bool {
        self.answered.saturating_duration_since(self.heard) >= time
    }

    /// The next record that comes within a short while.
    pub fn poll(&mut self) -> Result<Option<BorrowedMessage<'_>>, TailError> {
        if self.looked.elapsed() >= LOOK_INTERVAL {
            // Brokers that are away for a while come back, and librdkafka with them.
            if let Ok(found) = self.find() {
                self.assign(found, From::Beginning)?;
                self.answered = Instant::now();
            }
            self.looked = Instant::now();
        }
        match self.consumer.poll(POLL) {
            None => Ok(None),
            Some(Ok(record)) => {
                self.heard = Instant::now();
                Ok(Some(record))
            }
            Some(Err(error)) if passes(&error) => {
                tracing::debug!(%error, "kafka consumer");
                Ok(None)
            }
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Matching partitions that are not read yet.
    fn find(&self) -> Result<Vec<(String, i32)>, Unreachable> {
        let metadata = client::metadata(&self.consumer, ANSWER_TIMEOUT)?;
        let topics = metadata.topics().iter().filter(|topic| self.patterns.iter().any(|one| one.matches(topic.name())));
        let is_wanted = |id| self.partitions.is_empty() || self.partitions.contains(&id);
        let partitions = topics
            .flat_map(|topic| topic.partitions().iter().map(|partition| (topic.name().to_owned(), partition.id())));
        Ok(partitions.filter(|partition| is_wanted(partition.1) && !self.assigned.contains(partition)).collect())
    }

    fn assign(&mut self, partitions: Vec<(String, i32)>, from: From) -> Result<(), KafkaError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        let end = |topic: &str, partition| {
            // Asked now rather than left to the first fetch, so that nothing from here on is missed.
            self.consumer.fetch_watermarks(topic, partition, ANSWER_TIMEOUT).map(|(_, end)| Offset::Offset(end))
        };
        for (topic, partition) in &partitions {
            let offset = match from {
                From::Beginning => Offset::Beginning,
                From::Time(time) => Offset::Offset(time),
                From::End => end(topic, *partition)?,
            };
            list.add_partition_offset(topic, *partition, offset)?;
        }
        if let From::Time(_) = from {
            let found = self.consumer.offsets_for_times(list, ANSWER_TIMEOUT)?;
            list = TopicPartitionList::new();
            for element in found.elements() {
                element.error()?;
                let offset = match element.offset() {
                    Offset::Offset(offset) => Offset::Offset(offset),
                    // It is later than all records.
                    _ => end(element.topic(), element.partition())?,
                };
                list.add_partition_offset(element.topic(), element.partition(), offset)?;
            }
        }
        self.assigned.extend(partitions);
        self.consumer.incremental_assign(&list)
    }
}

/// Trouble that passes by itself, or that is about a group that is never joined.
pub(crate) fn passes(error: &KafkaError) -> bool {
    match error.rdkafka_error_code() {
        Some(
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::UnknownTopicOrPartition
            | Code::NotLeaderForPartition
            | Code::LeaderNotAvailable
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::NotCoordinator
            | Code::GroupAuthorizationFailed,
        ) => true,
        Some(_) | None => false,
    }
}
