//! Kafka brokers: one node that is broker and controller, and a ghost.
//!
//! The ghost is a second broker that registered once and never runs. A topic with a replica on it can be blocked and
//! unblocked by `min.insync.replicas` while all other topics of the same broker go on: see [`Kafka::block`].

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};

use super::{
    certificates::Identity,
    eventually,
    process::{Launch, Process, Signal, run},
    scratch,
};

/// How long a broker may take to start on a busy machine, or to stop.
const PATIENCE: Duration = Duration::from_secs(90);

/// One broker is a cluster here, and restarts are quick.
const PROPERTIES: &str = "\
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
";

/// A broker to be started.
pub struct Builder {
    properties: Vec<(String, String)>,
    clients: &'static str,
    identity: Option<Identity>,
}

impl Builder {
    /// A property of server.properties.
    pub fn set(mut self, property: &str, value: &str) -> Builder {
        self.properties.push((property.to_owned(), value.to_owned()));
        self
    }

    /// Clients must speak TLS with this identity and log in by SCRAM-SHA-512: see [`Kafka::add_user`].
    pub fn sasl_tls(self, identity: Identity) -> Builder {
        Builder { clients: "SASL_SSL", identity: Some(identity), ..self }.scram()
    }

    /// Clients must log in by SCRAM-SHA-512 and may do only what [`Kafka::allow`] allows them.
    pub fn access_lists(self) -> Builder {
        Builder { clients: "SASL_PLAINTEXT", ..self }
            .scram()
            .set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
            .set("super.users", "User:ANONYMOUS")
    }

    fn scram(self) -> Builder {
        self.set("listener.name.clients.sasl.enabled.mechanisms", "SCRAM-SHA-512").set(
            "listener.name.clients.scram-sha-512.sasl.jaas.config",
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        )
    }

    pub fn start(self) -> Kafka {
        let folder = scratch::folder("kafka");
        run("cp", [OsString::from("-a"), template().into(), folder.join("data").into()]);
        let ports = Ports { clients: scratch::port(), internal: scratch::port(), controller: scratch::port() };
        let mut properties = ports.properties(Node::Real, self.clients, &folder);
        for (property, value) in &self.properties {
            properties += &format!("{property}={value}\n");
        }
        if let Some(identity) = &self.identity {
            let store = folder.join("identity.pem");
            fs::write(&store, format!("{}{}", identity.key, identity.certificate)).expect("the folder is ours");
            properties += &format!(
                "listener.name.clients.ssl.keystore.type=PEM\nlistener.name.clients.ssl.keystore.location={}\n",
                store.display()
            );
        }
        fs::write(folder.join("server.properties"), properties).expect("the folder is ours");
        let kafka = Kafka { ports, folder, process: Mutex::new(None) };
        kafka.start_again();
        kafka
    }
}

/// A running broker; dropping it ends it.
pub struct Kafka {
    ports: Ports,
    folder: PathBuf,
    process: Mutex<Option<Process>>,
}

impl Kafka {
    pub fn configure() -> Builder {
        Builder { properties: Vec::new(), clients: "PLAINTEXT", identity: None }
    }

    pub fn start() -> Kafka {
        Kafka::configure().start()
    }

    /// The one broker that tests share; each uses topics of its own.
    pub fn shared() -> &'static Kafka {
        static BROKER: OnceLock<Kafka> = OnceLock::new();
        BROKER.get_or_init(Kafka::start)
    }

    /// Where clients connect.
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.ports.clients)
    }

    /// Where the tests themselves connect, whatever clients must do.
    pub(super) fn internal(&self) -> String {
        format!("127.0.0.1:{}", self.ports.internal)
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::Stop);
    }

    pub fn resume(&self) {
        self.signal(Signal::Cont);
    }

    pub fn stop(&self) {
        self.signal(Signal::Term);
        self.process().take().expect("it was running").wait(PATIENCE);
    }

    pub fn kill(&self) {
        self.signal(Signal::Kill);
        self.process().take().expect("it was running").wait(PATIENCE);
    }

    /// Starts it on the same ports with the same data, and waits until it answers.
    pub fn start_again(&self) {
        *self.process() = Some(broker(&self.folder, "server.properties"));
        let client: BaseConsumer = self.client().create().expect("the configuration is complete");
        eventually(PATIENCE, "Kafka answers", || {
            let process = self.process();
            let process = process.as_ref().expect("it was started");
            assert!(process.exit_code().is_none(), "Kafka has ended\n{}", process.log());
            let metadata = client.fetch_metadata(None, Duration::from_secs(1)).ok()?;
            metadata.brokers().iter().any(|broker| broker.id() == Node::Real.id()).then_some(())
        });
    }

    /// Runs one of Kafka's own command-line tools against this broker, as a superuser.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> String {
        let mut command = java("-Xmx128m");
        command.extend([class, "--bootstrap-server", &self.internal()].map(OsString::from));
        command.extend(arguments.iter().map(OsString::from));
        run("java", command)
    }

    pub fn add_user(&self, name: &str, password: &str) {
        let credential = format!("SCRAM-SHA-512=[iterations=4096,password={password}]");
        let arguments = ["--alter", "--entity-type", "users", "--entity-name", name, "--add-config", &credential];
        self.tool("kafka.admin.ConfigCommand", &arguments);
    }

    /// Adds to the access lists; `right` is what the AclCommand tool takes, such as
    /// `["--operation", "Write", "--topic", "orders"]`.
    pub fn allow(&self, user: &str, right: &[&str]) {
        self.access("--add", user, right);
    }

    pub fn disallow(&self, user: &str, right: &[&str]) {
        self.access("--remove", user, &[right, &["--force"]].concat());
    }

    fn access(&self, change: &str, user: &str, right: &[&str]) {
        let principal = format!("User:{user}");
        let arguments = [&[change, "--allow-principal", &principal], right].concat();
        self.tool("org.apache.kafka.tools.AclCommand", &arguments);
    }

    /// A client of the tests.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.internal()).set("reconnect.backoff.max.ms", "250").set("log_level", "0");
        config
    }

    fn signal(&self, signal: Signal) {
        self.process().as_ref().expect("it is running").signal(signal);
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy)]
enum Node {
    Real,
    Ghost,
}

impl Node {
    fn id(self) -> i32 {
        match self {
            Node::Real => 1,
            Node::Ghost => 2,
        }
    }
}

/// Clients, the tests and the controller each have a listener.
struct Ports {
    clients: u16,
    internal: u16,
    controller: u16,
}

impl Ports {
    fn properties(&self, node: Node, clients: &str, folder: &Path) -> String {
        let Ports { clients: port, internal, controller } = self;
        let listeners = format!("CLIENTS://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}");
        let (roles, listeners, data) = match node {
            Node::Real => ("broker,controller", format!("{listeners},CONTROLLER://127.0.0.1:{controller}"), "data"),
            Node::Ghost => ("broker", listeners, "ghost"),
        };
        format!(
            "process.roles={roles}\nnode.id={}\nlisteners={listeners}\nlog.dirs={}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listener.security.protocol.map=CLIENTS:{clients},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n{PROPERTIES}",
            node.id(),
            folder.join(data).display(),
        )
    }
}

fn libraries() -> PathBuf {
    let libraries = scratch::cache().join("kafka");
    assert!(
        libraries.exists(),
        "there is no Kafka in {}; run: scripts/provision.sh servers",
        scratch::cache().display()
    );
    libraries
}

/// Arguments of `java` up to the class. One compiler and a plain collector: starting matters more than the top speed.
fn java(memory: &str) -> Vec<OsString> {
    let mut classes = libraries().join("*").into_os_string();
    let mut words =
        [memory, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]
            .map(OsString::from)
            .to_vec();
    words.push(std::mem::take(&mut classes));
    words
}

fn broker(folder: &Path, properties: &str) -> Process {
    let mut command = vec![OsString::from("java")];
    command.extend(java("-Xmx512m"));
    command.extend(["kafka.Kafka", properties].map(OsString::from));
    Process::start(&Launch {
        name: format!("Kafka of {}", folder.display()),
        command,
        environment: Vec::new(),
        folder: folder.to_owned(),
        log: folder.join("log"),
        last_signal: Signal::Kill,
    })
}

/// A formatted data folder that knows the ghost, made once for each version of Kafka and kept in the cache. Clusters
/// copied from it share a cluster id.
fn template() -> PathBuf {
    static READY: Mutex<()> = Mutex::new(());
    let _one_at_a_time = READY.lock().unwrap_or_else(PoisonError::into_inner);
    let version = fs::canonicalize(libraries()).expect("it exists");
    let version = version.file_name().expect("it has a name").to_string_lossy().into_owned();
    let template = scratch::cache().join(format!("{version}-data"));
    if !template.exists() {
        let made = make_template();
        let partial = template.with_extension(format!("partial-{}", std::process::id()));
        run("cp", [OsString::from("-a"), made.into(), partial.clone().into()]);
        // Another process may have been faster: then its folder stays, whole, and ours is not needed.
        if fs::rename(&partial, &template).is_err() {
            fs::remove_dir_all(&partial).expect("it is ours");
        }
    }
    template
}

fn make_template() -> PathBuf {
    let folder = scratch::folder("kafka-template");
    let controller = scratch::port();
    let mut cluster = java("-Xmx128m");
    cluster.extend(["kafka.tools.StorageTool", "random-uuid"].map(OsString::from));
    let cluster = run("java", cluster);
    for (node, file) in [(Node::Real, "server.properties"), (Node::Ghost, "ghost.properties")] {
        let ports = Ports { clients: scratch::port(), internal: scratch::port(), controller };
        let path = folder.join(file);
        fs::write(&path, ports.properties(node, "PLAINTEXT", &folder)).expect("the folder is ours");
        let mut format = java("-Xmx128m");
        format.extend(["kafka.tools.StorageTool", "format", "-t", &cluster, "-c"].map(OsString::from));
        format.push(path.into());
        run("java", format);
        if matches!(node, Node::Real) {
            continue;
        }
        let real = broker(&folder, "server.properties");
        let ghost = broker(&folder, "ghost.properties");
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", ports.internal)).set("log_level", "0");
        let client: BaseConsumer = config.create().expect("the configuration is complete");
        eventually(PATIENCE, "both brokers of the template are registered", || {
            for process in [&real, &ghost] {
                assert!(process.exit_code().is_none(), "Kafka has ended\n{}", process.log());
            }
            (client.fetch_metadata(None, Duration::from_secs(1)).ok()?.brokers().len() == 2).then_some(())
        });
        for process in [ghost, real] {
            process.signal(Signal::Term);
            process.wait(PATIENCE);
        }
    }
    folder.join("data")
}
