use super::*;
use crate::catalog::Array;
use crate::catalog::time::TimeRange;
use crate::export::chunks::Extent;
use crate::export::tests::{arrays, dump};

/// The file shown in the module's documentation.
fn example() -> Vec<u8> {
    let mut axis = Variable::new("d".to_owned(), VariableKind::Axis(0), 0, Datatype::Int16);
    let mut values = Variable::new("a".to_owned(), VariableKind::Values, 1, Datatype::Char);
    values.inner = Some(("a_strlen".to_owned(), 3));
    let attributes = vec![("n".to_owned(), Value::Numbers(Datatype::Uint8, vec![7]))];
    for variable in [&mut axis, &mut values] {
        variable.dimensions = vec![0];
    }
    let grid = Grid::new(
        vec![("d".to_owned(), 2)],
        vec![axis, values],
        &[vec![Extent { tile: 2, domain: 2 }]],
        attributes,
    );
    let group = FileGroup {
        grid: Arc::new(grid),
        views: Vec::new(),
        groups: Vec::new(),
        image: None,
    };
    let sections = Section::all(&Arc::new(group));
    let storages = storages(&sections).unwrap();
    let mut file = header(&sections, &storages, Some(CONVENTIONS), "0.1.0").unwrap();
    file.resize(file.len().next_multiple_of(64), 0);
    file.extend_from_slice(b"\x01\0\x02\0\0\0\0\0onetwo\0\0");
    file
}

#[test]
fn the_file_is_the_one_that_is_shown() {
    let shown = include_str!("example.md").split("```text\n").nth(1).unwrap();
    let dump = dump(&example());
    assert!(shown == format!("{dump}```\n"), "\n{dump}");
}

#[test]
fn what_has_to_be_decoded_begins_behind_what_is_looked_at() {
    let storage = |bytes, decoded| Storage {
        shape: vec![bytes],
        bytes,
        index: 0,
        chunked: None,
        decoded,
    };
    let starts = |values| {
        let storages = [storage(1000, false), storage(values, true), storage(8, true)];
        Places::new(&storages, 2000).unwrap().data
    };
    let large = 32 * LOOKED_AT - 1008;
    assert_eq!(starts(large - 1), [2048, 3048, 3048 + large]);
    assert_eq!(starts(large), [2048, LOOKED_AT, LOOKED_AT + large]);
}

#[test]
fn a_variable_without_cells_has_no_index() {
    let of = |shape: [u64; 4]| {
        let (shape, sides) = (shape.to_vec(), vec![1; 4]);
        Storage::of(Chunks { shape, sides }, 4).unwrap()
    };
    assert!(of([2, 3, 1, 1]).chunked.is_some());
    let empty = of([1 << 40, 1 << 40, 3, 0]);
    assert_eq!((empty.chunked.is_none(), empty.bytes, empty.index), (true, 0, 0));
}

#[test]
fn length_and_header_decode_nothing() {
    let mut files = 0;
    for path in arrays() {
        let array = Array::open(&path).unwrap();
        let Ok(view) = array.at(TimeRange::ALL).open() else {
            continue;
        };
        if absent(&view).unwrap().is_some() {
            continue;
        }
        let file = layout(&Arc::new(view)).unwrap();
        let head = Output::of(|out| file.read(0..512, out)).unwrap();
        assert_eq!(head[28..36], file.len().to_le_bytes(), "{}", path.display());
        assert_eq!(array.engine.stats.chunks_decoded.get(), 0, "{}", path.display());
        files += 1;
    }
    assert!(files > 20, "{files} files");
}
