//! Bounds for what a store replies. More than a bound is an error, which is not tried again.
//!
//! | reply | most |
//! |---|---|
//! | headers | 100, and some 400 KiB (hyper's) |
//! | bytes of a range | those of the range |
//! | a page of a listing; a directory of a web server | [`MAX_PAGE`]; [`MAX_DIRECTORY`] |
//! | the text of an error | [`MAX_ERROR_TEXT`] |
//! | all else, such as credentials | [`MAX_OTHER`] |
//!
//! A body that gets fewer than [`MIN_BYTES`] in a [`WINDOW`] has timed out.

use super::blob::is_blank;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, RANGE};
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep};

/// The longest page of a listing, in bytes: a page of S3 with 1000 of the longest keys has 7 MiB.
const MAX_PAGE: u64 = 16 << 20;
/// The longest reply to PROPFIND, in bytes: some 50,000 names, since WebDAV has no pages.
const MAX_DIRECTORY: u64 = 32 << 20;
/// The longest text of an error, in bytes.
const MAX_ERROR_TEXT: u64 = 128 << 10;
/// The longest of all other replies, in bytes.
const MAX_OTHER: u64 = 1 << 20;

/// Replies above [`LARGE`] bytes are received a few at a time.
const LARGE: u64 = 1 << 20;
static LARGE_AT_ONCE: Semaphore = Semaphore::const_new(2);

/// Of a body, the least bytes in each window of time.
const MIN_BYTES: u64 = 16 << 10;
const WINDOW: Duration = Duration::from_secs(20);

/// A reply that is not accepted, with the reason.
#[derive(Debug)]
pub(super) struct Refused(pub(super) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// The error for a reply that is not accepted. It is not tried again.
pub(super) fn refused(reason: impl Into<String>) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, Refused(reason.into()))
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// These bytes of an object.
    Bytes(Range<u64>),
    /// A page of a listing, whose document has this element.
    Page(&'static str),
    /// The entries of a directory of a web server.
    Directory,
    /// Headers alone.
    Head,
    Other,
}

impl Wanted {
    /// What `request` asks for.
    pub(super) fn of(request: &HttpRequest) -> Wanted {
        let query = request.uri().query().unwrap_or_default();
        let has = |pair: &str| query.split('&').any(|other| other.starts_with(pair));
        let range = request.headers().get(RANGE).and_then(|value| {
            let (start, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
            let end = last.parse::<u64>().ok()?.checked_add(1)?;
            Some(start.parse().ok()?..end)
        });
        match (request.method().as_str(), range) {
            ("HEAD", _) => Wanted::Head,
            ("PROPFIND", _) => Wanted::Directory,
            ("GET", _) if has("list-type=") => Wanted::Page("ListBucketResult"),
            ("GET", _) if has("comp=list") => Wanted::Page("EnumerationResults"),
            ("GET", Some(range)) => Wanted::Bytes(range),
            _ => Wanted::Other,
        }
    }

    /// `response` with a body that keeps to the bounds.
    pub(super) async fn bounded(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = response.into_parts();
        // `object_store` takes all bodies with the same ETag for those of one state, also with a blank one,
        // when it asks for the rest of a body that broke off.
        if let Some(etag) = parts.headers.get(ETAG)
            && etag.to_str().is_ok_and(is_blank)
        {
            parts.headers.remove(ETAG);
        }
        let status = parts.status;
        let body = if matches!(self, Wanted::Head) || status.is_informational() || status.is_redirection() {
            Bytes::new().into()
        } else if !status.is_success() {
            error_text(status, body).await?.into()
        } else if let Wanted::Bytes(range) = self {
            match status {
                // One byte more, so that the reader sees that there are too many.
                StatusCode::PARTIAL_CONTENT => {
                    let sent = check_range(&parts.headers, range)?;
                    HttpResponseBody::new(Bounded::new(body, sent.end - sent.start + 1))
                }
                // The whole object, which is refused elsewhere.
                _ => Bytes::new().into(),
            }
        } else {
            self.document(&parts.headers, body).await?.into()
        };
        Ok(HttpResponse::from_parts(parts, body))
    }

    /// The body of a successful reply that is not part of an object.
    async fn document(&self, headers: &HeaderMap, body: HttpResponseBody) -> Result<Bytes, HttpError> {
        if let Some(encoding) = headers.get(CONTENT_ENCODING)
            && encoding != "identity"
        {
            return Err(refused(
                "the store sends a reply compressed, which was not asked for",
            ));
        }
        let (most, what) = match self {
            Wanted::Page(_) => (MAX_PAGE, "a page of a listing"),
            Wanted::Directory => (MAX_DIRECTORY, "the listing of a directory"),
            _ => (MAX_OTHER, "a reply"),
        };
        let Some(body) = collect(body, most).await? else {
            return Err(refused(format!(
                "the store sends {what} of more than {most} bytes"
            )));
        };
        if let Wanted::Page(element) = self {
            let text = String::from_utf8_lossy(&body);
            if !text.contains(element) {
                return Err(refused("the store sends something else than a listing"));
            }
            // Without a token `object_store` would take the page for the last one.
            let is_truncated = element_text(&text, "IsTruncated").eq_ignore_ascii_case("true");
            if is_truncated && element_text(&text, "NextContinuationToken").is_empty() {
                return Err(refused(
                    "the store sends a page of a listing without the token of the next",
                ));
            }
            // `object_store` drops the slash that a key begins with, and would take `/a` for `a`. With two it
            // is an error.
            for name in ["<Key>/", "<Name>/"] {
                if text.contains(name) {
                    return Ok(text.replace(name, &format!("{name}/")).into());
                }
            }
        }
        Ok(body)
    }
}

/// The text of the first element of this name, with any prefix; empty if there is none.
fn element_text<'t>(document: &'t str, name: &str) -> &'t str {
    let mut tags = document.split('<').filter_map(|tag| tag.split_once('>'));
    let found = tags.find(|(tag, _)| !tag.starts_with('/') && tag.rsplit(':').next() == Some(name));
    found.map_or("", |(_, text)| text.trim())
}

/// The text of an error. One that is too long is an error itself, unless the status says enough.
async fn error_text(status: StatusCode, body: HttpResponseBody) -> Result<Bytes, HttpError> {
    if let Some(text) = collect(body, MAX_ERROR_TEXT).await? {
        return Ok(text);
    }
    match matches!(status.as_u16(), 401 | 403 | 404 | 412) {
        true => Ok(Bytes::new()),
        false => Err(refused(format!(
            "the store answers {status}, with a text of more than {MAX_ERROR_TEXT} bytes"
        ))),
    }
}

/// The range in the headers of a reply to a request for `wanted`. It may only be shorter, of an object that
/// is: `object_store` does not check all of this.
fn check_range(headers: &HeaderMap, wanted: &Range<u64>) -> Result<Range<u64>, HttpError> {
    let sent = headers.get(CONTENT_RANGE).and_then(|value| {
        let (range, size) = value
            .to_str()
            .ok()?
            .trim()
            .strip_prefix("bytes ")?
            .split_once('/')?;
        let (start, last) = range.split_once('-')?;
        let end = last.parse::<u64>().ok()?.checked_add(1)?;
        let size: u64 = size.parse().ok()?;
        Some((start.parse().ok()?..end, size))
    });
    match sent {
        Some((sent, size))
            if sent.start == wanted.start && sent.start < sent.end && sent.end == wanted.end.min(size) =>
        {
            Ok(sent)
        }
        _ => Err(refused(format!(
            "the store sends another range than bytes {} to {}, which were asked for",
            wanted.start, wanted.end
        ))),
    }
}

/// The whole body; None if it has more than `most` bytes.
async fn collect(body: HttpResponseBody, most: u64) -> Result<Option<Bytes>, HttpError> {
    let mut body = Bounded::new(body, most + 1);
    let mut all = Vec::new();
    let mut permit = None;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(bytes) = frame?.into_data() {
            all.extend_from_slice(&bytes);
        }
        if permit.is_none() && all.len() as u64 > LARGE {
            permit = Some(LARGE_AT_ONCE.acquire().await);
            body.begin_window();
        }
    }
    Ok((all.len() as u64 <= most).then(|| all.into()))
}

/// A body that ends after some bytes, and fails if it gets fewer than [`MIN_BYTES`] in a [`WINDOW`].
struct Bounded {
    body: HttpResponseBody,
    /// Bytes until it ends.
    left: u64,
    /// When the window ends, and its bytes so far.
    window: Pin<Box<Sleep>>,
    received: u64,
}

impl Bounded {
    fn new(body: HttpResponseBody, most: u64) -> Self {
        Bounded {
            body,
            left: most,
            window: Box::pin(sleep(WINDOW)),
            received: 0,
        }
    }

    fn begin_window(&mut self) {
        self.window.as_mut().reset(Instant::now() + WINDOW);
        self.received = 0;
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.window.as_mut().poll(context).is_ready() {
            if self.received < MIN_BYTES {
                let slow = Refused("the store sends a reply too slowly".to_owned());
                return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, slow))));
            }
            self.begin_window();
            // To be woken at the end of the new one.
            let _ = self.window.as_mut().poll(context);
        }
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => frame,
            other => return other,
        };
        // Trailers are of no use.
        let mut bytes = frame.into_data().unwrap_or_else(|_| Bytes::new());
        let count = self.left.min(bytes.len() as u64);
        bytes.truncate(count as usize);
        self.left -= count;
        self.received += count;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::HttpRequestBody;

    fn wanted(method: &str, uri: &str, range: Option<&str>) -> Wanted {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = uri.parse().unwrap();
        if let Some(range) = range {
            request.headers_mut().insert(RANGE, range.parse().unwrap());
        }
        Wanted::of(&request)
    }

    /// What arrives of a reply.
    fn reply(
        wanted: &Wanted,
        status: u16,
        headers: &[(&'static str, &str)],
        body: Vec<u8>,
    ) -> Result<Bytes, HttpError> {
        let mut response = HttpResponse::new(body.into());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        block_on(async { wanted.bounded(response).await?.into_body().bytes().await })
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn bounds_are_those_of_what_was_asked_for() {
        assert_eq!(wanted("HEAD", "http://h/k", None), Wanted::Head);
        assert_eq!(wanted("PROPFIND", "http://h/k", None), Wanted::Directory);
        assert_eq!(
            wanted("GET", "http://h/b?list-type=2", None),
            Wanted::Page("ListBucketResult")
        );
        assert_eq!(
            wanted("GET", "http://h/b?restype=container&comp=list", None),
            Wanted::Page("EnumerationResults")
        );
        assert_eq!(
            wanted("GET", "http://h/b/k", Some("bytes=5-9")),
            Wanted::Bytes(5..10)
        );
        assert_eq!(wanted("GET", "http://h/b/k", Some("bytes=-9")), Wanted::Other);
        assert_eq!(wanted("PUT", "http://h/token", None), Wanted::Other);
    }

    #[test]
    fn replies_up_to_the_bound_are_accepted() {
        for (wanted, most) in [(Wanted::Directory, MAX_DIRECTORY), (Wanted::Other, MAX_OTHER)] {
            let most = usize::try_from(most).unwrap();
            assert_eq!(reply(&wanted, 200, &[], vec![1; most]).unwrap().len(), most);
            let error = reply(&wanted, 200, &[], vec![1; most + 1]).unwrap_err();
            assert_eq!(error.kind(), HttpErrorKind::Unknown);
            assert!(error.to_string().contains(&most.to_string()), "{error}");
        }
    }

    #[test]
    fn a_long_text_of_an_error_leaves_a_status_that_says_enough() {
        let most = usize::try_from(MAX_ERROR_TEXT).unwrap();
        assert_eq!(
            reply(&Wanted::Other, 503, &[], vec![1; most]).unwrap().len(),
            most
        );
        assert!(
            reply(&Wanted::Other, 403, &[], vec![1; most + 1])
                .unwrap()
                .is_empty()
        );
        let error = reply(&Wanted::Other, 503, &[], vec![1; most + 1]).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Unknown);
    }

    #[test]
    fn bytes_of_a_range_are_cut_one_after_its_end() {
        let range = Wanted::Bytes(5..10);
        let partial = |value: &str, bytes| reply(&range, 206, &[("content-range", value)], vec![1; bytes]);
        assert_eq!(partial("bytes 5-9/100", 5).unwrap().len(), 5);
        assert_eq!(partial("bytes 5-9/100", 5000).unwrap().len(), 6);
        assert_eq!(partial("bytes 5-7/8", 3).unwrap().len(), 3, "a shorter object");
        for other in [
            "bytes 0-9/100",
            "bytes 6-9/100",
            "bytes 5-10/100",
            "bytes 5-8/100",
            "bytes 5-18446744073709551615/100",
            "bytes 5-9/*",
            "bytes 9-5/100",
            "none",
        ] {
            assert!(partial(other, 5).is_err(), "{other}");
        }
        assert!(reply(&range, 206, &[], vec![1; 5]).is_err());
        assert!(reply(&range, 200, &[], vec![1; 5]).unwrap().is_empty());
    }

    #[test]
    fn etags_that_tell_nothing_are_dropped() {
        for (etag, kept) in [
            ("\"\"", false),
            ("", false),
            ("W/\"\"", false),
            ("\"a\"", true),
            ("W/\"a\"", true),
        ] {
            let mut response = HttpResponse::new(vec![1; 5].into());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().insert(ETAG, etag.parse().unwrap());
            response
                .headers_mut()
                .insert(CONTENT_RANGE, "bytes 5-9/100".parse().unwrap());
            let bounded = block_on(Wanted::Bytes(5..10).bounded(response)).unwrap();
            assert_eq!(bounded.headers().contains_key(ETAG), kept, "{etag}");
        }
    }

    #[test]
    fn pages_are_documents_of_listings() {
        let page = Wanted::Page("ListBucketResult");
        let of = |text: &str| reply(&page, 200, &[], text.as_bytes().to_vec());
        assert!(of("<ListBucketResult></ListBucketResult>").is_ok());
        assert!(of("<html>log in</html>").is_err());
        let truncated = "<ListBucketResult><IsTruncated>true</IsTruncated>";
        assert!(
            of(&format!(
                "{truncated}<NextContinuationToken>t</NextContinuationToken>"
            ))
            .is_ok()
        );
        for spelled in [
            "<IsTruncated> true </IsTruncated>",
            "<IsTruncated>True</IsTruncated>",
            "<s3:IsTruncated>true</s3:IsTruncated>",
        ] {
            let page = format!("<ListBucketResult>{spelled}");
            assert!(of(&page).is_err(), "{page}");
            assert!(
                of(&format!("{page}<s3:NextContinuationToken>t")).is_ok(),
                "{page}"
            );
        }
        assert!(of(truncated).is_err());
        for empty in [
            "<NextContinuationToken></NextContinuationToken>",
            "<NextContinuationToken> </NextContinuationToken>",
            "<NextContinuationToken/>",
        ] {
            assert!(
                of(&format!("{truncated}{empty}</ListBucketResult>")).is_err(),
                "{empty}"
            );
        }
        let slashes = of("<ListBucketResult><Key>/a/b</Key><Key>a/</Key>").unwrap();
        assert_eq!(slashes, "<ListBucketResult><Key>//a/b</Key><Key>a/</Key>");
        let blobs = "<EnumerationResults><NextMarker></NextMarker></EnumerationResults>";
        let page = Wanted::Page("EnumerationResults");
        assert!(reply(&page, 200, &[], blobs.into()).is_ok());
        assert!(
            reply(
                &page,
                200,
                &[("content-encoding", "gzip")],
                b"ListBucketResult".to_vec()
            )
            .is_err()
        );
    }

    #[test]
    fn a_body_without_end_is_not_received_to_its_end() {
        struct Endless;
        impl Body for Endless {
            type Data = Bytes;
            type Error = HttpError;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 4096])))))
            }
        }
        let mut response = HttpResponse::new(HttpResponseBody::new(Endless));
        *response.status_mut() = StatusCode::OK;
        let bounded = block_on(Wanted::Other.bounded(response));
        assert_eq!(bounded.err().unwrap().kind(), HttpErrorKind::Unknown);
    }
}
