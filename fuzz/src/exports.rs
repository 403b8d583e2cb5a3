//! The exports of small arrays of every shape: as long as they say, and the same however they are read.

use super::arrays::{Design, Dice};
use std::sync::Arc;
use tiledbfs::Output;
use tiledbfs::internals::engine::Engine;
use tiledbfs::internals::export::{Export, ExportOptions, tiff, zarr};
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::open_array;
use tiledbfs::internals::storage::MemoryStorage;
use tiledbfs::{DimRange, Result, TimeRange, View};

/// Ranges of a file that are read before the whole.
const RANGES: u64 = 8;

/// Of a longer file no more is read than these bytes at each end.
const MOST: u64 = 1 << 18;

/// Decisions: which array, which time, which part of it, and what is read first.
pub fn exports(data: &[u8]) {
    let mut dice = Dice::new(data);
    let design = Design::new(&mut dice);
    let times = match dice.below(3) {
        0 => TimeRange::until(9 + dice.below(4) as u64),
        _ => TimeRange::ALL,
    };
    let subarray = design.subarray(&mut dice);
    let storage = design.write(&mut dice);
    // Two that have nothing in common but the bytes.
    let [first, second] = [0, 1].map(|_| view(&storage, times, subarray.clone()));
    let options = ExportOptions::default();
    for export in Export::all(&first) {
        let absent = export.absent(&first, &options).unwrap();
        assert_eq!(export.absent(&second, &options).unwrap(), absent);
        if absent.is_some() {
            continue;
        }
        match &export {
            Export::File(format) => {
                let length = same(&export, |view| format.layout(view), [&first, &second], &mut dice);
                if let Some(mut stream) = format.stream(&first).unwrap() {
                    let mut streamed = 0;
                    while let Some(bytes) = stream.next().unwrap() {
                        streamed += bytes.len() as u64;
                    }
                    assert_eq!(streamed, length);
                }
            }
            Export::Image(_, fields) => {
                same(
                    &export,
                    |view| tiff::layout(view, fields.clone()),
                    [&first, &second],
                    &mut dice,
                );
            }
            Export::Zarr => zarrs([&first, &second], &mut dice),
        }
    }
}

fn view(storage: &MemoryStorage, times: TimeRange, subarray: Option<Vec<DimRange>>) -> Arc<View> {
    let engine = Engine::new(Arc::new(storage.clone()), 8 << 20, Vec::new(), Arc::default());
    let view = open_array(Arc::new(engine), "").at(times);
    Arc::new(match subarray {
        Some(ranges) => view.subarray(ranges).open().unwrap(),
        None => view.open().unwrap(),
    })
}

/// Chunks of all arrays of a Zarr: the first, the last, and one in between.
fn zarrs(views: [&Arc<View>; 2], dice: &mut Dice<'_>) {
    let [first, _] = views.map(|view| zarr::ZarrGroup::of(view.clone()).unwrap());
    first.json();
    for name in first.names() {
        let array = first.array(name).unwrap();
        array.json();
        let counts = array.counts();
        assert!(counts.iter().all(|count| *count > 0));
        let last: Vec<u64> = counts.iter().map(|count| count - 1).collect();
        let between = counts.iter().map(|count| dice.random() % count).collect();
        let first_chunk = vec![0; counts.len()];
        for chunk in [first_chunk.clone(), last, between] {
            let layout = |view: &Arc<View>| zarr::ZarrGroup::of(view.clone())?.array(name)?.chunk(&chunk);
            let length = same(&Export::Zarr, layout, views, dice);
            assert_eq!(length, array.chunk(&first_chunk).unwrap().len());
        }
        assert!(array.chunk(&counts).is_err());
    }
}

/// Reads ranges of a file of the first view, then all of that of the second, and gives its length.
fn same(
    export: &Export,
    layout: impl Fn(&Arc<View>) -> Result<FileLayout>,
    views: [&Arc<View>; 2],
    dice: &mut Dice<'_>,
) -> u64 {
    let [first, second] = views.map(|view| layout(view).unwrap());
    let length = first.len();
    assert_eq!(second.len(), length, "{export:?}");
    let mut parts = Vec::new();
    for _ in 0..RANGES {
        let start = dice.random() % (length + 1);
        let end = start + dice.random() % [4, 60, 3000][(dice.random() % 3) as usize];
        let part = Output::of(|out| first.read(start..end, out)).unwrap().to_vec();
        parts.push((start..start + part.len() as u64, end, part));
    }
    let ends = match length <= 2 * MOST {
        true => [0..length, length..length],
        false => [0..MOST, length - MOST..length],
    };
    for range in ends {
        let read = Output::of(|out| second.read(range.clone(), out))
            .unwrap()
            .to_vec();
        assert_eq!(read.len() as u64, range.end - range.start, "{export:?}");
        for (place, end, part) in &parts {
            assert_eq!(place.end, (*end).min(length).max(place.start), "{export:?}");
            if range.start <= place.start && place.end <= range.end {
                let at = (place.start - range.start) as usize;
                assert!(read[at..at + part.len()] == **part, "{export:?} at {place:?}");
            }
        }
    }
    length
}
