//! The inbox alone, in a consumer's database: no outbox, publication or slot.

use tokio_postgres::{Client, Error};

use super::{
    facts::{self, SchemaFacts},
    plan::{self, Plan},
    record::{Kind, Made},
};
use crate::{
    check::Finding,
    postgres::{
        quote,
        schema::{self, INBOX_FUNCTIONS, INBOX_ROLE, INBOX_TABLES, INBOX_VIEWS},
        server::Server,
    },
};

/// The state of a database as far as the inbox is concerned.
#[derive(Clone, Debug)]
pub struct Facts {
    pub server: Server,
    /// Walpost's home schema.
    pub home: SchemaFacts,
    /// There is a record of set-up; whether we may write it.
    pub record: Option<bool>,
    /// Tables, view and functions that are not there.
    pub missing: Vec<Made>,
    /// One that is there is another role's.
    pub foreign: bool,
    pub role_exists: bool,
    /// The roles that exist have their rights on it.
    pub granted: bool,
}

impl Facts {
    pub async fn read(client: &Client, home: &str) -> Result<Facts, Error> {
        let rows = client
            .query(
                "select c.relname::text, not pg_has_role(c.relowner, 'USAGE')
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname like 'inbox%'
                 union all
                 select p.proname::text, not pg_has_role(p.proowner, 'USAGE')
                 from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = $1 and p.proname like 'inbox%'",
                &[&home],
            )
            .await?;
        let mut found: Vec<(String, bool)> = Vec::with_capacity(rows.len());
        for row in &rows {
            found.push((row.try_get(0)?, row.try_get(1)?));
        }
        let parts = parts(home);
        let owner = |made: &Made| found.iter().find(|(name, _)| *name == made.name).map(|(_, foreign)| *foreign);
        let roles = client
            .query_one(
                "select exists (select from pg_roles where rolname = $2),
                        (select coalesce(bool_and(has_schema_privilege(r.oid, n.oid, 'USAGE')
                                                  and has_table_privilege(r.oid, c.oid, needed.privilege)), true)
                         from (values ($2::text, 'inbox', 'INSERT'), ($2, 'inbox_suppressed', 'INSERT'),
                                      ($2, 'inbox_position', 'UPDATE'), ($2, 'inbox_stats', 'SELECT'),
                                      ('walpost_operate', 'inbox', 'DELETE'), ('walpost_operate', 'inbox_metrics', 'SELECT'),
                                      ('walpost_operate', 'inbox_consumer', 'UPDATE'))
                              as needed(role, relation, privilege)
                         join pg_roles r on r.rolname = needed.role
                         join pg_class c on c.relname = needed.relation
                         join pg_namespace n on n.oid = c.relnamespace and n.nspname = $1)",
                &[&home, &INBOX_ROLE],
            )
            .await?;
        Ok(Facts {
            server: Server::read(client).await?,
            home: SchemaFacts::read(client, home).await?,
            record: facts::record(client, home).await?,
            foreign: parts.iter().any(|made| owner(made) == Some(true)),
            missing: parts.into_iter().filter(|made| owner(made).is_none()).collect(),
            role_exists: roles.try_get(0)?,
            granted: roles.try_get(1)?,
        })
    }
}

/// What `sql/inbox.sql` makes, but for the role.
fn parts(home: &str) -> Vec<Made> {
    let tables = INBOX_TABLES.iter().map(|table| Made::in_schema(Kind::Table, home, table));
    let functions = INBOX_FUNCTIONS.iter().map(|(name, _)| Made::in_schema(Kind::Function, home, name));
    let views = INBOX_VIEWS.iter().map(|view| Made::in_schema(Kind::View, home, view));
    tables.chain(views).chain(functions).collect()
}

/// Decides what to make.
pub fn plan(home: &str, facts: &Facts) -> Plan {
    let Facts { server, .. } = facts;
    let role = Made::global(Kind::Role, INBOX_ROLE);
    let may_make_role = server.role.create_role || server.role.superuser;
    let makes_role = !facts.role_exists && may_make_role;
    let mut steps = Vec::new();
    if !facts.missing.is_empty() || !facts.granted || makes_role {
        plan::schema_of(&mut steps, server, home, &facts.home, false);
        let lacking = match facts.foreign {
            true => Some(format!("needs the owner of {}", quote::qualified(home, INBOX_TABLES[0]))),
            false => plan::lacking_in_schema(server, home, &facts.home),
        };
        let title = match facts.missing.first() {
            Some(first) if first.name == INBOX_TABLES[0] => format!("create {first}, with all that belongs to it"),
            Some(first) => format!("create {first} and what else the inbox lacks"),
            None if makes_role => format!("create {role}"),
            None => "grant the roles their rights on the inbox".to_owned(),
        };
        let makes = facts.missing.iter().cloned().chain(makes_role.then(|| role.clone())).collect();
        steps.push(plan::statements(title, schema::inbox(home), makes, lacking, false));
    }
    let recorded = plan::record(&mut steps, server, home, &facts.home, facts.record);
    let mut notices = Vec::new();
    if !facts.role_exists && !may_make_role {
        notices.push(Finding::note(
            role.to_string(),
            format!(
                "is not made: {} has no CREATEROLE, and only the owner uses the inbox",
                quote::ident(&server.role.name)
            ),
            format!("as a role that has it: create role {INBOX_ROLE}; then walpost setup --inbox"),
        ));
    }
    let mut faults = Vec::new();
    if server.in_recovery {
        faults.push(Finding::error(
            "server",
            "is a standby: no table can be made on it",
            "name the primary in database_url, or all hosts with target_session_attrs=read-write",
        ));
    }
    Plan { steps, faults, notices, recorded }
}
