//! `org.apache.kafka.connect.json.JsonConverter`, and JSON as Jackson 2.19 writes it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{DataError, Kind, Schema, Struct, Value, java};

/// Jackson's limit of objects and arrays within one another.
const DEPTH_MAX: usize = 1000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The converter's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json {
    /// `schemas.enable`: an object of `schema` and `payload`.
    pub schemas: bool,
    pub decimals: DecimalFormat,
    /// `replace.null.with.default`.
    pub null_becomes_default: bool,
}

/// `decimal.format`: how the logical type `Decimal` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecimalFormat {
    /// The unscaled value's bytes.
    Base64,
    /// As a number, with the zeros that it has.
    Numeric,
}

impl Default for Json {
    fn default() -> Json {
        Json { schemas: true, decimals: DecimalFormat::Base64, null_becomes_default: true }
    }
}

impl Json {
    /// UTF-8; nothing for a null without a schema, while one with a schema is `null`.
    pub fn convert(&self, schema: Option<&Schema>, value: &Value) -> Result<Option<Vec<u8>>, DataError> {
        if schema.is_none() && *value == Value::Null {
            return Ok(None);
        }
        let mut out = String::new();
        if self.schemas {
            out.push_str(r#"{"schema":"#);
            match schema {
                Some(schema) => self.schema(&mut out, schema, None, 2)?,
                None => out.push_str("null"),
            }
            out.push_str(r#","payload":"#);
            self.value(&mut out, schema, value, 2)?;
            out.push('}');
        } else {
            self.value(&mut out, schema, value, 1)?;
        }
        Ok(Some(out.into_bytes()))
    }

    /// The schema's object, with the name of the field that it is the schema of.
    fn schema(&self, out: &mut String, schema: &Schema, field: Option<&str>, depth: usize) -> Result<(), DataError> {
        nest(depth)?;
        out.push_str(r#"{"type":""#);
        out.push_str(type_name(&schema.kind));
        out.push('"');
        match &schema.kind {
            Kind::Array(items) => {
                out.push_str(r#","items":"#);
                self.schema(out, items, None, depth + 1)?;
            }
            Kind::Map(values) => {
                out.push_str(r#","keys":{"type":"string","optional":false},"values":"#);
                self.schema(out, values, None, depth + 1)?;
            }
            Kind::Struct(fields) => {
                nest(depth + 1)?;
                out.push_str(r#","fields":["#);
                for (index, field) in fields.iter().enumerate() {
                    separate(out, index);
                    self.schema(out, &field.schema, Some(&field.name), depth + 2)?;
                }
                out.push(']');
            }
            _ => {}
        }
        out.push_str(if schema.optional { r#","optional":true"# } else { r#","optional":false"# });
        if let Some(name) = &schema.name {
            member(out, "name", name);
        }
        if let Some(version) = schema.version {
            out.push_str(&format!(r#","version":{version}"#));
        }
        if let Some(doc) = &schema.doc {
            member(out, "doc", doc);
        }
        if !schema.parameters.is_empty() {
            out.push_str(r#","parameters":{"#);
            for (index, (name, value)) in schema.parameters.iter().enumerate() {
                separate(out, index);
                string(out, name);
                out.push(':');
                string(out, value);
            }
            out.push('}');
        }
        if let Some(default) = schema.default.as_ref().filter(|default| **default != Value::Null) {
            out.push_str(r#","default":"#);
            self.value(out, Some(schema), default, depth + 1)?;
        }
        if let Some(field) = field {
            member(out, "field", field);
        }
        out.push('}');
        Ok(())
    }

    fn value(&self, out: &mut String, schema: Option<&Schema>, value: &Value, depth: usize) -> Result<(), DataError> {
        if *value == Value::Null {
            return self.null(out, schema, depth);
        }
        if let Some(schema) = schema {
            if self.logical(out, schema, value)? {
                return Ok(());
            }
        }
        match (schema.map(|schema| &schema.kind), value) {
            (None | Some(Kind::Boolean), Value::Boolean(value)) => out.push_str(if *value { "true" } else { "false" }),
            (None | Some(Kind::Int8), Value::Int8(value)) => out.push_str(&value.to_string()),
            (None | Some(Kind::Int16), Value::Int16(value)) => out.push_str(&value.to_string()),
            (None | Some(Kind::Int32), Value::Int32(value)) => out.push_str(&value.to_string()),
            (None | Some(Kind::Int64), Value::Int64(value)) => out.push_str(&value.to_string()),
            (None | Some(Kind::Float32), Value::Float32(value)) => number(out, value.is_finite(), &java::float(*value)),
            (None | Some(Kind::Float64), Value::Float64(value)) => {
                number(out, value.is_finite(), &java::double(*value))
            }
            (None | Some(Kind::String), Value::String(value)) => string(out, value),
            (None | Some(Kind::Bytes), Value::Bytes(bytes) | Value::ByteArray(bytes)) => binary(out, bytes),
            (kind @ (None | Some(Kind::Array(_))), Value::Array(items)) => {
                let schema = match kind {
                    Some(Kind::Array(schema)) => Some(schema.as_ref()),
                    _ => None,
                };
                nest(depth)?;
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    separate(out, index);
                    self.value(out, schema, item, depth + 1)?;
                }
                out.push(']');
            }
            (kind @ (None | Some(Kind::Map(_))), Value::Map(entries)) => {
                let schema = match kind {
                    Some(Kind::Map(schema)) => Some(schema.as_ref()),
                    _ => None,
                };
                nest(depth)?;
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    separate(out, index);
                    string(out, key);
                    out.push(':');
                    self.value(out, schema, value, depth + 1)?;
                }
                out.push('}');
            }
            (None | Some(Kind::Struct(_)), Value::Struct(value)) => self.structure(out, schema, value, depth)?,
            (None, value) => return Err(DataError::Untyped { found: java::class(value) }),
            (Some(kind), value) => return Err(DataError::Type { expected: kind.name(), found: java::class(value) }),
        }
        Ok(())
    }

    fn null(&self, out: &mut String, schema: Option<&Schema>, depth: usize) -> Result<(), DataError> {
        let default = schema.and_then(|schema| schema.default.as_ref()).filter(|default| **default != Value::Null);
        match (schema, default) {
            (_, Some(default)) if self.null_becomes_default => return self.value(out, schema, default, depth),
            (Some(schema), _) if !schema.optional => return Err(DataError::Required),
            _ => out.push_str("null"),
        }
        Ok(())
    }

    fn structure(
        &self,
        out: &mut String,
        schema: Option<&Schema>,
        value: &Struct,
        depth: usize,
    ) -> Result<(), DataError> {
        let own = value.schema.as_ref();
        if !schema.is_some_and(|schema| std::ptr::eq(schema, own) || schema == own) {
            return Err(DataError::Schema);
        }
        nest(depth)?;
        out.push('{');
        for (index, (field, value)) in value.fields().enumerate() {
            separate(out, index);
            string(out, &field.name);
            out.push(':');
            self.value(out, Some(&field.schema), value, depth + 1)?;
        }
        out.push('}');
        Ok(())
    }

    /// Writes a value of one of Connect's own logical types, and says whether it is one.
    fn logical(&self, out: &mut String, schema: &Schema, value: &Value) -> Result<bool, DataError> {
        let Some(expected) =
            schema.name.as_deref().and_then(|name| name.strip_prefix("org.apache.kafka.connect.data."))
        else {
            return Ok(false);
        };
        let wrong = |expected| Err(DataError::Type { expected, found: java::class(value) });
        let number = match (expected, value) {
            ("Decimal", Value::Decimal { unscaled, scale }) => match self.decimals {
                DecimalFormat::Numeric => java::decimal(unscaled, *scale),
                DecimalFormat::Base64 => {
                    let schema = decimal_scale(schema)?;
                    if schema != *scale {
                        return Err(DataError::Scale { schema, value: *scale });
                    }
                    binary(out, &unscaled.to_signed_bytes_be());
                    return Ok(true);
                }
            },
            ("Date", Value::Date(ms)) if ms % DAY_MS != 0 => return Err(DataError::TimeInDate),
            ("Date", Value::Date(ms)) => ((ms / DAY_MS) as i32).to_string(),
            ("Time", Value::Date(ms)) if !(0..=DAY_MS).contains(ms) => return Err(DataError::DateInTime),
            ("Time" | "Timestamp", Value::Date(ms)) => ms.to_string(),
            ("Decimal", _) => return wrong("Decimal"),
            ("Date", _) => return wrong("Date"),
            ("Time", _) => return wrong("Time"),
            ("Timestamp", _) => return wrong("Timestamp"),
            _ => return Ok(false),
        };
        out.push_str(&number);
        Ok(true)
    }
}

fn decimal_scale(schema: &Schema) -> Result<i32, DataError> {
    let scale = schema.parameters.iter().find(|(name, _)| name == "scale").map(|(_, value)| value.parse());
    scale.and_then(Result::ok).ok_or(DataError::ScaleMissing)
}

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boolean => "boolean",
        Kind::Int8 => "int8",
        Kind::Int16 => "int16",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Float32 => "float",
        Kind::Float64 => "double",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Array(_) => "array",
        Kind::Map(_) => "map",
        Kind::Struct(_) => "struct",
    }
}

fn nest(depth: usize) -> Result<(), DataError> {
    if depth > DEPTH_MAX { Err(DataError::Depth { max: DEPTH_MAX }) } else { Ok(()) }
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}

fn member(out: &mut String, name: &str, value: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    string(out, value);
}

/// What JSON has no number for is a string: `"NaN"`.
fn number(out: &mut String, finite: bool, text: &str) {
    if finite { out.push_str(text) } else { string(out, text) }
}

fn binary(out: &mut String, bytes: &[u8]) {
    out.push('"');
    STANDARD.encode_string(bytes, out);
    out.push('"');
}

/// Escaped is what JSON demands, and what UTF-16 has surrogates for.
fn string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|character| matches!(character, '\0'..' ' | '"' | '\\' | '\u{10000}'..)) {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\t') => out.push_str("\\t"),
            Some('\n') => out.push_str("\\n"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\r') => out.push_str("\\r"),
            Some(other) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}
