//! One streaming session of the server: the log from the slot's position on, as pgoutput frames.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use crate::{
    catalog::Shape,
    encode,
    postgres::{Entry, Postgres, Transaction},
    random::Random,
};

/// After this long without a status the server ends the session; after half of it it asks.
pub(crate) const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Walsender {
    /// Index of the next entry of the log.
    next: usize,
    /// What is left to send of the entry before `next`.
    frames: VecDeque<Vec<u8>>,
    /// Commit record of the transaction that is being sent.
    in_transaction: Option<u64>,
    /// The shape under which each table was last described.
    described: HashMap<usize, Rc<Shape>>,
    /// PostgreSQL 14 sends transactions that have nothing for the publication.
    sends_empty: bool,
    heard_at: Duration,
    asked: bool,
}

impl Walsender {
    /// Streams from the slot's own position: a transaction is skipped when its commit record starts below it.
    pub(crate) fn start(postgres: &Postgres, from: u64, sends_empty: bool, now: Duration) -> Walsender {
        Walsender {
            next: postgres.log.partition_point(|entry| entry.start() < from),
            frames: VecDeque::new(),
            in_transaction: None,
            described: HashMap::new(),
            sends_empty,
            heard_at: now,
            asked: false,
        }
    }

    /// The next frame of the log, if there is one.
    pub(crate) fn send(&mut self, postgres: &Postgres, random: &mut Random) -> Option<Vec<u8>> {
        while self.frames.is_empty() {
            match postgres.log.get(self.next)? {
                Entry::Transaction(transaction) if transaction.changes.is_empty() && !self.sends_empty => {}
                Entry::Transaction(transaction) => {
                    self.queue(transaction, random);
                    self.in_transaction = Some(transaction.commit_lsn);
                }
                Entry::Message { lsn, message } => self.frames.push_back(encode::xlog_data(*lsn, *lsn, message)),
            }
            self.next += 1;
        }
        let frame = self.frames.pop_front();
        if self.frames.is_empty() {
            self.in_transaction = None;
        }
        frame
    }

    fn queue(&mut self, transaction: &Transaction, random: &mut Random) {
        let Transaction { xid, commit_lsn, end_lsn, commit_time, foreign, ref changes } = *transaction;
        let mut push = |lsn: u64, message: &[u8]| self.frames.push_back(encode::xlog_data(lsn, commit_lsn, message));
        push(commit_lsn, &encode::begin(commit_lsn, commit_time, xid));
        if foreign {
            push(0, &encode::origin(commit_lsn, "another server"));
        }
        for change in changes {
            if let Some(shape) = &change.shape {
                let known = self.described.get(&shape.table()).is_some_and(|known| Rc::ptr_eq(known, shape));
                if !known || random.one_in(10) {
                    shape.announcement().iter().for_each(|message| push(change.lsn, message));
                    self.described.insert(shape.table(), Rc::clone(shape));
                }
            }
            push(change.lsn, &change.message);
            if random.one_in(50) {
                push(0, &encode::stream_abort(xid, xid));
            }
        }
        push(commit_lsn, &encode::commit(commit_lsn, end_lsn, commit_time));
    }

    pub(crate) fn has_sent_all(&self, postgres: &Postgres) -> bool {
        self.frames.is_empty() && self.next == postgres.log.len()
    }

    /// How far the server has read: up to the commit record of what it is sending or has yet to send, else all of it.
    fn sent(&self, postgres: &Postgres) -> u64 {
        let next = || postgres.log.get(self.next).map(Entry::start);
        self.in_transaction.or_else(next).unwrap_or(postgres.wal)
    }

    /// A keepalive for this moment, which may lie between two rows.
    pub(crate) fn keepalive(&mut self, postgres: &Postgres, reply_requested: bool) -> Vec<u8> {
        self.asked |= reply_requested;
        encode::keepalive(self.sent(postgres), reply_requested)
    }

    /// A status came: it counts as a sign of life.
    pub(crate) fn heard(&mut self, now: Duration) {
        self.heard_at = now;
        self.asked = false;
    }

    /// Whether the server would ask for a sign of life now.
    pub(crate) fn wants_to_ask(&self, now: Duration) -> bool {
        !self.asked && now - self.heard_at >= WAL_SENDER_TIMEOUT / 2
    }

    pub(crate) fn gives_up(&self, now: Duration) -> bool {
        now - self.heard_at >= WAL_SENDER_TIMEOUT
    }
}
