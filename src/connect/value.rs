//! Values, as converters and transforms pass them around.

use std::sync::Arc;

use num_bigint::BigInt;

use super::{Field, Kind, Schema};

/// A value; what it is, its schema says. One that is absent is [`Value::Null`].
#[derive(Clone, Debug)]
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

/// As Java's `equals`: a NaN is equal to itself, and 0.0 is not -0.0.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Boolean(one), Value::Boolean(other)) => one == other,
            (Value::Int8(one), Value::Int8(other)) => one == other,
            (Value::Int16(one), Value::Int16(other)) => one == other,
            (Value::Int32(one), Value::Int32(other)) => one == other,
            (Value::Int64(one), Value::Int64(other)) => one == other,
            (Value::Float32(one), Value::Float32(other)) => {
                (one.is_nan() && other.is_nan()) || one.to_bits() == other.to_bits()
            }
            (Value::Float64(one), Value::Float64(other)) => {
                (one.is_nan() && other.is_nan()) || one.to_bits() == other.to_bits()
            }
            (Value::String(one), Value::String(other)) => one == other,
            (Value::Bytes(one), Value::Bytes(other)) => one == other,
            (Value::ByteArray(one), Value::ByteArray(other)) => one == other,
            (Value::Decimal { unscaled: one, scale }, Value::Decimal { unscaled: other, scale: other_scale }) => {
                one == other && scale == other_scale
            }
            (Value::Date(one), Value::Date(other)) => one == other,
            (Value::Array(one), Value::Array(other)) => one == other,
            (Value::Map(one), Value::Map(other)) => one == other,
            (Value::Struct(one), Value::Struct(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Value {}

/// A value for each field of a schema of kind [`Kind::Struct`], in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    pub schema: Arc<Schema>,
    pub values: Vec<Value>,
}

impl Struct {
    /// Each field with its value; defaults do not take the place of [`Value::Null`].
    pub fn fields(&self) -> impl Iterator<Item = (&Field, &Value)> {
        let fields = match &self.schema.kind {
            Kind::Struct(fields) => fields.as_slice(),
            _ => &[],
        };
        fields.iter().zip(&self.values)
    }
}
