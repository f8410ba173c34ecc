//! Creation of missing topics.

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
    error::Error,
    properties::{admin_properties, principal},
};
use crate::config::{Config, Topics};

/// Between two attempts to create a topic for which there are too few brokers.
const BROKERS_PAUSE: Duration = Duration::from_millis(500);

/// Creates topics, each before the first record to it (`topics.create`).
pub(super) struct Creator {
    properties: BTreeMap<String, String>,
    topics: Topics,
    /// `route.unknown_topic_timeout`.
    patience: Duration,
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
    pub(super) fn new(config: &Config) -> Creator {
        Creator {
            properties: admin_properties(config),
            topics: config.topics,
            patience: config.unknown_topic_timeout,
            principal: principal(&config.kafka),
            admin: None,
        }
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
    pub(super) fn create(&mut self, name: &str) -> JoinHandle<Result<(), Error>> {
        let (admin, topics, patience) = (self.admin(), self.topics, self.patience);
        let principal = self.principal.clone();
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
            let since = Instant::now();
            let mut told = false;
            loop {
                let results = admin.create_topics([&topic], &awaited).await.map_err(|error| {
                    // librdkafka's own limits: the request was not even sent.
                    let rejected = matches!(error, KafkaError::AdminOpCreation(_));
                    failed(error.to_string(), rejected)
                })?;
                match results.into_iter().next() {
                    Some(Err((_, Code::TopicAlreadyExists))) | Some(Ok(_)) => return Ok(()),
                    Some(Err((_, code @ (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)))) => {
                        let right = format!("CREATE on topic {name}, or on the cluster");
                        return Err(Error::Unauthorized { principal, right, reason: code.to_string() });
                    }
                    // Too few brokers is what a cluster says while some, or its only one, are still starting.
                    Some(Err((_, code @ Code::InvalidReplicationFactor))) if since.elapsed() < patience => {
                        if !told {
                            tracing::warn!("topic {name} could not be created yet: {code}; trying for {patience:?}");
                            told = true;
                        }
                        tokio::time::sleep(BROKERS_PAUSE).await;
                    }
                    Some(Err((_, code))) => {
                        let rejected = matches!(
                            code,
                            Code::InvalidTopic
                                | Code::InvalidPartitions
                                | Code::InvalidReplicationFactor
                                | Code::InvalidConfig
                                | Code::InvalidRequest
                                | Code::PolicyViolation
                        );
                        return Err(failed(code.to_string(), rejected));
                    }
                    None => return Err(failed("the broker gave no answer".to_owned(), false)),
                }
            }
        })
    }
}
