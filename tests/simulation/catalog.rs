//! The tables of the model, the events in them, and the record that each event must become.
//!
//! What a record must be is worked out here from the event, not from the bytes that were sent.

use std::rc::Rc;

use walpost::pipeline::outbox::Outbox;

use crate::{
    encode::{self, Cell, oid},
    outbox,
    random::Random,
};

/// What a column of an outbox holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Id,
    AggregateType,
    AggregateId,
    EventType,
    Payload,
    Headers,
    Destination,
    IdempotencyKey,
    /// A column of the second outbox that its topic names.
    Region,
    /// Nothing that a record needs: a generated column, another team's addition.
    Extra(usize),
}

const REQUIRED: [Part; 5] = [Part::Id, Part::AggregateType, Part::AggregateId, Part::EventType, Part::Payload];
const OPTIONAL: [Part; 3] = [Part::Headers, Part::Destination, Part::IdempotencyKey];

/// A table as it is at some moment: an ALTER makes a new one.
#[derive(Debug)]
pub(crate) struct Shape {
    table: usize,
    columns: Vec<(Part, u32)>,
}

/// The tables, by index: two outboxes that differ in everything, then a table that is none.
pub(crate) const TABLES: usize = 3;
pub(crate) const OUTBOXES: usize = 2;
/// Names that need quoting everywhere, bytea payloads, a template of two columns.
const HOSTILE: usize = 1;
const NAMES: [(u32, &str, &str); TABLES] =
    [(16_384, "walpost", "outbox"), (16_390, "Sales \"EU\"", "Ausgänge"), (16_396, "public", "orders")];

pub(crate) fn table_name(table: usize) -> &'static str {
    NAMES[table].2
}

/// What the configuration under test says about the outboxes.
pub(crate) fn outboxes() -> Vec<Outbox> {
    let [(_, schema, table), (_, hostile_schema, hostile_table), _] = NAMES;
    let plain = outbox::walpost(schema, table);
    let mut other = outbox::debezium(hostile_schema, hostile_table);
    other.topic = "audit.${aggregate_type}-${Her\"kunft}".parse().expect("a template");
    vec![plain, other]
}

impl Shape {
    /// Columns in any order, some of the optional ones missing, generated ones between them.
    pub(crate) fn deal(table: usize, random: &mut Random) -> Rc<Shape> {
        let mut parts: Vec<Part> = (0..random.below(3)).map(Part::Extra).collect();
        if table < OUTBOXES {
            parts.extend(REQUIRED);
            parts.extend((table == HOSTILE).then_some(Part::Region));
            parts.extend(OPTIONAL.iter().filter(|_| !random.one_in(3)));
        }
        random.shuffle(&mut parts);
        let columns = parts.into_iter().map(|part| (part, oid_of(part, table, random))).collect();
        Rc::new(Shape { table, columns })
    }

    pub(crate) fn table(&self) -> usize {
        self.table
    }

    fn has(&self, part: Part) -> bool {
        self.columns.iter().any(|(column, _)| *column == part)
    }

    /// What announces it: the types that are not built in, then the relation.
    pub(crate) fn announcement(&self) -> Vec<Vec<u8>> {
        let (id, schema, table) = NAMES[self.table];
        let names: Vec<_> = self.columns.iter().map(|(part, _)| column_name(*part, self.table)).collect();
        let columns: Vec<_> = names.iter().map(String::as_str).zip(self.columns.iter().map(|(_, oid)| *oid)).collect();
        let mut messages = Vec::new();
        if columns.iter().any(|(_, oid)| *oid == oid::ENUM) {
            messages.push(encode::type_name(oid::ENUM, "public", "Kind of \"event\""));
        }
        messages.push(encode::relation(id, schema, table, &columns));
        messages
    }

    /// The message of an inserted row that is an event.
    pub(crate) fn insert(&self, event: &Event) -> Vec<u8> {
        let id = event.id_text();
        let headers = event.headers_text();
        let idempotency_key = event.idempotency_key();
        let payload = event.payload.as_deref().map(|payload| self.payload_text(payload));
        let cells: Vec<Cell<'_>> = self
            .columns
            .iter()
            .map(|(part, _)| match part {
                Part::Id => encode::text(&id),
                Part::AggregateType => encode::text(event.aggregate_type),
                Part::AggregateId => event.aggregate_id.as_deref().map_or(Cell::Null, encode::text),
                Part::EventType => encode::text("placed"),
                Part::Payload => payload.as_deref().map_or(Cell::Null, Cell::Text),
                Part::Headers => headers.as_deref().map_or(Cell::Null, encode::text),
                Part::Destination => event.destination.map_or(Cell::Null, encode::text),
                Part::IdempotencyKey => idempotency_key.as_deref().map_or(Cell::Null, encode::text),
                Part::Region => encode::text("eu"),
                Part::Extra(_) => encode::text("extra"),
            })
            .collect();
        encode::insert(NAMES[self.table].0, &cells)
    }

    /// A payload as the payload column prints it: the second outbox has bytea.
    fn payload_text(&self, payload: &[u8]) -> Vec<u8> {
        match self.table {
            HOSTILE => format!("\\x{}", payload.iter().map(|b| format!("{b:02x}")).collect::<String>()).into_bytes(),
            _ => payload.to_vec(),
        }
    }
}

fn oid_of(part: Part, table: usize, random: &mut Random) -> u32 {
    match part {
        Part::Payload if table == HOSTILE => oid::BYTEA,
        Part::Payload => random.pick(&[oid::JSONB, oid::JSON, oid::TEXT]),
        Part::Id => random.pick(&[oid::UUID, oid::TEXT]),
        Part::AggregateType | Part::EventType => random.pick(&[oid::TEXT, oid::ENUM]),
        Part::Headers => oid::JSONB,
        Part::AggregateId => random.pick(&[oid::TEXT, oid::INT8]),
        Part::Destination | Part::IdempotencyKey | Part::Region => oid::TEXT,
        Part::Extra(_) => random.pick(&[oid::BOOL, oid::BYTEA, oid::TIMESTAMPTZ]),
    }
}

fn column_name(part: Part, table: usize) -> String {
    let debezium = table == HOSTILE;
    match part {
        Part::Id => "id",
        Part::AggregateType if debezium => "aggregatetype",
        Part::AggregateType => "aggregate_type",
        Part::AggregateId if debezium => "aggregateid",
        Part::AggregateId => "aggregate_id",
        Part::EventType if debezium => "type",
        Part::EventType => "event_type",
        Part::Payload => "payload",
        Part::Headers => "headers",
        Part::Destination => "destination",
        Part::IdempotencyKey => "idempotency_key",
        Part::Region => "Her\"kunft",
        Part::Extra(number) => return format!("Zusatz {number}"),
    }
    .to_owned()
}

/// The messages of changes that are no events: of an outbox or of another table.
pub(crate) fn other_insert(shape: &Shape) -> Vec<u8> {
    let row = vec![encode::text("not ours"); shape.columns.len()];
    encode::insert(NAMES[shape.table].0, &row)
}

pub(crate) fn update(shape: &Shape, random: &mut Random) -> Vec<u8> {
    let row = vec![Cell::Unchanged; shape.columns.len()];
    let old = random.pick(&[None, Some(encode::Old::Key(&row)), Some(encode::Old::Full(&row))]);
    encode::update(NAMES[shape.table].0, old, &row)
}

pub(crate) fn delete(shape: &Shape) -> Vec<u8> {
    let row = vec![Cell::Null; shape.columns.len()];
    encode::delete(NAMES[shape.table].0, encode::Old::Key(&row))
}

pub(crate) fn truncate(shape: &Shape) -> Vec<u8> {
    encode::truncate(&[NAMES[shape.table].0])
}

/// A row of an outbox.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// In order of insertion, which is not the order of commits.
    pub(crate) number: usize,
    aggregate_type: &'static str,
    aggregate_id: Option<String>,
    payload: Option<Vec<u8>>,
    destination: Option<&'static str>,
    with_headers: bool,
}

/// The record that an event must become, but for position and time, which the commit decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    /// Without the position.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Event {
    pub(crate) fn random(number: usize, keys: usize, random: &mut Random) -> Event {
        let size = if random.one_in(20) { 2_000 } else { random.below(60) };
        Event {
            number,
            aggregate_type: random.pick(&["order", "invoice"]),
            aggregate_id: (!random.one_in(12)).then(|| random.below(keys).to_string()),
            payload: (!random.one_in(15)).then(|| format!("{{\"n\": {number},{:size$}\"n\": 1e400}}", "").into_bytes()),
            destination: random.one_in(10).then_some("elsewhere"),
            with_headers: random.one_in(3),
        }
    }

    fn id_text(&self) -> String {
        format!("event-{}", self.number)
    }

    fn headers_text(&self) -> Option<String> {
        self.with_headers.then(|| format!("{{\"trace\": \"t\\u00e4-{0}\", \"retry\": {0}}}", self.number))
    }

    fn idempotency_key(&self) -> Option<String> {
        (self.number % 4 == 0).then(|| format!("once-{}", self.number))
    }

    pub(crate) fn expected(&self, shape: &Shape) -> Expected {
        let topic = match self.destination.filter(|_| shape.has(Part::Destination)) {
            Some(destination) => destination.to_owned(),
            None if shape.table == HOSTILE => format!("audit.{}-eu", self.aggregate_type),
            None => format!("outbox.event.{}", self.aggregate_type),
        };
        let mut headers = vec![
            ("id".to_owned(), self.id_text().into_bytes()),
            ("event_type".to_owned(), b"placed".to_vec()),
            ("aggregate_type".to_owned(), self.aggregate_type.as_bytes().to_vec()),
        ];
        if let Some(key) = self.idempotency_key().filter(|_| shape.has(Part::IdempotencyKey)) {
            headers.push(("idempotency_key".to_owned(), key.into_bytes()));
        }
        if self.with_headers && shape.has(Part::Headers) {
            headers.push(("trace".to_owned(), format!("tä-{}", self.number).into_bytes()));
            headers.push(("retry".to_owned(), self.number.to_string().into_bytes()));
        }
        Expected {
            topic,
            key: self.aggregate_id.as_ref().map(|id| id.as_bytes().to_vec()),
            value: self.payload.clone(),
            headers,
        }
    }
}
