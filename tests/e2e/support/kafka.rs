//! Kafka: a cluster of one broker and a ghost, or of three.
//!
//! The ghost is a second broker that registered once and never runs. A topic with a replica on it can be blocked and
//! unblocked by `min.insync.replicas` while all other topics of the same broker go on: see [`Kafka::block`].

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};

use super::{
    broker::{Broker, Node, PATIENCE, client, java, launch, libraries},
    certificates::Identity,
    eventually,
    process::{Signal, run},
    scratch,
};

/// Every partition has a replica on each of three brokers, and two must have a record before it is acknowledged.
/// Leaders return soon to where they were before a restart.
const REPLICATED: [(&str, &str); 8] = [
    ("default.replication.factor", "3"),
    ("min.insync.replicas", "2"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("share.coordinator.state.topic.replication.factor", "3"),
    ("share.coordinator.state.topic.min.isr", "2"),
    ("leader.imbalance.check.interval.seconds", "1"),
];

/// A cluster to be started.
pub struct Builder {
    size: i32,
    properties: Vec<(String, String)>,
    clients: &'static str,
    identity: Option<Identity>,
    front: Option<u16>,
}

impl Builder {
    /// A property of server.properties.
    pub fn set(mut self, property: &str, value: &str) -> Builder {
        self.properties.push((property.to_owned(), value.to_owned()));
        self
    }

    /// Three brokers rather than one.
    pub fn three(self) -> Builder {
        REPLICATED.iter().fold(Builder { size: 3, ..self }, |builder, (name, value)| builder.set(name, value))
    }

    /// The one broker names this port to clients: that of a proxy which leads to [`Broker::port`].
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn behind(self, port: u16) -> Builder {
        Builder { front: Some(port), ..self }
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
        let nodes: Vec<Node> = (1..=self.size).map(Node::new).collect();
        let kafka = Kafka { brokers: nodes.iter().map(|node| self.broker(*node, &nodes)).collect() };
        kafka.start_again();
        kafka
    }

    fn broker(&self, node: Node, nodes: &[Node]) -> Broker {
        let folder = scratch::folder("kafka");
        let (formatted, data) = (template(self.size).join(node.id.to_string()), folder.join("data"));
        run("cp", [OsString::from("-a"), formatted.into(), data.clone().into()]);
        let mut properties = node.properties(nodes, self.clients, &data);
        if let Some(port) = self.front {
            properties += &format!("advertised.listeners=CLIENTS://127.0.0.1:{port},INTERNAL://{}\n", node.internal());
        }
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
        Broker::new(node, folder, heap(self.size))
    }
}

/// A running cluster; dropping it ends it.
pub struct Kafka {
    brokers: Vec<Broker>,
}

impl Kafka {
    pub fn configure() -> Builder {
        Builder { size: 1, properties: Vec::new(), clients: "PLAINTEXT", identity: None, front: None }
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
        self.brokers.iter().map(Broker::clients).collect::<Vec<_>>().join(",")
    }

    /// One of them; they are numbered from 1.
    pub fn broker(&self, id: i32) -> &Broker {
        self.brokers.iter().find(|broker| broker.id() == id).expect("the cluster has so many")
    }

    /// On how many brokers each partition is.
    pub(super) fn replication(&self) -> i32 {
        i32::try_from(self.brokers.len()).expect("a few")
    }

    /// Stops all processes in their tracks (SIGSTOP): connections stay, nothing answers.
    pub fn pause(&self) {
        self.brokers.iter().for_each(Broker::pause);
    }

    pub fn resume(&self) {
        self.brokers.iter().for_each(Broker::resume);
    }

    pub fn stop(&self) {
        self.brokers.iter().for_each(Broker::stop);
    }

    pub fn kill(&self) {
        self.brokers.iter().for_each(Broker::kill);
    }

    /// Starts all on the same ports with the same data, and waits until they answer.
    pub fn start_again(&self) {
        // None answers before most controllers are there.
        self.brokers.iter().for_each(Broker::launch);
        self.brokers.iter().for_each(Broker::answers);
    }

    /// Runs one of Kafka's own command-line tools against the cluster, as a superuser.
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
        client(&self.internal())
    }

    fn internal(&self) -> String {
        self.brokers.iter().map(Broker::internal).collect::<Vec<_>>().join(",")
    }
}

/// Most heap of each broker, as an argument of `java`.
fn heap(size: i32) -> &'static str {
    if size == 1 { "-Xmx512m" } else { "-Xmx256m" }
}

/// The formatted data of a cluster of this size, a folder for each node's number, made once for each version of Kafka
/// and kept in the cache. Clusters copied from it share a cluster id.
fn template(size: i32) -> PathBuf {
    static READY: Mutex<()> = Mutex::new(());
    let _one_at_a_time = READY.lock().unwrap_or_else(PoisonError::into_inner);
    let version = fs::canonicalize(libraries()).expect("it exists");
    let version = version.file_name().expect("it has a name").to_string_lossy().into_owned();
    let template = scratch::cache().join(format!("{version}-data-of-{size}"));
    if !template.exists() {
        let made = make_template(size);
        let partial = template.with_extension(format!("partial-{}", std::process::id()));
        run("cp", [OsString::from("-a"), made.into(), partial.clone().into()]);
        // Another process may have been faster: then its folder stays, whole, and ours is not needed.
        if fs::rename(&partial, &template).is_err() {
            fs::remove_dir_all(&partial).expect("it is ours");
        }
    }
    template
}

fn make_template(size: i32) -> PathBuf {
    let folder = scratch::folder("kafka-template");
    let data = folder.join("data");
    let mut cluster = java("-Xmx128m");
    cluster.extend(["kafka.tools.StorageTool", "random-uuid"].map(OsString::from));
    let cluster = run("java", cluster);
    let voters: Vec<Node> = (1..=size).map(Node::new).collect();
    let format = |node: Node| {
        let file = format!("{}.properties", node.id);
        let properties = node.properties(&voters, "PLAINTEXT", &data.join(node.id.to_string()));
        fs::write(folder.join(&file), properties).expect("the folder is ours");
        let mut format = java("-Xmx128m");
        format.extend(["kafka.tools.StorageTool", "format", "-t", &cluster, "-c"].map(OsString::from));
        format.push(folder.join(&file).into());
        run("java", format);
        file
    };
    let files: Vec<String> = voters.iter().copied().map(format).collect();
    if let [real] = &files[..] {
        // The ghost registers, for once.
        let node = Node::new(2);
        let ghost = launch(&folder, &format(node), heap(size));
        let real = launch(&folder, real, heap(size));
        let client: BaseConsumer =
            client(&format!("127.0.0.1:{}", node.internal)).create().expect("the configuration is complete");
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
    data
}
