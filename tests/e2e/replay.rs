//! Replay: published events are sent again, from the log or from the table, beside a stream that does not notice.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{
    eventually,
    kafka::Kafka,
    letters::{letters, with_letters},
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::{Launch, Process, Signal},
    records::{Isolation, Record},
    scratch,
    streamed::{WITHIN, all, quick, streamed},
    walpost::{Finished, Walpost, walpost},
};

/// A configuration on disk, for commands.
struct Site<'a> {
    outbox: &'a Outbox<'a>,
    file: PathBuf,
}

impl<'a> Site<'a> {
    fn new(outbox: &'a Outbox<'a>, more: &str) -> Site<'a> {
        let file = scratch::folder("site").join("walpost.toml");
        fs::write(&file, quick(outbox, more)).expect("the folder is ours");
        Site { outbox, file }
    }

    fn command(&self, arguments: &[&str]) -> Finished {
        let file = self.file.to_str().expect("it is UTF-8");
        walpost(&[arguments, &["-c", file]].concat())
    }

    fn replay(&self, arguments: &[&str]) -> Finished {
        self.command(&[&["replay"], arguments].concat())
    }

    /// A replay that is left to itself.
    fn launch(&self, arguments: &[&str]) -> Process {
        let folder = scratch::folder("replay");
        let mut command: Vec<OsString> = vec![env!("CARGO_BIN_EXE_walpost").into(), "replay".into()];
        command.extend(arguments.iter().map(OsString::from));
        command.extend(["-c".into(), self.file.clone().into()]);
        let log = folder.join("log");
        Process::start(&Launch {
            name: "walpost replay".to_owned(),
            command,
            environment: Vec::new(),
            folder,
            log,
            last_signal: Signal::Kill,
        })
    }

    fn bookmark(&self, name: &str) {
        let made = self.command(&["bookmark", "create", name]);
        assert_eq!(made.code, 0, "{made:?}");
    }

    /// Every slot of the database: a replay leaves none behind.
    fn slots(&self) -> Vec<String> {
        let slots = format!(
            "SELECT slot_name FROM pg_replication_slots WHERE database = '{}' ORDER BY 1",
            self.outbox.database.name
        );
        self.outbox.database.session().rows(&slots).into_iter().flatten().flatten().collect()
    }

    fn only_bookmark_is_left(&self) {
        let slot = self.outbox.slot();
        eventually(WITHIN, "no copy is left", || {
            (self.slots() == [slot.to_owned(), format!("{slot}_bm_b")]).then_some(())
        });
    }
}

fn done(finished: &Finished, events: usize) {
    assert_eq!(finished.code, 0, "{finished:?}");
    let words = format!("replayed: {events} event");
    assert!(finished.stdout.contains(&words) || finished.stderr.contains(&words), "{finished:?}");
}

/// A record that was sent again, as it was the first time.
fn original(record: &Record) -> Record {
    let mut record = record.clone();
    let mark = record.headers.pop();
    assert_eq!(mark, Some(("replay".to_owned(), Some(b"true".to_vec()))));
    record
}

fn same(sent: &Record, again: &Record) -> bool {
    let again = original(again);
    (&sent.key, &sent.value, &sent.headers, sent.timestamp)
        == (&again.key, &again.value, &again.headers, again.timestamp)
}

fn position(record: &Record) -> String {
    record.header("position").expect("it has one").to_owned()
}

fn lsn(position: &str) -> String {
    let commit = u64::from_str_radix(&position[..16], 16).expect("hexadecimal");
    format!("{:X}/{:X}", commit >> 32, commit as u32)
}

/// Streams twelve events of three transactions of two and six of one, and gives their records in order.
fn stream_twelve<'a>(outbox: &Outbox<'a>, site: &Site<'a>, running: &Walpost) -> Vec<Record> {
    running.streams(outbox, WITHIN);
    site.bookmark("b");
    let mut writer = outbox.writer();
    for n in 0..3 {
        writer.begin();
        writer.event("order", &format!("o-{n}"));
        writer.event("order", "o-x");
        writer.commit();
        writer.one("order", "o-x");
        writer.one("order", &format!("p-{n}"));
    }
    outbox.drained(WITHIN);
    let records = all(&[&outbox.topic("order")]);
    assert_eq!(records.len(), 12);
    records
}

fn from_the_log(version: u16) {
    let database = Postgres::shared(version).database();
    let outbox = Outbox::create(&database);
    let (topic, other) = (outbox.topic("order"), outbox.topic("again"));
    Kafka::shared().create_topic(&topic, 1, &[]);
    Kafka::shared().create_topic(&other, 1, &[]);
    let site = Site::new(&outbox, "");
    let running = Walpost::start(&quick(&outbox, ""));
    let sent = stream_twelve(&outbox, &site, &running);
    let (walsender, confirmed) = (outbox.walsender(), outbox.confirmed());

    // Counted only; then printed, which is what was sent, with its mark.
    let counted = site.replay(&["--bookmark", "b", "--dry-run"]);
    done(&Finished { stdout: counted.stdout.replace("would be ", ""), ..counted }, 12);
    let printed = site.replay(&["--bookmark", "b", "--stdout"]);
    done(&printed, 12);
    let lines: Vec<Value> = printed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 12);
    for (line, record) in lines.iter().zip(&sent) {
        assert_eq!(line["key"].as_str(), record.key_text());
        assert_eq!(line["topic"].as_str(), Some(&*record.topic));
        assert_eq!(line["value"].as_str().map(|text| text.as_bytes().to_vec()), record.value);
        let header =
            |header: &Value| (header["name"].as_str().map(str::to_owned), header["value"].as_str().map(str::to_owned));
        let mut headers: Vec<_> = line["headers"].as_array().expect("a list").iter().map(header).collect();
        assert_eq!(headers.pop(), Some((Some("replay".to_owned()), Some("true".to_owned()))));
        let own = |(name, value): &(String, Option<Vec<u8>>)| {
            (Some(name.clone()), value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned()))
        };
        assert_eq!(headers, record.headers.iter().map(own).collect::<Vec<_>>());
    }
    assert_eq!(all(&[&topic]).len(), 12, "nothing was sent");

    // To another topic: from an event to an event, from a transaction to a transaction, both included.
    done(&site.replay(&["--from-lsn", &position(&sent[1]), "--to-lsn", &position(&sent[4]), "--topic", &other]), 4);
    let (from, to) = (lsn(&position(&sent[5])), lsn(&position(&sent[8])));
    done(&site.replay(&["--from-lsn", &from, "--to-lsn", &to, "--topic", &other]), 6);
    let again = all(&[&other]);
    // The sixth event is the second of its transaction, the ninth the first of its.
    let expected = [1, 2, 3, 4, 4, 5, 6, 7, 8, 9].map(|n: usize| &sent[n]);
    assert_eq!(again.len(), expected.len());
    for (record, expected) in again.iter().zip(expected) {
        assert!(same(expected, record), "{record:?} is {expected:?}");
    }

    // To where they went, beside the stream.
    let mut writer = outbox.writer();
    writer.one("order", "beside");
    done(&site.replay(&["--bookmark", "b", "--to-lsn", &lsn(&position(&sent[11]))]), 12);
    writer.one("order", "beside");
    outbox.drained(WITHIN);
    let records = all(&[&topic]);
    let (marked, plain): (Vec<_>, Vec<_>) = records.iter().partition(|record| record.header("replay").is_some());
    assert_eq!((marked.len(), plain.len()), (12, 14));
    assert!(marked.iter().zip(&sent).all(|(again, sent)| same(sent, again)));
    assert_eq!((outbox.walsender(), outbox.confirmed() >= confirmed), (walsender, true), "the stream went on");
    site.only_bookmark_is_left();
    assert_eq!(running.terminate(WITHIN), 0);
    // Also while nobody streams.
    done(&site.replay(&["--bookmark", "b", "--topic", &other]), 14);
    site.only_bookmark_is_left();
}

#[test]
fn the_log_is_sent_again_as_it_was_on_postgresql_14() {
    from_the_log(14);
}

#[test]
fn the_log_is_sent_again_as_it_was_on_postgresql_18() {
    from_the_log(18);
}

#[test]
fn what_no_slot_holds_is_an_error_that_names_the_oldest_and_offers_the_table() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    Kafka::shared().create_topic(&outbox.topic("order"), 1, &[]);
    let site = Site::new(&outbox, "");
    let session = database.session();
    let before: String = session.get("SELECT pg_current_wal_lsn()");
    let running = Walpost::start(&quick(&outbox, ""));
    running.streams(&outbox, WITHIN);
    outbox.writer().one("order", "a");
    outbox.drained(WITHIN);
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        let refused = site.replay(arguments);
        assert_eq!(refused.code, code, "{arguments:?}: {refused:?}");
        for words in words {
            assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        }
    };
    refused(&["--from-lsn", &before], 1, &["no slot holds the log from", "has no bookmarks", "walpost replay --since"]);
    site.bookmark("b");
    let held: String = session.get(&format!(
        "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{}_bm_b'",
        outbox.slot()
    ));
    let named = format!("the oldest position that is held is {held}, by {}_bm_b", outbox.slot());
    refused(&["--from-lsn", &before], 1, &["no slot holds the log", &named, "--seq"]);
    refused(&["--from-lsn", &before, "--bookmark", "b"], 1, &[&named]);
    refused(&["--bookmark", "nobody"], 1, &["there is no bookmark nobody"]);
    refused(&["--from-lsn", "F/0"], 1, &["nothing is published from F/0 on"]);
    outbox.writer().one("order", "b");
    outbox.drained(WITHIN);
    refused(&["--bookmark", "b", "--to-lsn", "F/0"], 1, &["has not come to F/0 yet"]);
    refused(&["--bookmark", "b", "--to-lsn", &before], 1, &["empty"]);
    // What is typed wrong is an error of usage.
    refused(&[], 2, &["--from-lsn"]);
    refused(&["--to-lsn", "0/1"], 2, &[]);
    refused(&["--from-lsn", "0/1; drop"], 2, &["is neither a log position"]);
    refused(&["--bookmark", "x'; DROP TABLE x; --"], 2, &["a-z, 0-9 and _"]);
    refused(&["--bookmark", "b", "--id", "x"], 2, &["cannot be used with"]);
    refused(&["--bookmark", "b", "--stdout", "--dry-run"], 2, &["cannot be used with"]);
    refused(&["--bookmark", "b", "--rate", "0"], 2, &["rate"]);
    refused(&["--bookmark", "b", "--topic", "no topic"], 2, &["249"]);
    site.only_bookmark_is_left();
}

#[test]
fn poison_in_the_range_is_counted_and_goes_to_no_table() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (topic, other) = (outbox.topic("order"), outbox.topic("again"));
    Kafka::shared().create_topic(&topic, 1, &[]);
    Kafka::shared().create_topic(&other, 1, &[("max.message.bytes", "1000")]);
    let site = Site::new(&outbox, "");
    let running = Walpost::start(&quick(&outbox, ""));
    running.streams(&outbox, WITHIN);
    site.bookmark("b");
    let session = database.session();
    let insert = |kind: &str, key: &str, payload: &str| {
        session.run(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('{kind}', '{key}', 'e', {payload})"
        ));
    };
    insert("order", "a", "'1'");
    insert("no topic", "a", "'2'");
    insert("order", "b", "to_jsonb((SELECT string_agg(md5(n::text), '') FROM generate_series(1, 100) n))");
    insert("order", "c", "'4'");
    outbox.drained(WITHIN);
    let before = letters(&outbox);
    assert_eq!(before.len(), 1);
    let replayed = site.replay(&["--bookmark", "b"]);
    assert_eq!(replayed.code, 3, "{replayed:?}");
    assert!(
        replayed.stdout.contains("replayed: 3 events\n") && replayed.stdout.contains("left out: 1 of"),
        "{replayed:?}"
    );
    assert!(replayed.stderr.contains("cannot be routed"), "{replayed:?}");
    // With a topic of its own what has none can be sent, and Kafka may refuse what is too large for that one.
    let replayed = site.replay(&["--bookmark", "b", "--topic", &other]);
    assert_eq!(replayed.code, 3, "{replayed:?}");
    assert!(replayed.stdout.contains("replayed: 3 events\n"), "{replayed:?}");
    assert!(replayed.stdout.contains("left out: 1 that were refused"), "{replayed:?}");
    let values: Vec<_> = all(&[&other]).into_iter().filter_map(|record| record.value).collect();
    assert_eq!(values, [b"1".to_vec(), b"2".to_vec(), b"4".to_vec()]);
    assert_eq!(letters(&outbox), before);
    site.only_bookmark_is_left();
    assert!(running.is_running());
}

#[test]
fn a_replay_that_is_stopped_says_where_to_go_on_and_one_that_is_killed_leaves_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let (topic, other) = (outbox.topic("bulk"), outbox.topic("again"));
    Kafka::shared().create_topic(&topic, 3, &[]);
    Kafka::shared().create_topic(&other, 1, &[]);
    let site = Site::new(&outbox, "");
    let running = Walpost::start(&quick(&outbox, ""));
    let walsender = running.streams(&outbox, WITHIN);
    site.bookmark("b");
    outbox.writer().bulk(Bulk { transactions: 20, rows: 10, aggregates: 7, padding: 10 });
    outbox.drained(WITHIN);

    let stopped = site.launch(&["--bookmark", "b", "--topic", &other, "--rate", "50"]);
    let begun = Instant::now();
    let mut reader = Kafka::shared().reader(&[&other], Isolation::Uncommitted, WITHIN);
    reader.until(WITHIN, "some are sent", |records| records.len() >= 60);
    assert!(begun.elapsed() >= Duration::from_millis(900), "no more than so many a second");
    stopped.signal(Signal::Int);
    assert_eq!(stopped.wait(WITHIN), 1);
    let log = stopped.log();
    let next = log.split("--from-lsn ").nth(1).expect("it says where to go on");
    let next = next.lines().next().expect("a line").to_owned();
    let first = reader.until_end(WITHIN).len();
    done(&site.replay(&["--from-lsn", &next, "--topic", &other]), 200 - first);
    let records = all(&[&other]);
    assert_eq!(records.len(), 200);
    assert!(records.iter().map(position).is_sorted(), "in order");
    let mut positions: Vec<_> = records.iter().map(position).collect();
    positions.dedup();
    assert_eq!(positions.len(), 200, "each once");

    for _ in 0..3 {
        let killed = site.launch(&["--bookmark", "b", "--topic", &other, "--rate", "50"]);
        eventually(WITHIN, "it streams", || (site.slots().len() == 3).then_some(()));
        killed.signal(Signal::Kill);
        killed.wait(WITHIN);
        site.only_bookmark_is_left();
    }
    assert_eq!(outbox.walsender(), Some(walsender));
    outbox.delivered(Kafka::shared(), &["bulk"], WITHIN).assert_exactly_once();
}

#[test]
fn exactly_once_a_replay_has_a_producer_of_its_own_and_moves_no_position() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let topic = outbox.topic("order");
    Kafka::shared().create_topic(&topic, 1, &[]);
    let more = outbox.exactly_once();
    let site = Site::new(&outbox, &more);
    let running = Walpost::start(&quick(&outbox, &more));
    running.streams(&outbox, WITHIN);
    site.bookmark("b");
    let mut writer = outbox.writer();
    for _ in 0..10 {
        writer.one("order", "o");
    }
    outbox.drained(WITHIN);
    let committed =
        |topic: &str| Kafka::shared().reader(&[topic], Isolation::Committed, WITHIN).until_end(WITHIN).to_vec();
    let positions = committed(&outbox.positions_topic());
    // Killed inside a Kafka transaction; the next one ends that.
    let killed = site.launch(&["--bookmark", "b", "--rate", "5"]);
    let mut reader = Kafka::shared().reader(&[&topic], Isolation::Uncommitted, WITHIN);
    reader.until(WITHIN, "some are sent again", |records| records.len() > 12);
    killed.signal(Signal::Kill);
    killed.wait(WITHIN);
    done(&site.replay(&["--bookmark", "b"]), 10);
    assert_eq!(committed(&outbox.positions_topic()).len(), positions.len(), "no position was written");
    let refused = site.replay(&["--bookmark", "b", "--topic", &outbox.positions_topic()]);
    assert_eq!(refused.code, 3, "the positions topic takes no events: {refused:?}");
    writer.one("order", "o");
    outbox.drained(WITHIN);
    let records = eventually(WITHIN, "all are committed", || {
        let records = committed(&topic);
        (records.iter().filter(|record| record.header("replay").is_none()).count() == 11).then_some(records)
    });
    let again: Vec<_> = records.iter().filter(|record| record.header("replay").is_some()).collect();
    assert!(again.len() >= 10, "{}", again.len());
    let last = &again[again.len() - 10..];
    assert!(last.iter().zip(&records).all(|(again, sent)| same(sent, again)));
    assert_eq!(running.terminate(WITHIN), 0);
}

/// What the publication's row filter leaves out is not the slot's, whatever way rows go.
#[test]
fn rows_that_a_filter_leaves_out_are_neither_replayed_nor_recovered() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let session = database.session();
    session.run("ALTER PUBLICATION walpost SET TABLE walpost.outbox WHERE (aggregate_id <> 'hidden')");
    let topic = outbox.topic("order");
    Kafka::shared().create_topic(&topic, 1, &[]);
    let mut writer = outbox.writer();
    let mut both = || ["shown", "hidden"].iter().for_each(|key| writer.one("order", key));
    both();
    streamed(&outbox, "", &[]);
    let replayed = Site::new(&outbox, "").replay(&["--since", "1h", "--stdout"]);
    assert_eq!((replayed.code, replayed.stdout.lines().count()), (0, 1), "{replayed:?}");
    assert!(replayed.stdout.contains("shown"), "{replayed:?}");
    session.run(&format!("SELECT pg_drop_replication_slot('{}')", outbox.slot()));
    both();
    let records = streamed(&outbox, "", &[&topic]);
    assert!(records.last().is_some_and(|record| record.header("recovered").is_some()), "{records:?}");
    assert!(records.iter().all(|record| record.key_text() == Some("shown")), "{records:?}");
}

#[test]
fn rows_are_sent_again_by_what_they_are() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(include_str!("../../sql/progress.sql"));
    let (order, other) = (outbox.topic("order"), outbox.topic("other"));
    Kafka::shared().create_topic(&order, 1, &[]);
    Kafka::shared().create_topic(&other, 1, &[]);
    let site = Site::new(&outbox, "");
    let session = database.session();
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let insert = |n: u32, kind: &str, key: &str, age: &str| {
        session.run(&format!(
            "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, occurred_at)
             VALUES ('{}', '{kind}', '{key}', 'e', '{{\"n\": {n}}}', '{{\"own\": \"h\"}}', now() - interval '{age}')",
            id(n)
        ));
    };
    let running = Walpost::start(&quick(&outbox, ""));
    running.streams(&outbox, WITHIN);
    insert(1, "order", "a", "3 hours");
    insert(2, "order", "a/b", "2 hours");
    insert(3, "other", "a", "1 hour");
    insert(4, "order", "it''s", "1 second");
    outbox.drained(WITHIN);
    assert_eq!(running.terminate(WITHIN), 0);
    let sent = all(&[&order, &other]);
    assert_eq!(sent.len(), 4);

    let found = |arguments: &[&str]| -> Vec<u64> {
        let printed = site.replay(&[arguments, &["--stdout"]].concat());
        match printed.code {
            1 => assert!(printed.stderr.contains("no row matches"), "{printed:?}"),
            code => assert_eq!(code, 0, "{printed:?}"),
        }
        let number = |line: &str| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let value: Value = serde_json::from_str(line["value"].as_str().expect("text")).expect("JSON");
            value["n"].as_u64().expect("a number")
        };
        printed.stdout.lines().map(number).collect()
    };
    assert_eq!(found(&["--id", &id(3), "--id", &id(1)]), [1, 3], "in the order of seq");
    assert_eq!(found(&["--aggregate", "a"]), [1, 3]);
    assert_eq!(found(&["--aggregate", "order/a"]), [1]);
    assert_eq!(found(&["--aggregate", "a/b"]), [2]);
    assert_eq!(found(&["--aggregate", "order/a/b", "--aggregate", "it's"]), [2, 4]);
    assert_eq!(found(&["--since", "150m", "--until", "30m"]), [2, 3]);
    assert_eq!(found(&["--seq", "2..3"]), [2, 3]);
    assert_eq!(found(&["--seq", "3.."]), [3, 4]);
    assert_eq!(found(&["--seq", "..3", "--aggregate", "a"]), [1, 3], "options narrow each other down");
    assert!(found(&["--seq", "9"]).is_empty());
    // Hostile values are values.
    for value in
        ["'; DROP TABLE walpost.outbox; --", "\\'; DROP TABLE walpost.outbox; --", "' or 'a' = 'a", "${x}", "--", "%"]
    {
        assert!(found(&[&format!("--aggregate={value}")]).is_empty(), "{value}");
        let refused = site.replay(&[&format!("--id={value}"), "--dry-run"]);
        assert!(refused.code == 1 && refused.stderr.contains("invalid input syntax for type uuid"), "{refused:?}");
    }
    assert_eq!(session.get::<u32>("SELECT count(*) FROM walpost.outbox"), 4);
    for (option, value) in [("--since", "yesterday"), ("--seq", "1; DROP"), ("--seq", "9..1")] {
        assert_eq!(site.replay(&[option, value]).code, 2);
    }

    // What is sent is what the stream sent, but for the position.
    done(&site.replay(&["--seq", "1..", "--rate", "1000"]), 4);
    let again: Vec<_> = all(&[&order, &other]).into_iter().filter(|record| record.header("replay").is_some()).collect();
    assert_eq!(again.len(), 4);
    for (again, sent) in again.iter().zip(&sent) {
        let again = original(again);
        let without: Vec<_> = sent.headers.iter().filter(|(name, _)| name != "position").cloned().collect();
        assert_eq!((&again.key, &again.value, again.headers), (&sent.key, &sent.value, without));
    }
    // Its time is the row's own.
    let hours = |record: &Record| record.timestamp.expect("it has one") / 3_600_000;
    assert!((2..=3).contains(&(hours(&sent[0]) - hours(&again[0]))), "{again:?}");

    // What is proven, and what is not.
    insert(5, "order", "late", "0 seconds");
    assert!(found(&["--unproven"]).contains(&5));
    let running = Walpost::start(&quick(&outbox, "progress_interval = '100ms'"));
    running.streams(&outbox, WITHIN);
    insert(6, "order", "late", "0 seconds");
    eventually(WITHIN, "it is proven", || (!found(&["--unproven", "--seq", "6"]).contains(&6)).then_some(()));
    assert_eq!(running.terminate(WITHIN), 0);
}

#[test]
fn rows_of_a_transaction_that_is_still_open_are_not_taken_for_gone() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let topic = outbox.topic("order");
    Kafka::shared().create_topic(&topic, 1, &[]);
    let site = Site::new(&outbox, "");
    let running = Walpost::start(&quick(&outbox, ""));
    running.streams(&outbox, WITHIN);
    let (mut early, mut late) = (outbox.writer(), outbox.writer());
    early.begin();
    early.event("order", "early");
    late.one("order", "late");
    outbox.writer().one("order", "third");
    eventually(WITHIN, "the second and the third are sent", || (all(&[&topic]).len() == 2).then_some(()));
    done(&site.replay(&["--seq", "1.."]), 2);
    early.commit();
    outbox.drained(WITHIN);
    done(&site.replay(&["--seq", "1.."]), 3);
    let early = |record: &&Record| record.key_text() == Some("early");
    let records = all(&[&topic]);
    let marked = records.iter().filter(early).map(|record| record.header("replay").is_some()).collect::<Vec<_>>();
    assert_eq!(marked, [false, true], "the stream sent it once, the second replay too");
    assert_eq!(running.terminate(WITHIN), 0);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let site = Site::new(&outbox, "");
    outbox.writer().bulk(Bulk { transactions: 1, rows: 5_000, aggregates: 7, padding: 100 });
    let mut child = Command::new(env!("CARGO_BIN_EXE_walpost"))
        .args(["replay", "--seq", "1..", "--stdout", "-c"])
        .arg(&site.file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
    stdout.read_line(&mut line).expect("it prints");
    assert!(line.starts_with('{'), "{line}");
    drop(stdout);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
