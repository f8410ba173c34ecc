//! Standard output, for answers.
//!
//! `println!` panics when the reader has gone. Here that is an error like any other, which travels up and ends the
//! command quietly.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// The reader of standard output has gone.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed by its reader")]
pub struct Closed;

/// Prints an answer, and sees it out. Colours are for terminals only.
pub fn print(answer: impl Display) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    write!(out, "{answer}").and_then(|()| out.flush()).map_err(failed)
}

fn failed(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => anyhow::Error::from(error).context("standard output cannot be written"),
    }
}

/// Prints an error to standard error with what caused it, each cause once.
pub fn print_error(error: &anyhow::Error) {
    let mut text = format!("error: {error}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Many errors repeat their cause in their own message.
        if !text.contains(&cause) {
            text.push_str(&format!("  caused by: {cause}\n"));
        }
    }
    // Nobody is left to tell when standard error is closed.
    let _ = anstream::stderr().write_all(text.as_bytes());
}
