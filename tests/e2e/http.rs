//! Metrics and health tell the truth: while streaming, idle, blocked, cut off from the database, and as a standby.

use std::time::Duration;

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::Outbox,
    postgres::{MAIN, Mode, Postgres},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

/// Gauges that only a stream, or a server that answers, can fill.
const KNOWN_BY_STREAM: [&str; 9] = [
    "walpost_confirmed_lsn",
    "walpost_lag_bytes",
    "walpost_lag_seconds",
    "walpost_in_flight_records",
    "walpost_in_flight_bytes",
    "walpost_in_flight_wait_seconds",
    "walpost_queued_records",
    "walpost_feedback_age_seconds",
    "walpost_slot_retained_bytes",
];

fn ready(walpost: &Walpost, code: u16) -> String {
    eventually(WITHIN, &format!("/readyz answers {code}"), || {
        let (answered, body) = walpost.http("/readyz")?;
        (answered == code).then_some(body)
    })
}

fn metric(walpost: &Walpost, name: &str, what: &str, holds: impl Fn(f64) -> bool) -> f64 {
    eventually(WITHIN, &format!("{name} is {what}"), || walpost.metric(name).filter(|value| holds(*value)))
}

#[test]
fn lag_and_health_follow_what_happens() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("order");
    kafka.create_blockable_topic(&topic, 1);
    // Not a moment of a fresh start shows a lag since 1970.
    let walpost =
        Walpost::start(&outbox.configuration(kafka, "status_interval = '1s'\nkafka.'statistics.interval.ms' = 500"));
    ready(&walpost, 200);
    for name in KNOWN_BY_STREAM {
        let value = walpost.metric(name).unwrap_or_else(|| panic!("{name} is known while streaming"));
        assert!((0.0..1e10).contains(&value), "{name} is {value}");
    }
    assert_eq!(walpost.metric("walpost_lag_seconds"), Some(0.0));
    assert_eq!(walpost.metric("walpost_up"), Some(1.0));

    let mut writer = outbox.writer();
    for n in 0..10 {
        writer.one("order", &format!("o-{n}"));
    }
    let delivered = format!("walpost_records_delivered_total{{topic=\"{topic}\"}}");
    metric(&walpost, &delivered, "10", |value| value == 10.0);
    assert_eq!(walpost.metric("walpost_events_total{table=\"walpost.outbox\"}"), Some(10.0));
    metric(&walpost, "walpost_commit_to_delivery_seconds_count", "10", |value| value == 10.0);

    // Idle, with other tables' traffic: no lag in time, and none in bytes that stays.
    database.sql("CREATE TABLE other AS SELECT n, repeat('x', 500) AS pad FROM generate_series(1, 20000) n");
    assert_eq!(walpost.metric("walpost_lag_seconds"), Some(0.0));
    let log_end: f64 = database.session().get("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn");
    metric(&walpost, "walpost_confirmed_lsn", "past the other traffic", |value| value >= log_end);
    metric(&walpost, "walpost_lag_bytes", "small", |value| value < 1e6);

    // Blocked: the lag rises, and is gone afterwards.
    kafka.block(&topic);
    writer.one("order", "blocked");
    metric(&walpost, "walpost_lag_seconds", "more than 2", |value| value > 2.0);
    assert_eq!(walpost.metric("walpost_in_flight_records"), Some(1.0));
    assert_eq!(walpost.metric("walpost_queued_records"), Some(1.0));
    metric(&walpost, "walpost_in_flight_wait_seconds", "more than 2", |value| value > 2.0);
    metric(&walpost, "walpost_retries_total", "above 0, as Kafka refuses for the time being", |value| value > 0.0);
    if long() {
        let reasons = ready(&walpost, 503);
        assert!(reasons.contains("blocked") && reasons.contains("1 records"), "{reasons}");
    }
    kafka.unblock(&topic);
    metric(&walpost, &delivered, "11", |value| value == 11.0);
    metric(&walpost, "walpost_lag_seconds", "0", |value| value == 0.0);

    // Without the database: not ready, with the reason; alive; nothing stale.
    server.stop(Mode::Fast, WITHIN);
    let reasons = ready(&walpost, 503);
    assert!(!reasons.contains(r#""reasons":[]"#), "{reasons}");
    metric(&walpost, "walpost_up", "0", |value| value == 0.0);
    eventually(WITHIN, "walpost connects again", || {
        walpost.metric("walpost_state{state=\"connecting\"}").filter(|value| *value == 1.0)
    });
    for name in KNOWN_BY_STREAM {
        assert_eq!(walpost.metric(name), None, "{name} cannot be known without a server");
    }
    assert_eq!(walpost.http("/healthz").map(|(code, _)| code), Some(200));
    server.start_again();
    ready(&walpost, 200);
    writer = outbox.writer();
    writer.one("order", "after the shutdown");
    metric(&walpost, &delivered, "12", |value| value == 12.0);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_standby_is_ready_and_claims_nothing_of_the_stream() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let active = Walpost::start(&outbox.configuration(kafka, ""));
    active.streams(&outbox, WITHIN);
    let standby = Walpost::start(&outbox.configuration(kafka, ""));
    let body = eventually(WITHIN, "the standby waits", || {
        standby.http("/readyz").map(|(_, body)| body).filter(|body| body.contains(r#""state":"standby""#))
    });
    assert!(body.contains("in use") && standby.http("/readyz").is_some_and(|(code, _)| code == 200), "{body}");
    assert_eq!(standby.metric("walpost_state{state=\"standby\"}"), Some(1.0));
    assert_eq!(standby.metric("walpost_up"), Some(0.0));
    for name in KNOWN_BY_STREAM {
        assert_eq!(standby.metric(name), None, "{name} is the active one's to tell");
    }
    active.kill();
    metric(&standby, "walpost_up", "1", |value| value == 1.0);
}

#[test]
fn a_blip_is_counted_and_leaves_nothing_wrong_behind() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let more = "status_interval = '1s'\nprogress_interval = '200ms'\nretention = '0s'\nprune.every = '1s'";
    let walpost = Walpost::start(&outbox.configuration(Kafka::shared(), more));
    let walsender = walpost.streams(&outbox, WITHIN);
    let info = format!(
        "walpost_stream_info{{database=\"{}\",slot=\"{}\",publication=\"walpost\"}}",
        database.name,
        outbox.slot()
    );
    assert_eq!(walpost.metric(&info), Some(1.0));
    assert!(walpost.metric("process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    let mut writer = outbox.writer();
    writer.begin();
    (0..4).for_each(|_| writer.event("order", "o-1"));
    writer.commit();
    let delivered = format!("walpost_records_delivered_total{{topic=\"{}\"}}", outbox.topic("order"));
    metric(&walpost, &delivered, "4", |value| value == 4.0);
    metric(&walpost, "walpost_transaction_events_sum", "4", |value| value == 4.0);
    assert_eq!(walpost.metric("walpost_transaction_events_count"), Some(1.0));

    database.sql(&format!("SELECT pg_terminate_backend({walsender})"));
    metric(&walpost, "walpost_reconnects_total", "1", |value| value == 1.0);
    metric(&walpost, "walpost_up", "1", |value| value == 1.0);
    writer.one("order", "o-1");
    // What was confirmed before may come again, and is then counted again.
    metric(&walpost, &delivered, "5 at least", |value| value >= 5.0);
    ready(&walpost, 200);
    assert_eq!(walpost.metric("walpost_ready"), Some(1.0));
    for name in KNOWN_BY_STREAM {
        let value = walpost.metric(name).unwrap_or_else(|| panic!("{name} is known again"));
        assert!((0.0..1e10).contains(&value), "{name} is {value}");
    }
    metric(&walpost, "walpost_lag_seconds", "0", |value| value == 0.0);
    metric(&walpost, "walpost_feedback_age_seconds", "below the status_interval", |value| value < 1.5);

    let pruned = "walpost_pruned_rows_total{table=\"walpost.outbox\"}";
    metric(&walpost, pruned, "5", |value| value == 5.0);
    let finished = "walpost_prune_finished_timestamp_seconds{table=\"walpost.outbox\"}";
    metric(&walpost, finished, "a time of our days", |value| value > 1.7e9);
}

#[test]
fn a_reading_of_the_table_shows_how_far_it_is_and_then_no_more() {
    let database = Postgres::shared(MAIN).database();
    let (outbox, kafka) = (Outbox::create(&database), Kafka::shared());
    database.sql(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    database.sql(include_str!("../../sql/progress.sql"));
    let topic = outbox.topic("order");
    kafka.create_blockable_topic(&topic, 1);
    kafka.block(&topic);
    let mut writer = outbox.writer();
    writer.begin();
    (0..50).for_each(|_| writer.event("order", "o-1"));
    writer.commit();
    database.sql("ANALYZE walpost.outbox");
    let walpost = Walpost::start(&outbox.configuration(kafka, "snapshot = 'initial'"));
    metric(&walpost, "walpost_reading_rows_estimated", "50", |value| value == 50.0);
    assert_eq!(walpost.metric("walpost_up"), Some(1.0));
    metric(&walpost, "walpost_in_flight_records", "above 0", |value| value > 0.0);
    assert!(walpost.metric("walpost_reading_rows").is_some_and(|rows| rows < 50.0));
    for name in KNOWN_BY_STREAM {
        let value = walpost.metric(name);
        assert!(value.is_none_or(|value| (0.0..1e10).contains(&value)), "{name} is {value:?} before the stream");
    }
    kafka.unblock(&topic);
    eventually(WITHIN, "the reading is over", || walpost.metric("walpost_reading_rows").is_none().then_some(()));
    let delivered = format!("walpost_records_delivered_total{{topic=\"{topic}\"}}");
    metric(&walpost, &delivered, "50", |value| value == 50.0);
    // Nobody knows when they were committed.
    assert_eq!(walpost.metric("walpost_commit_to_delivery_seconds_count"), Some(0.0));
}

#[test]
fn errors_of_kafka_are_counted_by_their_names() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let configuration = outbox.configuration(Kafka::shared(), "");
    let walpost = Walpost::start_with(&configuration, &["--brokers", "127.0.0.1:9"], &[]);
    walpost.streams(&outbox, WITHIN);
    outbox.writer().one("order", "o-1");
    metric(&walpost, "walpost_kafka_errors_total{code=\"_TRANSPORT\"}", "above 0", |value| value > 0.0);
    metric(&walpost, "walpost_kafka_errors_total{code=\"_ALL_BROKERS_DOWN\"}", "above 0", |value| value > 0.0);
    assert_eq!(walpost.metric("walpost_in_flight_records"), Some(1.0));
}

#[test]
fn an_address_that_is_taken_ends_the_start_with_the_key_to_change() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let more = format!("[http]\nlisten = '{address}'");
    let walpost = Walpost::start(&outbox.configuration(Kafka::shared(), &more));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(log.contains(&address.to_string()) && log.contains("http.listen"), "{log}");
}
