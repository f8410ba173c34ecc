//! Where records go.

mod courier;
mod diagnosis;
mod error;
pub mod kafka;
mod librdkafka;
mod limits;
pub mod owned;
mod partitions;
mod positions;
pub(crate) mod properties;
mod topics;
mod transaction;
