//! How far inputs get: `reach filter|pipeline DIRECTORY…` counts the inputs in the directories whose chunks
//! decode, by filter.

use std::collections::BTreeMap;
use std::fs;
use tiledbfs_fuzz::chunks::{Outcome, filter_outcome, pipeline_outcome};

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let target = arguments.next().expect("a target");
    let (mut decoded, mut refused, mut short) = (BTreeMap::<u8, u64>::new(), 0u64, 0u64);
    for directory in arguments {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let data = fs::read(entry.path()).expect("an input");
            if target == "pipeline" {
                *decoded.entry(pipeline_outcome(&data).min(3) as u8).or_default() += 1;
                continue;
            }
            match filter_outcome(&data) {
                Outcome::Decoded(number) => *decoded.entry(number).or_default() += 1,
                Outcome::Refused => refused += 1,
                Outcome::Short => short += 1,
            }
        }
    }
    match target == "pipeline" {
        true => println!("inputs by number of chunks that decode (3: or more): {decoded:?}"),
        false => println!("decoded, by filter: {decoded:?}; refused: {refused}; short: {short}"),
    }
}
