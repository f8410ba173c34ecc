//! What converters refuse.

/// A value that its converter does not take. Java classes and Connect's types are named, values are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    #[error("null value for a field that is required and has no default value")]
    Required,
    #[error("invalid type for {expected}: class {found}")]
    Type { expected: &'static str, found: &'static str },
    #[error("class {found} does not have a corresponding schema type")]
    Untyped { found: &'static str },
    #[error("mismatching schema: a struct is not of the schema that it is converted with")]
    Schema,
    #[error("invalid Decimal schema: scale parameter not found or not a number")]
    ScaleMissing,
    #[error("Decimal value has mismatching scale: the schema has {schema}, the value {value}")]
    Scale { schema: i32, value: i32 },
    #[error("Date with a time of day")]
    TimeInDate,
    #[error("Time with a date")]
    DateInTime,
    #[error("nested more than {max} deep")]
    Depth { max: usize },
    #[error("{converter} is not compatible with a schema of type {kind}")]
    Kind { converter: &'static str, kind: &'static str },
    #[error("{converter} is not compatible with objects of class {found}")]
    Class { converter: &'static str, found: &'static str },
    #[error("{converter}: a value of class {found} requires a delegate.converter.type to be configured")]
    Delegate { converter: &'static str, found: &'static str },
}

/// A converter that cannot be had as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConverterError {
    #[error(
        "unknown converter {class}: there are StringConverter, JsonConverter, ByteArrayConverter, BooleanConverter, ShortConverter, \
         IntegerConverter, LongConverter, FloatConverter, DoubleConverter, SimpleHeaderConverter for headers, and Debezium's \
         BinaryDataConverter and ByteArrayConverter"
    )]
    Unknown { class: String },
    #[error("converter {class} may be one of several classes: write it with its package")]
    Ambiguous { class: String },
    #[error("{class} converts headers only")]
    HeaderOnly { class: String },
    #[error("invalid value {value} for {key}: expected {expected}")]
    Option { key: String, value: String, expected: &'static str },
}
