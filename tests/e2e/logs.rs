//! Logs: a line an interval tells how the stream is, each line is what its form says, and no payload is in any.

use std::time::Duration;

use serde_json::Value;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_line_an_interval_tells_how_the_stream_is_and_no_line_has_a_payload() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let configuration = outbox.configuration(Kafka::shared(), "log_interval = '1s'");
    let arguments = ["--log-format", "json", "--log-level", "walpost=trace,librdkafka=debug,rdkafka=debug"];
    let walpost = Walpost::start_with(&configuration, &arguments, &[]);
    walpost.streams(&outbox, WITHIN);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
         SELECT 'order', 'o-1', 'e', '{\"card\": \"4111-of-the-payload\"}', '{\"own\": \"of-the-header\"}'
         FROM generate_series(1, 3)",
    );
    let lines = || {
        let log = walpost.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == "the last 1s").collect::<Vec<_>>()
    };
    let sum = |lines: &[Value], name: &str| lines.iter().filter_map(|line| line[name].as_u64()).sum::<u64>();
    let lines = eventually(WITHIN, "all is told", || Some(lines()).filter(|lines| sum(lines, "delivered") == 3));
    assert_eq!(sum(&lines, "events"), 3);
    let line = lines.last().expect("there are some");
    assert_eq!((&line["level"], &line["state"]), (&"INFO".into(), &"streaming".into()));
    assert_eq!((&line["in_flight"], &line["lag_seconds"]), (&0.into(), &0.0.into()));
    assert!(line["lag_bytes"].is_u64() && line["retained_bytes"].is_u64(), "{line}");
    assert_eq!(walpost.terminate(WITHIN), 0);
    let log = walpost.log();
    for line in log.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    assert!(!log.contains("4111-of-the-payload") && !log.contains("of-the-header"), "a payload is in the log");
}

#[test]
fn the_line_is_left_out_where_it_is_not_wanted() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let every = Walpost::start(&outbox.configuration(Kafka::shared(), "log_interval = '1s'"));
    every.streams(&outbox, WITHIN);
    // A standby tells nothing of a stream that another has.
    let standby = Walpost::start(&outbox.configuration(Kafka::shared(), "log_interval = '1s'"));
    eventually(WITHIN, "two lines", || (every.log().matches("the last 1s").count() >= 2).then_some(()));
    assert!(every.log().contains(" INFO walpost::cli::pulse: the last 1s state=\"streaming\" events=0 delivered=0"));
    assert_eq!(standby.log().matches("the last 1s").count(), 0);
    assert_eq!(every.terminate(WITHIN), 0);
    let never = Walpost::start(&outbox.configuration(Kafka::shared(), "log_interval = '0s'"));
    standby.kill();
    never.streams(&outbox, WITHIN);
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    assert!(!never.log().contains("the last"));
}
