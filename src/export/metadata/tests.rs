use super::*;
use crate::format::datatype::CellValNum;
use std::collections::HashSet;

/// Fields of these names, roles and types; the last is whether there is an enumeration.
fn fields(fields: &[(&str, Role, Datatype, CellValNum, bool)]) -> Vec<Field> {
    let field = |&(name, role, datatype, cell_val_num, enumerated): &(&str, _, _, _, bool)| Field {
        name: name.as_bytes().to_vec(),
        role,
        datatype,
        cell_val_num,
        nullable: false,
        fill_value: Vec::new(),
        fill_value_valid: true,
        enumeration: enumerated.then(Vec::new),
    };
    fields.iter().map(field).collect()
}

const ONE: CellValNum = CellValNum::Fixed(1);

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn floats(numbers: &[f64]) -> Value {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    Value::Numbers(Datatype::Float64, bytes.collect())
}

fn integers(numbers: &[i64]) -> Value {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    Value::Numbers(Datatype::Int64, bytes.collect())
}

fn sorted<const N: usize>(fields: &[Field], pairs: [(&str, ValueOrReason); N]) -> Metadata {
    let pairs = pairs
        .into_iter()
        .map(|(key, value)| (key.as_bytes().to_vec(), value));
    Metadata::sort(fields, pairs.collect())
}

#[test]
fn the_longest_name_that_fits_is_meant() {
    let names = ["x.y", "x.y.data", "x", ""];
    let of = names.map(|name| (name, Role::Attribute(0), Datatype::Int32, ONE, false));
    let dimension = ("x", Role::Dimension(0), Datatype::Int32, ONE, false);
    let fields = fields(&[of.as_slice(), &[dimension]].concat());
    let metadata = sorted(
        &fields,
        [
            ("__tiledb_attr.x.y.data.units", Ok(text("1"))),
            ("__tiledb_attr.x.y.units", Ok(text("2"))),
            ("__tiledb_attr.x.y", Ok(text("3"))),
            ("__tiledb_attr..units", Ok(text("4"))),
            ("__tiledb_dim.x.a.b", Ok(text("5"))),
        ],
    );
    let own = |name: &str, value: &str| vec![(name.to_owned(), text(value))];
    let wanted = [
        own("units", "2"),
        own("units", "1"),
        own("y", "3"),
        own("units", "4"),
        own("a.b", "5"),
    ];
    assert_eq!(
        (metadata.fields.as_slice(), metadata.left_out),
        (&wanted[..], vec![])
    );
}

#[test]
fn malformed_attributes_are_left_out_with_a_reason() {
    let fields = fields(&[
        ("x", Role::Dimension(0), Datatype::DatetimeDay, ONE, false),
        ("i", Role::Attribute(0), Datatype::Int16, ONE, false),
        ("f", Role::Attribute(1), Datatype::Float32, ONE, false),
        ("b", Role::Attribute(2), Datatype::Bool, ONE, false),
        ("e", Role::Attribute(3), Datatype::Uint8, ONE, true),
        (
            "c",
            Role::Attribute(4),
            Datatype::Char,
            CellValNum::Fixed(3),
            false,
        ),
        (
            "v",
            Role::Attribute(5),
            Datatype::StringUtf8,
            CellValNum::Var,
            false,
        ),
    ]);
    let cases = [
        ("__tiledb_attr.", Ok(text("")), "no such attribute"),
        ("__tiledb_attr.i", Ok(text("")), "no such attribute"),
        ("__tiledb_attr.x.units", Ok(text("m")), "no such attribute"),
        ("__tiledb_dim.i.units", Ok(text("m")), "no such dimension"),
        ("__tiledb_attr.i.", Ok(text("m")), "names no attribute"),
        ("__tiledb_attr.i.blob", Err("it is bytes without a type"), "bytes"),
        ("__tiledb_attr.i.units", Ok(integers(&[5])), "not text"),
        ("__tiledb_attr.i.coordinates", Ok(floats(&[5.0])), "not text"),
        ("__tiledb_attr.i.scale_factor", Ok(text("0.1")), "not a number"),
        (
            "__tiledb_attr.i.add_offset",
            Ok(floats(&[1.0, 2.0])),
            "not one number",
        ),
        (
            "__tiledb_attr.f.scale_factor",
            Ok(floats(&[f64::NAN])),
            "not finite",
        ),
        (
            "__tiledb_attr.i._FillValue",
            Ok(integers(&[32_768])),
            "does not have",
        ),
        (
            "__tiledb_attr.i.missing_value",
            Ok(floats(&[-1.5])),
            "does not have",
        ),
        (
            "__tiledb_attr.i.valid_min",
            Ok(floats(&[f64::NAN])),
            "does not have",
        ),
        ("__tiledb_attr.i.valid_max", Ok(floats(&[1e300])), "does not have"),
        ("__tiledb_attr.i.valid_range", Ok(integers(&[1, 2, 3])), "range"),
        ("__tiledb_attr.i.flag_values", Ok(text("1")), "not a number"),
        (
            "__tiledb_attr.f._FillValue",
            Ok(floats(&[1e300])),
            "does not have",
        ),
        (
            "__tiledb_attr.i._Netcdf4Dimid",
            Ok(integers(&[1])),
            "of their own",
        ),
        ("__tiledb_attr.i.DIMENSION_LIST", Ok(text("x")), "of their own"),
        ("__tiledb_dim.x.units", Ok(text("days since 2000")), "dates"),
        ("__tiledb_dim.x.scale_factor", Ok(floats(&[2.0])), "dates"),
        ("__tiledb_attr.b.dtype", Ok(text("bool")), "BOOL"),
        ("__tiledb_attr.b._FillValue", Ok(integers(&[0])), "BOOL"),
        (
            "__tiledb_attr.e.flag_meanings",
            Ok(text("a b")),
            "flags of its own",
        ),
        ("__tiledb_attr.c._FillValue", Ok(text("no")), "one character"),
        (
            "__tiledb_attr.c._FillValue",
            Ok(integers(&[1])),
            "not a character",
        ),
        ("__tiledb_attr.v.scale_factor", Ok(floats(&[1.0])), "packed"),
        ("__tiledb_attr.i.long", Ok(text(&"x".repeat(65_300))), "too long"),
        (
            "__np_flat___tiledb_attr.i.scale_factor",
            Ok(floats(&[1.0, 2.0])),
            "not one number",
        ),
    ];
    for (key, value, wanted) in cases {
        let metadata = sorted(&fields, [(key, value), ("__tiledb_attr.i.kept", Ok(text("k")))]);
        let [(left_out, reason)] = metadata.left_out.as_slice() else {
            panic!("{key}: {:?}", metadata.left_out);
        };
        assert_eq!(left_out, key.as_bytes());
        assert!(reason.contains(wanted), "{key}: {reason}");
        let kept: usize = metadata.fields.iter().map(Vec::len).sum();
        assert_eq!((kept, metadata.array.len()), (1, 0), "{key}");
    }
}

#[test]
fn values_of_the_variable_have_its_type() {
    let fields = fields(&[
        ("i", Role::Attribute(0), Datatype::Int16, ONE, false),
        ("f", Role::Attribute(1), Datatype::Float32, ONE, false),
        ("u", Role::Attribute(2), Datatype::Uint64, ONE, false),
        (
            "c",
            Role::Attribute(3),
            Datatype::Char,
            CellValNum::Fixed(3),
            false,
        ),
    ]);
    let metadata = sorted(
        &fields,
        [
            ("__tiledb_attr.i._FillValue", Ok(floats(&[-999.0]))),
            ("__tiledb_attr.i.valid_range", Ok(integers(&[-2, 3]))),
            ("__tiledb_attr.i.actual_range", Ok(integers(&[-2, 3]))),
            (
                "__tiledb_attr.f.missing_value",
                Ok(floats(&[1e20, f64::INFINITY])),
            ),
            ("__tiledb_attr.f.valid_range", Ok(floats(&[-0.5, f64::NAN]))),
            ("__tiledb_attr.f.valid_max", Ok(floats(&[f64::MAX]))),
            ("__tiledb_attr.u.valid_max", Ok(integers(&[5]))),
            ("__tiledb_attr.c._FillValue", Ok(text("-"))),
        ],
    );
    let i16s = |numbers: [i16; 2]| numbers.map(i16::to_le_bytes).concat();
    let f32s = [-0.5, f32::NAN].map(f32::to_le_bytes).concat();
    let own = |name: &str, datatype, bytes: Vec<u8>| (name.to_owned(), Value::Numbers(datatype, bytes));
    let wanted = [
        vec![
            own("_FillValue", Datatype::Int16, (-999i16).to_le_bytes().to_vec()),
            ("actual_range".to_owned(), integers(&[-2, 3])),
            own("valid_range", Datatype::Int16, i16s([-2, 3])),
        ],
        vec![
            ("missing_value".to_owned(), floats(&[1e20, f64::INFINITY])),
            own("valid_range", Datatype::Float32, f32s),
        ],
        vec![own("valid_max", Datatype::Uint64, 5u64.to_le_bytes().to_vec())],
        vec![own("_FillValue", Datatype::Char, b"-".to_vec())],
    ];
    let left_out = (
        b"__tiledb_attr.f.valid_max".to_vec(),
        "the variable's type does not have the value",
    );
    assert_eq!(
        (metadata.fields.as_slice(), metadata.left_out),
        (&wanted[..], vec![left_out])
    );
    let nearest = in_own_type("missing_value", &wanted[1][0].1, Datatype::Float32);
    let f32s = [1e20f32, f32::INFINITY].map(f32::to_le_bytes).concat();
    assert_eq!(nearest, Value::Numbers(Datatype::Float32, f32s));
}

#[test]
fn a_calendar_comes_along_with_the_unit_of_the_array() {
    let fields = fields(&[
        ("t", Role::Attribute(0), Datatype::Float64, ONE, false),
        ("own", Role::Attribute(1), Datatype::Float64, ONE, false),
        ("day", Role::Attribute(2), Datatype::DatetimeDay, ONE, false),
    ]);
    let unit = || ("_UNIT", Ok(text("days since 2000-01-01")));
    let own = || ("__tiledb_attr.own.units", Ok(text("m")));
    let metadata = sorted(&fields, [unit(), own(), ("calendar", Ok(text("noleap")))]);
    let pair = |key: &str, value: &str| (key.to_owned(), text(value));
    let units = pair("units", "days since 2000-01-01");
    let times = vec![pair("calendar", "noleap"), units.clone()];
    assert_eq!(metadata.fields, [times, vec![pair("units", "m")], vec![]]);
    assert_eq!(metadata.array, [(b"calendar".to_vec(), text("noleap"))]);
    let metadata = sorted(&fields, [unit(), own(), ("calendar", Ok(integers(&[5])))]);
    assert_eq!(metadata.fields[0], [units]);
}

#[test]
fn a_reference_system_is_wkt_where_its_json_has_one() {
    let json = r#"{"type": "EngineeringCRS", "name": "a", "datum": {"name": "b"},
        "coordinate_system": {"subtype": "Cartesian", "axis": []}}"#;
    let cases = [
        (json, Some(r#"ENGCRS["a",EDATUM["b"],CS[Cartesian,0]]"#)),
        (
            r#"{"name": "a", "id": {"authority": "EPSG", "code": 4326}}"#,
            None,
        ),
        (r#"GEOGCS["a"]"#, Some(r#"GEOGCS["a"]"#)),
        ("EPSG:4326", Some("EPSG:4326")),
        ("5", Some("5")),
    ];
    for (stored, wanted) in cases {
        let metadata = sorted(&[], [("_CRS", Ok(text(stored)))]);
        assert_eq!(metadata.crs.as_deref(), Some(wanted.unwrap_or(stored)));
        assert_eq!(metadata.left_out.len(), usize::from(wanted.is_none()), "{stored}");
    }
}

#[test]
fn what_gdal_tells_is_left_out_with_a_reason_if_it_is_too_long() {
    let fields = fields(&[("a", Role::Attribute(0), Datatype::Float64, ONE, false)]);
    let long = || Ok(text(&"x".repeat(65_400)));
    let system = format!(
        r#"{{"type": "EngineeringCRS", "name": "{}", "datum": {{"name": "b"}},
        "coordinate_system": {{"subtype": "Cartesian", "axis": []}}}}"#,
        "x".repeat(65_400)
    );
    let cases = [
        ("_UNIT", vec![("_UNIT", long())]),
        ("_CRS", vec![("_CRS", long())]),
        ("_CRS", vec![("_CRS", Ok(text(&system)))]),
        (
            "calendar",
            vec![("_UNIT", Ok(text("days"))), ("calendar", long())],
        ),
    ];
    for (key, pairs) in cases {
        let pairs = pairs
            .into_iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), value));
        let metadata = Metadata::sort(&fields, pairs.collect());
        assert_eq!(metadata.left_out, [(key.as_bytes().to_vec(), "it is too long")]);
        assert_eq!(
            (metadata.crs, metadata.fields[0].len()),
            (None, usize::from(key == "calendar"))
        );
    }
    // Each attribute has a copy.
    let mut many = vec![fields[0].clone(); 1 << 15];
    let unit = "x".repeat(1 << 10);
    assert_eq!(sorted(&many, [("_UNIT", Ok(text(&unit)))]).left_out, []);
    many.extend(fields);
    let metadata = sorted(&many, [("_UNIT", Ok(text(&unit)))]);
    assert_eq!(
        metadata.left_out,
        [(b"_UNIT".to_vec(), "it is too long for so many attributes")]
    );
    assert!(metadata.fields.iter().all(Vec::is_empty));
}

#[test]
fn keys_of_other_programs_are_not_shown_and_bytes_are_left_out() {
    let metadata = sorted(
        &fields(&[("a", Role::Attribute(0), Datatype::Int32, ONE, false)]),
        [
            ("__np_flat_both", Ok(floats(&[1.0, 2.0]))),
            ("both", Ok(text("plain"))),
            ("__np_flat_flat", Ok(floats(&[1.0]))),
            ("__np_flat___pandas_index_dims", Ok(floats(&[1.0]))),
            ("__np_flat___tiledb_attr.a.range", Ok(floats(&[1.0, 2.0]))),
            ("blob", Err("it is bytes without a type")),
            ("_blob", Err("it is bytes without a type")),
        ],
    );
    let array = |key: &str, value| (key.as_bytes().to_vec(), value);
    assert_eq!(
        metadata.array,
        [array("both", text("plain")), array("flat", floats(&[1.0]))]
    );
    assert_eq!(metadata.fields, [vec![("range".to_owned(), floats(&[1.0, 2.0]))]]);
    let left_out = (b"blob".to_vec(), "it is bytes without a type");
    assert_eq!(metadata.left_out, [left_out]);
}

#[test]
fn types_of_arrow_are_not_those_that_metadata_say() {
    let fields = fields(&[("a", Role::Attribute(0), Datatype::Int64, ONE, false)]);
    let key = "__tiledb_attr.a.ARROW:extension:name";
    let metadata = sorted(&fields, [(key, Ok(text("arrow.uuid")))]);
    let left_out = [(key.as_bytes().to_vec(), "Arrow has names like this of its own")];
    assert_eq!(
        (metadata.fields, &*metadata.left_out),
        (vec![vec![]], &left_out[..])
    );
}

#[test]
fn metadata_are_text_or_numbers() {
    assert_eq!(
        shown(Datatype::Bool, vec![3, 0]),
        Ok(Value::Numbers(Datatype::Bool, vec![1, 0]))
    );
    assert_eq!(
        shown(Datatype::TimeHr, vec![1; 8]),
        Ok(Value::Numbers(Datatype::Int64, vec![1; 8]))
    );
    assert_eq!(shown(Datatype::StringUtf16, b"a\0b\0".to_vec()), Ok(text("ab")));
    assert_eq!(shown(Datatype::StringUtf8, Vec::new()), Ok(text("")));
    assert!(shown(Datatype::StringAscii, b"\xFF".to_vec()).is_err());
    assert!(shown(Datatype::Int32, Vec::new()).is_err());
    assert!(shown(Datatype::Blob, b"x".to_vec()).is_err());
}

/// PROJJSON.
const SYSTEM: &str = r#"{"type": "GeographicCRS", "name": "a", "datum": {"name": "b"},
    "coordinate_system": {"subtype": "ellipsoidal", "axis":
        [{"name": "c", "abbreviation": "d", "direction": "north", "unit": "degree"}]}}"#;

#[test]
fn a_reference_system_of_geometries_has_all_its_parts() {
    let fields = fields(&[(
        "wkb",
        Role::Attribute(0),
        Datatype::GeomWkb,
        CellValNum::Var,
        false,
    )]);
    let bound = |source: &str| {
        format!(
            r#"{{"type": "BoundCRS", "source_crs": {source}, "target_crs": {SYSTEM}, "transformation": {{}}}}"#
        )
    };
    let bare = r#"{"type": "GeographicCRS", "name": "a"}"#;
    for (system, is_whole) in [
        (SYSTEM, true),
        (&bound(SYSTEM), true),
        (bare, false),
        (&bound(bare), false),
        (&SYSTEM.replace("GeographicCRS", "OtherCRS"), false),
    ] {
        let metadata = sorted(&fields, [("CRS", Ok(text(system)))]);
        let geometry = metadata.geometry.unwrap();
        let told = (geometry.crs.is_some(), metadata.left_out.len());
        assert_eq!(told, (is_whole, usize::from(!is_whole)), "{system}");
    }
}

#[test]
fn geometries_are_told_by_more_than_their_type() {
    let cell = |name, datatype| (name, Role::Attribute(0), datatype, CellValNum::Var, false);
    let named = fields(&[
        ("_X", Role::Dimension(0), Datatype::Float64, ONE, false),
        cell("bytes", Datatype::Uint8),
        cell("wkb", Datatype::GeomWkb),
    ]);
    let name = |name: &'static str| ("GEOMETRY_ATTRIBUTE_NAME", Ok(text(name)));
    assert_eq!(sorted(&named, []).geometry, None);
    let metadata = sorted(&named, [("CRS", Ok(text(SYSTEM))), name("bytes")]);
    let geometry = metadata.geometry.unwrap();
    assert_eq!((geometry.fields, geometry.extent), (vec![1, 2], None));
    assert!(geometry.crs.is_some() && metadata.left_out.is_empty());
    // GDAL takes UINT8 for text too.
    let bytes = |text: &str| Ok(Value::Numbers(Datatype::Uint8, text.as_bytes().to_vec()));
    let pairs = [
        ("GEOMETRY_ATTRIBUTE_NAME", bytes("bytes")),
        ("CRS", bytes(SYSTEM)),
    ];
    let geometry = sorted(&named, pairs).geometry.unwrap();
    assert_eq!((geometry.fields, geometry.crs.is_some()), (vec![1, 2], true));
    // What GDAL takes for the geometry without the key.
    let cells = |datatype| fields(&[cell("a", Datatype::GeomWkb), cell("wkb_geometry", datatype)]);
    let told = || [("dataset_type", Ok(text("geometry")))];
    for datatype in [Datatype::Blob, Datatype::Uint8, Datatype::GeomWkb] {
        let geometry = sorted(&cells(datatype), told()).geometry.unwrap();
        assert_eq!(geometry.fields, [1, 0], "{}", datatype.name());
        assert_eq!(sorted(&cells(datatype), []).geometry, None);
    }
    assert_eq!(
        sorted(&cells(Datatype::Int8), told()).geometry.unwrap().fields,
        [0]
    );
    for wrong in ["_X", "none"] {
        let metadata = sorted(&named, [name(wrong), ("LAYER_EXTENT_MINX", Ok(floats(&[1.0])))]);
        assert_eq!((metadata.geometry, metadata.left_out.len()), (None, 1), "{wrong}");
    }
}

#[test]
fn types_of_pandas_are_kept_where_the_stored_type_has_their_values() {
    let cell = |name, datatype, enumerated| (name, Role::Attribute(0), datatype, ONE, enumerated);
    let fields = fields(&[
        ("rows", Role::Dimension(0), Datatype::Uint64, ONE, false),
        cell("i", Datatype::Int64, false),
        cell("e", Datatype::Int64, true),
        cell("b", Datatype::Uint8, false),
        cell("p", Datatype::Int64, false),
        cell("q", Datatype::Int64, false),
        cell("c", Datatype::Uint8, false),
        cell("l", Datatype::Uint8, true),
    ]);
    let types = r#"{"i": "Int64", "e": "Int64", "b": "boolean", "c": "bool", "l": "boolean", "none": "Int8", "rows": 5,
        "p": "int64[pyarrow]", "q": "int8[pyarrow]"}"#;
    let metadata = sorted(
        &fields,
        [
            ("__pandas_index_dims", Ok(text(r#"{"rows": "int64"}"#))),
            ("__pandas_attribute_repr", Ok(text(types))),
        ],
    );
    let pandas = metadata.pandas.unwrap();
    assert_eq!((pandas.index, pandas.signed), (vec![0], HashSet::from([0])));
    assert_eq!(
        pandas.types,
        HashMap::from([(1, "Int64"), (3, "boolean"), (4, "int64[pyarrow]")])
    );
    assert_eq!(pandas.booleans, HashSet::from([3, 6]));
    assert_eq!(metadata.left_out.len(), 5, "{:?}", metadata.left_out);
    let metadata = sorted(&fields, [("__pandas_index_dims", Ok(text("[]")))]);
    assert_eq!((metadata.pandas, metadata.left_out.len()), (None, 1));
}
