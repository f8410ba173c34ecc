//! Facts of one outbox table, whoever made it.

use tokio_postgres::{Client, Error};

use super::published::Published;
use crate::pipeline::outbox::Outbox;

/// A table as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `pg_class.oid`.
    pub oid: u32,
    pub kind: Kind,
    /// Written to the log; unlogged and temporary tables are not.
    pub logged: bool,
    /// In the order of the table.
    pub columns: Vec<Column>,
    /// We are its owner, or a member of it: may add it to a publication.
    pub owned: bool,
    pub may_select: bool,
    /// Updates and deletes can be published: there is a primary key or another replica identity.
    pub has_replica_identity: bool,
    /// Row security is on and applies to us.
    pub hides_rows: bool,
    /// Its ancestor, where it is itself a partition.
    pub partition_of: Option<String>,
    /// The trigger of `sql/txid.sql` is there, and in each of its partitions.
    pub keeps_txid: bool,
}

/// `pg_class.relkind`, as far as we tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Partitioned,
    /// A view, a foreign table, a sequence…: nothing that is inserted into it is in the log.
    NoTable,
}

/// A column of an outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// As SQL writes it: `xid8`.
    pub type_name: String,
    /// Generated columns are not in the log unless a publication of PostgreSQL 18 asks for it.
    pub generated: bool,
}

impl Column {
    /// `timestamp` or `timestamptz`, of whatever precision.
    pub fn is_timestamp(&self) -> bool {
        self.type_name.starts_with("timestamp") && self.type_name.ends_with(" time zone")
    }
}

impl Table {
    /// How its published rows are told from others; none: they are not.
    pub fn published(&self, outbox: &Outbox) -> Option<Published> {
        Published::of(outbox, self.columns.iter().map(|column| (&*column.name, &*column.type_name)))
    }

    /// It has the column that proves a row published, of the type that can.
    pub fn has_txid(&self, outbox: &Outbox) -> bool {
        self.published(outbox).is_some_and(|published| published.is_by_progress())
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// None where there is no such table, or none that we may see.
    pub async fn read(client: &Client, schema: &str, name: &str) -> Result<Option<Table>, Error> {
        let Some(row) = client
            .query_opt(
                "select c.oid, c.relkind::text, c.relpersistence = 'p' as logged,
                        pg_has_role(c.relowner, 'USAGE') as owned,
                        has_table_privilege(c.oid, 'SELECT') as may_select,
                        c.relreplident = 'f' or exists (
                            select from pg_index i where i.indrelid = c.oid and i.indisvalid
                            and (c.relreplident = 'd' and i.indisprimary or c.relreplident = 'i' and i.indisreplident)
                        ) as has_replica_identity,
                        c.relrowsecurity and (c.relforcerowsecurity or not pg_has_role(c.relowner, 'USAGE'))
                            and not (select rolsuper or rolbypassrls from pg_roles where rolname = current_user) as hides_rows,
                        case when c.relispartition then
                            (select format('%I.%I', rn.nspname, r.relname) from pg_class r
                             join pg_namespace rn on rn.oid = r.relnamespace where r.oid = pg_partition_root(c.oid))
                        end as partition_of,
                        not exists (
                            select from (select c.oid union select p.relid from pg_partition_tree(c.oid) p) t (relid)
                            where not exists (select from pg_trigger where tgrelid = t.relid and tgname = 'keep_txid'
                                              and tgenabled = 'A')
                        ) as keeps_txid
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace
                 where n.nspname = $1 and c.relname = $2",
                &[&schema, &name],
            )
            .await?
        else {
            return Ok(None);
        };
        let oid: u32 = row.try_get("oid")?;
        let columns = client
            .query(
                "select attname::text, replace(format_type(atttypid, atttypmod), chr(34), ''), attgenerated <> ''
                 from pg_attribute where attrelid = $1 and attnum > 0 and not attisdropped order by attnum",
                &[&oid],
            )
            .await?;
        Ok(Some(Table {
            oid,
            kind: match row.try_get::<_, &str>("relkind")? {
                "r" => Kind::Plain,
                "p" => Kind::Partitioned,
                _ => Kind::NoTable,
            },
            logged: row.try_get("logged")?,
            columns: columns
                .iter()
                .map(|row| Ok(Column { name: row.try_get(0)?, type_name: row.try_get(1)?, generated: row.try_get(2)? }))
                .collect::<Result<_, Error>>()?,
            owned: row.try_get("owned")?,
            may_select: row.try_get("may_select")?,
            has_replica_identity: row.try_get("has_replica_identity")?,
            hides_rows: row.try_get("hides_rows")?,
            partition_of: row.try_get("partition_of")?,
            keeps_txid: row.try_get("keeps_txid")?,
        }))
    }
}
