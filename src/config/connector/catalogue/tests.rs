use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn scopes() -> Scopes<'static> {
    Scopes {
        transforms: BTreeMap::from([
            ("outbox", "io.debezium.transforms.outbox.EventRouter"),
            ("decode", "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"),
            ("own", "com.example.Transform"),
        ]),
        predicates: BTreeMap::from([("isOutbox", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches")]),
    }
}

#[test]
fn names_are_unique_and_defaults_are_allowed() {
    let tables = [postgres::POSTGRES, connect::SOURCE, connect::WORKER];
    let keys: Vec<_> = tables.into_iter().flatten().collect();
    assert_eq!(keys.iter().map(|key| key.name).collect::<BTreeSet<_>>().len(), keys.len());
    for key in keys {
        if let Some(default) = key.default {
            assert_eq!(key.kind.check(default), Ok(()), "{}", key.name);
        }
    }
    let names: BTreeSet<_> = PRODUCER.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), PRODUCER.len());
}

#[test]
fn unknown_keys_have_their_nearest() {
    for (name, nearest) in [
        ("table.include.lst", Some("table.include.list")),
        ("slot.nam", Some("slot.name")),
        ("database.server.name", Some("topic.prefix")),
        ("table.whitelist", Some("table.include.list")),
        ("transforms.outbox.route.topic.replacment", Some("transforms.outbox.route.topic.replacement")),
        ("transforms.outbx.route.by.field", Some("transforms.outbox.route.by.field")),
        ("key.converter.schema.enable", Some("key.converter.schemas.enable")),
        ("producer.override.lingr.ms", Some("producer.override.linger.ms")),
        ("transforms.outbox.nonsense", None),
        ("nonsense", None),
    ] {
        assert_eq!(scopes().find(name), Found::Unknown { nearest: nearest.map(str::to_owned) }, "{name}");
    }
}

#[test]
fn members_are_known_by_their_owners() {
    for name in [
        "transforms.outbox.type",
        "transforms.outbox.table.field.event.key",
        "transforms.decode.fields.null.include",
        "predicates.isOutbox.pattern",
        "value.converter.delegate.converter.type.schemas.enable",
        "topic.creation.default.partitions",
    ] {
        assert!(matches!(scopes().find(name), Found::Key(_)), "{name}");
    }
    for name in [
        "transforms.own.anything",
        "producer.override.linger.ms",
        "producer.security.protocol",
        "topic.creation.default.cleanup.policy",
        "column.mask.with.10.chars",
        "column.mask.hash.v2.SHA-256.with.salt.abc",
        "driver.socketTimeout",
        "sasl.mechanism",
        "quarkus.http.port",
    ] {
        assert!(matches!(scopes().find(name), Found::Open(_)), "{name}");
    }
}
