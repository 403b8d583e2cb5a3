//! Files with generated content: JSON and the files of `.tiledbfs`.
//!
//! Content that is small, or derived from mutable data, is rendered at once and kept while the file is open.
//! Large content is [`Segments`], rendered when read. The engine memoises lengths by document and state.

use super::node::{File, Freshness, Node, Stat};
use super::permissions::Origin;
use crate::bytes::Bytes;
use crate::engine::Engine;
use crate::error::Result;
use crate::layout::FileLayout;
use crate::layout::segments::{Rendered, Segments};
use crate::runtime::cache::{CacheKey, Lengths};
use crate::runtime::hash;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The content of a document.
pub struct DocumentContent {
    form: Form,
    errors: Arc<AtomicBool>,
}

enum Form {
    /// The complete text.
    Text(Arc<Vec<u8>>),
    /// Rendered by segment, through the cache.
    Segments(Segments),
}

impl DocumentContent {
    /// Content with this text.
    pub fn text(text: Vec<u8>) -> DocumentContent {
        DocumentContent {
            form: Form::Text(Arc::new(text)),
            errors: Arc::default(),
        }
    }

    /// Content of `segments`; a single segment is rendered at once.
    pub fn of(segments: Segments) -> Result<DocumentContent> {
        match segments.count() {
            1 => segments.render().map(DocumentContent::text),
            _ => Ok(DocumentContent {
                form: Form::Segments(segments),
                errors: Arc::default(),
            }),
        }
    }

    /// Content that may show errors, which set `errors` while it is rendered. Such content is not memoised,
    /// because errors may disappear without a new state.
    #[must_use]
    pub fn with_errors(self, errors: Arc<AtomicBool>) -> DocumentContent {
        DocumentContent { errors, ..self }
    }
}

/// The attributes of a document.
pub struct Document {
    /// Keeps its length and text.
    pub engine: Arc<Engine>,
    /// The directory or file of the source that it describes.
    pub of: PathBuf,
    /// Its file name.
    pub name: &'static str,
    /// Modification time in milliseconds since the Unix epoch.
    pub mtime: u64,
    /// How long length and content are valid.
    pub freshness: Freshness,
    /// Its origin, which decides who may see it.
    pub origin: Origin,
}

impl Document {
    /// A file node with the content that `render` returns. `state` cheaply identifies the state of the
    /// underlying data: equal numbers mean equal content. If it returns None, nothing is memoised.
    pub fn node<S, R>(self, state: S, render: R) -> Node
    where
        S: Fn() -> Option<u64> + Send + Sync + 'static,
        R: Fn() -> Result<DocumentContent> + Send + Sync + 'static,
    {
        Node::File(Arc::new(DocumentFile {
            document: self,
            state: Box::new(state),
            render: Box::new(render),
        }))
    }
}

/// The state of content that is derived from one immutable file; None if it cannot be accessed.
pub fn state_of_file(engine: &Engine, path: &Path) -> Option<u64> {
    let metadata = engine.storage.metadata(path).ok()?;
    Some(hash(&metadata.version))
}

/// The file of a [`Document`].
struct DocumentFile {
    document: Document,
    state: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    render: Box<dyn Fn() -> Result<DocumentContent> + Send + Sync>,
}

impl DocumentFile {
    /// The cache key of an item `what` of the document in a state.
    fn number(&self, what: &str, state: u64) -> u64 {
        let document = &self.document;
        document
            .engine
            .number(&(&document.of, document.name, what, state))
    }

    /// The current state, and the lengths that are memoised for it.
    fn known(&self) -> (Option<u64>, Option<Arc<Lengths>>) {
        let state = (self.state)();
        let number = state.map(|state| self.number("lengths", state));
        let cache = &self.document.engine.cache;
        (state, number.and_then(|number| cache.find(CacheKey::of(number))))
    }

    /// Renders the content, which was in `state` a moment ago, and measures it unless `known` fits. Memoises
    /// the lengths, and keeps text for the open that usually follows.
    fn make(&self, state: Option<u64>, known: Option<Arc<Lengths>>) -> Result<(Form, Arc<Lengths>)> {
        let engine = &self.document.engine;
        let DocumentContent { form, errors } = (self.render)()?;
        let lengths = match &form {
            Form::Text(text) => Arc::new(Lengths {
                ends: vec![text.len()],
                version: hash(text),
            }),
            Form::Segments(segments) => {
                // Those of another state may have the same number of segments.
                let same = state.is_some() && (self.state)() == state;
                let known = known.filter(|known| same && known.ends.len() == segments.count());
                known.map_or_else(|| segments.measure().map(Arc::new), Ok)?
            }
        };
        // If the state has changed meanwhile, that of the content is unknown.
        if let Some(state) = state
            && !errors.load(Ordering::Relaxed)
            && (self.state)() == Some(state)
        {
            let key = CacheKey::of(self.number("lengths", state));
            engine.cache.put(key, lengths.clone());
        }
        if let Form::Text(text) = &form
            && !self.is_stateless()
        {
            let key = CacheKey::of(self.number("text", lengths.version));
            engine.cache.put(key, text.clone());
        }
        Ok((form, lengths))
    }

    /// Whether it changes continuously and has no states.
    fn is_stateless(&self) -> bool {
        self.document.freshness == Freshness::Live && (self.state)().is_none()
    }

    /// The text of the state `version`, if it is still in the cache.
    fn text(&self, version: u64) -> Option<Arc<Vec<u8>>> {
        let key = CacheKey::of(self.number("text", version));
        self.document.engine.cache.find(key)
    }

    fn opened(&self, form: Form, lengths: Arc<Lengths>) -> Result<Arc<FileLayout>> {
        let (engine, version) = (&self.document.engine, lengths.version);
        let part: Box<dyn Bytes> = match form {
            Form::Text(text) => Box::new(engine.pin(self.number("text", version), text)?),
            Form::Segments(segments) => {
                let number = self.number("segments", version);
                Box::new(Rendered::new(engine.clone(), segments, lengths, number))
            }
        };
        Ok(Arc::new(FileLayout::new(version, vec![part])?))
    }
}

impl File for DocumentFile {
    fn stat(&self) -> Result<Stat> {
        let lengths = match self.known() {
            (_, Some(known)) => known,
            (state, None) => self.make(state, None)?.1,
        };
        Ok(Stat {
            len: lengths.total(),
            version: if self.is_stateless() { 0 } else { lengths.version },
        })
    }

    fn mtime(&self) -> u64 {
        self.document.mtime
    }

    fn freshness(&self) -> Freshness {
        self.document.freshness
    }

    fn origin(&self) -> Origin {
        self.document.origin.clone()
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let (state, known) = self.known();
        if let Some(lengths) = &known
            && let Some(text) = self.text(lengths.version)
        {
            return self.opened(Form::Text(text), lengths.clone());
        }
        let (form, lengths) = self.make(state, known)?;
        self.opened(form, lengths)
    }

    fn open_version(&self, version: u64) -> Result<Arc<FileLayout>> {
        match self.text(version) {
            Some(text) => {
                let ends = vec![text.len()];
                self.opened(Form::Text(text), Arc::new(Lengths { ends, version }))
            }
            None => self.open(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Output;
    use crate::layout::segments::{Cutter, Parts};
    use crate::storage::MemoryStorage;
    use std::ops::Range;
    use std::sync::atomic::AtomicU64;

    /// Parts of 100,000 equal bytes each.
    struct Equal(u8);

    impl Parts for Equal {
        fn write(&self, _: usize, _: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
            out.resize(out.len() + 100_000, self.0);
            Ok(())
        }
    }

    #[test]
    fn a_document_that_changes_while_it_is_opened_is_of_one_state() {
        let storage = Arc::new(MemoryStorage::default());
        let engine = Arc::new(Engine::new(storage, 64 << 20, Vec::new(), Arc::default()));
        let (now, next) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
        let document = Document {
            engine,
            of: PathBuf::new(),
            name: "metadata.json",
            mtime: 0,
            freshness: Freshness::Listing,
            origin: Origin::Public,
        };
        let (state, rendered) = (now.clone(), next.clone());
        let node = document.node(
            move || Some(state.load(Ordering::Relaxed)),
            move || {
                let state = rendered.load(Ordering::Relaxed);
                now.store(state, Ordering::Relaxed);
                let mut cutter = Cutter::new();
                for _ in 0..6 {
                    cutter.part();
                    cutter.items(1, 100_000)?;
                }
                DocumentContent::of(cutter.finish(Equal(state as u8)))
            },
        );
        let Node::File(file) = &node else { unreachable!() };
        // Only the first segments are in the cache.
        file.open().unwrap().read(0..10, &mut Output::new()).unwrap();
        next.store(2, Ordering::Relaxed);
        assert!(node.read_all().unwrap() == vec![2; 600_000]);
    }
}
