//! What Linux knows of this process, under the names that every exporter uses.

use std::{fs, time::Duration};

/// The kernel gives user programs a hundred ticks a second, whatever its own clock.
const TICKS_PER_SECOND: u64 = 100;

/// None each: there is no such file, as outside of Linux.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    /// Of all threads, in user and kernel mode.
    pub(super) cpu: Option<Duration>,
    pub(super) threads: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
}

impl Process {
    pub(super) fn now() -> Process {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        let (status, stat, limits) = (read("status"), read("stat"), read("limits"));
        let number = |name| word(&status, name)?.parse::<u64>().ok();
        let bytes = |name| Some(number(name)? * 1024);
        Process {
            resident_bytes: bytes("VmRSS:"),
            virtual_bytes: bytes("VmSize:"),
            cpu: cpu(&stat),
            threads: number("Threads:"),
            // Not the one that is open to count them.
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count().saturating_sub(1) as u64),
            max_fds: word(&limits, "Max open files").and_then(|most| most.parse().ok()),
        }
    }
}

/// A word behind a name at the beginning of a line.
fn word<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

/// Fields 14 and 15; the second may have spaces and ends with the last parenthesis.
fn cpu(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 1000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_this_process() {
        let Process { resident_bytes, virtual_bytes, cpu, threads, open_fds, max_fds } = Process::now();
        assert!(resident_bytes.unwrap() > 1 << 20 && virtual_bytes.unwrap() >= resident_bytes.unwrap());
        assert!(cpu.unwrap() < Duration::from_secs(3600) && threads.unwrap() >= 1);
        assert!(open_fds.unwrap() >= 3 && max_fds.unwrap() >= open_fds.unwrap());
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_shifts_nothing() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0";
        assert_eq!(cpu(stat), Some(Duration::from_millis(1750)));
    }
}
