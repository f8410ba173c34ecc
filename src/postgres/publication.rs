//! Facts of a publication: what it lets through of which tables.

use tokio_postgres::{Client, Error};

/// A publication as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// We may alter it.
    pub owned: bool,
    pub all_tables: bool,
    pub inserts: bool,
    pub updates: bool,
    pub deletes: bool,
    pub truncates: bool,
    pub via_partition_root: bool,
    /// What it publishes in effect: tables of its schemas included, partitions for their root unless `via_partition_root`.
    pub tables: Vec<Published>,
    /// The tables that it names, by schema and name.
    pub named: Vec<(String, String)>,
}

/// One table of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub schema: String,
    pub table: String,
    /// The `WHERE` of it, from PostgreSQL 15 on.
    pub row_filter: Option<String>,
    /// The columns it lets through, in effect (so without generated ones); none: PostgreSQL 14, where all pass.
    pub columns: Option<Vec<String>>,
    /// An update or delete of the table can be published; without, it fails in the application.
    pub has_replica_identity: bool,
}

impl Publication {
    /// None where there is no such publication in this database.
    pub async fn read(client: &Client, major: i32, name: &str) -> Result<Option<Publication>, Error> {
        let Some(row) = client
            .query_opt(
                "select pg_has_role(pubowner, 'USAGE') as owned, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate,
                        pubviaroot
                 from pg_publication where pubname = $1",
                &[&name],
            )
            .await?
        else {
            return Ok(None);
        };
        // Row filters and column lists came with 15, and with them the two columns of the view.
        let details = if major >= 15 { "t.rowfilter, t.attnames::text[]" } else { "null::text, null::text[]" };
        let tables = client
            .query(
                &format!(
                    "select t.schemaname::text, t.tablename::text, {details},
                            c.relreplident = 'f' or exists (
                                select from pg_index i where i.indrelid = c.oid and i.indisvalid
                                and (c.relreplident = 'd' and i.indisprimary or c.relreplident = 'i' and i.indisreplident))
                     from pg_publication_tables t
                     join pg_namespace n on n.nspname = t.schemaname
                     join pg_class c on c.relnamespace = n.oid and c.relname = t.tablename
                     where t.pubname = $1 order by 1, 2"
                ),
                &[&name],
            )
            .await?;
        let named = client
            .query(
                "select n.nspname::text, c.relname::text
                 from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
                 join pg_class c on c.oid = r.prrelid join pg_namespace n on n.oid = c.relnamespace
                 where p.pubname = $1 order by 1, 2",
                &[&name],
            )
            .await?;
        Ok(Some(Publication {
            owned: row.try_get("owned")?,
            all_tables: row.try_get("puballtables")?,
            inserts: row.try_get("pubinsert")?,
            updates: row.try_get("pubupdate")?,
            deletes: row.try_get("pubdelete")?,
            truncates: row.try_get("pubtruncate")?,
            via_partition_root: row.try_get("pubviaroot")?,
            tables: tables
                .iter()
                .map(|row| {
                    Ok(Published {
                        schema: row.try_get(0)?,
                        table: row.try_get(1)?,
                        row_filter: row.try_get(2)?,
                        columns: row.try_get(3)?,
                        has_replica_identity: row.try_get(4)?,
                    })
                })
                .collect::<Result<_, Error>>()?,
            named: named.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, Error>>()?,
        }))
    }

    /// It names the table, whether or not rows come under that name.
    pub fn names(&self, schema: &str, table: &str) -> bool {
        self.named.iter().any(|(of, name)| of == schema && name == table)
    }

    /// The entry of a table, under its own name.
    pub fn published(&self, schema: &str, table: &str) -> Option<&Published> {
        self.tables.iter().find(|entry| entry.schema == schema && entry.table == table)
    }
}
