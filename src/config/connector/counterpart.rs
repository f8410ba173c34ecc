//! What walpost's own settings say of a connector, each with the keys that it comes from.

use std::time::Duration;

use toml::Value;

use super::{
    Connector, Host, InvalidOperation, SnapshotMode, Tolerance,
    catalogue::{Found, Meaning, default_of},
    given::{Given, Item},
    judge,
    section::{SECTION, SINK_TYPE},
};
use crate::{config::kafka, loopback::remote_brokers, postgres::quote};

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

/// Seldomer would let a standby take the process for dead, more often would be more often than anything is confirmed.
const STATUS_INTERVAL_MIN: Duration = Duration::from_millis(20);
const STATUS_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// A configuration file that means the same, as far as walpost's settings do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counterpart {
    /// Section by section.
    pub lines: Vec<Line>,
    /// What is to be given another way or cannot be said, a sentence each.
    pub notes: Vec<String>,
}

pub(super) fn of(given: &Given, connector: &Connector) -> Counterpart {
    let mut writer = Writer { given, out: Counterpart::default() };
    writer.top(connector);
    writer.kafka(connector);
    writer.as_they_are(connector);
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
        let router = connector.router();
        if let Some((name, _)) = router {
            self.line("", "preset", "debezium", &[&format!("transforms.{name}.type")]);
        }
        let format = router.map_or("connector.class".to_owned(), |(name, _)| format!("transforms.{name}.type"));
        self.line("", "format", "debezium", &[&format]);
        let snapshot = match connector.snapshot {
            SnapshotMode::Initial | SnapshotMode::WhenNeeded => Some("initial"),
            SnapshotMode::NoData => Some("never"),
            // No setting says that.
            SnapshotMode::InitialOnly => None,
        };
        if let Some(snapshot) = snapshot {
            self.line("", "snapshot", snapshot, &["snapshot.mode"]);
        }
        if connector.snapshot == SnapshotMode::WhenNeeded {
            self.line("", "on_slot_loss", "recover", &["snapshot.mode"]);
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
            let interval = connector.status_interval.clamp(STATUS_INTERVAL_MIN, STATUS_INTERVAL_MAX);
            let interval = humantime::format_duration(interval).to_string().replace(' ', "");
            self.line("", "status_interval", interval, &["status.update.interval.ms"]);
        }
        if connector.tolerance == Tolerance::All {
            let key = self.shown("errors.tolerance");
            self.note(format!("{key} = all drops what cannot be converted; walpost parks it where it can (on_poison)"));
        }
    }

    fn tables(&mut self, connector: &Connector) {
        // Several come last, each in a section of its own. Patterns hold as they are.
        if let Some([(schema, table)]) = connector.tables.named().as_deref() {
            self.line("", "table", quote::qualified(schema, table), &["table.include.list"]);
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
        // Kafka's default, where walpost's own asks for more.
        let brokers = connector.producer.brokers.as_ref().map(|told| told.value.as_str());
        let remote = match brokers {
            Some(brokers) => remote_brokers(brokers).next().is_some(),
            None => !self.given.has_worker,
        };
        if remote && !connector.producer.properties.contains_key("security.protocol") {
            self.line("kafka", "security.protocol", "plaintext", &["security.protocol"]);
        }
        for (key, why) in &connector.producer.left_out {
            self.note(format!("{key} means nothing here: {why}"));
        }
    }

    /// Keys that decide records, by the connector's own names.
    fn as_they_are(&mut self, connector: &Connector) {
        let classes = judge::Classes::of(self.given);
        let scopes = classes.scopes();
        let name = self.given.name.clone().map(|name| ("name".to_owned(), name, "name".to_owned()));
        let host =
            (connector.host == Host::Server).then(|| (SINK_TYPE.to_owned(), "kafka".to_owned(), self.shown(SINK_TYPE)));
        let said_above = |name: &str| match name {
            "table.include.list" => connector.tables.named().is_some_and(|tables| !tables.is_empty()),
            "snapshot.mode" => connector.snapshot != SnapshotMode::InitialOnly,
            _ => name.starts_with("snapshot.mode.configuration.based."),
        };
        let records = self.given.connector.iter().chain(&self.given.worker).filter(|(name, _)| {
            let record = match scopes.find(name) {
                Found::Key(key) => key.meaning == Meaning::Record,
                Found::Open(meaning) => meaning == Meaning::Record,
                Found::Unknown { .. } => false,
            };
            // Heartbeats follow from it.
            (record || *name == "lsn.flush.mode") && !said_above(name)
        });
        // The options of a converter are those that stand beside its class.
        let of_its_class = |(name, item): &(&String, &Item)| {
            let part = ["key.converter", "value.converter", "header.converter"]
                .into_iter()
                .find(|part| name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
            let Some(part) = part else { return true };
            let items =
                if self.given.connector.contains_key(part) { &self.given.connector } else { &self.given.worker };
            items.get(*name).is_some_and(|of_class| of_class.place == item.place)
        };
        let records = records.filter(of_its_class);
        let mut records: Vec<_> = name
            .into_iter()
            .chain(host)
            .chain(records.map(|(name, item)| (name.clone(), item.value.clone(), item.place.path.clone())))
            .collect();
        if connector.snapshot == SnapshotMode::InitialOnly && !records.iter().any(|(name, ..)| name == "snapshot.mode")
        {
            records.push(("snapshot.mode".to_owned(), "initial_only".to_owned(), self.shown("snapshot.mode")));
        }
        for (name, value, origin) in records {
            let (name, value) = match (name.as_str(), connector.snapshot) {
                ("snapshot.mode", SnapshotMode::InitialOnly) => (name, "initial_only".to_owned()),
                _ => (name, value),
            };
            if !self.out.lines.iter().any(|line| line.section == SECTION && line.name == name) {
                self.line_from(SECTION, &name, value, origin);
            }
        }
        // What Debezium does by default, walpost does where it is told to.
        let autocreate = "publication.autocreate.mode";
        if self.given.get(autocreate).is_none() {
            self.line(SECTION, autocreate, default_of(autocreate).unwrap_or_default(), &[autocreate]);
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
