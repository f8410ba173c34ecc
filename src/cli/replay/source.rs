//! Where the events come from: the log, through a temporary copy of a slot, or the rows of a table.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};

use super::range::Range;
use crate::{
    config::Config,
    pipeline::{Lsn, Origin, Output, PgTime, Pipeline, Position, Reading, feedback::Feedback, resume::Resume},
    postgres::{
        quote::literal,
        replication::{Replication, StartRequest},
        rows::Rows,
        stream::Stream,
    },
    status::unix_us,
};

/// How often the server is told how far we are, and asked how far it is.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// A server that is listened to and says nothing for so long is gone, or the link to it is.
const SILENCE_MAX: Duration = Duration::from_secs(60);

pub(super) enum Source {
    Log(Box<Log>),
    Table(Box<Table>),
}

impl Source {
    /// The next thing that is there; none: wait for [`Source::progress`].
    pub(super) fn step<'a>(&'a mut self, pipeline: &'a mut Pipeline) -> anyhow::Result<Option<Output<'a>>> {
        match self {
            _ if pipeline.has_more() => Ok(Some(pipeline.more())),
            Source::Log(log) => match log.stream.next_frame()? {
                Some(frame) => Ok(Some(pipeline.step(frame)?)),
                None => Ok(None),
            },
            Source::Table(table) => match table.rows.next_message()? {
                Some(message) => Ok(Some(pipeline.read(message)?)),
                None => Ok(None),
            },
        }
    }

    /// Waits for more; without `read`, for nothing. Cancel safe.
    pub(super) async fn progress(&mut self, read: bool) -> anyhow::Result<()> {
        match self {
            Source::Log(log) => {
                log.stream.progress(read).await?;
                log.heard = Instant::now();
            }
            Source::Table(table) if read && !table.rows.is_over() => table.rows.progress().await?,
            Source::Table(_) => std::future::pending().await,
        }
        Ok(())
    }

    /// The place behind the last event that is meant.
    pub(super) fn until(&self) -> Option<Position> {
        match self {
            Source::Log(log) => Some(log.range.until),
            Source::Table(_) => None,
        }
    }

    /// Nothing that is meant can come any more.
    pub(super) fn is_over(&self, pipeline: &Pipeline) -> bool {
        match self {
            Source::Log(log) => log.range.is_passed_by(pipeline.confirmed()),
            Source::Table(table) => table.rows.is_over(),
        }
    }

    pub(super) fn reply_requested(&mut self) {
        if let Source::Log(log) = self {
            log.feedback.reply_requested();
        }
    }

    /// Tells the server what is due, and sees that it still speaks. `listens`: it is listened to.
    pub(super) fn report(&mut self, confirmed: Lsn, listens: bool) -> anyhow::Result<()> {
        let Source::Log(log) = self else { return Ok(()) };
        let now = Instant::now();
        if !listens {
            log.heard = now;
        } else if now - log.heard >= SILENCE_MAX {
            bail!("PostgreSQL has sent nothing for {SILENCE_MAX:?}, though asked to");
        }
        if let Some(update) = log.feedback.due(confirmed, now) {
            log.stream.send(&update.encode(PgTime::from_unix_us(unix_us(SystemTime::now()))));
        }
        Ok(())
    }

    pub(super) fn deadline(&self, confirmed: Lsn) -> Option<Instant> {
        match self {
            Source::Log(log) => Some(log.feedback.deadline(confirmed)),
            Source::Table(_) => None,
        }
    }

    /// Lets the server drop what was made for it. How that goes changes nothing any more.
    pub(super) async fn close(self) {
        const GOODBYE: Duration = Duration::from_secs(2);
        if let Source::Log(log) = self {
            if tokio::time::timeout(GOODBYE, log.stream.finish()).await.is_err() {
                tracing::debug!("the server did not answer the end of the stream");
            }
        }
    }
}

/// A stream beside the live one.
pub(super) struct Log {
    stream: Stream,
    feedback: Feedback,
    pub(super) range: Range,
    heard: Instant,
}

impl Log {
    /// Copies `slot`, streams from the copy, and gives what the stream's pipeline begins with. The copy is temporary and
    /// belongs to this very connection, so that nothing of it can stay behind.
    pub(super) async fn open(
        config: &Config,
        mut connection: Replication,
        slot: &str,
        range: Range,
    ) -> anyhow::Result<(Log, Lsn)> {
        let copy = format!("walpost_replay_{}", connection.backend_pid());
        let copied = connection
            .query(&format!(
                "SELECT lsn FROM pg_catalog.pg_copy_logical_replication_slot({}, '{copy}', true)",
                literal(slot)
            ))
            .await
            .with_context(|| format!("slot {slot} cannot be copied"))?;
        let position = copied.into_iter().flatten().next().flatten().and_then(|lsn| lsn.parse().ok());
        let start: Lsn = position.with_context(|| format!("the copy of slot {slot} has no position"))?;
        // The server would begin there without a word.
        if start > range.from.commit_lsn {
            bail!("slot {slot} was moved to {start} meanwhile, beyond {}: look again", range.from.commit_lsn);
        }
        let publications = [config.publication.as_str()];
        let request =
            StartRequest { slot: &copy, publications: &publications, start, messages: config.wants_messages() };
        let stream = connection.start(&request).await?;
        let now = Instant::now();
        let feedback = Feedback::new(start, STATUS_INTERVAL, STATUS_INTERVAL, now);
        Ok((Log { stream, feedback, range, heard: now }, start))
    }

    pub(super) fn prepare(&self, pipeline: &mut Pipeline) {
        pipeline.mark(Origin::ReplayedLog);
        pipeline.resume(Resume::below(self.range.from));
    }
}

/// The rows of one table.
pub(super) struct Table {
    rows: Rows,
}

impl Table {
    pub(super) fn new(rows: Rows) -> Table {
        Table { rows }
    }

    pub(super) fn prepare(&self, pipeline: &mut Pipeline) {
        let at = PgTime::from_unix_us(unix_us(SystemTime::now()));
        pipeline.begin_reading(Reading { origin: Origin::ReplayedRow, commit_lsn: Lsn::INVALID, first: 0, at });
    }

    /// Where the last row that was taken stands, in words.
    pub(super) fn last(&self) -> String {
        let keys = self.rows.plan().order().iter().zip(self.rows.key());
        let shown = keys.map(|(key, value)| format!("{} {}", key.column, value.as_deref().unwrap_or("null")));
        shown.collect::<Vec<_>>().join(", ")
    }
}
