//! Formats dates and times.

use crate::calendar::date_from_days;

/// Nanoseconds per second and per day.
const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Formats milliseconds since the Unix epoch as `2023-11-14 22:13:20` (UTC); after 9999 as a number.
pub fn time(milliseconds: u64) -> String {
    let seconds = i128::from(milliseconds / 1000);
    date_and_time(seconds * SECOND).map_or(milliseconds.to_string(), |(date, time)| format!("{date} {time}"))
}

/// Date and time of day of `nanoseconds` since the Unix epoch, without trailing zeros of the fraction. None
/// outside of the years 0 to 9999.
fn date_and_time(nanoseconds: i128) -> Option<(String, String)> {
    let days = i64::try_from(nanoseconds.div_euclid(DAY)).ok()?;
    // Generous bounds that avoid overflows below.
    if !(-800_000..=3_000_000).contains(&days) {
        return None;
    }
    let (year, month, day) = date_from_days(days);
    if !(0..=9999).contains(&year) {
        return None;
    }
    let of_day = nanoseconds.rem_euclid(DAY);
    let (seconds, fraction) = (of_day / SECOND, of_day % SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match fraction {
        0 => String::new(),
        fraction => format!(".{fraction:09}").trim_end_matches('0').to_owned(),
    };
    Some((
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{hour:02}:{minute:02}:{second:02}{fraction}"),
    ))
}

/// The unit of a datetime, which counts from 1970 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Calendar years.
    Years,
    /// Calendar months.
    Months,
    /// A number of nanoseconds.
    Nanoseconds(i128),
}

impl Unit {
    /// The unit of a `DATETIME_*` datatype; None for other datatypes and for units finer than nanoseconds.
    pub fn of(datatype: &str) -> Option<Unit> {
        Some(match datatype.strip_prefix("DATETIME_")? {
            "YEAR" => Unit::Years,
            "MONTH" => Unit::Months,
            "WEEK" => Unit::Nanoseconds(7 * DAY),
            "DAY" => Unit::Nanoseconds(DAY),
            "HR" => Unit::Nanoseconds(3600 * SECOND),
            "MIN" => Unit::Nanoseconds(60 * SECOND),
            "SEC" => Unit::Nanoseconds(SECOND),
            "MS" => Unit::Nanoseconds(1_000_000),
            "US" => Unit::Nanoseconds(1000),
            "NS" => Unit::Nanoseconds(1),
            _ => return None,
        })
    }

    /// Formats the time `number` units after the beginning of 1970, to the precision of the unit. None
    /// outside of the years 0 to 9999.
    pub fn show(self, number: i64) -> Option<String> {
        let nanoseconds = match self {
            Unit::Years => {
                let year = number
                    .checked_add(1970)
                    .filter(|year| (0..=9999).contains(year))?;
                return Some(format!("{year:04}"));
            }
            Unit::Months => {
                let year = Unit::Years.show(number.div_euclid(12))?;
                return Some(format!("{year}-{:02}", number.rem_euclid(12) + 1));
            }
            Unit::Nanoseconds(unit) => i128::from(number) * unit,
        };
        let (date, time) = date_and_time(nanoseconds)?;
        Some(match self {
            Unit::Nanoseconds(unit) if unit % DAY == 0 => date,
            _ => format!("{date}T{time}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted() {
        for (milliseconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (1_700_000_000_123, "2023-11-14 22:13:20"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (4_107_542_399_000, "2100-02-28 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
            // The largest timestamp.
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(time(milliseconds), text);
        }
    }

    #[test]
    fn dates_are_formatted_in_every_unit() {
        for (datatype, number, text) in [
            ("DATETIME_YEAR", 54, "2024"),
            ("DATETIME_MONTH", -1, "1969-12"),
            ("DATETIME_WEEK", 1, "1970-01-08"),
            ("DATETIME_DAY", 19_782, "2024-02-29"),
            ("DATETIME_HR", 25, "1970-01-02T01:00:00"),
            ("DATETIME_MIN", -1, "1969-12-31T23:59:00"),
            ("DATETIME_SEC", 1_700_000_000, "2023-11-14T22:13:20"),
            ("DATETIME_MS", 1_700_000_000_123, "2023-11-14T22:13:20.123"),
            ("DATETIME_US", 1, "1970-01-01T00:00:00.000001"),
            ("DATETIME_NS", 1, "1970-01-01T00:00:00.000000001"),
        ] {
            assert_eq!(
                Unit::of(datatype).unwrap().show(number).as_deref(),
                Some(text),
                "{datatype}"
            );
        }
        for datatype in ["DATETIME_PS", "DATETIME_AS", "TIME_SEC", "INT64"] {
            assert_eq!(Unit::of(datatype), None);
        }
        for datatype in ["DATETIME_YEAR", "DATETIME_MONTH", "DATETIME_DAY", "DATETIME_SEC"] {
            for number in [i64::MIN, i64::MAX] {
                assert_eq!(Unit::of(datatype).unwrap().show(number), None, "{datatype}");
            }
        }
    }
}
