//! What the server and the role that we are on it say of themselves: the facts that set-up, check and status judge.

use tokio_postgres::{Client, Error};

/// Facts of the server and of our session's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `server_version_num`: 150004 is 15.4.
    pub version: i32,
    /// `server_version`, as the server words it.
    pub version_text: String,
    pub database: String,
    pub in_recovery: bool,
    pub wal_level: String,
    pub max_replication_slots: i32,
    pub replication_slots: i64,
    pub max_wal_senders: i32,
    pub wal_senders: i64,
    pub synchronous_standby_names: String,
    /// Milliseconds; 0 is never.
    pub wal_sender_timeout_ms: i64,
    /// As the server prints it; `-1` is without limit.
    pub max_slot_wal_keep_size: String,
    /// From PostgreSQL 18 on; `0` is never.
    pub idle_replication_slot_timeout: Option<String>,
    /// From PostgreSQL 17 on: the slots of standbys that nothing is streamed ahead of.
    pub synchronized_standby_slots: Option<String>,
    pub role: Role,
}

/// The role that we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub superuser: bool,
    pub create_role: bool,
    /// May make schemas and publications in this database.
    pub create_in_database: bool,
    pub reads_all_stats: bool,
}

impl Server {
    pub async fn read(client: &Client) -> Result<Server, Error> {
        let row = client
            .query_one(
                "select current_setting('server_version_num')::int as version,
                        current_setting('server_version') as version_text,
                        current_database()::text as database,
                        pg_is_in_recovery() as in_recovery,
                        current_setting('wal_level') as wal_level,
                        current_setting('max_replication_slots')::int as max_replication_slots,
                        (select count(*) from pg_replication_slots) as replication_slots,
                        current_setting('max_wal_senders')::int as max_wal_senders,
                        (select count(*) from pg_stat_activity where backend_type = 'walsender') as wal_senders,
                        current_setting('synchronous_standby_names') as synchronous_standby_names,
                        (select setting::bigint from pg_settings where name = 'wal_sender_timeout') as wal_sender_timeout,
                        current_setting('max_slot_wal_keep_size') as max_slot_wal_keep_size,
                        current_setting('idle_replication_slot_timeout', true) as idle_timeout,
                        current_setting('synchronized_standby_slots', true) as standby_slots,
                        r.rolname::text as role,
                        r.rolsuper, r.rolcreaterole,
                        has_database_privilege(current_database(), 'CREATE') as create_in_database,
                        pg_has_role('pg_read_all_stats', 'USAGE') as reads_all_stats
                 from pg_roles r where r.rolname = current_user",
                &[],
            )
            .await?;
        Ok(Server {
            version: row.try_get("version")?,
            version_text: row.try_get("version_text")?,
            database: row.try_get("database")?,
            in_recovery: row.try_get("in_recovery")?,
            wal_level: row.try_get("wal_level")?,
            max_replication_slots: row.try_get("max_replication_slots")?,
            replication_slots: row.try_get("replication_slots")?,
            max_wal_senders: row.try_get("max_wal_senders")?,
            wal_senders: row.try_get("wal_senders")?,
            synchronous_standby_names: row.try_get("synchronous_standby_names")?,
            wal_sender_timeout_ms: row.try_get("wal_sender_timeout")?,
            max_slot_wal_keep_size: row.try_get("max_slot_wal_keep_size")?,
            idle_replication_slot_timeout: row.try_get("idle_timeout")?,
            synchronized_standby_slots: row.try_get("standby_slots")?,
            role: Role {
                name: row.try_get("role")?,
                superuser: row.try_get("rolsuper")?,
                create_role: row.try_get("rolcreaterole")?,
                create_in_database: row.try_get("create_in_database")?,
                reads_all_stats: row.try_get("reads_all_stats")?,
            },
        })
    }

    /// Major version: 15.
    pub fn major(&self) -> i32 {
        self.version / 10_000
    }
}

/// Replication sessions that the application's commits wait for, by application name.
///
/// A walsender of ours must not be among them: commits would wait for Kafka (`synchronous_standby_names = '*'`).
pub async fn synchronous_senders(client: &Client) -> Result<Vec<SynchronousSender>, Error> {
    let rows = client
        .query(
            "select r.pid, r.application_name, r.sync_state, s.slot_name::text
             from pg_stat_replication r left join pg_replication_slots s on s.active_pid = r.pid
             where r.sync_state <> 'async'",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(SynchronousSender {
                pid: row.try_get(0)?,
                application_name: row.try_get(1)?,
                sync_state: row.try_get(2)?,
                slot: row.try_get(3)?,
            })
        })
        .collect()
}

/// A replication session whose acknowledgement commits may wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynchronousSender {
    pub pid: i32,
    pub application_name: String,
    /// `sync`, `potential` or `quorum`.
    pub sync_state: String,
    /// The slot it streams from.
    pub slot: Option<String>,
}
