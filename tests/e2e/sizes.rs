//! Large rows: delivered where the limits allow it, refused by name where they do not, and innocent neighbours never
//! take the blame.

use std::{collections::HashSet, time::Duration};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
};

use crate::support::{
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    streamed::{WITHIN, all, halted, streamed, transactions},
    verify::verify,
    walpost::Walpost,
};

/// Some characters that do not compress.
const NOISE: &str = "(SELECT string_agg(sha512(n::text::bytea)::text, '') FROM generate_series(1, 1600) n)";

#[test]
fn one_oversize_event_among_small_ones_is_the_one_that_is_named() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (session, kafka, topic) = (database.session(), Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    session.run("ALTER TABLE walpost.outbox ALTER payload TYPE text");
    let insert = |key: &str, payload: &str| {
        session.get::<String>(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('t', '{key}', 'e', {payload}) RETURNING id"
        ))
    };
    let small = |n: u32| insert(&format!("k{n}"), "'small'");
    let mut inserted: Vec<String> = (0..20).map(small).collect();
    // What compresses to less than the limit is not oversize.
    inserted.push(insert("large", "repeat('x', 200000)"));
    let id = insert("culprit", NOISE);
    inserted.extend([id.clone(), insert("culprit", "'waits for the one before it'")]);
    inserted.extend((0..20).map(small));
    let size = "culprit".len() + session.get::<usize>("SELECT max(octet_length(payload)) FROM walpost.outbox");
    let culprit = transactions(&outbox)[21];
    let more = "[kafka]\n\"compression.type\" = \"lz4\"\n";
    let log = halted(&outbox, more);
    for part in [
        format!("event {id} at position {} for topic {topic}", culprit.position(0)),
        format!("{size} bytes of key and value"),
        "kafka rejected".to_owned(),
        "max.message.bytes".to_owned(),
        "nothing from that event on is confirmed".to_owned(),
    ] {
        assert!(log.contains(&part), "{part}\n{log}");
    }
    let payload =
        session.get::<String>("SELECT left(payload, 30) FROM walpost.outbox WHERE aggregate_id = 'culprit' LIMIT 1");
    assert!(!log.contains(&payload), "payloads stay out of the log\n{log}");
    assert_eq!(transactions(&outbox).first(), Some(&culprit), "all before it is confirmed");

    // Raising the limit is all it takes, and no later event has overtaken it.
    kafka.set_topic_config(&topic, &[("max.message.bytes", "300000")]);
    let records = streamed(&outbox, more, &[&topic]);
    let mut seen = HashSet::new();
    let ids: Vec<_> = records.iter().filter_map(|r| r.header("id")).filter(|id| seen.insert(*id)).collect();
    assert_eq!(ids, inserted);
}

#[test]
fn small_events_that_are_too_large_together_are_delivered_in_order() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let topic = outbox.topic("bulk");
    Kafka::shared().create_topic(&topic, 2, &[("max.message.bytes", "20000")]);
    outbox.writer().bulk(Bulk { transactions: 100, rows: 5, aggregates: 7, padding: 9_000 });
    let records = streamed(&outbox, "", &[&topic]);
    verify(&outbox.committed(), &records).assert_complete();
}

#[test]
fn an_event_above_the_clients_own_limit_halts_before_it_is_sent() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let small = "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 't', n % 7, 'e', to_jsonb(n) FROM generate_series(1, 200) n";
    database.sql(small);
    database.sql(&format!(
        "BEGIN; {small};
         INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
         VALUES ('00000000-0000-4000-8000-00000000000c', 't', 'k', 'e', to_jsonb(repeat('x', 1500000))); COMMIT"
    ));
    let [_, transaction] = transactions(&outbox)[..] else { panic!("two transactions have events") };
    let log = halted(&outbox, "");
    for part in [
        &*format!("event 00000000-0000-4000-8000-00000000000c at position {}", transaction.position(200)),
        "1500003 bytes of key and value, ",
        " of headers, limit 1000000 bytes of message.max.bytes",
    ] {
        assert!(log.contains(part), "{part}\n{log}");
    }
    assert_eq!(all(&[&outbox.topic("t")]).len(), 400, "what precedes it is delivered, and once");
    assert_eq!(transactions(&outbox), [transaction]);
}

/// Partitions refuse theirs in any order.
#[test]
fn of_several_oversize_events_the_first_is_named_with_all_before_it_delivered() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 6, &[("max.message.bytes", "3000")]);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 't', n % 12, 'e', to_jsonb(repeat(md5(n::text), CASE WHEN n >= 200 AND n % 9 = 0 THEN 200 ELSE 2 END))
         FROM generate_series(1, 500) n",
    );
    let [transaction] = transactions(&outbox)[..] else { panic!("one transaction has events") };
    let log = halted(&outbox, "");
    let error = log.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(&format!("at position {} for topic", transaction.position(206))), "{log}");
    let before =
        "SELECT count(*) FROM (SELECT id FROM walpost.outbox ORDER BY seq LIMIT 206) before WHERE id = ANY ('{$}')";
    let ids: Vec<String> =
        all(&[&topic]).iter().map(|record| record.header("id").unwrap_or_default().to_owned()).collect();
    let delivered: usize = database.session().get(&before.replace('$', &ids.join(",")));
    assert_eq!(delivered, 206);
}

#[test]
fn headers_count_where_they_make_an_event_too_large() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         VALUES ('t', 'k', 'e', '1', jsonb_build_object('large', repeat('x', 1500000)))",
    );
    let log = halted(&outbox, "");
    assert!(log.contains("(2 bytes of key and value, 15001"), "{log}");
}

/// A queue that was full for a record of any size would end the session, each time at the same place.
#[test]
fn a_queue_that_holds_few_large_events_is_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 't', n % 3, 'e', to_jsonb(repeat('x', 600000)) FROM generate_series(1, 30) n",
    );
    let records = streamed(&outbox, "[kafka]\n'queue.buffering.max.kbytes' = 2048\n", &[&outbox.topic("t")]);
    assert_eq!(records.len(), 30, "none is sent twice");
}

#[test]
fn rows_of_many_megabytes_pass_where_the_limits_allow_them_and_halt_by_name_where_not() {
    const MIB: usize = 1 << 20;
    let kafka = Kafka::configure()
        .set("message.max.bytes", &(100 * MIB).to_string())
        .set("socket.request.max.bytes", &(120 * MIB).to_string())
        .start();
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ALTER payload TYPE text");
    let insert = |size: usize| {
        session.get::<String>(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('t', 'k', 'e', repeat('{size:04}', {})) RETURNING id",
            size * MIB / 4
        ))
    };
    for size in [1, 64, 2] {
        insert(size);
    }
    let more = format!("status_interval = \"500ms\"\n[kafka]\n\"message.max.bytes\" = {}\n", 100 * MIB);
    let configuration = outbox.configuration(&kafka, &more);
    let walpost = Walpost::start(&configuration);
    let walsender = walpost.streams(&outbox, WITHIN);
    outbox.drained(WITHIN * 2);
    assert_eq!(outbox.walsender(), Some(walsender), "the same walsender");
    for (got, size) in values(&kafka, &outbox.topic("t"), 3).iter().zip([1, 64, 2]) {
        let expected = format!("{size:04}").repeat(size * MIB / 4);
        assert!(got == expected.as_bytes(), "{} bytes are not {size} MiB", got.len());
    }

    let id = insert(if long() { 600 } else { 250 });
    assert_eq!(walpost.wait_exit(WITHIN * 2), 1);
    let log = walpost.log();
    let size = if long() { 600 } else { 250 } * MIB + 1;
    for part in [
        &*format!("event {id} at position"),
        &format!("{size} bytes of key and value, "),
        &format!("of headers, limit {}", 100 * MIB),
    ] {
        assert!(log.contains(part), "{part}\n{log}");
    }
}

/// The first values of a topic with one partition, by a consumer that takes any size.
fn values(kafka: &Kafka, topic: &str, count: usize) -> Vec<Vec<u8>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.brokers()).set("group.id", "e2e").set("enable.auto.commit", "false");
    config.set("fetch.message.max.bytes", "1000000000").set("receive.message.max.bytes", "1100000000");
    config.set("fetch.max.bytes", "1000000000").set("queued.max.messages.kbytes", "1000000");
    let consumer: BaseConsumer = config.create().expect("the configuration is complete");
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, Offset::Beginning).expect("the offset is valid");
    consumer.assign(&assignment).expect("the partition exists");
    (0..count)
        .map(|_| {
            let message = consumer.poll(Duration::from_secs(60)).expect("a record within a minute");
            message.expect("no error").payload().expect("a value").to_vec()
        })
        .collect()
}
