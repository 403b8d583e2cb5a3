//! Positions of names in a list, which grows with the fields of an array: a search for each of them takes as
//! long as there are fields, and is done for each field.

use std::collections::HashMap;
use std::sync::OnceLock;

/// The positions of names in a list that does not change. Made by the first search.
#[derive(Debug, Default)]
pub struct NameIndex(OnceLock<HashMap<Vec<u8>, usize>>);

#[cfg(test)]
thread_local! {
    /// How many names have been looked at.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl NameIndex {
    /// The position of the first name in `names`, always the same list, that is `name`.
    pub fn position<'n>(&self, name: &[u8], names: impl Iterator<Item = &'n Vec<u8>>) -> Option<usize> {
        let positions = self.0.get_or_init(|| {
            let mut positions = HashMap::new();
            for (position, name) in names.enumerate() {
                #[cfg(test)]
                LOOKS.set(LOOKS.get() + 1);
                positions.entry(name.clone()).or_insert(position);
            }
            positions
        });
        positions.get(name).copied()
    }
}

impl Clone for NameIndex {
    /// An index of a list that may be changed: nothing of it is kept.
    fn clone(&self) -> Self {
        NameIndex::default()
    }
}

impl PartialEq for NameIndex {
    /// Always: it follows from the list.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_at_once() {
        let names: Vec<Vec<u8>> = (0..1000).map(|i| format!("{}", i % 900).into_bytes()).collect();
        let index = NameIndex::default();
        let before = LOOKS.get();
        for (i, name) in names.iter().enumerate() {
            assert_eq!(index.position(name, names.iter()), Some(i % 900));
        }
        assert_eq!(index.position(b"", names.iter()), None);
        assert_eq!(LOOKS.get() - before, 1000);
        assert!(index.clone().position(b"0", [].iter()).is_none());
    }
}
