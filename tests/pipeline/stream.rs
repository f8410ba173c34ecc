//! A pipeline and the walsender that feeds it, for tests that want one row or a few messages.

use walpost::pipeline::{
    Error, Limits, Lsn, OnUpdate, Output, Pipeline, Record, Ticket, Undescribed,
    outbox::{Outbox, Poison},
};

use crate::encode::{self, Cell};

pub(crate) const START: u64 = 0x16_0000_0000;
/// 2026-01-31 08:15:00.25 UTC in PostgreSQL's microseconds, and as Kafka stamps it.
pub(crate) const COMMIT_TIME: i64 = 823_162_500_250_000;
pub(crate) const COMMIT_TIME_UNIX_MS: i64 = 1_769_847_300_250;

/// A record that outlives its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) ticket: Ticket,
    pub(crate) position: String,
    pub(crate) topic: String,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp_ms: i64,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
}

impl Sent {
    fn new(record: &Record<'_>) -> Sent {
        Sent {
            ticket: record.ticket,
            position: record.position.to_string(),
            topic: record.topic.to_owned(),
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            timestamp_ms: record.timestamp_ms,
            headers: record
                .headers
                .iter()
                .map(|(name, value)| (name.to_owned(), value.expect("none is null").to_vec()))
                .collect(),
        }
    }

    /// The header's text; what is no UTF-8 fails the test.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(known, _)| known == name)?;
        Some(std::str::from_utf8(value).expect("the header is text"))
    }
}

/// What a message led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    Nothing,
    Sent(Sent),
    Poison(Ticket, Poison),
    ReplyRequested,
    Ignored(String),
    /// Ticket and id.
    Passed(Ticket, String),
    Undescribed(Undescribed),
}

pub(crate) struct Stream {
    pub(crate) pipeline: Pipeline,
    lsn: u64,
}

impl Stream {
    pub(crate) fn new(outboxes: Vec<Outbox>) -> Stream {
        Stream::with(outboxes, OnUpdate::Ignore)
    }

    pub(crate) fn with(outboxes: Vec<Outbox>, on_update: OnUpdate) -> Stream {
        let limits = Limits { records: 1_000, bytes: 1 << 20 };
        Stream::of(Pipeline::new(outboxes, on_update, Lsn(START), limits))
    }

    /// One that begins at `START`.
    pub(crate) fn of(pipeline: Pipeline) -> Stream {
        Stream { pipeline, lsn: START }
    }

    /// Steps one message.
    pub(crate) fn step(&mut self, message: &[u8]) -> Result<Outcome, Error> {
        self.frame(&encode::xlog_data(self.lsn, self.lsn, message))
    }

    pub(crate) fn frame(&mut self, frame: &[u8]) -> Result<Outcome, Error> {
        Ok(match self.pipeline.step(frame)? {
            Output::None => Outcome::Nothing,
            Output::Record(record) => Outcome::Sent(Sent::new(&record)),
            Output::Undescribed(relation) => Outcome::Undescribed(relation),
            Output::Passed { ticket, id, .. } => Outcome::Passed(ticket, id),
            Output::Poison { ticket, poison } => Outcome::Poison(ticket, *poison),
            Output::ReplyRequested => Outcome::ReplyRequested,
            Output::Ignored { table, change } => Outcome::Ignored(format!("{change:?} {table}")),
        })
    }

    /// Steps a message that leads to nothing.
    #[track_caller]
    pub(crate) fn quiet(&mut self, message: &[u8]) {
        let outcome = self.step(message).expect("the message can be read");
        assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
    }

    #[track_caller]
    pub(crate) fn begin(&mut self) {
        let outcome = self.begun().expect("the message can be read");
        assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
    }

    /// The same, where it may lead to something.
    pub(crate) fn begun(&mut self) -> Result<Outcome, Error> {
        self.lsn += 0x100;
        self.step(&encode::begin(self.lsn, COMMIT_TIME, 731))
    }

    #[track_caller]
    pub(crate) fn commit(&mut self) {
        let outcome = self.committed().expect("the message can be read");
        assert!(matches!(outcome, Outcome::Nothing), "{outcome:?}");
    }

    /// The same, where it may lead to something.
    pub(crate) fn committed(&mut self) -> Result<Outcome, Error> {
        self.step(&encode::commit(self.lsn, self.lsn + 0x30, COMMIT_TIME))
    }

    /// Steps a row that becomes a record.
    #[track_caller]
    pub(crate) fn insert(&mut self, relation: u32, row: &[Cell<'_>]) -> Sent {
        match self.step(&encode::insert(relation, row)).expect("the row can be read") {
            Outcome::Sent(sent) => sent,
            other => panic!("the row became {other:?}"),
        }
    }
}

/// A column of a table and what one row has in it.
pub(crate) type Column<'a> = (&'a str, u32, Cell<'a>);

/// What a single row of a table with these columns becomes.
#[track_caller]
pub(crate) fn row(outbox: Outbox, columns: &[Column<'_>]) -> Outcome {
    let described: Vec<_> = columns.iter().map(|(name, oid, _)| (*name, *oid)).collect();
    let cells: Vec<_> = columns.iter().map(|(_, _, cell)| *cell).collect();
    let relation = encode::relation(16_384, &outbox.name.schema, &outbox.name.table, &described);
    let mut stream = Stream::new(vec![outbox]);
    stream.begin();
    stream.quiet(&relation);
    stream.step(&encode::insert(16_384, &cells)).expect("the row can be read")
}

/// The record of a single row.
#[track_caller]
pub(crate) fn record(outbox: Outbox, columns: &[Column<'_>]) -> Sent {
    match row(outbox, columns) {
        Outcome::Sent(sent) => sent,
        other => panic!("the row became {other:?}"),
    }
}

/// Why a single row cannot be sent.
#[track_caller]
pub(crate) fn poison(outbox: Outbox, columns: &[Column<'_>]) -> Poison {
    match row(outbox, columns) {
        Outcome::Poison(_, poison) => poison,
        other => panic!("the row became {other:?}"),
    }
}
