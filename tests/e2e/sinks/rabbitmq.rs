//! Queues of RabbitMQ, and what only RabbitMQ promises.

use std::cell::RefCell;

use lapin::{
    Channel, Connection, ConnectionProperties,
    message::BasicGetMessage,
    options::{BasicAckOptions, BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    WITHIN, arrived,
    receiver::{Arrival, Receiver},
};
use crate::support::{
    eventually,
    letters::{letters, with_letters},
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    rabbitmq::RabbitMq,
    walpost::Walpost,
};

/// A node with a durable queue for each topic, reached by the default exchange.
pub(super) struct Queue {
    node: RabbitMq,
    queues: Vec<String>,
    kept: RefCell<Vec<Arrival>>,
}

impl Queue {
    fn declare(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.ask(async |channel| {
            channel.queue_declare(queue.into(), options, table).await.expect("the queue can be declared");
        });
    }

    fn delete(&self, queue: &str) {
        self.ask(async |channel| {
            channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.expect("the queue is there");
        });
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(Channel) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let asked = async {
            let properties = ConnectionProperties::default();
            let connection = Connection::connect(&self.node.url(), properties).await.expect("the node is there");
            question(connection.create_channel().await.expect("the connection is new")).await
        };
        let within = async { tokio::time::timeout(WITHIN, asked).await.expect("the node answers") };
        let answer = runtime.block_on(within);
        runtime.shutdown_background();
        answer
    }

    /// Takes what a queue holds, at most so many.
    fn take(&self, queue: &str, most: usize) {
        let arrivals = self.ask(async |channel| {
            let mut arrivals = Vec::new();
            while arrivals.len() < most {
                let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await;
                let Ok(Some(message)) = got else { break };
                arrivals.push(arrival(&message));
                message.acker.ack(BasicAckOptions::default()).await.expect("it is the channel's");
            }
            arrivals
        });
        self.kept.borrow_mut().extend(arrivals);
    }
}

fn arrival(message: &BasicGetMessage) -> Arrival {
    let headers = message.properties.headers().as_ref().expect("it has headers");
    let header = |name: &str| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        other => panic!("header {name} is {other:?}"),
    };
    assert_eq!(message.properties.delivery_mode(), &Some(2), "it is persistent");
    Arrival {
        destination: message.routing_key.to_string(),
        id: header("id"),
        position: header("position"),
        value: message.data.clone(),
    }
}

impl Receiver for Queue {
    const BATCH: u32 = 8_000;
    const REASON: &str = "unroutable";

    fn start(outbox: &Outbox<'_>) -> Queue {
        let queues = ["bulk", Queue::REFUSED].map(|name| outbox.topic(name)).into();
        let queue = Queue { node: RabbitMq::start(), queues, kept: RefCell::default() };
        queue.declare(&queue.queues[0], &[]);
        queue
    }

    fn configuration(&self, outbox: &Outbox<'_>) -> String {
        format!(
            "database_url = '{}'\nslot = '{}'\nsink.kind = 'rabbitmq'\nrabbitmq.url = '{}'\nroute.topic = '{}'\n",
            outbox.database.url(),
            outbox.slot(),
            self.node.url(),
            outbox.topic("${aggregate_type}")
        )
    }

    fn stop(&self) {
        self.node.stop();
    }

    fn start_again(&self) {
        self.node.start_again();
    }

    fn pause(&self) {
        self.node.pause();
    }

    fn resume(&self) {
        self.node.resume();
    }

    fn mend(&self, _outbox: &Outbox<'_>) {
        self.declare(&self.queues[1], &[]);
    }

    fn arrivals(&self) -> Vec<Arrival> {
        self.queues.iter().for_each(|queue| self.take(queue, usize::MAX));
        self.kept.borrow().clone()
    }
}

#[test]
fn a_message_without_a_queue_is_no_delivery() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let queue = Queue::start(&outbox);
    let configuration = queue.configuration(&outbox);
    let walpost = Walpost::start(&configuration);
    let mut writer = outbox.writer();
    writer.one("bulk", "a");
    outbox.drained(WITHIN);
    queue.take(&queue.queues[0], usize::MAX);
    queue.delete(&queue.queues[0]);
    let before = outbox.confirmed();
    writer.one("bulk", "a");
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    assert!(walpost.log().contains("NO_ROUTE"), "{}", walpost.log());
    let held: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    assert!((before..held).contains(&outbox.confirmed()));
    queue.declare(&queue.queues[0], &[]);
    let walpost = Walpost::start(&configuration);
    arrived(&queue, &outbox).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_queue_that_is_full_is_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let queue = Queue::start(&outbox);
    let full =
        [("x-max-length", AMQPValue::LongInt(5)), ("x-overflow", AMQPValue::LongString("reject-publish".into()))];
    queue.declare(&queue.queues[1], &full);
    let walpost = Walpost::start(&queue.configuration(&outbox));
    let mut writer = outbox.writer();
    (0..20).for_each(|n| writer.one(Queue::REFUSED, if n % 2 == 0 { "a" } else { "b" }));
    let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    walpost.says("nack", WITHIN);
    assert!(outbox.confirmed() < end, "what the queue rejects is confirmed");
    let committed = outbox.committed();
    eventually(WITHIN, "all has arrived", || {
        queue.take(&queue.queues[1], 3);
        queue.report(&committed).missing.is_empty().then_some(())
    });
    queue.report(&committed).assert_exactly_once();
    outbox.drained(WITHIN);
    assert!(letters(&outbox).is_empty());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_blocked_connection_is_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let queue = Queue::start(&outbox);
    let walpost = Walpost::start(&queue.configuration(&outbox));
    let pid = walpost.streams(&outbox, WITHIN);
    queue.node.alarm(true);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 7, padding: 0 });
    let end: u64 = writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    eventually(WITHIN, "its status says why nothing moves", || {
        let (_, status) = walpost.http("/status")?;
        status.contains("alarm").then_some(())
    });
    assert!(outbox.confirmed() < end);
    queue.node.alarm(false);
    arrived(&queue, &outbox).assert_complete();
    assert_eq!(outbox.walsender(), Some(pid), "the stream was given up meanwhile");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_restart_under_load_loses_and_reorders_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let queue = Queue::start(&outbox);
    let walpost = Walpost::start(&queue.configuration(&outbox));
    let mut writer = outbox.writer();
    for restart in 0..2 {
        writer.bulk(Bulk { transactions: 400, rows: 10, aggregates: 17, padding: 100 });
        let before = outbox.confirmed();
        eventually(WITHIN, "it is under way", || (outbox.confirmed() > before).then_some(()));
        if restart == 0 {
            queue.node.kill()
        } else {
            queue.node.stop()
        }
        queue.node.start_again();
    }
    let report = arrived(&queue, &outbox);
    println!("{} events: {report}", outbox.committed().len());
    report.assert_complete();
    assert!(letters(&outbox).is_empty());
    assert_eq!(walpost.terminate(WITHIN), 0);
}
