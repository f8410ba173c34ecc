//! Everything that can go wrong between walpost and PostgreSQL, and whether trying again can help.

use std::{io, time::Duration};

use super::{
    conninfo::TargetSession,
    refusal::{Doing, Refusal},
    server_error::ServerError,
    socket::Address,
    tls::TlsError,
};
use crate::chain::Chain;

/// An error of either connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name service does not know the host.
    #[error("host {host} does not resolve")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody listens, or the way is barred.
    #[error("no connection to PostgreSQL at {at}")]
    Connect {
        /// Where.
        at: Address,
        /// Why.
        source: io::Error,
    },
    /// Connecting and logging in took too long.
    #[error("PostgreSQL at {at} did not let walpost in within {} s (connect_timeout)", .limit.as_secs())]
    ConnectTimeout {
        /// Where.
        at: Address,
        /// The bound.
        limit: Duration,
    },
    /// Each host of the list failed.
    #[error("no host of the connection string can be used: {}", listed(.0))]
    Hosts(Vec<Error>),
    /// The server is not of the kind that was asked for.
    #[error("PostgreSQL at {at} is {found}, and target_session_attrs={wanted} asks for another")]
    WrongSession {
        /// Where.
        at: Address,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: TargetSession,
    },
    /// TLS could not be had or trusted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server wants a password and there is none.
    #[error(
        "PostgreSQL asks for the password of role {user} and none is given: set it in the connection string, PGPASSWORD or the password file"
    )]
    NoPassword {
        /// The role.
        user: String,
    },
    /// GSSAPI, SSPI and the like.
    #[error(
        "PostgreSQL asks for {method} authentication, which walpost does not speak: let pg_hba.conf ask for scram-sha-256"
    )]
    AuthenticationMethod {
        /// What it asks for.
        method: &'static str,
    },
    /// `channel_binding=require` was not met.
    #[error(
        "channel_binding=require, but the login is without it: it needs TLS, and scram-sha-256 both in pg_hba.conf and in the stored password"
    )]
    ChannelBinding,
    /// The server could not prove that it knows the password, or broke the exchange.
    #[error("the SCRAM exchange failed, the server may be an impostor")]
    Scram {
        /// Why.
        source: io::Error,
    },
    /// Older than 14.
    #[error("PostgreSQL {version} is not supported: walpost needs 14 or later")]
    Version {
        /// As the server calls itself.
        version: String,
    },
    /// The server said no.
    #[error("{refusal}")]
    Refused {
        /// What it means and what mends it.
        refusal: Refusal,
        /// What it said.
        #[source]
        server: Box<ServerError>,
    },
    /// The server ended the copy, as it does when it shuts down.
    #[error("PostgreSQL ended the replication stream, as it does when it shuts down")]
    CopyEnded,
    /// The server closed the connection without a word.
    #[error("PostgreSQL closed the connection")]
    Closed,
    /// The connection broke.
    #[error("the connection to PostgreSQL broke")]
    Io(#[source] io::Error),
    /// What was received is not PostgreSQL's protocol.
    #[error("PostgreSQL, or what answers in its place, broke the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// Another process has the slot by now, and its word counts.
    #[error("another process has gained replication slot {slot} meanwhile: this one writes nothing about it any more")]
    Superseded {
        /// The slot.
        slot: String,
    },
    /// The SQL client failed without an error of the server.
    #[error("the SQL connection to PostgreSQL failed")]
    Sql(#[source] tokio_postgres::Error),
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A human must change something.
    Permanent,
    /// Time may mend it.
    Transient,
    /// Another process streams from the slot.
    SlotInUse {
        /// The walsender's, where it is known.
        pid: Option<i32>,
    },
    /// The server goes down in an orderly way, or an administrator ended the session.
    ServerStopping,
}

impl Error {
    /// Whether trying again can help.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Refused { refusal, server } => refusal.kind(server),
            Error::CopyEnded => ErrorKind::ServerStopping,
            Error::Superseded { .. } => ErrorKind::SlotInUse { pid: None },
            Error::Tls(error) => error.kind(),
            // One host that may come back is reason enough to try again.
            Error::Hosts(errors) => errors
                .iter()
                .map(Error::kind)
                .find(|kind| *kind != ErrorKind::Permanent)
                .unwrap_or(ErrorKind::Permanent),
            Error::Resolve { .. }
            | Error::Connect { .. }
            | Error::ConnectTimeout { .. }
            | Error::WrongSession { .. }
            | Error::Closed
            | Error::Io(_)
            | Error::Sql(_) => ErrorKind::Transient,
            Error::NoPassword { .. }
            | Error::AuthenticationMethod { .. }
            | Error::ChannelBinding
            | Error::Scram { .. }
            | Error::Version { .. }
            | Error::Protocol { .. } => ErrorKind::Permanent,
        }
    }

    /// The SQLSTATE, when the server said no.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Error::Refused { server, .. } => Some(&server.sqlstate),
            _ => None,
        }
    }

    /// What the refusal means, when the server said no.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }

    pub(crate) fn refused(server: ServerError, doing: Doing<'_>) -> Error {
        Error::Refused { refusal: Refusal::recognise(&server, doing), server: Box::new(server) }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Error {
        Error::Protocol { what: what.into() }
    }

    /// An error of the SQL client while `doing`.
    pub(crate) fn from_sql(error: tokio_postgres::Error, doing: Doing<'_>) -> Error {
        match error.as_db_error() {
            Some(server) => Error::refused(ServerError::from(server), doing),
            None if error.is_closed() => Error::Closed,
            None => Error::Sql(error),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::from_sql(error, Doing::Command)
    }
}

fn listed(errors: &[Error]) -> String {
    errors.iter().map(|error| Chain(error).to_string()).collect::<Vec<_>>().join("; ")
}
