//! What stands for a value that an update left as it was: the placeholder, in the column's form, or null where it has
//! none.

use super::conversion::Conversion;
use super::{Attribute, Shape, oid};
use crate::connect::{Kind, Schema, Value};
use crate::debezium::modes::{BinaryMode, HstoreMode, Modes};

pub(super) fn value(attribute: &Attribute, conversion: &Conversion, schema: &Schema, modes: &Modes) -> Value {
    let bytes = &modes.unavailable_value_placeholder;
    let text = || String::from_utf8_lossy(bytes).into_owned();
    if let Shape::Array(element) = &attribute.kind.shape {
        let signed = bytes.iter().map(|byte| i8::from_ne_bytes([*byte]));
        return match (element.oid, &schema.kind) {
            (oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::JSON | oid::JSONB, _) => {
                Value::Array(vec![Value::String(text())])
            }
            (oid::BYTEA, _) if modes.binary == BinaryMode::Bytes => Value::Array(vec![Value::ByteArray(bytes.clone())]),
            (oid::INT4, _) => Value::Array(signed.map(|byte| Value::Int32(byte.into())).collect()),
            (oid::DATE, Kind::Array(items)) if items.name.as_deref() == Some("io.debezium.time.Date") => {
                Value::Array(signed.map(|byte| Value::Int32(byte.into())).collect())
            }
            (oid::INT8, _) => Value::Array(signed.map(|byte| Value::Int64(byte.into())).collect()),
            (oid::UUID, _) => name_uuid(bytes).map_or(Value::Null, |uuid| Value::Array(vec![Value::String(uuid)])),
            _ => Value::Null,
        };
    }
    match conversion {
        Conversion::Hstore(mode) if attribute.kind.name == "hstore" => {
            let pairs = vec![(text(), Some(text()))];
            match mode {
                HstoreMode::Json => Value::String(super::hstore::json(&pairs)),
                HstoreMode::Map => Value::Map(vec![(text(), Value::String(text()))]),
            }
        }
        Conversion::Binary(mode) | Conversion::Unknown(mode) | Conversion::Geometric(mode) => match mode {
            BinaryMode::Bytes => Value::ByteArray(bytes.clone()),
            BinaryMode::Hex => Value::String(text()),
            BinaryMode::Base64 | BinaryMode::Base64UrlSafe => Value::Null,
        },
        _ if schema.kind == Kind::String => Value::String(text()),
        _ => Value::Null,
    }
}

/// `UUID.nameUUIDFromBytes`: version 3, without a name space.
fn name_uuid(name: &[u8]) -> Option<String> {
    let digest = openssl::hash::hash(openssl::hash::MessageDigest::md5(), name).ok()?;
    let mut bytes: [u8; 16] = digest.as_ref().try_into().ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x30;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
