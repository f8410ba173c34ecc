//! A line in the log now and then that tells how the stream is: `log_interval`.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::status::{Now, State, Status};

/// Tells of the stream for as long as the process lives. While the tables are read, that is [told](super::reading) instead.
pub(super) fn start(interval: Duration, status: Arc<Status>) {
    tokio::spawn(async move {
        let mut before = Totals::of(&status.now());
        loop {
            tokio::time::sleep(interval).await;
            let now = status.now().clone();
            let totals = Totals::of(&now);
            if matches!(now.state, State::Streaming | State::Paused) && now.reading.is_none() {
                tell(&now, &totals.since(&before), interval);
            }
            before = totals;
        }
    });
}

fn tell(now: &Now, meanwhile: &Totals, interval: Duration) {
    let at = SystemTime::now();
    tracing::info!(
        state = now.state.word(),
        events = meanwhile.events,
        delivered = meanwhile.delivered,
        dead_letters = meanwhile.dead_letters,
        in_flight = now.in_flight_records,
        lag_seconds = now.lag_seconds(at),
        lag_bytes = now.lag_bytes(at),
        retained_bytes = now.fresh_server(at).map(|server| server.retained_bytes),
        confirmed = now.confirmed.map(tracing::field::display),
        reason = now.reason.as_deref(),
        "the last {}",
        humantime::format_duration(interval)
    );
}

/// What has been counted.
#[derive(Debug, PartialEq, Eq)]
struct Totals {
    events: u64,
    delivered: u64,
    dead_letters: u64,
}

impl Totals {
    fn of(now: &Now) -> Totals {
        Totals {
            events: now.events.values().sum(),
            delivered: now.delivered.sum(),
            dead_letters: now.dead_letters.values().sum(),
        }
    }

    fn since(&self, before: &Totals) -> Totals {
        Totals {
            events: self.events - before.events,
            delivered: self.delivered - before.delivered,
            dead_letters: self.dead_letters - before.dead_letters,
        }
    }
}
