//! What is published and old goes, and nothing else does.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    eventually,
    kafka::Kafka,
    long,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres, VERSIONS},
    proof::{ids_left, prove, prune, prune_as, pruned},
    streamed::{WITHIN, quick},
    walpost::Walpost,
};

/// Inserts an event that occurred so many days ago; gives its id.
fn event(database: &Database<'_>, days: u32) -> String {
    database.session().get(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, event_type, occurred_at) VALUES ('t', 'e', now() - interval '{days} days')
         RETURNING id"
    ))
}

fn letter(database: &Database<'_>, id: &str, state: &str) {
    database.sql(&format!(
        "INSERT INTO walpost.dead_letter (system_identifier, slot, position, event_id, xid, source_table, header_names,
           header_values, record_timestamp, reason_class, reason, attempts, first_failed_at, last_failed_at, later_delivered,
           state, park_key)
         SELECT 's', 'x', '0000000000000000-' || lpad(count(*)::text, 8, '0'), '{id}', 1, 'walpost.outbox', '{{}}', '{{}}', now(),
           'rejected', 'no', 1, now(), now(), false, '{state}', '' FROM walpost.dead_letter"
    ));
}

fn sorted(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort();
    ids
}

#[test]
fn what_is_proven_old_and_without_an_open_dead_letter_goes_and_a_dry_run_says_so_before() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let _outbox = Outbox::proven(&database);
        database.sql(include_str!("../../sql/dead_letter.sql"));
        let gone: Vec<_> = (0..3).map(|_| event(&database, 8)).collect();
        let letters: Vec<_> = ["dead", "parked", "replayed", "discarded"]
            .map(|state| {
                let id = event(&database, 8);
                letter(&database, &id, state);
                id
            })
            .into();
        let young = event(&database, 6);
        prove(&database, &database.name);
        let unproven = event(&database, 8);
        let before = ids_left(&database);
        let expected = serde_json::json!({
            "table": "walpost.outbox", "deleted": 5, "dropped": [], "left_detached": [],
            "kept": { "filtered": 0, "unproven": 1, "young": 1, "dead_letters": 2, "locked": 0 },
        });
        assert_eq!(pruned(&database, &["--dry-run"]), expected, "on PostgreSQL {version}");
        assert_eq!(ids_left(&database), before);
        assert_eq!(pruned(&database, &[]), expected);
        let stay = sorted([&letters[0], &letters[1], &young, &unproven].map(Clone::clone));
        assert_eq!(ids_left(&database), stay);
        assert!(gone.iter().all(|id| !stay.contains(id)));
        // Once nobody waits for the letters, and all is proven and old enough.
        database.sql("UPDATE walpost.dead_letter SET state = 'discarded'");
        prove(&database, &database.name);
        assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 4);
        assert_eq!(ids_left(&database), <[String; 0]>::default());
    }
}

#[test]
fn a_row_of_a_transaction_that_was_open_stays_whatever_its_number() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::proven(&database);
    let session = database.session();
    session.run("BEGIN; SAVEPOINT a");
    let insert = "INSERT INTO walpost.outbox (aggregate_type, event_type) VALUES ('t', 'e') RETURNING id";
    let first: String = session.get(insert);
    session.run("RELEASE a");
    let second: String = database.session().get(insert);
    prove(&database, &database.name);
    session.run("COMMIT");
    let report = pruned(&database, &["--retention", "0s"]);
    assert_eq!((&report["deleted"], &report["kept"]["unproven"]), (&1.into(), &1.into()));
    assert_eq!(ids_left(&database), [first]);
    assert!(!ids_left(&database).contains(&second));
    prove(&database, &database.name);
    assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 1);
}

#[test]
fn another_slot_keeps_what_it_has_not_sent_unless_its_publication_leaves_that_out() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::proven(&database);
    database.sql(
        "ALTER PUBLICATION walpost SET TABLE walpost.outbox WHERE (aggregate_type < '8');
         CREATE PUBLICATION others FOR TABLE walpost.outbox WHERE (aggregate_type >= '4') WITH (publish = 'insert');
         CREATE TABLE elsewhere (id int);
         CREATE PUBLICATION elsewhere FOR TABLE elsewhere",
    );
    let id = |n: u32| format!("{n}0000000-0000-4000-8000-000000000000");
    for n in [1, 5, 9] {
        database.sql(&format!(
            "INSERT INTO walpost.outbox (id, aggregate_type, event_type) VALUES ('{}', '{n}', 'e')",
            id(n)
        ));
    }
    prove(&database, &database.name);
    let slot = |name: &str, publication: &str| {
        database.sql(&format!(
            "INSERT INTO walpost.progress (slot, system_identifier, timeline, publication, started)
             SELECT '{name}', system_identifier, 1, {publication}, '1:1:' FROM pg_control_system()"
        ));
    };
    slot("elsewhere", "'elsewhere'");
    slot("others", "'others'");
    slot("old", "NULL");
    database.sql("UPDATE walpost.progress SET system_identifier = '1' WHERE slot = 'old'");
    let report = pruned(&database, &["--retention", "0s"]);
    assert_eq!(
        (&report["deleted"], &report["kept"]["unproven"], &report["kept"]["filtered"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(ids_left(&database), [id(5), id(9)]);
    prove(&database, "others");
    // It speaks of all tables now, and has sent nothing.
    slot("unknown", "NULL");
    assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 0);
    database.sql("DELETE FROM walpost.progress WHERE slot = 'unknown'");
    assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 1);
    assert_eq!(ids_left(&database), [id(9)]);
}

#[test]
fn what_cannot_be_known_or_is_not_allowed_is_refused_with_the_remedy() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let session = database.session();
    event(&database, 8);
    let refused_to = |role: &str, arguments: &[&str], words: &[&str]| {
        let finished = prune_as(role, &database, arguments);
        assert_eq!(finished.code, 1, "{finished:?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{word:?} is not in {}", finished.stderr);
        }
        assert_eq!(ids_left(&database).len(), 1);
    };
    let refused = |arguments: &[&str], words: &[&str]| refused_to("postgres", arguments, words);
    session.run("DELETE FROM walpost.progress");
    refused(&[], &["walpost.progress has no row of slot", outbox.slot(), "walpost run"]);
    prove(&database, &database.name);
    session.run("UPDATE walpost.progress SET system_identifier = '1'");
    refused(&[], &["system identifier 1", "walpost setup"]);
    session.run("ALTER TABLE walpost.progress RENAME TO away");
    refused(&[], &["there is no table walpost.progress", "walpost setup"]);
    session.run("ALTER TABLE walpost.away RENAME TO progress; DELETE FROM walpost.progress");
    prove(&database, &database.name);

    let as_halt = ["--on-update", "halt"];
    session.run("ALTER PUBLICATION walpost SET (publish = 'insert, delete')");
    refused(&as_halt, &["on_update = \"halt\"", "SET (publish = 'insert')"]);
    session.run("ALTER PUBLICATION walpost SET (publish = 'update')");
    refused(&[], &["does not publish inserts", "SET (publish = 'insert')"]);
    session
        .run("ALTER PUBLICATION walpost SET (publish = 'insert'); ALTER PUBLICATION walpost DROP TABLE walpost.outbox");
    refused(&[], &["ADD TABLE walpost.outbox"]);
    session.run("ALTER PUBLICATION walpost ADD TABLE walpost.outbox");

    let (role, in_url) = (format!("\"R {}\"", database.name), format!("R%20{}", database.name));
    session.run(&format!("CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA walpost TO {role}"));
    let as_role = |words: &[&str]| refused_to(&in_url, &[], words);
    as_role(&[&format!("GRANT SELECT, DELETE ON walpost.outbox TO {role}")]);
    session.run(&format!("GRANT SELECT ON walpost.outbox TO {role}"));
    as_role(&[&format!("GRANT SELECT, DELETE ON walpost.outbox TO {role}")]);
    session.run(&format!("GRANT DELETE ON walpost.outbox TO {role}"));
    as_role(&[&format!("GRANT SELECT ON walpost.progress TO {role}")]);
    session.run(&format!(
        "GRANT SELECT ON walpost.progress TO {role}; ALTER TABLE walpost.outbox ENABLE ROW LEVEL SECURITY"
    ));
    as_role(&["BYPASSRLS"]);
    session.run("ALTER TABLE walpost.outbox DISABLE ROW LEVEL SECURITY");

    session.run("SELECT pg_advisory_lock(2002873456, 'walpost.outbox'::regclass::oid::int)");
    as_role(&["another prune of walpost.outbox is at work (server process"]);
    session.run("SELECT pg_advisory_unlock_all(); ALTER TABLE walpost.outbox RENAME occurred_at TO at");
    refused(&[], &["no column occurred_at", "--retention 0s"]);
    session.run("ALTER TABLE walpost.outbox RENAME txid TO tx");
    refused(&[], &["ADD COLUMN txid xid8", "after_publish"]);
    let finished = prune(&database, &["--table", "nowhere"]);
    assert!(finished.code == 1 && finished.stderr.contains("does not exist"), "{finished:?}");
    session.run("ALTER TABLE walpost.outbox RENAME tx TO txid");
    assert_eq!(prune_as(&in_url, &database, &["--retention", "0s"]).stdout, "walpost.outbox: 1 row deleted\n");
    session.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_row_that_somebody_holds_locked_is_passed_over_and_told() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::proven(&database);
    event(&database, 8);
    prove(&database, &database.name);
    let session = database.session();
    session.run("BEGIN; SELECT FROM walpost.outbox FOR UPDATE");
    let finished = prune(&database, &[]);
    assert_eq!(finished.code, 1, "{finished:?}");
    assert!(finished.stdout.contains("kept 1 row locked by others: prune again"), "{finished:?}");
    session.run("ROLLBACK");
    assert_eq!(pruned(&database, &[])["deleted"], 1);
}

/// An outbox partitioned by day, as setup makes it, with partitions of ten and nine days ago. The first slot of its database
/// was made before.
fn by_day<'a>(database: &'a Database<'a>) -> Outbox<'a> {
    let outbox = Outbox::proven(database);
    database.sql("DROP TABLE walpost.outbox");
    database.sql(include_str!("../../sql/outbox_partitioned.sql"));
    database.sql(include_str!("../../sql/enqueue_partitioned.sql"));
    database.sql(
        "CREATE SEQUENCE versions;
         ALTER PUBLICATION walpost ADD TABLE walpost.outbox;
         ALTER PUBLICATION walpost SET (publish_via_partition_root = true);
         SELECT walpost.make_partitions((now() at time zone 'UTC')::date - 10, 2)",
    );
    outbox
}

/// The partition of so many days ago.
fn day(database: &Database<'_>, days: u32) -> String {
    let date: String = database
        .session()
        .get(&format!("SELECT to_char(now() at time zone 'UTC' - interval '{days} days', 'YYYYMMDD')"));
    format!("walpost.outbox_{date}")
}

fn exists(database: &Database<'_>, table: &str) -> bool {
    database.session().get::<String>(&format!("SELECT to_regclass('{table}') IS NOT NULL")) == "t"
}

fn is_attached(database: &Database<'_>, table: &str) -> bool {
    database.session().get::<String>(&format!("SELECT relispartition FROM pg_class WHERE oid = '{table}'::regclass"))
        == "t"
}

fn enqueue(database: &Database<'_>, key: &str, days: u32) -> String {
    database.session().get(&format!(
        "SELECT walpost.enqueue('t', 'a', 'e', NULL, idempotency_key => '{key}', aggregate_version => nextval('versions'),
           occurred_at => now() - interval '{days} days')"
    ))
}

#[test]
fn partitions_whose_time_is_over_and_that_are_wholly_published_go_with_their_keys() {
    for version in VERSIONS {
        for has_default in [true, false] {
            let database = Postgres::shared(version).database();
            let _outbox = by_day(&database);
            if !has_default {
                database.sql("DROP TABLE walpost.outbox_default");
            }
            let (ten, nine) = (day(&database, 10), day(&database, 9));
            database.sql(&format!("COMMENT ON TABLE {nine} IS 'mine'"));
            enqueue(&database, "ten", 10);
            enqueue(&database, "nine", 9);
            let young = enqueue(&database, "young", 0);
            if has_default {
                enqueue(&database, "default", 20);
            }
            prove(&database, &database.name);
            let unproven = enqueue(&database, "nine again", 9);
            let expected = serde_json::json!({
                "table": "walpost.outbox", "deleted": if has_default { 2 } else { 1 },
                "dropped": [{ "partition": ten, "rows": 1 }], "left_detached": [],
                "kept": { "filtered": 0, "unproven": 1, "young": 1, "dead_letters": 0, "locked": 0 },
            });
            assert_eq!(pruned(&database, &["--dry-run"]), expected, "on PostgreSQL {version}");
            assert!(exists(&database, &ten));
            assert_eq!(pruned(&database, &[]), expected, "on PostgreSQL {version}");
            assert!(!exists(&database, &ten) && is_attached(&database, &nine));
            assert_eq!(ids_left(&database), sorted([young.clone(), unproven]));
            let keys = database.session().rows("SELECT key FROM walpost.idempotency ORDER BY key");
            assert_eq!(keys.concat(), [Some("nine again".to_owned()), Some("young".to_owned())]);
            let versions = "SELECT count(*) FROM walpost.aggregate_version v JOIN walpost.outbox o
                            ON v.event_id = o.id AND v.version = o.aggregate_version";
            assert_eq!(database.session().get::<u64>(versions), 2);
            assert_eq!(database.session().get::<u64>("SELECT count(*) FROM walpost.aggregate_version"), 2);
            prove(&database, &database.name);
            assert_eq!(pruned(&database, &[])["dropped"][0]["partition"], nine.as_str());
            assert_eq!(ids_left(&database), [young]);
        }
    }
}

#[test]
fn a_partition_that_gets_a_row_while_it_is_detached_is_attached_again_with_its_comment() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let _outbox = by_day(&database);
        let ten = day(&database, 10);
        let session = database.session();
        session.run(&format!("COMMENT ON TABLE {ten} IS 'it''s mine'; DROP TABLE {}", day(&database, 9)));
        enqueue(&database, "ten", 10);
        prove(&database, &database.name);
        // The row comes in the very transaction that detaches: after the first count, before the second.
        session.run(&format!(
            "CREATE FUNCTION late() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NOT (SELECT relispartition FROM pg_class WHERE oid = '{ten}'::regclass) AND NOT EXISTS (SELECT FROM public.spent) THEN
                 INSERT INTO public.spent VALUES (1);
                 INSERT INTO {ten} (id, seq, aggregate_type, event_type, occurred_at)
                   VALUES (gen_random_uuid(), 0, 't', 'e', now() - interval '10 days');
               END IF;
             END $$;
             CREATE TABLE spent (n int);
             CREATE EVENT TRIGGER late ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION late()"
        ));
        let report = pruned(&database, &[]);
        session.run("DROP EVENT TRIGGER late");
        assert_eq!((&report["deleted"], &report["kept"]["unproven"]), (&1.into(), &1.into()));
        assert_eq!(report["dropped"], serde_json::json!([]));
        assert!(is_attached(&database, &ten));
        let comment: String = session.get(&format!("SELECT obj_description('{ten}'::regclass)"));
        assert_eq!(comment, "it's mine");
    }
}

#[test]
fn what_a_killed_prune_left_detached_is_taken_up_by_the_next_one() {
    for (version, has_default) in [(14, true), (18, false)] {
        let database = Postgres::shared(version).database();
        let _outbox = by_day(&database);
        if !has_default {
            database.sql("DROP TABLE walpost.outbox_default");
        }
        let (ten, nine) = (day(&database, 10), day(&database, 9));
        let session = database.session();
        enqueue(&database, "ten", 10);
        let left = enqueue(&database, "nine", 9);
        prove(&database, &database.name);
        // Drops wait for the story.
        session.run(
            "SELECT pg_advisory_lock(7);
             CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); END $$;
             CREATE EVENT TRIGGER wait ON sql_drop EXECUTE FUNCTION wait();
             ALTER EVENT TRIGGER wait DISABLE",
        );
        let killed_before_the_drop = |partition: &str| {
            session.run("ALTER EVENT TRIGGER wait ENABLE");
            let prune = Walpost::command(&["prune", "--database-url", &database.url(), "--slot", &database.name]);
            let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted";
            eventually(WITHIN, "the drop waits", || (session.get::<u64>(waits) == 1).then_some(()));
            prune.kill();
            session.run("SELECT pg_advisory_unlock(7)");
            eventually(WITHIN, "its transaction ends", || (session.get::<u64>(waits) == 0).then_some(()));
            session.run("SELECT pg_advisory_lock(7); ALTER EVENT TRIGGER wait DISABLE");
            assert!(!is_attached(&database, partition), "it is detached, and there");
        };
        killed_before_the_drop(&ten);
        assert_eq!(pruned(&database, &["--dry-run"])["dropped"][0]["partition"], ten.as_str());
        killed_before_the_drop(&ten);
        // Meanwhile somebody counts its row as unsent.
        session.run("UPDATE walpost.progress SET started = published");
        let report = pruned(&database, &[]);
        assert_eq!(report["kept"]["unproven"], 2, "{report}");
        assert!(is_attached(&database, &ten) && is_attached(&database, &nine));
        session.run("UPDATE walpost.progress SET started = '1:1:'");
        let report = pruned(&database, &[]);
        assert_eq!(report["dropped"].as_array().map(Vec::len), Some(2), "{report}");
        assert!(!exists(&database, &ten) && !exists(&database, &nine));
        assert!(!ids_left(&database).contains(&left));
    }
}

#[test]
fn who_does_not_own_the_partitions_deletes_their_rows() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = by_day(&database);
    let ten = day(&database, 10);
    enqueue(&database, "ten", 10);
    enqueue(&database, "nine", 9);
    prove(&database, &database.name);
    let role = format!("r_{}", database.name);
    database.sql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA walpost TO {role};
         GRANT SELECT ON ALL TABLES IN SCHEMA walpost TO {role};
         GRANT DELETE ON walpost.outbox, walpost.idempotency, walpost.aggregate_version TO {role}"
    ));
    let finished = prune_as(&role, &database, &[]);
    assert_eq!((finished.code, &*finished.stdout), (0, "walpost.outbox: 2 rows deleted\n"), "{finished:?}");
    assert!(finished.stderr.contains("only the owner of walpost.outbox"), "{finished:?}");
    assert!(exists(&database, &ten));
    assert_eq!(database.session().get::<u64>("SELECT count(*) FROM walpost.idempotency"), 0);
    database.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_partition_that_is_in_use_stays_attached_until_the_next_time() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = by_day(&database);
    let ten = day(&database, 10);
    enqueue(&database, "ten", 10);
    prove(&database, &database.name);
    let session = database.session();
    session.run("BEGIN; SELECT count(*) FROM walpost.outbox");
    let finished = prune(&database, &[]);
    assert_eq!(finished.code, 1, "{finished:?}");
    assert!(finished.stderr.contains("is in use and stays attached"), "{finished:?}");
    assert!(is_attached(&database, &ten));
    session.run("ROLLBACK");
    assert_eq!(pruned(&database, &[])["dropped"][0]["partition"], ten.as_str());
}

#[test]
fn names_that_need_quotes_are_pruned_too() {
    let database = Postgres::shared(MAIN).database();
    let _outbox = Outbox::proven(&database);
    database.sql(include_str!("../../sql/dead_letter.sql"));
    database.sql(
        r#"CREATE SCHEMA "My ""S"" é";
           CREATE TABLE "My ""S"" é"."Out'Box" ("Event Id" text PRIMARY KEY, "a'b" text, "select" text, "Payload $1" text,
             "漢字" timestamp NOT NULL DEFAULT now() - interval '8 days', "tx;--" xid8 DEFAULT pg_current_xact_id())
             PARTITION BY LIST ("Event Id");
           CREATE TABLE "My ""S"" é"."part '1" PARTITION OF "My ""S"" é"."Out'Box" DEFAULT;
           CREATE PUBLICATION "Pub 'é'" FOR TABLE "My ""S"" é"."Out'Box" WITH (publish = 'insert', publish_via_partition_root = true);
           INSERT INTO "My ""S"" é"."Out'Box" ("Event Id") VALUES ('it''s é'), ('another')"#,
    );
    letter(&database, "it''s é", "dead");
    prove(&database, &database.name);
    let arguments = [
        "--table",
        r#""My ""S"" é"."Out'Box""#,
        "--publication",
        "Pub 'é'",
        "--column",
        "id=Event Id",
        "--column",
        "aggregate_id=a'b",
        "--column",
        "aggregate_type=select",
        "--column",
        "payload=Payload $1",
        "--column",
        "occurred_at=漢字",
        "--column",
        "txid=tx;--",
    ];
    let report = pruned(&database, &arguments);
    assert_eq!((&report["deleted"], &report["kept"]["dead_letters"]), (&1.into(), &1.into()));
    let left = database.session().rows(r#"SELECT "Event Id" FROM "My ""S"" é"."Out'Box""#);
    assert_eq!(left.concat(), [Some("it's é".to_owned())]);
}

/// What a walpost that streams has proven, by now, of rows that may be as old as they like.
fn proven(database: &Database<'_>, rows: u64) {
    eventually(WITHIN, "it is proven", || {
        (pruned(database, &["--retention", "0s", "--dry-run"])["deleted"] == rows).then_some(())
    });
}

#[test]
fn nothing_goes_that_kafka_does_not_have_and_what_goes_sends_nothing() {
    let kafka = Kafka::shared();
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    kafka.create_blockable_topic(&outbox.topic("t"), 1);
    let walpost = Walpost::start(&quick(&outbox, "progress_interval = '200ms'\n"));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    (0..50).for_each(|_| writer.one("t", "k"));
    proven(&database, 50);
    kafka.block(&outbox.topic("t"));
    (0..50).for_each(|_| writer.one("t", "k"));
    let report = pruned(&database, &["--retention", "0s"]);
    assert_eq!((&report["deleted"], &report["kept"]["unproven"]), (&50.into(), &50.into()));
    assert_eq!(pruned(&database, &["--retention", "0s"])["deleted"], 0);
    kafka.unblock(&outbox.topic("t"));
    // Others write on while it prunes.
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut writer = outbox.writer();
            (0..500).for_each(|n| writer.one("t", &format!("k{n}")))
        });
        while !writing.is_finished() {
            pruned(&database, &["--retention", "0s"]);
        }
    });
    outbox.drained(WITHIN);
    eventually(WITHIN, "all of it goes", || {
        pruned(&database, &["--retention", "0s"]);
        ids_left(&database).is_empty().then_some(())
    });
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    outbox.delivered(kafka, &["t"], WITHIN).assert_exactly_once();
}

#[test]
fn a_walpost_that_streams_prunes_now_and_then() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::proven(&database);
    let more = "progress_interval = '200ms'\nretention = '0s'\nprune.every = '1s'\n";
    let walpost = Walpost::start(&quick(&outbox, more));
    walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    (0..20).for_each(|_| writer.one("t", "k"));
    eventually(WITHIN, "they go", || ids_left(&database).is_empty().then_some(()));
    eventually(WITHIN, "it says so", || walpost.log().contains("pruned").then_some(()));
    assert_eq!(walpost.terminate(WITHIN), 0);
    outbox.delivered(Kafka::shared(), &["t"], WITHIN).assert_exactly_once();
}

/// Milliseconds that inserts took, at 500 a second over ten connections, until `enough`. Each counts from the moment when it
/// was due, that waiting writers are not left out.
fn latencies(database: &Database<'_>, enough: impl Fn(Duration) -> bool + Sync) -> Vec<f64> {
    const WRITERS: u32 = 10;
    const EVERY: Duration = Duration::from_millis(2);
    let insert =
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('t', 'k', 'e', '{}')";
    let (start, enough) = (Instant::now(), &enough);
    let mut taken: Vec<f64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let session = database.session();
                    let (mut taken, mut due) = (Vec::new(), start + EVERY * writer);
                    while !enough(start.elapsed()) {
                        thread::sleep(due.saturating_duration_since(Instant::now())); // the rate of the writer
                        session.run(insert);
                        taken.push(due.elapsed().as_secs_f64() * 1e3);
                        due += EVERY * WRITERS;
                    }
                    taken
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("it writes")).collect()
    });
    taken.sort_by(f64::total_cmp);
    taken
}

/// Two million rows in the long form: its figures are in `benches/README.md`. How long writers wait is printed and not judged.
#[test]
fn a_large_table_is_pruned_beside_writers_and_a_stream() {
    let rows: u64 = if long() { 2_000_000 } else { 20_000 };
    let alone_for = Duration::from_secs(if long() { 30 } else { 1 });
    let server = Postgres::start(MAIN, &["fsync=on", "max_wal_size=4GB", "shared_buffers=256MB"]);
    let database = server.database();
    let outbox = Outbox::proven(&database);
    let session = database.session();
    session.run(&format!(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, occurred_at)
         SELECT 't', 'k' || n % 1000, 'e', jsonb_build_object('n', n, 'pad', repeat('x', 150)), now() - interval '8 days'
         FROM generate_series(1, {rows}) n"
    ));
    session.run("VACUUM ANALYZE walpost.outbox");
    session.run("CHECKPOINT");
    session.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", outbox.slot()));
    prove(&database, &database.name);
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.streams(&outbox, WITHIN);
    let alone = latencies(&database, |elapsed| elapsed >= alone_for);
    let (started, beside, report) = thread::scope(|scope| {
        let started = Instant::now();
        let pruning = scope.spawn(|| pruned(&database, &[]));
        let beside = latencies(&database, |_| pruning.is_finished());
        (started, beside, pruning.join().expect("it prunes"))
    });
    let took = started.elapsed();
    assert_eq!(report["deleted"], rows, "{report}");
    let kept =
        report["kept"]["young"].as_u64().unwrap_or_default() + report["kept"]["unproven"].as_u64().unwrap_or_default();
    assert!(kept >= alone.len() as u64, "what writers wrote stays: {report}");
    let percentile = |of: &[f64], p: f64| of[((of.len() - 1) as f64 * p) as usize];
    for (what, of) in [("alone", &alone), ("beside prune", &beside)] {
        println!(
            "{what}: {} inserts, p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms, max {:.1} ms",
            of.len(),
            percentile(of, 0.5),
            percentile(of, 0.95),
            percentile(of, 0.99),
            percentile(of, 1.0)
        );
    }
    println!("{rows} rows pruned in {:.1} s", took.as_secs_f64());
    assert_eq!(walpost.terminate(WITHIN), 0);
}
