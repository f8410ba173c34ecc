//! `walpost run --from-lsn`: the stream begins again at an earlier position, which a bookmark holds.
//!
//! A slot moves in one direction, so it is replaced by a copy of the bookmark that was moved up to the position: what lies
//! before it is passed over by the slot itself, and nothing has to be remembered for that. What is remembered, in
//! `walpost.progress`, is what is wanted:
//!
//! 1. The intent: the position, and the bookmark.
//! 2. A temporary copy of the bookmark, which belongs to this connection, is moved up to the position. Nothing is lost
//!    yet, and all that can fail for want of log or slots fails here.
//! 3. The slot is dropped, and the copy copied under its name.
//! 4. The intent is marked as done.
//!
//! All of it happens under the slot's lock. Whoever finds an intent that is not done, asked to or not, begins at 2 again:
//! the bookmark is still there. Where the slot stands at or below the position it is the new one, for nothing is streamed
//! from it before 4.
//!
//! What was done once is not done again for the same position, because service managers start a process with the same
//! command line. Exactly once, when it was done is the generation of the stored position: one of an earlier generation no
//! longer counts, and the first transaction of Kafka's stores one of this (see [`crate::sink::positions`]).

use super::{proof::Proof, slot::Found, taken::Taken};
use crate::{
    config::Config,
    pipeline::Lsn,
    postgres::{
        self, ErrorKind,
        bookmark::Bookmark,
        progress::{Rewind, TABLE},
        quote::{ident, literal, qualified},
        replication::Replication,
        slot::Slot,
        sql,
    },
    setup::names,
};

/// Most bytes of log that the copy is moved at once: each step is a sign of life to a standby.
const STEP_BYTES: u64 = 256 << 20;

/// Why the stream cannot begin again where it is asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "--from-lsn keeps what it does in table {table}, which does not exist or may not be read and written: walpost setup \
         makes it"
    )]
    NoTable { table: String },
    #[error("the stream has not come to {to} yet: slot {slot} is confirmed up to {confirmed}; leave --from-lsn out")]
    Ahead { to: Lsn, slot: String, confirmed: Lsn },
    #[error(
        "no bookmark holds the log from {to} on{}: what is still in the table can be sent again by walpost replay --since, \
         --seq, --aggregate or --id",
        .oldest.as_ref().map_or_else(
            || ", and there is none at all (walpost bookmark create, bookmarks.every)".to_owned(),
            |(slot, at)| format!("; the oldest position that is held is {at}, by {slot}")
        )
    )]
    Unheld { to: Lsn, oldest: Option<(String, Lsn)> },
    #[error(
        "the stream is to begin again at {to}, and bookmark {bookmark}, from which it was to, is gone or lost: name another \
         --from-lsn that a bookmark holds, or give it up: update {table} set rewind_done = true where slot = {}, after \
         which a slot that is missing counts as lost",
        literal(.slot)
    )]
    BookmarkGone { to: Lsn, bookmark: String, table: String, slot: String },
    #[error("the copy of bookmark {bookmark} came to {reached} and not to {to}")]
    Elsewhere { bookmark: String, reached: String, to: Lsn },
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Postgres(error.into())
    }
}

impl Error {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Error::Postgres(error) => error.kind(),
            Error::NoTable { .. }
            | Error::Ahead { .. }
            | Error::Unheld { .. }
            | Error::BookmarkGone { .. }
            | Error::Elsewhere { .. } => ErrorKind::Permanent,
        }
    }
}

/// What is to be done.
enum Wish {
    Begin(Lsn),
    /// It was begun earlier.
    Finish(Rewind),
}

/// Does what is asked for or was begun. Gives the generation of the stream: when it last began again, in microseconds since
/// 1970, or 0.
pub(super) async fn rewind(
    config: &Config,
    connection: &mut Replication,
    taken: &mut Taken,
) -> Result<i64, super::Error> {
    let table = || qualified(names::home(config), TABLE);
    let Some(hold) = taken.proof.as_ref().map(Proof::hold) else {
        return match config.rewind_to {
            Some(_) => Err(Error::NoTable { table: table() }.into()),
            None => Ok(0),
        };
    };
    let mut generation = taken.known.as_ref().map_or(0, |known| known.generation);
    let known = taken.known.as_ref().and_then(|known| known.rewind.clone());
    let asked = config.rewind_to.filter(|to| known.as_ref().is_none_or(|known| known.to != *to));
    let wish = match (known, asked) {
        (None, None) => return Ok(generation),
        (Some(known), None) if known.done => {
            if config.rewind_to.is_some() {
                tracing::info!(
                    "the stream began again at {} already, and goes on: to do so once more, update {} set rewind_to = null \
                     where slot = {}",
                    known.to,
                    table(),
                    literal(&config.slot)
                );
            }
            return Ok(generation);
        }
        (Some(known), None) => Wish::Finish(known),
        (_, Some(to)) => Wish::Begin(to),
    };
    let client = sql::connect(&taken.server).await?;
    let major = client.major();
    let live = async || Slot::read(&client, major, &config.slot).await.map_err(Error::from);
    let bookmarks = async || Bookmark::all(&client, major, &config.slot).await.map_err(Error::from);
    let rewind = match wish {
        Wish::Finish(rewind) => rewind,
        Wish::Begin(to) => {
            let confirmed = live().await?.and_then(|live| live.confirmed);
            if let Some(confirmed) = confirmed.filter(|confirmed| *confirmed <= to) {
                return Err(Error::Ahead { to, slot: config.slot.clone(), confirmed }.into());
            }
            let bookmarks = bookmarks().await?;
            let from = newest_below(&bookmarks, to)?.slot.name.clone();
            generation = hold.rewind(&client, to, &from).await?;
            Rewind { to, from, done: false }
        }
    };
    tracing::warn!(
        "the stream begins again at {}, from bookmark {}: what was published since is sent once more",
        rewind.to,
        rewind.from
    );
    let (live, bookmarks) = (live().await?, bookmarks().await?);
    let bookmark = bookmarks.iter().find(|bookmark| bookmark.slot.name == rewind.from);
    let is_new = live.as_ref().is_some_and(|live| live.confirmed.is_some_and(|at| at <= rewind.to) && !live.lost());
    if !is_new {
        let Some(bookmark) = bookmark.filter(|held| held.position().is_some_and(|at| at <= rewind.to)) else {
            let gone =
                Error::BookmarkGone { to: rewind.to, bookmark: rewind.from, table: table(), slot: config.slot.clone() };
            return Err(gone.into());
        };
        replace(config, connection, bookmark, rewind.to, live.is_some()).await?;
    }
    // A copy begins without it.
    if live.as_ref().is_some_and(|live| live.failover) || bookmark.is_some_and(|bookmark| bookmark.slot.failover) {
        connection.query(&format!("ALTER_REPLICATION_SLOT {} ( FAILOVER true )", ident(&config.slot))).await?;
    }
    hold.rewound(&client, rewind.to).await?;
    if let Found::Slot(slot) = Found::take(connection, &config.slot, &taken.identity.database).await? {
        taken.slot = Some(slot);
    }
    Ok(generation)
}

fn newest_below(bookmarks: &[Bookmark], to: Lsn) -> Result<&Bookmark, Error> {
    let held = || bookmarks.iter().filter_map(|bookmark| Some((bookmark, bookmark.position()?)));
    let newest = held().filter(|(_, at)| *at <= to).max_by_key(|(_, at)| *at);
    newest.map(|(bookmark, _)| bookmark).ok_or_else(|| {
        let oldest = held().min_by_key(|(_, at)| *at);
        Error::Unheld { to, oldest: oldest.map(|(bookmark, at)| (bookmark.slot.name.clone(), at)) }
    })
}

/// Puts a copy of the bookmark that stands at `to` in the place of the slot.
async fn replace(
    config: &Config,
    connection: &mut Replication,
    bookmark: &Bookmark,
    to: Lsn,
    slot_exists: bool,
) -> Result<(), Error> {
    let (from, slot) = (literal(&bookmark.slot.name), literal(&config.slot));
    let copy = format!("walpost_rewind_{}", connection.backend_pid());
    let copied = "SELECT lsn FROM pg_catalog.pg_copy_logical_replication_slot";
    connection.query(&format!("{copied}({from}, '{copy}', true)")).await?;
    let step = format!(
        "SELECT end_lsn FROM pg_catalog.pg_replication_slot_advance('{copy}', least('{to}'::pg_lsn, \
         (SELECT confirmed_flush_lsn FROM pg_catalog.pg_replication_slots WHERE slot_name = '{copy}') + {STEP_BYTES}))"
    );
    let mut reached = bookmark.position().unwrap_or_default();
    while reached < to {
        let rows = connection.query(&step).await?;
        let end = rows.into_iter().flatten().next().flatten().unwrap_or_default();
        match end.parse() {
            Ok(at) if at > reached => reached = at,
            _ => return Err(Error::Elsewhere { bookmark: bookmark.slot.name.clone(), reached: end, to }),
        }
        tracing::info!("passing over the log up to {to}: {reached}");
    }
    if slot_exists {
        connection.query(&format!("DROP_REPLICATION_SLOT {}", ident(&config.slot))).await?;
    }
    connection.query(&format!("{copied}('{copy}', {slot}, false)")).await?;
    connection.query(&format!("DROP_REPLICATION_SLOT {}", ident(&copy))).await?;
    Ok(())
}
