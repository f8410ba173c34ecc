//! Letters as they are printed. All that they hold was written by others: none of it drives the terminal.

use std::{fmt::Write, time::SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    postgres::dead_letter::Stored,
    printable::{address, insert_bytes, printable},
};

/// One line: when, what became of it, why, and which event.
pub(super) fn as_line(stored: &Stored) -> String {
    let letter = &stored.letter;
    let requested =
        if stored.replay_requested_at.is_some() && stored.settled_at.is_none() { ", replay requested" } else { "" };
    format!(
        "{} {:<9} {:<13} event {} of {}{}{requested}\n",
        time(letter.first_failed_at),
        stored.state,
        letter.class,
        or(Some(&letter.event_id), "without id"),
        aggregate(stored),
        letter.topic.as_ref().map(|topic| format!(" to {}", shown(&address(topic)))).unwrap_or_default(),
    )
}

/// All of it. The payload is text where it is UTF-8, else hexadecimal.
pub(super) fn as_text(stored: &Stored) -> String {
    let letter = &stored.letter;
    let mut text = format!("event {}\n", or(Some(&letter.event_id), "without id"));
    let mut line = |name: &str, value: String| {
        writeln!(text, "  {name:<11} {value}").expect("a String takes all that is written");
    };
    let mut state = stored.state.to_string();
    if let Some(at) = stored.replay_requested_at {
        state += &format!(", replay requested {}", time(at));
    }
    if let Some(at) = stored.settled_at {
        state += &format!(", settled {}", time(at));
    }
    line("state", state);
    line("reason", format!("{}: {}", letter.class, shown(&letter.reason)));
    line(
        "attempts",
        format!("{}, {} to {}", letter.attempts, time(letter.first_failed_at), time(letter.last_failed_at)),
    );
    if letter.later_delivered {
        line("order", "later events of its aggregate were not held up for it".to_owned());
    }
    line("table", shown(&letter.source_table));
    line("aggregate", aggregate(stored));
    line("event type", or(letter.event_type.as_ref(), "none"));
    line("position", format!("{}, transaction {}", letter.position, letter.xid));
    line("slot", format!("{} of system {}", shown(&stored.slot), shown(&stored.system_identifier)));
    line("topic", letter.topic.as_ref().map_or("none".to_owned(), |topic| shown(&address(topic))));
    line("partition", letter.partition.map_or("by key".to_owned(), |partition| partition.to_string()));
    line("key", letter.key.as_deref().map_or("none".to_owned(), bytes));
    let at = Timestamp::from_millisecond(letter.timestamp_ms).ok().filter(|_| letter.timestamp_ms != 0);
    line("timestamp", at.map_or("of sending".to_owned(), |at| format!("{at:.3}")));
    for (name, value) in &letter.headers {
        line("header", format!("{}: {}", shown(name), value.as_deref().map_or("null".to_owned(), bytes)));
    }
    match &letter.payload {
        Some(payload) => line("payload", format!("{} bytes\n{}", payload.len(), bytes(payload))),
        None => line("payload", "null (tombstone)".to_owned()),
    }
    text
}

/// All of it, or all but headers and payload. What is not UTF-8 is in base64, so that nothing is lost.
pub(super) fn as_json(stored: &Stored, bodies: bool) -> Value {
    let letter = &stored.letter;
    let mut object = Map::new();
    let mut insert = |name: &str, value: Value| object.insert(name.to_owned(), value);
    insert("row", stored.id.into());
    insert("event_id", letter.event_id.as_str().into());
    insert("state", stored.state.word().into());
    insert("reason_class", letter.class.word().into());
    insert("reason", letter.reason.as_str().into());
    insert("attempts", letter.attempts.into());
    insert("first_failed_at", time(letter.first_failed_at).into());
    insert("last_failed_at", time(letter.last_failed_at).into());
    insert("replay_requested_at", stored.replay_requested_at.map(time).into());
    insert("settled_at", stored.settled_at.map(time).into());
    insert("later_delivered", letter.later_delivered.into());
    insert("system_identifier", stored.system_identifier.as_str().into());
    insert("slot", stored.slot.as_str().into());
    insert("position", letter.position.to_string().into());
    insert("xid", letter.xid.into());
    insert("source_table", letter.source_table.as_str().into());
    insert("aggregate_type", letter.aggregate_type.clone().into());
    insert("aggregate_id", letter.aggregate_id.clone().into());
    insert("event_type", letter.event_type.clone().into());
    insert("topic", letter.topic.as_ref().map(|topic| address(topic)).into());
    insert("partition", letter.partition.into());
    insert("timestamp_ms", letter.timestamp_ms.into());
    insert_bytes(&mut object, "key", letter.key.as_deref());
    if bodies {
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            let mut object = Map::new();
            object.insert("name".to_owned(), name.as_str().into());
            insert_bytes(&mut object, "value", value.as_deref());
            Value::Object(object)
        };
        object.insert("headers".to_owned(), letter.headers.iter().map(header).collect());
        insert_bytes(&mut object, "payload", letter.payload.as_deref());
    }
    Value::Object(object)
}

fn aggregate(stored: &Stored) -> String {
    let kind = or(stored.letter.aggregate_type.as_ref(), "aggregate");
    format!("{kind} {}", or(stored.letter.aggregate_id.as_ref(), "none"))
}

fn or(text: Option<&String>, absent: &str) -> String {
    text.filter(|text| !text.is_empty()).map_or_else(|| absent.to_owned(), |text| shown(text))
}

fn shown(text: &str) -> String {
    printable(text.as_bytes())
}

fn bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => shown(text),
        Err(_) => bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a String takes all that is written");
            text
        }),
    }
}

/// RFC 3339, in UTC, to the millisecond.
fn time(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| "unknown".to_owned(), |at| format!("{at:.3}"))
}
