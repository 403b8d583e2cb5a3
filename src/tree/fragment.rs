//! `fragments/`, `fragments.json`, and the directories of fragments.

use super::array_at::ArrayAt;
use super::column::columns;
use super::consolidated_metadata::repeated_names;
use super::directory::FixedDirectory;
use super::document::{Document, DocumentContent, state_of_file};
use super::node::{Directory, Entry, Freshness, Link, Listing, Node, NodeType};
use super::permissions::Origin;
use crate::bytes::Bytes;
use crate::catalog::listing::FragmentEntry;
use crate::catalog::time::When;
use crate::describe::fields::{KeyedField, keyed_fields};
use crate::describe::fragments::FragmentSummary;
use crate::describe::tiles::TileLists;
use crate::describe::{self, Json, render};
use crate::error::{Error, ErrorKind, Result};
use crate::fragment::Fragment;
use crate::fragment::info::FragmentInfo;
use crate::fragment::prefetch::TailPrefetch;
use crate::fragment::tile_list::TileListKey;
use crate::layout::segments::Segments;
use crate::storage::Blob;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `fragments/`: all fragments.
pub struct FragmentsDirectory {
    pub array_at: ArrayAt,
}

/// The link in `fragments/` to the newest visible fragment.
const LATEST: &str = "latest";

impl FragmentsDirectory {
    /// The link to the newest visible fragment; None if there is none.
    fn latest(&self) -> Result<Option<Node>> {
        let snapshot = self.array_at.snapshot()?;
        let link = |entry: &FragmentEntry| {
            Node::Link(Arc::new(Link {
                target: OsString::from(&entry.name),
                mtime: entry.fragment.name.timestamps.1,
            }))
        };
        Ok(snapshot.fragments().next_back().map(link))
    }
}

impl Directory for FragmentsDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        if name == LATEST {
            return self.latest();
        }
        let listing = self.array_at.array.listing()?;
        let found = name.to_str().and_then(|name| listing.fragment(name));
        Ok(found.map(|entry| fragment(entry.fragment.clone())))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let listing = self.array_at.array.listing()?;
        let entries: Vec<Entry> = listing
            .fragments
            .iter()
            .map(|f| (OsString::from(&f.name), NodeType::Directory))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        let Ok(listing) = self.array_at.array.listing() else {
            return 0;
        };
        let ends = listing.fragments.iter().map(|f| f.fragment.name.timestamps.1);
        ends.max().unwrap_or(0)
    }

    fn origin(&self) -> Origin {
        Origin::InArray(self.array_at.clone(), "fragments")
    }
}

/// `fragments.json`: all fragments, whether they are seen or not.
pub fn fragments_json(array_at: &ArrayAt) -> Result<DocumentContent> {
    let array = &array_at.array;
    let errors: Arc<AtomicBool> = Arc::default();
    let snapshot = array_at.snapshot()?;
    let listing = &snapshot.listing;
    let files = listing.consolidated_metadata.iter().map(PathBuf::as_path);
    let unread = AtomicBool::default();
    let consolidated = repeated_names(array, files, &unread);
    let unread = unread.into_inner();
    errors.store(unread, Ordering::Relaxed);
    // Not a part of a pinned state.
    let consolidated = (!matches!(array_at.when, When::Pinned(_))).then_some(consolidated);
    let entries = listing.fragments.iter().zip(&snapshot.hidden).enumerate();
    let entries: Vec<_> = entries.collect();
    let fragments = listing.fragments.iter().map(|entry| &entry.fragment);
    let tails = TailPrefetch::new(&array.engine, fragments, Fragment::has_outline);
    let text = describe::render_objects(&entries, |(index, (entry, hidden))| {
        tails.reach(*index);
        let repeated = consolidated.as_ref().and_then(|names| {
            let found = names.contains(entry.name.as_bytes());
            // A file that cannot be read may have it.
            (found || !unread).then_some(found)
        });
        let summary = FragmentSummary::of(entry, hidden.as_ref(), &errors)?;
        Ok(describe::fragments::entry_json(&summary, repeated))
    })?;
    Ok(DocumentContent::text(text).with_errors(errors))
}

/// The node of a fragment.
fn fragment(fragment: Arc<Fragment>) -> Node {
    let names = vec![
        ("footer.json", NodeType::File),
        ("rtree.json", NodeType::File),
        ("tiles.json", NodeType::File),
        ("statistics.json", NodeType::File),
        ("conditions.json", NodeType::File),
        ("columns", NodeType::Directory),
    ];
    let mtime = fragment.name.timestamps.1;
    let origin = Origin::Fragment(fragment.clone());
    FixedDirectory::node(mtime, origin, names, move |name| child(&fragment, name))
}

/// The node of `name` in the directory of a fragment.
fn child(fragment: &Arc<Fragment>, name: &'static str) -> Node {
    let large = |content: fn(&Arc<FragmentInfo>) -> Result<Segments>| {
        document(fragment, name, move |fragment| {
            let info = fragment.open()?;
            content(&info)
                .and_then(DocumentContent::of)
                .map_err(|e| info.place(e))
        })
    };
    let small = |content: fn(&FragmentInfo) -> Result<Json>| {
        document(fragment, name, move |fragment| {
            let info = fragment.open()?;
            let value = content(&info).map_err(|e| info.place(e))?;
            Ok(DocumentContent::text(render(&value)))
        })
    };
    match name {
        "footer.json" => document(fragment, name, |fragment| {
            Ok(DocumentContent::text(render(&footer_or_front(fragment)?)))
        }),
        "rtree.json" => large(rtree),
        "tiles.json" => large(tiles),
        "statistics.json" => small(statistics),
        "conditions.json" => small(conditions),
        _ => columns(fragment.clone()),
    }
}

/// A document that is derived from a fragment's metadata file.
fn document(
    fragment: &Arc<Fragment>,
    name: &'static str,
    content: impl Fn(&Fragment) -> Result<DocumentContent> + Send + Sync + 'static,
) -> Node {
    let document = Document {
        engine: fragment.engine().clone(),
        of: fragment.path.clone(),
        name,
        mtime: fragment.name.timestamps.1,
        freshness: Freshness::Immutable,
        origin: Origin::FragmentMetadata(fragment.clone()),
    };
    let (of_state, fragment) = (fragment.clone(), fragment.clone());
    document.node(
        move || state_of_file(of_state.engine(), &of_state.metadata_path()),
        move || content(&fragment),
    )
}

fn footer_or_front(fragment: &Fragment) -> Result<Json> {
    let error = match fragment.open() {
        Ok(info) => return Ok(footer(&info)),
        Err(error) => error,
    };
    match (error.kind(), fragment.clear_footer()) {
        (ErrorKind::KeyRequired | ErrorKind::WrongKey, Ok(Some((front, position)))) => {
            Ok(describe::footer::clear_footer_json(&front, position))
        }
        _ => Err(error),
    }
}

/// The metadata without its lists, as JSON.
pub fn footer(info: &FragmentInfo) -> Json {
    describe::footer::footer_json(&info.footer, &info.schema, info.footer_position, &info.geometry)
}

fn rtree(info: &Arc<FragmentInfo>) -> Result<Segments> {
    let rtree = info.rtree()?;
    describe::rtree::rtree_segments(rtree.fanout, rtree.levels, rtree.body, info.schema.clone())
}

fn tiles(info: &Arc<FragmentInfo>) -> Result<Segments> {
    let lists = Lists {
        blob: info.engine.open_immutable(&info.metadata_path())?,
        info: info.clone(),
    };
    describe::tiles::tiles_segments(keyed_fields(&info.schema, &info.footer.slots), lists)
}

/// The lists of a fragment, whose metadata file stays open.
struct Lists {
    info: Arc<FragmentInfo>,
    blob: Arc<dyn Blob>,
}

impl TileLists for Lists {
    fn body(&self, field: &KeyedField, list: TileListKey) -> Result<Option<Box<dyn Bytes + '_>>> {
        self.info.list_body(&self.blob, list, field.stored.slot)
    }

    fn place(&self, field: &KeyedField, list: TileListKey, error: Error) -> Error {
        let error = match self.info.list_offset(list, field.stored.slot) {
            Some(offset) => error.at(offset),
            None => error,
        };
        error
            .in_part(list.name())
            .in_part(format_args!("lists of field `{}`", field.key))
            .in_file(self.blob.display())
    }
}

fn statistics(info: &FragmentInfo) -> Result<Json> {
    let fields = keyed_fields(&info.schema, &info.footer.slots);
    let statistics = info.statistics()?;
    Ok(describe::statistics::statistics_json(
        &fields,
        info.footer.dense,
        statistics.as_deref(),
    ))
}

fn conditions(info: &FragmentInfo) -> Result<Json> {
    let paths = info.processed_conditions()?;
    Ok(describe::condition::conditions_json(paths.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::source::tests::Refusing;
    use crate::tree::{Tree, TreeOptions};

    #[test]
    fn which_footers_are_repeated_in_a_file_that_cannot_be_read_is_unknown() {
        let file = "sparse/__fragment_meta/__10_20_1dcb0e55c2ed40009e88f33e417b8891_21.meta";
        let (storage, _) = Refusing::of("tests/data/versions/v21", file, ErrorKind::Corrupt);
        let tree = Tree::over(storage, &TreeOptions::default(), Arc::default()).unwrap();
        let document = tree.root.find("sparse/fragments.json").unwrap().unwrap();
        let text = String::from_utf8(document.read_all().unwrap()).unwrap();
        let known: serde_json::Value = serde_json::from_str(&text).unwrap();
        let known = known.as_array().unwrap().iter();
        let known: Vec<_> = known.map(|entry| &entry["has_consolidated_metadata"]).collect();
        assert!(
            !known.is_empty() && known.iter().all(|known| known.is_null()),
            "{text}"
        );
    }
}
