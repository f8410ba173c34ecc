//! Every sink keeps the same promises: one set of stories, told of each of them.

mod endpoint;
mod kafka;
mod pipe;
mod rabbitmq;
mod receiver;
mod secrets;
mod story;
mod traces;
mod webhook;

use std::{
    thread,
    time::{Duration, Instant},
};

use self::receiver::{Receiver, Report};
use crate::support::{
    eventually,
    letters::{command, letter, letters, with_letters},
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
};

const WITHIN: Duration = Duration::from_secs(120);
const AGGREGATES: u32 = 17;

/// Whose story is told of which receiver.
macro_rules! stories {
    ($($to:ident: $receiver:ty, [$($story:ident),* $(,)?];)*) => {
        $(mod $to {
            use super::*;

            $(#[test]
            fn $story() {
                super::$story::<$receiver>();
            })*
        })*
    };
}

stories! {
    to_kafka: kafka::Broker, [
        hard_kills_lose_and_reorder_nothing,
        a_receiver_that_is_down_is_waited_for,
        a_slow_receiver_slows_the_stream_down,
        what_is_refused_waits_with_its_aggregate_and_is_replayed_in_order,
    ];
    to_webhook: webhook::Endpoint, [
        hard_kills_lose_and_reorder_nothing,
        a_receiver_that_is_down_is_waited_for,
        a_slow_receiver_slows_the_stream_down,
        what_is_refused_waits_with_its_aggregate_and_is_replayed_in_order,
    ];
    to_rabbitmq: rabbitmq::Queue, [
        hard_kills_lose_and_reorder_nothing,
        a_receiver_that_is_down_is_waited_for,
        a_slow_receiver_slows_the_stream_down,
        what_is_refused_waits_with_its_aggregate_and_is_replayed_in_order,
    ];
    // Whoever reads a pipe refuses nothing.
    to_stdout: pipe::Pipe, [
        hard_kills_lose_and_reorder_nothing,
        a_receiver_that_is_down_is_waited_for,
        a_slow_receiver_slows_the_stream_down,
    ];
}

fn hard_kills_lose_and_reorder_nothing<R: Receiver>() {
    const KILLS: u32 = 6;
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let receiver = R::start(&outbox);
    let configuration = receiver.configuration(&outbox);
    let mut writer = outbox.writer();
    let bulk = Bulk { transactions: R::BATCH / 10, rows: 10, aggregates: AGGREGATES, padding: 100 };
    writer.bulk(bulk);
    for kill in 0..KILLS {
        writer.bulk(bulk);
        let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
        let before = outbox.confirmed();
        let walpost = receiver.run(&configuration);
        eventually(WITHIN, "walpost goes on where it was killed", || (outbox.confirmed() > before).then_some(()));
        walpost.kill();
        assert!(outbox.confirmed() < end, "kill {kill} came when all was done");
    }
    let walpost = receiver.run(&configuration);
    let report = arrived(&receiver, &outbox);
    println!("{} events, {KILLS} kills: {report}", outbox.committed().len());
    report.assert_complete();
    // What may be in flight by default, and what was acknowledged since the last confirmation.
    assert!(report.duplicates <= KILLS as usize * 5_000, "{report}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn a_receiver_that_is_down_is_waited_for<R: Receiver>() {
    const DOWN: Duration = Duration::from_secs(20);
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let receiver = R::start(&outbox);
    let walpost = receiver.run(&receiver.configuration(&outbox));
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: AGGREGATES, padding: 0 });
    outbox.drained(WITHIN);
    let pid = walpost.streams(&outbox, WITHIN);

    receiver.stop();
    // Whoever reads may be in the middle of one.
    writer.bulk(Bulk { transactions: 2, rows: 1, aggregates: AGGREGATES, padding: R::UNTAKEN });
    let held: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    let end = Instant::now() + DOWN;
    while Instant::now() < end {
        writer.bulk(Bulk { transactions: 1, rows: 1, aggregates: AGGREGATES, padding: 0 });
        assert!(outbox.confirmed() < held, "what is not delivered is confirmed");
        thread::sleep(Duration::from_millis(50)); // traffic, not a flood
    }
    receiver.start_again();
    let report = arrived(&receiver, &outbox);
    println!("{} events: {report}", outbox.committed().len());
    report.assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(pid), "the stream was given up meanwhile");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn a_slow_receiver_slows_the_stream_down<R: Receiver>() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let receiver = R::start(&outbox);
    let walpost = receiver.run(&receiver.configuration(&outbox));
    let pid = walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: R::BATCH / 10, rows: 10, aggregates: AGGREGATES, padding: 1_000 });
    let committed = outbox.committed();
    let end = Instant::now() + WITHIN;
    // It answers a third of the time.
    while receiver.report(&committed).missing.len() > committed.len() / 2 {
        assert!(Instant::now() < end, "half of it did not arrive");
        receiver.pause();
        thread::sleep(Duration::from_millis(200));
        receiver.resume();
        thread::sleep(Duration::from_millis(100));
    }
    let report = arrived(&receiver, &outbox);
    report.assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(pid), "the stream was given up meanwhile");
    // In flight are 16 MiB at most.
    assert!(walpost.peak_rss_mib() < 150.0, "{} MiB", walpost.peak_rss_mib());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn what_is_refused_waits_with_its_aggregate_and_is_replayed_in_order<R: Receiver>() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let receiver = R::start(&outbox);
    let walpost = receiver.run(&receiver.configuration(&outbox));
    let mut writer = outbox.writer();
    writer.one(R::REFUSED, "a");
    writer.begin();
    (0..3).for_each(|_| writer.event(R::REFUSED, "a"));
    writer.event("bulk", "b");
    writer.commit();
    let ids: Vec<_> = outbox.committed().iter().map(|event| event.id.clone()).collect();
    let [first, behind @ .., other] = &ids[..] else { panic!("five events") };
    eventually(WITHIN, "the first is a dead letter, and the others of its aggregate wait", || {
        (letters(&outbox).len() == 4).then_some(())
    });
    let mut expected = vec![letter("parked", R::REASON, first)];
    expected.extend(behind.iter().map(|id| letter("parked", "parked", id)));
    assert_eq!(letters(&outbox), expected);
    outbox.drained(WITHIN);
    let committed = outbox.committed();
    assert_eq!(receiver.report(&committed).missing.len(), 4, "only the other aggregate's has arrived: {other}");

    // They survive a restart, and so does what comes after them.
    assert_eq!(walpost.terminate(WITHIN), 0);
    let walpost = receiver.run(&receiver.configuration(&outbox));
    writer.one(R::REFUSED, "a");
    eventually(WITHIN, "it waits behind the others", || (letters(&outbox).len() == 5).then_some(()));

    receiver.mend(&outbox);
    command(&outbox, &["replay", "--all"]);
    writer.one(R::REFUSED, "a");
    let report = arrived(&receiver, &outbox);
    report.assert_complete();
    eventually(WITHIN, "the replay is settled", || {
        letters(&outbox).iter().all(|[state, ..]| state == "replayed").then_some(())
    });
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Waits until every committed event has arrived, and compares.
fn arrived<R: Receiver>(receiver: &R, outbox: &Outbox<'_>) -> Report {
    let committed = outbox.committed();
    eventually(WITHIN, "every committed event", || receiver.report(&committed).missing.is_empty().then_some(()));
    receiver.report(&committed)
}
