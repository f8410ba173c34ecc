//! Messages a second: walpost's publisher, and beside it in the same run the floor, lapin alone with a window of confirms.
//!
//!     cargo bench --profile release --bench rabbitmq -- amqp://user:password@127.0.0.1:5672
//!
//! Persistent messages of 256 bytes into one durable queue, which is made and removed; `WINDOW` says how many are unconfirmed
//! at most (5000). Prints both, and their ratio; *at once* is lapin without waiting until each message is written.

use std::{
    env,
    error::Error,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use walpost::{
    config::RabbitMq,
    sink::rabbitmq::{
        broker::Broker,
        message::Message,
        publisher::{Publisher, Verdict},
    },
};

const QUEUE: &str = "walpost.bench";
const MESSAGES: usize = 50_000;
const ROUNDS: usize = 5;
const BODY: [u8; 256] = [b'x'; 256];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Some(url) = env::args().nth(1).filter(|word| word.starts_with("amqp")) else {
        println!("give the URL of a broker: amqp://user:password@host:port");
        return Ok(());
    };
    let window = env::var("WINDOW").ok().and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let config = RabbitMq::parse(&url.as_str().into(), Duration::from_secs(30))?;
    let publisher = Publisher::start(Broker::new(&config)?);
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let bare = rate(bare(&channel, window)).await?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        let eager = rate(bare_eager(&channel, window)).await?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        let own = rate(own(&publisher, window)).await?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        let ratio = own / bare;
        println!("round {round}: lapin {bare:.0}/s, lapin at once {eager:.0}/s, walpost {own:.0}/s, ratio {ratio:.2}");
        // The first is to warm up.
        if round > 0 {
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[ratios.len() / 2]);
    channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
    Ok(())
}

async fn rate(work: impl Future<Output = Result<(), Box<dyn Error>>>) -> Result<f64, Box<dyn Error>> {
    let begin = Instant::now();
    work.await?;
    Ok(MESSAGES as f64 / begin.elapsed().as_secs_f64())
}

/// As everyone writes it: one after the other, at most so many unconfirmed.
async fn bare(channel: &Channel, window: usize) -> Result<(), Box<dyn Error>> {
    let mut confirms = FuturesUnordered::new();
    for number in 0..MESSAGES {
        if confirms.len() == window {
            confirms.next().await.expect("it is not empty")?;
        }
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        confirms.push(channel.basic_publish("".into(), QUEUE.into(), options, &BODY, properties(number)).await?);
    }
    while let Some(confirm) = confirms.next().await {
        confirm?;
    }
    Ok(())
}

/// Without waiting for each to be written to the socket.
async fn bare_eager(channel: &Channel, window: usize) -> Result<(), Box<dyn Error>> {
    let mut confirms = FuturesUnordered::new();
    for number in 0..MESSAGES {
        if confirms.len() == window {
            let result: Result<_, lapin::Error> = confirms.next().await.expect("it is not empty");
            result?;
        }
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        confirms.push(async move {
            channel.basic_publish("".into(), QUEUE.into(), options, &BODY, properties(number)).await?.await
        });
    }
    while let Some(confirm) = confirms.next().await {
        confirm?;
    }
    Ok(())
}

async fn own(publisher: &Publisher, window: usize) -> Result<(), Box<dyn Error>> {
    let mut verdicts = FuturesUnordered::new();
    for number in 0..MESSAGES {
        if verdicts.len() == window {
            taken(verdicts.next().await)?;
        }
        let (exchange, routing_key) = (ShortString::default(), QUEUE.into());
        let message = Message { exchange, routing_key, properties: properties(number), body: BODY.to_vec() };
        verdicts.push(publisher.publish(message));
    }
    while let Some(verdict) = verdicts.next().await {
        taken(Some(verdict))?;
    }
    Ok(())
}

fn taken(verdict: Option<Verdict>) -> Result<(), Box<dyn Error>> {
    match verdict.expect("some are under way") {
        Verdict::Taken => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// As many as a record of walpost has.
fn properties(number: usize) -> BasicProperties {
    let mut headers = FieldTable::default();
    for name in ["id", "event_type", "aggregate_type", "position"] {
        headers.insert(name.into(), AMQPValue::LongString(format!("{number:036}").into()));
    }
    BasicProperties::default()
        .with_delivery_mode(2)
        .with_app_id("walpost".into())
        .with_correlation_id(format!("{number:025}").into())
        .with_message_id(format!("{number:036}").into())
        .with_type("order_placed".into())
        .with_content_type("application/json".into())
        .with_headers(headers)
}
