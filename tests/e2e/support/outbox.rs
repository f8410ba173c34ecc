//! An outbox whose every event is known: identity, topic, key, value, and its place in commit order.

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{eventually, kafka::Kafka, postgres::Database, scratch, session::Session, walpost::walpost};

/// What a committed row is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: String,
    pub topic: String,
    pub key: String,
    pub value: String,
}

/// The table, the publication and the slot of one database, named after it.
pub struct Outbox<'a> {
    pub database: &'a Database<'a>,
    /// Of all writers, in commit order for each key.
    committed: Mutex<Vec<Event>>,
    writers: AtomicU32,
}

impl<'a> Outbox<'a> {
    /// Makes schema, table and publication, then the slot: the order in which a slot knows its publication.
    pub fn create(database: &'a Database<'a>) -> Outbox<'a> {
        let outbox = Outbox::without_slot(database);
        database.sql(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", outbox.slot()));
        outbox
    }

    /// One of which nothing is made yet: its names only.
    pub fn unmade(database: &'a Database<'a>) -> Outbox<'a> {
        Outbox { database, committed: Mutex::new(Vec::new()), writers: AtomicU32::new(0) }
    }

    fn without_slot(database: &'a Database<'a>) -> Outbox<'a> {
        database.sql(
            "CREATE SCHEMA walpost;
             CREATE TABLE walpost.outbox (
               id uuid PRIMARY KEY DEFAULT gen_random_uuid(), seq bigint GENERATED ALWAYS AS IDENTITY,
               aggregate_type text NOT NULL, aggregate_id text, event_type text NOT NULL, payload jsonb, headers jsonb,
               destination text, idempotency_key text UNIQUE,
               occurred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
               txid xid8 NOT NULL DEFAULT pg_current_xact_id());
             CREATE PUBLICATION walpost FOR TABLE walpost.outbox WITH (publish = 'insert')",
        );
        Outbox::unmade(database)
    }

    /// The same by `walpost setup`, with all that it makes. Roles belong to the whole server: let it be a private one.
    pub fn set_up(database: &'a Database<'a>) -> Outbox<'a> {
        let done =
            walpost(&["setup", "--snapshot", "never", "--database-url", &database.url(), "--slot", &database.name]);
        assert_eq!(done.code, 0, "{done:?}");
        Outbox::unmade(database)
    }

    /// As [`Outbox::create`], with the table in which walpost proves what is published.
    pub fn proven(database: &'a Database<'a>) -> Outbox<'a> {
        let outbox = Outbox::without_slot(database);
        let session = database.session();
        session.run(include_str!("../../../sql/progress.sql"));
        outbox.slot_statements().iter().for_each(|statement| session.run(statement));
        outbox
    }

    /// What makes the slot and begins its proof, as `walpost setup --print` has it for psql.
    pub fn slot_statements(&self) -> Vec<String> {
        let script = walpost(&["setup", "--print", "--slot", self.slot()]).stdout;
        let (_, slot) = script.split_once("-- The slot comes last").expect("it says so");
        let (_, statements) = slot.split_once('\n').expect("the comment ends");
        statements.split_inclusive(";\n").map(str::to_owned).collect()
    }

    /// The same outbox in a copy of its database.
    pub fn moved_to<'b>(self, database: &'b Database<'b>) -> Outbox<'b> {
        Outbox { database, committed: self.committed, writers: self.writers }
    }

    /// The slot's name.
    pub fn slot(&self) -> &str {
        &self.database.name
    }

    /// The topic of an aggregate type: the shared broker's topics belong to one database each.
    pub fn topic(&self, aggregate_type: &str) -> String {
        format!("{}.{aggregate_type}", self.database.name)
    }

    /// A configuration for this outbox, with `more` TOML merged over it.
    pub fn configuration(&self, kafka: &Kafka, more: &str) -> String {
        let mut table = toml::Table::new();
        table.insert("database_url".to_owned(), self.database.url().into());
        table.insert("brokers".to_owned(), kafka.brokers().into());
        table.insert("slot".to_owned(), self.slot().into());
        table.insert("snapshot".to_owned(), "never".into());
        let topic = self.topic("${aggregate_type}");
        table.insert("route".to_owned(), toml::Table::from_iter([("topic".to_owned(), topic.into())]).into());
        merge(&mut table, more.parse().unwrap_or_else(|error| panic!("{error} in\n{more}")));
        table.to_string()
    }

    /// The part of a configuration that makes delivery exactly once, with a positions topic of its own.
    pub fn exactly_once(&self) -> String {
        format!("delivery = 'exactly_once'\nexactly_once.positions_topic = '{}'\n", self.positions_topic())
    }

    pub fn positions_topic(&self) -> String {
        self.topic("positions")
    }

    /// A connection that writes events.
    pub fn writer(&self) -> Writer<'_> {
        Writer {
            outbox: self,
            session: self.database.session(),
            number: self.writers.fetch_add(1, Ordering::Relaxed),
            events: 0,
            pending: Vec::new(),
            savepoints: BTreeMap::new(),
        }
    }

    /// What has been committed so far, in commit order for each key.
    pub fn committed(&self) -> Vec<Event> {
        self.list().clone()
    }

    /// The process id of the walsender that streams from the slot, if any.
    pub fn walsender(&self) -> Option<u32> {
        let slot = self.slot();
        let rows = self.database.session().rows(&format!(
            "SELECT active_pid FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid
             WHERE slot_name = '{slot}' AND state = 'streaming'"
        ));
        rows.first()?.first()?.as_deref()?.parse().ok()
    }

    /// The slot's confirmed position.
    pub fn confirmed(&self) -> u64 {
        let slot = self.slot();
        self.database.session().get(&format!(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{slot}'"
        ))
    }

    /// Waits until the slot's confirmed position has reached the end of what is committed now.
    pub fn drained(&self, within: Duration) {
        let session = self.database.session();
        let end: u64 = session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
        eventually(within, &format!("slot {} is confirmed to {end}", self.slot()), || {
            // Others' WAL moves on too: the position may pass the end, and needs not meet it.
            (self.confirmed() >= end).then_some(())
        });
    }

    fn list(&self) -> MutexGuard<'_, Vec<Event>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Many events at once, made by the server.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    pub transactions: u32,
    /// Events of each transaction.
    pub rows: u32,
    /// The events take turns on so many keys, which are this writer's own.
    pub aggregates: u32,
    /// Length of a filling text in the payload.
    pub padding: usize,
}

/// One connection; its transactions are its own.
pub struct Writer<'a> {
    outbox: &'a Outbox<'a>,
    pub session: Session,
    number: u32,
    events: u64,
    pending: Vec<Event>,
    savepoints: BTreeMap<String, usize>,
}

impl Writer<'_> {
    pub fn begin(&mut self) {
        self.session.run("BEGIN");
    }

    /// Inserts one event in the open transaction.
    pub fn event(&mut self, aggregate_type: &str, key: &str) {
        let event = self.next(aggregate_type, key, 0);
        let Event { id, key, value, .. } = &event;
        self.session.run(&format!(
            "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
             VALUES ('{id}', '{aggregate_type}', '{key}', 'happened', '{value}')"
        ));
        self.pending.push(event);
    }

    pub fn savepoint(&mut self, name: &str) {
        self.session.run(&format!("SAVEPOINT {name}"));
        self.savepoints.insert(name.to_owned(), self.pending.len());
    }

    pub fn rollback_to(&mut self, name: &str) {
        self.session.run(&format!("ROLLBACK TO {name}"));
        self.pending.truncate(self.savepoints[name]);
    }

    pub fn commit(&mut self) {
        // Commits of different writers take turns, so that the list is in their order.
        let mut committed = self.outbox.list();
        self.session.run("COMMIT");
        committed.append(&mut self.pending);
        self.savepoints.clear();
    }

    pub fn rollback(&mut self) {
        self.session.run("ROLLBACK");
        self.pending.clear();
        self.savepoints.clear();
    }

    /// One event in a transaction of its own.
    pub fn one(&mut self, aggregate_type: &str, key: &str) {
        self.begin();
        self.event(aggregate_type, key);
        self.commit();
    }

    /// Commits many events of aggregate type `bulk`; other writers may commit in between.
    pub fn bulk(&mut self, bulk: Bulk) {
        let Bulk { transactions, rows, aggregates, padding } = bulk;
        let (writer, first) = (self.number, self.events + 1);
        self.session.run(&format!(
            "DO $$ BEGIN
               FOR t IN 0 .. {transactions} - 1 LOOP
                 INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
                 SELECT (lpad(to_hex({writer}), 8, '0') || '-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
                        'bulk', 'w{writer}-' || n % {aggregates}, 'happened',
                        jsonb_build_object('n', n, 'pad', repeat('x', {padding}))
                 FROM generate_series({first} + t::bigint * {rows}, {first} + (t::bigint + 1) * {rows} - 1) AS n ORDER BY n;
                 COMMIT;
               END LOOP;
             END $$"
        ));
        let mut made = Vec::new();
        for n in first..first + u64::from(transactions) * u64::from(rows) {
            made.push(self.next("bulk", &format!("w{writer}-{}", n % u64::from(aggregates)), padding));
        }
        self.outbox.list().append(&mut made);
    }

    /// Commits many events of aggregate type `bulk` by one COPY.
    pub fn copy(&mut self, rows: u32, aggregates: u32) {
        let key = |n: u32| format!("c{}-{}", self.number, n % aggregates);
        let keys: Vec<String> = (0..rows).map(key).collect();
        let mut made: Vec<Event> = keys.iter().map(|key| self.next("bulk", key, 0)).collect();
        let line = |Event { id, key, value, .. }: &Event| format!("{id}\tbulk\t{key}\thappened\t{value}\n");
        let file = scratch::folder("copy").join("rows");
        fs::write(&file, made.iter().map(line).collect::<String>()).expect("the folder is ours");
        self.session.run(&format!(
            "COPY walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload) FROM '{}'",
            file.display()
        ));
        self.outbox.list().append(&mut made);
    }

    fn next(&mut self, aggregate_type: &str, key: &str, padding: usize) -> Event {
        self.events += 1;
        Event {
            id: format!("{:08x}-0000-4000-8000-{:012x}", self.number, self.events),
            topic: self.outbox.topic(aggregate_type),
            key: key.to_owned(),
            // As PostgreSQL prints jsonb.
            value: format!(r#"{{"n": {}, "pad": "{}"}}"#, self.events, "x".repeat(padding)),
        }
    }
}

fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(value)) => merge(inner, value),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}
