//! What each fuzz target does with its input, apart from the fuzzer, so that the ordinary tests run the same code over the inputs that once
//! failed (`tests/regressions`).
//!
//! A body may not panic, whatever the input. Inputs are layouts of their own where a parser needs more than one slice: each function says which.

use std::path::PathBuf;
use std::sync::Arc;
use tiledbfs::array::group::replay;
use tiledbfs::cursor::Cursor;
use tiledbfs::filter::chunk::ChunkIndex;
use tiledbfs::filter::generic::{GenericTile, read_generic_tile};
use tiledbfs::filter::{EncryptionKey, TileCodec};
use tiledbfs::format::commits;
use tiledbfs::format::condition::Condition;
use tiledbfs::format::datatype::Datatype;
use tiledbfs::format::enumeration::Enumeration;
use tiledbfs::format::fragment::{Boxes, Footer, LegacyMetadata, MinMax, RTree, sections};
use tiledbfs::format::group::GroupDetails;
use tiledbfs::format::metadata::parse_metadata;
use tiledbfs::format::name::TimestampedName;
use tiledbfs::format::pipeline::Pipeline;
use tiledbfs::format::schema::Schema;
use tiledbfs::storage::{Blob, MemoryBlob, MemoryStorage};
use tiledbfs::tree::json::metadata::Pairs;
use tiledbfs::tree::json::{self, render};
use tiledbfs::tree::walk::{Limits, walk};
use tiledbfs::tree::{Options, Tree};

/// A fuzz target: its name and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("generic_tile", generic_tile),
    ("schema", schema),
    ("fragment_metadata", fragment_metadata),
    ("commits", commits),
    ("metadata", metadata),
    ("group", group),
    ("enumeration", enumeration),
    ("filter", filter),
    ("pipeline", pipeline),
    ("array", array),
];

/// The key of the encrypted arrays that seeds are made from.
pub const KEY: [u8; 32] = *b"0123456789abcdeF0123456789abcdeF";

fn key() -> EncryptionKey {
    EncryptionKey::new(KEY)
}

/// A file that begins with a generic tile.
pub fn generic_tile(data: &[u8]) {
    let blob = MemoryBlob::new(data, "fuzz");
    let whole = read_generic_tile(&blob, 0, Some(&key()));
    let Ok(tile) = GenericTile::read_header(&blob, 0, Some(&key())) else {
        assert!(whole.is_err());
        return;
    };
    if let (Ok(index), Ok((_, whole))) = (tile.index(&blob), whole) {
        assert_eq!(index.original_length(), whole.len() as u64);
        assert_eq!(tile.size, whole.len() as u64);
    }
}

/// The body of a schema.
pub fn schema(data: &[u8]) {
    if let Ok(schema) = Schema::parse(data) {
        render(&json::schema::schema_json(&schema, "fuzz"));
    }
}

/// The length of a schema's body u16, that body, a version, and a footer or the body of a section.
pub fn fragment_metadata(data: &[u8]) {
    let mut c = Cursor::new(data);
    let (Ok(length), Ok(which), Ok(version)) = (c.u16("length"), c.u8("which"), c.u8("version")) else {
        return;
    };
    let Ok(Ok(schema)) = c.bytes(u64::from(length), "schema").map(Schema::parse) else {
        return;
    };
    let (rest, version) = (c.rest(), u32::from(version));
    match which % 8 {
        0 => {
            if let Ok(legacy) = LegacyMetadata::parse(rest, &schema) {
                render(&json::footer::legacy_json(&legacy, &schema, false, 0, 0));
                let boxes = legacy.mbrs;
                render_rtree(None, vec![boxes.boxes], &boxes.body, &schema);
            }
        }
        1 | 2 => {
            let mut footer = Cursor::with_base(rest, 1 << 30);
            if let Ok(footer) = Footer::parse(&mut footer, &schema, which % 8 == 1) {
                let _ = footer.check_sections(1 << 30);
            }
            let _ = Footer::peek(&mut Cursor::new(rest));
            if let Some((size, word)) = rest.split_first_chunk::<8>().zip(rest.last_chunk::<8>()) {
                let size = u64::from_le_bytes(*size.0);
                let _ = Footer::locate(version, Some(&schema), size, *word);
            }
        }
        3 => {
            if let Ok(rtree) = RTree::parse(&rest, version, &schema) {
                render_rtree(Some(rtree.fanout), rtree.levels, rest, &schema);
            }
        }
        4 => {
            if let Ok(values) = MinMax::parse(rest) {
                for tile in [0, 1, 7, u64::MAX] {
                    values.tile(tile, None);
                    values.tile(tile, Some(8));
                    values.tile(tile, Some(u64::MAX));
                }
            }
        }
        5 => {
            if let Ok(list) = sections::parse_u64_list(rest) {
                let _ = sections::check_tile_offsets(&list, list.len() as u64, 1 << 40);
            }
        }
        6 => {
            let _ = sections::parse_fragment_statistics(rest, usize::from(length % 64));
        }
        _ => {
            let _ = sections::parse_processed_conditions(rest);
            let _ = commits::parse_consolidated_metadata(&rest);
        }
    }
}

fn render_rtree(fanout: Option<u32>, levels: Vec<Boxes>, body: &[u8], schema: &Schema) {
    let (body, schema) = (Arc::new(body.to_vec()), Arc::new(schema.clone()));
    let _ = json::rtree::rtree_segments(fanout, levels, body, schema).and_then(|document| document.render());
}

/// Which parser, then a consolidated commit file, lines, the body of a delete or update condition, or a name.
pub fn commits(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let show = |condition: &Condition| {
        render(&json::commits::condition_json(condition, &|_| None));
        json::commits::condition_text(condition, &|_| {
            Some((Datatype::Int32, tiledbfs::format::datatype::CellValNum::Var))
        });
    };
    match which % 5 {
        0 => {
            let _ = commits::parse_consolidated(rest);
        }
        1 => {
            for line in commits::parse_lines(rest) {
                commits::normalise_path(&line);
            }
        }
        2 => {
            if let Ok(condition) = Condition::parse(rest) {
                show(&condition);
            }
        }
        3 => {
            if let Ok((condition, _)) = Condition::parse_update(rest) {
                show(&condition);
            }
        }
        _ => {
            let _ = TimestampedName::parse(rest);
        }
    }
}

/// The body of a metadata file.
pub fn metadata(data: &[u8]) {
    let _ = parse_metadata(data);
    let mut pairs = Pairs::new();
    if pairs.replay(&data.to_vec()).is_ok() {
        let _ = pairs
            .document(vec![Box::new(data.to_vec())])
            .and_then(|document| document.render());
    }
}

/// The body of a file of group details.
pub fn group(data: &[u8]) {
    if let Ok(details) = GroupDetails::parse(data) {
        let group = replay([details.clone(), details]);
        render(&json::group::group_json(group.version, &group.members));
    }
}

/// The body of an enumeration.
pub fn enumeration(data: &[u8]) {
    let parsed = Enumeration::parse(data);
    let shown = json::enumeration::enumeration_segments(data.to_vec());
    // Both parsers take the same enumerations, but for names and values too long to be shown.
    assert!(parsed.is_ok() || shown.is_err());
    let _ = shown.and_then(|document| document.render());
}

/// One filter on one chunk: datatype, cell size, version, switches, original length u32, cells u16, filter, length of its options, options,
/// length of the metadata u16, metadata, data.
pub fn filter(data: &[u8]) {
    let mut c = Cursor::new(data);
    let mut run = || -> tiledbfs::Result<()> {
        let settings = Settings::read(&mut c)?;
        let (filter, options) = (c.u8("filter")?, c.u8("options")?);
        let options = c.bytes(u64::from(options), "options")?;
        // A pipeline of this filter alone, as it is stored.
        let mut stored = (64u32 << 10).to_le_bytes().to_vec();
        stored.extend(1u32.to_le_bytes());
        stored.push(filter);
        stored.extend((options.len() as u32).to_le_bytes());
        stored.extend(options);
        let pipeline = Pipeline::parse(&mut Cursor::new(&stored))?;
        let length = c.u16("metadata")?;
        let metadata = c.bytes(u64::from(length), "metadata")?;
        settings.decode(pipeline, metadata, c.rest());
        Ok(())
    };
    let _ = run();
}

/// What a chunk's decoder is told, beyond its pipeline.
struct Settings {
    datatype: Datatype,
    cell_size: u64,
    version: u32,
    switches: u8,
    original: u32,
    cells: u64,
}

impl Settings {
    fn read(c: &mut Cursor<'_>) -> tiledbfs::Result<Settings> {
        Ok(Settings {
            datatype: Datatype::from_u8(c.u8("datatype")? % 44)?,
            cell_size: u64::from(c.u8("cell size")?).max(1),
            version: u32::from(c.u8("version")? % 24),
            switches: c.u8("switches")?,
            // What a chunk declares may be any; what is decoded at once is bounded by who reads it.
            original: c.u32("original length")? % (4 << 20),
            cells: u64::from(c.u16("cells")?),
        })
    }

    fn decode(&self, pipeline: Pipeline, metadata: &[u8], data: &[u8]) {
        let codec = TileCodec {
            pipeline,
            datatype: self.datatype,
            cell_size: self.cell_size,
            fragment_version: self.version,
            propagates_types: self.switches & 1 != 0,
            embeds_offsets: self.switches & 2 != 0,
            key: Some(key()),
        };
        codec.is_identity();
        let decoded = match self.switches & 4 {
            0 => codec.decode_chunk_of_cells(self.original, self.cells, metadata, data),
            _ => codec.decode_chunk(self.original, metadata, data),
        };
        if let Ok(decoded) = decoded {
            assert_eq!(decoded.data.len() as u64, u64::from(self.original));
            if let Some(offsets) = &decoded.offsets {
                assert!(offsets.is_sorted());
                assert!(
                    offsets
                        .last()
                        .is_none_or(|last| *last <= decoded.data.len() as u64)
                );
                assert!(self.switches & 4 != 0 || offsets.len() as u64 == self.cells);
            }
        }
    }
}

/// A pipeline on the chunks of a tile: the settings, the length of the pipeline u16, the pipeline, the expected bytes u32, the tile.
pub fn pipeline(data: &[u8]) {
    let mut c = Cursor::new(data);
    let mut run = || -> tiledbfs::Result<()> {
        let mut settings = Settings::read(&mut c)?;
        let length = c.u16("pipeline")?;
        let pipeline = Pipeline::parse(&mut Cursor::new(c.bytes(u64::from(length), "pipeline")?))?;
        render(&json::schema::pipeline_json(&pipeline));
        let expected = u64::from(c.u32("expected")?);
        let tile = MemoryBlob::new(c.rest(), "fuzz");
        let index = ChunkIndex::read(&tile, 0, tile.len(), expected)?;
        assert_eq!(
            index
                .chunks()
                .iter()
                .map(|chunk| u64::from(chunk.original_length))
                .sum::<u64>(),
            expected
        );
        for chunk in index.chunks().iter().take(16) {
            assert_eq!(
                index
                    .find(chunk.original_offset)
                    .and_then(|i| index.chunks().get(i)),
                Some(chunk)
            );
            let stored = tile.read(chunk.stored_offset, chunk.stored_length())?;
            let Some((metadata, data)) = stored.split_at_checked(chunk.metadata_length as usize) else {
                panic!("a chunk shorter than its metadata");
            };
            settings.original = chunk.original_length % (4 << 20);
            settings.decode(pipeline.clone(), metadata, data);
        }
        Ok(())
    };
    let _ = run();
}

/// A whole source as one slice: for each file the length of its path u16, the path, its length u32, its bytes.
pub fn array(data: &[u8]) {
    let options = Options {
        cache_size: 16 << 20,
        keys: vec![(PathBuf::new(), key())],
        follow_symlinks: false,
    };
    let limits = Limits {
        entries: 16,
        file_bytes: 64 << 10,
        total_bytes: 2 << 20,
        nodes: 500,
        depth: 12,
    };
    let Ok(tree) = Tree::over(Arc::new(unpack(data)), "/".into(), &options, Arc::default()) else {
        return;
    };
    let report = walk(&tree.root, &limits);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
}

/// The files in an input of [`array`]; what is cut off at the end is left out.
pub fn unpack(data: &[u8]) -> MemoryStorage {
    let mut storage = MemoryStorage::new();
    let mut c = Cursor::new(data);
    let mut one = |c: &mut Cursor<'_>| -> tiledbfs::Result<()> {
        let length = c.u16("path")?;
        let path = PathBuf::from(String::from_utf8_lossy(c.bytes(u64::from(length), "path")?).into_owned());
        let length = u64::from(c.u32("length")?).min(c.remaining() as u64);
        storage.insert(&path, c.bytes(length, "bytes")?);
        Ok(())
    };
    while !c.is_empty() && one(&mut c).is_ok() {}
    storage
}

/// The input of [`array`] that holds these files.
pub fn pack(storage: &MemoryStorage) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, bytes) in storage.files() {
        let path = path.to_string_lossy();
        let (Ok(path_length), Ok(length)) = (u16::try_from(path.len()), u32::try_from(bytes.len())) else {
            continue;
        };
        out.extend(path_length.to_le_bytes());
        out.extend(path.as_bytes());
        out.extend(length.to_le_bytes());
        out.extend(bytes.iter());
    }
    out
}
