//! `walpost bench`: measures walpost on the servers it is pointed at.

use clap::value_parser;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::json;

use super::{Exit, output};
use crate::{
    bench::{
        backlog::Shape,
        drain::{self, Run},
        latency,
    },
    config::{Config, Flags, Needs},
    trial::{at_site, comparison::Verdict},
};

/// Measure walpost on given servers
///
/// It works in a schema, publication, slots and topics of its own, which it removes afterwards. What was committed is
/// compared with what a consumer gets: the exit code is 1 where they differ.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  walpost bench drain --database-url postgres://postgres@db/app --brokers kafka:9092"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Drain(Drain),
    Latency(Latency),
}

/// Drain a prepared backlog: records a second, CPU, memory, and what the servers do alone
///
/// walpost runs as a process of its own, from copies of one slot, each run into a fresh topic. Beside each run stand
/// the floors: events a second that the server sends when they are received and discarded, and records a second that
/// the broker takes from a bare producer with the same properties.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  walpost bench drain --database-url postgres://postgres@db/app --brokers kafka:9092"
)]
struct Drain {
    /// Events of the backlog.
    #[arg(long, default_value_t = 500_000, value_parser = value_parser!(u32).range(1..))]
    events: u32,
    /// Size of a payload.
    #[arg(long, default_value_t = 300)]
    bytes: u32,
    /// Rows that each transaction inserts; as many as there are events makes one transaction of all.
    #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    rows_per_transaction: u32,
    /// Runs; medians are shown.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    runs: u32,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(i32).range(1..))]
    partitions: i32,
    /// Leave out the floors.
    #[arg(long)]
    no_floors: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Commit at a steady rate: milliseconds from INSERT to consumer
///
/// Single-row transactions that wait for the disk, from several connections. The time runs from just before the INSERT
/// is sent until the consumer has the record, in one process with one clock.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  walpost bench latency --database-url postgres://postgres@db/app --brokers kafka:9092"
)]
struct Latency {
    /// Commits a second.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u32).range(1..))]
    rate: u32,
    /// Seconds that are counted.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seconds before those.
    #[arg(long, default_value_t = 5)]
    warm_seconds: u32,
    /// Size of a payload.
    #[arg(long, default_value_t = 300)]
    bytes: u32,
    /// Connections that commit.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(i32).range(1..))]
    partitions: i32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::Drain(args) => drain(args).await,
        Command::Latency(args) => latency(args).await,
    }
}

async fn drain(args: Drain) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE_AND_KAFKA)?;
    let shape = Shape {
        events: args.events,
        bytes: args.bytes,
        rows_per_transaction: args.rows_per_transaction.min(args.events),
    };
    let plan = drain::Plan { shape, runs: args.runs, partitions: args.partitions, floors: !args.no_floors };
    let report = at_site(&config, "bench", async |site| drain::drain(site, &config, &args.flags, plan).await).await?;
    if args.json {
        print_json("drain", &report, Some(medians(&report)))?;
    } else {
        output::print(drained(&report))?;
    }
    Ok(if report.is_exact() { Exit::Done } else { Exit::Failed })
}

async fn latency(args: Latency) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::DATABASE_AND_KAFKA)?;
    let plan = latency::Plan {
        rate: args.rate,
        seconds: args.seconds,
        warm_seconds: args.warm_seconds,
        bytes: args.bytes,
        connections: args.connections,
        partitions: args.partitions,
    };
    let report =
        at_site(&config, "bench", async |site| latency::latency(site, &config, &args.flags, plan).await).await?;
    if args.json {
        print_json("latency", &report, None)?;
    } else {
        let latency::Report { p50_ms, p95_ms, p99_ms, max_ms, cpu_seconds_per_million, peak_rss_mib, late, .. } =
            report;
        output::print(format_args!(
            "commit to consumer: p50 {p50_ms:.1} ms, p95 {p95_ms:.1} ms, p99 {p99_ms:.1} ms, max {max_ms:.1} ms\n\
             walpost: {cpu_seconds_per_million:.1} CPU seconds a million events, {peak_rss_mib:.1} MiB at most\n\
             {late} commits were sent late; {}\n",
            told(report.verdict)
        ))?;
    }
    Ok(if report.verdict.is_exact() { Exit::Done } else { Exit::Failed })
}

fn print_json(kind: &str, report: &impl Serialize, medians: Option<serde_json::Value>) -> anyhow::Result<()> {
    let mut report = serde_json::to_value(report)?;
    report["kind"] = json!(kind);
    if let Some(medians) = medians {
        report["medians"] = medians;
    }
    output::print(format_args!("{report}\n"))
}

/// The slower of the two floors.
fn floor(report: &drain::Report) -> f64 {
    report.median(|run| run.server_per_second).min(report.median(|run| run.broker_per_second))
}

fn medians(report: &drain::Report) -> serde_json::Value {
    let records = report.median(|run| Some(run.records_per_second));
    json!({
        "records_per_second": records,
        "cpu_seconds_per_million": report.median(|run| Some(run.cpu_seconds_per_million)),
        "peak_rss_mib": report.median(|run| Some(run.peak_rss_mib)),
        "server_per_second": report.median(|run| run.server_per_second),
        "broker_per_second": report.median(|run| run.broker_per_second),
        "of_floor": records / floor(report),
    })
}

fn drained(report: &drain::Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["run", "records/s", "CPU s/million", "peak MiB", "server alone/s", "broker alone/s", "records"]);
    let number = |value: f64, digits: usize| match value.is_nan() {
        true => "-".to_owned(),
        false => format!("{value:.digits$}"),
    };
    let row = |name: String, figure: &dyn Fn(fn(&Run) -> Option<f64>) -> f64, verdict: String| {
        [
            name,
            number(figure(|run| Some(run.records_per_second)), 0),
            number(figure(|run| Some(run.cpu_seconds_per_million)), 2),
            number(figure(|run| Some(run.peak_rss_mib)), 1),
            number(figure(|run| run.server_per_second), 0),
            number(figure(|run| run.broker_per_second), 0),
            verdict,
        ]
    };
    for (index, run) in report.runs.iter().enumerate() {
        let figure = |of: fn(&Run) -> Option<f64>| of(run).unwrap_or(f64::NAN);
        table.add_row(row((index + 1).to_string(), &figure, told(run.verdict)));
    }
    table.add_row(row("median".to_owned(), &|of| report.median(of), String::new()));
    for column in 1..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let share = report.median(|run| Some(run.records_per_second)) / floor(report);
    let share = if share.is_nan() { String::new() } else { format!("{share:.2} of the slower floor\n") };
    format!("{table}\n{share}")
}

fn told(verdict: Verdict) -> String {
    if verdict.is_exact() {
        return "exactly those committed".to_owned();
    }
    let Verdict { missing, duplicates, reordered, unexpected } = verdict;
    format!("{missing} missing, {duplicates} twice, {reordered} out of order, {unexpected} never committed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(records_per_second: f64, floors: Option<f64>, missing: usize) -> Run {
        Run {
            records_per_second,
            cpu_seconds_per_million: 3.5,
            peak_rss_mib: 20.0,
            seconds: 1.0,
            server_per_second: floors,
            broker_per_second: floors.map(|floor| floor * 2.0),
            verdict: Verdict { missing, ..Verdict::default() },
        }
    }

    fn report(runs: Vec<Run>) -> drain::Report {
        drain::Report {
            events: 10,
            bytes: 300,
            rows_per_transaction: 1,
            partitions: 4,
            server_version: 150_018,
            walpost_version: "0",
            runs,
        }
    }

    #[test]
    fn the_table_has_runs_medians_and_the_share_of_the_slower_floor() {
        let report = report(vec![run(80_000.0, Some(100_000.0), 0), run(90_000.0, Some(100_000.0), 2)]);
        let text = drained(&report);
        assert!(text.contains("85000") && text.contains("0.85 of the slower floor"), "{text}");
        assert!(text.contains("exactly those committed") && text.contains("2 missing"), "{text}");
        assert!(!report.is_exact());
    }

    #[test]
    fn without_floors_there_is_no_share() {
        let text = drained(&report(vec![run(80_000.0, None, 0)]));
        assert!(!text.contains("floor") && !text.contains("NaN"), "{text}");
    }
}
