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
