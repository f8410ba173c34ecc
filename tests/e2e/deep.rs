//! `walpost check --deep`: rows that are called published against the records that are in the topics.

use std::time::Duration;

use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    proof::prove,
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

fn deep(outbox: &Outbox<'_>) -> Finished {
    let (url, brokers) = (outbox.database.url(), Kafka::shared().brokers());
    let topic = outbox.topic("${aggregate_type}");
    let names = ["--database-url", &url, "--slot", outbox.slot(), "--brokers", &brokers, "--route-topic", &topic];
    walpost(&[&["check", "--deep"], &names[..]].concat())
}

#[test]
fn a_row_that_is_called_published_and_was_never_sent_is_named() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let session = database.session();
    session.run("alter publication walpost set (publish_via_partition_root = true)");
    session.run(include_str!("../../sql/dead_letter.sql"));
    let kafka = Kafka::shared();
    for topic in ["order", "cut"] {
        kafka.create_topic(&outbox.topic(topic), 2, &[]);
    }
    for delivery in ["", &outbox.exactly_once()] {
        let running = Walpost::start(&outbox.configuration(kafka, &format!("progress_interval = '100ms'\n{delivery}")));
        running.streams(&outbox, WITHIN);
        let mut writer = outbox.writer();
        for n in 0..20 {
            writer.one("order", &format!("o-{n}"));
            writer.one("cut", &format!("o-{n}"));
        }
        let unproven = format!(
            "select count(*) from walpost.outbox o, walpost.progress p where slot = '{}' and not walpost.is_published(o.txid, o.tableoid, p)",
            outbox.slot()
        );
        eventually(WITHIN, "all is proven", || (session.get::<u32>(&unproven) == 0).then_some(()));
        assert_eq!(running.terminate(WITHIN), 0);
        let clean = deep(&outbox);
        assert!(clean.code == 0 && clean.stdout.contains("0 errors, 0 warnings"), "{clean:?}");
    }

    // Called published, and passed over: the slot was moved by hand.
    let mut lost = outbox.writer();
    lost.one("order", "never sent");
    let id = outbox.committed().last().expect("it is the last").id.clone();
    session.run(&format!("select pg_replication_slot_advance('{}', pg_current_wal_lsn())", outbox.slot()));
    prove(&database, outbox.slot());
    session.run("update walpost.progress set confirmed = pg_current_wal_lsn()");
    let found = deep(&outbox);
    assert_eq!(found.code, 3, "{found:?}");
    let says = format!("1 of 81 published rows are in no topic and no dead letter: {id}\n");
    assert!(found.stdout.contains(&says) && found.stdout.contains(&format!("walpost replay --id {id}")), "{found:?}");

    // A topic that has forgotten its first records says nothing of them, and of the others all.
    let admin: AdminClient<DefaultClientContext> = kafka.client().create().expect("the configuration is complete");
    let mut cut = TopicPartitionList::new();
    for partition in 0..2 {
        cut.add_partition_offset(&outbox.topic("cut"), partition, Offset::End).expect("the offset is valid");
    }
    let options = AdminOptions::new().operation_timeout(Some(WITHIN));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
    runtime.block_on(admin.delete_records(&cut, &options)).expect("Kafka answers");
    let found = deep(&outbox);
    assert_eq!(found.code, 3, "{found:?}");
    assert!(found.stdout.contains(&says), "{found:?}");
    assert!(found.stdout.contains("40 of 81 published rows cannot be judged"), "{found:?}");
    session.run(&format!("delete from walpost.outbox where id = '{id}'"));
    let found = deep(&outbox);
    assert!(found.code == 0 && found.stdout.contains("40 of 80 published rows cannot be judged"), "{found:?}");
}
