use super::*;
use crate::calendar::days_from_date;
use crate::format::testing::{Field, Random, field, schema, var};

const STRING: Field = var("s", Datatype::StringAscii);

fn integers() -> impl Iterator<Item = Datatype> {
    let all = Datatype::ALL.iter().copied();
    all.filter(|d| {
        matches!(
            d.kind(),
            Kind::Signed | Kind::Unsigned | Kind::Datetime | Kind::Time
        )
    })
}

fn bytes(datatype: Datatype, number: i128) -> Vec<u8> {
    number.to_le_bytes()[..datatype.size()].to_vec()
}

fn range(datatype: Datatype, lo: i128, hi: i128) -> Range {
    Range {
        lo: bytes(datatype, lo),
        hi: bytes(datatype, hi),
    }
}

fn between(datatype: Datatype, lo: i128, hi: i128) -> DimRange {
    texts_between(Some(&bytes(datatype, lo)), Some(&bytes(datatype, hi)))
}

fn texts_between(lo: Option<&[u8]>, hi: Option<&[u8]>) -> DimRange {
    DimRange {
        lo: lo.map(<[u8]>::to_vec),
        hi: hi.map(<[u8]>::to_vec),
    }
}

/// The range of each dimension that `name` selects.
fn parse(name: &[u8], schema: &Schema) -> Result<Vec<DimRange>, String> {
    let all = vec![DimRange::default(); schema.dimensions.len()];
    let labelled = |_: &DimensionLabel, _: &DimRange| panic!("there are no labels");
    let ranges = super::parse(name, schema, labelled);
    ranges
        .map(|ranges| match ranges {
            Some(ranges) if ranges == all => panic!("the whole domain should be None"),
            ranges => ranges.unwrap_or(all),
        })
        .map_err(|error| error.message().to_owned())
}

/// The schema of an array with one dimension.
fn line(sparse: bool, datatype: Datatype, lo: i128, hi: i128) -> Schema {
    let mut schema = schema(22, sparse, &[field("x", datatype)], &[]);
    schema.dimensions[0].domain = Some(range(datatype, lo, hi));
    schema
}

/// The range that `name` selects in a dense array with one dimension.
fn dense(datatype: Datatype, domain: (i128, i128), name: &str) -> Result<DimRange, String> {
    parse(name.as_bytes(), &line(false, datatype, domain.0, domain.1)).map(|ranges| ranges[0].clone())
}

/// The smallest and largest number of a datatype.
fn limits(datatype: Datatype) -> (i128, i128) {
    let bits = 8 * datatype.size() as u32;
    match datatype.kind() {
        Kind::Unsigned => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

impl Random {
    /// A number from `lo` to `hi`.
    fn within(&mut self, lo: i128, hi: i128) -> i128 {
        let width = (hi - lo + 1) as u128;
        lo + (u128::from(self.next()) % width) as i128
    }
}

#[test]
fn integers_are_parsed_up_to_their_limits() {
    for datatype in integers() {
        let (least, most) = limits(datatype);
        let parse = |name: &str| dense(datatype, (least, most), name);
        assert_eq!(
            parse(&format!("{least}..{most}")),
            Ok(between(datatype, least, most))
        );
        assert_eq!(parse(&most.to_string()), Ok(between(datatype, most, most)));
        assert_eq!(parse(&least.to_string()), Ok(between(datatype, least, least)));
        assert_eq!(parse("+007"), Ok(between(datatype, 7, 7)));
        assert_eq!(parse("-0"), Ok(between(datatype, 0, 0)));
        for beyond in [most + 1, least - 1, most << 64, i128::MAX, i128::MIN] {
            assert!(parse(&beyond.to_string()).is_err());
            assert!(parse(&format!("{least}..{beyond}")).is_err());
        }
        assert!(parse(&"9".repeat(60)).is_err());
        for wrong in [
            "x", "1.5", "1e3", "0x10", "1 ", " 1", "--1", "+", "-", "1_000", "2..1", "1..2..3", "1...2", "%",
            "%3", "%3G", "%+1", "１",
        ] {
            assert!(parse(wrong).is_err(), "{wrong} of {}", datatype.name());
        }
        assert_eq!(parse("%31..%32"), Ok(between(datatype, 1, 2)));
        assert!(parse("1%2E.2").is_err() && parse("1%2E%2E2").is_err());
    }
}

#[test]
fn printed_numbers_parse_to_the_same_range() {
    let mut random = Random(1);
    for datatype in integers() {
        let (least, most) = limits(datatype);
        for _ in 0..200 {
            let mut four = [(); 4].map(|()| random.within(least, most));
            four.sort();
            let [first, lo, hi, last] = four;
            let parse = |name: String| dense(datatype, (first, last), &name);
            assert_eq!(parse(format!("{lo}..{hi}")), Ok(between(datatype, lo, hi)));
            assert_eq!(parse(format!("{hi}..{lo}")).is_ok(), lo == hi);
            assert_eq!(parse(format!("{least}..{hi}")).is_ok(), least == first);
            assert_eq!(parse(format!("{lo}..{most}")).is_ok(), most == last);
        }
    }
}

#[test]
fn floats_may_have_any_notation() {
    let mut array = schema(
        22,
        true,
        &[field("x", Datatype::Float64), field("y", Datatype::Float32)],
        &[],
    );
    let domain = |lo: Vec<u8>, hi: Vec<u8>| Some(Range { lo, hi });
    let (x, y) = (
        |n: f64| n.to_le_bytes().to_vec(),
        |n: f32| n.to_le_bytes().to_vec(),
    );
    array.dimensions[0].domain = domain(x(-10.0), x(1e300));
    array.dimensions[1].domain = domain(y(-1.0), y(1.0));
    let first = |text: &str| parse(format!("{text},").as_bytes(), &array).map(|ranges| ranges[0].clone());
    for text in ["0.1", "1e-1", ".1", "+0.1", "0.1000", "1E-01", "10e-2"] {
        assert_eq!(
            first(text),
            Ok(texts_between(Some(&x(0.1)), Some(&x(0.1)))),
            "{text}"
        );
    }
    assert_eq!(
        first("1e5..1.5e+299"),
        Ok(texts_between(Some(&x(1e5)), Some(&x(1.5e299))))
    );
    assert_eq!(first("5....75"), Err("x: \"..75\" is not a number".to_string()));
    assert_eq!(first(".5...75"), Ok(texts_between(Some(&x(0.5)), Some(&x(0.75)))));
    assert_eq!(first("-0.0..0"), first("0..0.0"), "both zeros are one bound");
    assert_eq!(
        first("-10..1e300"),
        Ok(texts_between(Some(&x(-10.0)), Some(&x(1e300))))
    );
    for wrong in [
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e301",
        "-10.000001",
        "1,5",
        "x",
        "2..1",
        "-inf..",
        "nan..nan",
    ] {
        assert!(first(wrong).is_err(), "{wrong}");
    }
    let second = |text: &str| parse(format!(",{text}").as_bytes(), &array).map(|ranges| ranges[1].clone());
    assert_eq!(
        second("0.1..0.3"),
        Ok(texts_between(Some(&y(0.1)), Some(&y(0.3))))
    );
    assert_eq!(
        second("0.10000000149011612"),
        second("0.1"),
        "an f32 printed as f64"
    );
    assert!(second("1.0000001").is_err() && second("1e39").is_err());
    // A domain may begin at negative zero.
    array.dimensions[1].domain = domain(y(-0.0), y(f32::MAX));
    let second = |text: &str| parse(format!(",{text}").as_bytes(), &array).map(|ranges| ranges[1].clone());
    let whole = second("0..3.4028235e38");
    assert_eq!(whole, Ok(texts_between(Some(&y(0.0)), Some(&y(f32::MAX)))));
    assert_eq!(second("1e39"), Err("y: \"1e39\" exceeds the domain".to_string()));
    assert!(second("-1e-45").is_err());
}

#[test]
fn string_bounds_are_any_bytes() {
    let array = schema(22, true, &[STRING], &[]);
    let read = |text: &[u8]| parse(text, &array).map(|ranges| ranges[0].clone());
    assert_eq!(read(b"a..zz"), Ok(texts_between(Some(b"a"), Some(b"zz"))));
    assert_eq!(read(b"a.."), Ok(texts_between(Some(b"a"), None)));
    assert_eq!(read(b"..zz"), Ok(texts_between(None, Some(b"zz"))));
    assert_eq!(read(b"a"), Ok(texts_between(Some(b"a"), Some(b"a"))));
    assert_eq!(
        read(b"a%2E%2e%2Cb%3D%25%00%ff"),
        Ok(texts_between(Some(b"a..,b=%\0\xFF"), Some(b"a..,b=%\0\xFF")))
    );
    assert_eq!(read(b"-...b"), Ok(texts_between(Some(b"-"), Some(b".b"))));
    assert_eq!(read(b"a%2E..b"), Ok(texts_between(Some(b"a."), Some(b"b"))));
    assert_eq!(read(b"\xFF.."), Ok(texts_between(Some(b"\xFF"), None)));
    assert_eq!(
        read("ä..ö".as_bytes()),
        Ok(texts_between(Some("ä".as_bytes()), Some("ö".as_bytes())))
    );
    assert!(read(b"b..a").is_err() && read(b"a,b").is_err() && read(b"a%2").is_err());
    let mut cropped = array.clone();
    cropped.current_domain = Some(vec![Range {
        lo: b"b".to_vec(),
        hi: b"mm".to_vec(),
    }]);
    let seen = |text: &[u8]| parse(text, &cropped).map(|ranges| ranges[0].clone());
    assert_eq!(seen(b"b..mm"), Ok(texts_between(Some(b"b"), Some(b"mm"))));
    assert_eq!(seen(b"c..m"), Ok(texts_between(Some(b"c"), Some(b"m"))));
    assert!(seen(b"a..m").is_err() && seen(b"c..n").is_err() && seen(b"mmm").is_err());
}

#[test]
fn dates_are_parsed_in_every_unit() {
    use Datatype::*;
    for (datatype, text, lo, hi) in [
        // Four digits are a year; all other digits, and those with a sign, are the stored integer.
        (DatetimeYear, "2025", 55, 55),
        (DatetimeMonth, "2025", 660, 671),
        (DatetimeDay, "2025", 20_089, 20_453),
        (DatetimeDay, "2024..2025", 19_723, 20_453),
        (DatetimeDay, "1969..+0005", -365, 5),
        (DatetimeDay, "+2025", 2025, 2025),
        (DatetimeDay, "-2025", -2025, -2025),
        (DatetimeDay, "202", 202, 202),
        (DatetimeDay, "20255", 20_255, 20_255),
        (DatetimeDay, "02025", 2025, 2025),
        (DatetimeMs, "1970", 0, 31_535_999_999),
        (DatetimeNs, "1970..12345", 0, 12_345),
        (DatetimeYear, "2025-01", 55, 55),
        (DatetimeYear, "1969-01..1971-12", -1, 1),
        (DatetimeYear, "1969-02..1971-12", 0, 1),
        (DatetimeYear, "-0001-01..+12025-01", -1971, 10_055),
        (DatetimeMonth, "1969-12..2025-02", -1, 661),
        (DatetimeMonth, "1969-12-02..2025-02-28", 0, 661),
        (DatetimeWeek, "1970-01-01..1970-01-14", 0, 1),
        (DatetimeWeek, "1969-12", -4, -1),
        (DatetimeDay, "2025-02", 20_120, 20_147),
        (DatetimeDay, "2025-02-04", 20_123, 20_123),
        (DatetimeDay, "1969-12-31", -1, -1),
        (DatetimeDay, "0001-01-01..9999-12-31", -719_162, 2_932_896),
        (
            DatetimeDay,
            "2025-02-04T00:00:01..2025-02-05T00:00:00.1",
            20_124,
            20_124,
        ),
        (DatetimeHr, "1970-01-02T03..1970-01-02", 27, 47),
        (DatetimeHr, "1969-12-31T23", -1, -1),
        (DatetimeMin, "1970-01-01T01:05", 65, 65),
        (DatetimeMin, "1970-01-01T0105", 65, 65),
        (DatetimeMin, "1970-01-01T01", 60, 119),
        (DatetimeSec, "1970-01-01T00:01", 60, 119),
        (DatetimeSec, "1970-01-01T00:01:07Z", 67, 67),
        (DatetimeSec, "1970-01-01T00:00:00+01:00", -3600, -3600),
        (DatetimeMs, "1970-01-01T00:00:07", 7000, 7999),
        (DatetimeMs, "1970-01-01T00:00:07.0", 7000, 7000),
        (DatetimeMs, "1969-12-31T23:59:59.999", -1, -1),
        (DatetimeUs, "1970-01-01T00:00:00.000007", 7, 7),
        (
            DatetimeNs,
            "1970-01-01T00:00:00.000000007..1970-01-01T00:00:00",
            7,
            999_999_999,
        ),
        (
            DatetimeNs,
            "2262-04-11T23:47:16.854775807",
            i64::MAX.into(),
            i64::MAX.into(),
        ),
        (
            DatetimeNs,
            "1677-09-21T00:12:43.145224193",
            -i128::from(i64::MAX),
            -i128::from(i64::MAX),
        ),
        (DatetimePs, "1970-01-01T00:00:00.000000000007", 7, 7),
        (DatetimeFs, "1970-01-01T00:00:00.000000000000007", 7, 7),
        (DatetimeAs, "1970-01-01T00:00:00.000000000000000007", 7, 7),
        (DatetimeAs, "1969-12-31T23:59:59", -1_000_000_000_000_000_000, -1),
    ] {
        let domain = (i64::MIN.into(), i64::MAX.into());
        assert_eq!(
            dense(datatype, domain, text),
            Ok(between(datatype, lo, hi)),
            "{text} of {}",
            datatype.name()
        );
    }
}

#[test]
fn invalid_dates_are_refused() {
    use Datatype::*;
    let everything = (i64::MIN.into(), i64::MAX.into());
    for (datatype, text) in [
        (DatetimeNs, "2262-04-11T23:47:16.854775808"),
        (DatetimeNs, "2263-01"),
        (DatetimeNs, "9999-12-31..9999-12-31"),
        (DatetimeAs, "2025-02"),
        (DatetimeDay, "2025-02-30"),
        (DatetimeDay, "2025-02-05..2025-02-04"),
        (DatetimeDay, "2025-02-04T12"),
        (DatetimeYear, "2025-02"),
        (DatetimeDay, "2025-1"),
        (DatetimeDay, "yesterday"),
        (TimeSec, "1970-01-01"),
        (Int64, "1970-01-01"),
        (Uint64, "1970-01"),
        (DatetimeDay, "2025..2024"),
        (DatetimeDay, "+-5"),
        (DatetimeDay, "+2025-13"),
        (DatetimeNs, "2263"),
    ] {
        assert!(
            dense(datatype, everything, text).is_err(),
            "{text} of {}",
            datatype.name()
        );
    }
    // TIME types count, and are no dates.
    assert_eq!(
        dense(TimeSec, everything, "2025"),
        Ok(between(TimeSec, 2025, 2025))
    );
}

#[test]
fn missing_parts_of_dates_stay_in_the_domain() {
    // 2025-02-03 to 2025-03-10.
    let parse = |text: &str| dense(Datatype::DatetimeDay, (20_122, 20_157), text);
    let days = |lo, hi| Ok(between(Datatype::DatetimeDay, lo, hi));
    assert_eq!(parse("2025-02"), days(20_122, 20_147));
    assert_eq!(parse("2025"), days(20_122, 20_157));
    assert_eq!(parse("2025-03"), days(20_148, 20_157));
    assert_eq!(parse("2025-02..2025-03"), days(20_122, 20_157));
    assert_eq!(parse("2025-02-03..2025-03-10"), days(20_122, 20_157));
    for outside in [
        "2025-02-02",
        "2025-01",
        "2025-04",
        "2025-01..2025-02",
        "2025-03..2025-04",
        "2025-02..2025-03-11",
        "2025-02-02..2025-03",
    ] {
        assert!(parse(outside).is_err(), "{outside}");
    }
}

/// The instant of a datetime coordinate in attoseconds since the Unix epoch.
fn instant(datatype: Datatype, coordinate: i128) -> i128 {
    let month = |months: i128| {
        let year = i64::try_from(1970 + months.div_euclid(12)).unwrap();
        days_from_date(year, months.rem_euclid(12) as u32 + 1, 1).unwrap() * DAY
    };
    let power = |exponent| 10i128.pow(exponent);
    coordinate
        * match datatype {
            Datatype::DatetimeYear => return month(coordinate * 12),
            Datatype::DatetimeMonth => return month(coordinate),
            Datatype::DatetimeWeek => 604_800 * power(18),
            Datatype::DatetimeDay => 86_400 * power(18),
            Datatype::DatetimeHr => 3600 * power(18),
            Datatype::DatetimeMin => 60 * power(18),
            Datatype::DatetimeSec => power(18),
            Datatype::DatetimeMs => power(15),
            Datatype::DatetimeUs => power(12),
            Datatype::DatetimeNs => power(9),
            Datatype::DatetimePs => power(6),
            Datatype::DatetimeFs => power(3),
            _ => 1,
        }
}

#[test]
fn dates_select_the_coordinates_between_them() {
    let mut random = Random(2);
    for datatype in Datatype::ALL
        .iter()
        .copied()
        .filter(|d| d.kind() == Kind::Datetime)
    {
        for _ in 0..500 {
            let mut date = || {
                let (year, month) = (random.within(1, 2900), random.within(1, 12));
                let (day, hour) = (random.within(1, 28), random.within(0, 23));
                let (minute, second) = (random.within(0, 59), random.within(0, 59));
                let fraction = random.within(0, 999_999_999_999_999_999);
                let whole =
                    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:018}");
                let lengths = [7, 10, 13, 16, 19, 20 + random.within(1, 18) as usize];
                whole[..lengths[random.within(0, 5) as usize]].to_string()
            };
            let (from, to) = (date(), date());
            let (start, end) = (Span::parse(&from).unwrap().first, Span::parse(&to).unwrap().last);
            let everything = (i64::MIN.into(), i64::MAX.into());
            match dense(datatype, everything, &format!("{from}..{to}")) {
                Ok(DimRange {
                    lo: Some(lo),
                    hi: Some(hi),
                }) => {
                    let [lo, hi] = [lo, hi].map(|end| number(datatype, &end).unwrap());
                    assert!(
                        instant(datatype, lo) >= start && instant(datatype, lo - 1) < start
                            || lo == everything.0
                    );
                    assert!(
                        instant(datatype, hi) <= end && instant(datatype, hi + 1) > end || hi == everything.1
                    );
                    assert!(lo <= hi);
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => {
                    let (first, last) = in_units(
                        Span {
                            first: start,
                            last: end,
                        },
                        datatype,
                    )
                    .unwrap();
                    let all = everything.0..=everything.1;
                    assert!(first > last || !all.contains(&first) || !all.contains(&last));
                }
            }
        }
    }
}

#[test]
fn missing_bounds_are_open_in_dense_arrays() {
    let array = line(false, Datatype::Int32, 1, 100);
    let seen = |text: &str| parse(text.as_bytes(), &array).map(|ranges| ranges[0].clone());
    let bound = |number| bytes(Datatype::Int32, number);
    for all in ["", "..", "x=", "x=.."] {
        assert_eq!(seen(all), Ok(texts_between(None, None)));
    }
    assert_eq!(seen("..30"), Ok(texts_between(None, Some(&bound(30)))));
    assert_eq!(seen("30.."), Ok(texts_between(Some(&bound(30)), None)));
    // Explicit bounds include cells that were never written.
    assert_eq!(seen("1..100"), Ok(between(Datatype::Int32, 1, 100)));
    assert!(seen("101..").is_err() && seen("..0").is_err());
}

/// Cells may lie outside of the domain, where their writer did not check.
#[test]
fn bounds_at_the_ends_of_the_domain_are_bounds() {
    let mut array = line(true, Datatype::Int32, 1, 100);
    let seen = |array: &Schema, text: &str| parse(text.as_bytes(), array).map(|ranges| ranges[0].clone());
    let bound = |number| bytes(Datatype::Int32, number);
    for all in ["", "..", "x=.."] {
        assert_eq!(seen(&array, all), Ok(texts_between(None, None)));
    }
    assert_eq!(seen(&array, "1.."), Ok(texts_between(Some(&bound(1)), None)));
    assert_eq!(seen(&array, "..100"), Ok(texts_between(None, Some(&bound(100)))));
    assert_eq!(seen(&array, "x=1..100"), Ok(between(Datatype::Int32, 1, 100)));
    assert_eq!(seen(&array, "1"), Ok(between(Datatype::Int32, 1, 1)));
    array.current_domain = Some(vec![range(Datatype::Int32, 1, 50)]);
    assert_eq!(seen(&array, "1..50"), Ok(between(Datatype::Int32, 1, 50)));
    assert!(seen(&array, "1..51").is_err() && seen(&array, "51").is_err());
}

#[test]
fn dimensions_are_given_by_position_or_name() {
    let mut array = schema(
        22,
        true,
        &[
            field("day", Datatype::Int32),
            STRING,
            field(".h", Datatype::Uint8),
        ],
        &[],
    );
    array.dimensions[1].name = b"a,b=%".to_vec();
    let seen = |text: &str| parse(text.as_bytes(), &array);
    let wanted = Ok(vec![
        between(Datatype::Int32, 2, 31),
        texts_between(Some(b"a"), None),
        between(Datatype::Uint8, 5, 5),
    ]);
    for same in [
        "2..31,a..,5",
        "day:2..31,a%2Cb%3D%25:a..,.h:5",
        "%2Eh:5,day:2..31,a%2cb%3d%25:%61..",
        // Either separator, in each part.
        ".h:5,day=2..31,a%2Cb%3D%25:a..",
        "day=2..31,a%2Cb%3D%25=a..,.h=5",
        "%2Eh=5,day=2..31,a%2cb%3d%25=%61..",
        ".h=5,%64%61%79=%32..3%31,a%2Cb%3D%25=a..",
    ] {
        assert_eq!(seen(same), wanted, "{same}");
    }
    assert_eq!(seen("day=2..31"), seen("2..31,,"));
    assert_eq!(seen("day="), seen(",,"));
    for wrong in [
        "",
        "1",
        "1,a",
        "1,a,5,",
        "1,a,5,6",
        "day=1,a,5",
        "1,.h=5",
        "day=1,",
        "day=1,day=1",
        "day=1,%64ay=1",
        "night=1",
        "=1",
        "DAY=1",
        "day=1,.h",
        "__dim_0=1",
        "day=0",
        "day=1..101",
        "day=2=3",
        "%=1",
        "day:1,a,5",
        "1,.h:5",
        "day:1,",
        "day:1,day=1",
        "night:1",
        ":1",
        "DAY:1",
        "day:0",
        "day:2:3",
        "day%3A1",
        "%:1",
    ] {
        assert!(seen(wrong).is_err(), "{wrong}");
    }
    assert_eq!(seen("day:2..31"), seen("2..31,,"));
    // A second separator belongs to the value.
    assert_eq!(seen("a%2Cb%3D%25=x=y"), seen(",x%3Dy,"));
    assert_eq!(seen("a%2Cb%3D%25:x=y:z"), seen(",x%3Dy%3Az,"));
    // What is before a separator and names no dimension belongs to the value.
    assert_eq!(seen(",x=y:z,"), seen(",x%3Dy%3Az,"));
    assert_eq!(seen(",x:y=z,"), seen(",x%3Ay%3Dz,"));
    // Names that have been searched do not change, but in a copy they may.
    let mut array = array.clone();
    array.dimensions[0].name = b"T12".to_vec();
    array.dimensions[2].name = b"x:y=z".to_vec();
    assert_eq!(seen_in(&array, "x%3Ay%3Dz:5,T12:2"), seen_in(&array, "2,,5"));
}

fn seen_in(array: &Schema, text: &str) -> Result<Vec<DimRange>, String> {
    parse(text.as_bytes(), array)
}

#[test]
fn times_of_day_have_colons_of_their_own() {
    let mut array = schema(
        22,
        true,
        &[
            field("t", Datatype::DatetimeSec),
            field("u", Datatype::DatetimeSec),
        ],
        &[],
    );
    let everything = || Some(range(Datatype::DatetimeSec, 0, 1 << 40));
    array.dimensions[0].domain = everything();
    array.dimensions[1].domain = everything();
    let wanted = seen_in(&array, "+3660..+3719,+7200..10799");
    assert!(wanted.is_ok());
    for same in [
        "1970-01-01T01:01,1970-01-01T02..1970-01-01T02:59:59",
        "t:1970-01-01T01:01,u:1970-01-01T02..1970-01-01T02:59:59",
        "u=1970-01-01T02:00..1970-01-01T02:59:59,t=1970-01-01T01:01",
    ] {
        assert_eq!(seen_in(&array, same), wanted, "{same}");
    }
}

#[test]
fn reasons_say_what_is_wrong() {
    let mut array = schema(
        22,
        true,
        &[field("day", Datatype::DatetimeDay), field("h", Datatype::Uint8)],
        &[],
    );
    array.dimensions[0].domain = Some(range(Datatype::DatetimeDay, 0, 30_000));
    array.dimensions[1].domain = Some(range(Datatype::Uint8, 1, 9));
    for (text, reason) in [
        ("1", "found 1 ranges, expected one for each of the 2 dimensions"),
        (
            "dya:1",
            "there is no dimension or label \"dya\"; found 1 ranges, expected one for each of the 2 dimensions",
        ),
        ("h:1,2", "\"2\" names no dimension, but other ranges do"),
        (
            "h:1,dya=2",
            "there is no dimension or label \"dya\"; \"dya=2\" names no dimension, but other ranges do",
        ),
        ("h:1,h=2", "\"h=2\" is the second range of its dimension"),
        ("h:x", "h: \"x\" is not an integer of UINT8"),
        ("h:0", "h: \"0\" exceeds the domain"),
        ("h:256", "h: \"256\" is not an integer of UINT8"),
        (
            "h:3..2",
            "h: \"3..2\" is empty: its lower end is above its upper end",
        ),
        (
            "day:2025-13",
            "day: \"2025-13\" is not a date, nor a stored integer of DATETIME_DAY",
        ),
        ("h:%4", "\"%4\" has a % without two hexadecimal digits"),
    ] {
        let got = seen_in(&array, text).unwrap_err();
        assert!(got.ends_with(reason), "{text}: {got}");
    }
}

#[test]
fn anonymous_dimensions_have_computed_names() {
    let fields = [
        field("", Datatype::Int32),
        field("", Datatype::Int32),
        field("__dim_0", Datatype::Int32),
    ];
    let array = schema(4, true, &fields, &[]);
    let seen = |text: &str| parse(text.as_bytes(), &array);
    assert_eq!(seen("__dim_1=5"), seen(",5,"));
    // A dimension's own name takes precedence over a computed one.
    assert_eq!(seen("__dim_0=5"), seen(",,5"));
    assert!(seen("__dim_2=5").is_err() && seen("=5").is_err());
    let long = schema(
        22,
        true,
        &[Field {
            name: LONG,
            ..field("", Datatype::Int32)
        }],
        &[],
    );
    let shown = format!("{}=5", names::dimension(LONG.as_bytes(), 0));
    assert_eq!(parse(shown.as_bytes(), &long), parse(b"5", &long));
    assert_eq!(parse(format!("{LONG}=5").as_bytes(), &long), parse(b"5", &long));
}

/// A name that is truncated in `columns/`.
const LONG: &str = concat!(
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
);

#[test]
fn datatypes_without_an_order_have_no_ranges() {
    let array = schema(
        22,
        true,
        &[field("b", Datatype::Blob), field("c", Datatype::Bool)],
        &[],
    );
    assert!(parse(b"1,", &array).is_err() && parse(b",1", &array).is_err());
    assert_eq!(parse(b",", &array), Ok(vec![texts_between(None, None); 2]));
}

#[test]
fn without_a_domain_dates_are_those_of_the_datatype() {
    let of = |text: &str, end| integer(text.as_bytes(), end, Datatype::DatetimeNs, None);
    let stored = |number: i64| Some(number.to_le_bytes().to_vec());
    let day = 86_400_000_000_000;
    assert_eq!(of("2262", End::Lower), stored(106_651 * day));
    assert_eq!(of("2262", End::Upper), stored(i64::MAX));
    assert_eq!(of("1677", End::Lower), stored(i64::MIN + 1));
    assert_eq!(of("2263", End::Upper), None);
    assert_eq!(of("1676", End::Lower), None);
    assert_eq!(of("-9223372036854775808", End::Lower), stored(i64::MIN));
}
