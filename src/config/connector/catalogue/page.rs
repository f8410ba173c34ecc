//! The page of all keys, which is made of the tables.

use std::{collections::BTreeMap, env, fmt::Write, fs};

use super::{As, Key, Meaning, OPEN, PRODUCER, connect, postgres, transforms};

const PAGE: &str = "docs/debezium-keys.md";

/// `WALPOST_TEST_WRITE=1` writes it anew.
#[test]
fn the_page_of_keys_is_what_the_tables_say() {
    let (path, made) = (format!("{}/{PAGE}", env!("CARGO_MANIFEST_DIR")), page());
    if env::var_os("WALPOST_TEST_WRITE").is_some_and(|value| value == "1") {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "{PAGE} is not what the tables say; WALPOST_TEST_WRITE=1 with this test writes it anew");
}

fn page() -> String {
    let mut page = "# Keys of a Debezium connector\n\n\
        Made of the tables that walpost reads the keys by (`src/config/connector/catalogue`). What each does is said by \
        [Debezium](https://debezium.io/documentation/reference/3.6/connectors/postgresql.html) and Kafka Connect; what \
        becomes of it here stands below. A name that is not here is unknown.\n"
        .to_owned();
    let with = |prefix: &str, keys: &'static [Key]| {
        keys.iter().map(|key| (format!("{prefix}{}", key.name), key)).collect::<Vec<_>>()
    };
    section(&mut page, "The connector", &with("", postgres::POSTGRES));
    section(&mut page, "Every source connector of Kafka Connect", &with("", connect::SOURCE));
    section(
        &mut page,
        "Converters, behind `key.converter.`, `value.converter.` and `header.converter.`",
        &with("", connect::CONVERTER),
    );
    section(&mut page, "Topics that are made, behind `topic.creation.<group>.`", &with("", connect::TOPIC_CREATION));
    let mut routed = with("", transforms::TRANSFORM);
    for class in ["EventRouter", "DecodeLogicalDecodingMessageContent"] {
        routed.extend(with("", transforms::of_transform(class).unwrap()));
    }
    section(
        &mut page,
        "Transforms, behind `transforms.<name>.`: `EventRouter`, `DecodeLogicalDecodingMessageContent`",
        &routed,
    );
    let mut predicates = with("", transforms::PREDICATE);
    for class in ["TopicNameMatches", "HasHeaderKey"] {
        predicates.extend(with("", transforms::of_predicate(class).unwrap()));
    }
    section(&mut page, "Predicates, behind `predicates.<name>.`", &predicates);
    section(&mut page, "The worker", &with("", connect::WORKER));

    page += "\n## The producer, behind `producer.override.` or, of a worker, `producer.`\n\n";
    let mut by: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, becomes) in PRODUCER {
        let what = match becomes {
            As::Same => "librdkafka's property of the same name".to_owned(),
            As::Named(of) | As::Kilobytes(of) => format!("librdkafka's `{of}`"),
            As::Special => "taken apart, and said by librdkafka's properties".to_owned(),
            As::Void(why) => format!("means nothing here: {why}"),
            As::Refused(why) => format!("refused: {why}"),
        };
        by.entry(what).or_default().push(name);
    }
    listed(&mut page, &by);

    page += "\n## What begins with\n\n| | |\n|---|---|\n";
    for (prefix, meaning) in OPEN {
        row(&mut page, &format!("`{prefix}`"), &becomes(meaning));
    }
    page
}

fn section(page: &mut String, title: &str, keys: &[(String, &Key)]) {
    write!(page, "\n## {title}\n").unwrap();
    let holds = keys.iter().filter(|(_, key)| key.meaning == Meaning::Record);
    let named: Vec<_> = holds.map(|(name, key)| format!("`{name}`{}", default(key))).collect();
    if !named.is_empty() {
        write!(page, "\nHold as they are: {}.\n", named.join(", ")).unwrap();
    }
    let others: Vec<_> =
        keys.iter().filter(|(_, key)| !matches!(key.meaning, Meaning::Record | Meaning::Void(_))).collect();
    if !others.is_empty() {
        *page += "\n| key | here |\n|---|---|\n";
    }
    for (name, key) in others {
        row(page, &format!("`{name}`{}", default(key)), &becomes(&key.meaning));
    }
    let mut void: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, key) in keys {
        if let Meaning::Void(why) = key.meaning {
            void.entry(why.to_owned()).or_default().push(name);
        }
    }
    if !void.is_empty() {
        *page += "\nMean nothing here:\n\n";
        listed(page, &void);
    }
}

fn default(key: &Key) -> String {
    key.default.filter(|default| !default.is_empty()).map(|default| format!(" (`{default}`)")).unwrap_or_default()
}

fn becomes(meaning: &Meaning) -> String {
    match meaning {
        Meaning::Record => "holds as it is".to_owned(),
        Meaning::Own(setting) => format!("`{setting}`"),
        Meaning::Void(why) => format!("means nothing: {why}"),
        Meaning::Only(values, why) => {
            let values: Vec<_> =
                values.iter().filter(|value| !value.is_empty()).map(|value| format!("`{value}`")).collect();
            if values.is_empty() { format!("refused: {why}") } else { format!("only {}: {why}", values.join(", ")) }
        }
    }
}

fn listed(page: &mut String, by: &BTreeMap<String, Vec<&str>>) {
    for (what, names) in by {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(page, "- {what}: {}", names.join(", ")).unwrap();
    }
}

fn row(page: &mut String, left: &str, right: &str) {
    writeln!(page, "| {} | {} |", left.replace('|', "\\|"), right.replace('|', "\\|")).unwrap();
}
