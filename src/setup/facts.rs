//! What exists already, and what we may make: all that a plan is decided from.

use tokio_postgres::{Client, Error};

use super::{names, record};
use crate::{
    config::Config,
    postgres::{
        attempt, dead_letter,
        progress::{self, Progress},
        publication::Publication,
        refusal::Refusal,
        replication::Replication,
        schema::ENQUEUE_ARGUMENTS_BEFORE,
        server::Server,
        slot::Slot,
        table::Table,
    },
};

/// Name of the view that `sql/event_state.sql` makes.
pub const EVENT_STATE: &str = "event_state";

/// The three roles of `sql/roles.sql`.
pub const ROLES: [&str; 3] = ["walpost_stream", "walpost_operate", "walpost_enqueue"];

/// The state of a database as far as set-up is concerned.
#[derive(Clone, Debug)]
pub struct Facts {
    pub server: Server,
    /// Walpost's home schema.
    pub home: SchemaFacts,
    /// There is a record of set-up; whether we may write it.
    pub record: Option<bool>,
    /// The table of dead letters is there.
    pub dead_letters_exist: bool,
    pub attempts_exist: bool,
    /// The table that holds the proof of publication is there.
    pub progress_exists: bool,
    /// This role may read and write it as a stream does.
    pub may_write_progress: bool,
    /// What it says of the slot, where it may be read.
    pub known: Option<Progress>,
    /// That is of another server: the database was restored from a dump.
    pub progress_is_foreign: bool,
    /// The view of what has become of each event is there.
    pub event_state_exists: bool,
    /// The function `idempotency_key` is at home.
    pub idempotency_key_exists: bool,
    /// None where no outbox is messages.
    pub emit: Option<EmitFacts>,
    /// One for each outbox table of the configuration, in its order.
    pub outboxes: Vec<OutboxFacts>,
    pub publication: Option<Publication>,
    pub slot: Option<Slot>,
    /// The server refused a replication connection for want of the right to it. Asked only where the slot is missing.
    pub may_not_replicate: bool,
    /// Those of [`ROLES`] that the server lacks.
    pub missing_roles: Vec<&'static str>,
    /// `walpost_stream` has the attribute without which it cannot stream; none where there is no such role yet.
    pub stream_role_replicates: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaFacts {
    pub exists: bool,
    /// We may make things in it.
    pub create: bool,
}

/// The functions `emit` and `emit_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmitFacts {
    /// At least one of them is there.
    pub exist: bool,
    /// They are there, and take the first prefix of the configuration where none is given.
    pub current: bool,
    /// One of them is there, and is another role's.
    pub foreign: bool,
    /// The roles have their rights on them and on what is at home.
    pub granted: bool,
}

#[derive(Clone, Debug)]
pub struct OutboxFacts {
    pub schema: SchemaFacts,
    pub table: Option<Table>,
    pub enqueue_exists: bool,
    /// It is one that an earlier version made, which takes no version of the aggregate.
    pub enqueue_is_former: bool,
    /// It is another role's.
    pub enqueue_is_foreign: bool,
    /// An index keeps the versions of aggregates unique.
    pub versions_are_unique: bool,
    /// The table of idempotency keys that a partitioned outbox has.
    pub idempotency_exists: bool,
    /// The roles have their rights on it.
    pub granted: bool,
}

impl Facts {
    /// What is known of the slot of this server.
    pub fn own(&self) -> Option<&Progress> {
        self.known.as_ref().filter(|_| !self.progress_is_foreign)
    }

    pub async fn read(client: &Client, config: &Config) -> Result<Facts, Error> {
        let server = Server::read(client).await?;
        let home = names::home(config);
        let mut outboxes = Vec::with_capacity(config.outboxes.len());
        for outbox in &config.outboxes {
            let table = Table::read(client, &outbox.name.schema, &outbox.name.table).await?;
            let row = client
                .query_one(
                    "select exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                                    where n.nspname = $1 and p.proname = 'enqueue'),
                            exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                                    where n.nspname = $1 and c.relname = 'idempotency'),
                            exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                                    where n.nspname = $1 and p.proname = 'enqueue' and oidvectortypes(p.proargtypes) = $2),
                            exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                                    where n.nspname = $1 and p.proname = 'enqueue' and not pg_has_role(p.proowner, 'USAGE')),
                            exists (select from pg_index i join pg_attribute a on attrelid = indrelid and attnum = any (indkey)
                                    where indrelid = $3::oid and indisunique and indisvalid and attname = $4)",
                    &[
                        &outbox.name.schema,
                        &ENQUEUE_ARGUMENTS_BEFORE.replace("timestamptz", "timestamp with time zone"),
                        &table.as_ref().map_or(0, |table| table.oid),
                        &outbox.columns.aggregate_version.name,
                    ],
                )
                .await?;
            outboxes.push(OutboxFacts {
                schema: SchemaFacts::read(client, &outbox.name.schema).await?,
                granted: match &table {
                    Some(table) => {
                        granted(client, table.oid, &outbox.name.schema).await?
                            && (outbox.name.schema != home || granted_at_home(client, home, true).await?)
                    }
                    None => false,
                },
                table,
                enqueue_exists: row.try_get(0)?,
                idempotency_exists: row.try_get(1)?,
                enqueue_is_former: row.try_get(2)?,
                enqueue_is_foreign: row.try_get(3)?,
                versions_are_unique: row.try_get(4)?,
            });
        }
        let roles = client
            .query(
                "select rolname::text, rolsuper or rolreplication or coalesce(
                     pg_has_role(oid, (select oid from pg_roles where rolname = 'rds_replication'), 'MEMBER'), false)
                 from pg_roles where rolname = any($1)",
                &[&&ROLES[..]],
            )
            .await?;
        let mut existing = Vec::with_capacity(roles.len());
        for row in &roles {
            existing.push((row.try_get::<_, String>(0)?, row.try_get::<_, bool>(1)?));
        }
        let slot = Slot::read(client, server.major(), &config.slot).await?;
        let progress = progress::Access::read(client, home).await?;
        let known = match progress {
            Some(progress) if progress.select => Progress::read(client, home, &config.slot).await?,
            Some(_) | None => None,
        };
        let system_identifier = progress::system_identifier(client).await?;
        let find = |role: &str| existing.iter().find(|(name, _)| name == role);
        Ok(Facts {
            home: SchemaFacts::read(client, home).await?,
            record: record(client, home).await?,
            dead_letters_exist: dead_letter::Access::read(client, home).await?.is_some(),
            attempts_exist: exists(client, home, attempt::TABLE).await?,
            progress_exists: progress.is_some(),
            may_write_progress: progress.is_some_and(progress::Access::streams),
            progress_is_foreign: known.as_ref().is_some_and(|known| known.system_identifier != system_identifier),
            known,
            event_state_exists: exists(client, home, EVENT_STATE).await?,
            idempotency_key_exists: client
                .query_one(
                    "select exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                                    where n.nspname = $1 and p.proname = 'idempotency_key')",
                    &[&home],
                )
                .await?
                .try_get(0)?,
            emit: EmitFacts::read(client, config).await?,
            outboxes,
            publication: Publication::read(client, server.major(), &config.publication).await?,
            may_not_replicate: slot.is_none() && may_not_replicate(config).await,
            slot,
            missing_roles: ROLES.into_iter().filter(|role| find(role).is_none()).collect(),
            stream_role_replicates: find(ROLES[0]).map(|(_, replicates)| *replicates),
            server,
        })
    }
}

impl EmitFacts {
    /// None: no outbox is messages.
    pub async fn read(client: &Client, config: &Config) -> Result<Option<EmitFacts>, Error> {
        let Some(outbox) = config.messages.first() else { return Ok(None) };
        let (home, prefix) = (names::home(config), &outbox.name.table);
        let row = client
            .query_one(
                "select count(*) = 2 and coalesce(bool_and(
                            strpos(pg_get_function_arguments(p.oid), 'prefix text DEFAULT ' || quote_literal($2::text) || '::text') > 0), false),
                        coalesce(bool_or(not pg_has_role(p.proowner, 'USAGE')), false),
                        count(*) = 2 and coalesce(bool_and(has_function_privilege(r.oid, p.oid, 'EXECUTE')
                            and has_schema_privilege(r.oid, n.oid, 'USAGE')), false),
                        count(*) > 0
                 from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                 left join pg_roles r on r.rolname = 'walpost_enqueue'
                 where n.nspname = $1 and p.proname in ('emit', 'emit_bytes')",
                &[&home, &prefix],
            )
            .await?;
        // Where a table is walpost's own, its grants show whether those at home are there.
        let own = config.outboxes.iter().any(|outbox| names::is_own(&outbox.columns));
        Ok(Some(EmitFacts {
            exist: row.try_get(3)?,
            current: row.try_get(0)?,
            foreign: row.try_get(1)?,
            granted: row.try_get(2)? && (own || granted_at_home(client, home, false).await?),
        }))
    }
}

impl SchemaFacts {
    pub(super) async fn read(client: &Client, schema: &str) -> Result<SchemaFacts, Error> {
        let row = client
            .query_opt("select has_schema_privilege(oid, 'CREATE') from pg_namespace where nspname = $1", &[&schema])
            .await?;
        Ok(match row {
            Some(row) => SchemaFacts { exists: true, create: row.try_get(0)? },
            None => SchemaFacts { exists: false, create: false },
        })
    }
}

/// Whether we may write the record of set-up; none: there is no such table.
pub(super) async fn record(client: &Client, home: &str) -> Result<Option<bool>, Error> {
    let row = client
        .query_opt(
            "select has_table_privilege(c.oid, 'INSERT') and has_schema_privilege(n.oid, 'USAGE')
             from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2",
            &[&home, &record::TABLE],
        )
        .await?;
    row.map(|row| row.try_get(0)).transpose()
}

/// There is a table or view of that name.
async fn exists(client: &Client, schema: &str, name: &str) -> Result<bool, Error> {
    let relation = client
        .query_opt(
            "select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2",
            &[&schema, &name],
        )
        .await?;
    Ok(relation.is_some())
}

/// Tried, because managed services have ways to the right that the catalog does not show. Other trouble of a replication
/// connection is no hindrance here.
async fn may_not_replicate(config: &Config) -> bool {
    match Replication::connect(&config.database).await {
        Ok(session) => {
            session.close().await;
            false
        }
        Err(error) => matches!(error.refusal(), Some(Refusal::ReplicationRight { .. })),
    }
}

/// The grants of `sql/roles.sql` on an outbox are there.
async fn granted(client: &Client, table: u32, schema: &str) -> Result<bool, Error> {
    let row = client
        .query_one(
            "select count(*) = 3 and coalesce(bool_and(
                        has_schema_privilege(r.oid, n.oid, 'USAGE') and case r.rolname
                            when 'walpost_enqueue' then has_table_privilege(r.oid, $1::oid, 'INSERT')
                                and not exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'aggregate_version'
                                                and not has_table_privilege(r.oid, c.oid, 'INSERT'))
                            else has_table_privilege(r.oid, $1::oid, 'SELECT') end), false)
             from pg_roles r, pg_namespace n where r.rolname = any($2) and n.nspname = $3",
            &[&table, &&ROLES[..], &schema],
        )
        .await?;
    row.try_get(0)
}

/// Its grants on walpost's other tables and views are there; these too.
/// `view`: the one of the state of events is among them.
async fn granted_at_home(client: &Client, home: &str, view: bool) -> Result<bool, Error> {
    let row = client
        .query_one(
            "select count(*) >= $5 and coalesce(bool_and(has_table_privilege(r.oid, c.oid,
                        case when r.rolname = 'walpost_stream' and c.relkind <> 'v' then 'INSERT' else 'SELECT' end)), false)
             from pg_roles r, pg_class c join pg_namespace n on n.oid = c.relnamespace
             where r.rolname in ('walpost_stream', 'walpost_operate') and n.nspname = $1 and c.relname in ($2, $3, $4)",
            &[&home, &dead_letter::TABLE, &progress::TABLE, &EVENT_STATE, &if view { 6_i64 } else { 4 }],
        )
        .await?;
    row.try_get(0)
}
