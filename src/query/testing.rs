//! For tests: writes arrays into memory, file by file, without libtiledb.

use crate::bytes::Output;
use crate::catalog::Array;
use crate::engine::Engine;
use crate::error::Result;
use crate::format::testing::{Bytes, SCALE_FLOAT};
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::runtime::stats::Stats;
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use crate::{Source, SourceOptions};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

thread_local! {
    /// The views that this thread has built.
    pub(crate) static BUILT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) const UUID: &str = "0123456789abcdef0123456789abcdef";

/// The position on the Hilbert curve of a cell in these buckets, straight from Skilling's paper.
pub(crate) fn hilbert(mut x: Vec<u64>, bits: u32) -> u64 {
    let d = x.len();
    let mut q = 1u64 << (bits - 1);
    while q > 1 {
        let p = q - 1;
        if x[0] & q != 0 {
            x[0] ^= p;
        }
        for i in 1..d {
            if x[i] & q != 0 {
                x[0] ^= p;
            } else {
                let t = (x[0] ^ x[i]) & p;
                x[0] ^= t;
                x[i] ^= t;
            }
        }
        q >>= 1;
    }
    for i in 1..d {
        x[i] ^= x[i - 1];
    }
    let mut t = x[d - 1];
    let mut i = 1;
    while i < bits {
        x[d - 1] ^= x[d - 1] >> i;
        i <<= 1;
    }
    t ^= x[d - 1];
    for i in (0..d - 1).rev() {
        x[i] ^= t;
    }
    let mut value = 0;
    for (i, x) in x.iter().enumerate() {
        for j in 0..bits as usize {
            value |= (x >> j & 1) << (j * d + d - 1 - i);
        }
    }
    value
}

/// The R-tree of tiles with these bounds; all of them are in `all`.
pub(crate) fn rtree(all: &[u8], tiles: &[Vec<u8>]) -> Vec<u8> {
    let has_root = tiles.len() > 1;
    let levels = Bytes::default().u32(1000).u32(1 + u32::from(has_root));
    let above = match has_root {
        true => levels.u64(1).raw(all),
        false => levels,
    };
    let above = above.u64(tiles.len() as u64);
    tiles.iter().fold(above, |tree, bounds| tree.raw(bounds)).bytes
}

/// A tile of chunks of `size` bytes each, filtered by `filter`: ZSTD, or SCALE_FLOAT of integers.
pub(crate) fn tile(filter: &[(u8, &[u8])], data: &[u8], size: usize) -> Vec<u8> {
    let chunks: Vec<&[u8]> = data.chunks(size).collect();
    let mut out = Bytes::default().u64(chunks.len() as u64);
    for chunk in chunks {
        let length = chunk.len() as u32;
        out = match filter.is_empty() {
            true => out.u32(length).u32(length).u32(0).raw(chunk),
            false if filter == [SCALE_FLOAT] => {
                let out = out.u32(length).u32(length).u32(8);
                out.u32(1).u32(length).raw(chunk)
            }
            false => {
                let packed = zstd::bulk::compress(chunk, 1).unwrap();
                let stored = packed.len() as u32;
                out.u32(length)
                    .u32(stored)
                    .u32(16)
                    .u32(0)
                    .u32(1)
                    .u32(length)
                    .u32(stored)
                    .raw(&packed)
            }
        };
    }
    out.bytes
}

pub(crate) fn generic(body: &[u8]) -> Vec<u8> {
    let pipeline = Bytes::default().pipeline(&[]).bytes;
    let tile = tile(&[], body, 1 << 16);
    let out = Bytes::default()
        .u32(22)
        .u64(tile.len() as u64)
        .u64(body.len() as u64);
    let out = out.u8(4).u64(1).u8(0).u32(pipeline.len() as u32);
    out.raw(&pipeline).raw(&tile).bytes
}

/// The files of a field: concatenated tiles, and the offset of each.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) fixed: (Vec<u8>, Vec<u64>),
    pub(super) var: (Vec<u8>, Vec<u64>),
    pub(super) var_sizes: Vec<u64>,
    pub(crate) validity: (Vec<u8>, Vec<u64>),
}

impl Files {
    pub(crate) fn put(file: &mut (Vec<u8>, Vec<u64>), tile: &[u8]) {
        file.1.push(file.0.len() as u64);
        file.0.extend_from_slice(tile);
    }
}

/// The parts of a fragment of format version 22.
pub(crate) struct Parts {
    /// The name of its schema.
    pub(crate) schema: String,
    pub(crate) dense: bool,
    /// The non-empty domain as bytes of the footer.
    pub(crate) domain: Vec<u8>,
    /// The body of the R-tree.
    pub(crate) rtree: Vec<u8>,
    /// Number of tiles of a sparse fragment; 0 for a dense one.
    pub(crate) tiles: u64,
    pub(crate) last_tile_cells: u64,
    pub(crate) has_timestamps: bool,
    pub(crate) has_delete_metadata: bool,
    /// By slot of the footer: the base name of the field's files, and the files.
    pub(crate) fields: Vec<(String, Files)>,
}

impl Parts {
    /// Writes the fragment `name` and its commit.
    pub(crate) fn write(self, storage: &mut MemoryStorage, name: &str) {
        let mut file = Vec::new();
        let mut section = |body: &[u8]| {
            let at = file.len() as u64;
            file.extend(generic(body));
            at
        };
        let rtree = section(&self.rtree);
        let mut list = |get: fn(&Files) -> &Vec<u64>| -> Vec<u64> {
            let lists = self.fields.iter().map(|(_, files)| {
                let entries = get(files);
                section(&Bytes::default().u64(entries.len() as u64).u64s(entries).bytes)
            });
            lists.collect()
        };
        let lists = [
            list(|files| &files.fixed.1),
            list(|files| &files.var.1),
            list(|files| &files.var_sizes),
            list(|files| &files.validity.1),
        ];
        let none = section(&Bytes::default().u64(0).bytes);
        let bounds = section(&Bytes::default().u64(0).u64(0).bytes);
        let statistics = section(&[0; 96]);
        let footer = Bytes::default().u32(22).text64(&self.schema);
        let footer = footer.u8(u8::from(self.dense)).u8(0).raw(&self.domain);
        let footer = footer.u64(self.tiles).u64(self.last_tile_cells);
        let mut footer = footer
            .u8(u8::from(self.has_timestamps))
            .u8(u8::from(self.has_delete_metadata));
        let sizes: [fn(&Files) -> u64; 3] = [
            |files| files.fixed.0.len() as u64,
            |files| files.var.0.len() as u64,
            |files| files.validity.0.len() as u64,
        ];
        for size in sizes {
            footer = self
                .fields
                .iter()
                .fold(footer, |footer, (_, files)| footer.u64(size(files)));
        }
        footer = footer.u64(rtree);
        footer = lists.iter().fold(footer, |footer, list| footer.u64s(list));
        let each = |at: u64| vec![at; self.fields.len()];
        footer = footer
            .u64s(&each(bounds))
            .u64s(&each(bounds))
            .u64s(&each(none))
            .u64s(&each(none));
        let footer = footer.u64(statistics).u64(none).bytes;
        file.extend_from_slice(&footer);
        file.extend((footer.len() as u64).to_le_bytes());
        let mut put = |path: String, bytes: Vec<u8>| storage.insert(Path::new(&path), bytes);
        put(format!("__fragments/{name}/__fragment_metadata.tdb"), file);
        put(format!("__commits/{name}.wrt"), Vec::new());
        for (field, files) in self.fields {
            for (part, bytes) in [
                ("", files.fixed.0),
                ("_var", files.var.0),
                ("_validity", files.validity.0),
            ] {
                if !bytes.is_empty() {
                    put(format!("__fragments/{name}/{field}{part}.tdb"), bytes);
                }
            }
        }
    }
}

/// The array at the root of `storage`, read in small parts.
pub(crate) fn open(storage: &MemoryStorage) -> (Arc<Array>, Arc<Stats>) {
    open_tuned(storage, &Tuning::SMALL)
}

/// The array at the root of `storage`.
pub(crate) fn open_tuned(storage: &MemoryStorage, tuning: &'static Tuning) -> (Arc<Array>, Arc<Stats>) {
    let stats: Arc<Stats> = Arc::default();
    let engine = Engine::new(Arc::new(storage.clone()), 64 << 20, Vec::new(), stats.clone());
    let engine = Arc::new(engine.tuned(tuning));
    (Arc::new(Array::new(engine, PathBuf::new())), stats)
}

/// The array in a local directory.
pub(crate) fn open_local(path: &Path, tuning: &'static Tuning) -> Result<Arc<Array>> {
    let Source(engine) = Source::open(path, &SourceOptions::default())?;
    let engine = Arc::into_inner(engine)
        .expect("nobody else has the engine")
        .tuned(tuning);
    Ok(Source(Arc::new(engine)).array(""))
}

/// All bytes of one content of a field, read in steps of `step` bytes.
pub(super) fn read(cells: &dyn Cells, content: Content, step: u64) -> Vec<u8> {
    let len = cells.len(content).unwrap();
    let mut out = Vec::new();
    while (out.len() as u64) < len {
        let at = out.len() as u64;
        let piece = Output::of(|out| cells.read(content, at..at + step, out)).unwrap();
        assert_eq!(piece.len() as u64, step.min(len - at));
        out.extend_from_slice(&piece);
    }
    out
}
