//! Keeps the proof of publication (`sql/progress.sql`) while the session streams.
//!
//! A *candidate* is a snapshot S of the transactions that have ended and, asked for only after it, the end L of the log. A
//! transaction writes its commit to the log before others can see its rows, so whatever is visible in S ends at or below
//! L. Once confirmed has passed L all of it is published, and the candidate becomes the proof. The order matters: a
//! position that is older than the snapshot lies below commits that the snapshot sees.
//!
//! There is one candidate at a time and at most one write a tick. A new one is taken only for events that none covers: a
//! database in which nothing happens is not written to. That an event was streamed does not mean that the last
//! candidate covers it, for a walsender reads the log and may be ahead of the commit's becoming visible.
//!
//! Each tick is a connection of its own, closed at once (G8).

use std::{
    mem::take,
    time::{Duration, Instant, SystemTime},
};

use tokio_postgres::Client;

use super::{
    job::{Job, Trouble},
    sampler::is_shutdown,
};
use crate::{
    chain::Chain,
    config::Config,
    pipeline::Lsn,
    postgres::{
        Error,
        conninfo::ConnInfo,
        coverage,
        progress::{self, Access, Candidate, Gain, Hold, Progress, Snapshot},
        quote,
        replication::Identity,
        sql::{self, Sql},
    },
    setup::names,
};

/// The row's confirmed position is never further behind than this, so that it tells the slot from another one of its
/// name. Sooner than a tick, but no more often than `HURRY`.
const CONFIRMED_BEHIND_MAX: u64 = 16 << 20;
const HURRY: Duration = Duration::from_secs(1);
/// Most transactions that are told apart between two candidates.
const UNCOVERED_MAX: usize = 10_000;
/// A tick that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the table says of the slot before it is gained, nothing perhaps. None: there is no table for it, or no right to it,
/// and rows are not proven.
pub(super) async fn known(config: &Config, client: &Client) -> Result<Option<Option<Progress>>, Error> {
    let home = names::home(config);
    let access = Access::read(client, home).await?;
    if access.is_some_and(Access::streams) {
        return Ok(Some(Progress::read(client, home, &config.slot).await?));
    }
    let table = quote::qualified(home, progress::TABLE);
    let why = if access.is_some() { "may not be read and written" } else { "does not exist" };
    tracing::info!("table {table} {why}, so no row is proven published: walpost setup makes it, with the rights");
    Ok(None)
}

/// Of a slot that this process has gained.
pub(super) struct Proof {
    at: ConnInfo,
    hold: Hold,
    interval: Duration,
    /// When the next tick is.
    due: Instant,
    last: Instant,
    /// Position of the candidate that waits, and when it was taken.
    waits: Option<(Lsn, SystemTime)>,
    /// `confirmed` as the row has it.
    written: Lsn,
    /// Transactions of events that no candidate covers.
    uncovered: Uncovered,
    /// What was committed by then is published.
    published_at: Option<SystemTime>,
    /// What is published, as it was last seen; none: it was not looked at.
    covered: Option<String>,
    /// It has changed since the last tick.
    changed: bool,
    job: Job<Ticked>,
    trouble: Trouble,
}

#[derive(Default)]
struct Uncovered {
    xids: Vec<u32>,
    /// There may be others.
    more: bool,
}

/// What a tick is to do.
struct Tick {
    confirmed: Lsn,
    /// Take a candidate that covers some of these.
    uncovered: Option<Uncovered>,
    /// Write in any case.
    must: bool,
    /// What is published has changed.
    changed: bool,
}

struct Ticked {
    tick: Tick,
    /// The candidate it has stored, if any; false: it wrote nothing.
    result: Result<(bool, Option<Candidate>), Error>,
}

impl Proof {
    /// Gains the slot, or its name where it is to be made. `known` as the table has it, or is to have it.
    pub(super) async fn gain(
        config: &Config,
        server: &ConnInfo,
        client: &Sql,
        identity: &Identity,
        confirmed: Option<Lsn>,
        known: Option<&Progress>,
    ) -> Result<Proof, Error> {
        let Config { slot, publication, outboxes, .. } = config;
        let published = &coverage::published(publication, outboxes, client.major());
        let gain = Gain { slot, publication, identity, confirmed, published };
        let hold = Hold::gain(client, names::home(config), gain).await?;
        let now = Instant::now();
        Ok(Proof {
            at: server.clone(),
            hold,
            interval: config.progress_interval,
            due: now + config.progress_interval,
            last: now,
            waits: known.and_then(|known| known.candidate.zip(known.candidate_at)),
            written: confirmed.or_else(|| known?.confirmed).unwrap_or_default(),
            // Of what an earlier session streamed nothing is known.
            uncovered: Uncovered { xids: Vec::new(), more: true },
            published_at: known.and_then(|known| known.published_at),
            covered: None,
            changed: false,
            job: Job::default(),
            trouble: Trouble::default(),
        })
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.hold
    }

    /// Everything that was committed by then, and came after the slot's beginning, is published.
    pub(super) fn published_at(&self) -> Option<SystemTime> {
        self.published_at
    }

    /// What is published is this by now: where it has changed, that is written down soon.
    pub(super) fn covers(&mut self, covered: String) {
        self.changed |= self.covered.as_ref().is_some_and(|known| *known != covered);
        self.covered = Some(covered);
    }

    /// An event of this transaction was streamed.
    pub(super) fn streamed(&mut self, xid: u32) {
        let Uncovered { xids, more } = &mut self.uncovered;
        if xids.last() == Some(&xid) {
            return;
        }
        if xids.len() < UNCOVERED_MAX {
            xids.push(xid);
        } else {
            *more = true;
        }
    }

    /// Waits until a tick has ended or is due. Cancel safe.
    pub(super) async fn ready(&mut self) -> Result<(), Error> {
        if self.job.is_under_way() {
            let ticked = self.job.ended().await;
            return self.ticked(ticked);
        }
        tokio::time::sleep_until(self.due.into()).await;
        Ok(())
    }

    /// Starts a tick that is due, or that cannot wait.
    pub(super) fn work(&mut self, confirmed: Lsn) {
        let now = Instant::now();
        let behind = confirmed.bytes_since(self.written) >= CONFIRMED_BEHIND_MAX;
        let hurries = behind || self.changed;
        if self.job.is_under_way() || now < self.due && !(hurries && now >= self.last + HURRY) {
            return;
        }
        (self.last, self.due) = (now, now + self.interval);
        let proven = self.waits.is_some_and(|(lsn, _)| lsn <= confirmed);
        let covers = (proven || self.waits.is_none()) && !self.uncovered.is_empty();
        if proven || hurries || covers {
            let uncovered = covers.then(|| take(&mut self.uncovered));
            let tick = Tick { confirmed, uncovered, must: proven || hurries, changed: take(&mut self.changed) };
            self.job = Job::of(tick.run(self.at.clone(), self.hold.clone()));
        }
    }

    fn ticked(&mut self, Ticked { tick, result }: Ticked) -> Result<(), Error> {
        match result {
            Ok((wrote, candidate)) => {
                self.trouble.is_over("the proof of publication is written again");
                if wrote {
                    self.written = tick.confirmed;
                    if let Some((_, at)) = self.waits.take_if(|(lsn, _)| *lsn <= tick.confirmed) {
                        self.published_at = Some(at);
                    }
                }
                if let Some(candidate) = candidate {
                    self.waits = Some((candidate.lsn, candidate.taken));
                    // Those that came meanwhile may be among it too.
                    self.uncovered.cover(&candidate.snapshot);
                }
                self.uncovered.add(tick.uncovered);
                Ok(())
            }
            Err(error @ Error::Superseded { .. }) => Err(error),
            Err(error) => {
                self.changed |= tick.changed;
                if !is_shutdown(&error) {
                    let why = Chain(&error);
                    self.trouble.is(format!("the proof of publication cannot be written, and stands still: {why}"));
                }
                self.uncovered.add(tick.uncovered);
                Ok(())
            }
        }
    }

    /// The last word: the slot was told `confirmed`, and is told no more.
    pub(super) async fn stop(mut self, confirmed: Lsn) -> Result<(), Error> {
        // It would write an older position after this one.
        self.job.stop().await;
        let client = sql::connect(&self.at).await?;
        self.hold.stopped(&client, confirmed).await
    }
}

impl Uncovered {
    fn is_empty(&self) -> bool {
        self.xids.is_empty() && !self.more
    }

    /// Takes away what is visible in a snapshot; whether that is anything.
    fn cover(&mut self, snapshot: &Snapshot) -> bool {
        let before = self.xids.len();
        self.xids.retain(|xid| !snapshot.sees(*xid));
        let unknown = take(&mut self.more);
        if unknown {
            // Any that runs may be one of those that were not told apart.
            self.xids.extend(snapshot.running());
        }
        unknown || self.xids.len() < before
    }

    fn add(&mut self, other: Option<Uncovered>) {
        let Some(other) = other else { return };
        self.more |= other.more || self.xids.len() + other.xids.len() > UNCOVERED_MAX;
        self.xids.extend(other.xids);
        self.xids.truncate(UNCOVERED_MAX);
    }
}

impl Tick {
    async fn run(mut self, at: ConnInfo, hold: Hold) -> Ticked {
        let result = match tokio::time::timeout(PATIENCE, self.write(&at, &hold)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Closed),
        };
        Ticked { tick: self, result }
    }

    async fn write(&mut self, at: &ConnInfo, hold: &Hold) -> Result<(bool, Option<Candidate>), Error> {
        let client = sql::connect(at).await?;
        let mut candidate = None;
        if let Some(uncovered) = &mut self.uncovered {
            let taken = Candidate::take(&client).await?;
            let mut left = Uncovered { xids: uncovered.xids.clone(), more: uncovered.more };
            // Where it covers nothing new, what it would cost is saved: another one comes when it does.
            if left.cover(&taken.snapshot) {
                hold.tick(&client, self.confirmed, Some(&taken)).await?;
                *uncovered = left;
                candidate = Some(taken);
            }
        }
        let wrote = candidate.is_some() || self.must;
        if self.must && candidate.is_none() {
            hold.tick(&client, self.confirmed, None).await?;
        }
        Ok((wrote, candidate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cover(uncovered: &mut Uncovered, snapshot: &str) -> bool {
        uncovered.cover(&Snapshot::parse(snapshot).unwrap())
    }

    #[test]
    fn what_was_streamed_before_it_became_visible_stays_uncovered() {
        let mut uncovered = Uncovered { xids: vec![7, 8, 12], more: false };
        assert!(cover(&mut uncovered, "8:12:8"), "it covers 7");
        assert_eq!(uncovered.xids, [8, 12]);
        assert!(!cover(&mut uncovered, "8:12:8"), "nothing new: not worth a write");
        assert!(cover(&mut uncovered, "13:13:") && uncovered.is_empty());
    }

    #[test]
    fn where_transactions_are_not_told_apart_any_that_runs_may_be_one_of_them() {
        let mut uncovered = Uncovered { xids: vec![7], more: true };
        assert!(cover(&mut uncovered, "5:9:5"));
        assert_eq!((&uncovered.xids[..], uncovered.more), (&[5][..], false));
        let full = Uncovered { xids: (0..UNCOVERED_MAX as u32).collect(), more: false };
        uncovered.add(Some(full));
        assert!(uncovered.more && uncovered.xids.len() == UNCOVERED_MAX);
    }
}
