//! `walpost config reference`: every key of the configuration, as a page in Markdown.

use std::fmt::{self, Display, Formatter};

use super::keys::{COLUMNS, KEYS, Key, Kind};

/// The page, made of [`KEYS`].
pub struct Reference;

const INTRODUCTION: &str = "\
# Keys of the configuration

Made by `walpost config reference` of the table that walpost reads its configuration by. What the keys are for is said in
[configuration](configuration.md); `walpost config show` prints what they come to.

A key is a line in the TOML file (`topic` in `[route]` for `route.topic`), a variable (`WALPOST_ROUTE_TOPIC`) and a flag
(`--route-topic`). A flag prevails over a variable, a variable over the file. Where a table below has a tick, an `[[outbox]]`
may have a value of its own.

| value | in the file | as text |
|---|---|---|
| text | `\"orders\"` | `orders` |
| secret | `\"…\"`, never printed | seen by whoever sees the command line: better its file |
| path | `\"/run/secrets/token\"`, of a file whose first line is the secret | `/run/secrets/token` |
| duration | `\"20ms\"`, `\"5s\"`, `\"7d\"`, `\"1h 30m\"` | `20ms` |
| size | `16777216`, or `\"16MiB\"` | `16MiB` |
| count | `5000`, from 1 | `5000` |
| switch | `true` or `false` | `--failover`, or `--failover=false` |
| section | a table, a line for each name | `--kafka linger.ms=5`, `WALPOST_KAFKA_LINGER_MS=5` |
";

impl Display for Reference {
    fn fmt(&self, page: &mut Formatter<'_>) -> fmt::Result {
        page.write_str(INTRODUCTION)?;
        let of = |section: &'static str| KEYS.iter().filter(move |key| section_of(key) == section);
        heading(page, "Top level")?;
        of("").try_for_each(|key| row(page, key))?;
        let mut told = vec![""];
        for section in KEYS.iter().map(section_of) {
            if !told.contains(&section) {
                told.push(section);
                heading(page, &format!("`[{section}]`"))?;
                of(section).try_for_each(|key| row(page, key))?;
            }
        }
        Ok(())
    }
}

/// Empty at the top level.
fn section_of(key: &Key) -> &'static str {
    key.path.split_once('.').map_or("", |(section, _)| section)
}

fn heading(page: &mut Formatter<'_>, title: &str) -> fmt::Result {
    writeln!(page, "\n## {title}\n\n| key | value | default | each outbox | |\n|---|---|---|---|---|")
}

fn row(page: &mut Formatter<'_>, key: &Key) -> fmt::Result {
    let default = key.default.map(|default| format!("`{default}`")).unwrap_or_default();
    let tick = if key.per_outbox { "✓" } else { "" };
    writeln!(page, "| `{}` | {} | {default} | {tick} | {} |", key.path, value(key), key.help.replace('|', "\\|"))
}

fn value(key: &Key) -> String {
    match key.kind {
        Kind::Text => "text".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::SecretFile => "path".to_owned(),
        Kind::Duration => "duration".to_owned(),
        Kind::Size => "size".to_owned(),
        Kind::Count => "count".to_owned(),
        Kind::Boolean => "switch".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Kind::Columns => {
            let names: Vec<_> = COLUMNS.iter().map(|name| format!("`{name}`")).collect();
            format!("section of texts: {}", names.join(", "))
        }
        Kind::Properties => "section".to_owned(),
        Kind::Outboxes => "list of tables".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::is_as_made;

    #[test]
    fn the_page_of_keys_is_what_the_table_says() {
        is_as_made("docs/configuration-keys.md", &Reference.to_string());
    }
}
