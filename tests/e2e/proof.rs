//! The proof: what is called published is in Kafka, whatever the transactions, the commits and the crashes.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{insert, letter, letters},
    long,
    outbox::Outbox,
    postgres::{MAIN, Postgres, VERSIONS},
    process::Signal,
    proof::pruned,
    proxy::Proxy,
    records::{Isolation, Reader},
    session::Session,
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

const UNPROVEN: &str =
    "select o.id from walpost.outbox o, walpost.progress p where not walpost.is_published(o.txid, o.tableoid, p)";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Every kind of transaction, in random turns and at random speeds, until told to stop.
fn write(session: &Session, writer: u64, mut random: Random, stop: &AtomicBool) {
    let insert = "insert into walpost.outbox (aggregate_type, aggregate_id, event_type) values ('t', 'k', 'e');";
    let in_function =
        format!("do $$ begin begin {insert} raise 'given up'; exception when others then {insert} end; end $$;");
    let mut prepared = 0;
    while !stop.load(Ordering::Relaxed) {
        session.run(if random.one_in(2) { "set synchronous_commit = on" } else { "set synchronous_commit = off" });
        session.run("begin");
        for _ in 0..random.below(5) {
            let rest = random.below(if writer == 0 { 400 } else { 8 }) as f64 / 1000.0;
            session.run(&match random.below(6) {
                0 => insert.to_owned(),
                1 => format!("savepoint a; {insert} savepoint b; {insert} rollback to b; {insert} release a;"),
                2 => format!("savepoint a; {insert} rollback to a;"),
                3 => in_function.clone(),
                4 => format!("{insert} select pg_sleep({rest}); savepoint a; {insert}"),
                _ => format!("select pg_sleep({rest})"),
            });
        }
        match random.below(8) {
            0 => session.run("rollback"),
            // Others' transactions end while it waits.
            1 if writer < 3 => {
                prepared += 1;
                session.run(&format!("prepare transaction 'w{writer}-{prepared}'"));
                for _ in 0..random.below(20) {
                    session.run(insert);
                }
                let end = if random.one_in(4) { "rollback" } else { "commit" };
                session.run(&format!("{end} prepared 'w{writer}-{prepared}'"));
            }
            _ => session.run("commit"),
        }
    }
}

/// Ids of all records so far.
fn ids_in(reader: &mut Reader) -> HashSet<String> {
    reader.until_end(WITHIN).iter().map(|record| record.header("id").expect("an id").to_owned()).collect()
}

fn proven(session: &Session) -> BTreeSet<String> {
    let proven = UNPROVEN.replace("not walpost", "walpost");
    session.rows(&proven).into_iter().filter_map(|mut row| row.remove(0)).collect()
}

/// By an even seed exactly once. Writers of all kinds; Kafka that refuses for a while; hard kills. The link to the server is slow, so that much happens
/// between one question to it and the next.
fn what_is_proven_is_in_kafka(version: u16, seed: u64, lasting: Duration) {
    let server = Postgres::start(version, &["autovacuum=off"]);
    let database = server.database();
    let mut outbox = Outbox::set_up(&database);
    let session = database.session();
    let older =
        "insert into walpost.outbox (aggregate_type, event_type) select 't', 'older' from generate_series(1, 5)";
    session
        .run(&format!("select pg_drop_replication_slot('{}'); delete from walpost.progress; {older}", outbox.slot()));
    outbox = Outbox::set_up(outbox.database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("t");
    kafka.create_blockable_topic(&topic, 3);
    let proxy = Proxy::slow(server.port(), Duration::from_millis(3));
    let url = database.url().replace(&server.port().to_string(), &proxy.port().to_string());
    let (delivery, isolation) = match seed % 2 {
        0 => (outbox.exactly_once(), Isolation::Committed),
        _ => (String::new(), Isolation::Uncommitted),
    };
    let more = format!("{delivery}database_url = '{url}'\nprogress_interval = '100ms'");
    let configuration = outbox.configuration(kafka, &more);
    let mut reader = kafka.reader(&[&topic], isolation, WITHIN);

    let stop = AtomicBool::new(false);
    let mut checked = BTreeSet::new();
    let mut counts = BTreeMap::new();
    let mut walpost = Walpost::start(&configuration);
    thread::scope(|scope| {
        // A failure ends the writers too, or the scope would wait for them without end.
        let stopped = StopAtEnd(&stop);
        for writer in 0..6 {
            let session = database.session();
            let stop = &stop;
            scope.spawn(move || write(&session, writer, Random(seed ^ writer << 32), stop));
        }
        let mut random = Random(!seed);
        let (begun, mut blocked) = (Instant::now(), false);
        let (mut new_proofs, longest) = (0, lasting + WITHIN);
        // On a busy machine it takes longer until enough was looked at.
        while begun.elapsed() < lasting || new_proofs < 5 && begun.elapsed() < longest {
            // The proven first: what is read after that has been there before it at the latest now.
            let new: Vec<String> = proven(&session).into_iter().filter(|id| !checked.contains(id)).collect();
            let mut delivered = ids_in(&mut reader);
            let complete = |delivered: &HashSet<String>| new.iter().all(|id| delivered.contains(id));
            if isolation == Isolation::Committed && !complete(&delivered) {
                // A commit is decided before every partition shows it, and one that refuses shows none; with walpost stopped
                // nobody else brings it.
                walpost.signal(Signal::Stop);
                kafka.unblock(&topic);
                blocked = false;
                let until = Instant::now() + Duration::from_secs(5);
                while Instant::now() < until && !complete(&delivered) {
                    delivered = ids_in(&mut reader);
                }
                walpost.signal(Signal::Cont);
            }
            let missing: Vec<&String> = new.iter().filter(|id| !delivered.contains(*id)).collect();
            assert!(missing.is_empty(), "seed {seed}: proven and not in Kafka: {missing:?}");
            *counts.entry("looks").or_insert(0) += 1;
            new_proofs += u32::from(!new.is_empty());
            checked.extend(new);
            match random.below(30) {
                0 => {
                    walpost.kill();
                    walpost = Walpost::start(&configuration);
                    *counts.entry("kills").or_insert(0) += 1;
                }
                // Refusals are shorter than the pauses between them.
                _ if blocked && random.one_in(2) || !blocked && random.one_in(8) => {
                    if blocked {
                        kafka.unblock(&topic)
                    } else {
                        kafka.block(&topic)
                    }
                    blocked = !blocked;
                    *counts.entry("blocks and unblocks").or_insert(0) += 1;
                }
                _ => {}
            }
        }
        kafka.unblock(&topic);
        drop(stopped);
        counts.insert("looks at new proofs", new_proofs);
    });
    println!("version {version}, seed {seed}: {} rows proven under way; {counts:?}", checked.len());
    eventually(WITHIN, "all is proven but what is older than the slot", || {
        (session.rows(UNPROVEN).len() == 5).then_some(())
    });
    let delivered = ids_in(&mut reader);
    let missing = proven(&session).into_iter().filter(|id| !delivered.contains(id)).count();
    assert_eq!(missing, 0, "seed {seed}");
    let older = session.rows("select id from walpost.outbox where event_type = 'older'");
    assert!(older.iter().all(|row| !delivered.contains(row[0].as_deref().expect("an id"))));
    assert!(checked.len() > 100, "the proof went on under way: {}", checked.len());
    assert_eq!(walpost.terminate(WITHIN), 0);
    let stopped = "select stopped_clean and confirmed = confirmed_flush_lsn
                   from walpost.progress join pg_replication_slots on slot_name = slot";
    assert_eq!(session.value(stopped).as_deref(), Some("t"));
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_row_that_is_not_in_kafka_is_ever_called_published() {
    let (versions, seconds) = if long() { (&VERSIONS[..], 60) } else { (&[MAIN][..], 10) };
    let seed: u64 = std::env::var("WALPOST_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    for version in versions {
        for seed in [seed, seed + 1] {
            what_is_proven_is_in_kafka(*version, seed, Duration::from_secs(seconds));
        }
    }
}

#[test]
fn a_database_in_which_nothing_happens_is_not_written_to() {
    let server = Postgres::start(MAIN, &["autovacuum=off"]);
    let database = server.database();
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("t"), 1, &[]);
    let walpost =
        Walpost::start(&outbox.configuration(kafka, "progress_interval = '100ms'\nstatus_interval = '500ms'"));
    let session = database.session();
    // A transaction that has an id and does nothing is no reason to write either.
    let bystander = database.session();
    bystander.run("begin; select pg_current_xact_id()");
    for round in 0..2 {
        insert(&outbox, "t", "k", "'1'");
        eventually(WITHIN, "it is proven", || session.rows(UNPROVEN).is_empty().then_some(()));
        let position = || -> u64 { session.get("select (pg_current_wal_lsn() - '0/0')::bigint") };
        // The server itself notes now and then what runs; between two such notes it writes nothing.
        eventually(WITHIN, "the end of the log stands still for twenty ticks", || {
            let before = position();
            thread::sleep(Duration::from_secs(2));
            (position() == before).then_some(())
        });
        assert!(walpost.is_running(), "round {round}");
    }
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn status_and_the_view_say_what_has_become_of_each_event() {
    for version in if long() { &VERSIONS[..] } else { &[14, 18] } {
        let server = Postgres::start(*version, &[]);
        let database = server.database();
        let outbox = Outbox::set_up(&database);
        let kafka = Kafka::shared();
        let topic = outbox.topic("t");
        kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
        let status = || -> serde_json::Value {
            let found = walpost(&["status", "--database-url", &database.url(), "--slot", outbox.slot(), "--json"]);
            serde_json::from_str(&found.stdout).unwrap_or_else(|_| panic!("{found:?}"))
        };
        let session = database.session();
        let states =
            || session.rows("select event_type || ' ' || slot || ' ' || state from walpost.event_state order by seq");
        let state = |event: &str, state: &str| vec![Some(format!("{event} {} {state}", outbox.slot()))];
        insert(&outbox, "t", "k", "'1'");
        insert(&outbox, "t", "dead", "to_jsonb(repeat('x', 200000))");
        assert_eq!(states(), [state("e", "PENDING"), state("e", "PENDING")]);
        let (before, unproven) = (status(), &status()["unproven"]);
        assert_eq!((&before["published_at"], &unproven["rows"]), (&serde_json::Value::Null, &2.into()));
        let seconds = |what: &str| unproven[what].as_f64().expect("seconds");
        assert!(seconds("oldest_seconds") >= seconds("p95_seconds") && seconds("p95_seconds") > 0.0);

        let walpost = Walpost::start(&outbox.configuration(kafka, "progress_interval = '100ms'"));
        eventually(WITHIN, "both are settled", || {
            (states() == [state("e", "PUBLISHED"), state("e", "DEAD_LETTER")]).then_some(())
        });
        let after = status();
        assert_eq!(after["unproven"]["rows"], 0);
        assert!(after["published_at"].is_string(), "{after}");
        eventually(WITHIN, "it is a metric too", || walpost.metric("walpost_published_timestamp_seconds"));
        assert!(walpost.metric("walpost_oldest_unpublished_seconds").is_some());
        assert_eq!(walpost.terminate(WITHIN), 0);
        let restored = "update walpost.progress set system_identifier = '1'";
        session.run(restored);
        assert_eq!(states()[0], state("e", "PENDING"), "the proof is another server's");
    }
}

/// What is committed while the publication lacks its table or leaves it out, or is older than that it was added, is in no log that the
/// slot reads.
#[test]
fn rows_that_the_publication_did_not_let_through_are_never_called_published() {
    for version in [14, MAIN, 18] {
        let server = Postgres::start(version, &[]);
        let database = server.database();
        let outbox = Outbox::set_up(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("t"), 1, &[]);
        let session = database.session();
        let event = |table: &str, event: &str| {
            session.run(&format!("insert into {table} (aggregate_type, event_type) values ('t', '{event}')"));
        };
        let is_proven = |table: &str, event: &str| {
            let is_proven = format!(
                "select walpost.is_published(o.txid, o.tableoid, p) from {table} o, walpost.progress p
                 where event_type = '{event}'"
            );
            session.value(&is_proven).as_deref() == Some("t")
        };
        let becomes_proven = |table: &str, name: &str| {
            event(table, name);
            eventually(WITHIN, "the event is proven", || is_proven(table, name).then_some(()));
        };
        let soon = "progress_interval = '100ms'\n";
        let (first, second) = ("walpost.outbox", "walpost.second");
        let walpost = Walpost::start(&outbox.configuration(kafka, soon));
        walpost.streams(&outbox, WITHIN);
        becomes_proven(first, "before");
        session.run("alter publication walpost drop table walpost.outbox");
        event(first, "left out");
        session.run("alter publication walpost add table walpost.outbox");
        let noted = "select not upper_inf(gaps[1]) from walpost.progress";
        eventually(WITHIN, "it is noted", || (session.value(noted).as_deref() == Some("t")).then_some(()));
        becomes_proven(first, "after");
        session.run("alter table walpost.outbox rename to other");
        event("walpost.other", "renamed");
        session.run("alter table walpost.other rename to outbox");
        assert_eq!(walpost.terminate(WITHIN), 0);
        if version >= 15 {
            session.run("alter publication walpost set table walpost.outbox where (event_type <> 'filtered')");
            event(first, "filtered");
            session.run("alter publication walpost set table walpost.outbox");
        } else {
            session.run("alter publication walpost set (publish = 'delete')");
            event(first, "filtered");
            session.run("alter publication walpost set (publish = 'insert')");
        }
        // Another outbox, with a past.
        session.run("create table walpost.second (like walpost.outbox including all)");
        event(second, "older");
        session.run("alter publication walpost add table walpost.second");
        let topic = outbox.topic("t");
        let both = |table: &str| format!("[[outbox]]\ntable = '{table}'\nroute.topic = '{topic}'\n");
        let walpost = Walpost::start(&outbox.configuration(kafka, &[soon, &both(first), &both(second)].concat()));
        walpost.streams(&outbox, WITHIN);
        becomes_proven(first, "last");
        becomes_proven(second, "last");
        for (table, event, proven) in [
            (first, "before", true),
            (first, "left out", false),
            (first, "after", true),
            (first, "renamed", false),
            (first, "filtered", false),
            (second, "older", false),
        ] {
            assert_eq!(is_proven(table, event), proven, "{version}: {event}");
        }
        assert_eq!(walpost.terminate(WITHIN), 0);
        let sent = kafka.read(&topic, 4, WITHIN);
        let sent: Vec<_> = sent.iter().filter_map(|record| record.header("event_type")).collect();
        assert_eq!(sent, ["before", "after", "last", "last"], "{version}");
    }
}

/// The same where no row of the publication's own says so.
#[test]
fn rows_that_a_former_filter_or_no_log_kept_back_are_never_called_published() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let session = database.session();
    session.run(include_str!("../../sql/outbox_partitioned.sql"));
    session.run("select walpost.make_partitions()");
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("t");
    kafka.create_topic(&topic, 1, &[]);
    let event = |table: &str, event: &str, day: &str| {
        session.run(&format!(
            "insert into {table} (aggregate_type, event_type, occurred_at) values ('t', '{event}', {day})"
        ));
    };
    let proven = || -> Vec<String> {
        let proven = "select event_type from walpost.outbox o, walpost.progress p
                      where walpost.is_published(o.txid, o.tableoid, p) order by event_type";
        session.rows(proven).into_iter().map(|mut row| row.remove(0).expect("an event")).collect()
    };
    let becomes_proven = |name: &str| {
        event("walpost.outbox", name, "now()");
        eventually(WITHIN, "the event is proven", || proven().iter().any(|event| event == name).then_some(()));
    };
    let noted = |what: &str| {
        let noted = format!("select bool_or(how like '%{what}%') from walpost.progress, unnest(covered_how) how");
        eventually(WITHIN, "it is noted", || (session.value(&noted).as_deref() == Some("t")).then_some(()));
    };
    let configuration = outbox.configuration(kafka, "progress_interval = '100ms'");
    let walpost = Walpost::start(&configuration);
    walpost.streams(&outbox, WITHIN);
    becomes_proven("1");
    session.run(
        "create unlogged table walpost.outbox_past partition of walpost.outbox for values from ('2001-01-01') to ('2002-01-01')",
    );
    becomes_proven("2");
    event("walpost.outbox", "unlogged", "'2001-02-03'");
    becomes_proven("3");
    session.run("alter publication walpost set table walpost.outbox where (event_type <> 'filtered')");
    noted("filtered");
    becomes_proven("4");
    event("walpost.outbox", "filtered", "now()");
    becomes_proven("5");
    assert_eq!(walpost.terminate(WITHIN), 0);
    session.run("alter publication walpost set table walpost.outbox");
    let pruned = pruned(&database, &["--retention", "0s"]);
    assert_eq!(pruned["deleted"], 0, "what the filter left out is not told from the rest: {pruned}");
    let walpost = Walpost::start(&configuration);
    walpost.streams(&outbox, WITHIN);
    becomes_proven("6");
    assert_eq!(proven(), ["1", "2", "3", "6"]);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let sent = kafka.read(&topic, 6, WITHIN);
    let sent: Vec<_> = sent.iter().filter_map(|record| record.header("event_type")).collect();
    assert_eq!(sent, ["1", "2", "3", "4", "5", "6"]);
}

/// Rows that are older than the slot are read from the outboxes of that moment.
#[test]
fn older_rows_of_an_outbox_that_was_not_configured_when_they_were_sent_are_never_called_published() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let session = database.session();
    session.run(include_str!("../../sql/outbox.sql"));
    session.run(
        "create table walpost.second (like walpost.outbox including all);
         create publication walpost for table walpost.outbox, walpost.second with (publish = 'insert');
         insert into walpost.outbox (aggregate_type, event_type) values ('t', 'older');
         insert into walpost.second (aggregate_type, event_type) values ('t', 'older second')",
    );
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("t");
    kafka.create_topic(&topic, 1, &[]);
    let table = |name: &str| format!("[[outbox]]\ntable = 'walpost.{name}'\nroute.topic = '{topic}'\n");
    let soon = "progress_interval = '100ms'\n";
    let both = outbox.configuration(kafka, &[soon, &table("outbox"), &table("second")].concat());
    let becomes_proven = |name: &str, event: &str| {
        session.run(&format!("insert into walpost.{name} (aggregate_type, event_type) values ('t', '{event}')"));
        let proven = format!(
            "select from walpost.{name} o, walpost.progress p
             where event_type = '{event}' and walpost.is_published(o.txid, o.tableoid, p)"
        );
        eventually(WITHIN, "the event is proven", || session.rows(&proven).pop());
    };
    let walpost = Walpost::start(&both);
    walpost.streams(&outbox, WITHIN);
    becomes_proven("outbox", "1");
    becomes_proven("second", "2");
    assert_eq!(walpost.terminate(WITHIN), 0);
    session.run(
        "update walpost.progress set reading = 'initial', reading_since = now(), reading_visible = started, reading_at = '0/8'",
    );
    let walpost = Walpost::start(&outbox.configuration(kafka, &[soon, &table("outbox")].concat()));
    walpost.streams(&outbox, WITHIN);
    becomes_proven("outbox", "3");
    assert_eq!(walpost.terminate(WITHIN), 0);
    let walpost = Walpost::start(&both);
    walpost.streams(&outbox, WITHIN);
    becomes_proven("second", "4");
    assert_eq!(walpost.terminate(WITHIN), 0);
    let unproven = "select event_type from (select txid, tableoid as relation, event_type from walpost.outbox
                    union all select txid, tableoid, event_type from walpost.second) o, walpost.progress p
                    where not walpost.is_published(o.txid, o.relation, p)";
    assert_eq!(session.rows(unproven), [[Some("older second".to_owned())]]);
}

/// Its rows were not in the log of the table.
#[test]
fn rows_of_a_partition_that_is_attached_with_them_are_never_called_published() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let session = database.session();
    session.run(include_str!("../../sql/outbox_partitioned.sql"));
    session.run("select walpost.make_partitions()");
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("t"), 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, "progress_interval = '100ms'"));
    walpost.streams(&outbox, WITHIN);
    session.run(
        "create table walpost.outbox_past (like walpost.outbox including defaults including constraints);
         insert into walpost.outbox_past (seq, aggregate_type, event_type, occurred_at) values (0, 't', 'past', '2001-02-03');
         alter table walpost.outbox attach partition walpost.outbox_past for values from ('2001-01-01') to ('2002-01-01')",
    );
    let noted = "select 'walpost.outbox_past'::regclass = any (covered) from walpost.progress";
    eventually(WITHIN, "it is noted", || (session.value(noted).as_deref() == Some("t")).then_some(()));
    let proven = "select string_agg(event_type, ' ' order by event_type) from walpost.outbox o, walpost.progress p
                  where walpost.is_published(o.txid, o.tableoid, p)";
    session.run("insert into walpost.outbox (aggregate_type, event_type) values ('t', 'now')");
    eventually(WITHIN, "it is proven", || (session.value(proven).as_deref() == Some("now")).then_some(()));
    let later =
        "insert into walpost.outbox (aggregate_type, event_type, occurred_at) values ('t', 'of then', '2001-02-03')";
    session.run(later);
    eventually(WITHIN, "so is what comes later", || {
        (session.value(proven).as_deref() == Some("now of then")).then_some(())
    });
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_process_that_lost_the_slot_writes_nothing_about_it() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::set_up(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("t");
    kafka.create_topic(&topic, 1, &[("max.message.bytes", "100000")]);
    let configuration = outbox.configuration(kafka, "progress_interval = '100ms'");
    let first = Walpost::start(&configuration);
    let holder = first.streams(&outbox, WITHIN);
    let session = database.session();
    let epoch = || -> u64 { session.get("select epoch from walpost.progress") };
    eventually(WITHIN, "the slot is gained, and a tick is over", || {
        session.rows("select from walpost.progress where confirmed is not null").pop()
    });
    let gained = epoch();

    // It is stopped while it writes a letter, and its write is let through only then.
    let lock = database.session();
    lock.run("begin; lock table walpost.dead_letter in exclusive mode");
    let culprit = insert(&outbox, "t", "k", "to_jsonb(repeat('x', 200000))");
    let writes =
        "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'insert into%dead_letter%'";
    eventually(WITHIN, "it waits for the table", || session.rows(writes).pop());
    first.signal(Signal::Stop);
    session.run(&format!("select pg_terminate_backend({holder})"));
    lock.run("rollback");
    let second = Walpost::start(&configuration);
    eventually(WITHIN, "the second has the slot", || outbox.walsender().filter(|pid| *pid != holder));
    eventually(WITHIN, "the second writes the letter", || (letters(&outbox).len() == 1).then_some(()));
    assert_eq!(letters(&outbox), [letter("parked", "too_large", &culprit)]);
    let regained = epoch();
    assert!(regained > gained);

    first.signal(Signal::Cont);
    first.says("standby: slot", WITHIN);
    insert(&outbox, "t", "other", "'1'");
    eventually(WITHIN, "the second goes on with the proof", || session.rows(UNPROVEN).is_empty().then_some(()));
    assert_eq!((epoch(), letters(&outbox).len()), (regained, 1));
    second.kill();
    eventually(WITHIN, "the first takes over", || (epoch() > regained).then_some(()));
    assert_eq!(first.terminate(WITHIN), 0);
}
