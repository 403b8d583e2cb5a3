//! A view as batches of rows in Arrow's memory format.

use super::values::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::query::View;
use crate::query::table::{Column, NOT_A_TIME, Rows, Table, Unit, is_padded, names, strip};
use crate::runtime::parallel;
use arrow_array::builder::LargeStringBuilder;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, LargeBinaryArray, LargeListArray,
    PrimitiveArray, RecordBatch, RecordBatchOptions, RecordBatchReader,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The key of the datatype's name in the metadata of a column.
const DATATYPE_KEY: &str = "tiledb.datatype";

/// The rows of a view, a batch at a time: an iterator of [`RecordBatch`], which engines that know Arrow read.
///
/// A row is a cell of the view, in its order. Columns are the dimensions, then the dimension labels of a
/// dense view, then the attributes, or what [`ViewBuilder::fields`](crate::ViewBuilder::fields) names:
///
/// | TileDB | Arrow |
/// |---|---|
/// | integers, floats, BOOL | the same |
/// | DATETIME of years to days | `Date32` |
/// | DATETIME of hours to seconds, milli-, micro-, nanoseconds | `Timestamp` in seconds, or of that unit |
/// | TIME of hours to seconds, milli-, micro-, nanoseconds | `Duration` in seconds, or of that unit |
/// | smaller units | `Int64` |
/// | STRING_ASCII, STRING_UTF8, GEOM_WKT | `LargeUtf8` |
/// | other text, bytes | `LargeBinary` |
/// | several numbers in a cell | `FixedSizeList`, or if their number varies `LargeList` |
/// | indexes into an enumeration | `Dictionary` of the index type (`UInt8` for BOOL) with the values |
///
/// Null are: cells whose validity says so; cells of a dense view that nobody wrote; dates that are
/// not-a-time; dates and times that do not fit into their Arrow type; indexes without a value. CHAR,
/// STRING_ASCII and STRING_UTF8 of fixed size lose the NULs at their end. The metadata of a column has its
/// datatype under
/// `tiledb.datatype`.
///
/// ```
/// use arrow_array::RecordBatchReader;
/// use tiledbfs::{Array, Batches, TimeRange};
///
/// let array = Array::open("tests/data/sample/weather")?;
/// let view = array.at(TimeRange::ALL).fields(["day", "station", "temperature", "sky"]).open()?;
/// let batches = Batches::new(view)?.with_rows(1000);
/// assert_eq!(batches.schema().field(2).name(), "temperature");
/// for batch in batches {
///     let batch = batch?;
///     assert!(batch.num_rows() <= 1000);
///     assert_eq!(batch.num_columns(), 4);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batches {
    table: Table,
    columns: Vec<BatchColumn>,
    schema: SchemaRef,
    /// The first row of the next batch.
    next: u64,
    /// The number of all rows.
    rows: u64,
    most_rows: u64,
    most_bytes: u64,
}

/// A column of the batches.
struct BatchColumn {
    /// Its index among the table's.
    index: usize,
    /// The values that its indexes stand for.
    labels: Option<ArrayRef>,
}

impl Batches {
    /// The rows of a view, at most 65,536 and 64 MiB of stored values in a batch.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a selected field cannot be read in this view, because its datatype has changed on
    /// the way, or a selected label, such as one that nobody wrote. Also fails if enumerations or the
    /// metadata of fragments cannot be read.
    pub fn new(view: impl Into<Arc<View>>) -> Result<Batches> {
        let view = view.into();
        let table = Table::new(&view)?;
        let indexes = match view.selected_columns() {
            None => (0..table.columns().len()).collect(),
            Some(selected) => {
                let indexes = selected.iter().map(|field| {
                    let mut columns = table.columns().iter();
                    let found = columns.position(|column| column.field == *field);
                    found.map_or_else(|| Err(unreadable(&view, *field)?), Ok)
                });
                indexes.collect::<Result<Vec<_>>>()?
            }
        };
        let mut fields = Vec::with_capacity(indexes.len());
        let mut columns = Vec::with_capacity(indexes.len());
        for index in indexes {
            let column = &table.columns()[index];
            let labels = column.labels.as_deref().map(dictionary).transpose();
            let labels =
                labels.map_err(|error| error.in_part(format_args!("enumeration of {}", name(column))))?;
            fields.push(field(column)?);
            columns.push(BatchColumn { index, labels });
        }
        Ok(Batches {
            rows: table.rows()?,
            table,
            columns,
            schema: Arc::new(Schema::new(fields)),
            next: 0,
            most_rows: 1 << 16,
            most_bytes: 64 << 20,
        })
    }

    /// These batches with at most `rows` rows each, and at least one.
    #[must_use]
    pub fn with_rows(self, rows: usize) -> Batches {
        Batches {
            most_rows: (rows as u64).max(1),
            ..self
        }
    }

    /// These batches with at most `bytes` bytes of stored values each, or one row.
    #[must_use]
    pub fn with_bytes(self, bytes: u64) -> Batches {
        Batches {
            most_bytes: bytes,
            ..self
        }
    }

    /// The number of rows of all batches.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows of the next batch.
    fn next_rows(&self) -> Result<Range<u64>> {
        let mut count = self.most_rows.min(self.rows - self.next);
        loop {
            let rows = self.next..self.next + count;
            let mut columns = self
                .columns
                .iter()
                .map(|shown| &self.table.columns()[shown.index]);
            let bytes = columns.try_fold(0u64, |sum, column| {
                Ok::<_, Error>(sum.saturating_add(column.stored_bytes(&rows)?))
            })?;
            if count == 1 || bytes <= self.most_bytes {
                return Ok(rows);
            }
            count = count.div_ceil(2);
        }
    }

    fn read(&self) -> Result<(RecordBatch, u64)> {
        let rows = self.next_rows()?;
        let arrays = parallel::each(self.columns.len() as u64, |number| {
            let shown = &self.columns[number as usize];
            let column = &self.table.columns()[shown.index];
            let array = array(column, shown.labels.as_ref(), rows.clone());
            array.map_err(|error| error.in_part(format_args!("column {}", name(column))))
        })?;
        let options = RecordBatchOptions::new().with_row_count(Some((rows.end - rows.start) as usize));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        Ok((batch.map_err(internal)?, rows.end))
    }
}

impl Iterator for Batches {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    /// The next batch. After an error, which is an [`Error`] of this crate inside
    /// [`ArrowError::ExternalError`], there is none.
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.rows {
            return None;
        }
        match self.read() {
            Ok((batch, end)) => {
                self.next = end;
                Some(Ok(batch))
            }
            Err(error) => {
                self.next = self.rows;
                Some(Err(ArrowError::from_external_error(Box::new(error))))
            }
        }
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// `InvalidInput`: the table of a view has no column of a field or dimension label.
fn unreadable(view: &View, column: usize) -> Result<Error> {
    let reason = match column.checked_sub(view.fields().len()) {
        None => "its type has changed".to_owned(),
        // It may have been mended since.
        Some(label) => view
            .along(label)?
            .err()
            .unwrap_or_else(|| "it was damaged".to_owned()),
    };
    let name = String::from_utf8_lossy(&names(view)[column]).into_owned();
    let message = format!("{name:?} cannot be read: {reason}");
    Ok(Error::new(ErrorKind::InvalidInput, message))
}

/// What Arrow refuses of what was made here.
fn internal(error: ArrowError) -> Error {
    Error::internal(error.to_string())
}

/// The name of a column; bytes that are not UTF-8 are escaped.
fn name(column: &Column) -> String {
    match std::str::from_utf8(&column.name) {
        Ok(name) => name.to_owned(),
        Err(_) => column.name.escape_ascii().to_string(),
    }
}

fn field(column: &Column) -> Result<Field> {
    let of_values = data_type(column.datatype, column.cell_val_num)?;
    let data_type = match &column.labels {
        None => of_values,
        Some(_) => {
            let of_keys = match column.stored.datatype {
                Datatype::Bool => DataType::UInt8,
                stored => of_one(stored),
            };
            DataType::Dictionary(Box::new(of_keys), Box::new(of_values))
        }
    };
    let times = matches!(column.datatype.kind(), Kind::Datetime | Kind::Time);
    let dates = times && column.cell_val_num == CellValNum::Fixed(1);
    let nullable = column.is_nullable() || column.labels.is_some() || dates;
    let metadata = [(DATATYPE_KEY.to_owned(), column.datatype.name().to_owned())];
    Ok(Field::new(name(column), data_type, nullable).with_metadata(HashMap::from(metadata)))
}

/// The type of cells.
fn data_type(datatype: Datatype, cell_val_num: CellValNum) -> Result<DataType> {
    let one = of_one(datatype);
    Ok(match cell_val_num {
        _ if matches!(one, DataType::LargeUtf8 | DataType::LargeBinary) => one,
        CellValNum::Fixed(1) => one,
        CellValNum::Fixed(count) => DataType::FixedSizeList(element(datatype), list_size(count)?),
        CellValNum::Var => DataType::LargeList(element(datatype)),
    })
}

/// The length of fixed-size lists; `LimitExceeded` for what Arrow cannot count.
fn list_size(count: u32) -> Result<i32> {
    let size = i32::try_from(count);
    size.map_err(|_| Error::limit(format!("{count} values in a cell are more than Arrow can count")))
}

/// The elements of lists.
fn element(datatype: Datatype) -> FieldRef {
    let nullable = matches!(datatype.kind(), Kind::Datetime | Kind::Time);
    Arc::new(Field::new("item", of_one(datatype), nullable))
}

/// The type of one value of a datatype, or of a whole cell of text or bytes.
fn of_one(datatype: Datatype) -> DataType {
    use arrow_schema::TimeUnit;
    match datatype {
        Datatype::Int8 => DataType::Int8,
        Datatype::Int16 => DataType::Int16,
        Datatype::Int32 => DataType::Int32,
        Datatype::Int64 => DataType::Int64,
        Datatype::Uint8 => DataType::UInt8,
        Datatype::Uint16 => DataType::UInt16,
        Datatype::Uint32 => DataType::UInt32,
        Datatype::Uint64 => DataType::UInt64,
        Datatype::Float32 => DataType::Float32,
        Datatype::Float64 => DataType::Float64,
        Datatype::Bool => DataType::Boolean,
        Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek | Datatype::DatetimeDay => {
            DataType::Date32
        }
        Datatype::DatetimeHr | Datatype::DatetimeMin | Datatype::DatetimeSec => {
            DataType::Timestamp(TimeUnit::Second, None)
        }
        Datatype::DatetimeMs => DataType::Timestamp(TimeUnit::Millisecond, None),
        Datatype::DatetimeUs => DataType::Timestamp(TimeUnit::Microsecond, None),
        Datatype::DatetimeNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
        Datatype::TimeHr | Datatype::TimeMin | Datatype::TimeSec => DataType::Duration(TimeUnit::Second),
        Datatype::TimeMs => DataType::Duration(TimeUnit::Millisecond),
        Datatype::TimeUs => DataType::Duration(TimeUnit::Microsecond),
        Datatype::TimeNs => DataType::Duration(TimeUnit::Nanosecond),
        Datatype::DatetimePs | Datatype::DatetimeFs | Datatype::DatetimeAs => DataType::Int64,
        Datatype::TimePs | Datatype::TimeFs | Datatype::TimeAs => DataType::Int64,
        Datatype::StringAscii | Datatype::StringUtf8 | Datatype::GeomWkt => DataType::LargeUtf8,
        Datatype::Char
        | Datatype::StringUtf16
        | Datatype::StringUtf32
        | Datatype::StringUcs2
        | Datatype::StringUcs4
        | Datatype::Any
        | Datatype::Blob
        | Datatype::GeomWkb => DataType::LargeBinary,
    }
}

/// Some rows of a column; `labels` are the values of its enumeration.
fn array(column: &Column, labels: Option<&ArrayRef>, rows: Range<u64>) -> Result<ArrayRef> {
    let count = (rows.end - rows.start) as usize;
    let rows = column.read(rows)?;
    let Some(labels) = labels else {
        let value = |row| rows.value(row);
        return cells(column.datatype, column.cell_val_num, count, &value);
    };
    match column.stored.datatype {
        Datatype::Int8 => indexes::<Int8Type>(&rows, count, labels),
        Datatype::Int16 => indexes::<Int16Type>(&rows, count, labels),
        Datatype::Int32 => indexes::<Int32Type>(&rows, count, labels),
        Datatype::Int64 => indexes::<Int64Type>(&rows, count, labels),
        Datatype::Uint8 | Datatype::Bool => indexes::<UInt8Type>(&rows, count, labels),
        Datatype::Uint16 => indexes::<UInt16Type>(&rows, count, labels),
        Datatype::Uint32 => indexes::<UInt32Type>(&rows, count, labels),
        Datatype::Uint64 => indexes::<UInt64Type>(&rows, count, labels),
        other => Err(Error::internal(format!("{} is no index", other.name()))),
    }
}

/// The values of an enumeration.
fn dictionary(labels: &Enumeration) -> Result<ArrayRef> {
    let value = |index| labels.value(index);
    cells(labels.datatype, labels.cell_val_num, labels.count(), &value)
}

/// Rows of indexes into `labels`.
fn indexes<K: ArrowDictionaryKeyType>(rows: &Rows<'_>, count: usize, labels: &ArrayRef) -> Result<ArrayRef> {
    let index = |row| rows.valid_label(row).and_then(K::Native::from_usize);
    let keys: PrimitiveArray<K> = (0..count).map(index).collect();
    let array = DictionaryArray::try_new(keys, labels.clone()).map_err(internal)?;
    Ok(Arc::new(array))
}

/// Cells as stored: `cell` gives the bytes of each of them, None for null.
fn cells<'a>(
    datatype: Datatype,
    cell_val_num: CellValNum,
    count: usize,
    cell: &dyn Fn(usize) -> Option<&'a [u8]>,
) -> Result<ArrayRef> {
    let padded = is_padded(datatype) && !cell_val_num.is_var();
    let whole = |bytes: &'a [u8]| match padded {
        true => strip(bytes),
        false => bytes,
    };
    match of_one(datatype) {
        DataType::LargeBinary => {
            let cells = (0..count).map(|row| cell(row).map(whole));
            return Ok(Arc::new(LargeBinaryArray::from_iter(cells)));
        }
        DataType::LargeUtf8 => {
            let mut texts = LargeStringBuilder::new();
            for row in 0..count {
                let text = cell(row).map(whole).map(std::str::from_utf8).transpose();
                let invalid = |_| Error::corrupt(format!("row {row} of the batch is not UTF-8"));
                texts.append_option(text.map_err(invalid)?);
            }
            return Ok(Arc::new(texts.finish()));
        }
        _ if cell_val_num == CellValNum::Fixed(1) => return numbers(datatype, count, cell),
        _ => {}
    }
    let size = datatype.size();
    let nulls: NullBuffer = (0..count).map(|row| cell(row).is_some()).collect();
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let (mut elements, mut lengths) = (Vec::new(), Vec::with_capacity(count));
    // A null list of fixed size has elements, too.
    let padding = cell_val_num.cell_size(datatype).map_or(0, |size| size as usize);
    for row in 0..count {
        let before = elements.len();
        match cell(row) {
            // A damaged file may say so of a var-sized cell.
            Some(bytes) if !bytes.len().is_multiple_of(size) => {
                let message = format!(
                    "row {row} of the batch has {} bytes, which is not a whole number of values of {size} bytes",
                    bytes.len()
                );
                return Err(Error::corrupt(message));
            }
            Some(bytes) => elements.extend_from_slice(bytes),
            None => elements.resize(before + padding, 0),
        }
        lengths.push((elements.len() - before) / size);
    }
    let element_of = |number: usize| Some(&elements[number * size..(number + 1) * size]);
    let values = numbers(datatype, elements.len() / size, &element_of)?;
    let of_elements = element(datatype);
    Ok(match cell_val_num {
        CellValNum::Var => {
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(LargeListArray::try_new(of_elements, offsets, values, nulls).map_err(internal)?)
        }
        CellValNum::Fixed(count) => {
            let size = list_size(count)?;
            Arc::new(FixedSizeListArray::try_new(of_elements, size, values, nulls).map_err(internal)?)
        }
    })
}

/// Single numbers: `value` gives the bytes of each of them, None for null.
fn numbers<'a>(
    datatype: Datatype,
    count: usize,
    value: &dyn Fn(usize) -> Option<&'a [u8]>,
) -> Result<ArrayRef> {
    fn plain<'a, A>(values: impl Iterator<Item = Option<&'a [u8]>>) -> ArrayRef
    where
        A: ArrowPrimitiveType,
        A::Native: Value,
    {
        Arc::new(PrimitiveArray::<A>::from_iter(
            values.map(|bytes| bytes.map(A::Native::of_bytes)),
        ))
    }
    let values = (0..count).map(value);
    let times = (0..count).map(value).map(|bytes| {
        let count = bytes.map(i64::of_bytes);
        count.filter(|count| datatype.kind() != Kind::Datetime || *count != NOT_A_TIME)
    });
    let seconds = |factor: i64| {
        let factor = move |count: Option<i64>| count.and_then(|count| count.checked_mul(factor));
        times.clone().map(factor)
    };
    Ok(match datatype {
        Datatype::Int8 => plain::<Int8Type>(values),
        Datatype::Int16 => plain::<Int16Type>(values),
        Datatype::Int32 => plain::<Int32Type>(values),
        Datatype::Int64 => plain::<Int64Type>(values),
        Datatype::Uint8 => plain::<UInt8Type>(values),
        Datatype::Uint16 => plain::<UInt16Type>(values),
        Datatype::Uint32 => plain::<UInt32Type>(values),
        Datatype::Uint64 => plain::<UInt64Type>(values),
        Datatype::Float32 => plain::<Float32Type>(values),
        Datatype::Float64 => plain::<Float64Type>(values),
        Datatype::Bool => {
            let values = values.map(|byte| byte.map(|byte| byte != [0]));
            Arc::new(BooleanArray::from_iter(values))
        }
        Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek | Datatype::DatetimeDay => {
            let days = |count| match Unit::of(datatype) {
                Some(unit) => unit.days(count),
                None => Some(count),
            };
            let days = times.map(|count| count.and_then(days).and_then(|days| i32::try_from(days).ok()));
            Arc::new(PrimitiveArray::<Date32Type>::from_iter(days))
        }
        Datatype::DatetimeHr => Arc::new(PrimitiveArray::<TimestampSecondType>::from_iter(seconds(3600))),
        Datatype::DatetimeMin => Arc::new(PrimitiveArray::<TimestampSecondType>::from_iter(seconds(60))),
        Datatype::DatetimeSec => Arc::new(PrimitiveArray::<TimestampSecondType>::from_iter(times)),
        Datatype::DatetimeMs => Arc::new(PrimitiveArray::<TimestampMillisecondType>::from_iter(times)),
        Datatype::DatetimeUs => Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from_iter(times)),
        Datatype::DatetimeNs => Arc::new(PrimitiveArray::<TimestampNanosecondType>::from_iter(times)),
        Datatype::TimeHr => Arc::new(PrimitiveArray::<DurationSecondType>::from_iter(seconds(3600))),
        Datatype::TimeMin => Arc::new(PrimitiveArray::<DurationSecondType>::from_iter(seconds(60))),
        Datatype::TimeSec => Arc::new(PrimitiveArray::<DurationSecondType>::from_iter(times)),
        Datatype::TimeMs => Arc::new(PrimitiveArray::<DurationMillisecondType>::from_iter(times)),
        Datatype::TimeUs => Arc::new(PrimitiveArray::<DurationMicrosecondType>::from_iter(times)),
        Datatype::TimeNs => Arc::new(PrimitiveArray::<DurationNanosecondType>::from_iter(times)),
        _ if datatype.size() == 8 => Arc::new(PrimitiveArray::<Int64Type>::from_iter(times)),
        other => return Err(Error::internal(format!("{} is no number", other.name()))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, TimeRange};

    #[test]
    fn dimension_labels_are_selected_by_name() {
        let array = Array::open("tests/data/versions/v22/labels").unwrap();
        let select = |name: &str| array.at(TimeRange::ALL).fields([name]).open();
        let view = select("height").unwrap();
        assert!(view.selected().is_empty(), "it is no field");
        let error = Batches::new(view).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let reason = "\"height\" cannot be read: no labels were written until then";
        assert_eq!(error.message(), reason);
        assert_eq!(select("lon").err().unwrap().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_part_of_a_value_is_no_list() {
        let lists = |rows: &[&'static [u8]]| {
            let cell = |row: usize| Some(rows[row]);
            cells(Datatype::Int32, CellValNum::Var, rows.len(), &cell)
        };
        assert_eq!(lists(&[&[1; 8], &[], &[2; 4]]).unwrap().len(), 3);
        // Both take two whole values together.
        let error = lists(&[&[1; 5], &[2; 3]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}
