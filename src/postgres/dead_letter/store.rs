//! The streaming process's side.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::try_join_all;
use tokio_postgres::{Statement, types::ToSql};

use super::{
    Access, COLUMNS, DeadLetter, Encoding, ParkKey, ReasonClass, Replayed, State, Stored, TABLE, from_unix_ms,
};
use crate::{
    pipeline::{Lsn, Position},
    postgres::{
        Error,
        progress::Hold,
        quote,
        sql::{Sql, durably},
    },
};

/// A lock that somebody holds for longer is told as trouble, and asked for again.
const LOCK_TIMEOUT: &str = "set lock_timeout = '5s'";

/// The letters of one slot, over an ordinary connection.
///
/// Such a connection holds up a smart shutdown of the server (G8): keep a store no longer than there is work for it. No
/// call is cancel safe; after dropping one of its futures, or after an error, drop the store and connect anew. Every
/// call may be made again.
pub struct Store {
    client: Sql,
    schema: String,
    /// As SQL writes it.
    table: String,
    system_identifier: String,
    slot: String,
    hold: Option<Hold>,
    encoding: Encoding,
}

impl Store {
    /// `system_identifier` is the server's, in decimal, as IDENTIFY_SYSTEM gives it; `schema` holds the table, which need
    /// not exist yet. Once another process has gained the slot from `hold`, every write fails with [`Error::Superseded`].
    pub async fn open(
        client: Sql,
        system_identifier: &str,
        slot: &str,
        schema: &str,
        hold: Option<Hold>,
    ) -> Result<Store, Error> {
        client.batch_execute(LOCK_TIMEOUT).await?;
        let encoding = Encoding::read(&client).await?;
        Ok(Store {
            client,
            schema: schema.to_owned(),
            table: quote::qualified(schema, TABLE),
            system_identifier: system_identifier.to_owned(),
            slot: slot.to_owned(),
            hold,
            encoding,
        })
    }

    /// None: there is no such table.
    pub async fn access(&self) -> Result<Option<Access>, Error> {
        Ok(Access::read(&self.client, &self.schema).await?)
    }

    /// Writes letters in one transaction that is on disk when this returns; gives how many are new. One that the table
    /// has already (by system, slot, position and event id) keeps its row as it is.
    pub async fn write(&self, letters: impl IntoIterator<Item = &DeadLetter>) -> Result<u64, Error> {
        let statement = format!(
            "insert into {} (system_identifier, slot, position, event_id, xid, source_table, aggregate_type, aggregate_id,
                event_type, topic, partition, key, payload, header_names, header_values, record_timestamp, reason_class,
                reason, attempts, first_failed_at, last_failed_at, later_delivered, park_key, state)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
                $24)
             on conflict on constraint dead_letter_once do nothing",
            self.table
        );
        self.durably(async {
            let statement = self.client.prepare(&statement).await?;
            // All are under way at once: one round trip, however many.
            let new = try_join_all(letters.into_iter().map(|letter| self.insert(&statement, letter))).await?;
            Ok(new.iter().sum())
        })
        .await
    }

    async fn insert(&self, statement: &Statement, letter: &DeadLetter) -> Result<u64, tokio_postgres::Error> {
        let text = |text: &str| self.encoding.text(text).into_owned();
        let optional = |value: &Option<String>| value.as_deref().map(text);
        let (names, values): (Vec<String>, Vec<Option<&[u8]>>) =
            letter.headers.iter().map(|(name, value)| (text(name), value.as_deref())).unzip();
        let state = if letter.park_key.is_some() { State::Parked } else { State::Dead };
        let values: [&(dyn ToSql + Sync); 24] = [
            &self.system_identifier,
            &self.slot,
            &letter.position.to_string(),
            &self.encoding.event_id(&letter.event_id),
            &i64::from(letter.xid),
            &text(&letter.source_table),
            &optional(&letter.aggregate_type),
            &optional(&letter.aggregate_id),
            &optional(&letter.event_type),
            &optional(&letter.topic),
            &letter.partition,
            &letter.key,
            &letter.payload,
            &names,
            &values,
            &from_unix_ms(letter.timestamp_ms),
            &letter.class.word(),
            &text(&letter.reason),
            &letter.attempts,
            &letter.first_failed_at,
            &letter.last_failed_at,
            &letter.later_delivered,
            &letter.park_key,
            &state.word(),
        ];
        self.client.execute(statement, &values).await
    }

    /// What the table has, in whatever state, of the transactions whose commit begins at or above `from`: with the
    /// slot's confirmed position, all that may be streamed again.
    pub async fn known(&self, from: Lsn) -> Result<Known, Error> {
        let statement = format!(
            "select position, event_id, state, reason_class, case reason_class when 'parked' then '' else reason end
             from {} where system_identifier = $1 and slot = $2 and position >= $3",
            self.table
        );
        let first = Position::first_of(from).to_string();
        let rows = self.client.query(&statement, &[&self.system_identifier, &self.slot, &first]).await?;
        let mut letters: BTreeMap<Position, Vec<(String, KnownLetter)>> = BTreeMap::new();
        for row in &rows {
            let letter = KnownLetter { state: row.try_get(2)?, class: row.try_get(3)?, reason: row.try_get(4)? };
            letters.entry(row.try_get(0)?).or_default().push((row.try_get(1)?, letter));
        }
        Ok(Known { letters, encoding: self.encoding })
    }

    /// What is parked now, and how many events under each key.
    ///
    /// Rows of another system identifier count too: after pg_upgrade or a restored dump nothing else remembers that these
    /// events are still owed, and that later ones must wait.
    pub async fn parked(&self) -> Result<HashMap<ParkKey, u64>, Error> {
        let statement =
            format!("select park_key, count(*) from {} where slot = $1 and state = 'parked' group by 1", self.table);
        let rows = self.client.query(&statement, &[&self.slot]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs()))).collect()
    }

    /// The next letters to send, in order: of the keys of which any was requested all that is parked and has a topic, and
    /// single dead ones. At most `limit`, and none once the payloads before it come to `bytes` (above 0). The same come again until
    /// they are settled, refused or discarded: send them all and see them acknowledged before asking again.
    pub async fn requested(&self, limit: usize, bytes: usize) -> Result<Vec<Stored>, Error> {
        // Rows of another system were written before this one's began; their positions are of another log.
        const NEEDED: &str =
            "id, system_identifier = $2 as ours, position, coalesce(octet_length(payload), 0)::bigint as size";
        let statement = format!(
            "with asked as (
                 select distinct park_key from {table}
                 where slot = $1 and state = 'parked' and replay_requested_at is not null
             ), waiting as (
                 select {NEEDED} from {table} join asked using (park_key)
                 where slot = $1 and state = 'parked' and topic is not null
                 union all
                 select {NEEDED} from {table}
                 where slot = $1 and state = 'dead' and replay_requested_at is not null and topic is not null
             ), next as (
                 select id, ours, sum(size) over (order by ours, position, id) - size as bytes_before from waiting
                 order by ours, position, id limit $3
             )
             select {COLUMNS} from {table} join next using (id) where bytes_before < $4::bigint
             order by ours, position, id",
            table = self.table
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let rows = self.client.query(&statement, &[&self.slot, &self.system_identifier, &limit, &bytes]).await?;
        rows.iter().map(|row| Ok(Stored::read(row)?)).collect()
    }

    /// The outbox, as SQL writes it, and the event id of each.
    pub async fn events(&self, replayed: &[Replayed]) -> Result<Vec<(String, String)>, Error> {
        let statement = format!(
            "select source_table, event_id from {} join unnest($1::bigint[], $2::text[]) as sent (row, at)
             on id = row and position = at where slot = $3",
            self.table
        );
        let (ids, positions): (Vec<i64>, Vec<String>) =
            replayed.iter().map(|Replayed { row, position }| (*row, position.to_string())).unzip();
        let rows = self.client.query(&statement, &[&ids, &positions, &self.slot]).await?;
        rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
    }

    /// Kafka has acknowledged these: they are replayed. Gives how many were not settled as such before, and the keys that
    /// have no parked row any more thereby, which are the stream's again. Where rows are left, parked since the request, the request passes on to them.
    pub async fn settle(&self, replayed: &[Replayed]) -> Result<(u64, Vec<ParkKey>), Error> {
        let statement = format!(
            "with sent as (
                 update {table} set state = 'replayed', settled_at = coalesce(settled_at, clock_timestamp())
                 where (id, position) in (select * from unnest($1::bigint[], $3::text[])) and slot = $2
                 and state <> 'replayed'
                 returning id, park_key, replay_requested_at
             ), asked as (
                 select park_key, max(replay_requested_at) as at from sent where park_key is not null group by park_key
             ), passed_on as (
                 update {table} behind set replay_requested_at = asked.at from asked
                 where behind.slot = $2 and behind.state = 'parked' and behind.park_key = asked.park_key
                 and behind.id not in (select id from sent) and behind.replay_requested_at is null
                 and asked.at is not null
             )
             select (select count(*) from sent), array(
                 select park_key from asked where not exists (
                     select from {table} behind where behind.slot = $2 and behind.state = 'parked'
                     and behind.park_key = asked.park_key and behind.id not in (select id from sent)))",
            table = self.table
        );
        let (ids, positions): (Vec<i64>, Vec<String>) =
            replayed.iter().map(|Replayed { row, position }| (*row, position.to_string())).unzip();
        let settled = self.durably(self.client.query_one(&statement, &[&ids, &self.slot, &positions])).await?;
        Ok((settled.try_get::<_, i64>(0)?.unsigned_abs(), settled.try_get(1)?))
    }

    /// A letter that was sent again failed again: nothing of its key is requested any more, and it waits as before.
    pub async fn refuse(&self, id: i64, class: ReasonClass, reason: &str) -> Result<(), Error> {
        let statement = format!(
            "with refused as (
                 update {table} set reason_class = $3, reason = $4, attempts = attempts + 1,
                     last_failed_at = clock_timestamp(), replay_requested_at = null
                 where id = $1 and slot = $2 returning park_key
             )
             update {table} set replay_requested_at = null
             where id <> $1 and slot = $2 and state = 'parked' and replay_requested_at is not null
             and park_key = (select park_key from refused)",
            table = self.table
        );
        let reason = self.encoding.text(reason);
        self.durably(self.client.execute(&statement, &[&id, &self.slot, &class.word(), &reason])).await?;
        Ok(())
    }

    /// Writes on the condition that the slot is still ours: nobody gains it before the transaction ends.
    async fn durably<T>(&self, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
        durably(&self.client, async {
            if let Some(hold) = &self.hold {
                hold.verify(&self.client).await?;
            }
            Ok::<_, Error>(work.await?)
        })
        .await
    }
}

/// Letters that may be met again in the stream.
#[derive(Debug)]
pub struct Known {
    /// With their event ids, by position. A position has more than one event only where a restored copy of the database
    /// went another way.
    letters: BTreeMap<Position, Vec<(String, KnownLetter)>>,
    encoding: Encoding,
}

/// What is known of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLetter {
    pub state: State,
    pub class: ReasonClass,
    /// Empty where it only waits behind another.
    pub reason: String,
}

impl Known {
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// The last event of them.
    pub fn last(&self) -> Option<Position> {
        self.letters.last_key_value().map(|(position, _)| *position)
    }

    /// What lies before this position is not met any more.
    pub fn forget_before(&mut self, position: Position) {
        self.letters = self.letters.split_off(&position);
    }

    /// The event's letter, if the table has one. `event_id` as it would be written.
    pub fn letter(&self, position: Position, event_id: &str) -> Option<&KnownLetter> {
        let event_id = self.encoding.event_id(event_id);
        let events = self.letters.get(&position)?;
        events.iter().find(|(id, _)| *id == event_id).map(|(_, letter)| letter)
    }
}

impl FromIterator<(Position, String, KnownLetter)> for Known {
    /// Positions and event ids first, of a database in UTF-8.
    fn from_iter<I: IntoIterator<Item = (Position, String, KnownLetter)>>(rows: I) -> Known {
        let mut letters: BTreeMap<Position, Vec<(String, KnownLetter)>> = BTreeMap::new();
        for (position, id, letter) in rows {
            letters.entry(position).or_default().push((id, letter));
        }
        Known { letters, encoding: Encoding { unicode: true } }
    }
}
