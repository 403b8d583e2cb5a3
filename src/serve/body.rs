//! Bodies of answers: bytes, or pieces of which the next is made while one is sent.

use super::Pieces;
use super::pool::{Line, Pool};
use super::socket::Busy;
use crate::bytes::Output;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::FileLayout;
use crate::runtime::{Permit, Permits};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// Bytes of a piece of a file: of most chunks of data. What is a part of one chunk is sent as it lies in the
/// cache.
pub const PIECE: u64 = 64 << 10;

/// Bytes of a long answer that one thread makes at once: each time threads wait for each other. A column of
/// 64 MiB comes in 0.84 of the time.
const LONG_PIECE: u64 = 4 * PIECE;

/// Bytes that a client has taken when its answer becomes a long one: more than buffers of the system hold of
/// one who takes nothing.
const LONG_AFTER: u64 = 4 << 20;

/// Answers of the process that may be long ones at once.
const MAX_LONG: usize = 16;

/// Pieces of a file that are made at once, while another is sent: together what an answer may take.
const MADE_AT_ONCE: usize = 3;

/// Pieces of all answers of the process that are made before those in front of them are sent: a client of
/// HTTP/2 may ask for many files and take nothing.
const MAX_AHEAD: usize = 256;

/// The most bytes of an answer without a known length that are collected: a page of 10,000
/// entries takes some 2.5 MB.
const MOST_COLLECTED: usize = 4 << 20;

/// The first piece is smaller, because the head waits for it.
const FIRST_PIECE: u64 = 32 << 10;

/// What is sent after the head.
pub enum Content {
    /// All of it.
    Bytes(Bytes),
    /// Pieces, the first of which is there, with the length of all if it is known.
    Pieces {
        first: Option<Bytes>,
        rest: Rest,
        len: Option<u64>,
    },
}

/// What is left of the pieces of an answer.
pub enum Rest {
    /// Each is made by itself.
    File(FilePieces),
    /// Each is made after the one before it.
    Sequence(Pieces),
}

impl Content {
    /// The content of `pieces`, of which it makes the first.
    pub fn of(mut pieces: Pieces) -> Result<Content> {
        Ok(Content::Pieces {
            first: pieces.next().transpose()?,
            rest: Rest::Sequence(pieces),
            len: None,
        })
    }

    /// This content with its length. Pieces of unknown length are all made, at most [`MOST_COLLECTED`] bytes:
    /// `LimitExceeded` if there are more.
    pub fn with_length(self) -> Result<Content> {
        let (first, pieces) = match self {
            Content::Pieces {
                first,
                rest: Rest::Sequence(pieces),
                len: None,
            } => (first, pieces),
            whole => return Ok(whole),
        };
        let mut all = first.map(Vec::from).unwrap_or_default();
        for piece in pieces {
            all.extend_from_slice(&piece?);
            if all.len() > MOST_COLLECTED {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("more than {MOST_COLLECTED} bytes without a known length"),
                ));
            }
        }
        Ok(Content::Bytes(all.into()))
    }

    /// The content of `pieces` of a file, `len` bytes together, of which it makes the first.
    pub fn of_file(mut pieces: FilePieces, len: u64) -> Result<Content> {
        let first = pieces.next(FIRST_PIECE);
        Ok(Content::Pieces {
            first: first
                .map(|first| pieces.file.read(first))
                .transpose()?
                .map(|(first, _)| first),
            rest: Rest::File(pieces),
            len: Some(len),
        })
    }
}

/// Parts of an open file, with bytes of our own between them.
pub struct FilePieces {
    file: OpenFile,
    parts: VecDeque<Part>,
}

/// A part of an answer.
pub enum Part {
    /// Bytes of our own.
    Own(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

/// The file that an answer is read from.
#[derive(Clone)]
struct OpenFile {
    layout: Arc<FileLayout>,
    /// Whether a piece of it was no part of a chunk of the cache.
    is_copied: Arc<AtomicBool>,
}

impl FilePieces {
    /// The pieces of `parts` of the file `layout`.
    pub fn new(layout: Arc<FileLayout>, parts: impl IntoIterator<Item = Part>) -> FilePieces {
        FilePieces {
            file: OpenFile {
                layout,
                is_copied: Arc::default(),
            },
            parts: parts.into_iter().collect(),
        }
    }

    /// The parts of the next piece, which ends where a multiple of `size` bytes of the file does; None behind
    /// the last one.
    fn next(&mut self, size: u64) -> Option<Vec<Part>> {
        let (mut piece, mut len) = (Vec::new(), 0);
        while len < size
            && let Some(part) = self.parts.pop_front()
        {
            match part {
                Part::Own(bytes) => {
                    len += bytes.len() as u64;
                    piece.push(Part::Own(bytes));
                }
                Part::File(range) => {
                    let end = range.end.min(range.start - range.start % size + size);
                    len += end - range.start;
                    piece.push(Part::File(range.start..end));
                    if end < range.end {
                        self.parts.push_front(Part::File(end..range.end));
                        break;
                    }
                }
            }
        }
        (len > 0).then_some(piece)
    }
}

impl OpenFile {
    /// The bytes of a long piece, by chunks of the cache, which are not copied. Once a piece is no part of
    /// one, all are read as a whole: a view plans each read.
    fn read_long(&self, piece: Vec<Part>) -> Result<Vec<Bytes>> {
        let mut rest = FilePieces {
            file: self.clone(),
            parts: piece.into(),
        };
        let mut made = Vec::new();
        while !self.is_copied.load(Ordering::Relaxed)
            && let Some(piece) = rest.next(PIECE)
        {
            let (bytes, is_shared) = self.read(piece)?;
            made.push(bytes);
            self.is_copied.fetch_or(!is_shared, Ordering::Relaxed);
        }
        if !rest.parts.is_empty() {
            made.push(self.read(rest.parts.into())?.0);
        }
        Ok(made)
    }

    /// The bytes of a piece, and whether they are a part of a chunk of the cache.
    fn read(&self, piece: Vec<Part>) -> Result<(Bytes, bool)> {
        let mut out = Output::new().sharing_at_most(PIECE as usize);
        for part in piece {
            match part {
                Part::Own(bytes) => out.append(&bytes),
                Part::File(range) => self.layout.read(range, &mut out)?,
            }
        }
        let is_shared = out.held() > 0;
        Ok((Bytes::from_owner(out), is_shared))
    }
}

/// Answers that are long ones.
static LONG: Permits = Permits::new();

/// Pieces that are made ahead.
static AHEAD: Permits = Permits::new();

/// Called once an answer has ended, with the bytes that were sent, and an error that cut it.
type Ended = Box<dyn FnOnce(u64, Option<&Error>) + Send>;

/// The body of an answer. Dropping it ends the work for it.
pub struct Body {
    pool: Pool,
    line: Arc<Line>,
    gone: Arc<AtomicBool>,
    busy: Busy,
    /// What is made, and not sent yet.
    ready: VecDeque<Bytes>,
    /// One is made in any case.
    making: VecDeque<(oneshot::Receiver<Result<Made>>, Option<Permit>)>,
    /// None if there is none, or while a piece of a sequence is made.
    rest: Option<Rest>,
    left: Option<u64>,
    sent: u64,
    /// Why the next piece could not be made. The answer is cut when the next one is asked for: hyper writes
    /// the head and the pieces before it to the client only after it was told to wait.
    failed: Option<Error>,
    long: Option<Permit>,
    ended: Option<Ended>,
}

/// The next pieces, none at the end, and the rest of their sequence.
type Made = (Vec<Bytes>, Option<Rest>);

impl Body {
    /// The body of an answer to the client who is gone when `gone` is set. It is counted by `busy`. Calls
    /// `ended` when it is dropped.
    pub fn new(
        content: Content,
        pool: Pool,
        gone: Arc<AtomicBool>,
        busy: Busy,
        ended: impl FnOnce(u64, Option<&Error>) + Send + 'static,
    ) -> Body {
        let (first, rest, left) = match content {
            Content::Bytes(bytes) => {
                let len = bytes.len() as u64;
                (Some(bytes), None, Some(len))
            }
            Content::Pieces { first, rest, len } => (first, Some(rest), len),
        };
        Body {
            pool,
            line: Arc::default(),
            gone,
            busy,
            ready: first.into_iter().filter(|first| !first.is_empty()).collect(),
            making: VecDeque::new(),
            rest,
            left,
            sent: 0,
            failed: None,
            long: None,
            ended: Some(Box::new(ended)),
        }
    }

    /// Begins to make the next pieces.
    fn make(&mut self) {
        while self.making.len() < MADE_AT_ONCE {
            let permit = AHEAD.take(MAX_AHEAD);
            if permit.is_none() && !self.making.is_empty() {
                break;
            }
            let Some(rest) = self.rest.take() else { break };
            let made = match rest {
                Rest::File(mut pieces) => {
                    if self.sent >= LONG_AFTER && self.long.is_none() {
                        self.long = LONG.take(MAX_LONG);
                    }
                    let is_long = self.long.is_some();
                    let size = if is_long { LONG_PIECE } else { PIECE };
                    let Some(piece) = pieces.next(size) else { break };
                    let file = pieces.file.clone();
                    self.rest = Some(Rest::File(pieces));
                    self.pool.run_in(&self.line, &self.gone, move || match is_long {
                        true => Ok((file.read_long(piece)?, None)),
                        false => Ok((vec![file.read(piece)?.0], None)),
                    })
                }
                Rest::Sequence(mut pieces) => self.pool.run(&self.gone, move || {
                    let next = pieces.next().transpose()?;
                    let rest = next.is_some().then_some(Rest::Sequence(pieces));
                    Ok((next.into_iter().collect(), rest))
                }),
            };
            self.making.push_back((made, permit));
        }
    }

    fn send(&mut self, piece: Bytes) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let len = piece.len() as u64;
        self.sent += len;
        self.busy.set_making(false);
        if let Some(left) = &mut self.left {
            match left.checked_sub(len) {
                Some(fewer) => *left = fewer,
                None => return self.cut(&Error::internal("an answer has more bytes than its head says")),
            }
        }
        self.make();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Ends the answer before its end, so that nobody takes it for whole.
    fn cut(&mut self, error: &Error) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.rest = None;
        self.making.clear();
        if let Some(ended) = self.ended.take() {
            ended(self.sent, Some(error));
        }
        Poll::Ready(Some(Err(io::Error::other("cut"))))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = &mut *self;
        body.busy.set_making(true);
        if let Some(error) = body.failed.take() {
            return body.cut(&error);
        }
        loop {
            if let Some(piece) = body.ready.pop_front() {
                return body.send(piece);
            }
            body.make();
            let Some((next, _)) = body.making.front_mut() else {
                return match body.left {
                    None | Some(0) => Poll::Ready(None),
                    Some(_) => body.cut(&Error::internal("an answer has fewer bytes than its head says")),
                };
            };
            let made = ready!(Pin::new(next).poll(context));
            body.making.pop_front();
            match made {
                Ok(Ok((pieces, rest))) => {
                    if rest.is_some() {
                        body.rest = rest;
                    }
                    body.ready
                        .extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
                }
                Ok(Err(error)) => {
                    body.failed = Some(error);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(_) => return body.cut(&Error::internal("a thread that makes answers has ended")),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.left {
            Some(left) => left == 0,
            None => self.ready.is_empty() && self.making.is_empty() && self.rest.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        if let Some(ended) = self.ended.take() {
            ended(self.sent, None);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::serve::socket::Connection;
    use hyper::body::Body as _;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    /// Counts how often it is woken.
    #[derive(Default)]
    pub(crate) struct Woken(pub(crate) AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn an_answer_gets_a_length_or_an_error() {
        let content = |pieces: Vec<Result<Bytes>>| Content::of(Box::new(pieces.into_iter())).unwrap();
        let piece = || Ok(Bytes::from_static(b"piece"));
        let whole = content(vec![piece(), piece()]).with_length().unwrap();
        assert!(matches!(whole, Content::Bytes(bytes) if bytes == "piecepiece"));
        let cut = content(vec![piece(), Err(Error::internal("damaged"))]).with_length();
        assert_eq!(cut.err().unwrap().kind(), ErrorKind::Internal);
        let long = vec![0; MOST_COLLECTED];
        let long = content(vec![piece(), Ok(Bytes::from(long))]).with_length();
        assert_eq!(long.err().unwrap().kind(), ErrorKind::LimitExceeded);
    }

    /// The body of an answer with all of a file of these parts.
    fn body_of(parts: Vec<Box<dyn crate::bytes::Bytes>>) -> Body {
        let file = Arc::new(FileLayout::new(0, parts).unwrap());
        let len = file.len();
        let content = Content::of_file(FilePieces::new(file, [Part::File(0..len)]), len).unwrap();
        let (pool, busy) = (Pool::new(2, 2).unwrap(), Connection::new().begin());
        Body::new(content, pool, Arc::default(), busy, |_, _| {})
    }

    /// The pieces of an answer.
    fn pieces(mut body: Body) -> Vec<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        let mut pieces = Vec::new();
        loop {
            match Pin::new(&mut body).poll_frame(&mut context) {
                Poll::Ready(Some(frame)) => pieces.push(frame.unwrap().into_data().unwrap()),
                Poll::Ready(None) => return pieces,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    /// As many chunks as make a long answer, three times.
    const CHUNKS: u64 = 3 * LONG_AFTER / PIECE;

    #[test]
    fn chunks_are_sent_as_they_lie_in_the_cache_however_long_the_answer() {
        let chunks: Vec<_> = (0..CHUNKS)
            .map(|number| Arc::new(vec![number as u8; PIECE as usize]))
            .collect();
        let parts = chunks.iter().map(|chunk| Box::new(chunk.clone()) as _);
        let mut sent = 0;
        for piece in pieces(body_of(parts.collect())) {
            let chunk = &chunks[sent / PIECE as usize];
            assert!(
                std::ptr::eq(&piece[0], &chunk[sent % PIECE as usize]),
                "byte {sent}"
            );
            sent += piece.len();
        }
        assert_eq!(sent as u64, CHUNKS * PIECE);
    }

    #[test]
    fn pieces_of_a_long_answer_without_such_chunks_are_long() {
        let bytes: Vec<u8> = (0..CHUNKS * PIECE).map(|byte| (byte / 1000) as u8).collect();
        let all = pieces(body_of(vec![Box::new(bytes.clone())]));
        assert_eq!(all.concat(), bytes);
        let last = &all[all.len() - 16..];
        assert!(last.iter().all(|piece| piece.len() as u64 == LONG_PIECE));
    }

    #[test]
    fn an_answer_is_cut_after_its_head_could_be_sent() {
        let pieces = [Ok(Bytes::from_static(b"first")), Err(Error::internal("damaged"))];
        let content = Content::of(Box::new(pieces.into_iter())).unwrap();
        let busy = Connection::new().begin();
        let pool = Pool::new(1, 1).unwrap();
        let mut body = Body::new(content, pool.clone(), Arc::default(), busy, |_, _| {});
        let woken: Arc<Woken> = Arc::default();
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut next = || Pin::new(&mut body).poll_frame(&mut context);
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        // The one thread has made the next piece before it does this.
        pool.run(&Arc::default(), || Ok(()))
            .blocking_recv()
            .unwrap()
            .unwrap();
        assert!(next().is_pending());
        assert_eq!(woken.0.load(Ordering::Acquire), 1);
        assert!(matches!(next(), Poll::Ready(Some(Err(_)))));
    }
}
