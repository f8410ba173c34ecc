//! Columns: what PostgreSQL tells of a column decides its schema and conversion once, and each row's text becomes a
//! value.
//!
//! The text is what the server prints with `DateStyle = ISO` and `bytea_output = hex`; ranges of times show the
//! session's zone. Types that Debezium does not know are left out of rows unless `include.unknown.datatypes` is set.
//!
//! Left to their own: `sparsevec`, whose keys are integers, counts as unknown; and in arrays, times before the Gregorian
//! calendar and infinite dates are what they are as columns, where Debezium shifts them or loses the era.

mod array;
mod conversion;
mod decimal;
mod default;
mod geometry;
mod hstore;
mod interval;
mod oid;
mod plan;
mod temporal;
mod unavailable;

use std::sync::Arc;

use crate::connect::{Schema, Value};

use super::modes::{FailureMode, Modes};
pub(super) use conversion::binary;
use conversion::{Conversion, TimeForm};

/// A column as pgoutput and the catalog describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    pub name: String,
    pub kind: Type,
    /// `atttypmod`; -1 if the type has none.
    pub typmod: i32,
    pub not_null: bool,
    /// `pg_get_expr(adbin, adrelid)` of the default, printed with `DateStyle = ISO`; None for generated columns.
    pub default: Option<String>,
}

/// A row of `pg_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    pub oid: u32,
    /// `typname`, without its schema.
    pub name: String,
    pub shape: Shape,
}

/// What a type is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Base types, ranges, composites: whatever the others are not.
    Plain,
    /// Its labels in their order.
    Enum(Vec<String>),
    /// The type that it is over, and `typtypmod`.
    Domain(Box<Type>, i32),
    /// The type of its elements.
    Array(Box<Type>),
}

/// Why a value has no form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of type {type_name}: {problem}")]
pub struct ConversionError {
    pub column: String,
    pub type_name: String,
    pub problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the text is not what PostgreSQL prints with its default settings (DateStyle, IntervalStyle, lc_monetary)")]
    Unreadable,
    #[error("NaN and infinity have no form with decimal.handling.mode=precise; set it to string or double")]
    NoNumber,
    #[error("the time is outside of what 64 bits of nanoseconds hold; set time.precision.mode to microseconds")]
    OutOfRange,
    #[error("the value does not fit the column's schema")]
    Unfit,
    #[error("an array of more than one dimension of such elements has no form")]
    Nested,
}

/// How a column's values become values of Kafka Connect.
#[derive(Clone, Debug)]
pub struct Column {
    /// Of the field, adjusted as the configuration says.
    pub name: String,
    pub schema: Arc<Schema>,
    type_name: String,
    optional: bool,
    conversion: Conversion,
    absent: Value,
    unavailable: Value,
    failures: FailureMode,
}

impl Column {
    /// None for a column that is left out of rows.
    pub fn new(attribute: &Attribute, modes: &Modes) -> Option<Column> {
        let (root, facets) = plan::root(attribute);
        let (mut schema, conversion) = plan::plan(root, facets, modes)?;
        schema.optional |= !attribute.not_null;
        schema.default = default::value(attribute, facets, &Arc::new(schema.clone()), &conversion);
        let schema = Arc::new(schema);
        let absent = match &schema.default {
            _ if !attribute.not_null => Value::Null,
            Some(default) if conversion != Conversion::Timestamp(TimeForm::Nanos) => default.clone(),
            _ => conversion.fallback(&schema),
        };
        Some(Column {
            name: modes.field_names.field(&attribute.name),
            unavailable: unavailable::value(attribute, &conversion, &schema, modes),
            schema,
            type_name: attribute.kind.name.clone(),
            optional: !attribute.not_null,
            conversion,
            absent,
            failures: modes.failures,
        })
    }

    /// The value of a text, or of NULL. A required column's NULL, which the old key of a delete has for other columns,
    /// is its default, or a zero of its type.
    pub fn value(&self, text: Option<&str>) -> Result<Value, ConversionError> {
        let Some(text) = text else { return Ok(self.absent.clone()) };
        if self.conversion == Conversion::Ignored {
            return Ok(self.absent.clone());
        }
        match (self.conversion.convert(&self.schema, text), self.failures) {
            (Ok(value), _) => Ok(value),
            (Err(Problem::OutOfRange), _) if self.optional => Ok(Value::Null),
            (Err(problem), FailureMode::Warn | FailureMode::Skip) if problem != Problem::Unreadable => Ok(Value::Null),
            (Err(problem), _) => {
                Err(ConversionError { column: self.name.clone(), type_name: self.type_name.clone(), problem })
            }
        }
    }

    /// Of a value that an update left as it was, stored out of line, which the log does not repeat.
    pub fn unavailable(&self) -> Value {
        self.unavailable.clone()
    }
}

/// Two hexadecimal digits a byte.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| u8::try_from(nibble(pair[0])? * 16 + nibble(pair[1])?).ok();
    if digits.len() % 2 == 0 { digits.as_bytes().chunks_exact(2).map(pair).collect() } else { None }
}

#[cfg(test)]
mod tests;
