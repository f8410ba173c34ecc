//! The desk as a running walpost shows it to people: a page at a time, and what they decide in one statement, so that neither
//! takes memory by the number of letters.

use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

use super::{Desk, Encoding, OPEN, State};
use crate::postgres::{Error, sql::durably};

/// Most letters of a page.
pub const LETTERS_MAX: u32 = 100;
/// Most aggregates that are told of.
const AGGREGATES_MAX: i64 = 50;
/// Counts end here.
const COUNT_MAX: i64 = 100_000;
/// Most characters of a text; the columns hold any number.
const TEXT_MAX: usize = 300;
/// How long the server may work on a statement.
const WORK_MAX: Duration = Duration::from_secs(5);

/// How many letters wait for a decision; each number ends at a hundred thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub dead: i64,
    pub parked: i64,
    /// Of the parked ones.
    pub aggregates: i64,
}

/// A letter without bodies, with texts cut to 300 characters.
#[derive(Clone, Debug)]
pub struct Line {
    pub id: i64,
    pub event_id: String,
    pub event_type: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub source_table: String,
    pub topic: Option<String>,
    pub position: String,
    pub reason_class: String,
    pub reason: String,
    pub attempts: i32,
    pub first_failed_at: SystemTime,
    pub last_failed_at: SystemTime,
    pub later_delivered: bool,
    pub state: String,
    pub replay_requested_at: Option<SystemTime>,
    pub settled_at: Option<SystemTime>,
}

/// All that is parked under one key.
#[derive(Clone, Debug)]
pub struct Aggregate {
    pub letters: i64,
    /// Of those.
    pub replay_requested: i64,
    /// What the others wait behind.
    pub first: Line,
}

/// Which open letters are meant.
#[derive(Clone, Debug)]
pub enum Choice {
    /// Those of these rows.
    Letters(Vec<i64>),
    /// Those of this aggregate id, of whatever type.
    Aggregate(String),
    /// What is parked under the key of this row.
    AggregateOf(i64),
}

/// What became of the letters that were to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requested {
    /// Letters that were meant.
    pub matched: i64,
    /// That had not been asked for before.
    pub marked: i64,
    /// Not meant, but parked under the same keys: what is parked together goes together.
    pub parked_with_them: i64,
    /// Meant, and left as they are: there is nowhere to send them.
    pub without_topic: i64,
    /// Whose aggregate went on without them.
    pub after_later_events: i64,
}

/// What became of the letters that are never to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    pub discarded: i64,
    /// Under the keys of those, and left there.
    pub still_parked_behind: i64,
}

impl Desk {
    /// Bounds what the server does for this session.
    pub async fn hurry(&self) -> Result<(), Error> {
        let limit = WORK_MAX.as_millis();
        Ok(self.client.batch_execute(&format!("set statement_timeout = {limit}; set lock_timeout = {limit}")).await?)
    }

    pub async fn waiting(&self) -> Result<Waiting, Error> {
        let statement = format!(
            "select count(*) filter (where state = 'dead'), count(*) filter (where state = 'parked'),
                    count(distinct park_key) filter (where state = 'parked')
             from (select state, park_key from {} where slot = $1 and {OPEN} limit {COUNT_MAX}) w",
            self.table
        );
        let row = self.client.query_one(&statement, &[&self.slot]).await?;
        Ok(Waiting { dead: row.try_get(0)?, parked: row.try_get(1)?, aggregates: row.try_get(2)? })
    }

    /// What is parked, the oldest first.
    pub async fn aggregates(&self) -> Result<Vec<Aggregate>, Error> {
        let statement = format!(
            "select g.letters, g.requested, {} from
               (select park_key, count(*) as letters, count(replay_requested_at) as requested, min(position) as first
                from {table} where slot = $1 and state = 'parked' group by park_key order by min(position) limit $2) g,
               lateral (select * from {table} where slot = $1 and state = 'parked' and park_key = g.park_key
                        order by position, id limit 1) d
             order by g.first",
            columns("d"),
            table = self.table
        );
        let rows = self.client.query(&statement, &[&self.slot, &AGGREGATES_MAX]).await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            Ok(Aggregate { letters: row.try_get(0)?, replay_requested: row.try_get(1)?, first: Line::read(row)? })
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Letters in these states behind that of a row, in the order in which they were written; at most `limit`, of which
    /// [`LETTERS_MAX`] are enough.
    pub async fn page(&self, states: &[State], after: i64, limit: u32) -> Result<Vec<Line>, Error> {
        let states: Vec<_> = states.iter().map(|state| state.word()).collect();
        let statement = format!(
            "select {} from {} d where slot = $1 and state = any($2) and id > $3 order by id limit $4",
            columns("d"),
            self.table
        );
        let limit = i64::from(limit.min(LETTERS_MAX));
        let rows = self.client.query(&statement, &[&self.slot, &states, &after, &limit]).await?;
        Ok(rows.iter().map(Line::read).collect::<Result<_, _>>()?)
    }

    /// Asks the streaming process to send these again, with all that is parked under their keys.
    pub async fn request(&self, choice: &Choice) -> Result<Requested, Error> {
        let statement = format!(
            "with matched as (select id, state, park_key, topic from {table} where slot = $1 and {OPEN} and {MEANT}),
                  meant as (select * from matched where topic is not null),
                  chosen as (select id from meant where state = 'dead' union
                             select id from {table} where slot = $1 and state = 'parked'
                             and park_key in (select park_key from meant where state = 'parked')),
                  marked as (update {table} d set replay_requested_at = clock_timestamp() from chosen c
                             where d.id = c.id and d.{OPEN} and d.replay_requested_at is null returning 1)
             select (select count(*) from matched), (select count(*) from marked),
                    (select count(*) from chosen) - (select count(*) from meant),
                    (select count(*) from matched where topic is null),
                    (select count(*) from chosen join {table} d using (id) where d.later_delivered)",
            table = self.table,
            MEANT = self.meant(),
        );
        let (letters, aggregate, of) = choice.values(self.encoding);
        let row =
            durably(&self.client, self.client.query_one(&statement, &[&self.slot, &letters, &aggregate, &of])).await?;
        Ok(Requested {
            matched: row.try_get(0)?,
            marked: row.try_get(1)?,
            parked_with_them: row.try_get(2)?,
            without_topic: row.try_get(3)?,
            after_later_events: row.try_get(4)?,
        })
    }

    /// Decides that these are never sent. What is parked behind them stays.
    pub async fn give_up(&self, choice: &Choice) -> Result<Discarded, Error> {
        let statement = format!(
            "with meant as (select id, state, park_key from {table} where slot = $1 and {OPEN} and {MEANT}),
                  gone as (update {table} d set state = 'discarded', settled_at = clock_timestamp() from meant m
                           where d.id = m.id and d.{OPEN} returning 1)
             select (select count(*) from gone),
                    (select count(*) from {table} where slot = $1 and state = 'parked'
                     and park_key in (select park_key from meant where state = 'parked')
                     and id not in (select id from meant))",
            table = self.table,
            MEANT = self.meant(),
        );
        let (letters, aggregate, of) = choice.values(self.encoding);
        let row =
            durably(&self.client, self.client.query_one(&statement, &[&self.slot, &letters, &aggregate, &of])).await?;
        Ok(Discarded { discarded: row.try_get(0)?, still_parked_behind: row.try_get(1)? })
    }

    /// The condition of a [`Choice`].
    fn meant(&self) -> String {
        format!(
            "(id = any($2::bigint[]) or aggregate_id = $3::text or state = 'parked' and park_key =
              (select k.park_key from {} k where k.slot = $1 and k.id = $4::bigint))",
            self.table
        )
    }
}

impl Choice {
    /// Rows, an aggregate's id as the table has it, and the row of one of the aggregate.
    fn values(&self, encoding: Encoding) -> (&[i64], Option<Cow<'_, str>>, Option<i64>) {
        match self {
            Choice::Letters(rows) => (rows, None, None),
            Choice::Aggregate(id) => (&[], Some(encoding.text(id)), None),
            Choice::AggregateOf(row) => (&[], None, Some(*row)),
        }
    }
}

/// Of a [`Line`], from a table's alias.
fn columns(of: &str) -> String {
    let text = |column: &str| format!("left({of}.{column}, {TEXT_MAX}) as {column}");
    let texts = [
        "event_id",
        "event_type",
        "aggregate_type",
        "aggregate_id",
        "source_table",
        "topic",
        "position",
        "reason_class",
        "reason",
        "state",
    ];
    let plain = "id, attempts, first_failed_at, last_failed_at, later_delivered, replay_requested_at, settled_at";
    let plain = plain.split(", ").map(|column| format!("{of}.{column}"));
    plain.chain(texts.map(text)).collect::<Vec<_>>().join(", ")
}

impl Line {
    fn read(row: &Row) -> Result<Line, tokio_postgres::Error> {
        let text = |column: &str| row.try_get::<_, Lossy>(column).map(|text| text.0);
        let or_none = |column: &str| Ok(row.try_get::<_, Option<Lossy>>(column)?.map(|text| text.0));
        Ok(Line {
            id: row.try_get("id")?,
            event_id: text("event_id")?,
            event_type: or_none("event_type")?,
            aggregate_type: or_none("aggregate_type")?,
            aggregate_id: or_none("aggregate_id")?,
            source_table: text("source_table")?,
            topic: or_none("topic")?,
            position: text("position")?,
            reason_class: text("reason_class")?,
            reason: text("reason")?,
            attempts: row.try_get("attempts")?,
            first_failed_at: row.try_get("first_failed_at")?,
            last_failed_at: row.try_get("last_failed_at")?,
            later_delivered: row.try_get("later_delivered")?,
            state: text("state")?,
            replay_requested_at: row.try_get("replay_requested_at")?,
            settled_at: row.try_get("settled_at")?,
        })
    }
}

/// A database that checks no encoding may cut a character in two.
struct Lossy(String);

impl<'a> FromSql<'a> for Lossy {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Lossy, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Lossy(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }
}
