//! The topics' limits, which may change while walpost runs.
//!
//! Kafka tells nobody that a topic's `max.message.bytes` is another now. So it is asked again and again, about the topics
//! in turn, a bounded number at once, beside the stream: nothing waits for an answer, and none leaves what is known. Up
//! to 100 topics are read every 10 s, 2,000 within some minutes. A limit that was lowered since is met by a refusal, as
//! one that is not told: see [`BatchBytes`](super::kafka::BatchBytes).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{
    admin::{AdminClient, AdminOptions, OwnedResourceSpecifier, ResourceSpecifier},
    client::DefaultClientContext,
};
use tokio::task::JoinHandle;

use super::kafka::Topic;

/// Between two questions.
const AGAIN: Duration = Duration::from_secs(10);
/// Most topics of a question: Kafka answers with all their settings, some kilobytes each.
const TOPICS_MAX: usize = 100;
/// How long the cluster may take for an answer; then it is not known.
const PATIENCE: Duration = Duration::from_secs(3);

/// A topic's name and its `max.message.bytes`: most bytes of a batch.
pub(super) type Limit = (String, usize);

/// Asks again.
#[derive(Debug)]
pub(super) struct Limits {
    due: Instant,
    /// The first topic of the next question.
    next: usize,
    answer: Option<JoinHandle<Vec<Limit>>>,
}

impl Limits {
    pub(super) fn new(now: Instant) -> Limits {
        Limits { due: now + AGAIN, next: 0, answer: None }
    }

    /// Waits for the limits of some of the topics, as they are now. Cancel safe.
    pub(super) async fn told(
        &mut self,
        admin: &Arc<AdminClient<DefaultClientContext>>,
        topics: &[Topic],
    ) -> Vec<Limit> {
        loop {
            if let Some(answer) = &mut self.answer {
                let told = answer.await.expect("reading limits does not panic");
                self.answer = None;
                return told;
            }
            tokio::time::sleep_until(self.due.into()).await;
            self.due = Instant::now() + AGAIN;
            let chunk = topics.iter().skip(self.next).take(TOPICS_MAX);
            self.next = if self.next + TOPICS_MAX < topics.len() { self.next + TOPICS_MAX } else { 0 };
            // What was not told would be denied again and again, and fill the brokers' logs.
            let told = chunk.filter(|topic| topic.batch_bytes_max.is_some());
            let names: Vec<_> = told.map(|topic| topic.name.clone()).collect();
            if !names.is_empty() {
                let admin = Arc::clone(admin);
                self.answer = Some(tokio::spawn(async move { read(&admin, &names).await }));
            }
        }
    }
}

/// Asks for the limits of topics, at least one. Those that are not told, such as for want of DESCRIBE_CONFIGS, are absent.
pub(super) async fn read(admin: &AdminClient<DefaultClientContext>, topics: &[String]) -> Vec<Limit> {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let asked: Vec<_> = topics.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    let described = admin.describe_configs(&asked, &options).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the topics' limits are not known");
        Vec::new()
    });
    let limit = |resource: rdkafka::admin::ConfigResource| {
        let limit = resource.get("max.message.bytes")?.value.as_deref()?.parse().ok()?;
        match resource.specifier {
            OwnedResourceSpecifier::Topic(name) => Some((name, limit)),
            OwnedResourceSpecifier::Broker(_) | OwnedResourceSpecifier::Group(_) => None,
        }
    };
    described.into_iter().flatten().filter_map(limit).collect()
}
