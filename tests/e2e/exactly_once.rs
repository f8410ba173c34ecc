//! Exactly once: whatever is killed, a consumer that reads committed records sees each event once and in order.

use std::time::{Duration, Instant};

use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{ids, letter, letters, with_letters},
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::Signal,
    records::{Isolation, Record},
    streamed::committed,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);

fn configuration(outbox: &Outbox<'_>, kafka: &Kafka, more: &str) -> String {
    outbox.configuration(kafka, &(outbox.exactly_once() + more))
}

fn last_position(outbox: &Outbox<'_>, kafka: &Kafka) -> Record {
    let mut reader = kafka.reader(&[&outbox.positions_topic()], Isolation::Committed, WITHIN);
    let records = reader.until(WITHIN, "a position", |records| !records.is_empty());
    records.last().expect("there is one").clone()
}

#[test]
fn hard_kills_and_broker_restarts_double_lose_and_reorder_nothing() {
    let kills = if long() { 50 } else { 12 };
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::start();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = configuration(&outbox, &kafka, "");
    let mut writer = outbox.writer();
    let huge = if long() { 100_000 } else { 20_000 };
    let shapes = [(4_000, 1), (1, huge), (60, 100)];
    for (kill, (transactions, rows)) in (0..kills).zip(shapes.into_iter().cycle()) {
        writer.bulk(Bulk { transactions, rows, aggregates: 17, padding: 100 });
        let walpost = Walpost::start(&configuration);
        let begun = outbox.confirmed();
        // Each time a little later, from before the first record to after the last.
        let until = Instant::now() + Duration::from_millis(60 * (kill % 12));
        eventually(WITHIN, "its moment", || {
            (Instant::now() >= until || outbox.confirmed() > begun + 500_000).then_some(())
        });
        if kill % 5 == 4 {
            kafka.kill();
            walpost.kill();
            kafka.start_again();
        } else {
            walpost.kill();
        }
    }
    let walpost = Walpost::start(&configuration);
    let report = outbox.committed_delivered(&kafka, "bulk", WITHIN);
    println!("{} events, {kills} kills: {report}", outbox.committed().len());
    report.assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_positions_topic_that_got_more_partitions_still_tells_the_last_position() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    kafka.create_topic(&outbox.positions_topic(), 1, &[("cleanup.policy", "compact")]);
    // Kafka has what the slot has not confirmed when walpost is killed.
    let configuration =
        configuration(&outbox, kafka, "confirm_interval = '60s'\nstatus_interval = '60s'\ntakeover_timeout = '2m'");
    let mut writer = outbox.writer();
    for partitions in [1, 2, 5, 9] {
        if partitions > 1 {
            kafka.add_partitions(&outbox.positions_topic(), partitions);
        }
        let walpost = Walpost::start(&configuration);
        writer.bulk(Bulk { transactions: 10, rows: 1, aggregates: 3, padding: 0 });
        outbox.committed_delivered(kafka, "bulk", WITHIN).assert_exactly_once();
        walpost.kill();
    }
    let walpost = Walpost::start(&configuration);
    outbox.drained(WITHIN);
    outbox.committed_delivered(kafka, "bulk", WITHIN).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Kafka refuses times that lie ahead of its own, which a clock of ours may.
#[test]
fn a_position_has_the_time_of_its_last_event_and_not_of_our_clock() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("t"), 1, &[]);
    let walpost = Walpost::start(&configuration(&outbox, kafka, "record.timestamp = 'column'"));
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, occurred_at)
         VALUES ('t', 'k', 'e', '1', '2024-02-29 23:59:59.999+00')",
    );
    outbox.drained(WITHIN);
    assert_eq!(last_position(&outbox, kafka).timestamp, Some(1_709_251_199_999));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn an_id_that_is_as_long_as_the_record_may_be_is_no_trouble_to_the_position() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("t"), 1, &[]);
    database.sql("ALTER TABLE walpost.outbox DROP CONSTRAINT outbox_pkey, ALTER id TYPE text");
    // As JSON it takes six times as much.
    database.sql(
        "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
         VALUES (repeat(chr(1), 300000), 't', 'k', 'e', '1')",
    );
    let configuration =
        configuration(&outbox, kafka, "confirm_interval = '60s'\nstatus_interval = '60s'\ntakeover_timeout = '2m'");
    for _ in 0..2 {
        let walpost = Walpost::start(&configuration);
        let mut reader = kafka.reader(&[&outbox.topic("t")], Isolation::Committed, WITHIN);
        reader.until(WITHIN, "the event", |records| !records.is_empty());
        walpost.kill();
    }
    let walpost = Walpost::start(&configuration);
    outbox.drained(WITHIN);
    let mut reader = kafka.reader(&[&outbox.topic("t")], Isolation::Committed, WITHIN);
    assert_eq!(reader.until_end(WITHIN).len(), 1);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_large_transaction_goes_on_in_its_middle() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let configuration = configuration(&outbox, kafka, "exactly_once.commit_records = 1000");
    let mut writer = outbox.writer();
    // So large that it is not over before the kill.
    writer.bulk(Bulk { transactions: 1, rows: 200_000, aggregates: 7, padding: 100 });
    let before = outbox.confirmed();
    let walpost = Walpost::start(&configuration);
    let ordinal = |record: &Record| -> u32 {
        let value: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
        let position = value["position"].as_str().expect("a text").to_owned();
        u32::from_str_radix(&position[17..], 16).expect("hexadecimal")
    };
    let positions = outbox.positions_topic();
    let mut reader = kafka.reader(&[&positions], Isolation::Committed, WITHIN);
    reader.until(WITHIN, "some chunks", |records| records.len() >= 5);
    walpost.kill();
    assert_eq!(outbox.confirmed(), before, "its transaction has not ended");
    let reached = ordinal(&last_position(&outbox, kafka));
    assert!((4_999..199_999).contains(&reached) && (reached + 1) % 1_000 == 0, "{reached}");

    let walpost = Walpost::start(&configuration);
    let report = outbox.committed_delivered(kafka, "bulk", WITHIN);
    report.assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    // Nothing that was committed to Kafka was sent again, not even aborted.
    let mut everything = kafka.reader(&[&outbox.topic("bulk")], Isolation::Uncommitted, WITHIN);
    let sent = everything.until(WITHIN, "all", |records| records.len() >= 200_032).len();
    assert!(sent <= 200_032 + 2 * 1_000, "{sent}");
}

#[test]
fn an_idle_stream_commits_no_empty_transaction_and_confirms() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("order"), 1, &[]);
    let walpost = Walpost::start(&configuration(&outbox, kafka, ""));
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    let session = database.session();
    session.run("CREATE TABLE noise (n int)");
    for _ in 0..50 {
        session.run("INSERT INTO noise SELECT generate_series(1, 1000)");
    }
    outbox.drained(WITHIN);
    let positions = outbox.positions_topic();
    let mut reader = kafka.reader(&[&positions], Isolation::Committed, WITHIN);
    outbox.writer().one("order", "o-2");
    let records = reader.until(WITHIN, "the second position", |records| records.len() >= 2);
    // One commit takes two offsets: the position and Kafka's own mark.
    assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_frozen_instance_that_thaws_is_fenced_and_doubles_nothing() {
    let server = Postgres::start(MAIN, &["wal_sender_timeout=3s"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    // A transaction stays open for so long that the freeze finds one.
    let configuration = configuration(&outbox, kafka, "exactly_once.commit_interval = '2s'");
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 10 });
    let first = Walpost::start(&configuration);
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Uncommitted, WITHIN);
    let holder = first.streams(&outbox, WITHIN);
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 10 });
    reader.until(WITHIN, "an open transaction", |records| !records.is_empty());
    first.signal(Signal::Stop);
    let second = Walpost::start(&configuration);
    eventually(WITHIN, "the second takes over", || outbox.walsender().filter(|pid| *pid != holder));
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 10 });
    outbox.drained(WITHIN);
    first.signal(Signal::Cont);
    // It learns of it from Kafka, which ends it, or from PostgreSQL first, which makes it the standby.
    eventually(WITHIN, "the first gives way", || {
        let fenced = first.log().contains("another producer has taken over transactional id walpost-");
        (fenced && !first.is_running() || first.log().contains("standby: slot")).then_some(())
    });
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 10 });
    outbox.committed_delivered(kafka, "bulk", WITHIN).assert_exactly_once();
    assert_eq!(second.terminate(WITHIN), 0);
}

#[test]
fn a_transaction_that_the_broker_timed_out_is_sent_again_by_itself() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::configure().set("transaction.abort.timed.out.transaction.cleanup.interval.ms", "500").start();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let more = "exactly_once.commit_interval = '2s'\nkafka.'transaction.timeout.ms' = 3000";
    let walpost = Walpost::start(&configuration(&outbox, &kafka, more));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 10 });
    let mut reader = kafka.reader(&[&outbox.topic("bulk")], Isolation::Uncommitted, WITHIN);
    reader.until(WITHIN, "an open transaction", |records| !records.is_empty());
    walpost.signal(Signal::Stop);
    // The aborted records stay hidden, and what another producer writes shows that the abort has come.
    let other: BaseProducer = kafka.client().create().expect("valid");
    let (topic, mark) = (outbox.topic("bulk"), "mark");
    other.send(BaseRecord::to(&topic).key(mark).payload(mark)).map_err(|(error, _)| error).expect("the queue is empty");
    other.flush(WITHIN).expect("the broker is up");
    let mut committed = kafka.reader(&[&topic], Isolation::Committed, WITHIN);
    committed.until(WITHIN, "the broker gives up the open transaction", |records| {
        records.iter().any(|record| record.key_text() == Some(mark))
    });
    walpost.signal(Signal::Cont);
    let events = 100;
    let records = committed.until(WITHIN, "every event", |records| records.len() > events);
    let mut ids: Vec<_> = records.iter().filter_map(|record| record.header("id")).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((records.len(), ids.len()), (events + 1, events));
    outbox.drained(WITHIN);
    assert!(walpost.is_running());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_position_that_is_not_of_this_log_is_an_error_by_name() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("order"), 1, &[]);
    let configuration = configuration(&outbox, kafka, "");
    let mut writer = outbox.writer();
    let walpost = Walpost::start(&configuration);
    writer.one("order", "o-1");
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let stored = last_position(&outbox, kafka);
    let entry: Value = serde_json::from_slice(stored.value.as_deref().expect("a value")).expect("JSON");
    let store = |position: &str, event_id: &str| {
        let mut entry = entry.clone();
        entry["position"] = position.into();
        entry["event_id"] = event_id.into();
        let producer: BaseProducer = kafka.client().create().expect("valid");
        let (topic, value) = (outbox.positions_topic(), entry.to_string());
        let record = BaseRecord::to(&topic).key(stored.key.as_deref().expect("a key")).payload(&value);
        producer.send(record).map_err(|(error, _)| error).expect("the queue is empty");
        producer.flush(WITHIN).expect("the broker is up");
    };
    let refused = |why: &str| {
        let before = outbox.confirmed();
        let walpost = Walpost::start(&configuration);
        assert_eq!(walpost.wait_exit(WITHIN), 1);
        assert!(walpost.log().contains(why), "{}", walpost.log());
        assert!(walpost.log().contains("exactly_once.positions_topic"), "{}", walpost.log());
        assert_eq!(outbox.confirmed(), before);
    };
    let wal = || -> u64 { database.session().get("SELECT (pg_current_wal_lsn() - '0/0')::bigint") };

    // Past the end of the log.
    store(&format!("{:016X}-00000000", wal() + (1 << 30)), "x");
    writer.one("order", "o-2");
    refused("it is an older copy");
    // Between two commits.
    let between = wal() - 1;
    writer.one("order", "o-3");
    store(&format!("{between:016X}-00000000"), "x");
    refused("the log has no event there although the slot has not passed it");
    // Before the slot: nothing is left to skip. Then another event at the place.
    store("0000000000000001-00000000", "x");
    let walpost = Walpost::start(&configuration);
    outbox.committed_delivered(kafka, "order", WITHIN).assert_exactly_once();
    walpost.kill();

    // Another event at the place: the slot is set back to a copy from before it, as a restored server would have it.
    let session = database.session();
    session.run(&format!("SELECT pg_copy_logical_replication_slot('{0}', '{0}_copy')", outbox.slot()));
    writer.one("order", "o-4");
    let walpost = Walpost::start(&configuration);
    outbox.drained(WITHIN);
    walpost.kill();
    let last = last_position(&outbox, kafka);
    let last: Value = serde_json::from_slice(last.value.as_deref().expect("a value")).expect("JSON");
    eventually(WITHIN, "the slot is free", || outbox.walsender().is_none().then_some(()));
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    session.run(&format!("SELECT pg_copy_logical_replication_slot('{0}_copy', '{0}')", outbox.slot()));
    store(last["position"].as_str().expect("a text"), "x");
    refused("and the log has event ");
}

#[test]
fn missing_rights_of_a_transaction_are_named_and_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::configure().access_lists().set("auto.create.topics.enable", "false").start();
    kafka.add_user("walpost", "s3cret");
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 1, &[]);
    kafka.allow("walpost", &["--operation", "Write", "--topic", &topic]);
    let login = "[kafka]\n'security.protocol' = 'sasl_plaintext'\n'sasl.mechanism' = 'SCRAM-SHA-512'\n\
                 'sasl.username' = 'walpost'\n'sasl.password' = 's3cret'";
    let walpost = Walpost::start(&configuration(&outbox, &kafka, login));
    outbox.writer().one("order", "o-1");
    let says = |right: &str| {
        let text = format!("kafka principal User:walpost lacks the right {right}");
        walpost.says(&text, WITHIN);
        assert!(walpost.is_running());
    };
    says("WRITE and DESCRIBE on transactional id walpost-");
    let id = ["--transactional-id", "walpost-", "--resource-pattern-type", "prefixed"];
    kafka.allow("walpost", &[&["--operation", "Write", "--operation", "Describe"], &id[..]].concat());
    let positions = outbox.positions_topic();
    says(&format!("READ and WRITE on topic {positions} (and CREATE, where walpost is to make it)"));
    for operation in ["Create", "Write", "Read"] {
        kafka.allow("walpost", &["--operation", operation, "--topic", &positions]);
    }
    outbox.committed_delivered(&kafka, "order", WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn an_event_for_a_topic_that_is_not_the_applications_is_a_dead_letter() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("t"));
    kafka.create_topic(&topic, 1, &[]);
    let positions = outbox.positions_topic();
    let session = database.session();
    let to = |destination: &str| -> String {
        session.get(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, destination)
             VALUES ('t', '{destination}', 'e', '1', '{destination}') RETURNING id"
        ))
    };
    let [position, offsets, state] = [&*positions, "__consumer_offsets", "__transaction_state"].map(to);
    let good = to(&topic);
    let walpost =
        Walpost::start(&configuration(&outbox, kafka, "status_interval = '500ms'\nroute.topic = '${destination}'"));
    outbox.drained(WITHIN);
    assert_eq!(ids(&committed(&topic, 1)), [&good]);
    let expected = [
        letter("parked", "rejected", &position),
        letter("parked", "invalid_topic", &offsets),
        letter("parked", "invalid_topic", &state),
    ];
    assert_eq!(letters(&outbox), expected);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let again =
        Walpost::start(&configuration(&outbox, kafka, "status_interval = '500ms'\nroute.topic = '${destination}'"));
    again.streams(&outbox, WITHIN);
    assert_eq!(again.terminate(WITHIN), 0);
}
