//! `sink.kind`, and what follows from it for the other keys.

use std::sync::Arc;

use super::{
    Config, ConfigError, Delivery, Settings, Sink,
    bounds::Contradiction,
    typed::{self, Typed},
};
use crate::pipeline::{
    outbox::{Address, Format, Mode, Outbox, Urls},
    template::{Part, Template},
};

/// How records are addressed.
pub(super) struct Addresses {
    sink: Sink,
    urls: Arc<Urls>,
}

impl Addresses {
    pub(super) fn of(settings: &Settings, typed: &Typed) -> Result<Addresses, ConfigError> {
        let mut urls = Urls::default();
        for host in &typed.webhook.allow_hosts {
            let rule =
                host.parse().map_err(|why| settings.refuse("webhook.allow_hosts", format!("{host:?}: {why}")))?;
            urls.hosts.push(rule);
        }
        for (event_type, url) in &typed.webhook_urls {
            let refuse = |why| {
                settings.refuse(
                    &format!("webhook_urls.{event_type}"),
                    format!("{why}; write one such as https://example.com/events"),
                )
            };
            urls.by_type.insert(event_type.clone(), url.parse().map_err(refuse)?);
        }
        Ok(Addresses { sink: typed.sink.kind, urls: Arc::new(urls) })
    }

    /// The address of an outbox, and its template. `at` is where the outbox is among the settings.
    pub(super) fn address(
        &self,
        outbox: &typed::Outbox,
        settings: &Settings,
        at: &str,
    ) -> Result<(Address, Template), ConfigError> {
        let (address, path, template) = match self.sink {
            Sink::Kafka | Sink::Stdout => (Address::Topic, "route.topic", &outbox.route.topic),
            Sink::RabbitMq => (Address::Exchange(outbox.rabbitmq.exchange.clone()), "route.topic", &outbox.route.topic),
            Sink::Webhook => (Address::Url(Arc::clone(&self.urls)), "webhook.url", &outbox.webhook.url),
        };
        address.judge(template).map_err(|problem| settings.refuse(&format!("{at}.{path}"), problem))?;
        Ok((address, template.clone()))
    }
}

/// Refuses webhooks that go nowhere.
pub(super) fn lead_somewhere(config: &Config) -> Result<(), Contradiction> {
    let goes_nowhere = |outbox: &Outbox| {
        let is_destination = matches!(outbox.topic.parts(), [Part::Column(name)] if name == "destination");
        let Address::Url(urls) = &outbox.address else { return false };
        is_destination && urls.hosts.is_empty() && urls.by_type.is_empty()
    };
    if !config.outboxes.iter().chain(&config.messages).any(goes_nowhere) {
        return Ok(());
    }
    let problem = "nothing says where events go: write a URL, as in \"https://example.com/events\", or URLs by type in \
                   [webhook_urls], or name the hosts that rows' destinations may lead to (webhook.allow_hosts)";
    Err(Contradiction { path: "webhook.url", problem: problem.to_owned() })
}

/// Refuses what only Kafka can do.
pub(super) fn compare(config: &Config) -> Result<(), Contradiction> {
    let word = match config.sink {
        Sink::Kafka => return Ok(()),
        Sink::Webhook => "webhook",
        Sink::RabbitMq => "rabbitmq",
        Sink::Stdout => "stdout",
    };
    let only_kafka = |path, what: &str| {
        Err(Contradiction { path, problem: format!("{what}, and sink.kind is {word:?}; leave one of them out") })
    };
    if config.delivery != Delivery::AtLeastOnce {
        return only_kafka("delivery", "exactly once rests on Kafka's transactions");
    }
    if config.dead_letter_topic.is_some() {
        return only_kafka("dead_letter_topic", "dead letters have a topic in Kafka only (all sinks have their table)");
    }
    if config.debezium.is_some() {
        return only_kafka("format", "a connector's records go to Kafka");
    }
    let is_binary = |format: &Format| matches!(format, Format::CloudEvents(format) if format.mode == Mode::Binary);
    let outboxes = || config.outboxes.iter().chain(&config.messages);
    if config.sink != Sink::Stdout && outboxes().any(|outbox| is_binary(&outbox.format)) {
        let problem = format!(
            "binary mode is Kafka's headers, and sink.kind is {word:?}; write cloudevents.mode = \"structured\""
        );
        return Err(Contradiction { path: "cloudevents.mode", problem });
    }
    Ok(())
}
