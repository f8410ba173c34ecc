//! `walpost tail`: what arrives in Kafka, readably.

mod filter;

use std::time::{Duration, Instant};

use anyhow::bail;
use jiff::Timestamp;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message};
use serde_json::{Map, Value, json};

use self::filter::Filter;
use super::{Exit, output};
use crate::{
    config::{Config, Flags, Needs, Sink},
    kafka::{
        client,
        tail::{From, Tail},
        topics::Pattern,
    },
    printable::{insert_bytes, printable, printable_json},
};

/// Once all that is asked for is in the past, the end is where no more records come for so long.
const QUIET: Duration = Duration::from_secs(2);

/// Print records of the topics as they arrive, with key and headers
///
/// Reads without a consumer group and commits nothing. Without topics: those of the configuration's templates, as in
/// outbox.event.*; events with a destination of their own go elsewhere. Of Kafka transactions only
/// committed records are shown, unless --kafka isolation.level=read_uncommitted. Control characters are escaped.
/// Values of one filter add up, filters narrow each other down.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  walpost tail --brokers kafka:9092\n  \
                        walpost tail 'outbox.event.*' --from-beginning -n 10 --json --timeout 30s\n  \
                        walpost tail --aggregate order/o-812 --since 2h --until 1h\n  \
                        walpost tail --type OrderPlaced --header tenant=acme")]
pub struct Args {
    /// Topics; * stands for any text.
    #[arg(value_name = "TOPIC")]
    topics: Vec<Pattern>,
    /// Begin with the oldest record rather than with the next one.
    #[arg(long, conflicts_with = "since")]
    from_beginning: bool,
    #[command(flatten)]
    filter: Filter,
    /// Stop after so many records that are shown.
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
    /// Stop after so long; with fewer records than --count the exit code is 1.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// Print one JSON object a line. What is not UTF-8 is in base64, under a name that ends in _base64.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::NOTHING)?;
    let instead = match config.sink {
        Sink::Kafka => None,
        Sink::Webhook => Some("a receiver sees the requests; walpost replay --stdout prints events as they were sent"),
        Sink::RabbitMq => {
            Some("bind a queue of your own to the exchange; walpost replay --stdout prints events as they were sent")
        }
        Sink::Stdout => Some("what walpost run writes to standard output is all there is"),
    };
    if let Some(instead) = instead {
        bail!("walpost tail reads Kafka's topics, and sink.kind is another: {instead}");
    }
    // What it lacks for Kafka is named now.
    let config = Config::load(&args.flags, Needs::KAFKA).map(|_| config)?;
    let patterns = if args.topics.is_empty() { Pattern::events(&config) } else { args.topics.clone() };
    let names = patterns.iter().map(Pattern::to_string).collect::<Vec<_>>().join(" ");
    let properties = client::consumer_properties(&config);
    // A thread of its own: librdkafka's calls block.
    tokio::task::spawn_blocking(move || {
        let from = match args.filter.since {
            Some(since) => From::Time(filter::millis(since)),
            // What is over is all there.
            None if args.from_beginning || args.filter.is_over() => From::Beginning,
            None => From::End,
        };
        let mut tail = Tail::start(&properties, patterns, args.filter.partitions.clone(), from)?;
        if tail.partitions() == 0 {
            tracing::warn!(topics = names, "there is no such topic yet; waiting for it");
        } else {
            tracing::info!(topics = names, partitions = tail.partitions(), "reading");
        }
        follow(&mut tail, &args)
    })
    .await?
}

fn follow(tail: &mut Tail, args: &Args) -> anyhow::Result<Exit> {
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut seen = 0;
    while args.count.is_none_or(|count| seen < count) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return match args.count {
                Some(count) => bail!("{seen} of {count} records arrived within --timeout"),
                None => Ok(Exit::Done),
            };
        }
        if args.filter.is_over() && tail.is_quiet_for(QUIET) {
            return match args.count {
                Some(count) => bail!("{seen} of {count} records came before --until"),
                None => Ok(Exit::Done),
            };
        }
        if let Some(record) = tail.poll()?.filter(|record| args.filter.lets_through(record)) {
            seen += 1;
            output::print(if args.json { as_json(&record) } else { as_text(&record) })?;
        }
    }
    Ok(Exit::Done)
}

fn as_text(record: &BorrowedMessage<'_>) -> String {
    let place = format!("{}[{}]@{}", printable(record.topic().as_bytes()), record.partition(), record.offset());
    let key = record.key().map_or("none".to_owned(), printable);
    let mut text = format!("{} {place} key {key}\n", time(record).unwrap_or_else(|| "no time".to_owned()));
    for header in record.headers().iter().flat_map(|headers| headers.iter()) {
        let value = header.value.map_or("null".to_owned(), printable);
        text.push_str(&format!("    {}: {value}\n", printable(header.key.as_bytes())));
    }
    text.push_str(&format!("  {}\n", record.payload().map_or("null (tombstone)".to_owned(), printable)));
    text
}

fn as_json(record: &BorrowedMessage<'_>) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), time(record).into());
    object.insert("topic".to_owned(), record.topic().into());
    object.insert("partition".to_owned(), record.partition().into());
    object.insert("offset".to_owned(), record.offset().into());
    insert_bytes(&mut object, "key", record.key());
    let header = |header: Header<'_, &[u8]>| {
        let mut object = Map::new();
        object.insert("name".to_owned(), header.key.into());
        insert_bytes(&mut object, "value", header.value);
        Value::Object(object)
    };
    let headers: Vec<_> = record.headers().map_or_else(Vec::new, |headers| headers.iter().map(header).collect());
    object.insert("headers".to_owned(), headers.into());
    insert_bytes(&mut object, "value", record.payload());
    printable_json(&json!(object).to_string()) + "\n"
}

/// RFC 3339, in UTC, to the millisecond that Kafka keeps.
fn time(record: &BorrowedMessage<'_>) -> Option<String> {
    let time = Timestamp::from_millisecond(record.timestamp().to_millis()?).ok()?;
    Some(format!("{time:.3}"))
}
