//! Drivers that do one thing wrong, each as somebody once did. The oracle must catch every one.

use walpost::pipeline::{Lsn, Pipeline};

use crate::{
    glance::{self, Seen},
    relay::Outgoing,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Sabotage {
    /// Acknowledges a record when it is handed to the producer.
    AcknowledgesOnReceipt,
    /// Takes a failed delivery for a delivered one.
    SwallowsFailures,
    /// Reports the WAL end of a keepalive that came between two rows.
    TrustsKeepalivesInTransactions,
    /// Reports the WAL end of a keepalive while records are outstanding.
    TrustsKeepalivesWithWorkOutstanding,
    /// Reports one byte more than is confirmed.
    ConfirmsPlusOne,
    /// Reports what it has read, delivered or not.
    ConfirmsWhatItRead,
    /// Drops a record now and then, and says that it was delivered.
    SkipsRecords,
    /// Sends the second of two records of a key before the first.
    SwapsTwoOfAKey,
    /// Sends a record twice.
    RepeatsRecords,
    /// Takes a producer that writes on after a record that it gave up.
    LeavesGaps,
    /// Sends no status while there is no room for records.
    SilentWhileBlocked,
    /// Lets a request for a reply wait for the next status.
    IgnoresRequestsForReplies,
    /// Reads on without room.
    ReadsWithoutRoom,
    /// Never hands a keepalive to the pipeline.
    IgnoresKeepalives,
    /// Starts from the last commit that it read, not from the slot's position.
    ResumesFromWhatItRead,
    /// Exactly once: acknowledges what is written in a Kafka transaction that is not committed.
    AcknowledgesBeforeTheCommit,
    /// Exactly once: sends again what Kafka has.
    ForgetsToSkip,
    /// Exactly once: passes over the event after the stored one too.
    SkipsOneTooMany,
    /// Exactly once: stores the position beside the Kafka transaction, before that commits.
    StoresBeforeTheCommit,
    /// Exactly once: stores the position beside the Kafka transaction, after that is committed.
    StoresAfterTheCommit,
    /// Exactly once: confirms what it passes over before the stored position is met.
    ConfirmsWhatItSkips,
    /// Exactly once: reads the position while an older producer can still move it.
    ReadsBeforeItFences,
}

impl Sabotage {
    /// Whether it needs Kafka transactions to do its harm.
    pub(crate) fn is_of_exactly_once(self) -> bool {
        self >= Sabotage::AcknowledgesBeforeTheCommit
    }
}

/// A saboteur at work, with what it keeps in mind.
#[derive(Debug)]
pub(crate) struct Saboteur {
    pub(crate) kind: Sabotage,
    held: Option<Outgoing>,
    trusted: u64,
    /// The stored position was waited for.
    waited: bool,
}

impl Saboteur {
    pub(crate) fn new(kind: Sabotage) -> Saboteur {
        Saboteur { kind, held: None, trusted: 0, waited: false }
    }

    /// The stored position has to be met.
    pub(crate) fn waits(&mut self) {
        self.waited = true;
    }

    /// What becomes of a record on its way to the producer.
    pub(crate) fn sending(&mut self, record: Outgoing, pipeline: &mut Pipeline) -> Vec<Outgoing> {
        let now_and_then = record.ticket.0 % 7 == 3;
        if self.kind == Sabotage::AcknowledgesOnReceipt {
            pipeline.acknowledge(record.ticket);
        }
        let one_too_many = self.kind == Sabotage::SkipsOneTooMany && std::mem::take(&mut self.waited);
        if one_too_many || (self.kind == Sabotage::SkipsRecords && now_and_then) {
            pipeline.acknowledge(record.ticket);
            return Vec::new();
        }
        if self.kind == Sabotage::RepeatsRecords && now_and_then {
            return vec![record.clone(), record];
        }
        if self.kind == Sabotage::SwapsTwoOfAKey {
            return match self.held.take() {
                Some(held) if held.topic == record.topic && held.key == record.key => vec![record, held],
                Some(held) => vec![held, record],
                None => {
                    self.held = Some(record);
                    Vec::new()
                }
            };
        }
        vec![record]
    }

    /// Sees a frame before the pipeline does.
    pub(crate) fn reading(&mut self, frame: &[u8], pipeline: &Pipeline) {
        let trusts_keepalives = match pipeline.in_transaction() {
            true => self.kind == Sabotage::TrustsKeepalivesInTransactions,
            false => self.kind == Sabotage::TrustsKeepalivesWithWorkOutstanding,
        };
        match glance::frame(frame) {
            Seen::Keepalive { wal_end, .. } if trusts_keepalives => self.trusted = wal_end,
            Seen::Commit { end_lsn } if self.kind == Sabotage::ConfirmsWhatItRead => self.trusted = end_lsn,
            Seen::Begin { .. } | Seen::Commit { .. } | Seen::Keepalive { .. } | Seen::Other => {}
        }
    }

    /// The position that it takes for confirmed.
    pub(crate) fn confirmed(&self, pipeline: &Pipeline) -> Lsn {
        match self.kind {
            Sabotage::ConfirmsPlusOne => Lsn(pipeline.confirmed().0 + 1),
            Sabotage::ConfirmsWhatItSkips => pipeline.ledger().confirmed(),
            _ => pipeline.confirmed().max(Lsn(self.trusted)),
        }
    }
}
