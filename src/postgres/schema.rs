//! The SQL of `sql/`, under the names of the configuration.
//!
//! The files are plain SQL with the default names written out, so that psql runs them as they are and a person reads them
//! without a key. Other names are put in here by a scanner of a few rules, not by a search for text: a name in a
//! comment stays, one in a string or in a function's body is replaced and quoted. The files keep to what it knows:
//! `walpost.x`, `'walpost.x'`, `'walpost'`, `schema walpost`, `publication walpost`, line comments and `$walpost$` bodies.

use super::quote;

const OUTBOX: &str = include_str!("../../sql/outbox.sql");
const OUTBOX_PARTITIONED: &str = include_str!("../../sql/outbox_partitioned.sql");
const ENQUEUE: &str = include_str!("../../sql/enqueue.sql");
const ENQUEUE_PARTITIONED: &str = include_str!("../../sql/enqueue_partitioned.sql");
const PUBLICATION: &str = include_str!("../../sql/publication.sql");
const ROLES: &str = include_str!("../../sql/roles.sql");
const RECORD: &str = include_str!("../../sql/setup_record.sql");
const DEAD_LETTER: &str = include_str!("../../sql/dead_letter.sql");
const ATTEMPT: &str = include_str!("../../sql/attempt.sql");
const PROGRESS: &str = include_str!("../../sql/progress.sql");
const TXID: &str = include_str!("../../sql/txid.sql");
const EMIT: &str = include_str!("../../sql/emit.sql");
const IDEMPOTENCY_KEY: &str = include_str!("../../sql/idempotency_key.sql");
const EVENT_STATE: &str = include_str!("../../sql/event_state.sql");
const INBOX: &str = include_str!("../../sql/inbox.sql");
const PUBLICATION_TABLE: &str = "\
do $walpost$
begin
    alter publication walpost add table walpost.outbox;
exception when duplicate_object then
    raise notice 'the publication has the table already';
end
$walpost$;
";

const PUBLICATION_OF_MESSAGES: &str = "\
-- Messages are streamed whatever the publication has: it has no table.
do $walpost$
begin
    create publication walpost with (publish = 'insert', publish_via_partition_root = true);
exception when duplicate_object then
    raise notice 'the publication exists already and is left as it is';
end
$walpost$;
";

/// Of an outbox with rows: as `outbox.sql` does, but that it makes no index.
const VERSION_COLUMN: &str = "\
do $walpost$
begin
    perform set_config('lock_timeout', '2s', true);
    alter table walpost.outbox add column if not exists aggregate_version bigint;
end
$walpost$;
";

const VERSION_INDEX: &str = "\
create unique index concurrently on walpost.outbox (aggregate_type, aggregate_id, aggregate_version)
    where aggregate_version is not null;
";

/// Arguments of `enqueue`, as its signature is written.
pub const ENQUEUE_ARGUMENTS: &str = "text, text, text, jsonb, jsonb, text, text, timestamptz, bigint";
/// Those that it had before there were versions of aggregates.
pub const ENQUEUE_ARGUMENTS_BEFORE: &str = "text, text, text, jsonb, jsonb, text, text, timestamptz";
/// Arguments of `emit` and `emit_bytes`.
pub const EMIT_ARGUMENTS: &str = "text, text, text, jsonb, jsonb, text, text, timestamptz, text";
pub const EMIT_BYTES_ARGUMENTS: &str = "text, text, text, bytea, jsonb, text, text, timestamptz, text";
/// Arguments of `make_partitions`.
pub const MAKE_PARTITIONS_ARGUMENTS: &str = "date, integer";

/// The tables of `sql/inbox.sql`.
pub const INBOX_TABLES: [&str; 4] = ["inbox", "inbox_suppressed", "inbox_consumer", "inbox_position"];
/// Its views.
pub const INBOX_VIEWS: [&str; 2] = ["inbox_stats", "inbox_metrics"];
/// Its functions and their arguments.
pub const INBOX_FUNCTIONS: [(&str, &str); 4] = [
    ("inbox_claim", "text, text"),
    ("inbox_advance", "text, text, text"),
    ("inbox_retention", "text, interval"),
    ("inbox_prune", "text, interval, boolean, integer"),
];
/// The role that it makes.
pub const INBOX_ROLE: &str = "walpost_consume";

/// Which kind of table an outbox is, or is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Plain,
    Partitioned,
}

/// The names that the files are rendered with, as the catalog holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub schema: String,
    pub table: String,
    pub publication: String,
}

/// The table in which setup records what it made, in `schema`.
pub fn record(schema: &str) -> String {
    Names::of_schema(schema).render(RECORD)
}

/// The table of dead letters, in `schema`.
pub fn dead_letter(schema: &str) -> String {
    Names::of_schema(schema).render(DEAD_LETTER)
}

/// The table of attempts in vain, in `schema`.
pub fn attempt(schema: &str) -> String {
    Names::of_schema(schema).render(ATTEMPT)
}

/// The table that holds the proof of publication, in `schema`.
pub fn progress(schema: &str) -> String {
    Names::of_schema(schema).render(PROGRESS)
}

/// The inbox of a consumer, in `schema`.
pub fn inbox(schema: &str) -> String {
    Names::of_schema(schema).render(INBOX)
}

/// The function `idempotency_key`, in `schema`.
pub fn idempotency_key(schema: &str) -> String {
    Names::of_schema(schema).render(IDEMPOTENCY_KEY)
}

/// The functions `emit` and `emit_bytes`, in `schema`, which take this prefix where none is given.
pub fn emit(schema: &str, prefix: &str) -> String {
    let default = format!("default {}", quote::literal(prefix));
    Names::of_schema(schema).render(EMIT).replace("default 'outbox'", &default)
}

impl Names {
    /// For files that name no outbox and no publication.
    fn of_schema(schema: &str) -> Names {
        Names { schema: schema.to_owned(), table: String::new(), publication: String::new() }
    }

    /// Schema and table.
    pub fn outbox(&self, variant: Variant) -> String {
        self.render(match variant {
            Variant::Plain => OUTBOX,
            Variant::Partitioned => OUTBOX_PARTITIONED,
        })
    }

    /// The function `enqueue` for a table of that kind.
    pub fn enqueue(&self, variant: Variant) -> String {
        self.render(match variant {
            Variant::Plain => ENQUEUE,
            Variant::Partitioned => ENQUEUE_PARTITIONED,
        })
    }

    /// The column of versions, for a table that is there and has no partitions.
    pub fn version_column(&self) -> String {
        self.render(VERSION_COLUMN)
    }

    /// The index that keeps them unique: one statement, for which no writer waits, and not for a transaction.
    pub fn version_index(&self) -> String {
        self.render(VERSION_INDEX)
    }

    /// The trigger that keeps `txid` true.
    pub fn txid(&self) -> String {
        self.render(TXID)
    }

    /// The view of what has become of each event; the schema must have the tables of dead letters and of progress.
    pub fn event_state(&self) -> String {
        self.render(EVENT_STATE)
    }

    pub fn publication(&self) -> String {
        self.render(PUBLICATION)
    }

    /// A publication without tables.
    pub fn publication_of_messages(&self) -> String {
        self.render(PUBLICATION_OF_MESSAGES)
    }

    /// One more table for the publication, any number of times.
    pub fn publication_table(&self) -> String {
        self.render(PUBLICATION_TABLE)
    }

    pub fn roles(&self) -> String {
        self.render(ROLES)
    }

    fn render(&self, sql: &str) -> String {
        // A name may hold the very tag that closes a body.
        let mut tag = "$walpost$".to_owned();
        for n in 1.. {
            if [&self.schema, &self.table, &self.publication].iter().all(|name| !name.contains(&tag)) {
                break;
            }
            tag = format!("$walpost_{n}$");
        }
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        let mut previous = "";
        while !rest.is_empty() {
            let token = next_token(rest);
            rest = &rest[token.len()..];
            if token == "$walpost$" {
                out.push_str(&tag);
            } else if let Some(text) = token.strip_prefix("'walpost.").and_then(|text| text.strip_suffix('\'')) {
                let name = next_token(text);
                out.push_str(&quote::literal(&(self.qualified(name) + &text[name.len()..])));
            } else if token == "'walpost'" {
                out.push_str(&quote::literal(&quote::ident(&self.schema)));
            } else if token == "walpost" && rest.starts_with('.') {
                let name = next_token(&rest[1..]);
                rest = &rest[1 + name.len()..];
                out.push_str(&self.qualified(name));
            } else if token == "walpost" && previous == "schema" {
                out.push_str(&quote::ident(&self.schema));
            } else if token == "walpost" && previous == "publication" {
                out.push_str(&quote::ident(&self.publication));
            } else {
                out.push_str(token);
            }
            if !token.trim().is_empty() {
                previous = token;
            }
        }
        out
    }

    /// `walpost.name`: the table (and what is named after it) under the table's name, all else in its schema.
    fn qualified(&self, name: &str) -> String {
        match name.strip_prefix("outbox") {
            Some(suffix) if suffix.is_empty() || suffix.starts_with('_') => {
                quote::qualified(&self.schema, &format!("{}{suffix}", self.table))
            }
            _ => quote::qualified(&self.schema, name),
        }
    }
}

/// The next comment, string, dollar tag, word or single character. `text` is not empty.
fn next_token(text: &str) -> &str {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = if text.starts_with("--") {
        text.find('\n')
    } else if let Some(inside) = text.strip_prefix('\'') {
        inside.find('\'').map(|end| end + 2)
    } else if text.starts_with("$walpost$") {
        Some("$walpost$".len())
    } else if text.starts_with(word) {
        text.find(|c| !word(c))
    } else {
        text.chars().next().map(char::len_utf8)
    };
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 19] = [
        ATTEMPT,
        OUTBOX,
        OUTBOX_PARTITIONED,
        ENQUEUE,
        ENQUEUE_PARTITIONED,
        PUBLICATION,
        PUBLICATION_TABLE,
        PUBLICATION_OF_MESSAGES,
        EMIT,
        ROLES,
        RECORD,
        DEAD_LETTER,
        PROGRESS,
        TXID,
        EVENT_STATE,
        INBOX,
        IDEMPOTENCY_KEY,
        VERSION_COLUMN,
        VERSION_INDEX,
    ];

    fn names(schema: &str, table: &str, publication: &str) -> Names {
        Names { schema: schema.into(), table: table.into(), publication: publication.into() }
    }

    #[test]
    fn the_default_names_give_the_files_themselves() {
        for file in ALL {
            assert_eq!(names("walpost", "outbox", "walpost").render(file), file);
        }
    }

    #[test]
    fn each_place_of_a_name_is_found_and_quoted() {
        let hostile = names("My \"App\"", "out'box", "walpost pub");
        for (sql, rendered) in [
            ("create schema walpost;", "create schema \"My \"\"App\"\"\";"),
            ("from walpost.outbox where", "from \"My \"\"App\"\"\".\"out'box\" where"),
            ("walpost.outbox_default", "\"My \"\"App\"\"\".\"out'box_default\""),
            ("walpost.enqueue(text)", "\"My \"\"App\"\"\".enqueue(text)"),
            ("'walpost.outbox'::regclass", "'\"My \"\"App\"\"\".\"out''box\"'::regclass"),
            ("create publication walpost for", "create publication \"walpost pub\" for"),
            ("to_regnamespace('walpost')", "to_regnamespace('\"My \"\"App\"\"\"')"),
            ("-- see walpost.outbox\nx", "-- see walpost.outbox\nx"),
            ("is 'see walpost.outbox'", "is 'see walpost.outbox'"),
            ("to walpost_stream", "to walpost_stream"),
        ] {
            assert_eq!(hostile.render(sql), rendered);
        }
    }

    #[test]
    fn a_name_cannot_close_a_function_body() {
        let hostile = names("a$walpost$", "b$walpost_1$", "walpost");
        let sql = hostile.enqueue(Variant::Plain);
        assert_eq!(sql.matches("$walpost_2$").count(), 4);
    }

    #[test]
    fn the_files_keep_to_what_the_scanner_knows() {
        for file in ALL {
            let rendered = names("s", "t", "p").render(file);
            let code: String = rendered.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
            // The one quoted name: bytes compare alike in every database.
            let code = code.replace("collate \"C\"", "");
            assert!(!code.contains("/*") && !code.contains('"') && !code.contains(" E'"), "{code}");
            for left in ["walpost.", "schema walpost", "publication walpost", ".outbox"] {
                assert!(!code.contains(left), "{left:?} is left in\n{code}");
            }
        }
    }
}
