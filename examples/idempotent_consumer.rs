//! A Kafka consumer whose effect happens once for each event, however often Kafka hands it out: docs/inbox.md.
//!
//! Effect and claim are one transaction of the database, and the offset is committed after it. So the process may end at any
//! point: what it had not committed is undone and read again, and what it had committed is told as a duplicate.
//!
//! ```sh
//! walpost setup --inbox --database-url $DATABASE
//! psql $DATABASE -c 'create table account (customer text primary key, points bigint not null, changes bigint not null)' \
//!                -c 'create table booking (event_id text primary key, customer text not null, points bigint not null)'
//! cargo run --example idempotent_consumer -- claim $DATABASE localhost:9092 outbox.event.points billing
//! # And in the database of the outbox, for walpost run to send:
//! psql $OUTBOX -c "select walpost.enqueue('points', 'c-7', 'PointsGiven', '{\"points\": 5}')"
//! ```
//!
//! In place of `claim`: `constraint`, where the effect is a row that holds the event's id; `version`, where the event says how
//! things are now. A sixth word names this instance for good: its restart is no rebalance then (`group.instance.id`).
//! Events have the customer as their key and `{"points": 5}` as payload; others end the process. The first build takes minutes.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, bail};
use futures_util::FutureExt;
use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    consumer::{CommitMode, Consumer, ConsumerContext, StreamConsumer},
    error::{KafkaError, KafkaResult},
    message::{Headers, OwnedMessage},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Client, NoTls, Transaction};
use walpost::inbox::Inbox;

/// Most events that take effect in one transaction.
const BATCH: usize = 100;
/// How often a transaction is tried, with pauses from 50 ms up to 10 s in between: half a minute in all.
const ATTEMPTS: u32 = 10;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, database, brokers, topic, group, instance @ ..] = &words[..] else {
        bail!("usage: idempotent_consumer claim|constraint|version DATABASE_URL BROKERS TOPIC GROUP [INSTANCE]");
    };
    let (way, mut database) = (Way::named(way)?, Database { url: database.clone(), client: None });
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", group);
    config.set("enable.auto.commit", "false").set("isolation.level", "read_committed");
    config.set("auto.offset.reset", "earliest").set("session.timeout.ms", "10000");
    if let [instance] = instance {
        config.set("group.instance.id", instance);
    }
    let consumer: Events = config.create_with_context(Report)?;
    consumer.subscribe(&[topic])?;

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let inbox = Inbox::new(group);
    // It may stop anywhere. The consumer leaves its group when it is dropped, after the commits that are under way.
    tokio::select! {
        ended = consume(&consumer, way, &inbox, &mut database) => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

async fn consume(consumer: &Events, way: Way, inbox: &Inbox, database: &mut Database) -> anyhow::Result<()> {
    loop {
        let records = next_batch(consumer).await?;
        let events = records.iter().map(Event::read).collect::<anyhow::Result<Vec<_>>>()?;
        let mut attempt = 1;
        while let Err(error) = database.apply(way, inbox, &events).await {
            if attempt == ATTEMPTS {
                return Err(error.context("given up; the events are read again when this starts again"));
            }
            eprintln!("attempt {attempt}: {error:#}");
            tokio::time::sleep(Duration::from_secs(10).min(Duration::from_millis(50) * 2_u32.pow(attempt))).await;
            attempt += 1;
        }
        commit_offsets(consumer, &records)?;
    }
}

/// What is there, and at least one.
async fn next_batch(consumer: &Events) -> anyhow::Result<Vec<OwnedMessage>> {
    let mut batch = Vec::new();
    while batch.len() < BATCH {
        let next = if batch.is_empty() { Some(consumer.recv().await) } else { consumer.recv().now_or_never() };
        match next {
            Some(Ok(record)) => batch.push(record.detach()),
            Some(Err(error @ KafkaError::MessageConsumptionFatal(_))) => return Err(error.into()),
            // librdkafka goes on by itself.
            Some(Err(error)) => eprintln!("Kafka: {error}"),
            None => break,
        }
    }
    Ok(batch)
}

/// Past the last record of each partition. Where the partition went to another consumer meanwhile, this may set it back to what
/// that one has read too: duplicates, once more.
fn commit_offsets(consumer: &Events, records: &[OwnedMessage]) -> KafkaResult<()> {
    let mut next = BTreeMap::new();
    for record in records {
        // A rebalance may have begun a partition again in the middle of the batch.
        let next = next.entry((record.topic(), record.partition())).or_insert(0);
        *next = (*next).max(record.offset() + 1);
    }
    let mut offsets = TopicPartitionList::new();
    for ((topic, partition), next) in next {
        offsets.add_partition_offset(topic, partition, Offset::Offset(next))?;
    }
    consumer.commit(&offsets, CommitMode::Async)
}

/// What tells an event that took effect already.
#[derive(Clone, Copy)]
enum Way {
    Claim,
    Constraint,
    Version,
}

impl Way {
    fn named(name: &str) -> anyhow::Result<Way> {
        match name {
            "claim" => Ok(Way::Claim),
            "constraint" => Ok(Way::Constraint),
            "version" => Ok(Way::Version),
            other => bail!("{other:?} is none of claim, constraint, version"),
        }
    }

    /// Has the effect of an event, unless it had it. In a batch a second copy sees what the first one did: the transaction is
    /// the same.
    async fn apply(self, transaction: &Transaction<'_>, inbox: &Inbox, event: &Event) -> anyhow::Result<()> {
        let Event { id, position, customer, points } = event;
        match self {
            Way::Claim => {
                if inbox.claim(transaction, id).await? {
                    add_points(transaction, customer, *points).await?;
                }
            }
            Way::Constraint => {
                let book = "insert into booking (event_id, customer, points) values ($1, $2, $3) on conflict (event_id) do nothing";
                if transaction.execute(book, &[id, customer, points]).await? == 1 {
                    add_points(transaction, customer, *points).await?;
                }
            }
            Way::Version => {
                if inbox.advance(transaction, customer, position).await? {
                    let set = "insert into account (customer, points, changes) values ($1, $2, 1)
                               on conflict (customer) do update set points = excluded.points, changes = account.changes + 1";
                    transaction.execute(set, &[customer, points]).await?;
                }
            }
        }
        Ok(())
    }
}

/// An effect that would be wrong if it happened twice.
async fn add_points(transaction: &Transaction<'_>, customer: &str, points: i64) -> Result<(), tokio_postgres::Error> {
    let add = "insert into account (customer, points, changes) values ($1, $2, 1)
               on conflict (customer) do update
               set points = account.points + excluded.points, changes = account.changes + 1";
    transaction.execute(add, &[&customer, &points]).await?;
    Ok(())
}

struct Event {
    id: String,
    position: String,
    customer: String,
    points: i64,
}

impl Event {
    /// One that cannot be read ends the process. In a service of your own, it may be worth a table of dead letters.
    fn read(record: &OwnedMessage) -> anyhow::Result<Event> {
        let header = |name: &str| {
            let found = record.headers()?.iter().find(|header| header.key == name)?.value?;
            Some(String::from_utf8_lossy(found).into_owned())
        };
        let read = || {
            let payload: serde_json::Value = serde_json::from_slice(record.payload().context("no payload")?)?;
            Ok::<_, anyhow::Error>(Event {
                id: header("id").context("no header id")?,
                position: header("position").unwrap_or_else(|| below_all(record.offset())),
                customer: String::from_utf8(record.key().context("no key")?.to_vec())?,
                points: payload["points"].as_i64().context("no number of points")?,
            })
        };
        let place = || format!("record {} of {}-{}", record.offset(), record.topic(), record.partition());
        read().with_context(place)
    }
}

/// A position for an event that has none, as one that was recovered after the loss of a slot, or replayed from the table. It may
/// be older than what the customer has, or newer, and nothing tells which: a claim of its id is true also for a state of last
/// year. So it is below all positions of a log, and takes effect only where none is known yet; among its like the
/// later in the topic is newer, since recovered rows come in the order in which they were inserted. A state that came in no
/// other way is missed until the customer's next event.
fn below_all(offset: i64) -> String {
    // A log begins above 0xFFFFF: that is 2^52 records.
    format!("{:016X}-{:08X}", offset >> 32, offset & 0xFFFF_FFFF)
}

/// A connection that is made when it is needed.
struct Database {
    url: String,
    client: Option<Client>,
}

impl Database {
    /// All events in one transaction, or none.
    async fn apply(&mut self, way: Way, inbox: &Inbox, events: &[Event]) -> anyhow::Result<()> {
        // One that fails is not used again: the server undoes what was begun on it.
        let mut client = match self.client.take() {
            Some(client) => client,
            None => connect(&self.url).await?,
        };
        let transaction = client.transaction().await?;
        for event in events {
            way.apply(&transaction, inbox, event).await?;
        }
        transaction.commit().await?;
        self.client = Some(client);
        Ok(())
    }
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("cannot connect to the database")?;
    tokio::spawn(connection);
    // A claim waits for the consumer that has the event, and no longer.
    client.batch_execute("set lock_timeout = '10s'").await?;
    Ok(client)
}

type Events = StreamConsumer<Report>;

/// Says what becomes of offsets. One that is not committed is read again.
struct Report;

impl ClientContext for Report {}

impl ConsumerContext for Report {
    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        if let Err(error) = result {
            eprintln!("offsets are not committed: {error}");
        }
    }
}
