//! A row becomes a record byte for byte: nothing is parsed and printed again on the way.

use crate::support::{
    kafka::Kafka,
    outbox::Outbox,
    postgres::{Database, MAIN, Postgres},
    records::Record,
    streamed::{streamed, transactions},
};

/// Another outbox beside walpost's, with some columns of other types, published too.
fn another(database: &Database<'_>, table: &str, changes: &str) {
    database.sql(&format!(
        "CREATE TABLE {table} (LIKE walpost.outbox INCLUDING ALL);
         ALTER TABLE {table} {changes};
         ALTER PUBLICATION walpost ADD TABLE {table}"
    ));
}

#[test]
fn a_record_has_its_headers_in_order_and_a_position_of_its_own() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    session.run("ALTER TABLE walpost.outbox ADD traceparent text");
    // Two events in one transaction, then one in the next.
    session.run(
        "BEGIN;
         INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, idempotency_key,
           occurred_at, traceparent)
         VALUES ('00000000-0000-4000-8000-000000000001', 'a', 'k', 'first', '{\"b\": 1, \"a\":2}',
           '{\"x\": \"text\", \"id\": \"own\", \"n\": 1.50, \"deep\": {\"a\": [1, null]}, \"null\": null, \"empty\": \"\",
             \"ü\": \"ö\\n\"}',
           'idem', '2026-01-31 09:15:00+01', '00-abc-def-01');
         INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload, occurred_at)
         VALUES ('00000000-0000-4000-8000-000000000002', 'a', 'k', 'second', NULL, '1969-12-31 23:59:59.999999+00');
         COMMIT",
    );
    session.run(
        "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload, occurred_at)
         VALUES ('00000000-0000-4000-8000-000000000003', 'a', 'k', 'third', 'null', '2026-01-01 00:00:00+00')",
    );
    let [one, two] = transactions(&outbox)[..] else { panic!("two transactions have events") };
    let topic = outbox.topic("a");
    let records = streamed(&outbox, "", &[&topic]);

    let expected = |offset: i64, transaction: &crate::support::streamed::Transaction, value: Option<&str>| {
        let headers: &[(&str, &str)] = match offset {
            0 => &[
                ("id", "00000000-0000-4000-8000-000000000001"),
                ("event_type", "first"),
                ("aggregate_type", "a"),
                ("occurred_at", "2026-01-31T08:15:00.000000Z"),
                ("position", &one.position(0)),
                ("idempotency_key", "idem"),
                ("traceparent", "00-abc-def-01"),
                // In the order of jsonb: by length, then by bytes.
                ("n", "1.50"),
                ("x", "text"),
                ("id", "own"),
                ("ü", "ö\n"),
                ("deep", r#"{"a": [1, null]}"#),
                ("null", "null"),
                ("empty", ""),
            ],
            1 => &[
                ("id", "00000000-0000-4000-8000-000000000002"),
                ("event_type", "second"),
                ("aggregate_type", "a"),
                ("occurred_at", "1969-12-31T23:59:59.999999Z"),
                ("position", &one.position(1)),
            ],
            _ => &[
                ("id", "00000000-0000-4000-8000-000000000003"),
                ("event_type", "third"),
                ("aggregate_type", "a"),
                ("occurred_at", "2026-01-01T00:00:00.000000Z"),
                ("position", &two.position(0)),
            ],
        };
        Record {
            topic: topic.clone(),
            partition: 0,
            offset,
            timestamp: Some(transaction.commit_ms),
            key: Some(b"k".to_vec()),
            value: value.map(|text| text.as_bytes().to_vec()),
            headers: headers.iter().map(|(n, v)| ((*n).to_owned(), Some(v.as_bytes().to_vec()))).collect(),
        }
    };
    assert_eq!(
        records,
        [
            expected(0, &one, Some(r#"{"a": 2, "b": 1}"#)),
            // SQL NULL is a tombstone, JSON null is four bytes.
            expected(1, &one, None),
            expected(2, &two, Some("null")),
        ]
    );
}

#[test]
fn payloads_of_every_type_pass_untouched() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    another(&database, "as_json", "ALTER payload TYPE json");
    another(&database, "as_text", "ALTER payload TYPE text");
    another(&database, "as_bytes", "ALTER payload TYPE bytea USING NULL");
    let session = database.session();
    let mut expected: Vec<(String, Option<Vec<u8>>)> = Vec::new();
    let mut insert = |table: &str, sql: &str, bytes: Option<&[u8]>| {
        let id: String = session.get(&format!(
            "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, payload)
             VALUES ('t', 'k', 'e', {sql}) RETURNING id"
        ));
        expected.push((id, bytes.map(<[u8]>::to_vec)));
    };
    let odd =
        r#"  {"b" :1,"a":  2,"a":3, "big":123456789012345678901234567890, "one":1.0,"huge":1e400,"s":"\/\u00e9 é"} "#;
    let escapes = r#"{"nul":"\u0000","lone":"\ud800","back":"\udc00\ud800"}"#;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let (nested, deeper) = (nested(3_000), nested(10_000));
    for text in [odd, escapes, &nested, "null", "\"\""] {
        insert("as_json", &format!("'{text}'"), Some(text.as_bytes()));
    }
    for text in [odd, escapes, &deeper, "", " ", "no json: é 漢 🦀 \u{1} \t\r\n"] {
        insert("as_text", &format!("'{text}'"), Some(text.as_bytes()));
    }
    // jsonb is what the server prints.
    for text in [odd, &nested, "null", "\"\"", r#"[1.0, 1e3, -0, "\u00e9"]"#] {
        let printed = session.value(&format!("SELECT '{text}'::jsonb::text")).expect("not NULL");
        insert("walpost.outbox", &format!("'{text}'"), Some(printed.as_bytes()));
    }
    let every_byte: Vec<u8> = (0..=255).collect();
    let hex: String = every_byte.iter().map(|byte| format!("{byte:02x}")).collect();
    insert("as_bytes", &format!("'\\x{hex}'"), Some(&every_byte));
    insert("as_bytes", "''", Some(b""));
    for table in ["as_json", "as_text", "as_bytes", "walpost.outbox"] {
        insert(table, "NULL", None);
    }
    let tables = ["public.as_json", "public.as_text", "public.as_bytes", "walpost.outbox"];
    let tables = tables.map(|table| format!("[[outbox]]\ntable = \"{table}\"\n")).concat();
    let records = streamed(&outbox, &tables, &[&outbox.topic("t")]);
    for (record, (id, value)) in records.iter().zip(&expected) {
        assert_eq!(record.header("id"), Some(&**id));
        assert!(record.value == *value, "{:.300} is not {:.300}", format!("{record:?}"), format!("{value:?}"));
    }
    assert_eq!(records.len(), expected.len());
}

#[test]
fn numbers_and_times_are_text_as_postgresql_prints_it_whatever_the_database_prefers() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    another(
        &database,
        "numbers",
        "ALTER event_type TYPE numeric USING NULL, ALTER idempotency_key TYPE float8 USING NULL",
    );
    database
        .sql("ALTER TABLE numbers ADD span interval, ADD traceparent timestamptz, ALTER payload TYPE bytea USING NULL");
    let session = database.session();
    // Sessions that begin from here on print otherwise; the stream must not.
    let name = &database.name;
    for setting in [
        "extra_float_digits = -15",
        "DateStyle = 'German'",
        "IntervalStyle = 'sql_standard'",
        "TimeZone = 'Asia/Tokyo'",
        "bytea_output = 'escape'",
        "client_encoding = 'LATIN1'",
    ] {
        session.run(&format!("ALTER DATABASE {name} SET {setting}"));
    }
    let long = "7".repeat(1_000);
    for (numeric, float) in [
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("1e-20", "1e-20"),
        (long.as_str(), "1e308"),
        ("-0", "-0"),
        ("0.10", "0.1"),
        ("12345678901234567890.123456789", "0.30000000000000004"),
    ] {
        session.run(&format!(
            "INSERT INTO numbers (aggregate_type, aggregate_id, event_type, idempotency_key, span, traceparent, payload)
             VALUES ('t', 'é', '{numeric}', '{float}', '1 year 2 mons 3 days 04:05:06.7', '2026-07-31 23:00:00.5+02', '\\x00ff')"
        ));
    }
    let tables = "[[outbox]]\ntable = \"public.numbers\"\ncolumns.aggregate_type = \"span\"\n\
                  columns.event_type = \"event_type\"\nroute.topic = \"";
    let topic = outbox.topic("t");
    let records = streamed(&outbox, &format!("{tables}{topic}\"\n"), &[&topic]);
    let printed = session.rows(
        "SELECT id::text, event_type::text, idempotency_key::text, span::text, traceparent::text, occurred_at::text
         FROM numbers ORDER BY seq",
    );
    assert_eq!(records.len(), printed.len());
    for (record, row) in records.iter().zip(&printed) {
        for (name, text) in ["id", "event_type", "idempotency_key", "aggregate_type", "traceparent"].iter().zip(row) {
            assert_eq!(record.header(name), text.as_deref());
        }
        assert_eq!(record.header("traceparent"), Some("2026-07-31 21:00:00.5+00"));
        assert_eq!(record.header("aggregate_type"), Some("1 year 2 mons 3 days 04:05:06.7"));
        assert_eq!((record.key_text(), record.value.as_deref()), (Some("é"), Some(&[0, 255][..])));
    }
}

#[test]
fn times_without_an_rfc_3339_form_keep_postgresqls_and_stamp_the_commit() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    another(&database, "stamped", "ADD other timestamp");
    let session = database.session();
    // The time, its header, and the timestamp it gives a record; none: that of the commit.
    let times = [
        ("infinity", "infinity", None),
        ("-infinity", "-infinity", None),
        ("4713-01-01 00:00:00+00 BC", "4713-01-01 00:00:00+00 BC", None),
        ("0001-01-01 00:00:00+00", "0001-01-01T00:00:00.000000Z", None),
        ("294276-12-31 23:59:59.999999+00", "294276-12-31 23:59:59.999999+00", None),
        ("1969-12-31 23:59:59.999+00", "1969-12-31T23:59:59.999000Z", None),
        ("1970-01-01 00:00:00+00", "1970-01-01T00:00:00.000000Z", None),
        ("1970-01-01 00:00:00.001+00", "1970-01-01T00:00:00.001000Z", Some(1)),
        ("2026-01-31 08:15:00.1234567+00", "2026-01-31T08:15:00.123457Z", Some(1_769_847_300_123)),
        ("2024-02-29 23:59:59.999999+00", "2024-02-29T23:59:59.999999Z", Some(1_709_251_199_999)),
    ];
    for table in ["walpost.outbox", "stamped"] {
        for (time, ..) in times {
            session.run(&format!(
                "INSERT INTO {table} (aggregate_type, aggregate_id, event_type, occurred_at)
                 VALUES ('{}', 'k', 'e', '{time}')",
                table.trim_start_matches("walpost.")
            ));
        }
    }
    let commits = transactions(&outbox);
    let (plain, stamped) = (outbox.topic("outbox"), outbox.topic("stamped"));
    let tables = "[[outbox]]\ntable = \"walpost.outbox\"\n\
                  [[outbox]]\ntable = \"public.stamped\"\nrecord.timestamp = \"column\"\n";
    let records = streamed(&outbox, tables, &[&plain, &stamped]);
    let expected: Vec<_> = times
        .iter()
        .map(|(_, header, _)| (Some(*header), None))
        .chain(times.iter().map(|(_, header, stamp)| (Some(*header), *stamp)))
        .zip(&commits)
        .map(|((header, stamp), commit)| (header, Some(stamp.unwrap_or(commit.commit_ms))))
        .collect();
    let got: Vec<_> = records.iter().map(|record| (record.header("occurred_at"), record.timestamp)).collect();
    assert_eq!(got, expected);
}

#[test]
fn keys_are_the_columns_text_and_null_is_no_key() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    another(&database, "by_uuid", "ALTER aggregate_id TYPE uuid USING NULL");
    another(&database, "by_number", "ALTER aggregate_id TYPE numeric USING NULL");
    let session = database.session();
    for (table, key) in [
        ("walpost.outbox", "NULL"),
        ("walpost.outbox", "''"),
        ("walpost.outbox", "' '"),
        ("walpost.outbox", "'ключ'"),
        ("by_uuid", "'{6F1C0E8A-0000-4000-8000-00000000ABCD}'"),
        ("by_uuid", "NULL"),
        ("by_number", "0012.50"),
    ] {
        session
            .run(&format!("INSERT INTO {table} (aggregate_type, aggregate_id, event_type) VALUES ('t', {key}, 'e')"));
    }
    let tables = ["walpost.outbox", "public.by_uuid", "public.by_number"];
    let tables = tables.map(|table| format!("[[outbox]]\ntable = \"{table}\"\n")).concat();
    let records = streamed(&outbox, &tables, &[&outbox.topic("t")]);
    let keys: Vec<_> = records.iter().map(Record::key_text).collect();
    let uuid = "6f1c0e8a-0000-4000-8000-00000000abcd";
    assert_eq!(keys, [None, Some(""), Some(" "), Some("ключ"), Some(uuid), None, Some("12.50")]);
}

#[test]
fn optional_headers_are_left_out_when_null_and_sent_whatever_else_they_hold() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let session = database.session();
    let huge = "ж".repeat(35_000);
    session.run("ALTER TABLE walpost.outbox ADD \"Trace Parent\" text, ALTER headers TYPE json");
    for (value, headers) in [
        ("NULL", "NULL".to_owned()),
        ("''", "'{}'".to_owned()),
        ("'ü'", r#"'{"same": 1, "same": "two", "lone": "\ud800", "nul": "\u0000"}'"#.to_owned()),
        ("repeat('ж', 35000)", format!(r#"'{{"huge": "{huge}"}}'"#)),
    ] {
        session.run(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, idempotency_key, headers, \"Trace Parent\")
             VALUES ('t', 'k', '', {value}, {headers}, {value})"
        ));
    }
    let more = "[columns]\ntraceparent = \"Trace Parent\"\n";
    let records = streamed(&outbox, more, &[&outbox.topic("t")]);
    let optional = |record: &Record| {
        let fixed = ["id", "aggregate_type", "occurred_at", "position"];
        let value = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().expect("not null")).expect("UTF-8");
        let rest = record.headers.iter().filter(|(name, _)| !fixed.contains(&name.as_str()));
        rest.map(|(name, v)| (name.clone(), value(v))).collect::<Vec<_>>()
    };
    let expected: [&[(&str, &str)]; 4] = [
        &[("event_type", "")],
        &[("event_type", ""), ("idempotency_key", ""), ("traceparent", "")],
        &[
            ("event_type", ""),
            ("idempotency_key", "ü"),
            ("traceparent", "ü"),
            ("same", "1"),
            ("same", "two"),
            // No text can hold a lone surrogate: it stays JSON.
            ("lone", r#""\ud800""#),
            ("nul", "\0"),
        ],
        &[("event_type", ""), ("idempotency_key", &huge), ("traceparent", &huge), ("huge", &huge)],
    ];
    let expected =
        expected.map(|list| list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Vec<_>>());
    let got: Vec<_> = records.iter().map(optional).collect();
    assert!(got == expected, "{:.2000}", format!("{got:?}"));
}

#[test]
fn keys_go_to_the_partitions_that_java_clients_choose() {
    const PARTITIONS: i32 = 17;
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let topic = outbox.topic("t");
    Kafka::shared().create_topic(&topic, PARTITIONS, &[]);
    database.sql(
        "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type)
         SELECT 't', left('ключ-漢-abcdefghijklmnopqrstuvwxyz', n % 40) || repeat(n::text, n % 7), 'e'
         FROM generate_series(0, 500) n",
    );
    let records = streamed(&outbox, "", &[&topic]);
    assert_eq!(records.len(), 501);
    for record in &records {
        let key = record.key.as_deref().expect("a key");
        let java = (murmur2(key) & 0x7fff_ffff) % PARTITIONS.unsigned_abs();
        assert_eq!(record.partition.unsigned_abs(), java, "{:?}", record.key_text());
    }
}

/// MurmurHash2 with the seed of Kafka's Java clients.
fn murmur2(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(bytes.len()).expect("a key is short");
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mut k = u32::from_le_bytes(word.try_into().expect("four bytes")).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * place);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}
