//! Any table can be an outbox: other names, other types, names that need quotes, several tables in one stream.

use crate::support::{
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    records::Record,
    streamed::{WITHIN, all, halted, quick, streamed},
    walpost::Walpost,
};

/// A header's text, or the empty text.
fn header<'a>(record: &'a Record, name: &str) -> &'a str {
    record.header(name).unwrap_or_default()
}

#[test]
fn the_table_of_debeziums_router_works_as_it_is() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(
        r#"CREATE TABLE outboxevent (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
             aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
           ALTER PUBLICATION walpost ADD TABLE outboxevent;
           INSERT INTO outboxevent VALUES ('00000000-0000-4000-8000-00000000000a', 'Order', '7', 'OrderPlaced', '{"n": 1}')"#,
    );
    let more = "table = \"outboxevent\"\npreset = \"debezium\"\n";
    let records = streamed(&outbox, more, &[&outbox.topic("Order")]);
    let [record] = &records[..] else { panic!("one record, not {}", records.len()) };
    assert_eq!((record.key_text(), record.value_text()), (Some("7"), Some(r#"{"n": 1}"#)));
    let headers: Vec<_> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(headers, ["id", "event_type", "aggregate_type", "position"]);
    assert_eq!((header(record, "event_type"), header(record, "aggregate_type")), ("OrderPlaced", "Order"));
}

#[test]
fn names_that_need_quotes_work_everywhere() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(
        r#"CREATE SCHEMA "My ""Schema"" é";
           CREATE TABLE "My ""Schema"" é"."Out.Box, 'Ω'" (
             "Event Id" bigint PRIMARY KEY, "select" text, "a""b" text, "TYPE" text, "Payload $1" text, "${x}" text,
             "漢字" timestamptz, "key;--" text, "Trace" text);
           CREATE PUBLICATION "Pub ""1"", 'é' Ω" FOR TABLE "My ""Schema"" é"."Out.Box, 'Ω'" WITH (publish = 'insert');
           DROP PUBLICATION walpost"#,
    );
    // The slot was made before that publication.
    let slot = outbox.slot();
    database.sql(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    let topic = outbox.topic("");
    database.sql(&format!(
        r#"INSERT INTO "My ""Schema"" é"."Out.Box, 'Ω'"
           VALUES (42, 'kind', 'k 1', 'happened', 'p', '{topic}own', '2026-01-31 08:15:00+00', 'idem', '00-a'),
                  (43, 'kind', 'k 2', 'happened', 'q', NULL, '2026-01-31 08:15:00+00', NULL, NULL)"#
    ));
    let more = format!(
        r#"publication = "Pub \"1\", 'é' Ω"
           table = "\"My \"\"Schema\"\" é\".\"Out.Box, 'Ω'\""
           [columns]
           id = "Event Id"
           aggregate_type = "select"
           aggregate_id = "a\"b"
           event_type = "TYPE"
           payload = "Payload $1"
           destination = "${{x}}"
           occurred_at = "漢字"
           idempotency_key = "key;--"
           traceparent = "Trace"
           [route]
           topic = "{topic}${{Event Id}}.${{aggregate_type}}"
        "#
    );
    let (own, routed) = (outbox.topic("own"), outbox.topic("43.kind"));
    let records = streamed(&outbox, &more, &[&own, &routed]);
    let [routed, own] = &records[..] else { panic!("two records, not {}", records.len()) };
    assert_eq!((own.key_text(), own.value_text()), (Some("k 1"), Some("p")));
    assert_eq!((routed.key_text(), routed.value_text()), (Some("k 2"), Some("q")));
    let expected = [
        ("id", "42"),
        ("event_type", "happened"),
        ("aggregate_type", "kind"),
        ("occurred_at", "2026-01-31T08:15:00.000000Z"),
        ("position", header(own, "position")),
        ("idempotency_key", "idem"),
        ("traceparent", "00-a"),
    ];
    let got: Vec<_> = own.headers.iter().map(|(name, _)| (name.as_str(), header(own, name))).collect();
    assert_eq!(got, expected);
    assert_eq!(routed.headers.len(), 5);
}

#[test]
fn several_tables_share_one_stream_and_its_order() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let topic = outbox.topic("all");
    // The second table is like the first but for its names; a third is published and no outbox.
    database.sql(
        "CREATE TABLE payments (n int PRIMARY KEY, account text, body bytea, what text);
         CREATE TABLE stray (n int PRIMARY KEY);
         ALTER PUBLICATION walpost ADD TABLE payments, stray",
    );
    let session = database.session();
    for n in 0..50 {
        session.run(&format!(
            "BEGIN;
             INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
               VALUES ('order', 'k', 'e', '{n}');
             INSERT INTO stray VALUES ({n});
             INSERT INTO payments VALUES ({n}, 'k', '{n}', 'paid');
             COMMIT"
        ));
    }
    let more = format!(
        "[[outbox]]\ntable = \"walpost.outbox\"\n[[outbox]]\ntable = \"payments\"\n\
         [outbox.columns]\nid = \"n\"\naggregate_id = \"account\"\npayload = \"body\"\nevent_type = \"what\"\n\
         [route]\ntopic = \"{topic}\"\n"
    );
    let walpost = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let values: Vec<_> = all(&[&topic]).iter().map(|r| r.value_text().map(str::to_owned)).collect();
    let expected: Vec<_> = (0..50).flat_map(|n| [Some(n.to_string()), Some(n.to_string())]).collect();
    assert_eq!(values, expected);
    let complaints = walpost.log().matches("public.stray").count();
    assert_eq!(complaints, 1, "a table that is no outbox is told of once\n{}", walpost.log());
}

#[test]
fn types_of_the_users_own_are_their_labels_and_may_be_replaced_while_streaming() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run(
        "CREATE TYPE kind AS ENUM ('placed', 'paid');
         CREATE DOMAIN label AS text CHECK (VALUE <> '');
         CREATE TYPE pair AS (a int, b text);
         CREATE TABLE typed (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), unused pair, aggregate_type label,
           aggregate_id label, event_type kind, kinds kind[], payload jsonb);
         ALTER PUBLICATION walpost ADD TABLE typed;
         INSERT INTO typed (aggregate_type, aggregate_id, event_type, unused, kinds)
           VALUES ('order', 'k', 'paid', (1, 'x'), '{placed,NULL}')",
    );
    let walpost = Walpost::start(&quick(&outbox, "table = \"typed\"\n[columns]\nidempotency_key = \"kinds\"\n"));
    let walsender = walpost.streams(&outbox, WITHIN);
    outbox.drained(WITHIN);
    session.run(
        "BEGIN;
         ALTER TABLE typed ALTER event_type TYPE text, ALTER kinds TYPE text[];
         DROP TYPE kind;
         CREATE TYPE kind AS ENUM ('neu', 'paid', 'größer');
         ALTER TABLE typed ALTER event_type TYPE kind USING event_type::kind, ALTER kinds TYPE text;
         COMMIT;
         INSERT INTO typed (aggregate_type, aggregate_id, event_type, unused, kinds)
           VALUES ('order', 'k', 'größer', NULL, 'now text')",
    );
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender), "no reconnection");
    assert_eq!(walpost.terminate(WITHIN), 0);
    let records = all(&[&outbox.topic("order")]);
    let got: Vec<_> = records.iter().map(|r| (header(r, "event_type"), header(r, "idempotency_key"))).collect();
    assert_eq!(got, [("paid", "{placed,NULL}"), ("größer", "now text")]);
}

/// An outbox whose second column is generated from the first, before all that matters.
fn generated<'a>(database: &'a Database<'a>, storage: &str, published: &str) -> Outbox<'a> {
    let outbox = Outbox::create(database);
    database.sql(&format!(
        "CREATE TABLE generated (aggregate_id text, doubled text GENERATED ALWAYS AS (aggregate_id || aggregate_id) {storage},
           aggregate_type text, event_type text, payload text, id int PRIMARY KEY);
         ALTER PUBLICATION walpost ADD TABLE generated;
         {published};
         INSERT INTO generated (aggregate_id, aggregate_type, event_type, payload, id) VALUES ('k', 't', 'e', 'p', 7)"
    ));
    outbox
}

#[test]
fn generated_columns_shift_nothing_whether_they_are_published_or_not() {
    for (version, storage, published) in [
        (15, "STORED", ""),
        (18, "VIRTUAL", "ALTER PUBLICATION walpost SET (publish_generated_columns = none)"),
        (18, "VIRTUAL", "ALTER PUBLICATION walpost SET (publish_generated_columns = stored)"),
        (18, "STORED", "ALTER PUBLICATION walpost SET (publish_generated_columns = none)"),
        (18, "STORED", "ALTER PUBLICATION walpost SET (publish_generated_columns = stored)"),
    ] {
        let database = Postgres::shared(version).database();
        let outbox = generated(&database, storage, published);
        let in_stream = storage == "STORED" && published.ends_with("stored)");
        let uses_it = "table = \"generated\"\n[columns]\nevent_type = \"doubled\"\n";
        if !in_stream {
            let log = halted(&outbox, uses_it);
            assert!(log.contains("public.generated has no column \"doubled\", which event_type needs"), "{log}");
        }
        let more = if in_stream { uses_it } else { "table = \"generated\"\n" };
        let records = streamed(&outbox, more, &[&outbox.topic("t")]);
        let [record] = &records[..] else { panic!("one record, not {}", records.len()) };
        assert_eq!((record.key_text(), record.value_text()), (Some("k"), Some("p")));
        assert_eq!((header(record, "id"), header(record, "event_type")), ("7", if in_stream { "kk" } else { "e" }));
    }
}
