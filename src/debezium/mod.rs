//! What Debezium's PostgreSQL connector and its outbox transform make of rows, to the byte, with no IO.
//!
//! [`columns`] turns a column's text into a value of Kafka Connect, by [`modes`] and [`names`] as configured.

pub mod columns;
pub mod modes;
pub mod names;
#[cfg(test)]
mod shown;
