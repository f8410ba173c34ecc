//! What the core itself costs, without IO: frames to records, and the ledger alone.
//!
//! `cargo bench --bench pipeline`. A record here is built and looked at, then acknowledged at the end of its
//! transaction; what a producer adds is not in it.

use divan::{
    Bencher, black_box,
    counter::{BytesCount, ItemsCount},
};
use walpost::pipeline::{Limits, Lsn, OnUpdate, Output, PgTime, Pipeline, ledger::Ledger};

#[path = "../tests/support/encode.rs"]
mod encode;
#[path = "../tests/support/outbox.rs"]
mod outbox;

use encode::{Cell, oid, text};

const EVENTS: usize = 10_000;
const PAYLOAD_BYTES: usize = 300;
const START: u64 = 0x16_0000_0000;
const LIMITS: Limits = Limits { records: 30_000, bytes: 64 << 20 };

fn main() {
    divan::main();
}

/// The frames of [`EVENTS`] events in walpost's own table, in transactions of so many rows.
fn frames(rows_a_transaction: usize) -> Vec<Vec<u8>> {
    let columns = [
        ("id", oid::UUID),
        ("seq", oid::INT8),
        ("aggregate_type", oid::TEXT),
        ("aggregate_id", oid::TEXT),
        ("event_type", oid::TEXT),
        ("payload", oid::JSONB),
        ("headers", oid::JSONB),
        ("destination", oid::TEXT),
        ("idempotency_key", oid::TEXT),
        ("occurred_at", oid::TIMESTAMPTZ),
        ("txid", oid::TEXT),
    ];
    let payload = format!("{{\"text\": \"{:x<1$}\"}}", "", PAYLOAD_BYTES - 12);
    assert_eq!(payload.len(), PAYLOAD_BYTES);
    let row = [
        text("8f4e0b1a-3a52-4a3e-9d7b-3f0f1f3f7a11"),
        text("4711"),
        text("order"),
        text("o-81234"),
        text("order.placed"),
        text(&payload),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        text("2026-01-31 08:15:00.250013+00"),
        text("731"),
    ];
    let mut lsn = START;
    let mut frames = vec![encode::xlog_data(lsn, lsn, &encode::relation(1, "walpost", "outbox", &columns))];
    for _ in 0..EVENTS / rows_a_transaction {
        let end_lsn = lsn + 0x30;
        frames.push(encode::xlog_data(lsn, lsn, &encode::begin(lsn, 823_162_500_250_000, 731)));
        frames.extend((0..rows_a_transaction).map(|_| encode::xlog_data(lsn, lsn, &encode::insert(1, &row))));
        frames.push(encode::xlog_data(lsn, lsn, &encode::commit(lsn, end_lsn, 823_162_500_250_000)));
        lsn = end_lsn;
    }
    frames
}

/// Frames to records with five headers, acknowledged a transaction at a time.
#[divan::bench(args = [1, 100])]
fn bytes_to_records(bencher: Bencher<'_, '_>, rows_a_transaction: usize) {
    let frames = frames(rows_a_transaction);
    let bytes: usize = frames.iter().map(Vec::len).sum();
    let pipeline = || Pipeline::new(vec![outbox::walpost("walpost", "outbox")], OnUpdate::Ignore, Lsn(START), LIMITS);
    bencher.counter(BytesCount::new(bytes)).counter(ItemsCount::new(EVENTS)).with_inputs(pipeline).bench_local_refs(
        |pipeline| {
            let mut in_flight = Vec::with_capacity(rows_a_transaction);
            for frame in &frames {
                match pipeline.step(frame) {
                    Ok(Output::Record(record)) => in_flight.push(black_box(&record).ticket),
                    Ok(Output::None) => {}
                    other => panic!("the stream is sound: {other:?}"),
                }
                if !pipeline.in_transaction() {
                    in_flight.drain(..).for_each(|ticket| pipeline.acknowledge(ticket));
                    pipeline.take_completed();
                }
            }
            assert_eq!(pipeline.counters().events, [EVENTS as u64]);
            assert!(pipeline.ledger().is_idle());
        },
    );
}

/// The ledger's share: a thousand records in flight, acknowledged in order.
#[divan::bench(args = [1, 100])]
fn ledger(bencher: Bencher<'_, '_>, rows_a_transaction: usize) {
    const WINDOW: u64 = 1_000;
    bencher.counter(ItemsCount::new(EVENTS)).with_inputs(|| Ledger::new(Lsn(START), LIMITS)).bench_local_refs(
        |ledger| {
            for transaction in 0..EVENTS / rows_a_transaction {
                ledger.begin();
                for _ in 0..rows_a_transaction {
                    let ticket = ledger.send(black_box(PAYLOAD_BYTES));
                    if let Some(oldest) = ticket.0.checked_sub(WINDOW) {
                        ledger.acknowledge(walpost::pipeline::Ticket(oldest));
                    }
                }
                ledger.commit(Lsn(START + transaction as u64), PgTime(0));
                ledger.take_completed();
            }
            assert_eq!(ledger.outstanding(), WINDOW as usize);
            black_box(ledger.confirmed());
        },
    );
}
