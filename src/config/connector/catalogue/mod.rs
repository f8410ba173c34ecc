//! Every key that a connector's files may have, in tables: what its value is, what holds without it, and what becomes of
//! it here.
//!
//! Debezium's PostgreSQL connector 3.6.1, Kafka Connect 4.1's source connectors, workers and converters, the transforms
//! and predicates that both bring, and Debezium Server. A name that is in no table is unknown, and the nearest known one
//! is found.

mod connect;
mod postgres;
mod producer;
mod transforms;

use std::collections::BTreeMap;

pub(super) use self::producer::{As, PRODUCER};
use super::kind::Kind;
use crate::config::suggest;

/// One key.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// What holds when nobody gives it.
    pub default: Option<&'static str>,
    pub meaning: Meaning,
}

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It decides records or which rows become some, and holds as it is.
    Record,
    /// It is said by settings of walpost's own, these.
    Own(&'static str),
    /// Nothing here depends on it, because of this.
    Void(&'static str),
    /// Only these values mean the same here; others are refused, because of this.
    Only(&'static [&'static str], &'static str),
}

/// What is known of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is in a table.
    Key(&'static Key),
    /// It is one of many with the same beginning, whose values are their owner's.
    Open(Meaning),
    Unknown {
        nearest: Option<String>,
    },
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Key {}

const fn record(name: &'static str, kind: Kind, default: Option<&'static str>) -> Key {
    Key { name, kind, default, meaning: Meaning::Record }
}

const fn own(name: &'static str, kind: Kind, default: Option<&'static str>, setting: &'static str) -> Key {
    Key { name, kind, default, meaning: Meaning::Own(setting) }
}

const fn void(name: &'static str, kind: Kind, default: Option<&'static str>, why: &'static str) -> Key {
    Key { name, kind, default, meaning: Meaning::Void(why) }
}

/// A key of which only the default means the same, and what is given beside it.
const fn only(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    same: &'static [&'static str],
    why: &'static str,
) -> Key {
    Key { name, kind, default, meaning: Meaning::Only(same, why) }
}

/// The classes that decide which options there are.
pub(super) struct Scopes<'a> {
    /// By the name of the transform or predicate.
    pub(super) transforms: BTreeMap<&'a str, &'a str>,
    pub(super) predicates: BTreeMap<&'a str, &'a str>,
}

impl Scopes<'_> {
    /// What is known of a name, its aliases written out.
    pub(super) fn find(&self, name: &str) -> Found {
        let tables = [postgres::POSTGRES, connect::SOURCE, connect::WORKER];
        if let Some(key) = find_in(&tables, name) {
            return Found::Key(key);
        }
        if let Some(found) = self.member(name) {
            return found;
        }
        if let Some((_, meaning)) = OPEN.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            return Found::Open(*meaning);
        }
        if postgres::is_column_rewrite(name) {
            return Found::Open(Meaning::Only(&[], "it changes values of columns, which walpost does not"));
        }
        // A worker's own clients; the producer goes by them where it has no other.
        if producer::find(name).is_some() {
            return Found::Open(Meaning::Own("kafka"));
        }
        let renamed = postgres::RENAMED.iter().find(|(past, _)| *past == name).map(|(_, now)| *now);
        let known = tables.iter().copied().flatten().map(|key| key.name);
        Found::Unknown { nearest: renamed.or_else(|| suggest::nearest(name, known)).map(str::to_owned) }
    }

    /// A name behind a prefix that has tables of its own.
    fn member(&self, name: &str) -> Option<Found> {
        for (prefix, classes, common, by_class) in [
            ("transforms.", &self.transforms, transforms::TRANSFORM, transforms::of_transform as Table),
            ("predicates.", &self.predicates, transforms::PREDICATE, transforms::of_predicate as Table),
        ] {
            let Some(rest) = name.strip_prefix(prefix) else { continue };
            // The names of transforms may have dots.
            let declared =
                classes.keys().filter(|alias| rest.strip_prefix(**alias).is_some_and(|r| r.starts_with('.')));
            let Some(alias) = declared.max_by_key(|alias| alias.len()) else {
                let (alias, option) = rest.split_once('.').unwrap_or((rest, ""));
                let near =
                    suggest::nearest(alias, classes.keys().copied()).map(|near| format!("{prefix}{near}.{option}"));
                return Some(Found::Unknown { nearest: near });
            };
            let option = &rest[alias.len() + 1..];
            return Some(match by_class(classes[alias]) {
                Some(table) => within(&[common, table], &format!("{prefix}{alias}."), option),
                // The class itself is judged: where it is not refused, its condition keeps it from what matters.
                None => match find_in(&[common], option) {
                    Some(key) => Found::Key(key),
                    None => Found::Open(Meaning::Void("its class is judged as a whole")),
                },
            });
        }
        for converter in ["key.converter.", "value.converter.", "header.converter."] {
            let Some(option) = name.strip_prefix(converter) else { continue };
            let option = option.strip_prefix("delegate.converter.type.").unwrap_or(option);
            return Some(within(&[connect::CONVERTER], converter, option));
        }
        for prefix in ["producer.override.", "producer."] {
            let Some(option) = name.strip_prefix(prefix) else { continue };
            return Some(match producer::find(option) {
                Some(_) => Found::Open(Meaning::Own("kafka")),
                None => {
                    let near = suggest::nearest(option, PRODUCER.iter().map(|(name, _)| *name));
                    Found::Unknown { nearest: near.map(|near| format!("{prefix}{near}")) }
                }
            });
        }
        let group = name.strip_prefix("topic.creation.")?;
        let (_, option) = group.split_once('.')?;
        Some(match find_in(&[connect::TOPIC_CREATION], option) {
            Some(key) => Found::Key(key),
            // Settings of the topic itself, which the broker judges.
            None => Found::Open(Meaning::Record),
        })
    }
}

type Table = fn(&str) -> Option<&'static [Key]>;

/// The default of a key of the connector, its converters aside.
pub(super) fn default_of(name: &str) -> Option<&'static str> {
    find_in(&[postgres::POSTGRES, connect::SOURCE, connect::WORKER], name).and_then(|key| key.default)
}

/// The default of an option of a class of transforms.
pub(super) fn default_of_option(class: &str, option: &str) -> Option<&'static str> {
    let table = transforms::of_transform(class).or_else(|| transforms::of_predicate(class))?;
    find_in(&[table, transforms::TRANSFORM], option).and_then(|key| key.default)
}

pub(super) use self::transforms::{is_foreign, without_package};

fn find_in(tables: &[&'static [Key]], name: &str) -> Option<&'static Key> {
    tables.iter().copied().flatten().find(|key| key.name == name)
}

fn within(tables: &[&'static [Key]], prefix: &str, option: &str) -> Found {
    match find_in(tables, option) {
        Some(key) => Found::Key(key),
        None => {
            let near = suggest::nearest(option, tables.iter().copied().flatten().map(|key| key.name));
            Found::Unknown { nearest: near.map(|near| format!("{prefix}{near}")) }
        }
    }
}

/// Beginnings of names that have no table: what stands behind is their owner's.
const OPEN: &[(&str, Meaning)] = &[
    ("consumer.", Meaning::Void("walpost consumes nothing of the connector's")),
    ("admin.", Meaning::Void("[kafka] holds for all that walpost does in Kafka")),
    ("driver.", Meaning::Void("these are settings of the JDBC driver; database_url takes libpq's")),
    ("database.driver.", Meaning::Void("these are settings of the JDBC driver; database_url takes libpq's")),
    ("internal.", Meaning::Void("internal to Debezium")),
    ("signal.consumer.", Meaning::Void("walpost reads no signals")),
    ("notification.", Meaning::Void("walpost sends no notifications")),
    ("offset.storage.", Meaning::Void("the slot is the state")),
    ("config.storage.", Meaning::Void("there is no worker")),
    ("status.storage.", Meaning::Void("there is no worker")),
    ("config.providers.", Meaning::Void("read where the values are")),
    ("schema.history.internal", Meaning::Void("PostgreSQL's stream carries its schemas")),
    ("rest.", Meaning::Void("there is no worker")),
    ("listeners.", Meaning::Void("there is no worker")),
    ("metrics.context.", Meaning::Void("walpost has metrics of its own")),
    ("quarkus.", Meaning::Void("settings of Debezium Server's frame")),
    ("snapshot.select.statement.overrides.", Meaning::Only(&[], "walpost reads whole tables in snapshots")),
];

#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
