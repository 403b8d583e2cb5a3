//! `tiledbfs ls` and `tiledbfs cat`: the tree without a mount.

use super::{CatArgs, Failure, LsArgs, check_source, logging, open_tree};
use crate::error::{Error, ErrorKind};
use crate::tree::{Directory, File as TreeFile, Node, Tree};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes read and written at once.
const PIECE: usize = 1 << 20;

/// How writing ends before its time.
enum Stop {
    /// Nobody reads on, as with `| head`: the end, but no failure.
    Closed,
    Failed(Failure),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Stop::Closed
        } else {
            Stop::Failed(Failure::new(format!("cannot write: {error}")))
        }
    }
}

/// Turns a reader's going away into success.
fn finish(result: Result<(), Stop>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(Stop::Closed) => Ok(()),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// stdout without the buffer of the standard library, which looks for the ends of lines.
fn stdout() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn open(source: &Path, options: &crate::tree::Options) -> Result<Tree, Failure> {
    let source = check_source(source)?;
    open_tree(&source, options)
}

fn find(tree: &Tree, path: &str) -> Result<Node, Failure> {
    match tree.root.find(path) {
        Ok(Some(node)) => Ok(node),
        Ok(None) => Err(Failure::new(format!(
            "{path}: no such file or directory in the tree"
        ))),
        Err(error) => Err(Failure::new(format!("{path}: {error}"))),
    }
}

/// Runs `tiledbfs cat`. A file that cannot be read does not keep the others from being written.
pub(super) fn cat(args: &CatArgs) -> Result<(), Failure> {
    logging::to_stderr();
    let tree = open(&args.source, &args.source_args.options()?)?;
    let mut last = Ok(());
    for path in &args.paths {
        let result = find(&tree, path)
            .map_err(Stop::Failed)
            .and_then(|node| match node {
                Node::Directory(_) => Err(Stop::Failed(Failure::new(format!("{path}: is a directory")))),
                Node::File(file) => write_file(&*file, path),
            });
        keep(&mut last, finish(result));
    }
    last
}

/// Keeps the last failure, and shows the one before it.
fn keep(last: &mut Result<(), Failure>, result: Result<(), Failure>) {
    if result.is_err()
        && let Err(failure) = std::mem::replace(last, result)
    {
        eprintln!("tiledbfs: {}", failure.message);
    }
}

fn write_file(file: &dyn TreeFile, path: &str) -> Result<(), Stop> {
    let fail = |error: Error| Stop::Failed(Failure::new(format!("{path}: {error}")));
    let mut out = stdout()?;
    let open = file.open().map_err(fail)?;
    let mut scratch = Vec::new();
    let mut offset = 0;
    while offset < open.len() {
        let piece = open.read(offset, PIECE, &mut scratch).map_err(fail)?;
        if piece.is_empty() {
            return Err(fail(Error::new(
                ErrorKind::Internal,
                "a read before the end of the file gave nothing",
            )));
        }
        out.write_all(&piece)?;
        offset = offset.saturating_add(piece.len() as u64);
    }
    Ok(())
}

/// Runs `tiledbfs ls`. What cannot be listed does not keep the rest from being so.
pub(super) fn ls(args: &LsArgs) -> Result<(), Failure> {
    logging::to_stderr();
    let tree = open(&args.source, &args.source_args.options()?)?;
    let node = find(&tree, &args.path)?;
    let mut lister = Lister {
        out: BufWriter::new(stdout().map_err(|error| Failure::new(error.to_string()))?),
        long: args.long,
        last: Ok(()),
    };
    let path = args.path.trim_matches('/');
    let result = match node {
        Node::File(_) => lister.line(OsStr::new(path), &node, path),
        Node::Directory(directory) => lister.directory(directory, path, args.recursive),
    };
    let result = result.and_then(|()| Ok(lister.out.flush()?));
    finish(result).and(lister.last)
}

struct Lister {
    out: BufWriter<File>,
    long: bool,
    last: Result<(), Failure>,
}

impl Lister {
    fn failed(&mut self, path: &str, error: &Error) {
        keep(&mut self.last, Err(Failure::new(format!("{path}: {error}"))));
    }

    /// Lists a directory, and with `recursive` all below it, each under a heading.
    fn directory(&mut self, directory: Arc<dyn Directory>, path: &str, recursive: bool) -> Result<(), Stop> {
        let mut waiting = vec![(path.to_owned(), directory)];
        let mut first = true;
        while let Some((path, directory)) = waiting.pop() {
            if recursive {
                let gap = if first { "" } else { "\n" };
                let shown = if path.is_empty() { "." } else { &path };
                writeln!(self.out, "{gap}{shown}:")?;
                first = false;
            }
            let listing = match directory.list() {
                Ok(listing) => listing,
                Err(error) => {
                    self.failed(&path, &error);
                    continue;
                }
            };
            let mut below = Vec::new();
            for (name, _) in (0..).map_while(|index| listing.get(index)) {
                let mut inner = path.clone();
                if !inner.is_empty() {
                    inner.push('/');
                }
                inner.push_str(&name.to_string_lossy());
                if !self.long && !recursive {
                    self.out.write_all(name.as_bytes())?;
                    self.out.write_all(b"\n")?;
                    continue;
                }
                match directory.lookup(&name) {
                    Ok(Some(node)) => {
                        self.line(&name, &node, &inner)?;
                        if let (true, Node::Directory(directory)) = (recursive, node) {
                            below.push((inner, directory));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => self.failed(&inner, &error),
                }
            }
            below.reverse();
            waiting.append(&mut below);
        }
        Ok(())
    }

    /// One line for `node`, which is at `path`. A length that cannot be told is a `?`.
    fn line(&mut self, name: &OsStr, node: &Node, path: &str) -> Result<(), Stop> {
        if self.long {
            let (mode, size, mtime) = match node {
                Node::Directory(directory) => ("dr-xr-xr-x", "0".to_owned(), directory.mtime()),
                Node::File(file) => {
                    let size = match file.len() {
                        Ok(len) => len.to_string(),
                        Err(error) => {
                            self.failed(path, &error);
                            "?".to_owned()
                        }
                    };
                    ("-r--r--r--", size, file.mtime())
                }
            };
            write!(self.out, "{mode} {size:>14} {} ", time(mtime))?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(b"\n")?;
        Ok(())
    }
}

/// Milliseconds since the Unix epoch as `2023-11-14 22:13:20` in UTC.
fn time(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years; a year begins in March, so that the leap day is its last.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = era.saturating_mul(400).saturating_add(year + next);
    let mut text = String::new();
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (milliseconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (1_700_000_000_123, "2023-11-14 22:13:20"),
            (951_782_400_000, "2000-02-29 00:00:00"),
            (4_107_542_399_000, "2100-02-28 23:59:59"),
            (4_107_542_400_000, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(milliseconds), text);
        }
        // The largest that a fragment's name can hold.
        assert!(time(u64::MAX).starts_with("584556019-"));
    }
}
