//! walpost carries a PostgreSQL transactional outbox to Kafka, RabbitMQ or webhooks, straight from the write-ahead log.
//!
//! The binary is the product; the library exists so that tests, benches and the fuzz target can drive the parts.
//! ARCHITECTURE.md has the map. In short: [`pipeline`] is pure (bytes and acknowledgements in, records and confirmed
//! positions out), [`postgres`] and [`sink`] are the two ends, [`session`] is the one loop that joins them and
//! [`supervisor`] the one place that starts it again.

pub mod bench;
mod chain;
pub mod check;
pub mod cli;
pub mod config;
pub mod connect;
pub mod control;
pub mod debezium;
pub mod http;
mod https;
pub mod idempotency;
pub mod inbox;
pub mod kafka;
pub mod loggers;
mod loopback;
pub mod pipeline;
pub mod postgres;
mod printable;
pub mod prune;
pub mod session;
pub mod setup;
pub mod sink;
pub mod status;
pub mod supervisor;
pub mod traces;
pub mod trial;
