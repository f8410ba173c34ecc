//! The rows of the outboxes that are not proven published: how many, how old.
//!
//! No index serves the question: the whole table is read. So it is asked seldom, and for a bounded time.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio_postgres::{Client, error::SqlState};

use super::{
    Error,
    progress::{self, Access},
    quote,
    table::Table,
};
use crate::pipeline::outbox::Outbox;

/// What is owed to a slot. Rows that are older than the slot or than their table's publication are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unproven {
    pub rows: u64,
    /// Age of the oldest by its `occurred_at`, and the age that 95 of 100 are below; none where there are no rows, or no
    /// such column.
    #[serde(rename = "oldest_seconds", serialize_with = "seconds")]
    pub oldest: Option<Duration>,
    #[serde(rename = "p95_seconds", serialize_with = "seconds")]
    pub p95: Option<Duration>,
    /// Rows that are older than the slot, or that the publication did not let through. They stay unproven.
    #[serde(rename = "older_rows")]
    pub older: u64,
}

impl Unproven {
    /// Of the outboxes that have a `txid` and may be read. None: there is none, or no proof, or it took longer than `limit`.
    /// `home` is the schema of what is walpost's own.
    pub async fn read(
        client: &Client,
        home: &str,
        slot: &str,
        outboxes: &[Outbox],
        limit: Duration,
    ) -> Result<Option<Unproven>, Error> {
        if !Access::read(client, home).await?.is_some_and(|access| access.select) {
            return Ok(None);
        }
        let mut rows = Vec::new();
        for outbox in outboxes {
            let table = Table::read(client, &outbox.name.schema, &outbox.name.table).await?;
            rows.extend(
                table.filter(|table| table.may_select && table.has_txid(outbox)).map(|table| of(outbox, &table)),
            );
        }
        if rows.is_empty() {
            return Ok(None);
        }
        client.batch_execute(&format!("begin read only; set local statement_timeout = {}", limit.as_millis())).await?;
        let answer = client.query_one(&statement(home, &rows), &[&slot]).await;
        client.batch_execute("rollback").await?;
        let row = match answer {
            Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => return Ok(None),
            answer => answer?,
        };
        let count = |column| Ok::<_, Error>(row.try_get::<_, i64>(column)?.unsigned_abs());
        let age = |column| {
            let seconds: Option<f64> = row.try_get(column)?;
            Ok::<_, Error>(seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default()))
        };
        Ok(Some(Unproven { rows: count(0)?, oldest: age(1)?, p95: age(2)?, older: count(3)? }))
    }
}

fn seconds<S: Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    age.as_ref().map(Duration::as_secs_f64).serialize(serializer)
}

/// Its rows: `txid` and time.
fn of(outbox: &Outbox, table: &Table) -> String {
    let (txid, at) = (quote::ident(&outbox.columns.txid.name), &outbox.columns.occurred_at.name);
    let at = match table.column(at).filter(|column| column.is_timestamp()) {
        Some(column) => format!("{}::timestamptz", quote::ident(&column.name)),
        None => "null::timestamptz".to_owned(),
    };
    format!(
        "select {txid} as txid, tableoid as relation, {at} as at from {}",
        quote::qualified(&outbox.name.schema, &outbox.name.table)
    )
}

fn statement(home: &str, rows: &[String]) -> String {
    // The fifth percentile of the times is the ninety-fifth of the ages.
    format!(
        "select count(*) filter (where owed),
                extract(epoch from statement_timestamp() - min(at) filter (where owed))::float8,
                extract(epoch from statement_timestamp() - percentile_disc(0.05) within group (order by at) filter (where owed))::float8,
                count(*) filter (where not owed)
         from ({rows}) o cross join {progress} p,
              lateral (select p.reading is not distinct from 'initial' or {is_streamed}(o.txid, o.relation, p) as owed) s
         where p.slot = $1 and not {is_published}(o.txid, o.relation, p)",
        rows = rows.join(" union all "),
        progress = quote::qualified(home, progress::TABLE),
        is_published = quote::qualified(home, progress::IS_PUBLISHED),
        is_streamed = quote::qualified(home, progress::IS_STREAMED),
    )
}
