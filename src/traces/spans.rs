//! The spans of a session's records in flight.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    time::SystemTime,
};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode},
};

use super::{Traces, parent::Parent};
use crate::{
    config::{Config, Sink},
    pipeline::{PgTime, Record, Ticket},
    printable::origin,
    sink::Landing,
    status::unix_us,
};

/// Most that are open at once; those beyond it count as dropped.
const OPEN_MAX: usize = 10_000;

/// Most bytes of a text that an event brings; of `tracestate` more is left out, as W3C allows.
const TEXT_BYTES_MAX: usize = 512;

/// W3C's flag of a sampled trace, and OTLP's two that say of the parent that it is another process's.
const FLAGS: u32 = 0x301;

#[derive(Debug)]
pub struct Spans {
    traces: Traces,
    system: &'static str,
    slot: String,
    open: HashMap<Ticket, Span>,
    random: RandomState,
    begun: u64,
}

impl Spans {
    pub fn new(config: &Config, traces: Traces) -> Spans {
        let system = match config.sink {
            Sink::Kafka => "kafka",
            Sink::RabbitMq => "rabbitmq",
            Sink::Webhook => "webhook",
            Sink::Stdout => "stdout",
        };
        let (slot, random) = (config.slot.clone(), RandomState::new());
        Spans { traces, system, slot, open: HashMap::new(), random, begun: 0 }
    }

    /// A record is given to the sink; `commit` is when its transaction was committed, if that is known.
    pub fn sent(&mut self, record: &Record<'_>, commit: Option<PgTime>) {
        let Some(parent) = record.headers.get("traceparent").and_then(Parent::sampled) else { return };
        if self.open.len() >= OPEN_MAX {
            return self.traces.counts.lost(1);
        }
        self.begun += 1;
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]).into_owned();
        let destination = origin(record.topic);
        let trace_state = record.headers.get("tracestate").filter(|state| state.len() <= TEXT_BYTES_MAX);
        let start = commit.map_or_else(|| unix_us(SystemTime::now()), PgTime::unix_us);
        let span = Span {
            trace_id: parent.trace_id.to_vec(),
            // Zero is none.
            span_id: self.random.hash_one(self.begun).max(1).to_be_bytes().to_vec(),
            parent_span_id: parent.span_id.to_vec(),
            trace_state: trace_state.map(text).unwrap_or_default(),
            flags: FLAGS,
            name: format!("publish {destination}"),
            kind: SpanKind::Producer.into(),
            start_time_unix_nano: nanoseconds(start),
            attributes: vec![
                attribute("messaging.system", self.system),
                attribute("messaging.operation.name", "publish"),
                attribute("messaging.operation.type", "send"),
                attribute("messaging.destination.name", destination),
                attribute("messaging.message.id", text(record.event.id)),
                number("messaging.message.body.size", record.value.map_or(0, <[u8]>::len) as i64),
                attribute("walpost.slot", self.slot.as_str()),
                attribute("walpost.position", record.position.to_string()),
            ],
            ..Span::default()
        };
        self.open.insert(record.ticket, span);
    }

    /// Whether a record has one.
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.open.contains_key(&ticket)
    }

    /// Where records are now.
    pub fn landed(&mut self, landings: Vec<Landing>) {
        for Landing { ticket, partition, offset } in landings {
            let Some(span) = self.open.get_mut(&ticket) else { continue };
            span.attributes.push(attribute("messaging.destination.partition.id", partition.to_string()));
            if let Some(offset) = offset {
                span.attributes.push(number("messaging.kafka.offset", offset));
            }
        }
    }

    /// The sink has them for good.
    pub fn delivered(&mut self, tickets: Vec<Ticket>) {
        if tickets.is_empty() {
            return;
        }
        let end = nanoseconds(unix_us(SystemTime::now()));
        for ticket in tickets {
            let Some(span) = self.open.remove(&ticket) else { continue };
            self.end(span, end);
        }
    }

    /// The sink does not take it.
    pub fn refused(&mut self, ticket: Ticket, reason: &str) {
        let Some(span) = self.open.remove(&ticket) else { return };
        let status = Status { message: reason.to_owned(), code: StatusCode::Error.into() };
        self.end(Span { status: Some(status), ..span }, nanoseconds(unix_us(SystemTime::now())));
    }

    /// It is settled, and was not sent.
    pub fn leave(&mut self, ticket: Ticket) {
        self.open.remove(&ticket);
    }

    fn end(&self, mut span: Span, end: u64) {
        // Two clocks may disagree about their order.
        span.end_time_unix_nano = end.max(span.start_time_unix_nano);
        self.traces.export(span);
    }
}

fn nanoseconds(unix_us: i64) -> u64 {
    u64::try_from(unix_us).unwrap_or_default().saturating_mul(1000)
}

pub(super) fn attribute(name: &str, value: impl Into<String>) -> KeyValue {
    of(name, Value::StringValue(value.into()))
}

fn number(name: &str, value: i64) -> KeyValue {
    of(name, Value::IntValue(value))
}

fn of(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
