//! The examples, run on the sample: what they print.

use std::path::Path;
use std::process::Command;

/// What an example prints, run with the sample as its directory. `cargo test` builds all examples.
fn printed(example: &str, arguments: &[&str]) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_tiledbfs"))
        .with_file_name("examples")
        .join(example);
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample");
    let run = Command::new(&program)
        .args(arguments)
        .current_dir(sample)
        .output();
    let run = run.unwrap_or_else(|e| panic!("{}: {e}; built by cargo build --examples", program.display()));
    assert!(
        run.status.success(),
        "{example}: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn members_of_a_group_are_listed() {
    let all = printed("list", &["."]);
    assert!(all.contains("weather (Array)\n  day: INT32\n"), "{all}");
}

#[test]
fn first_numbers_are_read() {
    let all = printed("read", &["weather", "temperature"]);
    assert!(all.starts_with("shape [365, 6]\n[1.5, 1.4, "), "{all}");
}

#[test]
fn past_states_are_compared() {
    let all = printed("past_states", &["weather", "temperature"]);
    assert_eq!(all.lines().count(), 2, "{all}");
    assert!(all.starts_with("1738627200000: 2190 values, 2190 new\n"), "{all}");
}

#[test]
fn a_box_has_means() {
    let all = printed("mean_of_box", &["weather", "temperature", "day", "32", "59"]);
    let lines: Vec<_> = all.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("along day: [0.59, -1.05, "),
        "{all}"
    );
}

#[test]
fn fields_become_csv() {
    let all = printed("csv", &["weather", "day", "station", "temperature", "sky"]);
    assert_eq!(all.lines().count(), 1 + 365 * 6);
    assert!(
        all.starts_with("day,station,temperature,sky\n1,0,1.5,rain\n"),
        "{all}"
    );
}

#[test]
fn an_array_is_read_inside_of_a_tar_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("sample.tar");
    let mut tar = tar::Builder::new(std::fs::File::create(&path).unwrap());
    tar.append_dir_all(".", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sample"))
        .unwrap();
    tar.finish().unwrap();
    let all = printed("tar_storage", &[path.to_str().unwrap(), "weather"]);
    assert!(
        all.contains("temperature: FLOAT32\n") && all.ends_with("\n2190 cells\n"),
        "{all}"
    );
}
