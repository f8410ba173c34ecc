//! Events of sampled traces have spans, at a real receiver of OTLP, and the stream waits for none of it.

use std::{collections::HashMap, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message;

use super::endpoint::{Answer, Server};
use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    records::Isolation,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Inserts an event with this `traceparent`; gives its id.
fn event(outbox: &Outbox<'_>, traceparent: &str) -> String {
    outbox.database.session().get(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, traceparent)
         VALUES ('order', 'o-1', 'e', '{{\"n\": 1}}', {traceparent}) RETURNING id"
    ))
}

fn sampled(outbox: &Outbox<'_>) -> String {
    event(outbox, &format!("'00-{TRACE}-{PARENT}-01'"))
}

/// All that the collector has taken, and what it says of whoever sent it.
fn spans(collector: &Server) -> (Vec<Span>, HashMap<String, String>) {
    let (mut spans, mut resource) = (Vec::new(), HashMap::new());
    for request in collector.requests().iter().filter(|request| request.status == 204) {
        assert_eq!((&*request.path, request.header("content-type")), ("/v1/traces", "application/x-protobuf"));
        let export = ExportTraceServiceRequest::decode(&*request.body).expect("it is OTLP");
        for of_resource in export.resource_spans {
            resource = texts(&of_resource.resource.expect("it is told").attributes);
            spans.extend(of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans));
        }
    }
    (spans, resource)
}

fn texts(attributes: &[KeyValue]) -> HashMap<String, String> {
    let text = |attribute: &KeyValue| match attribute.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{}: {other:?}", attribute.key),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn counted(walpost: &Walpost, name: &str, enough: f64) {
    eventually(WITHIN, &format!("{name} is {enough}"), || walpost.metric(name).filter(|value| *value == enough));
}

#[test]
fn a_sampled_event_has_a_span_with_its_place_in_kafka_and_no_other_event_has() {
    for exactly_once in [false, true] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        database.sql("ALTER TABLE walpost.outbox ADD traceparent text");
        let (kafka, collector) = (Kafka::shared(), Server::start());
        let topic = outbox.topic("order");
        kafka.create_topic(&topic, 1, &[]);
        let delivery = if exactly_once { outbox.exactly_once() } else { String::new() };
        let more = format!("{delivery}traces.endpoint = '{}'", collector.url());
        let walpost = Walpost::start(&outbox.configuration(kafka, &more));
        walpost.streams(&outbox, WITHIN);
        event(&outbox, "NULL");
        event(&outbox, &format!("'00-{TRACE}-{PARENT}-00'"));
        event(&outbox, "'00-not a traceparent'");
        let id = sampled(&outbox);
        counted(&walpost, "walpost_spans_exported_total", 1.0);
        // What is queued at the end is exported too.
        sampled(&outbox);
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);

        let (spans, resource) = spans(&collector);
        assert_eq!(spans.len(), 2, "{spans:?}");
        assert_eq!(resource["service.name"], "walpost");
        let span = &spans[0];
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert!(span.span_id.len() == 8 && span.span_id != spans[1].span_id && hex(&span.span_id) != PARENT);
        assert_eq!((&*span.name, span.kind()), (&*format!("publish {topic}"), SpanKind::Producer));
        let took = span.end_time_unix_nano - span.start_time_unix_nano;
        assert!(took > 0 && took < 60_000_000_000, "{took} ns");
        assert_eq!(span.status, None);
        let mut reader = kafka.reader(&[&topic], Isolation::Committed, WITHIN);
        let records = reader.until(WITHIN, "all", |records| records.len() == 5);
        let record = records.iter().find(|record| record.header("id") == Some(id.as_str())).expect("it is there");
        assert_eq!(record.header("traceparent"), Some(&*format!("00-{TRACE}-{PARENT}-01")), "the application's own");
        let said = texts(&span.attributes);
        let offset = record.offset.to_string();
        for (name, value) in [
            ("messaging.system", "kafka"),
            ("messaging.operation.name", "publish"),
            ("messaging.operation.type", "send"),
            ("messaging.destination.name", &*topic),
            ("messaging.destination.partition.id", "0"),
            ("messaging.kafka.offset", &*offset),
            ("messaging.message.id", &*id),
            ("messaging.message.body.size", "8"),
            ("walpost.slot", outbox.slot()),
        ] {
            assert_eq!(said.get(name).map(String::as_str), Some(value), "{name} in {said:?}");
        }
    }
}

#[test]
fn a_collector_that_is_down_costs_spans_and_no_events_and_without_one_nothing_is_sent() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql("ALTER TABLE walpost.outbox ADD traceparent text");
    let (kafka, collector) = (Kafka::shared(), Server::start());
    let configuration = outbox.configuration(kafka, &format!("traces.endpoint = '{}'", collector.url()));
    let walpost = Walpost::start(&configuration);
    walpost.streams(&outbox, WITHIN);
    collector.stop();
    sampled(&outbox);
    let delivered = format!("walpost_records_delivered_total{{topic=\"{}\"}}", outbox.topic("order"));
    counted(&walpost, &delivered, 1.0);
    counted(&walpost, "walpost_spans_dropped_total", 1.0);
    assert!(walpost.log().contains("traces.endpoint"), "it is told");
    collector.start_again();
    collector.answers(|_| Answer::status(500));
    sampled(&outbox);
    counted(&walpost, "walpost_spans_dropped_total", 2.0);
    collector.answers(|_| Answer::status(204));
    sampled(&outbox);
    counted(&walpost, "walpost_spans_exported_total", 1.0);
    assert_eq!(walpost.terminate(WITHIN), 0);

    let before = collector.requests().len();
    let off = Walpost::start(&outbox.configuration(kafka, ""));
    off.streams(&outbox, WITHIN);
    sampled(&outbox);
    counted(&off, &delivered, 1.0);
    assert_eq!(off.metric("walpost_spans_exported_total"), None);
    assert_eq!(off.terminate(WITHIN), 0);
    assert_eq!(collector.requests().len(), before);
}
