//! Values as Java's `toString` prints them.

mod date;
mod floating;

use std::fmt;

use num_bigint::BigInt;

use super::Value;
use super::value::Struct;

pub(crate) use date::sized as sized_date;
pub(crate) use floating::{double, float};

/// As `Object.toString` of what Java holds.
///
/// An array of bytes prints its type and its address in memory, which says nothing and is another each time. In place of the
/// address this takes the hash of the bytes: equal arrays print alike, so that events with such a key stay in one
/// partition.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => out.write_str("null"),
            Value::Boolean(value) => write!(out, "{value}"),
            Value::Int8(value) => write!(out, "{value}"),
            Value::Int16(value) => write!(out, "{value}"),
            Value::Int32(value) => write!(out, "{value}"),
            Value::Int64(value) => write!(out, "{value}"),
            Value::Float32(value) => out.write_str(&float(*value)),
            Value::Float64(value) => out.write_str(&double(*value)),
            Value::String(value) => out.write_str(value),
            Value::Bytes(value) => {
                let length = value.len();
                write!(out, "java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]")
            }
            Value::ByteArray(value) => write!(out, "[B@{:x}", hash(value)),
            Value::Decimal { unscaled, scale } => out.write_str(&decimal(unscaled, *scale)),
            Value::Date(ms) => out.write_str(&date::date(*ms)),
            Value::Array(items) => {
                out.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if index == 0 { "" } else { ", " })?;
                }
                out.write_str("]")
            }
            Value::Map(entries) => {
                out.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(out, "{}{key}={value}", if index == 0 { "" } else { ", " })?;
                }
                out.write_str("}")
            }
            Value::Struct(value) => value.fmt(out),
        }
    }
}

/// The fields that are not null: `Struct{a=1,b=x}`.
impl fmt::Display for Struct {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Struct{")?;
        let mut separator = "";
        for (field, value) in self.fields().filter(|(_, value)| !matches!(value, Value::Null)) {
            write!(out, "{separator}{}={value}", field.name)?;
            separator = ",";
        }
        out.write_str("}")
    }
}

/// `BigDecimal.toString`: with an exponent if the scale is negative or more than five zeros follow the point.
pub(crate) fn decimal(unscaled: &BigInt, scale: i32) -> String {
    let (sign, digits) =
        (if unscaled.sign() == num_bigint::Sign::Minus { "-" } else { "" }, unscaled.magnitude().to_string());
    let exponent = digits.len() as i64 - 1 - i64::from(scale);
    if scale < 0 || exponent < -6 {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent = if exponent == 0 { String::new() } else { format!("E{exponent:+}") };
        return format!("{sign}{first}{point}{rest}{exponent}");
    }
    let scale = scale as usize;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{}{digits}", "0".repeat((scale + 1).saturating_sub(digits.len())));
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// `Arrays.hashCode`.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |hash: u32, &byte| hash.wrapping_mul(31).wrapping_add(byte as i8 as u32))
}

/// The class that Java names in an error.
pub(crate) fn class(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Boolean(_) => "java.lang.Boolean",
        Value::Int8(_) => "java.lang.Byte",
        Value::Int16(_) => "java.lang.Short",
        Value::Int32(_) => "java.lang.Integer",
        Value::Int64(_) => "java.lang.Long",
        Value::Float32(_) => "java.lang.Float",
        Value::Float64(_) => "java.lang.Double",
        Value::String(_) => "java.lang.String",
        Value::Bytes(_) => "java.nio.HeapByteBuffer",
        Value::ByteArray(_) => "[B",
        Value::Decimal { .. } => "java.math.BigDecimal",
        Value::Date(_) => "java.util.Date",
        Value::Array(_) => "java.util.ArrayList",
        Value::Map(_) => "java.util.HashMap",
        Value::Struct(_) => "org.apache.kafka.connect.data.Struct",
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::{decimal, hash};

    #[test]
    fn decimals_keep_their_zeros_and_take_an_exponent_when_far_from_the_point() {
        for (unscaled, scale, text) in [
            (1230, 2, "12.30"),
            (-5, 2, "-0.05"),
            (0, 0, "0"),
            (0, 3, "0.000"),
            (1, 6, "0.000001"),
            (1, 7, "1E-7"),
            (123, 9, "1.23E-7"),
            (12, -1, "1.2E+2"),
            (-1, -20, "-1E+20"),
            (0, -2, "0E+2"),
        ] {
            assert_eq!(decimal(&BigInt::from(unscaled), scale), text);
        }
    }

    #[test]
    fn equal_arrays_have_one_hash() {
        assert_eq!((hash(&[]), hash(&[4, 0xd2])), (1, 0x40f));
    }
}
