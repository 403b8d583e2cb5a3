//! Names of variables and of the axes and variables that belong to them.

use crate::names;
use std::collections::HashSet;
use unicode_normalization::UnicodeNormalization;

/// The naming rules of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// The names of the columns' directories, except that `zarr.json` becomes `%7Aarr.json`, and `\`, which
    /// zarr-python takes for `/`, `%5C`. Leaves out text.
    Zarr,
    /// The names of the columns' directories, changed where netCDF does not allow them: `_` before a first
    /// character that may not be first, Unicode's composed form (NFC), control characters and a blank at the
    /// end percent-encoded.
    NetCdf,
}

impl Naming {
    /// The format's name for `name`, a path component.
    pub(in crate::export) fn name(self, name: String) -> String {
        match self {
            Naming::Zarr if name == "zarr.json" => "%7Aarr.json".to_owned(),
            Naming::Zarr => names::within(&name.replace('\\', "%5C"), names::MAX),
            Naming::NetCdf => names::within(&netcdf_name(&name), names::MAX),
        }
    }

    /// Appends `_` to names of attributes of the file that the format's readers hide, until they are unique.
    pub(super) fn unhide(self, keys: &mut [String]) {
        /// Attributes of HDF5's dimension scales, which netcdf-c shows nowhere.
        const HIDDEN: [&str; 4] = ["CLASS", "DIMENSION_LIST", "NAME", "REFERENCE_LIST"];
        if self != Naming::NetCdf {
            return;
        }
        let mut taken: HashSet<String> = keys.iter().cloned().collect();
        for key in keys.iter_mut().filter(|key| HIDDEN.contains(&key.as_str())) {
            *key = made_up(key, "_", &mut taken);
        }
    }
}

fn netcdf_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    let mut out = if name.starts_with(plain) { "" } else { "_" }.to_owned();
    // netcdf-c normalizes the names it looks up, but not those in the file.
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

/// A unique name, `name` and `suffix`, for something that belongs to `name`.
pub(in crate::export) fn made_up(name: &str, suffix: &str, taken: &mut HashSet<String>) -> String {
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
