//! The index of each field in the per-field lists.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/fragment/fragment_metadata.cc>

use crate::format::schema::Schema;

/// The numbering of fields in the lists of one fragment's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Format version of the footer.
    pub version: u32,
    /// Number of attributes in the fragment's schema.
    pub attributes: usize,
    /// Number of dimensions in the fragment's schema.
    pub dimensions: usize,
    /// Whether a slot for cell timestamps follows the dimensions.
    pub has_timestamps: bool,
    /// Whether slots for delete timestamps and delete condition indexes follow.
    pub has_delete_metadata: bool,
}

impl Slots {
    /// The numbering in a footer of this version, without timestamps and delete metadata.
    pub fn of(version: u32, schema: &Schema) -> Slots {
        Slots {
            version,
            attributes: schema.attributes.len(),
            dimensions: schema.dimensions.len(),
            has_timestamps: false,
            has_delete_metadata: false,
        }
    }

    /// Length of the lists of all fields (file sizes, tile offsets).
    pub fn fixed(&self) -> usize {
        if self.version < 5 {
            self.attributes + 1
        } else {
            self.attributes
                + 1
                + self.dimensions
                + usize::from(self.has_timestamps)
                + 2 * usize::from(self.has_delete_metadata)
        }
    }

    /// Length of the lists of var-sized data; below version 5 they lack the coordinates.
    pub fn var(&self) -> usize {
        if self.version < 5 {
            self.attributes
        } else {
            self.fixed()
        }
    }

    /// Whether cells have timestamps of their own, of writes or deletes.
    pub fn are_timed(&self) -> bool {
        self.has_timestamps || self.has_delete_metadata
    }

    /// Slot of attribute `i`.
    pub fn attribute(&self, i: usize) -> usize {
        i
    }

    /// Slot of the zipped coordinates; unused from version 5.
    pub fn coords(&self) -> usize {
        self.attributes
    }

    /// Slot of dimension `i`; None below version 5, where coordinates are zipped.
    pub fn dimension(&self, i: usize) -> Option<usize> {
        (self.version >= 5 && i < self.dimensions).then(|| self.attributes + 1 + i)
    }

    /// Slot of the cell timestamps, if the fragment has them.
    pub fn timestamps(&self) -> Option<usize> {
        self.has_timestamps.then(|| self.attributes + 1 + self.dimensions)
    }

    /// Slot of the delete timestamps, if the fragment has them.
    pub fn delete_timestamps(&self) -> Option<usize> {
        self.has_delete_metadata
            .then(|| self.attributes + 1 + self.dimensions + usize::from(self.has_timestamps))
    }

    /// Slot of the delete condition indexes, if the fragment has them.
    pub fn delete_condition_index(&self) -> Option<usize> {
        self.delete_timestamps().map(|slot| slot + 1)
    }
}
