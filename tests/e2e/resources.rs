//! Memory stays bounded whatever piles up, and a backlog drains at the server's own pace.

use std::time::{Duration, Instant};

use walpost::{
    pipeline::{Lsn, frame::Frame, wire},
    postgres::{
        conninfo::ConnInfo,
        replication::{Replication, StartRequest},
    },
};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    records::Isolation,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 240 } else { 240 });
