//! Transactions arrive whole and in the order of their commits, however they were written.

use std::{collections::HashMap, thread};

use crate::support::{
    long,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    streamed::{WITHIN, all, halted, quick, streamed},
    verify::verify,
    walpost::Walpost,
};

#[test]
fn commits_order_the_stream_however_transactions_interleave() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let walpost = Walpost::start(&quick(&outbox, ""));
    let walsender = walpost.streams(&outbox, WITHIN);
    let mut writers = [outbox.writer(), outbox.writer(), outbox.writer()];
    for round in 0..10 {
        for writer in &mut writers {
            writer.begin();
        }
        for step in 0..3 {
            for writer in &mut writers {
                writer.savepoint("s");
                writer.event("order", "undone");
                writer.rollback_to("s");
                writer.event("order", &format!("k{}", step % 2));
            }
        }
        // Who began first commits last, in turns.
        for place in 0..3 {
            writers[(round + 2 * place) % 3].commit();
        }
    }
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender));
    assert_eq!(walpost.terminate(WITHIN), 0);
    verify(&outbox.committed(), &all(&[&outbox.topic("order")])).assert_exactly_once();
}

#[test]
fn a_prepared_transaction_is_sent_when_it_is_committed() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let insert = |id: u32| {
        format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('t', 'k', 'e', '{id}');"
        )
    };
    let session = database.session();
    let name = &database.name;
    session.run(&format!("BEGIN; {} PREPARE TRANSACTION '{name} kept'", insert(2)));
    session.run(&format!("BEGIN; {} PREPARE TRANSACTION '{name} given up'", insert(0)));
    session.run(&insert(1));
    let topic = outbox.topic("t");
    let values = |records: &[crate::support::records::Record]| {
        records.iter().map(|r| r.value_text().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(values(&streamed(&outbox, "", &[&topic])), [Some("1".to_owned())]);
    session.run(&format!("ROLLBACK PREPARED '{name} given up'"));
    session.run(&format!("COMMIT PREPARED '{name} kept'"));
    session.run(&insert(3));
    let expected = ["1", "2", "3"].map(|text| Some(text.to_owned()));
    assert_eq!(values(&streamed(&outbox, "", &[&topic])), expected);
}

/// A slot that sends prepared transactions early sends them so to any client.
#[test]
fn a_slot_with_two_phase_is_refused_before_it_is_streamed_from() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let slot = format!("{}_eager", database.name);
    database.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput', false, true)"));
    let log = halted(&outbox, &format!("slot = '{slot}'\n"));
    assert!(log.contains(&format!("replication slot \"{slot}\" has two_phase on")), "{log}");
    database.sql(&format!("SELECT pg_drop_replication_slot('{slot}')"));
}

#[test]
fn nothing_is_missing_of_large_transactions_with_savepoints_that_spill_to_disk() {
    const SESSIONS: usize = 4;
    let rows = if long() { 20_000 } else { 6_000 };
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    database.sql(&format!("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'", database.name));
    let walpost = Walpost::start(&quick(&outbox, ""));
    let walsender = walpost.streams(&outbox, WITHIN);
    thread::scope(|scope| {
        for writer in 0..SESSIONS {
            let session = database.session();
            // A block with a handler is a savepoint: half of them are rolled back, kept ones lie in others.
            scope.spawn(move || {
                session.run(&format!(
                    "DO $$ BEGIN
                       FOR n IN 1 .. {rows} BY 20 LOOP
                         BEGIN
                           INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                             SELECT 'many', 'w{writer}', 'e', to_jsonb(i) FROM generate_series(n, n + 9) i;
                           BEGIN
                             INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                               SELECT 'many', 'w{writer}', 'never', to_jsonb(-i) FROM generate_series(1, 10) i;
                             RAISE EXCEPTION 'undone';
                           EXCEPTION WHEN raise_exception THEN
                             INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                               SELECT 'many', 'w{writer}', 'e', to_jsonb(i) FROM generate_series(n + 10, n + 19) i;
                           END;
                         EXCEPTION WHEN division_by_zero THEN NULL;
                         END;
                       END LOOP;
                     END $$"
                ));
            });
        }
    });
    outbox.drained(WITHIN);
    assert_eq!(outbox.walsender(), Some(walsender));
    assert_eq!(walpost.terminate(WITHIN), 0);
    let mut sent: HashMap<String, Vec<String>> = HashMap::new();
    for record in all(&[&outbox.topic("many")]) {
        let (key, value) = (record.key_text().expect("a key"), record.value_text().expect("a value"));
        sent.entry(key.to_owned()).or_default().push(value.to_owned());
    }
    let expected: Vec<String> = (1..=rows).map(|n| n.to_string()).collect();
    for writer in 0..SESSIONS {
        assert!(sent[&format!("w{writer}")] == expected, "every event of session {writer}, once and in order");
    }
    let spilled = format!("SELECT spill_txns FROM pg_stat_replication_slots WHERE slot_name = '{}'", outbox.slot());
    assert!(database.session().get::<u32>(&spilled) > 0, "the server had to spill, else this story tells nothing");
}

#[test]
fn a_transaction_of_200_000_rows_needs_no_more_memory_than_one_of_20_000() {
    let rows = if long() { 2_000_000 } else { 200_000 };
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let walpost = Walpost::start(&quick(&outbox, ""));
    let walsender = walpost.streams(&outbox, WITHIN);
    let mut writer = outbox.writer();
    let bulk = Bulk { transactions: 1, rows: 20_000, aggregates: 50, padding: 200 };
    writer.bulk(bulk);
    outbox.drained(WITHIN);
    let before = walpost.peak_rss_mib();
    writer.bulk(Bulk { rows, ..bulk });
    outbox.drained(WITHIN * 5);
    let after = walpost.peak_rss_mib();
    assert!(after <= before * 1.15 && after <= 64.0, "peak RSS {before:.1} MiB, then {after:.1} MiB");
    assert_eq!(outbox.walsender(), Some(walsender));
    assert_eq!(walpost.terminate(WITHIN), 0);
    verify(&outbox.committed(), &all(&[&outbox.topic("bulk")])).assert_exactly_once();
}

#[test]
fn logical_messages_of_any_kind_pass_by() {
    for version in [14, 18] {
        let database = Postgres::shared(version).database();
        let outbox = Outbox::create(&database);
        let session = database.session();
        let walpost = Walpost::start(&quick(&outbox, ""));
        walpost.streams(&outbox, WITHIN);
        let since = || {
            let slot = outbox.slot();
            session.value(&format!(
                "SELECT pid || ' ' || backend_start FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid
                 WHERE slot_name = '{slot}'"
            ))
        };
        let (before, mut writer) = (since(), outbox.writer());
        writer.one("t", "k");
        for prefix in ["walpost", "another tool", ""] {
            for transactional in [true, false] {
                session.run(&format!(
                    "SELECT pg_logical_emit_message({transactional}, '{prefix}', 'text');
                     SELECT pg_logical_emit_message({transactional}, '{prefix}', '');
                     SELECT pg_logical_emit_message({transactional}, '{prefix}', decode(repeat('00ff', 2500000), 'hex'));
                     BEGIN; SELECT pg_logical_emit_message({transactional}, '{prefix}', 'given up'); ROLLBACK"
                ));
            }
        }
        writer.begin();
        writer.event("t", "k");
        writer.session.run(
            "SELECT pg_logical_emit_message(true, 'walpost', 'between'), pg_logical_emit_message(false, 'x', 'y')",
        );
        writer.event("t", "k");
        writer.commit();
        outbox.drained(WITHIN);
        assert_eq!(since(), before, "the same walsender");
        assert_eq!(walpost.terminate(WITHIN), 0);
        verify(&outbox.committed(), &all(&[&outbox.topic("t")])).assert_exactly_once();
    }
}
