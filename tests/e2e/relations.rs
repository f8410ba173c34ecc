//! The table changes while it is streamed: the relation message says what a row is, at its own place in the stream.

use crate::support::{
    eventually,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    records::Record,
    streamed::{WITHIN, all, halted, quick, streamed},
    walpost::Walpost,
};

fn values(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.value_text().unwrap_or("NULL")).collect()
}

/// Inserts an event whose payload is this SQL, without an event type.
fn insert(payload: &str) -> String {
    format!("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, payload) VALUES ('t', 'k', {payload});")
}

#[test]
fn a_change_takes_effect_at_its_own_place_even_inside_a_transaction() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER event_type SET DEFAULT 'happened'");
    session.run(&insert("'1'"));
    // Half of it is read live, half from the log after the changes.
    let walpost = Walpost::start(&quick(&outbox, ""));
    let walsender = walpost.streams(&outbox, WITHIN);
    outbox.drained(WITHIN);
    session.run(&format!(
        "BEGIN; {} ALTER TABLE walpost.outbox ADD traceparent text DEFAULT 'trace'; {}
         ALTER TABLE walpost.outbox DROP event_type; {}
         ALTER TABLE walpost.outbox ADD event_type int DEFAULT 5; {} COMMIT",
        insert("'2'"),
        insert("'3'"),
        insert("'4'"),
        insert("'5'")
    ));
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender));
    assert_eq!(walpost.terminate(WITHIN), 0);
    session.run(&insert("'6'"));
    session.run("ALTER TABLE walpost.outbox DROP traceparent, ALTER payload TYPE bytea USING NULL");
    session.run(&insert(r"'\x37'"));
    session.run("ALTER TABLE walpost.outbox ALTER payload TYPE text USING NULL");
    session.run("ALTER TABLE walpost.outbox RENAME event_type TO kind");
    session.run(&insert(r"'\x38'"));
    let records = streamed(&outbox, "", &[&outbox.topic("t")]);
    assert_eq!(values(&records), ["1", "2", "3", "4", "5", "6", "7", r"\x38"]);
    let headers = |name| records.iter().map(|record| record.header(name).unwrap_or("-")).collect::<Vec<_>>();
    assert_eq!(headers("event_type"), ["happened", "happened", "happened", "-", "5", "5", "5", "-"]);
    assert_eq!(headers("traceparent"), ["-", "-", "trace", "trace", "trace", "trace", "-", "-"]);
}

#[test]
fn a_column_dropped_and_made_anew_among_others_moves_no_value() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run(
        "CREATE TABLE eight (id int PRIMARY KEY, event_type text, aggregate_type text, aggregate_id text, payload text,
           idempotency_key text, traceparent text, destination text);
         ALTER PUBLICATION walpost ADD TABLE eight;
         INSERT INTO eight VALUES (1, 'two', 't', 'four', 'five', 'six', 'seven', NULL);
         ALTER TABLE eight DROP event_type, ADD event_type date;
         INSERT INTO eight VALUES (2, 't', 'four', 'five', 'six', 'seven', NULL, '2026-01-31')",
    );
    let records = streamed(&outbox, "table = \"eight\"\n", &[&outbox.topic("t")]);
    assert_eq!(records.len(), 2);
    for (record, event_type) in records.iter().zip(["two", "2026-01-31"]) {
        assert_eq!((record.key_text(), record.value_text()), (Some("four"), Some("five")));
        let headers = ["event_type", "idempotency_key", "traceparent"].map(|name| record.header(name));
        assert_eq!(headers, [Some(event_type), Some("six"), Some("seven")]);
    }
}

#[test]
fn a_table_changed_before_its_first_row_is_read_as_it_is_then() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.streams(&outbox, WITHIN);
    session.run(
        "ALTER TABLE walpost.outbox ADD traceparent text, ALTER aggregate_id TYPE int USING NULL;
         INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, traceparent) VALUES ('t', 7, 'e', 'trace')",
    );
    outbox.drained(WITHIN);
    // A column that cannot be done without is missed by name, and only when a row comes.
    session.run("ALTER TABLE walpost.outbox RENAME payload TO body");
    outbox.drained(WITHIN);
    assert!(walpost.is_running());
    session.run("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type) VALUES ('t', 8, 'e')");
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let missing = "the outbox walpost.outbox has no column \"payload\", which payload needs (it has: id, seq, ";
    assert!(walpost.log().contains(missing), "{}", walpost.log());
    let records = streamed(&outbox, "[columns]\npayload = \"body\"\n", &[&outbox.topic("t")]);
    let keys: Vec<_> = records.iter().map(|r| (r.key_text(), r.header("traceparent"))).collect();
    assert_eq!(keys, [(Some("7"), Some("trace")), (Some("8"), None)]);
}

#[test]
fn truncating_is_no_event_and_stops_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run(
        "ALTER TABLE walpost.outbox ALTER event_type SET DEFAULT 'e';
         CREATE TABLE beside (n int PRIMARY KEY);
         ALTER PUBLICATION walpost ADD TABLE beside;
         ALTER PUBLICATION walpost SET (publish = 'insert, update, delete, truncate')",
    );
    session.run(&insert("'1'"));
    let walpost = Walpost::start(&quick(&outbox, ""));
    let walsender = walpost.streams(&outbox, WITHIN);
    for round in ["'2'", "'3'"] {
        session.run("TRUNCATE walpost.outbox");
        session.run("TRUNCATE beside, walpost.outbox");
        session.run("TRUNCATE beside");
        session.run(&insert(round));
    }
    session.run("UPDATE walpost.outbox SET payload = '0'; DELETE FROM walpost.outbox");
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender));
    assert_eq!(walpost.terminate(WITHIN), 0);
    for change in ["Truncate", "Update", "Delete"] {
        let told =
            walpost.log().lines().filter(|line| line.contains("walpost.outbox") && line.contains(change)).count();
        assert_eq!(told, 1, "{change} is told of once\n{}", walpost.log());
    }
    session.run("TRUNCATE walpost.outbox");
    session.run(&insert("'4'"));
    let topic = outbox.topic("t");
    assert_eq!(values(&streamed(&outbox, "", &[&topic])), ["1", "2", "3", "4"]);

    // Who wants to know is told by a halt.
    for change in ["UPDATE walpost.outbox SET payload = '0'", "TRUNCATE walpost.outbox"] {
        session.run(change);
        let log = halted(&outbox, "on_update = \"halt\"\n");
        assert!(log.contains("a row of outbox walpost.outbox was changed"), "{log}");
        assert!(log.contains("ALTER PUBLICATION"), "{log}");
        assert_eq!(values(&streamed(&outbox, "", &[&topic])).len(), 4);
    }
}

#[test]
fn a_log_only_table_without_a_key_still_gives_each_event_once() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run(
        "ALTER TABLE walpost.outbox DROP CONSTRAINT outbox_pkey, ALTER event_type SET DEFAULT 'e';
         CREATE TABLE app (n int)",
    );
    session.run(&format!("BEGIN; {} DELETE FROM walpost.outbox; COMMIT", insert("'1'")));
    let changed = "UPDATE walpost.outbox SET payload = '0'; DELETE FROM walpost.outbox";
    session.run(&format!("BEGIN; {} {changed}; COMMIT", insert("'2'")));
    session.run(&format!("BEGIN; {} ROLLBACK", insert("'0'")));
    session.run("INSERT INTO app VALUES (1); UPDATE app SET n = 2; DELETE FROM app");
    session.run(&insert("'3'"));
    session.run(changed);
    assert_eq!(session.get::<u32>("SELECT count(*) FROM walpost.outbox"), 0);
    let records = streamed(&outbox, "", &[&outbox.topic("t")]);
    assert_eq!(values(&records), ["1", "2", "3"]);
}

#[test]
fn a_table_swapped_by_renaming_is_never_lost_in_silence() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER event_type SET DEFAULT 'e'");
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.streams(&outbox, WITHIN);
    session.run(&insert("'1'"));
    session.run(
        "CREATE TABLE walpost.fresh (LIKE walpost.outbox INCLUDING ALL);
         BEGIN;
         ALTER TABLE walpost.outbox RENAME TO aside;
         ALTER TABLE walpost.fresh RENAME TO outbox;
         COMMIT",
    );
    session.run(&insert("'-1'"));
    session.run(&insert("'-2'").replace("walpost.outbox", "walpost.aside"));
    eventually(WITHIN, "walpost tells of both tables", || {
        let log = walpost.log();
        let told = log.contains("inserts of outbox walpost.outbox are not in publication walpost")
            && log.contains("ALTER PUBLICATION walpost ADD TABLE walpost.outbox")
            && log.lines().any(|line| line.contains("WARN") && line.contains("walpost.aside"));
        told.then_some(())
    });
    session.run("ALTER PUBLICATION walpost ADD TABLE walpost.outbox");
    session.run(&insert("'2'"));
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    assert_eq!(values(&all(&[&outbox.topic("t")])), ["1", "2"]);
}
