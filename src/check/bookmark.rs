//! Findings about bookmarks, which cost the server log, old catalog rows and slots.

use super::{Finding, size};
use crate::{
    config::Rota,
    postgres::{bookmark::Bookmark, progress::Progress, quote, server::Server, slot::Slot},
};

/// Old rows of the catalog that are kept for longer than this many transactions slow every query down, and at some 200
/// million vacuum begins to run for nothing.
const CATALOG_AGE_MAX: i64 = 100_000_000;

/// What is wrong with the bookmarks of a slot, and with the rota that makes them.
pub fn bookmarks(bookmarks: &[Bookmark], slot: Option<&Slot>, rota: Option<Rota>, server: &Server) -> Vec<Finding> {
    let mut findings: Vec<_> = bookmarks.iter().filter_map(|bookmark| fault(bookmark, slot)).collect();
    if bookmarks.is_empty() && rota.is_none() {
        return findings;
    }
    let free = i64::from(server.max_replication_slots) - server.replication_slots;
    let of_rota = bookmarks.iter().filter(|bookmark| bookmark.name.made().is_some()).count();
    let coming = rota.map_or(0, |rota| rota.keep.saturating_sub(of_rota));
    // One more for the temporary copy of a replay.
    if free <= i64::try_from(coming).unwrap_or(i64::MAX) {
        findings.push(Finding::warning(
            "setting max_replication_slots",
            format!(
                "is {}, of which {} are free: bookmarks.keep asks for {coming} more, and a replay for one",
                server.max_replication_slots,
                free.max(0)
            ),
            "alter system set max_replication_slots = …, then restart the server; or keep fewer bookmarks",
        ));
    }
    if let Some(timeout) = server.idle_replication_slot_timeout.as_deref().filter(|timeout| *timeout != "0") {
        findings.push(Finding::warning(
            "setting idle_replication_slot_timeout",
            format!("is {timeout}: nobody ever uses a bookmark, so each is lost after that time"),
            "alter system set idle_replication_slot_timeout = 0, then select pg_reload_conf()",
        ));
    }
    let kept = bookmarks.iter().filter_map(|bookmark| bookmark.slot.retained_bytes).max();
    let age = bookmarks.iter().filter_map(|bookmark| bookmark.slot.catalog_age).max();
    if let (Some(kept), Some(age)) = (kept, age) {
        let about = "bookmarks";
        let what = format!(
            "({}) make the server keep {} of log and the catalog's dead rows of {age} transactions",
            bookmarks.len(),
            size(kept)
        );
        let remedy = "walpost bookmark list, and drop those that nobody will go back to";
        findings.push(match age > CATALOG_AGE_MAX {
            true => Finding::warning(about, what, remedy),
            false => Finding::note(about, what, remedy),
        });
    }
    findings
}

/// The stream is to begin again, and has not yet.
pub fn rewind(slot: &str, known: Option<&Progress>) -> Option<Finding> {
    let rewind = known?.rewind.as_ref().filter(|rewind| !rewind.done)?;
    Some(Finding::warning(
        format!("slot {}", quote::ident(slot)),
        format!("is to begin again at {}, from bookmark {}, and may be missing until then", rewind.to, rewind.from),
        "walpost run, which finishes that",
    ))
}

fn fault(bookmark: &Bookmark, live: Option<&Slot>) -> Option<Finding> {
    let Bookmark { name, slot } = bookmark;
    let about = format!("bookmark {name}");
    if slot.lost() {
        let reason = slot.invalidation.as_deref().unwrap_or("its log was removed");
        let what = format!("is lost ({reason}): nothing can be replayed from it");
        return Some(Finding::warning(about, what, format!("walpost bookmark drop {name}")));
    }
    if slot.wal_status.as_deref() == Some("unreserved") {
        return Some(Finding::warning(
            about,
            "is about to be lost: it is further behind than max_slot_wal_keep_size",
            "alter system set max_slot_wal_keep_size = '…', then select pg_reload_conf(); or drop it",
        ));
    }
    (live.is_some_and(|live| live.failover) && !slot.failover).then(|| {
        Finding::warning(
            about,
            "is not kept on standbys, though the slot is: after a promotion it is gone",
            format!(
                "over a replication connection: ALTER_REPLICATION_SLOT {} ( FAILOVER true )",
                quote::ident(&slot.name)
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{
        Severity::{self, Note, Warning},
        server::tests::default_server,
        slot::tests::default_slot,
    };

    fn bookmark(name: &str) -> Bookmark {
        let slot = Slot { name: format!("walpost_bm_{name}"), ..default_slot() };
        Bookmark { name: name.parse().unwrap(), slot }
    }

    fn found(bookmarks: &[Bookmark], rota: Option<Rota>, server: &Server) -> Vec<(Severity, String)> {
        let live = Slot { failover: true, ..default_slot() };
        let findings = super::bookmarks(bookmarks, Some(&live), rota, server);
        findings.into_iter().map(|finding| (finding.severity, format!("{} {}", finding.about, finding.what))).collect()
    }

    fn one(findings: Vec<(Severity, String)>, severity: Severity, words: &str) {
        let met = findings.iter().filter(|(found, what)| (*found, what.contains(words)) == (severity, true)).count();
        assert_eq!(met, 1, "{words}: {findings:?}");
    }

    #[test]
    fn without_bookmarks_nothing_is_said() {
        let timeout = Server { idle_replication_slot_timeout: Some("1min".to_owned()), ..default_server() };
        assert_eq!(found(&[], None, &timeout), []);
    }

    #[test]
    fn each_cost_is_named() {
        let server = default_server();
        let kept = Bookmark { slot: Slot { failover: true, ..bookmark("a").slot }, ..bookmark("a") };
        assert_eq!(found(&[kept], None, &server).len(), 1);
        let with = |change: fn(&mut Slot)| {
            let mut bookmark = bookmark("a");
            change(&mut bookmark.slot);
            found(&[bookmark], None, &default_server())
        };
        one(with(|_| {}), Warning, "is not kept on standbys");
        one(with(|_| {}), Note, "56 bytes of log and the catalog's dead rows of 10 transactions");
        one(with(|slot| slot.catalog_age = Some(150_000_000)), Warning, "150000000 transactions");
        one(with(|slot| slot.invalidation = Some("idle_timeout".into())), Warning, "is lost (idle_timeout)");
        one(with(|slot| slot.wal_status = Some("lost".into())), Warning, "is lost (its log was removed)");
        one(with(|slot| slot.wal_status = Some("unreserved".into())), Warning, "about to be lost");
    }

    #[test]
    fn a_rota_and_a_replay_need_slots() {
        let server = Server { max_replication_slots: 10, replication_slots: 5, ..default_server() };
        let rota = |keep| Some(Rota { every: Duration::from_secs(600), keep });
        assert_eq!(found(&[], rota(4), &server), []);
        one(found(&[], rota(5), &server), Warning, "is 10, of which 5 are free: bookmarks.keep asks for 5 more");
        // Those that are there are counted already.
        let made = bookmark("auto_20260131_081500");
        assert!(found(&[made], rota(5), &server).iter().all(|(_, what)| !what.contains("max_replication_slots")));
        let timeout = Server { idle_replication_slot_timeout: Some("1min".to_owned()), ..server };
        one(found(&[], rota(1), &timeout), Warning, "is 1min");
    }
}
