//! The example of an idempotent consumer, killed at every point: each event has its effect once, and offsets move on.

use std::{
    ffi::OsString,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _},
};

use crate::support::{
    eventually,
    examples::example,
    kafka::Kafka,
    long,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    process::{Launch, Process, Signal},
    scratch,
    session::Session,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(90);
const WAYS: [&str; 3] = ["claim", "constraint", "version"];
const CUSTOMERS: u32 = 12;
const PARTITIONS: i32 = 3;

/// What each way writes down before its effect.
fn claims(way: &str) -> &'static str {
    match way {
        "claim" => "walpost.inbox",
        "constraint" => "booking",
        _ => "walpost.inbox_position",
    }
}

/// Events of some customers, and a consumer of one way.
struct Story<'a> {
    way: &'static str,
    database: &'a Database<'a>,
    topic: String,
    session: Session,
    producer: BaseProducer,
    events: u32,
}

impl<'a> Story<'a> {
    fn new(way: &'static str, database: &'a Database<'a>) -> Story<'a> {
        let topic = format!("{}.points", database.name);
        Kafka::shared().create_topic(&topic, PARTITIONS, &[]);
        install(&database.session());
        Story {
            way,
            database,
            topic,
            session: database.session(),
            producer: Kafka::shared().client().create().expect("the configuration is complete"),
            events: 0,
        }
    }

    /// New events, then as many duplicates of any that there were.
    fn produce(&mut self, events: u32, duplicates: u32, random: &mut Random) {
        for _ in 0..events {
            self.send(self.events);
            self.events += 1;
        }
        for _ in 0..duplicates {
            self.send(random.below(self.events));
        }
        self.producer.flush(WITHIN).expect("Kafka takes them");
    }

    /// Event `n`: the customer's `n / CUSTOMERS`th. Points to add are powers of three, so that their sum tells how often each
    /// was added; points to set are how many events there were.
    fn send(&self, n: u32) {
        let (customer, number) = (format!("c-{}", n % CUSTOMERS), n / CUSTOMERS);
        let points = if self.way == "version" { i64::from(number) + 1 } else { 3_i64.pow(number) };
        self.send_record(&customer, &format!("event {n}"), Some(&format!("{:016X}-00000000", n + 1)), points);
    }

    fn send_record(&self, customer: &str, id: &str, position: Option<&str>, points: i64) {
        let mut headers = OwnedHeaders::new().insert(Header { key: "id", value: Some(id) });
        if position.is_some() {
            headers = headers.insert(Header { key: "position", value: position });
        }
        let payload = format!(r#"{{"points": {points}}}"#);
        let record = BaseRecord::to(&self.topic).key(customer).payload(&payload).headers(headers);
        self.producer.send(record).map_err(|(error, _)| error).expect("the queue has room");
    }

    fn start(&self, instance: Option<&str>) -> Process {
        consumer(self.way, &self.database.url(), &self.topic, &self.database.name, instance)
    }

    /// Sum of all effects.
    fn effects(&self) -> u32 {
        self.session.get("select coalesce(sum(changes), 0) from account")
    }

    fn committed(&self) -> Vec<i64> {
        committed(&self.topic, &self.database.name)
    }

    /// Waits until all is read and its offsets are committed, then compares.
    fn is_complete(&self) {
        caught_up(&self.topic, &self.database.name);
        for customer in 0..CUSTOMERS {
            let events = (self.events + CUSTOMERS - 1 - customer) / CUSTOMERS;
            let points = if self.way == "version" { i64::from(events) } else { (3_i64.pow(events) - 1) / 2 };
            let found: String = self.session.get(&format!(
                "select coalesce(max(points), 0) || ' points by ' || coalesce(max(changes), 0) from account
                 where customer = 'c-{customer}'"
            ));
            assert_eq!(found, format!("{points} points by {events}"), "{} of c-{customer}", self.way);
        }
        if self.way == "claim" {
            let claimed = "select claimed from walpost.inbox_stats";
            assert_eq!(self.session.get::<u32>(claimed), self.events);
        }
    }
}

/// Tables of the example; effects and commits can be made to wait.
fn install(session: &Session) {
    session.run(include_str!("../../sql/inbox.sql"));
    session.run(
        "create table account (customer text primary key, points bigint not null, changes bigint not null);
         create table booking (event_id text primary key, customer text not null, points bigint not null);
         create function pass() returns trigger language plpgsql as
             'begin perform pg_advisory_xact_lock_shared(tg_argv[0]::bigint); return null; end';
         create trigger effect after insert or update on account for each row execute function pass(1);
         create constraint trigger commit after insert or update on account deferrable initially deferred
             for each row execute function pass(2)",
    );
}

fn consumer(way: &str, url: &str, topic: &str, group: &str, instance: Option<&str>) -> Process {
    let folder = scratch::folder("consumer");
    let mut command = vec![OsString::from(example("idempotent_consumer"))];
    command.extend([way, url, &Kafka::shared().brokers(), topic, group].map(OsString::from));
    command.extend(instance.map(OsString::from));
    Process::start(&Launch {
        name: "idempotent_consumer".to_owned(),
        command,
        // A trace would push the error out of what is shown of the log.
        environment: vec![("RUST_BACKTRACE".into(), "0".into())],
        log: folder.join("log"),
        folder,
        last_signal: Signal::Kill,
    })
}

fn kill(consumer: &Process) {
    consumer.signal(Signal::Kill);
    assert_eq!(consumer.wait(WITHIN), 128 + 9);
}

/// Offsets of the group; -1 where a partition has none.
fn committed(topic: &str, group: &str) -> Vec<i64> {
    let mut config: ClientConfig = Kafka::shared().client();
    let client: BaseConsumer = config.set("group.id", group).create().expect("the configuration is complete");
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_range(topic, 0, PARTITIONS - 1);
    let committed =
        eventually(WITHIN, "the group has a coordinator", || client.committed_offsets(partitions.clone(), WITHIN).ok());
    let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { -1 };
    committed.elements().iter().map(|partition| offset(partition.offset())).collect()
}

fn caught_up(topic: &str, group: &str) {
    let client: BaseConsumer = Kafka::shared().client().create().expect("the configuration is complete");
    let ends: Vec<i64> = (0..PARTITIONS)
        .map(|partition| client.fetch_watermarks(topic, partition, WITHIN).expect("Kafka answers").1)
        .collect();
    eventually(WITHIN, "all is read, and its offsets are committed", || {
        let committed = committed(topic, group);
        committed.iter().zip(&ends).all(|(committed, end)| committed == end || *end == 0).then_some(())
    });
}

/// Enough for choices that a seed repeats (xorshift).
struct Random(u64);

impl Random {
    fn new() -> Random {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
        let given = std::env::var("WALPOST_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
        let seed = given.unwrap_or(now.subsec_nanos().into()) | 1;
        println!("WALPOST_TEST_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(end)).expect("it is below")
    }
}

#[test]
fn a_consumer_that_is_killed_at_each_point_has_each_effect_once() {
    for way in WAYS {
        let database = Postgres::shared(MAIN).database();
        let mut random = Random::new();
        let mut story = Story::new(way, &database);
        let claim = format!("begin; lock table {} in exclusive mode", claims(way));
        // Where it waits when it is killed, and whether the server has its commit by then.
        let points = [
            ("before the claim", &*claim, false),
            ("between claim and effect", "begin; lock table account in exclusive mode", false),
            ("between effect and commit", "begin; select pg_advisory_xact_lock(1)", false),
            ("between commit and offset", "begin; select pg_advisory_xact_lock(2)", true),
        ];
        for (point, hold, commits) in points {
            story.produce(30, 20, &mut random);
            let (before, offsets) = (story.effects(), story.committed());
            let holder = database.session();
            holder.run(hold);
            let consumer = story.start(Some("one"));
            let waits =
                "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
            let pid = eventually(WITHIN, point, || story.session.rows(waits).first()?[0].clone());
            kill(&consumer);
            assert_eq!(story.effects(), before, "nothing is committed {point}");
            holder.run("rollback");
            let gone = format!("select count(*) from pg_stat_activity where pid = {pid}");
            eventually(WITHIN, "the server notices", || (story.session.get::<u32>(&gone) == 0).then_some(()));
            assert_eq!(story.effects() > before, commits, "{way}, {point}");
            assert_eq!(story.committed(), offsets, "{way}, {point}");
        }
        let consumer = story.start(Some("one"));
        story.is_complete();
        consumer.signal(Signal::Term);
        assert_eq!(consumer.wait(WITHIN), 0, "a clean stop");
    }
}

#[test]
fn random_kills_rebalances_and_duplicates_leave_each_effect_once() {
    for way in WAYS {
        let database = Postgres::shared(MAIN).database();
        let mut random = Random::new();
        let mut story = Story::new(way, &database);
        // Effects take their time, so that most kills come in the middle of some.
        story.session.run(
            "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.02); return null; end';
             create trigger slow after insert or update on account for each row execute function slow()",
        );
        let mut one = story.start(Some("one"));
        let mut other: Option<Process> = None;
        for _ in 0..if long() { 30 } else { 12 } {
            story.produce(12, 12, &mut random);
            thread::sleep(Duration::from_millis(random.below(600).into()));
            match random.below(4) {
                // Members come and go, in order or not.
                0 if other.is_none() => other = Some(story.start(None)),
                0 => {
                    let other = other.take().expect("it is there");
                    other.signal(Signal::Term);
                    assert_eq!(other.wait(WITHIN), 0, "a clean stop in the middle");
                }
                1 => story.session.run(
                    "select pg_terminate_backend(pid) from pg_stat_activity
                     where datname = current_database() and application_name <> 'e2e'",
                ),
                _ => {
                    kill(&one);
                    one = story.start(Some("one"));
                }
            }
        }
        if let Some(other) = other {
            kill(&other);
        }
        story.is_complete();
        assert!(one.exit_code().is_none(), "{}", one.log());
    }
}

#[test]
fn a_duplicate_inside_one_batch_is_one() {
    for way in WAYS {
        let database = Postgres::shared(MAIN).database();
        let mut story = Story::new(way, &database);
        for n in 0..60 {
            story.send(n);
            story.send(n);
        }
        story.events = 60;
        story.producer.flush(WITHIN).expect("Kafka takes them");
        let consumer = story.start(None);
        story.is_complete();
        let batches = format!("select count(distinct xmin::text) from {}", claims(way));
        assert!(story.session.get::<u32>(&batches) < 60, "they came in batches");
        consumer.signal(Signal::Term);
        assert_eq!(consumer.wait(WITHIN), 0);
    }
}

#[test]
fn an_event_without_a_position_never_overwrites_one_that_has_it() {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new("version", &database);
    let position = "0000000001000000-00000000";
    story.send_record("known", "a", Some(position), 9);
    // Replayed from the table, years later.
    story.send_record("known", "b", None, 5);
    // Recovered, in their order; one comes twice.
    for (id, points) in [("c", 1), ("d", 2)] {
        story.send_record("recovered", id, None, points);
        story.send_record("streams on", id, None, points);
    }
    story.send_record("streams on", "e", Some(position), 3);
    story.send_record("streams on", "d", None, 2);
    story.producer.flush(WITHIN).expect("Kafka takes them");
    let consumer = story.start(None);
    caught_up(&story.topic, &database.name);
    let states = "select string_agg(customer || ' ' || points, ', ' order by customer) from account";
    assert_eq!(story.session.value(states).as_deref(), Some("known 9, recovered 2, streams on 3"));
    consumer.signal(Signal::Term);
    assert_eq!(consumer.wait(WITHIN), 0);
}

#[test]
fn an_event_that_cannot_be_read_is_named_and_not_passed_over() {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new("claim", &database);
    let record = BaseRecord::to(&story.topic).key("c-1").payload("secret").partition(1);
    story.producer.send(record).map_err(|(error, _)| error).expect("the queue has room");
    story.producer.flush(WITHIN).expect("Kafka takes it");
    let consumer = story.start(None);
    assert_eq!(consumer.wait(WITHIN), 1);
    assert!(consumer.log().contains(&format!("record 0 of {}-1", story.topic)), "{}", consumer.log());
    assert!(!consumer.log().contains("secret"), "{}", consumer.log());
    assert_eq!(story.committed(), [-1; PARTITIONS as usize]);
}

#[test]
fn what_walpost_sends_twice_takes_effect_once() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (kafka, topic) = (Kafka::shared(), outbox.topic("points"));
    kafka.create_topic(&topic, PARTITIONS, &[]);
    let session = database.session();
    install(&session);
    let configuration = outbox.configuration(kafka, "");
    for round in 1..=3 {
        session.run(
            "insert into walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             select 'points', 'c-' || n % 5, 'PointsEarned', '{\"points\": 1}' from generate_series(1, 3000) n",
        );
        let walpost = Walpost::start(&configuration);
        let before = outbox.confirmed();
        eventually(WITHIN, "walpost sends", || (outbox.confirmed() > before).then_some(()));
        if round < 3 {
            walpost.kill();
        } else {
            let slot = outbox.slot();
            let end = session.value("select pg_current_wal_insert_lsn()").expect("it has one");
            let through =
                format!("select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = '{slot}'");
            eventually(WITHIN, "all is sent", || (session.value(&through).as_deref() == Some("t")).then_some(()));
            assert_eq!(walpost.terminate(WITHIN), 0);
        }
    }
    for way in WAYS {
        session.run("truncate account");
        let group = format!("{topic}.{way}");
        let consumer = consumer(way, &database.url(), &topic, &group, None);
        caught_up(&topic, &group);
        assert_eq!(session.value("select sum(changes) from account").unwrap(), "9000", "{way}");
        consumer.signal(Signal::Term);
        assert_eq!(consumer.wait(WITHIN), 0);
    }
}
