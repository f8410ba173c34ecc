//! What is typed, and what comes of it: the configuration as a whole.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Arg, Args, Command, FromArgMatches, value_parser};
use secrecy::ExposeSecret;
use tempfile::TempDir;

use crate::pipeline::{
    OnUpdate,
    outbox::{AfterPublish, CloudEvents, Format, Mode, Timestamp},
    source_of,
};

use super::{
    Config, ConfigError, Environment, FILE_ARGUMENT, Flags, Needs, OnSlotLoss, Settings,
    keys::{KEYS, Kind},
};

mod schema;

/// A file of the tree is what the code makes it. `WALPOST_TEST_WRITE=1` writes it anew.
pub(super) fn is_as_made(path: &str, made: &str) {
    let file = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WALPOST_TEST_WRITE").is_some_and(|value| value == "1") {
        std::fs::write(&file, made).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == made, "{path} is not what the code makes; WALPOST_TEST_WRITE=1 with this test writes it anew");
}

/// One command line with its file and its variables.
struct Typed {
    directory: TempDir,
    flags: Vec<String>,
    variables: Vec<(String, String)>,
}

fn typed() -> Typed {
    Typed { directory: TempDir::new().unwrap(), flags: Vec::new(), variables: Vec::new() }
}

impl Typed {
    fn flags(mut self, flags: &[&str]) -> Typed {
        self.flags.extend(flags.iter().map(|flag| flag.to_string()));
        self
    }

    fn variable(mut self, name: &str, text: &str) -> Typed {
        self.variables.push((name.to_owned(), text.to_owned()));
        self
    }

    fn file(self, toml: &str) -> Typed {
        let path = self.write("walpost.toml", toml);
        self.flags(&["-c", &path])
    }

    /// A file beside the configuration; its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn environment(&self) -> Environment {
        self.variables.iter().cloned().collect()
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let file = Arg::new(FILE_ARGUMENT).short('c').value_parser(value_parser!(PathBuf));
        let command = Flags::augment_args(Command::new("walpost").no_binary_name(true).arg(file));
        let matches = command.try_get_matches_from(&self.flags).unwrap();
        Settings::gather(&Flags::from_arg_matches(&matches).unwrap(), &self.environment())
    }

    fn resolve(&self, needs: Needs) -> Result<Config, ConfigError> {
        self.settings()?.resolve(&self.environment(), needs)
    }

    fn config(&self) -> Config {
        self.resolve(Needs::NOTHING).unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(&self) -> String {
        let error = self.resolve(Needs::NOTHING).expect_err("this should be refused").to_string();
        error.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

#[test]
fn defaults_alone_make_a_configuration() {
    let config = typed().config();
    assert_eq!((config.slot.as_str(), config.publication.as_str()), ("walpost", "walpost"));
    assert_eq!(config.outboxes.len(), 1);
    assert_eq!(
        (config.outboxes[0].name.schema.as_str(), config.outboxes[0].name.table.as_str()),
        ("walpost", "outbox")
    );
    assert_eq!(config.outboxes[0].topic, "outbox.event.${aggregate_type}".parse().unwrap());
    assert_eq!(config.outboxes[0].timestamp, Timestamp::Commit);
    assert_eq!(config.on_update, OnUpdate::Ignore);
    assert_eq!(config.confirm_interval, Duration::from_millis(20));
    assert_eq!(config.status_interval, Duration::from_secs(10));
    assert_eq!(config.shutdown_grace, Duration::from_secs(10));
    assert_eq!((config.in_flight_records, config.in_flight_bytes), (5000, 16 << 20));
    assert_eq!(config.unknown_topic_timeout, Duration::from_secs(60));
    assert_eq!(config.unauthorized_timeout, None);
    assert_eq!(config.takeover_timeout, Duration::from_secs(60));
    assert_eq!(config.on_slot_loss, OnSlotLoss::Recover);
    let exactly_once = typed().flags(&["--delivery", "exactly_once"]).config();
    assert_eq!(exactly_once.on_slot_loss, OnSlotLoss::Halt);
    assert!(!config.topics.create);
    assert_eq!((config.topics.partitions, config.topics.replication), (None, None));
    assert_eq!(config.http_listen, Some(SocketAddr::from(([127, 0, 0, 1], 9464))));
    assert_eq!(config.kafka.iter().count(), 0);
}

#[test]
fn a_flag_prevails_over_a_variable_and_a_variable_over_the_file() {
    let file = "slot = 'file'\npublication = 'file'\nbrokers = 'file:1'\nkafka.linger.ms = 1";
    let config = typed()
        .file(file)
        .variable("WALPOST_SLOT", "variable")
        .variable("WALPOST_PUBLICATION", "variable")
        .variable("WALPOST_KAFKA_LINGER_MS", "2")
        .flags(&["--slot", "flag", "--kafka", "linger.ms=3"])
        .config();
    assert_eq!(config.slot, "flag");
    assert_eq!(config.publication, "variable");
    assert_eq!(config.brokers, "file:1");
    assert_eq!(config.kafka.get("linger.ms"), Some("3"));

    let typed = typed();
    let path = typed.write("other.toml", "slot = 'other'");
    assert_eq!(typed.variable("WALPOST_CONFIG", &path).config().slot, "other");
}

#[test]
fn another_name_of_a_property_is_the_same_property() {
    let file = "[kafka]\n'queue.buffering.max.ms' = 5\n'compression.codec' = 'lz4'";
    let config = typed().file(file).flags(&["--kafka", "linger.ms=0"]).config();
    assert_eq!(config.kafka.iter().collect::<Vec<_>>(), [("compression.type", "lz4"), ("linger.ms", "0")]);
    let twice = typed().file("[kafka]\n'linger.ms' = 5\n'queue.buffering.max.ms' = 5").error();
    assert_eq!(twice, "walpost.toml: kafka.linger.ms: this is given twice, by one name or by two");
}

#[test]
fn numbers_and_switches_may_be_texts() {
    let config = typed()
        .variable("WALPOST_IN_FLIGHT_RECORDS", "17")
        .variable("WALPOST_TOPICS_CREATE", "true")
        .flags(&["--in-flight-bytes", "1MiB", "--topics-partitions", "6", "--http-listen", "off"])
        .file("topics.replication = '3'\nkafka.socket.keepalive.enable = true")
        .config();
    assert_eq!((config.in_flight_records, config.in_flight_bytes), (17, 1 << 20));
    assert!(config.topics.create);
    assert_eq!((config.topics.partitions, config.topics.replication), (Some(6), Some(3)));
    assert_eq!(config.http_listen, None);
    assert_eq!(config.kafka.get("socket.keepalive.enable"), Some("true"));
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    for (toml, expected) in [
        ("slto = 'x'", "walpost.toml: slto is no key; did you mean slot?"),
        ("topic = 'x'", "walpost.toml: topic is no key; did you mean route.topic?"),
        ("[route]\ntopc = 'x'", "walpost.toml: route.topc is no key; did you mean route.topic?"),
        ("[columns]\nagregate_id = 'x'", "walpost.toml: columns.agregate_id is no key; did you mean aggregate_id?"),
        ("[[outbox]]\ntabel = 'x'", "walpost.toml: outbox[0].tabel is no key; did you mean table?"),
        ("colour = 'x'", "walpost.toml: colour is no key; `walpost config show` lists all keys"),
        ("[kafka]\n'acsk' = 1", "walpost.toml: kafka.acsk: acsk is no property of librdkafka; did you mean acks?"),
    ] {
        assert_eq!(typed().file(toml).error(), expected);
    }
    assert_eq!(
        typed().flags(&["--column", "agregate_id=x"]).error(),
        "--column agregate_id: agregate_id is no key; did you mean aggregate_id?"
    );
    assert_eq!(
        typed().variable("WALPOST_BROKER", "x").error(),
        "WALPOST_BROKER is no variable of walpost; did you mean WALPOST_BROKERS?"
    );
    typed().variable("WALPOST_TEST_SEEDS", "1").config();
}

#[test]
fn a_choice_takes_its_words_and_no_other() {
    let choices = KEYS.iter().filter_map(|key| match key.kind {
        Kind::Choice(words) => Some((key, words)),
        _ => None,
    });
    for (key, words) in choices {
        let flag = format!("--{}", key.flag().unwrap());
        let of_format = if key.path.starts_with("cloudevents.") { "cloudevents" } else { "native" };
        // A connector has keys that must be given.
        for word in words.iter().filter(|word| **word != "debezium" || key.path != "format") {
            typed().variable("WALPOST_FORMAT", of_format).flags(&[&flag, word]).config();
        }
    }
    assert_eq!(
        typed().file("snapshot = true").error(),
        "walpost.toml: snapshot: true is not a value of snapshot; use \"initial\" or \"never\""
    );
    assert_eq!(
        typed().file("[[outbox]]\ntable = 'a'\npreset = 'state'").error(),
        "walpost.toml: outbox[0].preset: \"state\" is not a value of preset; \
         use \"walpost\" or \"debezium\" or \"destination\" or \"status\""
    );
}

/// A key that nobody reads would be accepted and ignored: each must refuse what it cannot be.
#[test]
fn every_key_is_read() {
    for key in KEYS {
        let error = typed().file(&format!("{} = [[1]]", key.path)).error();
        assert!(error.starts_with(&format!("walpost.toml: {}", key.path)), "{}: {error}", key.path);
    }
    for part in super::keys::COLUMNS {
        let error = typed().file(&format!("columns.{part} = [1]")).error();
        assert!(error.starts_with(&format!("walpost.toml: columns.{part}: a list is not a text")), "{error}");
    }
}

#[test]
fn errors_name_the_place_the_problem_and_the_remedy() {
    let duration = "write a number and a unit, as in \"20ms\", \"5s\" or \"7d\"";
    for (typed, expected) in [
        (
            typed().file("confirm_interval = 20"),
            format!("walpost.toml: confirm_interval: 20 is not a duration; {duration}"),
        ),
        (
            typed().variable("WALPOST_ROUTE_UNKNOWN_TOPIC_TIMEOUT", "soon"),
            format!("WALPOST_ROUTE_UNKNOWN_TOPIC_TIMEOUT: \"soon\" is not a duration; {duration}"),
        ),
        (
            typed().flags(&["--in-flight-records", "0"]),
            "--in-flight-records: 0 is not a count; write a whole number from 1".to_owned(),
        ),
        (
            typed().flags(&["--slot", "Orders"]),
            "--slot: \"Orders\" is no slot; PostgreSQL takes up to 63 of a-z, 0-9 and _".to_owned(),
        ),
        (
            typed().file("route.topic = '${a'"),
            "walpost.toml: route.topic: the template \"${a\" opens ${ and never closes it; write ${column}".to_owned(),
        ),
        (
            typed().flags(&["--http-listen", "localhost"]),
            "--http-listen: \"localhost\" is not an address; \
             write a number and a port, as in \"127.0.0.1:9464\", or \"off\""
                .to_owned(),
        ),
        (
            typed().flags(&["--publication", "\"P\""]),
            "--publication: write the name \"\\\"P\\\"\" as the catalog holds it, without SQL's quotes".to_owned(),
        ),
        (
            typed().file("route = 'x'"),
            "walpost.toml: route: this is a section; write [route] and a line for each member".to_owned(),
        ),
        (
            typed().file("brokers = 'a:1,,b:2'"),
            "walpost.toml: brokers: an entry of the list is empty; write host:port joined by commas".to_owned(),
        ),
    ] {
        assert_eq!(typed.error(), expected);
    }
    let syntax = typed().file("slot = 'a'\n\nbrokers = = 'b'").error();
    assert!(syntax.starts_with("walpost.toml:3:11: "), "{syntax}");
}

#[test]
fn a_command_says_what_it_needs() {
    let error = |needs| typed().resolve(needs).unwrap_err().to_string();
    assert_eq!(
        error(Needs::DATABASE),
        "database_url is not set; give it as --database-url, as WALPOST_DATABASE_URL, or in the file that -c names"
    );
    assert_eq!(
        error(Needs::KAFKA),
        "brokers is not set; give it as --brokers, as WALPOST_BROKERS, or in the file that -c names"
    );
    let both = typed().flags(&["--brokers", "kafka:9092", "--database-url", "postgres://walpost@localhost/app"]);
    assert_eq!(both.resolve(Needs::BOTH).unwrap().brokers, "kafka:9092");
}

#[test]
fn bounds_are_compared() {
    let error = typed().flags(&["--confirm-interval", "11s"]).error();
    assert!(error.starts_with("--confirm-interval: 11s is above the status_interval of 10s"), "{error}");
    typed().flags(&["--confirm-interval", "10s"]).config();
    assert!(typed().flags(&["--confirm-interval", "0s"]).error().contains("above 0"));
    assert!(typed().flags(&["--in-flight-bytes", "0"]).error().contains("above 0"));
    let error = typed().flags(&["--takeover-timeout", "19s"]).error();
    assert!(error.starts_with("--takeover-timeout: 19s is not twice the status_interval of 10s"), "{error}");
    typed().flags(&["--takeover-timeout", "20s"]).config();

    for outside in ["50ms", "2h"] {
        let error = typed().flags(&["--progress-interval", outside]).error();
        assert!(error.contains("is not from 100ms to 1h"), "{error}");
    }

    let queue = |messages, kbytes| {
        let messages = format!("queue.buffering.max.messages={messages}");
        let kbytes = format!("queue.buffering.max.kbytes={kbytes}");
        let config = typed().flags(&["--kafka", &messages, "--kafka", &kbytes]).config();
        (config.in_flight_records, config.in_flight_bytes)
    };
    assert_eq!(queue(1000, 1024), (1000, 1 << 20));
    assert_eq!(queue(5001, 65536), (5000, 16 << 20));
    assert_eq!(queue(0, 65536), (5000, 16 << 20));

    let interval =
        |interval| typed().flags(&["--delivery", "exactly_once", "--exactly-once-commit-interval", interval]);
    let error = interval("1m").error();
    assert!(error.contains("1m is not below transaction.timeout.ms, 60000 ms"), "{error}");
    interval("59s").config();
}

#[test]
fn what_walpost_owns_may_be_repeated_but_not_changed() {
    let config = typed()
        .file("brokers = 'localhost:1'\n[kafka]\n'bootstrap.servers' = 'localhost:1'\nacks = -1\n'enable.idempotence' = true")
        .flags(&["--kafka", "delivery.timeout.ms=0"])
        .config();
    assert_eq!(config.kafka.iter().count(), 0);
    assert_eq!(
        typed().file("[kafka]\n'delivery.timeout.ms' = 1000").error(),
        "walpost.toml: kafka.message.timeout.ms: walpost needs message.timeout.ms=0: \
         a record that times out here would be lost or overtaken; leave it out"
    );
    assert!(typed().flags(&["--kafka", "max.in.flight=6"]).error().contains("write 5 or less"));
}

#[test]
fn several_outboxes_share_what_stands_above_them() {
    let toml = r#"
        preset = "debezium"
        columns = { aggregate_id = "order_id", headers = "meta" }
        route.topic = "all.${aggregate_type}"

        [[outbox]]
        table = '"App"."OutBox"'

        [[outbox]]
        table = "payments"
        preset = "walpost"
        columns = { aggregate_id = "payment_id" }
        route.topic = "payments"
        record.timestamp = "column"
    "#;
    let config = typed().file(toml).flags(&["--route-topic", "flag"]).config();
    let [app, payments] = config.outboxes.as_slice() else { panic!("{:?}", config.outboxes) };
    assert_eq!((app.name.schema.as_str(), app.name.table.as_str()), ("App", "OutBox"));
    assert_eq!(app.columns.aggregate_id, "order_id");
    assert_eq!(app.columns.event_type.name, "type");
    assert_eq!(app.topic, "flag".parse().unwrap());
    assert_eq!(app.timestamp, Timestamp::Commit);
    assert_eq!((payments.name.schema.as_str(), payments.name.table.as_str()), ("public", "payments"));
    assert_eq!(payments.columns.aggregate_id, "payment_id");
    assert_eq!(payments.columns.headers.name, "meta");
    assert_eq!(payments.columns.event_type.name, "event_type");
    assert_eq!(payments.topic, "payments".parse().unwrap());
    assert_eq!(payments.timestamp, Timestamp::Column);

    for (toml, expected) in [
        (
            "table = 'a'\n[[outbox]]\ntable = 'b'",
            "walpost.toml: table: with [[outbox]] tables each has a `table` of its own; leave this one out",
        ),
        (
            "[[outbox]]\ntable = 'a'\n[[outbox]]\ntable = 'public.A'",
            "walpost.toml: outbox[1].table: another [[outbox]] has this table already",
        ),
        (
            "[[outbox]]\ntable = 'a'\nslot = 'b'",
            "walpost.toml: outbox[0].slot: this holds for the whole process; write slot above the [[outbox]] tables",
        ),
        (
            "[[outbox]]\ntable = 'a b'",
            "walpost.toml: outbox[0].table: \"a b\" holds a character that SQL takes only in double quotes, \
             as in \"order events\"",
        ),
        (
            "[[outbox]]\npreset = 'debezium'",
            "walpost.toml: outbox[0]: each [[outbox]] names its table; write `table` (or `message_prefix`)",
        ),
        ("outbox = []", "walpost.toml: outbox: the list is empty; write at least one [[outbox]], or `table`"),
        ("outbox = 'a'", "walpost.toml: outbox: write each outbox as a table of its own, [[outbox]]"),
    ] {
        assert_eq!(typed().file(toml).error(), expected);
    }
    let shared = typed().file("[[outbox]]\ntable = 'a'").flags(&["--route-topic", "${"]).error();
    assert!(shared.starts_with("--route-topic: the template"), "{shared}");
}

#[test]
fn secrets_may_be_in_files() {
    let typed = typed();
    let url = typed.write("url", "postgres://u:p@localhost/app\n");
    let password = typed.write("password", "hush\r\n");
    let typed = typed
        .flags(&["--database-url-file", &url])
        .variable("WALPOST_KAFKA_SASL_PASSWORD_FILE", &password)
        .file("[kafka]\n'sasl.password' = 'from the file below'");
    let config = typed.resolve(Needs::DATABASE).unwrap();
    assert_eq!(config.kafka.get("sasl.password"), Some("hush"));

    let both = format!("database_url = 'x'\ndatabase_url_file = '{url}'");
    let error = super::tests::typed().file(&both).error();
    assert!(error.contains("is given too; leave one of them out"), "{error}");
    let error = super::tests::typed().flags(&["--kafka", "sasl.password_file=/nowhere/password"]).error();
    assert_eq!(error, "--kafka sasl.password_file: the file /nowhere/password cannot be read");
    let empty = typed.write("empty", "\n");
    let error = super::tests::typed().flags(&["--database-url-file", &empty]).error();
    assert!(error.ends_with("empty is empty"), "{error}");
}

#[test]
fn secrets_are_never_shown() {
    let toml = r#"
        database_url = "postgres://u:s3cret@localhost/app"
        [kafka]
        "sasl.password" = "s3cret"
        "ssl.key.password" = "s3cret"
        "ssl.keystore.password" = "s3cret"
        "sasl.oauthbearer.config" = "scope=s3cret"
        "sasl.username" = "visible"
    "#;
    let typed_all = typed().file(toml);
    let settings = typed_all.settings().unwrap();
    let config = typed_all.resolve(Needs::DATABASE).unwrap();
    assert_eq!(config.kafka.get("sasl.password"), Some("s3cret"));
    let shown = [settings.to_toml(&config), settings.to_json(&config).unwrap(), format!("{config:?} {config:#?}")];
    assert!(shown[0].contains("user=u password=***"), "{}", shown[0]);
    for text in shown {
        assert!(text.contains("visible"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }

    // Nor do errors repeat them.
    for toml in [
        "database_url = 'postgres://u:s3cret@localhost/app",
        "database_url = 'postgres://u:%s3cret@localhost/app'",
        "database_url = 'password=s3cret s3cret'",
        "database_url = ['s3cret']",
        "database_url = { s3cret = 1 }",
        "kafka.sasl.password = ['s3cret']",
        "[kafka]\n'ssl.key.pem' = 's3cret'\n'ssl.key.pem' = 's3cret'",
        "[kafka]\n'sasl.oauthbearer.client.secret' = 's3cret'",
    ] {
        let error = format!("{:?}", anyhow::Error::from(typed().file(toml).resolve(Needs::NOTHING).unwrap_err()));
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn webhooks_are_signed_with_secrets_that_nothing_prints() {
    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let typed = typed();
    let next = typed.write("next", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n");
    let typed = typed.variable("WALPOST_WEBHOOK_SECRET", KEY).flags(&["--webhook-secret-next-file", &next]);
    let (config, settings) = (typed.config(), typed.settings().unwrap());
    let keys: Vec<_> = config.webhook.secrets.iter().map(|key| key.bytes().expose_secret().len()).collect();
    assert_eq!(keys, [24, 32]);
    for text in [settings.to_toml(&config), settings.to_json(&config).unwrap(), format!("{config:?}")] {
        assert!(!text.contains("MfKQ9r8") && !text.contains("AAECAw"), "{text}");
    }
    let twice = format!("[webhook]\nsecret = '{KEY}'\nsecret_file = 'x'");
    for (toml, problem) in [
        ("webhook.secret = 's3cretMfKQ9r8GKYqrTwjUPD8ILPZ'", "webhook.secret: this does not begin with whsec_"),
        ("webhook.secret = 'whsec_s3cret,'", "webhook.secret: what follows whsec_ is no base64"),
        ("webhook.secret = 'whsec_czNjcmV0'", "webhook.secret: the secret has 6 bytes; take 24 to 64"),
        ("webhook.secret_next = 'whsec_s3cret'", "webhook.secret_next: what follows whsec_ is no base64"),
        (twice.as_str(), "is given too; leave one of them out"),
    ] {
        let error = super::tests::typed().file(toml).error();
        assert!(error.contains(problem) && !error.contains("s3cret"), "{error}");
    }
    let error = super::tests::typed().file(&format!("webhook.secret_next = '{KEY}'")).error();
    assert!(error.contains("webhook.secret is not set, which this is to follow"), "{error}");
}

#[test]
fn a_webhook_passes_on_headers_that_nobody_else_makes() {
    let headers = |names: &str| typed().file(&format!("webhook.headers = '{names}'"));
    let names = headers("X-Tenant, authorization,x-tenant").config().webhook.headers;
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-tenant", "authorization"]);
    for name in ["Host", "content-length", "Transfer-Encoding", "webhook-id", "X-Event-Anything", "idempotency-key"] {
        let error = headers(name).error();
        assert!(error.contains(&format!("a row cannot set {name}: walpost or the connection does")), "{error}");
    }
    for name in ["x y", "x:", "x,,y", "\u{e4}"] {
        assert!(headers(name).error().contains("is no name of a header"), "{name}");
    }
}

#[test]
fn bounds_of_webhooks_hold_together() {
    let webhook = typed().config().webhook;
    let seconds = Duration::from_secs;
    assert_eq!((webhook.timeout, webhook.backoff, webhook.backoff_max), (seconds(10), seconds(1), seconds(300)));
    assert_eq!((webhook.attempts_max, webhook.lanes, webhook.allow_private), (10, 64, false));
    for (toml, problem) in [
        ("webhook.timeout = '0s'", "webhook.timeout: this must be above 0"),
        ("webhook.backoff = '6m'", "webhook.backoff: this must be above 0 and at most webhook.backoff_max"),
        ("webhook.lanes = 0", "webhook.lanes: 0 is not a count"),
        ("webhook.attempts_max = 0", "webhook.attempts_max: 0 is not a count"),
        ("webhook.ca_file = '/nowhere/ca.pem'", "webhook.ca_file: the file /nowhere/ca.pem cannot be read"),
    ] {
        let error = typed().file(toml).error();
        assert!(error.contains(problem), "{error}");
    }
    let typed = typed();
    let file = typed.write("ca.pem", "no certificate\n");
    let error = typed.flags(&["--webhook-ca-file", &file]).error();
    assert!(error.ends_with("ca.pem holds no certificate in PEM"), "{error}");
}

#[test]
fn the_example_loads_and_what_is_shown_loads_again() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/walpost.toml");
    let several =
        "[kafka]\n'linger.ms' = 5\n[[outbox]]\ntable = '\"A.b\"'\ncolumns.id = 'key'\n[[outbox]]\ntable = 'b'";
    for typed_once in [typed().flags(&["-c", example, "--route-topic", "a.${b}"]), typed().file(several)] {
        let shown = typed_once.settings().unwrap().to_toml(&typed_once.config());
        let again = typed().file(&shown);
        assert_eq!(format!("{:?}", again.config()), format!("{:?}", typed_once.config()));
    }
    let orders = typed().flags(&["--slot", "orders"]);
    let shown = orders.settings().unwrap().to_toml(&orders.config());
    assert!(shown.lines().any(|line| line.starts_with("slot = \"orders\"") && line.ends_with("# --slot")), "{shown}");
}

#[test]
fn a_preset_brings_its_topic_unless_one_is_given() {
    let topics = |toml: &str| -> Vec<String> {
        let outboxes = typed().file(toml).config().outboxes;
        outboxes.iter().map(|outbox| format!("{:?}", outbox.topic)).collect()
    };
    let topic = |text: &str| format!("{:?}", text.parse::<crate::pipeline::template::Template>().unwrap());
    let usual = "outbox.event.${aggregate_type}";
    assert_eq!(topics("preset = 'destination'"), [topic("${destination}")]);
    assert_eq!(topics("preset = 'status'\nroute.topic = 'outbox.event.${aggregate_type}'"), [topic(usual)]);
    let several = "preset = 'status'\n[[outbox]]\ntable = 'a'\npreset = 'destination'\n[[outbox]]\ntable = 'b'\n\
                   [[outbox]]\ntable = 'c'\npreset = 'debezium'\n[[outbox]]\ntable = 'd'\nroute.topic = 'x'";
    assert_eq!(
        topics(several),
        [topic("${destination}"), topic("outbox.event.${event_type}"), topic(usual), topic("x")]
    );
}

#[test]
fn what_is_done_after_publishing_is_the_outboxs_own() {
    let config = typed()
        .file("[[outbox]]\ntable = 'a'\nafter_publish = 'mark'\ncolumns.status = 'state'\n[[outbox]]\ntable = 'b'");
    let outboxes = config.config().outboxes;
    let AfterPublish::Mark(marks) = &outboxes[0].after_publish else { panic!("it is marked") };
    assert_eq!((&*marks.status.name, marks.status.named, &*marks.published_at.name), ("state", true, "published_at"));
    assert_eq!(outboxes[1].after_publish, AfterPublish::Keep);
}

#[test]
fn an_outbox_may_be_messages_in_place_of_a_table() {
    for typed in [
        typed().flags(&["--message-prefix", "outbox"]),
        typed().variable("WALPOST_MESSAGE_PREFIX", "outbox"),
        typed().file("message_prefix = \"outbox\""),
        typed().file("[[outbox]]\nmessage_prefix = \"outbox\""),
    ] {
        let config = typed.config();
        assert!(config.outboxes.is_empty() && config.wants_messages(), "{:?}", typed.flags);
        let [outbox] = &config.messages[..] else { panic!("{:?}", config.messages) };
        assert_eq!(outbox.name, source_of("outbox"));
        assert_eq!(outbox.topic, "outbox.event.${aggregate_type}".parse().unwrap());
    }
    assert!(!typed().config().wants_messages());
}

#[test]
fn messages_stand_beside_tables_and_take_nothing_of_theirs() {
    let typed = typed().file(
        "preset = \"destination\"\nafter_publish = \"mark\"\norder_by = \"created_at\"\n[columns]\nid = \"event\"\n\
         [[outbox]]\ntable = \"app.events\"\n\
         [[outbox]]\nmessage_prefix = \"a\"\n\
         [[outbox]]\nmessage_prefix = \"b\"\nroute.topic = \"b.${region}\"\nrecord.timestamp = \"column\"\n",
    );
    let config = typed.config();
    assert_eq!(config.outboxes.len(), 1);
    let [a, b] = &config.messages[..] else { panic!("{:?}", config.messages) };
    assert_eq!((a.name.clone(), b.name.clone()), (source_of("a"), source_of("b")));
    assert_eq!(a.topic, "outbox.event.${aggregate_type}".parse().unwrap());
    assert_eq!(b.topic, "b.${region}".parse().unwrap());
    assert_eq!((&*a.columns.id, &a.after_publish, a.order_by.len()), ("id", &AfterPublish::Keep, 0));
    assert_eq!((a.timestamp, b.timestamp), (Timestamp::Commit, Timestamp::Column));
    assert_eq!(config.prefixes(), "\"a\" or \"b\"");
}

#[test]
fn what_is_about_tables_cannot_stand_beside_a_prefix() {
    for (key, remedy) in [
        ("table = \"a.b\"", "an outbox is a table or messages"),
        ("columns.id = \"x\"", "leave columns out"),
        ("preset = \"debezium\"", "leave preset out"),
        ("order_by = \"x\"", "leave order_by out"),
        ("after_publish = \"delete\"", "leave after_publish out"),
        ("format = \"debezium\"", "DecodeLogicalDecodingMessageContent"),
    ] {
        for file in [format!("message_prefix = \"p\"\n{key}"), format!("[[outbox]]\nmessage_prefix = \"p\"\n{key}")] {
            let error = typed().file(&file).error();
            let name = key.split(['.', ' ']).next().unwrap();
            assert!(error.contains(remedy) && error.contains(name), "{file}: {error}");
        }
    }
    let error = typed().file("format = \"debezium\"\n[[outbox]]\nmessage_prefix = \"p\"").error();
    assert_eq!(error, "walpost.toml: format: no [[outbox]] is the connector's; write one for each of its tables");
    let twice = "[[outbox]]\nmessage_prefix = \"p\"\n[[outbox]]\nmessage_prefix = \"p\"";
    let error = typed().file(twice).error();
    assert_eq!(error, "walpost.toml: outbox[1].message_prefix: another [[outbox]] has this prefix already");
    let error = typed().file("message_prefix = \"p\"\n[[outbox]]\ntable = \"a.b\"").error();
    assert!(error.contains("leave this one out"), "{error}");
    let error = typed().file("[[outbox]]\nmessage_prefix = \"\"").error();
    assert!(error.contains("outbox[0].message_prefix: this is empty"), "{error}");
    let error = typed().file("message_prefix = \"\"").error();
    assert!(error.contains("this is empty"), "{error}");
    assert!(typed().file("[[outbox]]\nformat = \"native\"").error().contains("write `table` (or `message_prefix`)"));
}

#[test]
fn cloudevents_have_a_source_a_type_and_a_mode() {
    let formats = |toml: &str| -> Vec<CloudEvents> {
        let outboxes = typed().file(toml).config().outboxes.into_iter();
        let formats = outboxes.filter_map(|outbox| match outbox.format {
            Format::CloudEvents(format) => Some(format),
            Format::Native | Format::Debezium(_) => None,
        });
        formats.collect()
    };
    let by_default = CloudEvents {
        mode: Mode::Binary,
        source: "/app/walpost/outbox".to_owned(),
        event_type: "${event_type}".parse().unwrap(),
        content_type: None,
    };
    let url = "database_url = 'postgres://u@localhost/app'\nformat = 'cloudevents'\n";
    assert_eq!(formats(url), std::slice::from_ref(&by_default));
    let odd = "database_url = \"dbname='a/b é' host=x user=u\"\nformat = 'cloudevents'\ntable = '\"A.b\".\"c d\"'";
    assert_eq!(formats(odd)[0].source, "/a%2Fb%20%C3%A9/A.b/c%20d");
    let messages = typed().file(&format!("{url}message_prefix = 'events'")).config().messages;
    let [Format::CloudEvents(format)] = [&messages[0].format] else { panic!("{messages:?}") };
    assert_eq!(format.source, "/app/pg_logical_emit_message/events");

    let several = format!(
        "{url}[cloudevents]\nmode = 'structured'\nsource = 'https://example.com/app'\n[[outbox]]\ntable = 'a'\n\
         cloudevents.type = 'com.example.${{event_type}}'\n[[outbox]]\ntable = 'b'\n[outbox.cloudevents]\nmode = 'binary'\n\
         source = 'urn:x:y'\ncontent_type = 'application/avro'\n[[outbox]]\ntable = 'c'\nformat = 'native'"
    );
    let all = CloudEvents { mode: Mode::Structured, source: "https://example.com/app".to_owned(), ..by_default };
    let first = CloudEvents { event_type: "com.example.${event_type}".parse().unwrap(), ..all.clone() };
    let content_type = Some("application/avro".to_owned());
    let second = CloudEvents { mode: Mode::Binary, source: "urn:x:y".to_owned(), content_type, ..all };
    assert_eq!(formats(&several), [first, second]);
}

#[test]
fn what_no_cloudevent_can_have_is_refused() {
    for (key, expected) in [
        ("source = 'a b'", "source: \"a b\" is no URI-reference of RFC 3986"),
        ("source = '/%zz'", "source: \"/%zz\" is no URI-reference of RFC 3986"),
        ("source = 'https://exämple.com'", "source: \"https://exämple.com\" is no URI-reference of RFC 3986"),
        ("source = ''", "source: this is empty; leave it out or give it a value"),
        ("type = ''", "type: this is empty; leave it out or give it a value"),
        ("type = '${'", "type: the template \"${\" opens ${ and never closes it; write ${column}"),
        ("type = \"a\\tb\"", "type: the type has a control character or a noncharacter of Unicode"),
        ("mode = 'batched'", "mode: \"batched\" is not a value of cloudevents.mode; use \"binary\" or \"structured\""),
        (
            "content_type = 'json'",
            "content_type: \"json\" is no media type of a payload; write one such as \"application/json\"",
        ),
        (
            "content_type = 'application/cloudevents+json'",
            "content_type: \"application/cloudevents+json\" is no media type",
        ),
    ] {
        let error = typed().file(&format!("format = 'cloudevents'\n[cloudevents]\n{key}")).error();
        // What is every outbox's own is refused where it is read.
        let error = error.replace("outbox[0].", "");
        assert!(error.starts_with(&format!("walpost.toml: cloudevents.{expected}")), "{error}");
    }
    let flag = typed().flags(&["--cloudevents-source", "/a"]).error();
    let only = "this means something with format = \"cloudevents\" only; leave it out, or set the format";
    assert_eq!(flag, format!("--cloudevents-source: {only}"));
    let own = "format = 'cloudevents'\n[[outbox]]\ntable = 'a'\n[[outbox]]\ntable = 'b'\nformat = 'native'\ncloudevents.mode = 'binary'";
    assert_eq!(typed().file(own).error(), format!("walpost.toml: outbox[1].cloudevents: {only}"));
    assert!(typed().variable("WALPOST_CLOUDEVENTS_SUORCE", "/a").settings().is_err());
}

#[test]
fn a_configuration_of_cloudevents_that_is_shown_loads_again() {
    let once =
        typed().file("format = 'cloudevents'\n[cloudevents]\nsource = '/orders'\n[columns]\ntracestate = 'state'");
    let shown = once.settings().unwrap().to_toml(&once.config());
    assert!(shown.contains("[cloudevents]") && shown.contains("source = \"/orders\""), "{shown}");
    assert_eq!(format!("{:?}", typed().file(&shown).config()), format!("{:?}", once.config()));
}

#[test]
fn brokers_elsewhere_are_spoken_to_over_tls_unless_somebody_says_otherwise() {
    for (brokers, more, protocol) in [
        ("localhost:9092,127.0.0.1:9093", None, None),
        ("kafka:9092", None, Some("ssl")),
        ("localhost:9092,kafka:9092", None, Some("ssl")),
        ("kafka:9092", Some("sasl.mechanism=PLAIN"), Some("sasl_ssl")),
        ("kafka:9092", Some("security.protocol=plaintext"), Some("plaintext")),
        ("kafka:9092", Some("linger.ms=5"), Some("ssl")),
    ] {
        let flags: Vec<_> =
            ["--brokers", brokers].into_iter().chain(more.iter().flat_map(|more| ["--kafka", *more])).collect();
        let config = typed().flags(&flags).resolve(Needs::NOTHING).unwrap();
        assert_eq!(config.kafka.get("security.protocol"), protocol, "{brokers} {more:?}");
    }
    let shown = typed().flags(&["--brokers", "kafka:9092"]).settings().unwrap();
    let config = typed().flags(&["--brokers", "kafka:9092"]).resolve(Needs::NOTHING).unwrap();
    let line = shown.to_toml(&config).lines().find(|line| line.contains("security.protocol")).map(str::to_owned);
    assert!(line.is_some_and(|line| line.contains("\"ssl\"") && line.ends_with("# default")));
}
