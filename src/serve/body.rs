//! Bodies of answers: bytes, or pieces of which the next is made while one is sent.

use super::Pieces;
use super::pool::Pool;
use super::socket::Busy;
use crate::bytes::Output;
use crate::error::{Error, Result};
use crate::layout::FileLayout;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// Bytes of a piece of a file. One is sent while the next is made: together they are what an answer may take.
pub const PIECE: u64 = 128 << 10;

/// The first piece is smaller, because the head waits for it.
const FIRST_PIECE: u64 = 32 << 10;

/// What is sent after the head.
pub enum Content {
    /// All of it.
    Bytes(Bytes),
    /// Pieces, the first of which is there, with the length of all if it is known.
    Pieces {
        first: Option<Bytes>,
        rest: Pieces,
        len: Option<u64>,
    },
}

impl Content {
    /// The content of `pieces`, of which it makes the first.
    pub fn of(mut pieces: Pieces, len: Option<u64>) -> Result<Content> {
        Ok(Content::Pieces {
            first: pieces.next().transpose()?,
            rest: pieces,
            len,
        })
    }
}

/// Parts of an open file, with bytes of our own between them.
pub struct FilePieces {
    open: Arc<FileLayout>,
    parts: VecDeque<Part>,
    size: u64,
}

/// A part of an answer.
pub enum Part {
    /// Bytes of our own.
    Own(Bytes),
    /// A range of the file.
    File(Range<u64>),
}

impl FilePieces {
    /// The pieces of `parts` of `open`.
    pub fn new(open: Arc<FileLayout>, parts: impl IntoIterator<Item = Part>) -> FilePieces {
        FilePieces {
            open,
            parts: parts.into_iter().collect(),
            size: FIRST_PIECE,
        }
    }
}

impl Iterator for FilePieces {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        let size = std::mem::replace(&mut self.size, PIECE);
        let mut out = Output::new();
        while (out.len() as u64) < size
            && let Some(part) = self.parts.pop_front()
        {
            match part {
                Part::Own(bytes) => out.append(&bytes),
                Part::File(range) => {
                    let end = range.end.min(range.start + size - out.len() as u64);
                    if let Err(error) = self.open.read(range.start..end, &mut out) {
                        return Some(Err(error));
                    }
                    if end < range.end {
                        self.parts.push_front(Part::File(end..range.end));
                    }
                }
            }
        }
        (!out.is_empty()).then(|| Ok(Bytes::from(Vec::from(out))))
    }
}

/// Called once an answer has ended, with the bytes that were sent, and an error that cut it.
type Ended = Box<dyn FnOnce(u64, Option<&Error>) + Send>;

/// The body of an answer. Dropping it ends the work for it.
pub struct Body {
    pool: Pool,
    gone: Arc<AtomicBool>,
    busy: Busy,
    first: Option<Bytes>,
    rest: Rest,
    left: Option<u64>,
    sent: u64,
    ended: Option<Ended>,
}

enum Rest {
    Nothing,
    Waiting(Pieces),
    Making(oneshot::Receiver<Result<(Option<Bytes>, Pieces)>>),
}

impl Body {
    /// The body of an answer to the client who is gone when `gone` is set. It is counted by `busy`. Calls `ended` when it is dropped.
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
                (Some(bytes), Rest::Nothing, Some(len))
            }
            Content::Pieces { first, rest, len } => (first, Rest::Waiting(rest), len),
        };
        Body {
            pool,
            gone,
            busy,
            first: first.filter(|first| !first.is_empty()),
            rest,
            left,
            sent: 0,
            ended: Some(Box::new(ended)),
        }
    }

    /// Begins to make the next piece, unless there is none to come.
    fn make_next(&mut self, mut pieces: Pieces) {
        self.rest = match self.left {
            Some(0) => Rest::Nothing,
            _ => Rest::Making(self.pool.run(&self.gone, move || {
                let next = pieces.next().transpose()?;
                Ok((next, pieces))
            })),
        };
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
        if let Rest::Waiting(pieces) = std::mem::replace(&mut self.rest, Rest::Nothing) {
            self.make_next(pieces);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Ends the answer before its end, so that nobody takes it for whole.
    fn cut(&mut self, error: &Error) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.rest = Rest::Nothing;
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
        loop {
            if let Some(first) = body.first.take() {
                return body.send(first);
            }
            match std::mem::replace(&mut body.rest, Rest::Nothing) {
                Rest::Nothing => {
                    return match body.left {
                        None | Some(0) => Poll::Ready(None),
                        Some(_) => body.cut(&Error::internal("an answer has fewer bytes than its head says")),
                    };
                }
                Rest::Waiting(pieces) => body.make_next(pieces),
                Rest::Making(mut receiver) => {
                    let Poll::Ready(made) = Pin::new(&mut receiver).poll(context) else {
                        body.rest = Rest::Making(receiver);
                        return Poll::Pending;
                    };
                    match made {
                        Ok(Ok((Some(piece), pieces))) if piece.is_empty() => {
                            body.rest = Rest::Waiting(pieces)
                        }
                        Ok(Ok((Some(piece), pieces))) => {
                            body.rest = Rest::Waiting(pieces);
                            return body.send(piece);
                        }
                        // The length is looked at above.
                        Ok(Ok((None, _))) => {}
                        Ok(Err(error)) => return body.cut(&error),
                        Err(_) => return body.cut(&Error::internal("a thread that makes answers has ended")),
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.left {
            Some(left) => left == 0,
            None => self.first.is_none() && matches!(self.rest, Rest::Nothing),
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
