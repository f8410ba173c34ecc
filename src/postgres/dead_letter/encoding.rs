//! Ids and other texts as the table has them, and how the letters of an outbox's row are found by that.

use std::{borrow::Cow, fmt::Write};

use tokio_postgres::Client;

use super::TABLE;
use crate::{
    pipeline::{outbox::TableName, resume::id_beginning},
    postgres::quote::{ident, literal, qualified},
};

/// The condition of a letter that waits for somebody.
pub(super) const OPEN: &str = "state in ('dead', 'parked')";

/// How texts must be written so that the database can hold them.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// It holds every character but NUL: it is in UTF-8, or checks nothing.
    pub(super) unicode: bool,
}

impl Encoding {
    pub async fn read(client: &Client) -> Result<Encoding, tokio_postgres::Error> {
        let row = client.query_one("select current_setting('server_encoding')", &[]).await?;
        Ok(Encoding { unicode: matches!(row.try_get(0)?, "UTF8" | "SQL_ASCII") })
    }

    /// The text, with a replacement for NUL, and where the encoding has not all characters with escapes for all but
    /// ASCII: a letter that the table refuses would hold up the stream.
    pub(in crate::postgres) fn text(self, text: &str) -> Cow<'_, str> {
        let holds = |c: char| c != '\0' && (self.unicode || c.is_ascii());
        if text.chars().all(holds) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                c if holds(c) => out.push(c),
                _ if self.unicode => out.push(char::REPLACEMENT_CHARACTER),
                c => write!(out, "{}", c.escape_unicode()).expect("a String takes all that is written"),
            }
        }
        Cow::Owned(out)
    }

    pub(super) fn event_id(self, id: &str) -> Cow<'_, str> {
        self.text(id_beginning(id))
    }

    /// A condition: row `o` of an outbox has an open letter. `id` is the column with the ids of its events.
    ///
    /// An id that may have been cut or escaped is compared with none: any such letter counts. So does another outbox's.
    pub fn has_open(self, home: &str, id: &str) -> String {
        let odd = |text: &str| match self.unicode {
            true => format!("octet_length({text}) > 990"),
            false => format!("(octet_length({text}) > 990 or {text} ~ '[^ -~]' or strpos({text}, '\\u{{') > 0)"),
        };
        format!(
            "(exists ({} and d.{OPEN}) or {} and exists (select from {} d where d.{OPEN} and {}))",
            of_event(home, id),
            odd(&printed(id)),
            qualified(home, TABLE),
            odd("d.event_id")
        )
    }
}

/// A subquery: the letters `d` of row `o` of an outbox, in whatever state. `id` is the column with the ids of its events,
/// which another outbox may have too. An id or a table's name that was cut or escaped is not found.
pub fn of_row(home: &str, table: &TableName, id: &str) -> String {
    format!("{} and d.source_table = {}", of_event(home, id), literal(&table.to_string()))
}

fn of_event(home: &str, id: &str) -> String {
    format!("select from {} d where d.event_id = {}", qualified(home, TABLE), printed(id))
}

/// The id of row `o`, as the stream prints it, and a cast to text may not.
pub fn printed(id: &str) -> String {
    format!("format('%s', o.{})", ident(id))
}
