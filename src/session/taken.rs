//! The first that a session does: it takes the lock of the slot, finds what there is under its name, judges whether that is
//! what was left, and gains it.
//!
//! A loss is found before the slot is gained: what was known of the slot is the proof of the loss, and stays as it is until
//! someone has answered it.

use std::time::Duration;

use tokio_postgres::Client;

use super::{
    Error, Learnt,
    identity::Reached,
    loss::{self, Cure, Loss, What},
    proof::{self, Proof},
    slot::{Found, Slot, Unusable},
};
use crate::{
    config::Config,
    pipeline::{Lsn, resume::Log},
    postgres::{
        conninfo::ConnInfo,
        progress::{self, Progress},
        quote,
        replication::{Identity, Replication},
        sql,
    },
    setup::names,
    status::{State, Status},
};

/// A server process that was told to end takes about as long.
const ENDING: Duration = Duration::from_millis(20);
/// Up to 14 statistics are collected by a process of their own, which writes them down twice a second.
const STATISTICS_LAG: Duration = Duration::from_secs(2);

/// A slot that is ours to use, or to make.
pub(super) struct Taken {
    pub(super) identity: Identity,
    pub(super) server: ConnInfo,
    /// Begins at its end, until it is known where the stream does.
    pub(super) log: Log,
    /// None: there is none that can be streamed from.
    pub(super) slot: Option<Slot>,
    /// One is in its place that can only be dropped.
    pub(super) in_the_way: bool,
    /// What is done about the loss of the slot; none: it is not lost, or was before its stream had begun.
    pub(super) cure: Option<Cure>,
    pub(super) known: Option<Progress>,
    /// None: there is no table of progress, or no right to it.
    pub(super) proof: Option<Proof>,
}

pub(super) async fn take(
    config: &Config,
    learnt: &mut Learnt,
    status: &Status,
    connection: &mut Replication,
) -> Result<Taken, Error> {
    let identity = connection.identify_system().await?;
    let mut found = loop {
        match Found::take(connection, &config.slot, &identity.database).await {
            Ok(found) => break found,
            Err(error) => {
                // What another process did to the slot is for the table to tell.
                if matches!(error, Error::Slot(Unusable::InUse { .. })) {
                    learnt.reached = None;
                }
                learnt.takeover.consider(connection, config.takeover_timeout, error).await?;
            }
        }
        tokio::time::sleep(ENDING).await;
    };
    if config.failover && connection.server_version() < 170_000 {
        return Err(Unusable::Failover { version: connection.server_version() / 10_000 }.into());
    }
    let server = connection.server().clone();
    let client = sql::connect(&server).await?;
    let known = known(config, &client, &identity).await?;
    let progress = known.as_ref().and_then(Option::as_ref);
    let end = identity.wal_flush;
    let history =
        if identity.timeline > 1 { connection.timeline_history(identity.timeline).await? } else { Vec::new() };
    let log = Log { timeline: identity.timeline, history, start: end, end };

    let reached = reached(learnt, progress, &identity);
    if let (Some(reached), Found::Slot(slot)) = (&reached, &found) {
        if reached.is_told_by_count(slot, &log) && connection.server_version() < 150_000 {
            // What is counted there may be old.
            tokio::time::sleep(STATISTICS_LAG).await;
            found = Found::take(connection, &config.slot, &identity.database).await?;
        }
    }
    let in_the_way = matches!(found, Found::Invalidated { .. });
    let (slot, mut lost) = judge(found, reached.as_ref(), progress, &log);
    let confirmed = slot.as_ref().filter(|_| lost.is_none()).map(|slot| slot.confirmed);
    // A bookmark takes its place, and has what is lost with it; or that was begun, and it may be missing or the new one.
    let rewind = progress.and_then(|progress| progress.rewind.as_ref());
    let begins_again = config.rewind_to.is_some_and(|to| rewind.is_none_or(|rewind| rewind.to != to));
    if begins_again || rewind.is_some_and(|rewind| !rewind.done) {
        lost = None;
    }
    let mut taken = Taken { identity, server, log, slot, in_the_way, cure: None, known: None, proof: None };
    if let Some((what, from, to)) = lost {
        let (unproven, provable) = loss::unproven(config, &client, progress).await;
        let loss = Loss { slot: config.slot.clone(), what, from, to, unproven };
        status.enter(State::SlotLost, Some(loss.to_string()));
        status.now().slot_losses += 1;
        if progress.is_some_and(reads_before_stream) {
            // Nothing of its stream was sent. The reading begins anew, with another slot.
            loss::begin_anew(learnt, loss)?;
            taken.in_the_way |= taken.slot.take().is_some();
        } else {
            taken.cure = Some(loss::answer(config, learnt, loss, provable)?);
        }
    }
    if config.failover && taken.cure.is_none() && taken.slot.as_ref().is_some_and(|slot| !slot.failover) {
        connection.let_fail_over(&config.slot).await?;
        tracing::info!("replication slot {} is one for failover now", config.slot);
    }
    if let Some(progress) = known {
        let gained = Proof::gain(config, &taken.server, &client, &taken.identity, confirmed, progress.as_ref()).await?;
        taken.proof = Some(gained);
        taken.known = progress;
    }
    Ok(taken)
}

/// A reading is under way that comes before all of the slot's stream. Older rows can be asked for later too.
fn reads_before_stream(progress: &Progress) -> bool {
    let reading = progress.reading.as_ref();
    reading.is_some_and(|reading| reading.at.is_none_or(|at| progress.confirmed <= Some(at)))
}

/// What happened to the slot, and the gap: from the last position that is known to be confirmed.
type Lost = (What, Option<Lsn>, Lsn);

/// A slot to stream from, and whether something is lost with it or before it.
fn judge(
    found: Found,
    reached: Option<&Reached>,
    progress: Option<&Progress>,
    log: &Log,
) -> (Option<Slot>, Option<Lost>) {
    let from = reached.and_then(|reached| reached.on(log));
    let reading = progress.and_then(|progress| progress.reading.as_ref());
    match found {
        // Nothing of it was streamed since that was asked for: another one is made in its place, or set-up made this one.
        Found::Slot(slot) if reading.is_some_and(|reading| reading.visible.is_none()) => (Some(slot), None),
        Found::Slot(slot) => {
            let moved = reached.and_then(|reached| reached.is_passed_by(&slot, log));
            let lost = moved.map(|from| (What::Moved, Some(from), slot.confirmed));
            (Some(slot), lost)
        }
        Found::Invalidated { reason, confirmed } => {
            (None, Some((What::Invalidated { reason }, confirmed.max(from), log.end)))
        }
        // A row without a beginning is that of a slot which was never made.
        Found::Nothing if reached.is_some() || progress.is_some_and(|progress| progress.started.is_some()) => {
            (None, Some((What::Missing, from, log.end)))
        }
        Found::Nothing => (None, None),
    }
}

/// What the table says of the slot, which must be this server's. None: it says nothing to us.
async fn known(config: &Config, client: &Client, identity: &Identity) -> Result<Option<Option<Progress>>, Error> {
    let known = proof::known(config, client).await?;
    let progress = known.as_ref().and_then(Option::as_ref);
    if let Some(foreign) = progress.filter(|progress| progress.system_identifier != identity.system_identifier) {
        return Err(Unusable::Restored {
            table: quote::qualified(names::home(config), progress::TABLE),
            theirs: foreign.system_identifier.clone(),
            ours: identity.system_identifier.clone(),
        }
        .into());
    }
    Ok(known)
}

/// How far the slot was confirmed, by the best that is known: this process's own word, unless another had the slot since.
fn reached(learnt: &Learnt, progress: Option<&Progress>, identity: &Identity) -> Option<Reached> {
    let own = learnt.reached.as_ref().filter(|own| own.system_identifier == identity.system_identifier);
    match progress {
        Some(progress) => match own {
            Some(own) if own.epoch == Some(progress.epoch) => Some(own.clone()),
            Some(_) | None => Reached::of(progress),
        },
        None => own.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::postgres::progress::{Reading, ReadingKind, tests::default_progress};

    #[test]
    fn a_slot_whose_reading_has_not_begun_is_made_anew_and_not_lost() {
        let slot = Slot { confirmed: Lsn(300), restart: Lsn(300), decoded: None, failover: false, synced: false };
        let log = Log { timeline: 1, history: Vec::new(), start: Lsn(400), end: Lsn(400) };
        let begun = |visible: Option<&str>| Progress {
            confirmed: Some(Lsn(200)),
            started: Some("5:5:".to_owned()),
            reading: Some(Reading {
                kind: ReadingKind::Recovery,
                since: SystemTime::UNIX_EPOCH,
                visible: visible.map(str::to_owned),
                at: None,
                key: None,
            }),
            ..default_progress()
        };
        let judged = |progress: &Progress| {
            judge(Found::Slot(slot.clone()), Reached::of(progress).as_ref(), Some(progress), &log)
        };
        assert_eq!(judged(&begun(None)), (Some(slot.clone()), None));
        let moved = Some((What::Moved, Some(Lsn(200)), Lsn(300)));
        assert_eq!(judged(&begun(Some("9:9:"))), (Some(slot.clone()), moved));
    }
}
