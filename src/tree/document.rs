//! Files whose whole content is made at once: JSON and the files of `.tiledbfs`.

use super::node::{File, Freshness, Node, OpenFile, Piece, clamp};
use crate::error::Result;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// A file with content made by a function. Its length is remembered where the content never changes.
pub struct Document<F> {
    render: F,
    mtime: u64,
    freshness: Freshness,
    len: OnceLock<u64>,
}

impl<F: Fn() -> Result<Vec<u8>> + Send + Sync + 'static> Document<F> {
    /// A file node whose content is what `render` gives.
    pub fn node(mtime: u64, freshness: Freshness, render: F) -> Node {
        Node::File(Arc::new(Document {
            render,
            mtime,
            freshness,
            len: OnceLock::new(),
        }))
    }
}

impl<F: Fn() -> Result<Vec<u8>> + Send + Sync> File for Document<F> {
    fn len(&self) -> Result<u64> {
        if let Some(len) = self.len.get() {
            return Ok(*len);
        }
        let len = (self.render)()?.len() as u64;
        if self.freshness == Freshness::Immutable {
            self.len.get_or_init(|| len);
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
        let content = (self.render)()?;
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
