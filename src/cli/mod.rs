//! The command line: what may be typed, and which command does it.
//!
//! A command is a file here with its `Args` and an async `run` that says how it [ended](Exit). To add one: its `mod`
//! line, its [`Command`] and its arm in [`run`]. A command that reads the configuration flattens
//! [`Flags`](crate::config::Flags) into its `Args` and calls [`Config::load`](crate::config::Config::load) with what it
//! needs. What a command answers goes to standard output through [`output`]; logs and errors go to standard error.

mod ask;
mod bars;
mod bench;
mod bookmark;
mod check;
mod completions;
mod config;
mod control;
mod dead_letter;
mod demo;
mod health;
pub mod logging;
mod man;
mod moment;
pub mod output;
mod prune;
mod pulse;
mod reading;
mod replay;
mod run;
mod setup;
mod snapshot;
mod status;
mod systemd;
mod tail;
mod teardown;

use std::{path::PathBuf, process::ExitCode};

use clap::{
    Parser, Subcommand,
    error::{ContextKind, ContextValue},
};

use self::ask::ask;
use crate::{
    config::{Config, ConfigError, FILE_ARGUMENT},
    loggers::Loggers,
    postgres::sql,
    setup::tables,
};

/// Streams a PostgreSQL transactional outbox from the write-ahead log to Kafka, RabbitMQ or webhooks.
///
/// Every key of the configuration is a flag, a WALPOST_… variable, and a key of the TOML file that -c names; a flag
/// prevails over a variable, a variable over the file.
#[derive(Parser)]
#[command(
    name = "walpost",
    version,
    max_term_width = 120,
    after_help = "Examples:\n  walpost setup -c walpost.toml\n  walpost check -c walpost.toml\n  walpost run -c walpost.toml\n\nExit codes: 0 done, 1 failure, 2 usage or configuration, 3 findings of check, or events that replay left out."
)]
pub struct Cli {
    /// Configuration file, in TOML [variable: WALPOST_CONFIG].
    #[arg(id = FILE_ARGUMENT, short = 'c', long = "config", value_name = "PATH", global = true)]
    pub config_file: Option<PathBuf>,
    #[command(flatten)]
    pub log: logging::Options,
    #[command(subcommand)]
    pub command: Command,
}

/// What walpost can do.
#[derive(Subcommand)]
pub enum Command {
    Run(run::Args),
    Snapshot(snapshot::Args),
    Setup(setup::Args),
    Check(check::Args),
    Status(status::Args),
    Health(health::Args),
    Tail(tail::Args),
    Pause(control::Pause),
    Resume(control::Resume),
    Drain(control::Drain),
    LogLevel(control::LogLevel),
    DeadLetter(dead_letter::Args),
    Prune(prune::Args),
    Replay(replay::Args),
    Bookmark(bookmark::Args),
    Teardown(teardown::Args),
    Config(config::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// An answer to the command line that repeats no connection string: one in the wrong place would put its password
/// where standard error goes.
pub fn without_secrets(mut answer: clap::Error) -> clap::Error {
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue] {
        if let Some(ContextValue::String(typed)) = answer.get(kind) {
            if typed.contains("://") || typed.contains("password") && typed.contains('=') {
                answer.insert(kind, ContextValue::String("***".to_owned()));
            }
        }
    }
    answer
}

/// The configuration with the tables of a connector that names none: the database is asked for them.
async fn with_tables(config: Config) -> anyhow::Result<Config> {
    if !config.lacks_tables() {
        return Ok(config);
    }
    let client = sql::connect(&config.database).await?;
    Ok(tables::look_up(&client, config).await?)
}

/// Does what was asked.
pub async fn run(command: Command, loggers: Loggers) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => run::run(args, loggers).await,
        Command::Snapshot(args) => snapshot::run(args).await,
        Command::Setup(args) => setup::run(args).await,
        Command::Check(args) => check::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Tail(args) => tail::run(args).await,
        Command::Pause(args) => args.run().await,
        Command::Resume(args) => args.run().await,
        Command::Drain(args) => args.run().await,
        Command::LogLevel(args) => args.run().await,
        Command::DeadLetter(args) => dead_letter::run(args).await,
        Command::Prune(args) => prune::run(args).await,
        Command::Replay(args) => replay::run(args).await,
        Command::Bookmark(args) => bookmark::run(args).await,
        Command::Teardown(args) => teardown::run(args).await,
        Command::Config(args) => config::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Completions(args) => completions::run(args).await,
        Command::Man(args) => man::run(args).await,
    }
}

/// How a command ended; scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Done = 0,
    /// It failed, and would fail again; or it did not do or find all that was asked for.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// It looked, and found something to mend.
    Findings = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// What an error that ended a command means for the process. A reader who has seen enough (`walpost … | head -1`)
    /// is no failure.
    pub fn of(error: &anyhow::Error) -> Exit {
        if error.is::<output::Closed>() {
            Exit::Done
        } else if error.is::<ConfigError>() || error.is::<bookmark::Unnamed>() {
            Exit::Usage
        } else {
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_file_may_be_named_before_and_behind_the_command() {
        for line in [
            ["walpost", "-c", "w.toml", "config", "show"],
            ["walpost", "config", "-c", "w.toml", "show"],
            ["walpost", "config", "show", "--config", "w.toml"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            let Command::Config(args) = cli.command else { panic!("{line:?}") };
            assert_eq!(args.flags().file(), Some("w.toml".as_ref()), "{line:?}");
        }
    }

    #[test]
    fn errors_decide_the_exit_code() {
        let missing = ConfigError::Missing { path: "brokers", flag: String::new(), variable: String::new() };
        assert_eq!(Exit::of(&anyhow::Error::from(missing).context("while starting")), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::Error::from(output::Closed)), Exit::Done);
        assert_eq!(Exit::of(&anyhow::anyhow!("no")), Exit::Failed);
    }
}
