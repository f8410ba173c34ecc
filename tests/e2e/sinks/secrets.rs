//! Secrets are planted wherever there is a place for one, and looked for wherever walpost says something.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::Stdio,
    time::Duration,
};

use super::endpoint::{Answer, Server};
use crate::support::{
    eventually,
    letters::{letters, with_letters},
    postgres::{MAIN, Postgres},
    process::clean,
    scratch,
    walpost::{Finished, Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

/// Long enough to be nowhere by chance, with what URLs and JSON write in other ways.
const PASSFILE: &str = "passfile s3cret/é\"1";
const URL_PASSWORD: &str = "url s3cret/é\"2";
const KEY_PASSWORD: &str = "sslpassword s3cret/é\"3";
const SASL: &str = "sasl s3cret/é\"4";
const KAFKA_KEY: &str = "kafkakey s3cret/é\"5";
const RABBIT: &str = "rabbit s3cret/é\"6";
const TOKEN: &str = "httptoken-s3cret-7";
const PATH: &str = "T0KENinPATHs3cret8";
const QUERY: &str = "T0KENinQUERYs3cret9";
const BY_TYPE: &str = "T0KENbyTYPEs3cret10";
const SIGNING: [&str; 2] =
    ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw0123456789A", "ZzZQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw0123456789Q"];

fn percent_encoded(text: &str, kept: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// What of a text's base64 is the same whatever stands around it, for each place that it can begin at.
fn inner_base64(text: &str) -> Vec<String> {
    let begun_at = |before: usize| {
        let encoded = openssl::base64::encode_block(&[&vec![0; before][..], text.as_bytes()].concat());
        let encoded = encoded.trim_end_matches('=');
        encoded[(before * 8).div_ceil(6)..encoded.len() - 1].to_owned()
    };
    (0..3).map(begun_at).collect()
}

fn assert_silent(said: &str, by: &str) {
    let secrets = [
        PASSFILE,
        URL_PASSWORD,
        KEY_PASSWORD,
        SASL,
        KAFKA_KEY,
        RABBIT,
        TOKEN,
        PATH,
        QUERY,
        BY_TYPE,
        SIGNING[0],
        SIGNING[1],
    ];
    for secret in secrets {
        let mut forms = inner_base64(secret);
        forms.extend(["", "-._~", "-._~ /"].map(|kept| percent_encoded(secret, kept)));
        forms.extend([secret.to_owned(), secret.escape_debug().to_string()]);
        forms.push(serde_json::to_string(secret).expect("a text has a JSON form").trim_matches('"').to_owned());
        for form in forms {
            assert!(!said.contains(&form), "{by} says {form:?}:\n{said}");
        }
    }
}

/// Its whole output.
fn said(finished: Finished) -> String {
    finished.stdout + &finished.stderr
}

#[test]
fn secrets_are_in_nothing_that_walpost_says() {
    let server = Postgres::configure(MAIN).hba("host all all 127.0.0.1/32 scram-sha-256").start();
    let role = |name: &str, password: &str| {
        server.sql(&format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{password}'"));
    };
    role("by_file", PASSFILE);
    role("by_url", URL_PASSWORD);
    let database = server.database();
    let outbox = with_letters(&database);
    let receiver = Server::start();
    receiver.answers(|_| Answer::status(422));
    let folder = scratch::folder("secrets");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the file is ours");
        path.display().to_string()
    };
    let passfile = file("pgpass", &format!("*:*:*:by_file:{PASSFILE}\n"));
    let token = file("token", TOKEN);
    let key_password = percent_encoded(KEY_PASSWORD, "");
    let at = format!("127.0.0.1:{}/{}", server.port(), database.name);
    let rabbit = percent_encoded(RABBIT, "");
    let configuration = format!(
        "database_url = 'postgres://by_file@{at}?passfile={passfile}&sslpassword={key_password}'\n\
         slot = '{slot}'\nbrokers = 'localhost:9092'\n\
         [sink]\nkind = 'webhook'\n\
         [webhook]\nurl = '{url}/{PATH}/${{aggregate_type}}?key={QUERY}'\nallow_private = true\n\
         secret = 'whsec_{}'\nsecret_next = 'whsec_{}'\n\
         [webhook_urls]\nother = '{url}/{BY_TYPE}'\n\
         [kafka]\n'sasl.password' = '{SASL}'\n'ssl.key.password' = '{KAFKA_KEY}'\n\
         [rabbitmq]\nurl = 'amqp://shop:{rabbit}@localhost/'\n\
         [http]\nlisten = '127.0.0.1:{port}'\ntoken_file = '{token}'\n",
        SIGNING[0],
        SIGNING[1],
        slot = outbox.slot(),
        url = receiver.url(),
        port = scratch::port(),
    );
    let toml = file("walpost.toml", &configuration);

    let relay = Walpost::start_with(&configuration, &["--log-level", "trace"], &[]);
    let mut writer = outbox.writer();
    writer.one("order", "o-1");
    writer.session.run("INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'b', 'other', '{}')");
    eventually(WITHIN, "both are dead letters", || (letters(&outbox).len() == 2).then_some(()));
    assert!(receiver.requests().iter().any(|request| request.path.contains(PATH)), "it was asked by its whole URL");
    let topics: String = database.session().get("SELECT string_agg(topic, ' ') FROM walpost.dead_letter");
    assert!(topics.contains(PATH) && topics.contains(QUERY) && topics.contains(BY_TYPE), "{topics}");
    let of_connect = ["/connectors", "/connectors?expand=info&expand=status", "/admin/loggers"];
    for page in ["/", "/metrics", "/healthz", "/readyz", "/status", "/dead-letters", "/records", "/history"]
        .into_iter()
        .chain(of_connect)
    {
        let (_, body) = relay.http(page).unwrap_or_else(|| panic!("{page} is not answered"));
        assert_silent(&body, page);
    }
    for name in ["cmdline", "comm", "status"] {
        let seen = fs::read(format!("/proc/{}/{name}", relay.pid())).expect("it runs");
        assert_silent(&String::from_utf8_lossy(&seen), name);
    }
    for command in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["check"],
        &["check", "--json"],
        &["status"],
        &["status", "--json"],
        &["dead-letter", "list"],
        &["dead-letter", "list", "--json"],
        &["dead-letter", "show", "--all"],
        &["dead-letter", "show", "--all", "--json"],
        &["dead-letter", "replay", "--all", "--dry-run", "--json"],
        &["dead-letter", "discard", "--all", "--dry-run"],
        &["prune", "--dry-run"],
        &["setup", "--dry-run"],
    ] {
        let said = said(walpost(&[command, &["-c", &toml]].concat()));
        assert_silent(&said, &command.join(" "));
        if command.starts_with(&["dead-letter"]) || command.starts_with(&["config"]) {
            assert!(said.contains(&receiver.url()), "the host is told: {said}");
        }
    }
    assert_eq!(relay.terminate(WITHIN), 0);
    assert_silent(&relay.log(), "the log");

    // Settings that are wrong, with a secret in or beside what is wrong.
    for (name, wrong) in [
        ("port", format!("database_url = 'postgres://u:{URL_PASSWORD}@h:x/d'")),
        ("quotes", format!("database_url = \"host=h password={URL_PASSWORD} sslmod=x\"")),
        ("mode", format!("database_url = 'postgres://u:{}@h/d?sslmode=x'", percent_encoded(URL_PASSWORD, ""))),
        ("toml", format!("database_url = 'postgres://u:{PATH}@h/d")),
        ("rabbit", format!("rabbitmq.url = 'amqp://u:{RABBIT}@:x/'")),
        ("secret", format!("webhook.secret = '{PATH}'")),
        ("signing", format!("webhook.secret = 'whsec_{PATH}='")),
        ("hook", format!("sink.kind = 'webhook'\nwebhook.url = 'ftp://h/{PATH}?k={QUERY}'")),
        ("user", format!("sink.kind = 'webhook'\nwebhook.url = 'https://u:{PATH}@h/'")),
        ("unclosed", format!("sink.kind = 'webhook'\nwebhook.url = 'https://h/{PATH}/${{a'")),
        ("list", format!("[kafka]\n'sasl.password' = ['{PATH}']")),
        ("nul", format!("[kafka]\n'ssl.key.password' = \"{PATH}\\u0000\"")),
        ("typo", format!("[kafka]\n'sasl.pasword' = '{PATH}'")),
    ] {
        let path = file(&format!("{name}.toml"), &wrong);
        let finished = walpost(&["config", "show", "-c", &path]);
        assert_ne!(finished.code, 0, "{name}: {finished:?}");
        assert_silent(&said(finished), name);
    }

    // A flag is no place for one, and walpost says so; the variable is.
    let url = format!("postgres://by_url:{}@{at}", percent_encoded(URL_PASSWORD, ""));
    let by_flag = said(walpost(&["status", "--slot", outbox.slot(), "--database-url", &url]));
    assert_silent(&by_flag, "status");
    assert!(by_flag.contains("--database-url holds a secret") && by_flag.contains("WALPOST_DATABASE_URL"), "{by_flag}");
    let plain =
        said(walpost(&["status", "--slot", outbox.slot(), "--database-url", &format!("postgres://by_url@{at}")]));
    assert!(!plain.contains("holds a secret"), "{plain}");
}

#[test]
fn no_core_file_holds_what_was_in_memory() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let url = format!("postgres://postgres:{PATH}@127.0.0.1:{}/{}", database.server.port(), database.name);
    let dies = |allowed: bool| {
        let folder = scratch::folder("core");
        let mut command = clean("sh");
        command.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_walpost")]);
        command.args(["run", "--sink-kind", "stdout", "--http-listen", "off", "--slot", outbox.slot()]);
        command.env("WALPOST_DATABASE_URL", &url).current_dir(&folder);
        if allowed {
            command.env("WALPOST_CORE_DUMPS", "1");
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sh is there");
        eventually(WITHIN, "it streams", || outbox.walsender());
        assert!(
            clean("sh").args(["-c", "kill -ABRT $0", &child.id().to_string()]).status().expect("sh is there").success()
        );
        let status = child.wait().expect("it is ours");
        assert_eq!(status.signal(), Some(6));
        eventually(WITHIN, "the slot is free", || outbox.walsender().is_none().then_some(()));
        (status.core_dumped(), fs::read_dir(&folder).expect("it is ours").count())
    };
    assert_eq!(dies(false), (false, 0));
    // Where the system writes core files into the folder, this is what it is about.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.starts_with(['|', '/', '@']) && !pattern.trim().is_empty() {
        assert_eq!(dies(true), (true, 1));
    }
}
