//! System calls that change nothing.

use super::calls::*;
use std::fs::{self, File};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::ptr::null_mut;

pub fn get_xattr(on: &On, name: &std::ffi::CStr) -> Answer {
    answer(unsafe { libc::getxattr(c(on.path).as_ptr(), name.as_ptr(), null_mut(), 0) } as i64)
}

pub fn lock(on: &On, command: i32, kind: i32) -> Answer {
    let mut lock: libc::flock = unsafe { zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_len = 10;
    let result = with_fd(on, |fd| unsafe { libc::fcntl(fd, command, &raw mut lock) }.into());
    result.map(|value| value * 100 + i64::from(lock.l_type))
}

/// Whether the content may differ between two reads of the same length.
pub fn changes(on: &On) -> bool {
    on.path.ends_with("stats.json")
}

/// Reads `len` bytes at `offset` without the page cache, to an address `shift` bytes past an aligned one.
pub fn read_direct(on: &On, offset: i64, len: usize, shift: usize) -> Answer {
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

/// Copies the whole file out and compares. `copy` moves at most the given number of bytes between two
/// descriptors.
pub fn copy_out(on: &On, copy: impl Fn(RawFd, RawFd, usize) -> isize) -> Answer {
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

pub fn splice_out(from: RawFd, to: RawFd, len: usize) -> isize {
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

pub fn map(on: &On, flags: i32, protection: i32) -> Answer {
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

pub fn statvfs(on: &On) -> Result<libc::statvfs, i32> {
    let mut out = MaybeUninit::zeroed();
    unsafe {
        answer(libc::statvfs(c(on.path).as_ptr(), out.as_mut_ptr()))?;
        Ok(out.assume_init())
    }
}

pub fn seek(on: &On, offset: i64, whence: i32) -> Answer {
    with_fd(on, |fd| unsafe { libc::lseek(fd, offset, whence) })
}

pub fn access(on: &On, mode: i32) -> Answer {
    answer(unsafe { libc::access(c(on.path).as_ptr(), mode) })
}

pub fn read_vector(on: &On, flags: i32) -> Answer {
    let mut bytes = [0_u8; 100];
    let vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // Puts the file into the page cache.
    let _ = fs::read(on.path);
    with_fd(
        on,
        |fd| unsafe { libc::preadv2(fd, &raw const vector, 1, 0, flags) } as i64,
    )
}

/// Calls that change nothing.
pub const QUERIES: &[(&str, Call)] = &[
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
        // In a child, because all threads share the working directory of the process.
        io(Command::new("/bin/true").current_dir(on.path).status()).map(|_| 0)
    }),
    ("statfs of a missing name", |on| {
        let missing = On { path: on.new, ..*on };
        statvfs(&missing).map(|_| 0)
    }),
];
