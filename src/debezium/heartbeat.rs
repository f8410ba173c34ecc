//! Heartbeats: records that say that the connector is alive.

use std::sync::Arc;

use super::modes::NameAdjustment;
use super::record::Datum;
use super::refusal::Refusal;
use super::source::{named, required};
use super::task::{Message, Task};
use crate::connect::{Kind, Schema, Struct, Value};

#[derive(Clone, Debug)]
pub(super) struct HeartbeatForm {
    key: Arc<Schema>,
    value: Arc<Schema>,
}

impl HeartbeatForm {
    pub(super) fn new(names: NameAdjustment) -> HeartbeatForm {
        let key = vec![required("serverName", Kind::String)];
        let value = vec![required("ts_ms", Kind::Int64)];
        HeartbeatForm {
            key: Arc::new(named(key, names, "io.debezium.connector.common.ServerNameKey")),
            value: Arc::new(named(value, names, "io.debezium.connector.common.Heartbeat")),
        }
    }
}

impl Task {
    /// A heartbeat, if the connector sends any. `now_ms` is the time, in milliseconds since 1970.
    pub fn heartbeat(&self, now_ms: i64) -> Result<Option<Message>, Refusal> {
        let Some(heartbeat) = &self.connector.heartbeat else { return Ok(None) };
        let form = &self.heartbeat_form;
        let name = Value::String(self.connector.topic_prefix.clone());
        let key = Datum::of(Struct { schema: form.key.clone(), values: vec![name] });
        let value = Datum::of(Struct { schema: form.value.clone(), values: vec![Value::Int64(now_ms)] });
        self.plain(&heartbeat.topic, Some(0), key, value)
    }
}
