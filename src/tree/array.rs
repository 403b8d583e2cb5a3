//! The directory of an array, down to its fragments.

use super::context::{Ancestors, Context};
use super::directory::{Children, ListedDirectory, unreadable};
use super::document::{Content, Document, large};
use super::fragment::fragment;
use super::json::{self, render};
use super::metadata::metadata;
use super::names;
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType};
use super::permissions::{Permissions, Sources, restricted};
use crate::array::Array;
use crate::array::fragment_info::FragmentInfo;
use crate::array::listing::FragmentEntry;
use crate::array::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::array::snapshot::Hidden;
use crate::error::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An array's directory.
pub struct ArrayDirectory {
    context: Arc<Context>,
    array: Arc<Array>,
    above: Ancestors,
}

impl ArrayDirectory {
    /// The directory of `array`.
    pub fn new(context: Arc<Context>, array: Arc<Array>, above: Ancestors) -> Self {
        ArrayDirectory {
            context,
            array,
            above,
        }
    }

    fn document(
        &self,
        mtime: u64,
        content: impl Fn(&Arc<Array>) -> Result<Content> + Send + Sync + 'static,
    ) -> Node {
        let array = self.array.clone();
        large(mtime, Freshness::Listing, move || {
            content(&array).or_else(|_| {
                // The listing may be a moment older than the files that it names.
                array.look_again();
                content(&array)
            })
        })
    }

    fn children(&self) -> Children {
        let mtime = self.mtime();
        let array = &self.array;
        let schemas = {
            let array = array.clone();
            ListedDirectory::node(mtime, Freshness::Listing, move || schemas(&array))
        };
        let enumerations = {
            let array = array.clone();
            ListedDirectory::node(mtime, Freshness::Listing, move || enumerations(&array))
        };
        let labels = {
            let (context, array, above) = (self.context.clone(), array.clone(), self.above.clone());
            ListedDirectory::node(mtime, Freshness::Listing, move || {
                labels(&context, &array, &above)
            })
        };
        let schema_mtime = array.latest_schema_file().map_or(mtime, |file| file.mtime);
        let children = [
            (
                "schema.json",
                self.document(schema_mtime, |array| {
                    Ok(Content::Text(render(&schema_json(array)?)))
                }),
            ),
            ("metadata.json", self.document(mtime, metadata_json)),
            (
                "fragments.json",
                self.document(mtime, |array| fragments_json(array).map(Content::Text)),
            ),
            (
                "commits.json",
                self.document(mtime, |array| {
                    super::commits::commits_json(array).map(Content::Text)
                }),
            ),
            (
                "consolidated_metadata.json",
                self.document(mtime, super::consolidated_metadata::consolidated_metadata),
            ),
            ("schemas", schemas),
            ("enumerations", enumerations),
            ("labels", labels),
            (
                "fragments",
                Node::Directory(Arc::new(FragmentsDirectory { array: array.clone() })),
            ),
        ];
        children
            .into_iter()
            .map(|(name, node)| {
                let array = array.clone();
                let node = restricted(node, move || permissions(&array, name));
                (OsString::from(name), node)
            })
            .collect()
    }
}

/// Who may see the child `name` of an array's directory.
fn permissions(array: &Array, name: &str) -> Result<Permissions> {
    let sources = Sources::of_array(array);
    let of_files = |sources: Sources<'_>, paths: &mut dyn Iterator<Item = &Path>| {
        paths
            .fold(sources, |sources, path| sources.read(path))
            .permissions()
    };
    Ok(match name {
        "schema.json" | "enumerations" | "labels" => sources.latest_schema(array)?.permissions(),
        "metadata.json" => {
            let snapshot = array.snapshot(None)?;
            let sources = sources.names(&array.path.join("__meta"));
            of_files(sources, &mut snapshot.metadata().map(|file| &*file.path))
        }
        "schemas" => {
            let directory = array.path.join(SCHEMA_DIRECTORY);
            let sources = sources.search(&directory).listing(&directory);
            sources.listing(&array.path).permissions()
        }
        "fragments" => {
            let directory = array.path.join("__fragments");
            let sources = sources.search(&directory).listing(&directory);
            sources.listing(&array.path).permissions()
        }
        "commits.json" => {
            let sources = sources.array_listing(array, true)?;
            sources.latest_schema(array)?.permissions()
        }
        // "fragments.json", "consolidated_metadata.json"
        _ => {
            let sources = sources.array_listing(array, false)?;
            sources.all_fragments(array)?.permissions()
        }
    })
}

impl Directory for ArrayDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        Ok(self
            .children()
            .into_iter()
            .find(|(child, _)| child == name)
            .map(|(_, node)| node))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        self.context.engine.storage.metadata(&self.array.path)?;
        let entries: Vec<Entry> = self
            .children()
            .into_iter()
            .map(|(name, node)| (name, node.node_type()))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.array.listing().map_or(0, |listing| listing.mtime)
    }

    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }

    fn permissions(&self) -> Permissions {
        Sources::of_array(&self.array)
            .listing(&self.array.path)
            .permissions()
    }
}

fn schema_json(array: &Array) -> Result<serde_json::Value> {
    let file = array.latest_schema_file()?;
    Ok(json::schema::schema_json(
        &*array.schemas.get(&file.name)?,
        &file.name,
    ))
}

fn metadata_json(array: &Arc<Array>) -> Result<Content> {
    let snapshot = array.snapshot(None)?;
    let paths: Vec<PathBuf> = snapshot.metadata().map(|file| file.path.clone()).collect();
    metadata(&array.engine, &paths, array.key.as_ref())
}

/// `schemas/`: every schema ever written.
fn schemas(array: &Arc<Array>) -> Result<Children> {
    let listing = array.listing()?;
    let children = listing.schemas.iter().map(|file| {
        // An array of an old version that is deleted and created anew has another schema under the same name.
        let freshness = if file.name == LEGACY_SCHEMA {
            Freshness::Listing
        } else {
            Freshness::Immutable
        };
        let array_again = array.clone();
        let (array, name) = (array.clone(), file.name.clone());
        let node = Document::node(file.mtime, freshness, move || {
            Ok(render(&json::schema::schema_json(
                &*array.schemas.get(&name)?,
                &name,
            )))
        });
        let (array, name) = (array_again, file.name.clone());
        let node = restricted(node, move || {
            Ok(Sources::of_array(&array)
                .read(&array.schemas.path(&name))
                .permissions())
        });
        (OsString::from(format!("{}.json", file.name)), node)
    });
    Ok(children.collect())
}

/// A name with `.json` behind it, within the limit of a path's component.
fn json_names(encoded: impl Iterator<Item = String>) -> impl Iterator<Item = OsString> {
    names::unique(encoded.collect(), 250)
        .into_iter()
        .map(|name| format!("{name}.json").into())
}

/// `enumerations/`: those that the current schema names.
fn enumerations(array: &Arc<Array>) -> Result<Children> {
    let mtime = array.latest_schema_file()?.mtime;
    let schema = array.latest_schema()?;
    let names = json_names(
        schema
            .enumerations
            .iter()
            .map(|e| names::encode_within(&e.name, 250)),
    );
    let nodes = schema.enumerations.iter().map(|reference| {
        let (of_array, of_file) = (array.clone(), reference.file.clone());
        let (array, file) = (array.clone(), reference.file.clone());
        let node = large(mtime, Freshness::Immutable, move || {
            let path = array.enumeration_path(&file)?;
            let body = array.enumeration_body(&file)?;
            let segments = json::enumeration::enumeration_segments(body).map_err(|e| {
                e.at(0)
                    .in_part("enumeration")
                    .in_file(array.engine.storage.display(&path))
            })?;
            Content::of(&array.engine, segments)
        });
        restricted(node, move || {
            let path = of_array.enumeration_path(&of_file)?;
            let sources = Sources::of_array(&of_array).latest_schema(&of_array)?;
            Ok(sources.read(&path).permissions())
        })
    });
    Ok(names.zip(nodes).collect())
}

/// `labels/`: the arrays of the dimension labels that lie inside the source.
fn labels(context: &Arc<Context>, array: &Array, above: &Ancestors) -> Result<Children> {
    let schema = array.latest_schema()?;
    let names = names::unique(
        schema
            .dimension_labels
            .iter()
            .map(|l| names::encode(&l.name))
            .collect(),
        255,
    );
    let mut children = Children::new();
    for (name, label) in names.into_iter().zip(&schema.dimension_labels) {
        let uri = String::from_utf8_lossy(&label.uri);
        let inside = label.relative && !uri.split('/').any(|part| part == "..") && !uri.starts_with('/');
        if !inside {
            log::info!(
                "{}: label {name} is not shown: it lies elsewhere, at {uri}",
                array.path.display()
            );
            continue;
        }
        let at = array.path.join(Path::new(&*uri));
        let below = at.ancestors().take_while(|path| *path != array.path);
        let in_place = !below.into_iter().any(|path| context.engine.storage.is_link(path));
        let Some(above) = in_place.then(|| above.clone()).or_else(|| above.jump()) else {
            log::warn!(
                "{}: label {name} is not shown: it lies behind too many links",
                array.path.display()
            );
            continue;
        };
        match context.object(&at, &above) {
            Ok(Some(node)) => children.push((name.into(), node)),
            Ok(None) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Io(_)) => children.push((name.into(), unreadable(e))),
            Err(e) => log::warn!("{}: label {name} is not shown: {e}", array.path.display()),
        }
    }
    Ok(children)
}

/// `fragments/`: every fragment directory.
struct FragmentsDirectory {
    array: Arc<Array>,
}

impl Directory for FragmentsDirectory {
    fn lookup(&self, name: &OsStr) -> Result<Option<Node>> {
        let listing = self.array.listing()?;
        let found = name.to_str().and_then(|name| listing.fragment(name));
        Ok(found.map(|entry| fragment(entry.fragment.clone())))
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        let listing = self.array.listing()?;
        let entries: Vec<Entry> = listing
            .fragments
            .iter()
            .map(|f| (OsString::from(&f.name), NodeType::Directory))
            .collect();
        Ok(Arc::new(entries))
    }

    fn mtime(&self) -> u64 {
        self.array
            .listing()
            .ok()
            .and_then(|listing| {
                listing
                    .fragments
                    .iter()
                    .map(|f| f.fragment.name.timestamps.1)
                    .max()
            })
            .unwrap_or(0)
    }

    fn freshness(&self) -> Freshness {
        Freshness::Listing
    }
}

fn fragments_json(array: &Array) -> Result<Vec<u8>> {
    let snapshot = array.snapshot(None)?;
    let listing = &snapshot.listing;
    let files = listing.consolidated_metadata.iter().map(PathBuf::as_path);
    let consolidated = super::consolidated_metadata::repeated_names(array, files);
    let entries: Vec<_> = listing.fragments.iter().zip(&snapshot.hidden).collect();
    Ok(json::render_objects(&entries, |(entry, hidden)| {
        json::fragments::members(&fragment_entry(entry, hidden.as_ref(), &consolidated))
    }))
}

fn fragment_entry(
    entry: &FragmentEntry,
    hidden: Option<&Hidden>,
    consolidated: &HashSet<Vec<u8>>,
) -> json::fragments::FragmentEntry {
    let name = &entry.fragment.name;
    let mut out = json::fragments::FragmentEntry {
        name: entry.name.clone().into_bytes(),
        format_version: name.version,
        timestamp_range: Some(name.timestamps),
        dense: None,
        cell_num: None,
        tile_num: None,
        size: None,
        schema_name: None,
        non_empty_domain: None,
        has_consolidated_metadata: Some(consolidated.contains(entry.name.as_bytes())),
        visible: hidden.is_none(),
        reason: hidden.map(Hidden::to_string),
    };
    match entry.fragment.look().and_then(|info| Ok((size(&info)?, info))) {
        Ok((size, info)) => {
            out.format_version = Some(info.version());
            out.dense = Some(info.dense);
            out.cell_num = Some(info.geometry.cell_num);
            out.tile_num = Some(info.geometry.tile_num);
            out.size = Some(size);
            out.schema_name = Some(info.schema_name.clone().into_bytes());
            out.non_empty_domain = info
                .non_empty_domain()
                .map(|rect| json::value::rect(&info.schema.dimensions, rect));
        }
        Err(e) => {
            // An encrypted array without its key still has footers in the clear.
            if matches!(e.kind(), ErrorKind::KeyRequired | ErrorKind::WrongKey)
                && let Ok(Some((front, _))) = entry.fragment.clear_footer()
            {
                out.format_version = Some(front.version);
                out.dense = Some(front.dense);
                out.schema_name = front.schema_name;
            }
            log::warn!("{e}");
            out.reason = Some(match out.reason {
                Some(reason) => format!("{reason}; {e}"),
                None => e.to_string(),
            });
        }
    }
    out
}

/// Bytes of all files of a fragment: as its metadata has it, and the metadata itself.
fn size(info: &FragmentInfo) -> Result<u64> {
    info.files_size()
        .and_then(|size| size.checked_add(info.metadata_size))
        .ok_or_else(|| Error::limit("files of more than 2^64 bytes").at(0))
}
