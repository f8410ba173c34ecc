//! Whether the slot that is found is the one that was left: nothing confirmed by others, nothing skipped.
//!
//! A slot has a name and no identity. Dropped and made anew, or moved by hand, it begins beyond what was delivered, and
//! what lies between would never be sent. So its position is compared with what is known:
//! - *exactly*, where the last word is known: within one process that nobody superseded, and after a clean stop. The slot
//!   may stand below that (after a crash of the server), never beyond it;
//! - after an unclean stop the row of progress is a little behind the slot. Then the slot is the same if it keeps its log
//!   from at or below that position: a new one keeps it from where the log ended when it was made, which is later. Or if
//!   the server has decoded through it at least what it had then: the count of a new one begins at 0.
//!
//! On a new timeline only what lies below the switch was ever this server's. A promoted server begins to count anew; a slot
//! that it had copied from its primary, which PostgreSQL marks, is the one that was left there.

use super::slot::Slot;
use crate::{
    pipeline::{Lsn, resume::Log},
    postgres::progress::Progress,
};

/// How far the slot of this name was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub system_identifier: String,
    pub timeline: u32,
    pub confirmed: Lsn,
    /// It is the last word: nothing was confirmed after it.
    pub exact: bool,
    /// Transactions that the server had decoded through the slot by then, as `pg_stat_replication_slots` counts; none: not
    /// known.
    pub decoded: Option<i64>,
    /// Of whoever knows it; none where there is no table of progress.
    pub epoch: Option<i64>,
}

impl Reached {
    /// As the row of progress has it; none: it has no position yet.
    pub(super) fn of(progress: &Progress) -> Option<Reached> {
        Some(Reached {
            system_identifier: progress.system_identifier.clone(),
            timeline: progress.timeline,
            confirmed: progress.confirmed?,
            exact: progress.stopped_clean,
            decoded: progress.decoded,
            epoch: Some(progress.epoch),
        })
    }

    /// Up to where the slot was confirmed, if it begins beyond that.
    pub(super) fn is_passed_by(&self, slot: &Slot, log: &Log) -> Option<Lsn> {
        let reached = self.on(log)?;
        let begins_below = !self.exact && slot.restart <= reached;
        let copied = !self.exact && slot.synced && self.timeline < log.timeline;
        let same = slot.confirmed <= reached || begins_below || copied || self.is_told_by_count(slot, log);
        (!same).then_some(reached)
    }

    /// Nothing but the count says that it is the same slot.
    pub(super) fn is_told_by_count(&self, slot: &Slot, log: &Log) -> bool {
        let behind = self.on(log).is_some_and(|reached| slot.restart > reached);
        let counted = self.decoded.zip(slot.decoded).is_some_and(|(then, now)| then > 0 && now >= then);
        !self.exact && behind && counted
    }

    /// The position as far as it was this log's; none: it is of another branch, and says nothing here.
    pub(super) fn on(&self, log: &Log) -> Option<Lsn> {
        if self.timeline == log.timeline {
            return Some(self.confirmed);
        }
        let (_, left) = log.history.iter().find(|(timeline, _)| *timeline == self.timeline)?;
        Some(self.confirmed.min(*left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log { timeline: 3, history: vec![(1, Lsn(50)), (2, Lsn(150))], start: Lsn(0), end: Lsn(900) }
    }

    fn reached(exact: bool) -> Reached {
        let confirmed = Lsn(200);
        Reached { system_identifier: "7".to_owned(), timeline: 3, confirmed, exact, decoded: Some(40), epoch: None }
    }

    fn slot(restart: u64, confirmed: u64, decoded: Option<i64>) -> Slot {
        Slot { confirmed: Lsn(confirmed), restart: Lsn(restart), decoded, failover: false, synced: false }
    }

    fn passed(reached: &Reached, restart: u64, confirmed: u64, decoded: Option<i64>) -> Option<Lsn> {
        reached.is_passed_by(&slot(restart, confirmed, decoded), &log())
    }

    #[test]
    fn the_last_word_is_compared_exactly() {
        assert_eq!(passed(&reached(true), 100, 200, Some(90)), None);
        assert_eq!(passed(&reached(true), 100, 180, None), None, "a crash of the server takes it back");
        assert_eq!(passed(&reached(true), 100, 201, Some(90)), Some(Lsn(200)), "someone moved it");
    }

    #[test]
    fn behind_an_unclean_stop_the_same_slot_is_told_from_a_new_one() {
        assert_eq!(passed(&reached(false), 200, 260, None), None, "its log begins below");
        assert_eq!(passed(&reached(false), 201, 260, None), Some(Lsn(200)));
        assert_eq!(passed(&reached(false), 201, 260, Some(40)), None, "it has decoded before");
        assert_eq!(passed(&reached(false), 201, 260, Some(39)), Some(Lsn(200)));
        let uncounted = Reached { decoded: Some(0), ..reached(false) };
        assert_eq!(passed(&uncounted, 201, 260, Some(0)), Some(Lsn(200)));
    }

    #[test]
    fn only_what_lies_below_the_switch_counts_on_a_new_timeline() {
        let promoted = Reached { timeline: 2, ..reached(true) };
        assert_eq!(passed(&promoted, 100, 150, None), None);
        assert_eq!(passed(&promoted, 100, 151, None), Some(Lsn(150)));
        let elsewhere = Reached { timeline: 7, ..reached(true) };
        assert_eq!(passed(&elsewhere, 100, 900, None), None, "another branch says nothing");
    }
    #[test]
    fn a_slot_that_a_promoted_server_had_copied_is_the_one_that_was_left() {
        let copied = Slot { synced: true, ..slot(260, 260, Some(0)) };
        let left = Reached { timeline: 2, ..reached(false) };
        assert_eq!(left.is_passed_by(&copied, &log()), None);
        assert_eq!(left.is_passed_by(&slot(260, 260, Some(0)), &log()), Some(Lsn(150)));
        let later = reached(false);
        assert_eq!(later.is_passed_by(&copied, &log()), Some(Lsn(200)), "the mark outlives the promotion");
        let exact = Reached { exact: true, ..left };
        assert_eq!(exact.is_passed_by(&copied, &log()), Some(Lsn(150)), "the last word is compared exactly");
    }
}
