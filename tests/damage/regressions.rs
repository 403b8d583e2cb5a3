//! Runs the fuzz targets on inputs on which they once failed: `tests/regressions/<target>/<number>`.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn what_fuzzing_found_stays_mended() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut failed = Vec::new();
    for directory in fs::read_dir(root).into_iter().flatten() {
        let directory = directory.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap();
        for file in fs::read_dir(&directory).unwrap() {
            let file = file.unwrap().path();
            let (data, start) = (fs::read(&file).unwrap(), Instant::now());
            if catch_unwind(|| crate::targets::run(name, &data)).is_err()
                || start.elapsed() > Duration::from_secs(10)
            {
                failed.push(file);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn every_target_takes_anything() {
    for (name, _) in crate::targets::TARGETS {
        for length in [0, 1, 2, 7, 64, 300] {
            for fill in [0, 1, 0x7f, 0xff] {
                crate::targets::run(name, &vec![fill; length]);
            }
        }
        println!("{name}");
    }
}

/// Documents in metadata with a few bytes changed, taken out, or put in a second time.
#[test]
fn the_conventions_target_takes_what_programs_write_and_what_is_left_of_it() {
    let mut random = crate::targets::arrays::Dice::new(b"cd");
    for seed in crate::targets::conventions::seeds() {
        crate::targets::run("conventions", &seed);
        for _ in 0..5000 {
            let mut changed = seed.clone();
            for _ in 0..1 + random.random() % 3 {
                let start = random.random() as usize % changed.len();
                let end = (start + random.random() as usize % 12).min(changed.len());
                match random.random() % 4 {
                    0 => changed[start] = random.random() as u8,
                    1 => changed[start] ^= 1 << (random.random() % 7),
                    2 => drop(changed.drain(start + 1..end.max(start + 1))),
                    _ => {
                        let part = changed[start..end].to_vec();
                        let at = random.random() as usize % changed.len();
                        drop(changed.splice(at..at, part));
                    }
                }
            }
            crate::targets::run("conventions", &changed);
        }
    }
}

/// Exports of random arrays.
#[test]
fn exports_of_small_arrays_are_the_same_however_they_are_read() {
    let mut random = crate::targets::arrays::Dice::new(b"ab");
    for _ in 0..400 {
        let input: Vec<u8> = (0..120).map(|_| random.random() as u8).collect();
        crate::targets::run("exports", &input);
    }
}

/// Walks the sample and reads its views, whole and with single bytes changed.
#[test]
fn the_array_target_takes_the_sample_and_what_is_left_of_it() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
    for name in ["weather", "lightning"] {
        let mut files = Vec::new();
        let mut waiting = vec![sample.join(name)];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => waiting.push(path),
                    false => files.push(path),
                }
            }
        }
        files.sort();
        let contents: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
        let paths = files.iter().map(|path| path.strip_prefix(&sample).unwrap());
        let packed = crate::targets::pack_files(paths.zip(contents.iter().map(Vec::as_slice)));
        crate::targets::run("array", &packed);
        let step = packed.len() / 20;
        for at in (step / 2..packed.len()).step_by(step) {
            let mut changed = packed.clone();
            changed[at] ^= 1 << (at % 8);
            crate::targets::run("array", &changed);
        }
    }
}
