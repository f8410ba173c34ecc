//! A record as a message.

use std::collections::BTreeMap;

use lapin::{
    BasicProperties,
    types::{AMQPValue, ShortString},
};

use crate::{pipeline::Record, sink::content_type::content_type};

/// Kept on disk by queues that are durable.
const PERSISTENT: u8 = 2;

/// Says that the record had no value, which an empty body alone does not.
const TOMBSTONE: &str = "tombstone";

/// What is published, and where.
#[derive(Clone, Debug)]
pub struct Message {
    /// Empty: the default exchange, whose routing keys are the names of queues.
    pub exchange: ShortString,
    pub routing_key: ShortString,
    /// The correlation id is unique among the messages under way: it is what a returned message is known by.
    pub properties: BasicProperties,
    pub body: Vec<u8>,
}

/// Why a record makes no message. No value is repeated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Flaw {
    #[error("destination {0:?} has no slash between exchange and routing key")]
    Destination(String),
    #[error("the {part} has {len} bytes, and AMQP allows 255")]
    Long { part: &'static str, len: usize },
}

impl Message {
    /// Exchange and routing key are the two parts of the topic, the position is the correlation id, and headers go to the
    /// table of headers: as texts, as bytes where they are no UTF-8, without a value where they are null. Of two with one
    /// name the last one holds. Properties that are longer than AMQP allows are left out; the headers have them.
    pub fn of(record: &Record<'_>) -> Result<Message, Flaw> {
        let (exchange, routing_key) =
            record.topic.split_once('/').ok_or_else(|| Flaw::Destination(record.topic.to_owned()))?;
        let mut headers = BTreeMap::new();
        for (name, value) in record.headers.iter() {
            headers.insert(short("name of a header", name)?, of_header(value));
        }
        if record.value.is_none() {
            headers.insert(TOMBSTONE.into(), AMQPValue::Boolean(true));
        }
        let position = String::from_utf8(record.position.text().into()).expect("positions are ASCII");
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_app_id("walpost".into())
            .with_correlation_id(position.into())
            .with_headers(headers.into());
        if let Some(id) = property(record.event.id) {
            properties = properties.with_message_id(id);
        }
        if let Some(event_type) = record.event.event_type.and_then(property) {
            properties = properties.with_type(event_type);
        }
        if let Some(content_type) = content_type(record).and_then(property) {
            properties = properties.with_content_type(content_type);
        }
        if let Some(seconds) = u64::try_from(record.timestamp_ms / 1000).ok().filter(|seconds| *seconds > 0) {
            properties = properties.with_timestamp(seconds);
        }
        Ok(Message {
            exchange: short("name of the exchange", exchange)?,
            routing_key: short("routing key", routing_key)?,
            properties,
            body: record.value.unwrap_or_default().to_vec(),
        })
    }

    /// What it is known by when it comes back.
    pub(super) fn identity(&self) -> ShortString {
        self.properties.correlation_id().clone().unwrap_or_default()
    }

    /// Most bytes that the frame of its properties takes; no message may have more than one.
    pub(super) fn header_frame_size(&self) -> usize {
        // Frame, class, size of the body, flags, and all properties that are neither a text nor a table.
        const FIXED: usize = 8 + 2 + 2 + 8 + 2 + 1 + 1 + 8;
        let texts = [
            self.properties.content_type(),
            self.properties.correlation_id(),
            self.properties.message_id(),
            self.properties.kind(),
            self.properties.app_id(),
        ];
        let texts: usize = texts.into_iter().flatten().map(|text| 1 + text.as_str().len()).sum();
        let headers = self.properties.headers().iter().flatten();
        let headers: usize = headers.map(|(name, value)| 1 + name.as_str().len() + 1 + size(value)).sum();
        FIXED + texts + 4 + headers
    }
}

fn short(part: &'static str, text: &str) -> Result<ShortString, Flaw> {
    ShortString::try_new(text).map_err(|_| Flaw::Long { part, len: text.len() })
}

fn property(value: &[u8]) -> Option<ShortString> {
    ShortString::try_new(std::str::from_utf8(value).ok()?).ok()
}

fn of_header(value: Option<&[u8]>) -> AMQPValue {
    match value {
        None => AMQPValue::Void,
        Some(text) if std::str::from_utf8(text).is_ok() => AMQPValue::LongString(text.to_vec().into()),
        Some(bytes) => AMQPValue::ByteArray(bytes.to_vec().into()),
    }
}

/// Of the kinds of values that [`of_header`] makes.
fn size(value: &AMQPValue) -> usize {
    match value {
        AMQPValue::LongString(text) => 4 + text.as_bytes().len(),
        AMQPValue::ByteArray(bytes) => 4 + bytes.len(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{Event, Headers, Lsn, Position, Ticket, outbox::TableName};

    fn of(topic: &str, value: Option<&[u8]>, id: &str, headers: &[(String, Option<Vec<u8>>)]) -> Result<Message, Flaw> {
        let table: TableName = "t".parse().unwrap();
        Message::of(&Record {
            ticket: Ticket(0),
            position: Position { commit_lsn: Lsn(0x1_0000_00ab), ordinal: 7 },
            xid: 1,
            table: &table,
            event: Event { id: id.as_bytes(), event_type: Some(b"placed"), ..Event::default() },
            topic,
            partition: None,
            key: Some(b"k"),
            value,
            timestamp_ms: 1_700_000_000_999,
            headers: Headers::new(headers),
        })
    }

    fn headers(pairs: &[(&str, Option<&[u8]>)]) -> Vec<(String, Option<Vec<u8>>)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec))).collect()
    }

    #[test]
    fn a_record_is_a_persistent_message_that_says_who_it_is() {
        let own = headers(&[("a", Some(b"1")), ("b", Some(b"\xff")), ("c", None), ("a", Some(b"2"))]);
        let message = of("orders/new/eu", Some(b" {} "), "e-1", &own).unwrap();
        assert_eq!((message.exchange.as_str(), message.routing_key.as_str()), ("orders", "new/eu"));
        assert_eq!(message.body, b" {} ");
        assert_eq!(message.identity().as_str(), "00000001000000AB-00000007");
        let properties = &message.properties;
        assert_eq!(*properties.delivery_mode(), Some(PERSISTENT));
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), "e-1");
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "placed");
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert_eq!(*properties.timestamp(), Some(1_700_000_000));
        let table = properties.headers().as_ref().unwrap().inner();
        let expected = [
            ("a", AMQPValue::LongString("2".into())),
            ("b", AMQPValue::ByteArray(vec![0xff].into())),
            ("c", AMQPValue::Void),
        ];
        assert_eq!(*table, BTreeMap::from(expected.map(|(name, value)| (name.into(), value))));
    }

    #[test]
    fn a_tombstone_is_marked_and_an_empty_payload_is_not() {
        let is_marked = |value| {
            let message = of("/q", value, "e", &[]).unwrap();
            assert_eq!(message.body, b"");
            message.properties.headers().as_ref().unwrap().contains_key(TOMBSTONE)
        };
        assert!(is_marked(None));
        assert!(!is_marked(Some(b"")));
    }

    #[test]
    fn the_content_type_is_the_row_s_or_told_by_the_payload() {
        let own = headers(&[("Content-Type", Some(b"text/csv"))]);
        for (value, headers, content_type) in [
            (Some(&b"{}"[..]), &own[..], Some("text/csv")),
            (Some(b"12.5"), &[], Some("application/json")),
            (Some(b"{\xff}"), &[], Some("application/octet-stream")),
            (None, &own, None),
        ] {
            let message = of("/q", value, "e", headers).unwrap();
            assert_eq!(message.properties.content_type().as_ref().map(|it| it.as_str()), content_type);
        }
    }

    #[test]
    fn what_is_too_long_for_amqp_is_left_to_the_headers_or_refused() {
        let long = "x".repeat(256);
        assert_eq!(*of("/q", None, &long, &[]).unwrap().properties.message_id(), None);
        assert_eq!(of(&format!("/{long}"), None, "e", &[]).unwrap_err(), Flaw::Long { part: "routing key", len: 256 });
        assert!(of(&format!("{long}/"), None, "e", &[]).is_err());
        assert!(of("/q", None, "e", &headers(&[(&long, None)])).is_err());
        assert_eq!(of("q", None, "e", &[]).unwrap_err(), Flaw::Destination("q".to_owned()));
    }
}
