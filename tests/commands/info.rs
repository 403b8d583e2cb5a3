//! `info`: its output and exit codes.

use super::{fails, run, sample, text};
use crate::common::copying::copy;
use std::fs;

#[test]
fn an_array_on_one_screen() {
    let shown = text(&["info", "weather"]);
    assert!(shown.lines().count() < 24, "{shown}");
    let line = |name: &str| {
        let mut lines = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in {shown}"))
    };
    assert!(
        shown.contains("weather: dense array, 2 dimensions, 6 attributes\n"),
        "{shown}"
    );
    assert_eq!(line("shape"), "shape 365 × 6 written, in a domain of 365 × 6");
    assert_eq!(line("format"), "format schema 22, fragments 22");
    assert_eq!(line("fragments"), "fragments 2");
    assert_eq!(line("cells"), "cells 2,628");
    assert_eq!(line("newest write"), "newest write 2025-02-14 00:00:00 UTC");
    assert!(
        line("note").starts_with("note STRING_UTF8 var nullable"),
        "{shown}"
    );
    assert_eq!(line("sky"), "sky UINT8 one of sky RLE");
    assert_eq!(
        line("open"),
        "open table.csv, table.parquet, array.nc, array.zarr, raster, in data/"
    );
    assert_eq!(line("day"), "day INT32 1..365 73 1..365");
    assert_eq!(line("temperature"), "temperature FLOAT32 BYTESHUFFLE, ZSTD 9");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    // The same at a time, where the array has no directories of fragments.
    let past = text(&["info", "weather/at/9999"]);
    assert_eq!(past.replacen("weather/at/9999:", "weather:", 1), shown);
    // Several arguments, with SOURCE and PATH in one.
    let both = text(&["info", "weather", "../sample/weather"]);
    assert_eq!(
        both,
        format!("{shown}\n{}", shown.replacen("weather:", "../sample/weather:", 1))
    );
}

#[test]
fn a_group_as_a_tree() {
    let shown = text(&["info", "."]);
    assert!(shown.starts_with(".: group, 2 members\n"), "{shown}");
    let lightning = "lightning: sparse array, 2 dimensions, 3 attributes, duplicates allowed, 2 fragments";
    let weather = "weather: dense array, 2 dimensions, 6 attributes, 2 fragments";
    assert!(
        shown.ends_with(&format!("\n├── {lightning}\n└── {weather}\n")),
        "{shown}"
    );
    // A directory of groups.
    let above = sample().parent().unwrap().to_str().unwrap().to_owned();
    let (code, all, stderr) = run(&["info", &above]);
    let lightning = format!("├── sample: group, 2 members\n│   ├── {lightning}\n");
    assert!(all.contains(&lightning) && !all.contains(".tiledbfs"), "{all}");
    // One of the arrays is encrypted.
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(
        all.contains("── encrypted: versions/v22/encrypted/__schema/"),
        "{all}"
    );
}

#[test]
fn what_cannot_be_told() {
    assert!(fails(&["info", "weather/schema.json"], 1).contains("is a file"));
    assert!(fails(&["info", "nothing"], 1).contains("nothing: no such file"));
    // A fragment that cannot be read is reported, and the rest is shown.
    let place = tempfile::tempdir().unwrap();
    copy(&sample().join("weather"), place.path());
    let fragments = fs::read_dir(place.path().join("__fragments")).unwrap();
    let fragment = fragments.map(|entry| entry.unwrap().path()).min().unwrap();
    fs::write(fragment.join("__fragment_metadata.tdb"), b"short").unwrap();
    let (code, stdout, stderr) = run(&["info", place.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("cells         438, without 1 unreadable fragment\n"),
        "{stdout}"
    );
    assert!(
        stdout.contains(" unfiltered, without 1 unreadable fragment\n"),
        "{stdout}"
    );
    assert!(stderr.contains("__fragment_metadata.tdb"), "{stderr}");
}
