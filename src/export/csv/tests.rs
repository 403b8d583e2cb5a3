//! `table.csv` of the arrays in `tests/data`, at any range and streamed.

use super::*;
use crate::catalog::Array;
use crate::catalog::time::TimeRange;
use crate::export::tests::arrays;
use crate::export::{ExportOptions, Format};
use crate::format::testing::Random;
use crate::query::DimRange;
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(path)
}

fn view(path: &Path) -> Result<Arc<View>> {
    Ok(Arc::new(Array::open(path)?.at(TimeRange::ALL).open()?))
}

fn streamed(view: &Arc<View>) -> Result<Vec<u8>> {
    let mut stream = stream(view)?;
    let mut all = Vec::new();
    while let Some(piece) = stream.next()? {
        all.extend(piece);
    }
    assert!(stream.done() >= 1.0);
    Ok(all)
}

/// The fields of each row, without their quotes; None for null.
fn parse(mut text: &[u8]) -> Vec<Vec<Option<Vec<u8>>>> {
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    while !text.is_empty() {
        let mut field = None;
        if text[0] == b'"' {
            let mut value = Vec::new();
            text = &text[1..];
            loop {
                let end = text.iter().position(|byte| *byte == b'"').unwrap();
                value.extend_from_slice(&text[..end]);
                text = &text[end + 1..];
                if text[0] != b'"' {
                    break;
                }
                value.push(b'"');
                text = &text[1..];
            }
            field = Some(value);
        } else {
            let end = text.iter().position(|byte| b",\n".contains(byte)).unwrap();
            if end > 0 {
                field = Some(text[..end].to_vec());
            }
            text = &text[end..];
        }
        row.push(field);
        if text[0] == b'\n' {
            rows.push(std::mem::take(&mut row));
        }
        text = &text[1..];
    }
    assert!(row.is_empty());
    rows
}

#[test]
fn any_range_of_any_file_is_that_of_the_whole() {
    let mut read = 0;
    for path in arrays() {
        let Ok(view) = view(&path) else { continue };
        let layout = match layout(&view) {
            Ok(layout) => layout,
            Err(error) => {
                assert!(streamed(&view).is_err(), "{}: {error}", path.display());
                continue;
            }
        };
        let whole = streamed(&view).unwrap();
        assert_eq!(layout.len(), whole.len() as u64, "{}", path.display());
        let rows = parse(&whole);
        assert_eq!(rows.len() as u64, view.count().unwrap() + 1, "{}", path.display());
        // Attributes that cannot be read are left out.
        let columns = Table::new(&view).unwrap().columns().len();
        assert!(rows.iter().all(|row| row.len() == columns));
        let mut random = Random(12_345);
        for _ in 0..200 {
            let start = random.below(whole.len() as u64 + 5);
            let end = start + random.below(5000);
            let piece = Output::of(|out| layout.read(start..end, out)).unwrap();
            let place = |at: u64| (at as usize).min(whole.len());
            let wanted = &whole[place(start)..place(end)];
            assert!(*piece == *wanted, "{start}..{end} of {}", path.display());
        }
        assert!(*Output::of(|out| layout.read(0..u64::MAX, out)).unwrap() == whole);
        read += 1;
    }
    assert!(read > 30, "{read}");
}

#[test]
fn a_file_is_this() {
    let view = view(&data("versions/v20/enumerations")).unwrap();
    let text = String::from_utf8(streamed(&view).unwrap()).unwrap();
    assert_eq!(
        text,
        "x,c,z\n0,red,5\n1,\"\",-1\n2,blue,5\n3,red,-1\n4,\"\",5\n5,blue,-1\n"
    );
}

#[test]
fn it_is_measured_once_and_read_from_the_row_that_is_wanted() {
    let view = view(&data("sample/weather")).unwrap();
    let stats = view.array().engine.stats.clone();
    let decoded = || stats.chunks_decoded.get();
    assert!(Format::Csv.is_listed(&view, &ExportOptions::default()).unwrap());
    assert_eq!(absent(&view, 1 << 24).unwrap(), None);
    assert_eq!(decoded(), 0);
    let first = layout(&view).unwrap();
    let whole = streamed(&view).unwrap();
    let body = Body::new(&("table.csv", view.state()), Writer::new(&view, &view).unwrap()).unwrap();
    assert_eq!(body.blocks.rows, [1024, 2048, 2190]);
    assert_eq!(first.len(), whole.len() as u64);
    // With only the row positions cached, the last rows decode no more than their own tiles.
    let other = Array::open(data("sample/weather")).unwrap();
    let other = Arc::new(other.at(TimeRange::ALL).open().unwrap());
    let array = other.array();
    let object = array
        .engine
        .number(&(("table.csv", other.state()), &array.path, other.state()));
    let blocks = Blocks {
        rows: body.blocks.rows.clone(),
        ends: body.blocks.ends.clone(),
    };
    let known = array
        .engine
        .cache
        .derive(CacheKey::of(object), 0, Keep::Staying, || Ok(blocks));
    known.unwrap();
    let second = layout(&other).unwrap();
    assert_eq!(array.engine.stats.chunks_decoded.get(), 0);
    let end = Output::of(|out| second.read(second.len() - 10..second.len(), out)).unwrap();
    assert!(*end == whole[whole.len() - 10..]);
    let (some, all) = (array.engine.stats.chunks_decoded.get(), decoded());
    assert!(some > 0 && some * 2 <= all, "{some} chunks of {all}");
}

#[test]
fn more_than_the_bound_is_absent() {
    let view = view(&data("sample/weather")).unwrap();
    let values = view.count().unwrap() * view.fields().len() as u64;
    assert_eq!(absent(&view, values).unwrap(), None);
    let reason = absent(&view, values - 1).unwrap().unwrap();
    assert!(
        reason.starts_with("2190 rows of 8 columns are more than 17519 values"),
        "{reason}"
    );
    // A small part of a table that is too large has a file.
    let one = |value: i32| DimRange {
        lo: Some(value.to_le_bytes().to_vec()),
        hi: Some(value.to_le_bytes().to_vec()),
    };
    let part = view
        .array()
        .at(TimeRange::ALL)
        .subarray([one(200), one(3)])
        .open()
        .unwrap();
    assert_eq!(absent(&part, values - 1).unwrap(), None);
    let part = Arc::new(part);
    let rows = parse(&streamed(&part).unwrap());
    assert_eq!(
        (rows.len(), &rows[1][..2]),
        (2, &[Some(b"200".to_vec()), Some(b"3".to_vec())][..])
    );
}
