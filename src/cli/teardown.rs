//! `walpost teardown`: drops what setup made.

use std::io::{IsTerminal, stdin};

use anyhow::bail;
use tokio_postgres::error::SqlState;

use super::{Exit, ask, output};
use crate::{
    config::{Config, Flags, Needs},
    postgres::{bookmark::Bookmark, quote, server::Server, slot::Slot, sql},
    setup::{
        names,
        record::{self, Kind},
        tables,
        teardown::{self, Facts, Half, Item},
    },
};

/// Drop what setup recorded as made, and nothing else
///
/// Never a slot in use, and no table with rows without --drop-data.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost teardown -c walpost.toml --yes")]
pub struct Args {
    /// Do not ask first.
    #[arg(long, short)]
    yes: bool,
    /// Drop a consumer's inbox, and nothing else.
    #[arg(long)]
    inbox: bool,
    /// Drop tables that hold rows too.
    #[arg(long)]
    drop_data: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE)?;
    let client = sql::connect(&config.database).await?;
    let config = tables::look_up(&client, config).await?;
    let server = Server::read(&client).await?;
    let database = quote::ident(&server.database);
    let facts = match Facts::read(&client, &config, server.major()).await {
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => bail!(
            "role {} may not read {}: log in as the role that ran walpost setup, which owns what is dropped, or as a superuser",
            server.role.name,
            quote::qualified(names::home(&config), record::TABLE)
        ),
        facts => facts?,
    };
    let Some(facts) = facts else {
        output::print(format_args!(
            "database {database} has no record of a set-up in schema {}: nothing is dropped\n{}",
            quote::ident(names::home(&config)),
            unrecorded(
                Slot::read(&client, server.major(), &config.slot).await?,
                Bookmark::all(&client, server.major(), &config.slot).await?,
            ),
        ))?;
        return Ok(Exit::Done);
    };
    let half = if args.inbox { Half::Inbox } else { Half::Outbox };
    let items = teardown::plan(&config, &facts, half, args.drop_data);
    show(&database, &items)?;
    let slot = facts.slot.filter(|_| half == Half::Outbox);
    if let Some(holder) = slot.as_ref().and_then(|slot| slot.holder.as_ref()) {
        let name = holder.application_name.as_deref().unwrap_or("unknown");
        bail!(
            "slot {} is in use by process {} (application {name:?}); stop that walpost first. Nothing is dropped",
            quote::ident(&config.slot),
            holder.pid
        );
    }
    if items.iter().all(|item| item.kept.is_some()) {
        return Ok(Exit::Done);
    }
    if !args.yes {
        if !stdin().is_terminal() {
            bail!("teardown asks before it drops, and standard input is no terminal; say --yes. Nothing is dropped");
        }
        if !ask("Drop it?").await? {
            output::print("nothing is dropped\n")?;
            return Ok(Exit::Done);
        }
    }
    let mut unprinted = Ok(());
    teardown::apply(&client, &config, &server.role.name, &items, |made, kept| {
        unprinted = match kept {
            None => output::print(format_args!("dropped: {made}\n")),
            Some(reason) => output::print(format_args!("kept: {made}: {reason}\n")),
        };
    })
    .await?;
    unprinted?;
    // Such as one that `walpost run` has made.
    let is_on_record =
        |slot: &Slot| items.iter().any(|Item { made, .. }| made.kind == Kind::Slot && made.name == slot.name);
    output::print(unrecorded(slot.filter(|slot| !is_on_record(slot)), Vec::new()))?;
    Ok(Exit::Done)
}

fn show(database: &str, items: &[Item]) -> anyhow::Result<()> {
    let mut text = format!("database {database}\n");
    for Item { made, kept } in items {
        text.push_str(&match kept {
            None => format!("- drop {made}\n"),
            Some(reason) => format!("  keep {made}: {reason}\n"),
        });
    }
    if items.is_empty() {
        text.push_str("nothing is on record\n");
    }
    output::print(text)
}

/// A slot holds back the log whoever made it.
fn unrecorded(slot: Option<Slot>, bookmarks: Vec<Bookmark>) -> String {
    let slots = slot.into_iter().chain(bookmarks.into_iter().map(|bookmark| bookmark.slot));
    let line = |slot: Slot| {
        format!(
            "slot {} exists; if nobody needs it: select pg_drop_replication_slot({})\n",
            quote::ident(&slot.name),
            quote::literal(&slot.name)
        )
    };
    slots.map(line).collect()
}
