//! `tiledbfs cat`: files of the tree without a mount.

use super::copier::Copier;
use super::logging::{self, VerboseArgs};
use super::options::{path_parser, source_parser};
use super::output::{Stop, stdout};
use super::paths::{failed, visit};
use super::{Failure, TreeArgs};
use crate::tree::Node;
use clap::{Args, ValueHint};
use indicatif::ProgressBar;
use std::ffi::OsString;
use std::sync::Arc;

pub(super) const EXAMPLES: &str = "\
Examples:
  tiledbfs cat my_array schema.json | jq .
  tiledbfs cat my_array/schema.json                 the same
  tiledbfs cat my_array 'fragments/*/footer.json'   of every fragment";

#[derive(Debug, Args)]
pub(super) struct CatArgs {
    /// A SOURCE as for `tiledbfs mount`; or SOURCE/PATH in one
    #[arg(value_hint = ValueHint::AnyPath, value_parser = source_parser())]
    source: OsString,
    /// Files of the tree; * ? [a-z] match as in a shell
    #[arg(value_name = "PATH", value_parser = path_parser())]
    paths: Vec<OsString>,
    #[command(flatten)]
    verbose: VerboseArgs,
    #[command(flatten)]
    source_args: TreeArgs,
}

/// Bytes of a read and a write.
const PIECE_SIZE: u64 = 1 << 20;

/// Runs `tiledbfs cat`. If a file cannot be read, the others are still written.
pub(super) fn run(args: &CatArgs) -> Result<(), Failure> {
    logging::to_stderr_with(&args.verbose);
    let out = stdout()?;
    let copier = Copier {
        threads: 1,
        piece_size: PIECE_SIZE,
        bar: ProgressBar::hidden(),
        interrupted: Arc::default(),
    };
    visit(
        &args.source,
        &args.paths,
        &args.source_args.options()?.without_bounds(),
        |found, _| match found.node {
            Node::File(file) => {
                copier.copy(&*file, found.path, &|_| Ok(0), &|_, bytes| out.write_bytes(bytes))?;
                Ok(())
            }
            _ => Err(Stop::Failed(failed(found.shown(), "is a directory"))),
        },
    )
}
