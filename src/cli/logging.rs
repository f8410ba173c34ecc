//! Logs: to standard error, times in UTC, as lines or as JSON.
//!
//! At a plain level (`--log-level debug`) only walpost speaks at that level; librdkafka and the rest of the libraries
//! stay quiet, because what they have to say comes back as errors that walpost reports. A filter with targets
//! (`--log-level librdkafka=debug,walpost=info`, or `RUST_LOG`) is taken as it is.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// How logs are written.
#[derive(clap::Args)]
pub struct Options {
    /// Form of the logs [variable: WALPOST_LOG_FORMAT].
    #[arg(long, global = true, value_name = "FORM", default_value = "text")]
    #[arg(env = "WALPOST_LOG_FORMAT", hide_env = true, hide_possible_values = false)]
    log_format: Format,
    /// error, warn, info, debug, trace, or a filter as in walpost=debug,librdkafka=info [default: info]
    /// [variables: WALPOST_LOG_LEVEL, RUST_LOG].
    #[arg(long, global = true, value_name = "LEVEL", env = "WALPOST_LOG_LEVEL", hide_env = true)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// A level that is none.
#[derive(Debug, thiserror::Error)]
#[error("{level:?} is no log level; use error, warn, info, debug, trace, or a filter as in walpost=debug")]
pub struct LevelError {
    level: String,
    source: ParseError,
}

/// Starts the logs of the process. Once only.
pub fn start(options: &Options) -> Result<(), LevelError> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(options.log_level.as_deref(), std::env::var("RUST_LOG").ok().as_deref())?)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()))
        // A closed standard error must not end the stream.
        .log_internal_errors(false);
    match options.log_format {
        Format::Text => builder.init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

fn filter(level: Option<&str>, rust_log: Option<&str>) -> Result<EnvFilter, LevelError> {
    let typed = level.or(rust_log).filter(|level| !level.is_empty()).unwrap_or("info");
    let directives = match typed.parse::<LevelFilter>() {
        Ok(level) => format!("warn,librdkafka=error,rdkafka=error,walpost={level}"),
        Err(_) => typed.to_owned(),
    };
    EnvFilter::builder().parse(directives).map_err(|source| LevelError { level: typed.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_level_is_walposts_alone() {
        let shown = |level, rust_log| filter(level, rust_log).unwrap().to_string();
        assert!(shown(None, None).contains("walpost=info"));
        assert!(shown(Some("debug"), Some("trace")).contains("walpost=debug"));
        assert!(shown(None, Some("trace")).contains("walpost=trace"));
        assert!(shown(Some("trace"), None).contains("librdkafka=error"));
        assert_eq!(shown(Some("librdkafka=debug"), None), "librdkafka=debug");
    }

    #[test]
    fn what_is_no_level_is_refused() {
        for level in ["walpost=loud", "walpost==", "a=b=c"] {
            assert!(filter(Some(level), None).is_err(), "{level}");
        }
    }
}
