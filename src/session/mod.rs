//! One session: a replication stream, a pipeline and a producer, joined by one loop.
//!
//! Trouble ends the session; nothing is tried again here. The next one starts from the slot's own position, so what
//! was in flight is sent again and nothing is lost.

mod attempts;
mod beginning;
mod begun;
mod catalog;
mod ending;
mod error;
mod fall;
mod fates;
mod heartbeat;
mod identity;
mod job;
mod learnt;
pub mod letters;
pub mod loss;
mod marks;
mod proof;
mod reading;
mod report;
pub mod rewind;
mod rota;
mod sampler;
pub mod slot;
mod taken;
mod takeover;

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::{select, sync::watch};

use beginning::Ready;
use begun::{Begun, begin};
pub use catalog::Catalog;
pub use ending::End;
pub use error::Error;
use fall::Fall;
use fates::Fates;
use heartbeat::Heartbeat;
pub use identity::Reached;
pub use learnt::Learnt;
use proof::Proof;
use reading::{Reading, Task};
use report::Published;
use sampler::{Sampler, is_shutdown};
use taken::take;
pub use takeover::Takeover;

use crate::{
    config::{Config, Delivery},
    control::{Orders, Target},
    pipeline::{
        self, Change, Description, Limits, Origin, Output, PgTime, Pipeline, Place, Position, RelationId, Ticket,
        feedback::Feedback,
        resume::{Log, Resume},
    },
    postgres::{self, conninfo::ConnInfo, replication::Replication, stream::Stream},
    setup::names,
    sink::{
        Sink,
        kafka::{Cut, Opened, Source},
    },
    status::{State, Status, unix_us},
    traces::Spans,
};

/// What the loop is about.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Streaming,
    /// Asked to pause: finish the open transaction, then read no more.
    Paused,
    /// Finish the open transaction, deliver what is in flight, go.
    Draining {
        until: Instant,
    },
    /// The database shuts down: deliver what comes, be gone in time (G8).
    Detaching {
        until: Instant,
        /// Nothing more was to be read.
        paused: bool,
    },
}

/// A walsender sends every message by itself, and each wakes an eager reader, even one that only waits for something
/// else on the same epoll. Under load, which shows in what is in flight, the whole thread sleeps before the next turn, so
/// that the socket fills: fewer wake-ups for both, larger batches for Kafka. A steady thousand commits a second keeps
/// less in flight and is read at once.
const REST: Duration = Duration::from_millis(1);
const REST_IN_FLIGHT_MIN: usize = 64;
/// After more than this was read at once there is more, and no reason to rest.
const REST_READ_MAX: usize = 64 * 1024;

/// How long a server without `wal_sender_timeout` may be silent; a subscriber waits as long by default.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The least silence that means something on a busy machine.
const SILENCE_MIN: Duration = Duration::from_secs(5);

struct Session<'s> {
    config: &'s Config,
    status: &'s Status,
    stream: Stream,
    pipeline: Pipeline,
    feedback: Feedback,
    sink: Sink,
    fates: Fates,
    /// Who is asked about relations.
    server: ConnInfo,
    catalog: Catalog,
    heartbeat: Option<Heartbeat>,
    /// None: there is no table for it, or no right to it.
    proof: Option<Proof>,
    /// What comes before the stream; none: that is over.
    reading: Option<Reading>,
    log: Log,
    mode: Mode,
    /// When the server was last heard, or not listened to.
    heard: Instant,
    silence_max: Duration,
    published: Published,
    fall: Fall,
}

/// Connects, streams, and returns when asked to stop or when the database shuts down. Of the orders it follows those to
/// pause and to go on.
pub async fn run(
    config: &Config,
    learnt: &mut Learnt,
    status: &Status,
    mut orders: watch::Receiver<Orders>,
    mut stop: watch::Receiver<bool>,
) -> Result<End, Error> {
    let mut connection = Replication::connect(&config.database).await?;
    let mut taken = bounded(take(config, learnt, status, &mut connection)).await?;
    // That may take its time.
    let generation = rewind::rewind(config, &mut connection, &mut taken).await?;
    // The server may take its time to make a slot.
    let Some(Ready { start, task }) = beginning::prepare(config, status, &taken, &mut connection, &mut stop).await?
    else {
        return Ok(End::Drained);
    };
    // Exactly once, Kafka knows where an earlier session was.
    let is_known = |task: &&Task| !task.resumes || config.delivery == Delivery::AtLeastOnce;
    let from = task.as_ref().filter(is_known).map(|task| task.from.clone());
    let reading = task.map(Reading::new);
    let Begun { stream, identity, server, log, patience, mut fates, attempts, proof, mut sampler, sample, rota: _rota } =
        bounded(begin(config, learnt, taken, start, reading.as_ref(), connection)).await?;
    learnt.reached = Some(Reached {
        system_identifier: identity.system_identifier.clone(),
        timeline: identity.timeline,
        confirmed: start,
        exact: true,
        decoded: None,
        epoch: proof.as_ref().map(|proof| proof.hold().epoch()),
    });
    // The slot is the lock: whoever streams from it may fence.
    let source = Source { system_identifier: &identity.system_identifier, timeline: identity.timeline, generation };
    let mut sink = Sink::new(config, learnt.batches, source, fates.sets_aside(), attempts)?;
    if let Some(traces) = &status.traces {
        fates.trace(Spans::new(config, traces.clone()));
        sink.keep_landings();
    }
    let limits = Limits { records: config.in_flight_records, bytes: config.in_flight_bytes };
    let mut pipeline = Pipeline::new(config.outboxes.clone(), config.on_update, start, limits);
    pipeline.take_messages(&config.messages);
    let task = config.debezium.as_ref().map(|debezium| &debezium.task);
    task.into_iter().for_each(|task| pipeline.run(Arc::clone(task)));
    let mut session = Session {
        config,
        status,
        stream,
        pipeline,
        // What the server grants us, we grant it: it speaks at least twice in that time, and is asked to thrice.
        feedback: Feedback::new(
            start,
            config.confirm_interval,
            config.status_interval.min(patience / 3),
            Instant::now(),
        ),
        sink,
        fates,
        server,
        catalog: Catalog::default(),
        heartbeat: task.and_then(Heartbeat::of),
        proof,
        reading,
        log,
        mode: Mode::Streaming,
        heard: Instant::now(),
        silence_max: patience.max(SILENCE_MIN),
        published: Published::default(),
        fall: Fall::default(),
    };
    status.enter(State::Streaming, None);
    status.now().confirmed = Some(start);
    session.sampled(sample)?;
    if let Some(from) = from {
        session.begin_reading(from);
    }
    session.heed(&mut orders);
    session.stream(&mut sampler, &mut orders, &mut stop).await
}

/// A server that says nothing for too long is none.
async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(SILENCE_MAX, work).await.map_err(|_| Error::Silence { silent: SILENCE_MAX })?
}

impl Session<'_> {
    async fn stream(
        mut self,
        sampler: &mut Sampler,
        orders: &mut watch::Receiver<Orders>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<End, Error> {
        loop {
            match self.step().and_then(|()| self.cut()) {
                Ok(()) => {}
                // All is confirmed, which is what its shutdown waited for.
                Err(Error::Postgres(postgres::Error::CopyEnded)) if matches!(self.mode, Mode::Detaching { .. }) => {
                    return Ok(End::ServerStopped);
                }
                Err(error) => return Err(self.halt(error).await),
            }
            self.work()?;
            self.report();
            if let Some(end) = self.end() {
                self.finish().await;
                return Ok(end);
            }
            let may_step = self.may_step();
            let reads = self.reading.is_some();
            let may_read = may_step && !reads;
            self.listen(may_read)?;
            let wake = self.deadline();
            let streaming = matches!(self.mode, Mode::Streaming | Mode::Paused);
            // The signal first, that a flood cannot hide it; then the clock (G6); then acknowledgements, which make
            // room; reading comes last. Every future here may be dropped: partial state lives in the session.
            select! {
                biased;
                _ = stop.wait_for(|stop| *stop), if streaming => self.drain(),
                Ok(()) = orders.changed() => self.heed(orders),
                () = tokio::time::sleep_until(wake.into()) => {}
                ready = self.sink.ready() => {
                    if let Err(error) = ready.map_err(Error::from).and_then(|()| self.acknowledge()) {
                        return Err(self.halt(error).await);
                    }
                }
                marked = self.fates.ready() => self.marked(marked),
                described = self.catalog.ready() => self.described(described?),
                ticked = or_never(self.proof.as_mut().map(Proof::ready)), if !reads => ticked?,
                read = or_never(self.reading.as_mut().map(|reading| reading.ready(may_step))) => {
                    if let Err(error) = read {
                        return Err(self.halt(error.into()).await);
                    }
                }
                sample = sampler.next(), if streaming => match sample {
                    Ok(sample) => self.sampled(sample)?,
                    Err(error) if is_shutdown(&error) => self.detach(),
                    Err(error) => tracing::debug!(%error, "no sample of the server"),
                },
                read = self.stream.progress(may_read) => match read {
                    Ok(bytes) => {
                        self.heard = Instant::now();
                        self.rest(bytes);
                    }
                    Err(_) if matches!(self.mode, Mode::Detaching { .. }) => return Ok(End::ServerStopped),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    /// Turns buffered frames, or rows before them, into records, as far as there is room.
    fn step(&mut self) -> Result<(), Error> {
        self.pipeline.clock(clock());
        self.fates.resume(&mut self.sink)?;
        if !matches!(self.mode, Mode::Paused) {
            self.fates.replay(&mut self.sink)?;
        }
        loop {
            self.fates.announce(&mut self.sink)?;
            let gives = self.pipeline.has_more() && !self.sink.is_holding() && !self.fates.holds();
            if !gives && !self.may_step() {
                break;
            }
            let commit = self.pipeline.commit_time();
            let output = match &mut self.reading {
                _ if gives => self.pipeline.more(),
                Some(reading) => {
                    if !reading.advance()? {
                        break;
                    }
                    self.pipeline.read(reading.message())?
                }
                None => {
                    let Some(frame) = self.stream.next_frame()? else { break };
                    self.pipeline.step(frame)?
                }
            };
            let mut sent = None;
            match output {
                Output::None => {}
                Output::Record(record) => {
                    self.proof.iter_mut().for_each(|proof| proof.streamed(record.xid));
                    sent = Some(record.ticket);
                    self.fates.record(&record, commit, &mut self.sink)?;
                }
                Output::Poison { ticket, poison } => {
                    sent = Some(ticket);
                    self.proof.iter_mut().for_each(|proof| proof.streamed(poison.xid));
                    match self.fates.poison(ticket, &poison)? {
                        true => {}
                        false if self.reading.is_some() => return Err(Error::PoisonRow { poison }),
                        false => return Err(Error::Poison { poison, slot: self.config.slot.clone() }),
                    }
                }
                Output::Undescribed(relation) => self.catalog.ask(&self.server, relation),
                Output::Passed { ticket, position, table, id } => self.fates.passed(ticket, position, table, &id),
                Output::ReplyRequested => self.feedback.reply_requested(),
                Output::Ignored { table, .. } if names::keeps(self.config, &table) => {}
                Output::Ignored { table, change: Change::Insert } => tracing::warn!(
                    %table, publication = self.config.publication,
                    "the publication has a table that is no outbox of this configuration; its rows are ignored"
                ),
                Output::Ignored { table, change } => {
                    tracing::warn!(%table, ?change, "a change that is no event is ignored; publish inserts only");
                }
            }
            if let (Some(reading), Some(ticket)) = (&mut self.reading, sent) {
                reading.sent(ticket);
            }
        }
        Ok(())
    }

    /// Takes what the catalog says of a relation.
    fn described(&mut self, (id, description): (RelationId, Description)) {
        self.pipeline.describe(id, &description);
        self.catalog.tell(self.pipeline.warnings(id));
    }

    /// Begins to read tables where an earlier session was, or at the first row.
    fn begin_reading(&mut self, from: Option<Place>) {
        let Some(reading) = &mut self.reading else { return };
        reading.begin(from);
        self.pipeline.begin_reading(reading.transaction(clock()));
    }

    /// Brings the reading to its end: the stream follows when its last row is acknowledged and that is noted.
    fn read_on(&mut self) {
        let Some(reading) = &mut self.reading else { return };
        reading.acknowledged(self.pipeline.ledger().oldest());
        if reading.is_read() {
            if self.pipeline.is_reading() {
                self.pipeline.end_reading();
            }
            if self.pipeline.ledger().is_idle() {
                reading.complete();
            }
        }
        if reading.is_done() {
            reading.tell_end();
            self.status.now().slot_recoveries += u64::from(reading.origin() == Origin::Recovered);
            self.reading = None;
        } else {
            reading.work(Instant::now());
        }
    }

    /// Ends the Kafka transaction where it is time: between two of PostgreSQL's if they fit.
    fn cut(&mut self) -> Result<(), Error> {
        let inside = self.pipeline.in_transaction() && !self.sink.is_holding();
        let cut = match self.mode {
            _ if self.fates.holds() || !self.pipeline.has_room() => Cut::Now,
            Mode::Streaming | Mode::Paused | Mode::Draining { .. } if inside => Cut::Inside,
            Mode::Streaming => Cut::Between,
            Mode::Paused | Mode::Draining { .. } | Mode::Detaching { .. } => Cut::Now,
        };
        self.cut_at(cut)
    }

    fn cut_at(&mut self, cut: Cut) -> Result<(), Error> {
        let place = |position: Position| self.reading.as_ref()?.place(position.ordinal);
        self.fates.cut(&mut self.sink, cut, place)
    }

    /// Pauses, or goes on. Whoever drains or detaches is beyond that.
    fn heed(&mut self, orders: &mut watch::Receiver<Orders>) {
        let target = orders.borrow_and_update().target;
        match (self.mode, target) {
            (Mode::Streaming, Target::Paused) => {
                tracing::info!("paused on request: the slot is kept, and nothing more is read from it");
                self.mode = Mode::Paused;
                self.status.enter(State::Paused, None);
            }
            (Mode::Paused, Target::Running) => {
                tracing::info!("streaming again");
                self.mode = Mode::Streaming;
                self.heard = Instant::now();
                self.status.enter(State::Streaming, None);
            }
            // The supervisor ends the session of a stream that is to stop.
            (Mode::Streaming, Target::Running | Target::Stopped) | (Mode::Paused, Target::Paused | Target::Stopped) => {
            }
            (Mode::Draining { .. } | Mode::Detaching { .. }, _) => {}
        }
    }

    fn may_step(&self) -> bool {
        let wanted = match self.mode {
            Mode::Streaming => true,
            Mode::Detaching { paused: false, .. } => self.reading.is_none(),
            Mode::Paused | Mode::Draining { .. } | Mode::Detaching { paused: true, .. } => {
                self.pipeline.in_transaction()
            }
        };
        wanted
            && !self.catalog.is_asked()
            && !self.pipeline.has_more()
            && self.pipeline.has_room()
            && !self.sink.is_holding()
            && !self.fates.holds()
    }

    /// Moves dead letters, the reading and the proof on.
    fn work(&mut self) -> Result<(), Error> {
        // Rows that are read have positions below it, and nothing of the log is proven before they are sent.
        let confirmed = self.reading.is_none().then(|| self.pipeline.confirmed());
        if let (Some(heartbeat), Mode::Streaming) = (&mut self.heartbeat, self.mode) {
            heartbeat.beat(&mut self.sink, Instant::now())?;
        }
        self.fates.work(confirmed, &mut self.pipeline)?;
        if let (Some(proof), Some(confirmed)) = (&mut self.proof, confirmed) {
            proof.work(confirmed);
        }
        self.read_on();
        Ok(())
    }

    /// The rows of these events are marked.
    fn marked(&mut self, tickets: Vec<Ticket>) {
        tickets.into_iter().for_each(|ticket| self.pipeline.acknowledge(ticket));
        self.observe_completed();
    }

    /// Takes delivery reports.
    fn acknowledge(&mut self) -> Result<(), Error> {
        self.fates.delivered(&mut self.sink, &mut self.pipeline)?;
        if let Some(Opened { stored, place, replayed, .. }) = self.sink.take_opened() {
            let position = stored.as_ref().map(|stored| stored.position.commit_lsn);
            let resume = Resume::new(stored, &self.log).map_err(pipeline::Error::from)?;
            if let Some(switch) = resume.cut_at() {
                tracing::warn!(
                    "Kafka has events beyond {switch}, where timeline {} began: they happened on a server that is gone, and \
                     what this one committed there is sent as new",
                    self.log.timeline
                );
            }
            // Rows of a slot that streamed before: what it has still to meet would not be met in them.
            if self.reading.is_some() && resume.is_pending() {
                return Err(Error::Unsettled);
            }
            self.pipeline.resume(resume);
            self.fates.replayed(replayed);
            // Of an earlier reading, or none at all, it says nothing about this one.
            if let Some(reading) = self.reading.as_ref().filter(|reading| reading.is_waiting()) {
                let own = Some(reading.at().of_older_rows());
                self.begin_reading(place.filter(|_| position == own));
            }
        }
        self.observe_completed();
        Ok(())
    }

    fn rest(&self, read: usize) {
        if self.sink.works_aside()
            && read <= REST_READ_MAX
            && self.pipeline.ledger().outstanding() >= REST_IN_FLIGHT_MIN
        {
            std::thread::sleep(REST);
        }
    }

    /// A server that is listened to and stays silent for too long is behind a broken link.
    fn listen(&mut self, may_read: bool) -> Result<(), Error> {
        let now = Instant::now();
        if !may_read {
            self.heard = now;
        }
        let silent = now - self.heard;
        match self.mode {
            Mode::Streaming | Mode::Paused if silent >= self.silence_max => Err(Error::Silence { silent }),
            Mode::Streaming | Mode::Paused | Mode::Draining { .. } | Mode::Detaching { .. } => Ok(()),
        }
    }

    fn deadline(&self) -> Instant {
        let until = match self.mode {
            Mode::Streaming | Mode::Paused => self.heard + self.silence_max,
            Mode::Draining { until } | Mode::Detaching { until, .. } => until,
        };
        let feedback = self.feedback.deadline(self.pipeline.confirmed());
        let cut = if self.pipeline.in_transaction() { None } else { self.sink.deadline() };
        let reading = self.reading.as_ref().and_then(Reading::deadline);
        let streaming = matches!(self.mode, Mode::Streaming);
        let heartbeat = self.heartbeat.as_ref().filter(|_| streaming).map(Heartbeat::deadline);
        cut.into_iter().chain(reading).chain(heartbeat).fold(feedback.min(until), Instant::min)
    }
}

/// Cancel safe where the future is.
async fn or_never<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn clock() -> PgTime {
    PgTime::from_unix_us(unix_us(SystemTime::now()))
}
