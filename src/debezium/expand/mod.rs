//! JSON in a string becomes a struct with a schema of its own (`table.expand.json.payload`), by the rules of Debezium:
//! the schema is read from the document, and the document is then put into it, which may fail.

mod json;

use std::sync::Arc;

use super::modes::{NameAdjustment, option};
use crate::connect::{Field, Kind, Schema, Struct, Value};

pub use json::Json;

option! {
    /// `table.json.payload.null.behavior`, and `fields.null.include` of logical messages.
    NullBehavior {
        /// Members that are null are left out.
        Ignore = "ignore",
        OptionalBytes = "optional_bytes",
    }
}

/// What becomes of a payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Expanded {
    /// Text and schema stay as they are: no JSON, or an array of mixed kinds, or a member without a name.
    Untouched,
    Whole(Struct),
    /// The text stays, but beside a schema that it does not have: that of an array at the top (none if it is empty), or
    /// of a struct into which a member did not fit. Converters that look at the schema refuse it.
    Misfit(Option<Arc<Schema>>),
}

/// No schema describes the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSchema;

/// The document does not fit its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expander {
    pub nulls: NullBehavior,
    pub names: NameAdjustment,
}

impl Expander {
    /// `name` is the schema's: that of the payload's field.
    pub fn expand(&self, name: &str, text: &str) -> Expanded {
        if !text.starts_with(['{', '[']) {
            return Expanded::Untouched;
        }
        let Some(document) = Json::parse(text) else { return Expanded::Untouched };
        match self.schema(Some(name), &document) {
            Err(NoSchema) => Expanded::Untouched,
            Ok(None) => Expanded::Misfit(None),
            Ok(Some(schema)) => match structure(&document, &schema) {
                Ok(whole) => Expanded::Whole(whole),
                Err(NoFit) => Expanded::Misfit(Some(schema)),
            },
        }
    }

    /// Optional, objects named by their path. None for what leaves no trace: null, as configured, and empty arrays.
    pub fn schema(&self, name: Option<&str>, node: &Json) -> Result<Option<Arc<Schema>>, NoSchema> {
        let kind = match node {
            Json::Null => match self.nulls {
                NullBehavior::Ignore => return Ok(None),
                NullBehavior::OptionalBytes => Kind::Bytes,
            },
            Json::Boolean(_) => Kind::Boolean,
            Json::Int32(_) => Kind::Int32,
            Json::Int64(_) => Kind::Int64,
            Json::BigInteger | Json::Double(_) => Kind::Float64,
            Json::String(_) => Kind::String,
            Json::Array(elements) if elements.is_empty() => return Ok(None),
            Json::Array(elements) => Kind::Array(self.items(name, elements)?),
            Json::Object(members) => Kind::Struct(self.fields(name, members)?),
        };
        let name = if matches!(kind, Kind::Struct(_)) { name.map(str::to_owned) } else { None };
        Ok(Some(Arc::new(Schema { name, ..Schema::new(kind).optional() })))
    }

    fn fields(&self, parent: Option<&str>, members: &[(String, Json)]) -> Result<Vec<Field>, NoSchema> {
        let mut fields: Vec<Field> = Vec::with_capacity(members.len());
        for (name, value) in members {
            let name = self.names.field(name);
            let path = match parent {
                Some(parent) if !parent.trim().is_empty() => format!("{parent}.{name}"),
                _ => name.clone(),
            };
            let Some(schema) = self.schema(Some(&path), value)? else { continue };
            let twice = self.names != NameAdjustment::None && fields.iter().any(|field| field.name == name);
            if name.is_empty() {
                return Err(NoSchema);
            }
            if !twice {
                fields.push(Field { name, schema });
            }
        }
        Ok(fields)
    }

    /// Of an array's elements: all of one kind, nulls aside; objects are merged.
    fn items(&self, name: Option<&str>, elements: &[Json]) -> Result<Arc<Schema>, NoSchema> {
        let mut present = elements.iter().filter(|element| **element != Json::Null);
        let first = present.next().unwrap_or(&Json::Null);
        if present.any(|element| !same_kind(first, element)) {
            return Err(NoSchema);
        }
        if !matches!(first, Json::Object(_)) {
            return self.schema(None, first)?.ok_or(NoSchema);
        }
        let mut schemas: Vec<Arc<Schema>> = Vec::new();
        for object in elements.iter().filter(|element| matches!(element, Json::Object(_))) {
            let schema = self.schema(name, object)?.ok_or(NoSchema)?;
            if !schemas.contains(&schema) {
                schemas.push(schema);
            }
        }
        schemas.into_iter().reduce(|left, right| Arc::new(merged(&left, &right))).ok_or(NoSchema)
    }
}

fn same_kind(one: &Json, other: &Json) -> bool {
    matches!(
        (one, other),
        (Json::Boolean(_), Json::Boolean(_))
            | (Json::Int32(_), Json::Int32(_))
            | (Json::Int64(_), Json::Int64(_))
            | (Json::Double(_) | Json::BigInteger, Json::Double(_) | Json::BigInteger)
            | (Json::String(_), Json::String(_))
            | (Json::Array(_), Json::Array(_))
            | (Json::Object(_), Json::Object(_))
    )
}

/// Required, with the fields of both; of two with a name the first, unless only that is null.
fn merged(left: &Schema, right: &Schema) -> Schema {
    let mut fields = fields_of(left).to_vec();
    for field in fields_of(right) {
        match fields.iter_mut().find(|known| known.name == field.name) {
            None => fields.push(field.clone()),
            Some(known) if known.schema.kind == Kind::Bytes => known.schema = field.schema.clone(),
            Some(_) => {}
        }
    }
    Schema { name: left.name.clone(), ..Schema::new(Kind::Struct(fields)) }
}

fn fields_of(schema: &Schema) -> &[Field] {
    match &schema.kind {
        Kind::Struct(fields) => fields,
        _ => &[],
    }
}

/// The document in the form of a schema; members that the schema lacks are left out.
pub fn structure(node: &Json, schema: &Arc<Schema>) -> Result<Struct, NoFit> {
    let (Json::Object(members), Kind::Struct(fields)) = (node, &schema.kind) else { return Err(NoFit) };
    // Members are mostly in the order of the fields.
    let mut at = 0;
    let mut member = |name: &str| {
        let found = (at..members.len()).chain(0..at).find(|&i| members[i].0 == name)?;
        at = found + 1;
        Some(&members[found].1)
    };
    let value = |field: &Field| member(&field.name).map_or(Ok(Value::Null), |node| value(node, &field.schema));
    let values = fields.iter().map(value).collect::<Result<_, _>>()?;
    Ok(Struct { schema: schema.clone(), values })
}

fn value(node: &Json, schema: &Arc<Schema>) -> Result<Value, NoFit> {
    Ok(match (node, &schema.kind) {
        (Json::Null, _) if schema.optional => Value::Null,
        (Json::Boolean(boolean), Kind::Boolean) => Value::Boolean(*boolean),
        (Json::Int32(number), Kind::Int32) => Value::Int32(*number),
        (Json::Int64(number), Kind::Int64) => Value::Int64(*number),
        (Json::Double(number), Kind::Float64) => Value::Float64(*number),
        (Json::String(string), Kind::String) => Value::String(string.clone()),
        (Json::Array(elements), Kind::Array(items)) => {
            Value::Array(elements.iter().map(|element| value(element, items)).collect::<Result<_, _>>()?)
        }
        (Json::Object(_), Kind::Struct(_)) => Value::Struct(structure(node, schema)?),
        _ => return Err(NoFit),
    })
}

#[cfg(test)]
mod tests;
