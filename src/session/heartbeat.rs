//! Records that say that a connector is alive.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{Error, job::Trouble};
use crate::{debezium::Task, pipeline::Record, sink::Sink, status::unix_us};

/// How soon one is tried again that Kafka could not take.
const AGAIN: Duration = Duration::from_millis(100);

/// Sends a heartbeat at once, and then again and again.
#[derive(Debug)]
pub(super) struct Heartbeat {
    task: Arc<Task>,
    interval: Duration,
    next: Instant,
    trouble: Trouble,
}

impl Heartbeat {
    /// None: the connector sends none.
    pub(super) fn of(task: &Arc<Task>) -> Option<Heartbeat> {
        let interval = task.connector().heartbeat.as_ref()?.interval;
        Some(Heartbeat { task: Arc::clone(task), interval, next: Instant::now(), trouble: Trouble::default() })
    }

    pub(super) fn deadline(&self) -> Instant {
        self.next
    }

    /// Sends one if it is time. While Kafka takes nothing none is sent: it would tell of the past.
    pub(super) fn beat(&mut self, sink: &mut Sink, now: Instant) -> Result<(), Error> {
        if now < self.next {
            return Ok(());
        }
        if sink.is_holding() {
            self.next = now + AGAIN;
            return Ok(());
        }
        self.next = now + self.interval;
        let message = match self.task.heartbeat(unix_us(SystemTime::now()) / 1000) {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(refusal) => {
                self.trouble.is(format!("no heartbeat is sent: {refusal}"));
                return Ok(());
            }
        };
        Ok(sink.send(&Record::from(&message))?)
    }
}
