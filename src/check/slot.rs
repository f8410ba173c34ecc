//! Findings about the replication slot.

use std::time::Duration;

use super::{Finding, size};
use crate::{
    config::{Config, OnSlotLoss, Snapshot},
    postgres::{
        progress::Progress,
        quote,
        server::Server,
        slot::{self, Slot},
    },
};

/// A slot that nobody uses and that holds back more than this is worth a look.
const RETAINED_WITHOUT_USER_MAX: i64 = 1 << 30;
/// Less than this until the slot is lost is close.
const SAFE_BYTES_MIN: i64 = 256 << 20;
/// So is less time than this.
const LOST_IN_MIN: Duration = Duration::from_secs(6 * 60 * 60);

/// With `snapshot = "initial"`, and for a connector, nobody has to make the slot.
pub fn slot_to_be_made(name: &str, snapshot: Snapshot) -> Finding {
    let remedy = match snapshot {
        Snapshot::Initial => "nothing: walpost run makes it, and sends the rows that are there before the stream",
        Snapshot::Never => "nothing: walpost run makes it, with the rights for that",
    };
    Finding::note(format!("slot {}", quote::ident(name)), "does not exist yet", remedy)
}

/// What is wrong with the slot's ability to be taken over by a standby, where that is `wanted`.
pub fn failover(wanted: bool, server: &Server, slot: Option<&Slot>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !wanted {
        return findings;
    }
    if server.major() < 17 {
        findings.push(Finding::error(
            "failover",
            format!("is asked for, and PostgreSQL {} has no slots that standbys take over", server.version_text),
            "leave it out of the configuration, or upgrade the server to 17 or later; on_slot_loss decides after a promotion",
        ));
        return findings;
    }
    if let Some(slot) = slot.filter(|slot| !slot.failover) {
        findings.push(Finding::note(
            format!("slot {}", quote::ident(&slot.name)),
            "is not one for failover yet",
            "nothing: walpost run makes it one",
        ));
    }
    if server.synchronized_standby_slots.as_deref().is_some_and(str::is_empty) {
        findings.push(Finding::note(
            "setting synchronized_standby_slots",
            "is empty: walpost may send events that no standby has, and that are gone after a promotion",
            "alter system set synchronized_standby_slots = '…' with the standbys' physical slots, then select pg_reload_conf()",
        ));
    }
    findings
}

/// How soon the slot is lost, if log is written on as it was between two looks, `apart` from each other. None: it does not
/// lose ground, or there is no limit.
pub fn lost_in(first: &Slot, second: &Slot, apart: Duration) -> Option<Duration> {
    let safe = |slot: &Slot| slot.safe_bytes.map(|bytes| u64::try_from(bytes).unwrap_or(0));
    slot::lost_in(safe(first)?, safe(second)?, apart)
}

/// The slot is not what walpost left, by what the row of progress, which is this server's, `known`s of it: gone, given up, or
/// confirmed by others. The configuration says what mends it.
pub fn loss(config: &Config, slot: Option<&Slot>, known: Option<&Progress>) -> Option<Finding> {
    let remedy = match config.on_slot_loss {
        _ if !config.messages.is_empty() => {
            "walpost run --accept-gap, which makes the slot anew: messages that it held are in no table, and whoever sent them \
             can alone send them again"
        }
        OnSlotLoss::Recover => {
            "walpost run, which makes the slot anew and sends the rows that are not proven published (on_slot_loss = \
             \"recover\")"
        }
        OnSlotLoss::Halt => {
            "walpost run --on-slot-loss recover, which makes the slot anew and sends the rows that are not proven published, \
             or walpost run --accept-gap, which sends none of them"
        }
    };
    lost(&config.slot, slot, known, remedy)
}

fn lost(name: &str, slot: Option<&Slot>, known: Option<&Progress>, remedy: &str) -> Option<Finding> {
    let known = known?;
    let begun = known.started.is_some() && known.reading.is_none();
    let rewinds = known.rewind.as_ref().is_some_and(|rewind| !rewind.done);
    let confirmed = known.confirmed.filter(|_| begun && !rewinds)?;
    let what = match slot {
        None => "is gone".to_owned(),
        Some(slot) if slot.lost() => {
            format!("is lost ({})", slot.invalidation.as_deref().unwrap_or("its log was removed"))
        }
        Some(slot) if known.stopped_clean && slot.confirmed > Some(confirmed) => {
            format!("was moved by hand or by another program, or made anew: it begins at {}", position(slot))
        }
        Some(_) => return None,
    };
    let adopt = match slot {
        Some(slot) if !slot.lost() => {
            "where another program streamed from it meanwhile, such as a connector: walpost setup --adopt; else "
        }
        _ => "",
    };
    Some(Finding::error(
        format!("slot {}", quote::ident(name)),
        format!(
            "{what}; walpost knew it to be confirmed up to {confirmed}: events after that may never have been sent"
        ),
        format!("{adopt}{remedy}"),
    ))
}

/// What is wrong with the slot `name`, which must stand in `database`. `lost_in`: when it is, as far as that is known.
pub fn slot(name: &str, slot: Option<&Slot>, database: &str, lost_in: Option<Duration>) -> Vec<Finding> {
    let about = format!("slot {}", quote::ident(name));
    let drop = format!("select pg_drop_replication_slot({})", quote::literal(name));
    let Some(slot) = slot else {
        return vec![Finding::error(
            about,
            "does not exist: the log is not kept, and there is nothing to stream from",
            format!(
                "walpost setup, or: select pg_create_logical_replication_slot({}, 'pgoutput') in database {}",
                quote::literal(name),
                quote::ident(database)
            ),
        )];
    };
    let (Some(plugin), Some(of)) = (&slot.plugin, &slot.database) else {
        return vec![Finding::error(
            about,
            "is a physical slot, of a standby",
            "give `slot` another name in the configuration",
        )];
    };
    let mut findings = Vec::new();
    if of != database {
        findings.push(Finding::error(
            &about,
            format!("belongs to database {}, not to {}", quote::ident(of), quote::ident(database)),
            "give `slot` another name in the configuration, or name that database in database_url",
        ));
    }
    if plugin != "pgoutput" {
        findings.push(Finding::error(
            &about,
            format!("decodes with {plugin}; walpost needs pgoutput"),
            "give `slot` another name in the configuration, and keep this one for whom it serves",
        ));
    }
    if slot.temporary {
        findings.push(Finding::error(
            &about,
            "is temporary: it goes away with the session that made it",
            "give `slot` another name in the configuration, then walpost setup",
        ));
    }
    if slot.two_phase {
        findings.push(Finding::error(
            &about,
            "has two_phase on: it sends prepared transactions before they are committed, which walpost cannot read",
            format!("once all it holds is sent: {drop}, then walpost setup"),
        ));
    }
    if slot.lost() {
        findings.push(Finding::error(
            &about,
            format!(
                "is lost ({}): what it had not sent is no longer in the log",
                slot.invalidation.as_deref().unwrap_or("its log was removed")
            ),
            format!("{drop}, then walpost setup; events after {} must be sent from the table", position(slot)),
        ));
        return findings;
    }
    if slot.wal_status.as_deref() == Some("unreserved") {
        findings.push(Finding::error(
            &about,
            "is about to be lost: it is further behind than max_slot_wal_keep_size",
            "start walpost now, or raise the limit: alter system set max_slot_wal_keep_size = '…', then select pg_reload_conf()",
        ));
    } else if let Some(safe) =
        slot.safe_bytes.filter(|safe| *safe < SAFE_BYTES_MIN || lost_in.is_some_and(|left| left < LOST_IN_MIN))
    {
        let when = lost_in.map(|left| Duration::from_secs(left.as_secs()));
        let when = when.map(|left| format!(", in {} at the present rate", humantime::format_duration(left)));
        findings.push(Finding::warning(
            &about,
            format!("is lost after {} more of log{}", size(safe.max(0)), when.unwrap_or_default()),
            "start walpost, or raise the limit: alter system set max_slot_wal_keep_size = '…', then select pg_reload_conf()",
        ));
    }
    match (&slot.holder, slot.retained_bytes) {
        (Some(holder), _) => findings.push(Finding::note(
            &about,
            format!(
                "is in use by process {}, application {}, from {}",
                holder.pid,
                holder.application_name.as_ref().map_or("unknown".to_owned(), |name| format!("{name:?}")),
                holder.client_address.as_deref().unwrap_or("this host"),
            ),
            "nothing to mend: another walpost would wait for it",
        )),
        (None, Some(retained)) if retained > RETAINED_WITHOUT_USER_MAX => findings.push(Finding::warning(
            &about,
            format!(
                "has no user{} and makes the server keep {} of log",
                slot.inactive_since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default(),
                size(retained)
            ),
            format!("walpost run, or if it is no longer needed: {drop}"),
        )),
        (None, _) => {}
    }
    findings
}

fn position(slot: &Slot) -> String {
    slot.confirmed.map_or("its last position".to_owned(), |lsn| lsn.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        check::Severity,
        pipeline::Lsn,
        postgres::{progress::tests::default_progress, slot::Holder},
    };

    pub(in crate::check) fn default_slot() -> Slot {
        Slot {
            name: "walpost".to_owned(),
            plugin: Some("pgoutput".to_owned()),
            database: Some("app".to_owned()),
            temporary: false,
            active: false,
            holder: None,
            restart_lsn: Some(Lsn(1)),
            confirmed: Some(Lsn(2)),
            retained_bytes: Some(56),
            lag_bytes: Some(0),
            wal_status: Some("reserved".to_owned()),
            safe_bytes: None,
            invalidation: None,
            inactive_since: None,
            failover: false,
            two_phase: false,
            catalog_age: Some(10),
        }
    }

    fn one(change: impl FnOnce(&mut Slot), severity: Severity, what: &str) {
        let mut facts = default_slot();
        change(&mut facts);
        let findings = slot("walpost", Some(&facts), "app", None);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, severity);
        assert!(findings[0].what.contains(what), "{findings:?}");
    }

    #[test]
    fn each_fault_is_found() {
        use Severity::{Error, Note, Warning};
        assert_eq!(slot("walpost", Some(&default_slot()), "app", None), []);
        assert_eq!(slot("walpost", None, "app", None)[0].severity, Error);
        one(|slot| slot.plugin = None, Error, "physical");
        one(|slot| slot.database = Some("other".into()), Error, "belongs to database other, not to app");
        one(|slot| slot.plugin = Some("test_decoding".into()), Error, "test_decoding");
        one(|slot| slot.temporary = true, Error, "temporary");
        one(|slot| slot.two_phase = true, Error, "two_phase");
        one(|slot| slot.wal_status = Some("lost".into()), Error, "is lost");
        one(|slot| slot.invalidation = Some("idle_timeout".into()), Error, "(idle_timeout)");
        one(|slot| slot.wal_status = Some("unreserved".into()), Error, "about to be lost");
        one(|slot| slot.safe_bytes = Some(10 << 20), Warning, "after 10.0 MiB more");
        one(|slot| slot.safe_bytes = Some(-4096), Warning, "after 0 bytes more");
        one(|slot| slot.retained_bytes = Some(3 << 30), Warning, "keep 3.0 GiB");
        let held = Holder { pid: 9, application_name: Some("w".into()), client_address: None, sync_state: None };
        one(|slot| slot.holder = Some(held), Note, "process 9");
    }

    #[test]
    fn hostile_names_are_quoted() {
        let missing = slot("it's", None, "My App", None);
        assert!(missing[0].remedy.contains("'it''s'") && missing[0].remedy.contains("\"My App\""));
    }

    #[test]
    fn the_time_until_it_is_lost_follows_the_rate() {
        let with = |safe| Slot { safe_bytes: safe, ..default_slot() };
        let left = |before, now| lost_in(&with(before), &with(now), Duration::from_secs(2)).map(|left| left.as_secs());
        assert_eq!(left(Some(3_000), Some(2_000)), Some(4));
        assert_eq!(left(Some(3_000), Some(3_000)), None);
        assert_eq!(left(Some(3_000), Some(4_000)), None);
        assert_eq!(left(None, None), None);
        assert_eq!(left(Some(3_000), Some(-5)), Some(0));
        let roomy = with(Some(10 << 30));
        let found = |seconds| slot("walpost", Some(&roomy), "app", Some(Duration::from_secs(seconds)));
        assert!(
            found(300)[0].what.contains("after 10.0 GiB more of log, in 5m at the present rate"),
            "{:?}",
            found(300)
        );
        assert_eq!(found(100_000), []);
    }

    #[test]
    fn a_slot_that_is_not_what_was_left_is_a_loss() {
        let known = Progress { started: Some("5:5:".to_owned()), confirmed: Some(Lsn(2)), ..default_progress() };
        let found =
            |slot: Option<&Slot>, known: &Progress| lost("walpost", slot, Some(known), "walpost run --accept-gap");
        let told = |found: Option<Finding>, words: &str| {
            let found = found.unwrap();
            assert!(found.what.contains(words) && found.remedy.contains("--accept-gap"), "{found:?}");
        };
        told(found(None, &known), "is gone; walpost knew it to be confirmed up to 0/2");
        let given_up = Slot { invalidation: Some("idle_timeout".into()), ..default_slot() };
        told(found(Some(&given_up), &known), "is lost (idle_timeout)");
        assert_eq!(found(Some(&default_slot()), &known), None);
        let moved = Slot { confirmed: Some(Lsn(3)), ..default_slot() };
        assert_eq!(found(Some(&moved), &known), None, "the row is a little behind while it streams");
        told(found(Some(&moved), &Progress { stopped_clean: true, ..known.clone() }), "begins at 0/3");
        assert_eq!(found(None, &Progress { started: None, ..known.clone() }), None, "it was never made");
        assert_eq!(lost("walpost", None, None, ""), None);
    }
}
