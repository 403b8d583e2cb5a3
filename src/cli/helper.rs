//! The program as a mount(8) helper, for /etc/fstab and `mount -t tiledbfs`.
//!
//! mount(8) runs `mount.TYPE SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]`, where `mount.TYPE` is a link
//! to this program. Without the link, for the type `fuse.tiledbfs`, it runs `mount.fuse`, which runs
//! `tiledbfs SOURCE MOUNTPOINT -o OPTIONS`.

use super::escaped;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mounts TileDB arrays for mount(8); see tiledbfs-mount(1)
#[derive(Debug, Parser)]
#[command(name = "mount.tiledbfs")]
pub(super) struct HelperArgs {
    /// An array, a group, or a directory that holds any of these at any depth
    source: OsString,
    /// An empty directory
    mountpoint: OsString,
    /// Do everything except mounting
    #[arg(short)]
    fake: bool,
    /// Ignore unknown mount options
    #[arg(short)]
    sloppy: bool,
    /// Do not write /etc/mtab, which is never written anyway
    #[arg(short)]
    no_mtab: bool,
    /// Log more
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Mount options
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// The file system type (ignored)
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<OsString>,
}

/// Link names that make the program a helper, whatever its arguments.
const HELPER_NAMES: [&str; 2] = ["mount.tiledbfs", "mount.fuse.tiledbfs"];

/// Whether the command line `arguments` is that of a helper: by the program's name, or because the first
/// argument is a URL or path instead of a subcommand.
pub(super) fn is_called(arguments: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    let program = arguments.first().and_then(|name| Path::new(name).file_name());
    if program.is_some_and(|name| HELPER_NAMES.iter().any(|known| name == *known)) {
        return true;
    }
    match arguments {
        [_, source, mountpoint, ..] => {
            let is_option = |argument: &OsStr| argument.as_bytes().starts_with(b"-");
            !is_option(source)
                && !is_option(mountpoint)
                && !is_command(source)
                && (source.as_bytes().contains(&b'/') || Path::new(source).exists())
        }
        _ => false,
    }
}

/// Translates a helper's command line into one of `tiledbfs mount`.
pub(super) fn translate(arguments: &[OsString]) -> Result<Vec<OsString>, clap::Error> {
    let matches = HelperArgs::command().try_get_matches_from(arguments)?;
    let HelperArgs {
        source,
        mountpoint,
        fake,
        sloppy,
        no_mtab: _,
        verbose,
        options,
        fs_type: _,
    } = HelperArgs::from_arg_matches(&matches)?;
    let mut out: Vec<OsString> = vec!["tiledbfs".into(), "mount".into()];
    for (wanted, flag) in [(fake, "--fake"), (sloppy, "--sloppy")] {
        if wanted {
            out.push(flag.into());
        }
    }
    out.extend((0..verbose).map(|_| "-v".into()));
    out.extend(options.into_iter().flat_map(|list| ["-o".into(), list]));
    out.extend(["--".into(), source, mountpoint]);
    Ok(out)
}

/// Prints the error of `arguments`, or the help text, and ends the process.
pub(super) fn stop(error: clap::Error, arguments: &[OsString]) -> ! {
    let error = translate(&escaped(arguments)).err().unwrap_or(error);
    let _ = error.print();
    std::process::exit(if error.use_stderr() {
        i32::from(exit_code(2))
    } else {
        0
    })
}

/// The exit code for mount(8): 1 for wrong options, 32 for a failed mount.
pub(super) fn exit_code(code: u8) -> u8 {
    if code == 2 { 1 } else { 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn helper_command_lines_are_recognized() {
        let is_called = |line: &str| is_called(&words(line), |word| word == "mount" || word == "ls");
        for line in [
            "mount.tiledbfs",
            "/sbin/mount.fuse.tiledbfs a b -o ro",
            "tiledbfs /a /b",
            "/usr/bin/tiledbfs src /b -o ro,dev",
            "tiledbfs s3://bucket/a /b",
        ] {
            assert!(is_called(line), "{line}");
        }
        for line in [
            "tiledbfs",
            "tiledbfs mount a b",
            "tiledbfs ls /a /b",
            "tiledbfs lss /b",
            "tiledbfs /a",
            "tiledbfs /a --help",
            "tiledbfs --version /a /b",
        ] {
            assert!(!is_called(line), "{line}");
        }
    }

    #[test]
    fn helper_command_lines_are_translated() {
        let translate = |line: &str| translate(&words(line)).map(|out| out.join(OsStr::new(" ")));
        assert_eq!(
            translate("mount.tiledbfs /a b -sfnvv -o ro,dev -t fuse.tiledbfs -o x=1").unwrap(),
            "tiledbfs mount --fake --sloppy -v -v -o ro,dev -o x=1 -- /a b"
        );
        assert_eq!(translate("tiledbfs /a /b").unwrap(), "tiledbfs mount -- /a /b");
        assert!(translate("mount.tiledbfs /a").is_err());
        assert!(translate("mount.tiledbfs /a /b /c").is_err());
    }
}
