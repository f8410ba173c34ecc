//! Keys of Debezium's PostgreSQL connector, 3.6.1.

use super::{Key, only, own, record, void};
use crate::{
    config::connector::{
        Autocreate,
        kind::Kind::{Boolean, Choice, Int, List, Long, Name, Operations, Regexes, Secret, Slot, Text, Topic},
    },
    debezium::modes::{BinaryMode, DecimalMode, FailureMode, HstoreMode, IntervalMode, NameAdjustment, TimeMode},
};

const QUEUE: &str = "in_flight_records and in_flight_bytes bound what is under way";
const NO_SIGNALS: &str = "walpost reads no signals";
const LOCKS: &str = "walpost's snapshot takes no locks";
const SNAPSHOT_DETAIL: &str = "walpost's snapshot has no such setting";
const RESTARTS: &str = "walpost starts again by itself, without end";
const LINEAGE: &str = "walpost reports no lineage";
const CUSTOM: &str = "walpost runs no Java classes";
const ANY: i64 = i32::MIN as i64;
const ANY_LONG: i64 = i64::MIN;

pub(super) const POSTGRES: &[Key] = &[
    // Where the database is.
    own("database.hostname", Name, None, "database_url"),
    own("database.port", Int(1), Some("5432"), "database_url"),
    own("database.user", Name, None, "database_url"),
    own("database.password", Secret, None, "database_url"),
    own("database.dbname", Name, None, "database_url"),
    own(
        "database.sslmode",
        Choice(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]),
        Some("prefer"),
        "database_url",
    ),
    own("database.sslcert", Name, None, "database_url"),
    own("database.sslkey", Name, None, "database_url"),
    own("database.sslpassword", Secret, None, "database_url"),
    own("database.sslrootcert", Name, None, "database_url"),
    only(
        "database.sslfactory",
        Text,
        None,
        &[""],
        "a socket factory is a Java class; sslmode and sslrootcert say the same",
    ),
    own("database.tcpKeepAlive", Boolean, Some("true"), "database_url"),
    void(
        "database.initial.statements",
        Text,
        None,
        "walpost runs no statements when it connects; `options` in database_url sets parameters",
    ),
    void("database.query.timeout.ms", Int(ANY), Some("600000"), "walpost waits as long as the server does"),
    void("database.connection.timeout.ms", Long(ANY_LONG), Some("600000"), "connect_timeout in database_url"),
    only("database.connection.factory.class", Text, None, &[""], CUSTOM),
    void("connection.validation.timeout.ms", Long(1), Some("60000"), "walpost notices a dead link by itself"),
    void("read.only", Boolean, Some("false"), "walpost writes to its own tables only"),
    // Slot and publication.
    only(
        "plugin.name",
        Choice(&["pgoutput", "decoderbufs"]),
        Some("decoderbufs"),
        &["pgoutput"],
        "walpost reads pgoutput; make a slot with it",
    ),
    own("slot.name", Slot, Some("debezium"), "slot"),
    void(
        "slot.drop.on.stop",
        Boolean,
        Some("false"),
        "walpost keeps its slot: without it what is written meanwhile is lost",
    ),
    own("slot.failover", Boolean, Some("false"), "failover"),
    void("slot.stream.params", Text, None, "walpost sets pgoutput's parameters itself"),
    void("slot.max.retries", Int(ANY), Some("6"), RESTARTS),
    void("slot.retry.delay.ms", Long(ANY_LONG), Some("10000"), RESTARTS),
    void("slot.seek.to.known.offset.on.start", Boolean, Some("false"), "the slot is the state"),
    void(
        "offset.mismatch.strategy",
        Choice(&["no_validation", "trust_offset", "trust_slot", "trust_greater_lsn"]),
        Some("no_validation"),
        "the slot is the state",
    ),
    void("create.slot.command.timeout", Long(ANY_LONG), Some("90"), "walpost waits for the slot"),
    own("publication.name", Name, Some("dbz_publication"), "publication"),
    record("publication.autocreate.mode", Choice(Autocreate::NAMES), Some("all_tables")),
    record("publish.via.partition.root", Boolean, Some("false")),
    void("replica.identity.autoset.values", Text, None, "inserts need no replica identity"),
    own("status.update.interval.ms", Int(1), Some("10000"), "status_interval"),
    void("lsn.flush.timeout.ms", Long(1), Some("30000"), "confirming waits for nothing"),
    void("lsn.flush.timeout.action", Choice(&["fail", "warn", "ignore"]), Some("fail"), "confirming waits for nothing"),
    only(
        "lsn.flush.mode",
        Choice(&["connector", "manual", "connector_and_driver"]),
        None,
        &["connector", "connector_and_driver"],
        "walpost confirms to the slot what is delivered, else the log would grow without end",
    ),
    only(
        "flush.lsn.source",
        Boolean,
        Some("true"),
        &["true"],
        "walpost confirms to the slot what is delivered, else the log would grow without end",
    ),
    void("xmin.fetch.interval.ms", Long(0), Some("0"), "walpost needs no xmin"),
    void(
        "log.position.check.enable",
        Boolean,
        Some("true"),
        "walpost always looks whether the slot has what is needed",
    ),
    // Which rows.
    record("schema.include.list", Regexes, None),
    record("schema.exclude.list", Regexes, None),
    record("table.include.list", Regexes, None),
    record("table.exclude.list", Regexes, None),
    record("column.include.list", Regexes, None),
    record("column.exclude.list", Regexes, None),
    record("table.ignore.builtin", Boolean, Some("true")),
    void("database.include.list", Regexes, None, "PostgreSQL's connector reads one database"),
    void("database.exclude.list", Regexes, None, "PostgreSQL's connector reads one database"),
    record("message.prefix.include.list", Regexes, None),
    record("message.prefix.exclude.list", Regexes, None),
    record("skipped.operations", Operations, Some("t")),
    record("skip.messages.without.change", Boolean, Some("false")),
    record("tombstones.on.delete", Boolean, Some("true")),
    void("guardrail.collections.max", Int(0), Some("0"), "only outbox tables are read"),
    void("guardrail.collections.limit.action", Choice(&["warn", "fail"]), Some("warn"), "only outbox tables are read"),
    // Snapshot.
    record(
        "snapshot.mode",
        Choice(&["always", "initial", "no_data", "initial_only", "when_needed", "configuration_based", "custom"]),
        Some("initial"),
    ),
    only("snapshot.mode.custom.name", Text, None, &[""], CUSTOM),
    record("snapshot.mode.configuration.based.snapshot.data", Boolean, Some("false")),
    void(
        "snapshot.mode.configuration.based.snapshot.schema",
        Boolean,
        Some("false"),
        "PostgreSQL's stream carries its schemas",
    ),
    record("snapshot.mode.configuration.based.start.stream", Boolean, Some("false")),
    void(
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
        Boolean,
        Some("false"),
        "PostgreSQL's stream carries its schemas",
    ),
    record("snapshot.mode.configuration.based.snapshot.on.data.error", Boolean, Some("false")),
    void(
        "snapshot.isolation.mode",
        Choice(&["serializable", "repeatable_read", "read_committed", "read_uncommitted"]),
        Some("serializable"),
        "walpost reads the rows as they were when the slot was made",
    ),
    void("snapshot.locking.mode", Choice(&["shared", "none", "custom"]), Some("none"), LOCKS),
    void("snapshot.locking.mode.custom.name", Text, None, LOCKS),
    void("snapshot.lock.timeout.ms", Long(ANY_LONG), Some("10000"), LOCKS),
    only("snapshot.query.mode", Choice(&["select_all", "custom"]), Some("select_all"), &["select_all"], CUSTOM),
    only("snapshot.query.mode.custom.name", Text, None, &[""], CUSTOM),
    only("snapshot.select.statement.overrides", Text, None, &[""], "walpost reads whole tables in snapshots"),
    void("snapshot.include.collection.list", Regexes, None, "every outbox is read"),
    void("snapshot.delay.ms", Long(0), Some("0"), SNAPSHOT_DETAIL),
    void("streaming.delay.ms", Long(0), Some("0"), SNAPSHOT_DETAIL),
    void("snapshot.fetch.size", Int(0), Some("10240"), SNAPSHOT_DETAIL),
    void("snapshot.max.threads", Int(1), Some("1"), SNAPSHOT_DETAIL),
    void("snapshot.max.threads.multiplier", Int(1), Some("1"), SNAPSHOT_DETAIL),
    void("legacy.snapshot.max.threads", Boolean, Some("false"), SNAPSHOT_DETAIL),
    void("snapshot.scan.all.columns.force", Boolean, Some("false"), SNAPSHOT_DETAIL),
    void(
        "snapshot.tables.order.by.row.count",
        Choice(&["ascending", "descending", "disabled"]),
        Some("disabled"),
        SNAPSHOT_DETAIL,
    ),
    void("incremental.snapshot.chunk.size", Int(0), Some("1024"), NO_SIGNALS),
    void("incremental.snapshot.allow.schema.changes", Boolean, Some("false"), NO_SIGNALS),
    void(
        "incremental.snapshot.watermarking.strategy",
        Choice(&["INSERT_INSERT", "INSERT_DELETE"]),
        Some("INSERT_INSERT"),
        NO_SIGNALS,
    ),
    void("query.fetch.size", Int(0), Some("0"), SNAPSHOT_DETAIL),
    // How columns become values.
    record("binary.handling.mode", Choice(BinaryMode::NAMES), Some("bytes")),
    record("decimal.handling.mode", Choice(DecimalMode::NAMES), Some("precise")),
    record("time.precision.mode", Choice(TimeMode::NAMES), Some("adaptive")),
    record("interval.handling.mode", Choice(IntervalMode::NAMES), Some("numeric")),
    record("hstore.handling.mode", Choice(HstoreMode::NAMES), Some("json")),
    record("money.fraction.digits", Int(0), Some("2")),
    record("include.unknown.datatypes", Boolean, Some("false")),
    record("unavailable.value.placeholder", Text, Some("__debezium_unavailable_value")),
    record("schema.name.adjustment.mode", Choice(NameAdjustment::NAMES), Some("none")),
    record("field.name.adjustment.mode", Choice(NameAdjustment::NAMES), Some("none")),
    record("event.converting.failure.handling.mode", Choice(FailureMode::NAMES), Some("warn")),
    record("event.processing.failure.handling.mode", Choice(&["skip", "warn", "fail", "ignore"]), Some("fail")),
    record("message.key.columns", Text, None),
    only("converters", Text, None, &[""], CUSTOM),
    only("post.processors", Text, None, &[""], CUSTOM),
    only(
        "column.propagate.source.type",
        Regexes,
        None,
        &[""],
        "walpost's schemas have no parameters of the column's type",
    ),
    only(
        "datatype.propagate.source.type",
        Regexes,
        None,
        &[""],
        "walpost's schemas have no parameters of the column's type",
    ),
    only("include.schema.comments", Boolean, Some("false"), &["false"], "walpost's schemas have no comments"),
    void("include.schema.changes", Boolean, Some("true"), "PostgreSQL's connector has none"),
    void(
        "schema.refresh.mode",
        Choice(&["columns_diff", "columns_diff_exclude_unchanged_toast"]),
        Some("columns_diff"),
        "PostgreSQL's stream carries its schemas",
    ),
    // What else is written.
    record("topic.prefix", Topic, None),
    record("topic.delimiter", Topic, Some(".")),
    record("topic.transaction", Topic, Some("transaction")),
    record("topic.heartbeat.prefix", Topic, Some("__debezium-heartbeat")),
    record("topic.heartbeat.name", Text, None),
    void("heartbeat.topics.prefix", Text, Some("__debezium-heartbeat"), "Debezium 3 reads topic.heartbeat.prefix"),
    void("topic.cache.size", Int(ANY), Some("10000"), "names are made anew"),
    only(
        "topic.naming.strategy",
        Name,
        Some("io.debezium.schema.SchemaTopicNamingStrategy"),
        &["io.debezium.schema.SchemaTopicNamingStrategy"],
        CUSTOM,
    ),
    record("heartbeat.interval.ms", Int(0), Some("0")),
    void("heartbeat.action.query", Text, None, "walpost moves the slot of a quiet database without writing to it"),
    record("provide.transaction.metadata", Boolean, Some("false")),
    only(
        "transaction.metadata.factory",
        Name,
        Some("io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory"),
        &["io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory"],
        CUSTOM,
    ),
    record("extended.headers.enabled", Boolean, Some("true")),
    only(
        "sourceinfo.struct.maker",
        Name,
        Some("io.debezium.connector.postgresql.PostgresSourceInfoStructMaker"),
        &["io.debezium.connector.postgresql.PostgresSourceInfoStructMaker"],
        CUSTOM,
    ),
    // How it runs.
    void("max.queue.size", Int(1), Some("8192"), QUEUE),
    void("max.queue.size.in.bytes", Long(0), Some("0"), QUEUE),
    void("max.batch.size", Int(1), Some("2048"), QUEUE),
    void("queue.provider.type", Text, Some("memory"), QUEUE),
    void("poll.interval.ms", Long(1), Some("500"), "nothing is polled"),
    void("retriable.restart.connector.wait.ms", Long(1), Some("10000"), RESTARTS),
    void("errors.max.retries", Int(ANY), Some("-1"), RESTARTS),
    void("custom.retriable.exception", Text, None, RESTARTS),
    void("executor.shutdown.timeout.ms", Long(1), Some("4000"), "shutdown_grace"),
    void("signal.data.collection", List, None, NO_SIGNALS),
    void("signal.enabled.channels", List, Some("source"), NO_SIGNALS),
    void("signal.poll.interval.ms", Long(1), Some("5000"), NO_SIGNALS),
    void("signal.file", Text, Some("file-signals.txt"), NO_SIGNALS),
    void("signal.kafka.topic", Text, None, NO_SIGNALS),
    void("signal.kafka.groupId", Text, Some("kafka-signal"), NO_SIGNALS),
    void("signal.kafka.bootstrap.servers", Text, None, NO_SIGNALS),
    void("signal.kafka.poll.timeout.ms", Int(ANY), Some("100"), NO_SIGNALS),
    void("notification.enabled.channels", List, None, "walpost sends no notifications"),
    void("notification.sink.topic.name", Text, None, "walpost sends no notifications"),
    void("custom.metric.tags", List, None, "walpost has metrics of its own"),
    void("advanced.metrics.enable", Boolean, Some("false"), "walpost has metrics of its own"),
    void("statistics.metrics.enabled", Boolean, Some("true"), "walpost has metrics of its own"),
    void("custom.sanitize.pattern", Text, None, "walpost logs no values"),
    void("memory.management.schemas.class", Text, None, "kept in memory"),
    void("memory.management.tables.class", Text, None, "kept in memory"),
    void("openlineage.integration.enabled", Boolean, Some("false"), LINEAGE),
    void("openlineage.integration.config.file.path", Text, Some("./openlineage.yml"), LINEAGE),
    void("openlineage.integration.job.namespace", Text, None, LINEAGE),
    void("openlineage.integration.job.description", Text, Some("Debezium change data capture job"), LINEAGE),
    void("openlineage.integration.job.tags", List, None, LINEAGE),
    void("openlineage.integration.job.owners", List, None, LINEAGE),
    void("openlineage.integration.dataset.kafka.bootstrap.servers", Text, None, LINEAGE),
];

/// Names of the past, which Debezium 3 does not read, and those that it has for them.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("database.server.name", "topic.prefix"),
    ("table.whitelist", "table.include.list"),
    ("table.blacklist", "table.exclude.list"),
    ("schema.whitelist", "schema.include.list"),
    ("schema.blacklist", "schema.exclude.list"),
    ("column.whitelist", "column.include.list"),
    ("column.blacklist", "column.exclude.list"),
    ("toasted.value.placeholder", "unavailable.value.placeholder"),
    ("sanitize.field.names", "field.name.adjustment.mode"),
];

/// Whether a name is one of those that hold a number or a salt: they hash, mask or cut columns.
pub(super) fn is_column_rewrite(name: &str) -> bool {
    let between = |start: &str, end: &str| {
        name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).is_some_and(|middle| !middle.is_empty())
    };
    let numbered = |start: &str| {
        let number = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(".chars"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let hashed = between("column.mask.hash.", "") && name.contains(".with.salt.");
    hashed || numbered("column.mask.with.") || numbered("column.truncate.to.")
}
