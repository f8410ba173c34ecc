//! A slot that cannot give what it held: noticed at once, by its reason, with the gap named, and never passed over.

use std::time::{Duration, Instant};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres, VERSIONS},
    process::Signal,
    records::Isolation,
    streamed::{quick, streamed},
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);
/// Little log is kept for a slot.
const SMALL: [&str; 4] = ["max_slot_wal_keep_size=1MB", "wal_keep_size=0", "max_wal_size=32MB", "min_wal_size=32MB"];

/// Writes log until the server gives the slot up.
fn outgrow(outbox: &Outbox<'_>) {
    let session = outbox.database.session();
    session.run("CREATE TABLE IF NOT EXISTS other (v text)");
    eventually(WITHIN, "the slot is lost", || {
        session.run("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
        session.run("SELECT pg_switch_wal(); CHECKPOINT");
        let status = session
            .value(&format!("SELECT max(wal_status) FROM pg_replication_slots WHERE slot_name = '{}'", outbox.slot()));
        (status.as_deref() == Some("lost")).then_some(())
    });
}

#[test]
fn a_slot_that_the_server_gives_up_halts_the_stream_with_the_gap_named() {
    for version in VERSIONS {
        let server = Postgres::start(version, &SMALL);
        let database = server.database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        let topic = outbox.topic("bulk");
        kafka.create_blockable_topic(&topic, 1);
        let configuration = outbox.configuration(kafka, "");
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        outbox.writer().one("bulk", "delivered");
        outbox.drained(WITHIN);
        // While it streams, with Kafka in the way.
        kafka.block(&topic);
        outbox.writer().bulk(Bulk { transactions: 2_000, rows: 1, aggregates: 7, padding: 50 });
        // What the metrics have to warn with.
        eventually(WITHIN, "the room that is left is a metric", || walpost.metric("walpost_slot_safe_bytes"));
        assert_eq!(walpost.metric("walpost_slot_wal_status{status=\"reserved\"}"), Some(1.0), "{version}");
        outgrow(&outbox);
        assert_eq!(walpost.wait_exit(Duration::from_secs(20)), 1, "{version}");
        let log = walpost.log();
        let gap =
            format!("replication slot {} is lost: PostgreSQL gave it up (wal_removed: more log was", outbox.slot());
        assert!(log.contains(&gap) && log.contains("; events committed between 0/"), "{version}: {log}");
        assert!(log.contains("--accept-gap"), "{version}: {log}");
        // At the start: the same.
        let walpost = Walpost::start(&configuration);
        assert_eq!(walpost.wait_exit(WITHIN), 1, "{version}");
        assert!(walpost.log().contains(&gap), "{version}: {}", walpost.log());
    }
}

#[test]
fn a_slot_that_is_dropped_or_made_anew_under_a_running_process_halts_it() {
    for made_anew in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let walpost = Walpost::start(&outbox.configuration(kafka, ""));
        let walsender = walpost.streams(&outbox, WITHIN);
        let mut writer = outbox.writer();
        writer.one("order", "delivered");
        outbox.drained(WITHIN);
        let session = database.session();
        let slot = outbox.slot();
        // It is not to come back in between.
        walpost.signal(Signal::Stop);
        session.run(&format!("SELECT pg_terminate_backend({walsender})"));
        eventually(WITHIN, "the slot is free", || {
            session.try_run(&format!("SELECT pg_drop_replication_slot('{slot}')")).ok()
        });
        writer.one("order", "in the gap");
        if made_anew {
            session.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        }
        walpost.signal(Signal::Cont);
        assert_eq!(walpost.wait_exit(WITHIN), 1, "made anew: {made_anew}");
        let log = walpost.log();
        let says =
            if made_anew { format!("slot {slot} begins at 0/") } else { format!("slot {slot} is lost: it was there") };
        assert!(log.contains(&says) && log.contains("events committed between 0/"), "{log}");
    }
}

/// Another process has nothing to compare with but the table of progress.
#[test]
fn a_slot_made_anew_between_two_runs_is_told_from_the_same_one() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let outbox = Outbox::proven(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let configuration = outbox.configuration(kafka, &format!("{SOON}on_slot_loss = 'halt'"));
        let (slot, session) = (outbox.slot(), database.session());
        let mut writer = outbox.writer();
        let mut run = |clean: bool| {
            let walpost = Walpost::start(&configuration);
            walpost.streams(&outbox, WITHIN);
            writer.one("order", "delivered");
            proven(&outbox);
            match clean {
                true => assert_eq!(walpost.terminate(WITHIN), 0),
                false => walpost.kill(),
            }
            eventually(WITHIN, "the slot is free", || outbox.walsender().is_none().then_some(()));
        };
        for clean in [true, false] {
            run(clean);
            // The same slot, wherever the server begins to keep its log by now.
            session.run("CHECKPOINT");
            run(clean);
            // A new one.
            session.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
            outbox.writer().one("order", "in the gap");
            session.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
            let walpost = Walpost::start(&configuration);
            assert_eq!(walpost.wait_exit(WITHIN), 1, "{version}, clean: {clean}");
            let log = walpost.log();
            assert!(log.contains(&format!("slot {slot} begins at 0/")), "{version}, clean: {clean}: {log}");
            assert!(log.contains("(1 row of the table is not proven published)"), "{version}, clean: {clean}: {log}");
            session.run("DELETE FROM walpost.progress");
            session.run("TRUNCATE walpost.outbox");
        }
    }
}

/// The server moves the start of its log for the slot on whenever it likes; a kill may come right then, before it is
/// written down how far the slot was.
#[test]
fn a_killed_process_finds_its_slot_again_however_far_it_went_since_it_was_written_down() {
    for version in VERSIONS {
        let server = Postgres::start(version, &[]);
        let database = server.database();
        let outbox = Outbox::proven(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let configuration = outbox.configuration(kafka, "progress_interval = '1h'\non_slot_loss = 'halt'");
        let session = database.session();
        let mut writer = outbox.writer();
        let first = Walpost::start(&configuration);
        first.streams(&outbox, WITHIN);
        writer.one("order", "o-1");
        outbox.drained(WITHIN);
        assert_eq!(first.terminate(WITHIN), 0);
        let second = Walpost::start(&configuration);
        second.streams(&outbox, WITHIN);
        // The log that is kept for the slot begins beyond what was last written down.
        eventually(WITHIN, "the start of the log moves on", || {
            writer.one("order", "o-2");
            session.run("CHECKPOINT");
            let moved = "SELECT restart_lsn > p.confirmed FROM pg_replication_slots s JOIN walpost.progress p
                         ON s.slot_name = p.slot";
            (session.value(moved).as_deref() == Some("t")).then_some(())
        });
        outbox.drained(WITHIN);
        second.kill();
        let third = Walpost::start(&configuration);
        third.streams(&outbox, WITHIN);
        assert_eq!(third.terminate(WITHIN), 0, "{version}");
        outbox.delivered(kafka, &["order"], WITHIN).assert_complete();
    }
}

/// Waits until every row of the table is proven published.
fn proven(outbox: &Outbox<'_>) {
    let session = outbox.database.session();
    let proven =
        "SELECT bool_and(walpost.is_published(o.txid, o.tableoid, p)) FROM walpost.outbox o, walpost.progress p";
    eventually(WITHIN, "all rows are proven", || (session.value(proven).as_deref() == Some("t")).then_some(()));
}

const SOON: &str = "progress_interval = '200ms'\n";

#[test]
fn a_lost_slot_is_made_anew_and_what_is_not_proven_is_sent_from_the_table() {
    for version in VERSIONS {
        let server = Postgres::start(version, &SMALL);
        let database = server.database();
        let outbox = Outbox::proven(&database);
        let kafka = Kafka::shared();
        let topic = outbox.topic("bulk");
        kafka.create_blockable_topic(&topic, 1);
        let walpost = Walpost::start(&outbox.configuration(kafka, SOON));
        walpost.streams(&outbox, WITHIN);
        let mut writer = outbox.writer();
        writer.bulk(Bulk { transactions: 300, rows: 10, aggregates: 7, padding: 50 });
        proven(&outbox);
        kafka.block(&topic);
        writer.bulk(Bulk { transactions: 300, rows: 10, aggregates: 7, padding: 50 });
        outgrow(&outbox);
        let gap =
            format!("replication slot {} is lost: PostgreSQL gave it up (wal_removed: more log was", outbox.slot());
        eventually(Duration::from_secs(20), "it notices", || walpost.log().contains(&gap).then_some(()));
        kafka.unblock(&topic);
        writer.bulk(Bulk { transactions: 300, rows: 10, aggregates: 7, padding: 50 });
        let report = outbox.recovered(kafka, "bulk", WITHIN);
        println!("{version}: {report}");
        report.assert_complete();
        // What was in flight, and nothing that was proven.
        assert!(report.duplicates <= 6_000, "{version}: {report}");
        eventually(WITHIN, "it is counted", || (walpost.metric("walpost_slot_recoveries_total")? == 1.0).then_some(()));
        assert_eq!(walpost.metric("walpost_slot_losses_total"), Some(1.0));
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0, "{version}");
    }
}

#[test]
fn what_is_parked_while_rows_are_recovered_stays_in_order_whatever_ends_that() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let session = database.session();
    session.run(include_str!("../../sql/dead_letter.sql"));
    let insert = |destination: &str, last: u32| {
        session.run(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, destination, payload)
             SELECT 't', 'k', 'e', {destination}, to_jsonb(n) FROM generate_series(1, {last}) n"
        ));
    };
    insert("'no topic!'", 1);
    streamed(&outbox, "", &[]);
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    insert("NULL", 3000);
    let letters = || session.get::<u32>("SELECT count(*) FROM walpost.dead_letter");
    let start = || Walpost::start(&quick(&outbox, "in_flight_records = 100\n"));
    for rows in [700, 1400] {
        let walpost = start();
        eventually(WITHIN, "rows are parked", || (letters() > rows).then_some(()));
        walpost.kill();
    }
    let walpost = start();
    eventually(WITHIN, "all are parked", || (letters() == 3001).then_some(()));
    assert_eq!(walpost.terminate(WITHIN), 0);
    let parked =
        session.rows("SELECT convert_from(payload, 'UTF8') FROM walpost.dead_letter ORDER BY position").concat();
    let parked: Vec<u32> = parked[1..].iter().flatten().map(|payload| payload.parse().expect("a number")).collect();
    assert_eq!(parked, (1..=3000).collect::<Vec<_>>());
}

#[test]
fn a_slot_that_streamed_is_lost_while_older_rows_are_read_too() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    outbox.writer().one("order", "o");
    streamed(&outbox, "", &[]);
    // As walpost snapshot leaves it that is killed.
    database.sql(&format!(
        "UPDATE walpost.progress SET started = published, reading = 'initial', reading_since = now(),
           reading_visible = published, reading_at = '0/8';
         SELECT pg_drop_replication_slot('{}')",
        outbox.slot()
    ));
    let walpost = Walpost::start(&quick(&outbox, "on_slot_loss = 'halt'\n"));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let gone = format!("replication slot {} is lost: it was there, and is gone", outbox.slot());
    assert!(walpost.log().contains(&gone), "{}", walpost.log());
    outbox.writer().one("order", "o");
    let records = streamed(&outbox, "", &[&outbox.topic("order")]);
    assert_eq!(records.last().and_then(|record| record.header("recovered")), Some("true"));
}

#[test]
fn a_slot_that_is_gone_at_the_start_costs_no_event_and_repeats_none_that_is_proven() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    // They are older than the slot, and never to be sent.
    database.sql("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type) VALUES ('bulk', 'old', 'e')");
    let slot = outbox.slot();
    database.sql(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    database.sql(include_str!("../../sql/progress.sql"));
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = outbox.configuration(kafka, SOON);
    let mut writer = outbox.writer();
    for gone in ["missing", "made anew"] {
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        writer.bulk(Bulk { transactions: 300, rows: 10, aggregates: 7, padding: 50 });
        let rest = "SELECT count(*) FROM walpost.outbox o, walpost.progress p WHERE NOT walpost.is_published(o.txid, o.tableoid, p)";
        let session = database.session();
        eventually(WITHIN, "all but the old one is proven", || (session.get::<u32>(rest) == 1).then_some(()));
        assert_eq!(walpost.terminate(WITHIN), 0);
        session.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
        writer.bulk(Bulk { transactions: 30, rows: 10, aggregates: 7, padding: 50 });
        if gone == "made anew" {
            session.run(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        }
        writer.bulk(Bulk { transactions: 30, rows: 10, aggregates: 7, padding: 50 });

        let walpost = Walpost::start(&configuration);
        outbox.recovered(kafka, "bulk", WITHIN).assert_exactly_once();
        assert!(
            walpost.log().contains("(600 rows of the table are not proven published)"),
            "{gone}: {}",
            walpost.log()
        );
        eventually(WITHIN, "it streams", || outbox.walsender());
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Committed, WITHIN);
    let all = reader.until_end(WITHIN);
    let recovered: Vec<_> = all.iter().filter(|record| record.header("recovered") == Some("true")).collect();
    assert_eq!(recovered.len(), 1_200);
    assert!(recovered.iter().all(|record| record.header("position").is_none()));
}

/// Before any process has used it. Set-up itself leaves the loss to the process that can make up for it.
#[test]
fn a_slot_that_is_lost_right_after_it_was_set_up_costs_no_event() {
    for by_script in [false, true] {
        let server = Postgres::start(MAIN, &[]);
        let database = server.database();
        database.sql(include_str!("../../sql/outbox.sql"));
        let session = database.session();
        session
            .run("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type) VALUES ('bulk', 'old', 'e')");
        let few = Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 0 };
        let outbox = Outbox::set_up(&database);
        let mut writer = outbox.writer();
        if by_script {
            session.run(&format!("SELECT pg_drop_replication_slot('{}'); DELETE FROM walpost.progress", outbox.slot()));
            // Whatever the slot may have is written down before it is made.
            for statement in outbox.slot_statements() {
                session.run(&statement);
                if statement.contains("pg_create_logical") {
                    writer.bulk(few);
                }
            }
        }
        writer.bulk(few);
        session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
        writer.bulk(few);
        let again = walpost(&["setup", "--database-url", &database.url(), "--slot", outbox.slot()]);
        assert!(again.code == 1 && again.stdout.contains("mend it first: walpost run, which makes"), "{again:?}");
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
        let walpost = Walpost::start(&outbox.configuration(kafka, SOON));
        outbox.recovered(kafka, "bulk", WITHIN).assert_exactly_once();
        eventually(WITHIN, "it streams", || outbox.walsender());
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_gap_that_is_accepted_is_named_and_not_sent() {
    for with_proof in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = if with_proof { Outbox::proven(&database) } else { Outbox::create(&database) };
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let configuration = outbox.configuration(kafka, &format!("{SOON}on_slot_loss = 'halt'"));
        let (slot, session) = (outbox.slot(), database.session());
        let mut writer = outbox.writer();
        let walpost = Walpost::start(&configuration);
        let walsender = walpost.streams(&outbox, WITHIN);
        writer.one("order", "before");
        outbox.drained(WITHIN);
        if with_proof {
            proven(&outbox);
        }
        // Without the table only the same process knows what was there.
        walpost.signal(Signal::Stop);
        session.run(&format!("SELECT pg_terminate_backend({walsender})"));
        eventually(WITHIN, "the slot is free", || {
            session.try_run(&format!("SELECT pg_drop_replication_slot('{slot}')")).ok()
        });
        writer.one("order", "in the gap");
        walpost.signal(Signal::Cont);
        assert_eq!(walpost.wait_exit(WITHIN), 1);
        assert!(walpost.log().contains("on_slot_loss = \"halt\" ends the stream here"), "{}", walpost.log());
        drop(walpost);
        if !with_proof {
            let walpost = Walpost::start(&configuration);
            assert_eq!(walpost.wait_exit(WITHIN), 1);
            assert!(walpost.log().contains("has no replication slot"), "{}", walpost.log());
            continue;
        }
        let walpost = Walpost::start_with(&configuration, &["--accept-gap"], &[]);
        walpost.streams(&outbox, WITHIN);
        let log = walpost.log();
        assert!(
            log.contains("(1 row of the table is not proven published)")
                && log.contains("--accept-gap goes on without"),
            "{log}"
        );
        writer.one("order", "after");
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
        // It is settled.
        let walpost = Walpost::start(&configuration);
        writer.one("order", "later");
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
        let records = kafka.read(&outbox.topic("order"), 3, WITHIN);
        let keys: Vec<_> = records.iter().filter_map(|record| record.key_text()).collect();
        assert_eq!(keys, ["before", "after", "later"]);
        // Nothing that was there says any more that it is published, and what came later does.
        let walpost = Walpost::start(&configuration);
        let unproven = "SELECT string_agg(aggregate_id, ', ' ORDER BY seq) FROM walpost.outbox o, walpost.progress p
                        WHERE NOT walpost.is_published(o.txid, o.tableoid, p)";
        eventually(WITHIN, "what came later is proven", || {
            (session.value(unproven).as_deref() == Some("before, in the gap")).then_some(())
        });
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

/// Rows that do not tell their transaction, and that nothing marks.
#[test]
fn without_a_proof_recovery_says_what_it_cannot_tell_and_the_gap_can_be_accepted() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    database.sql("ALTER TABLE walpost.outbox DROP COLUMN txid");
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("order"), 1, &[]);
    let configuration = outbox.configuration(kafka, &format!("{SOON}on_slot_loss = 'recover'"));
    let (slot, session) = (outbox.slot(), database.session());
    let mut writer = outbox.writer();
    let walpost = Walpost::start(&configuration);
    walpost.streams(&outbox, WITHIN);
    writer.one("order", "before");
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    session.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
    writer.one("order", "in the gap");
    let walpost = Walpost::start(&configuration);
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    for words in [
        "events committed between 0/",
        "on_slot_loss = \"recover\" cannot tell which rows to send: walpost.outbox has no column with the id of the transaction",
        "--accept-gap then goes on with a new slot",
    ] {
        assert!(walpost.log().contains(words), "{words} is not in {}", walpost.log());
    }
    let left = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{slot}'");
    assert_eq!(session.get::<u32>(&left), 0, "nothing is made");
    let walpost = Walpost::start_with(&configuration, &["--accept-gap"], &[]);
    walpost.streams(&outbox, WITHIN);
    writer.one("order", "after");
    outbox.drained(WITHIN);
    let records = kafka.read(&outbox.topic("order"), 2, WITHIN);
    assert_eq!(records.iter().filter_map(|record| record.key_text()).collect::<Vec<_>>(), ["before", "after"]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// What a clean stop left as the last word is not the new slot's.
#[test]
fn a_slot_that_was_made_anew_after_a_clean_stop_is_known_again_after_a_kill() {
    for arguments in [&[][..], &["--accept-gap"]] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::proven(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("order"), 1, &[]);
        let on_slot_loss = if arguments.is_empty() { "recover" } else { "halt" };
        // What is written down stays behind what is confirmed.
        let more = format!("progress_interval = '1h'\non_slot_loss = '{on_slot_loss}'");
        let configuration = outbox.configuration(kafka, &more);
        let mut writer = outbox.writer();
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        writer.one("order", "before");
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
        database.sql(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));

        let walpost = Walpost::start_with(&configuration, arguments, &[]);
        walpost.streams(&outbox, WITHIN);
        writer.one("order", "after");
        outbox.drained(WITHIN);
        walpost.kill();
        eventually(WITHIN, "the slot is free", || outbox.walsender().is_none().then_some(()));
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        assert_eq!(walpost.metric("walpost_slot_losses_total"), Some(0.0), "{}", walpost.log());
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

/// Something takes the slot away whenever it is made.
#[test]
fn a_slot_that_is_lost_again_and_again_is_not_made_anew_without_end() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("order"), 1, &[]);
    let (slot, session) = (outbox.slot(), database.session());
    let walpost = Walpost::start(&outbox.configuration(kafka, SOON));
    eventually(WITHIN, "it gives up", || {
        if let Some(walsender) = outbox.walsender() {
            session.run(&format!("SELECT pg_terminate_backend({walsender})"));
            session.try_run(&format!("SELECT pg_drop_replication_slot('{slot}')")).ok();
        }
        (!walpost.is_running()).then_some(())
    });
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    assert!(walpost.log().contains("It was made anew 3 times within the hour"), "{}", walpost.log());
}

#[test]
fn kills_around_the_loss_of_a_slot_in_mid_drain_lose_nothing() {
    let server = Postgres::start(MAIN, &SMALL);
    let database = server.database();
    let outbox = Outbox::proven(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = outbox.configuration(kafka, SOON);
    let mut writer = outbox.writer();
    let rounds = if long() { 20 } else { 4 };
    for round in 0..rounds {
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        let before = outbox.confirmed();
        writer.bulk(Bulk { transactions: 200, rows: 50, aggregates: 17, padding: 50 });
        eventually(WITHIN, "it drains", || (outbox.confirmed() > before).then_some(()));
        walpost.kill();
        outgrow(&outbox);
        writer.bulk(Bulk { transactions: 20, rows: 50, aggregates: 17, padding: 50 });
        // From before the new slot is there to after the last row is read.
        let walpost = Walpost::start(&configuration);
        eventually(WITHIN, "it tells of the loss", || walpost.log().contains(" is lost: ").then_some(()));
        let until = Instant::now() + Duration::from_millis(40 * (round % 8));
        eventually(WITHIN, "its moment", || (Instant::now() >= until).then_some(()));
        walpost.kill();
    }
    let walpost = Walpost::start(&configuration);
    let report = outbox.recovered(kafka, "bulk", WITHIN);
    println!("{} events, {rounds} rounds: {report}", outbox.committed().len());
    report.assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_slot_that_is_retired_while_walpost_is_away_names_the_setting() {
    let server = Postgres::start(18, &["idle_replication_slot_timeout=1s"]);
    let database = server.database();
    let outbox = Outbox::proven(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, SOON));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    let few = Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 0 };
    writer.bulk(few);
    proven(&outbox);
    assert_eq!(walpost.terminate(WITHIN), 0);
    writer.bulk(few);
    let (slot, session) = (outbox.slot(), database.session());
    eventually(WITHIN, "the slot is retired", || {
        session.run("CHECKPOINT");
        let reason = format!("SELECT max(invalidation_reason) FROM pg_replication_slots WHERE slot_name = '{slot}'");
        (session.value(&reason).as_deref() == Some("idle_timeout")).then_some(())
    });
    let walpost = Walpost::start(&outbox.configuration(kafka, &format!("{SOON}on_slot_loss = 'halt'")));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let says = format!(
        "replication slot {slot} is lost: PostgreSQL gave it up (idle_timeout: nobody used it for as long as \
         idle_replication_slot_timeout allows)"
    );
    assert!(walpost.log().contains(&says), "{}", walpost.log());
    assert!(walpost.log().contains("(100 rows of the table are not proven published)"), "{}", walpost.log());
    let walpost = Walpost::start(&outbox.configuration(kafka, SOON));
    outbox.recovered(kafka, "bulk", WITHIN).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}
