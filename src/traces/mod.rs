//! Spans of what is published, for OpenTelemetry, over OTLP/HTTP; off unless `traces.endpoint` is set.
//!
//! An event whose `traceparent` says that its trace is sampled gets one span, from its commit to its delivery, as a child of
//! the span that inserted it. Other events cost a look at the header and two at the open spans. The record keeps the application's own
//! `traceparent`. The stream waits for none of this: spans are queued up to a bound, those beyond it and those that the
//! collector does not take are counted and gone.

mod export;
mod parent;
mod spans;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::sync::{mpsc, oneshot};

pub use spans::Spans;

use crate::config::{Config, TracesTo};

/// Most spans that wait to be exported.
const QUEUED_MAX: usize = 8192;
/// How long the end of the process waits for what is queued.
const FLUSH: Duration = Duration::from_secs(2);

/// Takes spans, whichever session they are of.
#[derive(Clone, Debug)]
pub struct Traces {
    sender: mpsc::Sender<Item>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Item {
    Span(Box<Span>),
    /// Dropped when all before it is exported.
    Flush(oneshot::Sender<()>),
}

impl Traces {
    /// Starts what exports, on a thread of its own: whatever a collector answers, the stream goes on.
    pub fn start(config: &Config, to: &TracesTo) -> io::Result<Traces> {
        let (sender, receiver) = mpsc::channel(QUEUED_MAX);
        let counts = Arc::new(Counts::default());
        let exporter = export::Exporter::new(config, to, Arc::clone(&counts))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("traces".to_owned()).spawn(move || runtime.block_on(exporter.run(receiver)))?;
        Ok(Traces { sender, counts })
    }

    fn export(&self, span: Span) {
        if self.sender.try_send(Item::Span(Box::new(span))).is_err() {
            self.counts.lost(1);
        }
    }

    /// Spans that the collector took, and those that are gone.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.exported.load(Ordering::Relaxed), self.counts.dropped.load(Ordering::Relaxed))
    }

    /// Waits a little until what is queued is exported.
    pub async fn flush(&self) {
        let (flushed, done) = oneshot::channel();
        let flush = async {
            if self.sender.send(Item::Flush(flushed)).await.is_ok() {
                let _ = done.await;
            }
        };
        if tokio::time::timeout(FLUSH, flush).await.is_err() {
            tracing::debug!("the last spans are not exported within {FLUSH:?}");
        }
    }
}

impl Counts {
    fn lost(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    fn taken(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }
}
