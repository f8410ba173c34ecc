//! Batches: ranges of block numbers, one after the other.
//!
//! A range of `ctid`s is read by a scan of just these blocks, in every partition at once when it goes through the root, so
//! no row is read twice and no batch reads more than its blocks. The range adapts to what a batch takes; the rest after it is
//! in proportion, so on a busy server prune becomes slower and not the writers.

use std::time::{Duration, Instant};

use super::{
    Error, Kept, Link,
    site::{Class, Site, texts},
};
use crate::postgres;

/// What a batch should take.
const BATCH: Duration = Duration::from_millis(10);
/// The rest after a batch, in its own length.
const REST: u32 = 2;
const REST_MAX: Duration = Duration::from_secs(1);
const BLOCKS_FIRST: u64 = 16;
const BLOCKS_MAX: u64 = 4096;

/// What is walked through.
pub(super) struct Rows {
    /// As `FROM` has it, under the name `o`.
    pub(super) from: String,
    pub(super) blocks: u64,
}

/// Rows seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Deleted, or counted where nothing is deleted.
    pub(super) prunable: u64,
    pub(super) kept: Kept,
}

impl Tally {
    fn add(&mut self, class: Class, rows: u64) {
        let count = match class {
            Class::Filtered => &mut self.kept.filtered,
            Class::Unproven => &mut self.kept.unproven,
            Class::Young => &mut self.kept.young,
            Class::Letter => &mut self.kept.dead_letters,
            Class::Prunable => &mut self.prunable,
        };
        *count += rows;
    }

    pub(super) fn kept_any(&self) -> bool {
        self.kept != Kept::default()
    }
}

/// Ranges of blocks, and the rests between them.
pub(super) struct Pace {
    next: u64,
    size: u64,
    end: u64,
}

impl Pace {
    pub(super) fn new(blocks: u64) -> Pace {
        Pace { next: 0, size: BLOCKS_FIRST, end: blocks }
    }

    /// The next blocks, as a condition on row `o`; none are left, when there is none.
    pub(super) fn span(&self) -> Option<String> {
        let until = self.until();
        (self.next < self.end).then(|| format!("o.ctid >= '({},0)' and o.ctid < '({until},0)'", self.next))
    }

    /// Does the work on these blocks, and rests.
    pub(super) async fn work<T>(&mut self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let start = Instant::now();
        let done = work.await?;
        let took = start.elapsed();
        self.next = self.until();
        if took > BATCH * 2 {
            self.size = (self.size / 2).max(1);
        } else if took < BATCH / 2 {
            self.size = (self.size * 2).min(BLOCKS_MAX);
        }
        tokio::time::sleep((took * REST).min(REST_MAX)).await;
        Ok(done)
    }

    fn until(&self) -> u64 {
        (self.next + self.size).min(self.end)
    }
}

/// Looks at the rows of a table once, and deletes what is prunable.
pub(super) struct Walk<'s> {
    site: &'s Site,
    rows: &'s Rows,
    deletes: bool,
    /// A further condition on the rows.
    only: Option<String>,
    pace: Pace,
    pub(super) tally: Tally,
}

impl<'s> Walk<'s> {
    pub(super) fn new(site: &'s Site, rows: &'s Rows, deletes: bool, only: Option<String>) -> Walk<'s> {
        Walk { site, rows, deletes, only, pace: Pace::new(rows.blocks), tally: Tally::default() }
    }

    /// Blocks that are done.
    pub(super) fn at(&self) -> u64 {
        self.pace.next
    }

    /// Does a batch and rests. False: there was none left.
    pub(super) async fn step(&mut self, link: &mut Link) -> Result<bool, Error> {
        let Some(mut span) = self.pace.span() else { return Ok(false) };
        if let Some(only) = &self.only {
            span = format!("{span} and {only}");
        }
        link.renew(self.site).await?;
        let Walk { site, rows, deletes, pace, tally, .. } = self;
        pace.work(batch(link, site, &rows.from, &span, *deletes, tally)).await?;
        Ok(true)
    }
}

async fn batch(
    link: &Link,
    site: &Site,
    from: &str,
    span: &str,
    deletes: bool,
    tally: &mut Tally,
) -> Result<(), Error> {
    let mut prunable = 0;
    for [class, rows] in pairs(texts(&link.sql, &site.count(from, span)).await?) {
        let rows = rows.parse().expect("the server counts");
        match Class::of(&class).expect("the expression has no other words") {
            Class::Prunable => prunable = rows,
            kept => tally.add(kept, rows),
        }
    }
    if !deletes || prunable == 0 {
        tally.add(Class::Prunable, prunable);
        return Ok(());
    }
    match texts(&link.sql, &site.delete(from, span)).await {
        Ok(deleted) => {
            let count = deleted.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
            tally.add(Class::Prunable, count.expect("the server counts"));
        }
        Err(Error::Postgres(error)) if is_locked(&error) => {
            tracing::debug!(%error, "a batch is passed over");
            tally.kept.locked += prunable;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Somebody holds a lock that is not waited for.
pub(super) fn is_locked(error: &postgres::Error) -> bool {
    // lock_not_available, deadlock_detected
    matches!(error.sqlstate(), Some("55P03" | "40P01"))
}

fn pairs(rows: Vec<Vec<Option<String>>>) -> impl Iterator<Item = [String; 2]> {
    rows.into_iter().map(|row| {
        let row: Vec<String> = row.into_iter().map(|value| value.expect("neither is NULL")).collect();
        row.try_into().expect("two columns")
    })
}
