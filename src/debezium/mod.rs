//! What Debezium's PostgreSQL connector and its outbox transform make of rows, to the byte, with no IO.
//!
//! [`Task`] is what runs a connector: a row or a message becomes Kafka's records, by the connector's transforms (the
//! event router among them) and converters. [`columns`] turns a column's text into a value of Kafka Connect, [`expand`] a
//! payload of JSON into a struct, by [`modes`] and [`names`] as configured.

pub mod columns;
mod envelope;
pub mod expand;
mod foresight;
mod heartbeat;
mod key_columns;
mod logical;
pub mod modes;
mod names;
mod record;
mod refusal;
mod router;
#[cfg(test)]
mod shown;
mod source;
mod span;
mod table;
mod task;
#[cfg(test)]
mod tests;
pub mod topics;
mod transaction;

pub use task::{Cell, Counts, Message, Refusal, Source, Table, Task};
