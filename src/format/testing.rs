//! For tests: builds bytes field by field, and damages them in ways that parsers must survive.

use super::datatype::{CellValNum, Datatype};
use super::schema::Schema;
use crate::error::Result;
use std::fmt::Debug;

/// Bytes under construction, with the positions of their counts and lengths.
#[derive(Debug, Clone, Default)]
pub struct Bytes {
    pub bytes: Vec<u8>,
    /// Position and width of each count or length.
    counts: Vec<(usize, usize)>,
}

impl Bytes {
    pub fn u8(mut self, v: u8) -> Self {
        self.bytes.push(v);
        self
    }

    pub fn u32(mut self, v: u32) -> Self {
        self.bytes.extend(v.to_le_bytes());
        self
    }

    pub fn u64(mut self, v: u64) -> Self {
        self.bytes.extend(v.to_le_bytes());
        self
    }

    pub fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self, |bytes, &v| bytes.u64(v))
    }

    pub fn raw(mut self, v: &[u8]) -> Self {
        self.bytes.extend_from_slice(v);
        self
    }

    pub fn count32(mut self, v: usize) -> Self {
        self.counts.push((self.bytes.len(), 4));
        self.u32(v as u32)
    }

    pub fn count64(mut self, v: usize) -> Self {
        self.counts.push((self.bytes.len(), 8));
        self.u64(v as u64)
    }

    pub fn text32(self, v: &str) -> Self {
        self.count32(v.len()).raw(v.as_bytes())
    }

    pub fn text64(self, v: &str) -> Self {
        self.count64(v.len()).raw(v.as_bytes())
    }

    /// Adds a pipeline of filters given by number and options.
    pub fn pipeline(self, filters: &[(u8, &[u8])]) -> Self {
        let bytes = self.u32(65536).count32(filters.len());
        filters.iter().fold(bytes, |bytes, (id, options)| {
            bytes.u8(*id).count32(options.len()).raw(options)
        })
    }

    pub fn when(self, condition: bool, add: impl FnOnce(Self) -> Self) -> Self {
        if condition { add(self) } else { self }
    }
}

/// ZSTD at its default level.
pub const ZSTD: (u8, &[u8]) = (2, &[2, 255, 255, 255, 255]);
/// FLOAT64 as integers of 8 bytes; scale 1.0, offset 0.0.
pub const SCALE_FLOAT: (u8, &[u8]) = (15, b"\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0");
/// Run lengths.
pub const RLE: (u8, &[u8]) = (4, &[4, 255, 255, 255, 255]);

/// Parses `good`. Checks that parsing fails for each proper prefix, for an extra byte, and for each count
/// made too large, and that no change of a single byte makes it panic.
pub fn check_hostile<T: Debug>(good: &Bytes, parse: impl Fn(&[u8]) -> Result<T>) -> T {
    let parsed = parse(&good.bytes).expect("the unchanged bytes");
    for n in 0..good.bytes.len() {
        let result = parse(&good.bytes[..n]);
        assert!(
            result.is_err(),
            "the first {n} of {} bytes parse as {result:?}",
            good.bytes.len()
        );
    }
    let longer = good.clone().u8(0).bytes;
    assert!(parse(&longer).is_err(), "a byte too many");
    check_damage(good, &parse);
    parsed
}

/// The checks of [`check_hostile`] that also suit parsers for which a prefix may be well-formed.
pub fn check_damage<T: Debug>(good: &Bytes, parse: impl Fn(&[u8]) -> Result<T>) {
    for &(at, width) in &good.counts {
        for huge in [u64::MAX, u64::MAX / 2, u64::MAX / 8 + 2, 1 << 31] {
            let mut bytes = good.bytes.clone();
            let word = if width == 4 {
                huge >> 32 | huge & (1 << 31)
            } else {
                huge
            };
            bytes[at..at + width].copy_from_slice(&word.to_le_bytes()[..width]);
            let result = parse(&bytes);
            assert!(
                result.is_err(),
                "a count of {word} at byte {at} parses as {result:?}"
            );
        }
    }
    for at in 0..good.bytes.len() {
        for change in [0, 1, 0x7F, 0x80, 0xFF] {
            let mut bytes = good.bytes.clone();
            bytes[at] = change;
            let _ = parse(&bytes);
        }
    }
}

/// A field of a test's schema, for example an INT32 over `[1, 100]` with extent 10, or a nullable string.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub datatype: Datatype,
    pub var: bool,
    pub nullable: bool,
}

pub const fn field(name: &'static str, datatype: Datatype) -> Field {
    Field {
        name,
        datatype,
        var: false,
        nullable: false,
    }
}

pub const fn var(name: &'static str, datatype: Datatype) -> Field {
    Field {
        name,
        datatype,
        var: true,
        nullable: false,
    }
}

impl Field {
    fn cells(self) -> u32 {
        if self.var { CellValNum::VAR } else { 1 }
    }
}

/// The body of a schema without labels, enumerations and current domain; capacity 10.
pub fn schema_body(version: u32, sparse: bool, dimensions: &[Field], attributes: &[Field]) -> Bytes {
    let mut b = Bytes::default()
        .u32(version)
        .when(version >= 5, |b| b.u8(u8::from(sparse)))
        .u8(u8::from(sparse))
        .u8(0)
        .u8(1)
        .u64(10)
        .pipeline(&[ZSTD])
        .pipeline(&[ZSTD])
        .when(version >= 7, |b| b.pipeline(&[RLE]))
        .when(version < 5, |b| {
            b.u8(dimensions.first().map_or(0, |d| d.datatype as u8))
        })
        .count32(dimensions.len());
    for d in dimensions {
        let size = d.datatype.size();
        let number = |n: u64| n.to_le_bytes()[..size].to_vec();
        b = b
            .text32(d.name)
            .when(version >= 5, |b| {
                b.u8(d.datatype as u8)
                    .u32(d.cells())
                    .pipeline(&[])
                    .count64(if d.var { 0 } else { 2 * size })
            })
            .when(!d.var, |b| {
                b.raw(&number(1)).raw(&number(100)).u8(0).raw(&number(10))
            })
            .when(d.var, |b| b.u8(1));
    }
    b = b.count32(attributes.len());
    for a in attributes {
        b = b
            .text32(a.name)
            .u8(a.datatype as u8)
            .u32(a.cells())
            .pipeline(&[])
            .when(version >= 6, |b| {
                b.count64(a.datatype.size()).raw(&vec![7; a.datatype.size()])
            })
            .when(version >= 7, |b| b.u8(u8::from(a.nullable)).u8(0))
            .when(version >= 17, |b| b.u8(0))
            .when(version >= 20, |b| b.text32(""));
    }
    b.when(version >= 18, |b| b.count32(0))
        .when(version >= 20, |b| b.count32(0))
        .when(version >= 22, |b| b.u32(0).u8(1))
}

/// The schema that [`schema_body`] describes.
pub fn schema(version: u32, sparse: bool, dimensions: &[Field], attributes: &[Field]) -> Schema {
    Schema::parse(&schema_body(version, sparse, dimensions, attributes).bytes).unwrap()
}

/// Random-looking numbers, always the same for a seed (SplitMix64). The field is the seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// An index of a list of `len` items; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of some values.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}
