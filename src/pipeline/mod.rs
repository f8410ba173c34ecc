//! The pure core: no IO, no clock, no async.

pub mod lsn;

pub use lsn::{Lsn, Position};
