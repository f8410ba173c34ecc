//! Clients that only look, made from the configuration of the producer.

use std::{sync::Mutex, time::Duration};

use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode as Code},
    metadata::Metadata,
};

use crate::config::Config;

/// The properties of a client that consumes without a group: nothing is committed, no other consumer notices.
pub fn consumer_properties(config: &Config) -> ClientConfig {
    let mut properties = ClientConfig::new();
    properties.set("client.id", "walpost");
    for (name, value) in config.kafka.iter() {
        properties.set(name, value);
    }
    properties
        .set("bootstrap.servers", &config.brokers)
        // librdkafka wants a name even where no group is joined.
        .set("group.id", "walpost-look")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("allow.auto.create.topics", "false")
        .set_log_level(RDKafkaLogLevel::Warning);
    properties
}

/// Remembers why brokers could not be reached: librdkafka's calls then only say that time ran out.
#[derive(Debug, Default)]
pub struct Reasons(Mutex<Vec<String>>);

impl Reasons {
    /// What went wrong so far, each reason once, in the order in which it first happened.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics while holding the reasons").clone()
    }

    fn add(&self, reason: &str) {
        let mut reasons = self.0.lock().expect("nobody panics while holding the reasons");
        if !reasons.iter().any(|known| known == reason) {
            reasons.push(reason.to_owned());
        }
    }
}

impl ClientContext for Reasons {
    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            // Sums up the others.
            Some(Code::AllBrokersDown) => {}
            _ => self.add(without_timing(reason)),
        }
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "kafka client");
    }
}

impl ConsumerContext for Reasons {}

/// Asks for the cluster's topics. What keeps brokers from answering is told by events, which wait for a poll.
pub(super) fn metadata(client: &BaseConsumer<Reasons>, timeout: Duration) -> Result<Metadata, Unreachable> {
    client.fetch_metadata(None, timeout).map_err(|error| {
        // A poll serves one event, and answers with nothing also when that was a line for the log.
        for _ in 0..EVENTS_MAX {
            client.poll(Duration::ZERO);
        }
        let mut reasons = client.context().all();
        if reasons.is_empty() {
            reasons.push(error.to_string());
        }
        Unreachable { reasons }
    })
}

/// What helps against librdkafka's reason, where that does not say it.
pub fn hint(reason: &str) -> &'static str {
    if reason.contains("PLAINTEXT broker listener") {
        "; where the listener is without TLS, and nobody else is on the way, write \"security.protocol\" = \"plaintext\" in [kafka] \
         (--kafka security.protocol=plaintext): TLS is the default to brokers that are not on this machine"
    } else {
        ""
    }
}

/// Most events that are looked through for a reason.
const EVENTS_MAX: usize = 100;

/// No broker answered in time, with every reason that librdkafka gave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", reasons.join("; "))]
pub struct Unreachable {
    pub reasons: Vec<String>,
}

/// `localhost:9/bootstrap: Connect to … failed: Connection refused (after 0ms in state CONNECT)`, without the last part,
/// which differs each time.
fn without_timing(reason: &str) -> &str {
    reason.find(" (after ").map_or(reason, |at| &reason[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once() {
        let reasons = Reasons::default();
        let error = || KafkaError::Global(Code::BrokerTransportFailure);
        reasons.error(error(), "b:1: refused (after 0ms in state CONNECT)");
        reasons.error(error(), "b:1: refused (after 7ms in state CONNECT, 3 identical error(s) suppressed)");
        reasons.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(reasons.all(), ["b:1: refused"]);
    }
}
