//! Names of tables as SQL writes them.
//!
//! `table` is the one key that is SQL, because it is two names in one text. Slot, publication and columns are single
//! names and are written as the catalog holds them.

use crate::pipeline::outbox::TableName;

/// Most bytes of a name (`NAMEDATALEN` less one). PostgreSQL cuts longer ones, and the stream has what is left.
pub const NAME_BYTES_MAX: usize = 63;

/// Why a text is not the name of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the name is empty")]
    Empty,
    #[error("{0:?} opens a double quote and never closes it")]
    Unclosed(String),
    #[error("{0:?} holds a character that SQL takes only in double quotes, as in \"order events\"")]
    Quote(String),
    #[error("{0:?} has more than a schema and a table; a dot inside a name needs double quotes")]
    TooManyParts(String),
    #[error("{0:?} is longer than PostgreSQL's 63 bytes")]
    TooLong(String),
    #[error("{0:?} holds a NUL, which no name may have")]
    Nul(String),
}

impl std::str::FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<TableName, NameError> {
        let (first, rest) = identifier(text, text)?;
        if rest.is_empty() {
            return Ok(TableName { schema: "public".to_owned(), table: first });
        }
        match identifier(&rest[1..], text)? {
            (table, "") => Ok(TableName { schema: first, table }),
            (_, _) => Err(NameError::TooManyParts(text.to_owned())),
        }
    }
}

/// One identifier off the front: its catalog form, and the rest, which is empty or begins with a dot.
fn identifier<'a>(text: &'a str, whole: &str) -> Result<(String, &'a str), NameError> {
    let text = text.trim_matches(' ');
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted_name(quoted).ok_or_else(|| NameError::Unclosed(whole.to_owned()))?,
        None => {
            let end = text.find('.').unwrap_or(text.len());
            let name = text[..end].trim_end_matches(' ');
            if !is_bare(name) && !name.is_empty() {
                return Err(NameError::Quote(whole.to_owned()));
            }
            // PostgreSQL folds ASCII only in a multi-byte encoding.
            (name.to_ascii_lowercase(), &text[end..])
        }
    };
    let rest = rest.trim_start_matches(' ');
    if !rest.is_empty() && !rest.starts_with('.') {
        return Err(NameError::Quote(whole.to_owned()));
    }
    catalog_name(&name)?;
    Ok((name, rest))
}

/// Up to the closing quote, with `""` as one quote; none when nothing closes it.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        name.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

/// What SQL takes without quotes.
fn is_bare(name: &str) -> bool {
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let continues = |c: char| starts(c) || c.is_ascii_digit() || c == '$';
    name.starts_with(starts) && name.chars().all(continues)
}

/// Checks a name that is written as the catalog holds it.
pub(super) fn catalog_name(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        Err(NameError::Empty)
    } else if name.len() > NAME_BYTES_MAX {
        Err(NameError::TooLong(name.to_owned()))
    } else if name.contains('\0') {
        Err(NameError::Nul(name.to_owned()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_sql_reads_them() {
        for (text, schema, table) in [
            ("outbox", "public", "outbox"),
            ("walpost.outbox", "walpost", "outbox"),
            ("App.OutBox", "app", "outbox"),
            (r#""App"."OutBox""#, "App", "OutBox"),
            (r#"app."OutBox""#, "app", "OutBox"),
            (r#""App".outbox"#, "App", "outbox"),
            (r#""a.b"."c.d""#, "a.b", "c.d"),
            (r#""order events""#, "public", "order events"),
            (r#""say ""hi"""."x""#, r#"say "hi""#, "x"),
            (r#""""""#, "public", r#"""#),
            (" app . outbox ", "app", "outbox"),
            (r#" "app" . "outbox" "#, "app", "outbox"),
            ("_o$1.bestellungen_ä", "_o$1", "bestellungen_ä"),
            ("ÄPFEL", "public", "Äpfel"),
        ] {
            let name = TableName { schema: schema.to_owned(), table: table.to_owned() };
            assert_eq!(text.parse(), Ok(name), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let error = |text: &str| text.parse::<TableName>().unwrap_err();
        for text in ["", " ", ".", "a.", ".a", "a..b", r#""""#, r#"a."""#] {
            assert_eq!(error(text), NameError::Empty, "{text}");
        }
        for text in [r#"""#, r#""a"#, r#"a."b"#, r#""a"""#] {
            assert!(matches!(error(text), NameError::Unclosed(_)), "{text}");
        }
        for text in ["order events", "1a", "a-b", "a;b", r#""a"b"#, r#"a"b""#, r#""a" "b""#] {
            assert!(matches!(error(text), NameError::Quote(_)), "{text}");
        }
        assert!(matches!(error("db.app.outbox"), NameError::TooManyParts(_)));
        assert!(matches!(error(&"a".repeat(64)), NameError::TooLong(_)));
        assert!(matches!(error("\"a\0\""), NameError::Nul(_)));
        assert!("a".repeat(63).parse::<TableName>().is_ok());
    }
}
