//! The walpost binary: from the command line to an exit code.

use std::process::ExitCode;

use clap::Parser;
use walpost::{
    cli::{self, Cli, Exit, logging, output},
    config::Environment,
};

/// Set to 1 it leaves core files, and debuggers of the same user, to what the system allows.
const CORE_DUMPS: &str = "WALPOST_CORE_DUMPS";

fn main() -> ExitCode {
    // Memory holds passwords and payloads: no core file, wherever the system sends them, and no look from outside.
    if std::env::var_os(CORE_DUMPS).is_none_or(|value| value != "1") {
        // Where that cannot be had, the system has no core files either.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            let exit = if answer.use_stderr() { Exit::Usage } else { Exit::Done };
            // Help and version are answers too; a reader that has gone needs neither.
            let _ = cli::without_secrets(answer).print();
            return exit.into();
        }
    };
    let loggers = match logging::start(&cli.log, &Environment::of_process()) {
        Ok(loggers) => loggers,
        Err(error) => {
            output::print_error(&error.into());
            return Exit::Usage.into();
        }
    };
    // One thread: the stream is one task, and a second thread only adds wake-ups to it.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::print_error(&anyhow::Error::from(error).context("the runtime cannot start"));
            return Exit::Failed.into();
        }
    };
    let exit = runtime.block_on(cli::run(cli.command, loggers)).unwrap_or_else(|error| {
        let exit = Exit::of(&error);
        if exit != Exit::Done {
            output::print_error(&error);
        }
        exit
    });
    // A call of librdkafka that waits for Kafka on a thread of its own is not waited for.
    runtime.shutdown_background();
    exit.into()
}
