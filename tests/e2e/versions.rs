//! The core story, on every supported PostgreSQL: an event goes with its transaction, arrives as it was written, and
//! the stream continues where it stopped, whatever else the server does.

use crate::support::{
    kafka::Kafka,
    outbox::Outbox,
    postgres::Postgres,
    records::Record,
    streamed::{WITHIN, all, quick, transactions},
    verify::verify,
    walpost::Walpost,
};

#[test]
fn the_core_story_on_postgresql_14() {
    story(14);
}

#[test]
fn the_core_story_on_postgresql_15() {
    story(15);
}

#[test]
fn the_core_story_on_postgresql_16() {
    story(16);
}

#[test]
fn the_core_story_on_postgresql_17() {
    story(17);
}

#[test]
fn the_core_story_on_postgresql_18() {
    story(18);
}

fn story(version: u16) {
    let server = Postgres::shared(version);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    let (orders, more) = (outbox.topic("order"), outbox.topic("more"));

    // An order and its event, in one transaction; another order that is given up.
    session.run("CREATE TABLE orders (id text PRIMARY KEY)");
    let insert = |order: &str| {
        format!(
            "BEGIN; INSERT INTO orders VALUES ('{order}');
             INSERT INTO walpost.outbox
               (id, aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key, occurred_at)
             VALUES ('6f1c0e8a-0000-4000-8000-000000000001', 'order', '{order}', 'placed', '{{\"total\": 12.50}}',
               '{{\"tenant\": \"blue\"}}', 'key of {order}', '2026-01-31 08:15:00.25+00');"
        )
    };
    session.run(&(insert("o-2") + "ROLLBACK"));
    session.run(&(insert("o-1") + "COMMIT"));
    let [transaction] = transactions(&outbox)[..] else { panic!("one transaction has an event") };

    let configuration = quick(&outbox, "");
    let walpost = Walpost::start(&configuration);
    let records = Kafka::shared().read(&orders, 1, WITHIN);
    let headers = [
        ("id", "6f1c0e8a-0000-4000-8000-000000000001"),
        ("event_type", "placed"),
        ("aggregate_type", "order"),
        ("occurred_at", "2026-01-31T08:15:00.250000Z"),
        ("position", &transaction.position(0)),
        ("idempotency_key", "key of o-1"),
        ("tenant", "blue"),
    ];
    let expected = Record {
        topic: orders.clone(),
        partition: 0,
        offset: 0,
        timestamp: Some(transaction.commit_ms),
        key: Some(b"o-1".to_vec()),
        value: Some(br#"{"total": 12.50}"#.to_vec()),
        headers: headers.map(|(name, value)| (name.to_owned(), Some(value.as_bytes().to_vec()))).into(),
    };
    assert_eq!(records, [expected]);

    // It goes on while it runs, and after a clean stop with what came meanwhile.
    let mut writer = outbox.writer();
    writer.one("more", "a");
    writer.begin();
    writer.event("more", "never");
    writer.rollback();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    writer.one("more", "a");
    writer.one("more", "b");
    let walpost = Walpost::start(&configuration);
    let walsender = walpost.streams(&outbox, WITHIN);
    writer.one("more", "a");
    outbox.drained(WITHIN);

    // With nothing to send, the position follows what other tables and other databases write (G5).
    let other = server.database();
    other.sql("CREATE TABLE noise (n int)");
    for round in 0..3 {
        session.run(&format!("INSERT INTO orders SELECT 'r{round}-' || n FROM generate_series(1, 1000) n"));
        other.sql("INSERT INTO noise SELECT generate_series(1, 1000)");
        outbox.drained(WITHIN);
    }
    assert_eq!(outbox.walsender(), Some(walsender), "the walsender stays the same");
    assert_eq!(walpost.terminate(WITHIN), 0);

    // A clean stop leaves nothing to repeat.
    let walpost = Walpost::start(&configuration);
    writer.one("more", "b");
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    verify(&outbox.committed(), &all(&[&more])).assert_exactly_once();
    assert_eq!(all(&[&orders]).len(), 1);
}
