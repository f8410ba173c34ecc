//! Rows are marked, or deleted, once their events are in Kafka, and before that is confirmed.

use crate::support::{
    eventually,
    kafka::Kafka,
    letters,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    proof::pruned,
    records::Record,
    streamed::{WITHIN, all, committed, halted, quick, streamed},
    walpost::{Walpost, walpost},
};

/// A table as the preset `destination` knows it.
fn destination<'a>(database: &'a Database<'a>) -> Outbox<'a> {
    let outbox = letters::with_letters(database);
    database.sql(
        "CREATE TABLE messages (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, aggregate_id text, destination text NOT NULL,
           headers jsonb, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz,
           attempts int NOT NULL DEFAULT 0);
         ALTER PUBLICATION walpost ADD TABLE messages",
    );
    outbox
}

/// A table as the preset `status` knows it.
fn status<'a>(database: &'a Database<'a>) -> Outbox<'a> {
    let outbox = letters::with_letters(database);
    database.sql(
        "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), event_type text NOT NULL, payload_json text NOT NULL,
           idempotency_key text UNIQUE, status text NOT NULL DEFAULT 'PENDING', retry_count int NOT NULL DEFAULT 0,
           last_error text, created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now());
         ALTER PUBLICATION walpost ADD TABLE events",
    );
    outbox
}

fn insert(outbox: &Outbox<'_>, count: u32) {
    let topic = outbox.topic("m");
    outbox.database.sql(&format!(
        "INSERT INTO messages (aggregate_id, destination, payload)
         SELECT 'k' || n % 3, '{topic}', jsonb_build_object('n', n) FROM generate_series(1, {count}) n"
    ));
}

fn count(outbox: &Outbox<'_>, condition: &str) -> u64 {
    outbox.database.session().get(&format!("SELECT count(*) FROM messages WHERE {condition}"))
}

const DESTINATION: &str =
    "table = 'messages'\npreset = 'destination'\nafter_publish = 'mark'\nroute.topic = '${destination}'\n";

/// The same for one of several outboxes.
const OUTBOX: &str = "preset = 'destination'\nafter_publish = 'mark'\nroute.topic = '${destination}'\n";

fn ids(records: &[Record]) -> Vec<&str> {
    records.iter().filter_map(|record| record.header("id")).collect()
}

#[test]
fn rows_are_marked_when_kafka_has_them_and_are_pruned_by_their_marks() {
    let database = Postgres::shared(MAIN).database();
    let outbox = destination(&database);
    insert(&outbox, 1000);
    let records = streamed(&outbox, DESTINATION, &[&outbox.topic("m")]);
    assert_eq!(records.len(), 1000, "and the marks send nothing");
    assert_eq!(count(&outbox, "published_at IS NOT NULL AND attempts = 1"), 1000);
    insert(&outbox, 1);
    let arguments = ["--table", "messages", "--preset", "destination", "--retention", "0s"];
    let refused = walpost(&[&["prune", "--database-url", &database.url()][..], &arguments].concat());
    assert!(refused.code == 1 && refused.stderr.contains("after_publish = \"mark\""), "{refused:?}");
    let report = pruned(&database, &[&arguments[..], &["--after-publish", "mark"]].concat());
    assert_eq!((&report["deleted"], &report["kept"]["unproven"]), (&1000.into(), &1.into()));
}

#[test]
fn rows_that_are_not_marked_are_recovered_when_the_slot_is_lost() {
    let database = Postgres::shared(MAIN).database();
    let outbox = destination(&database);
    database.sql(include_str!("../../sql/progress.sql"));
    insert(&outbox, 10);
    streamed(&outbox, DESTINATION, &[]);
    database.sql(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    insert(&outbox, 5);
    let records = streamed(&outbox, DESTINATION, &[&outbox.topic("m")]);
    let recovered = records.iter().filter(|record| record.header("recovered") == Some("true")).count();
    assert_eq!((records.len(), recovered, count(&outbox, "published_at IS NULL")), (15, 5, 0));
}

#[test]
fn rows_are_deleted_when_kafka_has_them() {
    let database = Postgres::shared(MAIN).database();
    let outbox = destination(&database);
    insert(&outbox, 100);
    let records = streamed(&outbox, &DESTINATION.replace("mark", "delete"), &[&outbox.topic("m")]);
    assert_eq!((records.len(), count(&outbox, "true")), (100, 0));
}

#[test]
fn a_status_says_what_became_of_an_event_and_changes_when_it_is_replayed() {
    let database = Postgres::shared(MAIN).database();
    let outbox = status(&database);
    let topic = outbox.topic("orders");
    let more = "table = 'events'\npreset = 'status'\nafter_publish = 'mark'\nkafka.'message.max.bytes' = 100000\n\
                columns.aggregate_id = 'event_type'\n"
        .to_owned()
        + &format!("route.topic = '{topic}'\n");
    let session = database.session();
    let event = |kind: &str, bytes: u32| -> String {
        session.get(&format!(
            "INSERT INTO events (event_type, payload_json) VALUES ('{kind}', repeat('x', {bytes})) RETURNING id"
        ))
    };
    let row = |id: &str| {
        session.rows(&format!("SELECT status, retry_count, last_error FROM events WHERE id = '{id}'")).concat()
    };
    let text = |value: &str| Some(value.to_owned());
    let (large, behind, small) = (event("a", 200_000), event("a", 1), event("b", 1));
    let run = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    assert_eq!(row(&small), [text("PUBLISHED"), text("0"), None]);
    let [status, tries, error] = &row(&large)[..] else { panic!("three columns") };
    assert_eq!((status, tries), (&text("DEAD_LETTER"), &text("1")));
    assert!(error.as_ref().is_some_and(|error| error.contains("limit 100000")), "{error:?}");
    let waits = text("waits behind an earlier event of its aggregate");
    assert_eq!(row(&behind), [text("DEAD_LETTER"), text("0"), waits]);
    assert_eq!(run.terminate(WITHIN), 0);
    let run = Walpost::start(&quick(&outbox, &more.replace("100000", "1000000")));
    letters::command(&outbox, &["replay", "--all"]);
    letters::replayed(&outbox);
    assert_eq!(row(&large), [text("PUBLISHED"), text("1"), None]);
    assert_eq!(row(&behind), [text("PUBLISHED"), text("0"), None]);
    assert_eq!(run.terminate(WITHIN), 0);
    assert_eq!(ids(&all(&[&topic])), [small, large, behind]);
}

#[test]
fn a_status_may_be_of_an_enumerated_type() {
    let database = Postgres::shared(MAIN).database();
    let outbox = status(&database);
    database.sql(
        "CREATE TYPE state AS ENUM ('PENDING', 'PUBLISHED', 'DEAD_LETTER');
         ALTER TABLE events ALTER status DROP DEFAULT, ALTER status TYPE state USING status::state;
         INSERT INTO events (event_type, payload_json, status)
         SELECT 'e', repeat('x', bytes), 'PENDING' FROM (VALUES (200000), (1)) AS n (bytes)",
    );
    let more = "table = 'events'\npreset = 'status'\nafter_publish = 'mark'\nkafka.'message.max.bytes' = 100000\n"
        .to_owned()
        + &format!("route.topic = '{}'\n", outbox.topic("orders"));
    streamed(&outbox, &more, &[]);
    let states = database.session().rows("SELECT status FROM events ORDER BY length(payload_json)").concat();
    assert_eq!(states, ["PUBLISHED", "DEAD_LETTER"].map(|state| Some(state.to_owned())));
}

#[test]
fn ids_of_a_fixed_length_are_told_apart() {
    for action in ["mark", "delete"] {
        let database = Postgres::shared(MAIN).database();
        let outbox = destination(&database);
        database.sql("ALTER TABLE messages ALTER id DROP IDENTITY; ALTER TABLE messages ALTER id TYPE char(4)");
        let insert = |topic: &str, first: u32, last: u32| {
            database.sql(&format!(
                "INSERT INTO messages (id, aggregate_id, destination) SELECT n, 'k', '{topic}' FROM generate_series({first}, {last}) n"
            ));
        };
        insert(&outbox.topic("m"), 10, 12);
        let records = streamed(&outbox, &DESTINATION.replace("mark", action), &[&outbox.topic("m")]);
        assert_eq!((records.len(), count(&outbox, "published_at IS NULL")), (3, 0), "{action}");
    }
}

#[test]
fn a_dead_letter_of_one_table_says_nothing_of_another_with_the_same_ids() {
    let database = Postgres::shared(MAIN).database();
    let outbox = destination(&database);
    database.sql(include_str!("../../sql/progress.sql"));
    database.sql("CREATE TABLE others (LIKE messages INCLUDING ALL); ALTER PUBLICATION walpost ADD TABLE others");
    let more = ["messages", "others"].map(|table| format!("[[outbox]]\ntable = '{table}'\n{OUTBOX}")).concat();
    database.sql(
        "INSERT INTO messages (id, aggregate_id, destination) OVERRIDING SYSTEM VALUE VALUES (7, 'k', 'no topic!')",
    );
    streamed(&outbox, &more, &[]);
    letters::command(&outbox, &["discard", "--all", "--yes"]);
    database.sql(&format!(
        "SELECT pg_drop_replication_slot('{}');
         INSERT INTO others (id, aggregate_id, destination) OVERRIDING SYSTEM VALUE VALUES (7, 'k', '{}')",
        outbox.slot(),
        outbox.topic("m")
    ));
    let arguments = ["--table", "others", "--preset", "destination", "--after-publish", "mark", "--retention", "0s"];
    let report = pruned(&database, &arguments);
    assert_eq!((&report["deleted"], &report["kept"]["unproven"]), (&0.into(), &1.into()));
    assert_eq!(ids(&streamed(&outbox, &more, &[&outbox.topic("m")])), ["7"], "it is recovered");
}

#[test]
fn no_published_row_stays_unmarked_after_kills_at_least_once_and_exactly_once() {
    for exactly_once in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = destination(&database);
        let topic = outbox.topic("m");
        let more = DESTINATION.to_owned()
            + "in_flight_records = 200\n"
            + &if exactly_once { outbox.exactly_once() } else { String::new() };
        let session = database.session();
        insert(&outbox, 5000);
        // What is confirmed is marked, however it ends; what is marked is in Kafka.
        for round in 1..=4 {
            let run = Walpost::start(&quick(&outbox, &more));
            eventually(WITHIN, "it gets on", || {
                (count(&outbox, "published_at IS NOT NULL") > round * 700).then_some(())
            });
            run.kill();
        }
        // A mark that cannot be made holds the position, and not the feedback.
        session.run("BEGIN; LOCK TABLE messages IN SHARE MODE");
        let run = Walpost::start(&quick(&outbox, &more));
        let walsender = run.streams(&outbox, WITHIN);
        let before = outbox.confirmed();
        eventually(WITHIN, "the trouble is told", || {
            run.log().contains("published rows cannot be marked").then_some(())
        });
        assert_eq!(outbox.confirmed(), before, "nothing is confirmed without its mark");
        session.run("ROLLBACK");
        outbox.drained(WITHIN);
        assert_eq!(outbox.walsender(), Some(walsender));
        assert_eq!(run.terminate(WITHIN), 0);
        assert_eq!(count(&outbox, "published_at IS NULL"), 0);
        let records = if exactly_once { committed(&topic, 5000) } else { all(&[&topic]) };
        let mut found: Vec<u32> = ids(&records).iter().map(|id| id.parse().expect("a number")).collect();
        found.sort_unstable();
        if !exactly_once {
            found.dedup();
        }
        assert_eq!(found, (1..=5000).collect::<Vec<_>>());
    }
}

#[test]
fn rows_that_cannot_be_marked_end_the_start_with_the_remedy() {
    let database = Postgres::shared(MAIN).database();
    let outbox = destination(&database);
    for (change, more, words) in [
        ("", "after_publish = 'mark'\ntable = 'walpost.outbox'\npreset = 'walpost'", "columns.published_at"),
        ("", "columns.status = 'state'", "no column state"),
        (
            "ALTER PUBLICATION walpost SET (publish = 'insert, update')",
            "on_update = 'halt'",
            "SET (publish = 'insert')",
        ),
    ] {
        database.sql(change);
        let more: toml::Table = more.parse().expect("TOML");
        let mut table: toml::Table = DESTINATION.parse().expect("TOML");
        more.into_iter().for_each(|(key, value)| drop(table.insert(key, value)));
        let log = halted(&outbox, &table.to_string());
        assert!(log.contains(words), "{words} is not in {log}");
    }
    let role = format!("r_{}", database.name);
    database.sql(&format!("CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON messages TO {role}"));
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let more = format!("database_url = '{url}'\non_poison = 'halt'\n{DESTINATION}");
    let log = halted(&outbox, &more);
    assert!(log.contains("GRANT SELECT, UPDATE (published_at, attempts) ON public.messages TO"), "{log}");
    let check = walpost(&[
        "check",
        "--database-url",
        &url,
        "--brokers",
        &Kafka::shared().brokers(),
        "--slot",
        outbox.slot(),
        "--table",
        "messages",
        "--preset",
        "destination",
        "--after-publish",
        "mark",
    ]);
    assert!(check.stdout.contains("GRANT SELECT, UPDATE (published_at, attempts)"), "{check:?}");
    database.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
