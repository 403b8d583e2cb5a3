//! Arguments, daemon, signals and messages.
//!
//! Each failure is one line on stderr that begins with `tiledbfs: `. The exit code is 2 for invalid
//! arguments, else 1. `tiledbfs check` has its own exit codes.
//!
//! | module | |
//! |---|---|
//! | `mount`, `daemon`, `unmount` | `mount` and `unmount`, and the process in the background |
//! | `mount_options`, `helper` | what stands in /etc/fstab, and how mount(8) calls the program |
//! | `ls`, `cat`, `copy`, `info`, `check`, `serve` | the commands of these names; `copy` is `cp` |
//! | `copier` | how `cat` and `cp` read a file |
//! | `man` | the manual and the completions of shells |
//! | `source`, `paths` | SOURCE is opened; PATH is looked up in its tree |
//! | `options`, `shown`, `times` | arguments that several commands have, and dates |
//! | `output`, `logging` | stdout, failures, the log |
//! | `memory` | how much memory the cache may take |

mod cat;
mod check;
mod copier;
mod copy;
mod daemon;
mod helper;
mod info;
mod logging;
mod ls;
mod man;
mod memory;
mod mount;
pub mod mount_options;
pub mod options;
mod output;
mod paths;
#[cfg(feature = "serve")]
mod serve;
mod shown;
mod source;
mod times;
mod unmount;

use crate::format::MAX_VERSION;
use crate::fuse::SUBTYPE;
use crate::printable::escape;
use crate::storage::mountinfo;
use crate::tree::TreeOptions;
use crate::tree::times::Asked;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::LazyLock;

use output::{close_stdout, finish, stdout};
use source::OpenOptions;

/// Mounts TileDB arrays and shows them as plain files.
#[derive(Debug, Parser)]
#[command(name = "tiledbfs", max_term_width = 80, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tiledbfs mount ~/arrays /mnt/arrays    mount every array below ~/arrays
  jq '.attributes[].name' /mnt/arrays/a/schema.json
  tiledbfs unmount /mnt/arrays
  tiledbfs ls -l my_array/fragments      list files without mounting
  tiledbfs cat my_array/schema.json | jq .
  tiledbfs info my_array                 describe it on one screen
  tiledbfs cp -r my_array/schemas /tmp
  tiledbfs check ~/arrays                look for damage
  tiledbfs mount s3://bucket/arrays /mnt/arrays
  tiledbfs serve ~/arrays                show it at http://127.0.0.1:8470/

Run `tiledbfs help COMMAND` for the options of a command.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Mount an array, a group, or a directory that holds any of these
    #[command(after_help = mount::HELP, args_override_self = true)]
    Mount(mount::MountArgs),
    /// Unmount a mount of `tiledbfs mount`, even a dead one
    #[command(alias = "umount")]
    Unmount(UnmountArgs),
    /// List directories of the tree without mounting it
    #[command(after_help = ls::EXAMPLES)]
    Ls(ls::LsArgs),
    /// Write files of the tree to stdout without mounting it
    #[command(after_help = cat::EXAMPLES)]
    Cat(cat::CatArgs),
    /// Copy files and directories of the tree without mounting it
    #[command(after_help = copy::HELP)]
    Cp(copy::CopyArgs),
    /// Describe an array, or list what is in a group or directory
    #[command(after_help = info::HELP)]
    Info(info::InfoArgs),
    /// Decode everything without mounting it, and list what is wrong
    #[command(after_help = check::HELP)]
    Check(check::CheckArgs),
    /// Serve the tree over HTTP, to browsers, WebDAV clients and notebooks
    #[cfg(feature = "serve")]
    #[command(after_help = serve::HELP)]
    Serve(serve::ServeArgs),
    /// Write a shell's completion script to stdout
    #[command(after_help = man::COMPLETIONS_HELP)]
    Completions(man::CompletionsArgs),
    /// Write the manual pages of all commands
    Man(man::ManArgs),
}

/// Options for opening SOURCE.
#[derive(Debug, Args)]
struct SourceArgs {
    /// Limit of the cache of decoded data, in bytes or with a suffix K, M, G or T (powers of 1024)
    /// [default: 256M, or a quarter of the memory that this process may take if that is less]
    #[arg(long, value_name = "BYTES", value_parser = options::parse_cache_size)]
    cache_size: Option<u64>,
    /// The key of encrypted arrays: a file of 32 raw bytes or 64 hexadecimal digits
    ///
    /// FILE is for all arrays of SOURCE; PATH=FILE for the arrays at and below PATH, which is relative to
    /// SOURCE. May be given several times. For a file whose name contains `=`, write `=FILE`.
    #[arg(long, value_name = "[PATH=]FILE", value_hint = ValueHint::FilePath)]
    key_file: Vec<OsString>,
    /// Follow symbolic links in SOURCE that lead out of it
    #[arg(long)]
    follow_symlinks: bool,
    #[cfg(feature = "remote")]
    #[command(flatten)]
    remote: source::RemoteArgs,
}

/// Options for opening the tree of SOURCE.
#[derive(Debug, Args)]
struct TreeArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Show everything as of TIME: a full or partial time like `2025-02-04T12:30`, or milliseconds since 1970
    ///
    /// If SOURCE is an array, TIME may also be a pin, the name of one of its states: `pin` in `view.json`.
    #[arg(long, value_name = "TIME", value_parser = options::parse_time)]
    at: Option<Asked>,
}

#[derive(Debug, Args)]
struct UnmountArgs {
    /// The directory that it is mounted on
    #[arg(value_hint = ValueHint::DirPath)]
    mountpoint: PathBuf,
    /// Unmount even while it is in use; open files stay readable until they are closed
    #[arg(short, long)]
    lazy: bool,
}

/// Why the program fails.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure {
            code: 1,
            message: message.into(),
        }
    }

    /// Invalid arguments, with exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure {
            code: 2,
            message: message.into(),
        }
    }

    /// Writes one line to stderr.
    fn show(&self) {
        complain(format_args!("tiledbfs: {}", escape(&self.message)));
    }
}

/// Writes a line to stderr. Where nobody reads it, the exit code tells.
fn complain(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The definition of all arguments.
fn command() -> clap::Command {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{}\nreads TileDB format versions 1 to {MAX_VERSION}",
            env!("CARGO_PKG_VERSION")
        )
    });
    Cli::command().version(VERSION.as_str())
}

/// Runs the program on the arguments of this process.
pub fn main() -> ExitCode {
    let command = command();
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let is_command = |name: &OsStr| name == "help" || command.find_subcommand(name).is_some();
    let is_helper = helper::is_called(&arguments, is_command);
    if is_helper {
        arguments = helper::translate(&arguments).unwrap_or_else(|error| helper::stop(error, &arguments));
    }
    configure_allocator();
    raise_file_limit();
    let result = parse(&command, &arguments).and_then(|cli| match cli.command {
        Command::Mount(args) => success(mount::run(&args, &arguments)),
        Command::Unmount(args) => success(unmount::run(&args.mountpoint, args.lazy)),
        Command::Ls(args) => success(ls::run(&args)),
        Command::Cat(args) => success(cat::run(&args)),
        Command::Cp(args) => success(copy::run(&args)),
        Command::Info(args) => success(info::run(&args)),
        Command::Check(args) => check::run(&args),
        #[cfg(feature = "serve")]
        Command::Serve(args) => success(serve::run(&args)),
        Command::Completions(args) => success(man::completions(&args, command)),
        Command::Man(args) => success(man::run(&args, command)),
    });
    match result {
        Ok(code) => code,
        Err(failure) => {
            failure.show();
            ExitCode::from(if is_helper {
                helper::exit_code(failure.code)
            } else {
                failure.code
            })
        }
    }
}

/// Parses a command line. Long options of `mount` may also be in `-o`; direct ones override them.
fn parse(command: &clap::Command, arguments: &[OsString]) -> Result<Cli, Failure> {
    let from = |arguments: &[OsString]| {
        let matches = command.clone().try_get_matches_from(arguments)?;
        Cli::from_arg_matches(&matches)
    };
    // The same error about arguments that a terminal can show.
    let refused = |error, arguments: &[OsString]| from(&escaped(arguments)).err().unwrap_or(error);
    let mut cli = match from(arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => refused(error, arguments).exit(),
        Err(help) => {
            finish(stdout()?.print(&help))?;
            close_stdout()?;
            std::process::exit(0);
        }
    };
    if let (Command::Mount(args), Some(mount)) = (&cli.command, command.find_subcommand("mount")) {
        let mut options = mount_options::split_lists(&args.options);
        let long_options = mount_options::take_long_options(&mut options, mount)?;
        let mut flags = mount_options::parse_mount_options(&options, args.sloppy)?;
        if flags.remount && !long_options.is_empty() {
            let warning =
                "mount option `remount`: only the kernel's options change, all others stay as mounted";
            flags.warnings.push(warning.to_owned());
        }
        let mut arguments = arguments.to_vec();
        let subcommand = arguments.len().min(2);
        arguments.splice(subcommand..subcommand, long_options);
        cli = from(&arguments).map_err(|error| {
            let text = refused(error, &arguments).to_string();
            // All but the advice behind an empty line.
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let line = lines.collect::<Vec<_>>().join(" ");
            Failure::usage(line.strip_prefix("error: ").unwrap_or(&line))
        })?;
        if let Command::Mount(args) = &mut cli.command {
            args.flags = flags;
        }
    }
    Ok(cli)
}

/// Arguments as a terminal can show them; see [`escape`].
fn escaped(arguments: &[OsString]) -> Vec<OsString> {
    let arguments = arguments.iter();
    arguments
        .map(|argument| escape(argument.as_bytes()).into())
        .collect()
}

/// The exit code of a command: 0, unless it failed or what it wrote to stdout is lost.
fn success(result: Result<(), Failure>) -> Result<ExitCode, Failure> {
    result.and_then(|()| close_stdout()).map(|()| ExitCode::SUCCESS)
}

/// Makes all threads share one heap, because some threads fill the cache and others empty it. With a heap per
/// thread, reads of 256 MiB were no faster and took 15 to 30 % more memory. Large allocations go back to the
/// system.
fn configure_allocator() {
    #[cfg(target_env = "gnu")]
    for (setting, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 4 << 20),
        (libc::M_TRIM_THRESHOLD, 16 << 20),
    ] {
        // SAFETY: takes two numbers, and no other thread runs yet.
        if unsafe { libc::mallopt(setting, value) } == 0 {
            log::info!("the allocator does not accept setting {setting}");
        }
    }
}

/// Raises the soft limit of open files to the hard limit.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        log::info!("the limit of open files stays at {soft}: {error}");
    }
}

impl SourceArgs {
    /// Reads the key files. Fails if one cannot be read or is not a key.
    fn options(&self) -> Result<OpenOptions, Failure> {
        Ok(OpenOptions {
            tree: TreeOptions {
                cache_size: self.cache_size.unwrap_or_else(memory::default_cache_size),
                keys: options::read_keys(&self.key_file)?,
                follow_symlinks: self.follow_symlinks,
                ..TreeOptions::default()
            },
            #[cfg(feature = "remote")]
            remote: self.remote.clone(),
        })
    }
}

impl TreeArgs {
    /// The options of [`SourceArgs::options`], with the time.
    fn options(&self) -> Result<OpenOptions, Failure> {
        let mut options = self.source.options()?;
        options.tree.at = self.at;
        Ok(options)
    }
}

/// A path for messages; see [`escape`].
fn show_path(path: &Path) -> String {
    escape(path.as_os_str().as_bytes())
}

/// The message for ENOTCONN at a path: the daemon of its mount has died.
fn stale(path: &Path) -> String {
    let cause = format!(
        "{}: Transport endpoint is not connected: the process that served this mount is gone",
        show_path(path)
    );
    let mount = unmount::resolve(path)
        .ok()
        .and_then(|path| mountinfo::mounted_above(&path).ok().flatten());
    match mount {
        Some(mount) if mount.fs_type == format!("fuse.{SUBTYPE}") => {
            format!(
                "{cause}; run `tiledbfs unmount {}`",
                show_path(&mount.mount_point)
            )
        }
        Some(mount) => format!("{cause}; run `umount {}`", show_path(&mount.mount_point)),
        None => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        let mut root = Cli::command();
        root.build();
        let mut commands = vec![root.clone()];
        commands.extend(root.get_subcommands().cloned());
        assert!(commands.len() > 5);
        for mut command in commands {
            let source = [command.get_after_help(), command.get_after_long_help()];
            let written: String = source.iter().flatten().map(|text| format!("{text}\n")).collect();
            let short = command.render_help().to_string();
            let long = command.render_long_help().to_string();
            // Also as written, because wrapping would break tables.
            for line in [&short, &long, &written]
                .into_iter()
                .flat_map(|text| text.lines())
            {
                let width = line.chars().count();
                assert!(width <= 80, "{}: {width} columns: {line}", command.get_name());
            }
        }
    }
}
