//! `walpost config`: what the configuration comes to.

use crate::config::{Environment, Flags, Needs, Settings};

use super::{Exit, output};

/// Show the configuration
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(Show),
}

/// Print the resolved configuration: each value with its origin, secrets hidden
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost config show -c walpost.toml --slot orders")]
struct Show {
    /// Print JSON, without the origins.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let Command::Show(Show { json, flags }) = args.command;
    let environment = Environment::of_process();
    let settings = Settings::gather(&flags, &environment)?;
    let config = settings.resolve(&environment, Needs::NOTHING)?;
    if json {
        output::print(format_args!("{}\n", settings.to_json(&config)?))?;
    } else {
        output::print(settings.to_toml(&config))?;
    }
    Ok(Exit::Done)
}

#[cfg(test)]
impl Args {
    pub(super) fn flags(&self) -> &Flags {
        let Command::Show(show) = &self.command;
        &show.flags
    }
}
