//! A standalone Kafka Connect worker with Debezium's PostgreSQL connector: what walpost stands in for.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    broker::PATIENCE,
    eventually,
    kafka::Kafka,
    process::{Launch, Process, Signal},
    scratch,
};

/// Its one connector's name.
const NAME: &str = "outbox";

/// A worker; dropping it ends it. The connector's offsets are in a file, and outlive the process.
pub struct Worker {
    folder: PathBuf,
    http: SocketAddr,
    process: Mutex<Option<Process>>,
}

impl Worker {
    /// One that does not run yet. `flush` is how often the connector's offsets are written and given to its slot.
    pub fn new(kafka: &Kafka, flush: Duration) -> Worker {
        let folder = scratch::folder("connect");
        let http = SocketAddr::from(([127, 0, 0, 1], scratch::port()));
        let properties = format!(
            "bootstrap.servers={}\nlisteners=http://{http}\nplugin.path={}\nplugin.discovery=hybrid_warn\n\
             offset.storage.file.filename={}\noffset.flush.interval.ms={}\n\
             key.converter=org.apache.kafka.connect.storage.StringConverter\n\
             value.converter=org.apache.kafka.connect.storage.StringConverter\n",
            kafka.brokers(),
            libraries().join("plugins").display(),
            folder.join("offsets").display(),
            flush.as_millis(),
        );
        fs::write(folder.join("worker.properties"), properties).expect("the folder is ours");
        Worker { folder, http, process: Mutex::new(None) }
    }

    /// Its own configuration.
    pub fn properties(&self) -> PathBuf {
        self.folder.join("worker.properties")
    }

    /// Starts it with this connector, and waits until that runs.
    pub fn start(&self, config: &Value) {
        let connector = json!({ "name": NAME, "config": config }).to_string();
        fs::write(self.folder.join("connector.json"), connector).expect("the folder is ours");
        let mut command: Vec<OsString> =
            ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.timezone=UTC", "-cp"]
                .map(OsString::from)
                .to_vec();
        command.push(libraries().join("worker").join("*").into_os_string());
        command.extend(
            ["org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", "connector.json"]
                .map(OsString::from),
        );
        *self.process() = Some(Process::start(&Launch {
            name: "Kafka Connect".to_owned(),
            command,
            environment: Vec::new(),
            folder: self.folder.clone(),
            log: self.folder.join("log"),
            last_signal: Signal::Kill,
        }));
        self.runs();
    }

    /// SIGKILL: a crash.
    pub fn kill(&self) {
        let process = self.process().take().expect("it was started");
        process.signal(Signal::Kill);
        process.wait(PATIENCE);
    }

    /// Stops the connector, whose task ends and leaves the slot; the worker stays.
    pub fn stop(&self) {
        assert_eq!(self.call("PUT", "/stop").expect("it answers").0, 204);
        eventually(PATIENCE, "the connector is stopped", || {
            let status = self.status()?;
            (status["connector"]["state"] == "STOPPED" && status["tasks"].as_array()?.is_empty()).then_some(())
        });
    }

    /// Resumes a stopped connector.
    pub fn resume(&self) {
        assert_eq!(self.call("PUT", "/resume").expect("it answers").0, 202);
    }

    /// Waits until the connector's task runs.
    pub fn runs(&self) {
        eventually(PATIENCE, "the connector runs", || {
            let state = self.task()?;
            assert_ne!(state["state"], "FAILED", "{}", state["trace"]);
            (state["state"] == "RUNNING").then_some(())
        });
    }

    /// Waits until the connector's task has died; gives its trace.
    pub fn fails(&self) -> String {
        eventually(PATIENCE, "the connector's task has failed", || {
            let task = self.task()?;
            (task["state"] == "FAILED").then(|| task["trace"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// The offset that is stored, of a stopped connector that of its last record.
    pub fn offset(&self) -> Option<Value> {
        let (_, answer) = self.call("GET", "/offsets")?;
        answer["offsets"].get(0).map(|stored| stored["offset"].clone())
    }

    /// Deletes the offsets of the stopped connector.
    pub fn forget(&self) {
        let (code, answer) = self.call("DELETE", "/offsets").expect("it answers");
        assert_eq!(code, 200, "{answer}");
    }

    fn task(&self) -> Option<Value> {
        self.status()?["tasks"].get(0).cloned()
    }

    fn status(&self) -> Option<Value> {
        if let Some(process) = &*self.process() {
            assert!(process.exit_code().is_none(), "Kafka Connect has ended\n{}", process.log());
        }
        let (code, status) = self.call("GET", "/status")?;
        (code == 200).then_some(status)
    }

    /// A call of the connector's REST interface, when it answers: code and JSON.
    fn call(&self, method: &str, path: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect_timeout(&self.http, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        write!(
            stream,
            "{method} /connectors/{NAME}{path} HTTP/1.0\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
            self.http
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, serde_json::from_str(body).unwrap_or(Value::Null)))
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn libraries() -> PathBuf {
    let libraries = scratch::cache().join("connect");
    assert!(
        libraries.exists(),
        "there is no Kafka Connect in {}; run: scripts/provision.sh connect",
        scratch::cache().display()
    );
    libraries
}
