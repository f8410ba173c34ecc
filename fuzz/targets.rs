//! What each target does with any bytes: no panic, and what must hold of every answer. `tests/fuzz.rs` runs the same
//! functions over the seeds and over mutations of them.
#![allow(dead_code)] // each target needs one of them

use std::{cell::RefCell, fs, path::PathBuf};

use walpost::{
    config::{Environment, Flags, Needs, Settings},
    connect::regex::Pattern,
    debezium::{
        expand::{Expander, Json, NullBehavior},
        modes::NameAdjustment,
    },
    idempotency,
    pipeline::{
        Limits, Lsn, OnUpdate, Output, Pipeline,
        outbox::{Address, CloudEvents, Endpoint, Format, HostRule, TableName},
        template::Template,
    },
    postgres::conninfo::ConnInfo,
};

use crate::{
    encode::{self, Cell, oid},
    outbox,
};

/// What the first byte of an input makes of the rest: a file of walpost's own, or a connector's.
pub(crate) const FILES: [&str; 4] =
    ["walpost.toml", "connector.json", "connector.properties", "application.properties"];

/// A configuration file, from its bytes to its meaning, and what `config show` prints of it, read again.
pub(crate) fn configuration(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    // What names other files is not followed into them.
    let opens = [&b"file"[..], b"/dev", b"/proc", b"dir:", b"path"];
    if opens.iter().any(|word| bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))) {
        return;
    }
    let file = FILES[usize::from(*kind) % FILES.len()];
    let Some(settings) = gathered(file, bytes) else { return };
    let Ok(config) = settings.resolve(&environment(""), Needs::NOTHING) else { return };
    assert!(!format!("{config:?}").is_empty());
    let shown = settings.to_toml(&config);
    assert!(settings.to_json(&config).is_ok());
    // Secrets are stars in it, which some keys do not take; it is a file in any case.
    assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
}

fn gathered(file: &str, bytes: &[u8]) -> Option<Settings> {
    thread_local! {
        static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| {
            let memory = PathBuf::from("/dev/shm");
            let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
            let thread = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_digit(), "");
            let folder = base.join(format!("walpost-fuzz-{}-{thread}", std::process::id()));
            fs::create_dir_all(&folder).expect("the folder is ours");
            folder
        });
        let path = folder.join(file);
        fs::write(&path, bytes).expect("the folder is ours");
        let settings = Settings::gather(&Flags::default(), &environment(&path.display().to_string()));
        settings.map_err(|error| assert!(!error.to_string().is_empty())).ok()
    })
}

fn environment(file: &str) -> Environment {
    let variables = [("USER", "walpost"), ("WALPOST_CONFIG", file)];
    variables.map(|(name, text)| (name.to_owned(), text.to_owned())).into_iter().collect()
}

/// A connection string. What is shown of one reads back, and means the same.
pub(crate) fn connection_string(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let variable = |name: &str| (name == "USER").then(|| "walpost".to_owned());
    match ConnInfo::parse(text, variable) {
        Ok(info) => {
            let shown = info.to_string();
            let again = ConnInfo::parse(&shown, variable).unwrap_or_else(|error| panic!("{error}: {shown:?}"));
            assert_eq!(again.to_string(), shown);
            assert_eq!((again.targets, again.tls.mode), (info.targets, info.tls.mode));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// JSON as Debezium expands it, and as keys are made of it.
pub(crate) fn json(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let parsed = Json::parse(text);
    for nulls in [NullBehavior::Ignore, NullBehavior::OptionalBytes] {
        for names in [NameAdjustment::None, NameAdjustment::Avro] {
            let _ = Expander { nulls, names }.expand("payload", text);
        }
    }
    let Ok(document) = serde_json::from_str::<serde_json::Value>(text) else { return };
    // Jackson's limits are on numbers and names only, below this depth.
    if text.len() < 1_000 {
        assert!(parsed.is_some(), "{text:?}");
    }
    let Ok(canonical) = idempotency::canonical(&document) else { return };
    let again = serde_json::from_str(&canonical).expect("canonical JSON is JSON");
    assert_eq!(idempotency::canonical(&again).ok().as_ref(), Some(&canonical));
}

/// Topic templates, URLs of webhooks, rules of hosts, names of tables, and Java's regular expressions: three lines, of which
/// the last two are a replacement and a text for the first as a pattern.
pub(crate) fn template(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.splitn(3, '\n');
    let [first, second, third] = [(); 3].map(|()| lines.next().unwrap_or_default());
    if let Ok(template) = first.parse::<Template>() {
        let _ = Address::Topic.judge(&template);
        let _ = Address::Url(Default::default()).judge(&template);
        let columns = |text: &str| text.matches("${").count();
        assert!(template.parts().len() <= 2 * columns(first) + 1);
    }
    if let Ok(endpoint) = first.parse::<Endpoint>() {
        assert_eq!(endpoint.as_str().parse::<Endpoint>().as_ref(), Ok(&endpoint));
    }
    let _ = first.parse::<HostRule>();
    let _ = first.parse::<TableName>();
    for pattern in [Pattern::parse(first), Pattern::parse_ignoring_case(first)] {
        match pattern {
            Ok(pattern) => {
                let _ = pattern.matches(third);
                if let Ok(replacement) = pattern.replacement(second) {
                    let _ = pattern.rewrite(third, &replacement);
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// One row, its cells parted by a zero byte, through the layouts of native records, of both modes of CloudEvents, and of the
/// other preset.
pub(crate) fn row(input: &[u8]) {
    let columns = [
        ("id", oid::TEXT),
        ("aggregate_id", oid::TEXT),
        ("aggregate_type", oid::TEXT),
        ("payload", oid::JSONB),
        ("headers", oid::JSONB),
        ("event_type", oid::TEXT),
        ("occurred_at", oid::TIMESTAMPTZ),
        ("traceparent", oid::TEXT),
        ("destination", oid::TEXT),
    ];
    let cells: Vec<_> = input.splitn(columns.len(), |byte| *byte == 0).collect();
    let cells: Vec<_> =
        (0..columns.len()).map(|at| cells.get(at).map_or(Cell::Null, |cell| Cell::Text(cell))).collect();
    let events = |structured| {
        let mode = if structured {
            walpost::pipeline::outbox::Mode::Structured
        } else {
            walpost::pipeline::outbox::Mode::Binary
        };
        Format::CloudEvents(CloudEvents {
            mode,
            source: "/app/walpost/outbox".to_owned(),
            event_type: "${event_type}".parse().expect("a template"),
            content_type: None,
        })
    };
    for format in [Format::Native, events(false), events(true)] {
        let mut outbox = outbox::walpost("walpost", "outbox");
        outbox.format = format;
        outbox.timestamp = walpost::pipeline::outbox::Timestamp::Column;
        let limits = Limits { records: 64, bytes: 1 << 20 };
        let mut pipeline = Pipeline::new(vec![outbox], OnUpdate::Ignore, Lsn(0x16_0000_0000), limits);
        let data = |message: Vec<u8>| encode::xlog_data(0x16_0000_0100, 0x16_0000_0400, &message);
        let frames = [
            data(encode::begin(0x16_0000_0100, 1, 731)),
            data(encode::relation(1, "walpost", "outbox", &columns)),
            data(encode::insert(1, &cells)),
            data(encode::commit(0x16_0000_0100, 0x16_0000_0130, 1)),
        ];
        let mut in_flight = Vec::new();
        for frame in &frames {
            match pipeline.step(frame) {
                Ok(Output::Record(record)) => {
                    assert!(!record.topic.is_empty());
                    in_flight.push(record.ticket);
                }
                Ok(Output::Poison { ticket, poison }) => {
                    assert!(!poison.to_string().is_empty());
                    in_flight.push(ticket);
                }
                Ok(Output::Passed { ticket, .. }) => in_flight.push(ticket),
                Ok(Output::None | Output::ReplyRequested | Output::Ignored { .. } | Output::Undescribed(_)) => {}
                Err(error) => panic!("the frames are sound: {error}"),
            }
        }
        assert_eq!(in_flight.len(), 1, "the row is an event, good or not");
        in_flight.into_iter().for_each(|ticket| pipeline.acknowledge(ticket));
        assert_eq!(pipeline.ledger().outstanding_bytes(), 0);
    }
}
