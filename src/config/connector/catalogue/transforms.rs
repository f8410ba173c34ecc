//! Options of transforms and predicates, by class.

use super::{Key, own, record, void};
use crate::{
    config::connector::{
        InvalidOperation, MissingColumn,
        kind::Kind::{Boolean, Choice, Int, List, Name, Placements, Regex, Text},
    },
    debezium::{expand::NullBehavior, modes::NameAdjustment},
};

pub(super) const TRANSFORM: &[Key] = &[
    record("type", Name, None),
    record("predicate", Name, None),
    record("negate", Boolean, Some("false")),
    void("plugin.version", Text, None, "walpost has no plugins"),
];

pub(super) const PREDICATE: &[Key] =
    &[record("type", Name, None), void("plugin.version", Text, None, "walpost has no plugins")];

const EVENT_ROUTER: &[Key] = &[
    record("table.field.event.id", Name, Some("id")),
    record("table.field.event.key", Name, Some("aggregateid")),
    own("table.field.event.type", Name, Some("type"), "columns.event_type"),
    record("table.field.event.payload", Name, Some("payload")),
    record("table.field.event.timestamp", Name, None),
    record("table.field.event.schema.version", Name, None),
    record("table.fields.additional.placement", Placements, None),
    record("table.field.additional.missing", Choice(MissingColumn::NAMES), Some("error")),
    record("table.op.invalid.behavior", Choice(InvalidOperation::NAMES), Some("warn")),
    record("table.expand.json.payload", Boolean, Some("false")),
    record("table.json.payload.null.behavior", Choice(NullBehavior::NAMES), Some("ignore")),
    record("route.by.field", Name, Some("aggregatetype")),
    record("route.topic.regex", Regex, Some("(?<routedByValue>.*)")),
    record("route.topic.replacement", Text, Some("outbox.event.${routedByValue}")),
    record("route.tombstone.on.empty.payload", Boolean, Some("false")),
    record("field.name.adjustment.mode", Choice(NameAdjustment::NAMES), Some("none")),
    record("tracing.span.context.field", Name, Some("tracingspancontext")),
    void("tracing.operation.name", Name, Some("debezium-read"), "walpost hands spans on and exports none"),
    record("tracing.with.context.field.only", Boolean, Some("true")),
    // Options that later or earlier versions have. 3.6.1 reads neither.
    void("table.json.payload.empty.array.behavior", Text, None, "3.6.1 does not have it, and leaves empty arrays out"),
    void("route.topic.tombstone.on.empty.payload", Text, None, "it is route.tombstone.on.empty.payload"),
    void("debezium.op.invalid.behavior", Text, None, "it is table.op.invalid.behavior"),
    void("table.field.event.payload.id", Text, None, "the key is table.field.event.key"),
    void("schema.name.adjustment.mode", Text, None, "the event router does not read it"),
];

const DECODE_MESSAGE: &[Key] = &[record("fields.null.include", Boolean, Some("false"))];

const LOGICAL_TABLE_ROUTER: &[Key] = &[
    record("topic.regex", Regex, None),
    record("topic.replacement", Text, None),
    record("key.enforce.uniqueness", Boolean, Some("true")),
    record("key.field.regex", Regex, None),
    record("key.field.name", Name, Some("__dbz__physicalTableIdentifier")),
    record("key.field.replacement", Text, None),
    record("schema.name.adjustment.mode", Choice(NameAdjustment::NAMES), Some("none")),
    void("logical.table.cache.size", Int(0), Some("16"), "names are made anew"),
];

const REPLACE_NULL: Key = record("replace.null.with.default", Boolean, Some("true"));

const REGEX_ROUTER: &[Key] = &[record("regex", Regex, None), record("replacement", Text, None)];
const NOTHING: &[Key] = &[];
const CAST: &[Key] = &[record("spec", List, None), REPLACE_NULL];
const DROP_HEADERS: &[Key] = &[record("headers", List, None)];
const FIELD: &[Key] = &[record("field", Text, None), REPLACE_NULL];
const FLATTEN: &[Key] = &[record("delimiter", Text, Some("."))];
const HEADER_FROM: &[Key] = &[
    record("fields", List, None),
    record("headers", List, None),
    record("operation", Choice(&["move", "copy"]), None),
    REPLACE_NULL,
];
const INSERT_FIELD: &[Key] = &[
    record("topic.field", Text, None),
    record("partition.field", Text, None),
    record("offset.field", Text, None),
    record("timestamp.field", Text, None),
    record("static.field", Text, None),
    record("static.value", Text, None),
    REPLACE_NULL,
];
const INSERT_HEADER: &[Key] = &[record("header", Name, None), record("value.literal", Text, None)];
const MASK_FIELD: &[Key] = &[record("fields", List, None), record("replacement", Text, None), REPLACE_NULL];
const REPLACE_FIELD: &[Key] =
    &[record("exclude", List, None), record("include", List, None), record("renames", List, None), REPLACE_NULL];
const SET_SCHEMA: &[Key] =
    &[record("schema.name", Text, None), record("schema.version", Int(i32::MIN as i64), None), REPLACE_NULL];
const TIMESTAMP_CONVERTER: &[Key] = &[
    record("field", Text, None),
    record("target.type", Text, None),
    record("format", Text, None),
    record("unix.precision", Text, Some("milliseconds")),
    REPLACE_NULL,
];
const TIMESTAMP_ROUTER: &[Key] =
    &[record("topic.format", Text, Some("${topic}-${timestamp}")), record("timestamp.format", Text, Some("yyyyMMdd"))];
const VALUE_TO_KEY: &[Key] = &[record("fields", List, None), REPLACE_NULL];

const TOPIC_NAME_MATCHES: &[Key] = &[record("pattern", Regex, None)];
const HAS_HEADER_KEY: &[Key] = &[record("name", Name, None)];

const KAFKA: &str = "org.apache.kafka.connect.transforms.";
const DEBEZIUM: &str = "io.debezium.transforms.";
const POSTGRES: &str = "io.debezium.connector.postgresql.transforms.";

/// The name of a class without the package that it is known in; `$Key` and `$Value` stay.
pub(in crate::config::connector) fn without_package(class: &str) -> &str {
    let predicates = "org.apache.kafka.connect.transforms.predicates.";
    [predicates, KAFKA, "io.debezium.transforms.outbox.", "io.debezium.transforms.tracing.", DEBEZIUM, POSTGRES]
        .iter()
        .find_map(|package| class.strip_prefix(package))
        .unwrap_or(class)
}

/// The options of a class of transforms; none for a class that is unknown.
pub(super) fn of_transform(class: &str) -> Option<&'static [Key]> {
    let short = without_package(class);
    Some(match short.strip_suffix("$Key").or_else(|| short.strip_suffix("$Value")).unwrap_or(short) {
        "EventRouter" => EVENT_ROUTER,
        "DecodeLogicalDecodingMessageContent" => DECODE_MESSAGE,
        "ByLogicalTableRouter" => LOGICAL_TABLE_ROUTER,
        "RegexRouter" => REGEX_ROUTER,
        "Filter" if short != class && class.starts_with(KAFKA) => NOTHING,
        "Cast" => CAST,
        "DropHeaders" => DROP_HEADERS,
        "ExtractField" | "HoistField" => FIELD,
        "Flatten" => FLATTEN,
        "HeaderFrom" => HEADER_FROM,
        "InsertField" => INSERT_FIELD,
        "InsertHeader" => INSERT_HEADER,
        "MaskField" => MASK_FIELD,
        "ReplaceField" => REPLACE_FIELD,
        "SetSchemaMetadata" => SET_SCHEMA,
        "TimestampConverter" => TIMESTAMP_CONVERTER,
        "TimestampRouter" => TIMESTAMP_ROUTER,
        "ValueToKey" => VALUE_TO_KEY,
        _ => return None,
    })
}

pub(super) fn of_predicate(class: &str) -> Option<&'static [Key]> {
    Some(match without_package(class) {
        "TopicNameMatches" => TOPIC_NAME_MATCHES,
        "HasHeaderKey" => HAS_HEADER_KEY,
        "RecordIsTombstone" => NOTHING,
        _ => return None,
    })
}

/// Whether a class of transforms is one that walpost does not carry out.
pub(in crate::config::connector) fn is_foreign(class: &str) -> bool {
    !matches!(without_package(class), "EventRouter" | "DecodeLogicalDecodingMessageContent")
}
