use std::{fs, path::PathBuf, time::Duration};

use tempfile::TempDir;

use super::*;
use crate::{
    config::ConfigError,
    connect::{
        converter::Number,
        json::{DecimalFormat, Json},
    },
    debezium::{
        expand::NullBehavior,
        modes::{BinaryMode, TimeMode},
    },
};

/// What every golden variant has, and more that a test gives.
fn json(more: &[(&str, &str)]) -> String {
    let mut config = serde_json::Map::new();
    for (key, value) in [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("tasks.max", "1"),
        ("database.hostname", "127.0.0.1"),
        ("database.port", "5432"),
        ("database.user", "postgres"),
        ("database.password", "hush"),
        ("database.dbname", "shop"),
        ("topic.prefix", "dbz"),
        ("plugin.name", "pgoutput"),
        ("publication.name", "dbz_pub"),
        ("publication.autocreate.mode", "filtered"),
        ("table.include.list", "public.outbox"),
        ("snapshot.mode", "no_data"),
        ("slot.name", "orders"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
    ]
    .iter()
    .chain(more)
    {
        config.insert((*key).to_owned(), serde_json::Value::from(*value));
    }
    serde_json::json!({ "name": "orders", "config": config }).to_string()
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str, text: &str) -> Result<Import, ConfigError> {
        Import::read(&self.write(name, text), None, false, &environment())
    }
}

fn environment() -> Environment {
    Environment::from_iter([("DB_PASSWORD".to_owned(), "hush".to_owned())])
}

fn import(more: &[(&str, &str)]) -> Import {
    Files::new().read("connector.json", &json(more)).unwrap_or_else(|error| panic!("{more:?}: {error}"))
}

fn connector(more: &[(&str, &str)]) -> Connector {
    import(more).connector().clone()
}

fn refused(more: &[(&str, &str)]) -> String {
    match Files::new().read("connector.json", &json(more)) {
        Ok(_) => panic!("{more:?} is taken"),
        Err(error) => error.to_string(),
    }
}

fn router(connector: &Connector) -> &Router {
    match &connector.transforms.last().unwrap().does {
        Does::EventRouter(router) => router,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_are_debeziums() {
    let connector = connector(&[]);
    assert_eq!(connector.name.as_deref(), Some("orders"));
    assert_eq!(connector.header_converter, Converter::Simple);
    assert_eq!(connector.skipped, Operations { truncate: true, ..Operations::default() });
    assert_eq!((connector.tombstones_on_delete, connector.context_headers), (true, true));
    assert_eq!((&connector.heartbeat, &connector.transaction_topic), (&None, &None));
    assert_eq!(connector.snapshot, SnapshotMode::NoData);
    assert_eq!(connector.tolerance, Tolerance::None);
    assert_eq!((&connector.modes, connector.schema_names), (&Modes::default(), NameAdjustment::None));
    let router = router(&connector);
    assert_eq!((router.id.as_str(), router.key.as_str(), router.payload.as_str()), ("id", "aggregateid", "payload"));
    assert_eq!((router.route_by.as_str(), router.topic_pattern.as_str()), ("aggregatetype", "(?<routedByValue>.*)"));
    assert_eq!((router.missing, router.invalid_operation), (MissingColumn::Error, InvalidOperation::Warn));
    assert!(router.placements.is_empty() && router.tracing.column_only && !router.has_envelope());
    // The wire's own defaults, where the file names no slot and no publication.
    let mut minimal = json(&[]);
    for given in [r#""slot.name":"orders","#, r#""publication.name":"dbz_pub","#] {
        minimal = minimal.replace(given, "");
    }
    let minimal = Files::new().read("minimal.json", &minimal).unwrap();
    assert_eq!(minimal.connector().slot, "debezium");
    assert_eq!(minimal.connector().publication.name, "dbz_publication");
}

#[test]
fn what_is_given_is_typed() {
    let connector = connector(&[
        ("transforms", "decode, outbox"),
        ("transforms.decode.type", "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"),
        (
            "transforms.outbox.table.fields.additional.placement",
            "type:envelope:eventType, tenant:Header,part:partition",
        ),
        ("transforms.outbox.table.field.additional.missing", "ignore"),
        ("transforms.outbox.table.op.invalid.behavior", "FATAL"),
        ("transforms.outbox.table.json.payload.null.behavior", "optional_bytes"),
        ("transforms.outbox.route.topic.regex", "svc-(.*)"),
        ("transforms.outbox.route.topic.replacement", "ev.$1"),
        ("value.converter", "io.debezium.converters.BinaryDataConverter"),
        ("value.converter.delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter.delegate.converter.type.schemas.enable", "false"),
        ("key.converter", "org.apache.kafka.connect.converters.LongConverter"),
        ("heartbeat.interval.ms", "1000"),
        ("provide.transaction.metadata", "true"),
        ("skipped.operations", "none"),
        ("errors.tolerance", "all"),
        ("message.prefix.include.list", "outbox"),
        ("binary.handling.mode", "base64-url-safe"),
        ("time.precision.mode", "isostring"),
        ("unavailable.value.placeholder", "hex:00ff"),
        ("snapshot.mode", "initial_only"),
    ]);
    let router = router(&connector);
    let placed = |column: &str, place, alias: &str| Placement { column: column.into(), place, alias: alias.into() };
    assert_eq!(
        router.placements,
        [
            placed("type", Placed::Envelope, "eventType"),
            placed("tenant", Placed::Header, "tenant"),
            placed("part", Placed::Partition, "part"),
        ]
    );
    assert_eq!((router.missing, router.invalid_operation), (MissingColumn::Ignore, InvalidOperation::Fatal));
    assert!(router.json_nulls == NullBehavior::OptionalBytes && router.has_envelope());
    let topic = |value: &str| router.topic_pattern.rewrite(value, &router.topic_replacement).unwrap();
    assert_eq!((topic("svc-a-b").as_deref(), topic("nomatch")), (Some("ev.a-b"), None));
    assert_eq!(connector.transforms[0].does, Does::DecodeMessage { keep_nulls: false });
    let json = Json { schemas: false, decimals: DecimalFormat::Base64, null_becomes_default: true };
    assert_eq!(connector.value_converter, Converter::BinaryData(Some(Box::new(Converter::Json(json)))));
    assert_eq!(connector.key_converter, Converter::Number(Number::Long));
    let heartbeat = Heartbeat { interval: Duration::from_secs(1), topic: "__debezium-heartbeat.dbz".into() };
    assert_eq!(connector.heartbeat, Some(heartbeat));
    assert_eq!(connector.transaction_topic.as_deref(), Some("dbz.transaction"));
    assert_eq!((connector.skipped, connector.tolerance), (Operations::default(), Tolerance::All));
    assert_eq!(connector.message_prefixes.unwrap().takes("other"), Ok(false));
    assert_eq!((connector.modes.binary, connector.modes.time), (BinaryMode::Base64UrlSafe, TimeMode::IsoString));
    assert_eq!(connector.modes.unavailable_value_placeholder, [0, 255]);
    assert_eq!(connector.snapshot, SnapshotMode::InitialOnly);
}

#[test]
fn refusals_name_key_value_and_what_is_allowed() {
    for (key, value, words) in [
        (
            "transforms.outbox.table.fields.additional.placement",
            "type:headers",
            &["headers", "header, envelope, partition"][..],
        ),
        ("transforms.outbox.table.op.invalid.behavior", "nope", &["\"nope\"", "warn, error, fatal"]),
        ("transforms.outbox.route.tombstone.on.empty.payload", "maybe", &["\"maybe\"", "true and false"]),
        ("transforms.outbox.route.topic.regex", "(", &["\"(\"", "unclosed group"]),
        ("transforms.outbox.route.topic.replacement", "ev.$2", &["ev.$2", "no group 2"]),
        ("snapshot.mode", "always", &["always", "initial, no_data"]),
        ("plugin.name", "decoderbufs", &["decoderbufs", "pgoutput"]),
        ("slot.name", "Orders", &["Orders", "a-z, 0-9"]),
        ("skipped.operations", "x", &["\"x\"", "c, u, d, t, r"]),
        ("table.include.list", "public.(", &["public.(", "unclosed group"]),
        ("errors.tolerance", "some", &["\"some\"", "none, all"]),
        ("database.port", "0", &["\"0\"", "from 1"]),
        ("topic.prefix", "a b", &["\"a b\"", "letters"]),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", &["AvroConverter", "JsonConverter"]),
        ("converters", "isbn", &["isbn", "Java classes"]),
        ("column.mask.with.10.chars", "public.outbox.payload", &["column.mask.with.10.chars", "leave it out"]),
        ("transforms.outbox.predicate", "isOutbox", &["isOutbox", "predicates"]),
        ("table.exclude.list", "public.other", &["table.include.list is given too"]),
        ("producer.override.partitioner.class", "com.example.P", &["other partitions"]),
        ("producer.override.compression.type", "lzma", &["compression.type"]),
        ("producer.override.ssl.truststore.location", "/trust.jks", &["PEM"]),
        ("database.hostname", "${vault:db:host}", &["vault", "not available"]),
    ] {
        let message = refused(&[(key, value)]);
        assert!(message.contains(key), "{message}");
        for word in words {
            assert!(message.contains(word), "{message}: {word}");
        }
    }
    let transform =
        [("transforms", "outbox,x"), ("transforms.x.type", "org.apache.kafka.connect.transforms.InsertHeader")];
    assert!(refused(&transform).contains("InsertHeader"));
    // What has been looked up may be a secret.
    let message = refused(&[("database.port", "${env:DB_PASSWORD}")]);
    assert!(message.contains("database.port") && !message.contains("hush"), "{message}");
}

#[test]
fn unknown_keys_and_those_without_meaning_are_told() {
    let more = [("slot.nmae", "x"), ("max.batch.size", "10"), ("transforms.outbox.nonsense", "1")];
    let remarks: Vec<String> = import(&more).remarks().iter().map(ToString::to_string).collect();
    assert!(
        remarks.contains(&"slot.nmae is unknown and means nothing; did you mean slot.name?".to_owned()),
        "{remarks:?}"
    );
    assert!(remarks.contains(&"transforms.outbox.nonsense is unknown and means nothing".to_owned()));
    assert!(remarks.iter().any(|remark| remark.starts_with("max.batch.size means nothing here: in_flight_records")));
    let files = Files::new();
    let strict = Import::read(&files.write("c.json", &json(&more)), None, true, &environment());
    let message = strict.err().map(|error| error.to_string()).unwrap();
    assert!(message.ends_with("slot.nmae is no key of a connector; did you mean slot.name?"), "{message}");
}

#[test]
fn every_form_says_the_same() {
    let files = Files::new();
    let config: serde_json::Value =
        serde_json::from_str(&json(&[("transforms.outbox.route.topic.replacement", "ev.$0")])).unwrap();
    let bare = files.read("bare.json", &config["config"].to_string()).unwrap();
    let pairs = config["config"].as_object().unwrap();
    let line = |(key, value): (&String, &serde_json::Value)| format!("{key} = {}\n", value.as_str().unwrap());
    let properties: String = pairs.iter().map(line).collect();
    let worker = "bootstrap.servers=kafka:9092\nproducer.linger.ms=5\nplugin.path=/plugins\n";
    let one_file = files.read("connector.properties", &format!("name=orders\n{properties}{worker}")).unwrap();
    let mut server = String::from(
        "debezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=kafka:9092\n\
         debezium.sink.kafka.producer.linger.ms=5\nquarkus.log.level=INFO\ndebezium.format.key=simplestring\n\
         debezium.format.value=simplestring\ndebezium.format.schemas.enable=false\n",
    );
    for (key, value) in pairs.iter().filter(|(key, _)| !key.ends_with(".converter")) {
        let prefix = if key.starts_with("transforms") { "debezium" } else { "debezium.source" };
        server.push_str(&format!("{prefix}.{key}={}\n", value.as_str().unwrap().replace("$", "$$")));
    }
    let server = files.read("application.properties", &server).unwrap();
    for import in [&bare, &one_file, &server] {
        let connector = import.connector();
        assert_eq!((connector.slot.as_str(), connector.topic_prefix.as_str()), ("orders", "dbz"));
        assert_eq!(connector.key_converter, Converter::String);
        assert_eq!(
            router(connector).topic_pattern.rewrite("x", &router(connector).topic_replacement),
            Ok(Some("ev.x".into()))
        );
    }
    assert_eq!((bare.connector().host, server.connector().host), (Host::Connect, Host::Server));
    let json = Json { schemas: false, decimals: DecimalFormat::Base64, null_becomes_default: true };
    assert_eq!(server.connector().header_converter, Converter::Json(json));
    for import in [&one_file, &server] {
        let producer = &import.connector().producer;
        assert_eq!(producer.brokers.as_ref().map(|told| told.value.as_str()), Some("kafka:9092"));
        assert_eq!(producer.properties().get("linger.ms"), Some("5"));
    }
    assert!(files.read("list.json", "[1]").is_err());
    assert!(files.read("cut.json", "{").is_err_and(|error| error.to_string().contains("cut.json:1:")));
    assert!(files.read("deep.json", r#"{"a": {"b": 1}}"#).is_err_and(|error| error.to_string().contains("a: ")));
}

#[test]
fn the_worker_gives_what_the_connector_does_not() {
    let files = Files::new();
    let mut without = json(&[("producer.override.compression.type", "lz4"), ("key.converter", "StringConverter")]);
    without = without.replace(r#","value.converter":"org.apache.kafka.connect.storage.StringConverter""#, "");
    let path = files.write("connector.json", &without);
    let alone = Import::read(&path, None, false, &environment()).err().unwrap().to_string();
    assert!(alone.contains("value.converter") && alone.contains("worker"), "{alone}");
    let worker = files.write(
        "worker.properties",
        "bootstrap.servers=a:9092, b:9092\n\
         key.converter=org.apache.kafka.connect.json.JsonConverter\nkey.converter.schemas.enable=false\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\nvalue.converter.schemas.enable=false\n\
         security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nproducer.compression.type=zstd\n\
         producer.max.request.size=2097152\nproducer.buffer.memory=67108864\nproducer.acks=1\n\
         sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"hush\";\n",
    );
    let import = Import::read(&path, Some(&worker), true, &environment()).unwrap();
    let connector = import.connector();
    assert_eq!(connector.key_converter, Converter::String);
    assert!(matches!(connector.value_converter, Converter::Json(Json { schemas: false, .. })));
    let properties = connector.producer.properties();
    for (name, value) in [
        ("compression.type", "lz4"),
        ("message.max.bytes", "2097152"),
        ("queue.buffering.max.kbytes", "65536"),
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "u"),
        ("sasl.password", "hush"),
    ] {
        assert_eq!(properties.get(name), Some(value), "{name}");
    }
    assert_eq!(properties.get("acks"), None);
    let toml = import.to_toml();
    assert!(toml.contains("brokers = \"a:9092,b:9092\""), "{toml}");
    assert!(toml.contains("\"sasl.username\" = \"u\"") && !toml.contains("hush"), "{toml}");
    assert!(!format!("{connector:?}").contains("hush"));
}

#[test]
fn chained_transforms_are_taken_where_they_change_nothing_that_lasts() {
    let chain = [
        ("transforms", "merge,outbox"),
        ("transforms.merge.type", "io.debezium.transforms.ByLogicalTableRouter"),
        ("transforms.merge.topic.regex", "(.*)outbox_(.*)"),
        ("transforms.merge.topic.replacement", "$1outbox"),
    ];
    let class = "io.debezium.transforms.ByLogicalTableRouter".to_owned();
    assert_eq!(connector(&chain).transforms[0].does, Does::Overwritten { class });
    let with = |more: &[(&'static str, &'static str)]| [&chain[..], more].concat();
    assert!(refused(&with(&[("transforms", "outbox,merge")])).contains("ByLogicalTableRouter"));
    let shown = ("value.converter", "org.apache.kafka.connect.json.JsonConverter");
    assert!(refused(&with(&[shown])).contains("ByLogicalTableRouter"));
    // A condition may keep it from the outbox, which its topic will tell.
    let guarded = connector(&with(&[
        ("transforms", "outbox,merge"),
        ("transforms.merge.predicate", "others"),
        ("transforms.merge.negate", "true"),
        ("predicates", "others"),
        ("predicates.others.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"),
        ("predicates.others.pattern", r"outbox\.event\..*"),
    ]));
    let Some(Condition { predicate: Predicate::TopicNameMatches(pattern), negate: true }) =
        &guarded.transforms[1].condition
    else {
        panic!("{:?}", guarded.transforms)
    };
    assert_eq!(pattern.matches("outbox.event.order"), Ok(true));
}

#[test]
fn keys_are_shown_as_given_without_secrets() {
    let shown = import(&[
        ("database.user", "${env:DB_PASSWORD}"),
        ("producer.override.sasl.jaas.config", "x.PlainLoginModule required username=\"u\" password=\"hush\";"),
        ("some.vendor.api.key", "hush"),
    ])
    .shown();
    assert!(!format!("{shown:?}").contains("hush"), "{shown:?}");
    assert_eq!((&*shown["database.password"], &*shown["some.vendor.api.key"]), ("[hidden]", "[hidden]"));
    assert_eq!((&*shown["database.user"], &*shown["topic.prefix"]), ("${env:DB_PASSWORD}", "dbz"));
}

#[test]
fn the_counterpart_names_its_origins() {
    let import = import(&[
        ("database.password", "${env:DB_PASSWORD}"),
        ("database.sslmode", "verify-full"),
        ("database.sslrootcert", "/ca.pem"),
        ("transforms.outbox.table.field.event.key", "agg_id"),
        ("transforms.outbox.route.topic.regex", "svc-(.*)"),
        ("transforms.outbox.route.topic.replacement", "ev.$1"),
        ("topic.creation.default.partitions", "3"),
        ("topic.creation.default.replication.factor", "-1"),
        ("producer.override.compression.type", "lz4"),
        ("status.update.interval.ms", "5000"),
    ]);
    let toml = import.to_toml();
    let body: String = toml
        .lines()
        .skip(1)
        .map(|line| format!("{}\n", line.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    assert_eq!(
        body,
        r##"database_url = "postgres://postgres@127.0.0.1:5432/shop?sslmode=verify-full&sslrootcert=/ca.pem" # database.hostname, database.port, database.user, database.dbname, database.sslmode, database.sslrootcert
slot = "orders" # slot.name
publication = "dbz_pub" # publication.name
table = "public.outbox" # table.include.list
preset = "debezium" # transforms.outbox.type
format = "debezium" # transforms.outbox.type
snapshot = "never" # snapshot.mode
status_interval = "5s" # status.update.interval.ms

[kafka]
"compression.type" = "lz4" # producer.override.compression.type
"security.protocol" = "plaintext" # security.protocol, by default

[debezium]
name = "orders" # name
"key.converter" = "org.apache.kafka.connect.storage.StringConverter" # key.converter
"publication.autocreate.mode" = "filtered" # publication.autocreate.mode
"topic.creation.default.partitions" = "3" # topic.creation.default.partitions
"topic.creation.default.replication.factor" = "-1" # topic.creation.default.replication.factor
"topic.prefix" = "dbz" # topic.prefix
transforms = "outbox" # transforms
"transforms.outbox.route.topic.regex" = "svc-(.*)" # transforms.outbox.route.topic.regex
"transforms.outbox.route.topic.replacement" = "ev.$1" # transforms.outbox.route.topic.replacement
"transforms.outbox.table.field.event.key" = "agg_id" # transforms.outbox.table.field.event.key
"transforms.outbox.type" = "io.debezium.transforms.outbox.EventRouter" # transforms.outbox.type
"value.converter" = "org.apache.kafka.connect.storage.StringConverter" # value.converter

# What this does not say:
# - database.password is a secret and not printed: PGPASSWORD, a password file or database_url_file can hold it
# - brokers is to be set: bootstrap.servers is the worker's, whose file --worker names
# - tasks.max means nothing here: one process reads the slot
"##
    );
    assert!(toml.parse::<toml::Table>().is_ok(), "{toml}");
}

#[test]
fn security_that_is_not_given_stays_debeziums() {
    let elsewhere = import(&[
        ("database.hostname", "db"),
        ("producer.override.bootstrap.servers", "kafka:9092"),
        ("producer.override.sasl.mechanism", "PLAIN"),
    ]);
    let toml = elsewhere.to_toml();
    assert!(toml.contains("@db:5432/shop?sslmode=prefer\""), "{toml}");
    assert!(toml.contains("\"security.protocol\" = \"plaintext\""), "{toml}");
    let given = import(&[
        ("database.hostname", "db"),
        ("database.sslmode", "require"),
        ("producer.override.bootstrap.servers", "kafka:9092"),
        ("producer.override.security.protocol", "SSL"),
    ]);
    let toml = given.to_toml();
    assert!(toml.contains("?sslmode=require\""), "{toml}");
    assert!(toml.contains("\"security.protocol\" = \"SSL\""), "{toml}");
}
