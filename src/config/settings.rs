//! What was typed: defaults, file, variables and flags laid over each other, each value with its origin.

use std::{collections::BTreeMap, mem::discriminant, path::Path};

use toml::{Table, Value};

use super::{
    connector::{self, Import, Remark},
    environment::{self, CONFIG_FILE, Environment, WORKER_FILE},
    error::{ConfigError, Origin, Place},
    file::{self, insert_missing},
    flags::Flags,
    kafka,
    keys::{COLUMNS, KEYS, Key, Kind},
    message, preset, suggest,
};
use crate::loopback::remote_brokers;

/// Every key that has a value, by its path. Secrets are in it: only `show` may print it.
pub struct Settings {
    pub(super) entries: BTreeMap<String, Entry>,
    /// Of a connector's file.
    pub(super) remarks: Vec<Remark>,
    /// Its keys, without secrets; none without such a file.
    pub(super) connector: BTreeMap<String, String>,
}

/// A value, and who gave it.
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl Settings {
    /// Defaults, then the file, then variables, then flags. Unknown keys, and unknown words, end it.
    pub fn gather(flags: &Flags, environment: &Environment) -> Result<Settings, ConfigError> {
        let mut settings = Settings::defaults();
        let named_by_variable = || environment.get(CONFIG_FILE).map(Into::into);
        let worker_by_variable = || environment.get(WORKER_FILE).map(Into::into);
        let worker = flags.worker().map(Path::to_owned).or_else(worker_by_variable);
        let file = flags.file().map(Path::to_owned).or_else(named_by_variable);
        let bytes = file.as_deref().map(connector::contents).transpose()?;
        match (file.zip(bytes), worker) {
            (Some((file, bytes)), worker) if connector::is_connector(&file, &bytes) => {
                let import = Import::parse(&file, bytes, worker.as_deref(), flags.strict, environment)?;
                settings.lay_connector(&file, &import)?;
            }
            (_, Some(path)) => return Err(ConfigError::WorkerAlone { path }),
            (Some((file, bytes)), None) => settings.lay_file(&file, bytes)?,
            (None, None) => {}
        }
        settings.lay_variables(environment)?;
        settings.lay_flags(flags)?;
        settings.secure_kafka();
        settings.settle_messages()?;
        settings.one_or_many_outboxes()?;
        settings.route_by_preset();
        settings.refuse_unknown_words()?;
        Ok(settings)
    }

    fn defaults() -> Settings {
        let defaults = KEYS.iter().filter_map(|key| {
            let entry = Entry { value: key.kind.typed(key.default?), origin: Origin::Default };
            Some((key.path.to_owned(), entry))
        });
        Settings { entries: defaults.collect(), remarks: Vec::new(), connector: BTreeMap::new() }
    }

    fn lay_file(&mut self, path: &Path, bytes: Vec<u8>) -> Result<(), ConfigError> {
        for (key, value) in file::read(path, bytes)? {
            self.set(key, value, Origin::File(path.to_owned()))?;
        }
        Ok(())
    }

    fn lay_connector(&mut self, file: &Path, import: &Import) -> Result<(), ConfigError> {
        for (path, value, keys) in import.settings() {
            self.set(path, value, Origin::Connector(format!("{}: {keys}", file.display())))?;
        }
        self.remarks = import.remarks().to_vec();
        self.connector = import.shown();
        Ok(())
    }

    fn lay_variables(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        for (name, text) in environment.keys() {
            match environment::path(name) {
                Some(path) => self.set_text(path, text, Origin::Variable(name.to_owned()))?,
                None => match environment::nearest(name) {
                    Some(nearest) => return Err(ConfigError::UnknownVariable { name: name.to_owned(), nearest }),
                    None => tracing::warn!("{name} is no variable of walpost and is ignored"),
                },
            }
        }
        Ok(())
    }

    fn lay_flags(&mut self, flags: &Flags) -> Result<(), ConfigError> {
        for given in &flags.given {
            self.set_text(given.path.clone(), &given.text, Origin::Flag(given.flag.clone()))?;
        }
        Ok(())
    }

    fn set_text(&mut self, path: String, text: &str, origin: Origin) -> Result<(), ConfigError> {
        if let Some(column) = path.strip_prefix("columns.").filter(|column| !COLUMNS.contains(column)) {
            let nearest = suggest::nearest(column, COLUMNS.iter().copied()).map(str::to_owned);
            return Err(ConfigError::UnknownKey { origin, name: column.to_owned(), nearest });
        }
        let kind = Key::of(&path).map_or(Kind::Text, |key| key.kind);
        self.set(path, kind.typed(text), origin)
    }

    /// Lays a value over what is there. A secret and the file that holds it are one setting.
    fn set(&mut self, path: String, value: Value, origin: Origin) -> Result<(), ConfigError> {
        let path = match path.strip_prefix("kafka.") {
            Some(name) => format!("kafka.{}", kafka::canonical(name)),
            None => path,
        };
        if let Some(twin) = twin(&path) {
            let below = self.entries.remove(&twin);
            if below.is_some_and(|below| discriminant(&below.origin) == discriminant(&origin)) {
                let problem = format!("{twin} is given too; leave one of them out");
                return Err(ConfigError::Value { place: Place { origin, path }, problem });
            }
        }
        self.entries.insert(path, Entry { value, origin });
        Ok(())
    }

    fn one_or_many_outboxes(&mut self) -> Result<(), ConfigError> {
        let Some(outbox) = self.entries.get("outbox") else { return Ok(()) };
        if outbox.value.as_array().is_some_and(Vec::is_empty) {
            return Err(self.refuse("outbox", "the list is empty; write at least one [[outbox]], or `table`"));
        }
        let is_unnamed = |outbox: &Value| outbox.get("table").is_none() && !message::is_messages(outbox);
        if let Some(index) = self.outboxes().iter().position(is_unnamed) {
            let problem = "each [[outbox]] names its table; write `table` (or `message_prefix`)";
            return Err(self.refuse(&format!("outbox[{index}]"), problem));
        }
        match self.entries.remove("table") {
            Some(Entry { origin: Origin::Default, .. }) | None => Ok(()),
            Some(Entry { origin, .. }) => {
                let problem = "with [[outbox]] tables each has a `table` of its own; leave this one out".to_owned();
                Err(ConfigError::Value { place: Place { origin, path: "table".to_owned() }, problem })
            }
        }
    }

    /// TLS to brokers that are not sure to be this machine, where nobody says otherwise: librdkafka's default is plain text.
    fn secure_kafka(&mut self) {
        const PROTOCOL: &str = "kafka.security.protocol";
        let brokers = self.entries.get("brokers").and_then(|entry| entry.value.as_str());
        if self.entries.contains_key(PROTOCOL) || brokers.is_none_or(|brokers| remote_brokers(brokers).next().is_none())
        {
            return;
        }
        let logs_in = self.entries.keys().any(|path| path.starts_with("kafka.sasl."));
        let value = Value::from(if logs_in { "sasl_ssl" } else { "ssl" });
        self.entries.insert(PROTOCOL.to_owned(), Entry { value, origin: Origin::Default });
    }

    /// The usual topic of the preset, where nobody gives one.
    fn route_by_preset(&mut self) {
        let word = self.entries.get("preset").and_then(|entry| entry.value.as_str());
        let topic = word.and_then(preset::topic);
        if let (Some(topic), Some(entry)) = (topic, self.entries.get_mut("route.topic")) {
            if entry.origin == Origin::Default {
                entry.value = Value::from(topic);
            }
        }
    }

    fn refuse_unknown_words(&self) -> Result<(), ConfigError> {
        for key in KEYS {
            let Kind::Choice(words) = key.kind else { continue };
            let judge = |path: &str, value: &Value| match refused_word(value, key.path, words) {
                Some(problem) => Err(self.refuse(path, problem)),
                None => Ok(()),
            };
            if let Some(entry) = self.entries.get(key.path) {
                judge(key.path, &entry.value)?;
            }
            for (index, outbox) in self.outboxes().iter().enumerate() {
                if let Some(value) = find(outbox, key.path) {
                    judge(&format!("outbox[{index}].{}", key.path), value)?;
                }
            }
        }
        Ok(())
    }

    /// The `[[outbox]]` tables as given.
    pub(super) fn outboxes(&self) -> &[Value] {
        self.entries.get("outbox").and_then(|entry| entry.value.as_array()).map_or(&[], Vec::as_slice)
    }

    /// One table of all of it, the top level's part in each outbox filled in.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        let mut shared = Table::new();
        for (path, entry) in self.entries.iter().filter(|(path, _)| *path != "outbox") {
            let per_outbox = Key::of(path).is_some_and(|key| key.per_outbox);
            insert_missing(if per_outbox { &mut shared } else { &mut table }, path, entry.value.clone());
        }
        let outboxes = match self.outboxes() {
            [] => vec![Value::Table(shared)],
            own => own.iter().map(|own| Value::Table(over(own, &self.shared_with(own, &shared)))).collect(),
        };
        table.insert("outbox".to_owned(), Value::Array(outboxes));
        table
    }

    /// What an outbox takes from the top level. A topic that nobody gives is that of its own preset.
    fn shared_with(&self, own: &Value, shared: &Table) -> Table {
        let mut shared = shared.clone();
        let is_default = self.entries.get("route.topic").is_some_and(|entry| entry.origin == Origin::Default);
        let word = if message::is_messages(own) { Some("walpost") } else { own.get("preset").and_then(Value::as_str) };
        if let (true, Some(word)) = (is_default, word) {
            let usual = Key::find("route.topic").and_then(|key| key.default);
            if let (Some(topic), Some(Value::Table(route))) = (preset::topic(word).or(usual), shared.get_mut("route")) {
                route.insert("topic".to_owned(), Value::from(topic));
            }
        }
        shared
    }

    /// An error about the value at a path of [`Settings::table`].
    pub(super) fn refuse(&self, path: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::Value { place: self.place(path), problem: problem.into() }
    }

    /// Where the value at a path of [`Settings::table`] comes from.
    pub(super) fn place(&self, path: &str) -> Place {
        if let Some((index, inner)) = path.strip_prefix("outbox[").and_then(|rest| rest.split_once(']')) {
            let inner = inner.trim_start_matches('.');
            let own = index.parse().ok().and_then(|index: usize| self.outboxes().get(index));
            if !inner.is_empty() && own.is_none_or(|own| find(own, inner).is_none()) {
                return self.place(inner);
            }
        }
        // The origin of a part is the whole's: `kafka` for a property, `outbox` for all inside.
        let mut known = path;
        loop {
            if let Some(entry) = self.entries.get(known) {
                return Place { origin: entry.origin.clone(), path: path.to_owned() };
            }
            match known.rfind(['.', '[']) {
                Some(end) => known = &known[..end],
                None => return Place { origin: Origin::Default, path: path.to_owned() },
            }
        }
    }
}

/// The outbox's own values over those that all outboxes share.
fn over(own: &Value, shared: &Table) -> Table {
    let mut table = own.as_table().cloned().unwrap_or_default();
    for (name, value) in shared {
        match value {
            Value::Table(section) => {
                for (member, value) in section {
                    insert_missing(&mut table, &format!("{name}.{member}"), value.clone());
                }
            }
            value => insert_missing(&mut table, name, value.clone()),
        }
    }
    table
}

/// The value at a path with at most one section.
pub(super) fn find<'a>(table: &'a Value, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((section, member)) => table.get(section)?.get(member),
    }
}

/// The other way to give the same secret.
fn twin(path: &str) -> Option<String> {
    match path {
        "database_url" => Some("database_url_file".to_owned()),
        "database_url_file" => Some("database_url".to_owned()),
        "webhook.secret" | "webhook.secret_next" => Some(format!("{path}_file")),
        "webhook.secret_file" | "webhook.secret_next_file" => path.strip_suffix("_file").map(str::to_owned),
        "rabbitmq.url" => Some("rabbitmq.url_file".to_owned()),
        "rabbitmq.url_file" => Some("rabbitmq.url".to_owned()),
        _ => {
            let name = path.strip_prefix("kafka.")?;
            match kafka::held_by_file(name) {
                Some(secret) => Some(format!("kafka.{secret}")),
                None => kafka::is_secret(name).then(|| format!("{path}{}", kafka::FILE_SUFFIX)),
            }
        }
    }
}

/// Why a word is refused, if it is.
fn refused_word(value: &Value, path: &str, words: &[&str]) -> Option<String> {
    if value.as_str().is_some_and(|word| words.contains(&word)) {
        return None;
    }
    let quoted: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    Some(format!("{value} is not a value of {path}; use {}", quoted.join(" or ")))
}
