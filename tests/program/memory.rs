//! Memory stays bounded in a mount with a small cache. Arrays with very much metadata are read completely.
//! Arrays whose metadata claims false sizes are refused.

use crate::common::bytes::Bytes;
use crate::common::daemon::Daemon;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use tempfile::TempDir;

const UUID: &str = "0123456789abcdef0123456789abcdef";
const MIB: usize = 1 << 20;

/// The memory of the process besides the cache.
const MAX_OVERHEAD: u64 = 64 << 20;

/// The memory of a condition, a schema or a group of the size that limits allow, while it is shown.
const MAX_DOCUMENT: u64 = 17 << 20;

/// Filters in a stored pipeline: number, size of the options, compressor and level.
const GZIP: &[u8] = &[1, 5, 0, 0, 0, 1, 1, 0, 0, 0];
const ZSTD: &[u8] = &[2, 5, 0, 0, 0, 2, 1, 0, 0, 0];
const RLE: &[u8] = &[4, 5, 0, 0, 0, 4, 0, 0, 0, 0];
const BZIP2: &[u8] = &[5, 5, 0, 0, 0, 5, 1, 0, 0, 0];

fn compress(filter: &[u8], bytes: &[u8]) -> Vec<u8> {
    match filter[0] {
        1 => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        2 => zstd::bulk::compress(bytes, 1).unwrap(),
        4 => {
            let mut out = Vec::new();
            for run in bytes.chunks(65_535) {
                assert!(run.iter().all(|byte| *byte == run[0]));
                out.push(run[0]);
                out.extend((run.len() as u16).to_be_bytes());
            }
            out
        }
        _ => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(1));
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

/// A tile of `chunks` through `filter`: the bytes of each, how often it is repeated, and optionally a false
/// length.
fn tile(filter: &[u8], chunks: &[(&[u8], usize, Option<u32>)]) -> Vec<u8> {
    let count: usize = chunks.iter().map(|(_, times, _)| times).sum();
    let mut tile = Bytes::default().u64(count as u64);
    for (chunk, times, claimed) in chunks {
        let size = claimed.unwrap_or(chunk.len() as u32);
        let data = compress(filter, chunk);
        let stored = data.len() as u32;
        let one = Bytes::default().u32(size).u32(stored).u32(16);
        let one = one.u32(0).u32(1).u32(size).u32(stored).raw(&data);
        for _ in 0..*times {
            tile = tile.raw(&one.0);
        }
    }
    tile.0
}

/// A generic tile with the chunks `tile` of a body of `size` bytes.
fn around(filter: &[u8], size: u64, tile: &[u8]) -> Vec<u8> {
    let pipeline = Bytes::default().pipeline(&[filter]).0;
    Bytes::default()
        .u32(22)
        .u64(tile.len() as u64)
        .u64(size)
        .u8(4)
        .u64(1)
        .u8(0)
        .u32(pipeline.len() as u32)
        .raw(&pipeline)
        .raw(tile)
        .0
}

/// A generic tile of `front`, `block` repeated `times` times, and `back`, which compresses well whatever its
/// size.
fn long(front: &[u8], block: &[u8], times: usize, back: &[u8]) -> Vec<u8> {
    let size = front.len() + block.len() * times + back.len();
    let parts = [(front, 1, None), (block, times, None), (back, 1, None)];
    around(ZSTD, size as u64, &tile(ZSTD, &parts))
}

fn generic(body: &[u8]) -> Vec<u8> {
    long(body, &[], 0, &[])
}

/// A bomb: a generic tile of one chunk of `size` zeros.
fn bomb(filter: &[u8], size: usize) -> Vec<u8> {
    around(filter, size as u64, &tile(filter, &[(&vec![0; size], 1, None)]))
}

/// A sparse array over INT32 `x` with an attribute `a` of INT32, both through `filter`, with capacity
/// `cells`, and a second attribute with a fill value of `fill` bytes.
fn schema(filter: &[u8], cells: u64, fill: usize) -> Vec<u8> {
    let b = Bytes::default().u32(22).u8(0).u8(1).u8(0).u8(0).u64(cells);
    let b = b.pipeline(&[]).pipeline(&[]).pipeline(&[]);
    let b = b.u32(1).text32("x").u8(0).u32(1).pipeline(&[filter]).u64(8);
    let b = b.u32(1).u32(1 << 30).u8(0).u32(10);
    let b = b.u32(if fill > 0 { 2 } else { 1 });
    let b = b.text32("a").u8(0).u32(1).pipeline(&[filter]).u64(4).u32(7);
    let mut b = b.u8(0).u8(0).u8(0).text32("");
    if fill > 0 {
        b = b
            .text32("b")
            .u8(5)
            .u32(fill as u32)
            .pipeline(&[])
            .u64(fill as u64);
        b = b.raw(&vec![1; fill]).u8(0).u8(0).u8(0).text32("");
    }
    b.u32(0).u32(0).u32(0).u8(1).0
}

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn array(root: &Path, filter: &[u8], cells: u64) {
    put(
        root,
        &format!("__schema/__1_1_{UUID}"),
        &generic(&schema(filter, cells, 0)),
    );
}

/// The parts of a fragment: sections as generic tiles, and data files.
struct Fragment {
    tiles: u64,
    rtree: Vec<u8>,
    offsets: Vec<u8>,
    list: Vec<u8>,
    data: Vec<u8>,
    stated_size: u64,
    cells: u64,
}

/// Writes the fragment; returns its path.
fn fragment(root: &Path, parts: &Fragment) -> String {
    let name = format!("__5_5_{UUID}_22");
    put(root, &format!("__commits/{name}.wrt"), b"");
    for file in ["d0", "a0"] {
        put(root, &format!("__fragments/{name}/{file}.tdb"), &parts.data);
    }
    let mut file = Vec::new();
    let mut section = |tile: &[u8]| {
        let at = file.len() as u64;
        file.extend_from_slice(tile);
        at
    };
    let none = generic(&Bytes::default().u64(0).0);
    let no_bounds = generic(&Bytes::default().u64(0).u64(0).0);
    let rtree = section(&parts.rtree);
    let (offsets, list) = (section(&parts.offsets), section(&parts.list));
    let (none, no_bounds) = (section(&none), section(&no_bounds));
    let zeros = Bytes::default().u64s(&[0; 12]).0;
    let statistics = section(&generic(&zeros));
    let conditions = section(&generic(&Bytes::default().u64(0).0));
    let footer = Bytes::default().u32(22).text64(&format!("__1_1_{UUID}")).u8(0);
    let footer = footer.u8(0).u32(1).u32(100);
    let footer = footer.u64(parts.tiles).u64(parts.cells).u8(0).u8(0);
    let (size, s) = (parts.stated_size, section(&[]));
    assert_eq!(s, file.len() as u64);
    // Slots: a, the unused one of the coordinates, x.
    let footer = footer
        .u64s(&[size, 0, size])
        .u64s(&[0; 3])
        .u64s(&[0; 3])
        .u64(rtree);
    let footer = footer.u64s(&[offsets, none, offsets]);
    let footer = footer.u64s(&[none; 3]).u64s(&[none; 3]).u64s(&[none; 3]);
    let footer = footer.u64s(&[no_bounds; 3]).u64s(&[no_bounds; 3]);
    let footer = footer.u64s(&[list, none, list]).u64s(&[none; 3]);
    let footer = footer.u64(statistics).u64(conditions);
    let length = footer.0.len() as u64;
    file.extend(footer.u64(length).0);
    put(
        root,
        &format!("__fragments/{name}/__fragment_metadata.tdb"),
        &file,
    );
    format!("fragments/{name}")
}

/// A list of `count` copies of `value`; `count` is a multiple of 8192.
fn numbers(count: u64, value: u64) -> Vec<u8> {
    let block: Vec<u8> = [value; 8192].into_iter().flat_map(u64::to_le_bytes).collect();
    long(&count.to_le_bytes(), &block, (count / 8192) as usize, &[])
}

/// An R-tree of `count` boxes, a multiple of 8192.
fn rtree(count: u64) -> Vec<u8> {
    let front = Bytes::default().u32(u32::MAX).u32(2).u64(1).u64(0).u64(count).0;
    let boxes: Vec<u8> = [77u32; 8192 * 2].into_iter().flat_map(u32::to_le_bytes).collect();
    long(&front, &boxes, (count / 8192) as usize, &[])
}

/// A fragment of one tile, for tests of other things.
fn small() -> Fragment {
    let data = tile(ZSTD, &[(&[1, 0, 0, 0], 1, None)]);
    Fragment {
        tiles: 1,
        rtree: generic(&Bytes::default().u32(10).u32(1).u64(1).u64(0).0),
        offsets: generic(&Bytes::default().u64s(&[1, 0]).0),
        list: generic(&Bytes::default().u64s(&[1, 5]).0),
        stated_size: data.len() as u64,
        data,
        cells: 1,
    }
}

/// A fragment whose only tile is one chunk of `size` zero bytes.
fn of_one_chunk(root: &Path, filter: &[u8], size: usize) -> String {
    array(root, filter, (size / 4) as u64);
    let data = tile(filter, &[(&vec![0; size], 1, None)]);
    let fragment_ = Fragment {
        stated_size: data.len() as u64,
        data,
        cells: (size / 4) as u64,
        ..small()
    };
    fragment(root, &fragment_)
}

/// Reads a file to its end and returns its length, which must be that of `stat`; or the errno.
fn read(daemon: &Daemon, name: &str) -> Result<u64, i32> {
    let path = daemon.path(name);
    let mut file = File::open(&path).map_err(|e| e.raw_os_error().unwrap())?;
    let size = file.metadata().unwrap().len();
    let (mut buffer, mut length) = (vec![0; MIB], 0u64);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => length += n as u64,
            Err(e) => return Err(e.raw_os_error().unwrap()),
        }
    }
    assert_eq!(length, size, "{name}");
    Ok(length)
}

const EIO: Result<u64, i32> = Err(libc::EIO);

/// Genuine large documents are shown completely.
#[test]
fn large_documents_take_little_memory() {
    let source = TempDir::new().unwrap();
    let root = source.path().canonicalize().unwrap();
    let tiles = 8192 * 60;
    array(&root.join("tiles"), ZSTD, 2);
    let fragment = fragment(
        &root.join("tiles"),
        &Fragment {
            tiles,
            rtree: rtree(tiles),
            offsets: numbers(tiles, 1 << 40),
            list: numbers(tiles, u64::MAX),
            stated_size: tiles * 8,
            ..small()
        },
    );
    let tiles_json = format!("tiles/{fragment}/tiles.json");
    let rtree_json = format!("tiles/{fragment}/rtree.json");

    array(&root.join("metadata"), ZSTD, 2);
    let value = |key: &str, datatype: u8, size: usize| {
        Bytes::default().text32(key).u8(0).u8(datatype).u32(size as u32).0
    };
    let files = [
        ("numbers", 5, vec![200; 65_536], 16 * MIB / 65_536),
        ("text", 12, vec![b'a'; 65_536], 64 * MIB / 65_536),
        ("other", 12, vec![0xFF; 65_536], 16 * MIB / 65_536),
    ];
    for (i, (key, datatype, block, times)) in files.into_iter().enumerate() {
        let front = value(key, datatype, block.len() * times);
        let path = format!("metadata/__meta/__{i}_{i}_{UUID}");
        put(&root, &path, &long(&front, &block, times, &[]));
    }

    // An enumeration of the schema, with values of one byte.
    let count = 8192 * 64u64;
    let front = Bytes::default()
        .u32(0)
        .text32("e")
        .text32("file")
        .u8(11)
        .u32(u32::MAX)
        .u8(0);
    let front = front.u64(count).raw(&vec![b'v'; count as usize]).u64(count * 8);
    let starts: Vec<u8> = (0..count).flat_map(u64::to_le_bytes).collect();
    let enumeration = long(&front.0, &starts, 1, &[]);
    put(&root, "enumeration/__schema/__enumerations/file", &enumeration);
    let mut with = schema(ZSTD, 2, 0);
    // One enumeration instead of none, and no current domain.
    with.truncate(with.len() - 9);
    let with = Bytes(with).u32(1).text32("e").text32("file").u32(0).u8(1).0;
    put(
        &root,
        &format!("enumeration/__schema/__1_1_{UUID}"),
        &generic(&with),
    );

    let daemon = Daemon::new(&root, &["--cache-size=1M"]);
    let documents = [
        (tiles_json.as_str(), 2 * tiles * 18),
        (rtree_json.as_str(), tiles * 18),
        ("metadata/metadata.json", (5 * 16 + 64 + 2 * 16) * MIB as u64),
        ("enumeration/enumerations/e.json", count * 5),
    ];
    let lengths = documents.map(|(name, least)| {
        let length = read(&daemon, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(length > least, "{name}: {length}");
        length
    });
    let peak = daemon.memory("VmHWM:");
    assert!(peak < (1 << 20) + MAX_OVERHEAD, "one after the other: {peak}");
    drop(daemon);

    // Many readers at once, at different offsets.
    let daemon = Daemon::new(&root, &["--cache-size=1M"]);
    std::thread::scope(|scope| {
        for i in 0..12 {
            let (daemon, (name, _), length) = (&daemon, documents[i % 4], lengths[i % 4]);
            scope.spawn(move || {
                use std::os::unix::fs::FileExt;
                let file = File::open(daemon.path(name)).unwrap();
                let mut piece = vec![0; 4096];
                for step in 0..20u64 {
                    let offset = length * (step * 7 % 20) / 20;
                    file.read_exact_at(&mut piece, offset.min(length - 4096)).unwrap();
                }
            });
        }
    });
    let peak = daemon.memory("VmHWM:");
    assert!(peak < (1 << 20) + MAX_OVERHEAD, "many at once: {peak}");
}

/// Files that falsely declare a large size, or are larger than any plausible use.
#[test]
fn bombs_take_little_memory() {
    let source = TempDir::new().unwrap();
    let root = source.path().canonicalize().unwrap();
    let mut expected: Vec<(String, bool)> = Vec::new();

    // One chunk of very many bytes is refused in data and in metadata; one of moderate size is read.
    for (name, filter) in [("zstd", ZSTD), ("gzip", GZIP), ("bzip2", BZIP2), ("rle", RLE)] {
        let of_metadata = filter;
        // The runs of data have four bytes.
        let filter = if filter == RLE { ZSTD } else { filter };
        for (size, fine) in [(20 * MIB, true), (100 * MIB, false)] {
            let array = format!("{name}-{size}");
            let path = of_one_chunk(&root.join(&array), filter, size);
            expected.push((format!("{array}/{path}/columns/a/data.bin"), fine));
            expected.push((format!("{array}/{path}/footer.json"), true));
        }
        let array = format!("{name}-metadata");
        self::array(&root.join(&array), filter, 2);
        let data = tile(filter, &[(&[0; 4], 1, None)]);
        let path = fragment(
            &root.join(&array),
            &Fragment {
                rtree: bomb(of_metadata, 100 * MIB),
                list: bomb(of_metadata, 100 * MIB),
                stated_size: data.len() as u64,
                data,
                ..small()
            },
        );
        for document in ["rtree.json", "tiles.json"] {
            expected.push((format!("{array}/{path}/{document}"), false));
        }
        expected.push((format!("{array}/{path}/columns/a/data.bin"), true));
        put(
            &root,
            &format!("{array}/__meta/__1_1_{UUID}"),
            &bomb(of_metadata, 100 * MIB),
        );
        expected.push((format!("{array}/metadata.json"), false));
        let commit = format!("{array}/__commits/__7_7_{UUID}_22.del");
        put(&root, &commit, &bomb(of_metadata, 100 * MIB));
        expected.push((format!("{array}/commits.json"), true));
    }

    // A chunk that declares more than its bytes decode to.
    array(&root.join("claim"), ZSTD, 1 << 28);
    let data = tile(ZSTD, &[(&[0; 64], 1, Some(1 << 30))]);
    let claim = Fragment {
        stated_size: data.len() as u64,
        data,
        cells: 1 << 28,
        ..small()
    };
    let path = fragment(&root.join("claim"), &claim);
    expected.push((format!("claim/{path}/columns/a/data.bin"), false));

    // More tiles than any file has room for.
    array(&root.join("tiles"), ZSTD, 2);
    let claim = Fragment {
        tiles: 1 << 40,
        stated_size: 1 << 50,
        ..small()
    };
    let path = fragment(&root.join("tiles"), &claim);
    expected.push((format!("tiles/{path}/columns/a/data.bin"), false));
    expected.push((format!("tiles/{path}/tiles.json"), true));

    // Very many chunks of one byte.
    array(&root.join("chunks"), ZSTD, 1 << 20);
    let data = tile(ZSTD, &[(&[0], (1 << 20) + 1, None)]);
    let claim = Fragment {
        stated_size: data.len() as u64,
        data,
        cells: 1 << 18,
        ..small()
    };
    let path = fragment(&root.join("chunks"), &claim);
    expected.push((format!("chunks/{path}/columns/a/data.bin"), false));

    // A fill value, a group and a condition that are larger than plausible.
    let fill = schema(ZSTD, 2, 16 * MIB);
    put(&root, &format!("fill/__schema/__1_1_{UUID}"), &generic(&fill));
    expected.push(("fill/schema.json".into(), false));
    let fill = schema(ZSTD, 2, 3 * MIB);
    put(&root, &format!("fine/__schema/__1_1_{UUID}"), &generic(&fill));
    expected.push(("fine/schema.json".into(), true));
    let member = Bytes::default().u32(2).u8(2).u8(1).text64("a").u8(0).u8(0).0;
    let members = Bytes::default().u32(2).u64(700_000).0;
    let group = long(&members, &member.repeat(7000), 100, &[]);
    put(&root, &format!("group/__group/__1_1_{UUID}_2"), &group);
    put(&root, "group/__tiledb_group.tdb", b"");
    expected.push(("group/group.json".into(), false));
    array(&root.join("condition"), ZSTD, 2);
    let front = Bytes::default().u8(1).u8(4).text32("a").u64(40 * MIB as u64).0;
    let condition = long(&front, &[1; 65_536], 40 * MIB / 65_536, &[]);
    put(
        &root,
        &format!("condition/__commits/__7_7_{UUID}_22.del"),
        &condition,
    );
    expected.push(("condition/commits.json".into(), true));
    let mut list = Bytes::default()
        .u8(1)
        .u8(6)
        .text32("a")
        .u64(400_000)
        .raw(&vec![1; 400_000]);
    list = list.u64(800_000);
    for i in 0..100_000u64 {
        list = list.u64(i * 4);
    }
    let commit = format!("condition/__commits/__8_8_{UUID}_22.del");
    put(&root, &commit, &generic(&list.0));

    let daemon = Daemon::new(&root, &["--cache-size=1M"]);
    for (path, fine) in &expected {
        let result = read(&daemon, path);
        match fine {
            true => assert!(result.is_ok(), "{path}: {result:?}"),
            false => assert_eq!(result, EIO, "{path}"),
        }
        let peak = daemon.memory("VmHWM:");
        assert!(peak < (1 << 20) + MAX_OVERHEAD, "{path}: {peak}");
    }
    let errors = fs::read_to_string(daemon.path(".tiledbfs/errors.jsonl")).unwrap();
    for (path, _) in expected.iter().filter(|(_, fine)| !fine) {
        assert!(errors.contains(path), "no line about {path}");
    }
    // Whose members nobody knows.
    let listed = fs::read_dir(daemon.path("group")).and_then(|mut entries| entries.next().transpose());
    assert_eq!(listed.unwrap_err().raw_os_error(), Some(libc::EIO));
    let commits = fs::read_to_string(daemon.path("condition/commits.json")).unwrap();
    assert!(
        commits.contains("the generic tile has") && commits.contains("IN ("),
        "{}",
        &commits[..300]
    );
    drop(daemon);

    // All at once: the three large documents may be shown beside each other and beside a chunk.
    let daemon = Daemon::new(&root, &["--cache-size=1M"]);
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((path, _)) =
                    expected.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
                {
                    let _ = read(&daemon, path);
                }
            });
        }
    });
    let peak = daemon.memory("VmHWM:");
    assert!(
        peak < (1 << 20) + MAX_OVERHEAD + 3 * MAX_DOCUMENT,
        "all at once: {peak}"
    );
}
