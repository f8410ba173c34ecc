//! Bookmarks: copies of the slot that keep its log, made by hand and on a rota.

use std::time::Duration;

use serde_json::Value;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    streamed::quick,
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

fn command(database: &Database<'_>, arguments: &[&str]) -> Finished {
    let url = database.url();
    walpost(&[arguments, &["--database-url", &url, "--slot", &database.name]].concat())
}

fn bookmark(database: &Database<'_>, arguments: &[&str]) -> Finished {
    command(database, &[&["bookmark"], arguments].concat())
}

fn check(database: &Database<'_>, arguments: &[&str]) -> Finished {
    command(database, &[&["check", "--json", "--brokers", &Kafka::shared().brokers()], arguments].concat())
}

fn json(finished: &Finished) -> Value {
    assert_eq!(finished.code, 0, "{finished:?}");
    serde_json::from_str(&finished.stdout).expect("it is JSON")
}

/// Names of the bookmarks, as the server has them, in the order of their positions.
fn names(database: &Database<'_>) -> Vec<String> {
    let slots = format!(
        "SELECT slot_name FROM pg_replication_slots WHERE database = '{0}' AND slot_name <> '{0}'
         ORDER BY confirmed_flush_lsn, slot_name",
        database.name
    );
    database.session().rows(&slots).into_iter().flatten().flatten().collect()
}

fn by_hand(version: u16) {
    let server = Postgres::shared(version);
    let database = server.database();
    let outbox = Outbox::create(&database);
    Kafka::shared().create_topic(&outbox.topic("order"), 1, &[]);
    let listed = |finished: &Finished| json(finished)["bookmarks"].as_array().expect("a list").clone();
    assert_eq!(listed(&bookmark(&database, &["list", "--json"])), [] as [Value; 0]);

    // Of a slot at rest, and of one in use: where it is confirmed at that moment.
    let at = |name: &str| -> u64 {
        let position = format!(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{}_bm_{name}'",
            database.name
        );
        database.session().get(&position)
    };
    assert_eq!(bookmark(&database, &["create", "first"]).code, 0);
    assert_eq!(at("first"), outbox.confirmed());
    let listen = format!("127.0.0.1:{}", crate::support::scratch::port());
    let running = Walpost::start(&quick(&outbox, &format!("[http]\nlisten = {listen:?}")));
    let walsender = running.streams(&outbox, WITHIN);
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    let before = outbox.confirmed();
    let made = bookmark(&database, &["create", "2nd_one"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!((before..=outbox.confirmed()).contains(&at("2nd_one")), "{made:?}");
    assert!(made.stdout.starts_with(&format!("bookmark {}_bm_2nd_one keeps the log from ", database.name)), "{made:?}");
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender), "the stream went on");

    let two = listed(&bookmark(&database, &["list", "--json"]));
    let text = |bookmark: &Value, key: &str| bookmark[key].as_str().map(str::to_owned);
    let named: Vec<_> = two.iter().filter_map(|one| text(one, "name")).collect();
    assert_eq!(named, ["first", "2nd_one"]);
    for one in &two {
        assert!(one["retained_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{one}");
        assert_eq!(text(one, "wal_status").as_deref(), Some("reserved"));
    }
    let plain = bookmark(&database, &["list"]);
    assert!(plain.stdout.lines().count() == 3 && plain.stdout.contains("2nd_one"), "{plain:?}");
    let status = json(&command(&database, &["status", "--json"]));
    assert_eq!(status["bookmarks"], Value::Array(two));
    let status = command(&database, &["status"]);
    assert!(status.stdout.contains("bookmarks") && status.stdout.contains("2nd_one: "), "{status:?}");
    let shown = eventually(WITHIN, "/status shows the bookmarks", || {
        let page: Value = serde_json::from_str(&running.http("/status")?.1).ok()?;
        let bookmarks = page["server"]["bookmarks"].as_array()?.clone();
        (bookmarks.len() == 2).then_some(bookmarks)
    });
    assert_eq!(text(&shown[0], "slot"), Some(format!("{}_bm_first", database.name)));
    assert!(shown[0]["retained_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{shown:?}");
    assert_eq!(running.terminate(WITHIN), 0);

    assert_eq!(bookmark(&database, &["drop", "first"]).code, 0);
    assert_eq!(names(&database), [format!("{}_bm_2nd_one", database.name)]);
    let missing = bookmark(&database, &["drop", "first"]);
    assert!(missing.code == 1 && missing.stderr.contains("there is no replication slot"), "{missing:?}");
}

#[test]
fn a_bookmark_stands_where_the_slot_is_confirmed_on_postgresql_14() {
    by_hand(14);
}

#[test]
fn a_bookmark_stands_where_the_slot_is_confirmed_on_postgresql_18() {
    by_hand(18);
}

#[test]
fn a_name_that_cannot_be_is_refused_by_its_rule() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    let long = "n".repeat(60);
    for (name, code, rule) in [
        ("Upper", 2, "a-z, 0-9 and _"),
        ("x'; DROP TABLE walpost.outbox; --", 2, "a-z, 0-9 and _"),
        ("", 2, "may not be empty"),
        ("bm_x", 2, "bm_"),
        ("a_bm_b", 2, "bm_"),
        (&long, 2, "63 bytes"),
        ("auto_mine", 2, "the rota"),
    ] {
        let refused = bookmark(&database, &["create", name]);
        assert!(refused.code == code && refused.stderr.contains(rule), "{name:?}: {refused:?}");
    }
    assert_eq!(names(&database), [] as [String; 0]);
    assert_eq!(bookmark(&database, &["create", "twice"]).code, 0);
    let twice = bookmark(&database, &["create", "twice"]);
    assert!(twice.code == 1 && twice.stderr.contains("exists already"), "{twice:?}");
    let url = database.url();
    let nobody = walpost(&["bookmark", "create", "x", "--database-url", &url, "--slot", "nobody_made_it"]);
    assert!(nobody.code == 1 && nobody.stderr.contains("no replication slot \"nobody_made_it\""), "{nobody:?}");
    // A slot whose name reads as a bookmark's.
    let slot = format!("{}_bm_twice", database.name);
    let confused = walpost(&["bookmark", "list", "--database-url", &url, "--slot", &slot]);
    assert!(confused.code == 2 && confused.stderr.contains("reads as bookmark twice of slot"), "{confused:?}");
}

#[test]
fn the_rota_keeps_so_many_and_survives_kills() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    Kafka::shared().create_topic(&outbox.topic("order"), 1, &[]);
    let configuration = quick(&outbox, "[bookmarks]\nevery = '1s'\nkeep = 3");
    assert_eq!(bookmark(&database, &["create", "mine"]).code, 0);
    let mut seen = std::collections::BTreeSet::new();
    let mut running = Walpost::start(&configuration);
    // The second instance makes none: it does not have the slot.
    let standby = Walpost::start(&configuration);
    for _ in 0..4 {
        let goal = seen.len() + 2;
        eventually(WITHIN, "the rota goes on", || {
            outbox.writer().one("order", "o-1");
            let now = names(&database);
            // One is made before the oldest goes.
            assert!(now.len() <= 3 + 1 + 1, "{now:?}");
            seen.extend(now.into_iter().filter(|name| name.contains("_bm_auto_")));
            (seen.len() >= goal).then_some(())
        });
        running.kill();
        running = Walpost::start(&configuration);
    }
    eventually(WITHIN, "three are left, and that of hand", || {
        outbox.writer().one("order", "o-1");
        let now = names(&database);
        (now.len() == 4 && now.contains(&format!("{}_bm_mine", database.name))).then_some(())
    });
    // Either may have had the slot.
    drop(standby);
    outbox.drained(WITHIN);
    assert_eq!(running.terminate(WITHIN), 0);
    let report = outbox.delivered(Kafka::shared(), &["order"], WITHIN);
    report.assert_complete();
    // At rest nothing is made, so that nothing is pushed out.
    let before = names(&database);
    let running = Walpost::start(&configuration);
    running.streams(&outbox, WITHIN);
    outbox.drained(WITHIN);
    assert_eq!(running.terminate(WITHIN), 0);
    assert!(names(&database).len() <= before.len() + 1);
}

#[test]
fn without_a_free_slot_the_stream_goes_on_and_says_so() {
    let server = Postgres::start(MAIN, &["max_replication_slots=2"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    Kafka::shared().create_topic(&outbox.topic("order"), 1, &[]);
    database.sql("SELECT pg_create_physical_replication_slot('another')");
    let running = Walpost::start(&quick(&outbox, "[bookmarks]\nevery = '1s'\nkeep = 1"));
    let walsender = running.streams(&outbox, WITHIN);
    running.says("max_replication_slots", WITHIN);
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender));
    let by_hand = bookmark(&database, &["create", "x"]);
    assert!(by_hand.code == 1 && by_hand.stderr.contains("max_replication_slots"), "{by_hand:?}");
    let check = check(&database, &["--bookmarks-every", "10m"]);
    assert!(check.stdout.contains("bookmarks.keep asks for 6 more"), "{check:?}");
    // With room it begins by itself; one that is invalidated goes.
    database.sql("SELECT pg_drop_replication_slot('another')");
    let made = eventually(WITHIN, "a bookmark is made", || {
        outbox.writer().one("order", "o-1");
        names(&database).into_iter().next()
    });
    // Its own make room for the next.
    eventually(WITHIN, "it makes room", || {
        outbox.writer().one("order", "o-1");
        let now = names(&database);
        (now.len() == 1 && now[0] != made).then_some(())
    });
    assert_eq!(running.terminate(WITHIN), 0);
    outbox.delivered(Kafka::shared(), &["order"], WITHIN).assert_complete();
}

#[test]
fn a_bookmark_follows_its_slot_to_standbys() {
    let database = Postgres::shared(18).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run(&format!(
        "SELECT pg_drop_replication_slot('{0}');
         SELECT pg_create_logical_replication_slot('{0}', 'pgoutput', false, false, true)",
        outbox.slot()
    ));
    assert_eq!(bookmark(&database, &["create", "kept"]).code, 0);
    let failover = format!("SELECT failover FROM pg_replication_slots WHERE slot_name = '{}_bm_kept'", database.name);
    assert_eq!(session.value(&failover).as_deref(), Some("t"));
}

#[test]
fn lost_bookmarks_are_findings_and_teardown_drops_them() {
    let server = Postgres::start(18, &["min_wal_size=32MB", "max_wal_size=32MB"]);
    let database = server.database();
    let url = database.url();
    let set_up = walpost(&["setup", "--yes", "--database-url", &url, "--slot", &database.name]);
    assert_eq!(set_up.code, 0, "{set_up:?}");
    for name in ["lost", "other"] {
        assert_eq!(bookmark(&database, &["create", name]).code, 0);
    }
    database.sql("CREATE TABLE noise AS SELECT repeat('x', 900) FROM generate_series(1, 60000)");
    database.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'");
    server.restart();
    database.sql("SELECT pg_switch_wal()");
    database.sql("CHECKPOINT");
    let listed = json(&bookmark(&database, &["list", "--json"]));
    assert_eq!(listed["bookmarks"][0]["lsn"], Value::Null, "{listed}");
    let check = check(&database, &[]);
    assert_eq!(check.code, 3);
    assert!(check.stdout.contains("bookmark lost") && check.stdout.contains("is lost (wal_removed)"), "{check:?}");
    assert!(check.stdout.contains("walpost bookmark drop lost"), "{check:?}");
    let teardown = walpost(&["teardown", "--yes", "--database-url", &url, "--slot", &database.name]);
    assert_eq!(teardown.code, 0, "{teardown:?}");
    assert!(teardown.stdout.contains(&format!("dropped: slot {}_bm_lost", database.name)), "{teardown:?}");
    let left: u32 = database.session().get("SELECT count(*) FROM pg_replication_slots");
    assert_eq!(left, 0);
}
