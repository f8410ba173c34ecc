//! One session: a replication stream, a pipeline and a producer, joined by one loop.
//!
//! Trouble ends the session; nothing is tried again here. The next one starts from the slot's own position, so what
//! was in flight is sent again and nothing is lost.

mod beginning;
mod identity;
pub mod letters;
pub mod loss;
mod marks;
mod proof;
mod reading;
pub mod rewind;
mod rota;
mod sampler;
pub mod slot;
mod taken;
mod takeover;

use std::time::{Duration, Instant, SystemTime};

use tokio::{select, sync::watch};

use beginning::Ready;
pub use identity::Reached;
use letters::{Culprit, Letters, Verdict, parking};
use loss::Loss;
use marks::Marks;
use proof::Proof;
use reading::{Reading, Task};
use rota::Rota;
use sampler::{Fall, Sample, Sampler, is_shutdown};
use slot::wal_sender_timeout;
use taken::{Taken, take};
pub use takeover::Takeover;

use crate::{
    config::{Config, Delivery},
    pipeline::{
        self, Change, Limits, Lsn, Origin, Output, PgTime, Pipeline, Place, Position, Record, Ticket,
        feedback::Feedback,
        outbox::Poison,
        resume::{Log, Resume},
    },
    postgres::{
        self, ErrorKind,
        dead_letter::{self, KnownLetter},
        mark::Unmarkable,
        replication::{Identity, Replication, StartRequest},
        rows::Unreadable,
        stream::Stream,
    },
    sink::kafka::{self, BatchBytes, Cut, Kafka, Opened, Source},
    status::{ServerSample, State, Status, seconds_since, unix_us},
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
}

/// Why a session ended in trouble.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    Pipeline(#[from] pipeline::Error),
    #[error(transparent)]
    Kafka(#[from] kafka::Error),
    #[error(
        "{poison}; it halts the stream, as on_poison = \"halt\" asks, or because there is no table of dead letters (walpost \
         setup makes it): nothing from that event on is confirmed. The log keeps the row as it was inserted: change what \
         routes it, or skip its transaction with SELECT pg_replication_slot_advance('{slot}', \
         '{}'::pg_lsn + 1), insert anew what it holds from that event on, and walpost run --accept-gap once",
        .poison.position.commit_lsn
    )]
    Poison { poison: Box<Poison>, slot: String },
    #[error(
        "{poison}; it was read from the table and halts the stream that is to follow, as on_poison = \"halt\" asks, or because \
         there is no table of dead letters (walpost setup makes it): change or delete the row, then start walpost again"
    )]
    PoisonRow { poison: Box<Poison> },
    #[error(
        "{source}; unauthorized_timeout ({timeout:?}) is over, and nothing of what waits for the right is confirmed: give it and \
         start walpost again, which goes on where it stopped"
    )]
    Unauthorized { source: kafka::Error, timeout: Duration },
    /// What precedes it is delivered and confirmed.
    #[error("the event that Kafka rejected is reached again")]
    Culprit,
    /// The next session puts it back.
    #[error("the event at position {} was sent again and is refused again: {}", culprit.position, culprit.reason)]
    Replay { culprit: Culprit },
    #[error(transparent)]
    Letters(#[from] letters::Error),
    #[error(transparent)]
    Unmarkable(#[from] Unmarkable),
    #[error(transparent)]
    Slot(#[from] slot::Unusable),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(
        "Kafka has events that the slot has still to come to, and rows that are older than the slot cannot be sent before that: \
         let walpost run until it is idle, stop it, then walpost snapshot"
    )]
    Unsettled,
    #[error(
        "snapshot = \"initial\" needs table {table}, which does not exist or may not be read and written: walpost setup makes it, \
         with the rights of the streaming role; without it a snapshot that is interrupted would never be ended"
    )]
    NoProgress { table: String },
    #[error(transparent)]
    Rewind(#[from] rewind::Error),
    #[error("{loss}. {why}")]
    Lost { loss: Box<Loss>, why: String },
    /// What is lost with it the next session finds out.
    #[error("replication slot {slot:?} is gone while it is streamed from: {why}")]
    SlotGone { slot: String, why: String },
    #[error(
        "replication slot {slot:?} was asked for position {asked} and begins at {begins}: someone moved it meanwhile"
    )]
    Forwarded { slot: String, asked: Lsn, begins: Lsn },
    #[error(
        "PostgreSQL has sent nothing for {silent:?}, though asked to: the link to it is broken without a word, or it hangs"
    )]
    Silence { silent: Duration },
    #[error(
        "the server counts walpost as a synchronous standby ({state}): commits of the application would wait for Kafka; \
         take the application_name of walpost (or *) out of synchronous_standby_names, or give walpost another"
    )]
    SynchronousStandby { state: String },
}

/// What the loop is about.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Streaming,
    /// Finish the open transaction, deliver what is in flight, go.
    Draining {
        until: Instant,
    },
    /// The database shuts down: deliver what comes, be gone in time (G8).
    Detaching {
        until: Instant,
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

/// How long the server may take to answer the end of the stream.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long a server without `wal_sender_timeout` may be silent; a subscriber waits as long by default.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The least silence that means something on a busy machine.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// A slot that is lost sooner is worth a word.
const LOST_SOON: Duration = Duration::from_secs(10 * 60);

/// A server process that was told to end takes about as long.
const ENDING: Duration = Duration::from_millis(20);

/// What earlier sessions of this process learnt.
#[derive(Debug)]
pub struct Learnt {
    pub batches: BatchBytes,
    pub takeover: Takeover,
    /// How far this process has confirmed the slot; none before, and once another process had the slot.
    pub reached: Option<Reached>,
    /// When lost slots were recovered from.
    pub recoveries: Vec<Instant>,
    /// The operator knows that a slot is lost, and wants to go on without what is lost with it.
    pub accept_gap: bool,
    /// Events that Kafka rejected: they become dead letters, or the stream ends before the first, with all that precedes it
    /// delivered.
    pub culprits: Vec<Culprit>,
}

impl Learnt {
    pub fn new(config: &Config, accept_gap: bool) -> Learnt {
        Learnt {
            batches: BatchBytes::of(config),
            takeover: Takeover::default(),
            reached: None,
            recoveries: Vec::new(),
            accept_gap,
            culprits: Vec::new(),
        }
    }

    /// Nobody has met this culprit yet.
    pub fn is_new(&self, culprit: &Culprit) -> bool {
        let is_it = |known: &Culprit| (&known.position, &known.topic) == (&culprit.position, &culprit.topic);
        !self.culprits.iter().any(is_it)
    }
}

struct Session<'s> {
    config: &'s Config,
    status: &'s Status,
    stream: Stream,
    pipeline: Pipeline,
    feedback: Feedback,
    kafka: Kafka,
    culprits: &'s [Culprit],
    /// None: the stream halts at poison.
    letters: Option<Letters>,
    /// None: all rows are kept as they are.
    marks: Option<Marks>,
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
    /// That the slot is close to its limit was said.
    near_loss: bool,
}

/// What of this session's totals the status already has.
#[derive(Default)]
struct Published {
    events: Vec<u64>,
    delivered: Vec<u64>,
    timestamps_replaced: u64,
}

/// Connects, streams, and returns when asked to stop or when the database shuts down.
pub async fn run(
    config: &Config,
    learnt: &mut Learnt,
    status: &Status,
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
    let Begun { stream, identity, log, patience, letters, marks, proof, mut sampler, sample, rota: _rota } =
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
    let kafka = Kafka::new(config, learnt.batches, source, letters.is_some())?;
    let limits = Limits { records: config.in_flight_records, bytes: config.in_flight_bytes };
    let mut session = Session {
        config,
        status,
        stream,
        pipeline: Pipeline::new(config.outboxes.clone(), config.on_update, start, limits),
        // What the server grants us, we grant it: it speaks at least twice in that time, and is asked to thrice.
        feedback: Feedback::new(
            start,
            config.confirm_interval,
            config.status_interval.min(patience / 3),
            Instant::now(),
        ),
        kafka,
        culprits: &learnt.culprits,
        letters,
        marks,
        proof,
        reading,
        log,
        mode: Mode::Streaming,
        heard: Instant::now(),
        silence_max: patience.max(SILENCE_MIN),
        published: Published { events: vec![0; config.outboxes.len()], ..Published::default() },
        fall: Fall::default(),
        near_loss: false,
    };
    status.enter(State::Streaming, None);
    status.now().confirmed = Some(start);
    session.sampled(sample)?;
    if let Some(from) = from {
        session.begin_reading(from);
    }
    session.stream(&mut sampler, &mut stop).await
}

/// A server that says nothing for too long is none.
async fn bounded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(SILENCE_MAX, work).await.map_err(|_| Error::Silence { silent: SILENCE_MAX })?
}

/// A stream at the slot's position, and what the server says beside it.
struct Begun {
    stream: Stream,
    identity: Identity,
    log: Log,
    /// How long the server bears silence.
    patience: Duration,
    letters: Option<Letters>,
    marks: Option<Marks>,
    proof: Option<Proof>,
    sampler: Sampler,
    sample: Sample,
    rota: Option<Rota>,
}

async fn begin(
    config: &Config,
    learnt: &Learnt,
    taken: Taken,
    start: Lsn,
    reading: Option<&Reading>,
    mut connection: Replication,
) -> Result<Begun, Error> {
    let Taken { identity, server, proof, log, .. } = taken;
    let patience = wal_sender_timeout(&mut connection).await?.unwrap_or(SILENCE_MAX);
    let log = Log { start, ..log };
    let pid = connection.backend_pid();
    let publications = [config.publication.as_str()];
    let stream = connection
        .start(&StartRequest { slot: &config.slot, publications: &publications, start, messages: false })
        .await?;
    // Parked aggregates are known before the first record is sent.
    let system = &identity.system_identifier;
    // Rows that are read have positions below it.
    let from = reading.map_or(start, |reading| reading.at().of_older_rows().min(start));
    let markers = marks::markers(config, &server).await?;
    let hold = proof.as_ref().map(Proof::hold);
    let letters = Letters::open(config, &server, system, hold, markers.clone(), from, &learnt.culprits).await?;
    let marks = markers.map(|markers| Marks::new(config, &server, markers));
    let rota = Rota::start(config, server.clone(), pid);
    let mut sampler = Sampler::start(config, server);
    let sample = sampler.next().await?;
    if sample.confirmed > start {
        return Err(Error::Forwarded { slot: config.slot.clone(), asked: start, begins: sample.confirmed });
    }
    tracing::info!(
        slot = config.slot,
        database = identity.database,
        system = identity.system_identifier,
        timeline = identity.timeline,
        from = %start,
        "streaming"
    );
    Ok(Begun { stream, identity, log, patience, letters, marks, proof, sampler, sample, rota })
}

impl Session<'_> {
    async fn stream(mut self, sampler: &mut Sampler, stop: &mut watch::Receiver<bool>) -> Result<End, Error> {
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
                return self.finish(end).await;
            }
            let may_step = self.may_step();
            let reads = self.reading.is_some();
            let may_read = may_step && !reads;
            self.listen(may_read)?;
            let wake = self.deadline();
            let streaming = matches!(self.mode, Mode::Streaming);
            // The signal first, that a flood cannot hide it; then the clock (G6); then acknowledgements, which make
            // room; reading comes last. Every future here may be dropped: partial state lives in the session.
            select! {
                biased;
                _ = stop.wait_for(|stop| *stop), if streaming => self.drain(),
                () = tokio::time::sleep_until(wake.into()) => {}
                ready = self.kafka.ready() => {
                    if let Err(error) = ready.map_err(Error::from).and_then(|()| self.acknowledge()) {
                        return Err(self.halt(error).await);
                    }
                }
                () = ready(&mut self.letters) => {}
                marked = marked(&mut self.marks) => self.marked(marked),
                ticked = ticked(&mut self.proof), if !reads => ticked?,
                read = read(&mut self.reading, may_step) => {
                    if let Err(error) = read {
                        return Err(self.halt(error).await);
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
        self.replay()?;
        loop {
            self.announce()?;
            if !self.may_step() {
                break;
            }
            let output = match &mut self.reading {
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
                    if let Some(marks) = &mut self.marks {
                        marks.taken(record.ticket, record.table, record.headers.get("id").unwrap_or_default());
                    }
                    match &mut self.letters {
                        Some(letters) => deliver(letters, &mut self.marks, &mut self.kafka, &record)?,
                        None if self.culprits.iter().any(|culprit| culprit.is_at(record.position, record.topic)) => {
                            return Err(Error::Culprit);
                        }
                        None => self.kafka.send(&record)?,
                    }
                }
                Output::Poison { ticket, poison } => {
                    sent = Some(ticket);
                    self.proof.iter_mut().for_each(|proof| proof.streamed(poison.xid));
                    if let Some(marks) = &mut self.marks {
                        marks.taken(ticket, &poison.table, poison.id.as_bytes());
                        marks.dead(ticket, &poison.reason.to_string(), 0);
                    }
                    match &mut self.letters {
                        Some(letters) => letters.poison(ticket, &poison)?,
                        None if self.reading.is_some() => return Err(Error::PoisonRow { poison }),
                        None => return Err(Error::Poison { poison, slot: self.config.slot.clone() }),
                    }
                }
                Output::Passed { ticket, position, table, id } => {
                    let marks = self.marks.as_mut().expect("only rows that are marked are told of");
                    marks.taken(ticket, table, id.as_bytes());
                    let letters = self.letters.as_mut();
                    if let Some(known) = letters.and_then(|letters| letters.parking.passed(position, &id)) {
                        follows(marks, ticket, &known);
                    }
                    let settles = marks.settles(ticket);
                    assert!(settles, "it was taken a moment ago");
                }
                Output::ReplyRequested => self.feedback.reply_requested(),
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
        let inside = self.pipeline.in_transaction() && !self.kafka.is_holding();
        let cut = match self.mode {
            _ if self.letters_hold() || !self.pipeline.has_room() => Cut::Now,
            Mode::Streaming | Mode::Draining { .. } if inside => Cut::Inside,
            Mode::Streaming => Cut::Between,
            Mode::Draining { .. } | Mode::Detaching { .. } => Cut::Now,
        };
        self.cut_at(cut)
    }

    fn cut_at(&mut self, cut: Cut) -> Result<(), Error> {
        let letters = self.letters.as_ref();
        let replayed = || letters.map(|letters| letters.parking.unsettled()).unwrap_or_default();
        let place = |position: Position| self.reading.as_ref()?.place(position.ordinal);
        Ok(self.kafka.cut(cut, letters.and_then(|letters| letters.parking.unwritten()), place, replayed)?)
    }

    fn may_step(&self) -> bool {
        let wanted = match self.mode {
            Mode::Streaming => true,
            Mode::Detaching { .. } => self.reading.is_none(),
            Mode::Draining { .. } => self.pipeline.in_transaction(),
        };
        wanted && self.pipeline.has_room() && !self.kafka.is_holding() && !self.letters_hold()
    }

    fn letters_hold(&self) -> bool {
        self.letters.as_ref().is_some_and(|letters| letters.parking.holds())
    }

    /// Sends dead letters to their topic. Each begins a transaction of Kafka's, so that one that is refused takes nothing
    /// with it that precedes it.
    fn announce(&mut self) -> Result<(), Error> {
        let Some(letters) = &mut self.letters else { return Ok(()) };
        while !self.kafka.is_holding()
            && !self.kafka.is_in_transaction()
            && letters.parking.announce_next(|record| self.kafka.send(record))?
        {
            set_aside(letters, &mut self.marks, &mut self.kafka)?;
        }
        Ok(())
    }

    /// Sends what was asked for again.
    fn replay(&mut self) -> Result<(), Error> {
        let Some(letters) = &mut self.letters else { return Ok(()) };
        while !self.kafka.is_holding() && letters.parking.send_next(|record| self.kafka.send(record))? {
            set_aside(letters, &mut self.marks, &mut self.kafka)?;
        }
        Ok(())
    }

    /// Moves dead letters, the reading and the proof on.
    fn work(&mut self) -> Result<(), Error> {
        // Rows that are read have positions below it, and nothing of the log is proven before they are sent.
        let confirmed = self.reading.is_none().then(|| self.pipeline.confirmed());
        if let Some(letters) = &mut self.letters {
            confirmed.into_iter().for_each(|confirmed| letters.parking.confirmed(confirmed));
            letters.work()?;
            let acknowledged = letters.parking.take_acknowledged();
            acknowledged.into_iter().for_each(|ticket| settle(&mut self.marks, &mut self.pipeline, ticket));
        }
        self.marks.iter_mut().for_each(Marks::work);
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
        let Session { kafka, pipeline, letters, marks, .. } = self;
        kafka.poll(|ticket| {
            letters.iter_mut().for_each(|letters| letters.parking.delivered(ticket));
            if ticket.is_of_stream() {
                settle(marks, pipeline, ticket);
            }
        })?;
        if let Some(letters) = letters {
            set_aside(letters, marks, kafka)?;
        }
        if let Some(Opened { stored, place, replayed, .. }) = kafka.take_opened() {
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
            pipeline.resume(resume);
            if let Some(letters) = letters {
                letters.parking.open(replayed);
            }
            // Of an earlier reading, or none at all, it says nothing about this one.
            if let Some(reading) = self.reading.as_ref().filter(|reading| reading.is_waiting()) {
                let own = Some(reading.at().of_older_rows());
                self.begin_reading(place.filter(|_| position == own));
            }
        }
        self.observe_completed();
        Ok(())
    }

    fn observe_completed(&mut self) {
        let at = SystemTime::now();
        for commit in self.pipeline.take_completed() {
            // Nobody knows when rows that are read were committed.
            if self.reading.is_none() {
                self.status.commit_to_delivery.observe(seconds_since(commit, at));
            }
        }
    }

    /// Reports to the server when it is due, and to the status always.
    fn report(&mut self) {
        let now = Instant::now();
        if let Some(update) = self.feedback.due(self.pipeline.confirmed(), now) {
            self.stream.send(&update.encode(clock()));
        }
        // A commit completes by itself when its records were acknowledged before it was read.
        self.observe_completed();
        self.publish();
    }

    fn publish(&mut self) {
        let Session { config, pipeline, kafka, letters, marks, reading, published, .. } = self;
        let mut now = self.status.now();
        now.confirmed = Some(pipeline.confirmed());
        now.in_flight_records = pipeline.ledger().outstanding();
        now.in_flight_bytes = pipeline.ledger().outstanding_bytes();
        now.turn(pipeline.ledger().oldest(), SystemTime::now());
        now.oldest_unconfirmed = pipeline.oldest_unconfirmed();
        let counters = pipeline.counters();
        for ((outbox, total), known) in config.outboxes.iter().zip(&counters.events).zip(&mut published.events) {
            if total != known {
                *now.events.entry(outbox.name.to_string()).or_default() += total - *known;
                *known = *total;
            }
        }
        published.delivered.resize(kafka.topics().len(), 0);
        for (topic, known) in kafka.topics().iter().zip(&mut published.delivered) {
            if topic.delivered != *known {
                now.delivered.add(&topic.name, topic.delivered - *known);
                *known = topic.delivered;
            }
        }
        now.timestamps_replaced += counters.timestamps_replaced - published.timestamps_replaced;
        published.timestamps_replaced = counters.timestamps_replaced;
        now.published_at = self.proof.as_ref().and_then(Proof::published_at);
        now.reading = reading.as_ref().map(Reading::shown);
        now.parked = letters.as_ref().map(|letters| letters.parking.parked());
        for (class, count) in letters.iter_mut().flat_map(|letters| letters.parking.take_counts()) {
            *now.dead_letters.entry(class.word()).or_default() += count;
        }
        now.reason = match self.mode {
            Mode::Streaming => {
                let trouble = letters.as_ref().and_then(Letters::trouble);
                trouble.or(marks.as_ref().and_then(Marks::trouble)).or(kafka.last_error()).map(str::to_owned)
            }
            Mode::Draining { .. } => Some("asked to stop".to_owned()),
            Mode::Detaching { .. } => Some("the database shuts down".to_owned()),
        };
    }

    fn rest(&self, read: usize) {
        if read <= REST_READ_MAX && self.pipeline.ledger().outstanding() >= REST_IN_FLIGHT_MIN {
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
            Mode::Streaming if silent >= self.silence_max => Err(Error::Silence { silent }),
            Mode::Streaming | Mode::Draining { .. } | Mode::Detaching { .. } => Ok(()),
        }
    }

    fn deadline(&self) -> Instant {
        let until = match self.mode {
            Mode::Streaming => self.heard + self.silence_max,
            Mode::Draining { until } | Mode::Detaching { until } => until,
        };
        let feedback = self.feedback.deadline(self.pipeline.confirmed());
        let cut = if self.pipeline.in_transaction() { None } else { self.kafka.deadline() };
        let reading = self.reading.as_ref().and_then(Reading::deadline);
        cut.into_iter().chain(reading).fold(feedback.min(until), Instant::min)
    }

    fn sampled(&mut self, sample: Sample) -> Result<(), Error> {
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
        self.proof.iter_mut().for_each(|proof| proof.stands_still = unpublished.is_some());
        let lost_in = self.fall.step(sample.safe_bytes, Instant::now());
        self.warn_of_loss(sample.wal_status.as_deref(), lost_in);
        self.status.now().unpublished = unpublished;
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

    /// Says once that the slot is close to its limit.
    fn warn_of_loss(&mut self, wal_status: Option<&str>, lost_in: Option<Duration>) {
        let soon = lost_in.filter(|left| *left < LOST_SOON);
        let near = soon.is_some() || wal_status == Some("unreserved");
        if near && !self.near_loss {
            let when =
                soon.map_or_else(|| "with the next checkpoint".to_owned(), |left| format!("in {} s", left.as_secs()));
            tracing::warn!(
                "replication slot {} keeps nearly as much log as max_slot_wal_keep_size allows: at this rate PostgreSQL gives \
                 it up {when}; raise the limit, or see to what holds the stream up",
                self.config.slot
            );
        }
        self.near_loss = near;
    }

    fn drain(&mut self) {
        tracing::info!(in_flight = self.pipeline.ledger().outstanding(), "stopping: delivering what is in flight");
        self.status.enter(State::Stopping, None);
        self.letters.iter_mut().for_each(|letters| letters.parking.drain());
        self.stop_reading();
        self.mode = Mode::Draining { until: Instant::now() + self.config.shutdown_grace };
    }

    /// A session that reads would hold up the end of the server too.
    fn stop_reading(&mut self) {
        self.reading.iter_mut().for_each(Reading::stop);
    }

    fn detach(&mut self) {
        self.stop_reading();
        tracing::warn!("the database shuts down; letting go of it within {:?}", self.config.shutdown_grace);
        self.status.enter(State::Stopping, None);
        self.mode = Mode::Detaching { until: Instant::now() + self.config.shutdown_grace };
    }

    fn end(&self) -> Option<End> {
        let now = Instant::now();
        let undelivered = self.pipeline.ledger().outstanding();
        let replays = self.letters.as_ref().is_some_and(|letters| letters.parking.replays());
        match self.mode {
            Mode::Streaming => None,
            Mode::Draining { .. } if undelivered == 0 && !self.pipeline.in_transaction() && !replays => {
                Some(End::Drained)
            }
            Mode::Draining { until } => (now >= until).then_some(End::GraceOver { undelivered }),
            Mode::Detaching { until } => (now >= until).then_some(End::ServerStopped),
        }
    }

    /// Before an error that will come again ends the session, what precedes it is delivered and confirmed, as far as the
    /// grace allows: then the slot stands right before the culprit, and skipping that loses nothing else. Before any
    /// other trouble with Kafka at least what is delivered is confirmed.
    async fn halt(mut self, mut error: Error) -> Error {
        self.stop_reading();
        if let (Error::Kafka(kafka), Some(letters)) = (&error, &self.letters) {
            if let Some(end) = letters.end(kafka) {
                error = end.into();
            }
        }
        // What is not waited for: the culprit keeps its place in flight, unless the stream itself is at fault.
        let left = match &error {
            Error::Poison { .. } | Error::PoisonRow { .. } | Error::Culprit => 1,
            // Another session delivers what precedes it.
            Error::Kafka(kafka::Error::Rejected { producer_ended: true, .. } | kafka::Error::Fenced { .. }) => {
                usize::MAX
            }
            Error::Kafka(error) if error.is_permanent() => 1,
            Error::Kafka(_) => usize::MAX,
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
            Mode::Streaming => Instant::now() + self.config.shutdown_grace,
            Mode::Draining { until } | Mode::Detaching { until } => until,
        };
        let mut attached = true;
        while self.pipeline.ledger().outstanding() > left && Instant::now() < until {
            if self.cut_at(Cut::Now).is_err() {
                break;
            }
            if self.work().is_err() {
                break;
            }
            self.report();
            let wake = self.feedback.deadline(self.pipeline.confirmed()).min(until);
            select! {
                biased;
                () = tokio::time::sleep_until(wake.into()) => {}
                ready = self.kafka.ready() => {
                    if let Err(earlier) = ready.map_err(Error::from).and_then(|()| self.acknowledge()) {
                        // What precedes the culprit did not arrive, and that comes first: it may be refused too, or be
                        // mended by another session. Of topics that never came, none is the first.
                        if !matches!(error, Error::Kafka(kafka::Error::UnknownTopic { .. })) {
                            error = earlier;
                        }
                        break;
                    }
                }
                () = ready(&mut self.letters) => {}
                marked = marked(&mut self.marks) => self.marked(marked),
                written = self.stream.progress(false), if attached => attached = written.is_ok(),
            }
        }
        let undelivered = self.pipeline.ledger().outstanding();
        // How the stream closes changes nothing about the error.
        let _closed = self.finish(End::GraceOver { undelivered }).await;
        error
    }

    /// The last status, an orderly CopyDone, and what the server answers.
    async fn finish(mut self, end: End) -> Result<End, Error> {
        self.kafka.close().await;
        if let Some(reading) = &mut self.reading {
            reading.acknowledged(self.pipeline.ledger().oldest());
            reading.finish().await;
        }
        let confirmed: Lsn = self.pipeline.confirmed();
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
        Ok(end)
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

/// Resolves when a tick of the proof has ended or is due; never, where there is none. Cancel safe.
async fn ticked(proof: &mut Option<Proof>) -> Result<(), Error> {
    match proof {
        Some(proof) => Ok(proof.ready().await?),
        None => std::future::pending().await,
    }
}

/// Sends a record, unless it belongs among the dead letters.
fn deliver(
    letters: &mut Letters,
    marks: &mut Option<Marks>,
    kafka: &mut Kafka,
    record: &Record<'_>,
) -> Result<(), Error> {
    match letters.parking.verdict(record) {
        Verdict::Follow(known) => {
            marks.iter_mut().for_each(|marks| follows(marks, record.ticket, &known));
            letters.follow(record, &known);
        }
        Verdict::Park(key) => {
            marks.iter_mut().for_each(|marks| marks.dead(record.ticket, parking::WAITS, 0));
            letters.park(record, key)?;
        }
        Verdict::Refuse(culprit) => {
            marks.iter_mut().for_each(|marks| marks.dead(record.ticket, &culprit.reason, 1));
            letters.refused(record, &culprit)?;
        }
        Verdict::Send => {
            kafka.send(record)?;
            set_aside(letters, marks, kafka)?;
        }
    }
    Ok(())
}

/// Makes a dead letter of a record that is refused.
fn set_aside(letters: &mut Letters, marks: &mut Option<Marks>, kafka: &mut Kafka) -> Result<(), Error> {
    let Some((record, error)) = kafka.take_refused() else { return Ok(()) };
    let culprit = Culprit::of(&error).expect("a refused event is a culprit");
    if !record.ticket.is_of_stream() {
        return Err(Error::Replay { culprit });
    }
    if letters.parking.refuses_announcement(record.ticket, &culprit)? {
        return Ok(());
    }
    marks.iter_mut().for_each(|marks| marks.dead(record.ticket, &culprit.reason, 1));
    Ok(record.lend(|record| letters.refused(record, &culprit))?)
}

/// Waits until the reading has got somewhere; never, when there is none. Cancel safe.
async fn read(reading: &mut Option<Reading>, rows: bool) -> Result<(), Error> {
    match reading {
        Some(reading) => Ok(reading.ready(rows).await?),
        None => std::future::pending().await,
    }
}

/// The row says of the event what its dead letter says.
fn follows(marks: &mut Marks, ticket: Ticket, known: &KnownLetter) {
    match known.state {
        dead_letter::State::Replayed => {}
        dead_letter::State::Dead | dead_letter::State::Parked | dead_letter::State::Discarded => {
            let reason = if known.reason.is_empty() { parking::WAITS } else { &known.reason };
            marks.dead(ticket, reason, 0);
        }
    }
}

/// Kafka has the event, or it is a durable dead letter: acknowledged at once, or when its row is marked.
fn settle(marks: &mut Option<Marks>, pipeline: &mut Pipeline, ticket: Ticket) {
    if !marks.as_mut().is_some_and(|marks| marks.settles(ticket)) {
        pipeline.acknowledge(ticket);
    }
}

/// Resolves when rows are marked, or are due to be; never, where none are. Cancel safe.
async fn marked(marks: &mut Option<Marks>) -> Vec<Ticket> {
    match marks {
        Some(marks) => marks.ready().await,
        None => std::future::pending().await,
    }
}

/// Resolves when work on dead letters has ended or is due; never, where there are none. Cancel safe.
async fn ready(letters: &mut Option<Letters>) {
    match letters {
        Some(letters) => letters.ready().await,
        None => std::future::pending().await,
    }
}

fn clock() -> PgTime {
    PgTime::from_unix_us(unix_us(SystemTime::now()))
}
