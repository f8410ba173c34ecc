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

/// A row of `pg_replication_slots`.
#[derive(Debug)]
pub(super) struct Slot {
    /// The server's own confirmed position: streaming starts there and nowhere else.
    pub(super) confirmed: Lsn,
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
        "replication slot {slot:?} is lost ({reason}): the log it needs is gone, and events since its confirmed position \
         {confirmed} may never have been sent; compare the table with the topics, then drop the slot \
         (SELECT pg_drop_replication_slot('{slot}')) and run walpost setup"
    )]
    Lost { slot: String, reason: String, confirmed: String },
    #[error(
        "table {table} speaks of server {theirs}, and this is {ours}: the database was restored from a dump, and what was \
         published there proves nothing here; run walpost setup, which begins the proof anew"
    )]
    Restored { table: String, theirs: String, ours: String },
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
            | Unusable::Lost { .. } => ErrorKind::Permanent,
        }
    }
}

impl Slot {
    /// Takes the advisory lock of the slot, then reads the slot, over the connection that will stream from it. `name` is a
    /// legal slot name.
    pub(super) async fn take(connection: &mut Replication, name: &str, database: &str) -> Result<Slot, super::Error> {
        lock(connection, name).await?;
        Slot::read(connection, name, database).await
    }

    async fn read(connection: &mut Replication, name: &str, database: &str) -> Result<Slot, super::Error> {
        // invalidation_reason exists from 17 on; going through jsonb asks for it everywhere.
        let rows = connection
            .query(&format!(
                "SELECT coalesce(plugin, 'physical'), coalesce(database, ''), confirmed_flush_lsn::text, \
                 active_pid::text, wal_status, to_jsonb(s) ->> 'invalidation_reason', two_phase::text \
                 FROM pg_catalog.pg_replication_slots s WHERE slot_name = '{name}'"
            ))
            .await?;
        let slot = name.to_owned();
        let Some([plugin, owner, confirmed, pid, wal_status, reason, two_phase]) = rows.into_iter().next().map(columns)
        else {
            return Err(Unusable::Missing { slot, database: database.to_owned() }.into());
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
        if wal_status.as_deref() == Some("lost") || reason.is_some() {
            let reason = reason.unwrap_or_else(|| "more log was written than max_slot_wal_keep_size keeps".to_owned());
            let confirmed = confirmed.unwrap_or_else(|| "unknown".to_owned());
            return Err(Unusable::Lost { slot, reason, confirmed }.into());
        }
        if let Some(pid) = pid.and_then(|pid| pid.parse().ok()) {
            return Err(Unusable::InUse { slot, pid: Some(pid) }.into());
        }
        let confirmed = confirmed.and_then(|lsn| lsn.parse().ok());
        // A slot that is still being made has no position yet: whoever makes it is about to let it go.
        confirmed.map(|confirmed| Slot { confirmed }).ok_or_else(|| Unusable::InUse { slot, pid: None }.into())
    }
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
