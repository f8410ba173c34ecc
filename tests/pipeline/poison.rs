//! Events that cannot be sent: each says why, keeps its place, and is never given another topic.

use walpost::pipeline::{
    Lsn,
    outbox::{Outbox, Reason},
};

use crate::{
    encode::{self, Cell, oid, text},
    outbox,
    stream::{Column, Outcome, START, Stream, poison},
};

const COLUMNS: [(&str, u32); 7] = [
    ("id", oid::UUID),
    ("aggregate_type", oid::TEXT),
    ("aggregate_id", oid::TEXT),
    ("region", oid::TEXT),
    ("headers", oid::JSONB),
    ("destination", oid::TEXT),
    ("payload", oid::BYTEA),
];

/// A good row with one column replaced.
fn row_but<'a>(column: &str, cell: Cell<'a>) -> Vec<Column<'a>> {
    let good = [text("e1"), text("order"), text("o-1"), text("eu"), text("{}"), Cell::Null, text("\\x00")];
    let replace = |(name, oid), good| (name, oid, if name == column { cell } else { good });
    COLUMNS.into_iter().zip(good).map(|(column, good)| replace(column, good)).collect()
}

#[track_caller]
fn reason(column: &str, cell: Cell<'_>) -> Reason {
    let outbox = Outbox {
        topic: "${region}.${aggregate_type}".parse().expect("the template is sound"),
        ..outbox::walpost("walpost", "outbox")
    };
    poison(outbox, &row_but(column, cell)).reason
}

#[test]
fn a_poison_event_is_named_by_id_position_and_table() {
    let poison = poison(outbox::walpost("walpost", "Out box"), &row_but("aggregate_type", text("a/b")));
    assert_eq!(
        poison.to_string(),
        "event e1 at position 0000001600000100-00000000 of walpost.\"Out box\" cannot be routed: its topic is \
         \"outbox.event.a/b\"; Kafka allows 1 to 249 of the characters a-z A-Z 0-9 . _ - and neither \".\" nor \"..\" nor \
         its own __consumer_offsets, __transaction_state and __share_group_state"
    );
}

#[test]
fn topics_that_kafka_forbids_are_never_renamed() {
    let illegal = |topic: &str| Reason::IllegalTopic(topic.to_owned());
    let too_long = "x".repeat(250);
    for topic in ["", ".", "..", "a b", "a/b", "caf\u{e9}", "a\nb", "a\0b", "a:b", &too_long] {
        assert_eq!(reason("destination", text(topic)), illegal(topic));
    }
    assert_eq!(reason("aggregate_type", text("x y")), illegal("eu.x y"));
    let just_too_long = "x".repeat(247);
    assert_eq!(reason("aggregate_type", text(&just_too_long)), illegal(&format!("eu.{just_too_long}")));
    let latin1 = Cell::Text(b"caf\xE9");
    assert_eq!(reason("destination", latin1), illegal("caf\u{FFFD}"));
    assert_eq!(reason("aggregate_type", latin1), illegal("caf\u{FFFD}"));
}

#[test]
fn a_null_in_the_template_is_named() {
    assert_eq!(reason("region", Cell::Null), Reason::NullInTopic("region".to_owned()));
    assert_eq!(reason("aggregate_type", Cell::Null), Reason::NullInTopic("aggregate_type".to_owned()));
}

#[test]
fn an_event_needs_an_id() {
    assert_eq!(reason("id", Cell::Null), Reason::NoId);
}

#[test]
fn headers_must_be_an_object() {
    for json in
        ["null", "[]", "\"text\"", "1", "", "{", "{\"a\"}", "{\"a\": }", "{} {}", "{\"a\": 1,}", "{\"\\ud800\": 1}"]
    {
        assert!(matches!(reason("headers", text(json)), Reason::Headers(_)), "{json}");
    }
    assert!(matches!(reason("headers", Cell::Text(b"{\"a\": \"\xE9\"}")), Reason::Headers(_)));
}

#[test]
fn what_a_headers_column_holds_is_in_no_error() {
    for json in ["\"s3cret\"", "[\"s3cret\"]", "s3cret", "{\"a\": s3cret}", "{\"s3cret\"}", "{} s3cret", "{\"s3cret"] {
        let reason = reason("headers", text(json)).to_string();
        assert!(reason.contains("no JSON object") && !reason.contains("s3cret"), "{reason}");
    }
}

#[test]
fn bytea_must_be_pairs_of_hexadecimal_digits() {
    for hex in ["", "\\", "00", "\\x0", "\\x0g", "\\x00 0", "\\\\x00", "\\X00", "\\x\u{e4}"] {
        assert_eq!(reason("payload", text(hex)), Reason::Bytea, "{hex}");
    }
    assert_eq!(reason("payload", Cell::Text(b"\\x\xFF\xFF")), Reason::Bytea);
}

/// G1, G7: nothing that ends at or after it is confirmed while nobody has decided what becomes of it.
#[test]
fn a_poison_event_holds_the_confirmed_position() {
    let mut stream = Stream::new(vec![outbox::walpost("walpost", "outbox")]);
    let cells = |column, cell| row_but(column, cell).iter().map(|(_, _, cell)| *cell).collect::<Vec<_>>();
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &COLUMNS));
    let before = stream.insert(1, &cells("", Cell::Null));
    let Ok(Outcome::Poison(held, _)) = stream.step(&encode::insert(1, &cells("destination", text("a b")))) else {
        panic!("a topic with a space is poison");
    };
    let after = stream.insert(1, &cells("", Cell::Null));
    stream.commit();
    assert_eq!(after.position, "0000001600000100-00000002", "it keeps its ordinal");
    stream.pipeline.acknowledge(before.ticket);
    stream.pipeline.acknowledge(after.ticket);
    stream.begin();
    stream.commit();
    stream.frame(&encode::keepalive(START + 0x10_0000, false)).unwrap();
    assert_eq!(stream.pipeline.confirmed(), Lsn(START));
    stream.pipeline.acknowledge(held);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START + 0x230), "somebody took it: the next commit's end");
}
