//! A connection's socket, with the clocks that end slow ones.

use super::frames::Frames;
use super::framing::{Body, CUT_LINE, Framing};
use crate::runtime::lock;
use futures_util::task::AtomicWaker;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a head may be on its way, and a body, and a TLS handshake.
pub const SLOW: Duration = Duration::from_secs(10);

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(75);

/// How long an idle connection that was asked to end may take for it. A client of HTTP/2 has to agree.
const ENDING: Duration = Duration::from_secs(1);

/// How long a client may take nothing of what is sent.
const STALLED: Duration = Duration::from_secs(60);

/// Bytes that are received at once.
const RECEIVED: usize = 8 << 10;

/// What is known of a connection outside of its socket.
pub struct Connection {
    /// Requests that are being answered.
    busy: AtomicUsize,
    /// Since when there has been none.
    idle_since: Mutex<Instant>,
    /// Requests that are being answered whose next bytes are not there yet.
    making: AtomicUsize,
    /// When bytes of an answer were last sent.
    sent_at: Mutex<Instant>,
    /// Whether bytes wait for the client: those of an answer that is made still have to be taken.
    unsent: AtomicBool,
    /// Whether the head that was received last has an ambiguous framing.
    ambiguous: AtomicBool,
    /// Whether the last body has no length: then the connection ends with the answer.
    unbounded: AtomicBool,
    /// The task that receives, while it waits for the end of an answer.
    receiver: AtomicWaker,
    /// When it was asked to end.
    ending_since: Mutex<Option<Instant>>,
    /// Who waits for that.
    ended: Notify,
}

impl Connection {
    /// A connection that has just been made.
    pub fn new() -> Arc<Connection> {
        Arc::new(Connection {
            busy: AtomicUsize::new(0),
            making: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            sent_at: Mutex::new(Instant::now()),
            unsent: AtomicBool::new(false),
            ambiguous: AtomicBool::new(false),
            unbounded: AtomicBool::new(false),
            receiver: AtomicWaker::new(),
            ending_since: Mutex::new(None),
            ended: Notify::new(),
        })
    }

    /// Counts a request, until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.making.fetch_add(1, Ordering::AcqRel);
        Busy {
            connection: self.clone(),
            making: true,
        }
    }

    /// Since when the client has taken nothing of what is there for it; None while an answer is being made.
    fn waits_since(&self) -> Option<Instant> {
        let waits = self.making.load(Ordering::Acquire) == 0;
        waits.then(|| *lock(&self.sent_at))
    }

    /// Since when it has been idle; None while a request is being answered, or its answer sent.
    pub fn idle_since(&self) -> Option<Instant> {
        let idle = self.busy.load(Ordering::Acquire) == 0 && !self.unsent.load(Ordering::Acquire);
        idle.then(|| *lock(&self.idle_since))
    }

    /// Notes that all bytes are sent, which ends an answer. If they `waited` for the client, it was not idle.
    fn all_is_sent(&self, waited: bool) {
        if waited {
            *lock(&self.idle_since) = Instant::now();
        }
        // Whoever receives flushes as well: woken each time, it would never sleep.
        let ends = self.unsent.swap(false, Ordering::AcqRel);
        if ends && self.busy.load(Ordering::Acquire) == 0 {
            self.receiver.wake();
        }
    }

    /// Asks it to end as soon as it is idle.
    pub fn end(&self) {
        lock(&self.ending_since).get_or_insert_with(Instant::now);
        self.ended.notify_one();
    }

    /// Whether it was asked to end.
    pub fn is_ending(&self) -> bool {
        lock(&self.ending_since).is_some()
    }

    /// Waits until it is asked to end. One waits at a time.
    pub async fn asked_to_end(&self) {
        self.ended.notified().await;
    }

    /// Whether the framing of the request that was received last is ambiguous.
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous.load(Ordering::Acquire)
    }

    /// Whether the connection has to end after the request that was received last.
    pub fn is_unbounded(&self) -> bool {
        self.unbounded.load(Ordering::Acquire)
    }
}

/// A request that is being answered.
pub struct Busy {
    connection: Arc<Connection>,
    making: bool,
}

impl Busy {
    /// Says whether the next bytes of the answer are being made, or those that are there wait for the client.
    pub fn set_making(&mut self, making: bool) {
        if making == self.making {
            return;
        }
        self.making = making;
        if making {
            self.connection.making.fetch_add(1, Ordering::AcqRel);
            return;
        }
        *lock(&self.connection.sent_at) = Instant::now();
        self.connection.making.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_making(false);
        *lock(&self.connection.idle_since) = Instant::now();
        self.connection.busy.fetch_sub(1, Ordering::AcqRel);
        self.connection.receiver.wake();
    }
}

/// What is known of the bytes of a connection.
enum Protocol {
    Http1(Framing),
    Http2 { received: Frames, sent: Frames },
}

/// What the bytes of a connection go through: TCP or a socket of this machine, with or without TLS. What
/// speaks HTTP over it is compiled once.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A socket that fails with `TimedOut` when its time is up.
pub struct Socket<S> {
    inner: S,
    connection: Arc<Connection>,
    protocol: Protocol,
    /// Received, and not handed on yet.
    received: Vec<u8>,
    /// How much of it has been handed on.
    taken: usize,
    /// When the head that is being received began.
    head_since: Option<Instant>,
    /// Since when nothing has been taken of what is sent.
    stalled_since: Option<Instant>,
    /// Whether what is sent had to wait for the client.
    waited: bool,
    reading: Pin<Box<Sleep>>,
    writing: Pin<Box<Sleep>>,
}

impl<S> Socket<S> {
    /// The socket of a connection that speaks HTTP/1 or HTTP/2.
    pub fn new(inner: S, connection: Arc<Connection>, http2: bool) -> Socket<S> {
        Socket {
            inner,
            connection,
            protocol: match http2 {
                false => Protocol::Http1(Framing::default()),
                true => Protocol::Http2 {
                    received: Frames::of_client(),
                    sent: Frames::default(),
                },
            },
            received: Vec::new(),
            taken: 0,
            head_since: None,
            stalled_since: None,
            waited: false,
            reading: Box::pin(sleep_until(Instant::now())),
            writing: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Hands on what was received of the request that is being received. Returns whether that was something.
    fn hand_on(&mut self, out: &mut ReadBuf<'_>) -> bool {
        let busy = self.connection.idle_since().is_none();
        let framing = match &mut self.protocol {
            Protocol::Http1(framing) => framing,
            Protocol::Http2 { received, .. } => {
                let count = out.remaining().min(self.received.len() - self.taken);
                let bytes = &self.received[self.taken..self.taken + count];
                if bytes.is_empty() {
                    return false;
                }
                out.put_slice(bytes);
                let begins = received.pass(bytes).ended;
                self.taken += count;
                self.head_since = match received.is_between() {
                    true => None,
                    false => self
                        .head_since
                        .filter(|_| !begins)
                        .or_else(|| Some(Instant::now())),
                };
                return true;
            }
        };
        if out.remaining() >= CUT_LINE.len() && framing.cut() {
            self.connection.unbounded.store(true, Ordering::Release);
            self.head_since = None;
            out.put_slice(CUT_LINE);
            return true;
        }
        let waiting = &self.received[self.taken..];
        // The next request waits for the answer to this one.
        if waiting.is_empty() || out.remaining() == 0 || busy && framing.is_between() {
            return false;
        }
        let room = waiting.len().min(out.remaining());
        let (count, body) = framing.take(&waiting[..room]);
        out.put_slice(&waiting[..count]);
        self.taken += count;
        self.head_since = match framing.is_in_head() {
            true => self.head_since.or_else(|| Some(Instant::now())),
            false => None,
        };
        if let Some(body) = body {
            self.connection
                .ambiguous
                .store(body == Body::Ambiguous, Ordering::Release);
            self.connection
                .unbounded
                .store(body == Body::Encoded, Ordering::Release);
        }
        count > 0
    }

    /// When reading ends, or is to be looked at again; None while a request is being answered. A client of
    /// HTTP/2 says how much it takes, so that the socket alone does not tell whether it takes anything.
    fn read_deadline(&self) -> Option<Instant> {
        let idle_since = self.connection.idle_since();
        let deadline = match (self.head_since, idle_since, &self.protocol) {
            (Some(since), ..) => since + SLOW,
            (None, Some(since), _) => since + IDLE,
            (None, None, Protocol::Http2 { .. }) => {
                self.connection.waits_since().unwrap_or_else(Instant::now) + STALLED
            }
            (None, None, Protocol::Http1(_)) => return None,
        };
        let ending_since = *lock(&self.connection.ending_since);
        Some(match (ending_since, idle_since) {
            (Some(since), Some(idle)) => deadline.min(idle.max(since) + ENDING),
            _ => deadline,
        })
    }
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &mut *self;
        // Before it is looked whether a request is being answered, so that the end of one is not missed.
        socket.connection.receiver.register(context.waker());
        loop {
            if socket.hand_on(out) {
                return Poll::Ready(Ok(()));
            }
            if socket.taken == socket.received.len() {
                socket.received = Vec::new();
                socket.taken = 0;
            }
            // What waits for an answer has a limit, and its end is seen below it.
            let room = RECEIVED - socket.received.len().min(RECEIVED);
            if room > 0 {
                // An idle connection holds no memory for what may come.
                let mut space = [MaybeUninit::uninit(); RECEIVED];
                let mut buffer = ReadBuf::uninit(&mut space[..room]);
                match Pin::new(&mut socket.inner).poll_read(context, &mut buffer) {
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(())) => {
                        socket.received.extend_from_slice(buffer.filled());
                        continue;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            let Some(deadline) = socket.read_deadline() else {
                return Poll::Pending;
            };
            if socket.reading.deadline() != deadline {
                socket.reading.as_mut().reset(deadline);
            }
            ready!(socket.reading.as_mut().poll(context));
            return Poll::Ready(Err(timed_out()));
        }
    }
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    /// Remembers that something of an answer was sent, if that is among the first `slices`.
    fn sent(&mut self, slices: &[io::IoSlice<'_>], result: &Poll<io::Result<usize>>) {
        let (Poll::Ready(Ok(count)), Protocol::Http2 { sent, .. }) = (result, &mut self.protocol) else {
            return;
        };
        let (mut left, mut answer) = (*count, false);
        for slice in slices {
            let part = &slice[..left.min(slice.len())];
            left -= part.len();
            answer |= sent.pass(part).answer;
        }
        if answer {
            *lock(&self.connection.sent_at) = Instant::now();
            // What hyper holds of an answer is sent when the client has room for it.
            *lock(&self.connection.idle_since) = Instant::now();
        }
    }

    /// The result of sending, or an error if the client has taken nothing for too long.
    fn watched<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled_since = None;
            return result;
        }
        self.waited = true;
        let since = *self.stalled_since.get_or_insert_with(Instant::now);
        if self.writing.deadline() != since + STALLED {
            self.writing.as_mut().reset(since + STALLED);
        }
        ready!(self.writing.as_mut().poll(context));
        Poll::Ready(Err(timed_out()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.connection.unsent.store(true, Ordering::Release);
        let result = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.sent(&[io::IoSlice::new(bytes)], &result);
        self.watched(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.connection.unsent.store(true, Ordering::Release);
        let result = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.sent(slices, &result);
        self.watched(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(context);
        if result.is_ready() {
            let waited = std::mem::take(&mut self.waited);
            self.connection.all_is_sent(waited);
        }
        self.watched(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watched(context, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::body::tests::Woken;
    use std::task::Waker;

    #[test]
    fn a_connection_waits_for_its_client_while_nothing_is_made() {
        let connection = Connection::new();
        let (mut one, mut other) = (connection.begin(), connection.begin());
        assert!(connection.waits_since().is_none() && connection.idle_since().is_none());
        one.set_making(false);
        one.set_making(false);
        assert!(connection.waits_since().is_none());
        other.set_making(false);
        assert!(connection.waits_since().is_some() && connection.idle_since().is_none());
        one.set_making(true);
        assert!(connection.waits_since().is_none());
        drop(one);
        assert!(connection.waits_since().is_some() && connection.idle_since().is_none());
        drop(other);
        assert!(connection.idle_since().is_some());
    }

    #[test]
    fn who_receives_is_woken_once_when_all_is_sent() {
        let connection = Connection::new();
        let woken: Arc<Woken> = Arc::default();
        let waker = Waker::from(woken.clone());
        let flushed = || {
            connection.receiver.register(&waker);
            connection.all_is_sent(false);
            woken.0.load(Ordering::Acquire)
        };
        assert_eq!((flushed(), flushed()), (0, 0));
        connection.unsent.store(true, Ordering::Release);
        assert_eq!((flushed(), flushed()), (1, 1));
    }

    /// A runtime, without which there are no clocks.
    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    #[test]
    fn replies_to_pings_are_nothing_that_a_client_takes() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let connection = Connection::new();
        let mut request = connection.begin();
        request.set_making(false);
        let mut socket = Socket::new(Vec::new(), connection, true);
        let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
        let mut send = |frame: &[u8]| {
            let before = socket.read_deadline().unwrap();
            std::thread::sleep(Duration::from_millis(2));
            let (first, last) = frame.split_at(4);
            let slices = [io::IoSlice::new(first), io::IoSlice::new(last)];
            assert!(
                Pin::new(&mut socket)
                    .poll_write_vectored(&mut context, &slices)
                    .is_ready()
            );
            socket.read_deadline().unwrap() > before
        };
        let ping = [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let data = [0, 0, 1, 0, 0, 0, 0, 0, 1, b'a'];
        assert_eq!([send(&ping), send(&data), send(&ping)], [false, true, false]);
    }

    #[test]
    fn who_receives_looks_again_at_clients_of_http2_without_being_woken() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let connection = Connection::new();
        let woken: Arc<Woken> = Arc::default();
        connection.receiver.register(&Waker::from(woken.clone()));
        let mut request = connection.begin();
        let socket = |http2| Socket::new(Vec::<u8>::new(), connection.clone(), http2);
        let making = socket(true).read_deadline().unwrap();
        request.set_making(false);
        let waiting = socket(true).read_deadline().unwrap();
        assert!(making <= waiting && socket(false).read_deadline().is_none());
        assert_eq!(woken.0.load(Ordering::Acquire), 0);
        drop(request);
        assert_eq!(woken.0.load(Ordering::Acquire), 1);
    }

    /// A client that takes nothing before it is told to.
    struct Slow(bool);

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.0 {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_connection_is_not_idle_before_its_answer_is_taken() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let connection = Connection::new();
        let request = connection.begin();
        let mut socket = Socket::new(Slow(false), connection.clone(), false);
        let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
        assert!(
            Pin::new(&mut socket)
                .poll_write(&mut context, b"answer")
                .is_ready()
        );
        drop(request);
        let begun = Instant::now();
        assert!(Pin::new(&mut socket).poll_flush(&mut context).is_pending());
        connection.end();
        assert!(connection.idle_since().is_none() && socket.read_deadline().is_none());
        socket.inner.0 = true;
        assert!(Pin::new(&mut socket).poll_flush(&mut context).is_ready());
        assert!(connection.idle_since().unwrap() >= begun);
    }

    #[test]
    fn a_head_of_http2_ends_when_its_last_frame_does() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let settings: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        let headers: &[u8] = &[0, 0, 1, 1, 0, 0, 0, 0, 1, b'a'];
        let last: &[u8] = &[0, 0, 1, 9, 4, 0, 0, 0, 1, b'b'];
        for (frames, in_head) in [
            (vec![settings], false),
            (vec![settings, &settings[..5]], true),
            (vec![settings, headers], true),
            (vec![settings, headers, last], false),
            (vec![settings, headers, last, settings, headers], true),
        ] {
            let bytes = [&preface[..], &frames.concat()].concat();
            let mut socket = Socket::new(&bytes[..], Connection::new(), true);
            let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
            let mut space = [0; 200];
            let mut out = ReadBuf::new(&mut space);
            let read = Pin::new(&mut socket).poll_read(&mut context, &mut out);
            assert!(read.is_ready() && out.filled() == bytes);
            let limit = if in_head { SLOW } else { IDLE };
            let left = socket.read_deadline().unwrap() - Instant::now();
            assert!(
                left <= limit && left > limit - Duration::from_secs(2),
                "{frames:?}"
            );
        }
    }
}
