//! How the SOURCE and the PATHs of a command line are understood.
//!
//! SOURCE is a directory of this machine or a URL, PATH one in its tree. Both may be given as one: then the
//! part that exists on the machine, or below which there are keys, is SOURCE. `.` and `..` are resolved by
//! name. A name with `*`, `?` or `[` that does not exist literally is a pattern.

use super::output::{Failures, Stop};
use super::source::{OpenOptions, check_source, open_tree, open_within, or_here, pattern};
use super::{Failure, show_path};
use crate::storage::location::Location;
use crate::tree::node::follow;
use crate::tree::{Node, Tree, is_object};
use glob::MatchOptions;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How patterns match: as in a shell, where a leading dot is asked for by name.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// A directory of this machine, from an argument that may be a `file://` URI.
fn local_path(argument: &Path) -> &Path {
    // As TileDB has it: what follows is a path and is not percent-encoded.
    match argument.as_os_str().as_bytes().strip_prefix(b"file://") {
        Some(path) => Path::new(OsStr::from_bytes(path)),
        None => argument,
    }
}

/// A source, and the paths that are asked for in its tree.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// SOURCE.
    source: PathBuf,
    /// Whether shown paths include it.
    shown: bool,
    /// The names of each PATH, some of which may be patterns.
    paths: Vec<Vec<OsString>>,
    /// Whether SOURCE is a URL that may include names of the tree.
    beyond: bool,
}

/// What SOURCE and PATHs ask for; without PATHs it is SOURCE itself. If SOURCE includes a path, each of the
/// others does too.
fn requests(source: &OsStr, paths: &[OsString]) -> Result<Vec<Request>, Failure> {
    let is_url = |argument: &OsStr| Location::is_remote(argument);
    // What there is of a URL is found out when it is opened.
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

/// Something that was asked for.
pub struct Found<'a> {
    /// SOURCE, absolute and without symbolic links.
    pub source: &'a Path,
    /// Its path, as messages show it.
    pub path: &'a OsStr,
    /// Its name in the tree; None for SOURCE itself.
    pub name: Option<&'a OsStr>,
    /// What is there.
    pub node: Node,
}

/// Calls `each` with everything that SOURCE and PATHs ask for, as soon as it is found. If something cannot be
/// opened, is missing or cannot be read, the rest is still visited. Ends early when nobody reads the output
/// any more.
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

/// Opens the source of a request. Returns its path or URL, and the request, completed.
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

/// A failure at a path of the tree.
pub fn failed(path: &OsStr, what: impl Display) -> Failure {
    Failure::new(format!("{}: {what}", show_path(or_here(Path::new(path)))))
}

/// Splits an argument into the part that exists on this machine, and the names that can only be in a tree. No
/// names if all of it exists on this machine, or if it can be in no tree either.
fn split(argument: &OsStr) -> (PathBuf, Vec<OsString>) {
    let whole = local_path(Path::new(argument));
    let (mut on_machine, mut names) = (PathBuf::new(), Vec::<OsString>::new());
    for component in whole.components() {
        match component {
            Component::ParentDir if names.pop().is_some() => {}
            Component::Normal(name) if !names.is_empty() || !is_there(&on_machine.join(name)) => {
                names.push(name.to_owned());
            }
            other => on_machine.push(other),
        }
    }
    // What is missing in a plain directory is in no tree of it.
    let may_be = |name: &OsString| pattern(name).is_some() || is_object(or_here(&on_machine));
    if names.first().is_some_and(may_be) {
        (on_machine, names)
    } else {
        (whole.to_path_buf(), Vec::new())
    }
}

/// Whether a path exists, even if looking at it fails.
fn is_there(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(_) => true,
        Err(error) => ![libc::ENOENT, libc::ENOTDIR, libc::ENAMETOOLONG]
            .iter()
            .any(|code| error.raw_os_error() == Some(*code)),
    }
}

/// The names of a path in a tree.
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

/// The callback for a found node, or for the error in its place. `Err` ends the walk.
type Each<'a> = dyn FnMut(&OsStr, Result<Node, Failure>) -> Result<(), ()> + 'a;

/// Walks down `names` from `node`, which is at `path`.
fn walk(mut node: Node, names: &[OsString], mut path: OsString, each: &mut Each<'_>) -> Result<(), ()> {
    let mut names = names.iter();
    while let Some(name) = names.next() {
        let Node::Directory(directory) = &node else {
            return Ok(());
        };
        let found = follow(&**directory, name);
        if let (Ok(None), Some(pattern)) = (&found, pattern(name)) {
            let listing = match directory.list() {
                Ok(listing) => listing,
                Err(error) => return each(&path, Err(failed(&path, error))),
            };
            let entries = (0..listing.len()).filter_map(|index| listing.get(index));
            for (entry, _) in entries {
                if !pattern.matches_with(&entry.to_string_lossy(), MATCHING) {
                    continue;
                }
                let below = join(&path, &entry);
                match directory.lookup(&entry) {
                    Ok(Some(node)) => walk(node, names.as_slice(), below, each)?,
                    // It is gone by now.
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
    fn an_argument_is_split_where_the_machine_ends() {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path);
        for directory in [
            "plain/array/__schema",
            "plain/group/__group",
            "plain/group/a/__schema",
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
            // In a plain directory there is what is on the machine.
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
    fn paths_in_a_tree() {
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
