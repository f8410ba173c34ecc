//! Logs: to standard error, times in UTC, as lines or as JSON.
//!
//! At a plain level (`--log-level debug`) only walpost speaks at that level; librdkafka and the rest of the libraries
//! stay quiet, because what they have to say comes back as errors that walpost reports. A filter with targets
//! (`--log-level librdkafka=debug,walpost=info`, or `RUST_LOG`) is taken as it is. RabbitMQ's client is silent whatever is
//! asked for: it logs payloads and passwords.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::{
    filter::filter_fn,
    fmt,
    layer::SubscriberExt,
    registry::{LookupSpan, Registry},
    util::SubscriberInitExt,
};

use super::bars::Stderr;
use crate::{
    config::Environment,
    loggers::{LevelError, Loggers, is_misspelt},
};

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
    #[error(transparent)]
    Level(#[from] LevelError),
    #[error("WALPOST_LOG_FORMAT: {0:?} is no form of logs; use text or json")]
    Form(String),
}

/// Starts the logs of the process. Once only.
pub fn start(options: &Options, environment: &Environment) -> Result<Loggers, LogError> {
    let level = options.log_level.clone().or_else(|| environment.get("WALPOST_LOG_LEVEL"));
    if let Some(word) = level.as_deref().filter(|level| is_misspelt(level)) {
        return Err(LevelError::Level { level: word.to_owned(), source: None }.into());
    }
    let level = level.or_else(|| environment.get("RUST_LOG"));
    let (loggers, heard) = heard(level.as_deref().unwrap_or("info"))?;
    let lines = fmt::layer()
        .with_writer(|| Stderr)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()))
        // A closed standard error must not end the stream.
        .log_internal_errors(false);
    match form(options.log_format, environment.get("WALPOST_LOG_FORMAT"))? {
        Format::Text => heard.with(lines).init(),
        Format::Json => heard.with(lines.json().flatten_event(true)).init(),
    }
    Ok(loggers)
}

fn form(flag: Option<Format>, variable: Option<String>) -> Result<Format, LogError> {
    match (flag, variable) {
        (Some(form), _) => Ok(form),
        (None, Some(text)) => Format::from_str(&text, true).map_err(|_| LogError::Form(text)),
        (None, None) => Ok(Format::Text),
    }
}

/// What gets into the logs. No directive of the filter gets past [`SILENT`], however exact it is.
fn heard(typed: &str) -> Result<(Loggers, impl Subscriber + for<'a> LookupSpan<'a>), LevelError> {
    let (loggers, filter) = Loggers::start(typed)?;
    let may_speak = filter_fn(|metadata| {
        let is_of =
            |name| metadata.target().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        !SILENT.into_iter().any(is_of)
    });
    Ok((loggers, Registry::default().with(filter).with(may_speak)))
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
        time::SystemTime,
    };

    use super::*;
    use crate::loggers::ROOT;

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
    fn no_filter_makes_the_client_that_logs_payloads_speak() {
        for typed in ["trace,lapin=trace", "lapin::channel=trace,walpost=trace", "[said]=trace,walpost=trace"] {
            let said = Said::default();
            let writer = said.clone();
            let (loggers, heard) = heard("off").unwrap();
            loggers.set(ROOT, typed, SystemTime::UNIX_EPOCH).unwrap();
            let logs = heard.with(fmt::layer().with_writer(move || writer.clone()));
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
    fn what_is_no_form_is_refused() {
        assert!(matches!(form(None, Some("xml".to_owned())), Err(LogError::Form(_))));
        assert!(matches!(form(None, Some("JSON".to_owned())), Ok(Format::Json)));
        assert!(matches!(form(Some(Format::Text), Some("json".to_owned())), Ok(Format::Text)));
    }
}
