//! A run: the log, the session around the real [`Parking`], Kafka, and chance.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::{Duration, Instant, SystemTime},
};

use walpost::{
    pipeline::{
        Headers, Lsn, PgTime, Position, Record, Ticket,
        outbox::{Poison, Reason, TableName},
    },
    postgres::dead_letter::{ReasonClass, Stored},
    session::letters::{
        Culprit,
        parking::{Bounds, Done, Parking, Verdict, Work},
    },
};

use crate::{
    oracle::{Judged, Oracle, Promise, Violation, demand},
    random::Random,
    table::Table,
};

/// A session that does one thing wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    UnparksEarly,
    AcknowledgesUnwritten,
    SendsParked,
    ReplaysBackwards,
    ForgetsParked,
    ForgetsKnown,
}

/// What Kafka, or the pipeline before it, makes of an event, until somebody raises the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// The client refuses it.
    TooLarge,
    /// It is sent alone, and Kafka refuses it.
    Suspect,
    /// Kafka refuses it among others: the session ends.
    Rejected,
    Unroutable,
}

struct Event {
    position: Position,
    key: Option<u8>,
    kind: Kind,
}

struct Sent {
    ticket: Ticket,
    event: usize,
}

/// Work on the table that is under way.
struct Job {
    work: Work,
    /// Of a look: what was asked for, before it sees what is parked.
    requested: Option<Vec<Stored>>,
}

struct Session {
    parking: Parking,
    /// What the first ticket is for.
    first: usize,
    acknowledged: Vec<bool>,
    culprit: Option<Culprit>,
    alone: bool,
    /// It was asked to stop, and delivers what is in flight.
    stops: bool,
    job: Option<Job>,
}

impl Session {
    fn new(parking: Parking, first: usize, culprit: Option<Culprit>) -> Session {
        Session { parking, first, acknowledged: Vec::new(), culprit, alone: false, stops: false, job: None }
    }

    fn acknowledge(&mut self, ticket: Ticket) {
        self.acknowledged[ticket.0 as usize] = true;
    }

    fn outstanding(&self) -> usize {
        self.acknowledged.iter().filter(|done| !**done).count()
    }
}

/// Events of a transaction.
const COMMIT: usize = 3;

pub(crate) struct World {
    random: Random,
    sabotage: Option<Sabotage>,
    pub(crate) oracle: Oracle,
    pub(crate) table: Table,
    pub(crate) story: Option<Vec<String>>,
    pub(crate) crashes: u64,
    log: Vec<Event>,
    /// All before it is confirmed: the first event of a transaction.
    confirmed: usize,
    session: Session,
    /// A partition for each key.
    kafka: BTreeMap<Option<u8>, VecDeque<Sent>>,
    written: Vec<Sent>,
    bounds: Bounds,
    batch: usize,
    keys: usize,
    now: Instant,
}

/// The session ends, for what Kafka says of an event.
type Ends = Result<(), usize>;

pub(crate) fn number(id: &str) -> usize {
    id.strip_prefix("event-").and_then(|number| number.parse().ok()).expect("an id of this log")
}

fn culprit(event: &Event) -> Culprit {
    Culprit { position: event.position.to_string(), class: ReasonClass::Rejected, reason: "too large".to_owned() }
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> World {
        let mut random = Random::new(seed);
        let bounds = Bounds { parks: !random.one_in(6), aggregates_max: usize::MAX, events_max: usize::MAX };
        let now = Instant::now();
        World {
            oracle: Oracle::new(!random.one_in(4)),
            batch: random.pick(&[4, 20, 500]),
            keys: random.between(1, 5),
            session: Session::new(Parking::new(bounds, [].into_iter().collect(), HashMap::new(), None, now), 0, None),
            random,
            sabotage,
            table: Table::default(),
            story: None,
            crashes: 0,
            log: Vec::new(),
            confirmed: 0,
            kafka: BTreeMap::new(),
            written: Vec::new(),
            bounds,
            now,
        }
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    pub(crate) fn run(&mut self) -> Judged {
        let calm = !self.oracle.faults;
        let (crashes, slow) = (self.random.pick(&[8, 40, 200]), self.random.pick(&[1, 1, 8]));
        for _ in 0..self.random.between(50, 600) {
            if self.random.one_in(4) && self.log.len() < 150 {
                let odd = [Kind::TooLarge, Kind::Suspect, Kind::Unroutable, Kind::Rejected];
                let odd = self.random.pick(&odd[..if calm { 3 } else { 4 }]);
                let kind = if self.random.one_in(8) { odd } else { Kind::Good };
                self.insert(kind);
            }
            match self.random.below(20) {
                0..=2 => self.table.mark(&mut self.random, &mut self.oracle)?,
                3 if !self.log.is_empty() => {
                    let event = self.random.below(self.log.len());
                    self.mend(event);
                }
                4 if self.random.one_in(4) => {
                    self.session.parking.drain();
                    self.session.stops = true;
                }
                _ if !calm && self.random.one_in(crashes) => self.restart(None)?,
                _ => {}
            }
            self.turn(!calm, slow)?;
        }
        self.tell(|| "all limits are raised, all is asked for, and the stream goes on".to_owned());
        (0..self.log.len()).for_each(|event| self.mend(event));
        let mut goes_on = true;
        for turn in 0..4_000 {
            if turn % 400 == 0 {
                self.table.mark_all(&mut self.oracle)?;
            }
            let unread = self.log.len() - self.session.first - self.session.acknowledged.len();
            for _ in 0..if goes_on && unread < 20 { self.random.below(3) } else { 0 } {
                self.insert(Kind::Good);
            }
            self.turn(false, 1)?;
            let open = self.table.rows.iter().filter(|row| row.is_open()).count();
            goes_on &= turn < 400 || open > 0;
            while !goes_on && self.log.len() % COMMIT != 0 {
                self.insert(Kind::Good);
            }
            if !goes_on && open == 0 && self.confirmed == self.log.len() {
                return self.oracle.ended();
            }
        }
        demand(false, Promise::HandedOver, || "parked events are never handed over while the stream goes on".to_owned())
    }

    fn insert(&mut self, kind: Kind) {
        let number = self.log.len();
        let position = Position { commit_lsn: Lsn(8 * (number / COMMIT) as u64), ordinal: (number % COMMIT) as u32 };
        let key = (!self.random.one_in(12)).then_some(self.random.below(self.keys) as u8);
        self.oracle.inserted(key, kind != Kind::Unroutable);
        self.tell(|| format!("log: {kind:?} event at {position}, key {key:?}"));
        self.log.push(Event { position, key, kind });
    }

    /// Somebody raises the limit for this event.
    fn mend(&mut self, event: usize) {
        let kind = &mut self.log[event].kind;
        if *kind != Kind::Unroutable {
            *kind = Kind::Good;
        }
    }

    /// Kafka writes in one of `slow` turns.
    fn turn(&mut self, faults: bool, slow: usize) -> Judged {
        self.now += Duration::from_millis(50);
        if let Err(event) = self.session_turn()? {
            return self.restart(Some(event));
        }
        let session = &self.session;
        let read = session.first + session.acknowledged.len();
        if session.stops && read % COMMIT == 0 && session.outstanding() == 0 && !session.parking.replays() {
            self.tell(|| "session: has stopped".to_owned());
            self.confirmed = read;
            self.open(None);
        }
        if self.random.one_in(2) {
            self.work_on_table(faults)?;
        }
        for _ in 0..if self.random.one_in(slow) { self.random.below(4) } else { 0 } {
            if let Err(event) = self.kafka_writes()? {
                return self.restart(Some(event));
            }
        }
        for _ in 0..self.random.below(4).min(self.written.len()) {
            let Sent { ticket, .. } = self.written.swap_remove(self.random.below(self.written.len()));
            match ticket.is_of_stream() {
                true => self.session.acknowledge(ticket),
                false => self.session.parking.replayed(ticket),
            }
        }
        Ok(())
    }

    /// Does what the session does in a turn of its loop.
    fn session_turn(&mut self) -> Result<Ends, Violation> {
        let World { session, kafka, log, .. } = self;
        while !session.alone {
            let sent = session.parking.send_next(|record| {
                let event = number_of(record);
                if log[event].kind == Kind::TooLarge {
                    return Err(event);
                }
                kafka.entry(log[event].key).or_default().push_back(Sent { ticket: record.ticket, event });
                Ok(())
            });
            match sent {
                Ok(true) => {}
                Ok(false) => break,
                Err(event) => return Ok(Err(event)),
            }
        }
        for _ in 0..self.random.below(6) {
            let next = self.session.first + self.session.acknowledged.len();
            let committed = next < self.log.len() - self.log.len() % COMMIT;
            let wanted = committed && !(self.session.stops && next % COMMIT == 0) && self.session.outstanding() < 20;
            if self.session.parking.holds() || self.session.alone || !wanted {
                break;
            }
            self.session.acknowledged.push(false);
            self.step(next, Ticket((next - self.session.first) as u64));
        }
        let session = &mut self.session;
        if let Some(work) = session.parking.next_work(self.now) {
            assert!(session.job.is_none(), "one piece of work at a time");
            if let (Some(Sabotage::AcknowledgesUnwritten), Work::Write(letters)) = (self.sabotage, &work) {
                letters.iter().for_each(|(ticket, _)| session.acknowledge(*ticket));
            }
            session.job = Some(Job { work, requested: None });
        }
        session.parking.take_acknowledged().into_iter().for_each(|ticket| session.acknowledge(ticket));
        self.confirm()?;
        Ok(Ok(()))
    }

    fn step(&mut self, number: usize, ticket: Ticket) {
        let Event { position, key, kind } = self.log[number];
        let id = format!("event-{number}");
        let parking = &mut self.session.parking;
        if kind == Kind::Unroutable {
            let poison = unroutable(position, id, key);
            return match parking.follows(&poison) {
                true => parking.follow(ticket),
                false => parking.poison(ticket, &poison, SystemTime::UNIX_EPOCH).expect("there are no bounds"),
            };
        }
        let mut verdict = Verdict::Send;
        with_record(ticket, position, &id, key, |record| {
            verdict = parking.verdict(record);
            if matches!(verdict, Verdict::Park(_)) && self.sabotage == Some(Sabotage::SendsParked) {
                verdict = Verdict::Send;
            }
            let known = self.session.culprit.as_ref().filter(|culprit| culprit.position == position.to_string());
            match verdict {
                Verdict::Follow => parking.follow(ticket),
                Verdict::Park(key) => {
                    parking.park(record, key, SystemTime::UNIX_EPOCH).expect("there are no bounds");
                }
                Verdict::Send if known.is_some() || kind == Kind::TooLarge => {
                    let culprit = culprit(&self.log[number]);
                    parking.refused(record, &culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
                }
                Verdict::Send => {
                    self.session.alone = kind == Kind::Suspect;
                    self.kafka.entry(key).or_default().push_back(Sent { ticket, event: number });
                }
            }
        });
        self.tell(|| format!("session: event {number}: {verdict:?}"));
    }

    /// The slot is told, now and then, what is confirmed.
    fn confirm(&mut self) -> Judged {
        let done = self.session.acknowledged.iter().position(|done| !done).unwrap_or(self.session.acknowledged.len());
        let end = self.session.first + done;
        let end = end - end % COMMIT;
        if self.random.one_in(3) && end > self.confirmed {
            self.tell(|| format!("slot: all before event {end} is confirmed"));
            self.confirmed = end;
        }
        if let Some(next) = self.log.get(end) {
            self.session.parking.confirmed(next.position.commit_lsn);
        }
        self.oracle.confirmed(end)
    }

    fn kafka_writes(&mut self) -> Result<Ends, Violation> {
        let busy: Vec<_> = self.kafka.iter().filter(|(_, queue)| !queue.is_empty()).map(|(key, _)| *key).collect();
        if busy.is_empty() {
            return Ok(Ok(()));
        }
        let key = self.random.pick(&busy);
        let queue = self.kafka.get_mut(&key).expect("it is busy");
        let Sent { ticket, event } = queue.pop_front().expect("it is busy");
        let live = ticket.is_of_stream();
        let Event { position, kind, .. } = self.log[event];
        let alone = live && self.session.alone && self.session.acknowledged.len() == ticket.0 as usize + 1;
        if kind == Kind::Good {
            self.tell(|| format!("kafka: event {event}, live: {live}"));
            self.session.alone &= !alone;
            self.written.push(Sent { ticket, event });
            self.oracle.delivered(event, live)?;
        } else if alone {
            self.tell(|| format!("kafka: refuses event {event} alone"));
            self.session.alone = false;
            let (culprit, parking) = (culprit(&self.log[event]), &mut self.session.parking);
            with_record(ticket, position, &format!("event-{event}"), key, |record| {
                parking.refused(record, &culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
            });
        } else {
            // Nothing behind it is written before the session ends.
            self.kafka.entry(key).or_default().push_front(Sent { ticket, event });
            return Ok(Err(event));
        }
        Ok(Ok(()))
    }

    /// The table answers, late, or not, or only seems not to.
    fn work_on_table(&mut self, faults: bool) -> Judged {
        let Some(mut job) = self.session.job.take() else { return Ok(()) };
        if let (Work::Look(culprit), None) = (&job.work, &job.requested) {
            let mut requested = self.table.requested(culprit.as_ref(), self.batch);
            if self.sabotage == Some(Sabotage::ReplaysBackwards) {
                requested.reverse();
            }
            job.requested = Some(requested);
            self.session.job = Some(job);
            return Ok(());
        }
        let fails = faults && self.random.one_in(5);
        if fails && self.random.one_in(2) {
            self.tell(|| "table: fails".to_owned());
            self.session.parking.failed(job.work, self.now);
            return Ok(());
        }
        let done = self.apply(&job)?;
        self.tell(|| format!("table: {}, answer lost: {fails}", shown(&done)));
        match fails {
            true => self.session.parking.failed(job.work, self.now),
            false => self.session.parking.done(done, self.now),
        }
        Ok(())
    }

    fn apply(&mut self, job: &Job) -> Result<Done, Violation> {
        Ok(match &job.work {
            Work::Write(letters) => {
                self.table.write(letters, &mut self.oracle)?;
                Done::Written(letters.iter().map(|(ticket, _)| *ticket).collect())
            }
            Work::Settle(rows) => {
                let [all, emptied] = self.table.settle(rows, &mut self.oracle)?;
                let keys = if self.sabotage == Some(Sabotage::UnparksEarly) { all } else { emptied };
                Done::Settled { rows: rows.len(), keys: keys.into_iter().collect() }
            }
            Work::Look(_) => {
                Done::Seen { requested: job.requested.clone().unwrap_or_default(), parked: self.table.parked() }
            }
        })
    }

    /// The session ends, by a crash or for an event, and the next one starts from the slot.
    fn restart(&mut self, refused: Option<usize>) -> Judged {
        self.tell(|| format!("session: ends, for {refused:?}"));
        self.crashes += 1;
        self.oracle.faults = true;
        for queue in self.kafka.values_mut() {
            for Sent { ticket, event } in queue.drain(..) {
                if self.log[event].kind != Kind::Good || self.random.one_in(2) {
                    break;
                }
                self.oracle.delivered(event, ticket.is_of_stream())?;
            }
        }
        self.written.clear();
        if let Some(job) = self.session.job.take().filter(|_| self.random.one_in(2)) {
            self.apply(&job)?;
        }
        self.open(refused);
        Ok(())
    }

    /// A session starts from the slot.
    fn open(&mut self, refused: Option<usize>) {
        let from = self.log.get(self.confirmed).map_or(Lsn(u64::MAX), |event| event.position.commit_lsn);
        let known = match self.sabotage {
            Some(Sabotage::ForgetsKnown) => [].into_iter().collect(),
            _ => self.table.known(from),
        };
        let parked = match self.sabotage {
            Some(Sabotage::ForgetsParked) => HashMap::new(),
            _ => self.table.parked(),
        };
        let learnt = refused.map(|event| culprit(&self.log[event]));
        let parking = Parking::new(self.bounds, known, parked, learnt.clone(), self.now);
        self.session = Session::new(parking, self.confirmed, learnt);
    }
}

fn number_of(record: &Record<'_>) -> usize {
    let id = record.headers.get("id").expect("every record has an id");
    number(std::str::from_utf8(id).expect("ids are ASCII"))
}

fn with_record(ticket: Ticket, position: Position, id: &str, key: Option<u8>, take: impl FnOnce(&Record<'_>)) {
    let own = [("id".to_owned(), id.as_bytes().to_vec())];
    let key = key.map(|key| [key]);
    take(&Record {
        ticket,
        position,
        xid: 1,
        table: &TableName::default(),
        topic: "t",
        key: key.as_ref().map(<[u8; 1]>::as_slice),
        value: None,
        timestamp_ms: 0,
        headers: Headers::new(&own),
    });
}

fn unroutable(position: Position, id: String, key: Option<u8>) -> Poison {
    Poison {
        id,
        position,
        table: TableName::default(),
        reason: Reason::NoId,
        xid: 1,
        commit_time: PgTime(0),
        aggregate_type: None,
        aggregate_id: key.map(|key| vec![key]),
        event_type: None,
        payload: None,
        headers: None,
    }
}

fn shown(done: &Done) -> String {
    match done {
        Done::Written(tickets) => format!("{} written", tickets.len()),
        Done::Settled { rows, keys } => format!("{rows} settled, {} keys are the stream's again", keys.len()),
        Done::Seen { requested, parked } => {
            let requested: Vec<_> = requested.iter().map(|row| number(&row.letter.event_id)).collect();
            format!("{requested:?} asked for, {} keys parked", parked.len())
        }
    }
}
