//! Inputs to start from, of every target but `decoder`.
#![allow(dead_code)] // each user needs another part

/// The target's name and its inputs.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let text = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let file = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    vec![
        (
            "configuration",
            vec![
                // Without the comments, which hold words that the target passes over.
                file(0, &without_comments(include_str!("../walpost.toml"))),
                file(
                    0,
                    "brokers = 'kafka:9092'\n[kafka]\n'linger.ms' = 5\nsasl.password = 'x'\n[route]\ntopic = 'a.${b}'\n",
                ),
                file(
                    0,
                    "[[outbox]]\ntable = '\"A\".b'\ncolumns.id = 'i'\n[[outbox]]\nmessage_prefix = 'm'\nroute.topic = 't'\n",
                ),
                file(
                    0,
                    "sink.kind = 'webhook'\n[webhook]\nurl = 'https://a.example/${event_type}'\nbackoff = '1s'\nallow_hosts = '*.b.example'\n",
                ),
                file(0, "sink.kind = 'rabbitmq'\nrabbitmq.url = 'amqp://a:b@h/%2f'\nin_flight_bytes = '16MiB'\n"),
                file(
                    1,
                    r#"{"name":"orders","config":{"connector.class":"io.debezium.connector.postgresql.PostgresConnector","topic.prefix":"shop","database.hostname":"db","database.user":"u","database.dbname":"shop","table.include.list":"public.outbox","transforms":"outbox","transforms.outbox.type":"io.debezium.transforms.outbox.EventRouter","key.converter":"org.apache.kafka.connect.storage.StringConverter","producer.override.sasl.jaas.config":"x.PlainLoginModule required username=\"a\" password='b';"}}"#,
                ),
                file(
                    2,
                    "name=orders\nconnector.class=io.debezium.connector.postgresql.PostgresConnector\ntopic.prefix=shop\ndatabase.hostname=db\ndatabase.user=u\ndatabase.dbname=shop\nschema.include.list=pub.*\nsnapshot.mode=initial\\\n  \ntransforms=r\ntransforms.r.type=org.apache.kafka.connect.transforms.RegexRouter\ntransforms.r.regex=(.*)\ntransforms.r.replacement=$1\n",
                ),
                file(
                    3,
                    "debezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=kafka:9092\ndebezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector\ndebezium.source.topic.prefix=shop\ndebezium.source.database.hostname=db\ndebezium.source.database.user=u\ndebezium.source.database.dbname=shop\n",
                ),
            ],
        ),
        (
            "connection_string",
            text(&[
                "postgres://u:p%40@[::1]:5433,db:1/app?sslmode=verify-full&sslrootcert=/ca.pem&application_name=a%20b",
                "host=a,b hostaddr=127.0.0.1,10.0.0.1 port=1,2 user='o\\'p' password = 'x y' options='-c a=b'",
                "host=/tmp dbname=app keepalives=0 connect_timeout=3 target_session_attrs=read-write load_balance_hosts=random",
                "postgresql:///?host=%2Fvar%2Frun&user=w",
            ]),
        ),
        (
            "json",
            text(&[
                r#"{"a": [1, -2.5e10, null, true], "b": {"c": "\u00e9\ud83d\ude00\n"}, "a": 9223372036854775808}"#,
                r#"[{"x": 1}, {"x": null, "y": []}]"#,
                r#"{"1-a": {"": [[], [[]]]}, "d": 1e400}"#,
            ]),
        ),
        (
            "template",
            text(&[
                "outbox.event.${aggregate_type}",
                "https://hooks.example:8443/a/${event_type}?k=${aggregate_id}",
                "*.example.com:443",
                "\"A\"\"b\".outbox",
                "(?i)(?<x>\\Qa.b\\E|[a-z&&[^c]]++)\\.(\\d{2,})?$\n${x}-$2\\$\na.b.12",
                "^(?!x)(.*?)\\R\\h(?x: a # b\n$1\nabc",
            ]),
        ),
        (
            "row",
            text(&[
                "e1\0o-1\0order\0{\"a\": 1}\0{\"h\": \"v\", \"n\": 1}\0placed\x002026-01-31 08:15:00.25+00\x0000-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\0t",
                "e2\0\0a b\0[]\0[]\0\0infinity",
                "e3\0k\0order\0\"x\"\0{\"content-type\": {\"a\": []}, \"\": null}\0t\x000044-03-15 12:00:00+00 BC",
            ]),
        ),
    ]
}

fn without_comments(file: &str) -> String {
    file.lines().map(|line| format!("{}\n", line.split('#').next().unwrap_or_default())).collect()
}
