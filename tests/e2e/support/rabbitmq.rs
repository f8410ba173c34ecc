//! RabbitMQ: one private node, without plugins, on loopback ports of its own.
//!
//! Erlang's nodes find each other by epmd, which would run as a daemon that outlives everyone: the tests have one of
//! their own, under guard like any other server.

use std::{
    ffi::OsString,
    fmt::Write,
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{
        LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    certificates::Identity,
    eventually,
    process::{Launch, Process, Signal, clean},
    scratch,
};

/// How long a node may take to start on a busy machine, or to stop.
const PATIENCE: Duration = Duration::from_secs(90);

/// Of the default user, who may do all.
const USER: &str = "walpost";
const PASSWORD: &str = "hush";

/// Two schedulers, whatever the machine has: many nodes run beside each other.
const ERLANG: &str = "-noinput +S 2:2 -kernel inet_dist_use_interface {127,0,0,1}";

/// A node to be started.
pub struct Builder {
    settings: Vec<(String, String)>,
    identity: Option<(Identity, String)>,
}

impl Builder {
    /// A line of rabbitmq.conf.
    pub fn set(mut self, setting: &str, value: &str) -> Builder {
        self.settings.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// It listens for TLS too, with this identity; who connects may show a certificate of `authority`, in PEM.
    pub fn tls(self, identity: Identity, authority: &str) -> Builder {
        Builder { identity: Some((identity, authority.to_owned())), ..self }
    }

    pub fn start(self) -> RabbitMq {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = scratch::folder("rabbitmq");
        for name in ["home", "mnesia", "log"] {
            fs::create_dir(folder.join(name)).expect("the folder is new");
        }
        let node = format!("walpost-{}-{}@localhost", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let rabbit = RabbitMq {
            node,
            port: scratch::port(),
            tls_port: self.identity.is_some().then(scratch::port),
            distribution: scratch::port(),
            folder,
            process: Mutex::new(None),
        };
        rabbit.write("enabled_plugins", "[].\n");
        rabbit.write("rabbitmq.conf", &self.conf(&rabbit));
        rabbit.start_again();
        rabbit
    }

    fn conf(&self, rabbit: &RabbitMq) -> String {
        let mut conf = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nlog.console = true\nlog.console.level = info\nlog.file = false\n\
             default_user = {USER}\ndefault_pass = {PASSWORD}\n",
            rabbit.port
        );
        if let (Some((identity, authority)), Some(port)) = (&self.identity, rabbit.tls_port) {
            rabbit.write("authority.pem", authority);
            rabbit.write("certificate.pem", &identity.certificate);
            rabbit.write("key.pem", &identity.key);
            writeln!(conf, "listeners.ssl.1 = 127.0.0.1:{port}").expect("a String takes any text");
            for (option, file) in [("cacertfile", "authority"), ("certfile", "certificate"), ("keyfile", "key")] {
                let path = rabbit.folder.join(format!("{file}.pem"));
                writeln!(conf, "ssl_options.{option} = {}", path.display()).expect("a String takes any text");
            }
            conf += "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\n";
        }
        for (setting, value) in &self.settings {
            writeln!(conf, "{setting} = {value}").expect("a String takes any text");
        }
        conf
    }
}

/// A running node; dropping it ends it.
pub struct RabbitMq {
    node: String,
    port: u16,
    tls_port: Option<u16>,
    /// Where `rabbitmqctl` reaches it.
    distribution: u16,
    folder: PathBuf,
    process: Mutex<Option<Process>>,
}

impl RabbitMq {
    pub fn configure() -> Builder {
        Builder { settings: Vec::new(), identity: None }
    }

    pub fn start() -> RabbitMq {
        RabbitMq::configure().start()
    }

    /// The one node that tests share; each takes a [virtual host](RabbitMq::vhost) of its own.
    pub fn shared() -> &'static RabbitMq {
        static NODE: OnceLock<RabbitMq> = OnceLock::new();
        NODE.get_or_init(RabbitMq::start)
    }

    /// The default user in the default virtual host.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, "/")
    }

    pub fn url_of(&self, user: &str, password: &str, vhost: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/{}", self.port, vhost.replace('/', "%2f"))
    }

    /// The default user by TLS, to this name of the host.
    pub fn tls_url(&self, host: &str) -> String {
        format!("amqps://{USER}:{PASSWORD}@{host}:{}", self.tls_port.expect("the node has TLS"))
    }

    /// A new virtual host, and the default user's URL of it.
    pub fn vhost(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("vhost-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.control(&["add_vhost", &name]);
        self.control(&["set_permissions", "-p", &name, USER, ".*", ".*", ".*"]);
        self.url_of(USER, PASSWORD, &name)
    }

    /// A user who may configure, write and read what these three patterns say, in the default virtual host.
    pub fn add_user(&self, name: &str, password: &str, rights: [&str; 3]) {
        self.control(&["add_user", name, password]);
        self.allow(name, rights);
    }

    pub fn allow(&self, user: &str, [configure, write, read]: [&str; 3]) {
        self.control(&["set_permissions", "-p", "/", user, configure, write, read]);
    }

    /// Whether the node is to think that it is short of memory, as it then blocks all who publish.
    pub fn alarm(&self, on: bool) {
        self.control(&["set_vm_memory_high_watermark", if on { "0.0000001" } else { "0.4" }]);
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::Stop);
    }

    pub fn resume(&self) {
        self.signal(Signal::Cont);
    }

    pub fn stop(&self) {
        self.end(Signal::Term);
    }

    pub fn kill(&self) {
        self.end(Signal::Kill);
    }

    /// Starts it on the same ports with the same data, and waits until it takes connections.
    pub fn start_again(&self) {
        *self.process() = Some(self.launch());
        eventually(PATIENCE, "RabbitMQ takes connections", || {
            let process = self.process();
            let process = process.as_ref().expect("it was started");
            assert!(process.exit_code().is_none(), "RabbitMQ has ended\n{}", process.log());
            // The last of its listeners to open.
            TcpStream::connect(("127.0.0.1", self.tls_port.unwrap_or(self.port))).ok()
        });
    }

    /// Runs `rabbitmqctl`; gives what it prints.
    pub fn control(&self, arguments: &[&str]) -> String {
        let mut command = clean(program("rabbitmqctl"));
        command.arg("--quiet").args(arguments).envs(self.environment());
        let output = command.output().expect("rabbitmqctl can be run");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "rabbitmqctl {} failed\n{out}{err}", arguments.join(" "));
        out.trim_end().to_owned()
    }

    fn launch(&self) -> Process {
        Process::start(&Launch {
            name: format!("RabbitMQ on port {}", self.port),
            command: vec![program("rabbitmq-server").into_os_string()],
            environment: self.environment(),
            folder: self.folder.clone(),
            log: self.folder.join("output"),
            last_signal: Signal::Kill,
        })
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = |name: &str| self.folder.join(name).into_os_string();
        // One port for each `rabbitmqctl` that runs at once.
        let control = scratch::port().to_string();
        [
            ("HOME", path("home")),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("ERL_EPMD_PORT", names().to_string().into()),
            ("RABBITMQ_NODENAME", self.node.clone().into()),
            ("RABBITMQ_DIST_PORT", self.distribution.to_string().into()),
            ("RABBITMQ_CTL_DIST_PORT_MIN", control.clone().into()),
            ("RABBITMQ_CTL_DIST_PORT_MAX", control.into()),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
            ("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", path("enabled_plugins")),
            ("RABBITMQ_MNESIA_BASE", path("mnesia")),
            ("RABBITMQ_LOG_BASE", path("log")),
            // The shell becomes the node, so that signals reach it.
            ("RABBITMQ_ALLOW_INPUT", "1".into()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG.into()),
        ]
        .map(|(name, value)| (name.into(), value))
        .into()
    }

    fn end(&self, signal: Signal) {
        self.signal(signal);
        self.process().take().expect("it was running").wait(PATIENCE);
    }

    fn signal(&self, signal: Signal) {
        self.process().as_ref().expect("it is running").signal(signal);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("the folder is ours");
    }
}

/// The port of epmd, by which the nodes of this process are found.
fn names() -> u16 {
    static EPMD: LazyLock<(u16, Process)> = LazyLock::new(|| {
        let (port, folder) = (scratch::port(), scratch::folder("epmd"));
        let process = Process::start(&Launch {
            name: "epmd".to_owned(),
            command: ["epmd", "-address", "127.0.0.1", "-port", &port.to_string()].map(OsString::from).into(),
            environment: Vec::new(),
            log: folder.join("output"),
            folder,
            last_signal: Signal::Kill,
        });
        eventually(PATIENCE, "epmd answers", || TcpStream::connect(("127.0.0.1", port)).ok());
        (port, process)
    });
    EPMD.0
}

fn program(name: &str) -> PathBuf {
    let programs = scratch::cache().join("rabbitmq").join("sbin");
    assert!(
        Path::new(&programs).exists(),
        "there is no RabbitMQ in {}; run: scripts/provision.sh rabbitmq",
        scratch::cache().display()
    );
    programs.join(name)
}
