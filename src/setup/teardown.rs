//! Drops what set-up recorded as made, and nothing else.
//!
//! What others may still need stays: objects that a second slot on record shares, tables with rows unless told
//! otherwise (and then their functions, roles and schema too), and a role or schema on which other things hang.

use tokio_postgres::{Client, Error};

use super::{
    names,
    record::{self, Kind, Made},
};
use crate::{
    config::Config,
    postgres::{
        bookmark::{self, Bookmark},
        progress, quote,
        slot::{self, Slot, SlotError},
    },
};

/// Something on record and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub made: Made,
    /// Why it stays; none: it is dropped.
    pub kept: Option<&'static str>,
}

/// What teardown knows of the things on record.
#[derive(Clone, Debug)]
pub struct Facts {
    /// In the order in which it is to be dropped.
    pub made: Vec<Made>,
    /// Tables of it that hold rows.
    pub with_rows: Vec<Made>,
    pub slot: Option<Slot>,
}

impl Facts {
    /// None: there is no record.
    pub async fn read(client: &Client, config: &Config, major: i32) -> Result<Option<Facts>, Error> {
        let Some(mut made) = record::read(client, names::home(config)).await? else { return Ok(None) };
        let mut with_rows = Vec::new();
        for table in made.iter().filter(|made| made.kind == Kind::Table && made.name != record::TABLE) {
            let exists = client
                .query_opt(
                    "select from pg_class c join pg_namespace n on n.oid = c.relnamespace
                     where n.nspname = $1 and c.relname = $2",
                    &[&table.schema, &table.name],
                )
                .await?;
            // A slot's progress goes with the slot.
            let theirs = match table.name == progress::TABLE {
                true => format!("where slot <> {}", quote::literal(&config.slot)),
                false => String::new(),
            };
            let first = format!("select 1 from {} {theirs} limit 1", quote::qualified(&table.schema, &table.name));
            if exists.is_some() && client.query_opt(&first, &[]).await?.is_some() {
                with_rows.push(table.clone());
            }
        }
        // Whoever made them, they are copies of the slot.
        let bookmarks = Bookmark::all(client, major, &config.slot).await?;
        made.splice(..0, bookmarks.iter().map(|bookmark| Made::global(Kind::Slot, &bookmark.slot.name)));
        Ok(Some(Facts { made, with_rows, slot: Slot::read(client, major, &config.slot).await? }))
    }
}

/// Which half of what is on record is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The producer's: all but the inbox.
    Outbox,
    /// The consumer's.
    Inbox,
}

/// Decides what is dropped and what stays.
pub fn plan(config: &Config, facts: &Facts, half: Half, drop_data: bool) -> Vec<Item> {
    let is_shared = |made: &Made| made.kind == Kind::Schema || made.kind == Kind::Table && made.name == record::TABLE;
    let of_half = |made: &Made| made.is_inbox() == (half == Half::Inbox);
    let both = facts.made.iter().any(|made| !is_shared(made) && !of_half(made));
    let ours = |made: &Made| match made.kind {
        Kind::Slot => made.name == config.slot || bookmark::divide(&made.name).is_some_and(|(of, _)| of == config.slot),
        Kind::Publication => made.name == config.publication,
        Kind::View | Kind::Function | Kind::Table | Kind::TriggerFunction | Kind::Role | Kind::Schema => true,
    };
    let shared = half == Half::Outbox && facts.made.iter().any(|made| !ours(made));
    let rows = !drop_data && facts.with_rows.iter().any(of_half);
    let kept = |made: &Made| match made.kind {
        _ if is_shared(made) && both => Some("other things on record need it"),
        _ if !is_shared(made) && !of_half(made) => Some(match half {
            Half::Outbox => "it is the inbox's; teardown --inbox drops it",
            Half::Inbox => "it is no part of the inbox",
        }),
        Kind::Slot | Kind::Publication => (!ours(made)).then_some("it belongs to another set-up"),
        _ if shared => Some("another set-up uses it"),
        Kind::Table if rows && facts.with_rows.contains(made) => Some("it holds rows; --drop-data drops it"),
        _ if rows => Some("the table that holds rows needs it"),
        Kind::View | Kind::Function | Kind::Table | Kind::TriggerFunction | Kind::Role | Kind::Schema => None,
    };
    facts.made.iter().map(|made| Item { kept: kept(made), made: made.clone() }).collect()
}

/// Why teardown stopped. What was dropped until then is off the record.
#[derive(Debug, thiserror::Error)]
pub enum TeardownError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("could not drop {what}")]
    Drop { what: String, source: Error },
    #[error("the server failed")]
    Sql(#[from] Error),
}

/// Drops what the plan drops, in its order; `dropped` hears of each, with the reason where one had to stay.
pub async fn apply(
    client: &Client,
    config: &Config,
    role: &str,
    items: &[Item],
    mut dropped: impl FnMut(&Made, Option<&str>),
) -> Result<(), TeardownError> {
    let home = names::home(config);
    let is_last = |made: &Made| made.kind == Kind::Schema || made.name == record::TABLE && made.schema == home;
    let mut all = items.iter().all(|item| item.kept.is_none());
    for Item { made, .. } in items.iter().filter(|item| item.kept.is_none() && !is_last(&item.made)) {
        match drop_one(client, config, role, made).await {
            Ok(()) => {
                record::strike(client, home, made).await?;
                dropped(made, None);
            }
            Err(TeardownError::Drop { source, .. }) if is_dependency(&source) => {
                all = false;
                dropped(made, Some("other things depend on it"));
            }
            Err(error) => return Err(error),
        }
    }
    // The record and the schemas go only with the last of their content, so that teardown can be run again.
    for Item { made, .. } in items.iter().filter(|item| item.kept.is_none() && is_last(&item.made)) {
        if !all {
            dropped(made, Some("what is kept needs it"));
            continue;
        }
        match drop_one(client, config, role, made).await {
            Ok(()) => dropped(made, None),
            Err(TeardownError::Drop { source, .. }) if is_dependency(&source) => {
                dropped(made, Some("it holds other things"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn drop_one(client: &Client, config: &Config, role: &str, made: &Made) -> Result<(), TeardownError> {
    let failed = |source| TeardownError::Drop { what: made.to_string(), source };
    if made.kind == Kind::Slot {
        match slot::drop(client, &made.name, role).await {
            Err(SlotError::Missing(_)) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        let home = names::home(config);
        if progress::Access::read(client, home).await?.is_some() {
            progress::forget(client, home, &made.name).await.map_err(failed)?;
        }
        return Ok(());
    }
    let mut sql = made.drop_statement();
    if made.kind == Kind::Role {
        // Its right to use our schemas would hold it.
        let mut schemas: Vec<_> = config.outboxes.iter().map(|outbox| outbox.name.schema.as_str()).collect();
        schemas.push(names::home(config));
        let revokes = revokes(client, &schemas, &made.name).await?;
        sql = format!("{revokes}{sql}");
    }
    client.batch_execute(&sql).await.map_err(failed)
}

/// Statements that take the right to use these schemas from a role, for those that exist.
async fn revokes(client: &Client, schemas: &[&str], role: &str) -> Result<String, Error> {
    let rows = client
        .query(
            "select nspname::text from pg_namespace
             where nspname = any($1) and exists (select from pg_roles where rolname = $2)",
            &[&schemas, &role],
        )
        .await?;
    let mut statements = String::new();
    for row in &rows {
        let schema = quote::ident(row.try_get(0)?);
        statements.push_str(&format!("revoke all on schema {schema} from {}; ", quote::ident(role)));
    }
    Ok(statements)
}

fn is_dependency(error: &Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::DEPENDENT_OBJECTS_STILL_EXIST)
}
