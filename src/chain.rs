//! An error with all that caused it, on one line.

use std::{error::Error, fmt};

/// Prints each cause once: many errors repeat theirs in their own message.
pub(crate) struct Chain<'e>(pub(crate) &'e dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.contains(&text) {
                line = format!("{line}: {text}");
            }
            cause = error.source();
        }
        f.write_str(&line)
    }
}
