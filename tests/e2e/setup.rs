//! Set-up and teardown: what is made, by whom, how often, and what is left behind when it goes wrong.

use std::{
    ffi::OsString,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::support::{
    eventually, long,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    process::{Launch, Process, Signal},
    scratch,
    walpost::{Finished, walpost},
};

const WITHIN: Duration = Duration::from_secs(30);

/// Roles belong to the whole server, which tests share: one set-up at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the short form, the ends of the supported range.
fn versions() -> &'static [u16] {
    if long() { &VERSIONS } else { &[14, 18] }
}

/// Runs a command on this database, with the slot named after it.
fn on(database: &Database<'_>, command: &str, more: &[&str]) -> Finished {
    let url = database.url();
    walpost(&[&[command, "--database-url", &url, "--slot", &database.name], more].concat())
}

fn done(finished: &Finished) {
    assert_eq!(finished.code, 0, "{finished:?}");
}

fn slots(database: &Database<'_>) -> u32 {
    let name = &database.name;
    database.session().get(&format!("select count(*) from pg_replication_slots where slot_name = '{name}'"))
}

#[test]
fn setup_makes_what_is_missing_once_and_teardown_leaves_nothing() {
    let _alone = alone();
    for &version in versions() {
        for variant in [&[][..], &["--partitioned"]] {
            let database = Postgres::shared(version).database();
            let dry = on(&database, "setup", &[variant, &["--dry-run"]].concat());
            done(&dry);
            for table in ["outbox", "dead_letter", "progress"] {
                assert!(dry.stdout.contains(&format!("+ create table walpost.{table}")), "{dry:?}");
            }
            let session = database.session();
            assert_eq!(session.value("select to_regnamespace('walpost')::text"), None, "a dry run makes nothing");

            done(&on(&database, "setup", variant));
            session.run("select walpost.enqueue('order', 'o-1', 'OrderPlaced', '{}')");
            let again = on(&database, "setup", variant);
            assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");

            let refused = on(&database, "teardown", &[]);
            assert!(refused.code == 1 && refused.stderr.contains("--yes"), "{refused:?}");
            done(&on(&database, "teardown", &["--yes"]));
            assert_eq!(slots(&database), 0);
            assert_eq!(
                session.value("select count(*)::text from walpost.outbox").as_deref(),
                Some("1"),
                "rows are kept"
            );

            done(&on(&database, "teardown", &["--yes", "--drop-data"]));
            assert_eq!(session.value("select to_regnamespace('walpost')::text"), None);
            assert_eq!(session.value("select count(*)::text from pg_publication").as_deref(), Some("0"));
        }
    }
}

#[test]
fn an_outbox_of_messages_gets_its_functions_and_no_table() {
    let _alone = alone();
    for &version in versions() {
        let database = Postgres::shared(version).database();
        let session = database.session();
        let flags = ["--message-prefix", "it's"];
        done(&on(&database, "setup", &flags));
        assert_eq!(session.value("select to_regclass('walpost.outbox')::text"), None);
        assert_eq!(session.value("select count(*) from pg_publication_tables").unwrap(), "0");
        assert_eq!(slots(&database), 1);
        session.run("set role walpost_enqueue; select walpost.emit('order', 'o-1', 'e', '{}'); reset role");
        session.run("set role walpost_enqueue; select walpost.emit_bytes('order', 'o-1', 'e', ''); reset role");
        let denied = session.try_run("set role walpost_operate; select walpost.emit('order', 'o-1', 'e', '{}')");
        assert!(denied.is_err());
        session.run("reset role");
        let prefix =
            "select prosrc is not null and strpos(pg_get_function_arguments(oid), '''it''''s''') > 0 from pg_proc
                      where proname = 'emit'";
        assert_eq!(session.value(prefix).as_deref(), Some("t"));
        let again = on(&database, "setup", &flags);
        assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");
        let check = on(&database, "check", &[&flags[..], &["--brokers", "127.0.0.1:9", "--json"]].concat());
        assert_eq!(
            check.stdout.matches("\"severity\":\"error\"").count(),
            1,
            "only the brokers are missing: {check:?}"
        );
        // Another prefix is another default, and a table stands beside it.
        let both = scratch::folder("both").join("walpost.toml");
        let toml = "[[outbox]]\nmessage_prefix = 'other'\n[[outbox]]\ntable = 'walpost.outbox'\n";
        std::fs::write(&both, toml).expect("the folder is ours");
        let both = ["-c", both.to_str().expect("it is UTF-8")];
        let more = on(&database, "setup", &both);
        assert!(more.code == 0 && more.stdout.contains("for messages with the prefix \"other\""), "{more:?}");
        assert!(more.stdout.contains("add table walpost.outbox"), "{more:?}");
        let again = on(&database, "setup", &both);
        assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");

        for flags in [&flags[..], &both] {
            let script = walpost(&[&["setup", "--print"], flags].concat()).stdout;
            let (sql, _slot) = script.split_once("-- The slot comes last").expect("it says so");
            session.run(sql);
        }
        done(&on(&database, "teardown", &[&both[..], &["--yes", "--drop-data"]].concat()));
        assert_eq!(session.value("select to_regnamespace('walpost')::text"), None);
        assert_eq!(slots(&database), 0);
    }
}

#[test]
fn names_that_need_quotes_work_throughout() {
    let _alone = alone();
    let database = Postgres::shared(MAIN).database();
    let session = database.session();
    for variant in [&[][..], &["--partitioned"]] {
        let table = r#""My App; --"."Out'b""ox $walpost$ ü""#;
        let names = ["--table", table, "--publication", "p \"w\", ü'"];
        done(&on(&database, "setup", &[&names, variant].concat()));
        let enqueue = r#""My App; --".enqueue('a', 'b', 'c', null, idempotency_key => 'k')"#;
        session.run(&format!("select {enqueue}"));
        assert_eq!(
            session.value(&format!("select count(distinct {enqueue}) from generate_series(1, 3)")).unwrap(),
            "1"
        );
        assert_eq!(session.value(&format!("select count(*) from {table}")).unwrap(), "1");
        let check = on(&database, "check", &[&names[..], &["--brokers", "127.0.0.1:9", "--json"]].concat());
        let errors = check.stdout.matches("\"severity\":\"error\"").count();
        assert_eq!(errors, 1, "only the brokers are missing: {check:?}");

        let script = walpost(&[&["setup", "--print"], &names[..], variant].concat());
        let (sql, _slot) = script.stdout.split_once("-- The slot comes last").expect("it says so");
        session.run(sql);

        done(&on(&database, "teardown", &[&names[..], &["--yes", "--drop-data"]].concat()));
        assert_eq!(session.value("select to_regnamespace('\"My App; --\"')::text"), None);
    }
}

#[test]
fn a_table_of_ones_own_gets_publication_and_slot_only() {
    let _alone = alone();
    let database = Postgres::shared(MAIN).database();
    let session = database.session();
    let names = ["--preset", "debezium", "--table", "app.events"];
    let missing = on(&database, "setup", &names);
    assert!(missing.code == 1 && missing.stdout.contains("table app.events does not exist"), "{missing:?}");

    session.run(
        "create schema app;
         create table app.events (id uuid primary key, aggregatetype text, aggregateid text, type text)",
    );
    let incomplete = on(&database, "setup", &names);
    assert!(incomplete.code == 1 && incomplete.stdout.contains("has no column payload"), "{incomplete:?}");
    assert_eq!(slots(&database), 0);

    session.run("alter table app.events add column payload jsonb");
    done(&on(&database, "setup", &names));
    assert_eq!(session.value("select to_regproc('walpost.enqueue')::text"), None);
    session.run(
        "create table app.more (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb)",
    );
    done(&on(&database, "setup", &["--preset", "debezium", "--table", "app.more"]));
    assert_eq!(session.value("select count(*) from pg_publication_tables where pubname = 'walpost'").unwrap(), "2");

    done(&on(&database, "teardown", &[&names[..], &["--yes", "--drop-data"]].concat()));
    assert_eq!(slots(&database), 0);
    assert_eq!(session.value("select count(*) from pg_tables where schemaname = 'app'").unwrap(), "2", "not ours");
}

/// Starts `walpost setup` and lets it run.
fn start_setup(database: &Database<'_>) -> Process {
    let folder = scratch::folder("setup");
    let arguments = ["setup", "--database-url", &database.url(), "--slot", &database.name].map(OsString::from);
    Process::start(&Launch {
        name: "walpost setup".to_owned(),
        command: [&[OsString::from(env!("CARGO_BIN_EXE_walpost"))], &arguments[..]].concat(),
        environment: vec![],
        log: folder.join("log"),
        folder,
        last_signal: Signal::Kill,
    })
}

#[test]
fn waiting_for_a_transaction_is_told_and_can_be_given_up_without_a_trace() {
    let _alone = alone();
    for &version in versions() {
        let server = Postgres::shared(version);
        let database = server.database();
        let elsewhere = server.database();
        let blocker = elsewhere.session();
        blocker.run("set application_name = 'slow job'; begin; create table held ()");
        let pid: u32 = blocker.get("select pg_backend_pid()");

        for signal in [Signal::Term, Signal::Int, Signal::Kill] {
            let setup = start_setup(&database);
            eventually(WITHIN, "it names what it waits for", || {
                let log = setup.log();
                (log.contains(&format!("process {pid}")) && log.contains("slow job") && log.contains(" old"))
                    .then_some(())
            });
            setup.signal(signal);
            let code = setup.wait(WITHIN);
            if !matches!(signal, Signal::Kill) {
                assert_eq!(code, 1, "{}", setup.log());
            }
            let name = &database.name;
            eventually(WITHIN, "neither slot nor backend is left", || {
                let left = "select (select count(*) from pg_replication_slots where slot_name = '{0}')
                                 + (select count(*) from pg_stat_activity where datname = '{0}' and pid <> pg_backend_pid())";
                (server.session("postgres").get::<u32>(&left.replace("{0}", name)) == 0).then_some(())
            });
        }

        let setup = start_setup(&database);
        eventually(WITHIN, "it waits again", || setup.log().contains("slow job").then_some(()));
        blocker.run("prepare transaction 'held'");
        eventually(WITHIN, "it names the prepared transaction", || setup.log().contains("'held'").then_some(()));
        elsewhere.session().run("commit prepared 'held'");
        assert_eq!(setup.wait(WITHIN), 0, "{}", setup.log());
        assert_eq!(slots(&database), 1);
    }
}

#[test]
fn failed_setups_leave_no_slot() {
    let _alone = alone();
    let server = Postgres::start(MAIN, &["max_replication_slots=1"]);
    let database = server.database();
    server.sql("select pg_create_physical_replication_slot('taken')");
    for _ in 0..20 {
        let failed = on(&database, "setup", &[]);
        assert_eq!(failed.code, 1);
        assert!(failed.stdout.contains("max_replication_slots"), "{failed:?}");
    }
    server.sql("select pg_drop_replication_slot('taken')");
    done(&on(&database, "setup", &[]));
    assert_eq!(slots(&database), 1);
}

/// It is not on record, and holds back the log.
#[test]
fn a_slot_that_setup_did_not_make_is_left_and_named() {
    let _alone = alone();
    let database = Postgres::shared(MAIN).database();
    done(&on(&database, "setup", &["--snapshot", "initial"]));
    assert_eq!(slots(&database), 0, "walpost run makes it");
    database.sql(&format!("select pg_create_logical_replication_slot('{}', 'pgoutput')", database.name));
    let torn_down = on(&database, "teardown", &["--yes", "--drop-data"]);
    done(&torn_down);
    assert!(
        torn_down.stdout.contains(&format!("select pg_drop_replication_slot('{}')", database.name)),
        "{torn_down:?}"
    );
    assert_eq!(slots(&database), 1);
}

#[test]
fn a_slot_in_use_is_not_dropped() {
    let _alone = alone();
    let server = Postgres::shared(MAIN);
    let database = server.database();
    done(&on(&database, "setup", &[]));
    let brokers = ["--brokers", "127.0.0.1:9"];
    let folder = scratch::folder("run");
    let url = database.url();
    let arguments = ["run", "--database-url", &url, "--slot", &database.name, "--http-listen", "off"];
    let running = Process::start(&Launch {
        name: "walpost run".to_owned(),
        command: [&[env!("CARGO_BIN_EXE_walpost")], &arguments[..], &brokers]
            .concat()
            .into_iter()
            .map(OsString::from)
            .collect(),
        environment: vec![],
        log: folder.join("log"),
        folder,
        last_signal: Signal::Kill,
    });
    let session = database.session();
    let active = format!("select active from pg_replication_slots where slot_name = '{}'", database.name);
    eventually(WITHIN, "it streams", || (session.value(&active).as_deref() == Some("t")).then_some(()));
    let refused = on(&database, "teardown", &["--yes", "--drop-data"]);
    assert!(refused.code == 1 && refused.stderr.contains("is in use by process"), "{refused:?}");
    assert!(session.value("select to_regclass('walpost.outbox')::text").is_some());
    drop(running);
}

#[test]
fn a_role_without_rights_is_told_all_that_it_lacks_and_works_with_what_others_made() {
    let _alone = alone();
    let server = Postgres::shared(MAIN);
    let database = server.database();
    let poor = format!("poor {}", database.name);
    server.sql(&format!("create role \"{poor}\" login"));
    let url = format!("host=127.0.0.1 port={} dbname={} user='{poor}'", server.port(), database.name);
    let setup = || walpost(&["setup", "--database-url", &url, "--slot", &database.name]);

    let told = setup();
    assert_eq!(told.code, 1, "{told:?}");
    for part in [
        format!("grant create on database {} to \"{poor}\"", database.name),
        "create table if not exists walpost.outbox".to_owned(),
        "create publication walpost for table walpost.outbox".to_owned(),
        format!("alter role \"{poor}\" replication"),
        "pg_create_logical_replication_slot".to_owned(),
    ] {
        assert!(told.stdout.contains(&part), "{part} is not in {}", told.stdout);
    }
    assert_eq!(database.session().value("select to_regnamespace('walpost')::text"), None);

    let script = walpost(&["setup", "--print", "--slot", &database.name]).stdout;
    let (sql, _slot) = script.split_once("-- The slot comes last").expect("it says so");
    database.sql(sql);
    server.sql(&format!("alter role \"{poor}\" replication"));
    let made = setup();
    done(&made);
    assert!(made.stdout.contains("not recorded"), "{made:?}");
    assert_eq!(slots(&database), 1);
    let check =
        walpost(&["check", "--database-url", &url, "--slot", &database.name, "--brokers", "127.0.0.1:9", "--json"]);
    assert_eq!(check.stdout.matches("\"severity\":\"error\"").count(), 1, "only the brokers are missing: {check:?}");
    database.sql(&format!("drop owned by \"{poor}\""));
    server.sql(&format!("drop role \"{poor}\""));
}

#[test]
fn the_application_may_enqueue_and_nothing_more() {
    let _alone = alone();
    let server = Postgres::shared(MAIN);
    let database = server.database();
    done(&on(&database, "setup", &[]));
    let shop = database.session();
    shop.run("set role walpost_enqueue");
    let first = shop.value("select walpost.enqueue('a', 'b', 'c', '{}', idempotency_key => 'k')");
    assert_eq!(first, shop.value("select walpost.enqueue('a', 'b', 'c', '{}', idempotency_key => 'k')"));
    for forbidden in
        ["select payload from walpost.outbox", "delete from walpost.outbox", "update walpost.outbox set payload = null"]
    {
        shop.try_run(forbidden).expect_err(forbidden);
    }
    let operator = database.session();
    operator.run("set role walpost_operate; select payload from walpost.outbox; delete from walpost.outbox");
}

#[test]
fn an_idempotency_key_stores_one_event_however_many_sessions_use_it() {
    let _alone = alone();
    for &version in versions() {
        for variant in [&[][..], &["--partitioned"]] {
            let database = Postgres::shared(version).database();
            done(&on(&database, "setup", variant));
            let enqueue = "select walpost.enqueue('order', 'o-1', 'OrderPlaced', '{}', idempotency_key => 'KEY')";
            for (key, end) in [("committed", "commit"), ("rolled back", "rollback")] {
                let statement = enqueue.replace("KEY", key);
                let first = database.session();
                first.run("begin");
                let first_id = first.value(&statement);
                let second_id = std::thread::scope(|scope| {
                    let second = scope.spawn(|| database.session().value(&statement));
                    let watcher = database.session();
                    eventually(WITHIN, "the second waits for the first", || {
                        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
                                       and wait_event = 'transactionid'";
                        (watcher.get::<u32>(waiting) == 1).then_some(())
                    });
                    first.run(end);
                    second.join().expect("it gets an id")
                });
                assert_eq!(first_id == second_id, end == "commit", "{key}");
                let stored = format!("select count(*) from walpost.outbox where idempotency_key = '{key}'");
                assert_eq!(database.session().value(&stored).unwrap(), "1");
            }
        }
    }
}

#[test]
fn txid_is_the_transaction_that_inserted_the_row_whoever_says_otherwise() {
    let _alone = alone();
    for version in VERSIONS {
        for variant in [&[][..], &["--partitioned"]] {
            let database = Postgres::shared(version).database();
            done(&on(&database, "setup", variant));
            let session = database.session();
            if !variant.is_empty() {
                session.run("select walpost.make_partitions((now() at time zone 'UTC')::date + 20, 1)");
            }
            // As a subscription's worker writes, which passes over common triggers.
            session.run("set session_replication_role = replica");
            let own: String = session.get(
                "begin; savepoint s;
                 insert into walpost.outbox (aggregate_type, event_type, txid, occurred_at)
                 select 'a', 'b', '1', now() + day * interval '1 day' from unnest(array[0, 20, 99]) as day;
                 insert into walpost.outbox (aggregate_type, event_type) values ('a', 'b');
                 select pg_current_xact_id()::text",
            );
            session.run("commit");
            let txids = || session.value("select string_agg(distinct txid::text, ' ') from walpost.outbox");
            assert_eq!(txids(), Some(own.clone()), "version {version}");
            session.run("update walpost.outbox set txid = '1', event_type = 'c'");
            assert_eq!(txids(), Some(own), "version {version}");
        }
    }
}

#[test]
fn a_database_restored_from_another_servers_dump_begins_its_proof_anew() {
    let _alone = alone();
    let database = Postgres::shared(MAIN).database();
    done(&on(&database, "setup", &[]));
    let session = database.session();
    session.run(
        "alter table walpost.outbox disable trigger keep_txid;
         insert into walpost.outbox (aggregate_type, event_type, txid) values ('a', 'foreign', '4000000000');
         alter table walpost.outbox enable always trigger keep_txid;
         insert into walpost.outbox (aggregate_type, event_type) values ('a', 'own');
         update walpost.progress set system_identifier = '1', published = '5000000000:5000000000:'",
    );
    let check = || on(&database, "check", &["--brokers", "127.0.0.1:9", "--json"]);
    assert!(check().stdout.contains("speaks of server 1"), "{:?}", check());
    let run = on(&database, "run", &["--brokers", "127.0.0.1:9", "--http-listen", "off"]);
    assert!(run.code == 1 && run.stderr.contains("walpost setup"), "{run:?}");

    let mended = on(&database, "setup", &[]);
    done(&mended);
    assert!(mended.stdout.contains("begin the proof of publication anew"), "{mended:?}");
    assert!(!check().stdout.contains("speaks of server"), "{:?}", check());
    let unproven = "select string_agg(event_type, ' ' order by seq) from walpost.outbox o, walpost.progress p
                    where p.published is null and pg_visible_in_snapshot(o.txid, p.started)";
    assert_eq!(session.value(unproven).as_deref(), Some("foreign own"), "both are older than the proof");
    let again = on(&database, "setup", &[]);
    assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");
}

#[test]
fn an_event_of_a_day_without_a_partition_is_kept_and_not_published_twice() {
    let _alone = alone();
    let database = Postgres::shared(MAIN).database();
    done(&on(&database, "setup", &["--partitioned"]));
    let session = database.session();
    session.run(
        "select walpost.enqueue('a', 'b', 'c', '{}', occurred_at => now() + interval '40 days');
         select walpost.make_partitions()",
    );
    assert_eq!(session.value("select count(*) from walpost.outbox_default").unwrap(), "1");
    // The day stays in the default partition: moving the row would publish it again.
    let far = "select walpost.make_partitions((now() at time zone 'UTC')::date + 39, 3)";
    assert_eq!(session.value(far).unwrap(), "2");
    assert_eq!(session.value("select count(*) from walpost.outbox_default").unwrap(), "1");
    assert_eq!(session.value(far).unwrap(), "0");
}

/// `enqueue` as it was before versions of aggregates.
const FORMER: &str = "
    drop function walpost.enqueue(text, text, text, jsonb, jsonb, text, text, timestamptz, bigint);
    alter table walpost.outbox drop column aggregate_version;
    drop table if exists walpost.aggregate_version;
    drop function walpost.idempotency_key(jsonb);
    create function walpost.enqueue(aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb default null,
        idempotency_key text default null, destination text default null, occurred_at timestamptz default null)
        returns uuid language sql as 'select null::uuid';
    revoke execute on function walpost.enqueue from public;
    grant execute on function walpost.enqueue to walpost_enqueue, \"SHOP\";";

#[test]
fn a_former_setup_gets_versions_of_aggregates_and_keeps_who_may_enqueue() {
    let _alone = alone();
    for &version in versions() {
        for variant in [&[][..], &["--partitioned"]] {
            let server = Postgres::shared(version);
            let database = server.database();
            done(&on(&database, "setup", variant));
            let session = database.session();
            let shop = format!("shop {}", database.name);
            session.run(&format!("create role \"{shop}\"; grant usage on schema walpost to \"{shop}\""));
            session.run(
                "insert into walpost.outbox (aggregate_type, event_type) select 'a', 'b' from generate_series(1, 9)",
            );
            session.run(&FORMER.replace("SHOP", &shop));
            // As a build that was killed leaves it.
            if variant.is_empty() {
                session.run(
                    "alter table walpost.outbox add column aggregate_version bigint;
                     create unique index on walpost.outbox (aggregate_version);
                     update pg_index set indisvalid = false where indexrelid = 'walpost.outbox_aggregate_version_idx'::regclass",
                );
            }
            let mended = on(&database, "setup", variant);
            assert!(mended.code == 0 && mended.stdout.contains("aggregate_version"), "{mended:?}");
            let again = on(&database, "setup", variant);
            assert!(again.code == 0 && again.stdout.contains("everything exists already"), "{again:?}");
            assert_eq!(session.value("select count(*) from pg_proc where proname = 'enqueue'").as_deref(), Some("1"));
            let invalid = "select count(*) from pg_index where not indisvalid";
            assert_eq!(session.value(invalid).as_deref(), Some("0"));

            session.run(&format!("grant walpost_enqueue to \"{shop}\"; set role \"{shop}\""));
            let enqueue =
                "select walpost.enqueue('a', 'b', 'c', null, idempotency_key => walpost.idempotency_key('{}'),
                           aggregate_version => 1)";
            assert!(session.value(enqueue).is_some());
            assert_eq!(session.value(enqueue), session.value(enqueue));
            let taken = session.try_run("select walpost.enqueue('a', 'b', 'c', null, aggregate_version => 1)");
            let code = taken.expect_err("it is taken").code().cloned();
            assert_eq!(code, Some(tokio_postgres::error::SqlState::UNIQUE_VIOLATION));
            session.run(&format!("reset role; revoke walpost_enqueue from \"{shop}\""));
            let may = format!(
                "select has_function_privilege('{shop}', oid, 'execute') from pg_proc where proname = 'enqueue'"
            );
            assert_eq!(session.value(&may).as_deref(), Some("t"), "as before");
            let public =
                "select has_function_privilege('pg_monitor', oid, 'execute') from pg_proc where proname = 'enqueue'";
            assert_eq!(session.value(public).as_deref(), Some("f"), "nobody else");

            done(&on(&database, "teardown", &["--yes", "--drop-data"]));
            assert_eq!(session.value("select to_regnamespace('walpost')::text"), None);
            session.run(&format!("drop owned by \"{shop}\"; drop role \"{shop}\""));
        }
    }
}

#[test]
fn setup_leaves_enqueue_as_it_is_where_the_outbox_is_another_roles() {
    let _alone = alone();
    let server = Postgres::shared(MAIN);
    let database = server.database();
    done(&on(&database, "setup", &[]));
    let session = database.session();
    session.run(&FORMER.replace(", \"SHOP\"", ""));
    let poor = format!("poor {}", database.name);
    session
        .run(&format!("create role \"{poor}\" login replication; grant create, usage on schema walpost to \"{poor}\""));
    let url = format!("host=127.0.0.1 port={} dbname={} user='{poor}'", server.port(), database.name);
    let told = walpost(&["setup", "--database-url", &url, "--slot", &database.name]);
    assert!(told.stdout.contains("needs the owner of walpost.outbox"), "{told:?}");
    assert!(told.stdout.contains("needs the outbox to have the column aggregate_version"), "{told:?}");
    session.run("select walpost.enqueue('a', 'b', 'c', null)");
    session.run(&format!("drop owned by \"{poor}\"; drop role \"{poor}\""));
}
