//! The options of `-o`.
//!
//! There are three kinds: options for tiledbfs, FUSE and the kernel ([`MountFlags`]); options for /etc/fstab,
//! mount(8) or file systems in general, which are ignored; and long options of `tiledbfs mount`, written with
//! `_` or `-` ([`take_long_options`]).

use super::Failure;
use crate::fuse::Access;
use crate::printable::escape;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The options of `-o` that are not long options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// `allow_other`, `allow_root` or neither.
    pub access: Access,
    /// `auto_unmount`.
    pub auto_unmount: bool,
    /// `noexec`.
    pub no_exec: bool,
    /// `noatime`.
    pub no_atime: bool,
    /// `fsname=`.
    pub fs_name: Option<OsString>,
    /// `subtype=`.
    pub subtype: Option<String>,
    /// `nofail`.
    pub no_fail: bool,
    /// `remount`.
    pub remount: bool,
    /// Warnings about options that have no effect.
    pub warnings: Vec<String>,
}

/// Splits comma-separated lists of options. Double quotes, or a backslash in front, protect a comma. Removes
/// the quotes, and backslashes before a comma, a quote or a backslash.
pub fn split_lists(lists: &[OsString]) -> Vec<OsString> {
    let mut options = Vec::new();
    for list in lists {
        let mut option = Vec::new();
        let mut quoted = false;
        let mut bytes = list.as_bytes().iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match (byte, bytes.peek()) {
                (b'\\', Some(next @ (b',' | b'"' | b'\\'))) => {
                    option.push(*next);
                    bytes.next();
                }
                (b'"', _) => quoted = !quoted,
                (b',', _) if !quoted => options.push(std::mem::take(&mut option)),
                _ => option.push(byte),
            }
        }
        options.push(option);
    }
    let options = options.iter().map(|option| option.trim_ascii_start());
    options
        .filter(|option| !option.is_empty())
        .map(|option| OsString::from_vec(option.to_vec()))
        .collect()
}

/// Moves the long options of `command` from `options` to the returned arguments. Fails if a value is missing.
pub fn take_long_options(options: &mut Vec<OsString>, command: &Command) -> Result<Vec<OsString>, Failure> {
    let mut arguments = Vec::new();
    let mut rest = Vec::new();
    for option in std::mem::take(options) {
        let (name, value) = split_value(&option);
        let long = name.replace('_', "-");
        let known = command
            .get_arguments()
            .find(|argument| !argument.is_hide_set() && argument.get_long() == Some(&long));
        match known {
            Some(argument) if argument.get_action().takes_values() && value.is_none() => {
                return Err(Failure::usage(format!("mount option `{name}` needs a value")));
            }
            Some(_) => {
                let mut argument = OsString::from(format!("--{long}"));
                if let Some(value) = value {
                    argument.push("=");
                    argument.push(value);
                }
                arguments.push(argument);
            }
            None => rest.push(option),
        }
    }
    *options = rest;
    Ok(arguments)
}

fn split_value(option: &OsStr) -> (String, Option<&OsStr>) {
    let bytes = option.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (name, value.map(OsStr::from_bytes))
}

/// Parses the other `options`. Later ones win. Unknown ones are an error, or if `sloppy` a warning.
pub fn parse_mount_options(options: &[OsString], sloppy: bool) -> Result<MountFlags, Failure> {
    let mut flags = MountFlags::default();
    let mut read_write = false;
    for option in options {
        let (name, value) = split_value(option);
        let name = name.as_str();
        match (name, value) {
            ("ro", None) => read_write = false,
            ("rw", None) => read_write = true,
            ("nofail", None) => flags.no_fail = true,
            ("remount", None) => flags.remount = true,
            // Always on, or never.
            ("nosuid" | "suid" | "nodev" | "dev" | "default_permissions", None) => {}
            // For mount(8) and /etc/fstab, or only relevant for writing.
            (
                "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "nousers" | "owner"
                | "noowner" | "group" | "nogroup" | "_netdev" | "async" | "sync" | "dirsync" | "relatime"
                | "norelatime" | "diratime" | "nodiratime" | "strictatime" | "nostrictatime" | "lazytime"
                | "nolazytime" | "iversion" | "noiversion" | "mand" | "nomand" | "silent" | "loud" | "quota"
                | "noquota" | "usrquota" | "grpquota",
                None,
            ) => {}
            // Files belong to the mounting user.
            ("uid" | "gid" | "user" | "comment" | "helper" | "uhelper", Some(_)) => {}
            // From the mount table, where mount(8) takes the options for a remount.
            ("user_id" | "group_id" | "rootmode" | "max_read", Some(_)) => {}
            (name, _) if name.starts_with("x-") || name.starts_with("X-") => {}
            ("allow_other", None) => set_access(&mut flags, Access::All)?,
            ("allow_root", None) => set_access(&mut flags, Access::OwnerAndRoot)?,
            ("auto_unmount", None) => flags.auto_unmount = true,
            ("noexec", None) => flags.no_exec = true,
            ("exec", None) => flags.no_exec = false,
            ("noatime", None) => flags.no_atime = true,
            ("atime", None) => flags.no_atime = false,
            ("fsname", Some(value)) if !value.is_empty() => flags.fs_name = Some(value.to_owned()),
            ("subtype", Some(value)) if is_subtype(value) => {
                flags.subtype = Some(value.to_string_lossy().into_owned())
            }
            ("fsname" | "subtype", _) => {
                return Err(Failure::usage(format!(
                    "mount option `{name}` needs a name: {name}=NAME"
                )));
            }
            (
                "ro"
                | "rw"
                | "remount"
                | "nosuid"
                | "suid"
                | "nodev"
                | "dev"
                | "default_permissions"
                | "allow_other"
                | "allow_root"
                | "auto_unmount"
                | "noexec"
                | "exec"
                | "noatime"
                | "atime",
                Some(_),
            ) => return Err(Failure::usage(format!("mount option `{name}` takes no value"))),
            _ if sloppy => {
                let option = escape(option.as_bytes());
                flags
                    .warnings
                    .push(format!("unknown mount option `{option}` is ignored"));
            }
            _ => {
                return Err(Failure::usage(format!(
                    "unknown mount option `{}` (see `tiledbfs help mount`)",
                    escape(option.as_bytes())
                )));
            }
        }
    }
    if read_write {
        let warning = "mount option `rw` is ignored: tiledbfs mounts are read-only";
        flags.warnings.push(warning.to_owned());
    }
    Ok(flags)
}

fn is_subtype(value: &OsStr) -> bool {
    value
        .to_str()
        .is_some_and(|name| !name.is_empty() && !name.contains(['.', '\\', ' ', ',']))
}

fn set_access(flags: &mut MountFlags, access: Access) -> Result<(), Failure> {
    if flags.access != Access::Owner && flags.access != access {
        return Err(Failure::usage(
            "the mount options `allow_other` and `allow_root` exclude each other",
        ));
    }
    flags.access = access;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountFlags, Failure> {
        parse_mount_options(&split_lists(&[list.into()]), false)
    }

    #[test]
    fn lists_are_split() {
        let split = |list: &str| split_lists(&[list.into()]);
        assert_eq!(split("a,b=1, c,,"), ["a", "b=1", "c"]);
        assert_eq!(split(r#"k="/a, b",x"#), ["k=/a, b", "x"]);
        assert_eq!(split(r"k=/a\,b\\c\d\"), [r"k=/a,b\c\d\"]);
        let bytes = OsStr::from_bytes(b"k=\xff,b").to_owned();
        assert_eq!(split_lists(&[bytes, "c".into()])[0].as_bytes(), b"k=\xff");
        assert!(split_lists(&[]).is_empty());
    }

    #[test]
    fn known_options_are_parsed() {
        assert_eq!(parse("").unwrap(), MountFlags::default());
        for list in [
            "ro,nodev,nosuid,defaults,noauto,user,_netdev,x-systemd.automount,x-a=b,exec",
            "rw,dev,suid,ro,user=joe,users,owner,group,uid=1000,gid=100,comment=x,relatime,sync,auto",
            "ro,nosuid,nodev,relatime,user_id=0,group_id=0,default_permissions,max_read=1048576",
        ] {
            assert_eq!(parse(list).unwrap(), MountFlags::default(), "{list}");
        }
        let flags = parse_mount_options(
            &split_lists(&["allow_other,noexec".into(), "fsname=a=b,noatime".into()]),
            false,
        );
        let wanted = MountFlags {
            access: Access::All,
            no_exec: true,
            no_atime: true,
            fs_name: Some("a=b".into()),
            ..MountFlags::default()
        };
        assert_eq!(flags.unwrap(), wanted);
        assert_eq!(parse("allow_root").unwrap().access, Access::OwnerAndRoot);
        assert!(parse("auto_unmount").unwrap().auto_unmount);
        assert!(parse("remount,ro").unwrap().remount);
        assert!(parse("nofail").unwrap().no_fail);
    }

    #[test]
    fn rw_gives_one_warning() {
        for list in ["rw", "rw,dev,suid", "ro,rw,rw"] {
            let warnings = parse(list).unwrap().warnings;
            assert_eq!(warnings.len(), 1, "{list}: {warnings:?}");
            assert!(warnings[0].contains("read-only"), "{warnings:?}");
        }
        assert!(parse("rw,ro").unwrap().warnings.is_empty());
    }

    #[test]
    fn invalid_options_are_refused() {
        for (list, part) in [
            ("ro,foo", "unknown mount option `foo`"),
            ("foo=1", "unknown mount option `foo=1`"),
            ("allow_other,allow_root", "exclude each other"),
            ("fsname", "needs a name"),
            ("subtype=", "needs a name"),
            ("noexec=1", "takes no value"),
            ("rw=1", "takes no value"),
        ] {
            let failure = parse(list).unwrap_err();
            assert_eq!(failure.code, 2);
            assert!(failure.message.contains(part), "{}", failure.message);
        }
        let sloppy = parse_mount_options(&["foo=1".into(), "noexec".into()], true).unwrap();
        assert!(sloppy.no_exec);
        assert_eq!(sloppy.warnings, ["unknown mount option `foo=1` is ignored"]);
    }

    #[test]
    fn long_options_become_arguments() {
        use clap::{Arg, ArgAction};
        let command = Command::new("mount")
            .arg(Arg::new("a").long("cache-size"))
            .arg(Arg::new("b").long("follow-symlinks").action(ArgAction::SetTrue))
            .arg(Arg::new("c").long("hidden").hide(true));
        let mut options = split_lists(&["ro,cache_size=1G,follow_symlinks,cache-size=2G,hidden=1".into()]);
        let taken = take_long_options(&mut options, &command).unwrap();
        assert_eq!(taken, ["--cache-size=1G", "--follow-symlinks", "--cache-size=2G"]);
        assert_eq!(options, ["ro", "hidden=1"]);
        let failure = take_long_options(&mut vec!["cache_size".into()], &command).unwrap_err();
        assert!(failure.message.contains("needs a value"), "{}", failure.message);
    }
}
