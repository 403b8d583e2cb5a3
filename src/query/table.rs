//! The cells of a view as a table: a row for each cell, a column for each field.
//!
//! Columns are the dimensions, then the dimension labels of a dense view, then the attributes, each in the
//! order of the schema. The coordinates of a dense view and their labels are repeated in each row. Attributes
//! and dimension labels that cannot be read in the view have no column. Enumerated attributes have labels in
//! place of the stored indexes. Cells of a dense view that no fragment wrote are null in every attribute,
//! dimension labels that nobody wrote are null as well.

use super::repeated::Repeated;
use super::{Field, Role, View};
use crate::bytes::{Keep, Output};
use crate::calendar::days_from_date;
use crate::error::{Error, Result};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::format::scalar::Scalar;
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::runtime::cache::{CacheKey, Entry};
use crate::runtime::get_or_make;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The stored count of a DATETIME that is not-a-time (NaT).
pub const NOT_A_TIME: i64 = i64::MIN;

/// Calendar units that most formats lack: such dates become days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    Year,
    Month,
    Week,
}

impl Unit {
    /// The unit of a datatype; None if it is none of these.
    pub fn of(datatype: Datatype) -> Option<Unit> {
        match datatype {
            Datatype::DatetimeYear => Some(Unit::Year),
            Datatype::DatetimeMonth => Some(Unit::Month),
            Datatype::DatetimeWeek => Some(Unit::Week),
            _ => None,
        }
    }

    /// Days since the epoch; None for not-a-time and for dates that do not fit.
    pub fn days(self, count: i64) -> Option<i64> {
        let first_of = |year: i64, month: i64| {
            let days = days_from_date(1970i64.checked_add(year)?, month as u32, 1)?;
            i64::try_from(days).ok()
        };
        match self {
            _ if count == NOT_A_TIME => None,
            Unit::Year => first_of(count, 1),
            Unit::Month => first_of(count.div_euclid(12), count.rem_euclid(12) + 1),
            Unit::Week => count.checked_mul(7),
        }
    }
}

/// Whether the NULs at the end of text of this type are no part of it, if its size is fixed.
pub fn is_padded(datatype: Datatype) -> bool {
    matches!(
        datatype,
        Datatype::Char | Datatype::StringAscii | Datatype::StringUtf8
    )
}

/// Text without the NULs at its end.
pub fn strip(text: &[u8]) -> &[u8] {
    let len = text
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    &text[..len]
}

/// A view as a table.
pub struct Table {
    view: Arc<View>,
    columns: Vec<Column>,
}

impl Table {
    /// The table of a view. Reads the enumerations, and of dense views and their labels the footers of
    /// fragments; merges those of a sparse view if an attribute's type has changed.
    pub fn new(view: &Arc<View>) -> Result<Table> {
        Table::of_part(view, view)
    }

    /// [`Table::new`] of a part of the view `whole`, with the columns of the whole table.
    pub fn of_part(view: &Arc<View>, whole: &View) -> Result<Table> {
        let covered = view.is_covered()?;
        let mut names = names(view);
        let label_names = names.split_off(view.fields().len());
        let columns = names.into_iter().enumerate().zip(view.fields());
        let columns = columns.map(|((field, name), of)| {
            if whole.unreadable(field)?.is_some() {
                return Ok(None);
            }
            let labels = enumeration(view, of)?;
            let (datatype, cell_val_num) = match &labels {
                Some(labels) => (labels.datatype, labels.cell_val_num),
                None => (of.datatype, of.cell_val_num),
            };
            Ok(Some(Column {
                view: view.clone(),
                name,
                field,
                datatype,
                cell_val_num,
                labels,
                dimension_label: None,
                has_holes: !covered && matches!(of.role, Role::Attribute(_)),
                stored: of.clone(),
                cells: OnceLock::new(),
                longest: OnceLock::new(),
            }))
        });
        let mut columns = columns
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>>>()?;
        let labels = label_names.into_iter().enumerate();
        let labels = labels.map(|(index, name)| label_column(view, whole, index, name));
        let labels = labels.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        let dimensions = view.schema().dimensions.len();
        columns.splice(dimensions..dimensions, labels);
        Ok(Table {
            view: view.clone(),
            columns,
        })
    }

    /// The view.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The number of rows.
    pub fn rows(&self) -> Result<u64> {
        self.view.count()
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The state of a file that shows the table, a part of the view `whole`: see [`View::state_with`].
    pub fn state(&self, whole: &View) -> u64 {
        let labels = self.columns.iter().filter(|column| column.is_label());
        let labels = labels.map(|column| column.field - self.view.fields().len());
        whole.state_with(&labels.collect::<Vec<_>>())
    }
}

/// The column of dimension label `index`, called `name`; None if the view `whole` does not show it.
fn label_column(view: &Arc<View>, whole: &View, index: usize, name: Vec<u8>) -> Result<Option<Column>> {
    if whole.along(index)?.is_err() {
        return Ok(None);
    }
    let along = view.along(index)?.map_err(Error::not_found)?;
    let stored = along.shown().clone();
    let repeated = view.repeat(index, along)?;
    Ok(Some(Column {
        view: view.clone(),
        name,
        field: view.fields().len() + index,
        datatype: stored.datatype,
        cell_val_num: stored.cell_val_num,
        labels: None,
        has_holes: repeated.may_be_null()?,
        dimension_label: Some(repeated),
        stored,
        cells: OnceLock::new(),
        longest: OnceLock::new(),
    }))
}

/// The most columns of a table of the view. Reads the schema alone.
pub fn most_columns(view: &View) -> u64 {
    (view.fields().len() + view.labels().len()).max(1) as u64
}

/// The names of the columns of all fields, then those of the dimension labels: their own, or `__attr` and
/// `__dim_<i>` for anonymous ones. `_` is appended to made-up names, and to those of labels, until all are
/// unique.
pub fn names(view: &View) -> Vec<Vec<u8>> {
    let mut taken: HashSet<Vec<u8>> = view.fields().iter().map(|field| field.name.clone()).collect();
    let name = |field: &Field| {
        if !field.name.is_empty() {
            return field.name.clone();
        }
        let mut name = match field.role {
            Role::Attribute(_) => b"__attr".to_vec(),
            Role::Dimension(i) => format!("__dim_{i}").into_bytes(),
        };
        while !taken.insert(name.clone()) {
            name.push(b'_');
        }
        name
    };
    let mut names: Vec<_> = view.fields().iter().map(name).collect();
    names.extend(view.labels().iter().map(|label| {
        let mut name = label.label.name.clone();
        while !taken.insert(name.clone()) {
            name.push(b'_');
        }
        name
    }));
    names
}

/// The enumeration of a field, whose values are its labels; None if it has none.
pub fn enumeration(view: &View, field: &Field) -> Result<Option<Arc<Enumeration>>> {
    let (array, schema) = (view.array(), view.schema());
    let name = field.enumeration.as_ref();
    let Some(file) = name.and_then(|name| schema.enumeration_file(name)) else {
        return Ok(None);
    };
    if !matches!(field.datatype.kind(), Kind::Signed | Kind::Unsigned | Kind::Bool)
        || field.cell_val_num != CellValNum::Fixed(1)
    {
        return Ok(None);
    }
    let key = CacheKey::of(array.engine.number(&("labels", &array.path, file)));
    let cache = &array.engine.cache;
    let labels = cache.derive(key, 0, Keep::Staying, || array.enumeration(file))?;
    Ok(Some(labels))
}

impl Entry for Enumeration {
    fn memory(&self) -> u64 {
        self.data.memory() + self.offsets.memory()
    }
}

/// A column of a table.
pub struct Column {
    view: Arc<View>,
    /// Its name.
    pub name: Vec<u8>,
    /// Index of the field in [`View::fields`]; dimension labels count on.
    pub field: usize,
    /// Type of a value, or of a label if there are labels.
    pub datatype: Datatype,
    /// Values per cell, or per label if there are labels.
    pub cell_val_num: CellValNum,
    /// The labels of the stored indexes.
    pub labels: Option<Arc<Enumeration>>,
    /// The stored field; of a dimension label, that of the labels' array.
    pub stored: Field,
    dimension_label: Option<Repeated>,
    /// Whether some cells may be unwritten, and so null.
    has_holes: bool,
    cells: OnceLock<Arc<dyn Cells>>,
    longest: OnceLock<u64>,
}

impl Column {
    /// Whether its cells are the coordinates of an axis of a dense view, which rows repeat.
    pub fn is_axis(&self) -> bool {
        self.view.is_dense() && matches!(self.stored.role, Role::Dimension(_))
    }

    /// Whether its cells are dimension labels, which are no field of the view.
    pub fn is_label(&self) -> bool {
        self.dimension_label.is_some()
    }

    /// The cells of the field; for [an axis](Column::is_axis), one per coordinate. The first call opens
    /// fragments.
    pub fn cells(&self) -> Result<&Arc<dyn Cells>> {
        get_or_make(&self.cells, || match &self.dimension_label {
            Some(labels) => Ok(Arc::new(labels.clone()) as _),
            None => Ok(Arc::new(InOrder(self.view.open(self.field)?)) as _),
        })
    }

    /// Whether cells may be null whatever their values are.
    pub fn is_nullable(&self) -> bool {
        self.stored.nullable || self.has_holes
    }

    /// For each of `rows`, 0 if its cell is null or unwritten and another byte if it is neither; None if none
    /// is. Values may still stand for null: see [`Rows::value`].
    pub fn validity(&self, rows: Range<u64>) -> Result<Option<Vec<u8>>> {
        if let Some(labels) = &self.dimension_label {
            return match self.is_nullable() {
                true => Ok(Some(labels.valid(rows)?).filter(|valid| valid.contains(&0))),
                false => Ok(None),
            };
        }
        let mut valid = match self.has_holes {
            true => self.view.written(rows.clone())?,
            false => None,
        };
        if self.stored.nullable {
            let stored = self.cells()?.validity(rows)?;
            match &mut valid {
                None => valid = stored.contains(&0).then(|| stored.to_vec()),
                Some(valid) => valid.iter_mut().zip(&*stored).for_each(|(valid, stored)| {
                    *valid = u8::from(*valid != 0 && *stored != 0);
                }),
            }
        }
        Ok(valid)
    }

    /// The bytes of the stored values in `rows`.
    pub fn stored_bytes(&self, rows: &Range<u64>) -> Result<u64> {
        let count = rows.end - rows.start;
        if let Some(size) = self.stored.cell_size() {
            return Ok(count * size);
        }
        let cells = self.cells()?;
        match count {
            0 => Ok(0),
            _ => {
                let start = cells.start(rows.start)?;
                let bytes = cells.start(rows.end)?.checked_sub(start);
                bytes.ok_or_else(|| Error::corrupt("a cell ends before it starts"))
            }
        }
    }

    /// An upper bound of the bytes of the values in `rows`: exact for stored values; the longest label counts
    /// for all labels.
    pub fn most_bytes(&self, rows: &Range<u64>) -> Result<u64> {
        let Some(labels) = &self.labels else {
            return self.stored_bytes(rows);
        };
        let longest = self.longest.get_or_init(|| {
            let lengths = labels.values().into_iter().map(<[u8]>::len);
            lengths.max().unwrap_or(0) as u64
        });
        Ok((rows.end - rows.start).saturating_mul(*longest))
    }

    /// Reads some rows into memory. [`Column::stored_bytes`] tells how much that takes.
    pub fn read(&self, rows: Range<u64>) -> Result<Rows<'_>> {
        let valid = self.validity(rows.clone())?;
        let cells = self.cells()?;
        let (values, starts) = match self.stored.cell_size() {
            Some(size) if self.is_axis() => (self.coordinates(&**cells, rows.clone(), size)?, None),
            Some(_) => (cells.values(rows.clone())?.into(), None),
            None => {
                let (starts, values) = cells.var_values(rows.clone())?;
                (values, Some(starts))
            }
        };
        Ok(Rows {
            column: self,
            size: self.stored.cell_size().unwrap_or(0) as usize,
            values,
            starts,
            valid,
        })
    }

    /// The coordinates in `rows`, `size` bytes each.
    fn coordinates(&self, cells: &dyn Cells, rows: Range<u64>, size: u64) -> Result<Vec<u8>> {
        if rows.is_empty() {
            // The shape may have more than 2^64 cells if another axis has none.
            return Ok(Vec::new());
        }
        let shape = self.view.shape()?;
        let inner = shape[self.field + 1..].iter().product::<u64>();
        let length = cells.count();
        let wanted = rows.end - rows.start;
        let mut out = Vec::with_capacity((wanted * size) as usize);
        // A short axis is read once; a long one only up to the last coordinate wanted.
        let whole = match length <= wanted {
            true => Some(cells.values(0..length)?),
            false => None,
        };
        let mut row = rows.start;
        while row < rows.end {
            let first = row / inner % length;
            let end_of_axis = row - row % inner + (length - first) * inner;
            let stop = end_of_axis.min(rows.end);
            let last = (stop - 1) / inner % length;
            let read;
            let along = match &whole {
                Some(whole) => {
                    let bytes = first * size..(last + 1) * size;
                    &whole[bytes.start as usize..bytes.end as usize]
                }
                None => {
                    read = cells.values(first..last + 1)?;
                    &*read
                }
            };
            for coordinate in along.chunks_exact(size as usize) {
                let end = (row - row % inner + inner).min(stop);
                for _ in row..end {
                    out.extend_from_slice(coordinate);
                }
                row = end;
            }
            if row != stop {
                return Err(Error::internal("an axis has fewer coordinates than rows have"));
            }
        }
        Ok(out)
    }
}

/// Cells that are read in order, as rows of tables are: chunks of them pass through the cache, unless the
/// reader says that they stay.
struct InOrder(Arc<dyn Cells>);

impl Cells for InOrder {
    fn count(&self) -> u64 {
        self.0.count()
    }

    fn cell_size(&self) -> Option<u64> {
        self.0.cell_size()
    }

    fn len(&self, content: Content) -> Result<u64> {
        self.0.len(content)
    }

    fn read(&self, content: Content, range: Range<u64>, out: &mut Output) -> Result<()> {
        let keep = out.keep.unwrap_or(Keep::Passing);
        out.kept(keep, |out| self.0.read(content, range, out))
    }
}

/// Some rows of a column.
pub struct Rows<'a> {
    column: &'a Column,
    size: usize,
    values: Vec<u8>,
    /// The start of each var-sized value, and the end of the last.
    starts: Option<Vec<u64>>,
    valid: Option<Vec<u8>>,
}

impl Rows<'_> {
    /// The stored values, concatenated.
    pub fn stored_values(&self) -> &[u8] {
        &self.values
    }

    /// The stored value of row `row` of these, even if it is null.
    pub fn stored(&self, row: usize) -> &[u8] {
        match &self.starts {
            None => &self.values[row * self.size..][..self.size],
            Some(starts) => &self.values[starts[row] as usize..starts[row + 1] as usize],
        }
    }

    /// The index of the label of row `row`; None if it has none.
    pub fn label(&self, row: usize) -> Option<usize> {
        let labels = self.column.labels.as_ref()?;
        let index = enumeration_index(self.column.stored.datatype, self.stored(row))?;
        (index < labels.count()).then_some(index)
    }

    /// [`Rows::label`]; None also if the row is null or unwritten.
    pub fn valid_label(&self, row: usize) -> Option<usize> {
        let valid = self.valid.as_ref();
        let null = valid.is_some_and(|valid| valid[row] == 0);
        self.label(row).filter(|_| !null)
    }

    /// The value of row `row` of these: the label, if the column has labels; None for null.
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        if let Some(valid) = &self.valid
            && valid[row] == 0
        {
            return None;
        }
        let value = match &self.column.labels {
            Some(labels) => labels.value(self.label(row)?)?,
            None => self.stored(row),
        };
        // In a cell of several dates each date may be not-a-time.
        let no_time = self.column.datatype.kind() == Kind::Datetime
            && self.column.cell_val_num == CellValNum::Fixed(1)
            && *value == NOT_A_TIME.to_le_bytes();
        (!no_time).then_some(value)
    }
}

/// The index of a label that is stored as `bytes`; None for a negative one.
pub fn enumeration_index(datatype: Datatype, bytes: &[u8]) -> Option<usize> {
    usize::try_from(Scalar::read(datatype, bytes)?.integer()?).ok()
}
