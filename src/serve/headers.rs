//! Headers of requests, read in one way.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, HeaderName};
use percent_encoding::{CONTROLS, percent_decode_str, percent_encode, utf8_percent_encode};

/// The value of a header that occurs once, as text; None if it occurs more often, or is no text.
pub fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?;
    match values.next() {
        None => value.to_str().ok().map(|value| value.trim_matches([' ', '\t'])),
        Some(_) => None,
    }
}

/// Whether JSON is wanted rather than HTML: if it has the greater weight, or the same one and is named more
/// precisely.
pub fn wants_json(headers: &HeaderMap) -> bool {
    let (json, html) = (
        weight(headers, "application", "json"),
        weight(headers, "text", "html"),
    );
    json.0 > 0.0 && json > html
}

/// The weight of a media type in Accept, from the most precise of the ranges that it is in, and how precise
/// that is.
fn weight(headers: &HeaderMap, group: &str, subtype: &str) -> (f32, u8) {
    let mut found = (0.0_f32, 0);
    let values = headers.get_all(ACCEPT).into_iter();
    for item in values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = item.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default().to_ascii_lowercase();
        let precision = match range.split_once('/') {
            Some((first, second)) if (first, second) == (group, subtype) => 3,
            Some((first, "*")) if first == group => 2,
            Some(("*", "*")) => 1,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        let weight = if weight >= 0.0 { weight } else { 0.0 };
        if precision > found.1 || precision == found.1 && weight > found.0 {
            found = (weight, precision);
        }
    }
    found
}

/// The parameters of a query, decoded, in their order.
pub fn parameters(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        spelled(&percent_decode_str(&text).collect::<Vec<u8>>())
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Bytes as text that a form can hold, and that a range of strings takes for them: control characters and
/// what is not UTF-8 are percent-encoded.
pub fn spelled(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char.is_control() {
                true => out.extend(utf8_percent_encode(char.encode_utf8(&mut [0; 4]), CONTROLS)),
                false => out.push(char),
            }
        }
        out.extend(percent_encode(chunk.invalid(), CONTROLS));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_wanted_where_it_weighs_more_than_html() {
        for (accept, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("*/*", false),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                false,
            ),
            ("text/html;q=0.5, application/json", true),
            ("text/html, application/json;q=0.9", false),
            ("application/json;q=0", false),
            ("application/json;q=0.1, */*", false),
            ("application/json, text/plain, */*", true),
            ("application/json;q=0, */*", false),
            ("application/json;q=nan", false),
            ("application/*", true),
            ("application/*, text/*", false),
            ("application/json, text/html", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(wants_json(&headers), expected, "{accept}");
        }
        assert!(!wants_json(&HeaderMap::new()));
    }

    #[test]
    fn queries_are_split_and_decoded() {
        let expected = [("a", "b c"), ("d", ""), ("json", "x=y&"), ("", "e")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parameters("a=b+c&d&&json=x%3Dy%26&=e"), expected);
        assert!(parameters("").is_empty());
        let bytes = [("box".to_owned(), "é%FF..a%0Ab%C2%85".to_owned())];
        assert_eq!(parameters("box=%C3%A9%FF..a%0Ab%C2%85"), bytes);
    }
}
