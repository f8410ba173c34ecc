//! The table of dead letters: what is written comes back byte for byte and once, in order, to those who may; and what
//! people see and mark from the command line.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, SystemTime},
};

use futures_util::TryStreamExt;
use serde_json::Value;
use walpost::{
    pipeline::{Lsn, Position},
    postgres::{
        conninfo::ConnInfo,
        dead_letter::{
            Access, DeadLetter, Desk, Known, ParkKey, ReasonClass, Replayed, Selection, State, Store, Stored,
        },
        sql,
    },
};

use crate::support::{
    eventually,
    letters::dead_letter,
    postgres::{Database, MAIN, Mode, Postgres, VERSIONS},
    walpost::walpost,
};

const WITHIN: Duration = Duration::from_secs(60);

const SYSTEM: &str = "7000000000000000001";

fn state(known: &Known, position: Position, event_id: &str) -> Option<State> {
    known.letter(position, event_id).map(|letter| letter.state)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async { tokio::time::timeout(WITHIN, future).await.expect("it ends in time") })
}

fn at(url: &str) -> ConnInfo {
    ConnInfo::parse(url, |_| None).expect("the URL is whole")
}

async fn store_of(url: &str, slot: &str, system: &str) -> Store {
    let client = sql::connect(&at(url)).await.expect("the server is up");
    Store::open(client, system, slot, "walpost", None).await.expect("the server is up")
}

/// Runs statements from within a runtime; a session has its own.
fn run(database: &Database<'_>, sql: &str) {
    thread::scope(|scope| scope.spawn(|| database.sql(sql)).join().expect("they run"));
}

/// A database with the table and nothing else, and its store; the slot has the database's name.
async fn with_table(database: &Database<'_>) -> Store {
    run(database, include_str!("../../sql/dead_letter.sql"));
    store_of(&database.url(), &database.name, SYSTEM).await
}

fn position(commit_lsn: u64, ordinal: u32) -> Position {
    Position { commit_lsn: Lsn(commit_lsn), ordinal }
}

/// An event of aggregate `order KEY` that is too large.
fn letter(key: &str, commit_lsn: u64, park_key: Option<ParkKey>) -> DeadLetter {
    let failed_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    DeadLetter {
        position: position(commit_lsn, 0),
        event_id: format!("{key}-{commit_lsn}"),
        xid: u32::MAX,
        source_table: "walpost.outbox".to_owned(),
        aggregate_type: Some("order".to_owned()),
        aggregate_id: Some(key.to_owned()),
        event_type: Some("OrderPlaced".to_owned()),
        topic: Some("outbox.event.order".to_owned()),
        partition: None,
        key: Some(key.as_bytes().to_vec()),
        payload: Some(b"{\"n\": 1}".to_vec()),
        headers: vec![("id".to_owned(), Some(key.as_bytes().to_vec()))],
        timestamp_ms: 1_700_000_000_001,
        class: ReasonClass::TooLarge,
        reason: "Kafka says no".to_owned(),
        attempts: 1,
        first_failed_at: failed_at,
        last_failed_at: failed_at + Duration::from_secs(1),
        later_delivered: false,
        park_key,
    }
}

fn parked(key: &str, commit_lsn: u64) -> DeadLetter {
    letter(key, commit_lsn, Some(key_of(key)))
}

fn key_of(key: &str) -> ParkKey {
    ParkKey::of_record("outbox.event.order", key.as_bytes())
}

async fn all(database: &Database<'_>) -> Vec<Stored> {
    let desk = Desk::connect(&at(&database.url()), &database.name, "walpost").await.expect("the server is up");
    let letters = desk.select(&Selection::default(), true).await.expect("the table is there");
    letters.try_collect().await.expect("they can be read")
}

async fn count(database: &Database<'_>, state: State) -> usize {
    all(database).await.iter().filter(|stored| stored.state == state).count()
}

fn event_ids(letters: &[Stored]) -> Vec<&str> {
    letters.iter().map(|stored| stored.letter.event_id.as_str()).collect()
}

/// Every byte value, and no pattern that compresses.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| byte()).collect()
}

fn hostile() -> Vec<DeadLetter> {
    let plain = |n| letter("k", n, None);
    vec![
        plain(1),
        DeadLetter {
            event_id: "it's \"quoted\"; drop table walpost.dead_letter; -- \\ $walpost$ {a,b}".to_owned(),
            source_table: "\"My \"\"App\"\"\".\"out'box\"".to_owned(),
            aggregate_type: Some("{\"NULL\",NULL}".to_owned()),
            reason: "line\nand \u{1b}[2J and \u{202e}".to_owned(),
            headers: vec![
                ("same".to_owned(), Some(b"\xff\xfe\0".to_vec())),
                ("same".to_owned(), Some(vec![])),
                ("null".to_owned(), None),
                (String::new(), Some(b"{\"\\\"".to_vec())),
            ],
            ..plain(2)
        },
        DeadLetter { key: Some(b"\xc3\x28\0".to_vec()), payload: Some(noise(1 << 20)), ..plain(3) },
        // Escapes that jsonb refuses, and nesting that a parser would die of: nothing here parses.
        DeadLetter { payload: Some(br#"{"nul": "\u0000", "half": "\ud800"}"#.to_vec()), ..plain(4) },
        DeadLetter { payload: Some([vec![b'['; 10_000], vec![b']'; 10_000]].concat()), ..plain(5) },
        DeadLetter { payload: None, key: None, headers: vec![], ..plain(6) },
        DeadLetter { payload: Some(vec![]), key: Some(vec![]), partition: Some(3), ..plain(7) },
        DeadLetter {
            event_id: String::new(),
            aggregate_type: None,
            aggregate_id: None,
            event_type: None,
            topic: None,
            class: ReasonClass::Unroutable,
            ..plain(8)
        },
        DeadLetter {
            event_id: "ü".repeat(35_000),
            aggregate_id: Some("本\0".repeat(10_000)),
            topic: Some("nul\0".to_owned()),
            reason: "no UTF-8: \u{fffd}".to_owned(),
            headers: vec![("nul\0本".to_owned(), Some(noise(70_000)))],
            ..plain(9)
        },
    ]
}

#[test]
fn letters_come_back_byte_for_byte_and_are_written_once() {
    let mut places: Vec<_> = VERSIONS.iter().map(|version| (*version, "UTF8")).collect();
    places.extend([(MAIN, "LATIN1"), (MAIN, "EUC_JP"), (MAIN, "SQL_ASCII")]);
    for (version, encoding) in places {
        let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        let holds_unicode = matches!(encoding, "UTF8" | "SQL_ASCII");
        let database = Postgres::shared(version).database_with(&options);
        block_on(async {
            let store = with_table(&database).await;
            let letters = hostile();
            assert_eq!(store.write(&letters).await.unwrap(), letters.len() as u64, "{version} {encoding}");
            assert_eq!(store.write(&letters).await.unwrap(), 0);
            let and_one_more = [&letters[..], &[letter("k", 10, None)]].concat();
            assert_eq!(store.write(&and_one_more).await.unwrap(), 1);
            assert_eq!(store.write(&[]).await.unwrap(), 0);

            let rows = all(&database).await;
            assert_eq!(rows.len(), and_one_more.len());
            for (row, wrote) in rows.iter().zip(&and_one_more) {
                let read = &row.letter;
                assert_eq!((&read.key, &read.payload), (&wrote.key, &wrote.payload));
                let values =
                    |letter: &DeadLetter| -> Vec<_> { letter.headers.iter().map(|(_, v)| v.clone()).collect() };
                assert_eq!(values(read), values(wrote));
                assert_eq!((&*row.slot, &*row.system_identifier, row.state), (&*database.name, SYSTEM, State::Dead));
                if holds_unicode && !format!("{wrote:?}").contains("\\0") {
                    assert_eq!(read, wrote, "{version} {encoding}");
                }
            }
            let mark = if holds_unicode { "\u{202e}" } else { "\\u{202e}" };
            assert_eq!(rows[1].letter.reason, format!("line\nand \u{1b}[2J and {mark}"));
            // Each is known as what it was written as, whatever became of its text.
            let known = store.known(Lsn(2)).await.unwrap();
            for wrote in &and_one_more {
                let expected = (wrote.position.commit_lsn >= Lsn(2)).then_some(State::Dead);
                assert_eq!(state(&known, wrote.position, &wrote.event_id), expected);
                assert_eq!(state(&known, wrote.position, "another"), None);
            }
        });
    }
}

#[test]
fn a_write_is_on_disk_before_it_returns_whatever_the_default() {
    let server = Postgres::start(MAIN, &["synchronous_commit=off"]);
    let database = server.database();
    let store = block_on(with_table(&database));
    drop(store);
    // Only a commit that is meant to last waits for a standby, and there is none.
    server.sql("alter system set synchronous_standby_names = 'nobody'");
    server.reload();
    let url = database.url();
    let slot = &database.name;
    thread::scope(|scope| {
        let write = scope.spawn(|| {
            block_on(async {
                let store = store_of(&url, slot, SYSTEM).await;
                store.write(&[letter("k", 1, None)]).await.unwrap()
            })
        });
        let session = server.session("postgres");
        let waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep' and application_name <> 'e2e'";
        eventually(WITHIN, "the commit waits", || (session.get::<u32>(waits) == 1).then_some(()));
        session.run("set synchronous_commit = local");
        session.run("alter system reset synchronous_standby_names");
        server.reload();
        assert_eq!(write.join().expect("it ends"), 1);
    });
    server.crash();
    server.start_again();
    assert_eq!(database.session().value("select count(*) from walpost.dead_letter").unwrap(), "1");
    drop(database);
    server.stop(Mode::Fast, WITHIN);
}

#[test]
fn a_failed_write_leaves_nothing_of_its_batch_and_can_be_made_again() {
    let database = Postgres::shared(MAIN).database();
    block_on(async {
        let store = with_table(&database).await;
        run(&database, "alter table walpost.dead_letter add constraint no check (event_id <> 'k-2')");
        let batch = [letter("k", 1, None), letter("k", 2, None), letter("k", 3, None)];
        let error = store.write(&batch).await.unwrap_err();
        assert_eq!(error.sqlstate(), Some("23514"), "{error}");
        assert!(all(&database).await.is_empty());
        run(&database, "alter table walpost.dead_letter drop constraint no");
        assert_eq!(store.write(&batch).await.unwrap(), 3);
        // The table is gone: the same, and it is told.
        run(&database, "drop table walpost.dead_letter cascade");
        assert_eq!(store.write(&batch).await.unwrap_err().sqlstate(), Some("42P01"));
        assert_eq!(store.access().await.unwrap(), None);
        run(&database, include_str!("../../sql/dead_letter.sql"));
        assert!(store.access().await.unwrap().is_some_and(Access::streams));
        assert_eq!(store.write(&batch).await.unwrap(), 3);
    });
}

#[test]
fn a_parked_aggregate_is_handed_back_in_order() {
    let database = Postgres::shared(MAIN).database();
    block_on(async {
        let store = with_table(&database).await;
        let alone = letter("c", 25, None);
        // Not in order: a refusal can come late.
        let letters = [parked("a", 30), parked("a", 10), parked("b", 5), parked("b", 40), parked("a", 20), alone];
        store.write(&letters).await.unwrap();
        let keys = store.parked().await.unwrap();
        assert_eq!(keys, HashMap::from([(key_of("a"), 3), (key_of("b"), 2)]));
        assert!(store.requested(100, usize::MAX).await.unwrap().is_empty(), "nobody asked");

        // Asked for one, all of its key go; what is parked meanwhile goes too, behind them.
        let desk = Desk::connect(&at(&database.url()), &database.name, "walpost").await.unwrap();
        let stored = all(&database).await;
        let of = |event: &str| stored.iter().find(|stored| stored.letter.event_id == event).expect("written");
        let id = |event: &str| of(event).id;
        let sent = |event: &str| of(event).replayed();
        assert_eq!(desk.request_replay(&[id("a-20")]).await.unwrap(), 1);
        assert_eq!(desk.request_replay(&[id("a-20")]).await.unwrap(), 0, "once is enough");
        store.write(&[parked("a", 50)]).await.unwrap();
        let next = store.requested(100, usize::MAX).await.unwrap();
        assert_eq!(event_ids(&next), ["a-10", "a-20", "a-30", "a-50"]);
        assert_eq!(next[0].letter, letters[1]);
        assert_eq!(event_ids(&store.requested(2, usize::MAX).await.unwrap()), ["a-10", "a-20"]);
        assert_eq!(event_ids(&store.requested(100, 9).await.unwrap()), ["a-10", "a-20"], "payloads of eight bytes");
        assert_eq!(event_ids(&store.requested(100, 1).await.unwrap()), ["a-10"]);

        let elsewhere = Replayed { position: position(11, 0), ..sent("a-10") };
        assert_eq!(store.settle(&[elsewhere]).await.unwrap().0, 0);
        assert_eq!(count(&database, State::Replayed).await, 0, "the row of another table");
        assert!(store.settle(&[sent("a-10"), sent("a-20")]).await.unwrap().1.is_empty(), "two more are parked");
        let last: Vec<_> = store.requested(100, usize::MAX).await.unwrap().iter().map(Stored::replayed).collect();
        store.write(&[parked("a", 60)]).await.unwrap();
        assert!(store.settle(&last).await.unwrap().1.is_empty(), "one came in between");
        // The rows that were asked for are gone, and the request has passed on to it.
        let rest = store.requested(100, usize::MAX).await.unwrap();
        assert_eq!(event_ids(&rest), ["a-60"]);
        assert_eq!(
            store.settle(&[rest[0].replayed()]).await.unwrap(),
            (1, vec![key_of("a")]),
            "the stream has it again"
        );
        assert_eq!(store.settle(&[rest[0].replayed()]).await.unwrap(), (0, vec![]), "it was settled before");
        assert_eq!(store.parked().await.unwrap(), HashMap::from([(key_of("b"), 2)]));
        assert_eq!((count(&database, State::Parked).await, count(&database, State::Replayed).await), (2, 5));

        // One that is dead alone goes alone. Discarding the last of a key hands it back too.
        desk.request_replay(&[id("c-25")]).await.unwrap();
        assert_eq!(event_ids(&store.requested(100, usize::MAX).await.unwrap()), ["c-25"]);
        assert!(store.settle(&[sent("c-25")]).await.unwrap().1.is_empty());
        assert_eq!(desk.discard(&[id("b-5"), id("b-40"), id("c-25")]).await.unwrap(), 2, "what is replayed stays so");
        assert!(store.parked().await.unwrap().is_empty());

        // Whatever became of them, none of it is sent again by the stream.
        let known = store.known(Lsn(20)).await.unwrap();
        assert_eq!(state(&known, position(20, 0), "a-20"), Some(State::Replayed));
        assert_eq!(state(&known, position(40, 0), "b-40"), Some(State::Discarded));
        assert_eq!(state(&known, position(10, 0), "a-10"), None, "it is confirmed and does not come again");
    });
}

#[test]
fn a_letter_that_fails_again_waits_again_with_all_behind_it() {
    let database = Postgres::shared(MAIN).database();
    block_on(async {
        let store = with_table(&database).await;
        store.write(&[parked("a", 1), parked("a", 2), parked("b", 3)]).await.unwrap();
        let desk = Desk::connect(&at(&database.url()), &database.name, "walpost").await.unwrap();
        let ids: Vec<_> = all(&database).await.iter().map(|stored| stored.id).collect();
        assert_eq!(desk.request_replay(&ids).await.unwrap(), 3);
        store.refuse(ids[0], ReasonClass::Rejected, "still no\0").await.unwrap();
        assert_eq!(event_ids(&store.requested(9, usize::MAX).await.unwrap()), ["b-3"]);
        let first = &all(&database).await[0];
        assert_eq!((first.letter.attempts, first.letter.class), (2, ReasonClass::Rejected));
        assert_eq!((&*first.letter.reason, first.state), ("still no\u{fffd}", State::Parked));
        assert!(first.letter.last_failed_at > first.letter.first_failed_at);
        assert_eq!(store.parked().await.unwrap()[&key_of("a")], 2);
    });
}

#[test]
fn slots_do_not_mix_and_what_another_system_parked_is_still_owed() {
    let database = Postgres::shared(MAIN).database();
    block_on(async {
        let before = with_table(&database).await;
        before.write(&[parked("a", 900)]).await.unwrap();
        // As after pg_upgrade: the log begins anew, and the slot keeps its name.
        let store = store_of(&database.url(), &database.name, "8").await;
        assert!(store.known(Lsn(0)).await.unwrap().is_empty(), "its positions say nothing here");
        store.write(&[parked("a", 900), parked("a", 10)]).await.unwrap();
        assert_eq!(store.parked().await.unwrap()[&key_of("a")], 3);
        run(&database, "update walpost.dead_letter set replay_requested_at = now()");
        let order: Vec<_> = store.requested(9, usize::MAX).await.unwrap();
        let order: Vec<_> = order.iter().map(|stored| (&*stored.system_identifier, &*stored.letter.event_id)).collect();
        assert_eq!(order, [(SYSTEM, "a-900"), ("8", "a-10"), ("8", "a-900")], "the older system's come first");

        let other = store_of(&database.url(), "another", SYSTEM).await;
        assert!(other.parked().await.unwrap().is_empty() && other.requested(9, 9).await.unwrap().is_empty());
        let sent: Vec<_> = all(&database).await.iter().map(Stored::replayed).collect();
        assert!(other.settle(&sent).await.unwrap().1.is_empty());
        assert_eq!(count(&database, State::Parked).await, 3);
    });
}

#[test]
fn each_role_may_do_its_part_and_no_more() {
    // Roles belong to the whole server.
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let url = database.url();
    let setup = || walpost(&["setup", "--database-url", &url, "--slot", &database.name]);
    assert_eq!(setup().code, 0);
    // A set-up of before there were dead letters.
    database.sql("drop table walpost.dead_letter cascade");
    let again = setup();
    assert!(again.code == 0 && again.stdout.contains("done: create table walpost.dead_letter"), "{again:?}");
    assert!(setup().stdout.contains("everything exists already"));
    database.sql("alter role walpost_stream login; alter role walpost_operate login; alter role walpost_enqueue login");
    let as_role = |role: &str| format!("postgres://{role}@127.0.0.1:{}/{}", server.port(), database.name);
    block_on(async {
        let store = store_of(&as_role("walpost_stream"), &database.name, SYSTEM).await;
        assert!(store.access().await.unwrap().is_some_and(Access::streams));
        store.write(&[parked("a", 1), parked("a", 2)]).await.unwrap();
        let known = store.known(Lsn(0)).await.unwrap();
        assert_eq!(state(&known, position(1, 0), "a-1"), Some(State::Parked));

        let desk = Desk::connect(&at(&as_role("walpost_operate")), &database.name, "walpost").await.unwrap();
        let access = desk.access().await.unwrap().unwrap();
        assert!(access.select && access.mark && !access.write);
        let ids: Vec<_> = all(&database).await.iter().map(|stored| stored.id).collect();
        assert_eq!(desk.request_replay(&ids).await.unwrap(), 2);
        assert_eq!(desk.discard(&ids[1..]).await.unwrap(), 1);
        let asked: Vec<_> = store.requested(9, 99).await.unwrap().iter().map(Stored::replayed).collect();
        assert_eq!(store.settle(&asked).await.unwrap().1, [key_of("a")]);
        store.write(&[letter("c", 3, None)]).await.unwrap();
        store.refuse(ids[0], ReasonClass::Rejected, "no").await.unwrap();

        let desk = Desk::connect(&at(&as_role("walpost_enqueue")), &database.name, "walpost").await.unwrap();
        let access = desk.access().await.unwrap().unwrap();
        assert!(!access.select && !access.mark && !access.write);
    });
    for (role, forbidden) in [
        ("walpost_stream", "delete from walpost.dead_letter"),
        ("walpost_operate", "delete from walpost.dead_letter"),
        ("walpost_operate", "update walpost.dead_letter set payload = null"),
        ("walpost_operate", "insert into walpost.dead_letter default values"),
        ("walpost_enqueue", "select event_id from walpost.dead_letter"),
    ] {
        let session = database.session();
        session.run(&format!("set role {role}"));
        let refused = session.try_run(forbidden).expect_err(forbidden);
        assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("42501"), "{role}: {forbidden}");
    }
    let refused = walpost(&["dead-letter", "list", "--database-url", &as_role("walpost_enqueue"), "--slot", "s"]);
    assert!(refused.code == 1 && refused.stderr.contains("may not read walpost.dead_letter"), "{refused:?}");

    let kept = walpost(&["teardown", "--yes", "--database-url", &url, "--slot", &database.name]);
    assert!(kept.code == 0 && kept.stdout.contains("keep table walpost.dead_letter: it holds rows"), "{kept:?}");
    assert_eq!(database.session().value("select count(*) from walpost.dead_letter").unwrap(), "3");
    let gone = walpost(&["teardown", "--yes", "--drop-data", "--database-url", &url, "--slot", &database.name]);
    assert!(gone.code == 0 && gone.stdout.contains("dropped: table walpost.dead_letter"), "{gone:?}");
    assert_eq!(database.session().value("select to_regnamespace('walpost')::text"), None);
    drop(database);
    server.stop(Mode::Fast, WITHIN);
}

/// The answer to `--json`, a value a line.
fn json(database: &Database<'_>, arguments: &[&str]) -> Vec<Value> {
    let finished = dead_letter(database, &[arguments, &["--json"]].concat());
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(finished.stdout.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{finished:?}");
    finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn listed(database: &Database<'_>, filter: &[&str]) -> Vec<String> {
    let letters = json(database, &[&["list"], filter].concat());
    letters.iter().map(|letter| letter["event_id"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn letters_are_found_by_id_aggregate_reason_state_and_time() {
    let database = Postgres::shared(MAIN).database();
    let none = dead_letter(&database, &["list"]);
    assert!(none.code == 1 && none.stderr.contains("there is no table walpost.dead_letter; walpost setup"), "{none:?}");
    block_on(async {
        let store = with_table(&database).await;
        let late = SystemTime::now() - Duration::from_secs(60);
        let behind = DeadLetter { class: ReasonClass::Parked, first_failed_at: late, ..parked("a", 2) };
        store.write(&[letter("it's", 3, None), behind, parked("a", 1)]).await.unwrap();
    });
    assert_eq!(listed(&database, &[]), ["a-1", "a-2", "it's-3"]);
    assert_eq!(listed(&database, &["--id", "a-2", "--id", "it's-3"]), ["a-2", "it's-3"]);
    assert_eq!(listed(&database, &["--aggregate", "it's"]), ["it's-3"]);
    assert_eq!(listed(&database, &["--reason", "too_large", "--aggregate", "a"]), ["a-1"]);
    assert_eq!(listed(&database, &["--state", "dead"]), ["it's-3"]);
    assert_eq!(listed(&database, &["--state", "replayed"]), [""; 0]);
    assert_eq!(listed(&database, &["--since", "1h"]), ["a-2"]);
    assert_eq!(listed(&database, &["--until", "1h"]), ["a-1", "it's-3"]);
    assert_eq!(listed(&database, &["--since", "2023-11-14T22:13:20Z", "--until", "2023-11-14T22:13:21Z"]).len(), 2);
    let text = dead_letter(&database, &["list", "--aggregate", "a"]).stdout;
    let line = "2023-11-14T22:13:20.123Z parked    too_large     event a-1 of order a to outbox.event.order\n";
    assert!(text.starts_with(line) && text.ends_with("2 dead letters\n"), "{text}");
    assert_eq!(dead_letter(&database, &["list", "--id", "x"]).stdout, "no dead letter matches\n");

    for usage in [
        &["list", "--state", "lost"][..],
        &["list", "--since", "yesterday"],
        &["show"],
        &["replay"],
        &["discard", "--yes"],
    ] {
        assert_eq!(dead_letter(&database, usage).code, 2, "{usage:?}");
    }
    let nothing = dead_letter(&database, &["show", "--id", "x"]);
    assert!(nothing.code == 1 && nothing.stderr.contains("no dead letter matches"), "{nothing:?}");
}

#[test]
fn a_letter_is_shown_whole_and_drives_no_terminal() {
    let database = Postgres::shared(MAIN).database();
    block_on(async {
        let store = with_table(&database).await;
        store.write(&hostile()).await.unwrap();
    });
    let one = |n: usize| json(&database, &["show", "--all"]).swap_remove(n);
    assert_eq!(one(1)["headers"][0]["value_base64"], "//4A");
    assert_eq!(one(1)["headers"][1], serde_json::json!({ "name": "same", "value": "" }));
    assert_eq!(one(3)["payload"], r#"{"nul": "\u0000", "half": "\ud800"}"#);
    assert_eq!(one(5)["payload"], Value::Null);
    assert_eq!(one(0)["position"], "0000000000000001-00000000");
    let text = dead_letter(&database, &["show", "--all"]).stdout;
    assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'));
    for part in [
        "event k-1\n  state       dead\n  reason      too_large: Kafka says no\n",
        "  attempts    1, 2023-11-14T22:13:20.123Z to 2023-11-14T22:13:21.123Z\n",
        "  position    0000000000000001-00000000, transaction 4294967295\n",
        "  header      id: k\n  payload     8 bytes\n{\"n\": 1}\n",
        "  header      same: \\xfffe00\n",
        "line\\nand \\u{1b}[2J and \\u{202e}\n",
        "  key         \\xc32800\n",
        "  payload     null (tombstone)\n",
        "event without id\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {}", text.chars().take(5000).collect::<String>());
    }
}

#[test]
fn a_replay_marks_all_that_is_parked_together_and_a_discard_what_is_meant() {
    let database = Postgres::shared(MAIN).database();
    let states = || -> Vec<String> {
        let rows = "select event_id || ' ' || state || case when replay_requested_at is null then '' else ' asked' end
                    from walpost.dead_letter order by position";
        database.session().rows(rows).into_iter().flatten().flatten().collect()
    };
    block_on(async {
        let store = with_table(&database).await;
        let late = DeadLetter { later_delivered: true, ..letter("c", 5, None) };
        let lost = DeadLetter { topic: None, class: ReasonClass::Unroutable, ..letter("d", 6, None) };
        store.write(&[parked("a", 1), parked("b", 2), parked("a", 3), parked("a", 4), late, lost]).await.unwrap();
    });
    let untouched = ["a-1 parked", "b-2 parked", "a-3 parked", "a-4 parked", "c-5 dead", "d-6 dead"];

    let dry = dead_letter(&database, &["replay", "--id", "a-3", "--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("would be marked for replay: 3 events, 2 of them"), "{dry:?}");
    assert_eq!(dry.stdout.matches("event a-").count(), 3, "{dry:?}");
    assert_eq!(states(), untouched);
    let dry = dead_letter(&database, &["discard", "--all", "--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("would be discarded: 6 events"), "{dry:?}");
    let unasked = dead_letter(&database, &["discard", "--id", "a-1"]);
    assert!(unasked.code == 1 && unasked.stderr.contains("--yes"), "{unasked:?}");
    assert_eq!(states(), untouched);

    let discarded = dead_letter(&database, &["discard", "--id", "a-1", "--yes"]);
    assert_eq!(discarded.stdout, "discarded: 1 event\nstill parked behind: 2 events; replay or discard them too\n");
    let answer = &json(&database, &["replay", "--aggregate", "a"])[0];
    assert_eq!((&answer["marked"], &answer["parked_with_them"]), (&2.into(), &0.into()), "{answer}");
    assert_eq!(answer["events"][0]["event_id"], "a-3");
    let asked = ["a-1 discarded", "b-2 parked", "a-3 parked asked", "a-4 parked asked", "c-5 dead", "d-6 dead"];
    assert_eq!(states(), asked);
    let again = dead_letter(&database, &["replay", "--id", "a-4"]);
    assert!(again.code == 0 && again.stdout.contains("marked before already: 2 events"), "{again:?}");

    let rest = dead_letter(&database, &["replay", "--all"]);
    assert_eq!(rest.code, 0, "{rest:?}");
    for part in ["out of order: 1 event", "passed over: 1 event without a topic", "the running walpost sends them"] {
        assert!(rest.stdout.contains(part), "{part} is not in {rest:?}");
    }
    assert_eq!(states()[4..], ["c-5 dead asked", "d-6 dead"]);
    let lost = dead_letter(&database, &["replay", "--reason", "unroutable"]);
    assert!(lost.code == 1 && lost.stdout.contains("passed over: 1 event"), "{lost:?}");
    let settled = dead_letter(&database, &["replay", "--id", "a-1"]);
    assert!(settled.code == 1 && settled.stderr.contains("no dead or parked letter matches"), "{settled:?}");
    let settled = dead_letter(&database, &["discard", "--state", "discarded", "--yes"]);
    assert!(settled.code == 1 && settled.stderr.contains("is settled"), "{settled:?}");
}
