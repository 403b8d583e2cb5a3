//! Files whose whole content is made at once: JSON and the files of `.tiledbfs`.

use super::node::{File, Freshness, Node, OpenFile, Piece, clamp};
use crate::error::Result;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A file with content made by a function. Its length is remembered where the content never changes.
pub struct Document<F> {
    /// Differs between any two.
    number: u64,
    render: F,
    mtime: u64,
    freshness: Freshness,
    len: OnceLock<u64>,
}

impl<F: Fn() -> Result<Vec<u8>> + Send + Sync + 'static> Document<F> {
    /// A file node whose content is what `render` gives.
    pub fn node(mtime: u64, freshness: Freshness, render: F) -> Node {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Node::File(Arc::new(Document {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            render,
            mtime,
            freshness,
            len: OnceLock::new(),
        }))
    }
}

/// The content that was made last to tell its length, for whoever opens the document next, which mostly is who asked.
static LAST: Mutex<Option<Last>> = Mutex::new(None);

struct Last {
    document: u64,
    made: Instant,
    content: Vec<u8>,
}

impl Last {
    /// For how long it counts as the present content, where that may change.
    const TRUSTED: Duration = Duration::from_millis(100);

    /// The most bytes that are kept.
    const MOST: usize = 8 << 20;

    fn put(document: u64, content: Vec<u8>) {
        let last = (content.len() <= Self::MOST).then(|| Last {
            document,
            made: Instant::now(),
            content,
        });
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    fn take(document: u64) -> Option<Vec<u8>> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.take_if(|last| last.document == document)?;
        (last.made.elapsed() < Self::TRUSTED).then_some(last.content)
    }
}

impl<F: Fn() -> Result<Vec<u8>> + Send + Sync> File for Document<F> {
    fn len(&self) -> Result<u64> {
        if let Some(len) = self.len.get() {
            return Ok(*len);
        }
        let content = (self.render)()?;
        let len = content.len() as u64;
        if self.freshness == Freshness::Immutable {
            self.len.get_or_init(|| len);
        }
        if self.freshness != Freshness::Live {
            Last::put(self.number, content);
        }
        Ok(len)
    }

    fn mtime(&self) -> u64 {
        self.mtime
    }

    fn freshness(&self) -> Freshness {
        self.freshness
    }

    fn open(&self) -> Result<Arc<dyn OpenFile>> {
        let content = match Last::take(self.number) {
            Some(content) => content,
            None => (self.render)()?,
        };
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Ok(Arc::new(OpenDocument {
            content: Arc::new(content),
            version: hasher.finish(),
        }))
    }
}

struct OpenDocument {
    content: Arc<Vec<u8>>,
    version: u64,
}

impl OpenFile for OpenDocument {
    fn len(&self) -> u64 {
        self.content.len() as u64
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn read<'s>(&self, offset: u64, size: usize, _: &'s mut Vec<u8>) -> Result<Piece<'s>> {
        let range = clamp(self.len(), offset, size);
        Ok(Piece::Shared(
            self.content.clone(),
            range.start as usize..range.end as usize,
        ))
    }
}
