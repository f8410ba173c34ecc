//! Kafka as seen by the commands that look: what there is, and what it holds. Producing is the sink's.

pub mod client;
pub mod facts;
pub mod ids;
pub mod rights;
pub mod tail;
pub mod topics;
