//! Expectations are quoted from the golden records, and from runs of Debezium's own classes.

use super::columns::{Attribute, Shape, Type};
use super::*;
use crate::config::{Environment, connector::Import};
use crate::pipeline::outbox::TableName;
use crate::pipeline::{Lsn, PgTime, Position};

const RUN: &str = "01890af0-0000-7000-8000-000000000000";
const ID: &str = "00000000-0000-4000-8000-000000000001";
const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";

/// Of a connector with an event router, and more options; those of the router without their prefix `transforms.outbox.`.
fn task(more: &[(&str, &str)]) -> Task {
    task_in(&[], more)
}

fn task_in(environment: &[(&str, &str)], more: &[(&str, &str)]) -> Task {
    let mut config = serde_json::Map::new();
    for (key, value) in [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("database.hostname", "db"),
        ("database.user", "u"),
        ("database.dbname", "shop"),
        ("topic.prefix", "dbz"),
        ("plugin.name", "pgoutput"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("key.converter", STRING),
        ("value.converter", STRING),
    ]
    .iter()
    .chain(more)
    {
        let of_router = ["route.", "table.field", "table.op", "table.expand", "table.json"];
        let prefix = if of_router.iter().any(|start| key.starts_with(start)) { "transforms.outbox." } else { "" };
        config.insert(format!("{prefix}{key}"), (*value).into());
    }
    if config["transforms"] == "" {
        config.remove("transforms.outbox.type");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("connector.json");
    std::fs::write(&file, serde_json::json!({ "name": "orders", "config": config }).to_string()).unwrap();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let import = Import::read(&file, None, true, &Environment::from_iter(environment));
    Task::new(import.unwrap_or_else(|error| panic!("{more:?}: {error}")).connector(), RUN.to_owned())
}

fn attribute(name: &str, oid: u32, kind: &str, not_null: bool) -> Attribute {
    let kind = Type { oid, name: kind.to_owned(), shape: Shape::Plain };
    Attribute { name: name.to_owned(), kind, typmod: -1, not_null, default: None }
}

/// `id`, `aggregatetype`, `aggregateid`, `type`, `payload` as in most golden variants, and more.
fn table(task: &Task, more: &[(&str, u32, &str)]) -> Table {
    let mut attributes = vec![
        attribute("id", 2950, "uuid", true),
        attribute("aggregatetype", 1043, "varchar", true),
        attribute("aggregateid", 1043, "varchar", true),
        attribute("type", 1043, "varchar", true),
        attribute("payload", 3802, "jsonb", false),
    ];
    attributes.extend(more.iter().map(|(name, oid, kind)| attribute(name, *oid, kind, false)));
    let name = TableName { schema: "public".to_owned(), table: "outbox".to_owned() };
    task.table(&name, &attributes, &["id".to_owned()])
}

fn source() -> Source {
    Source {
        position: Position { commit_lsn: Lsn(0x100), ordinal: 0 },
        lsn: Lsn(99),
        last_commit_lsn: Some(Lsn(77)),
        xid: 7,
        commit_time: PgTime(1),
        snapshot: false,
        now: PgTime(2),
    }
}

fn row<'a>(payload: Option<&'a str>, more: &[Option<&'a str>]) -> Vec<Option<&'a str>> {
    let mut row = vec![Some(ID), Some("order"), Some("k1"), Some("OrderCreated"), payload];
    row.extend(more);
    row
}

fn cells<'a>(row: &[Option<&'a str>]) -> Vec<Cell<'a>> {
    row.iter().map(|text| text.map_or(Cell::Null, Cell::Text)).collect()
}

fn insert(task: &Task, more: &[(&str, u32, &str)], row: &[Option<&str>]) -> Result<Vec<Message>, Refusal> {
    task.insert(&table(task, more), &cells(row), &source(), &mut Counts::default())
}

/// The one record of an insert.
fn sent(options: &[(&str, &str)], more: &[(&str, u32, &str)], row: &[Option<&str>]) -> Message {
    let messages = insert(&task(options), more, row).unwrap();
    let [message] = &messages[..] else { panic!("{messages:?}") };
    message.clone()
}

fn refused(options: &[(&str, &str)], more: &[(&str, u32, &str)], row: &[Option<&str>]) -> String {
    insert(&task(options), more, row).unwrap_err().to_string()
}

fn text(bytes: &Option<Vec<u8>>) -> Option<&str> {
    bytes.as_ref().map(|bytes| std::str::from_utf8(bytes).unwrap())
}

/// Headers behind those of the context.
fn own_headers(message: &Message) -> Vec<(&str, Option<&str>)> {
    let own = message.headers.iter().filter(|(name, _)| !name.starts_with("__debezium.context."));
    own.map(|(name, value)| (name.as_str(), text(value))).collect()
}

#[test]
fn a_row_becomes_the_event_that_it_holds() {
    let message = sent(&[], &[], &row(Some(r#"{"n": 1}"#), &[]));
    assert_eq!((message.topic.as_str(), message.partition, message.timestamp_ms), ("outbox.event.order", None, 0));
    assert_eq!((text(&message.key), text(&message.value)), (Some("k1"), Some(r#"{"n": 1}"#)));
    let headers: Vec<_> = message.headers.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    assert_eq!(
        headers,
        [
            ("__debezium.context.connectorLogicalName", Some("dbz")),
            ("__debezium.context.taskId", Some("0")),
            ("__debezium.context.connectorName", Some("postgresql")),
            ("__debezium.context.runId", Some(RUN)),
            ("id", Some(ID)),
        ]
    );
    let bare = sent(&[("extended.headers.enabled", "false")], &[], &row(None, &[]));
    assert_eq!((bare.headers.len(), bare.value), (1, None));
}

#[test]
fn topics_follow_the_pattern_where_it_fits_the_whole_value() {
    let svc = [("route.topic.regex", "svc-(.*)"), ("route.topic.replacement", "ev.$1")];
    let of = |kind: &'static str| {
        let mut row = row(None, &[]);
        row[1] = Some(kind);
        sent(&svc, &[], &row).topic
    };
    assert_eq!((of("svc-a-b").as_str(), of("nomatch").as_str()), ("ev.a-b", "nomatch"));
    assert_eq!(sent(&[("route.by.field", "type")], &[], &row(None, &[])).topic, "outbox.event.OrderCreated");
}

#[test]
fn columns_are_placed_in_their_order() {
    let more = [("part", 23, "int4"), ("tenant", 1043, "varchar"), ("ver", 23, "int4")];
    let values = [Some("3"), None, Some("-5")];
    let placement = "table.fields.additional.placement";
    let headers = [(placement, "type:header:eventType,tenant:header,part:partition")];
    let message = sent(&headers, &more, &row(Some("{}"), &values));
    assert_eq!(own_headers(&message), [("id", Some(ID)), ("eventType", Some("OrderCreated")), ("tenant", None)]);
    assert_eq!((message.partition, text(&message.value)), (Some(3), Some("{}")));

    let envelope = (placement, "type:envelope:eventType,tenant:envelope,ver:envelope:version");
    let message = sent(&[envelope], &more, &row(Some(r#"{"a": 2}"#), &values));
    assert_eq!(text(&message.value), Some(r#"Struct{payload={"a": 2},eventType=OrderCreated,version=-5}"#));
    let plain = [envelope, ("value.converter", JSON), ("value.converter.schemas.enable", "false")];
    let message = sent(&plain, &more, &row(Some(r#"{"a": 2}"#), &values));
    let expected = r#"{"payload":"{\"a\": 2}","eventType":"OrderCreated","tenant":null,"version":-5}"#;
    assert_eq!(text(&message.value), Some(expected));
    let version =
        [(placement, "type:envelope"), ("value.converter", JSON), ("table.field.event.schema.version", "part")];
    let message = sent(&version, &more, &row(None, &values));
    let expected = concat!(
        r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"},"#,
        r#"{"type":"string","optional":false,"field":"type"}],"optional":false,"name":"dbz.public.outbox.order.Value","version":3},"#,
        r#""payload":{"payload":null,"type":"OrderCreated"}}"#
    );
    assert_eq!(text(&message.value), Some(expected));
    let lenient =
        [(placement, "nope:header,nope:envelope,tenant:header"), ("table.field.additional.missing", "ignore")];
    let message = sent(&lenient, &more, &row(Some("{}"), &values));
    assert_eq!((own_headers(&message).len(), text(&message.value)), (2, Some("Struct{payload={}}")));
}

#[test]
fn timestamps_come_from_a_column_if_it_has_one() {
    let of = |kind: (&'static str, u32, &'static str), value| {
        insert(&task(&[("table.field.event.timestamp", "ts")]), &[kind], &row(None, &[value]))
            .map(|messages| messages[0].timestamp_ms)
    };
    let (timestamp, bigint) = (("ts", 1114, "timestamp"), ("ts", 20, "int8"));
    assert_eq!(of(timestamp, Some("2024-01-02 03:04:05.678901")), Ok(1_704_164_645_678));
    assert_eq!(of(timestamp, Some("1969-12-31 23:59:59.999999")), Ok(0));
    assert_eq!((of(timestamp, None), of(bigint, None)), (Ok(0), Ok(0)));
    let refused = |kind, value| of(kind, value).unwrap_err().to_string();
    assert!(refused(timestamp, Some("infinity")).contains("9223372036825200 ms"));
    assert!(refused(timestamp, Some("1969-12-31 00:00:00")).contains("-86400000 ms"));
    let zoned = ("ts", 1184, "timestamptz");
    for (kind, value) in [(bigint, "1"), (zoned, "2024-01-02 03:04:05+00")] {
        assert!(refused(kind, Some(value)).contains(r#""ts", which table.field.event.timestamp names"#));
    }
}

#[test]
fn empty_payloads_are_tombstones_if_asked() {
    let json = ("value.converter", JSON);
    let of =
        |option, payload| sent(&[json, ("route.tombstone.on.empty.payload", option)], &[], &row(payload, &[])).value;
    assert_eq!(of("true", None), None);
    assert!(text(&of("false", None)).unwrap().ends_with(r#""payload":null}"#));
    for (payload, tombstone) in [(" \n\t", true), ("\u{a0}", false), ("null", false), ("{}", false)] {
        assert_eq!(of("true", Some(payload)).is_none(), tombstone, "{payload:?}");
    }
}

#[test]
fn expanded_json_that_does_not_fit_is_text_or_poison() {
    let expand = ("table.expand.json.payload", "true");
    let value = |options: &[(&str, &str)], payload| sent(options, &[], &row(Some(payload), &[])).value;
    let nested = r#"{"a":1,"g":{"h":[{"j":1}]}}"#;
    assert_eq!(text(&value(&[expand], nested)), Some("Struct{a=1,g=Struct{h=[Struct{j=1}]}}"));
    assert_eq!(text(&value(&[expand], "[1,2]")), Some("[1,2]"));
    let plain = [expand, ("value.converter", JSON), ("value.converter.schemas.enable", "false")];
    assert_eq!(text(&value(&plain, r#"{"a":1} trailing"#)), Some(r#"{"a":1}"#));
    let error = refused(&plain, &[], &row(Some("[1,2]"), &[]));
    assert!(error.contains(r#"value (column "payload", expanded by table.expand.json.payload)"#), "{error}");
    let envelope = [expand, ("table.fields.additional.placement", "type:envelope")];
    assert_eq!(insert(&task(&envelope), &[], &row(Some("[1,2]"), &[])), Err(Refusal::Misfit));
}

#[test]
fn what_cannot_be_routed_is_refused_by_name() {
    let placement = "table.fields.additional.placement";
    let part = [("part", 23, "int4"), ("big", 20, "int8")];
    let values = row(Some("{}"), &[Some("-1"), Some("1")]);
    for (option, value, expected) in [
        ("table.field.event.payload", "nope", r#"no "nope", which table.field.event.payload names"#),
        ("table.field.event.id", "nope", r#"no "nope", which table.field.event.id names"#),
        ("table.field.event.key", "nope", r#"no "nope", which table.field.event.key names"#),
        ("table.field.event.timestamp", "nope", r#"no "nope", which table.field.event.timestamp names"#),
        (placement, "nope:header", r#"no "nope", which table.fields.additional.placement names"#),
        (placement, "part:partition", "the partition is -1"),
        (
            placement,
            "big:partition",
            r#""big", which table.fields.additional.placement names, is INT64, and only INT32"#,
        ),
        (placement, "type:envelope:payload", r#"two members of the envelope are named "payload""#),
        ("route.by.field", "part", r#""part", which route.by.field names, is INT32, and only STRING"#),
        ("route.topic.replacement", "no topic", r#"the topic "no topic" is illegal"#),
    ] {
        let error = refused(&[(option, value)], &part, &values);
        assert!(error.contains(expected), "{error}");
    }
    let task = task(&[]);
    let mut attributes = [attribute("id", 25, "text", true), attribute("aggregateid", 25, "text", true)].to_vec();
    attributes.extend([attribute("aggregatetype", 25, "text", false), attribute("payload", 25, "text", false)]);
    attributes[2].default = Some("'order'::text".to_owned());
    attributes[3].default = Some("'dflt'::text".to_owned());
    let table = task.table(&TableName { schema: "a".to_owned(), table: "b".to_owned() }, &attributes, &[]);
    let of = |kind| task.insert(&table, &cells(&[Some("1"), Some("k"), kind, None]), &source(), &mut Counts::default());
    assert_eq!(of(None), Err(Refusal::Unrouted { column: "aggregatetype".to_owned() }));
    // A default takes the place of null, save where events are routed by it.
    assert_eq!(text(&of(Some("order")).unwrap()[0].value), Some("dflt"));
}

#[test]
fn updates_and_deletes_of_events_are_dropped_or_refused() {
    let new = [Cell::Text(ID), Cell::Text("order"), Cell::Text("k1"), Cell::Text("x"), Cell::Unchanged];
    let of = |behaviour| {
        let task = task(&[("table.op.invalid.behavior", behaviour)]);
        let table = table(&task, &[]);
        let deleted = task.delete(&table, &cells(&row(None, &[])), &source(), &mut Counts::default());
        (task.update(&table, None, &new, &source(), &mut Counts::default()), deleted)
    };
    for behaviour in ["warn", "error"] {
        assert_eq!(of(behaviour), (Ok(vec![]), Ok(vec![])));
    }
    assert_eq!(of("fatal"), (Err(Refusal::Update), Ok(vec![])));
    let truncate = |more: &[(&str, &str)]| {
        let task = task(more);
        task.truncate(&table(&task, &[]), &source(), &mut Counts::default())
    };
    assert_eq!(truncate(&[]), Ok(vec![]));
    assert_eq!(truncate(&[("skipped.operations", "none")]), Err(Refusal::Truncate));
}

#[test]
fn rows_without_a_router_are_told_as_changes() {
    let plain = [
        ("transforms", ""),
        ("key.converter", JSON),
        ("key.converter.schemas.enable", "false"),
        ("value.converter", JSON),
        ("value.converter.schemas.enable", "false"),
    ];
    let task = task(&plain);
    let table = table(&task, &[]);
    let after = r#"{"id":"00000000-0000-4000-8000-000000000001","aggregatetype":"order","aggregateid":"k1","type":"OrderCreated","payload":"{\"a\": 1}"}"#;
    let source_ = r#"{"version":"3.6.1.Final","connector":"postgresql","name":"dbz","ts_ms":946684800000,"snapshot":"false","db":"shop","sequence":"[\"77\",\"99\"]","ts_us":946684800000001,"ts_ns":946684800000001000,"schema":"public","table":"outbox","txId":7,"lsn":99,"xmin":null,"origin":null,"origin_lsn":null}"#;
    let now = r#""ts_ms":946684800000,"ts_us":946684800000002,"ts_ns":946684800000002000"#;
    let value = |before: &str, after: &str, op: &str| {
        format!(r#"{{"before":{before},"after":{after},"source":{source_},"transaction":null,"op":"{op}",{now}}}"#)
    };
    let counts = &mut Counts::default();
    let [inserted] = &task.insert(&table, &cells(&row(Some(r#"{"a": 1}"#), &[])), &source(), counts).unwrap()[..]
    else {
        panic!()
    };
    assert_eq!((inserted.topic.as_str(), inserted.headers.len()), ("dbz.public.outbox", 4));
    assert_eq!(text(&inserted.key), Some(r#"{"id":"00000000-0000-4000-8000-000000000001"}"#));
    assert_eq!(text(&inserted.value), Some(value("null", after, "c").as_str()));

    // The log has a deleted row's key only.
    let key = cells(&[Some(ID), None, None, None, None]);
    let [deleted, tombstone] = &task.delete(&table, &key, &source(), counts).unwrap()[..] else { panic!() };
    let before =
        r#"{"id":"00000000-0000-4000-8000-000000000001","aggregatetype":"","aggregateid":"","type":"","payload":null}"#;
    assert_eq!(text(&deleted.value), Some(value(before, "null", "d").as_str()));
    assert_eq!((&tombstone.key, &tombstone.value, &tombstone.headers), (&deleted.key, &None, &deleted.headers));

    let other = "00000000-0000-4000-8000-000000000002";
    let new = [Cell::Text(other), Cell::Text("order"), Cell::Text("k1"), Cell::Text("x"), Cell::Unchanged];
    let moved = task.update(&table, Some(&key), &new, &source(), counts).unwrap();
    let headers: Vec<_> = moved.iter().map(|message| own_headers(message)[0]).collect();
    let newkey = Some(r#"{"id":"00000000-0000-4000-8000-000000000002"}"#);
    assert_eq!(headers[..2], [("__debezium.newkey", newkey); 2]);
    assert_eq!(headers[2], ("__debezium.oldkey", text(&deleted.key)));
    assert!(text(&moved[2].value).unwrap().contains(r#""payload":"__debezium_unavailable_value""#));
}

#[test]
fn messages_route_as_rows_do_once_they_are_decoded() {
    let decode = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent";
    let task = task(&[
        ("transforms", "decode,outbox"),
        ("transforms.decode.type", decode),
        ("message.prefix.include.list", "outbox"),
    ]);
    let of = |content: &str| task.message("outbox", content.as_bytes(), true, &source(), &mut Counts::default());
    let content =
        r#"{"id": "7", "aggregatetype": "order", "aggregateid": 42, "payload": {"x": 1, "y": [1, 2]}, "n": null}"#;
    let [message] = &of(content).unwrap()[..] else { panic!() };
    assert_eq!((message.topic.as_str(), own_headers(message)), ("outbox.event.order", vec![("id", Some("7"))]));
    assert_eq!((text(&message.key), text(&message.value)), (Some("42"), Some("Struct{x=1,y=[1, 2]}")));
    assert_eq!(["outbox", "other"].map(|prefix| task.takes_message(prefix)), [true, false]);
    for (content, refusal) in [
        ("plain text", Refusal::NotJson),
        ("[1]", Refusal::NotJson),
        (r#"{"a":"#, Refusal::NotJson),
        (r#"{"a":[1,"x"]}"#, Refusal::NoSchema),
    ] {
        assert_eq!(of(content), Err(refusal), "{content}");
    }
    let null = of(r#"{"id": "7", "aggregatetype": "order", "payload": null}"#).unwrap_err();
    assert!(null.to_string().contains(r#"no "payload""#));
}

#[test]
fn messages_that_nothing_decodes_go_to_a_topic_of_their_own() {
    let task = task(&[("key.converter", JSON), ("key.converter.schemas.enable", "false"), ("value.converter", JSON)]);
    let sent = task.message("outbox", b"\x00\xff", false, &source(), &mut Counts::default()).unwrap();
    let [message] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((message.topic.as_str(), text(&message.key)), ("dbz.message", Some(r#"{"prefix":"outbox"}"#)));
    let value = text(&message.value).unwrap();
    assert!(value.contains(r#""name":"io.debezium.connector.postgresql.MessageValue","version":1}"#), "{value}");
    assert!(value.contains(r#""payload":{"op":"m","ts_ms":946684800000,"#), "{value}");
    assert!(value.contains(r#""schema":"","table":"","txId":null,"lsn":99,"#), "{value}");
    assert!(value.ends_with(r#""transaction":null,"message":{"prefix":"outbox","content":"AP8="}}}"#), "{value}");
    assert!(message.headers.is_empty());
}

#[test]
fn transactions_are_told_with_their_events() {
    let task = task(&[
        ("transforms", ""),
        ("provide.transaction.metadata", "true"),
        ("value.converter", JSON),
        ("value.converter.schemas.enable", "false"),
    ]);
    let table = table(&task, &[]);
    let begin = task.begin(&source()).unwrap().unwrap();
    assert_eq!((begin.topic.as_str(), text(&begin.key)), ("dbz.transaction", Some("Struct{id=7:99}")));
    let expected = r#"{"status":"BEGIN","id":"7:99","event_count":null,"data_collections":null,"ts_ms":946684800000}"#;
    assert_eq!(text(&begin.value), Some(expected));
    let mut counts = Counts::default();
    for order in 1..=2 {
        let sent = task.insert(&table, &cells(&row(None, &[])), &source(), &mut counts).unwrap();
        let block = format!(r#""transaction":{{"id":"7:99","total_order":{order},"data_collection_order":{order}}}"#);
        assert!(text(&sent[0].value).unwrap().contains(&block));
    }
    let end = task.end(&Source { lsn: Lsn(120), ..source() }, &counts).unwrap().unwrap();
    let expected = concat!(
        r#"{"status":"END","id":"7:120","event_count":2,"data_collections":[{"data_collection":"public.outbox","#,
        r#""event_count":2}],"ts_ms":946684800000}"#
    );
    assert_eq!(text(&end.value), Some(expected));
    assert_eq!(self::task(&[]).begin(&source()), Ok(None));
}

#[test]
fn heartbeats_say_when() {
    let task = task(&[("heartbeat.interval.ms", "1000")]);
    let heartbeat = task.heartbeat(1234).unwrap().unwrap();
    assert_eq!((heartbeat.topic.as_str(), heartbeat.partition), ("__debezium-heartbeat.dbz", Some(0)));
    assert_eq!(text(&heartbeat.key), Some("Struct{serverName=dbz}"));
    assert_eq!((text(&heartbeat.value), heartbeat.headers.len()), (Some("Struct{ts_ms=1234}"), 0));
}

#[test]
fn spans_are_traced_where_open_telemetry_is_on() {
    let context = "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate=a=b,c=d";
    let more = [("tracingspancontext", 1043, "varchar")];
    let headers = |environment: &[(&str, &str)], context| {
        let messages = insert(&task_in(environment, &[]), &more, &row(None, &[context])).unwrap();
        let own = own_headers(&messages[0]);
        own.iter().map(|(name, value)| format!("{name}={}", &value.unwrap()[..7])).collect::<Vec<_>>()
    };
    let on = [("OTEL_JAVA_GLOBAL_AUTOCONFIGURE_ENABLED", "true")];
    assert_eq!(headers(&on, Some(context)), ["traceparent=00-0af7", "tracestate=a=b,c=d", "id=0000000"]);
    assert_eq!(headers(&on, None), ["id=0000000"]);
    assert_eq!(headers(&[], Some(context)), ["id=0000000"]);
}

#[test]
fn tables_are_taken_named_and_keyed_as_configured() {
    let name = |table: &str| TableName { schema: "public".to_owned(), table: table.to_owned() };
    let some = task(&[("table.include.list", "public.outbox.*")]);
    assert_eq!((some.takes(&name("outbox_1")), some.takes(&name("other"))), (true, false));
    let json = ("key.converter", JSON);
    let options = [("transforms", ""), json, ("message.key.columns", "(.*).ünbox:type,nope;x.y:z")];
    let task = task(&options);
    let attributes = [attribute("id", 23, "int4", true), attribute("type", 25, "text", true)];
    let table = task.table(&name("ünbox"), &attributes, &["id".to_owned()]);
    let sent = task.insert(&table, &[Cell::Text("1"), Cell::Text("t")], &source(), &mut Counts::default()).unwrap();
    assert_eq!(sent[0].topic, "dbz.public._nbox");
    let key = text(&sent[0].key).unwrap();
    assert!(key.ends_with(r#""name":"dbz.public._nbox.Key"},"payload":{"type":"t"}}"#), "{key}");
}

#[test]
fn what_a_table_lacks_or_a_converter_loses_is_foreseen() {
    let of = |options: &[(&str, &str)], more: &[(&str, u32, &str)]| table(&task(options), more).warnings().to_vec();
    assert_eq!(of(&[], &[]), [""; 0]);
    let lost = of(&[("table.field.event.payload", "bytes")], &[("bytes", 17, "bytea")]);
    assert!(
        lost[0].contains(r#"public.outbox: StringConverter writes the name and size of Java's buffer"#),
        "{lost:?}"
    );
    assert!(lost[0].contains(r#"bytes of column "bytes""#), "{lost:?}");
    let lacking = of(&[("table.field.event.key", "nokey"), ("table.field.event.timestamp", "type")], &[]);
    assert!(lacking[0].contains(r#""nokey", which table.field.event.key names"#), "{lacking:?}");
    assert!(lacking[1].contains(r#""type", which table.field.event.timestamp names"#), "{lacking:?}");
}
