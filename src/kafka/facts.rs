//! What a Kafka cluster says of itself and of the topics that the configuration writes to.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier},
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    metadata::MetadataTopic,
};

use super::{
    client::{self, Reasons, Unreachable},
    rights::{self, Rights},
    topics::Pattern,
};
use crate::config::Config;

/// Most topics whose settings and rights are asked for.
const DESCRIBED_TOPICS_MAX: usize = 100;

/// Facts of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kafka {
    pub brokers: usize,
    /// Existing topics that the configuration writes to.
    pub topics: BTreeMap<String, Topic>,
    /// The topic of exactly-once positions, where the configuration has one and it exists.
    pub positions: Option<Topic>,
    /// `auto.create.topics.enable` of a broker; none where we may not see it.
    pub auto_create: Option<bool>,
    /// `message.max.bytes` of a broker, which new topics take over.
    pub message_bytes_max: Option<i64>,
    /// What this principal may do with the topics that the configuration names or leads to, as far as the brokers tell.
    pub rights: BTreeMap<String, Rights>,
    /// Why those could not be read.
    pub rights_unknown: Option<String>,
    /// Why settings could not be read.
    pub undescribed: Option<String>,
}

/// Facts of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topic {
    pub partitions: usize,
    /// Of its first partition.
    pub replicas: usize,
    /// `max.message.bytes`.
    pub message_bytes_max: Option<i64>,
    /// `min.insync.replicas`.
    pub in_sync_min: Option<usize>,
    /// `cleanup.policy`.
    pub cleanup_policy: Option<String>,
}

impl Kafka {
    /// Asks the cluster; `timeout` bounds each of the three questions.
    pub async fn read(config: &Config, patterns: &[Pattern], timeout: Duration) -> Result<Kafka, Unreachable> {
        let properties = client::consumer_properties(config);
        let patterns = patterns.to_vec();
        let positions_topic = config.delivery.positions_topic().map(str::to_owned);
        let asked = tokio::task::spawn_blocking(move || -> Result<_, Unreachable> {
            let failed = |error: KafkaError| Unreachable { reasons: vec![error.to_string()] };
            let client: BaseConsumer<Reasons> = properties.create_with_context(Reasons::default()).map_err(failed)?;
            let metadata = client::metadata(&client, timeout)?;
            let shape = |topic: &MetadataTopic| {
                let replicas = topic.partitions().first().map_or(0, |partition| partition.replicas().len());
                Topic { partitions: topic.partitions().len(), replicas, ..Topic::default() }
            };
            let topics = metadata.topics().iter().filter(|topic| patterns.iter().any(|one| one.matches(topic.name())));
            let topics: BTreeMap<_, _> = topics.map(|topic| (topic.name().to_owned(), shape(topic))).collect();
            let positions =
                metadata.topics().iter().find(|topic| positions_topic.as_deref() == Some(topic.name())).map(shape);
            let broker = metadata.brokers().first().map(|broker| broker.id());
            let named = patterns.iter().filter_map(Pattern::topic).chain(positions_topic.as_deref()).map(str::to_owned);
            let mut asked: BTreeSet<_> = topics.keys().take(DESCRIBED_TOPICS_MAX).cloned().collect();
            asked.extend(named);
            let (rights, rights_unknown) = match rights::of_topics(client.client(), &Vec::from_iter(asked), timeout) {
                Ok(rights) => (rights, None),
                Err(reason) => (BTreeMap::new(), Some(reason)),
            };
            let brokers = metadata.brokers().len();
            let kafka = Kafka { brokers, topics, positions, rights, rights_unknown, ..Kafka::default() };
            Ok((kafka, broker, properties))
        });
        let (mut kafka, broker, properties) = asked.await.expect("the client's calls do not panic")?;
        let Some(broker) = broker else { return Ok(kafka) };
        if let Err(reason) = kafka.describe(config, &properties, broker, timeout).await {
            kafka.undescribed = Some(reason);
        }
        Ok(kafka)
    }

    async fn describe(
        &mut self,
        config: &Config,
        properties: &rdkafka::ClientConfig,
        broker: i32,
        timeout: Duration,
    ) -> Result<(), String> {
        let text = |error: KafkaError| error.to_string();
        let admin: AdminClient<Reasons> = properties.create_with_context(Reasons::default()).map_err(text)?;
        let names: Vec<_> = self.topics.keys().take(DESCRIBED_TOPICS_MAX).cloned().collect();
        let mut resources = vec![ResourceSpecifier::Broker(broker)];
        resources.extend(names.iter().map(|name| ResourceSpecifier::Topic(name)));
        // A question about a topic that is named twice is refused.
        let positions = config
            .delivery
            .positions_topic()
            .filter(|name| self.positions.is_some() && !names.iter().any(|n| n == name));
        resources.extend(positions.map(ResourceSpecifier::Topic));
        let options = AdminOptions::new().request_timeout(Some(timeout));
        let described = admin.describe_configs(&resources, &options).await.map_err(text)?;
        for resource in described {
            let resource = resource.map_err(|code| KafkaError::AdminOp(code).to_string())?;
            // What may not be described comes back without an error and without entries.
            if resource.entries.is_empty() {
                return Err("the right DescribeConfigs is missing".to_owned());
            }
            match &resource.specifier {
                OwnedResourceSpecifier::Broker(_) => {
                    self.auto_create = setting(&resource, "auto.create.topics.enable");
                    self.message_bytes_max = setting(&resource, "message.max.bytes");
                }
                OwnedResourceSpecifier::Topic(name) => {
                    if let Some(topic) = self.topics.get_mut(name) {
                        topic.message_bytes_max = setting(&resource, "max.message.bytes");
                        topic.in_sync_min = setting(&resource, "min.insync.replicas");
                        topic.cleanup_policy = setting(&resource, "cleanup.policy");
                    }
                    if let Some(topic) =
                        self.positions.as_mut().filter(|_| config.delivery.positions_topic() == Some(name))
                    {
                        topic.cleanup_policy = setting(&resource, "cleanup.policy");
                    }
                }
                OwnedResourceSpecifier::Group(_) => {}
            }
        }
        Ok(())
    }
}

fn setting<T: std::str::FromStr>(resource: &ConfigResource, name: &str) -> Option<T> {
    resource.get(name)?.value.as_ref()?.parse().ok()
}
