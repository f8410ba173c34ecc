//! Dead letters: events that could not be delivered, and those that wait behind one (`sql/dead_letter.sql`).
//!
//! Two parties share the table. The streaming process has the [`Store`]: it writes letters before it confirms their
//! positions, and sends what is asked for again. People have the [`Desk`]: they look, and mark.
//!
//! # The hand-over
//!
//! A parked aggregate goes back to the live stream without a gap or a swap because one process does all of it:
//!
//! 1. The desk only marks rows: replay requested, or discarded. It never sends, and never unparks.
//! 2. While a [`ParkKey`] has a parked row, the streaming process sends no event of it from the stream. It writes the
//!    event behind the others, as parked. This holds until step 4 and from the first record after a restart on.
//! 3. It sends the rows of a requested key in the order of their positions, those parked since the request included
//!    ([`Store::requested`]), each before anything later of its key. After a restart it begins when the stream has met
//!    again all that the table has ([`Store::known`]): until then it may bring earlier events, sent and lost, to write.
//!    Exactly once Kafka's transaction says which rows it has; a session begins by settling what the last one could not.
//! 4. When Kafka has acknowledged rows, it settles them ([`Store::settle`]). The key whose last parked row that was is
//!    unparked: every earlier event of it is acknowledged, and the next one comes from the stream.
//!
//! Only the streaming process adds parked rows, it reads and writes the table one call after the other, and it takes
//! nothing from the stream during step 4, so nothing can be parked between its answer and the unparking. When few rows are
//! left after step 4, it takes nothing until they are settled too: with a busy key it would never come to an end. A
//! discard can empty a key as well: a key that [`Store::parked`] no longer names is unparked like one of step 4. An event
//! that the table has already, in whatever state, follows its row when it is streamed again ([`Store::known`]).
//! `tests/parking` simulates all this.

mod desk;
mod encoding;
mod page;
mod store;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::BytesMut;
use openssl::sha::Sha256;
use tokio_postgres::{
    Client, Row,
    types::{FromSql, IsNull, ToSql, Type},
};

pub use desk::{Desk, Selection};
use encoding::OPEN;
pub use encoding::{Encoding, of_row, printed};
pub use page::{Aggregate, Choice, Discarded, LETTERS_MAX, Line, Requested, Waiting};
pub use store::{Known, KnownLetter, Store};

use super::quote::qualified;
use crate::pipeline::{Lsn, Position};

/// Name of the table, in walpost's home schema.
pub const TABLE: &str = "dead_letter";

/// An event that was not delivered, and why. Texts are for people and for finding it: those that came as bytes are made
/// UTF-8 by replacement, and what the database's encoding does not have is escaped. Bytes are kept exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub position: Position,
    /// Empty where the row had none.
    pub event_id: String,
    /// The transaction that inserted it.
    pub xid: u32,
    /// The outbox, as SQL writes its name.
    pub source_table: String,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub event_type: Option<String>,
    /// None: it could not be made out, or Kafka forbids it. Such an event cannot be replayed.
    pub topic: Option<String>,
    /// None: the key decides.
    pub partition: Option<i32>,
    /// None: no key.
    pub key: Option<Vec<u8>>,
    /// None: a tombstone.
    pub payload: Option<Vec<u8>>,
    /// Of the record, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Of the record: milliseconds since 1970; 0: the time of sending.
    pub timestamp_ms: i64,
    pub class: ReasonClass,
    pub reason: String,
    /// How often it was sent in vain.
    pub attempts: i32,
    pub first_failed_at: SystemTime,
    pub last_failed_at: SystemTime,
    /// Later events of its aggregate were not held up for it: a replay comes after those that are delivered by then.
    pub later_delivered: bool,
    /// What it is parked by. None: it is dead alone, and holds nothing up.
    pub park_key: Option<ParkKey>,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: i64,
    /// The server whose log the position belongs to.
    pub system_identifier: String,
    pub slot: String,
    pub letter: DeadLetter,
    pub state: State,
    pub replay_requested_at: Option<SystemTime>,
    /// When it was replayed or discarded.
    pub settled_at: Option<SystemTime>,
}

impl Stored {
    pub fn replayed(&self) -> Replayed {
        Replayed { row: self.id, position: self.letter.position }
    }
}

/// A dead letter that was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Its row's id, which says nothing without the position: a restored table may have another row there.
    pub row: i64,
    pub position: Position,
}

/// By what events are parked, as a SHA-256 over the exact bytes, so that a set of them has a known size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkKey([u8; 32]);

impl ParkKey {
    /// For a record: what Kafka keeps in order.
    pub fn of_record(topic: &str, key: &[u8]) -> ParkKey {
        ParkKey::digest([Some(&b"record"[..]), Some(topic.as_bytes()), Some(key)])
    }

    /// For an event whose topic is not known. The table is written as SQL does; the rest is the columns' bytes.
    pub fn of_aggregate(source_table: &str, aggregate_type: Option<&[u8]>, aggregate_id: &[u8]) -> ParkKey {
        ParkKey::digest([Some(&b"aggregate"[..]), Some(source_table.as_bytes()), aggregate_type, Some(aggregate_id)])
    }

    /// Each part behind its length, so that no two lists of parts are one text.
    fn digest<const N: usize>(parts: [Option<&[u8]>; N]) -> ParkKey {
        let mut hash = Sha256::new();
        for part in parts {
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            hash.update(&length.to_be_bytes());
            hash.update(part.unwrap_or_default());
        }
        ParkKey(hash.finish())
    }
}

impl fmt::Debug for ParkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<'a> FromSql<'a> for ParkKey {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<ParkKey, Box<dyn std::error::Error + Sync + Send>> {
        Ok(ParkKey(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }
}

impl ToSql for ParkKey {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.0.as_slice().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A closed set of words that the table checks, as an enum.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$case_doc:meta])* $case:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$case_doc])* $case,)+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$case,)+];

            /// As the table has it.
            pub fn word(self) -> &'static str {
                match self { $($name::$case => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<$name, UnknownWord> {
                let found = $name::ALL.iter().copied().find(|one| one.word() == text);
                found.ok_or_else(|| UnknownWord { text: text.to_owned(), what: $what, known: &[$($word,)+] })
            }
        }

        impl<'a> FromSql<'a> for $name {
            fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<$name, Box<dyn std::error::Error + Sync + Send>> {
                Ok(<&str>::from_sql(ty, raw)?.parse()?)
            }

            fn accepts(ty: &Type) -> bool {
                *ty == Type::TEXT
            }
        }
    };
}

words! {
    /// What becomes of a letter.
    State, "state" {
        /// It waits for a person, alone.
        Dead = "dead",
        /// It waits for a person, and later events of its key wait behind it.
        Parked = "parked",
        /// Kafka has acknowledged it after all.
        Replayed = "replayed",
        /// A person decided that it is never sent.
        Discarded = "discarded",
    }
}

words! {
    /// Why an event was not delivered.
    ReasonClass, "reason" {
        /// Larger than client, topic or broker allow.
        TooLarge = "too_large",
        /// Kafka forbids the topic's name.
        InvalidTopic = "invalid_topic",
        /// The row makes no record.
        Unroutable = "unroutable",
        /// Kafka did not know the topic for `route.unknown_topic_timeout`.
        UnknownTopic = "unknown_topic",
        /// Kafka refused it for good.
        Rejected = "rejected",
        /// Nothing is wrong with it: it waits behind another of its key.
        Parked = "parked",
    }
}

/// A word outside its set.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no {what}; there are {}", known.join(", "))]
pub struct UnknownWord {
    text: String,
    what: &'static str,
    known: &'static [&'static str],
}

/// What this role may do with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read letters.
    pub select: bool,
    /// Insert and update them, as the streaming process must.
    pub write: bool,
    /// Mark them, as people do.
    pub mark: bool,
    /// There are letters, or there were.
    pub used: bool,
}

impl Access {
    /// What this role lacks to read letters, or to mark them too, and what gives it.
    pub fn lack(self, table: &str, to_mark: bool) -> Option<String> {
        if !self.select {
            return Some(format!(
                "this role may not read {table}; grant walpost_operate to it, or grant select on {table}"
            ));
        }
        (to_mark && !self.mark).then(|| {
            format!(
                "this role may not mark dead letters; grant walpost_operate to it, or grant update (state, \
                 replay_requested_at, settled_at) on {table}"
            )
        })
    }

    /// What a stream needs.
    pub fn streams(self) -> bool {
        self.select && self.write
    }

    /// None: there is no such table in the schema.
    pub async fn read(client: &Client, schema: &str) -> Result<Option<Access>, tokio_postgres::Error> {
        let row = client
            .query_opt(
                "select u.usage and has_table_privilege(c.oid, 'SELECT'),
                        u.usage and has_table_privilege(c.oid, 'INSERT') and has_table_privilege(c.oid, 'UPDATE'),
                        u.usage and (select bool_and(has_column_privilege(c.oid, a.attnum, 'UPDATE')) from pg_attribute a
                                     where a.attrelid = c.oid
                                     and a.attname in ('state', 'replay_requested_at', 'settled_at')),
                        pg_relation_size(c.oid) > 0
                 from pg_class c join pg_namespace n on n.oid = c.relnamespace,
                      lateral (select has_schema_privilege(n.oid, 'USAGE') as usage) u
                 where n.nspname = $1 and c.relname = $2",
                &[&schema, &TABLE],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Access {
            select: row.try_get(0)?,
            write: row.try_get(1)?,
            mark: row.try_get::<_, Option<bool>>(2)?.unwrap_or(false),
            used: row.try_get(3)?,
        }))
    }
}

/// The first ordinal behind all letters of a slot that stand at this commit. Names as the catalog holds them.
pub async fn next_ordinal(
    client: &Client,
    schema: &str,
    system_identifier: &str,
    slot: &str,
    commit_lsn: Lsn,
) -> Result<u32, super::Error> {
    let statement = format!(
        "select max(position) from {} where system_identifier = $1 and slot = $2 and position between $3 and $4",
        qualified(schema, TABLE)
    );
    let [first, last] = [0, u32::MAX].map(|ordinal| Position { commit_lsn, ordinal }.to_string());
    let row = client.query_one(&statement, &[&system_identifier, &slot, &first, &last]).await?;
    let last: Option<Position> = row.try_get::<_, Option<&str>>(0)?.and_then(|position| position.parse().ok());
    Ok(last.map_or(0, |last| last.ordinal.saturating_add(1)))
}

/// Columns of a whole row, for [`Stored::read`].
const COLUMNS: &str = "id, system_identifier, slot, position, event_id, xid, source_table, aggregate_type, aggregate_id, \
                       event_type, topic, partition, key, payload, header_names, header_values, record_timestamp, reason_class, \
                       reason, attempts, first_failed_at, last_failed_at, later_delivered, park_key, state, \
                       replay_requested_at, settled_at";

impl Stored {
    fn read(row: &Row) -> Result<Stored, tokio_postgres::Error> {
        let names: Vec<String> = row.try_get("header_names")?;
        let values: Vec<Option<Vec<u8>>> = row.try_get("header_values")?;
        let timestamp: SystemTime = row.try_get("record_timestamp")?;
        Ok(Stored {
            id: row.try_get("id")?,
            system_identifier: row.try_get("system_identifier")?,
            slot: row.try_get("slot")?,
            letter: DeadLetter {
                position: row.try_get("position")?,
                event_id: row.try_get("event_id")?,
                xid: row.try_get::<_, i64>("xid")? as u32,
                source_table: row.try_get("source_table")?,
                aggregate_type: row.try_get("aggregate_type")?,
                aggregate_id: row.try_get("aggregate_id")?,
                event_type: row.try_get("event_type")?,
                topic: row.try_get("topic")?,
                partition: row.try_get("partition")?,
                key: row.try_get("key")?,
                payload: row.try_get("payload")?,
                headers: std::iter::zip(names, values).collect(),
                timestamp_ms: unix_ms(timestamp),
                class: row.try_get("reason_class")?,
                reason: row.try_get("reason")?,
                attempts: row.try_get("attempts")?,
                first_failed_at: row.try_get("first_failed_at")?,
                last_failed_at: row.try_get("last_failed_at")?,
                later_delivered: row.try_get("later_delivered")?,
                park_key: row.try_get("park_key")?,
            },
            state: row.try_get("state")?,
            replay_requested_at: row.try_get("replay_requested_at")?,
            settled_at: row.try_get("settled_at")?,
        })
    }
}

/// From its text form, as the column has it.
impl<'a> FromSql<'a> for Position {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Position, Box<dyn std::error::Error + Sync + Send>> {
        Ok(<&str>::from_sql(ty, raw)?.parse()?)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }
}

fn unix_ms(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

fn from_unix_ms(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}
