//! Why nothing is pruned.

use crate::postgres;

/// Nothing is deleted. Each names what mends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(
        "table {table} does not exist, or its schema hides it from role {role}: correct `table`, or run walpost setup"
    )]
    NoTable { table: String, role: String },
    #[error(
        "{table} is a partition of {root}, or no table at all: name the table that events are inserted into as `table`"
    )]
    NotTheTable { table: String, root: String },
    #[error(
        "nothing tells which rows of {table} are published: it has no column {column} of type xid8. Add it (ALTER TABLE {table} ADD \
         COLUMN {column} xid8; ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT pg_current_xact_id(): two statements, so \
         that rows which are there already stay unproven), or set after_publish = \"mark\""
    )]
    NoTxid { table: String, column: String },
    #[error(
        "nothing tells how old the rows of {table} are: it has no column {column} that is a time. Name one as \
         columns.occurred_at, or say --retention 0s, which deletes whatever is published"
    )]
    NoTime { table: String, column: String },
    #[error(
        "nothing tells what is published: there is no table {table}. walpost setup makes it, and walpost run writes to it while it \
         streams"
    )]
    NoProgressTable { table: String },
    #[error(
        "{table} has no row of slot {slot}, so nothing is proven: walpost run makes it when it streams; is `slot` the right one?"
    )]
    NoProgress { table: String, slot: String },
    #[error(
        "the proof of slot {slot} is of the server with system identifier {theirs}, and this one has {ours}: it is a restored \
         dump or was upgraded, and nothing here is proven by it. Run walpost setup, then walpost run"
    )]
    OtherServer { slot: String, theirs: String, ours: String },
    #[error(
        "publication {publication} does not publish inserts of {table}, so its rows may never have been streamed: {remedy}"
    )]
    NotPublished { table: String, publication: String, remedy: String },
    #[error(
        "publication {publication} publishes deletes or truncates, and on_update = \"halt\" would stop the stream at what is \
         pruned: ALTER PUBLICATION {publication} SET (publish = 'insert')"
    )]
    Published { publication: String },
    #[error(
        "row security hides rows of {table} from role {role}: ALTER ROLE {role} BYPASSRLS, or prune as the table's owner"
    )]
    HidesRows { table: String, role: String },
    #[error("role {role} lacks a right to prune: {grants}")]
    Rights { role: String, grants: String },
    #[error("another prune of {table} is at work{}", .pid.map_or_else(String::new, |pid| format!(" (server process {pid})")))]
    Busy { table: String, pid: Option<i32> },
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Postgres(error.into())
    }
}
