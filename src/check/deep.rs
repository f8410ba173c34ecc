//! Findings about rows that are called published: whether they are in the topics.

use std::collections::BTreeMap;

use super::Finding;
use crate::{
    kafka::ids::Scan,
    postgres::{claimed::Claim, quote::literal},
};

/// So many ids are named.
const NAMED_MAX: usize = 5;

/// Rows of one outbox that are in no topic that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Absent {
    pub rows: u64,
    /// The first few.
    pub ids: Vec<String>,
    /// Those whose topic no longer reaches back to them.
    pub forgotten: u64,
}

impl Absent {
    /// `cut`: [`Scan::cut`], and compacted topics.
    pub fn add(&mut self, claim: Claim, cut: &BTreeMap<String, i64>) {
        let since = match &claim.topic {
            Some(topic) => cut.get(topic).copied(),
            None => cut.values().copied().max(),
        };
        if since.is_some_and(|since| claim.at.is_none_or(|at| at <= since)) {
            self.forgotten += 1;
            return;
        }
        self.rows += 1;
        if self.ids.len() < NAMED_MAX {
            self.ids.push(claim.id);
        }
    }
}

/// What a comparison of the outbox `table` with the topics found. `claimed`: rows that were compared.
pub fn deep(table: &str, claimed: u64, absent: &Absent, scan: &Scan) -> Vec<Finding> {
    let about = format!("table {table}");
    let mut findings = Vec::new();
    if scan.stopped && absent.rows + absent.forgotten > 0 {
        findings.push(Finding::warning(
            about,
            format!(
                "{} of {claimed} published rows are not found yet: time ran out when {} of {} records were read",
                absent.rows + absent.forgotten,
                scan.read,
                scan.total
            ),
            "walpost check --deep --within …, with more time",
        ));
        return findings;
    }
    if absent.rows > 0 {
        let more = if absent.rows > absent.ids.len() as u64 { ", …" } else { "" };
        let ids: Vec<_> = absent.ids.iter().map(|id| format!("--id {}", shell(id))).collect();
        findings.push(Finding::error(
            &about,
            format!(
                "{} of {claimed} published rows are in no topic and no dead letter: {}{more}",
                absent.rows,
                absent.ids.join(", ")
            ),
            format!(
                "walpost replay {}{more}, unless they went to topics that route.topic no longer names, or that are deleted",
                ids.join(" ")
            ),
        ));
    }
    if absent.forgotten > 0 {
        findings.push(Finding::note(
            about,
            format!(
                "{} of {claimed} published rows cannot be judged: they are not found, and their topics have deleted or compacted \
                 records of that age",
                absent.forgotten
            ),
            "nothing, if the topics' retention explains it",
        ));
    }
    findings
}

/// As a shell takes it.
fn shell(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !id.is_empty() && id.chars().all(plain) { id.to_owned() } else { literal(id) }
}

/// Nothing tells which rows are published.
pub fn not_comparable(table: &str, why: &str) -> Finding {
    Finding::note(
        format!("table {table}"),
        format!("cannot be compared with the topics: nothing tells which rows are published, since {why}"),
        "nothing, or walpost setup, which prepares the proof of publication",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Severity;

    #[test]
    fn a_row_is_missed_unless_its_topic_may_have_forgotten_it() {
        let cut = BTreeMap::from([("old".to_owned(), 100), ("compacted".to_owned(), i64::MAX)]);
        let mut absent = Absent::default();
        for (at, topic) in [
            (Some(100), Some("old")),
            (Some(101), Some("old")),
            (None, Some("old")),
            (Some(900), Some("compacted")),
            (Some(1), Some("whole")),
            (None, Some("whole")),
            (Some(900), None),
        ] {
            absent.add(Claim { id: format!("{at:?}"), at, topic: topic.map(str::to_owned) }, &cut);
        }
        assert_eq!((absent.rows, absent.forgotten), (3, 4));
        let found = deep("w.o", 10, &absent, &Scan::default());
        let severities: Vec<_> = found.iter().map(|found| found.severity).collect();
        assert_eq!(severities, [Severity::Error, Severity::Note]);
        let stopped = Scan { stopped: true, read: 3, total: 9, ..Scan::default() };
        let found = deep("w.o", 10, &absent, &stopped);
        assert!(found.len() == 1 && found[0].what.contains("7 of 10") && found[0].what.contains("3 of 9"));
        assert_eq!(deep("w.o", 10, &Absent::default(), &stopped), []);
    }
}
