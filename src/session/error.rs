//! Why a session ends in trouble.

use std::time::Duration;

use super::{
    letters::{self, Culprit},
    loss::Loss,
    rewind, slot,
};
use crate::{
    pipeline::{self, Lsn, outbox::Poison},
    postgres::{self, mark::Unmarkable, rows::Unreadable},
    sink::{self, kafka},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    Pipeline(#[from] pipeline::Error),
    #[error(transparent)]
    Sink(#[from] sink::Error),
    #[error(
        "{poison}; it halts the stream, as on_poison = \"halt\" asks, or because there is no table of dead letters (walpost \
         setup makes it): nothing from that event on is confirmed. The log keeps the row as it was inserted: change what \
         routes it, or skip its transaction with SELECT pg_replication_slot_advance('{slot}', \
         '{}'::pg_lsn + 1), insert anew what it holds from that event on, and walpost run --accept-gap once",
        .poison.position.commit_lsn
    )]
    Poison { poison: Box<Poison>, slot: String },
    #[error(
        "{poison}; it was read from the table and halts the stream that is to follow, as on_poison = \"halt\" asks, or because \
         there is no table of dead letters (walpost setup makes it): change or delete the row, then start walpost again"
    )]
    PoisonRow { poison: Box<Poison> },
    #[error(
        "{source}; unauthorized_timeout ({timeout:?}) is over, and nothing of what waits for the right is confirmed: give it and \
         start walpost again, which goes on where it stopped"
    )]
    Unauthorized { source: kafka::Error, timeout: Duration },
    /// What precedes it is delivered and confirmed.
    #[error("the event that Kafka rejected is reached again")]
    Culprit,
    /// The next session puts it back.
    #[error("the event at position {} was sent again and is refused again: {}", culprit.position, culprit.reason)]
    Replay { culprit: Culprit },
    #[error(transparent)]
    Letters(#[from] letters::Error),
    #[error(transparent)]
    Unmarkable(#[from] Unmarkable),
    #[error(transparent)]
    Slot(#[from] slot::Unusable),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(
        "Kafka has events that the slot has still to come to, and rows that are older than the slot cannot be sent before that: \
         let walpost run until it is idle, stop it, then walpost snapshot"
    )]
    Unsettled,
    #[error(
        "snapshot = \"initial\" needs table {table}, which does not exist or may not be read and written: walpost setup makes it, \
         with the rights of the streaming role; without it a snapshot that is interrupted would never be ended"
    )]
    NoProgress { table: String },
    #[error(transparent)]
    Rewind(#[from] rewind::Error),
    #[error("{loss}. {why}")]
    Lost { loss: Box<Loss>, why: String },
    /// What is lost with it the next session finds out.
    #[error("replication slot {slot:?} is gone while it is streamed from: {why}")]
    SlotGone { slot: String, why: String },
    #[error(
        "replication slot {slot:?} was asked for position {asked} and begins at {begins}: someone moved it meanwhile"
    )]
    Forwarded { slot: String, asked: Lsn, begins: Lsn },
    #[error(
        "PostgreSQL has sent nothing for {silent:?}, though asked to: the link to it is broken without a word, or it hangs"
    )]
    Silence { silent: Duration },
    #[error(
        "the server counts walpost as a synchronous standby ({state}): commits of the application would wait for Kafka; \
         take the application_name of walpost (or *) out of synchronous_standby_names, or give walpost another"
    )]
    SynchronousStandby { state: String },
}
