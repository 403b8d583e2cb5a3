//! Every field of every array in `tests/data`, and of the arrays in `TILEDBFS_ARRAYS` and `TILEDBFS_VIEWS`
//! that are not large, read in each way and compared with its column of bytes.

use super::{Batches, Cell, Value};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::fragment::cells::Cells;
use crate::query::table::{NOT_A_TIME, enumeration_index, is_padded, strip};
use crate::query::{Field, Role, View};
use crate::{Array, ErrorKind, ObjectKind, Source, SourceOptions, TimeRange};
use arrow_array::cast::AsArray;
use arrow_array::types::Date32Type;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAX_CELLS: u64 = 5_000;

/// The arrays below a directory of a source.
fn arrays(source: &Source, root: &Path, path: PathBuf, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(root.join(&path)).unwrap() {
        let entry = entry.unwrap();
        let path = path.join(entry.file_name());
        if !entry.file_type().unwrap().is_dir() {
            continue;
        }
        match source.kind(&path).unwrap() {
            ObjectKind::Array => out.push(path),
            _ => arrays(source, root, path, out),
        }
    }
}

/// The bytes of each cell of a field, None where it is null.
fn column(view: &View, index: usize) -> crate::Result<Vec<Option<Vec<u8>>>> {
    let field = &view.fields()[index];
    let open: Arc<dyn Cells> = view.open(index)?;
    let cells = 0..open.count();
    let bytes: Vec<Vec<u8>> = match field.cell_size() {
        Some(size) => {
            let bytes = open.values(cells.clone())?;
            bytes.chunks_exact(size as usize).map(<[u8]>::to_vec).collect()
        }
        None => {
            let (starts, bytes) = open.var_values(cells.clone())?;
            let pairs = starts.windows(2);
            pairs
                .map(|pair| bytes[pair[0] as usize..pair[1] as usize].to_vec())
                .collect()
        }
    };
    let valid = match field.nullable {
        true => open.validity(cells)?.to_vec(),
        false => vec![1; bytes.len()],
    };
    let cells = bytes.into_iter().zip(valid);
    Ok(cells
        .map(|(bytes, valid)| (valid != 0).then_some(bytes))
        .collect())
}

/// Compares what a type of numbers reads of a field with its column.
fn compare_numbers<T: Value + Debug>(view: &View, index: usize, column: &[Option<Vec<u8>>])
where
    Vec<T>: Cell,
{
    let field = &view.fields()[index];
    let name = field.name_str().unwrap();
    let bytes = |values: &[T]| -> Vec<u8> { values.iter().flat_map(|value| value.bytes()).collect() };
    if T::holds(field.datatype) {
        let cells: Vec<Option<Vec<T>>> = view.read_cells(name, 0..column.len() as u64).unwrap();
        let cells: Vec<_> = cells.iter().map(|cell| cell.as_deref().map(bytes)).collect();
        assert_eq!(cells, column, "{name}");
    }
    let CellValNum::Fixed(per_cell) = field.cell_val_num else {
        let refused = view.values::<T>(name).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        return;
    };
    if !T::holds(field.datatype) {
        assert_eq!(
            view.values::<T>(name).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        return;
    }
    let values = view.values::<T>(name).unwrap();
    assert_eq!(values.shape().iter().product::<usize>(), values.as_slice().len());
    assert_eq!(values.as_slice().len(), column.len() * per_cell as usize);
    if view.is_dense() && field.is_attribute() {
        let shape = view.shape().unwrap();
        assert!(values.shape().iter().zip(&shape).all(|(a, b)| *a as u64 == *b));
    }
    for (cell, stored) in values.as_slice().chunks_exact(per_cell as usize).zip(column) {
        assert!(
            stored.as_ref().is_none_or(|stored| *stored == bytes(cell)),
            "{name}"
        );
    }
    let array = view.ndarray::<T>(name).unwrap();
    assert_eq!(
        (array.shape(), bytes(array.as_slice().unwrap())),
        (values.shape(), bytes(values.as_slice()))
    );
    let mut out = values.as_slice().to_vec();
    out.reverse();
    view.read_into(name, 0..column.len() as u64, &mut out).unwrap();
    assert_eq!(bytes(&out), bytes(values.as_slice()));
}

/// Compares the texts of a field with its column.
fn compare_texts(view: &View, index: usize, column: &[Option<Vec<u8>>]) {
    let field = &view.fields()[index];
    let texts: crate::Result<Vec<Option<String>>> =
        view.read_cells(field.name_str().unwrap(), 0..column.len() as u64);
    let text = |bytes: &Vec<u8>| field.datatype.text(bytes);
    match texts {
        Err(error) => {
            let kind = match field.datatype {
                Datatype::Char => ErrorKind::InvalidInput,
                _ => ErrorKind::Corrupt,
            };
            assert_eq!(error.kind(), kind);
            assert!(column.iter().flatten().any(|bytes| text(bytes).is_none()));
        }
        Ok(texts) => {
            assert_eq!(texts.len(), column.len());
            for (shown, stored) in texts.iter().zip(column) {
                let stored = stored.as_ref().map(|bytes| text(bytes).unwrap());
                let stored = match field.cell_val_num {
                    CellValNum::Var => stored,
                    CellValNum::Fixed(_) => stored.map(|text| text.trim_end_matches('\0').to_owned()),
                };
                assert_eq!(*shown, stored);
            }
        }
    }
}

/// The bytes of a cell of an Arrow array as TileDB stores them.
fn stored(array: &ArrayRef, row: usize) -> Vec<u8> {
    match array.data_type() {
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes().to_vec(),
        DataType::LargeBinary => array.as_binary::<i64>().value(row).to_vec(),
        DataType::Boolean => vec![u8::from(array.as_boolean().value(row))],
        DataType::LargeList(_) => elements(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => elements(&array.as_fixed_size_list().value(row)),
        DataType::Date32 => {
            let days = array.as_primitive::<Date32Type>().value(row);
            i64::from(days).to_le_bytes().to_vec()
        }
        _ => {
            let data = array.to_data();
            let size = data.data_type().primitive_width().unwrap();
            data.buffers()[0].as_slice()[(data.offset() + row) * size..][..size].to_vec()
        }
    }
}

fn elements(array: &ArrayRef) -> Vec<u8> {
    let element = |row| match array.is_null(row) {
        true => NOT_A_TIME.to_le_bytes().to_vec(),
        false => stored(array, row),
    };
    (0..array.len()).flat_map(element).collect()
}

/// Compares a column of batches with the field's own column. `of_row` is the cell of each row.
fn compare_batches(
    view: &View,
    field: &Field,
    batches: &[RecordBatch],
    name: &str,
    cell: impl Fn(u64) -> Option<Vec<u8>>,
) {
    let labels = view.enumeration(field.name_str().unwrap()).unwrap();
    let (datatype, cell_val_num) = match &labels {
        Some(labels) => (labels.datatype, labels.cell_val_num),
        None => (field.datatype, field.cell_val_num),
    };
    let time = matches!(datatype.kind(), Kind::Datetime | Kind::Time);
    let mut number = 0;
    for batch in batches {
        let array = batch.column_by_name(name).unwrap();
        for row in 0..batch.num_rows() {
            let wanted = cell(number);
            number += 1;
            let wanted = match &labels {
                Some(labels) => wanted.and_then(|bytes| {
                    Some(labels.value(enumeration_index(field.datatype, &bytes)?)?.to_vec())
                }),
                None => wanted,
            };
            let (array, place) = match array.data_type() {
                DataType::Dictionary(..) => {
                    let array = array.as_any_dictionary();
                    let Some(index) = array.is_valid(row).then(|| array.normalized_keys()[row]) else {
                        assert_eq!(wanted, None, "{name} {number}");
                        continue;
                    };
                    (array.values(), index)
                }
                _ => (array, row),
            };
            if array.is_null(place) {
                let odd = wanted.as_ref().is_some_and(|bytes| {
                    let count = i64::from_le_bytes(bytes[..8].try_into().unwrap());
                    time && (count == NOT_A_TIME || i32::try_from(count).is_err())
                });
                assert!(wanted.is_none() || odd, "{name} {number}: {wanted:?}");
                continue;
            }
            let wanted = wanted.unwrap_or_else(|| panic!("{name} {number} is there"));
            let converted = match datatype {
                Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek => true,
                Datatype::DatetimeHr | Datatype::DatetimeMin | Datatype::TimeHr | Datatype::TimeMin => true,
                // Of several dates each may be too far.
                Datatype::DatetimeDay => cell_val_num != CellValNum::Fixed(1),
                _ => false,
            };
            if converted {
                continue;
            }
            let found = stored(array, place);
            let wanted = match datatype {
                _ if is_padded(datatype) && !cell_val_num.is_var() => strip(&wanted).to_vec(),
                Datatype::Bool => wanted.iter().map(|byte| u8::from(*byte != 0)).collect(),
                _ => wanted,
            };
            assert_eq!(found, wanted, "{name} {number}");
        }
    }
}

/// Compares the batches of a view with its columns.
fn compare_rows(array: &Arc<Array>, columns: &[Vec<Option<Vec<u8>>>]) {
    let view = Arc::new(array.at(TimeRange::ALL).open().unwrap());
    let batches = Batches::new(view.clone())
        .unwrap()
        .with_rows(700)
        .with_bytes(1 << 16);
    let names = crate::query::table::names(&view);
    let batches: Vec<RecordBatch> = match batches.collect() {
        Ok(batches) => batches,
        Err(error) => {
            assert!(error.to_string().contains("is not UTF-8"), "{error}");
            return;
        }
    };
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows as u64, view.count().unwrap());
    assert!(batches.iter().all(|batch| (1..=700).contains(&batch.num_rows())));
    let shape = view.shape().unwrap();
    let written = view.written(0..rows as u64).unwrap();
    for (index, (field, column)) in view.fields().iter().zip(columns).enumerate() {
        if view.unreadable(index).unwrap().is_some() {
            continue;
        }
        let name = String::from_utf8(names[index].clone()).unwrap();
        compare_batches(&view, field, &batches, &name, |row| match field.role {
            Role::Dimension(axis) if view.is_dense() => {
                let inner: u64 = shape[axis + 1..].iter().product();
                column[(row / inner % shape[axis]) as usize].clone()
            }
            Role::Attribute(_) if written.as_ref().is_some_and(|written| written[row as usize] == 0) => None,
            _ => column[row as usize].clone(),
        });
    }
}

#[test]
fn all_ways_to_read_agree_with_the_columns() {
    let mut roots = vec![PathBuf::from("tests/data")];
    let more = ["TILEDBFS_ARRAYS", "TILEDBFS_VIEWS"].map(std::env::var_os);
    roots.extend(
        more.into_iter()
            .flatten()
            .filter(|root| !root.is_empty())
            .map(PathBuf::from),
    );
    let (mut read, mut datatypes) = (0, std::collections::HashSet::new());
    for root in roots {
        let source = Source::open(&root, &SourceOptions::default()).unwrap();
        let mut paths = Vec::new();
        arrays(&source, &root, PathBuf::new(), &mut paths);
        for path in paths {
            let array = source.array(&path);
            let Ok(view) = array.at(TimeRange::ALL).open() else {
                continue;
            };
            if !view.count().is_ok_and(|cells| cells <= MAX_CELLS) {
                continue;
            }
            let columns = (0..view.fields().len()).map(|index| column(&view, index));
            // Damaged arrays, and attributes whose type has changed.
            let Ok(columns) = columns.collect::<crate::Result<Vec<_>>>() else {
                continue;
            };
            for (index, column) in columns.iter().enumerate() {
                let field = &view.fields()[index];
                if field.name_str().is_none() {
                    continue;
                }
                datatypes.insert(field.datatype);
                compare_numbers::<i8>(&view, index, column);
                compare_numbers::<i16>(&view, index, column);
                compare_numbers::<i32>(&view, index, column);
                compare_numbers::<i64>(&view, index, column);
                compare_numbers::<u8>(&view, index, column);
                compare_numbers::<u16>(&view, index, column);
                compare_numbers::<u32>(&view, index, column);
                compare_numbers::<u64>(&view, index, column);
                compare_numbers::<f32>(&view, index, column);
                compare_numbers::<f64>(&view, index, column);
                if field.datatype.kind() == Kind::Text {
                    compare_texts(&view, index, column);
                }
            }
            compare_rows(&array, &columns);
            read += 1;
        }
    }
    assert!(read > 60, "{read} arrays");
    assert!(datatypes.len() > 10, "{datatypes:?}");
}
