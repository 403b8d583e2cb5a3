//! The proleptic Gregorian calendar: dates and days since the Unix epoch, for any year; the present.

use std::time::{SystemTime, UNIX_EPOCH};

/// Days from 1970-01-01 to the first of January of `year`.
fn days_to_year(year: i128) -> i128 {
    let before = year - 1;
    365 * (year - 1970) + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 477
}

/// Days of each month of `year`.
fn months(year: i128) -> [i128; 12] {
    let multiple_of = |n| year.rem_euclid(n) == 0;
    let leap = multiple_of(4) && (!multiple_of(100) || multiple_of(400));
    [31, 28 + i128::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Days from 1970-01-01 to a date; None where the calendar has no such date. Months and days count from 1.
pub fn days_from_date(year: i64, month: u32, day: u32) -> Option<i128> {
    let year = i128::from(year);
    let lengths = months(year);
    let month = (month as usize).checked_sub(1)?;
    let day = i128::from(day);
    if day < 1 || day > *lengths.get(month)? {
        return None;
    }
    let before: i128 = lengths.iter().take(month).sum();
    Some(days_to_year(year) + before + day - 1)
}

/// Year, month and day of a count of days since 1970-01-01. Months and days count from 1.
pub fn date_from_days(days: i64) -> (i64, u32, u32) {
    let (year, month, day) = date(days.into());
    // A year of fewer days than i64 counts fits in i64 as well.
    (year as i64, month, day)
}

/// The same of up to 2^70 days.
pub fn date(days: i128) -> (i128, u32, u32) {
    /// Days from 0000-03-01 to 1970-01-01: years are taken to begin in March, so that a leap day is the last.
    const EPOCH: i128 = 719_468;
    /// Days of 400 years.
    const ERA: i32 = 146_097;
    let days = days + EPOCH;
    // Divisions of i128 take most of the time of writing a date.
    let (era, day) = match i64::try_from(days) {
        Ok(days) => (
            i128::from(days.div_euclid(ERA.into())),
            days.rem_euclid(ERA.into()) as u32,
        ),
        Err(_) => (days.div_euclid(ERA.into()), days.rem_euclid(ERA.into()) as u32),
    };
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, months have 153 days in five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (after, month) = if month < 10 {
        (0, month + 3)
    } else {
        (1, month - 9)
    };
    (era * 400 + i128::from(year + after), month, day)
}

/// The present, in milliseconds since the Unix epoch.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}

/// An instant in milliseconds since the Unix epoch as text: like `2025-02-04T00:00:00.000Z`, or a number
/// after the year 9999.
pub fn timestamp(instant: u64) -> String {
    let (days, of_day) = (instant / 86_400_000, instant % 86_400_000);
    let (year, month, day) = date_from_days(days as i64);
    if year > 9999 {
        return instant.to_string();
    }
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, millisecond) = (of_day / 1000 % 60, of_day % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_123, (2025, 2, 4)),
            (-719_162, (1, 1, 1)),
            (-719_163, (0, 12, 31)),
            (-719_528, (0, 1, 1)),
            (-719_529, (-1, 12, 31)),
            (2_932_896, (9999, 12, 31)),
            (2_932_897, (10_000, 1, 1)),
        ] {
            assert_eq!(date_from_days(days), date);
            assert_eq!(days_from_date(date.0, date.1, date.2), Some(i128::from(days)));
        }
    }

    #[test]
    fn days_and_dates_follow_one_another() {
        // Every day of 1,000 years around the epoch, and some at the ends of i64.
        let near = -182_625..182_625;
        let ends = [i64::MIN, i64::MIN + 1, i64::MIN / 2, i64::MAX / 2, i64::MAX - 1];
        let mut last = date_from_days(-182_626);
        for day in near.chain(ends) {
            let (year, month, of_month) = date_from_days(day);
            assert_eq!(days_from_date(year, month, of_month), Some(i128::from(day)));
            if (-182_625..182_625).contains(&day) {
                let next_day = (last.0, last.1, last.2 + 1);
                let next_month = (last.0, last.1 + 1, 1);
                let next_year = (last.0 + 1, 1, 1);
                assert!([next_day, next_month, next_year].contains(&(year, month, of_month)));
                last = (year, month, of_month);
            }
        }
    }

    #[test]
    fn there_is_no_such_date() {
        for (year, month, day) in [
            (2025, 0, 1),
            (2025, 13, 1),
            (2025, 1, 0),
            (2025, 4, 31),
            (2025, 2, 29),
            (1900, 2, 29),
        ] {
            assert_eq!(days_from_date(year, month, day), None);
        }
        assert!(days_from_date(2000, 2, 29).is_some() && days_from_date(2024, 2, 29).is_some());
        assert!(days_from_date(i64::MAX, 12, 31) > days_from_date(i64::MIN, 1, 1));
    }
}
