//! The ids of the events that topics hold, between their beginnings and their present ends.
//!
//! Partitions are read one after the other, without a group. Only what is committed counts.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers, Message},
};

use crate::pipeline::outbox::cloudevents_text::is_envelope;

use super::{
    client::{self, Reasons},
    tail::{TailError, passes},
    topics::Pattern,
};

/// How long one question to the brokers may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How long one poll rests without records.
const POLL: Duration = Duration::from_millis(100);

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Offsets that were passed, of so many.
    pub read: u64,
    pub total: u64,
    /// Time ran out before the end, which may be another producer's open transaction that hides it.
    pub stopped: bool,
    /// Topics whose first records are gone: what is older than this may have been among them, in milliseconds since 1970.
    /// `i64::MAX`: nothing is left to tell by.
    pub cut: BTreeMap<String, i64>,
}

struct Part {
    topic: String,
    partition: i32,
    first: i64,
    end: i64,
}

/// Hands the `id` of each record to `found`. Blocks; `told` hears how far it is.
pub fn scan(
    properties: &ClientConfig,
    patterns: &[Pattern],
    within: Duration,
    mut found: impl FnMut(&[u8]),
    mut told: impl FnMut(&Scan),
) -> Result<Scan, TailError> {
    let deadline = Instant::now() + within;
    let consumer = |isolation| -> Result<BaseConsumer<Reasons>, KafkaError> {
        let mut properties = properties.clone();
        properties.set("isolation.level", isolation).set("enable.partition.eof", "true");
        properties.create_with_context(Reasons::default())
    };
    let (uncommitted, committed) = (consumer("read_uncommitted")?, consumer("read_committed")?);
    let parts = parts(&uncommitted, patterns)?;
    let total = parts.iter().map(|part| (part.end - part.first).unsigned_abs()).sum();
    let mut scan = Scan { total, ..Scan::default() };
    for part in parts {
        let before = scan.read;
        let mut oldest = i64::MAX;
        if part.first < part.end {
            // An open transaction of another stream hides what was committed after it began, until it ends.
            while committed.fetch_watermarks(&part.topic, part.partition, ANSWER)?.1 < part.end {
                if Instant::now() > deadline {
                    scan.stopped = true;
                    return Ok(scan);
                }
                std::thread::sleep(POLL);
            }
            let mut assignment = TopicPartitionList::new();
            assignment.add_partition_offset(&part.topic, part.partition, Offset::Offset(part.first))?;
            committed.assign(&assignment)?;
            loop {
                if Instant::now() > deadline {
                    scan.stopped = true;
                    return Ok(scan);
                }
                let next = match committed.poll(POLL) {
                    Some(Ok(record)) if record.offset() < part.end => {
                        let (id, again) = identity(&record);
                        id.iter().for_each(|id| found(id));
                        if !again {
                            oldest = oldest.min(record.timestamp().to_millis().unwrap_or(i64::MAX));
                        }
                        record.offset() + 1
                    }
                    Some(Ok(_)) => part.end,
                    Some(Err(KafkaError::PartitionEOF(_))) => part.end,
                    None => continue,
                    Some(Err(error)) if passes(&error) => continue,
                    Some(Err(error)) => return Err(error.into()),
                };
                scan.read = before + (next - part.first).unsigned_abs();
                told(&scan);
                if next >= part.end {
                    break;
                }
            }
        }
        if part.first > 0 {
            let cut = scan.cut.entry(part.topic).or_insert(oldest);
            *cut = oldest.max(*cut);
        }
    }
    Ok(scan)
}

fn parts(client: &BaseConsumer<Reasons>, patterns: &[Pattern]) -> Result<Vec<Part>, TailError> {
    let metadata = client::metadata(client, ANSWER)?;
    let mut parts = Vec::new();
    for topic in metadata.topics().iter().filter(|topic| patterns.iter().any(|one| one.matches(topic.name()))) {
        for partition in topic.partitions() {
            let (first, end) = client.fetch_watermarks(topic.name(), partition.id(), ANSWER)?;
            parts.push(Part { topic: topic.name().to_owned(), partition: partition.id(), first, end });
        }
    }
    Ok(parts)
}

/// The event's id, and whether the record was sent for the second time, and so bears an earlier time than its neighbours.
fn identity<'a>(record: &'a BorrowedMessage<'_>) -> (Option<Cow<'a, [u8]>>, bool) {
    let Some(headers) = record.headers() else { return (None, false) };
    let again = headers.iter().any(|header| matches!(header.key, "replay" | "recovered"));
    let named =
        |name| headers.iter().find(|header| header.key == name).and_then(|header| header.value).map(Cow::Borrowed);
    // walpost's own headers come first, and those of each format begin with another one.
    let first = headers.iter().next();
    let id = match first.map(|first| (first.key, first.value.and_then(|value| std::str::from_utf8(value).ok()))) {
        Some(("ce_specversion", _)) => named("ce_id"),
        Some(("content-type", Some(media_type))) if is_envelope(media_type) => record.payload().and_then(enclosed),
        _ => named("id"),
    };
    (id, again)
}

/// The id of an event in structured mode.
fn enclosed(json: &[u8]) -> Option<Cow<'_, [u8]>> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        id: String,
    }
    serde_json::from_slice(json).ok().map(|Envelope { id }| Cow::Owned(id.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_envelope_is_found_whatever_the_payload() {
        let id = |json: &str| enclosed(json.as_bytes()).map(Cow::into_owned);
        assert_eq!(id(r#"{"specversion":"1.0","id":"\u00e9\"","data":{"id":[1]}}"#), Some("é\"".as_bytes().to_vec()));
        assert_eq!(id("{}"), None);
        assert_eq!(id("no JSON"), None);
    }
}
