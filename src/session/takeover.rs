//! Taking over from a holder of the slot that is there and does not live any more: its host vanished, or it is frozen.
//!
//! The server goes on believing in its client until `wal_sender_timeout`, which may be off. A living walpost replies at
//! least every `status_interval`, idle or blocked (G6). The server shows when the last reply was sent by the clock of the
//! sender, so it is not compared with any other: a holder is silent when what the server shows does not change, and how
//! long is measured here.

use std::time::{Duration, Instant};

use super::{
    Error, SILENCE_MAX,
    slot::{Unusable, columns},
};
use crate::{
    chain::Chain,
    postgres::{quote::literal, replication::Replication},
};

/// What a standby has seen of the holder, from one look to the next.
#[derive(Debug, Default)]
pub struct Takeover {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    pid: i32,
    sign: Sign,
    since: Instant,
    /// What became of it was logged.
    told: bool,
}

/// The last that a walsender showed of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sign {
    /// A reply, or the start of its stream, in the server's words.
    Stream(String),
    /// The end of its last command. A session that begins is bounded otherwise.
    Command(String),
}

impl Takeover {
    /// Looks at the holder of a slot in use, and ends it when it has been silent for `timeout`: then the slot is about to be
    /// free. The error says what a standby waits for.
    pub(super) async fn consider(
        &mut self,
        connection: &mut Replication,
        timeout: Duration,
        error: Error,
    ) -> Result<(), Error> {
        let Error::Slot(Unusable::InUse { slot, pid: Some(pid) }) = &error else { return Err(error) };
        let (slot, pid) = (slot.clone(), *pid);
        let Some(sign) = sign(connection, pid).await? else {
            self.seen = None;
            return Err(error);
        };
        let limit = match &sign {
            Sign::Stream(_) => timeout,
            Sign::Command(_) => timeout.max(SILENCE_MAX),
        };
        let fresh = Seen { pid, sign: sign.clone(), since: Instant::now(), told: false };
        let seen = match &mut self.seen {
            Some(seen) if seen.pid == pid && seen.sign == sign => seen,
            seen => seen.insert(fresh),
        };
        let silent = seen.since.elapsed();
        if silent < limit {
            return Err(error);
        }
        let (warning, result) = match terminate(connection, pid, &sign).await {
            Ok(false) => return Err(error),
            Ok(true) => {
                let silent = silent.as_secs_f32();
                let warning = format!(
                    "ended server process {pid}, which held slot {slot}: its client had given no sign for {silent:.1} s"
                );
                (warning, Ok(()))
            }
            Err(refused) => {
                let refused = Chain(&refused).to_string();
                let error = Unusable::Silent { slot, pid, silent, refused };
                (error.to_string(), Err(error.into()))
            }
        };
        if !seen.told {
            tracing::warn!("{warning}");
            seen.told = true;
        }
        result
    }
}

/// None where there is nothing to judge: a command is running, it is no walsender, or we may not see it.
async fn sign(connection: &mut Replication, pid: i32) -> Result<Option<Sign>, Error> {
    let rows = connection
        .query(&format!(
            "SELECT CASE WHEN r.reply_time IS NOT NULL OR r.state <> 'startup' \
               THEN coalesce(r.reply_time, a.state_change)::text END, \
             CASE WHEN a.state = 'idle' THEN a.state_change::text END \
             FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_stat_replication r USING (pid) WHERE pid = {pid}"
        ))
        .await?;
    let Some([stream, command]) = rows.into_iter().next().map(columns) else { return Ok(None) };
    Ok(stream.map(Sign::Stream).or_else(|| command.map(Sign::Command)))
}

/// Whether it was ended; not if it gave another sign meanwhile.
async fn terminate(connection: &mut Replication, pid: i32, sign: &Sign) -> Result<bool, Error> {
    let still = match sign {
        Sign::Stream(at) => format!("coalesce(r.reply_time, a.state_change)::text = {}", literal(at)),
        Sign::Command(at) => format!("r.reply_time IS NULL AND a.state_change::text = {}", literal(at)),
    };
    let rows = connection
        .query(&format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) \
             FROM pg_catalog.pg_stat_activity a JOIN pg_catalog.pg_stat_replication r USING (pid) \
             WHERE pid = {pid} AND {still}"
        ))
        .await?;
    Ok(rows.into_iter().next().map(columns) == Some([Some("t".to_owned())]))
}
