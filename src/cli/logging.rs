//! Where messages go: to stderr while somebody looks on, to a file that `--log-file` names, or else to the
//! log of the system.
//!
//! | | until the mount answers | then |
//! |---|---|---|
//! | in the foreground | stderr | stderr |
//! | in the background | stderr | syslog(3), which journald listens to as well |
//! | with `--log-file`, in both | stderr and the file | the file |
//!
//! On stderr a message is a line `tiledbfs: LEVEL: TEXT`; where that is the journal, with the level in its
//! way as well.

use super::{Failure, show_path};
use clap::{ArgAction, Args};
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::syslog::{Facility, LogFlags, Severity, openlog, syslog};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// How much is logged, and where.
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// Also log what is ignored (info); -vv also each request (debug)
    #[arg(short, long, action = ArgAction::Count, overrides_with_all = ["quiet", "log_level"])]
    verbose: u8,
    /// Log errors only
    #[arg(short, long, overrides_with_all = ["verbose", "log_level"])]
    quiet: bool,
    /// Log messages of LEVEL and above: off, error, warn, info, debug or trace [default: warn, or what
    /// RUST_LOG says]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, value_parser = level_parser())]
    log_level: Option<LevelFilter>,
    /// Append messages to FILE; SIGHUP reopens it [default: in the background the system log, else stderr]
    #[arg(long, value_name = "FILE")]
    pub(super) log_file: Option<PathBuf>,
}

fn level_parser() -> impl clap::builder::TypedValueParser<Value = LevelFilter> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(["off", "error", "warn", "info", "debug", "trace"])
        .try_map(|name| name.parse::<LevelFilter>())
}

impl LogArgs {
    /// The level that is asked for, None if none is.
    fn level(&self) -> Option<LevelFilter> {
        match (self.quiet, self.verbose) {
            (true, _) => Some(LevelFilter::Error),
            (false, 0) => self.log_level,
            (false, 1) => Some(LevelFilter::Info),
            (false, 2) => Some(LevelFilter::Debug),
            (false, _) => Some(LevelFilter::Trace),
        }
    }
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    /// Decides what is logged, and writes lines to the file, if there is one.
    lines: env_logger::Logger,
    file: Option<Arc<LogFile>>,
    stderr: AtomicBool,
    /// Whether stderr is the journal.
    journal: bool,
    /// Set once messages go to the system's log: what they begin with there.
    system: OnceLock<String>,
}

/// Sends what is logged to stderr.
pub(super) fn to_stderr() {
    install(None, None);
}

/// Sends what is logged to stderr and to the file that `args` name. Panics are logged as all else.
pub(super) fn start(args: &LogArgs) -> Result<(), Failure> {
    let file = args.log_file.as_deref().map(LogFile::open).transpose()?;
    install(args.level(), file.map(Arc::new));
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    Ok(())
}

/// From now on nobody looks at stderr: what is logged goes to the file, if there is one, else to the system's
/// log where this process is in the background, and serves `mountpoint`.
pub(super) fn settle(mountpoint: Option<&Path>) {
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

/// Opens the log file anew, which somebody may have renamed. When that fails, the one that is open stays in
/// use.
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
    // It repeats what the error says, once a try.
    builder.filter_module("rustls_platform_verifier", LevelFilter::Off);
    // Takes the place of the level that RUST_LOG has for everything; what it says of single modules stays.
    if let Some(level) = level {
        builder.filter_level(level);
    }
    let target: Box<dyn Write + Send> = match &file {
        Some(file) => Box::new(Lines(file.clone())),
        None => Box::new(io::sink()),
    };
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

/// Whether stderr is connected to the journal: systemd names the socket's device and inode then.
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
        if self.file.is_some() {
            self.lines.log(record);
        }
        let (severity, level) = match record.level() {
            Level::Error => (Severity::LOG_ERR, "error"),
            Level::Warn => (Severity::LOG_WARNING, "warning"),
            Level::Info => (Severity::LOG_INFO, "info"),
            Level::Debug | Level::Trace => (Severity::LOG_DEBUG, "debug"),
        };
        // One line each.
        let text = record.args().to_string().replace('\n', "; ").replace('\0', "\\0");
        if let Some(mountpoint) = self.system.get() {
            let _ = syslog(severity, &format!("{mountpoint}: {text}"));
        }
        if self.stderr.load(Ordering::Relaxed) {
            let prefix = if self.journal {
                format!("<{}>", severity as i32)
            } else {
                String::new()
            };
            // In one piece. Where nobody reads it there is nobody to tell.
            let _ = io::stderr().write_all(format!("{prefix}tiledbfs: {level}: {text}\n").as_bytes());
        }
    }

    fn flush(&self) {}
}

/// A file that lines are appended to.
struct LogFile {
    /// Absolute: this process changes its directory.
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
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// What env_logger writes to.
struct Lines(Arc<LogFile>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
