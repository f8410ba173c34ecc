//! `walpost run`: streams until it is told to stop.

use std::{process, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::Exit;
use crate::{
    config::{Config, Flags, Needs},
    http::{self, Facts},
    session::End,
    status::Status,
    supervisor,
};

/// Stream the outbox into Kafka until told to stop
///
/// SIGTERM or SIGINT delivers what is in flight, confirms it and exits with 0; with 1 when shutdown_grace ran out
/// first. A second signal exits at once. Nothing is lost either way. While another process has the slot this one
/// waits for it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost run --database-url postgres://walpost@db/app --brokers kafka:9092")]
pub struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::BOTH)?;
    let status = Arc::new(Status::new());
    if let Some(address) = config.http_listen {
        let answers = http::serve(http::listen(address).await?, Arc::clone(&status), Facts::of(&config));
        tokio::spawn(async move {
            if let Err(error) = answers.await {
                tracing::error!(%error, "metrics and health have stopped");
            }
        });
    }
    match supervisor::run(&config, &status, stop_signal()?).await? {
        End::Drained | End::ServerStopped => Ok(Exit::Done),
        End::GraceOver { undelivered } => {
            anyhow::bail!(
                "shutdown_grace ({:?}) ran out with {undelivered} records undelivered; they are not confirmed, so the \
                 next run sends them",
                config.shutdown_grace
            )
        }
    }
}

/// Turns true at the first SIGTERM or SIGINT; the second one exits.
fn stop_signal() -> anyhow::Result<watch::Receiver<bool>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, stop) = watch::channel(false);
    tokio::spawn(async move {
        for second in [false, true] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if second {
                tracing::warn!("second signal: exiting at once; what is not confirmed is sent again by the next run");
                process::exit(1);
            }
            sender.send_replace(true);
        }
    });
    Ok(stop)
}
