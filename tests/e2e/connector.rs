//! A Debezium connector's own configuration in place of walpost's: what is told of it, made for it and found in the way.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Map, Value};

use crate::support::{
    eventually,
    kafka::Kafka,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    records::Isolation,
    scratch,
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);
const TABLE: &str =
    "CREATE TABLE public.outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL,
                     type text NOT NULL, payload jsonb)";

/// The connector of the outbox in this database, with these keys laid over it; an empty value takes one away.
fn connector(database: &Database<'_>, more: &[(&str, &str)]) -> String {
    connector_of("postgres", database, more)
}

fn connector_of(role: &str, database: &Database<'_>, more: &[(&str, &str)]) -> String {
    let (port, brokers) = (database.server.port().to_string(), Kafka::shared().brokers());
    let router = "io.debezium.transforms.outbox.EventRouter";
    let string = "org.apache.kafka.connect.storage.StringConverter";
    let mut config = Map::new();
    for (key, value) in [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("database.hostname", "127.0.0.1"),
        ("database.port", &port),
        ("database.user", role),
        ("database.dbname", &database.name),
        ("topic.prefix", "dbz"),
        ("plugin.name", "pgoutput"),
        ("slot.name", &database.name),
        ("publication.name", "dbz_pub"),
        ("publication.autocreate.mode", "filtered"),
        ("table.include.list", "public.outbox"),
        ("snapshot.mode", "no_data"),
        ("tasks.max", "1"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", router),
        ("transforms.outbox.route.topic.replacement", &format!("{}.$1", database.name)),
        ("transforms.outbox.route.topic.regex", "(.*)"),
        ("key.converter", string),
        ("value.converter", string),
        ("producer.override.bootstrap.servers", &brokers),
    ]
    .iter()
    .chain(more)
    {
        match *value {
            "" => drop(config.remove(*key)),
            value => drop(config.insert((*key).to_owned(), Value::from(value))),
        }
    }
    Value::Object(config).to_string()
}

fn file(configuration: &str) -> PathBuf {
    let file = scratch::folder("connector").join("connector.json");
    fs::write(&file, configuration).expect("the folder is ours");
    file
}

/// Another command than `run` with a connector's file.
fn command(arguments: &[&str], configuration: &str) -> Finished {
    let file = file(configuration);
    walpost(&[arguments, &["-c", file.to_str().expect("the path is UTF-8")]].concat())
}

/// Waits until the slot is streamed, and gives the publication: for all tables, operations, via root, tables beside walpost's.
fn started(database: &Database<'_>, running: &Walpost) -> String {
    let session = database.session();
    eventually(WITHIN, "the slot is streamed", || {
        assert!(running.is_running(), "{}", running.log());
        session.value(&format!(
            "SELECT max(r.pid) FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid
             WHERE s.slot_name = '{}' AND r.state = 'streaming'",
            database.name
        ))
    });
    session
        .value(
            "SELECT concat_ws(' ', puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot,
                              (SELECT string_agg(schemaname || '.' || tablename, ',' ORDER BY tablename)
                               FROM pg_publication_tables WHERE pubname = 'dbz_pub' AND schemaname <> 'walpost'))
             FROM pg_publication WHERE pubname = 'dbz_pub'",
        )
        .expect("there is a publication")
}

fn stop(running: &Walpost) {
    assert_eq!(running.terminate(WITHIN), 0, "{}", running.log());
}

#[test]
fn a_filtered_publication_is_made_and_told_of_tables_that_it_lacks() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        database.sql(&format!("{TABLE}; CREATE TABLE public.outbox_b (LIKE public.outbox INCLUDING ALL); CREATE TABLE public.orders (id int)"));
        let one = connector(&database, &[]);
        let running = Walpost::start_connector(&one, &[], &[]);
        assert_eq!(started(&database, &running), "f t t t t f public.outbox", "{version}");
        let log = running.log();
        assert!(
            log.contains("keys of the connector that mean nothing here (walpost config import says why): tasks.max"),
            "{log}"
        );
        assert!(log.contains("made in the database: create publication dbz_pub for table public.outbox"), "{log}");
        stop(&running);
        // Nothing is left to be made, and a second start makes nothing.
        let running = Walpost::start_connector(&one, &[], &[]);
        started(&database, &running);
        assert!(!running.log().contains("made in the database"), "{}", running.log());
        stop(&running);

        let two = connector(&database, &[("table.include.list", r"public\.outbox.*")]);
        let running = Walpost::start_connector(&two, &[], &[]);
        assert_eq!(started(&database, &running), "f t t t t f public.outbox,public.outbox_b", "{version}");
        stop(&running);
        assert_eq!(
            database.session().value("SELECT count(*) FROM walpost.progress").as_deref(),
            Some("1"),
            "{version}"
        );
    }
}

#[test]
fn each_mode_makes_its_publication() {
    let server = Postgres::shared(MAIN);
    for (more, made) in [
        (&[("publication.autocreate.mode", "")][..], "t t t t t f public.orders,public.outbox"),
        (&[("publication.autocreate.mode", "no_tables")], "f t t t t f"),
        (&[("publish.via.partition.root", "true")], "f t t t t t public.outbox"),
    ] {
        let database = server.database();
        database.sql(&format!("{TABLE}; CREATE TABLE public.orders (id int)"));
        let running = Walpost::start_connector(&connector(&database, more), &[], &[]);
        assert_eq!(started(&database, &running), made, "{more:?}");
        stop(&running);
    }
}

#[test]
fn what_cannot_be_made_names_the_right_and_the_remedy() {
    let server = Postgres::shared(MAIN);
    let database = server.database();
    let role = format!("dbz_{}", database.name);
    database.sql(&format!("{TABLE}; CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'"));
    let ends = |configuration: &str, parts: &[&str]| {
        let running = Walpost::start_connector(configuration, &[], &[]);
        assert_ne!(running.wait_exit(WITHIN), 0, "{}", running.log());
        let log = running.log();
        for part in parts {
            assert!(log.contains(part), "{part} is not in {log}");
        }
        let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}'", database.name);
        assert_eq!(database.session().value(&slots).as_deref(), Some("0"), "nothing is left half made");
    };
    let of_role =
        |more: &[(&str, &str)]| connector_of(&role, &database, &[&[("database.password", "x")], more].concat());
    ends(
        &of_role(&[]),
        &[
            "this role may not create publication dbz_pub for table public.outbox",
            "grant create on database",
            "someone who may runs: create publication dbz_pub for table public.outbox",
        ],
    );
    database.sql(&format!("GRANT CREATE ON DATABASE {} TO {role}", database.name));
    ends(&of_role(&[]), &["only the owner of public.outbox may publish it"]);
    ends(
        &of_role(&[("publication.autocreate.mode", "all_tables")]),
        &["create publication dbz_pub for all tables", "publication.autocreate.mode = filtered"],
    );
    ends(&of_role(&[("publication.autocreate.mode", "disabled")]), &["publication.autocreate.mode is disabled"]);
    ends(
        &connector(&database, &[("table.include.list", "public.outbx")]),
        &["no table of the database is one that the connector takes (public.outbx)"],
    );
    ends(
        &connector(&database, &[("table.include.list", "public.x.*")]),
        &["no table of the database is one that the connector takes (tables public.x.*)"],
    );
    // A publication that someone made is enough; what walpost would keep for itself it does without.
    database.sql(&format!(
        "CREATE PUBLICATION dbz_pub FOR TABLE public.outbox; REVOKE CREATE ON DATABASE {} FROM {role}",
        database.name
    ));
    let running = Walpost::start_connector(&of_role(&[]), &[], &[]);
    started(&database, &running);
    running.says("this role may not create schema walpost", WITHIN);
    stop(&running);
}

#[test]
fn keys_that_nobody_knows_are_told_or_refused() {
    let database = Postgres::shared(MAIN).database();
    database.sql(TABLE);
    let configuration = connector(&database, &[("slot.nmae", "x"), ("max.batch.size", "10")]);
    let running = Walpost::start_connector(&configuration, &[], &[]);
    started(&database, &running);
    let log = running.log();
    assert!(log.contains("slot.nmae is unknown and means nothing; did you mean slot.name?"), "{log}");
    assert_eq!(log.matches("mean nothing here").count(), 1, "{log}");
    stop(&running);
    let strict = command(&["run", "--strict", "--http-listen", "off"], &configuration);
    assert_eq!(strict.code, 2, "{strict:?}");
    assert!(strict.stderr.contains("slot.nmae is no key of a connector; did you mean slot.name?"), "{strict:?}");
}

#[test]
fn check_compares_with_what_is_there() {
    let database = Postgres::shared(MAIN).database();
    database.sql(&format!("{TABLE}; CREATE TABLE public.orders (id int PRIMARY KEY)"));
    let found = |more: &[(&str, &str)]| {
        let finished = command(&["check"], &connector(&database, more));
        (finished.stdout, finished.code)
    };
    let has = |(text, _): &(String, i32), parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    };
    has(
        &found(&[]),
        &[
            "note     publication dbz_pub does not exist in this database yet",
            "walpost run makes it (publication.autocreate.mode = filtered)",
            &format!("note     slot {} does not exist yet", database.name),
        ],
    );
    has(
        &found(&[("publication.autocreate.mode", "disabled")]),
        &["error    publication dbz_pub does not exist in this database, and publication.autocreate.mode is disabled"],
    );
    has(
        &found(&[("table.include.list", "public.x.*")]),
        &[
            "error    publication dbz_pub does not exist in this database, and the database has no table that the connector takes",
        ],
    );
    has(
        &found(&[("transforms.outbox.table.field.event.key", "nokey")]),
        &["error    table public.outbox has no column nokey, which table.field.event.key needs"],
    );
    // As the connector left them.
    database.sql("CREATE PUBLICATION dbz_pub FOR TABLE public.outbox");
    database.sql(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", database.name));
    let (right, _) = found(&[]);
    // Topics of other stories could be this connector's.
    let is_fault = |line: &str| line.starts_with("error ") && !line.starts_with("error    topic ");
    assert!(!right.lines().any(is_fault) && !right.contains("publishes updates"), "{right}");
    has(
        &found(&[("table.include.list", "public.outbox,public.orders")]),
        &["note     publication dbz_pub does not publish public.orders yet"],
    );
    has(
        &found(&[("table.include.list", "public.outbox,public.orders"), ("publication.autocreate.mode", "disabled")]),
        &["error    publication dbz_pub does not publish public.orders"],
    );
    // Without a router updates become records too.
    database.sql("ALTER PUBLICATION dbz_pub SET (publish = 'insert')");
    has(
        &found(&[
            ("transforms", ""),
            ("transforms.outbox.type", ""),
            ("transforms.outbox.route.topic.regex", ""),
            ("transforms.outbox.route.topic.replacement", ""),
        ]),
        &["warning  publication dbz_pub does not publish updates, deletes, of which the connector makes records"],
    );
    let topic = format!("{}.order", database.name);
    Kafka::shared().create_topic(&topic, 1, &[]);
    has(
        &found(&[
            ("transforms.outbox.route.topic.regex", ""),
            ("transforms.outbox.route.topic.replacement", &format!("{}.${{routedByValue}}", database.name)),
            ("topic.creation.default.partitions", "3"),
            ("topic.creation.default.replication.factor", "1"),
        ]),
        &[&format!("note     topic {topic} has 1 partitions; topic.creation.default.partitions is 3")],
    );
}

#[test]
fn other_commands_take_the_connector_too() {
    let database = Postgres::shared(MAIN).database();
    database.sql(TABLE);
    let configuration = connector(&database, &[("table.include.list", "public.outbox.*")]);
    let made = command(&["setup", "--yes"], &configuration);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stdout.contains("create publication dbz_pub for table public.outbox"), "{made:?}");
    for arguments in [&["status"][..], &["dead-letter", "list"], &["config", "show"], &["bookmark", "list"]] {
        let done = command(arguments, &configuration);
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
    }
    let pruned = command(&["prune", "--dry-run"], &configuration);
    assert!(pruned.stderr.contains("which rows of public.outbox are published"), "{pruned:?}");
    let shown = command(&["config", "show"], &configuration).stdout;
    assert!(shown.contains("connector.json: slot.name") && shown.contains("\"topic.prefix\" = \"dbz\""), "{shown}");
    let torn = command(&["teardown", "--yes", "--drop-data"], &configuration);
    assert_eq!(torn.code, 0, "{torn:?}");
    assert_eq!(database.session().value("SELECT max(pubname) FROM pg_publication"), None, "{torn:?}");
}

fn insert(database: &Database<'_>, table: &str, n: u32) {
    database.sql(&format!(
        "INSERT INTO {table} VALUES ('00000000-0000-4000-8000-{n:012}', 'order', 'o-{n}', 'placed', '{{\"n\": {n}}}')"
    ));
}

/// All payloads in the topic of the test, once there are so many or more.
fn arrived(database: &Database<'_>, count: usize) -> Vec<String> {
    let topic = format!("{}.order", database.name);
    let mut reader = Kafka::shared().reader(&[&topic], Isolation::Uncommitted, WITHIN);
    reader.until(WITHIN, &format!("{count} records of {topic}"), |records| records.len() >= count);
    let records = reader.until_end(WITHIN);
    let text = |value: &Option<Vec<u8>>| String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
    let mut payloads: Vec<_> = records.iter().map(|record| text(&record.value)).collect();
    payloads.sort();
    payloads
}

fn payloads(numbers: &[u32]) -> Vec<String> {
    numbers.iter().map(|n| format!("{{\"n\": {n}}}")).collect()
}

#[test]
fn a_table_that_appears_is_taken_from_its_first_row() {
    let database = Postgres::shared(MAIN).database();
    database.sql(TABLE);
    let more = [
        ("table.include.list", "public.outbox.*"),
        ("topic.creation.default.partitions", "2"),
        ("topic.creation.default.replication.factor", "-1"),
        ("topic.creation.groups", "orders"),
        ("topic.creation.orders.include", ".*order"),
        ("topic.creation.orders.partitions", "3"),
    ];
    let running = Walpost::start_connector(&connector(&database, &more), &[], &[]);
    started(&database, &running);
    insert(&database, "public.outbox", 1);
    assert_eq!(arrived(&database, 1), payloads(&[1]));
    assert_eq!(Kafka::shared().partitions(&format!("{}.order", database.name)), Some(3));
    database.sql(
        "CREATE TABLE public.outbox_new (LIKE public.outbox INCLUDING ALL);
         ALTER PUBLICATION dbz_pub ADD TABLE public.outbox_new",
    );
    insert(&database, "public.outbox_new", 2);
    assert_eq!(arrived(&database, 2), payloads(&[1, 2]));
    running.says("table public.outbox_new is one that the connector takes", WITHIN);
    stop(&running);
}

#[test]
fn a_partition_that_the_topic_lacks_makes_a_dead_letter() {
    let database = Postgres::shared(MAIN).database();
    database.sql(&format!("{TABLE}; ALTER TABLE public.outbox ADD part int DEFAULT 0"));
    let more = [("transforms.outbox.table.fields.additional.placement", "part:partition")];
    let running = Walpost::start_connector(&connector(&database, &more), &[], &[]);
    started(&database, &running);
    insert(&database, "public.outbox", 1);
    assert_eq!(arrived(&database, 1), payloads(&[1]));
    database.sql("ALTER TABLE public.outbox ALTER part SET DEFAULT 99");
    insert(&database, "public.outbox", 2);
    database.sql("ALTER TABLE public.outbox ALTER part SET DEFAULT 0");
    insert(&database, "public.outbox", 3);
    eventually(WITHIN, "the dead letter is there", || {
        assert!(running.is_running(), "{}", running.log());
        database
            .session()
            .value("SELECT max(reason) FROM walpost.dead_letter WHERE reason LIKE '%does not have the partition%'")
    });
    arrived(&database, 2);
    stop(&running);
}

#[test]
fn rows_of_tables_that_are_gone_are_sent_all_the_same() {
    let database = Postgres::shared(MAIN).database();
    database.sql(TABLE);
    let more = [("table.include.list", "public.outbox.*"), ("publication.autocreate.mode", "all_tables")];
    let running = Walpost::start_connector(&connector(&database, &more), &[], &[]);
    started(&database, &running);
    stop(&running);
    database.sql("CREATE TABLE public.outbox_brief (LIKE public.outbox INCLUDING ALL)");
    insert(&database, "public.outbox_brief", 1);
    database.sql("ALTER TABLE public.outbox_brief RENAME TO outbox_kept");
    insert(&database, "public.outbox_kept", 2);
    database.sql("DROP TABLE public.outbox_kept");
    insert(&database, "public.outbox", 3);
    let running = Walpost::start_connector(&connector(&database, &more), &[], &[]);
    assert_eq!(arrived(&database, 3), payloads(&[1, 2, 3]));
    stop(&running);
}

#[test]
fn partitions_that_match_come_under_the_name_of_their_root() {
    let database = Postgres::shared(MAIN).database();
    database.sql(
        "CREATE TABLE public.outbox (id uuid, aggregatetype text, aggregateid text, type text, payload jsonb, day int)
         PARTITION BY RANGE (day);
         CREATE TABLE public.outbox_1 PARTITION OF public.outbox DEFAULT",
    );
    let more = [("table.include.list", "public.outbox.*"), ("publish.via.partition.root", "true")];
    for n in 1..=2 {
        let running = Walpost::start_connector(&connector(&database, &more), &[], &[]);
        started(&database, &running);
        insert(&database, "public.outbox", n);
        arrived(&database, n as usize);
        assert!(!running.log().contains("was not known"), "{}", running.log());
        stop(&running);
    }
    assert_eq!(arrived(&database, 2), payloads(&[1, 2]));
}

#[test]
fn older_rows_come_first_or_alone() {
    let server = Postgres::shared(MAIN);
    let database = server.database();
    database.sql(TABLE);
    insert(&database, "public.outbox", 1);
    let running = Walpost::start_connector(&connector(&database, &[("snapshot.mode", "")]), &[], &[]);
    started(&database, &running);
    assert_eq!(arrived(&database, 1), payloads(&[1]));
    insert(&database, "public.outbox", 2);
    assert_eq!(arrived(&database, 2), payloads(&[1, 2]));
    stop(&running);

    let database = server.database();
    database.sql(TABLE);
    insert(&database, "public.outbox", 3);
    let only = connector(&database, &[("snapshot.mode", "initial_only")]);
    for _ in 0..2 {
        let running = Walpost::start_connector(&only, &[], &[]);
        assert_eq!(running.wait_exit(WITHIN), 0, "{}", running.log());
        assert_eq!(arrived(&database, 1), payloads(&[3]));
        insert(&database, "public.outbox", 4);
        database.sql("DELETE FROM public.outbox WHERE aggregateid = 'o-4'");
    }
}
