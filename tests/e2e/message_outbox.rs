//! An outbox without a table: events are logical messages, which share the fate of their transaction and are nowhere else.

use std::time::{Duration, Instant};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{ids, letters, with_letters},
    outbox::{Bulk, Outbox},
    postgres::{Database, MAIN, Postgres},
    records::Record,
    session::Session,
    streamed::{WITHIN, all, freed, halted, quick, streamed},
    walpost::{Walpost, walpost},
};

const BESIDE_THE_TABLE: &str = "outbox = [{ table = 'walpost.outbox' }, { message_prefix = 'outbox' }]\n";
const ALONE: &str = "message_prefix = 'outbox'\n";

/// An outbox whose database has the functions that send messages.
fn with_emit<'a>(database: &'a Database<'a>) -> Outbox<'a> {
    let outbox = Outbox::create(database);
    database.sql(include_str!("../../sql/emit.sql"));
    outbox
}

/// What is inserted into the table becomes a message, and no row.
fn messages_instead(database: &Database<'_>) {
    database.sql(
        "CREATE FUNCTION walpost.instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           PERFORM pg_logical_emit_message(true, 'outbox', jsonb_build_object('id', NEW.id, 'aggregate_type', NEW.aggregate_type,
             'aggregate_id', NEW.aggregate_id, 'event_type', NEW.event_type, 'payload', NEW.payload)::text);
           RETURN NULL;
         END $$;
         CREATE TRIGGER instead BEFORE INSERT ON walpost.outbox FOR EACH ROW EXECUTE FUNCTION walpost.instead()",
    );
}

fn raw(session: &Session, transactional: bool, content: &str) {
    session.run(&format!("SELECT pg_logical_emit_message({transactional}, 'outbox', '{content}')"));
}

#[test]
fn an_event_is_sent_with_its_transaction_on_postgresql_14() {
    story(14);
}

#[test]
fn an_event_is_sent_with_its_transaction_on_postgresql_15() {
    story(15);
}

#[test]
fn an_event_is_sent_with_its_transaction_on_postgresql_16() {
    story(16);
}

#[test]
fn an_event_is_sent_with_its_transaction_on_postgresql_17() {
    story(17);
}

#[test]
fn an_event_is_sent_with_its_transaction_on_postgresql_18() {
    story(18);
}

fn story(version: u16) {
    let database = Postgres::shared(version).database();
    let outbox = with_emit(&database);
    let session = database.session();
    session.run(
        r#"SET timezone = 'Asia/Kolkata';
         BEGIN; SELECT walpost.emit('order', 'gone', 'e', '1'); ROLLBACK;
         BEGIN;
         SELECT walpost.emit('order', 'o-1', 'Placed', '{"b": null, "a": [1.50, {"c": null}]}', '{"tenant": "é", "n": null}', 'key',
           occurred_at => '2026-01-31 08:15:00.25Z');
         INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key, occurred_at)
           VALUES ('order', 'o-1', 'Placed', '{"b": null, "a": [1.50, {"c": null}]}', '{"tenant": "é", "n": null}', 'key',
             '2026-01-31 08:15:00.25Z');
         SAVEPOINT s;
         SELECT walpost.emit('order', 'gone', 'e', '2');
         ROLLBACK TO s;
         SELECT walpost.emit_bytes('order', 'o-1', 'Bytes', decode(repeat('00ff10', 100), 'hex'));
         SELECT walpost.emit('order', null, 'Nothing', null);
         SELECT walpost.emit('order', 'o-1', 'Null', 'null');
         SELECT pg_logical_emit_message(true, 'elsewhere', 'no event');
         COMMIT;
         SELECT pg_logical_emit_message(false, 'elsewhere', 'no event')"#,
    );
    for refused in
        ["emit(null, 'k', 'e', '1')", "emit('t', 'k', 'e', '1', '[]')", "emit('t', 'k', 'e', '1', prefix => null)"]
    {
        assert!(session.try_run(&format!("SELECT walpost.{refused}")).is_err(), "{refused}");
    }
    let records = streamed(&outbox, BESIDE_THE_TABLE, &[&outbox.topic("order")]);
    let mut keyed: Vec<&Record> = records.iter().filter(|record| record.key.is_some()).collect();
    keyed.sort_by_key(|record| record.header("position"));
    let [message, row, bytes, null] = keyed[..] else { panic!("{keyed:?}") };
    // The message's record is the row's, but for identity and place.
    let headers = |record: &Record| {
        let own = |(name, _): &&(String, _)| name != "id" && name != "position";
        record.headers.iter().filter(own).cloned().collect::<Vec<_>>()
    };
    assert_eq!(headers(message), headers(row));
    assert_eq!((&message.key, &message.value, message.timestamp), (&row.key, &row.value, row.timestamp));
    assert_eq!(message.value_text(), Some(r#"{"a": [1.50, {"c": null}], "b": null}"#));
    assert_eq!(message.header("occurred_at"), Some("2026-01-31T08:15:00.250000Z"));
    assert_eq!(bytes.value.as_deref(), Some(&[0, 0xFF, 0x10].repeat(100)[..]));
    assert_eq!(null.value_text(), Some("null"));
    let tombstone: Vec<_> = records.iter().filter(|record| record.key.is_none()).collect();
    assert!(matches!(tombstone[..], [Record { value: None, .. }]), "{tombstone:?}");
    let ordinals: Vec<_> = keyed.iter().map(|record| &record.header("position").expect("it is there")[17..]).collect();
    assert_eq!(ordinals, ["00000000", "00000001", "00000002", "00000004"]);
}

#[test]
fn messages_of_a_database_in_another_encoding_arrive_as_utf_8() {
    let database = Postgres::shared(MAIN).database_with("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let outbox = with_emit(&database);
    database.sql("SELECT walpost.emit('order', 'é', 'e', '\"ß\"')");
    let records = streamed(&outbox, ALONE, &[&outbox.topic("order")]);
    let [record] = &records[..] else { panic!("one record, not {}", records.len()) };
    assert_eq!((record.key_text(), record.value_text()), (Some("é"), Some("\"ß\"")));
}

#[test]
fn without_a_place_for_it_poison_halts_and_says_what_is_wrong() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_emit(&database);
    let session = database.session();
    raw(&session, true, r#"{"id": "e1", "aggregate_type": "order", "agregate_id": "o-1"}"#);
    let log = halted(&outbox, ALONE);
    assert!(
        log.contains("a member \\\"agregate_id\\\", which no event has") || log.contains("a member \"agregate_id\""),
        "{log}"
    );
    assert!(log.contains("pg_logical_emit_message.outbox"), "{log}");
}

#[test]
fn poison_waits_as_a_dead_letter_and_what_follows_it_with_it() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    database.sql(include_str!("../../sql/emit.sql"));
    let session = database.session();
    let event = |id: &str, more: &str| {
        format!(r#"{{"id": "{id}", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "e"{more}}}"#)
    };
    raw(&session, true, &event("e1", r#", "headers": []"#));
    raw(&session, true, &event("e2", ""));
    session.run("SELECT walpost.emit('order', 'o-2', 'e', '1')");
    raw(&session, false, &event("e3", ""));
    raw(&session, true, "no JSON");
    let records = streamed(&outbox, ALONE, &[&outbox.topic("order")]);
    assert_eq!(records.iter().map(Record::key_text).collect::<Vec<_>>(), [Some("o-2")]);
    let found = letters(&outbox);
    let class_of = |event: &str| found.iter().find(|[_, _, id]| id == event).map(|[_, class, _]| class.as_str());
    assert_eq!(["e1", "e3", ""].map(class_of), [Some("unroutable"); 3], "{found:?}");
    assert!(
        found.iter().any(|[state, class, id]| id == "e2" && state == "parked" && class != "unroutable"),
        "{found:?}"
    );
    let whole = "SELECT count(*) FROM walpost.dead_letter WHERE source_table = 'pg_logical_emit_message.outbox'
                   AND payload = convert_to('no JSON', 'UTF8')";
    assert_eq!(session.get::<u64>(whole), 1);
    // What is not to be sent is discarded, and the rest follows.
    let letter = |arguments: &[&str]| crate::support::letters::command(&outbox, arguments);
    letter(&["discard", "--id", "e1", "--yes"]);
    letter(&["replay", "--id", "e2"]);
    let walpost = Walpost::start(&quick(&outbox, ALONE));
    eventually(WITHIN, "the replay is settled", || {
        letters(&outbox).iter().any(|[state, _, id]| id == "e2" && state == "replayed").then_some(())
    });
    assert_eq!(walpost.terminate(WITHIN), 0);
    assert_eq!(ids(&all(&[&outbox.topic("order")])).iter().filter(|id| **id == "e2").count(), 1);
}

#[test]
fn hard_kills_lose_and_reorder_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    messages_instead(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = outbox.configuration(kafka, ALONE);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 400, rows: 50, aggregates: 17, padding: 100 });
    for (transactions, rows) in [(1, 5_000), (1_000, 1), (50, 100), (1, 5_000), (300, 10)] {
        writer.bulk(Bulk { transactions, rows, aggregates: 17, padding: 100 });
        let before = outbox.confirmed();
        let walpost = Walpost::start(&configuration);
        eventually(WITHIN, "walpost goes on where it was killed", || (outbox.confirmed() > before).then_some(()));
        walpost.kill();
    }
    let walpost = Walpost::start(&configuration);
    let report = outbox.delivered(kafka, &["bulk"], WITHIN);
    println!("{} events: {report}", outbox.committed().len());
    report.assert_complete();
    writer.one("bulk", "counted");
    let name = "walpost_events_total{table=\"pg_logical_emit_message.outbox\"}";
    eventually(WITHIN, "it is counted", || walpost.metric(name).filter(|events| *events >= 1.0));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn exactly_once_hard_kills_double_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    messages_instead(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let configuration = outbox.configuration(kafka, &(outbox.exactly_once() + ALONE));
    let mut writer = outbox.writer();
    for (kill, (transactions, rows)) in
        [(2_000, 1), (1, 10_000), (60, 100), (2_000, 1), (1, 10_000)].into_iter().enumerate()
    {
        writer.bulk(Bulk { transactions, rows, aggregates: 17, padding: 100 });
        let walpost = Walpost::start(&configuration);
        let begun = outbox.confirmed();
        let until = Instant::now() + Duration::from_millis(150 * kill as u64);
        eventually(WITHIN, "its moment", || {
            (Instant::now() >= until || outbox.confirmed() > begun + 500_000).then_some(())
        });
        walpost.kill();
    }
    let walpost = Walpost::start(&configuration);
    outbox.committed_delivered(kafka, "bulk", WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn what_a_lost_slot_held_is_given_up_only_when_told_so() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    database.sql(include_str!("../../sql/emit.sql"));
    let session = database.session();
    session.run("SELECT walpost.emit('order', 'o-1', 'e', '1')");
    streamed(&outbox, ALONE, &[]);
    session.run("SELECT walpost.emit('order', 'o-2', 'e', '2')");
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    let walpost = Walpost::start(&quick(&outbox, ALONE));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(log.contains("are in no table") && log.contains("--accept-gap"), "{log}");
    let walpost = Walpost::start_with(&quick(&outbox, ALONE), &["--accept-gap"], &[]);
    walpost.streams(&outbox, WITHIN);
    session.run("SELECT walpost.emit('order', 'o-3', 'e', '3')");
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let records = all(&[&outbox.topic("order")]);
    assert_eq!(records.iter().map(Record::value_text).collect::<Vec<_>>(), [Some("1"), Some("3")]);
}

#[test]
fn rows_beside_lost_messages_are_recovered_where_that_is_accepted() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    database.sql(include_str!("../../sql/emit.sql"));
    let session = database.session();
    let insert = "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'o-1', 'e', '1')";
    session.run(&format!("BEGIN; {insert}; SELECT walpost.emit('order', 'o-2', 'e', '2'); COMMIT"));
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    assert!(lost(&outbox).contains("and sends the rows that are not proven published, and no message"));
    let walpost = Walpost::start_with(&quick(&outbox, BESIDE_THE_TABLE), &["--accept-gap"], &[]);
    walpost.streams(&outbox, WITHIN);
    session.run("SELECT walpost.emit('order', 'o-3', 'e', '3')");
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let records = all(&[&outbox.topic("order")]);
    assert_eq!(records.iter().map(Record::value_text).collect::<Vec<_>>(), [Some("1"), Some("3")]);
    assert_eq!(records[0].header("recovered"), Some("true"));
}

/// What walpost says when it ends because of a lost slot.
fn lost(outbox: &Outbox<'_>) -> String {
    let walpost = Walpost::start(&quick(outbox, BESIDE_THE_TABLE));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    walpost.log()
}

#[test]
fn the_log_is_replayed_as_far_as_a_bookmark_holds_it() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_emit(&database);
    let session = database.session();
    let (url, slot) = (database.url(), outbox.slot());
    let bookmark = walpost(&["bookmark", "create", "before", "--database-url", &url, "--slot", slot]);
    assert_eq!(bookmark.code, 0, "{bookmark:?}");
    let from: String = session.get("SELECT pg_current_wal_lsn()::text");
    session.run("SELECT walpost.emit('order', 'o-1', 'e', '1')");
    streamed(&outbox, ALONE, &[]);
    freed(&outbox);
    let (brokers, again) = (Kafka::shared().brokers(), outbox.topic("again"));
    let replayed = walpost(&[
        "replay",
        "--from-lsn",
        &from,
        "--topic",
        &again,
        "--database-url",
        &url,
        "--slot",
        slot,
        "--brokers",
        &brokers,
        "--message-prefix",
        "outbox",
    ]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let records = all(&[&again]);
    let [record] = &records[..] else { panic!("one record, not {}: {replayed:?}", records.len()) };
    assert_eq!((record.key_text(), record.value_text()), (Some("o-1"), Some("1")));
    let from_table = walpost(&[
        "replay",
        "--aggregate",
        "o-1",
        "--dry-run",
        "--database-url",
        &url,
        "--slot",
        slot,
        "--brokers",
        &brokers,
        "--message-prefix",
        "outbox",
    ]);
    assert!(from_table.code != 0 && from_table.stderr.contains("messages are in no table"), "{from_table:?}");
}
