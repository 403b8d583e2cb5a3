//! Conditional requests, in the order of RFC 9110, 13.2.2.

use super::headers::only;
use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What identifies the state of a file to clients.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'v> {
    /// The strong entity tag, with its quotes.
    pub etag: Option<&'v str>,
    /// The modification time in whole seconds since the Unix epoch; not before that of what was opened.
    pub modified: u64,
    /// Whether that [is settled](is_settled).
    pub settled: bool,
}

/// Whether a modification time, in whole seconds, is so old that no state later than that of `now` can have
/// the same. Before, it is no validator: who has it would never learn of a change within that second.
pub fn is_settled(modified: u64, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    modified.checked_add(2).is_some_and(|settled| settled <= now)
}

/// What the conditions of a GET or HEAD lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer to the request without conditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Whether a condition by date counts, which it does not beside one by tags.
pub fn are_by_date(headers: &HeaderMap) -> bool {
    let counts =
        |date, tags| headers.contains_key::<HeaderName>(date) && !headers.contains_key::<HeaderName>(tags);
    counts(IF_UNMODIFIED_SINCE, IF_MATCH)
        || counts(IF_MODIFIED_SINCE, IF_NONE_MATCH)
        || only(headers, IF_RANGE).is_some_and(|value| Tag::parse(value).is_none())
}

/// Evaluates the conditions of a GET or HEAD, but for If-Range.
pub fn evaluate(headers: &HeaderMap, of: Validators<'_>) -> Outcome {
    if headers.contains_key(IF_MATCH) {
        if !any_matches(headers, IF_MATCH, |tag| tag.matches_strongly(of.etag)) {
            return Outcome::Failed;
        }
    } else if date(headers, IF_UNMODIFIED_SINCE).is_some_and(|date| of.modified > date) {
        return Outcome::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if any_matches(headers, IF_NONE_MATCH, |tag| tag.matches_weakly(of.etag)) {
            return Outcome::NotModified;
        }
    } else if date(headers, IF_MODIFIED_SINCE).is_some_and(|date| of.settled && of.modified <= date) {
        return Outcome::NotModified;
    }
    Outcome::Proceed
}

/// Whether the header Range counts: without If-Range, or if that names the present state. A date has to be
/// Last-Modified itself, and settled.
pub fn range_counts(headers: &HeaderMap, of: Validators<'_>) -> bool {
    if !headers.contains_key(IF_RANGE) {
        return true;
    }
    let Some(value) = only(headers, IF_RANGE) else {
        return false;
    };
    if let Some((tag, "")) = Tag::parse(value) {
        return tag.matches_strongly(of.etag);
    }
    of.settled && seconds(value) == Some(of.modified)
}

/// The only date in a header, in seconds since the Unix epoch. Invalid ones are ignored.
fn date(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    seconds(only(headers, name)?)
}

fn seconds(date: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(date).ok()?;
    time.duration_since(UNIX_EPOCH)
        .ok()
        .as_ref()
        .map(Duration::as_secs)
}

/// An entity tag.
struct Tag<'t> {
    weak: bool,
    /// With its quotes.
    opaque: &'t str,
}

impl<'t> Tag<'t> {
    /// The tag that `text` begins with, and the rest.
    fn parse(text: &'t str) -> Option<(Tag<'t>, &'t str)> {
        let (weak, rest) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let end = rest.strip_prefix('"')?.find('"')? + 2;
        let (opaque, rest) = rest.split_at(end);
        let valid = opaque.chars().all(|char| char > ' ' && char != '\u{7f}');
        valid.then_some((Tag { weak, opaque }, rest))
    }

    fn matches_weakly(&self, etag: Option<&str>) -> bool {
        etag == Some(self.opaque)
    }

    fn matches_strongly(&self, etag: Option<&str>) -> bool {
        !self.weak && self.matches_weakly(etag)
    }
}

/// Whether a header is `*`, or a tag in its list matches. A list ends where it is no list any more.
fn any_matches(headers: &HeaderMap, name: HeaderName, matches: impl Fn(&Tag<'_>) -> bool) -> bool {
    let values = headers.get_all(name).into_iter();
    // Tags may have bytes that are not ASCII. None of ours has.
    values
        .filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
        .any(|value| {
            let separators = [' ', '\t', ','];
            if value.trim_matches([' ', '\t']) == "*" {
                return true;
            }
            let mut rest = value.trim_start_matches(separators);
            while let Some((tag, after)) = Tag::parse(rest) {
                if matches(&tag) {
                    return true;
                }
                rest = after.trim_start_matches(separators);
            }
            false
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    const BEFORE: &str = "Tue, 04 Feb 2025 00:00:00 GMT";
    const SAME: &str = "Tue, 04 Feb 2025 00:00:01 GMT";
    const AFTER: &str = "Tue, 04 Feb 2025 00:00:02 GMT";
    const MODIFIED: u64 = 1_738_627_201;
    const OF: Validators<'static> = Validators {
        etag: Some("\"a\""),
        modified: MODIFIED,
        settled: true,
    };
    const FRESH: Validators<'static> = Validators { settled: false, ..OF };

    fn headers(all: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn conditions_are_evaluated_in_their_order() {
        use Outcome::*;
        for (all, expected) in [
            (&[][..], Proceed),
            (&[("if-match", "\"a\"")], Proceed),
            (&[("if-match", "\"b\", \"a\"")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "W/\"a\"")], Failed),
            (&[("if-match", "\"b\"")], Failed),
            (&[("if-match", "a")], Failed),
            (&[("if-match", "\"b\""), ("if-match", "\"a\"")], Proceed),
            (&[("if-none-match", "\"a\"")], NotModified),
            (&[("if-none-match", "W/\"a\"")], NotModified),
            (&[("if-none-match", "\"x,y\" ,, W/\"a\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"b\"")], Proceed),
            (&[("if-none-match", "nonsense")], Proceed),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-unmodified-since", SAME)], Proceed),
            (&[("if-unmodified-since", "yesterday")], Proceed),
            (&[("if-modified-since", BEFORE)], Proceed),
            (&[("if-modified-since", SAME)], NotModified),
            (&[("if-modified-since", AFTER)], NotModified),
            (&[("if-modified-since", "0")], Proceed),
            // If-Match takes precedence over dates, and over If-None-Match.
            (&[("if-match", "\"a\""), ("if-unmodified-since", BEFORE)], Proceed),
            (&[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
            (&[("if-match", "\"a\""), ("if-none-match", "\"a\"")], NotModified),
            (
                &[("if-none-match", "\"b\""), ("if-modified-since", AFTER)],
                Proceed,
            ),
            (
                &[("if-unmodified-since", BEFORE), ("if-none-match", "\"a\"")],
                Failed,
            ),
        ] {
            assert_eq!(evaluate(&headers(all), OF), expected, "{all:?}");
        }
        for (all, expected) in [
            (&[("if-modified-since", SAME)], Proceed),
            (&[("if-modified-since", AFTER)], Proceed),
            (&[("if-unmodified-since", BEFORE)], Failed),
            (&[("if-unmodified-since", SAME)], Proceed),
        ] {
            assert_eq!(evaluate(&headers(all), FRESH), expected, "fresh: {all:?}");
        }
        let untagged = Validators { etag: None, ..OF };
        assert_eq!(
            evaluate(&headers(&[("if-none-match", "\"a\"")]), untagged),
            Proceed
        );
    }

    #[test]
    fn a_range_counts_in_the_state_that_if_range_names() {
        let counts = |value: &str, of| range_counts(&headers(&[("if-range", value)]), of);
        assert!(range_counts(&headers(&[]), FRESH));
        for (value, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", false),
            ("\"b\"", false),
            ("\"a\", \"b\"", false),
            (SAME, true),
            (BEFORE, false),
            (AFTER, false),
            ("nonsense", false),
        ] {
            assert_eq!(counts(value, OF), expected, "{value}");
        }
        assert!(counts("\"a\"", FRESH) && !counts(SAME, FRESH));
        let after = |seconds| UNIX_EPOCH + Duration::from_secs(MODIFIED + seconds);
        assert!(is_settled(MODIFIED, after(2)) && !is_settled(MODIFIED, after(1)));
    }
}
