//! A run: the log, the session around the real [`Parking`], Kafka, or a sink that takes records one by one, and chance.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    convert::Infallible,
    time::{Duration, Instant, SystemTime},
};

use walpost::{
    pipeline::{
        self, Headers, Lsn, PgTime, Position, Record, Ticket,
        outbox::{Poison, Reason, TableName},
    },
    postgres::dead_letter::{ReasonClass, Replayed, Stored},
    session::letters::{
        Culprit,
        parking::{Done, Parking, Rules, Verdict, Work},
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
    ForgetsToAnnounce,
    StoresPastUnwritten,
    ForgetsReplayed,
    SendsBehind,
}

/// What Kafka, or the pipeline before it, makes of an event, until somebody raises the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Good,
    /// The client refuses it.
    TooLarge,
    /// It is sent alone, and Kafka refuses it. Exactly once it is like any other.
    Suspect,
    /// Kafka refuses it among others: the session ends.
    Rejected,
    Unroutable,
}

struct Event {
    position: Position,
    key: Option<u8>,
    kind: Kind,
    /// What the topic of dead letters makes of it.
    announcement: Kind,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The partition of a key.
    Key(Option<u8>),
    DeadLetters,
}

impl Place {
    fn topic(self) -> &'static str {
        match self {
            Place::Key(_) => "t",
            Place::DeadLetters => "dead",
        }
    }
}

#[derive(Clone, Copy)]
struct Sent {
    ticket: Ticket,
    event: usize,
    place: Place,
}

/// A transaction of Kafka, exactly once.
#[derive(Default)]
struct Transaction {
    written: Vec<Sent>,
    unanswered: usize,
    reached: Option<usize>,
    replays: bool,
    due: bool,
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
    culprits: Vec<Culprit>,
    alone: bool,
    /// It was asked to stop, and delivers what is in flight.
    stops: bool,
    job: Option<Job>,
    transaction: Transaction,
    /// What waited behind refused records.
    behind: VecDeque<Sent>,
}

impl Session {
    fn new(parking: Parking, first: usize, culprits: Vec<Culprit>) -> Session {
        Session {
            parking,
            first,
            acknowledged: Vec::new(),
            culprits,
            alone: false,
            stops: false,
            job: None,
            transaction: Transaction::default(),
            behind: VecDeque::new(),
        }
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
    kafka: BTreeMap<Place, VecDeque<Sent>>,
    /// Kafka has these, and the session does not know it yet.
    written: Vec<Sent>,
    exactly_once: bool,
    /// Records are taken one by one, of each key the next when the one before it is: what is refused is known late, and what
    /// waits behind it was not sent.
    singly: bool,
    /// Exactly once: the last event that Kafka's records reach, and which dead letters it had again.
    stored: Option<usize>,
    replayed: Vec<Replayed>,
    rules: Rules,
    batch: usize,
    keys: usize,
    now: Instant,
}

/// The session ends, for what Kafka says of an event.
type Ends = Result<(), Culprit>;

pub(crate) fn number(id: &str) -> usize {
    id.strip_prefix("event-").and_then(|number| number.parse().ok()).expect("an id of this log")
}

fn culprit(event: &Event, place: Place) -> Culprit {
    let (topic, class) = (place.topic().to_owned(), ReasonClass::Rejected);
    Culprit {
        position: event.position.to_string(),
        topic,
        class,
        reason: "too large".to_owned(),
        attempts: 1,
        is_of_topic: false,
    }
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> World {
        let mut random = Random::new(seed);
        let table = !random.one_in(8);
        let rules = Rules {
            table,
            topic: (!table || random.one_in(2)).then(|| Place::DeadLetters.topic().to_owned()),
            parks: table && !random.one_in(6),
            aggregates_max: usize::MAX,
            events_max: usize::MAX,
        };
        let exactly_once = random.one_in(3);
        let singly = !exactly_once && rules.topic.is_none() && random.one_in(2);
        let now = Instant::now();
        let mut parking = Parking::new(rules.clone(), [].into_iter().collect(), HashMap::new(), Vec::new(), now);
        parking.open(Vec::new());
        World {
            oracle: Oracle::new(!random.one_in(4), exactly_once),
            batch: random.pick(&[4, 20, 500]),
            keys: random.between(1, 5),
            session: Session::new(parking, 0, Vec::new()),
            random,
            sabotage,
            table: Table::default(),
            story: None,
            crashes: 0,
            log: Vec::new(),
            confirmed: 0,
            kafka: BTreeMap::new(),
            written: Vec::new(),
            exactly_once,
            singly,
            stored: None,
            replayed: Vec::new(),
            rules,
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
                let odd = if calm && self.exactly_once && odd == Kind::Suspect { Kind::TooLarge } else { odd };
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
        // Without a table the stream would halt.
        let announcement = match self.rules.table && self.random.one_in(6) {
            true if self.oracle.faults => self.random.pick(&[Kind::TooLarge, Kind::Rejected]),
            true => Kind::TooLarge,
            false => Kind::Good,
        };
        self.oracle.inserted(key, kind != Kind::Unroutable);
        self.tell(|| format!("log: {kind:?} event at {position}, key {key:?}"));
        self.log.push(Event { position, key, kind, announcement });
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
        if let Err(culprit) = self.session_turn()? {
            return self.restart(Some(culprit));
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
            if let Err(culprit) = self.kafka_writes()? {
                return self.restart(Some(culprit));
            }
        }
        if self.exactly_once {
            return self.commit(false);
        }
        for _ in 0..self.random.below(4).min(self.written.len()) {
            let sent = self.written.swap_remove(self.random.below(self.written.len()));
            self.report(sent);
        }
        Ok(())
    }

    /// The session learns that Kafka has it.
    fn report(&mut self, Sent { ticket, .. }: Sent) {
        self.session.parking.delivered(ticket);
        if ticket.is_of_stream() {
            self.session.acknowledge(ticket);
        }
    }

    /// Kafka commits the transaction that is complete, and says so, if the session lives on.
    fn commit(&mut self, crashes: bool) -> Judged {
        let Transaction { unanswered, reached, due, .. } = self.session.transaction;
        let unwritten =
            self.session.parking.unwritten().filter(|_| self.sabotage != Some(Sabotage::StoresPastUnwritten));
        let passes_over = unwritten.is_some_and(|at| reached.is_some_and(|reached| at < self.log[reached].position));
        if !due || unanswered > 0 || passes_over {
            return Ok(());
        }
        self.tell(|| format!("kafka: commits up to {reached:?}"));
        let Transaction { written, reached, replays, .. } = std::mem::take(&mut self.session.transaction);
        for Sent { ticket, event, place } in &written {
            self.has(*event, *place, ticket.is_of_stream())?;
        }
        if let Some(reached) = reached {
            self.stored = Some(reached);
            self.oracle.confirmed(reached)?;
        }
        if replays {
            self.replayed = self.session.parking.unsettled();
        }
        if !crashes {
            written.into_iter().for_each(|sent| self.report(sent));
        }
        Ok(())
    }

    /// Kafka has it, for good.
    fn has(&mut self, event: usize, place: Place, live: bool) -> Judged {
        match place {
            Place::Key(_) => self.oracle.delivered(event, live),
            Place::DeadLetters => self.oracle.announced(event),
        }
    }

    /// What Kafka makes of it.
    fn kind(&self, event: usize, place: Place) -> Kind {
        match place {
            Place::Key(_) => self.log[event].kind,
            Place::DeadLetters => self.log[event].announcement,
        }
    }

    fn send(&mut self, sent: Sent) {
        let transaction = &mut self.session.transaction;
        transaction.unanswered += 1;
        match sent.ticket.is_of_stream() {
            true => transaction.reached = Some(sent.event),
            false => transaction.replays = true,
        }
        self.kafka.entry(sent.place).or_default().push_back(sent);
    }

    /// Nothing can be sent now.
    fn is_holding(&self) -> bool {
        self.session.alone || self.exactly_once && self.session.transaction.due
    }

    fn announce(&mut self) -> Judged {
        while !self.is_holding() {
            let (place, mut sent) = (Place::DeadLetters, None);
            let Ok(is_one) = self.session.parking.announce_next(|record| {
                sent = Some(Sent { ticket: record.ticket, event: number_of(record), place });
                Ok::<(), Infallible>(())
            });
            match sent {
                Some(Sent { ticket, event, .. }) if self.kind(event, place) == Kind::TooLarge => {
                    let culprit = culprit(&self.log[event], place);
                    let refuses = self.session.parking.refuses_announcement(ticket, &culprit).expect("there is a row");
                    assert!(refuses, "it was on its way to the topic");
                }
                Some(sent) => self.send(sent),
                None if is_one => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Does what the session does in a turn of its loop.
    fn session_turn(&mut self) -> Result<Ends, Violation> {
        self.resume();
        while !self.is_holding() && self.session.behind.is_empty() {
            let mut sent = None;
            let Ok(_) = self.session.parking.send_next(|record| {
                sent = Some((record.ticket, number_of(record)));
                Ok::<(), Infallible>(())
            });
            let Some((ticket, event)) = sent else { break };
            let place = Place::Key(self.log[event].key);
            if self.kind(event, place) == Kind::TooLarge && !self.singly {
                return Ok(Err(culprit(&self.log[event], place)));
            }
            self.send(Sent { ticket, event, place });
        }
        for _ in 0..self.random.below(6) {
            let next = self.session.first + self.session.acknowledged.len();
            let committed = next < self.log.len() - self.log.len() % COMMIT;
            let wanted = committed && !(self.session.stops && next % COMMIT == 0) && self.session.outstanding() < 20;
            self.announce()?;
            if self.session.parking.holds() || self.is_holding() || !wanted {
                break;
            }
            let is_passed_over = self.stored.is_some_and(|stored| next <= stored);
            self.session.acknowledged.push(is_passed_over);
            if is_passed_over {
                continue;
            }
            self.step(next, Ticket((next - self.session.first) as u64));
        }
        let holds = self.session.parking.holds();
        let transaction = &mut self.session.transaction;
        let is_empty = transaction.unanswered == 0 && transaction.written.is_empty();
        transaction.due |= !is_empty && (holds || self.session.stops || self.random.one_in(4));
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
        let Event { position, key, kind, .. } = self.log[number];
        let id = format!("event-{number}");
        let parking = &mut self.session.parking;
        if kind == Kind::Unroutable {
            let poison = unroutable(position, id, key);
            parking.poison(ticket, &poison, SystemTime::UNIX_EPOCH).expect("there are no bounds");
            self.is_wrong(number);
            return;
        }
        let mut verdict = Verdict::Send;
        let (mut sent, mut wrong) = (false, false);
        with_record(ticket, position, &id, key, |record| {
            verdict = parking.verdict(record);
            if matches!(verdict, Verdict::Park(_)) && self.sabotage == Some(Sabotage::SendsParked) {
                verdict = Verdict::Send;
            }
            match &verdict {
                Verdict::Follow(known) => parking.follow(record, known, SystemTime::UNIX_EPOCH),
                Verdict::Park(key) => {
                    parking.park(record, *key, SystemTime::UNIX_EPOCH).expect("there are no bounds");
                }
                Verdict::Refuse(culprit) => {
                    parking.refused(record, culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
                    wrong = true;
                }
                Verdict::Send if kind == Kind::TooLarge && !self.singly => {
                    let culprit = culprit(&self.log[number], Place::Key(key));
                    parking.refused(record, &culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
                    wrong = true;
                }
                Verdict::Send => sent = true,
            }
        });
        if wrong {
            self.is_wrong(number);
        }
        if sent {
            self.session.alone = kind == Kind::Suspect && !self.exactly_once && !self.singly;
            self.send(Sent { ticket, event: number, place: Place::Key(key) });
        }
        self.tell(|| format!("session: event {number}: {verdict:?}"));
    }

    fn is_wrong(&mut self, event: usize) {
        let to_announce = self.rules.topic.is_some() && self.log[event].announcement == Kind::Good;
        self.oracle.wrong(event, to_announce);
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
        let busy: Vec<_> = self.kafka.iter().filter(|(_, queue)| !queue.is_empty()).map(|(place, _)| *place).collect();
        if busy.is_empty() {
            return Ok(Ok(()));
        }
        let place = self.random.pick(&busy);
        let queue = self.kafka.get_mut(&place).expect("it is busy");
        let sent = queue.pop_front().expect("it is busy");
        let Sent { ticket, event, .. } = sent;
        let live = ticket.is_of_stream();
        let Event { position, key, .. } = self.log[event];
        let is_last = self.session.acknowledged.len() == ticket.0 as usize + 1;
        let alone = live && place != Place::DeadLetters && self.session.alone && is_last;
        if self.kind(event, place) == Kind::Good {
            self.tell(|| format!("kafka: event {event}, {place:?}, live: {live}"));
            self.session.alone &= !alone;
            if self.exactly_once {
                self.session.transaction.unanswered -= 1;
                self.session.transaction.written.push(sent);
            } else {
                self.written.push(sent);
                self.has(event, place, live)?;
            }
        } else if self.singly {
            self.given_up(sent);
        } else if alone {
            self.tell(|| format!("kafka: refuses event {event} alone"));
            self.session.alone = false;
            self.is_wrong(event);
            let (culprit, parking) = (culprit(&self.log[event], place), &mut self.session.parking);
            with_record(ticket, position, &format!("event-{event}"), key, |record| {
                parking.refused(record, &culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
            });
        } else {
            // Nothing behind it is written before the session ends.
            let culprit = culprit(&self.log[event], place);
            self.kafka.entry(place).or_default().push_front(sent);
            return Ok(Err(culprit));
        }
        Ok(Ok(()))
    }

    /// A record is refused by itself.
    fn given_up(&mut self, Sent { ticket, event, place }: Sent) {
        self.tell(|| format!("sink: gives event {event} up"));
        for sent in self.kafka.remove(&place).unwrap_or_default() {
            match sent.ticket.is_of_stream() {
                true => self.session.behind.push_back(sent),
                false => self.session.parking.withdraw(sent.ticket),
            }
        }
        if !ticket.is_of_stream() {
            let culprit = culprit(&self.log[event], place);
            return self.session.parking.refuse_again(ticket, culprit);
        }
        self.is_wrong(event);
        let Event { position, key, .. } = self.log[event];
        let (culprit, parking) = (culprit(&self.log[event], place), &mut self.session.parking);
        with_record(ticket, position, &format!("event-{event}"), key, |record| {
            parking.refused(record, &culprit, SystemTime::UNIX_EPOCH).expect("there are no bounds");
        });
    }

    /// What waited behind refused records is judged anew, once their letters are durable.
    fn resume(&mut self) {
        while !self.session.behind.is_empty()
            && (self.sabotage == Some(Sabotage::SendsBehind) || !self.session.parking.settles())
        {
            let sent = self.session.behind.pop_front().expect("it is not empty");
            match self.sabotage {
                Some(Sabotage::SendsBehind) => self.send(sent),
                _ => self.step(sent.event, sent.ticket),
            }
        }
    }

    /// The table answers, late, or not, or only seems not to.
    fn work_on_table(&mut self, faults: bool) -> Judged {
        let Some(mut job) = self.session.job.take() else { return Ok(()) };
        if let (Work::Look(culprits), None) = (&job.work, &job.requested) {
            let mut requested = self.table.requested(culprits, self.batch);
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
                let mut letters = letters.clone();
                if self.sabotage == Some(Sabotage::ForgetsToAnnounce) {
                    letters.iter_mut().for_each(|(_, letter)| letter.class = ReasonClass::Parked);
                }
                Done::Written(letters)
            }
            Work::Settle(rows) => {
                let [all, emptied] = self.table.settle(rows, &mut self.oracle)?;
                let keys = if self.sabotage == Some(Sabotage::UnparksEarly) { all } else { emptied };
                Done::Settled { rows: rows.len() as u64, keys: keys.into_iter().collect() }
            }
            Work::Look(_) => {
                Done::Seen { requested: job.requested.clone().unwrap_or_default(), parked: self.table.parked() }
            }
        })
    }

    /// The session ends, by a crash or for an event, and the next one starts from the slot.
    fn restart(&mut self, refused: Option<Culprit>) -> Judged {
        self.tell(|| format!("session: ends, for {refused:?}"));
        self.crashes += 1;
        self.oracle.faults = true;
        for (place, mut queue) in std::mem::take(&mut self.kafka) {
            while let Some(Sent { ticket, event, .. }) = queue.pop_front() {
                if self.exactly_once || self.kind(event, place) != Kind::Good || self.random.one_in(2) {
                    break;
                }
                self.has(event, place, ticket.is_of_stream())?;
                // Of each key one is under way.
                if self.singly {
                    break;
                }
            }
        }
        self.written.clear();
        if self.exactly_once && self.random.one_in(2) {
            self.commit(true)?;
        }
        if let Some(job) = self.session.job.take().filter(|_| self.random.one_in(2)) {
            self.apply(&job)?;
        }
        self.open(refused);
        Ok(())
    }

    /// A session starts from the slot.
    fn open(&mut self, refused: Option<Culprit>) {
        let from = self.log.get(self.confirmed).map_or(Lsn(u64::MAX), |event| event.position.commit_lsn);
        let known = match self.sabotage {
            Some(Sabotage::ForgetsKnown) => [].into_iter().collect(),
            _ => self.table.known(from),
        };
        let parked = match self.sabotage {
            Some(Sabotage::ForgetsParked) => HashMap::new(),
            _ => self.table.parked(),
        };
        let mut culprits = std::mem::take(&mut self.session.culprits);
        culprits.retain(|culprit| culprit.is_ahead_of(from));
        culprits.extend(refused);
        let mut parking = Parking::new(self.rules.clone(), known, parked, culprits.clone(), self.now);
        parking.open(match self.sabotage {
            Some(Sabotage::ForgetsReplayed) => Vec::new(),
            _ => self.replayed.clone(),
        });
        self.session = Session::new(parking, self.confirmed, culprits);
    }
}

fn number_of(record: &Record<'_>) -> usize {
    number(std::str::from_utf8(record.event.id).expect("ids are ASCII"))
}

fn with_record(ticket: Ticket, position: Position, id: &str, key: Option<u8>, take: impl FnOnce(&Record<'_>)) {
    let key = key.map(|key| [key]);
    let key = key.as_ref().map(<[u8; 1]>::as_slice);
    take(&Record {
        ticket,
        position,
        xid: 1,
        table: &TableName::default(),
        event: pipeline::Event { id: id.as_bytes(), aggregate_id: key, ..pipeline::Event::default() },
        topic: "t",
        partition: None,
        key,
        value: None,
        timestamp_ms: 0,
        headers: Headers::new(&[]),
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
