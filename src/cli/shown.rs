//! What of SOURCE is shown: the options that `mount` and `serve` have in common.

use super::source::OpenOptions;
use super::{Failure, TreeArgs};
use crate::export;
use crate::storage::location::Location;
use clap::Args;

/// Default threads for object stores, where each request may wait for the network.
const REMOTE_THREADS: usize = 32;

/// The options of a command that shows the tree to other programs.
#[derive(Debug, Args)]
pub(super) struct ShownArgs {
    #[command(flatten)]
    tree: TreeArgs,
    /// List `at`, the directory of past states, in the directory of each array
    #[arg(long)]
    show_at: bool,
    /// Limit of a `table.csv`, in rows times columns: finding its length takes writing all of it once
    #[arg(long, value_name = "N", default_value_t = export::ExportOptions::default().csv_values)]
    csv_values: u64,
    /// Leave exports (`table.csv` and other files made of columns) out of listings, for copying whole trees
    #[arg(long)]
    hide_exports: bool,
    /// Threads that answer requests [default: one per core, 2 to 16; 32 for `serve` and object stores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

impl ShownArgs {
    /// The options for opening SOURCE. Fails if a key file cannot be read.
    pub(super) fn options(&self) -> Result<OpenOptions, Failure> {
        let mut options = self.tree.options()?;
        options.tree.show_at = self.show_at;
        options.tree.exports = export::ExportOptions {
            hide: self.hide_exports,
            csv_values: self.csv_values,
        };
        Ok(options)
    }

    /// The number of threads that answer requests; `local` of them by default for a source of this machine.
    pub(super) fn threads(&self, source: &Location, local: usize) -> usize {
        let default = match source {
            Location::Local(_) => local,
            Location::Remote(_) => REMOTE_THREADS,
        };
        self.threads.map_or(default, usize::from)
    }
}
