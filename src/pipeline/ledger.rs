//! What is in flight, and therefore what may be confirmed (G1, G4, G5).
//!
//! Records get tickets in stream order. `confirmed` is the end of the last transaction whose records, and those of all
//! transactions before it, are acknowledged; acknowledgements may come in any order. It takes only these values: the
//! start position, a commit's exact end, or a keepalive's WAL end seen while no transaction is open and nothing is
//! outstanding.
//!
//! The ledger is bounded by the *span* from the oldest unacknowledged record to the newest, not by the number of
//! unacknowledged ones: the span is what a crash would send again, and it keeps one stuck topic from growing the
//! ledger without limit while others go on.
//!
//! Misuse by the caller (an acknowledgement for nothing, a commit outside a transaction) is a bug that could confirm
//! what was never delivered, so the assertions stay on in release builds.

use std::collections::VecDeque;

use super::{frame::PgTime, lsn::Lsn};

/// The identity of a record in flight: its place among the records of this ledger, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

impl Ticket {
    /// The first of those that no ledger gives out: for records that are no events of the stream.
    pub const OTHERS: Ticket = Ticket(1 << 62);

    /// For a record that is no event, and for which nobody waits.
    pub const NONE: Ticket = Ticket(u64::MAX);

    /// It is an event that is sent again.
    pub fn is_replay(self) -> bool {
        !self.is_of_stream() && self != Ticket::NONE
    }

    /// A ledger gave it out.
    pub fn is_of_stream(self) -> bool {
        self < Ticket::OTHERS
    }
}

/// Most that may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records from the oldest unacknowledged to the newest.
    pub records: usize,
    /// Bytes of unacknowledged records. One record larger than this still goes, alone.
    pub bytes: usize,
}

#[derive(Debug)]
pub struct Ledger {
    limits: Limits,
    /// Bytes of each record from `first` on; 0 once it is acknowledged.
    records: VecDeque<u32>,
    /// Ticket of `records[0]`.
    first: Ticket,
    /// Ended transactions that are not confirmed, in commit order.
    commits: VecDeque<Commit>,
    /// The open transaction's first ticket.
    open: Option<Ticket>,
    /// Transactions with records, confirmed since they were last taken.
    completed: Vec<Completed>,
    bytes: usize,
    outstanding: usize,
    confirmed: Lsn,
}

/// A transaction of which all is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// When it was committed.
    pub commit: PgTime,
    pub records: u64,
}

#[derive(Debug)]
struct Commit {
    /// The ticket after the transaction's last record.
    after: Ticket,
    end_lsn: Lsn,
    /// None: the transaction had no records.
    transaction: Option<Completed>,
}

impl Ledger {
    /// A ledger whose confirmed position is `start`: what the slot has.
    pub fn new(start: Lsn, limits: Limits) -> Ledger {
        assert!(limits.records > 0 && limits.bytes > 0, "a ledger without room would never move");
        Ledger {
            limits,
            records: VecDeque::new(),
            first: Ticket(0),
            commits: VecDeque::new(),
            open: None,
            completed: Vec::new(),
            bytes: 0,
            outstanding: 0,
            confirmed: start,
        }
    }

    /// The highest position that may be reported to PostgreSQL.
    pub fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// The highest position that was ever taken in: no later commit ends below it.
    pub fn newest(&self) -> Lsn {
        self.commits.back().map_or(self.confirmed, |commit| commit.end_lsn)
    }

    /// Whether another record fits. A record is accepted without asking again, so ask before reading on.
    pub fn has_room(&self) -> bool {
        self.records.len() < self.limits.records && self.bytes < self.limits.bytes
    }

    /// Nothing is open, outstanding or unconfirmed.
    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.records.is_empty() && self.commits.is_empty()
    }

    /// Records sent and not acknowledged.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The record that has been outstanding longest.
    pub fn oldest(&self) -> Option<Ticket> {
        (!self.records.is_empty()).then_some(self.first)
    }

    /// Bytes of records sent and not acknowledged.
    pub fn outstanding_bytes(&self) -> usize {
        self.bytes
    }

    /// Commit time of the oldest ended transaction with records that is not confirmed.
    pub fn oldest_unconfirmed(&self) -> Option<PgTime> {
        self.commits.iter().find_map(|commit| commit.transaction).map(|transaction| transaction.commit)
    }

    /// The transactions with records that were confirmed since the last call.
    pub fn take_completed(&mut self) -> std::vec::Drain<'_, Completed> {
        self.completed.drain(..)
    }

    pub fn begin(&mut self) {
        let outer = self.open.replace(self.next());
        assert!(outer.is_none(), "a transaction inside a transaction");
    }

    /// Takes a record of `bytes` into flight.
    pub fn send(&mut self, bytes: usize) -> Ticket {
        assert!(self.open.is_some(), "a record outside a transaction");
        let ticket = self.next();
        let bytes = u32::try_from(bytes.max(1)).expect("PostgreSQL's rows stay below 1 GiB");
        self.records.push_back(bytes);
        self.bytes += bytes as usize;
        self.outstanding += 1;
        ticket
    }

    /// The open transaction ended at `end_lsn`.
    pub fn commit(&mut self, end_lsn: Lsn, time: PgTime) {
        let first = self.open.take().expect("a commit is inside a transaction");
        let after = self.next();
        let transaction = (after > first).then_some(Completed { commit: time, records: after.0 - first.0 });
        match self.commits.back_mut() {
            // Without records of its own it is done when the one before it is: the queue stays as short as the span.
            Some(last) if last.after == after => last.end_lsn = end_lsn,
            _ => self.commits.push_back(Commit { after, end_lsn, transaction }),
        }
        self.advance();
    }

    /// The sink has the record for good.
    pub fn acknowledge(&mut self, ticket: Ticket) {
        let index = ticket.0.checked_sub(self.first.0).expect("the record was acknowledged before");
        let record = self.records.get_mut(index as usize).expect("the record was never sent");
        assert!(*record != 0, "the record was acknowledged before");
        self.bytes -= *record as usize;
        self.outstanding -= 1;
        *record = 0;
        if index == 0 {
            while self.records.front() == Some(&0) {
                self.records.pop_front();
                self.first.0 += 1;
            }
            self.advance();
        }
    }

    /// The server has sent everything below `wal_end`.
    pub fn keepalive(&mut self, wal_end: Lsn) {
        if self.is_idle() && wal_end > self.confirmed {
            self.confirmed = wal_end;
        }
    }

    fn next(&self) -> Ticket {
        Ticket(self.first.0 + self.records.len() as u64)
    }

    fn advance(&mut self) {
        while let Some(commit) = self.commits.front().filter(|commit| commit.after <= self.first) {
            assert!(commit.end_lsn >= self.confirmed, "the confirmed position would go back");
            self.confirmed = commit.end_lsn;
            self.completed.extend(commit.transaction);
            self.commits.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { records: 4, bytes: 100 };
    const T: PgTime = PgTime(0);

    fn ledger() -> Ledger {
        Ledger::new(Lsn(100), LIMITS)
    }

    #[test]
    fn a_transaction_is_confirmed_when_its_last_record_is_acknowledged_in_any_order() {
        let mut ledger = ledger();
        ledger.begin();
        let [a, b] = [ledger.send(1), ledger.send(1)];
        ledger.acknowledge(b);
        ledger.commit(Lsn(110), T);
        assert_eq!(ledger.confirmed(), Lsn(100));
        ledger.acknowledge(a);
        assert_eq!(ledger.confirmed(), Lsn(110));
        assert!(ledger.is_idle());
    }

    #[test]
    fn records_acknowledged_before_the_commit_confirm_nothing_until_it() {
        let mut ledger = ledger();
        ledger.begin();
        let a = ledger.send(1);
        ledger.acknowledge(a);
        assert_eq!(ledger.confirmed(), Lsn(100));
        ledger.commit(Lsn(110), T);
        assert_eq!(ledger.confirmed(), Lsn(110));
    }

    #[test]
    fn a_later_transaction_waits_for_an_earlier_one() {
        let mut ledger = ledger();
        ledger.begin();
        let a = ledger.send(1);
        ledger.commit(Lsn(110), T);
        ledger.begin();
        let b = ledger.send(1);
        ledger.commit(Lsn(120), T);
        ledger.acknowledge(b);
        assert_eq!(ledger.confirmed(), Lsn(100));
        ledger.acknowledge(a);
        assert_eq!(ledger.confirmed(), Lsn(120));
    }

    #[test]
    fn empty_transactions_are_confirmed_with_the_one_before_them() {
        let mut ledger = ledger();
        ledger.begin();
        let a = ledger.send(1);
        ledger.commit(Lsn(110), T);
        for end in 111..10_000 {
            ledger.begin();
            ledger.commit(Lsn(end), T);
        }
        assert_eq!((ledger.confirmed(), ledger.commits.len()), (Lsn(100), 1));
        ledger.acknowledge(a);
        assert_eq!(ledger.confirmed(), Lsn(9_999));
    }

    #[test]
    fn a_keepalive_counts_only_while_nothing_is_open_or_outstanding() {
        let mut ledger = ledger();
        ledger.keepalive(Lsn(105));
        assert_eq!(ledger.confirmed(), Lsn(105));
        ledger.keepalive(Lsn(104));
        assert_eq!(ledger.confirmed(), Lsn(105), "never back");
        ledger.begin();
        ledger.keepalive(Lsn(106));
        let a = ledger.send(1);
        ledger.commit(Lsn(110), T);
        ledger.keepalive(Lsn(200));
        assert_eq!(ledger.confirmed(), Lsn(105));
        ledger.acknowledge(a);
        assert_eq!(ledger.confirmed(), Lsn(110), "not the keepalive's");
        ledger.keepalive(Lsn(200));
        assert_eq!(ledger.confirmed(), Lsn(200));
    }

    #[test]
    fn room_is_bounded_by_span_and_by_bytes() {
        let mut ledger = ledger();
        ledger.begin();
        let stuck = ledger.send(1);
        for _ in 0..3 {
            let sent = ledger.send(1);
            ledger.acknowledge(sent);
        }
        assert_eq!((ledger.outstanding(), ledger.has_room()), (1, false), "the span is full");
        ledger.acknowledge(stuck);
        assert!(ledger.has_room());
        let large = ledger.send(1_000);
        assert!(!ledger.has_room());
        ledger.acknowledge(large);
        assert!(ledger.has_room());
        assert_eq!(ledger.outstanding_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "acknowledged before")]
    fn acknowledging_twice_is_a_bug() {
        let mut ledger = ledger();
        ledger.begin();
        let [a, _b] = [ledger.send(1), ledger.send(1)];
        ledger.acknowledge(a);
        ledger.acknowledge(a);
    }

    #[test]
    #[should_panic(expected = "never sent")]
    fn acknowledging_what_was_not_sent_is_a_bug() {
        ledger().acknowledge(Ticket(0));
    }
}
