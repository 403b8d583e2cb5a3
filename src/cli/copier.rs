//! Copies the bytes of files of the tree: `tiledbfs cat` to stdout, `tiledbfs cp` to files.

use super::output::Stop;
use super::paths::failed;
use crate::bytes::Output;
use crate::layout::{FileLayout, Stream};
use crate::runtime::lock;
use crate::runtime::requester::{on_behalf_of, requester};
use crate::tree::File;
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Writes the bytes that begin at an offset of the file. A copier of one thread calls it in the order of
/// offsets, without gaps; one of several threads in any order, and at once.
pub type Write<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<(), Stop> + Sync);

/// Called before the first byte is written: with the opened file, or without one for a stream. Returns the
/// offset to begin at, which is 0 for a stream.
pub type Begin<'a> = &'a dyn Fn(Option<&FileLayout>) -> Result<u64, Stop>;

/// How files are copied.
pub struct Copier {
    /// Threads that copy one file.
    pub threads: u64,
    /// Bytes of a read and a write.
    pub piece_size: u64,
    /// Shows how many bytes are copied. Its length is that of files of known length; the copier adds those of
    /// streams.
    pub bar: ProgressBar,
    /// Ends copies early.
    pub interrupted: Arc<AtomicBool>,
}

impl Copier {
    /// Copies all bytes of `file`, which messages call `path`, from where `begin` says on, with `write`.
    /// Returns how many the file has.
    pub fn copy(&self, file: &dyn File, path: &OsStr, begin: Begin, write: Write) -> Result<u64, Stop> {
        if let Some(stream) = file.stream().map_err(|error| failed(path, error))? {
            begin(None)?;
            return self.stream(stream, path, write);
        }
        let open = file.open().map_err(|error| failed(path, error))?;
        let start = begin(Some(&open))?;
        self.bar.inc(start);
        open.will_be_read_whole();
        self.pieces(&open, start, path, write)?;
        Ok(open.len())
    }

    /// Copies a stream. Extrapolates the length of the bar from its progress.
    fn stream(&self, mut stream: Box<dyn Stream>, path: &OsStr, write: Write) -> Result<u64, Stop> {
        let (mut bytes, mut expected) = (0u64, 0u64);
        while let Some(piece) = stream.next().map_err(|error| failed(path, error))? {
            self.check_interrupted()?;
            write(bytes, &piece)?;
            let length = piece.len() as u64;
            bytes += length;
            let now = (bytes as f64 / stream.done()) as u64;
            if stream.done() > 0.0 {
                self.bar.inc_length(now.saturating_sub(expected));
                self.bar.dec_length(expected.saturating_sub(now));
                expected = now;
            }
            self.bar.inc(length);
        }
        self.bar.inc_length(bytes.saturating_sub(expected));
        self.bar.dec_length(expected.saturating_sub(bytes));
        Ok(bytes)
    }

    /// Copies all bytes from `start` on, each thread one piece after the other.
    fn pieces(&self, open: &FileLayout, start: u64, path: &OsStr, write: Write) -> Result<(), Stop> {
        let next = AtomicU64::new(start);
        // Of several failures, the first in the file is reported.
        let stopped: Mutex<Option<(u64, Stop)>> = Mutex::default();
        let stop = || lock(&stopped);
        let one = || {
            let mut piece = Output::new();
            loop {
                let offset = next.fetch_add(self.piece_size, Ordering::Relaxed);
                if offset >= open.len() || stop().as_ref().is_some_and(|(first, _)| *first < offset) {
                    return;
                }
                let copied = self.check_interrupted().and_then(|()| {
                    piece.clear();
                    open.read(offset..offset.saturating_add(self.piece_size), &mut piece)
                        .map_err(|error| failed(path, error))?;
                    write(offset, &piece)
                });
                match copied {
                    Ok(()) => self.bar.inc(piece.len() as u64),
                    Err(reason) => {
                        let mut stop = stop();
                        if stop.as_ref().is_none_or(|(first, _)| offset < *first) {
                            *stop = Some((offset, reason));
                        }
                    }
                }
            }
        };
        let threads = self.threads.min((open.len() - start).div_ceil(self.piece_size));
        let requester = requester();
        thread::scope(|scope| {
            for _ in 1..threads {
                let requester = requester.clone();
                // Without other threads, this one does it all.
                let _ = thread::Builder::new().spawn_scoped(scope, || on_behalf_of(requester, one));
            }
            one();
        });
        let first = stop().take();
        first.map_or(Ok(()), |(_, reason)| Err(reason))
    }

    /// Ends a copy that is interrupted.
    pub(super) fn check_interrupted(&self) -> Result<(), Stop> {
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(Stop::Closed),
            false => Ok(()),
        }
    }
}
