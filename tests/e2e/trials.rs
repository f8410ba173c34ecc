//! The commands that try walpost out on given servers: they hold what they claim, and leave nothing behind.

use std::{ffi::OsString, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    eventually,
    kafka::Kafka,
    postgres::{Database, MAIN, Postgres},
    process::{Launch, Process, Signal},
    scratch,
    walpost::walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

/// Schemas, publications and slots of trials in this database.
fn left(database: &Database<'_>) -> Vec<String> {
    let name = &database.name;
    let found = database.session().rows(&format!(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'walpost%'
         UNION ALL SELECT pubname FROM pg_publication
         UNION ALL SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"
    ));
    found.into_iter().filter_map(|row| row.into_iter().next()?).collect()
}

fn bench(database: &Database<'_>, arguments: &[&str]) -> Value {
    let (url, brokers) = (database.url(), Kafka::shared().brokers());
    let servers = ["--json", "--database-url", &url, "--brokers", &brokers];
    let finished = walpost(&[&["bench"], arguments, &servers].concat());
    assert_eq!(finished.code, 0, "{finished:?}");
    assert_eq!(left(database), [""; 0]);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}

fn exact() -> Value {
    json!({"missing": 0, "duplicates": 0, "reordered": 0, "unexpected": 0})
}

#[test]
fn the_demo_holds_its_claims_and_removes_everything() {
    let database = Postgres::shared(MAIN).database();
    let kafka = Kafka::shared();
    let finished = walpost(&["demo", "--database-url", &database.url(), "--brokers", &kafka.brokers()]);
    assert_eq!(finished.code, 0, "{finished:?}");
    for part in ["OrderPaid", "ROLLBACK", "kill -9", " 0 missing", "Nothing was lost"] {
        assert!(finished.stdout.contains(part), "{part} in {finished:?}");
    }
    assert!(!finished.stdout.contains('\x1b'), "no colours where there is no terminal");
    assert_eq!(left(&database), [""; 0]);
    let site = finished.stdout.split_whitespace().find(|word| word.starts_with("walpost_demo_")).expect("it is named");
    let topic = format!("{}-orders", site.replace('_', "-"));
    eventually(WITHIN, &format!("topic {topic} is gone"), || kafka.partitions(&topic).is_none().then_some(()));
}

#[test]
fn a_drain_is_measured_beside_its_floors_and_compared() {
    let database = Postgres::shared(MAIN).database();
    let arguments = ["drain", "--events", "3000", "--runs", "2", "--rows-per-transaction", "10"];
    let report = bench(&database, &arguments);
    let runs = report["runs"].as_array().expect("runs are listed");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["verdict"], exact());
        for figure in ["records_per_second", "peak_rss_mib", "server_per_second", "broker_per_second"] {
            assert!(run[figure].as_f64().is_some_and(|value| value > 0.0), "{figure} in {run}");
        }
    }
    assert!(report["medians"]["of_floor"].as_f64().is_some_and(|share| share > 0.0), "{report}");
}

#[test]
fn every_run_of_an_exactly_once_drain_sends_all_of_it() {
    let database = Postgres::shared(MAIN).database();
    let arguments = ["drain", "--events", "3000", "--runs", "2", "--no-floors", "--delivery", "exactly_once"];
    let report = bench(&database, &arguments);
    let runs = report["runs"].as_array().expect("runs are listed");
    assert_eq!(runs.iter().map(|run| &run["verdict"]).collect::<Vec<_>>(), [&exact(), &exact()]);
}

#[test]
fn latency_is_measured_from_insert_to_consumer() {
    let database = Postgres::shared(MAIN).database();
    let report = bench(&database, &["latency", "--rate", "200", "--seconds", "2", "--warm-seconds", "1"]);
    assert_eq!(report["verdict"], exact());
    let figures = ["p50_ms", "p95_ms", "p99_ms", "max_ms"].map(|name| report[name].as_f64().expect("it is a number"));
    assert!(figures[0] > 0.0 && figures.is_sorted(), "{report}");
}

#[test]
fn an_interrupted_bench_clears_its_place() {
    let database = Postgres::shared(MAIN).database();
    let folder = scratch::folder("bench");
    let (url, brokers) = (database.url(), Kafka::shared().brokers());
    let program = env!("CARGO_BIN_EXE_walpost");
    // Far more than is drained before the signal comes.
    let arguments =
        ["bench", "drain", "--events", "1000000", "--no-floors", "--database-url", &url, "--brokers", &brokers];
    let bench = Process::start(&Launch {
        name: "bench".to_owned(),
        command: std::iter::once(program).chain(arguments).map(OsString::from).collect(),
        environment: Vec::new(),
        log: folder.join("log"),
        folder,
        last_signal: Signal::Int,
    });
    let rows = format!(
        "SELECT 1 FROM pg_stat_activity WHERE datname = '{}' AND query LIKE 'DO $$ BEGIN%' AND state = 'active'",
        database.name
    );
    eventually(WITHIN, "the backlog is being written", || (!database.session().rows(&rows).is_empty()).then_some(()));
    bench.signal(Signal::Int);
    assert_eq!(bench.wait(WITHIN), 1, "{}", bench.log());
    assert!(bench.log().contains("interrupted"), "{}", bench.log());
    assert_eq!(left(&database), [""; 0]);
}
