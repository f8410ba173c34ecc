//! Findings about the server, its settings and our role.

use std::time::Duration;

use super::Finding;
use crate::postgres::{
    quote,
    server::{Server, SynchronousSender},
    slot::Slot,
};

/// What is wrong with the server and the role. Whether the role may replicate is not told from the catalog, which does
/// not show the ways of managed services, but by trying.
pub fn server(server: &Server, slot: Option<&Slot>, status_interval: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let role = quote::ident(&server.role.name);
    if server.major() < 14 {
        findings.push(Finding::error(
            "server",
            format!("is PostgreSQL {}; walpost needs 14 or later", server.version_text),
            "upgrade the server",
        ));
    }
    if server.in_recovery {
        findings.push(Finding::error(
            "server",
            "is a standby: neither publication nor table can be made on it",
            "name the primary in database_url, or all hosts with target_session_attrs=read-write",
        ));
    }
    if server.wal_level != "logical" {
        findings.push(Finding::error(
            "setting wal_level",
            format!("is {}; the log then lacks what decoding needs", server.wal_level),
            "alter system set wal_level = logical, then restart the server (Amazon RDS: rds.logical_replication = 1)",
        ));
    }
    if slot.is_none() && server.replication_slots >= i64::from(server.max_replication_slots) {
        findings.push(Finding::error(
            "setting max_replication_slots",
            format!("all {} slots are in use and walpost has none", server.max_replication_slots),
            "drop a slot that nobody needs (select * from pg_replication_slots), or \
             alter system set max_replication_slots = …, then restart the server",
        ));
    }
    if !slot.is_some_and(|slot| slot.active) && server.wal_senders >= i64::from(server.max_wal_senders) {
        findings.push(Finding::error(
            "setting max_wal_senders",
            format!("all {} are in use: the next replication connection is refused", server.max_wal_senders),
            "alter system set max_wal_senders = …, then restart the server",
        ));
    }
    if !server.role.reads_all_stats && !server.role.superuser {
        findings.push(Finding::note(
            format!("role {role}"),
            "does not see other sessions: who holds a slot, and which transaction is in the way, stays unknown",
            format!("grant pg_read_all_stats to {role}"),
        ));
    }
    findings.extend(retention(server));
    findings.extend(timeout(server, status_interval));
    findings
}

/// How long the server keeps the log for a walpost that is down.
fn retention(server: &Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    if server.max_slot_wal_keep_size == "-1" {
        findings.push(Finding::note(
            "setting max_slot_wal_keep_size",
            "is without limit: while walpost is down the log grows until the disk is full",
            "watch walpost_slot_retained_bytes, or alter system set max_slot_wal_keep_size = '…' (then the slot is lost instead)",
        ));
    } else {
        findings.push(Finding::note(
            "setting max_slot_wal_keep_size",
            format!(
                "is {}: a slot further behind than that is lost, with what it had not sent",
                server.max_slot_wal_keep_size
            ),
            "watch walpost_slot_safe_bytes; the limit must cover walpost's longest outage",
        ));
    }
    if let Some(timeout) = server.idle_replication_slot_timeout.as_deref().filter(|timeout| *timeout != "0") {
        findings.push(Finding::warning(
            "setting idle_replication_slot_timeout",
            format!("is {timeout}: a slot that nobody uses for that long is lost, with what it had not sent"),
            "alter system set idle_replication_slot_timeout = 0, then select pg_reload_conf()",
        ));
    }
    findings
}

fn timeout(server: &Server, status_interval: Duration) -> Option<Finding> {
    let timeout = u64::try_from(server.wal_sender_timeout_ms).ok()?;
    let third = Duration::from_millis(timeout / 3);
    if timeout == 0 {
        return Some(Finding::note(
            "setting wal_sender_timeout",
            "is 0: the server never notices that a walpost whose host is gone still holds the slot",
            "alter system set wal_sender_timeout = '60s', then select pg_reload_conf()",
        ));
    }
    (third < status_interval).then(|| {
        Finding::note(
            "setting wal_sender_timeout",
            format!("is {timeout} ms: walpost reports every {} instead of every status_interval", millis(third)),
            format!("status_interval = \"{}\" in the configuration, or a longer wal_sender_timeout", millis(third)),
        )
    })
}

fn millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Our own replication session is one that the application's commits wait for: they would wait for Kafka.
pub fn synchronous(senders: &[SynchronousSender], slot: &str) -> Option<Finding> {
    let ours = senders.iter().find(|sender| sender.slot.as_deref() == Some(slot))?;
    Some(Finding::error(
        "setting synchronous_standby_names",
        format!(
            "makes walpost's session (process {}, application {:?}) a synchronous standby ({}): the application's commits \
             wait for Kafka",
            ours.pid, ours.application_name, ours.sync_state
        ),
        SYNCHRONOUS_REMEDY,
    ))
}

/// The setting would do so as soon as walpost connects under `application_name`.
pub fn synchronous_names(setting: &str, application_name: &str) -> Option<Finding> {
    let matched =
        standby_names(setting).into_iter().find(|name| name == "*" || name.eq_ignore_ascii_case(application_name))?;
    Some(Finding::error(
        "setting synchronous_standby_names",
        format!(
            "is {setting:?}, and {matched:?} matches the application name {application_name:?}: once walpost streams, the \
             application's commits may wait for Kafka"
        ),
        SYNCHRONOUS_REMEDY,
    ))
}

const SYNCHRONOUS_REMEDY: &str = "alter system set synchronous_standby_names = '…' with the names of the real standbys only, then \
                                  select pg_reload_conf()";

/// The names in `synchronous_standby_names`: `a, b`, `2 (a, b)`, `FIRST 2 (a, "B c")`, `ANY 1 (*)`.
fn standby_names(setting: &str) -> Vec<String> {
    let list = match (setting.find('('), setting.rfind(')')) {
        (Some(open), Some(close)) if open < close && !setting[..open].contains('"') => &setting[open + 1..close],
        _ => setting,
    };
    let mut names = Vec::new();
    let mut name = String::new();
    let mut quoted = false;
    for c in list.chars().chain([',']) {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => names.push(std::mem::take(&mut name).trim().to_owned()),
            c => name.push(c),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{check::Severity, postgres::server::Role};

    /// A server and role with which nothing is wrong but for notes.
    pub(in crate::check) fn default_server() -> Server {
        Server {
            version: 150_014,
            version_text: "15.14".to_owned(),
            database: "app".to_owned(),
            in_recovery: false,
            wal_level: "logical".to_owned(),
            max_replication_slots: 10,
            replication_slots: 0,
            max_wal_senders: 10,
            wal_senders: 0,
            synchronous_standby_names: String::new(),
            wal_sender_timeout_ms: 60_000,
            max_slot_wal_keep_size: "-1".to_owned(),
            idle_replication_slot_timeout: None,
            synchronized_standby_slots: None,
            role: Role {
                name: "walpost_stream".to_owned(),
                superuser: false,
                create_role: false,
                create_in_database: false,
                reads_all_stats: true,
            },
        }
    }

    fn worst(change: impl FnOnce(&mut Server)) -> Vec<(Severity, String)> {
        let mut facts = default_server();
        change(&mut facts);
        let findings = server(&facts, None, Duration::from_secs(10));
        let of_interest = findings.into_iter().filter(|finding| finding.about != "setting max_slot_wal_keep_size");
        of_interest.map(|finding| (finding.severity, finding.about)).collect()
    }

    #[test]
    fn each_fault_is_found() {
        use Severity::{Error, Note, Warning};
        let found = |severity, about: &str| vec![(severity, about.to_owned())];
        assert_eq!(worst(|_| {}), []);
        assert_eq!(worst(|facts| facts.version = 130_020), found(Error, "server"));
        assert_eq!(worst(|facts| facts.in_recovery = true), found(Error, "server"));
        assert_eq!(worst(|facts| facts.wal_level = "replica".into()), found(Error, "setting wal_level"));
        assert_eq!(worst(|facts| facts.replication_slots = 10), found(Error, "setting max_replication_slots"));
        assert_eq!(worst(|facts| facts.wal_senders = 10), found(Error, "setting max_wal_senders"));
        assert_eq!(worst(|facts| facts.role.reads_all_stats = false), found(Note, "role walpost_stream"));
        assert_eq!(worst(|facts| facts.wal_sender_timeout_ms = 0), found(Note, "setting wal_sender_timeout"));
        assert_eq!(worst(|facts| facts.wal_sender_timeout_ms = 5_000), found(Note, "setting wal_sender_timeout"));
        let idle = |facts: &mut Server| facts.idle_replication_slot_timeout = Some("1d".into());
        assert_eq!(worst(idle), found(Warning, "setting idle_replication_slot_timeout"));
    }

    #[test]
    fn standbys_are_named_as_postgresql_names_them() {
        for (setting, names) in [
            ("", vec![]),
            ("*", vec!["*"]),
            ("a, b", vec!["a", "b"]),
            ("2 (a,b)", vec!["a", "b"]),
            ("FIRST 1 (s1, \"S, 2\")", vec!["s1", "S, 2"]),
            ("ANY 1 (*)", vec!["*"]),
            ("\"odd (name)\"", vec!["odd (name)"]),
        ] {
            assert_eq!(standby_names(setting), names, "{setting}");
        }
    }

    #[test]
    fn a_synchronous_walpost_is_an_error() {
        assert!(synchronous_names("FIRST 1 (s1, s2)", "walpost").is_none());
        assert_eq!(
            synchronous_names("ANY 1 (s1, WALPOST)", "walpost").map(|found| found.severity),
            Some(Severity::Error)
        );
        assert!(synchronous_names("*", "walpost").is_some());
        let sender = |slot: &str| SynchronousSender {
            pid: 7,
            application_name: "walpost".to_owned(),
            sync_state: "sync".to_owned(),
            slot: Some(slot.to_owned()),
        };
        assert!(synchronous(&[sender("standby")], "walpost").is_none());
        assert!(synchronous(&[sender("standby"), sender("walpost")], "walpost").is_some());
    }
}
