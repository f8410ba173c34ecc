//! Rows of the outbox are marked or deleted once their events are published (`after_publish`), before that is confirmed.
//!
//! An event's ticket is acknowledged to the pipeline when its mark is durable, as a dead letter's is when its row is. So a
//! crash never leaves a published row unmarked behind the slot: what was not marked is streamed again, or passed over
//! (exactly once), and marked then. What waits for its mark is in flight, and bounded as that is (G4).
//!
//! Marks gather while a batch is under way. The connection is kept while there is work, a few seconds at most: a lasting
//! one would hold up a smart shutdown of the server (G8).

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use super::job::{Job, Trouble};
use crate::{
    chain::Chain,
    config::Config,
    pipeline::{Ticket, outbox::TableName},
    postgres::{
        self,
        conninfo::ConnInfo,
        mark::{Fate, Marker, Unmarkable},
        sql::{self, Sql},
    },
};

/// Most rows of a batch.
const ROWS_MAX: usize = 5000;
/// How long marks are left alone that cannot be made.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a connection is used.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(5);
/// A lock that somebody holds for longer is told as trouble, and asked for again. Rows that row security would hide are an
/// error.
const SETTINGS: &str = "set lock_timeout = '5s'; set row_security = off";

/// The tables whose rows are marked; none: all are kept as they are.
pub(super) type Markers = Arc<Vec<(TableName, Marker)>>;

pub(super) struct Marks {
    at: ConnInfo,
    markers: Markers,
    /// How long marks gather.
    linger: Duration,
    /// Events under way.
    pending: HashMap<Ticket, Row>,
    /// Events whose fate is known, and since when the first is.
    known: Vec<(Ticket, Row)>,
    since: Option<Instant>,
    job: Job<Batch>,
    connection: Option<Connection>,
    again: Option<Instant>,
    trouble: Trouble,
}

struct Row {
    /// Index among the markers.
    marker: usize,
    id: String,
    fate: Fate,
}

struct Connection {
    sql: Sql,
    since: Instant,
}

/// What a task brings back.
struct Batch {
    rows: Vec<(Ticket, Row)>,
    result: Result<Connection, postgres::Error>,
}

/// The tables whose rows are to be marked.
pub(super) async fn markers(config: &Config, client: &Client) -> Result<Markers, Unmarkable> {
    let mut markers = Vec::new();
    for outbox in &config.outboxes {
        if let Some(marker) = Marker::read(client, outbox, &config.publication, config.on_update).await? {
            markers.push((outbox.name.clone(), marker));
        }
    }
    Ok(Arc::new(markers))
}

/// Marks rows as published, whose dead letters are: the outbox as SQL writes it, and the event's id.
pub(super) async fn mark_replayed(
    at: &ConnInfo,
    markers: &Markers,
    letters: &[(String, String)],
) -> Result<(), postgres::Error> {
    let sql = connect(at).await?;
    for (name, marker) in markers.iter() {
        let name = name.to_string();
        let ids: Vec<&str> = letters.iter().filter(|(table, _)| *table == name).map(|(_, id)| id.as_str()).collect();
        if !ids.is_empty() {
            marker.published(&sql, &ids).await?;
        }
    }
    Ok(())
}

async fn connect(at: &ConnInfo) -> Result<Sql, postgres::Error> {
    let sql = sql::connect(at).await?;
    sql.batch_execute(SETTINGS).await?;
    Ok(sql)
}

impl Marks {
    pub(super) fn new(config: &Config, server: &ConnInfo, markers: Markers) -> Marks {
        Marks {
            at: server.clone(),
            markers,
            linger: config.confirm_interval,
            pending: HashMap::new(),
            known: Vec::new(),
            since: None,
            job: Job::default(),
            connection: None,
            again: None,
            trouble: Trouble::default(),
        }
    }

    /// Why rows cannot be marked.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// An event of this table was taken from the stream. Published is what it will be, unless told otherwise.
    pub(super) fn taken(&mut self, ticket: Ticket, table: &TableName, id: &[u8]) {
        if let Some(marker) = self.markers.iter().position(|(name, _)| name == table) {
            let id = String::from_utf8_lossy(id).into_owned();
            self.pending.insert(ticket, Row { marker, id, fate: Fate::Published });
        }
    }

    /// The event ends among the dead letters.
    pub(super) fn dead(&mut self, ticket: Ticket, reason: &str, attempts: i32) {
        if let Some(row) = self.pending.get_mut(&ticket) {
            row.fate = Fate::Dead { reason: reason.to_owned(), attempts };
        }
    }

    /// Kafka has the event, or it is a durable dead letter. False: there is nothing to mark, acknowledge it.
    pub(super) fn settles(&mut self, ticket: Ticket) -> bool {
        let Some(row) = self.pending.remove(&ticket) else { return false };
        self.since.get_or_insert_with(Instant::now);
        self.known.push((ticket, row));
        true
    }

    /// Starts a batch that is due.
    pub(super) fn work(&mut self) {
        let now = Instant::now();
        if self.job.is_under_way() || self.again.is_some_and(|again| now < again) {
            return;
        }
        let due = self.since.is_some_and(|since| now >= since + self.linger) || self.known.len() >= ROWS_MAX;
        if due {
            self.again = None;
            let rest = self.known.split_off(self.known.len().min(ROWS_MAX));
            let rows = std::mem::replace(&mut self.known, rest);
            self.since = (!self.known.is_empty()).then_some(now);
            let fresh = |connection: &Connection| connection.since.elapsed() < CONNECTION_AGE_MAX;
            let connection = self.connection.take().filter(fresh);
            self.job = Job::of(mark(self.at.clone(), Arc::clone(&self.markers), connection, rows));
        }
    }

    /// Waits until a batch has ended, or until there may be work; gives the tickets that are done with. Cancel safe.
    pub(super) async fn ready(&mut self) -> Vec<Ticket> {
        if self.job.is_under_way() {
            let batch = self.job.ended().await;
            return self.marked(batch);
        }
        let work = self.since.map(|since| (since + self.linger).max(self.again.unwrap_or(since)));
        let close = self.connection.as_ref().map(|connection| connection.since + CONNECTION_AGE_MAX);
        match work.or(close) {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
        if work.is_none() {
            self.connection = None;
        }
        Vec::new()
    }

    fn marked(&mut self, Batch { rows, result }: Batch) -> Vec<Ticket> {
        match result {
            Ok(connection) => {
                self.trouble.is_over("rows of the outbox can be marked again");
                self.connection = Some(connection);
                rows.into_iter().map(|(ticket, _)| ticket).collect()
            }
            Err(error) => {
                let why = Chain(&error);
                self.trouble.is(format!("published rows cannot be marked (after_publish), the stream waits: {why}"));
                let now = Instant::now();
                self.known.splice(..0, rows);
                self.since.get_or_insert(now);
                self.again = Some(now + AGAIN);
                Vec::new()
            }
        }
    }
}

async fn mark(at: ConnInfo, markers: Markers, connection: Option<Connection>, rows: Vec<(Ticket, Row)>) -> Batch {
    let result = async {
        let connection = match connection {
            Some(connection) => connection,
            None => Connection { sql: connect(&at).await?, since: Instant::now() },
        };
        for (index, (_, marker)) in markers.iter().enumerate() {
            let of_table = || rows.iter().map(|(_, row)| row).filter(|row| row.marker == index);
            let published: Vec<&str> =
                of_table().filter(|row| row.fate == Fate::Published).map(|row| row.id.as_str()).collect();
            let dead: Vec<_> = of_table()
                .filter_map(|row| match &row.fate {
                    Fate::Published => None,
                    Fate::Dead { reason, attempts } => Some((row.id.as_str(), reason.as_str(), *attempts)),
                })
                .collect();
            if !published.is_empty() {
                marker.published(&connection.sql, &published).await?;
            }
            if !dead.is_empty() {
                marker.dead(&connection.sql, &dead).await?;
            }
        }
        Ok(connection)
    };
    let result = result.await;
    Batch { rows, result }
}
