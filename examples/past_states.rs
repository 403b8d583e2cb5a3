//! Compares an array's past states: after each write, how many cells it had, and how many of a field's values
//! were other ones than before. `cargo run --example past_states -- ARRAY FIELD`, for a field of 32-bit
//! floats.

use std::error::Error;
use tiledbfs::{Array, TimeRange};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [array, field] = arguments.as_slice() else {
        return Err("usage: past_states ARRAY FIELD".into());
    };
    let array = Array::open(array)?;
    let writes = array.at(TimeRange::ALL).open()?.fragments();
    let mut before: Vec<f32> = Vec::new();
    for end in writes.iter().map(|fragment| fragment.name.timestamps.1) {
        let values = array
            .at(TimeRange::until(end))
            .open()?
            .values::<f32>(field)?
            .into_vec();
        let same = before
            .iter()
            .zip(&values)
            .filter(|(old, new)| old.to_bits() == new.to_bits());
        println!(
            "{end}: {} values, {} new",
            values.len(),
            values.len() - same.count()
        );
        before = values;
    }
    Ok(())
}
