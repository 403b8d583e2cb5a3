//! Writes an array, or some of its fields, as an Arrow IPC stream, which pyarrow, Polars, DuckDB, R and
//! others read: `cargo run --features arrow --example arrow_ipc -- ARRAY [FIELD...] > array.arrows`.

use arrow_array::RecordBatchReader;
use arrow_ipc::writer::StreamWriter;
use std::error::Error;
use std::io::{BufWriter, Write, stdout};
use tiledbfs::{Array, Batches, TimeRange};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let array = arguments.next().ok_or("usage: arrow_ipc ARRAY [FIELD...]")?;
    let fields: Vec<String> = arguments.collect();
    let mut view = Array::open(array)?.at(TimeRange::ALL);
    if !fields.is_empty() {
        view = view.fields(fields);
    }
    let batches = Batches::new(view.open()?)?;
    let mut writer = StreamWriter::try_new(BufWriter::new(stdout().lock()), &batches.schema())?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.into_inner()?.flush()?;
    Ok(())
}
