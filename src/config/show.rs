//! The settings as people may see them: complete, with origins, without secrets.

use std::fmt::Write;

use toml::{Table, Value};

use super::{
    Config, Settings,
    error::Origin,
    file::insert_missing,
    kafka,
    keys::{KEYS, Key, Kind},
    settings::Entry,
};
use crate::printable::address;

/// What stands for a secret; a password in the connection string hides itself.
const HIDDEN: &str = "***";

/// Column of the comments, where the line is shorter.
pub(super) const COMMENT_AT: usize = 48;

impl Settings {
    /// A configuration file that means the same, each line with its origin. `config` is what the settings came to: it
    /// has the connection string taken apart, with PostgreSQL's own variables in it.
    pub fn to_toml(&self, config: &Config) -> String {
        let mut text = String::new();
        let mut section = "";
        for key in KEYS {
            if key.kind == Kind::Outboxes {
                continue;
            }
            let own = match (key.kind.is_section(), key.path.split_once('.')) {
                (true, _) => key.path,
                (false, Some((section, _))) => section,
                (false, None) => "",
            };
            if own != section {
                section = own;
                push(&mut text, format_args!("\n[{section}]\n"));
            }
            let name = key.path.strip_prefix(section).map_or(key.path, |name| name.trim_start_matches('.'));
            if key.kind.is_section() {
                for (member, path, entry) in self.members(key.path) {
                    push_entry(&mut text, &quoted(member), &shown(path, &entry.value, config), &entry.origin);
                }
            } else if let Some(entry) = self.entries.get(key.path) {
                push_entry(&mut text, name, &shown(key.path, &entry.value, config), &entry.origin);
            } else {
                push(&mut text, format_args!("# {name} is not set\n"));
            }
        }
        if let Some(entry) = self.entries.get("outbox") {
            for outbox in self.outboxes() {
                push_outbox(&mut text, outbox, &entry.origin);
            }
        }
        text
    }

    /// The same as JSON, without the origins.
    pub fn to_json(&self, config: &Config) -> serde_json::Result<String> {
        let mut table = Table::new();
        for (path, entry) in &self.entries {
            insert_missing(&mut table, path, shown(path, &entry.value, config));
        }
        serde_json::to_string_pretty(&table)
    }

    pub(super) fn members(&self, section: &str) -> impl Iterator<Item = (&str, &str, &Entry)> {
        self.entries.iter().filter_map(move |(path, entry)| {
            let member = path.strip_prefix(section)?.strip_prefix('.')?;
            Some((member, path.as_str(), entry))
        })
    }
}

fn push_entry(text: &mut String, name: &str, value: &Value, origin: &Origin) {
    let line = format!("{name} = {value}");
    push(text, format_args!("{line:<COMMENT_AT$} # {origin}\n"));
}

fn push_outbox(text: &mut String, outbox: &Value, origin: &Origin) {
    push(text, format_args!("\n{:<COMMENT_AT$} # {origin}\n", "[[outbox]]"));
    for (name, value) in outbox.as_table().into_iter().flatten() {
        let value = match name.as_str() {
            "webhook" => within_webhook(value),
            _ => value.clone(),
        };
        push(text, format_args!("{} = {value}\n", quoted(name)));
    }
}

/// What an outbox has of its own in `webhook`: its URL.
fn within_webhook(value: &Value) -> Value {
    let members = value.as_table().into_iter().flatten();
    let hidden = |(name, value): (&String, &Value)| (name.clone(), value.as_str().map_or(value.clone(), of_url));
    Value::Table(members.map(hidden).collect())
}

fn of_url(url: &str) -> Value {
    Value::from(address(url).as_ref())
}

fn shown(path: &str, value: &Value, config: &Config) -> Value {
    if path == "outbox" {
        let mut outboxes = value.clone();
        for outbox in outboxes.as_array_mut().into_iter().flatten().filter_map(Value::as_table_mut) {
            if let Some(webhook) = outbox.get_mut("webhook") {
                *webhook = within_webhook(webhook);
            }
        }
        outboxes
    } else if path == "webhook.url" || path.starts_with("webhook_urls.") {
        value.as_str().map_or(value.clone(), of_url)
    } else if path == "database_url" {
        Value::from(config.database.to_string())
    } else if let ("rabbitmq.url", Some(rabbitmq)) = (path, &config.rabbitmq) {
        Value::from(rabbitmq.shown())
    } else if path.strip_prefix("kafka.").is_some_and(kafka::is_secret)
        || Key::find(path).is_some_and(|key| key.kind == Kind::Secret)
    {
        Value::from(HIDDEN)
    } else {
        value.clone()
    }
}

/// A name that TOML takes as one, dots and all.
pub(super) fn quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(bare) { name.to_owned() } else { Value::from(name).to_string() }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a String takes any text");
}
