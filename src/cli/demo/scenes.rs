//! The scenes of the demo, in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::{task::JoinSet, time::sleep};

use super::{
    shop::{Placed, Shop, orders_table},
    summary::Summary,
};
use crate::{
    cli::output,
    config::{Config, Flags},
    printable::printable,
    trial::{
        child::{Child, Launch},
        reader::{Follower, Reader, Received},
        site::Site,
    },
};

const PARTITIONS: i32 = 3;
/// Orders that are placed one by one, to be read along.
const QUIET_ORDERS: i32 = 16;
/// Connections of the rush.
const CONNECTIONS: usize = 4;
/// Time between the rush's begin, the kill, the new start and the rush's end.
const ACT: Duration = Duration::from_secs(1);
/// Whatever is awaited longer does not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is on stage.
pub(super) struct Story<'s> {
    site: &'s mut Site,
    config: &'s Config,
    flags: &'s Flags,
    slot: String,
    topic: String,
    follower: Follower,
    received: Vec<Received>,
    /// Events of the quiet scenes.
    quiet: Vec<Placed>,
    next_order: Arc<AtomicI32>,
}

impl<'s> Story<'s> {
    /// Sets the stage: tables, publication, slot, topic.
    pub(super) async fn begin(site: &'s mut Site, config: &'s Config, flags: &'s Flags) -> anyhow::Result<Story<'s>> {
        let version: String = site.sql().query_one("SHOW server_version", &[]).await?.try_get(0)?;
        output::print(format_args!(
            "PostgreSQL {version}, Kafka at {}. Everything is in schema {name} and goes with it at the end.\n",
            config.brokers,
            name = site.name()
        ))?;
        site.sql().batch_execute(&orders_table(site.name())).await.context("the table of orders cannot be made")?;
        let slot = site.slot("slot", false).await?;
        let topic = site.topic("orders", PARTITIONS).await?;
        let follower = Reader::new(site.kafka(), &topic, PARTITIONS)?.follow();
        let next_order = Arc::new(AtomicI32::new(1));
        let (received, quiet) = (Vec::new(), Vec::new());
        Ok(Story { site, config, flags, slot, topic, follower, received, quiet, next_order })
    }

    pub(super) async fn tell(mut self) -> anyhow::Result<Summary> {
        scene(1, "An order and its event are written in one transaction")?;
        line(&format!("{DIM}BEGIN;{PLAIN}"))?;
        line("INSERT INTO orders (number, customer, total) VALUES (1, …);")?;
        line("SELECT enqueue('order', 'order-1', 'OrderPlaced', '{\"total\": …}');")?;
        line(&format!("{DIM}COMMIT;{PLAIN}"))?;
        sleep(ACT).await;

        scene(2, "walpost reads the commits from the log; a consumer gets (with partition/offset)")?;
        let shop = Shop::open(&self.config.database, self.site.name()).await?;
        let mut child = self.start().await?;
        self.quiet_orders(&shop, &mut child).await?;

        scene(3, "What is rolled back sends nothing")?;
        let rolled_back = self.next();
        shop.place_and_roll_back(rolled_back).await?;
        line(&format!("order-{rolled_back} is placed, its event is written, then ROLLBACK"))?;
        sleep(ACT / 2).await;
        let after = self.next();
        self.quiet.push(shop.place(after).await?);
        line(&format!("order-{after} is placed and committed"))?;
        self.catch_up(&mut child, self.quiet.len()).await?;

        scene(4, "walpost is killed in the middle of a rush, and starts again")?;
        let mut child = self.rush(child).await?;

        self.catch_up_with_table(&mut child).await?;
        let status = child.stop(PATIENCE).await?;
        let records = Reader::new(self.site.kafka(), &self.topic, PARTITIONS)?.read(|_| {}).await?;
        self.follower.collect(&mut self.received, records, PATIENCE).await?;
        scene(5, "What came of it")?;
        self.summary(rolled_back, status.success()).await
    }

    /// Orders at a pace at which they can be read, one of three paid a moment later.
    async fn quiet_orders(&mut self, shop: &Shop, child: &mut Child) -> anyhow::Result<()> {
        const PACE: Duration = Duration::from_millis(150);
        for _ in 0..QUIET_ORDERS {
            let number = self.next();
            self.quiet.push(shop.place(number).await?);
            if number % 3 == 0 {
                self.quiet.push(shop.pay(number).await?);
            }
            self.catch_up(child, self.quiet.len()).await?;
            sleep(PACE).await;
        }
        Ok(())
    }

    /// Shows records until there are so many.
    async fn catch_up(&mut self, child: &mut Child, count: usize) -> anyhow::Result<()> {
        let until = tokio::time::Instant::now() + PATIENCE;
        while self.received.len() < count {
            let Ok(record) = tokio::time::timeout_at(until, self.follower.next()).await else {
                child.check()?;
                bail!("an event was committed and not received within {PATIENCE:?}");
            };
            let record = record?;
            let latency = self.quiet.iter().find(|placed| Some(placed.id) == record.id);
            let latency = latency.map_or_else(String::new, |placed| {
                format!("{:.1} ms after COMMIT", (record.at - placed.at).as_secs_f64() * 1000.0)
            });
            line(&format!(
                "{BOLD}{:<9}{PLAIN} {:<12} {:<64} {DIM}{}/{} {latency}{PLAIN}",
                printable(&record.key),
                printable(&record.event_type),
                printable(&record.value),
                record.partition,
                record.offset,
            ))?;
            self.received.push(record);
        }
        Ok(())
    }

    /// Orders from several connections as fast as they go; a kill and a new start in the midst of it.
    async fn rush(&mut self, mut child: Child) -> anyhow::Result<Child> {
        let committed = Arc::new(AtomicUsize::new(self.quiet.len()));
        let over = Arc::new(AtomicBool::new(false));
        let mut customers: JoinSet<anyhow::Result<()>> = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let shop = Shop::open(&self.config.database, self.site.name()).await?;
            let (next, committed, over) = (Arc::clone(&self.next_order), Arc::clone(&committed), Arc::clone(&over));
            customers.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    shop.place(number).await?;
                    committed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        line(&format!("{CONNECTIONS} connections place orders as fast as they can"))?;
        self.watch(&committed, &mut child).await?;
        let pid = child.pid();
        child.kill()?;
        line(&format!("{BOLD}kill -9 {pid}{PLAIN}: walpost is gone; the application does not notice"))?;
        sleep(ACT).await;
        self.gather()?;
        self.count(&committed)?;
        let begun = Instant::now();
        let mut child = self.start().await?;
        line(&format!("{BOLD}walpost starts again{PLAIN} and streams after {:.1} s", begun.elapsed().as_secs_f64()))?;
        self.watch(&committed, &mut child).await?;
        over.store(true, Ordering::Relaxed);
        while let Some(done) = customers.join_next().await {
            done.context("a customer has failed")??;
        }
        Ok(child)
    }

    /// Lets an act pass, and says now and then how it goes.
    async fn watch(&mut self, committed: &AtomicUsize, child: &mut Child) -> anyhow::Result<()> {
        for _ in 0..2 {
            sleep(ACT / 2).await;
            child.check()?;
            self.gather()?;
            self.count(committed)?;
        }
        Ok(())
    }

    fn count(&self, committed: &AtomicUsize) -> anyhow::Result<()> {
        let committed = committed.load(Ordering::Relaxed);
        line(&format!("{committed:>6} events committed, {:>6} records received", self.received.len()))
    }

    /// Takes the records that are there.
    fn gather(&mut self) -> anyhow::Result<()> {
        while let Some(record) = self.follower.at_hand() {
            self.received.push(record?);
        }
        Ok(())
    }

    /// Receives until every event of the table has come.
    async fn catch_up_with_table(&mut self, child: &mut Child) -> anyhow::Result<()> {
        let mut comparison = self.site.committed().await?;
        self.received.iter().for_each(|record| comparison.record(record.id));
        let until = tokio::time::Instant::now() + PATIENCE;
        while !comparison.is_whole() {
            let Ok(record) = tokio::time::timeout_at(until, self.follower.next()).await else {
                // The summary tells what is missing.
                return child.check();
            };
            let record = record?;
            comparison.record(record.id);
            self.received.push(record);
        }
        Ok(())
    }

    async fn summary(&self, rolled_back: i32, stopped_cleanly: bool) -> anyhow::Result<Summary> {
        let mut comparison = self.site.committed().await?;
        self.received.iter().for_each(|record| comparison.record(record.id));
        let orders = format!("SELECT count(*) FROM {}.orders", self.site.name());
        let orders: i64 = self.site.sql().query_one(&orders, &[]).await?.try_get(0)?;
        let events = format!("SELECT count(*) FROM {}", self.site.table());
        let events: i64 = self.site.sql().query_one(&events, &[]).await?.try_get(0)?;
        Ok(Summary::new(
            &self.received,
            &self.quiet,
            comparison.verdict(),
            (orders.unsigned_abs(), events.unsigned_abs()),
            rolled_back,
            self.config.in_flight_records,
            stopped_cleanly,
        ))
    }

    async fn start(&mut self) -> anyhow::Result<Child> {
        let table = self.site.table();
        let launch = Launch {
            slot: &self.slot,
            publication: self.site.name(),
            table: &table,
            topic: &self.topic,
            log_level: "error",
        };
        let mut child = Child::start(self.flags, &launch)?;
        self.site.streams(&mut child, &self.slot).await?;
        Ok(child)
    }

    fn next(&self) -> i32 {
        self.next_order.fetch_add(1, Ordering::Relaxed)
    }
}

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

fn scene(number: u32, title: &str) -> anyhow::Result<()> {
    output::print(format_args!("\n{BOLD}{number}. {title}{PLAIN}\n"))
}

fn line(text: &str) -> anyhow::Result<()> {
    output::print(format_args!("   {text}\n"))
}
