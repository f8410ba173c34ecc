//! Memory stays bounded whatever piles up, and a backlog drains at the server's own pace.

use std::{
    collections::HashSet,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::Builder;
use walpost::{
    pipeline::{Lsn, frame::Frame},
    postgres::{
        conninfo::ConnInfo,
        replication::{Replication, StartRequest},
    },
};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    records::Isolation,
    walpost::Walpost,
};

/// The bound that walpost promises, whatever happens around it.
const MEMORY_MIB: f64 = 64.0;
const WITHIN: Duration = Duration::from_secs(540);

#[test]
fn a_blocked_kafka_and_much_to_send_cost_no_memory() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("bulk");
    kafka.create_blockable_topic(&topic, 1);
    let session = database.session();
    // What is not compressed has its size in the log too.
    session.run("ALTER TABLE walpost.outbox ALTER payload SET STORAGE EXTERNAL");
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    let pid = walpost.streams(&outbox, WITHIN);
    // A partition that has taken a record may have as much under way as the limits allow.
    session.run("INSERT INTO walpost.outbox (aggregate_type, event_type) VALUES ('bulk', 'first')");
    outbox.drained(WITHIN);
    kafka.block(&topic);
    // Half in many transactions, half in one.
    let large = if long() { 1_650 } else { 110 };
    let insert = |rows: u32, padding: u32, key: &str| {
        format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             SELECT 'bulk', {key} || '-' || n % 7, 'happened', to_jsonb(repeat('x', {padding}))
             FROM generate_series(1, {rows}) n"
        )
    };
    session.run(&format!(
        "DO $$ BEGIN FOR t IN 1 .. {large} LOOP {}; {}; COMMIT; END LOOP; END $$",
        insert(1, 900_000, "t"),
        insert(100, 200, "t")
    ));
    session.run(&format!("BEGIN; {}; {}; COMMIT", insert(100 * large, 200, "'a'"), insert(large, 900_000, "'a'")));

    let full = eventually(WITHIN, "no more may be in flight", || {
        walpost.metric("walpost_in_flight_bytes").filter(|bytes| *bytes > 15e6)
    });
    thread::sleep(Duration::from_secs(if long() { 60 } else { 3 })); // time to grow
    assert_eq!(walpost.metric("walpost_in_flight_bytes"), Some(full));
    assert_eq!(outbox.walsender(), Some(pid));
    let blocked = walpost.peak_rss_mib();

    kafka.unblock(&topic);
    outbox.drained(WITHIN);
    let peak = walpost.peak_rss_mib();
    println!("blocked: {blocked:.1} MiB, drained: {peak:.1} MiB");
    assert!(peak < MEMORY_MIB, "{peak:.1} MiB");
    assert_eq!(walpost.terminate(WITHIN), 0);
    let mut reader = kafka.reader(&[&topic], Isolation::Uncommitted, WITHIN).without_values();
    let arrived: HashSet<&str> = reader.until_end(WITHIN).iter().filter_map(|record| record.header("id")).collect();
    let rows = session.rows("SELECT id FROM walpost.outbox");
    let missing = rows.iter().filter(|row| row[0].as_deref().is_none_or(|id| !arrived.contains(id))).count();
    assert_eq!((missing, rows.len()), (0, 1 + 202 * large as usize));
}

#[test]
fn many_topics_and_statistics_cost_little_memory() {
    let topics = if long() { 2_000 } else { 100 };
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let configuration = outbox.configuration(kafka, "topics.create = true\n[kafka]\n'statistics.interval.ms' = 200");
    let walpost = Walpost::start(&configuration);
    database.sql(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 't' || n % {topics}, n::text, 'happened', '{{}}' FROM generate_series(1, 3 * {topics}) n"
    ));
    outbox.drained(WITHIN);
    let peak = walpost.peak_rss_mib();
    println!("{topics} topics: {peak:.1} MiB");
    // Topics are the user's to bound: librdkafka keeps about 30 KiB for each.
    assert!(peak < MEMORY_MIB + f64::from(topics) / 32.0, "{peak:.1} MiB");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_backlog_of_small_transactions_drains_without_waiting() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let session = database.session();
    let floor_slot = format!("{}_floor", database.name);
    session.run(&format!("SELECT pg_create_logical_replication_slot('{floor_slot}', 'pgoutput')"));
    session.run("CREATE TABLE other (n int)");
    let (rounds, events, unrelated) = if long() { (200, 1_000, 25_000) } else { (40, 1_000, 10_000) };
    let mut writer = outbox.writer();
    for _ in 0..rounds {
        writer.bulk(Bulk { transactions: events, rows: 1, aggregates: 7, padding: 300 });
        session.run(&format!("INSERT INTO other SELECT generate_series(1, {unrelated})"));
    }
    let total = rounds * events;
    let floor = receive(&database.url(), &floor_slot, total);
    let started = Instant::now();
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    outbox.drained(WITHIN);
    let drained = started.elapsed();
    println!("{total} transactions: {drained:?}, the server alone: {floor:?}");
    // A rest of a millisecond for each transaction would already be more.
    assert!(drained < floor * 8 + Duration::from_secs(5), "{drained:?}, the server alone: {floor:?}");
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    assert!(walpost.peak_rss_mib() < MEMORY_MIB, "{:.1} MiB", walpost.peak_rss_mib());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// How long the server takes to send so many rows to someone who throws them away.
fn receive(url: &str, slot: &str, rows: u32) -> Duration {
    let received = async {
        let at = ConnInfo::parse(url, |_| None).expect("the URL is whole");
        let connection = Replication::connect(&at).await?;
        let started = Instant::now();
        let request = StartRequest { slot, publications: &["walpost"], start: Lsn::INVALID, messages: false };
        let mut stream = connection.start(&request).await?;
        let mut received = 0;
        while received < rows {
            stream.progress(true).await?;
            while let Some(frame) = stream.next_frame()? {
                let row =
                    matches!(Frame::parse(frame), Ok(Frame::XLogData { message, .. }) if message.starts_with(b"I"));
                received += u32::from(row);
            }
        }
        Ok::<_, walpost::postgres::Error>(started.elapsed())
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(received).expect("the server sends")
}
