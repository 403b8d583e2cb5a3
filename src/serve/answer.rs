//! Answers to requests for files and directories.

use super::body::{Content, FilePieces, Part};
use super::conditions::{self, Outcome, Validators};
use super::entry::{Asked, Entry, etag, media_type};
use super::nodes::Nodes;
use super::page::Page;
use super::path::{BadPath, UrlPath};
use super::range::Ranges;
use super::webdav::{self, Depth, Propfind};
use super::{headers, json, page};
use crate::error::{Error, ErrorKind};
use crate::runtime::hash;
use crate::runtime::stats::Stats;
use crate::storage::Storage;
use crate::tree::{Directory, ErrorLog, File, Listing, Node, NodeType, OWN_DIRECTORY, Stat};
use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RANGE, RETRY_AFTER, VARY,
};
use hyper::{HeaderMap, StatusCode};
use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// What scripts in a file may do when a browser shows it: nothing.
const FILE_POLICY: &str = "sandbox; default-src 'none'";

/// The directory of stored files in `.tiledbfs`.
const STORED: &str = "stored";

/// What is served.
pub struct Site {
    /// The files and directories by path.
    pub nodes: Nodes,
    /// The source.
    pub storage: Arc<dyn Storage>,
    /// Where errors are recorded.
    pub errors: Arc<ErrorLog>,
    /// Counters.
    pub stats: Arc<Stats>,
    /// `--prefix`: empty, or `/PATH` without a slash at the end.
    pub prefix: String,
    /// Whether `.tiledbfs/` is shown.
    pub status: bool,
    /// The files of arrays and groups as they are stored, if they are shown at `.tiledbfs/stored/`.
    pub stored: Option<Nodes>,
}

/// What a request asks for.
pub enum Method {
    Get,
    Head,
    /// With the properties that are wanted, and how deep; None where the depth is not one that is answered.
    Propfind(Propfind, Option<Depth>),
}

/// A request for a file or a directory.
pub struct Question {
    pub method: Method,
    /// The path as it was sent.
    pub path: String,
    /// The query as it was sent, without `?`.
    pub query: Option<String>,
    pub headers: HeaderMap,
    /// Scheme and host as the client knows them.
    pub origin: String,
    /// Whether it takes an answer that is cut for a whole one unless it has a length: HTTP/1.0.
    pub needs_length: bool,
}

/// An answer.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub content: Content,
}

/// Why a request is not answered with what it asks for: a status, and one line without paths of the server.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub line: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: StatusCode, line: impl Into<String>) -> Refusal {
        Refusal {
            status,
            line: line.into(),
            headers: Vec::new(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl AsRef<str>) -> Refusal {
        self.headers
            .extend(value_of(value.as_ref()).map(|value| (name, value)));
        self
    }

    fn not_found() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "not found")
    }

    /// The answer that says so.
    pub fn answer(self) -> Answer {
        let line: String = self.line.chars().filter(|char| !char.is_control()).collect();
        let text = Bytes::from(format!("{line}\n"));
        let mut answer = Answer::new(
            self.status,
            "text/plain; charset=utf-8",
            Content::Bytes(text.clone()),
        );
        answer.set(CONTENT_LENGTH, text.len().to_string());
        answer.set(CACHE_CONTROL, "no-store");
        for (name, value) in self.headers {
            answer.headers.append(name, value);
        }
        answer
    }
}

/// A value of a header; None if it has other characters than headers may have.
fn value_of(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

impl Answer {
    /// An answer with this content.
    pub fn new(status: StatusCode, content_type: &str, content: Content) -> Answer {
        let mut answer = Answer {
            status,
            headers: HeaderMap::new(),
            content,
        };
        answer.set(CONTENT_TYPE, content_type);
        answer
    }

    /// An answer without content.
    pub fn empty(status: StatusCode) -> Answer {
        Answer {
            status,
            headers: HeaderMap::new(),
            content: Content::Bytes(Bytes::new()),
        }
    }

    /// Sets a header.
    pub fn set(&mut self, name: HeaderName, value: impl AsRef<str>) {
        self.headers
            .extend(value_of(value.as_ref()).map(|value| (name, value)));
    }
}

impl Site {
    /// The answer to a request.
    pub fn answer(&self, question: &Question) -> Answer {
        self.find(question).unwrap_or_else(Refusal::answer)
    }

    /// Whether SOURCE is there.
    pub fn is_healthy(&self) -> bool {
        self.storage
            .local()
            .is_none_or(|local| local.check_root().is_ok())
    }

    /// Records an error at `path`. The refusal that it leads to never says that the path names nothing.
    pub fn failed(&self, path: &UrlPath, error: &Error) -> Refusal {
        self.report(&path.display(), error);
        let (status, line) = match error.errno() {
            libc::EACCES | libc::EPERM => (StatusCode::FORBIDDEN, "not permitted"),
            errno if error.kind() == ErrorKind::Changed || matches!(errno, libc::ESTALE | libc::EBUSY) => {
                (StatusCode::SERVICE_UNAVAILABLE, "the source has just changed")
            }
            errno if is_absence(errno) || self.is_silent_store(error) => {
                (StatusCode::SERVICE_UNAVAILABLE, "the source does not answer")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "it cannot be read"),
        };
        let refusal = Refusal::new(status, line);
        match status {
            StatusCode::SERVICE_UNAVAILABLE => refusal.with(RETRY_AFTER, "5"),
            _ => refusal,
        }
    }

    /// Whether a store has failed, and may answer the next time.
    fn is_silent_store(&self, error: &Error) -> bool {
        self.storage.local().is_none()
            && matches!(error.kind(), ErrorKind::Io(errno) if errno != libc::ENOENT)
    }

    /// Counts and logs an error.
    pub fn report(&self, path: &str, error: &Error) {
        self.errors.report(path, error, &self.stats);
    }

    fn find(&self, question: &Question) -> Result<Answer, Refusal> {
        let Some(rest) = question.path.strip_prefix(&self.prefix) else {
            return Err(Refusal::not_found());
        };
        let lists = matches!(question.method, Method::Propfind(..));
        if rest.is_empty() && !self.prefix.is_empty() && !lists {
            return Ok(moved(format!("{}/", self.prefix), question));
        }
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err(Refusal::not_found());
        }
        let path = UrlPath::parse(rest).map_err(|bad| match bad {
            BadPath::Malformed => Refusal::new(StatusCode::BAD_REQUEST, "no valid path"),
            BadPath::Missing => Refusal::not_found(),
        })?;
        let mut answer = self.shown(question, &path)?;
        if question.needs_length {
            let content = answer.content.with_length();
            answer.content = content.map_err(|error| match error.kind() {
                ErrorKind::LimitExceeded => {
                    Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "too long for HTTP/1.0")
                }
                _ => self.failed(&path, &error),
            })?;
        }
        Ok(answer)
    }

    /// What is shown at `path`.
    fn shown(&self, question: &Question, path: &UrlPath) -> Result<Answer, Refusal> {
        let node = self.node(path)?;
        if let Method::Propfind(wanted, depth) = &question.method {
            return self.propfind(question, path.clone(), node, wanted, *depth);
        }
        match node {
            Node::Directory(_) if !path.slash => {
                Ok(moved(self.prefix.clone() + &path.encode(true), question))
            }
            Node::Directory(directory) => self.directory(question, path.clone(), directory),
            Node::File(_) | Node::Link(_) if path.slash => Err(Refusal::not_found()),
            Node::File(file) => self.file(question, path, &*file),
            Node::Link(_) => Err(Refusal::not_found()),
        }
    }

    /// The node at `path`.
    fn node(&self, path: &UrlPath) -> Result<Node, Refusal> {
        let own = is_own(path);
        if own && !self.status {
            return Err(Refusal::not_found());
        }
        if !own && let Some(Err(error)) = self.storage.local().map(|local| local.check_root()) {
            self.report(&path.display(), &error);
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the source is gone");
            return Err(refusal.with(RETRY_AFTER, "5"));
        }
        let (nodes, names) = self.place(path);
        match nodes.find(names) {
            Ok(Some(node)) => Ok(node),
            Ok(None) => Err(Refusal::not_found()),
            // The reason why a name means nothing, as that of a time or a part.
            Err(error) if error.is_of_a_name() => {
                let reason = format!("not found: {}", error.message());
                Err(Refusal::new(StatusCode::NOT_FOUND, reason))
            }
            // Not 404, which readers of Zarr take for a chunk of fill values.
            Err(error) if error.kind() == ErrorKind::Io(libc::ESTALE) => Err(Refusal::new(
                StatusCode::GONE,
                "the state of this name is not there any more",
            )),
            Err(error) if error.kind() == ErrorKind::Io(libc::ENAMETOOLONG) => Err(Refusal::not_found()),
            Err(error) => Err(self.failed(path, &error)),
        }
    }

    /// Where a path leads: the nodes, and the names in them.
    fn place<'a>(&'a self, path: &'a UrlPath) -> (&'a Nodes, &'a [OsString]) {
        match (&self.stored, stored_names(path)) {
            (Some(stored), Some(names)) => (stored, names),
            _ => (&self.nodes, &path.names),
        }
    }

    /// The modification time of the file that is at `path` now; later than any if there is none.
    fn time_anew(&self, path: &UrlPath) -> u64 {
        let (nodes, names) = self.place(path);
        match nodes.find_anew(names) {
            Ok(Some(Node::File(file))) => file.mtime(),
            _ => u64::MAX,
        }
    }

    /// A directory with what a request asks of it.
    fn asked(
        &self,
        question: &Question,
        path: &UrlPath,
        directory: Arc<dyn Directory>,
    ) -> Result<Asked, Refusal> {
        let listing = directory.list().map_err(|error| self.failed(path, &error))?;
        let listing = match path.names.is_empty() && !self.status {
            true => without_own(&*listing),
            false => listing,
        };
        Ok(Asked {
            path: path.clone(),
            directory,
            listing,
            prefix: self.prefix.clone(),
            errors: self.errors.clone(),
            origin: question.origin.clone(),
            query: headers::parameters(question.query.as_deref().unwrap_or_default()),
        })
    }

    fn directory(
        &self,
        question: &Question,
        path: UrlPath,
        directory: Arc<dyn Directory>,
    ) -> Result<Answer, Refusal> {
        let failed = |error: Error| self.failed(&path, &error);
        let asked = self.asked(question, &path, directory)?;
        let chosen = asked.parameter("json").map(|value| value == "names");
        let of_page = ["picture", "at", "box"]
            .iter()
            .any(|name| asked.parameter(name).is_some());
        let json = chosen.or_else(|| (!of_page && headers::wants_json(&question.headers)).then_some(false));
        let mut answer = match json {
            Some(names_only) => {
                let content = Content::of(json::listing(asked, names_only)).map_err(failed)?;
                Answer::new(StatusCode::OK, "application/json", content)
            }
            None => match page::answer(asked).map_err(failed)? {
                Page::Html { policy, pieces } => {
                    let content = Content::of(pieces).map_err(failed)?;
                    let mut answer = Answer::new(StatusCode::OK, "text/html; charset=utf-8", content);
                    answer.set(CONTENT_SECURITY_POLICY, policy);
                    answer
                }
                Page::Png(bytes) => {
                    let length = bytes.len().to_string();
                    let mut answer = Answer::new(StatusCode::OK, "image/png", Content::Bytes(bytes.into()));
                    answer.set(CONTENT_LENGTH, length);
                    answer
                }
                Page::SeeOther(to) => {
                    let mut answer = Refusal::new(StatusCode::SEE_OTHER, "it is elsewhere").answer();
                    answer.set(LOCATION, to);
                    answer
                }
                Page::NotFound(line) => return Err(Refusal::new(StatusCode::NOT_FOUND, line)),
            },
        };
        answer.set(CACHE_CONTROL, "no-store");
        answer.set(VARY, "Accept");
        Ok(answer)
    }

    fn propfind(
        &self,
        question: &Question,
        path: UrlPath,
        node: Node,
        wanted: &Propfind,
        depth: Option<Depth>,
    ) -> Result<Answer, Refusal> {
        let Some(depth) = depth else {
            let text = Content::Bytes(Bytes::from_static(webdav::FINITE_DEPTH.as_bytes()));
            let mut answer = Answer::new(StatusCode::FORBIDDEN, webdav::CONTENT_TYPE, text);
            answer.set(CONTENT_LENGTH, webdav::FINITE_DEPTH.len().to_string());
            return Ok(answer);
        };
        let below = match (&node, depth) {
            (Node::File(_), _) if path.slash => return Err(Refusal::not_found()),
            (Node::Directory(directory), Depth::One) => {
                Some(self.asked(question, &path, directory.clone())?)
            }
            _ => None,
        };
        let target = Entry {
            path: path.clone(),
            node,
        };
        let pieces = webdav::multistatus(wanted.clone(), target, below, self.prefix.clone());
        let content = Content::of(pieces).map_err(|error| self.failed(&path, &error))?;
        let mut answer = Answer::new(StatusCode::MULTI_STATUS, webdav::CONTENT_TYPE, content);
        answer.set(CACHE_CONTROL, "no-store");
        Ok(answer)
    }

    fn file(&self, question: &Question, path: &UrlPath, file: &dyn File) -> Result<Answer, Refusal> {
        let failed = |error: Error| self.failed(path, &error);
        // Before the file is opened: a client to whom an old time is told asks again. A store was listed a
        // while ago.
        let lag = self.storage.lag();
        let now = lag.and_then(|lag| SystemTime::now().checked_sub(lag));
        let now = now.unwrap_or(SystemTime::UNIX_EPOCH);
        let mtime = file.mtime();
        let open = match question.method {
            Method::Get => Some(file.open().map_err(failed)?),
            Method::Head | Method::Propfind(..) => None,
        };
        let stat = match &open {
            Some(open) => Stat::of(open),
            None => file.stat().map_err(failed)?,
        };
        let own = is_own(path);
        let tag = etag(path, file, stat).filter(|_| !own);
        // Afterwards: the state of a date in a condition is the one that was opened only if this still has
        // that date.
        let moves = leads_elsewhere_later(path);
        let latest = match conditions::are_by_date(&question.headers) {
            true if moves => 0,
            true => self.time_anew(path),
            false => mtime,
        };
        let of = Validators {
            etag: tag.as_deref(),
            modified: latest / 1000,
            settled: !moves && conditions::is_settled(latest / 1000, now),
        };
        let mut answer = Answer::empty(StatusCode::OK);
        answer.set(CACHE_CONTROL, if own { "no-store" } else { "private, no-cache" });
        if let Some(tag) = of.etag {
            answer.set(ETAG, tag);
        }
        if !moves
            && conditions::is_settled(mtime / 1000, now)
            && let Some(date) = webdav::http_date(mtime)
        {
            answer.set(LAST_MODIFIED, date);
        }
        match conditions::evaluate(&question.headers, of) {
            Outcome::Proceed => {}
            Outcome::NotModified => {
                answer.status = StatusCode::NOT_MODIFIED;
                return Ok(answer);
            }
            Outcome::Failed => {
                return Err(Refusal::new(
                    StatusCode::PRECONDITION_FAILED,
                    "it is in another state",
                ));
            }
        }
        let media_type = media_type(path.names.last().map_or("".as_ref(), |name| name));
        answer.set(ACCEPT_RANGES, "bytes");
        answer.set(CONTENT_SECURITY_POLICY, FILE_POLICY);
        let Some(open) = open else {
            answer.set(CONTENT_TYPE, media_type);
            answer.set(CONTENT_LENGTH, stat.len.to_string());
            return Ok(answer);
        };
        let ranges = match headers::only(&question.headers, RANGE) {
            Some(header) if conditions::range_counts(&question.headers, of) => {
                Ranges::parse(header, stat.len)
            }
            _ => Ranges::Whole,
        };
        let (parts, len) = match ranges {
            Ranges::Unsatisfiable => {
                let refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "no such bytes");
                return Err(refusal.with(CONTENT_RANGE, format!("bytes */{}", stat.len)));
            }
            Ranges::Whole => {
                answer.set(CONTENT_TYPE, media_type);
                (vec![Part::File(0..stat.len)], stat.len)
            }
            Ranges::Parts(parts) => {
                answer.status = StatusCode::PARTIAL_CONTENT;
                match parts.as_slice() {
                    [only] => {
                        answer.set(CONTENT_TYPE, media_type);
                        answer.set(CONTENT_RANGE, content_range(only, stat.len));
                        (vec![Part::File(only.clone())], only.end - only.start)
                    }
                    several => {
                        let boundary = boundary(several, of.etag);
                        answer.set(CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"));
                        multipart(several, stat.len, media_type, &boundary)
                    }
                }
            }
        };
        answer.set(CONTENT_LENGTH, len.to_string());
        answer.content = Content::of_file(FilePieces::new(open, parts), len).map_err(failed)?;
        Ok(answer)
    }
}

/// Whether a path is that of `.tiledbfs`, or below it, but for stored files.
fn is_own(path: &UrlPath) -> bool {
    let own = path.names.first().is_some_and(|name| *name == *OWN_DIRECTORY);
    own && stored_names(path).is_none()
}

/// Whether a path goes through `at/latest` or `fragments/latest`: what it leads to later may be older, so
/// that a date tells nothing.
fn leads_elsewhere_later(path: &UrlPath) -> bool {
    let mut pairs = path.names.windows(2);
    pairs.any(|names| names[1] == "latest" && ["at", "fragments"].iter().any(|name| names[0] == *name))
}

/// The names below `.tiledbfs/stored/`, if a path is there.
fn stored_names(path: &UrlPath) -> Option<&[OsString]> {
    match path.names.as_slice() {
        [own, stored, names @ ..] if *own == *OWN_DIRECTORY && *stored == *STORED => Some(names),
        _ => None,
    }
}

/// Whether an errno means that the other side of a network does not answer.
fn is_absence(errno: i32) -> bool {
    matches!(
        errno,
        libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::EHOSTDOWN
            | libc::ENETUNREACH
            | libc::ENETDOWN
            | libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::ECONNABORTED
            | libc::ENOTCONN
            | libc::EAGAIN
            | libc::EINTR
    )
}

/// The entries of the root but for `.tiledbfs`.
fn without_own(listing: &dyn Listing) -> Arc<dyn Listing> {
    let others = listing.entries().filter(|(name, _)| **name != *OWN_DIRECTORY);
    Arc::new(
        others
            .map(|(name, kind)| (name.into_owned(), kind))
            .collect::<Vec<(OsString, NodeType)>>(),
    )
}

/// 301 to `to`, with the query of the request.
fn moved(mut to: String, question: &Question) -> Answer {
    if let Some(query) = &question.query {
        to.push('?');
        to.push_str(query);
    }
    let mut answer = Refusal::new(StatusCode::MOVED_PERMANENTLY, "it is a directory").answer();
    answer.set(LOCATION, to);
    answer
}

fn content_range(range: &Range<u64>, len: u64) -> String {
    format!("bytes {}-{}/{len}", range.start, range.end - 1)
}

/// What separates the parts of an answer. Nobody who writes into a file can know it.
fn boundary(parts: &[Range<u64>], etag: Option<&str>) -> String {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher;
    let half = || RandomState::new().hash_one((hash(&parts), etag));
    format!("{:016x}{:016x}", half(), half())
}

/// Several ranges as `multipart/byteranges`, and the bytes of all of it.
fn multipart(ranges: &[Range<u64>], len: u64, media_type: &str, boundary: &str) -> (Vec<Part>, u64) {
    let (mut parts, mut total) = (Vec::new(), 0);
    let mut own = |parts: &mut Vec<Part>, text: String| {
        total += text.len() as u64;
        parts.push(Part::Own(Bytes::from(text)));
    };
    for (index, range) in ranges.iter().enumerate() {
        let before = if index == 0 { "" } else { "\r\n" };
        let range_line = content_range(range, len);
        let head = format!(
            "{before}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {range_line}\r\n\r\n"
        );
        own(&mut parts, head);
        parts.push(Part::File(range.clone()));
    }
    own(&mut parts, format!("\r\n--{boundary}--\r\n"));
    total += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    (parts, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::layout::FileLayout;
    use crate::storage::MemoryStorage;
    use crate::storage::testing::ListedBy;
    use hyper::header::{IF_MODIFIED_SINCE, IF_RANGE, IF_UNMODIFIED_SINCE};
    use std::ffi::OsStr;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A file, and the directory of it, that is written to whenever its state is looked at.
    #[derive(Clone)]
    struct Moving {
        /// The state, which is also the time in seconds.
        state: Arc<AtomicU64>,
        /// How much later each state is than the one before.
        step: u64,
        /// The time, if it is that of the lookup.
        found: Option<u64>,
    }

    impl File for Moving {
        fn stat(&self) -> Result<Stat> {
            let version = self.state.fetch_add(self.step, Ordering::Relaxed) + self.step;
            Ok(Stat { len: 4, version })
        }

        fn mtime(&self) -> u64 {
            1000 * self.found.unwrap_or_else(|| self.state.load(Ordering::Relaxed))
        }

        fn open(&self) -> Result<Arc<FileLayout>> {
            let bytes = b"text".to_vec();
            Ok(Arc::new(FileLayout::new(
                self.stat()?.version,
                vec![Box::new(bytes)],
            )?))
        }
    }

    impl Directory for Moving {
        fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
            let now = self.state.load(Ordering::Relaxed);
            let found = self.found.map(|_| now);
            Ok(Some(Node::File(Arc::new(Moving {
                found,
                ..self.clone()
            }))))
        }

        fn list(&self) -> Result<Arc<dyn Listing>> {
            Ok(Arc::new(vec![(OsString::from("f"), NodeType::File)]))
        }

        fn mtime(&self) -> u64 {
            0
        }
    }

    /// The status, headers and first bytes of an answer of a new site.
    fn asked(moving: &Moving, question: Question) -> (u16, HeaderMap, String) {
        asked_at(100, moving, question)
    }

    fn asked_at(seconds: u64, moving: &Moving, question: Question) -> (u16, HeaderMap, String) {
        asked_of(Arc::new(MemoryStorage::new()), seconds, moving, question)
    }

    fn site(storage: Arc<dyn Storage>, moving: &Moving) -> Site {
        Site {
            nodes: Nodes::new(Node::Directory(Arc::new(moving.clone()))),
            storage,
            errors: Arc::default(),
            stats: Arc::default(),
            prefix: String::new(),
            status: false,
            stored: None,
        }
    }

    fn asked_of(
        storage: Arc<dyn Storage>,
        seconds: u64,
        moving: &Moving,
        question: Question,
    ) -> (u16, HeaderMap, String) {
        moving.state.store(seconds, Ordering::Relaxed);
        let site = site(storage, moving);
        let answer = site.answer(&question);
        let first = match answer.content {
            Content::Bytes(bytes) => bytes,
            Content::Pieces { first, .. } => first.unwrap_or_default(),
        };
        let text = String::from_utf8(first.to_vec()).unwrap();
        (answer.status.as_u16(), answer.headers, text)
    }

    fn question(method: Method, path: &str) -> Question {
        Question {
            method,
            path: path.to_owned(),
            query: None,
            headers: HeaderMap::new(),
            origin: String::new(),
            needs_length: false,
        }
    }

    #[test]
    fn the_root_below_a_prefix_is_listed_without_a_slash() {
        let moving = Moving {
            state: Arc::default(),
            step: 0,
            found: None,
        };
        let site = Site {
            prefix: "/p".to_owned(),
            ..site(Arc::new(MemoryStorage::new()), &moving)
        };
        let propfind = || Method::Propfind(Propfind::All, Some(Depth::One));
        for (method, path, status) in [
            (propfind(), "/p", 207),
            (propfind(), "/p/", 207),
            (propfind(), "/pf", 404),
            (propfind(), "/", 404),
            (Method::Get, "/p", 301),
            (Method::Get, "/p/f", 200),
        ] {
            let answer = site.answer(&question(method, path));
            assert_eq!(answer.status.as_u16(), status, "{path}");
        }
    }

    #[test]
    fn a_time_is_not_later_than_the_state() {
        let date = "Thu, 01 Jan 1970 00:01:40 GMT";
        for (step, found) in [(0, None), (1, None), (0, Some(0)), (1, Some(0))] {
            let moving = Moving {
                state: Arc::default(),
                step,
                found,
            };
            let (status, headers, _) = asked(&moving, question(Method::Get, "/f"));
            assert_eq!((status, headers[LAST_MODIFIED].to_str().unwrap()), (200, date));
            for (condition, same, other) in [
                (IF_RANGE, 206, 200),
                (IF_MODIFIED_SINCE, 304, 200),
                (IF_UNMODIFIED_SINCE, 206, 412),
            ] {
                let mut dated = question(Method::Get, "/f");
                dated.headers.insert(RANGE, HeaderValue::from_static("bytes=1-2"));
                dated.headers.insert(&condition, HeaderValue::from_static(date));
                if condition == IF_MODIFIED_SINCE {
                    dated.headers.remove(RANGE);
                }
                let expected = if step == 0 { same } else { other };
                assert_eq!(asked(&moving, dated).0, expected, "{condition} {step} {found:?}");
            }
            let propfind = Method::Propfind(Propfind::All, Some(Depth::Zero));
            let (_, _, text) = asked(&moving, question(propfind, "/f"));
            assert!(text.contains(date), "{text}");
            let mut json = question(Method::Get, "/");
            json.query = Some("json".to_owned());
            let (_, _, text) = asked(&moving, json);
            assert!(text.contains("\"mtime\":100000"), "{text}");
        }
    }

    #[test]
    fn a_time_that_a_later_state_may_have_is_not_told() {
        let moving = Moving {
            state: Arc::default(),
            step: 0,
            found: None,
        };
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        for (seconds, settled) in [(now, false), (now + 1000, false), (now - 3, true)] {
            let (_, headers, _) = asked_at(seconds, &moving, question(Method::Get, "/f"));
            assert_eq!(headers.contains_key(LAST_MODIFIED), settled);
            let mut dated = question(Method::Get, "/f");
            let date = webdav::http_date(1000 * seconds).unwrap();
            dated
                .headers
                .insert(IF_MODIFIED_SINCE, HeaderValue::from_str(&date).unwrap());
            let expected = if settled { 304 } else { 200 };
            assert_eq!(asked_at(seconds, &moving, dated).0, expected);
        }
        // A store may have been listed before a later write of the same second.
        for (lag, seconds, settled) in [
            (Some(60), now - 30, false),
            (Some(60), now - 90, true),
            (None, now - 90, false),
        ] {
            let mut storage = ListedBy::new(Path::new("tests/data"), |files, path| files.list(path));
            storage.lag = lag.map(Duration::from_secs);
            let (_, headers, _) = asked_of(Arc::new(storage), seconds, &moving, question(Method::Get, "/f"));
            assert_eq!(headers.contains_key(LAST_MODIFIED), settled, "{lag:?}");
        }
    }
}
