//! Partitions that go whole.
//!
//! A partition of a table that is partitioned by ranges of `occurred_at` goes when its range ends before the retention and
//! every row of it may go. It is counted while it is attached, detached, counted again when nobody can reach it any more,
//! and dropped in the transaction of a third count under an exclusive lock; else it is attached again (a row may have been
//! inserted until the moment it was detached).
//!
//! Between detaching and dropping it has a comment that says from what and with which bounds it was detached. What a crash
//! leaves behind is known by that, and the next prune goes on with it.
//!
//! To detach concurrently locks out nobody, but PostgreSQL cannot where there is a default partition. Then the root is locked,
//! for which it waits a tenth of a second at a time: whoever inserts waits behind it.

use std::time::Duration;

use super::{
    Dropped, Error, Link, Report,
    site::{Class, Site, texts},
    walk::{Pace, Rows, Walk, is_locked},
};
use crate::{
    chain::Chain,
    postgres::{self, quote::literal},
};

const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);
/// For the lock on the root, behind which writers wait.
const SHORT: &str = "set local lock_timeout = '100ms'";

struct Partition {
    oid: u32,
    /// As SQL writes it.
    name: String,
    owned: bool,
    rows: Rows,
    /// `FOR VALUES …`
    bound: String,
    /// Its range ends before the retention.
    over: bool,
    /// A concurrent detach was cut off.
    pending: bool,
    comment: Option<String>,
}

/// How a partition came off the root.
enum Detached {
    Yes,
    Locked,
    /// Off, but not through with it.
    Pending,
}

/// Drops what may go whole, and takes up what an earlier prune left. Gives the partitions whose rows are not to be looked at
/// again.
pub(super) async fn drop_old(
    link: &mut Link,
    site: &Site,
    dry_run: bool,
    report: &mut Report,
) -> Result<Vec<u32>, Error> {
    let Some(has_default) = by_time(link, site).await? else { return Ok(Vec::new()) };
    let mut done = Vec::new();
    if site.owned {
        if !dry_run {
            finalize(link, site, report).await?;
        }
        for orphan in orphans(link, site).await? {
            match dry_run {
                true => match count(link, site, &orphan.rows).await? {
                    Some(rows) => report.dropped.push(Dropped { partition: orphan.name, rows }),
                    None => report.left_detached.push(orphan.name),
                },
                false => settle(link, site, &orphan, report).await?,
            }
        }
    }
    for partition in attached(link, site).await?.iter().filter(|partition| partition.over && !partition.pending) {
        if !site.owned || !partition.owned {
            tracing::info!(
                "only the owner of {} and {} may detach and drop it: its rows are deleted instead",
                site.table,
                partition.name
            );
            continue;
        }
        let Some(rows) = count(link, site, &partition.rows).await? else { continue };
        if dry_run {
            report.dropped.push(Dropped { partition: partition.name.clone(), rows });
            done.push(partition.oid);
            continue;
        }
        match detach(link, site, partition, has_default).await? {
            Detached::Yes => settle(link, site, partition, report).await?,
            Detached::Locked => {
                tracing::warn!("{} is in use and stays attached: long transactions hold it", partition.name);
                report.kept.locked += rows;
                done.push(partition.oid);
            }
            Detached::Pending => {
                tracing::warn!("{} is in use: the next prune detaches it to the end", partition.name);
                report.left_detached.push(partition.name.clone());
            }
        }
    }
    Ok(done)
}

/// Whether there is a default partition. None: the root is not partitioned by ranges of `occurred_at`.
async fn by_time(link: &Link, site: &Site) -> Result<Option<bool>, Error> {
    let row = link
        .sql
        .query_opt(
            "select partdefid <> 0 from pg_partitioned_table
             join pg_attribute on attrelid = partrelid and attnum = partattrs[0]
             where partrelid = $1 and partstrat = 'r' and partnatts = 1 and attname = $2",
            &[&site.oid, &site.occurred_at],
        )
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn attached(link: &Link, site: &Site) -> Result<Vec<Partition>, Error> {
    let rows = link
        .sql
        .query(
            r"select c.oid, format('%I.%I', n.nspname, c.relname), pg_has_role(c.relowner, 'USAGE'), bound, inhdetachpending,
                     coalesce(substring(bound from ' TO \(''([^'']*)''\)$')::timestamptz <= $2::text::timestamptz, false),
                     pg_relation_size(c.oid) / current_setting('block_size')::bigint, obj_description(c.oid, 'pg_class')
              from pg_inherits join pg_class c on c.oid = inhrelid join pg_namespace n on n.oid = relnamespace,
                   lateral (select pg_get_expr(relpartbound, c.oid)) as b (bound)
              where inhparent = $1 and relkind = 'r' order by bound",
            &[&site.oid, &site.cutoff],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let name: String = row.try_get(1)?;
            Ok(Partition {
                oid: row.try_get(0)?,
                rows: Rows { from: format!("only {name} o"), blocks: row.try_get::<_, i64>(6)?.unsigned_abs() },
                name,
                owned: row.try_get(2)?,
                bound: row.try_get(3)?,
                pending: row.try_get(4)?,
                over: row.try_get(5)?,
                comment: row.try_get(7)?,
            })
        })
        .collect()
}

/// How the comment begins; bounds follow, then on lines of their own the comment that it had.
fn mark(site: &Site) -> String {
    format!("detached by walpost prune from {} ", site.table)
}

async fn orphans(link: &Link, site: &Site) -> Result<Vec<Partition>, Error> {
    let mark = mark(site);
    let rows = link
        .sql
        .query(
            "select c.oid, format('%I.%I', n.nspname, c.relname), description,
                    pg_relation_size(c.oid) / current_setting('block_size')::bigint
             from pg_description join pg_class c on c.oid = objoid join pg_namespace n on n.oid = relnamespace
             where classoid = 'pg_class'::regclass and objsubid = 0 and starts_with(description, $1)
             and relkind = 'r' and not relispartition and pg_has_role(c.relowner, 'USAGE') order by 2",
            &[&format!("{mark}FOR VALUES ")],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let (name, description): (String, String) = (row.try_get(1)?, row.try_get(2)?);
            let (bound, comment) = unmarked(&description[mark.len()..]);
            Ok(Partition {
                oid: row.try_get(0)?,
                rows: Rows { from: format!("only {name} o"), blocks: row.try_get::<_, i64>(3)?.unsigned_abs() },
                name,
                owned: true,
                bound: bound.to_owned(),
                over: true,
                pending: false,
                comment: comment.map(str::to_owned),
            })
        })
        .collect()
}

/// Bounds, and the comment that was there before.
fn unmarked(text: &str) -> (&str, Option<&str>) {
    match text.split_once('\n') {
        Some((bound, comment)) => (bound, Some(comment)),
        None => (text, None),
    }
}

fn comment(partition: &Partition, comment: Option<&str>) -> String {
    format!("comment on table {} is {}", partition.name, comment.map_or("null".to_owned(), literal))
}

fn marked(site: &Site, partition: &Partition) -> String {
    let before = partition.comment.as_ref().map_or(String::new(), |before| format!("\n{before}"));
    comment(partition, Some(&format!("{}{}{before}", mark(site), partition.bound)))
}

/// Ends what was cut off while it detached concurrently.
async fn finalize(link: &Link, site: &Site, report: &mut Report) -> Result<(), Error> {
    let mark = mark(site);
    for partition in attached(link, site).await? {
        let Some(own) = partition.comment.as_deref().and_then(|comment| comment.strip_prefix(&mark)) else { continue };
        if !partition.pending {
            // It did not come to detaching.
            link.sql.batch_execute(&comment(&partition, unmarked(own).1)).await?;
            continue;
        }
        let statement = format!("alter table {} detach partition {} finalize", site.table, partition.name);
        match execute(link, &statement).await {
            Ok(()) => {}
            Err(error) if is_locked(&error) => report.left_detached.push(partition.name),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn detach(link: &Link, site: &Site, partition: &Partition, has_default: bool) -> Result<Detached, Error> {
    let detach = format!("alter table {} detach partition {}", site.table, partition.name);
    let marked = marked(site, partition);
    if has_default {
        for _ in 0..ATTEMPTS {
            match execute(link, &format!("begin; {SHORT}; {detach}; {marked}; commit")).await {
                Ok(()) => return Ok(Detached::Yes),
                Err(error) if is_locked(&error) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
        return Ok(Detached::Locked);
    }
    execute(link, &marked).await?;
    // Alone, because it may not be in a transaction. Nobody waits behind it.
    execute(link, "set lock_timeout = '10s'").await?;
    let detached = execute(link, &format!("{detach} concurrently")).await;
    execute(link, "set lock_timeout = '1s'").await?;
    match detached {
        Ok(()) => Ok(Detached::Yes),
        Err(error) if is_locked(&error) => {
            let now = attached(link, site).await?;
            match now.iter().find(|now| now.oid == partition.oid) {
                Some(now) if now.pending => Ok(Detached::Pending),
                Some(_) => {
                    execute(link, &comment(partition, partition.comment.as_deref())).await?;
                    Ok(Detached::Locked)
                }
                None => Ok(Detached::Yes),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Drops a detached partition, or attaches it again.
async fn settle(link: &mut Link, site: &Site, partition: &Partition, report: &mut Report) -> Result<(), Error> {
    if count(link, site, &partition.rows).await?.is_some() {
        forget_keys(link, site, &partition.rows).await?;
        match drop_table(link, site, partition).await {
            Ok(Some(rows)) => {
                report.dropped.push(Dropped { partition: partition.name.clone(), rows });
                return Ok(());
            }
            Ok(None) => {}
            Err(Error::Postgres(error)) if error.sqlstate().is_some() => {
                tracing::warn!("{} cannot be dropped: {}", partition.name, Chain(&error));
            }
            Err(error) => return Err(error),
        }
    }
    let attach = format!("alter table {} attach partition {} {}", site.table, partition.name, partition.bound);
    let before = comment(partition, partition.comment.as_deref());
    match execute(link, &format!("begin; set local lock_timeout = '1s'; {attach}; {before}; commit")).await {
        Ok(()) => tracing::info!("{} has rows that stay, and is attached again", partition.name),
        Err(error) if error.sqlstate().is_some() => {
            tracing::warn!(
                "{} has rows that stay and cannot be attached again ({}): the next prune tries again, and drops it once all \
                 of its rows may go",
                partition.name,
                Chain(&error)
            );
            report.left_detached.push(partition.name.clone());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// How many rows it has, if all of them may go.
async fn count(link: &mut Link, site: &Site, rows: &Rows) -> Result<Option<u64>, Error> {
    let mut walk = Walk::new(site, rows, false, None);
    while walk.step(link).await? {
        if walk.tally.kept_any() {
            return Ok(None);
        }
    }
    Ok(Some(walk.tally.prunable))
}

async fn forget_keys(link: &mut Link, site: &Site, rows: &Rows) -> Result<(), Error> {
    let mut pace = Pace::new(rows.blocks);
    while let Some(span) = pace.span() {
        let Some(statement) = site.forget(&rows.from, &span) else { break };
        link.renew(site).await?;
        pace.work(async { execute(link, &statement).await.map_err(Error::from) }).await?;
    }
    Ok(())
}

/// None: not all of its rows may go.
async fn drop_table(link: &Link, site: &Site, partition: &Partition) -> Result<Option<u64>, Error> {
    execute(link, &format!("begin; lock table {} in access exclusive mode", partition.name)).await?;
    let mut rows = 0;
    for class in texts(&link.sql, &site.count(&partition.rows.from, "true")).await? {
        let [Some(class), Some(count)] = &class[..] else { continue };
        if Class::of(class) != Some(Class::Prunable) {
            execute(link, "rollback").await?;
            return Ok(None);
        }
        rows = count.parse().expect("the server counts");
    }
    execute(link, &format!("drop table {}", partition.name)).await?;
    execute(link, "commit").await?;
    Ok(Some(rows))
}

/// Leaves no transaction open when it fails.
async fn execute(link: &Link, statements: &str) -> Result<(), postgres::Error> {
    let done = link.sql.batch_execute(statements).await;
    if done.is_err() {
        // Of the connection nothing is left if this fails too.
        let _ = link.sql.batch_execute("rollback").await;
    }
    Ok(done?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comment_that_was_there_comes_back() {
        assert_eq!(unmarked("FOR VALUES FROM (1) TO (2)"), ("FOR VALUES FROM (1) TO (2)", None));
        assert_eq!(
            unmarked("FOR VALUES IN (1)\nmine\nof two lines"),
            ("FOR VALUES IN (1)", Some("mine\nof two lines"))
        );
    }
}
