//! Server processes that cannot outlive the tests.
//!
//! A process is started through a small shell, its guardian, that holds the read end of a pipe whose write end only the
//! test process has. When the test process ends, in whatever way, SIGKILL included, the pipe closes and the guardian
//! ends its child. No signal handler, no `prctl`, nothing unsafe.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// `$1` is the signal that ends the child when the pipe closes; the rest is its command line. SIGKILL follows after
/// five seconds where that signal was not enough.
const GUARDIAN: &str = r#"
last=$1; shift
exec 3<&0
"$@" 3<&- </dev/null >&2 & child=$!
{
  read -r line <&3
  kill -"$last" "$child"
  tries=0
  while [ "$tries" -lt 50 ] && kill -0 "$child"; do tries=$((tries + 1)); sleep 0.1; done
  kill -KILL "$child"
} >&- 2>/dev/null & watch=$!
echo "$child"
exec 3<&- >&- 2>/dev/null
wait "$child"; status=$?
kill "$watch"
exit "$status"
"#;

#[derive(Clone, Copy, Debug)]
pub enum Signal {
    Term,
    Int,
    Quit,
    Kill,
    Hup,
    Stop,
    Cont,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Term => "TERM",
            Signal::Int => "INT",
            Signal::Quit => "QUIT",
            Signal::Kill => "KILL",
            Signal::Hup => "HUP",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        }
    }
}

/// What to run, and where its output goes.
pub struct Launch {
    /// How failures call it.
    pub name: String,
    pub command: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub folder: PathBuf,
    /// Standard output and standard error, appended.
    pub log: PathBuf,
    /// Ends it when it is dropped, or when the test process is gone.
    pub last_signal: Signal,
}

/// A child under guard; dropping it ends it.
pub struct Process {
    name: String,
    pid: u32,
    log: PathBuf,
    guardian: Mutex<Child>,
}

impl Process {
    pub fn start(launch: &Launch) -> Process {
        let log = append(&launch.log);
        let mut guardian = clean("sh")
            .args(["-c", GUARDIAN, &launch.name, launch.last_signal.name()])
            .args(&launch.command)
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&launch.folder)
            .process_group(0) // Ctrl-C goes to the tests, and from them by the pipe
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("a shell can be started");
        let mut pid = String::new();
        BufReader::new(guardian.stdout.take().expect("stdout is a pipe")).read_line(&mut pid).expect("guardian speaks");
        Process {
            name: launch.name.clone(),
            pid: pid.trim().parse().expect("the guardian prints its child's process id"),
            log: launch.log.clone(),
            guardian: Mutex::new(guardian),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, signal: Signal) {
        assert!(self.exit_code().is_none(), "{} has ended before it could get a signal\n{}", self.name, self.log());
        // The shell's own: not every machine has a program of this name.
        run("sh", ["-c", r#"kill -s "$1" "$2""#, "kill", signal.name(), &self.pid.to_string()]);
    }

    /// The exit code, 128 + n after signal n, when it has ended.
    pub fn exit_code(&self) -> Option<i32> {
        self.guardian().try_wait().expect("the guardian is our child").and_then(|status| status.code())
    }

    /// Waits for the end, at most `within`; gives the exit code.
    pub fn wait(&self, within: Duration) -> i32 {
        let end = Instant::now() + within;
        loop {
            if let Some(code) = self.exit_code() {
                return code;
            }
            assert!(Instant::now() < end, "{} did not end within {within:?}\n{}", self.name, self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The end of its output, for a failure's message.
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    /// A line of `/proc/<pid>/status` that counts kilobytes, in MiB.
    pub fn memory_mib(&self, line: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')?.trim().strip_suffix(" kB"));
        value.and_then(|kb| kb.trim().parse::<f64>().ok()).map_or(0.0, |kb| kb / 1024.0)
    }

    fn guardian(&self) -> MutexGuard<'_, Child> {
        self.guardian.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut guardian = self.guardian();
        drop(guardian.stdin.take());
        guardian.wait().expect("the guardian is our child");
    }
}

/// A command in the environment of the tests, without the variables that walpost and PostgreSQL's programs read.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("WALPOST_") || text.starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a short command to its end; a failure shows what it printed.
pub fn run<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> String {
    let program = program.as_ref();
    let name = program.to_string_lossy();
    let output = clean(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{name} cannot be run: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed ({})\n{out}{err}", output.status);
    out.trim_end().to_owned()
}

fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("the log's folder exists")
}

/// The last 60 lines of a log.
pub fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(60)..];
    format!("--- end of {}\n{}\n---", path.display(), last.join("\n"))
}

mod tests {
    use super::*;
    use crate::support::{eventually, scratch};

    const WITHIN: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Process {
        let folder = scratch::folder("process");
        Process::start(&Launch {
            name: "a script".to_owned(),
            command: ["sh", "-c", script].map(OsString::from).into(),
            environment: vec![("WORD".into(), "spoken".into())],
            log: folder.join("log"),
            folder,
            last_signal: Signal::Term,
        })
    }

    #[test]
    fn an_exit_code_and_output_are_kept() {
        let process = shell("echo $WORD; echo aside >&2; exit 3");
        assert_eq!(process.wait(WITHIN), 3);
        assert!(process.log().contains("spoken\naside"));
    }

    #[test]
    fn a_signal_reaches_the_child_itself() {
        let process = shell("exec sleep 1000");
        assert!(process.memory_mib("VmRSS") > 0.0);
        process.signal(Signal::Kill);
        assert_eq!(process.wait(WITHIN), 128 + 9);
        assert_eq!(process.memory_mib("VmRSS"), 0.0);
    }

    #[test]
    fn a_child_ends_with_its_pipe_even_when_it_ignores_the_signal() {
        let process = shell("trap '' TERM; echo deaf; while :; do sleep 0.1; done");
        eventually(WITHIN, "the script is deaf", || process.log().contains("deaf\n").then_some(()));
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
