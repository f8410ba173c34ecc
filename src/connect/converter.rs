//! Converters by their class names: what makes bytes of a record's key, its value and its headers.

use std::collections::BTreeMap;

use super::json::{DecimalFormat, Json};
use super::{ConverterError, DataError, Kind, Schema, Value, header, java};

/// What a converter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Key,
    Value,
    Header,
}

/// A converter as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Converter {
    /// `org.apache.kafka.connect.storage.StringConverter`: Java's `toString` in UTF-8.
    String,
    /// `org.apache.kafka.connect.storage.SimpleHeaderConverter`, for headers only: Connect's default for them.
    Simple,
    /// `org.apache.kafka.connect.json.JsonConverter`
    Json(Json),
    /// `org.apache.kafka.connect.converters.ByteArrayConverter`
    ByteArray,
    /// `org.apache.kafka.connect.converters.BooleanConverter`: one byte, 0 or 1.
    Boolean,
    /// Kafka's converters of numbers: big endian, as wide as the type.
    Number(Number),
    /// `io.debezium.converters.BinaryDataConverter`: bytes as they are, all else by the delegate.
    BinaryData(Option<Box<Converter>>),
    /// `io.debezium.converters.ByteArrayConverter`: the same, but a `ByteBuffer`, as which bytea comes, goes to the delegate.
    DebeziumByteArray(Option<Box<Converter>>),
}

/// Which number `org.apache.kafka.connect.converters` converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Short,
    Integer,
    Long,
    Float,
    Double,
}

const KAFKA: &str = "org.apache.kafka.connect.";
const DEBEZIUM: &str = "io.debezium.converters.";
const DELEGATE: &str = "delegate.converter.type";

impl Converter {
    /// By its class, with the package or, as a Connect worker allows it, without, and its options without the converter's prefix
    /// (`schemas.enable`, not `value.converter.schemas.enable`). Options that it does not know mean nothing, as in Connect.
    pub fn new(class: &str, role: Role, options: &BTreeMap<String, String>) -> Result<Converter, ConverterError> {
        Converter::named(full_name(class.trim())?, role, &Options { options, prefix: String::new() })
    }

    fn named(class: &str, role: Role, options: &Options<'_>) -> Result<Converter, ConverterError> {
        let unknown = || ConverterError::Unknown { class: class.to_owned() };
        if let Some(class) = class.strip_prefix(DEBEZIUM) {
            // It is configured in another way for headers, which leaves out the delegate.
            let delegate = match (role, options.get(DELEGATE)) {
                (Role::Header, _) | (_, None) => None,
                (_, Some(class)) => Some(Box::new(Converter::named(class, role, &options.of_delegate())?)),
            };
            return match class {
                "BinaryDataConverter" => Ok(Converter::BinaryData(delegate)),
                "ByteArrayConverter" => Ok(Converter::DebeziumByteArray(delegate)),
                _ => Err(unknown()),
            };
        }
        Ok(match class.strip_prefix(KAFKA).ok_or_else(unknown)? {
            "storage.StringConverter" => {
                options.choice("converter.encoding", "UTF-8", "UTF-8; no other encoding is supported", |value| {
                    matches!(value.to_ascii_uppercase().as_str(), "UTF-8" | "UTF8").then_some(())
                })?;
                Converter::String
            }
            "storage.SimpleHeaderConverter" if role == Role::Header => Converter::Simple,
            "storage.SimpleHeaderConverter" => return Err(ConverterError::HeaderOnly { class: class.to_owned() }),
            "json.JsonConverter" => Converter::Json(Json {
                schemas: options.boolean("schemas.enable", "true")?,
                decimals: options.choice("decimal.format", "BASE64", "BASE64 or NUMERIC", |value| {
                    match value.to_ascii_uppercase().as_str() {
                        "BASE64" => Some(DecimalFormat::Base64),
                        "NUMERIC" => Some(DecimalFormat::Numeric),
                        _ => None,
                    }
                })?,
                null_becomes_default: options.boolean("replace.null.with.default", "true")?,
            }),
            "converters.ByteArrayConverter" => Converter::ByteArray,
            "converters.BooleanConverter" => Converter::Boolean,
            "converters.ShortConverter" => Converter::Number(Number::Short),
            "converters.IntegerConverter" => Converter::Number(Number::Integer),
            "converters.LongConverter" => Converter::Number(Number::Long),
            "converters.FloatConverter" => Converter::Number(Number::Float),
            "converters.DoubleConverter" => Converter::Number(Number::Double),
            _ => return Err(unknown()),
        })
    }

    /// The bytes for Kafka, or its null. Without a schema the value's own type decides.
    pub fn convert(&self, schema: Option<&Schema>, value: &Value) -> Result<Option<Vec<u8>>, DataError> {
        let kind = schema.map(|schema| &schema.kind);
        let not_bytes = kind.is_some_and(|kind| *kind != Kind::Bytes);
        match (self, value) {
            (Converter::String, Value::Null) => Ok(None),
            (Converter::String, value) => Ok(Some(value.to_string().into_bytes())),
            (Converter::Simple, value) => Ok(header::simple(value)),
            (Converter::Json(json), value) => json.convert(schema, value),
            (Converter::Number(number), value) => number.convert(value),
            (Converter::Boolean, value) => match (kind, value) {
                (Some(kind), _) if *kind != Kind::Boolean => Err(self.kind_error(kind)),
                (_, Value::Null) => Ok(None),
                (_, Value::Boolean(value)) => Ok(Some(vec![u8::from(*value)])),
                (_, value) => Err(self.class_error(value)),
            },
            (Converter::ByteArray, value) => match (kind, value) {
                (Some(kind), _) if *kind != Kind::Bytes => Err(self.kind_error(kind)),
                (_, Value::Null) => Ok(None),
                (_, Value::Bytes(bytes) | Value::ByteArray(bytes)) => Ok(Some(bytes.clone())),
                (_, value) => Err(self.class_error(value)),
            },
            (Converter::BinaryData(_) | Converter::DebeziumByteArray(_), Value::Null) if !not_bytes => Ok(None),
            (Converter::BinaryData(_) | Converter::DebeziumByteArray(_), Value::ByteArray(bytes)) if !not_bytes => {
                Ok(Some(bytes.clone()))
            }
            (Converter::BinaryData(_), Value::Bytes(bytes)) if !not_bytes => Ok(Some(bytes.clone())),
            (Converter::BinaryData(delegate) | Converter::DebeziumByteArray(delegate), value) => match delegate {
                Some(delegate) => delegate.convert(schema, value),
                None => Err(DataError::Delegate { converter: self.name(), found: java::class(value) }),
            },
        }
    }

    /// Whether values of this schema lose their bytes: Java's text has a buffer's size, or an array's address, in their place.
    pub fn loses_bytes(&self, schema: &Schema) -> bool {
        let within = match self {
            Converter::String => return has_bytes(schema),
            Converter::BinaryData(Some(delegate)) if schema.kind != Kind::Bytes => delegate,
            Converter::DebeziumByteArray(Some(delegate)) => delegate,
            _ => return false,
        };
        within.loses_bytes(schema)
    }

    /// Its class, without the package where that is Kafka's.
    pub fn name(&self) -> &'static str {
        match self {
            Converter::String => "StringConverter",
            Converter::Simple => "SimpleHeaderConverter",
            Converter::Json(_) => "JsonConverter",
            Converter::ByteArray => "ByteArrayConverter",
            Converter::Boolean => "BooleanConverter",
            Converter::Number(number) => number.name(),
            Converter::BinaryData(_) => "BinaryDataConverter",
            Converter::DebeziumByteArray(_) => "io.debezium.converters.ByteArrayConverter",
        }
    }

    fn kind_error(&self, kind: &Kind) -> DataError {
        DataError::Kind { converter: self.name(), kind: kind.name() }
    }

    fn class_error(&self, value: &Value) -> DataError {
        DataError::Class { converter: self.name(), found: java::class(value) }
    }
}

impl Number {
    fn convert(self, value: &Value) -> Result<Option<Vec<u8>>, DataError> {
        Ok(Some(match (self, value) {
            (_, Value::Null) => return Ok(None),
            (Number::Short, Value::Int16(value)) => value.to_be_bytes().to_vec(),
            (Number::Integer, Value::Int32(value)) => value.to_be_bytes().to_vec(),
            (Number::Long, Value::Int64(value)) => value.to_be_bytes().to_vec(),
            (Number::Float, Value::Float32(value)) => value.to_be_bytes().to_vec(),
            (Number::Double, Value::Float64(value)) => value.to_be_bytes().to_vec(),
            (number, value) => return Err(DataError::Class { converter: number.name(), found: java::class(value) }),
        }))
    }

    fn name(self) -> &'static str {
        match self {
            Number::Short => "ShortConverter",
            Number::Integer => "IntegerConverter",
            Number::Long => "LongConverter",
            Number::Float => "FloatConverter",
            Number::Double => "DoubleConverter",
        }
    }
}

fn has_bytes(schema: &Schema) -> bool {
    match &schema.kind {
        Kind::Bytes => schema.name.as_deref() != Some("org.apache.kafka.connect.data.Decimal"),
        Kind::Array(items) | Kind::Map(items) => has_bytes(items),
        Kind::Struct(fields) => fields.iter().any(|field| has_bytes(&field.schema)),
        _ => false,
    }
}

/// A worker takes a class without its package too, and without `Converter` at its end.
fn full_name(class: &str) -> Result<&str, ConverterError> {
    if class.contains('.') {
        return Ok(class);
    }
    Ok(match class.strip_suffix("Converter").unwrap_or(class) {
        "String" => "org.apache.kafka.connect.storage.StringConverter",
        "SimpleHeader" => "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "Json" => "org.apache.kafka.connect.json.JsonConverter",
        "Boolean" => "org.apache.kafka.connect.converters.BooleanConverter",
        "Short" => "org.apache.kafka.connect.converters.ShortConverter",
        "Integer" => "org.apache.kafka.connect.converters.IntegerConverter",
        "Long" => "org.apache.kafka.connect.converters.LongConverter",
        "Float" => "org.apache.kafka.connect.converters.FloatConverter",
        "Double" => "org.apache.kafka.connect.converters.DoubleConverter",
        "BinaryData" => "io.debezium.converters.BinaryDataConverter",
        "ByteArray" => return Err(ConverterError::Ambiguous { class: class.to_owned() }),
        _ => return Err(ConverterError::Unknown { class: class.to_owned() }),
    })
}

/// Options, those of a delegate of a delegate too, whose names are longer by as much.
struct Options<'a> {
    options: &'a BTreeMap<String, String>,
    prefix: String,
}

impl Options<'_> {
    fn of_delegate(&self) -> Options<'_> {
        Options { options: self.options, prefix: format!("{}{DELEGATE}.", self.prefix) }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.options.get(&format!("{}{key}", self.prefix)).map(String::as_str)
    }

    fn boolean(&self, key: &str, default: &str) -> Result<bool, ConverterError> {
        self.choice(key, default, "true or false", |value| value.trim().to_ascii_lowercase().parse().ok())
    }

    fn choice<T>(
        &self,
        key: &str,
        default: &str,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ConverterError> {
        let value = self.get(key).unwrap_or(default);
        parse(value).ok_or_else(|| ConverterError::Option {
            key: format!("{}{key}", self.prefix),
            value: value.to_owned(),
            expected,
        })
    }
}
