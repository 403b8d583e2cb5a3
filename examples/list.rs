//! Lists what a group contains, with the fields of each array: `cargo run --example list -- SOURCE`. A source
//! is a directory, or with the feature `remote` a URL.

use std::error::Error;
use std::path::Path;
use tiledbfs::{ObjectKind, Source, SourceOptions, TimeRange};

/// Groups may contain one another.
const MAX_DEPTH: usize = 32;

fn show(source: &Source, path: &Path, depth: usize) -> Result<(), Box<dyn Error>> {
    for member in source.group(path).members()? {
        let indent = "  ".repeat(depth);
        println!(
            "{indent}{} ({:?})",
            String::from_utf8_lossy(&member.name),
            member.kind
        );
        match member.kind {
            ObjectKind::Array => {
                let view = source.array(&member.path).at(TimeRange::ALL).open()?;
                for field in view.fields() {
                    let name = String::from_utf8_lossy(&field.name);
                    println!("{indent}  {name}: {}", field.datatype.name());
                }
            }
            ObjectKind::Group if depth < MAX_DEPTH => show(source, &member.path, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let location = std::env::args().nth(1).ok_or("usage: list SOURCE")?;
    let source = Source::open(location, &SourceOptions::default())?;
    show(&source, Path::new(""), 0)
}
