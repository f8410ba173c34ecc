//! Kafka: an idempotent producer that waits for all in-sync replicas.
//!
//! The sink keeps no state of its own that outlives a session. Trouble that Kafka calls retriable stays inside
//! librdkafka, which tries for ever (`message.timeout.ms = 0`) while the pipeline runs out of room; anything else ends
//! the session with an [`Error`] that says whether another session can mend it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::task::JoinHandle;

pub use super::librdkafka::NewProducerError;
use super::{
    diagnosis::{self, Diagnosis},
    librdkafka::{Event, Failure, Producer, TopicId},
    partitions::Partitions,
};
use crate::{
    config::{Config, KafkaProperties, Topics},
    pipeline::{Position, Record, Ticket},
};

/// A record that Kafka refuses for good, a right that is missing, or a producer that is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "kafka rejected {event} for good: {reason} ({size} bytes of key and value, limit {limit}); nothing from that event \
         on is confirmed: mend the event's topic or the limit and start walpost again", size = event.size
    )]
    Rejected { event: Box<Undelivered>, limit: String, reason: String },
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
    CreateTopic { topic: String, reason: String, rejected: bool },
    #[error("the kafka producer is of no more use, a new one continues from the slot: {reason}")]
    Fatal { reason: String },
    #[error("kafka did not take {event}: {reason}")]
    Failed { event: Box<Undelivered>, reason: String },
    #[error(transparent)]
    NewProducer(#[from] NewProducerError),
    #[error("the kafka producer's events cannot be awaited")]
    Events(#[from] std::io::Error),
}

/// What identifies a record that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    pub id: String,
    pub position: String,
    pub topic: String,
    /// Key and value, in bytes.
    pub size: usize,
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} at position {} for topic {}", self.id, self.position, self.topic)
    }
}

impl Error {
    /// Whether a new session would meet the same end.
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::Rejected { .. } | Error::NewProducer(_) => true,
            Error::CreateTopic { rejected, .. } => *rejected,
            Error::UnknownTopic { waited, timeout, .. } => waited >= timeout,
            Error::BatchTooLarge { .. }
            | Error::BatchRefused { .. }
            | Error::Unauthorized { .. }
            | Error::Fatal { .. }
            | Error::Failed { .. }
            | Error::Events(_) => false,
        }
    }
}

/// The producer of one session.
#[derive(Debug)]
pub struct Kafka {
    producer: Producer,
    ids: HashMap<String, TopicId>,
    topics: Vec<Topic>,
    create: Option<Creator>,
    /// A record that cannot be sent yet. Nothing is sent past it.
    held: Option<Held>,
    rules: Rules,
    diagnosis: Diagnosis,
    last_error: Option<String>,
}

/// Most bytes of a batch, `batch.size`.
///
/// Brokers limit the batch, not the record, and the limit is a topic's own, which not everybody may read. So a batch
/// that is refused for its size is sent again in smaller ones, until it goes through or the refused batch is one
/// record: then that record is the culprit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBytes(usize);

impl BatchBytes {
    /// Every record by itself: a refusal of a batch does not say whom it means.
    pub const SINGLE: BatchBytes = BatchBytes(1);

    /// As the configuration has it, or librdkafka's default.
    pub fn of(config: &Config) -> BatchBytes {
        BatchBytes(config.kafka.get("batch.size").and_then(|bytes| bytes.parse().ok()).unwrap_or(1_000_000))
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
    sent: u64,
    /// When it last took a record, or was given the first one after a rest: how long its oldest may have waited.
    since: Instant,
    partitions: Partitions,
}

impl Topic {
    fn waits(&self) -> bool {
        self.sent > self.delivered
    }
}

/// What is needed to say why a record failed.
#[derive(Debug)]
struct Rules {
    principal: String,
    message_bytes_max: String,
    unknown_topic_timeout: Duration,
}

impl Kafka {
    pub fn new(config: &Config, batches: BatchBytes) -> Result<Kafka, Error> {
        let mut properties = properties(config);
        properties.insert("batch.size".to_owned(), batches.0.to_string());
        let producer = Producer::new(properties.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        Ok(Kafka {
            producer,
            ids: HashMap::new(),
            topics: Vec::new(),
            create: config.topics.create.then(|| Creator::new(config)),
            held: None,
            rules: Rules {
                principal: principal(&config.kafka),
                message_bytes_max: config.kafka.get("message.max.bytes").unwrap_or("1000000").to_owned(),
                unknown_topic_timeout: config.unknown_topic_timeout,
            },
            diagnosis: Diagnosis::new(admin_properties(config)),
            last_error: None,
        })
    }

    /// Sends a record, or holds it while its topic is created or its partition gets to know the producer: then nothing
    /// else may be sent until [`Kafka::is_holding`] is false again.
    pub fn send(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let topic = match self.ids.get(record.topic) {
            Some(topic) => *topic,
            None => match &mut self.create {
                Some(creator) => {
                    let creation = creator.create(record.topic);
                    self.held = Some(Held::Topic { record: OwnedRecord::new(record), creation });
                    return Ok(());
                }
                None => self.open(record.topic),
            },
        };
        match self.admit(topic, record.key) {
            true => self.produce(topic, record),
            false => {
                self.held = Some(Held::Partition { record: OwnedRecord::new(record), topic });
                Ok(())
            }
        }
    }

    /// A record waits to be sent.
    pub fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Waits until [`Kafka::poll`] has something to do. Cancel safe.
    pub async fn ready(&mut self) -> Result<(), Error> {
        tokio::select! {
            ready = self.producer.ready() => Ok(ready?),
            created = created(&mut self.held) => {
                let held = self.held.take();
                created?;
                let Some(Held::Topic { record, .. }) = held else { return Ok(()) };
                self.open(&record.topic);
                record.lend(|record| self.send(record))
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
        let Kafka { producer, topics, rules, last_error, .. } = self;
        let now = Instant::now();
        producer.poll(|event| match event {
            Event::Delivered(ticket, id, partition) => {
                let topic = &mut topics[id.index()];
                topic.delivered += 1;
                topic.since = now;
                topic.partitions.delivered(partition, topic.waits());
                acknowledge(ticket);
                *last_error = None;
                Ok(())
            }
            // Given up with the producer; what ended it is told by itself.
            Event::Failed(Failure { code: Code::PurgeQueue | Code::PurgeInflight, .. }) => Ok(()),
            Event::Failed(failure) => {
                let since = topics.iter().find(|topic| topic.name == failure.topic).map_or(now, |topic| topic.since);
                Err(rules.undelivered(&failure, now - since))
            }
            // The report of the refused record follows, and says more.
            Event::Error { code: Code::GaplessGuarantee, fatal: true, .. } => Ok(()),
            Event::Error { code, fatal, text } => {
                if fatal {
                    return Err(rules.fatal(code, text, topics));
                }
                tracing::warn!(%code, "kafka: {text}");
                // That all brokers are down only follows from what was said before.
                if code != Code::AllBrokersDown || last_error.is_none() {
                    *last_error = Some(text.to_owned());
                }
                Ok(())
            }
            Event::Log { level, text } => {
                log(level, text);
                Ok(())
            }
        })?;
        self.release()
    }

    /// Sends the held record if its partition lets it now.
    fn release(&mut self) -> Result<(), Error> {
        match self.held.take() {
            Some(Held::Partition { record, topic }) if self.admit(topic, record.key.as_deref()) => {
                record.lend(|record| self.produce(topic, record))
            }
            held => {
                self.held = held;
                Ok(())
            }
        }
    }

    /// The topics of this session.
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// Why records wait, or what Kafka last complained of, if nothing was delivered since.
    pub fn last_error(&self) -> Option<&str> {
        self.diagnosis.finding().or(self.last_error.as_deref())
    }

    fn open(&mut self, name: &str) -> TopicId {
        let id = self.producer.topic(name);
        self.ids.insert(name.to_owned(), id);
        let (name, since) = (name.to_owned(), Instant::now());
        self.topics.push(Topic { name, delivered: 0, sent: 0, since, partitions: Partitions::default() });
        id
    }

    /// Whether the partition of a record takes it now; if so it is to be sent.
    fn admit(&mut self, id: TopicId, key: Option<&[u8]>) -> bool {
        let topic = &mut self.topics[id.index()];
        let count = self.producer.partitions(id);
        topic.partitions.count(count.unwrap_or_default());
        if topic.partitions.all_known() {
            return true;
        }
        let partition = key.zip(count).map(|(key, count)| self.producer.partition_of(id, key, count));
        let admitted = topic.partitions.admit(partition, topic.waits());
        if admitted {
            topic.partitions.sent(partition);
        }
        admitted
    }

    fn produce(&mut self, id: TopicId, record: &Record<'_>) -> Result<(), Error> {
        let topic = &mut self.topics[id.index()];
        if !topic.waits() {
            topic.since = Instant::now();
            self.diagnosis.sent(topic.since);
        }
        topic.sent += 1;
        let code = match self.producer.produce(id, record) {
            // It has ended, and why comes with the next poll. Until then the record is in flight to nowhere.
            Ok(()) | Err(Code::Fatal) => return Ok(()),
            Err(code) => code,
        };
        let failure = Failure {
            code,
            text: &code.to_string(),
            topic: record.topic,
            id: record.headers.get("id").unwrap_or_default(),
            position: &record.position.text(),
            size: record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len),
            records: 1,
        };
        Err(self.rules.undelivered(&failure, Duration::ZERO))
    }
}

const GAPLESS: &str = "enable.gapless.guarantee";

/// What walpost needs of librdkafka; then what the configuration says, which cannot take that away.
pub(crate) fn properties(config: &Config) -> BTreeMap<String, String> {
    let unknown_topic_ms = config.unknown_topic_timeout.as_millis().min(3_600_000);
    let defaults = [
        ("client.id", "walpost".to_owned()),
        // Latency first: under load the window in flight makes the batches.
        ("linger.ms", "0".to_owned()),
        // One at a time makes fuller batches: half the CPU. The next is made up meanwhile.
        ("max.in.flight.requests.per.connection", "1".to_owned()),
        ("topic.metadata.propagation.max.ms", unknown_topic_ms.to_string()),
    ];
    let needed = [
        ("bootstrap.servers", config.brokers.clone()),
        ("enable.idempotence", "true".to_owned()),
        // A batch that is refused for good ends the producer: nothing of its partition is sent past it (G2).
        (GAPLESS, "true".to_owned()),
        ("acks", "all".to_owned()),
        ("message.timeout.ms", "0".to_owned()),
        ("partitioner", "murmur2_random".to_owned()),
    ];
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    let mut properties: BTreeMap<String, String> = defaults.map(owned).into();
    properties.extend(config.kafka.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    properties.extend(needed.map(owned));
    properties
}

/// The same for a client that does not produce: it warns of properties that only a producer has.
fn admin_properties(config: &Config) -> BTreeMap<String, String> {
    const PRODUCER_ONLY: [&str; 9] = [
        "enable.idempotence",
        GAPLESS,
        "acks",
        "message.",
        "partitioner",
        "linger.",
        "batch.",
        "compression.",
        "queue.buffering.",
    ];
    let producer_only = |name: &str| PRODUCER_ONLY.iter().any(|prefix| name.starts_with(prefix));
    properties(config).into_iter().filter(|(name, _)| !producer_only(name)).collect()
}

/// Who Kafka thinks we are.
fn principal(kafka: &KafkaProperties) -> String {
    let get = |name| kafka.get(name);
    match (get("sasl.username"), get("ssl.certificate.location").or(get("ssl.certificate.pem"))) {
        (Some(user), _) => format!("User:{user}"),
        (None, Some(_)) => "of the client certificate".to_owned(),
        (None, None) => "User:ANONYMOUS".to_owned(),
    }
}

impl Rules {
    /// What it means that a record was not delivered.
    fn undelivered(&self, failure: &Failure<'_>, unknown_for: Duration) -> Error {
        let event = || {
            Box::new(Undelivered {
                id: String::from_utf8_lossy(failure.id).into_owned(),
                position: String::from_utf8_lossy(failure.position).into_owned(),
                topic: failure.topic.to_owned(),
                size: failure.size,
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
                Error::Rejected { event: event(), limit, reason }
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
                Error::Rejected { event: event(), limit: "set by the topic's configuration".to_owned(), reason }
            }
            _ => Error::Failed { event: event(), reason },
        }
    }

    /// What it means that the producer is of no more use.
    fn fatal(&self, code: Code, reason: &str, topics: &[Topic]) -> Error {
        match code {
            Code::ClusterAuthorizationFailed => {
                let waiting: Vec<&str> =
                    topics.iter().filter(|topic| topic.waits()).map(|topic| &*topic.name).collect();
                self.no_producer_id(reason, &waiting.join(", "))
            }
            _ => Error::Fatal { reason: reason.to_owned() },
        }
    }

    /// An idempotent producer gets an id when it may write to any topic, before Kafka 2.8 by a right of its own.
    fn no_producer_id(&self, reason: &str, topics: &str) -> Error {
        let right = format!("WRITE on topic {topics} (before Kafka 2.8 also IDEMPOTENT_WRITE on the cluster)");
        Error::Unauthorized { principal: self.principal.clone(), right, reason: reason.to_owned() }
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

/// Creates topics, each before the first record to it (`topics.create`).
struct Creator {
    properties: BTreeMap<String, String>,
    topics: Topics,
    principal: String,
    /// Made for the first topic and kept: each is a client with threads and connections of its own.
    admin: Option<Arc<AdminClient<DefaultClientContext>>>,
}

impl fmt::Debug for Creator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creator").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl Creator {
    fn new(config: &Config) -> Creator {
        let (topics, principal) = (config.topics, principal(&config.kafka));
        Creator { properties: admin_properties(config), topics, principal, admin: None }
    }

    fn admin(&mut self) -> Result<Arc<AdminClient<DefaultClientContext>>, KafkaError> {
        if let Some(admin) = &self.admin {
            return Ok(Arc::clone(admin));
        }
        let mut config = ClientConfig::new();
        config.extend(self.properties.clone());
        Ok(Arc::clone(self.admin.insert(Arc::new(config.create()?))))
    }

    /// Resolves when the topic exists.
    fn create(&mut self, name: &str) -> JoinHandle<Result<(), Error>> {
        let (admin, topics, principal) = (self.admin(), self.topics, self.principal.clone());
        let name = name.to_owned();
        tokio::spawn(async move {
            let failed = |reason: String, rejected| Error::CreateTopic { topic: name.clone(), reason, rejected };
            let admin = admin.map_err(|error| failed(error.to_string(), false))?;
            const BROKER_DEFAULT: i32 = -1;
            let replication = TopicReplication::Fixed(topics.replication.unwrap_or(BROKER_DEFAULT));
            let topic = NewTopic::new(&name, topics.partitions.unwrap_or(BROKER_DEFAULT), replication);
            // An hour is for ever: while no broker answers, librdkafka tries by itself and the stream waits.
            let awaited = AdminOptions::new()
                .request_timeout(Some(Duration::from_secs(3600)))
                .operation_timeout(Some(Duration::from_secs(30)));
            let results =
                admin.create_topics([&topic], &awaited).await.map_err(|error| failed(error.to_string(), false))?;
            match results.into_iter().next() {
                Some(Err((_, Code::TopicAlreadyExists))) | Some(Ok(_)) => Ok(()),
                Some(Err((_, code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)))) => {
                    let right = format!("CREATE on topic {name}, or on the cluster");
                    Err(Error::Unauthorized { principal, right, reason: code.to_string() })
                }
                Some(Err((_, code))) => {
                    let rejected = matches!(
                        code,
                        Code::InvalidTopic
                            | Code::InvalidPartitions
                            | Code::InvalidReplicationFactor
                            | Code::InvalidConfig
                            | Code::PolicyViolation
                    );
                    Err(failed(code.to_string(), rejected))
                }
                None => Err(failed("the broker gave no answer".to_owned(), false)),
            }
        })
    }
}

/// A record, and what it waits for.
#[derive(Debug)]
enum Held {
    /// Its topic is being created.
    Topic { record: OwnedRecord, creation: JoinHandle<Result<(), Error>> },
    /// The first record of its partition is under way: see [`Partitions`].
    Partition { record: OwnedRecord, topic: TopicId },
}

/// Resolves when the topic that the held record waits for exists; never, when none waits for that. Cancel safe.
async fn created(held: &mut Option<Held>) -> Result<(), Error> {
    match held {
        Some(Held::Topic { creation, .. }) => creation.await.expect("creating a topic does not panic"),
        Some(Held::Partition { .. }) | None => std::future::pending().await,
    }
}

/// A record that outlives its frame.
#[derive(Debug)]
struct OwnedRecord {
    ticket: Ticket,
    position: Position,
    topic: String,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    timestamp_ms: i64,
    headers: Vec<(String, Vec<u8>)>,
}

impl OwnedRecord {
    fn new(record: &Record<'_>) -> OwnedRecord {
        OwnedRecord {
            ticket: record.ticket,
            position: record.position,
            topic: record.topic.to_owned(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            timestamp_ms: record.timestamp_ms,
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
        }
    }

    fn lend<T>(&self, to: impl FnOnce(&Record<'_>) -> T) -> T {
        to(&Record {
            ticket: self.ticket,
            position: self.position,
            topic: &self.topic,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            timestamp_ms: self.timestamp_ms,
            headers: crate::pipeline::record::Headers::new(&self.headers),
        })
    }
}
