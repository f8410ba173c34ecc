//! `walpost status`: the slot, and how far behind it is.
//!
//! Bytes come from the server. Seconds only a running walpost knows, so they are asked of its HTTP surface and are
//! unknown without one: no value is made up.

use std::{net::SocketAddr, time::Duration};

use anyhow::bail;
use comfy_table::{Table, presets};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_postgres::Client;

use super::{Exit, bookmark, output};
use crate::{
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
/// How long the server may look for what is not proven.
const UNPROVEN_LIMIT: Duration = Duration::from_secs(5);
/// Its answer is a few hundred bytes; another server's may be anything.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Show the slot: who streams from it, and how far behind it is
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost status -c walpost.toml --json")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE)?;
    let client = sql::connect(&config.database).await?;
    let config = tables::look_up(&client, config).await?;
    let server = Server::read(&client).await?;
    let Some(slot) = Slot::read(&client, server.major(), &config.slot).await? else {
        bail!(
            "there is no slot {} on the server of database {}: walpost check says why and what mends that",
            quote::ident(&config.slot),
            quote::ident(&server.database)
        );
    };
    let proof = Proof::read(&client, &config).await?;
    let bookmarks = Bookmark::all(&client, server.major(), &config.slot).await?;
    // With nobody on the slot, what streams is on another server with a slot of the same name.
    let running = match config.http_listen {
        Some(address) => {
            ask_walpost(address, &config.slot).await.filter(|running| slot.active || !running.is_attached())
        }
        None => None,
    };
    if args.json {
        output::print(format_args!("{}\n", as_json(&slot, &proof, &bookmarks, running.as_ref())))?;
    } else {
        output::print(format_args!("{}\n", as_table(&slot, &proof, &bookmarks, running.as_ref()).trim_fmt()))?;
    }
    Ok(Exit::Done)
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
#[derive(Clone, Debug, PartialEq)]
struct Running {
    state: Option<String>,
    reason: Option<String>,
    lag_seconds: Option<f64>,
}

impl Running {
    fn is_attached(&self) -> bool {
        matches!(self.state.as_deref(), Some("streaming" | "paused" | "stopping"))
    }
}

/// Asks the walpost that listens at `address`, if one does and it has this slot.
async fn ask_walpost(address: SocketAddr, slot: &str) -> Option<Running> {
    let answer = timeout(ANSWER_TIMEOUT, get_status(reachable(address))).await.ok()?.ok()?;
    running(&answer, slot)
}

/// Where to reach what listens on all addresses.
pub(super) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// HTTP/1.0, so that the answer is neither chunked nor kept open.
async fn get_status(address: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET /status HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// The answer's meaning; none when it is no walpost's, or one's with another slot.
fn running(answer: &[u8], slot: &str) -> Option<Running> {
    let body = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let status: Value = serde_json::from_slice(&answer[body..]).ok()?;
    if status.get("slot")?.as_str()? != slot {
        return None;
    }
    let text = |key: &str| status.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Running {
        state: text("state"),
        reason: text("reason"),
        lag_seconds: status.get("lag_seconds").and_then(Value::as_f64).filter(|seconds| *seconds >= 0.0),
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
        "walpost": running.map(|running| json!({ "state": running.state, "reason": running.reason })),
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
    row(
        "lost after",
        slot.safe_bytes
            .map_or("never (no limit is set)".to_owned(), |safe| format!("{} more of log", check::size(safe.max(0)))),
    );
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
        let answer =
            |body: &str| format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{body}").into_bytes();
        let said = running(&answer(r#"{"slot":"s","state":"streaming","reason":null,"lag_seconds":0.25}"#), "s");
        assert_eq!(said, Some(Running { state: Some("streaming".into()), reason: None, lag_seconds: Some(0.25) }));
        assert_eq!(running(&answer(r#"{"slot":"other","lag_seconds":1}"#), "s"), None);
        assert_eq!(running(&answer("<html>"), "s"), None);
        assert_eq!(running(b"garbage", "s"), None);
        let absurd = running(&answer(r#"{"slot":"s","lag_seconds":-1800000000}"#), "s");
        assert_eq!(absurd.unwrap().lag_seconds, None);
    }

    #[test]
    fn one_that_does_not_stream_is_told_from_none() {
        let connecting = Running { state: Some("connecting".into()), reason: None, lag_seconds: None };
        assert!(!connecting.is_attached() && lag_seconds(Some(&connecting)).contains("does not stream"));
        assert!(lag_seconds(None).contains("no running walpost"));
    }

    #[test]
    fn what_listens_everywhere_is_reached_here() {
        assert_eq!(reachable("0.0.0.0:1".parse().unwrap()), "127.0.0.1:1".parse().unwrap());
        assert_eq!(reachable("[::]:1".parse().unwrap()), "[::1]:1".parse().unwrap());
        assert_eq!(reachable("10.0.0.1:1".parse().unwrap()), "10.0.0.1:1".parse().unwrap());
    }
}
