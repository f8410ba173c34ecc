//! `format = "cloudevents"`: [CloudEvents 1.0](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md) by its
//! [Kafka protocol binding](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md).
//!
//! In binary mode the value is the payload, and attributes are headers `ce_…`, but for `datacontenttype`, which is
//! `content-type`. In structured mode the value is an object in the JSON format of events, payload and all. A row whose
//! values an attribute cannot have is poison: what a consumer would get is no CloudEvent.

use std::str::from_utf8;

use fluent_uri::Uri;
use serde_json::value::RawValue;

use super::{
    Columns,
    cloudevents_text::{Flaw, flaw, is_envelope, is_extension, is_json, is_media_type},
    headers::{members, plain},
    layout::{Content, Payload, Room, Unwritten, Written},
    pattern::{Pattern, Unfilled},
    poison::Reason,
};
use crate::pipeline::{record::Headers, template::Template};

/// Of structured mode.
const ENVELOPE: &[u8] = b"application/cloudevents+json; charset=utf-8";
const CONTENT_TYPE: &str = "content-type";
/// What attributes are called in headers: the prefix and their name.
const PREFIX: &str = "ce_";
/// Attributes that the row's own headers cannot set.
const TAKEN: [&str; 14] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "data",
    "datacontenttype",
    "dataschema",
    "position",
    "aggregatetype",
    "idempotencykey",
    "aggregateversion",
    "partitionkey",
];
/// The extension of distributed tracing.
const TRACING: [&str; 2] = ["traceparent", "tracestate"];

/// `[cloudevents]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvents {
    pub mode: Mode,
    /// `source`: a URI-reference, not empty.
    pub source: String,
    /// `type`.
    pub event_type: Template,
    /// `datacontenttype` of the payloads; none: by the type of their column.
    pub content_type: Option<String>,
}

/// Where attributes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In headers.
    #[default]
    Binary,
    /// In the value, with the payload.
    Structured,
}

/// What writes the rows of a relation as events.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    mode: Mode,
    source: String,
    event_type: Pattern,
    content_type: String,
    columns: Columns,
}

/// An attribute by the name of its header.
type Attribute<'a> = (&'static str, &'a str);

/// What the row's own headers say beside what is sent as they have it.
#[derive(Debug, Default)]
struct Own {
    content_type: Option<String>,
    extensions: Vec<Extension>,
}

/// A member of the row's headers that is an attribute.
#[derive(Debug)]
struct Extension {
    name: String,
    text: String,
    /// A string rather than a number or truth.
    is_string: bool,
}

impl Writer {
    pub(super) fn new<E>(
        format: &CloudEvents,
        columns: &Columns,
        payload: Payload,
        index_of: impl Fn(&str) -> Result<usize, E>,
    ) -> Result<Writer, E> {
        let by_column = match payload {
            Payload::Json => "application/json",
            Payload::Bytea => "application/octet-stream",
            Payload::Xml => "application/xml",
            Payload::Text => "text/plain; charset=utf-8",
        };
        Ok(Writer {
            mode: format.mode,
            source: format.source.clone(),
            event_type: Pattern::new(&format.event_type, index_of)?,
            content_type: format.content_type.clone().unwrap_or_else(|| by_column.to_owned()),
            columns: columns.clone(),
        })
    }

    pub(super) fn write<'a>(&'a self, content: &Content<'a>, room: Room<'a>) -> Result<Written<'a>, Unwritten> {
        let Room { own: plain_headers, occurred_at, position, payload, event_type, envelope } = room;
        let parts = &content.parts;
        event_type.clear();
        let filled = self.event_type.fill(event_type, |index| content.column(index), |text| Some(text.into()));
        filled.map_err(|unfilled| match unfilled {
            Unfilled::Null(column) => Unwritten::from(Reason::NullInType(column.to_owned())),
            Unfilled::Encoding(column, _) | Unfilled::Text(column) => refused("type", column, Flaw::Encoding).into(),
            Unfilled::Shape => Unwritten::Shape,
        })?;
        let event_type = event_type.as_str();
        if let Some(flaw) = flaw(event_type) {
            return Err(refused("type", &self.event_type.columns(), flaw).into());
        }
        let time = content.time().map(|time| {
            *occurred_at = *time.rfc3339();
            from_utf8(occurred_at).expect("it is ASCII")
        });
        let position = content.position.map(|at| {
            *position = at.text();
            from_utf8(position).expect("it is ASCII")
        });
        let Columns {
            aggregate_type, aggregate_id, idempotency_key, aggregate_version, traceparent, tracestate, ..
        } = &self.columns;
        let id = attribute("id", &self.columns.id, content.id)?;
        // An attribute that may be left out must not be empty: such a column is as NULL.
        let optional = |name, column, part: Option<&'a [u8]>| match part.filter(|part| !part.is_empty()) {
            Some(part) => attribute(name, column, part).map(Some),
            None => Ok(None),
        };
        let subject = optional("subject", aggregate_id, parts.aggregate_id)?;
        let traceparent = optional("traceparent", &traceparent.name, parts.traceparent)?;
        let tracestate = optional("tracestate", &tracestate.name, parts.tracestate)?;
        let attributes = [
            Some(("ce_specversion", "1.0")),
            Some(("ce_id", id)),
            Some(("ce_source", self.source.as_str())),
            Some(("ce_type", event_type)),
            subject.map(|text| ("ce_subject", text)),
            time.map(|text| ("ce_time", text)),
            position.map(|text| ("ce_position", text)),
            optional("aggregatetype", &aggregate_type.name, parts.aggregate_type)?
                .map(|text| ("ce_aggregatetype", text)),
            optional("idempotencykey", &idempotency_key.name, parts.idempotency_key)?
                .map(|text| ("ce_idempotencykey", text)),
            optional("aggregateversion", &aggregate_version.name, parts.aggregate_version)?
                .map(|text| ("ce_aggregateversion", text)),
            subject.map(|text| ("ce_partitionkey", text)),
            traceparent.map(|text| ("ce_traceparent", text)),
            tracestate.map(|text| ("ce_tracestate", text)),
        ];
        let attributes = attributes.into_iter().flatten();
        let traced = [traceparent.is_some(), tracestate.is_some()];
        plain_headers.clear();
        let own = match parts.headers {
            Some(json) => own(json, traced, plain_headers)?,
            None => Own::default(),
        };
        let value = content.value(payload)?;
        match self.mode {
            Mode::Binary => {
                let attributes_own = own.extensions.into_iter().map(|extension| {
                    let Extension { name, text, .. } = extension;
                    (format!("{PREFIX}{name}"), Some(text.into_bytes()))
                });
                plain_headers.splice(..0, attributes_own);
                // The row's comes with its others.
                let content_type = match own.content_type {
                    Some(text) if value.is_some() => {
                        plain_headers.push((CONTENT_TYPE.to_owned(), Some(text.into_bytes())));
                        None
                    }
                    _ => value.map(|_| self.content_type.as_bytes()),
                };
                let mut headers = Headers::new(plain_headers);
                attributes.for_each(|(name, text)| headers.push(name, text.as_bytes()));
                content_type.into_iter().for_each(|text| headers.push(CONTENT_TYPE, text));
                trace(&mut headers, traceparent, tracestate);
                headers.mark(content.mark);
                Ok(Written { value, headers })
            }
            Mode::Structured => {
                let content_type = own.content_type.as_deref().unwrap_or(&self.content_type);
                let data = value.map(|value| (content_type, value));
                self.envelope(attributes, &own.extensions, data, content.payload, envelope)?;
                let mut headers = Headers::new(plain_headers);
                headers.push(CONTENT_TYPE, ENVELOPE);
                trace(&mut headers, traceparent, tracestate);
                headers.mark(content.mark);
                Ok(Written { value: Some(envelope), headers })
            }
        }
    }

    /// Writes the event as JSON. `data`: its media type and itself.
    fn envelope<'a>(
        &self,
        attributes: impl Iterator<Item = Attribute<'a>>,
        extensions: &[Extension],
        data: Option<(&str, &[u8])>,
        payload: Payload,
        json: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        json.clear();
        for (name, text) in attributes {
            member(json, &name[PREFIX.len()..]);
            string(json, text);
        }
        for Extension { name, text, is_string } in extensions {
            member(json, name);
            if *is_string { string(json, text) } else { json.extend(text.as_bytes()) }
        }
        if let Some((content_type, data)) = data {
            member(json, "datacontenttype");
            string(json, content_type);
            if payload == Payload::Bytea {
                member(json, "data_base64");
                string(json, &base64::Engine::encode(&base64::engine::general_purpose::STANDARD, data));
            } else {
                let text = from_utf8(data).map_err(|_| Reason::NoText)?;
                member(json, "data");
                match is_json(content_type) {
                    // Byte for byte. A column of another type may hold anything.
                    true if payload == Payload::Json || serde_json::from_str::<&RawValue>(text).is_ok() => {
                        json.extend(data);
                    }
                    true => return Err(Reason::NoJson(content_type.to_owned())),
                    false => string(json, text),
                }
            }
        }
        json.push(b'}');
        Ok(())
    }
}

/// The text of an attribute from a column.
fn attribute<'a>(name: &'static str, column: &str, bytes: &'a [u8]) -> Result<&'a str, Reason> {
    let text = from_utf8(bytes).map_err(|_| refused(name, column, Flaw::Encoding))?;
    flaw(text).map_or(Ok(text), |flaw| Err(refused(name, column, flaw)))
}

fn refused(attribute: &'static str, column: &str, flaw: Flaw) -> Reason {
    Reason::Attribute { attribute, column: column.to_owned(), flaw }
}

/// Reads the row's own headers. What is no attribute goes into `plain_headers`, as in the native format. `traced` are the
/// attributes of [`TRACING`] that a column gives.
fn own(json: &[u8], traced: [bool; 2], plain_headers: &mut Vec<(String, Option<Vec<u8>>)>) -> Result<Own, Reason> {
    let mut own = Own::default();
    let mut refusal = None;
    members(json, |name, value| {
        // The JSON format of events takes null for what is not set.
        if value.get() == "null" {
            return;
        }
        if name.eq_ignore_ascii_case(CONTENT_TYPE) || name == "datacontenttype" {
            match serde_json::from_str::<String>(value.get()) {
                Ok(text) if is_media_type(&text) && !is_envelope(&text) => own.content_type = Some(text),
                _ => refusal = Some(Reason::ContentType),
            }
        } else if name.starts_with(PREFIX) {
            refusal = Some(Reason::AttributeHeader);
        } else if let Some((text, is_string)) = extension(&name, value, traced, &own.extensions) {
            // Those who look for a trace in headers know it by this name.
            if TRACING.contains(&name.as_str()) {
                plain_headers.push((name.clone(), Some(text.clone().into_bytes())));
            }
            own.extensions.push(Extension { name, text, is_string });
        } else {
            plain_headers.push((name, Some(plain(value))));
        }
    })?;
    refusal.map_or(Ok(own), Err)
}

/// The text of a member of the row's headers that is an attribute, and whether it is a string.
fn extension(name: &str, value: &RawValue, traced: [bool; 2], before: &[Extension]) -> Option<(String, bool)> {
    let json = value.get();
    let (text, is_string) = match json.as_bytes().first()? {
        b'"' => (serde_json::from_str::<String>(json).ok().filter(|text| flaw(text) != Some(Flaw::Character))?, true),
        b't' | b'f' => (json.to_owned(), false),
        b'-' | b'0'..=b'9' => (json.parse::<i32>().ok()?.to_string(), false),
        _ => return None,
    };
    let is_given = TRACING.iter().zip(traced).any(|(known, is_given)| is_given && *known == name);
    let is_second = before.iter().any(|extension| extension.name == name);
    let is_legal = match name {
        // Of the attributes that the specification names the one that walpost has no column for.
        "dataschema" => is_string && Uri::parse(text.as_str()).is_ok_and(|uri| !uri.has_fragment()),
        _ => is_extension(name) && !TAKEN.contains(&name),
    };
    (is_legal && !is_given && !is_second).then_some((text, is_string))
}

/// Those who look for a trace in headers know it by these names.
fn trace<'a>(headers: &mut Headers<'a>, traceparent: Option<&'a str>, tracestate: Option<&'a str>) {
    for (name, text) in TRACING.into_iter().zip([traceparent, tracestate]) {
        text.into_iter().for_each(|text| headers.push(name, text.as_bytes()));
    }
}

/// Begins a member of the object, or the object with its first one.
fn member(json: &mut Vec<u8>, name: &str) {
    json.push(if json.is_empty() { b'{' } else { b',' });
    string(json, name);
    json.push(b':');
}

fn string(json: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(json, text).expect("any text is a JSON string");
}
