//! What happened, line by line, for the one seed that somebody wants to understand.

use std::{fmt::Display, time::Duration};

/// Positions as PostgreSQL prints them.
pub(crate) struct At(pub(crate) u64);

impl Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

/// Lines are only made when they are wanted: a thousand seeds run silently.
pub(crate) struct Story {
    wanted: bool,
    pub(crate) clock: Duration,
    lines: Vec<String>,
}

impl Story {
    pub(crate) fn silent() -> Story {
        Story { wanted: false, clock: Duration::ZERO, lines: Vec::new() }
    }

    pub(crate) fn told() -> Story {
        Story { wanted: true, ..Story::silent() }
    }

    pub(crate) fn tell<L: Display>(&mut self, who: &str, what: impl FnOnce() -> L) {
        if self.wanted {
            let at_ms = self.clock.as_secs_f64() * 1e3;
            self.lines.push(format!("{at_ms:>12.2} ms  {who:<8} {}", what()));
        }
    }

    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}
