//! `walpost demo`: the whole story on given servers, told in half a minute.

mod scenes;
mod shop;
mod summary;

use super::{Exit, output};
use crate::{
    config::{Config, Flags, Needs},
    trial::at_site,
};
use scenes::Story;

/// Show on given servers what walpost does, in half a minute
///
/// Places orders with their events, streams them with a walpost of its own, rolls one back, kills walpost in mid-stream
/// and starts it again, and compares what was committed with what a consumer got. All of it in a schema, publication,
/// slot and topic of its own, which are removed at the end. The exit code is 0 only if everything held.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  walpost demo --database-url postgres://postgres@localhost/app --brokers localhost:9092"
)]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE_AND_KAFKA)?;
    let summary = at_site(&config, "demo", async |site| {
        let summary = Story::begin(site, &config, &args.flags).await?.tell().await?;
        output::print(&summary)?;
        Ok(summary)
    })
    .await?;
    let broken = summary.broken();
    if broken.is_empty() {
        output::print(
            "\nNothing was lost, nothing was invented, order was kept. Everything of the demo is removed.\n",
        )?;
        return Ok(Exit::Done);
    }
    output::print(format_args!("\nThis should not be; please report it:\n  {}\n", broken.join("\n  ")))?;
    Ok(Exit::Failed)
}
