//! The small enumerations of the format, stored in one byte each.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/enums>

use crate::error::{Error, Result};

macro_rules! byte_enum {
    ($(#[$doc:meta])* $type:ident, $what:literal { $($variant:ident = $id:literal, $name:literal;)* }) => {
        byte_enum! { $(#[$doc])* $type, $what { $($variant = $id;)* } }

        impl $type {
            /// The string that TileDB's C API prints for it.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),* }
            }
        }
    };
    ($(#[$doc:meta])* $type:ident, $what:literal { $($variant:ident = $id:literal;)* }) => {
        $(#[$doc])*
        #[allow(missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $type { $($variant = $id),* }

        impl $type {
            /// The value with this number.
            ///
            /// # Errors
            ///
            /// `Corrupt` if there is none.
            pub fn from_u8(id: u8) -> Result<Self> {
                match id {
                    $($id => Ok($type::$variant),)*
                    _ => Err(Error::corrupt(format!(concat!("{} is not ", $what), id))),
                }
            }
        }
    };
}

pub(super) use byte_enum;

byte_enum! {
    /// Whether every cell of the domain has a value, or only those that were written.
    ArrayType, "an array type" {
        Dense = 0, "dense";
        Sparse = 1, "sparse";
    }
}

byte_enum! {
    /// The order of tiles in a domain, or of cells in a tile.
    Layout, "a layout" {
        RowMajor = 0, "row-major";
        ColMajor = 1, "col-major";
        GlobalOrder = 2, "global-order";
        Unordered = 3, "unordered";
        Hilbert = 4, "hilbert";
    }
}

byte_enum! {
    /// Whether the values of an attribute or label are sorted.
    DataOrder, "a data order" {
        Unordered = 0, "unordered";
        Increasing = 1, "increasing";
        Decreasing = 2, "decreasing";
    }
}

byte_enum! {
    /// How generic tiles and data tiles are encrypted.
    Encryption, "an encryption type" {
        None = 0;
        Aes256Gcm = 1;
    }
}

byte_enum! {
    /// The kind of a group's member.
    ObjectType, "an object type" {
        Invalid = 0, "INVALID";
        Group = 1, "GROUP";
        Array = 2, "ARRAY";
    }
}

byte_enum! {
    /// The pixel layout of a WEBP filter.
    WebpFormat, "a WebP input format" {
        None = 0, "NONE";
        Rgb = 1, "RGB";
        Bgr = 2, "BGR";
        Rgba = 3, "RGBA";
        Bgra = 4, "BGRA";
    }
}

byte_enum! {
    /// The comparison in a leaf of a condition.
    ConditionOp, "a condition operator" {
        Lt = 0, "LT";
        Le = 1, "LE";
        Gt = 2, "GT";
        Ge = 3, "GE";
        Eq = 4, "EQ";
        Ne = 5, "NE";
        In = 6, "IN";
        NotIn = 7, "NOT_IN";
        AlwaysTrue = 253, "ALWAYS_TRUE";
        AlwaysFalse = 254, "ALWAYS_FALSE";
    }
}

byte_enum! {
    /// How an inner node of a condition combines its children.
    Combination, "a condition combination" {
        And = 0, "AND";
        Or = 1, "OR";
        Not = 2, "NOT";
    }
}
