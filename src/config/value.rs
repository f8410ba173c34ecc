//! Values as people write them: durations, sizes, counts, switches.
//!
//! Each function reads one TOML value and says in its error what to write instead. Integers and booleans may be
//! texts, as variables and flags give them.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use fluent_uri::UriRef;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error};
use toml::Value;

use crate::pipeline::{
    outbox::{
        TableName, Timestamp,
        cloudevents_text::{flaw, is_envelope, is_media_type},
        is_topic,
    },
    template::{Template, TemplateError},
};

use super::identifier::catalog_name;

/// Longest duration: what is longer is a slip, and clocks overflow with much longer ones.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::String(_) => Err(D::Error::custom("this is empty; leave it out or give it a value")),
        other => Err(refused::<D>(&other, "a text", "it in double quotes")),
    }
}

pub(super) fn optional_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    text(from).map(Some)
}

/// The value stays out of the error.
pub(super) fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    match scalar(Value::deserialize(from)?) {
        Some(text) => Ok(Some(text.into())),
        None => Err(D::Error::custom("this is no text; write it in double quotes")),
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let value = Value::deserialize(from)?;
    let parsed = value.as_str().and_then(|text| humantime::parse_duration(text).ok());
    match parsed {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        Some(_) => Err(D::Error::custom(format!("{value} is longer than a year"))),
        None => Err(refused::<D>(&value, "a duration", "a number and a unit, as in \"20ms\", \"5s\" or \"7d\"")),
    }
}

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(from).map(Some)
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let value = Value::deserialize(from)?;
    let parsed = match &value {
        Value::Integer(bytes) => usize::try_from(*bytes).ok(),
        Value::String(text) => bytes(text),
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    parsed.ok_or_else(|| refused::<D>(&value, "a size", "bytes, or a number and a unit, as in \"64MiB\""))
}

/// `64MiB`, `10 kB`, `512`. `k`, `M` and `G` alone are decimal, as their names are.
fn bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: usize = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(factor)
}

pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let value = Value::deserialize(from)?;
    whole(&value).ok_or_else(|| refused::<D>(&value, "a count", "a whole number from 1"))
}

pub(super) fn optional_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    let value = Value::deserialize(from)?;
    let count = whole(&value).and_then(|count| i32::try_from(count).ok());
    count.map(Some).ok_or_else(|| refused::<D>(&value, "a count", "a whole number from 1"))
}

fn whole(value: &Value) -> Option<usize> {
    let number = match value {
        Value::Integer(number) => usize::try_from(*number).ok(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    number.filter(|number| *number >= 1)
}

pub(super) fn boolean<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(from)?;
    let parsed = match &value {
        Value::Boolean(switch) => Some(*switch),
        Value::String(text) => text.trim().parse().ok(),
        Value::Integer(_) | Value::Float(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    };
    parsed.ok_or_else(|| refused::<D>(&value, "a switch", "true or false"))
}

/// An address, or `off`.
pub(super) fn listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let value = Value::deserialize(from)?;
    match value.as_str() {
        Some("off") => Ok(None),
        Some(text) if text.parse::<SocketAddr>().is_ok() => Ok(text.parse().ok()),
        _ => Err(refused::<D>(&value, "an address", "a number and a port, as in \"127.0.0.1:9464\", or \"off\"")),
    }
}

pub(super) fn timestamp<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    match text(from)?.as_str() {
        "commit" => Ok(Timestamp::Commit),
        "column" => Ok(Timestamp::Column),
        other => Err(D::Error::custom(format!("{other:?} is no timestamp; write \"commit\" or \"column\""))),
    }
}

pub(super) fn template<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    text(from)?.parse().map_err(D::Error::custom)
}

/// The same, of a URL: its path may be a secret, and is not repeated.
pub(super) fn url_template<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    text(from)?.parse().map_err(|error| {
        D::Error::custom(match error {
            TemplateError::Unclosed(_) => "the URL opens ${ and never closes it; write ${column}".to_owned(),
            TemplateError::NoColumn(_) => "the URL has an empty ${}; write ${column}".to_owned(),
            TemplateError::Empty => "the URL is empty; write one such as https://example.com/events".to_owned(),
        })
    })
}

pub(super) fn optional_template<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Template>, D::Error> {
    template(from).map(Some)
}

/// Texts joined by commas.
pub(super) fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(text(from)?.split(',').map(|text| text.trim().to_owned()).collect())
}

/// What `type` of an event is made of.
pub(super) fn event_type<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    let template: Template = template(from)?;
    for part in template.parts() {
        if let Some(flaw) = part.text().and_then(flaw) {
            return Err(D::Error::custom(format!("the type {flaw}, which CloudEvents do not allow")));
        }
    }
    Ok(template)
}

pub(super) fn optional_uri_reference<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let reference = text(from)?;
    if let Err(error) = UriRef::parse(reference.as_str()) {
        return Err(D::Error::custom(format!(
            "{reference:?} is no URI-reference of RFC 3986 ({error}); write one such as \"https://example.com/orders\" or \
             \"/orders\", other characters as %XX"
        )));
    }
    Ok(Some(reference))
}

pub(super) fn optional_media_type<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = text(from)?;
    if !is_media_type(&name) || is_envelope(&name) {
        return Err(D::Error::custom(format!(
            "{name:?} is no media type of a payload; write one such as \"application/json\""
        )));
    }
    Ok(Some(name))
}

/// A name that Kafka takes.
pub(super) fn topic<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = text(from)?;
    if !is_topic(&name) {
        return Err(D::Error::custom(format!(
            "{name:?} is no topic; Kafka takes 1 to 249 of a-z A-Z 0-9 . _ - and neither \".\" nor \"..\""
        )));
    }
    Ok(name)
}

pub(super) fn optional_topic<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    topic(from).map(Some)
}

pub(super) fn table<'de, D: Deserializer<'de>>(from: D) -> Result<TableName, D::Error> {
    text(from)?.parse().map_err(D::Error::custom)
}

pub(super) fn optional_table<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TableName>, D::Error> {
    table(from).map(Some)
}

/// A name as the catalog holds it.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = text(from)?;
    if name.starts_with('"') {
        return Err(D::Error::custom(format!("write the name {name:?} as the catalog holds it, without SQL's quotes")));
    }
    catalog_name(&name).map_err(D::Error::custom)?;
    Ok(name)
}

/// Names as the catalog holds them, joined by commas.
pub(super) fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names: Vec<String> = text(from)?.split(',').map(|name| name.trim().to_owned()).collect();
    names.iter().try_for_each(|name| catalog_name(name)).map_err(D::Error::custom)?;
    Ok(names)
}

pub(super) fn optional_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    name(from).map(Some)
}

/// librdkafka's properties are texts to librdkafka, whatever TOML calls them. The values stay out of the errors: some
/// of them are secrets.
pub(super) fn properties<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut properties = BTreeMap::new();
    for (name, value) in BTreeMap::<String, Value>::deserialize(from)? {
        let text = scalar(value).ok_or_else(|| {
            D::Error::custom(format!("{name} is neither a text nor a number nor a switch; write it in double quotes"))
        })?;
        properties.insert(name, text);
    }
    Ok(properties)
}

fn scalar(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(switch) => Some(switch.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

fn refused<'de, D: Deserializer<'de>>(value: &Value, what: &str, write: &str) -> D::Error {
    D::Error::custom(match value {
        Value::Array(_) => format!("a list is not {what}; write {write}"),
        Value::Table(_) => format!("a section is not {what}; write {write}"),
        Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {
            format!("{value} is not {what}; write {write}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_with_and_without_units() {
        for (text, expected) in [
            ("512", Some(512)),
            ("512B", Some(512)),
            ("10 kB", Some(10_000)),
            ("1k", Some(1_000)),
            ("64MiB", Some(64 << 20)),
            ("64 mib", Some(64 << 20)),
            ("2GiB", Some(2 << 30)),
            ("", None),
            ("MiB", None),
            ("1.5MiB", None),
            ("-1", None),
            ("1PiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn values_of_the_wrong_kind_say_what_to_write() {
        let message = |value: Value| duration(value).unwrap_err().message().to_owned();
        assert_eq!(
            message(Value::from("20 parsecs")),
            r#""20 parsecs" is not a duration; write a number and a unit, as in "20ms", "5s" or "7d""#
        );
        assert!(message(Value::from(20)).starts_with("20 is not a duration"));
        assert!(message(Value::Array(Vec::new())).starts_with("a list is not a duration"));
        assert_eq!(message(Value::from("9000y")), r#""9000y" is longer than a year"#);
    }
}
