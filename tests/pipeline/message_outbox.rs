//! Outboxes without a table: what a message says becomes the record that a row would, or is poison that says why not.

use proptest::{collection::vec, prelude::*, sample::select};
use walpost::pipeline::{
    Error, Limits, Lsn, OnUpdate, PgTime, Pipeline,
    message::Malformed,
    outbox::{Outbox, Poison, Reason, Timestamp},
    resume::Resume,
    source_of,
};

use crate::{
    encode::{self, Cell, oid, text},
    outbox::{self, messages},
    stream::{COMMIT_TIME_UNIX_MS, Outcome, START, Sent, Stream},
};

const COLUMNS: [(&str, u32); 10] = [
    ("id", oid::UUID),
    ("aggregate_type", oid::TEXT),
    ("aggregate_id", oid::TEXT),
    ("event_type", oid::TEXT),
    ("payload", oid::JSONB),
    ("headers", oid::JSONB),
    ("destination", oid::TEXT),
    ("idempotency_key", oid::TEXT),
    ("occurred_at", oid::TIMESTAMPTZ),
    ("traceparent", oid::TEXT),
];

fn stream_of(outbox: Outbox) -> Stream {
    let limits = Limits { records: 1_000, bytes: 1 << 20 };
    let mut pipeline = Pipeline::new(vec![outbox::walpost("walpost", "outbox")], OnUpdate::Ignore, Lsn(START), limits);
    pipeline.take_messages(&[messages("other"), outbox]);
    Stream::of(pipeline)
}

fn message(content: &str) -> Vec<u8> {
    encode::logical(true, START, "outbox", content.as_bytes())
}

fn outcome(outbox: Outbox, content: &[u8]) -> Outcome {
    let mut stream = stream_of(outbox);
    stream.begin();
    stream.step(&encode::logical(true, START, "outbox", content)).expect("the message can be read")
}

#[track_caller]
fn sent(outbox: Outbox, content: &str) -> Sent {
    match outcome(outbox, content.as_bytes()) {
        Outcome::Sent(sent) => sent,
        other => panic!("the message became {other:?}"),
    }
}

#[track_caller]
fn poison(content: &[u8]) -> Poison {
    match outcome(messages("outbox"), content) {
        Outcome::Poison(_, poison) => poison,
        other => panic!("the message became {other:?}"),
    }
}

/// A good event with more members.
fn with(more: &str) -> String {
    format!(r#"{{"id": "e1", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "Placed"{more}}}"#)
}

#[test]
fn a_message_becomes_the_record_of_a_row_with_the_same_values() {
    let values = [
        "e1",
        "order",
        "o-1",
        "Placed",
        r#"{"b": [1.50, null],  "a": "\u00e9"}"#,
        r#"{"tenant": "eu", "n": {"x": 1}}"#,
        "shop.orders",
        "place-1",
        "2026-01-31 08:15:00.25+00",
        "00-4bf9",
    ];
    let content = format!(
        r#" {{"traceparent": "00-4bf9", "payload": {}, "headers":{}, "id":"e1", "aggregate_type": "order",
            "aggregate_id": "o-1", "event_type": "Pl\u0061ced", "destination": "shop.orders",
            "idempotency_key": "place-1", "occurred_at": "2026-01-31T10:15:00.25+02:00"}} "#,
        values[4], values[5]
    );
    let mut stream = stream_of(messages("outbox"));
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &COLUMNS));
    let of_row = stream.insert(1, &values.map(text));
    let Outcome::Sent(of_message) = stream.step(&message(&content)).expect("it can be read") else { panic!() };
    let position = "0000001600000100-00000001".to_owned();
    let mut expected = Sent { ticket: of_message.ticket, position: position.clone(), ..of_row };
    expected.headers.iter_mut().filter(|(name, _)| name == "position").for_each(|(_, value)| {
        *value = position.clone().into_bytes();
    });
    assert_eq!(of_message, expected);
    assert_eq!(of_message.value.as_deref(), Some(values[4].as_bytes()), "as it is written");
    assert_eq!(of_message.header("occurred_at"), Some("2026-01-31T08:15:00.250000Z"));
    assert_eq!(stream.pipeline.counters().events, [1, 0, 1]);
}

#[test]
fn a_sparse_message_has_what_a_row_with_nulls_has() {
    let sent =
        sent(messages("outbox"), r#"{"id": 42, "aggregate_type": "order", "aggregate_id": null, "headers": null}"#);
    assert_eq!((sent.key.as_deref(), sent.value.as_deref()), (None, None));
    let names: Vec<_> = sent.headers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["id", "aggregate_type", "position"]);
    assert_eq!((sent.header("id"), sent.timestamp_ms), (Some("42"), COMMIT_TIME_UNIX_MS));
}

#[test]
fn any_json_is_a_payload_and_only_its_absence_a_tombstone() {
    for payload in ["null", "1e400", "\"x\"", "[]", "{\"a\":1,\"a\":2}", "\"\\ud800\"", "12345678901234567890.10"] {
        let sent = sent(messages("outbox"), &with(&format!(", \"payload\": {payload} ")));
        assert_eq!(sent.value.as_deref(), Some(payload.as_bytes()));
    }
    assert_eq!(sent(messages("outbox"), &with("")).value, None);
    assert_eq!(sent(messages("outbox"), &with(r#", "payload_base64": null"#)).value, None);
}

#[test]
fn base64_gives_bytes_as_postgresql_breaks_its_lines() {
    let bytes = |json: &str| sent(messages("outbox"), &with(&format!(", \"payload_base64\": {json}"))).value;
    assert_eq!(bytes(r#""AP8=""#), Some(vec![0, 0xFF]));
    assert_eq!(bytes(r#""AP\n8=\n""#), Some(vec![0, 0xFF]));
    assert_eq!(bytes(r#""""#), Some(vec![]));
    for wrong in ["\"AP8\"", "\"A*8=\"", "5", "[]"] {
        let wanted = "a string of base64";
        assert_eq!(malformed(&with(&format!(", \"payload_base64\": {wrong}"))), kind("payload_base64", wanted));
    }
}

#[track_caller]
fn malformed(content: &str) -> Malformed {
    match poison(content.as_bytes()).reason {
        Reason::Malformed(malformed) => malformed,
        other => panic!("poison for another reason: {other:?}"),
    }
}

fn kind(member: &str, wanted: &'static str) -> Malformed {
    Malformed::Kind { member: member.to_owned(), wanted }
}

#[test]
fn what_is_no_event_is_poison_that_names_what_is_wrong() {
    for no_object in ["", "[]", "\"x\"", "{", "{} {}", "{\"id\": 'x'}", "null"] {
        assert!(matches!(malformed(no_object), Malformed::NoObject(_)), "{no_object}");
    }
    assert!(matches!(poison(b"{\"id\": \"\xFF\"}").reason, Reason::Malformed(Malformed::NoObject(_))));
    assert_eq!(malformed("{}"), Malformed::NoId);
    assert_eq!(malformed(r#"{"id": null}"#), Malformed::NoId);
    assert_eq!(malformed(&with(r#", "agregate_id": "x""#)), Malformed::Unknown("agregate_id".to_owned()));
    assert_eq!(malformed(&with(&format!(", \"{}\": 1", "n".repeat(500)))), Malformed::Unknown("n".repeat(64)));
    assert_eq!(malformed(&with(r#", "id": "e2""#)), Malformed::Twice("id".to_owned()));
    assert_eq!(malformed(&with(r#", "payload": 1, "payload": 1"#)), Malformed::Twice("payload".to_owned()));
    assert_eq!(malformed(&with(r#", "payload": 1, "payload_base64": """#)), Malformed::TwoPayloads);
    assert_eq!(malformed(&with(r#", "headers": []"#)), kind("headers", "a JSON object"));
    for wrong in ["true", "{}", "[\"x\"]"] {
        assert_eq!(
            malformed(&with(&format!(", \"destination\": {wrong}"))),
            kind("destination", "a string or a number")
        );
    }
    let nul = malformed(&with(r#", "traceparent": "a\u0000b""#));
    assert!(matches!(nul, Malformed::Kind { .. }), "{nul:?}");
}

#[test]
fn times_have_an_offset_and_fit_into_four_digits() {
    let at = |time: &str| {
        let outbox = Outbox { timestamp: Timestamp::Column, ..messages("outbox") };
        let sent = sent(outbox, &with(&format!(", \"occurred_at\": \"{time}\"")));
        (sent.header("occurred_at").expect("it is there").to_owned(), sent.timestamp_ms)
    };
    let quarter_past = ("2026-01-31T08:15:00.000000Z".to_owned(), 1_769_847_300_000);
    for time in ["2026-01-31T08:15:00Z", "2026-01-31 08:15:00+00", "2026-01-31T03:15:00-05:00"] {
        assert_eq!(at(time), quarter_past, "{time}");
    }
    assert_eq!(at("2026-01-31T08:14:59.9999996Z"), quarter_past, "rounded as PostgreSQL does");
    assert_eq!(at("infinity"), ("infinity".to_owned(), COMMIT_TIME_UNIX_MS));
    for wrong in ["2026-01-31T08:15:00", "yesterday", "", "10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"] {
        let content = with(&format!(", \"occurred_at\": \"{wrong}\""));
        assert!(matches!(malformed(&content), Malformed::Kind { .. }), "{wrong}");
    }
}

#[test]
fn poison_keeps_all_that_is_known_and_the_whole_message() {
    let content = with(r#", "headers": [], "payload": {"a": 1}, "x": 1"#);
    let poison = poison(content.as_bytes());
    let known = [&poison.aggregate_type, &poison.aggregate_id, &poison.event_type].map(|part| part.as_deref());
    assert_eq!(known, [Some(&b"order"[..]), Some(b"o-1"), Some(b"Placed")]);
    assert_eq!(poison.payload.as_deref(), Some(content.as_bytes()));
    assert_eq!(
        poison.to_string(),
        "event e1 at position 0000001600000100-00000000 of pg_logical_emit_message.outbox cannot be routed: the message's \
         member \"headers\" is not a JSON object"
    );
    assert_eq!(poison.xid, 731);
}

#[test]
fn an_event_that_cannot_be_routed_is_poison_as_a_row_is() {
    let poison = poison(br#"{"id": "e1", "aggregate_type": "a/b", "payload_base64": "AP8="}"#);
    assert_eq!(poison.reason, Reason::IllegalTopic("outbox.event.a/b".to_owned()));
    assert_eq!(poison.payload.as_deref(), Some(&b"\\x00ff"[..]));
}

#[test]
fn a_template_may_name_a_member_of_its_own() {
    let outbox = Outbox { topic: "${region}.orders".parse().expect("it is sound"), ..messages("outbox") };
    assert_eq!(sent(outbox.clone(), &with(r#", "region": "eu""#)).topic, "eu.orders");
    let Outcome::Poison(_, poison) = outcome(outbox, with("").as_bytes()) else { panic!() };
    assert_eq!(poison.reason, Reason::NullInTopic("region".to_owned()));
}

#[test]
fn messages_under_other_prefixes_are_no_events() {
    let mut stream = stream_of(messages("outbox"));
    stream.begin();
    for prefix in ["Outbox", "", "outbox2", "walpost.outbox"] {
        stream.quiet(&encode::logical(true, START, prefix, b"{}"));
    }
    let other = stream.step(&encode::logical(true, START, "other", with("").as_bytes())).expect("it can be read");
    assert!(matches!(&other, Outcome::Sent(sent) if sent.position.ends_with("-00000000")), "{other:?}");
    stream.commit();
    stream.quiet(&encode::logical(false, START, "elsewhere", b"{}"));
}

#[test]
fn a_message_that_is_not_transactional_is_poison_by_rule() {
    let mut stream = stream_of(messages("outbox"));
    stream.pipeline.clock(PgTime::from_unix_us(COMMIT_TIME_UNIX_MS * 1_000));
    let outcome = stream.step(&encode::logical(false, START + 0x80, "outbox", with("").as_bytes()));
    let Ok(Outcome::Poison(ticket, poison)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((poison.reason, poison.table), (Reason::Untransactional, source_of("outbox")));
    assert_eq!(poison.position.to_string(), "0000001600000080-00000000");
    assert_eq!(poison.commit_time.unix_ms(), COMMIT_TIME_UNIX_MS);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START), "it holds its place");
    stream.pipeline.acknowledge(ticket);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x80));
    stream.begin();
    assert!(matches!(stream.step(&encode::logical(false, START, "outbox", b"{}")), Err(Error::Order(_))));
}

#[test]
fn a_transactional_message_outside_a_transaction_breaks_the_order() {
    assert!(matches!(stream_of(messages("outbox")).step(&message(&with(""))), Err(Error::Order(_))));
}

#[test]
fn what_the_sink_has_already_is_passed_over_malformed_or_not() {
    let mut stream = stream_of(messages("outbox"));
    let place = "0000001600000100-00000002".parse().expect("it is a position");
    stream.pipeline.resume(Resume::below(place));
    stream.begin();
    stream.quiet(&message(&with("")));
    stream.quiet(&message("{}"));
    assert!(matches!(stream.step(&message(&with(""))), Ok(Outcome::Sent(_))));
}

#[test]
fn rows_and_messages_of_a_transaction_keep_their_order_and_hold_their_place() {
    let mut stream = stream_of(messages("outbox"));
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &COLUMNS));
    let row = [
        text("r"),
        text("t"),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::Null,
    ];
    let first = stream.insert(1, &row);
    let Ok(Outcome::Sent(second)) = stream.step(&message(&with(""))) else { panic!() };
    let third = stream.insert(1, &row);
    stream.commit();
    assert!(first.position < second.position && second.position < third.position);
    for sent in [first, third] {
        stream.pipeline.acknowledge(sent.ticket);
    }
    assert_eq!(stream.pipeline.confirmed(), Lsn(START));
    stream.pipeline.acknowledge(second.ticket);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x130));
}

proptest! {
    #[test]
    fn any_content_is_an_event_or_poison(pieces in vec(select(vec![
        "{", "}", "[", "\"id\"", "\"payload\"", "\"payload_base64\"", "\"occurred_at\"", "\"headers\"", ":", ":", ",", "1", "null",
        "\"x\"", "\"\\ud800\"", "\"2026-01-31T08:15:00Z\"", " ", "\\", "\u{e9}",
    ]), 0..20), bytes in vec(any::<u8>(), 0..4)) {
        let mut content = pieces.concat().into_bytes();
        content.extend(bytes);
        for content in [content.as_slice(), &[b"{\"id\": 1, \"aggregate_type\": \"t\", ", content.as_slice(), b"}"].concat()] {
            let outcome = outcome(messages("outbox"), content);
            prop_assert!(matches!(outcome, Outcome::Sent(_) | Outcome::Poison(..)), "{:?}", outcome);
        }
    }
}
