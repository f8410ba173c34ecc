//! All that runs, and what is asked of it after each fault.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    consumer::Consumer,
    disk::Disk,
    fault::{Kind, Over},
    oracle::{Verdict, judge},
    random::Random,
    report::{Line, Report},
    support::{
        kafka::Kafka,
        outbox::Event,
        postgres::{MAIN, Postgres},
        process::run,
        proxy::Proxy,
        records::Isolation,
        scratch,
        session::Session,
        walpost::{Walpost, walpost},
    },
    writers::{FLEETING, STEADY, Writers, address},
};

pub const DATABASE: &str = "chaos";
pub const SLOT: &str = "chaos";
/// How long the stream may take to be back after a fault, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

const IN_FLIGHT: usize = 1_000;
/// What may come twice for each session that ends: what was in flight, and what was acknowledged since the last confirmation.
const TWICE_MAX: usize = IN_FLIGHT + 500;

const SERVER: [&str; 6] = [
    "wal_sender_timeout=5s",
    "wal_keep_size=0",
    "max_wal_size=64MB",
    "min_wal_size=32MB",
    "checkpoint_timeout=30s",
    "wal_retrieve_retry_interval=200ms",
];
const STANDBY: [&str; 3] = ["primary_slot_name=standby", "hot_standby_feedback=on", "sync_replication_slots=on"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    AtLeastOnce,
    ExactlyOnce,
}

impl Delivery {
    /// The two campaigns of one seed differ.
    pub fn salt(self) -> u64 {
        match self {
            Delivery::AtLeastOnce => 0,
            Delivery::ExactlyOnce => 1 << 40,
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Delivery::AtLeastOnce => "at_least_once",
            Delivery::ExactlyOnce => "exactly_once",
        })
    }
}

/// What is there to disturb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rig {
    /// No standby of PostgreSQL, and nobody's clock is touched.
    Small,
    Whole,
}

/// A server of PostgreSQL, and the file system of its log, where that may run full. The server ends first.
pub struct Server {
    pub postgres: Postgres,
    pub disk: Option<Disk>,
    /// The link that leads to it.
    pub link: usize,
}

pub struct World {
    pub delivery: Delivery,
    pub random: Random,
    pub relays: Vec<Walpost>,
    pub primary: Server,
    pub standby: Option<Server>,
    /// Between walpost and each server of PostgreSQL.
    pub links: [Proxy; 2],
    pub kafka_link: Proxy,
    pub clock: Option<Clock>,
    writers: Option<Writers>,
    consumer: Option<Consumer>,
    pub kafka: Arc<Kafka>,
    probes: usize,
    /// Sessions that processes began which have ended since.
    past_sessions: usize,
    faults: BTreeMap<Kind, Line>,
    /// The last fault, the sessions that it ended, and whether what it left unsent was asked for.
    last: Option<(Kind, usize, bool)>,
    /// By the fault that is on, or the last one.
    server_crashed: bool,
    /// Processes that were told to send again what a lost slot may have left unsent.
    told_to_recover: [bool; 2],
    began: Instant,
}

impl World {
    pub fn start(delivery: Delivery, rig: Rig, mut random: Random) -> World {
        let kafka_link = Proxy::to(9);
        let kafka = Kafka::configure().behind(kafka_link.port()).set("auto.create.topics.enable", "false").start();
        kafka_link.lead_to(kafka.broker(1).port());
        let kafka = Arc::new(kafka);
        let steady = STEADY.map(topic);
        steady.iter().for_each(|topic| kafka.create_blockable_topic(topic, 3));
        kafka.create_topic(&topic(FLEETING), 3, &[]);

        let postgres = Postgres::start(MAIN, &SERVER);
        postgres.sql(&format!("CREATE DATABASE {DATABASE}"));
        let links = [Proxy::to(postgres.port()), Proxy::to(9)];
        let primary = Server { postgres, disk: None, link: 0 };
        let isolation = match delivery {
            Delivery::AtLeastOnce => Isolation::Uncommitted,
            Delivery::ExactlyOnce => Isolation::Committed,
        };
        let consumer = Consumer::start(Arc::clone(&kafka), &steady, topic(FLEETING), isolation);
        let mut world = World {
            delivery,
            relays: Vec::new(),
            primary,
            standby: None,
            links,
            kafka_link,
            clock: (rig == Rig::Whole).then(Clock::make),
            writers: None,
            consumer: Some(consumer),
            kafka,
            probes: 0,
            past_sessions: 0,
            faults: BTreeMap::new(),
            last: None,
            server_crashed: false,
            told_to_recover: [false; 2],
            began: Instant::now(),
            random: Random::new(random.below(1 << 40) as u64),
        };
        world.set_up();
        if rig == Rig::Whole {
            world.make_standby();
        }
        world.relays = vec![world.relay(&[]), world.relay(&[])];
        world.writers = Some(Writers::start(&world.primary.postgres, DATABASE, 3, &mut random));
        world.probe(Instant::now()).unwrap_or_else(|broken| panic!("before the first fault: {broken}"));
        world
    }

    fn set_up(&self) {
        let file = scratch::folder("setup").join("walpost.toml");
        fs::write(&file, self.configuration()).expect("the folder is ours");
        let done = walpost(&["setup", "--yes", "-c", file.to_str().expect("it is ASCII")]);
        assert_eq!(done.code, 0, "{done:?}");
    }

    fn configuration(&self) -> String {
        let [first, second] = [0, 1].map(|link| self.links[link].port());
        let topic = topic("${aggregate_type}");
        let brokers = self.kafka_link.port();
        let positions = match self.delivery {
            Delivery::AtLeastOnce => String::new(),
            Delivery::ExactlyOnce => format!("exactly_once.positions_topic = '{}'\n", topic_of_positions()),
        };
        format!(
            "database_url = 'postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{DATABASE}?target_session_attrs=read-write&connect_timeout=2'
             brokers = '127.0.0.1:{brokers}'
             slot = '{SLOT}'
             snapshot = 'never'
             failover = true
             delivery = '{}'
             {positions}
             in_flight_records = {IN_FLIGHT}
             progress_interval = '500ms'
             status_interval = '1s'
             takeover_timeout = '10s'
             route.topic = '{topic}'
             [kafka]
             'socket.timeout.ms' = 5000
             'reconnect.backoff.max.ms' = 1000
             ",
            self.delivery
        )
    }

    /// A process of walpost.
    pub fn relay(&self, arguments: &[&str]) -> Walpost {
        let environment = self.clock.as_ref().map_or(Vec::new(), Clock::environment);
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Walpost::start_with(&self.configuration(), arguments, &environment)
    }

    /// Puts another process in the place of one that has ended.
    pub fn replace(&mut self, place: usize) {
        self.put(place, &[]);
    }

    /// The same, and someone decides that what a lost slot may have left unsent is sent again.
    pub fn recover(&mut self, place: usize) {
        self.put(place, &["--on-slot-loss", "recover"]);
        self.told_to_recover[place] = true;
    }

    fn put(&mut self, place: usize, arguments: &[&str]) {
        self.past_sessions += sessions(&self.relays[place]);
        self.relays[place] = self.relay(arguments);
        self.told_to_recover[place] = false;
    }

    /// A decision is for one loss: when what that left is sent, processes that know nothing of it go on.
    fn end_recovery(&mut self) -> Result<(), String> {
        self.until("what the lost slot left is sent", |world| {
            let relay = &world.relays[world.active()];
            (streams(relay) && relay.metric("walpost_reading_rows").is_none()).then_some(())
        })?;
        for place in 0..self.relays.len() {
            if self.told_to_recover[place] {
                match self.relays[place].terminate(PATIENCE) {
                    0 => self.replace(place),
                    code => return Err(format!("a clean stop ends with {code}\n{}", self.logs())),
                }
            }
        }
        Ok(())
    }

    /// The process that streams, as far as it says so; any other when none does.
    pub fn active(&self) -> usize {
        self.relays.iter().position(streams).unwrap_or(0)
    }

    /// A standby of the primary, and all that keeps the slot on it. Stops the primary for it.
    pub fn make_standby(&mut self) {
        let primary = &self.primary.postgres;
        primary.sql("SELECT pg_create_physical_replication_slot('standby', true)");
        primary.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby'");
        let postgres = primary.standby(&STANDBY);
        // The copy has the primary's own setting, which is right once it is the primary.
        postgres.sql("ALTER SYSTEM RESET synchronized_standby_slots");
        postgres.reload();
        let link = 1 - self.primary.link;
        self.links[link].lead_to(postgres.port());
        self.standby = Some(Server { postgres, disk: None, link });
    }

    pub fn writers(&self) -> &Writers {
        self.writers.as_ref().expect("they write until the end")
    }

    pub fn consumer(&self) -> &Consumer {
        self.consumer.as_ref().expect("it reads until the end")
    }

    /// A superuser's session on the primary, as soon as it takes one.
    pub fn session(&mut self) -> Result<Session, String> {
        self.until("the primary takes a session", |world| {
            Session::open(&address(&world.primary.postgres, DATABASE)).ok()
        })
    }

    pub fn tell(&self, what: &str) {
        println!("[{}] {:>6.1} s {what}", self.delivery, self.began.elapsed().as_secs_f64());
    }

    /// Looks after the processes of walpost while it waits, as a service manager does.
    pub fn until<T>(&mut self, what: &str, mut check: impl FnMut(&mut World) -> Option<T>) -> Result<T, String> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.tend()?;
            if let Some(value) = check(self) {
                return Ok(value);
            }
            if Instant::now() > end {
                return Err(format!("not within {PATIENCE:?}: {what}\n{}", self.logs()));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The fault lasts.
    pub fn last(&mut self, duration: Duration) -> Result<(), String> {
        let end = Instant::now() + duration;
        self.until("time passes", |_| (Instant::now() >= end).then_some(()))
    }

    pub fn draw_ms(&mut self, low: usize, high: usize) -> Duration {
        Duration::from_millis(self.random.between(low, high) as u64)
    }

    /// A process that was fenced comes back as the standby. One that takes over after a crash of the server may not know the
    /// slot again, and halts (exactly once) for someone to decide. No other may end by itself.
    fn tend(&mut self) -> Result<(), String> {
        if let Some(log) = self.kafka.broker(1).has_ended() {
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            return Err(format!("the broker has ended by itself\n{last}"));
        }
        for place in 0..self.relays.len() {
            let relay = &self.relays[place];
            let Some(code) = relay.exit_code() else { continue };
            let log = relay.log();
            let fenced = log.contains("another producer has taken over transactional id");
            let unknown = log.contains(&format!("replication slot {SLOT} begins at"));
            if self.delivery == Delivery::ExactlyOnce && fenced {
                self.tell("   a fenced process ends and is started again");
                self.replace(place);
            } else if self.delivery == Delivery::ExactlyOnce && unknown && self.server_crashed {
                self.tell("   the slot counts as lost; started again to recover");
                self.recover(place);
            } else {
                return Err(format!("walpost has ended by itself, exit code {code}\n{}", self.logs()));
            }
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let last = |relay: &Walpost| {
            let log = relay.log();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        self.relays.iter().map(last).collect::<Vec<_>>().join("\n--- the other process\n")
    }

    /// Sessions of the stream that have begun so far.
    fn sessions(&self) -> usize {
        self.past_sessions + self.relays.iter().map(sessions).sum::<usize>()
    }

    /// Events of every topic that are committed now arrive. Gives how long that took since `from`.
    fn probe(&mut self, from: Instant) -> Result<Duration, String> {
        self.probes += 1;
        let events = STEADY.into_iter().chain([FLEETING]).enumerate();
        let ids: Vec<(String, &str)> = events
            .map(|(n, topic)| (format!("ffffffff-0000-4000-8000-{:012x}", self.probes * 16 + n), topic))
            .collect();
        let rows: Vec<String> =
            ids.iter().map(|(id, topic)| format!("('{id}', '{topic}', 'probe', 'probed', '1')")).collect();
        let insert = format!(
            "INSERT INTO walpost.outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES {} ON CONFLICT DO NOTHING",
            rows.join(", ")
        );
        self.until("a probe is committed", |world| {
            let session = Session::open(&address(&world.primary.postgres, DATABASE)).ok()?;
            session.try_run(&insert).ok()
        })?;
        // A client may be stuck where a new one reads on.
        let mut doubts = Some(Instant::now() + PATIENCE / 2);
        self.until("what was committed after the fault arrives", |world| {
            if doubts.is_some_and(|at| Instant::now() > at) {
                doubts = None;
                world.tell("   the consumer gets nothing more; a new one reads from the beginning");
                world.consumer().begin_anew();
            }
            let journal = world.consumer().journal();
            ids.iter().all(|(id, _)| journal.has(id)).then_some(())
        })?;
        Ok(from.elapsed())
    }

    /// One fault, and what is promised after it.
    pub fn suffer(&mut self, number: usize, kind: Kind) -> Result<(), String> {
        let (sessions, before) = (self.sessions(), self.counts());
        self.tell(&format!("{number}. {kind}"));
        let broken = |why: String| format!("fault {number}, {kind}: {why}");
        // What was written beside the slot since then may still be behind it.
        let before_it = self.last.map(|(last, ..)| last);
        self.server_crashed = [before_it, Some(kind)].into_iter().flatten().any(Kind::forgets_the_position);
        let over = match self.inflict(kind) {
            Ok(over) => over,
            Err(why) => return Err(broken(why)),
        };
        let over = match over {
            Over::At(over) => over,
            Over::NotRun(why) => {
                self.tell(&format!("   not run: {why}"));
                self.faults.entry(kind).or_default().not_run = Some(why);
                return Ok(());
            }
        };
        let took = self.probe(over).map_err(broken)?;
        let asked_for = self.told_to_recover != [false; 2];
        self.end_recovery().map_err(broken)?;
        let after = self.counts();
        let (duplicates, recovered) = (after.0 - before.0, after.1 - before.1);
        let sessions = self.sessions() - sessions;
        self.tell(&format!(
            "   back after {:.1} s, {duplicates} duplicates, {recovered} again from the table, {sessions} sessions",
            took.as_secs_f64()
        ));
        let line = self.faults.entry(kind).or_default();
        line.recoveries.push(took);
        line.duplicates += duplicates;
        line.recovered += recovered;
        // What comes late belongs to the fault before.
        let (kinds, ended, asked_for) = match self.last.replace((kind, sessions, asked_for)) {
            Some((last, ended, asked_before)) => ([last, kind], ended + sessions, asked_for || asked_before),
            None => ([kind, kind], sessions, asked_for),
        };
        let forgets = kinds.iter().any(|kind| kind.forgets_the_position());
        let allowed = match self.delivery {
            Delivery::ExactlyOnce => 0,
            Delivery::AtLeastOnce if forgets && ended > 0 => usize::MAX,
            Delivery::AtLeastOnce => ended * TWICE_MAX,
        };
        if duplicates > allowed {
            return Err(broken(format!("{duplicates} duplicates, and at most {allowed} are promised")));
        }
        // At least once it takes a slot that it does not know again for lost by itself.
        let may_recover = asked_for || forgets && self.delivery == Delivery::AtLeastOnce;
        if recovered > 0 && !may_recover {
            return Err(broken(format!("{recovered} events sent again from the table, which nobody asked for")));
        }
        Ok(())
    }

    fn counts(&self) -> (usize, usize) {
        let journal = self.consumer().journal();
        (journal.duplicates, journal.recovered)
    }

    /// Lets everything arrive, stops in order, and judges.
    pub fn finish(mut self, outcome: Result<(), String>) -> Report {
        let mut broken: Vec<String> = outcome.err().into_iter().collect();
        let acknowledged = self.writers.take().expect("they wrote until now").stop();
        // After an early end nobody looks after the processes.
        let session = match broken.is_empty() {
            true => self.session(),
            false => Session::open(&address(&self.primary.postgres, DATABASE)).map_err(|error| error.to_string()),
        };
        let table = match session {
            Ok(session) => Some(table(&session)),
            Err(why) => {
                broken.push(why);
                None
            }
        };
        if let (true, Some(table)) = (broken.is_empty(), &table) {
            let arrived = self.until("every committed event arrives", |world| {
                let journal = world.consumer().journal();
                table.iter().all(|event| journal.has(&event.id)).then_some(())
            });
            broken.extend(arrived.err());
        }
        let whole = broken.is_empty();
        if whole {
            let letters = self.session().map(|session| session.value("SELECT count(*) FROM walpost.dead_letter"));
            if letters.as_ref().map(Option::as_deref) != Ok(Some("0")) {
                broken.push(format!("dead letters: {letters:?}"));
            }
            // The one on standby first: it is not to take over.
            let active = self.active();
            for place in [1 - active, active] {
                match self.relays[place].terminate(PATIENCE) {
                    0 => {}
                    code => broken.push(format!("a clean stop ends with {code}\n{}", self.relays[place].log())),
                }
            }
        }
        let sessions = self.sessions().saturating_sub(1);
        let journal = self.consumer.take().expect("it read until now").finish(whole);
        // Without the table there is nothing to judge by.
        let verdict = table.map(|table| judge(&table, &acknowledged, &journal)).unwrap_or_default();
        self.tell(&format!("{verdict:?}").chars().take(600).collect::<String>());
        let Verdict { lost, reordered, wrong, gone, duplicates, .. } = &verdict;
        for (what, ids) in [("lost", lost), ("reordered", reordered), ("wrong", wrong)] {
            // What was on its way when the campaign ended early is not lost.
            if !ids.is_empty() && (whole || what != "lost") {
                broken.push(format!("{} events {what}, such as {}", ids.len(), ids[0]));
            }
        }
        if *duplicates > 0 && self.delivery == Delivery::ExactlyOnce {
            broken.push(format!("exactly once, and {duplicates} duplicates"));
        }
        let promoted = self.faults.get(&Kind::Promotion).is_some_and(|line| !line.recoveries.is_empty());
        if !gone.is_empty() && !promoted {
            broken.push(format!("PostgreSQL has lost {} acknowledged commits", gone.len()));
        }
        let began = self.began;
        Report {
            delivery: self.delivery,
            faults: std::mem::take(&mut self.faults),
            verdict,
            sessions,
            took: began.elapsed(),
            whole,
            broken,
        }
    }
}

pub fn topic(aggregate_type: &str) -> String {
    format!("chaos.{aggregate_type}")
}

fn topic_of_positions() -> String {
    topic("positions")
}

fn streams(relay: &Walpost) -> bool {
    relay.metric("walpost_state{state=\"streaming\"}").is_some_and(|value| value == 1.0)
}

/// Sessions that a process has begun.
fn sessions(relay: &Walpost) -> usize {
    relay.log().matches("walpost::session::begun: streaming").count()
}

fn table(session: &Session) -> Vec<Event> {
    let rows = session.rows("SELECT id, aggregate_type, aggregate_id, payload FROM walpost.outbox ORDER BY seq");
    let event = |row: Vec<Option<String>>| {
        let [id, aggregate_type, key, value] =
            <[_; 4]>::try_from(row).expect("four columns").map(|text| text.expect("writers leave none of them out"));
        Event { id, topic: topic(&aggregate_type), key, value }
    };
    rows.into_iter().map(event).collect()
}

/// The wall clock of walpost's processes alone: clock.c, preloaded.
pub struct Clock {
    library: PathBuf,
    offset: PathBuf,
    seconds: i64,
}

impl Clock {
    fn make() -> Clock {
        let folder = scratch::folder("clock");
        let (library, offset) = (folder.join("clock.so"), folder.join("offset"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chaos/clock.c");
        let words = ["-shared", "-fPIC", "-O1", "-o", library.to_str().expect("it is ASCII"), source];
        run("cc", words);
        let mut clock = Clock { library, offset, seconds: 0 };
        fs::write(&clock.offset, 0_i64.to_ne_bytes()).expect("the folder is ours");
        clock.step(0);
        clock
    }

    /// Sets it, forward or back; gives how far it is from the real time then.
    pub fn step(&mut self, seconds: i64) -> i64 {
        self.seconds += seconds;
        // In place: the processes have it mapped.
        let file = OpenOptions::new().write(true).open(&self.offset).expect("it is ours");
        file.write_all_at(&self.seconds.to_ne_bytes(), 0).expect("it is ours");
        self.seconds
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("LD_PRELOAD", self.library.display().to_string()), ("CHAOS_CLOCK", self.offset.display().to_string())]
    }
}
