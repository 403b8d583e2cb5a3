//! How many cells a reader still wants after a read: those of the rest of its part of a file, of a column
//! chunk for example. A storage that reads ahead ends there.

use std::cell::Cell;
use std::thread::LocalKey;

thread_local! {
    static CELLS: Cell<Option<u64>> = const { Cell::new(None) };
    static THROUGH: Cell<bool> = const { Cell::new(false) };
}

/// The cells of the reader's part behind what this thread reads; None if that is not known.
pub fn cells_ahead() -> Option<u64> {
    CELLS.get()
}

/// Does `work`, which reads up to byte `end` of a part of `len` bytes and `cells` cells.
pub fn reading<T>(cells: u64, len: u64, end: u64, work: impl FnOnce() -> T) -> T {
    // Rounded down: too few cells are noticed at the next read, too many are fetched in vain.
    let ahead = u128::from(cells) * u128::from(len.saturating_sub(end)) / u128::from(len.max(1));
    with(&CELLS, Some(ahead as u64), work)
}

/// Does `work`, which reads those cells of the part that a fragment has: `wanted` of `total` cells that this
/// thread reads now, and so probably of all others.
pub fn share<T>(wanted: u64, total: u64, work: impl FnOnce() -> T) -> T {
    let share = |cells| (u128::from(cells) * u128::from(wanted) / u128::from(total.max(1))) as u64;
    with(&CELLS, CELLS.get().map(share), work)
}

/// Whether the reader goes through the whole file.
pub fn is_through() -> bool {
    THROUGH.get()
}

/// Does `work` for a reader who goes through the whole file if `through`: a part of the file is not the end.
pub fn going<T>(through: bool, work: impl FnOnce() -> T) -> T {
    with(&THROUGH, through, work)
}

/// Does `work` while `cell` has `value`.
fn with<V, T>(cell: &'static LocalKey<Cell<V>>, value: V, work: impl FnOnce() -> T) -> T {
    let before = cell.replace(value);
    let result = work();
    cell.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_has_its_share_of_what_is_ahead() {
        assert_eq!(share(1, 4, cells_ahead), None);
        let shares = || (share(1, 4, cells_ahead), share(3, 4, cells_ahead), cells_ahead());
        assert_eq!(reading(1000, 10, 0, shares), (Some(250), Some(750), Some(1000)));
    }

    #[test]
    fn who_goes_through_a_file_goes_through_its_parts() {
        let nested = || (going(false, is_through), is_through());
        assert_eq!(going(true, nested), (false, true));
        assert!(!is_through());
    }

    #[test]
    fn what_is_ahead_is_the_share_of_the_bytes_left() {
        assert_eq!(cells_ahead(), None);
        let inner = || reading(7, 7, 7, cells_ahead);
        let seen = reading(1000, 4030, 30, || (cells_ahead(), inner(), cells_ahead()));
        assert_eq!(seen, (Some(992), Some(0), Some(992)));
        assert_eq!(cells_ahead(), None);
        assert_eq!(reading(u64::MAX, u64::MAX, 0, cells_ahead), Some(u64::MAX));
    }
}
