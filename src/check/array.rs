//! Checks an array: its schemas, enumerations, labels and metadata. Makes jobs for its fragments.

use super::metadata::metadata_files;
use super::queue::Job;
use super::{Checker, Kind, Level, Problem, commits, consolidated, fragment};
use crate::catalog::Array;
use crate::catalog::listing::{ENUMERATIONS, list_or_empty, whole_name};
use crate::error::ErrorKind;
use crate::format::schema::Schema;
use crate::fragment::schemas::{LEGACY_SCHEMA, SCHEMA_DIRECTORY};
use crate::query::View;
use crate::storage::EntryType;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checks the array at `path`. `children` makes the jobs for the subdirectories of a directory.
pub(super) fn check(checker: &Checker, path: PathBuf, children: impl Fn(&Path) -> Vec<Job>) {
    checker.tally.arrays.add(1);
    let array = Arc::new(Array::new(checker.engine.clone(), path));
    let Some(listing) = checker.take(array.listing(), &array.path) else {
        return;
    };
    let (mut schemas, mut unreadable) = (Vec::new(), Vec::new());
    for file in &listing.schemas {
        let path = array.schemas.path(&file.name);
        match array.schemas.get(&file.name) {
            Ok(schema) => schemas.push(schema),
            Err(e) => {
                let mut problem = Problem::from_error(&e, checker.show(&path));
                if file.name == LEGACY_SCHEMA && array.schemas.are_of_predecessor() {
                    problem.level = Level::Unchecked;
                }
                unreadable.push(problem);
            }
        }
        checker.check_end(&path, array.key.as_ref());
    }
    // An array without its key, or of TileDB's unnumbered predecessor formats, is one finding. Every other
    // file would give the same one again.
    let unchecked = |problem: &Problem| problem.level == Level::Unchecked;
    if schemas.is_empty()
        && unreadable.iter().all(unchecked)
        && let Some(first) = unreadable.pop()
    {
        checker.report(first);
        return;
    }
    unreadable.into_iter().for_each(|problem| checker.report(problem));
    if listing.schemas.is_empty() {
        let path = array.path.join(SCHEMA_DIRECTORY);
        checker.report(checker.problem(Kind::Schema, &path, "the array has no schema"));
    }
    check_schema_names(checker, &array.path);
    check_enumerations(checker, &array, &schemas);
    metadata_files(checker, &array.path, array.key.as_ref());

    let committed = commits::check(checker, &array, &listing, &schemas);
    let mut jobs: Vec<Job> = listing
        .consolidated_metadata
        .iter()
        .map(|file| {
            let (array, file) = (array.clone(), file.clone());
            Box::new(move |checker: &Checker| consolidated::check(checker, &array, &file)) as Job
        })
        .collect();
    for entry in &listing.fragments {
        let directory = &entry.fragment.path;
        if committed.contains(&entry.name) {
            jobs.push(fragment::job(array.clone(), entry.fragment.clone()));
        } else {
            let message = "the fragment is not committed: readers do not see it, and it is not checked";
            checker.report(checker.problem(Kind::Commit, directory, message).noted());
        }
    }
    check_labels(checker, &array, &schemas);
    check_fields(checker, &array);
    jobs.extend(children(&array.path.join("__labels")));
    checker.queue.push(jobs);
}

/// Notes what the directory of schemas has beside them: readers here ignore it, while libtiledb fails.
fn check_schema_names(checker: &Checker, array: &Path) {
    let directory = array.join(SCHEMA_DIRECTORY);
    let entries = checker.take(list_or_empty(&checker.engine, &directory), &directory);
    for entry in entries.unwrap_or_default() {
        let is_known =
            entry.name == ENUMERATIONS || entry.name.to_str().is_some_and(|name| whole_name(name).is_ok());
        if !is_known {
            let message = "ignored: the name is not that of a schema; libtiledb does not open the array";
            checker.report(
                checker
                    .problem(Kind::Name, &directory.join(&entry.name), message)
                    .noted(),
            );
        }
    }
}

/// Looks for fields that no reader can read in the present state. A note: what is stored is sound, and older
/// states can be read. What else keeps readers from it is found by other checks.
fn check_fields(checker: &Checker, array: &Arc<Array>) {
    let Ok(view) = View::new(array.clone(), None, None) else {
        return;
    };
    for (index, field) in view.fields().iter().enumerate() {
        if let Ok(Some(reason)) = view.unreadable(index) {
            let message = format!(
                "attribute `{}` cannot be read in the present state: {reason} than the schema in force",
                String::from_utf8_lossy(&field.name)
            );
            checker.report(checker.problem(Kind::Schema, &array.path, message).noted());
        }
    }
}

/// Checks all enumeration files: those that the schemas name, and any others.
fn check_enumerations(checker: &Checker, array: &Array, schemas: &[Arc<Schema>]) {
    // By file name: the enumeration's name in the schemas; None if no schema names the file.
    let mut files: BTreeMap<Vec<u8>, Option<&[u8]>> = BTreeMap::new();
    let directory = array.path.join(SCHEMA_DIRECTORY).join(ENUMERATIONS);
    for entry in checker
        .take(list_or_empty(&checker.engine, &directory), &directory)
        .unwrap_or_default()
    {
        if entry.entry_type == EntryType::File {
            files.insert(entry.name.as_bytes().to_vec(), None);
        }
    }
    for schema in schemas {
        for reference in &schema.enumerations {
            files.insert(reference.file.clone(), Some(&reference.name));
        }
        for attribute in &schema.attributes {
            if let Some(name) = &attribute.enumeration
                && schema.enumeration_file(name).is_none()
            {
                let message = format!(
                    "attribute `{}` uses enumeration `{}`, which the schema does not define",
                    String::from_utf8_lossy(&attribute.name),
                    String::from_utf8_lossy(name)
                );
                let path = array.path.join(SCHEMA_DIRECTORY);
                checker.report(checker.problem(Kind::Schema, &path, message));
            }
        }
    }
    for (file, name) in files {
        let path = directory.join(OsStr::from_bytes(&file));
        let Some(enumeration) = checker.take(array.enumeration(&file), &path) else {
            continue;
        };
        checker.check_end(&path, array.key.as_ref());
        if name.is_some_and(|name| name != enumeration.name) || enumeration.file != file {
            let message = format!(
                "by its content this is enumeration `{}` in a file named {}",
                String::from_utf8_lossy(&enumeration.name),
                String::from_utf8_lossy(&enumeration.file)
            );
            checker.report(checker.problem(Kind::Enumeration, &path, message));
        }
    }
}

/// Checks that the arrays of the dimension labels exist.
fn check_labels(checker: &Checker, array: &Array, schemas: &[Arc<Schema>]) {
    let named = schemas.iter().flat_map(|schema| &schema.dimension_labels);
    for label in named.filter(|label| label.relative && !label.external) {
        let uri = Path::new(OsStr::from_bytes(&label.uri));
        let path = array.path.join(uri.strip_prefix("/").unwrap_or(uri));
        if let Err(e) = checker.engine.storage.metadata(&path)
            && e.kind() == ErrorKind::NotFound
        {
            let name = String::from_utf8_lossy(&label.name);
            let problem = checker.problem(Kind::Schema, &path, "the array of the dimension label is missing");
            checker.report(problem.in_part(format_args!("label `{name}`")));
        }
    }
}
