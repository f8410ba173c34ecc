//! Reading the configuration file: from TOML to paths and values, none of them unknown.
//!
//! TOML's own reports quote the line, which may hold a password: only place and reason are taken from them.

use std::{io, path::Path};

use toml::{Table, Value};

use super::{
    error::{ConfigError, Origin, Place},
    kafka,
    keys::{COLUMNS, KEYS, Key, Kind},
    suggest,
};

/// Paths and their values.
type Items = Vec<(String, Value)>;

/// The keys of a file that holds these bytes, flat, `[[outbox]]` as a list of tables.
pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Items, ConfigError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let source = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        ConfigError::Read { path: path.to_owned(), source }
    })?;
    let table = toml::from_str(&text).map_err(|error| syntax(path, &text, &error))?;
    Reader { origin: Origin::File(path.to_owned()) }.top_level(table)
}

fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    ConfigError::Syntax {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        problem: error.message().to_owned(),
    }
}

struct Reader {
    origin: Origin,
}

/// What a table of the file is: the file itself, or one of its `[[outbox]]` tables.
#[derive(Clone, Copy)]
enum Within {
    File,
    Outbox(usize),
}

impl Within {
    /// A path as people see it in messages.
    fn shown(self, path: &str) -> String {
        match self {
            Within::File => path.to_owned(),
            Within::Outbox(index) => format!("outbox[{index}].{path}"),
        }
    }
}

impl Reader {
    fn top_level(&self, table: Table) -> Result<Items, ConfigError> {
        let mut items = Vec::new();
        self.flatten(Within::File, "", table, &mut items)?;
        Ok(items)
    }

    fn flatten(&self, within: Within, section: &str, table: Table, items: &mut Items) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = join(section, &name);
            match (Key::find(&path), value) {
                (Some(key), _) if matches!(within, Within::Outbox(_)) && !key.per_outbox => {
                    let problem = format!("this holds for the whole process; write {path} above the [[outbox]] tables");
                    return Err(self.refuse(within.shown(&path), problem));
                }
                (Some(Key { kind: Kind::Columns, .. }), Value::Table(parts)) => self.columns(within, parts, items)?,
                (Some(Key { kind: Kind::Properties, .. }), Value::Table(table)) => {
                    self.properties(&path, "", table, items)?;
                }
                (Some(Key { kind: Kind::Outboxes, .. }), outboxes) => items.push((path, self.outboxes(outboxes)?)),
                (Some(key), value) if !key.kind.is_section() => items.push((path, value)),
                (None, Value::Table(members)) if is_section(&path) => self.flatten(within, &path, members, items)?,
                (key, _) if key.is_some() || is_section(&path) => {
                    let problem = format!("this is a section; write [{path}] and a line for each member");
                    return Err(self.refuse(within.shown(&path), problem));
                }
                (_, _) => return Err(self.unknown(within.shown(&path), &path, KEYS.iter().map(|key| key.path))),
            }
        }
        Ok(())
    }

    fn columns(&self, within: Within, parts: Table, items: &mut Items) -> Result<(), ConfigError> {
        for (part, column) in parts {
            let path = join("columns", &part);
            if !COLUMNS.contains(&part.as_str()) {
                return Err(self.unknown(within.shown(&path), &part, COLUMNS.iter().copied()));
            }
            items.push((path, column));
        }
        Ok(())
    }

    /// These names have dots, which TOML without quotes takes for tables in tables: both are right.
    fn properties(&self, section: &str, prefix: &str, table: Table, items: &mut Items) -> Result<(), ConfigError> {
        for (name, value) in table {
            let name = join(prefix, &name);
            let path = join(section, &if section == "kafka" { kafka::canonical(&name) } else { name.clone() });
            match value {
                Value::Table(deeper) => self.properties(section, &name, deeper, items)?,
                Value::Array(_) | Value::Datetime(_) => {
                    let whose = if section == "kafka" { "librdkafka takes it" } else { "the connector has it" };
                    return Err(self.refuse(path, format!("write the value in double quotes, as {whose}")));
                }
                Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => {
                    if items.iter().any(|(given, _)| *given == path) {
                        return Err(self.refuse(path, "this is given twice, by one name or by two"));
                    }
                    items.push((path, value));
                }
            }
        }
        Ok(())
    }

    fn outboxes(&self, value: Value) -> Result<Value, ConfigError> {
        let no_list = || self.refuse("outbox", "write each outbox as a table of its own, [[outbox]]");
        let Value::Array(outboxes) = value else { return Err(no_list()) };
        let mut tables = Vec::with_capacity(outboxes.len());
        for (index, outbox) in outboxes.into_iter().enumerate() {
            let Value::Table(outbox) = outbox else { return Err(no_list()) };
            let mut items = Vec::new();
            self.flatten(Within::Outbox(index), "", outbox, &mut items)?;
            let mut table = Table::new();
            for (path, value) in items {
                insert_missing(&mut table, &path, value);
            }
            tables.push(Value::Table(table));
        }
        Ok(Value::Array(tables))
    }

    fn refuse(&self, path: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        let place = Place { origin: self.origin.clone(), path: path.into() };
        ConfigError::Value { place, problem: problem.into() }
    }

    fn unknown(&self, shown: String, typed: &str, known: impl Iterator<Item = &'static str>) -> ConfigError {
        let nearest = suggest::nearest(typed, known).map(str::to_owned);
        ConfigError::UnknownKey { origin: self.origin.clone(), name: shown, nearest }
    }
}

/// A path one step deeper.
fn join(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

/// Whether keys lie below this path.
fn is_section(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// Puts a value at its path, unless there is one. A path's first dot ends its section; those behind it are
/// librdkafka's.
pub(super) fn insert_missing(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.entry(path).or_insert(value);
        }
        Some((section, member)) => {
            if let Value::Table(section) = table.entry(section).or_insert_with(|| Value::Table(Table::new())) {
                section.entry(member).or_insert(value);
            }
        }
    }
}
