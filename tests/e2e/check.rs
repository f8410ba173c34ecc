//! Check and status: everything that is wrong, at once, and what the slot is about.

use std::{ffi::OsString, time::Duration};

use serde_json::Value;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    process::{Launch, Process, Signal},
    scratch,
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

/// What `walpost check --json` finds: severity, thing and fault of each; and its exit code.
fn check(database: &Database<'_>, more: &[&str]) -> (Vec<(String, String)>, i32) {
    let url = database.url();
    let brokers = Kafka::shared().brokers();
    let mut arguments = vec!["check", "--json"];
    for (flag, value) in [("--database-url", &url), ("--slot", &database.name), ("--brokers", &brokers)] {
        if !more.contains(&flag) {
            arguments.extend([flag, value]);
        }
    }
    arguments.extend(more);
    let finished = walpost(&arguments);
    let answer: Value = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let findings = answer["findings"].as_array().expect("a list");
    let text = |finding: &Value, key: &str| finding[key].as_str().expect("a text").to_owned();
    let findings = findings.iter().map(|finding| {
        assert!(!text(finding, "remedy").is_empty(), "{finding}");
        (text(finding, "severity"), format!("{} {}", text(finding, "about"), text(finding, "what")))
    });
    (findings.collect(), finished.code)
}

/// The parts, each in a finding of that severity, and no other errors and warnings.
fn assert_found(found: &[(String, String)], parts: &[(&str, &str)]) {
    for (severity, part) in parts {
        assert!(
            found.iter().any(|(is, text)| is == severity && text.contains(part)),
            "{severity} {part} not in {found:#?}"
        );
    }
    let serious = found.iter().filter(|(severity, _)| severity != "note").count();
    assert_eq!(serious, parts.iter().filter(|(severity, _)| *severity != "note").count(), "{found:#?}");
}

#[test]
fn a_right_set_up_passes_on_every_version() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let _outbox = Outbox::create(&database);
        database.sql("alter publication walpost set (publish_via_partition_root = true)");
        let (found, code) = check(&database, &[]);
        assert_found(&found, &[]);
        assert_eq!(code, 0, "{version}: {found:#?}");
    }
}

#[test]
fn an_empty_database_lacks_table_publication_and_slot() {
    let database = Postgres::shared(MAIN).database();
    let (found, code) = check(&database, &[]);
    assert_eq!(code, 3);
    assert_found(
        &found,
        &[
            ("error", "table walpost.outbox does not exist"),
            ("error", "publication walpost does not exist"),
            ("error", "does not exist: the log is not kept"),
            ("note", "table walpost.dead_letter does not exist"),
        ],
    );
}

#[test]
fn every_fault_of_a_publication_is_named() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    let found = |change: &str, parts: &[(&str, &str)]| {
        session.run(change);
        assert_found(&check(&database, &[]).0, parts);
    };
    found(
        "alter publication walpost set (publish = 'update')",
        &[("error", "does not publish inserts"), ("warning", "publishes updates too")],
    );
    // B76: with deletes published, a table without a key cannot be deleted from.
    session.run("create table public.\"No Key\" (a int)");
    found(
        "alter publication walpost set (publish = 'insert, delete'); alter publication walpost add table public.\"No Key\"",
        &[("error", "public.\"No Key\" has no key"), ("note", "no outbox of this configuration")],
    );
    session.try_run("insert into \"No Key\" values (1); delete from \"No Key\"").expect_err("as the finding says");
    // B37: a filter and a column list let through less than everything.
    session.run("alter publication walpost set (publish = 'insert')");
    found(
        "alter publication walpost set table walpost.outbox (id, aggregate_id, aggregate_type, event_type)
         where (aggregate_type = 'a')",
        &[("warning", "only those rows of walpost.outbox where"), ("error", "needs: payload")],
    );
    found("alter publication walpost set table public.\"No Key\"", &[("error", "does not publish walpost.outbox")]);
    found(
        "drop publication walpost; create publication walpost for all tables with (publish = 'insert')",
        &[("warning", "is for all tables")],
    );
    drop(outbox);
}

#[test]
fn partitions_under_their_own_names_are_an_error() {
    let database = Postgres::shared(MAIN).database();
    let url = database.url();
    let _outbox = Outbox::create(&database);
    let session = database.session();
    session.run(
        "create table walpost.parts (like walpost.outbox) partition by range (occurred_at);
         create table walpost.parts_all partition of walpost.parts default;
         alter publication walpost set table walpost.parts",
    );
    let table = ["--table", "walpost.parts"];
    assert_found(
        &check(&database, &table).0,
        &[("error", "publishes the partitions of walpost.parts under their own")],
    );
    let refused = walpost(&[&["setup", "--database-url", &url, "--slot", &database.name], &table[..]].concat());
    assert!(refused.code == 1 && refused.stdout.contains("publish_via_partition_root = true"), "{refused:?}");
    session.run("alter publication walpost set (publish_via_partition_root = true)");
    assert_found(&check(&database, &table).0, &[]);
}

#[test]
fn every_fault_of_a_slot_is_named() {
    let server =
        Postgres::start(18, &["max_slot_wal_keep_size=1MB", "idle_replication_slot_timeout=1d", "min_wal_size=32MB"]);
    let database = server.database();
    let _outbox = Outbox::create(&database);
    let session = database.session();
    session.run("alter publication walpost set (publish_via_partition_root = true)");
    let idle = ("warning", "idle_replication_slot_timeout is 1d");
    let other = server.database();
    other.sql("select pg_create_logical_replication_slot('elsewhere', 'pgoutput')");
    session.run(
        "select pg_create_physical_replication_slot('standby');
         select pg_create_logical_replication_slot('decoder', 'test_decoding')
         where exists (select from pg_available_extensions where name = 'test_decoding');
         select pg_create_logical_replication_slot('eager', 'pgoutput', false, true)",
    );
    let slot = |name: &str| check(&database, &["--slot", name]).0;
    assert_found(&slot("elsewhere"), &[idle, ("error", "belongs to database"), ("warning", "is lost after")]);
    assert_found(&slot("standby"), &[idle, ("error", "physical")]);
    assert_found(&slot("eager"), &[idle, ("error", "has two_phase on"), ("warning", "is lost after")]);
    eventually(WITHIN, "the slot is given up", || {
        session.run("create table if not exists bulk (a text); insert into bulk select repeat('x', 1000) from generate_series(1, 40000)");
        session.run("checkpoint");
        let lost =
            format!("select wal_status = 'lost' from pg_replication_slots where slot_name = '{}'", database.name);
        (session.value(&lost).as_deref() == Some("t")).then_some(())
    });
    assert_found(&check(&database, &[]).0, &[idle, ("error", "is lost (wal_removed)")]);
}

#[test]
fn a_synchronous_walpost_is_refused_before_the_application_waits_for_it() {
    let server = Postgres::start(MAIN, &["synchronous_standby_names=*", "synchronous_commit=local"]);
    let database = server.database();
    let _outbox = Outbox::create(&database);
    let (found, code) = check(&database, &[]);
    assert_eq!(code, 3);
    assert!(
        found.iter().any(|(severity, text)| severity == "error" && text.contains("synchronous_standby_names")),
        "{found:?}"
    );
}

#[test]
fn rights_settings_and_hidden_rows() {
    let server = Postgres::start(MAIN, &["wal_level=replica"]);
    let database = server.database();
    database.sql("create schema walpost");
    database.sql(walpost(&["setup", "--print"]).stdout.split_once("-- The slot comes last").expect("it says so").0);
    database.sql("alter table walpost.outbox enable row level security; create role weak login; grant usage on schema walpost to weak");
    let url = format!("postgres://weak@127.0.0.1:{}/{}", server.port(), database.name);
    let (found, code) = check(&database, &["--database-url", &url]);
    assert_eq!(code, 3);
    for part in
        ["wal_level is replica", "replication connection is refused", "row security", "does not see other sessions"]
    {
        assert!(found.iter().any(|(_, text)| text.contains(part)), "{part} not in {found:#?}");
    }
    database.sql("drop owned by weak");
}

#[test]
fn an_unreachable_broker_is_one_finding_with_its_reason() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    let nobody = format!("127.0.0.1:{}", scratch::port());
    let (found, code) = check(&database, &["--brokers", &nobody]);
    assert_eq!(code, 3);
    assert!(found.iter().any(|(_, text)| text.contains("Connection refused")), "{found:?}");
}

#[test]
fn a_wrong_password_for_kafka_is_named_as_such() {
    let kafka = Kafka::configure().access_lists().start();
    kafka.add_user("walpost", "right");
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    let brokers = kafka.brokers();
    let properties = |password: &str| {
        ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=walpost"]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("sasl.password={password}")])
            .flat_map(|property| ["--kafka".to_owned(), property])
            .collect::<Vec<_>>()
    };
    let found = |password: &str| {
        let properties = properties(password);
        let mut more = vec!["--brokers", &brokers];
        more.extend(properties.iter().map(String::as_str));
        check(&database, &more).0
    };
    let wrong = found("s3cret-wrong");
    assert!(
        wrong.iter().any(|(severity, text)| severity == "error" && text.to_lowercase().contains("authentication")),
        "{wrong:?}"
    );
    assert!(!format!("{wrong:?}").contains("s3cret"), "{wrong:?}");
    // Without any right to describe: a finding, not a failure.
    let limited = found("right");
    assert!(
        limited.iter().any(|(severity, text)| severity == "note" && text.contains("may not see all settings")),
        "{limited:?}"
    );
}

#[test]
fn rights_to_topics_that_are_missing_are_named() {
    let kafka = Kafka::configure().access_lists().start();
    kafka.add_user("walpost", "s3cret");
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    kafka.create_topic("orders", 1, &[]);
    let brokers = kafka.brokers();
    let mut more = vec!["--brokers", &*brokers, "--delivery", "exactly_once", "--route-topic", "orders"];
    let login = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=SCRAM-SHA-512",
        "sasl.username=walpost",
        "sasl.password=s3cret",
    ];
    more.extend(login.into_iter().flat_map(|property| ["--kafka", property]));
    let forbidden = |expected: &[&str]| {
        eventually(WITHIN, "the access lists are in force", || {
            let (mut found, _) = check(&database, &more);
            found.retain(|(severity, text)| severity == "error" && text.contains("by this principal"));
            let as_expected = found.iter().zip(expected).all(|((_, text), start)| text.starts_with(start));
            (found.len() == expected.len() && as_expected).then_some(())
        });
    };
    let written_to = "topic orders may not be written to by this principal";
    forbidden(&[written_to, "topic walpost.positions may not be written to or read by this principal"]);
    let allow = |operation, topic| kafka.allow("walpost", &["--operation", operation, "--topic", topic]);
    allow("Write", "walpost.positions");
    // It does not exist yet, so that there is nothing to have a right to.
    forbidden(&[written_to]);
    kafka.create_topic("walpost.positions", 1, &[("cleanup.policy", "compact")]);
    forbidden(&[written_to, "topic walpost.positions may not be read by this principal"]);
    allow("Read", "walpost.positions");
    allow("Write", "orders");
    forbidden(&[]);
}

#[test]
fn limits_of_a_topic_are_compared() {
    let kafka = Kafka::shared();
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    database.sql("alter publication walpost set (publish_via_partition_root = true)");
    let topic = format!("{}.small", database.name);
    kafka.create_topic(&topic, 3, &[("max.message.bytes", "1000")]);
    assert_found(&check(&database, &["--route-topic", &topic]).0, &[("warning", "takes records of up to 1000 bytes")]);
    kafka.create_blockable_topic(&format!("{topic}.blocked"), 1);
    kafka.set_topic_config(&format!("{topic}.blocked"), &[("min.insync.replicas", "3")]);
    let (found, _) = check(&database, &["--route-topic", &format!("{topic}.blocked")]);
    assert_found(&found, &[("error", "no record can be acknowledged")]);
}

#[test]
fn topics_of_one_template_are_compared() {
    let kafka = Kafka::shared();
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    database.sql("alter publication walpost set (publish_via_partition_root = true)");
    let topic = |name: &str| format!("{}.{name}", database.name);
    kafka.create_topic(&topic("order"), 3, &[]);
    kafka.create_topic(&topic("invoice"), 4, &[]);
    let (found, code) = check(&database, &["--route-topic", &topic("${aggregate_type}")]);
    let differ = format!("have from 3 ({}) to 4 partitions ({})", topic("order"), topic("invoice"));
    assert_found(&found, &[("note", &differ)]);
    assert_eq!(code, 0, "{found:#?}");
}

#[test]
fn a_pooler_in_between_is_named_with_all_else() {
    let server = Postgres::shared(MAIN);
    let database = server.database();
    let _outbox = Outbox::create(&database);
    let pooler = Pooler::start(server.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", pooler.port, database.name);
    let found = eventually(WITHIN, "the pooler takes connections", || {
        let (found, _) = check(&database, &["--database-url", &url]);
        (!found.iter().any(|(_, text)| text.contains("Connection refused"))).then_some(found)
    });
    for (severity, part) in [
        ("error", "replication connection is refused: a connection pooler seems to stand between"),
        ("warning", "database_url leads to a connection pooler"),
        ("note", "max_slot_wal_keep_size"),
    ] {
        assert!(found.iter().any(|(is, text)| is == severity && text.contains(part)), "{part}: {found:#?}");
    }
}

/// PgBouncer before a server.
struct Pooler {
    port: u16,
    _process: Process,
}

impl Pooler {
    fn start(server: u16) -> Pooler {
        let (folder, port) = (scratch::folder("pgbouncer"), scratch::port());
        let file = folder.join("pgbouncer.ini");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = session\n"
        );
        std::fs::write(&file, settings).expect("the folder is ours");
        // It does not run as root.
        let mut command = scratch::ServerUser::find().become_it();
        command.extend([OsString::from("/usr/sbin/pgbouncer"), file.into()]);
        let log = folder.join("log");
        let process = Process::start(&Launch {
            name: "pgbouncer".to_owned(),
            command,
            environment: Vec::new(),
            folder,
            log,
            last_signal: Signal::Kill,
        });
        Pooler { port, _process: process }
    }
}

#[test]
fn a_clock_that_is_wrong_is_named() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    database.sql(
        "alter publication walpost set (publish_via_partition_root = true); create schema late;
         create function late.clock_timestamp() returns timestamptz language sql
             as $$ select pg_catalog.clock_timestamp() - interval '90 s' $$",
    );
    let late = format!("{}?options=-csearch_path%3Dlate,pg_catalog", database.url());
    let (found, code) = check(&database, &["--database-url", &late]);
    assert_found(&found, &[("warning", "the server's clock is 1m ")]);
    assert_eq!(code, 3);
}

#[test]
fn a_positions_topic_that_forgets_is_named() {
    let kafka = Kafka::shared();
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&database);
    database.sql("alter publication walpost set (publish_via_partition_root = true)");
    let topic = format!("{}.positions", database.name);
    let exactly_once = ["--delivery", "exactly_once", "--exactly-once-positions-topic", &topic];
    assert_found(&check(&database, &exactly_once).0, &[("note", &format!("topic {topic} does not exist"))]);
    kafka.create_topic(&topic, 1, &[]);
    assert_found(&check(&database, &exactly_once).0, &[("warning", "has cleanup.policy=delete")]);
    kafka.set_topic_config(&topic, &[("cleanup.policy", "compact")]);
    assert_found(&check(&database, &exactly_once).0, &[]);
}

#[test]
fn status_tells_bytes_from_the_server_and_seconds_from_walpost() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let listen = format!("127.0.0.1:{}", scratch::port());
    let configuration = outbox.configuration(Kafka::shared(), &format!("[http]\nlisten = {listen:?}"));
    let status = |listen: &str| {
        let url = database.url();
        let finished =
            walpost(&["status", "--json", "--database-url", &url, "--slot", &database.name, "--http-listen", listen]);
        assert_eq!(finished.code, 0, "{finished:?}");
        serde_json::from_str::<Value>(&finished.stdout).expect("it is JSON")
    };
    let asleep = status("off");
    assert_eq!((asleep["active"].as_bool(), asleep["lag_seconds"].as_f64()), (Some(false), None));
    assert!(asleep["lag_bytes"].as_i64().is_some_and(|bytes| (0..1 << 30).contains(&bytes)), "{asleep}");

    // What a slot that nobody reads costs, and since when.
    assert_eq!(asleep["wal_status"].as_str(), Some("reserved"));
    assert!(asleep["retained_bytes"].as_i64().is_some_and(|bytes| bytes >= 0) && asleep["inactive_since"].is_string());

    let running = Walpost::start(&configuration);
    let walsender = running.streams(&outbox, WITHIN);
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    let awake = status("off");
    assert_eq!(awake["active_pid"].as_u64(), Some(u64::from(walsender)));
    assert_eq!(awake["application_name"].as_str(), Some("walpost"));
    assert_eq!(awake["lag_seconds"].as_f64(), None, "nobody was asked");
    let asked = status(&listen);
    assert_eq!(asked["walpost"]["state"].as_str(), Some("streaming"));
    assert!(asked["lag_seconds"].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{asked}");

    // A watch looks again until it is interrupted, and tells of what it cannot see.
    let url = database.url();
    let watching = Walpost::command(&[
        "status",
        "--watch=200ms",
        "--database-url",
        &url,
        "--slot",
        &database.name,
        "--http-listen",
        &listen,
    ]);
    eventually(WITHIN, "two looks", || (watching.log().matches("streaming").count() >= 2).then_some(()));
    watching.signal(Signal::Int);
    assert_eq!(watching.wait_exit(WITHIN), 0);
    assert!(!watching.log().contains('\u{1b}'), "it draws on no terminal");
    let watching =
        Walpost::command(&["status", "--watch", "--json", "--database-url", &url, "--slot", "nobody_made_it"]);
    watching.says("walpost check", WITHIN);
    watching.signal(Signal::Int);
    assert_eq!(watching.wait_exit(WITHIN), 0);
    assert_eq!(walpost(&["status", "--watch=1ms"]).code, 2);

    let missing = walpost(&["status", "--database-url", &database.url(), "--slot", "nobody_made_it"]);
    assert!(missing.code == 1 && missing.stderr.contains("walpost check"), "{missing:?}");
}
