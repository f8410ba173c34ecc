//! A connector's configuration in place of walpost's own: Debezium's PostgreSQL connector with the outbox event router,
//! as it is given to Kafka Connect or to Debezium Server.
//!
//! It is read ([`given`]), every key of it is judged by the tables of the [`catalogue`], and what it means is a
//! [`Connector`]: all that decides a record, typed and checked. What walpost's own settings say of it is its
//! [`counterpart`], which `walpost config import` prints.
//!
//! Refused by name are values that Debezium would refuse, and what would make other records than the connector does:
//! transforms, converters and config providers that are not available, filters and rewrites of columns. Unknown keys are
//! told of, as Kafka Connect ignores them too.

pub mod catalogue;
mod converter;
mod counterpart;
mod database;
pub(super) mod foreign;
mod given;
mod import;
mod judge;
mod kind;
mod list;
mod producer;
pub(crate) mod properties;
mod provider;
mod router;
pub(super) mod section;
mod selection;
mod settings;
pub(super) mod shown;
#[cfg(test)]
mod tests;
mod transform;

use std::{collections::BTreeMap, path::Path, time::Duration};

use secrecy::ExposeSecret;
use toml::Value;

use self::given::Given;
pub(super) use self::given::{contents, is_connector};
pub use self::{
    counterpart::{Counterpart, Line},
    database::Database,
    given::Host,
    judge::Remark,
    producer::Producer,
    router::{InvalidOperation, MissingColumn, Placed, Placement, Router, Tracing},
    selection::{Selection, Tables, pattern_of},
    transform::{Condition, Does, Predicate, Transform},
};
use super::{ConfigError, Environment, kafka};
use crate::{
    connect::{Converter, regex::Pattern},
    debezium::modes::{Modes, NameAdjustment, option},
};

/// What a connector does, with every default of Debezium's filled in.
#[derive(Clone, Debug)]
pub struct Connector {
    /// As Kafka Connect knows it.
    pub name: Option<String>,
    /// What runs it today.
    pub host: Host,
    pub database: Database,
    /// `slot.name`.
    pub slot: String,
    /// `slot.failover`.
    pub failover: bool,
    pub publication: Publication,
    /// The tables whose rows become records.
    pub tables: Tables,
    /// The logical messages that do, by their prefixes; none: all.
    pub message_prefixes: Option<Selection>,
    /// Operations whose records are left out.
    pub skipped: Operations,
    /// `skip.messages.without.change`.
    pub skip_unchanged: bool,
    /// `tombstones.on.delete`: a record without value follows a delete.
    pub tombstones_on_delete: bool,
    pub snapshot: SnapshotMode,
    /// How columns become values.
    pub modes: Modes,
    /// `schema.name.adjustment.mode`.
    pub schema_names: NameAdjustment,
    /// `message.key.columns`, as given.
    pub message_key_columns: Option<String>,
    /// `topic.prefix`.
    pub topic_prefix: String,
    /// `topic.delimiter`.
    pub topic_delimiter: String,
    /// `extended.headers.enabled`: records have Debezium's context headers.
    pub context_headers: bool,
    /// Where records of transactions go, if there are any.
    pub transaction_topic: Option<String>,
    pub heartbeat: Option<Heartbeat>,
    /// In their order.
    pub transforms: Vec<Transform>,
    pub key_converter: Converter,
    pub value_converter: Converter,
    pub header_converter: Converter,
    pub tolerance: Tolerance,
    /// `status.update.interval.ms`.
    pub status_interval: Duration,
    pub producer: Producer,
    /// Topics that Kafka Connect makes; none: the broker's own rule holds.
    pub topic_creation: Option<TopicCreation>,
    /// Whether spans are traced, which no key says (`OTEL_JAVA_GLOBAL_AUTOCONFIGURE_ENABLED`).
    pub open_telemetry: bool,
}

/// The publication that the slot is read through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    pub name: String,
    pub autocreate: Autocreate,
    /// `publish.via.partition.root`, where it is made.
    pub via_root: bool,
}

option! {
    /// `publication.autocreate.mode`: what a publication that is missing is made of.
    Autocreate {
        /// It must be there.
        Disabled = "disabled",
        AllTables = "all_tables",
        /// Those that the connector takes; an existing one is altered.
        Filtered = "filtered",
        NoTables = "no_tables",
    }
}

/// `snapshot.mode`: rows that are older than the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Sent once, then the stream.
    Initial,
    /// Sent once, and nothing streamed.
    InitialOnly,
    /// Not sent.
    NoData,
    /// Sent once, and again when the slot cannot give what it held.
    WhenNeeded,
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    pub create: bool,
    pub update: bool,
    pub delete: bool,
    pub truncate: bool,
    /// Rows of a snapshot.
    pub read: bool,
}

/// Records that say that the stream is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    pub interval: Duration,
    pub topic: String,
}

/// `errors.tolerance`: what becomes of a record that cannot be transformed or converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// The task dies of it.
    None,
    /// It is left out.
    All,
}

/// `topic.creation.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCreation {
    /// In their order; the last one is the default, which every topic fits.
    pub groups: Vec<TopicGroup>,
}

impl TopicCreation {
    /// The first group that a topic fits.
    pub fn group(&self, topic: &str) -> Option<&TopicGroup> {
        self.groups.iter().find(|group| group.fits(topic))
    }
}

impl TopicGroup {
    /// Patterns fit a whole name; the default group takes all.
    fn fits(&self, topic: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(topic) == Ok(true));
        self.name == "default" || any(&self.include) && !any(&self.exclude)
    }
}

/// How topics are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicGroup {
    pub name: String,
    pub include: Vec<Pattern>,
    pub exclude: Vec<Pattern>,
    /// None: the broker's.
    pub partitions: Option<i32>,
    /// None: the broker's.
    pub replication: Option<i32>,
    /// Settings of the topics themselves.
    pub settings: BTreeMap<String, String>,
}

/// A connector's files, read and judged.
pub struct Import {
    given: Given,
    connector: Connector,
    remarks: Vec<Remark>,
}

impl Connector {
    /// The first event router of its chain, with its name.
    pub fn router(&self) -> Option<(&str, &Router)> {
        self.transforms.iter().find_map(|transform| match &transform.does {
            Does::EventRouter(router) => Some((transform.name.as_str(), &**router)),
            Does::DecodeMessage { .. } | Does::Overwritten { .. } | Does::Foreign { .. } => None,
        })
    }
}

impl Import {
    /// Reads a connector's file, and the worker's where there is one. `strict` makes unknown keys errors.
    pub fn read(
        path: &Path,
        worker: Option<&Path>,
        strict: bool,
        environment: &Environment,
    ) -> Result<Import, ConfigError> {
        Import::parse(path, contents(path)?, worker, strict, environment)
    }

    /// The same, of a file that has been read.
    pub(super) fn parse(
        path: &Path,
        bytes: Vec<u8>,
        worker: Option<&Path>,
        strict: bool,
        environment: &Environment,
    ) -> Result<Import, ConfigError> {
        let given = Given::read(path, bytes, worker, environment)?;
        let remarks = judge::judge(&given, strict)?;
        let connector = settings::Reader::new(&given).connector(environment)?;
        Ok(Import { given, connector, remarks })
    }

    /// What it means.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Keys that mean nothing here, and unknown ones.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// It as walpost's settings, secrets and all: paths, their values and the keys that they come from.
    pub(super) fn settings(&self) -> Vec<(String, Value, String)> {
        let mut settings = Vec::new();
        let mut outboxes: Option<(Vec<Value>, String)> = None;
        for Line { section, name, value, origin } in self.counterpart().lines {
            match section {
                "[[outbox]]" => {
                    let (tables, _) = outboxes.get_or_insert_with(|| (Vec::new(), origin));
                    tables.push(Value::Table(toml::Table::from_iter([(name, value)])));
                }
                "" => settings.push((name, value, origin)),
                section => settings.push((format!("{section}.{name}"), value, origin)),
            }
        }
        settings.extend(outboxes.map(|(tables, origin)| ("outbox".to_owned(), Value::Array(tables), origin)));
        for (path, value, _) in &mut settings {
            if path == "database_url" {
                *value = Value::from(self.connector.database.url_with_secrets().expose_secret());
            }
        }
        let secrets = self.connector.producer.properties.iter().filter(|(name, _)| kafka::is_secret(name));
        settings.extend(
            secrets.map(|(name, told)| (format!("kafka.{name}"), Value::from(told.value.as_str()), told.key.clone())),
        );
        settings
    }

    /// What walpost's own settings say of it.
    pub fn counterpart(&self) -> Counterpart {
        counterpart::of(&self.given, &self.connector)
    }
}
