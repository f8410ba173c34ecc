//! A connector's counterpart as people may see it: a configuration file, each line with its origin.

use std::fmt::Write;

use super::{Host, Import};
use crate::config::show::{COMMENT_AT, quoted};

impl Import {
    /// The configuration file, then what it cannot say. No secret is in it.
    pub fn to_toml(&self) -> String {
        let counterpart = self.counterpart();
        let mut text = String::new();
        let host = match self.connector.host {
            Host::Connect => "Kafka Connect",
            Host::Server => "Debezium Server",
        };
        let name = self.connector.name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        push(&mut text, format_args!("# Connector{name} of {host}, from {}.\n", self.given.origin));
        let mut section = "";
        for line in &counterpart.lines {
            if line.section == "[[outbox]]" {
                push(&mut text, format_args!("\n[[outbox]]\n"));
            } else if line.section != section {
                push(&mut text, format_args!("\n[{}]\n", line.section));
            }
            section = line.section;
            let entry = format!("{} = {}", quoted(&line.name), line.value);
            push(&mut text, format_args!("{entry:<COMMENT_AT$} # {}\n", line.origin));
        }
        if !counterpart.notes.is_empty() || !self.remarks.is_empty() {
            push(&mut text, format_args!("\n# What this does not say:\n"));
        }
        for note in &counterpart.notes {
            push(&mut text, format_args!("# - {note}\n"));
        }
        for remark in &self.remarks {
            push(&mut text, format_args!("# - {remark}\n"));
        }
        text
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a String takes any text");
}
