//! Where a record goes: template, destination column, and names that SQL would have to quote.

use walpost::pipeline::outbox::{Columns, Optional, Outbox, TableName};

use crate::{
    encode::{Cell, oid, text},
    outbox,
    stream::{Column, record},
};

fn row<'a>(destination: Cell<'a>) -> [Column<'a>; 6] {
    [
        ("id", oid::UUID, text("e1")),
        ("destination", oid::TEXT, destination),
        ("aggregate_type", oid::TEXT, text("order")),
        ("aggregate_id", oid::TEXT, text("o-1")),
        ("region", oid::TEXT, text("eu")),
        ("payload", oid::JSONB, text("{}")),
    ]
}

fn routed(template: &str) -> Outbox {
    Outbox { topic: template.parse().expect("the template is sound"), ..outbox::walpost("walpost", "outbox") }
}

#[test]
fn a_template_takes_text_parts_of_an_event_and_columns_of_the_table() {
    for (template, topic) in [
        ("orders", "orders"),
        ("${aggregate_type}", "order"),
        ("${region}.${aggregate_type}-${region}_v1", "eu.order-eu_v1"),
        ("by-id.${id}.${aggregate_id}", "by-id.e1.o-1"),
    ] {
        assert_eq!(record(routed(template), &row(Cell::Null)).topic, topic);
    }
}

#[test]
fn a_destination_wins_over_the_template() {
    let sent = record(routed("${region}.${aggregate_type}"), &row(text("elsewhere")));
    assert_eq!(sent.topic, "elsewhere");
    assert_eq!(sent.header("aggregate_type"), Some("order"));
}

#[test]
fn a_destination_wins_where_the_template_has_a_null() {
    let mut columns = row(text("elsewhere"));
    columns[4].2 = Cell::Null;
    assert_eq!(record(routed("${region}"), &columns).topic, "elsewhere");
}

#[test]
fn a_part_of_an_event_in_a_template_follows_the_columns_of_the_configuration() {
    let mut outbox = outbox::debezium("walpost", "outbox");
    outbox.topic = "${aggregate_type}.${event_type}".parse().unwrap();
    let columns = [
        ("id", oid::UUID, text("e1")),
        ("aggregatetype", oid::TEXT, text("order")),
        ("aggregateid", oid::TEXT, text("o-1")),
        ("type", oid::TEXT, text("placed")),
        ("payload", oid::JSONB, text("{}")),
    ];
    assert_eq!(record(outbox, &columns).topic, "order.placed");
}

#[test]
fn every_topic_that_kafka_allows_is_taken_as_it_is() {
    let longest = "x".repeat(249);
    for topic in ["a", "...", "a.b_c-D9", "_", "-", &longest] {
        assert_eq!(record(routed("t"), &row(text(topic))).topic, topic);
    }
}

#[test]
fn names_that_sql_must_quote_are_matched_as_the_catalog_holds_them() {
    let name = TableName { schema: "Sales \"EU\"".to_owned(), table: "Ausg\u{e4}nge; DROP".to_owned() };
    let outbox = Outbox {
        columns: Columns {
            id: "Event\"Id".to_owned(),
            aggregate_id: "Order Id".to_owned(),
            payload: "\u{43F}\u{430}\u{439}".to_owned(),
            aggregate_type: Optional { name: "select".to_owned(), named: true },
            ..outbox::walpost("", "").columns
        },
        topic: "${aggregate_type}.${Her\"kunft}".parse().unwrap(),
        name,
        ..outbox::walpost("", "")
    };
    let sent = record(
        outbox,
        &[
            ("id", oid::UUID, text("not this")),
            ("\u{43F}\u{430}\u{439}", oid::JSONB, text("{}")),
            ("Order Id", oid::INT8, text("7")),
            ("order id", oid::INT8, text("8")),
            ("select", oid::TEXT, text("order")),
            ("Event\"Id", oid::UUID, text("e1")),
            ("Her\"kunft", oid::TEXT, text("eu")),
        ],
    );
    assert_eq!(sent.topic, "order.eu");
    assert_eq!(sent.key.as_deref(), Some(&b"7"[..]));
    assert_eq!(sent.header("id"), Some("e1"));
}
