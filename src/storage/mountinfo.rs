//! The kernel's mount table, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
#[cfg(feature = "mount")]
use std::path::Path;
use std::path::PathBuf;

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// Unique among current mounts.
    pub id: u64,
    /// Major and minor device number, as in `st_dev` of its files.
    pub device: (u32, u32),
    /// The mount point.
    pub mount_point: PathBuf,
    /// Its type, such as `ext4` or `fuse.tiledbfs`.
    pub fs_type: String,
    /// The source, as the file system calls it.
    pub source: OsString,
    /// The options of the file system, separated by commas.
    pub options: String,
}

/// All mounts that this process sees; a mount comes after those that it covers.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The uppermost mount at exactly `path`, which must be canonical.
#[cfg(feature = "mount")]
pub fn mounted_at(path: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?.into_iter().rfind(|mount| mount.mount_point == path))
}

/// The mount that contains `path`, which must be canonical. Does not access the file system.
#[cfg(feature = "mount")]
pub fn mounted_above(path: &Path) -> io::Result<Option<MountEntry>> {
    Ok(mounts()?
        .into_iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.as_os_str().len()))
}

/// Parses the table; skips malformed lines.
pub(super) fn parse(table: &[u8]) -> Vec<MountEntry> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// Parses a line like `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`. The
/// number of fields before the dash varies.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let device = fields.next()?;
    let colon = device.iter().position(|byte| *byte == b':')?;
    let (major, minor) = (device.get(..colon)?, device.get(colon.checked_add(1)?..)?);
    let _root = fields.next()?;
    let mount_point = unescape(fields.next()?);
    fields.find(|field| *field == b"-")?;
    Some(MountEntry {
        id,
        device: (
            u32::try_from(number(major)?).ok()?,
            u32::try_from(number(minor)?).ok()?,
        ),
        mount_point: PathBuf::from(mount_point),
        fs_type: String::from_utf8_lossy(fields.next()?).into_owned(),
        source: unescape(fields.next()?),
        options: String::from_utf8_lossy(fields.next()?).into_owned(),
    })
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Decodes octal escapes, such as `\040` for a space.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = rest.get(1..4).filter(|_| *first == b'\\').and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        });
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &rest[4..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_table_is_parsed() {
        let table = b"36 35 98:0 / / rw,noatime master:1 shared:2 - ext3 /dev/root rw\n\
            40 36 0:52 / /mnt/a\\040b\\134c ro,nosuid - fuse.tiledbfs /data/my\\040array ro,user_id=0\n\
            nonsense\n41 36 0:53 / /x rw\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].id, mounts[0].device), (36, (98, 0)));
        assert_eq!(mounts[0].mount_point, Path::new("/"));
        assert_eq!(mounts[1].mount_point, Path::new("/mnt/a b\\c"));
        assert_eq!(mounts[1].fs_type, "fuse.tiledbfs");
        assert_eq!(mounts[1].source, "/data/my array");
        assert_eq!(mounts[1].options, "ro,user_id=0");
    }

    #[cfg(feature = "mount")]
    #[test]
    fn mounts_are_found_by_path() {
        assert!(mounted_at(Path::new("/")).unwrap().is_some());
        assert!(mounted_at(Path::new("/no such mount")).unwrap().is_none());
        let proc = mounted_above(Path::new("/proc/1/status")).unwrap().unwrap();
        assert!(proc.mount_point.starts_with("/proc"));
    }
}
