//! Which columns a table must have for the configuration to work.

use crate::{
    config::connector::{Connector, MissingColumn},
    pipeline::{
        outbox::{Address, Format, Outbox, Timestamp},
        template::Part,
    },
};

/// A column that must exist, and what for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// As the catalog holds it.
    pub column: String,
    /// The key of the configuration that asks for it.
    pub part: &'static str,
}

/// The columns that an outbox must have, each once. It is what the stream asks of the relation message later.
pub fn needs(outbox: &Outbox) -> Vec<Need> {
    if let Format::Debezium(task) = &outbox.format {
        return of_router(task.connector());
    }
    let columns = &outbox.columns;
    let mut needs: Vec<Need> = Vec::new();
    let mut need = |column: &str, part| {
        if !needs.iter().any(|need| need.column == column) {
            needs.push(Need { column: column.to_owned(), part });
        }
    };
    need(&columns.id, "id");
    need(&columns.aggregate_id, "aggregate_id");
    need(&columns.payload, "payload");
    for (optional, part) in [
        (&columns.aggregate_type, "aggregate_type"),
        (&columns.event_type, "event_type"),
        (&columns.headers, "headers"),
        (&columns.destination, "destination"),
        (&columns.idempotency_key, "idempotency_key"),
        (&columns.aggregate_version, "aggregate_version"),
        (&columns.occurred_at, "occurred_at"),
        (&columns.traceparent, "traceparent"),
        (&columns.tracestate, "tracestate"),
    ] {
        if optional.named {
            need(&optional.name, part);
        }
    }
    let address = if matches!(outbox.address, Address::Url(_)) { "webhook.url" } else { "route.topic" };
    let mut templates = vec![(&outbox.topic, address)];
    if let Address::Exchange(Some(exchange)) = &outbox.address {
        templates.push((exchange, "rabbitmq.exchange"));
    }
    if let Format::CloudEvents(format) = &outbox.format {
        templates.push((&format.event_type, "cloudevents.type"));
    }
    for (template, key) in templates {
        for part in template.parts() {
            if let Part::Column(name) = part {
                need(columns.column_of(name), key);
            }
        }
    }
    if outbox.timestamp == Timestamp::Column {
        need(&columns.occurred_at.name, "record.timestamp");
    }
    needs
}

/// The columns that the connector's event router makes records of. Without one every column is as good.
fn of_router(connector: &Connector) -> Vec<Need> {
    let Some((_, router)) = connector.router() else { return Vec::new() };
    let mut needs: Vec<Need> = Vec::new();
    let mut need = |column: &str, part| {
        if !needs.iter().any(|need| need.column == column) {
            needs.push(Need { column: column.to_owned(), part });
        }
    };
    need(&router.id, "table.field.event.id");
    need(&router.key, "table.field.event.key");
    need(&router.payload, "table.field.event.payload");
    need(&router.route_by, "route.by.field");
    if let Some(timestamp) = &router.timestamp {
        need(timestamp, "table.field.event.timestamp");
    }
    if router.missing == MissingColumn::Error {
        router.placements.iter().for_each(|placed| need(&placed.column, "table.fields.additional.placement"));
    }
    needs
}

/// The columns that reading the table needs beyond those: named ones, which need not be in the log.
pub(super) fn reads(outbox: &Outbox) -> Vec<Need> {
    let parts = [(&outbox.columns.seq, "seq"), (&outbox.columns.txid, "txid")];
    let named = parts.into_iter().filter(|(optional, _)| optional.named);
    named.map(|(optional, part)| Need { column: optional.name.clone(), part }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::pipeline::outbox::{Address, CloudEvents, Columns, Mode, Optional, TableName};

    /// `walpost.outbox` as configured by default.
    pub(in crate::check) fn default_outbox() -> Outbox {
        let optional = |name: &str| Optional { name: name.to_owned(), named: false };
        Outbox {
            name: TableName { schema: "walpost".to_owned(), table: "outbox".to_owned() },
            columns: Columns {
                id: "id".to_owned(),
                aggregate_id: "aggregate_id".to_owned(),
                payload: "payload".to_owned(),
                aggregate_type: optional("aggregate_type"),
                event_type: optional("event_type"),
                headers: optional("headers"),
                destination: optional("destination"),
                idempotency_key: optional("idempotency_key"),
                aggregate_version: optional("aggregate_version"),
                occurred_at: optional("occurred_at"),
                traceparent: optional("traceparent"),
                tracestate: optional("tracestate"),
                seq: optional("seq"),
                txid: optional("txid"),
            },
            topic: "outbox.event.${aggregate_type}".parse().unwrap(),
            address: Address::Topic,
            timestamp: Timestamp::Commit,
            order_by: Vec::new(),
            after_publish: crate::pipeline::outbox::AfterPublish::Keep,
            format: crate::pipeline::outbox::Format::Native,
        }
    }

    fn needed(outbox: &Outbox) -> Vec<(String, &'static str)> {
        needs(outbox).into_iter().map(|need| (need.column, need.part)).collect()
    }

    #[test]
    fn what_is_required_named_or_in_the_template_is_needed() {
        let mut outbox = default_outbox();
        let required = |rest: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
            let all = [("id", "id"), ("aggregate_id", "aggregate_id"), ("payload", "payload")];
            all.iter().chain(rest).map(|(column, part)| ((*column).to_owned(), *part)).collect()
        };
        assert_eq!(needed(&outbox), required(&[("aggregate_type", "route.topic")]));
        outbox.topic = "orders".parse().unwrap();
        assert_eq!(needed(&outbox), required(&[]));
        outbox.topic = "${Region}.${event_type}".parse().unwrap();
        outbox.columns.event_type = Optional { name: "kind".to_owned(), named: true };
        assert_eq!(needed(&outbox), required(&[("kind", "event_type"), ("Region", "route.topic")]));
        outbox.timestamp = Timestamp::Column;
        assert!(needed(&outbox).contains(&("occurred_at".to_owned(), "record.timestamp")));
    }

    #[test]
    fn what_the_type_of_a_cloudevent_names_is_needed() {
        let mut outbox = default_outbox();
        outbox.topic = "orders".parse().unwrap();
        outbox.columns.event_type.name = "kind".to_owned();
        outbox.format = Format::CloudEvents(CloudEvents {
            mode: Mode::Binary,
            source: "/app".to_owned(),
            event_type: "${region}.${event_type}".parse().unwrap(),
            content_type: None,
        });
        let of_type = ["region", "kind"].map(|column| (column.to_owned(), "cloudevents.type"));
        assert_eq!(needed(&outbox)[3..], of_type);
    }
}
