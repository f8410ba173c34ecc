//! Rows and messages that a connector's task makes records of.

use std::sync::Arc;

use walpost::{
    config::{Environment, connector::Import},
    debezium::{
        Task,
        columns::{Attribute, Shape, Type},
    },
    pipeline::{
        Description, Error, Limits, Lsn, OnUpdate, Pipeline, RelationId, Ticket,
        outbox::{Format, Outbox, Reason},
    },
};

use crate::{
    encode::{self, Cell, Old, oid, text},
    outbox,
    stream::{Outcome, START, Sent, Stream},
};

const COLUMNS: [(&str, u32); 5] = [
    ("id", oid::UUID),
    ("aggregatetype", oid::TEXT),
    ("aggregateid", oid::TEXT),
    ("type", oid::TEXT),
    ("payload", oid::JSONB),
];

/// A connector with the outbox event router and these keys more.
fn task(more: &[(&str, &str)]) -> Arc<Task> {
    let mut keys = vec![
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("database.hostname", "localhost"),
        ("database.user", "u"),
        ("database.dbname", "d"),
        ("topic.prefix", "dbz"),
        ("table.include.list", "public.outbox"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ];
    keys.extend(more);
    let json: serde_json::Map<_, _> = keys.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a temporary file");
    std::fs::write(file.path(), serde_json::Value::Object(json).to_string()).expect("it can be written");
    let import = Import::read(file.path(), None, false, &Environment::default()).expect("the connector is sound");
    Arc::new(Task::new(import.connector(), "run".to_owned()))
}

fn stream(task: &Arc<Task>, limits: Limits) -> Stream {
    let outbox = Outbox { format: Format::Debezium(Arc::clone(task)), ..outbox::debezium("public", "outbox") };
    let mut pipeline = Pipeline::new(vec![outbox], OnUpdate::Ignore, Lsn(START), limits);
    pipeline.run(Arc::clone(task));
    Stream::of(pipeline)
}

fn roomy(task: &Arc<Task>) -> Stream {
    stream(task, Limits { records: 100, bytes: 1 << 20 })
}

fn describe(stream: &mut Stream) {
    let outcome = stream.step(&encode::relation(1, "public", "outbox", &COLUMNS)).expect("it can be read");
    let Outcome::Undescribed(relation) = outcome else { panic!("the catalog is not asked: {outcome:?}") };
    assert_eq!(relation.columns.iter().map(|column| &*column.name).collect::<Vec<_>>(), COLUMNS.map(|(name, _)| name));
    let name = |oid| match oid {
        oid::UUID => "uuid",
        oid::JSONB => "jsonb",
        _ => "text",
    };
    let columns = COLUMNS.map(|(column, oid)| Attribute {
        name: column.to_owned(),
        kind: Type { oid, name: name(oid).to_owned(), shape: Shape::Plain },
        typmod: -1,
        not_null: column == "id",
        default: None,
    });
    let description = Description { columns: columns.into(), key: vec!["id".to_owned()] };
    stream.pipeline.describe(RelationId(1), &description);
}

fn cells<'a>(id: &'a str, aggregate: &'a str) -> [Cell<'a>; 5] {
    [text(id), text("order"), text(aggregate), text("Created"), text("{}")]
}

const ID: &str = "00000000-0000-4000-8000-000000000001";

#[test]
fn a_row_becomes_what_the_router_makes_of_it() {
    let mut stream = roomy(&task(&[("extended.headers.enabled", "false")]));
    stream.begin();
    describe(&mut stream);
    let sent = stream.insert(1, &cells(ID, "o-1"));
    let Sent { topic, key, value, headers, timestamp_ms, .. } = &sent;
    assert_eq!(
        (&**topic, key.as_deref(), value.as_deref()),
        ("outbox.event.order", Some(&b"o-1"[..]), Some(&b"{}"[..]))
    );
    assert_eq!((headers.len(), sent.header("id"), *timestamp_ms), (1, Some(ID), 0));
    stream.commit();
    assert_eq!(stream.pipeline.confirmed(), Lsn(START));
    stream.pipeline.acknowledge(sent.ticket);
    assert_eq!(stream.pipeline.confirmed(), stream.pipeline.ledger().newest());
    assert_eq!(stream.pipeline.counters().events, [1]);
}

#[test]
fn a_row_before_its_table_is_described_breaks_the_order() {
    let mut stream = roomy(&task(&[]));
    stream.begin();
    stream.step(&encode::relation(1, "public", "outbox", &COLUMNS)).expect("it can be read");
    assert!(stream.step(&encode::insert(1, &cells(ID, "o-1"))).is_err());
}

/// With rows of a partitioned table that come under its own name, each partition is described too.
#[test]
fn a_table_that_was_not_known_is_told_of_at_its_first_row() {
    let mut stream = roomy(&task(&[("table.include.list", "public.outbox.*")]));
    stream.begin();
    describe(&mut stream);
    stream.quiet(&encode::relation(2, "public", "outbox_1", &COLUMNS));
    stream.insert(1, &cells(ID, "o-1"));
    let refused = stream.step(&encode::insert(2, &cells(ID, "o-2")));
    assert!(matches!(refused, Err(Error::NewTable { table }) if table.table == "outbox_1"));
}

#[test]
fn updates_and_deletes_of_events_are_no_records() {
    let mut stream = roomy(&task(&[]));
    stream.begin();
    describe(&mut stream);
    let update = encode::update(1, None, &cells(ID, "o-2"));
    let told = stream.step(&update).expect("it can be read");
    assert!(matches!(&told, Outcome::Ignored(what) if what == "Update public.outbox"), "{told:?}");
    stream.quiet(&update);
    stream.quiet(&encode::delete(1, Old::Key(&[text(ID), Cell::Null, Cell::Null, Cell::Null, Cell::Null])));
    stream.commit();
    assert_eq!(stream.pipeline.confirmed(), stream.pipeline.ledger().newest());
}

#[test]
fn a_row_that_cannot_be_routed_is_poison_that_tells_of_its_event() {
    let mut stream = roomy(&task(&[]));
    stream.begin();
    describe(&mut stream);
    let row = [text(ID), Cell::Null, text("o-1"), text("Created"), text("{}")];
    let outcome = stream.step(&encode::insert(1, &row)).expect("the row can be read");
    let Outcome::Poison(ticket, poison) = outcome else { panic!("no poison: {outcome:?}") };
    assert_eq!((&*poison.id, poison.xid, poison.aggregate_id.as_deref()), (ID, 731, Some(&b"o-1"[..])));
    assert!(poison.reason.to_string().contains("aggregatetype"), "{}", poison.reason);
    stream.commit();
    assert_eq!(stream.pipeline.confirmed(), Lsn(START), "until somebody has it");
    stream.pipeline.acknowledge(ticket);
    assert_eq!(stream.pipeline.confirmed(), stream.pipeline.ledger().newest());
}

#[test]
fn bytes_that_are_no_text_are_poison() {
    let mut stream = roomy(&task(&[]));
    stream.begin();
    describe(&mut stream);
    let row = [text(ID), text("order"), text("o-1"), text("Created"), Cell::Text(b"\xFF")];
    let outcome = stream.step(&encode::insert(1, &row)).expect("the row can be read");
    let Outcome::Poison(_, poison) = outcome else { panic!("no poison: {outcome:?}") };
    assert_eq!((&poison.reason, &*poison.id), (&Reason::Encoding(4), ID));
    assert_eq!(poison.payload.as_deref(), Some(&b"\xFF"[..]), "nothing of it is lost");
}

#[test]
fn a_transactions_own_records_are_given_one_by_one_and_hold_the_position() {
    let more = [("provide.transaction.metadata", "true")];
    let mut stream = stream(&task(&more), Limits { records: 1, bytes: 1 << 20 });
    let mut tickets = Vec::new();
    let mut take = |outcome: Outcome| match outcome {
        Outcome::Sent(sent) => {
            tickets.push(sent.ticket);
            sent.topic
        }
        other => panic!("no record: {other:?}"),
    };
    let begun = stream.begun().expect("it can be read");
    assert_eq!(take(begun), "dbz.transaction");
    describe(&mut stream);
    let row = stream.step(&encode::insert(1, &cells(ID, "o-1"))).expect("the row can be read");
    assert_eq!(take(row), "outbox.event.order");
    let end = stream.committed().expect("it can be read");
    assert_eq!(take(end), "dbz.transaction");
    assert!(!stream.pipeline.has_more());
    assert_eq!(tickets, [0, 1, 2].map(Ticket));
    for ticket in tickets {
        assert_eq!(stream.pipeline.confirmed(), Lsn(START));
        stream.pipeline.acknowledge(ticket);
    }
    assert_eq!(stream.pipeline.confirmed(), stream.pipeline.ledger().newest());
}

#[test]
fn a_message_outside_of_its_transaction_is_poison() {
    let more = [
        ("transforms", "decode,outbox"),
        ("transforms.decode.type", "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"),
        ("message.prefix.include.list", "outbox"),
    ];
    let mut stream = roomy(&task(&more));
    let content =
        format!(r#"{{"id":"{ID}","aggregatetype":"order","aggregateid":"o-1","type":"Created","payload":"p"}}"#);
    let content = content.as_bytes();
    stream.quiet(&encode::logical(false, START + 0x10, "other", content));
    let outcome = stream.step(&encode::logical(false, START + 0x20, "outbox", content)).expect("it can be read");
    let Outcome::Poison(ticket, poison) = outcome else { panic!("no poison: {outcome:?}") };
    assert_eq!((&poison.reason, poison.payload.as_deref()), (&Reason::Untransactional, Some(content)));
    stream.begin();
    let sent = match stream.step(&encode::logical(true, START + 0x110, "outbox", content)) {
        Ok(Outcome::Sent(sent)) => sent,
        other => panic!("no record: {other:?}"),
    };
    assert_eq!(
        (&*sent.topic, sent.header("id"), sent.value.as_deref()),
        ("outbox.event.order", Some(ID), Some(&b"p"[..]))
    );
    stream.commit();
    stream.pipeline.acknowledge(sent.ticket);
    assert_eq!(stream.pipeline.confirmed(), Lsn(START));
    stream.pipeline.acknowledge(ticket);
    assert_eq!(stream.pipeline.confirmed(), stream.pipeline.ledger().newest());
}
