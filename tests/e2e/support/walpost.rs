//! The built binary, run as a user would: a configuration file, signals, exit codes, output, HTTP.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use super::{
    eventually,
    outbox::Outbox,
    process::{Launch, Process, Signal, clean},
    scratch,
};

/// A running `walpost run`; dropping it kills it. Its output is shown when the test fails.
pub struct Walpost {
    process: Process,
    log: PathBuf,
    http: SocketAddr,
}

impl Walpost {
    /// `walpost run -c` with this TOML. Where it says nothing of `[http]`, a free port is chosen.
    pub fn start(configuration: &str) -> Walpost {
        Walpost::start_with(configuration, &[], &[])
    }

    /// The same, with further arguments after `run` and with variables.
    pub fn start_with(configuration: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Walpost {
        let (configuration, http) = with_http(configuration);
        Walpost::run("walpost.toml", &configuration, http, arguments, environment)
    }

    /// The same, with its standard output in a named pipe.
    pub fn start_into(fifo: &Path, configuration: &str) -> Walpost {
        let (configuration, http) = with_http(configuration);
        let folder = scratch::folder("walpost");
        let file = folder.join("walpost.toml");
        fs::write(&file, configuration).expect("the folder is ours");
        let shell = ["sh", "-c", r#"exec "$@" > "$0""#].map(OsString::from);
        let run = [fifo.into(), program().into(), "run".into(), "-c".into(), file.into()];
        Walpost::launch(folder, shell.into_iter().chain(run).collect(), http, &[])
    }

    /// `walpost run -c` with the configuration of a Kafka Connect connector, which says nothing of HTTP.
    pub fn start_connector(configuration: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Walpost {
        let http = SocketAddr::from(([127, 0, 0, 1], scratch::port()));
        let listen = http.to_string();
        let arguments = [&["--http-listen", &listen], arguments].concat();
        Walpost::run("connector.json", configuration, http, &arguments, environment)
    }

    fn run(
        file: &str,
        configuration: &str,
        http: SocketAddr,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Walpost {
        let folder = scratch::folder("walpost");
        let file = folder.join(file);
        fs::write(&file, configuration).expect("the folder is ours");
        let mut command = vec![OsString::from(program()), "run".into(), "-c".into(), file.into()];
        command.extend(arguments.iter().map(OsString::from));
        Walpost::launch(folder, command, http, environment)
    }

    fn launch(folder: PathBuf, command: Vec<OsString>, http: SocketAddr, environment: &[(&str, &str)]) -> Walpost {
        let log = folder.join("log");
        let process = Process::start(&Launch {
            name: "walpost".to_owned(),
            command,
            environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            folder,
            log: log.clone(),
            last_signal: Signal::Kill,
        });
        Walpost { process, log, http }
    }

    /// The same of another build of walpost.
    pub fn start_build(program: &Path, configuration: &str) -> Walpost {
        let (configuration, http) = with_http(configuration);
        let folder = scratch::folder("walpost");
        let file = folder.join("walpost.toml");
        fs::write(&file, configuration).expect("the folder is ours");
        Walpost::launch(folder, vec![program.into(), "run".into(), "-c".into(), file.into()], http, &[])
    }

    /// Another command than `run`, while it works.
    pub fn command(arguments: &[&str]) -> Walpost {
        let command = std::iter::once(program()).chain(arguments.iter().copied()).map(OsString::from).collect();
        Walpost::launch(scratch::folder("walpost"), command, SocketAddr::from(([127, 0, 0, 1], 9)), &[])
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks it to stop and waits; gives the exit code.
    pub fn terminate(&self, within: Duration) -> i32 {
        self.process.signal(Signal::Term);
        self.process.wait(within)
    }

    /// SIGKILL: a crash.
    pub fn kill(&self) {
        self.process.signal(Signal::Kill);
        self.process.wait(Duration::from_secs(10));
    }

    /// Waits until it streams from the outbox's slot; gives the walsender's process id.
    pub fn streams(&self, outbox: &Outbox<'_>, within: Duration) -> u32 {
        eventually(within, &format!("slot {} is streamed", outbox.slot()), || {
            assert!(self.is_running(), "walpost has ended");
            outbox.walsender()
        })
    }

    pub fn is_running(&self) -> bool {
        self.exit_code().is_none()
    }

    /// The exit code, when it has ended.
    pub fn exit_code(&self) -> Option<i32> {
        self.process.exit_code()
    }

    /// Waits until it ends by itself; gives the exit code.
    pub fn wait_exit(&self, within: Duration) -> i32 {
        self.process.wait(within)
    }

    /// Resident memory now; zero when it has ended.
    pub fn rss_mib(&self) -> f64 {
        self.process.memory_mib("VmRSS")
    }

    /// The most resident memory it ever had; zero when it has ended.
    pub fn peak_rss_mib(&self) -> f64 {
        self.process.memory_mib("VmHWM")
    }

    /// Waits until its log has this.
    pub fn says(&self, what: &str, within: Duration) {
        eventually(within, what, || self.log().contains(what).then_some(()));
    }

    /// Where its HTTP surface is.
    pub fn listens(&self) -> SocketAddr {
        self.http
    }

    /// All that it has printed so far.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// A GET of its HTTP surface: status and body, when it answers.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        self.request("GET", path, "")
    }

    /// A call of its HTTP surface, with header lines that end in `\r\n`.
    pub fn request(&self, method: &str, path: &str, headers: &str) -> Option<(u16, String)> {
        self.request_with(method, path, headers, "")
    }

    /// The same with a body, whose length the headers say.
    pub fn request_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.http, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("the time is not zero");
        write!(stream, "{method} {path} HTTP/1.0\r\nHost: {}\r\n{headers}\r\n{body}", self.http).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// The value of a metric of `/metrics`, labels included in its name.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let (_, page) = self.http("/metrics")?;
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next()?.parse().ok())
    }
}

impl Drop for Walpost {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- walpost's output\n{}---", self.log());
        }
    }
}

/// What a command that ends by itself left behind.
#[derive(Debug)]
pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs another command of walpost to its end.
pub fn walpost(arguments: &[&str]) -> Finished {
    let output = clean(program()).args(arguments).stdin(Stdio::null()).output().expect("the binary was built");
    Finished {
        code: output.status.code().expect("nobody kills it"),
        stdout: String::from_utf8(output.stdout).expect("it prints UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("it prints UTF-8"),
    }
}

pub fn program() -> &'static str {
    env!("CARGO_BIN_EXE_walpost")
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn with_http(configuration: &str) -> (String, SocketAddr) {
    let mut table: toml::Table = configuration.parse().unwrap_or_else(|error| panic!("{error} in\n{configuration}"));
    let http = table.entry("http").or_insert_with(|| toml::Table::new().into());
    let listen = http.as_table_mut().expect("[http] is a table").entry("listen").or_insert_with(|| {
        let address = SocketAddr::from(([127, 0, 0, 1], scratch::port()));
        address.to_string().into()
    });
    let address = listen.as_str().and_then(|text| text.parse().ok()).expect("http.listen is an address");
    (table.to_string(), address)
}
