//! Records of transactions (`provide.transaction.metadata`): that one begins, and what it held when it ends.

use std::sync::Arc;

use super::modes::NameAdjustment;
use super::record::Datum;
use super::refusal::Refusal;
use super::source::{Order, Source, named, optional, required};
use super::task::{Message, Task};
use crate::connect::{Field, Kind, Schema, Struct, Value};

/// Events of the open transaction, by where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    total: u64,
    /// In the order of their first events.
    collections: Vec<(String, u64)>,
}

impl Counts {
    /// One more, and its place.
    pub(super) fn event(&mut self, collection: &str) -> Order {
        self.total += 1;
        let known = self.collections.iter().position(|(name, _)| name == collection);
        let at = known.unwrap_or_else(|| {
            self.collections.push((collection.to_owned(), 0));
            self.collections.len() - 1
        });
        self.collections[at].1 += 1;
        Order { total: self.total, in_collection: self.collections[at].1 }
    }

    /// As a `java.util.HashMap` walks through them.
    fn in_order_of_hash(&self) -> Vec<&(String, u64)> {
        let mut buckets = 16;
        while self.collections.len() * 4 > buckets * 3 {
            buckets *= 2;
        }
        let bucket = |name: &str| {
            let hash = name.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
            (hash ^ (hash >> 16)) as usize & (buckets - 1)
        };
        let mut all: Vec<_> = self.collections.iter().collect();
        all.sort_by_key(|(name, _)| bucket(name));
        all
    }
}

#[derive(Clone, Debug)]
pub(super) struct TransactionForm {
    key: Arc<Schema>,
    value: Arc<Schema>,
    count: Arc<Schema>,
}

impl TransactionForm {
    pub(super) fn new(names: NameAdjustment) -> TransactionForm {
        let count = vec![required("data_collection", Kind::String), required("event_count", Kind::Int64)];
        let count = Schema::new(Kind::Struct(count)).named("event.collection", 1).optional();
        let count = Arc::new(count);
        let counts = Arc::new(Schema::new(Kind::Array(count.clone())).optional());
        let value = vec![
            required("status", Kind::String),
            required("id", Kind::String),
            optional("event_count", Kind::Int64),
            Field { name: "data_collections".to_owned(), schema: counts },
            required("ts_ms", Kind::Int64),
        ];
        let key = vec![required("id", Kind::String)];
        TransactionForm {
            key: Arc::new(named(key, names, "io.debezium.connector.common.TransactionMetadataKey")),
            value: Arc::new(named(value, names, "io.debezium.connector.common.TransactionMetadataValue")),
            count,
        }
    }
}

impl Task {
    /// The record that says that a transaction begins. `source.lsn` is where the log data of Begin starts.
    pub fn begin(&self, source: &Source) -> Result<Option<Message>, Refusal> {
        self.transaction("BEGIN", source, Value::Null, Value::Null)
    }

    /// The record that says that it ends. `source.lsn` is where the log data of Commit starts.
    pub fn end(&self, source: &Source, counts: &Counts) -> Result<Option<Message>, Refusal> {
        let number = |count: u64| Value::Int64(count.try_into().unwrap_or(i64::MAX));
        let of_collection = |(name, count): &(String, u64)| {
            let schema = self.transaction_form.count.clone();
            Value::Struct(Struct { schema, values: vec![Value::String(name.clone()), number(*count)] })
        };
        let collections = counts.in_order_of_hash().into_iter().map(of_collection).collect();
        self.transaction("END", source, number(counts.total), Value::Array(collections))
    }

    fn transaction(
        &self,
        status: &str,
        source: &Source,
        total: Value,
        collections: Value,
    ) -> Result<Option<Message>, Refusal> {
        let Some(topic) = &self.connector.transaction_topic else { return Ok(None) };
        let id = Value::String(source.transaction_id());
        let form = &self.transaction_form;
        let values = vec![
            Value::String(status.to_owned()),
            id.clone(),
            total,
            collections,
            Value::Int64(source.commit_time.unix_ms()),
        ];
        let key = Datum::of(Struct { schema: form.key.clone(), values: vec![id] });
        self.plain(topic, None, key, Datum::of(Struct { schema: form.value.clone(), values }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_stand_as_java_hashes_them() {
        let mut counts = Counts::default();
        for name in ["public.outbox", "public.orders", "app.events", "LOGICAL_DECODING_MESSAGE", "public.a", "x.y"] {
            counts.event(name);
        }
        let order = counts.event("public.outbox");
        assert_eq!((order.total, order.in_collection), (7, 2));
        let names: Vec<_> = counts.in_order_of_hash().into_iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["public.outbox", "x.y", "public.orders", "public.a", "app.events", "LOGICAL_DECODING_MESSAGE"];
        assert_eq!(names, expected);
        for more in 0..20 {
            counts.event(&format!("public.t{more}"));
        }
        let names: Vec<_> = counts.in_order_of_hash().into_iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[..6], ["public.outbox", "x.y", "public.a", "public.t8", "public.t7", "public.t9"]);
    }
}
