//! The directory of an array, down to its fragments.

use super::context::{Ancestors, Context};
use super::directory::{Children, ListedDirectory};
use super::document::Document;
use super::fragment::fragment;
use super::json::{self, render};
use super::names;
use super::node::{Directory, Entry, Freshness, Listing, Node, NodeType};
use crate::array::Array;
use crate::array::fragment::FragmentInfo;
use crate::array::listing::FragmentEntry;
use crate::array::schemas::LEGACY_SCHEMA;
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
        content: impl Fn(&Arc<Context>, &Array) -> Result<serde_json::Value> + Send + Sync + 'static,
    ) -> Node {
        let (context, array) = (self.context.clone(), self.array.clone());
        Document::node(mtime, Freshness::Listing, move || {
            Ok(render(&content(&context, &array)?))
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
                self.document(schema_mtime, |_, array| schema_json(array)),
            ),
            (
                "metadata.json",
                self.document(mtime, |_, array| metadata_json(array)),
            ),
            ("fragments.json", {
                let array = array.clone();
                Document::node(mtime, Freshness::Listing, move || fragments_json(&array))
            }),
            (
                "commits.json",
                self.document(mtime, |_, array| super::commits::commits_json(array)),
            ),
            (
                "consolidated_metadata.json",
                self.document(mtime, |_, array| {
                    super::consolidated_metadata::consolidated_metadata_json(array)
                }),
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
            .map(|(name, node)| (OsString::from(name), node))
            .collect()
    }
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
}

fn schema_json(array: &Array) -> Result<serde_json::Value> {
    let file = array.latest_schema_file()?;
    Ok(json::schema::schema_json(
        &*array.schemas.get(&file.name)?,
        &file.name,
    ))
}

fn metadata_json(array: &Array) -> Result<serde_json::Value> {
    Ok(json::metadata::metadata_json(&json::metadata::merge(
        array.metadata()?,
    )))
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
        let (array, name) = (array.clone(), file.name.clone());
        let node = Document::node(file.mtime, freshness, move || {
            Ok(render(&json::schema::schema_json(
                &*array.schemas.get(&name)?,
                &name,
            )))
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
        let (array, file) = (array.clone(), reference.file.clone());
        Document::node(mtime, Freshness::Immutable, move || {
            Ok(render(&json::enumeration::enumeration_json(
                &array.enumeration(&file)?,
            )))
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
        match context.object(&array.path.join(Path::new(&*uri)), above) {
            Ok(Some(node)) => children.push((name.into(), node)),
            Ok(None) => {}
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
    let listing = array.listing()?;
    let files = listing.consolidated_metadata.iter().map(PathBuf::as_path);
    let consolidated = super::consolidated_metadata::repeated_names(array, files);
    Ok(json::render_objects(&listing.fragments, |entry| {
        json::fragments::entry_json(&fragment_entry(entry, &consolidated))
    }))
}

fn fragment_entry(entry: &FragmentEntry, consolidated: &HashSet<Vec<u8>>) -> json::fragments::FragmentEntry {
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
        visible: entry.hidden.is_none(),
        reason: entry.hidden.clone(),
    };
    match entry.fragment.open().and_then(|info| Ok((size(&info)?, info))) {
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
