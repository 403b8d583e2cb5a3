use super::partial::{PARTIAL, SAVED, SAVED_NEXT};
use super::*;
use crate::bytes::{Bytes, Output};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::FileLayout;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// A file of which only the first `good` bytes can be read. Reads beyond fail, or are short if `short`.
#[derive(Clone, Default)]
struct Half {
    len: u64,
    good: u64,
    short: bool,
    /// Tells apart its states, which have other bytes.
    version: u64,
    /// How many bytes were read.
    read: Arc<AtomicU64>,
}

fn byte(offset: u64) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16) as u8
}

impl TreeFile for Half {
    fn stat(&self) -> Result<Stat> {
        Ok(Stat {
            len: self.len,
            version: self.version,
        })
    }
    fn mtime(&self) -> u64 {
        0
    }
    fn open(&self) -> Result<Arc<FileLayout>> {
        let layout = FileLayout::new(self.version, vec![Box::new(self.clone())]);
        Ok(Arc::new(layout?))
    }
}

impl Bytes for Half {
    fn len(&self) -> u64 {
        self.len
    }
    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        if range.end > self.good && !self.short {
            return Err(Error::new(ErrorKind::Corrupt, "a broken chunk"));
        }
        let bytes = (range.start..range.end.min(self.good)).map(|offset| byte(offset + self.version));
        out.write(|out| out.extend(bytes));
        self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
        Ok(())
    }
}

/// Names and contents of files.
type Files = Vec<(OsString, Vec<u8>)>;

/// Copies `file` into an empty directory. Returns the result, and the files in the directory.
fn copied(file: &Half, interrupted: bool) -> (std::result::Result<(), Stop>, Files) {
    let place = tempfile::tempdir().unwrap();
    let result = copied_to(place.path(), file, interrupted, Duration::MAX);
    (result, files_in(place.path()))
}

fn files_in(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name(), fs::read(entry.path()).unwrap())
    });
    entries.collect()
}

/// Copies `file` to `copy` in a directory.
fn copied_to(
    directory: &Path,
    file: &Half,
    interrupted: bool,
    save_every: Duration,
) -> std::result::Result<(), Stop> {
    copied_from(
        ["", "file"],
        false,
        &directory.join("copy"),
        file,
        interrupted,
        save_every,
    )
    .map(|_| ())
}

/// Copies `file`, which lies at a path that begins with `above`, to `held`. Returns how many files were
/// skipped.
fn copied_from(
    [above, path]: [&str; 2],
    skip_existing: bool,
    held: &Path,
    file: &Half,
    interrupted: bool,
    save_every: Duration,
) -> std::result::Result<u64, Stop> {
    let directory = held.parent().unwrap();
    let args = CopyArgs {
        source: OsString::new(),
        paths_and_dest: vec![directory.into()],
        recursive: false,
        skip_existing,
        no_target_directory: false,
        quiet: true,
        verbose: VerboseArgs::default(),
        source_args: TreeArgs {
            source: crate::cli::SourceArgs {
                cache_size: Some(1),
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
        begun: UNIX_EPOCH,
        source: "source".into(),
        above: above.into(),
        lag: Some(LOCAL_LAG),
        save_every,
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
    copy.file(file, held, OsStr::new(path))?;
    Ok(copy.skipped)
}

#[test]
fn a_file_is_copied_in_pieces() {
    for len in [0, 1, PIECE_SIZE, 3 * PIECE_SIZE + 7] {
        let whole = Half {
            len,
            good: len,
            ..Half::default()
        };
        let (result, entries) = copied(&whole, false);
        assert!(result.is_ok());
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        assert!(entries == [("copy".into(), bytes)], "{len}");
    }
}

#[test]
fn a_copy_has_a_time_before_which_all_is_in_it() {
    let place = tempfile::tempdir().unwrap();
    assert!(copied_to(place.path(), &Half::default(), false, Duration::MAX).is_ok());
    let there = fs::metadata(place.path().join("copy")).unwrap();
    let written = there.modified().unwrap();
    assert!(written + LOCAL_LAG <= SystemTime::now());
    let written = written.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    for (len, mtime, expected) in [
        (0, written - 1, true),
        (0, written, false),
        (0, written + 1, false),
        (1, written - 1, false),
        (0, u64::MAX, false),
    ] {
        assert_eq!(
            is_copy(&there, len, mtime, Some(there.modified().unwrap())),
            expected,
            "{len} {}",
            mtime.wrapping_sub(written)
        );
    }
    // Of a past state, a copy of another one does not count.
    let at = there.modified().unwrap();
    assert!(is_at(&there, at) && !is_at(&there, at + Duration::from_millis(1)));
    let state = |start| state_time(Asked::Within(TimeRange { start, end: 5000 }));
    assert_eq!(
        (state(0), state(1)),
        (Some(UNIX_EPOCH + Duration::from_secs(5)), None)
    );
    let (begun, now) = (
        UNIX_EPOCH + Duration::from_secs(10),
        UNIX_EPOCH + Duration::from_secs(99),
    );
    for (lag, expected) in [(Some(1), 98), (Some(31), 68), (None, 8)] {
        let expected = UNIX_EPOCH + Duration::from_secs(expected);
        assert_eq!(
            shown(lag.map(Duration::from_secs), begun, now),
            expected,
            "{lag:?}"
        );
    }
    for (source, is_local) in [("/", true), ("s3://bucket/a", false), ("https://host/a", false)] {
        assert_eq!(local_lag(Path::new(source)).is_some(), is_local, "{source}");
    }
}

#[test]
fn a_time_or_a_part_is_copied_again() {
    for (above, path, skipped) in [
        ("", "data/view.json", 1),
        ("", "at/10/data/view.json", 0),
        ("", "data/subarray/0..9/view.json", 0),
        ("at/source", "at/source/data/view.json", 1),
        ("at/source", "at/source/group/a/at/latest/schema.json", 0),
    ] {
        let place = tempfile::tempdir().unwrap();
        let copied = || {
            let found = copied_from(
                [above, path],
                true,
                &place.path().join("copy"),
                &Half::default(),
                false,
                Duration::MAX,
            );
            found.ok().unwrap()
        };
        assert_eq!((copied(), copied()), (0, skipped), "{path}");
    }
}

#[test]
fn failed_copies_leave_no_files() {
    for (short, part) in [
        (false, "file: a broken chunk"),
        (true, "read 100 bytes, expected 8388608..12582912"),
    ] {
        let broken = Half {
            len: 4 * PIECE_SIZE,
            good: 2 * PIECE_SIZE + 100,
            short,
            ..Half::default()
        };
        let (result, entries) = copied(&broken, false);
        let Err(Stop::Failed(failure)) = result else {
            panic!("the copy succeeded")
        };
        assert!(failure.message.contains(part), "{}", failure.message);
        assert!(entries.is_empty(), "{:?}", entries[0].0);
    }
    let whole = Half {
        len: 2 * PIECE_SIZE,
        good: 2 * PIECE_SIZE,
        ..Half::default()
    };
    let (result, entries) = copied(&whole, true);
    assert!(matches!(result, Err(Stop::Closed)) && entries.is_empty());
}

#[test]
fn two_copies_do_not_write_to_one_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(PARTIAL);
    let opened = Place::open(place.path(), false).unwrap();
    let open = || Partial::open(&opened, SAVE_EVERY);
    let first = open().unwrap();
    assert_eq!(
        open().err().unwrap().to_string(),
        "another process is copying to this directory"
    );
    // The partial file of a killed copy is reused and emptied.
    first.write(0, b"half").unwrap();
    drop(first);
    assert_eq!(open().unwrap().begin(Some(7), 4).unwrap(), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    // A link in its place is not followed.
    let other = place.path().join("other");
    fs::write(&other, b"kept").unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    assert!(open().is_err());
    assert_eq!(fs::read(&other).unwrap(), b"kept");
}

/// A file of four pieces, of which two can be read.
fn two_of_four(version: u64) -> Half {
    Half {
        len: 4 * PIECE_SIZE,
        good: 2 * PIECE_SIZE,
        version,
        ..Half::default()
    }
}

/// Copies all of a state to a directory. Returns how many bytes were read for it.
fn finished(directory: &Path, version: u64) -> u64 {
    let whole = Half {
        good: 4 * PIECE_SIZE,
        ..two_of_four(version)
    };
    assert!(copied_to(directory, &whole, false, Duration::ZERO).is_ok());
    let bytes: Vec<u8> = (0..whole.len).map(|offset| byte(offset + version)).collect();
    assert!(files_in(directory) == [("copy".into(), bytes)]);
    whole.read.load(Ordering::Relaxed)
}

#[test]
fn a_copy_that_was_stopped_goes_on_there() {
    let place = tempfile::tempdir().unwrap();
    let stop = |version| {
        let (half, before) = (two_of_four(version), files_in(place.path()).len());
        assert!(copied_to(place.path(), &half, false, Duration::ZERO).is_err());
        (before, half.read.load(Ordering::Relaxed))
    };
    assert_eq!(stop(1), (0, 2 * PIECE_SIZE));
    let part = fs::metadata(place.path().join(PARTIAL)).unwrap();
    assert_eq!(part.len(), 2 * PIECE_SIZE);
    // It still cannot be read there.
    assert_eq!(stop(1), (2, 0));
    // Its state is unknown.
    let opened = Place::open(place.path(), false).unwrap();
    Partial::open(&opened, Duration::ZERO).unwrap().stop().unwrap();
    assert_eq!(finished(place.path(), 1), 2 * PIECE_SIZE);
}

#[test]
fn what_was_saved_stays_where_no_more_can_be() {
    let place = tempfile::tempdir().unwrap();
    let stop = || assert!(copied_to(place.path(), &two_of_four(1), false, Duration::ZERO).is_err());
    stop();
    // As on a full disk.
    fs::create_dir(place.path().join(SAVED_NEXT)).unwrap();
    stop();
    fs::remove_dir(place.path().join(SAVED_NEXT)).unwrap();
    assert_eq!(finished(place.path(), 1), 2 * PIECE_SIZE);
}

#[test]
fn nothing_is_left_of_a_copy_that_cannot_have_its_name() {
    let place = tempfile::tempdir().unwrap();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    let opened = Place::open(place.path(), false).unwrap();
    let partial = Partial::open(&opened, SAVE_EVERY).unwrap();
    partial.begin(Some(7), 4).unwrap();
    partial.write(0, b"four").unwrap();
    assert!(partial.finish(&other, UNIX_EPOCH).is_err());
    fs::remove_dir(other).unwrap();
    assert!(files_in(place.path()).is_empty());
}

#[test]
fn a_name_that_cannot_be_is_told_before_anything_is_copied() {
    let place = tempfile::tempdir().unwrap();
    let file = Half {
        len: 2,
        good: 2,
        ..Half::default()
    };
    let long = place.path().join("x".repeat(300));
    assert!(copied_from(["", "file"], false, &long, &file, false, Duration::MAX).is_err());
    assert_eq!(file.read.load(Ordering::Relaxed), 0);
    assert!(files_in(place.path()).is_empty());
}

#[test]
fn an_interrupt_ends_skipping_too() {
    let place = tempfile::tempdir().unwrap();
    let copied = |interrupted| {
        let half = Half::default();
        copied_from(
            ["", "file"],
            true,
            &place.path().join("copy"),
            &half,
            interrupted,
            Duration::MAX,
        )
    };
    assert!(matches!(copied(false), Ok(0)));
    assert!(matches!(copied(true), Err(Stop::Closed)));
}

#[test]
fn a_copy_of_another_state_begins_anew() {
    let place = tempfile::tempdir().unwrap();
    let (part, saved) = (place.path().join(PARTIAL), place.path().join(SAVED));
    let changes: [(u64, &dyn Fn()); 5] = [
        (2, &|| {}),
        (1, &|| {
            fs::File::options()
                .write(true)
                .open(&part)
                .unwrap()
                .set_len(PIECE_SIZE)
                .unwrap()
        }),
        (1, &|| fs::remove_file(&saved).unwrap()),
        (1, &|| {
            fs::write(&saved, fs::read(&saved).unwrap().strip_suffix(b"\n").unwrap()).unwrap()
        }),
        (1, &|| {
            fs::rename(&saved, place.path().join("copy")).unwrap();
            std::os::unix::fs::symlink("copy", &saved).unwrap();
        }),
    ];
    for (index, (version, change)) in changes.into_iter().enumerate() {
        assert!(copied_to(place.path(), &two_of_four(1), false, Duration::ZERO).is_err());
        assert!(part.exists() && saved.exists(), "{index}");
        change();
        assert_eq!(finished(place.path(), version), 4 * PIECE_SIZE, "{index}");
        fs::remove_file(place.path().join("copy")).unwrap();
    }
}

/// A directory of files, of which it knows the last one that was looked up.
#[derive(Default)]
struct Many(std::sync::Mutex<std::sync::Weak<Half>>);

impl Directory for Many {
    fn lookup(&self, _: &OsStr) -> Result<Option<Node>> {
        let file = Arc::new(Half {
            len: 2,
            ..Half::default()
        });
        let before = std::mem::replace(&mut *self.0.lock().unwrap(), Arc::downgrade(&file));
        assert!(before.upgrade().is_none(), "two files are held at once");
        Ok(Some(Node::File(file)))
    }

    fn list(&self) -> Result<Arc<dyn crate::tree::Listing>> {
        let names = (0..9).map(|number| (OsString::from(number.to_string()), crate::tree::NodeType::File));
        Ok(Arc::new(names.collect::<Vec<_>>()))
    }

    fn mtime(&self) -> u64 {
        0
    }
}

#[test]
fn files_are_measured_one_after_the_other() {
    for (interrupted, expected) in [(false, 18), (true, 0)] {
        let bar = ProgressBar::hidden();
        bar.set_length(0);
        let many = Node::Directory(Arc::new(Many::default()));
        add_lengths(many, &bar, &AtomicBool::new(interrupted));
        assert_eq!(bar.length(), Some(expected));
    }
}
