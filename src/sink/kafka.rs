//! Kafka: an idempotent producer that waits for all in-sync replicas.
//!
//! The sink keeps no state of its own that outlives a session. Trouble that Kafka calls retriable stays inside
//! librdkafka, which tries for ever (`message.timeout.ms = 0`) while the pipeline runs out of room; anything else ends
//! the session with an [`Error`] that says whether another session can mend it.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    time::{Duration, Instant},
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::task::JoinHandle;

use super::{
    Landing, Setbacks,
    diagnosis::{self, Diagnosis},
    librdkafka::{Event, Failure, Producer, TopicId, TransactionError, error_name},
    limits::Limit,
    owned::OwnedRecord,
    partitions::Partitions,
    positions::Positions,
    properties::{GAPLESS, admin_properties, principal, properties},
    refusal::Rules,
    topics::{Preparation, Prepared},
    transaction::{Ending, Transaction},
};
pub use super::{
    librdkafka::NewProducerError,
    positions::{Opened, Source},
    refusal::{Error, TopicRefusal, Undelivered},
    transaction::Cut,
};
use crate::{
    config::{Config, Delivery},
    kafka::client::hint,
    pipeline::{self, Headers, Place, Position, Record, Ticket, outbox::TableName},
    postgres::dead_letter::Replayed,
    status::{RECORDS_MAX, Recent, Recents},
};

/// The producer of one session.
#[derive(Debug)]
pub struct Kafka {
    producer: Producer,
    ids: HashMap<String, TopicId>,
    topics: Vec<Topic>,
    properties: BTreeMap<String, String>,
    prepare: Option<Preparation>,
    batches: BatchBytes,
    /// As the session was given them.
    batches_max: BatchBytes,
    /// What goes to any of the topics, as far as their limits are known.
    batches_fitting: BatchBytes,
    /// A record that cannot be sent yet. Nothing is sent past it.
    held: Option<Held>,
    /// A record that may be too large, under way with no other.
    alone: Option<OwnedRecord>,
    /// One that was refused, by this client or when it was alone: nothing else is lost with it.
    refused: Option<(OwnedRecord, Error)>,
    sets_aside: bool,
    /// Records under way whose headers do not tell which event they are.
    nameless: HashMap<Ticket, Nameless>,
    /// What was taken last.
    last_records: Recents,
    /// How many more records may be asked what they say, and since when.
    asks: usize,
    asks_since: Instant,
    /// Exactly once: of those the ones of transactions that are committed.
    committed_records: Recents,
    /// Where records have come to lie; none: nobody wants to know.
    landings: Option<Vec<Landing>>,
    /// Exactly once only.
    transaction: Option<Transaction>,
    rules: Rules,
    diagnosis: Diagnosis,
    last_error: Option<String>,
    setbacks: Setbacks,
    /// Records that this producer has sent again, as far as it is known; and how many others had sent before it.
    retries: u64,
    sent_before: u64,
}

/// What a report does not say of a record.
#[derive(Debug)]
struct Nameless {
    id: Vec<u8>,
    position: Position,
    names_partition: bool,
}

/// Most bytes of a batch, `batch.size`.
///
/// Brokers limit the batch, not the record, and the limit is a topic's own, which not everybody may read. So a batch
/// that is refused for its size is sent again in smaller ones, until it goes through or the refused batch is one
/// record: then that record is the culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchBytes(usize);

impl BatchBytes {
    /// Every record by itself: a refusal of a batch does not say whom it means.
    pub const SINGLE: BatchBytes = BatchBytes(1);

    /// As the configuration has it, or librdkafka's default.
    pub fn of(config: &Config) -> BatchBytes {
        BatchBytes(config.kafka.number("batch.size").unwrap_or(1_000_000))
    }

    /// A quarter; below 16 KiB, every record by itself.
    #[must_use]
    pub fn smaller(self) -> BatchBytes {
        if self.0 < 64 << 10 { BatchBytes::SINGLE } else { BatchBytes(self.0 / 4) }
    }
}

/// A topic that records went to.
#[derive(Debug)]
pub struct Topic {
    pub name: String,
    /// Records that Kafka has for good.
    pub delivered: u64,
    /// Records that Kafka has taken; in a transaction, for good only with its commit.
    taken: u64,
    sent: u64,
    /// When it last took a record, or was given the first one after a rest: how long its oldest may have waited.
    since: Instant,
    partitions: Partitions,
    /// Most bytes of a batch, where that is known.
    pub(super) batch_bytes_max: Option<usize>,
}

impl Topic {
    fn waits(&self) -> bool {
        self.sent > self.taken
    }
}

impl Kafka {
    /// A producer for what `source` streams. Exactly once, it holds what it is given until older ones are fenced.
    /// `sets_aside`: a record that Kafka refuses is not the end, so that limits are worth knowing beforehand.
    pub fn new(config: &Config, batches: BatchBytes, source: Source<'_>, sets_aside: bool) -> Result<Kafka, Error> {
        Kafka::open(config, batches, source, sets_aside, false)
    }

    /// A producer for what is sent again beside the stream, and leaves the stream's producer and position alone. What Kafka
    /// refuses is [set aside](Kafka::take_refused).
    pub fn aside(config: &Config, source: Source<'_>) -> Result<Kafka, Error> {
        Kafka::open(config, BatchBytes::of(config), source, true, true)
    }

    fn open(
        config: &Config,
        batches: BatchBytes,
        source: Source<'_>,
        sets_aside: bool,
        aside: bool,
    ) -> Result<Kafka, Error> {
        let mut properties = properties(config);
        properties.insert("batch.size".to_owned(), batches.0.to_string());
        properties.entry("statistics.interval.ms".to_owned()).or_insert_with(|| STATISTICS_INTERVAL_MS.to_string());
        let principal = principal(&config.kafka);
        let positions = match &config.delivery {
            Delivery::AtLeastOnce => None,
            Delivery::ExactlyOnce(exactly_once) => {
                let positions = Positions::new(config, exactly_once, source, principal.clone());
                let positions = if aside { positions.aside() } else { positions };
                make_transactional(&mut properties, positions.transactional_id());
                Some((positions, exactly_once))
            }
        };
        let producer = Producer::new(properties.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        let transaction = positions.map(|(positions, exactly_once)| {
            Transaction::open(producer.transactions(), positions, exactly_once, principal.clone())
        });
        Ok(Kafka {
            producer,
            ids: HashMap::new(),
            topics: Vec::new(),
            properties,
            // A transaction that is refused a record is given up whole, whoever is in it.
            prepare: Preparation::new(config, sets_aside && transaction.is_none()),
            batches,
            batches_max: batches,
            batches_fitting: batches,
            held: None,
            alone: None,
            refused: None,
            sets_aside,
            nameless: HashMap::new(),
            last_records: Recents::default(),
            asks: RECORDS_MAX,
            asks_since: Instant::now(),
            committed_records: Recents::default(),
            landings: None,
            transaction,
            rules: Rules {
                principal,
                message_bytes_max: config.kafka.get("message.max.bytes").unwrap_or("1000000").to_owned(),
                unknown_topic_timeout: config.unknown_topic_timeout,
            },
            diagnosis: Diagnosis::new(admin_properties(config)),
            last_error: None,
            setbacks: Setbacks::default(),
            retries: 0,
            sent_before: 0,
        })
    }

    /// Sends a record, or holds it while its topic is created or its partition gets to know the producer: then nothing
    /// else may be sent until [`Kafka::is_holding`] is false again.
    pub fn send(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if self.transaction.as_ref().is_some_and(|transaction| transaction.positions.topic == record.topic) {
            return self.refuse(OwnedRecord::new(record), Error::taken(record));
        }
        let topic = match self.ids.get(record.topic) {
            Some(topic) => *topic,
            None => match &mut self.prepare {
                Some(preparation) => {
                    let preparation = preparation.prepare(record.topic);
                    self.held = Some(Held::Topic { record: OwnedRecord::new(record), preparation });
                    return Ok(());
                }
                None => self.open_topic(record.topic),
            },
        };
        let fits = self.topics[topic.index()].batch_bytes_max.is_none_or(|limit| record.size_in_batch() <= limit);
        if self.batches != self.batches_fitting || !fits {
            let waits = self.waits();
            if waits && (self.batches > self.batches_fitting || !fits) {
                self.held = Some(Held::Rest { record: OwnedRecord::new(record) });
                return Ok(());
            }
            // Larger ones wait for a rest of their own.
            if !waits && self.batches != self.batches_fitting {
                self.batches = self.batches_fitting;
                self.replace_producer()?;
            }
            if !fits {
                self.alone = Some(OwnedRecord::new(record));
                return self.produce(topic, record);
            }
        }
        match self.admit(topic, record.partition, record.key) {
            true => self.produce(topic, record),
            false => {
                self.held = Some(Held::Partition { record: OwnedRecord::new(record), topic });
                Ok(())
            }
        }
    }

    /// Sets a record aside of which nothing got to Kafka, or ends with it.
    fn refuse(&mut self, record: OwnedRecord, error: Error) -> Result<(), Error> {
        if !self.sets_aside {
            return Err(error);
        }
        self.refused = Some((record, error));
        Ok(())
    }

    /// A record waits to be sent, or the transaction is about to change: nothing may be sent now.
    pub fn is_holding(&self) -> bool {
        self.held.is_some() || self.alone.is_some() || self.transaction.as_ref().is_some_and(Transaction::is_busy)
    }

    /// Exactly once: records wait for the open transaction's end.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.as_ref().is_some_and(Transaction::is_open)
    }

    /// Exactly once: how far Kafka's records reach, once, as soon as it is known. Until it is taken nothing is sent.
    pub fn take_opened(&mut self) -> Option<Opened> {
        self.transaction.as_mut()?.take_opened()
    }

    /// When [`Kafka::cut`] between two transactions of PostgreSQL is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.transaction.as_ref()?.deadline()
    }

    /// Commits the open Kafka transaction, if there is one and it is time; its records are acknowledged when that is done.
    /// `unwritten`: the first event whose dead letter is not durable, which no stored position may pass. `place`: of an event
    /// that was read from the table, by its position. `replayed`: the
    /// dead letters that were sent again, as far as the table does not know of it.
    pub fn cut(
        &mut self,
        cut: Cut,
        unwritten: Option<Position>,
        place: impl FnOnce(Position) -> Option<Place>,
        replayed: impl FnOnce() -> Vec<Replayed>,
    ) -> Result<(), Error> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        let ending = transaction.cut(cut, Instant::now(), unwritten, place);
        let Some(Ending { reached, replays, timestamp_ms }) = ending else {
            transaction.commit_if_answered();
            return Ok(());
        };
        let positions = transaction.positions.clone();
        if let Some((position, value)) = reached {
            self.store(&positions.topic, &positions.key(), position, &value, timestamp_ms)?;
        }
        if replays {
            let replayed = replayed();
            let last = replayed.last().expect("it holds some").position;
            let value = positions.replayed_value(&replayed);
            self.store(&positions.topic, &positions.replayed_key(), last, &value, timestamp_ms)?;
        }
        Ok(())
    }

    /// Sends a record that is no event, to be read when this stream is opened again.
    fn store(
        &mut self,
        topic: &str,
        key: &str,
        position: Position,
        value: &[u8],
        timestamp_ms: i64,
    ) -> Result<(), Error> {
        let id = self.ids.get(topic).copied().unwrap_or_else(|| self.open_topic(topic));
        self.hand_over(
            id,
            &Record {
                ticket: Ticket::NONE,
                position,
                xid: 0,
                table: &TableName::default(),
                event: pipeline::Event::default(),
                topic,
                partition: None,
                key: Some(key.as_bytes()),
                value: Some(value),
                timestamp_ms,
                headers: Headers::new(&[]),
            },
        )
    }

    /// Aborts the Kafka transaction that nobody will commit, so that it does not hide what others write until it times
    /// out.
    pub async fn close(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(3);
        let Some(transactions) = self.transaction.as_ref().and_then(Transaction::to_abort) else { return };
        let mut abort = tokio::task::spawn_blocking(move || transactions.abort(PATIENCE));
        loop {
            tokio::select! {
                outcome = &mut abort => {
                    match outcome.expect("an abort does not panic") {
                        Ok(()) => tracing::debug!("the kafka transaction is aborted"),
                        Err(error) => tracing::debug!(text = error.text, "the kafka transaction is left to its timeout"),
                    }
                    return;
                }
                // It waits for the reports of what it gives up.
                Ok(()) = self.producer.ready() => {
                    let Ok(()) = self.producer.poll(&mut 0, |_| Ok::<(), Infallible>(()));
                }
                else => return,
            }
        }
    }

    /// Waits until [`Kafka::poll`] has something to do. Cancel safe.
    pub async fn ready(&mut self) -> Result<(), Error> {
        tokio::select! {
            ready = self.producer.ready() => Ok(ready?),
            advanced = advanced(&mut self.transaction) => advanced,
            prepared = prepared(&mut self.held), if !self.transaction.as_ref().is_some_and(Transaction::is_busy) => {
                let (Some(Held::Topic { record, .. }), Some(preparation)) = (self.held.take(), &mut self.prepare) else {
                    return Ok(());
                };
                preparation.ended(&prepared);
                let prepared = match prepared.map_err(|error| record.lend(|record| error.of_record(record))) {
                    Err(error) if error.is_local() => return self.refuse(record, error),
                    prepared => prepared?,
                };
                let topic = self.open_topic(&record.topic);
                if let Some(limit) = prepared.batch_bytes_max {
                    self.learn(topic, limit);
                }
                record.lend(|record| self.send(record))
            }
            limits = told(&mut self.prepare, &self.topics) => {
                for (topic, limit) in limits {
                    self.learn(self.ids[&topic], limit);
                }
                match self.held.take() {
                    // It may fit now.
                    Some(Held::Rest { record }) => record.lend(|record| self.send(record)),
                    held => {
                        self.held = held;
                        Ok(())
                    }
                }
            }
            () = self.diagnosis.ready() => {
                self.look(Instant::now());
                Ok(())
            }
        }
    }

    fn look(&mut self, now: Instant) {
        if !self.diagnosis.is_due(now) {
            return;
        }
        let waiting = || self.topics.iter().filter(|topic| topic.waits());
        let stuck = waiting().filter(|topic| now - topic.since >= diagnosis::WAIT).map(|topic| topic.name.clone());
        self.diagnosis.look(stuck.collect(), waiting().next().is_some(), now);
    }

    /// Takes the reports that are there.
    pub fn poll(&mut self, mut acknowledge: impl FnMut(Ticket)) -> Result<(), Error> {
        let Kafka {
            producer,
            topics,
            rules,
            last_error,
            transaction,
            alone,
            refused,
            nameless,
            setbacks,
            retries,
            sent_before,
            landings,
            last_records,
            asks,
            asks_since,
            ..
        } = self;
        let now = Instant::now();
        if now.duration_since(*asks_since) >= ASKS_INTERVAL {
            (*asks, *asks_since) = (RECORDS_MAX, now);
        }
        producer.poll(asks, |event| match event {
            Event::Delivered(ticket, id, partition, offset, told) => {
                if let Some(landings) = landings {
                    landings.push(Landing { ticket, partition, offset });
                }
                let topic = &mut topics[id.index()];
                topic.taken += 1;
                topic.since = now;
                if !nameless.is_empty() {
                    nameless.remove(&ticket);
                }
                topic.partitions.delivered(partition, topic.waits());
                if let Some(told) = told.filter(|_| ticket != Ticket::NONE) {
                    let event_type = Some(told.event_type).filter(|event_type| !event_type.is_empty());
                    let partition = i32::try_from(partition).ok();
                    let said = Recent::new(&topic.name, told.id, event_type, told.key);
                    last_records.push(Recent { partition, offset, ..said });
                }
                match transaction {
                    Some(transaction) => transaction.answered(),
                    None => {
                        topic.delivered += 1;
                        acknowledge(ticket);
                    }
                }
                *last_error = None;
                Ok(())
            }
            // Given up with the producer; what ended it is told by itself.
            Event::Failed(Failure { code: Code::PurgeQueue | Code::PurgeInflight, .. }) => Ok(()),
            Event::Failed(failure) => {
                setbacks.error(error_name(failure.code));
                let position;
                let failure = match nameless.get(&failure.ticket) {
                    Some(record) => {
                        position = record.position.text();
                        let (id, names_partition) = (&record.id, record.names_partition);
                        Failure { id, position: &position, names_partition, ..failure }
                    }
                    None => failure,
                };
                if let (Code::Fenced, Some(transaction)) = (failure.code, &transaction) {
                    let text = failure.text.to_owned();
                    return Err(transaction.failed(&TransactionError { code: Code::Fenced, text, retriable: false }));
                }
                if let (Some(_), None) = (&alone, &refused) {
                    let error = rules.undelivered(&failure, Duration::ZERO);
                    if matches!(error, Error::Rejected { .. }) {
                        *refused = alone.take().map(|record| (record, error));
                        return Ok(());
                    }
                }
                let since = topics.iter().find(|topic| topic.name == failure.topic).map_or(now, |topic| topic.since);
                Err(rules.undelivered(&failure, now - since))
            }
            // The report of the refused record follows, and says more.
            Event::Error { code: Code::GaplessGuarantee, fatal: true, .. } => Ok(()),
            Event::Error { code, fatal, text } => {
                setbacks.error(error_name(code));
                if let Some(transaction) = transaction.as_ref().filter(|_| fatal) {
                    let text = text.to_owned();
                    return Err(transaction.failed(&TransactionError { code, text, retriable: false }));
                }
                if fatal {
                    let waiting = topics.iter().filter(|topic| topic.waits()).map(|topic| &*topic.name);
                    return Err(rules.fatal(code, text, waiting));
                }
                if code == Code::AllBrokersDown {
                    // It only follows from what was said before, and comes several times a second.
                    tracing::debug!(%code, "kafka: {text}");
                    last_error.get_or_insert_with(|| text.to_owned());
                } else {
                    let text = format!("{text}{}", hint(text));
                    tracing::warn!(%code, "kafka: {text}");
                    *last_error = Some(text);
                }
                Ok(())
            }
            Event::Statistics(text) => {
                if let Ok(Statistics { txmsgs }) = serde_json::from_str(text) {
                    // Those that were never sent yet make it too few, never too many.
                    let sent = topics.iter().map(|topic| topic.sent).sum::<u64>() - *sent_before;
                    let again = txmsgs.saturating_sub(sent);
                    setbacks.retries += again.saturating_sub(*retries);
                    *retries = again.max(*retries);
                }
                Ok(())
            }
            Event::Log { level, text } => {
                log(level, text);
                Ok(())
            }
        })?;
        self.committed(acknowledge);
        // The producer ended with it.
        if self.refused.as_ref().is_some_and(|(_, error)| !error.is_local()) {
            self.replace_producer()?;
        }
        if self.alone.is_some() && !self.waits() {
            self.alone = None;
        }
        self.release()
    }

    /// A record that is refused for good while everything else goes on. To be asked after each send and poll.
    pub fn take_refused(&mut self) -> Option<(OwnedRecord, Error)> {
        self.refused.take()
    }

    fn waits(&self) -> bool {
        self.topics.iter().any(Topic::waits)
    }

    /// Another producer for the same topics, while nothing is under way.
    fn replace_producer(&mut self) -> Result<(), Error> {
        self.properties.insert("batch.size".to_owned(), self.batches.0.to_string());
        let properties = self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        self.producer = Producer::new(properties)?;
        for topic in &mut self.topics {
            // In the same order, so that they keep their ids.
            self.producer.topic(&topic.name);
            topic.partitions = Partitions::default();
            topic.sent = topic.taken;
        }
        self.retries = 0;
        self.sent_before = self.topics.iter().map(|topic| topic.sent).sum();
        Ok(())
    }

    /// Takes a topic's limit, which batches to all topics stay under.
    fn learn(&mut self, id: TopicId, limit: usize) {
        let topic = &mut self.topics[id.index()];
        if let Some(before) = topic.batch_bytes_max.replace(limit).filter(|before| *before != limit) {
            tracing::info!("topic {} has max.message.bytes {limit} now, {before} before", topic.name);
        }
        let smallest = self.topics.iter().filter_map(|topic| topic.batch_bytes_max).min();
        self.batches_fitting = smallest.map_or(self.batches_max, |limit| self.batches_max.min(BatchBytes(limit)));
    }

    /// Takes what the last Kafka transaction made final.
    fn committed(&mut self, acknowledge: impl FnMut(Ticket)) {
        let Some(transaction) = &mut self.transaction else { return };
        transaction.commit_if_answered();
        let committed = transaction.take_committed();
        if !committed.is_empty() {
            self.topics.iter_mut().for_each(|topic| topic.delivered = topic.taken);
            self.committed_records.take(&mut self.last_records);
            committed.into_iter().for_each(acknowledge);
        }
    }

    /// Sends the held record if its partition lets it now.
    fn release(&mut self) -> Result<(), Error> {
        match self.held.take() {
            Some(Held::Partition { record, topic }) if self.admit(topic, record.partition, record.key.as_deref()) => {
                record.lend(|record| self.produce(topic, record))
            }
            Some(Held::Rest { record }) if !self.waits() => record.lend(|record| self.send(record)),
            held => {
                self.held = held;
                Ok(())
            }
        }
    }

    /// What Kafka has for good of what it was given last.
    pub(super) fn last_records(&mut self) -> &mut Recents {
        match &self.transaction {
            Some(_) => &mut self.committed_records,
            None => &mut self.last_records,
        }
    }

    /// The topics of this session.
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// From now on it is kept where records come to lie.
    pub fn keep_landings(&mut self) {
        self.landings.get_or_insert_default();
    }

    /// Those since the last call.
    pub fn take_landings(&mut self) -> Vec<Landing> {
        self.landings.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records that librdkafka has and nobody knows the fate of.
    pub fn queued(&self) -> usize {
        self.producer.queued()
    }

    /// What went wrong since this was last asked.
    pub fn take_setbacks(&mut self) -> Setbacks {
        std::mem::take(&mut self.setbacks)
    }

    /// What the brokers call their cluster; none before one of them was met.
    pub fn cluster_id(&self) -> Option<String> {
        self.producer.cluster_id()
    }

    /// Why records wait, or what Kafka last complained of, if nothing was delivered since.
    pub fn last_error(&self) -> Option<&str> {
        self.diagnosis.finding().or(self.last_error.as_deref())
    }

    fn open_topic(&mut self, name: &str) -> TopicId {
        let id = self.producer.topic(name);
        self.ids.insert(name.to_owned(), id);
        let (name, since) = (name.to_owned(), Instant::now());
        self.topics.push(Topic {
            name,
            delivered: 0,
            taken: 0,
            sent: 0,
            since,
            partitions: Partitions::default(),
            batch_bytes_max: None,
        });
        id
    }

    /// Whether the partition of a record takes it now; if so it is to be sent. A transaction that is refused anything is
    /// given up whole, so that nothing can overtake.
    fn admit(&mut self, id: TopicId, partition: Option<i32>, key: Option<&[u8]>) -> bool {
        if self.transaction.is_some() {
            return true;
        }
        let topic = &mut self.topics[id.index()];
        let count = self.producer.partitions(id);
        topic.partitions.count(count.unwrap_or_default());
        if topic.partitions.all_known() {
            return true;
        }
        let partition = match partition {
            // The partitioner is not asked, so it counts none.
            Some(given) => {
                let given = usize::try_from(given).ok().filter(|given| *given < PARTITIONS_MAX);
                topic.partitions.count(given.map_or(0, |given| given + 1));
                given
            }
            None => key.zip(count).map(|(key, count)| self.producer.partition_of(id, key, count)),
        };
        let admitted = topic.partitions.admit(partition, topic.waits());
        if admitted {
            topic.partitions.sent(partition);
        }
        admitted
    }

    fn produce(&mut self, id: TopicId, record: &Record<'_>) -> Result<(), Error> {
        if let Some(transaction) = &mut self.transaction {
            transaction.begin()?;
        }
        match self.hand_over(id, record) {
            Err(error) if error.is_local() => {
                self.alone = None;
                return self.refuse(OwnedRecord::new(record), error);
            }
            handed => handed?,
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.add(record);
        }
        Ok(())
    }

    fn hand_over(&mut self, id: TopicId, record: &Record<'_>) -> Result<(), Error> {
        let topic = &mut self.topics[id.index()];
        if !topic.waits() {
            topic.since = Instant::now();
            self.diagnosis.sent(topic.since);
        }
        topic.sent += 1;
        let code = match self.producer.produce(id, record) {
            // It has ended, and why comes with the next poll. Until then the record is in flight to nowhere.
            Ok(()) | Err(Code::Fatal) => {
                if record.ticket != Ticket::NONE && !record.headers.tell_event() {
                    let (id, position) = (record.event.id.to_vec(), record.position);
                    let names_partition = record.partition.is_some();
                    self.nameless.insert(record.ticket, Nameless { id, position, names_partition });
                }
                return Ok(());
            }
            Err(code) => code,
        };
        topic.sent -= 1;
        if code == Code::State {
            let reason = "it is broken already, and why is told above".to_owned();
            return Err(Error::Aborted { reason });
        }
        let failure = Failure {
            code,
            text: &code.to_string(),
            topic: record.topic,
            ticket: record.ticket,
            id: record.event.id,
            position: &record.position.text(),
            names_partition: record.partition.is_some(),
            size: record.size(),
            headers_size: record.headers.size(),
            records: 1,
        };
        Err(match self.rules.undelivered(&failure, Duration::ZERO) {
            Error::Rejected { event, limit, reason, too_large, .. } => {
                Error::Rejected { event, limit, reason, too_large, producer_ended: false }
            }
            error => error,
        })
    }
}

/// How often as many records are asked what they say as are shown: each costs a few allocations.
const ASKS_INTERVAL: Duration = Duration::from_millis(100);

/// How often librdkafka tells what it has counted, unless the configuration says: a text as long as there are partitions.
const STATISTICS_INTERVAL_MS: u32 = 60_000;

/// Of what librdkafka counts, what nothing else tells.
#[derive(serde::Deserialize)]
struct Statistics {
    /// Records that were sent; one that is sent again counts again.
    txmsgs: u64,
}

/// More than a topic has.
const PARTITIONS_MAX: usize = 1 << 16;

/// What a transaction needs, and without what at least once needs in its place: a transaction that is refused a record,
/// or times out, is given up whole.
fn make_transactional(properties: &mut BTreeMap<String, String>, id: &str) {
    properties.remove(GAPLESS);
    properties.remove("message.timeout.ms");
    properties.insert("transactional.id".to_owned(), id.to_owned());
}

/// Resolves when the transaction has got somewhere; never, when there is none. Cancel safe.
async fn advanced(transaction: &mut Option<Transaction>) -> Result<(), Error> {
    match transaction {
        Some(transaction) => transaction.ready().await,
        None => std::future::pending().await,
    }
}

/// A record, and what it waits for.
#[derive(Debug)]
enum Held {
    /// Its topic is being prepared.
    Topic { record: OwnedRecord, preparation: JoinHandle<Result<Prepared, Error>> },
    /// Everything under way is to be answered first.
    Rest { record: OwnedRecord },
    /// The first record of its partition is under way: see [`Partitions`].
    Partition { record: OwnedRecord, topic: TopicId },
}

/// Resolves when the topic that the held record waits for is prepared; never, when none waits for that. Cancel safe.
async fn prepared(held: &mut Option<Held>) -> Result<Prepared, Error> {
    match held {
        Some(Held::Topic { preparation, .. }) => preparation.await.expect("preparing a topic does not panic"),
        Some(Held::Partition { .. } | Held::Rest { .. }) | None => std::future::pending().await,
    }
}

/// Waits for topics' limits, as they are now; never, where nobody wants them. Cancel safe.
async fn told(prepare: &mut Option<Preparation>, topics: &[Topic]) -> Vec<Limit> {
    match prepare {
        Some(preparation) => preparation.told(topics).await,
        None => std::future::pending().await,
    }
}

/// librdkafka's log lines under our own levels: it calls many retriable things errors.
fn log(level: i32, text: &str) {
    match level {
        // It calls the property experimental. That is our own choice, and tested.
        _ if text.contains(GAPLESS) => {}
        ..=4 => tracing::warn!(target: "walpost::librdkafka", "{text}"),
        5 | 6 => tracing::info!(target: "walpost::librdkafka", "{text}"),
        _ => tracing::debug!(target: "walpost::librdkafka", "{text}"),
    }
}
