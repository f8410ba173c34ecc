//! A connector's task: rows and messages in, Kafka's records out, as the connector's configuration has it.
//!
//! There is no IO, no clock and no state: what a record depends on is in the configuration, the [`Table`], the row and
//! its [`Source`].

use std::sync::Arc;

use super::columns::Attribute;
use super::heartbeat::HeartbeatForm;
use super::key_columns::KeyColumns;
use super::logical::{self, LogicalForm};
use super::record::{Body, Change, Datum, Header, HeaderValue, Key, Operation, Record};
use super::router;
use super::source::SourceForm;
use super::table::{self, Row};
use super::topics;
use super::transaction::TransactionForm;
use crate::config::connector::{Connector, Does, Host, Predicate, Router, Transform};
use crate::connect::{Converter, Kind, Schema, Value};
use crate::pipeline::outbox::{TableName, is_topic};

pub use super::refusal::Refusal;
pub use super::source::Source;
pub use super::table::{Cell, Table};
pub use super::transaction::Counts;

/// A connector at work. Every run has an id of its own, which records carry.
#[derive(Clone, Debug)]
pub struct Task {
    pub(super) connector: Connector,
    run_id: String,
    pub(super) context_headers: Vec<Header>,
    key_columns: KeyColumns,
    pub(super) source: SourceForm,
    pub(super) logical_form: LogicalForm,
    pub(super) transaction_form: TransactionForm,
    pub(super) heartbeat_form: HeartbeatForm,
    warnings: Vec<String>,
}

/// A record as Kafka gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: String,
    /// None: the key decides.
    pub partition: Option<i32>,
    /// None: no key.
    pub key: Option<Vec<u8>>,
    /// None: a tombstone.
    pub value: Option<Vec<u8>>,
    /// In the order in which they are sent; a name may stand more than once, and a value may be Kafka's null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// In milliseconds since 1970; 0: the time of sending.
    pub timestamp_ms: i64,
}

impl Task {
    /// `run_id` is a UUID of version 7.
    pub fn new(connector: &Connector, run_id: String) -> Task {
        let names = connector.schema_names;
        let mut warnings = Vec::new();
        let key_columns = KeyColumns::parse(connector.message_key_columns.as_deref().unwrap_or_default());
        let key_columns = key_columns.unwrap_or_else(|error| {
            warnings.push(format!("message.key.columns is left out: {error}; keys are made of the primary key"));
            KeyColumns::default()
        });
        let source = SourceForm::new(&connector.topic_prefix, &connector.database.name);
        Task {
            context_headers: context_headers(connector, &run_id),
            logical_form: LogicalForm::new(names, connector.modes.binary, &source),
            transaction_form: TransactionForm::new(names),
            heartbeat_form: HeartbeatForm::new(names),
            source,
            key_columns,
            warnings,
            connector: connector.clone(),
            run_id,
        }
    }

    /// What it runs.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// What is worth telling at start, whatever the tables.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether rows of the table become records.
    pub fn takes(&self, table: &TableName) -> bool {
        // What cannot be decided is not left out in silence.
        self.connector.tables.take(&table.schema, &table.table).unwrap_or(true)
    }

    /// How rows of a table are read. `attributes` are its columns in the order of the rows; `key` names those of the
    /// primary key in the key's order, or of a unique index where there is none, as Debezium has it.
    pub fn table(&self, name: &TableName, attributes: &[Attribute], key: &[String]) -> Table {
        let topic = topics::of_table(&self.connector.topic_prefix, &self.connector.topic_delimiter, name);
        let indexed = || attributes.iter().enumerate();
        let taken = |attribute: &Attribute| {
            self.connector.tables.take_column(&name.schema, &name.table, &attribute.name).unwrap_or(true)
        };
        let columns = table::placed(indexed().filter(|(_, attribute)| taken(attribute)), &self.connector.modes);
        let named = self.key_columns.of(name, attributes);
        let key = if named.is_empty() { key } else { &named };
        let of_key = |name: &String| indexed().find(|(_, attribute)| attribute.name == *name);
        let key = table::placed(key.iter().filter_map(of_key), &self.connector.modes);
        let schema_name = |suffix: &str| self.connector.schema_names.schema(&format!("{topic}.{suffix}"));
        let schema = Arc::new(table::schema_of(schema_name("Value"), &columns).optional());
        let key = (!key.is_empty())
            .then(|| table::Key { schema: Arc::new(table::schema_of(schema_name("Key"), &key)), columns: key });
        let envelope = Arc::new(self.envelope_schema(&schema_name("Envelope"), &schema));
        let table = Table { name: name.clone(), topic, columns, key, schema, envelope, warnings: Vec::new() };
        Table { warnings: self.foresee(&table), ..table }
    }

    /// Of a row that was inserted, or read from the table: its columns in the order of the attributes.
    ///
    /// `counts` are those of the open transaction, from its first event on.
    pub fn insert(
        &self,
        table: &Table,
        row: &[Cell<'_>],
        source: &Source,
        counts: &mut Counts,
    ) -> Result<Vec<Message>, Refusal> {
        let operation = if source.snapshot { Operation::Read } else { Operation::Create };
        let after = Some(Row::new(table, row));
        self.change(Change { after, ..Change::new(table, operation, source) }, None, counts)
    }

    /// Of a row that was updated. `old` is the row before, where the log has it: all of it (`O`), or its key alone
    /// (`K`, other columns null).
    pub fn update(
        &self,
        table: &Table,
        old: Option<&[Cell<'_>]>,
        new: &[Cell<'_>],
        source: &Source,
        counts: &mut Counts,
    ) -> Result<Vec<Message>, Refusal> {
        let before = old.map(|old| Row::new(table, old));
        let new = Row { old: old.unwrap_or_default(), ..Row::new(table, new) };
        let after = Some(new);
        let keys = match before {
            Some(before) => (before.key()?, new.key()?),
            None => (None, None),
        };
        if let (true, Some(before)) = (self.connector.skip_unchanged, before) {
            if before.whole()? == new.whole()? {
                return Ok(Vec::new());
            }
        }
        let change = |operation| Change::new(table, operation, source);
        match keys {
            // A row that changes its key goes under the old one and comes under the new one.
            (Some(old_key), Some(new_key)) if old_key.value != new_key.value => {
                let to = Some(Header::new("__debezium.newkey", new_key));
                let mut messages = self.change(Change { before, ..change(Operation::Delete) }, to, counts)?;
                let from = Some(Header::new("__debezium.oldkey", old_key));
                messages.extend(self.change(Change { after, ..change(Operation::Create) }, from, counts)?);
                Ok(messages)
            }
            _ => self.change(Change { before, after, ..change(Operation::Update) }, None, counts),
        }
    }

    /// Of a row that was deleted: all of it (`O`), or its key alone (`K`, other columns null).
    pub fn delete(
        &self,
        table: &Table,
        old: &[Cell<'_>],
        source: &Source,
        counts: &mut Counts,
    ) -> Result<Vec<Message>, Refusal> {
        let before = Some(Row::new(table, old));
        self.change(Change { before, ..Change::new(table, Operation::Delete, source) }, None, counts)
    }

    /// Of a table that was truncated.
    pub fn truncate(&self, table: &Table, source: &Source, counts: &mut Counts) -> Result<Vec<Message>, Refusal> {
        self.change(Change::new(table, Operation::Truncate, source), None, counts)
    }

    /// `moved` is the header with the other key of a row that changed it.
    fn change(&self, change: Change<'_>, moved: Option<Header>, counts: &mut Counts) -> Result<Vec<Message>, Refusal> {
        let Change { table, operation, before, after, source, .. } = change;
        let skipped = match operation {
            Operation::Create => self.connector.skipped.create,
            Operation::Read => self.connector.skipped.read,
            Operation::Update => self.connector.skipped.update,
            Operation::Delete => self.connector.skipped.delete,
            Operation::Truncate => self.connector.skipped.truncate,
        };
        if skipped {
            return Ok(Vec::new());
        }
        let key = || match after.or(before) {
            Some(row) => Key::Of(row),
            None => Key::Made(Datum::NULL),
        };
        let headers: Vec<Header> = moved.into_iter().chain(self.context_headers.iter().cloned()).collect();
        let order = (self.connector.transaction_topic.is_some() && !source.snapshot)
            .then(|| counts.event(&format!("{}.{}", table.name.schema, table.name.table)));
        let tombstone =
            (self.connector.tombstones_on_delete && operation == Operation::Delete).then(|| headers.clone());
        let record = |body, headers| {
            let topic = table.topic.clone();
            Record { topic, partition: None, key: key(), body, headers, timestamp_ms: 0, router: None }
        };
        let mut messages = Vec::from_iter(self.emit(record(Body::Change(Change { order, ..change }), headers))?);
        if let Some(headers) = tombstone {
            messages.extend(self.emit(record(Body::Made(Datum::NULL), headers))?);
        }
        Ok(messages)
    }

    /// A record that is no table's and no message's.
    pub(super) fn plain(
        &self,
        topic: &str,
        partition: Option<i32>,
        key: Datum,
        value: Datum,
    ) -> Result<Option<Message>, Refusal> {
        let (topic, key, body) = (topic.to_owned(), Key::Made(key), Body::Made(value));
        self.emit(Record { topic, partition, key, body, headers: Vec::new(), timestamp_ms: 0, router: None })
    }

    /// Through the transforms and the converters.
    pub(super) fn emit<'a>(&'a self, mut record: Record<'a>) -> Result<Option<Message>, Refusal> {
        let traced = self.connector.open_telemetry.then_some(self.run_id.as_str());
        for transform in &self.connector.transforms {
            if !self.applies(transform, &record)? {
                continue;
            }
            record = match &transform.does {
                Does::EventRouter(router) => match router::route(router, record, traced)? {
                    Some(record) => record,
                    None => return Ok(None),
                },
                Does::DecodeMessage { keep_nulls } => logical::decode(record, *keep_nulls)?,
                Does::Overwritten { .. } => record,
                Does::Foreign { class } => {
                    return Err(Refusal::Foreign { name: transform.name.clone(), class: class.clone() });
                }
            };
        }
        self.convert(record).map(Some)
    }

    pub(super) fn applies(&self, transform: &Transform, record: &Record<'_>) -> Result<bool, Refusal> {
        let Some(condition) = &transform.condition else { return Ok(true) };
        let holds = match &condition.predicate {
            Predicate::TopicNameMatches(pattern) => {
                let option = || format!("the pattern of the predicate of {}", transform.name);
                pattern.matches(&record.topic).map_err(|source| Refusal::Steps { option: option(), source })?
            }
            Predicate::HasHeaderKey(name) => record.headers.iter().any(|header| header.name == *name),
            Predicate::RecordIsTombstone => record.is_tombstone(),
        };
        Ok(holds != condition.negate)
    }

    fn convert(&self, record: Record<'_>) -> Result<Message, Refusal> {
        let convert = |converter: &Converter, datum: &Datum, part: &dyn Fn() -> String| {
            converter
                .convert(datum.schema.as_deref(), &datum.value)
                .map_err(|source| Refusal::Convert { part: part(), source })
        };
        let Record { topic, mut partition, key, body, headers, mut timestamp_ms, router } = record;
        let key = convert(&self.connector.key_converter, &key.make()?, &|| key_part(router))?;
        let value = convert(&self.connector.value_converter, &self.body(body)?, &|| value_part(router))?;
        let mut converted = Vec::with_capacity(headers.len());
        for header in headers {
            let value = match header.value {
                HeaderValue::Ready(value) => value,
                HeaderValue::Datum(datum) => {
                    convert(&self.connector.header_converter, &datum, &|| format!("header {}", header.name))?
                }
            };
            converted.push((header.name, value));
        }
        if self.connector.host == Host::Server {
            (partition, timestamp_ms) = (None, 0);
            converted.retain(|(_, value)| value.is_some());
        }
        checked(Message { topic, partition, key, value, headers: converted, timestamp_ms })
    }

    fn body(&self, body: Body<'_>) -> Result<Datum, Refusal> {
        match body {
            Body::Made(datum) => Ok(datum),
            Body::Change(change) => self.envelope(&change),
            Body::Message(message) => Ok(self.message_value(&message)),
            Body::Decoded(content, message) => Ok(self.decoded_value(content, &message)),
        }
    }
}

/// Which part of a record an error is about.
fn key_part(router: Option<&Router>) -> String {
    router.map_or_else(|| "key".to_owned(), |router| format!("key (column {:?})", router.key))
}

fn value_part(router: Option<&Router>) -> String {
    match router {
        Some(router) if router.expand_json => {
            format!("value (column {:?}, expanded by table.expand.json.payload)", router.payload)
        }
        Some(router) if router.has_envelope() => {
            format!("value (column {:?} and what is placed beside it)", router.payload)
        }
        Some(router) => format!("value (column {:?}, the payload)", router.payload),
        None => "value".to_owned(),
    }
}

/// Of a row's records, in their order.
fn context_headers(connector: &Connector, run_id: &str) -> Vec<Header> {
    if !connector.context_headers {
        return Vec::new();
    }
    let text = Schema::new(Kind::String);
    let of = [
        ("connectorLogicalName", connector.topic_prefix.as_str()),
        ("taskId", "0"),
        ("connectorName", "postgresql"),
        ("runId", run_id),
    ];
    of.into_iter()
        .map(|(name, value)| {
            let value = Value::String(value.to_owned());
            let value = connector.header_converter.convert(Some(&text), &value).unwrap_or_default();
            Header::ready(&format!("__debezium.context.{name}"), value)
        })
        .collect()
}

/// What of a record Kafka is known to refuse.
fn checked(message: Message) -> Result<Message, Refusal> {
    if !is_topic(&message.topic) {
        return Err(Refusal::Topic { topic: message.topic });
    }
    if let Some(partition) = message.partition.filter(|partition| *partition < 0) {
        return Err(Refusal::Partition { partition });
    }
    if !(0..INFINITY_MS).contains(&message.timestamp_ms) {
        return Err(Refusal::Timestamp { timestamp_ms: message.timestamp_ms });
    }
    Ok(message)
}

/// PostgreSQL's `infinity`, as Debezium has it.
const INFINITY_MS: i64 = 9_223_372_036_825_200;
