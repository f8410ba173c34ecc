//! The configuration: what was typed (file, variables, flags), then what it means.
//!
//! [`Config`] is the meaning: complete, checked, bounds compared with each other. Nothing downstream sees an option
//! that was left out, or a text that might not parse.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::{
    pipeline::{OnUpdate, outbox::Outbox},
    postgres::conninfo::ConnInfo,
};

/// What a run does, with every default filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the slot is (`database_url`); both connections follow it.
    pub database: ConnInfo,
    /// Kafka's `bootstrap.servers` (`brokers`).
    pub brokers: String,
    /// Name of the logical replication slot.
    pub slot: String,
    /// Name of the publication, as SQL would hold it unquoted.
    pub publication: String,
    /// The outbox tables, at least one.
    pub outboxes: Vec<Outbox>,
    /// What an update, delete or truncate on an outbox does to the stream.
    pub on_update: OnUpdate,
    /// How often a moving confirmed position is reported, which bounds the duplicates of a crash.
    pub confirm_interval: Duration,
    /// How often a resting one is.
    pub status_interval: Duration,
    /// How long a clean stop may take to deliver what is in flight.
    pub shutdown_grace: Duration,
    /// Most records between the oldest unacknowledged one and the newest.
    pub in_flight_records: usize,
    /// Most bytes of unacknowledged records.
    pub in_flight_bytes: usize,
    /// How long a topic may be unknown to Kafka before the stream halts.
    pub unknown_topic_timeout: Duration,
    /// Whether walpost creates missing topics, and how.
    pub topics: Topics,
    /// librdkafka properties as given (`[kafka]`), without those that walpost owns.
    pub kafka: BTreeMap<String, String>,
    /// Where the HTTP surface listens; none switches it off.
    pub http_listen: Option<SocketAddr>,
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
