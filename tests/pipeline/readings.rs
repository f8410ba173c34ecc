//! Rows that were read from the table: the stream's records, save what says where they come from.

use walpost::pipeline::{Limits, Lsn, OnUpdate, Origin, Output, PgTime, Pipeline, Reading, Ticket};

use crate::{
    encode::{self, oid, text},
    outbox,
};

const POINT: Lsn = Lsn(0x16_0000_0200);
/// 2026-02-01 00:00:00 UTC, in microseconds since 2000.
const READ_AT: PgTime = PgTime(823_219_200_000_000);

fn pipeline() -> Pipeline {
    let outboxes = vec![outbox::walpost("walpost", "outbox")];
    Pipeline::new(outboxes, OnUpdate::Ignore, POINT, Limits { records: 100, bytes: 10_000 })
}

fn reading(origin: Origin) -> Reading {
    Reading { origin, commit_lsn: POINT.of_older_rows(), first: 7, at: READ_AT }
}

const COLUMNS: [(&str, u32); 6] = [
    ("id", oid::UUID),
    ("aggregate_type", oid::TEXT),
    ("aggregate_id", oid::TEXT),
    ("payload", oid::JSONB),
    ("headers", oid::JSONB),
    ("occurred_at", oid::TIMESTAMPTZ),
];

fn row<'a>(id: &'a str, occurred_at: encode::Cell<'a>) -> Vec<u8> {
    let headers = text(r#"{"position": "own", "event_type": "own"}"#);
    encode::insert(1, &[text(id), text("order"), text("o-1"), text("{}"), headers, occurred_at])
}

/// Headers as `name=value`, and the timestamp.
fn take(output: Output<'_>) -> (Ticket, Vec<String>, i64) {
    let Output::Record(record) = output else { panic!("no record: {output:?}") };
    let shown = |(name, value): (&str, Option<&[u8]>)| {
        format!("{name}={}", String::from_utf8_lossy(value.expect("none is null")))
    };
    assert_eq!(record.event.event_type, None, "that is the row's own");
    assert_eq!(record.headers.len(), record.headers.iter().count());
    (record.ticket, record.headers.iter().map(shown).collect(), record.timestamp_ms)
}

#[test]
fn the_origin_decides_about_position_and_mark_and_nothing_else() {
    let own = ["position=own", "event_type=own"];
    for (origin, position, mark) in [
        (Origin::Snapshot, Some("position=00000016000001FF-00000007"), None),
        (Origin::Recovered, None, Some("recovered=true")),
        (Origin::ReplayedRow, None, Some("replay=true")),
    ] {
        let mut pipeline = pipeline();
        pipeline.begin_reading(reading(origin));
        pipeline.read(&encode::relation(1, "walpost", "outbox", &COLUMNS)).unwrap();
        let time = "2026-01-31 08:14:59.5+00";
        let insert = row("e1", text(time));
        let (_, headers, timestamp_ms) = take(pipeline.read(&insert).unwrap());
        let fixed = ["id=e1", "aggregate_type=order", "occurred_at=2026-01-31T08:14:59.500000Z"];
        let expected: Vec<&str> = fixed.into_iter().chain(position).chain(own).chain(mark).collect();
        assert_eq!(headers, expected, "{origin:?}");
        assert_eq!(timestamp_ms, 1_769_847_299_500, "when it happened: {origin:?}");
    }
}

/// Kafka refuses records of a time that is to come, which the stream would have stamped with their commit.
#[test]
fn a_row_that_does_not_tell_when_it_happened_or_is_ahead_of_time_has_the_time_of_reading() {
    for occurred_at in [encode::Cell::Null, text("2026-02-03 08:00:00+00"), text("infinity")] {
        let mut pipeline = pipeline();
        pipeline.begin_reading(reading(Origin::Snapshot));
        pipeline.read(&encode::relation(1, "walpost", "outbox", &COLUMNS)).unwrap();
        let insert = row("e1", occurred_at);
        assert_eq!(take(pipeline.read(&insert).unwrap()).2, READ_AT.unix_ms());
    }
}

#[test]
fn the_log_that_is_replayed_keeps_positions_and_has_the_mark() {
    let mut pipeline = pipeline();
    pipeline.mark(Origin::ReplayedLog);
    let data = |message: &[u8]| encode::xlog_data(0, 0, message);
    pipeline.step(&data(&encode::begin(POINT.0, 1, 9))).unwrap();
    pipeline.step(&data(&encode::relation(1, "walpost", "outbox", &COLUMNS))).unwrap();
    let insert = data(&row("e1", encode::Cell::Null));
    let (_, headers, timestamp_ms) = take(pipeline.step(&insert).unwrap());
    assert!(headers.contains(&"position=0000001600000200-00000000".to_owned()), "{headers:?}");
    assert_eq!(headers.last().unwrap(), "replay=true");
    assert_eq!(timestamp_ms, PgTime(1).unix_ms(), "the commit's");
}

/// Nothing of the log is confirmed by rows that it does not have, and the stream goes on after them as ever.
#[test]
fn a_reading_confirms_nothing_and_the_stream_follows_it() {
    let mut pipeline = pipeline();
    pipeline.begin_reading(reading(Origin::Snapshot));
    pipeline.read(&encode::relation(1, "walpost", "outbox", &COLUMNS)).unwrap();
    let insert = row("e1", encode::Cell::Null);
    let (first, ..) = take(pipeline.read(&insert).unwrap());
    pipeline.acknowledge(first);
    assert!(pipeline.is_reading() && !pipeline.ledger().is_idle());
    pipeline.step(&encode::keepalive(POINT.0 + 0x100, false)).unwrap();
    assert_eq!(pipeline.confirmed(), POINT);
    let (second, ..) = take(pipeline.read(&insert).unwrap());
    pipeline.end_reading();
    assert_eq!((pipeline.confirmed(), pipeline.ledger().is_idle()), (POINT, false));
    pipeline.acknowledge(second);
    assert_eq!((pipeline.confirmed(), pipeline.ledger().is_idle()), (POINT, true));
    // The next commit may begin at the consistent point itself.
    let data = |message: &[u8]| encode::xlog_data(0, 0, message);
    pipeline.step(&data(&encode::begin(POINT.0, 1, 9))).unwrap();
    let insert = data(&row("e2", encode::Cell::Null));
    let (ticket, headers, _) = take(pipeline.step(&insert).unwrap());
    assert!(headers.contains(&"position=0000001600000200-00000000".to_owned()), "{headers:?}");
    pipeline.step(&data(&encode::commit(POINT.0, POINT.0 + 0x30, 1))).unwrap();
    pipeline.acknowledge(ticket);
    assert_eq!(pipeline.confirmed(), Lsn(POINT.0 + 0x30));
}
