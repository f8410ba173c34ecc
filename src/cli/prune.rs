//! `walpost prune`: deletes what is published and old enough.

use std::{
    io::{IsTerminal, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{Exit, output, with_tables};
use crate::{
    config::{Config, Flags, Needs},
    prune::{self, Kept, Order, Progress, Report},
};

/// Delete published rows that are older than the retention
///
/// Only rows that are proven published (walpost.progress), and none whose dead letter is open. Works in short
/// transactions with rests in between, and drops whole partitions where it may. Exits with 1 when something that may go
/// was locked by others and stays until the next time.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  walpost prune --retention 7d --dry-run")]
pub struct Args {
    /// Count what would go, and delete nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = with_tables(Config::load(&args.flags, Needs::DATABASE)?).await?;
    let order = Order { config: &config, retention: config.retention, dry_run: args.dry_run };
    let mut reports = Vec::with_capacity(config.outboxes.len());
    for outbox in &config.outboxes {
        let mut meter = Meter::new();
        let report = prune::prune(&order, outbox, |progress| meter.show(&progress)).await;
        meter.end();
        let report = report?;
        if !args.json {
            output::print(text(&report, &order))?;
        }
        reports.push(report);
    }
    if args.json {
        output::print(format_args!("{}\n", json!({ "dry_run": args.dry_run, "outboxes": reports })))?;
    }
    Ok(if reports.iter().all(Report::is_complete) { Exit::Done } else { Exit::Failed })
}

fn text(report: &Report, order: &Order<'_>) -> String {
    let would = if order.dry_run { "would be " } else { "" };
    let mut text = format!("{}: {} {would}deleted\n", report.table, rows(report.deleted));
    for dropped in &report.dropped {
        text.push_str(&format!("  partition {} {would}dropped ({})\n", dropped.partition, rows(dropped.rows)));
    }
    let retention = humantime::format_duration(order.retention);
    let Kept { filtered, unproven, young, dead_letters, locked } = report.kept;
    for (count, why) in [
        (unproven, "not proven to be published".to_owned()),
        (young, format!("younger than {retention}")),
        (dead_letters, "with an open dead letter (walpost dead-letter list)".to_owned()),
        (filtered, "left out by the publication's row filter".to_owned()),
        (locked, "locked by others: prune again".to_owned()),
    ] {
        if count > 0 {
            text.push_str(&format!("  kept {} {why}\n", rows(count)));
        }
    }
    for partition in &report.left_detached {
        text.push_str(&format!("  partition {partition} is detached and has rows that stay: prune again\n"));
    }
    text
}

fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// A bar on a terminal, a line in the log now and then elsewhere.
struct Meter {
    bar: Option<ProgressBar>,
    told: Instant,
}

const TOLD_EVERY: Duration = Duration::from_secs(10);

impl Meter {
    fn new() -> Meter {
        let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed_precise}, {eta_precise} left")
            .expect("the template is right");
        let bar = stderr().is_terminal().then(|| ProgressBar::new(0).with_style(style));
        Meter { bar, told: Instant::now() }
    }

    fn show(&mut self, Progress { table, blocks, blocks_total, rows }: &Progress<'_>) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(*blocks_total);
                bar.set_position(*blocks);
                bar.set_message(format!("{table}: {rows} rows"));
            }
            None if self.told.elapsed() >= TOLD_EVERY => {
                tracing::info!(%table, rows, blocks, of = blocks_total, "pruning");
                self.told = Instant::now();
            }
            None => {}
        }
    }

    fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prune::Dropped;

    #[test]
    fn the_answer_says_what_went_and_what_stayed_and_why() {
        let config = Config::load(&Flags::default(), Needs::NOTHING).unwrap();
        let order = Order { config: &config, retention: Duration::from_secs(7 * 86_400), dry_run: false };
        let report = Report {
            table: "walpost.outbox".to_owned(),
            deleted: 1,
            dropped: vec![Dropped { partition: "walpost.outbox_20260101".to_owned(), rows: 40 }],
            kept: Kept { unproven: 2, young: 1, ..Kept::default() },
            left_detached: Vec::new(),
        };
        assert_eq!(
            text(&report, &order),
            "walpost.outbox: 1 row deleted\n  partition walpost.outbox_20260101 dropped (40 rows)\n  \
             kept 2 rows not proven to be published\n  kept 1 row younger than 7days\n"
        );
    }
}
