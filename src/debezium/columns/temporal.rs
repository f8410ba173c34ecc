//! Dates and times: PostgreSQL's text (`DateStyle = ISO`), and the forms of Java and Debezium.
//!
//! Years are proleptic and without bound, as in `java.time`: 1 BC is the year 0.

/// `PGStatement.DATE_POSITIVE_INFINITY`, which Debezium takes for microseconds.
const INFINITY_MICROS: i64 = 9_223_372_036_825_200_000;
const MINUS_INFINITY_MICROS: i64 = -9_223_372_036_832_400_000;

/// `-5877611-06-21`, and the day after it: what Debezium takes for infinite dates.
pub(super) const DAYS_OF_INFINITY: i64 = -2_147_472_692;
pub(super) const DAYS_OF_MINUS_INFINITY: i64 = DAYS_OF_INFINITY + 1;

pub(super) const DAY_NANOS: i64 = 86_400_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// A point in time, or one of a clock and calendar without zone, taken as UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Since 1970-01-01.
    pub(super) seconds: i64,
    pub(super) nanos: u32,
}

/// Digits behind the seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fraction {
    /// None for a whole second, else as many as are not zero.
    AsNeeded,
    Fixed(usize),
}

impl Moment {
    pub(super) const INFINITY: Moment = Moment::from_micros(INFINITY_MICROS);
    pub(super) const MINUS_INFINITY: Moment = Moment::from_micros(MINUS_INFINITY_MICROS);
    /// `LocalDateTime.MAX` and `MIN`.
    pub(super) const LAST: Moment = Moment { seconds: 31_556_889_832_780_799, nanos: 999_999_999 };
    pub(super) const FIRST: Moment = Moment { seconds: -31_557_014_135_596_800, nanos: 0 };

    const fn from_micros(micros: i64) -> Moment {
        Moment { seconds: micros.div_euclid(1_000_000), nanos: micros.rem_euclid(1_000_000) as u32 * 1_000 }
    }

    /// `2024-01-02`, `2024-01-02 03:04:05.678`, `0044-03-15 12:00:00+01:30 BC`.
    pub(super) fn parse(text: &str) -> Option<Moment> {
        let (text, before_christ) = era(text);
        let (date, rest) = text.split_once(' ').map_or((text, None), |(date, rest)| (date, Some(rest)));
        let days = days(date, before_christ)?;
        let (nanos, offset) = rest.map_or(Some((0, 0)), clock_with_offset)?;
        Some(Moment {
            seconds: days * DAY_SECONDS + nanos.div_euclid(1_000_000_000) - offset,
            nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?,
        })
    }

    /// Rounded down; None beyond what 64 bits hold.
    pub(super) fn millis(self) -> Option<i64> {
        self.seconds.checked_mul(1_000)?.checked_add(i64::from(self.nanos / 1_000_000))
    }

    /// Beyond 64 bits, what Java makes of it: the seconds stop at the bound, the rest is added with wrap-around.
    pub(super) fn micros(self) -> i64 {
        self.seconds.saturating_mul(1_000_000).wrapping_add(i64::from(self.nanos / 1_000))
    }

    /// None for a day that 64 bits do not hold: before 1677-09-22 and after 2262-04-11. Infinities are the bounds themselves.
    pub(super) fn nanos(self) -> Option<i64> {
        match self {
            Moment::INFINITY => Some(i64::MAX),
            Moment::MINUS_INFINITY => Some(i64::MIN),
            _ => self.days().checked_mul(DAY_NANOS)?.checked_add(self.nanos_of_day()),
        }
    }

    /// `2024-01-02T03:04:05.678Z`
    pub(super) fn iso(self, fraction: Fraction) -> String {
        format!("{}T{}Z", iso_date(self.days()), iso_clock(self.nanos_of_day(), fraction))
    }

    pub(super) fn days(self) -> i64 {
        self.seconds.div_euclid(DAY_SECONDS)
    }

    fn nanos_of_day(self) -> i64 {
        self.seconds.rem_euclid(DAY_SECONDS) * 1_000_000_000 + i64::from(self.nanos)
    }
}

/// Days since 1970 of `2024-01-02` or `0044-03-15 BC`.
pub(super) fn date(text: &str) -> Option<i64> {
    let (text, before_christ) = era(text);
    days(text, before_christ)
}

/// Nanoseconds since midnight of `03:04:05.678901`; `24:00:00` is a whole day.
pub(super) fn clock(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':');
    let (hours, minutes) = (number(parts.next()?)?, number(parts.next()?)?);
    let seconds = parts.next().map_or(Some(0), number)?;
    if parts.next().is_some() || hours > 24 || minutes > 59 || seconds > 60 || fraction.len() > 9 {
        return None;
    }
    let nanos = if fraction.is_empty() { 0 } else { number(&format!("{fraction:0<9}"))? };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + nanos)
}

/// Nanoseconds since midnight and seconds east of UTC of `03:04:05.678+02`, `-05:30` or `+00:53:28` behind it, or
/// nothing.
pub(super) fn clock_with_offset(text: &str) -> Option<(i64, i64)> {
    let Some(sign) = text.find(['+', '-']) else { return Some((clock(text)?, 0)) };
    let (local, offset) = text.split_at(sign);
    let mut seconds = 0;
    for (part, unit) in offset[1..].split(':').zip([3_600, 60, 1]) {
        seconds += number(part)? * unit;
    }
    Some((clock(local.trim_end())?, if offset.starts_with('-') { -seconds } else { seconds }))
}

/// `2024-01-02`, `-0043-03-15`, `+10000-01-01`
pub(super) fn iso_date(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    let year = match year {
        10_000.. => format!("+{year}"),
        0.. => format!("{year:04}"),
        _ => format!("-{:04}", -year),
    };
    format!("{year}-{month:02}-{day:02}")
}

/// `03:04:05.678`
pub(super) fn iso_clock(nanos_of_day: i64, fraction: Fraction) -> String {
    let (seconds, nanos) = (nanos_of_day / 1_000_000_000, nanos_of_day % 1_000_000_000);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let digits = format!("{nanos:09}");
    let digits = match fraction {
        Fraction::Fixed(count) => &digits[..count.min(9)],
        Fraction::AsNeeded => digits.trim_end_matches('0'),
    };
    if !digits.is_empty() {
        text.push('.');
        text.push_str(digits);
    }
    text
}

fn era(text: &str) -> (&str, bool) {
    text.strip_suffix(" BC").map_or((text, false), |text| (text, true))
}

fn days(date: &str, before_christ: bool) -> Option<i64> {
    let mut parts = date.split('-');
    let (year, month, day) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days_from_civil(if before_christ { 1 - year } else { year }, month, day))
}

/// Of ASCII digits alone.
fn number(digits: &str) -> Option<i64> {
    let all_digits = !digits.is_empty() && digits.len() <= 12 && digits.bytes().all(|b| b.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

/// From 0000-03-01, with which the count of years that begin in March starts, to 1970-01-01.
const MARCH_0000_TO_1970: i64 = 719_468;
const DAYS_OF_400_YEARS: i64 = 146_097;

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year;
    days - MARCH_0000_TO_1970
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + MARCH_0000_TO_1970;
    let (era, day_of_era) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Moment {
        Moment::parse(text).unwrap()
    }

    #[test]
    fn moments_count_from_1970_in_utc() {
        assert_eq!(moment("2024-01-02 03:04:05.678901").micros(), 1_704_164_645_678_901);
        assert_eq!(moment("1969-12-31 23:59:59").micros(), -1_000_000);
        assert_eq!(moment("1969-12-31 23:59:59.9995").millis(), Some(-1));
        assert_eq!(moment("2024-01-02").millis(), Some(1_704_153_600_000));
        assert_eq!(moment("2024-01-02 03:04:05.678901+02"), moment("2024-01-02 01:04:05.678901"));
        assert_eq!(moment("1800-01-01 00:00:00+00:53:28"), moment("1799-12-31 23:06:32"));
        assert_eq!(moment("2024-01-02 00:00:00-03:30"), moment("2024-01-02 03:30:00"));
    }

    #[test]
    fn moments_are_printed_as_java_prints_them() {
        assert_eq!(moment("2024-01-02 03:04:05.6").iso(Fraction::AsNeeded), "2024-01-02T03:04:05.6Z");
        assert_eq!(moment("2024-01-02 03:04:00").iso(Fraction::AsNeeded), "2024-01-02T03:04:00Z");
        assert_eq!(moment("2024-01-02 03:04:05.6").iso(Fraction::Fixed(3)), "2024-01-02T03:04:05.600Z");
        assert_eq!(moment("0044-03-15 12:00:00+00 BC").iso(Fraction::AsNeeded), "-0043-03-15T12:00:00Z");
        assert_eq!(moment("0001-01-01 00:00:00 BC").iso(Fraction::AsNeeded), "0000-01-01T00:00:00Z");
        assert_eq!(moment("294276-12-31 23:59:59").iso(Fraction::AsNeeded), "+294276-12-31T23:59:59Z");
        assert_eq!(Moment::LAST.iso(Fraction::AsNeeded), "+999999999-12-31T23:59:59.999999999Z");
        assert_eq!(Moment::FIRST.iso(Fraction::AsNeeded), "-999999999-01-01T00:00:00Z");
    }

    #[test]
    fn infinities_are_the_drivers_numbers() {
        assert_eq!(Moment::INFINITY.micros(), 9_223_372_036_825_200_000);
        assert_eq!(Moment::INFINITY.millis(), Some(9_223_372_036_825_200));
        assert_eq!(Moment::MINUS_INFINITY.micros(), -9_223_372_036_832_400_000);
        assert_eq!(Moment::INFINITY.nanos(), Some(i64::MAX));
        assert_eq!(Moment::MINUS_INFINITY.nanos(), Some(i64::MIN));
        assert_eq!(moment("2262-04-12 00:00:00").nanos(), None);
        assert_eq!(moment("1677-09-22 00:00:00").nanos(), Some(-9_223_286_400_000_000_000));
        // It would fit, but Debezium begins with the day, which does not.
        assert_eq!(moment("1677-09-21 00:12:44").nanos(), None);
    }

    #[test]
    fn dates_and_clocks_are_read() {
        assert_eq!(date("2024-02-29"), Some(19_782));
        assert_eq!(date("1969-12-31"), Some(-1));
        assert_eq!(date("4714-11-24 BC"), Some(-2_440_588));
        assert_eq!(date("infinity"), None);
        assert_eq!(iso_date(DAYS_OF_INFINITY), "-5877611-06-21");
        assert_eq!(clock("12:34:56.789012"), Some(45_296_789_012_000));
        assert_eq!(clock("24:00:00"), Some(DAY_NANOS));
        assert_eq!(clock("12:34:5x"), None);
        assert_eq!(clock_with_offset("00:00:00-05"), Some((0, -18_000)));
        for days in [-1_000_000_000, -719_468, -1, 0, 59, 60, 11_016, 146_097, 400_000_000] {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
    }
}
