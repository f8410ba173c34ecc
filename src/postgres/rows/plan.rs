//! What is read of a table, and in which order.

use tokio_postgres::Client;

use crate::{
    pipeline::outbox::{Format, Outbox, TableName},
    postgres::{Error, publication::Publication, published::Published, quote, sql::Sql},
};

/// Why a table cannot be read as the stream would send it.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Postgres(#[from] Error),
    #[error("outbox {table} does not exist, or is no table: nothing can be read from it")]
    NoTable { table: TableName },
    #[error(
        "inserts of outbox {table} are not in publication {publication}: what the stream leaves out is not read either; run \
         walpost setup, or ALTER PUBLICATION {publication} ADD TABLE {table}, or SET (publish = 'insert')"
    )]
    NotPublished { table: TableName, publication: String },
    #[error(
        "row security of {table} hides rows from role {role} that the stream sends: reading the table would leave events \
         out; as a superuser: ALTER ROLE {role} BYPASSRLS"
    )]
    RowSecurity { table: TableName, role: String },
    #[error("rows of {table} have not {why}: which of them are older than the slot, and were not sent, cannot be told")]
    NoPlace { table: TableName, why: &'static str },
    #[error("rows of {table} are to be read by column {column:?}, which it does not have; name others in {key}")]
    NoOrder { table: TableName, column: String, key: &'static str },
}

/// A column that orders the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub column: String,
    /// By its type's name in the catalog: `character` would cut a value down to one character.
    cast: String,
    not_null: bool,
}

/// What is read of an outbox, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    table: TableName,
    oid: u32,
    partitioned: bool,
    /// Of the stream: name, `pg_type.oid` and `atttypmod`.
    columns: Vec<(String, u32, i32)>,
    /// The publication's, as SQL.
    row_filter: Option<String>,
    order: Vec<Key>,
    order_is_total: bool,
    /// It is that of the configuration, of `seq`, or of the heap.
    order_is_named: bool,
    published: Option<Published>,
    /// As the server's statistics have it.
    rows_estimated: u64,
}

struct Column {
    name: String,
    type_oid: u32,
    typmod: i32,
    type_name: String,
    not_null: bool,
    generated: bool,
    cast: String,
}

impl Plan {
    /// Reads the catalog, in the transaction that will read the tables. One for each outbox.
    pub async fn all(client: &Sql, outboxes: &[Outbox], publication: &str) -> Result<Vec<Plan>, Unreadable> {
        let mut plans = Vec::with_capacity(outboxes.len());
        for outbox in outboxes {
            plans.push(Plan::read(client, outbox, publication).await?);
        }
        Ok(plans)
    }

    async fn read(client: &Sql, outbox: &Outbox, publication: &str) -> Result<Plan, Unreadable> {
        let table = &outbox.name;
        let no_table = || Unreadable::NoTable { table: table.clone() };
        let row = client
            .query_opt(
                "select c.oid, c.relkind = 'p', row_security_active(c.oid), current_user::text,
                        (select sum(greatest(l.reltuples, 0))::bigint from pg_class l
                         where l.oid = c.oid or l.oid in (select relid from pg_partition_tree(c.oid) where isleaf))
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                 where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')",
                &[&table.schema, &table.table],
            )
            .await
            .map_err(Error::from)?
            .ok_or_else(no_table)?;
        let field = |error: tokio_postgres::Error| Unreadable::from(Error::from(error));
        let oid: u32 = row.try_get(0).map_err(field)?;
        if row.try_get(2).map_err(field)? {
            let role: String = row.try_get(3).map_err(field)?;
            return Err(Unreadable::RowSecurity { table: table.clone(), role: quote::ident(&role) });
        }
        let found = Publication::read(client, client.major(), publication).await.map_err(Error::from)?;
        let published = found.as_ref().filter(|found| found.inserts);
        let published = published.and_then(|found| found.published(&table.schema, &table.table));
        let Some(published) = published else {
            return Err(Unreadable::NotPublished { table: table.clone(), publication: quote::ident(publication) });
        };
        let all = columns(client, oid).await?;
        // From 18 on a publication may have generated columns, and names what it has.
        let is_streamed = |column: &Column| match &published.columns {
            Some(listed) => listed.contains(&column.name) && (client.major() >= 18 || !column.generated),
            None => !column.generated,
        };
        let streamed = all.iter().filter(|column| is_streamed(column));
        // As Debezium reads it: in the order of the heap, which is more or less that of insertion. Its keys are random.
        let in_heap_order = outbox.order_by.is_empty() && matches!(outbox.format, Format::Debezium(_));
        let (unique, named) = match in_heap_order {
            true => (Vec::new(), Vec::new()),
            false => (unique(client, oid).await?, order(outbox, &all)?),
        };
        let order_is_total = !unique.is_empty();
        let more = unique.iter().filter(|name| !named.contains(name)).collect::<Vec<_>>();
        let names = named.iter().chain(more);
        let order = names.filter_map(|name| all.iter().find(|column| column.name == *name)).map(Key::of);
        Ok(Plan {
            table: table.clone(),
            oid,
            partitioned: row.try_get(1).map_err(field)?,
            columns: streamed.map(|column| (column.name.clone(), column.type_oid, column.typmod)).collect(),
            row_filter: published.row_filter.clone(),
            order: order.collect(),
            order_is_total,
            order_is_named: in_heap_order || !named.is_empty(),
            published: Published::of(outbox, all.iter().map(|column| (&*column.name, &*column.type_name))),
            rows_estimated: row.try_get::<_, Option<i64>>(4).map_err(field)?.unwrap_or(0).unsigned_abs(),
        })
    }

    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// Columns of the order, the first one first.
    pub fn order(&self) -> &[Key] {
        &self.order
    }

    /// No two rows stand at the same place of the order: reading can go on behind any of them.
    pub fn order_is_total(&self) -> bool {
        self.order_is_total
    }

    /// Nothing says in which order rows were inserted: neither `seq` nor the configuration nor the format.
    pub fn order_is_a_guess(&self) -> bool {
        !self.order_is_named
    }

    /// It has the column that says which transaction inserted a row.
    pub fn has_txid(&self) -> bool {
        self.published.as_ref().is_some_and(Published::is_by_progress)
    }

    /// How its published rows are told from others; none: they are not.
    pub fn published(&self) -> Option<&Published> {
        self.published.as_ref()
    }

    /// Rows of the table as the server's statistics have it; 0 where they say nothing.
    pub fn rows_estimated(&self) -> u64 {
        self.rows_estimated
    }

    pub(super) fn oid(&self) -> u32 {
        self.oid
    }

    /// How many columns the stream has.
    pub(super) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// How many rows meet the condition, counted by the server.
    pub async fn count(&self, client: &Client, condition: Option<&str>) -> Result<u64, Error> {
        let sql = format!("select count(*) from {}{}", self.from(), self.filtered(condition, None));
        Ok(client.query_one(&sql, &[]).await?.try_get::<_, i64>(0)?.unsigned_abs())
    }

    /// The statement that reads the rows: the columns of the stream, then those of the order.
    pub(super) fn copy(&self, condition: Option<&str>, after: Option<&[Option<String>]>) -> String {
        let names = self.columns.iter().map(|(name, ..)| name).chain(self.order.iter().map(|key| &key.column));
        let list: Vec<_> = names.map(|name| own(name)).collect();
        let order: Vec<_> = self.order.iter().map(|key| own(&key.column)).collect();
        let order = if order.is_empty() { String::new() } else { format!(" order by {}", order.join(", ")) };
        let filtered = self.filtered(condition, after);
        format!("copy (select {} from {}{filtered}{order}) to stdout", list.join(", "), self.from())
    }

    /// The Relation message of the rows.
    pub(super) fn describe(&self, message: &mut Vec<u8>) {
        message.push(b'R');
        message.extend(self.oid.to_be_bytes());
        for name in [&self.table.schema, &self.table.table] {
            message.extend(name.as_bytes());
            message.push(0);
        }
        message.push(b'd');
        let count = u16::try_from(self.columns.len()).expect("a table has at most 1,600 columns");
        message.extend(count.to_be_bytes());
        for (name, type_oid, typmod) in &self.columns {
            message.push(0);
            message.extend(name.as_bytes());
            message.push(0);
            message.extend(type_oid.to_be_bytes());
            message.extend(typmod.to_be_bytes());
        }
    }

    /// Rows of tables that inherit from it are streamed under their own names.
    fn from(&self) -> String {
        let only = if self.partitioned { "" } else { "only " };
        format!("{only}{} as o", quote::qualified(&self.table.schema, &self.table.table))
    }

    fn filtered(&self, condition: Option<&str>, after: Option<&[Option<String>]>) -> String {
        let after = after.map(|key| behind(&self.order, key));
        let all: Vec<_> = [self.row_filter.as_deref(), condition, after.as_deref()].into_iter().flatten().collect();
        if all.is_empty() { String::new() } else { format!(" where ({})", all.join(") and (")) }
    }
}

impl Key {
    fn of(column: &Column) -> Key {
        Key { column: column.name.clone(), cast: column.cast.clone(), not_null: column.not_null }
    }
}

fn own(column: &str) -> String {
    format!("o.{}", quote::ident(column))
}

/// The rows behind a key; NULL comes last, as in ORDER BY.
fn behind(order: &[Key], key: &[Option<String>]) -> String {
    let pairs: Vec<_> = order.iter().zip(key).collect();
    let value = |key: &Key, text: &str| format!("{}::{}", quote::literal(text), key.cast);
    if pairs.iter().all(|(key, value)| key.not_null && value.is_some()) {
        // One comparison, which an index can answer.
        let columns: Vec<_> = pairs.iter().map(|(key, _)| own(&key.column)).collect();
        let values: Vec<_> = pairs.iter().filter_map(|(key, text)| Some(value(key, text.as_ref()?))).collect();
        return format!("({}) > ({})", columns.join(", "), values.join(", "));
    }
    let mut cases = Vec::new();
    let mut equal = String::new();
    for (key, text) in pairs {
        let column = own(&key.column);
        match text {
            Some(text) => {
                let value = value(key, text);
                cases.push(format!("{equal}({column} > {value} or {column} is null)"));
                equal.push_str(&format!("{column} = {value} and "));
            }
            None => equal.push_str(&format!("{column} is null and ")),
        }
    }
    if cases.is_empty() { "false".to_owned() } else { cases.join(" or ") }
}

/// The columns by which the rows are to be read, as far as the configuration and `seq` say.
fn order(outbox: &Outbox, all: &[Column]) -> Result<Vec<String>, Unreadable> {
    let seq = &outbox.columns.seq;
    let has = |name: &String| all.iter().any(|column| column.name == *name);
    let (names, key) = match outbox.order_by.as_slice() {
        [] if seq.named || has(&seq.name) => (std::slice::from_ref(&seq.name), "columns.seq"),
        names => (names, "order_by"),
    };
    match names.iter().find(|name| !has(name)) {
        Some(column) => Err(Unreadable::NoOrder { table: outbox.name.clone(), column: column.clone(), key }),
        None => Ok(names.to_vec()),
    }
}

async fn columns(client: &Client, oid: u32) -> Result<Vec<Column>, Error> {
    let rows = client
        .query(
            "select attname::text, atttypid, replace(format_type(atttypid, null), chr(34), ''), attnotnull, attgenerated <> '',
                    format('%I.%I', n.nspname, t.typname), atttypmod
             from pg_attribute join pg_type t on t.oid = atttypid join pg_namespace n on n.oid = typnamespace
             where attrelid = $1 and attnum > 0 and not attisdropped order by attnum",
            &[&oid],
        )
        .await?;
    let column = |row: &tokio_postgres::Row| {
        Ok(Column {
            name: row.try_get(0)?,
            type_oid: row.try_get(1)?,
            type_name: row.try_get(2)?,
            not_null: row.try_get(3)?,
            generated: row.try_get(4)?,
            cast: row.try_get(5)?,
            typmod: row.try_get(6)?,
        })
    };
    rows.iter().map(column).collect()
}

/// The columns of a unique index that has every row: of the primary key, else of another. Empty: there is none.
async fn unique(client: &Client, oid: u32) -> Result<Vec<String>, Error> {
    let row = client
        .query_opt(
            "select array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k (attnum, n)
                          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                          where k.n <= i.indnkeyatts order by k.n)
             from pg_index i
             where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indimmediate
               and i.indpred is null and i.indexprs is null
               and not exists (select from pg_attribute a where a.attrelid = i.indrelid and not a.attnotnull
                               and a.attnum = any ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
             order by i.indisprimary desc, i.indexrelid limit 1",
            &[&oid],
        )
        .await?;
    row.map_or(Ok(Vec::new()), |row| Ok(row.try_get(0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(not_null: bool) -> Plan {
        let key =
            |column: &str, cast: &str, not_null| Key { column: column.to_owned(), cast: cast.to_owned(), not_null };
        Plan {
            table: TableName { schema: "app".to_owned(), table: "Outbox".to_owned() },
            oid: 7,
            partitioned: false,
            columns: vec![("id".to_owned(), 2950, -1), ("order".to_owned(), 25, -1)],
            row_filter: Some("shard = 1".to_owned()),
            order: vec![key("at", "timestamp with time zone", not_null), key("id", "uuid", true)],
            order_is_total: true,
            order_is_named: true,
            published: Some(Published::Txid("txid".to_owned())),
            rows_estimated: 0,
        }
    }

    fn values(key: [Option<&str>; 2]) -> Vec<Option<String>> {
        key.iter().map(|value| value.map(str::to_owned)).collect()
    }

    #[test]
    fn rows_that_the_publication_has_are_read_in_order() {
        assert_eq!(
            plan(true).copy(Some("o.a or o.b"), Some(&values([Some("it's"), Some("x")]))),
            "copy (select o.id, o.\"order\", o.at, o.id from only app.\"Outbox\" as o where (shard = 1) and \
             (o.a or o.b) and ((o.at, o.id) > ('it''s'::timestamp with time zone, 'x'::uuid)) order by o.at, o.id) to stdout"
        );
        let whole = Plan { partitioned: true, row_filter: None, order: Vec::new(), ..plan(true) };
        assert_eq!(whole.copy(None, None), "copy (select o.id, o.\"order\" from app.\"Outbox\" as o) to stdout");
    }

    #[test]
    fn rows_without_a_value_are_behind_all_others() {
        let order = &plan(false).order;
        assert_eq!(
            behind(order, &values([Some("1"), Some("x")])),
            "(o.at > '1'::timestamp with time zone or o.at is null) or o.at = '1'::timestamp with time zone and \
             (o.id > 'x'::uuid or o.id is null)"
        );
        assert_eq!(behind(order, &values([None, Some("x")])), "o.at is null and (o.id > 'x'::uuid or o.id is null)");
        assert_eq!(behind(order, &values([None, None])), "false");
    }
}
