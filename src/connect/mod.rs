//! Kafka Connect's data, as far as connectors and converters use it: values with schemas, and how they become bytes.
//!
//! It is a model of what Java does, to the byte, with no IO: what `org.apache.kafka.connect.data` and the converters of Kafka
//! 4.1 print is what comes out here.

pub mod converter;
pub mod error;
pub mod header;
pub(crate) mod java;
pub mod json;
pub mod regex;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod value;

pub use converter::{Converter, Role};
pub use error::{ConverterError, DataError};
pub use schema::{Field, Kind, Schema};
pub use value::{Struct, Value};
