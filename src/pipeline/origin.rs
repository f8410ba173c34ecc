//! Where a record's row was read, and what the record tells of that.

use serde::{Deserialize, Serialize};

use super::{frame::PgTime, lsn::Lsn};

/// The name of the mark of a record that was asked for again.
const REPLAY: &str = "replay";

/// Where a row was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// In the log, as it was committed.
    #[default]
    Stream,
    /// In the table: it is older than the slot. Only its position tells, which is no commit's.
    Snapshot,
    /// In the table: a slot was lost before it was known to be sent.
    Recovered,
    /// In the table: somebody asks for it again.
    ReplayedRow,
    /// In the log: somebody asks for it again.
    ReplayedLog,
}

impl Origin {
    /// Read from the table: in another order than that of commits, and without a time of its commit.
    pub fn is_table(self) -> bool {
        match self {
            Origin::Snapshot | Origin::Recovered | Origin::ReplayedRow => true,
            Origin::Stream | Origin::ReplayedLog => false,
        }
    }

    /// The record has its position, which then says what is newer.
    pub(super) fn has_position(self) -> bool {
        match self {
            Origin::Stream | Origin::Snapshot | Origin::ReplayedLog => true,
            Origin::Recovered | Origin::ReplayedRow => false,
        }
    }

    /// The last header of the record, with the value `true`.
    pub(super) fn mark(self) -> Option<&'static str> {
        match self {
            Origin::Stream | Origin::Snapshot => None,
            Origin::Recovered => Some("recovered"),
            Origin::ReplayedRow | Origin::ReplayedLog => Some(REPLAY),
        }
    }
}

/// Rows of the tables, as one transaction in front of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub origin: Origin,
    /// Stands in its rows' positions where the stream has the start of a commit record: see [`Lsn::of_older_rows`].
    pub commit_lsn: Lsn,
    /// Ordinal of the first row.
    pub first: u32,
    /// When it is read: the time of rows that do not tell when they happened.
    pub at: PgTime,
}

/// A row, by its place in the order in which tables are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The outbox, as SQL writes its name.
    pub table: String,
    /// Values of the columns that order its rows.
    pub row: Vec<Option<String>>,
    /// Of the row's position.
    pub ordinal: u32,
}

impl Place {
    /// From its JSON form.
    pub fn parse(json: &str) -> Option<Place> {
        serde_json::from_str(json).ok()
    }

    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }
}
