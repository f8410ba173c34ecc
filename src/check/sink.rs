//! Findings about sinks other than Kafka.

use super::Finding;
use crate::{
    config::{Config, Sink},
    pipeline::{
        outbox::{Address, Outbox},
        template::Part,
    },
    postgres::{attempt, quote},
};

/// RabbitMQ does not let us in.
pub fn unreachable_broker(reason: &str) -> Finding {
    Finding::error("RabbitMQ", format!("cannot be reached: {reason}"), "what it names, or rabbitmq.url")
}

/// What is wrong with where records go. `counts`: the table of attempts in schema `home` may be read and written.
pub fn sink(config: &Config, home: &str, counts: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.sink != Sink::Webhook {
        return findings;
    }
    for outbox in config.outboxes.iter().chain(&config.messages).filter(|outbox| is_plain(outbox)) {
        if !config.webhook.allow_private {
            findings.push(Finding::error(
                format!("webhook.url of {}", outbox.name),
                "begins with http, which is used inside a private network only: no event will go there",
                "https in webhook.url; or webhook.allow_private = true, where the host has a private address",
            ));
        }
    }
    if !counts {
        let table = quote::qualified(home, attempt::TABLE);
        findings.push(Finding::warning(
            format!("table {table}"),
            "does not exist, or may not be read and written by this role: attempts are counted anew after a restart",
            "walpost setup",
        ));
    }
    if config.webhook.secrets.is_empty() {
        findings.push(Finding::note(
            "webhooks",
            "are not signed: a receiver cannot tell them from anybody else's requests",
            "webhook.secret_file, with whsec_ and base64",
        ));
    }
    findings
}

fn is_plain(outbox: &Outbox) -> bool {
    let begins = |part: &Part| part.text().is_some_and(|text| text.to_ascii_lowercase().starts_with("http:"));
    matches!(outbox.address, Address::Url(_)) && outbox.topic.parts().first().is_some_and(begins)
}

#[cfg(test)]
mod tests {
    use crate::{
        check::{Severity, sink},
        config::{Config, Environment, Flags, Needs, Settings},
    };

    fn config(variables: &[(&str, &str)]) -> Config {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Environment = variables.collect();
        let settings = Settings::gather(&Flags::default(), &environment).unwrap();
        settings.resolve(&environment, Needs::NOTHING).unwrap()
    }

    #[test]
    fn each_finding_names_its_remedy() {
        let webhook = [("WALPOST_SINK_KIND", "webhook"), ("WALPOST_WEBHOOK_URL", "http://hooks.example/${event_type}")];
        let found = sink(&config(&webhook), "walpost", false);
        let severities: Vec<_> = found.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Error, Severity::Warning, Severity::Note]);
        assert!(found[0].remedy.contains("webhook.allow_private"));

        let sound = [
            webhook[0],
            ("WALPOST_WEBHOOK_URL", "https://hooks.example/"),
            ("WALPOST_WEBHOOK_SECRET", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ];
        assert_eq!(sink(&config(&sound), "walpost", true), []);
        let rabbit = [("WALPOST_SINK_KIND", "rabbitmq")];
        assert_eq!(sink(&config(&rabbit), "walpost", false), []);
    }
}
