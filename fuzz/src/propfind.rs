//! Bodies of PROPFIND requests.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::Arc;
use tiledbfs::Result;
use tiledbfs::internals::serve::entry::Entry;
use tiledbfs::internals::serve::path::UrlPath;
use tiledbfs::internals::serve::webdav::{Propfind, multistatus, parse};
use tiledbfs::internals::tree::{Directory, Listing, Node};

/// The body of a request. What it names is answered, and the answer names just that when it is read in turn.
pub fn propfind(data: &[u8]) {
    let Ok(wanted) = parse(data) else { return };
    let answer = answered(wanted.clone());
    let inner = answer.split("<D:prop>").skip(1);
    let inner: String = inner
        .filter_map(|rest| Some(rest.split_once("</D:prop>")?.0))
        .collect();
    let again = format!("<D:propfind xmlns:D=\"DAV:\"><D:prop>{inner}</D:prop></D:propfind>");
    let again = match parse(again.as_bytes()) {
        Ok(Propfind::Named(again)) => again,
        // The answer may be longer than a request.
        _ if again.len() > 64 << 10 => return,
        other => panic!("{other:?}: {again}"),
    };
    if let Propfind::Named(named) = wanted {
        let all = |names: &[_]| {
            names
                .iter()
                .map(|name| format!("{name:?}"))
                .collect::<HashSet<_>>()
        };
        assert_eq!(all(&named), all(&again), "{answer}");
    }
}

/// The answer for an empty directory.
fn answered(wanted: Propfind) -> String {
    let target = Entry {
        path: UrlPath {
            names: Vec::new(),
            slash: true,
        },
        node: Node::Directory(Arc::new(Empty)),
    };
    let pieces = multistatus(wanted, target, None, String::new());
    let pieces = pieces.map(|piece| piece.expect("nothing is read"));
    let bytes: Vec<u8> = pieces.flatten().collect();
    String::from_utf8(bytes).expect("answers are UTF-8")
}

struct Empty;

impl Directory for Empty {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        Ok(None)
    }

    fn list(&self) -> Result<Arc<dyn Listing>> {
        Ok(Arc::new(Vec::new()))
    }

    fn mtime(&self) -> u64 {
        0
    }
}
