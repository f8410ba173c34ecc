//! The tables are read before the stream: rows that are older than the slot, or that a lost slot left unpublished.
//!
//! The slot streams to us already, which guards it, but no frame of it is taken until the last row is acknowledged and
//! that is noted in the slot's progress: so nothing confirms a position past rows that are not sent, and the order is
//! rows first. To go on after a crash, the place of the last row that Kafka has acknowledged, with all before it, is noted
//! every few seconds; exactly once it stands in each Kafka transaction, beside the records.
//!
//! A session that reads holds up a smart shutdown, and vacuum: it is closed as soon as the last row is read, before Kafka
//! has it, and at once when the server goes down.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use super::job::Job;
use crate::{
    chain::Chain,
    pipeline::{self, Lsn, Origin, PgTime, Place, Ticket},
    postgres::{
        self,
        conninfo::ConnInfo,
        progress::{Hold, ReadingKind},
        rows::{Plan, Rows},
        sql::{self, Sql},
    },
    status,
};

/// How often the place is noted while it moves.
const NOTE_INTERVAL: Duration = Duration::from_secs(2);

/// What is read.
pub(super) struct Task {
    pub(super) kind: ReadingKind,
    pub(super) hold: Hold,
    pub(super) server: ConnInfo,
    /// Consistent point of the slot: later rows come from its log.
    pub(super) at: Lsn,
    /// One for each outbox that is read.
    pub(super) sources: Vec<Source>,
    /// The session in whose snapshot they are read.
    pub(super) client: Sql,
    /// An earlier session began it.
    pub(super) resumes: bool,
    /// The row behind which it begins, as far as the database knows.
    pub(super) from: Option<Place>,
    /// Lowest ordinal of its first row.
    pub(super) first: u32,
}

/// What is read of an outbox.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// As SQL writes it.
    pub(super) table: String,
    pub(super) plan: Plan,
    /// SQL over the columns of `o`.
    pub(super) condition: Option<String>,
}

/// A reading of the tables that is under way.
pub(super) struct Reading {
    kind: ReadingKind,
    hold: Hold,
    server: ConnInfo,
    at: Lsn,
    phase: Phase,
    sources: VecDeque<Source>,
    /// Of the table that is read: as SQL writes it.
    table: Arc<str>,
    /// Place of the last row that is acknowledged, with all before it.
    reached: Option<Place>,
    /// What of it is noted.
    noted: Option<u32>,
    note: Job<Result<(), postgres::Error>>,
    next_note: Instant,
    /// Rows that are not acknowledged, in order.
    sent: VecDeque<Sent>,
    /// Ordinal of the next row.
    ordinal: u32,
    pace: Pace,
}

struct Sent {
    ticket: Ticket,
    table: Arc<str>,
    row: Vec<Option<String>>,
    ordinal: u32,
}

enum Phase {
    /// Where to begin is not known yet: Kafka has it.
    Waiting(Arc<Sql>),
    Opening(Arc<Sql>, Pin<Box<dyn Future<Output = Result<Rows, postgres::Error>> + Send>>),
    Open(Arc<Sql>, Box<Rows>),
    /// All is read, and not all of it acknowledged.
    Read,
    /// That it is done is being noted.
    Noting(JoinHandle<Result<(), postgres::Error>>),
    Done,
    /// The session is to end.
    Stopped,
}

/// How far it is, for people.
#[derive(Clone, Copy, Debug)]
struct Pace {
    begun: Instant,
    /// Rows that an earlier session had sent.
    before: u64,
    rows: u64,
    /// Of all tables, as far as the server knows; 0: it does not.
    total: u64,
}

impl Reading {
    /// It waits to [begin](Reading::begin).
    pub(super) fn new(task: Task) -> Reading {
        let Task { kind, hold, server, at, sources, client, resumes: _, from: _, first } = task;
        let now = Instant::now();
        let total = sources.iter().map(|source| source.plan.rows_estimated()).sum();
        Reading {
            kind,
            hold,
            server,
            at,
            phase: Phase::Waiting(Arc::new(client)),
            sources: sources.into(),
            table: Arc::from(""),
            reached: None,
            noted: None,
            note: Job::default(),
            next_note: now + NOTE_INTERVAL,
            sent: VecDeque::new(),
            ordinal: first,
            pace: Pace { begun: now, before: 0, rows: 0, total },
        }
    }

    /// Begins behind this row.
    pub(super) fn begin(&mut self, from: Option<Place>) {
        let Phase::Waiting(client) = std::mem::replace(&mut self.phase, Phase::Stopped) else {
            panic!("a reading begins once");
        };
        // A table that is no outbox any more leaves no place to go on from.
        let from = from.filter(|from| self.sources.iter().any(|source| source.table == from.table));
        let after = from.map(|from| {
            while self.sources.front().is_some_and(|source| source.table != from.table) {
                self.sources.pop_front();
            }
            let next = from.ordinal.saturating_add(1);
            self.ordinal = self.ordinal.max(next);
            self.pace.before = u64::from(next);
            self.noted = Some(from.ordinal);
            let row = from.row.clone();
            self.reached = Some(from);
            row
        });
        let what = self.what();
        match &self.reached {
            None => tracing::info!("sending {what} first, then the stream"),
            Some(_) => {
                tracing::info!("going on with {what}, after {} of them, then the stream", self.pace.before);
            }
        }
        self.open_next(client, after);
    }

    fn open_next(&mut self, client: Arc<Sql>, after: Option<Vec<Option<String>>>) {
        let Some(Source { table, plan, condition }) = self.sources.pop_front() else {
            self.phase = Phase::Read;
            return;
        };
        self.table = Arc::from(table);
        let session = Arc::clone(&client);
        let open = async move { Rows::open(&session, plan, condition.as_deref(), after.as_deref()).await };
        self.phase = Phase::Opening(client, Box::pin(open));
    }

    pub(super) fn origin(&self) -> Origin {
        match self.kind {
            ReadingKind::Initial => Origin::Snapshot,
            ReadingKind::Recovery => Origin::Recovered,
        }
    }

    /// As the pipeline wants it.
    pub(super) fn transaction(&self, at: PgTime) -> pipeline::Reading {
        pipeline::Reading { origin: self.origin(), commit_lsn: self.at.of_older_rows(), first: self.ordinal, at }
    }

    /// Consistent point of the slot.
    pub(super) fn at(&self) -> Lsn {
        self.at
    }

    /// Nobody knows yet where to begin.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting(_))
    }

    /// Waits until there are rows to take, or something to be taken note of. With `read` false rows are not waited for.
    /// Cancel safe.
    pub(super) async fn ready(&mut self, read: bool) -> Result<(), postgres::Error> {
        let Reading { phase, note, .. } = self;
        tokio::select! {
            noted = note.ended() => match noted {
                Err(error @ postgres::Error::Superseded { .. }) => Err(error),
                Err(error) => {
                    tracing::debug!("the place in the table is not noted: {}", Chain(&error));
                    Ok(())
                }
                Ok(()) => Ok(()),
            },
            moved = moved(phase, read) => match moved? {
                Moved::Opened(rows) => {
                    if let Phase::Opening(client, _) = std::mem::replace(&mut self.phase, Phase::Stopped) {
                        self.phase = Phase::Open(client, rows);
                    }
                    Ok(())
                }
                Moved::Rows => Ok(()),
                Moved::Noted => {
                    self.phase = Phase::Done;
                    Ok(())
                }
            },
        }
    }

    /// Takes the next message, if one is there; [`Reading::message`] gives it.
    pub(super) fn advance(&mut self) -> Result<bool, postgres::Error> {
        let Phase::Open(_, rows) = &mut self.phase else { return Ok(false) };
        if rows.next_message()?.is_some() {
            return Ok(true);
        }
        if rows.is_over() {
            if let Phase::Open(client, _) = std::mem::replace(&mut self.phase, Phase::Stopped) {
                self.open_next(client, None);
            }
        }
        Ok(false)
    }

    /// The message that was taken last.
    pub(super) fn message(&self) -> &[u8] {
        match &self.phase {
            Phase::Open(_, rows) => rows.message(),
            _ => &[],
        }
    }

    /// The row that was taken last is in flight.
    pub(super) fn sent(&mut self, ticket: Ticket) {
        let Phase::Open(_, rows) = &self.phase else { return };
        let (table, row) = (Arc::clone(&self.table), rows.key().to_vec());
        self.sent.push_back(Sent { ticket, table, row, ordinal: self.ordinal });
        self.ordinal = self.ordinal.wrapping_add(1);
        self.pace.rows += 1;
    }

    /// The place of a row in flight, by the ordinal of its position.
    pub(super) fn place(&self, ordinal: u32) -> Option<Place> {
        let index = self.sent.binary_search_by_key(&ordinal, |sent| sent.ordinal).ok()?;
        Some(self.sent[index].place())
    }

    /// The oldest record in flight is this one; none: nothing is.
    pub(super) fn acknowledged(&mut self, oldest: Option<Ticket>) {
        let mut last = None;
        while self.sent.front().is_some_and(|sent| oldest.is_none_or(|oldest| sent.ticket < oldest)) {
            last = self.sent.pop_front();
        }
        self.reached = last.map(|last| last.place()).or(self.reached.take());
    }

    /// All rows are read, and the session that read them is closed.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.phase, Phase::Read)
    }

    /// All rows are acknowledged: that is noted now.
    pub(super) fn complete(&mut self) {
        self.note = Job::default();
        let (hold, server) = (self.hold.clone(), self.server.clone());
        self.phase = Phase::Noting(tokio::spawn(async move {
            let client = sql::connect(&server).await?;
            hold.reading_done(&client).await
        }));
    }

    /// That all is sent is noted.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Notes the place if it is time. Called once a turn.
    pub(super) fn work(&mut self, now: Instant) {
        if self.wants_note() && now >= self.next_note {
            self.next_note = now + NOTE_INTERVAL;
            if let Some(noting) = self.noting() {
                self.note = Job::of(noting);
            }
        }
    }

    fn wants_note(&self) -> bool {
        let moved = self.reached.as_ref().map(|place| place.ordinal) != self.noted;
        moved && !self.note.is_under_way() && !matches!(self.phase, Phase::Noting(_) | Phase::Done)
    }

    /// When [`Reading::work`] has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.wants_note().then_some(self.next_note)
    }

    fn noting(&mut self) -> Option<impl Future<Output = Result<(), postgres::Error>> + Send + 'static + use<>> {
        let place = self.reached.as_ref()?;
        self.noted = Some(place.ordinal);
        let (hold, server, json) = (self.hold.clone(), self.server.clone(), place.json());
        Some(async move {
            let client = sql::connect(&server).await?;
            hold.reading_key(&client, &json).await
        })
    }

    /// Reads no more, and closes the session that reads.
    pub(super) fn stop(&mut self) {
        match &self.phase {
            Phase::Waiting(client) | Phase::Opening(client, _) | Phase::Open(client, _) => client.abort(),
            Phase::Read | Phase::Stopped => {}
            Phase::Noting(_) | Phase::Done => return,
        }
        self.phase = Phase::Stopped;
    }

    /// Notes the place for the next session, as the last that this one does.
    pub(super) async fn finish(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        let done = match &mut self.phase {
            Phase::Noting(task) => tokio::time::timeout(PATIENCE, task).await.is_ok(),
            _ => match self.noting() {
                Some(noting) => matches!(tokio::time::timeout(PATIENCE, noting).await, Ok(Ok(()))),
                None => true,
            },
        };
        if !done {
            tracing::warn!("the place in the table could not be noted: the next session repeats some rows");
        }
    }

    /// How far it is.
    pub(super) fn shown(&self) -> status::Reading {
        let total = Some(self.pace.total).filter(|total| *total > 0);
        let rows = self.pace.before + self.pace.rows;
        status::Reading { kind: self.kind.word(), rows, rows_estimated: total }
    }

    /// Says that it is over.
    pub(super) fn tell_end(&self) {
        let (rows, seconds) = (self.pace.before + self.pace.rows, self.pace.begun.elapsed().as_secs_f64());
        tracing::info!("{} are sent: {rows} in {seconds:.1} s; the stream follows", self.what());
    }

    fn what(&self) -> &'static str {
        match self.kind {
            ReadingKind::Initial => "rows that are older than the slot",
            ReadingKind::Recovery => "rows that the lost slot left unpublished",
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Sent {
    fn place(&self) -> Place {
        Place { table: self.table.to_string(), row: self.row.clone(), ordinal: self.ordinal }
    }
}

enum Moved {
    Opened(Box<Rows>),
    Rows,
    Noted,
}

async fn moved(phase: &mut Phase, read: bool) -> Result<Moved, postgres::Error> {
    match phase {
        Phase::Opening(_, open) => Ok(Moved::Opened(Box::new(open.await?))),
        Phase::Open(_, rows) if read => rows.progress().await.map(|()| Moved::Rows),
        Phase::Noting(task) => {
            task.await.expect("noting the end does not panic")?;
            Ok(Moved::Noted)
        }
        Phase::Open(..) | Phase::Waiting(_) | Phase::Read | Phase::Done | Phase::Stopped => {
            std::future::pending().await
        }
    }
}
