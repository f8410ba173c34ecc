//! The consumer of a trial's topic: all partitions, from the first record on.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::comparison::uuid;
use crate::kafka::{client::Reasons, tail::passes};

/// Kafka's answers are not awaited longer.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Reader {
    consumer: BaseConsumer<Reasons>,
    topic: String,
    partitions: i32,
    /// Partitions of which all was read that was there.
    ended: BTreeSet<i32>,
}

impl Reader {
    /// The topic exists already.
    pub fn new(kafka: &ClientConfig, topic: &str, partitions: i32) -> anyhow::Result<Reader> {
        let quiet = Reasons::default();
        let consumer: BaseConsumer<Reasons> = kafka
            .clone()
            .set("enable.partition.eof", "true")
            .create_with_context(quiet)
            .context("the consumer cannot be made")?;
        let mut assignment = TopicPartitionList::new();
        for partition in 0..partitions {
            assignment.add_partition_offset(topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&assignment).with_context(|| format!("topic {topic} cannot be read"))?;
        Ok(Reader { consumer, topic: topic.to_owned(), partitions, ended: BTreeSet::new() })
    }

    /// The next record, as soon as there is one within this time.
    pub fn next(&mut self, within: Duration) -> anyhow::Result<Option<BorrowedMessage<'_>>> {
        match self.consumer.poll(within) {
            None => Ok(None),
            Some(Ok(message)) => {
                self.ended.remove(&message.partition());
                Ok(Some(message))
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                self.ended.insert(partition);
                Ok(None)
            }
            // librdkafka goes on by itself, and a topic that was just made is not known everywhere at once.
            Some(Err(error)) if passes(&error) => Ok(None),
            Some(Err(error)) => Err(anyhow!(error).context(format!("topic {} cannot be read", self.topic))),
        }
    }

    /// Reads all that was there when the reader was made, and gives how many records that is.
    pub async fn read(mut self, mut each: impl FnMut(&BorrowedMessage<'_>)) -> anyhow::Result<usize> {
        let (mut records, mut moved) = (0, Instant::now());
        while self.ended.len() < self.partitions as usize {
            if let Some(record) = self.next(Duration::ZERO)? {
                each(&record);
                (records, moved) = (records + 1, Instant::now());
            } else if moved.elapsed() > PATIENCE {
                bail!("after {records} records Kafka gave no more of topic {} for {PATIENCE:?}", self.topic);
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(records)
    }

    /// Offsets that the topic has given out, all partitions together: its records, and the marks of Kafka transactions.
    pub fn count(&self) -> anyhow::Result<u64> {
        let mut records = 0;
        for partition in 0..self.partitions {
            let (first, end) = self.consumer.fetch_watermarks(&self.topic, partition, PATIENCE)?;
            records += u64::try_from(end - first).unwrap_or_default();
        }
        Ok(records)
    }

    /// Reads in a thread of its own from now on, so that no record waits for what else goes on.
    pub fn follow(mut self) -> Follower {
        const POLL: Duration = Duration::from_millis(100);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // Unbounded: a trial has only as many records as it made events.
        let (sender, records) = unbounded_channel();
        thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let next = self.next(POLL).map(|message| message.map(|message| Received::new(&message)));
                let Some(received) = next.transpose() else { continue };
                let failed = received.is_err();
                if sender.send(received).is_err() || failed {
                    return;
                }
            }
        });
        Follower { stop, records }
    }
}

/// A record as the consumer saw it.
#[derive(Clone, Debug)]
pub struct Received {
    /// When the consumer had it.
    pub at: Instant,
    /// Of the event, where the header is one.
    pub id: Option<u128>,
    pub key: Vec<u8>,
    pub event_type: Vec<u8>,
    pub value: Vec<u8>,
    pub partition: i32,
    pub offset: i64,
}

impl Received {
    fn new(message: &BorrowedMessage<'_>) -> Received {
        Received {
            at: Instant::now(),
            id: event_id(message),
            key: message.key().unwrap_or_default().to_vec(),
            event_type: header(message, "event_type").unwrap_or_default().to_vec(),
            value: message.payload().unwrap_or_default().to_vec(),
            partition: message.partition(),
            offset: message.offset(),
        }
    }
}

/// A [`Reader`] at work; dropping it ends it.
pub struct Follower {
    stop: Arc<AtomicBool>,
    records: UnboundedReceiver<anyhow::Result<Received>>,
}

impl Follower {
    /// The next record. Cancel safe.
    pub async fn next(&mut self) -> anyhow::Result<Received> {
        self.records.recv().await.context("the consumer has failed")?
    }

    /// The next record, if it is there.
    pub fn at_hand(&mut self) -> Option<anyhow::Result<Received>> {
        self.records.try_recv().ok()
    }

    /// Receives until there are so many, but no longer than `within`.
    pub async fn collect(
        &mut self,
        received: &mut Vec<Received>,
        count: usize,
        within: Duration,
    ) -> anyhow::Result<()> {
        let until = tokio::time::Instant::now() + within;
        while received.len() < count {
            let Ok(record) = tokio::time::timeout_at(until, self.next()).await else { break };
            received.push(record?);
        }
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The id that the record's header carries.
pub fn event_id(message: &BorrowedMessage<'_>) -> Option<u128> {
    header(message, "id").and_then(uuid)
}

/// The value of a record's first header of this name.
fn header<'m>(message: &'m BorrowedMessage<'_>, name: &str) -> Option<&'m [u8]> {
    message.headers()?.iter().find(|header| header.key == name)?.value
}
