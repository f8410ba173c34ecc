//! Attempts in vain are written down beside the stream, so that a restart goes on counting.
//!
//! Nothing waits for it: what a crash loses is tried once more.

use std::time::{Duration, Instant};

use super::{
    Error,
    job::{Job, Trouble},
};
use crate::{
    chain::Chain,
    config::Config,
    pipeline::{Lsn, Position},
    postgres::{
        self,
        attempt::Table,
        conninfo::ConnInfo,
        sql::{self, Sql},
    },
    setup::names,
    sink::{Attempts, Known},
};

/// How long the table is left alone after each write: nothing waits for it, and each write is a connection of its own.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) struct AttemptLog {
    at: ConnInfo,
    /// None: there is none that may be used, and this process alone counts.
    table: Option<Table>,
    unwritten: Attempts,
    job: Job<Written>,
    again: Option<Instant>,
    trouble: Trouble,
}

type Written = Result<(), (Attempts, postgres::Error)>;

impl AttemptLog {
    /// Of the events from a position on, and what is known of them.
    pub(super) async fn open(
        config: &Config,
        server: &ConnInfo,
        client: &Sql,
        system_identifier: &str,
        from: Lsn,
    ) -> Result<(AttemptLog, Known), Error> {
        let mut known = Known::new();
        let mut table = None;
        if config.sink.counts_attempts() {
            let found = Table::find(client, names::home(config), system_identifier, &config.slot).await;
            table = found.map_err(postgres::Error::from)?;
            match &table {
                Some(table) => {
                    let read = table.read(client, Position::first_of(from)).await;
                    known = read.map_err(postgres::Error::from)?;
                }
                None => {
                    tracing::warn!("attempts are counted anew after a restart: walpost setup makes a table for them")
                }
            }
        }
        let log = AttemptLog {
            at: server.clone(),
            table,
            unwritten: Attempts::new(),
            job: Job::default(),
            again: None,
            trouble: Trouble::default(),
        };
        Ok((log, known))
    }

    pub(super) fn note(&mut self, attempts: Attempts) {
        if self.table.is_some() {
            self.unwritten.extend(attempts);
        }
    }

    /// Starts to write what there is.
    pub(super) fn work(&mut self) {
        let Some(table) = self.table.as_ref().filter(|_| !self.unwritten.is_empty()) else { return };
        if self.job.is_under_way() || self.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let attempts = std::mem::take(&mut self.unwritten);
        let (at, table) = (self.at.clone(), table.clone());
        self.job = Job::of(async move {
            let write = async { Ok(table.write(&*sql::connect(&at).await?, &attempts).await?) };
            write.await.map_err(|error| (attempts, error))
        });
    }

    /// Waits until a piece of work has ended, or may be due. Cancel safe.
    pub(super) async fn ready(&mut self) {
        if !self.job.is_under_way() {
            match self.again.filter(|_| !self.unwritten.is_empty()) {
                Some(again) => tokio::time::sleep_until(again.into()).await,
                None => std::future::pending().await,
            }
            self.again = None;
            return;
        }
        match self.job.ended().await {
            Ok(()) => self.trouble.is_over("attempts can be written down again"),
            Err((mut attempts, error)) => {
                self.trouble.is(format!("attempts cannot be written down: {}", Chain(&error)));
                // What is known since prevails.
                attempts.extend(self.unwritten.drain());
                self.unwritten = attempts;
            }
        }
        self.again = Some(Instant::now() + AGAIN);
    }
}
