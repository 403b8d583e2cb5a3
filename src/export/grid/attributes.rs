//! Attributes of variables by the CF conventions; attributes of the file from the array's metadata.

use super::values::convert;
use super::{Attributes, Naming, Value};
use crate::array::generic_body::GenericFile;
use crate::error::{Error, Result};
use crate::format::body::Body;
use crate::format::datatype::{Datatype, Kind};
use crate::format::metadata::each_record;
use crate::format::schema::Attribute;
use crate::names;
use crate::view::View;
use std::collections::BTreeMap;

/// The most bytes of an attribute's value.
pub const MAX_METADATA: u64 = 65_535;

/// The most bytes of memory for the attributes from metadata.
const MAX_MEMORY: usize = 32 << 20;

/// `units` and `calendar` of the CF conventions for a type; empty if CF has no such unit.
pub(super) fn units(datatype: Datatype) -> Attributes {
    let unit = match datatype {
        Datatype::DatetimeYear | Datatype::DatetimeMonth | Datatype::DatetimeWeek | Datatype::DatetimeDay => {
            "days"
        }
        Datatype::DatetimeHr => "hours",
        Datatype::DatetimeMin => "minutes",
        Datatype::DatetimeSec => "seconds",
        Datatype::DatetimeMs => "milliseconds",
        Datatype::DatetimeUs => "microseconds",
        Datatype::DatetimeNs => "nanoseconds",
        _ => return Attributes::new(),
    };
    let text = |name: &str, value: String| (name.to_owned(), Value::Text(value));
    vec![
        text("units", format!("{unit} since 1970-01-01")),
        text("calendar", "proleptic_gregorian".to_owned()),
    ]
}

/// `flag_values` and `flag_meanings` of an attribute whose enumeration has labels of text. Empty if the
/// labels do not fit into an attribute.
pub(super) fn flags(view: &View, attribute: &Attribute, datatype: Datatype) -> Result<Attributes> {
    let Some(name) = &attribute.enumeration else {
        return Ok(Attributes::new());
    };
    let array = view.array();
    let Some(enumeration) = view.schema().enumeration_file(name) else {
        let message = "the schema lacks the enumeration of an attribute";
        let file = array.engine.storage.display(&array.path);
        return Err(Error::corrupt(message).at(0).in_file(file));
    };
    let enumeration = array.enumeration(enumeration)?;
    let size = datatype.size();
    let integral = matches!(datatype.kind(), Kind::Signed | Kind::Unsigned);
    if enumeration.datatype.kind() != Kind::Text || !integral {
        return Ok(Attributes::new());
    }
    let bits = size * 8 - usize::from(datatype.kind() == Kind::Signed);
    let most = 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
    let (mut values, mut meanings) = (Vec::new(), String::new());
    for (index, label) in (0..most).zip(enumeration.values()) {
        values.extend_from_slice(index.to_le_bytes().get(..size).unwrap_or_default());
        if index > 0 {
            meanings.push(' ');
        }
        meanings.push_str(&meaning(enumeration.datatype, label));
        if values.len().max(meanings.len()) as u64 > MAX_METADATA {
            return Ok(Attributes::new());
        }
    }
    Ok(match values.is_empty() {
        true => Attributes::new(),
        false => vec![
            ("flag_values".to_owned(), Value::Numbers(datatype, values)),
            ("flag_meanings".to_owned(), Value::Text(meanings)),
        ],
    })
}

/// A label as a word of `flag_meanings`: never empty, and with `_` in place of each run of blanks.
pub(super) fn meaning(datatype: Datatype, label: &[u8]) -> String {
    let text = datatype.text(label);
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(label).into_owned());
    let mut word = String::new();
    let mut blanks = true;
    for c in text.trim_end_matches('\0').chars() {
        if !c.is_whitespace() {
            word.push(c);
        } else if !blanks || word.is_empty() {
            word.push('_');
        }
        blanks = c.is_whitespace();
    }
    if word.is_empty() {
        word.push('_');
    }
    word
}

/// The pairs of the array's metadata that a grid has.
pub(super) fn metadata(view: &View, naming: Naming) -> Result<Attributes> {
    /// Estimated overhead of a pair in memory, bytes.
    const PAIR_MEMORY: usize = 96;
    let array = view.array();
    let mut pairs: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    let mut memory = 0usize;
    for file in view.snapshot().metadata() {
        let path = array.engine.storage.display(&file.path);
        let body = GenericFile::open(&array.engine, &file.path, array.key.as_ref(), true)?;
        let replay = each_record(&body, |record| {
            let mut bytes = Vec::new();
            let value = match record.value {
                Some((datatype, _, data)) if data.end.saturating_sub(data.start) <= MAX_METADATA => {
                    body.read(data, &mut bytes)?;
                    metadata_value(datatype, bytes)
                }
                _ => None,
            };
            let size = |key: &[u8], value: &Value| PAIR_MEMORY + key.len() + value.len();
            if let Some(before) = pairs.remove(&record.key) {
                memory = memory.saturating_sub(size(&record.key, &before));
            }
            if let Some(value) = value.filter(|_| !record.key.starts_with(b"_")) {
                memory = memory.saturating_add(size(&record.key, &value));
                pairs.insert(record.key, value);
            }
            match memory > MAX_MEMORY {
                true => Err(Error::limit(format!(
                    "the metadata takes more than the {MAX_MEMORY} bytes of memory allowed"
                ))),
                false => Ok(()),
            }
        });
        replay.map_err(|e| e.at(0).in_part("metadata").in_file(path))?;
    }
    let (keys, values): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let keys = keys.iter().map(|key| naming.name(names::encode(key)));
    let mut keys = names::unique(keys.collect(), names::MAX);
    naming.unhide(&mut keys);
    Ok(keys.into_iter().zip(values).collect())
}

/// A value of metadata; None for empty ones, for blobs, and for invalid text.
pub(super) fn metadata_value(datatype: Datatype, mut bytes: Vec<u8>) -> Option<Value> {
    let datatype = match datatype.kind() {
        Kind::Text => return datatype.text(&bytes).map(Value::Text),
        Kind::Bytes => return None,
        Kind::Datetime | Kind::Time => Datatype::Int64,
        _ => datatype,
    };
    convert(None, datatype, &mut bytes);
    (!bytes.is_empty()).then_some(Value::Numbers(datatype, bytes))
}
