//! Tables that change while the stream runs, tables beside the outbox, and tables that cannot be one.

use walpost::pipeline::{
    Error,
    outbox::{Outbox, Timestamp},
};

use crate::{
    encode::{self, Cell, oid, text},
    outbox,
    stream::{Outcome, Stream},
};

fn outbox() -> Outbox {
    outbox::walpost("walpost", "outbox")
}

const FOUR: [(&str, u32); 4] =
    [("id", oid::UUID), ("aggregate_type", oid::TEXT), ("aggregate_id", oid::TEXT), ("payload", oid::JSONB)];
const ROW: [Cell<'static>; 4] = [Cell::Text(b"e1"), Cell::Text(b"order"), Cell::Text(b"o-1"), Cell::Text(b"{}")];

#[track_caller]
fn missing(outbox: Outbox, columns: &[(&str, u32)]) -> String {
    let relation = encode::relation(1, "walpost", "outbox", columns);
    let mut stream = Stream::new(vec![outbox]);
    stream.begin();
    match stream.step(&relation) {
        Err(error @ Error::MissingColumn(_)) => error.to_string(),
        other => panic!("the relation gave {other:?}"),
    }
}

#[test]
fn a_missing_column_is_named_with_its_part_and_with_what_is_there() {
    assert_eq!(
        missing(
            outbox(),
            &[("id", oid::UUID), ("order_id", oid::TEXT), ("payload", oid::JSONB), ("aggregate_type", oid::TEXT)]
        ),
        "the outbox walpost.outbox has no column \"aggregate_id\", which aggregate_id needs (it has: id, order_id, payload, \
         aggregate_type); add the column to the table and to the publication's column list, or name another in the configuration"
    );
    for (left_out, part) in [
        ("id", "which id needs"),
        ("payload", "which payload needs"),
        ("aggregate_id", "which aggregate_id needs"),
        ("aggregate_type", "which the topic template needs"),
    ] {
        let columns: Vec<_> = FOUR.into_iter().filter(|(name, _)| *name != left_out).collect();
        let message = missing(outbox(), &columns);
        assert!(message.contains(&format!("no column {left_out:?}, {part}")), "{message}");
    }
}

#[test]
fn an_optional_column_that_the_configuration_names_must_be_there() {
    let mut named = outbox();
    named.columns.headers.named = true;
    assert!(missing(named, &FOUR).contains("no column \"headers\", which headers needs"));
    let by_time = Outbox { timestamp: Timestamp::Column, ..outbox() };
    assert!(missing(by_time, &FOUR).contains("no column \"occurred_at\", which record.timestamp = \"column\" needs"));
}

#[test]
fn a_column_dropped_and_another_of_its_name_added_are_told_apart() {
    let before = [
        ("id", oid::UUID),
        ("event_type", oid::ENUM),
        ("seq", oid::INT8),
        ("aggregate_type", oid::TEXT),
        ("aggregate_id", oid::TEXT),
        ("payload", oid::JSONB),
        ("headers", oid::JSONB),
        ("occurred_at", oid::TIMESTAMPTZ),
    ];
    let mut after: Vec<_> = before.into_iter().filter(|(name, _)| *name != "event_type").collect();
    after.push(("event_type", oid::INT8));
    let mut stream = Stream::new(vec![outbox()]);
    stream.begin();
    stream.quiet(&encode::type_name(oid::ENUM, "public", "kind"));
    stream.quiet(&encode::relation(1, "walpost", "outbox", &before));
    let time = text("2026-01-31 08:15:00+00");
    let first = stream
        .insert(1, &[text("e1"), text("placed"), text("1"), text("order"), text("o-1"), text("{}"), Cell::Null, time]);
    // In the same transaction, as ALTER TABLE may be.
    stream.quiet(&encode::relation(1, "walpost", "outbox", &after));
    let second =
        stream.insert(1, &[text("e2"), text("2"), text("order"), text("o-2"), text("{}"), Cell::Null, time, text("7")]);
    stream.commit();
    for (sent, key, event_type) in [(&first, "o-1", "placed"), (&second, "o-2", "7")] {
        assert_eq!(sent.key.as_deref(), Some(key.as_bytes()));
        assert_eq!(sent.value.as_deref(), Some(&b"{}"[..]));
        assert_eq!(sent.header("event_type"), Some(event_type));
        assert_eq!(sent.header("occurred_at"), Some("2026-01-31T08:15:00.000000Z"));
    }
    assert_eq!(second.position, "0000001600000100-00000001");
}

#[test]
fn generated_columns_may_come_before_the_payload_or_stay_away() {
    let generated = [("total", oid::INT8), ("kind", oid::TEXT)];
    let with: Vec<_> = [&FOUR[..3], &generated, &FOUR[3..]].concat();
    let mut stream = Stream::new(vec![outbox()]);
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &with));
    let with = stream.insert(1, &[&ROW[..3], &[text("12"), Cell::Null], &ROW[3..]].concat());
    stream.quiet(&encode::relation(1, "walpost", "outbox", &FOUR));
    let without = stream.insert(1, &ROW);
    assert_eq!((with.key, with.value), (without.key, without.value));
}

#[test]
fn two_outboxes_keep_their_layouts_and_share_the_order_of_a_transaction() {
    let mut audit = outbox::debezium("Audit", "log");
    audit.topic = "audit".parse().unwrap();
    let mut stream = Stream::new(vec![outbox(), audit]);
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &FOUR));
    stream.quiet(&encode::relation(
        2,
        "Audit",
        "log",
        &[("payload", oid::BYTEA), ("aggregateid", oid::INT8), ("id", oid::INT8)],
    ));
    let first = stream.insert(2, &[text("\\x01"), text("7"), text("1")]);
    let second = stream.insert(1, &ROW);
    let third = stream.insert(2, &[text("\\x02"), text("8"), text("2")]);
    stream.commit();
    assert_eq!([&first, &second, &third].map(|sent| sent.topic.as_str()), ["audit", "outbox.event.order", "audit"]);
    assert_eq!((first.value.as_deref(), third.value.as_deref()), (Some(&[1][..]), Some(&[2][..])));
    assert_eq!(
        [&first, &second, &third].map(|sent| sent.position.as_str()),
        ["0000001600000100-00000000", "0000001600000100-00000001", "0000001600000100-00000002"]
    );
    assert_eq!(stream.pipeline.counters().events, [1, 2]);
    assert_eq!(stream.pipeline.counters().transactions, 1);
}

#[test]
fn names_are_compared_exactly() {
    let mut stream = Stream::new(vec![outbox()]);
    stream.begin();
    for (id, schema, table) in [(1, "Walpost", "outbox"), (2, "walpost", "Outbox"), (3, "public", "outbox")] {
        stream.quiet(&encode::relation(id, schema, table, &[]));
        let outcome = stream.step(&encode::insert(id, &[])).unwrap();
        assert!(matches!(outcome, Outcome::Ignored(_)), "{outcome:?}");
    }
}

#[test]
fn a_table_beside_the_outbox_takes_no_ordinal() {
    let mut stream = Stream::new(vec![outbox()]);
    stream.begin();
    stream.quiet(&encode::relation(1, "walpost", "outbox", &FOUR));
    stream.quiet(&encode::relation(2, "public", "orders", &[("id", oid::INT8)]));
    let first = stream.insert(1, &ROW);
    stream.step(&encode::insert(2, &[text("1")])).unwrap();
    let second = stream.insert(1, &ROW);
    assert_eq!(
        (first.position.as_str(), second.position.as_str()),
        ("0000001600000100-00000000", "0000001600000100-00000001")
    );
}

#[track_caller]
fn order_error(stream: &mut Stream, message: &[u8]) -> &'static str {
    match stream.step(message) {
        Err(Error::Order(what)) => what,
        other => panic!("the message gave {other:?}"),
    }
}

#[test]
fn a_stream_that_breaks_its_own_order_is_an_error() {
    let new = || Stream::new(vec![outbox()]);
    let begin = encode::begin(0x17_0000_0000, 0, 1);
    assert_eq!(order_error(&mut new(), &encode::commit(1, 2, 0)), "a commit without a begin");
    assert_eq!(order_error(&mut new(), &encode::insert(1, &ROW)), "a row outside a transaction");

    let mut stream = new();
    stream.quiet(&begin);
    assert_eq!(order_error(&mut stream, &begin), "a transaction begins inside another");

    let mut stream = new();
    stream.quiet(&begin);
    assert_eq!(order_error(&mut stream, &encode::insert(1, &ROW)), "a row of a relation that was not described");
    stream.quiet(&encode::relation(1, "walpost", "outbox", &FOUR));
    assert_eq!(order_error(&mut stream, &encode::insert(1, &ROW[..3])), "a row that does not fit its relation");
    let unchanged = [ROW[0], ROW[1], ROW[2], Cell::Unchanged];
    assert_eq!(order_error(&mut stream, &encode::insert(1, &unchanged)), "a row that does not fit its relation");
    let commit = encode::commit(0x17_0000_0008, 0x17_0000_0030, 0);
    assert_eq!(order_error(&mut stream, &commit), "a commit with another position than its begin");

    let mut stream = new();
    stream.quiet(&encode::begin(1, 0, 1));
    assert_eq!(order_error(&mut stream, &encode::commit(1, 2, 0)), "a commit that ends below what came before it");
}

/// A commit that lies below one that waits for its records must not come to light only when they are acknowledged.
#[test]
fn a_commit_below_one_that_is_not_confirmed_is_an_error() {
    let mut stream = Stream::new(vec![outbox()]);
    stream.quiet(&encode::begin(0x17_0000_0000, 0, 1));
    stream.quiet(&encode::relation(1, "walpost", "outbox", &FOUR));
    stream.insert(1, &ROW);
    stream.quiet(&encode::commit(0x17_0000_0000, 0x17_0000_0030, 0));
    stream.quiet(&encode::begin(0x16_8000_0000, 0, 2));
    assert_eq!(
        order_error(&mut stream, &encode::commit(0x16_8000_0000, 0x16_8000_0030, 0)),
        "a commit that ends below what came before it"
    );
}
