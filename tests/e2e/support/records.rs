//! What a consumer gets: every record of some topics from the first offset on.

use std::time::{Duration, Instant};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
    topic_partition_list::TopicPartitionListElem,
};

use super::{eventually, kafka::Kafka};

/// One record, with all that a consumer can see of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In the record's order; a header's value may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The text of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.iter().find(|(header, _)| header == name)?.1.as_deref()?;
        Some(std::str::from_utf8(value).expect("the header is UTF-8"))
    }

    pub fn key_text(&self) -> Option<&str> {
        Some(std::str::from_utf8(self.key.as_deref()?).expect("the key is UTF-8"))
    }

    pub fn value_text(&self) -> Option<&str> {
        Some(std::str::from_utf8(self.value.as_deref()?).expect("the value is UTF-8"))
    }
}

/// Whether records of open and aborted Kafka transactions are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Uncommitted,
    Committed,
}

/// A consumer that keeps what it has read.
pub struct Reader {
    consumer: BaseConsumer,
    topics: String,
    records: Vec<Record>,
    keeps_values: bool,
}

impl Kafka {
    /// Waits until the topics exist, then starts at their first offsets.
    pub fn reader(&self, topics: &[&str], isolation: Isolation, within: Duration) -> Reader {
        let mut config = self.client();
        config.set("group.id", "e2e").set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
        // A broker answers in turn: a question about offsets waits until it has answered a fetch that finds nothing.
        config.set("fetch.wait.max.ms", "20").set(
            "isolation.level",
            match isolation {
                Isolation::Uncommitted => "read_uncommitted",
                Isolation::Committed => "read_committed",
            },
        );
        let consumer: BaseConsumer = config.create().expect("the configuration is complete");
        let mut assignment = TopicPartitionList::new();
        for topic in topics {
            let partitions = eventually(within, &format!("topic {topic} exists"), || self.partitions(topic));
            for partition in 0..partitions {
                assignment.add_partition_offset(topic, partition, Offset::Beginning).expect("the offset is valid");
            }
        }
        consumer.assign(&assignment).expect("the partitions exist");
        Reader { consumer, topics: topics.join(", "), records: Vec::new(), keeps_values: true }
    }

    /// The records of a topic, as soon as there are `expect` of them.
    pub fn read(&self, topic: &str, expect: usize, within: Duration) -> Vec<Record> {
        let start = Instant::now();
        let mut reader = self.reader(&[topic], Isolation::Uncommitted, within);
        let what = format!("{expect} records of {topic}");
        reader.until(within.saturating_sub(start.elapsed()), &what, |records| records.len() >= expect);
        reader.records
    }
}

impl Reader {
    /// For more than the test has memory for: every value is taken for none.
    pub fn without_values(self) -> Reader {
        Reader { keeps_values: false, ..self }
    }

    /// Reads on until `enough` is true of all that was read; fails with `what` was awaited.
    pub fn until(&mut self, within: Duration, what: &str, mut enough: impl FnMut(&[Record]) -> bool) -> &[Record] {
        let end = Instant::now() + within;
        let mut trouble = None;
        // Asked before the first poll, and whenever Kafka had nothing at hand: `enough` may be costly.
        while !enough(&self.records) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "not within {within:?}: {what}; {} records of {} were read{}",
                self.records.len(),
                self.topics,
                trouble.map_or(String::new(), |error| format!(", last error: {error}"))
            );
            let mut patience = left.min(Duration::from_millis(100));
            while let Some(polled) = self.consumer.poll(patience) {
                match polled {
                    Ok(message) => {
                        let record = record(&message);
                        let value = record.value.filter(|_| self.keeps_values);
                        self.records.push(Record { value, ..record });
                    }
                    Err(error) => trouble = Some(error),
                }
                patience = Duration::ZERO;
            }
        }
        &self.records
    }

    /// Reads all that is there now.
    pub fn until_end(&mut self, within: Duration) -> &[Record] {
        let assignment = self.consumer.assignment().expect("partitions were assigned");
        let ends: Vec<_> = assignment
            .elements()
            .iter()
            .map(|element| {
                let (topic, partition) = (element.topic().to_owned(), element.partition());
                // The leader may just have moved.
                let (first, end) = eventually(within, "Kafka says where a partition ends", || {
                    self.consumer.fetch_watermarks(&topic, partition, within).ok()
                });
                (topic, partition, first, end)
            })
            .collect();
        // Positions rather than records: control records take offsets too.
        let end = Instant::now() + within;
        loop {
            let position = self.consumer.position().expect("partitions were assigned");
            let read = |(topic, partition, first, end): &(String, i32, i64, i64)| {
                let at = position.find_partition(topic, *partition).map(|element| element.offset());
                first == end || matches!(at, Some(Offset::Offset(at)) if at >= *end)
            };
            if ends.iter().all(read) {
                return &self.records;
            }
            assert!(Instant::now() < end, "not within {within:?}: the end of {}", self.topics);
            let mut seen = false;
            self.until(Duration::from_secs(1), "a poll", |_| std::mem::replace(&mut seen, true));
        }
    }

    /// Where it stands in partitions that go on: `orders[2] at 10 of 12`.
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn behind(&self, within: Duration) -> Vec<String> {
        let position = self.consumer.position().expect("partitions were assigned");
        let behind = |element: &TopicPartitionListElem<'_>| {
            let (topic, partition) = (element.topic(), element.partition());
            let at = match element.offset() {
                Offset::Offset(at) => at,
                _ => 0,
            };
            match self.consumer.fetch_watermarks(topic, partition, within) {
                Ok((first, end)) => (at.max(first) < end).then(|| format!("{topic}[{partition}] at {at} of {end}")),
                Err(error) => Some(format!("{topic}[{partition}] at {at}: {error}")),
            }
        };
        position.elements().iter().filter_map(behind).collect()
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

fn record(message: &impl Message) -> Record {
    let headers = message.headers().map_or(Vec::new(), |headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Record {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    }
}
