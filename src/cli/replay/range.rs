//! Which part of the log is meant, and which slot still holds it.

use std::str::FromStr;

use anyhow::{anyhow, bail};

use crate::{
    pipeline::{Lsn, Position},
    postgres::{
        bookmark::{Bookmark, Name},
        slot::Slot,
    },
};

/// A place in the log, as PostgreSQL prints it (`16/B374D848`) or as records carry it (`00000016B374D848-0000001A`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Place {
    Lsn(Lsn),
    Event(Position),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let lsn = text.parse().map(Place::Lsn).ok();
        lsn.or_else(|| text.parse().map(Place::Event).ok()).ok_or_else(|| {
            format!(
                "{text:?} is neither a log position, as 16/B374D848 is, nor the position of a record, as \
                 00000016B374D848-0000001A is"
            )
        })
    }
}

impl Place {
    /// The first event that is at or behind it.
    pub(in crate::cli) fn from(self) -> Position {
        match self {
            Place::Lsn(lsn) => Position::first_of(lsn),
            Place::Event(position) => position,
        }
    }

    /// The first place behind what is still meant: the transaction, or the event, that is named.
    fn until(self) -> Position {
        match self {
            Place::Lsn(commit_lsn) => Position { commit_lsn, ordinal: u32::MAX },
            Place::Event(position) => after(position),
        }
    }
}

/// The place behind an event.
pub(super) fn after(position: Position) -> Position {
    Position { ordinal: position.ordinal.saturating_add(1), ..position }
}

/// A part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The first event's place, or before it.
    pub(super) from: Position,
    /// The first place that no longer belongs to it.
    pub(super) until: Position,
}

impl Range {
    /// All of it lies before what the server has sent.
    pub(super) fn is_passed_by(&self, reached: Lsn) -> bool {
        reached > self.until.commit_lsn || reached == self.until.commit_lsn && self.until.ordinal == 0
    }
}

/// The slot to copy and the part of the log to stream from the copy. `live` is the slot that the stream itself has: what it
/// has not confirmed is not published, and is not replayed.
pub(super) fn choose<'s>(
    bookmarks: &'s [Bookmark],
    live: &'s Slot,
    named: Option<&Name>,
    from: Option<Place>,
    to: Option<Place>,
) -> anyhow::Result<(&'s str, Range)> {
    let published = live.confirmed.ok_or_else(|| anyhow!("slot {} has no position yet", live.name))?;
    let bookmark = match named {
        Some(name) => {
            let found = bookmarks.iter().find(|bookmark| bookmark.name == *name);
            let found = found.ok_or_else(|| {
                anyhow!("there is no bookmark {name} of slot {}; walpost bookmark list shows them", live.name)
            })?;
            let position = found.position();
            let lost = || anyhow!("bookmark {name} is lost: the server has removed its log; {IN_THE_TABLE}");
            Some((found.slot.name.as_str(), position.ok_or_else(lost)?))
        }
        None => None,
    };
    let from = match (from, bookmark) {
        (Some(from), _) => from.from(),
        (None, Some((_, position))) => Position::first_of(position),
        (None, None) => bail!("nothing says where to begin"),
    };
    let end = Position::first_of(published);
    if from >= end {
        bail!("nothing is published from {} on: slot {} is confirmed up to {published}", shown(from), live.name);
    }
    let until = to.map_or(end, Place::until);
    if to.is_some_and(|to| to.from() >= end) {
        bail!(
            "the stream has not come to {} yet: slot {} is confirmed up to {published}, and a replay goes no further",
            shown(to.map_or(end, Place::from)),
            live.name
        );
    }
    if until <= from {
        bail!("the range is empty: --to-lsn lies before --from-lsn");
    }
    let held = bookmarks.iter().filter_map(|bookmark| Some((bookmark.slot.name.as_str(), bookmark.position()?)));
    let slot = match bookmark {
        Some((slot, position)) => (position <= from.commit_lsn).then_some(slot),
        None => {
            let below = held.clone().filter(|(_, position)| *position <= from.commit_lsn);
            below.max_by_key(|(_, position)| *position).map(|(slot, _)| slot)
        }
    };
    match slot {
        Some(slot) => Ok((slot, Range { from, until })),
        None => Err(unheld(from, held.min_by_key(|(_, position)| *position), live)),
    }
}

const IN_THE_TABLE: &str =
    "what is still in the table can be replayed from there: walpost replay --since, --seq, --aggregate or --id";

fn unheld(from: Position, oldest: Option<(&str, Lsn)>, live: &Slot) -> anyhow::Error {
    let from = shown(from);
    match oldest {
        Some((slot, position)) => anyhow!(
            "no slot holds the log from {from} on: the oldest position that is held is {position}, by {slot}; {IN_THE_TABLE}"
        ),
        None => anyhow!(
            "no slot holds the log from {from} on: the oldest position that is held is {}, by {} itself, which has no \
             bookmarks (walpost bookmark create, bookmarks.every); {IN_THE_TABLE}",
            live.confirmed.unwrap_or_default(),
            live.name
        ),
    }
}

/// As it may be typed again.
pub(super) fn shown(position: Position) -> String {
    match position.ordinal {
        0 | u32::MAX => position.commit_lsn.to_string(),
        _ => position.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, confirmed: u64) -> Slot {
        Slot {
            name: name.to_owned(),
            plugin: Some("pgoutput".to_owned()),
            database: Some("app".to_owned()),
            temporary: false,
            active: false,
            holder: None,
            restart_lsn: None,
            confirmed: Some(Lsn(confirmed)),
            retained_bytes: None,
            lag_bytes: None,
            wal_status: Some("reserved".to_owned()),
            safe_bytes: None,
            invalidation: None,
            inactive_since: None,
            failover: false,
            two_phase: false,
            catalog_age: None,
        }
    }

    fn bookmarks() -> Vec<Bookmark> {
        let bookmark = |name: &str, confirmed| Bookmark {
            name: name.parse().unwrap(),
            slot: slot(&format!("s_bm_{name}"), confirmed),
        };
        let mut lost = bookmark("lost", 0x150);
        lost.slot.wal_status = Some("lost".to_owned());
        vec![bookmark("old", 0x100), lost, bookmark("new", 0x200)]
    }

    fn chosen(named: Option<&str>, from: Option<&str>, to: Option<&str>) -> Result<(String, Range), String> {
        let place = |text: Option<&str>| text.map(|text| text.parse::<Place>().unwrap());
        let name = named.map(|name| name.parse().unwrap());
        choose(&bookmarks(), &slot("s", 0x300), name.as_ref(), place(from), place(to))
            .map(|(slot, range)| (slot.to_owned(), range))
            .map_err(|error| error.to_string())
    }

    fn at(commit: u64, ordinal: u32) -> Position {
        Position { commit_lsn: Lsn(commit), ordinal }
    }

    #[test]
    fn the_newest_bookmark_at_or_below_the_beginning_is_taken() {
        let range = |from, until| Range { from, until };
        let end = at(0x300, 0);
        assert_eq!(chosen(None, Some("0/100"), None), Ok(("s_bm_old".into(), range(at(0x100, 0), end))));
        assert_eq!(chosen(None, Some("0/1FF"), None), Ok(("s_bm_old".into(), range(at(0x1FF, 0), end))));
        assert_eq!(chosen(None, Some("0/200"), None), Ok(("s_bm_new".into(), range(at(0x200, 0), end))));
        assert_eq!(chosen(Some("old"), None, None), Ok(("s_bm_old".into(), range(at(0x100, 0), end))));
        assert_eq!(chosen(Some("old"), Some("0/280"), None), Ok(("s_bm_old".into(), range(at(0x280, 0), end))));
        // The transaction that is named belongs to it, and so does the event.
        let until = at(0x250, u32::MAX);
        assert_eq!(chosen(Some("old"), None, Some("0/250")), Ok(("s_bm_old".into(), range(at(0x100, 0), until))));
        let (from, to) = ("0000000000000210-00000003", "0000000000000250-00000001");
        let expected = range(at(0x210, 3), at(0x250, 2));
        assert_eq!(chosen(None, Some(from), Some(to)), Ok(("s_bm_new".into(), expected)));
    }

    #[test]
    fn what_cannot_be_streamed_is_an_error_that_says_why() {
        let error = |named, from, to| chosen(named, from, to).unwrap_err();
        let unheld = error(None, Some("0/FF"), None);
        assert!(unheld.contains("the oldest position that is held is 0/100, by s_bm_old"), "{unheld}");
        assert!(unheld.contains("walpost replay --since"), "{unheld}");
        assert!(error(Some("new"), Some("0/180"), None).contains("no slot holds the log from 0/180 on"));
        assert!(error(Some("none"), None, None).contains("there is no bookmark none"));
        assert!(error(Some("lost"), None, None).contains("is lost"));
        assert!(error(None, Some("0/300"), None).contains("nothing is published from 0/300 on"));
        assert!(error(None, Some("0/200"), Some("0/300")).contains("goes no further"));
        assert!(error(None, Some("0/200"), Some("0/1FF")).contains("empty"));
        let alone = choose(&[], &slot("s", 0x300), None, Some(Place::Lsn(Lsn(0x200))), None).unwrap_err().to_string();
        assert!(alone.contains("by s itself, which has no bookmarks"), "{alone}");
        assert!("0/1; drop".parse::<Place>().is_err() && "".parse::<Place>().is_err());
    }

    #[test]
    fn a_range_is_passed_when_nothing_of_it_can_come() {
        let range = |until| Range { from: at(0, 0), until };
        assert!(range(at(0x300, 0)).is_passed_by(Lsn(0x300)), "a commit that begins there is not of it");
        assert!(!range(at(0x300, 0)).is_passed_by(Lsn(0x2FF)));
        assert!(!range(at(0x300, 1)).is_passed_by(Lsn(0x300)));
        assert!(range(at(0x300, u32::MAX)).is_passed_by(Lsn(0x301)));
    }
}
