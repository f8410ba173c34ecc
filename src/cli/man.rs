//! `walpost man`: the manual, a page for each command.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::CommandFactory;

use super::{Cli, Exit, output};

/// Write the manual's pages into a folder, walpost.1 first among them
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  walpost man --out /usr/local/share/man/man1\n  walpost man --out man && man -l man/walpost-run.1"
)]
pub struct Args {
    /// The folder, which is made where it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) async fn run(Args { out }: Args) -> anyhow::Result<Exit> {
    let name = out.display();
    fs::create_dir_all(&out).with_context(|| format!("the folder {name} cannot be made"))?;
    clap_mangen::generate_to(Cli::command(), &out).with_context(|| format!("no page can be written into {name}"))?;
    output::print(format_args!("the manual is in {name}\n"))?;
    Ok(Exit::Done)
}
