//! The keys with their types: what was typed, parsed, but not yet compared.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use secrecy::SecretString;
use serde::Deserialize;

use crate::pipeline::{
    OnUpdate,
    outbox::{Mode, TableName, Timestamp},
    template::Template,
};

use super::{
    OnPoison, OnSlotLoss, Sink, Snapshot,
    preset::{ColumnNames, Preset},
    value,
};

#[derive(Deserialize)]
pub(super) struct Typed {
    #[serde(default, deserialize_with = "value::secret")]
    pub(super) database_url: Option<SecretString>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) database_url_file: Option<String>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) brokers: Option<String>,
    pub(super) sink: SinkSection,
    #[serde(deserialize_with = "value::text")]
    pub(super) slot: String,
    #[serde(deserialize_with = "value::name")]
    pub(super) publication: String,
    pub(super) snapshot: Snapshot,
    #[serde(deserialize_with = "value::boolean")]
    pub(super) failover: bool,
    #[serde(default)]
    pub(super) on_slot_loss: Option<OnSlotLoss>,
    #[serde(default)]
    pub(super) on_poison: Option<OnPoison>,
    #[serde(default, deserialize_with = "value::optional_topic")]
    pub(super) dead_letter_topic: Option<String>,
    #[serde(deserialize_with = "value::count")]
    pub(super) park_max_aggregates: usize,
    #[serde(deserialize_with = "value::count")]
    pub(super) park_max_events: usize,
    pub(super) delivery: Delivery,
    pub(super) exactly_once: ExactlyOnce,
    pub(super) on_update: OnUpdate,
    #[serde(deserialize_with = "value::duration")]
    pub(super) retention: Duration,
    #[serde(default)]
    pub(super) prune: Prune,
    #[serde(deserialize_with = "value::duration")]
    pub(super) confirm_interval: Duration,
    #[serde(deserialize_with = "value::duration")]
    pub(super) status_interval: Duration,
    #[serde(deserialize_with = "value::duration")]
    pub(super) progress_interval: Duration,
    #[serde(deserialize_with = "value::duration")]
    pub(super) takeover_timeout: Duration,
    #[serde(deserialize_with = "value::duration")]
    pub(super) shutdown_grace: Duration,
    #[serde(default, deserialize_with = "value::optional_duration")]
    pub(super) unauthorized_timeout: Option<Duration>,
    #[serde(deserialize_with = "value::count")]
    pub(super) in_flight_records: usize,
    #[serde(deserialize_with = "value::size")]
    pub(super) in_flight_bytes: usize,
    pub(super) route: Route,
    pub(super) topics: Topics,
    #[serde(default, deserialize_with = "value::properties")]
    pub(super) kafka: BTreeMap<String, String>,
    pub(super) rabbitmq: RabbitMq,
    #[serde(default, deserialize_with = "value::properties")]
    pub(super) debezium: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "value::properties")]
    pub(super) webhook_urls: BTreeMap<String, String>,
    pub(super) bookmarks: Bookmarks,
    pub(super) webhook: Webhook,
    #[serde(deserialize_with = "value::duration")]
    pub(super) log_interval: Duration,
    #[serde(default)]
    pub(super) traces: Traces,
    pub(super) http: Http,
    /// Each with what it takes from the top level, which is the only one where no `[[outbox]]` is given.
    pub(super) outbox: Vec<Outbox>,
}

#[derive(Deserialize)]
pub(super) struct SinkSection {
    pub(super) kind: Sink,
}

#[derive(Deserialize)]
pub(super) struct Route {
    #[serde(deserialize_with = "value::duration")]
    pub(super) unknown_topic_timeout: Duration,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Delivery {
    AtLeastOnce,
    ExactlyOnce,
}

#[derive(Deserialize)]
pub(super) struct ExactlyOnce {
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) transactional_id: Option<String>,
    #[serde(deserialize_with = "value::duration")]
    pub(super) commit_interval: Duration,
    #[serde(deserialize_with = "value::count")]
    pub(super) commit_records: usize,
    #[serde(deserialize_with = "value::topic")]
    pub(super) positions_topic: String,
    #[serde(default, deserialize_with = "value::optional_count")]
    pub(super) positions_replication: Option<i32>,
}

#[derive(Deserialize)]
pub(super) struct Topics {
    #[serde(deserialize_with = "value::boolean")]
    pub(super) create: bool,
    #[serde(default, deserialize_with = "value::optional_count")]
    pub(super) partitions: Option<i32>,
    #[serde(default, deserialize_with = "value::optional_count")]
    pub(super) replication: Option<i32>,
}

#[derive(Deserialize)]
pub(super) struct RabbitMq {
    #[serde(default, deserialize_with = "value::secret")]
    pub(super) url: Option<SecretString>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) url_file: Option<String>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) ca_file: Option<String>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) cert_file: Option<String>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) key_file: Option<String>,
    #[serde(deserialize_with = "value::duration")]
    pub(super) heartbeat: Duration,
}

#[derive(Default, Deserialize)]
pub(super) struct Prune {
    #[serde(default, deserialize_with = "value::optional_duration")]
    pub(super) every: Option<Duration>,
}

#[derive(Deserialize)]
pub(super) struct Bookmarks {
    #[serde(default, deserialize_with = "value::optional_duration")]
    pub(super) every: Option<Duration>,
    #[serde(deserialize_with = "value::count")]
    pub(super) keep: usize,
}

#[derive(Deserialize)]
pub(super) struct Webhook {
    #[serde(default, deserialize_with = "value::secret")]
    pub(super) secret: Option<SecretString>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) secret_file: Option<String>,
    #[serde(default, deserialize_with = "value::secret")]
    pub(super) secret_next: Option<SecretString>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) secret_next_file: Option<String>,
    #[serde(deserialize_with = "value::duration")]
    pub(super) timeout: Duration,
    #[serde(deserialize_with = "value::count")]
    pub(super) attempts_max: usize,
    #[serde(deserialize_with = "value::duration")]
    pub(super) backoff: Duration,
    #[serde(deserialize_with = "value::duration")]
    pub(super) backoff_max: Duration,
    #[serde(deserialize_with = "value::count")]
    pub(super) lanes: usize,
    #[serde(default, deserialize_with = "value::texts")]
    pub(super) headers: Vec<String>,
    #[serde(default, deserialize_with = "value::texts")]
    pub(super) allow_hosts: Vec<String>,
    #[serde(deserialize_with = "value::boolean")]
    pub(super) allow_private: bool,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) ca_file: Option<String>,
}

#[derive(Default, Deserialize)]
pub(super) struct Traces {
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) endpoint: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Http {
    #[serde(deserialize_with = "value::listen")]
    pub(super) listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) token_file: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Outbox {
    /// There is either a table or a prefix.
    #[serde(default, deserialize_with = "value::optional_table")]
    pub(super) table: Option<TableName>,
    #[serde(default, deserialize_with = "value::optional_text")]
    pub(super) message_prefix: Option<String>,
    pub(super) preset: Preset,
    pub(super) format: Format,
    #[serde(default)]
    pub(super) columns: ColumnNames,
    #[serde(default, deserialize_with = "value::names")]
    pub(super) order_by: Vec<String>,
    pub(super) route: OutboxRoute,
    pub(super) record: Record,
    pub(super) cloudevents: CloudEvents,
    pub(super) after_publish: AfterPublish,
    pub(super) webhook: OutboxWebhook,
    #[serde(default)]
    pub(super) rabbitmq: OutboxRabbitMq,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    Native,
    Debezium,
    CloudEvents,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AfterPublish {
    Keep,
    Mark,
    Delete,
}

#[derive(Deserialize)]
pub(super) struct OutboxRoute {
    #[serde(deserialize_with = "value::template")]
    pub(super) topic: Template,
}

#[derive(Deserialize)]
pub(super) struct OutboxWebhook {
    #[serde(deserialize_with = "value::url_template")]
    pub(super) url: Template,
}

#[derive(Default, Deserialize)]
pub(super) struct OutboxRabbitMq {
    #[serde(default, deserialize_with = "value::optional_template")]
    pub(super) exchange: Option<Template>,
}

#[derive(Deserialize)]
pub(super) struct Record {
    #[serde(deserialize_with = "value::timestamp")]
    pub(super) timestamp: Timestamp,
}

#[derive(Clone, Deserialize)]
pub(super) struct CloudEvents {
    pub(super) mode: Mode,
    #[serde(default, deserialize_with = "value::optional_uri_reference")]
    pub(super) source: Option<String>,
    #[serde(rename = "type", deserialize_with = "value::event_type")]
    pub(super) event_type: Template,
    #[serde(default, deserialize_with = "value::optional_media_type")]
    pub(super) content_type: Option<String>,
}
