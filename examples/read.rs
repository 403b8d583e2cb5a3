//! Prints the first numbers of a field of an array, as TileDB reads it now: `cargo run --example read --
//! ARRAY FIELD`.

use std::error::Error;
use tiledbfs::schema::{Datatype, Kind};
use tiledbfs::{Array, TimeRange};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [array, field] = arguments.as_slice() else {
        return Err("usage: read ARRAY FIELD".into());
    };
    let view = Array::open(array)?.at(TimeRange::ALL).open()?;
    println!("shape {:?}", view.shape()?);
    let cells = 0..view.cells(field)?.count().min(10);
    let known = view.fields().iter().find(|known| known.name == field.as_bytes());
    match known.map(|known| known.datatype) {
        Some(Datatype::Float32) => println!("{:?}", view.read::<f32>(field, cells)?),
        Some(Datatype::Float64) => println!("{:?}", view.read::<f64>(field, cells)?),
        Some(Datatype::Int32) => println!("{:?}", view.read::<i32>(field, cells)?),
        Some(Datatype::Uint8) => println!("{:?}", view.read::<u8>(field, cells)?),
        Some(Datatype::Uint16) => println!("{:?}", view.read::<u16>(field, cells)?),
        // Dates and times are counts of their unit since 1970.
        Some(other) if matches!(other.kind(), Kind::Datetime | Kind::Time) || other == Datatype::Int64 => {
            println!("{:?}", view.read::<i64>(field, cells)?);
        }
        other => return Err(format!("{other:?} is not printed by this example").into()),
    }
    Ok(())
}
