//! Tail: what consumers get, readable, whole and harmless to a terminal.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer},
};
use serde_json::{Value, json};

use crate::support::{kafka::Kafka, postgres::MAIN, postgres::Postgres, process::clean, walpost::walpost};

const WITHIN: &str = "30s";

fn produce(topic: &str, key: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)], value: Option<&[u8]>) {
    produce_at(topic, 1_700_000_000_123, key, headers, value);
}

fn produce_at(topic: &str, at: i64, key: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)], value: Option<&[u8]>) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", Kafka::shared().brokers()).create().expect("valid");
    let headers =
        headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| all.insert(Header { key, value: *value }));
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).headers(headers).timestamp(at);
    record.key = key;
    record.payload = value;
    producer.send(record).map_err(|(error, _)| error).expect("the queue is empty");
    producer.flush(Duration::from_secs(30)).expect("the broker is up");
}

#[test]
fn hostile_bytes_arrive_whole_and_drive_no_terminal() {
    let database = Postgres::shared(MAIN).database();
    let topic = format!("{}.hostile", database.name);
    Kafka::shared().create_topic(&topic, 1, &[]);
    let brokers = Kafka::shared().brokers();
    produce(
        &topic,
        Some(b"\x1b]0;title\x07"),
        &[("id", Some(b"1")), ("n\x1b", None), ("raw", Some(b"\xff"))],
        Some("ü \u{9b}31m \u{202e}\nnext".as_bytes()),
    );
    produce(&topic, None, &[], None);
    produce(&topic, Some(b""), &[], Some(b"\xff\x00"));
    let read = |more: &[&str]| {
        let base = ["tail", &topic, "--brokers", &brokers, "--from-beginning", "-n", "3", "--timeout", WITHIN];
        let finished = walpost(&[&base, more].concat());
        assert_eq!(finished.code, 0, "{finished:?}");
        assert!(finished.stdout.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{finished:?}");
        finished.stdout
    };
    let records: Vec<Value> = read(&["--json"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let time = "2023-11-14T22:13:20.123Z";
    assert_eq!(
        records,
        [
            json!({ "time": time, "topic": topic, "partition": 0, "offset": 0, "key": "\u{1b}]0;title\u{7}",
                "headers": [{ "name": "id", "value": "1" }, { "name": "n\u{1b}", "value": null },
                            { "name": "raw", "value_base64": "/w==" }],
                "value": "ü \u{9b}31m \u{202e}\nnext" }),
            json!({ "time": time, "topic": topic, "partition": 0, "offset": 1, "key": null, "headers": [], "value": null }),
            json!({ "time": time, "topic": topic, "partition": 0, "offset": 2, "key": "", "headers": [], "value_base64": "/wA=" }),
        ]
    );
    let text = read(&[]);
    for part in [
        format!("{time} {topic}[0]@0 key \\u{{1b}}]0;title\\u{{7}}\n    id: 1\n"),
        "ü \\u{9b}31m \\u{202e}\\nnext\n".to_owned(),
        "null (tombstone)".to_owned(),
        "\\xff\\u{0}".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is not in {text}");
    }
}

#[test]
fn new_records_of_old_and_new_topics_are_followed_until_the_reader_goes() {
    let database = Postgres::shared(MAIN).database();
    let old = format!("{}.old", database.name);
    Kafka::shared().create_topic(&old, 2, &[]);
    produce(&old, Some(b"k"), &[], Some(b"before"));
    let pattern = format!("{}.*", database.name);
    let brokers = Kafka::shared().brokers();
    let mut tail = clean(env!("CARGO_BIN_EXE_walpost"))
        .args(["tail", &pattern, "--brokers", &brokers, "--timeout", WITHIN, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut log = BufReader::new(tail.stderr.take().expect("a pipe"));
    let mut said = String::new();
    log.read_line(&mut said).expect("it speaks");
    assert!(said.contains("reading"), "{said}");
    produce(&old, Some(b"k"), &[], Some(b"after"));
    let mut lines = BufReader::new(tail.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("UTF-8")).expect("JSON") };
    assert_eq!(next()["value"], "after");
    let new = format!("{}.new", database.name);
    Kafka::shared().create_topic(&new, 1, &[]);
    produce(&new, Some(b"k"), &[], Some(b"first"));
    let first = next();
    assert_eq!((first["value"].as_str(), first["topic"].as_str()), (Some("first"), Some(new.as_str())));
    // The reader has seen enough: the next record finds a closed pipe, which is no failure.
    drop(lines);
    produce(&new, Some(b"k"), &[], Some(b"second"));
    assert_eq!(tail.wait().expect("our child").code(), Some(0));
}

#[test]
fn too_few_records_in_time_is_a_failure() {
    let database = Postgres::shared(MAIN).database();
    let topic = format!("{}.empty", database.name);
    Kafka::shared().create_topic(&topic, 1, &[]);
    let brokers = Kafka::shared().brokers();
    let finished = walpost(&["tail", &topic, "--brokers", &brokers, "-n", "1", "--timeout", "100ms"]);
    assert!(finished.code == 1 && finished.stderr.contains("0 of 1 records"), "{finished:?}");
    let finished = walpost(&["tail", &topic, "--brokers", &brokers, "--timeout", "100ms"]);
    assert!(finished.code == 0 && finished.stdout.is_empty(), "{finished:?}");
}

#[test]
fn only_what_is_asked_for_is_shown() {
    let database = Postgres::shared(MAIN).database();
    let topic = format!("{}.filtered", database.name);
    Kafka::shared().create_topic(&topic, 2, &[]);
    let brokers = Kafka::shared().brokers();
    // A second apart from 22:13:20 on, each in the partition of its key.
    for n in 0..6 {
        let (key, id) = (format!("o-{}", n % 3), n.to_string());
        let event_type = if n < 3 { b"Placed".as_slice() } else { b"Paid" };
        let headers = [("id", Some(id.as_bytes())), ("event_type", Some(event_type))];
        produce_at(&topic, 1_700_000_000_000 + n * 1_000, Some(key.as_bytes()), &headers, Some(id.as_bytes()));
    }
    let shown = |more: &[&str]| {
        let until = if more.contains(&"--until") { &[][..] } else { &["--until", "0s"] };
        let finished = walpost(&[&["tail", &topic, "--brokers", &brokers, "--json"], until, more].concat());
        assert_eq!(finished.code, 0, "{finished:?}");
        let records = finished.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let mut values: Vec<_> =
            records.map(|record| record["value"].as_str().expect("it has one").to_owned()).collect();
        values.sort();
        values.concat()
    };
    assert_eq!(shown(&[]), "012345");
    assert_eq!(shown(&["--aggregate", "o-1", "--type", "Paid"]), "4");
    assert_eq!(shown(&["--id", "0", "--id", "5", "--header", "event_type=Paid"]), "5");
    assert_eq!(shown(&["--since", "2023-11-14T22:13:22Z", "--until", "2023-11-14T22:13:24Z"]), "23");
    assert_eq!(shown(&["--since", "2023-11-14T22:13:26Z"]), "", "later than all records");
    let of = |partition: &str| shown(&["--partition", partition]);
    let (first, second) = (of("0"), of("1"));
    assert_eq!(first.len() + second.len(), 6, "{first} {second}");
    assert_eq!(walpost(&["tail", &topic, "--brokers", &brokers, "--until", "0s", "--id", "0", "-n", "2"]).code, 1);
}

#[test]
fn what_is_not_in_kafka_is_looked_for_elsewhere() {
    let finished = walpost(&["tail", "--sink-kind", "stdout"]);
    assert!(finished.code == 1 && finished.stderr.contains("standard output is all there is"), "{finished:?}");
}
