//! Parses subarrays: the names of directories in `subarray/`.

use super::times::{self, DAY, SECOND, Span};
use crate::calendar::date_from_days;
use crate::error::Error;
use crate::format::datatype::{Datatype, Kind};
use crate::format::pipeline::Pipeline;
use crate::format::range::{Range, compare};
use crate::format::scalar::Scalar;
use crate::format::schema::{Dimension, DimensionLabel, Schema};
use crate::names;
use crate::query::DimRange;
use std::cmp::Ordering;

/// Parses a name in `subarray/`: a range for each dimension, like `1..31,0..5`, or ranges of named dimensions
/// or dimension labels, like `day:1..31` or `day=1..31`. Returns one range per dimension, in the schema's
/// order; None for the whole domain. `NotFound`, with the reason, if there is no such directory.
///
/// `labelled` tells which coordinates have the labels in a range. Missing bounds are open; those at an end of
/// the domain are not, because a sparse array may have cells outside of it.
pub fn parse(
    name: &[u8],
    schema: &Schema,
    labelled: impl Fn(&DimensionLabel, &DimRange) -> Result<DimRange, Error>,
) -> Result<Option<Vec<DimRange>>, Error> {
    let mut ranges = Vec::new();
    let asked = asked(name, schema).map_err(Error::not_found)?;
    for ((i, dimension), (label, text)) in schema.dimensions.iter().enumerate().zip(asked) {
        let current = schema.current_domain.as_ref().and_then(|rect| rect.get(i));
        let allowed = current.or(dimension.domain.as_ref());
        let refuse = |shown: String, reason: &str| Error::not_found(format!("{shown}: {reason}"));
        ranges.push(match label {
            None => {
                let shown = || names::dimension(&dimension.name, i);
                range(text, dimension, allowed).map_err(|reason| refuse(shown(), &reason))?
            }
            Some(label) => {
                let shown = || names::encode(&label.name);
                let wanted = range(text, &as_dimension(label), None);
                let wanted = wanted.map_err(|reason| refuse(shown(), &reason))?;
                let found = match wanted == DimRange::default() {
                    true => wanted,
                    false => labelled(label, &wanted).map_err(|error| match error.is_of_a_name() {
                        true => refuse(shown(), error.message()),
                        false => error,
                    })?,
                };
                let bounds = [&found.lo, &found.hi];
                if bounds
                    .into_iter()
                    .flatten()
                    .any(|bound| is_outside(bound, dimension, allowed))
                {
                    return Err(refuse(
                        shown(),
                        "some of these labels are outside of the current domain",
                    ));
                }
                found
            }
        });
    }
    let all = ranges.iter().all(|range| *range == DimRange::default());
    Ok(if all { None } else { Some(ranges) })
}

/// A dimension whose coordinates are the labels.
fn as_dimension(label: &DimensionLabel) -> Dimension {
    Dimension {
        name: label.name.clone(),
        datatype: label.datatype,
        cell_val_num: label.cell_val_num,
        filters: Pipeline::default(),
        domain: None,
        tile_extent: None,
    }
}

/// What a name asks for of a dimension: the range's text, still encoded, and the label whose range it is.
type Asked<'a> = (Option<&'a DimensionLabel>, &'a [u8]);

/// What a name asks for of each dimension; the text is empty for dimensions that are not named.
fn asked<'a>(name: &'a [u8], schema: &'a Schema) -> Result<Vec<Asked<'a>>, String> {
    let wanted = schema.dimensions.len();
    let parts = name
        .split(|&b| b == b',')
        .map(|part| Ok((named(part, schema)?, part)));
    let parts = parts.collect::<Result<Vec<_>, String>>()?;
    if parts.iter().all(|(named, _)| named.is_none()) {
        return match parts.len() {
            given if given == wanted => Ok(parts.into_iter().map(|(_, part)| (None, part)).collect()),
            given => Err(format!(
                "{}found {given} ranges, expected one for each of the {wanted} dimensions",
                unknown(parts.iter().map(|(_, part)| *part)).unwrap_or_default()
            )),
        };
    }
    let mut texts = vec![None; wanted];
    for (named, part) in parts {
        let shown = String::from_utf8_lossy(part);
        let Some((index, asked)) = named else {
            return Err(unknown([part]).unwrap_or_default()
                + &format!("{shown:?} names no dimension, but other ranges do"));
        };
        match texts.get_mut(index) {
            Some(slot @ None) => *slot = Some(asked),
            _ => return Err(format!("{shown:?} is the second range of its dimension")),
        }
    }
    Ok(texts
        .into_iter()
        .map(|asked| asked.unwrap_or((None, b"")))
        .collect())
}

/// The index of the dimension that a part names before its first `:` or `=`, by its own name or that of a
/// label, and what it asks for. None if it names no dimension, so that it may be the range of an unnamed one.
fn named<'a>(part: &'a [u8], schema: &'a Schema) -> Result<Option<(usize, Asked<'a>)>, String> {
    let Some((name, text)) = split_name(part) else {
        return Ok(None);
    };
    if let Some(index) = index_of(name, schema)? {
        return Ok(Some((index, (None, text))));
    }
    let own = decode(name)?;
    let mut labels = schema.dimension_labels.iter();
    let label = labels.find(|label| label.name == own || names::encode(&label.name).as_bytes() == name);
    Ok(label.map(|label| (label.dimension_index as usize, (Some(label), text))))
}

/// What is before and after the first `:` or `=`.
fn split_name(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = part.iter().position(|byte| b":=".contains(byte))?;
    Some((part.get(..at)?, part.get(at + 1..)?))
}

/// A note that the first of `parts` which looks like a named range names no dimension.
fn unknown<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let (name, _) = parts.into_iter().find_map(split_name)?;
    Some(format!(
        "there is no dimension or label {:?}; ",
        String::from_utf8_lossy(name)
    ))
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
            let wanted = match datatype.kind() {
                Kind::Datetime => "a date, nor a stored integer",
                _ => "an integer",
            };
            integer(text, end, datatype, allowed)
                .ok_or_else(|| format!("is not {wanted} of {}", datatype.name()))?
        }
        Kind::Bool | Kind::Text | Kind::Bytes => {
            return Err(format!("cannot be the end of a range of {}", datatype.name()));
        }
    };
    match is_outside(&bytes, dimension, allowed) {
        true => Err("exceeds the domain".to_string()),
        false => Ok(bytes),
    }
}

/// Whether a coordinate is not within `allowed`.
fn is_outside(bound: &[u8], dimension: &Dimension, allowed: Option<&Range>) -> bool {
    allowed.is_some_and(|Range { lo, hi }| above(dimension, lo, bound) || above(dimension, bound, hi))
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

/// Parses an integer, or for datetimes also an ISO 8601 date; there, four digits are a year. None if it does
/// not fit the datatype. Missing parts of a date are chosen within `allowed`, if possible.
fn integer(text: &[u8], end: End, datatype: Datatype, allowed: Option<&Range>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let (least, most) = match allowed {
        Some(Range { lo, hi }) => (number(datatype, lo)?, number(datatype, hi)?),
        // All dates; the least number is none (NaT).
        None => (i128::from(i64::MIN) + 1, i64::MAX.into()),
    };
    let may_be_date = datatype.kind() == Kind::Datetime;
    let (first, last) = match may_be_date && times::number(text).is_none() {
        true => in_units(Span::parse(text)?, datatype)?,
        false => text.parse::<i128>().map(|number| (number, number)).ok()?,
    };
    let bound = match end {
        End::Lower if last >= least => first.max(least),
        End::Lower => first,
        End::Upper if first <= most => last.min(most),
        End::Upper => last,
    };
    let bytes = bound.to_le_bytes().get(..datatype.size())?.to_vec();
    (number(datatype, &bytes) == Some(bound)).then_some(bytes)
}

/// The integer in `bytes`, which are little-endian.
fn number(datatype: Datatype, bytes: &[u8]) -> Option<i128> {
    Scalar::read(datatype, bytes)?.integer()
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
