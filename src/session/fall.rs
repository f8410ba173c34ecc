//! How soon the slot is lost to `max_slot_wal_keep_size`.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::postgres::slot::lost_in;

/// A slot that is lost sooner is worth a word.
const LOST_SOON: Duration = Duration::from_secs(10 * 60);

/// Reckons that the log grows on as it did in the last while.
#[derive(Debug, Default)]
pub(super) struct Fall {
    /// When, and how much may be written.
    samples: VecDeque<(Instant, u64)>,
    /// That it is close was said.
    near: bool,
}

impl Fall {
    const SAMPLES_MAX: usize = 13;

    /// Takes in how much may still be written. None: it does not fall, or there is no limit.
    pub(super) fn step(&mut self, safe: Option<u64>, at: Instant) -> Option<Duration> {
        let rises = |&(_, before): &(Instant, u64)| safe.is_none_or(|safe| safe > before);
        if self.samples.back().is_some_and(rises) {
            self.samples.clear();
        } else if self.samples.len() == Fall::SAMPLES_MAX {
            self.samples.pop_front();
        }
        let safe = safe?;
        self.samples.push_back((at, safe));
        let (since, before) = *self.samples.front()?;
        lost_in(before, safe, at - since)
    }

    /// Says once that the slot is close to its limit.
    pub(super) fn warn(&mut self, slot: &str, wal_status: Option<&str>, lost_in: Option<Duration>) {
        let soon = lost_in.filter(|left| *left < LOST_SOON);
        let near = soon.is_some() || wal_status == Some("unreserved");
        if near && !self.near {
            let when =
                soon.map_or_else(|| "with the next checkpoint".to_owned(), |left| format!("in {} s", left.as_secs()));
            tracing::warn!(
                "replication slot {slot} keeps nearly as much log as max_slot_wal_keep_size allows: at this rate PostgreSQL gives \
                 it up {when}; raise the limit, or see to what holds the stream up"
            );
        }
        self.near = near;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_loses_ground_is_lost_at_the_rate_of_the_last_minute() {
        let begun = Instant::now();
        let mut fall = Fall::default();
        let mut step =
            |second: u64, safe| fall.step(safe, begun + Duration::from_secs(second)).map(|left| left.as_secs());
        assert_eq!(step(0, Some(1_000)), None);
        assert_eq!(step(5, Some(1_000)), None, "it stands");
        assert_eq!(step(10, Some(900)), Some(90));
        assert_eq!(step(15, Some(2_000)), None, "it was confirmed");
        for n in 0..13 {
            step(20 + 5 * n, Some(2_000 - 10 * n));
        }
        assert_eq!(step(85, Some(1_380)), Some(135), "the last minute counts");
        assert_eq!(step(90, None), None);
        assert_eq!(step(95, Some(5)), None);
        assert_eq!(step(100, Some(0)), Some(0));
    }
}
