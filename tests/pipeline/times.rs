//! The record's timestamp and the `occurred_at` header.

use walpost::pipeline::outbox::{Outbox, Timestamp};

use crate::{
    encode::{self, Cell, oid, text},
    outbox,
    stream::{COMMIT_TIME_UNIX_MS, Sent, Stream},
};

/// The record of a row with this time, under `record.timestamp`, and how many timestamps were replaced.
#[track_caller]
fn record(timestamp: Timestamp, oid: u32, occurred_at: Cell<'_>) -> (Sent, u64) {
    let outbox = Outbox { timestamp, ..outbox::walpost("walpost", "outbox") };
    let mut stream = Stream::new(vec![outbox]);
    let columns = [
        ("occurred_at", oid),
        ("id", oid::UUID),
        ("aggregate_type", oid::TEXT),
        ("aggregate_id", oid::TEXT),
        ("payload", oid::JSONB),
    ];
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &columns));
    let sent = stream.insert(1, &[occurred_at, text("e1"), text("order"), text("o-1"), text("{}")]);
    (sent, stream.pipeline.counters().timestamps_replaced)
}

#[track_caller]
fn check(postgres: &str, header: &str, unix_ms: i64) {
    let by_column = record(Timestamp::Column, oid::TIMESTAMPTZ, text(postgres));
    assert_eq!(by_column.0.header("occurred_at"), Some(header));
    assert_eq!((by_column.0.timestamp_ms, by_column.1), (unix_ms, 0), "{postgres}");
    let by_commit = record(Timestamp::Commit, oid::TIMESTAMPTZ, text(postgres));
    assert_eq!(by_commit.0.header("occurred_at"), Some(header));
    assert_eq!((by_commit.0.timestamp_ms, by_commit.1), (COMMIT_TIME_UNIX_MS, 0), "{postgres}");
}

/// The header is `header`, and as a timestamp the commit's time stands in.
#[track_caller]
fn check_replaced(oid: u32, postgres: &str, header: &str) {
    let (sent, replaced) = record(Timestamp::Column, oid, text(postgres));
    assert_eq!(sent.header("occurred_at"), Some(header));
    assert_eq!((sent.timestamp_ms, replaced), (COMMIT_TIME_UNIX_MS, 1), "{postgres}");
}

#[test]
fn a_time_becomes_rfc3339_and_if_configured_the_timestamp() {
    check("2026-01-31 08:15:00.25+00", "2026-01-31T08:15:00.250000Z", 1_769_847_300_250);
    check("2026-01-31 08:15:00", "2026-01-31T08:15:00.000000Z", 1_769_847_300_000);
    check("2026-01-31 08:15:00.999999+00", "2026-01-31T08:15:00.999999Z", 1_769_847_300_999);
    check("1970-01-01 00:00:00.001+00", "1970-01-01T00:00:00.001000Z", 1);
    check("2000-02-29 23:59:59.000001+00", "2000-02-29T23:59:59.000001Z", 951_868_799_000);
    check("9999-12-31 23:59:59.999999+00", "9999-12-31T23:59:59.999999Z", 253_402_300_799_999);
}

#[test]
fn a_time_up_to_1970_keeps_its_header_and_loses_the_timestamp() {
    check_replaced(oid::TIMESTAMPTZ, "1970-01-01 00:00:00+00", "1970-01-01T00:00:00.000000Z");
    check_replaced(oid::TIMESTAMPTZ, "1969-12-31 23:59:59.999+00", "1969-12-31T23:59:59.999000Z");
    check_replaced(oid::TIMESTAMP, "0001-01-01 00:00:00", "0001-01-01T00:00:00.000000Z");
}

#[test]
fn what_rfc3339_cannot_say_stays_as_postgresql_prints_it() {
    for text in [
        "infinity",
        "-infinity",
        "4713-11-24 00:00:00+00 BC",
        "0044-03-15 12:00:00.5+00 BC",
        "10000-01-01 00:00:00+00",
        "294276-12-31 23:59:59.999999+00",
    ] {
        check_replaced(oid::TIMESTAMPTZ, text, text);
    }
    check_replaced(oid::TIMESTAMP, "0044-03-15 12:00:00 BC", "0044-03-15 12:00:00 BC");
}

#[test]
fn a_column_of_another_type_is_no_timestamp() {
    check_replaced(oid::INT8, "1769847300250", "1769847300250");
    check_replaced(oid::TEXT, "2026-01-31 08:15:00+00", "2026-01-31 08:15:00+00");
}

#[test]
fn a_null_time_gives_no_header_and_the_commit_time() {
    let (sent, replaced) = record(Timestamp::Column, oid::TIMESTAMPTZ, Cell::Null);
    assert_eq!(sent.header("occurred_at"), None);
    assert_eq!((sent.timestamp_ms, replaced), (COMMIT_TIME_UNIX_MS, 1));
}
