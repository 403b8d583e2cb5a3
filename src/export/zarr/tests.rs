use super::*;

#[test]
fn numbers_are_as_zarr_and_xarray_write_them() {
    let double = |value: f64| number(Datatype::Float64, &value.to_le_bytes());
    assert_eq!(double(f64::NAN), json!("NaN"));
    assert_eq!(double(f64::NEG_INFINITY), json!("-Infinity"));
    assert_eq!(double(0.1), json!(0.1));
    assert_eq!(double(-0.0).to_string(), "-0.0");
    assert_eq!(number(Datatype::Int8, &[0x80]), json!(-128));
    assert_eq!(number(Datatype::Uint64, &[0xFF; 8]), json!(u64::MAX));
    assert_eq!(number(Datatype::Bool, &[2]), json!(true));
    let nan = 0x7FF8_0000_0000_0000u64.to_le_bytes();
    assert_eq!(encoded(Datatype::Float64, &nan), json!("AAAAAAAA+H8="));
    assert_eq!(
        encoded(Datatype::Float32, &1f32.to_le_bytes()),
        json!("AAAAAAAA8D8=")
    );
    assert_eq!(encoded(Datatype::Int16, &[0, 0x80]), json!(-32768));
    let character = Value::Numbers(Datatype::Char, b"-".to_vec());
    assert_eq!(attribute(&character), json!("-"));
}

#[test]
fn missing_values_are_numbers() {
    let floats = |values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Value::Numbers(Datatype::Float32, bytes)
    };
    let shown = |name: &str, values: &[f32]| {
        let all = attributes(&vec![(name.to_owned(), floats(values))]);
        all.get(name).cloned()
    };
    assert_eq!(
        shown("missing_value", &[f32::NAN, -1.0, 2.0]),
        Some(json!([-1.0, 2.0]))
    );
    assert_eq!(shown("missing_value", &[f32::NAN, -1.0]), Some(json!(-1.0)));
    assert_eq!(shown("missing_value", &[f32::NAN]), None);
    assert_eq!(shown("other", &[f32::NAN, -1.0]), Some(json!(["NaN", -1.0])));
}
