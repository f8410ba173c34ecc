//! Dead letters on their way back: asked for, sent again, acknowledged by Kafka, settled in the table.

use std::collections::{HashMap, VecDeque};

use crate::{
    pipeline::{Position, Record, Ticket},
    postgres::dead_letter::{ParkKey, Replayed, Stored},
};

#[derive(Default)]
pub(super) struct Replay {
    unsent: VecDeque<Stored>,
    /// Under way, by ticket.
    sent: HashMap<Ticket, Sent>,
    acknowledged: Vec<Sent>,
    next: u64,
}

struct Sent {
    replayed: Replayed,
    /// None: not known, or it was dead alone.
    park_key: Option<ParkKey>,
}

impl Replay {
    /// These are asked for, in this order. What has no topic cannot be sent.
    pub(super) fn request(&mut self, rows: Vec<Stored>) {
        self.unsent.extend(rows.into_iter().filter(|row| row.letter.topic.is_some()));
    }

    /// An earlier event of this key has become a dead letter: what comes after it stays asked for.
    pub(super) fn withhold(&mut self, key: ParkKey, position: Position) {
        self.unsent.retain(|row| row.letter.park_key != Some(key) || row.letter.position < position);
    }

    /// The next record; it is taken for sent when `send` takes it.
    pub(super) fn send_next<E>(&mut self, send: impl FnOnce(&Record<'_>) -> Result<(), E>) -> Result<bool, E> {
        let Some(row) = self.unsent.pop_front() else { return Ok(false) };
        let ticket = Ticket(Ticket::OTHERS.0 + self.next);
        self.next += 1;
        self.sent.insert(ticket, Sent { replayed: row.replayed(), park_key: row.letter.park_key });
        row.letter.replay(ticket, send)?;
        Ok(true)
    }

    /// Kafka has the record.
    pub(super) fn delivered(&mut self, ticket: Ticket) {
        let sent = self.sent.remove(&ticket).expect("the record was sent, and is acknowledged once");
        self.acknowledged.push(sent);
    }

    /// The record is not delivered. What is not sent yet stays asked for: it may come behind it.
    pub(super) fn withdraw(&mut self, ticket: Ticket) {
        self.sent.remove(&ticket).expect("the record was sent, and comes back once");
        self.stop();
    }

    /// Kafka has these of an earlier session.
    pub(super) fn found(&mut self, replayed: Vec<Replayed>) {
        self.acknowledged.extend(replayed.into_iter().map(|replayed| Sent { replayed, park_key: None }));
    }

    /// What was sent and is not settled.
    pub(super) fn unsettled(&self) -> Vec<Replayed> {
        self.sent.values().chain(&self.acknowledged).map(|sent| sent.replayed).collect()
    }

    pub(super) fn is_under_way(&self) -> bool {
        !self.unsent.is_empty() || !self.sent.is_empty() || !self.acknowledged.is_empty()
    }

    /// All that was sent is acknowledged, and not settled yet.
    pub(super) fn hands_over(&self) -> bool {
        self.unsent.is_empty() && self.sent.is_empty() && !self.acknowledged.is_empty()
    }

    /// What was acknowledged is settled. Gives the key of each, where it has one.
    pub(super) fn settled(&mut self) -> Vec<ParkKey> {
        self.acknowledged.drain(..).filter_map(|sent| sent.park_key).collect()
    }

    /// Sends nothing more.
    pub(super) fn stop(&mut self) {
        self.unsent.clear();
    }
}
