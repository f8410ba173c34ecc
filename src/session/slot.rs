//! The slot as the session finds it: whether it is ours to use, where it stands, and whether it can be streamed from.

use std::time::Duration;

use crate::{
    pipeline::Lsn,
    postgres::{
        self, ErrorKind,
        replication::Replication,
        slot::{lock_holder_sql, lock_sql},
    },
};

/// What there is under the slot's name.
#[derive(Debug)]
pub(super) enum Found {
    Slot(Slot),
    Nothing,
    /// The server has given it up: it can only be dropped.
    Invalidated {
        /// In PostgreSQL's word and ours.
        reason: String,
        confirmed: Option<Lsn>,
    },
}

/// A slot that can be streamed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The server's own confirmed position: streaming starts there and nowhere else.
    pub(super) confirmed: Lsn,
    /// From here on the server keeps its log for the slot. A new one begins at the end of the log.
    pub(super) restart: Lsn,
    /// Transactions that the server has decoded through it, as `pg_stat_replication_slots` counts.
    pub(super) decoded: Option<i64>,
    /// Standbys may copy it.
    pub(super) failover: bool,
    /// The server copied it from its primary, before it was promoted (17+).
    pub(super) synced: bool,
}

/// Why a slot cannot be streamed from.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error(
        "database {database} has no replication slot {slot:?}: run walpost setup, or \
         SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput'); events inserted before it exists are not streamed"
    )]
    Missing { slot: String, database: String },
    #[error(
        "replication slot {slot:?} belongs to database {owner}, not {database}; name the other database in database_url or another slot"
    )]
    OtherDatabase { slot: String, owner: String, database: String },
    #[error("replication slot {slot:?} is {found}, not a logical slot with pgoutput; name another slot")]
    OtherKind { slot: String, found: String },
    #[error(
        "replication slot {slot:?} has two_phase on: it sends prepared transactions before they are committed, which \
         walpost cannot read; drop it (SELECT pg_drop_replication_slot('{slot}')) and run walpost setup; events that it \
         has not sent are then not streamed"
    )]
    TwoPhase { slot: String },
    #[error(
        "table {table} speaks of server {theirs}, and this is {ours}: the database was restored from a dump, and what was \
         published there proves nothing here; run walpost setup, which begins the proof anew"
    )]
    Restored { table: String, theirs: String, ours: String },
    #[error(
        "failover = true needs PostgreSQL 17 or later, and this is {version}: leave it out; after a promotion the slot is then \
         missing, and on_slot_loss decides"
    )]
    Failover { version: u32 },
    #[error("replication slot {slot:?} is in use{}", .pid.map_or_else(String::new, |pid| format!(" by server process {pid}")))]
    InUse { slot: String, pid: Option<i32> },
    #[error(
        "replication slot {slot:?} is in use by server process {pid}, whose client has been silent for {} s, and this role may not \
         end it ({refused}): as a superuser SELECT pg_terminate_backend({pid}), or grant pg_signal_backend to the role; else the \
         server ends it after wal_sender_timeout, unless that is 0",
        .silent.as_secs()
    )]
    Silent { slot: String, pid: i32, silent: Duration, refused: String },
}

impl Unusable {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Unusable::InUse { pid, .. } => ErrorKind::SlotInUse { pid: *pid },
            Unusable::Silent { pid, .. } => ErrorKind::SlotInUse { pid: Some(*pid) },
            Unusable::Missing { .. }
            | Unusable::OtherDatabase { .. }
            | Unusable::OtherKind { .. }
            | Unusable::TwoPhase { .. }
            | Unusable::Restored { .. }
            | Unusable::Failover { .. } => ErrorKind::Permanent,
        }
    }
}

impl Found {
    /// Takes the advisory lock of the slot, then reads the slot, over the connection that will stream from it. `name` is a
    /// legal slot name.
    pub(super) async fn take(connection: &mut Replication, name: &str, database: &str) -> Result<Found, super::Error> {
        lock(connection, name).await?;
        // invalidation_reason, failover and synced exist from 17 on; going through jsonb asks for them everywhere.
        let rows = connection
            .query(&format!(
                "SELECT coalesce(plugin, 'physical'), coalesce(database, ''), confirmed_flush_lsn::text, restart_lsn::text, \
                 active_pid::text, wal_status, to_jsonb(s) ->> 'invalidation_reason', two_phase::text, total_txns::text, \
                 to_jsonb(s) ->> 'failover', to_jsonb(s) ->> 'synced' \
                 FROM pg_catalog.pg_replication_slots s \
                 LEFT JOIN pg_catalog.pg_stat_replication_slots USING (slot_name) WHERE slot_name = '{name}'"
            ))
            .await?;
        let slot = name.to_owned();
        let Some([plugin, owner, confirmed, restart, pid, wal_status, reason, two_phase, decoded, failover, synced]) =
            rows.into_iter().next().map(columns)
        else {
            return Ok(Found::Nothing);
        };
        let (plugin, owner) = (plugin.unwrap_or_default(), owner.unwrap_or_default());
        if plugin != "pgoutput" {
            return Err(Unusable::OtherKind { slot, found: plugin }.into());
        }
        if owner != database {
            return Err(Unusable::OtherDatabase { slot, owner, database: database.to_owned() }.into());
        }
        // Whatever the client asks for: on the slot it stays on.
        if two_phase.as_deref() == Some("true") {
            return Err(Unusable::TwoPhase { slot }.into());
        }
        let lsn = |text: Option<String>| text.and_then(|text| text.parse::<Lsn>().ok());
        let confirmed = lsn(confirmed);
        if let Some(reason) = invalidation(wal_status.as_deref(), reason.as_deref()) {
            return Ok(Found::Invalidated { reason, confirmed });
        }
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok()) {
            return Err(Unusable::InUse { slot, pid: Some(pid) }.into());
        }
        // A slot that is still being made has no position yet: whoever makes it is about to let it go.
        match (confirmed, lsn(restart)) {
            (Some(confirmed), Some(restart)) => {
                let decoded = decoded.and_then(|count| count.parse().ok());
                let [failover, synced] = [failover, synced].map(|flag| flag.as_deref() == Some("true"));
                Ok(Found::Slot(Slot { confirmed, restart, decoded, failover, synced }))
            }
            _ => Err(Unusable::InUse { slot, pid: None }.into()),
        }
    }
}

/// Why the server has given a slot up, from its `wal_status` and, from 17 on, its `invalidation_reason`; none: it has not.
pub(super) fn invalidation(wal_status: Option<&str>, reason: Option<&str>) -> Option<String> {
    let because = match reason {
        None if wal_status != Some("lost") => return None,
        None | Some("wal_removed") => "more log was written than max_slot_wal_keep_size keeps",
        Some("idle_timeout") => "nobody used it for as long as idle_replication_slot_timeout allows",
        Some("rows_removed") => "catalog rows that it needs were removed on the primary",
        Some("wal_level_insufficient") => "wal_level was not logical",
        Some(_) => "the server does not say more",
    };
    Some(format!("{}: {because}", reason.unwrap_or("wal_removed")))
}

/// Takes the advisory lock of the slot, which the walsender holds until it ends. The slot alone is no lock: nobody has it
/// while it does not exist yet, or between two streams.
async fn lock(connection: &mut Replication, slot: &str) -> Result<(), super::Error> {
    let got = connection.query(&lock_sql(slot)).await?;
    if got.into_iter().next().map(columns::<1>) == Some([Some("t".to_owned())]) {
        return Ok(());
    }
    let holder = connection.query(&lock_holder_sql(slot)).await?.into_iter().next().map(columns::<1>);
    let pid = holder.and_then(|[pid]| pid?.parse().ok());
    Err(Unusable::InUse { slot: slot.to_owned(), pid }.into())
}

pub(super) fn columns<const N: usize>(row: Vec<Option<String>>) -> [Option<String>; N] {
    row.try_into().expect("the query names its columns")
}

/// The server's `wal_sender_timeout`; none when it is off.
pub(super) async fn wal_sender_timeout(connection: &mut Replication) -> Result<Option<Duration>, postgres::Error> {
    let rows = connection.query("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'").await?;
    let milliseconds = rows.into_iter().next().map(columns::<1>).and_then(|[setting]| setting?.parse().ok());
    Ok(milliseconds.filter(|ms| *ms > 0).map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_up_by_its_status_or_its_reason() {
        assert_eq!(invalidation(Some("reserved"), None), None);
        assert_eq!(invalidation(Some("unreserved"), None), None, "it may be saved yet");
        for (wal_status, reason, words) in [
            ("lost", None, "wal_removed: more log was written than max_slot_wal_keep_size keeps"),
            ("lost", Some("wal_removed"), "wal_removed: more log"),
            ("reserved", Some("idle_timeout"), "idle_replication_slot_timeout"),
            ("lost", Some("something_new"), "something_new: the server does not say more"),
        ] {
            let found = invalidation(Some(wal_status), reason).unwrap();
            assert!(found.contains(words), "{found}");
        }
    }
}
