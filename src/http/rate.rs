//! A bound on how often something may be asked, for all clients together.

use std::{
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use axum::{
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::connect::Refused;

/// When whoever is refused may ask again, in seconds.
const AGAIN: &str = "2";

/// Tokens that calls take, and that come back with time.
#[derive(Debug)]
pub(super) struct Bucket {
    burst: f64,
    /// How long one takes to come back.
    interval: Duration,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// Full: so many calls at once, and one more with every `interval`.
    pub(super) fn new(burst: u32, interval: Duration) -> Bucket {
        let level = Level { tokens: burst.into(), at: Instant::now() };
        Bucket { burst: burst.into(), interval, level: Mutex::new(level) }
    }

    /// Whether there was one to take.
    pub(super) fn take(&self) -> bool {
        let mut level = self.level(Instant::now());
        let there = level.tokens >= 1.0;
        if there {
            level.tokens -= 1.0;
        }
        there
    }

    pub(super) fn is_empty(&self) -> bool {
        self.level(Instant::now()).tokens < 1.0
    }

    fn level(&self, now: Instant) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock().expect("nobody panics while holding the level");
        let back = now.saturating_duration_since(level.at).as_secs_f64() / self.interval.as_secs_f64();
        level.tokens = (level.tokens + back).min(self.burst);
        level.at = now;
        level
    }
}

/// 429, and when to try again.
pub(super) fn later(message: String) -> Response {
    ([(header::RETRY_AFTER, AGAIN)], Refused::new(StatusCode::TOO_MANY_REQUESTS, message)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_up_to_the_burst() {
        let bucket = Bucket::new(3, Duration::from_secs(1));
        let begun = Instant::now();
        assert_eq!([0; 4].map(|_| bucket.take()), [true, true, true, false]);
        assert!(bucket.is_empty());
        assert!(bucket.level(begun + Duration::from_millis(1_500)).tokens >= 1.0);
        assert_eq!(bucket.level(begun + Duration::from_secs(900)).tokens, 3.0, "no more than the burst");
        assert_eq!(bucket.level(begun).tokens, 3.0, "a clock that goes back takes nothing away");
    }
}
