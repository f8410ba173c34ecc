//! From what was typed to what it means.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use toml::Value;

use crate::{
    pipeline::{
        outbox::{self, Address, AfterPublish, TableName},
        template::Template,
    },
    postgres::{bookmark, conninfo::ConnInfo},
};

use super::{
    Config, ConfigError, Delivery, Environment, ExactlyOnce, Needs, OnSlotLoss, Origin, Place, Rota, Settings, Sink,
    Snapshot, Topics,
    bounds::{self, Contradiction},
    cloudevents,
    connector::{SnapshotMode, shown},
    debezium,
    kafka::{self, KafkaProperties, Verdict},
    keys::Key,
    rabbitmq::{IdentityFiles, RabbitMq},
    sink::{self, Addresses},
    traces::TracesTo,
    typed::{self, Outbox, Typed},
};

impl Settings {
    /// The meaning of the settings, for a command that needs this much of it.
    pub fn resolve(&self, environment: &Environment, needs: Needs) -> Result<Config, ConfigError> {
        let mut typed: Typed = serde_path_to_error::deserialize(Value::Table(self.table()))
            .map_err(|error| self.refuse(&error.path().to_string(), error.inner().message()))?;
        // librdkafka's default is a minute.
        const TRANSACTION_TIMEOUT_MS: u64 = 60_000;
        let kafka = self.kafka(&typed)?;
        let database = self.database(&typed, environment, needs)?;
        let slot = self.slot(&typed)?;
        let addresses = Addresses::of(self, &typed)?;
        let messages = self.messages(&typed.outbox, &database, &addresses)?;
        let own = self.distinct(std::mem::take(&mut typed.outbox), &database, &addresses)?;
        let (outboxes, debezium) = debezium::outboxes(self, &typed, own, &database, &slot, environment)?;
        let snapshot = match debezium.as_ref().map(|debezium| debezium.connector().snapshot) {
            Some(SnapshotMode::InitialOnly) => Snapshot::Initial,
            Some(_) | None => typed.snapshot,
        };
        let transaction_timeout_ms = kafka.number("transaction.timeout.ms").unwrap_or(TRANSACTION_TIMEOUT_MS);
        let http_token = match &typed.http.token_file {
            Some(file) => Some(self.secret("http.token_file", file)?),
            None => None,
        };
        let webhook = self.webhook(&typed.webhook)?;
        let connector_keys = match &debezium {
            Some(_) if self.connector.is_empty() => shown::section(&typed.debezium),
            Some(_) => self.connector.clone(),
            None => BTreeMap::new(),
        };
        let traces = typed.traces.endpoint.as_deref().map(TracesTo::parse).transpose();
        let traces = traces.map_err(|problem| self.refuse("traces.endpoint", problem))?;
        let config = Config {
            connector_keys,
            database,
            sink: typed.sink.kind,
            brokers: self.brokers(&typed, needs)?,
            slot,
            kafka,
            rabbitmq: self.rabbitmq(&typed, needs)?,
            outboxes,
            messages,
            debezium,
            publication: typed.publication,
            snapshot,
            failover: typed.failover,
            // What is recovered may come twice, which exactly once was asked not to be.
            on_slot_loss: typed.on_slot_loss.unwrap_or(match typed.delivery {
                typed::Delivery::AtLeastOnce => OnSlotLoss::Recover,
                typed::Delivery::ExactlyOnce => OnSlotLoss::Halt,
            }),
            on_poison: typed.on_poison,
            dead_letter_topic: typed.dead_letter_topic,
            park_max_aggregates: typed.park_max_aggregates,
            park_max_events: typed.park_max_events,
            delivery: match typed.delivery {
                typed::Delivery::AtLeastOnce => Delivery::AtLeastOnce,
                typed::Delivery::ExactlyOnce => Delivery::ExactlyOnce(ExactlyOnce {
                    transactional_id: typed.exactly_once.transactional_id,
                    commit_interval: typed.exactly_once.commit_interval,
                    transaction_timeout: Duration::from_millis(transaction_timeout_ms),
                    commit_records: typed.exactly_once.commit_records,
                    positions_topic: typed.exactly_once.positions_topic,
                    positions_replication: typed.exactly_once.positions_replication,
                }),
            },
            on_update: typed.on_update,
            retention: typed.retention,
            prune_every: typed.prune.every,
            confirm_interval: typed.confirm_interval,
            status_interval: typed.status_interval,
            progress_interval: typed.progress_interval,
            takeover_timeout: typed.takeover_timeout,
            shutdown_grace: typed.shutdown_grace,
            unauthorized_timeout: typed.unauthorized_timeout,
            in_flight_records: typed.in_flight_records,
            in_flight_bytes: typed.in_flight_bytes,
            unknown_topic_timeout: typed.route.unknown_topic_timeout,
            topics: Topics {
                create: typed.topics.create,
                partitions: typed.topics.partitions,
                replication: typed.topics.replication,
            },
            rewind_to: None,
            webhook,
            bookmarks: typed.bookmarks.every.map(|every| Rota { every, keep: typed.bookmarks.keep }),
            log_interval: Some(typed.log_interval).filter(|interval| !interval.is_zero()),
            traces,
            http_token,
            http_listen: typed.http.listen,
        };
        let contradicts = |Contradiction { path, problem }| self.refuse(path, problem);
        let config = bounds::compare(config).map_err(contradicts)?;
        if needs.sink {
            sink::lead_somewhere(&config).map_err(contradicts)?;
        }
        Ok(config)
    }

    fn database(&self, typed: &Typed, environment: &Environment, needs: Needs) -> Result<ConnInfo, ConfigError> {
        let (path, url) = match (&typed.database_url, &typed.database_url_file) {
            (Some(url), _) => ("database_url", url.clone()),
            (None, Some(file)) => ("database_url_file", self.secret("database_url_file", file)?),
            (None, None) if needs.database => return Err(missing("database_url")),
            // Nobody will connect there.
            (None, None) => ("database_url", "user=walpost".into()),
        };
        let place = self.place(path);
        let info = match ConnInfo::parse(url.expose_secret(), |name| environment.get(name)) {
            Ok(info) => info,
            Err(source) => return Err(ConfigError::Database { place, source }),
        };
        let of_its_own =
            || ConnInfo::parse(url.expose_secret(), |name| environment.get(name).filter(|_| name == "USER"));
        if matches!(place.origin, Origin::Flag(_)) && of_its_own().is_ok_and(|own| own.has_secret()) {
            warn_of_flag(&place, "WALPOST_DATABASE_URL, database_url_file, PGPASSWORD or the password file");
        }
        Ok(info)
    }

    fn brokers(&self, typed: &Typed, needs: Needs) -> Result<String, ConfigError> {
        if needs.kafka && typed.sink.kind != Sink::Kafka {
            return Err(
                self.refuse("sink.kind", "this command works with Kafka only; write \"kafka\", or leave it out")
            );
        }
        match &typed.brokers {
            Some(brokers) if brokers.split(',').any(|broker| broker.trim().is_empty()) => {
                Err(self.refuse("brokers", "an entry of the list is empty; write host:port joined by commas"))
            }
            Some(brokers) => Ok(brokers.clone()),
            None if needs.sink && typed.sink.kind == Sink::Kafka => Err(missing("brokers")),
            None => Ok(String::new()),
        }
    }

    fn slot(&self, typed: &Typed) -> Result<String, ConfigError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if typed.slot.len() > 63 || !typed.slot.chars().all(allowed) {
            let problem = format!("{:?} is no slot; PostgreSQL takes up to 63 of a-z, 0-9 and _", typed.slot);
            return Err(self.refuse("slot", problem));
        }
        if let Some((of, name)) = bookmark::divide(&typed.slot) {
            let problem = format!("{:?} reads as bookmark {name} of slot {of:?}; take a name without _bm_", typed.slot);
            return Err(self.refuse("slot", problem));
        }
        Ok(typed.slot.clone())
    }

    fn kafka(&self, typed: &Typed) -> Result<KafkaProperties, ConfigError> {
        let mut properties = Vec::new();
        for (name, text) in &typed.kafka {
            let path = format!("kafka.{name}");
            let (name, value) = match kafka::held_by_file(name) {
                Some(secret) => (secret, self.secret(&path, text)?.expose_secret().to_owned()),
                None => (name.as_str(), text.clone()),
            };
            let place = self.place(&path);
            if kafka::is_secret(name) && path.ends_with(name) && matches!(place.origin, Origin::Flag(_)) {
                warn_of_flag(&place, &format!("a variable, or \"{name}_file\" in [kafka]"));
            }
            let refuse = |problem| self.refuse(&path, problem);
            match kafka::judge(name, &value, typed.brokers.as_deref()).map_err(refuse)? {
                Verdict::Owned => {}
                Verdict::Pass => {
                    kafka::check(name, &value).map_err(refuse)?;
                    properties.push((name.to_owned(), value));
                }
            }
        }
        Ok(properties.into_iter().collect())
    }

    fn rabbitmq(&self, typed: &Typed, needs: Needs) -> Result<Option<RabbitMq>, ConfigError> {
        let is_needed = needs.sink && typed.sink.kind == Sink::RabbitMq;
        let typed = &typed.rabbitmq;
        let (path, url) = match (&typed.url, &typed.url_file) {
            (Some(url), _) => ("rabbitmq.url", url.clone()),
            (None, Some(file)) => ("rabbitmq.url_file", self.secret("rabbitmq.url_file", file)?),
            (None, None) if is_needed => return Err(missing("rabbitmq.url")),
            (None, None) => return Ok(None),
        };
        if matches!(self.place(path).origin, Origin::Flag(_)) && path == "rabbitmq.url" {
            warn_of_flag(&self.place(path), "WALPOST_RABBITMQ_URL or rabbitmq.url_file");
        }
        let mut rabbitmq = RabbitMq::parse(&url, typed.heartbeat).map_err(|problem| self.refuse(path, problem))?;
        let files = [
            ("rabbitmq.ca_file", &typed.ca_file),
            ("rabbitmq.cert_file", &typed.cert_file),
            ("rabbitmq.key_file", &typed.key_file),
        ];
        if let Some((path, _)) = files.iter().find(|(_, file)| file.is_some() && !rabbitmq.is_tls()) {
            return Err(self.refuse(path, "rabbitmq.url is without TLS; write amqps:// there"));
        }
        rabbitmq.ca_file = typed.ca_file.as_deref().map(Into::into);
        rabbitmq.identity = match (&typed.cert_file, &typed.key_file) {
            (Some(certificate), Some(key)) => Some(IdentityFiles { certificate: certificate.into(), key: key.into() }),
            (Some(_), None) => return Err(missing("rabbitmq.key_file")),
            (None, Some(_)) => return Err(missing("rabbitmq.cert_file")),
            (None, None) => None,
        };
        Ok(Some(rabbitmq))
    }

    fn distinct(
        &self,
        outboxes: Vec<Outbox>,
        database: &ConnInfo,
        addresses: &Addresses,
    ) -> Result<Vec<(typed::Format, outbox::Outbox)>, ConfigError> {
        let mut seen = BTreeSet::new();
        for (index, outbox) in outboxes.iter().enumerate() {
            if outbox.table.as_ref().is_some_and(|table| !seen.insert(table)) {
                return Err(self.refuse(&format!("outbox[{index}].table"), "another [[outbox]] has this table already"));
            }
        }
        cloudevents::judge(self, &outboxes)?;
        let mut own = Vec::with_capacity(outboxes.len());
        for (index, outbox) in outboxes.into_iter().enumerate() {
            let Some(name) = outbox.table.clone() else { continue };
            let (address, topic) = addresses.address(&outbox, self, &format!("outbox[{index}]"))?;
            own.push((outbox.format, outbox.resolve(name, database, address, topic)));
        }
        Ok(own)
    }

    /// What a file holds, without the newline at its end.
    pub(super) fn secret(&self, path: &str, file: &str) -> Result<SecretString, ConfigError> {
        let file = Path::new(file);
        let unreadable = |source| ConfigError::SecretFile { place: self.place(path), file: file.to_owned(), source };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err(self.refuse(path, format!("the file {} is empty", file.display())));
        }
        Ok(line.into())
    }
}

impl Outbox {
    fn resolve(self, name: TableName, database: &ConnInfo, address: Address, topic: Template) -> outbox::Outbox {
        outbox::Outbox {
            format: self.format(&name, database),
            name,
            after_publish: match self.after_publish {
                typed::AfterPublish::Keep => AfterPublish::Keep,
                typed::AfterPublish::Mark => AfterPublish::Mark(self.columns.marks()),
                typed::AfterPublish::Delete => AfterPublish::Delete,
            },
            columns: self.columns.over(self.preset),
            topic,
            address,
            timestamp: self.record.timestamp,
            order_by: self.order_by,
        }
    }
}

/// A command line is no place for secrets.
pub(super) fn warn_of_flag(place: &Place, instead: &str) {
    tracing::warn!(
        "{place} holds a secret, and every user of this machine sees the command line (ps); give it by {instead}"
    );
}

fn missing(path: &'static str) -> ConfigError {
    let key = Key::find(path).expect("the callers name keys of the table");
    let flag = key.flag().expect("the callers name keys that are flags");
    ConfigError::Missing { path, flag: format!("--{flag}"), variable: key.variable() }
}
