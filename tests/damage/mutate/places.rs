//! Finds the structure that a byte of a source belongs to, and whether a checksum protects it.

use super::{Files, Kind, Mutation};
use std::path::Path;
use tiledbfs::internals::filter::EncryptionKey;
use tiledbfs::internals::filter::generic::{GenericTile, read_generic_tile};
use tiledbfs::internals::format::pipeline::{Codec, Filter, Pipeline};
use tiledbfs::internals::format::schema::Schema;
use tiledbfs::internals::storage::MemoryBlob;

/// The key of the encrypted array of `tests/data`, and that of other arrays.
pub const KEYS: [&[u8; 32]; 2] = [
    b"versions of TileDB, 32 bytes key",
    b"0123456789abcdeF0123456789abcdeF",
];

/// The structure that a changed byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Structure {
    /// A chunk under a checksum or an authentication tag: MD5, SHA-256, Adler-32, CRC-32, GCM.
    Checked,
    /// A compressed chunk without a checksum.
    Compressed,
    /// A chunk that is stored unchanged or only rearranged.
    Plain,
    /// The number and the lengths of chunks.
    ChunkHeader,
    /// The header of a generic tile, with its pipeline.
    TileHeader,
    /// The footer of a fragment's metadata.
    Footer,
    /// A file of lines, or of an unknown kind.
    Text,
    /// A whole file.
    Whole,
}

/// Whether a checksum detects every change of a chunk that went through `pipeline`.
fn checks(pipeline: &Pipeline, encrypted: bool) -> bool {
    encrypted
        || pipeline.filters.iter().any(|filter| {
            let Filter::Compression { codec, .. } = filter else {
                return matches!(
                    filter,
                    Filter::ChecksumMd5 | Filter::ChecksumSha256 | Filter::Aes256Gcm
                );
            };
            matches!(codec, Codec::Gzip | Codec::Bzip2)
        })
}

fn place_of_chunk(pipeline: &Pipeline, encrypted: bool) -> Structure {
    if checks(pipeline, encrypted) {
        Structure::Checked
    } else if pipeline
        .filters
        .iter()
        .any(|f| matches!(f, Filter::Compression { .. }))
    {
        Structure::Compressed
    } else {
        Structure::Plain
    }
}

/// The filters of the chunks of data files, by prefix of the file's name, for arrays with one schema.
pub struct Pipelines {
    files: Vec<(String, Structure)>,
    /// Whether the array is encrypted.
    pub encrypted: bool,
}

impl Pipelines {
    pub fn of(files: &Files) -> Pipelines {
        let mut found = Pipelines {
            files: Vec::new(),
            encrypted: false,
        };
        let is_schema = |path: &Path| {
            path.parent().is_some_and(|p| p.ends_with("__schema")) || path.ends_with("__array_schema.tdb")
        };
        let schemas: Vec<_> = files.iter().filter(|(path, _)| is_schema(path)).collect();
        let [(_, bytes)] = schemas[..] else { return found };
        let blob = MemoryBlob::new(bytes.clone(), "schema");
        let read = |key: &[u8; 32]| read_generic_tile(&blob, 0, Some(&EncryptionKey::new(*key))).ok();
        let Some((tile, body)) = KEYS.into_iter().find_map(read) else {
            return found;
        };
        let Ok(schema) = Schema::parse(&body) else {
            return found;
        };
        let encrypted = tile.codec.pipeline().filters.contains(&Filter::Aes256Gcm);
        found.encrypted = encrypted;
        let mut add = |name: String, pipeline: &Pipeline| {
            found
                .files
                .push((format!("{name}.tdb"), place_of_chunk(pipeline, encrypted)));
        };
        let fields = schema.attributes.iter().enumerate().map(|(i, a)| {
            (
                format!("a{i}"),
                a.name.clone(),
                a.cell_val_num.is_var(),
                &a.filters,
            )
        });
        let dimensions = schema.dimensions.iter().enumerate().map(|(i, d)| {
            (
                format!("d{i}"),
                d.name.clone(),
                d.cell_val_num.is_var(),
                schema.dimension_filters(i),
            )
        });
        for (numbered, named, is_var, filters) in fields.chain(dimensions) {
            // Files are named by number from version 9 on, by field name before.
            for name in [numbered, String::from_utf8_lossy(&named).into_owned()] {
                add(
                    name.clone(),
                    if is_var { &schema.offsets_filters } else { filters },
                );
                add(format!("{name}_var"), filters);
                if let Some(filters) = &schema.validity_filters {
                    add(format!("{name}_validity"), filters);
                }
            }
        }
        found
    }

    fn of_file(&self, name: &str) -> Structure {
        let found = self.files.iter().find(|(file, _)| file == name);
        found.map_or(Structure::Plain, |(_, place)| *place)
    }
}

fn is_values(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".tdb") && name != "__fragment_metadata.tdb" && name != "__array_schema.tdb"
}

/// The parts of a file: the end of each, and its kind.
fn parts(path: &Path, bytes: &[u8], pipelines: &Pipelines) -> Vec<(usize, Structure)> {
    let mut parts = Vec::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_values(path) {
        let place = pipelines.of_file(&name);
        let mut at = 0;
        while at + 8 <= bytes.len() {
            let Some(end) = chunks(bytes, at, bytes.len(), place, &mut parts) else {
                break;
            };
            at = end;
        }
        parts.push((bytes.len(), Structure::ChunkHeader));
        return parts;
    }
    let blob = MemoryBlob::new(bytes, "file");
    let mut at = 0;
    while let Ok(tile) = GenericTile::read_header(&blob, at as u64, None) {
        let (start, end) = (tile.data_start as usize, tile.data_end as usize);
        parts.push((start, Structure::TileHeader));
        let place = place_of_chunk(tile.codec.pipeline(), false);
        chunks(bytes, start, end, place, &mut parts);
        at = end;
    }
    let rest = match name == "__fragment_metadata.tdb" {
        true => Structure::Footer,
        false => Structure::Text,
    };
    parts.push((bytes.len(), rest));
    parts
}

/// The parts of a tile in `[start, end)`, and the tile's end.
fn chunks(
    bytes: &[u8],
    start: usize,
    end: usize,
    place: Structure,
    parts: &mut Vec<(usize, Structure)>,
) -> Option<usize> {
    let count = u64::from_le_bytes(*bytes.get(start..)?.first_chunk()?);
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
    let mut at = start + 8;
    for _ in 0..count {
        let next = at + 12 + word(at + 4)? + word(at + 8)?;
        if next > end {
            return None;
        }
        parts.push((at + 12, Structure::ChunkHeader));
        parts.push((next, place));
        at = next;
    }
    parts.push((at, Structure::ChunkHeader));
    Some(at)
}

/// The part of a file that a mutation changed; the file was `intact`.
pub fn place(mutation: &Mutation, intact: &[u8], pipelines: &Pipelines) -> Structure {
    let Some(now) = mutation.bytes.as_deref() else {
        return Structure::Whole;
    };
    if mutation.kind == Kind::Swap {
        return Structure::Whole;
    }
    let parts = parts(&mutation.file, intact, pipelines);
    let at = |offset: usize| {
        parts
            .iter()
            .find(|(end, _)| offset.min(intact.len().saturating_sub(1)) < *end)
            .map_or(Structure::Text, |(_, place)| *place)
    };
    let first = at(mutation.offset);
    let last = (0..intact.len().min(now.len()))
        .rev()
        .find(|&i| intact[i] != now[i]);
    match last.map(at) {
        // A change across two parts is as weak as the weaker one.
        Some(last) if last != first => first.max(last),
        _ => first,
    }
}

/// Whether the format detects a mutation, by a checksum or the length of a file, so that the changed part may
/// fail to read but never read as something else.
pub fn is_told(mutation: &Mutation, place: Structure) -> bool {
    match mutation.kind {
        Kind::BitFlip | Kind::Count => place == Structure::Checked,
        Kind::Truncate | Kind::Append => place != Structure::Text,
        Kind::Swap | Kind::Missing => false,
    }
}
