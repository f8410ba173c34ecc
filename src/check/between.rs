//! Findings about what lies between walpost and the server: a pooler, and two clocks.

use std::time::Duration;

use super::Finding;

/// Further apart, times of the server and of this host do not go together.
const APART_MAX: Duration = Duration::from_secs(5);

/// What the server's clock showed, and between which moments of this host it was read. Seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    pub server: f64,
    pub asked: f64,
    pub answered: f64,
}

/// The server's clock and this host's are apart.
pub fn clock(clock: Clock) -> Option<Finding> {
    // It was read at any moment in between.
    let (behind, ahead) = (clock.asked - clock.server, clock.server - clock.answered);
    let apart = Duration::try_from_secs_f64(behind.max(ahead)).ok()?;
    let which = if behind > ahead { "behind" } else { "ahead of" };
    (apart > APART_MAX).then(|| {
        Finding::warning(
            "the server's clock",
            format!(
                "is {} {which} this host's: lag in seconds, ages and what retention keeps are wrong by as much",
                humantime::format_duration(Duration::from_secs(apart.as_secs()))
            ),
            "set both by NTP (timedatectl, chronyc tracking)",
        )
    })
}

/// Two sessions, one after the end of the other, had the same process of the server.
pub fn pooler(first_pid: i32, second_pid: i32) -> Option<Finding> {
    (first_pid == second_pid).then(|| {
        Finding::warning(
            "database_url",
            "leads to a connection pooler: it hands one server process from session to session, and carries no replication \
             as a rule",
            "the address of PostgreSQL itself (behind PgBouncer what [databases] in pgbouncer.ini names) in database_url",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Severity;

    #[test]
    fn clocks_are_apart_when_no_delay_explains_it() {
        let found = |server, answered| clock(Clock { server, asked: 100.0, answered });
        for (server, answered) in [(100.0, 100.1), (95.5, 100.1), (105.0, 100.1), (130.0, 130.0), (100.0, 160.0)] {
            assert_eq!(found(server, answered), None, "{server} {answered}");
        }
        let late = found(40.0, 100.1).unwrap();
        assert_eq!(late.severity, Severity::Warning);
        assert!(late.what.starts_with("is 1m behind this host's"), "{late:?}");
        assert!(found(7_300.5, 100.1).unwrap().what.starts_with("is 2h ahead of"), "{:?}", found(7_300.5, 100.1));
        assert_eq!(found(f64::NAN, 100.0), None);
    }

    #[test]
    fn a_server_process_serves_one_session() {
        assert_eq!(pooler(7, 8), None);
        assert_eq!(pooler(7, 7).map(|found| found.severity), Some(Severity::Warning));
    }
}
