//! Every key of the configuration, in one table.
//!
//! The flags, the `WALPOST_…` variables, the refusal of unknown keys and words, `config show`
//! and the reference page are all made from [`KEYS`]. A key is added here, and read where the values get their types
//! (`typed.rs`).

use toml::Value;

/// One key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Path in the file: `slot`, or `route.topic` for `topic` in `[route]`.
    pub path: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What holds when nobody gives it.
    pub default: Option<&'static str>,
    /// Whether an `[[outbox]]` may have its own.
    pub per_outbox: bool,
    /// One line for `--help` and the reference page.
    pub help: &'static str,
}

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A text that is never printed.
    Secret,
    /// The path of a file that holds a secret.
    SecretFile,
    /// `20ms`, `5s`, `7d`.
    Duration,
    /// Bytes: `16777216` or `16MiB`.
    Size,
    Count,
    Boolean,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// `[columns]`: walpost's name = the table's.
    Columns,
    /// `[kafka]`: librdkafka's properties; `[debezium]`: a connector's keys.
    Properties,
    /// `[[outbox]]`: a list of tables, in the file only.
    Outboxes,
}

/// The parts of an event that `[columns]` may map.
pub const COLUMNS: &[&str] = &[
    "id",
    "aggregate_id",
    "payload",
    "aggregate_type",
    "event_type",
    "headers",
    "destination",
    "idempotency_key",
    "aggregate_version",
    "occurred_at",
    "traceparent",
    "tracestate",
    "seq",
    "txid",
    "published_at",
    "status",
    "attempts",
    "retry_count",
    "last_error",
    "updated_at",
];

/// All keys, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    key("database_url", Kind::Secret, None, "PostgreSQL, as a URL or in libpq's keywords"),
    key("database_url_file", Kind::SecretFile, None, "File that holds database_url"),
    key("brokers", Kind::Text, None, "Kafka brokers, host:port joined by commas"),
    key("slot", Kind::Text, Some("walpost"), "Logical replication slot"),
    key("publication", Kind::Text, Some("walpost"), "Publication, as the catalog holds its name"),
    outbox_key("table", Kind::Text, Some("walpost.outbox"), "Outbox table, as SQL writes its name"),
    outbox_key(
        "message_prefix",
        Kind::Text,
        None,
        "Prefix of logical messages that are the events, in place of a table",
    ),
    outbox_key(
        "preset",
        choice(&["walpost", "debezium", "destination", "status"]),
        Some("walpost"),
        "Column names, and what else follows from them",
    ),
    outbox_key("order_by", Kind::Text, None, "Columns that order rows read from the table, joined by commas, else seq"),
    outbox_key("format", choice(&["native", "debezium", "cloudevents"]), Some("native"), "Shape of the records"),
    key("delivery", choice(&["at_least_once", "exactly_once"]), Some("at_least_once"), "Delivery guarantee"),
    key("snapshot", choice(&["initial", "never"]), Some("never"), "Rows that are older than the slot"),
    key(
        "on_poison",
        choice(&["park", "dead_letter", "halt"]),
        None,
        "An event that can never be delivered; unset: parked where there is a table for it",
    ),
    key("dead_letter_topic", Kind::Text, None, "Topic for such events, beside the table or in its place"),
    key("park_max_aggregates", Kind::Count, Some("10000"), "Most aggregates that are parked, then the stream halts"),
    key("park_max_events", Kind::Count, Some("1000000"), "Most events that are parked, then the stream halts"),
    key(
        "on_slot_loss",
        choice(&["recover", "halt"]),
        None,
        "A slot that is gone or invalidated; unset: recover, exactly once halt",
    ),
    key("failover", Kind::Boolean, Some("false"), "Standbys keep a copy of the slot, from PostgreSQL 17 on"),
    key("on_update", choice(&["ignore", "halt"]), Some("ignore"), "Update, delete or truncate of an outbox"),
    outbox_key("after_publish", choice(&["keep", "mark", "delete"]), Some("keep"), "Rows that are published"),
    key("retention", Kind::Duration, Some("7d"), "How long published rows stay before they are pruned"),
    key("confirm_interval", Kind::Duration, Some("20ms"), "How often a moving position is confirmed"),
    key("status_interval", Kind::Duration, Some("10s"), "How often a resting position is confirmed"),
    key("progress_interval", Kind::Duration, Some("5s"), "How often the proof of publication is brought forward"),
    key("takeover_timeout", Kind::Duration, Some("60s"), "How long the holder of the slot may be silent"),
    key("shutdown_grace", Kind::Duration, Some("10s"), "How long a clean stop may deliver"),
    key("unauthorized_timeout", Kind::Duration, None, "How long a right may be missing in Kafka, else without end"),
    key("in_flight_records", Kind::Count, Some("5000"), "Most records from the oldest unacknowledged to the newest"),
    key("in_flight_bytes", Kind::Size, Some("16MiB"), "Most bytes that Kafka has not acknowledged"),
    key("log_interval", Kind::Duration, Some("60s"), "How often a line tells how the stream is; 0s: never"),
    key("sink.kind", choice(&["kafka", "webhook", "rabbitmq", "stdout"]), Some("kafka"), "Where records go"),
    outbox_key("columns", Kind::Columns, None, "Column of the table for a part of the event"),
    outbox_key(
        "route.topic",
        Kind::Text,
        Some("outbox.event.${aggregate_type}"),
        "Topic, or routing key of RabbitMQ, with columns in ${…}",
    ),
    key("route.unknown_topic_timeout", Kind::Duration, Some("60s"), "How long a topic may be unknown to Kafka"),
    outbox_key("record.timestamp", choice(&["commit", "column"]), Some("commit"), "Timestamp of the records"),
    outbox_key(
        "cloudevents.mode",
        choice(&["binary", "structured"]),
        Some("binary"),
        "Where attributes of an event are",
    ),
    outbox_key("cloudevents.source", Kind::Text, None, "Source of its events, else /database/schema/table"),
    outbox_key("cloudevents.type", Kind::Text, Some("${event_type}"), "Type of its events, with columns in ${…}"),
    outbox_key(
        "cloudevents.content_type",
        Kind::Text,
        None,
        "Media type of payloads, else by the type of their column",
    ),
    key("exactly_once.transactional_id", Kind::Text, None, "Kafka transactional id, else made of system and slot"),
    key("exactly_once.commit_interval", Kind::Duration, Some("20ms"), "How long a Kafka transaction stays open"),
    key("exactly_once.commit_records", Kind::Count, Some("5000"), "Most records of a Kafka transaction"),
    key("exactly_once.positions_topic", Kind::Text, Some("walpost.positions"), "Compacted topic of the positions"),
    key("exactly_once.positions_replication", Kind::Count, None, "Replicas of that topic, where walpost makes it"),
    key("topics.create", Kind::Boolean, Some("false"), "Create missing topics"),
    key("topics.partitions", Kind::Count, None, "Partitions of a created topic"),
    key("topics.replication", Kind::Count, None, "Replicas of a created topic"),
    outbox_key(
        "webhook.url",
        Kind::Text,
        Some("${destination}"),
        "URL that events are posted to, with columns in ${…}",
    ),
    key("webhook.allow_hosts", Kind::Text, None, "Hosts that URLs of rows may lead to, joined by commas"),
    key("webhook.secret", Kind::Secret, None, "Signs webhooks, as Standard Webhooks have it: whsec_ and base64"),
    key("webhook.secret_file", Kind::SecretFile, None, "File that holds webhook.secret"),
    key("webhook.secret_next", Kind::Secret, None, "Signs beside webhook.secret, while receivers change over"),
    key("webhook.secret_next_file", Kind::SecretFile, None, "File that holds webhook.secret_next"),
    key("webhook.timeout", Kind::Duration, Some("10s"), "How long a receiver may take to answer"),
    key("webhook.attempts_max", Kind::Count, Some("10"), "Tries before an event counts as undeliverable"),
    key("webhook.backoff", Kind::Duration, Some("1s"), "Pause after the first try, doubled with each"),
    key("webhook.backoff_max", Kind::Duration, Some("5m"), "Longest pause between tries"),
    key("webhook.lanes", Kind::Count, Some("64"), "Most requests at once"),
    key("webhook.headers", Kind::Text, None, "Headers of the row that are passed on, joined by commas"),
    key(
        "webhook.allow_private",
        Kind::Boolean,
        Some("false"),
        "Send to addresses of private networks too, also by http",
    ),
    key("webhook.ca_file", Kind::Text, None, "Certificates in PEM of authorities trusted beside the system's"),
    key("webhook_urls", Kind::Properties, None, "URL for events of a type"),
    key("rabbitmq.url", Kind::Secret, None, "RabbitMQ, as amqp://user:password@host/vhost, or amqps:// for TLS"),
    key("rabbitmq.url_file", Kind::SecretFile, None, "File that holds rabbitmq.url"),
    key("rabbitmq.ca_file", Kind::Text, None, "Authorities that RabbitMQ's certificate is held to, else the system's"),
    key("rabbitmq.cert_file", Kind::Text, None, "Certificate that walpost shows to RabbitMQ"),
    key("rabbitmq.key_file", Kind::SecretFile, None, "Key of that certificate"),
    key("rabbitmq.heartbeat", Kind::Duration, Some("30s"), "How long RabbitMQ may be silent, twice over"),
    outbox_key("rabbitmq.exchange", Kind::Text, None, "Exchange, with columns in ${…}, else the default exchange"),
    key("prune.every", Kind::Duration, None, "How often walpost run prunes, else never"),
    key("kafka", Kind::Properties, None, "Property of librdkafka"),
    key("bookmarks.every", Kind::Duration, None, "How often a running walpost makes a bookmark, else never"),
    key("bookmarks.keep", Kind::Count, Some("6"), "How many of those bookmarks it keeps"),
    key("traces.endpoint", Kind::Text, None, "OTLP/HTTP collector that gets a span of each sampled event, else none"),
    key("http.listen", Kind::Text, Some("127.0.0.1:9464"), "Address of metrics and health, or off"),
    key("http.token_file", Kind::SecretFile, None, "File with the token that calls need that change the stream"),
    key("debezium", Kind::Properties, None, "Key of a Debezium connector, with format = debezium"),
    key("outbox", Kind::Outboxes, None, "Several outboxes, each with its own table or prefix"),
];

const fn key(path: &'static str, kind: Kind, default: Option<&'static str>, help: &'static str) -> Key {
    Key { path, kind, default, per_outbox: false, help }
}

const fn outbox_key(path: &'static str, kind: Kind, default: Option<&'static str>, help: &'static str) -> Key {
    Key { path, kind, default, per_outbox: true, help }
}

const fn choice(words: &'static [&'static str]) -> Kind {
    Kind::Choice(words)
}

impl Key {
    /// The key at a path, if there is one.
    pub fn find(path: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// The key that a path belongs to: its own, or its section's.
    pub(super) fn of(path: &str) -> Option<&'static Key> {
        Key::find(path).or_else(|| Key::find(path.split_once('.')?.0).filter(|key| key.kind.is_section()))
    }

    /// Name of the flag without its hyphens; none for what only a file can say.
    pub fn flag(&self) -> Option<String> {
        match self.kind {
            Kind::Outboxes => None,
            Kind::Columns => Some("column".to_owned()),
            Kind::Text
            | Kind::Secret
            | Kind::SecretFile
            | Kind::Duration
            | Kind::Size
            | Kind::Count
            | Kind::Boolean
            | Kind::Choice(_)
            | Kind::Properties => Some(self.path.replace(['.', '_'], "-")),
        }
    }

    /// Name of the variable. For a section it is the start of the names, to be followed by `_` and the member.
    pub fn variable(&self) -> String {
        format!("WALPOST_{}", self.path.replace('.', "_").to_uppercase())
    }
}

impl Kind {
    /// Whether the value is a section whose members are given one by one.
    pub(super) fn is_section(self) -> bool {
        matches!(self, Kind::Columns | Kind::Properties)
    }

    /// A variable's, flag's or default's text, typed as a file would have it. A text that does not fit stays one, so
    /// that the reader of the key says what is wrong with it.
    pub(super) fn typed(self, text: &str) -> Value {
        let typed = match self {
            Kind::Boolean => text.parse().ok().map(Value::Boolean),
            Kind::Count | Kind::Size => text.parse().ok().map(Value::Integer),
            Kind::Text
            | Kind::Secret
            | Kind::SecretFile
            | Kind::Duration
            | Kind::Choice(_)
            | Kind::Columns
            | Kind::Properties
            | Kind::Outboxes => None,
        };
        typed.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_flags_and_variables_are_unique() {
        let distinct = |names: Vec<String>| names.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(distinct(KEYS.iter().map(|key| key.path.to_owned()).collect()), KEYS.len());
        assert_eq!(distinct(KEYS.iter().map(Key::variable).collect()), KEYS.len());
        assert_eq!(distinct(KEYS.iter().filter_map(Key::flag).collect()), KEYS.len() - 1);
    }

    #[test]
    fn names_follow_the_path() {
        let topic = Key::find("route.topic").unwrap();
        assert_eq!(topic.flag().unwrap(), "route-topic");
        assert_eq!(topic.variable(), "WALPOST_ROUTE_TOPIC");
        assert_eq!(Key::find("confirm_interval").unwrap().flag().unwrap(), "confirm-interval");
        assert_eq!(Key::find("columns").unwrap().flag().unwrap(), "column");
    }

    #[test]
    fn the_default_of_a_choice_is_one_of_it() {
        for key in KEYS {
            if let (Kind::Choice(words), Some(default)) = (key.kind, key.default) {
                assert!(words.contains(&default), "{}", key.path);
            }
        }
    }
}
