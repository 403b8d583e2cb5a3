//! The header Range, for bytes.

use std::cmp::Ordering;
use std::ops::Range;

/// The most ranges in one header.
const MAX_RANGES: usize = 64;

/// What of a file a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// All of it: the header is no valid list of ranges.
    Whole,
    /// Ranges of bytes, ascending, with a gap between two of them.
    Parts(Vec<Range<u64>>),
    /// Nothing of it lies in the file, or there are more than 64.
    Unsatisfiable,
}

impl Ranges {
    /// Parses the value of the header, for a file of `len` bytes. What overlaps or touches is joined.
    pub fn parse(header: &str, len: u64) -> Ranges {
        let Some((unit, list)) = header.split_once('=') else {
            return Ranges::Whole;
        };
        if !unit.eq_ignore_ascii_case("bytes") {
            return Ranges::Whole;
        }
        let parts = list.split(',').map(|part| part.trim_matches([' ', '\t']));
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        let ranges: Option<Vec<_>> = parts.iter().map(|part| range(part, len)).collect();
        let Some(mut ranges) = ranges.filter(|ranges| !ranges.is_empty()) else {
            return Ranges::Whole;
        };
        if ranges.len() > MAX_RANGES {
            return Ranges::Unsatisfiable;
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        match joined.is_empty() {
            true => Ranges::Unsatisfiable,
            false => Ranges::Parts(joined),
        }
    }
}

/// One range, cut at the end of the file; empty if nothing of it lies in the file. None if it is not valid.
fn range(text: &str, len: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    match (first.is_empty(), last.is_empty()) {
        (true, true) => None,
        // The last bytes.
        (true, false) => {
            let count = number(last)?.value().map_or(len, |count| count.min(len));
            Some(len - count..len)
        }
        (false, _) => {
            let from = number(first)?;
            let to = match last.is_empty() {
                true => None,
                false => Some(number(last)?),
            };
            if to.as_ref().is_some_and(|to| from.cmp(to) == Ordering::Greater) {
                return None;
            }
            let start = from.value().map_or(len, |start| start.min(len));
            let end = to.and_then(|to| to.value()?.checked_add(1));
            Some(start..end.map_or(len, |end| end.min(len)))
        }
    }
}

/// A number of any length: its digits, without zeros in front.
struct Number<'t>(&'t str);

fn number(text: &str) -> Option<Number<'_>> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Number(text.trim_start_matches('0')))
}

impl Number<'_> {
    /// None if it is beyond all lengths.
    fn value(&self) -> Option<u64> {
        match self.0 {
            "" => Some(0),
            digits => digits.parse().ok(),
        }
    }

    fn cmp(&self, other: &Number<'_>) -> Ordering {
        (self.0.len(), self.0).cmp(&(other.0.len(), other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_ranges_are_cut_joined_and_sorted() {
        let huge = "9".repeat(400);
        for (header, expected) in [
            ("bytes=0-0", &[(0, 1)][..]),
            ("bytes=0-", &[(0, 100)][..]),
            ("BYTES=5-9", &[(5, 10)][..]),
            ("bytes=-7", &[(93, 100)][..]),
            ("bytes=-700", &[(0, 100)][..]),
            (&format!("bytes=-{huge}"), &[(0, 100)][..]),
            (&format!("bytes=99-{huge}"), &[(99, 100)][..]),
            (&format!("bytes=00007-000{huge}"), &[(7, 100)][..]),
            ("bytes=98-18446744073709551615", &[(98, 100)][..]),
            ("bytes=0-1, 3-4", &[(0, 2), (3, 5)][..]),
            ("bytes=3-4,0-1", &[(0, 2), (3, 5)][..]),
            ("bytes=0-1,2-3", &[(0, 4)][..]),
            ("bytes=0-50,10-20,\t40-60 ,,", &[(0, 61)][..]),
            ("bytes=200-300,5-5,-0", &[(5, 6)][..]),
            ("bytes=0-10,-95", &[(0, 100)][..]),
        ] {
            let expected = expected.iter().map(|(start, end)| *start..*end).collect();
            assert_eq!(Ranges::parse(header, 100), Ranges::Parts(expected), "{header}");
        }
    }

    #[test]
    fn what_is_not_valid_asks_for_everything() {
        let huge = "9".repeat(400);
        let descending = format!("bytes={huge}9-{huge}");
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-",
            "bytes=1",
            "bytes=2-1",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes = 1-2",
            "bytes=1 -2",
            "bytes=0x1-2",
            "bytes=--1",
            "items=0-1",
            "bytes=10-9",
            &descending,
            "bytes=1-2;3-4",
            "bytes=\u{661}-2",
        ] {
            assert_eq!(Ranges::parse(header, 100), Ranges::Whole, "{header}");
        }
    }

    #[test]
    fn what_no_byte_satisfies_is_refused_and_so_are_more_than_64_ranges() {
        let huge = "9".repeat(400);
        let beyond = format!("bytes={huge}-");
        for header in [
            "bytes=100-",
            "bytes=100-200",
            "bytes=-0",
            "bytes=-0,150-",
            &beyond,
        ] {
            assert_eq!(Ranges::parse(header, 100), Ranges::Unsatisfiable, "{header}");
        }
        for header in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(Ranges::parse(header, 0), Ranges::Unsatisfiable, "{header}");
        }
        let many = |count: u64| {
            let ranges: Vec<String> = (0..count).map(|n| format!("{}-{}", 2 * n, 2 * n)).collect();
            Ranges::parse(&format!("bytes={}", ranges.join(",")), 1000)
        };
        assert!(matches!(many(64), Ranges::Parts(parts) if parts.len() == 64));
        assert_eq!(many(65), Ranges::Unsatisfiable);
    }

    #[test]
    fn parts_never_have_more_bytes_than_the_file() {
        for len in [1, 2, 3, 5, 10] {
            for (a, b) in (0..12).flat_map(|a| (0..12).map(move |b| (a, b))) {
                let header = format!("bytes={a}-{b},{b}-,-{a}");
                if let Ranges::Parts(parts) = Ranges::parse(&header, len) {
                    assert!(
                        parts.iter().all(|part| part.start < part.end && part.end <= len),
                        "{header}"
                    );
                    assert!(parts.windows(2).all(|two| two[0].end < two[1].start), "{header}");
                }
            }
        }
    }
}
