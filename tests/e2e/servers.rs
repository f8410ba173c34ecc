//! The servers behave as the stories need: otherwise a story would fail, or pass, for the wrong reason.

use std::time::Duration;

use openssl::{
    ssl::{SslConnector, SslMethod},
    x509::X509,
};
use postgres_openssl::MakeTlsConnector;
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

use crate::support::{
    certificates::Authority,
    eventually,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Mode, Postgres, VERSIONS},
    records::Isolation,
};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn every_postgresql_starts_and_is_ready_for_logical_decoding() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let session = database.session();
        assert_eq!(session.get::<u32>("SELECT current_setting('server_version_num')::int / 10000"), u32::from(version));
        session.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
        assert_eq!(
            session.get::<u16>("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"),
            1
        );
    }
}

#[test]
fn a_crashed_postgresql_comes_back_on_its_port_with_its_data() {
    let server = Postgres::start(MAIN, &["wal_sender_timeout=0"]);
    server.sql("CREATE TABLE t AS SELECT 7 AS seven");
    server.crash();
    server.start_again();
    server.restart();
    let session = server.session("postgres");
    assert_eq!(session.value("SELECT seven FROM t").as_deref(), Some("7"));
    assert_eq!(session.value("SHOW wal_sender_timeout").as_deref(), Some("0"));
    drop(session);
    for mode in [Mode::Smart, Mode::Immediate] {
        let socket = server.socket_folder().join(format!(".s.PGSQL.{}", server.port()));
        assert!(socket.exists());
        server.stop(mode, WITHIN);
        assert!(!socket.exists() && !server.data().join("postmaster.pid").exists(), "{mode:?} leaves nothing behind");
        server.start_again();
    }
}

#[test]
fn a_failed_expectation_says_what_was_awaited() {
    let failed = std::panic::catch_unwind(|| eventually(Duration::ZERO, "the impossible", || None::<()>));
    let message = *failed.expect_err("it cannot happen").downcast::<String>().expect("a text");
    assert!(message.contains("the impossible"), "{message}");
}

#[test]
fn kafka_gives_back_what_was_produced() {
    let kafka = Kafka::shared();
    kafka.create_topic("plain", 3, &[("retention.ms", "-1")]);
    let producer = producer(&kafka.brokers(), &[]);
    for number in 0..100 {
        let (key, value) = (format!("k{}", number % 10), format!("v{number}"));
        let headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(&value) });
        producer.send(BaseRecord::to("plain").key(&key).payload(&value).headers(headers)).expect("the queue has room");
    }
    producer.flush(WITHIN).expect("all are delivered");
    let records = kafka.read("plain", 100, WITHIN);
    assert_eq!(records.len(), 100);
    for record in &records {
        let value = record.value_text().expect("a value");
        assert_eq!(record.header("id"), Some(value));
        assert_eq!(record.key_text(), Some(format!("k{}", &value[value.len() - 1..]).as_str()));
        assert!(record.timestamp.is_some_and(|ms| ms > 0));
    }
    let mut reader = kafka.reader(&["plain"], Isolation::Committed, WITHIN);
    assert_eq!(reader.until_end(WITHIN).len(), 100);
    assert_eq!(reader.records().len(), 100);
    kafka.delete_topic("plain");
    assert_eq!(kafka.partitions("plain"), None);
}

#[test]
fn one_topic_can_be_blocked_while_others_go_on() {
    let kafka = Kafka::shared();
    kafka.create_blockable_topic("blocked", 1);
    kafka.create_topic("free", 1, &[]);
    let producer = producer(&kafka.brokers(), &[]);
    kafka.block("blocked");
    producer.send(BaseRecord::<str, str>::to("blocked").payload("late")).expect("the queue has room");
    producer.send(BaseRecord::<str, str>::to("free").payload("at once")).expect("the queue has room");
    assert_eq!(kafka.read("free", 1, WITHIN)[0].value_text(), Some("at once"));
    assert!(producer.flush(Duration::from_secs(2)).is_err(), "the blocked topic takes nothing");
    kafka.unblock("blocked");
    producer.flush(WITHIN).expect("it is delivered once the topic is unblocked");
    assert_eq!(kafka.read("blocked", 1, WITHIN)[0].value_text(), Some("late"));
}

#[test]
fn a_paused_stopped_or_killed_kafka_comes_back_on_its_port_with_its_data() {
    let kafka = Kafka::start();
    kafka.create_topic("t", 1, &[]);
    let producer = producer(&kafka.brokers(), &[]);
    let send = |text: &str| producer.send(BaseRecord::<str, str>::to("t").payload(text)).expect("the queue has room");
    kafka.pause();
    send("paused");
    assert!(producer.flush(Duration::from_secs(1)).is_err(), "nothing answers while it is paused");
    kafka.resume();
    producer.flush(WITHIN).expect("it answers again");
    kafka.stop();
    send("stopped");
    kafka.start_again();
    producer.flush(WITHIN).expect("it is back");
    kafka.kill();
    send("killed");
    kafka.start_again();
    producer.flush(WITHIN).expect("it is back again");
    let values: Vec<_> = kafka.read("t", 3, WITHIN).iter().map(|r| r.value_text().map(str::to_owned)).collect();
    assert_eq!(values, ["paused", "stopped", "killed"].map(|text| Some(text.to_owned())));
}

#[test]
fn kafka_speaks_tls_to_those_who_know_its_authority_and_a_password() {
    let authority = Authority::new();
    let kafka = Kafka::configure().sasl_tls(authority.server()).start();
    kafka.add_user("walpost", "s3cret");
    kafka.create_topic("t", 1, &[]);
    let ca = authority.pem();
    let login = [("security.protocol", "sasl_ssl"), ("sasl.mechanism", "SCRAM-SHA-512"), ("sasl.username", "walpost")];
    let delivered = |ca: &str, password: &str, within| {
        let last = [("ssl.ca.pem", ca), ("sasl.password", password), ("message.timeout.ms", "3000")];
        let producer = producer(&kafka.brokers(), &[&login[..], &last[..]].concat());
        producer.send(BaseRecord::<str, str>::to("t").payload(password)).expect("the queue has room");
        producer.flush(within).is_ok()
    };
    assert!(delivered(&ca, "s3cret", WITHIN));
    assert!(!delivered(&ca, "wrong", Duration::from_secs(1)));
    assert!(!delivered(&Authority::new().pem(), "s3cret", Duration::from_secs(1)));
    assert_eq!(kafka.reader(&["t"], Isolation::Committed, WITHIN).until_end(WITHIN).len(), 1);
}

#[test]
fn kafka_takes_records_only_from_those_whom_its_lists_allow() {
    let kafka = Kafka::configure().access_lists().start();
    kafka.add_user("walpost", "s3cret");
    kafka.create_topic("t", 1, &[]);
    let login = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "walpost"),
        ("sasl.password", "s3cret"),
    ];
    let produce = || {
        let producer = producer(&kafka.brokers(), &login);
        producer.send(BaseRecord::<str, str>::to("t").payload("x")).expect("the queue has room");
        producer.flush(Duration::from_secs(2)).expect("a refusal is an answer too");
        kafka.reader(&["t"], Isolation::Committed, WITHIN).until_end(WITHIN).len()
    };
    assert_eq!(produce(), 0);
    let write = ["--operation", "Write", "--operation", "Describe", "--topic", "t"];
    kafka.allow("walpost", &write);
    assert_eq!(produce(), 1);
    kafka.disallow("walpost", &write);
    assert_eq!(produce(), 1);
}

#[test]
fn postgresql_speaks_tls_and_presents_the_certificate_it_is_told_to() {
    let authority = Authority::new();
    let server = Postgres::configure(MAIN)
        .tls(authority.server())
        .hba("hostssl all all 127.0.0.1/32 scram-sha-256")
        .set("password_encryption", "scram-sha-256")
        .start();
    server.sql("CREATE ROLE app LOGIN PASSWORD 's3cret'");
    let connect = |trusted: &Authority, password: &str| {
        let mut connector = SslConnector::builder(SslMethod::tls()).expect("OpenSSL works");
        let trusted = X509::from_pem(trusted.pem().as_bytes()).expect("it is PEM");
        connector.cert_store_mut().add_cert(trusted).expect("the store takes it");
        let url = format!("postgres://app:{password}@127.0.0.1:{}/postgres?sslmode=require", server.port());
        let connected =
            async { tokio_postgres::connect(&url, MakeTlsConnector::new(connector.build())).await.map(drop) };
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(connected)
    };
    connect(&authority, "s3cret").expect("all is right");
    connect(&authority, "wrong").expect_err("the password is wrong");
    assert!(server.log().contains("password authentication failed for user \"app\""));
    connect(&Authority::new(), "s3cret").expect_err("the authority is unknown");
    for bad in [authority.other_host(), authority.expired(), authority.client("app")] {
        server.present(&bad);
        connect(&authority, "s3cret").expect_err("the certificate is no good");
    }
    server.present(&authority.server());
    connect(&authority, "s3cret").expect("all is right again");
}

#[test]
fn an_outbox_holds_what_its_writers_believe_to_have_committed() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let mut writer = outbox.writer();
    writer.begin();
    writer.event("order", "o-1");
    writer.savepoint("a");
    writer.event("order", "o-1");
    writer.savepoint("b");
    writer.event("order", "o-2");
    writer.rollback_to("a");
    writer.event("order", "o-3");
    writer.commit();
    writer.begin();
    writer.event("order", "never");
    writer.rollback();
    let mut other = outbox.writer();
    other.one("invoice", "i-1");
    let rows = if long() { 20_000 } else { 500 };
    let bulk = Bulk { transactions: 10, rows, aggregates: 7, padding: 200 };
    std::thread::scope(|scope| {
        scope.spawn(|| writer.bulk(bulk));
        scope.spawn(|| other.bulk(bulk));
    });

    let topic = outbox.topic("");
    let rows = database.session().rows(&format!(
        "SELECT id, '{topic}' || aggregate_type, aggregate_id, payload FROM walpost.outbox ORDER BY aggregate_id, seq"
    ));
    let mut committed = outbox.committed();
    committed.sort_by(|a, b| a.key.cmp(&b.key)); // stable: in commit order for each key
    let believed: Vec<_> = committed.into_iter().map(|e| [e.id, e.topic, e.key, e.value].map(Some).to_vec()).collect();
    assert!(rows == believed, "{} rows, {} events believed", rows.len(), believed.len());
}

#[test]
fn the_position_of_an_outbox_moves_only_when_its_slot_is_read() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let before = outbox.confirmed();
    outbox.writer().one("order", "o-1");
    assert_eq!((outbox.confirmed(), outbox.walsender()), (before, None));
    let slot = outbox.slot();
    database.sql(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
    outbox.drained(WITHIN);
    assert!(outbox.confirmed() > before);
}

#[test]
fn an_outbox_is_configured_with_what_a_test_adds() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let text = outbox.configuration(Kafka::shared(), "slot = \"other\"\n[kafka]\n\"linger.ms\" = 1\n[route]\nx = 2");
    let table: toml::Table = text.parse().expect("it is TOML");
    assert_eq!(table["database_url"].as_str(), Some(database.url().as_str()));
    assert_eq!(table["slot"].as_str(), Some("other"));
    assert_eq!(table["kafka"]["linger.ms"].as_integer(), Some(1));
    assert_eq!(table["route"]["x"].as_integer(), Some(2));
    assert_eq!(table["route"]["topic"].as_str(), Some(outbox.topic("${aggregate_type}").as_str()));
}

fn producer(brokers: &str, properties: &[(&str, &str)]) -> ThreadedProducer<DefaultProducerContext> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("enable.idempotence", "true").set("log_level", "0");
    config.set("reconnect.backoff.max.ms", "250");
    for (name, value) in properties {
        config.set(*name, *value);
    }
    config.create().expect("the properties are valid")
}
