//! Sends messages to stderr, to the file of `--log-file`, or to the system log.
//!
//! | | until the mount answers | afterwards |
//! |---|---|---|
//! | foreground | stderr | stderr |
//! | background | stderr | syslog(3), which journald also receives |
//! | with `--log-file` | stderr and the file | the file |
//!
//! On stderr a message is a line `tiledbfs: LEVEL: TEXT`. If stderr is the journal, `<SEVERITY>` precedes it.

use super::{Failure, show_path};
use crate::calendar::{now, timestamp};
use crate::printable::escape;
use crate::runtime::lock;
use clap::{ArgAction, Args, ValueHint};
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::syslog::{Facility, LogFlags, Severity, openlog, syslog};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How much is logged, and where.
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Also log what is ignored (info); -vv also each request (debug)
    #[arg(short, long, action = ArgAction::Count, overrides_with_all = ["quiet", "log_level"])]
    verbose: u8,
    /// Log errors only
    #[arg(short, long, overrides_with_all = ["verbose", "log_level"])]
    quiet: bool,
    /// Log messages of LEVEL and above: off, error, warn, info, debug or trace [default: RUST_LOG, or warn]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = level_parser())]
    log_level: Option<LevelFilter>,
    /// Append messages to FILE; SIGHUP reopens it [default: in the background the system log, else stderr]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) log_file: Option<PathBuf>,
}

fn level_parser() -> impl clap::builder::TypedValueParser<Value = LevelFilter> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(["off", "error", "warn", "info", "debug", "trace"])
        .try_map(|name| name.parse::<LevelFilter>())
}

impl LogArgs {
    /// The level that the arguments set, if any.
    fn level(&self) -> Option<LevelFilter> {
        match self.quiet {
            true => Some(LevelFilter::Error),
            false => verbose_level(self.verbose).or(self.log_level),
        }
    }
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    /// Filters messages, and writes them to the file, if there is one.
    lines: env_logger::Logger,
    file: Option<Arc<LogFile>>,
    stderr: AtomicBool,
    /// Whether stderr is the journal.
    journal: bool,
    /// Set once messages go to the system log: their prefix.
    system: OnceLock<String>,
}

/// How much a command logs that mounts nothing.
#[derive(Debug, Default, Args)]
pub(super) struct VerboseArgs {
    /// Log what is ignored to stderr (info); -vv also details (debug)
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

/// Logs warnings and errors to stderr.
pub(super) fn to_stderr() {
    install(None, None);
}

/// Logs to stderr, with as many `-v` as in `args`.
pub(super) fn to_stderr_with(args: &VerboseArgs) {
    install(verbose_level(args.verbose), None);
}

/// The level of a number of `-v`; None without any.
fn verbose_level(count: u8) -> Option<LevelFilter> {
    match count {
        0 => None,
        1 => Some(LevelFilter::Info),
        2 => Some(LevelFilter::Debug),
        _ => Some(LevelFilter::Trace),
    }
}

/// Logs to stderr, and to the file in `args` if there is one. Logs panics as well.
pub(super) fn start(args: &LogArgs) -> Result<(), Failure> {
    let file = args.log_file.as_deref().map(LogFile::open).transpose()?;
    install(args.level(), file.map(Arc::new));
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{}", panic.to_string().replace('\n', "; "));
    }));
    Ok(())
}

/// Stops logging to stderr if there is a log file. Else, in a background process, which has a `mountpoint`,
/// switches to the system log.
pub(super) fn leave_stderr(mountpoint: Option<&Path>) {
    let Some(logger) = LOGGER.get() else {
        return;
    };
    let has_file = logger.file.is_some();
    if let Some(mountpoint) = mountpoint.filter(|_| !has_file) {
        if !Path::new("/dev/log").exists() {
            log::info!("there is no system log (/dev/log): messages are lost without --log-file");
        }
        let _ = openlog(Some(c"tiledbfs"), LogFlags::LOG_PID, Facility::LOG_DAEMON);
        let _ = logger.system.set(show_path(mountpoint));
    }
    if has_file || mountpoint.is_some() {
        logger.stderr.store(false, Ordering::Relaxed);
    }
}

/// Reopens the log file, for log rotation. If that fails, the open one stays in use.
pub(super) fn reopen() {
    if let Some(file) = LOGGER.get().and_then(|logger| logger.file.as_ref())
        && let Err(error) = file.reopen()
    {
        log::error!("log file {}: cannot reopen it: {error}", show_path(&file.path));
    }
}

fn install(level: Option<LevelFilter>, file: Option<Arc<LogFile>>) {
    let env = env_logger::Env::default().default_filter_or("warn");
    let mut builder = env_logger::Builder::from_env(env);
    // This crate repeats the error at each retry.
    builder.filter_module("rustls_platform_verifier", LevelFilter::Off);
    // Overrides the global level of RUST_LOG, but not its levels for modules.
    if let Some(level) = level {
        builder.filter_level(level);
    }
    let target: Box<dyn Write + Send> = match &file {
        Some(file) => Box::new(Lines(file.clone())),
        None => Box::new(io::sink()),
    };
    builder.format(|out, record| {
        let (when, level) = (timestamp(now()), record.level());
        writeln!(out, "[{when} {level:<5} {}] {}", record.target(), record.args())
    });
    let lines = builder.target(env_logger::Target::Pipe(target)).build();
    log::set_max_level(lines.filter());
    let logger = LOGGER.get_or_init(|| Logger {
        lines,
        file,
        stderr: AtomicBool::new(true),
        journal: is_journal(),
        system: OnceLock::new(),
    });
    let _ = log::set_logger(logger);
}

/// Whether stderr is the journal: systemd then puts the socket's device and inode into JOURNAL_STREAM.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    std::fs::metadata("/proc/self/fd/2")
        .is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.lines.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.lines.matches(record) {
            return;
        }
        // Each message is one line.
        let text = escape(record.args().to_string());
        if self.file.is_some() {
            self.lines.log(
                &Record::builder()
                    .metadata(record.metadata().clone())
                    .module_path(record.module_path())
                    .args(format_args!("{text}"))
                    .build(),
            );
        }
        let (severity, level) = match record.level() {
            Level::Error => (Severity::LOG_ERR, "error"),
            Level::Warn => (Severity::LOG_WARNING, "warning"),
            Level::Info => (Severity::LOG_INFO, "info"),
            Level::Debug | Level::Trace => (Severity::LOG_DEBUG, "debug"),
        };
        if let Some(mountpoint) = self.system.get() {
            let _ = syslog(severity, &format!("{mountpoint}: {text}"));
        }
        if self.stderr.load(Ordering::Relaxed) {
            let prefix = if self.journal {
                format!("<{}>", severity as i32)
            } else {
                String::new()
            };
            // One write, so that lines do not mix. An error could not be reported anywhere.
            let _ = io::stderr().write_all(format!("{prefix}tiledbfs: {level}: {text}\n").as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A log file, opened for appending.
struct LogFile {
    /// Absolute, because the process changes its working directory.
    path: PathBuf,
    file: Mutex<File>,
}

impl LogFile {
    fn open(path: &Path) -> Result<LogFile, Failure> {
        let opened = std::path::absolute(path).and_then(|path| {
            let file = Mutex::new(open(&path)?);
            Ok(LogFile { path, file })
        });
        opened.map_err(|error| Failure::new(format!("log file {}: {error}", show_path(path))))
    }

    fn reopen(&self) -> io::Result<()> {
        let file = open(&self.path)?;
        *lock(&self.file) = file;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// Writes env_logger's output to the current log file.
struct Lines(Arc<LogFile>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        lock(&self.0.file).write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
