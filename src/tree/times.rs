//! Parses times: the names of directories in `at/`, and dates in the names of `subarray/`.

use crate::calendar::days_from_date;
use crate::catalog::pin::Pin;
use crate::catalog::time::TimeRange;

/// Attoseconds of a second.
pub(super) const SECOND: i128 = 1_000_000_000_000_000_000;

/// Attoseconds of a day.
pub(super) const DAY: i128 = 86_400 * SECOND;

/// Attoseconds of a millisecond.
const MILLISECOND: i128 = SECOND / 1000;

/// The most digits of a year, so that attoseconds fit into 128 bits.
const YEAR_DIGITS: usize = 9;

/// What a name in `at/` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A range of time.
    Within(TimeRange),
    /// A state.
    Pin(Pin),
}

impl Asked {
    /// The end of what is seen, in milliseconds since the Unix epoch.
    pub fn end(self) -> u64 {
        match self {
            Asked::Within(times) => times.end,
            Asked::Pin(pin) => pin.time,
        }
    }
}

/// Parses a name in `at/`: a range of time as [`parse`] does, or a pin, as its [`Display`](std::fmt::Display)
/// writes it, with or without colons. The error is the reason why there is no such directory.
pub fn parse_name(name: &str) -> Result<Asked, String> {
    let Some((time, hash)) = name.split_once('~') else {
        return parse(name).map(Asked::Within);
    };
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = u64::from_str_radix(hash, 16).ok().filter(|_| is_hash);
    let hash = hash.ok_or_else(|| format!("{name:?} is not a pin: a time, `~` and 16 hexadecimal digits"))?;
    let time = end(time)?;
    Ok(Asked::Pin(Pin { time, hash }))
}

/// Parses a name in `at/`: one time for everything up to it, or a range `T1..T2`, where either end may be
/// missing. A missing start is 0; a missing end is `u64::MAX`, which means now, as in TileDB. The error is
/// the reason why there is no such directory.
///
/// A time is a full or truncated RFC 3339 time, in UTC unless it has an offset, or milliseconds since the
/// Unix epoch. Four digits are a year; digits of any other number, or with a sign, are milliseconds. Missing
/// parts are as small as possible in a start, and as large as possible in an end or a single time. Times
/// before 1970 become 0.
pub fn parse(name: &str) -> Result<TimeRange, String> {
    match name.split_once("..") {
        None => Ok(TimeRange::until(end(name)?)),
        Some(("", "")) => Err("a time range needs at least one end".to_string()),
        Some((from, to)) => Ok(TimeRange {
            start: match from {
                "" => 0,
                from => start(from)?,
            },
            end: match to {
                "" => u64::MAX,
                to => end(to)?,
            },
        }),
    }
}

/// The first millisecond that is not before the time.
fn start(text: &str) -> Result<u64, String> {
    milliseconds(text, |span| -(-span.first).div_euclid(MILLISECOND))
}

/// The last millisecond that is not after the time.
fn end(text: &str) -> Result<u64, String> {
    milliseconds(text, |span| span.last.div_euclid(MILLISECOND))
}

fn milliseconds(text: &str, round: impl Fn(Span) -> i128) -> Result<u64, String> {
    if let Some((sign, digits)) = number(text) {
        let before = sign == Some('-');
        return match digits.parse::<u64>() {
            _ if before => Ok(0),
            Ok(number) => Ok(number),
            Err(_) => Err(format!("{text} milliseconds are more than 2^64")),
        };
    }
    // In RFC 3339, years have four digits.
    let span = match text.as_bytes().get(4) {
        Some(b'-') | None => Span::parse(text),
        Some(_) => None,
    };
    let span = span.ok_or_else(|| {
        format!("{text:?} is not a time like 2025, 2025-02-04 or 2025-02-04T12:30:00Z, nor milliseconds")
    })?;
    Ok(u64::try_from(round(span).max(0)).unwrap_or(u64::MAX))
}

/// The sign and the digits of an integer; None for any other text, and for four digits without a sign, which
/// are a year.
pub(super) fn number(text: &str) -> Option<(Option<char>, &str)> {
    let sign = text.chars().next().filter(|c| "+-".contains(*c));
    let digits = text.get(sign.map_or(0, char::len_utf8)..)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_year = sign.is_none() && digits.len() == 4;
    (is_number && !is_year).then_some((sign, digits))
}

/// The first and last instant that a truncated time may mean, in attoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// With the smallest possible missing parts.
    pub first: i128,
    /// With the largest possible missing parts.
    pub last: i128,
}

impl Span {
    /// Parses `YYYY[-MM[-DD[Thh[:mm[:ss[.fraction]]][offset]]]]`, with or without colons. As in RFC 3339, `T`
    /// and `Z` may be lower-case, and `T` may be a space. Before a month, years may have a sign and more
    /// digits. None for anything else, and for dates and times that do not exist.
    pub(super) fn parse(text: &str) -> Option<Span> {
        let mut rest = Text(text);
        let year = rest.year()?;
        if text.len() == 4 && rest.0.is_empty() {
            let (first, next) = (days_from_date(year, 1, 1)?, days_from_date(year + 1, 1, 1)?);
            return Some(Span::of(first * DAY, next * DAY - 1));
        }
        rest.one_of("-")?;
        let month = rest.two(12)? as u32;
        if rest.0.is_empty() {
            let next = match month {
                12 => days_from_date(year + 1, 1, 1)?,
                _ => days_from_date(year, month + 1, 1)?,
            };
            return Some(Span::of(days_from_date(year, month, 1)? * DAY, next * DAY - 1));
        }
        rest.one_of("-")?;
        let midnight = days_from_date(year, month, rest.two(31)? as u32)? * DAY;
        if rest.0.is_empty() {
            return Some(Span::of(midnight, midnight + DAY - 1));
        }
        rest.one_of("Tt ")?;
        let time = rest.time_of_day()?;
        let first = midnight + time.first - rest.offset()?;
        // The 61st second of a minute is a leap second, which exists only at the end of a day.
        let possible = !time.leap || first.rem_euclid(DAY) < SECOND;
        (possible && rest.0.is_empty()).then(|| Span::of(first, first + time.open))
    }

    fn of(first: i128, last: i128) -> Span {
        Span { first, last }
    }
}

/// A time of day, in attoseconds.
struct TimeOfDay {
    /// Since midnight, with missing parts as zero.
    first: i128,
    /// The most that missing parts can add.
    open: i128,
    /// Whether it is in the 61st second of a minute.
    leap: bool,
}

/// The rest of a time to parse.
struct Text<'a>(&'a str);

impl Text<'_> {
    /// Takes the next character if it is in `set`.
    fn one_of(&mut self, set: &str) -> Option<char> {
        let c = self.0.chars().next().filter(|&c| set.contains(c))?;
        self.0 = self.0.get(c.len_utf8()..)?;
        Some(c)
    }

    /// Takes `least` to `most` digits. Returns their value and their count.
    fn digits(&mut self, least: usize, most: usize) -> Option<(i128, usize)> {
        let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let taken = count.min(most);
        let (digits, rest) = self.0.split_at_checked(taken)?;
        self.0 = rest;
        (taken >= least).then_some((digits.parse().ok()?, taken))
    }

    /// Takes a two-digit number up to `most`.
    fn two(&mut self, most: i128) -> Option<i128> {
        let (number, _) = self.digits(2, 2)?;
        (number <= most).then_some(number)
    }

    /// Takes a year: an optional sign, and at least four digits.
    fn year(&mut self) -> Option<i64> {
        let sign = self.one_of("+-");
        let (year, _) = self.digits(4, YEAR_DIGITS)?;
        let year = if sign == Some('-') { -year } else { year };
        i64::try_from(year).ok()
    }

    fn time_of_day(&mut self) -> Option<TimeOfDay> {
        let mut time = TimeOfDay {
            first: self.two(23)? * 3600 * SECOND,
            open: 3600 * SECOND - 1,
            leap: false,
        };
        let colons = self.one_of(":").is_some();
        if !colons && !self.0.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(time);
        }
        time.first += self.two(59)? * 60 * SECOND;
        time.open = 60 * SECOND - 1;
        let more = match colons {
            true => self.one_of(":").is_some(),
            false => self.0.starts_with(|c: char| c.is_ascii_digit()),
        };
        if !more {
            return Some(time);
        }
        let second = self.two(60)?;
        time.leap = second == 60;
        time.first += second * SECOND;
        time.open = SECOND - 1;
        if self.one_of(".").is_some() {
            let (fraction, digits) = self.digits(1, 18)?;
            time.first += fraction * 10i128.pow(18 - digits as u32);
            time.open = 0;
        }
        Some(time)
    }

    /// Takes the offset from UTC in attoseconds; 0 if there is none.
    fn offset(&mut self) -> Option<i128> {
        let sign = match self.one_of("Zz+-") {
            None | Some('Z' | 'z') => return Some(0),
            Some('-') => -1,
            Some(_) => 1,
        };
        let hours = self.two(23)?;
        self.one_of(":");
        Some(sign * (hours * 60 + self.two(59)?) * 60 * SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::timestamp;
    use crate::format::testing::Random;

    const SECOND_OF_FEBRUARY: u64 = 1_738_454_400_000;

    #[test]
    fn a_single_time_is_as_late_as_its_missing_parts_allow() {
        let day = SECOND_OF_FEBRUARY;
        for (name, end) in [
            ("2025", 1_767_225_600_000 - 1),
            ("0000", 0),
            ("1969", 0),
            ("1970", 365 * 86_400_000 - 1),
            ("9999", 253_402_300_799_999),
            ("2025-02", day + 27 * 86_400_000 - 1),
            ("2024-02", 1_709_251_200_000 - 1),
            ("2024-12", 1_735_689_600_000 - 1),
            ("2025-02-02", day + 86_400_000 - 1),
            ("2025-02-02T05", day + 6 * 3_600_000 - 1),
            ("2025-02-02T05:07", day + 5 * 3_600_000 + 8 * 60_000 - 1),
            ("2025-02-02T05:07:09", day + 18_429_999),
            ("2025-02-02T05:07:09Z", day + 18_429_999),
            ("2025-02-02T05:07:09.5", day + 18_429_500),
            ("2025-02-02T05:07:09.012Z", day + 18_429_012),
            ("2025-02-02T05:07:09.0129999Z", day + 18_429_012),
            ("2025-02-02t05:07:09.012z", day + 18_429_012),
            ("2025-02-02 05:07:09.012Z", day + 18_429_012),
            ("2025-02-02T050709.012Z", day + 18_429_012),
            ("2025-02-02T0507", day + 5 * 3_600_000 + 8 * 60_000 - 1),
            ("2025-02-02T05:07:09.012+01:30", day + 18_429_012 - 5_400_000),
            ("2025-02-02T050709.012-0130", day + 18_429_012 + 5_400_000),
            ("2025-02-02T00:00+23:59", day - 86_400_000 + 2 * 60_000 - 1),
            ("2016-12-31T23:59:60.25Z", 1_483_228_800_250),
            ("1970-01-01T00:00:00.000Z", 0),
            ("1969-12", 0),
            ("0000-01", 0),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(parse(name), Ok(TimeRange::until(end)), "{name}");
        }
    }

    #[test]
    fn digits_are_milliseconds_unless_they_are_four() {
        for (name, end) in [
            ("5", 5),
            ("202", 202),
            ("20255", 20_255),
            ("02025", 2025),
            ("+2025", 2025),
            ("+5", 5),
            ("-5", 0),
            ("-2025", 0),
            ("-99999999999999999999", 0),
        ] {
            assert_eq!(parse(name), Ok(TimeRange::until(end)), "{name}");
        }
        assert_eq!(parse("0"), Ok(TimeRange::until(0)));
        assert_eq!(
            parse("0001738454400000"),
            Ok(TimeRange::until(SECOND_OF_FEBRUARY))
        );
        assert_eq!(parse("18446744073709551615"), Ok(TimeRange::until(u64::MAX)));
        assert!(parse("18446744073709551616").is_err());
    }

    #[test]
    fn pins_are_a_time_and_a_hash() {
        let pin = Pin {
            time: SECOND_OF_FEBRUARY,
            hash: 0xab,
        };
        assert_eq!(pin.to_string(), "2025-02-02T00:00:00.000Z~00000000000000ab");
        for name in [
            "2025-02-02T00:00:00.000Z~00000000000000ab",
            "2025-02-02T000000.000Z~00000000000000AB",
            "1738454400000~00000000000000ab",
        ] {
            assert_eq!(parse_name(name), Ok(Asked::Pin(pin)), "{name}");
        }
        let late = Pin {
            time: 253_402_300_800_000,
            hash: u64::MAX,
        };
        assert_eq!(parse_name(&late.to_string()), Ok(Asked::Pin(late)));
        for name in [
            "2025~",
            "2025~ab",
            "2025~+0000000000000ab",
            "2025~00000000000000ab0",
            "2025~00000000000000ag",
            "~00000000000000ab",
            "2024..2025~00000000000000ab",
            "2025-13~00000000000000ab",
        ] {
            assert!(parse_name(name).is_err(), "{name}");
        }
        assert_eq!(parse_name("2025"), parse("2025").map(Asked::Within));
    }

    #[test]
    fn ranges_include_their_ends() {
        let range = |start, end| Ok(TimeRange { start, end });
        let day = SECOND_OF_FEBRUARY;
        assert_eq!(
            parse("2025-02..2025-02"),
            range(day - 86_400_000, day + 27 * 86_400_000 - 1)
        );
        assert_eq!(
            parse("2025..2025"),
            range(1_735_689_600_000, 1_767_225_600_000 - 1)
        );
        assert_eq!(parse("+2025..2025"), range(2025, 1_767_225_600_000 - 1));
        assert_eq!(parse("2025-02-02.."), range(day, u64::MAX));
        assert_eq!(parse("..2025-02-01"), range(0, day - 1));
        assert_eq!(parse("7..9"), range(7, 9));
        // An empty range is still a range.
        assert_eq!(parse("9..7"), range(9, 7));
        // Fractions of milliseconds round inwards.
        let parts = "2025-02-02T00:00:00.0000001..2025-02-02T00:00:00.0019999";
        assert_eq!(parse(parts), range(day + 1, day + 1));
        assert_eq!(parse("1969-12..1970-01-01T00:00:00"), range(0, 999));
    }

    #[test]
    fn invalid_times_are_refused() {
        for name in [
            "",
            "..",
            "yesterday",
            "now",
            "--5",
            "+-5",
            "+",
            "5ms",
            "2025Z",
            "2025T12",
            "2025 ",
            "1.5",
            "2025-2",
            "2025-02-",
            "2025-13",
            "2025-00",
            "2025-02-29",
            "2025-02-4",
            "2025-W05",
            "2025-02-02T",
            "2025-02-02T5",
            "2025-02-02T24",
            "2025-02-02T05:",
            "2025-02-02T05:60",
            "2025-02-02T05:0709",
            "2025-02-02T0507:09",
            "2025-02-02T05:07:61",
            "2025-02-02T05:07:60Z",
            "2025-02-02T23:59:60-01:00",
            "2025-02-02T05:07:09.",
            "2025-02-02T05:07:09.Z",
            "2025-02-02T05:07:09ZZ",
            "2025-02-02T05:07:09+1",
            "2025-02-02T05:07:09+24:00",
            "2025-02-02Z",
            "2025-02-02x05",
            "2025-02-02T05:07:09.1234567890123456789",
            "12025-02",
            "-2025-02",
            "+2025-02",
            "2025-02..x",
            "x..2025-02",
            "1..2..3",
            "...5",
            " 2025-02",
            "2025-02 ",
            "２０２５-02",
            "２０２５",
            "20２",
            "2025-02-02T０5",
        ] {
            assert!(parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_of_instants_parse_as_these_instants() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_738_627_200_000), "2025-02-04T00:00:00.000Z");
        assert_eq!(timestamp(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
        assert_eq!(timestamp(253_402_300_800_000), "253402300800000");
        assert_eq!(timestamp(u64::MAX), "18446744073709551615");
        let mut random = Random(1);
        for step in 0..20_000u64 {
            let instant = random.next() >> (step % 64);
            assert_eq!(parse(&timestamp(instant)), Ok(TimeRange::until(instant)));
            let both = format!("{0}..{0}", timestamp(instant));
            assert_eq!(
                parse(&both),
                Ok(TimeRange {
                    start: instant,
                    end: instant
                })
            );
        }
    }

    #[test]
    fn years_may_have_more_digits_in_dates() {
        let days = |text: &str| Span::parse(text).map(|span| (span.first / DAY, (span.last + 1) / DAY));
        assert_eq!(days("-0001-12"), Some((-719_559, -719_528)));
        assert_eq!(days("10000-01-01"), Some((2_932_897, 2_932_898)));
        assert_eq!(days("+999999999-12").map(|(first, last)| last - first), Some(31));
        assert_eq!(days("0004"), Some((-718_067, -717_701)));
        assert_eq!(days("12025"), None);
        assert_eq!(days("-2025"), None);
        assert_eq!(days("1000000000-12"), None);
        assert_eq!(days("999-12"), None);
    }
}
