//! `enumerations/<name>.json`: the values of an enumeration.

use super::list::ValueList;
use super::{render, value};
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::format::body::BodyCursor;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::enumeration::check_version;
use crate::layout::segments::{Cutter, Parts, Segments};
use std::ops::Range;

/// The longest name, in bytes.
const MAX_NAME: u64 = 1 << 20;

/// The document of the enumeration with the unfiltered body `body`, its values in the order of their indexes.
/// Fails where [`Enumeration::parse`](crate::format::enumeration::Enumeration::parse) does.
pub fn enumeration_segments(body: impl Bytes + 'static) -> Result<Segments> {
    let mut c = BodyCursor::new(&body);
    check_version(c.u32("version")?)?;
    let name = name(&mut c, "name")?;
    self::name(&mut c, "file_name")?;
    let offset = c.offset();
    let datatype = Datatype::from_u8(c.u8("datatype")?).map_err(|e| e.at(offset).in_part("`datatype`"))?;
    let offset = c.offset();
    let cells =
        CellValNum::from_u32(c.u32("cell_val_num")?).map_err(|e| e.at(offset).in_part("`cell_val_num`"))?;
    let ordered = c.bool("ordered")?;
    let size = c.u64("data")?;
    let data = c.skip(size, "data")?;
    let values = match cells {
        CellValNum::Fixed(n) => {
            if cells
                .cell_size(datatype)
                .is_some_and(|cell| !size.is_multiple_of(cell))
            {
                return Err(c.corrupt("data", format!("{size} bytes are not a whole number of values")));
            }
            ValueList::fixed(datatype, n, data)?
        }
        CellValNum::Var => {
            let bytes = c.u64("offsets")?;
            if bytes % 8 != 0 {
                return Err(c.corrupt(
                    "offsets",
                    format!("{bytes} bytes of offsets are not a multiple of 8"),
                ));
            }
            let starts = c.skip(bytes, "offsets")?;
            let list = ValueList::var(&body, datatype, starts.start, bytes / 8, data)?;
            list.check(&body).map_err(|e| e.in_part("`offsets`"))?;
            list
        }
    };
    c.finish()?;
    let mut before = Vec::new();
    let fields = [
        ("name", value::name(&name)),
        ("datatype", datatype.name().into()),
        ("cell_val_num", value::cell_val_num(cells)),
        ("ordered", ordered.into()),
    ];
    render::begin_object(&mut before, &fields, 0);
    before.push(b',');
    render::key(&mut before, "values", 1);
    let mut cutter = Cutter::new();
    cutter.part();
    values.cut(&body, &mut cutter)?;
    Ok(cutter.finish(Document {
        before,
        values,
        body: Box::new(body),
    }))
}

fn name(c: &mut BodyCursor<'_>, field: &str) -> Result<Vec<u8>> {
    let length = u64::from(c.u32(field)?);
    if length > MAX_NAME {
        return Err(
            Error::limit(format!("the name has {length} bytes, more than allowed"))
                .at(c.offset())
                .in_part(format_args!("`{field}`")),
        );
    }
    Ok(c.bytes(length, field)?.to_vec())
}

struct Document {
    before: Vec<u8>,
    values: ValueList,
    body: Box<dyn Bytes>,
}

impl Parts for Document {
    fn write(&self, _: usize, items: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        if items.start == 0 {
            out.extend_from_slice(&self.before);
        }
        self.values.write(&*self.body, items.clone(), 1, out)?;
        if items.end >= self.values.count() {
            out.extend_from_slice(b"\n}\n");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::enumeration::Enumeration;
    use crate::format::testing::{Bytes, check_hostile};
    use serde_json::Value;

    fn head(name: &str, datatype: Datatype, cells: u32) -> Bytes {
        let b = Bytes::default().u32(0).text32(name).text32("__0123_0");
        b.u8(datatype as u8).u32(cells).u8(1)
    }

    fn text(bytes: &[u8]) -> Result<String> {
        let document = enumeration_segments(bytes.to_vec())?;
        // What the other parser refuses is refused.
        Enumeration::parse(bytes).unwrap();
        Ok(String::from_utf8(document.render()?).unwrap())
    }

    #[test]
    fn values_are_typed() {
        let colours = head("colour", Datatype::StringUtf8, u32::MAX)
            .text64("redgrünblue")
            .count64(32)
            .u64s(&[0, 3, 8, 8]);
        assert_eq!(
            check_hostile(&colours, text),
            concat!(
                "{\n  \"name\": \"colour\",\n  \"datatype\": \"STRING_UTF8\",\n  \"cell_val_num\": \
                 \"var\",\n",
                "  \"ordered\": true,\n  \"values\": [\"red\", \"grün\", \"\", \"blue\"]\n}\n",
            )
        );
        let sizes = head("size", Datatype::Int16, 1).count64(4).raw(&[10, 0, 20, 0]);
        let json: Value = serde_json::from_str(&check_hostile(&sizes, text)).unwrap();
        assert_eq!(json["values"], serde_json::json!([10, 20]));
        let none = head("none", Datatype::StringUtf8, u32::MAX).count64(0).count64(0);
        let json: Value = serde_json::from_str(&check_hostile(&none, text)).unwrap();
        assert_eq!(json["values"], serde_json::json!([]));
    }
}
