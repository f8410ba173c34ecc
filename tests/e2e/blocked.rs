//! A topic that takes nothing: what it holds back is not confirmed, whatever else flows, and feedback goes on.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres, VERSIONS},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

/// Longer than the servers' `wal_sender_timeout`: only feedback keeps the stream alive for so long.
fn blocked_for() -> Duration {
    Duration::from_secs(if long() { 120 } else { 6 })
}

/// The oldest version sends empty transactions for other tables' traffic, later ones only keepalives.
#[test]
fn what_a_blocked_topic_holds_back_is_not_confirmed_whatever_else_flows() {
    let kafka = Kafka::shared();
    thread::scope(|scope| {
        for version in [VERSIONS[0], MAIN] {
            scope.spawn(move || {
                let server = Postgres::start(version, &["wal_sender_timeout=3s"]);
                let database = server.database();
                let outbox = Outbox::create(&database);
                hold_back(&outbox, kafka);
            });
        }
    });
}

fn hold_back(outbox: &Outbox<'_>, kafka: &Kafka) {
    let session = outbox.database.session();
    session.run("CREATE TABLE other (n int)");
    let (stuck, free) = (outbox.topic("stuck"), outbox.topic("free"));
    kafka.create_blockable_topic(&stuck, 1);
    kafka.create_topic(&free, 1, &[]);
    kafka.block(&stuck);
    let configuration = outbox.configuration(kafka, "");
    let walpost = Walpost::start(&configuration);
    let pid = walpost.streams(outbox, WITHIN);
    let started = |pid: u32| {
        let start = format!("SELECT backend_start FROM pg_stat_replication WHERE pid = {pid}");
        outbox.database.session().value(&start)
    };
    let start = started(pid);
    let mut writer = outbox.writer();
    writer.one("stuck", "s");
    let held: u64 = session.get("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");

    let end = Instant::now() + blocked_for();
    let mut free_events = 0;
    while Instant::now() < end {
        session.run("INSERT INTO other SELECT generate_series(1, 100)");
        if free_events < 1_000 {
            writer.one("free", &format!("f-{}", free_events % 5));
            free_events += 1;
        }
        let confirmed = outbox.confirmed();
        assert!(confirmed < held, "{confirmed} is confirmed, and what was committed up to {held} is not delivered");
        thread::sleep(Duration::from_millis(20)); // traffic, not a flood
    }
    assert_eq!((outbox.walsender(), started(pid)), (Some(pid), start), "the walsender is the same process");
    let records = kafka.read(&free, free_events, WITHIN);
    assert_eq!(records.len(), free_events, "other topics go on");

    walpost.kill();
    assert!(outbox.confirmed() < held);
    kafka.unblock(&stuck);
    let walpost = Walpost::start(&configuration);
    outbox.delivered(kafka, &["stuck", "free"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn too_few_in_sync_replicas_are_named_and_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("order");
    kafka.create_blockable_topic(&topic, 1);
    kafka.block(&topic);
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    writer.one("order", "o-1");
    let cause = format!("topic {topic}: partition 0 has 1 in-sync replica, and min.insync.replicas is 2");
    eventually(Duration::from_secs(30), "the log says why nothing is delivered", || {
        walpost.log().contains(&cause).then_some(())
    });
    kafka.unblock(&topic);
    outbox.delivered(kafka, &["order"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.log().matches(&cause).count(), 1, "it says so once");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Requests are pipelined: when a topic comes free between two of them, the first is refused and the second is not.
#[test]
fn a_topic_that_comes_free_between_two_requests_loses_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    kafka.create_blockable_topic(&topic, 1);
    // Small batches, tried again at once: there is always a request under way.
    let hasty = outbox
        .configuration(kafka, "[kafka]\n'batch.num.messages' = 5\n'retry.backoff.ms' = 1\n'retry.backoff.max.ms' = 1");
    let mut writer = outbox.writer();
    for _ in 0..if long() { 200 } else { 20 } {
        kafka.block(&topic);
        // A new producer, which the partition does not know yet.
        let walpost = Walpost::start(&hasty);
        writer.bulk(Bulk { transactions: 1, rows: 50, aggregates: 1, padding: 0 });
        eventually(WITHIN, "the first is in flight", || {
            (walpost.metric("walpost_in_flight_records")? >= 1.0).then_some(())
        });
        kafka.unblock(&topic);
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("pipelined requests: {report}");
    report.assert_complete();
}
