//! The inbox: an event is claimed once, whoever asks at the same time and however the claims end.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread::{self, Scope},
    time::Duration,
};

use tokio_postgres::{Client, NoTls};
use walpost::inbox::{Inbox, InboxError, Stats};

use crate::support::{
    eventually, long,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    session::Session,
    walpost::{Finished, walpost},
};

const WITHIN: Duration = Duration::from_secs(30);

/// The role belongs to the whole server, which tests share: one installation at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the short form, the ends of the supported range.
fn versions() -> &'static [u16] {
    if long() { &VERSIONS } else { &[14, 18] }
}

/// A database with an inbox and no more, by psql's way.
fn inbox(server: &Postgres) -> Database<'_> {
    let _alone = alone();
    let database = server.database();
    database.sql(include_str!("../../sql/inbox.sql"));
    database
}

fn setup(command: &str, url: &str, more: &[&str]) -> Finished {
    walpost(&[&[command, "--inbox", "--database-url", url], more].concat())
}

fn claim(session: &Session, id: &str) -> bool {
    session.value(&format!("select walpost.inbox_claim('billing', '{id}')")).expect("it is never NULL") == "t"
}

fn advance(session: &Session, position: &str) -> bool {
    session.value(&format!("select walpost.inbox_advance('search', 'o-1', '{position}')")).expect("it is never NULL")
        == "t"
}

/// Claimed and suppressed.
fn stats(session: &Session, consumer: &str) -> (u64, u64) {
    let of = |column| {
        session
            .get(&format!("select coalesce(sum({column}), 0) from walpost.inbox_stats where consumer = '{consumer}'"))
    };
    (of("claimed"), of("suppressed"))
}

/// Asks in another session, which waits for a lock by the time this returns.
fn waiting<'a, T: Send + 'a>(
    scope: &'a Scope<'a, '_>,
    database: &'a Database<'_>,
    ask: impl FnOnce(&Session) -> T + Send + 'a,
) -> Receiver<T> {
    let (answer, answered) = channel();
    scope.spawn(move || {
        let session = database.session();
        session.run("set application_name = 'the second'");
        answer.send(ask(&session)).expect("the test waits for it");
    });
    let waits = "select exists (select from pg_stat_activity where application_name = 'the second' and datname = current_database()
                                and wait_event_type = 'Lock')";
    let session = database.session();
    eventually(WITHIN, "the second one waits", || (session.value(waits).as_deref() == Some("t")).then_some(()));
    answered
}

#[test]
fn the_second_of_two_claims_waits_for_what_becomes_of_the_first() {
    for &version in versions() {
        let database = inbox(Postgres::shared(version));
        let first = database.session();
        for (end, second) in [("rollback", true), ("commit", false)] {
            first.run("begin");
            assert!(claim(&first, end));
            thread::scope(|scope| {
                let answered = waiting(scope, &database, |session| claim(session, end));
                assert!(claim(&first, "an event of another id waits for nobody"));
                first.run(end);
                assert_eq!(answered.recv_timeout(WITHIN), Ok(second), "after {end}");
            });
        }
        // Once by each of the two stories, and the other event by the one that was committed.
        assert_eq!(stats(&first, "billing"), (3, 1));
    }
}

#[test]
fn stricter_levels_fail_to_be_retried_and_never_claim_twice() {
    for &version in versions() {
        let database = inbox(Postgres::shared(version));
        let (first, second) = (database.session(), database.session());
        for level in ["repeatable read", "serializable"] {
            // Committed since this transaction's snapshot: it cannot see the claim, and may not act as if it were not there.
            second.run(&format!("begin isolation level {level}; select count(*) from walpost.inbox"));
            assert!(claim(&first, level));
            let error = second.try_run(&format!("select walpost.inbox_claim('billing', '{level}')")).unwrap_err();
            assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error:?}");
            second.run(&format!("rollback; begin isolation level {level}"));
            assert!(!claim(&second, level), "retried, it sees it");

            // Duplicates do not make each other fail.
            let third = database.session();
            third.run(&format!("begin isolation level {level}"));
            assert!(!claim(&third, level) && !claim(&third, level));
            second.run("commit");
            third.run("commit");
        }
        assert_eq!(stats(&first, "billing"), (2, 6));
    }
}

#[test]
fn many_claim_the_same_events_and_each_has_its_effect_once() {
    const EVENTS: u32 = 60;
    let database = inbox(Postgres::shared(MAIN));
    database.sql("create table effect (id text not null)");
    for level in ["read committed", "repeatable read", "serializable"] {
        thread::scope(|scope| {
            for worker in 0..6 {
                let database = &database;
                scope.spawn(move || {
                    let session = database.session();
                    for n in 0..EVENTS {
                        // Each in another order, some rolled back, until all have been told.
                        let id = format!("{level} {}", (n * 7 + worker * 11) % EVENTS);
                        let mut tries = 0;
                        loop {
                            tries += 1;
                            assert!(tries < 100, "{id} is never told");
                            let told = session.try_run(&format!(
                                "begin isolation level {level};
                                 insert into effect select '{id}' where walpost.inbox_claim('billing', '{id}')"
                            ));
                            let gives_up = tries == 1 && (n + worker) % 5 == 0;
                            match told {
                                Ok(()) if gives_up => session.run("rollback"),
                                Ok(()) if session.try_run("commit").is_ok() => break,
                                Ok(()) => session.run("rollback"),
                                Err(error) => {
                                    assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error:?}");
                                    session.run("rollback");
                                }
                            }
                        }
                    }
                });
            }
        });
    }
    let session = database.session();
    let effects = "select count(*) || ' ' || count(distinct id) from effect";
    assert_eq!(session.value(effects).unwrap(), format!("{} {}", EVENTS * 3, EVENTS * 3));
    assert_eq!(stats(&session, "billing"), (u64::from(EVENTS) * 3, u64::from(EVENTS) * 3 * 5));
}

#[test]
fn suppressed_duplicates_wait_for_nobody() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    assert!(claim(&session, "a") && claim(&session, "b"));
    let long = database.session();
    long.run("begin");
    assert!(!claim(&long, "a"));
    // While that transaction stays open, nobody else is held up: by no counter, and by no prune.
    session.run("set lock_timeout = '2s'");
    assert!(!claim(&session, "a") && !claim(&session, "b") && claim(&session, "c"));
    session.run("select walpost.inbox_prune('billing', '0', force => true)");
    assert!(claim(&session, "c"), "what is pruned is forgotten");
    long.run("rollback");
    assert_eq!(
        stats(&session, "billing"),
        (4, 2),
        "a duplicate that was rolled back is none; claims that are pruned were claims"
    );
}

#[test]
fn an_id_that_stands_twice_in_one_transaction_is_true_once() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    for level in ["read committed", "serializable"] {
        session.run(&format!("begin isolation level {level}"));
        assert!(claim(&session, level) && !claim(&session, level));
        let told =
            "select string_agg(walpost.inbox_claim('batch', id)::text, ' ') from unnest('{1,2,1,3,2}'::text[]) id";
        assert_eq!(session.value(told).unwrap(), "true true false true false");
        session.run("rollback");
    }
    // A savepoint gives back what was claimed after it, and nothing else.
    session.run("begin");
    assert!(claim(&session, "x"));
    session.run("savepoint s");
    assert!(claim(&session, "y"));
    session.run("rollback to s");
    assert!(!claim(&session, "x") && claim(&session, "y"));
    session.run("commit");
    assert_eq!(stats(&session, "billing"), (2, 1));
    assert_eq!(stats(&session, "batch"), (0, 0));
}

#[test]
fn what_is_no_id_and_no_position_is_refused() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    let long = "x".repeat(1_025);
    for (call, code) in [
        ("inbox_claim('billing', '')".to_owned(), "23514"),
        (format!("inbox_claim('billing', '{long}')"), "23514"),
        ("inbox_claim('', 'a')".to_owned(), "23514"),
        ("inbox_claim('billing', null)".to_owned(), "23502"),
        ("inbox_claim(null, 'a')".to_owned(), "23502"),
        ("inbox_advance('search', 'o-1', '000000000000000a-00000000')".to_owned(), "23514"),
        ("inbox_advance('search', 'o-1', '1-1')".to_owned(), "23514"),
        ("inbox_advance('search', 'o-1', null)".to_owned(), "23502"),
        ("inbox_advance('search', '', '0000000000000001-00000000')".to_owned(), "23514"),
        ("inbox_retention('billing', '0')".to_owned(), "23514"),
        ("inbox_retention('billing', null)".to_owned(), "22004"),
        ("inbox_prune('billing', null)".to_owned(), "22023"),
        ("inbox_prune('billing', '-1 day')".to_owned(), "22023"),
        ("inbox_prune('billing', '1 day', rows_max => 0)".to_owned(), "22023"),
    ] {
        let error = session.try_run(&format!("select walpost.{call}")).expect_err(&call);
        assert_eq!(error.code().map(|code| code.code()), Some(code), "{call}: {error:?}");
    }
    assert_eq!(stats(&session, "billing"), (0, 0));
}

#[test]
fn prune_keeps_what_the_topic_may_hand_out_again() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    session.run(
        "select walpost.inbox_claim('billing', n::text) from generate_series(1, 250) n;
         select walpost.inbox_claim('billing', '7'), walpost.inbox_claim('other', '7');
         update walpost.inbox set processed_at = now() - interval '9 days' where event_id::int <= 200;
         update walpost.inbox set processed_at = now() - interval '10 days' where event_id = '200'",
    );
    let refused = |sql: &str| {
        let error = session.try_run(sql).expect_err(sql);
        let said = error.as_db_error().expect("the server says it").clone();
        assert_eq!(said.code().code(), "55000", "{said:?}");
        (said.message().to_owned(), said.hint().expect("it says what to do").to_owned())
    };
    let (what, hint) = refused("select walpost.inbox_prune('billing', '30 days')");
    assert!(what.contains("'billing'") && what.contains("not stated"), "{what}");
    assert!(hint.contains("select walpost.inbox_retention('billing'") && hint.contains("force => true"), "{hint}");

    session.run("select walpost.inbox_retention('billing', '8 days')");
    let (what, hint) = refused("select walpost.inbox_prune('billing', '7 days 23 hours')");
    assert!(what.contains("8 days, longer than 7 days 23:00:00"), "{what}");
    assert!(hint.contains("force => true"), "{hint}");
    refused("select walpost.inbox_prune('billing', '191 hours')");

    let prune = |arguments: &str| session.get::<u64>(&format!("select walpost.inbox_prune('billing', {arguments})"));
    assert_eq!(prune("'192 hours', rows_max => 1"), 1, "the duplicate");
    assert_eq!(prune("'192 hours', rows_max => 1"), 1);
    assert!(claim(&session, "200"), "the oldest went first");
    session.run(
        "do 'begin while walpost.inbox_prune(''billing'', ''8 days'', rows_max => 60) > 0 loop commit; end loop; end'",
    );
    assert_eq!(session.value("select count(*) from walpost.inbox where consumer = 'billing'").unwrap(), "51");
    assert_eq!(prune("'0'::interval, force => true"), 51);
    assert_eq!(stats(&session, "billing"), (251, 1), "what was pruned still counts");
    assert_eq!(
        session.value("select suppression_rate from walpost.inbox_stats where consumer = 'billing'").unwrap(),
        "0.003968"
    );
    assert_eq!(session.value("select count(*) from walpost.inbox_suppressed").unwrap(), "0", "and takes no room");
    assert_eq!(stats(&session, "other"), (1, 0));

    // Two at once share the work.
    session.run("select walpost.inbox_claim('billing', n::text) from generate_series(1, 20) n");
    session.run("begin");
    assert_eq!(prune("'0'::interval, true, 15"), 15);
    thread::scope(|scope| {
        let more = waiting(scope, &database, |other| {
            other.get::<u64>("select walpost.inbox_prune('billing', '0'::interval, true, 15)")
        });
        session.run("commit");
        assert_eq!(more.recv_timeout(WITHIN), Ok(5));
    });
    assert_eq!(stats(&session, "billing"), (271, 1));
}

#[test]
fn duplicates_are_added_up_whether_or_not_claims_may_go() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    session.run("select walpost.inbox_claim('billing', (n % 3)::text) from generate_series(0, 252) n");
    let rows = || session.get::<u64>("select count(*) from walpost.inbox_suppressed");
    let prune_all =
        "do 'begin while walpost.inbox_prune(''billing'', ''8 days'', rows_max => 60) > 0 loop commit; end loop; end'";
    // Four full batches, then a refusal that undoes what it began.
    let refused = session.try_run(prune_all).expect_err("no retention is stated");
    assert_eq!(refused.code().map(|code| code.code()), Some("55000"), "{refused:?}");
    assert_eq!((rows(), stats(&session, "billing")), (10, (3, 250)));

    session.run("select walpost.inbox_claim('billing', '0') from generate_series(1, 170) n");
    session.run("select walpost.inbox_retention('billing', '8 days')");
    let prune = || session.get::<u64>("select walpost.inbox_prune('billing', '8 days', rows_max => 60)");
    assert_eq!((prune(), rows()), (60, 120));
    session.run("update walpost.inbox set processed_at = now() - interval '9 days' where event_id = '2'");
    session.run(prune_all);
    assert_eq!((prune(), rows(), stats(&session, "billing")), (0, 0, (3, 420)));
    assert!(claim(&session, "2") && !claim(&session, "1"));
    assert_eq!((prune(), rows()), (0, 0), "a duplicate that just came does not make a loop go on");
}

#[test]
fn a_position_is_newer_once() {
    for &version in versions() {
        let database = inbox(Postgres::shared(version));
        let session = database.session();
        let [a, b, c, d] = [
            "0000000000000009-FFFFFFFF",
            "000000000000000A-00000000",
            "000000000000000A-00000001",
            "00000001000000000-0000000",
        ];
        assert!(advance(&session, b), "the first");
        assert!(!advance(&session, b) && !advance(&session, a) && advance(&session, c) && !advance(&session, b));
        assert!(session.try_run(&format!("select walpost.inbox_advance('search', 'o-1', '{d}')")).is_err());
        assert_eq!(
            session.value("select walpost.inbox_advance('search', 'o-2', '0000000000000001-00000000')").unwrap(),
            "t"
        );

        let newest = "00000000000000FF-00000000";
        for (end, second) in [("rollback", true), ("commit", false)] {
            session.run("delete from walpost.inbox_position");
            session.run("begin");
            assert!(advance(&session, newest));
            thread::scope(|scope| {
                // Older than what the first may commit, but newer than all that is committed.
                let answered = waiting(scope, &database, |session| advance(session, c));
                session.run(end);
                assert_eq!(answered.recv_timeout(WITHIN), Ok(second), "after {end}");
            });
        }
    }
}

#[test]
fn a_table_of_all_positions_ends_at_the_newest_whoever_writes() {
    let database = inbox(Postgres::shared(MAIN));
    database.sql("create table latest (position text collate \"C\"); insert into latest values ('')");
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let database = &database;
            scope.spawn(move || {
                let session = database.session();
                for n in 0..50_u64 {
                    let position = format!("{:016X}-00000000", (n * 37 + worker * 13) % 200 + 1);
                    session.run(&format!(
                        "update latest set position = '{position}' where walpost.inbox_advance('search', 'o-1', '{position}')"
                    ));
                }
            });
        }
    });
    assert_eq!(database.session().value("select position from latest").unwrap(), "00000000000000C8-00000000");
}

#[test]
fn setup_installs_the_inbox_alone_where_nothing_else_is() {
    // No server of logical replication, and none that has room for a slot.
    let server = Postgres::start(MAIN, &["wal_level=minimal", "max_wal_senders=0", "max_replication_slots=0"]);
    let database = server.database();
    let (url, session) = (database.url(), database.session());
    let dry = setup("setup", &url, &["--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("+ create table walpost.inbox"), "{dry:?}");
    assert_eq!(session.value("select to_regnamespace('walpost')::text"), None, "a dry run makes nothing");

    let made = setup("setup", &url, &["--yes"]);
    assert!(made.code == 0 && made.stdout.contains("grant walpost_consume"), "{made:?}");
    assert_eq!(session.value("select to_regclass('walpost.outbox')::text"), None);
    assert_eq!(session.value("select count(*) from pg_publication").unwrap(), "0");
    assert!(claim(&session, "a") && !claim(&session, "a"));
    let again = setup("setup", &url, &[]);
    assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");
    session.run("drop function walpost.inbox_claim");
    let mended = setup("setup", &url, &[]);
    assert!(mended.code == 0 && mended.stdout.contains("+ create function walpost.inbox_claim"), "{mended:?}");
    assert!(!claim(&session, "a"), "what it held is left as it was");
    session.run("revoke insert on walpost.inbox from walpost_consume");
    let mended = setup("setup", &url, &[]);
    assert!(mended.code == 0 && mended.stdout.contains("+ grant the roles their rights"), "{mended:?}");

    // The script is the file, and runs on what is there.
    let script = walpost(&["setup", "--inbox", "--print"]).stdout;
    assert_eq!(script, include_str!("../../sql/inbox.sql"));
    session.run(&script);

    // The two halves come and go by themselves.
    let outbox = walpost(&["teardown", "--database-url", &url, "--yes", "--drop-data"]);
    assert!(outbox.code == 0 && outbox.stdout.contains("teardown --inbox"), "{outbox:?}");
    assert!(!claim(&session, "a"));
    let rows = setup("teardown", &url, &["--yes"]);
    assert!(rows.code == 0 && rows.stdout.contains("keep table walpost.inbox: it holds rows"), "{rows:?}");
    let gone = setup("teardown", &url, &["--yes", "--drop-data"]);
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(session.value("select to_regnamespace('walpost')::text"), None);
    assert_eq!(session.value("select count(*) from pg_roles where rolname = 'walpost_consume'").unwrap(), "0");
}

#[test]
fn setup_of_the_inbox_has_its_schema_and_says_what_it_lacks() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let session = database.session();
    session.run("create role nobody login; create role owner login");
    let as_role = |role: &str| database.url().replace("postgres://postgres@", &format!("postgres://{role}@"));
    let refused = setup("setup", &as_role("nobody"), &["--yes"]);
    assert!(refused.code == 1 && refused.stdout.contains("grant create on database"), "{refused:?}");
    assert_eq!(session.value("select to_regnamespace('walpost')::text"), None);

    session.run(&format!("grant create on database {} to owner", database.name));
    let names = ["--table", r#""My App; --".outbox"#];
    let made = setup("setup", &as_role("owner"), &[&names[..], &["--yes"]].concat());
    assert!(made.code == 0 && made.stdout.contains("role walpost_consume is not made"), "{made:?}");
    assert_eq!(session.value(r#"select "My App; --".inbox_claim('c', 'a')"#).unwrap(), "t");
    let hint = session.try_run(r#"select "My App; --".inbox_prune('c', '1 day')"#).unwrap_err();
    let hint = hint.as_db_error().and_then(|said| said.hint()).expect("it says what to do").to_owned();
    assert!(hint.contains(r#"select "My App; --".inbox_retention('c'"#), "{hint}");
    let foreign = setup("setup", &as_role("nobody"), &names);
    assert!(foreign.code == 0, "nothing is missing: {foreign:?}");
    session.run(r#"drop view "My App; --".inbox_stats"#);
    let foreign = setup("setup", &as_role("nobody"), &names);
    assert!(foreign.code == 1 && foreign.stdout.contains("needs the owner of \"My App; --\".inbox"), "{foreign:?}");

    // Later, by someone who may make the role.
    let role = setup("setup", &database.url(), &names);
    assert!(role.code == 0, "{role:?}");
    session.run(r#"set role walpost_consume; select "My App; --".inbox_claim('c', 'b'); reset role"#);
    let gone = setup("teardown", &database.url(), &[&names[..], &["--yes", "--drop-data"]].concat());
    assert_eq!(gone.code, 0, "{gone:?}");
    assert_eq!(session.value(r#"select to_regnamespace('"My App; --"')::text"#), None);
}

/// The queries of the exporter, by the name of what they make.
fn exported() -> Vec<(String, String)> {
    let queries = include_str!("../../deploy/prometheus/inbox_queries.yml");
    let names = queries.lines().filter_map(|line| line.strip_suffix(':').filter(|name| name.starts_with("walpost_")));
    let texts = queries.split("query: |\n").skip(1).map(|rest| rest.split("  metrics:").next().expect("it is there"));
    names.map(str::to_owned).zip(texts.map(str::to_owned)).collect()
}

#[test]
fn an_exporter_that_only_operates_sees_each_consumer_without_counting_claims() {
    for version in versions() {
        let server = Postgres::start(*version, &[]);
        let database = server.database();
        database.sql("create role walpost_operate; create role watcher login in role walpost_operate");
        database.sql(include_str!("../../sql/inbox.sql"));
        let session = database.session();
        session.run("select walpost.inbox_claim('billing', n::text) from generate_series(1, 30000) n");
        session.run("select walpost.inbox_claim('search, \"x\"', n::text) from generate_series(1, 10000) n");
        session.run("select walpost.inbox_claim('billing', n::text) from generate_series(1, 7) n");
        session.run("select walpost.inbox_retention('idle', '1 day')");
        let watcher = server.try_session(&database.name).expect("it connects");
        watcher.run("set role watcher");
        let unknown = watcher.rows("select claims_estimated from walpost.inbox_metrics");
        assert_eq!(unknown, vec![vec![None]; 3], "before the first ANALYZE nobody knows");
        session.run("analyze walpost.inbox");
        let seen = watcher.rows(
            "select consumer, claims_estimated between 28000 and 32000, claims_estimated between 9000 and 11000, suppressed,
               pruned, oldest_at <= newest_at and newest_at <= now(), topic_retention is not null
             from walpost.inbox_metrics order by consumer collate \"C\"",
        );
        let row = |texts: [Option<&str>; 7]| texts.map(|text| text.map(str::to_owned)).to_vec();
        let expected = [
            row([Some("billing"), Some("t"), Some("f"), Some("7"), Some("0"), Some("t"), Some("f")]),
            row([Some("idle"), None, None, Some("0"), Some("0"), None, Some("t")]),
            row([Some("search, \"x\""), Some("f"), Some("t"), Some("0"), Some("0"), Some("t"), Some("f")]),
        ];
        assert_eq!(seen, expected, "on PostgreSQL {version}");

        // Of the table with the claims nothing is read from end to end.
        let plan = watcher.rows("explain select * from walpost.inbox_metrics").concat();
        let reads_all = |line: &String| line.contains("Seq Scan on inbox ") || line.ends_with("Seq Scan on inbox");
        assert!(!plan.iter().flatten().any(reads_all), "{plan:?}");

        // Duplicates that prune has added up still count.
        session.run("select walpost.inbox_prune('billing', '0'::interval, true, 100)");
        let suppressed = watcher.value("select suppressed from walpost.inbox_metrics where consumer = 'billing'");
        assert_eq!(suppressed.as_deref(), Some("7"));

        let exported = exported();
        assert_eq!(exported.len(), 2);
        for (name, query) in exported {
            assert!(!watcher.rows(&query).is_empty(), "{name}");
        }
    }
}

#[test]
fn a_consumer_has_the_least_rights() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let session = database.session();
    session.run(include_str!("../../sql/inbox.sql"));
    session.run("create role billing login; grant walpost_consume to billing; set role billing");
    assert!(claim(&session, "a") && !claim(&session, "a"));
    assert!(advance(&session, "0000000000000001-00000000") && !advance(&session, "0000000000000001-00000000"));
    assert_eq!(stats(&session, "billing"), (1, 1));
    for denied in [
        "delete from walpost.inbox",
        "update walpost.inbox set event_id = 'x'",
        "select processed_at from walpost.inbox",
        "select from walpost.inbox_suppressed",
        "select walpost.inbox_prune('billing', '1 day', true)",
        "select walpost.inbox_retention('billing', '1 s')",
        "delete from walpost.inbox_position",
        "create table walpost.mine ()",
    ] {
        let error = session.try_run(denied).expect_err(denied);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{denied}: {error:?}");
    }
    // Who looks after it, where there is such a role.
    session.run("reset role; create role walpost_operate");
    session.run(include_str!("../../sql/inbox.sql"));
    session.run("set role walpost_operate; select walpost.inbox_retention('billing', '1 day')");
    session.run("select walpost.inbox_prune('billing', '1 day')");
    assert!(session.try_run("select walpost.inbox_claim('billing', 'z')").is_err());
}

#[test]
fn what_docs_print_runs_as_printed() {
    let database = inbox(Postgres::shared(MAIN));
    let session = database.session();
    session.run("create table customer (id text, address text); insert into customer values ('c-7', 'unknown')");
    let docs = include_str!("../../docs/inbox.md");
    let printed: Vec<&str> =
        docs.split("```sql\n").skip(1).map(|block| block.split_once("```").expect("it ends").0).collect();
    assert_eq!(printed.len(), 4);
    for _ in 0..2 {
        for block in &printed {
            // One at a time, as psql sends them: a loop that commits is not for the middle of others.
            let mut statement = String::new();
            for line in block.lines() {
                let line = line.split("--").next().unwrap_or_default().trim();
                statement = format!("{statement} {line}");
                if line.ends_with(';') {
                    session.run(&std::mem::take(&mut statement));
                }
            }
            assert_eq!(statement.trim(), "", "it is whole: {block}");
        }
    }
    assert_eq!(session.value("select address from customer").as_deref(), Some("Elm Street 5"));
    assert_eq!(session.value("select consumer from walpost.inbox_position").as_deref(), Some("crm"));
    assert_eq!(stats(&session, "billing"), (1, 1), "all of it twice: a duplicate");
}

/// Runs `story` with two clients, as a consumer written in Rust has them.
fn with_clients<T>(url: &str, story: impl AsyncFnOnce(Client, Client) -> T) -> T {
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        client
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async { story(connect().await, connect().await).await })
}

#[test]
fn duplicates_are_told_by_a_server_that_speaks_german() {
    let server = Postgres::configure(15).language("de").start();
    let database = inbox(&server);
    let session = database.session();
    let zero = session.try_run("select 1 / 0").unwrap_err();
    let zero = zero.as_db_error().expect("the server says it").message().to_owned();
    // A server without translations tells as much, but in English.
    println!("its words: {zero}");
    assert!(zero == "Division durch Null" || zero == "division by zero", "{zero}");
    let url = database.url();
    with_clients(&url, async |mut client, other| {
        let inbox = Inbox::new("billing");
        let first = client.transaction().await.unwrap();
        assert!(inbox.claim(&first, "a").await.unwrap());
        assert!(!inbox.claim(&first, "a").await.unwrap(), "inside one batch");
        first.commit().await.unwrap();
        assert!(!inbox.claim(&client, "a").await.unwrap());
        assert_eq!(inbox.stats(&client).await.unwrap(), Stats { claimed: 1, suppressed: 2 });
        let position = "0000000000000001-00000000";
        assert!(inbox.advance(&client, "o-1", position).await.unwrap());
        assert!(!inbox.advance(&client, "o-1", position).await.unwrap());

        // Everything else by SQLSTATE.
        let strict = client
            .build_transaction()
            .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
            .start()
            .await
            .unwrap();
        strict.query_one("select count(*) from walpost.inbox", &[]).await.unwrap();
        assert!(inbox.claim(&other, "b").await.unwrap());
        let lost = inbox.claim(&strict, "b").await.unwrap_err();
        assert!(matches!(lost, InboxError::Retry(_)) && lost.is_retriable(), "{lost:?}");
        strict.rollback().await.unwrap();
        let empty = inbox.claim(&client, "").await.unwrap_err();
        assert!(matches!(&empty, InboxError::Invalid { constraint, .. } if constraint == "inbox_event_id_is_given"));
        assert!(!empty.is_retriable());
        let unstated = inbox.prune(&client, Duration::from_secs(60)).await.unwrap_err();
        assert!(unstated.to_string().contains("force => true"), "{unstated}");
        inbox.state_retention(&client, Duration::from_millis(1_500)).await.unwrap();
        let below = inbox.prune(&client, Duration::from_secs(1)).await.unwrap_err();
        assert!(matches!(below, InboxError::NotPruned { .. }), "{below:?}");
        other.batch_execute("update walpost.inbox set processed_at = now() - interval '1 hour'").await.unwrap();
        let many = "insert into walpost.inbox
                    select 'billing', 'old ' || n, now() - interval '1 hour' from generate_series(1, 20000) n";
        other.batch_execute(many).await.unwrap();
        assert_eq!(inbox.prune(&client, Duration::from_millis(1_500)).await.unwrap(), 20_002, "in batches");
        assert_eq!(inbox.stats(&client).await.unwrap(), Stats { claimed: 20_002, suppressed: 2 });
        let none = Inbox::new("billing").in_schema("nowhere").claim(&client, "a").await.unwrap_err();
        assert!(matches!(none, InboxError::Missing { .. }) && none.to_string().contains("nowhere"), "{none:?}");
        other.batch_execute("create role stranger; grant usage on schema walpost to stranger").await.unwrap();
        client.batch_execute("set role stranger").await.unwrap();
        let forbidden = inbox.claim(&client, "a").await.unwrap_err();
        assert!(matches!(forbidden, InboxError::Forbidden { .. }), "{forbidden:?}");
    });
}
