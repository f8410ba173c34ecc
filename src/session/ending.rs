//! How a session ends: it is asked to, or the database shuts down, or there is trouble.

use std::time::{Duration, Instant};

use tokio::select;

use super::{Error, Mode, Session, clock, proof::Proof, reading::Reading};
use crate::{
    pipeline::Lsn,
    postgres::ErrorKind,
    sink::{
        self,
        kafka::{self, Cut},
    },
    status::State,
};

/// Why a session ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Asked to stop; all that was in flight is delivered and confirmed.
    Drained,
    /// Asked to stop; the grace ran out with this many records undelivered. They are not confirmed.
    GraceOver { undelivered: usize },
    /// The database shuts down; walpost let go of it.
    ServerStopped,
    /// Whoever reads standard output has gone; what was taken is confirmed.
    ReaderGone,
}

/// How long the server may take to answer the end of the stream.
const GOODBYE: Duration = Duration::from_secs(2);

impl Session<'_> {
    pub(super) fn drain(&mut self) {
        tracing::info!(in_flight = self.pipeline.ledger().outstanding(), "stopping: delivering what is in flight");
        self.status.enter(State::Stopping, None);
        self.fates.drain();
        self.stop_reading();
        self.mode = Mode::Draining { until: Instant::now() + self.config.shutdown_grace };
    }

    /// A session that reads would hold up the end of the server too.
    fn stop_reading(&mut self) {
        self.reading.iter_mut().for_each(Reading::stop);
    }

    pub(super) fn detach(&mut self) {
        self.stop_reading();
        tracing::warn!("the database shuts down; letting go of it within {:?}", self.config.shutdown_grace);
        self.status.enter(State::Stopping, None);
        let paused = matches!(self.mode, Mode::Paused);
        self.mode = Mode::Detaching { until: Instant::now() + self.config.shutdown_grace, paused };
    }

    pub(super) fn end(&self) -> Option<End> {
        let now = Instant::now();
        let undelivered = self.pipeline.ledger().outstanding();
        match self.mode {
            Mode::Streaming | Mode::Paused => None,
            Mode::Draining { .. } if undelivered == 0 && !self.pipeline.in_transaction() && !self.fates.replays() => {
                Some(End::Drained)
            }
            Mode::Draining { until } => (now >= until).then_some(End::GraceOver { undelivered }),
            Mode::Detaching { paused: true, .. } if undelivered == 0 && !self.pipeline.in_transaction() => {
                Some(End::ServerStopped)
            }
            Mode::Detaching { until, .. } => (now >= until).then_some(End::ServerStopped),
        }
    }

    /// Before an error that will come again ends the session, what precedes it is delivered and confirmed, as far as the
    /// grace allows: then the slot stands right before the culprit, and skipping that loses nothing else. Before any
    /// other trouble with Kafka at least what is delivered is confirmed.
    pub(super) async fn halt(mut self, mut error: Error) -> Error {
        self.stop_reading();
        // What Kafka said last.
        self.publish();
        if let Error::Sink(sink) = &error {
            error = self.fates.end(sink).map_or(error, Error::from);
        }
        // What is not waited for: the culprit keeps its place in flight, unless the stream itself is at fault.
        let left = match &error {
            Error::Poison { .. } | Error::PoisonRow { .. } | Error::Culprit => 1,
            // Another session delivers what precedes it.
            Error::Sink(sink::Error::Kafka(
                kafka::Error::Rejected { producer_ended: true, .. } | kafka::Error::Fenced { .. },
            )) => usize::MAX,
            // Nobody takes anything any more.
            Error::Sink(sink::Error::Closed | sink::Error::NoReader | sink::Error::Stdout(_)) => usize::MAX,
            // They are counted below.
            Error::Sink(sink::Error::GivenUp(_)) => 0,
            Error::Sink(error) if error.is_permanent() => 1,
            Error::Sink(_) => usize::MAX,
            Error::Pipeline(_) => 0,
            // Such as a row that cannot be converted. The server takes no confirmation any more, but whoever skips what
            // it refuses skips what precedes it too, so that must have arrived.
            Error::Postgres(error) if error.kind() == ErrorKind::Permanent => 0,
            Error::Replay { .. } => 0,
            Error::Letters(_) => 1,
            Error::Postgres(_)
            | Error::Slot(_)
            | Error::Lost { .. }
            | Error::SlotGone { .. }
            | Error::Unreadable(_)
            | Error::NoProgress { .. }
            | Error::Rewind(_)
            | Error::Unsettled
            | Error::Forwarded { .. }
            | Error::Silence { .. }
            | Error::Unauthorized { .. }
            | Error::Unmarkable(_)
            | Error::SynchronousStandby { .. } => return error,
        };
        // A grace that has begun is not given twice.
        let until = match self.mode {
            Mode::Streaming | Mode::Paused => Instant::now() + self.config.shutdown_grace,
            Mode::Draining { until } | Mode::Detaching { until, .. } => until,
        };
        let mut attached = true;
        while self.pipeline.ledger().outstanding() > usize::saturating_add(left, self.sink.stuck())
            && Instant::now() < until
        {
            if self.cut_at(Cut::Now).and_then(|()| self.work()).is_err() {
                break;
            }
            self.report();
            let wake = self.feedback.deadline(self.pipeline.confirmed()).min(until);
            select! {
                biased;
                () = tokio::time::sleep_until(wake.into()) => {}
                ready = self.sink.ready() => {
                    match ready.map_err(Error::from).and_then(|()| self.acknowledge()) {
                        Ok(()) => {}
                        // Of several that are refused meanwhile the first in the stream is told.
                        Err(first @ Error::Sink(sink::Error::GivenUp(_)))
                            if matches!(error, Error::Sink(sink::Error::GivenUp(_))) =>
                        {
                            error = first;
                        }
                        Err(earlier) => {
                            // What precedes the culprit did not arrive, and that comes first: it may be refused too, or be
                            // mended by another session. Of topics that never came, none is the first.
                            if !matches!(error, Error::Sink(sink::Error::Kafka(kafka::Error::UnknownTopic { .. }))) {
                                error = earlier;
                            }
                            break;
                        }
                    }
                }
                marked = self.fates.ready() => self.marked(marked),
                written = self.stream.progress(false), if attached => attached = written.is_ok(),
            }
        }
        self.finish().await;
        error
    }

    /// The last status, an orderly CopyDone, and what the server answers.
    pub(super) async fn finish(mut self) {
        self.sink.close().await;
        if let Some(reading) = &mut self.reading {
            reading.acknowledged(self.pipeline.ledger().oldest());
            reading.finish().await;
        }
        let confirmed = self.pipeline.confirmed();
        let update = self.feedback.last(confirmed, Instant::now());
        self.stream.send(&update.encode(clock()));
        // The next session must not take what the slot learns here for another's doing.
        self.status.now().confirmed = Some(confirmed);
        match tokio::time::timeout(GOODBYE, self.stream.finish()).await {
            Ok(Ok(())) => {
                tracing::info!(%confirmed, "the stream is closed");
                stopped(self.proof, confirmed).await;
            }
            Ok(Err(error)) => tracing::warn!(%error, "the stream did not close in order"),
            Err(_) => tracing::warn!("the server did not answer the end of the stream within {GOODBYE:?}"),
        }
    }
}

/// Writes the last position down. Another process may have the slot by now, or the server be down: then the next start
/// looks closer.
async fn stopped(proof: Option<Proof>, confirmed: Lsn) {
    let Some(proof) = proof else { return };
    match tokio::time::timeout(GOODBYE, proof.stop(confirmed)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "the last confirmed position is not written down"),
        Err(_) => tracing::debug!("the last confirmed position is not written down within {GOODBYE:?}"),
    }
}
