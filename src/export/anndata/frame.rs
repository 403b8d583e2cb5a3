//! Data frames: obs, var, and those in uns.
//!
//! A row for each cell of a sparse array, by ascending joinid. How a column is stored follows from its type,
//! and from whether there is a null in this state:
//!
//! | values | without a null | with one |
//! |---|---|---|
//! | integers, booleans | `array` | `nullable-integer`, `nullable-boolean` |
//! | floats, dates | `array` | the same, of NaN and not-a-time |
//! | text | `string-array` | `nullable-string-array` |
//! | enumerated | `categorical` | the same, of code -1 |

use super::axis::Axis;
use super::node::{
    Array, Attributes, Element, Group, Held, InRows, MAX_CELLS, Member, Members, Node, RowValues, Type,
    Whole, encoded,
};
use super::text::{RowNumbers, TextChunks, Texts, number_text};
use crate::bytes::Output;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::export::hdf5::MAX_MESSAGE;
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::enumeration::Enumeration;
use crate::format::enums::{ArrayType, Layout};
use crate::format::field::Stored;
use crate::format::fragment::sections::parse_u64_list;
use crate::format::scalar::int64;
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::fragment::tile_list::TileListKey;
use crate::query::table::{NOT_A_TIME, enumeration, enumeration_index};
use crate::query::{Field, Role, View};
use crate::runtime::cache::ChunkCache;
use crate::runtime::single_flight::Memo;
use crate::runtime::{InUse, get_or_make, lock, shared};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};

/// The column of joinids.
const JOINID: &[u8] = b"soma_joinid";

/// The most columns of a frame in HDF5, where the list of their names is one attribute: a message with its
/// header, and 16 bytes a name.
pub(super) const MAX_COLUMNS: usize = (MAX_MESSAGE - 64) / 16;

/// The ranks of frames that are in use: those of obs are the same in all measurements.
static RANKS: LazyLock<InUse<u64, Memo<Arc<Ranks>>>> = LazyLock::new(InUse::default);

/// Rows that are looked at together.
const BATCH: u64 = 1 << 16;

/// How a column is shown.
enum ColumnForm {
    /// A number, a date or text.
    As(Type),
    /// Labels, or why they are unknown.
    Labelled(Result<(Type, Arc<Enumeration>)>),
}

/// The type in which values are shown, or why they are not.
fn type_of(datatype: Datatype, cell_val_num: CellValNum) -> Result<Type, &'static str> {
    match (datatype.kind(), cell_val_num) {
        // SOMA has bytes without a type so.
        (Kind::Text, CellValNum::Var) if datatype == Datatype::Char => {
            Err("bytes without a type have no encoding")
        }
        (Kind::Text, CellValNum::Var | CellValNum::Fixed(1)) if datatype.size() == 1 => Ok(Type::Text),
        (Kind::Text, _) if datatype.size() > 1 => Err("its text is not UTF-8"),
        (Kind::Bytes, _) => Err("bytes without a type have no encoding"),
        (_, CellValNum::Var | CellValNum::Fixed(2..)) => Err("it has several values in a cell"),
        (Kind::Datetime, _) => Ok(Type::Date(datatype)),
        (Kind::Time, _) => Err("times without a date have no encoding"),
        _ => Ok(Type::Number(datatype)),
    }
}

/// Why a node cannot have this name; None if it can.
pub(super) fn unfit_name(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("it has no name"),
        b"." | b".." | b"_index" | b"zarr.json" => Some("its name means something else there"),
        // zarr-python takes \ for /.
        _ if name.iter().any(|byte| b"/\\\0".contains(byte)) => Some("its name has a /, a \\ or a NUL"),
        _ if name.len() > 255 => Some("its name is longer than 255 bytes"),
        _ if std::str::from_utf8(name).is_err() => Some("its name is not UTF-8"),
        _ => None,
    }
}

/// What the rows of a frame are called.
pub(super) enum Naming {
    /// As the field of this index is, under the name of its own or none.
    Column(usize, Option<String>),
    /// 0, 1, ..
    Numbers,
}

/// A data frame.
pub(super) struct Frame {
    pub(super) view: Arc<View>,
    /// The column of joinids; None for a frame in the order of its array.
    joinid: Option<usize>,
    /// The columns to show, without the index, by their fields.
    columns: Vec<(usize, String)>,
    shown: Vec<Option<ColumnForm>>,
    naming: Naming,
    /// Whether an index of numbers becomes text.
    text_index: bool,
    /// Columns that are left out, and why.
    pub(super) left_out: Vec<(String, String)>,
    /// Further columns that HDF5 does not have, and why.
    pub(super) left_out_of_hdf5: Vec<(String, String)>,
    /// The columns that are open.
    cells: Vec<Mutex<Option<Weak<dyn Cells>>>>,
    ranks: Arc<Memo<Arc<Ranks>>>,
    /// How many bytes at the end of each time in the index are left out.
    zeros: OnceLock<usize>,
}

/// Joinids in order.
struct Ranks {
    axis: Arc<Axis>,
    /// The cell of each row, if rows are in another order.
    order: Option<Arc<[u64]>>,
    _reserved: Reserved,
}

/// Memory that counts in the bound of the cache.
struct Reserved(Arc<ChunkCache>, u64);

impl Reserved {
    fn new(engine: &Engine, bytes: u64) -> Result<Reserved> {
        engine.cache.reserve(bytes)?;
        Ok(Reserved(engine.cache.clone(), bytes))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

impl Frame {
    /// The frame of a view by joinids, whose rows are called as field `index` is if there is one; without
    /// `index` that of its cells in order, whose rows are called 0, 1, .. Reads enumerations, and more only
    /// if a type has changed.
    pub(super) fn new(
        view: Arc<View>,
        index: Option<(&[u8], Option<&str>)>,
        text_index: bool,
    ) -> Result<Frame> {
        let find = |name: &[u8]| view.fields().iter().position(|field| field.name == name);
        let joinid = find(JOINID).filter(|_| index.is_some());
        let index = index.and_then(|(name, shown)| {
            let shown = shown.filter(|shown| unfit_name(shown.as_bytes()).is_none());
            Some((find(name)?, shown))
        });
        let array = view.array();
        let ranks = array.engine.number(&("ranks", &array.path, view.state()));
        let mut frame = Frame {
            joinid,
            columns: Vec::new(),
            shown: Vec::new(),
            naming: Naming::Numbers,
            text_index,
            left_out: Vec::new(),
            left_out_of_hdf5: Vec::new(),
            cells: view.fields().iter().map(|_| Mutex::default()).collect(),
            ranks: shared(&RANKS, ranks, Memo::default),
            zeros: OnceLock::new(),
            view,
        };
        for (number, field) in frame.view.fields().iter().enumerate() {
            let mut shown = None;
            if Some(number) != frame.joinid {
                let is_index = index.is_some_and(|(index, _)| index == number);
                let unfit = unfit_name(&field.name).filter(|_| !is_index);
                let found = match (unfit, frame.view.unreadable(number)?) {
                    (Some(reason), _) => Err(reason.to_owned()),
                    (None, Some(reason)) => Err(reason),
                    (None, None) => shown_as(&frame.view, field).map_err(str::to_owned),
                };
                let name = String::from_utf8_lossy(&field.name).into_owned();
                match (found, index) {
                    (Err(reason), _) => frame.left_out.push((name, reason)),
                    (Ok(found), Some((_, shown_name))) if is_index => {
                        frame.naming = Naming::Column(number, shown_name.map(str::to_owned));
                        shown = Some(found);
                    }
                    (Ok(found), _) => {
                        frame.columns.push((number, name));
                        shown = Some(found);
                    }
                }
            }
            frame.shown.push(shown);
        }
        frame.left_out_of_hdf5 = frame.unfit_for_hdf5();
        Ok(frame)
    }

    /// The columns that HDF5 does not have, and why.
    fn unfit_for_hdf5(&self) -> Vec<(String, String)> {
        const DATES: &str = "HDF5 has no dates";
        let mut unfit = Vec::new();
        if let Some((_, name)) = self.index().filter(|_| self.index_in_hdf5().is_none()) {
            unfit.push((name, DATES.to_owned()));
        }
        let mut room = MAX_COLUMNS;
        for (field, name) in &self.columns {
            let reason = match (self.is_date(*field), room) {
                (true, _) => DATES.to_owned(),
                (false, 0) => format!("HDF5 has no list of more than {MAX_COLUMNS} columns"),
                (false, _) => {
                    room -= 1;
                    continue;
                }
            };
            unfit.push((name.clone(), reason));
        }
        unfit
    }

    /// Whether values or labels of a field are dates.
    fn is_date(&self, field: usize) -> bool {
        matches!(
            self.shown[field],
            Some(ColumnForm::As(Type::Date(_)) | ColumnForm::Labelled(Ok((Type::Date(_), _))))
        )
    }

    /// The field that names the rows, and its name; None if they are numbered.
    fn index(&self) -> Option<(usize, String)> {
        match self.naming {
            Naming::Column(field, _) => {
                let name = String::from_utf8_lossy(&self.field(field).name);
                Some((field, name.into_owned()))
            }
            Naming::Numbers => None,
        }
    }

    /// The field that names the rows in HDF5: not one of dates, unless these become text.
    fn index_in_hdf5(&self) -> Option<usize> {
        let (field, _) = self.index()?;
        (self.text_index || !self.is_date(field)).then_some(field)
    }

    fn field(&self, field: usize) -> &Field {
        &self.view.fields()[field]
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.view.array().engine
    }

    /// The number of rows. Decodes no more than counting the cells of the view does.
    pub(super) fn rows(&self) -> Result<u64> {
        self.view.count()
    }

    /// The rows as an axis. Reads the joinids, unless metadata tells that there are no gaps.
    pub(super) fn axis(&self) -> Result<Arc<Axis>> {
        Ok(self.ranks()?.axis.clone())
    }

    /// Whether cells are in the order of joinids.
    fn is_in_order(&self) -> bool {
        let schema = self.view.schema();
        match self.joinid.map(|joinid| self.field(joinid).role) {
            None => true,
            Some(Role::Dimension(_)) => schema.dimensions.len() == 1 && schema.cell_order != Layout::Hilbert,
            Some(Role::Attribute(_)) => false,
        }
    }

    fn ranks(&self) -> Result<Arc<Ranks>> {
        self.ranks.get_or_make(|| self.find_ranks().map(Arc::new))
    }

    fn find_ranks(&self) -> Result<Ranks> {
        let joinid = self
            .joinid
            .ok_or_else(|| Error::internal("a frame without joinids is no axis"))?;
        let rows = self.rows()?;
        if self.is_in_order() && self.is_whole(rows)? {
            return Ok(Ranks {
                axis: Arc::new(Axis::Whole(rows)),
                order: None,
                _reserved: Reserved::new(self.engine(), 0)?,
            });
        }
        let mut making = vec![self.reserve(rows, 8)?];
        let cells = self.cells(joinid)?;
        let mut ids: Vec<i64> = Vec::with_capacity(rows as usize);
        for start in (0..rows).step_by(BATCH as usize) {
            let values = cells.values(start..rows.min(start + BATCH))?;
            ids.extend(values.as_chunks::<8>().0.iter().map(|id| i64::from_le_bytes(*id)));
        }
        let mut order: Option<Arc<[u64]>> = None;
        if !ids.is_sorted() {
            making.push(self.reserve(rows, 8)?);
            let mut pairs: Vec<(i64, u64)> = ids.into_iter().zip(0..).collect();
            pairs.sort_unstable();
            order = Some(pairs.iter().map(|(_, cell)| *cell).collect());
            ids = pairs.iter().map(|(id, _)| *id).collect();
        }
        if let Some(id) = ids.first().filter(|id| **id < 0) {
            return Err(Error::corrupt(format!("{id} is negative")).in_part("`soma_joinid`"));
        }
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::corrupt(format!("{} is there twice", pair[0])).in_part("`soma_joinid`"));
        }
        let axis = match ids.last() {
            Some(last) if last.unsigned_abs() >= rows => Axis::Listed(ids),
            _ => Axis::Whole(rows),
        };
        drop(making);
        let listed = u64::from(matches!(axis, Axis::Listed(_)));
        let kept = self.reserve(rows, 8 * (listed + u64::from(order.is_some())))?;
        Ok(Ranks {
            axis: Arc::new(axis),
            order,
            _reserved: kept,
        })
    }

    /// Reserves `bytes` bytes for each of the joinids of `rows` rows.
    fn reserve(&self, rows: u64, bytes: u64) -> Result<Reserved> {
        let reserved = Reserved::new(self.engine(), rows.saturating_mul(bytes));
        reserved.map_err(|_| {
            let message = format!(
                "the {rows} joinids have gaps, or are in another order: keeping them takes more memory than half \
                 of the cache has left (--cache-size)"
            );
            let array = &self.view.array().path;
            let file = self.engine().storage.display(array);
            Error::limit(message).in_part("`soma_joinid`").in_file(file)
        })
    }

    /// Whether metadata proves that joinids are 0, 1, .. without gaps: `rows` different ones from 0 to
    /// `rows` - 1. Where filters are lossy, domains bound other coordinates.
    fn is_whole(&self, rows: u64) -> Result<bool> {
        if self.view.schema().allows_duplicates {
            return Ok(false);
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for fragment in self.view.snapshot().fragment_list() {
            let outline = fragment.outline()?;
            if !outline.schema.has_exact_coordinates() {
                return Ok(false);
            }
            for range in outline.domain.iter().flat_map(|domain| domain.iter()) {
                let (Some(lo), Some(hi)) = (place(&range.lo), place(&range.hi)) else {
                    return Ok(false);
                };
                (first, last) = (first.min(lo), last.max(hi));
            }
        }
        Ok(rows == 0 || (first, last) == (0, rows - 1))
    }

    /// The cells of a field: the same as long as somebody has them.
    fn cells(&self, field: usize) -> Result<Arc<dyn Cells>> {
        let known = lock(&self.cells[field]).as_ref().and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        let cells = self.view.open(field)?;
        *lock(&self.cells[field]) = Some(Arc::downgrade(&cells));
        Ok(cells)
    }

    fn hold(&self, field: usize) -> Result<Held> {
        Ok(vec![self.cells(field)?])
    }

    /// The cells of rows: None if they are the same.
    fn order(&self) -> Result<Option<Arc<[u64]>>> {
        match self.is_in_order() {
            true => Ok(None),
            false => Ok(self.ranks()?.order.clone()),
        }
    }

    /// Calls `each` with consecutive cells and the place of each among `rows`, in the order of cells.
    fn runs(
        &self,
        rows: Range<u64>,
        mut each: impl FnMut(Range<u64>, &mut dyn Iterator<Item = usize>) -> Result<()>,
    ) -> Result<()> {
        let Some(order) = self.order()? else {
            let count = (rows.end - rows.start) as usize;
            return each(rows, &mut (0..count));
        };
        let cells = order[rows.start as usize..rows.end as usize].iter().copied();
        let mut cells: Vec<(u64, usize)> = cells.zip(0..).collect();
        cells.sort_unstable();
        for run in cells.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (first, last) = (run[0].0, run[run.len() - 1].0);
            each(first..last + 1, &mut run.iter().map(|(_, place)| *place))?;
        }
        Ok(())
    }

    /// Appends the entries of `rows` of `size` bytes each: values or validity.
    fn append(
        &self,
        field: usize,
        content: Content,
        size: usize,
        rows: Range<u64>,
        out: &mut Output,
    ) -> Result<()> {
        let cells = self.cells(field)?;
        if self.order()?.is_none() {
            return cells.append(content, rows, out);
        }
        out.fill((rows.end - rows.start) as usize * size, |bytes| {
            self.runs(rows, |run, places| {
                let read = Output::of(|out| cells.append(content, run, out))?;
                for (value, place) in read.chunks_exact(size).zip(places) {
                    bytes[place * size..][..size].copy_from_slice(value);
                }
                Ok(())
            })
        })
    }

    /// The validity of some rows, 0 for null; None if the field has none.
    fn validity(&self, field: usize, rows: Range<u64>) -> Result<Option<Output>> {
        if !self.field(field).nullable {
            return Ok(None);
        }
        Output::of(|out| self.append(field, Content::Validity, 1, rows, out)).map(Some)
    }

    /// Whether some row is null. Reads statistics; validity only where these do not tell.
    fn has_null(&self, field: usize) -> Result<bool> {
        if !self.field(field).nullable {
            return Ok(false);
        }
        // libtiledb counts no nulls of what has no bounds, which is text but for ASCII: it stores 0.
        let counted = match self.field(field).cell_val_num {
            CellValNum::Var => self.field(field).datatype == Datatype::StringAscii,
            CellValNum::Fixed(_) => self.field(field).datatype.kind() != Kind::Text,
        };
        let (mut nulls, mut cells) = (Some(0u64), 0u64);
        for fragment in self.view.snapshot().fragment_list() {
            let info = fragment.open()?;
            let own = info.geometry.cell_num;
            cells = cells.saturating_add(own);
            let stored = match info.stored_as(self.field(field)) {
                Stored::Same(stored) => {
                    let list = info.parsed_list(TileListKey::NullCounts, stored.slot, parse_u64_list);
                    let list = list.map_err(|error| info.place(error))?;
                    list.map(|(_, counts)| counts.into_iter().fold(0, u64::saturating_add))
                }
                Stored::Nothing if self.field(field).fill_value_valid => Some(0),
                Stored::Nothing => Some(own),
                Stored::Other(..) => None,
            };
            nulls = nulls.zip(stored).map(|(sum, own)| sum.saturating_add(own));
        }
        match nulls {
            Some(0) if counted => return Ok(false),
            // No cell is hidden.
            Some(1..) if self.rows()? == cells => return Ok(true),
            _ => {}
        }
        let (rows, cells) = (self.rows()?, self.cells(field)?);
        for start in (0..rows).step_by(BATCH as usize) {
            if cells.validity(start..rows.min(start + BATCH))?.contains(&0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Identifies something of a field in the cache.
    fn object(&self, what: &str, field: usize) -> u64 {
        let array = self.view.array();
        let of = ("anndata", what, &array.path, self.view.state(), field);
        self.engine().number(&of)
    }

    /// The members and the attributes of the frame's group.
    pub(super) fn group(self: &Arc<Frame>) -> Group {
        let columns = self.columns.iter();
        let columns = columns.map(|(field, name)| (name.clone(), Member::new(self.column(*field))));
        let mut columns: Members = columns.collect();
        let field = self.index().map(|(field, _)| field);
        let index = |field| {
            Member::new(Index {
                frame: self.clone(),
                field,
            })
        };
        let mut group = self.group_of(field, index(field), &columns);
        if !self.left_out_of_hdf5.is_empty() {
            columns.retain(|(name, _)| self.left_out_of_hdf5.iter().all(|(other, _)| other != name));
            let in_hdf5 = match self.index_in_hdf5() {
                own if own == field => self.group_of(field, group.members[0].1.clone(), &columns),
                own => self.group_of(own, index(own), &columns),
            };
            group.in_hdf5 = Some(Arc::new(in_hdf5));
        }
        group
    }

    /// The group of a frame with these columns, whose rows are called as `field` is.
    fn group_of(&self, field: Option<usize>, index: Arc<Member>, columns: &Members) -> Group {
        let name = match (&self.naming, field) {
            (Naming::Column(_, Some(name)), Some(_)) => name,
            _ => "_index",
        };
        let names = columns.iter().map(|(name, _)| &**name);
        let mut attributes = encoded("dataframe", "0.2.0");
        attributes.insert("_index".to_owned(), name.into());
        attributes.insert("column-order".to_owned(), names.collect::<Vec<_>>().into());
        let mut members = vec![(name.to_owned(), index)];
        members.extend_from_slice(columns);
        Group::with(attributes, members)
    }

    /// An array of fixed-size values of the rows.
    fn numbers(&self, of: Type, values: impl RowValues + 'static) -> Result<Node> {
        let attributes = encoded("array", "0.2.0");
        let content = InRows(Arc::new(values));
        Ok(Array::column(of, self.rows()?, MAX_CELLS, attributes, content).into())
    }

    fn texts(&self, what: &str, field: usize, texts: impl Texts + 'static) -> Result<Node> {
        let content = self.text_chunks(what, field, texts);
        let attributes = encoded("string-array", "0.2.0");
        Ok(Array::column(Type::Text, self.rows()?, MAX_CELLS, attributes, content).into())
    }

    fn text_chunks(&self, what: &str, field: usize, texts: impl Texts + 'static) -> TextChunks {
        TextChunks {
            engine: self.engine().clone(),
            path: self.view.array().path.display().to_string(),
            object: self.object(what, field),
            texts: Arc::new(texts),
        }
    }

    /// The field of a column of text of this name; None if there is none.
    pub(super) fn text_column(&self, name: &[u8]) -> Option<usize> {
        let field = self.view.fields().iter().position(|field| field.name == name)?;
        matches!(self.shown[field], Some(ColumnForm::As(Type::Text))).then_some(field)
    }

    /// What the column of a field makes.
    pub(super) fn column(self: &Arc<Frame>, field: usize) -> Column {
        Column {
            frame: self.clone(),
            field,
        }
    }

    /// Whether the labels of a column could not be read, which may be readable the next time.
    pub(super) fn lacks_labels(&self) -> bool {
        let unread = |form: &Option<ColumnForm>| matches!(form, Some(ColumnForm::Labelled(Err(_))));
        self.shown.iter().any(unread)
    }

    /// Columns of text side by side as an array of two axes.
    pub(super) fn matrix(self: &Arc<Frame>, fields: Vec<usize>) -> impl Element + 'static {
        TextMatrix {
            frame: self.clone(),
            fields,
        }
    }

    /// The number of chunks of a column, or more.
    fn chunks_of_column(&self) -> Result<u64> {
        // Values with a mask, or codes with labels.
        Ok(self.rows()?.div_ceil(MAX_CELLS) + self.rows()?.div_ceil(MAX_CELLS).max(1))
    }
}

fn shown_as(view: &View, field: &Field) -> Result<ColumnForm, &'static str> {
    let labels = match enumeration(view, field) {
        Ok(None) => return type_of(field.datatype, field.cell_val_num).map(ColumnForm::As),
        Ok(Some(labels)) => labels,
        Err(error) => return Ok(ColumnForm::Labelled(Err(error))),
    };
    let of = type_of(labels.datatype, labels.cell_val_num)?;
    Ok(ColumnForm::Labelled(Ok((of, labels))))
}

/// A column.
pub(super) struct Column {
    frame: Arc<Frame>,
    field: usize,
}

impl Element for Column {
    fn node(&self) -> Result<Node> {
        let (frame, field) = (&self.frame, self.field);
        let stored = frame.field(field);
        let numbers = |null| Numbers {
            frame: frame.clone(),
            field,
            boolean: stored.datatype == Datatype::Bool,
            null,
        };
        let of = match &frame.shown[field] {
            Some(ColumnForm::As(of)) => *of,
            Some(ColumnForm::Labelled(Ok((of, labels)))) => return self.categorical(*of, labels),
            Some(ColumnForm::Labelled(Err(error))) => return Err(error.clone()),
            None => return Err(Error::internal("a column that is left out")),
        };
        let encoding = match (of, stored.datatype.kind()) {
            (Type::Date(_), _) => return frame.numbers(of, numbers(NOT_A_TIME.to_le_bytes().to_vec())),
            (Type::Number(datatype), Kind::Float) => {
                return frame.numbers(of, numbers(datatype.default_fill()));
            }
            (Type::Number(_), Kind::Bool) => "nullable-boolean",
            (Type::Number(_), _) => "nullable-integer",
            (Type::Text, _) => "nullable-string-array",
        };
        let values = match of {
            Type::Text => frame.texts("column", field, self.texts())?,
            _ => frame.numbers(of, numbers(of.fill()))?,
        };
        if !frame.has_null(field)? {
            return Ok(values);
        }
        let mask = Mask {
            frame: frame.clone(),
            field,
        };
        let mask = frame.numbers(Type::Number(Datatype::Bool), mask)?;
        let members = vec![
            ("values".to_owned(), Member::new(values)),
            ("mask".to_owned(), Member::new(mask)),
        ];
        Ok(Group::new(encoding, members).into())
    }

    fn chunks(&self) -> Result<u64> {
        self.frame.chunks_of_column()
    }
}

impl Column {
    fn texts(&self) -> TextColumn {
        TextColumn {
            frame: self.frame.clone(),
            field: self.field,
        }
    }

    fn categorical(&self, of: Type, labels: &Arc<Enumeration>) -> Result<Node> {
        let (frame, field) = (&self.frame, self.field);
        let count = labels.count();
        let datatype = match count {
            0..=126 => Datatype::Int8,
            127..=32_766 => Datatype::Int16,
            _ => Datatype::Int32,
        };
        let codes = Codes {
            frame: frame.clone(),
            field,
            labels: count,
            datatype,
        };
        let codes = frame.numbers(Type::Number(datatype), codes)?;
        let rows = count as u64;
        let categories = match of {
            Type::Text => {
                let content = frame.text_chunks("categories", field, labels.clone());
                Array::column(of, rows, rows, encoded("string-array", "0.2.0"), content)
            }
            _ => {
                let mut bytes = labels.data.clone();
                if labels.datatype == Datatype::Bool {
                    bytes.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
                }
                let content = Whole(Arc::new(bytes));
                Array::column(of, rows, rows, encoded("array", "0.2.0"), content)
            }
        };
        let mut attributes: Attributes = encoded("categorical", "0.2.0");
        attributes.insert("ordered".to_owned(), labels.ordered.into());
        let members = vec![
            ("codes".to_owned(), Member::new(codes)),
            ("categories".to_owned(), Member::new(Node::from(categories))),
        ];
        Ok(Group::with(attributes, members).into())
    }
}

/// Numbers and dates, with another value in place of nulls.
struct Numbers {
    frame: Arc<Frame>,
    field: usize,
    boolean: bool,
    null: Vec<u8>,
}

impl RowValues for Numbers {
    fn hold(&self) -> Result<Held> {
        self.frame.hold(self.field)
    }

    fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()> {
        let (before, size) = (out.len(), self.null.len());
        self.frame
            .append(self.field, Content::Data, size, rows.clone(), out)?;
        let validity = self.frame.validity(self.field, rows)?;
        if !self.boolean && validity.as_ref().is_none_or(|validity| !validity.contains(&0)) {
            return Ok(());
        }
        out.write(|out| {
            let values = &mut out[before..];
            if self.boolean {
                values.iter_mut().for_each(|value| *value = u8::from(*value != 0));
            }
            let nulls = validity.iter().flat_map(|validity| validity.iter());
            for (value, _) in values
                .chunks_exact_mut(size)
                .zip(nulls)
                .filter(|(_, valid)| **valid == 0)
            {
                value.copy_from_slice(&self.null);
            }
        });
        Ok(())
    }
}

/// Whether cells are null.
struct Mask {
    frame: Arc<Frame>,
    field: usize,
}

impl RowValues for Mask {
    fn hold(&self) -> Result<Held> {
        self.frame.hold(self.field)
    }

    fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()> {
        let before = out.len();
        self.frame.append(self.field, Content::Validity, 1, rows, out)?;
        out.write(|out| {
            out[before..]
                .iter_mut()
                .for_each(|byte| *byte = u8::from(*byte == 0))
        });
        Ok(())
    }
}

/// The numbers of labels; -1 for nulls, and for numbers of no label.
struct Codes {
    frame: Arc<Frame>,
    field: usize,
    labels: usize,
    datatype: Datatype,
}

impl RowValues for Codes {
    fn hold(&self) -> Result<Held> {
        self.frame.hold(self.field)
    }

    fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()> {
        let stored = self.frame.field(self.field).datatype;
        let size = stored.size();
        let values = Output::of(|out| {
            self.frame
                .append(self.field, Content::Data, size, rows.clone(), out)
        })?;
        let validity = self.frame.validity(self.field, rows)?;
        out.write(|out| {
            for (row, value) in values.chunks_exact(size).enumerate() {
                let null = validity.as_ref().is_some_and(|validity| validity[row] == 0);
                let label = enumeration_index(stored, value).filter(|label| !null && *label < self.labels);
                let code = label.map_or(-1, |label| label as i64).to_le_bytes();
                out.extend_from_slice(&code[..self.datatype.size()]);
            }
        });
        Ok(())
    }
}

/// A column of text; "" for nulls.
struct TextColumn {
    frame: Arc<Frame>,
    field: usize,
}

impl Texts for TextColumn {
    fn hold(&self) -> Result<Held> {
        self.frame.hold(self.field)
    }

    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>> {
        let (frame, field) = (&self.frame, self.field);
        let mut lengths = vec![1; (texts.end - texts.start) as usize];
        if frame.field(field).cell_size().is_none() {
            frame.runs(texts.clone(), |run, places| {
                let starts = frame.cells(field)?.starts(run)?;
                for (pair, place) in starts.windows(2).zip(places) {
                    let length = pair[1].checked_sub(pair[0]);
                    lengths[place] = length.ok_or_else(|| Error::corrupt("a cell ends before it starts"))?;
                }
                Ok(())
            })?;
        }
        if let Some(validity) = frame.validity(field, texts)? {
            let nulls = lengths.iter_mut().zip(&*validity);
            nulls
                .filter(|(_, valid)| **valid == 0)
                .for_each(|(length, _)| *length = 0);
        }
        Ok(lengths)
    }

    fn read(&self, texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (frame, field) = (&self.frame, self.field);
        let validity = frame.validity(field, texts.clone())?;
        let is_null = |row: usize| validity.as_ref().is_some_and(|validity| validity[row] == 0);
        let values = |run: Range<u64>| -> Result<(Vec<u64>, Vec<u8>)> {
            match frame.field(field).cell_size() {
                Some(_) => Ok((
                    (0..=run.end - run.start).collect(),
                    frame.cells(field)?.values(run)?.into(),
                )),
                None => frame.cells(field)?.var_values(run),
            }
        };
        if frame.order()?.is_none() {
            let (starts, values) = values(texts)?;
            for (row, pair) in starts.windows(2).enumerate() {
                match is_null(row) {
                    true => put(b"")?,
                    false => put(&values[pair[0] as usize..pair[1] as usize])?,
                }
            }
            return Ok(());
        }
        let mut all = vec![Vec::new(); (texts.end - texts.start) as usize];
        frame.runs(texts, |run, places| {
            let (starts, values) = values(run)?;
            for (pair, place) in starts.windows(2).zip(places) {
                if !is_null(place) {
                    all[place] = values[pair[0] as usize..pair[1] as usize].to_vec();
                }
            }
            Ok(())
        })?;
        all.iter().try_for_each(|text| put(text))
    }
}

/// The names of rows.
struct Index {
    frame: Arc<Frame>,
    /// None for the numbers of the rows.
    field: Option<usize>,
}

impl Element for Index {
    fn node(&self) -> Result<Node> {
        let frame = &self.frame;
        let Some(field) = self.field else {
            return match frame.text_index {
                true => frame.texts("rows", 0, RowNumbers),
                false => frame.numbers(Type::Number(Datatype::Int64), Counted),
            };
        };
        let column = frame.column(field);
        let labels = match &frame.shown[field] {
            Some(ColumnForm::As(Type::Text)) => return frame.texts("index", field, column.texts()),
            _ if !frame.text_index => return column.node(),
            Some(ColumnForm::Labelled(Err(error))) => return Err(error.clone()),
            Some(ColumnForm::Labelled(Ok((_, labels)))) => Some(labels.clone()),
            _ => None,
        };
        let texts = Converted {
            frame: frame.clone(),
            field,
            labels,
        };
        frame.texts("index", field, texts)
    }

    fn chunks(&self) -> Result<u64> {
        self.frame.chunks_of_column()
    }
}

/// 0, 1, ..
struct Counted;

impl RowValues for Counted {
    fn append(&self, rows: Range<u64>, out: &mut Output) -> Result<()> {
        out.write(|out| out.extend(rows.flat_map(u64::to_le_bytes)));
        Ok(())
    }
}

/// Numbers and labels as text; "" for nulls.
struct Converted {
    frame: Arc<Frame>,
    field: usize,
    labels: Option<Arc<Enumeration>>,
}

impl Converted {
    /// Calls `put` with each text, of times with all decimals.
    fn each(&self, texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (frame, field) = (&self.frame, self.field);
        let datatype = frame.field(field).datatype;
        let size = datatype.size();
        let values = Output::of(|out| frame.append(field, Content::Data, size, texts.clone(), out))?;
        let validity = frame.validity(field, texts)?;
        for (row, value) in values.chunks_exact(size).enumerate() {
            let shown = match &self.labels {
                _ if validity.as_ref().is_some_and(|validity| validity[row] == 0) => None,
                None => Some((datatype, value)),
                // The number of no label is a null, as it is in codes.
                Some(labels) => enumeration_index(datatype, value)
                    .and_then(|label| labels.value(label))
                    .map(|label| (labels.datatype, label)),
            };
            match shown {
                None => put(b"")?,
                Some((datatype, text)) if datatype.kind() == Kind::Text => put(text)?,
                Some((datatype, number)) => {
                    let text = number_text(datatype, number).expect("what is no text has a number a cell");
                    put(text.as_bytes())?;
                }
            }
        }
        Ok(())
    }

    /// How many bytes at the end of each time are left out, as pandas does: decimals, or hour and minute too,
    /// that are zeros in the whole column. The first call reads all of it.
    fn zeros(&self) -> Result<usize> {
        let frame = &self.frame;
        if self.labels.is_some() || frame.field(self.field).datatype.kind() != Kind::Datetime {
            return Ok(0);
        }
        let count = || {
            let (rows, mut zeros) = (frame.rows()?, None);
            for first in (0..rows).step_by(MAX_CELLS as usize) {
                self.each(first..rows.min(first + MAX_CELLS), &mut |text| {
                    if let Some(own) = zeros_of(text) {
                        zeros = Some(zeros.map_or(own, |zeros: usize| zeros.min(own)));
                    }
                    Ok(())
                })?;
            }
            Ok(zeros.unwrap_or(0))
        };
        get_or_make(&frame.zeros, count).copied()
    }
}

/// How many bytes at the end of `YYYY-MM-DD HH:MM:SS.fff` say nothing. None of what is no such time.
fn zeros_of(text: &[u8]) -> Option<usize> {
    let (time, decimals) = match text.iter().position(|byte| *byte == b'.') {
        Some(point) => (&text[..point], &text[point..]),
        None => (text, &b""[..]),
    };
    let space = time.iter().position(|byte| *byte == b' ')?;
    let digits = decimals.get(1..).unwrap_or_default();
    let groups = digits.rchunks(3).take_while(|group| *group == b"000").count();
    Some(
        match (3 * groups == digits.len(), &time[space..] == b" 00:00:00") {
            (true, true) => text.len() - space,
            (true, false) => decimals.len(),
            (false, _) => 3 * groups,
        },
    )
}

impl Texts for Converted {
    fn hold(&self) -> Result<Held> {
        self.frame.hold(self.field)
    }

    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>> {
        let mut lengths = Vec::new();
        self.read(texts, &mut |text| {
            lengths.push(text.len() as u64);
            Ok(())
        })?;
        Ok(lengths)
    }

    fn read(&self, texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let zeros = self.zeros()?;
        self.each(texts, &mut |text| match zeros_of(text) {
            Some(_) => put(&text[..text.len() - zeros]),
            None => put(text),
        })
    }
}

/// Columns of text side by side.
struct TextMatrix {
    frame: Arc<Frame>,
    fields: Vec<usize>,
}

impl TextMatrix {
    /// Rows of a chunk.
    fn side(&self) -> u64 {
        (MAX_CELLS / self.fields.len() as u64).max(1)
    }
}

impl Element for TextMatrix {
    fn node(&self) -> Result<Node> {
        let (frame, width) = (&self.frame, self.fields.len() as u64);
        let columns = self.fields.iter().map(|field| frame.column(*field).texts());
        let content = frame.text_chunks("matrix", self.fields[0], SideBySide(columns.collect()));
        let rows = frame.rows()?;
        let (shape, sides) = (vec![rows, width], vec![rows.min(self.side()), width]);
        let attributes = encoded("string-array", "0.2.0");
        Ok(Array::new(Type::Text, shape, sides, attributes, content).into())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(self.frame.rows()?.div_ceil(self.side()))
    }
}

struct SideBySide(Vec<TextColumn>);

impl SideBySide {
    /// The rows that have some texts, and how many texts of the first are not among them.
    fn rows(&self, texts: &Range<u64>) -> (Range<u64>, usize) {
        let width = self.0.len() as u64;
        let rows = texts.start / width..texts.end.div_ceil(width);
        (rows, (texts.start % width) as usize)
    }
}

impl Texts for SideBySide {
    fn hold(&self) -> Result<Held> {
        let cells = self.0.iter().map(|column| column.frame.cells(column.field));
        cells.collect()
    }

    fn lengths(&self, texts: Range<u64>) -> Result<Vec<u64>> {
        let (rows, skipped) = self.rows(&texts);
        let columns = self.0.iter().map(|column| column.lengths(rows.clone()));
        let columns: Vec<Vec<u64>> = columns.collect::<Result<_>>()?;
        let all =
            (0..(rows.end - rows.start) as usize).flat_map(|row| columns.iter().map(move |own| own[row]));
        Ok(all
            .skip(skipped)
            .take((texts.end - texts.start) as usize)
            .collect())
    }

    fn read(&self, texts: Range<u64>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (rows, skipped) = self.rows(&texts);
        let mut columns = vec![Vec::new(); self.0.len()];
        for (column, own) in self.0.iter().zip(&mut columns) {
            column.read(rows.clone(), &mut |text| {
                own.push(text.to_vec());
                Ok(())
            })?;
        }
        let all =
            (0..(rows.end - rows.start) as usize).flat_map(|row| columns.iter().map(move |own| &own[row]));
        let mut wanted = all.skip(skipped).take((texts.end - texts.start) as usize);
        wanted.try_for_each(|text| put(text))
    }
}

/// A coordinate of type INT64; None if it is negative, or of another type.
pub(super) fn place(bytes: &[u8]) -> Option<u64> {
    u64::try_from(int64(bytes)?).ok()
}

/// Why an array is no data frame with joinids; None if it is one.
pub(super) fn unfit(view: &View) -> Option<&'static str> {
    let joinid = view.fields().iter().find(|field| field.name == JOINID);
    match joinid {
        _ if view.schema().array_type != ArrayType::Sparse => Some("it is dense"),
        None => Some("it has no soma_joinid"),
        Some(field) if field.datatype != Datatype::Int64 || field.cell_val_num != CellValNum::Fixed(1) => {
            Some("its soma_joinid is not INT64")
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::csr::tests::{LOSSY, PLAIN, view};
    use super::*;

    #[test]
    fn frames_of_one_state_share_their_ranks() {
        let (_, array, _) = PLAIN.array(&[vec![(0, 0, 1, u64::MAX), (3, 1, 1, u64::MAX)]]);
        let frames = [(); 2].map(|()| Frame {
            joinid: Some(0),
            ..Frame::new(view(&array), None, false).unwrap()
        });
        let [one, other] = frames.each_ref().map(|frame| frame.axis().unwrap());
        assert!(matches!(&*one, Axis::Listed(joinids) if *joinids == [0, 3]));
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn joinids_that_need_too_much_memory_say_so() {
        let (_, array, _) = PLAIN.array(&[vec![(0, 0, 1, u64::MAX)]]);
        let frame = Frame::new(view(&array), None, false).unwrap();
        let error = frame.reserve(1 << 40, 8).err().unwrap().to_string();
        assert!(
            error.contains("joinid") && error.contains("--cache-size"),
            "{error}"
        );
    }

    #[test]
    fn joinids_before_lossy_filters_prove_nothing() {
        let cells = vec![(0, 0, 1, u64::MAX), (1, 1, 1, u64::MAX)];
        let is_whole = [PLAIN, LOSSY].map(|design| {
            let view = view(&design.array(std::slice::from_ref(&cells)).1);
            let frame = Frame::new(view, None, false).unwrap();
            frame.is_whole(2).unwrap()
        });
        assert_eq!(is_whole, [true, false]);
    }
}
