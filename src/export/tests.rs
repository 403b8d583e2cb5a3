//! Every export of the test arrays has the length that it says, and any range read alone is that part of the
//! whole.

use super::*;
use crate::bytes::Output;
use crate::catalog::Array;
use crate::error::ErrorKind;
use crate::format::testing::Random;
use crate::query::testing::open_local;
use crate::runtime::tuning::Tuning;
use std::path::{Path, PathBuf};

/// The test arrays, nested ones too, in a fixed order.
pub(super) fn arrays() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")];
    while let Some(directory) = waiting.pop() {
        let is = |name: &str| directory.join(name).exists();
        if is("__schema") || is("__array_schema.tdb") {
            found.push(directory.clone());
        }
        let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
        waiting.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

/// Bytes as `hexdump -C` shows them.
pub(super) fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut before: &[u8] = &[];
    for (i, line) in bytes.chunks(16).enumerate() {
        if line == before {
            out += if out.ends_with("*\n") { "" } else { "*\n" };
            continue;
        }
        before = line;
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let (left, right) = hex.split_at(hex.len().min(8));
        let both = format!("{}  {}", left.join(" "), right.join(" "));
        let text = line.iter().map(|&byte| match byte {
            b' '..=b'~' => byte as char,
            _ => '.',
        });
        let text: String = text.collect();
        out += &format!("{:08x}  {both:<48}  |{text}|\n", 16 * i);
    }
    out + &format!("{:08x}\n", bytes.len())
}

/// Reads ranges of a file first, then all of it. Returns 1, or 0 if its source cannot be read.
fn check(what: &str, layout: impl Fn() -> Result<FileLayout>, numbers: &mut Random) -> u64 {
    match try_check(what, layout, numbers) {
        Ok(()) => 1,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            0
        }
    }
}

fn try_check(what: &str, layout: impl Fn() -> Result<FileLayout>, numbers: &mut Random) -> Result<()> {
    let file = layout()?;
    let len = file.len();
    let mut parts = Vec::new();
    for _ in 0..12 {
        let start = numbers.below(len + 1);
        let end = start + numbers.below(20_000);
        let part = Output::of(|out| file.read(start..end, out))?.to_vec();
        parts.push((start as usize, part));
    }
    let mut whole = Vec::new();
    let file = layout()?;
    while (whole.len() as u64) < len {
        let at = whole.len() as u64;
        let part = Output::of(|out| file.read(at..at + 50_000, out))?;
        assert_eq!(part.len() as u64, (len - at).min(50_000), "{what}");
        whole.extend_from_slice(&part);
    }
    for (start, part) in parts {
        let end = (start + part.len()).min(whole.len());
        assert!(whole[start.min(whole.len())..end] == part, "{what} at {start}");
    }
    Ok(())
}

#[test]
fn exports_are_as_long_as_they_say_and_any_range_is_part_of_the_whole() {
    let options = ExportOptions::default();
    let (mut files, mut numbers) = ([0; 3], Random(5));
    let both = [&Tuning::SMALL, &Tuning::PRODUCTION];
    for (path, tuning) in arrays().iter().flat_map(|path| both.map(|tuning| (path, tuning))) {
        let Ok(view) = open_local(path, tuning).and_then(|array| View::new(array, None, None)) else {
            continue;
        };
        let view = Arc::new(view);
        for export in Export::all(&view) {
            if !matches!(export.absent(&view, &options), Ok(None)) {
                continue;
            }
            let what = format!("{} of {}", export.path(), path.display());
            match export {
                Export::File(format) => files[0] += check(&what, || format.layout(&view), &mut numbers),
                Export::Image(_, fields) => {
                    files[1] += check(&what, || tiff::layout(&view, fields.clone()), &mut numbers);
                }
                Export::Zarr => {
                    let group = zarr::ZarrGroup::of(view.clone()).unwrap();
                    let document: serde_json::Value = serde_json::from_slice(&group.json()).unwrap();
                    for name in group.names() {
                        let array = group.array(name).unwrap();
                        let known = &document["consolidated_metadata"]["metadata"][name];
                        assert_eq!(
                            *known,
                            serde_json::from_slice::<serde_json::Value>(&array.json()).unwrap()
                        );
                        let shape = known["chunk_grid"]["configuration"]["chunk_shape"].as_array();
                        let sides = shape.unwrap().iter().map(|side| side.as_u64().unwrap());
                        let chunk_cells: u64 = sides.product();
                        let counts = array.counts();
                        let last: Vec<u64> = counts.iter().map(|count| count - 1).collect();
                        for chunk in [vec![0; counts.len()], last] {
                            let values = array.chunk(&chunk).unwrap().len() / chunk_cells;
                            assert_eq!(values * chunk_cells, array.chunk(&chunk).unwrap().len());
                            assert!([1, 2, 4, 8].contains(&values), "bytes of a value");
                            files[2] += check(&what, || array.chunk(&chunk), &mut numbers);
                        }
                        assert!(array.chunk(&counts).is_err() && array.chunk(&[]).is_err());
                    }
                }
            }
        }
    }
    let least = [160, 80, 300];
    assert!(
        files.iter().zip(least).all(|(files, least)| *files >= least),
        "{files:?}"
    );
}

/// Listing a dense view takes the schema and one fragment that shows that it has cells.
#[test]
fn listings_look_at_no_more_fragments_than_they_must() {
    let options = ExportOptions::default();
    let mut seen = 0;
    for path in arrays() {
        let open = |given: &dyn Fn(&View)| {
            let view = View::new(Array::open(&path).ok()?, None, None).ok()?;
            let few = view.snapshot().fragments().count() < 2;
            if !view.is_dense() || few || !matches!(view.region(), Ok(Some(_))) {
                return None;
            }
            // A fresh cache.
            let view = View::new(Array::open(&path).ok()?, None, None).ok()?;
            let before = view.array().engine.stats.bytes_read.get();
            given(&view);
            Some(view.array().engine.stats.bytes_read.get() - before)
        };
        let listing = open(&|view| {
            // table.csv has a bound on values, which takes the domains of all fragments.
            for format in [Format::Parquet, Format::NetCdf] {
                assert!(format.is_listed(view, &options).unwrap());
            }
            zarr::is_listed(view).unwrap();
            tiff::all_absent(view).unwrap();
        });
        let shape = open(&|view| drop(view.shape().unwrap()));
        let Some((listing, shape)) = listing.zip(shape) else {
            continue;
        };
        assert!(listing < shape, "{}: {listing} bytes of {shape}", path.display());
        seen += 1;
    }
    assert!(seen > 2, "{seen} arrays");
}
