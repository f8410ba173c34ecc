//! What says of a row of an outbox that it is published: the one condition that prune, recovery and replay go by.
//!
//! A row with `txid` is proven by the slot's row of `walpost.progress` ([`progress`](super::progress)); it needs no write of
//! its own. Without that column the stream leaves a mark in the row once Kafka has the event (`after_publish = "mark"`), or
//! deletes it. What became a dead letter counts as published either way: its own row says what becomes of it.

use super::quote;
use crate::pipeline::outbox::Outbox;

/// How an outbox tells published rows from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// By this column, an `xid8`.
    Txid(String),
}

impl Published {
    /// None: nothing tells. `has` says whether the table has a column, by its name.
    pub fn of(outbox: &Outbox, has: impl Fn(&str) -> bool) -> Option<Published> {
        let txid = &outbox.columns.txid.name;
        has(txid).then(|| Published::Txid(txid.clone()))
    }

    /// An SQL condition on row `o` of the outbox; never NULL. `p` stands for the slot's row of progress, `home` is the schema of
    /// what is walpost's own.
    pub fn condition(&self, home: &str) -> String {
        match self {
            Published::Txid(column) => {
                format!("{}.is_published(o.{}, p)", quote::ident(home), quote::ident(column))
            }
        }
    }

    /// It takes the slot's row of progress.
    pub fn is_by_progress(&self) -> bool {
        matches!(self, Published::Txid(_))
    }
}
