//! The rows of an outbox that are called published and have no dead letter: each must be in a topic, unless that has
//! forgotten it.

use std::pin::pin;

use futures_util::TryStreamExt;
use tokio_postgres::{Client, Row};

use super::{
    Error, dead_letter, progress,
    publication::Publication,
    published::Published,
    quote::{ident, literal, qualified},
    sql::Sql,
    table::Table,
};
use crate::pipeline::{outbox::Outbox, template::Part};

/// A row that is called published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: String,
    /// Milliseconds since 1970; none: the row does not say, or says infinity.
    pub at: Option<i64>,
    /// Where its record went; none: not known.
    pub topic: Option<String>,
}

/// Which rows those are.
#[derive(Clone, Debug)]
pub struct Claimed {
    id: String,
    at: String,
    topic: String,
    /// Null where no row names its topic.
    destination: Option<String>,
    /// From `from` on.
    rows: String,
}

impl Claimed {
    /// The inner error: why nothing tells which rows are published.
    pub async fn read(
        client: &Sql,
        home: &str,
        slot: &str,
        publication: &str,
        outbox: &Outbox,
    ) -> Result<Result<Claimed, String>, Error> {
        let name = &outbox.name;
        let Some(table) = Table::read(client, &name.schema, &name.table).await? else {
            return Ok(Err("it does not exist".to_owned()));
        };
        let Some(published) = table.published(outbox) else {
            return Ok(Err("it has neither txid nor marks".to_owned()));
        };
        if matches!(published, Published::Deleted { .. }) {
            return Ok(Err("rows are deleted when they are published".to_owned()));
        }
        let has_letters = dead_letter::Access::read(client, home).await?.is_some_and(|access| access.select);
        let system = progress::system_identifier(client).await?;
        if published.is_by_progress() {
            let known = match progress::Access::read(client, home).await? {
                Some(access) if access.select => progress::Progress::read(client, home, slot).await?,
                Some(_) | None => None,
            };
            if known.is_none_or(|known| known.system_identifier != system) {
                return Ok(Err("there is no proof of it for this slot".to_owned()));
            }
        }
        let mut conditions = vec![published.of_slot(home, has_letters, slot, &system)];
        if has_letters {
            conditions.push(format!("not exists ({})", dead_letter::of_row(home, name, &outbox.columns.id)));
        }
        let found = Publication::read(client, client.major(), publication).await?;
        let filter = found.as_ref().and_then(|found| found.published(&name.schema, &name.table));
        conditions.extend(filter.and_then(|entry| entry.row_filter.as_ref()).map(|filter| format!("({filter})")));
        let at = match table.column(&outbox.columns.occurred_at.name) {
            Some(column) if column.is_timestamp() => {
                let at = format!("o.{}::timestamptz", ident(&column.name));
                format!("case when isfinite({at}) then (extract(epoch from {at}) * 1000)::bigint end")
            }
            Some(_) | None => "null::bigint".to_owned(),
        };
        let text = |column: &str| format!("o.{}::text", ident(column));
        let parts = outbox.topic.parts().iter().map(|part| match part {
            Part::Text(words) => literal(words),
            Part::Column(name) => text(name),
        });
        let destination = &outbox.columns.destination.name;
        let destination = table.column(destination).map(|_| text(destination));
        let template = parts.collect::<Vec<_>>().join(" || ");
        Ok(Ok(Claimed {
            id: dead_letter::printed(&outbox.columns.id),
            at,
            topic: match &destination {
                Some(destination) => format!("coalesce({destination}, {template})"),
                None => template,
            },
            destination,
            rows: format!("from {} o where {}", qualified(&name.schema, &name.table), conditions.join(" and ")),
        }))
    }

    /// Topics that rows name themselves.
    pub async fn destinations(&self, client: &Client) -> Result<Vec<String>, Error> {
        let Some(destination) = &self.destination else { return Ok(Vec::new()) };
        let statement = format!("select distinct {destination} {} and {destination} is not null", self.rows);
        let rows = client.query(&statement, &[]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Hands each to `take`, one after the other, in no order, until that says that it is enough.
    pub async fn each(&self, client: &Client, mut take: impl FnMut(Claim) -> bool) -> Result<(), Error> {
        let Claimed { id, at, topic, rows, .. } = self;
        let statement = format!("select {id}, {at}, {topic} {rows}");
        let none: [i32; 0] = [];
        let mut found = pin!(client.query_raw(&statement, none).await?);
        while let Some(row) = found.try_next().await? {
            if !take(Claim::of(&row)?) {
                break;
            }
        }
        Ok(())
    }
}

impl Claim {
    fn of(row: &Row) -> Result<Claim, Error> {
        Ok(Claim { id: row.try_get(0)?, at: row.try_get(1)?, topic: row.try_get(2)? })
    }
}
