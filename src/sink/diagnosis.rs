//! Why Kafka takes nothing.
//!
//! librdkafka tries retriable errors again and again without a word: a topic with too few in-sync replicas looks like
//! one that is merely slow. So when records have waited for a while, the cluster itself is asked what is wrong with
//! their topics. Only words come of it; the records wait on.

use std::{
    collections::BTreeMap,
    future, thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext,
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use tokio::{runtime::Handle, sync::oneshot};

/// A record that waits longer than this is worth a question.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// The next question comes later: a long outage needs no client every few seconds.
const AGAIN: Duration = Duration::from_secs(30);
/// How long the cluster may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// With one cause for many topics a few of them tell it.
const TOPICS_MAX: usize = 10;

/// Looks at the records that wait, while there are any.
#[derive(Debug)]
pub(super) struct Diagnosis {
    properties: BTreeMap<String, String>,
    look: Option<Instant>,
    asked: Option<oneshot::Receiver<Option<String>>>,
    finding: Option<String>,
}

impl Diagnosis {
    /// `properties` are those of a client that does not produce.
    pub(super) fn new(properties: BTreeMap<String, String>) -> Diagnosis {
        Diagnosis { properties, look: None, asked: None, finding: None }
    }

    /// What was found wrong, as long as records wait.
    pub(super) fn finding(&self) -> Option<&str> {
        self.finding.as_deref()
    }

    /// A record begins to wait.
    pub(super) fn sent(&mut self, now: Instant) {
        self.look.get_or_insert(now + WAIT);
    }

    /// Waits until there is an answer, or until it is time to look. Cancel safe.
    pub(super) async fn ready(&mut self) {
        match (&mut self.asked, self.look) {
            (Some(asked), _) => {
                let found = asked.await.unwrap_or(None);
                self.asked = None;
                self.learn(found);
            }
            (None, Some(at)) => tokio::time::sleep_until(at.into()).await,
            (None, None) => future::pending().await,
        }
    }

    /// Whether it is time to look at the topics.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && self.look.is_some_and(|at| at <= now)
    }

    /// Takes the topics whose records wait too long; `waits` says whether any record waits.
    pub(super) fn look(&mut self, stuck: Vec<String>, waits: bool, now: Instant) {
        self.look = waits.then(|| now + if stuck.is_empty() { WAIT } else { AGAIN });
        if stuck.is_empty() {
            if self.finding.take().is_some() {
                tracing::info!("kafka takes records again");
            }
        } else {
            self.asked = Some(ask(self.properties.clone(), stuck));
        }
    }

    fn learn(&mut self, found: Option<String>) {
        if let Some(text) = found.as_ref().filter(|_| found != self.finding) {
            tracing::warn!("records wait for kafka: {text}");
        }
        self.finding = found;
    }
}

/// One line of what is found wrong. The thread is nobody's to wait for: one that hangs must not hold up a shutdown.
fn ask(properties: BTreeMap<String, String>, topics: Vec<String>) -> oneshot::Receiver<Option<String>> {
    let (sender, asked) = oneshot::channel();
    let runtime = Handle::current();
    thread::spawn(move || {
        let findings: Vec<String> = match client(properties) {
            Ok(client) => {
                topics.iter().take(TOPICS_MAX).filter_map(|topic| trouble(&client, &runtime, topic)).collect()
            }
            Err(error) => vec![error.to_string()],
        };
        // A session that has ended needs no answer.
        let _ = sender.send((!findings.is_empty()).then(|| findings.join("; ")));
    });
    asked
}

/// Its connections fail as the producer's do, and that one speaks.
struct Silent;

impl ClientContext for Silent {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, _: &str) {}
}

fn client(properties: BTreeMap<String, String>) -> Result<AdminClient<Silent>, KafkaError> {
    let mut config = ClientConfig::new();
    config.extend(properties);
    config.create_with_context(Silent)
}

/// What is wrong with a topic. Nothing when no broker answers: the producer tells that by itself.
fn trouble(client: &AdminClient<Silent>, runtime: &Handle, name: &str) -> Option<String> {
    let metadata = client.inner().fetch_metadata(Some(name), PATIENCE).ok()?;
    let topic = metadata.topics().iter().find(|topic| topic.name() == name)?;
    match topic.error().map(Code::from) {
        None => {}
        Some(Code::UnknownTopicOrPartition) => return Some(format!("topic {name} does not exist")),
        Some(code) => return Some(format!("topic {name}: {code}")),
    }
    if let Some(partition) = topic.partitions().iter().find(|partition| partition.leader() < 0) {
        return Some(format!("topic {name}: partition {} has no leader", partition.id()));
    }
    let needed = in_sync_needed(client, runtime, name)?;
    let partition = topic.partitions().iter().find(|partition| partition.isr().len() < needed)?;
    let found = partition.isr().len();
    let replicas = if found == 1 { "replica" } else { "replicas" };
    Some(format!(
        "topic {name}: partition {} has {found} in-sync {replicas}, and min.insync.replicas is {needed}",
        partition.id()
    ))
}

/// Unknown without the right to describe the topic's configuration.
fn in_sync_needed(client: &AdminClient<Silent>, runtime: &Handle, name: &str) -> Option<usize> {
    let topic = ResourceSpecifier::Topic(name);
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let described = runtime.block_on(client.describe_configs([&topic], &options)).ok()?;
    described.into_iter().next()?.ok()?.get("min.insync.replicas")?.value.as_ref()?.parse().ok()
}
