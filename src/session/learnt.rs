//! What a process keeps in mind from one session to the next.

use std::time::Instant;

use super::{Reached, Takeover, letters::Culprit};
use crate::{config::Config, sink::kafka::BatchBytes};

/// What earlier sessions of this process learnt.
#[derive(Debug)]
pub struct Learnt {
    pub batches: BatchBytes,
    pub takeover: Takeover,
    /// How far this process has confirmed the slot; none before, and once another process had the slot.
    pub reached: Option<Reached>,
    /// When lost slots were recovered from.
    pub recoveries: Vec<Instant>,
    /// The operator knows that a slot is lost, and wants to go on without what is lost with it.
    pub accept_gap: bool,
    /// Events that Kafka rejected: they become dead letters, or the stream ends before the first, with all that precedes it
    /// delivered.
    pub culprits: Vec<Culprit>,
}

impl Learnt {
    pub fn new(config: &Config, accept_gap: bool) -> Learnt {
        Learnt {
            batches: BatchBytes::of(config),
            takeover: Takeover::default(),
            reached: None,
            recoveries: Vec::new(),
            accept_gap,
            culprits: Vec::new(),
        }
    }

    /// Nobody has met this culprit yet.
    pub fn is_new(&self, culprit: &Culprit) -> bool {
        let is_it = |known: &Culprit| (&known.position, &known.topic) == (&culprit.position, &culprit.topic);
        !self.culprits.iter().any(is_it)
    }
}
