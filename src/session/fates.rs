//! What becomes of the stream's events: each goes to the sink, or ends among the dead letters, and then its row is marked.
//!
//! An event's ticket is acknowledged to the pipeline when the sink has delivered it, or its dead letter is durable, and its row, if that
//! is one to be marked, says so.

use std::sync::Arc;

use tokio::select;

use super::{
    Error,
    attempts::AttemptLog,
    letters::{
        self, Culprit, Letters, Table, Verdict,
        parking::{self, Parking},
    },
    marks::{self, Marks},
    or_never,
};
use crate::{
    config::Config,
    pipeline::{
        Lsn, PgTime, Pipeline, Place, Position, Record, Ticket,
        outbox::{Poison, TableName},
    },
    postgres::{
        conninfo::ConnInfo,
        dead_letter::{KnownLetter, ReasonClass, Replayed, State},
        progress::Hold,
        sql,
    },
    sink::{self, Known, Sink, kafka::Cut},
    traces::Spans,
};

pub(super) struct Fates {
    /// None: the stream halts at poison, and at the culprits.
    letters: Option<Letters>,
    culprits: Vec<Culprit>,
    marks: Marks,
    attempts: AttemptLog,
    /// None: nobody wants to have them.
    spans: Option<Spans>,
}

impl Fates {
    /// Of the events from position `from` on, and how often earlier sessions tried them in vain.
    pub(super) async fn open(
        config: &Config,
        server: &ConnInfo,
        system_identifier: &str,
        hold: Option<&Hold>,
        from: Lsn,
        culprits: &[Culprit],
    ) -> Result<(Fates, Known), Error> {
        let client = sql::connect(server).await?;
        let markers = marks::markers(config, &client).await?;
        let (attempts, known) = AttemptLog::open(config, server, &client, system_identifier, from).await?;
        let table = Table::new(config, server, system_identifier, hold, Arc::clone(&markers));
        let letters = Letters::open(config, table, client, from, culprits).await?;
        let marks = Marks::new(config, server, markers);
        Ok((Fates { letters, culprits: culprits.to_vec(), marks, attempts, spans: None }, known))
    }

    /// Spans are made of what is sent.
    pub(super) fn trace(&mut self, spans: Spans) {
        self.spans = Some(spans);
    }

    /// What earlier sessions sent again, by what Kafka knows.
    pub(super) fn replayed(&mut self, replayed: Vec<Replayed>) {
        if let Some(letters) = &mut self.letters {
            letters.parking.open(replayed);
        }
    }

    /// Whether the stream goes on past what is refused.
    pub(super) fn sets_aside(&self) -> bool {
        self.letters.is_some()
    }

    /// An event is met, committed at that time if it is known: its record is sent, unless it belongs among the dead letters.
    pub(super) fn record(&mut self, record: &Record<'_>, commit: Option<PgTime>, sink: &mut Sink) -> Result<(), Error> {
        let Fates { letters, culprits, marks, spans, .. } = self;
        spans.iter_mut().for_each(|spans| spans.sent(record, commit));
        marks.taken(record.ticket, record.table, record.event.id);
        let Some(letters) = letters else {
            if culprits.iter().any(|culprit| culprit.is_at(record.position, record.topic)) {
                return Err(Error::Culprit);
            }
            return Ok(sink.send(record)?);
        };
        judge(letters, marks, record, sink)?;
        set_aside(letters, marks, spans, sink)
    }

    /// An event is met that makes no record. False: it halts the stream.
    pub(super) fn poison(&mut self, ticket: Ticket, poison: &Poison) -> Result<bool, Error> {
        self.marks.taken(ticket, &poison.table, poison.id.as_bytes());
        self.marks.dead(ticket, &poison.reason.to_string(), 0);
        let Some(letters) = &mut self.letters else { return Ok(false) };
        letters.poison(ticket, poison)?;
        Ok(true)
    }

    /// An event is met that the sink has, or has passed over, and whose row is to be marked.
    pub(super) fn passed(&mut self, ticket: Ticket, position: Position, table: &TableName, id: &str) {
        self.marks.taken(ticket, table, id.as_bytes());
        let known = self.letters.as_mut().and_then(|letters| letters.parking.passed(position, id));
        known.iter().for_each(|known| follow(&mut self.marks, ticket, known));
        let settles = self.marks.settles(ticket);
        assert!(settles, "it was taken a moment ago");
    }

    /// Sends what was asked for again.
    pub(super) fn replay(&mut self, sink: &mut Sink) -> Result<(), Error> {
        let Fates { letters: Some(letters), marks, spans, .. } = self else { return Ok(()) };
        while !sink.is_holding() && sink.stuck() == 0 && letters.parking.send_next(|record| sink.send(record))? {
            set_aside(letters, marks, spans, sink)?;
        }
        Ok(())
    }

    /// Takes up again what waited behind refused records, once their dead letters are durable.
    pub(super) fn resume(&mut self, sink: &mut Sink) -> Result<(), Error> {
        let Fates { letters: Some(letters), marks, .. } = self else { return Ok(()) };
        while !letters.parking.settles() {
            let Some(record) = sink.take_behind() else { break };
            record.lend(|record| judge(letters, marks, record, sink))?;
        }
        Ok(())
    }

    /// Sends dead letters to their topic. Each begins a transaction of Kafka's, so that one that is refused takes nothing
    /// with it that precedes it.
    pub(super) fn announce(&mut self, sink: &mut Sink) -> Result<(), Error> {
        let Fates { letters: Some(letters), marks, spans, .. } = self else { return Ok(()) };
        while !sink.is_holding()
            && !sink.is_in_transaction()
            && letters.parking.announce_next(|record| sink.send(record))?
        {
            set_aside(letters, marks, spans, sink)?;
        }
        Ok(())
    }

    /// Takes the sink's reports.
    pub(super) fn delivered(&mut self, sink: &mut Sink, pipeline: &mut Pipeline) -> Result<(), Error> {
        let Fates { letters, marks, spans, .. } = self;
        let mut delivered = Vec::new();
        let polled = sink.poll(|ticket| {
            if ticket == Ticket::NONE {
                return;
            }
            letters.iter_mut().for_each(|letters| letters.parking.delivered(ticket));
            if ticket.is_of_stream() {
                settle(marks, pipeline, ticket);
                if spans.as_ref().is_some_and(|spans| spans.is_open(ticket)) {
                    delivered.push(ticket);
                }
            }
        });
        if let Some(spans) = spans {
            spans.landed(sink.take_landings());
            spans.delivered(delivered);
        }
        polled?;
        let set_aside = match letters {
            Some(letters) => set_aside(letters, marks, spans, sink),
            None => sink.refusal().map_or(Ok(()), |error| Err(error.into())),
        };
        self.attempts.note(sink.take_attempts());
        set_aside
    }

    /// Starts what is due. Called once a turn, with the slot's confirmed position while there is a stream.
    pub(super) fn work(&mut self, confirmed: Option<Lsn>, pipeline: &mut Pipeline) -> Result<(), Error> {
        if let Some(letters) = &mut self.letters {
            confirmed.into_iter().for_each(|confirmed| letters.parking.confirmed(confirmed));
            letters.work()?;
            let acknowledged = letters.parking.take_acknowledged();
            for ticket in acknowledged {
                settle(&mut self.marks, pipeline, ticket);
                self.spans.iter_mut().for_each(|spans| spans.leave(ticket));
            }
        }
        self.marks.work();
        self.attempts.work();
        Ok(())
    }

    /// Waits until work has ended, or may be due; gives the tickets whose rows are marked. Cancel safe.
    pub(super) async fn ready(&mut self) -> Vec<Ticket> {
        select! {
            biased;
            () = or_never(self.letters.as_mut().map(Letters::ready)) => Vec::new(),
            () = self.attempts.ready() => Vec::new(),
            marked = self.marks.ready() => marked,
        }
    }

    /// Nothing may be stepped now.
    pub(super) fn holds(&self) -> bool {
        self.parking().is_some_and(Parking::holds)
    }

    /// Ends Kafka's transaction if it is time: with what the table of dead letters does not know yet.
    pub(super) fn cut(
        &self,
        sink: &mut Sink,
        cut: Cut,
        place: impl FnOnce(Position) -> Option<Place>,
    ) -> Result<(), Error> {
        let unsettled = || self.parking().map(Parking::unsettled).unwrap_or_default();
        Ok(sink.cut(cut, self.parking().and_then(Parking::unwritten), place, unsettled)?)
    }

    /// The session is to end: nothing more is sent again.
    pub(super) fn drain(&mut self) {
        self.letters.iter_mut().for_each(|letters| letters.parking.drain());
    }

    /// What was sent again is under way.
    pub(super) fn replays(&self) -> bool {
        self.parking().is_some_and(Parking::replays)
    }

    /// What a dead letter's own way to Kafka ends in, if this is that.
    pub(super) fn end(&self, error: &sink::Error) -> Option<letters::Error> {
        self.letters.as_ref()?.end(error)
    }

    /// Why something cannot be done, and the stream waits.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.letters.as_ref().and_then(Letters::trouble).or(self.marks.trouble())
    }

    /// Events and aggregates that are parked.
    pub(super) fn parked(&self) -> Option<(u64, u64)> {
        self.parking().map(Parking::parked)
    }

    /// How many events became dead letters since the last call, by reason.
    pub(super) fn take_counts(&mut self) -> impl Iterator<Item = (ReasonClass, u64)> {
        self.letters.iter_mut().flat_map(|letters| letters.parking.take_counts())
    }

    fn parking(&self) -> Option<&Parking> {
        Some(&self.letters.as_ref()?.parking)
    }
}

/// Makes dead letters of records that are refused.
fn set_aside(
    letters: &mut Letters,
    marks: &mut Marks,
    spans: &mut Option<Spans>,
    sink: &mut Sink,
) -> Result<(), Error> {
    while let Some((record, error)) = sink.take_refused() {
        if record.ticket == Ticket::NONE {
            tracing::warn!("a record that is no event is not taken: {error}");
            continue;
        }
        let culprit = Culprit::of(&error).expect("a refused event is a culprit");
        if !record.ticket.is_of_stream() {
            // What else Kafka's producer has under way ends with it.
            if let sink::Error::Kafka(_) = error {
                return Err(Error::Replay { culprit });
            }
            letters.parking.refuse_again(record.ticket, culprit);
            continue;
        }
        if !letters.parking.refuses_announcement(record.ticket, &culprit)? {
            marks.dead(record.ticket, &culprit.reason, culprit.attempts);
            spans.iter_mut().for_each(|spans| spans.refused(record.ticket, &culprit.reason));
            record.lend(|record| letters.refused(record, &culprit))?;
        }
    }
    sink.take_withdrawn().into_iter().for_each(|ticket| letters.parking.withdraw(ticket));
    Ok(())
}

/// Sends a record, unless it belongs among the dead letters.
fn judge(letters: &mut Letters, marks: &mut Marks, record: &Record<'_>, sink: &mut Sink) -> Result<(), Error> {
    match letters.parking.verdict(record) {
        Verdict::Follow(known) => {
            follow(marks, record.ticket, &known);
            letters.follow(record, &known);
        }
        Verdict::Park(key) => {
            marks.dead(record.ticket, parking::WAITS, 0);
            letters.park(record, key)?;
        }
        Verdict::Refuse(culprit) => {
            marks.dead(record.ticket, &culprit.reason, culprit.attempts);
            letters.refused(record, &culprit)?;
        }
        Verdict::Send => sink.send(record)?,
    }
    Ok(())
}

/// The row says of the event what its dead letter says.
fn follow(marks: &mut Marks, ticket: Ticket, known: &KnownLetter) {
    match known.state {
        State::Replayed => {}
        State::Dead | State::Parked | State::Discarded => {
            let reason = if known.reason.is_empty() { parking::WAITS } else { &known.reason };
            marks.dead(ticket, reason, 0);
        }
    }
}

/// The sink has the event, or it is a durable dead letter: acknowledged at once, or when its row is marked.
fn settle(marks: &mut Marks, pipeline: &mut Pipeline, ticket: Ticket) {
    if !marks.settles(ticket) {
        pipeline.acknowledge(ticket);
    }
}
