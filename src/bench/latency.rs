//! A steady rate of single-row transactions, from just before the INSERT is sent to the consumer's poll.
//!
//! Writers and consumer are in one process and share one clock. Each commit waits for the disk
//! (`synchronous_commit = on`). A writer that falls behind its schedule sends as soon as it can, and is counted.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::task::JoinSet;

use super::percentile;
use crate::{
    config::{Config, Flags},
    postgres::{conninfo::ConnInfo, sql},
    trial::{
        child::{Child, Launch},
        comparison::{Comparison, Verdict},
        reader::{Reader, Received},
        site::Site,
    },
};

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Commits a second, all connections together.
    pub rate: u32,
    pub seconds: u32,
    /// Seconds before those, which are not counted.
    pub warm_seconds: u32,
    pub bytes: u32,
    pub connections: u32,
    pub partitions: i32,
}

/// In milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub rate: u32,
    pub seconds: u32,
    pub bytes: u32,
    pub connections: u32,
    pub server_version: u32,
    pub walpost_version: &'static str,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub cpu_seconds_per_million: f64,
    pub peak_rss_mib: f64,
    /// Commits that were sent more than 10 ms behind their schedule.
    pub late: usize,
    pub verdict: Verdict,
}

/// An event that was committed.
#[derive(Clone, Copy, Debug)]
struct Sent {
    id: u128,
    /// Its place in the schedule.
    due: Instant,
    /// Just before the INSERT.
    at: Instant,
}

/// A commit that is sent later than this behind its schedule is counted.
const LATE: Duration = Duration::from_millis(10);

/// Measures. `flags` are the user's, for the child.
pub async fn latency(site: &mut Site, config: &Config, flags: &Flags, plan: Plan) -> anyhow::Result<Report> {
    const WITHIN: Duration = Duration::from_secs(30);
    let slot = site.slot("run", false).await?;
    let topic = site.topic("run", plan.partitions).await?;
    let table = site.table();
    let launch = Launch { slot: &slot, publication: site.name(), table: &table, topic: &topic, log_level: "warn" };
    let mut child = Child::start(flags, &launch)?;
    site.streams(&mut child, &slot).await?;
    let mut consumer = Reader::new(site.kafka(), &topic, plan.partitions)?.follow();

    tracing::info!("{} commits a second for {} s", plan.rate, plan.warm_seconds + plan.seconds);
    let usage_before = child.usage()?;
    let begun = Instant::now();
    let mut writers: JoinSet<anyhow::Result<(u32, Vec<Sent>)>> = JoinSet::new();
    for number in 0..plan.connections {
        let (database, table) = (config.database.clone(), table.clone());
        writers.spawn(async move { Ok((number, write(&database, &table, number, begun, plan).await?)) });
    }
    let mut sent: Vec<(u32, Vec<Sent>)> = Vec::new();
    while let Some(written) = writers.join_next().await {
        sent.push(written.context("a writer failed")??);
    }
    let events: usize = sent.iter().map(|(_, sent)| sent.len()).sum();
    let mut received: Vec<Received> = Vec::with_capacity(events);
    consumer.collect(&mut received, events, WITHIN).await?;
    let usage = child.usage()?;
    let status = child.stop(WITHIN).await?;
    if !status.success() {
        bail!("walpost did not stop cleanly: {status}");
    }
    // Duplicates come last.
    let records = Reader::new(site.kafka(), &topic, plan.partitions)?.read(|_| {}).await?;
    consumer.collect(&mut received, records, WITHIN).await?;

    let keyed: Vec<(String, Vec<Sent>)> = sent.into_iter().map(|(number, sent)| (key(number), sent)).collect();
    let committed = keyed.iter().flat_map(|(key, sent)| sent.iter().map(|sent| (sent.id, key.as_str())));
    let mut comparison = Comparison::new(committed);
    received.iter().for_each(|record| comparison.record(record.id));
    let counted_from = begun + Duration::from_secs(plan.warm_seconds.into());
    let counted: Vec<Sent> =
        keyed.into_iter().flat_map(|(_, sent)| sent).filter(|sent| sent.due >= counted_from).collect();
    let milliseconds = latencies(&counted, &received);
    let cpu = (usage.cpu - usage_before.cpu).as_secs_f64();
    Ok(Report {
        rate: plan.rate,
        seconds: plan.seconds,
        bytes: plan.bytes,
        connections: plan.connections,
        server_version: site.sql().server_version(),
        walpost_version: env!("CARGO_PKG_VERSION"),
        p50_ms: percentile(&milliseconds, 0.50),
        p95_ms: percentile(&milliseconds, 0.95),
        p99_ms: percentile(&milliseconds, 0.99),
        max_ms: percentile(&milliseconds, 1.0),
        cpu_seconds_per_million: cpu * 1e6 / events as f64,
        peak_rss_mib: usage.resident_bytes_max as f64 / (1024.0 * 1024.0),
        late: counted.iter().filter(|sent| sent.at - sent.due > LATE).count(),
        verdict: comparison.verdict(),
    })
}

/// Milliseconds from each event's sending to its first arrival, in rising order.
fn latencies(sent: &[Sent], received: &[Received]) -> Vec<f64> {
    let mut arrivals = HashMap::with_capacity(received.len());
    for Received { id, at, .. } in received {
        if let Some(id) = id {
            arrivals.entry(*id).or_insert(*at);
        }
    }
    let mut milliseconds: Vec<f64> =
        sent.iter().filter_map(|sent| Some((*arrivals.get(&sent.id)? - sent.at).as_secs_f64() * 1000.0)).collect();
    milliseconds.sort_by(f64::total_cmp);
    milliseconds
}

/// One connection's part of the commits: each with its own place in the schedule.
async fn write(database: &ConnInfo, table: &str, number: u32, begun: Instant, plan: Plan) -> anyhow::Result<Vec<Sent>> {
    let sql = sql::connect(database).await?;
    sql.batch_execute("SET synchronous_commit = on").await?;
    let insert = format!(
        "INSERT INTO {table} (id, aggregate_type, aggregate_id, event_type, payload) \
         VALUES ($1::text::uuid, 'order', $2, 'OrderPlaced', $3::text::jsonb)"
    );
    let insert = sql.prepare(&insert).await?;
    let payload = format!(r#"{{"note": "{}"}}"#, "x".repeat((plan.bytes as usize).saturating_sub(12)));
    let count = u64::from(plan.rate) * u64::from(plan.warm_seconds + plan.seconds);
    let mut sent = Vec::new();
    for place in (u64::from(number)..count).step_by(plan.connections as usize) {
        let due = begun + Duration::from_secs_f64(place as f64 / f64::from(plan.rate));
        tokio::time::sleep_until(due.into()).await;
        let id = u128::from(place);
        let text = format!("00000000-0000-0000-{:04x}-{:012x}", place >> 48, place & 0xFFFF_FFFF_FFFF);
        let at = Instant::now();
        sql.execute(&insert, &[&text, &key(number), &payload]).await.context("an event cannot be committed")?;
        sent.push(Sent { id, due, at });
    }
    Ok(sent)
}

/// Each connection writes one key, so that the order of its commits is known.
fn key(connection: u32) -> String {
    format!("order-{connection}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_arrival_of_a_counted_event_is_what_counts() {
        let begun = Instant::now();
        let after = |milliseconds| begun + Duration::from_millis(milliseconds);
        let sent = [(1, begun), (2, after(10))].map(|(id, at)| Sent { id, due: begun, at });
        let received = [(2, after(13)), (7, after(14)), (1, after(5)), (1, after(50))].map(|(id, at)| Received {
            at,
            id: Some(id),
            key: Vec::new(),
            event_type: Vec::new(),
            value: Vec::new(),
            partition: 0,
            offset: 0,
        });
        assert_eq!(latencies(&sent, &received), [3.0, 5.0]);
    }
}
