//! Makes the seeds of all targets from real arrays: `seeds OUTPUT ARRAYS…` writes `OUTPUT/<target>/<number>`.

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use tiledbfs::array::fragment::METADATA_FILE;
use tiledbfs::cursor::Cursor;
use tiledbfs::filter::EncryptionKey;
use tiledbfs::filter::generic::{GenericTile, read_generic_tile};
use tiledbfs::format::fragment::Footer;
use tiledbfs::format::name::TimestampedName;
use tiledbfs::format::schema::{Attribute, Schema};
use tiledbfs::storage::{MemoryBlob, MemoryStorage};
use tiledbfs_fuzz::{KEY, pack};

/// Larger inputs slow the fuzzer down more than they teach it.
const LARGEST: usize = 64 << 10;

/// Seeds of each target at most.
const MOST: usize = 400;

struct Seeds {
    output: PathBuf,
    seen: HashSet<(String, Vec<u8>)>,
}

impl Seeds {
    fn add(&mut self, target: &str, bytes: Vec<u8>) {
        let directory = self.output.join(target);
        let number = self.seen.iter().filter(|(other, _)| other == target).count();
        if bytes.len() > LARGEST || number >= MOST || !self.seen.insert((target.to_owned(), bytes.clone())) {
            return;
        }
        fs::create_dir_all(&directory).expect("the directory of seeds");
        fs::write(directory.join(format!("{number:04}")), bytes).expect("a seed");
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let output = arguments.next().expect("an output directory");
    let mut seeds = Seeds {
        output,
        seen: HashSet::new(),
    };
    for root in arguments {
        for source in sources(&root) {
            if let Ok(storage) = MemoryStorage::copy_of(&source) {
                one_source(&storage, &mut seeds);
            }
        }
    }
}

/// The arrays and groups below `root`, groups whole.
fn sources(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = waiting.pop() {
        let is = |name: &str| directory.join(name).exists();
        if is("__schema") || is("__array_schema.tdb") || is("__tiledb_group.tdb") || is("__group") {
            found.push(directory);
        } else {
            let entries = directory.read_dir().into_iter().flatten().flatten();
            waiting.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
    }
    // Not one version after the other: the first ones fill up what there is room for.
    found.sort_by_key(|path| {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        hasher.finish()
    });
    found
}

fn with(which: u8, bytes: &[u8]) -> Vec<u8> {
    [&[which], bytes].concat()
}

fn one_source(storage: &MemoryStorage, seeds: &mut Seeds) {
    seeds.add("array", pack(storage));
    let key = EncryptionKey::new(KEY);
    let mut schema = None;
    for (path, bytes) in storage.files() {
        let text = path.to_string_lossy().into_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let blob = MemoryBlob::new(bytes.clone(), &text);
        let generic = !bytes.is_empty() && !name.ends_with(".tdb") || name == "__array_schema.tdb";
        if generic && let Ok((_, body)) = read_generic_tile(&blob, 0, Some(&key)) {
            seeds.add("generic_tile", bytes.to_vec());
            let target = match () {
                _ if text.contains("__enumerations") => "enumeration",
                _ if text.contains("__schema") || name == "__array_schema.tdb" => "schema",
                _ if text.contains("__meta/") => "metadata",
                _ if text.contains("__group/") => "group",
                _ => "",
            };
            match target {
                "" if name.ends_with(".del") => seeds.add("commits", with(2, &body)),
                "" if name.ends_with(".upd") => seeds.add("commits", with(3, &body)),
                "" => {}
                target => seeds.add(target, body.clone()),
            }
            if target == "schema" {
                schema = Some(body);
            }
        }
        match name.rsplit('.').next() {
            Some("con") => seeds.add("commits", with(0, bytes)),
            Some("vac" | "ign") => seeds.add("commits", with(1, bytes)),
            Some("wrt" | "ok") => seeds.add("commits", with(4, name.as_bytes())),
            _ => {}
        }
    }
    let Some(body) = schema else { return };
    let Ok(parsed) = Schema::parse(&body) else { return };
    for (path, bytes) in storage.files() {
        if path.file_name().is_some_and(|name| name == METADATA_FILE) {
            fragment(seeds, &path, bytes, &body, &parsed);
        } else if let Some(attribute) = attribute_of(&path, &parsed) {
            tile(seeds, bytes, attribute, &body);
        }
    }
}

/// The sections and the footer of a fragment's metadata.
fn fragment(seeds: &mut Seeds, path: &Path, bytes: &[u8], body: &[u8], schema: &Schema) {
    let key = EncryptionKey::new(KEY);
    let name = path.parent().and_then(Path::file_name).unwrap_or_default();
    let Ok(name) = TimestampedName::parse(name.as_encoded_bytes()) else { return };
    let mut add = |which: u8, rest: &[u8]| {
        if let Ok(length) = u16::try_from(body.len()) {
            let front = [&length.to_le_bytes()[..], &[which, name.name_version as u8], body, rest];
            seeds.add("fragment_metadata", front.concat());
        }
    };
    let blob = MemoryBlob::new(bytes, "seed");
    if name.name_version <= 2 {
        if let Ok((_, body)) = read_generic_tile(&blob, 0, Some(&key)) {
            add(0, &body);
        }
        return;
    }
    let Some(word) = bytes.last_chunk::<8>() else { return };
    let Ok(position) = Footer::locate(name.name_version, Some(schema), bytes.len() as u64, *word) else {
        return;
    };
    let footer = &bytes[position.offset as usize..(position.offset + position.size) as usize];
    add(1, footer);
    let Ok(footer) = Footer::parse(&mut Cursor::new(footer), schema, true) else { return };
    let offsets = &footer.offsets;
    let mut section = |which: u8, offset: Option<u64>| {
        if let Some(offset) = offset
            && let Ok((_, body)) = read_generic_tile(&blob, offset, Some(&key))
        {
            add(which, &body);
        }
    };
    section(3, Some(offsets.rtree));
    section(4, offsets.tile_mins.first().copied());
    section(4, offsets.tile_maxs.last().copied());
    section(5, offsets.tile_offsets.first().copied());
    section(6, offsets.fragment_statistics);
    section(7, offsets.processed_conditions);
    let _ = GenericTile::read_header(&blob, offsets.rtree, Some(&key));
}

/// The attribute whose values a file holds.
fn attribute_of<'a>(path: &Path, schema: &'a Schema) -> Option<&'a Attribute> {
    let name = path.file_name()?.to_str()?.strip_suffix(".tdb")?;
    let name = name.strip_suffix("_var").unwrap_or(name);
    let by_number = name.strip_prefix('a').and_then(|number| number.parse::<usize>().ok());
    match by_number.and_then(|i| schema.attributes.get(i)) {
        Some(attribute) => Some(attribute),
        None => schema.attributes.iter().find(|a| a.name == name.as_bytes()),
    }
}

/// The first tile of a file of values, as inputs of `pipeline` and, where it has one filter, of `filter`.
fn tile(seeds: &mut Seeds, bytes: &[u8], attribute: &Attribute, _: &[u8]) {
    let Some((count, mut at)) = bytes.first_chunk::<8>().map(|word| (u64::from_le_bytes(*word), 8)) else {
        return;
    };
    let (mut chunks, mut original_bytes) = (Vec::new(), 0u32);
    for _ in 0..count.min(1000) {
        let Ok([original, filtered, metadata]) = lengths(bytes, at) else { return };
        original_bytes = original_bytes.saturating_add(original);
        let (start, middle) = (at + 12, at + 12 + metadata as usize);
        at = middle + filtered as usize;
        let (Some(metadata), Some(data)) = (bytes.get(start..middle), bytes.get(middle..at)) else {
            return;
        };
        chunks.push((original, metadata, data));
    }
    let size = attribute.cell_size().unwrap_or(attribute.datatype.size() as u64);
    let stored = stored_pipeline(attribute);
    let front = |original: u32| {
        let cells = (u64::from(original) / size.max(1)) as u16;
        let mut out = vec![attribute.datatype as u8, size as u8, 22, 1];
        out.extend(original.to_le_bytes());
        out.extend(cells.to_le_bytes());
        out
    };
    let mut whole = front(0);
    whole.extend((stored.len() as u16).to_le_bytes());
    whole.extend(&stored);
    whole.extend(original_bytes.to_le_bytes());
    whole.extend(&bytes[..at]);
    seeds.add("pipeline", whole);
    // Behind the chunk size u32, the count u32 and the number of the filter.
    if stored.get(4..8) == Some(&1u32.to_le_bytes()) {
        for (original, metadata, data) in chunks.into_iter().take(2) {
            let mut one = front(original);
            one.push(stored[8]);
            one.push((stored.len() - 13) as u8);
            one.extend(&stored[13..]);
            one.extend((metadata.len() as u16).to_le_bytes());
            one.extend(metadata);
            one.extend(data);
            seeds.add("filter", one);
        }
    }
}

fn lengths(bytes: &[u8], at: usize) -> tiledbfs::Result<[u32; 3]> {
    let mut c = Cursor::new(bytes.get(at..).unwrap_or_default());
    Ok([c.u32("original")?, c.u32("filtered")?, c.u32("metadata")?])
}

/// A pipeline as it is stored: of each filter its number and its options.
fn stored_pipeline(attribute: &Attribute) -> Vec<u8> {
    use tiledbfs::format::pipeline::{Codec, Filter};
    let mut out = 65536u32.to_le_bytes().to_vec();
    out.extend((attribute.filters.filters.len() as u32).to_le_bytes());
    for filter in &attribute.filters.filters {
        let (number, options): (u8, Vec<u8>) = match filter {
            Filter::Noop => (0, vec![]),
            Filter::Compression { codec, level, reinterpret } => {
                let (number, compressor) = match codec {
                    Codec::Gzip => (1, 1),
                    Codec::Zstd => (2, 2),
                    Codec::Lz4 => (3, 3),
                    Codec::Rle => (4, 4),
                    Codec::Bzip2 => (5, 5),
                    Codec::DoubleDelta => (6, 6),
                    Codec::Dictionary => (14, 7),
                    Codec::Delta => (19, 8),
                };
                let mut options = vec![compressor];
                options.extend(level.to_le_bytes());
                options.extend(reinterpret.map(|datatype| datatype as u8));
                (number, options)
            }
            Filter::BitWidthReduction { max_window_size } => (7, max_window_size.to_le_bytes().to_vec()),
            Filter::Bitshuffle => (8, vec![]),
            Filter::Byteshuffle => (9, vec![]),
            Filter::PositiveDelta { max_window_size } => (10, max_window_size.to_le_bytes().to_vec()),
            Filter::Aes256Gcm => (11, vec![]),
            Filter::ChecksumMd5 => (12, vec![]),
            Filter::ChecksumSha256 => (13, vec![]),
            Filter::Xor => (16, vec![]),
            Filter::ScaleFloat { .. } | Filter::Webp { .. } | Filter::Unknown { .. } => {
                let mut options = 1f64.to_le_bytes().to_vec();
                options.extend(0f64.to_le_bytes());
                options.extend(4u64.to_le_bytes());
                (15, options)
            }
        };
        out.push(number);
        out.extend((options.len() as u32).to_le_bytes());
        out.extend(options);
    }
    out
}
