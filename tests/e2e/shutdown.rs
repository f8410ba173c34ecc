//! Clean stops: nothing twice when Kafka takes what is in flight, an end in bounded time when it does not.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::Signal,
    scratch,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn ten_restarts_under_load_deliver_each_event_once() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = outbox.configuration(kafka, "shutdown_grace = '20s'");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = outbox.writer();
            while !done.load(Ordering::Relaxed) {
                writer.bulk(Bulk { transactions: 10, rows: 1, aggregates: 7, padding: 200 });
                thread::sleep(Duration::from_millis(20)); // 500 events a second
            }
        });
        for restart in 0..10 {
            let walpost = Walpost::start(&configuration);
            walpost.streams(&outbox, WITHIN);
            let confirmed = outbox.confirmed();
            eventually(WITHIN, "it delivers", || (outbox.confirmed() > confirmed).then_some(()));
            let linger = if long() { 2_000 } else { 300 };
            thread::sleep(Duration::from_millis(restart * 37 % linger)); // at no particular moment of the load
            let asked = Instant::now();
            assert_eq!(walpost.terminate(WITHIN), 0);
            assert!(asked.elapsed() < Duration::from_secs(20), "beyond its grace: {:?}", asked.elapsed());
        }
        done.store(true, Ordering::Relaxed);
    });
    let walpost = Walpost::start(&configuration);
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_stop_while_kafka_is_away_ends_within_the_grace_and_loses_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    outbox.writer().bulk(Bulk { transactions: 5_000, rows: 1, aggregates: 7, padding: 100 });
    let before = outbox.confirmed();
    let nobody = format!("brokers = '127.0.0.1:{}'\n", scratch::port());

    let walpost = Walpost::start(&outbox.configuration(kafka, &format!("{nobody}shutdown_grace = '2s'")));
    has_begun(&walpost);
    let asked = Instant::now();
    assert_eq!(walpost.terminate(WITHIN), 1);
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    assert!(walpost.log().contains("undelivered; they are not confirmed, so the next run sends them"));

    let walpost = Walpost::start(&outbox.configuration(kafka, &format!("{nobody}shutdown_grace = '1h'")));
    has_begun(&walpost);
    walpost.signal(Signal::Term);
    walpost.says("delivering what is in flight", WITHIN);
    let asked = Instant::now();
    assert_eq!(walpost.terminate(WITHIN), 1);
    assert!(asked.elapsed() < Duration::from_secs(5), "a second signal ends it at once: {:?}", asked.elapsed());

    assert_eq!(outbox.confirmed(), before);
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Waits until it has something to deliver.
fn has_begun(walpost: &Walpost) {
    eventually(WITHIN, "a record is in flight", || (walpost.metric("walpost_in_flight_records")? >= 1.0).then_some(()));
}
