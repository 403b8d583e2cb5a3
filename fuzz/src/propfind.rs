//! Bodies of PROPFIND requests.

use std::collections::HashSet;
use tiledbfs::internals::serve::entry::Entry;
use tiledbfs::internals::serve::path::UrlPath;
use tiledbfs::internals::serve::webdav::{Propfind, multistatus, parse};
use tiledbfs::internals::tree::Freshness;
use tiledbfs::internals::tree::memory::folder;

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
        node: folder(0, Freshness::Immutable, Vec::new()),
    };
    let pieces = multistatus(wanted, target, None, String::new());
    let pieces = pieces.map(|piece| piece.expect("nothing is read"));
    let bytes: Vec<u8> = pieces.flatten().collect();
    String::from_utf8(bytes).expect("answers are UTF-8")
}
