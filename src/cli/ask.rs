//! Questions on the terminal.

use std::io::{BufRead, stdin};

use super::output;

/// Asks for a yes. Anything else, and the end of input, is a no.
pub(super) async fn ask(question: &str) -> anyhow::Result<bool> {
    output::print(format_args!("{question} [y/N] "))?;
    // Nothing else is going on while a person thinks.
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
