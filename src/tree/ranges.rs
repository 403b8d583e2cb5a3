//! Parses subarrays: the names of directories in `subarray/`.

use super::times::{DAY, SECOND, Span};
use crate::calendar::date_from_days;
use crate::format::datatype::{Datatype, Kind};
use crate::format::enums::ArrayType;
use crate::format::range::{Range, compare};
use crate::format::schema::{Dimension, Schema};
use crate::names;
use crate::view::DimRange;
use std::cmp::Ordering;

/// Parses a name in `subarray/`. Returns one range per dimension, in the schema's order; None for the whole
/// domain. The error is the reason why there is no such directory.
///
/// Missing bounds are open. In sparse arrays, bounds that exclude nothing become open as well, so that equal
/// selections have equal results.
pub fn parse(name: &[u8], schema: &Schema) -> Result<Option<Vec<DimRange>>, String> {
    let mut ranges = Vec::new();
    for ((i, dimension), text) in schema.dimensions.iter().enumerate().zip(texts(name, schema)?) {
        let current = schema.current_domain.as_ref().and_then(|rect| rect.get(i));
        let allowed = current.or(dimension.domain.as_ref());
        let range = range(text, dimension, allowed)
            .map_err(|reason| format!("{}: {reason}", names::dimension(&dimension.name, i)))?;
        ranges.push(match schema.array_type {
            ArrayType::Dense => range,
            ArrayType::Sparse => opened(range, dimension, allowed),
        });
    }
    let all = ranges.iter().all(|range| *range == DimRange::default());
    Ok(if all { None } else { Some(ranges) })
}

/// The text of each dimension's range, still encoded; empty for dimensions that are not named.
fn texts<'a>(name: &'a [u8], schema: &Schema) -> Result<Vec<&'a [u8]>, String> {
    let parts = name.split(|&b| b == b',');
    let wanted = schema.dimensions.len();
    if !name.contains(&b'=') {
        let texts: Vec<_> = parts.collect();
        return match texts.len() {
            given if given == wanted => Ok(texts),
            given => Err(format!(
                "found {given} ranges, expected one for each of the {wanted} dimensions"
            )),
        };
    }
    let mut texts = vec![None; wanted];
    for part in parts {
        let shown = String::from_utf8_lossy(part);
        let (name, text) =
            split(part, b"=").ok_or_else(|| format!("{shown:?} names no dimension, but other ranges do"))?;
        match index_of(name, schema)?.and_then(|i| texts.get_mut(i)) {
            Some(slot @ None) => *slot = Some(text),
            Some(_) => return Err(format!("{shown:?} is the second range of its dimension")),
            None => {
                return Err(format!(
                    "{shown:?} names a dimension that the array does not have"
                ));
            }
        }
    }
    Ok(texts.into_iter().map(Option::unwrap_or_default).collect())
}

/// The dimension with this encoded name, its own or that of its directory in `columns/`; None if missing.
fn index_of(name: &[u8], schema: &Schema) -> Result<Option<usize>, String> {
    let own = decode(name)?;
    if let Some(index) = schema.dimension_index(&own).filter(|_| !own.is_empty()) {
        return Ok(Some(index));
    }
    let mut dimensions = schema.dimensions.iter().enumerate();
    Ok(dimensions.position(|(i, d)| names::dimension(&d.name, i).as_bytes() == name))
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Lower,
    Upper,
}

/// Parses a range. Fails unless it is within `allowed` and not empty.
fn range(text: &[u8], dimension: &Dimension, allowed: Option<&Range>) -> Result<DimRange, String> {
    let (from, to) = split(text, b"..").unwrap_or((text, text));
    let bound = |text: &[u8], end| match text {
        b"" => Ok(None),
        text => match bound(&decode(text)?, end, dimension, allowed) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(reason) => Err(format!("{:?} {reason}", String::from_utf8_lossy(text))),
        },
    };
    let range = DimRange {
        lo: bound(from, End::Lower)?,
        hi: bound(to, End::Upper)?,
    };
    match (&range.lo, &range.hi) {
        (Some(lo), Some(hi)) if above(dimension, lo, hi) => Err(format!(
            "{:?} is empty: its lower end is above its upper end",
            String::from_utf8_lossy(text)
        )),
        _ => Ok(range),
    }
}

/// Parses a bound into its stored bytes (little-endian). The error is a predicate about the text.
fn bound(text: &[u8], end: End, dimension: &Dimension, allowed: Option<&Range>) -> Result<Vec<u8>, String> {
    let datatype = dimension.datatype;
    let bytes = match datatype.kind() {
        _ if dimension.cell_val_num.is_var() => text.to_vec(),
        Kind::Float => float(text, datatype).ok_or("is not a number")?,
        Kind::Signed | Kind::Unsigned | Kind::Datetime | Kind::Time => {
            integer(text, end, datatype, allowed).ok_or("is not a coordinate")?
        }
        Kind::Bool | Kind::Text | Kind::Bytes => {
            return Err(format!("cannot be the end of a range of {}", datatype.name()));
        }
    };
    match allowed {
        Some(Range { lo, hi }) if above(dimension, lo, &bytes) || above(dimension, &bytes, hi) => {
            Err("exceeds the domain".to_string())
        }
        _ => Ok(bytes),
    }
}

/// Whether coordinate `a` is above `b`.
fn above(dimension: &Dimension, a: &[u8], b: &[u8]) -> bool {
    compare(dimension.datatype, dimension.cell_val_num, a, b) == Some(Ordering::Greater)
}

/// Parses a number; None for NaN. Negative zero becomes zero, which is the same bound.
fn float(text: &[u8], datatype: Datatype) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    match datatype.size() {
        4 => {
            let number: f32 = text.parse().ok().filter(|number: &f32| !number.is_nan())?;
            Some((number + 0.0).to_le_bytes().to_vec())
        }
        _ => {
            let number: f64 = text.parse().ok().filter(|number: &f64| !number.is_nan())?;
            Some((number + 0.0).to_le_bytes().to_vec())
        }
    }
}

/// Parses an integer, or for datetimes also an ISO 8601 date. None if it does not fit the datatype. Missing
/// parts of a date are chosen within `allowed`, if possible.
fn integer(text: &[u8], end: End, datatype: Datatype, allowed: Option<&Range>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (least, most) = match allowed {
        Some(Range { lo, hi }) => (number(datatype, lo), number(datatype, hi)),
        None => (i128::MIN, i128::MAX),
    };
    let (first, last) = match text.parse::<i128>() {
        Ok(number) => (number, number),
        Err(_) => in_units(Span::parse(text)?, datatype)?,
    };
    let bound = match end {
        End::Lower if last >= least => first.max(least),
        End::Lower => first,
        End::Upper if first <= most => last.min(most),
        End::Upper => last,
    };
    let bytes = bound.to_le_bytes().get(..datatype.size())?.to_vec();
    (number(datatype, &bytes) == bound).then_some(bytes)
}

/// The number in `bytes`, which are little-endian and signed unless the datatype is unsigned.
fn number(datatype: Datatype, bytes: &[u8]) -> i128 {
    let negative = datatype.kind() != Kind::Unsigned && bytes.last().is_some_and(|&b| b >= 0x80);
    let mut wide = if negative { [0xFF; 16] } else { [0; 16] };
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    i128::from_le_bytes(wide)
}

/// The first and last coordinate of a datetime dimension within `span`. None for other datatypes.
fn in_units(span: Span, datatype: Datatype) -> Option<(i128, i128)> {
    Some((floor(span.first - 1, datatype)? + 1, floor(span.last, datatype)?))
}

/// The last coordinate of a datetime dimension not after `instant`, in attoseconds since the Unix epoch.
fn floor(instant: i128, datatype: Datatype) -> Option<i128> {
    let unit = match datatype {
        Datatype::DatetimeYear | Datatype::DatetimeMonth => {
            let (year, month, _) = date_from_days(i64::try_from(instant.div_euclid(DAY)).ok()?);
            let years = i128::from(year) - 1970;
            let months = i128::from(month) - 1;
            return Some(if datatype == Datatype::DatetimeYear {
                years
            } else {
                years * 12 + months
            });
        }
        Datatype::DatetimeWeek => 7 * DAY,
        Datatype::DatetimeDay => DAY,
        Datatype::DatetimeHr => DAY / 24,
        Datatype::DatetimeMin => DAY / 1440,
        Datatype::DatetimeSec => SECOND,
        Datatype::DatetimeMs => SECOND / 1000,
        Datatype::DatetimeUs => SECOND / 1_000_000,
        Datatype::DatetimeNs => SECOND / 1_000_000_000,
        Datatype::DatetimePs => SECOND / 1_000_000_000_000,
        Datatype::DatetimeFs => SECOND / 1_000_000_000_000_000,
        Datatype::DatetimeAs => 1,
        _ => return None,
    };
    Some(instant.div_euclid(unit))
}

/// Opens the bounds of a range that exclude nothing.
fn opened(range: DimRange, dimension: &Dimension, allowed: Option<&Range>) -> DimRange {
    let Some(allowed) = allowed else { return range };
    DimRange {
        lo: range.lo.filter(|lo| above(dimension, lo, &allowed.lo)),
        hi: range.hi.filter(|hi| above(dimension, &allowed.hi, hi)),
    }
}

/// Splits at the first `separator`; None if there is none.
fn split<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text
        .windows(separator.len())
        .position(|bytes| bytes == separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

/// Decodes percent-encoding.
fn decode(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(*bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            let shown = String::from_utf8_lossy(text);
            return Err(format!("{shown:?} has a % without two hexadecimal digits"));
        };
        out.push((high * 16 + low) as u8);
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
