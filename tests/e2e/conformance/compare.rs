//! Records against those that Debezium wrote: topic, partition, order, key, value, headers, timestamp.

use std::{collections::BTreeMap, fmt::Write, ops::RangeInclusive};

use super::{
    golden::{Expected, Given, Timestamp, Variant},
    text::Rules,
};
use crate::support::records::Record;

/// What a run was like, as far as records show it.
pub struct Comparison<'a> {
    pub variant: &'a Variant,
    pub database: &'a str,
    /// Milliseconds since 1970 that the run took, both ends included.
    pub time: RangeInclusive<i64>,
}

#[derive(Default)]
struct Partition<'e, 'r> {
    expected: Vec<&'e Expected>,
    got: Vec<&'r Record>,
}

impl Comparison<'_> {
    /// What comes after the expected records, which come first in each partition, or the first difference. `got` is in
    /// the order of topic, partition and offset.
    pub fn beyond<'r>(&self, got: &'r [Record]) -> Result<Vec<&'r Record>, String> {
        let mut partitions: BTreeMap<(&str, i32), Partition<'_, 'r>> = BTreeMap::new();
        for expected in &self.variant.records {
            partitions.entry((&expected.topic, expected.partition)).or_default().expected.push(expected);
        }
        for record in got {
            partitions.entry((&record.topic, record.partition)).or_default().got.push(record);
        }
        let mut beyond = Vec::new();
        for ((topic, number), partition) in partitions {
            let rest = match self.variant.compare.repeating_topics.iter().any(|repeating| repeating == topic) {
                true => self.repeating(partition),
                false => self.as_given(partition),
            };
            beyond.extend(rest.map_err(|difference| format!("{topic}/{number}, {difference}"))?);
        }
        Ok(beyond)
    }

    fn as_given<'r>(&self, Partition { expected, mut got }: Partition<'_, 'r>) -> Result<Vec<&'r Record>, String> {
        for (at, expected) in expected.iter().enumerate() {
            let difference = match got.get(at) {
                Some(record) => self.difference(expected, record),
                None => Some(missing(expected)),
            };
            if let Some(difference) = difference {
                return Err(format!("record {}: {difference}", at + 1));
            }
        }
        Ok(got.split_off(expected.len()))
    }

    /// Every record is the one that is expected, and there is one at least.
    fn repeating<'r>(&self, Partition { expected, got }: Partition<'_, 'r>) -> Result<Vec<&'r Record>, String> {
        let [expected] = expected[..] else { return Err(format!("{} records are expected to repeat", expected.len())) };
        if got.is_empty() {
            return Err(format!("record 1: {}", missing(expected)));
        }
        let mut differences =
            got.iter().enumerate().filter_map(|(at, record)| Some((at, self.difference(expected, record)?)));
        match differences.next() {
            Some((at, difference)) => Err(format!("record {}: {difference}", at + 1)),
            None => Ok(Vec::new()),
        }
    }

    fn difference(&self, expected: &Expected, got: &Record) -> Option<String> {
        let id = expected.headers.iter().rev().find_map(|(name, value)| match value {
            Some(Given::Text(text)) if name == "id" => Some(text),
            _ => None,
        });
        let rules = Rules {
            database: self.database,
            member_order_free: id.is_some_and(|id| self.variant.compare.member_order_free_ids.contains(id)),
        };
        let bytes = |what: &str, expected: Option<&Given>, got: Option<&[u8]>| {
            let differ = !rules.equal(expected, got);
            let from = alike(expected, got).saturating_sub(100);
            differ.then(|| format!("{what}: expected {}, got {}", given(expected, from), text(got, from)))
        };
        bytes("key", expected.key.as_ref(), got.key.as_deref())
            .or_else(|| bytes("value", expected.value.as_ref(), got.value.as_deref()))
            .or_else(|| {
                let names = |names: Vec<&str>| names.join(", ");
                let wanted = names(expected.headers.iter().map(|(name, _)| name.as_str()).collect());
                let found = names(got.headers.iter().map(|(name, _)| name.as_str()).collect());
                (wanted != found).then(|| format!("headers: expected {wanted}; got {found}"))
            })
            .or_else(|| {
                let mut pairs = expected.headers.iter().zip(&got.headers);
                pairs.find_map(|((name, expected), (_, got))| {
                    bytes(&format!("header {name}"), expected.as_ref(), got.as_deref())
                })
            })
            .or_else(|| match (&expected.timestamp, got.timestamp) {
                (Timestamp::Data(expected), Some(got)) if *expected == got => None,
                (Timestamp::Processing(_), Some(got)) if self.time.contains(&got) => None,
                (expected, got) => Some(format!("timestamp: expected {expected:?}, got {got:?} in {:?}", self.time)),
            })
    }
}

fn missing(expected: &Expected) -> String {
    let mut shown = format!(
        "missing, expected key {}, value {}",
        given(expected.key.as_ref(), 0),
        given(expected.value.as_ref(), 0)
    );
    for (name, value) in &expected.headers {
        write!(shown, ", {name}={}", given(value.as_ref(), 0)).expect("a string takes all");
    }
    shown
}

/// How many characters both begin with.
fn alike(expected: Option<&Given>, got: Option<&[u8]>) -> usize {
    let (Some(Given::Text(expected)), Some(got)) = (expected, got) else { return 0 };
    expected.chars().zip(String::from_utf8_lossy(got).chars()).take_while(|(a, b)| a == b).count()
}

fn given(expected: Option<&Given>, from: usize) -> String {
    match expected {
        None => "null".to_owned(),
        Some(Given::Text(text)) => format!("{:?}", part(text, from)),
        Some(Given::Bytes { b64 }) => format!("the bytes {}", part(b64, from)),
        Some(Given::Either { either }) => part(&format!("any of {either:?}"), from),
    }
}

fn text(got: Option<&[u8]>, from: usize) -> String {
    got.map_or("null".to_owned(), |got| match std::str::from_utf8(got) {
        Ok(text) => format!("{:?}", part(text, from)),
        Err(_) => format!("the bytes {}", part(&format!("{got:x?}"), from)),
    })
}

/// A part that a person can read.
fn part(text: &str, from: usize) -> String {
    const MOST: usize = 600;
    let mut characters = text.chars().skip(from);
    let part: String = characters.by_ref().take(MOST).collect();
    let (before, after) = (if from > 0 { "…" } else { "" }, if characters.next().is_some() { "…" } else { "" });
    format!("{before}{part}{after}")
}
