//! Column names of well-known outbox tables, and `[columns]` over them.

use serde::Deserialize;

use crate::pipeline::outbox::{Columns, Marks, Optional};

use super::value;

/// `preset`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Preset {
    /// walpost's own table.
    Walpost,
    /// The table of Debezium's outbox event router.
    Debezium,
    /// A table whose rows name their topic.
    Destination,
    /// A table whose rows have a status.
    Status,
}

/// `route.topic` of a preset by its word, where it is not the usual one: these tables have no aggregate_type.
pub(super) fn topic(preset: &str) -> Option<&'static str> {
    match preset {
        "destination" => Some("${destination}"),
        "status" => Some("outbox.event.${event_type}"),
        _ => None,
    }
}

/// `[columns]`: the columns that the configuration names, as the catalog holds them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ColumnNames {
    #[serde(deserialize_with = "value::optional_name")]
    id: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    aggregate_id: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    payload: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    aggregate_type: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    event_type: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    headers: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    destination: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    idempotency_key: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    aggregate_version: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    occurred_at: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    traceparent: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    tracestate: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    seq: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    txid: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    published_at: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    status: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    attempts: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    retry_count: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    last_error: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    updated_at: Option<String>,
}

impl ColumnNames {
    /// The columns of an outbox. Only what is named here must exist, apart from id, aggregate_id and payload.
    pub(super) fn over(self, preset: Preset) -> Columns {
        let optional = |named: Option<String>, preset: &str| Optional {
            named: named.is_some(),
            name: named.unwrap_or_else(|| preset.to_owned()),
        };
        let required = |named: Option<String>, preset: &str| named.unwrap_or_else(|| preset.to_owned());
        // Where the other tables differ from walpost's; for columns that they lack walpost's names hold.
        let (aggregate_id, payload, aggregate_type, event_type, occurred_at) = match preset {
            Preset::Walpost => ("aggregate_id", "payload", "aggregate_type", "event_type", "occurred_at"),
            Preset::Debezium => ("aggregateid", "payload", "aggregatetype", "type", "occurred_at"),
            Preset::Destination => ("aggregate_id", "payload", "aggregate_type", "event_type", "created_at"),
            // Nothing in it says what an event is about: each is its own aggregate, unless a column is named.
            Preset::Status => ("id", "payload_json", "aggregate_type", "event_type", "created_at"),
        };
        Columns {
            id: required(self.id, "id"),
            aggregate_id: required(self.aggregate_id, aggregate_id),
            payload: required(self.payload, payload),
            aggregate_type: optional(self.aggregate_type, aggregate_type),
            event_type: optional(self.event_type, event_type),
            headers: optional(self.headers, "headers"),
            destination: optional(self.destination, "destination"),
            idempotency_key: optional(self.idempotency_key, "idempotency_key"),
            aggregate_version: optional(self.aggregate_version, "aggregate_version"),
            occurred_at: optional(self.occurred_at, occurred_at),
            traceparent: optional(self.traceparent, "traceparent"),
            tracestate: optional(self.tracestate, "tracestate"),
            seq: optional(self.seq, "seq"),
            txid: optional(self.txid, "txid"),
        }
    }

    /// Columns that say what became of an event. They have the same names in every preset.
    pub(super) fn marks(&self) -> Marks {
        let optional = |named: &Option<String>, preset: &str| Optional {
            named: named.is_some(),
            name: named.clone().unwrap_or_else(|| preset.to_owned()),
        };
        Marks {
            published_at: optional(&self.published_at, "published_at"),
            status: optional(&self.status, "status"),
            attempts: optional(&self.attempts, "attempts"),
            retry_count: optional(&self.retry_count, "retry_count"),
            last_error: optional(&self.last_error, "last_error"),
            updated_at: optional(&self.updated_at, "updated_at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_columns_lie_over_the_preset() {
        let named = ColumnNames {
            aggregate_id: Some("order_id".to_owned()),
            headers: Some("meta".to_owned()),
            ..ColumnNames::default()
        };
        let columns = named.over(Preset::Debezium);
        assert_eq!(columns.id, "id");
        assert_eq!(columns.aggregate_id, "order_id");
        assert_eq!(columns.aggregate_type, Optional { name: "aggregatetype".to_owned(), named: false });
        assert_eq!(columns.event_type, Optional { name: "type".to_owned(), named: false });
        assert_eq!(columns.headers, Optional { name: "meta".to_owned(), named: true });
        assert_eq!(ColumnNames::default().over(Preset::Walpost).event_type.name, "event_type");
    }
}
