//! An array at a time, or a part of it, as the nodes of its view share it.

use super::array_at::ArrayAt;
use super::context::{Context, LastView};
use super::ranges;
use crate::describe::fragments::FragmentSummary;
use crate::describe::metadata::Pairs;
use crate::error::{Error, ErrorKind, Result};
use crate::format::schema::Schema;
use crate::fragment::Fragment;
use crate::fragment::column::Column;
use crate::fragment::field::Role;
use crate::fragment::prefetch::TailPrefetch;
use crate::query::labels::labelled;
use crate::query::selection::Selection;
use crate::query::{DimRange, View};
use crate::runtime::{lock, parallel, shared};
use std::ffi::OsStr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// An array at a time, or a part of it.
#[derive(Clone)]
pub struct ViewSource {
    /// The array and the range of time.
    pub array_at: ArrayAt,
    /// The part of the domain; None for the whole domain.
    pub part: Option<Arc<Part>>,
    /// What all nodes share.
    pub context: Arc<Context>,
    /// The last view, kept in use by the nodes that show it.
    pub last: Arc<LastView>,
}

impl ViewSource {
    /// The current view. Its cells cannot be read if a committed fragment is missing.
    pub fn view(&self) -> Result<Arc<View>> {
        let last = lock(&self.last).clone();
        if let Some(view) = last.filter(|view| view.is_current()) {
            self.context.keep_view(&self.last, &view);
            return Ok(view);
        }
        let found = self.select();
        let gone = |error: &Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Missing);
        let error = found
            .as_ref()
            .map_or_else(|error| Some(error.clone()), |found| found.check_complete().err());
        let found = match error {
            None => found,
            Some(error) => {
                // The listing may be out of date, and name files that are gone.
                self.array_at.array.look_again();
                if gone(&error) { self.select() } else { found }
            }
        };
        let selection = self.placed(found)?;
        let array = selection.array();
        let key = (array.path.clone(), array.engine.number(&selection.state()));
        let view = shared(&self.context.views, key, || View::of(selection));
        self.context.keep_view(&self.last, &view);
        Ok(view)
    }

    /// What is shown now.
    fn select(&self) -> Result<Selection> {
        let whole = Selection::new(self.array_at.array.clone(), self.array_at.when.clone())?;
        match &self.part {
            None => Ok(whole),
            Some(part) => part.of(whole),
        }
    }

    /// The part called `name`. `NotFound`, with the reason, if there is none now.
    pub fn part(&self, name: &OsStr) -> Result<ViewSource> {
        let part = ViewSource {
            part: Some(Arc::new(Part::new(name))),
            last: Arc::default(),
            ..self.clone()
        };
        part.select()?;
        Ok(part)
    }

    /// Adds the array to an error without a file.
    pub fn placed<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| place(error, &self.display()))
    }

    /// The array's directory, for errors without a file.
    pub fn display(&self) -> String {
        let array = &self.array_at.array;
        array.engine.storage.display(&array.path)
    }

    /// What its directory tells of it.
    pub fn viewed(&self) -> Viewed {
        Viewed {
            at: self.array_at.is_in_at(),
            data: true,
            part: self.part.is_some(),
            has_times: self.array_at.array.engine.at().is_none(),
            source: self.clone(),
        }
    }

    /// Modification time in milliseconds since the Unix epoch: the newest of the times at which the
    /// array and its labels [changed](crate::catalog::snapshot::Snapshot::changed).
    pub fn mtime(&self) -> u64 {
        let ArrayAt { array, when } = &self.array_at;
        let Ok(snapshot) = self.array_at.snapshot() else {
            return 0;
        };
        let schema = array.schema(&snapshot).ok();
        let labels = schema.iter().flat_map(|schema| &schema.dimension_labels);
        let labels = labels.filter_map(|label| array.label(label)?.snapshot_at(when).ok());
        let changes = labels.map(|labels| labels.changed());
        changes.fold(snapshot.changed(), u64::max)
    }
}

/// A directory in `subarray/`. Its name may stand for other coordinates when labels or the domain change.
pub struct Part {
    name: Vec<u8>,
    /// The ranges of the name, of the last state that was asked for.
    known: Mutex<Option<(u64, Option<Vec<DimRange>>)>>,
}

impl Part {
    fn new(name: &OsStr) -> Part {
        Part {
            name: name.as_encoded_bytes().to_vec(),
            known: Mutex::default(),
        }
    }

    /// The part of `whole` that the name stands for in that state. `NotFound`, with the reason, if there is
    /// none.
    fn of(&self, whole: Selection) -> Result<Selection> {
        let state = whole.state();
        let known = lock(&self.known).clone();
        let ranges = match known.filter(|(known, _)| *known == state) {
            Some((_, ranges)) => ranges,
            None => {
                let labelled = |label: &_, wanted: &_| labelled(&whole, label, wanted);
                let ranges = ranges::parse(&self.name, whole.schema(), labelled)?;
                *lock(&self.known) = Some((state, ranges.clone()));
                ranges
            }
        };
        Ok(whole.part(ranges, None))
    }
}

/// The view that a directory shows, and where the directory lies in that of the array:
/// `[at/TIME/][data/[subarray/PART/]]`.
pub struct Viewed {
    pub(super) source: ViewSource,
    /// Whether it lies in `at/`.
    pub at: bool,
    /// Whether it is `data/` or a part of it, not the directory of the array.
    pub data: bool,
    /// Whether it lies in `subarray/`.
    pub part: bool,
    /// Whether the array has an `at/`.
    pub has_times: bool,
}

impl Viewed {
    /// The current view.
    pub fn view(&self) -> Result<Arc<View>> {
        self.source.view()
    }

    /// The schema.
    pub fn schema(&self) -> Result<Arc<Schema>> {
        self.source.array_at.twice(ArrayAt::schema)
    }

    /// The metadata.
    pub fn metadata(&self) -> Result<Pairs> {
        self.source.array_at.twice(ArrayAt::metadata)
    }

    /// The fragments, whether a reader sees them or not, oldest first.
    pub fn fragments(&self) -> Result<Vec<FragmentSummary>> {
        self.source.array_at.twice(|array_at| {
            let snapshot = array_at.snapshot()?;
            let entries = &snapshot.listing.fragments;
            let all = entries.iter().map(|entry| &entry.fragment);
            let tails = TailPrefetch::new(&array_at.array.engine, all, Fragment::has_outline);
            parallel::each(entries.len() as u64, |index| {
                let index = index as usize;
                tails.reach(index);
                let hidden = snapshot.hidden[index].as_ref();
                FragmentSummary::of(&entries[index], hidden, &AtomicBool::default())
            })
        })
    }

    /// Bytes of the values, offsets and validity of the fragment called `name` without filters. Zipped
    /// coordinates count once.
    pub fn unfiltered(&self, name: &str) -> Result<u64> {
        let listing = self.source.array_at.array.listing()?;
        let gone = || Error::not_found("the fragment is gone");
        let entry = listing.fragment(name).ok_or_else(gone)?;
        let info = entry.fragment.open()?;
        let mut sum = 0u64;
        for field in info.stored().iter().map(|index| &info.fields[*index]) {
            if field.role == Role::Coordinates {
                continue;
            }
            let column = Column::new(info.clone(), field.clone());
            for content in column.contents() {
                sum = sum.saturating_add(column.len(content, None)?);
            }
        }
        Ok(sum)
    }

    /// How many levels the directory lies below that of the array.
    pub fn levels(&self) -> usize {
        2 * usize::from(self.at) + usize::from(self.data) + 2 * usize::from(self.part)
    }

    /// The last `most` times at which something was written, as names in `at/`, newest first.
    pub fn times(&self, most: usize) -> Vec<String> {
        let listing = self.source.array_at.array.listing();
        let instants = listing.map_or_else(|_| Vec::new(), |listing| listing.instants());
        let last = instants.into_iter().rev().take(most);
        last.map(crate::calendar::timestamp).collect()
    }
}

/// What all nodes of a view have in common: the methods of [`Directory`](super::node::Directory) and
/// [`File`](super::node::File) that depend only on the [`ViewSource`].
macro_rules! of_view {
    ($self:ident => $source:expr) => {
        fn mtime(&$self) -> u64 {
            $source.mtime()
        }

        fn origin(&$self) -> $crate::tree::permissions::Origin {
            $crate::tree::permissions::Origin::Cells($source.array_at.clone())
        }
    };
}
pub(super) use of_view;

/// Adds the array to an error without a file.
pub fn place(error: Error, array: &str) -> Error {
    error.at(0).in_file(array)
}

#[cfg(test)]
mod tests {
    use crate::query::testing::BUILT;
    use crate::tree::{Node, Tree, TreeOptions};

    #[test]
    fn a_view_is_built_once_while_it_is_in_use() {
        let tree = Tree::open("tests/data/sample/weather".as_ref(), &TreeOptions::default()).unwrap();
        let built = BUILT.get();
        let Some(Node::File(file)) = tree.root.find("data/array.nc").unwrap() else {
            panic!("no array.nc");
        };
        file.stat().unwrap();
        file.open().unwrap();
        assert_eq!(BUILT.get() - built, 1);
    }

    #[test]
    fn views_that_nodes_keep_take_bounded_memory() {
        for (cache_size, again) in [(1 << 20, 1), (1 << 30, 0)] {
            let options = TreeOptions {
                cache_size,
                ..TreeOptions::default()
            };
            let tree = Tree::open("tests/data/sample/weather".as_ref(), &options).unwrap();
            let built = BUILT.get();
            let stat = |node: &Node| match node {
                Node::File(file) => file.stat().unwrap().len,
                _ => panic!("not a file"),
            };
            let nodes = (1..=40).map(|day| {
                let path = format!("data/subarray/1..{day},0..0/columns/temperature/data.bin");
                let node = tree.root.find(&path).unwrap().unwrap();
                assert_eq!(stat(&node), 4 * day);
                node
            });
            let nodes: Vec<Node> = nodes.collect();
            assert_eq!(BUILT.get() - built, 40);
            stat(&nodes[39]);
            assert_eq!(BUILT.get() - built, 40);
            stat(&nodes[0]);
            assert_eq!(BUILT.get() - built, 40 + again);
        }
    }
}
