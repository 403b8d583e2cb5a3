//! Which redirects of a store are followed.
//!
//! Whoever redirects decides what is shown in place of the store's own objects, and sees the headers of the
//! next request. So a redirect leads to the origin (scheme, host and port) of the first request, or from one
//! name of Amazon S3 to another one of the same bucket, as for a bucket of another region; then no header
//! leaves the origin that might be a credential. All others are refused.

use object_store::client::HttpRequest;
use percent_encoding::percent_decode_str;
use reqwest::header::{ACCEPT, HeaderName, IF_MATCH, RANGE, USER_AGENT};
use reqwest::{StatusCode, Url};

/// The most redirects of one request.
pub(super) const MAX_REDIRECTS: usize = 5;

/// The headers that may go to another origin.
const PUBLIC_HEADERS: [HeaderName; 4] = [ACCEPT, IF_MATCH, RANGE, USER_AGENT];

/// Whether `status` names another place for what was requested.
pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Makes of `request`, which was sent to `first` or has been redirected since, the request that follows the
/// header `location`. The error is a message without path and query of the location.
pub(super) fn follow(first: &Url, request: &mut HttpRequest, location: &[u8]) -> Result<(), String> {
    let unusable = || "the store redirects to something that is not a URL".to_owned();
    let here: Url = request.uri().to_string().parse().map_err(|_| unusable())?;
    let location = str::from_utf8(location).map_err(|_| unusable())?;
    let to = here.join(location).map_err(|_| unusable())?;
    let same_origin = to.origin() == first.origin();
    if !same_origin && !is_same_bucket(first, &to) {
        let (from, to) = (
            first.origin().ascii_serialization(),
            to.origin().ascii_serialization(),
        );
        return Err(format!(
            "the store at {from} redirects to another origin, {to}, which is not followed"
        ));
    }
    let method = request.method().as_str();
    // The entries of a directory are known by their paths below it. Servers escape other characters than
    // clients do, and write other digits.
    let path = |url: &Url| percent_decode_str(url.path().trim_end_matches('/')).collect::<Vec<u8>>();
    if method == "PROPFIND" && path(&to) != path(first) {
        return Err(
            "the store redirects the listing of a directory to another one, which is not followed".to_owned(),
        );
    }
    if !matches!(method, "GET" | "HEAD" | "PROPFIND") || !to.username().is_empty() || to.password().is_some()
    {
        return Err(format!(
            "the store redirects a request ({method}) that must not be"
        ));
    }
    *request.uri_mut() = to.as_str().parse().map_err(|_| unusable())?;
    if !same_origin {
        let headers = request.headers_mut();
        let kept = PUBLIC_HEADERS.map(|name| headers.remove(&name).map(|value| (name, value)));
        headers.clear();
        headers.extend(kept.into_iter().flatten());
    }
    Ok(())
}

/// Whether both URLs are names that Amazon S3 gives to one bucket.
fn is_same_bucket(one: &Url, other: &Url) -> bool {
    let bucket = s3_bucket(one);
    bucket.is_some() && bucket == s3_bucket(other)
}

/// The bucket of a URL of Amazon S3, with the domain (names of buckets are unique in it). None for all else,
/// such as a machine in Amazon's cloud.
fn s3_bucket(url: &Url) -> Option<(String, &'static str)> {
    if url.scheme() != "https" || url.port().is_some() {
        return None;
    }
    let host = url.host_str()?;
    let (labels, domain) = [".amazonaws.com", ".amazonaws.com.cn"]
        .into_iter()
        .find_map(|domain| Some((host.strip_suffix(domain)?, domain)))?;
    let labels: Vec<&str> = labels.split('.').collect();
    let is_service = |label: &str| matches!(label, "s3" | "s3-fips");
    let is_place = |labels: &[&str]| match labels {
        ["s3"] => true,
        [name] => name.strip_prefix("s3-").is_some_and(is_region),
        [service, region] => is_service(service) && is_region(region),
        [service, "dualstack", region] => is_service(service) && is_region(region),
        _ => false,
    };
    // The longest place: the bucket may contain dots.
    let start = (labels.len().saturating_sub(3)..labels.len())
        .find(|start| labels.get(*start..).is_some_and(is_place))?;
    let bucket = match labels.get(..start)? {
        [] => url.path_segments()?.next()?.to_owned(),
        bucket => bucket.join("."),
    };
    (!bucket.is_empty()).then_some((bucket, domain))
}

/// Whether this has the form of a region of AWS, such as `eu-west-1`.
pub(super) fn is_region(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let Some((number, [area, rest @ ..])) = parts.split_last() else {
        return false;
    };
    let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    (2..=4).contains(&area.len())
        && is_word(area)
        && (1..=2).contains(&rest.len())
        && rest.iter().all(is_word)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    const HEADERS: [&str; 4] = ["range", "authorization", "x-amz-security-token", "x-ms-date"];

    /// The URL and the headers of the request that follows.
    fn followed(method: &str, from: &str, location: &str) -> Result<(String, Vec<String>), String> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = from.parse().unwrap();
        for name in HEADERS {
            request.headers_mut().insert(name, "x".parse().unwrap());
        }
        follow(&from.parse().unwrap(), &mut request, location.as_bytes())?;
        let headers = request.headers().keys().map(ToString::to_string);
        Ok((request.uri().to_string(), headers.collect()))
    }

    #[test]
    fn the_same_origin_is_followed_with_all_headers() {
        for location in ["http://h:81/c/", "/c/", "//h:81/c/"] {
            let (uri, headers) = followed("PROPFIND", "http://h:81/c", location).unwrap();
            assert_eq!((&*uri, headers.len()), ("http://h:81/c/", 4), "{location}");
        }
        assert!(followed("GET", "http://h/c", "/d").is_ok());
        assert!(followed("PROPFIND", "http://h/c", "/d/").is_err());
        // As Apache redirects.
        let (uri, _) = followed("PROPFIND", "http://h/gr%C3%BCn[1]", "/gr%c3%bcn%5b1%5d/").unwrap();
        assert_eq!(uri, "http://h/gr%c3%bcn%5b1%5d/");
        assert!(followed("POST", "http://h/c", "/d").is_err());
        assert!(followed("GET", "http://h/c", "http://u:p@h/d").is_err());
    }

    #[test]
    fn regions_of_s3_are_followed_without_credentials() {
        let bucket = "https://b.c.s3.amazonaws.com/?list-type=2";
        for location in [
            "https://b.c.s3.eu-west-1.amazonaws.com/?list-type=2",
            "https://b.c.s3-us-gov-west-1.amazonaws.com/",
            "https://b.c.s3.dualstack.eu-west-1.amazonaws.com/",
            "https://s3.eu-central-1.amazonaws.com/b.c/k",
        ] {
            let (uri, headers) = followed("GET", bucket, location).unwrap();
            assert_eq!((&*uri, headers), (location, vec!["range".to_owned()]));
        }
    }

    #[test]
    fn other_origins_are_refused() {
        for (from, location) in [
            ("http://h/b", "http://evil/b?secret"),
            ("http://h/b", "http://h:81/b"),
            ("http://h/b", "https://h/b"),
            ("https://h/b", "http://h/b"),
            ("https://h/b", "ftp://h/b"),
            ("https://h/b", "http://"),
            (
                "https://h.blob.core.windows.net/b",
                "https://evil.blob.core.windows.net/b",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "http://b.s3.eu-west-1.amazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://evil.s3.eu-west-1.amazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://s3.eu-west-1.amazonaws.com/evil/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://s3.eu-west-1.amazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3.eu-west-1.amazonaws.com.cn/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3.eu-west-1.amazonaws.com.evil.net/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3.eu-west-1.evilamazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3.compute.amazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3-website-us-east-1.amazonaws.com/",
            ),
            (
                "https://b.s3.amazonaws.com/",
                "https://b.s3.us-east-1.amazonaws.com:8443/",
            ),
        ] {
            let refused = followed("GET", from, location).unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn regions_are_recognized() {
        for name in ["eu-west-1", "us-gov-east-1", "eusc-de-east-1", "ap-southeast-12"] {
            assert!(is_region(name), "{name}");
        }
        for name in [
            "",
            "eu",
            "eu-1",
            "eu-west",
            "x.evil.net/",
            "eu-west-1/",
            "website-us-east-1",
            "EU-west-1",
        ] {
            assert!(!is_region(name), "{name}");
        }
    }
}
