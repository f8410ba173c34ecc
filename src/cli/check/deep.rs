//! `walpost check --deep`: are the rows that are called published in the topics?
//!
//! The rows come first, then the ends of the topics: what is published by the first look is below the ends. Of a row only a
//! hash of its id is kept; the topics strike off what they hold, and the rows that are left are looked at again.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    check::{self, Absent, Finding},
    cli::bars,
    config::Config,
    kafka::{
        client::consumer_properties,
        facts::Kafka,
        ids::{self, Scan},
        topics::Pattern,
    },
    postgres::{claimed::Claimed, quote::qualified, sql},
    setup::names,
};

/// Most rows that are compared: some 90 MB of memory.
const ROWS_MAX: usize = 5_000_000;
const TOLD_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn examine(config: &Config, kafka: &Kafka, within: Duration) -> anyhow::Result<Vec<Finding>> {
    let client = sql::connect(&config.database).await?;
    let home = names::home(config);
    let hasher = RandomState::new();
    let hash = |id: &[u8]| hasher.hash_one(id);
    let mut findings = Vec::new();
    let mut patterns = Vec::new();
    let mut outboxes = Vec::new();
    // Of each id whether it is still to be found.
    let mut open = HashSet::new();
    for outbox in &config.outboxes {
        let table = qualified(&outbox.name.schema, &outbox.name.table);
        match Claimed::read(&client, home, &config.slot, &config.publication, outbox).await? {
            Ok(claimed) => {
                let mut count = 0;
                claimed
                    .each(&client, |claim| {
                        open.insert(hash(claim.id.as_bytes()));
                        count += 1;
                        open.len() < ROWS_MAX
                    })
                    .await?;
                patterns.push(Pattern::of(&outbox.topic));
                for topic in claimed.destinations(&client).await? {
                    patterns.push(topic.parse()?);
                }
                outboxes.push((table, claimed, count));
            }
            Err(why) => findings.push(check::not_comparable(&table, &why)),
        }
    }
    drop(client);
    if open.len() >= ROWS_MAX {
        findings.push(Finding::note(
            "the comparison with the topics",
            format!("is of {ROWS_MAX} rows, which is the most"),
            "walpost prune first, so that there are fewer",
        ));
    }
    if open.is_empty() {
        return Ok(findings);
    }
    let properties = consumer_properties(config);
    let scanned = tokio::task::spawn_blocking(move || {
        let mut meter = Meter::new();
        let scan = ids::scan(
            &properties,
            &patterns,
            within,
            |id| _ = open.remove(&hasher.hash_one(id)),
            |scan| meter.show(scan),
        );
        meter.end();
        scan.map(|scan| (scan, open, hasher))
    });
    let (mut scan, open, hasher) = scanned.await??;
    let compacted = |policy: &Option<String>| policy.as_ref().is_some_and(|policy| policy.contains("compact"));
    for (name, _) in kafka.topics.iter().filter(|(_, topic)| compacted(&topic.cleanup_policy)) {
        scan.cut.insert(name.clone(), i64::MAX);
    }
    let client = sql::connect(&config.database).await?;
    for (table, claimed, count) in outboxes {
        let mut absent = Absent::default();
        if !open.is_empty() {
            claimed
                .each(&client, |claim| {
                    if open.contains(&hasher.hash_one(claim.id.as_bytes())) {
                        absent.add(claim, &scan.cut);
                    }
                    true
                })
                .await?;
        }
        findings.extend(check::deep(&table, count, &absent, &scan));
    }
    Ok(findings)
}

/// A bar on a terminal, a line in the log now and then elsewhere.
struct Meter {
    bar: Option<ProgressBar>,
    told: Instant,
}

impl Meter {
    fn new() -> Meter {
        let style = ProgressStyle::with_template("records {pos} of {len} [{bar:40}] {per_sec}, {eta_precise} left");
        let bar = ProgressBar::new(0).with_style(style.expect("the template is right"));
        Meter { bar: bars::show(bar), told: Instant::now() }
    }

    fn show(&mut self, scan: &Scan) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(scan.total);
                bar.set_position(scan.read);
            }
            None if self.told.elapsed() >= TOLD_EVERY => {
                tracing::info!("{} of {} records are compared", scan.read, scan.total);
                self.told = Instant::now();
            }
            None => {}
        }
    }

    fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
