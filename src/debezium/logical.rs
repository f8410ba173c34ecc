//! Logical messages (`pg_logical_emit_message`): as Debezium sends them, or decoded into what an outbox row would be.

use std::sync::Arc;

use super::columns;
use super::expand::{self, Expander, Json, NullBehavior};
use super::modes::{BinaryMode, NameAdjustment};
use super::record::{Body, Datum, Key, Logical, Record};
use super::refusal::Refusal;
use super::source::{Source, SourceForm, named, optional, required};
use super::task::{Message, Task};
use super::topics;
use super::transaction::Counts;
use crate::connect::{Field, Kind, Schema, Struct, Value};

/// Debezium's name for where messages come from.
const COLLECTION: &str = "LOGICAL_DECODING_MESSAGE";

#[derive(Clone, Debug)]
pub(super) struct LogicalForm {
    key: Arc<Schema>,
    block: Arc<Schema>,
    value: Arc<Schema>,
}

impl LogicalForm {
    pub(super) fn new(names: NameAdjustment, binary: BinaryMode, source: &SourceForm) -> LogicalForm {
        let content = if binary == BinaryMode::Bytes { Kind::Bytes } else { Kind::String };
        let block = vec![optional("prefix", Kind::String), optional("content", content)];
        let block = Arc::new(named(block, names, "io.debezium.connector.postgresql.Message"));
        let of = |name: &str, schema: &Arc<Schema>| Field { name: name.to_owned(), schema: schema.clone() };
        let value = vec![
            required("op", Kind::String),
            optional("ts_ms", Kind::Int64),
            of("source", &source.schema),
            of("transaction", &source.transaction),
            of("message", &block),
        ];
        let key = vec![optional("prefix", Kind::String)];
        LogicalForm {
            key: Arc::new(named(key, names, "io.debezium.connector.postgresql.MessageKey")),
            block,
            value: Arc::new(named(value, names, "io.debezium.connector.postgresql.MessageValue")),
        }
    }
}

impl Task {
    /// Whether messages with this prefix become records.
    pub fn takes_message(&self, prefix: &str) -> bool {
        self.connector.message_prefixes.as_ref().is_none_or(|prefixes| prefixes.takes(prefix).unwrap_or(true))
    }

    /// Of a logical message whose prefix it [takes](Task::takes_message).
    pub fn message(
        &self,
        prefix: &str,
        content: &[u8],
        transactional: bool,
        source: &Source,
        counts: &mut Counts,
    ) -> Result<Vec<Message>, Refusal> {
        let order = (self.connector.transaction_topic.is_some() && transactional).then(|| counts.event(COLLECTION));
        let key = Struct { schema: self.logical_form.key.clone(), values: vec![Value::String(prefix.to_owned())] };
        let record = Record {
            topic: topics::of_messages(&self.connector.topic_prefix),
            partition: None,
            key: Key::Made(Datum::of(key)),
            body: Body::Message(Logical { prefix, content, transactional, source, order }),
            headers: Vec::new(),
            timestamp_ms: 0,
            router: None,
        };
        Ok(self.emit(record)?.into_iter().collect())
    }

    /// What a message says of its event, whether or not a record can be made of it: the router's id, route and key, as
    /// texts, where the content is a JSON object that has them.
    pub fn told(&self, content: &[u8]) -> [Option<String>; 3] {
        let members: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(content).ok();
        let (Some(members), Some((_, router))) = (members, self.connector.router()) else { return [None, None, None] };
        [&router.id, &router.route_by, &router.key].map(|name| match members.get(name)? {
            serde_json::Value::String(text) => Some(text.clone()),
            serde_json::Value::Null => None,
            other => Some(other.to_string()),
        })
    }

    pub(super) fn message_value(&self, message: &Logical<'_>) -> Datum {
        let form = &self.logical_form;
        let content = columns::binary(message.content.to_vec(), self.connector.modes.binary);
        let block = vec![Value::String(message.prefix.to_owned()), content];
        let block = Value::Struct(Struct { schema: form.block.clone(), values: block });
        let [ts_ms, ..] = message.source.processed();
        let (source, transaction) = self.origin(message);
        let values = vec![Value::String("m".to_owned()), ts_ms, source, transaction, block];
        Datum::of(Struct { schema: form.value.clone(), values })
    }

    /// What a decoded message is where no router takes it: the envelope of an insert, without the message.
    pub(super) fn decoded_value(&self, content: Struct, message: &Logical<'_>) -> Datum {
        let Schema { kind, name, .. } = &*self.logical_form.value;
        let mut fields = match kind {
            Kind::Struct(fields) => fields.clone(),
            _ => Vec::new(),
        };
        fields.pop();
        fields.push(Field { name: "after".to_owned(), schema: content.schema.clone() });
        let name = name.as_ref().map(|name| format!("{name}.Envelope"));
        let schema = Schema { name, ..Schema::new(Kind::Struct(fields)) };
        let [ts_ms, ..] = message.source.processed();
        let (source, transaction) = self.origin(message);
        let values = vec![Value::String("c".to_owned()), ts_ms, source, transaction, Value::Struct(content)];
        Datum::of(Struct { schema: Arc::new(schema), values })
    }

    fn origin(&self, message: &Logical<'_>) -> (Value, Value) {
        let source = self.source.value(message.source, "", "", message.transactional);
        (source, self.source.transaction(message.source, message.order))
    }
}

/// `DecodeLogicalDecodingMessageContent`: the message without its key, and its content read.
pub(super) fn decode<'a>(mut record: Record<'a>, keep_nulls: bool) -> Result<Record<'a>, Refusal> {
    let Body::Message(message) = record.body else { return Ok(record) };
    let content = read(&String::from_utf8_lossy(message.content), keep_nulls)?;
    record.key = Key::Made(Datum::NULL);
    record.body = Body::Decoded(content, message);
    Ok(record)
}

fn read(text: &str, keep_nulls: bool) -> Result<Struct, Refusal> {
    let document = if text.starts_with(['{', '[']) { Json::parse(text) } else { None };
    let document = document.ok_or(Refusal::NotJson)?;
    let nulls = if keep_nulls { NullBehavior::OptionalBytes } else { NullBehavior::Ignore };
    let schema = Expander { nulls, names: NameAdjustment::None }.schema(None, &document);
    let schema = schema.map_err(|_| Refusal::NoSchema)?.ok_or(Refusal::NotJson)?;
    if !matches!(schema.kind, Kind::Struct(_)) {
        return Err(Refusal::NotJson);
    }
    expand::structure(&document, &schema).map_err(|_| Refusal::NoSchema)
}
