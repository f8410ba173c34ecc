//! Why a sink does not take a record, or ends the session.

use std::io;

use super::{kafka, owned::OwnedRecord, rabbitmq};
use crate::{pipeline::Position, postgres::dead_letter::ReasonClass, printable::origin};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kafka(#[from] kafka::Error),
    #[error(transparent)]
    GivenUp(#[from] Box<GivenUp>),
    #[error("OpenSSL cannot be set up for webhooks")]
    Webhook(#[source] openssl::error::ErrorStack),
    #[error(transparent)]
    RabbitMq(#[from] rabbitmq::broker::OpenError),
    #[error("standard output cannot be written")]
    Stdout(#[source] io::Error),
    #[error("standard output is closed, or the null device: every event would be lost; give it a reader")]
    NoReader,
    /// Whoever read it has seen enough.
    #[error("standard output was closed by its reader")]
    Closed,
}

/// A record that is not tried again: it is set aside, or ends the session.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "event {event_id} at position {position} is not taken by {}: {reason}; nothing from that event on is confirmed: mend \
     what refuses it and start walpost again",
    origin(destination)
)]
pub struct GivenUp {
    pub position: Position,
    pub event_id: String,
    /// Where it was to go.
    pub destination: String,
    pub class: ReasonClass,
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
}

impl GivenUp {
    pub(super) fn new(record: &OwnedRecord, class: ReasonClass, reason: String, attempts: u32) -> GivenUp {
        GivenUp {
            position: record.position(),
            event_id: record.event_id().into_owned(),
            destination: record.topic.clone(),
            class,
            reason,
            attempts,
        }
    }
}

impl Error {
    /// The record never got as far as to break anything, and nothing else is lost with it.
    pub fn is_local(&self) -> bool {
        match self {
            Error::Kafka(error) => error.is_local(),
            Error::GivenUp(_) => true,
            Error::Webhook(_) | Error::RabbitMq(_) | Error::Stdout(_) | Error::NoReader | Error::Closed => false,
        }
    }

    /// Whether a new session would meet the same end.
    pub fn is_permanent(&self) -> bool {
        match self {
            Error::Kafka(error) => error.is_permanent(),
            Error::GivenUp(_)
            | Error::Webhook(_)
            | Error::RabbitMq(_)
            | Error::Stdout(_)
            | Error::NoReader
            | Error::Closed => true,
        }
    }
}
