//! `tiledbfs cat`: files of the tree without a mount.

use super::logging::{self, VerboseArgs};
use super::output::{Stdout, Stop, stdout};
use super::paths::{failed, visit};
use super::{Failure, TreeArgs};
use crate::bytes::Output;
use crate::error::Error;
use crate::tree::node::next_piece;
use crate::tree::{File as TreeFile, Node};
use clap::{Args, ValueHint};
use std::ffi::{OsStr, OsString};
use std::io::Write;

pub(super) const EXAMPLES: &str = "\
Examples:
  tiledbfs cat my_array schema.json | jq .
  tiledbfs cat my_array/schema.json                 the same
  tiledbfs cat my_array 'fragments/*/footer.json'   of every fragment";

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// A SOURCE as for `tiledbfs mount`; or SOURCE/PATH in one
    #[arg(value_hint = ValueHint::AnyPath)]
    source: OsString,
    /// Files of the tree; * ? [a-z] match as in a shell
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    #[command(flatten)]
    verbose: VerboseArgs,
    #[command(flatten)]
    source_args: TreeArgs,
}

/// Runs `tiledbfs cat`. If a file cannot be read, the others are still written.
pub(super) fn run(args: &CatArgs) -> Result<(), Failure> {
    logging::to_stderr_with(&args.verbose);
    let mut out = stdout()?;
    visit(
        &args.source,
        &args.paths,
        &args.source_args.options()?.without_bounds(),
        |found, _| match found.node {
            Node::File(file) => write_file(&*file, found.path, &mut out),
            _ => Err(Stop::Failed(failed(found.path, "is a directory"))),
        },
    )
}

fn write_file(file: &dyn TreeFile, path: &OsStr, out: &mut Stdout) -> Result<(), Stop> {
    let fail = |error: Error| Stop::Failed(failed(path, error));
    if let Some(mut stream) = file.stream().map_err(fail)? {
        while let Some(piece) = stream.next().map_err(fail)? {
            out.write_all(&piece)?;
        }
        return Ok(());
    }
    let open = file.open().map_err(fail)?;
    let (mut offset, mut piece) = (0, Output::new());
    while offset < open.len() {
        next_piece(&open, offset, &mut piece).map_err(fail)?;
        out.write_all(&piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
