//! Counts the requests to a store, and keeps the last failure.

use crate::lock::lock;
use crate::stats::{Counter, Stats};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use reqwest::StatusCode;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

/// The last failure of requests to a store.
#[derive(Debug, Default)]
pub struct Failures {
    last: Mutex<Option<String>>,
}

impl Failures {
    /// The cause of the last failure that is tried again.
    pub fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }

    fn note(&self, what: String) {
        *lock(&self.last) = Some(what);
    }
}

/// Connects as `object_store` does, and counts requests, and failures that are tried again.
#[derive(Debug)]
pub struct Counting {
    stats: Arc<Stats>,
    failures: Arc<Failures>,
}

impl Counting {
    /// Counts in `stats`; stores causes in `failures`.
    pub fn new(stats: Arc<Stats>, failures: Arc<Failures>) -> Self {
        Counting { stats, failures }
    }
}

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Counted {
            client: ReqwestConnector::default().connect(options)?,
            stats: self.stats.clone(),
            failures: self.failures.clone(),
        }))
    }
}

#[derive(Debug)]
struct Counted {
    client: HttpClient,
    stats: Arc<Stats>,
    failures: Arc<Failures>,
}

/// The counter for a request. None for requests for credentials, which have neither range nor ETag.
fn counter<'a>(request: &HttpRequest, stats: &'a Stats) -> Option<&'a Counter> {
    let query = request.uri().query().unwrap_or_default();
    let lists = |key: &str| query.split('&').any(|pair| pair.starts_with(key));
    let has = |header: &str| request.headers().contains_key(header);
    match request.method().as_str() {
        "HEAD" => Some(&stats.head_requests),
        "PROPFIND" => Some(&stats.list_requests),
        "GET" if lists("list-type=") || lists("comp=list") => Some(&stats.list_requests),
        "GET" if has("range") || has("if-match") => Some(&stats.get_requests),
        _ => None,
    }
}

impl HttpService for Counted {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let counter = counter(&request, &self.stats);
            if let Some(counter) = counter {
                counter.add(1);
            }
            let lists = request.method().as_str() == "PROPFIND";
            let mut response = self.client.execute(request).await;
            // A server without WebDAV answers 501, which `object_store` would try again.
            if let Ok(response) = &mut response
                && lists
                && response.status().as_u16() == 501
            {
                *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            }
            let failure = match &response {
                Ok(response) => {
                    let status = response.status();
                    let again = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
                    again.then(|| format!("the store answers {status}"))
                }
                Err(error) => Some(innermost(error)),
            };
            if let Some(failure) = failure {
                // Requests for credentials are not counted.
                self.stats.retries.add(u64::from(counter.is_some()));
                log::debug!("a request failed: {failure}");
                self.failures.note(failure);
            }
            response
        })
    }
}

/// The message of the innermost cause.
fn innermost(error: &HttpError) -> String {
    let mut error: &dyn Error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    #[test]
    fn requests_are_counted_by_what_they_ask_for() {
        for (method, uri, header, wanted) in [
            ("GET", "http://h/b?list-type=2&prefix=a", None, "list_requests"),
            (
                "GET",
                "http://h/c?restype=container&comp=list",
                None,
                "list_requests",
            ),
            ("PROPFIND", "http://h/d", None, "list_requests"),
            ("HEAD", "http://h/b/k", None, "head_requests"),
            ("GET", "http://h/b/k", Some("range"), "get_requests"),
            ("GET", "http://h/b/k", Some("if-match"), "get_requests"),
            ("GET", "http://h/latest/meta-data", None, ""),
            ("PUT", "http://h/latest/api/token", None, ""),
            ("POST", "http://h/token", None, ""),
        ] {
            let stats = Stats::default();
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = uri.parse().unwrap();
            if let Some(header) = header {
                request.headers_mut().insert(header, "x".parse().unwrap());
            }
            if let Some(counter) = counter(&request, &stats) {
                counter.add(1);
            }
            let counted: Vec<_> = stats.snapshot().into_iter().filter(|(_, n)| *n > 0).collect();
            let wanted: Vec<_> = Some((wanted, 1))
                .filter(|(name, _)| !name.is_empty())
                .into_iter()
                .collect();
            assert_eq!(counted, wanted, "{method} {uri}");
        }
    }
}
