//! Bookmarks: copies of a slot that keep its log from where it stood, so that it can be streamed again from there.
//!
//! A bookmark is a slot like any other, `<slot>_bm_<name>`: psql shows it, and it can be dropped there. Nobody streams from
//! it, so it never moves; whoever replays copies it. What it costs is the server's: log and old catalog rows from its
//! position on, and one of `max_replication_slots`.
//!
//! The copy stands where the slot is confirmed at that moment, though the slot be in use: all that ends at or below is
//! published, all that commits there or later is in the bookmark.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil, tz::TimeZone};
use tokio_postgres::{Client, Error};

use super::{
    conninfo::ConnInfo,
    quote,
    replication::Replication,
    slot::{self, Slot, SlotError},
};
use crate::{chain::Chain, pipeline::Lsn};

/// Between the slot's name and the bookmark's. It stands in no bookmark's own name, so the last one in a slot's name is it.
const BETWEEN: &str = "_bm_";
/// Names of the rota's begin so, and go on with the time: `auto_20260131_081500`.
const ROTA: &str = "auto_";
const ROTA_FORM: &str = "auto_%Y%m%d_%H%M%S";
const ROTA_NAME_BYTES: usize = ROTA.len() + "20260131_081500".len();
/// Longest name of a slot.
pub const SLOT_BYTES_MAX: usize = 63;
/// Longest name of a slot that has bookmarks on a rota.
pub const ROTA_SLOT_BYTES_MAX: usize = SLOT_BYTES_MAX - BETWEEN.len() - ROTA_NAME_BYTES;

/// A bookmark's own name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// Why a text is not the name of a bookmark.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "{0:?} is no name of a bookmark, which is part of a slot's: PostgreSQL takes a-z, 0-9 and _, and it may not be empty"
    )]
    Characters(String),
    #[error(
        "{0:?} is no name of a bookmark: it may not begin with bm_ nor hold _bm_, which divides it from the slot's name"
    )]
    Divided(String),
    #[error("{name:?} leaves no room: bookmark {slot}{BETWEEN}{name} would be longer than the 63 bytes of a slot's name; take {} at most", room(.slot))]
    TooLong { slot: String, name: String },
    #[error("{0:?} is no name to choose: those that begin with auto_ are of the rota (bookmarks.every)")]
    Rota(String),
}

fn room(slot: &str) -> usize {
    SLOT_BYTES_MAX.saturating_sub(slot.len() + BETWEEN.len())
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Name, NameError> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if name.is_empty() || !name.bytes().all(legal) {
            Err(NameError::Characters(name.to_owned()))
        } else if name.starts_with(&BETWEEN[1..]) || name.contains(BETWEEN) {
            Err(NameError::Divided(name.to_owned()))
        } else {
            Ok(Name(name.to_owned()))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// The name of the copy of `slot`.
    pub fn of(&self, slot: &str) -> Result<String, NameError> {
        match self.0.len() <= room(slot) {
            true => Ok(format!("{slot}{BETWEEN}{}", self.0)),
            false => Err(NameError::TooLong { slot: slot.to_owned(), name: self.0.clone() }),
        }
    }

    /// A name that a person may choose.
    pub fn chosen(self) -> Result<Name, NameError> {
        if self.0.starts_with(ROTA) { Err(NameError::Rota(self.0)) } else { Ok(self) }
    }

    /// The name that the rota gives at this time.
    pub fn of_rota(at: Timestamp) -> Name {
        Name(at.strftime(ROTA_FORM).to_string())
    }

    /// When the rota made it, to the second; none where a person did.
    pub fn made(&self) -> Option<Timestamp> {
        let at = civil::DateTime::strptime(ROTA_FORM, &self.0).ok()?;
        TimeZone::UTC.to_timestamp(at).ok().filter(|at| Name::of_rota(*at) == *self)
    }
}

/// The slot and the name of which a slot's name is made; none where it is no bookmark's.
pub fn divide(slot: &str) -> Option<(&str, Name)> {
    let (of, name) = slot.rsplit_once(BETWEEN)?;
    Some((of, name.parse().ok()?)).filter(|(of, _)| !of.is_empty())
}

/// A bookmark of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    pub name: Name,
    pub slot: Slot,
}

impl Bookmark {
    /// All bookmarks of a slot, the oldest position first.
    pub async fn all(client: &Client, major: i32, slot: &str) -> Result<Vec<Bookmark>, Error> {
        let copies = Slot::beginning(client, major, &format!("{slot}{BETWEEN}")).await?;
        let ours = copies.into_iter().filter_map(|copy| match divide(&copy.name) {
            Some((of, name)) if of == slot => Some(Bookmark { name, slot: copy }),
            Some(_) | None => None,
        });
        Ok(ours.collect())
    }

    /// Where it stands; none where it can no longer be streamed from.
    pub fn position(&self) -> Option<Lsn> {
        self.slot.confirmed.filter(|_| !self.slot.lost())
    }
}

/// Copies a slot under this name, and gives the bookmark's position. Where standbys keep the slot they keep the bookmark
/// too; that this cannot be had is only a warning.
pub async fn create(
    client: &Client,
    server: &ConnInfo,
    slot: &Slot,
    bookmark: &str,
    role: &str,
) -> Result<Lsn, SlotError> {
    let position = slot::copy(client, &slot.name, bookmark, role).await?;
    if slot.failover {
        if let Err(error) = set_failover(server, bookmark).await {
            tracing::warn!(
                "standbys do not keep bookmark {bookmark}, though they keep slot {}: {}",
                slot.name,
                Chain(&error)
            );
        }
    }
    Ok(position)
}

/// A copy begins without failover, which only a walsender gives it (17+).
async fn set_failover(server: &ConnInfo, slot: &str) -> Result<(), super::Error> {
    let mut connection = Replication::connect(server).await?;
    let altered = connection.query(&format!("ALTER_REPLICATION_SLOT {} ( FAILOVER true )", quote::ident(slot))).await;
    connection.close().await;
    altered.map(|_| ())
}

/// The server's clock.
pub async fn now(client: &Client) -> Result<Timestamp, Error> {
    let now = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";
    let milliseconds = client.query_one(now, &[]).await?.try_get(0)?;
    Ok(Timestamp::from_millisecond(milliseconds).expect("PostgreSQL runs in our times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bookmark_is_told_from_other_slots_by_its_name() {
        for (slot, divided) in [
            ("walpost_bm_before_deploy", Some(("walpost", "before_deploy"))),
            ("walpost_bm_auto_20260131_081500", Some(("walpost", "auto_20260131_081500"))),
            ("a_bm_bm_x", Some(("a_bm", "x"))),
            ("a_bm_bm", Some(("a", "bm"))),
            ("a_bm_b_bm_x", Some(("a_bm_b", "x"))),
            ("walpost", None),
            ("walpost_bm", None),
            ("walpost_bm_", None),
            ("_bm_x", None),
        ] {
            let expected = divided.map(|(of, name)| (of, Name(name.to_owned())));
            assert_eq!(divide(slot), expected, "{slot}");
        }
    }

    #[test]
    fn names_say_what_is_wrong_with_them() {
        let name = |text: &str| text.parse::<Name>();
        for text in ["", "Upper", "two words", "a-b", "é", "x'; drop table o; --", "a\0b"] {
            assert!(matches!(name(text), Err(NameError::Characters(_))), "{text:?}");
        }
        for text in ["bm_x", "a_bm_b"] {
            assert!(matches!(name(text), Err(NameError::Divided(_))), "{text:?}");
        }
        assert_eq!(name("x").unwrap().of("walpost").unwrap(), "walpost_bm_x");
        let longest = "n".repeat(52);
        assert_eq!(name(&longest).unwrap().of("walpost").unwrap().len(), SLOT_BYTES_MAX);
        let error = name(&format!("{longest}n")).unwrap().of("walpost").unwrap_err().to_string();
        assert!(error.contains("63 bytes") && error.ends_with("take 52 at most"), "{error}");
        assert!(matches!(name("auto_x").unwrap().chosen(), Err(NameError::Rota(_))));
        assert!(name("auto").unwrap().chosen().is_ok());
    }

    #[test]
    fn only_names_with_a_time_are_of_the_rota() {
        let made = |name: &str| name.parse::<Name>().unwrap().made();
        let at: Timestamp = "2026-01-31T08:15:00Z".parse().unwrap();
        assert_eq!(made("auto_20260131_081500"), Some(at));
        for name in ["auto_x", "auto_20261331_081500", "auto_20260131_0815", "auto_20260131_0815000", "before_deploy"] {
            assert_eq!(made(name), None, "{name}");
        }
        let slot = "s".repeat(ROTA_SLOT_BYTES_MAX);
        assert_eq!(Name::of_rota(at).of(&slot).unwrap().len(), SLOT_BYTES_MAX);
    }
}
