//! Reads a box of an array as an array of `ndarray`, and prints its mean along each dimension:
//! `cargo run --features ndarray --example mean_of_box -- ARRAY FIELD DIMENSION FIRST LAST`, for a field of
//! 32-bit floats and a dimension of 32-bit integers.

use ndarray::Axis;
use std::error::Error;
use tiledbfs::{Array, TimeRange};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [array, field, dimension, first, last] = arguments.as_slice() else {
        return Err("usage: mean_of_box ARRAY FIELD DIMENSION FIRST LAST".into());
    };
    let rows = first.parse::<i32>()?..=last.parse()?;
    let view = Array::open(array)?
        .at(TimeRange::ALL)
        .range(dimension, rows)
        .open()?;
    let values = view.ndarray::<f32>(field)?;
    for (axis, dimension) in view.schema().dimensions.iter().enumerate() {
        let means = values.mean_axis(Axis(axis)).ok_or("the box has no cells")?;
        println!("along {}: {means:.2}", String::from_utf8_lossy(&dimension.name));
    }
    Ok(())
}
