//! How often events were tried in vain (`sql/attempt.sql`), kept from one session to the next.

use std::collections::HashMap;

use tokio_postgres::Client;

use super::{dead_letter::Encoding, quote::qualified};
use crate::{
    pipeline::Position,
    sink::{Attempts, Known},
};

/// Name of the table, in walpost's home schema.
pub const TABLE: &str = "attempt";

/// The rows of one slot.
#[derive(Clone, Debug)]
pub struct Table {
    /// As SQL writes it.
    name: String,
    system_identifier: String,
    slot: String,
}

impl Table {
    /// None: it does not exist in this schema, or may not be read and written.
    pub async fn find(
        client: &Client,
        schema: &str,
        system_identifier: &str,
        slot: &str,
    ) -> Result<Option<Table>, tokio_postgres::Error> {
        let name = qualified(schema, TABLE);
        let usable = "select bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, p))
                      from pg_class c join pg_namespace n on n.oid = c.relnamespace,
                          unnest(array['select', 'insert', 'update', 'delete']) p
                      where n.nspname = $1 and c.relname = $2";
        let usable: Option<bool> = client.query_one(usable, &[&schema, &TABLE]).await?.try_get(0)?;
        let table = Table { name, system_identifier: system_identifier.to_owned(), slot: slot.to_owned() };
        Ok(usable.filter(|usable| *usable).map(|_| table))
    }

    /// What is known of events from a position on. Rows of earlier ones are of no more use, and deleted.
    pub async fn read(&self, client: &Client, from: Position) -> Result<Known, tokio_postgres::Error> {
        let Table { name, system_identifier, slot } = self;
        let from = from.to_string();
        let old = format!("delete from {name} where system_identifier = $1 and slot = $2 and position < $3");
        client.execute(&old, &[system_identifier, slot, &from]).await?;
        let known =
            format!("select position, event_id, attempts from {name} where system_identifier = $1 and slot = $2");
        let mut attempts = HashMap::new();
        for row in client.query(&known, &[system_identifier, slot]).await? {
            let count: i32 = row.try_get(2)?;
            attempts.insert((row.try_get(0)?, row.try_get(1)?), count.try_into().unwrap_or(0));
        }
        Ok(attempts)
    }

    /// Writes counts down, and takes away what is 0. May be done again.
    pub async fn write(&self, client: &Client, attempts: &Attempts) -> Result<(), tokio_postgres::Error> {
        let encoding = Encoding::read(client).await?;
        let text = |text: &str| encoding.text(text).into_owned();
        let (mut positions, mut ids, mut counts, mut reasons) = (vec![], vec![], vec![], vec![]);
        for ((position, event_id), (count, reason)) in attempts {
            positions.push(position);
            ids.push(text(event_id));
            counts.push(i32::try_from(*count).unwrap_or(i32::MAX));
            reasons.push(text(reason));
        }
        let statement = format!(
            "with told as (
                 select * from unnest($3::text[], $4::text[], $5::integer[], $6::text[])
                     as t (position, event_id, attempts, last_error)
             ), gone as (
                 delete from {name} a using told t
                 where (a.system_identifier, a.slot, a.position, a.event_id) = ($1, $2, t.position, t.event_id)
                     and t.attempts = 0
             )
             insert into {name} as a (system_identifier, slot, position, event_id, attempts, last_error)
             select $1, $2, position, event_id, attempts, last_error from told where attempts > 0
             on conflict (system_identifier, slot, position, event_id) do update
                 set attempts = excluded.attempts, last_error = excluded.last_error, last_failed_at = clock_timestamp()",
            name = self.name
        );
        client.execute(&statement, &[&self.system_identifier, &self.slot, &positions, &ids, &counts, &reasons]).await?;
        Ok(())
    }
}
