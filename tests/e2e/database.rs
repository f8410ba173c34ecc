//! PostgreSQL restarted, crashed, shut down, out of reach, or without its publication.

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
    postgres::{MAIN, Mode, Postgres, VERSIONS},
    proxy::Proxy,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn restarts_and_crashes_under_load_lose_nothing() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, "progress_interval = '100ms'"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (done, database) = (&done, &database);
            scope.spawn(move || {
                // What a lost connection leaves open, the table will tell.
                while !done.load(Ordering::Relaxed) {
                    let Ok(session) = database.server.try_session(&database.name) else {
                        thread::sleep(Duration::from_millis(50));
                        continue;
                    };
                    let insert = format!(
                        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                         SELECT 'bulk', 'w{writer}-' || n % 5, 'happened', to_jsonb(n) FROM generate_series(1, 5) n"
                    );
                    while !done.load(Ordering::Relaxed) && session.try_run(&insert).is_ok() {}
                }
            });
        }
        for disturbance in 0..if long() { 10 } else { 4 } {
            let confirmed = outbox.confirmed();
            eventually(WITHIN, "it delivers", || (outbox.confirmed() > confirmed + 100_000).then_some(()));
            match disturbance % 2 {
                0 => server.restart(),
                _ => {
                    server.crash();
                    server.start_again();
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let report = outbox.table_delivered(kafka, &["bulk"], WITHIN);
    println!("restarts and crashes: {report}");
    report.assert_complete();
    outbox.drained(WITHIN);
    let session = database.session();
    let unproven =
        "select o.id from walpost.outbox o, walpost.progress p where not walpost.is_published(o.txid, o.tableoid, p)";
    eventually(WITHIN, "all is proven", || session.rows(unproven).is_empty().then_some(()));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// G8, on the oldest version and the main one: they differ in what they wait for.
#[test]
fn a_shutdown_completes_in_bounded_time_and_confirms_nothing_undelivered() {
    thread::scope(|scope| {
        for version in [VERSIONS[0], MAIN] {
            scope.spawn(move || {
                for mode in [Mode::Smart, Mode::Fast] {
                    for blocked in [false, true] {
                        shut_down(version, mode, blocked);
                    }
                }
            });
        }
    });
}

fn shut_down(version: u16, mode: Mode, blocked: bool) {
    const GRACE: Duration = Duration::from_secs(2);
    let case = format!("{version}, {mode:?}, Kafka blocked: {blocked}");
    let server = Postgres::start(version, &[]);
    let database = server.database();
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    kafka.create_blockable_topic(&topic, 1);
    if blocked {
        kafka.block(&topic);
    }
    // The proof's connections are many and short: none may hold the shutdown up.
    let more = format!("shutdown_grace = '{}s'\nprogress_interval = '100ms'", GRACE.as_secs());
    let walpost = Walpost::start(&outbox.configuration(kafka, &more));
    walpost.streams(&outbox, WITHIN);
    let before: u64 = database.session().get("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
    // The writer's session would hold up a smart shutdown.
    outbox.writer().bulk(Bulk { transactions: 2_000, rows: 2, aggregates: 7, padding: 100 });
    // It asks the server every five seconds, and learns of the shutdown then.
    let took = server.stop(mode, GRACE + Duration::from_secs(15));
    println!("{case}: stopped in {took:?}");
    server.start_again();
    if blocked {
        assert!(outbox.confirmed() <= before, "{case}");
        kafka.unblock(&topic);
    }
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("{case}: {report}");
    report.assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0, "{case}");
}

#[test]
fn a_publication_younger_than_the_slot_halts_with_the_way_out() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let mut writer = outbox.writer();
        // Live: walpost streams while the publication goes, a row comes, and the publication comes back.
        let configuration = outbox.configuration(kafka, "");
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        writer.one("order", "before");
        outbox.drained(WITHIN);
        // Without a row in between nothing is missed.
        writer.session.run("DROP PUBLICATION walpost");
        writer.session.run("CREATE PUBLICATION walpost FOR TABLE walpost.outbox WITH (publish = 'insert')");
        writer.one("order", "between");
        outbox.drained(WITHIN);
        writer.session.run("DROP PUBLICATION walpost");
        writer.one("order", "missed");
        writer.session.run("CREATE PUBLICATION walpost FOR TABLE walpost.outbox WITH (publish = 'insert')");
        writer.one("order", "after");
        assert_eq!(walpost.wait_exit(WITHIN), 1, "{version}");
        drop(walpost);
        let stuck = outbox.confirmed();
        // At the start: the same, and neither a hot loop nor a step past the row.
        let walpost = Walpost::start(&configuration);
        assert_eq!(walpost.wait_exit(WITHIN), 1, "{version}");
        let log = walpost.log();
        let cause = format!(
            "publication walpost did not exist when a change that slot {} still has to decode was made",
            outbox.slot()
        );
        assert!(log.contains(&cause) && log.contains("pg_replication_slot_advance"), "{version}: {log}");
        assert_eq!(outbox.confirmed(), stuck, "{version}: the slot stays, where it was");

        // The way out that the message names loses what it says, and no more.
        writer.session.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", outbox.slot()));
        let walpost = Walpost::start(&configuration);
        writer.one("order", "again");
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0, "{version}");
        let records = kafka.read(&outbox.topic("order"), 3, WITHIN);
        let keys: Vec<_> = records.iter().filter_map(|record| record.key_text()).collect();
        assert_eq!(keys, ["before", "between", "again"], "{version}");
    }
}

/// The server gives up a silent client after `wal_sender_timeout`, or never.
#[test]
fn the_position_moves_under_steady_load_whatever_the_servers_patience() {
    thread::scope(|scope| {
        for patience in ["0", "1s"] {
            scope.spawn(move || {
                let server = Postgres::start(MAIN, &[&format!("wal_sender_timeout={patience}")]);
                let database = server.database();
                let outbox = Outbox::create(&database);
                let kafka = Kafka::shared();
                kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
                let walpost = Walpost::start(&outbox.configuration(kafka, ""));
                let pid = walpost.streams(&outbox, WITHIN);
                let mut writer = outbox.writer();
                let (mut last, mut moved) = (outbox.confirmed(), Instant::now());
                let end = Instant::now() + Duration::from_secs(if long() { 180 } else { 5 });
                while Instant::now() < end {
                    writer.bulk(Bulk { transactions: 50, rows: 1, aggregates: 7, padding: 100 });
                    thread::sleep(Duration::from_millis(50)); // at most 1,000 events a second
                    let confirmed = outbox.confirmed();
                    if confirmed > last {
                        (last, moved) = (confirmed, Instant::now());
                    }
                    assert!(moved.elapsed() < Duration::from_secs(3), "stands at {last} for {:?}", moved.elapsed());
                }
                // Then nothing: the walsender of an impatient server still hears from walpost.
                thread::sleep(Duration::from_secs(3));
                assert_eq!(outbox.walsender(), Some(pid), "wal_sender_timeout = {patience}");
                outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
                assert_eq!(walpost.terminate(WITHIN), 0);
            });
        }
    });
}

#[test]
fn resets_and_terminated_backends_are_recovered_from() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let proxy = Proxy::to(database.server.port());
    let walpost = Walpost::start(&outbox.configuration(kafka, &through(&proxy, &outbox)));
    let mut writer = outbox.writer();
    for disturbance in 0..if long() { 20 } else { 8 } {
        let pid = walpost.streams(&outbox, WITHIN);
        writer.bulk(Bulk { transactions: 2_000, rows: 1, aggregates: 7, padding: 100 });
        match disturbance % 2 {
            0 => proxy.reset(),
            _ => writer.session.run(&format!("SELECT pg_terminate_backend({pid})")),
        }
        eventually(WITHIN, "it streams again", || outbox.walsender().filter(|new| *new != pid));
    }
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("resets and terminated backends: {report}");
    report.assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// No end, no reset, nothing: only silence tells.
#[test]
fn a_link_that_swallows_everything_is_given_up_and_made_anew() {
    let server = Postgres::start(MAIN, &["wal_sender_timeout=4s"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let proxy = Proxy::to(server.port());
    let mut writer = outbox.writer();
    let walpost = Walpost::start(&outbox.configuration(kafka, &through(&proxy, &outbox)));
    for _ in 0..if long() { 10 } else { 2 } {
        let pid = walpost.streams(&outbox, WITHIN);
        // The walsender streams a moment before walpost's other connections are there.
        eventually(WITHIN, "it is ready", || walpost.http("/readyz").filter(|(code, _)| *code == 200));
        writer.bulk(Bulk { transactions: 500, rows: 1, aggregates: 7, padding: 100 });
        proxy.swallow();
        writer.bulk(Bulk { transactions: 500, rows: 1, aggregates: 7, padding: 100 });
        let silent = "PostgreSQL has sent nothing for";
        let seen = walpost.log().matches(silent).count();
        eventually(Duration::from_secs(30), "it gives the link up", || {
            (walpost.log().matches(silent).count() > seen).then_some(())
        });
        assert_eq!(walpost.http("/readyz").map(|(code, _)| code), Some(503));
        proxy.heal();
        eventually(WITHIN, "it streams again", || outbox.walsender().filter(|new| *new != pid));
        eventually(WITHIN, "it is ready", || walpost.http("/readyz").filter(|(code, _)| *code == 200));
    }
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn through(proxy: &Proxy, outbox: &Outbox<'_>) -> String {
    format!("database_url = 'postgres://postgres@127.0.0.1:{}/{}'", proxy.port(), outbox.database.name)
}
