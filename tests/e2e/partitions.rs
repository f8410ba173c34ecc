//! A partitioned outbox: published through its root its partitions come and go unseen.

use crate::support::{
    eventually,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    streamed::{WITHIN, all, quick, streamed},
    walpost::Walpost,
};

/// An outbox that is partitioned by a number, with partitions for 0 to 9 and for 10 to 19.
fn partitioned<'a>(database: &'a Database<'a>, published: &str) -> Outbox<'a> {
    let outbox = Outbox::create(database);
    database.sql(&format!(
        "DROP TABLE walpost.outbox;
         CREATE TABLE walpost.outbox (id int, aggregate_type text DEFAULT 't', aggregate_id text DEFAULT 'k',
           event_type text DEFAULT 'e', payload text, day int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
         CREATE TABLE walpost.day_0 PARTITION OF walpost.outbox FOR VALUES FROM (0) TO (10);
         CREATE TABLE walpost.day_10 PARTITION OF walpost.outbox FOR VALUES FROM (10) TO (20);
         ALTER PUBLICATION walpost SET TABLE walpost.outbox;
         ALTER PUBLICATION walpost SET ({published})"
    ));
    outbox
}

fn insert(id: u32, day: u32) -> String {
    format!("INSERT INTO walpost.outbox (id, day) VALUES ({id}, {day});")
}

#[test]
fn partitions_are_attached_detached_and_truncated_while_rows_stream_in_commit_order() {
    for version in [14, 15, 18] {
        let database = Postgres::shared(version).database();
        let outbox = partitioned(&database, "publish = 'insert, truncate', publish_via_partition_root = true");
        let session = database.session();
        // A walsender of 14 keeps what it knew of a table that it has decoded before, until the publication changes.
        let told = if version == 14 { "ALTER PUBLICATION walpost SET (publish = 'insert, truncate')" } else { "" };
        let repartition =
            |change: &str| session.run(&format!("BEGIN; ALTER TABLE walpost.outbox {change}; {told}; COMMIT"));
        session.run(&(insert(1, 5) + &insert(2, 15)));
        let walpost = Walpost::start(&quick(&outbox, ""));
        let walsender = walpost.streams(&outbox, WITHIN);
        // Columns in another order than the root's; filled before it is attached.
        session.run(
            "CREATE TABLE walpost.day_20 (day int NOT NULL, payload text, event_type text DEFAULT 'e', id int NOT NULL,
               aggregate_id text DEFAULT 'k', aggregate_type text DEFAULT 't');
             INSERT INTO walpost.day_20 (id, day) VALUES (1001, 20)",
        );
        repartition("ATTACH PARTITION walpost.day_20 FOR VALUES FROM (20) TO (30)");
        session.run(&insert(3, 25));
        session.run("INSERT INTO walpost.day_20 (id, day, payload) VALUES (4, 26, 'direct')");
        session.run("TRUNCATE walpost.day_0");
        session.run(&insert(5, 6));
        repartition("DETACH PARTITION walpost.day_0");
        session.run("INSERT INTO walpost.day_0 (id, day) VALUES (1002, 7)");
        session.run("CREATE TABLE walpost.day_30 PARTITION OF walpost.outbox FOR VALUES FROM (30) TO (40)");
        session.run(&format!("BEGIN; {} {} {} COMMIT", insert(6, 35), insert(7, 15), insert(8, 25)));
        session.run("DROP TABLE walpost.day_10");
        session.run(&insert(9, 31));
        outbox.drained(WITHIN);
        assert_eq!(outbox.walsender(), Some(walsender));
        assert_eq!(walpost.terminate(WITHIN), 0);
        // Neither the pre-filled row nor that of the detached partition is an event.
        let records = all(&[&outbox.topic("t")]);
        let ids: Vec<_> = records.iter().filter_map(|record| record.header("id")).collect();
        assert_eq!(ids, ["1", "2", "3", "4", "5", "6", "7", "8", "9"], "on PostgreSQL {version}");
        assert_eq!(records[3].value_text(), Some("direct"));
    }
}

#[test]
fn a_row_that_an_update_moves_to_another_partition_is_streamed_again() {
    let database = Postgres::shared(MAIN).database();
    let outbox = partitioned(&database, "publish = 'insert', publish_via_partition_root = true");
    let session = database.session();
    session.run(&insert(1, 5));
    session.run("UPDATE walpost.outbox SET payload = 'stays'");
    session.run("UPDATE walpost.outbox SET payload = 'moves', day = 15");
    let records = streamed(&outbox, "", &[&outbox.topic("t")]);
    let got: Vec<_> = records.iter().map(|record| (record.header("id"), record.value_text())).collect();
    assert_eq!(got, [(Some("1"), None), (Some("1"), Some("moves"))]);
}

#[test]
fn a_partitioned_outbox_published_by_its_leaves_is_told_how_to_publish_its_root() {
    let database = Postgres::shared(MAIN).database();
    let outbox = partitioned(&database, "publish = 'insert', publish_via_partition_root = false");
    let session = database.session();
    let walpost = Walpost::start(&quick(&outbox, ""));
    walpost.streams(&outbox, WITHIN);
    session.run(&insert(1, 5));
    eventually(WITHIN, "walpost names the remedy", || {
        let remedy = "ALTER PUBLICATION walpost SET (publish_via_partition_root = true)";
        walpost.log().contains(remedy).then_some(())
    });
    session.run("ALTER PUBLICATION walpost SET (publish_via_partition_root = true)");
    session.run(&insert(2, 5));
    outbox.drained(WITHIN);
    assert_eq!(walpost.terminate(WITHIN), 0);
    let records = all(&[&outbox.topic("t")]);
    assert_eq!(records.iter().map(|record| record.header("id")).collect::<Vec<_>>(), [Some("2")]);
}
