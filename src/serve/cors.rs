//! Which other sites' scripts may read (CORS).

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HeaderValue,
    ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};

/// The origins of `--cors`.
#[derive(Debug, Clone, Default)]
pub struct Cors {
    origins: Vec<String>,
}

impl Cors {
    /// Those that are given; `*` is any.
    pub fn new(origins: &[String]) -> Cors {
        let origins = origins.iter().map(|origin| origin.to_ascii_lowercase());
        Cors {
            origins: origins.collect(),
        }
    }

    /// What the header Access-Control-Allow-Origin says to the origin of a request; None if it may not read.
    fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let name = origin.to_str().ok()?.to_ascii_lowercase();
        match self.origins.iter().any(|known| known == "*") {
            true => Some(HeaderValue::from_static("*")),
            false => self.origins.contains(&name).then(|| origin.clone()),
        }
    }

    /// Whether a browser asks before a request if it may be made.
    pub fn is_preflight(parts: &Parts) -> bool {
        let has = |name| parts.headers.contains_key(name);
        parts.method == Method::OPTIONS && has(ORIGIN) && has(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// The headers that allow what a preflight asks for; None if its origin may not read.
    pub fn preflight(&self, headers: &HeaderMap) -> Option<HeaderMap> {
        self.allowed(headers)?;
        let mut out = HeaderMap::new();
        out.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD, OPTIONS, PROPFIND"),
        );
        out.insert(
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "range, authorization, if-match, if-none-match, if-range, if-modified-since, if-unmodified-since, \
                 accept, content-type, depth, cache-control",
            ),
        );
        out.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        Some(out)
    }

    /// Adds what every answer to a request with `headers` says.
    pub fn add(&self, headers: &HeaderMap, answer: &mut HeaderMap) {
        if self.origins.is_empty() {
            return;
        }
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.allowed(headers) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            answer.insert(
                ACCESS_CONTROL_EXPOSE_HEADERS,
                HeaderValue::from_static("ETag, Content-Range, Content-Length, Accept-Ranges, Last-Modified"),
            );
        }
    }
}
