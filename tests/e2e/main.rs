//! End to end: real PostgreSQL, real Kafka, the built binary.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` marks what stories use of the support")]

mod blocked;
mod broker;
mod check;
mod blocked;
mod broker;
mod connection;
mod core;
mod crash;
mod database;
mod encodings;
mod partitions;
mod http;
mod records;
mod relations;
mod routing;
mod servers;
mod setup;
mod shutdown;
mod standby;
mod sizes;
mod support;
mod tail;
mod tables;
mod transactions;
mod trials;
mod versions;
