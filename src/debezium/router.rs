//! The outbox event router: a row of an outbox becomes the event that it holds.

use std::sync::Arc;

use super::expand::{Expanded, Expander};
use super::record::{Body, Change, Datum, Header, Key, Operation, Record};
use super::refusal::Refusal;
use super::span;
use super::table::Row;
use crate::config::connector::{InvalidOperation, MissingColumn, Placed, Router};
use crate::connect::{Field, Kind, Schema, Struct, Value};

pub(super) const ID: &str = "table.field.event.id";
pub(super) const KEY: &str = "table.field.event.key";
pub(super) const PAYLOAD: &str = "table.field.event.payload";
pub(super) const TIMESTAMP: &str = "table.field.event.timestamp";
pub(super) const VERSION: &str = "table.field.event.schema.version";
pub(super) const PLACEMENT: &str = "table.fields.additional.placement";
pub(super) const ROUTE: &str = "route.by.field";

/// What the router reads: a row, or the content of a message.
pub(super) enum Event<'a> {
    Row(Row<'a>),
    Content(&'a Struct),
}

/// A field of it, as [`Event::field`] finds it.
pub(super) struct Found<'a> {
    index: usize,
    pub(super) schema: &'a Arc<Schema>,
}

impl<'a> Event<'a> {
    pub(super) fn field(&self, name: &str) -> Option<Found<'a>> {
        match self {
            Event::Row(row) => {
                let index = row.table.columns.iter().position(|placed| placed.column.name == name)?;
                Some(Found { index, schema: &row.table.columns[index].column.schema })
            }
            Event::Content(content) => {
                let Kind::Struct(fields) = &content.schema.kind else { return None };
                let index = fields.iter().position(|field| field.name == name)?;
                Some(Found { index, schema: &fields[index].schema })
            }
        }
    }

    pub(super) fn required(&self, name: &str, option: &'static str) -> Result<Found<'a>, Refusal> {
        self.field(name).ok_or_else(|| Refusal::Missing { column: name.to_owned(), option })
    }

    /// Of one kind.
    pub(super) fn of_kind(&self, name: &str, option: &'static str, kind: &Kind) -> Result<Found<'a>, Refusal> {
        let found = self.required(name, option)?;
        if found.schema.kind != *kind {
            let (expected, found) = (kind.name(), found.schema.kind.name());
            return Err(Refusal::Kind { column: name.to_owned(), option, expected, found });
        }
        Ok(found)
    }

    /// Of one kind; its default does not take the place of null.
    fn bare(&self, name: &str, option: &'static str, kind: &Kind) -> Result<Value, Refusal> {
        self.raw(self.of_kind(name, option, kind)?.index)
    }

    fn raw(&self, index: usize) -> Result<Value, Refusal> {
        match self {
            Event::Row(row) => Ok(row.value(&row.table.columns[index])?),
            Event::Content(content) => Ok(content.values[index].clone()),
        }
    }

    /// With its default in place of null.
    fn get(&self, found: &Found<'_>) -> Result<Datum, Refusal> {
        let value = match (self.raw(found.index)?, &found.schema.default) {
            (Value::Null, Some(default)) => default.clone(),
            (value, _) => value,
        };
        Ok(Datum::new(found.schema, value))
    }

    fn schema_name(&self) -> Option<&'a str> {
        match self {
            Event::Row(row) => row.table.schema.name.as_deref(),
            Event::Content(content) => content.schema.name.as_deref(),
        }
    }
}

/// What becomes of a record: the event, or nothing. `run_id` is there if spans are traced.
pub(super) fn route<'a>(
    router: &'a Router,
    mut record: Record<'a>,
    run_id: Option<&str>,
) -> Result<Option<Record<'a>>, Refusal> {
    let (event, position) = match &record.body {
        _ if record.is_tombstone() => return Ok(None),
        Body::Made(_) | Body::Message(_) => return Ok(Some(record)),
        Body::Decoded(content, message) => (Event::Content(content), message.source.position),
        Body::Change(Change { operation, after, source, .. }) => match (operation, after) {
            (Operation::Delete, _) => return Ok(None),
            (Operation::Update, _) => return updated(router.invalid_operation),
            (Operation::Create | Operation::Read, Some(row)) => (Event::Row(*row), source.position),
            (Operation::Truncate | Operation::Create | Operation::Read, _) => return Err(Refusal::Truncate),
        },
    };
    if let Some(run_id) = run_id {
        trace(router, &event, &format!("{run_id} {position}"), &mut record.headers)?;
    }
    let payload = event.required(&router.payload, PAYLOAD)?;
    let timestamp_ms = match &router.timestamp {
        Some(column) => timestamp(&event, column)?,
        None => 0,
    };
    let id = event.get(&event.required(&router.id, ID)?)?;
    record.headers.push(Header::new("id", id));
    let payload = expanded(router, event.get(&payload)?);
    let Value::String(route) = event.bare(&router.route_by, ROUTE, &Kind::String)? else {
        return Err(Refusal::Unrouted { column: router.route_by.clone() });
    };
    let mut envelope = match router.has_envelope() {
        true => Some(Envelope::new(&payload, schema_name(event.schema_name(), &route), version(router, &event)?)?),
        false => None,
    };
    let mut partition = None;
    for placement in &router.placements {
        let Some(found) = event.field(&placement.column) else {
            match router.missing {
                MissingColumn::Ignore => continue,
                MissingColumn::Error => event.required(&placement.column, PLACEMENT)?,
            };
            continue;
        };
        match (placement.place, &mut envelope) {
            (Placed::Header, _) => record.headers.push(Header::new(&placement.alias, event.get(&found)?)),
            (Placed::Envelope, Some(envelope)) => envelope.add(&placement.alias, event.get(&found)?)?,
            (Placed::Envelope, None) => {}
            (Placed::Partition, _) => {
                partition = match event.bare(&placement.column, PLACEMENT, &Kind::Int32)? {
                    Value::Int32(partition) => Some(partition),
                    _ => None,
                };
            }
        }
    }
    let value = match envelope {
        _ if router.tombstone_on_empty && is_empty(&payload.value) => Datum::NULL,
        None => payload,
        Some(envelope) => envelope.close(),
    };
    let key = event.get(&event.required(&router.key, KEY)?)?;
    let topic = router.topic_pattern.rewrite(&route, &router.topic_replacement);
    let steps = |source| Refusal::Steps { option: "route.topic.regex".to_owned(), source };
    let topic = topic.map_err(steps)?.unwrap_or(route);
    let headers = record.headers;
    let (key, body) = (Key::Made(key), Body::Made(value));
    Ok(Some(Record { topic, partition, key, body, headers, timestamp_ms, router: Some(router) }))
}

/// Of the envelope's schema.
fn version(router: &Router, event: &Event<'_>) -> Result<Option<i32>, Refusal> {
    let Some(column) = &router.schema_version else { return Ok(None) };
    match event.bare(column, VERSION, &Kind::Int32)? {
        Value::Int32(version) => Ok(Some(version)),
        _ => Ok(None),
    }
}

fn updated<'a>(behaviour: InvalidOperation) -> Result<Option<Record<'a>>, Refusal> {
    match behaviour {
        InvalidOperation::Warn | InvalidOperation::Error => Ok(None),
        InvalidOperation::Fatal => Err(Refusal::Update),
    }
}

/// The context of the event's span goes on in its headers.
fn trace(router: &Router, event: &Event<'_>, seed: &str, headers: &mut Vec<Header>) -> Result<(), Refusal> {
    let column = &router.tracing.column;
    let context = match event.field(column) {
        Some(_) => event.bare(column, "tracing.span.context.field", &Kind::String)?,
        None => Value::Null,
    };
    let context = match &context {
        Value::String(text) => Some(text.as_str()),
        _ if router.tracing.column_only => return Ok(()),
        _ => None,
    };
    let string = Arc::new(Schema::new(Kind::String));
    for (name, value) in span::headers(context, seed) {
        headers.retain(|header| header.name != name);
        headers.push(Header::new(name, Datum::new(&string, Value::String(value))));
    }
    Ok(())
}

/// In milliseconds; 0 where the column is null.
fn timestamp(event: &Event<'_>, column: &str) -> Result<i64, Refusal> {
    let found = event.required(column, TIMESTAMP)?;
    let unit = unit(column, &found);
    match event.raw(found.index)? {
        // Of an integer that is no time too.
        Value::Null if found.schema.kind == Kind::Int64 => Ok(0),
        Value::Int64(value) => Ok(value / unit?),
        _ => unit.map(|_| 0),
    }
}

/// How many units of a column are a millisecond.
pub(super) fn unit(column: &str, found: &Found<'_>) -> Result<i64, Refusal> {
    let name = found.schema.name.as_deref();
    match (&found.schema.kind, name) {
        (Kind::Int64, Some("io.debezium.time.Timestamp")) => Ok(1),
        (Kind::Int64, Some("io.debezium.time.MicroTimestamp")) => Ok(1_000),
        (Kind::Int64, Some("io.debezium.time.NanoTimestamp")) => Ok(1_000_000),
        (kind, name) => {
            let found = name.unwrap_or(kind.name()).to_owned();
            Err(Refusal::NoTime { column: column.to_owned(), option: TIMESTAMP, found })
        }
    }
}

fn expanded(router: &Router, payload: Datum) -> Datum {
    let Value::String(text) = &payload.value else { return payload };
    if !router.expand_json {
        return payload;
    }
    let expander = Expander { nulls: router.json_nulls, names: router.field_names };
    match expander.expand(&router.payload, text) {
        Expanded::Untouched => payload,
        Expanded::Whole(whole) => Datum::of(whole),
        Expanded::Misfit(schema) => Datum { schema, value: payload.value },
    }
}

/// `String.trim().isEmpty()` of its text: blanks are all up to U+0020.
fn is_empty(payload: &Value) -> bool {
    match payload {
        Value::Null => true,
        Value::String(text) => text.chars().all(|c| c <= ' '),
        _ => false,
    }
}

/// The routed value stands before the last part of the name: `dbz.public.outbox.order.Value`.
fn schema_name(of_event: Option<&str>, route: &str) -> String {
    match of_event.map(|name| (name, name.rfind('.'))) {
        None => route.to_owned(),
        Some((name, None)) => format!("{route}.{name}"),
        Some((name, Some(dot))) => format!("{}.{route}{}", &name[..dot], &name[dot..]),
    }
}

/// The payload and what is placed beside it.
struct Envelope {
    name: String,
    version: Option<i32>,
    fields: Vec<Field>,
    values: Vec<Value>,
}

impl Envelope {
    fn new(payload: &Datum, name: String, version: Option<i32>) -> Result<Envelope, Refusal> {
        let Some(schema) = &payload.schema else { return Err(Refusal::Misfit) };
        // Expanded JSON that does not fit leaves a text beside the schema of something else.
        let misfit = matches!(payload.value, Value::String(_)) && schema.kind != Kind::String;
        if misfit {
            return Err(Refusal::Misfit);
        }
        let field = Field { name: "payload".to_owned(), schema: schema.clone() };
        Ok(Envelope { name, version, fields: vec![field], values: vec![payload.value.clone()] })
    }

    fn add(&mut self, name: &str, datum: Datum) -> Result<(), Refusal> {
        if self.fields.iter().any(|field| field.name == name) {
            return Err(Refusal::Twice { name: name.to_owned() });
        }
        if let Some(schema) = datum.schema {
            self.fields.push(Field { name: name.to_owned(), schema });
            self.values.push(datum.value);
        }
        Ok(())
    }

    fn close(self) -> Datum {
        let schema = Schema { name: Some(self.name), version: self.version, ..Schema::new(Kind::Struct(self.fields)) };
        Datum::of(Struct { schema: Arc::new(schema), values: self.values })
    }
}
