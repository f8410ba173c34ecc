//! What it means that Kafka did not take a record, and whether another session can mend it.

use std::{fmt, time::Duration};

use rdkafka::error::RDKafkaErrorCode as Code;

use super::librdkafka::{Failure, NewProducerError};
use crate::pipeline::Record;

/// A record that Kafka refuses for good, a right that is missing, or a producer that is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "kafka rejected {event} for good: {reason} ({size} bytes of key and value, {headers} of headers, limit {limit}); nothing from that event \
         on is confirmed: mend the event's topic or the limit and start walpost again", size = event.size, headers = event.headers_size
    )]
    Rejected {
        event: Box<Undelivered>,
        limit: String,
        reason: String,
        too_large: bool,
        /// The producer ended with it, and what was under way. Otherwise the record never got that far.
        producer_ended: bool,
    },
    #[error(
        "kafka has had no topic for {event} in {waited:?}; create it, or set topics.create = true \
         (route.unknown_topic_timeout says how long to wait)"
    )]
    UnknownTopic { event: Box<Undelivered>, waited: Duration, timeout: Duration },
    #[error("kafka refused a batch of {records} records for its size (the largest is {event}); smaller batches follow")]
    BatchTooLarge { event: Box<Undelivered>, records: usize },
    #[error("kafka refused a batch of {records} records ({event} among them): {reason}; they follow one by one")]
    BatchRefused { event: Box<Undelivered>, records: usize, reason: String },
    #[error("kafka principal {principal} lacks the right {right}, its events are kept until it is given: {reason}")]
    Unauthorized { principal: String, right: String, reason: String },
    #[error("topic {topic} could not be created: {reason}")]
    CreateTopic { topic: String, reason: String, refusal: Option<TopicRefusal> },
    #[error(
        "topic {} could not be created: {reason}; nothing from {event} on is confirmed: mend what names the topic, or topics.partitions \
         and topics.replication, and start walpost again", event.topic
    )]
    NoTopic { event: Box<Undelivered>, reason: String, refusal: TopicRefusal },
    #[error("the kafka producer is of no more use, a new one continues from the slot: {reason}")]
    Fatal { reason: String },
    #[error("kafka did not take {event}: {reason}")]
    Failed { event: Box<Undelivered>, reason: String },
    #[error(
        "another producer has taken over transactional id {transactional_id}: another walpost streams this slot now, or two \
         streams share the id (exactly_once.transactional_id)"
    )]
    Fenced { transactional_id: String },
    #[error("the kafka transaction failed, its records are sent again: {reason}")]
    Aborted { reason: String },
    #[error(
        "transactional id {transactional_id} belongs to stream {other} according to topic {topic}, this is stream {own} \
         (system identifier/slot): set another exactly_once.transactional_id"
    )]
    OtherSource { transactional_id: String, topic: String, other: String, own: String },
    #[error("the position in topic {topic} cannot be read: {reason}")]
    Positions { topic: String, reason: String, passing: bool },
    #[error(transparent)]
    NewProducer(#[from] NewProducerError),
    #[error("the kafka producer's events cannot be awaited")]
    Events(#[from] std::io::Error),
}

/// Why Kafka never creates a topic as it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicRefusal {
    /// No topic may have that name, or none beside another that exists.
    Name,
    /// Partitions, replicas, or what a policy of the cluster asks for.
    Settings,
}

/// What identifies a record that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub id: String,
    pub position: String,
    pub topic: String,
    /// Key and value, in bytes.
    pub size: usize,
    /// Names and values of headers, in bytes.
    pub headers_size: usize,
}

impl Undelivered {
    fn of(record: &Record<'_>) -> Undelivered {
        Undelivered {
            id: String::from_utf8_lossy(record.event.id).into_owned(),
            position: record.position.to_string(),
            topic: record.topic.to_owned(),
            size: record.size(),
            headers_size: record.headers.size(),
        }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} at position {} for topic {}", self.id, self.position, self.topic)
    }
}

impl Error {
    /// The record never got as far as Kafka, and nothing else is lost with it.
    pub fn is_local(&self) -> bool {
        matches!(self, Error::Rejected { producer_ended: false, .. } | Error::NoTopic { .. })
    }

    /// The record is for the topic of positions, where it could pass for one.
    pub(super) fn taken(record: &Record<'_>) -> Error {
        let reason = "no event may go to exactly_once.positions_topic".to_owned();
        let (event, limit) = (Box::new(Undelivered::of(record)), "none".to_owned());
        Error::Rejected { event, limit, reason, too_large: false, producer_ended: false }
    }

    /// The same error, of the record where it is about its topic.
    pub(super) fn of_record(self, record: &Record<'_>) -> Error {
        match self {
            Error::CreateTopic { reason, refusal: Some(refusal), .. } => {
                Error::NoTopic { event: Box::new(Undelivered::of(record)), reason, refusal }
            }
            error => error,
        }
    }

    /// Whether a new session would meet the same end.
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::Rejected { .. }
            | Error::NoTopic { .. }
            | Error::Fenced { .. }
            | Error::OtherSource { .. }
            | Error::NewProducer(_) => true,
            Error::Positions { passing, .. } => !passing,
            Error::CreateTopic { refusal, .. } => refusal.is_some(),
            Error::UnknownTopic { waited, timeout, .. } => waited >= timeout,
            Error::BatchTooLarge { .. }
            | Error::BatchRefused { .. }
            | Error::Unauthorized { .. }
            | Error::Fatal { .. }
            | Error::Aborted { .. }
            | Error::Failed { .. }
            | Error::Events(_) => false,
        }
    }
}

/// What is needed to say why a record failed.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) principal: String,
    pub(super) message_bytes_max: String,
    pub(super) unknown_topic_timeout: Duration,
}

impl Rules {
    /// What it means that a record was not delivered.
    pub(super) fn undelivered(&self, failure: &Failure<'_>, unknown_for: Duration) -> Error {
        let event = || {
            Box::new(Undelivered {
                id: String::from_utf8_lossy(failure.id).into_owned(),
                position: String::from_utf8_lossy(failure.position).into_owned(),
                topic: failure.topic.to_owned(),
                size: failure.size,
                headers_size: failure.headers_size,
            })
        };
        let reason = failure.text.to_owned();
        match failure.code {
            Code::TopicAuthorizationFailed => {
                // WRITE implies DESCRIBE.
                let right = format!("WRITE on topic {} (and CREATE, where Kafka is to make it)", failure.topic);
                Error::Unauthorized { principal: self.principal.clone(), right, reason }
            }
            Code::ClusterAuthorizationFailed => self.no_producer_id(failure.text, failure.topic),
            // A topic that is gone answers so too: only who names a partition names one that is not there.
            Code::UnknownPartition if failure.names_partition => {
                let reason = format!("topic {} does not have the partition that the event names", failure.topic);
                let limit = "set by the topic's partitions".to_owned();
                Error::Rejected { event: event(), limit, reason, too_large: false, producer_ended: true }
            }
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
                Error::UnknownTopic { event: event(), waited: unknown_for, timeout: self.unknown_topic_timeout }
            }
            Code::MessageSizeTooLarge | Code::MessageBatchTooLarge if failure.records > 1 => {
                Error::BatchTooLarge { event: event(), records: failure.records }
            }
            Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => {
                let limit = format!(
                    "{} bytes of message.max.bytes here, or the topic's max.message.bytes for the batch",
                    self.message_bytes_max
                );
                Error::Rejected { event: event(), limit, reason, too_large: true, producer_ended: true }
            }
            Code::InvalidRecord
            | Code::InvalidDifferentRecord
            | Code::InvalidTimestamp
            | Code::PolicyViolation
            | Code::UnsupportedForMessageFormat
            | Code::InvalidMessage
                if failure.records > 1 =>
            {
                Error::BatchRefused { event: event(), records: failure.records, reason }
            }
            Code::InvalidTopic
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::PolicyViolation
            | Code::UnsupportedForMessageFormat
            | Code::InvalidMessage => {
                let limit = "set by the topic's configuration".to_owned();
                Error::Rejected { event: event(), limit, reason, too_large: false, producer_ended: true }
            }
            _ => Error::Failed { event: event(), reason },
        }
    }

    /// What it means that the producer is of no more use, while records of some topics wait.
    pub(super) fn fatal<'t>(&self, code: Code, reason: &str, waiting: impl Iterator<Item = &'t str>) -> Error {
        match code {
            Code::ClusterAuthorizationFailed => self.no_producer_id(reason, &waiting.collect::<Vec<_>>().join(", ")),
            _ => Error::Fatal { reason: reason.to_owned() },
        }
    }

    /// An idempotent producer gets an id when it may write to any topic, before Kafka 2.8 by a right of its own.
    fn no_producer_id(&self, reason: &str, topics: &str) -> Error {
        let right = format!("WRITE on topic {topics} (before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster)");
        Error::Unauthorized { principal: self.principal.clone(), right, reason: reason.to_owned() }
    }
}
