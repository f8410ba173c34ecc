//! One connection for all messages: made when there is one to send, shared, and made anew after it broke.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lapin::types::ShortString;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    time::sleep,
};

use super::{
    broker::Broker,
    confirms::{Confirms, End},
    message::Message,
};

/// How long a failed connection is let rest, so that many who wait do not mean many attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// What the broker made of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Confirmed, and in a queue.
    Taken,
    /// Not confirmed, or confirmed as refused, or its fate is not known. `counts`: the message may be the reason.
    Later { reason: String, counts: bool },
    /// No queue is bound for it, or there is no such exchange.
    Unroutable(String),
    /// Larger than the broker or a frame allows.
    TooLarge(String),
}

impl Verdict {
    pub(super) fn later(reason: impl Into<String>) -> Verdict {
        Verdict::Later { reason: reason.into(), counts: false }
    }
}

/// Publishes; dropping it gives up what is under way.
#[derive(Debug)]
pub struct Publisher {
    jobs: UnboundedSender<Job>,
    blockage: Blockage,
}

impl Publisher {
    /// Within a runtime, on which it lives from then on; it connects with the first message.
    pub fn start(broker: Broker) -> Publisher {
        let (jobs, queue) = unbounded_channel();
        let blockage = Blockage::default();
        tokio::spawn(serve(broker, queue, blockage.clone()));
        Publisher { jobs, blockage }
    }

    /// Publishes at once, whether or not the future is polled; as many may be under way as the caller allows. Messages
    /// that are under way together may arrive in any order.
    pub fn publish(&self, message: Message) -> impl Future<Output = Verdict> + Send + 'static {
        let (settle, verdict) = oneshot::channel();
        let sent = self.jobs.send(Job { message, settle: Settle(settle) });
        async move {
            let gone = || Verdict::later("the connection to RabbitMQ ended before the message was confirmed");
            match sent {
                Ok(()) => verdict.await.unwrap_or_else(|_| gone()),
                Err(_) => gone(),
            }
        }
    }

    /// Why nothing gets through, while nothing does: the broker cannot be reached, or has blocked publishing.
    pub fn trouble(&self) -> Option<String> {
        self.blockage.get().clone()
    }
}

/// A message that waits to be sent.
pub(super) struct Job {
    pub(super) message: Message,
    pub(super) settle: Settle,
}

/// Whom to tell.
pub(super) struct Settle(oneshot::Sender<Verdict>);

impl Settle {
    pub(super) fn with(self, verdict: Verdict) {
        // Nobody may wait any more.
        let _ = self.0.send(verdict);
    }

    /// Nobody waits: what is sent now would come behind what the next session has sent.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

/// What is known about messages and exchanges, from one connection to the next.
#[derive(Default)]
pub(super) struct Learnt {
    /// Exchanges that took a message, which are there and may be written to.
    pub(super) exchanges: HashSet<ShortString>,
    /// Messages that were under way when the broker closed a channel for one it did not name.
    pub(super) suspects: HashSet<ShortString>,
}

/// Why nothing gets through, while nothing does.
#[derive(Clone, Debug, Default)]
pub(super) struct Blockage(Arc<Mutex<Option<String>>>);

impl Blockage {
    pub(super) fn set(&self, reason: Option<String>) {
        let mut now = self.get();
        match (&*now, &reason) {
            (None, Some(reason)) => tracing::warn!("{reason}"),
            (Some(_), None) => tracing::info!("RabbitMQ takes messages again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        *now = reason;
    }

    fn get(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until nobody can publish any more.
async fn serve(broker: Broker, mut queue: UnboundedReceiver<Job>, blockage: Blockage) {
    let mut learnt = Learnt::default();
    let mut first = queue.recv().await;
    while let Some(job) = first.take() {
        match broker.connect().await {
            Ok(link) => {
                blockage.set(None);
                let confirms = Confirms::new(&broker, link, &mut learnt, &blockage);
                match confirms.serve(job, &mut queue).await {
                    End::Closed => return,
                    End::Broken { next } => first = next.map(|job| *job),
                }
            }
            Err(reason) => {
                blockage.set(Some(reason.clone()));
                let mut waiting = Some(job);
                while let Some(job) = waiting {
                    job.settle.with(Verdict::later(reason.as_str()));
                    waiting = queue.try_recv().ok();
                }
                sleep(PAUSE).await;
            }
        }
        if first.is_none() {
            first = queue.recv().await;
        }
    }
}
