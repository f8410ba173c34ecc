//! One run: a seed decides the weather, then who does what next, until all is quiet and the end is checked.

use std::{collections::VecDeque, time::Duration};

use walpost::pipeline::{
    self, Limits,
    resume::{Log, Mismatch},
};

use crate::{
    broker::Broker,
    glance::{self, Seen, asks, confirmed_by},
    kafka::Kafka,
    oracle::{Oracle, Peaks, Promise, Verdict, Violation, violation},
    postgres::{Ended, Entry, Postgres},
    random::Random,
    relay::{CONFIRM_INTERVAL, Relay, STATUS_INTERVAL},
    sabotage::Sabotage,
    story::{At, Story},
    transaction::{Cuts, Transaction},
    walsender::Walsender,
};

/// Frames that a socket holds.
const SOCKET_MAX: usize = 16;
const BURST_MAX: usize = 8;

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Statement,
    OtherTraffic,
    Emit,
    ServerSends,
    Keepalive,
    RelayReads,
    KafkaWrites,
    TimePasses,
    ServerHears,
    PartitionSticks,
    DeliveryFails,
    RelayIsKilled,
    RelayStops,
    ServerCrashes,
    /// These only where Kafka transactions are in use.
    RelayFreezes,
    ZombieMoves,
    ServerIsCopied,
    CopyTakesOver,
}

const ACTS: [Act; 18] = [
    Act::Statement,
    Act::OtherTraffic,
    Act::Emit,
    Act::ServerSends,
    Act::Keepalive,
    Act::RelayReads,
    Act::KafkaWrites,
    Act::TimePasses,
    Act::ServerHears,
    Act::PartitionSticks,
    Act::DeliveryFails,
    Act::RelayIsKilled,
    Act::RelayStops,
    Act::ServerCrashes,
    Act::RelayFreezes,
    Act::ZombieMoves,
    Act::ServerIsCopied,
    Act::CopyTakesOver,
];

impl Act {
    /// How often it may be, against the others; the weather picks one. Faults are rare, and in some runs absent.
    fn weights(self) -> &'static [usize] {
        match self {
            Act::Statement => &[20, 60, 150],
            Act::OtherTraffic | Act::Emit | Act::Keepalive => &[0, 5, 30],
            Act::ServerSends | Act::RelayReads | Act::KafkaWrites => &[15, 60, 150],
            Act::TimePasses | Act::ServerHears => &[10, 50],
            Act::PartitionSticks => &[0, 0, 3],
            Act::DeliveryFails | Act::RelayIsKilled | Act::RelayStops | Act::ServerCrashes => &[0, 0, 1, 5],
            Act::RelayFreezes => &[0, 0, 1, 5],
            Act::ServerIsCopied => &[1, 4],
            Act::ZombieMoves => &[10, 60],
            Act::CopyTakesOver => &[0, 1, 3],
        }
    }

    fn is_of_exactly_once(self) -> bool {
        matches!(self, Act::RelayFreezes | Act::ZombieMoves | Act::ServerIsCopied | Act::CopyTakesOver)
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) events: usize,
    pub(crate) faults: usize,
    pub(crate) duplicates: usize,
    pub(crate) peaks: Peaks,
    pub(crate) exactly_once: bool,
    /// The log was not the one that the stored position came from, and the stream ended with a named error.
    pub(crate) halted: bool,
    /// Times that Kafka refused a producer that was not the newest any more.
    pub(crate) refused: usize,
    /// Stored positions that happened to a server that is gone.
    pub(crate) phantoms: usize,
}

struct World {
    random: Random,
    now: Duration,
    limits: Limits,
    /// PostgreSQL 14's habit.
    sends_empty: bool,
    sabotage: Option<Sabotage>,
    postgres: Postgres,
    kafka: Kafka,
    /// Exactly once: in Kafka's place, and when a transaction ends.
    broker: Option<(Broker, Cuts)>,
    oracle: Oracle,
    session: Option<Session>,
    /// A relay that was frozen; another has its slot.
    zombie: Option<Session>,
    halted: bool,
    /// The last commit that any session read; only a saboteur starts from there.
    last_read: u64,
}

/// The two ends of a connection and what is on its way between them.
struct Session {
    walsender: Walsender,
    relay: Relay,
    down: VecDeque<Vec<u8>>,
    up: VecDeque<[u8; 34]>,
    stopping: bool,
    log: Log,
}

/// Runs a seed; tells what went wrong, if anything did.
pub(crate) fn run(seed: u64, sabotage: Option<Sabotage>, story: &mut Story) -> Result<Summary, Violation> {
    let mut random = Random::new(seed);
    let limits = Limits { records: random.pick(&[1, 3, 10, 50, 300]), bytes: random.pick(&[1, 1_000, 20_000]) };
    let keys = random.pick(&[1, 3, 12]);
    let by_chance = random.one_in(2);
    let exactly_once = sabotage.map_or(by_chance, Sabotage::is_of_exactly_once);
    // A commit of Kafka takes the relay and Kafka several turns.
    let acts = random.pick(&[100, 400, 1_000]) * if exactly_once { 3 } else { 1 };
    let weights = ACTS.map(|act| match exactly_once || !act.is_of_exactly_once() {
        true => random.pick(act.weights()),
        false => 0,
    });
    let cuts =
        Cuts { interval: Duration::from_millis(random.pick(&[0, 1, 20, 100])), records: random.pick(&[1, 2, 7, 50]) };
    let mut world = World {
        now: Duration::ZERO,
        limits,
        sends_empty: random.one_in(2),
        sabotage,
        postgres: Postgres::new(keys, &mut random),
        kafka: Kafka::new(sabotage != Some(Sabotage::LeavesGaps)),
        broker: exactly_once.then(|| (Broker::new(sabotage), cuts)),
        oracle: Oracle::new(limits, exactly_once),
        session: None,
        zombie: None,
        halted: false,
        last_read: 0,
        random,
    };
    story.tell("weather", || {
        format!("exactly once: {exactly_once}, {cuts:?}, {limits:?}, {acts} acts, {keys} keys, weights {weights:?}")
    });
    for _ in 0..acts {
        let act = ACTS[world.random.weighted(&weights)];
        world.act(act, story)?;
        world.relay_turn(story)?;
        if world.halted {
            break;
        }
    }
    world.calm(story)?;
    Ok(Summary {
        events: world.oracle.events(),
        faults: world.oracle.faults(),
        duplicates: world.oracle.duplicates,
        peaks: world.oracle.peaks,
        exactly_once,
        halted: world.halted,
        refused: world.broker.map_or(0, |(broker, _)| broker.refused),
        phantoms: world.oracle.phantoms,
    })
}

impl World {
    fn act(&mut self, act: Act, story: &mut Story) -> Verdict {
        match act {
            Act::Statement => self.statement(story),
            Act::OtherTraffic => self.postgres.other_traffic(&mut self.random),
            Act::Emit => self.postgres.emit(&mut self.random),
            Act::ServerSends => self.server_sends(),
            Act::Keepalive => self.keepalive(),
            Act::RelayReads => self.relay_reads(story)?,
            Act::KafkaWrites => self.kafka_writes(story)?,
            Act::TimePasses => self.time_passes(story)?,
            Act::ServerHears => self.server_hears(story),
            Act::PartitionSticks => match &mut self.broker {
                Some((broker, _)) => broker.stick(&mut self.random),
                None => self.kafka.stick(&mut self.random, story),
            },
            Act::DeliveryFails => match &mut self.broker {
                Some((broker, _)) => broker.time_out(story),
                None => self.kafka.reject(self.now, &mut self.random, story),
            },
            Act::RelayIsKilled => self.end_session("is killed", story),
            Act::RelayStops => {
                if let Some(session) = &mut self.session {
                    session.stopping = true;
                }
            }
            Act::ServerCrashes => {
                self.postgres.crash(story);
                self.end_session("loses the server", story);
            }
            Act::RelayFreezes => self.freeze(story),
            Act::ZombieMoves => self.zombie_moves(story),
            Act::ServerIsCopied => self.postgres.copy(story),
            Act::CopyTakesOver => {
                let promoted = !self.random.one_in(3);
                self.end_session("loses the server", story);
                if let Some(branches_at) = self.postgres.restore(promoted, story) {
                    self.oracle.restored(branches_at);
                }
            }
        }
        Ok(())
    }

    fn statement(&mut self, story: &mut Story) {
        let now_us = self.now.as_micros() as i64;
        let ended = self.postgres.statement(now_us, &mut self.random, story);
        if let (Ended::Committed, Some(Entry::Transaction(transaction))) = (ended, self.postgres.log.last()) {
            let events = &self.postgres.events;
            self.oracle.committed(transaction, |number| (&events[number].0, &events[number].1));
        }
    }

    fn server_sends(&mut self) {
        let Some(Session { walsender, down, .. }) = &mut self.session else { return };
        for _ in 0..self.random.between(1, BURST_MAX) {
            if down.len() < SOCKET_MAX {
                down.extend(walsender.send(&self.postgres, &mut self.random));
            }
        }
    }

    fn keepalive(&mut self) {
        let asks = self.random.one_in(3);
        if let Some(Session { walsender, down, .. }) = &mut self.session {
            down.push_back(walsender.keepalive(&self.postgres, asks));
        }
    }

    fn relay_reads(&mut self, story: &mut Story) -> Verdict {
        for _ in 0..self.random.between(1, BURST_MAX) {
            let Some(Session { relay, down, stopping, .. }) = &mut self.session else { return Ok(()) };
            if !relay.has_room() || (*stopping && !relay.in_transaction()) {
                return Ok(());
            }
            let Some(frame) = down.pop_front() else { return Ok(()) };
            if let Seen::Commit { end_lsn } = glance::frame(&frame) {
                self.last_read = end_lsn;
            }
            self.oracle.read(&frame);
            let records = match relay.read(&frame, self.now) {
                Ok(records) => records,
                Err(pipeline::Error::Resume(mismatch)) => return self.halt(&mismatch, story),
                Err(error) => return Err(violation(Promise::Content, format!("the stream broke: {error}"))),
            };
            for record in records {
                story.tell("relay", || format!("sends {record}"));
                self.oracle.sent(&record)?;
                match (&mut self.broker, relay.producer()) {
                    (Some((broker, _)), Some(producer)) => broker.send(producer, record, &mut self.random),
                    _ => self.kafka.send(record, &mut self.random),
                }
            }
            self.relay_turn(story)?;
        }
        Ok(())
    }

    fn kafka_writes(&mut self, story: &mut Story) -> Verdict {
        let Some((broker, _)) = &mut self.broker else {
            let written = self.kafka.write(self.now, &mut self.random, story);
            return written.iter().try_for_each(|record| self.oracle.written(record));
        };
        for _ in 0..self.random.between(1, BURST_MAX) {
            let written = broker.write(self.now, &mut self.random, story);
            written.iter().try_for_each(|record| self.oracle.written(record))?;
        }
        let Some(Session { relay, log, .. }) = &mut self.session else { return Ok(()) };
        let Some(stored) = relay.open(broker) else { return Ok(()) };
        story.tell("relay", || format!("is the newest, and goes on after {stored:?}"));
        self.oracle.resumed(stored.as_ref(), &self.postgres);
        match relay.resume(stored, log) {
            Ok(()) => Ok(()),
            Err(mismatch) => self.halt(&mismatch, story),
        }
    }

    /// The stored position does not belong to the log: the relay ends, and a human must choose.
    fn halt(&mut self, mismatch: &Mismatch, story: &mut Story) -> Verdict {
        self.oracle.refused(mismatch)?;
        self.end_session("halts", story);
        story.tell("relay", || mismatch.to_string());
        self.halted = true;
        Ok(())
    }

    /// The relay stops where it is, as by SIGSTOP. The server lets go of it, and Kafka does not.
    fn freeze(&mut self, story: &mut Story) {
        if self.session.as_ref().is_some_and(|session| session.relay.producer().is_none()) {
            return;
        }
        self.bury_zombie();
        if let Some(mut session) = self.session.take() {
            self.oracle.fault();
            story.tell("relay", || "freezes");
            session.up.clear();
            self.zombie = Some(session);
            self.oracle.session_ended();
        }
    }

    /// The frozen relay runs on for a moment, with what it had read. It has no server to report to.
    fn zombie_moves(&mut self, story: &mut Story) {
        let (Some(Session { relay, down, .. }), Some((broker, _))) = (&mut self.zombie, &mut self.broker) else {
            return;
        };
        let producer = relay.producer().expect("it froze after it fenced");
        let answers = broker.answers(producer, self.now, &mut self.random);
        let frame = if relay.has_room() { down.pop_front() } else { None };
        let records = frame.map_or_else(|| Ok(Vec::new()), |frame| relay.read(&frame, self.now));
        let is_at_odds = records.is_err();
        for record in records.unwrap_or_default() {
            story.tell("zombie", || format!("sends {record}"));
            broker.send(producer, record, &mut self.random);
        }
        if is_at_odds || relay.transact(&answers, false, self.now, broker).is_err() {
            story.tell("zombie", || "ends");
            self.bury_zombie();
        }
    }

    fn bury_zombie(&mut self) {
        if let (Some(Session { relay, .. }), Some((broker, _))) = (self.zombie.take(), &mut self.broker) {
            broker.abandon(relay.producer().expect("it froze after it fenced"), &mut self.random);
        }
    }

    /// The clock goes on, but never past the moment for which the driver has set an alarm.
    fn time_passes(&mut self, story: &mut Story) -> Verdict {
        let until = self.now + Duration::from_micros(self.random.pick(&[50, 1_000, 5_000, 40_000, 2_000_000]));
        let alarm = self.session.as_ref().and_then(|session| session.relay.deadline());
        self.now = alarm.map_or(until, |alarm| until.min(alarm.max(self.now)));
        story.clock = self.now;
        let Some(Session { walsender, down, .. }) = &mut self.session else {
            self.start_session(story);
            return Ok(());
        };
        if walsender.wants_to_ask(self.now) {
            down.push_back(walsender.keepalive(&self.postgres, true));
        }
        match walsender.gives_up(self.now) {
            true => Err(violation(Promise::G6, "the server gave the session up".to_owned())),
            false => Ok(()),
        }
    }

    fn server_hears(&mut self, story: &mut Story) {
        let Some(Session { walsender, down, up, .. }) = &mut self.session else { return };
        while let Some(status) = up.pop_front() {
            let position = confirmed_by(&status);
            self.postgres.confirm(position, &mut self.random);
            walsender.heard(self.now);
            if asks(&status) {
                down.push_back(walsender.keepalive(&self.postgres, false));
            }
            story.tell("server", || format!("hears {}", At(position)));
        }
    }

    /// Reports that have arrived, then a status if one is due, then the end of a clean stop.
    fn relay_turn(&mut self, story: &mut Story) -> Verdict {
        let Some(Session { relay, up, stopping, .. }) = &mut self.session else { return Ok(()) };
        if let (Some((broker, _)), Some(producer)) = (&mut self.broker, relay.producer()) {
            let answers = broker.answers(producer, self.now, &mut self.random);
            let Ok(delivered) = relay.transact(&answers, *stopping, self.now, broker) else {
                self.end_session("ends the session: Kafka refuses it", story);
                return Ok(());
            };
            delivered.into_iter().for_each(|ticket| self.oracle.acknowledged(ticket));
        }
        for report in self.kafka.reports(self.now, &mut self.random) {
            if relay.report(report).is_err() {
                self.end_session("ends the session: a record was rejected", story);
                return Ok(());
            }
            self.oracle.acknowledged(report.ticket);
        }
        if let Some(status) = relay.status(self.now) {
            story.tell("relay", || format!("reports {}", At(confirmed_by(&status))));
            self.oracle.reported(confirmed_by(&status), self.now)?;
            up.push_back(status);
        }
        self.oracle.turn_ended(self.now)?;
        if *stopping && !relay.in_transaction() && relay.outstanding() == 0 {
            let status = relay.last_status(self.now);
            self.oracle.reported(confirmed_by(&status), self.now)?;
            up.push_back(status);
            story.tell("relay", || format!("stops at {}", At(confirmed_by(&status))));
            self.server_hears(story);
            self.session = None;
            self.oracle.session_ended();
        }
        Ok(())
    }

    fn start_session(&mut self, story: &mut Story) {
        let slot = self.postgres.slot.confirmed;
        let resumes = self.sabotage == Some(Sabotage::ResumesFromWhatItRead);
        let from = if resumes { self.last_read.max(slot) } else { slot };
        story.tell("relay", || format!("starts at {}", At(from)));
        self.oracle.session_started(from, self.now);
        let log = self.postgres.log();
        let reads_first = self.sabotage == Some(Sabotage::ReadsBeforeItFences);
        let transaction = self.broker.as_ref().map(|(_, cuts)| Transaction::new(*cuts, log.timeline, reads_first));
        self.session = Some(Session {
            walsender: Walsender::start(&self.postgres, from, self.sends_empty, self.now),
            relay: Relay::start(from, self.limits, self.sabotage, transaction, self.now),
            down: VecDeque::new(),
            up: VecDeque::new(),
            stopping: false,
            log,
        });
    }

    /// By a fault: what was on its way up may still arrive in part, all else is lost.
    fn end_session(&mut self, how: &str, story: &mut Story) {
        self.oracle.fault();
        let Some(Session { up, relay, .. }) = &mut self.session else { return };
        if let (Some((broker, _)), Some(producer)) = (&mut self.broker, relay.producer()) {
            broker.abandon(producer, &mut self.random);
        }
        up.truncate(self.random.below(up.len() + 1));
        story.tell("relay", || how);
        self.server_hears(story);
        self.session = None;
        self.kafka.abandon(&mut self.random);
        self.oracle.session_ended();
    }

    /// No more faults and no more events: all must arrive, and then the slot must follow the server's other traffic.
    fn calm(&mut self, story: &mut Story) -> Verdict {
        story.tell("weather", || "calms down");
        self.postgres.roll_back_all();
        self.kafka.free();
        self.bury_zombie();
        self.broker.iter_mut().for_each(|(broker, _)| broker.free());
        const ROUNDS_MAX: usize = 100_000;
        for _ in 0..ROUNDS_MAX {
            if self.halted || self.is_drained() {
                break;
            }
            self.round(story)?;
        }
        self.postgres.other_traffic(&mut self.random);
        let wal_end = self.postgres.wal;
        let until = self.now + 2 * STATUS_INTERVAL + 2 * CONFIRM_INTERVAL;
        while self.now < until && !self.halted {
            self.round(story)?;
        }
        match self.halted {
            true => Ok(()),
            false => self.oracle.finish(&self.postgres, wal_end),
        }
    }

    /// Nothing is left to send or to read, and Kafka has it all.
    fn is_drained(&self) -> bool {
        let Some(Session { walsender, down, .. }) = &self.session else { return false };
        walsender.has_sent_all(&self.postgres) && down.is_empty() && self.oracle.everything_is_delivered()
    }

    fn round(&mut self, story: &mut Story) -> Verdict {
        for act in [Act::ServerSends, Act::RelayReads, Act::KafkaWrites, Act::ServerHears, Act::TimePasses] {
            self.act(act, story)?;
            self.relay_turn(story)?;
        }
        Ok(())
    }
}
