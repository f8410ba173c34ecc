//! A connector's keys as anyone may see them.

use std::collections::BTreeMap;

use super::{
    Import,
    catalogue::{Found, Scopes},
    judge::Classes,
    kind::Kind,
};
use crate::config::kafka;

/// What stands for a secret, as Kafka prints one.
const HIDDEN: &str = "[hidden]";

impl Import {
    /// The connector's keys as its file has them: what is looked up elsewhere is the reference, and a secret is hidden.
    pub(in crate::config) fn shown(&self) -> BTreeMap<String, String> {
        let classes = Classes::of(&self.given);
        let scopes = classes.scopes();
        let keys = self.given.connector.iter().map(|(name, item)| {
            let value = match &item.reference {
                Some(reference) => reference.as_str(),
                None if is_secret(name, &scopes) => HIDDEN,
                None => &item.value,
            };
            (name.clone(), value.to_owned())
        });
        keys.collect()
    }
}

/// Keys of `[debezium]`.
pub(in crate::config) fn section(keys: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let shown = |value: &str, name: &str| if is_named_so(name) { HIDDEN.to_owned() } else { value.to_owned() };
    keys.iter().map(|(name, value)| (name.clone(), shown(value, name))).collect()
}

fn is_secret(name: &str, scopes: &Scopes<'_>) -> bool {
    matches!(scopes.find(name), Found::Key(key) if key.kind == Kind::Secret) || is_named_so(name)
}

/// Of keys that are in no table the name has to tell.
fn is_named_so(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = ["token", "credential", "user.info", "api.key", "apikey", "access.key", "keystore.key"];
    kafka::is_secret(&name) || words.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_secrets() {
        for name in [
            "producer.override.sasl.jaas.config",
            "database.password",
            "value.converter.basic.auth.user.info",
            "value.converter.schema.registry.Token",
            "consumer.override.ssl.keystore.key",
        ] {
            assert!(is_named_so(name), "{name}");
        }
        for name in ["database.user", "topic.prefix", "transforms.outbox.table.field.event.key"] {
            assert!(!is_named_so(name), "{name}");
        }
    }
}
