//! Logs: to standard error, times in UTC, as lines or as JSON.
//!
//! At a plain level (`--log-level debug`) only walpost speaks at that level; librdkafka and the rest of the libraries
//! stay quiet, because what they have to say comes back as errors that walpost reports. A filter with targets
//! (`--log-level librdkafka=debug,walpost=info`, or `RUST_LOG`) is taken as it is. RabbitMQ's client is silent whatever is
//! asked for: it logs payloads and passwords.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    filter::{ParseError, filter_fn},
    fmt,
    layer::SubscriberExt,
    registry::{LookupSpan, Registry},
    util::SubscriberInitExt,
};

use super::bars::Stderr;
use crate::config::Environment;

/// RabbitMQ's client logs returned messages with their payload, and the frames that log in.
const SILENT: [&str; 2] = ["lapin", "amq_protocol_tcp"];

/// Behind a command's own flags.
const LAST: usize = 900;

/// How logs are written.
#[derive(clap::Args)]
pub struct Options {
    /// Form of the logs [default: text] [variable: WALPOST_LOG_FORMAT].
    #[arg(long, global = true, value_name = "FORM", display_order = LAST)]
    log_format: Option<Format>,
    /// error, warn, info, debug, trace, or a filter as in walpost=debug,librdkafka=info [default: info]
    /// [variables: WALPOST_LOG_LEVEL, RUST_LOG].
    #[arg(long, global = true, value_name = "LEVEL", display_order = LAST)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// What logs cannot be written as.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{level:?} is no log level; use error, warn, info, debug, trace, or a filter as in walpost=debug")]
    Level { level: String, source: Option<ParseError> },
    #[error("WALPOST_LOG_FORMAT: {0:?} is no form of logs; use text or json")]
    Form(String),
}

/// Starts the logs of the process. Once only.
pub fn start(options: &Options, environment: &Environment) -> Result<(), LogError> {
    let level = options.log_level.clone().or_else(|| environment.get("WALPOST_LOG_LEVEL"));
    if let Some(word) = level.as_deref().filter(|level| is_misspelt(level)) {
        return Err(LogError::Level { level: word.to_owned(), source: None });
    }
    let level = level.or_else(|| environment.get("RUST_LOG"));
    let heard = heard(level.as_deref().unwrap_or("info"))?;
    let lines = fmt::layer()
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()))
        // A closed standard error must not end the stream.
        .log_internal_errors(false);
    match form(options.log_format, environment.get("WALPOST_LOG_FORMAT"))? {
        Format::Text => heard.with(lines).init(),
        Format::Json => heard.with(lines.json().flatten_event(true)).init(),
    }
    Ok(())
}

fn form(flag: Option<Format>, variable: Option<String>) -> Result<Format, LogError> {
    match (flag, variable) {
        (Some(form), _) => Ok(form),
        (None, Some(text)) => Format::from_str(&text, true).map_err(|_| LogError::Form(text)),
        (None, None) => Ok(Format::Text),
    }
}

/// A filter would take any word for a target, and a misspelt level then silences all logs.
fn is_misspelt(typed: &str) -> bool {
    typed.parse::<LevelFilter>().is_err() && typed.chars().all(|c| c.is_ascii_alphanumeric())
}

fn filter(typed: &str) -> Result<EnvFilter, LogError> {
    let directives = match typed.parse::<LevelFilter>() {
        Ok(level) => format!("warn,librdkafka=error,rdkafka=error,walpost={level}"),
        Err(_) => typed.to_owned(),
    };
    EnvFilter::builder()
        .parse(directives)
        .map_err(|source| LogError::Level { level: typed.to_owned(), source: Some(source) })
}

/// What gets into the logs. No directive of the filter gets past [`SILENT`], however exact it is.
fn heard(typed: &str) -> Result<impl Subscriber + for<'a> LookupSpan<'a>, LogError> {
    let may_speak = filter_fn(|metadata| {
        let is_of =
            |name| metadata.target().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        !SILENT.into_iter().any(is_of)
    });
    Ok(Registry::default().with(filter(typed)?).with(may_speak))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_plain_level_is_walposts_alone() {
        let shown = |level| filter(level).unwrap().to_string();
        assert!(shown("debug").contains("walpost=debug"));
        assert!(shown("debug").contains("librdkafka=error"));
        assert_eq!(shown("librdkafka=debug"), "librdkafka=debug");
    }

    #[test]
    fn no_filter_makes_the_client_that_logs_payloads_speak() {
        for typed in ["trace,lapin=trace", "lapin::channel=trace,walpost=trace", "[said]=trace,walpost=trace"] {
            let said = Said::default();
            let writer = said.clone();
            let logs = heard(typed).unwrap().with(fmt::layer().with_writer(move || writer.clone()));
            tracing::subscriber::with_default(logs, || {
                let _said = tracing::error_span!("said").entered();
                tracing::error!(target: "lapin", "payload");
                tracing::trace!(target: "lapin::channel", "payload");
                tracing::trace!(target: "walpost", "heard");
            });
            let said = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
            assert!(said.contains("heard") && !said.contains("payload"), "{typed}: {said}");
        }
    }

    #[test]
    fn what_is_no_level_or_form_is_refused() {
        for level in ["walpost=loud", "walpost==", "a=b=c"] {
            assert!(filter(level).is_err(), "{level}");
        }
        for (level, misspelt) in [("inof", true), ("INFO", false), ("off", false), ("walpost=debug", false)] {
            assert_eq!(is_misspelt(level), misspelt, "{level}");
        }
        assert!(matches!(form(None, Some("xml".to_owned())), Err(LogError::Form(_))));
        assert!(matches!(form(None, Some("JSON".to_owned())), Ok(Format::Json)));
        assert!(matches!(form(Some(Format::Text), Some("json".to_owned())), Ok(Format::Text)));
    }
}
