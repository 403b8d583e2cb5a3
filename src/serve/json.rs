//! Directories as JSON.

use super::Pieces;
use super::entry::{Asked, Entry, child};
use super::path;
use crate::tree::{DirectoryKind, NodeType, follow};
use bytes::Bytes;
use serde_json::{Value, json};

/// A piece is sent when it has this many bytes.
const PIECE: usize = 16 << 10;

/// The listing of a directory. With `names_only`, entries have what the directory alone tells.
pub fn listing(asked: Asked, names_only: bool) -> Pieces {
    let kind = match asked.kind() {
        DirectoryKind::Array => "array",
        DirectoryKind::Group => "group",
        DirectoryKind::View => "view",
        DirectoryKind::Other => "directory",
    };
    let path = match asked.path.names.is_empty() {
        true => "/".to_owned(),
        false => format!("/{}/", asked.path.display()),
    };
    let head = format!(
        "{{\"path\":{},\"kind\":\"{kind}\",\"entries\":[",
        Value::from(path)
    );
    let (count, mut index) = (asked.listing.len(), 0);
    let (mut text, mut first) = (head.into_bytes(), true);
    Box::new(std::iter::from_fn(move || {
        while index < count && text.len() < PIECE {
            if let Some((name, kind)) = asked.listing.get(index) {
                let entry = match names_only {
                    true => Some(name_only(&name, kind)),
                    false => whole(&asked, &name, kind),
                };
                if let Some(entry) = entry {
                    text.extend_from_slice(if first { b"\n" } else { b",\n" });
                    text.extend_from_slice(entry.to_string().as_bytes());
                    first = false;
                }
            }
            index += 1;
            if index == count {
                text.extend_from_slice(b"\n]}\n");
            }
        }
        if count == 0 && index == 0 {
            index = 1;
            text.extend_from_slice(b"]}\n");
        }
        let piece = std::mem::take(&mut text);
        (!piece.is_empty()).then(|| Ok(Bytes::from(piece)))
    }))
}

fn type_name(kind: NodeType) -> &'static str {
    match kind {
        NodeType::Directory => "directory",
        NodeType::File | NodeType::Link => "file",
    }
}

fn name_only(name: &std::ffi::OsStr, kind: NodeType) -> Value {
    let slash = if kind == NodeType::Directory { "/" } else { "" };
    json!({
        "name": name.to_string_lossy(),
        "href": path::encode(name) + slash,
        "type": type_name(kind),
    })
}

/// An entry with length, time and tag. These are null where they cannot be told: the file then tells why.
/// None if there is no such entry any more.
fn whole(asked: &Asked, name: &std::ffi::OsStr, kind: NodeType) -> Option<Value> {
    let mut value = name_only(name, kind);
    let Ok(found) = follow(&*asked.directory, name) else {
        for key in ["size", "mtime", "etag"] {
            value[key] = Value::Null;
        }
        return Some(value);
    };
    let entry = Entry {
        path: child(&asked.path, name.to_owned()),
        node: found?,
    };
    // Not later than the state.
    let mtime = entry.mtime();
    let stat = entry.stat().ok().flatten();
    value["size"] = stat.map(|stat| stat.len).into();
    value["mtime"] = mtime.into();
    value["etag"] = stat.and_then(|stat| entry.etag(stat)).into();
    Some(value)
}
