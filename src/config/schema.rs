//! `walpost config schema`: the shape of the configuration file as a JSON Schema, for editors that complete and check TOML.
//!
//! It is made of [`KEYS`] and takes what loading takes, so that no editor marks what holds. What depends on two keys, on a
//! name of librdkafka's or of a connector's, or on a file is left to `walpost config show`.

use serde_json::{Map, Value, json};

use super::{
    kafka,
    keys::{COLUMNS, KEYS, Key, Kind},
    librdkafka::PROPERTIES,
};

/// The newest draft that the editors' TOML plugins know.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// As humantime reads them.
const DURATION: &str = "^\\s*([0-9][0-9\\s]*(\\.[0-9]+)?\\s*(nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|\
                        sec|s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h|days|day|d|weeks|week|wks|wk|w|months|month|M|\
                        years|year|yrs|yr|y)\\s*)+$";

/// The schema of the file as a whole.
pub fn schema() -> Value {
    let mut file = table(KEYS.iter());
    file["$schema"] = json!(DRAFT);
    file["title"] = json!("walpost");
    file["description"] =
        json!("Configuration of walpost, which streams a PostgreSQL outbox to Kafka, RabbitMQ or webhooks.");
    file["definitions"] = json!({ "property": property() });
    file
}

/// A table with these keys and no other; `route.topic` is in a table of its own.
fn table(keys: impl Iterator<Item = &'static Key>) -> Value {
    let mut properties = Map::new();
    for key in keys {
        match key.path.split_once('.') {
            None => {
                properties.insert(key.path.to_owned(), value(key));
            }
            Some((section, name)) => {
                let section = properties.entry(section).or_insert_with(|| closed(Map::new()));
                section["properties"][name] = value(key);
            }
        }
    }
    closed(properties)
}

fn closed(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn value(key: &Key) -> Value {
    let mut schema = match key.kind {
        Kind::Text | Kind::SecretFile => json!({ "type": "string", "minLength": 1 }),
        Kind::Secret => json!({ "type": "string" }),
        Kind::Duration => json!({ "type": "string", "pattern": DURATION }),
        Kind::Size => json!({
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^\\s*[0-9]+\\s*([bB]|[kKmMgG]([iI]?[bB])?)?\\s*$",
        }),
        Kind::Count => json!({
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": "^\\s*\\+?0*[1-9][0-9]*\\s*$",
        }),
        Kind::Boolean => json!({ "type": ["boolean", "string"], "pattern": "^\\s*(true|false)\\s*$" }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Columns => {
            let column = || json!({ "type": "string", "minLength": 1 });
            closed(COLUMNS.iter().map(|name| ((*name).to_owned(), column())).collect())
        }
        Kind::Properties => properties(key),
        Kind::Outboxes => {
            let mut outbox = table(KEYS.iter().filter(|key| key.per_outbox));
            outbox["anyOf"] = json!([{ "required": ["table"] }, { "required": ["message_prefix"] }]);
            json!({ "type": "array", "minItems": 1, "items": outbox })
        }
    };
    schema["description"] = json!(description(key));
    if let Some(default) = key.default {
        schema["default"] = json!(key.kind.typed(default));
    }
    schema
}

/// Any names, those of librdkafka's that walpost leaves to the user for completion.
fn properties(key: &Key) -> Value {
    let property = || json!({ "$ref": "#/definitions/property" });
    let mut names = Map::new();
    if key.path == "kafka" {
        for name in PROPERTIES.iter().filter(|name| !kafka::is_owned(name)) {
            names.insert((*name).to_owned(), property());
            if kafka::is_secret(name) {
                names.insert(format!("{name}{}", kafka::FILE_SUFFIX), property());
            }
        }
    }
    json!({ "type": "object", "properties": names, "additionalProperties": property() })
}

/// A scalar. A name without quotes makes tables of its dots.
fn property() -> Value {
    json!({
        "type": ["string", "number", "boolean", "object"],
        "additionalProperties": { "$ref": "#/definitions/property" },
    })
}

fn description(key: &Key) -> String {
    match (key.kind, key.flag()) {
        (Kind::Outboxes, _) | (_, None) => format!("{}.", key.help),
        (Kind::Columns | Kind::Properties, Some(flag)) => {
            format!("{} (--{flag} NAME=VALUE, {}_NAME).", key.help, key.variable())
        }
        (_, Some(flag)) => format!("{} (--{flag}, {}).", key.help, key.variable()),
    }
}
