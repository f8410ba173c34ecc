//! RabbitMQ's publisher against a real broker: what counts as delivered, what is refused, and what is tried again.

use std::{fs, future::Future, path::PathBuf, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use walpost::{
    config::{IdentityFiles, RabbitMq as Config},
    sink::rabbitmq::{
        broker::Broker,
        message::Message,
        publisher::{Publisher, Verdict},
    },
};

use crate::support::{certificates::Authority, rabbitmq::RabbitMq, scratch};

/// Longer than anything here takes.
const WITHIN: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_secs(30);

fn story<F: Future>(story: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let within = async { tokio::time::timeout(WITHIN, story).await.expect("the story ends") };
    let output = runtime.block_on(within);
    runtime.shutdown_background();
    output
}

fn config(url: &str, heartbeat: Duration) -> Config {
    Config::parse(&url.into(), heartbeat).expect("the URL is one")
}

fn publisher(url: &str) -> Publisher {
    Publisher::start(Broker::new(&config(url, HEARTBEAT)).expect("there is no TLS"))
}

fn message(exchange: &str, routing_key: &str, number: usize) -> Message {
    let id = format!("{number:08}");
    Message {
        exchange: exchange.into(),
        routing_key: routing_key.into(),
        properties: BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(id.as_str().into())
            .with_correlation_id(id.as_str().into()),
        body: id.into_bytes(),
    }
}

/// What the other side does: declares, and reads.
struct Side {
    channel: Channel,
    _connection: Connection,
}

impl Side {
    async fn open(url: &str) -> Side {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("the broker is there");
        let channel = connection.create_channel().await.expect("the connection is new");
        Side { channel, _connection: connection }
    }

    /// Of a broker that has started again: it takes connections before it has all of its queues.
    async fn open_with(url: &str, queue: &str) -> Side {
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        loop {
            let side = Side::open(url).await;
            if side.channel.queue_declare(queue.into(), options, FieldTable::default()).await.is_ok() {
                return side;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn exchange(&self, name: &str) {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let declared =
            self.channel.exchange_declare(name.into(), ExchangeKind::Direct, options, FieldTable::default()).await;
        declared.expect("the exchange can be declared");
    }

    async fn queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (argument, value) in arguments {
            table.insert((*argument).into(), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(name.into(), options, table).await.expect("the queue can be declared");
    }

    async fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        let bound = self.channel.queue_bind(
            queue.into(),
            exchange.into(),
            routing_key.into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        bound.await.expect("the queue can be bound");
    }

    /// All that is in a queue, which is empty afterwards.
    async fn drain(&self, queue: &str) -> Vec<BasicProperties> {
        let mut all = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self.channel.basic_get(queue.into(), options).await.expect("the queue is there") {
            assert_eq!(message.delivery.data, id(&message.delivery.properties).into_bytes());
            all.push(message.delivery.properties);
        }
        all
    }

    async fn ids(&self, queue: &str) -> Vec<String> {
        self.drain(queue).await.iter().map(id).collect()
    }
}

fn id(properties: &BasicProperties) -> String {
    properties.message_id().as_ref().expect("all have one").to_string()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("{number:08}")).collect()
}

fn reason(verdict: Verdict) -> String {
    match verdict {
        Verdict::Later { reason, counts: false } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn confirmed_messages_are_on_disk_and_in_order_where_the_caller_waits() {
    let rabbit = RabbitMq::start();
    story(async {
        let side = Side::open(&rabbit.url()).await;
        side.queue("q", &[]).await;
        let publisher = publisher(&rabbit.url());
        for number in 0..20 {
            assert_eq!(publisher.publish(message("", "q", number)).await, Verdict::Taken);
        }
        let many: FuturesUnordered<_> = (20..2000).map(|number| publisher.publish(message("", "q", number))).collect();
        let verdicts: Vec<_> = many.collect().await;
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Taken));
    });
    rabbit.kill();
    rabbit.start_again();
    story(async {
        let side = Side::open_with(&rabbit.url(), "q").await;
        let messages = side.drain("q").await;
        assert!(messages.iter().all(|properties| *properties.delivery_mode() == Some(2)));
        assert_eq!(messages.iter().map(id).collect::<Vec<_>>(), numbers(0..2000));
    });
}

#[test]
fn of_many_messages_under_way_exactly_those_without_a_queue_are_unroutable() {
    let url = RabbitMq::shared().vhost();
    story(async {
        let side = Side::open(&url).await;
        side.exchange("orders").await;
        for queue in ["q", "lazy"] {
            side.queue(queue, &[]).await;
            side.bind(queue, "orders", queue).await;
        }
        let publisher = publisher(&url);
        // Persistent ones are confirmed late and many at once, the others are returned and confirmed at once.
        let key = |number| match number % 7 {
            0 => "nowhere",
            1 | 2 => "lazy",
            _ => "q",
        };
        let mut verdicts = FuturesUnordered::new();
        for number in 0..5000 {
            let verdict = publisher.publish(message("orders", key(number), number));
            verdicts.push(async move { (number, verdict.await) });
        }
        while let Some((number, verdict)) = verdicts.next().await {
            match verdict {
                Verdict::Taken => assert_ne!(key(number), "nowhere", "{number}"),
                Verdict::Unroutable(reason) => {
                    assert_eq!(key(number), "nowhere", "{number}");
                    assert_eq!(
                        reason,
                        "exchange \"orders\" has no queue for routing key \"nowhere\"; bind one: 312 NO_ROUTE"
                    );
                }
                other => panic!("{number}: {other:?}"),
            }
        }
        let mut arrived = side.ids("q").await;
        arrived.extend(side.ids("lazy").await);
        arrived.sort();
        let expected: Vec<_> = (0..5000).filter(|number| number % 7 != 0).map(|n| format!("{n:08}")).collect();
        assert_eq!(arrived, expected);

        side.bind("q", "orders", "nowhere").await;
        assert_eq!(publisher.publish(message("orders", "nowhere", 7)).await, Verdict::Taken);
        assert_eq!(side.ids("q").await, ["00000007"]);
    });
}

#[test]
fn an_unknown_exchange_is_its_own_messages_fault_alone() {
    let url = RabbitMq::shared().vhost();
    story(async {
        let side = Side::open(&url).await;
        side.queue("q", &[]).await;
        side.exchange("going").await;
        side.bind("q", "going", "k").await;
        let publisher = publisher(&url);
        let exchange = |number| match number % 10 {
            0 => "missing",
            1 => "going",
            _ => "",
        };
        let send = |number| {
            let (exchange, key) = (exchange(number), if exchange(number).is_empty() { "q" } else { "k" });
            let verdict = publisher.publish(message(exchange, key, number));
            async move { (number, verdict.await) }
        };
        let mut verdicts: FuturesUnordered<_> = (0..1000).map(&send).collect();
        while let Some((number, verdict)) = verdicts.next().await {
            match verdict {
                Verdict::Unroutable(reason) if exchange(number) == "missing" => {
                    assert!(reason.starts_with("there is no exchange \"missing\"; declare it: NOT_FOUND"), "{reason}");
                }
                Verdict::Taken if exchange(number) != "missing" => {}
                other => panic!("{number}: {other:?}"),
            }
        }
        // One that is deleted after it took messages takes those with it that are under way; tried again, all is clear.
        side.channel.exchange_delete("going".into(), Default::default()).await.expect("it is there");
        let mut verdicts: FuturesUnordered<_> = (1000..2000).map(&send).collect();
        let mut refused = 0;
        while let Some((number, verdict)) = verdicts.next().await {
            match verdict {
                Verdict::Unroutable(_) => {
                    assert_ne!(exchange(number), "");
                    refused += 1;
                }
                Verdict::Taken => assert_eq!(exchange(number), ""),
                Verdict::Later { counts: false, .. } => verdicts.push(send(number)),
                other => panic!("{number}: {other:?}"),
            }
        }
        assert_eq!(refused, 200);
        let mut arrived = side.ids("q").await;
        arrived.sort();
        arrived.dedup();
        let expected = (0..2000).filter(|number| number % 10 > 1 || (*number < 1000 && number % 10 == 1));
        assert_eq!(arrived, expected.map(|number| format!("{number:08}")).collect::<Vec<_>>());
    });
}

#[test]
fn a_message_that_is_too_large_is_known_among_others() {
    let rabbit = RabbitMq::configure().set("max_message_size", "100000").start();
    story(async {
        let side = Side::open(&rabbit.url()).await;
        side.queue("q", &[]).await;
        let publisher = publisher(&rabbit.url());
        let send = |number: usize| {
            let mut message = message("", "q", number);
            if number == 50 {
                message.body.resize(200_000, b'x');
            }
            let verdict = publisher.publish(message);
            async move { (number, verdict.await) }
        };
        assert_eq!(send(0).await.1, Verdict::Taken);
        let mut verdicts: FuturesUnordered<_> = (1..100).map(&send).collect();
        let mut too_large = 0;
        while let Some((number, verdict)) = verdicts.next().await {
            match verdict {
                Verdict::Taken => assert_ne!(number, 50),
                Verdict::Later { counts: false, .. } => verdicts.push(send(number)),
                Verdict::TooLarge(reason) if number == 50 => {
                    assert!(reason.contains("larger than configured max size 100000"), "{reason}");
                    too_large += 1;
                }
                other => panic!("{number}: {other:?}"),
            }
        }
        assert_eq!(too_large, 1);
        let mut arrived = side.ids("q").await;
        arrived.sort();
        arrived.dedup();
        assert_eq!(arrived, numbers(0..100).into_iter().filter(|id| id != "00000050").collect::<Vec<_>>());

        // A frame has 128 KiB.
        let with_header = |len: usize| {
            let mut headers = FieldTable::default();
            headers.insert("h".into(), AMQPValue::LongString("x".repeat(len).into()));
            let mut message = message("", "q", 100);
            message.properties = message.properties.with_headers(headers);
            publisher.publish(message)
        };
        assert_eq!(with_header(130_900).await, Verdict::Taken);
        for len in [131_072, 200_000] {
            assert!(matches!(with_header(len).await, Verdict::TooLarge(reason) if reason.contains("a frame")));
        }
    });
}

#[test]
fn who_may_not_log_in_is_told_why_and_not_the_password() {
    let rabbit = RabbitMq::shared();
    for (url, what) in [
        (rabbit.url_of("walpost", "hush-hush", "/"), "Login was refused"),
        (rabbit.url_of("nobody", "hush-hush", "/"), "Login was refused"),
        (rabbit.url_of("walpost", "hush", "elsewhere"), "vhost elsewhere not found"),
    ] {
        story(async {
            let publisher = publisher(&url);
            let reason = reason(publisher.publish(message("", "q", 0)).await);
            assert!(reason.contains(what) && reason.contains("mend rabbitmq.url"), "{reason}");
            assert!(!reason.contains("hush"), "{reason}");
            assert_eq!(publisher.trouble(), Some(reason));
        });
    }
    let nobody = format!("amqp://u:hush@127.0.0.1:{}", scratch::port());
    story(async {
        let reason = reason(publisher(&nobody).publish(message("", "q", 0)).await);
        assert!(reason.contains("cannot be reached: Connection refused"), "{reason}");
    });
}

#[test]
fn a_right_that_is_missing_holds_back_its_exchange_alone() {
    let rabbit = RabbitMq::shared();
    rabbit.add_user("writer", "hush", ["", "^open-", ""]);
    story(async {
        let side = Side::open(&rabbit.url()).await;
        for (exchange, queue) in [("open-e", "open-q"), ("shut-e", "shut-q")] {
            side.exchange(exchange).await;
            side.queue(queue, &[]).await;
            side.bind(queue, exchange, "k").await;
        }
        let publisher = publisher(&rabbit.url_of("writer", "hush", "/"));
        let of = |exchange, range: std::ops::Range<usize>| {
            range.map(|n| publisher.publish(message(exchange, "k", n))).collect::<FuturesUnordered<_>>()
        };
        let (open, shut) = (of("open-e", 0..100), of("shut-e", 100..110));
        assert_eq!(open.collect::<Vec<_>>().await, vec![Verdict::Taken; 100]);
        for verdict in shut.collect::<Vec<_>>().await {
            let reason = reason(verdict);
            let lacks = "user \"writer\" lacks the right to write to exchange \"shut-e\" in virtual host \"/\"";
            assert!(reason.starts_with(lacks), "{reason}");
        }
        rabbit.allow("writer", ["", ".*", ""]);
        // Rights are remembered for a while by a channel, not by a new one.
        assert_eq!(publisher.publish(message("shut-e", "k", 100)).await, Verdict::Taken);
        assert_eq!(side.ids("shut-q").await, ["00000100"]);
    });
}

#[test]
fn tls_is_verified_and_shows_a_certificate() {
    let authority = Authority::new();
    let rabbit = RabbitMq::configure()
        .tls(authority.server(), &authority.pem())
        .set("ssl_options.fail_if_no_peer_cert", "true")
        .start();
    let folder = scratch::folder("rabbitmq-client");
    let file = |name: &str, text: &str| {
        fs::write(folder.join(name), text).expect("the folder is ours");
        folder.join(name)
    };
    let (own, client) = (file("ca.pem", &authority.pem()), authority.client("walpost"));
    let other = file("other.pem", &Authority::new().pem());
    let identity =
        IdentityFiles { certificate: file("cert.pem", &client.certificate), key: file("key.pem", &client.key) };
    let ask = |host: &str, ca_file: &PathBuf, identity: Option<IdentityFiles>| {
        let mut config = config(&rabbit.tls_url(host), HEARTBEAT);
        config.ca_file = Some(ca_file.clone());
        config.identity = identity;
        story(async {
            let publisher = Publisher::start(Broker::new(&config).expect("the files are there"));
            publisher.publish(message("", "nowhere", 0)).await
        })
    };
    for host in ["127.0.0.1", "localhost"] {
        assert!(matches!(ask(host, &own, Some(identity.clone())), Verdict::Unroutable(_)), "{host}");
    }
    for (verdict, what) in [
        (ask("127.0.0.1", &other, Some(identity.clone())), "certificate verify failed"),
        (ask("127.0.0.2", &own, Some(identity)), "cannot be reached"),
        (ask("127.0.0.1", &own, None), "cannot be reached"),
    ] {
        let reason = reason(verdict);
        assert!(reason.contains(what), "{reason}");
    }
}

#[test]
fn a_silent_broker_is_given_up_until_it_answers() {
    let rabbit = RabbitMq::start();
    story(async {
        Side::open(&rabbit.url()).await.queue("q", &[]).await;
        let config = config(&rabbit.url(), Duration::from_secs(1));
        let publisher = Publisher::start(Broker::new(&config).expect("there is no TLS"));
        assert_eq!(publisher.publish(message("", "q", 0)).await, Verdict::Taken);
        rabbit.pause();
        let reason = reason(publisher.publish(message("", "q", 1)).await);
        assert!(reason.contains("no heartbeat"), "{reason}");
        let reason = self::reason(publisher.publish(message("", "q", 1)).await);
        assert!(reason.contains("does not answer within 10s"), "{reason}");
        rabbit.resume();
        assert_eq!(publisher.publish(message("", "q", 1)).await, Verdict::Taken);
    });
}
