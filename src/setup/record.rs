//! The record of what setup made: a table beside it, so that teardown drops that and nothing else.

use std::fmt;

use tokio_postgres::{Client, Error};

use crate::postgres::{
    progress::{self, IS_PUBLISHED, IS_STREAMED},
    quote,
    schema::{self, INBOX_FUNCTIONS, INBOX_ROLE, INBOX_TABLES, INBOX_VIEWS},
};

/// Name of the table, in walpost's home schema.
pub const TABLE: &str = "setup_record";

/// Something that setup made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub kind: Kind,
    /// Empty where the kind lives in no schema.
    pub schema: String,
    pub name: String,
}

/// In the order in which they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Slot,
    Publication,
    View,
    Function,
    Table,
    /// What a table's trigger calls: goes after the table.
    TriggerFunction,
    Role,
    Schema,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Slot,
        Kind::Publication,
        Kind::View,
        Kind::Function,
        Kind::Table,
        Kind::TriggerFunction,
        Kind::Role,
        Kind::Schema,
    ];

    fn word(self) -> &'static str {
        match self {
            Kind::Slot => "slot",
            Kind::Publication => "publication",
            Kind::View => "view",
            Kind::Function => "function",
            Kind::Table => "table",
            Kind::TriggerFunction => "trigger function",
            Kind::Role => "role",
            Kind::Schema => "schema",
        }
    }
}

impl Made {
    pub fn global(kind: Kind, name: &str) -> Made {
        Made { kind, schema: String::new(), name: name.to_owned() }
    }

    pub fn in_schema(kind: Kind, schema: &str, name: &str) -> Made {
        Made { kind, schema: schema.to_owned(), name: name.to_owned() }
    }

    /// It is the inbox's or its role.
    pub(super) fn is_inbox(&self) -> bool {
        match self.kind {
            Kind::Table => INBOX_TABLES.contains(&&*self.name),
            Kind::View => INBOX_VIEWS.contains(&&*self.name),
            Kind::Function => INBOX_FUNCTIONS.iter().any(|(name, _)| *name == self.name),
            Kind::Role => self.name == INBOX_ROLE,
            Kind::Slot | Kind::Publication | Kind::TriggerFunction | Kind::Schema => false,
        }
    }

    /// The statement that drops it. Never CASCADE: what others hung on it is theirs.
    pub fn drop_statement(&self) -> String {
        let name = quote::ident(&self.name);
        let qualified = quote::qualified(&self.schema, &self.name);
        match self.kind {
            Kind::Slot => format!("select pg_drop_replication_slot({})", quote::literal(&self.name)),
            Kind::Publication => format!("drop publication if exists {name}"),
            Kind::View => format!("drop view if exists {qualified}"),
            Kind::TriggerFunction => format!("drop function if exists {qualified}()"),
            Kind::Function if [IS_PUBLISHED, IS_STREAMED].contains(&&*self.name) => {
                format!(
                    "drop function if exists {qualified}(xid8, oid, {})",
                    quote::qualified(&self.schema, progress::TABLE)
                )
            }
            Kind::Function if self.name == "make_partitions" => {
                format!("drop function if exists {qualified}({})", schema::MAKE_PARTITIONS_ARGUMENTS)
            }
            Kind::Function => {
                let arguments = match &*self.name {
                    "emit" => schema::EMIT_ARGUMENTS,
                    "emit_bytes" => schema::EMIT_BYTES_ARGUMENTS,
                    "idempotency_key" => "jsonb",
                    name => match INBOX_FUNCTIONS.iter().find(|(inbox, _)| *inbox == name) {
                        Some((_, arguments)) => arguments,
                        // Whichever version of walpost made it.
                        None => {
                            return format!(
                                "drop function if exists {qualified}({}), {qualified}({})",
                                schema::ENQUEUE_ARGUMENTS,
                                schema::ENQUEUE_ARGUMENTS_BEFORE
                            );
                        }
                    },
                };
                format!("drop function if exists {qualified}({arguments})")
            }
            Kind::Table => format!("drop table if exists {qualified}"),
            Kind::Role => format!("drop role if exists {name}"),
            Kind::Schema => format!("drop schema if exists {name}"),
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            if self.schema.is_empty() { quote::ident(&self.name) } else { quote::qualified(&self.schema, &self.name) };
        write!(f, "{} {name}", self.kind.word())
    }
}

/// Writes down what was made, in the transaction that made it.
pub async fn write(client: &Client, home: &str, made: &[Made]) -> Result<(), Error> {
    let statement =
        format!("insert into {} (kind, schema, name) values ($1, $2, $3) on conflict do nothing", table(home));
    for one in made {
        client.execute(&statement, &[&one.kind.word(), &one.schema, &one.name]).await?;
    }
    Ok(())
}

/// Strikes off what was dropped.
pub async fn strike(client: &Client, home: &str, dropped: &Made) -> Result<(), Error> {
    let statement = format!("delete from {} where (kind, schema, name) = ($1, $2, $3)", table(home));
    client.execute(&statement, &[&dropped.kind.word(), &dropped.schema, &dropped.name]).await?;
    Ok(())
}

/// What is on record, in the order in which it is to be dropped. None: there is no record.
pub async fn read(client: &Client, home: &str) -> Result<Option<Vec<Made>>, Error> {
    let exists = client
        .query_opt(
            "select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = $2",
            &[&home, &TABLE],
        )
        .await?;
    if exists.is_none() {
        return Ok(None);
    }
    let rows = client.query(&format!("select kind, schema, name from {} order by name", table(home)), &[]).await?;
    let mut made = Vec::with_capacity(rows.len());
    for row in &rows {
        let word: &str = row.try_get(0)?;
        // A kind that a later version records is left alone.
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.word() == word) {
            made.push(Made { kind, schema: row.try_get(1)?, name: row.try_get(2)? });
        }
    }
    made.sort_by_key(|one| one.kind);
    Ok(Some(made))
}

fn table(home: &str) -> String {
    quote::qualified(home, TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_quoted_and_never_cascades() {
        let hostile = "a\"; drop table x; --'";
        for kind in Kind::ALL {
            let statement = Made::in_schema(kind, "S", hostile).drop_statement();
            assert!(!statement.contains("cascade"), "{statement}");
            assert!(statement.contains("a\"\"; drop") || statement.contains("--'''"), "{statement}");
        }
        assert_eq!(
            Made::in_schema(Kind::Function, "w", "enqueue").drop_statement(),
            "drop function if exists w.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, bigint), \
             w.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz)"
        );
        assert_eq!(
            Made::in_schema(Kind::Function, "w", "inbox_claim").drop_statement(),
            "drop function if exists w.inbox_claim(text, text)"
        );
    }
}
