//! The HTTP client for stores: follows only some redirects, bounds replies, counts requests, and keeps the
//! last failure.

use super::redirects::{MAX_REDIRECTS, follow, is_redirect};
use super::replies::{Wanted, refused};
use super::store::is_yes;
use crate::runtime::lock;
use crate::runtime::stats::{Counter, Stats};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use reqwest::header::{LOCATION, SERVER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, NoProxy, Proxy, StatusCode, Url};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Timeouts for connecting, and for a silent connection. There is none for a whole body.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(15);

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

/// Makes the clients of one store.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Certificates to trust in addition to those of the system.
    pub certificates: Vec<Certificate>,
    /// Counts requests, and failures that are tried again.
    pub stats: Arc<Stats>,
    /// Keeps the causes of failures.
    pub failures: Arc<Failures>,
}

impl HttpConnector for Connector {
    /// Of `options` only `allow_http` and the proxy are used.
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self
            .client(options)
            .map_err(|error| object_store::Error::Generic {
                store: "HTTP",
                source: Box::new(error),
            })?;
        Ok(HttpClient::new(Client {
            client: HttpClient::new(client),
            stats: self.stats.clone(),
            failures: self.failures.clone(),
        }))
    }
}

impl Connector {
    fn client(&self, options: &ClientOptions) -> reqwest::Result<reqwest::Client> {
        let option = |key| options.get_config_value(&key).filter(|value| !value.is_empty());
        let allow_http = is_yes(option(ClientConfigKey::AllowHttp));
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("tiledbfs/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .http1_only()
            .https_only(!allow_http)
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .tls_certs_merge(self.certificates.iter().cloned());
        if let Some(url) = option(ClientConfigKey::ProxyUrl) {
            let mut proxy = Proxy::all(url)?;
            if let Some(hosts) = option(ClientConfigKey::ProxyExcludes) {
                proxy = proxy.no_proxy(NoProxy::from_string(&hosts));
            }
            if let Some(pem) = option(ClientConfigKey::ProxyCaCertificate) {
                builder = builder.tls_certs_merge([Certificate::from_pem(pem.as_bytes())?]);
            }
            builder = builder.proxy(proxy);
        }
        builder.build()
    }
}

#[derive(Debug)]
struct Client {
    client: HttpClient,
    stats: Arc<Stats>,
    failures: Arc<Failures>,
}

impl Client {
    /// The bounded reply to a request, after the redirects that are followed.
    async fn execute(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let wanted = Wanted::of(&request);
        let first: Url = match request.uri().to_string().parse() {
            Ok(url) => url,
            Err(_) => return Err(refused("a request has no valid URL")),
        };
        for _ in 0..=MAX_REDIRECTS {
            let mut next = request.clone();
            let response = self.client.execute(request).await?;
            let location = response.headers().get(LOCATION);
            let Some(location) = location.filter(|_| is_redirect(response.status())) else {
                return wanted.bounded(response).await;
            };
            follow(&first, &mut next, location.as_bytes()).map_err(refused)?;
            request = next;
        }
        Err(refused(format!(
            "the store redirects a request more than {MAX_REDIRECTS} times"
        )))
    }
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

/// Whether `object_store` tries again after this error.
fn is_tried_again(error: &HttpError) -> bool {
    !matches!(error.kind(), HttpErrorKind::Unknown | HttpErrorKind::Decode)
}

/// What a web server says of a directory that it does not have. `object_store` would take it for an empty
/// one.
pub(super) const NO_SUCH_DIRECTORY: &str = "there is no such directory";

/// Where `tiledbfs serve` has arrays as they are stored. The rest of its tree has none.
const STORED: &str = "/.tiledbfs/stored";

impl HttpService for Client {
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
            let path = request.uri().path();
            // What is answered if the server does not show what it reads as it is stored.
            let without = match path.trim_end_matches('/').split_once(STORED) {
                None => Some(207),
                Some((_, "")) => Some(404),
                Some(_) => None,
            };
            let mut response = self.execute(request).await;
            if let Ok(response) = &response
                && lists
                && without == Some(response.status().as_u16())
                && response
                    .headers()
                    .get(SERVER)
                    .is_some_and(|name| name == "tiledbfs")
            {
                return Err(refused(
                    "this is the tree that `tiledbfs serve` shows: with its option --stored, what it reads is at \
                     the URL of the tree and .tiledbfs/stored/",
                ));
            }
            if let Ok(response) = &response
                && lists
                && response.status() == StatusCode::NOT_FOUND
            {
                return Err(refused(NO_SUCH_DIRECTORY));
            }
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
                Err(error) => is_tried_again(error).then(|| super::innermost(error)),
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
