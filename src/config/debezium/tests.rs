use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command, FromArgMatches, value_parser};
use tempfile::TempDir;

use super::*;
use crate::{
    config::{FILE_ARGUMENT, Flags, Needs, connector::Import},
    pipeline::outbox::AfterPublish,
};

/// A connector's files and the command line that names them.
struct Given {
    folder: TempDir,
    flags: Vec<String>,
}

/// A connector's configuration, with more keys.
fn connector(more: &[(&str, &str)]) -> String {
    let mut config = serde_json::Map::new();
    for (key, value) in [
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("database.hostname", "db.example"),
        ("database.user", "dbz"),
        ("database.password", "hu?sh&"),
        ("database.dbname", "shop"),
        ("topic.prefix", "dbz"),
        ("plugin.name", "pgoutput"),
        ("slot.name", "orders"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("key.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter"),
        ("producer.override.bootstrap.servers", "kafka:9092"),
    ]
    .iter()
    .chain(more)
    {
        config.insert((*key).to_owned(), serde_json::Value::from(*value));
    }
    serde_json::Value::Object(config).to_string()
}

impl Given {
    fn file(name: &str, text: &str) -> Given {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Given { flags: vec!["-c".to_owned(), path.to_str().unwrap().to_owned()], folder }
    }

    fn json(more: &[(&str, &str)]) -> Given {
        Given::file("connector.json", &connector(more))
    }

    fn flags(mut self, flags: &[&str]) -> Given {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let file = Arg::new(FILE_ARGUMENT).short('c').value_parser(value_parser!(PathBuf));
        let command = Flags::augment_args(Command::new("walpost").no_binary_name(true).arg(file));
        let matches = command.try_get_matches_from(&self.flags).unwrap();
        Settings::gather(&Flags::from_arg_matches(&matches).unwrap(), &Environment::default())
    }

    fn resolve(&self, needs: Needs) -> Result<Config, ConfigError> {
        self.settings()?.resolve(&Environment::default(), needs)
    }

    fn config(&self) -> Config {
        self.resolve(Needs::BOTH).unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(&self) -> String {
        let error = self.resolve(Needs::NOTHING).expect_err("this should be refused").to_string();
        error.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

fn names(config: &Config) -> Vec<String> {
    config.outboxes.iter().map(|outbox| outbox.name.to_string()).collect()
}

fn name(schema: &str, table: &str) -> TableName {
    TableName { schema: schema.to_owned(), table: table.to_owned() }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let marked = Given::file("connector.json", &format!("\u{feff}{}", connector(&[])));
    assert_eq!(marked.config().slot, "orders");
}

#[test]
fn a_connectors_file_is_a_configuration() {
    let given = Given::json(&[
        ("table.include.list", "public.outbox"),
        ("snapshot.mode", "no_data"),
        ("transforms.outbox.table.field.event.key", "agg"),
        ("producer.override.linger.ms", "7"),
    ]);
    let config = given.config();
    assert_eq!((config.slot.as_str(), config.publication.as_str()), ("orders", "dbz_publication"));
    assert_eq!((config.brokers.as_str(), config.kafka.get("linger.ms")), ("kafka:9092", Some("7")));
    assert_eq!((config.database.user.as_str(), config.database.database.as_str()), ("dbz", "shop"));
    assert!(!format!("{config:?}").contains("hu?sh"));
    assert_eq!(config.snapshot, Snapshot::Never);
    assert_eq!((names(&config), config.lacks_tables()), (vec!["public.outbox".to_owned()], false));
    let outbox = &config.outboxes[0];
    assert_eq!((outbox.columns.aggregate_id.as_str(), &outbox.after_publish), ("agg", &AfterPublish::Keep));
    assert_eq!(outbox.topic, "outbox.event.${aggregate_type}".parse().unwrap());
    assert!(matches!(outbox.format, Format::Debezium(_)));
    // A flag prevails.
    assert_eq!(given.flags(&["--slot", "other"]).config().slot, "other");
}

#[test]
fn the_kind_of_a_file_shows_in_its_name_or_in_what_it_holds() {
    let json = connector(&[("table.include.list", "public.outbox")]);
    let pairs: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&json).unwrap();
    let properties: String = pairs.iter().map(|(key, value)| format!("{key}={}\n", value.as_str().unwrap())).collect();
    for (name, text) in [
        ("connector.json", &json),
        ("connector", &json),
        ("connector.JSON", &json),
        ("connector.properties", &properties),
        ("connector.conf", &format!("# orders\n{properties}")),
    ] {
        assert_eq!(names(&Given::file(name, text).config()), ["public.outbox"], "{name}");
    }
    let toml = Given::file("walpost.conf", "slot = 'x'\n").resolve(Needs::NOTHING).unwrap();
    assert!(toml.debezium.is_none() && toml.slot == "x");
}

#[test]
fn tables_that_no_name_tells_are_the_databases_to_tell() {
    for more in [
        &[("table.include.list", "public.outbox.*")][..],
        &[("table.exclude.list", "public.other.*")],
        &[("schema.include.list", "public")],
        &[],
    ] {
        let config = Given::json(more).config();
        assert!(config.lacks_tables() && config.outboxes.is_empty(), "{more:?}");
        let mut tables = Vec::from(["outbox", "outbox_p0", "other"].map(|table| name("public", table)));
        tables.retain(|name| config.debezium.as_ref().unwrap().takes(name).unwrap());
        let config = config.with_tables(tables).unwrap();
        let expected = if more.first().is_some_and(|(key, _)| key.starts_with("table")) { 2 } else { 3 };
        assert_eq!((config.outboxes.len(), config.lacks_tables()), (expected, false), "{more:?}");
        assert!(config.outboxes.iter().all(|outbox| matches!(outbox.format, Format::Debezium(_))));
    }
    let two = Given::json(&[("table.include.list", r"public\.outbox,app.events")]).config();
    assert_eq!(names(&two), ["public.outbox", "app.events"]);
}

#[test]
fn the_section_holds_a_connectors_own_keys() {
    let section = "format = 'debezium'\ntable = 'app.\"Out box\"'\n[debezium]\n\"topic.prefix\" = 'dbz'\n\
                   key.converter = 'StringConverter'\n\"value.converter\" = 'StringConverter'\nheartbeat.interval.ms = 1000\n\
                   transforms = 'outbox'\n\"transforms.outbox.type\" = 'io.debezium.transforms.outbox.EventRouter'\n";
    let toml = |more: &str| Given::file("walpost.toml", &format!("{section}{more}"));
    let config = toml("").resolve(Needs::NOTHING).unwrap();
    let debezium = config.debezium.as_ref().unwrap();
    assert_eq!(names(&config), ["app.\"Out box\""]);
    assert_eq!(debezium.connector().tables.take("app", "Out box"), Ok(true));
    assert_eq!(debezium.connector().tables.take("app", "other"), Ok(false));
    assert_eq!(debezium.connector().heartbeat.as_ref().unwrap().interval.as_millis(), 1000);
    // Who writes a file of walpost's lets set-up make the publication.
    assert_eq!(debezium.connector().publication.autocreate, crate::config::connector::Autocreate::Disabled);
    for (more, problem) in [
        ("\"slot.name\" = 'x'", "walpost.toml: debezium.slot.name: walpost has a setting for this; write slot"),
        ("\"linger.ms\" = '5'", "walpost.toml: debezium.linger.ms: walpost has a setting for this; write kafka"),
        (
            "\"topic.prefx\" = 'x'",
            "walpost.toml: debezium.topic.prefx is no key of a connector; did you mean topic.prefix?",
        ),
        (
            "\"table.include.list\" = 'x.y'",
            "walpost.toml: debezium.table.include.list: `table` names the tables too; leave one of them out",
        ),
        (
            "\"skipped.operations\" = 'z'",
            "walpost.toml: debezium.skipped.operations: \"z\" is no operation; allowed are c, u, d, t, r, or none alone",
        ),
        (
            "\"converters\" = ['a']",
            "walpost.toml: debezium.converters: write the value in double quotes, as the connector has it",
        ),
    ] {
        assert_eq!(toml(more).error(), problem);
    }
    let lost = Given::file("walpost.toml", "[debezium]\n\"topic.prefix\" = 'dbz'\n").error();
    assert_eq!(
        lost,
        "walpost.toml: debezium.topic.prefix: keys of a connector mean something with format = \"debezium\" only"
    );
    let lacking = Given::file("walpost.toml", "format = 'debezium'\n[debezium]\n\"transforms\" = ''\n").error();
    assert_eq!(lacking, "walpost.toml: debezium.topic.prefix: this is not given; the connector needs it");
}

#[test]
fn unknown_keys_are_told_and_strictly_refused() {
    let given = || Given::json(&[("slot.nmae", "x"), ("max.batch.size", "10")]);
    let remarks = given().config().debezium.unwrap().remarks;
    let told: Vec<_> = remarks.iter().map(ToString::to_string).collect();
    assert!(told.contains(&"slot.nmae is unknown and means nothing; did you mean slot.name?".to_owned()), "{told:?}");
    assert!(told.iter().any(|one| one.starts_with("max.batch.size means nothing here")), "{told:?}");
    assert_eq!(
        given().flags(&["--strict"]).error(),
        "connector.json: slot.nmae is no key of a connector; did you mean slot.name?"
    );
    let alone = Given::file("walpost.toml", "").flags(&["--worker", "w.properties"]).error();
    assert_eq!(alone, "w.properties: a worker's file stands beside a connector's, and -c names none");
}

#[test]
fn a_connectors_intervals_keep_walposts_bounds() {
    for (given, secs) in [("600000", 30), ("5000", 5)] {
        let config = Given::json(&[("status.update.interval.ms", given)]).config();
        assert_eq!(config.status_interval.as_secs(), secs, "{given}");
    }
}

#[test]
fn a_transform_that_is_not_available_must_be_kept_from_the_outbox() {
    let chain = |position: &'static str, pattern: &'static str, negate: &'static str| {
        Given::json(&[
            ("table.include.list", "public.outbox"),
            ("transforms", position),
            ("transforms.mask.type", "com.example.Mask"),
            ("transforms.mask.predicate", "some"),
            ("transforms.mask.negate", negate),
            ("predicates", "some"),
            ("predicates.some.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"),
            ("predicates.some.pattern", pattern),
        ])
    };
    for (position, pattern, negate) in
        [("mask,outbox", "dbz.public.customers", "false"), ("mask,outbox", "dbz.public.outbox", "true")]
    {
        assert_eq!(names(&chain(position, pattern, negate).config()), ["public.outbox"], "{position} {pattern}");
    }
    for (position, pattern, negate) in [
        ("mask,outbox", "dbz.public.outbox", "false"),
        ("mask,outbox", "dbz.public.customers", "true"),
        ("outbox,mask", "dbz.public.customers", "false"),
    ] {
        let error = chain(position, pattern, negate).error();
        assert!(error.contains("\"com.example.Mask\" is not available, and records of public.outbox"), "{error}");
        assert!(error.starts_with("connector.json: transforms.mask.type: "), "{error}");
    }
    // Of tables that the database is to tell it shows then.
    let later = Given::json(&[
        ("transforms", "mask,outbox"),
        ("transforms.mask.type", "com.example.Mask"),
        ("transforms.mask.predicate", "some"),
        ("predicates", "some"),
        ("predicates.some.type", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"),
        ("predicates.some.pattern", "dbz.public.outbox"),
    ])
    .config();
    assert!(later.clone().with_tables(vec![name("public", "orders")]).is_ok());
    let error = later.with_tables(vec![name("public", "outbox")]).unwrap_err().to_string();
    assert!(error.contains("records of public.outbox"), "{error}");
}

#[test]
fn what_import_prints_means_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut compared = 0;
    for variant in std::fs::read_dir(folder).into_iter().flatten() {
        let path = variant.unwrap().path().join("connector.json");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let text = text.replace("${PGPORT}", "5432").replace("${PGHOST}", "db").replace("${PGUSER}", "dbz");
        compared += usize::from(is_the_same(&text, &path.display().to_string()));
    }
    for more in [
        &[
            ("transforms", "mask,outbox"),
            ("transforms.mask.type", "com.example.Mask"),
            ("transforms.mask.option", "x"),
            ("transforms.mask.predicate", "some"),
            ("predicates", "some"),
            ("predicates.some.type", "org.apache.kafka.connect.transforms.predicates.HasHeaderKey"),
            ("predicates.some.name", "masked"),
        ][..],
        &[("snapshot.mode", "initial_only"), ("table.include.list", "public.outbox.*")],
        &[("snapshot.mode", "when_needed"), ("table.include.list", "public.outbox, app.events")],
        &[("lsn.flush.mode", "connector_and_driver"), ("message.prefix.include.list", "outbox")],
        &[
            ("topic.creation.groups", "a"),
            ("topic.creation.a.include", "ev.*"),
            ("topic.creation.a.partitions", "3"),
            ("topic.creation.default.partitions", "2"),
            ("topic.creation.default.replication.factor", "-1"),
            ("topic.creation.a.cleanup.policy", "compact"),
        ],
    ] {
        compared += usize::from(is_the_same(&connector(more), &format!("{more:?}")));
    }
    assert!(compared >= 5);
}

/// False where the connector is refused as it is.
#[track_caller]
fn is_the_same(json: &str, which: &str) -> bool {
    let given = Given::file("connector.json", json);
    let path = given.folder.path().join("connector.json");
    let Ok(import) = Import::read(&path, None, false, &Environment::default()) else { return false };
    let Ok(one) = given.resolve(Needs::NOTHING) else { panic!("{which}: {}", given.error()) };
    let printed = Given::file("walpost.toml", &import.to_toml());
    let Ok(other) = printed.resolve(Needs::NOTHING) else {
        panic!("{which}: {}\n{}", printed.error(), import.to_toml())
    };
    assert_eq!((names(&one), one.lacks_tables()), (names(&other), other.lacks_tables()), "{which}");
    assert_eq!(
        (&one.slot, &one.publication, one.snapshot),
        (&other.slot, &other.publication, other.snapshot),
        "{which}"
    );
    assert_eq!(
        (one.failover, one.on_slot_loss, one.on_update, one.status_interval),
        (other.failover, other.on_slot_loss, other.on_update, other.status_interval)
    );
    let meaning = |config: &Config| meaning(config.debezium.as_ref().unwrap().connector());
    let direct = self::meaning(import.connector());
    assert_eq!(meaning(&one), meaning(&other), "{which}");
    assert_eq!(direct, meaning(&other), "{which}");
    true
}

/// All that a connector's records depend on, printed.
fn meaning(connector: &Connector) -> String {
    let mut connector = connector.clone();
    // That is said by walpost's own settings.
    if connector.tables.named().is_some() {
        connector.tables.tables = None;
    }
    connector.database.host = String::new();
    connector.database.port = 0;
    connector.database.user = String::new();
    connector.database.name = String::new();
    connector.database.keywords = Vec::new();
    connector.producer = Default::default();
    connector.status_interval = Default::default();
    if connector.snapshot == SnapshotMode::WhenNeeded {
        connector.snapshot = SnapshotMode::Initial;
    }
    format!("{connector:#?}")
}
