//! When to report the confirmed position (G6).
//!
//! Every `confirm_interval` while it moves, which bounds the duplicates of a crash; every `status_interval` while it
//! rests, then with a request for a keepalive, which is how an idle slot learns that the server went on (G5); at once
//! when the server asks.

use std::time::{Duration, Instant};

use super::{frame::StatusUpdate, lsn::Lsn};

#[derive(Debug)]
pub struct Feedback {
    confirm_interval: Duration,
    status_interval: Duration,
    sent: Lsn,
    sent_at: Instant,
    asked: bool,
}

impl Feedback {
    /// Feedback whose first status is due at once.
    pub fn new(start: Lsn, confirm_interval: Duration, status_interval: Duration, now: Instant) -> Feedback {
        Feedback { confirm_interval, status_interval, sent: start, sent_at: now, asked: true }
    }

    /// The server wants an answer now.
    pub fn reply_requested(&mut self) {
        self.asked = true;
    }

    /// When [`Feedback::due`] is next worth asking.
    pub fn deadline(&self, confirmed: Lsn) -> Instant {
        if self.asked {
            self.sent_at
        } else if confirmed > self.sent {
            self.sent_at + self.confirm_interval
        } else {
            self.sent_at + self.status_interval
        }
    }

    /// The status to send now, if one is due.
    pub fn due(&mut self, confirmed: Lsn, now: Instant) -> Option<StatusUpdate> {
        (now >= self.deadline(confirmed)).then(|| {
            let request_reply = !self.asked && confirmed == self.sent;
            self.report(confirmed, request_reply, now)
        })
    }

    /// The status to send whatever the clock says: the last of a session.
    pub fn last(&mut self, confirmed: Lsn, now: Instant) -> StatusUpdate {
        self.report(confirmed, false, now)
    }

    fn report(&mut self, confirmed: Lsn, request_reply: bool, now: Instant) -> StatusUpdate {
        self.sent = confirmed;
        self.sent_at = now;
        self.asked = false;
        StatusUpdate { confirmed, request_reply }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIRM: Duration = Duration::from_millis(20);
    const STATUS: Duration = Duration::from_secs(10);

    fn begun(start: Instant) -> Feedback {
        let mut feedback = Feedback::new(Lsn(1), CONFIRM, STATUS, start);
        assert!(feedback.due(Lsn(1), start).is_some(), "the first is due at once");
        feedback
    }

    #[test]
    fn a_resting_position_is_reported_on_the_slow_clock_and_asks_for_a_keepalive() {
        let start = Instant::now();
        let mut feedback = begun(start);
        assert_eq!(feedback.due(Lsn(1), start + STATUS - CONFIRM), None);
        let status = feedback.due(Lsn(1), start + STATUS).unwrap();
        assert_eq!(status, StatusUpdate { confirmed: Lsn(1), request_reply: true });
        assert_eq!(feedback.deadline(Lsn(1)), start + STATUS + STATUS);
    }

    #[test]
    fn a_moving_position_is_reported_on_the_fast_clock() {
        let start = Instant::now();
        let mut feedback = begun(start);
        assert_eq!(feedback.deadline(Lsn(2)), start + CONFIRM);
        let status = feedback.due(Lsn(2), start + CONFIRM).unwrap();
        assert_eq!(status, StatusUpdate { confirmed: Lsn(2), request_reply: false });
        assert_eq!(feedback.due(Lsn(2), start + CONFIRM + CONFIRM), None);
    }

    #[test]
    fn a_server_that_asks_is_answered_at_once_and_not_asked_back() {
        let start = Instant::now();
        let mut feedback = begun(start);
        feedback.reply_requested();
        assert_eq!(feedback.due(Lsn(1), start), Some(StatusUpdate { confirmed: Lsn(1), request_reply: false }));
        assert_eq!(feedback.due(Lsn(1), start), None);
    }
}
