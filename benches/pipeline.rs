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

/// Frames side by side, as a read buffer holds them.
struct Stream {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Stream {
    fn push(&mut self, message: &[u8]) {
        self.bytes.extend(encode::xlog_data(START, START, message));
        self.ends.push(self.bytes.len());
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

/// [`EVENTS`] events in walpost's own table, in transactions of so many rows.
fn stream(rows_a_transaction: usize) -> Stream {
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
    let insert = encode::insert(1, &row);
    let mut stream = Stream { bytes: Vec::new(), ends: Vec::new() };
    stream.push(&encode::relation(1, "walpost", "outbox", &columns));
    let mut lsn = START;
    for _ in 0..EVENTS / rows_a_transaction {
        let end_lsn = lsn + 0x30;
        stream.push(&encode::begin(lsn, 823_162_500_250_000, 731));
        (0..rows_a_transaction).for_each(|_| stream.push(&insert));
        stream.push(&encode::commit(lsn, end_lsn, 823_162_500_250_000));
        lsn = end_lsn;
    }
    stream
}

/// Frames to records with five headers, acknowledged a transaction at a time.
#[divan::bench(args = [1, 100])]
fn bytes_to_records(bencher: Bencher<'_, '_>, rows_a_transaction: usize) {
    let stream = stream(rows_a_transaction);
    let pipeline = || Pipeline::new(vec![outbox::walpost("walpost", "outbox")], OnUpdate::Ignore, Lsn(START), LIMITS);
    bencher
        .counter(BytesCount::new(stream.bytes.len()))
        .counter(ItemsCount::new(EVENTS))
        .with_inputs(pipeline)
        .bench_local_refs(|pipeline| {
            let mut in_flight = Vec::with_capacity(rows_a_transaction);
            for frame in stream.frames() {
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
        });
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
