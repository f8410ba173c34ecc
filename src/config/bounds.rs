//! Bounds compared with each other: none may promise what another forbids.

use std::time::Duration;

use crate::postgres::bookmark::ROTA_SLOT_BYTES_MAX;

use super::{Config, Delivery, OnPoison, Rota, sink};

/// Two keys that contradict each other: which one to name, and why.
pub(super) struct Contradiction {
    pub(super) path: &'static str,
    pub(super) problem: String,
}

/// Refuses what contradicts, and takes a bound of librdkafka's queue for one of what is in flight.
pub(super) fn compare(mut config: Config) -> Result<Config, Contradiction> {
    sink::compare(&config)?;
    if config.confirm_interval.is_zero() {
        return Err(Contradiction {
            path: "confirm_interval",
            problem: "this must be above 0, as in \"20ms\"".to_owned(),
        });
    }
    if config.confirm_interval > config.status_interval {
        let problem = format!(
            "{} is above the status_interval of {}; a moving position must not be confirmed less often than a resting one",
            humantime::format_duration(config.confirm_interval),
            humantime::format_duration(config.status_interval)
        );
        return Err(Contradiction { path: "confirm_interval", problem });
    }
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(3600));
    if !(least..=most).contains(&config.progress_interval) {
        let problem = format!(
            "{} is not from 100ms to 1h: each time is a connection, and until then no row is proven published",
            humantime::format_duration(config.progress_interval)
        );
        return Err(Contradiction { path: "progress_interval", problem });
    }
    // A holder that rests replies that seldom, and a reply may be late.
    if config.takeover_timeout < config.status_interval * 2 {
        let problem = format!(
            "{} is not twice the status_interval of {}: a process that lives would be taken for dead",
            humantime::format_duration(config.takeover_timeout),
            humantime::format_duration(config.status_interval)
        );
        return Err(Contradiction { path: "takeover_timeout", problem });
    }
    if config.prune_every.is_some_and(|every| every < Duration::from_secs(1)) {
        let problem = "this must be 1s at least: each time all of the table is read".to_owned();
        return Err(Contradiction { path: "prune.every", problem });
    }
    if config.in_flight_bytes == 0 {
        return Err(Contradiction {
            path: "in_flight_bytes",
            problem: "this must be above 0, as in \"16MiB\"".to_owned(),
        });
    }
    if config.dead_letter_topic.is_some() && config.on_poison == Some(OnPoison::Halt) {
        let problem = "nothing goes there with on_poison = \"halt\"; leave one of them out".to_owned();
        return Err(Contradiction { path: "dead_letter_topic", problem });
    }
    if let Delivery::ExactlyOnce(exactly_once) = &config.delivery {
        if config.dead_letter_topic.as_ref() == Some(&exactly_once.positions_topic) {
            let problem = "exactly_once.positions_topic is compacted, and holds nothing else; name another".to_owned();
            return Err(Contradiction { path: "dead_letter_topic", problem });
        }
        if exactly_once.commit_interval >= exactly_once.transaction_timeout {
            let problem = format!(
                "{} is not below transaction.timeout.ms, {} ms: Kafka would give up every transaction before its end",
                humantime::format_duration(exactly_once.commit_interval),
                exactly_once.transaction_timeout.as_millis(),
            );
            return Err(Contradiction { path: "exactly_once.commit_interval", problem });
        }
    }
    if let Some(Rota { every, .. }) = config.bookmarks {
        if every < Duration::from_secs(1) {
            let problem = "this must be a second at least, as in \"10m\"".to_owned();
            return Err(Contradiction { path: "bookmarks.every", problem });
        }
        if config.slot.len() > ROTA_SLOT_BYTES_MAX {
            let problem = format!(
                "slot {:?} leaves no room for the names of its bookmarks; they take one of {ROTA_SLOT_BYTES_MAX} bytes at most",
                config.slot
            );
            return Err(Contradiction { path: "bookmarks.every", problem });
        }
    }
    // A queue of 0 messages has no bound.
    let messages = config.kafka.number("queue.buffering.max.messages").filter(|messages| *messages > 0);
    if let Some(messages) = messages.filter(|messages| *messages < config.in_flight_records) {
        tracing::info!("in_flight_records lowered to queue.buffering.max.messages, {messages}");
        config.in_flight_records = messages;
    }
    let bytes = config.kafka.number("queue.buffering.max.kbytes").map(|kbytes: usize| kbytes.saturating_mul(1024));
    if let Some(bytes) = bytes.filter(|bytes| *bytes < config.in_flight_bytes) {
        tracing::info!("in_flight_bytes lowered to queue.buffering.max.kbytes, {bytes} bytes");
        config.in_flight_bytes = bytes;
    }
    Ok(config)
}
