use super::*;
use crate::error::ErrorKind;
use crate::format::pipeline::{Codec, Filter};
use crate::format::testing::{Bytes, Field, RLE, ZSTD, check_hostile, field, schema_body, var};

const D: Field = field("d", Datatype::Int32);

fn error(body: &Bytes) -> crate::error::Error {
    Schema::parse(&body.bytes).unwrap_err()
}

/// Replaces the one occurrence of `from` in the bytes.
fn replace(body: &Bytes, from: &[u8], to: &[u8]) -> Bytes {
    let mut found = (0..body.bytes.len()).filter(|&i| body.bytes[i..].starts_with(from));
    let at = found.next().unwrap();
    assert_eq!(found.next(), None, "several occurrences");
    Bytes::default()
        .raw(&body.bytes[..at])
        .raw(to)
        .raw(&body.bytes[at + from.len()..])
}

/// A body with everything that its version can hold.
fn full_body(version: u32) -> Bytes {
    let at_least = |v| version >= v;
    Bytes::default()
        .u32(version)
        .when(at_least(5), |b| b.u8(1))
        .u8(1)
        .u8(1)
        .u8(0)
        .u64(123)
        .pipeline(&[ZSTD])
        .pipeline(&[(10, &[16, 0, 0, 0]), ZSTD])
        .when(at_least(7), |b| b.pipeline(&[RLE]))
        .when(!at_least(5), |b| b.u8(0))
        .count32(2)
        .text32("x")
        .when(at_least(5), |b| b.u8(0).u32(1).pipeline(&[(9, &[])]).count64(8))
        .u32(0xFFFF_FFF0)
        .u32(90)
        .u8(0)
        .u32(5)
        .text32("y")
        .when(at_least(5), |b| {
            b.u8(11).u32(u32::MAX).pipeline(&[]).count64(0).u8(1)
        })
        .when(!at_least(5), |b| b.u32(1).u32(2).u8(1))
        .count32(2)
        .text32("a")
        .u8(4)
        .u32(3)
        .pipeline(&[])
        .when(at_least(6), |b| b.count64(3).raw(b"abc"))
        .when(at_least(7), |b| b.u8(1).u8(1))
        .when(at_least(17), |b| b.u8(2))
        .when(at_least(20), |b| b.text32("colours"))
        .text32("s")
        .u8(12)
        .u32(u32::MAX)
        .pipeline(&[(19, &[8, 1, 0, 0, 0, 17])])
        .when(at_least(6), |b| b.count64(2).raw(b"??"))
        .when(at_least(7), |b| b.u8(0).u8(0))
        .when(at_least(17), |b| b.u8(0))
        .when(at_least(20), |b| b.text32(""))
        .when(at_least(18), |b| {
            b.count32(1)
                .u32(1)
                .text32("label")
                .u8(1)
                .text64("__labels/l0")
                .text32("attr")
                .u8(1)
                .u8(3)
                .u32(1)
                .u8(0)
        })
        .when(at_least(20), |b| {
            b.count32(1).text32("colours").text32("__0123_0")
        })
        .when(at_least(22), |b| {
            b.u32(0).u8(0).u8(0).u32(0).u32(9).u64(3).u64(1).raw(b"akz")
        })
}

#[test]
fn each_version_holds_what_it_introduced() {
    for version in 1..=23 {
        let at_least = |v| version >= v;
        let s = check_hostile(&full_body(version), Schema::parse);
        assert_eq!((s.version, s.array_type), (version, ArrayType::Sparse));
        assert_eq!((s.tile_order, s.cell_order), (Layout::ColMajor, Layout::RowMajor));
        assert_eq!((s.capacity, s.allows_duplicates), (123, at_least(5)));
        assert_eq!(s.offsets_filters.filters.len(), 2);
        assert_eq!(s.validity_filters.is_some(), at_least(7));

        let [x, y] = &s.dimensions[..] else { panic!() };
        let domain = x.domain.as_ref().unwrap();
        assert_eq!(domain.lo, (-16i32).to_le_bytes());
        assert_eq!(domain.hi, 90i32.to_le_bytes());
        assert_eq!(x.tile_extent.as_deref(), Some(&[5, 0, 0, 0][..]));
        assert_eq!(x.cell_size(), Some(4));
        assert_eq!(y.cell_val_num.is_var(), at_least(5));
        assert_eq!(y.domain.is_none(), at_least(5));
        assert_eq!((&y.name[..], &y.tile_extent), (&b"y"[..], &None));
        assert_eq!(s.coordinates_size(), (!at_least(5)).then_some(8));
        let zstd = Filter::Compression {
            codec: Codec::Zstd,
            level: -1,
            reinterpret: None,
        };
        if at_least(5) {
            assert_eq!(s.dimension_filters(0).filters, [Filter::Byteshuffle]);
            assert_eq!(s.dimension_filters(1).filters, [zstd]);
        } else {
            assert_eq!(s.coords_filters.filters, [zstd]);
            assert_eq!(s.dimension_filters(0).filters, []);
            assert_eq!(s.dimension_filters(1).filters, []);
        }

        let [a, t] = &s.attributes[..] else { panic!() };
        let fills: [&[u8]; 2] = if at_least(6) {
            [b"abc", b"??"]
        } else {
            [&[0x80; 3], &[0]]
        };
        assert_eq!([&a.fill_value[..], &t.fill_value[..]], fills);
        assert_eq!((a.nullable, a.fill_value_valid), (at_least(7), at_least(7)));
        assert_eq!((a.cell_size(), t.cell_size()), (Some(3), None));
        assert_eq!(
            a.order,
            if at_least(17) {
                DataOrder::Decreasing
            } else {
                DataOrder::Unordered
            }
        );
        assert_eq!(a.enumeration.as_deref(), at_least(20).then_some(&b"colours"[..]));
        assert_eq!(t.enumeration, None);
        assert_eq!(s.attribute_index(b"s"), Some(1));
        assert_eq!(s.attribute(b"a"), Some(a));
        assert_eq!(s.dimension(b"y"), Some(y));
        assert_eq!(s.dimension_index(b"a"), None);

        assert_eq!(s.dimension_labels.len(), usize::from(at_least(18)));
        if let [label] = &s.dimension_labels[..] {
            assert_eq!((label.dimension_index, label.relative), (1, true));
            assert_eq!(
                (&label.name[..], &label.uri[..]),
                (&b"label"[..], &b"__labels/l0"[..])
            );
            assert_eq!(
                (&label.attribute[..], label.datatype),
                (&b"attr"[..], Datatype::Float64)
            );
            assert_eq!((label.order, label.external), (DataOrder::Increasing, false));
        }
        let file = at_least(20).then_some(&b"__0123_0"[..]);
        assert_eq!(s.enumeration_file(b"colours"), file);
        let current = s.current_domain.as_ref();
        assert_eq!(current.is_some(), at_least(22));
        if let Some([x, y]) = current.map(|rect| &rect[..]) {
            assert_eq!((x.lo[0], x.hi[0]), (0, 9));
            assert_eq!((&y.lo[..], &y.hi[..]), (&b"a"[..], &b"kz"[..]));
        }
    }
}

/// Bodies written by libtiledb 1.5.0 and 2.30.0.
#[test]
fn real_bodies() {
    let body = unhex(
        "160000000000000010270000000000000000010001000000020500000002ffffffff0000010001000000020500000002ffffffff\
         0000010001000000040500000004ffffffff0100000001000000780001000000000001000000000008000000000000000000000009\
         0000000005000000010000000000000008010000000000010001000000030500000003ffffffff0200000000000000ffff000000\
         0000000000000000000000000000000001",
    );
    let s = Schema::parse(&body).unwrap();
    assert_eq!(
        (s.version, s.capacity, s.array_type),
        (22, 10000, ArrayType::Dense)
    );
    assert_eq!(
        (&s.dimensions[0].name[..], &s.attributes[0].name[..]),
        (&b"x"[..], &b""[..])
    );
    assert_eq!(s.attributes[0].datatype, Datatype::Uint16);
    assert_eq!(s.attributes[0].filters.filters[0].name(), "LZ4");
    assert_eq!(s.current_domain, None);

    let body = unhex(
        "0200000000000010270000000000000000010001000000020500000002ffffffff0000010001000000020500000002ffffffff00\
         0100000001000000780100000035000000000a00000001000000010000006100010000000000010000000000",
    );
    let s = Schema::parse(&body).unwrap();
    let domain = s.dimensions[0].domain.as_ref().unwrap();
    assert_eq!(
        (
            domain.lo[0],
            domain.hi[0],
            s.dimensions[0].tile_extent.as_ref().unwrap()[0]
        ),
        (1, 53, 10)
    );
    assert_eq!(
        (&s.attributes[0].name[..], s.attributes[0].cell_size()),
        (&b"a"[..], Some(4))
    );
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn versions_that_are_not_understood_are_refused_before_anything_else() {
    for (version, words) in [
        (24, "24"),
        (0, "0"),
        (0x8000_0017, "experimental build of TileDB (23)"),
    ] {
        let error = error(&Bytes::default().u32(version));
        assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
        assert!(error.to_string().contains(words), "{error}");
        assert!(
            error.to_string().starts_with("schema, `version` at byte 0"),
            "{error}"
        );
    }
}

#[test]
fn errors_name_structure_and_field() {
    let body = full_body(22);
    let cut = replace(&body, b"colours\x01\0\0\0s", b"colours\x01\0\0");
    let text = error(&cut).to_string();
    assert!(text.starts_with("schema, attribute 1, `name` at byte "), "{text}");
}

#[test]
fn default_fills_are_limited() {
    let body = schema_body(5, true, &[D], &[field("a", Datatype::Int64)]);
    let one = b"\x01\0\0\0a\x01\x01\0\0\0";
    let cells = |n: u32| replace(&body, one, &[&b"\x01\0\0\0a\x01"[..], &n.to_le_bytes()].concat());
    let schema = Schema::parse(&cells(3).bytes).unwrap();
    assert_eq!(schema.attributes[0].fill_value, i64::MIN.to_le_bytes().repeat(3));
    let too_many = error(&cells(u32::MAX - 1));
    assert_eq!(too_many.kind(), ErrorKind::LimitExceeded);
    assert!(too_many.offset().is_some());
    assert_eq!(error(&cells(0)).kind(), ErrorKind::Corrupt);
}

#[test]
fn fixed_size_fill_values_are_one_cell() {
    let body = schema_body(6, true, &[D], &[field("a", Datatype::Int16)]);
    let longer = replace(
        &body,
        &[2, 0, 0, 0, 0, 0, 0, 0, 7, 7],
        &[3, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7],
    );
    assert!(error(&longer).to_string().contains("`fill_value`"));
}

#[test]
fn domains_and_extents_are_checked() {
    let body = schema_body(22, true, &[D], &[]);
    let domain = |lo: i32, hi: i32, extent: u32| {
        let mut bytes = lo.to_le_bytes().to_vec();
        bytes.extend(hi.to_le_bytes());
        bytes.push(0);
        bytes.extend(extent.to_le_bytes());
        let from = [1, 0, 0, 0, 100, 0, 0, 0, 0, 10, 0, 0, 0];
        Schema::parse(&replace(&body, &from, &bytes).bytes)
    };
    assert!(
        domain(i32::MIN, i32::MAX, u32::MAX).is_ok(),
        "extents are unsigned"
    );
    assert!(domain(7, 7, 1).is_ok());
    assert!(domain(8, 7, 1).unwrap_err().to_string().contains("`domain`"));
    assert!(domain(7, 8, 0).unwrap_err().to_string().contains("`tile_extent`"));

    let body = schema_body(22, true, &[field("d", Datatype::Float32)], &[]);
    let float = |lo: f32, extent: f32| {
        let to = [lo.to_le_bytes(), 100f32.to_le_bytes()].concat();
        let to = [&to[..], &[0], &extent.to_le_bytes()].concat();
        Schema::parse(&replace(&body, &[1, 0, 0, 0, 100, 0, 0, 0, 0, 10, 0, 0, 0], &to).bytes)
    };
    assert!(float(-0.5, 1.0).is_ok());
    for (lo, extent) in [
        (f32::NAN, 1.0),
        (101.0, 1.0),
        (0.0, f32::NAN),
        (0.0, -1.0),
        (0.0, -0.0),
    ] {
        assert!(float(lo, extent).is_err(), "{lo} {extent}");
    }
}

#[test]
fn dense_arrays_have_whole_number_tiles() {
    let dense = |dimensions: &[Field]| Schema::parse(&schema_body(22, false, dimensions, &[]).bytes);
    assert!(dense(&[D, field("e", Datatype::Int32)]).is_ok());
    assert!(dense(&[field("d", Datatype::TimeNs)]).is_ok());
    assert!(dense(&[field("d", Datatype::Float64)]).is_err());
    assert!(dense(&[var("d", Datatype::StringAscii)]).is_err());
    assert!(dense(&[D, field("e", Datatype::Int64)]).is_err());
    let body = schema_body(22, false, &[D], &[]);
    let no_extent = replace(&body, &[100, 0, 0, 0, 0, 10, 0, 0, 0], &[100, 0, 0, 0, 1]);
    assert!(error(&no_extent).to_string().contains("tile extent"));
    let hilbert = replace(&body, &[0, 1, 10, 0, 0, 0], &[0, 4, 10, 0, 0, 0]);
    assert_eq!(error(&hilbert).kind(), ErrorKind::Unsupported);
}

#[test]
fn sparse_arrays_may_lack_extents_but_not_capacity() {
    let body = schema_body(22, true, &[D], &[]);
    let no_extent = replace(&body, &[100, 0, 0, 0, 0, 10, 0, 0, 0], &[100, 0, 0, 0, 1]);
    let schema = Schema::parse(&no_extent.bytes).unwrap();
    assert_eq!(schema.dimensions[0].tile_extent, None);
    let hilbert = replace(&body, &[0, 1, 10, 0, 0, 0], &[0, 4, 10, 0, 0, 0]);
    assert_eq!(Schema::parse(&hilbert.bytes).unwrap().cell_order, Layout::Hilbert);
    let empty_tiles = replace(&body, &[0, 1, 10, 0, 0, 0], &[0, 1, 0, 0, 0, 0]);
    assert!(error(&empty_tiles).to_string().contains("`capacity`"));
    // Dense arrays do not use the capacity.
    let dense = schema_body(22, false, &[D], &[]);
    let dense = replace(&dense, &[0, 1, 10, 0, 0, 0], &[0, 1, 0, 0, 0, 0]);
    assert!(Schema::parse(&dense.bytes).is_ok());
}

#[test]
fn names_are_unique() {
    let parse = |version, dimension, attributes: &[&'static str]| {
        let attributes: Vec<Field> = attributes
            .iter()
            .map(|name| field(name, Datatype::Int8))
            .collect();
        let dimension = field(dimension, Datatype::Int32);
        Schema::parse(&schema_body(version, true, &[dimension], &attributes).bytes)
    };
    for version in [4, 22] {
        assert!(parse(version, "d", &["", "a"]).is_ok());
        assert!(parse(version, "d", &["a", "a"]).is_err());
        assert!(parse(version, "d", &["a", "d"]).is_err());
    }
    assert!(parse(4, "", &[""]).is_ok(), "neither names a file");
    assert!(parse(5, "", &[""]).is_err());
}

#[test]
fn an_array_has_a_dimension() {
    for version in [4, 22] {
        let error = error(&schema_body(version, true, &[], &[]));
        assert_eq!(error.part(), Some("schema, `dimension_num`"));
    }
}

#[test]
fn coordinates_are_single_numbers_or_strings() {
    let body = |d| Schema::parse(&schema_body(22, true, &[d], &[]).bytes);
    assert!(body(var("d", Datatype::StringAscii)).is_ok());
    assert!(body(var("d", Datatype::Int32)).is_err());
    let two = schema_body(22, true, &[field("d", Datatype::Int64)], &[]);
    let two = replace(&two, b"d\x01\x01\0\0\0", b"d\x01\x02\0\0\0");
    assert!(error(&two).to_string().contains("`cell_val_num`"));
}

#[test]
fn enumerations_and_labels_stay_inside_the_array() {
    for (from, to) in [
        ("__0123_0", "../0123_"),
        ("__0123_0", "a\\0123_0"),
        ("__0123_0", "a\0c123_0"),
    ] {
        let body = replace(&full_body(22), from.as_bytes(), to.as_bytes());
        assert!(error(&body).to_string().contains("`file_name`"));
    }
    let body = replace(
        &full_body(22),
        b"\x01\0\0\0\x05\0\0\0label",
        b"\x02\0\0\0\x05\0\0\0label",
    );
    assert!(error(&body).to_string().contains("dimension label 0"));
}

#[test]
fn current_domains_of_unknown_form_are_unsupported() {
    let tail: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3];
    for at in [0, 5] {
        let mut changed = tail.to_vec();
        changed[at] = 1;
        let error = error(&replace(&full_body(22), tail, &changed));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("current domain"), "{error}");
    }
}

#[test]
fn unknown_filters_do_not_matter_to_a_schema() {
    let body = replace(&full_body(22), &[19, 6, 0, 0, 0, 8], &[99, 6, 0, 0, 0, 8]);
    let schema = Schema::parse(&body.bytes).unwrap();
    let expected = Filter::Unknown {
        id: 99,
        options: vec![8, 1, 0, 0, 0, 17],
    };
    assert_eq!(schema.attributes[1].filters.filters, [expected]);
}
