//! The kinds of faults, and how each is done.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    disk::Disk,
    random::Random,
    support::{postgres::Mode, process::Signal, proxy::Proxy, session::Session, walpost::Walpost},
    world::{DATABASE, Delivery, PATIENCE, SLOT, World, topic},
    writers::{FLEETING, STEADY, address},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    RelayKilled,
    RelayFrozen,
    BrokerKilled,
    BrokerStopped,
    BrokerFrozen,
    PostgresRestarted,
    PostgresCrashed,
    BackendTerminated,
    BlackHole,
    SlowLink,
    BlockedTopic,
    DeletedTopic,
    LostSlot,
    Promotion,
    ClockStep,
    DiskFull,
}

/// When the fault was over: the stream has to be back from then on.
pub enum Over {
    At(Instant),
    /// It cannot be done here, and why.
    NotRun(String),
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::RelayKilled,
        Kind::RelayFrozen,
        Kind::BrokerKilled,
        Kind::BrokerStopped,
        Kind::BrokerFrozen,
        Kind::PostgresRestarted,
        Kind::PostgresCrashed,
        Kind::BackendTerminated,
        Kind::BlackHole,
        Kind::SlowLink,
        Kind::BlockedTopic,
        Kind::DeletedTopic,
        Kind::LostSlot,
        Kind::Promotion,
        Kind::ClockStep,
        Kind::DiskFull,
    ];

    /// Those that need neither standby nor rights nor other people's libraries, nor much time.
    pub const CHEAP: [Kind; 10] = [
        Kind::RelayKilled,
        Kind::RelayFrozen,
        Kind::BrokerKilled,
        Kind::BrokerFrozen,
        Kind::PostgresCrashed,
        Kind::BackendTerminated,
        Kind::BlackHole,
        Kind::SlowLink,
        Kind::BlockedTopic,
        Kind::DeletedTopic,
    ];

    /// How often it comes, beside the others.
    fn weight(self) -> usize {
        match self {
            Kind::RelayKilled | Kind::BackendTerminated => 16,
            Kind::RelayFrozen | Kind::BlockedTopic | Kind::ClockStep => 12,
            Kind::BrokerKilled | Kind::PostgresCrashed | Kind::BlackHole | Kind::SlowLink => 10,
            Kind::BrokerStopped | Kind::BrokerFrozen | Kind::PostgresRestarted | Kind::DeletedTopic => 8,
            Kind::LostSlot | Kind::Promotion => 5,
            Kind::DiskFull => 3,
        }
    }

    /// What PostgreSQL last knew of the slot is older than the last confirmation, or gone.
    pub fn forgets_the_position(self) -> bool {
        matches!(self, Kind::PostgresCrashed | Kind::LostSlot | Kind::Promotion | Kind::DiskFull)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::RelayKilled => "walpost killed (-9)",
            Kind::RelayFrozen => "walpost frozen (SIGSTOP)",
            Kind::BrokerKilled => "broker killed",
            Kind::BrokerStopped => "broker stopped",
            Kind::BrokerFrozen => "broker frozen",
            Kind::PostgresRestarted => "PostgreSQL restarted",
            Kind::PostgresCrashed => "PostgreSQL crashed",
            Kind::BackendTerminated => "backend terminated",
            Kind::BlackHole => "black-holed link",
            Kind::SlowLink => "slow link",
            Kind::BlockedTopic => "blocked topic",
            Kind::DeletedTopic => "deleted topic",
            Kind::LostSlot => "slot invalidated",
            Kind::Promotion => "standby promoted",
            Kind::ClockStep => "clock step",
            Kind::DiskFull => "disk full of WAL",
        })
    }
}

/// So many faults: each kind once, where there is room, then by weight; in any order.
pub fn deck(random: &mut Random, kinds: &[Kind], count: usize) -> Vec<Kind> {
    let weights: Vec<usize> = kinds.iter().map(|kind| kind.weight()).collect();
    let mut deck: Vec<Kind> = kinds.iter().copied().take(count).collect();
    while deck.len() < count {
        deck.push(kinds[random.weighted(&weights)]);
    }
    random.shuffle(&mut deck);
    deck
}

impl World {
    /// Does it, and undoes it after a while.
    pub fn inflict(&mut self, kind: Kind) -> Result<Over, String> {
        match kind {
            Kind::RelayKilled => self.kill_relay(),
            Kind::RelayFrozen => self.freeze_relay(),
            Kind::BrokerKilled | Kind::BrokerStopped => self.end_broker(kind),
            Kind::BrokerFrozen => self.freeze_broker(),
            Kind::PostgresRestarted | Kind::PostgresCrashed => self.end_postgres(kind),
            Kind::BackendTerminated => self.terminate_backend(),
            Kind::BlackHole => self.swallow(),
            Kind::SlowLink => self.slow_down(),
            Kind::BlockedTopic => self.block_topic(),
            Kind::DeletedTopic => self.delete_topic(),
            Kind::LostSlot => self.lose_slot(),
            Kind::Promotion => self.promote(),
            Kind::ClockStep => self.step_clock(),
            Kind::DiskFull => self.fill_disk(),
        }
    }

    /// Mostly the one that streams.
    fn some_relay(&mut self) -> usize {
        let active = self.active();
        if self.random.one_in(4) { 1 - active } else { active }
    }

    fn kill_relay(&mut self) -> Result<Over, String> {
        let place = self.some_relay();
        self.relays[place].kill();
        let over = Instant::now();
        self.replace(place);
        Ok(Over::At(over))
    }

    fn freeze_relay(&mut self) -> Result<Over, String> {
        let (place, time) = (self.some_relay(), self.draw_ms(300, 9_000));
        self.tell(&format!("   process {place} for {time:?}"));
        self.relays[place].signal(Signal::Stop);
        self.last(time)?;
        self.relays[place].signal(Signal::Cont);
        Ok(Over::At(Instant::now()))
    }

    fn end_broker(&mut self, kind: Kind) -> Result<Over, String> {
        let time = self.draw_ms(0, 3_000);
        self.tell(&format!("   for {time:?} and as long as it takes to start"));
        match kind {
            Kind::BrokerKilled => self.kafka.kill(),
            _ => self.kafka.stop(),
        }
        self.last(time)?;
        self.kafka.start_again();
        Ok(Over::At(Instant::now()))
    }

    fn freeze_broker(&mut self) -> Result<Over, String> {
        let time = self.draw_ms(300, 7_000);
        self.tell(&format!("   for {time:?}"));
        self.kafka.pause();
        self.last(time)?;
        self.kafka.resume();
        Ok(Over::At(Instant::now()))
    }

    fn end_postgres(&mut self, kind: Kind) -> Result<Over, String> {
        let time = self.draw_ms(0, 2_000);
        let postgres = &self.primary.postgres;
        match kind {
            Kind::PostgresRestarted => {
                let took = postgres.stop(Mode::Fast, PATIENCE);
                self.tell(&format!("   stopped within {took:?}, away for {time:?}"));
            }
            _ if self.random.one_in(2) => {
                self.tell(&format!("   immediate stop, away for {time:?}"));
                self.primary.postgres.stop(Mode::Immediate, PATIENCE);
            }
            _ => {
                self.tell(&format!("   postmaster killed, away for {time:?}"));
                postgres.crash();
            }
        }
        self.last(time)?;
        self.primary.postgres.start_again();
        Ok(Over::At(Instant::now()))
    }

    fn terminate_backend(&mut self) -> Result<Over, String> {
        let which = self.random.pick(&["the walsender", "sessions", "all"]);
        self.tell(&format!("   {which}"));
        let condition = match which {
            "the walsender" => "backend_type = 'walsender'",
            "sessions" => "backend_type <> 'walsender'",
            _ => "true",
        };
        self.session()?.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'walpost' AND {condition}"
        ));
        Ok(Over::At(Instant::now()))
    }

    /// The link to the primary, or to Kafka.
    fn some_link(&mut self) -> (&'static str, &Proxy) {
        match self.random.one_in(2) {
            true => ("to Kafka", &self.kafka_link),
            false => ("to PostgreSQL", &self.links[self.primary.link]),
        }
    }

    fn swallow(&mut self) -> Result<Over, String> {
        let time = self.draw_ms(500, 10_000);
        let (whose, link) = self.some_link();
        link.swallow();
        self.tell(&format!("   {whose} for {time:?}"));
        self.last(time)?;
        self.kafka_link.heal();
        self.links.iter().for_each(Proxy::heal);
        Ok(Over::At(Instant::now()))
    }

    fn slow_down(&mut self) -> Result<Over, String> {
        let (latency, time) = (self.draw_ms(10, 300), self.draw_ms(1_000, 6_000));
        let (whose, link) = self.some_link();
        link.slow_down(latency);
        self.tell(&format!("   {whose}, {latency:?} later, for {time:?}"));
        self.last(time)?;
        for link in self.links.iter().chain([&self.kafka_link]) {
            link.slow_down(Duration::ZERO);
        }
        Ok(Over::At(Instant::now()))
    }

    fn block_topic(&mut self) -> Result<Over, String> {
        let (name, time) = (topic(self.random.pick(&STEADY)), self.draw_ms(500, 6_000));
        self.tell(&format!("   {name} for {time:?}"));
        self.kafka.block(&name);
        self.last(time)?;
        self.kafka.unblock(&name);
        Ok(Over::At(Instant::now()))
    }

    /// One that the consumer has read to its end: what was in it is gone for others.
    fn delete_topic(&mut self) -> Result<Over, String> {
        let (name, time) = (topic(FLEETING), self.draw_ms(0, 4_000));
        self.tell(&format!("   {name} for {time:?}"));
        let session = self.session()?;
        let held = self.writers().hold_fleeting();
        let ids = session.rows(&format!("SELECT id FROM walpost.outbox WHERE aggregate_type = '{FLEETING}'")).concat();
        self.until("the topic is read to its end", |world| {
            let journal = world.consumer().journal();
            ids.iter().flatten().all(|id| journal.has(id)).then_some(())
        })?;
        self.consumer().leave();
        self.kafka.delete_topic(&name);
        drop(held);
        self.last(time)?;
        self.kafka.create_topic(&name, 3, &[]);
        self.consumer().comes_back();
        Ok(Over::At(Instant::now()))
    }

    /// PostgreSQL gives the slot up while nobody streams, and writers write on.
    fn lose_slot(&mut self) -> Result<Over, String> {
        let session = self.session()?;
        self.relays.iter().for_each(Walpost::kill);
        session.run("ALTER SYSTEM SET max_slot_wal_keep_size = '32MB'");
        session.run("SELECT pg_reload_conf(); CREATE TABLE IF NOT EXISTS ballast (v text)");
        let status = format!("SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{SLOT}'");
        let end = Instant::now() + PATIENCE;
        while session.value(&status).as_deref() != Some("lost") {
            if Instant::now() > end {
                return Err("the slot is not lost".to_owned());
            }
            session.run("INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
            session.run("TRUNCATE ballast; SELECT pg_switch_wal()");
            // Its slot is not to be lost too.
            if let Some(standby) = &self.standby {
                standby.postgres.follows(&self.primary.postgres);
            }
            session.run("CHECKPOINT");
        }
        session.run("ALTER SYSTEM RESET max_slot_wal_keep_size");
        session.run("SELECT pg_reload_conf()");
        let over = Instant::now();
        if self.delivery == Delivery::ExactlyOnce {
            // It halts by name, and someone decides.
            let halts = self.relay(&[]);
            let code = halts.wait_exit(PATIENCE);
            if code != 1 || !halts.log().contains(&format!("replication slot {SLOT} is lost: PostgreSQL gave it up")) {
                return Err(format!("a lost slot ends with {code}\n{}", halts.log()));
            }
            self.tell("   halted by name; started again to recover");
        }
        self.recover(0);
        self.recover(1);
        Ok(Over::At(over))
    }

    /// The primary crashes, the standby takes its place, and gets a standby of its own.
    fn promote(&mut self) -> Result<Over, String> {
        let Some(standby) = self.standby.take() else { return Ok(Over::NotRun("there is no standby".to_owned())) };
        let session = self.session()?;
        let on_standby = standby.postgres.session(DATABASE);
        let kept = format!(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{SLOT}' AND synced AND NOT temporary AND invalidation_reason IS NULL"
        );
        // A worker that has rested for long rests for half a minute at a time; a new one does not.
        let rested = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'slotsync worker'";
        let mut asked = Some(Instant::now() + Duration::from_secs(2));
        self.until("the standby keeps the slot", |_| {
            session.run("SELECT pg_log_standby_snapshot()");
            if asked.is_some_and(|at| Instant::now() > at) {
                on_standby.run(rested);
                asked = None;
            }
            (on_standby.value(&kept).as_deref() == Some("1")).then_some(())
        })?;
        drop(session);
        self.primary.postgres.crash();
        standby.postgres.promote();
        self.writers().follow(&standby.postgres, DATABASE);
        self.primary = standby;
        let over = Instant::now();
        self.make_standby();
        Ok(Over::At(over))
    }

    fn step_clock(&mut self) -> Result<Over, String> {
        let seconds = match self.random.one_in(2) {
            true => self.random.between(1, 2 * 86_400) as i64,
            false => -(self.random.between(1, 20) as i64),
        };
        let Some(clock) = &mut self.clock else {
            return Ok(Over::NotRun("the clock is left alone".to_owned()));
        };
        let now = clock.step(seconds);
        self.tell(&format!("   {seconds} s, to {now} s from the real time"));
        Ok(Over::At(Instant::now()))
    }

    /// The file system of the log, which is a small one from the first time on.
    fn fill_disk(&mut self) -> Result<Over, String> {
        if self.primary.disk.is_none() {
            self.primary.postgres.stop(Mode::Fast, PATIENCE);
            let disk = Disk::over(&self.primary.postgres.data().join("pg_wal"), 320);
            self.primary.postgres.start_again();
            match disk {
                Ok(disk) => self.primary.disk = Some(disk),
                Err(why) => return Ok(Over::NotRun(format!("no file system may be mounted here ({why})"))),
            }
        }
        let time = self.draw_ms(0, 3_000);
        self.primary.disk.as_ref().expect("it is there now").fill();
        self.until("the server runs out of room", |world| {
            let Ok(session) = Session::open(&address(&world.primary.postgres, DATABASE)) else { return Some(()) };
            let write = "CREATE TABLE IF NOT EXISTS ballast (v text);
                 INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, 10000); TRUNCATE ballast";
            session.try_run(write).is_err().then_some(())
        })?;
        self.tell(&format!("   full, for {time:?} more"));
        self.last(time)?;
        self.primary.disk.as_ref().expect("it is there").free();
        self.primary.postgres.start_again();
        Ok(Over::At(Instant::now()))
    }
}
