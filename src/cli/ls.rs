//! `tiledbfs ls`: directories of the tree without a mount.

use super::logging::{self, VerboseArgs};
use super::options::{path_parser, source_parser};
use super::output::{Failures, Names, Stdout, Stop, finish, stdout};
use super::paths::{Found, failed, join, visit};
use super::times::time;
use super::{Failure, TreeArgs};
use crate::tree::{Directory, Node};
use clap::{ArgAction, Args, ValueHint};
use indicatif::HumanBytes;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

pub(super) const EXAMPLES: &str = "\
Examples:
  tiledbfs ls -l my_array
  tiledbfs ls -lh my_array 'fragments/*/columns/temperature'
  tiledbfs ls -R my_group/member/schemas";

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct LsArgs {
    /// A SOURCE as for `tiledbfs mount`; or SOURCE/PATH in one
    #[arg(value_hint = ValueHint::AnyPath, value_parser = source_parser())]
    source: OsString,
    /// Directories and files of the tree; * ? [a-z] match as in a shell
    #[arg(value_name = "PATH", value_parser = path_parser())]
    paths: Vec<OsString>,
    /// Show type, length and modification time (UTC)
    #[arg(short)]
    long: bool,
    /// With -l, show lengths like 1.50 KiB
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// List names that begin with a dot too
    #[arg(short, long, short_alias = 'A')]
    all: bool,
    /// List subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// List one name per line (always on)
    #[arg(short = '1')]
    one: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    verbose: VerboseArgs,
    #[command(flatten)]
    source_args: TreeArgs,
}

/// Runs `tiledbfs ls`. If something cannot be listed, the rest still is. Files come before directories.
pub(super) fn run(args: &LsArgs) -> Result<(), Failure> {
    logging::to_stderr_with(&args.verbose);
    let out = stdout()?;
    let mut lister = Lister {
        names: out.names(),
        out: BufWriter::new(out),
        args,
        heading: args.recursive || args.paths.len() > 1,
        first: true,
    };
    let mut directories = Vec::new();
    let options = args.source_args.options()?;
    let visited = visit(
        &args.source,
        &args.paths,
        &options,
        |found, failures| match found {
            Found {
                node: Node::Directory(directory),
                path,
                ..
            } if !args.directory => {
                directories.push((path.to_owned(), directory));
                Ok(())
            }
            Found { node, path, .. } => {
                let name = if path.is_empty() { OsStr::new(".") } else { path };
                lister.first = false;
                lister.line(name, &node, path, failures)
            }
        },
    );
    let mut failures = Failures::default();
    failures.check(visited);
    lister.heading |= directories.len() > 1 || !lister.first;
    let listed = directories
        .into_iter()
        .try_for_each(|(path, directory)| lister.directory(path, directory, &mut failures));
    let flushed = listed.and_then(|()| Ok(lister.out.flush()?));
    failures.check(finish(flushed));
    failures.result()
}

struct Lister<'a> {
    out: BufWriter<Stdout>,
    names: Names,
    args: &'a LsArgs,
    /// Whether each directory has a heading.
    heading: bool,
    /// Whether nothing has been written yet.
    first: bool,
}

impl Lister<'_> {
    /// Lists a directory, and with `-R` everything below it.
    fn directory(
        &mut self,
        path: OsString,
        directory: Arc<dyn Directory>,
        failures: &mut Failures,
    ) -> Result<(), Stop> {
        let LsArgs {
            long, all, recursive, ..
        } = *self.args;
        let mut waiting = vec![(path, directory)];
        while let Some((path, directory)) = waiting.pop() {
            if self.heading {
                let gap = if self.first { "" } else { "\n" };
                let shown = if path.is_empty() { OsStr::new(".") } else { &path };
                self.out.write_all(gap.as_bytes())?;
                self.out.write_all(self.names.show(shown).as_bytes())?;
                self.out.write_all(b":\n")?;
                self.first = false;
            }
            let listing = match directory.list() {
                Ok(listing) => listing,
                Err(error) => {
                    failures.add(failed(&path, error));
                    continue;
                }
            };
            let mut below = Vec::new();
            for (name, _) in listing.entries() {
                if !all && name.as_bytes().starts_with(b".") {
                    continue;
                }
                if !long && !recursive {
                    self.out.write_all(self.names.show(&name).as_bytes())?;
                    self.out.write_all(b"\n")?;
                    continue;
                }
                let inner = join(&path, &name);
                match directory.lookup(&name) {
                    Ok(Some(node)) => {
                        self.line(&name, &node, &inner, failures)?;
                        if let (true, Node::Directory(directory)) = (recursive, node) {
                            below.push((inner, directory));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => failures.add(failed(&inner, error)),
                }
            }
            below.reverse();
            waiting.append(&mut below);
        }
        Ok(())
    }

    /// Writes the line for `node` at `path`. An unknown length is shown as `?`.
    fn line(&mut self, name: &OsStr, node: &Node, path: &OsStr, failures: &mut Failures) -> Result<(), Stop> {
        if self.args.long {
            let (mode, size, mtime) = match node {
                Node::Directory(directory) => ("dr-xr-xr-x", Ok(0), directory.mtime()),
                Node::File(file) => ("-r--r--r--", file.len(), file.mtime()),
                Node::Link(link) => ("lrwxrwxrwx", Ok(link.target.len() as u64), link.mtime),
            };
            let size = match size {
                Ok(size) if self.args.human_readable => HumanBytes(size).to_string(),
                Ok(size) => size.to_string(),
                Err(error) => {
                    failures.add(failed(path, error));
                    "?".to_owned()
                }
            };
            write!(self.out, "{mode} {size:>14} {} ", time(mtime))?;
        }
        self.out.write_all(self.names.show(name).as_bytes())?;
        self.out.write_all(b"\n")?;
        Ok(())
    }
}
