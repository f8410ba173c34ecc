//! `walpost dead-letter`: what could not be delivered, and what becomes of it.
//!
//! It looks and marks; the running walpost sends (see the hand-over in [`crate::postgres::dead_letter`]).

mod shown;

use std::{
    collections::BTreeSet,
    io::{IsTerminal, stdin},
    pin::pin,
    time::SystemTime,
};

use anyhow::bail;
use clap::ArgGroup;
use futures_util::TryStreamExt;
use serde_json::json;

use self::shown::{as_json, as_line, as_text};
use super::{Exit, ask, moment::moment, output};
use crate::{
    config::{Config, Flags, Needs},
    postgres::dead_letter::{Desk, ParkKey, ReasonClass, Selection, State, Stored},
    printable::printable_json,
    setup::names,
};

/// States in which a letter waits for a decision.
const OPEN: [State; 2] = [State::Dead, State::Parked];

/// List, show, replay or discard events that could not be delivered
///
/// Each is a row of the table of dead letters, with later events of its aggregate that are parked behind it. The commands
/// show and mark rows; the walpost that streams from the slot sends what is marked.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost dead-letter list --since 1d")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(List),
    Show(Show),
    Replay(Replay),
    Discard(Discard),
}

/// Which dead letters are meant. Values of one option add up, options narrow each other down.
#[derive(clap::Args)]
struct Which {
    /// Events with this id; repeatable.
    #[arg(long = "id", value_name = "EVENT")]
    ids: Vec<String>,
    /// Events of this aggregate id; repeatable.
    #[arg(long, value_name = "ID")]
    aggregate: Vec<String>,
    /// too_large, invalid_topic, unroutable, unknown_topic, rejected or parked; repeatable.
    #[arg(long, value_name = "REASON")]
    reason: Vec<ReasonClass>,
    /// dead, parked, replayed or discarded; repeatable.
    #[arg(long, value_name = "STATE")]
    state: Vec<State>,
    /// Failed at or after this time, as in 2026-01-31T08:00:00Z, or that long ago, as in 2h.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Failed before this time, or longer ago.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<SystemTime>,
}

/// Print a line for each dead letter, in the order of the log
///
/// Without --state those that wait for a decision: dead and parked ones.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost dead-letter list --reason too_large --since 1d")]
struct List {
    #[command(flatten)]
    which: Which,
    /// Print one JSON object a line, without payload and headers.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Print whole dead letters, with headers and payload
///
/// Bytes that are not UTF-8 are in hexadecimal; in JSON in base64, under a name that ends in _base64.
#[derive(clap::Args)]
#[command(
    group(chosen()),
    after_help = "Example:\n  walpost dead-letter show --id 0b2f3c1e-6a52-4b58-9d59-0d6a2a3f6a11"
)]
struct Show {
    #[command(flatten)]
    which: Which,
    /// All dead letters, settled ones included.
    #[arg(long)]
    all: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Mark dead letters to be sent again by the running walpost
///
/// Order must hold: of an aggregate that is parked all parked events go, in order, also when only one is meant. Later
/// events of it wait until the last of them is delivered.
#[derive(clap::Args)]
#[command(group(chosen()), after_help = "Example:\n  walpost dead-letter replay --aggregate o-812")]
struct Replay {
    #[command(flatten)]
    which: Which,
    /// All that are dead or parked.
    #[arg(long)]
    all: bool,
    /// Show what would be marked, and mark nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Decide that dead letters are never sent
///
/// Only those that are meant: what is parked behind them stays, until it is replayed or discarded too.
#[derive(clap::Args)]
#[command(
    group(chosen()),
    after_help = "Example:\n  walpost dead-letter discard --reason unroutable --until 7d --dry-run"
)]
struct Discard {
    #[command(flatten)]
    which: Which,
    /// All that are dead or parked.
    #[arg(long)]
    all: bool,
    /// Show what would be discarded, and discard nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask first.
    #[arg(long, short)]
    yes: bool,
    /// Print JSON; goes with --yes or --dry-run.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// One way or the other it must be said which letters are meant.
fn chosen() -> ArgGroup {
    ArgGroup::new("chosen")
        .args(["ids", "aggregate", "reason", "state", "since", "until", "all"])
        .required(true)
        .multiple(true)
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::List(args) => list(args).await,
        Command::Show(args) => show(args).await,
        Command::Replay(args) => replay(args).await,
        Command::Discard(args) => discard(args).await,
    }
}

async fn list(args: List) -> anyhow::Result<Exit> {
    let desk = open(&args.flags, false).await?;
    let mut selection = args.which.selection();
    if selection.states.is_empty() {
        selection.states = OPEN.to_vec();
    }
    let mut letters = pin!(desk.select(&selection, false).await?);
    let mut count = 0_u64;
    while let Some(letter) = letters.try_next().await? {
        count += 1;
        output::print(if args.json { json_line(&letter, false) } else { as_line(&letter) })?;
    }
    if !args.json {
        output::print(match count {
            0 => "no dead letter matches\n".to_owned(),
            1 => "1 dead letter\n".to_owned(),
            count => format!("{count} dead letters\n"),
        })?;
    }
    Ok(Exit::Done)
}

async fn show(args: Show) -> anyhow::Result<Exit> {
    let desk = open(&args.flags, false).await?;
    let mut letters = pin!(desk.select(&args.which.selection(), true).await?);
    let mut found = false;
    while let Some(letter) = letters.try_next().await? {
        found = true;
        output::print(if args.json { json_line(&letter, true) } else { as_text(&letter) })?;
    }
    if !found {
        bail!("no dead letter matches");
    }
    Ok(Exit::Done)
}

async fn replay(args: Replay) -> anyhow::Result<Exit> {
    let desk = open(&args.flags, true).await?;
    let matched = matched(&desk, &args.which).await?;
    let (meant, lost): (Vec<_>, Vec<_>) = matched.into_iter().partition(|letter| letter.letter.topic.is_some());
    let mut chosen = desk.parked(&park_keys(&meant)).await?;
    let meant_count = meant.len();
    chosen.extend(meant.into_iter().filter(|letter| letter.state == State::Dead));
    let behind = chosen.len().saturating_sub(meant_count);
    let marked = if args.dry_run { 0 } else { desk.request_replay(&ids(&chosen)).await? };
    let late = chosen.iter().filter(|letter| letter.letter.later_delivered).count();
    if args.json {
        let events: Vec<_> = chosen.iter().map(|letter| as_json(letter, false)).collect();
        let answer = json!({
            "dry_run": args.dry_run,
            "marked": marked,
            "parked_with_them": behind,
            "without_topic": lost.len(),
            "after_later_events": late,
            "events": events,
        });
        output::print(printable_json(&answer.to_string()) + "\n")?;
    } else {
        let mut text = String::new();
        if args.dry_run {
            chosen.iter().for_each(|letter| text.push_str(&as_line(letter)));
        }
        let verb = if args.dry_run { "would be marked" } else { "marked" };
        text.push_str(&format!("{verb} for replay: {}", events(chosen.len())));
        if behind > 0 {
            text.push_str(&format!(", {behind} of them because what is parked together goes together, in order"));
        }
        text.push('\n');
        if !args.dry_run && (marked as usize) < chosen.len() {
            text.push_str(&format!("of these marked before already: {}\n", events(chosen.len() - marked as usize)));
        }
        if late > 0 {
            text.push_str(&format!(
                "out of order: {} of an aggregate whose later ones went on without it\n",
                events(late)
            ));
        }
        if !lost.is_empty() {
            text.push_str(&format!(
                "passed over: {} without a topic; insert them again, mended, and discard these\n",
                events(lost.len())
            ));
        }
        if !args.dry_run && !chosen.is_empty() {
            text.push_str("the running walpost sends them; later events of their aggregates wait until it has\n");
        }
        output::print(text)?;
    }
    Ok(if chosen.is_empty() { Exit::Failed } else { Exit::Done })
}

async fn discard(args: Discard) -> anyhow::Result<Exit> {
    let desk = open(&args.flags, true).await?;
    let matched = matched(&desk, &args.which).await?;
    let mut discarded = 0;
    if !args.dry_run {
        if !args.yes {
            if args.json || !stdin().is_terminal() {
                bail!("discard asks first, and there is nobody to ask; say --yes. Nothing is discarded");
            }
            let lines: String = matched.iter().map(as_line).collect();
            if !ask(&format!("{lines}Discard {}, never to be sent?", events(matched.len()))).await? {
                output::print("nothing is discarded\n")?;
                return Ok(Exit::Done);
            }
        }
        discarded = desk.discard(&ids(&matched)).await?;
    }
    let gone: BTreeSet<_> = ids(&matched).into_iter().collect();
    let behind = desk.parked(&park_keys(&matched)).await?;
    let behind = behind.iter().filter(|letter| !gone.contains(&letter.id)).count();
    if args.json {
        let events: Vec<_> = matched.iter().map(|letter| as_json(letter, false)).collect();
        let answer = json!({
            "dry_run": args.dry_run, "discarded": discarded, "still_parked_behind": behind, "events": events,
        });
        output::print(printable_json(&answer.to_string()) + "\n")?;
    } else {
        let mut text = String::new();
        if args.dry_run {
            matched.iter().for_each(|letter| text.push_str(&as_line(letter)));
            text.push_str(&format!("would be discarded: {}\n", events(matched.len())));
        } else {
            text.push_str(&format!("discarded: {}\n", events(discarded as usize)));
        }
        if behind > 0 {
            text.push_str(&format!("still parked behind: {}; replay or discard them too\n", events(behind)));
        }
        output::print(text)?;
    }
    Ok(Exit::Done)
}

/// Connects, and sees that this role may do what is about to be done.
async fn open(flags: &Flags, to_mark: bool) -> anyhow::Result<Desk> {
    let config = Config::load(flags, Needs::DATABASE)?;
    let desk = Desk::connect(&config.database, &config.slot, names::home(&config)).await?;
    let table = desk.table();
    match desk.access().await? {
        None => bail!("there is no table {table}; walpost setup makes it"),
        Some(access) => match access.lack(table, to_mark) {
            Some(lack) => bail!(lack),
            None => Ok(desk),
        },
    }
}

/// The open letters that are meant; that there is none is an error.
async fn matched(desk: &Desk, which: &Which) -> anyhow::Result<Vec<Stored>> {
    let mut selection = which.selection();
    let asked = selection.states.clone();
    selection.states = OPEN.into_iter().filter(|state| asked.is_empty() || asked.contains(state)).collect();
    if selection.states.is_empty() {
        bail!("what is replayed or discarded is settled; only dead and parked letters can be marked");
    }
    let letters: Vec<_> = desk.select(&selection, false).await?.try_collect().await?;
    if letters.is_empty() {
        bail!("no dead or parked letter matches");
    }
    Ok(letters)
}

fn ids(letters: &[Stored]) -> Vec<i64> {
    letters.iter().map(|letter| letter.id).collect()
}

/// The keys under which letters hold others up, each once.
fn park_keys(letters: &[Stored]) -> Vec<ParkKey> {
    let parked = letters.iter().filter(|letter| letter.state == State::Parked);
    let keys: BTreeSet<_> = parked.filter_map(|letter| letter.letter.park_key).collect();
    keys.into_iter().collect()
}

fn events(count: usize) -> String {
    format!("{count} event{}", if count == 1 { "" } else { "s" })
}

fn json_line(letter: &Stored, bodies: bool) -> String {
    printable_json(&as_json(letter, bodies).to_string()) + "\n"
}

impl Which {
    fn selection(&self) -> Selection {
        Selection {
            event_ids: self.ids.clone(),
            aggregate_ids: self.aggregate.clone(),
            reasons: self.reason.clone(),
            states: self.state.clone(),
            since: self.since,
            until: self.until,
        }
    }
}
