//! Files whose content is made: JSON and the files of `.tiledbfs`.
//!
//! What is small, or made of what may change at any time, is made at once and held while it is open. What may be large is
//! [`Segments`], of which each is made when it is read.

use super::node::{File, Freshness, Node, OpenFile, Piece, clamp};
use super::segments::{OpenSegments, Segments};
use crate::array::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What a document holds.
pub enum Content {
    /// All of it.
    Text(Vec<u8>),
    /// How to make each part of it, which is kept in the cache.
    Segments(Arc<Engine>, Segments),
}

impl Content {
    /// What `segments` have: as text where there is only one of them.
    pub fn of(engine: &Arc<Engine>, segments: Segments) -> Result<Content> {
        match segments.count() {
            1 => segments.render().map(Content::Text),
            _ => Ok(Content::Segments(engine.clone(), segments)),
        }
    }
}

/// A file with content made by a function. Its length is remembered where the content never changes.
pub struct Document<F> {
    /// Differs between any two.
    number: u64,
    render: F,
    mtime: u64,
    freshness: Freshness,
    known: Mutex<Known>,
}

/// What is remembered of a document.
#[derive(Default)]
struct Known {
    /// Of content that never changes.
    len: Option<u64>,
    measured: Option<Measured>,
    /// What is open at the moment.
    text: Weak<Held>,
}

/// Segments that were measured.
#[derive(Clone)]
struct Measured {
    /// The state that they were in.
    identity: u64,
    ends: Arc<[u64]>,
    /// Names their text in the cache.
    object: u64,
}

impl<F: Fn() -> Result<Vec<u8>> + Send + Sync + 'static> Document<F> {
    /// A file node whose content is what `render` gives.
    pub fn node(mtime: u64, freshness: Freshness, render: F) -> Node {
        large(mtime, freshness, move || render().map(Content::Text))
    }
}

/// A file node whose content is what `render` gives, in segments where it is large.
pub fn large<F>(mtime: u64, freshness: Freshness, render: F) -> Node
where
    F: Fn() -> Result<Content> + Send + Sync + 'static,
{
    static NEXT: AtomicU64 = AtomicU64::new(0);
    Node::File(Arc::new(Document {
        number: NEXT.fetch_add(1, Ordering::Relaxed),
        render,
        mtime,
        freshness,
        known: Mutex::default(),
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text that was made last to tell its length, for whoever opens the document next, which mostly is who asked.
static LAST: Mutex<Option<Last>> = Mutex::new(None);

struct Last {
    document: u64,
    made: Instant,
    text: Vec<u8>,
}

impl Last {
    /// For how long it counts as the present text, where that may change.
    const TRUSTED: Duration = Duration::from_millis(100);

    /// The most bytes that are kept.
    const MOST: usize = 8 << 20;

    fn put(document: u64, text: Vec<u8>) {
        let last = (text.len() <= Self::MOST).then(|| Last {
            document,
            made: Instant::now(),
            text,
        });
        *lock(&LAST) = last;
    }

    fn take(document: u64) -> Option<Vec<u8>> {
        let mut last = lock(&LAST);
        let last = last.take_if(|last| last.document == document)?;
        (last.made.elapsed() < Self::TRUSTED).then_some(last.text)
    }
}

impl<F: Fn() -> Result<Content> + Send + Sync> Document<F> {
    /// Where the segments end. Those of a state that was measured before are not measured again.
    fn measure(&self, segments: &Segments) -> Result<Measured> {
        let identity = segments.identity();
        if let Some(measured) = &lock(&self.known).measured
            && measured.identity == identity
        {
            return Ok(measured.clone());
        }
        let measured = Measured {
            identity,
            ends: segments.measure()?,
            object: OpenSegments::object(),
        };
        let mut known = lock(&self.known);
        if self.freshness == Freshness::Immutable {
            known.len = Some(measured.ends.last().copied().unwrap_or(0));
        }
        known.measured = Some(measured.clone());
        Ok(measured)
    }

    fn hold(&self, text: Vec<u8>) -> Result<Arc<Held>> {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let version = hasher.finish();
        let mut known = lock(&self.known);
        // All who have one state open share it.
        if let Some(held) = known.text.upgrade()
            && (held.version, held.len) == (version, text.len())
        {
            return Ok(held);
        }
        let held = Arc::new(Held::new(text, version)?);
        known.text = Arc::downgrade(&held);
        Ok(held)
    }
}

impl<F: Fn() -> Result<Content> + Send + Sync> File for Document<F> {
    fn len(&self) -> Result<u64> {
        if let Some(len) = lock(&self.known).len {
            return Ok(len);
        }
        match (self.render)()? {
            Content::Text(text) => {
                let len = text.len() as u64;
                if self.freshness == Freshness::Immutable {
                    lock(&self.known).len = Some(len);
                }
                if self.freshness != Freshness::Live {
                    Last::put(self.number, text);
                }
                Ok(len)
            }
            Content::Segments(_, segments) => {
                let ends = self.measure(&segments)?.ends;
                Ok(ends.last().copied().unwrap_or(0))
            }
        }
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }

    fn open(&self) -> Result<Arc<dyn OpenFile>> {
        let content = match Last::take(self.number) {
            Some(text) => Content::Text(text),
            None => (self.render)()?,
        };
        match content {
            Content::Text(text) => Ok(Arc::new(OpenText(self.hold(text)?))),
            Content::Segments(engine, segments) => {
                let measured = self.measure(&segments)?;
                Ok(Arc::new(OpenSegments::new(
                    engine,
                    segments,
                    measured.ends,
                    measured.object,
                )))
            }
        }
    }
}

/// Text that is held, compressed where there is much of it: nothing else can tell what it was when it was opened.
struct Held {
    version: u64,
    len: usize,
    text: Text,
}

enum Text {
    Plain(Arc<Vec<u8>>),
    /// Blocks of [`Held::BLOCK`] bytes, as LZ4 each.
    Packed(Vec<Vec<u8>>),
}

/// Bytes that the texts which are held take up, but for short ones.
static HELD: AtomicU64 = AtomicU64::new(0);

impl Held {
    /// The most bytes of a text that is short.
    const SHORT: usize = 64 << 10;
    const BLOCK: usize = 64 << 10;

    /// What [`HELD`] may come to with a text as it is.
    const PLAIN: u64 = 16 << 20;

    /// The most that [`HELD`] may come to.
    const MOST: u64 = 32 << 20;

    fn new(mut text: Vec<u8>, version: u64) -> Result<Held> {
        let len = text.len();
        text.shrink_to_fit();
        let plain = |text| Held {
            version,
            len,
            text: Text::Plain(Arc::new(text)),
        };
        if len <= Self::SHORT {
            return Ok(plain(text));
        }
        let all = HELD.fetch_add(len as u64, Ordering::Relaxed);
        if all.saturating_add(len as u64) <= Self::PLAIN {
            return Ok(plain(text));
        }
        HELD.fetch_sub(len as u64, Ordering::Relaxed);
        Self::pack(&text, version)
    }

    fn pack(text: &[u8], version: u64) -> Result<Held> {
        let len = text.len();
        let blocks: Vec<Vec<u8>> = text
            .chunks(Self::BLOCK)
            .map(|block| {
                let mut packed = lz4_flex::block::compress(block);
                packed.shrink_to_fit();
                packed
            })
            .collect();
        let held = Held {
            version,
            len,
            text: Text::Packed(blocks),
        };
        let all = HELD.fetch_add(held.memory(), Ordering::Relaxed);
        if all.saturating_add(held.memory()) > Self::MOST {
            return Err(Error::limit(format!(
                "{len} bytes of text besides what is open already, which come to more than {} in memory",
                Self::MOST
            )));
        }
        Ok(held)
    }

    /// Bytes that it takes up, as far as they count.
    fn memory(&self) -> u64 {
        match &self.text {
            Text::Plain(text) if text.len() <= Self::SHORT => 0,
            Text::Plain(text) => text.len() as u64,
            Text::Packed(blocks) => blocks.iter().map(|block| block.len() as u64).sum(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(self.memory(), Ordering::Relaxed);
    }
}

/// A text, open.
struct OpenText(Arc<Held>);

impl OpenFile for OpenText {
    fn len(&self) -> u64 {
        self.0.len as u64
    }

    fn version(&self) -> u64 {
        self.0.version
    }

    fn read<'s>(&self, offset: u64, size: usize, scratch: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let range = clamp(self.len(), offset, size);
        let range = range.start as usize..range.end as usize;
        let blocks = match &self.0.text {
            Text::Plain(text) => return Ok(Piece::Shared(text.clone(), range)),
            Text::Packed(blocks) => blocks,
        };
        let first = range.start / Held::BLOCK;
        let wanted = blocks
            .get(first..range.end.div_ceil(Held::BLOCK))
            .unwrap_or_default();
        scratch.clear();
        for (i, block) in wanted.iter().enumerate() {
            let start = first.saturating_add(i).saturating_mul(Held::BLOCK);
            let length = self.0.len.saturating_sub(start).min(Held::BLOCK);
            let at = scratch.len();
            scratch.resize(at.saturating_add(length), 0);
            let room = scratch.get_mut(at..).unwrap_or_default();
            lz4_flex::block::decompress_into(block, room)
                .map_err(|e| Error::new(ErrorKind::Internal, format!("text that was held: {e}")))?;
        }
        let skipped = range.start.saturating_sub(first.saturating_mul(Held::BLOCK));
        let piece = scratch.get(skipped..skipped.saturating_add(range.len()));
        Ok(Piece::Scratch(piece.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_held_reads_as_it_was() {
        let text = |len| -> Vec<u8> { (0..len).map(|i| ((i * i) >> 5) as u8).collect() };
        let held = [0, 1, Held::SHORT, Held::SHORT + 1, 3 * Held::BLOCK, 200_001]
            .into_iter()
            .flat_map(|len| [Held::new(text(len), 7), Held::pack(&text(len), 7)]);
        for held in held.map(Result::unwrap) {
            let (len, text) = (held.len, text(held.len));
            let open = OpenText(Arc::new(held));
            assert_eq!((open.len(), open.version()), (len as u64, 7));
            let mut scratch = Vec::new();
            for offset in [
                0,
                1,
                Held::BLOCK - 1,
                Held::BLOCK,
                Held::BLOCK + 1,
                len.saturating_sub(1),
                len,
                len + 5,
            ] {
                for size in [0, 1, 2, Held::BLOCK, Held::BLOCK + 1, 1 << 20] {
                    let expected = text.get(offset.min(len)..len.min(offset + size)).unwrap();
                    assert!(*open.read(offset as u64, size, &mut scratch).unwrap() == *expected);
                }
            }
        }
    }

    #[test]
    fn who_opens_one_state_shares_it() {
        let text = || -> Vec<u8> {
            (0..500_000u32)
                .flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes())
                .collect()
        };
        let Node::File(file) = Document::node(0, Freshness::Listing, move || Ok(text())) else {
            unreachable!()
        };
        // Noise, which does not get shorter: of 60 copies there would be too much.
        let all: Vec<_> = (0..60).map(|_| file.open().unwrap()).collect();
        assert!(all.iter().all(|open| open.version() == all[0].version()));
    }
}
