//! Counts the requests that leave for a store.

use crate::stats::Stats;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Connects as `object_store` does, and counts requests and those that failed in a way that is tried again.
#[derive(Debug)]
pub struct Counting {
    stats: Arc<Stats>,
}

impl Counting {
    /// Counts in `stats`.
    pub fn new(stats: Arc<Stats>) -> Self {
        Counting { stats }
    }
}

impl HttpConnector for Counting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Counted {
            client: ReqwestConnector::default().connect(options)?,
            stats: self.stats.clone(),
        }))
    }
}

#[derive(Debug)]
struct Counted {
    client: HttpClient,
    stats: Arc<Stats>,
}

/// What a request asks for.
fn counter<'a>(request: &HttpRequest, stats: &'a Stats) -> &'a crate::stats::Counter {
    let query = request.uri().query().unwrap_or_default();
    let lists = |key: &str| query.split('&').any(|pair| pair.starts_with(key));
    match request.method().as_str() {
        "HEAD" => &stats.head_requests,
        "PROPFIND" => &stats.list_requests,
        _ if lists("list-type=") || lists("comp=list") => &stats.list_requests,
        _ => &stats.get_requests,
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
            counter(&request, &self.stats).add(1);
            let response = self.client.execute(request).await;
            let again = match &response {
                Ok(response) => {
                    let status = response.status();
                    status.is_server_error() || matches!(status.as_u16(), 408 | 429)
                }
                Err(_) => true,
            };
            if again {
                self.stats.retries.add(1);
            }
            response
        })
    }
}
