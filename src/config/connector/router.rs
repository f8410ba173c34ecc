//! The outbox event router: what of a row goes where.

use super::{ConfigError, list, settings::Options};
use crate::{
    connect::regex::{Pattern, Replacement},
    debezium::{
        expand::NullBehavior,
        modes::{NameAdjustment, option},
    },
};

/// `io.debezium.transforms.outbox.EventRouter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// Column of the header `id`.
    pub id: String,
    /// Column of the key.
    pub key: String,
    /// Column of the payload.
    pub payload: String,
    /// Column of the record's timestamp; none: the time of processing.
    pub timestamp: Option<String>,
    /// Column of the version of the value's schema.
    pub schema_version: Option<String>,
    /// In their order.
    pub placements: Vec<Placement>,
    pub missing: MissingColumn,
    pub invalid_operation: InvalidOperation,
    /// `table.expand.json.payload`.
    pub expand_json: bool,
    /// `table.json.payload.null.behavior`.
    pub json_nulls: NullBehavior,
    /// How names of members become names of fields.
    pub field_names: NameAdjustment,
    /// Column whose value is matched for the topic.
    pub route_by: String,
    /// `route.topic.regex`: what the whole of it must match to be rewritten; else it is the topic itself.
    pub topic_pattern: Pattern,
    /// `route.topic.replacement`.
    pub topic_replacement: Replacement,
    /// The same as written.
    pub topic_replacement_text: String,
    /// `route.tombstone.on.empty.payload`.
    pub tombstone_on_empty: bool,
    pub tracing: Tracing,
}

/// One of `table.fields.additional.placement`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub column: String,
    pub place: Placed,
    /// The name of the header or field.
    pub alias: String,
}

/// Where a column goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    Header,
    Envelope,
    Partition,
}

option! {
    /// `table.field.additional.missing`: a column of the placements that the table does not have.
    MissingColumn { Error = "error", Ignore = "ignore" }
}

option! {
    /// `table.op.invalid.behavior`: an update of an outbox row.
    InvalidOperation { Warn = "warn", Error = "error", Fatal = "fatal" }
}

/// What is traced, where OpenTelemetry is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Column that holds the span's context as Java properties.
    pub column: String,
    /// Rows without a context are not traced.
    pub column_only: bool,
}

impl Router {
    pub(super) fn read(options: &Options<'_>) -> Result<Router, ConfigError> {
        let pattern = options.pattern("route.topic.regex")?;
        let replacement = options.text("route.topic.replacement");
        let topic_replacement = pattern.replacement(&replacement).map_err(|error| {
            // The pattern may be the one that is to be mended.
            let item = options.item("route.topic.replacement").or_else(|| options.item("route.topic.regex"));
            options.refuse(
                item,
                "route.topic.replacement",
                format!("{replacement:?} fits no route.topic.regex: {error}"),
            )
        })?;
        Ok(Router {
            id: options.name("table.field.event.id"),
            key: options.name("table.field.event.key"),
            payload: options.name("table.field.event.payload"),
            timestamp: options.optional("table.field.event.timestamp"),
            schema_version: options.optional("table.field.event.schema.version"),
            placements: options.optional("table.fields.additional.placement").map_or(Vec::new(), |v| placements(&v)),
            missing: MissingColumn::parse(&options.text("table.field.additional.missing"))
                .unwrap_or(MissingColumn::Error),
            invalid_operation: InvalidOperation::parse(&options.text("table.op.invalid.behavior"))
                .unwrap_or(InvalidOperation::Warn),
            expand_json: options.switch("table.expand.json.payload"),
            json_nulls: NullBehavior::parse(&options.text("table.json.payload.null.behavior"))
                .unwrap_or(NullBehavior::Ignore),
            field_names: NameAdjustment::parse(&options.text("field.name.adjustment.mode"))
                .unwrap_or(NameAdjustment::None),
            route_by: options.name("route.by.field"),
            topic_pattern: pattern,
            topic_replacement,
            topic_replacement_text: replacement,
            tombstone_on_empty: options.switch("route.tombstone.on.empty.payload"),
            tracing: Tracing {
                column: options.name("tracing.span.context.field"),
                column_only: options.switch("tracing.with.context.field.only"),
            },
        })
    }

    /// Whether the value is an envelope: the payload and what is placed beside it.
    pub fn has_envelope(&self) -> bool {
        self.placements.iter().any(|placement| placement.place == Placed::Envelope)
    }
}

/// Placements whose form has been checked.
fn placements(value: &str) -> Vec<Placement> {
    list::names(value)
        .filter_map(|entry| {
            let mut parts = entry.split(':').map(str::trim);
            let (column, place) = (parts.next()?, parts.next()?);
            let place = match place.to_ascii_lowercase().as_str() {
                "header" => Placed::Header,
                "envelope" => Placed::Envelope,
                "partition" => Placed::Partition,
                _ => return None,
            };
            let alias = parts.next().unwrap_or(column);
            Some(Placement { column: column.to_owned(), place, alias: alias.to_owned() })
        })
        .collect()
}
