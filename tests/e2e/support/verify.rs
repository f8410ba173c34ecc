//! Compares what was committed with what a consumer got: loss, order, duplicates, strangers, altered bytes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use super::{outbox::Event, records::Record};

/// Everything that is not as it was committed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events without a record.
    pub missing: Vec<String>,
    /// Records beyond an event's first.
    pub duplicates: usize,
    /// Events whose first record comes before the first record of an earlier event of the same topic and key.
    pub reordered: Vec<String>,
    /// Records of no known event.
    pub unexpected: Vec<String>,
    /// Events with a record whose topic, key or value is not the event's, or whose headers are not its first record's.
    pub altered: Vec<String>,
}

impl Report {
    /// Nothing lost, reordered, altered or added; fails with the report otherwise.
    pub fn assert_complete(&self) {
        let Report { missing, duplicates: _, reordered, unexpected, altered } = self;
        let clean = [missing, reordered, unexpected, altered].into_iter().all(Vec::is_empty);
        assert!(clean, "{self}");
    }

    /// Complete, and every event once.
    pub fn assert_exactly_once(&self) {
        self.assert_complete();
        assert!(self.duplicates == 0, "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { missing, duplicates, reordered, unexpected, altered } = self;
        write!(f, "{duplicates} duplicates")?;
        for (what, ids) in
            [("missing", missing), ("reordered", reordered), ("unexpected", unexpected), ("altered", altered)]
        {
            write!(f, ", {} {what}", ids.len())?;
            if !ids.is_empty() {
                write!(f, " ({})", ids.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(" "))?;
            }
        }
        Ok(())
    }
}

/// `committed` is in commit order for each key, `records` in offset order for each partition.
pub fn verify(committed: &[Event], records: &[Record]) -> Report {
    let events: HashMap<&str, (usize, &Event)> =
        committed.iter().enumerate().map(|(place, event)| (event.id.as_str(), (place, event))).collect();
    assert!(events.len() == committed.len(), "an event is expected twice");
    let mut report = Report::default();
    let mut first = HashMap::new();
    // The latest event of each topic and key that a first record was seen of.
    let mut latest: HashMap<(&str, &str), usize> = HashMap::new();
    for record in records {
        let id = record.header("id").unwrap_or("a record without id");
        let Some((place, event)) = events.get(id) else {
            report.unexpected.push(id.to_owned());
            continue;
        };
        let same = record.topic == event.topic
            && record.key.as_deref() == Some(event.key.as_bytes())
            && record.value.as_deref() == Some(event.value.as_bytes());
        let is_copy = first.contains_key(id);
        let headers = first.entry(id).or_insert(&record.headers);
        if !same || *headers != &record.headers {
            report.altered.push(id.to_owned());
        }
        if is_copy {
            report.duplicates += 1;
            continue;
        }
        let latest = latest.entry((&event.topic, &event.key)).or_insert(*place);
        if *place < *latest {
            report.reordered.push(id.to_owned());
        }
        *latest = (*latest).max(*place);
    }
    report.missing =
        committed.iter().filter(|event| !first.contains_key(event.id.as_str())).map(|e| e.id.clone()).collect();
    report
}

/// Whether every event has a record: what to wait for before verifying.
pub fn all_arrived(committed: &[Event], records: &[Record]) -> bool {
    if records.len() < committed.len() {
        return false;
    }
    let seen: HashSet<&str> = records.iter().filter_map(|record| record.header("id")).collect();
    committed.iter().all(|event| seen.contains(event.id.as_str()))
}

mod tests {
    use super::*;

    fn events() -> Vec<Event> {
        let event = |(id, key): (&str, &str)| Event {
            id: id.to_owned(),
            topic: "t".to_owned(),
            key: key.to_owned(),
            value: format!("value of {id}"),
        };
        [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")].map(event).into()
    }

    fn records(ids: &[&str]) -> Vec<Record> {
        let record = |id: &&str| Record {
            topic: "t".to_owned(),
            partition: 0,
            offset: 0,
            timestamp: None,
            key: Some(id.as_bytes()[..1].to_vec()),
            value: Some(format!("value of {id}").into_bytes()),
            headers: vec![("id".to_owned(), Some(id.as_bytes().to_vec()))],
        };
        ids.iter().map(record).collect()
    }

    fn report(ids: &[&str]) -> Report {
        verify(&events(), &records(ids))
    }

    #[test]
    fn keys_may_overtake_each_other() {
        report(&["b1", "a1", "a2", "a3"]).assert_exactly_once();
        assert!(all_arrived(&events(), &records(&["b1", "a1", "a2", "a3"])));
    }

    #[test]
    fn a_run_may_be_repeated_but_that_is_counted() {
        let repeated = report(&["a1", "a2", "a1", "a2", "b1", "a3"]);
        repeated.assert_complete();
        assert_eq!(repeated.duplicates, 2);
    }

    #[test]
    fn a_copy_has_the_headers_of_the_first() {
        let mut got = records(&["a1", "a2", "b1", "a3", "a1"]);
        got[4].headers.push(("position".to_owned(), None));
        assert_eq!(verify(&events(), &got).altered, ["a1"]);
    }

    #[test]
    fn loss_is_found() {
        assert_eq!(report(&["a1", "b1", "a3"]).missing, ["a2"]);
        assert!(!all_arrived(&events(), &records(&["a1", "b1", "a3", "a3"])));
    }

    #[test]
    fn disorder_is_found_in_first_records_only() {
        assert_eq!(report(&["a1", "a3", "b1", "a2"]).reordered, ["a2"]);
    }

    #[test]
    fn strangers_and_altered_bytes_are_found() {
        let mut got = records(&["a1", "a2", "b1", "a3", "x"]);
        got[0].value = None;
        let report = verify(&events(), &got);
        assert_eq!((report.altered.clone(), report.unexpected.clone()), (vec!["a1".to_owned()], vec!["x".to_owned()]));
        assert_eq!(report.to_string(), "0 duplicates, 0 missing, 0 reordered, 1 unexpected (x), 1 altered (a1)");
    }
}
