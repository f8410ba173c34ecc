//! `walpost bookmark`: copies of the slot that keep its log, so that it can be streamed again.

use anyhow::bail;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::{Exit, output};
use crate::{
    check,
    config::{Config, Flags, Needs},
    postgres::{
        bookmark::{self, Bookmark, Name, NameError},
        progress::{self, Progress},
        quote,
        server::Server,
        slot::{self, Slot, SlotError},
        sql::{self, Sql},
    },
    setup::{names, tables},
};

/// Keep the log from where the stream stands, to replay it later
///
/// A bookmark is a copy of the slot: the server keeps the log, and deleted rows of its catalog, until it is dropped.
/// `walpost replay` and `walpost run --from-lsn` go back to it. With bookmarks.every a running walpost makes some itself.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost bookmark create before_deploy")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Create(Create),
    List(List),
    Drop(Drop),
}

/// Make a bookmark where the slot is confirmed now
///
/// All that was published before is not in it, all that is published later is. The stream goes on meanwhile.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost bookmark create before_deploy")]
struct Create {
    /// Of a-z, 0-9 and _; the copy is named <slot>_bm_<NAME>.
    name: Name,
    #[command(flatten)]
    flags: Flags,
}

/// List the bookmarks of the slot, the oldest position first, and what each makes the server keep
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost bookmark list -c walpost.toml --json")]
struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Drop a bookmark: the server may let its log go
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost bookmark drop before_deploy")]
struct Drop {
    /// As `walpost bookmark list` shows it.
    name: Name,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Create(args) => create(args).await,
        Command::List(args) => list(args).await,
        Command::Drop(args) => drop(args).await,
    }
}

async fn create(args: Create) -> anyhow::Result<Exit> {
    let Open { config, client, server } = Open::with(&args.flags).await?;
    let bookmark = args.name.chosen().and_then(|name| name.of(&config.slot)).map_err(Unnamed)?;
    let Some(slot) = Slot::read(&client, server.major(), &config.slot).await? else {
        return Err(SlotError::Missing(config.slot).into());
    };
    let position = bookmark::create(&client, &config.database, &slot, &bookmark, &server.role.name).await?;
    output::print(format_args!("bookmark {bookmark} keeps the log from {position} on\n"))?;
    Ok(Exit::Done)
}

async fn list(args: List) -> anyhow::Result<Exit> {
    let Open { config, client, server } = Open::with(&args.flags).await?;
    let bookmarks = Bookmark::all(&client, server.major(), &config.slot).await?;
    if args.json {
        let bookmarks: Vec<_> = bookmarks.iter().map(as_json).collect();
        output::print(format_args!("{}\n", json!({ "bookmarks": bookmarks })))?;
    } else if bookmarks.is_empty() {
        output::print(format_args!("slot {} has no bookmarks\n", quote::ident(&config.slot)))?;
    } else {
        output::print(format_args!("{}\n", as_table(&bookmarks).trim_fmt()))?;
    }
    Ok(Exit::Done)
}

async fn drop(args: Drop) -> anyhow::Result<Exit> {
    let Open { config, client, server } = Open::with(&args.flags).await?;
    let bookmark = args.name.of(&config.slot).map_err(Unnamed)?;
    // Best effort: it takes a right that the rest does not.
    let home = names::home(&config);
    if progress::Access::read(&client, home).await?.is_some_and(|access| access.select) {
        let rewind = Progress::read(&client, home, &config.slot).await?.and_then(|known| known.rewind);
        if rewind.is_some_and(|rewind| !rewind.done && rewind.from == bookmark) {
            bail!("bookmark {bookmark} is needed: the stream is to begin again from it, which walpost run finishes");
        }
    }
    slot::drop(&client, &bookmark, &server.role.name).await?;
    output::print(format_args!("dropped: bookmark {bookmark}\n"))?;
    Ok(Exit::Done)
}

/// A name that cannot be, which is an error of usage.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct Unnamed(NameError);

struct Open {
    config: Config,
    client: Sql,
    server: Server,
}

impl Open {
    async fn with(flags: &Flags) -> anyhow::Result<Open> {
        let config = Config::load(flags, Needs::DATABASE)?;
        let client = sql::connect(&config.database).await?;
        let config = tables::look_up(&client, config).await?;
        let server = Server::read(&client).await?;
        Ok(Open { config, client, server })
    }
}

/// A bookmark, for scripts.
pub(super) fn as_json(bookmark: &Bookmark) -> Value {
    let Bookmark { name, slot } = bookmark;
    json!({
        "name": name.to_string(),
        "slot": slot.name,
        "lsn": bookmark.position().map(|lsn| lsn.to_string()),
        "restart_lsn": slot.restart_lsn.map(|lsn| lsn.to_string()),
        "made_at": name.made().map(|made| made.to_string()),
        "retained_bytes": slot.retained_bytes,
        "safe_bytes": slot.safe_bytes,
        "wal_status": slot.wal_status,
        "invalidation_reason": slot.invalidation,
        "failover": slot.failover,
    })
}

fn as_table(bookmarks: &[Bookmark]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["bookmark", "from", "kept log", "log status"]);
    for bookmark in bookmarks {
        let Bookmark { name, slot } = bookmark;
        let kept = slot.retained_bytes.map_or_else(|| "unknown".to_owned(), check::size);
        let status = match &slot.invalidation {
            Some(reason) => format!("lost: {reason}"),
            None => slot.wal_status.clone().unwrap_or_else(|| "unknown".to_owned()),
        };
        let position = slot.confirmed.map_or_else(|| "unknown".to_owned(), |lsn| lsn.to_string());
        table.add_row([name.to_string(), position, kept, status]);
    }
    table
}
