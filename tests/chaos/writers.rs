//! The application: writers that share aggregates, roll back, and go on after whatever happens to their server.
//!
//! A transaction locks its aggregates before its first insert, as an application does that cares for their order. So the
//! rows of an aggregate are in the order of `seq` as in the order of commits, whoever wrote them, and the table can tell what
//! is to arrive.

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio_postgres::Config;

use crate::{
    random::Random,
    support::{postgres::Postgres, session::Session},
};

/// Topics whose writers never pause, and the one that is deleted at times.
pub const STEADY: [&str; 3] = ["order", "invoice", "parcel"];
pub const FLEETING: &str = "notice";

const AGGREGATES: usize = 40;
/// Payloads that a careless hand would break.
const ODD: [&str; 8] = [
    r#"{"n": 1}"#,
    r#""a \"quoted\" word, a back\\slash, a tab\t""#,
    r#"[1, 2.50, 1e400, -0, null, true]"#,
    r#""žluťoučký kůň 🐎 \u2028 end""#,
    "null",
    r#"{"a": {"b": [{"c": {}}, []]}, "": ""}"#,
    r#""it's $$quoted$$ and 'quoted'""#,
    "0",
];

pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    primary: Mutex<Config>,
    /// Transactions under way that write to the fleeting topic.
    fleeting: AtomicUsize,
    held: AtomicBool,
    acknowledged: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Writers {
    pub fn start(primary: &Postgres, database: &str, count: usize, random: &mut Random) -> Writers {
        let shared = Arc::new(Shared {
            primary: Mutex::new(address(primary, database)),
            fleeting: AtomicUsize::new(0),
            held: AtomicBool::new(false),
            acknowledged: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let threads = (0..count)
            .map(|number| {
                let (shared, random) = (Arc::clone(&shared), Random::new(random.below(1 << 30) as u64));
                thread::spawn(move || write(&shared, number, random))
            })
            .collect();
        Writers { shared, threads }
    }

    /// Where they connect from now on.
    pub fn follow(&self, primary: &Postgres, database: &str) {
        *locked(&self.shared.primary) = address(primary, database);
    }

    /// No transaction that writes to the fleeting topic is under way, and none begins, until what this gives is dropped.
    pub fn hold_fleeting(&self) -> Held {
        self.shared.held.store(true, Ordering::SeqCst);
        while self.shared.fleeting.load(Ordering::SeqCst) > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        Held(Arc::clone(&self.shared))
    }

    /// Waits for the transactions that are under way; gives the ids of what was acknowledged.
    pub fn stop(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut locked(&self.shared.acknowledged))
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for writer in self.threads.drain(..) {
            assert!(writer.join().is_ok() || thread::panicking(), "a writer has panicked");
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writers leave the fleeting topic alone.
pub struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::SeqCst);
    }
}

pub fn address(server: &Postgres, database: &str) -> Config {
    let mut config = Config::new();
    config.host_path(server.socket_folder()).port(server.port()).user("postgres").dbname(database);
    config
}

fn write(shared: &Shared, number: usize, mut random: Random) {
    let mut session: Option<Session> = None;
    let mut events = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let transaction = Transaction::draw(&mut random, number, &mut events);
        if transaction.fleeting {
            shared.fleeting.fetch_add(1, Ordering::SeqCst);
            if shared.held.load(Ordering::SeqCst) {
                shared.fleeting.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
        }
        if session.is_none() {
            let primary = locked(&shared.primary).clone();
            session = Session::open(&primary).ok();
        }
        if let Some(open) = &session {
            match open.try_run(&transaction.sql) {
                Ok(()) => locked(&shared.acknowledged).extend(transaction.committed),
                // The server is away, or full, or nobody knows: the table will tell.
                Err(_) => session = None,
            }
        }
        if transaction.fleeting {
            shared.fleeting.fetch_sub(1, Ordering::SeqCst);
        }
        thread::sleep(Duration::from_millis(random.between(20, 160) as u64)); // traffic, not a flood
    }
}

struct Transaction {
    sql: String,
    /// What is committed once the server says so.
    committed: Vec<String>,
    fleeting: bool,
}

impl Transaction {
    fn draw(random: &mut Random, writer: usize, events: &mut u64) -> Transaction {
        let topics = [STEADY[0], STEADY[1], STEADY[2], FLEETING];
        let rows = if random.one_in(12) { random.between(20, 50) } else { random.between(1, 8) };
        let aggregates: BTreeSet<usize> =
            (0..random.between(1, 4.min(rows))).map(|_| random.below(AGGREGATES)).collect();
        let aggregates: Vec<usize> = aggregates.into_iter().collect();
        let mut sql = "BEGIN;".to_owned();
        for aggregate in &aggregates {
            write!(sql, "SELECT pg_advisory_xact_lock(4711, {aggregate});").expect("a string takes all");
        }
        let (mut committed, mut fleeting) = (Vec::new(), false);
        let mut insert = |random: &mut Random, sql: &mut String| {
            *events += 1;
            let id = format!("{:08x}-0000-4000-8000-{events:012x}", writer + 1);
            let topic = random.pick(&topics);
            fleeting |= topic == FLEETING;
            let payload = match random.one_in(3) {
                true => random.pick(&ODD).to_owned(),
                false => format!(r#"{{"n": {events}, "pad": "{}"}}"#, "x".repeat(random.below(400))),
            };
            let payload = payload.replace('\'', "''");
            write!(
                sql,
                "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
                 VALUES ('{id}', '{topic}', 'k-{}', 'happened', '{payload}');",
                random.pick(&aggregates)
            )
            .expect("a string takes all");
            id
        };
        for _ in 0..rows {
            if random.one_in(15) {
                sql += "SAVEPOINT s;";
                insert(random, &mut sql);
                sql += "ROLLBACK TO s;";
            }
            committed.push(insert(random, &mut sql));
        }
        if random.one_in(8) {
            committed.clear();
            sql += "ROLLBACK";
        } else {
            sql += "COMMIT";
        }
        Transaction { sql, committed, fleeting }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
