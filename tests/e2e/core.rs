//! The core story, on every PostgreSQL: what a transaction commits reaches a consumer, once and in order, and what it
//! rolls back does not.

use std::time::Duration;

use crate::support::{
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Postgres, VERSIONS},
    records::Isolation,
    verify::{all_arrived, verify},
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn committed_events_reach_a_consumer_and_a_clean_stop_repeats_none() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        let topic = outbox.topic("order");
        kafka.create_topic(&topic, 3, &[]);
        let configuration = outbox.configuration(kafka, "");
        let mut writer = outbox.writer();
        writer.one("order", "before the start");

        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        for n in 0..20 {
            writer.begin();
            writer.event("order", &format!("o-{}", n % 4));
            writer.savepoint("s");
            writer.event("order", "rolled back to a savepoint");
            writer.rollback_to("s");
            writer.event("order", &format!("o-{}", n % 3));
            writer.commit();
            writer.begin();
            writer.event("order", "rolled back");
            writer.rollback();
        }
        let mut reader = kafka.reader(&[&topic], Isolation::Committed, WITHIN);
        let committed = outbox.committed();
        reader.until(WITHIN, "every event", |records| all_arrived(&committed, records));
        assert!((1.0..=walpost.peak_rss_mib()).contains(&walpost.rss_mib()) && walpost.peak_rss_mib() < 64.0);
        assert_eq!(walpost.terminate(WITHIN), 0, "a clean stop\n{}", walpost.log());

        let walpost = Walpost::start(&configuration);
        writer.one("order", "after the restart");
        let committed = outbox.committed();
        reader.until(WITHIN, "every event", |records| all_arrived(&committed, records));
        assert!(walpost.is_running());
        walpost.kill();
        verify(&committed, reader.until_end(WITHIN)).assert_exactly_once();
    }
}

#[test]
fn a_wrong_configuration_is_named_and_ends_the_run() {
    let run = Walpost::start("slott = 'walpost'");
    assert_eq!(run.wait_exit(WITHIN), 2);
    assert!(run.log().contains("slott"), "{}", run.log());
    let printed = walpost(&["--version"]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    assert!(printed.stdout.contains(env!("CARGO_PKG_VERSION")), "{printed:?}");
}
