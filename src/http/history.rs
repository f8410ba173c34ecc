//! `/history`: the last fifteen minutes, a point every five seconds, so that a page that is opened now shows how it came to
//! this; and `/records`, what was delivered last.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime},
};

use axum::{
    Json,
    extract::{RawQuery, State},
};
use serde::Serialize;
use tokio::time::MissedTickBehavior;
use url::form_urlencoded;

use super::{Answers, access::Reader, report::rfc3339};
use crate::status::{self, Counts, Status, unix_us};

const INTERVAL: Duration = Duration::from_secs(5);
const POINTS_MAX: usize = 180;
/// What the present latency is of: this many points.
const LATENCY_POINTS: usize = 12;

/// One moment. What cannot be known is null.
#[derive(Clone, Debug, Serialize)]
struct Point {
    /// Milliseconds since 1970.
    at: i64,
    state: status::State,
    /// Records delivered a second since the last point.
    rate: Option<f64>,
    lag_seconds: Option<f64>,
    lag_bytes: Option<u64>,
    /// Of what was delivered since the last point.
    latency_p50: Option<f64>,
    latency_p95: Option<f64>,
}

/// Points, the oldest first, and what the next one is compared with.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    points: VecDeque<Point>,
    delivered: Option<(u64, SystemTime)>,
    latencies: VecDeque<Counts>,
}

impl History {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().expect("nobody panics while holding the history")
    }

    fn note(&self, status: &Status, at: SystemTime) {
        let (state, lag_seconds, lag_bytes, delivered) = {
            let now = status.now();
            (now.state, now.lag_seconds(at), now.lag_bytes(at), now.delivered.sum())
        };
        let counts = status.latency.counts();
        let mut ring = self.ring();
        let passed = |since| at.duration_since(since).ok().filter(|passed| !passed.is_zero());
        let rate = ring.delivered.and_then(|(total, since)| {
            let more = delivered.saturating_sub(total) as f64;
            Some(more / passed(since)?.as_secs_f64())
        });
        let latency = ring.latencies.back().map(|earlier| counts.since(earlier));
        let quantile = |part| latency.as_ref().and_then(|latency| latency.quantile(part));
        let point = Point {
            at: unix_us(at) / 1000,
            state,
            rate,
            lag_seconds,
            lag_bytes,
            latency_p50: quantile(0.5),
            latency_p95: quantile(0.95),
        };
        ring.delivered = Some((delivered, at));
        push(&mut ring.points, point, POINTS_MAX);
        push(&mut ring.latencies, counts, LATENCY_POINTS);
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T, most: usize) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// Notes a point every now and then, until it is dropped.
pub(super) async fn keep(answers: Arc<Answers>) {
    let mut clock = tokio::time::interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        answers.history.note(&answers.status, (answers.clock)());
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    interval_seconds: u64,
    /// Those that are wanted.
    points: Vec<Point>,
    latency: Latency,
}

/// From commit to delivery, of the last minute.
#[derive(Debug, Serialize)]
struct Latency {
    p50: Option<f64>,
    p95: Option<f64>,
    transactions: u64,
}

/// With `after`, points of a later time alone.
pub(super) async fn history(State(answers): State<Arc<Answers>>, RawQuery(query): RawQuery) -> Json<Report> {
    let query = query.unwrap_or_default();
    let after = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after");
    let after = after.and_then(|(_, value)| value.parse::<i64>().ok()).unwrap_or(i64::MIN);
    let counts = answers.status.latency.counts();
    let ring = answers.history.ring();
    let latency = ring.latencies.front().map_or(counts.clone(), |earlier| counts.since(earlier));
    Json(Report {
        interval_seconds: INTERVAL.as_secs(),
        points: ring.points.iter().filter(|point| point.at > after).cloned().collect(),
        latency: Latency { p50: latency.quantile(0.5), p95: latency.quantile(0.95), transactions: latency.total() },
    })
}

#[derive(Debug, Serialize)]
pub(super) struct Records {
    /// The newest first.
    records: Vec<Record>,
}

#[derive(Debug, Serialize)]
struct Record {
    /// RFC 3339, when its delivery was known.
    delivered_at: Option<String>,
    id: String,
    #[serde(rename = "type")]
    event_type: Option<String>,
    topic: String,
    partition: Option<i32>,
    offset: Option<i64>,
    key: Option<String>,
}

pub(super) async fn records(_: Reader, State(answers): State<Arc<Answers>>) -> Json<Records> {
    let recents = answers.status.last_records.lock();
    let records = recents.iter().cloned().map(|recent| Record {
        delivered_at: rfc3339(recent.at),
        id: recent.id,
        event_type: recent.event_type,
        topic: recent.topic,
        partition: recent.partition,
        offset: recent.offset,
        key: recent.key,
    });
    Json(Records { records: records.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::{at, streaming};

    #[test]
    fn points_tell_what_came_since_the_last_and_are_bounded() {
        let status = Status::new();
        *status.now() = streaming();
        let history = History::default();
        history.note(&status, at(100));
        status.now().delivered.add("orders", 50);
        status.latency.observe(0.02);
        history.note(&status, at(105));
        history.note(&status, at(105));
        let points = Vec::from(history.ring().points.clone());
        assert_eq!((points[0].rate, points[1].rate, points[2].rate), (None, Some(10.0), None));
        assert_eq!((points[1].lag_bytes, points[1].lag_seconds), (Some(500), Some(0.0)));
        assert!(points[1].latency_p95.is_some_and(|seconds| (0.018..0.022).contains(&seconds)));
        assert_eq!(points[2].latency_p50, None, "nothing was delivered");
        (0..500).for_each(|n| history.note(&status, at(200 + n)));
        let ring = history.ring();
        assert_eq!((ring.points.len(), ring.latencies.len()), (POINTS_MAX, LATENCY_POINTS));
    }
}
