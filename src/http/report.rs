//! `/status`: one JSON object with everything that is known now. What cannot be known is null.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::Serialize;

use super::{
    Facts,
    health::{self, Verdict},
};
use crate::{
    postgres::{bookmark::Bookmark, unproven::Unproven},
    status::{Now, Reading, State, Totals, age},
};

#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    version: &'static str,
    state: State,
    reason: Option<&'a str>,
    /// RFC 3339, when the state was entered.
    since: Option<String>,
    ready: Verdict,
    database: &'a str,
    slot: &'a str,
    publication: &'a str,
    confirmed_lsn: Option<String>,
    lag_bytes: Option<u64>,
    lag_seconds: Option<f64>,
    /// RFC 3339: what was committed by then is proven published.
    published_at: Option<String>,
    unproven: Option<&'a Unproven>,
    in_flight: InFlight,
    events: &'a BTreeMap<String, u64>,
    delivered: &'a Totals,
    dead_letters: &'a BTreeMap<&'static str, u64>,
    /// None where nothing is ever parked, or nobody streams.
    parked: Option<Parked>,
    /// None while the stream is sent, or nothing is.
    reading: Option<Reading>,
    /// None while `prune.every` looks at no table.
    pruning: Option<Pruning<'a>>,
    timestamps_replaced: u64,
    reconnects: u64,
    server: Option<Server<'a>>,
}

#[derive(Debug, Serialize)]
struct Parked {
    events: u64,
    aggregates: u64,
}

/// Blocks looked at, of those that the table has.
#[derive(Debug, Serialize)]
struct Pruning<'a> {
    table: &'a str,
    blocks: u64,
    blocks_total: u64,
}

#[derive(Debug, Serialize)]
struct InFlight {
    records: usize,
    bytes: usize,
    /// How long at least the oldest has waited.
    waiting_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Server<'a> {
    wal_lsn: String,
    retained_bytes: u64,
    safe_bytes: Option<u64>,
    /// At the present rate.
    lost_in_seconds: Option<f64>,
    wal_status: Option<&'a str>,
    bookmarks: Vec<BookmarkReport<'a>>,
    age_seconds: f64,
}

/// What a bookmark makes the server keep.
#[derive(Debug, Serialize)]
struct BookmarkReport<'a> {
    slot: &'a str,
    /// None where it holds nothing any more.
    lsn: Option<String>,
    retained_bytes: Option<i64>,
    wal_status: Option<&'a str>,
}

impl BookmarkReport<'_> {
    fn new(bookmark: &Bookmark) -> BookmarkReport<'_> {
        BookmarkReport {
            slot: &bookmark.slot.name,
            lsn: bookmark.position().map(|lsn| lsn.to_string()),
            retained_bytes: bookmark.slot.retained_bytes,
            wal_status: bookmark.slot.wal_status.as_deref(),
        }
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(now: &'a Now, facts: &'a Facts, at: SystemTime) -> Report<'a> {
        Report {
            version: env!("CARGO_PKG_VERSION"),
            state: now.state,
            reason: now.reason.as_deref(),
            since: rfc3339(now.since),
            ready: health::ready(now, at),
            database: &facts.database,
            slot: &facts.slot,
            publication: &facts.publication,
            confirmed_lsn: now.confirmed.filter(|_| now.is_attached()).map(|lsn| lsn.to_string()),
            lag_bytes: now.lag_bytes(at),
            lag_seconds: now.lag_seconds(at),
            published_at: now.published_at.and_then(rfc3339),
            unproven: now.fresh_unproven(at),
            in_flight: InFlight {
                records: now.in_flight_records,
                bytes: now.in_flight_bytes,
                waiting_seconds: now.waiting_for(at).as_ref().map(Duration::as_secs_f64),
            },
            events: &now.events,
            delivered: &now.delivered,
            dead_letters: &now.dead_letters,
            parked: now.parked.filter(|_| now.is_attached()).map(|(events, aggregates)| Parked { events, aggregates }),
            reading: now.reading.filter(|_| now.is_attached()),
            pruning: now.pruned.iter().filter(|_| now.is_attached()).find_map(|(table, pruned)| {
                let (blocks, blocks_total) = pruned.walk?;
                Some(Pruning { table, blocks, blocks_total })
            }),
            timestamps_replaced: now.timestamps_replaced,
            reconnects: now.reconnects,
            server: now.server.as_ref().map(|sample| Server {
                wal_lsn: sample.wal.to_string(),
                retained_bytes: sample.retained_bytes,
                safe_bytes: sample.safe_bytes,
                lost_in_seconds: sample.lost_in.as_ref().map(Duration::as_secs_f64),
                wal_status: sample.wal_status.as_deref(),
                bookmarks: sample.bookmarks.iter().map(BookmarkReport::new).collect(),
                age_seconds: age(sample.taken, at).as_secs_f64(),
            }),
        }
    }
}

/// To the millisecond.
pub(super) fn rfc3339(at: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(at).ok().map(|at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        http::tests::{at, facts, streaming},
        pipeline::Lsn,
        status::Pruned,
    };

    fn report(now: &Now, seconds: u64) -> serde_json::Value {
        serde_json::to_value(Report::new(now, &facts(), at(seconds))).unwrap()
    }

    #[test]
    fn everything_that_is_known_is_there() {
        let mut now = streaming();
        now.delivered.add("orders", 2);
        now.events.insert("walpost.outbox".to_owned(), 3);
        now.dead_letters.insert("too_large", 1);
        now.parked = Some((3, 2));
        now.pruned.insert("walpost.outbox".to_owned(), Pruned { walk: Some((5, 20)), ..Pruned::default() });
        now.published_at = Some(at(95));
        let (oldest, p95) = (Some(Duration::from_millis(7_500)), Some(Duration::from_secs(6)));
        now.unproven = Some((Unproven { rows: 4, oldest, p95, older: 2 }, at(100)));
        assert_eq!(
            report(&now, 103),
            json!({
                "version": env!("CARGO_PKG_VERSION"),
                "state": "streaming",
                "reason": null,
                "since": "1970-01-01T00:01:40.000Z",
                "ready": {"ok": true, "state": "streaming", "reasons": []},
                "database": "app",
                "slot": "walpost",
                "publication": "events",
                "confirmed_lsn": "0/3E8",
                "lag_bytes": 500,
                "lag_seconds": 0.0,
                "published_at": "1970-01-01T00:01:35.000Z",
                "unproven": {"rows": 4, "oldest_seconds": 7.5, "p95_seconds": 6.0, "older_rows": 2},
                "in_flight": {"records": 0, "bytes": 0, "waiting_seconds": null},
                "events": {"walpost.outbox": 3},
                "delivered": {"orders": 2},
                "dead_letters": {"too_large": 1},
                "parked": {"events": 3, "aggregates": 2},
                "reading": null,
                "pruning": {"table": "walpost.outbox", "blocks": 5, "blocks_total": 20},
                "timestamps_replaced": 0,
                "reconnects": 0,
                "server": {"wal_lsn": "0/5DC", "retained_bytes": 4096, "safe_bytes": null, "lost_in_seconds": null, "wal_status": null, "bookmarks": [], "age_seconds": 3.0},
            })
        );
    }

    #[test]
    fn what_cannot_be_known_is_null() {
        let mut now = streaming();
        now.state = State::Connecting;
        now.server = None;
        now.parked = Some((3, 2));
        now.pruned.insert("walpost.outbox".to_owned(), Pruned { walk: Some((5, 20)), ..Pruned::default() });
        let report = report(&now, 103);
        for name in ["confirmed_lsn", "lag_bytes", "parked", "pruning", "lag_seconds", "server"] {
            assert_eq!(report[name], json!(null), "{name}");
        }
        now.confirmed = Some(Lsn::INVALID);
        assert_eq!(report["ready"]["ok"], json!(false));
    }
}
