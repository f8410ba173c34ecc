//! From Debezium to walpost and back, on one slot, while events are written: nothing is lost, no aggregate's order breaks, and
//! what comes twice is known.
//!
//! The real Debezium takes part, so this is of the long form (`scripts/provision.sh connect` fetches it).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    connect::Worker,
    eventually,
    kafka::Kafka,
    long,
    outbox::Event,
    postgres::{Database, MAIN, Postgres},
    records::{Isolation, Record},
    session::Session,
    verify::{all_arrived, verify},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);
/// How long each of the three may work.
const TURN: Duration = Duration::from_secs(8);
/// How often Debezium's offsets are written and given to the slot.
const FLUSH: Duration = Duration::from_secs(5);
const EVENTS_A_SECOND: u32 = 200;
const AGGREGATES: u32 = 20;
const RUN_ID: &str = "__debezium.context.runId";

/// A connector as users have them, with all that it writes beside the events.
fn connector(database: &Database<'_>, more: &[(&str, &str)]) -> Value {
    let name = &database.name;
    let mut config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": database.server.port().to_string(),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": name,
        "slot.name": name,
        "publication.name": "dbz_publication",
        "publication.autocreate.mode": "filtered",
        "topic.prefix": name,
        "table.include.list": "public.outbox",
        "snapshot.mode": "no_data",
        "heartbeat.interval.ms": "1000",
        "provide.transaction.metadata": "true",
        "topic.creation.default.partitions": "4",
        "topic.creation.default.replication.factor": "1",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": format!("{name}.${{routedByValue}}"),
    });
    for (key, value) in more {
        config[*key] = Value::from(*value);
    }
    config
}

/// One run of the story.
struct Migration<'a> {
    database: &'a Database<'a>,
    kafka: &'a Kafka,
    worker: Worker,
    ended: AtomicBool,
}

impl Migration<'_> {
    /// Plays the story while events are written, then compares the topics with the table; gives how often each pair of runs
    /// sent the same events.
    fn plays(&self, story: impl FnOnce(&Self)) -> Figures {
        thread::scope(|scope| {
            self.database.sql(
                "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
                   type text NOT NULL, payload jsonb, n int NOT NULL)",
            );
            self.worker.start(&connector(self.database, &[]));
            self.streams(true);
            let writer = scope.spawn(|| write(&self.database.session(), &self.ended));
            let end = EndOnDrop(&self.ended);
            story(self);
            thread::sleep(TURN);
            drop(end);
            writer.join().expect("the writer has written");
            self.compare()
        })
    }

    fn slot(&self, expression: &str) -> Option<String> {
        let sql = format!("SELECT {expression} FROM pg_replication_slots WHERE slot_name = '{}'", self.database.name);
        self.database.session().rows(&sql).first()?.first()?.clone()
    }

    fn streams(&self, it_does: bool) {
        let active = "(active AND confirmed_flush_lsn IS NOT NULL)::text";
        eventually(WITHIN, "the slot is taken or free", || {
            (self.slot(active).as_deref() == Some(if it_does { "true" } else { "false" })).then_some(())
        });
    }

    /// walpost on the connector's own file and the worker's.
    fn walpost(&self) -> Walpost {
        let connector = json!({ "name": "outbox", "config": connector(self.database, &[]) }).to_string();
        let worker = self.worker.properties();
        let walpost = Walpost::start_connector(&connector, &["--worker", worker.to_str().expect("it is UTF-8")], &[]);
        self.streams(true);
        walpost
    }

    /// Waits until the slot needs no log any more from before this position, so that Debezium does not find it there.
    fn outlives(&self, offset: &Value) {
        let stored = offset["lsn_proc"].as_i64().expect("the offset has a position");
        eventually(WITHIN, "the slot's restart position is beyond the stored offset", || {
            let restart: i64 = self.slot("(restart_lsn - '0/0')::bigint")?.parse().ok()?;
            (restart > stored).then_some(())
        });
    }

    fn compare(&self) -> Figures {
        let rows = self
            .database
            .session()
            .rows("SELECT id, aggregatetype, aggregateid, payload FROM public.outbox ORDER BY n");
        let event = |row: &Vec<Option<String>>| {
            let column = |n: usize| row[n].clone().expect("no column is null");
            Event {
                id: column(0),
                topic: format!("{}.{}", self.database.name, column(1)),
                key: column(2),
                value: column(3),
            }
        };
        let events: Vec<Event> = rows.iter().map(event).collect();
        let topics: Vec<String> = ["order", "invoice"].map(|kind| format!("{}.{kind}", self.database.name)).into();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let mut reader = self.kafka.reader(&topics, Isolation::Uncommitted, WITHIN);
        reader.until(WITHIN, "every event", |records| all_arrived(&events, records));
        let mut records = reader.until_end(WITHIN).to_vec();

        let mut sent = Vec::new();
        let mut partitions: BTreeMap<String, i32> = BTreeMap::new();
        for record in &mut records {
            let [id, run] = ["id", RUN_ID].map(|name| record.header(name).expect("every event has it").to_owned());
            sent.push((record.timestamp, run, id));
            record.headers.retain(|(name, _)| name != RUN_ID);
            let partition = partitions.entry(record.key_text().expect("it has a key").to_owned());
            assert_eq!(*partition.or_insert(record.partition), record.partition, "{:?} moved", record.key_text());
        }
        verify(&events, &records).assert_complete();

        sent.sort_by_key(|(time, ..)| *time);
        let (mut runs, mut last, mut repeated) = (Vec::new(), HashMap::new(), BTreeMap::new());
        for (_, run, id) in &sent {
            let run = runs.iter().position(|known| *known == run).unwrap_or_else(|| {
                runs.push(run);
                runs.len() - 1
            });
            if let Some(before) = last.insert(id, run) {
                *repeated.entry((before, run)).or_default() += 1;
            }
        }
        let figures = Figures { events: events.len(), runs: runs.len(), repeated };
        println!("{figures:?}");
        let transactions: usize = self.database.session().get("SELECT count(DISTINCT xmin::text) FROM public.outbox");
        assert_eq!(self.transactions(), transactions, "{figures:?}");
        figures
    }

    /// Waits until each transaction that begins in the topic of transactions ends there too; gives how many there are.
    fn transactions(&self) -> usize {
        let topic = format!("{}.transaction", self.database.name);
        let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
        let mut reader = self.kafka.reader(&[&topic], Isolation::Uncommitted, WITHIN);
        reader.until(WITHIN, "the end of every transaction", |records| {
            (begun, ended) = (HashSet::new(), HashSet::new());
            for value in records.iter().filter_map(Record::value_text) {
                let id = value.split_once("id=").and_then(|(_, rest)| rest.split(':').next());
                let id = id.expect("it is of a transaction").to_owned();
                if value.contains("status=BEGIN") {
                    begun.insert(id)
                } else {
                    ended.insert(id)
                };
            }
            !begun.is_empty() && begun == ended
        });
        begun.len()
    }
}

/// What came of a story.
#[derive(Debug)]
struct Figures {
    events: usize,
    /// How many runs of Debezium or walpost sent events.
    runs: usize,
    /// How many events were sent by one run (the first, the second, …) and again by another.
    repeated: BTreeMap<(usize, usize), usize>,
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes events at a steady rate until the end is told; every third transaction has three.
fn write(session: &Session, ended: &AtomicBool) {
    let (start, mut n) = (Instant::now(), 0);
    for transaction in 0.. {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let mut sql = "BEGIN;".to_owned();
        for _ in 0..if transaction % 3 == 0 { 3 } else { 1 } {
            n += 1;
            let aggregate = n % AGGREGATES;
            let kind = if aggregate % 2 == 0 { "order" } else { "invoice" };
            sql += &format!(
                "INSERT INTO public.outbox VALUES ('00000000-0000-4000-8000-{n:012}', '{kind}', 'a-{aggregate}', 'made',
                   '{{\"n\": {n}}}', {n});"
            );
        }
        session.run(&format!("{sql} COMMIT"));
        thread::sleep((start + Duration::from_secs(1) * n / EVENTS_A_SECOND).saturating_duration_since(Instant::now()));
    }
}

#[test]
fn at_request_nothing_comes_twice() {
    if !long() {
        return;
    }
    let (database, kafka) = (Postgres::shared(MAIN).database(), Kafka::shared());
    let worker = Worker::new(kafka, FLUSH);
    let migration = Migration { database: &database, kafka, worker, ended: AtomicBool::new(false) };
    let figures = migration.plays(|m| {
        thread::sleep(TURN);
        m.worker.stop();
        m.streams(false);
        let offset = m.worker.offset().expect("it has one");

        let walpost = m.walpost();
        thread::sleep(TURN);
        m.outlives(&offset);
        assert_eq!(walpost.terminate(WITHIN), 0, "{}", walpost.log());

        // The offset is older than the log that is left. Debezium does not go on from the slot by itself.
        m.worker.resume();
        let trace = m.worker.fails();
        assert!(trace.contains("but this is no longer available on the server"), "{trace}");
        m.worker.stop();
        m.worker.forget();
        m.worker.resume();
        m.worker.runs();
    });
    assert_eq!((figures.runs, figures.repeated.len()), (3, 0), "{figures:?}");
    assert!(figures.events as u64 > TURN.as_secs() * u64::from(EVENTS_A_SECOND), "{figures:?}");
}

#[test]
fn after_crashes_only_what_was_not_confirmed_comes_twice() {
    if !long() {
        return;
    }
    let (database, kafka) = (Postgres::shared(MAIN).database(), Kafka::shared());
    let worker = Worker::new(kafka, FLUSH);
    let migration = Migration { database: &database, kafka, worker, ended: AtomicBool::new(false) };
    let figures = migration.plays(|m| {
        thread::sleep(TURN);
        m.worker.kill();
        m.streams(false);
        let walpost = m.walpost();
        thread::sleep(TURN);
        walpost.kill();
        m.streams(false);
        m.worker.start(&connector(m.database, &[("offset.mismatch.strategy", "trust_slot")]));
        m.streams(true);
    });
    let repeated = |pair| figures.repeated.get(&pair).copied().unwrap_or_default();
    // Debezium's last flush may lie a whole interval back, walpost's last confirmation hardly anything.
    let of_debezium = (FLUSH.as_secs() as usize + 5) * EVENTS_A_SECOND as usize;
    assert!(repeated((0, 1)) <= of_debezium && repeated((1, 2)) <= EVENTS_A_SECOND as usize, "{figures:?}");
    assert_eq!(figures.runs, 3, "{figures:?}");
    assert!(figures.repeated.keys().all(|pair| [(0, 1), (1, 2)].contains(pair)), "{figures:?}");
}
