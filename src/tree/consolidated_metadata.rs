//! `consolidated_metadata.json`: all consolidated fragment metadata files of an array, compared with the
//! fragments' own footers.
//!
//! Such a file saves readers from opening each fragment. For local sources it is only shown.

use super::document::DocumentContent;
use crate::bytes::{Bytes, Output};
use crate::catalog::Array;
use crate::catalog::listing::ArrayListing;
use crate::cursor::Cursor;
use crate::describe::Json;
use crate::describe::consolidated_metadata::{
    ConsolidatedMetadata, FooterSource, RepeatedFooter, consolidated_metadata_segments, difference,
};
use crate::describe::footer::footer_json;
use crate::error::{Error, Result};
use crate::format::body::MAX_VALUE;
use crate::format::commits::{ConsolidatedFooter, parse_consolidated_metadata};
use crate::format::fragment::Footer;
use crate::format::fragment::footer::FooterPosition;
use crate::format::name::TimestampedName;
use crate::format::schema::Schema;
use crate::fragment::file_name;
use crate::fragment::generic_body::GenericFile;
use crate::fragment::geometry::Geometry;
use crate::fragment::info::FragmentInfo;
use crate::fragment::repeated_footers::directory_name;
use crate::fragment::schemas::LEGACY_SCHEMA;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The document. A file that cannot be decoded is shown with the reason.
pub fn consolidated_metadata(array: &Arc<Array>) -> Result<DocumentContent> {
    let listing = array.listing()?;
    let files = listing.consolidated_metadata.iter().map(|path| file(array, path));
    let (files, read): (Vec<ConsolidatedMetadata>, Vec<Option<Content>>) = files.unzip();
    let errors = Arc::new(AtomicBool::new(read.iter().any(Option::is_none)));
    let footers = Footers {
        array: array.clone(),
        listing,
        files: read,
        errors: errors.clone(),
    };
    let content = DocumentContent::of(consolidated_metadata_segments(files, footers)?)?;
    Ok(content.with_errors(errors))
}

/// The names of the fragments whose footers are in the files at `paths`. A file that cannot be read is logged
/// and skipped, and sets `errors`.
pub fn repeated_names<'a>(
    array: &Array,
    paths: impl Iterator<Item = &'a Path>,
    errors: &AtomicBool,
) -> HashSet<Vec<u8>> {
    let mut names = HashSet::new();
    for path in paths {
        match read(array, path) {
            Ok((_, footers)) => {
                names.extend(footers.iter().map(|footer| directory_name(&footer.name).to_vec()));
            }
            Err(e) => {
                log::warn!("{e}");
                errors.store(true, Ordering::Relaxed);
            }
        }
    }
    names
}

/// The unfiltered body of a file, and its footers.
type Content = (GenericFile, Vec<ConsolidatedFooter>);

fn read(array: &Array, path: &Path) -> Result<Content> {
    let body = GenericFile::open(&array.engine, path, array.key.as_ref(), true)?;
    let footers = parse_consolidated_metadata(&body)
        .and_then(|footers| body.decode().map(|()| footers))
        .map_err(|e| e.in_file(array.engine.storage.display(path)))?;
    Ok((body, footers))
}

/// The footers in all files, in one state of the array.
struct Footers {
    array: Arc<Array>,
    listing: Arc<ArrayListing>,
    /// None for files that cannot be read.
    files: Vec<Option<Content>>,
    /// Set if a fragment's own footer could not be read.
    errors: Arc<AtomicBool>,
}

impl FooterSource for Footers {
    fn footer(&self, file: usize, index: usize) -> Result<RepeatedFooter> {
        let (body, footers) = self.files[file].as_ref().expect("a file with footers was read");
        let footer = &footers[index];
        let end = match footers.get(index + 1) {
            Some(next) => next.offset,
            None => body.len(),
        };
        let size = end - footer.offset;
        if size > MAX_VALUE {
            return Err(
                Error::limit(format!("the footer takes {size} bytes, more than allowed")).at(footer.offset),
            );
        }
        let bytes = Output::of(|out| body.read(footer.offset..end, out))?;
        let footer = repeated(&self.array, &self.listing, &bytes, footer);
        self.errors.fetch_or(footer.matches.is_none(), Ordering::Relaxed);
        Ok(footer)
    }
}

/// The description of a file, and its content if it can be read.
fn file(array: &Array, path: &Path) -> (ConsolidatedMetadata, Option<Content>) {
    let relative = path.strip_prefix(&array.path).expect("a file of the array");
    let parsed = TimestampedName::parse(file_name(path)).ok();
    let (fragments, content) = match read(array, path) {
        Ok(content) => (Ok(content.1.len()), Some(content)),
        Err(e) => {
            log::warn!("{e}");
            (Err(e.to_string()), None)
        }
    };
    let file = ConsolidatedMetadata {
        path: relative.as_os_str().as_bytes().to_vec(),
        timestamp_range: parsed.as_ref().map(|name| name.timestamps),
        format_version: parsed.as_ref().map(|name| name.name_version),
        size: array.engine.storage.metadata(path).ok().map(|m| m.len),
        fragments,
    };
    (file, content)
}

/// Compares the footer `bytes` of `entry` with the fragment's own.
fn repeated(
    array: &Array,
    listing: &ArrayListing,
    bytes: &[u8],
    entry: &ConsolidatedFooter,
) -> RepeatedFooter {
    let position = FooterPosition {
        offset: entry.offset,
        size: bytes.len() as u64,
    };
    let own = own_footer(listing, &entry.name);
    let parsed = match &own {
        Ok((info, _)) => parse(bytes, &info.schema, position),
        // The fragment may be gone, but its schema still exists.
        Err(_) => schema_of(array, bytes).and_then(|schema| parse(bytes, &schema, position)),
    };
    let (matches, difference) = match (&own, &parsed) {
        (Ok((_, own)), _) if own == bytes => (Some(true), None),
        (Ok((info, own)), Ok(here)) => {
            // At the same position, because the footers' own positions are in different files.
            let shown = parse(own, &info.schema, position).ok();
            let text = shown.and_then(|own| difference(here, &own)).or_else(|| {
                let at = own.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                let (here, there) = (bytes.len(), own.len());
                Some(format!(
                    "{here} bytes here, {there} in the fragment's own footer, which differ from byte {at} on"
                ))
            });
            (Some(false), text)
        }
        (Ok(_), Err(e)) => (Some(false), Some(format!("not a footer of this fragment: {e}"))),
        (Err(e), _) => (
            None,
            Some(format!(
                "the fragment's own footer cannot be read to compare with it: {e}"
            )),
        ),
    };
    RepeatedFooter {
        name: entry.name.clone(),
        offset: entry.offset,
        footer: parsed.ok(),
        matches,
        difference,
    }
}

/// A fragment, and the bytes of its own footer.
fn own_footer(listing: &ArrayListing, name: &[u8]) -> Result<(Arc<FragmentInfo>, Vec<u8>)> {
    let entry = std::str::from_utf8(directory_name(name))
        .ok()
        .and_then(|name| listing.fragment(name))
        .ok_or_else(|| Error::corrupt("there is no such fragment"))?;
    let info = entry.fragment.look()?;
    let Some(position) = info.footer_position else {
        return Err(Error::corrupt("a fragment of this version has no footer"));
    };
    let blob = info.engine.open_immutable(&info.metadata_path())?;
    let bytes = blob.read(position.offset, position.size)?;
    Ok((info, bytes))
}

/// The schema that a footer names; before format version 10, the array's only schema.
fn schema_of(array: &Array, footer: &[u8]) -> Result<Arc<Schema>> {
    let name = Footer::peek(&mut Cursor::new(footer))?.schema_name;
    match name {
        None => array.schemas.get(LEGACY_SCHEMA),
        Some(name) => {
            let name =
                String::from_utf8(name).map_err(|_| Error::corrupt("the schema's name is not UTF-8"))?;
            array.schemas.get(&name)
        }
    }
}

/// The JSON of a footer at `position`.
fn parse(bytes: &[u8], schema: &Schema, position: FooterPosition) -> Result<Json> {
    let footer = Footer::parse(&mut Cursor::with_base(bytes, position.offset), schema, true)?;
    let geometry = Geometry::of_footer(&footer, schema)?;
    Ok(footer_json(&footer, schema, Some(position), &geometry))
}
