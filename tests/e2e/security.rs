//! TLS, passwords and rights, on both sides: what is missing is named, what is secret is not.

use std::time::{Duration, Instant};

use crate::support::{
    certificates::Authority,
    eventually,
    kafka::Kafka,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    scratch,
    streamed::{freed, transactions},
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(90);
/// What an operator may wait for a reason.
const SOON: Duration = Duration::from_secs(30);

const DATABASE_PASSWORD: &str = "p@ss'w\"ord %41 ü";
const KAFKA_PASSWORD: &str = "k@fka's \"own\"";

#[test]
fn tls_and_scram_to_both_servers_and_secrets_in_no_output() {
    let authority = Authority::new();
    let server = Postgres::configure(MAIN)
        .tls(authority.server())
        .hba("hostssl all app 127.0.0.1/32 scram-sha-256")
        .set("password_encryption", "scram-sha-256")
        .start();
    server.sql(&format!("CREATE ROLE app LOGIN REPLICATION PASSWORD '{}'", DATABASE_PASSWORD.replace('\'', "''")));
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::configure().sasl_tls(authority.server()).start();
    kafka.add_user("walpost", KAFKA_PASSWORD);
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let folder = scratch::folder("security");
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("the folder is ours");
    let ca = ca.display();

    let configuration = |database_password: &str, kafka_password: &str| {
        let mut more = toml::Table::new();
        let url = format!(
            "postgres://app:{}@127.0.0.1:{}/{}?sslmode=verify-full&sslrootcert={ca}&channel_binding=require",
            percent_encoded(database_password),
            server.port(),
            database.name
        );
        more.insert("database_url".to_owned(), url.into());
        let properties = [
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "walpost"),
            ("sasl.password", kafka_password),
            ("ssl.ca.location", &ca.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value.into()));
        more.insert("kafka".to_owned(), toml::Table::from_iter(properties).into());
        outbox.configuration(&kafka, &more.to_string())
    };
    let start = |configuration: &str| Walpost::start_with(configuration, &["--log-level", "trace"], &[]);
    let mut writer = outbox.writer();

    let walpost = start(&configuration(DATABASE_PASSWORD, KAFKA_PASSWORD));
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 3, padding: 10 });
    outbox.delivered(&kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    for page in ["/metrics", "/healthz", "/readyz", "/status"] {
        keeps_secrets(&walpost.http(page).unwrap_or_else(|| panic!("{page} answers")).1);
    }
    assert_eq!(walpost.terminate(WITHIN), 0);
    keeps_secrets(&walpost.log());
    assert!(!walpost.log().contains("\"pad\""), "a payload is in the log");

    // A wrong password of the database ends it: no other try would be any better.
    let walpost = start(&configuration("not it", KAFKA_PASSWORD));
    assert_eq!(walpost.wait_exit(SOON), 1);
    let log = walpost.log();
    assert!(log.contains("PostgreSQL rejects the password of role app"), "{log}");
    assert!(!log.contains("not it") && !log.contains("not%20it"), "{log}");
    drop(walpost);

    // Kafka's own answer to a wrong password may pass, as when users are being set up: it waits, and says why.
    let before = outbox.confirmed();
    let walpost = start(&configuration(DATABASE_PASSWORD, "not it"));
    writer.bulk(Bulk { transactions: 10, rows: 10, aggregates: 3, padding: 10 });
    eventually(SOON, "the log says that Kafka refuses the password", || {
        walpost.log().contains("SASL authentication error: Authentication failed").then_some(())
    });
    eventually(SOON, "the status says so too", || {
        walpost.http("/status")?.1.contains("SASL authentication error").then_some(())
    });
    assert!(walpost.is_running());
    assert!(!walpost.log().contains("not it"), "{}", walpost.log());
    assert_eq!(outbox.confirmed(), before);
    drop(walpost);

    // What a file holds is a secret too, and `config show` shows none.
    let configuration = configuration(DATABASE_PASSWORD, KAFKA_PASSWORD);
    let file = folder.join("walpost.toml");
    std::fs::write(&file, &configuration).expect("the folder is ours");
    let shown = walpost_config(&["config", "show", "-c", &file.display().to_string()]);
    keeps_secrets(&shown);
    let walpost = start(&configuration);
    outbox.delivered(&kafka, &["bulk"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn missing_rights_in_kafka_are_named_and_waited_for() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::configure().access_lists().set("auto.create.topics.enable", "false").start();
    kafka.add_user("walpost", "s3cret");
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 1, &[]);
    let login = "[kafka]\n'security.protocol' = 'sasl_plaintext'\n'sasl.mechanism' = 'SCRAM-SHA-512'\n\
                 'sasl.username' = 'walpost'\n'sasl.password' = 's3cret'";
    // In what it says from some place of its log on.
    let says = |walpost: &Walpost, from: usize, right: &str| {
        let text = format!("kafka principal User:walpost lacks the right {right}");
        eventually(SOON, &text, || walpost.log()[from..].contains(&text).then_some(()));
        assert!(walpost.is_running());
    };
    let mut writer = outbox.writer();
    let describe = ["--operation", "Describe", "--topic", &topic];
    let write = ["--operation", "Write", "--topic", &topic];

    // Nothing at all: what it may not even see it may not write.
    let walpost = Walpost::start(&outbox.configuration(&kafka, login));
    writer.one("order", "o-1");
    let before = outbox.confirmed();
    let right = format!("WRITE on topic {topic} ");
    says(&walpost, 0, &right);
    // Then it sees the topic, and gets no producer id.
    kafka.allow("walpost", &describe);
    says(&walpost, walpost.log().len(), &right);
    assert_eq!(outbox.confirmed(), before);
    kafka.allow("walpost", &write);
    outbox.delivered(&kafka, &["order"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);

    // Taken away in mid-stream, and given back.
    kafka.disallow("walpost", &write);
    kafka.disallow("walpost", &describe);
    let before = outbox.confirmed();
    let said = walpost.log().len();
    for n in 0..20 {
        writer.one("order", &format!("o-{}", n % 3));
    }
    says(&walpost, said, &right);
    let (end, confirmed): (u64, u64) =
        (writer.session.get("SELECT (pg_current_wal_lsn() - '0/0')::bigint"), outbox.confirmed());
    assert!(confirmed >= before && confirmed < end);
    // Who may write here may not there: the other topic is named.
    kafka.allow("walpost", &write);
    outbox.delivered(&kafka, &["order"], WITHIN).assert_complete();
    let other = outbox.topic("other");
    kafka.create_topic(&other, 1, &[]);
    writer.one("other", "x");
    says(&walpost, 0, &format!("WRITE on topic {other} "));
    kafka.allow("walpost", &["--operation", "Write", "--topic", &other]);
    outbox.delivered(&kafka, &["order", "other"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);

    // A topic that it is to make itself.
    let made = outbox.topic("made");
    let walpost = Walpost::start(&outbox.configuration(&kafka, &format!("topics.create = true\n{login}")));
    writer.one("made", "m");
    says(&walpost, 0, &format!("CREATE on topic {made},"));
    assert_eq!(kafka.partitions(&made), None);
    for operation in ["Create", "Write"] {
        kafka.allow("walpost", &["--operation", operation, "--topic", &made]);
    }
    outbox.delivered(&kafka, &["order", "other", "made"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_right_that_is_given_back_loses_nothing_and_one_that_is_not_ends_the_run() {
    const TIMEOUT: Duration = Duration::from_secs(20);
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::configure().access_lists().set("auto.create.topics.enable", "false").start();
    kafka.add_user("walpost", "s3cret");
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 2, &[]);
    let write = ["--operation", "Write", "--topic", &topic];
    kafka.allow("walpost", &write);
    let configuration = |timeout: Duration, more: &str| {
        let more = format!(
            "unauthorized_timeout = '{}s'\n{more}[kafka]\n'security.protocol' = 'sasl_plaintext'\n\
             'sasl.mechanism' = 'SCRAM-SHA-512'\n'sasl.username' = 'walpost'\n'sasl.password' = 's3cret'",
            timeout.as_secs()
        );
        outbox.configuration(&kafka, &more)
    };
    let mut writer = outbox.writer();
    let mut write_some = || (0..20).for_each(|n| writer.one("order", &format!("o-{}", n % 3)));
    let walpost = Walpost::start(&configuration(TIMEOUT, ""));
    write_some();
    outbox.drained(WITHIN);

    // For a while.
    let missing = format!("kafka principal User:walpost lacks the right WRITE on topic {topic} ");
    kafka.disallow("walpost", &write);
    write_some();
    walpost.says(&missing, SOON);
    kafka.allow("walpost", &write);
    outbox.delivered(&kafka, &["order"], WITHIN).assert_complete();
    outbox.drained(WITHIN);

    // For good; that it was missing before does not count.
    kafka.disallow("walpost", &write);
    let taken = Instant::now();
    write_some();
    let end: u64 = database.session().get("SELECT (pg_current_wal_lsn() - '0/0')::bigint");
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    assert!(taken.elapsed() >= TIMEOUT && outbox.confirmed() < end);
    let log = walpost.log();
    let error = log.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(&missing) && error.contains("unauthorized_timeout (20s) is over"), "{log}");
    freed(&outbox);
    let held = transactions(&outbox);
    assert_eq!(held.len(), 20, "all of them are still the slot's");
    kafka.allow("walpost", &write);

    // Exactly once there is no right to the transactional id.
    let walpost = Walpost::start(&configuration(Duration::from_secs(2), "delivery = 'exactly_once'\n"));
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(log.contains("error: kafka principal User:walpost lacks the right WRITE and DESCRIBE on transactional id"));
    assert!(log.contains("unauthorized_timeout (2s) is over"), "{log}");
    freed(&outbox);
    assert_eq!(transactions(&outbox), held);

    let walpost = Walpost::start(&configuration(TIMEOUT, ""));
    outbox.delivered(&kafka, &["order"], WITHIN).assert_complete();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

fn walpost_config(arguments: &[&str]) -> String {
    let finished = walpost(arguments);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    finished.stdout + &finished.stderr
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// No secret, in any form that a log could give it.
fn keeps_secrets(output: &str) {
    let forms = |secret: &str| {
        let escaped = secret.escape_debug().to_string();
        let json = serde_json::to_string(secret).expect("a text has a JSON form").trim_matches('"').to_owned();
        [secret.to_owned(), percent_encoded(secret), openssl::base64::encode_block(secret.as_bytes()), escaped, json]
    };
    for secret in [DATABASE_PASSWORD, KAFKA_PASSWORD] {
        for form in forms(secret) {
            assert!(!output.contains(&form), "{form:?} is in\n{output}");
        }
    }
}
