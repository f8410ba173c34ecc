//! Keys of Kafka Connect: source connectors, converters, created topics, workers.

use super::{Key, only, own, record, void};
use crate::config::connector::kind::Kind::{
    Boolean, Choice, CountOrBroker, Int, List, Long, Name, Regexes, Text, Word,
};

const NO_WORKER: &str = "there is no worker";
const RESTARTS: &str = "walpost starts again by itself, without end";
const SLOT: &str = "the slot is the state";
const TRANSACTIONS: &str = "delivery = \"exactly_once\" is walpost's own";

/// Of every source connector.
pub(super) const SOURCE: &[Key] = &[
    record("name", Name, None),
    only(
        "connector.class",
        Name,
        None,
        &["io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector", "Postgres"],
        "walpost stands in for Debezium's PostgreSQL connector",
    ),
    void("connector.plugin.version", Text, None, NO_WORKER),
    void("tasks.max", Int(1), Some("1"), "one process reads the slot"),
    void("tasks.max.enforce", Boolean, Some("true"), "one process reads the slot"),
    record("key.converter", Name, None),
    record("value.converter", Name, None),
    record("header.converter", Name, Some("org.apache.kafka.connect.storage.SimpleHeaderConverter")),
    void("key.converter.plugin.version", Text, None, NO_WORKER),
    void("value.converter.plugin.version", Text, None, NO_WORKER),
    void("header.converter.plugin.version", Text, None, NO_WORKER),
    record("transforms", List, Some("")),
    record("predicates", List, Some("")),
    record("errors.tolerance", Word(&["none", "all"]), Some("none")),
    void("errors.retry.timeout", Long(-1), Some("0"), RESTARTS),
    void("errors.retry.delay.max.ms", Long(1), Some("60000"), RESTARTS),
    void("errors.log.enable", Boolean, Some("false"), "what cannot be delivered is always logged, without its content"),
    void("errors.log.include.messages", Boolean, Some("false"), "walpost logs no content"),
    void("config.action.reload", Choice(&["none", "restart"]), Some("restart"), NO_WORKER),
    record("topic.creation.groups", List, Some("")),
    void("exactly.once.support", Choice(&["requested", "required"]), Some("requested"), TRANSACTIONS),
    void("transaction.boundary", Choice(&["poll", "interval", "connector"]), Some("poll"), TRANSACTIONS),
    void("transaction.boundary.interval.ms", Long(0), None, TRANSACTIONS),
    void("offsets.storage.topic", Text, None, SLOT),
];

/// Behind `topic.creation.<group>.`.
pub(super) const TOPIC_CREATION: &[Key] = &[
    record("partitions", CountOrBroker, None),
    record("replication.factor", CountOrBroker, None),
    record("include", Regexes, None),
    record("exclude", Regexes, None),
];

/// Behind `key.converter.` and the like: of all classes that are available.
pub(super) const CONVERTER: &[Key] = &[
    record("schemas.enable", Boolean, Some("true")),
    void("schemas.cache.size", Int(0), Some("1000"), "schemas are written once"),
    record("decimal.format", Choice(&["BASE64", "NUMERIC"]), Some("BASE64")),
    record("replace.null.with.default", Boolean, Some("true")),
    void("schema.content", Text, None, "it says how to read, not how to write"),
    record("converter.encoding", Name, Some("UTF-8")),
    void("converter.type", Choice(&["key", "value", "header"]), None, "the key says it"),
    record("delegate.converter.type", Name, None),
];

/// Of workers: standalone, distributed, and the clients that they make.
pub(super) const WORKER: &[Key] = &[
    own("bootstrap.servers", Name, Some("localhost:9092"), "brokers"),
    own("client.dns.lookup", Text, None, "kafka"),
    own("client.id", Text, None, "kafka"),
    void("group.id", Text, None, NO_WORKER),
    void("offset.storage.topic", Text, None, SLOT),
    void("offset.storage.file.filename", Text, None, SLOT),
    void("offset.storage", Text, None, SLOT),
    void("offset.flush.interval.ms", Long(0), Some("60000"), SLOT),
    void("offset.flush.timeout.ms", Long(0), Some("5000"), SLOT),
    void("config.storage.topic", Text, None, NO_WORKER),
    void("status.storage.topic", Text, None, NO_WORKER),
    void("plugin.path", Text, None, "walpost has no plugins"),
    void("plugin.discovery", Text, None, "walpost has no plugins"),
    void("plugin.version", Text, None, "walpost has no plugins"),
    void("config.providers", List, Some(""), "read where the values are"),
    void("connector.client.config.override.policy", Text, Some("All"), NO_WORKER),
    record("topic.creation.enable", Boolean, Some("true")),
    void("topic.tracking.enable", Boolean, Some("true"), NO_WORKER),
    void("topic.tracking.allow.reset", Boolean, Some("true"), NO_WORKER),
    void("exactly.once.source.support", Choice(&["disabled", "preparing", "enabled"]), Some("disabled"), TRANSACTIONS),
    void("task.shutdown.graceful.timeout.ms", Long(0), Some("5000"), "shutdown_grace"),
    void("listeners", Text, None, NO_WORKER),
    void("admin.listeners", Text, None, NO_WORKER),
    void("access.control.allow.origin", Text, None, NO_WORKER),
    void("access.control.allow.methods", Text, None, NO_WORKER),
    void("response.http.headers.config", Text, None, NO_WORKER),
    void("header.converter.plugin", Text, None, NO_WORKER),
    void("worker.sync.timeout.ms", Int(0), Some("3000"), NO_WORKER),
    void("worker.unsync.backoff.ms", Int(0), Some("300000"), NO_WORKER),
    void("connect.protocol", Text, Some("sessioned"), NO_WORKER),
    void("scheduled.rebalance.max.delay.ms", Int(0), Some("300000"), NO_WORKER),
    void("inter.worker.key.generation.algorithm", Text, None, NO_WORKER),
    void("inter.worker.key.size", Text, None, NO_WORKER),
    void("inter.worker.key.ttl.ms", Text, None, NO_WORKER),
    void("inter.worker.signature.algorithm", Text, None, NO_WORKER),
    void("inter.worker.verification.algorithms", Text, None, NO_WORKER),
    void("session.timeout.ms", Int(0), None, NO_WORKER),
    void("rebalance.timeout.ms", Int(0), None, NO_WORKER),
    void("metric.reporters", Text, None, "walpost has metrics of its own"),
    void("metrics.sample.window.ms", Text, None, "walpost has metrics of its own"),
    void("metrics.num.samples", Text, None, "walpost has metrics of its own"),
    void("metrics.recording.level", Text, None, "walpost has metrics of its own"),
    void("auto.include.jmx.reporter", Text, None, "walpost has metrics of its own"),
    void("record.processing.threads", Text, None, "records keep their order"),
    void("record.processing.order", Text, None, "records keep their order"),
    void("record.processing.shutdown.timeout.ms", Int(0), Some("1000"), "shutdown_grace"),
    void("record.processing.with.serial.consumer", Boolean, None, "records keep their order"),
    void("task.management.timeout.ms", Int(0), Some("180000"), RESTARTS),
];
