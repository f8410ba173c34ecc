//! PostgreSQL servers of any supported major version.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{
        LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::Config;

use super::{
    certificates::Identity,
    eventually,
    process::{Launch, Process, Signal, run, tail},
    scratch::{self, ServerUser},
    session::Session,
};

/// Every supported major.
pub const VERSIONS: [u16; 5] = [14, 15, 16, 17, 18];
/// The major of the stories that one version is enough for.
pub const MAIN: u16 = 17;

/// How long a server may take to start, to stop when nothing holds it, or to recover.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test may rely on without asking. Losing power is not among the stories, so `fsync` is off; a killed server
/// keeps what it wrote.
const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("wal_level", "logical"),
    ("max_wal_senders", "60"),
    ("max_replication_slots", "60"),
    ("max_connections", "120"),
    ("max_prepared_transactions", "10"),
    ("fsync", "off"),
    ("timezone", "UTC"),
    ("log_replication_commands", "on"),
    ("log_line_prefix", "%m [%p] %d "),
];

const TRUST: &str = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust";

/// The three ways in which PostgreSQL is asked to stop.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Smart,
    Fast,
    Immediate,
}

/// A server to be started.
pub struct Builder {
    version: u16,
    settings: Vec<(String, String)>,
    hba: String,
    identity: Option<Identity>,
    language: Option<&'static str>,
}

impl Builder {
    pub fn set(mut self, setting: &str, value: &str) -> Builder {
        self.settings.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// Lines of pg_hba.conf for TCP, instead of trust for all. The Unix socket stays open to the tests.
    pub fn hba(mut self, lines: &str) -> Builder {
        lines.clone_into(&mut self.hba);
        self
    }

    /// Messages in this language, where the server has a translation.
    pub fn language(self, language: &'static str) -> Builder {
        // gettext heeds LANGUAGE in every locale but C itself.
        Builder { language: Some(language), ..self }.set("lc_messages", "C.UTF-8")
    }

    pub fn tls(mut self, identity: Identity) -> Builder {
        self.identity = Some(identity);
        self
    }

    pub fn start(self) -> Postgres {
        let programs = programs(self.version);
        let folder = scratch::folder(&format!("postgres-{}", self.version));
        let data = folder.join("data");
        run("cp", [OsString::from("-a"), template(self.version, &programs).into(), data.clone().into()]);
        USER.give(&folder);
        let language = self.language;
        let server = Postgres { port: scratch::port(), programs, data, folder, language, process: Mutex::new(None) };
        let mut conf = format!("\nport = {}\nunix_socket_directories = '{}'\n", server.port, server.folder.display());
        for (setting, value) in SETTINGS {
            conf += &format!("{setting} = '{value}'\n");
        }
        for (setting, value) in &self.settings {
            conf += &format!("{setting} = '{value}'\n");
        }
        if let Some(identity) = &self.identity {
            server.write_identity(identity);
            conf += "ssl = on\n";
        }
        let shipped = fs::read_to_string(server.data.join("postgresql.conf")).expect("initdb wrote one");
        server.write("postgresql.conf", &(shipped + &conf));
        server.write("pg_hba.conf", &format!("local all all trust\nlocal replication all trust\n{}\n", self.hba));
        server.start_again();
        server
    }
}

/// A running server; dropping it ends it. Its superuser is `postgres`.
pub struct Postgres {
    port: u16,
    programs: PathBuf,
    folder: PathBuf,
    data: PathBuf,
    language: Option<&'static str>,
    process: Mutex<Option<Process>>,
}

impl Postgres {
    pub fn configure(version: u16) -> Builder {
        Builder { version, settings: Vec::new(), hba: TRUST.to_owned(), identity: None, language: None }
    }

    /// A private server with settings such as `"wal_sender_timeout=0"`.
    pub fn start(version: u16, settings: &[&str]) -> Postgres {
        let mut builder = Postgres::configure(version);
        for setting in settings {
            let (name, value) = setting.split_once('=').expect("a setting is name=value");
            builder = builder.set(name, value);
        }
        builder.start()
    }

    /// The one server of this version that tests share; each takes a [`Database`] of its own.
    pub fn shared(version: u16) -> &'static Postgres {
        static SERVERS: [OnceLock<Postgres>; VERSIONS.len()] = [const { OnceLock::new() }; VERSIONS.len()];
        let place = VERSIONS.iter().position(|v| *v == version).expect("a supported version");
        SERVERS[place].get_or_init(|| Postgres::start(version, &[]))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the Unix socket, and the `host` of a connection through it.
    pub fn socket_folder(&self) -> &Path {
        &self.folder
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// A superuser's session, through the Unix socket.
    pub fn session(&self, database: &str) -> Session {
        self.try_session(database).unwrap_or_else(|error| panic!("{error}\n{}", tail(&self.log_path())))
    }

    /// The same, where the server may be away.
    pub fn try_session(&self, database: &str) -> Result<Session, tokio_postgres::Error> {
        let mut config = Config::new();
        config.host_path(&self.folder).port(self.port).user("postgres").dbname(database).application_name("e2e");
        Session::open(&config)
    }

    /// Runs statements in the database `postgres`.
    pub fn sql(&self, sql: &str) {
        self.session("postgres").run(sql);
    }

    /// A new database of this server, dropped with its slots at the end. No other database of the process, on whatever
    /// server, has its name, so that slots and topics can be named after it.
    pub fn database(&self) -> Database<'_> {
        self.database_with("")
    }

    /// A database that came with a copy of the server that made it.
    pub fn copied_database(&self, name: &str) -> Database<'_> {
        Database { server: self, name: name.to_owned() }
    }

    /// As [`Postgres::database`], with options of CREATE DATABASE such as `ENCODING 'LATIN1' TEMPLATE template0`.
    pub fn database_with(&self, options: &str) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("db_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("CREATE DATABASE {name} {options}"));
        Database { server: self, name }
    }

    /// Asks the server to stop and waits; gives the time that took.
    pub fn stop(&self, mode: Mode, within: Duration) -> Duration {
        let asked = Instant::now();
        self.request_stop(mode);
        let process = self.process().take().expect("it was running");
        process.wait(within);
        asked.elapsed()
    }

    /// Asks the server to stop and returns at once.
    pub fn request_stop(&self, mode: Mode) {
        let signal = match mode {
            Mode::Smart => Signal::Term,
            Mode::Fast => Signal::Int,
            Mode::Immediate => Signal::Quit,
        };
        self.process().as_ref().expect("it is running").signal(signal);
    }

    /// Kills the postmaster outright; its children notice and end.
    pub fn crash(&self) {
        let process = self.process().take().expect("it was running");
        process.signal(Signal::Kill);
        process.wait(PATIENCE);
    }

    /// Starts a stopped or crashed server on the same port, and waits until it takes connections.
    pub fn start_again(&self) {
        eventually(PATIENCE, &format!("PostgreSQL on port {} starts", self.port), || {
            let mut process = self.process();
            if process.as_ref().is_none_or(|process| process.exit_code().is_some()) {
                // At first, or again: after a crash the server refuses to start while a child of the last one lives.
                *process = Some(self.launch());
            }
            self.try_session("postgres").ok()
        });
    }

    /// A copy of the data folder, slots included, as a server that is not started yet. This one is stopped for it, and runs on
    /// afterwards.
    pub fn copy(&self) -> Postgres {
        self.stop(Mode::Fast, PATIENCE);
        let folder = scratch::folder("postgres-copy");
        let data = folder.join("data");
        run("cp", [OsString::from("-a"), self.data.clone().into(), data.clone().into()]);
        self.start_again();
        USER.give(&folder);
        let copy = Postgres {
            port: scratch::port(),
            programs: self.programs.clone(),
            data,
            folder,
            language: self.language,
            process: Mutex::new(None),
        };
        copy.set(&[&format!("port={}", copy.port), &format!("unix_socket_directories={}", copy.folder.display())]);
        copy
    }

    /// A running standby of this server: it has none of its slots, as after pg_basebackup.
    pub fn standby(&self, settings: &[&str]) -> Postgres {
        let standby = self.copy();
        for slot in fs::read_dir(standby.data.join("pg_replslot")).expect("every server has it") {
            fs::remove_dir_all(slot.expect("it can be listed").path()).expect("it is a folder");
        }
        let primary = format!("host={} port={} user=postgres dbname=postgres", self.folder.display(), self.port);
        standby.set(&[&format!("primary_conninfo={primary}")]);
        standby.set(settings);
        standby.write("standby.signal", "");
        standby.start_again();
        standby
    }

    /// Starts a copy that replays the log of `origin` up to a restore point, and goes its own way from there.
    pub fn recover_to(&self, origin: &Postgres, restore_point: &str) {
        self.set(&[
            &format!("restore_command=cp {}/pg_wal/%f %p", origin.data.display()),
            &format!("recovery_target_name={restore_point}"),
            "recovery_target_action=promote",
        ]);
        self.write("recovery.signal", "");
        self.start_again();
        self.writable();
    }

    /// Waits until a standby has all that is committed on its primary now.
    pub fn follows(&self, primary: &Postgres) {
        let end: String = primary.session("postgres").get("SELECT pg_current_wal_lsn()::text");
        let session = self.session("postgres");
        let there = format!("SELECT pg_last_wal_replay_lsn() >= '{end}'");
        eventually(PATIENCE, "the standby follows", || (session.value(&there).as_deref() == Some("t")).then_some(()));
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.sql("SELECT pg_promote()");
        self.writable();
    }

    fn writable(&self) {
        eventually(PATIENCE, "the server is no standby any more", || {
            let session = self.try_session("postgres").ok()?;
            (session.value("SELECT pg_is_in_recovery()").as_deref() == Some("f")).then_some(())
        });
    }

    /// Further settings, such as `"wal_sender_timeout=0"`, from the next start on.
    fn set(&self, settings: &[&str]) {
        let mut conf = fs::read_to_string(self.data.join("postgresql.conf")).expect("the server has one");
        for setting in settings {
            let (name, value) = setting.split_once('=').expect("a setting is name=value");
            conf += &format!("{name} = '{value}'\n");
        }
        self.write("postgresql.conf", &conf);
    }

    pub fn restart(&self) {
        self.stop(Mode::Fast, PATIENCE);
        self.start_again();
    }

    pub fn reload(&self) {
        self.process().as_ref().expect("it is running").signal(Signal::Hup);
    }

    /// Presents another certificate from the next connection on.
    pub fn present(&self, identity: &Identity) {
        let session = self.session("postgres");
        let before: String = session.get("SELECT pg_conf_load_time()::text");
        self.write_identity(identity);
        self.reload();
        eventually(PATIENCE, "the server reads its certificate again", || {
            let now: String = self.session("postgres").get("SELECT pg_conf_load_time()::text");
            (now != before).then_some(())
        });
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn launch(&self) -> Process {
        let mut command = USER.become_it();
        command.extend([self.programs.join("postgres").into(), "-D".into(), self.data.clone().into()]);
        let mut environment = vec![("LC_ALL".into(), "C".into())];
        environment.extend(self.language.map(|language| ("LANGUAGE".into(), language.into())));
        Process::start(&Launch {
            name: format!("PostgreSQL on port {}", self.port),
            command,
            environment,
            folder: self.folder.clone(),
            log: self.log_path(),
            last_signal: Signal::Quit,
        })
    }

    fn write_identity(&self, identity: &Identity) {
        self.write("server.crt", &identity.certificate);
        self.write("server.key", &identity.key);
    }

    /// A file of the data folder, readable by the server alone.
    fn write(&self, name: &str, text: &str) {
        let path = self.data.join(name);
        fs::write(&path, text).expect("the data folder is writable");
        run("chmod", [OsString::from("600"), path.clone().into()]);
        USER.give(&path);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A database of one test.
pub struct Database<'a> {
    pub server: &'a Postgres,
    pub name: String,
}

impl Database<'_> {
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    pub fn session(&self) -> Session {
        self.server.session(&self.name)
    }

    pub fn sql(&self, sql: &str) {
        self.session().run(sql);
    }
}

/// A slot would hold the shared server's WAL for ever.
impl Drop for Database<'_> {
    fn drop(&mut self) {
        let Ok(session) = self.server.try_session("postgres") else { return };
        let name = &self.name;
        let ended = eventually_quiet(Duration::from_secs(10), || {
            session.try_run(&format!(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '{name}' AND active;
                 SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{name}'"
            ))
        });
        let dropped = ended.and_then(|()| session.try_run(&format!("DROP DATABASE {name} WITH (FORCE)")));
        assert!(dropped.is_ok() || std::thread::panicking(), "{name} cannot be dropped: {dropped:?}");
    }
}

/// As [`eventually`] without a panic: for drops.
fn eventually_quiet<E>(within: Duration, mut attempt: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let end = Instant::now() + within;
    loop {
        let result = attempt();
        if result.is_ok() || Instant::now() > end {
            return result;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

static USER: LazyLock<ServerUser> = LazyLock::new(ServerUser::find);

fn programs(version: u16) -> PathBuf {
    let programs = scratch::cache().join(format!("postgres/{version}/bin"));
    assert!(
        programs.join("postgres").exists(),
        "there is no PostgreSQL {version} in {}; run: scripts/provision.sh postgres {version}",
        scratch::cache().display()
    );
    programs
}

/// A fresh data folder of this exact version, made once and kept in the cache: copying is faster than initdb. Servers
/// copied from it share a system identifier.
fn template(version: u16, programs: &Path) -> PathBuf {
    static READY: Mutex<Option<HashMap<u16, PathBuf>>> = Mutex::new(None);
    let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
    let ready = ready.get_or_insert_with(HashMap::new);
    if let Some(template) = ready.get(&version) {
        return template.clone();
    }
    let exact =
        run(programs.join("postgres"), ["--version"]).replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
    let template = scratch::cache().join("initdb").join(exact);
    if !template.exists() {
        let made = scratch::folder("initdb");
        USER.give(&made);
        let mut command = USER.become_it();
        command.extend([programs.join("initdb").into(), "-D".into(), made.join("data").into()]);
        command.extend(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"].map(OsString::from));
        let mut words = command.into_iter();
        let first = words.next().expect("initdb at least");
        run(first, words);
        fs::create_dir_all(template.parent().expect("it has one")).expect("the cache is writable");
        // Another process may have been faster: then its folder stays, whole, and ours is not needed.
        let partial = template.with_extension(format!("partial-{}", std::process::id()));
        run("cp", [OsString::from("-a"), made.join("data").into(), partial.clone().into()]);
        if fs::rename(&partial, &template).is_err() {
            fs::remove_dir_all(&partial).expect("it is ours");
        }
    }
    ready.insert(version, template.clone());
    template
}
