//! What is wrong, all at once, each with what mends it.
//!
//! Judging is apart from asking: the functions here take facts of the catalog and of Kafka and return findings; they do
//! no IO, so that each finding has a unit test. `walpost check` prints them, and `setup` refuses to build on those that it
//! does not mend.

mod between;
mod bookmark;
mod connector;
mod dead_letter;
mod deep;
mod kafka;
mod needs;
mod outbox;
mod progress;
mod publication;
mod server;
mod sink;
mod slot;
mod transport;

use std::fmt;

pub use between::{Clock, clock, pooler};
pub use bookmark::{bookmarks, rewind};
pub use connector::{connector_publication, connector_slot, connector_topics};
pub use dead_letter::dead_letter;
pub use deep::{Absent, deep, not_comparable};
pub use kafka::{kafka, unreachable};
pub use needs::{Need, needs};
pub use outbox::outbox;
pub use progress::progress;
pub use publication::{emit, publication};
pub use server::{server, synchronous, synchronous_names};
pub use sink::{sink, unreachable_broker};
pub use slot::{failover, loss, lost_in, slot, slot_to_be_made};
pub use transport::transport;

/// Something that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The thing, as SQL or the configuration names it: `publication walpost`.
    pub about: String,
    /// What is the matter with it.
    pub what: String,
    /// The statement or setting that mends it.
    pub remedy: String,
}

/// Worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// walpost cannot work, or would lose events, or harms the application.
    Error,
    /// It works, and someone should look.
    Warning,
    /// Worth knowing.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        })
    }
}

impl Finding {
    fn new(
        severity: Severity,
        about: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { severity, about: about.into(), what: what.into(), remedy: remedy.into() }
    }

    pub fn error(about: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, about, what, remedy)
    }

    pub fn warning(about: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, about, what, remedy)
    }

    pub fn note(about: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding::new(Severity::Note, about, what, remedy)
    }
}

/// A size for people: `1.5 GiB`.
pub fn size(bytes: i64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") }
}
