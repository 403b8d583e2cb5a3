//! `tiledbfs check`: decodes everything, and lists what is wrong.

use super::options::source_parser;
use super::output::{Failures, Stdout, close_stdout, progress_bar, stdout};
use super::source::{check_source, check_tree};
use super::{Failure, SourceArgs, logging, show_path};
use crate::check::{CheckOptions, Level, Problem, Tally};
use crate::error::ErrorKind;
use crate::printable::escape_json;
use crate::runtime::lock;
use crate::storage::location::Location;
use clap::{Args, ValueHint};
use indicatif::{HumanBytes, ProgressBar};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) const HELP: &str = "\
Decodes every tile of every committed fragment. Checks checksums, sizes,
offsets, the R-tree, the order and bounds of coordinates, minima, maxima, sums
and null counts where the format version makes them reliable, commits against
fragments, and all references within an array.

Output: one line per finding on stdout, in no order, as
`PATH: PART at byte N: CAUSE`. `note: ` in front means unusual, but no damage,
`unchecked: ` that a key or permission is missing. PATH is relative to SOURCE;
with several, SOURCE is part of it. A summary on stderr ends the output.
With --json each line is an object with the keys source, level (problem,
unchecked or note), kind, path, part, offset and message; part and offset may be
null.

Exit code: 0 without problems, 1 with problems, 2 if it could not run, or found
no problems but could not check everything.

Examples:
  tiledbfs check ~/arrays
  tiledbfs check one_array another_array
  tiledbfs check secret --key-file key.bin
  tiledbfs check ~/arrays --json | jq -r 'select(.level == \"problem\").path'";

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Arrays, groups, or directories that hold any of these at any depth
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::DirPath, value_parser = source_parser())]
    sources: Vec<OsString>,
    /// Write findings as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// No progress bar and no summary on stderr
    #[arg(short, long)]
    quiet: bool,
    /// Decoding threads [default: one per core; at least 16 if a SOURCE is in an object store]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    source_args: SourceArgs,
}

/// Minimum default of decoding threads if most of them wait for the network.
const REMOTE_THREADS: usize = 16;

/// Time between two updates of the progress bar.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Writes and counts findings.
struct Output {
    json: bool,
    /// Whether findings begin with their SOURCE, because there are several.
    several: bool,
    problems: AtomicU64,
    unchecked: AtomicU64,
    notes: AtomicU64,
    bar: ProgressBar,
    /// stdout, or the first error of writing to it; later findings are only counted.
    out: Mutex<io::Result<Stdout>>,
}

/// Runs `tiledbfs check`. Exit code: 0 without problems, 1 with problems, 2 if not everything was checked.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    logging::to_stderr();
    let could_not = |failure: Failure| Failure { code: 2, ..failure };
    let open_options = args.source_args.options().map_err(could_not)?;
    let mut failures = Failures::default();
    let mut sources = Vec::new();
    for argument in &args.sources {
        match check_source(argument) {
            Ok(source) => sources.push((show_path(Path::new(argument)), source)),
            Err(failure) => failures.add(failure),
        }
    }
    let local: Vec<PathBuf> = sources
        .iter()
        .filter_map(|(_, source)| match source {
            Location::Local(path) => Some(path.clone()),
            Location::Remote(_) => None,
        })
        .collect();
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    let default = || match local.len() < sources.len() {
        true => cores().max(REMOTE_THREADS),
        false => cores(),
    };
    let options = CheckOptions {
        cache_size: open_options.tree.cache_size,
        keys: open_options.tree.keys.clone(),
        follow_symlinks: open_options.tree.follow_symlinks,
        threads: args.threads.map_or_else(default, usize::from),
    };
    let output = Arc::new(Output {
        json: args.json,
        several: args.sources.len() > 1,
        problems: AtomicU64::new(0),
        unchecked: AtomicU64::new(0),
        notes: AtomicU64::new(0),
        bar: progress_bar(args.quiet),
        out: Mutex::new(Ok(stdout().map_err(could_not)?)),
    });
    let tally: Arc<Tally> = Arc::default();
    let started = Instant::now();
    let progress = Progress::start(local, &tally, &output);
    let mut checked = 0;
    let mut unmatched_keys: Vec<PathBuf> = options.keys.iter().map(|(path, _)| path.clone()).collect();
    for (shown, source) in sources {
        let (of_source, shown_again) = (output.clone(), shown.clone());
        let report = Box::new(move |problem| of_source.write(&shown_again, &problem));
        match check_tree(&source, &open_options, &options, report, tally.clone()) {
            Ok(unmatched) => {
                checked += 1;
                // Each key applies to every SOURCE; it needs a match in only one.
                unmatched_keys.retain(|path| unmatched.contains(path));
            }
            Err(error) => failures.add(Failure::new(match error.kind() {
                ErrorKind::InvalidInput => error.to_string(),
                _ => format!("{shown}: {error}"),
            })),
        }
    }
    drop(progress);
    if checked > 0 {
        for path in unmatched_keys {
            let path = show_path(&path);
            failures.add(Failure::new(format!(
                "a key is given for \"{path}\", but no array is at or below it"
            )));
        }
    }
    if let Err(error) = &*lock(&output.out) {
        // A closed pipe, as with `| head`, is not a failure.
        if error.kind() != io::ErrorKind::BrokenPipe {
            failures.add(Failure::new(format!("cannot write: {error}")));
        }
    }
    failures.check(close_stdout());
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    if !args.quiet && checked > 0 {
        super::complain(summary(&tally, &output, started.elapsed()));
    }
    let code = match (count(&output.problems), count(&output.unchecked)) {
        (0, 0) => 0,
        (0, _) => 2,
        _ => 1,
    };
    match failures.result() {
        Ok(()) => Ok(ExitCode::from(code)),
        Err(failure) => Err(Failure {
            code: if code == 1 { 1 } else { 2 },
            ..failure
        }),
    }
}

impl Output {
    /// Writes a finding of SOURCE as one line.
    fn write(&self, source: &str, problem: &Problem) {
        let counter = match problem.level {
            Level::Problem => &self.problems,
            Level::Unchecked => &self.unchecked,
            Level::Note => &self.notes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let place = if self.several {
            format!("{}/", source.trim_end_matches('/'))
        } else {
            String::new()
        };
        let line = match (self.json, problem.level) {
            (true, _) => json(source, problem),
            (false, Level::Problem) => format!("{place}{problem}"),
            (false, level) => format!("{}: {place}{problem}", level.name()),
        };
        let mut out = lock(&self.out);
        if let Ok(stdout) = &mut *out
            && let Err(error) = self
                .bar
                .suspend(|| stdout.write_all(format!("{line}\n").as_bytes()))
        {
            *out = Err(error);
        }
    }
}

/// A finding as a JSON object; unknown values are null.
fn json(source: &str, problem: &Problem) -> String {
    let finding = serde_json::json!({
        "source": source,
        "level": problem.level.name(),
        "kind": problem.kind.name(),
        "path": problem.path,
        "part": problem.part,
        "offset": problem.offset,
        "message": problem.message,
    });
    escape_json(&finding.to_string())
}

/// The summary line.
fn summary(tally: &Tally, output: &Output, elapsed: Duration) -> String {
    let found = [
        (&output.problems, "problem", "problems"),
        (&output.unchecked, "unchecked", "unchecked"),
        (&output.notes, "note", "notes"),
    ];
    let mut parts: Vec<String> = found
        .iter()
        .map(|(counter, one, many)| (counter.load(Ordering::Relaxed), one, many))
        .filter(|(count, one, _)| *count > 0 || **one == "problem")
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    let checked = [
        (tally.groups.get(), "group"),
        (tally.arrays.get(), "array"),
        (tally.fragments.get(), "fragment"),
        (tally.columns.get(), "column"),
        (tally.tiles.get(), "tile"),
    ];
    let checked = checked
        .iter()
        .filter(|(count, what)| *count > 0 || *what != "group")
        .map(|(count, what)| format!("{count} {what}{}", if *count == 1 { "" } else { "s" }));
    parts.push(format!(
        "{} ({} stored) in {:.1} s",
        HumanBytes(tally.bytes.get()),
        HumanBytes(tally.stored_bytes.get()),
        elapsed.as_secs_f64()
    ));
    let last = parts.pop().unwrap_or_default();
    format!(
        "checked {}, {last}: {}",
        checked.collect::<Vec<_>>().join(", "),
        parts.join(", ")
    )
}

/// The progress bar, which a thread updates until this is dropped.
struct Progress {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    bar: ProgressBar,
}

impl Progress {
    fn start(sources: Vec<PathBuf>, tally: &Arc<Tally>, output: &Arc<Output>) -> Progress {
        let done = Arc::new(AtomicBool::new(false));
        let bar = output.bar.clone();
        let mut threads = Vec::new();
        if !bar.is_hidden() {
            let (of_thread, until) = (bar.clone(), done.clone());
            threads.extend(thread::Builder::new().spawn(move || measure(sources, &of_thread, &until)));
            let (tally, output, until) = (tally.clone(), output.clone(), done.clone());
            threads.extend(thread::Builder::new().spawn(move || {
                while !until.load(Ordering::Relaxed) {
                    thread::park_timeout(FRAME_INTERVAL);
                    output.bar.set_position(tally.stored_bytes.get());
                    let problems = output.problems.load(Ordering::Relaxed);
                    output.bar.set_message(match problems {
                        0 => String::new(),
                        1 => "1 problem".to_owned(),
                        n => format!("{n} problems"),
                    });
                }
            }));
        }
        Progress { done, threads, bar }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Adds the sizes of all data files below the directories `waiting` to the length of the bar.
fn measure(mut waiting: Vec<PathBuf>, bar: &ProgressBar, done: &AtomicBool) {
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let data =
                Path::new(&name).extension().is_some_and(|e| e == "tdb") && name != "__fragment_metadata.tdb";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() && data => bar.inc_length(entry.metadata().map_or(0, |m| m.len())),
                _ => {}
            }
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Kind;

    fn output(json: bool) -> Output {
        Output {
            json,
            several: false,
            problems: AtomicU64::new(0),
            unchecked: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            bar: ProgressBar::hidden(),
            out: Mutex::new(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    #[test]
    fn the_summary_uses_singular_and_plural() {
        let (tally, output) = (Tally::default(), output(false));
        tally.arrays.add(1);
        tally.tiles.add(3);
        output.notes.store(1, Ordering::Relaxed);
        assert_eq!(
            summary(&tally, &output, Duration::from_millis(1500)),
            "checked 1 array, 0 fragments, 0 columns, 3 tiles, 0 B (0 B stored) in 1.5 s: 0 problems, 1 note"
        );
    }

    #[test]
    fn json_findings_have_all_keys() {
        let problem = Problem::new(Kind::Size, "f", "m").at(3);
        assert_eq!(
            json("s", &problem),
            r#"{"source":"s","level":"problem","kind":"size","path":"f","part":null,"offset":3,"message":"m"}"#
        );
    }
}
