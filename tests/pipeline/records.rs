//! What a row of an outbox becomes: topic, key, value, headers, in both presets.

use crate::{
    encode::{Cell, oid, text},
    outbox,
    stream::{COMMIT_TIME_UNIX_MS, Column, Sent, record},
};

fn walpost<'a>(columns: &[Column<'a>]) -> Sent {
    record(outbox::walpost("walpost", "outbox"), columns)
}

/// A row of walpost's table with everything in it; `payload` and `headers` as given.
fn full_row<'a>(payload: Cell<'a>, headers: Cell<'a>) -> [Column<'a>; 12] {
    [
        ("id", oid::UUID, text("8f4e0b1a-3a52-4a3e-9d7b-3f0f1f3f7a11")),
        ("seq", oid::INT8, text("41")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("o-812")),
        ("event_type", oid::TEXT, text("order.placed")),
        ("payload", oid::JSONB, payload),
        ("headers", oid::JSONB, headers),
        ("destination", oid::TEXT, Cell::Null),
        ("idempotency_key", oid::TEXT, text("once")),
        ("aggregate_version", oid::INT8, text("7")),
        ("occurred_at", oid::TIMESTAMPTZ, text("2026-01-31 08:14:59.5+00")),
        ("traceparent", oid::TEXT, text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
    ]
}

/// The four columns that every row needs, then others.
fn row_with<'a>(others: &[Column<'a>]) -> Vec<Column<'a>> {
    let mut columns = vec![
        ("id", oid::UUID, text("e1")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("o-1")),
    ];
    columns.extend(others);
    columns
}

fn payload<'a>(oid: u32, value: Cell<'a>) -> Vec<Column<'a>> {
    row_with(&[("payload", oid, value)])
}

#[track_caller]
fn headers(json: &str) -> Vec<(String, String)> {
    let sent = walpost(&row_with(&[("payload", oid::JSONB, Cell::Null), ("headers", oid::JSONB, text(json))]));
    let fixed = ["id", "aggregate_type", "position"].len();
    let as_text = |value: &[u8]| String::from_utf8(value.to_vec()).expect("UTF-8");
    sent.headers[fixed..].iter().map(|(name, value)| (name.clone(), as_text(value))).collect()
}

#[test]
fn a_row_of_the_walpost_preset_becomes_a_record_with_all_headers_in_order() {
    let sent = walpost(&full_row(text("{\"total\": 12}"), text("{\"tenant\": \"a\", \"retry\": 3}")));
    assert_eq!(sent.topic, "outbox.event.order");
    assert_eq!(sent.key.as_deref(), Some(&b"o-812"[..]));
    assert_eq!(sent.value.as_deref(), Some(&b"{\"total\": 12}"[..]));
    assert_eq!(sent.timestamp_ms, COMMIT_TIME_UNIX_MS);
    let expected = [
        ("id", "8f4e0b1a-3a52-4a3e-9d7b-3f0f1f3f7a11"),
        ("event_type", "order.placed"),
        ("aggregate_type", "order"),
        ("occurred_at", "2026-01-31T08:14:59.500000Z"),
        ("position", "0000001600000100-00000000"),
        ("idempotency_key", "once"),
        ("aggregate_version", "7"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tenant", "a"),
        ("retry", "3"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(sent.headers, expected);
}

#[test]
fn a_row_of_the_debezium_preset_becomes_a_record() {
    let sent = record(
        outbox::debezium("inventory", "outbox"),
        &[
            ("id", oid::UUID, text("e1")),
            ("aggregatetype", oid::TEXT, text("order")),
            ("aggregateid", oid::TEXT, text("o-1")),
            ("type", oid::TEXT, text("placed")),
            ("payload", oid::JSONB, text("{}")),
        ],
    );
    assert_eq!(sent.topic, "outbox.event.order");
    assert_eq!(sent.key.as_deref(), Some(&b"o-1"[..]));
    let names: Vec<_> = sent.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["id", "event_type", "aggregate_type", "position"]);
    assert_eq!(sent.header("event_type"), Some("placed"));
}

#[test]
fn columns_that_the_table_lacks_or_that_are_null_give_no_header() {
    let lacking = walpost(&payload(oid::JSONB, text("{}")));
    let null: Vec<_> =
        ["event_type", "headers", "destination", "idempotency_key", "aggregate_version", "occurred_at", "traceparent"]
            .map(|name| (name, oid::TEXT, Cell::Null))
            .into();
    let empty = walpost(&[payload(oid::JSONB, text("{}")), null].concat());
    assert_eq!(lacking, empty);
    let names: Vec<_> = lacking.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["id", "aggregate_type", "position"]);
}

#[test]
fn an_empty_text_is_not_null() {
    let sent = walpost(&[
        ("id", oid::TEXT, text("")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("")),
        ("event_type", oid::TEXT, text("")),
        ("payload", oid::TEXT, text("")),
    ]);
    assert_eq!((sent.key.as_deref(), sent.value.as_deref()), (Some(&b""[..]), Some(&b""[..])));
    assert_eq!((sent.header("id"), sent.header("event_type")), (Some(""), Some("")));
}

#[test]
fn a_null_aggregate_id_is_no_key_and_a_null_payload_is_a_tombstone() {
    let sent = walpost(&[
        ("id", oid::TEXT, text("e1")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, Cell::Null),
        ("payload", oid::JSONB, Cell::Null),
    ]);
    assert_eq!((sent.key, sent.value), (None, None));
}

#[test]
fn keys_are_the_text_of_any_type() {
    for (oid, key) in [(oid::UUID, "8f4e0b1a-3a52-4a3e-9d7b-3f0f1f3f7a11"), (oid::INT8, "-42"), (oid::TEXT, " \u{e4} ")]
    {
        let mut columns = payload(oid::JSONB, text("{}"));
        columns[2] = ("aggregate_id", oid, text(key));
        assert_eq!(walpost(&columns).key.as_deref(), Some(key.as_bytes()));
    }
}

#[test]
fn json_goes_through_byte_for_byte() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for json in [
        "null",
        "{\"b\":1,  \"a\" : 2,\n\t\"b\": 3}",
        "{\"n\": 123456789012345678901234567890, \"e\": 1e400, \"one\": 1.0, \"zero\": -0}",
        "{\"slash\": \"\\/\", \"nul\": \"\\u0000\", \"lone\": \"\\ud800\", \"\u{1F980}\": \"\\uD83E\\uDD80\"}",
        "not json at all \\x00",
        &deep,
    ] {
        for oid in [oid::JSON, oid::JSONB, oid::TEXT, oid::ENUM] {
            assert_eq!(walpost(&payload(oid, text(json))).value.as_deref(), Some(json.as_bytes()));
        }
    }
}

#[test]
fn bytes_that_are_no_utf8_go_through_where_nothing_needs_text() {
    let latin1 = b"K\xE4se";
    let mut columns = payload(oid::TEXT, Cell::Text(latin1));
    columns[2] = ("aggregate_id", oid::TEXT, Cell::Text(latin1));
    columns.push(("event_type", oid::TEXT, Cell::Text(latin1)));
    let sent = walpost(&columns);
    assert_eq!((sent.key.as_deref(), sent.value.as_deref()), (Some(&latin1[..]), Some(&latin1[..])));
    assert!(sent.headers.contains(&("event_type".to_owned(), latin1.to_vec())));
}

#[test]
fn bytea_becomes_its_bytes() {
    for (hex, bytes) in [("\\x", &b""[..]), ("\\x00ff7b", b"\x00\xFF{"), ("\\xDEadBEef", b"\xDE\xAD\xBE\xEF")] {
        assert_eq!(walpost(&payload(oid::BYTEA, text(hex))).value.as_deref(), Some(bytes));
    }
    let sent = walpost(&payload(oid::TEXT, text("\\x00ff")));
    assert_eq!(sent.value.as_deref(), Some(&b"\\x00ff"[..]), "only of the type bytea");
    assert_eq!(walpost(&payload(oid::BYTEA, Cell::Null)).value, None);
}

#[test]
fn enums_and_domains_are_their_text() {
    let kind = oid::ENUM;
    let sent = walpost(&[
        ("id", kind, text("e1")),
        ("aggregate_type", kind, text("order")),
        ("aggregate_id", kind, text("o-1")),
        ("event_type", kind, text("placed")),
        ("payload", kind, text("{}")),
        ("occurred_at", kind, text("2026-01-31 08:15:00+00")),
    ]);
    assert_eq!(sent.topic, "outbox.event.order");
    assert_eq!(sent.header("event_type"), Some("placed"));
    assert_eq!(sent.header("occurred_at"), Some("2026-01-31 08:15:00+00"), "what is no timestamp is not reformatted");
}

#[test]
fn own_headers_keep_their_order_and_strings_lose_their_quotes() {
    let json = r#"{"z": "plain", "a": "\u00e4 \"q\" \n", "n": 1.50, "big": 1e400, "t": true, "x": null, "": "",
        "o": {"k": [1, "v"]}, "z": "again"}"#;
    let expected = [
        ("z", "plain"),
        ("a", "\u{e4} \"q\" \n"),
        ("n", "1.50"),
        ("big", "1e400"),
        ("t", "true"),
        ("x", "null"),
        ("", ""),
        ("o", "{\"k\": [1, \"v\"]}"),
        ("z", "again"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers(json), expected);
    assert_eq!(headers("{}"), []);
    assert_eq!(headers(" {\n} "), []);
}

#[test]
fn own_headers_may_be_long_deep_or_of_lone_surrogates() {
    let long = "\u{e4}".repeat(35_000);
    assert_eq!(headers(&format!("{{\"long\": \"{long}\"}}")), [("long".to_owned(), long)]);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(headers(&format!("{{\"deep\": {deep}}}")), [("deep".to_owned(), deep)]);
    let lone = r#""\ud800""#;
    assert_eq!(headers(&format!("{{\"lone\": {lone}}}")), [("lone".to_owned(), lone.to_owned())], "as its JSON text");
    assert_eq!(headers(r#"{"nul": "\u0000"}"#), [("nul".to_owned(), "\0".to_owned())]);
}

#[test]
fn a_header_of_a_row_may_repeat_a_name_of_walposts() {
    let sent =
        walpost(&row_with(&[("payload", oid::JSONB, Cell::Null), ("headers", oid::JSONB, text("{\"id\": \"x\"}"))]));
    let ids: Vec<_> = sent.headers.iter().filter(|(name, _)| name == "id").map(|(_, value)| value.as_slice()).collect();
    assert_eq!(ids, [&b"e1"[..], b"x"], "walpost's comes first");
}
