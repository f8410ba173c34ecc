//! `walpost completions`: what a shell completes.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Exit, output};

/// Print the completions of a shell
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost completions bash > ~/.local/share/bash-completion/completions/walpost")]
pub struct Args {
    /// The shell to complete in.
    shell: Shell,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "walpost", &mut script);
    output::print(String::from_utf8(script)?)?;
    Ok(Exit::Done)
}
