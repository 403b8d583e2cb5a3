use super::*;
use crate::error::ErrorKind;
use crate::format::datatype::Datatype;
use crate::format::testing::{Bytes, Field, check_hostile, field, schema, var};

const NAME: &str = "__1_1_00000000000000000000000000000000";
const D: Field = field("d", Datatype::Int32);
const A: Field = field("a", Datatype::Int64);
const S: Field = var("s", Datatype::StringAscii);

/// The differences between the footers of the tests.
#[derive(Clone, Copy)]
struct Shape {
    version: u32,
    dense: bool,
    attributes: usize,
    dimensions: usize,
    timestamps: bool,
    deletes: bool,
    tiles: u64,
    last: u64,
}

impl Shape {
    /// Version, schema name and the dense flag.
    fn front(self) -> Bytes {
        Bytes::default()
            .u32(self.version)
            .when(self.version >= 10, |b| b.text64(NAME))
            .u8(u8::from(self.dense))
    }

    /// The fields after the non-empty domain, without the optional sections. The values of all lists count up
    /// from 1000.
    fn rest(self, front: Bytes) -> Bytes {
        let v = self.version;
        let optional = usize::from(self.timestamps) + 2 * usize::from(self.deletes);
        let n = match v {
            ..5 => self.attributes + 1,
            _ => self.attributes + 1 + self.dimensions + optional,
        };
        let var = if v < 5 { self.attributes } else { n };
        let mut next = 1000;
        let mut list = |b: Bytes, count: usize| {
            next += count as u64;
            b.u64s(&(next - count as u64..next).collect::<Vec<_>>())
        };
        let mut b = front
            .u64(self.tiles)
            .u64(self.last)
            .when(v >= 14, |b| b.u8(u8::from(self.timestamps)))
            .when(v >= 15, |b| b.u8(u8::from(self.deletes)));
        b = list(b, n);
        b = list(b, var);
        b = list(b, if v >= 7 { n } else { 0 });
        b = list(b, 1);
        b = list(b, n);
        b = list(b, 2 * var);
        b = list(b, if v >= 7 { n } else { 0 });
        b = list(b, if v >= 11 { 4 * n } else { 0 });
        b = list(b, usize::from(v >= 12));
        list(b, usize::from(v >= 16))
    }

    fn body(self) -> Bytes {
        self.rest(self.front().u8(0).u32(3).u32(50))
            .when(self.version >= 23, |b| {
                b.count32(1).u64(77).count32(3).raw(b"abc")
            })
    }
}

fn shape(version: u32) -> Shape {
    Shape {
        version,
        dense: false,
        attributes: 2,
        dimensions: 1,
        timestamps: version >= 14,
        deletes: version >= 15,
        tiles: 4,
        last: 10,
    }
}

fn exact(bytes: &[u8], schema: &Schema) -> Result<Footer> {
    Footer::parse(&mut Cursor::new(bytes), schema, true)
}

#[test]
fn each_version_holds_what_it_introduced() {
    for version in 3..=23 {
        let schema = schema(version, true, &[D], &[A, S]);
        let body = shape(version).body();
        let f = check_hostile(&body, |bytes| exact(bytes, &schema));
        let at_least = |v| version >= v;
        let n = match version {
            3..=4 => 3,
            5..=13 => 4,
            14 => 5,
            _ => 7,
        };
        let var = if at_least(5) { n } else { 2 };
        assert_eq!((f.version, f.slots.fixed(), f.slots.var()), (version, n, var));
        assert_eq!(f.schema_name.as_deref(), at_least(10).then_some(NAME.as_bytes()));
        assert_eq!((f.dense, f.sparse_tile_num, f.last_tile_cell_num), (false, 4, 10));
        assert_eq!(
            (f.slots.has_timestamps, f.slots.has_delete_metadata),
            (at_least(14), at_least(15))
        );
        let domain = f.non_empty_domain.as_ref().unwrap();
        assert_eq!(
            (&domain[0].lo[..], &domain[0].hi[..]),
            (&[3, 0, 0, 0][..], &[50, 0, 0, 0][..])
        );

        let mut next = 1000;
        let mut check = |list: &[u64], count: usize| {
            assert_eq!(
                list,
                (next..next + count as u64).collect::<Vec<_>>(),
                "version {version}"
            );
            next += count as u64;
        };
        let (validity, metadata) = (if at_least(7) { n } else { 0 }, if at_least(11) { n } else { 0 });
        check(&f.file_sizes, n);
        check(&f.file_var_sizes, var);
        check(&f.file_validity_sizes, validity);
        let o = &f.offsets;
        check(&[o.rtree], 1);
        check(&o.tile_offsets, n);
        check(&o.tile_var_offsets, var);
        check(&o.tile_var_sizes, var);
        check(&o.tile_validity_offsets, validity);
        check(&o.tile_mins, metadata);
        check(&o.tile_maxs, metadata);
        check(&o.tile_sums, metadata);
        check(&o.tile_null_counts, metadata);
        check(o.fragment_statistics.as_slice(), usize::from(at_least(12)));
        check(o.processed_conditions.as_slice(), usize::from(at_least(16)));
        let unknown = OptionalSection {
            id: 77,
            data: b"abc".to_vec(),
        };
        assert_eq!(
            f.optional_sections,
            if at_least(23) { vec![unknown] } else { vec![] }
        );

        // Followed by another footer, as in consolidated fragment metadata.
        let twice = [&body.bytes[..], &body.bytes].concat();
        let mut c = Cursor::new(&twice);
        assert_eq!(Footer::parse(&mut c, &schema, false).unwrap(), f);
        assert_eq!(Footer::parse(&mut c, &schema, false).unwrap(), f);
        c.finish().unwrap();

        let front = Footer::peek(&mut Cursor::new(&body.bytes)).unwrap();
        assert_eq!(
            (front.version, front.schema_name, front.dense),
            (version, f.schema_name.clone(), f.dense)
        );
        f.check_sections(next - 1 + 34).unwrap();
        let error = f.check_sections(next - 2 + 34).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

/// A sparse fragment of version 22 over a number and a string, with three attributes.
#[test]
fn a_var_sized_dimension_takes_its_slot() {
    let name = "_".repeat(62);
    let schema = schema(
        22,
        true,
        &[field("d0", Datatype::Int32), var("d1", Datatype::StringAscii)],
        &[A, S, field("f", Datatype::Float32)],
    );
    let n = 6;
    let body = Bytes::default()
        .u32(22)
        .text64(&name)
        .u8(0)
        .u8(0)
        .u32(1)
        .u32(41)
        .u64(3)
        .u64(0)
        .raw(b"zzz")
        .u64(2)
        .u64(2)
        .u8(0)
        .u8(0)
        .u64s(&[80, 126, 60, 0, 110, 126])
        .u64s(&[0, 48, 0, 0, 0, 97])
        .u64s(&[78, 0, 0, 0, 0, 0])
        .u64(0)
        .u64s(&vec![100; 8 * n])
        .u64s(&[200, 300]);
    assert_eq!(body.bytes.len(), 673);
    let f = exact(&body.bytes, &schema).unwrap();
    let domain = f.non_empty_domain.as_ref().unwrap();
    assert_eq!((&domain[1].lo[..], &domain[1].hi[..]), (&b""[..], &b"zzz"[..]));
    let slot = f.slots.dimension(1).unwrap();
    assert_eq!((f.file_sizes[slot], f.file_var_sizes[slot]), (126, 97));
    assert_eq!(f.file_validity_sizes[f.slots.attribute(0)], 78);
    assert_eq!(
        (f.offsets.fragment_statistics, f.offsets.processed_conditions),
        (Some(200), Some(300))
    );
    let position = Footer::locate(22, None, 5000, 673u64.to_le_bytes()).unwrap();
    assert_eq!((position.offset, position.size), (5000 - 8 - 673, 673));
}

#[test]
fn computed_lengths_are_those_of_the_footers() {
    let two = [field("x", Datatype::Int32), field("y", Datatype::Int32)];
    for version in 3..=9 {
        for (attributes, length) in [(&[A][..], [102, 206, 270]), (&[A, S][..], [142, 246, 326])] {
            let schema = schema(version, false, &two, attributes);
            let expected = match version {
                3..=4 => length[0],
                5..=6 => length[1],
                _ => length[2],
            };
            // No length is stored, so the last word does not matter.
            let position = Footer::locate(version, Some(&schema), 1000, [0xFF; 8]).unwrap();
            assert_eq!(
                (position.offset, position.size),
                (1000 - expected, expected),
                "version {version}"
            );
            let shape = Shape {
                dense: true,
                attributes: attributes.len(),
                dimensions: 2,
                tiles: 0,
                ..shape(version)
            };
            let front = shape.front().u8(0).u32(3).u32(50).u32(1).u32(100);
            assert_eq!(shape.rest(front).bytes.len() as u64, expected);
            let short = Footer::locate(version, Some(&schema), expected - 1, [0; 8]).unwrap_err();
            assert_eq!(short.kind(), ErrorKind::Truncated);
        }
    }
}

#[test]
fn a_stored_length_is_used_where_there_is_one() {
    let strings = [var("d", Datatype::StringAscii)];
    for version in 5..=23 {
        let old = match version {
            5..=9 => schema(version, true, &strings, &[A]),
            _ => schema(version, true, &[D], &[A]),
        };
        let schema = (version < 10 || version % 2 == 0).then_some(&old);
        let locate = |size, word: u64| Footer::locate(version, schema, size, word.to_le_bytes());
        let position = locate(100, 92).unwrap();
        assert_eq!((position.offset, position.size), (0, 92));
        for (size, word) in [(100, 93), (100, u64::MAX), (7, 0), (0, 0)] {
            assert_eq!(locate(size, word).unwrap_err().kind(), ErrorKind::Truncated);
        }
    }
}

#[test]
fn locating_needs_a_version_with_a_footer() {
    let kind = |version| Footer::locate(version, None, 1000, [0; 8]).unwrap_err().kind();
    assert_eq!(kind(2), ErrorKind::InvalidInput);
    assert_eq!(kind(9), ErrorKind::InvalidInput, "no schema");
    assert_eq!(kind(0), ErrorKind::UnsupportedVersion);
    assert_eq!(kind(24), ErrorKind::UnsupportedVersion);
}

#[test]
fn newer_libraries_leave_a_word_behind_version_11() {
    let schema11 = schema(11, true, &[D], &[A, S]);
    let body = shape(11).body();
    let plain = exact(&body.bytes, &schema11).unwrap();
    let with_word = body.clone().u64(12345).bytes;
    assert_eq!(exact(&with_word, &schema11).unwrap(), plain);
    assert!(exact(&body.clone().u32(1).bytes, &schema11).is_err());
    assert!(exact(&body.u64(1).u64(2).bytes, &schema11).is_err());
    let schema10 = schema(10, true, &[D], &[A, S]);
    assert!(exact(&shape(10).body().u64(1).bytes, &schema10).is_err());
}

#[test]
fn null_domains_may_have_dummy_bytes() {
    for version in [3, 9, 22] {
        let schema = schema(version, true, &[D], &[A, S]);
        let shape = shape(version);
        let without = shape.rest(shape.front().u8(1));
        let with = shape.rest(shape.front().u8(1).u64(0));
        let f = exact(&without.bytes, &schema).unwrap();
        assert_eq!(
            (f.non_empty_domain.as_ref(), f.offsets.rtree >= 1000),
            (None, true)
        );
        assert_eq!(exact(&with.bytes, &schema).unwrap(), f);
        assert_eq!(f.sparse_tile_num, 4);
        assert!(exact(&without.u8(0).bytes, &schema).is_err());
    }
}

#[test]
fn optional_sections_of_version_23() {
    let dimensions = [D, var("e", Datatype::StringAscii)];
    let schema23 = schema(23, true, &dimensions, &[A]);
    let shape = Shape {
        attributes: 1,
        dimensions: 2,
        ..shape(23)
    };
    let front = shape.rest(shape.front().u8(0).u32(3).u32(50).u64(2).u64(1).raw(b"az"));
    let bounds = front
        .clone()
        .count32(2)
        .u64(9)
        .count32(0)
        .u64(0)
        .count32(32)
        .u64s(&[11, 12, 13, 14]);
    let f = check_hostile(&bounds, |bytes| exact(bytes, &schema23));
    assert_eq!(
        (&f.offsets.global_order_mins[..], &f.offsets.global_order_maxs[..]),
        (&[11, 12][..], &[13, 14][..])
    );
    assert_eq!(
        f.optional_sections
            .iter()
            .map(|s| (s.id, s.data.len()))
            .collect::<Vec<_>>(),
        [(9, 0), (0, 32)]
    );
    assert!(f.check_sections(2000).is_ok());
    for size in [24u32, 40] {
        let wrong = front.clone().u32(1).u64(0).u32(size).raw(&vec![0; size as usize]);
        assert!(exact(&wrong.bytes, &schema23).is_err());
    }
    assert_eq!(
        exact(&front.u32(0).bytes, &schema23).unwrap().optional_sections,
        []
    );
}

#[test]
fn schema_names_stay_in_their_directory() {
    for name in ["", ".", "..", "../x", "a/b", "a\\b", "a\0b"] {
        let front = Bytes::default().u32(10).text64(name).bytes;
        let error = Footer::peek(&mut Cursor::new(&front)).unwrap_err();
        assert_eq!(error.part(), Some("footer, `schema_name`"), "{name:?}");
    }
}

#[test]
fn contradictions_are_found() {
    let sparse = schema(22, true, &[D], &[A, S]);
    let dense = schema(22, false, &[D], &[A, S]);
    let part = |shape: Shape, schema: &Schema, lo: u32, hi: u32| {
        let body = shape.rest(shape.front().u8(0).u32(lo).u32(hi));
        exact(&body.bytes, schema)
            .err()
            .and_then(|error| Some(error.part()?.to_string()))
    };
    let good = shape(22);
    assert_eq!(part(good, &sparse, 3, 50), None);
    assert_eq!(
        part(good, &dense, 3, 50),
        None,
        "a sparse fragment in a dense array"
    );
    let part_of = |shape| part(shape, &dense, 3, 50);
    for last in [0, 11] {
        assert_eq!(
            part_of(Shape { last, ..good }).unwrap(),
            "footer, `last_tile_cell_num`"
        );
    }
    let dense_shape = Shape {
        dense: true,
        tiles: 0,
        last: 11,
        ..good
    };
    assert_eq!(part_of(dense_shape), None);
    let tiles = Shape {
        tiles: 1,
        ..dense_shape
    };
    assert_eq!(part_of(tiles).unwrap(), "footer, `sparse_tile_num`");
    assert_eq!(part(dense_shape, &sparse, 3, 50).unwrap(), "footer, `dense`");
    let domain = "footer, `non_empty_domain`, dimension 0";
    assert_eq!(part(good, &sparse, 4, 3).unwrap(), domain);
    assert_eq!(part(dense_shape, &dense, 0, 3).unwrap(), domain);
    assert_eq!(part(dense_shape, &dense, 101, 101).unwrap(), domain);
    assert_eq!(part(dense_shape, &dense, 100, 110), None, "whole tiles");
    let future = Shape { version: 24, ..good };
    let error = exact(&future.body().bytes, &dense).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
}
