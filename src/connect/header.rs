//! `org.apache.kafka.connect.storage.SimpleHeaderConverter`: text that people can read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Value, java};

/// UTF-8. Strings, numbers and base64 stand bare at the top; within arrays, maps and structs, which look like JSON without
/// being it, strings and base64 are quoted. A null is no value at all at the top, `null` within.
pub fn simple(value: &Value) -> Option<Vec<u8>> {
    if *value == Value::Null {
        return None;
    }
    let mut out = String::new();
    append(&mut out, value, false);
    Some(out.into_bytes())
}

fn append(out: &mut String, value: &Value, within: bool) {
    match value {
        Value::String(text) if within => quoted(out, text),
        Value::Bytes(bytes) | Value::ByteArray(bytes) => {
            let text = STANDARD.encode(bytes);
            if within { quoted(out, &text) } else { out.push_str(&text) }
        }
        Value::Date(ms) => out.push_str(&java::sized_date(*ms)),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(out, index);
                append(out, item, true);
            }
            out.push(']');
        }
        Value::Map(entries) => members(out, entries.iter().map(|(key, value)| (key.as_str(), value))),
        Value::Struct(value) => {
            let with_default = value.fields().map(|(field, value)| match (value, &field.schema.default) {
                (Value::Null, Some(default)) => (field.name.as_str(), default),
                _ => (field.name.as_str(), value),
            });
            members(out, with_default);
        }
        Value::Null
        | Value::Boolean(_)
        | Value::Int8(_)
        | Value::Int16(_)
        | Value::Int32(_)
        | Value::Int64(_)
        | Value::Float32(_)
        | Value::Float64(_)
        | Value::String(_)
        | Value::Decimal { .. } => out.push_str(&value.to_string()),
    }
}

fn members<'a>(out: &mut String, members: impl Iterator<Item = (&'a str, &'a Value)>) {
    out.push('{');
    for (index, (name, value)) in members.enumerate() {
        separate(out, index);
        quoted(out, name);
        out.push(':');
        append(out, value, true);
    }
    out.push('}');
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}

/// Control characters are left as they are.
fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}
