//! Deletes what is published and old enough, and nothing else.
//!
//! A row goes when all of it is true in one snapshot of the database: it passes the publication's row filter; it is
//! [published](crate::postgres::published), for this slot and for every other slot that the table matters to; it occurred
//! before the retention; and it has no open dead letter. What it lacks is counted.
//!
//! No index is asked for. The table is read once, by ranges of block numbers through its root ([`walk`]), each a short
//! transaction of its own; after each the work rests longer than it took. Partitions of which every row may go, and whose time
//! is over, are dropped instead, where the role owns them ([`partition`]).
//!
//! Nothing of this reaches Kafka: the publication publishes inserts, and what has none of those sends nothing. A publication
//! that lets deletes through is warned of, or refused.

mod error;
mod partition;
mod site;
mod walk;

use std::time::{Duration, Instant};

pub use error::Error;
use serde::Serialize;
use site::{SETTINGS, Site};
use walk::{Rows, Walk};

use crate::{
    config::Config,
    pipeline::outbox::{Outbox, TableName},
    postgres::{
        conninfo::ConnInfo,
        sql::{self, Sql},
    },
};

/// What is to be pruned.
#[derive(Clone, Copy, Debug)]
pub struct Order<'c> {
    pub config: &'c Config,
    /// Younger rows stay.
    pub retention: Duration,
    /// Count, and delete nothing.
    pub dry_run: bool,
}

/// What became of the rows of one outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// As SQL writes it.
    pub table: String,
    /// Rows deleted one by one; in a dry run those that would be.
    pub deleted: u64,
    /// Partitions dropped whole, and the rows they had; in a dry run those that would be.
    pub dropped: Vec<Dropped>,
    pub kept: Kept,
    /// Detached and neither dropped nor attached again: the next prune takes them up.
    pub left_detached: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// As SQL writes it.
    pub partition: String,
    pub rows: u64,
}

/// Rows that stay, each counted by the first reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The row filter of the publication leaves them out.
    pub filtered: u64,
    /// Not known to be published.
    pub unproven: u64,
    /// Younger than the retention, or without a time.
    pub young: u64,
    /// Their dead letter is open.
    pub dead_letters: u64,
    /// Somebody else held them locked.
    pub locked: u64,
}

impl Report {
    /// Rows that went, however.
    pub fn rows(&self) -> u64 {
        self.deleted + self.dropped.iter().map(|dropped| dropped.rows).sum::<u64>()
    }

    /// All that may go is gone.
    pub fn is_complete(&self) -> bool {
        self.kept.locked == 0 && self.left_detached.is_empty()
    }
}

/// How far a prune is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub table: &'a TableName,
    /// Blocks read of those that the table has.
    pub blocks: u64,
    pub blocks_total: u64,
    /// Rows that went so far.
    pub rows: u64,
}

/// Prunes one outbox. Cancel safe: a batch that is under way ends at the server, all that is left stays for the next time.
pub async fn prune(
    order: &Order<'_>,
    outbox: &Outbox,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<Report, Error> {
    let mut link = Link::connect(&order.config.database).await?;
    let site = Site::read(&link.sql, order, outbox).await?;
    link.lock(&site).await?;
    let mut report = Report { table: site.table.clone(), ..Report::default() };
    let mut done = Vec::new();
    if site.partitioned {
        done = partition::drop_old(&mut link, &site, order.dry_run, &mut report).await?;
    }
    let rows = Rows { from: site.rows(), blocks: blocks(&link, &site).await? };
    let only = (!done.is_empty()).then(|| format!("o.tableoid <> all ('{{{}}}')", comma_separated(&done)));
    let mut walk = Walk::new(&site, &rows, !order.dry_run, only);
    let dropped = report.rows();
    while walk.step(&mut link).await? {
        progress(Progress {
            table: &outbox.name,
            blocks: walk.at(),
            blocks_total: rows.blocks,
            rows: dropped + walk.tally.prunable,
        });
    }
    report.deleted = walk.tally.prunable;
    report.kept = Kept { locked: report.kept.locked + walk.tally.kept.locked, ..walk.tally.kept };
    Ok(report)
}

/// Whether an outbox could be pruned now.
pub async fn examine(order: &Order<'_>, outbox: &Outbox) -> Result<(), Error> {
    let link = Link::connect(&order.config.database).await?;
    Site::read(&link.sql, order, outbox).await.map(|_| ())
}

fn comma_separated(oids: &[u32]) -> String {
    oids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Blocks of the largest partition, or of the table.
async fn blocks(link: &Link, site: &Site) -> Result<u64, Error> {
    let blocks: i64 = link
        .sql
        .query_one(
            "select coalesce(max(pg_relation_size(coalesce(leaf.relid, c.oid)) / current_setting('block_size')::bigint), 0)
             from pg_class c left join lateral pg_partition_tree(c.oid) leaf on leaf.isleaf where c.oid = $1",
            &[&site.oid],
        )
        .await?
        .try_get(0)?;
    Ok(blocks.unsigned_abs())
}

/// The connection. It is made anew now and then, because a lasting one holds up a smart shutdown of the server (G8).
struct Link {
    at: ConnInfo,
    sql: Sql,
    since: Instant,
}

const LINK_AGE_MAX: Duration = Duration::from_secs(10);

impl Link {
    async fn connect(at: &ConnInfo) -> Result<Link, Error> {
        let sql = sql::connect(at).await?;
        sql.batch_execute(SETTINGS).await?;
        Ok(Link { at: at.clone(), sql, since: Instant::now() })
    }

    /// Between two pieces of work.
    async fn renew(&mut self, site: &Site) -> Result<(), Error> {
        if self.since.elapsed() < LINK_AGE_MAX {
            return Ok(());
        }
        self.sql.batch_execute("select pg_advisory_unlock_all()").await?;
        *self = Link::connect(&self.at).await?;
        self.lock(site).await
    }

    /// One prune of a table at a time. The lock goes with the connection.
    async fn lock(&self, site: &Site) -> Result<(), Error> {
        // "walp", so that it meets no lock of others.
        const SPACE: i32 = 0x7761_6c70;
        let key = site.oid as i32;
        let got: bool = self.sql.query_one("select pg_try_advisory_lock($1, $2)", &[&SPACE, &key]).await?.try_get(0)?;
        if got {
            return Ok(());
        }
        let holder = self
            .sql
            .query_opt(
                "select pid from pg_locks where locktype = 'advisory' and granted and classid = $1::int::oid
                 and objid = $2::oid and objsubid = 2
                 and database = (select oid from pg_database where datname = current_database())",
                &[&SPACE, &site.oid],
            )
            .await?;
        let pid = holder.map(|row| row.try_get(0)).transpose()?;
        Err(Error::Busy { table: site.table.clone(), pid })
    }
}
