//! Kafka paused, stopped, killed, without a topic, or refusing: the stream waits, goes on by itself, or stops by name.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{ids, insert, letter, letters, with_letters},
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);

/// A broker that the stories of this file take turns to disturb. It makes no topic by itself.
fn disturbed() -> MutexGuard<'static, Kafka> {
    static BROKER: OnceLock<Mutex<Kafka>> = OnceLock::new();
    let start = || Mutex::new(Kafka::configure().set("auto.create.topics.enable", "false").start());
    BROKER.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn five_broker_restarts_keep_twenty_thousand_events_in_order() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let walpost = Walpost::start(&outbox.configuration(&kafka, ""));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    for restart in 0..5 {
        writer.bulk(Bulk { transactions: 2_000, rows: 1, aggregates: 10, padding: 50 });
        writer.bulk(Bulk { transactions: 20, rows: 100, aggregates: 10, padding: 50 });
        // The connection breaks in the middle of batches; an orderly stop hands over in order.
        if restart % 2 == 0 {
            kafka.kill();
        } else {
            kafka.stop();
        }
        kafka.start_again();
    }
    let report = outbox.delivered(&kafka, &["bulk"], WITHIN);
    println!("five restarts: {report}");
    assert_eq!(outbox.committed().len(), 20_000);
    report.assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_queue_of_ten_and_a_paused_broker_drop_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let queue_of_ten =
        "[kafka]\n'queue.buffering.max.messages' = 10\n'request.timeout.ms' = 2000\n'socket.timeout.ms' = 3000";
    let walpost = Walpost::start(&outbox.configuration(&kafka, queue_of_ten));
    let pid = walpost.streams(&outbox, WITHIN);
    kafka.pause();
    outbox.writer().bulk(Bulk { transactions: 5_000, rows: 1, aggregates: 7, padding: 100 });
    // Longer than requests may take: they fail and are tried again.
    thread::sleep(Duration::from_secs(if long() { 20 } else { 6 }));
    assert_eq!(outbox.walsender(), Some(pid));
    kafka.resume();
    outbox.delivered(&kafka, &["bulk"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert!(walpost.peak_rss_mib() < 64.0, "{} MiB", walpost.peak_rss_mib());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_topic_that_is_deleted_and_made_again_gets_all_that_comes_after() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(&kafka, ""));
    let mut writer = outbox.writer();
    writer.one("order", "before");
    outbox.delivered(&kafka, &["order"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);

    kafka.delete_topic(&topic);
    let held = outbox.confirmed();
    for n in 0..10 {
        writer.one("order", &format!("after-{}", n % 3));
    }
    let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    let cause = format!("records wait for kafka: topic {topic} does not exist");
    walpost.says(&cause, WITHIN);
    let confirmed = outbox.confirmed();
    assert!(confirmed >= held && confirmed < end, "nothing of what has no topic is confirmed");
    kafka.create_topic(&topic, 1, &[]);
    let records = kafka.read(&topic, 10, WITHIN);
    let keys: Vec<_> = records.iter().filter_map(|record| record.key_text()).collect();
    assert_eq!(keys, (0..10).map(|n| format!("after-{}", n % 3)).collect::<Vec<_>>());
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_quiet_topic_that_is_deleted_is_waited_for_as_long_as_any() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 1, &[]);
    let patient = Duration::from_secs(8);
    let more = format!("route.unknown_topic_timeout = '{}s'", patient.as_secs());
    let walpost = Walpost::start(&outbox.configuration(&kafka, &more));
    let mut writer = outbox.writer();
    writer.one("order", "o-1");
    outbox.drained(WITHIN);
    kafka.delete_topic(&topic);
    thread::sleep(patient + Duration::from_secs(1)); // the topic is unknown for longer than that, and nobody needs it
    writer.one("order", "o-1");
    walpost.says("kafka has had no topic for event", WITHIN);
    assert!(walpost.is_running(), "{}", walpost.log());
    kafka.create_topic(&topic, 1, &[]);
    assert_eq!(kafka.read(&topic, 1, WITHIN).len(), 1);
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_topic_that_comes_late_is_waited_for_and_one_that_never_comes_halts_by_name() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    let mut writer = outbox.writer();
    writer.one("late", "l-1");
    writer.one("late", "l-1");
    let walpost = Walpost::start(&outbox.configuration(&kafka, ""));
    walpost.streams(&outbox, WITHIN);
    let before = outbox.confirmed();
    thread::sleep(Duration::from_secs(if long() { 50 } else { 3 })); // the topic comes late
    assert_eq!(outbox.confirmed(), before);
    kafka.create_topic(&outbox.topic("late"), 1, &[]);
    outbox.delivered(&kafka, &["late"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);

    writer.one("never", "n-1");
    writer.one("late", "l-2");
    let id = &outbox.committed()[2].id;
    let walpost = Walpost::start(&outbox.configuration(&kafka, "route.unknown_topic_timeout = '3s'"));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let (log, topic) = (walpost.log(), outbox.topic("never"));
    assert!(log.contains(&format!("kafka has had no topic for event {id} at position ")), "{log}");
    assert!(log.contains(&format!("for topic {topic} in ")) && log.contains("topics.create = true"), "{log}");

    // Made at last, everything goes on where it stopped.
    kafka.create_topic(&topic, 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(&kafka, ""));
    outbox.delivered(&kafka, &["late", "never"], WITHIN).assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_topic_of_dead_letters_that_does_not_exist_ends_the_stream() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let kafka = disturbed();
    let unroutable = insert(&outbox, "no topic", "k", "'1'");
    let dead = outbox.topic("dead");
    let patience = "route.unknown_topic_timeout = '2s'";
    let more = format!("dead_letter_topic = '{dead}'\n{patience}");
    let walpost = Walpost::start(&outbox.configuration(&kafka, &more));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(
        log.contains(&format!("topic {dead}, where it is to go, does not take it (kafka has had no topic")),
        "{log}"
    );
    // Nor one that cannot be made.
    let wide = format!("dead_letter_topic = '{dead}'\ntopics.create = true\ntopics.replication = 9\n{patience}");
    let walpost = Walpost::start(&outbox.configuration(&kafka, &wide));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let said = format!("topic {dead}, where it is to go, does not take it (kafka does not create topic {dead}");
    assert!(walpost.log().contains(&said), "{}", walpost.log());
    // It has its row already, and is announced when the topic is there.
    assert_eq!(letters(&outbox), [letter("parked", "invalid_topic", &unroutable)]);
    kafka.create_topic(&dead, 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(&kafka, &more));
    outbox.drained(WITHIN);
    assert_eq!(ids(&kafka.read(&dead, 1, WITHIN)), [&unroutable]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// A cluster that is starting says that it has too few brokers, as does one that will never have enough.
#[test]
fn a_topic_for_more_brokers_than_there_are_is_waited_for_and_halts_at_last() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = disturbed();
    let topic = outbox.topic("wide");
    let mut writer = outbox.writer();
    writer.one("wide", "w-1");
    let wide = "topics.create = true\ntopics.replication = 5\n";
    let walpost = Walpost::start(&outbox.configuration(&kafka, wide));
    eventually(WITHIN, "the log says what is waited for", || {
        walpost.log().contains(&format!("topic {topic} could not be created yet")).then_some(())
    });
    kafka.create_topic(&topic, 1, &[]);
    outbox.delivered(&kafka, &["wide"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);

    writer.one("wider", "w-1");
    let walpost = Walpost::start(&outbox.configuration(&kafka, &format!("{wide}route.unknown_topic_timeout = '2s'")));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let error = format!("error: topic {} could not be created: InvalidReplicationFactor", outbox.topic("wider"));
    assert!(walpost.log().contains(&error), "{}", walpost.log());
}

/// A sequence that the broker does not expect makes a producer fatal; librdkafka's own broker can be told to say so. It
/// compares no sequences, so it takes what was under way behind a refusal: order is for the stories on a real broker.
#[test]
fn a_fatal_producer_is_rebuilt_and_the_stream_goes_on_from_the_slot() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let mock = MockCluster::new(1).expect("librdkafka has a mock cluster");
    let topic = outbox.topic("bulk");
    mock.create_topic(&topic, 1, 1).expect("the name is free");
    let brokers = format!("brokers = '{}'", mock.bootstrap_servers());
    let walpost = Walpost::start(&outbox.configuration(Kafka::shared(), &brokers));
    let mut writer = outbox.writer();
    for _ in 0..3 {
        writer.bulk(Bulk { transactions: 100, rows: 1, aggregates: 3, padding: 0 });
        outbox.drained(WITHIN);
        // One event alone: unlike Kafka, that broker would take a request behind the refused one.
        mock.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
        writer.one("bulk", "w0-0");
        outbox.drained(WITHIN);
    }
    // Whether the record's report or the producer's end comes first is open.
    let log = walpost.log();
    assert_eq!(log.matches("trying again in").count(), 3, "{log}");
    assert!(log.contains("the kafka producer is of no more use, a new one continues from the slot"), "{log}");
    assert_eq!(walpost.terminate(WITHIN), 0);

    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "e2e")
        .set("auto.offset.reset", "earliest");
    let consumer: BaseConsumer = config.create().expect("the configuration is complete");
    consumer.subscribe(&[&topic]).expect("the topic exists");
    let mut arrived = Vec::new();
    let ids: Vec<String> = outbox.committed().into_iter().map(|event| event.id).collect();
    eventually(WITHIN, "every event arrives", || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let id = message.headers().expect("records have headers").get(0).value.expect("the id is first");
            arrived.push(String::from_utf8(id.to_vec()).expect("it is text"));
        }
        ids.iter().all(|id| arrived.contains(id)).then_some(())
    });
}

/// The topic takes times from a day ago to an hour ahead.
#[test]
fn a_time_that_the_topic_refuses_halts_by_name_and_keeps_the_order() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    let limits = [("message.timestamp.after.max.ms", "3600000"), ("message.timestamp.before.max.ms", "86400000")];
    kafka.create_topic(&topic, 1, &limits);
    let mut writer = outbox.writer();
    for odd in
        ["now() + interval '2 hours'", "now() - interval '3 days'", "'1960-01-01'", "'infinity'", "'0044-03-15 BC'"]
    {
        writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 3, padding: 0 });
        // One after another: the odd one is among events of the same key.
        let last: i64 = writer.session.get("SELECT max(seq) FROM walpost.outbox");
        writer.session.run(&format!("ALTER TABLE walpost.outbox ALTER occurred_at SET DEFAULT {odd}"));
        writer.bulk(Bulk { transactions: 1, rows: 1, aggregates: 3, padding: 0 });
        writer.session.run("ALTER TABLE walpost.outbox ALTER occurred_at SET DEFAULT clock_timestamp()");
        writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 3, padding: 0 });
        let id =
            writer.session.value(&format!("SELECT id FROM walpost.outbox WHERE seq > {last} ORDER BY seq LIMIT 1"));
        let id = id.expect("it was inserted");

        let by_column = outbox.configuration(kafka, "record.timestamp = 'column'");
        let walpost = Walpost::start(&by_column);
        if odd.starts_with("now") {
            assert_eq!(walpost.wait_exit(WITHIN), 1, "{odd}");
            let log = walpost.log();
            assert!(log.contains(&format!("kafka rejected event {id} at position ")), "{odd}: {log}");
            let reason = format!("for topic {topic} for good: Broker: Invalid timestamp (");
            assert!(log.contains(&reason) && !log.contains("\"pad\""), "{odd}: {log}");
            let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
            assert!(outbox.confirmed() < end, "{odd}");
            drop(walpost);
            // The way out: the time of the commit.
            let walpost = Walpost::start(&outbox.configuration(kafka, ""));
            outbox.drained(WITHIN);
            assert_eq!(walpost.terminate(WITHIN), 0);
        } else {
            // No time that a record can have: the commit's stands in.
            outbox.drained(WITHIN);
            assert_eq!(walpost.terminate(WITHIN), 0, "{odd}");
        }
    }
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("odd times: {report}");
    report.assert_complete();
}
