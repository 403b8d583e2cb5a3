//! Connections: who may ask, in which protocol, and how it ends.

use super::access::{Hosts, Tokens};
use super::answer::{Answer, Question, Refusal, Site};
use super::body::{Body, Content};
use super::cors::Cors;
use super::framing::MAX_HEAD;
use super::listen::Listener;
use super::log::{AccessLog, Line};
use super::pool::Pool;
use super::socket::{Busy, Connection, SLOW, Socket, Stream};
use super::{answer, headers, peer, webdav};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::lock;
use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, RETRY_AFTER,
    SERVER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt::SetStruct};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// How long answers may take after the server was asked to stop.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The longest target of a request, in bytes.
const MAX_TARGET: usize = 8 << 10;

/// The most fields of a head.
const MAX_FIELDS: usize = 100;

/// The most requests of one connection that are answered at once (HTTP/2).
const MAX_STREAMS: u32 = 100;

/// The most bytes that the kernel holds and has not sent, so that a slow client is seen to take some.
const MAX_UNSENT: u32 = 128 << 10;

/// How much of a body that nobody asked for is received, in bytes, and for how long.
const MAX_UNWANTED: usize = 1 << 20;
const UNWANTED: Duration = Duration::from_secs(1);

/// The methods that are answered.
const METHODS: &str = "GET, HEAD, OPTIONS, PROPFIND";

/// What a program's watcher asks.
const HEALTH: &str = "/healthz";

/// The option of a socket with that number of bytes.
#[derive(Clone)]
struct NotSentLowat;

nix::setsockopt_impl!(
    NotSentLowat,
    libc::IPPROTO_TCP,
    libc::TCP_NOTSENT_LOWAT,
    u32,
    SetStruct<u32>
);

/// How it is served.
pub struct Settings {
    /// Without tokens: names of this server.
    pub hosts: Hosts,
    /// The file of tokens.
    pub token_file: Option<PathBuf>,
    /// Whether everybody is let in.
    pub no_auth: bool,
    /// The files of certificates and of their key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Other sites whose scripts may read.
    pub cors: Cors,
    /// The log of requests.
    pub access_log: Option<AccessLog>,
    /// The most connections.
    pub max_connections: usize,
}

/// A server of one site.
pub struct Server {
    site: Arc<Site>,
    pool: Pool,
    settings: Settings,
    tokens: Mutex<Option<Arc<Tokens>>>,
    tls: Mutex<Option<Arc<ServerConfig>>>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    slots: Arc<Semaphore>,
    stopping: watch::Sender<bool>,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
struct Peer {
    /// The address, for the log.
    name: String,
    /// What it is answered if it may not ask.
    refused: Option<Refusal>,
    https: bool,
}

impl Server {
    /// A server of `site` whose answers are made in `pool`. Fails if tokens or certificates cannot be read.
    pub fn new(site: Site, pool: Pool, settings: Settings) -> Result<Arc<Server>> {
        let server = Server {
            site: Arc::new(site),
            pool,
            tokens: Mutex::default(),
            tls: Mutex::default(),
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            slots: Arc::new(Semaphore::new(settings.max_connections)),
            stopping: watch::Sender::new(false),
            settings,
        };
        server.load_tokens()?;
        server.load_certificates()?;
        Ok(Arc::new(server))
    }

    fn load_tokens(&self) -> Result<()> {
        if let Some(path) = &self.settings.token_file {
            let tokens = Tokens::read(path)?;
            *lock(&self.tokens) = Some(Arc::new(tokens));
        }
        Ok(())
    }

    fn load_certificates(&self) -> Result<()> {
        if let Some((certificates, key)) = &self.settings.tls {
            let config = tls_config(certificates, key)?;
            *lock(&self.tls) = Some(Arc::new(config));
        }
        Ok(())
    }

    /// Reads tokens and certificates anew, and opens the log of requests anew. Each that fails stays as it
    /// was.
    pub fn reload(&self) {
        for (what, loaded) in [
            ("tokens", self.load_tokens()),
            ("certificates", self.load_certificates()),
        ] {
            if let Err(error) = loaded {
                log::error!("the {what} that were read before stay in use: {error}");
            }
        }
        if let Some(Err(error)) = self.settings.access_log.as_ref().map(AccessLog::reopen) {
            log::error!("the log of requests cannot be reopened: {error}");
        }
    }

    /// Accepts no more, and lets [`Server::run`] end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Serves until it is stopped. Calls `ready` when all sockets accept.
    pub async fn run(self: Arc<Self>, listeners: Vec<Listener>, ready: impl FnOnce()) -> Result<()> {
        let failed = |error: io::Error| Error::io(&error);
        let mut files = Vec::new();
        for listener in listeners {
            let server = self.clone();
            match listener {
                Listener::Tcp(socket) => {
                    socket.set_nonblocking(true).map_err(failed)?;
                    let socket = TcpListener::from_std(socket).map_err(failed)?;
                    tokio::spawn(server.accept_tcp(socket));
                }
                Listener::Unix(socket, file) => {
                    files.extend(file);
                    socket.set_nonblocking(true).map_err(failed)?;
                    let socket = UnixListener::from_std(socket).map_err(failed)?;
                    tokio::spawn(server.accept_unix(socket));
                }
            }
        }
        ready();
        // The sender is in `self`, so this ends when it says so.
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
        drop(files);
        let all = u32::try_from(self.settings.max_connections).unwrap_or(u32::MAX);
        if timeout(LAST_ANSWERS, self.slots.acquire_many(all)).await.is_err() {
            log::warn!("answers that were not taken within 10 s are cut");
        }
        Ok(())
    }

    async fn accept_tcp(self: Arc<Self>, listener: TcpListener) {
        let mut stopping = self.stopping.subscribe();
        loop {
            let accepted = until(&mut stopping, listener.accept()).await;
            let (stream, address) = match accepted {
                None => return,
                Some(Ok(accepted)) => accepted,
                Some(Err(error)) => {
                    wait_for_room(&error).await;
                    continue;
                }
            };
            let Some(slot) = self.slot(&mut stopping).await else {
                return;
            };
            let _ = stream.set_nodelay(true);
            let _ = setsockopt(&stream, NotSentLowat, &MAX_UNSENT);
            let refused = self.refusal(|| peer::uid(address, stream.local_addr()?));
            let name = address.ip().to_canonical().to_string();
            tokio::spawn(self.clone().serve(Box::new(stream), name, refused, slot));
        }
    }

    async fn accept_unix(self: Arc<Self>, listener: UnixListener) {
        let mut stopping = self.stopping.subscribe();
        loop {
            let stream = match until(&mut stopping, listener.accept()).await {
                None => return,
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) => {
                    wait_for_room(&error).await;
                    continue;
                }
            };
            let Some(slot) = self.slot(&mut stopping).await else {
                return;
            };
            let refused = self.refusal(|| Ok(Some(stream.peer_cred()?.uid())));
            tokio::spawn(
                self.clone()
                    .serve(Box::new(stream), "-".to_owned(), refused, slot),
            );
        }
    }

    /// Whether who asks is not looked at by user: there are tokens, or everybody is let in.
    fn is_open(&self) -> bool {
        self.settings.no_auth || self.settings.token_file.is_some()
    }

    /// Why the user whose process asks, `uid`, may not. Without tokens only this user and root may, over
    /// loopback or a socket.
    fn refusal(&self, uid: impl FnOnce() -> io::Result<Option<u32>>) -> Option<Refusal> {
        if self.is_open() {
            return None;
        }
        match uid() {
            Ok(uid) if uid.is_some_and(is_own) => None,
            Ok(_) => {
                let line = "this server answers its own user alone";
                Some(Refusal::new(StatusCode::FORBIDDEN, line))
            }
            Err(error) => {
                log::warn!("cannot find out whose connection it is: {error}");
                let line = "cannot find out whose connection it is";
                let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, line);
                // It is asked once a connection.
                Some(refusal.with(CONNECTION, "close").with(RETRY_AFTER, "5"))
            }
        }
    }

    /// A place for one more connection. At the limit, the one that has been idle for longest is closed. None
    /// once the server stops.
    async fn slot(&self, stopping: &mut watch::Receiver<bool>) -> Option<OwnedSemaphorePermit> {
        /// How often to look for one that is idle.
        const AGAIN: Duration = Duration::from_millis(50);
        loop {
            if let Ok(slot) = self.slots.clone().try_acquire_owned() {
                return Some(slot);
            }
            self.close_longest_idle();
            let waited = timeout(AGAIN, self.slots.clone().acquire_owned());
            if let Ok(Ok(slot)) = until(stopping, waited).await? {
                return Some(slot);
            }
        }
    }

    fn close_longest_idle(&self) {
        let connections = lock(&self.connections);
        let idle = connections
            .values()
            .filter(|known| !known.is_ending())
            .filter_map(|known| Some((known.idle_since()?, known)));
        if let Some((_, connection)) = idle.min_by_key(|(since, _)| *since) {
            connection.end();
        }
    }

    /// Serves one connection.
    async fn serve(
        self: Arc<Self>,
        stream: Box<dyn Stream>,
        name: String,
        refused: Option<Refusal>,
        slot: OwnedSemaphorePermit,
    ) {
        let connection = Connection::new();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.connections).insert(number, connection.clone());
        let config = lock(&self.tls).clone();
        let peer = Peer {
            name,
            refused,
            https: config.is_some(),
        };
        let agreed = match config {
            None => Some((stream, false)),
            // TLS takes room that other connections need not have.
            Some(config) => Box::pin(self.handshake(config, stream, &connection)).await,
        };
        if let Some((stream, http2)) = agreed {
            self.clone().speak(stream, peer, connection, http2).await;
        }
        lock(&self.connections).remove(&number);
        drop(slot);
    }

    /// The TLS connection over `stream`, and whether it speaks HTTP/2. None if there is none within 10 s, or
    /// the connection was asked to end.
    async fn handshake(
        &self,
        config: Arc<ServerConfig>,
        stream: Box<dyn Stream>,
        connection: &Connection,
    ) -> Option<(Box<dyn Stream>, bool)> {
        let mut stopping = self.stopping.subscribe();
        let accepting = pin!(timeout(SLOW, TlsAcceptor::from(config).accept(stream)));
        let ending = pin!(connection.asked_to_end());
        match until(&mut stopping, select(accepting, ending)).await? {
            Either::Left((accepted, _)) => {
                let stream = accepted.ok()?.ok()?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Some((Box::new(stream), http2))
            }
            Either::Right(_) => None,
        }
    }

    /// Answers the requests of a connection, in either version of HTTP.
    async fn speak(
        self: Arc<Self>,
        stream: Box<dyn Stream>,
        peer: Peer,
        connection: Arc<Connection>,
        http2: bool,
    ) {
        let io = TokioIo::new(Socket::new(stream, connection.clone(), http2));
        let mut stopping = self.stopping.subscribe();
        let (server, known, client) = (self.clone(), connection.clone(), peer.name.clone());
        let service = service_fn(move |request| {
            // Counted before anything else is received.
            let busy = known.begin();
            server.clone().respond(request, peer.clone(), known.clone(), busy)
        });
        let closing = pin!(async {
            let _ = until(&mut stopping, connection.asked_to_end()).await;
        });
        let result = if http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .max_header_list_size(MAX_HEAD as u32)
                .max_send_buf_size(super::body::PIECE as usize);
            // It takes room that connections of the other version need not have.
            let mut speaking = Box::pin(builder.serve_connection(io, service));
            match select(closing, speaking.as_mut()).await {
                Either::Left(((), mut speaking)) => {
                    connection.end();
                    speaking.as_mut().graceful_shutdown();
                    speaking.await
                }
                Either::Right((result, _)) => result,
            }
        } else {
            let mut builder = http1::Builder::new();
            builder
                .header_read_timeout(None)
                .max_headers(MAX_FIELDS)
                .max_buf_size(MAX_HEAD)
                .timer(TokioTimer::new());
            let mut speaking = pin!(builder.serve_connection(io, service));
            match select(closing, speaking.as_mut()).await {
                Either::Left(((), mut speaking)) => {
                    connection.end();
                    speaking.as_mut().graceful_shutdown();
                    speaking.await
                }
                Either::Right((result, _)) => result,
            }
        };
        if let Err(error) = result {
            log::debug!("a connection ended: {error}");
            // hyper has answered what is no request.
            if let Some(log) = self.settings.access_log.as_ref().filter(|_| error.is_parse()) {
                let status = if error.is_parse_too_large() { 431 } else { 400 };
                log.write(&Line::unread(&client).end(status, 0));
            }
        }
    }

    /// The response to a request.
    async fn respond(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
        connection: Arc<Connection>,
        busy: Busy,
    ) -> Result<Response<Body>, Infallible> {
        let (parts, mut incoming) = request.into_parts();
        let mut line = self
            .settings
            .access_log
            .is_some()
            .then(|| Line::new(&peer.name, &parts));
        let gone: Arc<AtomicBool> = Arc::default();
        let unread = parts.method.as_str() != "PROPFIND"
            && (connection.is_ambiguous() || !receive(&parts, &mut incoming).await);
        // If the client leaves before there is a body, this is dropped.
        let mut leaving = Leaving(Some(gone.clone()));
        let made = self
            .make(&parts, incoming, &peer, &connection, &gone, &mut line)
            .await;
        let mut answer = made.unwrap_or_else(Refusal::answer);
        leaving.0 = None;
        if unread && parts.version != Version::HTTP_2 {
            answer.set(CONNECTION, "close");
        }
        self.finish(&parts, &connection, &mut answer);
        let status = answer.status;
        if parts.method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
            answer.content = Content::Bytes(Bytes::new());
        }
        let (server, path) = (self.clone(), parts.uri.path().to_owned());
        let ended = move |sent, error: Option<&Error>| {
            server.site.stats.reads.add(1);
            server.site.stats.bytes_served.add(sent);
            if let Some(error) = error {
                server.site.report(&path, error);
            }
            if let (Some(log), Some(line)) = (&server.settings.access_log, line) {
                log.write(&line.end(status.as_u16(), sent));
            }
        };
        let body = Body::new(answer.content, self.pool.clone(), gone, busy, ended);
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }

    /// The answer to a request, or why there is none.
    async fn make(
        &self,
        parts: &Parts,
        incoming: Incoming,
        peer: &Peer,
        connection: &Connection,
        gone: &Arc<AtomicBool>,
        line: &mut Option<Line>,
    ) -> Result<Answer, Refusal> {
        if connection.is_ambiguous() {
            return Err(
                Refusal::new(StatusCode::BAD_REQUEST, "the length of the body is ambiguous")
                    .with(CONNECTION, "close"),
            );
        }
        if parts.uri.to_string().len() > MAX_TARGET {
            return Err(Refusal::new(StatusCode::URI_TOO_LONG, "the target is too long"));
        }
        // hyper counts those of HTTP/1.
        if parts.headers.len() > MAX_FIELDS {
            return Err(Refusal::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "the head has too many fields",
            ));
        }
        let path = parts.uri.path();
        let healthy = path == HEALTH || path.strip_prefix(&self.site.prefix) == Some(HEALTH);
        let health = healthy && [Method::GET, Method::HEAD].contains(&parts.method);
        let host = match health {
            true => String::new(),
            false => self.host(parts)?,
        };
        if let Some(refused) = &peer.refused {
            // HTTP/2 has no header that ends a connection.
            if refused.status == StatusCode::SERVICE_UNAVAILABLE {
                connection.end();
            }
            return Err(refused.clone());
        }
        if health {
            return self.health().await;
        }
        if Cors::is_preflight(parts) {
            let allowed = self.settings.cors.preflight(&parts.headers);
            let Some(headers) = allowed else {
                return Err(Refusal::new(
                    StatusCode::FORBIDDEN,
                    "scripts of this site may not read",
                ));
            };
            let mut answer = Answer::empty(StatusCode::NO_CONTENT);
            answer.headers = headers;
            return Ok(answer);
        }
        let user = self.user(&parts.headers)?;
        if let (Some(line), Some(user)) = (line, user) {
            line.set_user(&user);
        }
        let method = match parts.method {
            Method::GET => answer::Method::Get,
            Method::HEAD => answer::Method::Head,
            Method::OPTIONS => return Ok(options()),
            ref method if method.as_str() == "PROPFIND" => propfind(&parts.headers, incoming).await?,
            _ => {
                let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this server is read-only");
                return Err(refusal.with(ALLOW, METHODS));
            }
        };
        let scheme = if peer.https { "https" } else { "http" };
        let question = Question {
            method,
            path: path.to_owned(),
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers.clone(),
            origin: format!("{scheme}://{host}"),
            needs_length: parts.version < Version::HTTP_11,
        };
        let site = self.site.clone();
        let made = self.pool.run(gone, move || Ok(site.answer(&question))).await;
        match made {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.site.report(path, &error);
                Err(Refusal::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "a bug of this program",
                ))
            }
            Err(_) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server ends")),
        }
    }

    /// The host that the client asked. 400 unless there is one; without tokens 421 if it is no name of this
    /// server.
    fn host(&self, parts: &Parts) -> Result<String, Refusal> {
        let authority = parts.uri.authority().map(|authority| authority.as_str());
        let fields = parts.headers.get_all(HOST).iter().count();
        let field = headers::only(&parts.headers, HOST);
        let host = match (parts.version == Version::HTTP_2, fields) {
            (true, 0 | 1) => authority.or(field),
            (false, 1) => authority.or(field),
            _ => None,
        };
        let Some(host) = host else {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "there has to be one header Host",
            ));
        };
        let with_tokens = self.settings.token_file.is_some();
        let names = [Some(host), field];
        match with_tokens
            || names
                .into_iter()
                .flatten()
                .all(|name| self.settings.hosts.allows(name))
        {
            true => Ok(host.to_owned()),
            false => Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "this server has another name: --host NAME adds one",
            )),
        }
    }

    /// The name of the user, where there are tokens.
    fn user(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        let Some(tokens) = lock(&self.tokens).clone() else {
            return Ok(None);
        };
        let given = headers::only(headers, AUTHORIZATION);
        if let Some(user) = given.and_then(|given| tokens.user(given)) {
            return Ok(Some(user));
        }
        let mut refusal = Refusal::new(StatusCode::UNAUTHORIZED, "a token is needed");
        for scheme in [
            "Bearer realm=\"tiledbfs\"",
            "Basic realm=\"tiledbfs\", charset=\"UTF-8\"",
        ] {
            refusal
                .headers
                .push((WWW_AUTHENTICATE, HeaderValue::from_static(scheme)));
        }
        Err(refusal)
    }

    async fn health(&self) -> Result<Answer, Refusal> {
        let site = self.site.clone();
        // Not in the pool: its threads may all be busy, which is no failure.
        let healthy = spawn_blocking(move || site.is_healthy()).await;
        if !matches!(healthy, Ok(true)) {
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the source is gone");
            return Err(refusal.with(RETRY_AFTER, "5"));
        }
        Ok(Refusal::new(StatusCode::OK, "ok").answer())
    }

    /// Adds what all answers say.
    fn finish(&self, parts: &Parts, connection: &Connection, answer: &mut Answer) {
        answer.set(SERVER, "tiledbfs");
        answer.set(X_CONTENT_TYPE_OPTIONS, "nosniff");
        answer.set(X_FRAME_OPTIONS, "DENY");
        answer.set(
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        );
        self.settings.cors.add(&parts.headers, &mut answer.headers);
        if connection.is_unbounded() && parts.version != Version::HTTP_2 {
            answer.set(CONNECTION, "close");
        }
    }
}

/// Says that the client has gone, unless it is emptied.
struct Leaving(Option<Arc<AtomicBool>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(gone) = &self.0 {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

/// The answer to OPTIONS.
fn options() -> Answer {
    let mut answer = Answer::empty(StatusCode::OK);
    answer.set(ALLOW, METHODS);
    answer.set(HeaderName::from_static("dav"), "1");
    answer.set(HeaderName::from_static("ms-author-via"), "DAV");
    answer.set(CONTENT_LENGTH, "0");
    answer
}

/// Receives a body that nobody asked for, as far as it is short: a client that still sends when the
/// connection closes may not see the answer. Returns whether the body has ended. Who waits for `100 Continue`
/// sends none.
async fn receive(parts: &Parts, incoming: &mut Incoming) -> bool {
    if incoming.is_end_stream() || parts.headers.contains_key(EXPECT) {
        return incoming.is_end_stream();
    }
    let all = async {
        let mut left = MAX_UNWANTED;
        while let Some(Ok(frame)) = incoming.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            left = left.checked_sub(length)?;
        }
        Some(())
    };
    let _ = timeout(UNWANTED, all).await;
    incoming.is_end_stream()
}

/// What a PROPFIND asks for.
async fn propfind(headers: &HeaderMap, incoming: Incoming) -> Result<answer::Method, Refusal> {
    let too_large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
    let received = match timeout(SLOW, Limited::new(incoming, webdav::MAX_BODY).collect()).await {
        Ok(Ok(received)) => received.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large().with(CONNECTION, "close")),
        Ok(Err(_)) => {
            return Err(
                Refusal::new(StatusCode::BAD_REQUEST, "the body is no body").with(CONNECTION, "close")
            );
        }
        Err(_) => {
            let refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body takes too long");
            return Err(refusal.with(CONNECTION, "close"));
        }
    };
    let wanted = webdav::parse(&received).map_err(|bad| match bad {
        webdav::BadBody::Malformed(reason) => Refusal::new(StatusCode::BAD_REQUEST, reason),
        webdav::BadBody::TooLarge => too_large(),
    })?;
    let depth = headers.get("depth").map(HeaderValue::as_bytes);
    Ok(answer::Method::Propfind(wanted, webdav::Depth::parse(depth)))
}

/// Whether a user is that of this process, or root.
fn is_own(uid: u32) -> bool {
    uid == 0 || uid == nix::unistd::geteuid().as_raw()
}

/// The result of a future, or None once the server stops.
async fn until<F: Future>(stopping: &mut watch::Receiver<bool>, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut stopped = pin!(stopping.wait_for(|stopping| *stopping));
    poll_fn(|context| {
        if stopped.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Waits a moment after a connection that could not be accepted, because there are too many descriptors.
async fn wait_for_room(error: &std::io::Error) {
    log::warn!("a connection could not be accepted: {error}");
    sleep(Duration::from_millis(100)).await;
}

/// The certificates and their key, for TLS 1.2 and 1.3.
fn tls_config(certificates: &PathBuf, key: &PathBuf) -> Result<ServerConfig> {
    let invalid =
        |path: &PathBuf, cause: String| Error::new(ErrorKind::InvalidInput, cause).in_file(path.display());
    let unreadable = |error: pem::Error| invalid(certificates, pem_error(&error, "certificate"));
    let found = CertificateDer::pem_file_iter(certificates).map_err(unreadable)?;
    let chain: Result<Vec<_>, _> = found.collect();
    let chain = chain.map_err(unreadable)?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| invalid(key, pem_error(&error, "private key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| Error::internal(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let mut config = config.map_err(|error| invalid(certificates, error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// What is wrong with a PEM file that is to have a `wanted`.
fn pem_error(error: &pem::Error, wanted: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("the file contains no PEM {wanted}"),
        pem::Error::Io(error) => error.to_string(),
        // Their text would have bytes as numbers.
        pem::Error::MissingSectionEnd { .. } => "a PEM section has no end".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a PEM section begins with an invalid line".to_owned(),
        other => other.to_string(),
    }
}
