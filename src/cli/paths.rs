//! Resolves the SOURCE and PATH arguments of a command line.
//!
//! SOURCE is a local directory or a URL, PATH a path in its tree. Both may be one argument; then SOURCE is
//! the part that exists locally, or below which there are keys. `.` and `..` are resolved by name. A name
//! with `*`, `?` or `[` that does not exist literally is a pattern.

use super::output::{Failures, Stop};
use super::source::{OpenOptions, check_source, open_tree, open_within, or_here, pattern};
use super::{Failure, show_path};
use crate::error::ErrorKind;
use crate::export::anndata::named;
use crate::storage::location::Location;
use crate::tree::node::follow;
use crate::tree::{Node, Tree, is_object};
use glob::MatchOptions;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// As in a shell, patterns do not match a leading dot.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The path of an argument that may be a `file://` URI.
fn local_path(argument: &Path) -> &Path {
    // As in TileDB, the path is not percent-encoded.
    match argument.as_os_str().as_bytes().strip_prefix(b"file://") {
        Some(path) => Path::new(OsStr::from_bytes(path)),
        None => argument,
    }
}

/// A source and the requested paths in its tree.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// SOURCE.
    source: PathBuf,
    /// Whether messages show paths with SOURCE in front.
    shown: bool,
    /// The components of each PATH, some of which may be patterns.
    paths: Vec<Vec<OsString>>,
    /// Whether SOURCE is a URL that may include components of a PATH.
    beyond: bool,
}

/// The requests of SOURCE and PATHs; without PATHs, for SOURCE itself. If SOURCE includes a path, every PATH
/// includes its source as well. Fails if a PATH leads out of SOURCE.
fn requests(source: &OsStr, paths: &[OsString]) -> Result<Vec<Request>, Failure> {
    let is_url = |argument: &OsStr| Location::is_remote(argument);
    if !is_url(source) {
        // What looks like a URL of another kind is no path of a tree.
        Location::parse(source).map_err(|error| Failure::new(error.to_string()))?;
    }
    // URLs are split when they are opened.
    let beyond = is_url(source) && paths.iter().all(|path| is_url(path));
    let (at, names) = match is_url(source) {
        true => (source.into(), Vec::new()),
        false => split(source),
    };
    if beyond {
        let all = iter::once(source).chain(paths.iter().map(OsString::as_os_str));
        let request = |argument: &OsStr| Request {
            source: argument.into(),
            shown: false,
            paths: vec![Vec::new()],
            beyond,
        };
        return Ok(all.map(request).collect());
    }
    if names.is_empty() {
        let paths: Result<Vec<_>, _> = paths.iter().map(|path| names_of(path)).collect();
        let paths = Some(paths?).filter(|paths| !paths.is_empty());
        return Ok(vec![Request {
            source: at,
            shown: false,
            paths: paths.unwrap_or_else(|| vec![names]),
            beyond,
        }]);
    }
    let mut requests: Vec<Request> = Vec::new();
    for argument in iter::once(source).chain(paths.iter().map(OsString::as_os_str)) {
        let (at, names) = split(argument);
        match requests.last_mut().filter(|request| request.source == at) {
            Some(request) => request.paths.push(names),
            None => requests.push(Request {
                source: at,
                shown: true,
                paths: vec![names],
                beyond,
            }),
        }
    }
    Ok(requests)
}

/// A node that was requested.
pub struct Found<'a> {
    /// SOURCE as a canonical path, or a URL.
    pub source: &'a Path,
    /// Its path, as messages show it.
    pub path: &'a OsStr,
    /// SOURCE as it was given, if the path begins with it; empty if not.
    pub above: &'a OsStr,
    /// Its name in the tree; None for SOURCE itself.
    pub name: Option<&'a OsStr>,
    /// The node.
    pub node: Node,
}

impl Found<'_> {
    /// What messages call it.
    pub fn shown(&self) -> &OsStr {
        match self.path.is_empty() {
            true => self.source.as_os_str(),
            false => self.path,
        }
    }
}

/// Calls `each` with every requested node. If one is missing or fails, the rest is still visited. Ends early
/// on [`Stop::Closed`]. Returns the last failure.
pub fn visit(
    source: &OsStr,
    paths: &[OsString],
    options: &OpenOptions,
    mut each: impl FnMut(Found<'_>, &mut Failures) -> Result<(), Stop>,
) -> Result<(), Failure> {
    let mut failures = Failures::default();
    for request in requests(source, paths)? {
        let opened = open(request, options);
        let (source, tree, request) = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                failures.add(failure);
                continue;
            }
        };
        let prefix = match request.shown {
            true => request.source.as_os_str(),
            false => OsStr::new(""),
        };
        for names in &request.paths {
            let mut found = false;
            let mut each = |path: &OsStr, node: Result<Node, Failure>| {
                found = true;
                let source = &*source;
                let name = Path::new(path).file_name().filter(|_| !names.is_empty());
                let found = |node| Found {
                    source,
                    path,
                    above: prefix,
                    name,
                    node,
                };
                match node.map(|node| each(found(node), &mut failures)) {
                    Ok(Err(Stop::Closed)) => Err(()),
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(Stop::Failed(failure))) | Err(failure) => {
                        failures.add(failure);
                        Ok(())
                    }
                }
            };
            if walk(tree.root.clone(), names, prefix.to_owned(), &mut each).is_err() {
                return failures.result();
            }
            if !found {
                let path = names
                    .iter()
                    .fold(prefix.to_owned(), |path, name| join(&path, name));
                failures.add(failed(&path, "no such file or directory in the tree"));
            }
        }
    }
    failures.result()
}

/// Opens the source of a request. Returns its path or URL, its tree, and the request with URLs split.
fn open(mut request: Request, options: &OpenOptions) -> Result<(PathBuf, Tree, Request), Failure> {
    match check_source(request.source.as_os_str())? {
        Location::Remote(url) if request.beyond => {
            let (tree, part, names) = open_within(&url, options)?;
            request.source = part.into();
            request.shown = !names.is_empty();
            request.paths = vec![names];
            Ok((request.source.clone(), tree, request))
        }
        location => {
            let tree = open_tree(&location, options)?;
            let source = match location {
                Location::Local(path) => path,
                Location::Remote(url) => url.into(),
            };
            Ok((source, tree, request))
        }
    }
}

/// A failure that names a path of the tree.
pub fn failed(path: &OsStr, what: impl Display) -> Failure {
    Failure::new(format!("{}: {what}", show_path(or_here(Path::new(path)))))
}

/// Splits an argument into the part that exists locally and the names in its tree. No names if all of it
/// exists, or if the existing part is a plain directory and the next name is not a pattern.
fn split(argument: &OsStr) -> (PathBuf, Vec<OsString>) {
    let whole = local_path(Path::new(argument));
    let (mut on_machine, mut names) = (PathBuf::new(), Vec::<OsString>::new());
    for component in whole.components() {
        match component {
            Component::ParentDir if names.pop().is_some() => {}
            Component::Normal(name) if !names.is_empty() || !exists(&on_machine.join(name)) => {
                names.push(name.to_owned());
            }
            other => on_machine.push(other),
        }
    }
    if names.first().is_some_and(is_of_experiment) && is_object(or_here(&on_machine)) {
        for _ in 0..2 {
            let name = on_machine.file_name().map(OsStr::to_owned);
            if let Some(name) = name.filter(|_| on_machine.pop()) {
                names.insert(0, name);
            }
        }
    }
    // The tree of a plain directory has no other names than the directory.
    let may_be_in_tree = |name: &OsString| pattern(name).is_some() || is_object(or_here(&on_machine));
    if names.first().is_some_and(may_be_in_tree) {
        (on_machine, names)
    } else if names.is_empty() && !whole.as_os_str().is_empty() {
        // What was not there is undone by `..`.
        (or_here(&on_machine).to_owned(), names)
    } else {
        (whole.to_path_buf(), Vec::new())
    }
}

/// Whether the name is one of a measurement's that need the experiment, which is two directories above.
pub(super) fn is_of_experiment(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| named(name).is_some())
}

/// Whether a path exists; true if that cannot be determined.
fn exists(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(_) => true,
        Err(error) => ![libc::ENOENT, libc::ENOTDIR, libc::ENAMETOOLONG]
            .iter()
            .any(|code| error.raw_os_error() == Some(*code)),
    }
}

/// The normalized components of a path in a tree. Fails if it leads out of SOURCE.
fn names_of(path: &OsStr) -> Result<Vec<OsString>, Failure> {
    let mut names = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => {
                let above = names.pop();
                let out = || Failure::new(format!("{}: leads out of SOURCE", show_path(Path::new(path))));
                above.ok_or_else(out)?;
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}

/// Called with each found node or error. Its `Err` ends the walk.
type Each<'a> = dyn FnMut(&OsStr, Result<Node, Failure>) -> Result<(), ()> + 'a;

/// Calls `each` with the nodes that `names` match below `node`, which is at `path`.
fn walk(mut node: Node, names: &[OsString], mut path: OsString, each: &mut Each<'_>) -> Result<(), ()> {
    let mut names = names.iter();
    while let Some(name) = names.next() {
        let Node::Directory(directory) = &node else {
            return Ok(());
        };
        let found = follow(&**directory, name);
        let absent = match &found {
            Ok(found) => found.is_none(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if let Some(pattern) = pattern(name).filter(|_| absent) {
            let listing = match directory.list() {
                Ok(listing) => listing,
                Err(error) => return each(&path, Err(failed(&path, error))),
            };
            for (entry, _) in listing.entries() {
                if !pattern.matches_with(&entry.to_string_lossy(), MATCHING) {
                    continue;
                }
                let below = join(&path, &entry);
                match directory.lookup(&entry) {
                    Ok(Some(node)) => walk(node, names.as_slice(), below, each)?,
                    // The entry has vanished meanwhile.
                    Ok(None) => {}
                    Err(error) => each(&below, Err(failed(&below, error)))?,
                }
            }
            return Ok(());
        }
        path = join(&path, name);
        match found {
            Ok(Some(next)) => node = next,
            Ok(None) => return Ok(()),
            Err(error) => return each(&path, Err(failed(&path, error))),
        }
    }
    each(&path, Ok(node))
}

/// The path of `name` in the directory at `path`.
pub fn join(path: &OsStr, name: &OsStr) -> OsString {
    let mut joined = path.to_owned();
    if !path.is_empty() && !path.as_bytes().ends_with(b"/") {
        joined.push("/");
    }
    joined.push(name);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<OsString> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .map(OsString::from)
            .collect()
    }

    #[test]
    fn arguments_are_split_where_the_local_path_ends() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        for directory in [
            "plain/array/__schema",
            "plain/group/__group",
            "plain/group/a/__schema",
            "plain/group/ms/rna/__group",
        ] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        for (argument, on_machine, in_tree) in [
            ("plain/array", "plain/array", ""),
            ("plain/array/", "plain/array/", ""),
            ("plain/array/schema.json", "plain/array", "schema.json"),
            ("plain/./array//fragments/x", "plain/array", "fragments/x"),
            (
                "plain/array/fragments/../schema.json",
                "plain/array",
                "schema.json",
            ),
            (
                "plain/array/fragments/../../group/a/x",
                "plain/array/../group/a",
                "x",
            ),
            ("plain/group/member/x", "plain/group", "member/x"),
            // An AnnData needs the experiment two directories above.
            (
                "plain/group/ms/rna/anndata.zarr/obs",
                "plain/group",
                "ms/rna/anndata.zarr/obs",
            ),
            (
                "plain/group/ms/rna/anndata.raw.h5ad",
                "plain/group",
                "ms/rna/anndata.raw.h5ad",
            ),
            // A plain directory has no virtual files.
            ("plain/x", "plain/x", ""),
            ("plain/x/schema.json", "plain/x/schema.json", ""),
            ("plain/*/schema.json", "plain", "*/schema.json"),
        ] {
            let wanted = (at(on_machine), names(in_tree));
            assert_eq!(split(at(argument).as_os_str()), wanted, "{argument}");
            let uri = format!("file://{}", at(argument).display());
            assert_eq!(split(OsStr::new(&uri)), wanted, "{uri}");
        }
    }

    #[test]
    fn paths_are_normalized() {
        for (path, wanted) in [
            ("", ""),
            (".", ""),
            ("/", ""),
            ("./a//b/", "a/b"),
            ("a/../b/./c", "b/c"),
            ("a/..", ""),
        ] {
            assert_eq!(names_of(OsStr::new(path)).unwrap(), names(wanted), "{path}");
        }
        for path in ["..", "a/../..", "../a"] {
            let failure = names_of(OsStr::new(path)).unwrap_err();
            assert_eq!(failure, Failure::new(format!("{path}: leads out of SOURCE")));
        }
    }
}
