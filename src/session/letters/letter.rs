//! What an event leaves among the dead letters, and the records that are made of it again.

use std::time::SystemTime;

use crate::{
    debezium::Refusal,
    pipeline::{
        Event, Headers, Record, Ticket,
        outbox::{Poison, Reason, TableName},
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
        DeadLetter {
            position: record.position,
            event_id: text(record.event.id),
            xid: record.xid,
            source_table: record.table.to_string(),
            aggregate_type: record.event.aggregate_type.map(text),
            aggregate_id: record.event.aggregate_id.map(text),
            event_type: record.event.event_type.map(text),
            topic: Some(record.topic.to_owned()),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            payload: record.value.map(<[u8]>::to_vec),
            headers: record.headers.iter().map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec))).collect(),
            timestamp_ms: record.timestamp_ms,
            class,
            reason: reason.to_owned(),
            attempts,
            first_failed_at: at,
            last_failed_at: at,
            later_delivered: park_key.is_none() && record.key.is_some(),
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
            partition: None,
            key: poison.aggregate_id.clone(),
            payload: poison.payload.clone(),
            headers: poison.headers.iter().map(|headers| ("headers".to_owned(), Some(headers.clone()))).collect(),
            timestamp_ms: poison.commit_time.unix_ms(),
            class: match poison.reason {
                Reason::IllegalTopic(_) | Reason::Connector(Refusal::Topic { .. }) => ReasonClass::InvalidTopic,
                Reason::IllegalUrl(_)
                | Reason::ForbiddenHost(_)
                | Reason::DotsInUrl(_)
                | Reason::IllegalRoute(_)
                | Reason::NoId
                | Reason::NullInTopic(_)
                | Reason::Headers(_)
                | Reason::Bytea
                | Reason::NullInType(_)
                | Reason::Attribute { .. }
                | Reason::AttributeHeader
                | Reason::ContentType
                | Reason::NoJson(_)
                | Reason::NoText
                | Reason::Encoding(_)
                | Reason::Untransactional
                | Reason::Malformed(_)
                | Reason::Connector(_) => ReasonClass::Unroutable,
            },
            reason: poison.reason.to_string(),
            attempts: 0,
            first_failed_at: at,
            last_failed_at: at,
            later_delivered: park_key.is_none() && poison.aggregate_id.is_some(),
            park_key,
        }
    }
}

/// Headers that walpost adds to a letter's own.
mod header {
    pub(super) const REPLAY: &str = "replay";
    pub(super) const CLASS: &str = "walpost-error-class";
    pub(super) const REASON: &str = "walpost-error-reason";
    pub(super) const TOPIC: &str = "walpost-error-topic";
    pub(super) const TABLE: &str = "walpost-error-table";
    pub(super) const AT: &str = "walpost-error-at";
}

impl DeadLetter {
    /// Lends the record as it is sent again.
    pub(super) fn replay<T>(&self, ticket: Ticket, to: impl FnOnce(&Record<'_>) -> T) -> T {
        let mut headers = self.headers.clone();
        headers.push((header::REPLAY.to_owned(), Some(b"dead-letter".to_vec())));
        self.lend(ticket, self.topic.as_deref().unwrap_or_default(), self.partition, &headers, to)
    }

    /// Lends the record for the topic of dead letters: key, value and headers of the event, then what is wrong with it.
    pub(super) fn announce<T>(&self, ticket: Ticket, topic: &str, to: impl FnOnce(&Record<'_>) -> T) -> T {
        let mut headers = self.headers.clone();
        let mut add = |name: &str, value: Option<&str>| {
            headers.extend(value.map(|value| (name.to_owned(), Some(value.as_bytes().to_vec()))));
        };
        // A record has these already, a row that makes none has not.
        if self.topic.is_none() {
            add("id", Some(self.event_id.as_str()).filter(|id| !id.is_empty()));
            add("aggregate_type", self.aggregate_type.as_deref());
            add("event_type", self.event_type.as_deref());
            add("position", Some(&self.position.to_string()));
        }
        let at = humantime::format_rfc3339_millis(self.last_failed_at).to_string();
        add(header::CLASS, Some(self.class.word()));
        add(header::REASON, Some(&self.reason));
        add(header::TOPIC, self.topic.as_deref());
        add(header::TABLE, Some(&self.source_table));
        add(header::AT, Some(&at));
        self.lend(ticket, topic, None, &headers, to)
    }

    fn lend<T>(
        &self,
        ticket: Ticket,
        topic: &str,
        partition: Option<i32>,
        headers: &[(String, Option<Vec<u8>>)],
        to: impl FnOnce(&Record<'_>) -> T,
    ) -> T {
        to(&Record {
            ticket,
            position: self.position,
            xid: self.xid,
            table: &TableName::default(),
            event: Event {
                id: self.event_id.as_bytes(),
                aggregate_type: self.aggregate_type.as_deref().map(str::as_bytes),
                aggregate_id: self.aggregate_id.as_deref().map(str::as_bytes),
                event_type: self.event_type.as_deref().map(str::as_bytes),
            },
            topic,
            partition,
            key: self.key.as_deref(),
            value: self.payload.as_deref(),
            timestamp_ms: self.timestamp_ms,
            headers: Headers::new(headers),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
