//! Findings about Kafka and the topics that records go to.

use super::{Finding, connector_topics, size};
use crate::{
    config::{Config, Delivery, ExactlyOnce, Topics},
    kafka::{
        client::{Unreachable, hint},
        facts::{Kafka, Topic},
        rights::Rights,
        topics::Pattern,
    },
};

/// librdkafka's default of `message.max.bytes`.
const CLIENT_MESSAGE_BYTES: i64 = 1_000_000;

/// No broker was reached.
pub fn unreachable(brokers: &str, error: &Unreachable) -> Finding {
    let text = error.to_string();
    let lower = text.to_lowercase();
    let remedy = if lower.contains("sasl") || lower.contains("authentication") {
        "mend \"sasl.username\", \"sasl.password\", \"sasl.mechanism\" and \"security.protocol\" in [kafka]"
    } else if !hint(&text).is_empty() {
        "TLS on that listener, and \"ssl.ca.location\" in [kafka]; or, where nobody else is on the way, \"security.protocol\" = \"plaintext\" there \
         (--kafka security.protocol=plaintext): TLS is the default to brokers that are not on this machine"
    } else if lower.contains("ssl") || lower.contains("certificate") {
        "mend \"security.protocol\" and \"ssl.ca.location\" in [kafka], or the broker's certificate"
    } else if lower.contains("resolve") {
        "mend the host names in `brokers`"
    } else {
        "start the brokers, or mend `brokers`; a broker that speaks TLS or SASL only needs \"security.protocol\" in [kafka]"
    };
    Finding::error(format!("brokers {brokers}"), format!("cannot be reached: {text}"), remedy)
}

/// What is wrong with the cluster and the topics that the configuration leads to.
pub fn kafka(config: &Config, facts: &Kafka) -> Vec<Finding> {
    let client_bytes =
        config.kafka.get("message.max.bytes").and_then(|value| value.parse().ok()).unwrap_or(CLIENT_MESSAGE_BYTES);
    let patterns = Pattern::all(config);
    let creation = config.debezium.as_ref().and_then(|debezium| debezium.connector().topic_creation.as_ref());
    let topics = Topics { create: config.topics.create || creation.is_some(), ..config.topics };
    let mut findings = missing(facts, topics, &patterns);
    let positions_topic = config.delivery.positions_topic();
    let lacking =
        |(topic, rights): (&String, &Rights)| lacking(topic, *rights, Some(topic.as_str()) == positions_topic);
    findings.extend(facts.rights.iter().filter_map(lacking));
    findings.extend(creation.into_iter().flat_map(|creation| connector_topics(creation, facts)));
    if let Some(reason) = &facts.undescribed {
        findings.push(Finding::note(
            "kafka principal",
            format!("may not see all settings ({reason}): size limits are found only by sending"),
            "kafka-acls --add --allow-principal User:… --operation DescribeConfigs --topic '*' --cluster",
        ));
    }
    if let Some(reason) = &facts.rights_unknown {
        findings.push(Finding::note(
            "kafka principal",
            format!("cannot be asked what it may do ({reason}): a missing right is found only by sending"),
            "nothing, if records arrive; else ask again",
        ));
    }
    if let Delivery::ExactlyOnce(exactly_once) = &config.delivery {
        findings.extend(positions(exactly_once, facts));
    }
    for (name, topic) in &facts.topics {
        findings.extend(of_topic(name, topic, facts.brokers, client_bytes));
    }
    let single: Vec<_> = facts.topics.iter().filter(|(_, topic)| topic.partitions == 1).map(|(name, _)| name).collect();
    if let Some(first) = single.first() {
        findings.push(Finding::note(
            format!("topic {first}"),
            match single.len() {
                1 => "has one partition: one consumer of a group at a time".to_owned(),
                2 => "has one partition, as one other topic: one consumer of a group at a time".to_owned(),
                n => format!("has one partition, as {} other topics: one consumer of a group at a time", n - 1),
            },
            "decide before there is data: more partitions later change which partition a key goes to",
        ));
    }
    for pattern in &patterns {
        findings.extend(partitions(pattern, facts, config.topics));
    }
    if facts.topics.is_empty() {
        if let Some(bytes) = facts.message_bytes_max.filter(|bytes| *bytes < client_bytes) {
            findings.push(Finding::warning(
                "brokers",
                format!("take records of up to {}, walpost sends up to {}", size(bytes), size(client_bytes)),
                format!("\"message.max.bytes\" = {bytes} in [kafka], or raise message.max.bytes of the brokers"),
            ));
        }
    }
    findings
}

/// Topics that records will go to and that do not exist.
fn missing(facts: &Kafka, topics: Topics, patterns: &[Pattern]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pattern in patterns {
        let (about, what) = match pattern.topic() {
            // Kafka hides from a principal without rights whether a topic is there.
            Some(topic) if facts.topics.contains_key(topic) || facts.rights.contains_key(topic) => continue,
            Some(topic) => (format!("topic {topic}"), "does not exist"),
            None => (format!("topics {pattern}"), "are named by the events: a new kind of event needs a new topic"),
        };
        let fixed = pattern.topic().is_some();
        findings.push(match (topics.create, facts.auto_create) {
            (true, _) if fixed => Finding::note(about, what, "nothing: walpost creates it (topics.create)"),
            (false, Some(true)) if fixed => {
                Finding::note(about, what, "nothing: the brokers create it (auto.create.topics.enable)")
            }
            // Whoever creates topics creates new ones too.
            (true, _) | (false, Some(true)) => continue,
            (false, Some(false)) if fixed => Finding::error(
                about,
                format!("{what}, and neither walpost nor the brokers create topics"),
                "topics.create = true in the configuration, or kafka-topics --create",
            ),
            (false, None) if fixed => Finding::warning(
                about,
                format!("{what}, and whether the brokers create topics is not visible"),
                "topics.create = true in the configuration, or kafka-topics --create",
            ),
            (false, Some(false)) => Finding::warning(
                about,
                format!("{what}, and neither walpost nor the brokers create topics"),
                "topics.create = true in the configuration, or create each topic before its first event",
            ),
            (false, None) => Finding::note(
                about,
                format!("{what}, and whether the brokers create topics is not visible"),
                "topics.create = true in the configuration, or create each topic before its first event",
            ),
        });
    }
    findings
}

/// Rights to a topic that are missing; `reads`: walpost reads it too.
fn lacking(topic: &str, rights: Rights, reads: bool) -> Option<Finding> {
    let (what, operations) = match (rights.write, rights.read || !reads) {
        (true, true) => return None,
        (false, true) => ("written to", "--operation Write"),
        (true, false) => ("read", "--operation Read"),
        (false, false) => ("written to or read", "--operation Write --operation Read"),
    };
    Some(Finding::error(
        format!("topic {topic}"),
        format!("may not be {what} by this principal, whether or not it exists: what goes there waits"),
        format!("kafka-acls --add --allow-principal User:… {operations} --topic {topic}"),
    ))
}

/// Topics of one template that are divided differently, or otherwise than walpost divides new ones.
fn partitions(pattern: &Pattern, facts: &Kafka, topics: Topics) -> Option<Finding> {
    let matched = || facts.topics.iter().filter(|(name, _)| pattern.matches(name));
    let (fewest, most) =
        (matched().min_by_key(|(_, topic)| topic.partitions)?, matched().max_by_key(|(_, topic)| topic.partitions)?);
    if fewest.1.partitions != most.1.partitions {
        let (few, many) = (fewest.1.partitions, most.1.partitions);
        return Some(Finding::note(
            format!("topics {pattern}"),
            format!(
                "have from {few} ({}) to {many} partitions ({}): a key has another partition in each, and consumers that \
                 join topics by partition do not find it",
                fewest.0, most.0
            ),
            "the same number for each before there is data, where consumers join them; else nothing",
        ));
    }
    let wanted = topics.partitions.and_then(|wanted| usize::try_from(wanted).ok()).filter(|_| topics.create)?;
    (fewest.1.partitions != wanted).then(|| {
        Finding::note(
            format!("topics {pattern}"),
            format!("have {} partitions, and topics.partitions is {wanted}: it is for new topics", fewest.1.partitions),
            "nothing; more partitions for a topic with data change which partition a key goes to, and so its order across the \
             change",
        )
    })
}

/// The topic that holds how far an exactly-once stream reaches. What it forgets is sent again.
fn positions(exactly_once: &ExactlyOnce, facts: &Kafka) -> Option<Finding> {
    let name = &exactly_once.positions_topic;
    let about = format!("topic {name}");
    let Some(topic) = &facts.positions else {
        // What is hidden is told of as a missing right.
        return (!facts.rights.contains_key(name))
            .then(|| Finding::note(about, "does not exist", "nothing: walpost creates it, compacted"));
    };
    match topic.cleanup_policy.as_deref() {
        Some("compact") if topic.replicas == 1 && facts.brokers > 1 => Some(Finding::warning(
            about,
            "has one replica: with that broker's loss the positions are lost, and what Kafka has may be sent again",
            "kafka-reassign-partitions, or exactly_once.positions_replication before walpost creates it",
        )),
        Some("compact") | None => None,
        Some(policy) => Some(Finding::warning(
            about,
            format!(
                "holds the positions and has cleanup.policy={policy}: it forgets them, and what Kafka has is sent again"
            ),
            format!("kafka-configs --alter --topic {name} --add-config cleanup.policy=compact"),
        )),
    }
}

fn of_topic(name: &str, topic: &Topic, brokers: usize, client_bytes: i64) -> Vec<Finding> {
    let about = format!("topic {name}");
    let mut findings = Vec::new();
    if let Some(bytes) = topic.message_bytes_max.filter(|bytes| *bytes < client_bytes) {
        findings.push(Finding::warning(
            &about,
            format!("takes records of up to {}, walpost sends up to {}", size(bytes), size(client_bytes)),
            format!("\"message.max.bytes\" = {bytes} in [kafka], or raise max.message.bytes of the topic"),
        ));
    }
    match topic.in_sync_min {
        Some(min) if min > topic.replicas => findings.push(Finding::error(
            &about,
            format!("wants {min} replicas in sync and has {}: no record can be acknowledged", topic.replicas),
            format!("lower min.insync.replicas of the topic to {} or less, or add replicas", topic.replicas.max(1)),
        )),
        Some(min) if min == topic.replicas && min > 1 => findings.push(Finding::warning(
            &about,
            format!("wants all of its {min} replicas in sync: it takes no record while any broker is down"),
            format!("min.insync.replicas = {} for the topic", min - 1),
        )),
        Some(1) if topic.replicas > 1 => findings.push(Finding::note(
            &about,
            "takes a record that only one broker has: that broker's loss loses it",
            "min.insync.replicas = 2 for the topic",
        )),
        Some(_) | None => {}
    }
    if topic.replicas == 1 && brokers > 1 {
        findings.push(Finding::note(
            &about,
            "has one replica: that broker's loss loses its records",
            "kafka-reassign-partitions, or topics.replication in the configuration for topics that walpost creates",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{positions as positions_of, *};
    use crate::check::Severity;

    fn topics(create: bool) -> Topics {
        Topics { create, partitions: None, replication: None }
    }

    #[test]
    fn a_missing_topic_is_as_bad_as_the_lack_of_someone_to_create_it() {
        use Severity::{Error, Note, Warning};
        let found = |pattern: &str, create, auto_create| {
            let facts = Kafka { auto_create, ..Kafka::default() };
            let findings = missing(&facts, topics(create), &[pattern.parse().unwrap()]);
            findings.first().map(|finding| finding.severity)
        };
        for (pattern, create, auto_create, severity) in [
            ("orders", true, None, Some(Note)),
            ("orders", false, Some(true), Some(Note)),
            ("orders", false, Some(false), Some(Error)),
            ("orders", false, None, Some(Warning)),
            ("o.*", true, Some(false), None),
            ("o.*", false, Some(true), None),
            ("o.*", false, Some(false), Some(Warning)),
            ("o.*", false, None, Some(Note)),
        ] {
            assert_eq!(found(pattern, create, auto_create), severity, "{pattern} {create} {auto_create:?}");
        }
        let mut facts = Kafka::default();
        facts.topics.insert("orders".to_owned(), Topic::default());
        assert_eq!(missing(&facts, topics(false), &["orders".parse().unwrap()]), []);
    }

    #[test]
    fn a_topic_without_rights_is_forbidden_rather_than_missing() {
        let mut facts = Kafka::default();
        facts.rights.insert("orders".to_owned(), Rights::default());
        assert_eq!(missing(&facts, topics(false), &["orders".parse().unwrap()]), []);
        let found = |rights, reads| lacking("orders", rights, reads).map(|finding| finding.remedy);
        let (read, write) = (Rights { read: true, write: false }, Rights { read: false, write: true });
        assert_eq!(found(write, false), None);
        assert_eq!(found(Rights { read: true, write: true }, true), None);
        assert!(found(read, false).unwrap().ends_with("--operation Write --topic orders"));
        assert!(found(write, true).unwrap().ends_with("--operation Read --topic orders"));
        assert!(found(Rights::default(), true).unwrap().contains("--operation Write --operation Read"));
    }

    #[test]
    fn topics_that_are_divided_differently_are_named() {
        let found = |counts: &[(&str, usize)], create, wanted| {
            let topic = |partitions| Topic { partitions, ..Topic::default() };
            let topics = counts.iter().map(|(name, count)| ((*name).to_owned(), topic(*count))).collect();
            let settings = Topics { create, partitions: wanted, replication: None };
            partitions(&"o.*".parse().unwrap(), &Kafka { topics, ..Kafka::default() }, settings)
        };
        assert_eq!(found(&[], true, Some(6)), None);
        assert_eq!(found(&[("o.a", 6), ("o.b", 6), ("x", 1)], true, Some(6)), None);
        assert_eq!(found(&[("o.a", 3)], true, None), None);
        assert_eq!(found(&[("o.a", 3)], false, Some(6)), None);
        let differ = found(&[("o.a", 6), ("o.b", 3), ("o.c", 12)], false, None).unwrap();
        assert!(differ.what.contains("from 3 (o.b) to 12 partitions (o.c)"), "{differ:?}");
        let grown = found(&[("o.a", 3)], true, Some(6)).unwrap();
        assert_eq!(grown.severity, Severity::Note);
        assert!(grown.what.contains("have 3 partitions, and topics.partitions is 6"), "{grown:?}");
    }

    #[test]
    fn positions_that_kafka_forgets_are_named() {
        use Severity::{Note, Warning};
        let exactly_once = ExactlyOnce {
            transactional_id: None,
            commit_interval: Duration::from_millis(20),
            transaction_timeout: Duration::from_secs(60),
            commit_records: 5_000,
            positions_topic: "walpost.positions".to_owned(),
            positions_replication: None,
        };
        let found = |positions: Option<Topic>| {
            let facts = Kafka { brokers: 3, positions, ..Kafka::default() };
            positions_of(&exactly_once, &facts).map(|finding| finding.severity)
        };
        let with =
            |replicas, policy: &str| Topic { replicas, cleanup_policy: Some(policy.to_owned()), ..Topic::default() };
        assert_eq!(found(None), Some(Note));
        assert_eq!(found(Some(Topic::default())), None);
        assert_eq!(found(Some(with(3, "compact"))), None);
        assert_eq!(found(Some(with(1, "compact"))), Some(Warning));
        assert_eq!(found(Some(with(3, "delete"))), Some(Warning));
        assert_eq!(found(Some(with(3, "compact,delete"))), Some(Warning));
    }

    #[test]
    fn limits_and_replicas_of_a_topic() {
        use Severity::{Error, Note, Warning};
        let good = Topic {
            partitions: 6,
            replicas: 3,
            message_bytes_max: Some(1_048_588),
            in_sync_min: Some(2),
            cleanup_policy: None,
        };
        let found = |topic: Topic| {
            let findings = of_topic("t", &topic, 3, CLIENT_MESSAGE_BYTES);
            findings.iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        assert_eq!(found(good.clone()), []);
        assert_eq!(found(Topic { message_bytes_max: Some(100_000), ..good.clone() }), [Warning]);
        assert_eq!(found(Topic { in_sync_min: Some(4), ..good.clone() }), [Error]);
        assert_eq!(found(Topic { in_sync_min: Some(3), ..good.clone() }), [Warning]);
        assert_eq!(found(Topic { in_sync_min: Some(1), ..good.clone() }), [Note]);
        assert_eq!(found(Topic { replicas: 1, in_sync_min: Some(1), ..good.clone() }), [Note]);
        assert_eq!(found(Topic { message_bytes_max: None, in_sync_min: None, ..good }), []);
    }

    #[test]
    fn the_remedy_follows_the_reason() {
        let remedy = |reason: &str| unreachable("b:1", &Unreachable { reasons: vec![reason.to_owned()] }).remedy;
        assert!(remedy("SASL authentication error: Authentication failed").contains("sasl.password"));
        assert!(remedy("SSL handshake failed: certificate verify failed").contains("ssl.ca.location"));
        assert!(
            remedy("SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?")
                .contains("=plaintext")
        );
        assert!(remedy("Failed to resolve 'kafka-9:9092'").contains("host names"));
        assert!(remedy("Connect to ipv4#127.0.0.1:1 failed: Connection refused").contains("start the brokers"));
    }
}
