//! The golden variants as files, described in `tests/golden/README.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::Different;
use crate::support::postgres::Database;

/// One configuration of Debezium: what it was given and what it wrote.
pub struct Variant {
    pub name: String,
    pub compare: Compare,
    pub records: Vec<Expected>,
    pub made: Made,
    /// How many records are dead letters instead.
    pub dead_letters: usize,
    folder: PathBuf,
}

/// A record that Debezium wrote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub topic: String,
    pub partition: i32,
    pub key: Option<Given>,
    pub value: Option<Given>,
    pub headers: Vec<(String, Option<Given>)>,
    pub timestamp: Timestamp,
}

/// Bytes of a record.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Given {
    /// With placeholders.
    Text(String),
    Bytes {
        b64: String,
    },
    /// Any of these texts.
    Either {
        either: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Timestamp {
    /// Milliseconds since 1970.
    Data(i64),
    Processing(Now),
}

#[derive(Debug, Deserialize)]
pub enum Now {
    #[serde(rename = "now")]
    Now,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Outcome {
    #[serde(rename = "records")]
    Records,
    #[serde(rename = "fails at a row")]
    FailsAtARow,
    #[serde(rename = "fails at start")]
    FailsAtStart,
}

/// What may be compared. A field that nothing here knows fails the test.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    pub outcome: Outcome,
    #[serde(default)]
    pub poison_ids: Vec<String>,
    #[serde(default)]
    pub may_follow_ids: Vec<String>,
    /// A regular expression.
    pub message_has: Option<String>,
    /// In these records members of objects may come in any order.
    #[serde(default)]
    pub member_order_free_ids: Vec<String>,
    /// One record is given of each, and any number may come.
    #[serde(default)]
    pub repeating_topics: Vec<String>,
    #[serde(default)]
    pub topic_partitions: BTreeMap<String, i32>,
    #[serde(default)]
    pub needs: Needs,
    #[serde(rename = "order")]
    _order: Order,
    #[serde(rename = "partition")]
    _partition: Partition,
    // In each record too, or for people.
    #[serde(rename = "timestamp")]
    _timestamp: IgnoredAny,
    #[serde(rename = "placeholders")]
    _placeholders: Option<IgnoredAny>,
    #[serde(rename = "expect")]
    _expect: Option<IgnoredAny>,
    #[serde(rename = "nondeterministic")]
    _nondeterministic: Option<IgnoredAny>,
}

#[derive(Deserialize)]
enum Order {
    #[serde(rename = "within a partition")]
    WithinAPartition,
}

#[derive(Deserialize)]
enum Partition {
    #[serde(rename = "as given")]
    AsGiven,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// Made beforehand, with so many partitions.
    #[serde(default)]
    pub topics: BTreeMap<String, i32>,
    /// So many come of the snapshot, before the input.
    pub records_before_input: Option<usize>,
    /// Why the slot is never active.
    pub slot: Option<String>,
    /// Tracing is on.
    #[serde(default)]
    pub opentelemetry: bool,
    /// In place of the input.
    #[serde(default)]
    pub steps: Vec<Step>,
    // Made by setup.sql.
    #[serde(rename = "publication")]
    _publication: Option<IgnoredAny>,
    #[serde(rename = "role")]
    _role: Option<IgnoredAny>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    Sql(String),
    Restart(bool),
    Stop(bool),
    Start(bool),
}

/// What Debezium made in the database, and left there.
#[derive(Deserialize)]
pub struct Made {
    #[serde(rename = "publication_made")]
    pub publications: Option<Value>,
    /// In no order.
    #[serde(rename = "publication_tables")]
    pub tables: Option<BTreeSet<String>>,
    pub slot: Option<Value>,
}

impl Variant {
    /// All of them, by name.
    pub fn all() -> Vec<Variant> {
        let mut variants: Vec<Variant> = folders().into_iter().map(Variant::read).collect();
        variants.sort_by(|a, b| a.name.cmp(&b.name));
        variants
    }

    /// Those whose number this is: `V01_…`, `V01b_…`, and so on.
    pub fn numbered(number: &str) -> Vec<Variant> {
        let mut variants = Variant::all();
        variants.retain(|variant| variant.number() == number);
        variants
    }

    pub fn number(&self) -> &str {
        &self.name[..3]
    }

    pub fn setup(&self) -> String {
        read(&self.folder.join("setup.sql"))
    }

    /// What happens once the slot is active.
    pub fn steps(&self) -> Vec<Step> {
        match &self.compare.needs.steps[..] {
            [] => vec![Step::Sql(read(&self.folder.join("input.sql")))],
            steps => steps.to_vec(),
        }
    }

    /// The connector's configuration, for this database.
    pub fn connector(&self, database: &Database<'_>) -> String {
        [
            ("${PGHOST}", "127.0.0.1"),
            ("${PGPORT}", &database.server.port().to_string()),
            ("${PGUSER}", "postgres"),
            ("${PGPASSWORD}", "trusted"),
            ("${PGDATABASE}", &database.name),
        ]
        .iter()
        .fold(read(&self.folder.join("connector.json")), |text, (variable, value)| text.replace(variable, value))
    }

    /// A value of the connector's configuration.
    pub fn option(&self, key: &str) -> Option<String> {
        let text = read(&self.folder.join("connector.json"));
        let connector: Value = serde_json::from_str(&text).expect("it is JSON");
        Some(connector["config"].get(key)?.as_str().expect("every value is a string").to_owned())
    }

    pub fn slot(&self) -> String {
        self.option("slot.name").unwrap_or_else(|| "debezium".to_owned())
    }

    fn read(folder: PathBuf) -> Variant {
        let name = folder.file_name().expect("it has one").to_str().expect("it is ASCII").to_owned();
        let parsed =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error} in {line}"));
        let records = read(&folder.join("records.jsonl")).lines().map(parsed).collect();
        let compare = serde_json::from_str(&read(&folder.join("compare.json")));
        let made = serde_json::from_str(&read(&folder.join("meta.json")));
        Variant {
            compare: compare.unwrap_or_else(|error| panic!("compare.json of {name}: {error}")),
            made: made.unwrap_or_else(|error| panic!("meta.json of {name}: {error}")),
            records,
            dead_letters: 0,
            folder,
            name,
        }
    }

    /// What is expected of walpost where it differs on purpose.
    pub fn but(mut self, different: &Different) -> Variant {
        for line in different.sent_now {
            self.records[line - 1].timestamp = Timestamp::Processing(Now::Now);
        }
        let is_sent = |(_, line): &(Expected, usize)| !different.dead_letters.contains(line);
        self.records = self.records.into_iter().zip(1..).filter(is_sent).map(|(record, _)| record).collect();
        self.dead_letters = different.dead_letters.len();
        self
    }
}

fn folders() -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let entries = fs::read_dir(golden).expect("the variants are there");
    entries.map(|entry| entry.expect("it can be listed").path()).filter(|path| path.is_dir()).collect()
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
