//! Kafka Connect's calls: a pause keeps the slot and loses nothing, a stop frees the slot, a restart is a new session, and
//! where strangers may call they need the token.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Mode, Postgres},
    process::Signal,
    scratch,
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

fn call(walpost: &Walpost, outbox: &Outbox<'_>, method: &str, action: &str, code: u16) {
    let path = format!("/connectors/{}/{action}", outbox.slot());
    let (answered, body) = walpost.request(method, &path, "").expect("it answers");
    assert_eq!(answered, code, "{path}: {body}");
}

/// Waits until connector and task say so; none: there is no task.
fn is(walpost: &Walpost, outbox: &Outbox<'_>, connector: &str, task: Option<&str>) {
    let path = format!("/connectors/{}/status", outbox.slot());
    eventually(WITHIN, &format!("the connector is {connector}, its task {task:?}"), || {
        let (_, body) = walpost.http(&path)?;
        let status: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
        let of_task = status["tasks"].get(0).map(|task| task["state"].as_str().expect("it has a state").to_owned());
        (status["connector"]["state"] == connector && of_task.as_deref() == task).then_some(())
    });
}

fn delivered(walpost: &Walpost, outbox: &Outbox<'_>) -> f64 {
    let name = format!("walpost_records_delivered_total{{topic=\"{}\"}}", outbox.topic("bulk"));
    walpost.metric(&name).unwrap_or_default()
}

/// Writes 500 events a second until told to stop.
fn load(outbox: &Outbox<'_>, done: &AtomicBool) {
    let mut writer = outbox.writer();
    while !done.load(Ordering::Relaxed) {
        writer.bulk(Bulk { transactions: 10, rows: 1, aggregates: 7, padding: 200 });
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the load, and reports what the story inside came to.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_pause_under_load_keeps_the_slot_and_loses_nothing() {
    // Who gives no feedback is let go after two seconds.
    let server = Postgres::start(MAIN, &["wal_sender_timeout=2s"]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    pauses(&outbox, "");
    let database = server.database();
    let outbox = Outbox::create(&database);
    pauses(&outbox, &outbox.exactly_once());
}

fn pauses(outbox: &Outbox<'_>, more: &str) {
    let (database, kafka) = (outbox.database, Kafka::shared());
    kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, more));
    let walsender = walpost.streams(outbox, WITHIN);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| load(outbox, &done));
        eventually(WITHIN, "it delivers", || (delivered(&walpost, outbox) > 100.0).then_some(()));
        call(&walpost, outbox, "PUT", "pause", 202);
        is(&walpost, outbox, "PAUSED", Some("PAUSED"));
        eventually(WITHIN, "what was in flight is delivered", || {
            (walpost.metric("walpost_in_flight_records")? == 0.0).then_some(())
        });
        let (paused_at, sent) = (outbox.confirmed(), delivered(&walpost, outbox));
        let committed = outbox.committed().len();
        thread::sleep(Duration::from_secs(5)); // more than twice the server's patience
        assert!(outbox.committed().len() > committed, "the load goes on");
        assert_eq!(delivered(&walpost, outbox), sent, "nothing is sent while paused");
        assert!(outbox.confirmed() >= paused_at);
        assert_eq!(outbox.walsender(), Some(walsender), "the slot is kept, by the same walsender");
        let session = database.session();
        eventually(WITHIN, "the feedback goes on", || {
            let age = "SELECT extract(epoch FROM clock_timestamp() - reply_time)::float8 FROM pg_stat_replication";
            (session.get::<f64>(age) < 2.0).then_some(())
        });
        let (code, reasons) = walpost.http("/readyz").expect("it answers");
        assert!(code == 503 && reasons.contains("paused on request"), "{reasons}");
        assert_eq!(walpost.metric("walpost_state{state=\"paused\"}"), Some(1.0));
        assert_eq!(walpost.metric("walpost_up"), Some(0.0));
        assert_eq!(walpost.metric("walpost_lag_seconds"), None, "what is not read is not known");
        assert!(walpost.metric("walpost_lag_bytes").is_some_and(|bytes| bytes > 0.0));
        call(&walpost, outbox, "POST", "restart", 204);
        is(&walpost, outbox, "PAUSED", Some("PAUSED"));
        eventually(WITHIN, "a new session is paused", || (outbox.walsender()? != walsender).then_some(()));
        assert_eq!(delivered(&walpost, outbox), sent, "a restart does not end the pause");
        call(&walpost, outbox, "PUT", "resume", 202);
        is(&walpost, outbox, "RUNNING", Some("RUNNING"));
        eventually(WITHIN, "it delivers again", || (delivered(&walpost, outbox) > sent + 500.0).then_some(()));
    });
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_paused_stream_holds_up_no_shutdown_and_stops_at_once() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, "shutdown_grace = '60s'"));
    walpost.streams(&outbox, WITHIN);
    call(&walpost, &outbox, "PUT", "pause", 202);
    is(&walpost, &outbox, "PAUSED", Some("PAUSED"));
    outbox.writer().bulk(Bulk { transactions: 100, rows: 1, aggregates: 7, padding: 200 });
    let asked = Instant::now();
    server.stop(Mode::Fast, WITHIN);
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
    server.start_again();
    walpost.streams(&outbox, WITHIN);
    is(&walpost, &outbox, "PAUSED", Some("PAUSED"));
    assert_eq!(delivered(&walpost, &outbox), 0.0);
    let asked = Instant::now();
    assert_eq!(walpost.terminate(WITHIN), 0);
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_stop_frees_the_slot_and_a_resume_takes_it_again() {
    for delivery in ["", "exactly once"] {
        let database = Postgres::shared(MAIN).database();
        let outbox = Outbox::create(&database);
        let kafka = Kafka::shared();
        kafka.create_topic(&outbox.topic("bulk"), 3, &[]);
        let more = if delivery.is_empty() { String::new() } else { outbox.exactly_once() };
        let configuration = outbox.configuration(kafka, &more);
        let walpost = Walpost::start(&configuration);
        walpost.streams(&outbox, WITHIN);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = Ends(&done);
            scope.spawn(|| load(&outbox, &done));
            eventually(WITHIN, "it delivers", || (delivered(&walpost, &outbox) > 100.0).then_some(()));
            call(&walpost, &outbox, "PUT", "stop", 204);
            is(&walpost, &outbox, "STOPPED", None);
            let active: String = database
                .session()
                .get(&format!("SELECT active FROM pg_replication_slots WHERE slot_name = '{}'", outbox.slot()));
            assert_eq!(active, "f", "the slot is free");
            assert!(walpost.is_running());
            let (code, reasons) = walpost.http("/readyz").expect("it answers");
            assert!(code == 503 && reasons.contains("stopped on request"), "{reasons}");
            call(&walpost, &outbox, "POST", "restart", 204);
            // Another process may have it meanwhile.
            let other = Walpost::start(&configuration);
            other.streams(&outbox, WITHIN);
            eventually(WITHIN, "the other delivers", || (delivered(&other, &outbox) > 100.0).then_some(()));
            assert_eq!(other.terminate(WITHIN), 0);
            is(&walpost, &outbox, "STOPPED", None);
            call(&walpost, &outbox, "PUT", "resume", 202);
            let walsender = walpost.streams(&outbox, WITHIN);
            is(&walpost, &outbox, "RUNNING", Some("RUNNING"));
            call(&walpost, &outbox, "POST", "tasks/0/restart", 204);
            eventually(WITHIN, "a new session", || (outbox.walsender()? != walsender).then_some(()));
            // However early in its life a session ends, it leaves nothing behind that ends the next one.
            for pause in 0..10 {
                thread::sleep(Duration::from_millis(pause * 40));
                call(&walpost, &outbox, "POST", "restart", 204);
            }
            is(&walpost, &outbox, "RUNNING", Some("RUNNING"));
        });
        outbox.delivered(kafka, &["bulk"], WITHIN).assert_exactly_once();
        outbox.drained(WITHIN);
        call(&walpost, &outbox, "PUT", "stop", 204);
        is(&walpost, &outbox, "STOPPED", None);
        assert_eq!(walpost.terminate(WITHIN), 0, "there is nothing to drain");
    }
}

#[test]
fn what_is_told_of_a_running_connector() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let topic = outbox.topic("order");
    kafka.create_topic(&topic, 1, &[]);
    let walpost = Walpost::start(&outbox.configuration(kafka, ""));
    walpost.streams(&outbox, WITHIN);
    outbox.writer().one("order", "o-1");
    outbox.drained(WITHIN);
    let slot = outbox.slot();
    let get = |path: &str| -> serde_json::Value {
        let (code, body) = walpost.http(path).expect("it answers");
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("it is JSON")
    };
    assert_eq!(get("/connectors"), serde_json::json!([slot]));
    assert_eq!(get(&format!("/connectors/{slot}/topics"))[slot]["topics"], serde_json::json!([topic]));
    let offset = get(&format!("/connectors/{slot}/offsets"))["offsets"][0].clone();
    assert_eq!(offset["partition"]["server"], slot);
    let lsn = offset["offset"]["lsn"].as_u64().expect("it is a number");
    eventually(WITHIN, "the server is told as much", || (outbox.confirmed() >= lsn).then_some(()));
    let committed: f64 = database.session().get("SELECT extract(epoch FROM clock_timestamp())::float8");
    let told = offset["offset"]["ts_usec"].as_f64().expect("a transaction was delivered") / 1e6;
    assert!((committed - 300.0..=committed).contains(&told), "{offset}");
    let config = get(&format!("/connectors/{slot}/config"));
    assert_eq!(config["slot.name"], slot);
    assert_eq!(config["table.include.list"], r"walpost\.outbox");
    assert_eq!(config["transforms.outbox.route.topic.replacement"], outbox.topic("${routedByValue}"));
    let cluster =
        eventually(WITHIN, "it knows Kafka's cluster", || get("/")["kafka_cluster_id"].as_str().map(str::to_owned));
    assert!(!cluster.is_empty());
    // And the command line tells of a pause.
    call(&walpost, &outbox, "PUT", "pause", 202);
    is(&walpost, &outbox, "PAUSED", Some("PAUSED"));
    let listen = walpost.listens().to_string();
    let told = walpost_status(&outbox, &listen);
    assert!(told.contains("paused (paused on request)"), "{told}");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_connectors_file_is_told_as_given_without_secrets() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let configuration = serde_json::json!({"name": "orders", "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": database.server.port().to_string(),
        "database.user": "postgres",
        "database.password": "hush",
        "database.dbname": database.name,
        "topic.prefix": "shop",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "slot.name": outbox.slot(),
        "publication.name": "walpost",
        "publication.autocreate.mode": "disabled",
        "table.include.list": "walpost.outbox",
        "snapshot.mode": "no_data",
        "some.unknown.token": "hush",
        "producer.override.bootstrap.servers": Kafka::shared().brokers(),
    }});
    let walpost = Walpost::start_connector(&configuration.to_string(), &[], &[]);
    let told = eventually(WITHIN, "it answers", || {
        assert!(walpost.is_running(), "walpost has ended");
        walpost.http("/connectors/orders/config")
    });
    let told: serde_json::Value = serde_json::from_str(&told.1).expect("it is JSON");
    let mut expected = configuration["config"].clone();
    expected["name"] = "orders".into();
    expected["database.password"] = "[hidden]".into();
    expected["some.unknown.token"] = "[hidden]".into();
    assert_eq!(told, expected);
}

fn walpost_status(outbox: &Outbox<'_>, listen: &str) -> String {
    let url = outbox.database.url();
    let told = walpost(&["status", "--database-url", &url, "--slot", outbox.slot(), "--http-listen", listen]);
    assert_eq!(told.code, 0, "{told:?}");
    told.stdout
}

#[test]
fn where_strangers_may_call_they_need_the_token() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    let pause = format!("/connectors/{}/pause", outbox.slot());
    let everywhere = |more: &str| {
        let port = scratch::port();
        let walpost =
            Walpost::start(&outbox.configuration(kafka, &format!("[http]\nlisten = '0.0.0.0:{port}'\n{more}")));
        walpost.streams(&outbox, WITHIN);
        walpost
    };
    let walpost = everywhere("");
    let (code, body) = walpost.request("PUT", &pause, "").expect("it answers");
    assert!(code == 403 && body.contains("http.token_file"), "{body}");
    assert_eq!(walpost.terminate(WITHIN), 0);

    let file = scratch::folder("token").join("token");
    std::fs::write(&file, "open sesame\n").expect("the folder is ours");
    let walpost = everywhere(&format!("token_file = '{}'", file.display()));
    for (headers, code) in
        [("", 401), ("Authorization: Bearer sesame\r\n", 401), ("Authorization: Bearer open sesame\r\n", 202)]
    {
        let (answered, body) = walpost.request("PUT", &pause, headers).expect("it answers");
        assert_eq!(answered, code, "{headers}: {body}");
        let paused = code == 202;
        is(
            &walpost,
            &outbox,
            if paused { "PAUSED" } else { "RUNNING" },
            Some(if paused { "PAUSED" } else { "RUNNING" }),
        );
    }
    assert!(!walpost.log().contains("sesame"));
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn a_running_walpost_is_steered_from_the_command_line() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let kafka = Kafka::shared();
    kafka.create_topic(&outbox.topic("bulk"), 1, &[]);
    let folder = scratch::folder("token");
    let (file, token) = (folder.join("walpost.toml"), folder.join("token"));
    std::fs::write(&token, "open sesame\n").expect("the folder is ours");
    let listen = format!("127.0.0.1:{}", scratch::port());
    let http = format!("[http]\nlisten = '{listen}'\ntoken_file = '{}'", token.display());
    let configuration = outbox.configuration(kafka, &http);
    std::fs::write(&file, &configuration).expect("the folder is ours");
    let file = file.to_str().expect("it is UTF-8");
    let order = |words: &[&str]| walpost(&[words, &["-c", file]].concat());
    let told = |words: &[&str]| {
        let finished = order(words);
        assert_eq!(finished.code, 0, "{finished:?}");
        finished.stdout
    };

    let nobody = order(&["pause"]);
    assert!(
        nobody.code == 1 && nobody.stderr.contains(&format!("no walpost answers at http://{listen}")),
        "{nobody:?}"
    );
    let running = Walpost::start(&configuration);
    running.streams(&outbox, WITHIN);
    let slot = outbox.slot();
    assert_eq!(told(&["pause"]), format!("{slot}: paused\n"));
    outbox.writer().bulk(Bulk { transactions: 10, rows: 1, aggregates: 7, padding: 200 });
    assert_eq!(delivered(&running, &outbox), 0.0);
    assert_eq!(told(&["resume"]), format!("{slot}: streaming\n"));
    outbox.drained(WITHIN);
    assert_eq!(told(&["drain"]), format!("{slot}: stopped\n"));
    assert_eq!(outbox.walsender(), None);

    // What takes longer than one waits stands all the same.
    let other = Walpost::start(&outbox.configuration(kafka, ""));
    other.streams(&outbox, WITHIN);
    let late = order(&["resume", "--within", "300ms"]);
    assert!(late.code == 1 && late.stderr.contains("is standby") && late.stderr.contains("stands"), "{late:?}");
    assert!(told(&["resume", "--within", "0s"]).contains("asked for; it is standby"));
    assert_eq!(other.terminate(WITHIN), 0);
    running.streams(&outbox, WITHIN);

    // Neither a stranger's stream is steered, nor this one by who has no token.
    let stranger = order(&["pause", "--slot", "another"]);
    assert!(stranger.code == 1 && stranger.stderr.contains(&format!("is the walpost of slot {slot}")), "{stranger:?}");
    let url = format!("http://{listen}");
    let refused = walpost(&["pause", "--url", &url]);
    assert!(refused.code == 1 && refused.stderr.contains("http.token_file"), "{refused:?}");
    is(&running, &outbox, "RUNNING", Some("RUNNING"));

    assert_eq!(told(&["log-level"]), "root: INFO\n");
    told(&["log-level", "error"]);
    let (said, walsender) = (running.log(), running.streams(&outbox, WITHIN));
    let token = "Authorization: Bearer open sesame\r\n";
    let restarted = running.request("POST", &format!("/connectors/{slot}/restart"), token).expect("it answers");
    assert_eq!(restarted.0, 204, "{restarted:?}");
    eventually(WITHIN, "a new session", || (outbox.walsender()? != walsender).then_some(()));
    assert_eq!(running.log(), said, "a new session is told of at info");
    let wrong = order(&["log-level", "loud"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("is no log level"), "{wrong:?}");
    running.signal(Signal::Hup);
    running.says("the log level is that of the start", WITHIN);
    assert_eq!(told(&["log-level"]), "root: INFO\n");
    assert!(!running.log().contains("sesame"));
    assert_eq!(running.terminate(WITHIN), 0);
}
