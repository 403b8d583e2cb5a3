//! Attributes of variables by the CF conventions; attributes from the array's metadata.

use super::{Attributes, Naming, Value, Variable};
use crate::error::{Error, Result};
use crate::export::hdf5::Messages;
use crate::export::metadata::{MAX_ATTRIBUTE, in_own_type};
use crate::format::datatype::{Datatype, Kind};
use crate::format::field::Field;
use crate::names;
use crate::query::View;
use std::collections::HashMap;

/// The most bytes of the value of `flag_values` or `flag_meanings`: an attribute of HDF5 has 65,535 with its
/// header.
const MAX_VALUE: usize = 65_490;

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
pub(super) fn flags(view: &View, field: &Field, datatype: Datatype) -> Result<Attributes> {
    let Some(name) = &field.enumeration else {
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
        values.extend_from_slice(&index.to_le_bytes()[..size]);
        if index > 0 {
            meanings.push(' ');
        }
        meanings.push_str(&meaning(enumeration.datatype, label));
        if values.len().max(meanings.len()) > MAX_VALUE {
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

/// The attributes of a grid from the pairs of its array or group.
pub(in crate::export) fn of_pairs(pairs: &[(Vec<u8>, Value)], naming: Naming) -> Attributes {
    let keys = pairs.iter().map(|(key, _)| &**key);
    let values = pairs.iter().map(|(_, value)| value.clone());
    named(keys, naming).into_iter().zip(values).collect()
}

/// The keys of those pairs of an array or a group that are too long for an attribute of HDF5.
pub(in crate::export) fn too_long_for_hdf5(pairs: &[(Vec<u8>, Value)]) -> Vec<Vec<u8>> {
    if pairs.iter().all(|(_, value)| value.len() <= MAX_ATTRIBUTE) {
        return Vec::new();
    }
    let attributes = of_pairs(pairs, Naming::NetCdf);
    let too_long = pairs.iter().zip(&attributes);
    let too_long = too_long.filter(|(_, (name, value))| !Messages::fits(name, value));
    too_long.map(|((key, _), _)| key.clone()).collect()
}

/// The names of attributes with these keys.
fn named<'k>(keys: impl Iterator<Item = &'k [u8]>, naming: Naming) -> Vec<String> {
    let keys = keys.map(|key| naming.name(names::encode(key)));
    let mut keys = names::unique(keys.collect(), names::MAX);
    naming.unhide(&mut keys);
    keys
}

/// Adds the attributes of a field from the metadata to those that its variable has already. What is missing
/// is told by `_FillValue` of the metadata, if there is one.
pub(super) fn describe(variable: &mut Variable, metadata: &Attributes, naming: Naming) {
    let keys = metadata.iter().map(|(key, _)| key.as_bytes());
    // The names from the metadata are unique, and may be hundreds of thousands.
    let before = variable.attributes.iter().enumerate();
    let before: HashMap<String, usize> = before.map(|(place, (name, _))| (name.clone(), place)).collect();
    for (name, (key, value)) in named(keys, naming).into_iter().zip(metadata) {
        let before = before.get(&name).map(|place| &mut variable.attributes[*place].1);
        match (key.as_str(), value, before) {
            ("_FillValue", Value::Numbers(_, bytes), _) => variable.fill_value = Some(bytes.clone()),
            (_, Value::Text(theirs), Some(Value::Text(ours))) => *ours = joined(theirs, ours),
            (_, _, Some(_)) => {}
            (_, _, None) => {
                let value = match naming {
                    Naming::NetCdf => in_own_type(key, value, variable.datatype),
                    Naming::Zarr => value.clone(),
                };
                variable.attributes.push((name, value));
            }
        }
    }
}

/// The words of both lists, each once.
pub(super) fn joined(first: &str, second: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in first.split_whitespace().chain(second.split_whitespace()) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// Whether an attribute's values are packed by the metadata: readers make floats of them in any case.
pub(super) fn is_packed(metadata: &Attributes) -> bool {
    let packing = |(key, _): &(String, Value)| key == "scale_factor" || key == "add_offset";
    metadata.iter().any(packing)
}
