//! `ls` and `cat`, and how the arguments SOURCE and PATH are interpreted.

use super::{fails, run, sample, text};

fn fragments() -> Vec<String> {
    text(&["ls", "weather", "fragments"])
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn source_and_path_in_one() {
    let schema = text(&["cat", "weather", "schema.json"]);
    assert!(schema.contains("temperature"), "{schema}");
    let array = sample().join("weather");
    let uri = format!("file://{}", array.display());
    for arguments in [
        &["cat", "weather/schema.json"][..],
        &["cat", ".", "weather/schema.json"],
        &["cat", ".", "./weather/../weather//schema.json"],
        &["cat", "weather/fragments/../schema.json"],
        &["cat", "lightning/fragments/../../weather/schema.json"],
        &["cat", array.join("schema.json").to_str().unwrap()],
        &["cat", &uri, "schema.json"],
        &["cat", &format!("{uri}/schema.json")],
    ] {
        assert_eq!(text(arguments), schema, "{arguments:?}");
    }
    // Several files, of several arrays.
    let both = text(&["cat", "weather/schema.json", "lightning/schema.json"]);
    assert_eq!(both, schema + &text(&["cat", "lightning", "schema.json"]));

    assert!(fails(&["cat", "weather"], 1).contains("sample/weather: is a directory"));
    assert!(fails(&["cat", "nothing/schema.json"], 1).contains("nothing/schema.json: no such file"));
    assert!(fails(&["cat", "weather/nothing"], 1).contains("weather/nothing: no such file"));
    assert_eq!(text(&["ls", "weather/data/.."]), text(&["ls", "weather"]));
    assert!(fails(&["cat", "weather", "../lightning/schema.json"], 1).contains("leads out of SOURCE"));
    // A missing path does not keep the others from being shown.
    let (code, stdout, stderr) = run(&["cat", "weather", "nothing", "schema.json", "nor this"]);
    assert_eq!((code, stdout.contains("temperature")), (Some(1), true));
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn what_looks_like_a_url_of_another_kind_is_no_path() {
    let message = fails(&["cat", "hdfs://host/array"], 1);
    assert!(
        message.starts_with("tiledbfs: hdfs://: unknown scheme"),
        "{message}"
    );
}

#[test]
fn an_empty_path_is_not_all_of_the_source() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().to_str().unwrap();
    for arguments in [
        &["ls", "weather", ""][..],
        &["cat", "weather", "schema.json", ""],
        &["cp", "-r", "weather", "", place],
        &["cp", "weather", "schema.json", ""],
    ] {
        let (code, stdout, stderr) = run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains("SOURCE itself"), "{arguments:?}: {stderr}");
    }
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0);
}

/// That of a shell variable that is not set.
#[test]
fn an_empty_source_is_not_the_current_directory() {
    let two = ["mount", "ls", "cat", "cp"].map(|command| vec![command, "", "elsewhere"]);
    let one = ["info", "check"].map(|command| vec![command, ""]);
    let serve = cfg!(feature = "serve").then(|| vec!["serve", ""]);
    for arguments in two.into_iter().chain(one).chain(serve) {
        let (code, _, stderr) = run(&arguments);
        assert_eq!(code, Some(2), "{arguments:?}");
        assert!(
            stderr.contains("`.` for the current directory"),
            "{arguments:?}: {stderr}"
        );
    }
}

#[test]
fn patterns() {
    let wanted: String = fragments()
        .iter()
        .map(|name| text(&["cat", "weather", &format!("fragments/{name}/footer.json")]))
        .collect();
    assert_eq!(wanted.matches("\"cell_num\"").count(), 2);
    for arguments in [
        &["cat", ".", "weather/fragments/*/footer.json"][..],
        &["cat", "weather/fragments/*/footer.json"],
        &["cat", "w*/fragments/__[0-9]*/foote?.json"],
    ] {
        assert_eq!(text(arguments), wanted, "{arguments:?}");
    }
    assert_eq!(
        text(&["ls", "weather", "schema*n", "[a-e]*.json"])
            .lines()
            .count(),
        3
    );
    assert!(
        fails(&["cat", "weather", "fragments/*/nothing"], 1).contains("fragments/*/nothing: no such file")
    );
    // A leading dot must be typed.
    assert!(!text(&["ls", "-d", ".", "*"]).contains(".tiledbfs"));
    assert_eq!(text(&["ls", "-d", ".", ".*"]), ".tiledbfs\n");
}

#[test]
fn ls_as_people_type_it() {
    let names = text(&["ls", "weather"]);
    assert!(
        names.contains("schema.json\n") && !names.contains(".tiledbfs"),
        "{names}"
    );
    assert_eq!(text(&["ls", "-1", "weather"]), names);
    let all = text(&["ls", "-a", "weather"]);
    assert_eq!(all.replace(".tiledbfs\n", ""), names);
    assert_eq!(all.matches(".tiledbfs\n").count(), 1);
    // A file, then directories, each under a heading.
    let several = text(&["ls", "weather", "schemas", "schema.json", "fragments"]);
    let [first, second] = &fragments()[..] else {
        panic!("{several}")
    };
    let lines: Vec<&str> = several.lines().collect();
    assert_eq!(lines[..3], ["schema.json", "", "schemas:"], "{several}");
    assert_eq!(
        lines[lines.len() - 4..],
        ["", "fragments:", first, second],
        "{several}"
    );
    // A single directory has no heading, and -d prints one line.
    assert_eq!(text(&["ls", "weather", "./fragments/"]).lines().count(), 2);
    assert_eq!(text(&["ls", "-d", "weather", "fragments"]), "fragments\n");
    assert_eq!(text(&["ls", "-d", "weather"]), ".\n");
    let recursive = text(&["ls", "-R", "weather/schemas"]);
    assert!(recursive.starts_with("weather/schemas:\n"), "{recursive}");

    let file = format!("fragments/{first}/columns/temperature/data.bin");
    let exact = text(&["ls", "-l", "weather", &file]);
    assert!(
        exact.starts_with("-r--r--r--           8760 2025-02-04 00:00:00 "),
        "{exact}"
    );
    let human = text(&["ls", "-lh", "weather", &file]);
    assert!(human.starts_with("-r--r--r--       8.55 KiB "), "{human}");
    assert!(text(&["ls", "--help"]).contains("--human-readable"));
    // A missing path does not keep the others from being listed.
    let (code, stdout, stderr) = run(&["ls", "weather", "nothing", "schema.json"]);
    assert_eq!((code, stdout.as_str()), (Some(1), "schema.json\n"));
    assert!(stderr.contains("nothing: no such file or directory"), "{stderr}");
}

#[test]
fn a_pin_is_a_state_of_one_array() {
    let pin_of = |arguments: &[&str]| {
        let view: serde_json::Value = serde_json::from_str(&text(arguments)).unwrap();
        view["pin"].as_str().unwrap().to_owned()
    };
    let then = pin_of(&["cat", "--at", "2025-02-10", "weather", "data/view.json"]);
    assert_eq!(then, pin_of(&["cat", "weather/at/2025-02-10/data/view.json"]));
    assert!(then.starts_with("2025-02-05T00:00:00.000Z~"), "{then}");
    let column = "data/columns/rain/data.bin";
    let table = text(&["cat", "--at", &then, "weather", "data/table.csv"]);
    assert_eq!(
        table,
        text(&[
            "cat",
            "weather",
            &format!("at/{}/data/table.csv", then.replace(':', ""))
        ])
    );
    assert_ne!(table, text(&["cat", "weather/data/table.csv"]));
    assert_eq!(pin_of(&["cat", "--at", &then, "weather/data/view.json"]), then);
    assert_eq!(
        text(&["ls", "--at", &then, "weather"]),
        text(&["ls", "--at", "2025-02-10", "weather"])
    );
    assert_eq!(
        pin_of(&["cat", "weather/at/latest/data/view.json"]),
        pin_of(&["cat", "weather/data/view.json"])
    );

    // No pin; of no state; of a group.
    for (name, reason) in [
        ("2025-02-05~0123", "16 hexadecimal digits"),
        ("yesterday~0123456789abcdef", "is not a time"),
        ("2025-02-05~0123456789abcdef", "no state of this name"),
    ] {
        let message = fails(&["cat", "weather", &format!("at/{name}/{column}")], 1);
        assert!(message.contains(reason), "{message}");
    }
    let message = fails(
        &["cat", "--at", "2025-02-05~0123456789abcdef", "weather", column],
        1,
    );
    assert!(message.contains("no state of this name"), "{message}");
    let message = fails(&["ls", "--at", &then, "."], 1);
    assert!(message.contains("not an array"), "{message}");
    let (code, _, message) = run(&["ls", "--at", "2025-02-05~0123", "weather"]);
    assert_eq!(
        (code, message.contains("is not a pin")),
        (Some(2), true),
        "{message}"
    );
}
