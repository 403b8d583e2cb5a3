use super::*;
use crate::bytes::{Bytes, Output};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::FileLayout;
use crate::tree::Freshness;
use crate::tree::node::Stat;
use indicatif::ProgressBar;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

/// A file of which only the first `good` bytes can be read. Reads beyond fail, or are short if `short`.
struct Partial {
    len: u64,
    good: u64,
    short: bool,
}

fn byte(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16) as u8
}

impl TreeFile for Partial {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            len: self.len,
            version: 0,
        })
    }
    fn mtime(&self) -> u64 {
        0
    }
    fn freshness(&self) -> Freshness {
        Freshness::Immutable
    }
    fn open(&self) -> Result<Arc<FileLayout>> {
        Ok(Arc::new(FileLayout::new(0, vec![Box::new(Partial { ..*self })])?))
    }
}

impl Bytes for Partial {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.end > self.good && !self.short {
            return Err(Error::new(ErrorKind::Corrupt, "a broken chunk"));
        }
        out.write(|out| out.extend((range.start..range.end.min(self.good)).map(byte)));
        Ok(())
    }
}

/// Names and contents of files.
type Files = Vec<(OsString, Vec<u8>)>;

/// Copies `file` into an empty directory. Returns the result, and the files in the directory.
fn copied(file: &Partial, interrupted: bool) -> (std::result::Result<(), Stop>, Files) {
    let place = tempfile::tempdir().unwrap();
    let args = CopyArgs {
        source: OsString::new(),
        paths: Vec::new(),
        dest: place.path().to_owned(),
        recursive: false,
        skip_existing: false,
        no_target_directory: false,
        quiet: true,
        verbose: VerboseArgs::default(),
        source_args: TreeArgs {
            source: crate::cli::SourceArgs {
                cache_size: 1,
                key_file: Vec::new(),
                follow_symlinks: false,
                #[cfg(feature = "remote")]
                remote: Default::default(),
            },
            at: None,
        },
    };
    let mut copy = TreeCopy {
        args: &args,
        copier: Copier {
            threads: 3,
            piece_size: PIECE_SIZE,
            bar: ProgressBar::hidden(),
            interrupted: Arc::new(AtomicBool::new(interrupted)),
        },
        copied: 0,
        bytes: 0,
        skipped: 0,
    };
    let result = copy.file(file, &place.path().join("copy"), OsStr::new("file"));
    let entries = fs::read_dir(place.path()).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name(), fs::read(entry.path()).unwrap())
    });
    (result, entries.collect())
}

#[test]
fn a_file_is_copied_in_pieces() {
    for len in [0, 1, PIECE_SIZE, 3 * PIECE_SIZE + 7] {
        let whole = Partial {
            len,
            good: len,
            short: false,
        };
        let (result, entries) = copied(&whole, false);
        assert!(result.is_ok());
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        assert!(entries == [("copy".into(), bytes)], "{len}");
    }
}

#[test]
fn failed_copies_leave_no_files() {
    for (short, part) in [
        (false, "file: a broken chunk"),
        (true, "read 100 bytes, expected 8388608..12582912"),
    ] {
        let broken = Partial {
            len: 4 * PIECE_SIZE,
            good: 2 * PIECE_SIZE + 100,
            short,
        };
        let (result, entries) = copied(&broken, false);
        let Err(Stop::Failed(failure)) = result else {
            panic!("the copy succeeded")
        };
        assert!(failure.message.contains(part), "{}", failure.message);
        assert!(entries.is_empty(), "{:?}", entries[0].0);
    }
    let whole = Partial {
        len: 2 * PIECE_SIZE,
        good: 2 * PIECE_SIZE,
        short: false,
    };
    let (result, entries) = copied(&whole, true);
    assert!(matches!(result, Err(Stop::Closed)) && entries.is_empty());
}

#[test]
fn two_copies_do_not_write_to_one_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(PARTIAL);
    let first = part_file(&path).unwrap();
    assert_eq!(
        part_file(&path).unwrap_err().to_string(),
        "another process is copying to this directory"
    );
    // The partial file of a killed copy is reused and emptied.
    first.write_all_at(b"half", 0).unwrap();
    drop(first);
    assert_eq!(part_file(&path).unwrap().metadata().unwrap().len(), 0);
    // A link in its place is not followed.
    let other = place.path().join("other");
    fs::write(&other, b"kept").unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    assert!(part_file(&path).is_err());
    assert_eq!(fs::read(&other).unwrap(), b"kept");
}
