//! What walpost's own settings say of a connector, each with the keys that it comes from.

use toml::Value;

use super::{
    Connector, Does, InvalidOperation, Router, SnapshotMode, Tolerance,
    catalogue::{Found, Meaning},
    given::Given,
    judge,
};
use crate::{config::kafka, postgres::quote};

/// One line of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The section's name, empty above all sections; `[[outbox]]` for a table of that list.
    pub section: &'static str,
    pub name: String,
    pub value: Value,
    /// The keys that it comes from.
    pub origin: String,
}

/// A configuration file that means the same, as far as walpost's settings do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counterpart {
    /// Section by section.
    pub lines: Vec<Line>,
    /// What is to be given another way or cannot be said, a sentence each.
    pub notes: Vec<String>,
}

/// The section of keys that hold as they are.
const AS_THEY_ARE: &str = "debezium";

pub(super) fn of(given: &Given, connector: &Connector) -> Counterpart {
    let mut writer = Writer { given, out: Counterpart::default() };
    writer.top(connector);
    writer.columns(connector);
    writer.topics(connector);
    writer.kafka(connector);
    writer.as_they_are();
    writer.outboxes(connector);
    writer.out
}

struct Writer<'a> {
    given: &'a Given,
    out: Counterpart,
}

impl Writer<'_> {
    fn top(&mut self, connector: &Connector) {
        let place = ["database.hostname", "database.port", "database.user", "database.dbname"];
        let tls = [
            "database.sslmode",
            "database.sslrootcert",
            "database.sslcert",
            "database.sslkey",
            "database.tcpKeepAlive",
        ];
        let keys: Vec<_> = place.into_iter().chain(tls).filter(|key| self.given.get(key).is_some()).collect();
        self.line("", "database_url", connector.database.url(), &keys);
        if connector.database.password.is_some() {
            let key = self.shown("database.password");
            self.note(format!(
                "{key} is a secret and not printed: PGPASSWORD, a password file or database_url_file can hold it"
            ));
        }
        if connector.database.key_password.is_some() {
            let key = self.shown("database.sslpassword");
            self.note(format!(
                "{key} is a secret and not printed: sslpassword in the file of database_url_file can hold it"
            ));
        }
        if self.given.get("database.sslkey").is_some_and(|item| !item.value.trim_end().ends_with(".pem")) {
            let key = self.shown("database.sslkey");
            self.note(format!(
                "{key} names a key in DER for Java; libpq reads PEM (`openssl pkey -inform DER -in … -out …`)"
            ));
        }
        match &connector.producer.brokers {
            Some(brokers) => self.line_from("", "brokers", brokers.value.clone(), brokers.key.clone()),
            None if self.given.has_worker => self.line("", "brokers", "localhost:9092", &["bootstrap.servers"]),
            None => self
                .note("brokers is to be set: bootstrap.servers is the worker's, whose file --worker names".to_owned()),
        }
        self.line("", "slot", connector.slot.as_str(), &["slot.name"]);
        self.line("", "publication", connector.publication.name.as_str(), &["publication.name"]);
        if self.given.get("plugin.name").is_none() {
            self.note(
                "plugin.name is not given, which is decoderbufs to Debezium: walpost needs a slot of pgoutput"
                    .to_owned(),
            );
        }
        self.tables(connector);
        let router = router(connector);
        if let Some((name, _)) = router {
            self.line("", "preset", "debezium", &[&format!("transforms.{name}.type")]);
        }
        let format = router.map_or("connector.class".to_owned(), |(name, _)| format!("transforms.{name}.type"));
        self.line("", "format", "debezium", &[&format]);
        let snapshot = match connector.snapshot {
            SnapshotMode::Initial | SnapshotMode::InitialOnly | SnapshotMode::WhenNeeded => "initial",
            SnapshotMode::NoData => "never",
        };
        self.line("", "snapshot", snapshot, &["snapshot.mode"]);
        match connector.snapshot {
            SnapshotMode::WhenNeeded => self.line("", "on_slot_loss", "recover", &["snapshot.mode"]),
            SnapshotMode::InitialOnly => {
                let key = self.shown("snapshot.mode");
                self.note(format!(
                    "{key} = initial_only has no setting: walpost streams after the snapshot; stop it then"
                ));
            }
            SnapshotMode::Initial | SnapshotMode::NoData => {}
        }
        if connector.failover {
            self.line("", "failover", true, &["slot.failover"]);
        }
        if let Some((name, router)) = router {
            let key = format!("transforms.{name}.table.op.invalid.behavior");
            if self.given.get(&key).is_some() {
                let word = if router.invalid_operation == InvalidOperation::Fatal { "halt" } else { "ignore" };
                self.line("", "on_update", word, &[&key]);
            }
        }
        if self.given.get("status.update.interval.ms").is_some() {
            let interval = humantime::format_duration(connector.status_interval).to_string().replace(' ', "");
            self.line("", "status_interval", interval, &["status.update.interval.ms"]);
        }
        if connector.tolerance == Tolerance::All {
            let key = self.shown("errors.tolerance");
            self.note(format!("{key} = all drops what cannot be converted; walpost parks it where it can (on_poison)"));
        }
    }

    fn tables(&mut self, connector: &Connector) {
        match connector.tables.named().as_deref() {
            Some([(schema, table)]) => {
                self.line("", "table", quote::qualified(schema, table), &["table.include.list"]);
            }
            // They come last, each in a section of its own.
            Some([_, _, ..]) => {}
            Some([]) | None => {
                let why = match self.given.get("table.include.list") {
                    Some(item) => format!("{} = {:?} is a pattern", item.place.path, item.value),
                    None => "the connector names no table".to_owned(),
                };
                self.note(format!("table is to be set: {why}; name the outbox tables"));
            }
        }
    }

    fn columns(&mut self, connector: &Connector) {
        let Some((name, router)) = router(connector) else { return };
        let event_type =
            self.given.get(&format!("transforms.{name}.table.field.event.type")).map(|item| item.value.clone());
        for (column, option, value) in [
            ("id", "table.field.event.id", Some(&router.id)),
            ("aggregate_id", "table.field.event.key", Some(&router.key)),
            ("payload", "table.field.event.payload", Some(&router.payload)),
            ("aggregate_type", "route.by.field", Some(&router.route_by)),
            ("event_type", "table.field.event.type", event_type.as_ref()),
            ("occurred_at", "table.field.event.timestamp", router.timestamp.as_ref()),
        ] {
            let key = format!("transforms.{name}.{option}");
            if let (Some(value), true) = (value, self.given.get(&key).is_some()) {
                self.line("columns", column, value.as_str(), &[&key]);
            }
        }
    }

    fn topics(&mut self, connector: &Connector) {
        let Some(creation) = &connector.topic_creation else { return };
        let default = "topic.creation.default";
        let (partitions, replication) = (format!("{default}.partitions"), format!("{default}.replication.factor"));
        self.line("topics", "create", true, &[&partitions, &replication]);
        for group in &creation.groups {
            if group.name != "default" {
                self.note(format!(
                    "topic.creation group {:?} has no setting: [topics] is one for all topics",
                    group.name
                ));
                continue;
            }
            if let Some(count) = group.partitions {
                self.line("topics", "partitions", i64::from(count), &[&partitions]);
            }
            if let Some(count) = group.replication {
                self.line("topics", "replication", i64::from(count), &[&replication]);
            }
            for (setting, value) in &group.settings {
                self.note(format!(
                    "{default}.{setting} = {value:?} has no setting: the broker's own holds for new topics"
                ));
            }
        }
    }

    fn kafka(&mut self, connector: &Connector) {
        for (name, told) in &connector.producer.properties {
            if kafka::is_secret(name) {
                let variable = format!("WALPOST_KAFKA_{}", name.replace('.', "_").to_uppercase());
                self.note(format!(
                    "{} is a secret and not printed: {variable} or \"{name}_file\" in [kafka] can give {name}",
                    told.key
                ));
            } else {
                self.line_from("kafka", name, told.value.clone(), told.key.clone());
            }
        }
        for (key, why) in &connector.producer.left_out {
            self.note(format!("{key} means nothing here: {why}"));
        }
    }

    /// Keys that decide records, by the connector's own names.
    fn as_they_are(&mut self) {
        let classes = judge::Classes::of(self.given);
        let scopes = classes.scopes();
        let name = self.given.name.clone().map(|name| ("name".to_owned(), name, "name".to_owned()));
        let records = self.given.connector.iter().chain(&self.given.worker).filter(|(name, _)| {
            let record = match scopes.find(name) {
                Found::Key(key) => key.meaning == Meaning::Record,
                Found::Open(meaning) => meaning == Meaning::Record,
                Found::Unknown { .. } => false,
            };
            // The worker's converter is none where the connector has one.
            let part = ["key.converter", "value.converter", "header.converter"]
                .into_iter()
                .find(|part| name.starts_with(part));
            let overruled =
                |part: &str| self.given.connector.contains_key(part) && !self.given.connector.contains_key(*name);
            record && !part.is_some_and(overruled)
        });
        let records = records.map(|(name, item)| (name.clone(), item.value.clone(), item.place.path.clone()));
        for (name, value, origin) in name.into_iter().chain(records).collect::<Vec<_>>() {
            if !self.out.lines.iter().any(|line| line.section == AS_THEY_ARE && line.name == name) {
                self.line_from(AS_THEY_ARE, &name, value, origin);
            }
        }
    }

    fn outboxes(&mut self, connector: &Connector) {
        let Some(tables) = connector.tables.named().filter(|tables| tables.len() > 1) else { return };
        for (schema, table) in tables {
            self.line("[[outbox]]", "table", quote::qualified(&schema, &table), &["table.include.list"]);
        }
    }

    /// A line that some keys of the connector say, or their defaults.
    fn line(&mut self, section: &'static str, name: &str, value: impl Into<Value>, keys: &[&str]) {
        let given: Vec<_> = keys.iter().filter_map(|key| Some(self.given.get(key)?.place.path.clone())).collect();
        let origin = match (&given[..], keys.first()) {
            ([], Some(key)) => format!("{key}, by default"),
            (given, _) => given.join(", "),
        };
        self.line_from(section, name, value, origin);
    }

    fn line_from(&mut self, section: &'static str, name: &str, value: impl Into<Value>, origin: String) {
        self.out.lines.push(Line { section, name: name.to_owned(), value: value.into(), origin });
    }

    fn note(&mut self, note: String) {
        self.out.notes.push(note);
    }

    /// A key as it stands in its file.
    fn shown(&self, key: &str) -> String {
        self.given.get(key).map_or(key.to_owned(), |item| item.place.path.clone())
    }
}

/// The first event router of the chain, with its name.
fn router(connector: &Connector) -> Option<(&str, &Router)> {
    connector.transforms.iter().find_map(|transform| match &transform.does {
        Does::EventRouter(router) => Some((transform.name.as_str(), &**router)),
        Does::DecodeMessage { .. } | Does::Overwritten { .. } | Does::Foreign { .. } => None,
    })
}
