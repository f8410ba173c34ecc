//! From judged keys to a [`Connector`].

use std::time::Duration;

use super::{
    Autocreate, Connector, Heartbeat, Operations, Publication, Selection, SnapshotMode, Tables, Tolerance,
    TopicCreation, TopicGroup,
    catalogue::{default_of, default_of_option},
    given::{Given, Item, Items},
    kind, list,
    producer::Producer,
};
use crate::{
    config::{ConfigError, Environment, Place},
    connect::{Role, regex::Pattern},
    debezium::modes::{
        BinaryMode, DecimalMode, FailureMode, HstoreMode, IntervalMode, Modes, NameAdjustment, TimeMode,
    },
};

/// Debezium sets this heartbeat where the driver confirms positions too (`lsn.flush.mode`).
const FALLBACK_HEARTBEAT_MS: u64 = 600_000;

/// Reads keys whose values have been checked.
pub(super) struct Reader<'a> {
    pub(super) given: &'a Given,
}

/// The options of one transform or predicate.
pub(super) struct Options<'a> {
    items: &'a Items,
    prefix: String,
    class: String,
    reader: &'a Reader<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(given: &'a Given) -> Reader<'a> {
        Reader { given }
    }

    pub(super) fn connector(&self, environment: &Environment) -> Result<Connector, ConfigError> {
        let topic_prefix = self.required("topic.prefix")?;
        self.required("connector.class")?;
        let topic_delimiter = self.text("topic.delimiter");
        let transactions = self.switch("provide.transaction.metadata");
        Ok(Connector {
            name: self.given.name.clone().or_else(|| self.optional("name")),
            host: self.given.host,
            database: self.database(environment)?,
            slot: self.text("slot.name"),
            failover: self.switch("slot.failover"),
            publication: Publication {
                name: self.text("publication.name"),
                autocreate: Autocreate::parse(&self.text("publication.autocreate.mode"))
                    .unwrap_or(Autocreate::AllTables),
                via_root: self.switch("publish.via.partition.root"),
            },
            tables: Tables {
                schemas: self.selection("schema")?,
                tables: self.selection("table")?,
                columns: self.selection("column")?,
                ignore_builtin: self.switch("table.ignore.builtin"),
            },
            message_prefixes: self.selection("message.prefix")?,
            skipped: operations(&self.text("skipped.operations")),
            skip_unchanged: self.switch("skip.messages.without.change"),
            tombstones_on_delete: self.switch("tombstones.on.delete"),
            snapshot: self.snapshot()?,
            modes: self.modes(),
            schema_names: NameAdjustment::parse(&self.text("schema.name.adjustment.mode"))
                .unwrap_or(NameAdjustment::None),
            message_key_columns: self.optional("message.key.columns"),
            context_headers: self.switch("extended.headers.enabled"),
            transaction_topic: transactions
                .then(|| format!("{topic_prefix}{topic_delimiter}{}", self.text("topic.transaction"))),
            heartbeat: self.heartbeat(&topic_prefix, &topic_delimiter, transactions),
            topic_prefix,
            topic_delimiter,
            transforms: self.transforms()?,
            key_converter: self.converter(Role::Key)?,
            value_converter: self.converter(Role::Value)?,
            header_converter: self.converter(Role::Header)?,
            tolerance: if self.text("errors.tolerance") == "all" { Tolerance::All } else { Tolerance::None },
            status_interval: Duration::from_millis(self.number("status.update.interval.ms")),
            producer: Producer::read(self)?,
            topic_creation: self.topic_creation()?,
            open_telemetry: environment
                .get("OTEL_JAVA_GLOBAL_AUTOCONFIGURE_ENABLED")
                .is_some_and(|value| kind::boolean(&value) == Some(true)),
        })
    }

    fn modes(&self) -> Modes {
        let usual = Modes::default();
        let unavailable = self.text("unavailable.value.placeholder");
        let mode = |name| self.text(name);
        Modes {
            binary: BinaryMode::parse(&mode("binary.handling.mode")).unwrap_or(usual.binary),
            decimal: DecimalMode::parse(&mode("decimal.handling.mode")).unwrap_or(usual.decimal),
            time: TimeMode::parse(&mode("time.precision.mode")).unwrap_or(usual.time),
            interval: IntervalMode::parse(&mode("interval.handling.mode")).unwrap_or(usual.interval),
            hstore: HstoreMode::parse(&mode("hstore.handling.mode")).unwrap_or(usual.hstore),
            money_fraction_digits: self.number("money.fraction.digits") as u16,
            include_unknown_datatypes: self.switch("include.unknown.datatypes"),
            failures: FailureMode::parse(&mode("event.converting.failure.handling.mode")).unwrap_or(usual.failures),
            field_names: NameAdjustment::parse(&mode("field.name.adjustment.mode")).unwrap_or(usual.field_names),
            unavailable_value_placeholder: match unavailable.strip_prefix("hex:") {
                Some(digits) => bytes_of_hex(digits),
                None => unavailable.into_bytes(),
            },
        }
    }

    fn snapshot(&self) -> Result<SnapshotMode, ConfigError> {
        let refuse = |why: &str| {
            let item = self.given.get("snapshot.mode");
            let problem = format!(
                "{:?} is not available: {why}; allowed are initial, no_data, initial_only, when_needed",
                self.text("snapshot.mode")
            );
            Err(item.map_or_else(|| self.missing("snapshot.mode", why), |item| self.refuse(item, problem)))
        };
        match self.word("snapshot.mode").as_str() {
            "no_data" => Ok(SnapshotMode::NoData),
            "initial_only" => Ok(SnapshotMode::InitialOnly),
            "when_needed" => Ok(SnapshotMode::WhenNeeded),
            "always" => refuse("every start would send every row again"),
            "custom" => refuse("walpost runs no Java classes"),
            "configuration_based" => {
                let says = |what: &str| self.switch(&format!("snapshot.mode.configuration.based.{what}"));
                match (says("snapshot.data"), says("start.stream"), says("snapshot.on.data.error")) {
                    (true, true, true) => Ok(SnapshotMode::WhenNeeded),
                    (true, true, false) => Ok(SnapshotMode::Initial),
                    (true, false, _) => Ok(SnapshotMode::InitialOnly),
                    (false, true, _) => Ok(SnapshotMode::NoData),
                    (false, false, _) => refuse("it reads no rows and starts no stream"),
                }
            }
            _ => Ok(SnapshotMode::Initial),
        }
    }

    fn heartbeat(&self, prefix: &str, delimiter: &str, transactions: bool) -> Option<Heartbeat> {
        let fallback = self.word("lsn.flush.mode") == "connector_and_driver" && !transactions;
        let interval = match self.number("heartbeat.interval.ms") {
            0 if fallback => FALLBACK_HEARTBEAT_MS,
            0 => return None,
            interval => interval,
        };
        let named = self.optional("topic.heartbeat.name").filter(|name| !name.is_empty());
        let topic = named.unwrap_or_else(|| format!("{}{delimiter}{prefix}", self.text("topic.heartbeat.prefix")));
        Some(Heartbeat { interval: Duration::from_millis(interval), topic })
    }

    /// `<of>.include.list` or `<of>.exclude.list`.
    fn selection(&self, of: &str) -> Result<Option<Selection>, ConfigError> {
        let given =
            |what: &str| self.given.get(&format!("{of}.{what}.list")).filter(|item| !item.value.trim().is_empty());
        let (item, include) = match (given("include"), given("exclude")) {
            (Some(_), Some(exclude)) => {
                let problem = format!("{of}.include.list is given too; leave one of them out");
                return Err(self.refuse(exclude, problem));
            }
            (Some(include), None) => (include, true),
            (None, Some(exclude)) => (exclude, false),
            (None, None) => return Ok(None),
        };
        let selection = Selection::parse(&item.value, include);
        selection
            .map(Some)
            .map_err(|error| self.refuse(item, format!("{:?} is no list of patterns: {error}", item.value)))
    }

    fn topic_creation(&self) -> Result<Option<TopicCreation>, ConfigError> {
        let given =
            self.given.connector.keys().any(|key| key.starts_with("topic.creation.") && key != "topic.creation.enable");
        if !given || !self.switch("topic.creation.enable") {
            return Ok(None);
        }
        let names = self.optional("topic.creation.groups").unwrap_or_default();
        let mut groups = Vec::new();
        for name in list::names(&names).filter(|name| *name != "default").chain(["default"]) {
            groups.push(self.topic_group(name)?);
        }
        // A group takes from the default what it does not say itself.
        if let Some((default, others)) = groups.split_last_mut() {
            for group in others {
                let says =
                    |what: &str| self.given.connector.contains_key(&format!("topic.creation.{}.{what}", group.name));
                group.partitions = if says("partitions") { group.partitions } else { default.partitions };
                group.replication = if says("replication.factor") { group.replication } else { default.replication };
            }
        }
        Ok(Some(TopicCreation { groups }))
    }

    fn topic_group(&self, name: &str) -> Result<TopicGroup, ConfigError> {
        let prefix = format!("topic.creation.{name}.");
        let count =
            |what: &str| -> Result<Option<i32>, ConfigError> {
                match self.given.connector.get(&format!("{prefix}{what}")) {
                    Some(item) => Ok(item.value.trim().parse().ok().filter(|count| *count > 0)),
                    None if name == "default" => Err(self
                        .missing(&format!("{prefix}{what}"), "this is not given; with topic.creation keys it must be")),
                    None => Ok(None),
                }
            };
        let patterns = |what: &str| -> Vec<Pattern> {
            let value = self.given.connector.get(&format!("{prefix}{what}")).map_or("", |item| &item.value);
            list::names(value).filter_map(|pattern| Pattern::parse(pattern).ok()).collect()
        };
        let own = ["partitions", "replication.factor", "include", "exclude"];
        let settings = self.given.connector.iter().filter_map(|(key, item)| {
            let setting = key.strip_prefix(&prefix).filter(|setting| !own.contains(setting))?;
            Some((setting.to_owned(), item.value.clone()))
        });
        Ok(TopicGroup {
            name: name.to_owned(),
            partitions: count("partitions")?,
            replication: count("replication.factor")?,
            include: patterns("include"),
            exclude: patterns("exclude"),
            settings: settings.collect(),
        })
    }

    pub(super) fn options<'o>(&'o self, prefix: &str, class: &str) -> Options<'o> {
        Options {
            items: &self.given.connector,
            prefix: prefix.to_owned(),
            class: class.trim().to_owned(),
            reader: self,
        }
    }

    /// The value that was given, none where nobody did.
    pub(super) fn optional(&self, name: &str) -> Option<String> {
        self.given.get(name).map(|item| item.value.clone())
    }

    /// The value, or its default, or nothing.
    pub(super) fn text(&self, name: &str) -> String {
        self.optional(name).unwrap_or_else(|| default_of(name).unwrap_or_default().to_owned())
    }

    pub(super) fn word(&self, name: &str) -> String {
        self.text(name).trim().to_ascii_lowercase()
    }

    pub(super) fn switch(&self, name: &str) -> bool {
        kind::boolean(&self.text(name)) == Some(true)
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).trim().parse().unwrap_or_default()
    }

    pub(super) fn required(&self, name: &str) -> Result<String, ConfigError> {
        let given = self.optional(name).filter(|value| !value.trim().is_empty());
        given.ok_or_else(|| self.missing(name, "this is not given; the connector needs it"))
    }

    pub(super) fn refuse(&self, item: &Item, problem: String) -> ConfigError {
        ConfigError::Value { place: item.place.clone(), problem }
    }

    /// An error about a key that is not there.
    pub(super) fn missing(&self, name: &str, problem: &str) -> ConfigError {
        let place = Place { origin: self.given.origin.clone(), path: format!("{}{name}", self.given.section) };
        ConfigError::Value { place, problem: problem.to_owned() }
    }
}

impl<'a> Options<'a> {
    pub(super) fn item(&self, option: &str) -> Option<&'a Item> {
        self.items.get(&format!("{}{option}", self.prefix))
    }

    pub(super) fn optional(&self, option: &str) -> Option<String> {
        self.item(option).map(|item| item.value.clone())
    }

    pub(super) fn text(&self, option: &str) -> String {
        self.optional(option).unwrap_or_else(|| default_of_option(&self.class, option).unwrap_or_default().to_owned())
    }

    /// The name of a column or header.
    pub(super) fn name(&self, option: &str) -> String {
        self.text(option)
    }

    pub(super) fn switch(&self, option: &str) -> bool {
        kind::boolean(&self.text(option)) == Some(true)
    }

    pub(super) fn required(&self, option: &str) -> Result<String, ConfigError> {
        let given = self.optional(option).filter(|value| !value.is_empty());
        given.ok_or_else(|| self.refuse(None, option, "this is not given; its class needs it".to_owned()))
    }

    pub(super) fn pattern(&self, option: &str) -> Result<Pattern, ConfigError> {
        let text = match default_of_option(&self.class, option) {
            Some(_) => self.text(option),
            None => self.required(option)?,
        };
        Pattern::parse(&text).map_err(|error| {
            self.refuse(self.item(option), option, format!("{text:?} is no regular expression of Java's: {error}"))
        })
    }

    pub(super) fn refuse(&self, item: Option<&Item>, option: &str, problem: String) -> ConfigError {
        match item {
            Some(item) => self.reader.refuse(item, problem),
            None => self.reader.missing(&format!("{}{option}", self.prefix), &problem),
        }
    }
}

/// Operations of a list that has been checked.
fn operations(value: &str) -> Operations {
    let has = |operation: &str| value.split(',').any(|given| given.trim() == operation);
    Operations { create: has("c"), update: has("u"), delete: has("d"), truncate: has("t"), read: has("r") }
}

/// Pairs of hexadecimal digits; what is none ends them.
fn bytes_of_hex(digits: &str) -> Vec<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    digits.as_bytes().chunks_exact(2).map_while(|pair| Some((digit(&pair[0])? * 16 + digit(&pair[1])?) as u8)).collect()
}
