//! Every call on every kind of path, held against what a file system of the kernel answers that is mounted read only: a tmpfs with
//! copies of the same files.
//!
//! Run as root, which no permission keeps from trying.

mod common;

use nix::mount::{MntFlags, MsFlags, umount2};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use tempfile::TempDir;
use tiledbfs::fuse::{FileSystem, MountOptions, Mounted, mount};
use tiledbfs::tree::{Options, Tree};

const FRAGMENT: &str = "weather/fragments/__1738627200000_1738627200000_12a9d2c87a64a9e71f8f6dee40a07abf_22";

/// What a call gives: a number, or an errno.
type Answer = Result<i64, i32>;

/// What a call is made on.
struct On<'a> {
    path: &'a Path,
    /// A name beside it, or in it where it is a directory, that does not exist.
    new: &'a Path,
    /// Another file of the same file system, and a directory outside of it.
    other: &'a Path,
    outside: &'a Path,
}

type Call = fn(&On) -> Answer;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn answer(result: impl Into<i64>) -> Answer {
    match result.into() {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap()),
        value => Ok(value),
    }
}

fn io<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

/// Opens for reading, or as `flags` say.
fn open(path: &Path, flags: i32) -> Result<File, i32> {
    // SAFETY: the path is a C string; the descriptor is new, and nobody else's.
    unsafe {
        let fd = answer(libc::open(c(path).as_ptr(), flags | libc::O_CLOEXEC, 0o644))?;
        Ok(std::os::fd::FromRawFd::from_raw_fd(fd as RawFd))
    }
}

fn opened(path: &Path, flags: i32) -> Answer {
    open(path, flags).map(|_| 0)
}

/// Runs `call` on the descriptor of the path, open for reading.
fn with_fd(on: &On, call: impl FnOnce(RawFd) -> i64) -> Answer {
    let file = open(on.path, libc::O_RDONLY)?;
    answer(call(file.as_raw_fd()))
}

fn rename2(from: &Path, to: &Path, flags: libc::c_uint) -> Answer {
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

fn outside_file(on: &On) -> File {
    let path = on.outside.join("file");
    fs::write(&path, vec![1; 10_000]).unwrap();
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// `from` of `_IOW('f', 2, long)` and its like.
const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FICLONE: u64 = 0x4004_9409;
const FIDEDUPERANGE: u64 = 0xc018_9436;
const FITRIM: u64 = 0xc018_5879;
const FIGETBSZ: u64 = 2;
const FIBMAP: u64 = 1;
const FS_IOC_FIEMAP: u64 = 0xc020_660b;
const BLKGETSIZE: u64 = 0x1260;

fn ioctl(on: &On, request: u64) -> Answer {
    let mut value = [0_u64; 64];
    with_fd(on, |fd| {
        // SAFETY: no request of these takes or gives more than the value has.
        i64::from(unsafe { libc::ioctl(fd, request, value.as_mut_ptr()) })
    })
}

fn fallocate(on: &On, mode: i32) -> Answer {
    // SAFETY: no pointers.
    with_fd(on, |fd| i64::from(unsafe { libc::fallocate(fd, mode, 0, 4096) }))
}

fn set_xattr(on: &On, name: &std::ffi::CStr) -> Answer {
    // SAFETY: C strings, and a value of as many bytes as are said.
    answer(unsafe { libc::setxattr(c(on.path).as_ptr(), name.as_ptr(), c"v".as_ptr().cast(), 1, 0) })
}

/// What would change something. `fd` in a name: through a descriptor that is open for reading.
// SAFETY of all: paths and names are C strings, and structures live through the calls.
const MUTATIONS: &[(&str, Call)] = &[
    ("open O_WRONLY", |on| opened(on.path, libc::O_WRONLY)),
    ("open O_RDWR", |on| opened(on.path, libc::O_RDWR)),
    ("open O_WRONLY|O_APPEND", |on| {
        opened(on.path, libc::O_WRONLY | libc::O_APPEND)
    }),
    ("open O_WRONLY|O_TRUNC", |on| {
        opened(on.path, libc::O_WRONLY | libc::O_TRUNC)
    }),
    ("open O_RDONLY|O_TRUNC", |on| opened(on.path, libc::O_TRUNC)),
    ("open O_WRONLY|O_DIRECT", |on| {
        opened(on.path, libc::O_WRONLY | libc::O_DIRECT)
    }),
    ("open O_WRONLY|O_CREAT", |on| {
        opened(on.path, libc::O_WRONLY | libc::O_CREAT)
    }),
    ("open O_WRONLY|O_CREAT|O_EXCL", |on| {
        opened(on.path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)
    }),
    ("open O_TMPFILE", |on| {
        opened(on.path, libc::O_TMPFILE | libc::O_RDWR)
    }),
    ("create beside", |on| {
        opened(on.new, libc::O_WRONLY | libc::O_CREAT)
    }),
    ("create exclusively beside", |on| {
        opened(on.new, libc::O_RDONLY | libc::O_CREAT | libc::O_EXCL)
    }),
    ("creat", |on| {
        answer(unsafe { libc::creat(c(on.path).as_ptr(), 0o644) })
    }),
    ("mknod file", |on| {
        answer(unsafe { libc::mknod(c(on.new).as_ptr(), libc::S_IFREG | 0o644, 0) })
    }),
    ("mknod fifo", |on| {
        answer(unsafe { libc::mknod(c(on.new).as_ptr(), libc::S_IFIFO | 0o644, 0) })
    }),
    ("mknod device", |on| {
        answer(unsafe { libc::mknod(c(on.new).as_ptr(), libc::S_IFCHR | 0o644, libc::makedev(1, 3)) })
    }),
    ("mknod socket", |on| {
        answer(unsafe { libc::mknod(c(on.new).as_ptr(), libc::S_IFSOCK | 0o644, 0) })
    }),
    ("mknod there", |on| {
        answer(unsafe { libc::mknod(c(on.path).as_ptr(), libc::S_IFREG | 0o644, 0) })
    }),
    ("mkdir", |on| {
        answer(unsafe { libc::mkdir(c(on.new).as_ptr(), 0o755) })
    }),
    ("mkdir there", |on| {
        answer(unsafe { libc::mkdir(c(on.path).as_ptr(), 0o755) })
    }),
    ("rmdir", |on| answer(unsafe { libc::rmdir(c(on.path).as_ptr()) })),
    ("unlink", |on| {
        answer(unsafe { libc::unlink(c(on.path).as_ptr()) })
    }),
    ("rename within", |on| rename2(on.path, on.new, 0)),
    ("rename onto another", |on| rename2(on.path, on.other, 0)),
    ("rename from another", |on| rename2(on.other, on.path, 0)),
    ("rename out", |on| rename2(on.path, &on.outside.join("new"), 0)),
    ("rename in", |on| {
        drop(outside_file(on));
        rename2(&on.outside.join("file"), on.new, 0)
    }),
    ("rename RENAME_EXCHANGE", |on| {
        rename2(on.path, on.other, libc::RENAME_EXCHANGE)
    }),
    ("rename RENAME_NOREPLACE", |on| {
        rename2(on.path, on.new, libc::RENAME_NOREPLACE)
    }),
    ("rename RENAME_NOREPLACE onto another", |on| {
        rename2(on.path, on.other, libc::RENAME_NOREPLACE)
    }),
    ("link", |on| {
        answer(unsafe { libc::link(c(on.path).as_ptr(), c(on.new).as_ptr()) })
    }),
    ("link out", |on| {
        answer(unsafe { libc::link(c(on.path).as_ptr(), c(&on.outside.join("new")).as_ptr()) })
    }),
    ("link in", |on| {
        drop(outside_file(on));
        answer(unsafe { libc::link(c(&on.outside.join("file")).as_ptr(), c(on.new).as_ptr()) })
    }),
    ("symlink", |on| {
        answer(unsafe { libc::symlink(c"x".as_ptr(), c(on.new).as_ptr()) })
    }),
    ("chmod", |on| {
        answer(unsafe { libc::chmod(c(on.path).as_ptr(), 0o777) })
    }),
    ("fchmod", |on| {
        with_fd(on, |fd| unsafe { libc::fchmod(fd, 0o777) }.into())
    }),
    ("fchmodat AT_SYMLINK_NOFOLLOW", |on| {
        answer(unsafe {
            libc::fchmodat(
                libc::AT_FDCWD,
                c(on.path).as_ptr(),
                0o777,
                libc::AT_SYMLINK_NOFOLLOW,
            )
        })
    }),
    ("chown", |on| {
        answer(unsafe { libc::chown(c(on.path).as_ptr(), 1, 1) })
    }),
    ("lchown", |on| {
        answer(unsafe { libc::lchown(c(on.path).as_ptr(), 1, 1) })
    }),
    ("fchown", |on| {
        with_fd(on, |fd| unsafe { libc::fchown(fd, 1, 1) }.into())
    }),
    ("truncate", |on| {
        answer(unsafe { libc::truncate(c(on.path).as_ptr(), 1) })
    }),
    ("ftruncate", |on| {
        with_fd(on, |fd| unsafe { libc::ftruncate(fd, 1) }.into())
    }),
    ("utimensat", |on| {
        answer(unsafe { libc::utimensat(libc::AT_FDCWD, c(on.path).as_ptr(), null(), 0) })
    }),
    ("utimensat of a time", |on| {
        let times = [libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        }; 2];
        answer(unsafe {
            libc::utimensat(
                libc::AT_FDCWD,
                c(on.path).as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        })
    }),
    ("futimens", |on| {
        with_fd(on, |fd| unsafe { libc::futimens(fd, null()) }.into())
    }),
    ("utime", |on| {
        answer(unsafe { libc::utime(c(on.path).as_ptr(), null()) })
    }),
    ("setxattr user.", |on| set_xattr(on, c"user.x")),
    ("setxattr trusted.", |on| set_xattr(on, c"trusted.x")),
    ("setxattr security.", |on| set_xattr(on, c"security.x")),
    ("setxattr without namespace", |on| set_xattr(on, c"x")),
    ("setxattr system.posix_acl_access", |on| {
        set_xattr(on, c"system.posix_acl_access")
    }),
    ("lsetxattr", |on| {
        answer(unsafe {
            libc::lsetxattr(
                c(on.path).as_ptr(),
                c"user.x".as_ptr(),
                c"v".as_ptr().cast(),
                1,
                0,
            )
        })
    }),
    ("fsetxattr", |on| {
        with_fd(on, |fd| {
            unsafe { libc::fsetxattr(fd, c"user.x".as_ptr(), c"v".as_ptr().cast(), 1, 0) }.into()
        })
    }),
    ("removexattr", |on| {
        answer(unsafe { libc::removexattr(c(on.path).as_ptr(), c"user.x".as_ptr()) })
    }),
    ("lremovexattr", |on| {
        answer(unsafe { libc::lremovexattr(c(on.path).as_ptr(), c"user.x".as_ptr()) })
    }),
    ("fremovexattr", |on| {
        with_fd(on, |fd| {
            unsafe { libc::fremovexattr(fd, c"user.x".as_ptr()) }.into()
        })
    }),
    ("fallocate", |on| fallocate(on, 0)),
    ("fallocate KEEP_SIZE", |on| {
        fallocate(on, libc::FALLOC_FL_KEEP_SIZE)
    }),
    ("fallocate PUNCH_HOLE", |on| {
        fallocate(on, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE)
    }),
    ("fallocate COLLAPSE_RANGE", |on| {
        fallocate(on, libc::FALLOC_FL_COLLAPSE_RANGE)
    }),
    ("fallocate ZERO_RANGE", |on| {
        fallocate(on, libc::FALLOC_FL_ZERO_RANGE)
    }),
    ("fallocate INSERT_RANGE", |on| {
        fallocate(on, libc::FALLOC_FL_INSERT_RANGE)
    }),
    ("fallocate UNSHARE_RANGE", |on| {
        fallocate(on, libc::FALLOC_FL_UNSHARE_RANGE)
    }),
    ("posix_fallocate", |on| {
        let file = open(on.path, libc::O_RDONLY)?;
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, 4096) } {
            0 => Ok(0),
            errno => Err(errno),
        }
    }),
    ("write", |on| {
        with_fd(on, |fd| unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) }
            as i64)
    }),
    ("pwrite", |on| {
        with_fd(on, |fd| unsafe { libc::pwrite(fd, c"x".as_ptr().cast(), 1, 0) }
            as i64)
    }),
    ("copy_file_range into", |on| {
        let from = outside_file(on);
        with_fd(on, |fd| unsafe {
            libc::copy_file_range(from.as_raw_fd(), null_mut(), fd, null_mut(), 100, 0)
        } as i64)
    }),
    ("sendfile into", |on| {
        let from = outside_file(on);
        with_fd(
            on,
            |fd| unsafe { libc::sendfile(fd, from.as_raw_fd(), null_mut(), 100) } as i64,
        )
    }),
    ("mmap shared writable", |on| {
        with_fd(on, |fd| unsafe {
            libc::mmap(
                null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd,
                0,
            )
        } as i64)
    }),
    ("bind a socket", |on| {
        let name = on.new.file_name().unwrap();
        let parent = open(on.new.parent().unwrap(), libc::O_PATH)?;
        // The whole path is too long for the address of a socket.
        let path = format!("/proc/self/fd/{}/{}", parent.as_raw_fd(), name.to_str().unwrap());
        io(std::os::unix::net::UnixListener::bind(path)).map(|_| 0)
    }),
    ("bind a socket there", |on| {
        let parent = open(on.path.parent().unwrap(), libc::O_PATH)?;
        let path = format!(
            "/proc/self/fd/{}/{}",
            parent.as_raw_fd(),
            on.path.file_name().unwrap().to_str().unwrap()
        );
        io(std::os::unix::net::UnixListener::bind(path)).map(|_| 0)
    }),
    ("swapon", |on| {
        answer(unsafe { libc::swapon(c(on.path).as_ptr(), 0) })
    }),
    ("ioctl FS_IOC_SETFLAGS", |on| ioctl(on, FS_IOC_SETFLAGS)),
    ("ioctl FITRIM", |on| ioctl(on, FITRIM)),
    ("ioctl FICLONE into", |on| {
        let from = outside_file(on);
        with_fd(on, |fd| {
            unsafe { libc::ioctl(fd, FICLONE, from.as_raw_fd()) }.into()
        })
    }),
    ("ioctl FICLONE of another into", |on| {
        let from = open(on.other, libc::O_RDONLY)?;
        with_fd(on, |fd| {
            unsafe { libc::ioctl(fd, FICLONE, from.as_raw_fd()) }.into()
        })
    }),
    ("ioctl FIDEDUPERANGE into", |on| {
        let from = open(on.other, libc::O_RDONLY)?;
        let to = open(on.path, libc::O_RDONLY)?;
        // Source offset, length, one destination; descriptor, offset, bytes done, status.
        let mut range = [0_u64, 4096, 1, to.as_raw_fd() as u64, 0, 0, 0];
        answer(unsafe { libc::ioctl(from.as_raw_fd(), FIDEDUPERANGE, range.as_mut_ptr()) })?;
        match range[6] as u32 as i32 {
            status if status < 0 => Err(-status),
            _ => Ok(0),
        }
    }),
    ("quotactl", |on| {
        const Q_SYNC: i32 = 0x80_0001;
        answer(unsafe { libc::quotactl(Q_SYNC << 8, c(on.path).as_ptr(), 0, null_mut()) })
    }),
];

fn get_xattr(on: &On, name: &std::ffi::CStr) -> Answer {
    answer(unsafe { libc::getxattr(c(on.path).as_ptr(), name.as_ptr(), null_mut(), 0) } as i64)
}

fn lock(on: &On, command: i32, kind: i32) -> Answer {
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_len = 10;
    let result = with_fd(on, |fd| unsafe { libc::fcntl(fd, command, &raw mut lock) }.into());
    result.map(|value| value * 100 + i64::from(lock.l_type))
}

/// Whether two reads may differ: its length stays the same.
fn changes(on: &On) -> bool {
    on.path.ends_with("stats.json")
}

/// Reads `len` bytes at `offset` without the page cache, at an address that is `shift` from an aligned one.
fn read_direct(on: &On, offset: i64, len: usize, shift: usize) -> Answer {
    let file = open(on.path, libc::O_RDONLY | libc::O_DIRECT)?;
    let mut memory = vec![0_u8; len + 8192];
    let start = memory.as_ptr().align_offset(4096) + shift;
    let part = &mut memory[start..start + len];
    let read =
        answer(unsafe { libc::pread(file.as_raw_fd(), part.as_mut_ptr().cast(), len, offset) } as i64)?;
    let mut expected = vec![0; read as usize];
    io(File::open(on.path)
        .unwrap()
        .read_exact_at(&mut expected, offset as u64))?;
    assert!(changes(on) || part[..read as usize] == expected);
    Ok(read)
}

/// Copies the whole file out with `copy`, which moves at most as many bytes as it is told between two descriptors, and compares.
fn copy_out(on: &On, copy: impl Fn(RawFd, RawFd, usize) -> isize) -> Answer {
    let from = open(on.path, libc::O_RDONLY)?;
    let target = on.outside.join("copy");
    let to = File::create(&target).unwrap();
    let mut total = 0;
    loop {
        match answer(copy(from.as_raw_fd(), to.as_raw_fd(), 1 << 16) as i64)? {
            0 => break,
            n => total += n,
        }
    }
    assert!(changes(on) || fs::read(on.path).unwrap() == fs::read(&target).unwrap());
    Ok(total)
}

fn splice_out(from: RawFd, to: RawFd, len: usize) -> isize {
    let mut pipe = [0; 2];
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let read = libc::splice(from, null_mut(), pipe[1], null_mut(), len.min(4096), 0);
        let errno = io::Error::last_os_error();
        if read > 0 {
            assert_eq!(
                libc::splice(pipe[0], null_mut(), to, null_mut(), read as usize, 0),
                read
            );
        }
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        if read < 0 {
            *libc::__errno_location() = errno.raw_os_error().unwrap();
        }
        read
    }
}

fn map(on: &On, flags: i32, protection: i32) -> Answer {
    let file = open(on.path, libc::O_RDONLY)?;
    let len = file.metadata().unwrap().len().min(4096) as usize;
    unsafe {
        let at = libc::mmap(null_mut(), 4096, protection, flags, file.as_raw_fd(), 0);
        answer(at as i64)?;
        let seen = std::slice::from_raw_parts(at.cast::<u8>(), len).to_vec();
        libc::munmap(at, 4096);
        let mut expected = vec![0; len];
        io(file.read_exact_at(&mut expected, 0))?;
        assert!(changes(on) || seen == expected);
    }
    Ok(0)
}

fn statvfs(on: &On) -> Result<libc::statvfs, i32> {
    let mut out = MaybeUninit::zeroed();
    unsafe {
        answer(libc::statvfs(c(on.path).as_ptr(), out.as_mut_ptr()))?;
        Ok(out.assume_init())
    }
}

fn seek(on: &On, offset: i64, whence: i32) -> Answer {
    with_fd(on, |fd| unsafe { libc::lseek(fd, offset, whence) })
}

fn access(on: &On, mode: i32) -> Answer {
    answer(unsafe { libc::access(c(on.path).as_ptr(), mode) })
}

fn read_vector(on: &On, flags: i32) -> Answer {
    let mut bytes = [0_u8; 100];
    let vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // So that it is in the page cache.
    let _ = fs::read(on.path);
    with_fd(
        on,
        |fd| unsafe { libc::preadv2(fd, &raw const vector, 1, 0, flags) } as i64,
    )
}

/// What changes nothing.
const OTHERS: &[(&str, Call)] = &[
    ("getxattr user.", |on| get_xattr(on, c"user.x")),
    ("getxattr trusted.", |on| get_xattr(on, c"trusted.x")),
    ("getxattr security.capability", |on| {
        get_xattr(on, c"security.capability")
    }),
    ("getxattr security.selinux", |on| {
        get_xattr(on, c"security.selinux")
    }),
    ("getxattr system.posix_acl_access", |on| {
        get_xattr(on, c"system.posix_acl_access")
    }),
    ("getxattr system.posix_acl_default", |on| {
        get_xattr(on, c"system.posix_acl_default")
    }),
    ("getxattr without namespace", |on| get_xattr(on, c"x")),
    ("listxattr", |on| {
        answer(unsafe { libc::listxattr(c(on.path).as_ptr(), null_mut(), 0) } as i64)
    }),
    ("ioctl FIONREAD", |on| ioctl(on, libc::FIONREAD)),
    ("ioctl FS_IOC_GETFLAGS", |on| ioctl(on, FS_IOC_GETFLAGS)),
    ("ioctl FIGETBSZ", |on| ioctl(on, FIGETBSZ)),
    ("ioctl FIBMAP", |on| ioctl(on, FIBMAP)),
    ("ioctl FS_IOC_FIEMAP", |on| ioctl(on, FS_IOC_FIEMAP)),
    ("ioctl BLKGETSIZE", |on| ioctl(on, BLKGETSIZE)),
    ("ioctl TCGETS", |on| ioctl(on, libc::TCGETS)),
    ("ioctl unknown", |on| ioctl(on, 0x1234_5678)),
    ("flock LOCK_SH", |on| {
        with_fd(on, |fd| {
            unsafe { libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) }.into()
        })
    }),
    ("flock LOCK_EX", |on| {
        with_fd(on, |fd| {
            unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) }.into()
        })
    }),
    ("flock against another", |on| {
        let other = open(on.path, libc::O_RDONLY)?;
        answer(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX) })?;
        with_fd(on, |fd| {
            unsafe { libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) }.into()
        })
    }),
    ("fcntl F_SETLK F_RDLCK", |on| {
        lock(on, libc::F_SETLK, libc::F_RDLCK)
    }),
    ("fcntl F_SETLK F_WRLCK", |on| {
        lock(on, libc::F_SETLK, libc::F_WRLCK)
    }),
    ("fcntl F_GETLK", |on| lock(on, libc::F_GETLK, libc::F_RDLCK)),
    ("fcntl F_OFD_SETLK F_RDLCK", |on| {
        lock(on, libc::F_OFD_SETLK, libc::F_RDLCK)
    }),
    ("fcntl F_OFD_SETLK F_WRLCK", |on| {
        lock(on, libc::F_OFD_SETLK, libc::F_WRLCK)
    }),
    ("fcntl F_OFD_GETLK", |on| {
        lock(on, libc::F_OFD_GETLK, libc::F_WRLCK)
    }),
    ("fcntl F_SETLEASE F_RDLCK", |on| {
        with_fd(on, |fd| {
            unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_RDLCK) }.into()
        })
    }),
    ("fcntl F_SETLEASE F_WRLCK", |on| {
        with_fd(on, |fd| {
            unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) }.into()
        })
    }),
    ("fcntl F_NOTIFY", |on| {
        with_fd(on, |fd| unsafe { libc::fcntl(fd, libc::F_NOTIFY, 2) }.into())
    }),
    ("fcntl F_GETFL", |on| {
        with_fd(on, |fd| {
            i64::from(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_ACCMODE)
        })
    }),
    ("fcntl F_ADD_SEALS", |on| {
        with_fd(on, |fd| {
            unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_GROW) }.into()
        })
    }),
    ("open O_RDONLY", |on| opened(on.path, libc::O_RDONLY)),
    ("open O_DIRECT", |on| opened(on.path, libc::O_DIRECT)),
    ("open O_PATH", |on| opened(on.path, libc::O_PATH)),
    ("open O_NOFOLLOW", |on| opened(on.path, libc::O_NOFOLLOW)),
    ("open O_DIRECTORY", |on| opened(on.path, libc::O_DIRECTORY)),
    ("open O_NOATIME", |on| opened(on.path, libc::O_NOATIME)),
    ("open O_NONBLOCK|O_SYNC", |on| {
        opened(on.path, libc::O_NONBLOCK | libc::O_SYNC)
    }),
    ("read O_DIRECT aligned", |on| read_direct(on, 0, 4096, 0)),
    ("read O_DIRECT to the end", |on| read_direct(on, 4096, 1 << 20, 0)),
    ("read O_DIRECT not aligned", |on| read_direct(on, 5, 1000, 3)),
    ("read", |on| {
        with_fd(
            on,
            |fd| unsafe { libc::read(fd, [0_u8; 16].as_mut_ptr().cast(), 16) } as i64,
        )
    }),
    ("read behind the end", |on| {
        with_fd(
            on,
            |fd| unsafe { libc::pread(fd, [0_u8; 16].as_mut_ptr().cast(), 16, 1 << 40) } as i64,
        )
    }),
    ("read at a negative offset", |on| {
        with_fd(
            on,
            |fd| unsafe { libc::pread(fd, [0_u8; 16].as_mut_ptr().cast(), 16, -1) } as i64,
        )
    }),
    ("posix_fadvise", |on| {
        let file = open(on.path, libc::O_RDONLY)?;
        for advice in [
            libc::POSIX_FADV_SEQUENTIAL,
            libc::POSIX_FADV_RANDOM,
            libc::POSIX_FADV_WILLNEED,
            libc::POSIX_FADV_DONTNEED,
        ] {
            match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 4096, advice) } {
                0 => {}
                errno => return Err(errno),
            }
        }
        Ok(0)
    }),
    ("readahead", |on| {
        with_fd(on, |fd| unsafe { libc::readahead(fd, 0, 4096) } as i64)
    }),
    ("copy_file_range out", |on| {
        copy_out(on, |from, to, len| unsafe {
            libc::copy_file_range(from, null_mut(), to, null_mut(), len, 0)
        })
    }),
    ("sendfile out", |on| {
        copy_out(on, |from, to, len| unsafe {
            libc::sendfile(to, from, null_mut(), len)
        })
    }),
    ("splice out", |on| copy_out(on, splice_out)),
    ("lseek SEEK_DATA", |on| seek(on, 5, libc::SEEK_DATA)),
    ("lseek SEEK_HOLE", |on| seek(on, 5, libc::SEEK_HOLE)),
    ("lseek SEEK_DATA behind the end", |on| {
        seek(on, 1 << 40, libc::SEEK_DATA)
    }),
    ("lseek SEEK_HOLE behind the end", |on| {
        seek(on, 1 << 40, libc::SEEK_HOLE)
    }),
    ("lseek SEEK_DATA negative", |on| seek(on, -1, libc::SEEK_DATA)),
    ("lseek SEEK_SET negative", |on| seek(on, -1, libc::SEEK_SET)),
    ("lseek SEEK_SET behind the end", |on| {
        seek(on, 1 << 40, libc::SEEK_SET)
    }),
    ("lseek SEEK_CUR", |on| seek(on, 7, libc::SEEK_CUR)),
    ("lseek SEEK_END", |on| seek(on, 0, libc::SEEK_END)),
    ("lseek unknown", |on| seek(on, 0, 77)),
    ("preadv2", |on| read_vector(on, 0)),
    ("preadv2 RWF_NOWAIT", |on| read_vector(on, libc::RWF_NOWAIT)),
    ("preadv2 RWF_HIPRI", |on| read_vector(on, libc::RWF_HIPRI)),
    ("preadv2 unknown", |on| read_vector(on, 1 << 30)),
    ("statvfs ST_RDONLY", |on| {
        statvfs(on).map(|s| (s.f_flag & libc::ST_RDONLY) as i64)
    }),
    ("statvfs f_namemax", |on| statvfs(on).map(|s| s.f_namemax as i64)),
    ("statvfs f_bsize", |on| statvfs(on).map(|s| s.f_bsize as i64)),
    ("fstatfs f_namelen", |on| {
        let mut out: libc::statfs = unsafe { zeroed() };
        with_fd(on, |fd| unsafe { libc::fstatfs(fd, &raw mut out) }.into())?;
        Ok(out.f_namelen)
    }),
    ("statx", |on| {
        let mut out: libc::statx = unsafe { zeroed() };
        answer(unsafe {
            libc::statx(
                libc::AT_FDCWD,
                c(on.path).as_ptr(),
                libc::AT_STATX_FORCE_SYNC,
                libc::STATX_BASIC_STATS,
                &raw mut out,
            )
        })?;
        assert_eq!(out.stx_mask & libc::STATX_BASIC_STATS, libc::STATX_BASIC_STATS);
        Ok(if out.stx_mode & 0o170_000 == 0o040_000 {
            0
        } else {
            out.stx_size as i64
        })
    }),
    ("statx AT_STATX_DONT_SYNC", |on| {
        let mut out: libc::statx = unsafe { zeroed() };
        answer(unsafe {
            libc::statx(
                libc::AT_FDCWD,
                c(on.path).as_ptr(),
                libc::AT_STATX_DONT_SYNC,
                libc::STATX_TYPE,
                &raw mut out,
            )
        })?;
        Ok(i64::from(out.stx_mode & 0o170_000))
    }),
    ("access F_OK", |on| access(on, libc::F_OK)),
    ("access R_OK", |on| access(on, libc::R_OK)),
    ("access W_OK", |on| access(on, libc::W_OK)),
    ("access X_OK", |on| access(on, libc::X_OK)),
    ("faccessat AT_EACCESS W_OK", |on| {
        answer(unsafe { libc::faccessat(libc::AT_FDCWD, c(on.path).as_ptr(), libc::W_OK, libc::AT_EACCESS) })
    }),
    ("inotify_add_watch", |on| {
        let fd = answer(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) })? as i32;
        let watch = answer(unsafe { libc::inotify_add_watch(fd, c(on.path).as_ptr(), libc::IN_ALL_EVENTS) });
        unsafe { libc::close(fd) };
        watch
    }),
    ("name_to_handle_at", |on| {
        let (mut handle, mut mount) = ([0_u32; 40], 0);
        handle[0] = 128;
        answer(unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                c(on.path).as_ptr(),
                handle.as_mut_ptr(),
                &raw mut mount,
                0,
            )
        })
    }),
    ("fsync", |on| with_fd(on, |fd| unsafe { libc::fsync(fd) }.into())),
    ("fdatasync", |on| {
        with_fd(on, |fd| unsafe { libc::fdatasync(fd) }.into())
    }),
    ("syncfs", |on| {
        with_fd(on, |fd| unsafe { libc::syncfs(fd) }.into())
    }),
    ("sync_file_range", |on| {
        with_fd(on, |fd| {
            unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) }.into()
        })
    }),
    ("poll", |on| {
        let file = open(on.path, libc::O_RDONLY)?;
        let mut polled = libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN | libc::POLLOUT,
            revents: 0,
        };
        answer(unsafe { libc::poll(&raw mut polled, 1, 0) })?;
        Ok(i64::from(polled.revents))
    }),
    ("select", |on| {
        with_fd(on, |fd| unsafe {
            let mut set: libc::fd_set = zeroed();
            libc::FD_SET(fd, &raw mut set);
            let mut now: libc::timeval = zeroed();
            libc::select(fd + 1, &raw mut set, null_mut(), null_mut(), &raw mut now).into()
        })
    }),
    ("epoll_ctl", |on| {
        let epoll = answer(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })? as i32;
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        };
        let result = with_fd(on, |fd| {
            unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }.into()
        });
        unsafe { libc::close(epoll) };
        result
    }),
    ("mmap MAP_SHARED", |on| map(on, libc::MAP_SHARED, libc::PROT_READ)),
    ("mmap MAP_PRIVATE", |on| {
        map(on, libc::MAP_PRIVATE, libc::PROT_READ)
    }),
    ("mmap MAP_PRIVATE writable", |on| {
        map(on, libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_WRITE)
    }),
    ("mmap MAP_PRIVATE executable", |on| {
        map(on, libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_EXEC)
    }),
    ("execve", |on| io(Command::new(on.path).status()).map(|_| 0)),
    ("readlink", |on| io(fs::read_link(on.path)).map(|_| 0)),
    ("read as a file", |on| {
        io(fs::read(on.path)).map(|bytes| bytes.len() as i64)
    }),
    ("list as a directory", |on| io(fs::read_dir(on.path)).map(|_| 0)),
    ("something in it", |on| {
        io(fs::metadata(on.path.join("nothing"))).map(|_| 0)
    }),
    ("open with a slash behind", |on| {
        opened(&on.path.join(""), libc::O_RDONLY)
    }),
    ("a name of 255 bytes", |on| {
        io(fs::metadata(on.new.with_file_name("n".repeat(255)))).map(|_| 0)
    }),
    ("a name of 256 bytes", |on| {
        io(fs::metadata(on.new.with_file_name("n".repeat(256)))).map(|_| 0)
    }),
    ("a path of more than PATH_MAX", |on| {
        io(fs::metadata(on.path.join("./".repeat(2100)))).map(|_| 0)
    }),
    ("chdir", |on| {
        // The directory of the process belongs to all threads: in a child.
        io(Command::new("/bin/true").current_dir(on.path).status()).map(|_| 0)
    }),
    ("statfs of a missing name", |on| {
        let missing = On { path: on.new, ..*on };
        statvfs(&missing).map(|_| 0)
    }),
];

/// A file system of the kernel, unmounted when dropped.
struct Reference {
    name: &'static str,
    mountpoint: TempDir,
    /// The file that it is in.
    _image: Option<TempDir>,
}

impl Reference {
    fn tmpfs() -> Self {
        let mountpoint = tempfile::tempdir().unwrap();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        nix::mount::mount(
            Some("reference"),
            mountpoint.path(),
            Some("tmpfs"),
            flags,
            None::<&str>,
        )
        .unwrap();
        Reference {
            name: "tmpfs",
            mountpoint,
            _image: None,
        }
    }

    /// None where there are no tools or no loop devices for it.
    fn ext4() -> Option<Self> {
        let image = tempfile::tempdir().unwrap();
        let file = image.path().join("image");
        File::create(&file).unwrap().set_len(16 << 20).unwrap();
        let mountpoint = tempfile::tempdir().unwrap();
        let runs = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = runs(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&file))
            && runs(
                Command::new("mount")
                    .args(["-o", "loop,nosuid,nodev"])
                    .arg(&file)
                    .arg(mountpoint.path()),
            );
        made.then(|| Reference {
            name: "ext4",
            mountpoint,
            _image: Some(image),
        })
    }

    fn path(&self) -> &Path {
        self.mountpoint.path()
    }

    fn make_read_only(&self) {
        let output = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
            fs::set_permissions(&to, fs::Permissions::from_mode(0o555)).unwrap();
        } else {
            fs::write(&to, fs::read(entry.path()).unwrap()).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o444)).unwrap();
        }
    }
}

/// Kinds of path by name.
fn paths() -> Vec<(&'static str, String)> {
    let in_fragment = |name: &str| format!("{FRAGMENT}/{name}");
    vec![
        ("root, a group", String::new()),
        ("array", "weather".into()),
        ("fragments", "weather/fragments".into()),
        ("fragment", FRAGMENT.into()),
        ("tiles", in_fragment("columns/note/tiles")),
        (".tiledbfs", ".tiledbfs".into()),
        ("document of a group", "group.json".into()),
        ("document of an array", "weather/schema.json".into()),
        ("document of a fragment", in_fragment("footer.json")),
        ("column", in_fragment("columns/temperature/data.bin")),
        (
            "column with a header",
            in_fragment("columns/temperature/data.npy"),
        ),
        ("tile", in_fragment("columns/note/tiles/0.data.bin")),
        ("stats.json", ".tiledbfs/stats.json".into()),
        ("missing in the root", "missing".into()),
        ("missing in an array", "weather/missing".into()),
        ("missing in fragments", "weather/fragments/missing".into()),
        ("missing in a fragment", in_fragment("missing")),
        (
            "missing among tiles",
            in_fragment("columns/note/tiles/99999.data.bin"),
        ),
        ("missing in .tiledbfs", ".tiledbfs/missing".into()),
        ("missing below a file", "group.json/missing".into()),
    ]
}

struct Both {
    reference: Reference,
    mountpoint: TempDir,
    outside: TempDir,
    mounted: Option<Mounted>,
}

impl Both {
    fn new(reference: Reference) -> Self {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
        let options = Options {
            cache_size: 1 << 24,
            keys: Vec::new(),
            follow_symlinks: false,
        };
        let tree = Tree::open(&sample, &options).unwrap();
        let mountpoint = tempfile::tempdir().unwrap();
        let mounted = mount(FileSystem::new(tree), mountpoint.path(), &MountOptions::default()).unwrap();
        copy(mountpoint.path(), reference.path());
        reference.make_read_only();
        Both {
            reference,
            mountpoint,
            outside: tempfile::tempdir().unwrap(),
            mounted: Some(mounted),
        }
    }

    /// What a call gives on the mount and on the reference.
    fn ask(&self, call: Call, path: &str) -> (Answer, Answer) {
        let ask = |root: &Path| {
            let path = match path {
                "" => root.to_path_buf(),
                path => root.join(path),
            };
            let new = match path.is_dir() {
                true => path.join("new"),
                false => path.with_file_name("new"),
            };
            call(&On {
                path: &path,
                new: &new,
                other: &root.join("metadata.json"),
                outside: self.outside.path(),
            })
        };
        let answers = (ask(self.mountpoint.path()), ask(self.reference.path()));
        for name in ["file", "new", "copy"] {
            let _ = fs::remove_file(self.outside.path().join(name));
        }
        answers
    }

    /// Runs a table on every path and returns what differs: by call, mount's answer and reference's, the kinds of path.
    fn differences(
        &self,
        table: &[(&'static str, Call)],
    ) -> BTreeMap<(&'static str, Answer, Answer), Vec<&'static str>> {
        let mut out: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, call) in table {
            for (kind, path) in paths() {
                let (mount, reference) = self.ask(*call, &path);
                if mount != reference {
                    out.entry((*name, mount, reference)).or_default().push(kind);
                }
            }
        }
        out
    }
}

/// What may differ, each call with the mount's answer to it and the reason. None of it changes anything.
const DIFFERENCES: &[(&str, Answer, &str)] = &[
    (
        "epoll_ctl",
        Ok(0),
        "the kernel takes every file of FUSE for one that can be polled",
    ),
    (
        "getxattr ",
        Err(libc::EOPNOTSUPP),
        "there are no extended attributes; the references have them, and none of that name",
    ),
    (
        "ioctl FIBMAP",
        Ok(0),
        "the kernel answers that block 0 is meant, as there is no device",
    ),
    (
        "ioctl FITRIM",
        Err(libc::ENOTTY),
        "only a file system on a device knows it",
    ),
    (
        "ioctl FS_IOC_FIEMAP",
        Err(libc::EOPNOTSUPP),
        "as a tmpfs answers: there are no extents",
    ),
    ("ioctl FS_IOC_GETFLAGS", Err(libc::ENOTTY), "there are no flags"),
    (
        "lseek SEEK_",
        Err(libc::ENXIO),
        "of directories, of which each file system has its own way; nobody seeks in them so",
    ),
    ("lseek SEEK_END", Ok(0), "of directories, which have no size"),
    (
        "preadv2 RWF_NOWAIT",
        Err(libc::EOPNOTSUPP),
        "as a tmpfs answers; FUSE cannot tell whether it would wait",
    ),
    (
        "read O_DIRECT not aligned",
        Ok(0),
        "nothing has to be aligned, as on a tmpfs",
    ),
    ("statvfs f_bsize", Ok(4096), "a block is as large as a page"),
];

fn on_every_path(reference: Reference) {
    let both = Both::new(reference);
    let name = both.reference.name;
    let mut answers = 0;
    let mut erofs = 0;
    for (call, run) in MUTATIONS {
        for (kind, path) in paths() {
            let (mount, _) = both.ask(*run, &path);
            assert!(mount.is_err(), "{call} on {kind}: {mount:?}");
            answers += 1;
            erofs += u32::from(mount == Err(libc::EROFS));
        }
    }
    let all = MUTATIONS.iter().chain(OTHERS).copied().collect::<Vec<_>>();
    for ((call, mount, reference), kinds) in both.differences(&all) {
        let known = DIFFERENCES.iter().any(|(other, answer, _)| {
            let same = *answer == mount || call.contains("O_DIRECT") && mount.is_ok();
            call.starts_with(other) && same
        });
        assert!(known, "{call}: {mount:?}, on {name} {reference:?}: {kinds:?}");
    }
    println!("{name}: {answers} tries to change something refused, {erofs} of them with EROFS");
    println!("{name}: {} calls compared", all.len() * paths().len());
    drop(both.mounted);
}

#[test]
fn as_on_a_tmpfs() {
    on_every_path(Reference::tmpfs());
}

#[test]
fn as_on_an_ext4() {
    match Reference::ext4() {
        Some(reference) => on_every_path(reference),
        None => println!("not compared: no ext4 on a loop device here"),
    }
}

#[test]
fn sizes_of_the_file_system() {
    let both = Both::new(Reference::tmpfs());
    let path = both.mountpoint.path();
    let on = On {
        path,
        new: path,
        other: path,
        outside: path,
    };
    let stat = statvfs(&on).unwrap();
    // Full: nobody can put anything there.
    assert_eq!(
        (stat.f_bfree, stat.f_bavail, stat.f_ffree, stat.f_namemax),
        (0, 0, 0, 255)
    );
    assert_ne!(stat.f_flag & libc::ST_RDONLY, 0);
    assert_ne!(stat.f_flag & libc::ST_NOSUID, 0);
    assert_ne!(stat.f_flag & libc::ST_NODEV, 0);
}

#[test]
fn programs_run_only_without_noexec_and_never_from_these_modes() {
    for no_exec in [false, true] {
        let mount = common::TestMount::with(
            common::dir([("script", common::file(*b"#!/bin/sh\nexit 0\n"))]),
            |filesystem| filesystem,
            |options| options.no_exec = no_exec,
        );
        // No file has an x bit.
        let result = Command::new(mount.path("script")).status();
        assert_eq!(common::errno(result), libc::EACCES);
        let loader = map_executable(&mount.path("script"));
        assert_eq!(loader, if no_exec { Err(libc::EPERM) } else { Ok(0) });
    }
}

fn map_executable(path: &Path) -> Answer {
    let on = On {
        path,
        new: path,
        other: path,
        outside: path,
    };
    map(&on, libc::MAP_PRIVATE, libc::PROT_READ | libc::PROT_EXEC)
}

#[test]
fn a_long_listing_asks_for_extended_attributes_once() {
    let nodes = (0..200)
        .map(|i| (format!("f{i}"), common::file(*b"12")))
        .collect();
    let mount = common::TestMount::new(common::dir_of(tiledbfs::tree::Freshness::Immutable, nodes));
    for _ in 0..3 {
        let output = Command::new("ls")
            .arg("-l")
            .arg(mount.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 201);
    }
    let asked = mount.requests.of("getxattr");
    assert!(asked <= 1, "{asked} times");
    println!(
        "{asked} getxattr, {} listxattr, {} lookups",
        mount.requests.of("listxattr"),
        mount.requests.of("lookup")
    );
}
