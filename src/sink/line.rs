//! A record as a line of JSON, as `walpost tail --json` prints it, without a place in Kafka.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::{
    pipeline::Record,
    printable::{insert_bytes, printable_json},
};

pub(super) fn as_json(record: &Record<'_>) -> String {
    let mut object = Map::new();
    let time = Timestamp::from_millisecond(record.timestamp_ms)
        .ok()
        .filter(|_| record.timestamp_ms != 0)
        .map(|time| format!("{time:.3}"));
    object.insert("time".to_owned(), time.into());
    object.insert("topic".to_owned(), record.topic.into());
    insert_bytes(&mut object, "key", record.key);
    let header = |(name, value): (&str, Option<&[u8]>)| {
        let mut object = Map::new();
        object.insert("name".to_owned(), name.into());
        insert_bytes(&mut object, "value", value);
        Value::Object(object)
    };
    let headers: Vec<_> = record.headers.iter().map(header).collect();
    object.insert("headers".to_owned(), headers.into());
    insert_bytes(&mut object, "value", record.value);
    printable_json(&Value::Object(object).to_string()) + "\n"
}
