//! Which tables, columns and messages a connector takes.

use super::list;
use crate::{
    connect::regex::{Pattern, PatternError, TooManySteps},
    pipeline::outbox::TableName,
    postgres::{dead_letter, progress},
    setup::record,
};

/// Names that match any of some patterns, in any case of ASCII letters, or those that match none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    patterns: Vec<Pattern>,
    include: bool,
}

impl Selection {
    pub(super) fn parse(value: &str, include: bool) -> Result<Selection, PatternError> {
        let patterns: Result<_, _> =
            list::patterns(value).iter().map(|pattern| Pattern::parse_ignoring_case(pattern)).collect();
        Ok(Selection { patterns: patterns?, include })
    }

    /// Whether a name is one of them.
    pub fn takes(&self, name: &str) -> Result<bool, TooManySteps> {
        for pattern in &self.patterns {
            if pattern.matches(name)? {
                return Ok(self.include);
            }
        }
        Ok(!self.include)
    }

    /// The patterns as written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(Pattern::as_str)
    }
}

/// The tables whose rows become records, and their columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// `schema.include.list`, `schema.exclude.list`.
    pub schemas: Option<Selection>,
    /// `table.include.list`, `table.exclude.list`, of `schema.table`.
    pub tables: Option<Selection>,
    /// `column.include.list`, `column.exclude.list`, of `schema.table.column`.
    pub columns: Option<Selection>,
    /// `table.ignore.builtin`.
    pub ignore_builtin: bool,
}

impl Tables {
    /// Whether rows of a table become records.
    pub fn take(&self, schema: &str, table: &str) -> Result<bool, TooManySteps> {
        if is_walposts(schema, table) || self.ignore_builtin && is_builtin(schema, table) {
            return Ok(false);
        }
        if let Some(schemas) = &self.schemas {
            if !schemas.takes(schema)? {
                return Ok(false);
            }
        }
        self.tables.as_ref().map_or(Ok(true), |tables| tables.takes(&format!("{schema}.{table}")))
    }

    /// Whether a column of such a table is in its rows.
    pub fn take_column(&self, schema: &str, table: &str, column: &str) -> Result<bool, TooManySteps> {
        self.columns.as_ref().map_or(Ok(true), |columns| columns.takes(&format!("{schema}.{table}.{column}")))
    }

    /// The tables that are named one by one, as the catalog holds schema and table; none where they cannot be told
    /// from the patterns alone.
    pub fn named(&self) -> Option<Vec<(String, String)>> {
        let tables = self.tables.as_ref().filter(|tables| tables.include)?;
        tables.patterns().map(literal).collect()
    }
}

/// The pattern of one table, as a list of patterns has it.
pub fn pattern_of(name: &TableName) -> String {
    let mut pattern = String::new();
    for c in format!("{}.{}", name.schema, name.table).chars() {
        if !(c.is_alphanumeric() || c == '_') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// A pattern that is the name of one table: letters, digits, `_` and a dot, escaped or not.
fn literal(pattern: &str) -> Option<(String, String)> {
    let plain = pattern.replace(r"\.", ".");
    let (schema, table) = plain.split_once('.')?;
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_name(schema) && is_name(table)).then(|| (schema.to_owned(), table.to_owned()))
}

/// walpost's tables beside the outboxes, which a publication of all tables has too.
fn is_walposts(schema: &str, table: &str) -> bool {
    const TABLES: [&str; 6] =
        [dead_letter::TABLE, progress::TABLE, record::TABLE, "idempotency", "aggregate_version", "inbox"];
    schema == "walpost" && TABLES.contains(&table)
}

fn is_builtin(schema: &str, table: &str) -> bool {
    let is = |name: &str, builtin: &str| name.to_lowercase() == builtin;
    is(schema, "pg_catalog")
        || is(schema, "information_schema")
        || is(table, "spatial_ref_sys")
        || schema.starts_with("pg_temp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(include: &str) -> Tables {
        let tables = Some(Selection::parse(include, true).unwrap());
        Tables { schemas: None, tables, columns: None, ignore_builtin: true }
    }

    #[test]
    fn lists_match_whole_names_in_any_case() {
        let some = tables(r"public\.outbox.*,app.events");
        for (schema, table, taken) in [
            ("public", "outbox", true),
            ("PUBLIC", "Outbox_2026", true),
            ("app", "events", true),
            ("app", "events2", false),
            ("x", "outbox", false),
        ] {
            assert_eq!(some.take(schema, table), Ok(taken), "{schema}.{table}");
        }
        assert_eq!(tables(".*").take("pg_catalog", "pg_class"), Ok(false));
        let (everything, own) = (tables(".*"), ["progress", "dead_letter", "setup_record"]);
        assert!(own.iter().all(|own| everything.take("walpost", own) == Ok(false)));
        assert_eq!((everything.take("walpost", "outbox"), everything.take("app", "progress")), (Ok(true), Ok(true)));
        let all_but = Selection::parse("public.secret", false).unwrap();
        assert_eq!((all_but.takes("public.secret"), all_but.takes("public.outbox")), (Ok(false), Ok(true)));
    }

    #[test]
    fn a_name_is_a_pattern_of_itself() {
        let name = TableName { schema: "walpost".to_owned(), table: "out,box".to_owned() };
        assert_eq!(pattern_of(&name), r"walpost\.out\,box");
        assert_eq!(tables(&pattern_of(&name)).take("walpost", "out,box"), Ok(true));
    }

    #[test]
    fn tables_are_named_where_no_pattern_is() {
        let name = |schema: &str, table: &str| (schema.to_owned(), table.to_owned());
        assert_eq!(
            tables(r"public.outbox, app\.Events").named(),
            Some(vec![name("public", "outbox"), name("app", "Events")])
        );
        assert_eq!(tables("public.outbox.*").named(), None);
        assert_eq!(tables("outbox").named(), None);
    }
}
