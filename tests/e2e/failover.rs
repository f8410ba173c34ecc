//! Other servers that go on with the log: a standby that is promoted, a copy of the data, a restored backup.

use std::time::Duration;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::{Bulk, Outbox},
    postgres::{Database, MAIN, Mode, Postgres},
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(90);
const BULK: Bulk = Bulk { transactions: 300, rows: 10, aggregates: 7, padding: 50 };

/// The configuration names both servers, whichever is the primary.
fn either(database: &Database<'_>, standby: &Postgres) -> String {
    let (first, second) = (database.server.port(), standby.port());
    let name = &database.name;
    format!(
        "database_url = 'postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{name}?target_session_attrs=read-write'\n"
    )
}

#[test]
fn a_promotion_without_the_slot_is_a_loss_that_is_named_and_recovered_from() {
    // While walpost runs, and while it is away and someone makes a slot of the same name on the new primary.
    for runs_on in [true, false] {
        let primary = Postgres::start(16, &[]);
        let database = primary.database();
        let outbox = Outbox::proven(&database);
        let standby = primary.standby(&[]);
        let kafka = Kafka::shared();
        let topic = outbox.topic("bulk");
        kafka.create_blockable_topic(&topic, 1);
        let servers = either(&database, &standby) + "progress_interval = '200ms'\n";
        let halts = outbox.configuration(kafka, &(servers.clone() + "on_slot_loss = 'halt'"));
        let recovers = outbox.configuration(kafka, &(servers + "on_slot_loss = 'recover'"));
        let walpost = Walpost::start(&halts);
        walpost.streams(&outbox, WITHIN);
        outbox.writer().bulk(BULK);
        let proven =
            "SELECT bool_and(walpost.is_published(o.txid, o.tableoid, p)) FROM walpost.outbox o, walpost.progress p";
        let session = database.session();
        eventually(WITHIN, "all rows are proven", || (session.value(proven).as_deref() == Some("t")).then_some(()));
        // Committed and not sent.
        kafka.block(&topic);
        outbox.writer().bulk(BULK);
        standby.follows(&primary);
        if !runs_on {
            walpost.kill();
        }
        primary.crash();
        standby.promote();
        let promoted = standby.copied_database(&database.name);
        let outbox = outbox.moved_to(&promoted);
        let slot = outbox.slot();
        let (walpost, says) = if runs_on {
            (walpost, format!("replication slot {slot} is lost: it was there, and is gone"))
        } else {
            promoted.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
            (Walpost::start(&halts), format!("replication slot {slot} begins at 0/"))
        };
        assert_eq!(walpost.wait_exit(WITHIN), 1, "runs on: {runs_on}");
        let log = walpost.log();
        assert!(log.contains(&says) && log.contains("events committed between 0/"), "runs on: {runs_on}: {log}");
        assert!(log.contains("(3000 rows of the table are not proven published)"), "runs on: {runs_on}: {log}");
        kafka.unblock(&topic);

        let walpost = Walpost::start(&recovers);
        outbox.writer().bulk(BULK);
        let report = outbox.recovered(kafka, "bulk", WITHIN);
        println!("runs on: {runs_on}: {report}");
        report.assert_complete();
        // What was in flight, and nothing that was proven.
        assert!(report.duplicates <= 3_000, "{report}");
        outbox.drained(WITHIN);
        assert_eq!(walpost.metric("walpost_slot_recoveries_total"), Some(1.0));
        assert_eq!(walpost.terminate(WITHIN), 0);
    }
}

#[test]
fn a_slot_that_the_standby_keeps_goes_on_after_the_promotion() {
    // With the process that streamed, and with another, which has only the table to know the slot by.
    for (version, runs_on) in [(17, true), (18, false)] {
        let primary = Postgres::start(version, &[]);
        primary.sql("SELECT pg_create_physical_replication_slot('standby', true)");
        let database = primary.database();
        let outbox = Outbox::proven(&database);
        let standby =
            primary.standby(&["primary_slot_name=standby", "hot_standby_feedback=on", "sync_replication_slots=on"]);
        // Nothing is streamed that the standby does not have.
        primary.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby'");
        primary.reload();
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
        let more = "failover = true\non_slot_loss = 'halt'\nprogress_interval = '1h'";
        let configuration = outbox.configuration(kafka, &(either(&database, &standby) + more));
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        let slot = outbox.slot();
        // The standby keeps it, and its log from beyond what was last written down.
        let kept = format!(
            "SELECT synced AND NOT temporary AND invalidation_reason IS NULL AND restart_lsn > p.confirmed
             FROM pg_replication_slots JOIN walpost.progress p ON slot = slot_name WHERE slot_name = '{slot}'"
        );
        let session = standby.session(&database.name);
        let mut writer = outbox.writer();
        eventually(WITHIN, "the standby keeps the slot", || {
            writer.bulk(Bulk { transactions: 1, ..BULK });
            writer.session.run("SELECT pg_log_standby_snapshot()");
            (session.rows(&kept) == [[Some("t".to_owned())]]).then_some(())
        });
        writer.bulk(BULK);
        standby.follows(&primary);
        drop(writer);
        if !runs_on {
            walpost.kill();
        }
        primary.crash();
        standby.promote();
        let promoted = standby.copied_database(&database.name);
        let outbox = outbox.moved_to(&promoted);
        let walpost = if runs_on { walpost } else { Walpost::start(&configuration) };
        walpost.streams(&outbox, WITHIN);
        outbox.writer().bulk(BULK);
        let report = outbox.recovered(kafka, "bulk", WITHIN);
        println!("{version}: {report}");
        report.assert_complete();
        outbox.drained(WITHIN);
        assert_eq!(walpost.metric("walpost_slot_losses_total"), Some(0.0), "{version}");
        assert_eq!(walpost.terminate(WITHIN), 0, "{version}");
    }
}

#[test]
fn a_copied_data_directory_skips_nothing_of_its_own() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::proven(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let of = |database: &Database<'_>| format!("database_url = '{}'\nprogress_interval = '200ms'\n", database.url());
    let configuration = outbox.configuration(kafka, &(of(&database) + "on_slot_loss = 'halt'"));
    let walpost = Walpost::start(&configuration);
    walpost.streams(&outbox, WITHIN);
    outbox.writer().bulk(BULK);
    outbox.drained(WITHIN);
    let copy = server.copy();
    // The original goes on.
    outbox.writer().bulk(BULK);
    walpost.streams(&outbox, WITHIN);
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);

    copy.start_again();
    let copied = copy.copied_database(&database.name);
    let outbox = outbox.moved_to(&copied);
    let walpost = Walpost::start(&outbox.configuration(kafka, &(of(&copied) + "on_slot_loss = 'halt'")));
    outbox.writer().bulk(BULK);
    outbox.recovered(kafka, "bulk", WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// Kafka has events of a future that did not happen.
#[test]
fn a_restore_to_an_earlier_point_sends_what_is_committed_there_exactly_once() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::proven(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let backup = server.copy();
    let more = outbox.exactly_once() + "progress_interval = '200ms'\n";
    let walpost = Walpost::start(&outbox.configuration(kafka, &more));
    walpost.streams(&outbox, WITHIN);
    outbox.writer().bulk(BULK);
    outbox.drained(WITHIN);
    server.sql("SELECT pg_create_restore_point('here')");
    outbox.writer().bulk(BULK);
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    server.stop(Mode::Fast, WITHIN);

    backup.recover_to(&server, "here");
    let restored = backup.copied_database(&database.name);
    assert_eq!(restored.session().value("SELECT count(*) FROM walpost.outbox").as_deref(), Some("3000"));
    let outbox = outbox.moved_to(&restored);
    let walpost = Walpost::start(&outbox.configuration(kafka, &more));
    walpost.streams(&outbox, WITHIN);
    outbox.writer().bulk(Bulk { transactions: 30, ..BULK });
    outbox.committed_delivered(kafka, "bulk", WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    let log = walpost.log();
    assert!(log.contains("where timeline 2 began: they happened on a server that is gone"), "{log}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}
