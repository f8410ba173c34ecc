//! RabbitMQ: each record published once, and what the broker made of it.
//!
//! - [`message`]: what a record looks like as a message;
//! - [`publisher`]: one connection for all, made when it is needed and made anew when it broke;
//! - `confirms`: that connection, in confirm mode; which confirm is whose, and what was returned;
//! - [`broker`]: who is called, and what a refusal means.
//!
//! A message counts as delivered when the broker has confirmed it and did not return it. Nothing here tries again: a
//! message whose fate is not known was neither delivered nor refused, and whoever asked may publish it once more.

pub mod broker;
mod confirms;
pub mod message;
pub mod publisher;

use std::{sync::Arc, time::Duration};

use self::{
    broker::{Broker, OpenError},
    message::Message,
    publisher::{Publisher, Verdict},
};
use super::{
    courier::{Outcome, Try},
    lanes::Patience,
    owned::OwnedRecord,
};
use crate::{chain::Chain, config::RabbitMq, postgres::dead_letter::ReasonClass};

/// A message that may be the reason why it is not taken is tried ten times; all others without end.
pub(super) const PATIENCE: Patience =
    Patience { first: Duration::from_millis(100), longest: Duration::from_secs(10), attempts_max: Some(10) };

/// How often a message is returned before it is given up: with the pauses of [`PATIENCE`], after 6 to 13 seconds.
const UNROUTABLE_TRIES: u32 = 8;

/// Brings records to RabbitMQ. A record's topic is `exchange/routing key`; the first slash parts them.
#[derive(Debug)]
pub(super) struct Courier {
    publisher: Publisher,
}

impl Courier {
    /// Within a runtime; connects with the first record. Files of TLS are read at once.
    pub(super) fn open(config: &RabbitMq) -> Result<Courier, OpenError> {
        Ok(Courier { publisher: Publisher::start(Broker::new(config)?) })
    }

    /// `attempt` counts from 1.
    pub(super) fn deliver(&self, record: &Arc<OwnedRecord>, attempt: u32) -> Try {
        match record.lend(Message::of) {
            Ok(message) => {
                let verdict = self.publisher.publish(message);
                Box::pin(async move { outcome(verdict.await, attempt) })
            }
            Err(flaw) => {
                let refused = Outcome::refused(ReasonClass::Rejected, flaw.to_string());
                Box::pin(std::future::ready(refused))
            }
        }
    }

    /// What keeps all records waiting, while something does.
    pub(super) fn trouble(&self) -> Option<String> {
        self.publisher.trouble()
    }
}

/// Connects once. The error has no secret.
pub(super) async fn reach(config: &RabbitMq) -> Result<(), String> {
    let broker = Broker::new(config).map_err(|error| Chain(&error).to_string())?;
    broker.connect().await.map(drop)
}

/// A broker that stops or starts returns messages for queues that it has: only what comes back for some seconds is
/// believed to have none.
fn outcome(verdict: Verdict, attempt: u32) -> Outcome {
    match verdict {
        Verdict::Taken => Outcome::Delivered,
        Verdict::Later { reason, counts } => Outcome::Failed { reason, after: None, counts },
        Verdict::Unroutable(reason) if attempt < UNROUTABLE_TRIES => Outcome::failed(reason),
        Verdict::Unroutable(reason) => Outcome::refused(ReasonClass::Unroutable, reason),
        Verdict::TooLarge(reason) => Outcome::refused(ReasonClass::TooLarge, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_message_is_given_up_at_the_eighth_try() {
        let returned = |attempt| outcome(Verdict::Unroutable("NO_ROUTE".to_owned()), attempt);
        for attempt in 1..8 {
            assert_eq!(returned(attempt), Outcome::failed("NO_ROUTE"));
        }
        for attempt in 8..11 {
            assert_eq!(returned(attempt), Outcome::refused(ReasonClass::Unroutable, "NO_ROUTE"));
        }
    }
}
