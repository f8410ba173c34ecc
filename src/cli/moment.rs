//! Moments as people type them.

use std::time::SystemTime;

/// A time, or how long ago it was.
pub(super) fn moment(text: &str) -> Result<SystemTime, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        return SystemTime::now().checked_sub(ago).ok_or_else(|| format!("{text} ago is before all time"));
    }
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| format!("{text:?} is neither a time, as 2026-01-31T08:00:00Z is, nor how long ago, as 2h or 7d"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_is_a_time_or_how_long_ago() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(moment("2023-11-14T22:13:20Z"), Ok(at));
        assert_eq!(moment("2023-11-14 22:13:20"), Ok(at));
        let (before, then) = (SystemTime::now(), moment("2h").unwrap());
        let two_hours = Duration::from_secs(7200);
        assert!(then >= before - two_hours && then <= SystemTime::now() - two_hours, "{then:?}");
        assert!(moment("yesterday").unwrap_err().contains("neither"));
    }
}
