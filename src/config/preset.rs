//! Column names of well-known outbox tables, and `[columns]` over them.

use serde::Deserialize;

use crate::pipeline::outbox::{Columns, Optional};

use super::value;

/// `preset`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Preset {
    /// walpost's own table.
    Walpost,
    /// The table of Debezium's outbox event router.
    Debezium,
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
    occurred_at: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    traceparent: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    seq: Option<String>,
    #[serde(deserialize_with = "value::optional_name")]
    txid: Option<String>,
}

impl ColumnNames {
    /// The columns of an outbox. Only what is named here must exist, apart from id, aggregate_id and payload.
    pub(super) fn over(self, preset: Preset) -> Columns {
        // Where Debezium's table differs from walpost's; the columns that it lacks keep walpost's names.
        let or = |named: Option<String>, walpost: &str, debezium: &str| {
            let preset = match preset {
                Preset::Walpost => walpost,
                Preset::Debezium => debezium,
            };
            named.unwrap_or_else(|| preset.to_owned())
        };
        let optional = |name: Option<String>, walpost, debezium| Optional {
            named: name.is_some(),
            name: or(name, walpost, debezium),
        };
        Columns {
            id: or(self.id, "id", "id"),
            aggregate_id: or(self.aggregate_id, "aggregate_id", "aggregateid"),
            payload: or(self.payload, "payload", "payload"),
            aggregate_type: optional(self.aggregate_type, "aggregate_type", "aggregatetype"),
            event_type: optional(self.event_type, "event_type", "type"),
            headers: optional(self.headers, "headers", "headers"),
            destination: optional(self.destination, "destination", "destination"),
            idempotency_key: optional(self.idempotency_key, "idempotency_key", "idempotency_key"),
            occurred_at: optional(self.occurred_at, "occurred_at", "occurred_at"),
            traceparent: optional(self.traceparent, "traceparent", "traceparent"),
            seq: optional(self.seq, "seq", "seq"),
            txid: optional(self.txid, "txid", "txid"),
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
