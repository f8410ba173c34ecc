//! How far a slot is published, and the proof of it: its row of `walpost.progress` (`sql/progress.sql`).
//!
//! The process that has the slot [gains](Hold::gain) the row, which raises its epoch. Whatever is written after that names
//! the epoch in its own transaction: a process that lost the slot, asleep or cut off, and does not know it yet, finds no
//! row to write ([`Error::Superseded`]). All writes wait for the disk whatever the database's default: what they say is
//! acted on.

use std::{str::FromStr, time::SystemTime};

use tokio_postgres::{Client, Row, types::ToSql};

use super::{
    Error,
    coverage::{self, BEGUN},
    quote,
    replication::Identity,
    sql::durably,
};
use crate::pipeline::Lsn;

/// Name of the table, in walpost's home schema.
pub const TABLE: &str = "progress";

/// The functions that say by a slot's row whether a row of the outbox is published, and whether it is the stream's to send.
pub const IS_PUBLISHED: &str = "is_published";
pub const IS_STREAMED: &str = "is_streamed";

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
    /// Transactions that the server had decoded through the slot by then; none: not known.
    pub decoded: Option<i64>,
    /// All that is visible in it is published, but for what was there before the slot. None: nothing is known to be.
    pub published: Option<String>,
    /// What was committed by then is.
    pub published_at: Option<SystemTime>,
    /// The candidate's position: confirmed must pass it.
    pub candidate: Option<Lsn>,
    pub candidate_at: Option<SystemTime>,
    /// What was visible when the slot began, or a little later; none before that is known.
    pub started: Option<String>,
    /// That was read from the table and sent.
    pub started_sent: bool,
    pub reading: Option<Reading>,
    /// The last time that the stream began again, or is to.
    pub rewind: Option<Rewind>,
    /// When that was asked for, in microseconds since 1970: a later one is greater. 0: it never was.
    pub generation: i64,
    pub updated_at: SystemTime,
}

/// A new beginning of the stream at an earlier position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewind {
    pub to: Lsn,
    /// The bookmark's slot.
    pub from: String,
    /// The slot is the new one.
    pub done: bool,
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
            "select system_identifier, timeline, epoch, confirmed::text, stopped_clean, decoded, published::text, published_at,
                    candidate_lsn::text, candidate_at, started::text, started_sent, reading, reading_since, reading_visible::text,
                    reading_at::text, reading_key::text,
                    rewind_to::text, rewind_from, rewind_at, rewind_done,
                    (extract(epoch from rewind_at) * 1000000)::bigint as generation, updated_at
             from {} where slot = $1",
            quote::qualified(schema, TABLE)
        );
        client.query_opt(&statement, &[&slot]).await?.map(|row| Progress::of(&row)).transpose()
    }

    /// Something was begun for which the slot is made, or made anew, and has not ended.
    pub fn is_under_way(&self) -> bool {
        let reads = self
            .reading
            .as_ref()
            .is_some_and(|reading| reading.visible.is_some() || reading.kind == ReadingKind::Recovery);
        reads || self.rewind.as_ref().is_some_and(|rewind| !rewind.done)
    }

    /// The rows that the slot may owe, as SQL over the column `txid` of `o`; all, where nothing is known to be published.
    pub fn unproven(&self, txid: &str) -> String {
        match &self.published {
            Some(published) => format!(
                "not coalesce(pg_visible_in_snapshot(o.{}, {}::pg_snapshot), false)",
                quote::ident(txid),
                quote::literal(published)
            ),
            None => "true".to_owned(),
        }
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
        let rewind = match lsn(row, "rewind_to")?.zip(row.try_get("rewind_from")?) {
            Some((to, from)) => Some(Rewind { to, from, done: row.try_get("rewind_done")? }),
            None => None,
        };
        Ok(Progress {
            system_identifier: row.try_get("system_identifier")?,
            timeline: row.try_get::<_, i64>("timeline")? as u32,
            epoch: row.try_get("epoch")?,
            confirmed: lsn(row, "confirmed")?,
            stopped_clean: row.try_get("stopped_clean")?,
            decoded: row.try_get("decoded")?,
            published: row.try_get("published")?,
            published_at: row.try_get("published_at")?,
            candidate: lsn(row, "candidate_lsn")?,
            candidate_at: row.try_get("candidate_at")?,
            started: row.try_get("started")?,
            started_sent: row.try_get("started_sent")?,
            reading,
            rewind,
            generation: row.try_get::<_, Option<i64>>("generation")?.unwrap_or(0),
            updated_at: row.try_get("updated_at")?,
        })
    }
}

fn lsn(row: &Row, column: &str) -> Result<Option<Lsn>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<&str>>(column)?.map(|text| Lsn::from_str(text).expect("the server prints positions")))
}

/// What is visible by now, as the server prints it.
pub async fn visible(client: &Client) -> Result<String, tokio_postgres::Error> {
    client.query_one("select pg_catalog.pg_current_snapshot()::text", &[]).await?.try_get(0)
}

/// The server's own, in decimal; IDENTIFY_SYSTEM says the same.
pub async fn system_identifier(client: &Client) -> Result<String, tokio_postgres::Error> {
    let row = client.query_one("select system_identifier::text from pg_control_system()", &[]).await?;
    row.try_get(0)
}

/// Begins the proof of a slot that is about to be made, unless there is one, or there was and it is lost: what is there by now
/// will be older than the slot. `published` is the query of [`coverage`]. This and what follows as psql would run it.
pub fn prepare_sql(schema: &str, slot: &str, publication: &str, published: &str) -> String {
    let (table, slot) = (quote::qualified(schema, TABLE), quote::literal(slot));
    let missing = format!("not exists (select from pg_replication_slots where slot_name = {slot})");
    format!(
        "delete from {table} where slot = {slot} and {missing}
and (started is null or system_identifier <> (select system_identifier::text from pg_control_system()));
insert into {table} (slot, publication, system_identifier, timeline, published, {})
select {slot}, {}, system_identifier::text, timeline_id, pg_catalog.pg_current_snapshot(), c.*
from pg_control_system(), pg_control_checkpoint(), ({}) c
where {missing} on conflict do nothing;",
        coverage::COLUMNS,
        quote::literal(publication),
        coverage::whole(published)
    )
}

/// The slot that was prepared for is made: what is there by now may be older. Or it is not, and nothing was prepared.
pub fn settle_sql(schema: &str, slot: &str) -> String {
    let (table, slot) = (quote::qualified(schema, TABLE), quote::literal(slot));
    format!(
        "update {table} set confirmed = confirmed_flush_lsn, stopped_clean = true, started = {BEGUN}
from pg_replication_slots where slot = {slot} and slot_name = slot and started is null and reading is null;
delete from {table} where slot = {slot} and started is null and reading is null;"
    )
}

/// Begins the proof of a slot that was there, anew where there was one: of all that is there by now nothing is proven. Where
/// there is no such slot, nothing is known of it any more. Nobody may stream from it meanwhile.
pub fn begin_sql(schema: &str, slot: &str, publication: &str, published: &str) -> String {
    let (table, slot) = (quote::qualified(schema, TABLE), quote::literal(slot));
    format!(
        "delete from {table} where slot = {slot};
insert into {table} (slot, publication, system_identifier, timeline, confirmed, stopped_clean, started, {})
select slot_name, {}, system_identifier::text, timeline_id, confirmed_flush_lsn, true, {BEGUN}, c.*
from pg_replication_slots, pg_control_system(), pg_control_checkpoint(), ({}) c where slot_name = {slot};",
        coverage::COLUMNS,
        quote::literal(publication),
        coverage::whole(published)
    )
}

/// Takes away what is known of a slot that is gone.
pub async fn forget(client: &Client, schema: &str, slot: &str) -> Result<(), tokio_postgres::Error> {
    let statement = format!("delete from {} where slot = $1", quote::qualified(schema, TABLE));
    client.execute(&statement, &[&slot]).await?;
    Ok(())
}

/// Where rows stand that are older than a slot which was there already.
const OLDER_ROWS_AT: &str = "0/8";

/// Asks the next session for the rows that were there before the slot began. Call it with the slot's lock. Their positions
/// are below all that a log can have. False: nothing is known of the beginning, or they are sent, or being read.
pub async fn ask_for_older_rows(client: &Client, schema: &str, slot: &str) -> Result<bool, Error> {
    let statement = format!(
        "update {} set reading = 'initial', reading_since = clock_timestamp(), reading_visible = started,
            reading_at = '{OLDER_ROWS_AT}', reading_key = null, updated_at = clock_timestamp()
         where slot = $1 and started is not null and not started_sent and reading is null",
        quote::qualified(schema, TABLE)
    );
    Ok(durably(client, client.execute(&statement, &[&slot])).await? == 1)
}

/// Transactions that have ended, and where: what is visible in the snapshot ends at or below the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub snapshot: Snapshot,
    pub lsn: Lsn,
    /// When it was taken, or just before.
    pub taken: SystemTime,
}

impl Candidate {
    /// Takes one. Two statements, each with its own look at the server, and in this order: a transaction writes its commit to
    /// the log before it becomes visible.
    pub async fn take(client: &Client) -> Result<Candidate, Error> {
        // Named in full: what this says is acted on, whatever the search_path.
        let snapshot = "select pg_catalog.pg_current_snapshot()::text, pg_catalog.statement_timestamp()";
        let snapshot = client.query_one(snapshot, &[]).await?;
        let end = client.query_one("select pg_catalog.pg_current_wal_insert_lsn()::text as lsn", &[]).await?;
        let unreadable = || Error::protocol("pg_current_snapshot gives no snapshot");
        Ok(Candidate {
            snapshot: Snapshot::parse(snapshot.try_get(0)?).ok_or_else(unreadable)?,
            lsn: lsn(&end, "lsn")?.unwrap_or_default(),
            taken: snapshot.try_get(1)?,
        })
    }
}

/// Which transactions have ended, as PostgreSQL prints it: `xmin:xmax:xip,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    text: String,
    /// None from here on had ended.
    xmax: u64,
    /// Those below that had not.
    running: Vec<u64>,
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> Option<Snapshot> {
        let mut parts = text.split(':');
        let (_xmin, xmax, running) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let running = running.split(',').filter(|xid| !xid.is_empty()).map(|xid| xid.parse().ok());
        Some(Snapshot { text: text.to_owned(), xmax, running: running.collect::<Option<_>>()? })
    }

    /// Whether a transaction of these days had ended. The log has the lower half of its id.
    pub fn sees(&self, xid: u32) -> bool {
        let below = (self.xmax as u32).wrapping_sub(xid);
        let is_below = below != 0 && below < 1 << 31;
        is_below && !self.running.contains(&self.xmax.wrapping_sub(u64::from(below)))
    }

    /// What had begun and not ended; the lower halves of the ids.
    pub fn running(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(|xid| *xid as u32)
    }
}

/// What a process says when it gains a slot.
#[derive(Clone, Copy, Debug)]
pub struct Gain<'a> {
    pub slot: &'a str,
    pub publication: &'a str,
    pub identity: &'a Identity,
    /// Confirmed position of the slot; none: it is not made yet.
    pub confirmed: Option<Lsn>,
    /// The query of [`coverage`].
    pub published: &'a str,
}

/// A slot that this process has gained: what its writes are made with. It has no connection of its own, since a lasting
/// one would hold up a smart shutdown of the server (G8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// As SQL writes it.
    table: String,
    slot: String,
    epoch: i64,
    /// The query of [`coverage`].
    published: String,
}

/// What the server has decoded through slot `$1`.
const DECODED: &str = "(select total_txns from pg_stat_replication_slots where slot_name = $1)";

impl Hold {
    /// The number that this process's writes carry.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Takes the row over, or makes it. Call it with the slot's lock, and once the row is known not to be another
    /// server's.
    ///
    /// Where the slot exists and nothing is known of its beginning, all that is there by now counts as older than the
    /// slot, and is not proven.
    pub async fn gain(client: &Client, schema: &str, gain: Gain<'_>) -> Result<Hold, Error> {
        let Gain { slot, publication, identity, confirmed, published } = gain;
        let table = quote::qualified(schema, TABLE);
        let statement = format!(
            "insert into {table} as progress
                 (slot, publication, system_identifier, timeline, confirmed, decoded, started, {columns})
             select $1, $2, $3, $4, $5::text::pg_lsn, {DECODED}, case when $5::text is not null then {BEGUN} end, c.*
             from ({whole}) c
             on conflict (slot) do update set
                 publication = excluded.publication, timeline = excluded.timeline, epoch = progress.epoch + 1,
                 stopped_clean = progress.stopped_clean and excluded.confirmed is null,
                 confirmed = coalesce(excluded.confirmed, progress.confirmed),
                 decoded = case when excluded.confirmed is null then progress.decoded else excluded.decoded end,
                 started = case when progress.reading is null then coalesce(progress.started, excluded.started)
                                else progress.started end,
                 {continued},
                 updated_at = clock_timestamp()
             where progress.system_identifier = excluded.system_identifier
             returning epoch",
            columns = coverage::COLUMNS,
            whole = coverage::whole(published),
            continued = coverage::assign(&coverage::continued(published)),
        );
        let timeline = i64::from(identity.timeline);
        let values: [&(dyn ToSql + Sync); 5] =
            [&slot, &publication, &identity.system_identifier, &timeline, &confirmed.map(|lsn| lsn.to_string())];
        let gained = durably(client, client.query_opt(&statement, &values)).await?;
        let row = gained.ok_or_else(|| superseded(slot))?;
        Ok(Hold { table, slot: slot.to_owned(), epoch: row.try_get(0)?, published: published.to_owned() })
    }

    /// What is published by now, as a query ([`coverage`]).
    pub fn published(&self) -> &str {
        &self.published
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
        let published = match kind {
            // What no slot had is read from the tables.
            ReadingKind::Initial => coverage::whole(&self.published),
            ReadingKind::Recovery => coverage::continued(&self.published),
        };
        let assignments = format!(
            "reading = $3, reading_since = clock_timestamp(), reading_visible = null, reading_at = null, reading_key = null,
             candidate = null, candidate_lsn = null, candidate_at = null, {}",
            coverage::assign(&published)
        );
        self.update(client, &assignments, &[&kind.word()]).await
    }

    /// The slot is made: all that is visible in `visible` is to be read, the rest comes from the log after `at`. It is
    /// also the beginning of the slot, where none is known.
    pub async fn reading_started(&self, client: &Client, visible: &str, at: Lsn) -> Result<(), Error> {
        let assignments = "reading_visible = $3::text::pg_snapshot, reading_at = $4::text::pg_lsn,
            confirmed = $4::text::pg_lsn, stopped_clean = false,
            started = case when reading = 'initial' or started is null then $3::text::pg_snapshot else started end";
        self.update(client, assignments, &[&visible, &at.to_string()]).await
    }

    /// The slot begins here, and what it does not have is done without: of all that is there by now nothing is proven any more.
    /// `before`: what is visible in it is older than the slot; none: not known.
    pub async fn accept_gap(&self, client: &Client, at: Lsn, before: Option<&str>) -> Result<(), Error> {
        let assignments = format!(
            "confirmed = $3::text::pg_lsn, stopped_clean = false, decoded = {DECODED}, published = $4::text::pg_snapshot,
             published_at = null, candidate = null, candidate_lsn = null, candidate_at = null, started = {BEGUN},
             started_sent = false"
        );
        self.update(client, &assignments, &[&at.to_string(), &before]).await
    }

    /// The reading that was asked for is given up before its slot was made; there is another one by now. What was there before
    /// that is not known to be published.
    pub async fn forget_reading(&self, client: &Client) -> Result<(), Error> {
        let assignments = format!("reading = null, reading_since = null, started = coalesce(started, {BEGUN})");
        self.update(client, &assignments, &[]).await
    }

    /// Kafka has acknowledged all rows up to this one. `key` is JSON.
    pub async fn reading_key(&self, client: &Client, key: &str) -> Result<(), Error> {
        self.update(client, "reading_key = $3::text::jsonb", &[&key]).await
    }

    /// Kafka has acknowledged all of it: what was read is published.
    pub async fn reading_done(&self, client: &Client) -> Result<(), Error> {
        // Rows that are older than a slot that was there already prove nothing of its log.
        let keeps = format!("reading_at = '{OLDER_ROWS_AT}'");
        let assignments = &format!(
            "published = case when {keeps} then published else reading_visible end,
            published_at = case when {keeps} then published_at else reading_since end,
            started_sent = started_sent or started::text = reading_visible::text,
            reading = null, reading_since = null, reading_visible = null, reading_at = null, reading_key = null, {}",
            coverage::assign(&coverage::continued(&self.published))
        );
        self.update(client, assignments, &[]).await
    }

    /// The slot was told `confirmed`, beyond which nothing is delivered for certain: a candidate at or below it is proven, as far
    /// as tables were published all the time. Another one takes its place, or waits behind none.
    pub async fn tick(&self, client: &Client, confirmed: Lsn, candidate: Option<&Candidate>) -> Result<(), Error> {
        let confirmed = confirmed.to_string();
        let proven = format!(
            "confirmed = $3::text::pg_lsn, decoded = {DECODED},
             published = case when candidate_lsn <= $3::text::pg_lsn then candidate else published end,
             published_at = case when candidate_lsn <= $3::text::pg_lsn then candidate_at else published_at end,
             {}",
            coverage::assign(&coverage::continued(&self.published))
        );
        match candidate {
            Some(Candidate { snapshot, lsn, taken }) => {
                let next = "candidate = $4::text::pg_snapshot, candidate_lsn = $5::text::pg_lsn, candidate_at = $6";
                let values: [&(dyn ToSql + Sync); 4] = [&confirmed, &snapshot.text, &lsn.to_string(), taken];
                self.update(client, &format!("{proven}, {next}"), &values).await
            }
            None => {
                let left = |column| format!("{column} = case when candidate_lsn > $3::text::pg_lsn then {column} end");
                let left = ["candidate", "candidate_lsn", "candidate_at"].map(left).join(", ");
                self.update(client, &format!("{proven}, {left}"), &[&confirmed]).await
            }
        }
    }

    /// The stream is to begin again at `to`, from a bookmark. Gives the generation, which is above any earlier one.
    pub async fn rewind(&self, client: &Client, to: Lsn, from: &str) -> Result<i64, Error> {
        let assignments = "rewind_to = $3::text::pg_lsn, rewind_from = $4, rewind_done = false,
            rewind_at = greatest(clock_timestamp(), rewind_at + interval '1 microsecond')";
        self.update(client, assignments, &[&to.to_string(), &from]).await?;
        let generation =
            format!("select (extract(epoch from rewind_at) * 1000000)::bigint from {} where slot = $1", self.table);
        Ok(client.query_one(&generation, &[&self.slot]).await?.try_get(0)?)
    }

    /// The slot is the one that begins at `to`.
    pub async fn rewound(&self, client: &Client, to: Lsn) -> Result<(), Error> {
        let assignments = "rewind_done = true, confirmed = $3::text::pg_lsn, stopped_clean = false";
        self.update(client, assignments, &[&to.to_string()]).await
    }

    /// The stream has ended in order, and `confirmed` is the last that the slot was told.
    pub async fn stopped(&self, client: &Client, confirmed: Lsn) -> Result<(), Error> {
        let assignments = format!("confirmed = $3::text::pg_lsn, decoded = {DECODED}, stopped_clean = true");
        self.update(client, &assignments, &[&confirmed.to_string()]).await
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn default_progress() -> Progress {
        Progress {
            decoded: None,
            system_identifier: "7".to_owned(),
            timeline: 1,
            epoch: 1,
            confirmed: None,
            stopped_clean: false,
            published: None,
            published_at: None,
            candidate: None,
            candidate_at: None,
            started: None,
            started_sent: false,
            reading: None,
            rewind: None,
            generation: 0,
            updated_at: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_snapshot_sees_what_had_ended_across_the_wrap_of_ids() {
        let at = |text| Snapshot::parse(text).unwrap();
        let snapshot = at("100:110:100,105");
        for (xid, seen) in
            [(99, true), (100, false), (101, true), (105, false), (109, true), (110, false), (111, false)]
        {
            assert_eq!(snapshot.sees(xid), seen, "{xid}");
        }
        assert_eq!(snapshot.running().collect::<Vec<_>>(), [100, 105]);
        let wrapped = at("8589934590:8589934596:8589934591");
        for (xid, seen) in [(3, true), (4, false), (u32::MAX, false), (u32::MAX - 1, true), (0, true)] {
            assert_eq!(wrapped.sees(xid), seen, "{xid}");
        }
        assert!(at("5:5:").sees(4) && Snapshot::parse("5").is_none() && Snapshot::parse("5:6:x").is_none());
    }
}
