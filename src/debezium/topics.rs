//! Topics of records that no transform routes, as Debezium names them.

use crate::pipeline::outbox::TableName;

/// Of a name, in characters.
const LENGTH_MAX: usize = 249;

/// Of a table's rows: prefix, schema and table, joined by the delimiter. What no topic may have in its name becomes `_`.
pub fn of_table(prefix: &str, delimiter: &str, table: &TableName) -> String {
    let parts = [prefix, &table.schema, &table.table];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
    let mut topic = String::new();
    for unit in parts.join(delimiter).encode_utf16().take(LENGTH_MAX) {
        let legal = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let known = u8::try_from(unit).map(char::from).ok().filter(legal);
        topic.push(known.unwrap_or('_'));
    }
    topic
}

/// Of logical messages, whatever the delimiter.
pub fn of_messages(prefix: &str) -> String {
    format!("{prefix}.message")
}
