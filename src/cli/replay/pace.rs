//! So many records a second.

use std::time::{Duration, Instant};

/// What a pause of the sink may be made up for at once.
const CATCH_UP: Duration = Duration::from_millis(200);

/// Spreads records evenly over time.
#[derive(Debug)]
pub(super) struct Pace {
    each: Duration,
    /// When the next one is due.
    due: Instant,
}

impl Pace {
    /// `rate` a second, at least one.
    pub(super) fn new(rate: u32, now: Instant) -> Pace {
        Pace { each: Duration::from_secs(1) / rate.max(1), due: now }
    }

    /// When the next record may be sent.
    pub(super) fn next(&self, now: Instant) -> Instant {
        // What was missed by more is not made up for.
        self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now))
    }

    /// A record was sent.
    pub(super) fn sent(&mut self) {
        self.due = self.next(Instant::now()) + self.each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_spread_and_a_pause_is_made_up_for_in_part() {
        let begun = Instant::now() + Duration::from_secs(60);
        let mut pace = Pace::new(100, begun);
        assert_eq!(pace.next(begun), begun);
        pace.sent();
        assert_eq!(pace.next(begun), begun + Duration::from_millis(10));
        let late = begun + Duration::from_secs(10);
        assert_eq!(pace.next(late), late - CATCH_UP);
    }
}
