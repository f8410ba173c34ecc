//! `walpost health`: for a container's health check, which has no other HTTP client.

use hyper::Method;
use serde_json::Value;

use super::{
    Exit,
    control::{Remote, Whom},
    output,
};
use crate::printable::printable;

/// Ask a running walpost whether it is well
///
/// The exit code is 0 where it is, and 1 with the reasons where it is not or does not answer.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  walpost health -c walpost.toml\n  walpost health --ready --url http://10.0.0.7:9464"
)]
pub struct Args {
    /// Ask whether events move or another process moves them (/readyz), and not whether a restart would help (/healthz).
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    whom: Whom,
}

pub(super) async fn run(Args { ready, whom }: Args) -> anyhow::Result<Exit> {
    let (remote, _) = Remote::at(&whom)?;
    let path = if ready { "/readyz" } else { "/healthz" };
    let (status, body) = remote.answer(Method::GET, path, None).await?;
    let verdict: Value = serde_json::from_slice(&body).unwrap_or_default();
    let state = verdict["state"].as_str().unwrap_or("no walpost answers so");
    let reasons = verdict["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let line = std::iter::once(state).chain(reasons).collect::<Vec<_>>().join(": ");
    output::print(format_args!("{}\n", printable(line.as_bytes())))?;
    let is_well = status.is_success() && verdict["ok"] == true;
    Ok(if is_well { Exit::Done } else { Exit::Failed })
}
