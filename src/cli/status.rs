//! `walpost status`: the slot, and how far behind it is.
//!
//! Bytes come from the server. Seconds only a running walpost knows, so they are asked of its HTTP surface and are
//! unknown without one: no value is made up.

use std::{
    io::{IsTerminal, stdout},
    net::SocketAddr,
    time::Duration,
};

use anyhow::bail;
use comfy_table::{Table, presets};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::{Exit, bars, bookmark, control::Remote, output};
use crate::{
    chain::Chain,
    check,
    config::{Config, Flags, Needs},
    postgres::{
        bookmark::Bookmark,
        progress::{self, Progress, Reading, ReadingKind},
        quote,
        server::Server,
        slot::{Holder, Slot},
        sql,
        unproven::Unproven,
    },
    printable::printable,
    setup::{names, tables},
};

/// How long a walpost on this machine may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a watch may look, and how long one look may take.
const WATCH_MIN: Duration = Duration::from_millis(200);
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);
/// What a terminal does: empty the screen, begin at its top, end a line with nothing behind it, leave nothing below.
const CLEAR: &str = "\x1b[2J";
const HOME: &str = "\x1b[H";
const LINE_END: &str = "\x1b[K\n";
const REST: &str = "\x1b[J";
/// How long the server may look for what is not proven.
const UNPROVEN_LIMIT: Duration = Duration::from_secs(5);

/// Show the slot: who streams from it, and how far behind it is
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  walpost status -c walpost.toml --json\n  walpost status --watch=5s")]
pub struct Args {
    /// Print JSON; with --watch one object a line.
    #[arg(long)]
    json: bool,
    /// Show it again and again, every 2 s or as often as said, until Ctrl-C.
    #[arg(
        long,
        value_name = "EVERY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = every
    )]
    watch: Option<Duration>,
    #[command(flatten)]
    flags: Flags,
}

fn every(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(every) if every >= WATCH_MIN => Ok(every),
        Ok(_) => Err(format!("the server is asked every {} at most", humantime::format_duration(WATCH_MIN))),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE)?;
    match args.watch {
        Some(every) => tokio::select! {
            stopped = tokio::signal::ctrl_c() => stopped.map(|()| Exit::Done).map_err(Into::into),
            ended = watch(&config, args.json, every) => ended,
        },
        None => {
            let client = sql::connect(&config.database).await?;
            output::print(Look::take(&client, &config).await?.text(args.json))?;
            Ok(Exit::Done)
        }
    }
}

/// Never ends by itself: what cannot be seen now may come back.
async fn watch(config: &Config, json: bool, every: Duration) -> anyhow::Result<Exit> {
    let redraws = !json && stdout().is_terminal();
    if redraws {
        output::print(CLEAR)?;
    }
    let mut client = None;
    loop {
        let looked = timeout(WATCH_TIMEOUT, async {
            let client = match client.take() {
                Some(client) => client,
                None => sql::connect(&config.database).await?,
            };
            let look = Look::take(&client, config).await?;
            anyhow::Ok((look, client))
        });
        let text = match looked.await {
            Ok(Ok((look, same))) => {
                client = Some(same);
                look.text(json)
            }
            Ok(Err(error)) => failed(&Chain(&*error).to_string(), json),
            Err(_) => failed(&format!("the server does not answer within {WATCH_TIMEOUT:?}"), json),
        };
        match redraws {
            true => output::print(format_args!("{HOME}{}{REST}", text.replace('\n', LINE_END)))?,
            false if json => output::print(text)?,
            false => output::print(format_args!("{:.0}\n{text}\n", jiff::Timestamp::now()))?,
        }
        sleep(every).await;
    }
}

fn failed(error: &str, json: bool) -> String {
    if json { format!("{}\n", json!({ "error": error })) } else { format!("error: {}\n", printable(error.as_bytes())) }
}

/// All that is known at one moment.
struct Look {
    slot: Slot,
    proof: Proof,
    bookmarks: Vec<Bookmark>,
    running: Option<Running>,
}

impl Look {
    async fn take(client: &Client, config: &Config) -> anyhow::Result<Look> {
        let config = tables::look_up(client, config.clone()).await?;
        let server = Server::read(client).await?;
        let Some(slot) = Slot::read(client, server.major(), &config.slot).await? else {
            bail!(
                "there is no slot {} on the server of database {}: walpost check says why and what mends that",
                quote::ident(&config.slot),
                quote::ident(&server.database)
            );
        };
        let proof = Proof::read(client, &config).await?;
        let bookmarks = Bookmark::all(client, server.major(), &config.slot).await?;
        // With nobody on the slot, what streams is on another server with a slot of the same name.
        let running = match config.http_listen {
            Some(address) => {
                ask_walpost(address, &config.slot).await.filter(|running| slot.active || !running.is_attached())
            }
            None => None,
        };
        Ok(Look { slot, proof, bookmarks, running })
    }

    fn text(&self, json: bool) -> String {
        let Look { slot, proof, bookmarks, running } = self;
        match json {
            true => format!("{}\n", as_json(slot, proof, bookmarks, running.as_ref())),
            false => format!("{}\n", as_table(slot, proof, bookmarks, running.as_ref()).trim_fmt()),
        }
    }
}

/// What is proven published.
struct Proof {
    /// None: nothing is known of the slot, or this role may not look.
    progress: Option<Progress>,
    /// The server whose transactions the row is of is this one.
    is_ours: bool,
    unproven: Option<Unproven>,
}

impl Proof {
    async fn read(client: &Client, config: &Config) -> anyhow::Result<Proof> {
        let home = names::home(config);
        let progress = match progress::Access::read(client, home).await? {
            Some(access) if access.select => Progress::read(client, home, &config.slot).await?,
            Some(_) | None => None,
        };
        let system = progress::system_identifier(client).await?;
        let is_ours = progress.as_ref().is_some_and(|progress| progress.system_identifier == system);
        let unproven = match is_ours {
            true => Unproven::read(client, home, &config.slot, &config.outboxes, UNPROVEN_LIMIT).await?,
            false => None,
        };
        Ok(Proof { progress, is_ours, unproven })
    }

    fn published_at(&self) -> Option<jiff::Timestamp> {
        let at = self.progress.as_ref().filter(|_| self.is_ours)?.published_at?;
        jiff::Timestamp::try_from(at).ok()
    }

    /// What is read of the tables before the stream, and since when.
    fn reading(&self) -> Option<(&Reading, jiff::Timestamp)> {
        let reading = self.progress.as_ref().filter(|_| self.is_ours)?.reading.as_ref()?;
        Some((reading, jiff::Timestamp::try_from(reading.since).ok()?))
    }

    fn published(&self) -> String {
        match (&self.progress, self.published_at()) {
            (None, _) => "not known (walpost setup makes the table that says; walpost_operate may read it)".to_owned(),
            (Some(_), _) if !self.is_ours => "not known: the proof is of another server (walpost setup)".to_owned(),
            (Some(_), None) => "nothing is proven yet".to_owned(),
            (Some(_), Some(at)) => format!("all that was committed by {at:.3}"),
        }
    }
}

fn not_proven(unproven: &Unproven) -> String {
    let age = |age: Option<Duration>| age.map_or("unknown".to_owned(), |age| format!("{:.1} s", age.as_secs_f64()));
    let Unproven { rows, oldest, p95, older } = *unproven;
    let ages = match rows {
        0 => String::new(),
        _ => format!(", the oldest {} old, 95% below {}", age(oldest), age(p95)),
    };
    let older = match older {
        0 => String::new(),
        _ => format!("; {older} older than the slot, or not let through by the publication, and not sent"),
    };
    format!("{rows} row{}{ages}{older}", if rows == 1 { "" } else { "s" })
}

/// What a running walpost says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct Running {
    state: Option<String>,
    reason: Option<String>,
    lag_seconds: Option<f64>,
    /// Rows of the tables that are sent, of about so many.
    reading: Option<(u64, Option<u64>)>,
    /// The table that is pruned, and how many of its blocks are looked at.
    pruning: Option<(String, u64, u64)>,
}

impl Running {
    fn is_attached(&self) -> bool {
        matches!(self.state.as_deref(), Some("streaming" | "paused" | "stopping"))
    }
}

/// Asks the walpost that listens at `address`, if one does and it has this slot.
async fn ask_walpost(address: SocketAddr, slot: &str) -> Option<Running> {
    let remote = Remote::listening(address, None).ok()?;
    let (_, answer) = timeout(ANSWER_TIMEOUT, remote.answer(Method::GET, "/status", None)).await.ok()?.ok()?;
    running(&answer, slot)
}

/// The answer's meaning; none when it is no walpost's, or one's with another slot.
fn running(answer: &[u8], slot: &str) -> Option<Running> {
    let status: Value = serde_json::from_slice(answer).ok()?;
    if status.get("slot")?.as_str()? != slot {
        return None;
    }
    let text = |key: &str| status.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Running {
        state: text("state"),
        reason: text("reason"),
        lag_seconds: status.get("lag_seconds").and_then(Value::as_f64).filter(|seconds| *seconds >= 0.0),
        reading: status.get("reading").and_then(|reading| {
            Some((reading.get("rows")?.as_u64()?, reading.get("rows_estimated").and_then(Value::as_u64)))
        }),
        pruning: status.get("pruning").and_then(|pruning| {
            let blocks = |key| pruning.get(key).and_then(Value::as_u64);
            Some((pruning.get("table")?.as_str()?.to_owned(), blocks("blocks")?, blocks("blocks_total")?))
        }),
    })
}

fn as_json(slot: &Slot, proof: &Proof, bookmarks: &[Bookmark], running: Option<&Running>) -> Value {
    let holder = slot.holder.as_ref();
    json!({
        "slot": slot.name,
        "plugin": slot.plugin,
        "database": slot.database,
        "active": slot.active,
        "active_pid": holder.map(|holder| holder.pid),
        "application_name": holder.and_then(|holder| holder.application_name.as_deref()),
        "client_address": holder.and_then(|holder| holder.client_address.as_deref()),
        "confirmed_lsn": slot.confirmed.map(|lsn| lsn.to_string()),
        "restart_lsn": slot.restart_lsn.map(|lsn| lsn.to_string()),
        "lag_bytes": slot.lag_bytes,
        "lag_seconds": running.and_then(|running| running.lag_seconds),
        "published_at": proof.published_at().map(|at| format!("{at:.3}")),
        "unproven": proof.unproven,
        "reading": proof.reading().map(|(reading, since)| json!({
            "kind": reading.kind.word(), "since": format!("{since:.3}")
        })),
        "retained_bytes": slot.retained_bytes,
        "safe_bytes": slot.safe_bytes,
        "wal_status": slot.wal_status,
        "invalidation_reason": slot.invalidation,
        "inactive_since": slot.inactive_since,
        "failover": slot.failover,
        "bookmarks": bookmarks.iter().map(bookmark::as_json).collect::<Vec<_>>(),
        "walpost": running.map(|running| json!({
            "state": running.state,
            "reason": running.reason,
            "pruning": running.pruning.as_ref().map(|(table, blocks, whole)| json!({
                "table": table, "blocks": blocks, "blocks_total": whole
            })),
        })),
    })
}

fn as_table(slot: &Slot, proof: &Proof, bookmarks: &[Bookmark], running: Option<&Running>) -> Table {
    let unknown = || "unknown".to_owned();
    let bytes = |bytes: Option<i64>| bytes.map_or_else(unknown, check::size);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("slot", quote::ident(&slot.name));
    row("database", slot.database.as_deref().map_or_else(|| "none: a physical slot".to_owned(), quote::ident));
    row("used by", used_by(slot));
    if let Some(running) = running {
        let reason = running.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let state = running.state.as_deref().unwrap_or("unknown");
        row("walpost", printable(format!("{state}{reason}").as_bytes()));
    }
    row("confirmed", slot.confirmed.map_or_else(unknown, |lsn| lsn.to_string()));
    row("lag", format!("{}, {}", bytes(slot.lag_bytes), lag_seconds(running)));
    row("published", proof.published());
    if let Some(unproven) = &proof.unproven {
        row("not proven", not_proven(unproven));
    }
    if let Some((reading, since)) = proof.reading() {
        let what = match reading.kind {
            ReadingKind::Initial => "rows that are older than the slot",
            ReadingKind::Recovery => "rows that a lost slot left unpublished",
        };
        row("reading", format!("{what}, since {since:.3}"));
    }
    if let Some((rows, estimated)) = running.and_then(|running| running.reading) {
        // The server only estimates.
        let of = estimated.map(|whole| format!(" of about {whole} {}", bars::line(rows, whole.max(rows))));
        row("read", format!("{rows} rows{}", of.unwrap_or_default()));
    }
    if let Some((table, blocks, whole)) = running.and_then(|running| running.pruning.as_ref()) {
        row("pruning", format!("{} {}", printable(table.as_bytes()), bars::line(*blocks, *whole)));
    }
    row(
        "kept log",
        format!(
            "{} (from {})",
            bytes(slot.retained_bytes),
            slot.restart_lsn.map_or_else(unknown, |lsn| lsn.to_string())
        ),
    );
    let wal = slot.invalidation.as_ref().map(|reason| format!(", lost: {reason}")).unwrap_or_default();
    row("log status", format!("{}{wal}", slot.wal_status.clone().unwrap_or_else(unknown)));
    if slot.wal_status.as_deref() != Some("lost") {
        let after = slot.safe_bytes.map(|safe| format!("{} more of log", check::size(safe.max(0))));
        row("lost after", after.unwrap_or_else(|| "never (no limit is set)".to_owned()));
    }
    if let (Some(kept), Some(safe)) = (slot.retained_bytes, slot.safe_bytes) {
        let [kept, safe] = [kept, safe].map(|bytes| u64::try_from(bytes).unwrap_or(0));
        row("limit used", bars::line(kept, kept + safe));
    }
    for (number, bookmark) in bookmarks.iter().enumerate() {
        let lost = if bookmark.slot.lost() { ", lost" } else { "" };
        let from = bookmark.slot.confirmed.map_or_else(unknown, |lsn| lsn.to_string());
        let kept = bytes(bookmark.slot.retained_bytes);
        row(if number == 0 { "bookmarks" } else { "" }, format!("{}: {kept} (from {from}{lost})", bookmark.name));
    }
    table
}

fn lag_seconds(running: Option<&Running>) -> String {
    match running.and_then(|running| running.lag_seconds) {
        Some(seconds) => format!("{seconds:.3} s"),
        None if running.is_some() => "seconds unknown (walpost does not stream)".to_owned(),
        None => "seconds unknown (no running walpost answers at http.listen)".to_owned(),
    }
}

fn used_by(slot: &Slot) -> String {
    match &slot.holder {
        Some(Holder { pid, application_name, client_address, sync_state }) => {
            let name = application_name.as_ref().map_or("unknown".to_owned(), |name| format!("{name:?}"));
            let from = client_address.as_ref().map(|address| format!(" from {address}")).unwrap_or_default();
            let sync = sync_state.as_ref().map(|state| format!(", {state}")).unwrap_or_default();
            format!("process {pid}, application {name}{from}{sync}")
        }
        None => match &slot.inactive_since {
            Some(since) => format!("nobody since {since}"),
            None => "nobody".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_walpost_with_this_slot_is_believed() {
        let answer = |body: &str| body.to_owned().into_bytes();
        let said = running(&answer(r#"{"slot":"s","state":"streaming","reason":null,"lag_seconds":0.25}"#), "s");
        assert_eq!(
            said,
            Some(Running { state: Some("streaming".into()), lag_seconds: Some(0.25), ..Running::default() })
        );
        assert_eq!(running(&answer(r#"{"slot":"other","lag_seconds":1}"#), "s"), None);
        assert_eq!(running(&answer("<html>"), "s"), None);
        assert_eq!(running(b"garbage", "s"), None);
        let reads =
            running(&answer(r#"{"slot":"s","reading":{"kind":"initial","rows":7,"rows_estimated":null}}"#), "s");
        assert_eq!(reads.unwrap().reading, Some((7, None)));
        let prunes =
            running(&answer(r#"{"slot":"s","pruning":{"table":"app.outbox","blocks":5,"blocks_total":20}}"#), "s");
        assert_eq!(prunes.unwrap().pruning, Some(("app.outbox".to_owned(), 5, 20)));
        let absurd = running(&answer(r#"{"slot":"s","lag_seconds":-1800000000}"#), "s");
        assert_eq!(absurd.unwrap().lag_seconds, None);
    }

    #[test]
    fn one_that_does_not_stream_is_told_from_none() {
        let connecting = Running { state: Some("connecting".into()), ..Running::default() };
        assert!(!connecting.is_attached() && lag_seconds(Some(&connecting)).contains("does not stream"));
        assert!(lag_seconds(None).contains("no running walpost"));
    }
}
