//! `[kafka]`: any property of librdkafka, but for those that carry walpost's guarantees.
//!
//! What walpost owns may be repeated with the value that it has anyway, and is refused with another. librdkafka itself
//! judges names and values of the rest, without connecting.

use std::{collections::BTreeMap, fmt};

use rdkafka::{ClientConfig, error::KafkaError, types::RDKafkaConfRes};

use super::{librdkafka::PROPERTIES, suggest};

/// librdkafka properties, by their canonical names. Secret values do not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaProperties(BTreeMap<String, String>);

impl KafkaProperties {
    /// The value as given; secrets too.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value as a number, where it is one.
    pub fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.get(name)?.trim().parse().ok()
    }

    /// Names and values, as librdkafka takes them; secrets too.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for KafkaProperties {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(properties: I) -> KafkaProperties {
        KafkaProperties(properties.into_iter().collect())
    }
}

impl fmt::Debug for KafkaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value)| (name, if is_secret(name) { "***" } else { value });
        f.debug_map().entries(self.iter().map(shown)).finish()
    }
}

/// Whether the value of a property must not print: passwords, client secrets, keys in PEM.
pub(super) fn is_secret(name: &str) -> bool {
    let named_so = ["password", "secret", "passphrase", "jaas", ".pem"].iter().any(|word| name.contains(word));
    (named_so && !name.ends_with(FILE_SUFFIX)) || name == "sasl.oauthbearer.config"
}

/// The name without `_file`, when a file holds the value of that secret: `sasl.password_file`.
pub(super) fn held_by_file(name: &str) -> Option<&str> {
    name.strip_suffix(FILE_SUFFIX).filter(|secret| is_secret(secret))
}

/// What turns the name of a secret into the name of the file that holds it.
pub(super) const FILE_SUFFIX: &str = "_file";

/// librdkafka's other names for properties. One name each here, so that a flag prevails over the file whichever name
/// either used.
const ALIASES: &[(&str, &str)] = &[
    ("compression.codec", "compression.type"),
    ("delivery.timeout.ms", "message.timeout.ms"),
    ("max.in.flight", "max.in.flight.requests.per.connection"),
    ("message.send.max.retries", "retries"),
    ("metadata.broker.list", "bootstrap.servers"),
    ("queue.buffering.max.ms", "linger.ms"),
    ("request.required.acks", "acks"),
    ("sasl.mechanisms", "sasl.mechanism"),
    ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"),
    ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret"),
];

pub(super) fn canonical(name: &str) -> String {
    let (stem, suffix) = held_by_file(name).map_or((name, ""), |stem| (stem, FILE_SUFFIX));
    let stem = ALIASES.iter().find(|(alias, _)| *alias == stem).map_or(stem, |(_, canonical)| canonical);
    format!("{stem}{suffix}")
}

/// What becomes of a property that walpost looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// librdkafka gets it.
    Pass,
    /// walpost sets it to the same.
    Owned,
}

/// Properties that may only have the value that walpost sets.
const OWNED: &[(&str, &[&str], &str)] = &[
    ("enable.idempotence", &["true", "t", "1"], "without it a retry can double and reorder records"),
    ("enable.gapless.guarantee", &["true", "t", "1"], "without it records are sent past one that is refused"),
    ("acks", &["all", "-1"], "fewer would confirm records that a broker can still lose"),
    ("message.timeout.ms", &["0"], "a record that times out here would be lost or overtaken"),
    ("retries", &["2147483647"], "a record that is given up would be lost or overtaken"),
    ("delivery.report.only.error", &["false", "f", "0"], "without reports nothing could be confirmed"),
    ("partitioner", &["murmur2_random"], "it places keys as Java's clients do, and order is per partition"),
];

/// Most requests in flight that idempotence allows.
const IN_FLIGHT_MAX: u32 = 5;

/// Whether a property is walpost's to set, or a key of its own.
pub(super) fn is_owned(name: &str) -> bool {
    OWNED.iter().any(|(owned, _, _)| *owned == name) || ["bootstrap.servers", "transactional.id"].contains(&name)
}

/// Judges a property, by its canonical name. The error says why it is refused.
pub(super) fn judge(name: &str, value: &str, brokers: Option<&str>) -> Result<Verdict, String> {
    if let Some((_, allowed, why)) = OWNED.iter().find(|(owned, _, _)| *owned == name) {
        if allowed.contains(&value) {
            return Ok(Verdict::Owned);
        }
        return Err(format!("walpost needs {name}={}: {why}; leave it out", allowed[0]));
    }
    match name {
        "bootstrap.servers" if brokers == Some(value) => Ok(Verdict::Owned),
        "bootstrap.servers" => Err("write it as `brokers`, which all parts of walpost read".to_owned()),
        "transactional.id" => {
            Err("write it as `exactly_once.transactional_id`, with delivery = \"exactly_once\"".to_owned())
        }
        "max.in.flight.requests.per.connection" if value.parse().is_ok_and(|n: u32| n > IN_FLIGHT_MAX) => {
            Err(format!("above {IN_FLIGHT_MAX} a retry can reorder records; write {IN_FLIGHT_MAX} or less"))
        }
        _ => Ok(Verdict::Pass),
    }
}

/// Asks librdkafka whether it knows the property and takes the value.
pub(super) fn check(name: &str, value: &str) -> Result<(), String> {
    if value.contains('\0') {
        return Err("the value holds a NUL, which no property may have".to_owned());
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
            let nearest = suggest::nearest(name, PROPERTIES.iter().copied());
            let remedy = nearest.map_or("its manual lists them".to_owned(), |near| format!("did you mean {near}?"));
            Err(format!("{name} is no property of librdkafka; {remedy}"))
        }
        Err(KafkaError::ClientConfig(_, description, ..)) => {
            let description = if is_secret(name) { description.replace(value, "***") } else { description };
            Err(format!("librdkafka refuses it: {description}"))
        }
        // Other errors may quote the value.
        Err(_) => Err("librdkafka refuses it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_walpost_owns_is_refused_unless_it_is_the_same() {
        for (name, value) in [
            ("enable.idempotence", "false"),
            ("acks", "1"),
            ("acks", "0"),
            ("message.timeout.ms", "300000"),
            ("retries", "3"),
            ("delivery.report.only.error", "true"),
            ("partitioner", "random"),
            ("bootstrap.servers", "other:9092"),
            ("transactional.id", "t"),
            ("max.in.flight.requests.per.connection", "6"),
        ] {
            assert!(judge(name, value, Some("kafka:9092")).is_err(), "{name}={value}");
        }
        for (name, value, verdict) in [
            ("enable.idempotence", "true", Verdict::Owned),
            ("acks", "-1", Verdict::Owned),
            ("acks", "all", Verdict::Owned),
            ("message.timeout.ms", "0", Verdict::Owned),
            ("bootstrap.servers", "kafka:9092", Verdict::Owned),
            ("max.in.flight.requests.per.connection", "1", Verdict::Pass),
            ("linger.ms", "5", Verdict::Pass),
        ] {
            assert_eq!(judge(name, value, Some("kafka:9092")), Ok(verdict), "{name}={value}");
        }
    }

    #[test]
    fn librdkafka_judges_names_and_values() {
        assert_eq!(check("linger.ms", "5"), Ok(()));
        assert_eq!(
            check("lingr.ms", "5").unwrap_err(),
            "lingr.ms is no property of librdkafka; did you mean linger.ms?"
        );
        assert!(check("batch.size", "many").unwrap_err().contains("batch.size"));
        assert!(check("compression.type", "lzma").is_err());
        assert!(check("client.id", "a\0b").is_err());
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        for name in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.assertion.private.key.passphrase",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["sasl.username", "ssl.key.location", "ssl.ca.location", "linger.ms"] {
            assert!(!is_secret(name), "{name}");
        }
        let properties = KafkaProperties::from_iter([
            ("sasl.password".to_owned(), "hush".to_owned()),
            ("linger.ms".to_owned(), "5".to_owned()),
        ]);
        assert_eq!(format!("{properties:?}"), r#"{"linger.ms": "5", "sasl.password": "***"}"#);
    }

    #[test]
    fn every_suggested_property_is_librdkafkas() {
        for name in PROPERTIES {
            let unknown = check(name, "").is_err_and(|problem| problem.contains("is no property"));
            assert!(!unknown, "{name}");
            assert_eq!(canonical(name), *name, "an alias");
        }
    }
}
