//! What is published and old goes, and nothing else does.

use crate::support::{
    postgres::{Database, MAIN, Postgres, VERSIONS},
    proof::{ids_left, prove, prune, prune_as, pruned, with_progress},
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
        let _outbox = with_progress(&database);
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
    let _outbox = with_progress(&database);
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
    let _outbox = with_progress(&database);
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
    let outbox = with_progress(&database);
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
    let _outbox = with_progress(&database);
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
