//! Checks consolidated fragment metadata (`.meta` files): copies of the fragments' footers in one file.

use super::{Checker, Kind};
use crate::catalog::Array;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::commits::{ConsolidatedFooter, parse_consolidated_metadata};
use crate::format::fragment::Footer;
use crate::format::name::TimestampedName;
use crate::format::schema::Schema;
use crate::fragment::repeated_footers::directory_name;
use std::path::Path;

/// Checks the file at `path`: each footer in it must equal the fragment's own.
pub(super) fn check(checker: &Checker, array: &Array, path: &Path) {
    let Some((blob, body)) = checker.take(array.generic_file(path), path) else {
        return;
    };
    checker.check_end(path, array.key.as_ref());
    let parsed = parse_consolidated_metadata(&body).map_err(|e| e.in_file(blob.display()));
    let Some(footers) = checker.take(parsed, path) else {
        return;
    };
    let Some(listing) = checker.take(array.listing(), &array.path) else {
        return;
    };
    // From format version 5 on, libtiledb writes lists of the wrong length for fragments of versions below
    // 5. Everything after them lies elsewhere than the index says, and readers read the fragments instead.
    let old = |footer: &ConsolidatedFooter| {
        TimestampedName::parse(directory_name(&footer.name)).is_ok_and(|name| name.name_version < 5)
    };
    let shifted = footers.iter().any(old);
    let ends = footers.iter().skip(1).map(|footer| footer.offset);
    for (footer, end) in footers.iter().zip(ends.chain([body.len() as u64])) {
        let name = String::from_utf8_lossy(directory_name(&footer.name));
        // The fragment was vacuumed, and readers do not look for it either.
        let Some(entry) = listing.fragment(&name) else {
            continue;
        };
        // Errors of the fragment itself are reported by its own check.
        let Ok(info) = entry.fragment.look() else {
            continue;
        };
        if info.footer_position.is_none() {
            continue;
        }
        let found = match parse(&body, footer, end, &info.schema) {
            Ok(copy) if copy == info.footer => continue,
            Ok(_) => "the footer differs from the fragment's own".to_owned(),
            Err(e) => e.to_string(),
        };
        let problem = checker
            .problem(Kind::ConsolidatedMetadata, path, found)
            .in_part(format_args!("fragment {name}"))
            .at(footer.offset);
        checker.report(if shifted { problem.noted() } else { problem });
    }
}

fn parse(body: &[u8], footer: &ConsolidatedFooter, end: u64, schema: &Schema) -> Result<Footer> {
    let bytes = &body[footer.offset as usize..end as usize];
    Footer::parse(&mut Cursor::with_base(bytes, footer.offset), schema, true)
}
