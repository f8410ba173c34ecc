//! From PostgreSQL's text to a value.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::array::{self, Element};
use super::decimal::Decimal;
use super::interval::Interval;
use super::temporal::{self, DAY_NANOS, Fraction, Moment};
use super::{Problem, geometry, hex, hstore};
use crate::connect::{Kind, Schema, Struct, Value, java};
use crate::debezium::modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Conversion {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Text,
    /// Read as NULL whatever it is.
    Ignored,
    Numeric {
        mode: DecimalMode,
        /// None for a number without precision.
        scale: Option<i32>,
    },
    VariableScale,
    Money {
        mode: DecimalMode,
        digits: i32,
    },
    Binary(BinaryMode),
    /// The text's bytes.
    Unknown(BinaryMode),
    /// The text's bytes, with numbers as Java prints them.
    Geometric(BinaryMode),
    Date(TimeForm),
    Time(TimeForm),
    /// In an array the driver drops what is below milliseconds, and all of a zoned time's fraction.
    TimeOfArray(TimeForm),
    TimeTz,
    TimeTzOfArray,
    Timestamp(TimeForm),
    TimestampTz {
        digits: usize,
    },
    Interval(IntervalMode),
    /// One bit.
    Bit,
    /// Little endian, without the zeros on the left.
    Bits,
    Point,
    Geometry,
    Hstore(HstoreMode),
    Vector(Float),
    Array {
        delimiter: char,
        nullable: bool,
        element: Box<Conversion>,
    },
    /// Into a schema that no value fits.
    Unfit,
}

/// How dates and times look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeForm {
    Millis,
    Micros,
    Nanos,
    Iso,
    /// `java.util.Date`
    Connect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Float {
    Single,
    Double,
}

impl Conversion {
    /// The schema is the column's or, of an element, the items': a struct has the very schema that it is for.
    pub(super) fn convert(&self, schema: &Arc<Schema>, text: &str) -> Result<Value, Problem> {
        let value = match self {
            Conversion::Boolean => Some(Value::Boolean(text.eq_ignore_ascii_case("t"))),
            Conversion::Int16 => text.parse().ok().map(Value::Int16),
            Conversion::Int32 => text.parse().ok().map(Value::Int32),
            Conversion::Int64 => text.parse().ok().map(Value::Int64),
            Conversion::Float32 => text.parse().ok().map(Value::Float32),
            Conversion::Float64 => text.parse().ok().map(Value::Float64),
            Conversion::Text => Some(Value::String(text.to_owned())),
            Conversion::Ignored => Some(Value::Null),
            Conversion::Numeric { mode, scale } => return numeric(text, *mode, *scale),
            Conversion::VariableScale => return variable_scale(schema, text),
            Conversion::Money { mode, digits } => money(text).map(|amount| match mode {
                DecimalMode::Precise => decimal(amount.half_up(*digits)),
                DecimalMode::Double => Value::Float64(amount.double()),
                DecimalMode::String => Value::String(amount.plain()),
            }),
            Conversion::Binary(mode) => text.strip_prefix("\\x").and_then(hex).map(|bytes| binary(bytes, *mode)),
            Conversion::Unknown(mode) => Some(binary(text.as_bytes().to_vec(), *mode)),
            Conversion::Geometric(mode) => Some(binary(java_numbers(text).into_bytes(), *mode)),
            Conversion::Date(form) => match text {
                "infinity" => Some(date(temporal::DAYS_OF_INFINITY, *form)),
                "-infinity" => Some(date(temporal::DAYS_OF_MINUS_INFINITY, *form)),
                _ => temporal::date(text).map(|days| date(days, *form)),
            },
            Conversion::Time(form) => temporal::clock(text).map(|nanos| time(nanos, *form)),
            Conversion::TimeOfArray(form) => {
                temporal::clock(text).map(|nanos| time(nanos % DAY_NANOS / 1_000_000 * 1_000_000, *form))
            }
            Conversion::TimeTz => zoned_time(text, 1),
            Conversion::TimeTzOfArray => zoned_time(text, 1_000_000_000),
            Conversion::Timestamp(form) => {
                let moment = match text {
                    "infinity" => Some(Moment::INFINITY),
                    "-infinity" => Some(Moment::MINUS_INFINITY),
                    _ => Moment::parse(text),
                };
                return timestamp(moment.ok_or(Problem::Unreadable)?, *form);
            }
            Conversion::TimestampTz { .. } if matches!(text, "infinity" | "-infinity") => {
                Some(Value::String(text.to_owned()))
            }
            Conversion::TimestampTz { digits } => {
                let fraction = if *digits == 0 { Fraction::AsNeeded } else { Fraction::Fixed(*digits) };
                Moment::parse(text).map(|moment| Value::String(moment.iso(fraction)))
            }
            Conversion::Interval(mode) => Interval::parse(text).map(|interval| match mode {
                IntervalMode::Numeric => Value::Int64(interval.total_micros()),
                IntervalMode::String => Value::String(interval.iso()),
            }),
            Conversion::Bit => {
                return i32::from_str_radix(text, 2).map_or(Err(Problem::Unfit), |bit| Ok(Value::Boolean(bit != 0)));
            }
            Conversion::Bits => Some(Value::ByteArray(bits(text))),
            Conversion::Point => geometry::point(schema, text),
            Conversion::Geometry => geometry::geometry(schema, text),
            Conversion::Hstore(mode) => hstore::pairs(text).map(|pairs| match mode {
                HstoreMode::Json => Value::String(hstore::json(&pairs)),
                HstoreMode::Map => Value::Map(
                    pairs.into_iter().map(|(key, value)| (key, value.map_or(Value::Null, Value::String))).collect(),
                ),
            }),
            Conversion::Vector(float) => vector(text, *float),
            Conversion::Array { delimiter, nullable, element } => {
                let Kind::Array(items) = &schema.kind else { return Err(Problem::Unfit) };
                return array(items, text, *delimiter, *nullable, element);
            }
            Conversion::Unfit => return Err(Problem::Unfit),
        };
        value.ok_or(Problem::Unreadable)
    }

    /// In place of a NULL that must not be.
    pub(super) fn fallback(&self, schema: &Arc<Schema>) -> Value {
        let zero = |text: &str| self.convert(schema, text).unwrap_or(Value::Null);
        match self {
            Conversion::Boolean | Conversion::Bit => Value::Boolean(false),
            Conversion::Int16
            | Conversion::Int32
            | Conversion::Int64
            | Conversion::Float32
            | Conversion::Float64
            | Conversion::Numeric { .. }
            | Conversion::VariableScale => zero("0"),
            Conversion::Money { mode: DecimalMode::String, digits } => {
                Value::String(Decimal::zero().widened(*digits).plain())
            }
            Conversion::Money { .. } => zero("0"),
            Conversion::Text | Conversion::Ignored => Value::String(String::new()),
            Conversion::Binary(mode) | Conversion::Geometric(mode) | Conversion::Unknown(mode) => {
                binary(Vec::new(), *mode)
            }
            Conversion::Date(TimeForm::Iso) => Value::String("1970-01-01Z".to_owned()),
            Conversion::Date(_) => zero("1970-01-01"),
            Conversion::Time(_) | Conversion::TimeOfArray(_) => zero("00:00:00"),
            Conversion::TimeTz | Conversion::TimeTzOfArray => zero("00:00:00+00"),
            // As Debezium has it: only here the driver's null is returned before anything stands for it.
            Conversion::Timestamp(TimeForm::Nanos) => Value::Null,
            Conversion::Timestamp(_) => zero("1970-01-01 00:00:00"),
            Conversion::TimestampTz { .. } => Value::String("1970-01-01T00:00:00Z".to_owned()),
            Conversion::Interval(_) => zero("00:00:00"),
            Conversion::Bits => Value::ByteArray(Vec::new()),
            Conversion::Point => zero("(0,0)"),
            Conversion::Geometry => zero(geometry::EMPTY),
            Conversion::Hstore(_) => zero(""),
            Conversion::Vector(_) | Conversion::Array { .. } => Value::Array(Vec::new()),
            Conversion::Unfit => Value::Null,
        }
    }

    /// As the driver treats it inside an array.
    pub(super) fn of_element(self) -> Conversion {
        match self {
            Conversion::Time(form) => Conversion::TimeOfArray(form),
            Conversion::TimeTz => Conversion::TimeTzOfArray,
            other => other,
        }
    }
}

fn numeric(text: &str, mode: DecimalMode, scale: Option<i32>) -> Result<Value, Problem> {
    let special = match text {
        "NaN" => Some((f64::NAN, "NAN")),
        "Infinity" => Some((f64::INFINITY, "POSITIVE_INFINITY")),
        "-Infinity" => Some((f64::NEG_INFINITY, "NEGATIVE_INFINITY")),
        _ => None,
    };
    match (special, mode) {
        (Some(_), DecimalMode::Precise) => return Err(Problem::NoNumber),
        (Some((double, _)), DecimalMode::Double) => return Ok(Value::Float64(double)),
        (Some((_, name)), DecimalMode::String) => return Ok(Value::String(name.to_owned())),
        (None, _) => {}
    }
    let number = Decimal::parse(text).ok_or(Problem::Unreadable)?;
    let number = match scale {
        Some(scale) => number.exactly(scale).ok_or(Problem::Unfit)?,
        None => number.widened(0),
    };
    Ok(match mode {
        DecimalMode::Precise => decimal(number),
        DecimalMode::Double => Value::Float64(number.double()),
        DecimalMode::String => Value::String(number.plain()),
    })
}

fn variable_scale(schema: &Arc<Schema>, text: &str) -> Result<Value, Problem> {
    if is_special(text) {
        return Err(Problem::NoNumber);
    }
    let Decimal { unscaled, scale } = Decimal::parse(text).ok_or(Problem::Unreadable)?.stripped();
    let values = vec![Value::Int32(scale), Value::ByteArray(unscaled.to_signed_bytes_be())];
    Ok(Value::Struct(Struct { schema: schema.clone(), values }))
}

fn is_special(number: &str) -> bool {
    matches!(number, "NaN" | "Infinity" | "-Infinity")
}

fn decimal(number: Decimal) -> Value {
    Value::Decimal { unscaled: number.unscaled, scale: number.scale }
}

/// `$1,234.56`, `-$1.00`, `($1.00)`: one sign of currency at most, and commas between thousands.
fn money(text: &str) -> Option<Decimal> {
    let negative = text.starts_with(['-', '(']);
    let amount = text.strip_prefix('-').unwrap_or(text);
    let amount = amount.strip_prefix('(').unwrap_or(amount);
    let amount = amount.strip_suffix(')').unwrap_or(amount);
    let amount = match amount.chars().next() {
        Some(c) if !c.is_numeric() && c != '.' => &amount[c.len_utf8()..],
        _ => amount,
    };
    let amount = Decimal::parse(&amount.replace(',', ""))?;
    Some(Decimal { unscaled: if negative { -amount.unscaled } else { amount.unscaled }, ..amount })
}

pub(in crate::debezium) fn binary(bytes: Vec<u8>, mode: BinaryMode) -> Value {
    match mode {
        BinaryMode::Bytes => Value::Bytes(bytes),
        BinaryMode::Base64 => Value::String(STANDARD.encode(bytes)),
        BinaryMode::Base64UrlSafe => Value::String(URL_SAFE.encode(bytes)),
        BinaryMode::Hex => Value::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

pub(super) fn date(days: i64, form: TimeForm) -> Value {
    match form {
        TimeForm::Iso => Value::String(format!("{}Z", temporal::iso_date(days))),
        TimeForm::Connect => Value::Date(i64::from(days as i32) * 86_400_000),
        TimeForm::Millis | TimeForm::Micros | TimeForm::Nanos => Value::Int32(days as i32),
    }
}

fn time(nanos_of_day: i64, form: TimeForm) -> Value {
    match form {
        TimeForm::Millis => Value::Int32((nanos_of_day / 1_000_000) as i32),
        TimeForm::Micros => Value::Int64(nanos_of_day / 1_000),
        TimeForm::Nanos => Value::Int64(nanos_of_day),
        TimeForm::Iso => {
            Value::String(format!("{}Z", temporal::iso_clock(nanos_of_day % DAY_NANOS, Fraction::AsNeeded)))
        }
        TimeForm::Connect => Value::Date(nanos_of_day / 1_000_000),
    }
}

/// In UTC, whole multiples of the unit.
fn zoned_time(text: &str, unit_nanos: i64) -> Option<Value> {
    let (nanos, offset) = temporal::clock_with_offset(text)?;
    let utc = (nanos - offset * 1_000_000_000).rem_euclid(DAY_NANOS);
    Some(Value::String(format!("{}Z", temporal::iso_clock(utc / unit_nanos * unit_nanos, Fraction::AsNeeded))))
}

pub(super) fn timestamp(moment: Moment, form: TimeForm) -> Result<Value, Problem> {
    Ok(match form {
        TimeForm::Millis => Value::Int64(moment.millis().ok_or(Problem::OutOfRange)?),
        TimeForm::Micros => Value::Int64(moment.micros()),
        TimeForm::Nanos => Value::Int64(moment.nanos().ok_or(Problem::OutOfRange)?),
        TimeForm::Iso => Value::String(moment.iso(Fraction::AsNeeded)),
        TimeForm::Connect => Value::Date(moment.millis().ok_or(Problem::OutOfRange)?),
    })
}

fn bits(text: &str) -> Vec<u8> {
    let significant = text.trim_start_matches('0').as_bytes();
    let byte = |digits: &[u8]| digits.iter().fold(0, |byte, digit| byte << 1 | u8::from(*digit == b'1'));
    significant.rchunks(8).map(byte).collect()
}

fn vector(text: &str, float: Float) -> Option<Value> {
    let numbers = text.trim().strip_prefix('[')?.strip_suffix(']')?.split(',').map(str::trim);
    let number = |text: &str| match float {
        Float::Single => text.parse().ok().map(Value::Float32),
        Float::Double => text.parse().ok().map(Value::Float64),
    };
    numbers.map(number).collect::<Option<_>>().map(Value::Array)
}

fn array(
    items: &Arc<Schema>,
    text: &str,
    delimiter: char,
    nullable: bool,
    element: &Conversion,
) -> Result<Value, Problem> {
    let convert = |part| match part {
        Element::Null if nullable => Ok(Value::Null),
        Element::Null => Err(Problem::Unfit),
        // The driver reads numbers of arrays as `BigDecimal`, which has no other values.
        Element::Text(text) if is_special(&text) && matches!(element, Conversion::Numeric { .. }) => {
            Err(Problem::NoNumber)
        }
        Element::Text(text) => match element.convert(items, &text) {
            Err(Problem::OutOfRange) if nullable => Ok(Value::Null),
            converted => converted,
        },
        // The driver hands over an array of Java, which has no value but as a string: its type and address.
        Element::Nested if *element == Conversion::Text => Err(Problem::Nested),
        Element::Nested if nullable => Ok(Value::Null),
        Element::Nested => Err(Problem::Unfit),
    };
    let parts = array::elements(text, delimiter).ok_or(Problem::Unreadable)?;
    parts.into_iter().map(convert).collect::<Result<_, _>>().map(Value::Array)
}

/// Each number of a text in the form of `Double.toString`.
fn java_numbers(text: &str) -> String {
    let is_of_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let mut printed = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_of_number) {
        let end = rest[start..].find(|c| !is_of_number(c)).map_or(rest.len(), |length| start + length);
        printed.push_str(&rest[..start]);
        match rest[start..end].parse::<f64>() {
            Ok(number) => printed.push_str(&java::double(number)),
            Err(_) => printed.push_str(&rest[start..end]),
        }
        rest = &rest[end..];
    }
    printed.push_str(rest);
    printed
}
