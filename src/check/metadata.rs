//! Checks the metadata files of an array or a group.

use super::commits::check_paths;
use super::{Checker, Kind};
use crate::catalog::commits::read_text;
use crate::catalog::listing::list_or_empty;
use crate::error::ErrorKind;
use crate::filter::EncryptionKey;
use crate::format::metadata::each_record;
use crate::format::name::TimestampedName;
use crate::fragment::generic_body::GenericFile;
use crate::storage::EntryType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Decodes every metadata file of the array or group at `path`, also those that a consolidation replaced.
pub(super) fn metadata_files(checker: &Checker, path: &Path, key: Option<&EncryptionKey>) {
    let directory = path.join("__meta");
    let entries = checker.take(list_or_empty(&checker.engine, &directory), &directory);
    for entry in entries.unwrap_or_default() {
        let file = directory.join(&entry.name);
        let name = entry.name.as_bytes();
        if entry.entry_type != EntryType::File || name.ends_with(b".tmp") {
            continue;
        }
        if TimestampedName::parse(name).is_err() {
            let message = "ignored: the name is not that of a metadata file";
            checker.report(checker.problem(Kind::Name, &file, message).noted());
        } else if name.ends_with(b".vac") {
            if let Some(text) = checker.take(read_text(&checker.engine, &file), &file) {
                check_paths(checker, &file, &text);
            }
        } else {
            let read = || {
                let body = GenericFile::open(&checker.engine, &file, key, true)?;
                each_record(&body, |_| Ok(()))
                    .and_then(|()| body.decode())
                    .map_err(|e| e.in_file(checker.show(&file)))
            };
            let result = read();
            let locked = result.as_ref().is_err_and(|e| e.kind() == ErrorKind::KeyRequired);
            checker.take(result, &file);
            if locked {
                // The other files need the same key.
                return;
            }
            checker.check_end(&file, key);
        }
    }
}
