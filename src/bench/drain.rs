//! A prepared backlog, drained several times from copies of one slot.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;

use super::{
    backlog::{self, Shape},
    floors, median,
};
use crate::{
    config::{Config, Delivery, Flags},
    trial::{
        child::{Child, Launch},
        comparison::Verdict,
        reader::{Reader, event_id},
        site::Site,
    },
};

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub shape: Shape,
    pub runs: u32,
    pub partitions: i32,
    /// Measure the servers alone too.
    pub floors: bool,
}

/// One run, with the floors measured just before it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub records_per_second: f64,
    pub cpu_seconds_per_million: f64,
    pub peak_rss_mib: f64,
    /// From the start of the process to the last record.
    pub seconds: f64,
    /// Events a second that the server sends to nobody in particular.
    pub server_per_second: Option<f64>,
    /// Records a second that the broker takes from a bare producer.
    pub broker_per_second: Option<f64>,
    pub verdict: Verdict,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub events: u32,
    pub bytes: u32,
    pub rows_per_transaction: u32,
    pub partitions: i32,
    pub server_version: u32,
    pub walpost_version: &'static str,
    pub runs: Vec<Run>,
}

impl Report {
    /// The middle of a figure over all runs that have it; NaN without any.
    pub fn median(&self, figure: impl Fn(&Run) -> Option<f64>) -> f64 {
        median(self.runs.iter().filter_map(figure))
    }

    /// Every run delivered exactly what was committed.
    pub fn is_exact(&self) -> bool {
        self.runs.iter().all(|run| run.verdict.is_exact())
    }
}

/// How long walpost may stand still before the run is given up.
const STALL: Duration = Duration::from_secs(60);
/// Records that the bare producer repeats, so that a large backlog need not be held in memory.
const PREPARED_MAX: u32 = 100_000;

/// Fills the site and measures. `flags` are the user's, for the child.
pub async fn drain(site: &mut Site, config: &Config, flags: &Flags, plan: Plan) -> anyhow::Result<Report> {
    let Plan { shape, partitions, .. } = plan;
    // It goes with the session, whatever happens: a backlog must not outlive the bench.
    let base = site.slot("base", true).await?;
    tracing::info!("writing {} events of {} bytes", shape.events, shape.bytes);
    backlog::fill(site, shape).await?;
    if plan.floors {
        // The broker's first records are slow: it compiles itself.
        broker_floor(site, config, plan, "warm").await?;
    }
    let mut runs = Vec::new();
    for number in 1..=plan.runs {
        let (mut server_per_second, mut broker_per_second) = (None, None);
        if plan.floors {
            server_per_second = Some(server_floor(site, config, &base, plan).await?);
            broker_per_second = Some(broker_floor(site, config, plan, "floor").await?);
        }
        let run =
            Run { server_per_second, broker_per_second, ..walpost(site, config, flags, &base, plan, number).await? };
        tracing::info!(
            "run {number} of {}: {:.0} records/s, {:.2} CPU seconds a million, {:.0} MiB",
            plan.runs,
            run.records_per_second,
            run.cpu_seconds_per_million,
            run.peak_rss_mib
        );
        runs.push(run);
    }
    Ok(Report {
        events: shape.events,
        bytes: shape.bytes,
        rows_per_transaction: shape.rows_per_transaction,
        partitions,
        server_version: site.sql().server_version(),
        walpost_version: env!("CARGO_PKG_VERSION"),
        runs,
    })
}

async fn server_floor(site: &mut Site, config: &Config, base: &str, plan: Plan) -> anyhow::Result<f64> {
    let slot = site.copy_slot(base, "floor").await?;
    let seconds = floors::receive(config, &slot, site.name(), plan.shape.events).await?;
    site.drop_slot(&slot).await?;
    Ok(f64::from(plan.shape.events) / seconds)
}

async fn broker_floor(site: &mut Site, config: &Config, plan: Plan, suffix: &str) -> anyhow::Result<f64> {
    let topic = site.topic(suffix, plan.partitions).await?;
    let records = backlog::prepared(site, plan.shape.events.min(PREPARED_MAX)).await?;
    let seconds = floors::produce(config, &topic, &records, plan.shape.events).await?;
    site.drop_topic(&topic).await?;
    Ok(f64::from(plan.shape.events) / seconds)
}

/// walpost itself, from its start to the last record.
async fn walpost(
    site: &mut Site,
    config: &Config,
    flags: &Flags,
    base: &str,
    plan: Plan,
    number: u32,
) -> anyhow::Result<Run> {
    const STOP: Duration = Duration::from_secs(30);
    let events = plan.shape.events;
    // A slot name of its own: exactly once, a run would find how far the one before it came, and send nothing.
    let slot = site.copy_slot(base, &format!("run{number}")).await?;
    let topic = site.topic("run", plan.partitions).await?;
    let reader = Reader::new(site.kafka(), &topic, plan.partitions)?;
    let table = site.table();
    let launch = Launch { slot: &slot, publication: site.name(), table: &table, topic: &topic, log_level: "warn" };
    let begun = Instant::now();
    let mut child = Child::start(flags, &launch)?;
    // The marks of Kafka transactions take offsets too, so that the last record shows only when no more come.
    let rest = match config.delivery {
        Delivery::AtLeastOnce => Duration::ZERO,
        Delivery::ExactlyOnce(_) => Duration::from_millis(500),
    };
    let seconds = arrived(&mut child, &reader, u64::from(events), begun, rest).await?;
    let usage = child.usage()?;
    let status = child.stop(STOP).await?;
    if !status.success() {
        bail!("walpost did not stop cleanly: {status}");
    }
    drop(reader);
    let verdict = compare(site, Reader::new(site.kafka(), &topic, plan.partitions)?).await?;
    site.drop_slot(&slot).await?;
    site.drop_topic(&topic).await?;
    Ok(Run {
        records_per_second: f64::from(events) / seconds,
        cpu_seconds_per_million: usage.cpu.as_secs_f64() * 1e6 / f64::from(events),
        peak_rss_mib: usage.resident_bytes_max as f64 / (1024.0 * 1024.0),
        seconds,
        server_per_second: None,
        broker_per_second: None,
        verdict,
    })
}

/// Waits until the topic has as many records, and no more within `rest`; gives the seconds until the last came.
async fn arrived(
    child: &mut Child,
    reader: &Reader,
    events: u64,
    begun: Instant,
    rest: Duration,
) -> anyhow::Result<f64> {
    let (mut before, mut moved) = (0, Instant::now());
    loop {
        let count = reader.count()?;
        let at = Instant::now();
        child.check()?;
        if count != before {
            (before, moved) = (count, at);
        }
        if count >= events && at - moved >= rest {
            return Ok((moved - begun).as_secs_f64());
        }
        if at - moved > STALL {
            bail!("walpost delivered {count} of {events} events and then nothing for {STALL:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn compare(site: &Site, reader: Reader) -> anyhow::Result<Verdict> {
    let mut comparison = site.committed().await?;
    reader.read(|record| comparison.record(event_id(record))).await?;
    Ok(comparison.verdict())
}
