//! What says of a row of an outbox that it is published: the one condition that prune, recovery and replay go by.
//!
//! A row with `txid` is proven by the slot's row of `walpost.progress` ([`progress`](super::progress)); it needs no write of
//! its own. Without that column the stream leaves a [mark](super::mark) in the row once Kafka has the event, or deletes it.
//! What became a dead letter counts as published either way: its own row says what becomes of it.

use super::{
    dead_letter,
    progress::{self, Progress},
    quote::{ident, literal, qualified},
};
use crate::pipeline::outbox::{AfterPublish, Outbox, TableName};

/// How an outbox tells published rows from others. Names as the catalog holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// By this column, an `xid8`.
    Txid(String),
    /// By these columns, as far as the table has them.
    Mark { event: Event, published_at: Option<String>, status: Option<String> },
    /// It has none, but for those with a dead letter.
    Deleted { event: Event },
}

/// What a dead letter is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    table: TableName,
    id: String,
}

impl Published {
    /// None: nothing tells. `columns` are the table's, with the names of their types.
    pub fn of<'a>(outbox: &Outbox, columns: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Option<Published> {
        let type_of = |name: &str| columns.clone().find_map(|(known, of)| (known == name).then_some(of));
        let existing = |name: &String| type_of(name).map(|_| name.clone());
        let txid = &outbox.columns.txid.name;
        if type_of(txid) == Some("xid8") {
            return Some(Published::Txid(txid.clone()));
        }
        let event = Event { table: outbox.name.clone(), id: outbox.columns.id.clone() };
        match &outbox.after_publish {
            AfterPublish::Keep => None,
            AfterPublish::Delete => Some(Published::Deleted { event }),
            AfterPublish::Mark(marks) => {
                let (published_at, status) = (existing(&marks.published_at.name), existing(&marks.status.name));
                let any = published_at.is_some() || status.is_some();
                any.then_some(Published::Mark { event, published_at, status })
            }
        }
    }

    /// An SQL condition on row `o` of the outbox; never NULL. `p` stands for the slot's row of progress, `home` is the schema of
    /// what is walpost's own; `has_letters`: the table of dead letters is there.
    pub fn condition(&self, home: &str, has_letters: bool) -> String {
        let (Event { table, id }, mut any) = match self {
            Published::Txid(column) => {
                return format!("{}.is_published(o.{}, o.tableoid, p)", ident(home), ident(column));
            }
            Published::Deleted { event } => (event, Vec::new()),
            Published::Mark { event, published_at, status } => {
                let mut any = Vec::new();
                any.extend(published_at.iter().map(|column| format!("o.{} is not null", ident(column))));
                any.extend(status.iter().map(|column| {
                    format!("coalesce(o.{}::text in ('PUBLISHED', 'DEAD_LETTER'), false)", ident(column))
                }));
                (event, any)
            }
        };
        if has_letters {
            any.push(format!("exists ({})", dead_letter::of_row(home, table, id)));
        }
        if any.is_empty() { "false".to_owned() } else { format!("({})", any.join(" or ")) }
    }

    /// An SQL condition on row `o` of the outbox: a slot whose row of progress is `known` has still to send it. Otherwise as
    /// [`Published::condition`].
    pub fn owed(&self, known: &Progress, home: &str, has_letters: bool) -> String {
        match self {
            Published::Txid(column) => known.unproven(column),
            Published::Mark { .. } | Published::Deleted { .. } => format!("not {}", self.condition(home, has_letters)),
        }
    }

    /// The same where `p` is looked up: the row of `slot`, which must be this server's.
    pub fn of_slot(&self, home: &str, has_letters: bool, slot: &str, system_identifier: &str) -> String {
        let condition = self.condition(home, has_letters);
        match self.is_by_progress() {
            false => condition,
            true => format!(
                "exists (select from {} p where p.slot = {} and p.system_identifier = {} and {condition})",
                qualified(home, progress::TABLE),
                literal(slot),
                literal(system_identifier),
            ),
        }
    }

    /// It takes the slot's row of progress.
    pub fn is_by_progress(&self) -> bool {
        match self {
            Published::Txid(_) => true,
            Published::Mark { .. } | Published::Deleted { .. } => false,
        }
    }
}
