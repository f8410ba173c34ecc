//! `message_prefix`: an outbox that has no table, whose events are logical messages with this prefix.

use std::collections::BTreeSet;

use toml::Value;

use super::{ConfigError, Settings, error::Origin, settings::find, sink::Addresses, typed::Outbox};
use crate::{
    pipeline::{
        outbox::{self, Address, AfterPublish},
        source_of,
        template::Template,
    },
    postgres::conninfo::ConnInfo,
};

pub(super) const KEY: &str = "message_prefix";

/// Keys that say something of a table, and what to know of messages there.
const OF_TABLES: [(&str, &str); 5] = [
    ("table", "an outbox is a table or messages; leave out table or message_prefix, or write an [[outbox]] for each"),
    ("columns", "the members of a message have walpost's own names; leave columns out"),
    ("preset", "the members of a message have walpost's own names; leave preset out"),
    ("order_by", "messages are in no table that could be read in an order; leave order_by out"),
    ("after_publish", "a message leaves no row to mark or to delete; leave after_publish out"),
];
const FORMAT: &str = "messages in Debezium's format are its connector's (its transform DecodeLogicalDecodingMessageContent); \
                      leave message_prefix out, or write format = \"native\"";

impl Settings {
    /// Refuses what cannot stand beside a prefix, and gives the table's default up for it.
    pub(super) fn settle_messages(&mut self) -> Result<(), ConfigError> {
        for (index, own) in self.outboxes().iter().enumerate() {
            if own.get(KEY).is_some() {
                self.refuse_of_tables(|key| {
                    find(own, key).map(|value| (format!("outbox[{index}].{key}"), value.as_str() == Some("debezium")))
                })?;
            }
        }
        let is_connectors = self.entries.get("format").is_some_and(|entry| entry.value.as_str() == Some("debezium"));
        if is_connectors && !self.outboxes().is_empty() && self.outboxes().iter().all(is_messages) {
            let problem = "no [[outbox]] is the connector's; write one for each of its tables";
            return Err(self.refuse("format", problem));
        }
        let Some(prefix) = self.entries.get(KEY) else { return Ok(()) };
        if self.entries.contains_key("outbox") {
            let problem = "with [[outbox]] tables each may have a message_prefix of its own; leave this one out";
            return Err(ConfigError::Value { place: self.place(KEY), problem: problem.to_owned() });
        }
        if prefix.value.as_str().is_some_and(str::is_empty) {
            return Err(self.refuse(KEY, "this is empty; leave it out or give it a value"));
        }
        self.refuse_of_tables(|key| {
            let is_of = |path: &str| path == key || path.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
            let (path, entry) =
                self.entries.iter().find(|(path, entry)| is_of(path) && entry.origin != Origin::Default)?;
            Some((path.clone(), entry.value.as_str() == Some("debezium")))
        })?;
        self.entries.remove("table");
        Ok(())
    }

    /// `given`: the path of a key that is given, and whether its value is "debezium".
    fn refuse_of_tables(&self, given: impl Fn(&str) -> Option<(String, bool)>) -> Result<(), ConfigError> {
        for (key, problem) in OF_TABLES {
            if let Some((path, _)) = given(key) {
                return Err(self.refuse(&path, problem));
            }
        }
        match given("format") {
            Some((path, true)) => Err(self.refuse(&path, FORMAT)),
            Some(_) | None => Ok(()),
        }
    }

    /// Those outboxes that are messages; the others are left. No prefix is there twice.
    pub(super) fn messages(
        &self,
        outboxes: &[Outbox],
        database: &ConnInfo,
        addresses: &Addresses,
    ) -> Result<Vec<outbox::Outbox>, ConfigError> {
        let mut seen = BTreeSet::new();
        let mut messages = Vec::new();
        for (index, outbox) in outboxes.iter().enumerate() {
            let Some(prefix) = &outbox.message_prefix else { continue };
            if !seen.insert(prefix) {
                let problem = "another [[outbox]] has this prefix already";
                return Err(self.refuse(&format!("outbox[{index}].{KEY}"), problem));
            }
            let (address, topic) = addresses.address(outbox, self, &format!("outbox[{index}]"))?;
            messages.push(outbox.resolve_messages(prefix, database, address, topic));
        }
        Ok(messages)
    }
}

/// Whether an `[[outbox]]` is messages.
pub(super) fn is_messages(own: &Value) -> bool {
    own.get(KEY).is_some()
}

impl Outbox {
    fn resolve_messages(&self, prefix: &str, database: &ConnInfo, address: Address, topic: Template) -> outbox::Outbox {
        let name = source_of(prefix);
        outbox::Outbox {
            format: self.format(&name, database),
            name,
            columns: super::preset::ColumnNames::default().over(super::preset::Preset::Walpost),
            topic,
            address,
            timestamp: self.record.timestamp,
            order_by: Vec::new(),
            after_publish: AfterPublish::Keep,
        }
    }
}
