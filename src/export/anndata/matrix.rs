//! Arrays of numbers: X and layers, obsm, varm, obsp, varp, and those in uns.

use super::axis::{Axis, Finder};
use super::csr::Csr;
use super::csr::source::{MatrixCells, Piece, scan};
use super::frame::{Frame, place};
use super::node::{
    Array, Attributes, Content, Element, Group, InOrder, MAX_CELLS, Member, Node, Parts, Type, Whole, encoded,
};
use super::text::OneText;
use crate::bytes::{Bytes, Keep, Output};
use crate::error::{Error, Result};
use crate::export::chunks::{Chunks, GridChunk, extents};
use crate::export::grid::{Variable, VariableKind};
use crate::format::datatype::{CellValNum, Datatype, Kind};
use crate::format::schema::{Dimension, Schema};
use crate::fragment::column;
use crate::layout::CellBytes;
use crate::query::{DimRange, View};
use crate::runtime::cache::CacheKey;
use crate::runtime::single_flight::Memo;
use std::ops::Range;
use std::sync::Arc;

/// The attribute of values.
pub(super) const DATA: &[u8] = b"soma_data";

/// Why an array's values have no encoding; None if they have one. Reads the schema alone.
pub(super) fn unfit(view: &View) -> Option<&'static str> {
    let schema = view.schema();
    let named = |(number, dimension): (usize, &Dimension)| {
        dimension.name == format!("soma_dim_{number}").as_bytes() && dimension.datatype == Datatype::Int64
    };
    let Some(data) = schema.attribute(DATA) else {
        return Some("it has no soma_data");
    };
    if !schema.dimensions.iter().enumerate().all(named) {
        return Some("its dimensions are not soma_dim_0, soma_dim_1, .. of INT64");
    }
    match data.datatype.kind() {
        _ if data.cell_val_num != CellValNum::Fixed(1) => Some("it has several values in a cell"),
        _ if data.nullable => Some("its values may be null"),
        Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Bool => None,
        _ => Some("its values are not numbers"),
    }
}

/// The index of the field of values, and their type.
fn data_of(view: &View) -> Result<(usize, Datatype)> {
    let field = view.fields().iter().position(|field| field.name == DATA);
    let field = field.ok_or_else(|| Error::internal("an array without soma_data"))?;
    Ok((field, view.fields()[field].datatype))
}

/// The number of coordinates from 0 on along each dimension: of the current domain, else of the domain. None
/// if that does not begin at 0, or has no end.
pub(super) fn domain_shape(schema: &Schema) -> Option<Vec<u64>> {
    let axes = schema.dimensions.iter().enumerate();
    let ranges = axes.map(|(number, dimension)| match &schema.current_domain {
        Some(current) => current.get(number),
        None => dimension.domain.as_ref(),
    });
    let lengths = ranges.map(|range| {
        let range = range?;
        (place(&range.lo)? == 0).then_some(place(&range.hi)? + 1)
    });
    lengths.collect()
}

fn range(first: i64, last: i64) -> DimRange {
    DimRange {
        lo: Some(first.to_le_bytes().to_vec()),
        hi: Some(last.to_le_bytes().to_vec()),
    }
}

/// How a dense array is divided.
#[derive(Clone, Copy)]
pub(super) enum Division {
    /// As in `array.zarr/`, if it has several axes.
    Tiles,
    /// Whole rows.
    Rows,
}

/// The rows of a chunk of at most 2^18 cells: a power of two.
fn rows_of_chunk(width: u64) -> u64 {
    match MAX_CELLS / width.max(1) {
        0 => 1,
        rows => 1 << rows.ilog2(),
    }
}

/// The lower corner of a dense array.
pub(super) struct Dense {
    pub(super) view: Arc<View>,
    /// The length of each axis, within the domain.
    pub(super) shape: Vec<u64>,
    pub(super) division: Division,
}

impl Dense {
    fn chunks(&self) -> Result<Chunks> {
        let (_, datatype) = data_of(&self.view)?;
        let extents = extents(self.view.schema())?;
        let mut chunks = Chunks::new(&self.shape, &extents, datatype.size() as u64);
        match (self.division, &*self.shape) {
            (Division::Rows, [rows, width]) => {
                chunks.sides = vec![(*rows).min(rows_of_chunk(*width)).max(1), (*width).max(1)];
            }
            // As other arrays of one axis are.
            (Division::Tiles, [cells]) => chunks.sides = vec![(*cells).clamp(1, MAX_CELLS)],
            _ => {}
        }
        Ok(chunks)
    }
}

impl Element for Dense {
    fn node(&self) -> Result<Node> {
        let (field, datatype) = data_of(&self.view)?;
        let of = Type::Number(datatype);
        let mut variable = Variable::new(String::new(), VariableKind::Values, field, datatype);
        variable.fill = of.fill();
        variable.chunks = self.chunks()?;
        let (shape, sides) = (self.shape.clone(), variable.chunks.sides.clone());
        // A range without cells is none. A domain of INT64 has up to 2^63 coordinates from 0 on.
        let ends = shape.iter().map(|length| range(0, length.wrapping_sub(1) as i64));
        let content = DenseChunks {
            view: Arc::new(self.view.part(ends.collect())),
            variable,
        };
        Ok(Array::new(of, shape, sides, encoded("array", "0.2.0"), content).into())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(Dense::chunks(self)?.counts().fold(1, u64::saturating_mul))
    }
}

struct DenseChunks {
    view: Arc<View>,
    variable: Variable,
}

impl Content for DenseChunks {
    fn chunk(&self, _: &Array, numbers: &[u64]) -> Result<Parts> {
        Ok(vec![Box::new(GridChunk::open(
            &self.view,
            &self.variable,
            numbers,
        )?)])
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        let (size, view, variable) = (array.of.size(), self.view.clone(), self.variable.clone());
        let len = array.cells()?.checked_mul(size);
        let len = len.ok_or_else(|| Error::limit("an array would have 2^64 bytes or more"))?;
        let open = move || variable.open(&view);
        Ok(InOrder {
            size,
            bytes: Box::new(CellBytes::opened_by(len, column::Content::Data, open)),
        })
    }
}

/// A sparse array of two dimensions with zeros filled in: an element of obsm or varm.
pub(super) struct Filled {
    pub(super) view: Arc<View>,
    pub(super) rows: Arc<Frame>,
}

impl Filled {
    /// The number of columns: of the current domain, else of the box that fragments cover.
    fn width(&self) -> Result<u64> {
        if self.view.schema().current_domain.is_some() {
            let shape = domain_shape(self.view.schema());
            return shape
                .map(|shape| shape[1])
                .ok_or_else(|| Error::unsupported("its current domain does not begin at 0"));
        }
        let mut width = 0;
        for fragment in self.view.snapshot().fragment_list() {
            if let Some(domain) = &fragment.outline()?.domain {
                let last = domain.get(1).and_then(|range| place(&range.hi));
                let last = last.ok_or_else(|| Error::corrupt("a column has a negative number"))?;
                width = width.max(last + 1);
            }
        }
        Ok(width)
    }
}

impl Element for Filled {
    fn node(&self) -> Result<Node> {
        let (field, datatype) = data_of(&self.view)?;
        let axis = self.rows.axis()?;
        let (rows, of) = (axis.len(), Type::Number(datatype));
        let width = self.width()?;
        let (shape, sides) = (vec![rows, width], vec![rows.min(rows_of_chunk(width)), width]);
        let array = self.view.array();
        let of_rows = ("anndata filled", &array.path, self.view.state(), &axis);
        let content = FilledChunks {
            object: array.engine.number(&of_rows),
            view: self.view.clone(),
            axis,
            field,
            cells: Arc::default(),
            width,
        };
        Ok(Array::new(of, shape, sides, encoded("array", "0.2.0"), content).into())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(Node::chunks(&self.node()?))
    }
}

#[derive(Clone)]
struct FilledChunks {
    /// The number of its tables in the cache. All of a listed axis is hashed for it.
    object: u64,
    view: Arc<View>,
    axis: Arc<Axis>,
    field: usize,
    cells: Arc<Memo<Arc<MatrixCells>>>,
    width: u64,
}

impl FilledChunks {
    /// Some rows of the array.
    fn table(&self, of: Type, rows: Range<u64>) -> Result<Table> {
        let cells = (rows.end - rows.start).checked_mul(self.width);
        let bytes = cells.and_then(|cells| cells.checked_mul(of.size()));
        let len = bytes.ok_or_else(|| Error::limit("a chunk would have 2^64 bytes or more"))?;
        self.view.array().engine.cache.check_size(len)?;
        Ok(Table {
            content: self.clone(),
            boolean: of == Type::Number(Datatype::Bool),
            rows,
            len,
        })
    }
}

impl Content for FilledChunks {
    fn chunk(&self, array: &Array, numbers: &[u64]) -> Result<Parts> {
        let table = self.table(array.of, array.rows(numbers[0]))?;
        Ok(vec![Box::new(table), array.padding(numbers[0], self.width)])
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        let (of, rows) = (array.of, array.shape[0]);
        let row = self.width.checked_mul(of.size());
        let len = row.and_then(|row| row.checked_mul(rows));
        let (Some(row), Some(len)) = (row, len) else {
            return Err(Error::limit("an array would have 2^64 bytes or more"));
        };
        let tables = Tables {
            content: self.clone(),
            of,
            rows,
            side: array.sides[0],
            row,
            len,
        };
        Ok(InOrder {
            size: of.size(),
            bytes: Box::new(tables),
        })
    }
}

/// All rows of a filled array, made as its chunks are.
struct Tables {
    content: FilledChunks,
    of: Type,
    rows: u64,
    /// Rows of a chunk.
    side: u64,
    /// Bytes of a row.
    row: u64,
    /// Bytes of all.
    len: u64,
}

impl Bytes for Tables {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let first = at / self.row / self.side * self.side;
            let rows = first..self.rows.min(first + self.side);
            let (start, end) = (rows.start * self.row, range.end.min(rows.end * self.row));
            let table = self.content.table(self.of, rows)?;
            table.read(at - start..end - start, out)?;
            at = end;
        }
        Ok(())
    }
}

/// Some rows of a filled array.
struct Table {
    content: FilledChunks,
    boolean: bool,
    rows: Range<u64>,
    len: u64,
}

impl Table {
    fn make(&self) -> Result<Vec<u8>> {
        let FilledChunks {
            object,
            view,
            axis,
            field,
            cells,
            width,
        } = &self.content;
        let mut out = vec![0; self.len as usize];
        let size = (self.len / (self.rows.end - self.rows.start) / width) as usize;
        // A bit for each place, set if a cell was there.
        let allows_duplicates = view.schema().allows_duplicates;
        let mut seen = allows_duplicates.then(|| vec![0u8; (out.len() / size).div_ceil(8)]);
        let joinids = axis.joinids(&self.rows);
        let cells = cells.get_or_make(|| Ok(Arc::new(MatrixCells::new(view, *field)?)))?;
        let pieces = cells.pieces(&joinids, &joinids)?;
        let read = |piece: &Piece| {
            let all = 0..piece.count() as usize;
            Ok((piece.rows()?, piece.columns(&all)?, piece.values(&all)?))
        };
        let what = "putting cells into a table";
        scan(view, *object, &pieces, what, read, |(rows, columns, values)| {
            let mut row_of = Finder::new(axis);
            let coordinates = rows.as_chunks::<8>().0.iter().zip(columns.as_chunks::<8>().0);
            for ((row, column), value) in coordinates.zip(values.chunks_exact(size)) {
                let joinid = i64::from_le_bytes(*row);
                let Some(row) = row_of.place(joinid).filter(|row| self.rows.contains(row)) else {
                    continue;
                };
                let column = place(column).filter(|column| column < width);
                let column = column
                    .ok_or_else(|| Error::corrupt(format!("a cell lies outside of the {width} columns")))?;
                let place = ((row - self.rows.start) * width + column) as usize;
                if let Some(seen) = &mut seen {
                    let bit = 1 << (place % 8);
                    if seen[place / 8] & bit != 0 {
                        return Err(Error::corrupt(format!(
                            "several cells have the coordinates ({joinid}, {column}), where a matrix has one value"
                        )));
                    }
                    seen[place / 8] |= bit;
                }
                out[place * size..(place + 1) * size].copy_from_slice(value);
            }
            Ok(())
        })?;
        if self.boolean {
            out.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(out)
    }
}

impl Bytes for Table {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let engine = &self.content.view.array().engine;
        let _waiting = engine.work.wait(self.content.object);
        let key = CacheKey::tile(self.content.object, self.rows.start);
        let keep = out.keep.unwrap_or(Keep::Staying);
        let table = engine.cache.derive(key, self.len, keep, || self.make())?;
        out.share(table, range.start as usize..range.end as usize)
    }
}

/// A sparse array of two dimensions by rows.
pub(super) struct Sparse {
    pub(super) view: Arc<View>,
    pub(super) rows: Arc<Frame>,
    pub(super) columns: Arc<Frame>,
}

impl Element for Sparse {
    fn node(&self) -> Result<Node> {
        let csr = Csr::new(self.view.clone(), self.rows.axis()?, self.columns.axis()?)?;
        let mut attributes = encoded("csr_matrix", "0.1.0");
        attributes.insert("shape".to_owned(), csr.shape().to_vec().into());
        let parts = [
            ("data", Part::Data),
            ("indices", Part::Indices),
            ("indptr", Part::Indptr),
        ];
        let members = parts.map(|(name, part)| {
            let csr = csr.clone();
            (name.to_owned(), Member::new(PartOf { csr, part }))
        });
        Ok(Node::from(Group::with(attributes, members.into())))
    }

    fn chunks(&self) -> Result<u64> {
        let mut cells = 0u64;
        for fragment in self.view.snapshot().fragment_list() {
            cells = cells.saturating_add(fragment.outline()?.cells);
        }
        Ok(2 * cells.div_ceil(MAX_VALUES) + (self.rows.rows()? + 1).div_ceil(MAX_CELLS))
    }
}

/// The most cells in a chunk of values of a sparse matrix.
const MAX_VALUES: u64 = 1 << 20;

/// An array of a sparse matrix.
#[derive(Clone, Copy)]
enum Part {
    Data,
    Indices,
    Indptr,
}

struct PartOf {
    csr: Arc<Csr>,
    part: Part,
}

impl Element for PartOf {
    fn node(&self) -> Result<Node> {
        let csr = &self.csr;
        let (datatype, bytes, most) = match self.part {
            Part::Data => (csr.datatype(), csr.data()?, MAX_VALUES),
            Part::Indices => (csr.index_datatype()?, csr.indices()?, MAX_VALUES),
            Part::Indptr => (csr.index_datatype()?, csr.indptr()?, MAX_CELLS),
        };
        let of = Type::Number(datatype);
        let count = bytes.len() / of.size();
        Ok(Array::column(of, count, most, Attributes::new(), Sections(bytes)).into())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(Node::chunks(&self.node()?))
    }
}

/// The bytes of an array of one axis.
struct Sections(Arc<dyn Bytes>);

impl Content for Sections {
    fn chunk(&self, array: &Array, numbers: &[u64]) -> Result<Parts> {
        let (rows, size) = (array.rows(numbers[0]), array.of.size());
        let section = Section {
            of: self.0.clone(),
            range: rows.start * size..rows.end * size,
        };
        Ok(vec![Box::new(section), array.padding(numbers[0], 1)])
    }

    fn in_order(&self, array: &Array) -> Result<InOrder> {
        let section = Section {
            of: self.0.clone(),
            range: 0..self.0.len(),
        };
        Ok(InOrder {
            size: array.of.size(),
            bytes: Box::new(section),
        })
    }
}

/// A range of some bytes.
struct Section {
    of: Arc<dyn Bytes>,
    range: Range<u64>,
}

impl Bytes for Section {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let start = self.range.start;
        self.of.read(start + range.start..start + range.end, out)
    }
}

/// Numbers or text of metadata.
pub(super) struct MetadataArray {
    pub(super) of: Type,
    /// The numbers, little-endian, or the text.
    pub(super) bytes: Arc<Vec<u8>>,
    /// How many numbers; None for a scalar.
    pub(super) count: Option<u64>,
}

impl Element for MetadataArray {
    fn node(&self) -> Result<Node> {
        let attributes: Attributes = match (self.of, self.count) {
            (Type::Text, _) => encoded("string", "0.2.0"),
            (_, None) => encoded("numeric-scalar", "0.2.0"),
            (_, Some(_)) => encoded("array", "0.2.0"),
        };
        let shape: Vec<u64> = self.count.into_iter().collect();
        let (sides, bytes) = (shape.clone(), self.bytes.clone());
        Ok(match self.of {
            Type::Text => Array::new(self.of, shape, sides, attributes, OneText(bytes)),
            _ => Array::new(self.of, shape, sides, attributes, Whole(bytes)),
        }
        .into())
    }

    fn chunks(&self) -> Result<u64> {
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::csr::tests::{Cell, DUPLICATES, PLAIN, view};
    use super::*;

    #[test]
    fn cells_at_one_place_are_an_error() {
        let made = |cells: Vec<Cell>| {
            let content = FilledChunks {
                object: 0,
                view: view(&DUPLICATES.array(&[cells]).1),
                axis: Arc::new(Axis::Whole(5)),
                field: 2,
                cells: Arc::default(),
                width: 9,
            };
            content.table(Type::Number(Datatype::Float32), 0..5)?.make()
        };
        let different = vec![(3, 4, 1, u64::MAX), (3, 5, 2, u64::MAX), (4, 4, 3, u64::MAX)];
        let filled = made(different.clone()).unwrap();
        assert_eq!(filled.iter().filter(|byte| **byte > 0).count(), 3);
        let error = made([different, vec![(3, 4, 5, u64::MAX)]].concat()).unwrap_err();
        assert!(error.to_string().contains("(3, 4)"), "{error}");
    }

    #[test]
    fn arrays_of_one_axis_are_divided_as_columns_are() {
        let sides = [0, 70_000, 300_000].map(|cells| {
            let dense = Dense {
                view: view(&PLAIN.array(&[]).1),
                shape: vec![cells],
                division: Division::Tiles,
            };
            Dense::chunks(&dense).unwrap().sides
        });
        assert_eq!(sides, [[1], [70_000], [1 << 18]]);
    }

    #[test]
    fn an_axis_may_have_all_coordinates_from_0_on() {
        let dense = Dense {
            view: view(&PLAIN.array(&[]).1),
            shape: vec![1 << 63, 0],
            division: Division::Tiles,
        };
        dense.node().unwrap();
    }
}
