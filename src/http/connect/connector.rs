//! The one connector that walpost is to tools of Kafka Connect: its name, and its configuration in the connector's terms.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::{
    config::{Config, Sink, Snapshot, connector::pattern_of},
    pipeline::{
        outbox::Outbox,
        template::{Part, Template},
    },
};

pub(super) const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";
pub(super) const TASK_CLASS: &str = "io.debezium.connector.postgresql.PostgresConnectorTask";

/// What does not change while the process runs. No secret is in it.
#[derive(Clone, Debug)]
pub struct Connector {
    pub name: String,
    /// By the connector's keys.
    pub config: BTreeMap<String, String>,
    /// What Debezium calls the server in its offsets.
    pub server: String,
    /// Where its REST interface listens.
    pub worker: String,
}

impl Connector {
    pub fn of(config: &Config, listen: SocketAddr) -> Connector {
        let connector = config.debezium.as_ref().map(|debezium| debezium.connector());
        let name = connector.and_then(|connector| connector.name.clone()).unwrap_or_else(|| config.slot.clone());
        let server = connector.map_or_else(|| name.clone(), |connector| connector.topic_prefix.clone());
        // A connector's file says all.
        let says_all = config.connector_keys.contains_key("connector.class");
        let mut keys = if says_all { BTreeMap::new() } else { counterpart(config) };
        keys.extend(config.connector_keys.clone());
        keys.insert("name".to_owned(), name.clone());
        Connector { name, config: keys, server, worker: listen.to_string() }
    }
}

/// walpost's own settings in the connector's terms, as far as those have a word for them.
fn counterpart(config: &Config) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let mut set = |key: &str, value: &str| keys.insert(key.to_owned(), value.to_owned());
    set("connector.class", CLASS);
    set("tasks.max", "1");
    set("plugin.name", "pgoutput");
    if let Some(target) = config.database.targets.first() {
        set("database.hostname", &target.host.to_string());
        set("database.port", &target.port.to_string());
    }
    set("database.user", &config.database.user);
    set("database.dbname", &config.database.database);
    set("database.sslmode", &config.database.tls.mode.to_string());
    set("slot.name", &config.slot);
    set("slot.failover", &config.failover.to_string());
    set("publication.name", &config.publication);
    set("publication.autocreate.mode", "disabled");
    set(
        "snapshot.mode",
        match config.snapshot {
            Snapshot::Initial => "initial",
            Snapshot::Never => "no_data",
        },
    );
    set("status.update.interval.ms", &config.status_interval.as_millis().to_string());
    set("producer.override.bootstrap.servers", &config.brokers);
    let tables: Vec<_> = config.outboxes.iter().map(|outbox| pattern_of(&outbox.name)).collect();
    if !tables.is_empty() {
        set("table.include.list", &tables.join(","));
    }
    if let ([outbox], None) = (&*config.outboxes, &config.debezium) {
        set("transforms", "outbox");
        set("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter");
        for (option, value) in router(outbox, config.sink) {
            set(&format!("transforms.outbox.{option}"), &value);
        }
    }
    keys
}

/// The event router's options. A webhook's URL is none of its topics, and may hold a secret.
fn router(outbox: &Outbox, sink: Sink) -> Vec<(&'static str, String)> {
    let columns = &outbox.columns;
    let mut options = vec![
        ("table.field.event.id", columns.id.clone()),
        ("table.field.event.key", columns.aggregate_id.clone()),
        ("table.field.event.payload", columns.payload.clone()),
        ("route.by.field", columns.aggregate_type.name.clone()),
    ];
    if sink != Sink::Webhook {
        options.extend(replacement(&outbox.topic).map(|topic| ("route.topic.replacement", topic)));
    }
    options
}

/// The router knows of one column only.
fn replacement(topic: &Template) -> Option<String> {
    let part = |part: &Part| match part {
        Part::Text(text) => Some(text.replace('\\', r"\\").replace('$', r"\$")),
        Part::Column(column) => (column == "aggregate_type").then(|| "${routedByValue}".to_owned()),
    };
    topic.parts().iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_topic_of_the_aggregate_type_alone_is_the_routers_replacement() {
        let replacement = |topic: &str| super::replacement(&topic.parse().unwrap());
        assert_eq!(replacement("outbox.event.${aggregate_type}").as_deref(), Some("outbox.event.${routedByValue}"));
        assert_eq!(replacement("a$b").as_deref(), Some(r"a\$b"));
        assert_eq!(replacement("${tenant}.${aggregate_type}"), None);
    }
}
