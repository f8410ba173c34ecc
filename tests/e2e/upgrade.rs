//! Another build of walpost and this one take turns at a stream, under load: nothing is lost, order is kept, and a clean stop
//! brings nothing twice. `scripts/upgrade.sh` builds the other one and names it in `WALPOST_TEST_OTHER_BUILD`.

use std::{
    env,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::run,
    walpost::{Walpost, program},
};

const WITHIN: Duration = Duration::from_secs(60);

/// The build to change from and back to; without one there is no story.
fn other_build() -> Option<PathBuf> {
    let other = env::var_os("WALPOST_TEST_OTHER_BUILD").map(PathBuf::from);
    if other.is_none() {
        eprintln!("no other build: scripts/upgrade.sh makes one and runs this");
    }
    other
}

#[test]
fn builds_change_under_load_at_least_once() {
    let Some(other) = other_build() else { return };
    // Set up by the newer one: the older one has to get along with tables that it does not know.
    changes(&other, Path::new(program()), "");
}

#[test]
fn builds_change_under_load_exactly_once() {
    let Some(other) = other_build() else { return };
    changes(&other, &other, "exactly once");
}

fn changes(other: &Path, set_up_by: &Path, delivery: &str) {
    let this = Path::new(program());
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    run(set_up_by, ["setup", "--snapshot", "never", "--database-url", &database.url(), "--slot", &database.name]);
    let outbox = Outbox::unmade(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 6, &[]);
    let exactly_once = !delivery.is_empty();
    let more = if exactly_once { outbox.exactly_once() } else { String::new() };
    let configuration = outbox.configuration(kafka, &more);
    let delivered = || match exactly_once {
        true => outbox.committed_delivered(kafka, "bulk", WITHIN),
        false => outbox.delivered(kafka, &["bulk"], WITHIN),
    };

    under_load(&outbox, || {
        for build in [other, this, other, this] {
            let walpost = streams(build, &configuration, &outbox);
            assert_eq!(walpost.terminate(WITHIN), 0, "{}", build.display());
        }
    });
    let walpost = Walpost::start_build(other, &configuration);
    let report = delivered();
    println!("clean stops: {} events, {report:?}", outbox.committed().len());
    report.assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);

    under_load(&outbox, || {
        for build in [this, other, this] {
            streams(build, &configuration, &outbox).kill();
        }
    });
    let walpost = Walpost::start_build(other, &configuration);
    let report = delivered();
    println!("kills -9: {} events, {report:?}", outbox.committed().len());
    if exactly_once {
        report.assert_exactly_once();
    } else {
        report.assert_complete();
    }
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Writes 200 events a second while something is done.
fn under_load(outbox: &Outbox<'_>, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| {
            let mut writer = outbox.writer();
            while !done.load(Ordering::Relaxed) {
                writer.bulk(Bulk { transactions: 10, rows: 1, aggregates: 20, padding: 200 });
                thread::sleep(Duration::from_millis(50));
            }
        });
        work();
    });
}

/// A build that streams and has delivered something.
fn streams(build: &Path, configuration: &str, outbox: &Outbox<'_>) -> Walpost {
    let walpost = Walpost::start_build(build, configuration);
    walpost.streams(outbox, WITHIN);
    let delivered = format!("walpost_records_delivered_total{{topic=\"{}\"}}", outbox.topic("bulk"));
    eventually(WITHIN, "it delivers", || walpost.metric(&delivered).filter(|count| *count >= 1.0));
    walpost
}

/// Ends the load, whatever the story inside came to.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
