//! `format = "cloudevents"`: real records of real rows, read by the CloudEvents SDK and compared attribute by attribute.

use ::cloudevents::{AttributesReader, Data, Event};

use crate::{
    sdk,
    support::{
        eventually,
        kafka::Kafka,
        letters::{command, letter, letters, with_letters},
        outbox::Outbox,
        postgres::{MAIN, Postgres},
        records::Record,
        streamed::{WITHIN, all, committed, halted, quick, streamed, transactions},
        walpost::{Walpost, walpost},
    },
};

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn event(record: &Record) -> Event {
    sdk::event(&record.headers, record.value.as_deref()).unwrap_or_else(|error| panic!("{error}: {record:?}"))
}

#[track_caller]
fn ids(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| event(record).id().to_owned()).collect()
}

fn extension(event: &Event, name: &str) -> Option<String> {
    event.extension(name).map(ToString::to_string)
}

/// Inserts an event of type `t.e`, and gives its id.
fn insert(outbox: &Outbox<'_>, key: &str, event_type: &str, payload: &str) -> String {
    outbox.database.session().get(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         VALUES ('t', '{key}', '{event_type}', '{payload}', '{{\"tenant\": \"ä\", \"X-Own\": \"b\"}}') RETURNING id"
    ))
}

#[test]
fn the_sdk_reads_all_that_a_row_says_in_either_mode() {
    for (mode, content_type) in
        [("binary", "application/json"), ("structured", "application/cloudevents+json; charset=utf-8")]
    {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let session = database.session();
        session.run(
            "ALTER TABLE walpost.outbox ALTER id TYPE text, ALTER payload TYPE json,
               ADD traceparent text, ADD tracestate text",
        );
        let payload = "{\"b\" :1,  \"a\": [true, null],\n \"s\": \"é\"}";
        session.run(&format!(
            "INSERT INTO walpost.outbox
               (id, aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key, occurred_at, traceparent,
                tracestate)
             VALUES ('é-漢-🦀 1', 'Bestellung', 'Größe \"1\" 100%', 'order.placed', '{payload}',
               '{{\"tenant\": \"ä\", \"n\": 3, \"X-Own\": \"b\"}}', 'once', '2026-01-31 09:14:59.5+01', '{TRACEPARENT}',
               'rojo=00f067aa0ba902b7')"
        ));
        session.run("INSERT INTO walpost.outbox (id, aggregate_type, event_type) VALUES ('2', 'Bestellung', 'e')");
        let position = transactions(&outbox)[0].position(0);
        let topic = outbox.topic("Bestellung");
        let more =
            format!("format = 'cloudevents'\n[cloudevents]\nmode = '{mode}'\ntype = 'com.example.${{event_type}}'\n");
        let records = streamed(&outbox, &more, &[&topic]);
        let [full, bare] = records.as_slice() else { panic!("{records:?}") };
        assert_eq!(full.header("content-type"), Some(content_type));
        assert_eq!(full.key_text(), Some("Größe \"1\" 100%"));
        assert_eq!((full.header("X-Own"), full.header("traceparent")), (Some("b"), Some(TRACEPARENT)));
        let event_full = event(full);
        assert_eq!((event_full.id(), event_full.ty()), ("é-漢-🦀 1", "com.example.order.placed"));
        assert_eq!(*event_full.source(), format!("/{}/walpost/outbox", database.name));
        assert_eq!(event_full.subject(), Some("Größe \"1\" 100%"));
        assert_eq!(event_full.time().expect("a time").to_rfc3339(), "2026-01-31T08:14:59.500+00:00");
        assert_eq!((event_full.datacontenttype(), event_full.dataschema()), (Some("application/json"), None));
        let mut extensions: Vec<_> =
            event_full.iter_extensions().map(|(name, value)| format!("{name}={value}")).collect();
        extensions.sort();
        let position = format!("position={position}");
        let traceparent = format!("traceparent={TRACEPARENT}");
        let expected = [
            "aggregatetype=Bestellung",
            "idempotencykey=once",
            "n=3",
            "partitionkey=Größe \"1\" 100%",
            &position,
            "tenant=ä",
            &traceparent,
            "tracestate=rojo=00f067aa0ba902b7",
        ];
        assert_eq!(extensions, expected);
        let whole = match event_full.data().expect("data") {
            Data::Binary(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
            Data::String(_) => panic!("it is JSON"),
            Data::Json(json) => {
                assert_eq!(*json, serde_json::from_str::<serde_json::Value>(payload).expect("JSON"));
                let envelope = full.value_text().expect("an envelope");
                let (_, data) = envelope.split_once(",\"data\":").expect("data");
                data.strip_suffix('}').expect("the envelope ends").to_owned()
            }
        };
        assert_eq!(whole, payload, "byte for byte");

        let event_bare = event(bare);
        assert_eq!((event_bare.id(), event_bare.subject(), event_bare.data()), ("2", None, None));
        assert!(event_bare.time().is_some(), "the table has a default");
        assert_eq!(extension(&event_bare, "partitionkey"), None);
        assert_eq!(
            (bare.key.as_deref(), bare.value.is_none()),
            (None, mode == "binary"),
            "a tombstone in binary mode only"
        );
    }
}

#[test]
fn bytes_come_as_they_are_or_in_base64() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER payload TYPE bytea USING NULL");
    let every_byte: Vec<u8> = (0..=255).collect();
    let hex: String = every_byte.iter().map(|byte| format!("{byte:02x}")).collect();
    let topic = outbox.topic("t");
    let mut read = Vec::new();
    for mode in ["binary", "structured"] {
        session.run(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('t', 'k', 'e', '\\x{hex}')"
        ));
        let more =
            format!("format = 'cloudevents'\n[cloudevents]\nmode = '{mode}'\ncontent_type = 'application/avro'\n");
        read = streamed(&outbox, &more, &[&topic]);
    }
    for record in &read {
        assert_eq!(event(record).datacontenttype(), Some("application/avro"));
        assert_eq!(event(record).data(), Some(&Data::Binary(every_byte.clone())));
    }
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].value, Some(every_byte));
}

#[test]
fn what_is_no_cloudevent_is_a_dead_letter_and_what_is_replayed_keeps_its_headers() {
    for (exactly_once, mode) in [(false, "binary"), (true, "structured"), (true, "binary")] {
        let database = Postgres::shared(MAIN).database();
        let outbox = with_letters(&database);
        let delivery = if exactly_once { outbox.exactly_once() } else { String::new() };
        let more = format!(
            "format = 'cloudevents'\n{delivery}[cloudevents]\nmode = '{mode}'\nsource = 'urn:example:orders'\n"
        );
        let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
        kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
        let first = insert(&outbox, "a", "e", "1");
        let untyped = insert(&outbox, "b", "", "2");
        let behind = insert(&outbox, "b", "e", "3");
        let noise: String = database
            .session()
            .get("SELECT string_agg(sha512(n::text::bytea)::text, '') FROM generate_series(1, 1600) n");
        let large = insert(&outbox, "c", "e", &format!("\"{}\"", noise.replace('\\', "")));
        let last = insert(&outbox, "a", "e", "4");
        let halts = halted(&outbox, &format!("on_poison = 'halt'\n{more}"));
        assert!(halts.contains("column \"event_type\", its CloudEvents attribute type, is empty"), "{halts}");

        let walpost = Walpost::start(&quick(&outbox, &more));
        outbox.drained(WITHIN);
        assert_eq!(ids(&committed(&topic, 2)), [&*first, &*last], "once each, though it halted between them");
        let expected = [
            letter("parked", "unroutable", &untyped),
            letter("parked", "parked", &behind),
            letter("parked", "too_large", &large),
        ];
        assert_eq!(letters(&outbox), expected);
        let reason: String =
            database.session().get(&format!("SELECT reason FROM walpost.dead_letter WHERE event_id = '{untyped}'"));
        assert_eq!(reason, "column \"event_type\", its CloudEvents attribute type, is empty");

        kafka.set_topic_config(&topic, &[("max.message.bytes", "400000")]);
        command(&outbox, &["discard", "--id", &untyped, "--yes"]);
        command(&outbox, &["replay", "--id", &behind]);
        command(&outbox, &["replay", "--id", &large]);
        eventually(WITHIN, "the replays are settled", || {
            letters(&outbox)[1..].iter().all(|[state, ..]| state == "replayed").then_some(())
        });
        let records = committed(&topic, 4);
        let replayed: Vec<&Record> = records.iter().filter(|record| record.header("replay").is_some()).collect();
        let mut replayed_ids: Vec<_> = replayed.iter().map(|record| event(record).id().to_owned()).collect();
        let mut expected = vec![behind, large];
        replayed_ids.sort();
        expected.sort();
        assert_eq!(replayed_ids, expected);
        for record in replayed {
            let event = event(record);
            assert_eq!((event.source().as_str(), event.ty()), ("urn:example:orders", "e"));
            assert_eq!(extension(&event, "tenant").as_deref(), Some("ä"));
            assert_eq!((record.header("X-Own"), record.header("replay")), (Some("b"), Some("dead-letter")));
        }
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_replay_from_the_table_is_marked_and_a_deep_check_finds_the_ids() {
    for mode in ["binary", "structured"] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::proven(&database);
        let session = database.session();
        session.run("ALTER PUBLICATION walpost SET (publish_via_partition_root = true)");
        session.run(include_str!("../../sql/dead_letter.sql"));
        let topic = outbox.topic("t");
        Kafka::shared().create_topic(&topic, 1, &[]);
        let more = format!("progress_interval = '100ms'\nformat = 'cloudevents'\n[cloudevents]\nmode = '{mode}'\n");
        let running = Walpost::start(&quick(&outbox, &more));
        // What was inserted before is not covered by the publication as it is now.
        running.streams(&outbox, WITHIN);
        let id = insert(&outbox, "a", "e", "1");
        outbox.drained(WITHIN);
        let unproven = format!(
            "SELECT count(*) FROM walpost.outbox o, walpost.progress p
             WHERE slot = '{}' AND NOT walpost.is_published(o.txid, o.tableoid, p)",
            outbox.slot()
        );
        eventually(WITHIN, "all is proven", || (session.get::<u32>(&unproven) == 0).then_some(()));
        assert_eq!(running.terminate(WITHIN), 0);

        let (url, brokers) = (database.url(), Kafka::shared().brokers());
        let route = outbox.topic("${aggregate_type}");
        let common = [
            "--database-url",
            &url,
            "--slot",
            outbox.slot(),
            "--brokers",
            &brokers,
            "--route-topic",
            &route,
            "--format",
            "cloudevents",
            "--cloudevents-mode",
            mode,
        ];
        let deep = walpost(&[&["check", "--deep"], &common[..]].concat());
        assert!(deep.code == 0 && deep.stdout.contains("0 errors, 0 warnings"), "{deep:?}");
        let again = walpost(&[&["replay", "--id", &id], &common[..]].concat());
        assert_eq!(again.code, 0, "{again:?}");
        let records = all(&[&topic]);
        assert_eq!(ids(&records), [&*id, &*id]);
        assert_eq!((records[0].header("replay"), records[1].header("replay")), (None, Some("true")));
        assert_eq!(extension(&event(&records[1]), "position"), None, "a row does not know its place");
    }
}
