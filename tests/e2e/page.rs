//! The status page in a real Chromium: it shows what happens as it happens, asks nobody else, takes nothing from the database
//! for more than text, and decides about dead letters with the token.

use std::{fs, path::PathBuf, thread, time::Duration};

use serde_json::Value;

use crate::support::{
    browser::Browser,
    eventually,
    kafka::Kafka,
    letters::with_letters,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    scratch,
    walpost::Walpost,
};

const WITHIN: Duration = Duration::from_secs(60);
const IMAGE: &str = "<img src=x onerror=\"window.pwned = 1\">";

/// Letters that wait, as a stream writes them; `more` is SQL that gives the columns of row `n`.
fn write_letters(outbox: &Outbox<'_>, count: u32, more: &str) {
    outbox.database.sql(&format!(
        "INSERT INTO walpost.dead_letter (system_identifier, slot, position, event_id, xid, source_table, aggregate_type,
           aggregate_id, event_type, topic, key, payload, header_names, header_values, record_timestamp, reason_class, reason,
           attempts, first_failed_at, last_failed_at, later_delivered, state, park_key)
         SELECT (SELECT system_identifier FROM pg_control_system()), '{slot}', '0000000000000001-' || upper(lpad(to_hex(n), 8, '0')),
           v.event_id, 1, 'walpost.outbox', v.aggregate_type, v.aggregate_id, v.event_type, v.topic, convert_to('k', 'UTF8'), NULL,
           '{{}}', '{{}}', now(), v.class, v.reason, 1, now(), now(), false, v.state, v.park_key
         FROM generate_series(1, {count}) n, LATERAL ({more}) v",
        slot = outbox.slot(),
    ));
}

fn open(walpost: &Walpost) -> Browser {
    let browser = Browser::open();
    browser.go(&format!("http://{}/", walpost.listens()));
    browser
}

/// Nothing was complained of, and nobody else was asked.
fn keeps_to_itself(browser: &Browser, walpost: &Walpost) {
    assert_eq!(browser.console(), Vec::<String>::new());
    let own = format!("http://{}/", walpost.listens());
    let asked = browser.asked();
    assert!(asked.iter().any(|url| url.ends_with("/status")), "{asked:?}");
    let others: Vec<_> = asked.iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:")).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn the_page_follows_what_happens_and_shows_hostile_text_as_text() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let slot = outbox.slot();
    // A slot knows its publication by the name that it had then.
    database.sql(&format!("SELECT pg_drop_replication_slot('{slot}')"));
    database.sql("ALTER PUBLICATION walpost RENAME TO \"</script><script>window.pwned = 1</script>\"");
    database.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
    write_letters(
        &outbox,
        1,
        &format!(
            "SELECT '{IMAGE}' AS event_id, '</td></table>' AS aggregate_type, E'o-\\u202e\\u001b[2J' AS aggregate_id,
                    '\"''><b>' AS event_type, 'no such topic {IMAGE}' AS topic, 'rejected' AS class,
                    '<script>window.pwned = 1</script>' AS reason, 'parked' AS state, sha256('k') AS park_key"
        ),
    );
    let kafka = Kafka::shared();
    let publication = "publication = '</script><script>window.pwned = 1</script>'";
    let walpost = Walpost::start(&outbox.configuration(kafka, publication));
    walpost.streams(&outbox, WITHIN);
    let browser = open(&walpost);
    browser.until("document.getElementById('state').textContent === 'streaming'");
    browser.until("document.querySelectorAll('.chart svg').length === 3");
    keeps_to_itself(&browser, &walpost);

    // What is inserted is there without anybody's doing, and is what it says.
    database.sql(&format!(
        "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload)
         VALUES ('00000000-0000-4000-8000-00000000abcd', 'order', '{IMAGE}', '</script><b>', '{{\"secret\": \"in the payload\"}}')"
    ));
    browser.until("document.getElementById('records').innerText.includes('00000000-0000-4000-8000-00000000abcd')");
    browser.until(&format!("document.getElementById('topics').innerText.includes('{}')", outbox.topic("order")));
    let text = browser.text();
    for hostile in [
        IMAGE,
        "</script><b>",
        "</script><script>window.pwned = 1</script>",
        "</td></table>",
        "\"'><b>",
        "<script>window.pwned = 1</script>",
        "o-\\u{202e}\\u{1b}[2J",
    ] {
        assert!(text.contains(hostile), "{hostile} in {text}");
    }
    assert!(!text.contains("in the payload"), "{text}");
    let strange = "return [window.pwned, document.querySelectorAll('img, b, body script, iframe').length]";
    assert_eq!(browser.run(strange), serde_json::json!([null, 0]));
    let records = walpost.http("/records").expect("it answers").1;
    let records: Value = serde_json::from_str(&records).expect("it is JSON");
    let record = &records["records"][0];
    assert_eq!(record["key"], IMAGE);
    assert!(record["partition"].is_i64() && record["offset"].is_i64(), "{record}");

    // Without http.token_file it says how to decide: nothing that a shell would take for more than a name.
    browser.until("document.querySelector('#aggregates button')");
    browser.click("#letters button[data-name^=discard]");
    let command = browser.run("return document.getElementById('command').textContent");
    assert_eq!(command, format!("walpost -c walpost.toml dead-letter discard --id='{IMAGE}'"));
    assert_eq!(browser.run("return getComputedStyle(document.getElementById('decide-yes')).display"), "none");
    browser.click("#decide-no");

    // On a phone, and by night.
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        browser.resize(360, 740, 2.0, true);
        let wide = "return document.documentElement.scrollWidth";
        assert_eq!(browser.run(wide), 360, "{scheme}: nothing is wider than the screen");
        browser.resize(1280, 900, 1.0, false);
    }
    let ground = "return getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)";
    let dark = browser.run(ground);
    assert!(dark[0].as_i64().is_some_and(|red| red < 60), "{dark}");
    browser.prefer("light");
    let light = browser.run(ground);
    assert!(light[0].as_i64().is_some_and(|red| red > 200), "{light}");
    keeps_to_itself(&browser, &walpost);

    // A process that is gone is told of, and what is old is not shown as new.
    walpost.kill();
    browser.until("!document.getElementById('banner').hidden");
    let banner = browser.run("return document.getElementById('banner').innerText");
    assert!(banner.as_str().is_some_and(|text| text.contains("No answer from walpost since")), "{banner}");
    assert_eq!(browser.run("return document.getElementById('state').textContent"), "no answer");
}

#[test]
fn ten_thousand_dead_letters_are_paged_replayed_and_discarded_with_the_token() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let topic = outbox.topic("order");
    let letter = |class: &str, state: &str, park_key: &str, aggregate: &str| {
        format!(
            "SELECT 'event-' || n AS event_id, 'order' AS aggregate_type, {aggregate} AS aggregate_id, 'Placed' AS event_type,
                    '{topic}' AS topic, '{class}' AS class, 'Kafka says no' AS reason, '{state}' AS state, {park_key} AS park_key"
        )
    };
    write_letters(&outbox, 10_000, &letter("too_large", "dead", "NULL::bytea", "'o-' || n"));
    write_letters(&outbox, 3, &letter("rejected", "parked", "sha256('k')", "'held'").replace("event-", "parked-"));
    let token = scratch::folder("token").join("token");
    fs::write(&token, "a-long-s3cret\n").expect("the folder is ours");
    let more = format!("[http]\ntoken_file = '{}'", token.display());
    let kafka = Kafka::shared();
    let walpost = Walpost::start(&outbox.configuration(kafka, &more));
    walpost.streams(&outbox, WITHIN);
    let state = |event: &str| -> String {
        database.session().get(&format!("SELECT state FROM walpost.dead_letter WHERE event_id = '{event}'"))
    };
    let browser = open(&walpost);
    browser.until("document.getElementById('letters-sum').textContent.startsWith('10,000 dead')");
    browser.until("document.querySelectorAll('#letters tbody tr').length === 50");
    browser.click("#next");
    browser.until("document.querySelector('#letters tbody tr').innerText.includes('event-51')");
    browser.click("#first");
    browser.until("document.querySelector('#letters tbody tr').innerText.includes('event-1')");

    // A wrong token is told, and changes nothing.
    let first = "#letters tbody tr:first-child button[data-name^=replay]";
    browser.click(first);
    browser.until("document.getElementById('decide').open");
    assert_eq!(browser.run("return document.activeElement.id"), "token");
    browser.write("#token", "wrong\u{e007}");
    browser.until("document.getElementById('decide-error').textContent.includes('does not know')");
    let untouched = "SELECT count(*) FROM walpost.dead_letter WHERE replay_requested_at IS NULL AND settled_at IS NULL";
    assert_eq!(database.session().get::<i64>(untouched), 10_003);

    // The right one replays: the row goes, and the record is among the last ones.
    browser.run("document.getElementById('token').value = ''");
    browser.write("#token", "a-long-s3cret\u{e007}");
    browser.until("!document.getElementById('decide').open");
    eventually(WITHIN, "it is sent again", || (state("event-1") == "replayed").then_some(()));
    browser.until("document.querySelector('#records tbody')");
    browser.run("document.getElementById('letters-state').dispatchEvent(new Event('change'))");
    browser.until("document.querySelector('#letters tbody tr').innerText.includes('event-2')");

    // It is not asked for twice, nor kept where another page finds it.
    browser.click("#letters tbody tr:first-child button[data-name^=discard]");
    assert_eq!(browser.run("return getComputedStyle(document.getElementById('decide-token')).display"), "none");
    browser.click("#decide-yes");
    eventually(WITHIN, "it is discarded", || (state("event-2") == "discarded").then_some(()));
    assert_eq!(
        browser.run("return [localStorage.length, sessionStorage.length, document.cookie]"),
        serde_json::json!([0, 0, ""])
    );
    let errors: Vec<_> = browser.console().into_iter().filter(|line| !line.contains("401 (Unauthorized)")).collect();
    assert_eq!(errors, Vec::<String>::new());

    // The same by programs.
    let call = |path: &str, body: &str, token: &str| {
        let head = format!(
            "Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        walpost.request_with("POST", path, &head, body).expect("it answers")
    };
    assert_eq!(call("/dead-letters/discard", r#"{"aggregate": "o-3"}"#, "wrong").0, 401);
    assert_eq!(
        call("/dead-letters/discard", r#"{"aggregate": "o-3"}"#, "a-long-s3cret"),
        (200, r#"{"discarded":1,"still_parked_behind":0}"#.to_owned())
    );
    assert_eq!(call("/dead-letters/discard", r#"{"aggregate": "o-3"}"#, "a-long-s3cret").0, 404);
    // What is parked together goes together.
    let parked = "SELECT id FROM walpost.dead_letter WHERE event_id = 'parked-2'";
    let row: i64 = database.session().get(parked);
    let whole = r#"{"after_later_events":0,"marked":3,"parked_with_them":2,"without_topic":0}"#;
    assert_eq!(
        call("/dead-letters/replay", &format!("{{\"letters\": [{row}]}}"), "a-long-s3cret"),
        (200, whole.to_owned())
    );
    eventually(WITHIN, "all of it is sent again", || {
        let left = "SELECT count(*) FROM walpost.dead_letter WHERE event_id LIKE 'parked-%' AND state <> 'replayed'";
        (database.session().get::<i64>(left) == 0).then_some(())
    });
    let (code, body) = walpost.http("/dead-letters?limit=100").expect("it answers");
    let page: Value = serde_json::from_str(&body).expect("it is JSON");
    assert_eq!((code, page["letters"].as_array().map(Vec::len), &page["dead"]), (200, Some(100), &Value::from(9_997)));
    assert!(body.len() < 100_000 && !body.contains("payload"), "{} bytes", body.len());
}

/// Pictures for the documentation, taken after a quarter of an hour with traffic: only with `WALPOST_TEST_SCREENSHOTS`, the
/// folder to put them into.
#[test]
fn pictures() {
    let Some(folder) = std::env::var_os("WALPOST_TEST_SCREENSHOTS").map(PathBuf::from) else { return };
    let folder = if folder.is_absolute() { folder } else { PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder) };
    fs::create_dir_all(&folder).expect("it can be made");
    let server = Postgres::start(MAIN, &["max_slot_wal_keep_size=2GB"]);
    let database = server.database();
    let outbox = with_letters(&database);
    database.sql(include_str!("../../sql/progress.sql"));
    let topic = outbox.topic("order");
    write_letters(
        &outbox,
        4,
        &format!(
            "SELECT gen_random_uuid()::text AS event_id, 'order' AS aggregate_type, 'o-4711' AS aggregate_id,
                    CASE n WHEN 1 THEN 'OrderPlaced' ELSE 'OrderChanged' END AS event_type, '{topic}' AS topic,
                    CASE n WHEN 1 THEN 'too_large' ELSE 'parked' END AS class,
                    CASE n WHEN 1 THEN 'MessageSizeTooLarge (1310720 bytes, limit 1048576)' ELSE 'waits behind another of its aggregate' END AS reason,
                    'parked' AS state, sha256('k') AS park_key"
        ),
    );
    let token = scratch::folder("token").join("token");
    fs::write(&token, "a-long-s3cret\n").expect("the folder is ours");
    let more = format!("[http]\ntoken_file = '{}'\n[bookmarks]\nevery = '5m'", token.display());
    let walpost = Walpost::start(&outbox.configuration(Kafka::shared(), &more));
    walpost.streams(&outbox, WITHIN);
    let session = database.session();
    let browser = open(&walpost);
    let (interval, minutes) = (Duration::from_millis(250), 15.5);
    let turns = (minutes * 60.0 / interval.as_secs_f64()) as u32;
    for turn in 0..turns {
        // Day and night within minutes, and a batch now and then.
        let wave = 12.0 + 8.0 * (f64::from(turn) / 300.0).sin() + 3.0 * (f64::from(turn) / 37.0).sin();
        let rows = wave as u32 + if turn % 1_400 < 12 { 60 } else { 0 };
        session.run(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             SELECT (array['order', 'payment', 'shipment'])[1 + n % 3], 'o-' || {turn} * 7 % 1000 + n,
                    (array['OrderPlaced', 'PaymentTaken', 'ShipmentSent'])[1 + n % 3], '{{}}' FROM generate_series(1, {rows}) n"
        ));
        thread::sleep(interval);
    }
    browser.run("window.scrollTo(0, 0)");
    let pictures = [
        ("light", "light", 1_200, 1_130, 1.0),
        ("dark", "dark", 1_200, 1_130, 1.0),
        ("phone", "light", 360, 1_400, 1.5),
    ];
    for (name, scheme, width, height, scale) in pictures {
        browser.prefer(scheme);
        browser.resize(width, height, scale, width == 360);
        browser.until("!document.body.classList.contains('stale')");
        browser.photograph(&folder.join(format!("status-page-{name}.png")));
    }
}
