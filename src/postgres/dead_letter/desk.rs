//! The side of the people who decide what becomes of a letter.

use std::time::SystemTime;

use futures_util::{Stream, TryStreamExt};
use tokio_postgres::types::ToSql;

use super::{Access, COLUMNS, Encoding, OPEN, ParkKey, ReasonClass, State, Stored, TABLE};
use crate::postgres::{
    Error,
    conninfo::ConnInfo,
    quote,
    sql::{self, Sql, durably},
};

/// The letters of one slot, of whichever system identifier.
pub struct Desk {
    pub(super) client: Sql,
    schema: String,
    /// As SQL writes it.
    pub(super) table: String,
    pub(super) slot: String,
    pub(super) encoding: Encoding,
}

/// Which letters are meant: those that have one of the values of each list that is not empty.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub event_ids: Vec<String>,
    pub aggregate_ids: Vec<String>,
    pub reasons: Vec<ReasonClass>,
    pub states: Vec<State>,
    /// First failed at or after this.
    pub since: Option<SystemTime>,
    /// First failed before this.
    pub until: Option<SystemTime>,
}

impl Desk {
    pub async fn connect(at: &ConnInfo, slot: &str, schema: &str) -> Result<Desk, Error> {
        let client = sql::connect(at).await?;
        let encoding = Encoding::read(&client).await?;
        let table = quote::qualified(schema, TABLE);
        Ok(Desk { client, schema: schema.to_owned(), table, slot: slot.to_owned(), encoding })
    }

    /// None: there is no table.
    pub async fn access(&self) -> Result<Option<Access>, Error> {
        Ok(Access::read(&self.client, &self.schema).await?)
    }

    /// The table, as SQL writes it.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The selected letters, one after the other in the order of their positions. Without bodies they come without
    /// payload and headers.
    pub async fn select(
        &self,
        selection: &Selection,
        bodies: bool,
    ) -> Result<impl Stream<Item = Result<Stored, Error>> + use<>, Error> {
        let condition = "(cardinality($2::text[]) = 0 or event_id = any($2))
             and (cardinality($3::text[]) = 0 or aggregate_id = any($3))
             and (cardinality($4::text[]) = 0 or reason_class = any($4))
             and (cardinality($5::text[]) = 0 or state = any($5))
             and ($6::timestamptz is null or first_failed_at >= $6)
             and ($7::timestamptz is null or first_failed_at < $7)";
        let event_ids: Vec<_> = selection.event_ids.iter().map(|id| self.encoding.event_id(id)).collect();
        let aggregate_ids: Vec<_> = selection.aggregate_ids.iter().map(|id| self.encoding.text(id)).collect();
        let reasons: Vec<_> = selection.reasons.iter().map(|reason| reason.word()).collect();
        let states: Vec<_> = selection.states.iter().map(|state| state.word()).collect();
        let values: [&(dyn ToSql + Sync); 7] =
            [&self.slot, &event_ids, &aggregate_ids, &reasons, &states, &selection.since, &selection.until];
        self.query(condition, bodies, values).await
    }

    /// All that is parked under these keys, without bodies, in the order of their positions.
    pub async fn parked(&self, keys: &[ParkKey]) -> Result<Vec<Stored>, Error> {
        let values: [&(dyn ToSql + Sync); 2] = [&self.slot, &keys];
        let rows = self.query("state = 'parked' and park_key = any($2)", false, values).await?;
        rows.try_collect().await
    }

    async fn query<const N: usize>(
        &self,
        condition: &str,
        bodies: bool,
        values: [&(dyn ToSql + Sync); N],
    ) -> Result<impl Stream<Item = Result<Stored, Error>> + use<N>, Error> {
        let columns = if bodies {
            COLUMNS.to_owned()
        } else {
            COLUMNS.replace(
                "payload, header_names, header_values",
                "null::bytea as payload, '{}'::text[] as header_names, '{}'::bytea[] as header_values",
            )
        };
        let statement = format!(
            "select {columns} from {} where slot = $1 and {condition} order by system_identifier, position, id",
            self.table
        );
        let rows = self.client.query_raw(&statement, values).await?;
        Ok(rows.map_err(Error::from).and_then(|row| async move { Ok(Stored::read(&row)?) }))
    }

    /// Asks the streaming process to send these again; gives how many it had not been asked for before. Those that are
    /// settled by now stay so.
    pub async fn request_replay(&self, ids: &[i64]) -> Result<u64, Error> {
        self.mark("replay_requested_at = clock_timestamp()", "and replay_requested_at is null", ids).await
    }

    /// Decides that these are never sent; gives how many were still open. One that was requested before may be on its
    /// way: when Kafka acknowledges it, it ends as replayed.
    pub async fn discard(&self, ids: &[i64]) -> Result<u64, Error> {
        self.mark("state = 'discarded', settled_at = clock_timestamp()", "", ids).await
    }

    async fn mark(&self, assignment: &str, condition: &str, ids: &[i64]) -> Result<u64, Error> {
        let statement =
            format!("update {} set {assignment} where id = any($1) and slot = $2 and {OPEN} {condition}", self.table);
        durably(&self.client, self.client.execute(&statement, &[&ids, &self.slot])).await
    }
}
