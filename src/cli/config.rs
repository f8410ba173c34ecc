//! `walpost config`: what the configuration comes to, what a connector's would, and which keys there are.

use std::path::PathBuf;

use crate::config::{Environment, Flags, Needs, Reference, Settings, connector::Import, schema};

use super::{Exit, output};

/// Show the configuration
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost config show -c walpost.toml")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Show(Show),
    Import(ImportArgs),
    Reference(ReferenceArgs),
    Schema(SchemaArgs),
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

/// Print the configuration that a Debezium connector's comes to: each line with its origin, secrets left out
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  walpost config import connector.json\n  walpost config import connector.properties --worker connect-standalone.properties"
)]
struct ImportArgs {
    /// The connector's JSON, its properties, or Debezium Server's application.properties.
    file: PathBuf,
    /// Properties of the Kafka Connect worker: brokers, converters, security.
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    /// Refuse unknown keys.
    #[arg(long)]
    strict: bool,
}

/// Print every key with its values and its default, as a page in Markdown
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost config reference > configuration-keys.md")]
struct ReferenceArgs {}

/// Print a JSON Schema of the configuration file, for editors that complete and check TOML
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  walpost config schema > walpost.schema.json\n\nThe first line `#:schema ./walpost.schema.json` of walpost.toml leads an editor to it."
)]
struct SchemaArgs {}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Show(args) => show(args),
        Command::Import(args) => import(args),
        Command::Reference(ReferenceArgs {}) => {
            output::print(Reference)?;
            Ok(Exit::Done)
        }
        Command::Schema(SchemaArgs {}) => {
            output::print(format_args!("{}\n", serde_json::to_string_pretty(&schema())?))?;
            Ok(Exit::Done)
        }
    }
}

fn import(ImportArgs { file, worker, strict }: ImportArgs) -> anyhow::Result<Exit> {
    let import = Import::read(&file, worker.as_deref(), strict, &Environment::of_process())?;
    output::print(import.to_toml())?;
    Ok(Exit::Done)
}

fn show(Show { json, flags }: Show) -> anyhow::Result<Exit> {
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
        let Command::Show(show) = &self.command else { panic!("only `show` has flags") };
        &show.flags
    }
}
