//! TLS to wherever is not sure to be this machine. `127.1` leads here, and only the resolver knows.

use std::time::Duration;

use serde_json::Value;

use crate::support::{
    certificates::Authority,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

fn elsewhere(address: &str) -> String {
    address.replace("127.0.0.1", "127.1")
}

/// Severity and text of what `check` finds about ways to other machines, remedies included.
fn found(database: &Database<'_>, url: &str, brokers: &str, more: &[&str]) -> Vec<(String, String)> {
    let flags = ["check", "--json", "--database-url", url, "--slot", &database.name, "--brokers", brokers];
    let finished = walpost(&[&flags, more].concat());
    let answer: Value = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let findings = answer["findings"].as_array().expect("a list").iter();
    let findings = findings.map(|finding| {
        let text = |key: &str| finding[key].as_str().expect("a text").to_owned();
        (text("severity"), format!("{} {}; {}", text("about"), text("what"), text("remedy")))
    });
    findings.filter(|(_, text)| text.contains("127.1")).collect()
}

fn assert_one(found: &[(String, String)], severity: &str, words: &[&str]) {
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].0, severity, "{found:#?}");
    assert!(words.iter().all(|word| found[0].1.contains(word)), "{words:?} in {found:#?}");
}

#[test]
fn postgresql_elsewhere_needs_tls_unless_told_otherwise() {
    let local = Kafka::shared().brokers();
    let plain = Postgres::shared(MAIN).database();
    let _outbox = Outbox::create(&plain);
    let url = elsewhere(&plain.url());
    let refused = found(&plain, &url, &local, &[]);
    let unoffered = refused.iter().filter(|(severity, _)| severity == "error").collect::<Vec<_>>();
    assert!(
        unoffered.len() == 1 && unoffered[0].1.contains("sslmode=disable in the connection string"),
        "{refused:#?}"
    );
    let in_clear = found(&plain, &format!("{url}?sslmode=disable"), &local, &[]);
    assert_one(&in_clear, "warning", &["without TLS (sslmode=disable)", "sslmode=verify-full"]);
    assert_eq!(found(&plain, &plain.url(), &local, &[]), []);

    let authority = Authority::new();
    let server = Postgres::configure(MAIN).tls(authority.server()).start();
    let database = server.database();
    let outbox = Outbox::create(&database);
    let url = elsewhere(&database.url());
    assert_one(&found(&database, &url, &local, &[]), "note", &["sslmode=require", "verify-full"]);
    let walpost = Walpost::start(&outbox.configuration(Kafka::shared(), &format!("database_url = '{url}'")));
    let sender = walpost.streams(&outbox, WITHIN);
    let encrypted = database.session().value(&format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {sender}"));
    assert_eq!(encrypted.as_deref(), Some("t"));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn kafka_elsewhere_needs_tls_unless_told_otherwise() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let brokers = elsewhere(&Kafka::shared().brokers());
    let refused = found(&database, &database.url(), &brokers, &[]);
    assert_one(&refused, "error", &["PLAINTEXT broker listener", "--kafka security.protocol=plaintext"]);
    let in_clear = found(&database, &database.url(), &brokers, &["--kafka", "security.protocol=plaintext"]);
    assert_one(&in_clear, "warning", &["without TLS (security.protocol=plaintext)", "ssl.ca.location"]);

    let configuration = outbox.configuration(Kafka::shared(), &format!("brokers = '{brokers}'"));
    let walpost = Walpost::start(&configuration);
    walpost.says("--kafka security.protocol=plaintext", WITHIN);
    drop(walpost);
    let walpost = Walpost::start(&format!("{configuration}\n[kafka]\n'security.protocol' = 'plaintext'"));
    outbox.writer().one("order", "o-1");
    outbox.delivered(Kafka::shared(), &["order"], WITHIN).assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}
