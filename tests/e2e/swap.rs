//! A table that a poller sends from gets walpost in its place, and back, while the application writes (docs/swap-a-poller.md).

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use rdkafka::{
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    records::Record,
    scratch,
    streamed::{WITHIN, all},
    walpost::{Walpost, walpost},
};

/// A table, and what its poller does with it.
struct Shape {
    table: &'static str,
    preset: &'static str,
    create: &'static str,
    /// Beside the preset; `TOPIC` stands for the topic.
    toml: &'static str,
    /// Inserts an event of `KEY` with the payload `NUMBER`.
    insert: &'static str,
    /// Takes some rows: id, topic, key and payload.
    claim: &'static str,
    /// Marks the rows `IDS` as published.
    mark: &'static str,
    /// Of rows that are still to be sent.
    unsent: &'static str,
    /// Rows from before: one that had its troubles, one that a poller died with, and one that was given up.
    before: &'static str,
    /// Of rows whose marks are as a poller leaves them.
    as_it_should_be: &'static str,
}

const DESTINATION: Shape = Shape {
    table: "messages",
    preset: "destination",
    create: "CREATE TABLE messages (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, aggregate_id text, destination text NOT NULL,
       headers jsonb, payload jsonb, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz,
       attempts int NOT NULL DEFAULT 0)",
    toml: "route.topic = '${destination}'\n",
    insert: "INSERT INTO messages (aggregate_id, destination, payload) VALUES ('KEY', 'TOPIC', 'NUMBER')",
    claim: "BEGIN; SELECT id, destination, aggregate_id, payload FROM messages WHERE published_at IS NULL
       ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED",
    mark: "UPDATE messages SET published_at = now(), attempts = attempts + 1 WHERE id IN (IDS); COMMIT",
    unsent: "published_at IS NULL",
    before: "INSERT INTO messages (aggregate_id, destination, payload, attempts) VALUES ('troubled', 'TOPIC', '0', 3)",
    as_it_should_be: "published_at IS NOT NULL AND attempts = CASE aggregate_id WHEN 'troubled' THEN 4 ELSE 1 END",
};

const STATUS: Shape = Shape {
    table: "events",
    preset: "status",
    create: "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), event_type text NOT NULL, payload_json text NOT NULL,
       idempotency_key text UNIQUE, status text NOT NULL DEFAULT 'PENDING', retry_count int NOT NULL DEFAULT 0,
       last_error text, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
       updated_at timestamptz NOT NULL DEFAULT clock_timestamp())",
    toml: "route.topic = 'TOPIC'\ncolumns.aggregate_id = 'event_type'\norder_by = 'created_at'\n",
    insert: "INSERT INTO events (event_type, payload_json) VALUES ('KEY', 'NUMBER')",
    claim: "UPDATE events SET status = 'PROCESSING', updated_at = clock_timestamp()
       WHERE id IN (SELECT id FROM events WHERE status = 'PENDING' ORDER BY created_at LIMIT 20 FOR UPDATE SKIP LOCKED)
       RETURNING id, 'TOPIC', event_type, payload_json",
    mark: "UPDATE events SET status = 'PUBLISHED', last_error = NULL, updated_at = clock_timestamp() WHERE id IN (IDS)",
    unsent: "status IN ('PENDING', 'PROCESSING')",
    before: "INSERT INTO events (event_type, payload_json, status, retry_count, last_error) VALUES
       ('troubled', '0', 'PENDING', 3, 'timed out'), ('left', '0', 'PROCESSING', 2, 'timed out'), ('dead', '0', 'DEAD_LETTER', 9, 'no')",
    as_it_should_be: "CASE event_type WHEN 'dead' THEN status = 'DEAD_LETTER' AND retry_count = 9 AND last_error = 'no'
       ELSE status = 'PUBLISHED' AND last_error IS NULL AND updated_at > created_at
         AND retry_count = CASE event_type WHEN 'troubled' THEN 3 WHEN 'left' THEN 2 ELSE 0 END END",
};

/// How a poller ends.
#[derive(Clone, Copy)]
enum End {
    /// In order: what it has sent is marked.
    Stopped,
    /// Between sending and marking.
    Killed,
}

/// Polls until it is to end; gives the ids that it has sent and not marked. `sent` counts events.
fn poll(
    database: &Database<'_>,
    shape: &Shape,
    topic: &str,
    stop: &AtomicBool,
    end: End,
    sent: &AtomicU64,
) -> Vec<String> {
    let session = database.session();
    // Else a request whose answer is late is sent twice.
    let mut client = Kafka::shared().client();
    let producer: BaseProducer = client.set("enable.idempotence", "true").create().expect("it is configured");
    let claim = shape.claim.replace("TOPIC", topic);
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        let rows: Vec<Vec<String>> =
            session.rows(&claim).into_iter().map(|row| row.into_iter().flatten().collect()).collect();
        for row in &rows {
            let [id, topic, key, payload] = &row[..] else { panic!("four columns, not {row:?}") };
            let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
            let record = BaseRecord::to(topic).key(key).payload(payload).headers(headers);
            producer.send(record).expect("the queue has room");
        }
        producer.flush(WITHIN).expect("all are delivered");
        sent.fetch_add(rows.len() as u64, Ordering::Relaxed);
        let ids: Vec<String> = rows.into_iter().map(|mut row| row.remove(0)).collect();
        if stopped && matches!(end, End::Killed) && !ids.is_empty() {
            return ids;
        }
        let quoted = ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(", ");
        session.run(&shape.mark.replace("IDS", if ids.is_empty() { "NULL" } else { &quoted }));
        if stopped && matches!(end, End::Stopped) {
            return Vec::new();
        }
    }
}

/// Inserts events of two keys of its own until it is to end, some hundreds a second.
fn write(database: &Database<'_>, shape: &Shape, topic: &str, name: &str, stop: &AtomicBool) {
    let session = database.session();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut insert = || {
            number += 1;
            let key = format!("{name}-{}", number % 2);
            shape.insert.replace("KEY", &key).replace("TOPIC", topic).replace("NUMBER", &number.to_string())
        };
        session.run(&format!("BEGIN; {}; {}; COMMIT; SELECT pg_sleep(0.01)", insert(), insert()));
    }
}

/// Ends threads of a test however it ends.
struct StopAtEnd<'a>([&'a AtomicBool; 4]);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }
}

fn configured(outbox: &Outbox<'_>, shape: &Shape, topic: &str, more: &str) -> String {
    let Shape { table, preset, toml, .. } = shape;
    let more = format!(
        "snapshot = 'initial'\nafter_publish = 'mark'\ntable = '{table}'\npreset = '{preset}'\n{more}{}",
        toml.replace("TOPIC", topic)
    );
    outbox.configuration(Kafka::shared(), &more)
}

fn set_up(toml: &str) {
    let file = scratch::folder("swap").join("walpost.toml");
    std::fs::write(&file, toml).expect("the folder is ours");
    let done = walpost(&["setup", "-c", file.to_str().expect("it is UTF-8")]);
    assert_eq!(done.code, 0, "{done:?}");
}

/// How often each event is in the topic.
fn counted(records: &[Record]) -> HashMap<&str, u32> {
    let mut counts = HashMap::new();
    for record in records {
        *counts.entry(record.header("id").expect("an id")).or_default() += 1;
    }
    counts
}

/// What walpost sent is in order, for each key of the writers.
fn is_in_order(records: &[Record]) {
    let mut last: HashMap<&str, u64> = HashMap::new();
    for record in records.iter().filter(|record| record.header("position").is_some()) {
        let number = record.value_text().expect("a number").parse().expect("a number");
        if let Some(before) = last.insert(record.key_text().expect("a key"), number) {
            assert!(number > before, "{number} comes after {before}");
        }
    }
}

#[test]
fn a_poller_is_swapped_for_walpost_and_back_under_traffic() {
    for shape in [DESTINATION, STATUS] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::unmade(&database);
        let topic = outbox.topic("swap");
        Kafka::shared().create_topic(&topic, 1, &[]);
        database.sql(shape.create);
        database.sql(&shape.before.replace("TOPIC", &topic));
        let toml = configured(&outbox, &shape, &topic, "");
        let session = database.session();
        let count = |condition: &str| -> u64 {
            session.get(&format!("SELECT count(*) FROM {} WHERE {condition}", shape.table))
        };
        let [no_writer, no_poller, no_second, no_later] = [const { AtomicBool::new(false) }; 4];
        let sent = AtomicU64::new(0);
        let twice: HashSet<String> = thread::scope(|scope| {
            let end = StopAtEnd([&no_writer, &no_poller, &no_second, &no_later]);
            let (database, shape, topic, sent) = (&database, &shape, &*topic, &sent);
            let start = |stop, how| scope.spawn(move || poll(database, shape, topic, stop, how, sent));
            for name in ["a", "b"] {
                let no_writer = &no_writer;
                scope.spawn(move || write(database, shape, topic, name, no_writer));
            }
            let pollers = [start(&no_poller, End::Stopped), start(&no_second, End::Killed)];
            let has_sent = |more: u64| {
                let before = sent.load(Ordering::Relaxed);
                eventually(WITHIN, "the pollers send", || (sent.load(Ordering::Relaxed) > before + more).then_some(()));
            };
            has_sent(200);
            // While they run: the publication. Then they stop, one of them badly.
            set_up(&toml);
            has_sent(100);
            no_second.store(true, Ordering::Relaxed);
            no_poller.store(true, Ordering::Relaxed);
            let unmarked = pollers.map(|poller| poller.join().expect("it ends")).concat();
            let by_pollers = count(&format!("NOT ({})", shape.unsent));

            let run = Walpost::start(&toml);
            eventually(WITHIN, "walpost sends what was left, and what comes", || {
                (count(&format!("NOT ({})", shape.unsent)) > by_pollers + 400).then_some(())
            });
            assert_eq!(run.terminate(WITHIN), 0, "{}", run.log());

            // And back.
            let later = start(&no_later, End::Stopped);
            has_sent(100);
            no_writer.store(true, Ordering::Relaxed);
            eventually(WITHIN, "all is sent", || (count(shape.unsent) == 0).then_some(()));
            drop(end);
            later.join().expect("it ends");
            unmarked.into_iter().collect()
        });

        let records = all(&[&topic]);
        let counts = counted(&records);
        let mut rows = session.rows(&format!("SELECT id FROM {}", shape.table)).concat();
        if shape.preset == "status" {
            let dead: String = session.get("SELECT id FROM events WHERE event_type = 'dead'");
            assert_eq!(counts.get(&*dead), None, "what the poller gave up stays given up");
            rows.retain(|id| id.as_deref() != Some(&*dead));
        }
        assert_eq!(counts.len(), rows.len(), "{}: every event, and no other", shape.preset);
        assert!(!twice.is_empty(), "the second poller died with something sent");
        for id in rows.into_iter().flatten() {
            assert_eq!(counts.get(&*id), Some(&if twice.contains(&id) { 2 } else { 1 }), "{}: {id}", shape.preset);
        }
        assert_eq!(count(&format!("NOT ({})", shape.as_it_should_be)), 0, "{}", shape.preset);
        is_in_order(&records);
    }
}

#[test]
fn what_was_marked_before_walpost_was_killed_is_not_sent_again() {
    for shape in [DESTINATION, STATUS] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::unmade(&database);
        let topic = outbox.topic("swap");
        Kafka::shared().create_topic(&topic, 1, &[]);
        database.sql(shape.create);
        let insert = shape.insert.replace("KEY", "k").replace("TOPIC", &topic).replace("NUMBER", "%s");
        database.sql(&format!(
            "DO $do$ BEGIN FOR n IN 1 .. 3000 LOOP EXECUTE format($sql${insert}$sql$, n); END LOOP; END $do$"
        ));
        let toml = configured(&outbox, &shape, &topic, "in_flight_records = 100\n");
        set_up(&toml);
        let session = database.session();
        let marked = format!("SELECT id FROM {} WHERE NOT ({})", shape.table, shape.unsent);
        let run = Walpost::start(&toml);
        eventually(WITHIN, "it is in the middle", || (session.rows(&marked).len() > 500).then_some(()));
        run.kill();
        // What it had under way may still be marked.
        eventually(WITHIN, "its sessions end", || {
            let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'walpost'";
            (session.get::<u32>(others) == 0).then_some(())
        });
        let before = session.rows(&marked).concat();
        let run = Walpost::start(&toml);
        eventually(WITHIN, "all are sent", || (session.rows(&marked).len() == 3000).then_some(()));
        assert_eq!(run.terminate(WITHIN), 0);
        let records = all(&[&topic]);
        let counts = counted(&records);
        assert_eq!(counts.len(), 3000, "{}", shape.preset);
        for id in before.iter().flatten() {
            assert_eq!(counts.get(&**id), Some(&1), "{}: {id}", shape.preset);
        }
    }
}

#[test]
fn with_a_column_txid_no_mark_keeps_a_row_out_and_the_log_says_so() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::unmade(&database);
    let topic = outbox.topic("swap");
    Kafka::shared().create_topic(&topic, 1, &[]);
    database.sql(DESTINATION.create);
    database.sql(&DESTINATION.before.replace("TOPIC", &topic));
    database.sql(
        "UPDATE messages SET published_at = now();
         ALTER TABLE messages ADD txid xid8 NOT NULL DEFAULT pg_current_xact_id()",
    );
    let toml = configured(&outbox, &DESTINATION, &topic, "");
    set_up(&toml);
    let run = Walpost::start(&toml);
    run.says("rows that somebody else has marked are sent too", WITHIN);
    eventually(WITHIN, "it is sent", || (all(&[&topic]).len() == 1).then_some(()));
    assert_eq!(run.terminate(WITHIN), 0);
}
