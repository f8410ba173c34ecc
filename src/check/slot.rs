//! Findings about the replication slot.

use super::{Finding, size};
use crate::postgres::{quote, server::Server, slot::Slot};

/// A slot that nobody uses and that holds back more than this is worth a look.
const RETAINED_WITHOUT_USER_MAX: i64 = 1 << 30;
/// Less than this until the slot is lost is close.
const SAFE_BYTES_MIN: i64 = 256 << 20;

/// With `snapshot = "initial"` nobody has to make the slot.
pub fn slot_to_be_made(name: &str) -> Finding {
    Finding::note(
        format!("slot {}", quote::ident(name)),
        "does not exist yet",
        "nothing: walpost run makes it, and sends the rows that are there before the stream",
    )
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

/// What is wrong with the slot `name`, which must stand in `database`.
pub fn slot(name: &str, slot: Option<&Slot>, database: &str) -> Vec<Finding> {
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
    } else if let Some(safe) = slot.safe_bytes.filter(|safe| *safe < SAFE_BYTES_MIN) {
        findings.push(Finding::warning(
            &about,
            format!("is lost after {} more of log", size(safe.max(0))),
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
    use crate::{check::Severity, pipeline::Lsn, postgres::slot::Holder};

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
        let findings = slot("walpost", Some(&facts), "app");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].severity, severity);
        assert!(findings[0].what.contains(what), "{findings:?}");
    }

    #[test]
    fn each_fault_is_found() {
        use Severity::{Error, Note, Warning};
        assert_eq!(slot("walpost", Some(&default_slot()), "app"), []);
        assert_eq!(slot("walpost", None, "app")[0].severity, Error);
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
        let missing = slot("it's", None, "My App");
        assert!(missing[0].remedy.contains("'it''s'") && missing[0].remedy.contains("\"My App\""));
    }
}
