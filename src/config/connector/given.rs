//! Reading a connector's files: whose keys they are, and the values they come to.
//!
//! Four forms: the JSON that Kafka Connect's REST interface takes, bare or as `{"name", "config"}`; Java properties;
//! Debezium Server's `application.properties`; and a worker's properties, which stand beside any of them or in the same
//! file. What they say is laid out as Kafka Connect would have it: keys of the connector, and keys of the worker below.

use std::{collections::BTreeMap, path::Path};

use super::{properties, provider};
use crate::config::{ConfigError, Environment, Origin, Place};

/// What runs the connector today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Connect,
    /// Debezium Server, whose Kafka sink ignores a record's partition and timestamp and drops headers that are null.
    Server,
}

/// A value as given.
#[derive(Clone)]
pub(super) struct Item {
    /// References to config providers looked up.
    pub(super) value: String,
    /// What was written where the value came from somewhere else, and may be a secret.
    pub(super) reference: Option<String>,
    /// The file, and the key as it stands there.
    pub(super) place: Place,
}

pub(super) type Items = BTreeMap<String, Item>;

/// All that was given.
pub(super) struct Given {
    pub(super) host: Host,
    /// The file of the connector.
    pub(super) origin: Origin,
    /// What stands before the connector's keys there.
    pub(super) section: &'static str,
    /// As Kafka Connect knows the connector.
    pub(super) name: Option<String>,
    pub(super) connector: Items,
    pub(super) worker: Items,
    /// A file of the worker was given, so that its defaults hold.
    pub(super) has_worker: bool,
}

impl Given {
    /// Takes what the connector's file holds, and reads the worker's where there is one.
    pub(super) fn read(
        path: &Path,
        bytes: Vec<u8>,
        worker: Option<&Path>,
        environment: &Environment,
    ) -> Result<Given, ConfigError> {
        let mut given = if is_json(path, &bytes) {
            let text = String::from_utf8(bytes).map_err(|_| syntax(path, 1, 1, "this is not UTF-8".to_owned()))?;
            json(path, &text)?
        } else {
            let pairs = parsed(path, &properties::latin1(&bytes))?;
            if pairs.iter().any(|(key, _)| key.starts_with("debezium.")) {
                // Quarkus reads UTF-8, Java's own reader does not.
                let utf8 = String::from_utf8(bytes)
                    .map_err(|_| syntax(path, 1, 1, "this is not UTF-8, which Debezium Server reads".to_owned()))?;
                server(path, parsed(path, &utf8)?, environment)?
            } else {
                Given::connect(path, None, pairs)
            }
        };
        if let Some(worker) = worker {
            given.has_worker = true;
            let pairs = parsed(worker, &properties::latin1(&contents(worker)?))?;
            given.worker.extend(pairs.into_iter().map(|(key, value)| (key.clone(), item(worker, key, value))));
        }
        given.look_up(environment)?;
        Ok(given)
    }

    fn connect(path: &Path, name: Option<String>, pairs: impl IntoIterator<Item = (String, String)>) -> Given {
        let pairs = pairs.into_iter().map(|(key, value)| (key.clone(), item(path, key, value)));
        let (host, connector) = (Host::Connect, pairs.collect());
        Given { name, ..Given::of(host, Origin::File(path.to_owned()), "", connector) }
    }

    /// Keys as Kafka Connect has them.
    pub(super) fn of(host: Host, origin: Origin, section: &'static str, connector: Items) -> Given {
        Given { host, origin, section, name: None, connector, worker: Items::new(), has_worker: false }
    }

    /// Lays what the connector gives over what the worker gives, by name.
    pub(super) fn get(&self, name: &str) -> Option<&Item> {
        self.connector.get(name).or_else(|| self.worker.get(name))
    }

    fn look_up(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        // They are the worker's, which may be in the same file.
        let settings: BTreeMap<String, String> = self
            .worker
            .iter()
            .chain(&self.connector)
            .filter(|(key, _)| key.starts_with("config.providers"))
            .map(|(key, item)| (key.clone(), item.value.clone()))
            .collect();
        let providers = provider::Providers::new(environment, |key| settings.get(key).map(String::as_str));
        for item in self.connector.values_mut().chain(self.worker.values_mut()) {
            let resolved = providers
                .resolve(&item.value)
                .map_err(|problem| ConfigError::Value { place: item.place.clone(), problem })?;
            if resolved != item.value {
                let written = std::mem::replace(&mut item.value, resolved);
                item.reference.get_or_insert(written);
            }
        }
        Ok(())
    }
}

/// Whether a file is a connector's or Debezium Server's, by the end of its name, else by what it holds.
pub(in crate::config) fn is_connector(path: &Path, bytes: &[u8]) -> bool {
    let starts = |line: &[u8]| CLASS_KEYS.iter().any(|key| line.trim_ascii_start().starts_with(key.as_bytes()));
    match extension(path).as_str() {
        "json" | "properties" => true,
        "toml" => false,
        _ => is_json(path, bytes) || bytes.split(|byte| *byte == b'\n').any(starts),
    }
}

/// Every file of properties has one of them.
const CLASS_KEYS: [&str; 2] = ["connector.class", "debezium.source.connector.class"];

fn is_json(path: &Path, bytes: &[u8]) -> bool {
    match extension(path).as_str() {
        "json" => true,
        "properties" => false,
        _ => bytes.trim_ascii_start().starts_with(b"{"),
    }
}

fn extension(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

pub(in crate::config) fn contents(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

fn parsed(path: &Path, text: &str) -> Result<Vec<(String, String)>, ConfigError> {
    match properties::parse(text) {
        Ok(properties) => Ok(properties.into_iter().map(|(key, value, _)| (key, value)).collect()),
        Err(malformed) => {
            Err(syntax(path, malformed.line, 1, "\\u is not followed by four hexadecimal digits".to_owned()))
        }
    }
}

fn syntax(path: &Path, line: usize, column: usize, problem: String) -> ConfigError {
    ConfigError::Syntax { path: path.to_owned(), line, column, problem }
}

fn item(path: &Path, name: String, value: String) -> Item {
    Item { value, reference: None, place: Place { origin: Origin::File(path.to_owned()), path: name } }
}

/// The REST interface's form. Numbers and switches are their texts, as they are to Kafka Connect.
fn json(path: &Path, text: &str) -> Result<Given, ConfigError> {
    use serde_json::Value;
    // Editors of another system begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Eof => "the JSON ends too early",
            _ => "this is no JSON",
        };
        syntax(path, error.line(), error.column(), problem.to_owned())
    })?;
    let no_object = || syntax(path, 1, 1, "write a JSON object: the connector's keys, or name and config".to_owned());
    let Value::Object(mut members) = value else { return Err(no_object()) };
    let name = match members.get("config") {
        Some(Value::Object(_)) => {
            let Some(Value::Object(config)) = members.remove("config") else { return Err(no_object()) };
            let name = members.remove("name").and_then(|name| name.as_str().map(str::to_owned));
            // What else Kafka Connect's requests and answers have beside the two.
            let known = ["initial_state", "tasks", "type"];
            if let Some(other) = members.keys().find(|key| !known.contains(&key.as_str())) {
                let problem = "this stands beside `config`; keys of the connector stand inside it".to_owned();
                return Err(ConfigError::Value { place: item(path, other.clone(), String::new()).place, problem });
            }
            members = config;
            name
        }
        _ => None,
    };
    let mut pairs = Vec::new();
    for (key, value) in members {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(switch) => switch.to_string(),
            Value::Null => continue,
            Value::Array(_) | Value::Object(_) => {
                let problem = "a connector's values are texts; write it in double quotes".to_owned();
                return Err(ConfigError::Value { place: item(path, key, String::new()).place, problem });
            }
        };
        pairs.push((key, text));
    }
    Ok(Given::connect(path, name, pairs))
}

/// Whether a property of Debezium Server is about transforms or predicates.
fn is_chain(name: &str) -> bool {
    ["debezium.transforms", "debezium.predicates"]
        .iter()
        .any(|chain| name.strip_prefix(chain).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// Debezium Server's form, laid out as Kafka Connect's.
fn server(path: &Path, pairs: Vec<(String, String)>, environment: &Environment) -> Result<Given, ConfigError> {
    let given: BTreeMap<String, String> = pairs.into_iter().collect();
    let place = |name: &str| item(path, name.to_owned(), String::new()).place;
    let refuse = |name: &str, problem: String| ConfigError::Value { place: place(name), problem };
    let mut items = Items::new();
    let mut formats: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (name, raw) in &given {
        // Properties of a profile hold in that profile only, and what runs in production is `prod`.
        let bare = match name.strip_prefix('%').and_then(|rest| rest.split_once('.')) {
            Some(("prod", bare)) => bare,
            Some(_) => continue,
            None => name,
        };
        let property = |other: &str| given.get(other).filter(|_| other != name).cloned();
        let value = provider::expanded(raw, &property, environment).map_err(|problem| refuse(name, problem))?;
        let reference = (value != *raw).then(|| raw.clone());
        let mut put = |key: String| {
            items.insert(key, Item { reference: reference.clone(), ..item(path, name.clone(), value.clone()) });
        };
        if let Some(key) = bare.strip_prefix("debezium.source.") {
            put(key.to_owned());
        } else if let Some(key) = bare.strip_prefix("debezium.sink.kafka.producer.") {
            put(if key == "bootstrap.servers" { key.to_owned() } else { format!("producer.{key}") });
        } else if bare == "debezium.sink.type" {
            if value != "kafka" {
                return Err(refuse(name, format!("the sink {value:?} is not available; walpost writes to kafka")));
            }
        } else if is_chain(bare) {
            put(bare["debezium.".len()..].to_owned());
        } else if let Some(part) = bare.strip_prefix("debezium.format.") {
            match part.split_once('.') {
                None if ["key", "value", "header"].contains(&part) => {
                    formats.insert(part, (name.clone(), value.clone()));
                }
                Some((part @ ("key" | "value" | "header"), option)) => put(format!("{part}.converter.{option}")),
                // It is about each of the three.
                _ => {
                    for converter in ["key", "value", "header"] {
                        let key = format!("{converter}.converter.{part}");
                        if !given.contains_key(&format!("debezium.format.{converter}.{part}")) {
                            items.insert(
                                key,
                                Item { reference: reference.clone(), ..item(path, name.clone(), value.clone()) },
                            );
                        }
                    }
                }
            }
        } else if bare.starts_with("quarkus.") || bare == "debezium.sink.kafka.wait.message.delivery.timeout.ms" {
            // Settings of its frame.
        } else {
            put(bare.to_owned());
        }
    }
    for part in ["key", "value", "header"] {
        let (name, format) =
            formats.remove(part).unwrap_or_else(|| (format!("debezium.format.{part}"), "json".to_owned()));
        let class = match (format.to_ascii_lowercase().as_str(), part) {
            ("json" | "jsonbytearray", _) => "org.apache.kafka.connect.json.JsonConverter",
            ("simplestring", "key" | "value") => "org.apache.kafka.connect.storage.StringConverter",
            ("binary", "key" | "value") => "io.debezium.converters.BinaryDataConverter",
            ("connect" | "clientprovided" | "avro" | "protobuf" | "cloudevents", _) => {
                return Err(refuse(
                    &name,
                    format!("the format {format:?} is not available; use json, simplestring or binary"),
                ));
            }
            (_, "header") => {
                return Err(refuse(
                    &name,
                    format!("{format:?} is not a format of headers; allowed are json, jsonbytearray"),
                ));
            }
            (_, _) => {
                return Err(refuse(
                    &name,
                    format!("{format:?} is not a format; allowed are json, jsonbytearray, simplestring, binary"),
                ));
            }
        };
        // A class that is named prevails over the format.
        let named = items.remove(&format!("{part}.converter.class"));
        let converter = named.unwrap_or_else(|| item(path, name, class.to_owned()));
        items.insert(format!("{part}.converter"), converter);
    }
    items.entry("name".to_owned()).or_insert_with(|| item(path, "debezium.sink.type".to_owned(), "kafka".to_owned()));
    Ok(Given::of(Host::Server, Origin::File(path.to_owned()), "", items))
}
