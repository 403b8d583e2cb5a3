//! Makes the seeds of all targets from real arrays: `seeds OUTPUT ARRAYS…` writes `OUTPUT/<target>/<number>`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use tiledbfs::internals::cursor::Cursor;
use tiledbfs::internals::filter::generic::read_generic_tile;
use tiledbfs::internals::format::datatype::{CellValNum, Datatype};
use tiledbfs::internals::format::enums::Encryption;
use tiledbfs::internals::format::name::TimestampedName;
use tiledbfs::internals::format::pipeline::{Codec, Filter, Pipeline};
use tiledbfs::internals::format::schema::{Dimension, Schema};
use tiledbfs::internals::fragment::info::METADATA_FILE;
use tiledbfs::internals::query::DimRange;
use tiledbfs::internals::storage::{MemoryBlob, MemoryStorage};
use tiledbfs_fuzz::arrays::Dice;
use tiledbfs_fuzz::bare::{bare_source, bare_tile, footer_of};
use tiledbfs_fuzz::chunks::{EMBEDS, FILTERS, FOLLOWS, NO_CELLS, PROPAGATES, SEALS};
use tiledbfs_fuzz::conventions;
use tiledbfs_fuzz::paths::text_of;
use tiledbfs_fuzz::{key, pack};

/// Larger inputs slow the fuzzer down more than they teach it.
const LARGEST: usize = 64 << 10;

/// Seeds of each target and kind at most.
const MOST: usize = 60;

/// What is not told apart by kind.
const MORE: usize = 400;

struct Seeds {
    output: PathBuf,
    seen: HashSet<(String, Vec<u8>)>,
    counts: HashMap<(String, u32), usize>,
}

impl Seeds {
    fn add(&mut self, target: &str, bytes: Vec<u8>) {
        self.add_of(target, 0, MORE, bytes);
    }

    /// One of a kind that is not to be crowded out by others.
    fn add_of(&mut self, target: &str, kind: u32, most: usize, bytes: Vec<u8>) {
        let count = self.counts.entry((target.to_owned(), kind)).or_default();
        if bytes.len() > LARGEST || *count >= most || !self.seen.insert((target.to_owned(), bytes.clone())) {
            return;
        }
        let directory = self.output.join(target);
        fs::create_dir_all(&directory).expect("the directory of seeds");
        fs::write(directory.join(format!("{kind:03}-{count:04}")), bytes).expect("a seed");
        *count += 1;
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let output = arguments.next().expect("an output directory");
    let mut seeds = Seeds {
        output,
        seen: HashSet::new(),
        counts: HashMap::new(),
    };
    // Decisions alone: small arrays are made of them.
    let mut decisions = Dice::new(b"decisions");
    for length in (20..220).step_by(2) {
        let decided = (0..length).map(|_| decisions.random() as u8);
        seeds.add("exports", decided.collect());
    }
    for body in conventions::seeds() {
        seeds.add("conventions", body);
    }
    propfind(&mut seeds);
    requests(&mut seeds);
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

/// Names of times, and of parts of the domain of a schema.
fn paths(seeds: &mut Seeds, body: &[u8]) {
    let (Ok(length), Ok(schema)) = (u16::try_from(body.len()), Schema::parse(body)) else {
        return;
    };
    let all: Vec<DimRange> = schema
        .dimensions
        .iter()
        .map(|dimension| DimRange {
            lo: dimension.domain.as_ref().map(|domain| domain.lo.clone()),
            hi: dimension.domain.as_ref().map(|domain| domain.hi.clone()),
        })
        .collect();
    let name = |d: &Dimension| String::from_utf8_lossy(&d.name).into_owned();
    let named: Vec<_> = schema.dimensions.iter().map(|d| name(d) + "=1..2").collect();
    let dates = vec!["1970-01-01..2025-02-28T23:59:59.5"; schema.dimensions.len()];
    let names = [
        text_of(&all, &schema.dimensions),
        named.join(","),
        dates.join(","),
        "2025-02-04T000000Z..2025-03".to_string(),
    ];
    for (kind, name) in (0..).zip(names) {
        seeds.add_of(
            "paths",
            kind,
            MOST,
            [&length.to_le_bytes()[..], body, name.as_bytes()].concat(),
        );
    }
}

/// Requests of several clients.
fn propfind(seeds: &mut Seeds) {
    let bodies = [
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\">\n<D:prop>\n<D:getlastmodified/>\n\
         <D:resourcetype/>\n</D:prop>\n</D:propfind>\n",
        "<propfind xmlns=\"DAV:\"><prop>\n<getetag xmlns=\"DAV:\"/>\n\
         <executable xmlns=\"http://apache.org/dav/props/\"/></prop></propfind>",
        "<d:propfind xmlns:d='DAV:'><d:allprop/><d:include><x:a xmlns:x='&lt;&#34;'>b</x:a></d:include></d:propfind>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><propfind xmlns=\"DAV:\"><propname/></propfind>",
    ];
    for (kind, body) in (0..).zip(bodies) {
        seeds.add_of("propfind", kind, MOST, body.as_bytes().to_vec());
    }
}

/// Heads, paths and ranges.
fn requests(seeds: &mut Seeds) {
    for size in [1, 7, 255] {
        let received =
            b"GET /a%20b/?c HTTP/1.1\r\nHost: a\r\n\r\nPROPFIND / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde\
            PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        seeds.add("framing", with(size, received));
    }
    for path in [
        "/",
        "/a/b/",
        "/a%2Fb/%5c\\",
        "/%252e%252E/...",
        "/%ff",
        "//a",
        "/%2e%2E/",
    ] {
        seeds.add("url_path", path.as_bytes().to_vec());
    }
    for header in [
        "bytes=0-0",
        "bytes=-7",
        "bytes=5-",
        "bytes=0-50,10-20,\t40-60 ,,",
        "bytes=98-18446744073709551615",
    ] {
        seeds.add("range", [&100u32.to_le_bytes()[..], header.as_bytes()].concat());
    }
}

fn with(which: u8, bytes: &[u8]) -> Vec<u8> {
    [&[which], bytes].concat()
}

fn one_source(storage: &MemoryStorage, seeds: &mut Seeds) {
    // Filtered as they were written, and with metadata that the fuzzer can change.
    seeds.add_of("array", 0, 150, pack(storage));
    if let Some(bare) = bare_source(storage) {
        seeds.add_of("array", 1, 300, pack(&bare));
    }
    let key = key();
    let (mut schema, mut encrypted) = (None, false);
    let mut conditions = Vec::new();
    for (path, bytes) in storage.files() {
        let text = path.to_string_lossy().into_owned();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let blob = MemoryBlob::new(bytes.clone(), &text);
        let generic = !bytes.is_empty() && !name.ends_with(".tdb") || name == "__array_schema.tdb";
        if generic && let Ok((tile, body)) = read_generic_tile(&blob, 0, Some(&key)) {
            seeds.add("generic_tile", bytes.to_vec());
            seeds.add_of("generic_tile", 1, MOST, bare_tile(22, &body));
            let target = match () {
                _ if text.contains("__enumerations") => "enumeration",
                _ if text.contains("__schema") || name == "__array_schema.tdb" => "schema",
                _ if text.contains("__meta/") => "metadata",
                _ if text.contains("__group/") => "group",
                _ => "",
            };
            match target {
                "" if name.ends_with(".del") => {
                    seeds.add("commits", with(2, &body));
                    conditions.push(body.clone());
                }
                "" if name.ends_with(".upd") => seeds.add("commits", with(3, &body)),
                "" => {}
                target => seeds.add(target, body.clone()),
            }
            if target == "schema" {
                paths(seeds, &body);
                schema = Some(body);
                encrypted |= tile.encryption != Encryption::None;
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
    for (i, condition) in conditions.iter().enumerate() {
        let (Ok(schema_length), Ok(length)) = (u16::try_from(body.len()), u16::try_from(condition.len()))
        else {
            continue;
        };
        let mut one = vec![0, i as u8, 12, 5];
        one.extend(schema_length.to_le_bytes());
        one.extend(&body);
        one.extend(length.to_le_bytes());
        one.extend(condition);
        one.extend((0..=255).map(|byte: u8| byte.wrapping_mul(37) % 5));
        seeds.add("condition", one);
    }
    let Ok(parsed) = Schema::parse(&body) else { return };
    for (path, bytes) in storage.files() {
        if path.file_name().is_some_and(|name| name == METADATA_FILE) {
            fragment(seeds, &path, bytes, &body, &parsed);
        } else if let Some(mut values) = values_of(&path, &parsed) {
            if encrypted {
                values.pipeline.filters.push(Filter::Aes256Gcm);
            }
            tile(seeds, bytes, &values);
        }
    }
}

/// The sections and the footer of a fragment's metadata.
fn fragment(seeds: &mut Seeds, path: &Path, bytes: &[u8], body: &[u8], schema: &Schema) {
    let key = key();
    let name = path.parent().and_then(Path::file_name).unwrap_or_default();
    let Ok(name) = TimestampedName::parse(name.as_encoded_bytes()) else {
        return;
    };
    let version = name.name_version as u8;
    let mut add = |which: u8, rest: &[u8]| {
        if let Ok(length) = u16::try_from(body.len()) {
            let front = [&length.to_le_bytes()[..], &[which, version], body, rest];
            let kind = u32::from(which) * 32 + u32::from(version);
            seeds.add_of("fragment_metadata", kind, 12, front.concat());
        }
    };
    let blob = MemoryBlob::new(bytes, "seed");
    if version <= 2 {
        if let Ok((_, body)) = read_generic_tile(&blob, 0, Some(&key)) {
            add(0, &body);
        }
        return;
    }
    let Some((position, footer)) = footer_of(path, bytes, schema) else {
        return;
    };
    add(1, &bytes[position.offset as usize..][..position.size as usize]);
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
}

/// What the tiles of a file are filtered with.
struct Values {
    pipeline: Pipeline,
    datatype: Datatype,
    cell_size: u64,
    version: u32,
    embeds: bool,
}

/// The same, by the name of the file.
fn values_of(path: &Path, schema: &Schema) -> Option<Values> {
    let fragment = path.parent()?.file_name()?;
    let version = TimestampedName::parse(fragment.as_encoded_bytes())
        .ok()?
        .name_version;
    let name = path.file_name()?.to_str()?.strip_suffix(".tdb")?;
    let (name, part) = match (name.strip_suffix("_var"), name.strip_suffix("_validity")) {
        (Some(name), _) => (name, 1),
        (_, Some(name)) => (name, 2),
        _ => (name, 0),
    };
    let number = |letter| {
        name.strip_prefix(letter)
            .and_then(|text: &str| text.parse::<usize>().ok())
    };
    let attribute = number('a').and_then(|i| schema.attributes.get(i));
    let attribute = attribute.or_else(|| schema.attributes.iter().find(|a| a.name == name.as_bytes()));
    let (pipeline, datatype, cell_val_num) = match (attribute, number('d')) {
        (Some(a), _) => (&a.filters, a.datatype, a.cell_val_num),
        (None, Some(i)) => {
            let dimension = schema.dimensions.get(i)?;
            (
                schema.dimension_filters(i),
                dimension.datatype,
                dimension.cell_val_num,
            )
        }
        _ => return None,
    };
    let is_var = cell_val_num.is_var();
    let strings = Some(pipeline).filter(|p| {
        matches!(
            p.filters.first(),
            Some(Filter::Compression {
                codec: Codec::Rle | Codec::Dictionary,
                ..
            })
        )
    });
    let (pipeline, datatype, cell_size) = match (part, is_var) {
        (2, _) => (schema.validity_filters.as_ref()?, Datatype::Uint8, 1),
        (0, true) => (&schema.offsets_filters, Datatype::Uint64, 8),
        (_, true) => (pipeline, datatype, datatype.size() as u64),
        (_, false) => {
            let values = match cell_val_num {
                CellValNum::Fixed(n) => u64::from(n),
                CellValNum::Var => 1,
            };
            (pipeline, datatype, values * datatype.size() as u64)
        }
    };
    Some(Values {
        pipeline: pipeline.clone(),
        datatype,
        cell_size,
        version,
        embeds: part == 1 && strings.is_some() && version >= 12,
    })
}

/// The first tile of a file of values, as inputs of `pipeline` and, where it has one filter, of `filter`.
fn tile(seeds: &mut Seeds, bytes: &[u8], values: &Values) {
    let Some((count, mut at)) = bytes
        .first_chunk::<8>()
        .map(|word| (u64::from_le_bytes(*word), 8))
    else {
        return;
    };
    let (mut chunks, mut original_bytes) = (Vec::new(), 0u32);
    for _ in 0..count.min(1000) {
        let Ok([original, filtered, metadata]) = lengths(bytes, at) else {
            return;
        };
        original_bytes = original_bytes.saturating_add(original);
        let (start, middle) = (at + 12, at + 12 + metadata as usize);
        at = middle + filtered as usize;
        let (Some(metadata), Some(data)) = (bytes.get(start..middle), bytes.get(middle..at)) else {
            return;
        };
        chunks.push((original, metadata, data));
    }
    let Some(filters) = values
        .pipeline
        .filters
        .iter()
        .map(stored_filter)
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let switches = FOLLOWS
        | if values.version >= 20 { PROPAGATES } else { 0 }
        | if values.embeds { EMBEDS | NO_CELLS } else { 0 };
    let front = |original: u32, switches: u8| {
        let cells = (u64::from(original) / values.cell_size.max(1)) as u16;
        let mut out = vec![
            values.datatype as u8,
            values.cell_size as u8,
            values.version as u8,
            switches,
        ];
        out.extend(original.to_le_bytes());
        out.extend(cells.to_le_bytes());
        out
    };
    let whole = |switches: u8, filters: &[Vec<u8>]| {
        let mut whole = front(0, switches);
        whole.push(filters.len() as u8);
        whole.extend(filters.concat());
        whole.extend(original_bytes.to_le_bytes());
        whole.extend(&bytes[..at]);
        whole
    };
    // As many of each chain of filters.
    let mut chain = DefaultHasher::new();
    values
        .pipeline
        .filters
        .iter()
        .for_each(|filter| filter.name().hash(&mut chain));
    let chain = (chain.finish() % 256) as u32;
    seeds.add_of("pipeline", chain, 6, whole(switches, &filters));
    // The same tile behind digests and tags.
    let seals = [Filter::ChecksumMd5, Filter::ChecksumSha256, Filter::Aes256Gcm];
    let seal = stored_filter(&seals[at % 3]).expect("a seal");
    let mut sealed = filters.clone();
    sealed.push(seal.clone());
    seeds.add_of("pipeline", 256 + chain, 2, whole(switches | SEALS, &sealed));
    if let ([], Some((original, metadata, data))) = (&filters[..], chunks.first()) {
        let mut one = front(*original, switches | SEALS);
        one.extend(&seal);
        one.extend((metadata.len() as u16).to_le_bytes());
        one.extend(*metadata);
        one.extend(*data);
        seeds.add_of("filter", 256 + u32::from(seal[0]), MOST, one);
    }
    if let [filter] = &filters[..] {
        for (original, metadata, data) in chunks.into_iter().take(2) {
            let mut one = front(original, switches);
            one.extend(filter);
            one.extend((metadata.len() as u16).to_le_bytes());
            one.extend(metadata);
            one.extend(data);
            seeds.add_of("filter", u32::from(filter[0]), MOST, one);
        }
    }
}

fn lengths(bytes: &[u8], at: usize) -> tiledbfs::Result<[u32; 3]> {
    let mut c = Cursor::new(bytes.get(at..).unwrap_or_default());
    Ok([c.u32("original")?, c.u32("filtered")?, c.u32("metadata")?])
}

/// A filter as the targets read it: its place in their table and its options.
fn stored_filter(filter: &Filter) -> Option<Vec<u8>> {
    let (number, options): (u8, Vec<u8>) = match filter {
        Filter::Compression {
            codec,
            level,
            reinterpret,
        } => {
            let number = match codec {
                Codec::Gzip => 1,
                Codec::Zstd => 2,
                Codec::Lz4 => 3,
                Codec::Rle => 4,
                Codec::Bzip2 => 5,
                Codec::DoubleDelta => 6,
                Codec::Dictionary => 14,
                Codec::Delta => 19,
                _ => return None,
            };
            let mut options = vec![0];
            options.extend(level.to_le_bytes());
            if matches!(number, 6 | 19) {
                options.push(reinterpret.unwrap_or(Datatype::Any) as u8);
            }
            (number, options)
        }
        Filter::BitWidthReduction { max_window_size } => (7, max_window_size.to_le_bytes().to_vec()),
        Filter::Bitshuffle => (8, vec![]),
        Filter::Byteshuffle => (9, vec![]),
        Filter::PositiveDelta { max_window_size } => (10, max_window_size.to_le_bytes().to_vec()),
        Filter::Aes256Gcm => (11, vec![]),
        Filter::ChecksumMd5 => (12, vec![]),
        Filter::ChecksumSha256 => (13, vec![]),
        Filter::ScaleFloat {
            scale,
            offset,
            byte_width,
        } => {
            let mut options = scale.to_le_bytes().to_vec();
            options.extend(offset.to_le_bytes());
            options.extend((1u64 << byte_width.trailing_zeros()).to_le_bytes());
            (15, options)
        }
        Filter::Xor => (16, vec![]),
        Filter::Webp {
            quality,
            format,
            lossless,
            y_extent,
            x_extent,
        } => {
            let mut options = quality.to_le_bytes().to_vec();
            options.extend([*format as u8, u8::from(*lossless)]);
            options.extend(y_extent.to_le_bytes());
            options.extend(x_extent.to_le_bytes());
            options.extend([0; 2]);
            (18, options)
        }
        _ => return None,
    };
    let place = FILTERS.iter().position(|(filter, _, _)| *filter == number)?;
    Some([&[place as u8], &options[..]].concat())
}
