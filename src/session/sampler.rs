//! Looks at the server's side every few seconds: how far its log is, what the slot holds back, whether the outboxes
//! are still published, whether the server goes down.
//!
//! Each look is a connection of its own, closed at once. A lasting one would hold up a smart shutdown, and would not
//! learn of one: a walsender lives until the log is drained, while new connections are refused from the first moment
//! (`57P03`). A server that has our walsender and refuses new connections is going down, not coming up.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::{job::Job, slot::invalidation};
use crate::{
    config::Config,
    pipeline::{
        Lsn,
        outbox::{Format, Outbox, TableName},
    },
    postgres::{
        self, ErrorKind,
        bookmark::Bookmark,
        conninfo::ConnInfo,
        quote::{ident, qualified},
        sql,
        unproven::Unproven,
    },
    setup::names,
};

const INTERVAL: Duration = Duration::from_secs(5);
/// The second look comes soon: only after our first status does the server tell whether it takes us for a synchronous
/// standby.
const SOON: Duration = Duration::from_millis(500);
/// A look that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the question may take what is not proven, and how long at least until it is asked again: it reads whole tables.
const UNPROVEN_LIMIT: Duration = Duration::from_secs(1);
const UNPROVEN_INTERVAL: Duration = Duration::from_secs(30);
/// Where it took too long, it is asked ever more seldom.
const UNPROVEN_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// What the server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// End of the server's log.
    pub(super) wal: Lsn,
    /// The slot's confirmed position.
    pub(super) confirmed: Lsn,
    /// Why there is nothing to stream from any more.
    pub(super) lost: Option<String>,
    pub(super) retained_bytes: u64,
    pub(super) safe_bytes: Option<u64>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub(super) wal_status: Option<String>,
    /// `pg_stat_replication.sync_state` of our walsender.
    pub(super) sync_state: Option<String>,
    /// The slot's bookmarks, the oldest position first.
    pub(super) bookmarks: Vec<Bookmark>,
    /// What is not proven published; none: it was not asked this time, or there is no answer.
    pub(super) unproven: Option<Unproven>,
    /// The outboxes that the publication has.
    pub(super) published: Vec<TableName>,
    /// Partitioned outboxes whose rows the publication would give the names of their partitions.
    pub(super) by_partition: Vec<TableName>,
    /// Tables that have the name of an outbox.
    pub(super) existing: Vec<TableName>,
    /// What is published by now and how, in one text; none: nobody wants to know.
    pub(super) covered: Option<String>,
}

impl Sample {
    /// The first outbox of which inserts are not streamed, and what mends that.
    pub(super) fn gap(&self, config: &Config) -> Option<String> {
        // A connector's table may be gone, and only the log have its rows.
        let is_there =
            |outbox: &&Outbox| !matches!(outbox.format, Format::Debezium(_)) || self.existing.contains(&outbox.name);
        config.outboxes.iter().filter(is_there).find_map(|Outbox { name, .. }| {
            let (publication, table) = (ident(&config.publication), qualified(&name.schema, &name.table));
            if self.by_partition.contains(name) {
                Some(format!(
                    "publication {publication} does not publish outbox {table} through its root: its events are not \
                     streamed; ALTER PUBLICATION {publication} SET (publish_via_partition_root = true), then send what was \
                     inserted meanwhile"
                ))
            } else if !self.published.contains(name) {
                Some(format!(
                    "inserts of outbox {table} are not in publication {publication}: its events are not streamed; \
                     ALTER PUBLICATION {publication} ADD TABLE {table}, or SET (publish = 'insert'), then send what was \
                     inserted meanwhile"
                ))
            } else {
                None
            }
        })
    }
}

/// A task that looks; it ends with its owner.
pub(super) struct Sampler {
    samples: mpsc::Receiver<Result<Sample, postgres::Error>>,
    _job: Job<()>,
}

impl Sampler {
    /// Looks at `server`, which streams to us: another host of the connection string knows nothing of it.
    /// `published`: the query of what is published and how, where there is a proof for which that matters.
    pub(super) fn start(config: &Config, server: ConnInfo, published: Option<String>) -> Sampler {
        let (sender, samples) = mpsc::channel(1);
        let mut look = Look {
            server,
            slot: config.slot.clone(),
            publication: config.publication.clone(),
            home: names::home(config).to_owned(),
            outboxes: config.outboxes.clone(),
            covered: published.map(|published| {
                format!(
                    "SELECT coalesce(pg_catalog.string_agg(relation || ' ' || how, ', ' ORDER BY relation), '') \
                     FROM ({published}) now"
                )
            }),
            unproven_due: Instant::now(),
            unproven_interval: UNPROVEN_INTERVAL,
        };
        let job = Job::of(async move {
            let mut pause = SOON;
            loop {
                if sender.send(look.take().await).await.is_err() {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = INTERVAL;
            }
        });
        Sampler { samples, _job: job }
    }

    /// The next sample. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Sample, postgres::Error> {
        self.samples.recv().await.expect("the task ends with its owner")
    }
}

/// Whether the server refuses connections because it goes down.
pub(super) fn is_shutdown(error: &postgres::Error) -> bool {
    error.kind() == ErrorKind::ServerStopping || error.sqlstate() == Some("57P03")
}

struct Look {
    server: ConnInfo,
    slot: String,
    publication: String,
    home: String,
    outboxes: Vec<Outbox>,
    /// The question what is published, and how.
    covered: Option<String>,
    unproven_due: Instant,
    unproven_interval: Duration,
}

impl Look {
    async fn take(&mut self) -> Result<Sample, postgres::Error> {
        match tokio::time::timeout(PATIENCE, self.query()).await {
            Ok(sample) => sample,
            Err(_) => Err(postgres::Error::Closed),
        }
    }

    /// Asked now and then.
    async fn unproven(&mut self, client: &Client) -> Option<Unproven> {
        let now = Instant::now();
        if now < self.unproven_due {
            return None;
        }
        let answer = Unproven::read(client, &self.home, &self.slot, &self.outboxes, UNPROVEN_LIMIT).await;
        let unproven = answer.unwrap_or_else(|error| {
            tracing::debug!(%error, "what is not proven published is not known");
            None
        });
        self.unproven_interval = match unproven {
            Some(_) => UNPROVEN_INTERVAL,
            None => (self.unproven_interval * 2).min(UNPROVEN_INTERVAL_MAX),
        };
        self.unproven_due = now + self.unproven_interval;
        unproven
    }

    async fn query(&mut self) -> Result<Sample, postgres::Error> {
        let client = sql::connect(&self.server).await?;
        let tables: Vec<&str> = self.outboxes.iter().map(|outbox| outbox.name.table.as_str()).collect();
        let row = client
            .query_one(
                "WITH published AS ( \
                   SELECT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables t \
                   JOIN pg_catalog.pg_publication p USING (pubname) \
                   WHERE pubname = $2 AND p.pubinsert AND tablename = ANY ($3) \
                 ), by_partition AS ( \
                   SELECT nspname::text AS schema, relname::text AS name FROM pg_catalog.pg_class \
                   JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace \
                   WHERE relkind = 'p' AND relname = ANY ($3) \
                   AND EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = $2 AND NOT pubviaroot) \
                 ), existing AS ( \
                   SELECT nspname::text AS schema, relname::text AS name FROM pg_catalog.pg_class \
                   JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace \
                   WHERE relkind IN ('r', 'p') AND relname = ANY ($3) \
                 ), log AS ( \
                   SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn() \
                     ELSE pg_catalog.pg_current_wal_lsn() END AS lsn \
                 ) \
                 SELECT log.lsn::text, slot.confirmed_flush_lsn::text, \
                   greatest(log.lsn - slot.restart_lsn, 0)::bigint, slot.safe_wal_size, \
                   (SELECT sync_state FROM pg_catalog.pg_stat_replication WHERE pid = slot.active_pid), \
                   ARRAY(SELECT schemaname FROM published), ARRAY(SELECT tablename FROM published), \
                   ARRAY(SELECT schema FROM by_partition), ARRAY(SELECT name FROM by_partition), \
                   slot.slot_name IS NOT NULL, slot.wal_status, to_jsonb(slot) ->> 'invalidation_reason', \
                   ARRAY(SELECT schema FROM existing), ARRAY(SELECT name FROM existing) \
                 FROM log LEFT JOIN pg_catalog.pg_replication_slots slot ON slot.slot_name = $1",
                &[&self.slot, &self.publication, &tables],
            )
            .await?;
        let lsn = |column: usize| {
            let text: Option<String> = row.get(column);
            text.and_then(|text| text.parse::<Lsn>().ok()).unwrap_or_default()
        };
        let tables = |schemas: usize, names: usize| {
            let (schemas, names): (Vec<String>, Vec<String>) = (row.get(schemas), row.get(names));
            std::iter::zip(schemas, names).map(|(schema, table)| TableName { schema, table }).collect()
        };
        let covered = match &self.covered {
            Some(covered) => Some(client.query_one(covered, &[]).await?.try_get(0)?),
            None => None,
        };
        let lost = match row.get(9) {
            true => invalidation(row.get(10), row.get(11)),
            false => Some("it was dropped".to_owned()),
        };
        let wal_status = row.get(10);
        Ok(Sample {
            lost,
            wal_status,
            wal: lsn(0),
            confirmed: lsn(1),
            retained_bytes: row.get::<_, Option<i64>>(2).unwrap_or(0).unsigned_abs(),
            safe_bytes: row.get::<_, Option<i64>>(3).map(|bytes| u64::try_from(bytes).unwrap_or(0)),
            sync_state: row.get(4),
            bookmarks: Bookmark::all(&client, client.major(), &self.slot).await?,
            unproven: self.unproven(&client).await,
            published: tables(5, 6),
            by_partition: tables(7, 8),
            existing: tables(12, 13),
            covered,
        })
    }
}
