//! A private place on servers that belong to somebody else, for commands that try walpost out: `bench` and `demo`.
//!
//! A [`Site`](site::Site) has its own schema, publication, slots and topics and takes them away again; a
//! [`Child`](child::Child) is walpost itself, run as a user would run it, so that what is measured and killed is the
//! real thing; a [`Reader`](reader::Reader) is the consumer, and a [`Comparison`](comparison::Comparison) says whether it
//! got what was committed. Nothing of the user's own is touched.

pub mod child;
pub mod comparison;
pub mod reader;
pub mod site;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io,
};

use anyhow::anyhow;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use site::Site;

/// Does something at a site of its own, and clears it away whatever comes of it: a result, an error, or a signal.
pub async fn at_site<T>(
    config: &Config,
    purpose: &str,
    work: impl AsyncFnOnce(&mut Site) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let interrupted = interrupted()?;
    let mut site = Site::make(config, purpose).await?;
    let done = tokio::select! {
        biased;
        () = interrupted => Err(anyhow!("interrupted")),
        done = work(&mut site) => done,
    };
    match (done, site.remove().await) {
        (Ok(done), Ok(())) => Ok(done),
        (Ok(_), Err(error)) => Err(error),
        (Err(error), removed) => {
            if let Err(error) = removed {
                tracing::error!("{error:#}");
            }
            Err(error)
        }
    }
}

/// Resolves at the first signal that asks the process to end; from now on none ends it by itself.
fn interrupted() -> io::Result<impl Future<Output = ()>> {
    let mut int = signal(SignalKind::interrupt())?;
    let mut term = signal(SignalKind::terminate())?;
    let mut hup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
        }
    })
}

/// Tells trials apart that share their servers.
fn nonce() -> u64 {
    RandomState::new().build_hasher().finish()
}
