//! `tiledbfs cp`: copies files and directories of the tree.
//!
//! A file is written as a [`Partial`] one in the target directory. An incomplete directory contains
//! [`UNFINISHED`], which names its original, so that the same command continues it.

use super::copier::Copier;
use super::logging::{self, VerboseArgs};
use super::options::{path_or_dest_parser, source_parser};
use super::output::{Failures, Stop, close_copy, progress_bar};
use super::paths::{Found, failed, join, visit};
use super::source::or_here;
use super::{Failure, TreeArgs, show_path};
use crate::catalog::time::TimeRange;
use crate::layout::FileLayout;
use crate::runtime::requester::{Requester, on_behalf_of};
use crate::storage::{self, location::Location};
use crate::tree::times::Asked;
use crate::tree::{Directory, File as TreeFile, Node, OWN_DIRECTORY, Stat, identity};
use clap::{Args, ValueHint};
use indicatif::{HumanBytes, ProgressBar};
use partial::{Partial, SAVE_EVERY};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const HELP: &str = "\
If DEST is a directory, copies go into it; otherwise it is the name of the copy.
Copies are writable, like any new file. A file gets its name when it is
complete; one that cannot be read is not copied, and the exit code is 1. The
same command continues a large file that was interrupted, unless the source has
changed, and a directory that is not complete, which holds
`.tiledbfs-unfinished`. .tiledbfs/ is not copied with the rest.

Examples:
  tiledbfs cp my_array schema.json /tmp
  tiledbfs cp -r my_array/fragments ~/backup
  tiledbfs cp -r --skip-existing my_array/fragments ~/backup    continue it
  tiledbfs cp -r ~/arrays . /mnt/copy      all in SOURCE, into /mnt/copy itself";

#[derive(Debug, Args)]
#[command(override_usage = "tiledbfs cp [OPTIONS] <SOURCE> [PATH]... <DEST>")]
pub(super) struct CopyArgs {
    /// A SOURCE as for `tiledbfs mount`; or SOURCE/PATH in one
    #[arg(value_hint = ValueHint::AnyPath, value_parser = source_parser())]
    source: OsString,
    /// Directories and files of the tree; * ? [a-z] match as in a shell. The last one is DEST: a directory,
    /// or the name of the copy
    #[arg(value_name = "[PATH]... DEST", num_args = 1.., required = true)]
    #[arg(value_hint = ValueHint::AnyPath, value_parser = path_or_dest_parser())]
    paths_and_dest: Vec<OsString>,
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Skip files that DEST has with the same length and a later time than the data
    #[arg(long)]
    skip_existing: bool,
    /// Treat DEST as the name of the copy, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// No progress bar and no summary on stderr
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    verbose: VerboseArgs,
    #[command(flatten)]
    source_args: TreeArgs,
}

impl CopyArgs {
    /// PATHs and DEST. An option may stand between any of them.
    fn places(&self) -> (&[OsString], &Path) {
        let (dest, paths) = self.paths_and_dest.split_last().expect("clap wants one");
        (paths, Path::new(dest))
    }
}

/// The marker file in an incomplete copy of a directory.
const UNFINISHED: &str = ".tiledbfs-unfinished";

/// Bytes per read and write of a thread.
const PIECE_SIZE: u64 = 4 << 20;

/// A local change shows in what is opened this much later, and [`storage::lag`] more: listings are some
/// tenths of a second old at most.
const LOCAL_LAG: Duration = Duration::from_secs(1);

/// How much later an object may have been stored than the store says, which tells seconds by its own clock.
const STORE_UNCERTAINTY: Duration = Duration::from_secs(2);

/// The year 3000, in milliseconds: later times are none of copies.
const MAX_TIME: u64 = 32_503_680_000_000;

/// Most threads that copy one file.
const MAX_THREADS: u64 = 8;

/// Runs `tiledbfs cp`. If a file cannot be copied, the others still are.
pub(super) fn run(args: &CopyArgs) -> Result<(), Failure> {
    logging::to_stderr_with(&args.verbose);
    let begun = SystemTime::now();
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut copy = TreeCopy {
        args,
        begun,
        source: PathBuf::new(),
        above: PathBuf::new(),
        lag: None,
        save_every: SAVE_EVERY,
        copier: Copier {
            threads: threads.min(MAX_THREADS),
            piece_size: PIECE_SIZE,
            bar: progress_bar(args.quiet),
            interrupted: Arc::default(),
        },
        copied: 0,
        bytes: 0,
        skipped: 0,
    };
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first signal lets the copier clean up, the second ends the process.
        let registered = flag::register_conditional_default(signal, copy.copier.interrupted.clone())
            .and_then(|_| flag::register(signal, copy.copier.interrupted.clone()));
        registered.map_err(|error| Failure::new(format!("cannot watch signals: {error}")))?;
    }
    let (paths, dest) = args.places();
    let into = !args.no_target_directory && dest.is_dir();
    let options = args.source_args.options()?.without_bounds();
    let mut names = HashSet::new();
    let mut held = None;
    // To a name only one file is copied: there must be no other before anything is written.
    let mut only = Vec::new();
    let mut visited = visit(&args.source, paths, &options, |found, failures| {
        if !into {
            only.push((
                found.source.to_owned(),
                found.path.to_owned(),
                found.above.to_owned(),
                found.name.map(OsStr::to_owned),
                found.node,
            ));
            return match only.len() {
                1 => Ok(()),
                _ => Err(Stop::Closed),
            };
        }
        let target = copy.target(&found)?;
        if !names.insert(target.clone()) {
            return Err(failed(
                target.as_os_str(),
                "would be the copy of two files with the same name",
            )
            .into());
        }
        // What the first one is written over may have another name, as with `cp`.
        if names.len() > 1
            && target.parent() == Some(dest)
            && let Some(name) = target.file_name()
        {
            if held.is_none() {
                let place = Place::open(dest, true);
                held = place.and_then(|place| Ok((place.names()?, place))).ok();
            }
            if let Some((known, place)) = &mut held
                && is_taken(place, known, name)
            {
                return Err(failed(target.as_os_str(), OTHER_NAME).into());
            }
        }
        copy.node(found, &target, failures)
    });
    if !into {
        let mut failures = Failures::default();
        failures.check(visited);
        match &only[..] {
            [] => {}
            [(source, path, above, name, node)] => {
                let found = Found {
                    source,
                    path,
                    above,
                    name: name.as_deref(),
                    node: node.clone(),
                };
                if let Err(Stop::Failed(failure)) = copy.node(found, dest, &mut failures) {
                    failures.add(failure);
                }
            }
            _ => {
                let what = match args.no_target_directory {
                    true => "is the name of the copy",
                    false => "is not a directory",
                };
                let what = format!("{what}, so several files cannot be copied to it");
                failures.add(failed(dest.as_os_str(), what));
            }
        }
        visited = failures.result();
    }
    copy.copier.bar.finish_and_clear();
    if !args.quiet && (copy.skipped > 0 || !copy.copier.bar.is_hidden()) {
        let bytes = HumanBytes(copy.bytes);
        let (copied, skipped) = (files(copy.copied), copy.skipped);
        super::complain(format_args!("{copied} copied ({bytes}), {skipped} skipped"));
    }
    if copy.copier.interrupted.load(Ordering::Relaxed) {
        return Err(Failure {
            code: 130,
            message: "interrupted: all copies made so far are complete; --skip-existing continues".to_owned(),
        });
    }
    visited
}

fn files(count: u64) -> String {
    format!("{count} {}", if count == 1 { "file" } else { "files" })
}

/// Copies of files and directories under way.
struct TreeCopy<'a> {
    args: &'a CopyArgs,
    /// When the program began.
    begun: SystemTime,
    /// Where what is copied lies.
    source: PathBuf,
    /// What paths of the tree begin with besides the names in it.
    above: PathBuf,
    /// How much later a change shows in what is opened of it; None of a store.
    lag: Option<Duration>,
    save_every: Duration,
    copier: Copier,
    copied: u64,
    bytes: u64,
    skipped: u64,
}

impl TreeCopy<'_> {
    /// The path of the copy if DEST is a directory.
    fn target(&self, found: &Found<'_>) -> Result<PathBuf, Stop> {
        let (paths, dest) = self.args.places();
        let is_directory = matches!(found.node, Node::Directory(_));
        if is_directory && is_unfinished(dest, found) {
            return Ok(dest.to_owned());
        }
        Ok(match (found.name, paths.is_empty()) {
            (Some(name), _) => dest.join(name),
            (None, true) => dest.join(found.source.file_name().unwrap_or_default()),
            // The path `.` copies the contents.
            (None, false) => dest.to_owned(),
        })
    }

    /// Copies what was found to `target`. Adds errors of single files of a directory to `failures`. Whoever
    /// interrupts it does not wait for a store that does not answer.
    fn node(&mut self, found: Found<'_>, target: &Path, failures: &mut Failures) -> Result<(), Stop> {
        let requester = Requester::Client(self.copier.interrupted.clone());
        on_behalf_of(requester, || self.found(found, target, failures))
    }

    fn found(&mut self, found: Found<'_>, target: &Path, failures: &mut Failures) -> Result<(), Stop> {
        self.check_place(&found, target)?;
        self.above = found.above.into();
        if self.source != found.source {
            self.source = found.source.to_owned();
            self.lag = local_lag(&self.source);
        }
        match found.node {
            Node::File(_) if target.as_os_str().as_bytes().ends_with(b"/") && !target.is_dir() => {
                Err(failed(target.as_os_str(), "is not a directory").into())
            }
            Node::File(file) => {
                self.measure(Node::File(file.clone()));
                self.file(&*file, target, found.path)
            }
            Node::Directory(_) if !self.args.recursive => {
                Err(failed(found.shown(), "is a directory (use -r)").into())
            }
            Node::Directory(ref directory) => self.tree(directory, target, &found, failures),
            // `visit` has followed all links.
            Node::Link(_) => Ok(()),
        }
    }

    /// Fails if the target is inside the source.
    fn check_place(&self, found: &Found<'_>, target: &Path) -> Result<(), Failure> {
        let absolute = std::path::absolute(target).map_err(|error| cannot_write(target, error))?;
        let there = absolute.ancestors().find_map(|path| fs::canonicalize(path).ok());
        if there.is_some_and(|there| there.starts_with(found.source)) {
            let source = show_path(found.source);
            return Err(failed(
                target.as_os_str(),
                format!("is inside the source {source}"),
            ));
        }
        Ok(())
    }

    /// Adds the lengths of all files in `node` to the length of the bar, in a thread of its own.
    fn measure(&self, node: Node) {
        if self.copier.bar.is_hidden() {
            return;
        }
        let (bar, interrupted) = (self.copier.bar.clone(), self.copier.interrupted.clone());
        let _ = thread::Builder::new().spawn(move || add_lengths(node, &bar, &interrupted));
    }

    /// Copies a directory recursively. Adds errors of single files to `failures`.
    fn tree(
        &mut self,
        directory: &Arc<dyn Directory>,
        target: &Path,
        found: &Found<'_>,
        failures: &mut Failures,
    ) -> Result<(), Stop> {
        self.measure(Node::Directory(directory.clone()));
        let place = |error| cannot_write(target, error);
        let created = create_directory(target).map_err(place)?;
        // DEST itself may be a link if copies go into it.
        let named = *target == *self.args.places().1 && !self.args.no_target_directory;
        let root = Place::open(target, named).map_err(place)?;
        if created && let Err(error) = write_file(&root.path(UNFINISHED), &unfinished(found)) {
            // Without it the same command would copy into the directory.
            let _ = fs::remove_file(root.path(UNFINISHED));
            let _ = fs::remove_dir(target);
            return Err(place(error).into());
        }
        let is_continued = !created && is_unfinished(&root.path(""), found);
        let before = failures.count();
        let mut waiting = vec![(directory.clone(), PathBuf::new(), found.path.to_owned())];
        while let Some((directory, below, path)) = waiting.pop() {
            self.copier.check_interrupted()?;
            let place = match root.below(&below) {
                Ok(place) => place,
                Err(error) => {
                    self.note(failures, cannot_write(&target.join(&below), error));
                    continue;
                }
            };
            let listing = match directory.list() {
                Ok(listing) => listing,
                Err(error) => {
                    self.note(failures, failed(&path, error));
                    continue;
                }
            };
            let mut known = match place.names() {
                Ok(known) => known,
                Err(error) => {
                    self.note(failures, failed(target.join(&below).as_os_str(), error));
                    continue;
                }
            };
            let mut left = if is_continued {
                known.clone()
            } else {
                BTreeSet::new()
            };
            let first = waiting.len();
            for (name, _) in listing.entries() {
                if found.name.is_none() && path == found.path && *name == *OWN_DIRECTORY {
                    continue;
                }
                self.copier.check_interrupted()?;
                let (inner, below) = (join(&path, &name), below.join(&*name));
                let target = target.join(&below);
                left.remove(&*name);
                if is_taken(&place, &mut known, &name) {
                    self.note(failures, failed(target.as_os_str(), OTHER_NAME));
                    continue;
                }
                let copied = match directory.lookup(&name) {
                    Ok(Some(Node::File(file))) => self.file_in(&*file, &place, &target, &inner),
                    Ok(Some(Node::Directory(directory))) => create_directory(&place.path(&name))
                        .map_err(|error| Stop::Failed(cannot_write(&target, error)))
                        .map(|_| waiting.push((directory, below, inner))),
                    // Links are not listed. A missing file has vanished meanwhile.
                    Ok(Some(Node::Link(_)) | None) => Ok(()),
                    Err(error) => Err(failed(&inner, error).into()),
                };
                match copied {
                    Err(Stop::Failed(failure)) => self.note(failures, failure),
                    other => other?,
                }
            }
            waiting[first..].reverse();
            // Readers would take them for a part of what is copied now.
            left.retain(|name| !name.as_bytes().starts_with(OWN_DIRECTORY.as_bytes()));
            for name in left {
                let there = target.join(&below).join(name);
                let what = "is of an earlier copy, and there is nothing of this name now: remove it";
                self.note(failures, failed(there.as_os_str(), what));
            }
        }
        if failures.count() == before
            && let Err(error) = fs::remove_file(root.path(UNFINISHED))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(cannot_write(&target.join(UNFINISHED), error).into());
        }
        Ok(())
    }

    /// What was written before this is in the copy `there` of `path`; None if it is of another state. The
    /// time of a copy of a past state is that of the state. It was made before its original was opened; of
    /// stores it is not known what was listed then.
    fn written(&self, there: &fs::Metadata, path: &OsStr) -> Option<SystemTime> {
        // Nothing in a copy tells which time of `at/` it is of, or which part of `subarray/`.
        if is_of_many(path, &self.above) {
            return None;
        }
        let own = there.modified().ok();
        let Some(at) = self.args.source_args.at else {
            return own;
        };
        if !state_time(at).is_some_and(|time| is_at(there, time)) {
            return None;
        }
        match self.lag {
            None => own,
            Some(lag) => there.created().ok()?.checked_sub(lag),
        }
    }

    /// The time of a copy that is opened now.
    fn time(&self) -> SystemTime {
        let now = shown(self.lag, self.begun, SystemTime::now());
        match self.args.source_args.at {
            None => now,
            // What was written later is newer. A range without its beginning is older than anything.
            Some(Asked::Within(TimeRange { start: 1.., .. })) => UNIX_EPOCH,
            Some(at) => now.min(UNIX_EPOCH + Duration::from_millis(at.end().min(MAX_TIME))),
        }
    }

    /// Reports a failure without disturbing the bar.
    fn note(&self, failures: &mut Failures, failure: Failure) {
        self.copier.bar.suspend(|| failures.add(failure));
    }

    /// Copies one file, which messages call `path`. Without `-r` a link that is DEST itself is followed.
    fn file(&mut self, file: &dyn TreeFile, target: &Path, path: &OsStr) -> Result<(), Stop> {
        let write = |error| cannot_write(target, error);
        let target = match fs::symlink_metadata(target) {
            Ok(metadata)
                if metadata.is_symlink() && !self.args.recursive && *target == *self.args.places().1 =>
            {
                &*fs::canonicalize(target).map_err(write)?
            }
            _ => target,
        };
        let directory = or_here(target.parent().unwrap_or(target));
        let place = Place::open(directory, true).map_err(write)?;
        self.file_in(file, &place, target, path)
    }

    /// Copies one file, which messages call `path`, to the name of `target` in the directory `place`.
    fn file_in(
        &mut self,
        file: &dyn TreeFile,
        place: &Place,
        target: &Path,
        path: &OsStr,
    ) -> Result<(), Stop> {
        let read = |error| failed(path, error);
        let write = |error| cannot_write(target, error);
        let Some(name) = target.file_name() else {
            return Err(failed(target.as_os_str(), "is not the name of a file").into());
        };
        self.copier.check_interrupted()?;
        let held = place.path(name);
        match fs::symlink_metadata(&held) {
            Ok(there) if there.is_symlink() => return Err(write(io::Error::other(IS_LINK)).into()),
            Ok(there) if !there.is_file() => {
                return Err(failed(target.as_os_str(), "exists and is not a regular file").into());
            }
            Ok(there) => {
                let written = self.written(&there, path);
                if self.args.skip_existing
                    && is_copy(&there, file.len().map_err(read)?, file.mtime(), written)
                {
                    self.skipped += 1;
                    self.copier.bar.inc(there.len());
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A name that is too long, for instance: before all is copied.
            Err(error) => return Err(write(error).into()),
        }
        let time = self.time();
        let out = Partial::open(place, self.save_every).map_err(write)?;
        self.copier.bar.set_message(show_path(Path::new(path)));
        let begin = |open: Option<&FileLayout>| {
            let Some(open) = open else {
                return Ok(out.begin(None, 0).map_err(write)?);
            };
            let stat = Stat::of(open);
            let identity = identity(file, stat, &(&self.source, path, file.mtime()));
            let there = out.begin(identity, stat.len).map_err(write)?;
            if there > 0 {
                log::info!("{} is continued at byte {there}", show_path(target));
            }
            Ok(there)
        };
        let filled = self.copier.copy(file, path, &begin, &|offset, bytes| {
            Ok(out.write(offset, bytes).map_err(write)?)
        });
        match filled {
            Err(stop) => {
                out.stop().map_err(write)?;
                return Err(stop);
            }
            Ok(bytes) => self.bytes += bytes,
        }
        out.finish(&held, time).map_err(write)?;
        self.copied += 1;
        Ok(())
    }
}

/// Adds the lengths of all files in `node` to the length of `bar`. Copying reports the errors.
fn add_lengths(node: Node, bar: &ProgressBar, interrupted: &AtomicBool) {
    // Files do not wait: a directory may have millions.
    let mut waiting = Vec::new();
    let add = |node, waiting: &mut Vec<Arc<dyn Directory>>| match node {
        // The copier extrapolates the length of streams.
        Node::File(file) => match file.stream() {
            Ok(Some(_)) => {}
            _ => bar.inc_length(file.len().unwrap_or(0)),
        },
        Node::Directory(directory) => waiting.push(directory),
        Node::Link(_) => {}
    };
    add(node, &mut waiting);
    while let Some(directory) = waiting.pop() {
        let Ok(listing) = directory.list() else { continue };
        for (name, _) in listing.entries() {
            if bar.is_finished() || interrupted.load(Ordering::Relaxed) {
                return;
            }
            if *name != *OWN_DIRECTORY
                && let Ok(Some(node)) = directory.lookup(&name)
            {
                add(node, &mut waiting);
            }
        }
    }
}

/// Why something is not written over.
const OTHER_NAME: &str = "exists there under another name";

/// Why a link below DEST is not written to.
const IS_LINK: &str = "is a symbolic link, which is not followed";

/// A directory of the copy. It is held open, and reached through its descriptor, so that a link which
/// somebody puts in its place is not followed.
struct Place(OwnedFd);

impl Place {
    /// The directory at `path`, whose last component may be a link only if `follow`.
    fn open(path: &Path, follow: bool) -> io::Result<Place> {
        let mut flags = libc::O_DIRECTORY;
        if !follow {
            flags |= libc::O_NOFOLLOW;
        }
        let opened = File::options().read(true).custom_flags(flags).open(path);
        match opened {
            Ok(directory) => Ok(Place(directory.into())),
            Err(_) if !follow && path.is_symlink() => Err(io::Error::other(IS_LINK)),
            Err(error) => Err(error),
        }
    }

    /// The directory at the relative path `below`, without following links.
    fn below(&self, below: &Path) -> io::Result<Place> {
        let mut place = Place(self.0.try_clone()?);
        for name in below {
            place = Place::open(&place.path(name), false)?;
        }
        Ok(place)
    }

    /// The names of its entries.
    fn names(&self) -> io::Result<BTreeSet<OsString>> {
        let entries = fs::read_dir(self.path(""))?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// The path of an entry, through the descriptor.
    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name)
    }
}

/// Whether there is something in `place` at a name that is not `known`, as all of its names are: its file
/// system takes two names for one. `name` is known from then on.
fn is_taken(place: &Place, known: &mut BTreeSet<OsString>, name: &OsStr) -> bool {
    known.insert(name.to_owned()) && fs::symlink_metadata(place.path(name)).is_ok()
}

fn cannot_write(target: &Path, error: io::Error) -> Failure {
    failed(target.as_os_str(), format!("cannot write: {error}"))
}

/// The content of [`UNFINISHED`].
fn unfinished(found: &Found<'_>) -> Vec<u8> {
    let (source, path) = (show_path(found.source), show_path(Path::new(found.path)));
    format!("This is not yet a whole copy of `{path}` in {source}.\n").into_bytes()
}

/// Whether `directory` is a copy of this which is not yet whole. Somebody else may have put something else
/// there: a link, or a pipe.
fn is_unfinished(directory: &Path, found: &Found<'_>) -> bool {
    let wanted = unfinished(found);
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut text = Vec::new();
    let read = options.open(directory.join(UNFINISHED)).and_then(|file| {
        let most = wanted.len() as u64 + 1;
        file.take(most).read_to_end(&mut text)
    });
    read.is_ok() && text == wanted
}

/// Writes a new file.
fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    close_copy(&file)
}

/// Creates a directory. Returns false if it exists.
fn create_directory(path: &Path) -> io::Result<bool> {
    match fs::create_dir(path) {
        // What is no directory, or a link, is told when it is opened.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        result => result.map(|()| true),
    }
}

/// How much later a change shows in what is opened of a local source; None of a store.
fn local_lag(source: &Path) -> Option<Duration> {
    (!Location::is_remote(source.as_os_str())).then(|| LOCAL_LAG + storage::lag(source))
}

/// The time of a copy that is opened at `now` by a program that has `begun`: what was written before is in
/// it. Changes show after `lag` in a local source; listings of a store may be as old as the program.
fn shown(lag: Option<Duration>, begun: SystemTime, now: SystemTime) -> SystemTime {
    let shown = match lag {
        None => begun.checked_sub(STORE_UNCERTAINTY),
        Some(lag) => now.checked_sub(lag),
    };
    shown.unwrap_or(UNIX_EPOCH)
}

/// The time that copies of a past state have, by which it is known. None of those that share it with others:
/// pins, and ranges with a start.
fn state_time(at: Asked) -> Option<SystemTime> {
    match at {
        Asked::Within(TimeRange { start: 0, end }) if end < MAX_TIME => {
            Some(UNIX_EPOCH + Duration::from_millis(end))
        }
        Asked::Within(_) | Asked::Pin(_) => None,
    }
}

/// Whether a path of the tree, which begins with `above`, is one of many that are the same but for a time or
/// a part: below, it goes through a directory `at` or `subarray`.
fn is_of_many(path: &OsStr, above: &Path) -> bool {
    let below = Path::new(path).strip_prefix(above).expect("it begins with it");
    let mut names = below.components();
    names.any(|name| name.as_os_str() == "at" || name.as_os_str() == "subarray")
}

/// Whether a file has the time `at`, to the millisecond.
fn is_at(there: &fs::Metadata, at: SystemTime) -> bool {
    there.modified().is_ok_and(|own| own == at)
}

/// Whether a file seems to be a copy of one with `len` bytes, modified at `mtime` (milliseconds since the
/// Unix epoch), if it has all that was `written` before. Not while that is to come, as it may be of data: no
/// change before then shows in it.
fn is_copy(there: &fs::Metadata, len: u64, mtime: u64, written: Option<SystemTime>) -> bool {
    let written = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let written = written.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    // Of one millisecond, either may be first.
    there.len() == len && written > mtime
}

mod partial;
#[cfg(test)]
mod tests;
