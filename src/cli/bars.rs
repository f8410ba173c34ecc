//! Progress bars on a terminal, and a standard error that does not write through them.

use std::{
    io::{self, IsTerminal, Write},
    sync::LazyLock,
};

use indicatif::{MultiProgress, ProgressBar};

static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Shows a bar below what is written. None: standard error is no terminal.
pub(super) fn show(bar: ProgressBar) -> Option<ProgressBar> {
    io::stderr().is_terminal().then(|| BARS.add(bar))
}

/// How much of a whole there is, in one line: `[######--------------] 30%`.
pub(super) fn line(part: u64, whole: u64) -> String {
    const WIDTH: usize = 20;
    let share = if whole == 0 { 1.0 } else { (part as f64 / whole as f64).min(1.0) };
    let filled = (share * WIDTH as f64) as usize;
    format!("[{}{}] {:.0}%", "#".repeat(filled), "-".repeat(WIDTH - filled), (share * 100.0).floor())
}

/// Standard error, with the bars out of the way while something is written.
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        BARS.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_full_when_all_is_there_and_not_before() {
        assert_eq!(line(0, 10), "[--------------------] 0%");
        assert_eq!(line(3, 10), "[######--------------] 30%");
        assert_eq!(line(999, 1000), "[###################-] 99%");
        assert_eq!(line(10, 10), "[####################] 100%");
        assert_eq!(line(20, 10), line(0, 0));
    }
}
