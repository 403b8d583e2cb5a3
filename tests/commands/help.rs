//! Help, manual pages and completions, which are generated from the definition of the arguments.

use super::text;
use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};

/// The names of all commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = text(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_fits_80_columns() {
    let commands = commands();
    assert!(commands.len() > 5, "{commands:?}");
    for command in &commands {
        for help in [text(&["help", command]), text(&["help"])] {
            let longest = help.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(longest.chars().count() <= 80, "{command}: {longest}");
        }
    }
}

#[test]
fn manual_pages_tell_what_the_help_tells() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("man/man1");
    text(&["man", directory.to_str().unwrap()]);
    let pages: HashSet<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut wanted: HashSet<String> = commands()
        .iter()
        .filter(|command| *command != "help")
        .map(|command| format!("tiledbfs-{command}.1"))
        .collect();
    wanted.extend(["tiledbfs.1".into(), "mount.tiledbfs.8".into()]);
    assert_eq!(pages, wanted);
    for command in commands().iter().filter(|command| *command != "help") {
        let page = fs::read_to_string(directory.join(format!("tiledbfs-{command}.1"))).unwrap();
        // roff escapes hyphens.
        let page = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        for option in text(&["help", command])
            .split_whitespace()
            .filter(|word| word.starts_with("--"))
        {
            let option: String = option
                .chars()
                .take_while(|c| *c == '-' || c.is_ascii_alphanumeric())
                .collect();
            assert!(page.contains(&option), "{command}: {option}");
        }
        let (_, synopsis) = page.split_once(".SH SYNOPSIS\n").expect(&page);
        let synopsis = synopsis.lines().next().unwrap().replace("\\fI", "");
        // `  -o <OPTIONS>  ...`, `      --cache-size <BYTES>`
        let help = text(&["help", command]);
        let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words.iter().rfind(|word| word.starts_with('-')).unwrap();
            let value = line
                .split_once(&format!("{name} <"))
                .map(|(_, rest)| rest.split('>').next().unwrap());
            let wanted = match value {
                Some(value) => format!("{name} {value}]"),
                None => format!("{}]", name.trim_end_matches("...")),
            };
            assert!(
                synopsis.contains(&wanted),
                "{command}: {wanted:?} not in {synopsis}"
            );
        }
    }
    let page = fs::read_to_string(directory.join("tiledbfs-mount.1")).unwrap();
    assert!(
        page.contains("\\fB\\-\\-cache\\-size\\fR \\fIBYTES\\fR]"),
        "{page}"
    );
    let page = fs::read_to_string(directory.join("tiledbfs-cp.1")).unwrap();
    assert!(
        page.contains(" \\fISOURCE\\fR \\fI[PATH]... DEST\\fR\n"),
        "{page}"
    );
    let page = fs::read_to_string(directory.join("tiledbfs-check.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\n"), "{page}");
    // groff, if installed, must not complain.
    for page in &pages {
        let checked = Command::new("groff")
            .args(["-man", "-ww", "-z", "-Tutf8", "-I"])
            .args([place.path().join("man"), directory.join(page)])
            .output();
        if let Ok(output) = checked {
            assert!(output.stderr.is_empty(), "{page}: {output:?}");
        }
    }
}

#[test]
fn completions_are_understood_by_their_shells() {
    let place = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&["completions", shell]);
        for word in commands()
            .iter()
            .map(String::as_str)
            .chain(["cache-size", "follow-symlinks"])
        {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let file = place.path().join(shell);
        fs::write(&file, script).unwrap();
        // The shell, if installed, must accept it.
        if let Ok(output) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(output.status.success(), "{shell}: {output:?}");
        }
    }
    let bash = |words: &[&str]| {
        let script = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                      _tiledbfs tiledbfs \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"";
        let output = Command::new("bash")
            .args(["-c", script])
            .arg(place.path().join("bash"))
            .args(words)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(bash(&["tiledbfs", "mou"]), "mount\n");
    assert!(bash(&["tiledbfs", ""]).starts_with("mount unmount "));
    // Nothing, so that bash completes it to a file.
    assert_eq!(bash(&["tiledbfs", "cat", ""]), "\n");
    assert_eq!(bash(&["tiledbfs", "cat", "array", ""]), "\n");
    assert_eq!(bash(&["tiledbfs", "cat", "--cach"]), "--cache-size\n");
    assert_eq!(bash(&["tiledbfs", "ls", "array", "--rec"]), "--recursive\n");
    assert_eq!(
        bash(&["tiledbfs", "completions", ""]),
        "bash elvish fish powershell zsh\n"
    );
    // What completes files and directories, so that they can be entered.
    let script = fs::read_to_string(place.path().join("zsh")).unwrap();
    for (option, wanted) in [
        ("key-file", "_files"),
        ("log-file", "_files"),
        ("disk-cache", "_files -/"),
    ] {
        let line = script
            .lines()
            .find(|line| line.contains(&format!("--{option}=")))
            .unwrap();
        assert!(
            line.trim_end_matches("' \\").ends_with(&format!(":{wanted}")),
            "{line}"
        );
    }
    let script = fs::read_to_string(place.path().join("fish")).unwrap();
    assert!(
        script.contains("completions\" -f -a \"bash elvish fish"),
        "{script}"
    );
}
