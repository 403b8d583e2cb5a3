//! Names of variables and of what is beside them.

use crate::names;
use std::collections::HashSet;
use unicode_normalization::UnicodeNormalization;

/// The names that a grid is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// Those of the directories of columns, but for `zarr.json`, which becomes `%7Aarr.json`. Text is left
    /// out.
    Zarr,
    /// Those of the directories of columns, as far as netCDF allows them: with `_` in front if the first
    /// character may not be first, in Unicode's composed form (NFC), control characters and a blank at the
    /// end percent-encoded.
    NetCdf,
}

impl Naming {
    /// `name`, a component of a path, as a format has it.
    pub(super) fn name(self, name: String) -> String {
        match self {
            Naming::Zarr if name == "zarr.json" => "%7Aarr.json".to_owned(),
            Naming::Zarr => name,
            Naming::NetCdf => names::within(&netcdf_name(&name), names::MAX),
        }
    }
}

fn netcdf_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    let mut out = if name.starts_with(plain) { "" } else { "_" }.to_owned();
    // The form in which netcdf-c looks for names, whatever is stored.
    for c in name.nfc() {
        match c.is_ascii_control() {
            true => out += &format!("%{:02X}", u32::from(c)),
            false => out.push(c),
        }
    }
    if out.ends_with(' ') {
        out.pop();
        out += "%20";
    }
    out
}

/// A unique name for something that belongs to `name`.
pub(super) fn made_up(name: &str, suffix: &str, taken: &mut HashSet<String>) -> String {
    let mut suffix = suffix.to_owned();
    loop {
        let room = names::MAX.saturating_sub(suffix.len());
        let made = names::within(name, room) + &suffix;
        if taken.insert(made.clone()) {
            return made;
        }
        suffix.push('_');
    }
}
