//! `walpost run`: streams until it is told to stop.

use std::{
    process,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{Exit, pulse, reading, replay::range::Place, snapshot, systemd};
use crate::{
    chain::Chain,
    config::{
        Config, Debezium, Flags, Needs,
        connector::{Remark, SnapshotMode},
    },
    control::Control,
    http::{self, Answers},
    loggers::Loggers,
    pipeline::{self, outbox::Outbox},
    prune::{self, Order, Progress},
    session::{self, End},
    status::{State, Status},
    supervisor,
    traces::Traces,
};

/// Stream the outbox to its sink until told to stop
///
/// SIGTERM or SIGINT delivers what is in flight, confirms it and exits with 0; with 1 when shutdown_grace ran out
/// first. A second signal exits at once. Nothing is lost either way. While another process has the slot this one
/// waits for it. SIGHUP takes back what `walpost log-level` changed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost run --database-url postgres://walpost@db/app --brokers kafka:9092")]
pub struct Args {
    /// Begin again at this earlier place in the log, as PostgreSQL prints it or a record's position: its transaction and all
    /// that was published since is sent once more. A bookmark must hold it. Done once for a place: started again with the
    /// same one, the stream goes on.
    #[arg(long, value_name = "LSN")]
    from_lsn: Option<Place>,
    /// Go on without what a lost slot held, once: its events are not sent.
    #[arg(long)]
    accept_gap: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args, loggers: Loggers) -> anyhow::Result<Exit> {
    let mut config = Config::load(&args.flags, Needs::BOTH)?;
    config.rewind_to = args.from_lsn.map(|place| place.from().commit_lsn);
    let mut status = Status::new();
    if let Some(to) = &config.traces {
        status.traces = Some(Traces::start(&config, to).context("spans cannot be exported to traces.endpoint")?);
    }
    let status = Arc::new(status);
    let control = Control::new();
    if let Some(address) = config.http_listen {
        let answers = Answers::new(&config, address, Arc::clone(&status), control.clone(), loggers.clone());
        tokio::spawn(http::serve(http::listen(address).await?, answers));
    }
    reading::watch(Arc::clone(&status));
    if let Some(interval) = config.log_interval {
        pulse::start(interval, Arc::clone(&status));
    }
    on_hangup(loggers)?;
    let stop = stop_signal("what is not confirmed is sent again by the next run")?;
    systemd::tell(Arc::clone(&status), http::Facts::of(&config), stop.subscribe());
    if let Some(debezium) = &config.debezium {
        tell(debezium);
        let prepared = supervisor::prepare(config.clone(), &status, stop.subscribe()).await?;
        let Some(prepared) = prepared else { return Ok(Exit::Done) };
        config = prepared;
    }
    if config.debezium.as_ref().is_some_and(|debezium| debezium.connector().snapshot == SnapshotMode::InitialOnly) {
        return snapshot::send(&config, &status, &control, &stop).await;
    }
    if let Some(every) = config.prune_every {
        tokio::spawn(prune_every(every, config.clone(), Arc::clone(&status)));
    }
    let mut appeared = Vec::new();
    let end = loop {
        let accept_gap = args.accept_gap && appeared.is_empty();
        let ended = supervisor::run(&config, accept_gap, &status, control.orders(), stop.subscribe()).await;
        // It is told of before its first row, and all that is not confirmed comes again.
        let Err(session::Error::Pipeline(pipeline::Error::NewTable { table })) = &ended else { break ended? };
        if appeared.contains(table) {
            break ended?;
        }
        tracing::info!("table {table} is one that the connector takes, and was not known");
        appeared.push(table.clone());
        config.forget_tables();
        let prepared = supervisor::prepare(config.clone(), &status, stop.subscribe()).await?;
        let Some(prepared) = prepared else { return Ok(Exit::Done) };
        config = prepared;
        // Dropped or renamed by now, they have rows in the log all the same.
        appeared.iter().for_each(|table| config.add_table(table));
    };
    if let Some(traces) = &status.traces {
        traces.flush().await;
    }
    match end {
        End::Drained | End::ServerStopped | End::ReaderGone => Ok(Exit::Done),
        End::GraceOver { undelivered } => {
            anyhow::bail!(
                "shutdown_grace ({:?}) ran out with {undelivered} records undelivered; they are not confirmed, so the \
                 next run sends them",
                config.shutdown_grace
            )
        }
    }
}

/// What a connector's keys do not do here: each unknown one, those without meaning in one line.
fn tell(debezium: &Debezium) {
    let mut without_meaning = Vec::new();
    for remark in &debezium.remarks {
        match remark {
            Remark::Void { key, .. } => without_meaning.push(key.as_str()),
            Remark::Unknown { .. } => tracing::warn!("{remark}"),
        }
    }
    if !without_meaning.is_empty() {
        tracing::info!(
            "keys of the connector that mean nothing here (walpost config import says why): {}",
            without_meaning.join(", ")
        );
    }
    for warning in debezium.task.warnings() {
        tracing::warn!("{warning}");
    }
}

/// Prunes now and then, while this process streams: a standby leaves it to the other.
async fn prune_every(every: Duration, config: Config, status: Arc<Status>) {
    const FIRST: Duration = Duration::from_secs(60);
    const LOOK: Duration = Duration::from_millis(200);
    let streams = || status.now().state == State::Streaming;
    let order = Order { config: &config, retention: config.retention, dry_run: false };
    let mut pause = every.min(FIRST);
    loop {
        tokio::time::sleep(pause).await;
        while !streams() {
            tokio::time::sleep(LOOK).await;
        }
        for outbox in &config.outboxes {
            tokio::select! {
                () = prune_one(&order, outbox, &status) => {}
                () = async { while streams() { tokio::time::sleep(LOOK).await } } => break,
            }
        }
        // Also of one that was left.
        status.now().pruned.values_mut().for_each(|pruned| pruned.walk = None);
        pause = every;
    }
}

/// Prunes a table, and tells the status how far it is.
async fn prune_one(order: &Order<'_>, outbox: &Outbox, status: &Status) {
    let name = outbox.name.to_string();
    let mut told = 0;
    let tell = |rows: u64, walk| {
        let mut now = status.now();
        let pruned = now.pruned.entry(name.clone()).or_default();
        pruned.rows += rows;
        pruned.walk = walk;
    };
    let walk = |progress: Progress<'_>| {
        tell(progress.rows.saturating_sub(told), Some((progress.blocks, progress.blocks_total)));
        told = progress.rows;
    };
    let pruned = prune::prune(order, outbox, walk).await;
    tell(pruned.as_ref().map_or(0, |report| report.rows().saturating_sub(told)), None);
    match pruned {
        Ok(report) => {
            status.now().pruned.entry(name).or_default().finished = Some(SystemTime::now());
            if report.rows() > 0 || !report.is_complete() {
                tracing::info!(
                    table = report.table,
                    rows = report.rows(),
                    partitions = report.dropped.len(),
                    unproven = report.kept.unproven,
                    dead_letters = report.kept.dead_letters,
                    locked = report.kept.locked,
                    "pruned"
                );
            }
        }
        Err(error @ prune::Error::Busy { .. }) => tracing::debug!("nothing is pruned: {error}"),
        Err(error) => {
            status.now().pruned.entry(name).or_default().failures += 1;
            tracing::warn!("nothing is pruned: {}", Chain(&error));
        }
    }
}

/// SIGHUP ends no stream. It takes back what was changed of the log level; all else that the configuration holds is read at
/// the start alone.
fn on_hangup(loggers: Loggers) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match loggers.reset(SystemTime::now()) {
                Ok(level) => tracing::info!(
                    level,
                    "SIGHUP: the log level is that of the start; another configuration takes a restart, which loses nothing"
                ),
                Err(error) => tracing::warn!("SIGHUP: {error}"),
            }
        }
    });
    Ok(())
}

/// Turns true at the first SIGTERM or SIGINT; the second one exits, which means this for what is under way.
pub(super) fn stop_signal(meaning: &'static str) -> anyhow::Result<watch::Sender<bool>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, _) = watch::channel(false);
    let sender = stop.clone();
    tokio::spawn(async move {
        for second in [false, true] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if second {
                tracing::warn!("second signal: exiting at once; {meaning}");
                process::exit(1);
            }
            sender.send_replace(true);
        }
    });
    Ok(stop)
}
