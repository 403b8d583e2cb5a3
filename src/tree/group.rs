//! The directory of a group.

use super::context::{Ancestors, Context};
use super::directory::{Children, ListedDirectory, unreadable};
use super::document::{Document, large};
use super::json::{self, render};
use super::metadata::metadata;
use super::names;
use super::node::{Freshness, Node};
use super::permissions::{Permissions, Sources, restricted};
use crate::array::group::{group_metadata, member_name, member_path, read_group, unregistered_members};
use crate::array::source::GROUP_DIRECTORY;
use crate::error::{ErrorKind, Result};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The node of the group at `path`.
pub fn group(context: Arc<Context>, path: PathBuf, above: Ancestors, mtime: u64) -> Node {
    let from_details = {
        let (context, path) = (context.clone(), path.clone());
        move || of_files(&context, &path, GROUP_DIRECTORY)
    };
    let from_metadata = {
        let (context, path) = (context.clone(), path.clone());
        move || of_files(&context, &path, "__meta")
    };
    let permissions = from_details.clone();
    let directory = ListedDirectory::node(mtime, Freshness::Listing, move || {
        let details = {
            let (context, path) = (context.clone(), path.clone());
            Document::node(mtime, Freshness::Listing, move || {
                let group = read_group(&context.engine, &path)?;
                Ok(render(&json::group::group_json(group.version, &group.members)))
            })
        };
        let metadata = {
            let (context, path) = (context.clone(), path.clone());
            large(mtime, Freshness::Listing, move || {
                let paths = group_metadata(&context.engine, &path)?;
                metadata(&context.engine, &paths, context.engine.key_for(&path))
            })
        };
        let members = match members(&context, &path, &above) {
            // A source that fails says nothing of what there is.
            Err(e) if matches!(e.kind(), ErrorKind::Io(_)) => return Err(e),
            Err(e) => {
                log::warn!("{e}");
                Vec::new()
            }
            Ok(members) => members,
        };
        let (names, nodes): (Vec<String>, Vec<Node>) = [
            ("group.json".to_owned(), restricted(details, from_details.clone())),
            (
                "metadata.json".to_owned(),
                restricted(metadata, from_metadata.clone()),
            ),
        ]
        .into_iter()
        .chain(members)
        .unzip();
        Ok(names::unique(names, 255)
            .into_iter()
            .map(OsString::from)
            .zip(nodes)
            .collect::<Children>())
    });
    // Which members there are is what the details say.
    restricted(directory, permissions)
}

/// The permissions of what comes from the files in a directory of the group at `path`.
fn of_files(context: &Context, path: &Path, directory: &str) -> Result<Permissions> {
    let sources = Sources::new(&context.engine)
        .key(context.engine.key_for(path))
        .search(path)
        .listing(path);
    Ok(sources.files(&path.join(directory))?.permissions())
}

/// The members that lie inside the source, under the names that they are shown by: those that are registered, and behind them those that are not.
fn members(context: &Arc<Context>, path: &Path, above: &Ancestors) -> Result<Vec<(String, Node)>> {
    let mut shown = Vec::new();
    let mut seen = HashSet::new();
    for member in read_group(&context.engine, path)?.members {
        let uri = member.uri.escape_ascii();
        let (Some(name), Some(at)) = (member_name(&member), member_path(&context.root, path, &member)) else {
            log::info!("{}: member {uri} is not shown: it lies elsewhere", path.display());
            continue;
        };
        // Without these, every directory has one place in the tree.
        let in_place =
            at.parent() == Some(path) && seen.insert(at.clone()) && !context.engine.storage.is_link(&at);
        let Some(above) = in_place.then(|| above.clone()).or_else(|| above.jump()) else {
            log::warn!(
                "{}: member {uri} is not shown: it lies elsewhere, as did too many groups above it",
                path.display()
            );
            continue;
        };
        match context.object(&at, &above) {
            Ok(Some(node)) => shown.push((names::encode(name), node)),
            Ok(None) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Io(_)) => {
                shown.push((names::encode(name), unreadable(e)))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                log::info!("{}: member {uri} is not shown: it is missing", path.display());
            }
            Err(e) => log::warn!("{}: member {uri} is not shown: {e}", path.display()),
        }
    }
    for name in unregistered_members(&context.engine, path, &seen)? {
        match context.child(&path.join(&name), above) {
            Ok(Some(node)) => shown.push((names::encode(name.as_bytes()), node)),
            Ok(None) => {}
            Err(e) if matches!(e.kind(), ErrorKind::Io(_)) => {
                shown.push((names::encode(name.as_bytes()), unreadable(e)));
            }
            Err(e) => log::warn!("{}: {} is not shown: {e}", path.display(), name.display()),
        }
    }
    Ok(shown)
}
