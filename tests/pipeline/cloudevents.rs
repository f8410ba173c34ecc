//! `format = "cloudevents"`: what a row becomes in binary and in structured mode, and which rows no CloudEvent can hold.
//! What is sent is read by the CloudEvents SDK.

use ::cloudevents::{AttributesReader, Data, Event, event::ExtensionValue};
use walpost::pipeline::{
    Limits, Lsn, OnUpdate, Origin, Pipeline,
    outbox::{CloudEvents, Flaw, Format, Mode, Outbox, Reason},
};

use crate::{
    encode::{self, Cell, oid, text},
    outbox, sdk,
    stream::{Column, Outcome, START, Sent, Stream, poison, record},
};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ENVELOPE: &str = "application/cloudevents+json; charset=utf-8";

fn format(mode: Mode) -> CloudEvents {
    CloudEvents {
        mode,
        source: "/app/walpost/outbox".to_owned(),
        event_type: "com.example.${event_type}".parse().expect("a template"),
        content_type: None,
    }
}

fn with(format: CloudEvents) -> Outbox {
    Outbox { format: Format::CloudEvents(format), ..outbox::walpost("walpost", "outbox") }
}

fn sent(mode: Mode, columns: &[Column<'_>]) -> Sent {
    record(with(format(mode)), columns)
}

/// A row with everything in it, and its own headers.
fn full_row<'a>(payload: Cell<'a>, headers: Cell<'a>) -> [Column<'a>; 12] {
    [
        ("id", oid::TEXT, text("é-漢-🦀")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("Größe \"1\" 100%")),
        ("event_type", oid::TEXT, text("order.placed")),
        ("payload", oid::JSONB, payload),
        ("headers", oid::JSONB, headers),
        ("destination", oid::TEXT, Cell::Null),
        ("idempotency_key", oid::TEXT, text("once")),
        ("aggregate_version", oid::INT8, text("7")),
        ("occurred_at", oid::TIMESTAMPTZ, text("2026-01-31 08:14:59.5+00")),
        ("traceparent", oid::TEXT, text(TRACEPARENT)),
        ("tracestate", oid::TEXT, text("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")),
    ]
}

/// A row of what every event needs, with one column replaced or added.
fn row_but<'a>(name: &'a str, oid: u32, cell: Cell<'a>) -> Vec<Column<'a>> {
    let mut row = vec![
        ("id", oid::TEXT, text("e1")),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("o-1")),
        ("event_type", oid::TEXT, text("placed")),
        ("payload", oid::JSONB, text("{}")),
    ];
    match row.iter_mut().find(|(known, ..)| *known == name) {
        Some(column) => *column = (name, oid, cell),
        None => row.push((name, oid, cell)),
    }
    row
}

fn event(sent: &Sent) -> Event {
    let headers: Vec<_> = sent.headers.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    sdk::event(&headers, sent.value.as_deref()).unwrap_or_else(|error| panic!("{error}: {sent:?}"))
}

fn names(sent: &Sent) -> Vec<&str> {
    sent.headers.iter().map(|(name, _)| name.as_str()).collect()
}

#[track_caller]
fn extension(event: &Event, name: &str) -> String {
    event.extension(name).unwrap_or_else(|| panic!("no {name} in {event:?}")).to_string()
}

/// What the SDK finds in an event of [`full_row`].
#[track_caller]
fn is_whole(event: &Event) {
    assert_eq!((event.id(), event.ty()), ("é-漢-🦀", "com.example.order.placed"));
    assert_eq!(event.source(), "/app/walpost/outbox");
    assert_eq!(event.subject(), Some("Größe \"1\" 100%"));
    assert_eq!(event.time().expect("a time").to_rfc3339(), "2026-01-31T08:14:59.500+00:00");
    assert_eq!(event.datacontenttype(), Some("application/json"));
    for (name, value) in [
        ("position", "0000001600000100-00000000"),
        ("aggregatetype", "order"),
        ("idempotencykey", "once"),
        ("aggregateversion", "7"),
        ("partitionkey", "Größe \"1\" 100%"),
        ("traceparent", TRACEPARENT),
        ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
    ] {
        assert_eq!(extension(event, name), value);
    }
}

#[test]
fn in_binary_mode_attributes_are_headers_and_the_value_is_the_payload() {
    let payload = "{\"total\": 12,  \"big\": 123456789012345678901234567890}";
    let sent = sent(Mode::Binary, &full_row(text(payload), text(r#"{"tenant": "ä", "X-Own": "b", "n": 3}"#)));
    assert_eq!(sent.topic, "outbox.event.order");
    assert_eq!(sent.key.as_deref(), Some("Größe \"1\" 100%".as_bytes()));
    assert_eq!(sent.value.as_deref(), Some(payload.as_bytes()));
    let expected = [
        ("ce_specversion", "1.0"),
        ("ce_id", "é-漢-🦀"),
        ("ce_source", "/app/walpost/outbox"),
        ("ce_type", "com.example.order.placed"),
        ("ce_subject", "Größe \"1\" 100%"),
        ("ce_time", "2026-01-31T08:14:59.500000Z"),
        ("ce_position", "0000001600000100-00000000"),
        ("ce_aggregatetype", "order"),
        ("ce_idempotencykey", "once"),
        ("ce_aggregateversion", "7"),
        ("ce_partitionkey", "Größe \"1\" 100%"),
        ("ce_traceparent", TRACEPARENT),
        ("ce_tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("content-type", "application/json"),
        ("traceparent", TRACEPARENT),
        ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("ce_tenant", "ä"),
        ("ce_n", "3"),
        ("X-Own", "b"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(sent.headers, expected);
    let event = event(&sent);
    is_whole(&event);
    assert_eq!((extension(&event, "tenant"), extension(&event, "n")), ("ä".to_owned(), "3".to_owned()));
    assert_eq!(event.data(), Some(&Data::Binary(payload.as_bytes().to_vec())));
}

#[test]
fn in_structured_mode_the_value_is_an_envelope_with_the_payload_byte_for_byte() {
    let payload = "{\"b\":1,  \"a\" : 2,\n\t\"n\": 123456789012345678901234567890, \"s\": \"\\ud800\"}";
    let headers = text(r#"{"tenant": "\u00e4", "X-Own": "b", "n": 3, "urgent": true}"#);
    let sent = sent(Mode::Structured, &full_row(text(payload), headers));
    assert_eq!(sent.key.as_deref(), Some("Größe \"1\" 100%".as_bytes()));
    assert_eq!(names(&sent), ["content-type", "traceparent", "tracestate", "X-Own"]);
    assert_eq!(sent.header("content-type"), Some(ENVELOPE));
    let expected = format!(
        "{{\"specversion\":\"1.0\",\"id\":\"é-漢-🦀\",\"source\":\"/app/walpost/outbox\",\
         \"type\":\"com.example.order.placed\",\"subject\":\"Größe \\\"1\\\" 100%\",\
         \"time\":\"2026-01-31T08:14:59.500000Z\",\"position\":\"0000001600000100-00000000\",\"aggregatetype\":\"order\",\
         \"idempotencykey\":\"once\",\"aggregateversion\":\"7\",\"partitionkey\":\"Größe \\\"1\\\" 100%\",\"traceparent\":\"{TRACEPARENT}\",\
         \"tracestate\":\"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE\",\"tenant\":\"ä\",\"n\":3,\"urgent\":true,\
         \"datacontenttype\":\"application/json\",\"data\":{payload}}}"
    );
    assert_eq!(String::from_utf8(sent.value.clone().expect("an envelope")).expect("UTF-8"), expected);

    // The SDK keeps no lone surrogates and no such numbers.
    let sent = self::sent(Mode::Structured, &full_row(text("{\"total\": [1.5, null]}"), headers));
    let event = event(&sent);
    is_whole(&event);
    assert_eq!(event.data(), Some(&Data::Json(serde_json::json!({"total": [1.5, null]}))));
    assert_eq!(event.extension("n"), Some(&ExtensionValue::Integer(3)));
    assert_eq!(event.extension("urgent"), Some(&ExtensionValue::Boolean(true)));
}

#[test]
fn bytes_are_the_value_or_base64() {
    let bytes = b"\x00\xFF{\x10";
    let row = row_but("payload", oid::BYTEA, text("\\x00ff7b10"));
    let binary = sent(Mode::Binary, &row);
    assert_eq!(binary.value.as_deref(), Some(&bytes[..]));
    assert_eq!(event(&binary).data(), Some(&Data::Binary(bytes.to_vec())));
    let structured = sent(Mode::Structured, &row);
    assert!(structured.value.as_deref().is_some_and(|value| value.ends_with(b"\"data_base64\":\"AP97EA==\"}")));
    assert_eq!(event(&structured).data(), Some(&Data::Binary(bytes.to_vec())));
    for sent in [binary, structured] {
        assert_eq!(event(&sent).datacontenttype(), Some("application/octet-stream"));
    }
    let avro = CloudEvents { content_type: Some("application/avro".to_owned()), ..format(Mode::Binary) };
    assert_eq!(record(with(avro), &row).header("content-type"), Some("application/avro"));
}

#[test]
fn text_is_a_string_unless_its_content_type_is_one_of_json() {
    let plain = row_but("payload", oid::TEXT, text("no \"JSON\": é\n"));
    let binary = sent(Mode::Binary, &plain);
    assert_eq!(binary.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(binary.value.as_deref(), Some("no \"JSON\": é\n".as_bytes()));
    assert_eq!(event(&sent(Mode::Structured, &plain)).data(), Some(&Data::String("no \"JSON\": é\n".to_owned())));
    let xml = sent(Mode::Structured, &row_but("payload", 142, text("<a/>")));
    assert_eq!(event(&xml).datacontenttype(), Some("application/xml"));

    let json = |mode| with(CloudEvents { content_type: Some("application/vnd.x+json".to_owned()), ..format(mode) });
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in ["{\"a\" : 1}", "null", " 1e400 ", "\"\\ud800\"", &deep] {
        let sent = record(json(Mode::Structured), &row_but("payload", oid::TEXT, text(body)));
        let value = String::from_utf8(sent.value.expect("an envelope")).expect("UTF-8");
        assert!(
            value.ends_with(&format!("\"datacontenttype\":\"application/vnd.x+json\",\"data\":{body}}}")),
            "{value}"
        );
    }
    for body in ["", "{", "{} {}", "a", "{\"a\":1,}"] {
        let row = row_but("payload", oid::TEXT, text(body));
        let reason = Reason::NoJson("application/vnd.x+json".to_owned());
        assert_eq!(poison(json(Mode::Structured), &row).reason, reason, "{body}");
        assert_eq!(record(json(Mode::Binary), &row).value.as_deref(), Some(body.as_bytes()), "nobody looks into it");
    }
    let latin1 = row_but("payload", oid::TEXT, Cell::Text(b"K\xE4se"));
    assert_eq!(poison(with(format(Mode::Structured)), &latin1).reason, Reason::NoText);
    assert_eq!(sent(Mode::Binary, &latin1).value.as_deref(), Some(&b"K\xE4se"[..]));
}

#[test]
fn without_data_there_is_a_tombstone_or_an_envelope_without_data() {
    let row = row_but("payload", oid::JSONB, Cell::Null);
    let binary = sent(Mode::Binary, &row);
    assert_eq!((binary.value.as_deref(), binary.header("content-type")), (None, None));
    assert_eq!(event(&binary).data(), None);
    assert_eq!(event(&binary).id(), "e1");
    let structured = sent(Mode::Structured, &row);
    assert_eq!((event(&structured).data(), event(&structured).datacontenttype()), (None, None));
    let null = sent(Mode::Structured, &row_but("payload", oid::JSONB, text("null")));
    assert_eq!(event(&null).data(), Some(&Data::Json(serde_json::Value::Null)), "which is another thing");
}

#[test]
fn what_a_row_does_not_have_is_no_attribute() {
    let row = row_but("aggregate_id", oid::TEXT, Cell::Null);
    let sent_null = sent(Mode::Binary, &row);
    let expected =
        ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_position", "ce_aggregatetype", "content-type"];
    assert_eq!((names(&sent_null), sent_null.key.as_deref()), (expected.to_vec(), None));
    let mut row = row_but("aggregate_id", oid::TEXT, text(""));
    row.push(("idempotency_key", oid::TEXT, text("")));
    row.push(("traceparent", oid::TEXT, text("")));
    let sent_empty = sent(Mode::Binary, &row);
    assert_eq!(names(&sent_empty), expected, "an attribute must not be empty");
    assert_eq!(sent_empty.key.as_deref(), Some(&b""[..]), "a key may");
}

#[test]
fn a_time_that_rfc_3339_can_say_is_one() {
    let time = |oid, cell| {
        let sent = sent(Mode::Binary, &row_but("occurred_at", oid, cell));
        event(&sent);
        sent.header("ce_time").map(str::to_owned)
    };
    for (oid, given, expected) in [
        (oid::TIMESTAMPTZ, "2026-01-31 08:15:00.25+00", Some("2026-01-31T08:15:00.250000Z")),
        (oid::TIMESTAMP, "2026-01-31 08:15:00", Some("2026-01-31T08:15:00.000000Z")),
        // Of a domain, and of text.
        (oid::ENUM, "2026-01-31 08:15:00.25+00", Some("2026-01-31T08:15:00.250000Z")),
        (oid::TEXT, "2026-01-31T09:15:00.25+01:00", Some("2026-01-31T08:15:00.250000Z")),
        (oid::TEXT, "yesterday", None),
        (oid::TIMESTAMPTZ, "infinity", None),
        (oid::TIMESTAMPTZ, "4713-01-01 00:00:00+00 BC", None),
    ] {
        assert_eq!(time(oid, text(given)).as_deref(), expected, "{given}");
    }
    assert_eq!(time(oid::TIMESTAMPTZ, Cell::Null), None);
}

#[test]
fn a_column_that_an_attribute_cannot_have_is_poison_and_named() {
    let reason = |name, cell| poison(with(format(Mode::Binary)), &row_but(name, oid::TEXT, cell)).reason;
    let attribute = |attribute, column: &str, flaw| Reason::Attribute { attribute, column: column.to_owned(), flaw };
    assert_eq!(reason("id", Cell::Null), Reason::NoId);
    assert_eq!(reason("id", text("")), attribute("id", "id", Flaw::Empty));
    assert_eq!(reason("id", Cell::Text(b"\xE4")), attribute("id", "id", Flaw::Encoding));
    assert_eq!(reason("event_type", Cell::Null), Reason::NullInType("event_type".to_owned()));
    assert_eq!(reason("event_type", Cell::Text(b"\xE4")), attribute("type", "event_type", Flaw::Encoding));
    assert_eq!(reason("event_type", text("a\u{FFFF}")), attribute("type", "event_type", Flaw::Character));
    assert_eq!(reason("aggregate_id", text("a\nb")), attribute("subject", "aggregate_id", Flaw::Character));
    assert_eq!(
        reason("idempotency_key", text("\u{85}")),
        attribute("idempotencykey", "idempotency_key", Flaw::Character)
    );
    assert_eq!(reason("traceparent", text("\t")), attribute("traceparent", "traceparent", Flaw::Character));
    let bare = CloudEvents { event_type: "${event_type}".parse().expect("a template"), ..format(Mode::Structured) };
    let empty = poison(with(bare), &row_but("event_type", oid::TEXT, text("")));
    assert_eq!(empty.reason, attribute("type", "event_type", Flaw::Empty));
    assert_eq!(
        empty.to_string(),
        "event e1 at position 0000001600000100-00000000 of walpost.outbox cannot be routed: column \"event_type\", its \
         CloudEvents attribute type, is empty"
    );
}

#[test]
fn own_headers_are_attributes_where_they_can_be_and_headers_elsewhere() {
    let json = r#"{"tenant": "a", "n": -2147483648, "ok": false, "none": null, "empty": "",
        "Tenant": "b", "x-y": "c", "x_y": "d", "big": 2147483648, "real": 1.5, "list": [1], "line": "a\nb",
        "id": "e", "position": "f", "subject": "g", "data": "h", "partitionkey": "i", "traceparent": "j", "tenant": "k",
        "dataschema": "https://example.com/s", "Content-Type": "text/x; a=b"}"#;
    let row = row_but("headers", oid::JSON, text(json));
    let binary = sent(Mode::Binary, &row);
    let own: Vec<_> = binary.headers[8..].iter().map(|(name, value)| (name.as_str(), &**value)).collect();
    let expected: [(&str, &[u8]); 20] = [
        ("ce_tenant", b"a"),
        ("ce_n", b"-2147483648"),
        ("ce_ok", b"false"),
        ("ce_empty", b""),
        ("ce_traceparent", b"j"),
        ("ce_dataschema", b"https://example.com/s"),
        ("Tenant", b"b"),
        ("x-y", b"c"),
        ("x_y", b"d"),
        ("big", b"2147483648"),
        ("real", b"1.5"),
        ("list", b"[1]"),
        ("line", b"a\nb"),
        ("id", b"e"),
        ("position", b"f"),
        ("subject", b"g"),
        ("data", b"h"),
        ("partitionkey", b"i"),
        ("traceparent", b"j"),
        ("tenant", b"k"),
    ];
    assert_eq!(own[..20], expected);
    assert_eq!(own[20..], [("content-type", &b"text/x; a=b"[..])], "by the name that the binding has for it");
    let event_binary = event(&binary);
    let event_structured = event(&sent(Mode::Structured, &row));
    for event in [event_binary, event_structured] {
        assert_eq!(event.datacontenttype(), Some("text/x; a=b"));
        assert_eq!(event.dataschema().map(|schema| schema.as_str()), Some("https://example.com/s"));
        let mut extensions: Vec<_> = event.iter_extensions().map(|(name, value)| format!("{name}={value}")).collect();
        extensions.sort();
        let expected = ["aggregatetype=order", "empty=", "n=-2147483648", "ok=false", "partitionkey=o-1"];
        assert_eq!(extensions[..5], expected);
        assert_eq!(extensions[5..], ["position=0000001600000100-00000000", "tenant=a", "traceparent=j"]);
    }
}

#[test]
fn a_column_prevails_over_an_own_header_of_tracing() {
    let sent = sent(Mode::Binary, &full_row(text("{}"), text(r#"{"traceparent": "other"}"#)));
    let traced: Vec<_> = sent.headers.iter().filter(|(name, _)| name.ends_with("traceparent")).collect();
    let expected = [("ce_traceparent", TRACEPARENT), ("traceparent", TRACEPARENT), ("traceparent", "other")];
    assert!(
        traced.iter().zip(expected).all(|((name, value), (n, v))| name == n && value == v.as_bytes()),
        "{traced:?}"
    );
}

#[test]
fn own_headers_that_would_pass_for_something_else_are_poison() {
    for mode in [Mode::Binary, Mode::Structured] {
        let reason = |json: &str| poison(with(format(mode)), &row_but("headers", oid::JSON, text(json))).reason;
        assert_eq!(reason(r#"{"ce_id": "s3cret"}"#), Reason::AttributeHeader);
        for content_type in
            ["\"json\"", "\"\"", "1", "\"a/b\\n\"", "\"application/cloudevents+json\"", "\"Application/CloudEvents\""]
        {
            for name in ["content-type", "Content-Type", "datacontenttype"] {
                assert_eq!(reason(&format!("{{\"{name}\": {content_type}}}")), Reason::ContentType);
            }
        }
        assert!(matches!(reason("[]"), Reason::Headers(_)));
        for text in [Reason::AttributeHeader, Reason::ContentType].map(|reason| reason.to_string()) {
            assert!(!text.contains("s3cret"));
        }
    }
}

#[test]
fn rows_that_are_sent_again_are_marked_in_a_header() {
    for (mode, origin) in [(Mode::Binary, Origin::ReplayedLog), (Mode::Structured, Origin::ReplayedLog)] {
        let limits = Limits { records: 10, bytes: 1 << 20 };
        let mut pipeline = Pipeline::new(vec![with(format(mode))], OnUpdate::Ignore, Lsn(START), limits);
        pipeline.mark(origin);
        let mut stream = Stream::of(pipeline);
        stream.begin();
        let row = row_but("payload", oid::JSONB, text("{}"));
        let columns: Vec<_> = row.iter().map(|(name, oid, _)| (*name, *oid)).collect();
        stream.quiet(&encode::relation(1, "walpost", "outbox", &columns));
        let cells: Vec<_> = row.iter().map(|(.., cell)| *cell).collect();
        let Ok(Outcome::Sent(sent)) = stream.step(&encode::insert(1, &cells)) else { panic!("a good row") };
        assert_eq!(sent.headers.last(), Some(&("replay".to_owned(), b"true".to_vec())));
        event(&sent);
    }
}

#[test]
fn a_message_is_an_event_as_a_row_is() {
    for mode in [Mode::Binary, Mode::Structured] {
        let event_type = "${region}.${event_type}".parse().expect("a template");
        let format = Format::CloudEvents(CloudEvents { event_type, ..format(mode) });
        let limits = Limits { records: 10, bytes: 1 << 20 };
        let mut pipeline = Pipeline::new(Vec::new(), OnUpdate::Ignore, Lsn(START), limits);
        pipeline.take_messages(&[Outbox { format, ..outbox::messages("outbox") }]);
        let mut stream = Stream::of(pipeline);
        stream.begin();
        let mut sent = |payload: &str| {
            let content = format!(
                "{{\"id\": \"e1\", \"aggregate_type\": \"order\", \"event_type\": \"placed\", \"region\": \"eu\", \
                 \"tracestate\": \"a=b\", {payload}}}"
            );
            match stream.step(&encode::logical(true, START, "outbox", content.as_bytes())).expect("a message") {
                Outcome::Sent(sent) => sent,
                other => panic!("the message became {other:?}"),
            }
        };
        let json = event(&sent("\"payload\": {\"a\" : 1}"));
        assert_eq!((json.id(), json.ty(), json.datacontenttype()), ("e1", "eu.placed", Some("application/json")));
        assert_eq!(extension(&json, "tracestate"), "a=b");
        let bytes = event(&sent("\"payload_base64\": \"AP8=\""));
        assert_eq!(bytes.datacontenttype(), Some("application/octet-stream"));
        assert_eq!(bytes.data(), Some(&Data::Binary(vec![0, 255])));
    }
}
