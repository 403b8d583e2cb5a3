//! Names of directories in `at/` and `subarray/`.

use std::fmt::Write;
use tiledbfs::Error;
use tiledbfs::internals::calendar::timestamp;
use tiledbfs::internals::catalog::time::TimeRange;
use tiledbfs::internals::cursor::Cursor;
use tiledbfs::internals::format::datatype::Kind;
use tiledbfs::internals::format::range::compare;
use tiledbfs::internals::format::schema::{Dimension, DimensionLabel, Schema};
use tiledbfs::internals::query::DimRange;
use tiledbfs::internals::tree::{ranges, times};

/// The length of a schema's body u16, that body, and a name. What a name stands for lies in the domain, and
/// written as numbers it is the same.
pub fn paths(data: &[u8]) {
    let mut c = Cursor::new(data);
    let Ok(length) = c.u16("length") else { return };
    let Ok(Ok(schema)) = c.bytes(u64::from(length), "schema").map(Schema::parse) else {
        return;
    };
    let name = c.rest();
    if let Some(Ok(range)) = std::str::from_utf8(name).ok().map(times::parse) {
        time(range);
    }
    let unlabelled = |_: &DimensionLabel, _: &DimRange| Err(Error::not_found("no labels"));
    if let Ok(Some(ranges)) = ranges::parse(name, &schema, unlabelled) {
        assert_eq!(ranges.len(), schema.dimensions.len());
        for (i, (range, dimension)) in ranges.iter().zip(&schema.dimensions).enumerate() {
            let allowed = schema.current_domain.as_ref().map(|rect| &rect[i]);
            let allowed = allowed.or(dimension.domain.as_ref());
            let lowest = allowed.map(|allowed| &allowed.lo);
            let highest = allowed.map(|allowed| &allowed.hi);
            let bounds = [lowest, range.lo.as_ref(), range.hi.as_ref(), highest];
            let bounds: Vec<_> = bounds.into_iter().flatten().collect();
            for two in bounds.windows(2) {
                let order = compare(dimension.datatype, dimension.cell_val_num, two[0], two[1]);
                assert!(
                    order.is_some_and(|order| order.is_le()),
                    "{two:?} of {dimension:?}"
                );
            }
        }
        let written = text_of(&ranges, &schema.dimensions);
        assert_eq!(
            ranges::parse(written.as_bytes(), &schema, unlabelled)
                .ok()
                .flatten(),
            Some(ranges),
            "{written}"
        );
    }
}

fn time(range: TimeRange) {
    let text = match range.end {
        u64::MAX => format!("{}..", timestamp(range.start)),
        end => format!("{}..{}", timestamp(range.start), timestamp(end)),
    };
    assert_eq!(times::parse(&text), Ok(range));
}

/// Ranges as the name of a subarray by position, in numbers.
pub fn text_of(ranges: &[DimRange], dimensions: &[Dimension]) -> String {
    let mut out = String::new();
    for (i, (range, dimension)) in ranges.iter().zip(dimensions).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let (lo, hi) = (
            text(range.lo.as_deref(), dimension),
            text(range.hi.as_deref(), dimension),
        );
        let _ = write!(out, "{comma}{lo}..{hi}");
    }
    out
}

fn text(bound: Option<&[u8]>, dimension: &Dimension) -> String {
    let Some(bound) = bound else { return String::new() };
    let mut wide = [0; 16];
    wide[..bound.len().min(16)].copy_from_slice(&bound[..bound.len().min(16)]);
    let number = i128::from_le_bytes(wide);
    match (dimension.datatype.kind(), bound.len()) {
        _ if dimension.cell_val_num.is_var() => bound.iter().map(|byte| format!("%{byte:02x}")).collect(),
        (Kind::Float, 4) => f32::from_bits(number as u32).to_string(),
        (Kind::Float, _) => f64::from_bits(number as u64).to_string(),
        (Kind::Unsigned, _) => number.to_string(),
        (_, size) => {
            let shift = 128 - 8 * size as u32;
            let number = number << shift >> shift;
            match dimension.datatype.kind() {
                // Four digits without a sign are a year.
                Kind::Datetime => format!("{number:+}"),
                _ => number.to_string(),
            }
        }
    }
}
