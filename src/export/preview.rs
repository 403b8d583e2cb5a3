//! What a view is, as text for people: its fields, and its first rows as in `table.csv`.

use super::csv::text::Form;
use crate::error::Result;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::pipeline::Pipeline;
use crate::format::range::Range;
use crate::printable::escape;
use crate::query::table::{Table, names};
use crate::query::{Role, View};
use std::sync::Arc;

/// A cell of more characters is cut.
const MAX_CHARACTERS: usize = 200;

/// A column whose shown cells take more bytes is not read.
const MAX_COLUMN: u64 = 1 << 20;

/// What stands for what is cut or not read.
const CUT: &str = "\u{2026}";

/// A field of a view, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldText {
    /// Its name, or the one that tables give it.
    pub name: String,
    /// Whether it is a dimension.
    pub is_dimension: bool,
    /// Datatype, values per cell, whether cells may be null, and the enumeration, as in `FLOAT32 x 2,
    /// nullable`.
    pub form: String,
    /// The domain of a dimension, as in `1 to 365`; empty for others and without a domain.
    pub domain: String,
    /// The filters in the order in which they are applied, as in `BYTESHUFFLE, ZSTD`; empty without any.
    pub filters: String,
}

/// The first `most` fields of a view. Reads nothing.
pub fn fields(view: &View, most: usize) -> Vec<FieldText> {
    let schema = view.schema();
    let named = names(view).into_iter().zip(view.fields()).take(most);
    let described = named.map(|(name, field)| {
        let (domain, filters) = match field.role {
            Role::Dimension(i) => {
                let domain = schema.dimensions[i].domain.as_ref();
                let domain = domain.map(|domain| range(field.datatype, field.cell_val_num, domain));
                (domain.unwrap_or_default(), schema.dimension_filters(i))
            }
            Role::Attribute(i) => (String::new(), &schema.attributes[i].filters),
        };
        FieldText {
            name: escape(name),
            is_dimension: !field.is_attribute(),
            form: match &field.enumeration {
                Some(enumeration) => format!("{}, enumeration {}", field.form(), escape(enumeration)),
                None => field.form().to_string(),
            },
            domain,
            filters: filter_names(filters),
        }
    });
    described.collect()
}

fn filter_names(pipeline: &Pipeline) -> String {
    let names: Vec<&str> = pipeline.filters.iter().map(|filter| filter.name()).collect();
    names.join(", ")
}

/// A range of coordinates, both ends in, as in `1 to 365`.
pub fn range(datatype: Datatype, cell_val_num: CellValNum, range: &Range) -> String {
    let form = Form::new(datatype, cell_val_num);
    // A bound of another size has been refused with the schema.
    let end = |bytes: &[u8]| shown(form, bytes).unwrap_or_else(|_| CUT.to_owned());
    format!("{} to {}", end(&range.lo), end(&range.hi))
}

/// The first rows of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    /// The names of the columns.
    pub names: Vec<String>,
    /// The cells of each row; None is null.
    pub rows: Vec<Vec<Option<String>>>,
    /// The number of columns beyond `names`.
    pub more: usize,
}

/// The first `most` rows of a view, of at most `columns` columns: as in `table.csv`, without its quotes.
/// Reads the cells of these rows alone, and of a sparse view those of other fragments that come before them.
pub fn rows(view: &Arc<View>, most: u64, columns: usize) -> Result<Rows> {
    let head = Arc::new(view.head(most)?);
    let table = Table::of_part(&head, view)?;
    let count = table.rows()?.min(most);
    let shown_columns = &table.columns()[..table.columns().len().min(columns)];
    let mut rows = vec![Vec::with_capacity(shown_columns.len()); count as usize];
    for column in shown_columns {
        let is_long = count > 0 && column.most_bytes(&(0..count))? > MAX_COLUMN;
        let read = match is_long {
            true => None,
            false => Some(column.read(0..count)?),
        };
        let form = Form::of(column);
        for (number, row) in rows.iter_mut().enumerate() {
            row.push(match &read {
                None => Some(CUT.to_owned()),
                Some(read) => read.value(number).map(|cell| shown(form, cell)).transpose()?,
            });
        }
    }
    Ok(Rows {
        names: shown_columns.iter().map(|column| escape(&column.name)).collect(),
        rows,
        more: table.columns().len() - shown_columns.len(),
    })
}

/// A cell in one line, cut if it is long.
fn shown(form: Form, cell: &[u8]) -> Result<String> {
    let mut text = Vec::new();
    form.write(cell, &mut text)?;
    let text = escape(unquoted(&text));
    Ok(match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => text[..end].to_owned() + CUT,
        None => text,
    })
}

/// A field of a CSV file without its quotes.
fn unquoted(field: &[u8]) -> Vec<u8> {
    let inner = field
        .strip_prefix(b"\"")
        .and_then(|field| field.strip_suffix(b"\""));
    let Some(inner) = inner else { return field.to_vec() };
    let mut quotes = 0;
    let once = inner.iter().filter(|byte| {
        quotes = if **byte == b'"' { quotes + 1 } else { 0 };
        quotes % 2 == 0 || **byte != b'"'
    });
    once.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Array;
    use crate::catalog::time::TimeRange;

    fn view(array: &str) -> Arc<View> {
        let array = Array::open(format!("tests/data/{array}")).unwrap();
        Arc::new(array.at(TimeRange::ALL).open().unwrap())
    }

    #[test]
    fn fields_are_described() {
        let fields = fields(&view("sample/weather"), 100);
        let day = fields.iter().find(|field| field.name == "day").unwrap();
        assert_eq!(
            (day.is_dimension, &*day.form, &*day.domain),
            (true, "INT32", "1 to 365")
        );
        let wind = fields.iter().find(|field| field.name == "wind").unwrap();
        assert_eq!(
            (wind.is_dimension, &*wind.form, &*wind.domain),
            (false, "FLOAT64 x 2", "")
        );
        let sky = fields.iter().find(|field| field.name == "sky").unwrap();
        assert_eq!(sky.form, "UINT8, enumeration sky");
    }

    #[test]
    fn rows_are_those_of_the_table() {
        let view = view("sample/weather");
        let all = rows(&view, 20, 100).unwrap();
        assert_eq!((all.rows.len(), all.more), (20, 0));
        assert_eq!(all.names[..2], ["day", "station"]);
        let column = |name: &str| all.names.iter().position(|known| known == name).unwrap();
        let first: Vec<_> = ["day", "station", "note", "rain", "wind"]
            .map(|name| all.rows[0][column(name)].as_deref())
            .into();
        assert_eq!(
            first,
            [Some("1"), Some("0"), Some("fog"), None, Some("[7.93, 2.27]")]
        );
        let some = rows(&view, 3, 2).unwrap();
        assert_eq!((some.rows.len(), some.rows[2].len()), (3, 2));
        assert_eq!(some.more, all.names.len() - 2);
    }

    #[test]
    fn cells_are_one_line_without_quotes() {
        let form = Form::Bytes { padded: false };
        let text = |cell: &[u8]| shown(form, cell).unwrap();
        for (cell, expected) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "a,b"),
            ("\"", "\""),
            ("\"\"", "\"\""),
            (" say \"a\", \"\"b", " say \"a\", \"\"b"),
            ("a\nb\u{1b}", "a\\nb\\u{1b}"),
        ] {
            assert_eq!(text(cell.as_bytes()), expected);
        }
        assert_eq!(text(b"a\xff"), "a\\xff");
        assert_eq!(text("é".repeat(300).as_bytes()), "é".repeat(MAX_CHARACTERS) + CUT);
    }
}
