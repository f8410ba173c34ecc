//! Topics of a test broker: made, changed, blocked, deleted.

use std::{collections::BTreeMap, time::Duration};

use rdkafka::{
    admin::{
        AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic, ResourceSpecifier,
        TopicReplication,
    },
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
    metadata::MetadataTopic,
};
use tokio::runtime::Builder;

use super::{broker::Broker, eventually, kafka::Kafka};

const PATIENCE: Duration = Duration::from_secs(30);

impl Kafka {
    pub fn create_topic(&self, name: &str, partitions: i32, configuration: &[(&str, &str)]) {
        self.create(name, partitions, self.replication(), configuration);
    }

    /// A topic that [`Kafka::block`] can block: each partition has its second replica on the ghost.
    pub fn create_blockable_topic(&self, name: &str, partitions: i32) {
        self.create(name, partitions, 2, &[]);
    }

    /// From here on every acks=all to this topic fails with a retriable error, and to no other.
    pub fn block(&self, name: &str) {
        self.set_topic_config(name, &[("min.insync.replicas", "2")]);
    }

    pub fn unblock(&self, name: &str) {
        self.set_topic_config(name, &[("min.insync.replicas", "1")]);
    }

    /// Gives a topic more partitions; `partitions` is how many it has then.
    pub fn add_partitions(&self, name: &str, partitions: i32) {
        let count = usize::try_from(partitions).expect("there are some");
        let changed = wait(self.admin().create_partitions([&NewPartitions::new(name, count)], &options()));
        changed.expect("Kafka answers").into_iter().for_each(|topic| assert!(topic.is_ok(), "{topic:?}"));
        eventually(PATIENCE, &format!("topic {name} has them"), || {
            (self.partitions(name)? == partitions).then_some(())
        });
    }

    /// Changes some of a topic's settings and leaves the others.
    pub fn set_topic_config(&self, name: &str, changes: &[(&str, &str)]) {
        let topic = ResourceSpecifier::Topic(name);
        let described = wait(self.admin().describe_configs([&topic], &options())).expect("Kafka answers");
        let described = described.into_iter().next().expect("one topic was asked for").expect("the topic exists");
        let kept = described.entries.iter().filter(|entry| {
            entry.source == ConfigSource::DynamicTopic && changes.iter().all(|(change, _)| *change != entry.name)
        });
        let mut alter = AlterConfig::new(topic);
        for entry in kept {
            alter = alter.set(&entry.name, entry.value.as_deref().unwrap_or_default());
        }
        for (name, value) in changes {
            alter = alter.set(name, value);
        }
        let altered = wait(self.admin().alter_configs([&alter], &options())).expect("Kafka answers");
        altered.into_iter().next().expect("one topic was changed").expect("the settings are valid");
        eventually(PATIENCE, &format!("topic {name} has its new settings"), || {
            let described = wait(self.admin().describe_configs([&ResourceSpecifier::Topic(name)], &options())).ok()?;
            let described = described.into_iter().next()?.ok()?;
            let in_force =
                |(name, value): &(&str, &str)| described.get(name).and_then(|e| e.value.as_deref()) == Some(value);
            changes.iter().all(in_force).then_some(())
        });
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete_topic(&self, name: &str) {
        let deleted = wait(self.admin().delete_topics(&[name], &options())).expect("Kafka answers");
        deleted.into_iter().next().expect("one topic was deleted").expect("the topic existed");
        eventually(PATIENCE, &format!("topic {name} is gone"), || self.partitions(name).is_none().then_some(()));
    }

    /// Deletes all topics but Kafka's own, and waits until they are gone.
    pub fn delete_topics(&self) {
        let topics = self.topics();
        let names: Vec<&str> = topics.keys().map(String::as_str).collect();
        if !names.is_empty() {
            let deleted = wait(self.admin().delete_topics(&names, &options())).expect("Kafka answers");
            deleted.into_iter().for_each(|topic| assert!(topic.is_ok(), "{topic:?}"));
            eventually(PATIENCE, "the topics are gone", || self.topics().is_empty().then_some(()));
        }
    }

    /// How many partitions a topic has, when it exists.
    pub fn partitions(&self, name: &str) -> Option<i32> {
        self.topics().get(name).copied()
    }

    /// The topics that are not Kafka's own, and how many partitions each has.
    pub fn topics(&self) -> BTreeMap<String, i32> {
        const OWN: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
        let client: BaseConsumer = self.client().create().expect("the configuration is complete");
        // Metadata of all topics: asking for one by name could create it.
        let metadata = client.fetch_metadata(None, PATIENCE).expect("Kafka answers");
        let topics = metadata.topics().iter().filter(|topic| topic.error().is_none() && !OWN.contains(&topic.name()));
        let partitions = |topic: &MetadataTopic| i32::try_from(topic.partitions().len()).expect("a few");
        topics.map(|topic| (topic.name().to_owned(), partitions(topic))).collect()
    }

    /// The broker that leads a partition.
    pub fn leader(&self, name: &str, partition: i32) -> &Broker {
        let client: BaseConsumer = self.client().create().expect("the configuration is complete");
        let id = eventually(PATIENCE, &format!("partition {partition} of topic {name} has a leader"), || {
            let metadata = client.fetch_metadata(None, PATIENCE).ok()?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == name)?;
            Some(topic.partitions().iter().find(|p| p.id() == partition)?.leader()).filter(|id| *id > 0)
        });
        self.broker(id)
    }

    /// Waits until no replica of any partition is behind.
    pub fn in_sync(&self, within: Duration) {
        let client: BaseConsumer = self.client().create().expect("the configuration is complete");
        eventually(within, "all replicas are in sync", || {
            let metadata = client.fetch_metadata(None, PATIENCE).ok()?;
            let mut partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
            partitions.all(|partition| partition.isr().len() == partition.replicas().len()).then_some(())
        });
    }

    fn create(&self, name: &str, partitions: i32, replicas: i32, configuration: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        for (name, value) in configuration {
            topic = topic.set(name, value);
        }
        let created = wait(self.admin().create_topics([&topic], &options())).expect("Kafka answers");
        match created.into_iter().next().expect("one topic was created") {
            Ok(_) => {}
            Err((name, RDKafkaErrorCode::TopicAlreadyExists)) => panic!("topic {name} exists already"),
            Err((name, error)) => panic!("topic {name} cannot be created: {error}"),
        }
        eventually(PATIENCE, &format!("topic {name} is there"), || {
            (self.partitions(name)? == partitions).then_some(())
        });
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().expect("the configuration is complete")
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn wait<T>(answer: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().expect("a runtime can be built").block_on(answer)
}
