//! What a running walpost knows of itself. The session and the supervisor write it; HTTP and logs read it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::SystemTime,
};

use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;

use crate::pipeline::{Lsn, PgTime};

/// Shared between the one task that streams and those that show.
#[derive(Debug)]
pub struct Status {
    now: Mutex<Now>,
    /// Seconds from a transaction's commit to the delivery of its last record.
    pub commit_to_delivery: Histogram,
}

/// The values of one moment.
#[derive(Clone, Debug)]
pub struct Now {
    pub state: State,
    /// Why it is not streaming, or what holds it up; none while all is well.
    pub reason: Option<String>,
    /// When `state` was entered.
    pub since: SystemTime,
    /// The position reported as delivered; none before the first session.
    pub confirmed: Option<Lsn>,
    /// Records and bytes sent and not acknowledged.
    pub in_flight_records: usize,
    pub in_flight_bytes: usize,
    /// Commit time of the oldest transaction that is not confirmed, as far as it was received.
    pub oldest_unconfirmed: Option<PgTime>,
    /// Events decoded, by table.
    pub events: BTreeMap<String, u64>,
    /// Records delivered, by topic.
    pub delivered: BTreeMap<String, u64>,
    /// Events whose `occurred_at` could not stamp their record.
    pub timestamps_replaced: u64,
    /// Sessions that ended in trouble.
    pub reconnects: u64,
    /// What the server last said of itself, and when.
    pub server: Option<ServerSample>,
}

/// What walpost is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Connecting, or waiting to connect again.
    Connecting,
    /// Another process has the slot.
    Standby,
    Streaming,
    /// Delivering what is in flight before the end.
    Stopping,
}

/// The server's side of the slot.
#[derive(Clone, Debug)]
pub struct ServerSample {
    pub taken: SystemTime,
    /// End of the server's log.
    pub wal: Lsn,
    /// Bytes of log that the slot keeps.
    pub retained_bytes: u64,
    /// Bytes that may still be written before the slot is lost; none without such a limit.
    pub safe_bytes: Option<u64>,
}

impl Status {
    pub fn new() -> Status {
        let seconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        let now = Now {
            state: State::Connecting,
            reason: Some("starting".to_owned()),
            since: SystemTime::now(),
            confirmed: None,
            in_flight_records: 0,
            in_flight_bytes: 0,
            oldest_unconfirmed: None,
            events: BTreeMap::new(),
            delivered: BTreeMap::new(),
            timestamps_replaced: 0,
            reconnects: 0,
            server: None,
        };
        Status { now: Mutex::new(now), commit_to_delivery: Histogram::new(seconds) }
    }

    /// The values, to read or to write; never held across an await.
    pub fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("nobody panics while holding the status")
    }

    /// Enters a state. What only a stream can know is forgotten outside of one, so that nothing shown is stale.
    pub fn enter(&self, state: State, reason: Option<String>) {
        let mut now = self.now();
        if now.state != state {
            now.since = SystemTime::now();
        }
        if matches!(state, State::Connecting | State::Standby) {
            now.in_flight_records = 0;
            now.in_flight_bytes = 0;
            now.oldest_unconfirmed = None;
            now.server = None;
        }
        now.state = state;
        now.reason = reason;
    }
}

impl Default for Status {
    fn default() -> Status {
        Status::new()
    }
}

impl Now {
    /// Seconds since the commit of the oldest transaction that is not confirmed, 0 when all is. None while not
    /// streaming, when it cannot be known.
    pub fn lag_seconds(&self, at: SystemTime) -> Option<f64> {
        match (self.state, self.oldest_unconfirmed) {
            (State::Connecting | State::Standby, _) => None,
            (State::Streaming | State::Stopping, None) => Some(0.0),
            (State::Streaming | State::Stopping, Some(commit)) => Some(seconds_since(commit, at)),
        }
    }

    /// Bytes of log between the confirmed position and the server's end, as of the last sample.
    pub fn lag_bytes(&self) -> Option<u64> {
        Some(self.server.as_ref()?.wal.bytes_since(self.confirmed?))
    }
}

/// Seconds from a commit to `at`; 0 when the clocks disagree about their order.
pub fn seconds_since(commit: PgTime, at: SystemTime) -> f64 {
    (unix_us(at) - commit.unix_us()).max(0) as f64 / 1e6
}

/// Microseconds since 1970.
pub fn unix_us(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
