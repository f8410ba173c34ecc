//! Schemas and values as `JsonConverter` writes them, for tests to read.

use crate::connect::json::Json;
use crate::connect::{Schema, Value};

pub(super) fn value(schema: &Schema, value: &Value) -> String {
    let json = Json { schemas: false, null_becomes_default: false, ..Json::default() };
    String::from_utf8(json.convert(Some(schema), value).unwrap().unwrap()).unwrap()
}

/// Of a schema for which null will do.
pub(super) fn schema(schema: &Schema) -> String {
    let both = Json::default().convert(Some(schema), &Value::Null).unwrap().unwrap();
    let both = String::from_utf8(both).unwrap();
    let (schema, _payload) = both.rsplit_once(r#","payload":"#).unwrap();
    schema.strip_prefix(r#"{"schema":"#).unwrap().to_owned()
}
