//! `message.key.columns`: keys that are made of other columns than the primary key's.

use super::columns::Attribute;
use crate::connect::regex::{Pattern, PatternError};
use crate::pipeline::outbox::TableName;

/// Patterns for `schema.table.column`, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyColumns(Vec<Pattern>);

impl KeyColumns {
    /// `table:column,column;table:column`, where a table is a pattern for `schema.table`.
    pub(super) fn parse(value: &str) -> Result<KeyColumns, PatternError> {
        let tables = value.split(';').filter_map(|entry| entry.split_once(':'));
        let patterns = tables.flat_map(|(table, columns)| {
            columns.split(',').map(move |column| format!("{}.{}", table.trim(), column.trim()))
        });
        patterns.map(|pattern| Pattern::parse_ignoring_case(&pattern)).collect::<Result<_, _>>().map(KeyColumns)
    }

    /// The table's columns that they name; none: its primary key's.
    pub(super) fn of(&self, table: &TableName, attributes: &[Attribute]) -> Vec<String> {
        let mut columns: Vec<String> = Vec::new();
        for pattern in &self.0 {
            for Attribute { name, .. } in attributes {
                let is_named = pattern.matches(&format!("{}.{}.{name}", table.schema, table.table)).unwrap_or(false);
                if is_named && !columns.contains(name) {
                    columns.push(name.clone());
                }
            }
        }
        columns
    }
}
