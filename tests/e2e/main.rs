//! End to end: real PostgreSQL, real Kafka, the built binary.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` marks what stories use of the support")]

mod adopt;
mod after_publish;
mod blocked;
mod bookmarks;
mod broker;
mod check;
mod cloudevents;
mod cluster;
mod conformance;
mod connect;
mod connection;
mod connector;
mod core;
mod crash;
mod database;
mod dead_letter_topic;
mod dead_letters;
mod deep;
mod encodings;
mod exactly_once;
mod failover;
mod http;
mod inbox;
mod message_outbox;
mod migration;
mod partitions;
mod poison;
mod producer;
mod proof;
mod prune;
mod rabbitmq;
mod records;
mod relations;
mod replay;
mod resources;
mod rewind;
mod routing;
#[path = "../support/cloudevents.rs"]
mod sdk;
mod security;
mod servers;
mod setup;
mod shutdown;
mod sinks;
mod sizes;
mod slot_loss;
mod snapshot;
mod standby;
mod support;
mod tables;
mod tail;
mod transactions;
mod trials;
mod versions;
