//! Bookmarks on a rota (`bookmarks.every`, `bookmarks.keep`), beside the stream and only while it has the slot.
//!
//! The server is the memory: names say when a bookmark was made, so that a restart goes on with what is there and leaves
//! none behind. Each turn is a connection of its own, closed at once, as the [`sampler`](super::sampler)'s are. Trouble is
//! told and never the stream's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_postgres::Client;

use super::job::Job;
use crate::{
    chain::Chain,
    config::{self, Config},
    postgres::{
        self,
        bookmark::{self, Bookmark, Name},
        conninfo::ConnInfo,
        slot::{self, Slot, SlotError},
        sql,
    },
};

/// A turn that takes longer is given up. What the server has made by then is there at the next one.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon trouble, or a slot that has not moved, is looked at again; sooner where bookmarks are made more often.
const AGAIN: Duration = Duration::from_secs(60);

/// Makes bookmarks for the walsender `pid` of `server`. None: none are asked for.
pub(super) fn start(config: &Config, server: ConnInfo, pid: i32) -> Option<Job<()>> {
    let config::Rota { every, keep } = config.bookmarks?;
    let work = Work { server, slot: config.slot.clone(), pid, every, keep };
    Some(Job::of(async move {
        loop {
            let pause = work.turn().await;
            tokio::time::sleep(pause).await;
        }
    }))
}

struct Work {
    server: ConnInfo,
    slot: String,
    pid: i32,
    every: Duration,
    keep: usize,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error("the server failed")]
    Sql(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("no answer within {PATIENCE:?}")]
    Late,
}

impl Work {
    /// Does what is due, and gives the time to the next turn.
    async fn turn(&self) -> Duration {
        let done = tokio::time::timeout(PATIENCE, self.attempt()).await;
        match done.unwrap_or(Err(Trouble::Late)) {
            Ok(next) => next,
            Err(trouble) => {
                tracing::warn!("no bookmark of slot {} was made: {}", self.slot, Chain(&trouble));
                self.again()
            }
        }
    }

    async fn attempt(&self) -> Result<Duration, Trouble> {
        let client = sql::connect(&self.server).await?;
        let major = client.major();
        let Some(slot) = Slot::read(&client, major, &self.slot).await? else { return Ok(self.again()) };
        // Another process has it by now, and makes its own.
        if slot.holder.as_ref().is_none_or(|holder| holder.pid != self.pid) {
            return Ok(self.again());
        }
        let mut held = self.held(&client, major).await?;
        let now = bookmark::now(&client).await?;
        let newest = held.last().map(|(made, newest)| (*made, newest.slot.confirmed));
        if let Some(due) = newest.map(|(made, _)| self.due(made, now)).filter(|due| !due.is_zero()) {
            return Ok(due);
        }
        // Bookmarks of a slot at rest would push out those that hold something.
        if newest.is_some_and(|(_, confirmed)| confirmed == slot.confirmed) {
            return Ok(self.again());
        }
        let name = Name::of_rota(now).of(&self.slot).expect("the configuration has seen to its length");
        let role = &self.server.user;
        let position = match bookmark::create(&client, &self.server, &slot, &name, role).await {
            // Its own make room, and nobody else's.
            Err(SlotError::NoneFree) if held.len() >= self.keep => {
                self.drop(&client, held.remove(0).1).await?;
                bookmark::create(&client, &self.server, &slot, &name, role).await?
            }
            made => made?,
        };
        tracing::info!(bookmark = name, at = %position, "made a bookmark");
        let beyond = (held.len() + 1).saturating_sub(self.keep);
        for (_, bookmark) in held.drain(..beyond) {
            self.drop(&client, bookmark).await?;
        }
        Ok(self.every)
    }

    /// The rota's bookmarks, the oldest first, without those that the server has given up: they hold nothing and are dropped.
    async fn held(&self, client: &Client, major: i32) -> Result<Vec<(Timestamp, Bookmark)>, Trouble> {
        let mut held = Vec::new();
        for bookmark in Bookmark::all(client, major, &self.slot).await? {
            let Some(made) = bookmark.name.made() else { continue };
            if bookmark.slot.lost() {
                tracing::warn!(bookmark = bookmark.slot.name, "the server has given up a bookmark: its log is gone");
                self.drop(client, bookmark).await?;
            } else {
                held.push((made, bookmark));
            }
        }
        held.sort_by_key(|(made, _)| *made);
        Ok(held)
    }

    async fn drop(&self, client: &Client, bookmark: Bookmark) -> Result<(), Trouble> {
        let name = bookmark.slot.name;
        match slot::drop(client, &name, &self.server.user).await {
            Ok(()) => tracing::info!(bookmark = name, "dropped a bookmark"),
            // Someone looks into it; it is the oldest the next time too.
            Err(SlotError::InUse(_)) => tracing::debug!(bookmark = name, "a bookmark is in use and stays for now"),
            Err(SlotError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// How long until the next bookmark; never longer than between two, whatever the clocks say.
    fn due(&self, made: Timestamp, now: Timestamp) -> Duration {
        let age = now.duration_since(made).max(SignedDuration::ZERO).unsigned_abs();
        self.every.saturating_sub(age)
    }

    fn again(&self) -> Duration {
        self.every.min(AGAIN)
    }
}
