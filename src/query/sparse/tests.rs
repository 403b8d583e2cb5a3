//! Writes sparse arrays, fragment by fragment, and compares their views with a model. The model collects all
//! cells in a hash map, and sorts those of the view with a plain comparison of coordinates, without keys,
//! windows, heaps or checkpoints.

use super::super::testing::{UUID, generic, open, open_tuned, read};
use super::super::{DimRange, View, deletes};
use super::batch::WRONG_TURN;
use crate::bytes::Output;
use crate::catalog::Array;
use crate::catalog::time::TimeRange;
use crate::check::{CheckOptions, Kind, Problem, check_over};
use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::format::testing::{Bytes, Random};
use crate::fragment::cell_slice::fitting;
use crate::fragment::cells::FragmentCells;
use crate::fragment::column::Content;
use crate::runtime::parallel;
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod arrays;
use arrays::{
    ASCII, Cell, Coordinate, Design, Dimension, Double, FLOAT64, HILBERT, INT32, Int, Text, Written, key,
};

/// The cells that a view must have.
fn model(
    design: &Design,
    written: &[Written],
    times: TimeRange,
    ranges: Option<&[(Option<Coordinate>, Option<Coordinate>)]>,
) -> Vec<Cell> {
    let mut visible: Vec<&Written> = written
        .iter()
        .filter(|own| own.stamps.0 <= times.end && times.start <= own.stamps.1)
        .collect();
    visible.sort_by(|a, b| (a.stamps.0, &a.name).cmp(&(b.stamps.0, &b.name)));
    /// Timestamp, index of the fragment, index in the fragment, and the cell.
    type Version<'a> = (u64, usize, usize, &'a Cell);
    let mut places: HashMap<Vec<Vec<u8>>, Vec<Version>> = HashMap::new();
    for (index, own) in visible.iter().enumerate() {
        for (at, cell) in own.cells.iter().enumerate() {
            let time = if own.has_timestamps {
                cell.time
            } else {
                own.stamps.0
            };
            if !own.has_timestamps || times.start <= time && time <= times.end {
                places
                    .entry(key(&cell.place))
                    .or_default()
                    .push((time, index, at, cell));
            }
        }
    }
    let mut cells = Vec::new();
    for (_, mut versions) in places {
        if !design.duplicates {
            // The newest is kept; within one fragment, the one that is stored first.
            versions.sort_by_key(|&(time, index, at, _)| (time, index, usize::MAX - at));
            versions = versions.pop().into_iter().collect();
        }
        cells.extend(versions);
    }
    cells.retain(|(.., cell)| cell.deleted > times.end);
    cells.retain(|(.., cell)| {
        ranges.is_none_or(|ranges| {
            cell.place.iter().zip(ranges).all(|(v, (low, high))| {
                low.as_ref().is_none_or(|low| v.compare(low) != Ordering::Less)
                    && high
                        .as_ref()
                        .is_none_or(|high| v.compare(high) != Ordering::Greater)
            })
        })
    });
    cells.sort_by(|a, b| {
        let newest_first = match design.duplicates {
            true => b.1.cmp(&a.1),
            false => (b.0, b.1).cmp(&(a.0, a.1)),
        };
        let order = design.compare(&a.3.place, &b.3.place);
        order.then(newest_first).then(a.2.cmp(&b.2))
    });
    cells.into_iter().map(|(.., cell)| cell.clone()).collect()
}

/// Compares one content of a field with the bytes that it must have: read as a whole, in steps, and in some
/// random parts.
fn check(view: &View, field: usize, content: Content, wanted: &[u8], numbers: &mut Random, what: &str) {
    let cells = view.open(field).unwrap();
    assert_eq!(cells.len(content).unwrap(), wanted.len() as u64, "{what}");
    let len = wanted.len() as u64;
    for _ in 0..3 {
        let from = numbers.below(len + 1);
        let to = from + numbers.below((len - from).min(100) + 1);
        let piece = Output::of(|out| cells.read(content, from..to, out)).unwrap();
        assert!(
            *piece == wanted[from as usize..to as usize],
            "{what}: {from}..{to}"
        );
    }
    let step = 1 + numbers.below((len / 100).max(200));
    assert!(read(&*cells, content, step) == wanted, "{what}");
    assert!(read(&*cells, content, 1 << 20) == wanted, "{what}");
}

/// Concatenated texts, and the offset of each, with the end of the last.
fn texts<'a>(values: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<u8>) {
    let (mut data, mut offsets) = (Vec::new(), vec![0; 8]);
    for value in values {
        data.extend(value);
        offsets.extend((data.len() as u64).to_le_bytes());
    }
    (data, offsets)
}

/// Compares views of `written`, at random times and in random parts, with the model: read in small parts, and
/// in those of production.
fn compare(numbers: &mut Random, design: &Design, written: &[Written], seed: u64) {
    compare_tuned(numbers, design, written, seed, &Tuning::SMALL, 4);
    compare_tuned(numbers, design, written, seed, &Tuning::PRODUCTION, 4);
}

/// Of `rounds` views, the first is that of all, and every second one is of a part.
fn compare_tuned(
    numbers: &mut Random,
    design: &Design,
    written: &[Written],
    seed: u64,
    tuning: &'static Tuning,
    rounds: u64,
) {
    let mut storage = MemoryStorage::default();
    let schema = format!("__schema/__1_1_{UUID}");
    storage.insert(Path::new(&schema), generic(&design.bytes()));
    for own in written {
        own.write(&mut storage, design);
    }
    let (array, _) = open_tuned(&storage, tuning);
    for round in 0..rounds {
        let times = match round {
            0 => None,
            _ => Some(TimeRange {
                start: numbers.below(2) * numbers.below(25),
                end: 10 + numbers.below(30),
            }),
        };
        let ranges: Option<Vec<_>> = (round % 2 == 1).then(|| {
            let sides = design.dimensions.iter().map(|dimension| {
                let (mut low, mut high) = (dimension.coordinate(numbers), dimension.coordinate(numbers));
                if low.compare(&high) == Ordering::Greater {
                    (low, high) = (high, low);
                }
                let open = numbers.below(8);
                ((open != 0).then_some(low), (open != 1).then_some(high))
            });
            sides.collect()
        });
        let subarray = ranges.as_ref().map(|ranges| {
            let sides = ranges.iter().map(|(low, high)| DimRange {
                lo: low.as_ref().map(Coordinate::bytes),
                hi: high.as_ref().map(Coordinate::bytes),
            });
            sides.collect()
        });
        let seen = times.unwrap_or(TimeRange {
            start: 0,
            end: u64::MAX - 1,
        });
        let wanted = model(design, written, seen, ranges.as_deref());
        let what = format!("seed {seed}, {times:?}, {ranges:?}, {design:?}");
        let view = View::new(array.clone(), times, subarray).unwrap();
        assert_eq!(view.count().unwrap(), wanted.len() as u64, "{what}");
        for (i, dimension) in design.dimensions.iter().enumerate() {
            let what = format!("dimension {i}, {what}");
            let values: Vec<Vec<u8>> = wanted.iter().map(|cell| cell.place[i].bytes()).collect();
            let (data, offsets) = texts(values.iter().map(Vec::as_slice));
            check(&view, i, Content::Data, &data, numbers, &what);
            if dimension.datatype == ASCII {
                check(&view, i, Content::Offsets, &offsets, numbers, &what);
            }
        }
        let first = design.dimensions.len();
        let data: Vec<u8> = wanted.iter().flat_map(|cell| cell.numbers).collect();
        let validity: Vec<u8> = wanted.iter().map(|cell| cell.valid).collect();
        let (text, offsets) = texts(wanted.iter().map(|cell| cell.text.as_slice()));
        check(&view, first, Content::Data, &data, numbers, &what);
        check(&view, first, Content::Validity, &validity, numbers, &what);
        check(&view, first + 1, Content::Data, &text, numbers, &what);
        check(&view, first + 1, Content::Offsets, &offsets, numbers, &what);
    }
}

#[test]
fn views_equal_a_model_that_sorts_all_cells() {
    for seed in 0..300 {
        let mut numbers = Random(seed * 77 + 1);
        let design = Design::random(&mut numbers);
        let count = numbers.below(7);
        let most = 1 + numbers.below(40);
        let written: Vec<Written> = (0..count)
            .map(|number| Written::random(&mut numbers, &design, number, most))
            .collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

#[test]
fn many_fragments_equal_the_model() {
    for seed in 0..2 {
        let mut numbers = Random(seed + 1000);
        let design = Design {
            duplicates: seed == 1,
            ..Design::random(&mut numbers)
        };
        let written: Vec<Written> = (0..300)
            .map(|number| Written::random(&mut numbers, &design, number, 6))
            .collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

/// Enough cells for several windows, batches and blocks of production, merged by several threads.
#[test]
fn large_fragments_equal_the_model() {
    for (seed, cell_order) in [(0, 0), (1, HILBERT)] {
        let mut numbers = Random(seed + 3000);
        let dimension = Dimension {
            datatype: INT32,
            lossy: false,
            domain: Some((Int(0), Int(399))),
            extent: Some(Int(100)),
        };
        let design = Design {
            dimensions: vec![dimension; 2],
            duplicates: seed == 1,
            tile_order: 0,
            cell_order,
            capacity: 10_000,
        };
        let (mut written, mut cells) = (Vec::new(), 0);
        while cells < 2 * Tuning::PRODUCTION.block_cells {
            let own = Written::random(&mut numbers, &design, written.len() as u64, 50_000);
            cells += own.cells.len() as u64;
            written.push(own);
        }
        compare_tuned(&mut numbers, &design, &written, seed, &Tuning::PRODUCTION, 2);
    }
}

/// libtiledb writes strings in the order of signed bytes, and reads them in that of unsigned ones.
#[test]
fn strings_of_signed_bytes_are_merged_by_unsigned_ones() {
    let places: [&[u8]; 8] = [b"", b"\x80", b"\xff", b"a", b"a\x80", b"az", b"b", b"z"];
    for seed in 0..100 {
        let mut numbers = Random(seed + 2000);
        let design = Design::of_texts(1 + numbers.below(4) as usize);
        // All have the same domain and timestamp, so that they are merged: a single one is not sorted.
        let mut written = |number: u64| {
            let chosen = places
                .iter()
                .filter(|place| place.len() != 2 || numbers.below(2) == 0);
            let mut cells: Vec<Cell> = chosen
                .map(|place| Cell {
                    place: vec![Text(place.to_vec())],
                    time: 10,
                    deleted: u64::MAX,
                    numbers: [number as u8; 6],
                    valid: 1,
                    text: place.to_vec(),
                })
                .collect();
            cells.sort_by_key(|cell| cell.text.iter().map(|byte| *byte as i8).collect::<Vec<_>>());
            Written {
                stamps: (10, 10),
                name: format!("__10_10_{number:032x}_22"),
                has_timestamps: false,
                has_delete_metadata: false,
                cells,
            }
        };
        let written: Vec<Written> = (0..2 + seed % 4).map(&mut written).collect();
        compare(&mut numbers, &design, &written, seed);
    }
}

#[test]
fn a_head_of_a_large_fragment_looks_at_few_cells() {
    // The array is not opened again, so that its readers could not find out what is out of order.
    let (array, stats) = open(&one_dimension(&[(0..960).collect()]));
    let head = View::new(array, None, None).unwrap().head(4).unwrap();
    assert!(all(&head, 0).unwrap().starts_with(&bytes_of(0..4)));
    assert!(stats.tiles_opened.get() < 20, "{}", stats.tiles_opened.get());
}

/// A fragment that is read alone keeps the order of its writer, its first cells too.
#[test]
fn a_lone_fragment_of_strings_is_not_judged() {
    let places = ["aa", "b\u{e9}", "bb", "z"];
    let design = Design::of_texts(2);
    let cells = places.map(|place| Cell {
        place: vec![Text(place.into())],
        time: 10,
        deleted: u64::MAX,
        numbers: [0; 6],
        valid: 1,
        text: Vec::new(),
    });
    let written = Written {
        stamps: (10, 10),
        name: format!("__10_10_{UUID}_22"),
        has_timestamps: false,
        has_delete_metadata: false,
        cells: cells.into(),
    };
    let mut storage = MemoryStorage::default();
    storage.insert(
        Path::new(&format!("__schema/__1_1_{UUID}")),
        generic(&design.bytes()),
    );
    written.write(&mut storage, &design);
    let (array, _) = open(&storage);
    array.engine.disorder.let_readers_find();
    let view = || View::new(array.clone(), None, None).unwrap();
    let state = view().state();
    let head = view().head(3).unwrap();
    let wanted = places.concat();
    assert!(all(&head, 0).unwrap().starts_with("aab\u{e9}bb".as_bytes()));
    assert!(all(&view(), 0).unwrap() == wanted.as_bytes());
    assert_eq!(view().state(), state);
    let disorders = Arc::new(AtomicU64::new(0));
    let found = disorders.clone();
    let report = Box::new(move |problem: Problem| {
        found.fetch_add(u64::from(problem.kind == Kind::Order), Relaxed);
    });
    let options = CheckOptions {
        cache_size: 1 << 20,
        keys: Vec::new(),
        follow_symlinks: false,
        threads: 1,
    };
    check_over(
        Arc::new(storage),
        Arc::default(),
        &options,
        report,
        Arc::default(),
    )
    .unwrap();
    assert_eq!(disorders.load(Relaxed), 0);
}

/// Fragments of cells at these places, in this order, written at times 10 to 20 if `timed`.
fn stored(design: &Design, fragments: &[Vec<Vec<Coordinate>>], timed: bool) -> MemoryStorage {
    let mut storage = MemoryStorage::default();
    let schema = format!("__schema/__1_1_{UUID}");
    storage.insert(Path::new(&schema), generic(&design.bytes()));
    for (number, places) in fragments.iter().enumerate() {
        let cells = places.iter().map(|place| Cell {
            place: place.clone(),
            ..Cell::at(0)
        });
        let stamps = (10, if timed { 20 } else { 10 });
        let written = Written {
            stamps,
            name: format!("__{}_{}_{number:032x}_22", stamps.0, stamps.1),
            has_timestamps: timed,
            has_delete_metadata: false,
            cells: cells.collect(),
        };
        written.write(&mut storage, design);
    }
    storage
}

/// A head of what is merged or sorted begins as the whole does, where writers had another order than readers.
#[test]
fn a_head_in_another_order_than_that_of_the_writer_is_sorted() {
    let float = |lossy| Dimension {
        datatype: FLOAT64,
        lossy,
        domain: Some((Double(0.0), Double(100.0))),
        extent: Some(Double(10.0)),
    };
    // In the first dimension all were different, and ascending.
    let rounded = (0..40).map(|i| vec![Double(0.0), Double(f64::from((20 + i) % 40) / 4.0)]);
    let rounded: Vec<_> = rounded.collect();
    let few = vec![vec![Double(0.0), Double(99.0)]];
    let texts: [&[u8]; 10] = [
        b"a", b"b\xc30", b"b\xc31", b"b\xc32", b"b\xc33", b"b\xc34", b"b\xc35", b"b\xc36", b"bx", b"z",
    ];
    let texts: Vec<_> = texts.iter().map(|text| vec![Text(text.to_vec())]).collect();
    let texts_of = Design::of_texts(4);
    let floats = Design {
        dimensions: vec![float(true), float(false)],
        ..texts_of.clone()
    };
    for (design, fragments, timed) in [
        (&floats, vec![rounded.clone(), few], false),
        (&floats, vec![rounded], true),
        (
            &texts_of,
            vec![texts.clone(), vec![vec![Text(b"m".to_vec())]]],
            false,
        ),
        (&texts_of, vec![texts], true),
    ] {
        // Windows of few cells do not reach the one that readers have second.
        for tuning in [&Tuning::SMALL, &Tuning::PRODUCTION] {
            let (array, _) = open_tuned(&stored(design, &fragments, timed), tuning);
            array.engine.disorder.let_readers_find();
            let view = View::new(array, None, None).unwrap();
            let field = design.dimensions.len() - 1;
            let head = all(&view.head(2).unwrap(), field).unwrap();
            assert!(!head.is_empty() && all(&view, field).unwrap().starts_with(&head));
        }
    }
}

/// A lossy filter makes another order of any number of cells. libtiledb's readers compare the next cells of
/// fragments, in whatever order they are stored.
#[test]
fn fragments_of_changed_coordinates_are_merged_as_they_are_stored() {
    const CELLS: usize = 1000;
    let dimension = Dimension {
        datatype: FLOAT64,
        lossy: true,
        domain: Some((Double(0.0), Double(5000.0))),
        extent: Some(Double(100.0)),
    };
    let design = Design {
        dimensions: vec![dimension],
        duplicates: true,
        tile_order: 0,
        cell_order: 0,
        capacity: 16,
    };
    let mut numbers = Random(52);
    let mut place = |i: usize| (i as u64 + numbers.below(5)) as f64;
    let fragments: Vec<Vec<f64>> = (0..3).map(|_| (0..CELLS).map(&mut place).collect()).collect();
    let mut next = [0; 3];
    let expected = std::iter::from_fn(|| {
        let newest_first = (0..3).rev().filter(|&fragment| next[fragment] < CELLS);
        let places = newest_first.map(|fragment| (fragment, fragments[fragment][next[fragment]]));
        let (fragment, place) = places.min_by(|a, b| a.1.total_cmp(&b.1))?;
        next[fragment] += 1;
        Some(place.to_le_bytes())
    });
    let expected: Vec<u8> = expected.flatten().collect();
    let places = |places: &Vec<f64>| places.iter().map(|place| vec![Double(*place)]).collect();
    let places: Vec<Vec<Vec<Coordinate>>> = fragments.iter().map(places).collect();
    for tuning in [&Tuning::SMALL, &Tuning::PRODUCTION] {
        let storage = stored(&design, &places, false);
        let capacity = (256 << 10) * parallel::threads();
        let engine = Engine::new(Arc::new(storage), capacity, Vec::new(), Arc::default());
        let array = Arc::new(Array::new(Arc::new(engine.tuned(tuning)), "".into()));
        for range in [8 * 1500..8 * 1600, 0..expected.len()] {
            let cells = View::new(array.clone(), None, None).unwrap().open(0).unwrap();
            let bytes = range.start as u64..range.end as u64;
            let found = Output::of(|out| cells.read(Content::Data, bytes, out)).unwrap();
            assert!(*found == expected[range]);
        }
    }
}

/// TileDB reads an array without timestamps that it cannot decode, as those that XOR has after
/// BIT_WIDTH_REDUCTION.
#[test]
fn timestamps_are_read_only_where_they_matter() {
    for duplicates in [true, false] {
        let design = Design {
            duplicates,
            ..Design::of_texts(4)
        };
        let places = |texts: [&[u8]; 3]| texts.map(|text| vec![Text(text.to_vec())]).to_vec();
        let fragments = [places([b"a", b"c", b"e"]), places([b"b", b"c", b"d"])];
        let mut storage = stored(&design, &fragments, true);
        for number in 0..2 {
            let path = format!("__fragments/__10_20_{number:032x}_22/t.tdb");
            storage.insert(Path::new(&path), vec![0xff; 40]);
        }
        let (array, _) = open(&storage);
        let read = |end| {
            let times = TimeRange { start: 0, end };
            all(&View::new(array.clone(), Some(times), None).unwrap(), 0)
        };
        assert_eq!(read(99).ok().as_deref(), duplicates.then_some(&b"abccde"[..]));
        assert!(read(15).is_err());
    }
}

#[test]
fn sorting_long_strings_takes_no_more_memory_than_allowed() {
    let design = Design::of_texts(4);
    for (length, fits) in [(1, true), (2000, false)] {
        let places = (0..20u8).rev().map(|i| vec![Text(vec![b'a' + i; length])]);
        let storage = stored(&design, &[places.collect()], true);
        let capacity = (64 << 10) * parallel::threads();
        let engine = Engine::new(Arc::new(storage), capacity, Vec::new(), Arc::default());
        let array = Array::new(Arc::new(engine.tuned(&Tuning::SMALL)), "".into());
        let count = View::new(Arc::new(array), None, None).unwrap().count();
        assert_eq!(count.as_ref().ok(), fits.then_some(&20), "{count:?}");
        assert!(fits || count.unwrap_err().kind() == ErrorKind::LimitExceeded);
    }
}

#[test]
fn long_cells_of_a_fixed_size_are_read_in_smaller_windows() {
    let (array, _) = open(&one_dimension(&[(0..40).collect()]));
    let view = View::new(array, None, None).unwrap();
    let info = view.fragments()[0].open().unwrap();
    // Three numbers of two bytes each.
    let field = info.fields.iter().find(|field| field.name == b"f").unwrap();
    let cells = FragmentCells::new(info.clone(), field.clone());
    for (bytes, end) in [(13, 4), (1000, 40), (5, 3)] {
        assert_eq!(fitting([&cells].into_iter(), 2..40, bytes).unwrap(), 2..end);
    }
}

#[test]
fn fragments_share_the_bindings_of_deletes() {
    let mut storage = one_dimension(&[vec![1, 2], vec![2, 7], vec![8]]);
    let condition = Bytes::default().u8(1).u8(5).text32("d0").text64("\x07\0\0\0");
    let delete = format!("__commits/__30_30_{UUID}_22.del");
    storage.insert(Path::new(&delete), generic(&condition.bytes));
    let (array, _) = open(&storage);
    let view = View::new(array.clone(), None, None).unwrap();
    assert!(all(&view, 0).unwrap() == bytes_of([1, 2, 8].into_iter()));
    let (fragments, times) = (view.fragments(), TimeRange { start: 0, end: 99 });
    let infos: Vec<_> = fragments
        .iter()
        .map(|fragment| fragment.open().unwrap())
        .collect();
    let listing = array.listing().unwrap();
    let deletes = deletes::in_force(&array.engine, None, &listing, times, &infos[0].schema).unwrap();
    let bound = infos
        .iter()
        .map(|info| deletes::bind(&deletes, info).unwrap().pop().unwrap());
    let bound: Vec<_> = bound.collect();
    assert!(bound.iter().all(|one| Arc::ptr_eq(one, &bound[0])));
}

/// A batch whose turns are those of other members is an error or a panic.
#[test]
fn a_wrong_turn_never_gives_other_cells() {
    let fragments: Vec<Vec<i32>> = (0..3)
        .map(|own| (0..10).map(|i| 3 * i + own + 5 * (i % 2)).collect())
        .collect();
    let mut failures = 0;
    for (duplicates, number, member) in [false, true]
        .into_iter()
        .flat_map(|d| (0..16).flat_map(move |n| (0..4).map(move |m| (d, n, m))))
    {
        let (array, _) = open(&one_dimension_of(4, duplicates, &fragments));
        let view = View::new(array, None, None).unwrap();
        let places = || {
            let cells = view.open(0)?;
            let whole = Output::of(|out| cells.read(Content::Data, 0..120, out))?.to_vec();
            Ok::<_, crate::error::Error>(whole)
        };
        WRONG_TURN.set(Some((number, member)));
        let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(places));
        WRONG_TURN.set(None);
        match wrong {
            Ok(Ok(found)) => assert!(found == places().unwrap(), "turn {number} of member {member}"),
            _ => failures += 1,
        }
    }
    assert!(failures > 64, "{failures}");
}

#[test]
fn the_order_of_a_large_fragment_is_looked_at_in_some_places() {
    let sorted: Vec<i32> = (0..4000).collect();
    let turned: Vec<i32> = (0..4000).rev().collect();
    // Each sample is in order, but the samples are not in order among themselves.
    let halves: Vec<i32> = (2000..4000).chain(0..2000).collect();
    for (places, tiles) in [(sorted, 15), (turned, 250), (halves, 250)] {
        let (array, stats) = open(&one_dimension(&[places]));
        let view = View::new(array, None, None).unwrap();
        let cells = view.open(0).unwrap();
        let first = Output::of(|out| cells.read(Content::Data, 0..40, out)).unwrap();
        assert!(*first == bytes_of(0..10));
        assert_eq!(stats.tiles_opened.get(), tiles);
    }
}

/// An array of one INT32 dimension in tiles of 16 cells, with one fragment of these coordinates for each
/// list.
fn one_dimension(fragments: &[Vec<i32>]) -> MemoryStorage {
    one_dimension_of(16, false, fragments)
}

/// [`one_dimension`], in tiles of `capacity` cells.
fn one_dimension_of(capacity: usize, duplicates: bool, fragments: &[Vec<i32>]) -> MemoryStorage {
    let dimension = Dimension {
        datatype: INT32,
        lossy: false,
        domain: Some((Int(0), Int(5000))),
        extent: Some(Int(10)),
    };
    let design = Design {
        dimensions: vec![dimension],
        duplicates,
        tile_order: 0,
        cell_order: 0,
        capacity,
    };
    let mut storage = MemoryStorage::default();
    let schema = format!("__schema/__1_1_{UUID}");
    storage.insert(Path::new(&schema), generic(&design.bytes()));
    for (number, places) in fragments.iter().enumerate() {
        let written = Written {
            stamps: (10, 10),
            name: format!("__10_10_{number:032x}_22"),
            has_timestamps: false,
            has_delete_metadata: false,
            cells: places.iter().copied().map(Cell::at).collect(),
        };
        written.write(&mut storage, &design);
    }
    storage
}

fn bytes_of(places: impl Iterator<Item = i32>) -> Vec<u8> {
    places.flat_map(i32::to_le_bytes).collect()
}

fn all(view: &View, field: usize) -> crate::error::Result<Vec<u8>> {
    let cells = view.open(field)?;
    Ok(Output::of(|out| cells.read(Content::Data, 0..u64::MAX, out))?.into())
}

#[test]
fn cells_out_of_order_fail_their_readers_and_are_sorted_for_later_ones() {
    // Behind one tile in order, in one of many tiles two cells have changed places.
    let mut places: Vec<i32> = (0..1600).collect();
    places.swap(1000, 1001);
    // Two tiles have changed places: each is in order.
    let halves: Vec<i32> = (0..160)
        .chain(176..192)
        .chain(160..176)
        .chain(192..1600)
        .collect();
    for places in [places, halves] {
        let (array, stats) = open(&one_dimension(&[places]));
        array.engine.disorder.let_readers_find();
        let view = View::new(array.clone(), None, None).unwrap();
        let other = View::new(array.clone(), None, None).unwrap();
        assert_eq!((view.count().unwrap(), stats.tiles_opened.get()), (1600, 0));
        let cells = view.open(0).unwrap();
        let first = Output::of(|out| cells.read(Content::Data, 0..400, out)).unwrap();
        assert!(*first == bytes_of(0..100));
        assert!(stats.tiles_opened.get() < 10, "only what was read");
        assert_eq!(all(&view, 0).unwrap_err().errno(), libc::EIO);
        // So does everything else of that state, also what was opened before.
        for (view, field) in [(&view, 0), (&view, 1), (&other, 0), (&other, 1), (&other, 2)] {
            let cells = view.open(field).unwrap();
            // The texts are empty.
            let content = if field == 2 {
                Content::Offsets
            } else {
                Content::Data
            };
            let read = Output::of(|out| cells.read(content, 0..6, out));
            assert_eq!(read.err().map(|error| error.errno()), Some(libc::EIO));
        }
        let sorted = View::new(array.clone(), None, None).unwrap();
        assert_ne!(sorted.state(), view.state());
        assert!(all(&sorted, 0).unwrap() == bytes_of(0..1600));
        let numbers: Vec<u8> = (0..1600).flat_map(|place| [place as u8; 6]).collect();
        assert!(all(&sorted, 1).unwrap() == numbers);
        // An array opened anew knows nothing, and does not look when it cannot be opened again.
        let (array, _) = open(&one_dimension(&[(0..1600).rev().collect()]));
        let view = View::new(array, None, None).unwrap();
        assert!(all(&view, 1).unwrap() == numbers);
    }
}

#[test]
fn a_small_fragment_out_of_order_is_sorted_at_once() {
    for field in 0..3 {
        let (array, _) = open(&one_dimension(&[vec![3, 1, 2]]));
        array.engine.disorder.let_readers_find();
        let view = View::new(array.clone(), None, None).unwrap();
        all(&view, field).unwrap();
        assert!(all(&view, 0).unwrap() == bytes_of(1..4), "field {field}");
        let head = View::new(array.clone(), None, None).unwrap().head(2).unwrap();
        assert!(all(&head, 0).unwrap() == bytes_of(1..3), "field {field}");
    }
    // What is behind the first cells tells as well: of small fragments, and of those that are known.
    let behind = |count: i32| {
        let (array, _) = open(&one_dimension(&[(1..count).chain([0]).collect()]));
        array.engine.disorder.let_readers_find();
        array
    };
    let array = behind(16);
    let head = || View::new(array.clone(), None, None).unwrap().head(1).unwrap();
    assert!(all(&head(), 0).unwrap()[..4] == bytes_of(0..1));
    let array = behind(1600);
    let view = || View::new(array.clone(), None, None).unwrap();
    assert_eq!(all(&view(), 0).unwrap_err().errno(), libc::EIO);
    assert!(all(&view().head(1).unwrap(), 0).unwrap()[..4] == bytes_of(0..1));
    // The first cells of a view are merged, which tells as well.
    let (array, _) = open(&one_dimension(&[(0..100).rev().collect()]));
    array.engine.disorder.let_readers_find();
    let head = || View::new(array.clone(), None, None).unwrap().head(60).unwrap();
    assert_eq!(all(&head(), 1).unwrap_err().errno(), libc::EIO);
    assert!(all(&head(), 0).unwrap()[..240] == bytes_of(0..60));
}

#[test]
fn the_order_of_many_small_fragments_is_found_by_readers() {
    let pairs = |start: i32| [start, start + 1];
    let (array, stats) = open(&one_dimension(&[0, 2, 4].map(|start| pairs(start).to_vec())));
    array.engine.disorder.let_readers_find();
    let view = View::new(array, None, None).unwrap();
    assert_eq!(view.tile_runs().unwrap().len(), 3);
    assert_eq!(stats.tiles_opened.get(), 0);
    assert!(all(&view, 0).unwrap() == bytes_of(0..6));
    // One reader fails, not one for each fragment.
    let (array, _) = open(&one_dimension(&[vec![1, 0], vec![3, 2], vec![5, 4]]));
    array.engine.disorder.let_readers_find();
    let view = || View::new(array.clone(), None, None).unwrap();
    let before = view();
    assert_eq!(all(&before, 0).unwrap_err().errno(), libc::EIO);
    assert_eq!(all(&before, 1).unwrap_err().errno(), libc::EIO);
    assert!(all(&view(), 0).unwrap() == bytes_of(0..6));
    assert!(all(&view(), 1).unwrap() == (0..6).flat_map(|place| [place as u8; 6]).collect::<Vec<u8>>());
}

#[test]
fn coordinates_outside_of_the_domain_are_cells_of_their_own() {
    // The domain is 0 to 5000.
    let overlapping = [vec![5, 6000, 6010], vec![6, 6005, 7000]];
    let apart = [vec![6000, 6001], vec![6002, 6003]];
    let at_the_bound = [vec![5000], vec![5001]];
    let below = [vec![2, -5, -3], vec![0, -4]];
    for fragments in [&overlapping[..], &apart, &at_the_bound, &below] {
        let (array, _) = open(&one_dimension(fragments));
        let view = View::new(array, None, None).unwrap();
        let bytes = all(&view, 0).unwrap();
        let places = bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        let mut expected = fragments.concat();
        // What is below comes last.
        expected.sort_unstable_by_key(|place| *place as u32);
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }
}

/// Boxes have no NaN, so they do not tell that fragments have a cell at the same place.
#[test]
fn cells_at_nan_stay_where_boxes_are_apart() {
    let float = Dimension {
        datatype: FLOAT64,
        lossy: false,
        domain: Some((Double(0.0), Double(1.0))),
        extent: Some(Double(1.0)),
    };
    let design = Design {
        dimensions: vec![float.clone(), float],
        ..Design::of_texts(4)
    };
    let cells = |places: [(f64, f64); 3]| places.map(|(x, y)| vec![Double(x), Double(y)]).to_vec();
    let nan = (f64::NAN, f64::NAN);
    let fragments = [
        cells([(0.1, 0.1), (0.9, 0.2), nan]),
        cells([(0.2, 0.8), (0.8, 0.9), nan]),
    ];
    let (array, _) = open(&stored(&design, &fragments, false));
    let view = View::new(array, None, None).unwrap();
    assert_eq!(all(&view, 2).unwrap().len(), 36);
}

#[test]
fn a_field_that_is_no_dimension_takes_no_coordinates() {
    let parts = [0..1600, 1600..3200, 3200..4800];
    let (array, stats) = open(&one_dimension(&parts.map(Iterator::collect)));
    array.engine.disorder.let_readers_find();
    let view = View::new(array, None, None).unwrap();
    assert_eq!(view.tile_runs().unwrap().len(), 3);
    assert!(all(&view, 1).unwrap() == (0..4800).flat_map(|place| [place as u8; 6]).collect::<Vec<u8>>());
    // A tile of 300, and one of each fragment's coordinates as a sample.
    assert_eq!(stats.tiles_opened.get(), 300 + 3);
    assert!(all(&view, 0).unwrap() == bytes_of(0..4800));
    assert_eq!(stats.tiles_opened.get(), 600);
}

#[test]
fn runs_of_tiles_are_those_of_fragments_that_do_not_interleave() {
    let of = |fragments: &[Vec<i32>]| {
        let (array, stats) = open(&one_dimension(fragments));
        array.engine.disorder.let_readers_find();
        let view = View::new(array, None, None).unwrap();
        let runs = view.tile_runs().unwrap();
        (
            runs.iter().map(|run| (run.cells, run.tile)).collect::<Vec<_>>(),
            stats.tiles_opened.get(),
        )
    };
    // More than one fragment is too many to open all in tests.
    assert_eq!(of(&[(0..100).collect()]), (vec![(100, 16)], 0));
    assert_eq!(
        of(&[(200..230).collect(), (0..100).collect()]),
        (vec![(100, 16), (30, 16)], 0)
    );
    let even = |start: i32| (start..100).step_by(2).collect();
    assert_eq!(
        of(&[even(0), even(1), (200..230).collect()]).0,
        [(100, 1), (30, 16)]
    );
}
