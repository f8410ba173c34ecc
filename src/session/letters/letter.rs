//! What an event leaves in the table.

use std::time::SystemTime;

use crate::{
    pipeline::{
        Record,
        outbox::{Poison, Reason},
    },
    postgres::dead_letter::{DeadLetter, ParkKey, ReasonClass},
};

impl DeadLetter {
    /// Of a record that failed, or waits, at `at`, having been sent `attempts` times.
    pub(super) fn of_record(
        record: &Record<'_>,
        class: ReasonClass,
        reason: &str,
        attempts: i32,
        park_key: Option<ParkKey>,
        at: SystemTime,
    ) -> DeadLetter {
        let header = |name: &str| record.headers.get(name);
        DeadLetter {
            position: record.position,
            event_id: header("id").map(text).unwrap_or_default(),
            xid: record.xid,
            source_table: record.table.to_string(),
            aggregate_type: header("aggregate_type").map(text),
            aggregate_id: record.key.map(text),
            event_type: header("event_type").map(text),
            topic: Some(record.topic.to_owned()),
            key: record.key.map(<[u8]>::to_vec),
            payload: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            timestamp_ms: record.timestamp_ms,
            class,
            reason: reason.to_owned(),
            attempts,
            first_failed_at: at,
            last_failed_at: at,
            later_delivered: false,
            park_key,
        }
    }

    /// Of a row that makes no record.
    pub(super) fn of_poison(poison: &Poison, park_key: Option<ParkKey>, at: SystemTime) -> DeadLetter {
        DeadLetter {
            position: poison.position,
            event_id: poison.id.clone(),
            xid: poison.xid,
            source_table: poison.table.to_string(),
            aggregate_type: poison.aggregate_type.as_deref().map(text),
            aggregate_id: poison.aggregate_id.as_deref().map(text),
            event_type: poison.event_type.as_deref().map(text),
            topic: None,
            key: poison.aggregate_id.clone(),
            payload: poison.payload.clone(),
            headers: poison.headers.iter().map(|headers| ("headers".to_owned(), headers.clone())).collect(),
            timestamp_ms: poison.commit_time.unix_ms(),
            class: match poison.reason {
                Reason::IllegalTopic(_) => ReasonClass::InvalidTopic,
                Reason::NoId | Reason::NullInTopic(_) | Reason::Headers(_) | Reason::Bytea => ReasonClass::Unroutable,
            },
            reason: poison.reason.to_string(),
            attempts: 0,
            first_failed_at: at,
            last_failed_at: at,
            later_delivered: false,
            park_key,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
