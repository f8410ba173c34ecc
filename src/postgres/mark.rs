//! Marks in the rows of an outbox: that an event is published, or a dead letter (`after_publish`).
//!
//! For tables without `txid`, and for whoever reads the table. A row is told by its id, which should have an index. Each
//! statement is durable when it returns, and may be made again.

use tokio_postgres::Client;

use super::{
    publication::Publication,
    quote::{ident, qualified},
    sql::durably,
    table::{Kind, Table},
};
use crate::pipeline::{
    OnUpdate,
    outbox::{AfterPublish, Marks, Outbox},
};

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Published,
    /// It is among the dead letters, having been sent so often in vain.
    Dead {
        reason: String,
        attempts: i32,
    },
}

/// Why rows of a table cannot be marked.
#[derive(Debug, thiserror::Error)]
pub enum Unmarkable {
    #[error(transparent)]
    Postgres(#[from] super::Error),
    #[error("after_publish needs table {table}, which does not exist, or is hidden from role {role}")]
    NoTable { table: String, role: String },
    #[error(
        "after_publish = \"mark\" needs a column of {table} that says published: columns.published_at (a time) or columns.status \
         (a text); it has neither {published_at} nor {status}. Add one, name another, or set after_publish = \"keep\""
    )]
    NoColumn { table: String, published_at: String, status: String },
    #[error("table {table} has no column {column}, which columns.{part} names: add it, or name another")]
    Missing { table: String, column: String, part: &'static str },
    #[error(
        "row security hides rows of {table} from role {role}, which after_publish is to change: ALTER ROLE {role} BYPASSRLS"
    )]
    HidesRows { table: String, role: String },
    #[error("after_publish needs a right of role {role}: {grant}")]
    Right { role: String, grant: String },
    #[error(
        "publication {publication} publishes {what}, and on_update = \"halt\" would stop the stream at its own marks: ALTER \
         PUBLICATION {publication} SET (publish = 'insert')"
    )]
    Published { publication: String, what: &'static str },
}

impl From<tokio_postgres::Error> for Unmarkable {
    fn from(error: tokio_postgres::Error) -> Unmarkable {
        Unmarkable::Postgres(error.into())
    }
}

/// The statements for one outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// As SQL writes it.
    table: String,
    id: String,
    /// By its name in the catalog: `character` would cut an id down to one character.
    id_type: String,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum How {
    Delete,
    Mark(Columns),
}

/// Columns that the table has, as SQL writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Columns {
    published_at: Option<String>,
    status: Option<String>,
    attempts: Option<String>,
    retry_count: Option<String>,
    last_error: Option<String>,
    updated_at: Option<String>,
}

impl Marker {
    /// None: `after_publish = "keep"`.
    pub async fn read(
        client: &Client,
        outbox: &Outbox,
        publication: &str,
        on_update: OnUpdate,
    ) -> Result<Option<Marker>, Unmarkable> {
        if outbox.after_publish == AfterPublish::Keep {
            return Ok(None);
        }
        let role: String = client.query_one("select quote_ident(current_user)", &[]).await?.try_get(0)?;
        let name = qualified(&outbox.name.schema, &outbox.name.table);
        let found = Table::read(client, &outbox.name.schema, &outbox.name.table).await?;
        let Some(table) = found.filter(|table| table.kind != Kind::NoTable) else {
            return Err(Unmarkable::NoTable { table: name, role });
        };
        if table.hides_rows {
            return Err(Unmarkable::HidesRows { table: name, role });
        }
        let how = match &outbox.after_publish {
            AfterPublish::Mark(marks) => How::Mark(Columns::of(marks, &table, &name)?),
            AfterPublish::Delete | AfterPublish::Keep => How::Delete,
        };
        let major =
            client.query_one("select current_setting('server_version_num')::int / 10000", &[]).await?.try_get(0)?;
        if let Some(published) = Publication::read(client, major, publication).await? {
            let (publishes, what) = match how {
                How::Delete => (published.deletes, "deletes"),
                How::Mark(_) => (published.updates, "updates"),
            };
            if publishes && on_update == OnUpdate::Halt {
                return Err(Unmarkable::Published { publication: ident(publication), what });
            }
        }
        let right = match &how {
            How::Delete => format!("GRANT SELECT, DELETE ON {name} TO {role}"),
            How::Mark(columns) => {
                format!("GRANT SELECT, UPDATE ({}) ON {name} TO {role}", columns.names().collect::<Vec<_>>().join(", "))
            }
        };
        let columns = match (&how, &outbox.after_publish) {
            (How::Mark(_), AfterPublish::Mark(marks)) => marks.names(),
            _ => Vec::new(),
        };
        let row = client
            .query_one(
                "select has_table_privilege($1::oid, 'SELECT')
                        and case when cardinality($2::text[]) = 0 then has_table_privilege($1::oid, 'DELETE')
                            else (select bool_and(has_column_privilege(attrelid, attnum, 'UPDATE')) from pg_attribute
                                  where attrelid = $1::oid and attname = any ($2)) end,
                        (select format('%I.%I', n.nspname, t.typname)
                         from pg_attribute join pg_type t on t.oid = atttypid join pg_namespace n on n.oid = typnamespace
                         where attrelid = $1::oid and attname = $3)",
                &[&table.oid, &columns, &outbox.columns.id],
            )
            .await?;
        if row.try_get::<_, Option<bool>>(0)? != Some(true) {
            return Err(Unmarkable::Right { role, grant: right });
        }
        let Some(id_type) = row.try_get(1)? else {
            return Err(Unmarkable::Missing { table: name, column: ident(&outbox.columns.id), part: "id" });
        };
        Ok(Some(Marker { table: name, id: ident(&outbox.columns.id), id_type, how }))
    }

    /// Marks the rows with these ids; those that are marked already stay as they are.
    pub async fn published(&self, client: &Client, ids: &[&str]) -> Result<(), super::Error> {
        let Marker { table, id, id_type, how } = self;
        let named = format!("o.{id} = any ($1::text[]::{id_type}[])");
        let statement = match how {
            How::Delete => format!("delete from {table} o where {named}"),
            How::Mark(columns) => {
                let mut set = Vec::new();
                let mut unmarked = Vec::new();
                if let Some(column) = &columns.published_at {
                    set.push(format!("{column} = clock_timestamp()"));
                    unmarked.push(format!("o.{column} is null"));
                }
                if let Some(column) = &columns.status {
                    set.push(format!("{column} = 'PUBLISHED'"));
                    unmarked.push(format!("o.{column} is distinct from 'PUBLISHED'"));
                }
                set.extend(columns.attempts.iter().map(|column| format!("{column} = coalesce(o.{column}, 0) + 1")));
                set.extend(columns.last_error.iter().map(|column| format!("{column} = null")));
                set.extend(columns.updated_at.iter().map(|column| format!("{column} = clock_timestamp()")));
                format!("update {table} o set {} where {named} and ({})", set.join(", "), unmarked.join(" or "))
            }
        };
        durably(client, client.execute(&statement, &[&ids])).await?;
        Ok(())
    }

    /// Notes these as dead letters: id, reason, attempts. A row that is to be deleted stays until it is published.
    pub async fn dead(&self, client: &Client, letters: &[(&str, &str, i32)]) -> Result<(), super::Error> {
        let Marker { table, id, id_type, how: How::Mark(columns) } = self else { return Ok(()) };
        let mut set = Vec::new();
        set.extend(columns.status.iter().map(|column| format!("{column} = 'DEAD_LETTER'")));
        let counts = columns.attempts.iter().chain(&columns.retry_count);
        set.extend(counts.map(|column| format!("{column} = coalesce(o.{column}, 0) + letter.attempts")));
        set.extend(columns.last_error.iter().map(|column| format!("{column} = letter.reason")));
        set.extend(columns.updated_at.iter().map(|column| format!("{column} = clock_timestamp()")));
        if set.is_empty() {
            return Ok(());
        }
        let once = columns.status.as_ref().map_or(String::new(), |column| {
            format!(" and coalesce(o.{column}::text, '') not in ('DEAD_LETTER', 'PUBLISHED')")
        });
        let statement = format!(
            "update {table} o set {}
             from unnest($1::text[]::{id_type}[], $2::text[], $3::int[]) as letter (id, reason, attempts)
             where o.{id} = letter.id{once}",
            set.join(", ")
        );
        let ids: Vec<_> = letters.iter().map(|(id, ..)| *id).collect();
        let reasons: Vec<_> = letters.iter().map(|(_, reason, _)| *reason).collect();
        let attempts: Vec<_> = letters.iter().map(|(.., attempts)| *attempts).collect();
        durably(client, client.execute(&statement, &[&ids, &reasons, &attempts])).await?;
        Ok(())
    }
}

impl Columns {
    fn of(marks: &Marks, table: &Table, name: &str) -> Result<Columns, Unmarkable> {
        let has = |column: &str| table.columns.iter().any(|known| known.name == column);
        let of = |column: &crate::pipeline::outbox::Optional, part| match has(&column.name) {
            true => Ok(Some(ident(&column.name))),
            false if column.named => {
                Err(Unmarkable::Missing { table: name.to_owned(), column: ident(&column.name), part })
            }
            false => Ok(None),
        };
        let columns = Columns {
            published_at: of(&marks.published_at, "published_at")?,
            status: of(&marks.status, "status")?,
            attempts: of(&marks.attempts, "attempts")?,
            retry_count: of(&marks.retry_count, "retry_count")?,
            last_error: of(&marks.last_error, "last_error")?,
            updated_at: of(&marks.updated_at, "updated_at")?,
        };
        if columns.published_at.is_none() && columns.status.is_none() {
            return Err(Unmarkable::NoColumn {
                table: name.to_owned(),
                published_at: ident(&marks.published_at.name),
                status: ident(&marks.status.name),
            });
        }
        Ok(columns)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let Columns { published_at, status, attempts, retry_count, last_error, updated_at } = self;
        [published_at, status, attempts, retry_count, last_error, updated_at].into_iter().flatten().map(String::as_str)
    }
}
