//! Where a record goes: the template, the destination column, topics that do not exist yet, and what cannot be routed.

use crate::support::{
    kafka::Kafka,
    long,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    streamed::{WITHIN, all, halted, quick, streamed, transactions},
    walpost::Walpost,
};

#[test]
fn a_template_takes_several_columns_and_a_destination_goes_before_it() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (prefix, session) = (outbox.topic(""), database.session());
    session.run(&format!(
        "ALTER TABLE walpost.outbox ADD region text;
         INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, region, destination, payload) VALUES
           ('order', 'k', 'placed', 'eu-1', NULL, '1'),
           ('order', 'k', 'placed', 'us_2', NULL, '2'),
           ('order', 'k', 'paid', 'eu-1', '{prefix}elsewhere', '3'),
           ('order', 'k', 'paid', 'eu-1', NULL, '4')"
    ));
    let more = format!("[route]\ntopic = \"{prefix}${{region}}.${{aggregate_type}}-${{event_type}}$\"\n");
    let illegal = halted(&outbox, &more);
    assert!(illegal.contains(&format!("its topic is \"{prefix}eu-1.order-placed$\"")), "a lone $ is text\n{illegal}");
    // Nothing was confirmed: with a template that gives legal topics all of it is sent.
    let more = more.replace("$\"", "\"");
    let topics = ["eu-1.order-placed", "us_2.order-placed", "elsewhere", "eu-1.order-paid"].map(|t| outbox.topic(t));
    let records = streamed(&outbox, &more, &topics.each_ref().map(String::as_str));
    let mut got: Vec<_> = records.iter().map(|r| (r.value_text().unwrap_or_default(), r.topic.as_str())).collect();
    got.sort_unstable();
    let expected: Vec<_> = ["1", "2", "3", "4"].into_iter().zip(topics.iter().map(String::as_str)).collect();
    assert_eq!(got, expected);
}

/// A broker that makes a topic for its first record may refuse that one for want of a leader, and take those behind it.
#[test]
fn bursts_for_topics_that_the_broker_makes_meanwhile_arrive_whole_and_in_order() {
    let types: Vec<String> = (0..if long() { 300 } else { 60 }).map(|n| format!("new-{n}")).collect();
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    for exactly_once in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let more = if exactly_once { outbox.exactly_once() } else { String::new() };
        let walpost = Walpost::start(&quick(&outbox, &more));
        walpost.streams(&outbox, WITHIN);
        let mut writer = outbox.writer();
        for aggregate_type in &types {
            writer.begin();
            (0..50).for_each(|n| writer.event(aggregate_type, &format!("k{}", n % 5)));
            writer.commit();
        }
        outbox.delivered(Kafka::shared(), &types, WITHIN).assert_exactly_once();
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn topics_are_created_as_configured() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (existing, made) = (outbox.topic("existing"), outbox.topic("made"));
    let kafka = Kafka::shared();
    kafka.create_topic(&existing, 2, &[]);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT CASE n % 2 WHEN 0 THEN 'existing' ELSE 'made' END, n % 10, 'e', to_jsonb(n) FROM generate_series(1, 1000) n",
    );
    let more = "[topics]\ncreate = true\npartitions = 5\nreplication = 1\n";
    let records = streamed(&outbox, more, &[&existing, &made]);
    assert_eq!(records.len(), 1000);
    assert_eq!((kafka.partitions(&existing), kafka.partitions(&made)), (Some(2), Some(5)));
}

#[test]
fn an_event_that_cannot_be_routed_halts_by_name_and_confirms_what_came_before() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (session, good) = (database.session(), outbox.topic("good"));
    session.run("ALTER TABLE walpost.outbox ALTER aggregate_type DROP NOT NULL, ALTER headers TYPE json");
    let long = "x".repeat(300);
    let id = "00000000-0000-4000-8000-00000000000b";
    // Aggregate type, destination and headers as SQL; what the message says.
    for (columns, reason) in [
        ("'a b', NULL, NULL", "its topic is \"a b\"; Kafka allows"),
        ("'a/b', NULL, NULL", "its topic is \"a/b\"; Kafka allows"),
        ("'é', NULL, NULL", "its topic is \"é\"; Kafka allows"),
        ("'', NULL, NULL", "its topic is \"\"; Kafka allows"),
        ("'..', NULL, NULL", "its topic is \"..\"; Kafka allows"),
        (&format!("'{long}', NULL, NULL"), &format!("its topic is \"{long}\"; Kafka allows")),
        ("NULL, NULL, NULL", "the topic template names column \"aggregate_type\", which is NULL in this row"),
        ("'fine', 'no topic', NULL", "its topic is \"no topic\"; Kafka allows"),
        ("'fine', NULL, '[1]'", "its headers column holds no JSON object"),
        ("'fine', NULL, '\"text\"'", "its headers column holds no JSON object"),
    ] {
        session.run(&format!("INSERT INTO walpost.outbox (aggregate_type, event_type) VALUES ('{good}', 'before')"));
        session.run(&format!(
            "BEGIN;
             INSERT INTO walpost.outbox (aggregate_type, event_type) VALUES ('{good}', 'e');
             INSERT INTO walpost.outbox (aggregate_type, destination, headers, id, event_type) VALUES ({columns}, '{id}', 'e');
             COMMIT;
             DELETE FROM walpost.outbox"
        ));
        let [_, transaction] = transactions(&outbox)[..] else { panic!("two transactions have events") };
        let log = halted(&outbox, "[route]\ntopic = \"${aggregate_type}\"\n");
        let expected =
            format!("event {id} at position {} of walpost.outbox cannot be routed: {reason}", transaction.position(1));
        assert!(log.contains(&expected), "{expected}\n{log}");
        assert!(log.contains("nothing from that event on is confirmed"), "{log}");
        // The slot stands right before it: skipping it loses nothing else.
        assert_eq!(transactions(&outbox), [transaction]);
        session.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", outbox.slot()));
    }
    session.run(&format!("INSERT INTO walpost.outbox (aggregate_type, event_type) VALUES ('{good}', 'e')"));
    let records = streamed(&outbox, "[route]\ntopic = \"${aggregate_type}\"\n", &[&good]);
    let before = records.iter().filter(|record| record.header("event_type") == Some("before")).count();
    assert_eq!(before, 10, "each once");
    assert!(all(&["fine"]).is_empty());
}

#[test]
fn an_event_without_an_id_halts() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(
        "CREATE TABLE loose (id text, aggregate_type text, aggregate_id text, event_type text, payload text);
         ALTER PUBLICATION walpost ADD TABLE loose;
         INSERT INTO loose VALUES (NULL, 't', 'k', 'e', 'p')",
    );
    let log = halted(&outbox, "table = \"loose\"\n");
    assert!(log.contains("event without an id at position"), "{log}");
    assert!(log.contains("its id is NULL; the id column must be NOT NULL"), "{log}");
}
