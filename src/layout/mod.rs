//! Open files as parts of known length, one after the other: bytes, cells of a field, text that is made when
//! it is read.
//!
//! A read finds the parts and fills the range. Each part has its own kind of content ([`Bytes`]): the cells
//! of a column as they are or through a small function, the segments of a document ([`segments`]).

pub mod segments;

use crate::bytes::{Bytes, Keep, Output, SequentialDetector};
use crate::error::{Error, Result};
use crate::fragment::cells::Cells;
use crate::fragment::column::Content;
use crate::runtime::{ahead, get_or_make};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A sequence of bytes of unknown length.
pub trait Stream: Send {
    /// The next of them; None at the end.
    fn next(&mut self) -> Result<Option<Vec<u8>>>;

    /// About how much of it all has come so far, from 0 to 1.
    fn done(&self) -> f64;
}

/// One content of the cells of a field.
pub struct CellBytes {
    content: Content,
    len: u64,
    cells: OnceLock<Arc<dyn Cells>>,
    open: Box<OpenCells>,
}

type OpenCells = dyn Fn() -> Result<Arc<dyn Cells>> + Send + Sync;

impl CellBytes {
    /// `content` of `cells`. Its length may have to be measured.
    pub fn new(cells: Arc<dyn Cells>, content: Content) -> Result<CellBytes> {
        let len = cells.len(content)?;
        Ok(CellBytes::opened_by(len, content, move || Ok(cells.clone())))
    }

    /// `content`, of `len` bytes, of the cells that `open` returns at the first read.
    pub fn opened_by(
        len: u64,
        content: Content,
        open: impl Fn() -> Result<Arc<dyn Cells>> + Send + Sync + 'static,
    ) -> CellBytes {
        CellBytes {
            content,
            len,
            cells: OnceLock::new(),
            open: Box::new(open),
        }
    }
}

impl Bytes for CellBytes {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let cells = get_or_make(&self.cells, || (self.open)())?;
        ahead::reading(cells.count(), self.len, range.end, || {
            cells.read(self.content, range, out)
        })
    }
}

/// The length of a file, unless that is 2^63 bytes or more, or None: no file has so many.
///
/// # Errors
///
/// `LimitExceeded`.
pub fn file_len(len: Option<u64>) -> Result<u64> {
    let len = len.filter(|len| i64::try_from(*len).is_ok());
    len.ok_or_else(too_long)
}

/// The error of a file that would be longer than files are.
pub fn too_long() -> Error {
    Error::limit("the file would have 2^63 bytes or more").at(0)
}

/// A file: parts, one after the other.
pub struct FileLayout {
    parts: Vec<Box<dyn Bytes>>,
    /// Where each part ends.
    ends: Vec<u64>,
    version: u64,
    /// What errors of reads name if they name no file.
    path: Option<String>,
    sequence: SequentialDetector,
    /// Everything before this byte was read.
    through: AtomicU64,
    in_parts: bool,
    /// Of a file that is read in parts, whether somebody read from the first part on into the second.
    from_start: AtomicBool,
}

/// A reader who has read this share of a file from its beginning on will probably read it to its end.
const THROUGH: u64 = 8;

/// The most bytes that a request of the kernel may overtake.
const MAX_OVERTAKEN: u64 = 512 << 10;

impl FileLayout {
    /// The file that `parts` make. `version` differs between two states of it. `LimitExceeded` for 2^63 bytes
    /// or more.
    pub fn new(version: u64, parts: Vec<Box<dyn Bytes>>) -> Result<FileLayout> {
        let mut end = 0u64;
        let ends = parts.iter().map(|part| {
            end = file_len(end.checked_add(part.len()))?;
            Ok(end)
        });
        Ok(FileLayout {
            ends: ends.collect::<Result<_>>()?,
            parts,
            version,
            path: None,
            sequence: SequentialDetector::default(),
            through: AtomicU64::new(0),
            in_parts: false,
            from_start: AtomicBool::new(false),
        })
    }

    /// This file. Errors of its reads that name no file name `path`.
    #[must_use]
    pub fn of(self, path: String) -> FileLayout {
        let path = Some(path);
        FileLayout { path, ..self }
    }

    /// This file, of which programs read parts, each by one request: what the kernel reads ahead without
    /// knowing the parts would be made in vain. It is opened for direct I/O, so that the kernel keeps nothing
    /// of it.
    #[must_use]
    pub fn read_in_parts(self) -> FileLayout {
        let in_parts = true;
        FileLayout { in_parts, ..self }
    }

    /// Whether programs read parts of it: see [`FileLayout::read_in_parts`].
    pub fn is_read_in_parts(&self) -> bool {
        self.in_parts
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Differs between two states of it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Appends the bytes in `range`, cut at the end of the file. Neither more nor fewer: a short read would
    /// look like the end of the file.
    pub fn read(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let len = self.len();
        let range = range.start.min(len)..range.end.min(len);
        let through = self.goes_through(&range);
        let keep = match (self.sequence.next(&range), self.in_parts && !through) {
            // Who reads a part again does so here.
            (_, true) => Keep::Staying,
            (keep, false) => keep,
        };
        let read = ahead::going(through, || out.kept(keep, |out| self.read_parts(range, out)));
        read.map_err(|error| match &self.path {
            Some(path) => error.at(0).in_file(path),
            None => error,
        })
    }

    /// Whether the reader of `range` probably goes through the whole file.
    fn goes_through(&self, range: &Range<u64>) -> bool {
        let before = self.through.load(Ordering::Relaxed);
        if range.start > before.saturating_add(MAX_OVERTAKEN) {
            return false;
        }
        self.through.fetch_max(range.end, Ordering::Relaxed);
        // The first part alone has no values, so who reads parts does not begin there.
        if self.in_parts && range.start == 0 && range.end > self.ends[0] {
            self.from_start.store(true, Ordering::Relaxed);
        }
        let enough = match self.from_start.load(Ordering::Relaxed) {
            true => MAX_OVERTAKEN.min(self.len() / THROUGH),
            false => self.len() / THROUGH,
        };
        // What has one part ends where that ends.
        range.end > enough && self.parts.len() > 1
    }

    /// A hint: somebody reads the whole file, in any order.
    pub fn will_be_read_whole(&self) {
        self.through.store(self.len(), Ordering::Relaxed);
    }

    fn read_parts(&self, range: Range<u64>, out: &mut Output) -> Result<()> {
        let mut index = self.ends.partition_point(|end| *end <= range.start);
        let mut position = range.start;
        while position < range.end {
            let (part, end) = (&self.parts[index], self.ends[index]);
            let start = if index == 0 { 0 } else { self.ends[index - 1] };
            assert_eq!(end - start, part.len(), "part {index} of a file lies elsewhere");
            let to = range.end.min(end);
            if position < to {
                let wanted = position - start..to - start;
                let before = out.len();
                part.read(wanted.clone(), out)?;
                let found = out.len() - before;
                // Fewer bytes would shift all that follows.
                if found as u64 != wanted.end - wanted.start {
                    let message = format!("read {found} bytes, expected {wanted:?} of part {index}");
                    return Err(Error::internal(message));
                }
            }
            position = to.max(position);
            index += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Zeros;
    use crate::error::ErrorKind;

    #[test]
    fn a_read_gives_what_the_parts_have_there() {
        let parts: [&[u8]; 6] = [b"", b"head", b"", b"a longer part", b"z", b""];
        let boxed = parts.iter().map(|part| Box::new(part.to_vec()) as Box<dyn Bytes>);
        let layout = FileLayout::new(7, boxed.collect()).unwrap();
        let whole = parts.concat();
        assert_eq!((layout.len(), layout.version()), (whole.len() as u64, 7));
        let mut out = Output::new();
        for start in 0..whole.len() + 3 {
            for end in start..whole.len() + 3 {
                out.clear();
                layout.read(start as u64..end as u64, &mut out).unwrap();
                let expected = &whole[start.min(whole.len())..end.min(whole.len())];
                assert_eq!(*out, *expected, "{start}..{end}");
            }
        }
        assert!(FileLayout::new(0, Vec::new()).unwrap().len() == 0);
    }

    #[test]
    fn no_file_has_more_bytes_than_a_system_can_tell() {
        let most = i64::MAX as u64;
        for (lens, fits) in [
            ([most, 0], true),
            ([most - 1, 1], true),
            ([most, 1], false),
            ([0, most + 1], false),
            ([u64::MAX, 1], false),
        ] {
            let parts = lens.map(|len| Box::new(Zeros(len)) as Box<dyn Bytes>);
            match FileLayout::new(0, parts.into()) {
                Ok(layout) => assert!(fits && layout.len() == most, "{lens:?}"),
                Err(error) => assert!(!fits && error.kind() == ErrorKind::LimitExceeded, "{lens:?}"),
            }
        }
    }

    #[test]
    fn who_reads_the_first_part_of_a_file_goes_through_it() {
        const MIB: u64 = 1 << 20;
        let layout =
            || FileLayout::new(0, vec![Box::new(Zeros(70 * MIB)), Box::new(Zeros(10 * MIB))]).unwrap();
        let whole = layout();
        for (start, through) in [(0, false), (1, false), (9, false), (9, false), (2, false)] {
            assert_eq!(
                whole.goes_through(&(start * MIB..(start + 1) * MIB)),
                through,
                "{start}"
            );
        }
        // The first request overtakes the second.
        let halves = [7, 6, 9, 11, 13, 15, 17, 19, 21, 160];
        let through = halves.map(|half| whole.goes_through(&(half * MIB / 2..half * MIB / 2 + MIB)));
        assert_eq!(through, halves.map(|half| half == 19 || half == 21));
        assert!(!layout().goes_through(&(0..10 * MIB)));
        assert!(layout().goes_through(&(0..11 * MIB)));
        assert!(!layout().goes_through(&(70 * MIB..71 * MIB)));
        let copied = layout();
        copied.will_be_read_whole();
        assert!(copied.goes_through(&(70 * MIB..71 * MIB)));
        let single = FileLayout::new(0, vec![Box::new(Zeros(80 * MIB))]).unwrap();
        assert!(!single.goes_through(&(0..11 * MIB)));
        // What has parts for programs, after a head without values.
        let head: Vec<Box<dyn Bytes>> = vec![Box::new(Zeros(4096)), Box::new(Zeros(80 * MIB))];
        let parts = FileLayout::new(0, head).unwrap().read_in_parts();
        assert!(!parts.goes_through(&(0..4)));
        assert!(!parts.goes_through(&(4096..MIB)));
        assert!(!parts.goes_through(&(0..MIB / 8)));
        assert!(parts.goes_through(&(MIB / 2..MIB)));
    }

    #[test]
    fn a_part_that_gives_another_number_of_bytes_is_an_error() {
        /// Three bytes, and as many as this are given.
        struct Wrong(usize);
        impl Bytes for Wrong {
            fn len(&self) -> u64 {
                3
            }
            fn read(&self, _: Range<u64>, out: &mut Output) -> Result<()> {
                out.append(&vec![0; self.0]);
                Ok(())
            }
        }
        for (given, right) in [(0, false), (2, false), (3, true), (4, false)] {
            let parts: Vec<Box<dyn Bytes>> = vec![Box::new(b"before".to_vec()), Box::new(Wrong(given))];
            let layout = FileLayout::new(0, parts).unwrap();
            for range in [0..9, 6..9] {
                let read = layout.read(range, &mut Output::new());
                assert_eq!(read.is_ok(), right, "{given} bytes");
            }
        }
    }

    #[test]
    fn a_part_at_a_wrong_place_never_gives_other_bytes() {
        let texts: [&[u8]; 3] = [b"head", b"a longer part", b"tail"];
        let (whole, mut failures) = (texts.concat(), 0);
        for (part, wrong) in (0..2).flat_map(|part| (0..24).map(move |end| (part, end))) {
            let parts = texts.map(|text| Box::new(text.to_vec()) as Box<dyn Bytes>);
            let mut layout = FileLayout::new(0, parts.into()).unwrap();
            layout.ends[part] = wrong;
            for range in [0..4, 0..21, 2..6, 4..17, 16..18, 17..21] {
                let read = || Output::of(|out| layout.read(range.clone(), out)).map(Vec::from);
                match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
                    Ok(Ok(found)) => {
                        let expected = &whole[range.start as usize..range.end as usize];
                        assert!(found == expected, "{range:?} if part {part} ends at {wrong}");
                    }
                    _ => failures += 1,
                }
            }
        }
        assert!(failures > 100, "{failures}");
    }

    #[test]
    fn a_file_beyond_all_numbers_is_refused() {
        struct Endless;
        impl Bytes for Endless {
            fn len(&self) -> u64 {
                u64::MAX
            }
            fn read(&self, _: Range<u64>, _: &mut Output) -> Result<()> {
                unreachable!("it is not read")
            }
        }
        assert!(FileLayout::new(0, vec![Box::new(Endless), Box::new(vec![1])]).is_err());
    }
}
