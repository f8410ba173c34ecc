//! What Debezium's PostgreSQL connector and its outbox transform make of rows, to the byte, with no IO.
//!
//! [`columns`] turns a column's text into a value of Kafka Connect, [`expand`] a payload of JSON into a struct, by
//! [`modes`] and [`names`] as configured. [`Task`] is what runs a connector.

pub mod columns;
pub mod expand;
pub mod modes;
pub mod names;
#[cfg(test)]
mod shown;
mod task;

pub use task::Task;
