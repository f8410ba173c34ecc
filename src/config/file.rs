//! Reading the configuration file: from TOML to paths and values, none of them unknown.
//!
//! TOML's own reports quote the line, which may hold a password: only place and reason are taken from them.

use std::path::Path;

use toml::{Table, Value};

use super::{
    error::{ConfigError, Origin, Place},
    kafka,
    keys::{COLUMNS, KEYS, Key, Kind},
    suggest,
};

/// The keys of a file, flat, `[[outbox]]` as a list of tables.
pub(super) fn read(path: &Path) -> Result<Vec<(String, Value)>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return Err(ConfigError::Json { path: path.to_owned() });
    }
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
    fn top_level(&self, table: Table) -> Result<Vec<(String, Value)>, ConfigError> {
        let mut items = Vec::new();
        self.flatten(Within::File, "", table, &mut items)?;
        Ok(items)
    }

    fn flatten(
        &self,
        within: Within,
        section: &str,
        table: Table,
        items: &mut Vec<(String, Value)>,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = if section.is_empty() { name } else { format!("{section}.{name}") };
            match (Key::find(&path), value) {
                (Some(key), _) if matches!(within, Within::Outbox(_)) && !key.per_outbox => {
                    let problem = format!("this holds for the whole process; write {path} above the [[outbox]] tables");
                    return Err(self.refuse(&within.shown(&path), problem));
                }
                (Some(Key { kind: Kind::Columns, .. }), Value::Table(parts)) => {
                    for (part, column) in parts {
                        let path = format!("{path}.{part}");
                        if !COLUMNS.contains(&part.as_str()) {
                            let nearest = suggest::nearest(&part, COLUMNS.iter().copied());
                            return Err(self.unknown(within.shown(&path), nearest));
                        }
                        items.push((path, column));
                    }
                }
                (Some(Key { kind: Kind::Properties, .. }), Value::Table(properties)) => {
                    self.properties(&path, properties, items)?;
                }
                (Some(Key { kind: Kind::Outboxes, .. }), outboxes) => items.push((path, self.outboxes(outboxes)?)),
                (Some(key), _) if key.kind.is_section() => {
                    let problem = format!("this is a section; write [{path}] and a line for each member");
                    return Err(self.refuse(&within.shown(&path), problem));
                }
                (Some(_), value) => items.push((path, value)),
                (None, Value::Table(members)) if is_section(&path) => self.flatten(within, &path, members, items)?,
                (None, _) if is_section(&path) => {
                    let problem = format!("this is a section; write [{path}] and a line for each member");
                    return Err(self.refuse(&within.shown(&path), problem));
                }
                (None, _) => {
                    let nearest = suggest::nearest(&path, KEYS.iter().map(|key| key.path));
                    return Err(self.unknown(within.shown(&path), nearest));
                }
            }
        }
        Ok(())
    }

    /// librdkafka's names have dots, which TOML without quotes takes for tables in tables: both are right.
    fn properties(&self, path: &str, table: Table, items: &mut Vec<(String, Value)>) -> Result<(), ConfigError> {
        for (name, value) in table {
            let path = format!("{path}.{name}");
            match value {
                Value::Table(deeper) => self.properties(&path, deeper, items)?,
                Value::Array(_) | Value::Datetime(_) => {
                    return Err(
                        self.refuse(&path, "write the value in double quotes, as librdkafka takes it".to_owned())
                    );
                }
                Value::String(_) | Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => {
                    let name = path.strip_prefix("kafka.").map_or_else(|| path.clone(), kafka::canonical);
                    let path = format!("kafka.{name}");
                    if items.iter().any(|(given, _)| *given == path) {
                        return Err(self.refuse(&path, "this is given twice, by one name or by two".to_owned()));
                    }
                    items.push((path, value));
                }
            }
        }
        Ok(())
    }

    fn outboxes(&self, value: Value) -> Result<Value, ConfigError> {
        let Value::Array(outboxes) = value else {
            return Err(self.refuse("outbox", "write each outbox as a table of its own, [[outbox]]".to_owned()));
        };
        let mut tables = Vec::with_capacity(outboxes.len());
        for (index, outbox) in outboxes.into_iter().enumerate() {
            let Value::Table(outbox) = outbox else {
                return Err(self.refuse("outbox", "write each outbox as a table of its own, [[outbox]]".to_owned()));
            };
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

    fn refuse(&self, path: &str, problem: String) -> ConfigError {
        ConfigError::Value { place: Place { origin: self.origin.clone(), path: path.to_owned() }, problem }
    }

    fn unknown(&self, name: String, nearest: Option<&str>) -> ConfigError {
        ConfigError::UnknownKey { origin: self.origin.clone(), name, nearest: nearest.map(str::to_owned) }
    }
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
