//! What a table's records will lack or lose, known before the first row.

use super::record::{Body, Datum, Key, Record};
use super::router::{self, Event};
use super::table::{Row, Table};
use super::task::Task;
use crate::config::connector::{Does, MissingColumn, Placed, Router};
use crate::connect::{Converter, Kind, Schema, Value};

impl Task {
    /// In words, each with its remedy.
    pub(super) fn foresee(&self, table: &Table) -> Vec<String> {
        let name = table.name();
        let row = Row::new(table, &[]);
        // What a predicate can see of an insert.
        let insert = Record {
            topic: table.topic.clone(),
            partition: None,
            key: Key::Made(Datum::NULL),
            body: Body::Made(Datum { schema: None, value: Value::Boolean(true) }),
            headers: self.context_headers.clone(),
            timestamp_ms: 0,
            router: None,
        };
        let mut warnings = Vec::new();
        for transform in &self.connector.transforms {
            if !self.applies(transform, &insert).unwrap_or(true) {
                continue;
            }
            match &transform.does {
                Does::EventRouter(router) => {
                    let event = Event::Row(row);
                    let poison = faults(router, &event);
                    warnings.extend(poison.map(|fault| format!("{name}: {fault}, or every event of it is poison")));
                    warnings.extend(self.lost(router, &event).map(|lost| format!("{name}: {lost}")));
                    return warnings;
                }
                Does::Foreign { class } => warnings.push(format!(
                    "{name}: the transform {} ({class}) applies to its records and is not available, so that every event \
                     of it is poison; keep it away by a predicate",
                    transform.name
                )),
                Does::DecodeMessage { .. } | Does::Overwritten { .. } => {}
            }
        }
        let converters = [(&self.connector.key_converter, table.key.as_ref().map(|key| &key.schema))]
            .into_iter()
            .chain([(&self.connector.value_converter, Some(&table.schema))]);
        for (converter, schema) in converters {
            if schema.is_some_and(|schema| converter.loses_bytes(schema)) {
                warnings.push(format!("{name}: {}", lost_bytes("its rows", converter)));
            }
        }
        warnings
    }

    fn lost<'a>(&'a self, router: &'a Router, event: &'a Event<'a>) -> impl Iterator<Item = String> + 'a {
        let connector = &self.connector;
        let of = move |column: &'a str, converter: &'a Converter| {
            let schema: &Schema = event.field(column)?.schema;
            converter.loses_bytes(schema).then(|| lost_bytes(&format!("column {column:?}"), converter))
        };
        let fixed = [
            (router.key.as_str(), &connector.key_converter),
            (router.payload.as_str(), &connector.value_converter),
            (router.id.as_str(), &connector.header_converter),
        ];
        let placed = router.placements.iter().filter_map(|placement| {
            let converter = match placement.place {
                Placed::Header => &connector.header_converter,
                Placed::Envelope => &connector.value_converter,
                Placed::Partition => return None,
            };
            Some((placement.column.as_str(), converter))
        });
        fixed.into_iter().chain(placed).filter_map(move |(column, converter)| of(column, converter))
    }
}

fn lost_bytes(of: &str, converter: &Converter) -> String {
    format!(
        "{} writes the name and size of Java's buffer in place of the bytes of {of}; set binary.handling.mode=base64 (or \
         decimal.handling.mode=string for numbers), or take another converter",
        converter.name()
    )
}

/// Columns that options name, and that are not there or will not do.
fn faults<'a>(router: &'a Router, event: &'a Event<'a>) -> impl Iterator<Item = String> + 'a {
    let required = [(&router.payload, router::PAYLOAD), (&router.id, router::ID), (&router.key, router::KEY)];
    let required = required.into_iter().map(|(column, option)| event.required(column, option).map(drop));
    let route = event.of_kind(&router.route_by, router::ROUTE, &Kind::String).map(drop);
    let version = router.schema_version.as_ref().filter(|_| router.has_envelope());
    let version = version.map(|column| event.of_kind(column, router::VERSION, &Kind::Int32).map(drop));
    let timestamp = router.timestamp.as_ref();
    let timestamp = timestamp.map(|column| {
        let found = event.required(column, router::TIMESTAMP)?;
        router::unit(column, &found).map(drop)
    });
    let placed = router.placements.iter().map(|placement| match event.field(&placement.column) {
        None if router.missing == MissingColumn::Ignore => Ok(()),
        _ if placement.place == Placed::Partition => {
            event.of_kind(&placement.column, router::PLACEMENT, &Kind::Int32).map(drop)
        }
        _ => event.required(&placement.column, router::PLACEMENT).map(drop),
    });
    let all = required.chain([route]).chain(version).chain(timestamp).chain(placed);
    all.filter_map(Result::err).map(|refusal| refusal.to_string())
}
