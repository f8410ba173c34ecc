//! The producer's half: one event a key, one event a version of an aggregate, and the same key from SQL, Rust and Python.

use std::{
    collections::HashSet,
    sync::Barrier,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};
use tokio_postgres::error::SqlState;
use walpost::idempotency;

use crate::support::{
    eventually, long,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    session::Session,
    streamed::streamed,
};

const WITHIN: Duration = Duration::from_secs(30);
const PLAIN: [&str; 3] =
    [include_str!("../../sql/outbox.sql"), include_str!("../../sql/txid.sql"), include_str!("../../sql/enqueue.sql")];
const PARTITIONED: [&str; 3] = [
    include_str!("../../sql/outbox_partitioned.sql"),
    include_str!("../../sql/txid.sql"),
    include_str!("../../sql/enqueue_partitioned.sql"),
];
const IDEMPOTENCY_KEY: &str = include_str!("../../sql/idempotency_key.sql");

/// In the short form, the ends of the supported range.
fn versions() -> &'static [u16] {
    if long() { &VERSIONS } else { &[14, 18] }
}

/// Does the same with either kind of outbox.
fn of_both_kinds(story: impl Fn(&Database<'_>)) {
    for &version in versions() {
        for files in [PLAIN, PARTITIONED] {
            let database = Postgres::shared(version).database();
            files.iter().for_each(|file| database.sql(file));
            story(&database);
        }
    }
}

fn enqueue(more: &str) -> String {
    format!("select walpost.enqueue('order', 'o-1', 'OrderPlaced', '{{}}'{more})")
}

/// What a statement gives, or the state that it fails with.
fn tried(session: &Session, statement: &str) -> Result<String, SqlState> {
    match session.try_rows(statement) {
        Ok(rows) => Ok(rows.into_iter().flatten().flatten().next().expect("a value")),
        Err(error) => Err(error.code().expect("the server says why").clone()),
    }
}

fn events(session: &Session) -> u64 {
    session.get("select count(*) from walpost.outbox")
}

#[test]
fn callers_at_once_with_the_same_key_get_the_id_of_one_event() {
    const CALLERS: usize = 8;
    const KEYS: u64 = 40;
    of_both_kinds(|database| {
        let mut expected = 0;
        for level in ["read committed", "repeatable read", "serializable"] {
            let barrier = Barrier::new(CALLERS);
            let ids: HashSet<(u64, String)> = std::thread::scope(|scope| {
                let caller = || {
                    let session = database.session();
                    session.run(&format!("set default_transaction_isolation = '{level}'"));
                    let id = |key: u64| {
                        let more =
                            format!(", idempotency_key => '{level} {key}', aggregate_version => {}", expected + key);
                        barrier.wait();
                        for _ in 0..1000 {
                            match tried(&session, &enqueue(&more)) {
                                Ok(id) => return (key, id),
                                Err(state) => {
                                    assert_eq!(state, SqlState::T_R_SERIALIZATION_FAILURE, "{level}");
                                    assert_ne!(level, "read committed", "nothing is to be tried again");
                                }
                            }
                        }
                        panic!("it fails for ever")
                    };
                    (0..KEYS).map(id).collect::<Vec<_>>()
                };
                let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
                callers.into_iter().flat_map(|caller| caller.join().expect("it gets ids")).collect()
            });
            expected += KEYS;
            assert_eq!(ids.len() as u64, KEYS, "{level}: one id a key");
            assert_eq!(events(&database.session()), expected, "{level}: one event a key");
        }
    });
}

#[test]
fn a_transaction_that_cannot_see_the_event_of_its_key_fails_to_be_tried_again() {
    of_both_kinds(|database| {
        let (early, late) = (database.session(), database.session());
        for level in ["repeatable read", "serializable"] {
            let statement = enqueue(&format!(", idempotency_key => '{level}'"));
            early.run(&format!("begin isolation level {level}; select count(*) from pg_class"));
            let first = late.value(&statement);
            assert_eq!(tried(&early, &statement), Err(SqlState::T_R_SERIALIZATION_FAILURE), "{level}");
            early.run("rollback");
            early.run(&format!("begin isolation level {level}"));
            assert_eq!(early.value(&statement), first, "{level}");
            early.run("commit");
        }
        assert_eq!(events(&early), 2);
    });
}

#[test]
fn of_two_events_of_one_version_the_later_fails_once_the_earlier_commits() {
    of_both_kinds(|database| {
        let (first, watcher) = (database.session(), database.session());
        let version = enqueue(", aggregate_version => 7");
        for (end, again) in [("rollback", Ok(())), ("commit", Err(SqlState::UNIQUE_VIOLATION))] {
            first.run("delete from walpost.outbox");
            first.run("do $$ begin if to_regclass('walpost.aggregate_version') is not null then delete from walpost.aggregate_version; end if; end $$");
            first.run("begin");
            first.run(&version);
            let second = std::thread::scope(|scope| {
                let second = scope.spawn(|| tried(&database.session(), &version));
                eventually(WITHIN, "the second waits for the first", || {
                    let waiting = "select count(*) from pg_stat_activity where datname = current_database()
                                   and wait_event = 'transactionid'";
                    (watcher.get::<u32>(waiting) == 1).then_some(())
                });
                first.run(end);
                second.join().expect("it ends")
            });
            assert_eq!(second.map(drop), again, "after {end}");
            assert_eq!(events(&first), 1);
        }
        for others in [
            "'order', 'o-1', 'e', null, aggregate_version => 8",
            "'order', 'o-2', 'e', null, aggregate_version => 7",
            "'bill', 'o-1', 'e', null, aggregate_version => 7",
            "'order', 'o-1', 'e', null",
            "'order', 'o-1', 'e', null",
            // What is no aggregate has no versions that could meet.
            "'order', null, 'e', null, aggregate_version => 7",
            "'order', null, 'e', null, aggregate_version => 7",
        ] {
            first.run(&format!("select walpost.enqueue({others})"));
        }
        // A key that is known is no second event, whatever version comes with it.
        let known = enqueue(", idempotency_key => 'k', aggregate_version => 9");
        assert_eq!(first.value(&known), first.value(&known));
        assert_eq!(first.value(&known), first.value(&enqueue(", idempotency_key => 'k', aggregate_version => 7")));
        let taken = enqueue(", idempotency_key => 'l', aggregate_version => 7");
        assert_eq!(tried(&first, &taken), Err(SqlState::UNIQUE_VIOLATION));
        assert_eq!(events(&first), 9);
    });
}

#[test]
fn key_and_version_travel_as_headers() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql("drop table walpost.outbox");
    PLAIN.iter().for_each(|file| database.sql(file));
    database.sql(IDEMPOTENCY_KEY);
    database.sql("alter publication walpost add table walpost.outbox");
    let id: String = database.session().get(
        "select walpost.enqueue('t', 'o-1', 'OrderPlaced', '{}', '{\"own\": \"x\"}', walpost.idempotency_key('{\"a\": [1]}'),
           occurred_at => '2026-01-31 09:15:00+01', aggregate_version => 9223372036854775807)",
    );
    database.sql("select walpost.enqueue('t', 'o-1', 'OrderPaid', '{}')");
    let records = streamed(&outbox, "", &[&outbox.topic("t")]);
    let [first, second] = &records[..] else { panic!("two records, not {}", records.len()) };
    let key = idempotency::key(&json!({"a": [1]})).expect("it has one");
    for (name, value) in [
        ("id", &*id),
        ("occurred_at", "2026-01-31T08:15:00.000000Z"),
        ("idempotency_key", &key),
        ("aggregate_version", "9223372036854775807"),
        ("own", "x"),
    ] {
        assert_eq!(first.header(name), Some(value), "{name}");
        assert!(second.header(name) != Some(value), "{name}");
    }
    assert_eq!(second.header("aggregate_version"), None);
}

/// A text as SQL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn keys(session: &Session, documents: &[String]) -> Vec<String> {
    let documents: Vec<_> = documents.iter().map(|document| literal(document)).collect();
    let rows = session.rows(&format!(
        "select walpost.idempotency_key(document::jsonb) from unnest(array[{}]) with ordinality as d (document, n) order by n",
        documents.join(", ")
    ));
    rows.concat().into_iter().map(|key| key.expect("a key")).collect()
}

#[test]
fn keys_of_the_database_are_those_of_python() {
    let vectors: Vec<Value> = include_str!("../idempotency/vectors.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let text = |vector: &Value, name: &str| vector[name].as_str().expect("a string").to_owned();
    for &version in versions() {
        for encoding in ["UTF8", "LATIN1"] {
            let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
            let database = Postgres::shared(version).database_with(&options);
            database.sql(IDEMPOTENCY_KEY);
            let can_hold = |vector: &&Value| {
                encoding == "UTF8" || text(vector, "canonical").chars().all(|character| character <= '\u{ff}')
            };
            let held: Vec<_> = vectors.iter().filter(can_hold).collect();
            let documents: Vec<_> = held.iter().map(|vector| text(vector, "document")).collect();
            let found = keys(&database.session(), &documents);
            assert!(found.len() > 20);
            for (vector, found) in held.iter().zip(found) {
                assert_eq!(found, text(vector, "key"), "{vector} in {encoding} on PostgreSQL {version}");
            }
        }
    }
}

#[test]
fn a_document_that_is_nested_too_deep_is_refused_and_null_has_no_key() {
    for &version in versions() {
        let database = Postgres::shared(version).database();
        database.sql(IDEMPOTENCY_KEY);
        let session = database.session();
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let deepest = nested(idempotency::DEPTH_MAX);
        let document: Value = serde_json::from_str(&deepest).expect("JSON");
        assert_eq!(keys(&session, &[deepest]), [idempotency::key(&document).expect("it has one")]);
        for levels in [idempotency::DEPTH_MAX + 1, 1000] {
            let statement = format!("select walpost.idempotency_key('{}')", nested(levels));
            assert_eq!(tried(&session, &statement), Err(SqlState::PROGRAM_LIMIT_EXCEEDED));
        }
        assert_eq!(session.value("select walpost.idempotency_key(null)"), None);
    }
}

fn text() -> impl Strategy<Value = String> {
    let chars = prop_oneof![
        any::<char>(),
        proptest::sample::select(
            "abzAZ09_-:,{}[] \"\\/'\u{1}\u{8}\t\n\u{b}\u{c}\r\u{1f}\u{7f}éß\u{fffd}\u{ffff}😀"
                .chars()
                .collect::<Vec<_>>()
        ),
    ];
    vec(chars.prop_filter("PostgreSQL has no NUL", |c| *c != '\0'), 0..6).prop_map(String::from_iter)
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1000_i64..1000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1e6..1e6_f64).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::from),
            btree_map(text(), inner, 0..8).prop_map(|members| members.into_iter().collect::<Value>()),
        ]
    })
}

/// `WALPOST_SEED` runs a seed again.
#[test]
fn sql_and_rust_agree_on_any_document() {
    const DOCUMENTS: usize = 500;
    let seed = std::env::var("WALPOST_SEED").ok().map_or_else(
        || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").subsec_nanos().into(),
        |seed| seed.parse::<u64>().expect("a number"),
    );
    println!("seed {seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let documents: Vec<Value> =
        (0..DOCUMENTS).map(|_| document().new_tree(&mut runner).expect("a document").current()).collect();
    let database = Postgres::shared(MAIN).database();
    database.sql(IDEMPOTENCY_KEY);
    let texts: Vec<_> = documents.iter().map(Value::to_string).collect();
    let found = keys(&database.session(), &texts);
    for ((document, text), found) in documents.iter().zip(&texts).zip(found) {
        assert_eq!(idempotency::key(document).expect("it has one"), found, "seed {seed}: {text}");
    }
}
