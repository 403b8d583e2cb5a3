//! `tiledbfs check`: decodes everything, and lists what is wrong.

use super::{Failure, SourceArgs, check_source, logging, show_path};
use crate::check::{Level, Options, Problem, Tally, check};
use crate::error::ErrorKind;
use clap::{Args, ValueHint};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(super) const HELP: &str = "\
Every tile of every committed fragment is decoded. Compared are checksums,
sizes, offsets, the R-tree, the order and bounds of coordinates, minima, maxima,
sums and null counts where the version makes them reliable, commits with
fragments, and everything that refers to something else in the array.

Output: one line for each finding on stdout, in no order, as
`PATH: PART at byte N: CAUSE`; `note: ` stands in front of what is unusual and
harmless, `unchecked: ` of what could not be read for want of a key or
permission. At the end one line on stderr says what was checked. With --json
each line is an object with the keys level (problem, unchecked or note), kind,
path, part, offset and message; part and offset may be null.

Exit code: 0 without problems, 1 with problems, 2 when it could not run or,
without problems, not check everything.

Examples:
  tiledbfs check ~/arrays
  tiledbfs check secret --key-file key.bin
  tiledbfs check ~/arrays --json | jq -r 'select(.level == \"problem\").path'";

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// An array, a group, or a directory that holds any of these at any depth
    #[arg(value_hint = ValueHint::DirPath)]
    source: PathBuf,
    /// Write findings as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// No progress bar and no summary on stderr
    #[arg(short, long)]
    quiet: bool,
    /// Threads that decode [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    source_args: SourceArgs,
}

/// Time between two pictures of the progress bar.
const FRAME: Duration = Duration::from_millis(100);

/// What was found so far, and where it is written.
struct Output {
    json: bool,
    problems: AtomicU64,
    unchecked: AtomicU64,
    notes: AtomicU64,
    /// The terminal's line with the progress bar and stdout, which may be the same terminal.
    screen: Mutex<Screen>,
}

#[derive(Default)]
struct Screen {
    /// Whether a bar stands in the terminal's last line.
    bar: bool,
    /// Why stdout can no longer be written to.
    broken: Option<io::Error>,
}

/// Runs `tiledbfs check`; exit code 0 without problems, 1 with any, 2 where it could not run or could not check everything.
pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    logging::to_stderr();
    let could_not = |failure: Failure| Failure { code: 2, ..failure };
    let source = check_source(&args.source).map_err(could_not)?;
    let source_options = args.source_args.options().map_err(could_not)?;
    let default = || std::thread::available_parallelism().map_or(2, usize::from);
    let options = Options {
        cache_size: source_options.cache_size,
        keys: source_options.keys,
        follow_symlinks: source_options.follow_symlinks,
        threads: args.threads.map_or_else(default, usize::from),
    };
    let output = Arc::new(Output {
        json: args.json,
        problems: AtomicU64::new(0),
        unchecked: AtomicU64::new(0),
        notes: AtomicU64::new(0),
        screen: Mutex::default(),
    });
    let tally: Arc<Tally> = Arc::default();
    let started = Instant::now();
    let result = {
        let _bar = (io::stderr().is_terminal() && !args.quiet)
            .then(|| Progress::start(source.clone(), tally.clone(), output.clone()));
        let output = output.clone();
        let report = Box::new(move |problem| output.write(&problem));
        check(&source, &options, report, tally.clone())
    };
    result.map_err(|error| {
        could_not(Failure::new(match error.kind() {
            ErrorKind::InvalidInput => error.to_string(),
            _ => format!("{}: {error}", show_path(&source)),
        }))
    })?;
    if let Some(error) = output.screen().broken.take() {
        // A reader that has gone, as with `| head`, has seen a problem.
        if error.kind() != io::ErrorKind::BrokenPipe {
            return Err(could_not(Failure::new(format!("cannot write: {error}"))));
        }
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    if !args.quiet {
        eprintln!("{}", summary(&tally, &output, started.elapsed()));
    }
    Ok(match (count(&output.problems), count(&output.unchecked)) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(2),
        _ => ExitCode::from(1),
    })
}

impl Output {
    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes one finding as one line.
    fn write(&self, problem: &Problem) {
        let counter = match problem.level {
            Level::Problem => &self.problems,
            Level::Unchecked => &self.unchecked,
            Level::Note => &self.notes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let line = match (self.json, problem.level) {
            (true, _) => json(problem),
            (false, Level::Problem) => problem.to_string(),
            (false, level) => format!("{}: {problem}", level.name()),
        };
        let mut screen = self.screen();
        if std::mem::take(&mut screen.bar) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
        if screen.broken.is_none()
            && let Err(error) = writeln!(io::stdout().lock(), "{line}")
        {
            screen.broken = Some(error);
        }
    }
}

/// A finding as one JSON object; what is not known is null.
fn json(problem: &Problem) -> String {
    serde_json::json!({
        "level": problem.level.name(),
        "kind": problem.kind.name(),
        "path": problem.path,
        "part": problem.part,
        "offset": problem.offset,
        "message": problem.message,
    })
    .to_string()
}

/// The line at the end.
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
        size(tally.bytes.get()),
        size(tally.stored_bytes.get()),
        elapsed.as_secs_f64()
    ));
    let last = parts.pop().unwrap_or_default();
    format!(
        "checked {}, {last}: {}",
        checked.collect::<Vec<_>>().join(", "),
        parts.join(", ")
    )
}

/// Bytes in the largest unit of which there is one.
fn size(bytes: u64) -> String {
    let units = [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

/// A progress bar on stderr, drawn by a thread until it is dropped.
struct Progress {
    done: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    output: Arc<Output>,
}

impl Progress {
    fn start(source: PathBuf, tally: Arc<Tally>, output: Arc<Output>) -> Progress {
        let done = Arc::new(AtomicBool::new(false));
        let total = Arc::new(AtomicU64::new(0));
        let measured = (done.clone(), total.clone());
        let measure = std::thread::spawn(move || {
            let bytes = stored_bytes(&source, &measured.0);
            measured.1.store(bytes, Ordering::Relaxed);
        });
        let drawn = (done.clone(), output.clone());
        let draw = std::thread::spawn(move || {
            let (done, output) = drawn;
            while !done.load(Ordering::Relaxed) {
                std::thread::park_timeout(FRAME);
                let line = bar(&tally, total.load(Ordering::Relaxed), &output);
                let mut screen = output.screen();
                if !done.load(Ordering::Relaxed) {
                    screen.bar = true;
                    let _ = io::stderr().write_all(format!("\r{line}\x1b[K").as_bytes());
                }
            }
        });
        Progress {
            done,
            threads: vec![measure, draw],
            output,
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
        if std::mem::take(&mut self.output.screen().bar) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// The bar, short enough for a line of 80 characters; `total` is 0 as long as it is not known.
fn bar(tally: &Tally, total: u64, output: &Output) -> String {
    const WIDTH: u64 = 24;
    let done = tally.stored_bytes.get();
    let problems = output.problems.load(Ordering::Relaxed);
    let found = match problems {
        0 => String::new(),
        1 => ", 1 problem".to_owned(),
        n => format!(", {n} problems"),
    };
    if total == 0 {
        return format!("{} arrays, {}{found}", tally.arrays.get(), size(done));
    }
    let part = |of: u64| (u128::from(done.min(total)) * u128::from(of) / u128::from(total)) as usize;
    let full = part(WIDTH);
    format!(
        "[{}{}] {:3}%  {} of {}{found}",
        "#".repeat(full),
        "-".repeat(WIDTH as usize - full),
        part(100),
        size(done),
        size(total)
    )
}

/// Bytes of all data files below a directory: about what there is to decode.
fn stored_bytes(source: &Path, done: &AtomicBool) -> u64 {
    let mut bytes = 0u64;
    let mut waiting = vec![source.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let data =
                Path::new(&name).extension().is_some_and(|e| e == "tdb") && name != "__fragment_metadata.tdb";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() && data => {
                    bytes = bytes.saturating_add(entry.metadata().map_or(0, |m| m.len()));
                }
                _ => {}
            }
        }
        if done.load(Ordering::Relaxed) {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Kind;

    fn output(json: bool) -> Output {
        Output {
            json,
            problems: AtomicU64::new(0),
            unchecked: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            screen: Mutex::default(),
        }
    }

    #[test]
    fn the_bar_never_runs_over() {
        let (tally, output) = (Tally::default(), output(false));
        assert_eq!(bar(&tally, 0, &output), "0 arrays, 0 bytes");
        tally.stored_bytes.add(512);
        output.problems.store(2, Ordering::Relaxed);
        assert_eq!(
            bar(&tally, 1024, &output),
            "[############------------]  50%  512 bytes of 1.0 KiB, 2 problems"
        );
        tally.stored_bytes.add(4096);
        assert!(bar(&tally, 1024, &output).starts_with("[########################] 100%"));
    }

    #[test]
    fn the_summary_counts_in_words() {
        let (tally, output) = (Tally::default(), output(false));
        tally.arrays.add(1);
        tally.tiles.add(3);
        output.notes.store(1, Ordering::Relaxed);
        assert_eq!(
            summary(&tally, &output, Duration::from_millis(1500)),
            "checked 1 array, 0 fragments, 0 columns, 3 tiles, 0 bytes (0 bytes stored) in 1.5 s: 0 problems, 1 note"
        );
    }

    #[test]
    fn a_line_of_json_has_all_keys() {
        let problem = Problem::new(Kind::Size, "f", "m").at(3);
        assert_eq!(
            json(&problem),
            r#"{"level":"problem","kind":"size","path":"f","part":null,"offset":3,"message":"m"}"#
        );
    }
}
