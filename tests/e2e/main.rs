//! End to end: real PostgreSQL, real Kafka, the built binary.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` marks what stories use of the support")]

mod connection;
mod core;
mod records;
mod servers;
mod setup;
mod support;
mod versions;
