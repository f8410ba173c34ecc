//! The schema that editors get takes and refuses what loading does.

use std::{fs, path::Path};

use jsonschema::Validator;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::{is_as_made, typed};
use crate::config::{
    ConfigError, Needs,
    keys::{COLUMNS, KEYS, Key, Kind},
    schema,
};

const FILE: &str = "deploy/walpost.schema.json";

fn validator() -> Validator {
    jsonschema::draft7::new(&schema()).unwrap()
}

fn loads(text: &str) -> Result<(), ConfigError> {
    let typed = typed().file(text);
    typed.settings()?.resolve(&typed.environment(), Needs::NOTHING).map(|_| ())
}

/// A file with one key, in an `[[outbox]]` or not.
fn with(path: &str, value: Value, outbox: bool) -> String {
    let mut own = Table::new();
    match path.split_once('.') {
        None => own.insert(path.to_owned(), value),
        Some((section, name)) => {
            own.insert(section.to_owned(), Value::Table(Table::from_iter([(name.to_owned(), value)])))
        }
    };
    if outbox {
        own.entry("table").or_insert_with(|| Value::from("a"));
        own = Table::from_iter([("outbox".to_owned(), Value::Array(vec![Value::Table(own)]))]);
    }
    toml::to_string(&own).unwrap()
}

/// Both say the same of it; what they say.
fn judge(validator: &Validator, text: &str) -> bool {
    let json: Json = serde_json::to_value(toml::from_str::<Table>(text).unwrap()).unwrap();
    let (loads, fits) = (loads(text), validator.is_valid(&json));
    assert_eq!(fits, loads.is_ok(), "{text}\n{:?}\n{:?}", loads.err(), validator.validate(&json).err());
    fits
}

#[test]
fn the_file_is_what_the_table_says() {
    is_as_made(FILE, &format!("{}\n", serde_json::to_string_pretty(&schema()).unwrap()));
}

#[test]
fn every_key_takes_its_type_and_no_other() {
    let validator = validator();
    let list = || Value::Array(vec![Value::from("a")]);
    let section = || Value::Table(Table::from_iter([("nonsense".to_owned(), Value::Array(Vec::new()))]));
    let probes =
        || [Value::from(true), Value::from(7), Value::from(0), Value::from(-1), Value::from(1.5), list(), section()];
    let mut taken = 0;
    for key in KEYS {
        for outbox in [false, true] {
            if outbox && matches!(key.kind, Kind::Outboxes) {
                continue;
            }
            taken +=
                probes().into_iter().filter(|value| judge(&validator, &with(key.path, value.clone(), outbox))).count();
            // What is no word, no duration, no number.
            if !matches!(key.kind, Kind::Text | Kind::Secret | Kind::SecretFile) {
                assert!(!judge(&validator, &with(key.path, Value::from("non sense"), outbox)), "{}", key.path);
            }
        }
    }
    assert!(taken > KEYS.iter().filter(|key| matches!(key.kind, Kind::Count | Kind::Boolean)).count());
    for name in COLUMNS {
        assert!(judge(&validator, &with(&format!("columns.{name}"), Value::from("own"), true)));
        assert!(!judge(&validator, &with(&format!("columns.{name}"), Value::from(7), false)));
    }
    for (name, value) in
        [("linger.ms", Value::from(5)), ("linger.ms", Value::from("5")), ("client.id", Value::from(true))]
    {
        assert!(judge(&validator, &with(&format!("kafka.{name}"), value, false)));
    }
    assert!(judge(&validator, "[kafka]\nssl.ca.location = 'a'\nssl.endpoint.identification.algorithm = 'https'"));
}

#[test]
fn words_and_numbers_are_read_as_loading_reads_them() {
    let validator = validator();
    for key in KEYS {
        let Kind::Choice(words) = key.kind else { continue };
        // What else these words ask for is no matter of types.
        for word in words.iter().filter(|word| !["debezium", "cloudevents", "exactly_once"].contains(word)) {
            let file = with(key.path, Value::from(*word), false);
            assert!(validator.is_valid(&serde_json::to_value(toml::from_str::<Table>(&file).unwrap()).unwrap()));
        }
        assert!(!judge(&validator, &with(key.path, Value::from(words[0].to_uppercase()), false)));
    }
    let both = |path: &str, texts: &[&str]| {
        let judged = texts.iter().map(|text| judge(&validator, &with(path, Value::from(*text), false)));
        judged.collect::<Vec<_>>()
    };
    let durations = [
        "7d", "1h 30m", " 90 s ", "1.5h", "1h30m", "2 weeks", "1M", "5 min", "9µs", "20", "d", "1 parsec", "-1s",
        "1.s", "", "7D",
    ];
    assert_eq!(both("retention", &durations), [vec![true; 9], vec![false; 7]].concat());
    let sizes = ["512", "512B", "10 kB", "1k", "64MiB", "64 mib", "", "MiB", "1.5MiB", "-1", "1PiB", "1ki b"];
    assert_eq!(both("in_flight_bytes", &sizes), [vec![true; 6], vec![false; 6]].concat());
    assert_eq!(
        both("webhook.lanes", &["7", " 7 ", "+7", "07", "0", "-7", "7.0", "", "a"]),
        [vec![true; 4], vec![false; 5]].concat()
    );
    assert_eq!(both("failover", &["true", " false ", "True", "yes", ""]), [vec![true; 2], vec![false; 3]].concat());
}

#[test]
fn unknown_keys_are_refused_wherever_they_are() {
    let validator = validator();
    for text in [
        "slto = 'a'",
        "[route]\ntopci = 'a'",
        "[columns]\nagregate_id = 'a'",
        "[[outbox]]\ntable = 'a'\ntabel = 'b'",
        "[[outbox]]\ntable = 'a'\nroute.topci = 'b'",
        "[[outbox]]\ntable = 'a'\nslot = 'b'",
        "[[outbox]]\ntable = 'a'\nroute.unknown_topic_timeout = '5s'",
        "[[outbox]]\npreset = 'debezium'",
        "outbox = []",
        "outbox = 'a'",
        "columns = 'a'",
        "route = 'a'",
        "kafka = 'a'",
        "[kafka]\n\"linger.ms\" = [5]",
    ] {
        assert!(!judge(&validator, text), "{text}");
    }
}

/// Files that a user copies: each loads for a run, without a warning's worth of difference to the schema.
#[test]
fn every_example_loads_and_fits_the_schema() {
    let validator = validator();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = fs::read_dir(root.join("examples/config")).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = examples.chain([root.join("walpost.toml")]).collect();
    assert!(files.len() > 8, "{files:?}");
    for file in files {
        let name = file.display();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("#:schema "), "{name}: an editor finds no schema");
        let directive = text.lines().next().unwrap().trim_start_matches("#:schema ");
        let schema = file.parent().unwrap().join(directive);
        assert_eq!(schema.canonicalize().unwrap(), root.join(FILE).canonicalize().unwrap(), "{name}");

        let secrets = typed();
        let folder = "/run/secrets/";
        for part in text.split(folder).skip(1) {
            let secret = &part[..part.find('"').unwrap()];
            secrets.write(secret, secret_of(secret));
        }
        let text = text.replace(folder, &format!("{}/", secrets.directory.path().display()));
        let json: Json = serde_json::to_value(toml::from_str::<Table>(&text).unwrap()).unwrap();
        assert!(validator.is_valid(&json), "{name}: {:?}", validator.validate(&json).err());
        let loaded = secrets.file(&text);
        let settings = loaded.settings().unwrap_or_else(|error| panic!("{name}: {error}"));
        let config =
            settings.resolve(&loaded.environment(), Needs::BOTH).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!config.outboxes.is_empty() || !config.messages.is_empty(), "{name}");

        let mistyped = format!("slto = \"a\"\n{text}");
        let json = serde_json::to_value(toml::from_str::<Table>(&mistyped).unwrap()).unwrap();
        assert!(!validator.is_valid(&json) && loads(&mistyped).is_err(), "{name}");
    }
}

fn secret_of(file: &str) -> &'static str {
    match file {
        "database-url" => "postgres://walpost:pencil@db.example.com/app?sslmode=verify-full\n",
        "rabbitmq-url" => "amqps://walpost:pencil@rabbitmq.example.com/app\n",
        "webhook" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        _ => "pencil\n",
    }
}

#[test]
fn defaults_of_the_schema_are_values_of_it() {
    let schema = schema();
    for key in KEYS {
        let Some(default) = key.default else { continue };
        let own = match key.path.split_once('.') {
            None => &schema["properties"][key.path],
            Some((section, name)) => &schema["properties"][section]["properties"][name],
        };
        assert!(jsonschema::draft7::new(own).unwrap().is_valid(&own["default"]), "{}: {default}", key.path);
        assert!(Key::find(key.path).is_some() && own["description"].is_string());
    }
}
