//! How far a replay is: a bar on a terminal, a line in the log now and then elsewhere.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::pump::Tally;
use crate::pipeline::Lsn;

const TOLD_EVERY: Duration = Duration::from_secs(10);

/// What the whole is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whole {
    /// Bytes of log.
    Log {
        from: Lsn,
        until: Lsn,
    },
    Rows(u64),
}

pub(super) struct Meter {
    whole: Whole,
    bar: Option<ProgressBar>,
    told: Instant,
}

impl Meter {
    pub(super) fn new(whole: Whole) -> Meter {
        let style = ProgressStyle::with_template(
            "replaying [{bar:40}] {percent}% {elapsed_precise}, {eta_precise} left, {msg}",
        )
        .expect("the template is right");
        let length = match whole {
            Whole::Log { from, until } => until.bytes_since(from),
            Whole::Rows(rows) => rows,
        };
        let bar = stderr().is_terminal().then(|| ProgressBar::new(length).with_style(style));
        Meter { whole, bar, told: Instant::now() }
    }

    pub(super) fn show(&mut self, tally: &Tally, reached: Lsn, trouble: Option<&str>) {
        let trouble = trouble.map(|trouble| format!("; {trouble}")).unwrap_or_default();
        let done = match self.whole {
            Whole::Log { from, .. } => reached.bytes_since(from),
            Whole::Rows(_) => tally.events + tally.poison,
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(format!("{} events{trouble}", tally.events));
            }
            None if self.told.elapsed() >= TOLD_EVERY => {
                tracing::info!("replaying: {} events so far{trouble}", tally.events);
                self.told = Instant::now();
            }
            None => {}
        }
    }

    pub(super) fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
