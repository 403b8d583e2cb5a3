//! Writes fields of an array as CSV, a batch of rows at a time:
//! `cargo run --features arrow --example csv -- SOURCE FIELD...`. With the feature `remote`, a source may be
//! a URL: `s3://bucket/weather`.

use arrow_csv::Writer;
use std::error::Error;
use std::io::stdout;
use tiledbfs::{Batches, Source, SourceOptions, TimeRange};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let location = arguments.next().ok_or("usage: csv SOURCE FIELD...")?;
    let source = Source::open(location, &SourceOptions::default())?;
    // The array is the source itself.
    let view = source.array("").at(TimeRange::ALL).fields(arguments).open()?;
    let mut writer = Writer::new(stdout().lock());
    for batch in Batches::new(view)? {
        writer.write(&batch?)?;
    }
    Ok(())
}
