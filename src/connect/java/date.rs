//! Dates as Java prints them, in UTC: its calendar is Julian before 15 October 1582.

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Days from 1970 to the first day of the Gregorian calendar.
const GREGORIAN_SINCE: i64 = -141_427;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `java.util.Date.toString`: `Tue Jan 02 03:04:05 UTC 2024`. A year before Christ is printed without its era.
pub(crate) fn date(ms: i64) -> String {
    let days = ms.div_euclid(DAY_MS);
    let (year, month, day) = calendar(days);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    let (hour, minute, second, _) = clock(ms);
    let month = MONTHS[month as usize - 1];
    format!("{weekday} {month} {day:02} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

/// As `Values.convertToString` chooses by size: the time up to the end of 1 January 1970, later the date, if that is all, else both.
pub(crate) fn sized(ms: i64) -> String {
    let (hour, minute, second, milli) = clock(ms);
    let time = format!("{hour:02}:{minute:02}:{second:02}.{milli:03}Z");
    if ms < DAY_MS {
        return time;
    }
    let (year, month, day) = calendar(ms.div_euclid(DAY_MS));
    let date = format!("{year:04}-{month:02}-{day:02}");
    if ms % DAY_MS == 0 { date } else { format!("{date}T{time}") }
}

fn clock(ms: i64) -> (i64, i64, i64, i64) {
    let ms = ms.rem_euclid(DAY_MS);
    (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

/// Year of the era, month and day of a day counted from 1970.
fn calendar(days: i64) -> (i64, i64, i64) {
    // From 1 March of year 0; the years begin in March, so that the leap day is their last.
    let (year, day_of_year) = if days >= GREGORIAN_SINCE {
        let days = days + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        (era * 400 + year, day - (365 * year + year / 4 - year / 100))
    } else {
        let days = days + 719_470;
        let (era, day) = (days.div_euclid(1461), days.rem_euclid(1461));
        let year = (day - day / 1460) / 365;
        (era * 4 + year, day - 365 * year)
    };
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (if year > 0 { year } else { 1 - year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::date;

    /// As Java 17 prints them.
    #[test]
    fn dates_are_julian_before_the_gregorian_calendar() {
        for (ms, text) in [
            (1_704_164_645_678, "Tue Jan 02 03:04:05 UTC 2024"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (-12_219_292_800_000, "Fri Oct 15 00:00:00 UTC 1582"),
            (-12_219_292_800_001, "Thu Oct 04 23:59:59 UTC 1582"),
            (-62_135_769_600_001, "Fri Dec 31 23:59:59 UTC 1"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
        ] {
            assert_eq!(date(ms), text);
        }
    }
}
