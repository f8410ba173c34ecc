//! The pure core: no IO, no clock, no async.

pub mod lsn;
pub mod outbox;
pub mod template;

pub use lsn::{Lsn, Position};
