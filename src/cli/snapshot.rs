//! `walpost snapshot`: sends the rows that are older than the slot, and ends.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{Exit, output, reading, run::stop_signal, with_tables};
use crate::{
    config::{Config, Flags, Needs, Snapshot},
    control::Control,
    postgres::{
        progress::{Access, Progress, TABLE, ask_for_older_rows},
        quote,
        rows::Plan,
        slot::{self, Slot, unlock_sql},
        sql,
    },
    session::End,
    setup::names,
    status::{State, Status},
    supervisor,
};

/// How often the status is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A walsender whose client has gone is noticed by the server in less.
const STANDBY_MAX: Duration = Duration::from_secs(5);

/// Send the rows that are older than the slot, then end
///
/// Where there is no slot it is made, as by the first run with snapshot = "initial". Where there is one, the rows that
/// were there when it began, and were not sent, are. Nobody may stream from the slot meanwhile. An interrupted snapshot
/// goes on with the next one, or with run.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost snapshot -c walpost.toml")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = with_tables(Config::load(&args.flags, Needs::BOTH)?).await?;
    let config = Config { snapshot: Snapshot::Initial, ..config };
    let status = Arc::new(Status::new());
    let control = Control::new();
    reading::watch(Arc::clone(&status));
    let stop = stop_signal("walpost snapshot, or run, goes on")?;
    send(&config, &status, &control, &stop).await
}

/// Sends the rows, unless they are sent already.
pub(super) async fn send(
    config: &Config,
    status: &Status,
    control: &Control,
    stop: &watch::Sender<bool>,
) -> anyhow::Result<Exit> {
    if !prepare(config).await? {
        output::print(format_args!("the rows that are older than slot {} are sent already\n", config.slot))?;
        return Ok(Exit::Done);
    }
    let mut streaming = std::pin::pin!(supervisor::run(config, false, status, control.orders(), stop.subscribe()));
    let over = tokio::select! {
        biased;
        ended = &mut streaming => {
            ended?;
            anyhow::bail!("stopped before the last row was sent; walpost snapshot, or run, goes on");
        }
        over = over(status) => over,
    };
    stop.send_replace(true);
    let end = streaming.await?;
    anyhow::ensure!(over, "another process has slot {}: stop it, and walpost snapshot again", config.slot);
    output::print(format_args!("the rows that are older than slot {} are sent\n", config.slot))?;
    // What was streamed after them is not what was asked for.
    Ok(match end {
        End::Drained | End::GraceOver { .. } | End::ServerStopped | End::ReaderGone => Exit::Done,
    })
}

/// Whether there is something to send. Of a slot that streams already it is noted that it is asked for.
async fn prepare(config: &Config) -> anyhow::Result<bool> {
    let client = sql::connect(&config.database).await?;
    let (home, slot) = (names::home(config), &config.slot);
    if Slot::read(&client, client.major(), slot).await?.is_none() {
        return Ok(true);
    }
    let table = quote::qualified(home, TABLE);
    let usable = Access::read(&client, home).await?.is_some_and(Access::streams);
    anyhow::ensure!(usable, "table {table} does not exist, or may not be read and written: walpost setup makes it");
    let known = Progress::read(&client, home, slot).await?;
    let Some(known) = known.filter(|known| known.started.is_some() || known.reading.is_some()) else {
        anyhow::bail!(
            "nothing is known of the beginning of slot {slot}, so which rows are older cannot be told: walpost replay sends rows \
             by their time"
        );
    };
    if known.reading.is_some() {
        return Ok(true);
    }
    if known.started_sent {
        return Ok(false);
    }
    for plan in Plan::all(&client, &config.outboxes, &config.publication).await? {
        anyhow::ensure!(
            plan.has_txid() && plan.order_is_total(),
            "rows of {} have no column with the id of their transaction, or no primary key: which of them are older than slot {slot} \
             cannot be told; walpost replay sends rows by their time",
            plan.table()
        );
    }
    anyhow::ensure!(
        slot::try_lock(&client, slot).await?,
        "another process has slot {slot}: stop it, and walpost snapshot again"
    );
    let asked = ask_for_older_rows(&client, home, slot).await?;
    client.query_one(&unlock_sql(slot), &[]).await?;
    Ok(asked)
}

/// Waits until the stream follows the last row. False: another process has the slot.
async fn over(status: &Status) -> bool {
    loop {
        tokio::time::sleep(LOOK).await;
        let now = status.now();
        match now.state {
            State::Streaming if now.reading.is_none() => return true,
            State::Standby if now.since.elapsed().is_ok_and(|since| since > STANDBY_MAX) => return false,
            State::Connecting
            | State::Standby
            | State::SlotLost
            | State::Preparing
            | State::Streaming
            | State::Paused
            | State::Stopped
            | State::Stopping => {}
        }
    }
}
