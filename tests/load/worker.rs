//! One thread of the load: random calls, with their expected results.

use super::*;

/// One thread's work.
pub(super) struct Worker<'a> {
    pub(super) mount: &'a Path,
    pub(super) reference: &'a Reference,
    pub(super) random: Random,
    pub(super) latencies: BTreeMap<&'static str, Latencies>,
    pub(super) compared: u64,
    pub(super) buffer: Vec<u8>,
    /// Files kept open for a while.
    pub(super) open: Vec<(&'a Path, &'a [u8], File)>,
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

impl<'a> Worker<'a> {
    pub(super) fn timed<T>(&mut self, name: &'static str, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = call();
        self.latencies.entry(name).or_default().add(start.elapsed());
        result
    }

    pub(super) fn pick(&mut self, paths: &'a [PathBuf]) -> &'a Path {
        &paths[self.random.below(paths.len() as u64) as usize]
    }

    pub(super) fn file(&mut self) -> (&'a Path, &'a [u8]) {
        // Half of the files are columns: most others are small documents.
        for _ in 0..4 {
            let path = self.pick(&self.reference.files);
            if path.extension() != Some(OsStr::new("json")) {
                return (path, self.bytes(path));
            }
        }
        let path = self.pick(&self.reference.files);
        (path, self.bytes(path))
    }

    pub(super) fn bytes(&self, path: &Path) -> &'a [u8] {
        match &self.reference.all[path] {
            Content::Bytes(bytes) => bytes,
            _ => unreachable!("{path:?} is a file"),
        }
    }

    pub(super) fn open(&mut self, path: &Path, flags: i32) -> Result<File, String> {
        let full = self.mount.join(path);
        self.timed("open", || {
            File::options().read(true).custom_flags(flags).open(full)
        })
        .map_err(|error| wrong(path, format!("open: {error}")))
    }

    /// Reads `size` bytes at `offset`, or up to the end.
    pub(super) fn read(
        &mut self,
        path: &Path,
        bytes: &[u8],
        file: &File,
        offset: usize,
        size: usize,
    ) -> Result<(), String> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(size, 0);
        let wanted = &bytes[offset.min(bytes.len())..(offset + size).min(bytes.len())];
        let mut got = 0;
        // Any read may be short before the end.
        let result = loop {
            match self.timed("pread", || {
                file.read_at(&mut buffer[got..], (offset + got) as u64)
            }) {
                Ok(0) => break Ok(()),
                Ok(n) => got += n,
                Err(error) => break Err(wrong(path, format!("read at {offset}: {error}"))),
            }
            if got == size {
                break Ok(());
            }
        };
        let same = buffer[..got] == *wanted;
        self.compared += got as u64;
        self.buffer = buffer;
        result?;
        match same {
            true => Ok(()),
            false => Err(wrong(
                path,
                format!("{got} bytes at {offset} are not the {} expected", wanted.len()),
            )),
        }
    }

    pub(super) fn random_reads(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        let direct = if self.random.below(8) == 0 {
            libc::O_DIRECT
        } else {
            0
        };
        let file = self.open(path, direct)?;
        for _ in 0..=self.random.below(6) {
            let offset = self.random.below(bytes.len() as u64 + 100) as usize;
            let most = [16, 4096, 70_000, MAX_READ as u64][self.random.below(4) as usize];
            let size = 1 + self.random.below(most);
            self.read(path, bytes, &file, offset, size as usize)?;
        }
        if self.random.below(4) == 0 {
            if self.open.len() >= 8 {
                let gone = self.random.below(8) as usize;
                self.open.swap_remove(gone);
            }
            self.open.push((path, bytes, file));
        }
        Ok(())
    }

    /// Reads a file that was opened long ago.
    pub(super) fn old_reads(&mut self) -> Result<(), String> {
        if self.open.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        let (path, bytes, file) = self.open.swap_remove(at);
        let offset = self.random.below(bytes.len() as u64 + 1) as usize;
        let result = self.read(path, bytes, &file, offset, 10_000);
        self.open.push((path, bytes, file));
        result
    }

    pub(super) fn sequential_read(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        let file = self.open(path, 0)?;
        let size = 1 + self.random.below(200_000) as usize;
        // 1 MiB from a random offset.
        let start = self
            .random
            .below((bytes.len().saturating_sub(MAX_READ) + 1) as u64) as usize;
        for offset in (start..=bytes.len().min(start + MAX_READ)).step_by(size) {
            self.read(path, bytes, &file, offset, size)?;
        }
        Ok(())
    }

    /// Maps a file and reads some pages.
    pub(super) fn faults(&mut self) -> Result<(), String> {
        let (path, bytes) = self.file();
        if bytes.is_empty() {
            return Ok(());
        }
        let file = self.open(path, 0)?;
        let (len, fd) = (bytes.len(), file.as_raw_fd());
        // SAFETY: a new mapping of a file that is never truncated, unmapped below.
        let address = self.timed("mmap", || unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        });
        if address == libc::MAP_FAILED {
            return Err(wrong(path, format!("mmap: {}", io::Error::last_os_error())));
        }
        drop(file);
        // SAFETY: the mapping has this length, and nobody writes to it.
        let mapped = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) };
        let mut result = Ok(());
        for _ in 0..8 {
            let page = self.random.below(len.div_ceil(4096) as u64) as usize * 4096;
            let range = page..(page + 4096).min(len);
            if !self.timed("fault", || mapped[range.clone()] == bytes[range.clone()]) {
                result = Err(wrong(path, format!("the mapped page at {page} differs")));
            }
            self.compared += range.len() as u64;
        }
        // SAFETY: the mapping from above, which has no references any more.
        unsafe { libc::munmap(address, len) };
        result
    }

    pub(super) fn stat(&mut self, path: &Path) -> Result<(), String> {
        let full = self.mount.join(path);
        let metadata = self
            .timed("stat", || fs::symlink_metadata(full))
            .map_err(|error| wrong(path, format!("stat: {error}")))?;
        match &self.reference.all[path] {
            Content::Bytes(bytes) if metadata.is_file() && metadata.len() == bytes.len() as u64 => Ok(()),
            Content::Directory(_) if metadata.is_dir() => Ok(()),
            Content::Error => Ok(()),
            _ => Err(wrong(path, format!("stat: {metadata:?}"))),
        }
    }

    pub(super) fn list(&mut self, path: &Path) -> Result<(), String> {
        let full = self.mount.join(path);
        let listed: io::Result<HashSet<OsString>> = self.timed("list", || {
            fs::read_dir(full)?.map(|entry| Ok(entry?.file_name())).collect()
        });
        let mut listed = listed.map_err(|error| wrong(path, format!("list: {error}")))?;
        listed.remove(OsStr::new(".tiledbfs"));
        match &self.reference.all[path] {
            Content::Directory(names) if *names == listed => Ok(()),
            _ => Err(wrong(path, format!("it holds {listed:?}"))),
        }
    }

    /// Stats everything in an array or group, like `find`.
    pub(super) fn walk(&mut self) -> Result<(), String> {
        let root = self.pick(&self.reference.objects);
        let mut left = 500;
        for (path, content) in self.reference.all.range(root.to_path_buf()..) {
            if !path.starts_with(root) || left == 0 {
                break;
            }
            left -= 1;
            self.stat(path)?;
            if let Content::Directory(_) = content {
                self.list(path)?;
            }
        }
        Ok(())
    }

    /// Unreadable files give their error, and missing names ENOENT.
    pub(super) fn errors(&mut self) -> Result<(), String> {
        let path = self.pick(&self.reference.directories);
        let name = format!("none-{}", self.random.next());
        let full = self.mount.join(path).join(name);
        match self.timed("stat", || fs::symlink_metadata(full)) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => Err(wrong(path, format!("a name that is not there: {other:?}"))),
        }
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        match self.random.below(20) {
            0..6 => self.random_reads(),
            6..9 => self.old_reads(),
            9..11 => self.sequential_read(),
            11..14 => self.faults(),
            14..16 => {
                let path = self.pick(&self.reference.directories);
                self.list(path)
            }
            16..18 => {
                let path = self.pick(&self.reference.files);
                self.stat(path)
            }
            18 => self.walk(),
            _ => self.errors(),
        }
    }
}
