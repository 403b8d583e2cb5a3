//! Walks a tree without a mount, within limits, and checks rules that hold for any source:
//!
//! - Directories: names are distinct, plain path components. Each leads to a node of the listed kind. The
//!   listing has as many entries as it says.
//! - Files: the length is the same before opening, after opening and after reading all bytes. A read at any
//!   offset gives a part of the whole.
//! - Errors: they name a file and are not bugs ([`ErrorKind::Internal`]).

use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use tiledbfs::internals::bytes::Output;
use tiledbfs::internals::layout::FileLayout;
use tiledbfs::internals::tree::{Directory, File, Freshness, Node};
use tiledbfs::{Error, ErrorKind, Result};

/// How much of a tree is read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most names of one directory: half are the first, half the last.
    pub entries: u64,
    /// The most bytes of one file. Of a longer file the last bytes are read, too.
    pub file_bytes: u64,
    /// The most bytes of all files together.
    pub total_bytes: u64,
    /// The most files and directories.
    pub nodes: u64,
    /// The deepest nesting of directories.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries: 64,
            file_bytes: 4 << 20,
            total_bytes: 256 << 20,
            nodes: 20_000,
            depth: 64,
        }
    }
}

/// The result for one file or directory.
#[derive(Debug, Clone)]
pub struct Visit {
    /// Its path relative to the root of the walk, with `/` as separator; empty for the root.
    pub path: String,
    /// For a file, the length and SHA-256 of what was read; for a directory, zeros. Or the first error.
    pub outcome: Result<(u64, [u8; 32])>,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Report {
    /// Every file and directory, in the order of the walk.
    pub visits: Vec<Visit>,
    /// The violated rules, each with its path. Empty unless there is a bug.
    pub violations: Vec<String>,
    /// Number of bytes read of all files.
    pub bytes: u64,
}

/// Walks `root` and everything below it. Errors are a part of the report.
pub fn walk(root: &Node, limits: &Limits) -> Report {
    let mut walker = Walker {
        limits,
        report: Report::default(),
    };
    // Not recursive, so that a deeply nested source does not overflow the stack.
    let mut waiting = vec![(String::new(), root.clone(), 0usize)];
    while let Some((path, node, depth)) = waiting.pop() {
        if walker.report.visits.len() as u64 >= limits.nodes {
            break;
        }
        let outcome = match &node {
            Node::File(file) => walker.file(&path, &**file),
            Node::Link(_) => Ok((0, [0; 32])),
            Node::Directory(directory) => walker.directory(&path, &**directory).map(|children| {
                if depth < limits.depth {
                    let join = |name: OsString| match path.as_str() {
                        "" => name.to_string_lossy().into_owned(),
                        above => format!("{above}/{}", name.to_string_lossy()),
                    };
                    let children = children.into_iter().rev();
                    waiting.extend(children.map(|(name, node)| (join(name), node, depth + 1)));
                }
                (0, [0; 32])
            }),
        };
        if let Err(error) = &outcome {
            walker.check_error(&path, error);
        }
        walker.report.visits.push(Visit { path, outcome });
    }
    walker.report
}

struct Walker<'a> {
    limits: &'a Limits,
    report: Report,
}

impl Walker<'_> {
    fn wrong(&mut self, path: &str, what: impl std::fmt::Display) {
        self.report.violations.push(format!("{path:?}: {what}"));
    }

    fn check_error(&mut self, path: &str, error: &Error) {
        match error.kind() {
            ErrorKind::Internal | ErrorKind::InvalidInput => self.wrong(path, format!("{error:?}")),
            ErrorKind::NotFound => self.wrong(path, format!("it is listed, but: {error:?}")),
            _ if error.file().is_none() => self.wrong(path, format!("no file in the error: {error:?}")),
            // An error of the operating system, or for a missing key, has no offset in a file.
            ErrorKind::Io(_) | ErrorKind::KeyRequired => {}
            _ if error.offset().is_none() => {
                self.wrong(path, format!("no place in the error: {error:?}"));
            }
            _ => {}
        }
    }

    /// Lists a directory and looks up its names.
    fn directory(&mut self, path: &str, directory: &dyn Directory) -> Result<Vec<(OsString, Node)>> {
        let listing = directory.list()?;
        let len = listing.len();
        if listing.get(len).is_some() || listing.get(u64::MAX).is_some() {
            self.wrong(path, format!("there is an entry after the last of {len}"));
        }
        let half = self.limits.entries / 2;
        let first = 0..len.min(half);
        let last = first.end.max(len.saturating_sub(half))..len;
        let (mut children, mut names) = (Vec::new(), HashSet::new());
        for index in first.chain(last) {
            let Some((name, kind)) = listing.get(index) else {
                self.wrong(path, format!("there is no entry {index} of {len}"));
                continue;
            };
            if !is_plain(&name) {
                self.wrong(path, format!("{name:?} is not a component of a path"));
            }
            if !names.insert(name.to_os_string()) {
                self.wrong(path, format!("{name:?} is listed twice"));
            }
            match directory.lookup(&name) {
                Ok(Some(node)) if node.node_type() == kind => children.push((name.into_owned(), node)),
                Ok(Some(_)) => self.wrong(path, format!("{name:?} is of another kind than listed")),
                Ok(None) => self.wrong(path, format!("{name:?} is listed but does not exist")),
                Err(error) => self.wrong(path, format!("{name:?} is listed but: {error:?}")),
            }
        }
        for absent in [
            "",
            ".",
            "..",
            "no such name",
            "18446744073709551616.data.bin",
            "00.data.bin",
        ] {
            // The source may have an array of this name.
            let is_listed = || {
                (0..len).any(|i| {
                    listing
                        .get(i)
                        .is_some_and(|(name, _)| *name == *OsStr::new(absent))
                })
            };
            if let Ok(Some(_)) = directory.lookup(OsStr::new(absent))
                && !is_listed()
            {
                self.wrong(path, format!("{absent:?} is not listed but exists"));
            }
        }
        Ok(children)
    }

    /// Reads a file from its start, and again at odd offsets.
    fn file(&mut self, path: &str, file: &dyn File) -> Result<(u64, [u8; 32])> {
        let live = file.freshness() == Freshness::Live;
        let before = file.len();
        let open = match (file.open(), &before) {
            (Ok(open), Ok(before)) => {
                if open.len() != *before && !live {
                    let message = format!("the length is {before}, but {} once it is open", open.len());
                    self.wrong(path, message);
                }
                open
            }
            (Ok(_), Err(error)) => return Err(error.clone()),
            (Err(error), _) => return Err(error),
        };
        let len = open.len();
        let left = self.limits.total_bytes.saturating_sub(self.report.bytes);
        let wanted = len.min(self.limits.file_bytes).min(left);
        let mut whole = Vec::new();
        while (whole.len() as u64) < wanted {
            let offset = whole.len() as u64;
            let size = 128 << 10;
            let piece = Output::of(|out| open.read(offset..offset + size, out))?;
            let expected = (len - offset).min(size);
            if piece.len() as u64 != expected {
                let message = format!("read {} bytes at {offset}, expected {expected}", piece.len());
                self.wrong(path, message);
                break;
            }
            whole.extend_from_slice(&piece);
        }
        self.report.bytes = self.report.bytes.saturating_add(whole.len() as u64);
        self.probe(path, &open, &whole)?;
        let mut digest = Sha256::new();
        digest.update(&whole);
        Ok((len, digest.finalize().into()))
    }

    /// Reads parts of a file that begins with `whole`.
    fn probe(&mut self, path: &str, open: &FileLayout, whole: &[u8]) -> Result<()> {
        let (len, read) = (open.len(), whole.len() as u64);
        let places = [
            (0, 1),
            (1, 7),
            (7, 8),
            (read / 2, 1),
            (read / 3, 4097),
            (read / 2 + 1, 65_537),
            (read.saturating_sub(1), 100),
        ];
        for (offset, size) in places {
            let piece = Output::of(|out| open.read(offset..offset + size as u64, out))?;
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(whole.len());
            let end = start.saturating_add(size).min(whole.len());
            let known = whole.get(start..end).unwrap_or_default();
            let expected = len.saturating_sub(offset).min(size as u64);
            if piece.len() as u64 != expected || piece.get(..known.len()) != Some(known) {
                let message = format!("{size} bytes at {offset} differ from a read of the whole");
                self.wrong(path, message);
            }
        }
        for offset in [len, len.saturating_add(1), u64::MAX] {
            if !Output::of(|out| open.read(offset..offset.saturating_add(10), out))?.is_empty() {
                self.wrong(path, format!("there are bytes at {offset}, after the end"));
            }
        }
        // Reads also the last byte of a file beyond the limits. An error there is accepted, because only the
        // beginning is known to be readable.
        if len > read
            && let Ok(piece) = Output::of(|out| open.read(len - 1..len + 9, out))
            && piece.len() != 1
        {
            self.wrong(path, format!("read {} bytes at the last byte", piece.len()));
        }
        Ok(())
    }
}

/// Whether the kernel accepts it as a name.
fn is_plain(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    (1..=255).contains(&bytes.len())
        && !bytes.contains(&b'/')
        && !bytes.contains(&0)
        && bytes != b"."
        && bytes != b".."
}
