//! What brings one record to where it goes, by itself, and what came of it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{error::Error, lanes::Patience, owned::OwnedRecord, rabbitmq, webhook};
use crate::{
    config::{Config, Sink},
    postgres::dead_letter::ReasonClass,
};

/// What came of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Delivered,
    /// It may pass, and another try follows.
    Failed {
        reason: String,
        /// Not before that, as the receiver asks.
        after: Option<Duration>,
        /// It is one of the record's attempts; false where the fault is not the record's, such as a broker that is down.
        counts: bool,
    },
    /// It is never taken.
    Refused {
        class: ReasonClass,
        reason: String,
    },
}

impl Outcome {
    /// It is one of the record's attempts, and tried again after the usual pause.
    pub(super) fn failed(reason: impl Into<String>) -> Outcome {
        Outcome::Failed { reason: reason.into(), after: None, counts: true }
    }

    pub(super) fn refused(class: ReasonClass, reason: impl Into<String>) -> Outcome {
        Outcome::Refused { class, reason: reason.into() }
    }
}

/// A try under way. One that is dropped may or may not have arrived.
pub(super) type Try = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Who carries the records.
#[derive(Debug)]
pub(super) enum Courier {
    Webhook(webhook::Courier),
    RabbitMq(rabbitmq::Courier),
}

/// A courier, and how it is to be used.
pub(super) struct Opened {
    pub(super) courier: Courier,
    pub(super) patience: Patience,
    /// Most records under way at once.
    pub(super) width: usize,
}

impl Courier {
    /// Of a sink that takes records one by one.
    pub(super) fn open(config: &Config) -> Result<Opened, Error> {
        match config.sink {
            Sink::Webhook => {
                let webhook = &config.webhook;
                let courier = Courier::Webhook(webhook::Courier::open(webhook).map_err(Error::Webhook)?);
                let patience = Patience {
                    first: webhook.backoff,
                    longest: webhook.backoff_max,
                    attempts_max: Some(webhook.attempts_max),
                };
                Ok(Opened { courier, patience, width: webhook.lanes })
            }
            Sink::RabbitMq => {
                let rabbitmq = config.rabbitmq.as_ref().expect("commands that deliver need rabbitmq.url");
                Ok(Opened {
                    courier: Courier::RabbitMq(rabbitmq::Courier::open(rabbitmq)?),
                    patience: rabbitmq::PATIENCE,
                    width: config.in_flight_records,
                })
            }
            Sink::Kafka | Sink::Stdout => unreachable!("these take many records at once"),
        }
    }

    /// Tries once.
    pub(super) fn deliver(&self, record: Arc<OwnedRecord>, attempt: u32) -> Try {
        match self {
            Courier::Webhook(courier) => courier.deliver(record),
            Courier::RabbitMq(courier) => courier.deliver(&record, attempt),
        }
    }

    /// What keeps all records waiting, while something does.
    pub(super) fn trouble(&self) -> Option<String> {
        match self {
            Courier::Webhook(_) => None,
            Courier::RabbitMq(courier) => courier.trouble(),
        }
    }
}
