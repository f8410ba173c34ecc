//! walpost as a child process: this very program, with `run`.

use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    process::{self, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::config::Flags;

/// What the trial decides itself; everything else is as the user configured it.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub slot: &'a str,
    pub publication: &'a str,
    pub table: &'a str,
    pub topic: &'a str,
    /// Level of the logs, which go to standard error.
    pub log_level: &'a str,
}

/// A running walpost; dropping it kills it.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Largest resident set so far, in bytes.
    pub resident_bytes_max: u64,
}

impl Child {
    pub fn start(flags: &Flags, launch: &Launch<'_>) -> anyhow::Result<Child> {
        let own = [
            ("slot", launch.slot),
            ("publication", launch.publication),
            ("table", launch.table),
            ("preset", "walpost"),
            ("route.topic", launch.topic),
            ("http.listen", "off"),
        ];
        let mut command = Command::new(env::current_exe().context("the path of this program is not known")?);
        command.arg("run").args(flags.arguments(&own)).args(["--log-level", launch.log_level]);
        // A group of its own: Ctrl-C is for the trial, which ends its child itself.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        Ok(Child { process: command.spawn().context("walpost cannot be started")? })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Fails when it has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.process.try_wait()? {
            Some(status) => bail!("walpost ended too early: {status}"),
            None => Ok(()),
        }
    }

    /// A crash: SIGKILL.
    pub fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// A clean stop: SIGTERM, and its end within this time.
    pub async fn stop(mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let pid = self.process.id().to_string();
        let told =
            Command::new("sh").args(["-c", "kill -TERM \"$0\"", &pid]).status().context("sh is needed for kill")?;
        if !told.success() {
            bail!("walpost (process {pid}) could not be signalled: {told}");
        }
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        bail!("walpost did not end within {within:?} of SIGTERM")
    }

    /// What it has used so far, as Linux counts it.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let pid = self.process.id();
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let parsed = Usage::parse(&read("stat")?, &read("status")?);
        parsed.context("/proc tells nothing of CPU time and memory; measuring needs Linux")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Usage {
    /// From `/proc/<pid>/stat` and `/proc/<pid>/status`; see proc(5).
    fn parse(stat: &str, status: &str) -> Option<Usage> {
        /// `USER_HZ`, the same on every architecture that walpost runs on.
        const TICKS_A_SECOND: u64 = 100;
        // The second field is the program's name in parentheses, and may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        let cpu_ticks = ticks()? + ticks()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let peak_kib: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(Usage {
            cpu: Duration::from_millis(cpu_ticks * (1000 / TICKS_A_SECOND)),
            resident_bytes_max: peak_kib * 1024,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_behind_any_program_name() {
        let stat = "42 (a) b (c) R 1 42 42 0 -1 4194560 1105 0 2 0 151 49 0 0 20 0 4 0 123456 1 2 3";
        let status = "Name:\ta\nVmPeak:\t  200000 kB\nVmHWM:\t   17408 kB\nVmRSS:\t   16000 kB\n";
        let usage = Usage::parse(stat, status).unwrap();
        assert_eq!(usage, Usage { cpu: Duration::from_secs(2), resident_bytes_max: 17 * 1024 * 1024 });
        assert_eq!(Usage::parse("42 (a", status), None);
        assert_eq!(Usage::parse(stat, "Name:\ta\n"), None, "a zombie has no memory");
    }

    #[test]
    fn a_process_can_be_asked_for_its_usage() {
        let process = Command::new("sleep").arg("60").spawn().unwrap();
        let child = Child { process };
        assert!(child.usage().unwrap().resident_bytes_max > 0);
        child.kill().unwrap();
    }

    #[tokio::test]
    async fn a_child_is_stopped_by_sigterm() {
        let child = Child { process: Command::new("sleep").arg("60").spawn().unwrap() };
        let status = child.stop(Duration::from_secs(10)).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    }
}
