//! Checks that commit files can be read, and that they agree with the fragments that exist.

use super::{Checker, Kind, Problem};
use crate::catalog::Array;
use crate::catalog::commits::{CommitFile, CommitKind, read_text};
use crate::catalog::listing::ArrayListing;
use crate::error::Result;
use crate::filter::generic::read_generic_tile;
use crate::format::MAX_VERSION;
use crate::format::commits::{last_component, listed_names, parse_consolidated};
use crate::format::condition::{Condition, Node};
use crate::format::enums::ConditionOp;
use crate::format::name::TimestampedName;
use crate::format::schema::Schema;
use crate::fragment::info::METADATA_FILE;
use crate::query::deletes;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Checks all commit files of an array. Returns the names of the committed fragments.
pub(super) fn check(
    checker: &Checker,
    array: &Array,
    listing: &ArrayListing,
    schemas: &[Arc<Schema>],
) -> HashSet<String> {
    let mut commits = Commits {
        checker,
        array,
        listing,
        schemas,
        ignored: HashSet::new(),
        markers: HashSet::new(),
    };
    for commit in &listing.commits {
        if commit.parsed.is_none() {
            let message = "ignored: the name is not that of a commit file";
            checker.report(checker.problem(Kind::Name, &commit.path(), message).noted());
        }
    }
    for commit in listing.commits.iter().filter(|c| c.kind == CommitKind::Ignore) {
        if let Some(text) = commits.text(commit) {
            check_paths(checker, &commit.path(), &text);
            commits.ignored.extend(listed_names(&text));
        }
    }
    for commit in &listing.commits {
        match commit.kind {
            CommitKind::Ignore => {}
            CommitKind::Ok | CommitKind::Write => commits.marker(commit.name.as_bytes(), &commit.path()),
            CommitKind::Vacuum => {
                if let Some(text) = commits.text(commit) {
                    check_paths(checker, &commit.path(), &text);
                }
            }
            CommitKind::Consolidated => commits.consolidated(commit),
            CommitKind::Delete | CommitKind::Update => {
                checker.take(commits.condition(commit), &commit.path());
            }
        }
    }
    let committed = |entry: &&crate::catalog::listing::FragmentEntry| {
        let path = &entry.fragment.path;
        let extension = if in_fragments(path) { "wrt" } else { "ok" };
        commits
            .markers
            .contains(format!("{}.{extension}", entry.name).as_bytes())
            || entry.fragment.name.name_version <= 4
                && checker.engine.storage.metadata(&path.join(METADATA_FILE)).is_ok()
    };
    let fragments = listing.fragments.iter().filter(committed);
    fragments.map(|entry| entry.name.clone()).collect()
}

/// Whether a fragment lies in `__fragments`, as it does from format version 12 on.
fn in_fragments(path: &Path) -> bool {
    path.parent()
        .is_some_and(|parent| parent.ends_with("__fragments"))
}

struct Commits<'a> {
    checker: &'a Checker,
    array: &'a Array,
    listing: &'a ArrayListing,
    schemas: &'a [Arc<Schema>],
    /// Names in ignore files: entries of consolidated commit files that no longer count.
    ignored: HashSet<Vec<u8>>,
    /// Names of the `.ok` and `.wrt` files, and of such entries in consolidated commit files.
    markers: HashSet<Vec<u8>>,
}

impl Commits<'_> {
    fn text(&self, commit: &CommitFile) -> Option<Vec<u8>> {
        self.checker
            .take(read_text(&self.checker.engine, &commit.path()), &commit.path())
    }

    /// Checks what commits a fragment: the file called `name`, or an entry of that name in the consolidated
    /// commit file at `path`.
    fn marker(&mut self, name: &[u8], path: &Path) {
        self.markers.insert(name.to_vec());
        let text = String::from_utf8_lossy(name);
        let (stem, extension) = text.rsplit_once('.').unwrap_or((&text, ""));
        let found = self
            .listing
            .fragment(stem)
            .is_some_and(|entry| in_fragments(&entry.fragment.path) == (extension == "wrt"));
        if found {
            return;
        }
        // Readers ignore a name that is not of TileDB's form, and the file was noted before.
        let Ok(parsed) = TimestampedName::parse(name) else {
            return;
        };
        let problem = |message: String| self.checker.problem(Kind::Commit, path, message);
        let version = parsed.name_version;
        self.checker.report(if extension == "ok" {
            let message = format!("commits fragment {stem}, which does not exist: readers do without it");
            problem(message).noted()
        } else if version > MAX_VERSION {
            problem(format!(
                "commits fragment {stem} of format version {version}, which is not supported"
            ))
        } else {
            problem(format!("commits fragment {stem}, which does not exist"))
        });
    }

    fn consolidated(&mut self, commit: &CommitFile) {
        let Some(text) = self.text(commit) else { return };
        let Some(entries) = self.checker.take(parse_consolidated(&text), &commit.path()) else {
            return;
        };
        for entry in entries {
            let name = last_component(&entry.path);
            match entry.payload {
                Some((offset, length)) => {
                    let result = self.embedded(&commit.path(), name, offset, length);
                    self.checker.take(result, &commit.path());
                }
                None if !self.ignored.contains(name) => self.marker(name, &commit.path()),
                None => {}
            }
        }
    }

    /// Decodes the copy of a delete or update file in a consolidated commit file.
    fn embedded(&self, path: &Path, name: &[u8], offset: u64, length: u64) -> Result<()> {
        let blob = self.checker.engine.storage.open(path)?;
        let (tile, body) = read_generic_tile(&*blob, offset, self.array.key.as_ref())?;
        if offset.checked_add(length) != Some(tile.data_end) {
            let message = format!(
                "the copy of {} does not end after the {length} bytes that are declared for it",
                name.escape_ascii()
            );
            let path = self.checker.show(path);
            self.checker
                .report(Problem::new(Kind::Commit, path, message).at(offset));
        }
        let parsed = deletes::parse(name, &body);
        let (condition, _) = parsed.map_err(|e| e.at(offset).in_file(blob.display()))?;
        self.check_condition(&condition, path);
        Ok(())
    }

    fn condition(&self, commit: &CommitFile) -> Result<()> {
        let path = commit.path();
        let (blob, body) = self.array.generic_file(&path)?;
        self.checker.check_end(&path, self.array.key.as_ref());
        let parsed = deletes::parse(commit.name.as_bytes(), &body);
        let (condition, _) = parsed.map_err(|e| e.in_file(blob.display()))?;
        self.check_condition(&condition, &path);
        Ok(())
    }

    /// Checks that the fields of a condition exist, and that its constants have the size of a cell.
    fn check_condition(&self, condition: &Condition, path: &Path) {
        for node in condition.nodes() {
            if let Node::Value { op, field, value, .. } = node {
                self.check_comparison(*op, field, value, path);
            }
        }
    }

    fn check_comparison(&self, op: ConditionOp, field: &[u8], value: &[u8], path: &Path) {
        let found = |message: String| {
            let name = String::from_utf8_lossy(field);
            let path = self.checker.show(path);
            Problem::new(Kind::Commit, path, message).in_part(format_args!("condition, field `{name}`"))
        };
        let mut sizes = self.schemas.iter().filter_map(|schema| {
            let attribute = schema.attribute(field).map(|a| a.cell_size());
            attribute.or_else(|| schema.dimension(field).map(|d| d.cell_size()))
        });
        let Some(size) = sizes.next() else {
            // This is legal: cells without the field fail the comparison.
            self.checker
                .report(found("no schema of the array has this field".into()).noted());
            return;
        };
        let list = matches!(op, ConditionOp::In | ConditionOp::NotIn);
        let constant = matches!(op, ConditionOp::AlwaysTrue | ConditionOp::AlwaysFalse);
        let all: Vec<u64> = size.into_iter().chain(sizes.flatten()).collect();
        // An empty constant means a null test.
        let Some(size) = size.filter(|_| !list && !constant && !value.is_empty()) else {
            return;
        };
        if !all.contains(&(value.len() as u64)) {
            let message = format!(
                "the constant has {} bytes, but a value of the field has {size}",
                value.len()
            );
            self.checker.report(found(message));
        }
    }
}

/// Checks that the lines of a vacuum or ignore file are paths of fragments, commits or metadata files.
pub(super) fn check_paths(checker: &Checker, file: &Path, text: &[u8]) {
    let problem = |message: String| checker.problem(Kind::Commit, file, message);
    if !text.is_empty() && text.last() != Some(&b'\n') {
        checker.report(
            problem("the last line is cut off: it does not end in a newline".into()).at(text.len() as u64),
        );
    }
    let mut next = 0;
    for line in text.split(|&b| b == b'\n') {
        let at = next;
        next += line.len() as u64 + 1;
        let path = line.strip_suffix(b"/").unwrap_or(line);
        if !line.is_empty() && TimestampedName::parse(path).is_err() {
            let line = String::from_utf8_lossy(line);
            checker.report(
                problem(format!(
                    "{line:?} is not the path of a fragment, commit or metadata file"
                ))
                .at(at),
            );
        }
    }
}
