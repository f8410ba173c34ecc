//! How far a slot is published, and the proof of it: its row of `walpost.progress` (`sql/progress.sql`).
//!
//! The process that has the slot [gains](Hold::gain) the row, which raises its epoch. Whatever is written after that names
//! the epoch in its own transaction: a process that lost the slot, asleep or cut off, and does not know it yet, finds no
//! row to write ([`Error::Superseded`]). All writes wait for the disk whatever the database's default: what they say is
//! acted on.

use std::{str::FromStr, time::SystemTime};

use tokio_postgres::{Client, Row, types::ToSql};

use super::{Error, quote, replication::Identity, sql::durably};
use crate::pipeline::Lsn;

/// Name of the table, in walpost's home schema.
pub const TABLE: &str = "progress";

/// A slot's row. Snapshots as PostgreSQL prints them: `xmin:xmax:xip,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The server whose log and transactions it speaks of, in decimal; where it is another's, it proves nothing.
    pub system_identifier: String,
    pub timeline: u32,
    pub epoch: i64,
    /// Confirmed position of the slot as of `updated_at`; none before the first.
    pub confirmed: Option<Lsn>,
    /// `confirmed` is the last word: nothing was confirmed after it.
    pub stopped_clean: bool,
    /// All that is visible in it is published.
    pub published: Option<String>,
    /// What was committed by then is.
    pub published_at: Option<SystemTime>,
    /// The candidate's position: confirmed must pass it.
    pub candidate: Option<Lsn>,
    /// What was visible when the slot began; none before that is known.
    pub started: Option<String>,
    /// That was read from the table and sent.
    pub started_sent: bool,
    pub reading: Option<Reading>,
    pub updated_at: SystemTime,
}

/// A reading of the table that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub kind: ReadingKind,
    pub since: SystemTime,
    /// The rows to send are visible in it; none until the slot is made.
    pub visible: Option<String>,
    /// Consistent point of the slot that was made for it.
    pub at: Option<Lsn>,
    /// Where to go on, as JSON; none: at the first row.
    pub key: Option<String>,
}

/// What the table is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingKind {
    /// Rows that are older than the slot.
    Initial,
    /// Rows that a lost slot left unpublished.
    Recovery,
}

impl ReadingKind {
    /// As the table has it.
    pub fn word(self) -> &'static str {
        match self {
            ReadingKind::Initial => "initial",
            ReadingKind::Recovery => "recovery",
        }
    }

    fn of(word: &str) -> ReadingKind {
        match word {
            "initial" => ReadingKind::Initial,
            // The table checks that there is no third.
            _ => ReadingKind::Recovery,
        }
    }
}

/// What this role may do with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub select: bool,
    /// Insert and update, as the streaming process must.
    pub write: bool,
}

impl Access {
    /// None: there is no such table in the schema.
    pub async fn read(client: &Client, schema: &str) -> Result<Option<Access>, tokio_postgres::Error> {
        let row = client
            .query_opt(
                "select u.usage and has_table_privilege(c.oid, 'SELECT'),
                        u.usage and has_table_privilege(c.oid, 'INSERT') and has_table_privilege(c.oid, 'UPDATE')
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace,
                      lateral (select has_schema_privilege(n.oid, 'USAGE') as usage) u
                 where n.nspname = $1 and c.relname = $2",
                &[&schema, &TABLE],
            )
            .await?;
        row.map(|row| Ok(Access { select: row.try_get(0)?, write: row.try_get(1)? })).transpose()
    }

    /// What a stream needs.
    pub fn streams(self) -> bool {
        self.select && self.write
    }
}

impl Progress {
    /// The row of a slot in `schema`, whose table may be [read](Access).
    pub async fn read(client: &Client, schema: &str, slot: &str) -> Result<Option<Progress>, tokio_postgres::Error> {
        let statement = format!(
            "select system_identifier, timeline, epoch, confirmed::text, stopped_clean, published::text, published_at,
                    candidate_lsn::text, started::text, started_sent, reading, reading_since, reading_visible::text,
                    reading_at::text, reading_key::text, updated_at
             from {} where slot = $1",
            quote::qualified(schema, TABLE)
        );
        client.query_opt(&statement, &[&slot]).await?.map(|row| Progress::of(&row)).transpose()
    }

    fn of(row: &Row) -> Result<Progress, tokio_postgres::Error> {
        let reading = match row.try_get::<_, Option<&str>>("reading")? {
            Some(word) => Some(Reading {
                kind: ReadingKind::of(word),
                since: row.try_get("reading_since")?,
                visible: row.try_get("reading_visible")?,
                at: lsn(row, "reading_at")?,
                key: row.try_get("reading_key")?,
            }),
            None => None,
        };
        Ok(Progress {
            system_identifier: row.try_get("system_identifier")?,
            timeline: row.try_get::<_, i64>("timeline")? as u32,
            epoch: row.try_get("epoch")?,
            confirmed: lsn(row, "confirmed")?,
            stopped_clean: row.try_get("stopped_clean")?,
            published: row.try_get("published")?,
            published_at: row.try_get("published_at")?,
            candidate: lsn(row, "candidate_lsn")?,
            started: row.try_get("started")?,
            started_sent: row.try_get("started_sent")?,
            reading,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

fn lsn(row: &Row, column: &str) -> Result<Option<Lsn>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<&str>>(column)?.map(|text| Lsn::from_str(text).expect("the server prints positions")))
}

/// A slot that this process has gained: what its writes are made with. It has no connection of its own, since a lasting
/// one would hold up a smart shutdown of the server (G8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// As SQL writes it.
    table: String,
    slot: String,
    epoch: i64,
}

impl Hold {
    /// Takes the row over, or makes it. Call it with the slot's lock, and once the row is known not to be another
    /// server's.
    ///
    /// Where the slot exists and nothing is known of its beginning, all that is there by now counts as older than the
    /// slot, and is not proven.
    pub async fn gain(
        client: &Client,
        schema: &str,
        slot: &str,
        identity: &Identity,
        slot_exists: bool,
    ) -> Result<Hold, Error> {
        let table = quote::qualified(schema, TABLE);
        let statement = format!(
            "insert into {table} as known (slot, system_identifier, timeline, epoch, started)
             values ($1, $2, $3, 1, case when $4 then pg_current_snapshot() end)
             on conflict (slot) do update set
                 timeline = excluded.timeline, epoch = known.epoch + 1, stopped_clean = false,
                 started = case when known.reading is null then coalesce(known.started, excluded.started)
                                else known.started end,
                 updated_at = clock_timestamp()
             where known.system_identifier = excluded.system_identifier
             returning epoch"
        );
        let timeline = i64::from(identity.timeline);
        let values: [&(dyn ToSql + Sync); 4] = [&slot, &identity.system_identifier, &timeline, &slot_exists];
        let gained = durably(client, client.query_opt(&statement, &values)).await?;
        let row = gained.ok_or_else(|| superseded(slot))?;
        Ok(Hold { table, slot: slot.to_owned(), epoch: row.try_get(0)? })
    }

    /// Fails where another process has gained the slot since. In a transaction: none can before it ends.
    pub async fn verify(&self, client: &Client) -> Result<(), Error> {
        let statement = format!("select from {} where slot = $1 and epoch = $2 for share", self.table);
        let row = client.query_opt(&statement, &[&self.slot, &self.epoch]).await?;
        row.map(|_| ()).ok_or_else(|| superseded(&self.slot))
    }

    /// The table is to be read, for which a slot is about to be made: what an earlier one left as a candidate says nothing
    /// about it.
    pub async fn begin_reading(&self, client: &Client, kind: ReadingKind) -> Result<(), Error> {
        let assignments = "reading = $3, reading_since = clock_timestamp(), reading_visible = null, reading_at = null,
            reading_key = null, candidate = null, candidate_lsn = null, candidate_at = null";
        self.update(client, assignments, &[&kind.word()]).await
    }

    /// The slot is made: all that is visible in `visible` is to be read, the rest comes from the log after `at`. It is
    /// also the beginning of the slot, where none is known.
    pub async fn reading_started(&self, client: &Client, visible: &str, at: Lsn) -> Result<(), Error> {
        let assignments = "reading_visible = $3::text::pg_snapshot, reading_at = $4::text::pg_lsn,
            confirmed = $4::text::pg_lsn,
            started = case when reading = 'initial' or started is null then $3::text::pg_snapshot else started end";
        self.update(client, assignments, &[&visible, &at.to_string()]).await
    }

    /// Kafka has acknowledged all rows up to this one. `key` is JSON.
    pub async fn reading_key(&self, client: &Client, key: &str) -> Result<(), Error> {
        self.update(client, "reading_key = $3::text::jsonb", &[&key]).await
    }

    /// Kafka has acknowledged all of it: what was read is published.
    pub async fn reading_done(&self, client: &Client) -> Result<(), Error> {
        let assignments = "published = reading_visible, published_at = reading_since,
            started_sent = started_sent or started::text = reading_visible::text,
            reading = null, reading_since = null, reading_visible = null, reading_at = null, reading_key = null";
        self.update(client, assignments, &[]).await
    }

    /// The stream has ended in order, and `confirmed` is the last that the slot was told.
    pub async fn stopped(&self, client: &Client, confirmed: Lsn) -> Result<(), Error> {
        self.update(client, "confirmed = $3::text::pg_lsn, stopped_clean = true", &[&confirmed.to_string()]).await
    }

    async fn update(&self, client: &Client, assignments: &str, more: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        let statement = format!(
            "update {} set {assignments}, updated_at = clock_timestamp() where slot = $1 and epoch = $2",
            self.table
        );
        let values = [&[&self.slot as _, &self.epoch as _], more].concat();
        match durably(client, client.execute(&statement, &values)).await? {
            0 => Err(superseded(&self.slot)),
            _ => Ok(()),
        }
    }
}

fn superseded(slot: &str) -> Error {
    Error::Superseded { slot: slot.to_owned() }
}
