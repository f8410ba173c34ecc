//! The configuration: what was typed (file, variables, flags), then what it means.
//!
//! [`Config`] is the meaning: complete, checked, bounds compared with each other. Nothing downstream sees an option
//! that was left out, or a text that might not parse. What was typed is [`Settings`]: the defaults of the table of
//! [`keys`], under the file, under the variables, under the flags.
//!
//! Refused are unknown keys (with the nearest known one), words that a key does not know, and librdkafka
//! properties that would break a guarantee. No error and no `Debug` holds a secret.

mod bounds;
mod cloudevents;
pub mod connector;
mod debezium;
mod environment;
mod error;
mod file;
mod flags;
mod identifier;
mod kafka;
pub mod keys;
mod librdkafka;
mod message;
mod preset;
mod rabbitmq;
mod reference;
mod resolve;
mod schema;
mod settings;
mod show;
mod sink;
mod suggest;
#[cfg(test)]
mod tests;
mod traces;
mod typed;
mod value;
mod webhook;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use secrecy::SecretString;

use crate::{
    pipeline::{Lsn, OnUpdate, outbox::Outbox},
    postgres::conninfo::ConnInfo,
};

pub use debezium::{Debezium, TablesError};
pub use environment::Environment;
pub use error::{ConfigError, Origin, Place};
pub use flags::{FILE_ARGUMENT, Flags};
pub use identifier::{NAME_BYTES_MAX, NameError};
pub use kafka::KafkaProperties;
pub use rabbitmq::{IdentityFiles, RabbitMq};
pub use reference::Reference;
pub use schema::schema;
pub use settings::Settings;
pub use traces::TracesTo;
pub use webhook::{SigningKey, Webhook};

/// What a run does, with every default filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the slot is (`database_url`); both connections follow it. libpq's defaults where the command [needs](Needs)
    /// no database and none is given.
    pub database: ConnInfo,
    /// Where records go.
    pub sink: Sink,
    /// Kafka's `bootstrap.servers` (`brokers`). Empty where the command needs no Kafka and none is given.
    pub brokers: String,
    /// Name of the logical replication slot.
    pub slot: String,
    /// Name of the publication, as SQL would hold it unquoted.
    pub publication: String,
    /// The outbox tables: at least one, unless there are [messages](Config::messages), but for a connector's, which may have
    /// none, or none that is known yet.
    pub outboxes: Vec<Outbox>,
    /// The outboxes without a table, each named by [`source_of`](crate::pipeline::source_of) the prefix of its messages.
    pub messages: Vec<Outbox>,
    /// The connector that is run (`format = "debezium"`).
    pub debezium: Option<Debezium>,
    /// Its keys as given, without secrets: all of its file, or those that walpost has no setting for.
    pub connector_keys: BTreeMap<String, String>,
    /// Whether rows that are older than the slot are sent, where walpost makes the slot.
    pub snapshot: Snapshot,
    /// What becomes of an event that can never be delivered; none: parked where the table of dead letters is there, else
    /// sent to `dead_letter_topic`, and without that too the stream halts.
    pub on_poison: Option<OnPoison>,
    /// Where such events go beside the table, or in its place where there is none.
    pub dead_letter_topic: Option<String>,
    /// Most aggregates that are parked at once, and most events; beyond either the stream halts.
    pub park_max_aggregates: usize,
    pub park_max_events: usize,
    /// The slot is one that standbys keep a copy of, for their promotion.
    pub failover: bool,
    /// What becomes of a stream whose slot is lost.
    pub on_slot_loss: OnSlotLoss,
    /// How often Kafka may get an event.
    pub delivery: Delivery,
    /// What an update, delete or truncate on an outbox does to the stream.
    pub on_update: OnUpdate,
    /// How long published rows stay before they are pruned.
    pub retention: Duration,
    /// How often a running walpost prunes; none: never.
    pub prune_every: Option<Duration>,
    /// How often a moving confirmed position is reported, which bounds the duplicates of a crash.
    pub confirm_interval: Duration,
    /// How often a resting one is.
    pub status_interval: Duration,
    /// How often the proof of publication is brought forward.
    pub progress_interval: Duration,
    /// How long the holder of the slot may give no sign before a standby ends it.
    pub takeover_timeout: Duration,
    /// How long a clean stop may take to deliver what is in flight.
    pub shutdown_grace: Duration,
    /// How long a right may be missing in Kafka before the stream halts; none: it waits without end.
    pub unauthorized_timeout: Option<Duration>,
    /// Most records between the oldest unacknowledged one and the newest.
    pub in_flight_records: usize,
    /// Most bytes of unacknowledged records.
    pub in_flight_bytes: usize,
    /// How long a topic may be unknown to Kafka before the stream halts.
    pub unknown_topic_timeout: Duration,
    /// Whether walpost creates missing topics, and how.
    pub topics: Topics,
    /// librdkafka properties as given (`[kafka]`), without those that walpost owns.
    pub kafka: KafkaProperties,
    /// The broker of `[rabbitmq]`; none where no `rabbitmq.url` is given.
    pub rabbitmq: Option<RabbitMq>,
    /// Where the stream is to begin again, once (`run --from-lsn`). No key of the configuration.
    pub rewind_to: Option<Lsn>,
    /// How webhooks are sent.
    pub webhook: Webhook,
    /// Bookmarks that a running walpost makes by itself; none: it makes none.
    pub bookmarks: Option<Rota>,
    /// How often a line of the log tells how the stream is; none: never.
    pub log_interval: Option<Duration>,
    /// Where spans go (`[traces]`); none: nowhere.
    pub traces: Option<TracesTo>,
    /// Where the HTTP surface listens; none switches it off.
    pub http_listen: Option<SocketAddr>,
    /// What calls have to show that change the stream (`http.token_file`); none: see [`Access`](crate::http::Access).
    pub http_token: Option<SecretString>,
}

/// What a command cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    pub database: bool,
    /// Whatever the records go to.
    pub sink: bool,
    /// Kafka, and no other sink.
    pub kafka: bool,
}

impl Needs {
    pub const NOTHING: Needs = Needs { database: false, sink: false, kafka: false };
    pub const DATABASE: Needs = Needs { database: true, sink: false, kafka: false };
    pub const BOTH: Needs = Needs { database: true, sink: true, kafka: false };
    pub const KAFKA: Needs = Needs { database: false, sink: true, kafka: true };
    pub const DATABASE_AND_KAFKA: Needs = Needs { database: true, sink: true, kafka: true };
}

impl Config {
    /// Reads file, variables and flags.
    pub fn load(flags: &Flags, needs: Needs) -> Result<Config, ConfigError> {
        let environment = Environment::of_process();
        Settings::gather(flags, &environment)?.resolve(&environment, needs)
    }

    /// The prefixes of outboxes without a table, in words.
    pub fn prefixes(&self) -> String {
        let quoted: Vec<_> = self.messages.iter().map(|outbox| format!("{:?}", outbox.name.table)).collect();
        quoted.join(" or ")
    }

    /// Whether logical messages are asked of the server: there are outboxes of them, or a connector, which may take any.
    pub fn wants_messages(&self) -> bool {
        !self.messages.is_empty() || self.debezium.is_some()
    }
}

/// `sink.kind`: where records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sink {
    Kafka,
    Webhook,
    RabbitMq,
    Stdout,
}

impl Sink {
    /// An event may be tried only so often.
    pub fn counts_attempts(self) -> bool {
        self == Sink::Webhook
    }
}

/// `snapshot`: rows that are older than the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    /// `run` makes the slot, and sends them before the stream.
    Initial,
    /// `setup` makes the slot, and they are not sent.
    Never,
}

/// `on_poison`: what becomes of an event that can never be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPoison {
    /// It goes to the table of dead letters, and so do later events of its aggregate until they are replayed.
    Park,
    /// It alone goes there.
    DeadLetter,
    /// The stream stops.
    Halt,
}

/// `on_slot_loss`: what becomes of a stream whose slot cannot give what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSlotLoss {
    /// The slot is made anew, and rows that are not proven published are sent from the table: some may come twice.
    Recover,
    /// The stream stops and names the gap.
    Halt,
}

/// `delivery`: how often Kafka may get an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Again after a crash.
    AtLeastOnce,
    /// Once, for consumers that read committed records only.
    ExactlyOnce(ExactlyOnce),
}

impl Delivery {
    /// The topic that holds how far an exactly-once stream reaches.
    pub fn positions_topic(&self) -> Option<&str> {
        match self {
            Delivery::AtLeastOnce => None,
            Delivery::ExactlyOnce(exactly_once) => Some(&exactly_once.positions_topic),
        }
    }
}

/// `[exactly_once]`: Kafka transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactlyOnce {
    /// Names the producer across restarts, so that a new instance ends an older one; none is made of the server's system
    /// identifier and the slot.
    pub transactional_id: Option<String>,
    /// How long a Kafka transaction stays open.
    pub commit_interval: Duration,
    /// librdkafka's `transaction.timeout.ms`: Kafka gives up a transaction that is open for longer.
    pub transaction_timeout: Duration,
    /// Most records of a Kafka transaction.
    pub commit_records: usize,
    /// The compacted topic that holds how far each stream's records reach.
    pub positions_topic: String,
    /// Replicas of that topic, where walpost makes it; none takes the broker's default.
    pub positions_replication: Option<i32>,
}

/// `[bookmarks]`: copies of the slot, made on a rota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rota {
    /// Between two bookmarks.
    pub every: Duration,
    /// How many there are at most.
    pub keep: usize,
}

/// `[topics]`: creation of missing topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Create a missing topic before the first record to it. Off: the broker's own rule holds.
    pub create: bool,
    /// Partitions of a created topic; none takes the broker's default.
    pub partitions: Option<i32>,
    /// Replicas of a created topic; none takes the broker's default.
    pub replication: Option<i32>,
}
