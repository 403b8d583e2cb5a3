//! Lists of tiles in the metadata file of a fragment.
//!
//! A list is a generic tile, filtered in chunks like any other, so reading an entry decodes one chunk however
//! many tiles there are.

use super::generic_body::GenericBody;
use super::tile_list::{TileList, WINDOW, wrong_count};
use crate::cursor::Cursor;
use crate::error::Result;
use crate::format::body::Body;
use crate::runtime::lock::lock;
use std::ops::Range;
use std::sync::Mutex;

/// A list in the metadata file: a count u64, then the entries.
pub struct StoredList {
    body: GenericBody,
    /// The entries read last, after the number of the first of them. Sequential readers want the next ones:
    /// with very many fragments read in turns, looking entries up would take longer than copying cells.
    window: Mutex<(u64, Vec<u64>)>,
}

impl StoredList {
    /// The list in `body`.
    pub fn new(body: GenericBody) -> Self {
        StoredList {
            body,
            window: Mutex::default(),
        }
    }

    /// Appends the entries in `range`, which is not empty, up to the end of the first entry's window. Returns
    /// that end.
    fn append(&self, tile_num: u64, range: Range<u64>, out: &mut Vec<u64>) -> Result<u64> {
        let first = range.start - range.start % WINDOW;
        let end = range.end.min(first.saturating_add(WINDOW));
        let part = (range.start - first) as usize..(end - first) as usize;
        let mut window = lock(&self.window);
        if window.0 != first || window.1.is_empty() {
            drop(window);
            let entries = self.read(tile_num, first..first.saturating_add(WINDOW).min(tile_num))?;
            window = lock(&self.window);
            *window = (first, entries);
        }
        out.extend_from_slice(&window.1[part]);
        Ok(end)
    }

    fn read(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let size = self.body.size()?;
        let mut raw = Vec::new();
        self.body.read(0..8, &mut raw)?;
        let count = Cursor::new(&raw).u64("count")?;
        let bytes = count.checked_mul(8).and_then(|n| n.checked_add(8));
        if count < tile_num || bytes != Some(size) {
            let entries = (size - 8) / 8;
            return Err(self.body.place(wrong_count(count.min(entries), tile_num)));
        }
        raw.clear();
        self.body.read(8 + range.start * 8..8 + range.end * 8, &mut raw)?;
        let entries = raw.as_chunks::<8>().0.iter();
        Ok(entries.map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }
}

impl TileList for StoredList {
    fn entries(&self, tile_num: u64, range: Range<u64>) -> Result<Vec<u64>> {
        let mut range = range.start.min(tile_num)..range.end.min(tile_num);
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        while range.start < range.end {
            range.start = self.append(tile_num, range.clone(), &mut out)?;
        }
        Ok(out)
    }
}
