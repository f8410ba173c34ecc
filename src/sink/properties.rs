//! librdkafka's properties: the configuration's, over walpost's defaults, under what its guarantees rest on.

use std::collections::BTreeMap;

use crate::config::{Config, KafkaProperties};

pub(super) const GAPLESS: &str = "enable.gapless.guarantee";

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
        // What is in flight is bounded by the ledger; a second bound would only refuse one large record.
        ("queue.buffering.max.messages", "0".to_owned()),
        ("queue.buffering.max.kbytes", "2147483647".to_owned()),
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
pub(super) fn admin_properties(config: &Config) -> BTreeMap<String, String> {
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
pub(super) fn principal(kafka: &KafkaProperties) -> String {
    let get = |name| kafka.get(name);
    match (get("sasl.username"), get("ssl.certificate.location").or(get("ssl.certificate.pem"))) {
        (Some(user), _) => format!("User:{user}"),
        (None, Some(_)) => "of the client certificate".to_owned(),
        (None, None) => "User:ANONYMOUS".to_owned(),
    }
}
