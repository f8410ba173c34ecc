//! Poison: one bad event neither stops the stream nor lets a later one of its aggregate overtake it.

use std::{collections::BTreeSet, time::Duration};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{command, ids, insert, letter, letters, refused_again, replayed, with_letters},
    outbox::Bulk,
    postgres::{MAIN, Postgres},
    records::{Isolation, Record},
    streamed::{WITHIN, all, committed, halted, quick, streamed},
    verify::{all_arrived, verify},
    walpost::Walpost,
};

/// Some characters that do not compress.
const NOISE: &str = "to_jsonb((SELECT string_agg(sha512(n::text::bytea)::text, '') FROM generate_series(1, 1600) n))";

#[test]
fn one_oversize_event_is_parked_and_its_neighbours_are_delivered() {
    for (compression, payload) in [("none", "to_jsonb(repeat('x', 200000))"), ("lz4", NOISE)] {
        let database = Postgres::shared(MAIN).database();
        let outbox = with_letters(&database);
        let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
        kafka.create_topic(&topic, 2, &[("max.message.bytes", "100000")]);
        let more = format!("[kafka]\n'compression.type' = '{compression}'\n");
        let small = |n: u32| insert(&outbox, "t", &format!("k{}", n % 7), "'1'");
        let mut sent: Vec<String> = (0..20).map(small).collect();
        let culprit = insert(&outbox, "t", "culprit", payload);
        let behind = insert(&outbox, "t", "culprit", "'2'");
        sent.extend((20..40).map(small));
        let records = streamed(&outbox, &more, &[&topic]);
        assert_eq!(ids(&records).into_iter().collect::<BTreeSet<_>>(), sent.iter().map(String::as_str).collect());
        assert_eq!(records.len(), sent.len(), "none is sent twice");
        let parked = [letter("parked", "too_large", &culprit), letter("parked", "parked", &behind)];
        assert_eq!(letters(&outbox), parked, "{compression}");

        // Parked aggregates are known from the first record on.
        let later = insert(&outbox, "t", "culprit", "'3'");
        streamed(&outbox, &more, &[&topic]);
        assert_eq!(letters(&outbox)[2], letter("parked", "parked", &later));

        // The limit is raised, and all of it comes in order.
        kafka.set_topic_config(&topic, &[("max.message.bytes", "400000")]);
        let walpost = Walpost::start(&quick(&outbox, &more));
        command(&outbox, &["replay", "--id", &behind]);
        replayed(&outbox);
        let live = insert(&outbox, "t", "culprit", "'4'");
        outbox.drained(WITHIN);
        let records = all(&[&topic]);
        let of_culprit: Vec<&Record> = records.iter().filter(|record| record.key_text() == Some("culprit")).collect();
        let in_order = [&culprit, &behind, &later, &live];
        assert_eq!(of_culprit.iter().map(|r| r.header("id").expect("an id")).collect::<Vec<_>>(), in_order);
        let marks: Vec<_> = of_culprit.iter().map(|record| record.header("replay").is_some()).collect();
        assert_eq!(marks, [true, true, true, false]);
        assert!(of_culprit[0].header("position") < of_culprit[1].header("position"));
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn small_events_that_are_too_large_together_go_in_batches_that_fit() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("bulk"));
    kafka.create_topic(&topic, 2, &[("max.message.bytes", "20000")]);
    outbox.writer().bulk(Bulk { transactions: 10, rows: 200, aggregates: 7, padding: 300 });
    let walpost = Walpost::start(&quick(&outbox, ""));
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.log().matches("streaming slot").count(), 1, "no batch was refused");
    assert_eq!(letters(&outbox).len(), 0);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_limit_that_is_raised_while_it_runs_is_learnt() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic, other) = (Kafka::shared(), outbox.topic("t"), outbox.topic("other"));
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    kafka.create_blockable_topic(&other, 1);
    let walpost = Walpost::start(&quick(&outbox, ""));
    let small = insert(&outbox, "t", "a", "'1'");
    insert(&outbox, "other", "b", "'2'");
    outbox.drained(WITHIN);
    kafka.set_topic_config(&topic, &[("max.message.bytes", "300000")]);
    learns(&walpost, &topic, 300_000);
    // What is sent alone would wait for an answer to this one.
    kafka.block(&other);
    insert(&outbox, "other", "b", "'3'");
    let large = insert(&outbox, "t", "a", "to_jsonb(repeat('x', 200000))");
    assert_eq!(ids(&kafka.read(&topic, 2, WITHIN)), [&small, &large]);
    kafka.unblock(&other);
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox).len(), 0);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_limit_that_is_lowered_while_it_runs_is_kept_to() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("bulk"));
    kafka.create_topic(&topic, 2, &[("max.message.bytes", "500000")]);
    let walpost = Walpost::start(&quick(&outbox, ""));
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 200, aggregates: 7, padding: 300 });
    outbox.drained(WITHIN);
    kafka.set_topic_config(&topic, &[("max.message.bytes", "20000")]);
    learns(&walpost, &topic, 20_000);
    writer.bulk(Bulk { transactions: 10, rows: 200, aggregates: 7, padding: 300 });
    let culprit = insert(&outbox, "bulk", "culprit", "to_jsonb(repeat('x', 30000))");
    writer.bulk(Bulk { transactions: 10, rows: 200, aggregates: 7, padding: 300 });
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox), [letter("parked", "too_large", &culprit)]);
    assert_eq!(walpost.log().matches("streaming slot").count(), 1, "nothing ended the session");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn learns(walpost: &Walpost, topic: &str, limit: usize) {
    let text = format!("topic {topic} has max.message.bytes {limit} now");
    walpost.says(&text, WITHIN);
}

#[test]
fn unroutable_rows_become_dead_letters_and_hold_nothing_else_up() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let session = database.session();
    let first = insert(&outbox, "t", "a", "'1'");
    let illegal = insert(&outbox, "no topic/at all", "b", "'2'");
    let headers: String = session.get(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         VALUES ('t', 'c', 'e', '3', '[1]') RETURNING id",
    );
    let behind = insert(&outbox, "t", "c", "'4'");
    let keyless: String = session.get(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         VALUES ('t', NULL, 'e', '5', '\"no object\"') RETURNING id",
    );
    let last = insert(&outbox, "t", "a", "'6'");
    let topic = outbox.topic("t");
    assert_eq!(ids(&streamed(&outbox, "", &[&topic])), [&first, &last]);
    let expected = [
        letter("parked", "invalid_topic", &illegal),
        letter("parked", "unroutable", &headers),
        letter("parked", "parked", &behind),
        letter("dead", "unroutable", &keyless),
    ];
    assert_eq!(letters(&outbox), expected);
    let kept: String = session.get(&format!(
        "SELECT convert_from(payload, 'UTF8') || ': ' || reason FROM walpost.dead_letter WHERE event_id = '{headers}'"
    ));
    assert!(kept.starts_with("3: its headers column holds no JSON object"), "{kept}");

    // Discarded, its aggregate is free for what comes; what waited is replayed.
    let walpost = Walpost::start(&quick(&outbox, ""));
    command(&outbox, &["discard", "--id", &headers, "--yes"]);
    command(&outbox, &["replay", "--id", &behind]);
    eventually(WITHIN, "the replay is settled", || (letters(&outbox)[2][0] == "replayed").then_some(()));
    let free = insert(&outbox, "t", "c", "'7'");
    outbox.drained(WITHIN);
    let records = all(&[&topic]);
    assert_eq!(ids(&records.into_iter().filter(|r| r.key_text() == Some("c")).collect::<Vec<_>>()), [&behind, &free]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// For Kafka `.` and `_` are one character when it compares the names of topics.
#[test]
fn a_topic_that_kafka_does_not_create_holds_nothing_else_up() {
    for exactly_once in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = with_letters(&database);
        let [taken, refused, other] = ["x.y", "x_y", "other"].map(|name| outbox.topic(name));
        let delivery = if exactly_once { outbox.exactly_once() } else { String::new() };
        let more = format!("topics.create = true\n{delivery}");
        let mut sent = vec![insert(&outbox, "x.y", "a", "'1'")];
        let culprit = insert(&outbox, "x_y", "a", "'2'");
        let behind = insert(&outbox, "x_y", "a", "'3'");
        let keyless: String = database.session().get(
            "INSERT INTO walpost.outbox (aggregate_type, event_type, payload) VALUES ('x_y', 'e', '4') RETURNING id",
        );
        sent.extend([insert(&outbox, "x.y", "a", "'5'"), insert(&outbox, "x.y", "b", "'6'")]);
        let last = insert(&outbox, "other", "a", "'7'");
        let halts = halted(&outbox, &format!("{more}on_poison = 'halt'\n"));
        let error = format!("error: topic {refused} could not be created: InvalidTopic");
        assert!(halts.contains(&error) && halts.contains(&format!("event {culprit} at position")), "{halts}");

        let walpost = Walpost::start(&quick(&outbox, &more));
        outbox.drained(WITHIN);
        assert_eq!(ids(&committed(&taken, 3)), sent);
        assert_eq!(ids(&committed(&other, 1)), [&last]);
        let expected = [
            letter("parked", "invalid_topic", &culprit),
            letter("parked", "parked", &behind),
            letter("dead", "invalid_topic", &keyless),
        ];
        assert_eq!(letters(&outbox), expected);

        // Refused once more; and taken when its name is free.
        command(&outbox, &["replay", "--id", &culprit]);
        refused_again(&outbox, 1);
        assert_eq!(letters(&outbox), expected);
        Kafka::shared().delete_topic(&taken);
        command(&outbox, &["replay", "--all"]);
        replayed(&outbox);
        assert_eq!(ids(&committed(&refused, 3)), [culprit, behind, keyless]);
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_topic_for_more_brokers_than_there_are_is_waited_for_once() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[]);
    let wide = ["a", "b", "c"].map(|key| insert(&outbox, "wide", key, "'1'"));
    let id = insert(&outbox, "t", "a", "'2'");
    let more = "topics.create = true\ntopics.replication = 5\nroute.unknown_topic_timeout = '25s'\n";
    assert_eq!(ids(&streamed(&outbox, more, &[&topic])), [&id]);
    assert_eq!(letters(&outbox), wide.each_ref().map(|id| letter("parked", "rejected", id)));
}

#[test]
fn a_dead_letter_alone_lets_its_aggregate_go_on() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let topic = outbox.topic("t");
    // Above the client's own limit: it is never sent.
    let large = insert(&outbox, "t", "a", "to_jsonb(repeat('x', 1500000))");
    let next = insert(&outbox, "t", "a", "'2'");
    let more = "on_poison = 'dead_letter'\n";
    assert_eq!(ids(&streamed(&outbox, more, &[&topic])), [&next]);
    assert_eq!(letters(&outbox), [letter("dead", "too_large", &large)]);
    let passed: String = database.session().get("SELECT later_delivered FROM walpost.dead_letter");
    assert_eq!(passed, "t", "later events went on");
}

#[test]
fn a_replay_that_is_refused_again_waits_again_with_its_new_reason() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    let by_topic = insert(&outbox, "t", "a", "to_jsonb(repeat('x', 200000))");
    let by_client = insert(&outbox, "t", "b", "to_jsonb(repeat('x', 1500000))");
    let walpost = Walpost::start(&quick(&outbox, ""));
    outbox.drained(WITHIN);
    command(&outbox, &["replay", "--all"]);
    refused_again(&outbox, 2);
    assert_eq!(letters(&outbox), [&by_topic, &by_client].map(|id| letter("parked", "too_large", id)));
    let free = insert(&outbox, "t", "c", "'1'");
    outbox.drained(WITHIN);
    assert_eq!(ids(&all(&[&topic])), [&free]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_table_that_cannot_be_written_holds_the_position_and_the_stream() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let session = database.session();
    let topic = outbox.topic("t");
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.says("streaming slot", WITHIN);
    session.run("ALTER TABLE walpost.dead_letter RENAME TO away");
    let illegal = insert(&outbox, "no topic", "b", "'1'");
    let end: u64 = session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    let after = insert(&outbox, "t", "a", "'2'");
    eventually(WITHIN, "it says what it waits for", || {
        walpost.log().contains("dead letters cannot be written or read, the stream waits").then_some(())
    });
    assert!(walpost.is_running() && outbox.confirmed() < end);
    assert_eq!(Kafka::shared().partitions(&topic), None, "nothing overtakes it");
    session.run("ALTER TABLE walpost.away RENAME TO dead_letter");
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox), [letter("parked", "invalid_topic", &illegal)]);
    assert_eq!(ids(&all(&[&topic])), [&after]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn what_is_parked_is_not_overtaken_by_a_stream_that_would_not_know() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let topic = outbox.topic("t");
    let large = insert(&outbox, "t", "a", "to_jsonb(repeat('x', 1500000))");
    streamed(&outbox, "", &[]);
    let behind = insert(&outbox, "t", "a", "'2'");
    let log = halted(&outbox, "on_poison = 'halt'\n");
    assert!(log.contains("1 events of 1 aggregates are parked, and with on_poison = \"halt\""), "{log}");
    // The default rests on the table too, where it may not be read any more.
    let role = format!("role_{}", outbox.slot());
    database.sql(&format!("CREATE ROLE {role} LOGIN REPLICATION"));
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let log = halted(&outbox, &format!("database_url = '{url}'\n"));
    assert!(log.contains("on_poison rests on table walpost.dead_letter"), "{log}");

    assert!(streamed(&outbox, "on_poison = 'dead_letter'\n", &[&topic]).is_empty(), "nothing overtakes it");
    assert_eq!(letters(&outbox), [letter("parked", "too_large", &large), letter("parked", "parked", &behind)]);
    // A table that never had a letter may be out of reach: then poison halts.
    database.sql("TRUNCATE walpost.dead_letter");
    let free = insert(&outbox, "t", "a", "'3'");
    assert_eq!(ids(&streamed(&outbox, &format!("database_url = '{url}'\n"), &[&topic])), [&free]);
    database.sql(&format!("DROP ROLE {role}"));
}

#[test]
fn a_header_that_is_named_as_a_column_does_not_change_the_aggregate() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let topic = outbox.topic("t");
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER aggregate_type DROP NOT NULL");
    let event = |destination: &str, headers: &str| -> String {
        session.get(&format!(
            "INSERT INTO walpost.outbox (aggregate_id, event_type, payload, destination, headers)
             VALUES ('a', 'e', '1', '{destination}', '{headers}') RETURNING id"
        ))
    };
    let illegal = event("no topic", "{}");
    let behind = event(&topic, r#"{"aggregate_type": "t"}"#);
    assert!(streamed(&outbox, "", &[&topic]).is_empty(), "nothing overtakes it");
    assert_eq!(letters(&outbox), [letter("parked", "invalid_topic", &illegal), letter("parked", "parked", &behind)]);
}

#[test]
fn a_lock_on_the_table_that_is_held_for_long_is_told() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.says("streaming slot", WITHIN);
    let blocker = database.session();
    blocker.run("BEGIN; LOCK TABLE walpost.dead_letter IN ACCESS EXCLUSIVE MODE");
    let illegal = insert(&outbox, "no topic", "b", "'1'");
    walpost.says("lock timeout", WITHIN);
    blocker.run("ROLLBACK");
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox), [letter("parked", "invalid_topic", &illegal)]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_parked_aggregate_is_replayed_under_load_without_a_gap_or_a_swap() {
    const WITHIN: Duration = Duration::from_secs(120);
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("bulk"));
    kafka.create_topic(&topic, 2, &[]);
    let mut writer = outbox.writer();
    // Headers that are no object park the first event; the others of its key wait behind it.
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER headers SET DEFAULT '[]'");
    writer.bulk(Bulk { transactions: 1, rows: 5, aggregates: 5, padding: 0 });
    session.run("ALTER TABLE walpost.outbox ALTER headers DROP DEFAULT");
    writer.bulk(Bulk { transactions: 300, rows: 10, aggregates: 5, padding: 10 });
    let walpost = Walpost::start(&quick(&outbox, ""));
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox).len(), 3_005);
    let unroutable: Vec<String> = letters(&outbox).into_iter().take(5).map(|[_, _, id]| id).collect();
    unroutable.iter().for_each(|id| command(&outbox, &["discard", "--id", id, "--yes"]));
    command(&outbox, &["replay", "--all"]);
    // Meanwhile more comes for the same keys; a kill in the middle changes nothing but duplicates.
    for round in 0..20 {
        writer.bulk(Bulk { transactions: 20, rows: 5, aggregates: 5, padding: 10 });
        if round == 10 {
            walpost.kill();
        }
    }
    let walpost = Walpost::start(&quick(&outbox, ""));
    writer.bulk(Bulk { transactions: 200, rows: 5, aggregates: 5, padding: 10 });
    eventually(WITHIN, "everything is handed back", || {
        let parked: u64 = session.get("SELECT count(*) FROM walpost.dead_letter WHERE state = 'parked'");
        (parked == 0).then_some(())
    });
    writer.bulk(Bulk { transactions: 10, rows: 5, aggregates: 5, padding: 10 });
    outbox.drained(WITHIN);
    let expected: Vec<_> = outbox.committed().into_iter().filter(|event| !unroutable.contains(&event.id)).collect();
    let mut reader = kafka.reader(&[&topic], Isolation::Uncommitted, WITHIN);
    let records = reader.until(WITHIN, "all", |records| all_arrived(&expected, records));
    let report = verify(&expected, records);
    println!("{} events: {report}", expected.len());
    report.assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn exactly_once_parks_and_replays_too() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    let more = outbox.exactly_once();
    let small = |n: u32| insert(&outbox, "t", &format!("k{}", n % 7), "'1'");
    let mut sent: Vec<String> = (0..10).map(small).collect();
    let culprit = insert(&outbox, "t", "culprit", "to_jsonb(repeat('x', 200000))");
    let behind = insert(&outbox, "t", "culprit", "'2'");
    sent.extend((10..20).map(small));
    let walpost = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    let parked = [letter("parked", "too_large", &culprit), letter("parked", "parked", &behind)];
    assert_eq!(letters(&outbox), parked);
    kafka.set_topic_config(&topic, &[("max.message.bytes", "400000")]);
    command(&outbox, &["replay", "--all"]);
    replayed(&outbox);
    sent.extend([culprit, behind, insert(&outbox, "t", "culprit", "'3'")]);
    outbox.drained(WITHIN);
    assert_eq!(ids(&committed(&topic, sent.len())), sent);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn exactly_once_passes_over_no_event_whose_row_is_not_durable() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("t"), 1, &[]);
    kafka.create_topic(&outbox.topic("u"), 1, &[]);
    let more = outbox.exactly_once();
    let parked: String = database.session().get(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         VALUES ('t', 'k', 'e', '1', '[]') RETURNING id",
    );
    let walpost = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    // What comes for the aggregate cannot be written, and another one's event goes to Kafka behind it.
    let blocker = database.session();
    blocker.run("BEGIN; LOCK TABLE walpost.dead_letter IN SHARE MODE");
    let behind = insert(&outbox, "t", "k", "'2'");
    let other = insert(&outbox, "u", "o", "'3'");
    let mut reader = kafka.reader(&[&outbox.topic("u")], Isolation::Uncommitted, WITHIN);
    reader.until(WITHIN, "the other event", |records| !records.is_empty());
    walpost.kill();
    blocker.run("ROLLBACK");

    let walpost = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    assert_eq!(letters(&outbox), [letter("parked", "unroutable", &parked), letter("parked", "parked", &behind)]);
    assert_eq!(ids(&committed(&outbox.topic("u"), 1)), [&other]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn exactly_once_sends_a_replayed_event_once_though_the_table_never_heard_of_it() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    let more = outbox.exactly_once();
    let culprit = insert(&outbox, "t", "k", "to_jsonb(repeat('x', 200000))");
    let behind = insert(&outbox, "t", "k", "'2'");
    let walpost = Walpost::start(&quick(&outbox, &more));
    outbox.drained(WITHIN);
    kafka.set_topic_config(&topic, &[("max.message.bytes", "400000")]);
    // Kafka commits the replay, and the note of it in the table waits for a lock until after the kill.
    command(&outbox, &["replay", "--all"]);
    let blocker = database.session();
    blocker.run("BEGIN; SELECT FROM walpost.dead_letter FOR UPDATE");
    assert_eq!(ids(&committed(&topic, 2)), [&culprit, &behind]);
    walpost.kill();
    blocker.run("ROLLBACK");
    assert!(letters(&outbox).iter().all(|[state, ..]| state == "parked"), "{:?}", letters(&outbox));

    let walpost = Walpost::start(&quick(&outbox, &more));
    replayed(&outbox);
    let live = insert(&outbox, "t", "k", "'3'");
    outbox.drained(WITHIN);
    assert_eq!(ids(&committed(&topic, 3)), [&culprit, &behind, &live]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}
