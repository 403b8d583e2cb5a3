//! Dates and times as people read them.

use crate::calendar::date_from_days;

/// Nanoseconds of a second and of a day.
const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;

/// Milliseconds since the Unix epoch as `2023-11-14 22:13:20` in UTC; as they are beyond the year 9999.
pub fn time(milliseconds: u64) -> String {
    let seconds = i128::from(milliseconds / 1000);
    date_and_time(seconds * SECOND).map_or(milliseconds.to_string(), |(date, time)| format!("{date} {time}"))
}

/// The date and the time of day that is so many nanoseconds after the beginning of 1970, fractions of seconds as far as they are not 0. None before
/// the year 0 and after 9999.
fn date_and_time(nanoseconds: i128) -> Option<(String, String)> {
    let days = i64::try_from(nanoseconds.div_euclid(DAY)).ok()?;
    // Some days more than there can be, before anything is multiplied.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (milliseconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (1_700_000_000_123, "2023-11-14 22:13:20"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (4_107_542_399_000, "2100-02-28 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
            // The largest that a fragment's name can hold.
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(time(milliseconds), text);
        }
    }
}
