//! What compares can fail: Debezium's own records are equal to themselves, and to nothing that differs in any way.

use super::{
    compare::Comparison,
    golden::{Expected, Timestamp, Variant},
    text::example,
};
use crate::support::records::Record;

const NOW: i64 = 1_733_000_000_000;

/// Records of a variant that are tried.
const MOST: usize = 8;

/// Records as Kafka would give them back.
fn examples(variant: &Variant) -> Vec<Record> {
    let bytes = |given: &Option<_>| given.as_ref().map(|given| example(given, "db"));
    let record = |(expected, offset): (&Expected, i64)| Record {
        topic: expected.topic.clone(),
        partition: expected.partition,
        offset,
        timestamp: Some(match expected.timestamp {
            Timestamp::Data(ms) => ms,
            Timestamp::Processing(_) => NOW,
        }),
        key: bytes(&expected.key),
        value: bytes(&expected.value),
        headers: expected.headers.iter().map(|(name, value)| (name.clone(), bytes(value))).collect(),
    };
    variant.records.iter().zip(0..).map(record).collect()
}

fn differs(variant: &Variant, got: &[Record]) -> Option<String> {
    let comparison = Comparison { variant, database: "db", time: NOW..=NOW };
    match comparison.beyond(got) {
        Ok(beyond) => beyond.first().map(|record| format!("more: {record:?}")),
        Err(difference) => Some(difference),
    }
}

#[test]
fn what_debezium_wrote_is_equal_to_itself() {
    for variant in Variant::all() {
        assert_eq!(differs(&variant, &examples(&variant)), None, "{}", variant.name);
    }
}

/// Alters a record; false where it has nothing of that kind.
type Fault = fn(&mut Record) -> bool;

const FAULTS: [(&str, Fault); 14] = [
    ("another topic", |record| {
        record.topic.push('x');
        true
    }),
    ("another partition", |record| {
        record.partition += 100;
        true
    }),
    ("a changed byte in the key", |record| change(record.key.as_mut())),
    ("a changed byte in the value", |record| change(record.value.as_mut())),
    ("a longer value", |record| {
        record.value.iter_mut().for_each(|value| value.push(b' '));
        record.value.is_some()
    }),
    ("a shorter value", |record| record.value.as_mut().and_then(Vec::pop).is_some()),
    ("no key, or an empty one", |record| absent(&mut record.key)),
    ("no value, or an empty one", |record| absent(&mut record.value)),
    ("a changed byte in a header", |record| record.headers.last_mut().is_some_and(|(_, value)| change(value.as_mut()))),
    ("a null header", |record| record.headers.last_mut().is_some_and(|(_, value)| absent(value))),
    ("a missing header", |record| record.headers.pop().is_some()),
    ("a doubled header", |record| {
        record.headers.extend(record.headers.last().cloned());
        !record.headers.is_empty()
    }),
    ("headers in another order", |record| {
        let few = record.headers.len() < 2;
        record.headers.rotate_left(usize::from(!few));
        !few
    }),
    ("another timestamp", |record| {
        record.timestamp = record.timestamp.map(|ms| ms + 1);
        true
    }),
];

fn change(bytes: Option<&mut Vec<u8>>) -> bool {
    let last = bytes.and_then(|bytes| bytes.last_mut());
    last.map(|last| *last ^= 0x20).is_some()
}

/// Null becomes empty, and what there is becomes null.
fn absent(bytes: &mut Option<Vec<u8>>) -> bool {
    *bytes = if bytes.is_none() { Some(Vec::new()) } else { None };
    true
}

#[test]
fn any_fault_of_any_record_is_found() {
    let mut applied = [0; FAULTS.len()];
    for variant in Variant::all() {
        let equal = examples(&variant);
        for at in 0..equal.len().min(MOST) {
            for ((name, fault), applied) in FAULTS.iter().zip(&mut applied) {
                let mut got = equal.clone();
                if fault(&mut got[at]) {
                    *applied += 1;
                    assert!(differs(&variant, &got).is_some(), "{name} in record {at} of {}", variant.name);
                }
            }
        }
    }
    assert!(applied.iter().all(|count| *count > 100), "{applied:?}");
}

#[test]
fn a_missing_record_a_doubled_one_and_another_order_are_found() {
    let mut swapped = 0;
    for variant in Variant::all() {
        let equal = examples(&variant);
        let repeats = |at: usize| variant.compare.repeating_topics.contains(&equal[at].topic);
        for at in 0..equal.len().min(MOST) {
            let mut missing = equal.clone();
            missing.remove(at);
            assert!(differs(&variant, &missing).is_some(), "without record {at} of {}", variant.name);
            let mut doubled = equal.clone();
            doubled.insert(at, equal[at].clone());
            assert_eq!(differs(&variant, &doubled).is_some(), !repeats(at), "twice record {at} of {}", variant.name);
            let place = |record: &Record| (record.topic.clone(), record.partition);
            let alike = |a: &Record, b: &Record| (&a.key, &a.value, &a.headers) == (&b.key, &b.value, &b.headers);
            if at > 0 && place(&equal[at]) == place(&equal[at - 1]) && !alike(&equal[at], &equal[at - 1]) {
                let mut reordered = equal.clone();
                reordered.swap(at, at - 1);
                swapped += 1;
                assert!(differs(&variant, &reordered).is_some(), "record {at} before the last one of {}", variant.name);
            }
        }
    }
    assert!(swapped > 100, "{swapped}");
}

#[test]
fn a_difference_names_the_record_and_both_sides() {
    let variants = Variant::numbered("V01");
    let variant = variants.iter().find(|variant| variant.name == "V01_default").expect("it is there");
    let mut got = examples(variant);
    got[1].value = Some(b"{\"n\": 4}".to_vec());
    let difference = differs(variant, &got).expect("it differs");
    let expected = r#"outbox.event.Customer/0, record 2: value: expected "{\"n\": 3}", got "{\"n\": 4}""#;
    assert_eq!(difference, expected);
}
