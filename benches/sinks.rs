//! Events a second from an outbox to a receiver of signed webhooks, and to RabbitMQ beside the floor: lapin alone with confirms.
//!
//!     scripts/servers.sh cargo bench --bench sinks -- 50000 amqp://user:password@127.0.0.1:5672
//!
//! The words are the events of a run and, where RabbitMQ is measured too, its URL. It works in a database of its own, which it
//! makes anew, and in one durable queue, which it removes. Payloads have some 256 bytes, and the events take turns on 1,000
//! aggregates. A run begins with its first arrival and ends with its last; CPU is walpost's alone.

use std::{
    env,
    error::Error,
    fs,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::StatusCode};
use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions},
    types::{AMQPValue, FieldTable},
};
use tokio_postgres::{Client, NoTls};

const WALPOST: &str = env!("CARGO_BIN_EXE_walpost");
const DATABASE: &str = "walpost_bench_sinks";
const QUEUE: &str = "walpost.bench";
const SECRET: &str = "--webhook-secret=whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const RUNS: usize = 5;
/// walpost's own bound by default.
const IN_FLIGHT: usize = 5_000;
const PATIENCE: Duration = Duration::from_secs(300);

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let Ok(server) = env::var("DATABASE_URL") else {
        println!("run it by scripts/servers.sh, or set DATABASE_URL");
        return Ok(());
    };
    let events: u64 = words.first().map_or(Ok(50_000), |word| word.parse())?;
    let (client, url) = prepare(&server).await?;
    println!("webhooks: {events} events over 64 lanes");
    let receiver = Receiver::start()?;
    for run in 0..=RUNS {
        fill(&client, events).await?;
        let before = receiver.count();
        let to = format!("{}/events", receiver.url);
        let walpost = Walpost::start(
            &url,
            &["--sink-kind=webhook", "--webhook-allow-private", SECRET, &format!("--webhook-url={to}")],
        )?;
        let figures = measure(&walpost, events, async || Ok(receiver.count() - before)).await?;
        walpost.stop()?;
        println!("  run {run}: {figures}");
    }
    let Some(amqp) = words.get(1) else { return Ok(()) };
    println!("RabbitMQ: {events} events, at most {IN_FLIGHT} unconfirmed");
    let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    queue(&channel, false).await?;
    let mut ratios = Vec::new();
    for run in 0..=RUNS {
        let begin = Instant::now();
        bare(&channel, events).await?;
        let bare = events as f64 / begin.elapsed().as_secs_f64();
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        fill(&client, events).await?;
        let to = [format!("--rabbitmq-url={amqp}"), format!("--route-topic={QUEUE}")];
        let walpost = Walpost::start(&url, &["--sink-kind=rabbitmq", &to[0], &to[1]])?;
        let figures = measure(&walpost, events, async || queue(&channel, true).await).await?;
        walpost.stop()?;
        channel.queue_purge(QUEUE.into(), QueuePurgeOptions::default()).await?;
        println!("  run {run}: {figures}; lapin alone {bare:.0}/s, ratio {:.2}", figures.per_second / bare);
        // The first warms the broker up.
        if run > 0 {
            ratios.push(figures.per_second / bare);
        }
    }
    ratios.sort_by(f64::total_cmp);
    println!("  median ratio {:.2}", ratios[ratios.len() / 2]);
    channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
    Ok(())
}

/// A database with an outbox and its slot; gives its URL.
async fn prepare(server: &str) -> Outcome<(Client, String)> {
    let client = connect(server).await?;
    let drop_slots =
        format!("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{DATABASE}'");
    client.batch_execute(&drop_slots).await?;
    client.batch_execute(&format!("drop database if exists {DATABASE}")).await?;
    client.batch_execute(&format!("create database {DATABASE}")).await?;
    let (base, _) = server.rsplit_once('/').ok_or("DATABASE_URL is a URL that ends in a database")?;
    let url = format!("{base}/{DATABASE}");
    let made = Command::new(WALPOST)
        .args(["setup", "--yes", "--sink-kind=webhook", "--slot", DATABASE, "--database-url", &url])
        .stdout(Stdio::null())
        .status()?;
    assert!(made.success(), "walpost setup failed");
    Ok((connect(&url).await?, url))
}

async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn fill(client: &Client, events: u64) -> Outcome<()> {
    client.batch_execute("truncate walpost.outbox").await?;
    let rows = format!(
        "do $$ begin for t in 0 .. {} / 100 - 1 loop
           insert into walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
           select 'order', n % 1000, 'happened', jsonb_build_object('n', n, 'pad', repeat('x', 230))
           from generate_series(t * 100, t * 100 + 99) n;
           commit;
         end loop; end $$",
        events
    );
    Ok(client.batch_execute(&rows).await?)
}

struct Figures {
    per_second: f64,
    /// Of one core.
    cpu: f64,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figures { per_second, cpu } = self;
        let micros = cpu / per_second * 1e6;
        write!(f, "{per_second:.0} events/s, {:.0} % of a core ({micros:.0} µs an event)", cpu * 100.0)
    }
}

/// From the first arrival to the last.
async fn measure(walpost: &Walpost, events: u64, mut arrived: impl AsyncFnMut() -> Outcome<u64>) -> Outcome<Figures> {
    let end = Instant::now() + PATIENCE;
    let mut begun = None;
    loop {
        let count = arrived().await?;
        let (at, cpu) = (Instant::now(), walpost.cpu()?);
        let (first, begin, cpu_before) = match begun {
            None if count == 0 => (0, at, cpu),
            None => *begun.insert((count, at, cpu)),
            Some(begun) => begun,
        };
        if count >= events {
            let seconds = (at - begin).as_secs_f64();
            return Ok(Figures {
                per_second: (count - first) as f64 / seconds,
                cpu: (cpu - cpu_before).as_secs_f64() / seconds,
            });
        }
        if at > end {
            return Err(format!("{count} of {events} events arrived").into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct Walpost(Child);

impl Walpost {
    fn start(url: &str, to: &[&str]) -> Outcome<Walpost> {
        let child = Command::new(WALPOST)
            .args(["run", "--slot", DATABASE, "--database-url", url, "--http-listen=off", "--log-level=warn"])
            .args(to)
            .spawn()?;
        Ok(Walpost(child))
    }

    /// All that it has used.
    fn cpu(&self) -> Outcome<Duration> {
        // Linux counts in hundredths of a second here, whatever the machine.
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("the name of the program is in parentheses")?;
        let ticks: u32 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
        Ok(TICK * ticks)
    }

    fn stop(mut self) -> Outcome<()> {
        Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status()?;
        assert!(self.0.wait()?.success(), "walpost did not stop cleanly");
        Ok(())
    }
}

/// Counts requests, on a thread of its own.
struct Receiver {
    url: String,
    requests: Arc<AtomicU64>,
}

impl Receiver {
    fn start() -> Outcome<Receiver> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&requests);
        let app = Router::new().fallback(async move |_: Bytes| {
            counted.fetch_add(1, Ordering::Relaxed);
            StatusCode::NO_CONTENT
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
                axum::serve(listener, app).await.expect("it serves");
            });
        });
        Ok(Receiver { url, requests })
    }

    fn count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// How many messages the queue has; it is made where it is not there.
async fn queue(channel: &Channel, passive: bool) -> Outcome<u64> {
    let options = QueueDeclareOptions { durable: true, passive, ..QueueDeclareOptions::default() };
    Ok(channel.queue_declare(QUEUE.into(), options, FieldTable::default()).await?.message_count().into())
}

/// The floor: one message after the other, persistent and mandatory, with as much in it as a record has.
async fn bare(channel: &Channel, events: u64) -> Outcome<()> {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let mut confirms = FuturesUnordered::new();
    for number in 0..events {
        if confirms.len() == IN_FLIGHT {
            confirms.next().await.expect("it is not empty")?;
        }
        let mut headers = FieldTable::default();
        for name in ["id", "event_type", "aggregate_type", "occurred_at", "position"] {
            headers.insert(name.into(), AMQPValue::LongString(format!("{number:036}").into()));
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(format!("{number:036}").into())
            .with_content_type("application/json".into())
            .with_headers(headers);
        confirms.push(channel.basic_publish("".into(), QUEUE.into(), options, &[b'x'; 256], properties).await?);
    }
    while let Some(confirm) = confirms.next().await {
        confirm?;
    }
    Ok(())
}
