//! Where records go.

pub mod kafka;
mod librdkafka;
