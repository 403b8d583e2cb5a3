use super::*;
use crate::catalog::Array;
use crate::catalog::time::TimeRange;
use crate::export::metadata::geometry::Geometry;
use crate::export::metadata::pandas::Pandas;
use crate::export::tests::{OneTile, arrays, dump, written};
use crate::format::datatype::{Datatype, Kind};
use crate::format::field::Form;
use crate::format::testing::{Bytes, Random, ZSTD, field, schema_body};
use crate::query::testing::{Files, Parts, UUID, generic, open, open_local, tile};
use crate::query::{DimRange, TileRun};
use crate::runtime::processor_time;
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use leaf::{Encoding, Logical, Physical, Shape};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn whole(file: &FileLayout) -> Result<Vec<u8>> {
    Ok(Output::of(|out| file.read(0..u64::MAX, out))?.to_vec())
}

#[test]
fn the_file_is_the_one_that_is_shown() {
    let array = Array::open(data().join("corners/twice")).unwrap();
    let view = Arc::new(array.at(TimeRange::ALL).open().unwrap());
    let mut file = whole(&layout(&view).unwrap()).unwrap();
    // The version of the program that wrote the file that is shown.
    let (now, then) = (env!("CARGO_PKG_VERSION").as_bytes(), b"0.1.0");
    if let Some(at) = file.windows(now.len()).rposition(|bytes| bytes == now) {
        file.splice(at..at + now.len(), *then);
    }
    let dump = dump(&file);
    let shown = include_str!("example.md").split("```text\n").nth(1).unwrap();
    let shown = shown.split("```").next().unwrap();
    assert!(shown == dump, "\n{dump}");
}

/// It is absent, as any other that is too long.
#[test]
fn there_is_no_table_of_2_to_the_64_rows() {
    let array = OneTile {
        dimensions: &[("x", 1 << 40), ("y", 1 << 40)],
        attributes: &[("a", Datatype::Uint8, 1, false)],
    };
    let mut storage = MemoryStorage::default();
    array.create(&mut storage, 1);
    let side = DimRange {
        lo: Some(0u64.to_le_bytes().to_vec()),
        hi: Some(((1u64 << 40) - 1).to_le_bytes().to_vec()),
    };
    let view = View::new(open(&storage).0, None, Some(vec![side; 2])).unwrap();
    assert_eq!(
        absent(&view).unwrap().unwrap(),
        "the view has more than 2^64 cells"
    );
    assert!(!is_listed(&view).unwrap());
}

#[test]
fn files_are_as_long_as_they_say_whatever_is_read_first() {
    let (mut files, mut groups, mut random) = (0, 0, Random(7));
    let both = [&Tuning::SMALL, &Tuning::PRODUCTION];
    for (path, tuning) in arrays().iter().flat_map(|path| both.map(|tuning| (path, tuning))) {
        let array = open_local(path, tuning).unwrap();
        let Ok(whole_view) = array.at(TimeRange::ALL).open() else {
            continue;
        };
        let mut views = vec![whole_view];
        // Also the view of its first cell.
        if let Ok(Some(region)) = views[0].region() {
            let first = region.iter().map(|range| DimRange {
                lo: Some(range.lo.clone()),
                hi: Some(range.lo.clone()),
            });
            views.push(array.at(TimeRange::ALL).subarray(first).open().unwrap());
        }
        for view in views.into_iter().map(Arc::new) {
            // Some arrays are damaged.
            let Ok(file) = layout(&view) else { continue };
            if file.len() > 1 << 22 {
                continue;
            }
            let Ok(all) = whole(&file) else { continue };
            assert_eq!(all.len() as u64, file.len(), "{}", path.display());
            assert_eq!((&all[..4], &all[all.len() - 4..]), (&MAGIC[..], &MAGIC[..]));
            // A fresh cache.
            let other = open_local(path, tuning).unwrap();
            let subarray = view.subarray().map(<[DimRange]>::to_vec);
            let other = Arc::new(View::new(other, None, subarray).unwrap());
            let other = layout(&other).unwrap();
            for _ in 0..60 {
                let start = random.below(file.len());
                let most = [3, 40, 1000][random.index(3)];
                let end = start + random.below(most);
                let piece = Output::of(|out| other.read(start..end, out)).unwrap();
                let expected = &all[start as usize..(end as usize).min(all.len())];
                assert!(*piece == *expected, "{}: {start}..{end}", path.display());
            }
            // From its beginning on it is read by windows.
            let mut start = 0;
            while start < file.len() {
                let end = file.len().min(start + 1 + random.below(3000));
                let piece = Output::of(|out| other.read(start..end, out)).unwrap();
                let expected = &all[start as usize..end as usize];
                assert!(*piece == *expected, "{}: {start}..{end}", path.display());
                start = end;
            }
            files += 1;
            groups += view.count().unwrap().div_ceil(tuning.max_group_rows);
        }
    }
    assert!(files > 40 && groups > 200, "{files} files of {groups} row groups");
}

#[test]
fn the_length_of_fixed_size_fields_decodes_nothing() {
    let mut files = 0;
    for path in arrays() {
        let array = Array::open(&path).unwrap();
        let Ok(view) = array.at(TimeRange::ALL).open() else {
            continue;
        };
        let fixed = view.fields().iter().all(|field| field.cell_size().is_some());
        if !view.is_dense() || !fixed {
            continue;
        }
        let Ok(file) = layout(&Arc::new(view)) else {
            continue;
        };
        // The footer comes from metadata as well.
        let end = file.len();
        Output::of(|out| file.read(end - 8..end, out)).unwrap();
        let _ = Output::of(|out| file.read(end - 9..end - 8, out));
        assert_eq!(array.engine.stats.chunks_decoded.get(), 0, "{}", path.display());
        files += 1;
    }
    assert!(files > 10, "{files} files");
}

#[test]
fn the_length_and_the_footer_of_appended_fragments_decode_nothing() {
    let mut files = 0;
    for path in arrays() {
        let array = open_local(&path, &Tuning::SMALL).unwrap();
        array.engine.disorder.let_readers_find();
        let Ok(view) = array.at(TimeRange::ALL).open() else {
            continue;
        };
        let known = |field: &Field| field.cell_size().is_some() || field.datatype == Datatype::StringAscii;
        if view.is_dense() || !view.fields().iter().all(known) {
            continue;
        }
        let Ok(runs) = view.tile_runs() else { continue };
        let old = view
            .snapshot()
            .fragments()
            .any(|entry| entry.fragment.name.name_version < 5);
        // The order of small fragments is looked at first.
        let small = runs.iter().any(|run| run.cells <= 16);
        if old || small || runs.iter().any(|run| run.tile == 1) {
            continue;
        }
        let Ok(file) = layout(&Arc::new(view)) else {
            continue;
        };
        let end = file.len();
        let _ = Output::of(|out| file.read(end - 9..end - 8, out));
        assert_eq!(array.engine.stats.chunks_decoded.get(), 0, "{}", path.display());
        files += 1;
    }
    assert!(files > 0, "{files} files");
}

#[test]
fn row_groups_are_even_and_end_at_tiles() {
    let run = |cells, tile| TileRun { cells, tile };
    assert_eq!(plan::divide(&[], 40), [0]);
    assert_eq!(plan::divide(&[run(0, 5)], 40), [0]);
    assert_eq!(plan::divide(&[run(40, 16)], 40), [0, 40]);
    assert_eq!(
        plan::divide(&[run(100, 10), run(0, 1), run(50, 7)], 40),
        [0, 30, 60, 90, 114, 150]
    );
    // Tiles that are too large are cut.
    assert_eq!(plan::divide(&[run(100, 90)], 40), [0, 33, 66, 100]);
    let (mut random, mut aligned) = (Random(3), 0);
    for _ in 0..2000 {
        let runs: Vec<TileRun> = (0..1 + random.below(6))
            .map(|_| run(random.below(3000), 1 + random.below(60)))
            .collect();
        let (mut ends, mut rows) = (HashSet::new(), 0);
        for run in &runs {
            ends.extend((0..run.cells).step_by(run.tile as usize).map(|cell| rows + cell));
            rows += run.cells;
        }
        let most = 100 + random.below(300);
        let bounds = plan::divide(&runs, most);
        assert_eq!((bounds[0], *bounds.last().unwrap()), (0, rows));
        let sizes: Vec<u64> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(
            sizes.iter().all(|size| (1..=most).contains(size)),
            "{runs:?} {bounds:?}"
        );
        let longest = sizes.iter().max().copied().unwrap_or(0);
        assert!(
            sizes.len() < 8 || longest * sizes.len() as u64 * 10 <= 13 * rows,
            "{runs:?} {bounds:?}"
        );
        let inner = bounds.get(1..bounds.len() - 1).unwrap_or_default();
        aligned += u64::from(inner.iter().all(|bound| ends.contains(bound)));
        // Small tiles never need to be cut.
        if runs.iter().all(|run| run.tile * 12 <= most) {
            assert!(
                inner.iter().all(|bound| ends.contains(bound)),
                "{most} {runs:?} {bounds:?}"
            );
        }
    }
    assert!(aligned > 1500, "{aligned} of 2000");
}

/// A leaf of one value per cell.
fn leaf_of(datatype: Datatype) -> Leaf {
    let form = Form {
        datatype,
        cell_val_num: CellValNum::Fixed(1),
        nullable: false,
    };
    Leaf::of(form, "a".to_owned())
}

#[test]
fn values_are_those_of_the_type_that_is_shown() {
    let value = |datatype, stored: &[u8]| leaf_of(datatype).value(stored).map(u64::cast_signed);
    assert_eq!(value(Datatype::Int8, &[0xFF]), Some(0xFFFF_FFFF));
    assert_eq!(value(Datatype::Uint16, &[0xFF, 0xFF]), Some(0xFFFF));
    assert_eq!(value(Datatype::Bool, &[7]), Some(1));
    let time = |datatype, stored: i64| value(datatype, &stored.to_le_bytes());
    assert_eq!(time(Datatype::DatetimeMonth, 661), Some(20_120));
    assert_eq!(time(Datatype::DatetimeDay, -1), Some(0xFFFF_FFFF));
    assert_eq!(time(Datatype::DatetimeDay, 1 << 31), None);
    assert_eq!(time(Datatype::DatetimeYear, i64::MAX), None);
    assert_eq!(time(Datatype::DatetimeHr, -2), Some(-7_200_000));
    assert_eq!(time(Datatype::DatetimeHr, i64::MAX / 3_600_000 + 1), None);
    let is_time = |datatype: &&Datatype| matches!(datatype.kind(), Kind::Datetime | Kind::Time);
    for datatype in Datatype::ALL.iter().filter(is_time) {
        let null = time(*datatype, i64::MIN).is_none();
        assert_eq!(
            null,
            datatype.name().starts_with("DATETIME"),
            "{}",
            datatype.name()
        );
    }
}

#[test]
fn labels_take_the_place_of_indexes() {
    let mut leaf = leaf_of(Datatype::Int8);
    let labels: [&[u8]; 5] = [b"a", b"", b"b", b"c", b"d"];
    let number = CellValNum::Var;
    leaf.enumerate(Datatype::StringUtf8, number, 5, |i| labels.get(i).copied());
    assert_eq!(
        (leaf.physical, leaf.logical),
        (Physical::ByteArray, Logical::String)
    );
    assert_eq!(leaf.encoding, Encoding::Index { labels: 5, width: 3 });
    assert_eq!(
        [0, 4, 5, 0xFF].map(|index| leaf.value(&[index])),
        [Some(0), Some(4), None, None]
    );
    // Nine indexes of three bits: their width, the header of a run, two runs of eight.
    assert_eq!(leaf.values_len(9, 0), 1 + 1 + 6);
    let mut leaf = leaf_of(Datatype::Uint8);
    let labels = [2.5f64.to_le_bytes(), (-1f64).to_le_bytes()];
    let number = CellValNum::Fixed(1);
    leaf.enumerate(Datatype::Float64, number, 2, |i| {
        labels.get(i).map(|label| &label[..])
    });
    assert_eq!((leaf.physical, leaf.shape), (Physical::Double, Shape::One));
    let values = [0, 1, 2].map(|index| leaf.value(&[index]).map(f64::from_bits));
    assert_eq!(values, [Some(2.5), Some(-1.0), None]);
}

#[test]
fn labels_of_several_numbers_are_lists() {
    let labels: [&[u8]; 3] = [&[7, 0], &[], &[8, 0, 255, 255, 1]];
    let mut leaf = leaf_of(Datatype::Uint8);
    leaf.enumerate(Datatype::Int16, CellValNum::Var, 3, |i| labels.get(i).copied());
    assert_eq!((leaf.shape, leaf.physical), (Shape::Any, Physical::Int32));
    assert_eq!([leaf.outer_optional(), leaf.optional()], [true, false]);
    let Encoding::List(list) = &leaf.encoding else {
        panic!("{:?}", leaf.encoding)
    };
    let elements = [0, 1, 2].map(|label| list.elements(label).unwrap());
    assert_eq!(elements, [0..1, 1..1, 1..3]);
    let numbers = [0, 1, 2].map(|number| list.number(number).unwrap());
    assert_eq!(numbers, [Some(7), Some(8), Some(0xFFFF_FFFF)]);
    assert!(list.elements(3).is_err() && list.number(3).is_err());
    let mut leaf = leaf_of(Datatype::Uint8);
    leaf.enumerate(Datatype::Int16, CellValNum::Fixed(2), 1, |_| Some(&[7, 0, 8, 0]));
    assert_eq!((leaf.shape, leaf.optional()), (Shape::Some(2), true));
}

#[test]
fn a_footer_is_as_long_as_it_was_said_to_be() {
    let text = Leaf {
        size: None,
        ..leaf_of(Datatype::StringAscii)
    };
    let mut labelled = leaf_of(Datatype::Int8);
    let labels: [&[u8]; 2] = [b"a", b"b"];
    labelled.enumerate(Datatype::StringUtf8, CellValNum::Var, 2, |i| {
        labels.get(i).copied()
    });
    let leaves = [
        leaf_of(Datatype::Int32),
        labelled,
        leaf_of(Datatype::DatetimeMs),
        text,
    ];
    for rows in [0, 1, 63, 64, 127, 128, 5000, 9000, 1 << 17] {
        for length in 0..300 {
            let name = "x".repeat(length);
            let leaves: Vec<Leaf> = leaves
                .iter()
                .cloned()
                .map(|leaf| Leaf {
                    name: name.clone(),
                    ..leaf
                })
                .collect();
            let plan = Plan::of(&leaves, rows, 100, |rows| page::Amount {
                entries: rows,
                values: 3,
            });
            let plan = footer::measure(&leaves, plan).unwrap();
            for nulls in [0, rows] {
                let some = |leaf: usize, _| {
                    let len = statistics::bound_len(&leaves[leaf])?;
                    let nulls = if leaves[leaf].optional() { nulls } else { 0 };
                    Some(statistics::Statistics {
                        bounds: Some((vec![1; len], vec![2; len / 2])),
                        exact: leaf == 0,
                        nulls,
                    })
                };
                let footer = footer::render(&leaves, &plan, some).unwrap();
                assert_eq!(footer.len() as u64, plan.footer);
            }
            if length > 3 && rows > 1 {
                break;
            }
        }
    }
}

#[test]
fn the_length_of_very_many_columns_is_a_formula() {
    let leaves = vec![leaf_of(Datatype::Int32); 1000];
    let before = plan::PAGE_CALLS.get();
    let plan = Plan::of(&leaves, 10_000 * 40, 40, |_| page::Amount::default());
    let plan = footer::measure(&leaves, plan).unwrap();
    assert_eq!(plan.groups(), 10_000);
    // Less than once for each row group.
    let asked = plan::PAGE_CALLS.get() - before;
    assert!(asked < 20 * 1000, "{asked} pages of ten million");
    let footer = footer::render(&leaves, &plan, |_, _| None).unwrap();
    assert_eq!(footer.len() as u64, plan.footer);
}

/// A schema of a dense array of 100 cells with one attribute, in the file with this timestamp.
fn schema_of(
    storage: &mut MemoryStorage,
    stamp: u64,
    name: &str,
    datatype: Datatype,
    cell_val_num: u32,
    fill: &[u8],
) {
    let none = |bytes: Bytes| bytes.pipeline(&[]).pipeline(&[]).pipeline(&[]);
    let schema = none(Bytes::default().u32(22).u8(0).u8(0).u8(0).u8(0).u64(10)).u32(1);
    let schema = schema.text32("d").u8(Datatype::Int32 as u8).u32(1).pipeline(&[]);
    let schema = schema.u64(8).u32(1).u32(100).u8(0).u32(10).u32(1);
    let schema = schema.text32(name).u8(datatype as u8).u32(cell_val_num);
    let schema = schema.pipeline(&[]).u64(fill.len() as u64).raw(fill);
    let schema = schema.u8(0).u8(0).u8(0).text32("").u32(0).u32(0).u32(0).u8(1);
    let path = format!("__schema/__{stamp}_{stamp}_{UUID}");
    storage.insert(Path::new(&path), generic(&schema.bytes));
}

/// A dense array of 100 cells that somebody wrote, in another attribute: all have the fill value, a text of
/// 512 bytes.
fn of_long_text(cell_val_num: u32) -> Arc<View> {
    let mut storage = MemoryStorage::new();
    schema_of(&mut storage, 1, "b", Datatype::StringAscii, 1, b"y");
    schema_of(
        &mut storage,
        2,
        "a",
        Datatype::StringAscii,
        cell_val_num,
        &[b'x'; 512],
    );
    let names = ["a0", "", "d"].map(|name| (name.to_owned(), Files::default()));
    let fragment = Parts {
        schema: format!("__1_1_{UUID}"),
        dense: true,
        domain: Bytes::default().u32(1).u32(100).bytes,
        rtree: Bytes::default().u32(10).u32(0).bytes,
        tiles: 0,
        last_tile_cells: 0,
        has_timestamps: false,
        has_delete_metadata: false,
        fields: names.to_vec(),
    };
    fragment.write(&mut storage, &format!("__3_3_{UUID}_22"));
    let all = DimRange::from(1_i32..=100);
    Arc::new(View::new(open(&storage).0, None, Some(vec![all])).unwrap())
}

/// Text that nobody wrote is null, whatever its fill value is: the page has slack in its place.
#[test]
fn cells_that_nobody_wrote_are_null() {
    let mut storage = MemoryStorage::new();
    schema_of(&mut storage, 1, "a", Datatype::StringAscii, u32::MAX, b"\x80");
    let all = DimRange::from(1_i32..=100);
    let view = View::new(open(&storage).0, None, Some(vec![all])).unwrap();
    let table = Table::new(&Arc::new(view)).unwrap();
    let leaves = leaves(&table, &Metadata::of(table.view()).unwrap()).unwrap();
    assert_eq!([leaves[0].optional(), leaves[1].optional()], [false, true]);
    let runs = [0..40, 40..80];
    let all = statistics::TableStatistics::read(&table, &leaves, &runs).unwrap();
    let said = all.get(1, 1).unwrap();
    assert_eq!((said.bounds, said.nulls), (None, 40));
    let rows = table.columns()[1].read(3..5).unwrap();
    assert_eq!([rows.value(0), rows.value(1)], [None; 2]);
}

/// A fragment without a file of an attribute has its fill value in statistics as well, whatever its metadata
/// says of tiles.
#[test]
fn cells_of_a_fragment_without_the_file_are_counted_as_the_fill_value() {
    let mut storage = MemoryStorage::new();
    let schema = schema_body(
        22,
        true,
        &[field("d", Datatype::Int32)],
        &[field("a", Datatype::Int8)],
    );
    storage.insert(
        Path::new(&format!("__schema/__1_1_{UUID}")),
        generic(&schema.bytes),
    );
    let bounds = Bytes::default().u32(3).u32(4);
    let mut coordinates = Files::default();
    Files::put(&mut coordinates.fixed, &tile(&[ZSTD], &bounds.bytes, 4));
    let fragment = Parts {
        schema: format!("__1_1_{UUID}"),
        dense: false,
        domain: bounds.bytes.clone(),
        rtree: Bytes::default().u32(10).u32(1).u64(1).raw(&bounds.bytes).bytes,
        tiles: 1,
        last_tile_cells: 2,
        has_timestamps: false,
        has_delete_metadata: false,
        fields: vec![
            ("a0".to_owned(), Files::default()),
            (String::new(), Files::default()),
            ("d0".to_owned(), coordinates),
        ],
    };
    fragment.write(&mut storage, &format!("__3_3_{UUID}_22"));
    let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
    let table = Table::new(&view).unwrap();
    let leaves = leaves(&table, &Metadata::of(table.view()).unwrap()).unwrap();
    let all = statistics::TableStatistics::read(&table, &leaves, &vec![0..2; 1]).unwrap();
    // The fill value is 7, in 32 bits.
    let seven = vec![7, 0, 0, 0];
    assert_eq!(all.get(1, 0).unwrap().bounds, Some((seven.clone(), seven)));
}

/// An index of as many levels, and as many geometries, as there are columns: not all pairs are compared.
#[test]
fn metadata_of_very_many_columns_take_little_work() {
    const COLUMNS: usize = 20_000;
    let attributes = (0..COLUMNS).map(|i| field(format!("a{i}").leak(), Datatype::Int8));
    let attributes: Vec<_> = attributes.collect();
    let schema = schema_body(22, true, &[field("d", Datatype::Int32)], &attributes);
    let mut storage = MemoryStorage::new();
    storage.insert(
        Path::new(&format!("__schema/__1_1_{UUID}")),
        generic(&schema.bytes),
    );
    let view = Arc::new(View::new(open(&storage).0, None, None).unwrap());
    let table = Table::new(&view).unwrap();
    let metadata = Metadata {
        fields: vec![Attributes::new(); view.fields().len()],
        pandas: Some(Pandas {
            index: (1..=COLUMNS).collect(),
            ..Pandas::default()
        }),
        geometry: Some(Geometry {
            fields: (1..=COLUMNS).collect(),
            ..Geometry::default()
        }),
        ..Metadata::default()
    };
    let before = processor_time();
    let leaves = leaves(&table, &metadata).unwrap();
    let pairs = pairs(&table, &leaves, &metadata);
    let taken = processor_time() - before;
    assert_eq!(pairs.len(), 2);
    assert!(taken < Duration::from_secs(3), "{taken:?}");
}

#[test]
fn bytes_that_pandas_has_as_booleans_are_booleans() {
    let mut leaf = leaf_of(Datatype::Uint8);
    leaf.hold_booleans();
    assert_eq!((leaf.physical, leaf.bits()), (Physical::Boolean, Some(1)));
    assert_eq!(
        [0, 1, 255].map(|byte| leaf.value(&[byte])),
        [Some(0), Some(1), Some(1)]
    );
    assert_eq!(statistics::bound_len(&leaf), None);
}

#[test]
fn column_chunks_of_large_files_begin_at_pages() {
    let leaves = [leaf_of(Datatype::Int64), leaf_of(Datatype::Uint8)];
    let mut gaps = 0;
    for rows in [1000, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26] {
        let mut plan = Plan::of(&leaves, rows, 1 << 17, |_| page::Amount::default());
        plan.footer = 5000;
        let chunks: Vec<_> = (0..plan.groups())
            .flat_map(|group| plan.checked_chunks(&leaves, group).unwrap())
            .collect();
        let bytes: u64 = chunks.iter().map(plan::ColumnChunk::len).sum();
        assert_eq!(
            (0..plan.groups()).map(|group| plan.len_of(group)).sum::<u64>(),
            bytes
        );
        if plan.gap() == 0 {
            assert_eq!(plan.end(), 4 + bytes);
            continue;
        }
        gaps += 1;
        assert!(chunks.iter().all(|chunk| chunk.start.is_multiple_of(4096)));
        assert!(chunks.is_sorted_by(|a, b| a.start + a.len() <= b.start));
        // What DuckDB and Polars read at first, and the page in which that begins, are behind all values.
        let len = plan.end() + plan.gap() + plan.footer + 8;
        let duckdb = (len / 1000).next_power_of_two().clamp(64 << 10, 256 << 10);
        let first = if len < 72 << 20 { duckdb } else { 576 << 10 };
        assert!((len - first) / 4096 * 4096 >= plan.end());
        assert!((len - bytes - plan.footer) * 32 <= len);
    }
    assert_eq!(gaps, 5);
}

#[test]
fn row_groups_are_halved_until_no_page_is_too_long() {
    // The length of fixed-size cells is known before row groups are; the length of others is measured.
    for (cell_val_num, at_first) in [(512, 20), (u32::MAX, 40)] {
        let view = of_long_text(cell_val_num);
        assert_eq!(plan::most_rows_of_group(&view, 100).unwrap(), at_first);
        let table = Table::new(&view).unwrap();
        let leaves = leaves(&table, &Metadata::of(table.view()).unwrap()).unwrap();
        let plan = Plan::make(&table, &leaves).unwrap();
        assert_eq!((plan.groups(), plan.rows_of(4)), (5, 80..100));
        let file = layout(&view).unwrap();
        let chunks: Vec<_> = (0..5).flat_map(|group| plan.chunks(&leaves, group)).collect();
        assert!(chunks.iter().all(|chunk| chunk.page <= 1 << 14));
        let mut text = chunks.iter().filter(|chunk| chunk.leaf == 1);
        assert!(text.clone().all(|chunk| chunk.page > 20 * 512));
        // The last letters of a page, and the first bytes of the next one.
        let end = text.clone().next().unwrap();
        let end = end.start + end.len();
        let piece = Output::of(|out| file.read(end - 3..end + 2, out))
            .unwrap()
            .to_vec();
        assert_eq!(piece, b"xxx\x15\x00");
        // A length between two texts.
        let page = text.next_back().unwrap();
        let second = page.data() + page.page - 19 * 516;
        let piece = Output::of(|out| file.read(second - 1..second + 5, out))
            .unwrap()
            .to_vec();
        assert_eq!(piece, b"x\0\x02\0\0x");
    }
}

#[test]
fn a_wrong_start_of_a_row_group_is_an_error_and_never_other_bytes() {
    let view = of_long_text(512);
    let table = Table::new(&view).unwrap();
    let plan = Plan::make(
        &table,
        &leaves(&table, &Metadata::of(table.view()).unwrap()).unwrap(),
    )
    .unwrap();
    let right = whole(&layout(&view).unwrap()).unwrap();
    // A file that nobody goes through from its start: other threads, which know no wrong one, make no windows
    // of it.
    let file = layout(&view).unwrap();
    let mut failed = 0;
    plan::WRONG_START.set(1);
    for place in (0..right.len() - 8).step_by(97).rev() {
        let start = place as u64;
        match Output::of(|out| file.read(start..start + 8, out)) {
            Ok(piece) => assert_eq!(*piece, right[place..place + 8], "{start}"),
            Err(error) => {
                assert_eq!(error.errno(), libc::EIO);
                assert!(start < plan.start_of(2), "{start}");
                failed += 1;
            }
        }
    }
    // The footer of a file that was not read before.
    let file = layout(&of_long_text(512)).unwrap();
    let footer = plan.end()..file.len();
    assert_eq!(
        Output::of(|out| file.read(footer, out))
            .err()
            .map(|error| error.errno()),
        Some(libc::EIO)
    );
    plan::WRONG_START.set(0);
    assert!(failed >= (plan.start_of(2) - 8) / 97);
}

/// A page ends with zeros where it has fewer values than rows. They are no values.
#[test]
fn a_page_with_too_few_values_is_an_error_and_never_zeros() {
    let half_null = |datatype, values| {
        let mut storage = written(&OneTile {
            dimensions: &[("x", 100)],
            attributes: &[("a", datatype, values, true)],
        });
        let valid: Vec<u8> = (0..100).map(|cell| cell % 2).collect();
        let path = format!("__fragments/__1_1_{UUID}_22/a0_validity.tdb");
        storage.insert(Path::new(&path), tile(&[], &valid, 1 << 16));
        View::new(open(&storage).0, None, None).unwrap()
    };
    let lists = || {
        let mut storage = MemoryStorage::default();
        schema_of(&mut storage, 1, "a", Datatype::Int32, u32::MAX, &[1; 8]);
        // One row group: other threads, which do not count wrong, would measure some of several.
        let some = DimRange::from(1_i32..=30);
        View::new(open(&storage).0, None, Some(vec![some])).unwrap()
    };
    let views: [&dyn Fn() -> View; 3] = [
        &|| half_null(Datatype::Int32, 1),
        &|| half_null(Datatype::StringAscii, 3),
        &lists,
    ];
    for (number, view) in views.iter().enumerate() {
        let read = |too_many| {
            page::TOO_MANY.set(too_many);
            let read = whole(&layout(&Arc::new(view()))?);
            page::TOO_MANY.set(0);
            read
        };
        read(0).unwrap();
        let error = read(8).expect_err(&format!("view {number}"));
        assert_eq!(error.errno(), libc::EIO);
    }
}

#[test]
fn a_row_that_was_not_read_is_no_empty_cell() {
    let view = of_long_text(512);
    let table = Table::new(&view).unwrap();
    for column in table.columns() {
        let rows = column.read(3..5).unwrap();
        assert!(!rows.stored(1).is_empty());
        let read = || rows.stored(2).to_vec();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
    }
}
