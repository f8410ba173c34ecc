//! An outbox as prune finds it: what there is, whether any of it may be deleted, and the condition that says which rows.

use std::slice;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Error, Order};
use crate::{
    config::Config,
    pipeline::{OnUpdate, outbox::Outbox},
    postgres::{
        coverage, dead_letter, progress,
        publication::Publication,
        published::Published,
        quote::{ident, literal, qualified},
        server::Server,
        table::{Kind, Table},
    },
    setup::names,
};

/// What a session of prune is set to. It waits for no lock for long, may lose what it deleted in a crash of the server (it
/// deletes it again), and prints times as the condition reads them. A row that row security would hide is an error.
pub(super) const SETTINGS: &str = "\
    set search_path = pg_catalog; set timezone = 'UTC'; set datestyle = 'ISO'; set row_security = off;
    set default_transaction_isolation = 'read committed'; set synchronous_commit = off; set jit = off;
    set statement_timeout = 0; set lock_timeout = '1s'";

/// Why a row is kept, or that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Filtered,
    Unproven,
    Young,
    Letter,
    Prunable,
}

impl Class {
    const ALL: [Class; 5] = [Class::Filtered, Class::Unproven, Class::Young, Class::Letter, Class::Prunable];

    fn word(self) -> &'static str {
        match self {
            Class::Filtered => "filtered",
            Class::Unproven => "unproven",
            Class::Young => "young",
            Class::Letter => "letter",
            Class::Prunable => "prunable",
        }
    }

    pub(super) fn of(word: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.word() == word)
    }
}

/// An outbox that may be pruned.
pub(super) struct Site {
    pub(super) oid: u32,
    /// As SQL writes it.
    pub(super) table: String,
    pub(super) partitioned: bool,
    pub(super) owned: bool,
    /// The [`Class`] of row `o`, as an SQL expression.
    class: String,
    /// Rows that occurred before it are old enough; a timestamptz as text.
    pub(super) cutoff: String,
    pub(super) occurred_at: Option<String>,
    pub(super) keys: Vec<Keys>,
}

/// A table beside a partitioned outbox that keeps unique what its events have: idempotency keys, or the versions of
/// aggregates. A key goes with its event.
pub(super) struct Keys {
    /// As SQL writes it.
    pub(super) table: String,
    /// Its columns, each with the outbox's, as SQL writes them.
    columns: Vec<(&'static str, String)>,
}

impl Site {
    pub(super) async fn read(client: &Client, order: &Order<'_>, outbox: &Outbox) -> Result<Site, Error> {
        let Order { config, retention, dry_run } = *order;
        let server = Server::read(client).await?;
        let role = ident(&server.role.name);
        let name = qualified(&outbox.name.schema, &outbox.name.table);
        let Some(table) = Table::read(client, &outbox.name.schema, &outbox.name.table).await? else {
            return Err(Error::NoTable { table: name, role });
        };
        if table.kind == Kind::NoTable || table.partition_of.is_some() {
            return Err(Error::NotTheTable {
                table: name,
                root: table.partition_of.unwrap_or_else(|| "a view".to_owned()),
            });
        }
        if table.hides_rows {
            return Err(Error::HidesRows { table: name, role });
        }
        let Some(published) = table.published(outbox) else {
            return Err(Error::NoTxid { table: name, column: ident(&outbox.columns.txid.name) });
        };
        let time = table.column(&outbox.columns.occurred_at.name);
        let time = time.filter(|column| column.is_timestamp() || column.type_name == "date");
        let occurred_at = time.map(|column| &column.name);
        if occurred_at.is_none() && !retention.is_zero() {
            return Err(Error::NoTime { table: name, column: ident(&outbox.columns.occurred_at.name) });
        }
        let publication = Publication::read(client, server.major(), &config.publication).await?;
        judge_publication(config, outbox, publication.as_ref(), &name)?;
        let keys = Keys::read(client, outbox, &table).await?;
        let home = names::home(config);
        let letters = dead_letter::Access::read(client, home).await?;
        rights(client, &name, &role, table.oid, &keys, letters, home, dry_run).await?;
        let proof = Proof::read(client, config, outbox, server.major(), &published, letters.is_some()).await?;
        let cutoff: String = client
            .query_one("select (clock_timestamp() - make_interval(secs => $1))::text", &[&retention.as_secs_f64()])
            .await?
            .try_get(0)?;
        let has_letter = match letters {
            Some(_) => Some(dead_letter::Encoding::read(client).await?.has_open(home, &outbox.columns.id)),
            None => None,
        };
        let filter = publication.as_ref().and_then(|publication| filter(publication, outbox));
        let class = class(&proof.condition, filter, occurred_at, &cutoff, has_letter);
        Ok(Site {
            oid: table.oid,
            table: name,
            partitioned: table.kind == Kind::Partitioned,
            owned: table.owned,
            class,
            cutoff,
            occurred_at: occurred_at.cloned(),
            keys,
        })
    }

    /// Rows of the outbox itself, as `FROM` has them, under the name `o`.
    pub(super) fn rows(&self) -> String {
        // Children of another kind of inheritance are no part of the outbox.
        format!("{}{} o", if self.partitioned { "" } else { "only " }, self.table)
    }

    /// Counts the rows by class. `rows` as [`Site::rows`], `span` is a condition.
    pub(super) fn count(&self, rows: &str, span: &str) -> String {
        format!("select {}, count(*) from {rows} where {span} group by 1", self.class)
    }

    /// Deletes what is prunable, with its keys, and gives how many rows that were.
    pub(super) fn delete(&self, rows: &str, span: &str) -> String {
        let condition = format!("{span} and {} = '{}'", self.class, Class::Prunable.word());
        let mut columns: Vec<_> = self.keys.iter().flat_map(Keys::selected).collect();
        columns.sort_unstable();
        columns.dedup();
        let returning = if columns.is_empty() { "1".to_owned() } else { columns.join(", ") };
        let forgotten = self.keys.iter().enumerate().map(|(number, keys)| {
            format!(", forgotten_{number} as (delete from {} k using gone where {})", keys.table, keys.condition())
        });
        format!(
            "with gone as (delete from {rows} where {condition} returning {returning}){} select count(*) from gone",
            forgotten.collect::<String>()
        )
    }

    /// Deletes the keys of rows that go by another way.
    pub(super) fn forget(&self, rows: &str, span: &str) -> Option<String> {
        let statements = self.keys.iter().map(|keys| {
            let columns = keys.selected().collect::<Vec<_>>().join(", ");
            format!(
                "delete from {} k using (select {columns} from {rows} where {span}) gone where {};",
                keys.table,
                keys.condition()
            )
        });
        (!self.keys.is_empty()).then(|| statements.collect())
    }
}

fn judge_publication(
    config: &Config,
    outbox: &Outbox,
    publication: Option<&Publication>,
    table: &str,
) -> Result<(), Error> {
    let quoted = ident(&config.publication);
    let lacking = |remedy| Error::NotPublished { table: table.to_owned(), publication: quoted.clone(), remedy };
    let Some(publication) = publication else {
        return Err(lacking("it does not exist, walpost setup makes it".to_owned()));
    };
    if !publication.inserts {
        return Err(lacking(format!("ALTER PUBLICATION {quoted} SET (publish = 'insert')")));
    }
    if publication.published(&outbox.name.schema, &outbox.name.table).is_none() {
        return Err(lacking(format!(
            "ALTER PUBLICATION {quoted} ADD TABLE {table}, or for one that is partitioned SET (publish_via_partition_root = true)"
        )));
    }
    if publication.deletes || publication.truncates {
        if config.on_update == OnUpdate::Halt {
            return Err(Error::Published { publication: quoted });
        }
        tracing::warn!(
            "publication {quoted} publishes deletes or truncates: the stream passes over what is pruned, other readers of \
             the publication get it; ALTER PUBLICATION {quoted} SET (publish = 'insert')"
        );
    }
    Ok(())
}

/// The row filter of an outbox, as an SQL condition on columns without a qualifier.
fn filter<'p>(publication: &'p Publication, outbox: &Outbox) -> Option<&'p str> {
    publication.published(&outbox.name.schema, &outbox.name.table)?.row_filter.as_deref()
}

#[allow(clippy::too_many_arguments, reason = "the facts that decide")]
async fn rights(
    client: &Client,
    table: &str,
    role: &str,
    oid: u32,
    keys: &[Keys],
    letters: Option<dead_letter::Access>,
    home: &str,
    dry_run: bool,
) -> Result<(), Error> {
    let mut grants = Vec::new();
    let row = client
        .query_one("select has_table_privilege($1::oid, 'SELECT'), has_table_privilege($1::oid, 'DELETE')", &[&oid])
        .await?;
    if !row.try_get::<_, bool>(0)? || !dry_run && !row.try_get::<_, bool>(1)? {
        grants.push(format!("GRANT SELECT, DELETE ON {table} TO {role}"));
    }
    for keys in keys {
        let row = client
            .query_one(
                "select has_table_privilege($1::text, 'SELECT') and has_table_privilege($1::text, 'DELETE')",
                &[&keys.table],
            )
            .await?;
        if !dry_run && !row.try_get::<_, bool>(0)? {
            grants.push(format!("GRANT SELECT, DELETE ON {} TO {role}", keys.table));
        }
    }
    if letters.is_some_and(|letters| !letters.select) {
        grants.push(format!("GRANT SELECT ON {} TO {role}", qualified(home, dead_letter::TABLE)));
    }
    match grants.is_empty() {
        true => Ok(()),
        false => Err(Error::Rights { role: role.to_owned(), grants: grants.join("; ") }),
    }
}

impl Keys {
    async fn read(client: &Client, outbox: &Outbox, table: &Table) -> Result<Vec<Keys>, Error> {
        let mut found = Vec::new();
        if table.kind != Kind::Partitioned || !names::is_own(&outbox.columns) {
            return Ok(found);
        }
        let own = &outbox.columns;
        let versions = [
            ("aggregate_type", &own.aggregate_type.name),
            ("aggregate_id", &own.aggregate_id),
            ("version", &own.aggregate_version.name),
        ];
        for (name, columns) in
            [("idempotency", &[("key", &own.idempotency_key.name)][..]), ("aggregate_version", &versions)]
        {
            let keys = Keys {
                table: qualified(&outbox.name.schema, name),
                columns: columns.iter().chain(&[("event_id", &own.id)]).map(|(key, own)| (*key, ident(own))).collect(),
            };
            let exists: bool =
                client.query_one("select to_regclass($1) is not null", &[&keys.table]).await?.try_get(0)?;
            if exists && columns.iter().all(|(_, own)| table.column(own).is_some()) {
                found.push(keys);
            }
        }
        Ok(found)
    }

    /// The columns of row `o` that name a key, under the names that the table has for them.
    fn selected(&self) -> impl Iterator<Item = String> + '_ {
        self.columns.iter().map(|(key, own)| format!("o.{own} as {key}"))
    }

    /// Key `k` is that of a row `gone`.
    fn condition(&self) -> String {
        self.columns.iter().map(|(key, _)| format!("k.{key} = gone.{key}")).collect::<Vec<_>>().join(" and ")
    }
}

/// What makes a row count as published, as a condition on `o` that is never NULL.
struct Proof {
    condition: String,
}

impl Proof {
    async fn read(
        client: &Client,
        config: &Config,
        outbox: &Outbox,
        major: i32,
        published: &Published,
        has_letters: bool,
    ) -> Result<Proof, Error> {
        let home = names::home(config);
        let mut condition = published.condition(home, has_letters);
        if !published.is_by_progress() {
            return Ok(Proof { condition });
        }
        let table = qualified(home, progress::TABLE);
        match progress::Access::read(client, home).await? {
            None => return Err(Error::NoProgressTable { table }),
            Some(access) if !access.select => {
                let role: String = client.query_one("select quote_ident(current_user)", &[]).await?.try_get(0)?;
                return Err(Error::Rights { grants: format!("GRANT SELECT ON {table} TO {role}"), role });
            }
            Some(_) => {}
        }
        let system: String =
            client.query_one("select system_identifier::text from pg_control_system()", &[]).await?.try_get(0)?;
        let rows = client
            .query(&format!("select slot, system_identifier, publication from {table} order by slot"), &[])
            .await?;
        let mut own = None;
        // Slots that are still to note that the row filter changed: by what they say, all that it had left out is published.
        let mut unsure = Vec::new();
        // Slots that need not prove each row, and the condition for that.
        let mut excused: Vec<(String, Option<String>)> = Vec::new();
        for row in &rows {
            let (slot, theirs): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let name: Option<String> = row.try_get(2)?;
            if slot == config.slot {
                own = Some(theirs);
                continue;
            }
            let Some(name) = name else { continue };
            let Some(other) = Publication::read(client, major, &name).await? else { continue };
            match other.published(&outbox.name.schema, &outbox.name.table) {
                None => excused.push((slot, None)),
                Some(entry) => {
                    if let Some(filter) = &entry.row_filter {
                        excused.push((slot, Some(filter.clone())));
                    }
                }
            }
        }
        // After the publications were read.
        for row in &rows {
            let (slot, name): (String, Option<String>) = (row.try_get(0)?, row.try_get(2)?);
            let through = name.as_deref().filter(|_| slot != config.slot).unwrap_or(&config.publication);
            let published = coverage::published(through, slice::from_ref(outbox), major);
            let unnoted =
                format!("select {} from {table} progress where slot = $1", coverage::filter_changed(&published));
            if client.query_opt(&unnoted, &[&slot]).await?.is_some_and(|row| row.get(0)) {
                unsure.push(literal(&slot));
            }
        }
        let own = own.ok_or_else(|| Error::NoProgress { table: table.clone(), slot: config.slot.clone() })?;
        if own != system {
            return Err(Error::OtherServer { slot: config.slot.clone(), theirs: own, ours: system });
        }
        if !unsure.is_empty() {
            condition = format!("(p.slot <> all (array[{}]) and {condition})", unsure.join(", "));
        }
        let system = literal(&system);
        let slot = literal(&config.slot);
        let excused_slots: Vec<_> = excused.iter().map(|(slot, _)| literal(slot)).collect();
        let mut all = vec![
            format!("exists (select from {table} p where p.slot = {slot} and {condition})"),
            // Other slots on the same table: what one of them has not sent, it may need.
            format!(
                "not exists (select from {table} p where p.slot <> all (array[{}]::text[]) and p.system_identifier = {system}
                 and not {condition})",
                excused_slots.iter().chain([&slot]).cloned().collect::<Vec<_>>().join(", ")
            ),
        ];
        for (slot, filter) in excused.iter().filter_map(|(slot, filter)| Some((slot, filter.as_ref()?))) {
            all.push(format!(
                "(({filter}) is not true or not exists (select from {table} p where p.slot = {} and p.system_identifier = \
                 {system} and not {condition}))",
                literal(slot)
            ));
        }
        Ok(Proof { condition: all.join(" and ") })
    }
}

/// The expression that tells the [`Class`] of row `o`. What a row lacks is asked in the order of what it costs to know wrong.
fn class(
    published: &str,
    filter: Option<&str>,
    occurred_at: Option<&String>,
    cutoff: &str,
    has_letter: Option<String>,
) -> String {
    let mut class = "case".to_owned();
    let mut when =
        |condition: String, kept: Class| class.push_str(&format!(" when {condition} then '{}'", kept.word()));
    if let Some(filter) = filter {
        when(format!("({filter}) is not true"), Class::Filtered);
    }
    when(format!("not ({published})"), Class::Unproven);
    if let Some(column) = occurred_at {
        when(format!("(o.{} < timestamptz {}) is not true", ident(column), literal(cutoff)), Class::Young);
    }
    if let Some(has_letter) = has_letter {
        when(has_letter, Class::Letter);
    }
    class.push_str(&format!(" else '{}' end", Class::Prunable.word()));
    class
}

/// Rows of a simple query, as texts.
pub(super) async fn texts(client: &Client, statement: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
    let messages = client.simple_query(statement).await?;
    Ok(messages
        .into_iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
            _ => None,
        })
        .collect())
}
