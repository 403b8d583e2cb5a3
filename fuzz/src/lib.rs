//! What each fuzz target does with its input, apart from the fuzzer, so that the ordinary tests run the same
//! code over the inputs that once failed (`tests/regressions`).
//!
//! A body may not panic, and may not allocate more than [`allowance`], whatever the input. Inputs are layouts
//! of their own where a parser needs more than one slice: each function says which.

pub mod arrays;
pub mod bare;
pub mod chunks;
pub mod conventions;
mod exports;
pub mod memory;
pub mod mutator;
pub mod paths;
mod propfind;
mod requests;
mod seal;
mod views;
#[path = "../../tests/common/walk.rs"]
pub mod walk;

pub use chunks::{filter, pipeline};

use std::iter::repeat;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::internals::catalog::group::replay;
use tiledbfs::internals::cursor::Cursor;
use tiledbfs::internals::describe::group::{GroupSummary, group_json};
use tiledbfs::internals::describe::metadata::Pairs;
use tiledbfs::internals::describe::{self, render};
use tiledbfs::internals::filter::EncryptionKey;
use tiledbfs::internals::filter::generic::{GenericTile, read_generic_tile};
use tiledbfs::internals::format::commits;
use tiledbfs::internals::format::condition::Condition;
use tiledbfs::internals::format::datatype::Datatype;
use tiledbfs::internals::format::enumeration::Enumeration;
use tiledbfs::internals::format::fragment::footer::FooterPosition;
use tiledbfs::internals::format::fragment::{Boxes, Footer, MinMax, RTree, Slots, legacy, sections};
use tiledbfs::internals::format::group::GroupDetails;
use tiledbfs::internals::format::name::TimestampedName;
use tiledbfs::internals::format::schema::Schema;
use tiledbfs::internals::fragment::cell_slice::CellSlice;
use tiledbfs::internals::fragment::field::{Role, StoredField};
use tiledbfs::internals::fragment::geometry::Geometry;
use tiledbfs::internals::query::condition::ViewCondition;
use tiledbfs::internals::storage::{MemoryBlob, MemoryStorage};
use tiledbfs::internals::tree::{Tree, TreeOptions};
use walk::{Limits, walk};

/// A fuzz target: its name and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// Runs a target on an input, and panics where it allocates more than it may.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let (_, target) = target.unwrap_or_else(|| panic!("no target is called {name}"));
    let peak = memory::peak_of(|| target(data));
    let most = allowance(name, data.len());
    assert!(
        peak <= most,
        "{peak} bytes allocated for an input of {}, where {most} are allowed",
        data.len()
    );
}

/// The bytes that a target may have allocated at a time for an input of `length` bytes. Parsers may make a
/// tree of JSON of it; what decodes may follow a length that a chunk declares, which the targets bound, with
/// its filters' scratch space; a whole array has its cache as well.
pub fn allowance(name: &str, length: usize) -> u64 {
    let length = length as u64;
    match name {
        "array" => (64 << 20) + 512 * length,
        // Two views, each with its cache.
        "exports" => 64 << 20,
        "filter" | "pipeline" => (64 << 20) + 64 * length,
        // Bodies of 64 KiB compress a thousandfold, and are kept together with what they decode to.
        "generic_tile" => (4 << 20) + 2048 * length,
        // Fill values that are not stored may take 1 MiB, and many times that as JSON.
        "schema" => (128 << 20) + 512 * length,
        _ => (4 << 20) + 512 * length,
    }
}

/// All of them.
pub const TARGETS: &[Target] = &[
    ("generic_tile", generic_tile),
    ("schema", schema),
    ("fragment_metadata", fragment_metadata),
    ("commits", commits),
    ("condition", condition),
    ("metadata", metadata),
    ("conventions", conventions::conventions),
    ("group", group),
    ("enumeration", enumeration),
    ("paths", paths::paths),
    ("propfind", propfind::propfind),
    ("framing", requests::framing),
    ("url_path", requests::url_path),
    ("range", requests::range),
    ("filter", filter),
    ("pipeline", pipeline),
    ("array", array),
    ("exports", exports::exports),
];

/// The key of the encrypted arrays that seeds are made from.
pub const KEY: [u8; 32] = *b"0123456789abcdeF0123456789abcdeF";

/// What a parser gave. Every error must name the place.
fn placed<T>(result: tiledbfs::Result<T>) -> tiledbfs::Result<T> {
    if let Err(error) = &result {
        assert!(error.offset().is_some(), "no place in the error: {error}");
    }
    result
}

/// [`KEY`] made ready for use.
pub fn key() -> EncryptionKey {
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
        let lengths = index
            .chunks()
            .iter()
            .map(|chunk| u64::from(chunk.original_length));
        assert_eq!(lengths.sum::<u64>(), whole.len() as u64);
        assert_eq!(tile.size, whole.len() as u64);
    }
}

/// The body of a schema.
pub fn schema(data: &[u8]) {
    if let Ok(schema) = placed(Schema::parse(data)) {
        render(&describe::schema::schema_json(&schema, "fuzz"));
    }
}

/// What a footer of a fragment without cells has.
const NO_TILES: Geometry = Geometry {
    tile_num: 0,
    tile_cells: 0,
    last_tile_cells: 0,
    cell_num: 0,
    cells_in_domain: 0,
};

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
            if let Ok(footer) = placed(legacy::parse(rest, &schema, false)) {
                render(&describe::footer::footer_json(&footer, &schema, None, &NO_TILES));
                let boxes = footer.inline.expect("it has all inline").mbrs;
                render_rtree(None, vec![boxes.boxes], &boxes.body, &schema);
            }
        }
        1 | 2 => {
            let mut footer = Cursor::with_base(rest, 1 << 30);
            if let Ok(footer) = placed(Footer::parse(&mut footer, &schema, which % 8 == 1)) {
                let _ = placed(footer.check_sections(1 << 30));
                let position = FooterPosition {
                    offset: 1 << 30,
                    size: rest.len() as u64,
                };
                render(&describe::footer::footer_json(
                    &footer,
                    &schema,
                    Some(position),
                    &NO_TILES,
                ));
                render(&describe::fields::by_field(
                    &describe::fields::keyed_fields(&schema, &footer.slots),
                    |_| false.into(),
                ));
            }
            let _ = placed(Footer::peek(&mut Cursor::new(rest)));
            if let Some((size, word)) = rest.split_first_chunk::<8>().zip(rest.last_chunk::<8>()) {
                let size = u64::from_le_bytes(*size.0);
                let _ = placed(Footer::locate(version, Some(&schema), size, *word));
            }
        }
        3 => {
            if let Ok(rtree) = placed(RTree::parse(&rest, version, &schema)) {
                render_rtree(Some(rtree.fanout), rtree.levels, rest, &schema);
            }
        }
        4 => {
            if let Ok(values) = placed(MinMax::parse(rest)) {
                for tile in [0, 1, 7, u64::MAX] {
                    values.tile(tile, None);
                    values.tile(tile, Some(8));
                    values.tile(tile, Some(u64::MAX));
                }
            }
        }
        5 => {
            let _ = placed(sections::parse_u64_list(rest));
        }
        6 => {
            let _ = placed(sections::parse_fragment_statistics(
                rest,
                usize::from(length % 64),
            ));
        }
        _ => {
            let _ = placed(sections::parse_processed_conditions(rest));
            let _ = placed(commits::parse_consolidated_metadata(&rest));
        }
    }
}

fn render_rtree(fanout: Option<u32>, levels: Vec<Boxes>, body: &[u8], schema: &Schema) {
    let (body, schema) = (Arc::new(body.to_vec()), Arc::new(schema.clone()));
    let _ =
        describe::rtree::rtree_segments(fanout, levels, body, schema).and_then(|document| document.render());
}

/// Which parser, then a consolidated commit file, lines, the body of a delete or update condition, or a name.
pub fn commits(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let show = |condition: &Condition| {
        render(&describe::condition::condition_json(condition, &|_| None));
        describe::condition::condition_text(condition, &|_| {
            Some((
                Datatype::Int32,
                tiledbfs::internals::format::datatype::CellValNum::Var,
            ))
        });
    };
    match which % 5 {
        0 => {
            let _ = placed(commits::parse_consolidated(rest));
        }
        1 => {
            for line in commits::parse_lines(rest) {
                commits::normalise_path(line);
            }
        }
        2 => {
            if let Ok(condition) = placed(Condition::parse(rest)) {
                show(&condition);
            }
        }
        3 => {
            if let Ok((condition, _)) = placed(Condition::parse_update(rest)) {
                show(&condition);
            }
        }
        _ => {
            let _ = TimestampedName::parse(rest);
        }
    }
}

/// Which fields a fragment lacks, until when its cells are concerned, how many there are and where they are
/// cut in two, the length of a schema's body u16, that body, the length of a delete condition u16, that
/// condition, bytes of the cells.
pub fn condition(data: &[u8]) {
    let mut c = Cursor::new(data);
    let (Ok(lacks), Ok(until), Ok(cells), Ok(cut)) = (c.u8(""), c.u8(""), c.u8(""), c.u8("")) else {
        return;
    };
    let mut part = || {
        let length = c.u16("length")?;
        c.bytes(u64::from(length), "part")
    };
    let (Ok(schema), Ok(condition)) = (part(), part()) else {
        return;
    };
    let (Ok(schema), Ok(condition)) = (Schema::parse(schema), Condition::parse(condition)) else {
        return;
    };
    let slots = Slots {
        version: schema.version,
        attributes: schema.attributes.len(),
        dimensions: schema.dimensions.len(),
        has_timestamps: true,
        has_delete_metadata: false,
    };
    let mut fields = StoredField::all(&schema, &slots, false);
    let mut number = 0;
    fields.retain(|field| {
        number += 1;
        field.role == Role::Timestamps || lacks >> (number % 8) & 1 == 0
    });
    let until = (until % 2 == 0 && schema.version >= 5).then_some(u64::from(until));
    let Ok(view) = ViewCondition::new(&condition, &schema) else {
        return;
    };
    let Ok(bound) = Arc::new(view).bind(&fields, until) else {
        return;
    };
    let count = usize::from(cells % 17);
    let mut bytes = c.rest().iter().copied().cycle();
    let mut take = |n: usize| -> Vec<u8> { bytes.by_ref().take(n).chain(repeat(0)).take(n).collect() };
    let mut columns = Vec::new();
    for &i in bound.fields() {
        let starts: Vec<u64> = match fields[i].cell_size() {
            Some(size) if size.saturating_mul(count as u64) > 1 << 16 => return,
            Some(size) => (0..=count as u64).map(|cell| cell * size).collect(),
            None => {
                let mut end = u64::from(cut);
                let lengths = take(count);
                let ends = lengths.iter().map(|length| {
                    end += u64::from(length % 5);
                    end
                });
                [u64::from(cut)].into_iter().chain(ends).collect()
            }
        };
        let values = take((starts[count] - starts[0]) as usize);
        let validity = fields[i].nullable.then(|| take(count));
        columns.push((fields[i].cell_val_num.is_var(), starts, values, validity));
    }
    let evaluate = |cells: Range<usize>, keep: &mut [bool]| {
        let slices = columns.iter().map(|(is_var, starts, values, validity)| {
            let bytes = starts[cells.start] - starts[0]..starts[cells.end] - starts[0];
            CellSlice {
                count: cells.len(),
                values: &values[bytes.start as usize..bytes.end as usize],
                starts: is_var.then_some(&starts[cells.start..=cells.end]),
                validity: validity.as_ref().map(|validity| &validity[cells.clone()]),
            }
        });
        bound.evaluate(&slices.collect::<Vec<_>>(), keep);
    };
    let before: Vec<bool> = (0..count).map(|cell| lacks >> (cell % 8) & 1 == 1).collect();
    let (mut whole, mut pieces) = (before.clone(), before.clone());
    evaluate(0..count, &mut whole);
    let cut = usize::from(cut) % (count + 1);
    evaluate(0..cut, &mut pieces[..cut]);
    evaluate(cut..count, &mut pieces[cut..]);
    assert_eq!(whole, pieces);
    assert!(before.iter().zip(&whole).all(|(before, after)| *before || !after));
}

/// The body of a metadata file.
pub fn metadata(data: &[u8]) {
    let mut pairs = Pairs::default();
    if placed(pairs.replay(Box::new(data.to_vec()))).is_ok() {
        let _ = pairs.document().and_then(|document| document.render());
    }
}

/// The body of a file of group details.
pub fn group(data: &[u8]) {
    if let Ok(details) = placed(GroupDetails::parse(data)) {
        let group = GroupSummary {
            details: replay([details.clone(), details]),
            unregistered: Vec::new(),
        };
        render(&group_json(&group, None));
    }
}

/// The body of an enumeration.
pub fn enumeration(data: &[u8]) {
    let parsed = placed(Enumeration::parse(data));
    let shown = describe::enumeration::enumeration_segments(data.to_vec());
    // Both parsers take the same enumerations, but for names and values too long to be shown.
    assert!(parsed.is_ok() || shown.is_err());
    let _ = shown.and_then(|document| document.render());
}

/// A whole source as one slice: for each file the length of its path u16, the path, its length u32, its
/// bytes.
pub fn array(data: &[u8]) {
    let options = TreeOptions {
        cache_size: 16 << 20,
        keys: vec![(PathBuf::new(), key())],
        follow_symlinks: false,
        ..TreeOptions::default()
    };
    let limits = Limits {
        entries: 16,
        file_bytes: 64 << 10,
        total_bytes: 2 << 20,
        nodes: 500,
        depth: 12,
    };
    let storage = unpack(data);
    views::views(&storage);
    let Ok(tree) = Tree::over(Arc::new(storage), &options, Arc::default()) else {
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

/// The input of [`array`] that holds the files of `storage`.
pub fn pack(storage: &MemoryStorage) -> Vec<u8> {
    let files: Vec<_> = storage.files().collect();
    pack_files(files.iter().map(|(path, bytes)| (path.as_path(), &bytes[..])))
}

/// The input of [`array`] that holds these files.
pub fn pack_files<'a>(files: impl Iterator<Item = (&'a Path, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, bytes) in files {
        let path = path.to_string_lossy();
        let (Ok(path_length), Ok(length)) = (u16::try_from(path.len()), u32::try_from(bytes.len())) else {
            continue;
        };
        out.extend(path_length.to_le_bytes());
        out.extend(path.as_bytes());
        out.extend(length.to_le_bytes());
        out.extend(bytes);
    }
    out
}
