//! Where records go.

mod diagnosis;
pub mod kafka;
mod librdkafka;
mod partitions;
