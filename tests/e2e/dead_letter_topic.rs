//! A topic of dead letters, beside the table or in its place.

use std::time::{Duration, Instant};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{ids, insert, letter, letters, with_letters},
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    streamed::{WITHIN, all, committed, halted, quick, streamed},
    walpost::Walpost,
};

const LARGE: &str = "to_jsonb(repeat('x', 200000))";

/// A topic that takes no large event, and a topic of dead letters that takes up to `bytes`.
fn topics(outbox: &Outbox<'_>, bytes: &str) -> [String; 2] {
    let topics = [outbox.topic("t"), outbox.topic("dead")];
    Kafka::shared().create_topic(&topics[0], 1, &[("max.message.bytes", "100000")]);
    Kafka::shared().create_topic(&topics[1], 1, &[("max.message.bytes", bytes)]);
    topics
}

fn named(outbox: &Outbox<'_>) -> String {
    format!("dead_letter_topic = '{}'\n", outbox.topic("dead"))
}

fn exactly_once(outbox: &Outbox<'_>) -> String {
    named(outbox) + &outbox.exactly_once()
}

#[test]
fn what_is_wrong_is_announced_beside_its_row_and_what_waits_behind_is_not() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let [topic, dead] = topics(&outbox, "400000");
    let large = insert(&outbox, "t", "k", LARGE);
    let behind = insert(&outbox, "t", "k", "'2'");
    let unroutable = insert(&outbox, "no topic", "o", "'3'");
    let good = insert(&outbox, "t", "g", "'4'");
    assert_eq!(ids(&streamed(&outbox, &named(&outbox), &[&topic])), [&good]);
    let rows = [
        letter("parked", "too_large", &large),
        letter("parked", "parked", &behind),
        letter("parked", "invalid_topic", &unroutable),
    ];
    assert_eq!(letters(&outbox), rows);

    let announced = all(&[&dead]);
    assert_eq!(ids(&announced), [&large, &unroutable]);
    let [large, unroutable] = &announced[..] else { panic!("two are wrong") };
    assert_eq!((large.key_text(), large.value.as_ref().map(Vec::len)), (Some("k"), Some(200_002)));
    let names: Vec<&str> = large.headers.iter().map(|(name, _)| name.as_str()).collect();
    let own = names.iter().position(|name| name.starts_with("walpost-error")).expect("it says what is wrong");
    assert!(names[..own].contains(&"aggregate_type") && names[..own].contains(&"position"), "{names:?}");
    assert_eq!(names[own..], ["class", "reason", "topic", "table", "at"].map(|name| format!("walpost-error-{name}")));
    assert_eq!(large.header("walpost-error-class"), Some("too_large"));
    assert_eq!(large.header("walpost-error-topic"), Some(&*topic));
    assert_eq!(large.header("walpost-error-table"), Some("walpost.outbox"));
    assert!(large.header("walpost-error-reason").is_some_and(|reason| reason.contains("Message size too large")));

    assert_eq!((unroutable.key_text(), unroutable.value_text()), (Some("o"), Some("3")));
    assert_eq!(unroutable.header("walpost-error-class"), Some("invalid_topic"));
    assert_eq!(unroutable.header("walpost-error-topic"), None);
    assert_eq!(unroutable.header("aggregate_type"), Some("no topic"));
    assert!(unroutable.header("position").is_some());
}

#[test]
fn what_the_topic_does_not_take_is_in_the_table_alone() {
    for delivery in [named, exactly_once] {
        let database = Postgres::shared(MAIN).database();
        let outbox = with_letters(&database);
        let [topic, dead] = topics(&outbox, "100000");
        let large = insert(&outbox, "t", "k", LARGE);
        let good = insert(&outbox, "t", "g", "'2'");
        let unroutable = insert(&outbox, "no topic", "o", "'3'");
        streamed(&outbox, &delivery(&outbox), &[]);
        assert_eq!(ids(&committed(&topic, 1)), [&good]);
        assert_eq!(letters(&outbox)[0], letter("parked", "too_large", &large));
        assert_eq!(ids(&committed(&dead, 1)), [&unroutable]);
    }
}

#[test]
fn without_a_table_the_topic_alone_keeps_them_and_their_keys_go_on() {
    for delivery in [named, exactly_once] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let [topic, dead] = topics(&outbox, "400000");
        let session = database.session();
        // Two of one transaction, which no session gets past before it knows of both.
        session.run("BEGIN");
        let insert_here = |key: &str, payload: &str| -> String {
            session.get(&format!(
                "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                 VALUES ('t', '{key}', 'e', {payload}) RETURNING id"
            ))
        };
        let wrong = [insert_here("k", LARGE), insert_here("l", LARGE)];
        let mut good = vec![insert_here("k", "'1'")];
        session.run("COMMIT");
        good.extend((0..20).map(|n| insert(&outbox, "t", &format!("k{n}"), "'2'")));
        streamed(&outbox, &delivery(&outbox), &[]);
        assert_eq!(ids(&committed(&topic, good.len())), good);
        assert_eq!(ids(&committed(&dead, 2)), wrong);
    }
}

#[test]
fn without_a_table_what_the_topic_does_not_take_ends_the_stream() {
    for delivery in [named, exactly_once] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let [topic, _] = topics(&outbox, "100000");
        let good = insert(&outbox, "t", "g", "'1'");
        insert(&outbox, "t", "k", LARGE);
        let before = outbox.confirmed();
        let log = halted(&outbox, &delivery(&outbox));
        let said = "is a dead letter, and topic";
        assert!(log.contains(said) && log.contains("run walpost setup, which makes a table"), "{log}");
        assert_eq!(ids(&committed(&topic, 1)), [&good]);
        let halted_at = outbox.confirmed();
        assert!(halted_at > before, "what precedes it is confirmed");

        // With a table it goes on.
        database.sql(include_str!("../../sql/dead_letter.sql"));
        streamed(&outbox, &delivery(&outbox), &[]);
        assert_eq!(letters(&outbox).len(), 1);
    }
}

#[test]
fn exactly_once_every_dead_letter_is_announced_once_whatever_is_killed() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let [topic, dead] = topics(&outbox, "400000");
    let configuration = quick(&outbox, &exactly_once(&outbox));
    let (mut good, mut wrong) = (Vec::new(), Vec::new());
    for kill in 0..8 {
        for n in 0..30 {
            good.push(insert(&outbox, "t", &format!("k{kill}-{n}"), "'1'"));
            if n % 10 == 5 {
                wrong.push(insert(&outbox, "no topic", &format!("w{kill}-{n}"), "'2'"));
            }
        }
        let walpost = Walpost::start(&configuration);
        let (begun, until) = (outbox.confirmed(), Instant::now() + Duration::from_millis(300 * (kill + 1)));
        eventually(WITHIN, "its moment", || (Instant::now() > until || outbox.confirmed() > begun).then_some(()));
        walpost.kill();
    }
    streamed(&outbox, &exactly_once(&outbox), &[]);
    assert_eq!(ids(&committed(&topic, good.len())), good);
    assert_eq!(ids(&committed(&dead, wrong.len())), wrong);
    assert_eq!(letters(&outbox).len(), wrong.len());
}
