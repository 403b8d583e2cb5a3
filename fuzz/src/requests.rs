//! Heads of requests, and the paths and ranges in them.

use tiledbfs::internals::serve::frames::{Frames, Passed};
use tiledbfs::internals::serve::framing::{Body, Framing};
use tiledbfs::internals::serve::path::{UrlPath, encode};
use tiledbfs::internals::serve::range::Ranges;

/// The bytes that arrive at a time u8, and what a connection receives. Heads and bodies are told apart as
/// they are when everything arrives at once, none is longer than is allowed, and no byte is passed over. The
/// same bytes as frames of HTTP/2 end where they end, however they arrive.
pub fn framing(data: &[u8]) {
    let Some((size, received)) = data.split_first() else {
        return;
    };
    let (pieces, whole) = (
        requests(received, usize::from(*size).max(1)),
        requests(received, received.len().max(1)),
    );
    assert_eq!(pieces, whole);
    let pieces = frames(received, usize::from(*size).max(1));
    assert_eq!(pieces, frames(received, received.len().max(1)));
}

/// What passes in what a connection receives, and whether it ends between frames.
fn frames(received: &[u8], size: usize) -> (Passed, bool) {
    let (mut frames, mut all) = (Frames::of_client(), Passed::default());
    for piece in received.chunks(size) {
        let passed = frames.pass(piece);
        all.ended |= passed.ended;
        all.answer |= passed.answer;
    }
    (all, frames.is_between())
}

/// Where each request ends in what a connection receives, and what its head says.
fn requests(received: &[u8], size: usize) -> (Vec<(usize, Body)>, usize) {
    let (mut framing, mut heads, mut at) = (Framing::default(), Vec::new(), 0);
    for piece in received.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (taken, body) = framing.take(rest);
            at += taken;
            heads.extend(body.map(|body| (at, body)));
            rest = &rest[taken..];
            if framing.cut() {
                return (heads, at);
            }
            assert!(taken > 0);
        }
    }
    (heads, at)
}

/// A path as it is sent. It has names that a directory may have, and is the same when it is written and
/// parsed again.
pub fn url_path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(path) = UrlPath::parse(text) else { return };
    for name in &path.names {
        let bytes = name.as_encoded_bytes();
        assert!(!bytes.is_empty() && !bytes.contains(&0) && bytes != b"." && bytes != b"..");
        assert!(
            encode(name)
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        );
    }
    assert_eq!(UrlPath::parse(&path.encode(path.slash)).as_ref(), Ok(&path));
}

/// The length of a file u32, and the header Range. What is answered lies in the file, ascending with gaps.
pub fn range(data: &[u8]) {
    let Some((len, header)) = data.split_first_chunk() else {
        return;
    };
    let (len, Ok(header)) = (u64::from(u32::from_le_bytes(*len)), std::str::from_utf8(header)) else {
        return;
    };
    if let Ranges::Parts(parts) = Ranges::parse(header, len) {
        assert!((1..=64).contains(&parts.len()));
        assert!(parts.iter().all(|part| part.start < part.end && part.end <= len));
        assert!(parts.windows(2).all(|two| two[0].end < two[1].start));
    }
}
