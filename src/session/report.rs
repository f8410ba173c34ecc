//! What a session tells of itself: its position to the server, and all else to the status.

use std::time::{Instant, SystemTime};

use super::{Error, Mode, Session, clock, proof::Proof, reading::Reading, sampler::Sample};
use crate::{
    pipeline::Completed,
    status::{ServerSample, seconds_since},
};

/// What of this session's totals the status already has.
#[derive(Default)]
pub(super) struct Published {
    events: Vec<u64>,
    delivered: Vec<u64>,
    timestamps_replaced: u64,
}

impl Session<'_> {
    pub(super) fn observe_completed(&mut self) {
        let at = SystemTime::now();
        let mut last = None;
        for Completed { commit, records } in self.pipeline.take_completed() {
            // Nobody knows when rows that are read were committed.
            if self.reading.is_none() {
                let seconds = seconds_since(commit, at);
                self.status.commit_to_delivery.observe(seconds);
                self.status.latency.observe(seconds);
                self.status.transaction_events.observe(records as f64);
                last = Some(commit);
            }
        }
        if last.is_some() {
            self.status.now().last_commit = last;
        }
    }

    /// Reports to the server when it is due, and to the status always.
    pub(super) fn report(&mut self) {
        let now = Instant::now();
        if let Some(update) = self.feedback.due(self.pipeline.confirmed(), now) {
            self.stream.send(&update.encode(clock()));
            self.status.now().fed_back = Some(SystemTime::now());
        }
        // A commit completes by itself when its records were acknowledged before it was read.
        self.observe_completed();
        self.publish();
    }

    pub(super) fn publish(&mut self) {
        let Session { config, pipeline, sink, fates, reading, published, .. } = self;
        sink.last_records().filter(|records| !records.is_empty()).into_iter().for_each(|records| {
            self.status.last_records.lock().take(records);
        });
        let mut now = self.status.now();
        now.confirmed = Some(pipeline.confirmed());
        now.in_flight_records = pipeline.ledger().outstanding();
        now.in_flight_bytes = pipeline.ledger().outstanding_bytes();
        now.turn(pipeline.ledger().oldest(), SystemTime::now());
        now.oldest_unconfirmed = pipeline.oldest_unconfirmed();
        let counters = pipeline.counters();
        published.events.resize(counters.events.len(), 0);
        for ((outbox, total), known) in
            config.outboxes.iter().chain(&config.messages).zip(&counters.events).zip(&mut published.events)
        {
            if total != known {
                *now.events.entry(outbox.name.to_string()).or_default() += total - *known;
                *known = *total;
            }
        }
        published.delivered.resize(sink.delivered().count(), 0);
        for ((destination, total), known) in sink.delivered().zip(&mut published.delivered) {
            if total != *known {
                now.delivered.add(destination, total - *known);
                *known = total;
            }
        }
        now.queued_records = sink.queued();
        let setbacks = sink.take_setbacks();
        now.retries += setbacks.retries;
        for (error, count) in setbacks.kafka_errors {
            *now.kafka_errors.entry(error).or_default() += count;
        }
        now.timestamps_replaced += counters.timestamps_replaced - published.timestamps_replaced;
        published.timestamps_replaced = counters.timestamps_replaced;
        now.published_at = self.proof.as_ref().and_then(Proof::published_at);
        now.reading = reading.as_ref().map(Reading::shown);
        now.parked = fates.parked();
        for (class, count) in fates.take_counts() {
            *now.dead_letters.entry(class.word()).or_default() += count;
        }
        now.reason = match self.mode {
            Mode::Streaming => fates.trouble().map(str::to_owned).or_else(|| sink.trouble()),
            Mode::Paused if pipeline.in_transaction() => Some("pausing: the open transaction comes first".to_owned()),
            Mode::Paused => Some("paused on request".to_owned()),
            Mode::Draining { .. } => Some("asked to stop".to_owned()),
            Mode::Detaching { .. } => Some("the database shuts down".to_owned()),
        };
    }

    pub(super) fn sampled(&mut self, sample: Sample) -> Result<(), Error> {
        if let Some(why) = sample.lost {
            return Err(Error::SlotGone { slot: self.config.slot.clone(), why });
        }
        let unpublished = sample.gap(self.config);
        if let Some(state) = sample.sync_state.filter(|state| state != "async") {
            return Err(Error::SynchronousStandby { state });
        }
        if let Some(gap) = &unpublished {
            tracing::error!("{gap}");
        }
        if let (Some(proof), Some(covered)) = (&mut self.proof, sample.covered) {
            proof.covers(covered);
        }
        let lost_in = self.fall.step(sample.safe_bytes, Instant::now());
        self.fall.warn(&self.config.slot, sample.wal_status.as_deref(), lost_in);
        self.status.now().unpublished = unpublished;
        if self.status.now().kafka_cluster_id.is_none() {
            let cluster = self.sink.cluster_id();
            self.status.now().kafka_cluster_id = cluster;
        }
        if let Some(unproven) = sample.unproven {
            self.status.now().unproven = Some((unproven, SystemTime::now()));
        }
        self.status.now().server = Some(ServerSample {
            taken: SystemTime::now(),
            wal: sample.wal,
            retained_bytes: sample.retained_bytes,
            safe_bytes: sample.safe_bytes,
            lost_in,
            wal_status: sample.wal_status,
            bookmarks: sample.bookmarks,
        });
        Ok(())
    }
}
