//! The rows and columns of an AnnData.

use std::ops::{Range, RangeInclusive};

/// The joinids of an axis, ascending. Each has the place of its rank.
#[derive(Debug, Hash)]
pub enum Axis {
    /// 0, 1, .. up to this number.
    Whole(u64),
    /// These.
    Listed(Vec<i64>),
}

impl Axis {
    /// The number of joinids.
    pub fn len(&self) -> u64 {
        match self {
            Axis::Whole(count) => *count,
            Axis::Listed(joinids) => joinids.len() as u64,
        }
    }

    /// The place of a joinid; None if it is none of these.
    pub fn place(&self, joinid: i64) -> Option<u64> {
        match self {
            Axis::Whole(count) => u64::try_from(joinid).ok().filter(|place| place < count),
            Axis::Listed(joinids) => joinids.binary_search(&joinid).ok().map(|place| place as u64),
        }
    }

    /// The joinid at a place, which there is.
    pub(super) fn joinid(&self, place: u64) -> i64 {
        match self {
            Axis::Whole(_) => place as i64,
            Axis::Listed(joinids) => joinids[place as usize],
        }
    }

    /// The joinids at `places`, of which there is one at least, as a range that may have gaps.
    pub(super) fn joinids(&self, places: &Range<u64>) -> RangeInclusive<i64> {
        self.joinid(places.start)..=self.joinid(places.end - 1)
    }

    /// The places of the joinids in a range; None if some of them are none of these.
    pub(super) fn places(&self, joinids: &RangeInclusive<i64>) -> Option<RangeInclusive<u64>> {
        let (first, last) = (self.place(*joinids.start())?, self.place(*joinids.end())?);
        let length = joinids.start().abs_diff(*joinids.end());
        (last.checked_sub(first)? == length).then_some(first..=last)
    }
}

/// Finds the places of joinids that mostly ascend.
pub(super) struct Finder<'a> {
    axis: &'a Axis,
    /// The place of a joinid that is not above the next one, probably.
    at: usize,
}

impl<'a> Finder<'a> {
    /// A search from the first joinid on.
    pub(super) fn new(axis: &'a Axis) -> Finder<'a> {
        Finder { axis, at: 0 }
    }

    /// See [`Axis::place`].
    pub(super) fn place(&mut self, joinid: i64) -> Option<u64> {
        let Axis::Listed(joinids) = self.axis else {
            return self.axis.place(joinid);
        };
        let mut start = match joinids.get(self.at) {
            Some(before) if *before <= joinid => self.at,
            _ => 0,
        };
        let mut step = 1;
        while joinids.get(start + step).is_some_and(|next| *next <= joinid) {
            start += step;
            step *= 2;
        }
        let near = &joinids[start..joinids.len().min(start + step)];
        let found = near.binary_search(&joinid);
        self.at = start + found.unwrap_or_else(|after| after.max(1) - 1);
        found.is_ok().then_some(self.at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_from_any_place_on() {
        for missing in [2, 3, 7] {
            let axis = Axis::Listed(
                (0..200)
                    .filter(|joinid| joinid * joinid % 11 % missing > 0)
                    .collect(),
            );
            let mut finder = Finder::new(&axis);
            for number in 0..1000 {
                let joinid = number * number % 211 - 3;
                assert_eq!(finder.place(joinid), axis.place(joinid));
            }
            for (place, joinid) in (0..axis.len()).map(|place| (place, axis.joinid(place))) {
                assert_eq!(axis.place(joinid), Some(place));
            }
        }
    }
}
