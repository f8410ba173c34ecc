//! What is wrong with TLS: its files, its handshake, the server's certificate.

use std::{io, path::PathBuf};

use openssl::{error::ErrorStack, ssl};

use super::verify::CertificateProblem;
use crate::postgres::{conninfo::TlsMode, error::ErrorKind, socket::Address};

/// TLS that could not be had or trusted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The server has none.
    #[error(
        "PostgreSQL at {at} offers no TLS and sslmode={mode} demands it: ALTER SYSTEM SET ssl = on with a certificate in place, then SELECT pg_reload_conf(); or, where nobody else is on the way, sslmode=disable in the connection string (without sslmode TLS is needed to all but this machine)"
    )]
    Unoffered {
        /// Where.
        at: Address,
        /// The mode that demands it.
        mode: TlsMode,
    },
    /// An error in place of the answer; its text is not to be trusted.
    #[error("PostgreSQL at {at} answers the request for TLS with an error")]
    Answer {
        /// Where.
        at: Address,
    },
    /// The server's certificate proves nothing.
    #[error("the certificate of PostgreSQL at {at} {problem}")]
    Certificate {
        /// Where.
        at: Address,
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// The handshake failed otherwise.
    #[error("TLS with PostgreSQL at {at} failed: {}", reasons_of(.cause))]
    Handshake {
        /// Where.
        at: Address,
        /// Why.
        cause: ssl::Error,
    },
    /// The server did not confirm PostgreSQL's protocol after a direct handshake.
    #[error("what answers at {at} does not speak PostgreSQL's protocol over TLS: use sslnegotiation=postgres")]
    Protocol {
        /// Where.
        at: Address,
    },
    /// There is nothing to verify against.
    #[error(
        "sslmode={mode} needs a root certificate, and {} does not exist: name the authority's certificate in sslrootcert, or use sslrootcert=system",
        path_or_default(.path)
    )]
    NoRoot {
        /// The mode.
        mode: TlsMode,
        /// The default file.
        path: Option<PathBuf>,
    },
    /// A file that cannot be read.
    #[error("{keyword} {} cannot be read", .path.display())]
    File {
        /// The setting.
        keyword: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file whose content is not what it should be.
    #[error("{keyword} {} cannot be used{}: {}", .path.display(), if *.keyword == "sslkey" { " (is sslpassword right?)" } else { "" }, reasons(.cause))]
    Content {
        /// The setting.
        keyword: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        cause: ErrorStack,
    },
    /// A file in which OpenSSL finds nothing.
    #[error("sslrootcert {} holds no certificate in PEM form", .path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The key is open to others.
    #[error(
        "sslkey {} can be read by others: chmod 0600 (or 0640 when it belongs to root)", .path.display()
    )]
    KeyPermissions {
        /// The file.
        path: PathBuf,
    },
    /// OpenSSL refuses to be set up.
    #[error("TLS cannot be set up")]
    Setup(#[from] ErrorStack),
}

impl TlsError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            TlsError::Answer { .. } | TlsError::Handshake { .. } => ErrorKind::Transient,
            TlsError::Unoffered { .. }
            | TlsError::Certificate { .. }
            | TlsError::Protocol { .. }
            | TlsError::NoRoot { .. }
            | TlsError::File { .. }
            | TlsError::Content { .. }
            | TlsError::NoCertificate { .. }
            | TlsError::KeyPermissions { .. }
            | TlsError::Setup(_) => ErrorKind::Permanent,
        }
    }

    /// Whether it is the server or the way to it that failed, so that a plain connection may still work.
    pub(crate) fn is_of_the_handshake(&self) -> bool {
        matches!(self, TlsError::Handshake { .. } | TlsError::Certificate { .. } | TlsError::Answer { .. })
    }
}

fn path_or_default(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "~/.postgresql/root.crt".to_owned(), |path| path.display().to_string())
}

/// OpenSSL's reasons without its source lines, each once.
fn reasons(errors: &ErrorStack) -> String {
    let mut reasons: Vec<&str> = errors.errors().iter().filter_map(|error| error.reason()).collect();
    reasons.dedup();
    if reasons.is_empty() { errors.to_string() } else { reasons.join(", ") }
}

fn reasons_of(error: &ssl::Error) -> String {
    match (error.ssl_error(), error.io_error()) {
        (Some(errors), _) => reasons(errors),
        (None, Some(error)) => error.to_string(),
        (None, None) => "the peer closed the connection".to_owned(),
    }
}
