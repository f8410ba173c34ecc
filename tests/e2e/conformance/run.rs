//! A variant on real servers: what it needs, what happens, and all that can be seen of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    ops::RangeInclusive,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;

use super::golden::{Outcome, Step, Variant};
use crate::support::{
    kafka::Kafka,
    postgres::{Database, Postgres},
    process::run,
    records::{Isolation, Record},
    scratch,
    walpost::Walpost,
};

/// How long anything may take on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(30);

/// Resting positions move soon, so that it is seen soon that nothing more comes.
const QUICK: [&str; 2] = ["--status-interval", "200ms"];

/// What stands in the table of dead letters.
#[derive(Clone, Debug)]
pub struct Letter {
    pub event_id: String,
    pub class: String,
    pub reason: String,
}

/// All that could be seen of a run.
pub struct Observed {
    pub database: String,
    /// Milliseconds since 1970, from before the first start to after the end.
    pub time: RangeInclusive<i64>,
    /// By topic, partition and offset.
    pub records: Vec<Record>,
    /// Topics and their partitions.
    pub topics: BTreeMap<String, i32>,
    pub letters: Vec<Letter>,
    /// In the form of meta.json, as are the tables of the publications and the slot.
    pub publications: Value,
    pub tables: BTreeSet<String>,
    pub slot: Value,
    /// The exit code, if it ended by itself.
    pub ended: Option<i32>,
    /// The exit code after the request to end.
    pub stopped: Option<i32>,
    /// How often it was started.
    pub starts: usize,
    /// What it printed from the last start on.
    pub log: String,
    /// What was waited for in vain.
    pub awaited: Option<String>,
}

impl Observed {
    /// What it printed of errors.
    pub fn errors(&self) -> String {
        let is_error = |line: &&str| line.contains("ERROR") || line.starts_with("error:") || line.starts_with("  ");
        self.log.lines().filter(is_error).collect::<Vec<_>>().join("\n")
    }
}

/// The version that Debezium ran on. A server of its own: making a slot waits for every transaction of others.
fn postgres() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start(15, &[]))
}

/// A broker that nobody else uses meanwhile: topics of all variants have the same names.
fn broker() -> MutexGuard<'static, Option<Kafka>> {
    static BROKERS: [Mutex<Option<Kafka>>; 2] = [const { Mutex::new(None) }; 2];
    let free = BROKERS.iter().find_map(|broker| match broker.try_lock() {
        Ok(broker) => Some(broker),
        Err(TryLockError::Poisoned(broker)) => Some(broker.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    });
    free.unwrap_or_else(|| BROKERS[0].lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn observe(variant: &Variant) -> Observed {
    let mut broker = broker();
    let (kafka, needs) = (&*broker.get_or_insert_with(Kafka::start), &variant.compare.needs);
    kafka.delete_topics();
    for (topic, partitions) in &needs.topics {
        kafka.create_topic(topic, *partitions, &[]);
    }
    let database = postgres().database_with("ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0");
    psql(&database, &variant.setup());

    let began = milliseconds();
    let mut scene = Scene { variant, kafka, database: &database, walpost: None, starts: 0, awaited: None };
    scene.start();
    if variant.compare.outcome == Outcome::FailsAtStart {
        scene.wait("it ends", |scene| scene.ended().is_some());
    } else {
        scene.happens();
    }
    let walpost = scene.walpost.take().expect("it was started");
    let ended = walpost.exit_code();
    let stopped = ended.is_none().then(|| walpost.terminate(WITHIN));
    let (starts, awaited) = (scene.starts, scene.awaited);
    Observed {
        time: began..=milliseconds(),
        records: records(kafka),
        topics: kafka.topics(),
        letters: letters(&database),
        publications: json(
            &database,
            "SELECT json_agg(json_build_object('name', pubname, 'all_tables', puballtables, 'insert', pubinsert, 'update',
               pubupdate, 'delete', pubdelete, 'truncate', pubtruncate, 'via_root', pubviaroot) ORDER BY pubname)
             FROM pg_publication",
        ),
        tables: strings(
            &database,
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE schemaname <> 'walpost'",
        ),
        slot: json(
            &database,
            "SELECT json_build_object('name', slot_name, 'plugin', plugin, 'type', slot_type)
             FROM pg_replication_slots WHERE database = current_database()",
        ),
        database: database.name.clone(),
        log: walpost.log(),
        ended,
        stopped,
        starts,
        awaited,
    }
}

struct Scene<'a> {
    variant: &'a Variant,
    kafka: &'a Kafka,
    database: &'a Database<'a>,
    walpost: Option<Walpost>,
    starts: usize,
    awaited: Option<String>,
}

impl Scene<'_> {
    fn start(&mut self) {
        let brokers = self.kafka.brokers();
        let arguments = [&["--brokers", &brokers], &QUICK[..]].concat();
        let tracing: &[_] = match self.variant.compare.needs.opentelemetry {
            true => &[("OTEL_JAVA_GLOBAL_AUTOCONFIGURE_ENABLED", "true")],
            false => &[],
        };
        self.walpost = Some(Walpost::start_connector(&self.variant.connector(self.database), &arguments, tracing));
        self.starts += 1;
    }

    fn stop(&mut self) {
        let walpost = self.walpost.take().expect("it was started");
        assert_eq!(walpost.terminate(WITHIN), 0, "{}", walpost.log());
    }

    fn happens(&mut self) {
        let needs = &self.variant.compare.needs;
        if needs.slot.is_none() {
            self.streams();
        }
        if let Some(count) = needs.records_before_input {
            self.wait(&format!("{count} records of the snapshot"), |scene| records(scene.kafka).len() >= count);
        }
        for step in self.variant.steps() {
            match step {
                Step::Sql(sql) => psql(self.database, &sql),
                Step::Restart(true) => {
                    self.stop();
                    self.start();
                    self.streams();
                }
                Step::Stop(true) => self.stop(),
                Step::Start(true) => {
                    self.start();
                    self.streams();
                }
                Step::Restart(false) | Step::Stop(false) | Step::Start(false) => {}
            }
        }
        match needs.slot {
            None => self.drained(),
            // Nothing is streamed: there is no position to see.
            Some(_) => thread::sleep(Duration::from_millis(500)),
        }
        for topic in &self.variant.compare.repeating_topics {
            self.wait(&format!("a record of {topic}"), |scene| {
                records(scene.kafka).iter().any(|record| record.topic == *topic)
            });
        }
    }

    fn streams(&mut self) {
        // While it is made it is active already, and has no position yet: what is committed then may come before it.
        let active = format!(
            "SELECT active AND confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name = '{}'",
            self.variant.slot()
        );
        let session = self.database.session();
        self.wait("the slot is active", |_| session.rows(&active) == [[Some("t".to_owned())]]);
    }

    /// Waits until all that is committed now is confirmed: nothing more comes.
    fn drained(&mut self) {
        let session = self.database.session();
        let end: String = session.get("SELECT pg_current_wal_insert_lsn()::text");
        let confirmed = format!(
            "SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots WHERE slot_name = '{}'",
            self.variant.slot()
        );
        self.wait("all is confirmed", |_| session.rows(&confirmed) == [[Some("t".to_owned())]]);
    }

    /// Waits, unless it was waited in vain already, until this is true or it has ended by itself.
    fn wait(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + WITHIN;
        while self.awaited.is_none() && self.ended().is_none() && !done(self) {
            if Instant::now() > end {
                self.awaited = Some(what.to_owned());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended(&self) -> Option<i32> {
        self.walpost.as_ref().expect("it was started").exit_code()
    }
}

/// Statements, each a transaction of its own unless they say otherwise.
fn psql(database: &Database<'_>, sql: &str) {
    let file = scratch::folder("psql").join("sql");
    fs::write(&file, sql).expect("the folder is ours");
    let url = format!("{}?application_name=psql", database.url());
    let mut arguments = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &url, "-f"].map(OsString::from).to_vec();
    arguments.push(file.into());
    run("psql", arguments);
}

fn records(kafka: &Kafka) -> Vec<Record> {
    let topics = kafka.topics();
    let names: Vec<&str> = topics.keys().map(String::as_str).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let mut records = kafka.reader(&names, Isolation::Uncommitted, WITHIN).until_end(WITHIN).to_vec();
    records.sort_by(|a, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
    records
}

fn letters(database: &Database<'_>) -> Vec<Letter> {
    let session = database.session();
    if session.value("SELECT to_regclass('walpost.dead_letter')").is_none() {
        return Vec::new();
    }
    let rows = session.rows("SELECT event_id, reason_class, reason FROM walpost.dead_letter ORDER BY position");
    let letter = |row: Vec<Option<String>>| {
        let [event_id, class, reason] = row.try_into().expect("three columns");
        let text = |value: Option<String>| value.expect("none is NULL");
        Letter { event_id: text(event_id), class: text(class), reason: text(reason) }
    };
    rows.into_iter().map(letter).collect()
}

fn json(database: &Database<'_>, sql: &str) -> Value {
    let rows = database.session().rows(sql);
    let text = rows.into_iter().flatten().flatten().next();
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("PostgreSQL prints JSON"))
}

fn strings(database: &Database<'_>, sql: &str) -> BTreeSet<String> {
    database.session().rows(sql).into_iter().flatten().flatten().collect()
}

fn milliseconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
    i64::try_from(since.as_millis()).expect("it is not so late")
}
