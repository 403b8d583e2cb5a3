//! Generic tiles without filters: in a source rewritten with them a changed byte of metadata reaches its
//! parser.

use std::collections::BTreeMap;
use std::path::Path;
use tiledbfs::internals::cursor::Cursor;
use tiledbfs::internals::filter::generic::{GenericTile, read_generic_tile};
use tiledbfs::internals::format::enums::Encryption;
use tiledbfs::internals::format::fragment::Footer;
use tiledbfs::internals::format::fragment::footer::FooterPosition;
use tiledbfs::internals::format::name::TimestampedName;
use tiledbfs::internals::format::schema::Schema;
use tiledbfs::internals::fragment::info::METADATA_FILE;
use tiledbfs::internals::storage::{Blob, MemoryBlob, MemoryStorage};

/// Bytes in front of the body of a tile that [`bare_tile`] makes.
pub const FRONT: usize = 34 + 8 + 8 + 12;

/// A generic tile of one chunk without filters.
pub fn bare_tile(version: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    let mut tile = version.to_le_bytes().to_vec();
    tile.extend((20 + body.len() as u64).to_le_bytes());
    tile.extend((body.len() as u64).to_le_bytes());
    tile.push(4);
    tile.extend(1u64.to_le_bytes());
    tile.push(0);
    tile.extend(8u32.to_le_bytes());
    tile.extend([0, 0, 1, 0, 0, 0, 0, 0]);
    tile.extend(1u64.to_le_bytes());
    tile.extend([length.to_le_bytes(), length.to_le_bytes(), [0; 4]].as_flattened());
    tile.extend(body);
    tile
}

/// The version and the body of a file that is one generic tile, not encrypted.
pub fn whole_tile(bytes: &[u8]) -> Option<(u32, Vec<u8>)> {
    let blob = MemoryBlob::new(bytes, "tile");
    let header = GenericTile::read_header(&blob, 0, None).ok()?;
    if header.data_end != blob.len() || header.encryption != Encryption::None {
        return None;
    }
    let (tile, body) = read_generic_tile(&blob, 0, None).ok()?;
    Some((tile.version, body))
}

/// The footer of a fragment's metadata: where it lies and what it says.
pub fn footer_of(path: &Path, bytes: &[u8], schema: &Schema) -> Option<(FooterPosition, Footer)> {
    let name = path.parent()?.file_name()?;
    let name = TimestampedName::parse(name.as_encoded_bytes()).ok()?;
    let last = bytes.last_chunk::<8>()?;
    let position = Footer::locate(name.name_version, Some(schema), bytes.len() as u64, *last).ok()?;
    let footer = bytes.get(position.offset as usize..(position.offset + position.size) as usize)?;
    let footer = Footer::parse(&mut Cursor::with_base(footer, position.offset), schema, true).ok()?;
    Some((position, footer))
}

/// Where the sections of a footer lie.
pub fn sections_of(footer: &Footer) -> Vec<u64> {
    let o = &footer.offsets;
    let lists = [
        &o.tile_offsets,
        &o.tile_var_offsets,
        &o.tile_var_sizes,
        &o.tile_validity_offsets,
        &o.tile_mins,
        &o.tile_maxs,
        &o.tile_sums,
        &o.tile_null_counts,
    ];
    let mut all = vec![o.rtree];
    all.extend(lists.into_iter().flatten());
    all.extend(o.fragment_statistics);
    all.extend(o.processed_conditions);
    all
}

/// A fragment's metadata file with bare tiles; None where it cannot be rewritten.
fn bare_fragment(path: &Path, bytes: &[u8], schema: &Schema) -> Option<Vec<u8>> {
    let (position, footer) = footer_of(path, bytes, schema)?;
    let offsets = sections_of(&footer);
    let mut moved: BTreeMap<u64, u64> = offsets.iter().map(|&offset| (offset, 0)).collect();
    let blob = MemoryBlob::new(bytes, "fragment");
    let mut out = Vec::new();
    for (old, new) in &mut moved {
        let (tile, body) = read_generic_tile(&blob, *old, None).ok()?;
        *new = out.len() as u64;
        out.extend(bare_tile(tile.version, &body));
    }
    // The offsets are the last words of the footer.
    let end = (position.offset + position.size) as usize;
    let start = end.checked_sub(8 * offsets.len())?;
    let mut tail = bytes.get(position.offset as usize..)?.to_vec();
    for at in (start..end).step_by(8) {
        let old = u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?);
        let at = at - position.offset as usize;
        tail.get_mut(at..at + 8)?
            .copy_from_slice(&moved.get(&old)?.to_le_bytes());
    }
    out.extend(tail);
    Some(out)
}

/// The same source with bare tiles wherever that can be done; None for an encrypted one.
pub fn bare_source(storage: &MemoryStorage) -> Option<MemoryStorage> {
    let mut out = storage.clone();
    let mut schema = None;
    for (path, bytes) in storage.files() {
        let text = path.to_string_lossy();
        let is_schema = text.contains("__schema/") || text.ends_with("__array_schema.tdb");
        let encrypted = GenericTile::read_header(&MemoryBlob::new(bytes.clone(), "tile"), 0, None)
            .is_ok_and(|tile| tile.encryption != Encryption::None);
        if is_schema && encrypted {
            return None;
        }
        if let Some((version, body)) = whole_tile(bytes) {
            if is_schema && !text.contains("__enumerations") {
                schema = Schema::parse(&body).ok().or(schema);
            }
            out.insert(&path, bare_tile(version, &body));
        }
    }
    for (path, bytes) in storage.files() {
        if path.file_name().is_some_and(|name| name == METADATA_FILE)
            && let Some(schema) = &schema
            && let Some(bytes) = bare_fragment(&path, bytes, schema)
        {
            out.insert(&path, bytes);
        }
    }
    Some(out)
}
