//! Which topics a configuration writes to: by name where the template has no column, else by pattern.

use std::str::FromStr;

use crate::{
    config::Config,
    pipeline::template::{Part, Template},
};

/// A name of a topic in which `*` stands for any text, the empty one too. No topic has a `*` in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What stands between the stars.
    texts: Vec<String>,
}

impl Pattern {
    /// Where the records of a template go, events with a `destination` of their own aside.
    pub fn of(template: &Template) -> Pattern {
        let mut texts = vec![String::new()];
        for part in template.parts() {
            match part {
                Part::Text(text) => texts.last_mut().expect("there is always a last text").push_str(text),
                Part::Column(_) => texts.push(String::new()),
            }
        }
        Pattern { texts }
    }

    /// Wherever a configuration sends events, and what a connector tells beside them.
    pub fn events(config: &Config) -> Vec<Pattern> {
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut add = |pattern: Pattern| {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        };
        let outboxes = config.outboxes.iter().chain(&config.messages);
        outboxes.for_each(|outbox| add(Pattern::of(&outbox.topic)));
        if let Some(debezium) = &config.debezium {
            // Its tables may not be known.
            add(Pattern::of(debezium.topic()));
            let connector = debezium.connector();
            let heartbeats = connector.heartbeat.as_ref().map(|heartbeat| &heartbeat.topic);
            connector.transaction_topic.iter().chain(heartbeats).for_each(|topic| add(Pattern::literal(topic)));
        }
        patterns
    }

    /// Wherever a configuration sends records, but for positions.
    pub fn all(config: &Config) -> Vec<Pattern> {
        let letters = config.dead_letter_topic.iter().map(|topic| Pattern::literal(topic));
        Pattern::events(config).into_iter().chain(letters).collect()
    }

    fn literal(topic: &str) -> Pattern {
        Pattern { texts: vec![topic.to_owned()] }
    }

    /// The one topic it stands for, where it has no `*`.
    pub fn topic(&self) -> Option<&str> {
        match &self.texts[..] {
            [name] => Some(name),
            _ => None,
        }
    }

    pub fn matches(&self, topic: &str) -> bool {
        let [first, middle @ .., last] = &self.texts[..] else { return Some(topic) == self.topic() };
        let Some(mut rest) = topic.strip_prefix(first.as_str()) else { return false };
        for text in middle {
            // The first place leaves most for what follows.
            let Some(at) = rest.find(text.as_str()) else { return false };
            rest = &rest[at + text.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

impl FromStr for Pattern {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Pattern, Self::Err> {
        Ok(Pattern { texts: text.split('*').map(str::to_owned).collect() })
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.texts.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, topic, matches) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("outbox.event.*", "outbox.event.order", true),
            ("outbox.event.*", "outbox.event.", true),
            ("outbox.event.*", "outbox.even", false),
            ("*", "anything", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "a.b.b.c", true),
            ("a*b*c", "a.c", false),
            ("*.dlq", "x.dlq", true),
            ("*.dlq", "x.dlq2", false),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(topic), matches, "{pattern} {topic}");
            assert_eq!(parsed.to_string(), pattern);
        }
    }

    #[test]
    fn a_template_gives_its_pattern() {
        let of = |template: &str| Pattern::of(&template.parse().unwrap());
        assert_eq!(of("outbox.event.${aggregate_type}").to_string(), "outbox.event.*");
        assert_eq!(of("${a}.x.${b}").to_string(), "*.x.*");
        assert_eq!(of("orders").topic(), Some("orders"));
        assert_eq!(of("outbox.event.${aggregate_type}").topic(), None);
    }
}
