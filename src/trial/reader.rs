//! The consumer of a trial's topic: all partitions, from the first record on.

use std::time::Duration;

use anyhow::{Context, anyhow};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
    types::RDKafkaErrorCode,
};

/// Kafka's answers are not awaited longer.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Reader {
    consumer: BaseConsumer,
    topic: String,
    partitions: i32,
}

impl Reader {
    /// The topic exists already.
    pub fn new(kafka: &ClientConfig, topic: &str, partitions: i32) -> anyhow::Result<Reader> {
        let mut config = kafka.clone();
        // The group is only named, never joined.
        config.set("group.id", topic).set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        let consumer: BaseConsumer = config.create().context("the consumer cannot be made")?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..partitions {
            assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&assignment).with_context(|| format!("topic {topic} cannot be read"))?;
        Ok(Reader { consumer, topic: topic.to_owned(), partitions })
    }

    /// The next record, as soon as there is one within this time.
    pub fn next(&self, within: Duration) -> anyhow::Result<Option<BorrowedMessage<'_>>> {
        match self.consumer.poll(within) {
            None => Ok(None),
            Some(Ok(message)) => Ok(Some(message)),
            // librdkafka goes on by itself, and a topic that was just made is not known everywhere at once.
            Some(Err(KafkaError::MessageConsumption(code))) if is_passing(code) => Ok(None),
            Some(Err(error)) => Err(anyhow!(error).context(format!("topic {} cannot be read", self.topic))),
        }
    }

    /// Records that the topic has, all partitions together.
    pub fn count(&self) -> anyhow::Result<u64> {
        let mut records = 0;
        for partition in 0..self.partitions {
            let (first, end) = self.consumer.fetch_watermarks(&self.topic, partition, PATIENCE)?;
            records += u64::try_from(end - first).unwrap_or_default();
        }
        Ok(records)
    }
}

fn is_passing(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition
    )
}

/// The value of a record's first header of this name.
pub fn header<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m [u8]> {
    message.headers()?.iter().find(|header| header.key == name)?.value
}
