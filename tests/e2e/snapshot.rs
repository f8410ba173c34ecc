//! Rows that are older than the slot are sent first, then the stream: none is missing, none comes twice, whatever was
//! going on when the slot was made and whatever ends the reading of them.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::letters,
    long,
    outbox::{Bulk, Outbox},
    postgres::{Database, MAIN, Postgres, VERSIONS},
    proof::pruned,
    records::{Isolation, Record},
    scratch,
    session::Session,
    verify::{all_arrived, verify},
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(120);

/// An outbox whose slot nobody has made yet, and its topics.
fn without_slot<'a>(database: &'a Database<'a>, topics: &[&str], partitions: i32) -> (Outbox<'a>, &'static Kafka) {
    let (outbox, kafka) = (Outbox::create(database), Kafka::shared());
    topics.iter().for_each(|name| kafka.create_topic(&outbox.topic(name), partitions, &[]));
    let session = database.session();
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    session.run(include_str!("../../sql/progress.sql"));
    session.run(include_str!("../../sql/dead_letter.sql"));
    (outbox, kafka)
}

const ROWS: Bulk = Bulk { transactions: 100, rows: 100, aggregates: 17, padding: 20 };

fn initial(outbox: &Outbox<'_>, kafka: &Kafka, more: &str) -> String {
    outbox.configuration(kafka, &format!("snapshot = 'initial'\n{more}"))
}

/// Few rows at a time, so that there is time to do something in the middle of them.
const SLOW: &str = "in_flight_records = 100\nkafka.'linger.ms' = 20\n";

fn reading(outbox: &Outbox<'_>, what: &str) -> Option<String> {
    let rows = outbox
        .database
        .session()
        .rows(&format!("SELECT ({what})::text FROM walpost.progress WHERE slot = '{}'", outbox.slot()));
    rows.into_iter().next()?.remove(0)
}

/// In the place of the outbox one that is partitioned by day, whose rows go to several partitions in turn.
fn by_day(database: &Database<'_>) {
    database.sql("DROP TABLE walpost.outbox");
    database.sql(include_str!("../../sql/outbox_partitioned.sql"));
    database.sql(
        "ALTER PUBLICATION walpost ADD TABLE walpost.outbox;
         ALTER PUBLICATION walpost SET (publish_via_partition_root = true);
         SELECT walpost.make_partitions((now() at time zone 'UTC')::date - 4, 5);
         ALTER TABLE walpost.outbox ALTER occurred_at SET DEFAULT now() - random() * interval '4 days'",
    );
}

/// The snapshot is over, and that is noted.
fn over(outbox: &Outbox<'_>) {
    let is_over = "reading IS NULL AND started_sent AND published IS NOT NULL";
    eventually(WITHIN, "the snapshot is over", || (reading(outbox, is_over)? == "true").then_some(()));
}

/// In the middle of the rows, with a place to go on from.
fn in_the_middle(outbox: &Outbox<'_>, rows: u32) {
    let ordinal = "reading_key->>'ordinal'";
    eventually(WITHIN, "the middle of the snapshot", || {
        (reading(outbox, ordinal)?.parse::<u32>().expect("a number") >= rows).then_some(())
    });
}

fn slots(session: &Session, outbox: &Outbox<'_>) -> u32 {
    session.get(&format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}'", outbox.slot()))
}

/// Sessions of walpost in the database.
fn sessions(session: &Session, condition: &str) -> u32 {
    session.get(&format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'walpost' \
         AND {condition}"
    ))
}

/// Ends threads of a test however it ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn transactions_open_across_the_start_arrive_once_from_the_table_or_from_the_log() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["bulk", "order"], 3);
        outbox.writer().bulk(Bulk { transactions: 20, rows: 100, aggregates: 7, padding: 50 });
        let mut open = BTreeMap::new();
        for n in 0..3 {
            let mut writer = outbox.writer();
            writer.begin();
            writer.event("order", &format!("open-{n}"));
            open.insert(writer.session.get::<u32>("SELECT pg_backend_pid()"), writer);
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = StopAtEnd(&stop);
            let busy: Vec<_> = (0..2)
                .map(|n| {
                    let (outbox, stop) = (&outbox, &stop);
                    scope.spawn(move || {
                        let mut writer = outbox.writer();
                        while !stop.load(Ordering::Relaxed) {
                            writer.one("order", &format!("busy-{n}"));
                        }
                    })
                })
                .collect();
            let walpost = Walpost::start(&initial(&outbox, kafka, ""));
            while !open.is_empty() {
                let pid = eventually(WITHIN, "the transaction that holds up the slot is named", || {
                    open.keys()
                        .copied()
                        .find(|pid| walpost.log().contains(&format!("the transaction of process {pid},")))
                });
                let mut writer = open.remove(&pid).expect("it is open");
                writer.event("order", "at the end");
                writer.commit();
            }
            over(&outbox);
            drop(end);
            busy.into_iter().for_each(|thread| thread.join().expect("the writer goes on"));
            let committed = outbox.committed();
            let topics = [outbox.topic("bulk"), outbox.topic("order")];
            let mut reader = kafka.reader(&topics.each_ref().map(String::as_str), Isolation::Committed, WITHIN);
            reader.until(WITHIN, "every event", |records| all_arrived(&committed, records));
            assert_eq!(walpost.terminate(WITHIN), 0);
            let records = reader.until_end(WITHIN);
            let report = verify(&committed, records);
            println!("{version}: {} events: {report}", committed.len());
            // Of "at the end" the order is that of the log or of the table, which is not the writers'.
            assert_eq!((report.missing.len(), report.duplicates, report.unexpected.len()), (0, 0, 0), "{report}");
            assert_eq!(report.altered, Vec::<String>::new());
            // Rows that are read are told by their position, which is no commit's.
            let commit = |record: &Record| u64::from_str_radix(&record.header("position")?[..16], 16).ok();
            let old = records.iter().filter_map(commit).filter(|commit| commit % 2 == 1).count();
            assert!(old >= 2_000 && old < committed.len(), "{old}");
        });
    }
}

#[test]
fn a_start_that_waits_for_a_transaction_says_so_and_leaves_nothing_when_it_is_stopped() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["order"], 1);
        let session = database.session();
        let mut writer = outbox.writer();
        writer.begin();
        writer.event("order", "o");
        let pid: u32 = writer.session.get("SELECT pg_backend_pid()");
        let walpost = Walpost::start(&initial(&outbox, kafka, ""));
        let waits = format!("waits for the transaction of process {pid},");
        walpost.says(&waits, WITHIN);
        let (code, status) = walpost.http("/status").expect("it answers");
        assert!(code == 200 && status.contains(r#""state":"preparing""#) && status.contains(&waits), "{status}");
        assert_eq!(walpost.terminate(WITHIN), 0);
        assert_eq!(slots(&session, &outbox), 0);
        assert_eq!(sessions(&session, "true"), 0, "no session is left");
        writer.commit();
        let walpost = Walpost::start(&initial(&outbox, kafka, ""));
        over(&outbox);
        writer.one("order", "o");
        outbox.delivered(kafka, &["order"], WITHIN).assert_exactly_once();
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_crash_before_the_beginning_of_the_slot_is_known_makes_it_anew() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["order"], 1);
        let session = database.session();
        let configuration = initial(&outbox, kafka, "");
        let mut writer = outbox.writer();
        // While the slot is being made, which the server goes on with for nobody.
        writer.begin();
        writer.event("order", "o");
        let walpost = Walpost::start(&configuration);
        walpost.says("waits for", WITHIN);
        walpost.kill();
        let walpost = Walpost::start(&configuration);
        walpost.says("standby: slot", WITHIN);
        writer.commit();
        over(&outbox);
        assert_eq!(walpost.terminate(WITHIN), 0);
        // When it is made, and nobody knows where it begins.
        session.run(&format!("SELECT pg_drop_replication_slot('{}'); DELETE FROM walpost.progress", outbox.slot()));
        session.run("TRUNCATE walpost.outbox");
        writer.begin();
        writer.event("order", "o");
        let walpost = Walpost::start(&configuration);
        walpost.says("waits for", WITHIN);
        let lock = database.session();
        lock.run("BEGIN; LOCK TABLE walpost.progress IN EXCLUSIVE MODE");
        writer.commit();
        walpost.says("is made, and begins at", WITHIN);
        walpost.kill();
        lock.run("ROLLBACK");
        assert_eq!(reading(&outbox, "reading || coalesce(reading_visible::text, '')").as_deref(), Some("initial"));
        writer.one("order", "o");
        let walpost = Walpost::start(&configuration);
        let anew = "has never streamed, and is made anew";
        walpost.says(anew, WITHIN);
        over(&outbox);
        outbox.delivered(kafka, &["order"], WITHIN).assert_exactly_once();
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_crash_in_the_middle_goes_on_behind_the_last_row_that_is_noted() {
    let rows = if long() { 200_000 } else { 20_000 };
    for (version, partitioned) in [(MAIN, false), (14, false), (18, true)] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
        if partitioned {
            by_day(&database);
        }
        let mut writer = outbox.writer();
        writer.bulk(Bulk { transactions: rows / 100, rows: 100, aggregates: 17, padding: 20 });
        let configuration = initial(&outbox, kafka, SLOW);
        let walpost = Walpost::start(&configuration);
        in_the_middle(&outbox, rows / 20);
        walpost.kill();
        // Sent or not, no row is proven published before all are.
        assert_eq!(reading(&outbox, "published IS NULL AND candidate IS NULL").as_deref(), Some("true"));
        assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 0);
        let at: u32 = reading(&outbox, "reading_key->>'ordinal'").expect("it is noted").parse().expect("a number");
        // What is inserted meanwhile comes from the log, once.
        writer.bulk(Bulk { transactions: 10, rows: 100, aggregates: 17, padding: 20 });
        let walpost = Walpost::start(&configuration);
        let goes_on = format!("going on with rows that are older than the slot, after {} of them", at + 1);
        walpost.says(&goes_on, WITHIN);
        in_the_middle(&outbox, rows / 10);
        assert_eq!(walpost.terminate(WITHIN), 0, "a clean stop\n{}", walpost.log());
        let walpost = Walpost::start(&outbox.configuration(kafka, "snapshot = 'never'"));
        over(&outbox);
        let report = outbox.delivered(kafka, &["bulk"], WITHIN);
        println!("{version}: {} events: {report}", outbox.committed().len());
        report.assert_complete();
        // What was sent since the last note, and nothing after a clean stop.
        assert!((1..=rows as usize / 4).contains(&report.duplicates), "{report}");
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn rows_that_are_deleted_between_two_sessions_are_no_reason_to_miss_others() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    let mut writer = outbox.writer();
    writer.bulk(ROWS);
    let configuration = initial(&outbox, kafka, SLOW);
    let walpost = Walpost::start(&configuration);
    in_the_middle(&outbox, 500);
    walpost.kill();
    let session = database.session();
    // The row that is noted is among them.
    session.run(
        "DELETE FROM walpost.outbox WHERE seq % 3 = 0
         OR seq = (SELECT (reading_key->'row'->>0)::bigint FROM walpost.progress)",
    );
    let left: Vec<String> =
        session.rows("SELECT id FROM walpost.outbox").into_iter().filter_map(|mut row| row.remove(0)).collect();
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Uncommitted, WITHIN);
    let records = reader.until_end(WITHIN);
    let sent: HashSet<_> = records.iter().filter_map(|record| record.header("id")).collect();
    assert!(left.iter().all(|id| sent.contains(id.as_str())));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Which of its rows the log will bring nobody can tell, so another slot is made, and all of them come again.
#[test]
fn a_table_without_txid_is_read_from_its_first_row_again_with_a_new_slot() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    database.sql("ALTER TABLE walpost.outbox DROP COLUMN txid");
    let mut writer = outbox.writer();
    let bulk = Bulk { transactions: 200, rows: 100, aggregates: 17, padding: 20 };
    writer.bulk(bulk);
    let configuration = initial(&outbox, kafka, SLOW);
    let walpost = Walpost::start(&configuration);
    in_the_middle(&outbox, 500);
    walpost.kill();
    let began = reading(&outbox, "reading_at");
    writer.bulk(bulk);
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    let anew = "have not a column with the id of its transaction: the reading of the table begins anew";
    assert!(walpost.log().contains(anew) && !walpost.log().contains("going on with"), "{}", walpost.log());
    let made = format!("replication slot {} is made, and begins at", outbox.slot());
    assert!(walpost.log().contains(&made) && began.is_some_and(|began| !walpost.log().contains(&began)));
    writer.one("bulk", "later");
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    assert!(report.missing.is_empty() && report.reordered.is_empty() && report.unexpected.is_empty(), "{report}");
    // What the first had sent, and nothing of the log. The slot is another one, and so are the positions.
    assert!((500..20_000).contains(&report.duplicates) && report.altered.len() == report.duplicates, "{report}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Someone made it, and may know why.
#[test]
fn a_slot_that_is_there_is_only_streamed_from() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["order"], 1);
    let session = database.session();
    session.run("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type) VALUES ('order', 'old', 'e')");
    session.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", outbox.slot()));
    outbox.writer().one("order", "new");
    let walpost = Walpost::start(&initial(&outbox, kafka, ""));
    outbox.drained(WITHIN);
    outbox.delivered(kafka, &["order"], WITHIN).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_crash_before_the_end_is_noted_repeats_rows_and_loses_none() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 100, aggregates: 17, padding: 20 });
    let configuration = initial(&outbox, kafka, "");
    // It waits for this one, then for the lock.
    let other = database.session();
    other.run("BEGIN; SELECT pg_current_xact_id()");
    let walpost = Walpost::start(&configuration);
    walpost.says("waits for", WITHIN);
    other.run("ROLLBACK");
    eventually(WITHIN, "it is noted", || reading(&outbox, "reading_visible"));
    other.run("BEGIN; LOCK TABLE walpost.progress IN EXCLUSIVE MODE");
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Uncommitted, WITHIN);
    let committed = outbox.committed();
    reader.until(WITHIN, "all rows", |records| all_arrived(&committed, records));
    writer.one("bulk", "later");
    // The stream waits for the note, and nothing keeps the server's rows.
    assert_eq!(sessions(&other, "state LIKE 'idle in transaction%'"), 0);
    walpost.kill();
    other.run("ROLLBACK");
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    report.assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_row_that_is_read_and_that_kafka_does_not_have_is_not_noted_as_sent() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &[], 1);
    let topic = outbox.topic("bulk");
    kafka.create_blockable_topic(&topic, 1);
    kafka.block(&topic);
    // A topic that is blocked from the start takes no second record.
    outbox.writer().one("bulk", "k");
    let configuration = initial(&outbox, kafka, "");
    let walpost = Walpost::start(&configuration);
    eventually(WITHIN, "all is read", || (walpost.metric("walpost_reading_rows")? == 1.0).then_some(()));
    let session = database.session();
    eventually(WITHIN, "the session that read it is closed", || {
        (sessions(&session, "state LIKE 'idle in transaction%'") == 0).then_some(())
    });
    // It would come with the next turn of the session.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(reading(&outbox, "reading = 'initial' AND published IS NULL").as_deref(), Some("true"));
    let status = ["status", "--database-url", &database.url(), "--slot", outbox.slot(), "--http-listen", "off"];
    let status = crate::support::walpost::walpost(&status).stdout;
    assert!(status.contains("rows that are older than the slot, since 2"), "{status}");
    walpost.kill();
    kafka.unblock(&topic);
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn exactly_once_doubles_nothing_however_often_it_is_killed() {
    let kills = if long() { 20 } else { 4 };
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    let mut writer = outbox.writer();
    writer.bulk(ROWS);
    let configuration = initial(&outbox, kafka, &(outbox.exactly_once() + SLOW));
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Committed, WITHIN);
    for kill in 1..=kills {
        let walpost = Walpost::start(&configuration);
        let enough = kill * 8_000 / kills;
        reader.until(WITHIN, "more rows", |records| records.len() >= enough);
        walpost.kill();
        writer.one("bulk", "meanwhile");
    }
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    let report = outbox.committed_delivered(kafka, "bulk", WITHIN);
    println!("{} events, {kills} kills: {report}", outbox.committed().len());
    report.assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_standby_waits_during_the_snapshot_and_goes_on_with_it() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    outbox.writer().bulk(ROWS);
    let configuration = initial(&outbox, kafka, SLOW);
    let first = Walpost::start(&configuration);
    in_the_middle(&outbox, 100);
    let second = Walpost::start(&configuration);
    second.says("standby: slot", WITHIN);
    assert!(first.metric("walpost_reading_rows").is_some_and(|rows| rows >= 100.0));
    first.kill();
    over(&outbox);
    assert!(second.log().contains("going on with rows"), "{}", second.log());
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
    assert_eq!(second.metric("walpost_reading_rows"), None);
    assert_eq!(second.terminate(WITHIN), 0);
}

/// Timeouts of the database, a reading session that somebody ends, and none of ours left idle in a transaction.
#[test]
fn the_session_that_reads_outlives_timeouts_and_does_not_outlive_its_rows() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
        let more = if version >= 17 { &["transaction_timeout"][..] } else { &[] };
        let timeouts = ["idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"];
        for timeout in timeouts.iter().chain(more) {
            database.sql(&format!("ALTER DATABASE {} SET {timeout} = '1s'", database.name));
        }
        // Nothing is taken of the stream meanwhile, and the server hears of us all the same.
        database.sql(&format!("ALTER DATABASE {} SET wal_sender_timeout = '2s'", database.name));
        let mut writer = outbox.writer();
        writer.session.run("SET statement_timeout = 0");
        writer.bulk(Bulk { transactions: 60, rows: 100, aggregates: 17, padding: 2_000 });
        let slow = "in_flight_records = 100\nkafka.'linger.ms' = 100\n";
        let walpost = Walpost::start(&initial(&outbox, kafka, slow));
        let session = database.session();
        in_the_middle(&outbox, 1_000);
        assert!(!walpost.log().contains("trying again"), "{}", walpost.log());
        let ended: u32 = session.get(
            "SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND query ILIKE 'copy (select%') AS t",
        );
        assert_eq!(ended, 1, "one session reads");
        over(&outbox);
        assert!(walpost.log().contains("going on with rows"), "{}", walpost.log());
        // A note of the proof may be under way.
        eventually(WITHIN, "none of ours is left in a transaction", || {
            let idle = "backend_type = 'client backend' AND state LIKE 'idle in transaction%'";
            (sessions(&session, idle) == 0).then_some(())
        });
        writer.one("bulk", "later");
        outbox.delivered(kafka, &["bulk"], WITHIN).assert_complete();
        assert!(walpost.log().matches("trying again").count() <= 1, "nothing else ended: {}", walpost.log());
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn memory_does_not_grow_with_the_table() {
    let rows = if long() { 2_000 } else { 1_000 };
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    outbox.writer().bulk(Bulk { transactions: 100, rows, aggregates: 17, padding: 1_000 });
    let walpost = Walpost::start(&initial(&outbox, kafka, ""));
    over(&outbox);
    let peak = walpost.peak_rss_mib();
    println!("{} rows: {peak} MiB", rows * 100);
    assert!(peak < 64.0, "{peak} MiB");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// The stream would send what the policy hides.
#[test]
fn row_security_that_hides_rows_is_refused_before_anything_is_made() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["t"], 1);
        let session = database.session();
        let role = format!("{}_stream", outbox.slot());
        session.run(&format!(
            "CREATE ROLE {role} LOGIN REPLICATION;
             GRANT USAGE ON SCHEMA walpost TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA walpost TO {role};
             INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type) VALUES ('t', 'a', 'e'), ('t', 'b', 'e');
             ALTER TABLE walpost.outbox ENABLE ROW LEVEL SECURITY;
             CREATE POLICY half ON walpost.outbox USING (aggregate_id = 'a')"
        ));
        let url = database.url().replace("postgres@", &format!("{role}@"));
        let configuration = initial(&outbox, kafka, &format!("database_url = '{url}'"));
        let walpost = Walpost::start(&configuration);
        assert_eq!(walpost.wait_exit(WITHIN), 1);
        let named = format!("ALTER ROLE {role} BYPASSRLS");
        assert!(walpost.log().contains(&named), "{}", walpost.log());
        assert_eq!(slots(&session, &outbox), 0);
        session.run(&named);
        let walpost = Walpost::start(&configuration);
        assert_eq!(kafka.read(&outbox.topic("t"), 2, WITHIN).len(), 2);
        assert_eq!(walpost.terminate(WITHIN), 0);
        session.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    }
}

#[test]
fn without_a_table_that_remembers_it_no_snapshot_is_begun() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &[], 1);
    database.sql("DROP FUNCTION walpost.is_published; DROP FUNCTION walpost.is_streamed; DROP TABLE walpost.progress");
    let walpost = Walpost::start(&initial(&outbox, kafka, ""));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    assert!(walpost.log().contains("needs table walpost.progress"), "{}", walpost.log());
    assert_eq!(slots(&database.session(), &outbox), 0);
}

/// Rows of several tables, one of them partitioned, one filtered, one of foreign shape; and rows that make no record.
#[test]
fn partitions_filters_and_poison_are_as_in_the_stream() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["plain", "days", "shard"], 1);
    let session = database.session();
    session.run(
        "CREATE TABLE days (id int, aggregateid text, aggregatetype text DEFAULT 'days', type text DEFAULT 'e',
           payload text, day int, txid xid8 DEFAULT pg_current_xact_id(), PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
         CREATE TABLE days_0 PARTITION OF days FOR VALUES FROM (0) TO (10);
         CREATE TABLE days_10 PARTITION OF days FOR VALUES FROM (10) TO (20);
         CREATE TABLE shard (id int PRIMARY KEY, aggregateid text, aggregatetype text DEFAULT 'shard', type text,
           payload text, at timestamptz, shard int);
         CREATE TABLE shard_child () INHERITS (shard);
         ALTER PUBLICATION walpost SET TABLE walpost.outbox, days, shard WHERE (shard = 1 OR id IS NULL);
         ALTER TABLE shard REPLICA IDENTITY FULL;
         ALTER PUBLICATION walpost SET (publish = 'insert', publish_via_partition_root = true)",
    );
    let rows = |from: u32| {
        format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, destination)
               SELECT 'plain', 'k' || n % 2, 'e', to_jsonb(n), CASE WHEN n % 5 = 0 THEN 'no/topic' END
               FROM generate_series({from}, {from} + 9) n;
             INSERT INTO days (id, aggregateid, payload, day) SELECT n, 'k', 'p' || n, n % 20
               FROM generate_series({from}, {from} + 29) n;
             INSERT INTO shard (id, aggregateid, payload, at, shard)
               SELECT n, 'k', 'p' || n, CASE WHEN n % 3 > 0 THEN timestamptz '2020-01-01' - n * interval '1 day' END, n % 2
               FROM generate_series({from}, {from} + 19) n;
             INSERT INTO shard_child (id, aggregateid, shard) VALUES ({from} + 100000, 'child', 1);"
        )
    };
    session.run(&rows(100));
    let own = outbox.topic("${aggregate_type}");
    let configuration = initial(
        &outbox,
        kafka,
        &format!(
            "on_poison = 'dead_letter'\n[[outbox]]\ntable = 'walpost.outbox'\n\
             [[outbox]]\ntable = 'days'\npreset = 'debezium'\n\
             [[outbox]]\ntable = 'shard'\npreset = 'debezium'\norder_by = 'at'\nroute.topic = '{own}'\n"
        ),
    );
    let walpost = Walpost::start(&configuration);
    over(&outbox);
    session.run(&rows(200));
    for (table, is_a_guess) in [("walpost.outbox", false), ("public.days", true), ("public.shard", false)] {
        let note = format!("rows of {table} are read in the order of its primary key");
        assert_eq!(walpost.log().contains(&note), is_a_guess, "{table}: {}", walpost.log());
    }
    assert_eq!(kafka.read(&outbox.topic("plain"), 16, WITHIN).len(), 16);
    let values = |name: &str, count: usize| -> Vec<String> {
        let records = kafka.read(&outbox.topic(name), count, WITHIN);
        records.iter().map(|record| record.value_text().unwrap_or_default().to_owned()).collect()
    };
    // By primary key, there being no seq; then as committed.
    assert_eq!(values("days", 60), (100..130).chain(200..230).map(|n| format!("p{n}")).collect::<Vec<_>>());
    // By time, those without one last; the filter's rows only, and none of tables that inherit.
    let old = (100..120).filter(|n| n % 2 == 1);
    let (mut timed, untimed): (Vec<u32>, Vec<u32>) = old.partition(|n| n % 3 > 0);
    timed.reverse();
    let expected = timed.into_iter().chain(untimed).chain((200..220).filter(|n| n % 2 == 1));
    assert_eq!(values("shard", 20), expected.map(|n| format!("p{n}")).collect::<Vec<_>>());
    assert_eq!(letters(&outbox).len(), 4, "two of the table, two of the stream");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// The same values before and after the slot's beginning, in a database whose settings print them otherwise.
#[test]
fn rows_from_the_table_and_from_the_log_are_the_same_bytes() {
    let types = [
        ("int[]", "'{1,NULL,-3}'"),
        ("text[]", r#"'{{"a,b","c\"d"},{"e\\f",NULL},{"", "null"}}'::text[]"#),
        ("mood[]", "'{sad,\"so so\"}'"),
        ("small", "41"),
        ("small[]", "'{1,2}'"),
        ("pair", r#"ROW(1, E'x,"y"\n\\z')"#),
        ("pair[]", "ARRAY[ROW(1, 'a b'), ROW(NULL, '')]::pair[]"),
        ("bytea", r"'\x00ff5c0a27'"),
        ("bytea[]", r"ARRAY['\x00'::bytea, '\xff'::bytea]"),
        ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
        ("int4range", "'[1,5)'"),
        ("tstzrange", "'[2024-03-31 01:30:00+01,infinity)'"),
        ("int4multirange", "'{[1,3),[7,9)}'"),
        ("float8", "0.1::float8 + 0.2::float8"),
        ("float4", "'1e-30'"),
        ("numeric", "12345678901234567890.123456789000"),
        ("json", r#"E'{ "a" : 1,\n\t"b":"\\\\u00e9" }'"#),
        ("jsonb", r#"'{"z":[1.0, "ü\t"], "a":null}'"#),
        ("interval", "'1 year 2 mons -3 days 04:05:06.7'"),
        ("timestamptz", "'2024-07-01 12:00:00.123456+02'"),
        ("date", "'0044-03-15 BC'"),
        ("box[]", "'{(1,1),(0,0);(3,3),(2,2)}'"),
        ("money", "12.34"),
        ("bit varying", "B'10110'"),
        ("inet", "'10.1.2.3/8'"),
        ("tsvector", "'a fat cat''s \\\\ mat'::tsvector"),
        ("xml", "'<a>\n<b/></a>'"),
        ("text", r"E'tab\t new\n cr\r back\\slash \\N \\. \b\f\v é 漢字 😀 \u0085 ''quote'' \u2028'"),
        ("text", "''"),
        ("text", r"E'\\N'"),
        ("text", "NULL"),
        ("char(5)", "'ab'"),
        ("name", "'n'"),
        ("xid8", "'18446744073709551615'"),
        ("pg_lsn", "'16/B374D848'"),
    ];
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let (outbox, kafka) = without_slot(&database, &["twin"], 1);
        let name = &database.name;
        for (setting, value) in [
            ("datestyle", "SQL, DMY"),
            ("intervalstyle", "iso_8601"),
            ("bytea_output", "escape"),
            ("extra_float_digits", "0"),
            ("timezone", "Asia/Tokyo"),
        ] {
            database.sql(&format!("ALTER DATABASE {name} SET {setting} = '{value}'"));
        }
        let session = database.session();
        session.run(
            "CREATE TYPE mood AS ENUM ('sad', 'so so'); CREATE DOMAIN small AS int CHECK (VALUE < 100);
             CREATE TYPE pair AS (n int, t text)",
        );
        let mut outboxes = String::new();
        let mut insert = String::new();
        for (n, (kind, value)) in types.iter().enumerate() {
            // As the value, as the key, and as a header.
            session.run(&format!(
                "CREATE TABLE walpost.twin_{n} (id serial PRIMARY KEY, aggregate_type text DEFAULT 'twin', aggregate_id {kind},
                   event_type {kind}, payload {kind}, gone int, txid xid8 DEFAULT pg_current_xact_id());
                 ALTER TABLE walpost.twin_{n} DROP COLUMN gone;
                 ALTER PUBLICATION walpost ADD TABLE walpost.twin_{n}"
            ));
            outboxes += &format!("[[outbox]]\ntable = 'walpost.twin_{n}'\n");
            insert += &format!(
                "INSERT INTO walpost.twin_{n} (aggregate_id, event_type, payload) VALUES ({value}, {value}, {value});"
            );
        }
        session.run(&insert);
        let walpost = Walpost::start(&initial(&outbox, kafka, &outboxes));
        over(&outbox);
        session.run(&insert);
        let records = kafka.read(&outbox.topic("twin"), 2 * types.len(), WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
        for (n, (kind, value)) in types.iter().enumerate() {
            let (old, new) = (&records[n], &records[types.len() + n]);
            assert_eq!((&old.key, &old.value), (&new.key, &new.value), "{version}: {kind} {value}");
            // Twins are two rows, at two places.
            let alike = |record: &Record| {
                let own = |name: &str| matches!(name, "id" | "position");
                let headers =
                    record.headers.iter().map(|(name, value)| (name.clone(), value.clone().filter(|_| !own(name))));
                headers.collect::<Vec<_>>()
            };
            assert_eq!(alike(old), alike(new), "{version}: {kind} {value}");
            assert_ne!(old.header("position"), new.header("position"));
        }
    }
}

/// `walpost snapshot` with a configuration, to its end.
fn snapshot(configuration: &str) -> Finished {
    let file = scratch::folder("snapshot").join("walpost.toml");
    fs::write(&file, configuration).expect("the folder is ours");
    walpost(&["snapshot", "-c", file.to_str().expect("it is UTF-8")])
}

#[test]
fn the_command_makes_the_slot_sends_what_is_there_and_ends() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 100, aggregates: 7, padding: 20 });
    let configuration = outbox.configuration(kafka, "");
    let sent = snapshot(&configuration);
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(sent.stdout, format!("the rows that are older than slot {} are sent\n", outbox.slot()));
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    let again = snapshot(&configuration);
    assert!(again.code == 0 && again.stdout.contains("are sent already"), "{again:?}");
    // The slot is that of the stream that follows.
    writer.one("bulk", "later");
    let walpost = Walpost::start(&configuration);
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    let refused = snapshot(&configuration);
    assert!(refused.code == 0 && refused.stdout.contains("are sent already"), "{refused:?}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// A slot that has streamed without them; what is sent then says that it is older than all that was streamed.
#[test]
fn the_command_sends_rows_that_are_older_than_a_slot_that_streams_already() {
    for exactly_once in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let (outbox, kafka) = without_slot(&database, &["bulk"], 3);
        let mut writer = outbox.writer();
        writer.bulk(Bulk { transactions: 200, rows: 100, aggregates: 7, padding: 20 });
        let session = database.session();
        session.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", outbox.slot()));
        let more = if exactly_once { outbox.exactly_once() } else { String::new() };
        let more = format!("progress_interval = '100ms'\n{more}{SLOW}");
        let configuration = outbox.configuration(kafka, &more);
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        for n in 0..20 {
            writer.one("bulk", &format!("new-{}", n % 3));
        }
        let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Committed, WITHIN);
        reader.until(WITHIN, "the stream", |records| records.len() == 20);
        eventually(WITHIN, "the stream is proven", || reading(&outbox, "published"));
        let refused = snapshot(&configuration);
        assert!(refused.code == 1 && refused.stderr.contains("another process has slot"), "{refused:?}");
        assert_eq!(walpost.terminate(WITHIN), 0);
        // It is asked for, and a run is killed in the middle of it.
        session.run(
            "UPDATE walpost.progress SET reading = 'initial', reading_since = now(), reading_visible = started,
             reading_at = '0/8'",
        );
        let walpost = Walpost::start(&configuration);
        in_the_middle(&outbox, 500);
        walpost.kill();
        let sent = snapshot(&configuration);
        assert_eq!(sent.code, 0, "{sent:?}");
        writer.one("bulk", "new-0");
        let walpost = Walpost::start(&configuration);
        let committed = outbox.committed();
        let records = reader.until(WITHIN, "every event", |records| all_arrived(&committed, records));
        let old = |record: &&Record| record.header("position").is_some_and(|at| at.starts_with("0000000000000007-"));
        let olds = records.iter().filter(old).count();
        let report = verify(&committed, records);
        println!("exactly once {exactly_once}: {olds} old, {report}");
        assert!(report.missing.is_empty() && report.altered.is_empty() && report.unexpected.is_empty(), "{report}");
        assert!(olds >= 20_000 && (report.duplicates == 0 || !exactly_once), "{olds} old, {report}");
        assert_eq!(records.len() - olds, 21, "what is newer came by the log alone");
        assert_eq!(reading(&outbox, "published::text <> started::text AND started_sent").as_deref(), Some("true"));
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}
