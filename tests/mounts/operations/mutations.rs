//! System calls that would change something.

use super::calls::*;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};

pub fn set_xattr(on: &On, name: &std::ffi::CStr) -> Answer {
    // SAFETY: C strings, and a value of the given length.
    answer(unsafe { libc::setxattr(c(on.path).as_ptr(), name.as_ptr(), c"v".as_ptr().cast(), 1, 0) })
}

/// Calls that would change something. `fd` in a name: through a descriptor that is open for reading.
// SAFETY of all: paths and names are C strings, and structures live through the calls.
pub const MUTATIONS: &[(&str, Call)] = &[
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
