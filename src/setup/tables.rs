//! The tables of a connector that names none: those that the database has and that its patterns take.

use tokio_postgres::{Client, Error as SqlError};

use crate::{
    config::{Config, Debezium, TablesError, connector::Autocreate},
    pipeline::outbox::TableName,
    postgres::{publication::Publication, server::Server},
};

/// Why the tables are not known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the tables of the database cannot be read")]
    Sql(#[from] SqlError),
    #[error(transparent)]
    Tables(#[from] TablesError),
}

/// A table that rows may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: TableName,
    /// It has partitions, which hold its rows.
    pub(super) is_partitioned: bool,
    pub(super) is_partition: bool,
}

/// The configuration with the tables that its connector takes, where they are not named. Tables that the publication does
/// not have, and will not have, are none of them.
pub async fn look_up(client: &Client, config: Config) -> Result<Config, Error> {
    if !config.lacks_tables() {
        return Ok(config);
    }
    let Some(debezium) = &config.debezium else { return Ok(config) };
    let taken = taken(client, debezium).await?;
    let server = Server::read(client).await?;
    let publication = Publication::read(client, server.major(), &config.publication).await?;
    let tables = streamed(debezium, taken, publication.as_ref());
    Ok(config.with_tables(tables)?)
}

/// All that the connector's patterns take.
pub(super) async fn taken(client: &Client, debezium: &Debezium) -> Result<Vec<Found>, Error> {
    let rows = client
        .query(
            "select n.nspname::text, c.relname::text, c.relkind = 'p', c.relispartition
             from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where c.relkind in ('r', 'p') and c.relpersistence = 'p'
               and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg\\_toast%'
             order by 1, 2",
            &[],
        )
        .await?;
    let mut taken = Vec::new();
    for row in &rows {
        let name = TableName { schema: row.try_get(0)?, table: row.try_get(1)? };
        if debezium.takes(&name)? {
            taken.push(Found { name, is_partitioned: row.try_get(2)?, is_partition: row.try_get(3)? });
        }
    }
    Ok(taken)
}

/// Those under whose names rows come: of a partitioned table either its own or its partitions'.
fn streamed(debezium: &Debezium, taken: Vec<Found>, publication: Option<&Publication>) -> Vec<TableName> {
    let asked = &debezium.connector().publication;
    let via_root = publication.map_or(asked.via_root, |found| found.via_partition_root);
    let will_be = publication.is_none() || asked.autocreate == Autocreate::Filtered;
    let is_streamed = |found: &Found| {
        let has = publication.is_some_and(|it| it.published(&found.name.schema, &found.name.table).is_some());
        has || will_be && if via_root { !found.is_partition } else { !found.is_partitioned }
    };
    taken.into_iter().filter(is_streamed).map(|found| found.name).collect()
}
