//! `walpost run --from-lsn`: the stream begins again at an earlier position, once, whatever is killed meanwhile.

use std::time::{Duration, Instant};

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    records::{Isolation, Record},
    streamed::{WITHIN, all, freed, quick},
    walpost::{Walpost, walpost},
};

/// An outbox with a table of progress, a topic and a bookmark, from which ten events were streamed.
struct Story<'a> {
    outbox: Outbox<'a>,
    configuration: String,
    topic: String,
}

impl<'a> Story<'a> {
    fn new(database: &'a Database<'a>, exactly_once: bool) -> Story<'a> {
        let outbox = Outbox::create(database);
        database.sql(include_str!("../../sql/progress.sql"));
        let topic = outbox.topic("order");
        Kafka::shared().create_topic(&topic, 1, &[]);
        let more = if exactly_once { outbox.exactly_once() } else { String::new() };
        let configuration = quick(&outbox, &format!("{more}progress_interval = '200ms'"));
        let story = Story { outbox, configuration, topic };
        let running = story.run(&[]);
        story.bookmark("b");
        for n in 0..10 {
            story.one(n);
        }
        story.outbox.drained(WITHIN);
        story.stop(&running);
        story
    }

    fn run(&self, arguments: &[&str]) -> Walpost {
        let running = Walpost::start_with(&self.configuration, arguments, &[]);
        running.streams(&self.outbox, WITHIN);
        running
    }

    fn stop(&self, running: &Walpost) {
        assert_eq!(running.terminate(WITHIN), 0);
        freed(&self.outbox);
    }

    fn one(&self, n: u32) {
        self.outbox.database.sql(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('order', 'o', 'e', '{n}')"
        ));
    }

    fn bookmark(&self, name: &str) {
        let database = self.outbox.database;
        let made = walpost(&["bookmark", "create", name, "--database-url", &database.url(), "--slot", &database.name]);
        assert_eq!(made.code, 0, "{made:?}");
    }

    /// What committed consumers see, as numbers.
    fn seen(&self) -> Vec<u32> {
        let number = |record: &Record| {
            String::from_utf8_lossy(record.value.as_deref().expect("a value")).parse().expect("a number")
        };
        let mut reader = Kafka::shared().reader(&[&self.topic], Isolation::Committed, WITHIN);
        reader.until_end(WITHIN).iter().map(number).collect()
    }

    fn sees(&self, expected: &[u32]) {
        eventually(WITHIN, "consumers see it", || (self.seen().len() >= expected.len()).then_some(()));
        assert_eq!(self.seen(), expected);
    }

    /// Where the commit of an event begins.
    fn place(&self, n: usize) -> String {
        let position = all(&[&self.topic])[n].header("position").expect("it has one").to_owned();
        let commit = u64::from_str_radix(&position[..16], 16).expect("hexadecimal");
        format!("{:X}/{:X}", commit >> 32, commit as u32)
    }

    fn slots(&self) -> Vec<String> {
        let slots = format!(
            "SELECT slot_name FROM pg_replication_slots WHERE database = '{}' ORDER BY 1",
            self.outbox.database.name
        );
        self.outbox.database.session().rows(&slots).into_iter().flatten().flatten().collect()
    }

    fn no_slot_is_left_behind(&self) {
        let slot = self.outbox.slot();
        let expected = [slot.to_owned(), format!("{slot}_bm_b")];
        eventually(WITHIN, "no slot is left behind", || (self.slots() == expected).then_some(()));
    }

    fn refused(&self, arguments: &[&str], words: &[&str]) {
        let refused = Walpost::start_with(&self.configuration, arguments, &[]);
        assert_eq!(refused.wait_exit(WITHIN), 1);
        words.iter().for_each(|words| assert!(refused.log().contains(words), "{words}: {}", refused.log()));
    }
}

const ONCE: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

fn begins_again(version: u16, exactly_once: bool) {
    let database = Postgres::shared(version).database();
    let story = Story::new(&database, exactly_once);
    story.sees(&ONCE);
    let proven =
        "SELECT count(*) FROM walpost.outbox o, walpost.progress p WHERE walpost.is_published(o.txid, o.tableoid, p)";
    let session = database.session();
    let before: u32 = session.get(proven);
    let place = story.place(4);
    let again = ["--from-lsn", &place];
    let running = story.run(&again);
    story.outbox.drained(WITHIN);
    let mut expected = [&ONCE[..], &ONCE[4..]].concat();
    story.sees(&expected);
    let records = all(&[&story.topic]);
    let (first, second) = (&records[4..10], &records[records.len() - 6..]);
    for (first, second) in first.iter().zip(second) {
        assert_eq!((&first.headers, first.timestamp), (&second.headers, second.timestamp), "it is the stream itself");
    }
    assert!(session.get::<u32>(proven) >= before, "what is published stays proven");
    story.no_slot_is_left_behind();
    running.kill();
    freed(&story.outbox);

    // The same command line again, and one without: it goes on.
    for arguments in [&again[..], &[], &again[..]] {
        let running = story.run(arguments);
        let n = expected.len() as u32;
        story.one(n);
        expected.push(n);
        story.outbox.drained(WITHIN);
        story.sees(&expected);
        story.stop(&running);
    }
    // Another place is another wish; so is the same one that was forgotten.
    let earlier = story.place(2);
    let history = |from: usize| {
        let sent: Vec<u32> = ONCE.into_iter().chain([16, 17, 18]).collect();
        sent[from..].to_vec()
    };
    let running = story.run(&["--from-lsn", &earlier]);
    expected.extend(history(2));
    story.outbox.drained(WITHIN);
    story.sees(&expected);
    story.stop(&running);
    session.run("UPDATE walpost.progress SET rewind_to = NULL");
    let running = story.run(&["--from-lsn", &earlier]);
    expected.extend(history(2));
    story.outbox.drained(WITHIN);
    story.sees(&expected);
    story.stop(&running);
    story.no_slot_is_left_behind();
}

#[test]
fn the_stream_begins_again_once_on_postgresql_14() {
    begins_again(14, false);
}

#[test]
fn the_stream_begins_again_once_on_postgresql_18() {
    begins_again(18, false);
}

#[test]
fn the_stream_begins_again_once_exactly_once() {
    begins_again(MAIN, true);
}

/// As far as it came, by what was done by then.
fn goes_on_from(stage: &str, exactly_once: bool) {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new(&database, exactly_once);
    let place = story.place(4);
    let (slot, session) = (story.outbox.slot(), database.session());
    session.run(&format!(
        "UPDATE walpost.progress SET rewind_to = '{place}', rewind_from = '{slot}_bm_b', rewind_at = now(), rewind_done = false"
    ));
    match stage {
        "wanted" => {}
        "dropped" => session.run(&format!("SELECT pg_drop_replication_slot('{slot}')")),
        "replaced" => session.run(&format!(
            "SELECT pg_drop_replication_slot('{slot}'); SELECT pg_copy_logical_replication_slot('{slot}_bm_b', '{slot}');
             SELECT pg_replication_slot_advance('{slot}', '{place}')"
        )),
        _ => unreachable!("a stage of the tests"),
    }
    // Nobody asks for it any more: it is finished all the same, and is no loss.
    let running = story.run(&[]);
    story.outbox.drained(WITHIN);
    story.sees(&[&ONCE[..], &ONCE[4..]].concat());
    story.stop(&running);
    story.no_slot_is_left_behind();
}

#[test]
fn what_was_begun_is_finished_from_every_stage() {
    for stage in ["wanted", "dropped", "replaced"] {
        goes_on_from(stage, false);
    }
    goes_on_from("dropped", true);
}

fn killed(exactly_once: bool) {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new(&database, exactly_once);
    let place = story.place(4);
    let again = ["--from-lsn", &*place];
    for kill in 0..14 {
        let running = Walpost::start_with(&story.configuration, &again, &[]);
        let until = Instant::now() + Duration::from_millis(20 * kill);
        eventually(WITHIN, "its moment", || (Instant::now() >= until).then_some(()));
        running.kill();
    }
    let running = story.run(&again);
    story.outbox.drained(WITHIN);
    let seen = story.seen();
    if exactly_once {
        assert_eq!(seen, [&ONCE[..], &ONCE[4..]].concat());
    } else {
        assert!(seen.len() >= 16 && seen[..10] == ONCE && seen[seen.len() - 1] == 9, "{seen:?}");
        assert!(seen[10..].iter().all(|n| *n >= 4), "what lies before is not sent: {seen:?}");
    }
    story.stop(&running);
    story.no_slot_is_left_behind();
}

#[test]
fn kills_in_the_middle_of_it_lose_nothing_and_leave_no_slot() {
    killed(false);
}

#[test]
fn kills_in_the_middle_of_it_send_each_event_once_more_exactly_once() {
    killed(true);
}

#[test]
fn a_standby_with_the_flag_begins_again_only_when_it_has_the_slot() {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new(&database, false);
    let place = story.place(4);
    let first = story.run(&[]);
    let second = Walpost::start_with(&story.configuration, &["--from-lsn", &place], &[]);
    second.says("standby: slot", WITHIN);
    story.one(10);
    story.outbox.drained(WITHIN);
    story.sees(&[&ONCE[..], &[10]].concat());
    first.kill();
    second.streams(&story.outbox, WITHIN);
    story.outbox.drained(WITHIN);
    story.sees(&[&ONCE[..], &[10], &ONCE[4..], &[10]].concat());
    story.stop(&second);
    story.no_slot_is_left_behind();
}

#[test]
fn a_lost_slot_begins_again_from_its_bookmark() {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new(&database, false);
    let place = story.place(4);
    database.sql(&format!("SELECT pg_drop_replication_slot('{}')", story.outbox.slot()));
    story.one(10);
    let running = story.run(&["--from-lsn", &place]);
    story.outbox.drained(WITHIN);
    story.sees(&[&ONCE[..], &ONCE[4..], &[10]].concat());
    story.stop(&running);
}

#[test]
fn a_place_that_cannot_be_is_refused_and_nothing_is_touched() {
    let database = Postgres::shared(MAIN).database();
    let story = Story::new(&database, false);
    let place = story.place(4);
    let before = story.outbox.confirmed();
    story
        .refused(&["--from-lsn", "0/1"], &["no bookmark holds the log from 0/1 on", "_bm_b", "walpost replay --since"]);
    story.refused(&["--from-lsn", "F/0"], &["the stream has not come to F/0 yet"]);
    let wrong = walpost(&["run", "--from-lsn", "0/1; drop"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("is neither a log position"), "{wrong:?}");
    assert_eq!(story.outbox.confirmed(), before);
    story.no_slot_is_left_behind();

    // Wanted, and its bookmark is gone: it says so, whoever starts it.
    let session = database.session();
    let slot = story.outbox.slot();
    session.run(&format!(
        "UPDATE walpost.progress SET rewind_to = '{place}', rewind_from = '{slot}_bm_gone', rewind_at = now(), rewind_done = false"
    ));
    story.refused(&[], &["is gone or lost", "rewind_done = true"]);
    let check = walpost(&[
        "check",
        "--json",
        "--database-url",
        &database.url(),
        "--slot",
        slot,
        "--brokers",
        &Kafka::shared().brokers(),
    ]);
    assert!(check.stdout.contains("is to begin again at"), "{check:?}");
    session.run(&format!("UPDATE walpost.progress SET rewind_from = '{slot}_bm_b'"));
    let drop = walpost(&["bookmark", "drop", "b", "--database-url", &database.url(), "--slot", slot]);
    assert!(drop.code == 1 && drop.stderr.contains("is to begin again from it"), "{drop:?}");
    session.run("UPDATE walpost.progress SET rewind_done = true");
    let running = story.run(&[]);
    story.outbox.drained(WITHIN);
    story.sees(&ONCE);
    story.stop(&running);

    session.run("DROP TABLE walpost.progress CASCADE");
    story.refused(&["--from-lsn", &place], &["walpost.progress", "walpost setup"]);
}
