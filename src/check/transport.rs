//! Findings about what lies between walpost and the rest, where that is not this machine.

use std::{collections::BTreeSet, net::SocketAddr};

use super::Finding;
use crate::{
    config::{Config, KafkaProperties, Sink, TracesTo},
    loopback::{is_loopback, remote_brokers},
    pipeline::outbox::{Address, Endpoint, Outbox},
    postgres::conninfo::{ConnInfo, TlsMode},
};

/// Connections to elsewhere that are open to whoever is on the way.
pub fn transport(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<_> = postgres(&config.database).into_iter().collect();
    match config.sink {
        Sink::Kafka => findings.extend(kafka(&config.brokers, &config.kafka)),
        Sink::RabbitMq => {
            if let Some(rabbitmq) = config.rabbitmq.as_ref().filter(|broker| broker.is_remote() && !broker.is_tls()) {
                findings.push(Finding::warning(
                    format!("connection to RabbitMQ at {}", rabbitmq.address()),
                    "is without TLS and leaves this machine: whoever is on the way has the password and the events",
                    "amqps:// in rabbitmq.url",
                ));
            }
        }
        // Without the permission they are an error, which says more.
        Sink::Webhook if config.webhook.allow_private => {
            let hosts: BTreeSet<_> = config.outboxes.iter().chain(&config.messages).flat_map(plain_hosts).collect();
            findings.extend(hosts.into_iter().map(|host| {
                Finding::warning(
                    format!("webhooks to {host}"),
                    "are without TLS and leave this machine: whoever is on the way has the events",
                    "https in webhook.url and webhook_urls",
                )
            }));
        }
        Sink::Webhook | Sink::Stdout => {}
    }
    findings.extend(config.traces.as_ref().and_then(traces));
    findings.extend(config.http_listen.and_then(listen));
    findings
}

fn traces(to: &TracesTo) -> Option<Finding> {
    let host = to.endpoint.host().filter(|host| !is_loopback(host))?;
    (to.endpoint.scheme_str() == Some("http")).then(|| {
        Finding::warning(
            format!("connection to the collector {host}"),
            "is without TLS and leaves this machine: whoever is on the way has ids, topics and tables of events",
            "https in traces.endpoint",
        )
    })
}

fn listen(address: SocketAddr) -> Option<Finding> {
    (!address.ip().is_loopback()).then(|| {
        Finding::note(
            format!("http.listen {address}"),
            "answers other machines, without TLS: whoever is on the way sees what it shows, and the token of http.token_file",
            "a loopback address and a proxy with TLS in front, or a network where nobody else is",
        )
    })
}

fn postgres(database: &ConnInfo) -> Option<Finding> {
    let target = database.targets.iter().find(|target| target.is_remote())?;
    let about = format!("connection to PostgreSQL at {}", target.host);
    match database.tls.mode {
        mode @ (TlsMode::Disable | TlsMode::Allow | TlsMode::Prefer) => Some(Finding::warning(
            about,
            format!(
                "{} without TLS (sslmode={mode}) and leaves this machine: whoever is on the way has the events",
                if mode == TlsMode::Disable { "is" } else { "may be" }
            ),
            "sslmode=verify-full and sslrootcert in the connection string",
        )),
        TlsMode::Require if !database.tls.is_verified() => Some(Finding::note(
            about,
            "is encrypted, and the server need not prove who it is (sslmode=require): another may stand in for it",
            "sslmode=verify-full and sslrootcert in the connection string",
        )),
        TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => None,
    }
}

fn kafka(brokers: &str, properties: &KafkaProperties) -> Option<Finding> {
    let about = format!("connection to broker {}", remote_brokers(brokers).next()?);
    let protocol = properties.get("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
    if !protocol.ends_with("ssl") {
        return Some(Finding::warning(
            about,
            format!(
                "is without TLS (security.protocol={protocol}) and leaves this machine: whoever is on the way has the events{}",
                if protocol.starts_with("sasl") { " and what walpost logs in with" } else { "" }
            ),
            "\"security.protocol\" = \"ssl\" (or \"sasl_ssl\") and \"ssl.ca.location\" in [kafka]",
        ));
    }
    let lax = [("enable.ssl.certificate.verification", "false"), ("ssl.endpoint.identification.algorithm", "none")];
    let (name, value) = lax.into_iter().find(|(name, value)| properties.get(name) == Some(value))?;
    Some(Finding::note(
        about,
        format!("is encrypted, and the broker need not prove who it is ({name}={value}): another may stand in for it"),
        format!("leave \"{name}\" out; \"ssl.ca.location\" names the authority of the brokers' certificates"),
    ))
}

/// Hosts elsewhere that an outbox's URLs lead to without TLS, as far as the configuration tells.
fn plain_hosts(outbox: &Outbox) -> Vec<String> {
    let Address::Url(urls) = &outbox.address else { return Vec::new() };
    let first = outbox.topic.parts().first().and_then(|part| part.text()?.parse::<Endpoint>().ok());
    let endpoints = urls.by_type.values().chain(&first);
    let plain = endpoints.filter(|endpoint| !endpoint.is_tls() && !is_loopback(endpoint.host()));
    plain.map(|endpoint| endpoint.host().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        check::{Severity, transport},
        config::{Config, Environment, Flags, Needs, Settings},
    };

    fn found(variables: &[(&str, &str)]) -> Vec<(Severity, String)> {
        let environment: Environment =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let settings = Settings::gather(&Flags::default(), &environment).unwrap();
        let config: Config = settings.resolve(&environment, Needs::NOTHING).unwrap();
        transport(&config).into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    #[test]
    fn what_leaves_this_machine_in_clear_is_a_warning_and_what_is_not_verified_a_note() {
        use Severity::{Note, Warning};
        let database = |rest: &str| found(&[("WALPOST_DATABASE_URL", &format!("user=w {rest}"))]);
        let kafka = |brokers: &str, more: &[(&str, &str)]| found(&[&[("WALPOST_BROKERS", brokers)], more].concat());
        let rabbitmq = |url: &str| found(&[("WALPOST_SINK_KIND", "rabbitmq"), ("WALPOST_RABBITMQ_URL", url)]);
        let webhook = |url: &str| {
            let private = ("WALPOST_WEBHOOK_ALLOW_PRIVATE", "true");
            found(&[("WALPOST_SINK_KIND", "webhook"), ("WALPOST_WEBHOOK_URL", url), private])
        };
        let protocol = "WALPOST_KAFKA_SECURITY_PROTOCOL";
        let unverified = ("WALPOST_KAFKA_ENABLE_SSL_CERTIFICATE_VERIFICATION", "false");
        for (findings, expected, word) in [
            (database("host=localhost sslmode=disable"), None, ""),
            (database("host=db hostaddr=127.0.0.1 sslmode=disable"), None, ""),
            (database("host=/tmp sslmode=disable"), None, ""),
            (database("host=db sslmode=disable"), Some(Warning), "is without TLS"),
            (database("host=127.0.0.1,db sslmode=prefer"), Some(Warning), "may be without TLS"),
            (database("host=db"), Some(Note), "sslmode=require"),
            (database("host=db sslmode=verify-ca"), None, ""),
            (database("host=db sslrootcert=system"), None, ""),
            (kafka("localhost:9092", &[]), None, ""),
            (kafka("kafka:9092", &[]), None, ""),
            (kafka("kafka:9092", &[("WALPOST_KAFKA_SASL_MECHANISM", "PLAIN")]), None, ""),
            (kafka("localhost:9092,kafka:9092", &[(protocol, "plaintext")]), Some(Warning), "has the events"),
            (kafka("kafka:9092", &[(protocol, "SASL_PLAINTEXT")]), Some(Warning), "logs in with"),
            (kafka("kafka:9092", &[unverified]), Some(Note), "certificate.verification=false"),
            (rabbitmq("amqp://a:b@localhost/"), None, ""),
            (rabbitmq("amqps://a:b@rabbit/"), None, ""),
            (rabbitmq("amqp://a:b@rabbit/"), Some(Warning), "has the password"),
            (webhook("http://127.0.0.1:8080/x"), None, ""),
            (webhook("https://hooks.internal/x"), None, ""),
            (webhook("http://hooks.internal/${event_type}"), Some(Warning), "without TLS"),
            (found(&[("WALPOST_TRACES_ENDPOINT", "http://127.0.0.1:4318")]), None, ""),
            (found(&[("WALPOST_TRACES_ENDPOINT", "https://collector:4318")]), None, ""),
            (found(&[("WALPOST_TRACES_ENDPOINT", "http://collector:4318")]), Some(Warning), "ids, topics and tables"),
            (found(&[("WALPOST_HTTP_LISTEN", "127.0.0.1:9464")]), None, ""),
            (found(&[("WALPOST_HTTP_LISTEN", "0.0.0.0:9464")]), Some(Note), "the token of http.token_file"),
        ] {
            let severities: Vec<_> = findings.iter().map(|(severity, _)| *severity).collect();
            assert_eq!(severities, Vec::from_iter(expected), "{findings:?}");
            assert!(findings.iter().all(|(_, what)| what.contains(word)), "{findings:?}");
        }
    }
}
