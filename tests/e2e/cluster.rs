//! Three brokers that end and come back in turn under load. Leaders, the transaction coordinator and the controller move;
//! the streams wait, and go on by themselves.

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use crate::support::{
    broker::Broker,
    kafka::Kafka,
    long,
    outbox::{Bulk, Outbox, Writer},
    postgres::{MAIN, Postgres},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 30;

#[test]
fn leaders_killed_in_turn_lose_and_reorder_nothing() {
    let kafka = cluster();
    let rounds = if long() { 20 } else { 3 };
    under_load(&kafka, rounds, Broker::kill, |topic, round| {
        if round % 3 < 2 {
            return vec![kafka.leader(topic, round)];
        }
        // The transaction coordinator, and another with it: too few are left, and nothing can be acknowledged.
        let coordinator = kafka.leader("__transaction_state", 0);
        vec![coordinator, kafka.broker(coordinator.id() % 3 + 1)]
    });
}

#[test]
fn a_rolling_restart_loses_and_reorders_nothing() {
    let kafka = cluster();
    let rounds = if long() { 12 } else { 3 };
    under_load(&kafka, rounds, Broker::stop, |_, round| vec![kafka.broker(1 + round % 3)]);
}

/// The cluster that the stories of this file take turns to disturb.
fn cluster() -> MutexGuard<'static, Kafka> {
    static CLUSTER: OnceLock<Mutex<Kafka>> = OnceLock::new();
    let start = || Mutex::new(Kafka::configure().three().start());
    CLUSTER.get_or_init(start).lock().expect("the story before this one left the cluster whole")
}

/// Two streams, one of each delivery. In each round the brokers that `choose` names, for a topic, are put `down` in the
/// middle of what the streams have to do, and started again. Compares all that came.
fn under_load<'k>(kafka: &'k Kafka, rounds: i32, down: fn(&Broker), choose: impl Fn(&str, i32) -> Vec<&'k Broker>) {
    let databases = [(); 2].map(|()| Postgres::shared(MAIN).database());
    let outboxes = databases.each_ref().map(Outbox::create);
    let deliveries = [String::new(), outboxes[1].exactly_once()];
    let mut walposts = Vec::new();
    for (outbox, delivery) in outboxes.iter().zip(&deliveries) {
        kafka.create_topic(&outbox.topic("bulk"), PARTITIONS, &[]);
        let walpost = Walpost::start(&outbox.configuration(kafka, delivery));
        walpost.streams(outbox, WITHIN);
        walposts.push(walpost);
    }
    thread::scope(|scope| {
        let _under_way = outboxes.each_ref().map(|outbox| {
            let (under_way, ended) = mpsc::channel();
            scope.spawn(move || trickle(outbox, &ended));
            under_way
        });
        let mut writers = outboxes.each_ref().map(Outbox::writer);
        for round in 0..rounds {
            let brokers = choose(&outboxes[0].topic("bulk"), round);
            let amid = (0..5).any(|_| {
                let end = burst(&mut writers);
                outboxes.iter().all(|outbox| outbox.confirmed() < end)
            });
            assert!(amid, "round {round} came when all was done");
            brokers.iter().for_each(|broker| down(broker));
            if brokers.len() == 1 {
                // The other two are enough.
                outboxes.iter().for_each(|outbox| outbox.drained(WITHIN));
            }
            brokers.iter().for_each(|broker| broker.start_again());
            kafka.in_sync(WITHIN);
        }
    });
    let delivered =
        [outboxes[0].delivered(kafka, &["bulk"], WITHIN), outboxes[1].committed_delivered(kafka, "bulk", WITHIN)];
    for ((report, outbox), walpost) in delivered.iter().zip(&outboxes).zip(&walposts) {
        let restarts = walpost.log().matches("trying again in").count();
        println!("{} events, {rounds} rounds, {restarts} new sessions: {report}", outbox.committed().len());
        report.assert_complete();
        // What may be in flight by default.
        assert!(report.duplicates <= restarts * 5_000, "{report}");
        outbox.drained(WITHIN);
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
    delivered[1].assert_exactly_once();
}

/// More than a moment's work for each stream; where the log ends then.
fn burst(writers: &mut [Writer<'_>; 2]) -> u64 {
    for (transactions, rows) in [(1_000, 1), (1, 10_000)] {
        for writer in &mut *writers {
            writer.bulk(Bulk { transactions, rows, aggregates: 97, padding: 100 });
        }
    }
    writers[0].session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
}

/// Small and larger transactions, as long as the other end of the channel is there.
fn trickle(outbox: &Outbox<'_>, ended: &Receiver<()>) {
    let mut writer = outbox.writer();
    for (transactions, rows) in [(10, 1), (10, 1), (1, 100)].into_iter().cycle() {
        writer.bulk(Bulk { transactions, rows, aggregates: 97, padding: 100 });
        // Traffic, not a flood.
        if let Err(RecvTimeoutError::Disconnected) = ended.recv_timeout(Duration::from_millis(20)) {
            return;
        }
    }
}
