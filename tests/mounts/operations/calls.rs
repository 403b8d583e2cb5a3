//! A system call and its result.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The result of a call: a number, or an errno.
pub type Answer = Result<i64, i32>;

/// The target of a call.
pub struct On<'a> {
    pub path: &'a Path,
    /// A missing name beside it, or in it if it is a directory.
    pub new: &'a Path,
    /// Another file of the same file system, and a directory outside of it.
    pub other: &'a Path,
    pub outside: &'a Path,
}

pub type Call = fn(&On) -> Answer;

pub fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

pub fn answer(result: impl Into<i64>) -> Answer {
    match result.into() {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        value => Ok(value),
    }
}

pub fn io<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

/// Opens the path with `flags`.
pub fn open(path: &Path, flags: i32) -> Result<File, i32> {
    // SAFETY: the path is a C string; the descriptor is new and has no other owner.
    unsafe {
        let fd = answer(libc::open(c(path).as_ptr(), flags | libc::O_CLOEXEC, 0o644))?;
        Ok(std::os::fd::FromRawFd::from_raw_fd(fd as RawFd))
    }
}

pub fn opened(path: &Path, flags: i32) -> Answer {
    open(path, flags).map(|_| 0)
}

/// Runs `call` on a descriptor of the path, open for reading.
pub fn with_fd(on: &On, call: impl FnOnce(RawFd) -> i64) -> Answer {
    let file = open(on.path, libc::O_RDONLY)?;
    answer(call(file.as_raw_fd()))
}

pub fn rename2(from: &Path, to: &Path, flags: libc::c_uint) -> Answer {
    // SAFETY: the paths are C strings.
    answer(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            c(from).as_ptr(),
            libc::AT_FDCWD,
            c(to).as_ptr(),
            flags,
        )
    })
}

pub fn outside_file(on: &On) -> File {
    let path = on.outside.join("file");
    fs::write(&path, vec![1; 10_000]).unwrap();
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Request numbers, made by `_IOW('f', 2, long)` and the like.
pub const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
pub const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
pub const FICLONE: u64 = 0x4004_9409;
pub const FIDEDUPERANGE: u64 = 0xc018_9436;
pub const FITRIM: u64 = 0xc018_5879;
pub const FIGETBSZ: u64 = 2;
pub const FIBMAP: u64 = 1;
pub const FS_IOC_FIEMAP: u64 = 0xc020_660b;
pub const BLKGETSIZE: u64 = 0x1260;

pub fn ioctl(on: &On, request: u64) -> Answer {
    let mut value = [0_u64; 64];
    with_fd(on, |fd| {
        // SAFETY: none of these requests reads or writes more bytes than the value has.
        i64::from(unsafe { libc::ioctl(fd, request, value.as_mut_ptr()) })
    })
}

pub fn fallocate(on: &On, mode: i32) -> Answer {
    // SAFETY: no pointers.
    with_fd(on, |fd| i64::from(unsafe { libc::fallocate(fd, mode, 0, 4096) }))
}
