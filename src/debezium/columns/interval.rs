//! Intervals: `1 year 2 mons -3 days +04:05:06.5` and `P1Y2M-3DT4H5M6.5S` (`IntervalStyle` postgres and iso_8601), as
//! microseconds or in ISO 8601 with every part.

use super::decimal::Decimal;
use crate::connect::java;

/// `MicroDuration.DAYS_PER_MONTH_AVG`
const DAYS_PER_MONTH: f64 = 365.25 / 12.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    years: i32,
    months: i32,
    days: i32,
    hours: i32,
    minutes: i32,
    /// Seconds and their fraction.
    micros: i64,
}

impl Interval {
    /// None for a text of another style. Words without a number, such as `epoch`, are no time.
    pub(super) fn parse(text: &str) -> Option<Interval> {
        match text.strip_prefix('P') {
            Some(parts) => Interval::parse_iso(parts),
            None => Interval::parse_words(text),
        }
    }

    fn parse_words(text: &str) -> Option<Interval> {
        let mut interval = Interval::default();
        let mut count = None;
        for word in text.split_ascii_whitespace() {
            if let Some((hours, rest)) = word.split_once(':') {
                let sign = if hours.starts_with('-') { -1 } else { 1 };
                let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
                interval.hours = sign * hours.trim_start_matches(['-', '+']).parse::<i32>().ok()?;
                interval.minutes = sign * minutes.parse::<i32>().ok()?;
                interval.micros = i64::from(sign) * micros(seconds)?;
                continue;
            }
            let Some(number) = count.take() else {
                count = Some(word);
                continue;
            };
            let number = || number.parse::<i32>().ok();
            match word {
                _ if word.starts_with("year") => interval.years = number()?,
                _ if word.starts_with("mon") => interval.months = number()?,
                _ if word.starts_with("day") => interval.days = number()?,
                _ => return None,
            }
        }
        Some(interval)
    }

    fn parse_iso(parts: &str) -> Option<Interval> {
        let mut interval = Interval::default();
        let (date, time) = parts.split_once('T').unwrap_or((parts, ""));
        for (text, of_date) in [(date, true), (time, false)] {
            let mut rest = text;
            while let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) {
                let (number, unit) = (&rest[..end], rest.as_bytes()[end]);
                match (unit, of_date) {
                    (b'Y', true) => interval.years = number.parse().ok()?,
                    (b'M', true) => interval.months = number.parse().ok()?,
                    (b'D', true) => interval.days = number.parse().ok()?,
                    (b'H', false) => interval.hours = number.parse().ok()?,
                    (b'M', false) => interval.minutes = number.parse().ok()?,
                    (b'S', false) => interval.micros = micros(number)?,
                    _ => return None,
                }
                rest = &rest[end + 1..];
            }
        }
        Some(interval)
    }

    /// With months of 30.4375 days, and the roundings of Debezium's doubles.
    pub(super) fn total_micros(&self) -> i64 {
        let months = self.years.wrapping_mul(12).wrapping_add(self.months);
        let days = f64::from(months) * DAYS_PER_MONTH + f64::from(self.days);
        let minutes = (days * 24.0 + f64::from(self.hours)) * 60.0 + f64::from(self.minutes);
        ((minutes * 60.0 + self.seconds()) * 1e6) as i64
    }

    /// `P1Y2M3DT4H5M6.5S`
    pub(super) fn iso(&self) -> String {
        let Interval { years, months, days, hours, minutes, .. } = self;
        let seconds = java::double(self.seconds());
        let seconds = Decimal::parse(&seconds).map_or(seconds, |seconds| seconds.stripped().plain());
        format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{seconds}S")
    }

    fn seconds(&self) -> f64 {
        (self.micros / 1_000_000) as f64 + (self.micros % 1_000_000) as f64 / 1e6
    }
}

/// Of seconds.
fn micros(seconds: &str) -> Option<i64> {
    let seconds: f64 = seconds.parse().ok()?;
    Some((seconds * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, micros: i64, iso: &str) {
        let interval = Interval::parse(text).unwrap();
        assert_eq!((interval.total_micros(), interval.iso().as_str()), (micros, iso), "{text}");
    }

    #[test]
    fn both_styles_are_read() {
        check("1 year 2 mons 3 days 04:05:06.5", 37_091_106_500_000, "P1Y2M3DT4H5M6.5S");
        check("P1Y2M3DT4H5M6.5S", 37_091_106_500_000, "P1Y2M3DT4H5M6.5S");
        check("-1 days", -86_400_000_000, "P0Y0M-1DT0H0M0S");
        check("00:00:00", 0, "P0Y0M0DT0H0M0S");
        check("-1 days +00:00:00.000001", -86_399_999_999, "P0Y0M-1DT0H0M0.000001S");
        check("-00:00:01.25", -1_250_000, "P0Y0M0DT0H0M-1.25S");
        check("PT-0.5S", -500_000, "P0Y0M0DT0H0M-0.5S");
        check("P-1M", -2_629_800_000_000, "P0Y-1M0DT0H0M0S");
        check("1 mon", 2_629_800_000_000, "P0Y1M0DT0H0M0S");
    }

    #[test]
    fn a_word_without_a_number_is_no_time() {
        check("epoch", 0, "P0Y0M0DT0H0M0S");
        assert_eq!(Interval::parse("1 fortnight"), None);
        assert_eq!(Interval::parse("1 12:x"), None);
    }
}
