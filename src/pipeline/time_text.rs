//! PostgreSQL's timestamps as text, into RFC 3339 and into Kafka's milliseconds.
//!
//! The session prints times with `DateStyle = ISO` and `TimeZone = UTC`: `2026-01-31 08:15:00.25+00`, the offset
//! missing for `timestamp`, which is taken as UTC. `infinity`, years beyond 9999 and years before Christ have no RFC
//! 3339 form and stay as PostgreSQL prints them.

/// `2026-01-31T08:15:00.250000Z`: what the `occurred_at` header holds.
pub(super) type Rfc3339 = [u8; 27];

/// A time between the years 0001 and 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    rfc3339: Rfc3339,
    unix_ms: i64,
}

impl Time {
    /// None for a text that is not such a time.
    pub(super) fn parse(text: &[u8]) -> Option<Time> {
        let (moment, fraction) = text.split_at_checked(19)?;
        let (fraction, offset) = match fraction.strip_prefix(b".") {
            Some(rest) => rest.split_at(rest.iter().take_while(|b| b.is_ascii_digit()).count()),
            None => (&b""[..], fraction),
        };
        if !matches!(offset, b"" | b"+00") || fraction.len() > 6 {
            return None;
        }
        let mut rfc3339 = *b"0000-00-00T00:00:00.000000Z";
        for (i, &b) in moment.iter().enumerate() {
            match (i, b) {
                (4 | 7, b'-') | (13 | 16, b':') | (10, b' ') => {}
                (4 | 7 | 10 | 13 | 16, _) => return None,
                (_, b'0'..=b'9') => rfc3339[i] = b,
                _ => return None,
            }
        }
        rfc3339[20..20 + fraction.len()].copy_from_slice(fraction);
        let number = |digits: std::ops::Range<usize>| {
            rfc3339[digits].iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'))
        };
        let days = days_from_civil(number(0..4), number(5..7), number(8..10));
        let seconds = days * 86_400 + number(11..13) * 3_600 + number(14..16) * 60 + number(17..19);
        Some(Time { rfc3339, unix_ms: seconds * 1_000 + number(20..23) })
    }

    /// From RFC 3339 in whatever offset, cut to microseconds.
    pub(super) fn parse_rfc3339(text: &[u8]) -> Option<Time> {
        let time = std::str::from_utf8(text).ok()?.parse::<jiff::Timestamp>().ok()?;
        Time::parse(time.strftime("%Y-%m-%d %H:%M:%S%.6f+00").to_string().as_bytes())
    }

    pub(super) fn rfc3339(&self) -> &Rfc3339 {
        &self.rfc3339
    }

    /// Milliseconds since 1970, rounded down.
    pub(super) fn unix_ms(&self) -> i64 {
        self.unix_ms
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar, counted in years that begin in March so that
/// the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year;
    const MARCH_0000_TO_1970: i64 = 719_468;
    days - MARCH_0000_TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, rfc3339: &str, unix_ms: i64) {
        let time = Time::parse(text.as_bytes()).unwrap();
        assert_eq!(std::str::from_utf8(time.rfc3339()).unwrap(), rfc3339);
        assert_eq!(time.unix_ms(), unix_ms, "{text}");
    }

    #[test]
    fn times_become_rfc3339_with_six_digits() {
        check("1970-01-01 00:00:00+00", "1970-01-01T00:00:00.000000Z", 0);
        check("2026-01-31 08:15:00.25+00", "2026-01-31T08:15:00.250000Z", 1_769_847_300_250);
        check("2024-02-29 23:59:59.999999", "2024-02-29T23:59:59.999999Z", 1_709_251_199_999);
        check("1969-12-31 23:59:59.9999+00", "1969-12-31T23:59:59.999900Z", -1);
        check("0001-01-01 00:00:00+00", "0001-01-01T00:00:00.000000Z", -62_135_596_800_000);
        check("9999-12-31 23:59:59+00", "9999-12-31T23:59:59.000000Z", 253_402_300_799_000);
    }

    #[test]
    fn rfc3339_itself_is_read_in_any_offset() {
        let parsed = |text: &str| Time::parse_rfc3339(text.as_bytes()).map(|time| *time.rfc3339());
        assert_eq!(parsed("2026-01-31T09:15:00+01:00"), Some(*b"2026-01-31T08:15:00.000000Z"));
        assert_eq!(parsed("2026-01-31T08:15:00.2500009Z"), Some(*b"2026-01-31T08:15:00.250000Z"));
        for text in ["", "yesterday", "2026-01-31", "2026-01-31T08:15:00", "-000001-01-01T00:00:00Z"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn what_has_no_rfc3339_form_is_none() {
        for text in [
            "infinity",
            "-infinity",
            "",
            "4713-01-01 00:00:00+00 BC",
            "294276-12-31 23:59:59.999999+00",
            "2026-01-31 08:15:00+01",
            "2026-01-31",
            "2026-01-31T08:15:00",
            "2026-01-31 08:15:0x",
        ] {
            assert_eq!(Time::parse(text.as_bytes()), None, "{text}");
        }
    }
}
