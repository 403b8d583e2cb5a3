use super::attributes::meaning;
use super::naming::made_up;
use super::values::convert;
use super::*;

fn attribute(datatype: Datatype, nullable: bool, fill: &[u8]) -> Field {
    Field {
        name: b"a".to_vec(),
        role: Role::Attribute(0),
        datatype,
        cell_val_num: CellValNum::Fixed((fill.len() / datatype.size()) as u32),
        nullable,
        fill_value: fill.to_vec(),
        fill_value_valid: false,
        enumeration: None,
    }
}

#[test]
fn years_months_and_weeks_become_days() {
    for (unit, count, days) in [
        (Unit::Year, 55, Some(20_089)),
        (Unit::Year, -1, Some(-365)),
        (Unit::Month, 661, Some(20_120)),
        (Unit::Month, -1, Some(-31)),
        (Unit::Month, -12, Some(-365)),
        (Unit::Week, -2, Some(-14)),
        (Unit::Week, i64::MAX / 7, Some(i64::MAX / 7 * 7)),
        (Unit::Week, i64::MAX / 7 + 1, None),
        (Unit::Week, NOT_A_TIME, None),
        (
            Unit::Year,
            25_252_000_000_000_000,
            Some(9_223_103_610_000_000_000),
        ),
        (Unit::Year, 26_000_000_000_000_000, None),
        (Unit::Year, i64::MAX, None),
        (Unit::Month, i64::MIN + 1, None),
    ] {
        assert_eq!(unit.days(count), days, "{count} {unit:?}");
    }
    let mut values = [661i64.to_le_bytes(), NOT_A_TIME.to_le_bytes()].concat();
    convert(Some(Unit::Month), Datatype::Int64, &mut values);
    assert_eq!(
        values,
        [20_120i64.to_le_bytes(), NOT_A_TIME.to_le_bytes()].concat()
    );
    let mut values = [0, 1, 2, 255];
    convert(None, Datatype::Bool, &mut values);
    assert_eq!(values, [0, 1, 1, 1]);
}

#[test]
fn a_fill_value_stands_for_what_is_missing_where_it_can() {
    use Datatype::*;
    let of = |datatype, nullable, fill: &[u8], written| {
        fill_value(&attribute(datatype, nullable, fill), written).is_some()
    };
    let number = 5i32.to_le_bytes();
    assert!(!of(Int32, false, &number, true));
    assert!(of(Int32, false, &number, false));
    assert!(of(Int32, true, &number, true));
    assert!(!of(Uint8, false, &[255], false), "white pixels");
    assert!(of(Uint8, true, &[255], true));
    assert!(of(Float32, false, &number, true));
    assert!(!of(Bool, true, &[0], false) && !of(Char, true, &[0], false));
    assert!(of(Int16, true, &[1, 2, 1, 2], true) && !of(Int16, true, &[1, 2, 1, 3], true));
    let day = attribute(DatetimeDay, false, &7i64.to_le_bytes());
    assert_eq!(fill_value(&day, true), Some(NOT_A_TIME.to_le_bytes().to_vec()));
    assert!(of(TimeMs, false, &7i64.to_le_bytes(), false) && !of(TimeMs, false, &7i64.to_le_bytes(), true));
}

#[test]
fn the_fill_of_packed_integers_means_missing_unless_their_sign_is_another() {
    use Datatype::*;
    let of = |datatype: Datatype, sign: Option<&str>| {
        let text = |text: &str| Value::Text(text.to_owned());
        let scale = Value::Numbers(Float64, 0.5f64.to_le_bytes().to_vec());
        let sign = sign.map(|sign| ("_Unsigned".to_owned(), text(sign)));
        let metadata: Attributes = sign
            .into_iter()
            .chain([("scale_factor".to_owned(), scale)])
            .collect();
        tells_missing(&attribute(datatype, false, &datatype.default_fill()), &metadata)
    };
    assert!(of(Int16, None) && of(Uint16, None) && !of(Int8, None) && !of(Float32, None));
    assert!(of(Int16, Some("false")) && of(Uint16, Some("true")));
    assert!(!of(Int16, Some("true")) && !of(Int32, Some("True")) && !of(Uint16, Some("false")));
}

/// A file of metadata may have as many: one after the other, they would take minutes.
#[test]
fn many_attributes_join_those_of_the_field() {
    let value = Value::Text("b".to_owned());
    let metadata = (0..200_000).map(|number| (format!("key {number:06}"), value.clone()));
    let metadata: Attributes = metadata.chain([("units".to_owned(), value.clone())]).collect();
    let mut variable = Variable::new("a".to_owned(), VariableKind::Values, 0, Datatype::Int8);
    variable.attributes = vec![("units".to_owned(), Value::Text("a".to_owned()))];
    describe(&mut variable, &metadata, Naming::Zarr);
    assert_eq!(variable.attributes[0].1, Value::Text("b a".to_owned()));
    assert_eq!(variable.attributes.len(), metadata.len());
}

#[test]
fn labels_become_words() {
    let word = |label: &[u8]| meaning(Datatype::StringUtf8, label);
    assert_eq!(word(b"light  rain\tand snow"), "light_rain_and_snow");
    assert_eq!(word("größe\u{a0}x".as_bytes()), "größe_x");
    assert_eq!(
        [word(b""), word(b"  "), word(b" a "), word(b"a\0\0")],
        ["_", "_", "_a_", "a"]
    );
    assert_eq!(word(b"\xFF"), "\u{FFFD}");
    assert_eq!(meaning(Datatype::StringUtf16, b"a\0 \0"), "a_");
}

#[test]
fn names_are_those_of_columns_but_where_a_format_has_others() {
    let name = |name: &str| Naming::NetCdf.name(name.to_owned());
    assert_eq!(
        [
            name("%FFx"),
            name("-"),
            name("_a"),
            name("9"),
            name("é"),
            name("zarr.json")
        ],
        ["_%FFx", "_-", "_a", "9", "é", "zarr.json"]
    );
    assert_eq!(
        [name("e\u{301}"), name("a\tb\u{7f}"), name(" a  ")],
        ["é", "a%09b%7F", "_ a %20"]
    );
    let long = name(&format!("+{}", "x".repeat(254)));
    assert!(long.len() == 255 && long.starts_with("_+xx") && long.contains('~'));
    assert_eq!(Naming::Zarr.name("zarr.json".to_owned()), "%7Aarr.json");
    assert_eq!(Naming::Zarr.name("-".to_owned()), "-");
    let mut taken: HashSet<String> = ["a__validity".to_owned()].into();
    assert_eq!(made_up("a", "__validity", &mut taken), "a__validity_");
    assert_eq!(made_up("a", "__validity", &mut taken), "a__validity__");
    let long = made_up(&"x".repeat(255), "_cell", &mut taken);
    assert!(long.len() == 255 && long.ends_with("_cell"));
    let other = made_up(&"x".repeat(255), "_cell", &mut taken);
    assert!(other.len() == 255 && other.ends_with("_cell_"));
}
