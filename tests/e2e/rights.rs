//! The least that each command needs: its role of sql/roles.sql is enough, and without it the refusal names right, object and
//! remedy.

use std::time::Duration;

use crate::support::{
    eventually,
    kafka::Kafka,
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    walpost::{Walpost, walpost},
};

const WITHIN: Duration = Duration::from_secs(60);

/// Logs in itself, for replication is not inherited.
const STREAM: &str = "walpost_stream";
/// A member of `walpost_operate`, of `walpost_enqueue`, of `walpost_consume`, and of nothing.
const OPERATE: &str = "alice";
const ENQUEUE: &str = "shop";
const CONSUME: &str = "billing";
const NOBODY: &str = "nobody";
/// Owns what setup made: no superuser.
const OWNER: &str = "dba";

const MAY_NOT_REPLICATE: &[&str] = &["role alice may not replicate", "ALTER ROLE \"alice\" REPLICATION"];
const MAY_NOT_READ: &[&str] = &["may not read walpost.dead_letter", "grant walpost_operate"];
const MAY_NOT_TEAR_DOWN: &[&str] = &["may not read walpost.setup_record", "log in as the role that ran walpost setup"];
const MAY_NOT_KEEP: &[&str] = &["may not make or drop replication slots", "alter role alice replication"];

/// A command, and for each role its exit code and parts of what it says.
type Line<'a> = (&'a [&'a str], &'a [(&'a str, i32, &'a [&'a str])]);

#[test]
fn each_command_does_with_its_role_and_names_what_another_lacks() {
    for version in [14, MAIN] {
        let server = Postgres::configure(version).start();
        let database = server.database();
        // Up to 15 only a superuser gives the attribute of replication.
        server.sql(&format!(
            "CREATE ROLE {OWNER} LOGIN CREATEROLE REPLICATION; GRANT CREATE ON DATABASE {} TO {OWNER}",
            database.name
        ));
        let url = |role: &str| format!("postgres://{role}@127.0.0.1:{}/{}", server.port(), database.name);
        let command = |role: &str, words: &[&str], code: i32, parts: &[&str]| {
            let more = ["--database-url", &url(role), "--slot", &database.name];
            let finished = walpost(&[words, &more].concat());
            let said = format!("{}{}", finished.stdout, finished.stderr);
            assert_eq!(finished.code, code, "{version}, {role}: {words:?}: {said}");
            for part in parts {
                assert!(said.contains(part), "{version}, {role}: {words:?} lacks {part:?}: {said}");
            }
        };
        server.sql(&format!("CREATE ROLE {NOBODY} LOGIN"));
        let lacks = ["alter role nobody replication", "grant create on database", "nothing is made"];
        command(NOBODY, &["setup"], 1, &lacks);
        command(NOBODY, &["setup", "--inbox"], 1, &lacks[1..]);
        command(OWNER, &["setup", "--snapshot", "never"], 0, &["done: create slot"]);
        command(OWNER, &["setup", "--inbox"], 0, &["done: create table walpost.inbox"]);
        let attribute = "SELECT rolreplication FROM pg_roles WHERE rolname = 'walpost_stream'";
        assert_eq!(database.session().value(attribute).as_deref(), Some(if version > 15 { "t" } else { "f" }));
        // What setup says is left to do, and the roles that people and programs have.
        database.sql(&format!(
            "ALTER ROLE {STREAM} LOGIN REPLICATION; GRANT pg_read_all_stats TO {STREAM}, walpost_operate;
             CREATE ROLE {OPERATE} LOGIN IN ROLE walpost_operate; CREATE ROLE {ENQUEUE} LOGIN IN ROLE walpost_enqueue;
             CREATE ROLE {CONSUME} LOGIN IN ROLE walpost_consume"
        ));
        let more: Vec<_> = database.session().rows(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'walpost%'
             AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication <> (rolname = 'walpost_stream'))",
        );
        assert!(more.is_empty(), "{more:?} may more than replicate");

        let outbox = Outbox::unmade(&database);
        let of = |role: &str| {
            let session = database.session();
            session.run(&format!("SET ROLE {role}"));
            session
        };
        let event = "SELECT walpost.enqueue('order', 'o-1', 'placed', '{}')";
        of(ENQUEUE).run(event);
        of(CONSUME).run("SELECT walpost.inbox_claim('billing', 'e-1')");
        for (role, forbidden) in [
            (CONSUME, event),
            (OPERATE, event),
            (NOBODY, event),
            (STREAM, "DELETE FROM walpost.outbox"),
            (STREAM, "INSERT INTO walpost.outbox DEFAULT VALUES"),
            (OPERATE, "UPDATE walpost.progress SET slot = slot"),
            (ENQUEUE, "SELECT payload FROM walpost.outbox"),
            (ENQUEUE, "SELECT walpost.inbox_claim('billing', 'e-2')"),
        ] {
            let refused = of(role).try_run(forbidden).expect_err(forbidden);
            assert_eq!(refused.code().map(|code| code.code()), Some("42501"), "{role}: {forbidden}");
        }

        // The stream: an event, and one that no record can be made of.
        database.sql(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, destination)
             VALUES ('order', 'bad', 'placed', '{}', 'no topic')",
        );
        let run = |more: &str| {
            Walpost::start(&format!(
                "database_url = '{}'\nslot = '{}'\nsink.kind = 'stdout'\nprogress_interval = '100ms'\n{more}",
                url(STREAM),
                database.name
            ))
        };
        let streams_and_ends = |relay: &Walpost| {
            outbox.drained(WITHIN);
            let pending = "SELECT count(*) FROM walpost.event_state WHERE state = 'PENDING'";
            eventually(WITHIN, "all is proven", || (database.session().get::<u64>(pending) == 0).then_some(()));
            assert_eq!(relay.terminate(WITHIN), 0);
        };
        let relay = run("on_poison = 'park'");
        eventually(WITHIN, "it is a dead letter", || {
            (database.session().get::<u64>("SELECT count(*) FROM walpost.dead_letter") == 1).then_some(())
        });
        streams_and_ends(&relay);
        let refused = |what: &str, role: &str, parts: &[&str]| {
            let words: Vec<_> = what.split(' ').collect();
            command(role, &[&words[..], &["--sink-kind", "stdout"]].concat(), 1, parts);
        };
        refused("run --http-listen off", OPERATE, MAY_NOT_REPLICATE);
        refused("snapshot", NOBODY, &["walpost.progress", "walpost setup makes it"]);
        command(STREAM, &["snapshot", "--sink-kind", "stdout"], 0, &[]);
        // What is done to published rows needs more, which is named; with that it goes on.
        database.sql("ALTER TABLE walpost.outbox ADD COLUMN published_at timestamptz");
        for after_publish in ["mark", "delete"] {
            let more = format!("after_publish = '{after_publish}'");
            let relay = run(&more);
            assert_eq!(relay.wait_exit(WITHIN), 1);
            let log = relay.log();
            let grant = log.split_once("needs a right of role walpost_stream: ").unwrap_or_else(|| panic!("{log}")).1;
            let grant = grant.lines().next().expect("there is text");
            assert!(grant.starts_with("GRANT "), "{grant}");
            of(OWNER).run(grant);
            of(ENQUEUE).run(event);
            streams_and_ends(&run(&more));
            of(OWNER).run(&grant.replace("GRANT", "REVOKE").replace(" TO ", " FROM "));
            of(OWNER).run(&format!("GRANT SELECT ON walpost.outbox TO {STREAM}"));
        }

        of(ENQUEUE).run(event);
        streams_and_ends(&run(""));
        let (brokers, nowhere) = (Kafka::shared().brokers(), outbox.topic("nowhere"));
        let lines: &[Line<'_>] = &[
            (
                &["status"],
                &[
                    (STREAM, 0, &["kept log"]),
                    (OPERATE, 0, &["kept log"]),
                    (NOBODY, 0, &["walpost_operate may read it"]),
                ],
            ),
            (
                &["check", "--sink-kind", "stdout"],
                &[
                    (STREAM, 0, &["0 errors, 0 warnings"]),
                    (OPERATE, 3, MAY_NOT_REPLICATE),
                    (OPERATE, 3, &["grant select, insert, update on walpost.progress to alice"]),
                    (NOBODY, 3, &["grant pg_read_all_stats to nobody", "grant select on walpost.outbox to nobody"]),
                ],
            ),
            (
                &["dead-letter", "list"],
                &[(STREAM, 0, &["1 dead letter"]), (OPERATE, 0, &["1 dead letter"]), (ENQUEUE, 1, MAY_NOT_READ)],
            ),
            (
                &["dead-letter", "show", "--all"],
                &[(STREAM, 0, &["no topic"]), (OPERATE, 0, &["no topic"]), (NOBODY, 1, MAY_NOT_READ)],
            ),
            (
                &["dead-letter", "replay", "--all", "--dry-run"],
                &[(OPERATE, 1, &["passed over: 1 event without a topic"]), (CONSUME, 1, MAY_NOT_READ)],
            ),
            (
                &["replay", "--since", "1h", "--stdout"],
                &[
                    (STREAM, 3, &["replayed: 3 events", "left out: 1"]),
                    (OPERATE, 3, &["replayed: 3 events", "left out: 1"]),
                    (ENQUEUE, 1, &["permission denied for table outbox", "walpost check lists what is missing"]),
                ],
            ),
            (&["bookmark", "create", "b"], &[(OPERATE, 1, MAY_NOT_KEEP), (STREAM, 0, &["keeps the log"])]),
            (&["bookmark", "list"], &[(OPERATE, 0, &["reserved"])]),
        ];
        let told = |lines: &[Line<'_>]| {
            for (words, outcomes) in lines {
                outcomes.iter().for_each(|(role, code, parts)| command(role, words, *code, parts));
            }
        };
        told(lines);
        // With a topic it could be sent.
        database.sql("UPDATE walpost.dead_letter SET topic = 'orders'");
        of(ENQUEUE).run(event);
        streams_and_ends(&run(""));
        told(&[
            (
                &["replay", "--bookmark", "b", "--stdout"],
                &[(OPERATE, 1, MAY_NOT_REPLICATE), (STREAM, 0, &["replayed: "])],
            ),
            (&["bookmark", "drop", "b"], &[(OPERATE, 1, MAY_NOT_KEEP), (STREAM, 0, &["dropped"])]),
            (
                &["check", "--deep", "--brokers", &brokers, "--route-topic", &nowhere],
                &[
                    (STREAM, 3, &["published rows are in no topic and no dead letter"]),
                    (OPERATE, 3, &["published rows are in no topic and no dead letter"]),
                    (ENQUEUE, 3, &["table walpost.outbox may not be read by this role"]),
                ],
            ),
            (
                &["dead-letter", "replay", "--all"],
                &[(ENQUEUE, 1, MAY_NOT_READ), (OPERATE, 0, &["marked for replay: 1 event"])],
            ),
            (
                &["dead-letter", "discard", "--all", "--yes"],
                &[(ENQUEUE, 1, MAY_NOT_READ), (OPERATE, 0, &["discarded: 1 event"])],
            ),
            (
                &["prune", "--retention", "0s"],
                &[
                    (STREAM, 1, &["GRANT SELECT, DELETE ON walpost.outbox TO walpost_stream"]),
                    (NOBODY, 1, &["GRANT SELECT ON walpost.dead_letter TO nobody"]),
                    (OPERATE, 0, &["deleted"]),
                ],
            ),
            (
                &["teardown", "--yes", "--drop-data"],
                &[
                    (STREAM, 1, MAY_NOT_TEAR_DOWN),
                    (OPERATE, 1, MAY_NOT_TEAR_DOWN),
                    (OWNER, 0, &["dropped: table walpost.outbox"]),
                ],
            ),
            (&["teardown", "--yes", "--inbox", "--drop-data"], &[(OWNER, 0, &["dropped: table walpost.inbox"])]),
        ]);
    }
}
