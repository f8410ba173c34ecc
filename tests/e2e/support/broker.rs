//! One node of Kafka: its ports, its data, its process.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    consumer::{BaseConsumer, Consumer},
};

use super::{
    eventually,
    process::{Launch, Process, Signal},
    scratch,
};

/// How long a broker may take to start on a busy machine, or to stop.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Nothing is replicated unless more is said, and restarts are quick.
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

/// A number in the cluster, and a port for each listener: clients', the tests' own, the controller's.
#[derive(Clone, Copy)]
pub(super) struct Node {
    pub(super) id: i32,
    pub(super) clients: u16,
    pub(super) internal: u16,
    pub(super) controller: u16,
}

impl Node {
    pub(super) fn new(id: i32) -> Node {
        Node { id, clients: scratch::port(), internal: scratch::port(), controller: scratch::port() }
    }

    /// Where the tests themselves connect, whatever clients must do.
    pub(super) fn internal(&self) -> String {
        format!("127.0.0.1:{}", self.internal)
    }

    /// What its server.properties begin with. Those who are among the `voters` are controllers too.
    pub(super) fn properties(&self, voters: &[Node], clients: &str, data: &Path) -> String {
        let Node { id, clients: port, internal: _, controller } = self;
        let brokers = format!("CLIENTS://127.0.0.1:{port},INTERNAL://{}", self.internal());
        let (roles, listeners) = match voters.iter().any(|voter| voter.id == *id) {
            true => ("broker,controller", format!("{brokers},CONTROLLER://127.0.0.1:{controller}")),
            false => ("broker", brokers),
        };
        let voters: Vec<_> =
            voters.iter().map(|voter| format!("{}@127.0.0.1:{}", voter.id, voter.controller)).collect();
        format!(
            "process.roles={roles}\nnode.id={id}\nlisteners={listeners}\nlog.dirs={}\n\
             controller.quorum.voters={}\n\
             listener.security.protocol.map=CLIENTS:{clients},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT\n{PROPERTIES}",
            data.display(),
            voters.join(",")
        )
    }
}

/// A broker, which is a controller too; dropping it ends it.
pub struct Broker {
    node: Node,
    folder: PathBuf,
    /// Its most heap, as an argument of `java`.
    heap: &'static str,
    process: Mutex<Option<Process>>,
}

impl Broker {
    /// One that does not run yet; `folder` has its server.properties and its data.
    pub(super) fn new(node: Node, folder: PathBuf, heap: &'static str) -> Broker {
        Broker { node, folder, heap, process: Mutex::new(None) }
    }

    /// Its number in the cluster.
    pub fn id(&self) -> i32 {
        self.node.id
    }

    /// Stops the process in its tracks (SIGSTOP): connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::Stop);
    }

    pub fn resume(&self) {
        self.signal(Signal::Cont);
    }

    /// It hands over what it leads, and ends.
    pub fn stop(&self) {
        self.end(Signal::Term);
    }

    pub fn kill(&self) {
        self.end(Signal::Kill);
    }

    /// Starts it on the same ports with the same data, and waits until it answers.
    pub fn start_again(&self) {
        self.launch();
        self.answers();
    }

    pub(super) fn launch(&self) {
        *self.process() = Some(launch(&self.folder, "server.properties", self.heap));
    }

    pub(super) fn answers(&self) {
        let client: BaseConsumer = client(&self.internal()).create().expect("the configuration is complete");
        eventually(PATIENCE, "Kafka answers", || {
            let process = self.process();
            let process = process.as_ref().expect("it was started");
            assert!(process.exit_code().is_none(), "Kafka has ended\n{}", process.log());
            let metadata = client.fetch_metadata(None, Duration::from_secs(1)).ok()?;
            metadata.brokers().iter().any(|broker| broker.id() == self.node.id).then_some(())
        });
    }

    /// What it said, if it has ended though nobody ended it.
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn has_ended(&self) -> Option<String> {
        self.process().as_ref().filter(|process| process.exit_code().is_some()).map(|process| process.log())
    }

    /// Where it listens to clients.
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn port(&self) -> u16 {
        self.node.clients
    }

    /// Where clients connect.
    pub(super) fn clients(&self) -> String {
        format!("127.0.0.1:{}", self.node.clients)
    }

    pub(super) fn internal(&self) -> String {
        self.node.internal()
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
}

/// A client of the tests.
pub(super) fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("reconnect.backoff.max.ms", "250").set("log_level", "0");
    config
}

pub(super) fn libraries() -> PathBuf {
    let libraries = scratch::cache().join("kafka");
    assert!(
        libraries.exists(),
        "there is no Kafka in {}; run: scripts/provision.sh servers",
        scratch::cache().display()
    );
    libraries
}

/// Arguments of `java` up to the class. One compiler and a plain collector: starting matters more than the top speed.
pub(super) fn java(heap: &str) -> Vec<OsString> {
    let mut words =
        [heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]
            .map(OsString::from)
            .to_vec();
    words.push(libraries().join("*").into_os_string());
    words
}

pub(super) fn launch(folder: &Path, properties: &str, heap: &str) -> Process {
    let mut command = vec![OsString::from("java")];
    command.extend(java(heap));
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
