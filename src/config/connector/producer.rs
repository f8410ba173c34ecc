//! The Java producer's properties as librdkafka's.

use std::{collections::BTreeMap, fmt};

use super::{
    catalogue::{As, PRODUCER},
    given::Item,
    list,
    settings::Reader,
};
use crate::config::{ConfigError, KafkaProperties, kafka};

/// What the producer is told.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Producer {
    /// `bootstrap.servers`, if a file says it.
    pub brokers: Option<Told>,
    /// By librdkafka's names.
    pub properties: BTreeMap<String, Told>,
    /// Properties that say nothing to librdkafka, and why.
    pub(super) left_out: Vec<(String, &'static str)>,
}

/// A value and the key that it was given by.
#[derive(Clone, PartialEq, Eq)]
pub struct Told {
    pub value: String,
    pub key: String,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brokers = self.brokers.as_ref().map(|told| &told.value);
        f.debug_struct("Producer").field("brokers", &brokers).field("properties", &self.properties()).finish()
    }
}

/// A property and where it was given.
type Given<'a> = BTreeMap<&'a str, &'a Item>;

impl Producer {
    pub(super) fn read(reader: &Reader<'_>) -> Result<Producer, ConfigError> {
        let given = given(reader);
        let mut producer = Producer::default();
        for (name, item) in &given {
            let Some((_, property)) = PRODUCER.iter().find(|(known, _)| known == name) else { continue };
            let refuse = |problem: String| reader.refuse(item, problem);
            match property {
                As::Same => producer.tell(name, item, item.value.clone()),
                As::Named(name) => producer.tell(name, item, item.value.clone()),
                As::Kilobytes(name) => match item.value.trim().parse::<u64>() {
                    Ok(bytes) => producer.tell(name, item, (bytes / 1024).max(1).to_string()),
                    Err(_) => return Err(refuse(format!("{:?} is not a number of bytes", item.value))),
                },
                As::Void(why) => producer.left_out.push((item.place.path.clone(), why)),
                As::Refused(_) if item.value.trim().is_empty() => {}
                As::Refused(why) => return Err(refuse(format!("this is not available: {why}; leave it out"))),
                As::Special => producer.tell_special(name, item, &given).map_err(refuse)?,
            }
        }
        for (name, told) in &producer.properties {
            let name = kafka::canonical(name);
            kafka::check(&name, &told.value).map_err(|problem| {
                let item = given.values().find(|item| item.place.path == told.key);
                item.map_or_else(|| reader.missing(&told.key, &problem), |item| reader.refuse(item, problem.clone()))
            })?;
        }
        Ok(producer)
    }

    /// librdkafka's properties; their secrets do not print.
    pub fn properties(&self) -> KafkaProperties {
        self.properties.iter().map(|(name, told)| (name.clone(), told.value.clone())).collect()
    }

    fn tell(&mut self, name: &str, item: &Item, value: String) {
        self.properties.insert(name.to_owned(), Told { value, key: item.place.path.clone() });
    }

    fn tell_special(&mut self, name: &str, item: &Item, given: &Given<'_>) -> Result<(), String> {
        let value = item.value.trim();
        let other = |name: &str| given.get(name).map(|item| item.value.trim()).unwrap_or_default();
        let key = item.place.path.clone();
        match name {
            "bootstrap.servers" => {
                let brokers: Vec<_> = list::names(value).collect();
                if brokers.is_empty() {
                    return Err("this is empty; write host:port joined by commas".to_owned());
                }
                self.brokers = Some(Told { value: brokers.join(","), key });
            }
            "max.in.flight.requests.per.connection" => match value.parse::<u32>() {
                Ok(1..=5) => self.tell(name, item, value.to_owned()),
                Ok(_) => self.left_out.push((key, "above 5 a retry can reorder records")),
                Err(_) => return Err(format!("{value:?} is not a count; allowed are 1 to 5")),
            },
            "partitioner.ignore.keys" if !value.eq_ignore_ascii_case("true") => {}
            "partitioner.ignore.keys" => {
                return Err("true is not available: records of a key would lose their order; leave it out".to_owned());
            }
            "send.buffer.bytes" | "receive.buffer.bytes" => {
                // -1 is the system's own for Java, 0 for librdkafka.
                let bytes = if value == "-1" { "0" } else { value };
                self.tell(&format!("socket.{name}"), item, bytes.to_owned());
            }
            "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {
                let codec = name.split('.').nth(1).unwrap_or_default();
                if other("compression.type") == codec {
                    self.tell("compression.level", item, value.to_owned());
                } else {
                    self.left_out.push((key, "compression.type is another"));
                }
            }
            "ssl.endpoint.identification.algorithm" => {
                let algorithm = if value.is_empty() { "none" } else { value };
                self.tell(name, item, algorithm.to_ascii_lowercase());
            }
            "sasl.jaas.config" => return self.tell_login(item, given),
            "sasl.login.callback.handler.class" => {
                if !value.ends_with("OAuthBearerLoginCallbackHandler") {
                    return Err("this is not available: walpost runs no Java classes; leave it out".to_owned());
                }
                self.tell("sasl.oauthbearer.method", item, "oidc".to_owned());
            }
            "ssl.truststore.location" => match store_type(other("ssl.truststore.type")) {
                Store::Pem => self.tell("ssl.ca.location", item, value.to_owned()),
                Store::Pkcs12 | Store::Java => {
                    return Err(
                        "OpenSSL reads no trust store of Java's; write its certificates to a file in PEM, and \
                                ssl.truststore.type=PEM"
                            .to_owned(),
                    );
                }
            },
            "ssl.keystore.location" => match store_type(other("ssl.keystore.type")) {
                Store::Pem => {
                    self.tell("ssl.certificate.location", item, value.to_owned());
                    self.tell("ssl.key.location", item, value.to_owned());
                }
                Store::Pkcs12 => self.tell("ssl.keystore.location", item, value.to_owned()),
                Store::Java => {
                    return Err("OpenSSL reads no JKS; convert it to PKCS12 (`keytool -importkeystore \
                                -deststoretype PKCS12`), and write ssl.keystore.type=PKCS12"
                        .to_owned());
                }
            },
            "ssl.keystore.password" => match store_type(other("ssl.keystore.type")) {
                Store::Pkcs12 => self.tell(name, item, item.value.clone()),
                Store::Pem | Store::Java => {}
            },
            "ssl.key.password" => match store_type(other("ssl.keystore.type")) {
                Store::Pem => self.tell(name, item, item.value.clone()),
                // The password of the store opens both.
                Store::Pkcs12 | Store::Java => {}
            },
            "ssl.keystore.type" | "ssl.truststore.type"
                if !["PEM", "PKCS12", "JKS"].contains(&value.to_ascii_uppercase().as_str()) =>
            {
                return Err(format!("{value:?} is not a type of stores; allowed are PEM, PKCS12, JKS"));
            }
            // They are read with the location, or nothing needs them.
            _ => {}
        }
        Ok(())
    }

    /// User and password out of a login module's options.
    fn tell_login(&mut self, item: &Item, given: &Given<'_>) -> Result<(), String> {
        let module = item.value.split_whitespace().next().unwrap_or_default();
        let short = module.rsplit('.').next().unwrap_or_default();
        let options = jaas_options(&item.value);
        let option = |name: &str| options.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let mut tell = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                self.tell(name, item, value);
            }
        };
        match short {
            "PlainLoginModule" | "ScramLoginModule" => {
                tell("sasl.username", option("username"));
                tell("sasl.password", option("password"));
            }
            "Krb5LoginModule" => {
                tell("sasl.kerberos.keytab", option("keyTab"));
                tell("sasl.kerberos.principal", option("principal"));
                if !given.contains_key("sasl.kerberos.service.name") {
                    tell("sasl.kerberos.service.name", option("serviceName"));
                }
            }
            "OAuthBearerLoginModule" => {
                tell("sasl.oauthbearer.client.id", option("clientId"));
                tell("sasl.oauthbearer.client.secret", option("clientSecret"));
                tell("sasl.oauthbearer.scope", option("scope"));
            }
            _ => {
                // It is not named: in a malformed value it may be a part of the password.
                return Err("its login module is not available; available are PlainLoginModule, ScramLoginModule, \
                            Krb5LoginModule, OAuthBearerLoginModule"
                    .to_owned());
            }
        }
        Ok(())
    }
}

/// The producer's properties, from the worker's own clients up to the connector's overrides. The worker's clients go to
/// the same brokers, so their security is the producer's where it has none of its own.
fn given<'a>(reader: &Reader<'a>) -> Given<'a> {
    let mut given = Given::new();
    for (items, prefix) in [
        (&reader.given.worker, ""),
        (&reader.given.connector, ""),
        (&reader.given.worker, "producer."),
        (&reader.given.connector, "producer."),
        (&reader.given.connector, "producer.override."),
    ] {
        for (name, item) in items {
            let Some(property) = name.strip_prefix(prefix) else { continue };
            let shared = ["security.protocol", "bootstrap.servers", "client.dns.lookup"];
            let is_shared = shared.contains(&property) || property.starts_with("sasl.") || property.starts_with("ssl.");
            if (prefix.is_empty() && !is_shared) || (prefix == "producer." && property.starts_with("override.")) {
                continue;
            }
            given.insert(property, item);
        }
    }
    given
}

#[derive(Clone, Copy)]
enum Store {
    Pem,
    Pkcs12,
    Java,
}

/// Java's default is JKS.
fn store_type(value: &str) -> Store {
    match value.to_ascii_uppercase().as_str() {
        "PEM" => Store::Pem,
        "PKCS12" => Store::Pkcs12,
        _ => Store::Java,
    }
}

/// `name="value"` or `name=value`, with `\` before what is meant as it is.
fn jaas_options(text: &str) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut rest = text;
    while let Some(equals) = rest.find('=') {
        let name = rest[..equals].trim_end().rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default().to_owned();
        let mut chars = rest[equals + 1..].trim_start().char_indices();
        let start = rest.len() - rest[equals + 1..].trim_start().len();
        let quote = rest[start..].chars().next().filter(|c| matches!(c, '"' | '\''));
        if quote.is_some() {
            chars.next();
        }
        let mut value = String::new();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
                c if Some(c) == quote => {
                    end = start + at + 1;
                    break;
                }
                c if quote.is_none() && (c.is_whitespace() || c == ';') => {
                    end = start + at;
                    break;
                }
                c => value.push(c),
            }
        }
        options.push((name, value));
        rest = &rest[end..];
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_options_are_read() {
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            jaas_options(r#"x.PlainLoginModule required username="al ice" password='p"w=\'d';"#),
            [option("username", "al ice"), option("password", r#"p"w='d"#)]
        );
        assert_eq!(
            jaas_options("x.Krb5LoginModule required useKeyTab=true keyTab=\"/k.tab\" principal=p@X;"),
            [option("useKeyTab", "true"), option("keyTab", "/k.tab"), option("principal", "p@X")]
        );
        assert_eq!(jaas_options("required"), []);
    }
}
