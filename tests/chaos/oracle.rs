//! What a consumer got, against what was committed. It shares no code with walpost.

use std::collections::{HashMap, HashSet};

use crate::support::{outbox::Event, records::Record, verify::verify};

/// All that the consumer has read, in the order of each partition.
#[derive(Default)]
pub struct Journal {
    records: Vec<Record>,
    seen: HashSet<String>,
    /// The last offset of each partition.
    read_to: HashMap<(String, i32), i64>,
    /// Records beyond an event's first, sent by the stream.
    pub duplicates: usize,
    /// The same, sent from the table after a lost slot.
    pub recovered: usize,
}

impl Journal {
    pub fn take(&mut self, mut record: Record) {
        let place = (record.topic.clone(), record.partition);
        if self.read_to.get(&place).is_some_and(|offset| record.offset <= *offset) {
            // The consumer went back, not the stream.
            return;
        }
        self.read_to.insert(place, record.offset);
        let id = record.header("id").unwrap_or("a record without id").to_owned();
        if !self.seen.insert(id) {
            match record.header("recovered") {
                Some(_) => self.recovered += 1,
                None => self.duplicates += 1,
            }
        }
        // Copies from the table have other headers than the stream's.
        record.headers.retain(|(name, _)| name != "position" && name != "recovered");
        self.records.push(record);
    }

    /// The topic is made anew: its offsets begin again.
    pub fn made_anew(&mut self, topic: &str) {
        self.read_to.retain(|(name, _), _| name != topic);
    }

    pub fn has(&self, id: &str) -> bool {
        self.seen.contains(id)
    }

    pub fn len(&self) -> usize {
        self.seen.len()
    }
}

/// The end of a campaign, in events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub committed: usize,
    pub delivered: usize,
    pub duplicates: usize,
    pub recovered: usize,
    pub lost: Vec<String>,
    pub reordered: Vec<String>,
    /// Records of no committed event, and records that are not as their event was committed.
    pub wrong: Vec<String>,
    /// Commits that the database had acknowledged and has no more.
    pub gone: Vec<String>,
}

/// `table` is what the database has, in commit order for each key; `acknowledged` is what its writers were told.
pub fn judge(table: &[Event], acknowledged: &[String], journal: &Journal) -> Verdict {
    let report = verify(table, &journal.records);
    let kept: HashSet<&str> = table.iter().map(|event| event.id.as_str()).collect();
    Verdict {
        committed: table.len(),
        delivered: table.len() - report.missing.len(),
        duplicates: journal.duplicates,
        recovered: journal.recovered,
        lost: report.missing,
        reordered: report.reordered,
        wrong: [report.unexpected, report.altered].concat(),
        gone: acknowledged.iter().filter(|id| !kept.contains(id.as_str())).cloned().collect(),
    }
}

mod tests {
    use super::*;

    fn verdict(ids: &[&str]) -> Verdict {
        let event = |id: &&str| Event {
            id: (*id).to_owned(),
            topic: "t".to_owned(),
            key: id[..1].to_owned(),
            value: format!("value of {id}"),
        };
        let mut journal = Journal::default();
        for (offset, id) in (0..).zip(ids) {
            let (id, recovered) = id.strip_suffix('*').map_or((*id, false), |id| (id, true));
            let mut headers = vec![("id".to_owned(), Some(id.as_bytes().to_vec()))];
            if recovered {
                headers.push(("recovered".to_owned(), Some(b"true".to_vec())));
            }
            journal.take(Record {
                topic: "t".to_owned(),
                partition: 0,
                offset,
                timestamp: None,
                key: Some(id.as_bytes()[..1].to_vec()),
                value: Some(format!("value of {id}").into_bytes()),
                headers,
            });
        }
        let table: Vec<Event> = ["a1", "a2", "b1", "a3"].iter().map(event).collect();
        judge(&table, &["a1".to_owned(), "b1".to_owned()], &journal)
    }

    #[test]
    fn what_is_missing_doubled_or_swapped_is_found() {
        let clean = verdict(&["a1", "b1", "a2", "a3"]);
        assert_eq!(clean, Verdict { committed: 4, delivered: 4, ..Verdict::default() });
        assert_eq!(verdict(&["a1", "b1", "a3"]).lost, ["a2"]);
        assert_eq!(verdict(&["a2", "a1", "b1", "a3"]).reordered, ["a1"]);
        let twice = verdict(&["a1", "a2", "a1", "b1", "a3", "a2*"]);
        assert_eq!((twice.duplicates, twice.recovered, twice.reordered.len()), (1, 1, 0));
        assert_eq!(verdict(&["a1", "a2", "b1", "a3", "c1"]).wrong, ["c1"]);
    }

    #[test]
    fn a_consumer_that_goes_back_is_no_duplicate_and_a_topic_made_anew_begins_at_zero() {
        let record = |id: &str| Record {
            topic: "t".to_owned(),
            partition: 0,
            offset: 0,
            timestamp: None,
            key: None,
            value: None,
            headers: vec![("id".to_owned(), Some(id.as_bytes().to_vec()))],
        };
        let mut journal = Journal::default();
        journal.take(record("a"));
        journal.take(record("a"));
        assert_eq!((journal.len(), journal.duplicates), (1, 0));
        journal.made_anew("t");
        journal.take(record("a"));
        assert_eq!((journal.len(), journal.duplicates), (1, 1));
    }

    #[test]
    fn commits_that_the_database_no_longer_has_are_told() {
        assert_eq!(judge(&[], &["a1".to_owned()], &Journal::default()).gone, ["a1"]);
    }
}
