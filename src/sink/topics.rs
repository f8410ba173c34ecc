//! What is asked of a topic before the first record to it: that it exists, and what it takes.

use std::{
    collections::BTreeMap,
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

use super::{
    kafka::Topic,
    limits::{self, Limit, Limits},
    properties::{admin_properties, principal},
    refusal::{Error, TopicRefusal},
};
use crate::config::{
    Config, Topics,
    connector::{TopicCreation, TopicGroup},
};

/// Between two attempts to create a topic for which there are too few brokers.
const BROKERS_PAUSE: Duration = Duration::from_millis(500);

/// Prepares topics, each before the first record to it.
pub(super) struct Preparation {
    properties: BTreeMap<String, String>,
    topics: Topics,
    /// How a connector has them made, which goes before `topics`.
    creation: Option<Arc<TopicCreation>>,
    /// None: they are not wanted.
    limits: Option<Limits>,
    /// How long there may be too few brokers for a topic: `route.unknown_topic_timeout`.
    patience: Duration,
    /// They were waited for in vain, and Kafka has made no topic since.
    impatient: bool,
    principal: String,
    /// Made for the first topic and kept: each is a client with threads and connections of its own.
    admin: Option<Arc<AdminClient<DefaultClientContext>>>,
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparation").field("topics", &self.topics).finish_non_exhaustive()
    }
}

/// What is known of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prepared {
    /// `max.message.bytes`: most bytes of a batch. None: not told, such as for want of DESCRIBE_CONFIGS.
    pub(super) batch_bytes_max: Option<usize>,
    /// It did not exist.
    made: bool,
}

impl Preparation {
    /// None: nothing is to be asked.
    pub(super) fn new(config: &Config, limits: bool) -> Option<Preparation> {
        let creation = config.debezium.as_ref().and_then(|debezium| debezium.connector().topic_creation.clone());
        (config.topics.create || creation.is_some() || limits).then(|| Preparation {
            creation: creation.map(Arc::new),
            limits: limits.then(|| Limits::new(Instant::now())),
            properties: admin_properties(config),
            topics: config.topics,
            patience: config.unknown_topic_timeout,
            impatient: false,
            principal: principal(&config.kafka),
            admin: None,
        })
    }

    fn admin(&mut self) -> Result<Arc<AdminClient<DefaultClientContext>>, KafkaError> {
        if let Some(admin) = &self.admin {
            return Ok(Arc::clone(admin));
        }
        let mut config = ClientConfig::new();
        config.extend(self.properties.clone());
        Ok(Arc::clone(self.admin.insert(Arc::new(config.create()?))))
    }

    /// Resolves when the topic exists, where it is to be created (`topics.create`), and its limit is known or cannot be.
    pub(super) fn prepare(&mut self, name: &str) -> JoinHandle<Result<Prepared, Error>> {
        let (admin, limits, name) = (self.admin(), self.limits.is_some(), name.to_owned());
        let patience = if self.impatient { Duration::ZERO } else { self.patience };
        let (topics, creation, principal) = (self.topics, self.creation.clone(), self.principal.clone());
        tokio::spawn(async move {
            let mut made = false;
            let group = creation.as_ref().and_then(|creation| creation.group(&name));
            if topics.create || group.is_some() {
                let admin = admin.as_ref().map_err(|error| Error::CreateTopic {
                    topic: name.clone(),
                    reason: error.to_string(),
                    refusal: None,
                })?;
                let topic = match group {
                    Some(group) => of_group(&name, group),
                    None => new_topic(&name, topics.partitions, topics.replication),
                };
                // An hour is for ever: while no broker answers, librdkafka tries by itself and the stream waits.
                let awaited = AdminOptions::new()
                    .request_timeout(Some(Duration::from_secs(3600)))
                    .operation_timeout(Some(Duration::from_secs(30)));
                made = create(admin, &topic, &awaited, patience, &principal).await?;
            }
            let batch_bytes_max = match admin {
                Ok(admin) if limits => limits::read(&admin, &[name]).await.pop().map(|(_, limit)| limit),
                Ok(_) | Err(_) => None,
            };
            Ok(Prepared { batch_bytes_max, made })
        })
    }

    /// Takes how a preparation ended. Brokers that do not come are waited for once, and not again by each event of a stream
    /// that goes on.
    pub(super) fn ended(&mut self, prepared: &Result<Prepared, Error>) {
        match prepared {
            Ok(Prepared { made: true, .. }) => self.impatient = false,
            Err(Error::CreateTopic { refusal: Some(TopicRefusal::Settings), .. }) => self.impatient = true,
            Ok(_) | Err(_) => {}
        }
    }

    /// Waits for the limits of some of the topics, as they are now; never, where they are not wanted. Cancel safe.
    pub(super) async fn told(&mut self, topics: &[Topic]) -> Vec<Limit> {
        match (&mut self.limits, &self.admin) {
            (Some(limits), Some(admin)) => limits.told(admin, topics).await,
            (None, _) | (_, None) => std::future::pending().await,
        }
    }
}

/// None takes the broker's default.
pub(super) fn new_topic(name: &str, partitions: Option<i32>, replicas: Option<i32>) -> NewTopic<'_> {
    const BROKER_DEFAULT: i32 = -1;
    let replication = TopicReplication::Fixed(replicas.unwrap_or(BROKER_DEFAULT));
    NewTopic::new(name, partitions.unwrap_or(BROKER_DEFAULT), replication)
}

/// With the group's settings of topics.
fn of_group<'a>(name: &'a str, group: &'a TopicGroup) -> NewTopic<'a> {
    let topic = new_topic(name, group.partitions, group.replication);
    group.settings.iter().fold(topic, |topic, (setting, value)| topic.set(setting, value))
}

/// Resolves when the topic exists, with whether it did not before. `patience`: how long there may be too few brokers for it.
pub(super) async fn create(
    admin: &AdminClient<DefaultClientContext>,
    topic: &NewTopic<'_>,
    options: &AdminOptions,
    patience: Duration,
    principal: &str,
) -> Result<bool, Error> {
    let name = topic.name;
    let failed = |reason: String, refusal| Error::CreateTopic { topic: name.to_owned(), reason, refusal };
    let since = Instant::now();
    let mut told = false;
    loop {
        let results = admin.create_topics([topic], options).await.map_err(|error| {
            // librdkafka's own limits: the request was not even sent.
            let refused = matches!(error, KafkaError::AdminOpCreation(_));
            failed(error.to_string(), refused.then_some(TopicRefusal::Settings))
        })?;
        match results.into_iter().next() {
            Some(Ok(_)) => return Ok(true),
            Some(Err((_, Code::TopicAlreadyExists))) => return Ok(false),
            Some(Err((_, code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)))) => {
                let right = format!("CREATE on topic {name}, or on the cluster");
                return Err(Error::Unauthorized { principal: principal.to_owned(), right, reason: code.to_string() });
            }
            // Too few brokers is what a cluster says while some, or its only one, are still starting.
            Some(Err((_, code @ Code::InvalidReplicationFactor))) if since.elapsed() < patience => {
                if !told {
                    tracing::warn!("topic {name} could not be created yet: {code}; trying for {patience:?}");
                    told = true;
                }
                tokio::time::sleep(BROKERS_PAUSE).await;
            }
            Some(Err((_, code @ Code::InvalidTopic))) => {
                let reason = format!("{code}; a name that differs from another topic's in . and _ only is refused too");
                return Err(failed(reason, Some(TopicRefusal::Name)));
            }
            Some(Err((_, code))) => {
                let refused = matches!(
                    code,
                    Code::InvalidPartitions
                        | Code::InvalidReplicationFactor
                        | Code::InvalidConfig
                        | Code::InvalidRequest
                        | Code::PolicyViolation
                );
                return Err(failed(code.to_string(), refused.then_some(TopicRefusal::Settings)));
            }
            None => return Err(failed("the broker gave no answer".to_owned(), None)),
        }
    }
}
