//! Hard kills: nothing is lost, nothing is reordered, and what comes twice is what was in flight.

use std::time::Duration;

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::Signal,
    records::Isolation,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn twenty_hard_kills_in_mid_drain_lose_and_reorder_nothing() {
    const KILLS: usize = 20;
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    kafka.create_topic(&topic, 3, &[]);
    let configuration = outbox.configuration(kafka, "");
    let mut writer = outbox.writer();
    let size = if long() { 100 } else { 10 };
    // A backlog from the start, and each round writes more than it lets through: every kill finds one.
    writer.bulk(Bulk { transactions: size * 40, rows: 100, aggregates: 17, padding: 100 });
    let shapes = [(size * 10, 100), (size * 1_000, 1), (size / 2, 2_000)];
    for (kill, (transactions, rows)) in (0..KILLS).zip(shapes.into_iter().cycle()) {
        writer.bulk(Bulk { transactions, rows, aggregates: 17, padding: 100 });
        let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
        let before = outbox.confirmed();
        let walpost = Walpost::start(&configuration);
        eventually(WITHIN, "walpost goes on where it was killed", || (outbox.confirmed() > before).then_some(()));
        walpost.kill();
        assert!(outbox.confirmed() < end, "kill {kill} came when all was done");
    }
    let walpost = Walpost::start(&configuration);
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("{} events, {KILLS} kills: {report}", outbox.committed().len());
    report.assert_complete();
    // What may be in flight by default, and what was acknowledged since the last confirmation.
    assert!(report.duplicates <= KILLS * 5_000, "{report}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn restarts_among_small_transactions_and_a_copy_skip_no_first_row() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    kafka.create_topic(&topic, 1, &[]);
    let mut writer = outbox.writer();
    // One at a time, so that a restart comes soon after a record and finds its neighbours unsent.
    let one_by_one = outbox.configuration(kafka, "in_flight_records = 1");
    let mut reader = kafka.reader(&[&topic], Isolation::Uncommitted, WITHIN);
    for restart in 0..if long() { 50 } else { 16 } {
        writer.bulk(Bulk { transactions: 6, rows: 1, aggregates: 3, padding: 0 });
        if restart == 5 {
            writer.copy(5_000, 3);
        }
        writer.bulk(Bulk { transactions: 1, rows: 4, aggregates: 3, padding: 0 });
        let walpost = Walpost::start(&one_by_one);
        let seen = reader.records().len();
        reader.until(WITHIN, "a record after the restart", |records| records.len() > seen);
        if restart % 2 == 0 {
            walpost.kill();
        } else {
            walpost.signal(Signal::Term);
            walpost.wait_exit(WITHIN);
        }
    }
    drop(reader);
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("{} events: {report}", outbox.committed().len());
    report.assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}
