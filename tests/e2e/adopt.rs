//! Another program's slot and publication, taken over as they are: nothing lost, nothing changed.

use std::time::Duration;

use crate::support::{
    kafka::Kafka,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    process::Signal,
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

/// The table of Debezium's event router, its publication of all tables, and its slot.
fn debezium(database: &Database<'_>, publication: &str) {
    let session = database.session();
    session.run(&format!(
        "CREATE TABLE public.outboxevent (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
           type text NOT NULL, payload jsonb);
         CREATE TABLE public.orders (id int);
         CREATE PUBLICATION dbz_publication {publication}"
    ));
    session.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", database.name));
}

fn insert(database: &Database<'_>, n: u32) {
    // As Debezium's users do: the log keeps the event.
    database.sql(&format!(
        "BEGIN; INSERT INTO public.outboxevent VALUES ('{}', 'order', 'o-{}', 'placed', '{{\"n\": {n}}}');
         UPDATE public.outboxevent SET type = 'placed' WHERE id = '{0}'; COMMIT; INSERT INTO public.orders VALUES ({n})",
        id(n),
        n % 3
    ));
}

fn id(n: u32) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

const TABLE: [&str; 4] = ["--preset", "debezium", "--table", "public.outboxevent"];
const PUBLICATION: [&str; 2] = ["--publication", "dbz_publication"];

fn adopt(database: &Database<'_>, more: &[&str]) -> Finished {
    let url = database.url();
    let mut arguments = vec!["setup", "--adopt", "--database-url", &url];
    for given in [PUBLICATION, ["--slot", &database.name]] {
        if !more.contains(&given[0]) {
            arguments.extend(given);
        }
    }
    walpost(&[&arguments[..], &TABLE[..], more].concat())
}

#[test]
fn the_stream_goes_on_where_the_other_program_stopped() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        debezium(&database, "FOR ALL TABLES");
        let session = database.session();
        let slot = &database.name;
        // What the connector sent: its position says so.
        insert(&database, 1);
        session.run(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
        insert(&database, 2);
        let facts = format!(
            "SELECT concat(confirmed_flush_lsn, restart_lsn, p::text) FROM pg_replication_slots, pg_publication p
             WHERE slot_name = '{slot}'"
        );
        let before = session.value(&facts);

        let dry = adopt(&database, &["--dry-run"]);
        assert_eq!(dry.code, 0, "{version}: {dry:?}");
        for part in [
            format!("+ take over slot {slot} at 0/"),
            "is for all tables".to_owned(),
            "sends updates, deletes, truncates of the outbox too\n    nothing: walpost passes over them".to_owned(),
        ] {
            assert!(dry.stdout.contains(&part), "{version}: {part} is not in {}", dry.stdout);
        }
        assert_eq!(session.value("SELECT to_regnamespace('walpost')::text"), None, "a dry run makes nothing");

        let adopted = adopt(&database, &["--yes"]);
        assert_eq!(adopted.code, 0, "{version}: {adopted:?}");
        assert_eq!(session.value(&facts), before, "{version}: neither is changed");
        let row = format!(
            "SELECT p.confirmed = s.confirmed_flush_lsn AND p.stopped_clean AND NOT p.started_sent AND p.published IS NULL
             FROM walpost.progress p JOIN pg_replication_slots s ON s.slot_name = p.slot WHERE slot = '{slot}'"
        );
        assert_eq!(session.value(&row).as_deref(), Some("t"), "{version}");
        let again = adopt(&database, &["--yes"]);
        assert!(again.stdout.contains("everything exists already"), "{version}: {again:?}");

        insert(&database, 3);
        let kafka = Kafka::shared();
        let topic = format!("{slot}.order");
        kafka.create_topic(&topic, 1, &[]);
        let configuration = format!(
            "database_url = '{}'\nbrokers = '{}'\nslot = '{slot}'\npublication = 'dbz_publication'\npreset = 'debezium'
             table = 'public.outboxevent'\nroute.topic = '{slot}.${{aggregatetype}}'",
            database.url(),
            kafka.brokers()
        );
        let running = Walpost::start(&configuration);
        let ids = |expect| {
            let records = kafka.read(&topic, expect, WITHIN);
            records.iter().map(|record| record.header("id").expect("it has one").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ids(2), [id(2), id(3)], "{version}");
        insert(&database, 4);
        assert_eq!(ids(3), [id(2), id(3), id(4)], "{version}");
        running.signal(Signal::Term);
        assert_eq!(running.wait_exit(WITHIN), 0, "{version}: {}", running.log());

        // Meanwhile the connector was used once more: what it confirmed is not sent, and is said not to be.
        insert(&database, 5);
        session.run(&format!("SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())"));
        insert(&database, 6);
        let anew = adopt(&database, &["--yes"]);
        assert!(anew.code == 0 && anew.stdout.contains("anew: it was moved since walpost used it"), "{anew:?}");
        let running = Walpost::start(&configuration);
        assert_eq!(ids(4), [id(2), id(3), id(4), id(6)], "{version}");
        assert_eq!(running.terminate(WITHIN), 0, "{version}: {}", running.log());

        // A slot that is gone is not one that nobody has made yet.
        session.run(&format!("SELECT pg_drop_replication_slot('{slot}')"));
        let (url, brokers) = (database.url(), kafka.brokers());
        let check = ["check", "--database-url", &url, "--brokers", &brokers, "--slot", slot];
        let found = walpost(&[&check[..], &PUBLICATION[..], &TABLE[..]].concat());
        assert!(
            found.code == 3 && found.stdout.contains("is gone; walpost knew it to be confirmed up to 0/"),
            "{found:?}"
        );
        assert!(found.stdout.contains("walpost run, which makes the slot anew"), "{found:?}");
    }
}

/// What the other program had sent is not known, so neither is what to send.
#[test]
fn a_slot_that_is_lost_before_anything_is_proven_asks_for_a_person() {
    let database = Postgres::shared(MAIN).database();
    debezium(&database, "FOR ALL TABLES");
    let session = database.session();
    session.run("ALTER TABLE public.outboxevent ADD COLUMN txid xid8 NOT NULL DEFAULT pg_current_xact_id()");
    insert(&database, 1);
    assert_eq!(adopt(&database, &["--yes"]).code, 0);
    insert(&database, 2);
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", database.name));
    let url = database.url();
    let brokers = Kafka::shared().brokers();
    let run = ["run", "--database-url", &url, "--brokers", &brokers, "--slot", &database.name, "--http-listen", "off"];
    let refused = walpost(&[&run[..], &PUBLICATION[..], &TABLE[..]].concat());
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in ["cannot tell which rows to send: it was lost before anything was proven", "walpost run --accept-gap"] {
        assert!(refused.stderr.contains(part), "{part} is not in {refused:?}");
    }
}

#[test]
fn what_cannot_be_taken_over_is_refused_with_its_remedy() {
    let database = Postgres::shared(MAIN).database();
    debezium(&database, "FOR TABLE public.orders");
    let session = database.session();
    let slot = &database.name;
    let refused = |more: &[&str], parts: &[&str]| {
        let told = adopt(&database, &[&["--yes"], more].concat());
        assert_eq!(told.code, 1, "{told:?}");
        for part in parts {
            assert!(told.stdout.contains(part), "{part} is not in {}", told.stdout);
        }
        assert_eq!(session.value("SELECT to_regnamespace('walpost')::text"), None, "nothing is made");
    };
    refused(
        &[],
        &[
            "does not publish public.outboxevent",
            "alter publication dbz_publication add table public.outboxevent. The slot sees that only from then on",
        ],
    );
    session.run("ALTER PUBLICATION dbz_publication ADD TABLE public.outboxevent");
    refused(&["--publication", "nobody_made_it"], &["publication nobody_made_it does not exist"]);
    refused(&["--slot", "nobody_made_it"], &["slot nobody_made_it does not exist: there is nothing to take over"]);
    let (eager, physical) = (format!("{slot}_eager"), format!("{slot}_physical"));
    session.run(&format!(
        "SELECT pg_create_logical_replication_slot('{eager}', 'pgoutput', false, true);
         SELECT pg_create_physical_replication_slot('{physical}')"
    ));
    refused(&["--slot", &eager], &["has two_phase on", "pg_drop_replication_slot"]);
    refused(&["--slot", &physical], &["is a physical slot"]);
    let passing = format!("{slot}_passing");
    let holder = database.session();
    holder.run(&format!("SELECT pg_create_logical_replication_slot('{passing}', 'pgoutput', true)"));
    refused(&["--slot", &passing], &["is temporary"]);
    let other = Postgres::shared(MAIN).database();
    other.sql(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", other.name));
    refused(&["--slot", &other.name], &["belongs to database"]);

    let kafka = Kafka::shared();
    let url = database.url();
    let brokers = kafka.brokers();
    let arguments = ["run", "--database-url", &url, "--slot", slot, "--brokers", &brokers, "--http-listen", "off"];
    let running = Walpost::command(&[&arguments[..], &PUBLICATION[..], &TABLE[..]].concat());
    let active = format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'");
    crate::support::eventually(WITHIN, "it streams", || (session.value(&active).as_deref() == Some("t")).then_some(()));
    refused(&[], &["is in use by process", "stop the connector"]);
    assert_eq!(running.terminate(WITHIN), 0);

    let script =
        walpost(&[&["setup", "--print", "--adopt", "--slot", slot], &PUBLICATION[..], &TABLE[..]].concat()).stdout;
    assert!(!script.to_lowercase().contains("create publication"), "{script}");
    session.run(&script);
    assert_eq!(session.value("SELECT slot FROM walpost.progress").as_deref(), Some(slot.as_str()));
    session.run(&format!("SELECT pg_drop_replication_slot('{eager}'), pg_drop_replication_slot('{physical}')"));
}
