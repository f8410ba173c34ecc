//! Two processes on one slot: one streams, the other waits for it; and never a synchronous standby.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres, VERSIONS},
    process::Signal,
    proxy::Proxy,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_second_process_takes_over_when_the_first_is_killed() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let configuration = outbox.configuration(kafka, "");
    let mut writer = outbox.writer();
    let first = Walpost::start(&configuration);
    let holder = first.streams(&outbox, WITHIN);
    let second = Walpost::start(&configuration);
    let waits = format!("standby: slot {} is in use (held by server process {holder}); waiting for it", outbox.slot());
    second.says(&waits, WITHIN);
    writer.bulk(Bulk { transactions: 100, rows: 10, aggregates: 7, padding: 50 });
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(holder));

    writer.bulk(Bulk { transactions: 20_000, rows: 1, aggregates: 7, padding: 50 });
    first.kill();
    let killed = Instant::now();
    let taken_over = eventually(WITHIN, "the second takes over", || outbox.walsender().filter(|pid| *pid != holder));
    let took = killed.elapsed();
    println!("taken over after {took:?}");
    assert!(took < Duration::from_millis(1500), "{took:?}");
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
    assert_eq!(outbox.walsender(), Some(taken_over));
    assert_eq!(second.log().matches("standby: slot").count(), 1, "it says so once");

    // And back: a clean stop hands over without a duplicate.
    let third = Walpost::start(&configuration);
    third.says("standby: slot", WITHIN);
    assert_eq!(second.terminate(WITHIN), 0);
    third.streams(&outbox, WITHIN);
    writer.one("bulk", "last");
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
    assert_eq!(third.terminate(WITHIN), 0);
}

/// The slot itself is no lock while nobody streams from it, nor while it does not exist.
#[test]
fn whoever_has_the_lock_of_the_slot_keeps_others_on_standby() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let outbox = Outbox::create(&database);
        let slot = outbox.slot();
        // Replication is all that this role may do.
        database.sql(&format!("CREATE ROLE {slot}_stream LOGIN REPLICATION"));
        let url = database.url().replace("postgres@", &format!("{slot}_stream@"));
        let configuration = outbox.configuration(Kafka::shared(), &format!("database_url = '{url}'"));
        let other = database.session();
        other.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
        other.run(&format!("SELECT pg_advisory_lock(hashtextextended('walpost slot {slot}', 0))"));
        let pid: u32 = other.get("SELECT pg_backend_pid()");
        let walpost = Walpost::start(&configuration);
        let waits = format!("standby: slot {slot} is in use (held by server process {pid}); waiting for it");
        walpost.says(&waits, WITHIN);
        other.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        drop(other);
        let walsender = walpost.streams(&outbox, WITHIN);
        let session = database.session();
        let holders = session.rows(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory'
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
        assert_eq!(holders, [[Some(walsender.to_string())]], "{version}: it streams, and has the lock");
        assert_eq!(walpost.terminate(WITHIN), 0);
        drop(session);
        database.sql(&format!("DROP ROLE {slot}_stream"));
    }
}

/// The server believes in the first one for ever, as it has no wal_sender_timeout; the standby does not.
#[test]
fn a_holder_that_gives_no_sign_is_ended_after_the_takeover_timeout_and_a_living_one_never() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let server = Postgres::start(MAIN, &["wal_sender_timeout=0"]);
    for frozen in [false, true] {
        let database = server.database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
        let proxy = Proxy::to(server.port());
        let through = format!("database_url = 'postgres://postgres@127.0.0.1:{}/{}'\n", proxy.port(), database.name);
        let bounds = format!("status_interval = '500ms'\ntakeover_timeout = '{}s'\n", TIMEOUT.as_secs());
        let first = Walpost::start(&outbox.configuration(kafka, &(through + &bounds)));
        let holder = first.streams(&outbox, WITHIN);
        let second = Walpost::start(&outbox.configuration(kafka, &bounds));
        second.says("standby: slot", WITHIN);
        assert_eq!(second.http("/readyz").map(|(code, _)| code), Some(200));
        // Nothing happens, for longer than the timeout: that is no silence.
        thread::sleep(TIMEOUT * 2);
        assert_eq!(outbox.walsender(), Some(holder));

        let mut writer = outbox.writer();
        writer.bulk(Bulk { transactions: 20_000, rows: 1, aggregates: 7, padding: 50 });
        match frozen {
            true => first.signal(Signal::Stop),
            false => proxy.swallow(),
        }
        let silent = Instant::now();
        let gone = |pid: &u32| *pid != holder;
        eventually(TIMEOUT + Duration::from_secs(5), "the second takes over", || outbox.walsender().filter(gone));
        println!("frozen: {frozen}; taken over after {:?}", silent.elapsed());
        assert!(silent.elapsed() > TIMEOUT - Duration::from_secs(1), "{:?}", silent.elapsed());
        assert!(second.log().contains(&format!("ended server process {holder}, which held slot {}", outbox.slot())));
        match frozen {
            true => first.signal(Signal::Cont),
            false => proxy.heal(),
        }
        outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
        outbox.drained(WITHIN);
        if frozen {
            first.says("standby: slot", WITHIN);
            assert_eq!(first.metric("walpost_state{state=\"standby\"}"), Some(1.0));
            assert_eq!(first.terminate(WITHIN), 0);
        }
        assert_eq!(second.terminate(WITHIN), 0);
    }
}

#[test]
fn a_standby_that_may_not_end_a_silent_holder_says_so_and_waits() {
    let server = Postgres::start(MAIN, &["wal_sender_timeout=0"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    database.sql("CREATE ROLE stream LOGIN REPLICATION; GRANT pg_read_all_stats TO stream");
    let bounds = "status_interval = '200ms'\ntakeover_timeout = '1s'\n";
    let first = Walpost::start(&outbox.configuration(Kafka::shared(), bounds));
    let holder = first.streams(&outbox, WITHIN);
    let url = database.url().replace("postgres@", "stream@");
    let configuration = format!("{bounds}database_url = '{url}'");
    let second = Walpost::start(&outbox.configuration(Kafka::shared(), &configuration));
    second.says("standby: slot", WITHIN);
    first.signal(Signal::Stop);
    let refused = "this role may not end it";
    second.says(refused, WITHIN);
    let ready =
        eventually(WITHIN, "and shows it", || second.http("/readyz").filter(|(_, body)| body.contains(refused)));
    assert_eq!(ready.0, 200, "{ready:?}");
    assert_eq!((outbox.walsender(), second.log().matches(refused).count()), (Some(holder), 1));
    first.signal(Signal::Cont);
    first.kill();
    second.streams(&outbox, WITHIN);
    assert_eq!(second.terminate(WITHIN), 0);
}

#[test]
fn a_standby_that_is_asked_to_stop_stops_at_once() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let configuration = outbox.configuration(Kafka::shared(), "");
    let first = Walpost::start(&configuration);
    let holder = first.streams(&outbox, WITHIN);
    let second = Walpost::start(&configuration);
    second.says("standby: slot", WITHIN);
    assert_eq!(second.terminate(Duration::from_secs(5)), 0);
    assert_eq!(outbox.walsender(), Some(holder));
}

#[test]
fn commits_of_the_application_never_wait_for_kafka() {
    // The tests' own commits are not to wait either, while the server still counts its standbys.
    let server = Postgres::start(MAIN, &["synchronous_standby_names=*", "synchronous_commit=local"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("order"), 1, &[]);
    let configuration = outbox.configuration(kafka, "");
    let walpost = Walpost::start(&configuration);
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(log.contains("the server counts walpost as a synchronous standby (sync)"), "{log}");
    assert!(log.contains("synchronous_standby_names"), "{log}");

    // A list of others' names makes walpost asynchronous.
    let session = server.session("postgres");
    session.run("ALTER SYSTEM SET synchronous_standby_names = 'replica'");
    session.run("SELECT pg_reload_conf()");
    eventually(WITHIN, "the setting is in force", || {
        let names = server.session("postgres").value("SHOW synchronous_standby_names");
        (names.as_deref() == Some("replica")).then_some(())
    });
    let walpost = Walpost::start(&configuration);
    outbox.writer().one("order", "o-1");
    outbox.delivered(kafka, &["order"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}
