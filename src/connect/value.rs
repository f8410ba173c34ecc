//! Values, as converters and transforms pass them around.

use std::sync::Arc;

use num_bigint::BigInt;

use super::Schema;

/// A value; what it is, its schema says. One that is absent is [`Value::Null`].
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Float32(f32),
    Float64(f64),
    String(String),
    /// `java.nio.ByteBuffer`, as bytea comes.
    Bytes(Vec<u8>),
    /// `byte[]`, as bits, WKB and the unscaled value of a `VariableScaleDecimal` come.
    ByteArray(Vec<u8>),
    /// `java.math.BigDecimal`.
    Decimal {
        unscaled: BigInt,
        scale: i32,
    },
    /// `java.util.Date`, in milliseconds since 1970: the logical types `Date`, `Time` and `Timestamp`.
    Date(i64),
    Array(Vec<Value>),
    /// In the order in which they were put.
    Map(Vec<(String, Value)>),
    Struct(Struct),
}

/// A struct: its schema, and a value for each of the schema's fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Struct {
    pub schema: Arc<Schema>,
    pub values: Vec<Value>,
}
