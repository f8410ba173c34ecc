//! Databases that are not in UTF-8: what can be converted arrives as UTF-8, what cannot halts; no replacement character
//! is ever put in.

use crate::support::{
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    streamed::{WITHIN, halted, quick, streamed},
    walpost::Walpost,
};

#[test]
fn text_of_another_encoding_arrives_as_utf_8() {
    for (encoding, text) in [("LATIN1", "café ÿ ß"), ("EUC_JP", "注文 カタカナ ﾊﾝｶｸ")] {
        let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        let database = Postgres::shared(MAIN).database_with(&options);
        let outbox = Outbox::create(&database);
        // Names are converted too.
        database.sql(&format!(
            "CREATE TABLE walpost.\"{text}\" (id text, aggregate_type text, aggregate_id text, \"{text}\" text, payload json,
               headers jsonb);
             ALTER PUBLICATION walpost ADD TABLE walpost.\"{text}\";
             INSERT INTO walpost.\"{text}\" VALUES
               ('{text}', 't', '{text}', '{text}', '[\"{text}\"]', '{{\"{text}\": \"{text}\"}}')"
        ));
        let more = format!("table = 'walpost.\"{text}\"'\n[columns]\nevent_type = \"{text}\"\n");
        let records = streamed(&outbox, &more, &[&outbox.topic("t")]);
        let [record] = &records[..] else { panic!("one record, not {}", records.len()) };
        assert_eq!(record.key_text(), Some(text));
        assert_eq!(record.value_text(), Some(&*format!("[\"{text}\"]")));
        assert_eq!(["id", "event_type", text].map(|name| record.header(name)), [Some(text); 3]);
    }
}

#[test]
fn a_text_that_has_no_utf_8_halts_before_its_transaction() {
    // In EUC_JP two bytes that stand for no character; in a database without encoding whatever is no UTF-8.
    for (encoding, text) in [("EUC_JP", r"convert_from('\xa9a9', 'EUC_JP')"), ("SQL_ASCII", r"E'caf\xe9'")] {
        let options = format!("ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0");
        let database = Postgres::shared(MAIN).database_with(&options);
        let outbox = Outbox::create(&database);
        let session = database.session();
        session.run("ALTER TABLE walpost.outbox ALTER payload TYPE text");
        let insert = |payload: &str| {
            session.run(&format!(
                "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload)
                 VALUES ('t', 'é', 'e', {payload})"
            ));
        };
        let lsn = || session.get::<u64>("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint");
        // What is UTF-8 already passes through a database without encoding.
        if encoding == "SQL_ASCII" {
            insert("'before é'");
        } else {
            session.run("INSERT INTO walpost.outbox (aggregate_type, event_type, payload) VALUES ('t', 'e', 'before')");
        }
        let walpost = Walpost::start(&quick(&outbox, ""));
        walpost.streams(&outbox, WITHIN);
        outbox.drained(WITHIN);
        let before = lsn();
        insert(text);
        assert_eq!(walpost.wait_exit(WITHIN), 1);
        assert!(walpost.log().contains("PostgreSQL cannot convert a value to UTF-8"), "{}", walpost.log());
        assert!(outbox.confirmed() <= before, "nothing of it is confirmed");
        // It is there again at the next start, and after it is skipped the stream goes on.
        assert!(halted(&outbox, "").contains("PostgreSQL cannot convert a value to UTF-8"));
        session.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", outbox.slot()));
        session.run("INSERT INTO walpost.outbox (aggregate_type, event_type, payload) VALUES ('t', 'e', 'after')");
        let records = streamed(&outbox, "", &[&outbox.topic("t")]);
        let values: Vec<_> = records.iter().map(|record| record.value_text().unwrap_or_default()).collect();
        assert!(matches!(values[..], ["before" | "before é", "after"]), "{values:?}");
    }
}
