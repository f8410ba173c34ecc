//! The loop: from a source through a pipeline to a sink.
//!
//! A session in small: nothing is confirmed to anyone, no dead letters are written, and trouble ends it. What could not be
//! sent is counted and told.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{select, sync::watch};

use super::{meter::Meter, pace::Pace, range::after, source::Source};
use crate::{
    cli::output,
    config::Config,
    pipeline::{Limits, Lsn, Output, PgTime, Pipeline, Position, Ticket, outbox::Outbox},
    printable::origin,
    session::Catalog,
    sink::{self, kafka::Cut},
    status::unix_us,
};

/// Where the events go.
pub(super) enum Sink {
    /// Where the stream sends them, or standard output.
    Real(Box<sink::Sink>),
    /// Nowhere: they are counted.
    Count,
}

/// What became of the events so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) topics: BTreeMap<String, u64>,
    /// Events that no record can be made of.
    pub(super) poison: u64,
    /// Records that are refused for good.
    pub(super) refused: u64,
    /// Events under way, in order.
    under_way: VecDeque<(Ticket, Position)>,
    /// The last event that was taken.
    last: Option<Position>,
}

impl Tally {
    /// The first event that is not delivered; where all are, the place behind the last one. None: there was none.
    pub(super) fn next(&self) -> Option<Position> {
        self.under_way.front().map(|(_, position)| *position).or(self.last.map(after))
    }

    pub(super) fn delivered(&self) -> u64 {
        self.events - self.refused - self.under_way.len() as u64
    }
}

/// How a run through a source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All that is meant was taken.
    All,
    /// Somebody asked to stop.
    Stopped,
}

/// Carries the events of one source after another.
pub(super) struct Pump<'a> {
    config: &'a Config,
    pub(super) pipeline: Pipeline,
    catalog: Catalog,
    pub(super) sink: Sink,
    pub(super) tally: Tally,
    pace: Option<Pace>,
    meter: Meter,
    /// Until when what is under way may still be delivered.
    stopping: Option<Instant>,
}

impl<'a> Pump<'a> {
    /// `start` is where the log's stream begins.
    pub(super) fn new(
        config: &'a Config,
        outboxes: Vec<Outbox>,
        start: Lsn,
        sink: Sink,
        rate: Option<u32>,
        meter: Meter,
    ) -> Pump<'a> {
        let limits = Limits { records: config.in_flight_records, bytes: config.in_flight_bytes };
        let mut pipeline = Pipeline::new(outboxes, config.on_update, start, limits);
        config.debezium.iter().for_each(|debezium| pipeline.run(Arc::clone(&debezium.task)));
        Pump {
            config,
            pipeline,
            catalog: Catalog::default(),
            sink,
            tally: Tally::default(),
            pace: rate.map(|rate| Pace::new(rate, Instant::now())),
            meter,
            stopping: None,
        }
    }

    /// Takes all that is meant of the source, and waits until it is delivered.
    pub(super) async fn run(&mut self, source: &mut Source, stop: &mut watch::Receiver<bool>) -> anyhow::Result<Ended> {
        let mut over = false;
        loop {
            over = over || self.step(source)? || source.is_over(&self.pipeline);
            self.cut(over)?;
            let may_read = !over && self.may_step();
            source.report(self.pipeline.confirmed(), may_read)?;
            self.show();
            let idle = self.tally.under_way.is_empty();
            if over && idle {
                return Ok(Ended::All);
            }
            if let Some(until) = self.stopping.filter(|until| idle || Instant::now() >= *until) {
                tracing::debug!(?until, "stopped");
                return Ok(Ended::Stopped);
            }
            let wake = self.deadline(source, over);
            // Every future here may be dropped: partial state lives in the pump and in the source.
            select! {
                biased;
                _ = stop.wait_for(|stop| *stop), if self.stopping.is_none() => {
                    self.stopping = Some(Instant::now() + self.config.shutdown_grace);
                }
                () = tokio::time::sleep_until(wake.into()) => {}
                ready = ready(&mut self.sink) => {
                    ready?;
                    self.acknowledge()?;
                }
                described = self.catalog.ready() => {
                    let (id, description) = described?;
                    self.pipeline.describe(id, &description);
                }
                read = source.progress(may_read) => read?,
            }
        }
    }

    /// Ends what was begun, and gives what came of it.
    pub(super) async fn close(self) -> Tally {
        let Pump { mut sink, tally, meter, .. } = self;
        meter.end();
        if let Sink::Real(to) = &mut sink {
            to.close().await;
        }
        tally
    }

    /// Takes what is there, as far as it may be sent. True: the first event beyond what is meant has come.
    fn step(&mut self, source: &mut Source) -> anyhow::Result<bool> {
        let until = source.until();
        let is_beyond = |position: Position| until.is_some_and(|until| position >= until);
        self.pipeline.clock(PgTime::from_unix_us(unix_us(SystemTime::now())));
        while self.may_step() {
            let (acknowledged, asked) = match source.step(&mut self.pipeline)? {
                None => return Ok(false),
                Some(Output::None | Output::Ignored { .. }) => (None, false),
                Some(Output::Undescribed(relation)) => {
                    self.catalog.ask(&self.config.database, relation);
                    (None, false)
                }
                // It lies before what is meant.
                Some(Output::Passed { ticket, .. }) => (Some(ticket), false),
                Some(Output::ReplyRequested) => (None, true),
                Some(Output::Record(record)) if is_beyond(record.position) => return Ok(true),
                Some(Output::Poison { poison, .. }) if is_beyond(poison.position) => return Ok(true),
                Some(Output::Record(record)) => {
                    let ticket = record.ticket;
                    self.tally.events += 1;
                    self.tally.last = Some(record.position);
                    *self.tally.topics.entry(origin(record.topic).to_owned()).or_default() += 1;
                    self.pace.iter_mut().for_each(Pace::sent);
                    match &mut self.sink {
                        Sink::Real(to) => {
                            self.tally.under_way.push_back((ticket, record.position));
                            to.send(&record)?;
                            (refused(to, &mut self.tally), false)
                        }
                        Sink::Count => (Some(ticket), false),
                    }
                }
                Some(Output::Poison { ticket, poison }) => {
                    tracing::warn!("{poison}");
                    self.tally.poison += 1;
                    self.tally.last = Some(poison.position);
                    (Some(ticket), false)
                }
            };
            if let Some(ticket) = acknowledged {
                self.pipeline.acknowledge(ticket);
                self.settle();
            }
            if asked {
                source.reply_requested();
            }
        }
        Ok(false)
    }

    fn may_step(&self) -> bool {
        let holds = match &self.sink {
            Sink::Real(to) => to.is_holding(),
            Sink::Count => false,
        };
        let now = Instant::now();
        let paced = self.pace.as_ref().is_none_or(|pace| pace.next(now) <= now);
        let has_room = self.pipeline.has_more() || self.pipeline.has_room();
        self.stopping.is_none() && !self.catalog.is_asked() && has_room && !holds && paced
    }

    /// Ends the Kafka transaction where it is time; PostgreSQL's are not kept whole.
    fn cut(&mut self, over: bool) -> anyhow::Result<()> {
        let Sink::Real(to) = &mut self.sink else { return Ok(()) };
        let now = over || self.stopping.is_some() || !self.pipeline.has_room();
        Ok(to.cut(if now { Cut::Now } else { Cut::Between }, None, |_| None, Vec::new)?)
    }

    fn acknowledge(&mut self) -> anyhow::Result<()> {
        let Pump { sink: Sink::Real(to), pipeline, tally, .. } = self else { return Ok(()) };
        to.poll(|ticket| pipeline.acknowledge(ticket))?;
        while let Some(ticket) = refused(to, tally) {
            pipeline.acknowledge(ticket);
        }
        while let Some(record) = to.take_behind() {
            record.lend(|record| to.send(record))?;
        }
        // A replay goes on from nothing that Kafka knows.
        let _ = to.take_opened();
        self.settle();
        Ok(())
    }

    /// Forgets what is no longer under way.
    fn settle(&mut self) {
        let oldest = self.pipeline.ledger().oldest();
        let under_way = &mut self.tally.under_way;
        while under_way.front().is_some_and(|(ticket, _)| oldest.is_none_or(|oldest| *ticket < oldest)) {
            under_way.pop_front();
        }
    }

    fn show(&mut self) {
        let trouble = match &self.sink {
            Sink::Real(to) => to.trouble(),
            Sink::Count => None,
        };
        let last = self.tally.last.map_or(Lsn::INVALID, |last| last.commit_lsn);
        self.meter.show(&self.tally, last.max(self.pipeline.confirmed()), trouble.as_deref());
    }

    fn deadline(&self, source: &Source, over: bool) -> Instant {
        const SHOW: Duration = Duration::from_millis(500);
        let now = Instant::now();
        let cut = match &self.sink {
            Sink::Real(to) => to.deadline(),
            Sink::Count => None,
        };
        let pace = self.pace.as_ref().filter(|_| !over).map(|pace| pace.next(now)).filter(|next| *next > now);
        let all = [cut, pace, self.stopping, source.deadline(self.pipeline.confirmed())];
        all.into_iter().flatten().fold(now + SHOW, Instant::min)
    }
}

/// Counts a record that is refused, and gives its ticket.
fn refused(to: &mut sink::Sink, tally: &mut Tally) -> Option<Ticket> {
    let (record, error) = to.take_refused()?;
    tracing::warn!("{error}");
    tally.refused += 1;
    Some(record.ticket)
}

/// Resolves when the sink has something to say; never, where it has no part. Cancel safe.
async fn ready(sink: &mut Sink) -> anyhow::Result<()> {
    match sink {
        Sink::Real(to) => to.ready().await.map_err(|error| match error {
            sink::Error::Closed => output::Closed.into(),
            error => error.into(),
        }),
        Sink::Count => std::future::pending().await,
    }
}
