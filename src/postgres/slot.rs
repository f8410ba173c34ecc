//! The replication slot: its facts, and making and dropping it.
//!
//! A slot holds back WAL and old catalog rows until someone confirms or drops it, so nothing here leaves one behind by
//! accident: creation is one statement that PostgreSQL undoes when it is cancelled or when its session goes away.

use std::{fmt, pin::pin, time::Duration};

use tokio_postgres::{
    Client, Error, Row,
    error::SqlState,
    types::{PgLsn, ToSql},
};

use super::quote;
use crate::pipeline::Lsn;

/// A row of `pg_replication_slots` with what is known of the session that uses it. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub name: String,
    /// None: a physical slot.
    pub plugin: Option<String>,
    /// None: a physical slot.
    pub database: Option<String>,
    pub temporary: bool,
    pub active: bool,
    pub holder: Option<Holder>,
    pub restart_lsn: Option<Lsn>,
    pub confirmed: Option<Lsn>,
    /// WAL that the server keeps for this slot.
    pub retained_bytes: Option<i64>,
    /// WAL between the confirmed position and the server's insert position.
    pub lag_bytes: Option<i64>,
    pub wal_status: Option<String>,
    /// What may still be written before the slot is in danger of being lost; none: no limit.
    pub safe_bytes: Option<i64>,
    /// Why it can no longer be used (17+; on 16 a conflict with recovery).
    pub invalidation: Option<String>,
    /// Since when nobody uses it (17+), as the server prints it.
    pub inactive_since: Option<String>,
    pub failover: bool,
    /// Prepared transactions are sent when they are prepared.
    pub two_phase: bool,
    /// Transactions since the oldest one whose deleted catalog rows are kept for this slot.
    pub catalog_age: Option<i64>,
}

/// The session that streams from a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: i32,
    /// None where we may not see it.
    pub application_name: Option<String>,
    pub client_address: Option<String>,
    /// `sync_state` of its replication, where we may see it.
    pub sync_state: Option<String>,
}

impl Slot {
    /// None where the server has no slot of that name.
    pub async fn read(client: &Client, major: i32, name: &str) -> Result<Option<Slot>, Error> {
        let statement = select(major) + " where s.slot_name = $1";
        client.query_opt(&statement, &[&name]).await?.map(|row| Slot::of(&row)).transpose()
    }

    /// The slots of this database that send by pgoutput and whose names begin so.
    pub async fn beginning(client: &Client, major: i32, start: &str) -> Result<Vec<Slot>, Error> {
        let statement = select(major)
            + " where starts_with(s.slot_name::text, $1) and s.plugin = 'pgoutput' and s.database = current_database()
                order by s.confirmed_flush_lsn, s.slot_name";
        client.query(&statement, &[&start]).await?.iter().map(Slot::of).collect()
    }

    fn of(row: &Row) -> Result<Slot, Error> {
        let lsn =
            |column: &str| Ok::<_, Error>(row.try_get::<_, Option<PgLsn>>(column)?.map(|lsn| Lsn(u64::from(lsn))));
        let holder = row.try_get::<_, Option<i32>>("active_pid")?;
        Ok(Slot {
            name: row.try_get("slot_name")?,
            plugin: row.try_get("plugin")?,
            database: row.try_get("database")?,
            temporary: row.try_get("temporary")?,
            active: row.try_get("active")?,
            holder: match holder {
                Some(pid) => Some(Holder {
                    pid,
                    application_name: row.try_get("application_name")?,
                    client_address: row.try_get("client_address")?,
                    sync_state: row.try_get("sync_state")?,
                }),
                None => None,
            },
            restart_lsn: lsn("restart_lsn")?,
            confirmed: lsn("confirmed_flush_lsn")?,
            retained_bytes: row.try_get("retained_bytes")?,
            lag_bytes: row.try_get("lag_bytes")?,
            wal_status: row.try_get("wal_status")?,
            safe_bytes: row.try_get("safe_wal_size")?,
            invalidation: row.try_get("invalidation")?,
            inactive_since: row.try_get("inactive_since")?,
            failover: row.try_get("failover")?,
            two_phase: row.try_get("two_phase")?,
            catalog_age: row.try_get("catalog_age")?,
        })
    }

    /// The server has given it up: it can only be dropped.
    pub fn lost(&self) -> bool {
        self.invalidation.is_some() || self.wal_status.as_deref() == Some("lost")
    }
}

/// Tries to take the advisory lock of a slot for the session. Whoever makes the slot, streams from it or replaces it holds
/// the lock first, so that two never do. It is the database's, as the slot is.
pub fn lock_sql(slot: &str) -> String {
    format!("select pg_catalog.pg_try_advisory_lock({})", lock_key(slot))
}

/// Gives the lock back.
pub fn unlock_sql(slot: &str) -> String {
    format!("select pg_catalog.pg_advisory_unlock({})", lock_key(slot))
}

/// The server process that has the lock.
pub fn lock_holder_sql(slot: &str) -> String {
    // The server shows the two halves of the key.
    format!(
        "select l.pid from pg_catalog.pg_locks l join pg_catalog.pg_database d on d.oid = l.database
         where l.locktype = 'advisory' and l.objsubid = 1 and l.granted and d.datname = pg_catalog.current_database()
         and (l.classid::bigint << 32) | l.objid::bigint = {}",
        lock_key(slot)
    )
}

fn lock_key(slot: &str) -> String {
    format!("pg_catalog.hashtextextended({}, 0)", quote::literal(&format!("walpost slot {slot}")))
}

/// The query for slots, without its condition.
fn select(major: i32) -> String {
    let invalidation = match major {
        ..16 => "null::text",
        16 => "case when s.conflicting then 'conflict with recovery' end",
        17.. => "s.invalidation_reason",
    };
    let (inactive_since, failover) =
        if major >= 17 { ("s.inactive_since::text", "s.failover") } else { ("null::text", "false") };
    format!(
        "with here as (
             select case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                         else pg_current_wal_insert_lsn() end as lsn)
         select s.slot_name::text, s.plugin::text, s.database::text, s.temporary, s.active, s.active_pid,
                s.restart_lsn, s.confirmed_flush_lsn,
                pg_wal_lsn_diff(here.lsn, s.restart_lsn)::bigint as retained_bytes,
                case when s.confirmed_flush_lsn is not null
                     then greatest(pg_wal_lsn_diff(here.lsn, s.confirmed_flush_lsn), 0)::bigint end as lag_bytes,
                s.wal_status, s.safe_wal_size, {invalidation} as invalidation,
                {inactive_since} as inactive_since, {failover} as failover, s.two_phase,
                age(s.catalog_xmin)::bigint as catalog_age,
                a.application_name, host(a.client_addr) as client_address, r.sync_state
         from pg_replication_slots s
         cross join here
         left join pg_stat_activity a on a.pid = s.active_pid
         left join pg_stat_replication r on r.pid = s.active_pid"
    )
}

/// How soon a slot is lost that may keep `now` bytes more of log, and could keep `before` such a time ago, if it goes on like
/// that. None: it does not lose ground.
pub fn lost_in(before: u64, now: u64, over: Duration) -> Option<Duration> {
    let fallen = before.checked_sub(now).filter(|fallen| *fallen > 0)?;
    Duration::try_from_secs_f64(now as f64 / (fallen as f64 / over.as_secs_f64())).ok()
}

/// Why a slot was not made or dropped.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    #[error("replication slot {0:?} exists already")]
    Exists(String),
    #[error("there is no replication slot {0:?}")]
    Missing(String),
    #[error("replication slot {0:?} is in use; stop the process that streams from it first")]
    InUse(String),
    #[error(
        "all replication slots are in use; drop one that nobody needs (select * from pg_replication_slots), or raise the \
         setting: alter system set max_replication_slots = …, then restart the server"
    )]
    NoneFree,
    #[error(
        "this role may not make or drop replication slots; as a superuser: alter role {0} replication \
         (Amazon RDS: grant rds_replication to {0})"
    )]
    NotPermitted(String),
    #[error("the server cannot decode its log now: {0}")]
    Prerequisite(String),
    #[error("stopped before replication slot {0:?} was made; nothing of it is left")]
    Cancelled(String),
    #[error("the server refused to make or drop the slot")]
    Sql(#[source] Error),
}

impl SlotError {
    fn new(error: Error, slot: &str, role: &str) -> SlotError {
        let message = || error.as_db_error().map(|db| db.message().to_owned()).unwrap_or_default();
        match error.code() {
            Some(&SqlState::DUPLICATE_OBJECT) => SlotError::Exists(slot.to_owned()),
            Some(&SqlState::UNDEFINED_OBJECT) => SlotError::Missing(slot.to_owned()),
            Some(&SqlState::OBJECT_IN_USE) => SlotError::InUse(slot.to_owned()),
            Some(&SqlState::CONFIGURATION_LIMIT_EXCEEDED) => SlotError::NoneFree,
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => SlotError::NotPermitted(quote::ident(role)),
            Some(&SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE) => SlotError::Prerequisite(message()),
            _ => SlotError::Sql(error),
        }
    }
}

/// Drops a slot that nobody uses.
pub async fn drop(client: &Client, slot: &str, role: &str) -> Result<(), SlotError> {
    let dropped = client.execute("select pg_drop_replication_slot($1::text)", &[&slot]).await;
    dropped.map(|_| ()).map_err(|error| SlotError::new(error, slot, role))
}

/// Copies a slot, and with it the server keeps what the slot keeps. The copy stands where the slot is confirmed at that
/// moment, also while someone streams from that.
pub async fn copy(client: &Client, from: &str, to: &str, role: &str) -> Result<Lsn, SlotError> {
    let statement = "select lsn from pg_copy_logical_replication_slot($1::text, $2::text)";
    match client.query_one(statement, &[&from, &to]).await {
        Ok(row) => Ok(Lsn(u64::from(row.get::<_, PgLsn>(0)))),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => Err(SlotError::new(error, from, role)),
        Err(error) => Err(SlotError::new(error, to, role)),
    }
}

/// Tries to take the advisory lock of a slot for the session. False: another one has it.
pub async fn try_lock(client: &Client, slot: &str) -> Result<bool, Error> {
    client.query_one(&lock_sql(slot), &[]).await?.try_get(0)
}

/// Makes a persistent slot for pgoutput, with `failover` (17+) one that standbys may copy. Call it with the slot's lock.
///
/// The server first waits for every transaction that is writing, in any database, to end. `waiting` hears every two
/// seconds what it waits for, from `observer`, a second session of the same role. When `cancelled` completes first, the
/// creation is cancelled and awaited, and a slot that was made in spite of it is dropped: none is left behind.
pub async fn create(
    client: &Client,
    observer: &Client,
    slot: &str,
    failover: bool,
    role: &str,
    mut waiting: impl FnMut(&[Blocker]),
    cancelled: impl Future<Output = ()>,
) -> Result<Lsn, SlotError> {
    let sql = |error| SlotError::new(error, slot, role);
    // Waiting is what we are here for.
    client
        .execute(
            "select set_config(name, '0', false) from pg_settings
             where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout')",
            &[],
        )
        .await
        .map_err(sql)?;
    // Should this process die, the server notices and undoes the slot. Not every platform has it; without, it notices
    // when it has finished waiting.
    client.batch_execute("set client_connection_check_interval = '1s'").await.ok();
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.map_err(sql)?.get(0);

    let more = if failover { ", failover => true" } else { "" };
    let statement = &format!("select lsn from pg_create_logical_replication_slot($1::text, 'pgoutput'{more})");
    let parameters: [&(dyn ToSql + Sync); 1] = [&slot];
    let mut creation = pin!(client.query_one(statement, &parameters));
    let mut cancelled = pin!(cancelled);
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_NEWS, NEWS_INTERVAL);
    loop {
        tokio::select! {
            biased;
            made = &mut creation => {
                let lsn: PgLsn = made.map_err(sql)?.get(0);
                return Ok(Lsn(u64::from(lsn)));
            }
            () = &mut cancelled => break,
            _ = ticks.tick() => waiting(&blockers(observer, pid).await.map_err(sql)?),
        }
    }
    observer.execute("select pg_cancel_backend($1)", &[&pid]).await.map_err(sql)?;
    if creation.await.is_ok() {
        drop(observer, slot, role).await?;
    }
    Err(SlotError::Cancelled(slot.to_owned()))
}

pub(crate) const FIRST_NEWS: Duration = Duration::from_millis(500);
pub(crate) const NEWS_INTERVAL: Duration = Duration::from_secs(2);

/// A transaction that the creation of a slot waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Blocker {
    Session {
        pid: i32,
        /// None where we may not see it.
        state: Option<String>,
        application_name: Option<String>,
        user: Option<String>,
        database: Option<String>,
        /// Age of its transaction.
        age: Option<Duration>,
    },
    Prepared {
        gid: String,
        age: Duration,
    },
}

impl Blocker {
    /// 0: it has no process.
    pub(crate) fn pid(&self) -> i32 {
        match self {
            Blocker::Session { pid, .. } => *pid,
            Blocker::Prepared { .. } => 0,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |age: &Duration| humantime::format_duration(Duration::from_secs(age.as_secs()));
        match self {
            Blocker::Session { pid, state, application_name, user, database, age } => {
                write!(f, "the transaction of process {pid}")?;
                if let Some(age) = age {
                    write!(f, ", {} old", seconds(age))?;
                }
                for (word, value) in
                    [("user", user), ("database", database), ("application", application_name), ("now", state)]
                {
                    if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                        write!(f, ", {word} {}", value.escape_debug())?;
                    }
                }
                write!(f, " (to end it: select pg_terminate_backend({pid}))")
            }
            Blocker::Prepared { gid, age } => {
                let gid = quote::literal(gid);
                write!(
                    f,
                    "the prepared transaction {gid}, {} old (commit prepared {gid}, or rollback prepared)",
                    seconds(age)
                )
            }
        }
    }
}

/// What the session `pid`, which makes a slot, waits for.
pub(crate) async fn blockers(observer: &Client, pid: i32) -> Result<Vec<Blocker>, Error> {
    let sessions = observer
        .query(
            "select b.pid, a.state, a.application_name, a.usename::text, a.datname::text,
                    extract(epoch from clock_timestamp() - a.xact_start)::float8
             from unnest(pg_blocking_pids($1)) as b (pid) left join pg_stat_activity a on a.pid = b.pid
             where b.pid <> 0",
            &[&pid],
        )
        .await?;
    // A prepared transaction has no process: it is found by the transaction id that is waited for.
    let prepared = observer
        .query(
            "select p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8
             from pg_locks l join pg_prepared_xacts p on p.transaction = l.transactionid
             where l.pid = $1 and not l.granted",
            &[&pid],
        )
        .await?;
    let age = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let mut blockers = Vec::with_capacity(sessions.len() + prepared.len());
    for row in &sessions {
        blockers.push(Blocker::Session {
            pid: row.try_get(0)?,
            state: row.try_get(1)?,
            application_name: row.try_get(2)?,
            user: row.try_get(3)?,
            database: row.try_get(4)?,
            age: row.try_get::<_, Option<f64>>(5)?.map(age),
        });
    }
    for row in &prepared {
        blockers.push(Blocker::Prepared { gid: row.try_get(0)?, age: age(row.try_get(1)?) });
    }
    Ok(blockers)
}
