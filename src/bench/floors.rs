//! What the servers do by themselves: no relay between them can be faster.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::bail;
use rdkafka::{
    ClientConfig, ClientContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, ProducerContext, ThreadedProducer},
};

use super::backlog::Prepared;
use crate::{
    config::Config,
    pipeline::{
        Lsn, PgTime,
        frame::{Frame, StatusUpdate},
    },
    postgres::replication::{Replication, StartRequest},
    sink::properties::properties,
    status::unix_us,
};

/// Receives the rows of a slot and throws them away; gives the seconds from the start of the stream to the last row.
pub async fn receive(config: &Config, slot: &str, publication: &str, rows: u32) -> anyhow::Result<f64> {
    const GOODBYE: Duration = Duration::from_secs(10);
    let connection = Replication::connect(&config.database).await?;
    let begun = Instant::now();
    let request = StartRequest { slot, publications: &[publication], start: Lsn::INVALID, messages: false };
    let mut stream = connection.start(&request).await?;
    let mut received = 0;
    while received < rows {
        stream.progress(true).await?;
        let mut asked = false;
        while let Some(frame) = stream.next_frame()? {
            match Frame::parse(frame)? {
                Frame::XLogData { message, .. } => received += u32::from(message.first() == Some(&b'I')),
                Frame::Keepalive { reply_requested, .. } => asked |= reply_requested,
            }
        }
        if asked {
            // Nothing is confirmed: the slot is a copy, and is dropped.
            let alive = StatusUpdate { confirmed: Lsn::INVALID, request_reply: false };
            stream.send(&alive.encode(PgTime::from_unix_us(unix_us(SystemTime::now()))));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::timeout(GOODBYE, stream.finish()).await??;
    Ok(seconds)
}

/// Produces records with walpost's own properties of librdkafka; gives the seconds until the last is acknowledged.
pub async fn produce(config: &Config, topic: &str, records: &[Prepared], count: u32) -> anyhow::Result<f64> {
    let mut client = ClientConfig::new();
    client.extend(properties(config));
    // Without a ledger, the queue is what bounds it.
    client.set("queue.buffering.max.messages", "100000");
    let reports = Arc::new(Reports::default());
    let producer: ThreadedProducer<Counting> = client.create_with_context(Counting(Arc::clone(&reports)))?;
    let begun = Instant::now();
    for record in records.iter().cycle().take(count as usize) {
        let headers = record.headers.iter().fold(OwnedHeaders::new_with_capacity(5), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let mut record = BaseRecord::to(topic).key(&record.key).payload(&record.value).headers(headers);
        while let Err((error, refused)) = producer.send(record) {
            let KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) = error else { return Err(error.into()) };
            record = refused;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    while reports.delivered.load(Ordering::Relaxed) < count {
        let failed = reports.failed.load(Ordering::Relaxed);
        if failed > 0 {
            bail!("Kafka did not take {failed} records of a bare producer");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}

#[derive(Default)]
struct Reports {
    delivered: AtomicU32,
    failed: AtomicU32,
}

struct Counting(Arc<Reports>);

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() { &self.0.delivered } else { &self.0.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
