//! `tiledbfs serve`.

use super::options::source_parser;
use super::shown::ShownArgs;
use super::source::{check_source, open_tree};
use super::{Failure, logging, show_path};
use crate::Error;
use crate::serve::{
    AccessLog, Address, Cors, Hosts, Listener, Nodes, Pool, Server, Settings, Site, without_port,
};
use crate::storage::location::Location;
use crate::tree;
use clap::{Args, ValueHint};
use nix::sys::resource::{Resource, getrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

pub(super) const HELP: &str = "\
Without --token-file and --no-auth, only processes of this user and of root
are answered, over loopback or a socket.

SIGTERM and SIGINT finish answers for up to 10 seconds. SIGHUP reads tokens and
certificates anew, and reopens logs.

Examples:
  tiledbfs serve ~/arrays
  tiledbfs serve ~/arrays --listen unix:/run/user/1000/t.sock
  tiledbfs serve --token-file tokens --tls-cert cert.pem --tls-key key.pem \\
      ~/arrays --listen 0.0.0.0:8470
  tiledbfs serve s3://bucket/arrays --no-auth --listen 0.0.0.0:80

  curl http://127.0.0.1:8470/my_array/schema.json
  curl 'http://127.0.0.1:8470/my_array/?json'";

/// Where to listen without `--listen`.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8470";

/// Default threads that make answers: more than there are processors, so that quick answers to some clients
/// do not wait for slow ones to others.
const ANSWER_THREADS: usize = 32;

/// Threads that send and receive.
const NETWORK_THREADS: usize = 2;

/// Threads that find out whether SOURCE is there.
const HEALTH_THREADS: usize = 1;

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// An array, a group, or a directory that holds any of these at any depth; or a URL of one: s3://, gs://,
    /// az://, abfss://, https://
    #[arg(value_hint = ValueHint::DirPath, value_parser = source_parser())]
    source: OsString,
    /// Where to listen: ADDRESS:PORT, [ADDRESS]:PORT, unix:PATH or fd:NUMBER; may be given several times
    /// [default: the sockets of systemd, else 127.0.0.1:8470]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Let in who has a token of FILE: lines TOKEN or NAME:TOKEN, of 16 characters and more
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Let everybody in
    #[arg(long, conflicts_with = "token_file")]
    no_auth: bool,
    /// A PEM file of the certificate, for HTTPS
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// A PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    /// A name by which clients may call this server, besides addresses and localhost; `*` for any
    #[arg(long, value_name = "NAME", value_parser = parse_host)]
    host: Vec<String>,
    /// Let scripts of this site read, as https://example.org; `*` for those of all
    #[arg(long, value_name = "ORIGIN", value_parser = parse_origin)]
    cors: Vec<String>,
    /// Where a proxy in front shows the tree, if it keeps that path in requests
    #[arg(long, value_name = "/PATH", default_value = "", hide_default_value = true)]
    #[arg(value_parser = parse_prefix)]
    prefix: String,
    /// Show .tiledbfs/: counters, errors, work; they name paths of this machine
    #[arg(long)]
    status: bool,
    /// Serve the files of arrays and groups as they are stored, at .tiledbfs/stored/, for
    /// `tiledbfs mount URL`
    #[arg(long, conflicts_with = "at")]
    stored: bool,
    /// Append a line for each request to FILE, in the combined format; `-` for stderr
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    access_log: Option<PathBuf>,
    /// The most connections; the one that has been idle for longest is closed for another
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_connections: u32,
    #[command(flatten)]
    shown: ShownArgs,
    #[command(flatten)]
    log_args: logging::LogArgs,
}

/// A name of this server. The port that clients give with it says nothing.
fn parse_host(text: &str) -> Result<String, String> {
    let name = without_port(text).filter(|name| !name.contains('/'));
    let name = name.ok_or("a name is no URL: it is like data.example.org")?;
    Ok(name.to_owned())
}

/// An origin as browsers send it, without the port that its scheme has anyway, or `*`.
fn parse_origin(text: &str) -> Result<String, String> {
    let origin = text.trim_end_matches('/');
    let is_origin = |(scheme, host): &(&str, &str)| {
        !scheme.is_empty() && !host.is_empty() && !host.contains(['/', '?', '#', '@', ' '])
    };
    if origin == "*" {
        return Ok(origin.to_owned());
    }
    let (scheme, host) = origin
        .split_once("://")
        .filter(is_origin)
        .ok_or("an origin has a scheme and a host, as https://example.org")?;
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Ok(format!("{scheme}://{}", host.strip_suffix(port).unwrap_or(host)))
}

/// Parses the path of a prefix, to one without a slash at the end.
fn parse_prefix(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let parts = path.split('/').skip(1);
    let valid = path.is_empty() || path.starts_with('/') && path.bytes().all(plain);
    match valid
        && parts
            .into_iter()
            .all(|part| !part.is_empty() && !part.chars().all(|char| char == '.'))
    {
        true => Ok(path.to_owned()),
        false => Err("give an absolute path of letters, digits and -._~".to_owned()),
    }
}

/// Runs `tiledbfs serve`. Returns once it was stopped by a signal.
pub(super) fn run(args: &ServeArgs) -> Result<(), Failure> {
    logging::start(&args.log_args)?;
    let fail = |error: Error| Failure::new(error.to_string());
    let source = check_source(&args.source)?;
    let threads = args.shown.threads(&source, ANSWER_THREADS);
    let options = args.shown.options()?;
    let listeners = listeners(args).map_err(fail)?;
    check_access(args, &listeners)?;
    let access_log = args.access_log.as_deref().map(|path| {
        let failed = |error| Failure::new(format!("access log {}: {error}", show_path(path)));
        AccessLog::open(path).map_err(failed)
    });
    let access_log = access_log.transpose()?;
    let shown = open_tree(&source, &options)?;
    let stored = || Nodes::new(tree::stored(shown.storage.clone(), shown.stats.clone()));
    let site = Site {
        stored: args.stored.then(stored),
        nodes: Nodes::new(shown.root),
        storage: shown.storage,
        errors: shown.errors,
        stats: shown.stats,
        prefix: args.prefix.clone(),
        status: args.status,
    };
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| fail(Error::io(&errno.into())))?;
    let settings = Settings {
        hosts: Hosts::new(&args.host),
        token_file: args.token_file.clone(),
        no_auth: args.no_auth,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        cors: Cors::new(&args.cors),
        access_log,
        max_connections: most_connections(args.max_connections, files),
    };
    let https = settings.tls.is_some();
    let in_line = match &source {
        Location::Local(_) => available_parallelism().map_or(1, NonZeroUsize::get),
        // Most of them wait for the network.
        Location::Remote(_) => threads,
    };
    let pool = Pool::new(threads, in_line).map_err(fail)?;
    let server = Server::new(site, pool, settings).map_err(fail)?;
    let urls: io::Result<Vec<String>> = listeners
        .iter()
        .map(|listener| listener.url(https, &args.prefix))
        .collect();
    let urls = urls.map_err(|error| fail(Error::io(&error)))?;
    watch_signals(server.clone()).map_err(|error| Failure::new(format!("cannot watch signals: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .max_blocking_threads(HEALTH_THREADS)
        .thread_name("network")
        .enable_all()
        .build()
        .map_err(|error| fail(Error::io(&error)))?;
    let result = runtime.block_on(server.run(listeners, || announce(&urls)));
    // What is left is not waited for.
    runtime.shutdown_background();
    result.map_err(fail)
}

/// How many connections there may be of those that are `asked` for, where the process may have `files` open:
/// they leave half of these to what answers need, or idle ones would keep all others out.
fn most_connections(asked: u32, files: u64) -> usize {
    let most = u64::from(asked).min(files / 2).max(1);
    if most < asked.into() {
        log::warn!("at most {most} connections: the limit of open files (`ulimit -n`) is {files}");
    }
    most as usize
}

/// The sockets to listen at: those that are given, or those of systemd, or the default.
fn listeners(args: &ServeArgs) -> crate::Result<Vec<Listener>> {
    if !args.listen.is_empty() {
        let opened: crate::Result<Vec<_>> = args.listen.iter().map(Listener::open).collect();
        return Ok(opened?.into_iter().flatten().collect());
    }
    let handed = sd_notify::listen_fds().map_err(|error| Error::io(&error))?;
    if handed.len() > 0 {
        return handed.map(Listener::of_descriptor).collect();
    }
    Listener::open(&Address::Tcp(DEFAULT_ADDRESS.to_owned()))
}

/// Fails if others could read whom nobody has let in.
fn check_access(args: &ServeArgs, listeners: &[Listener]) -> Result<(), Failure> {
    let remote = listeners.iter().find(|listener| !listener.is_local());
    let Some(remote) = remote else { return Ok(()) };
    let address = remote
        .address()
        .map_or_else(String::new, |address| address.to_string());
    if args.token_file.is_none() && !args.no_auth {
        return Err(Failure::new(format!(
            "{address} can be reached from other machines: give --token-file FILE, or --no-auth to let everybody in"
        )));
    }
    if args.token_file.is_some() && args.tls_cert.is_none() {
        log::warn!("{address}: tokens can be read on their way, without --tls-cert and --tls-key");
    }
    Ok(())
}

/// Writes the URLs to stdout, and tells systemd.
fn announce(urls: &[String]) {
    let lines: String = urls.iter().map(|url| format!("{url}\n")).collect();
    let mut stdout = io::stdout().lock();
    // Who closed stdout does not want to know.
    let _ = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
    logging::leave_stderr(None);
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        log::warn!("cannot notify the service manager: {error}");
    }
}

/// Starts a thread that stops the server at the first signal that ends it, and the process at the second.
fn watch_signals(server: Arc<Server>) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut ending = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    logging::reopen();
                    server.reload();
                }
                _ if ending => std::process::exit(1),
                _ => {
                    ending = true;
                    let _ = sd_notify::notify(&[NotifyState::Stopping]);
                    server.stop();
                }
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_descriptors() {
        for (asked, files, most) in [
            (1024, 256, 128),
            (1024, 2048, 1024),
            (10, 1 << 20, 10),
            (10, 1, 1),
        ] {
            assert_eq!(most_connections(asked, files), most);
        }
    }

    #[test]
    fn names_of_the_server_have_no_port() {
        for (text, name) in [
            ("*", "*"),
            ("data.example", "data.example"),
            ("data.example:8443", "data.example"),
            ("[::1]:80", "[::1]"),
        ] {
            assert_eq!(parse_host(text), Ok(name.to_owned()));
        }
        for text in ["", ":80", "https://data.example", "data.example/", "a:b"] {
            assert!(parse_host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for (text, origin) in [
            ("*", "*"),
            ("https://a.example", "https://a.example"),
            ("https://a.example:443/", "https://a.example"),
            ("HTTP://a.example:80", "HTTP://a.example"),
            ("http://a.example:443", "http://a.example:443"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("app://local:80", "app://local:80"),
        ] {
            assert_eq!(parse_origin(text), Ok(origin.to_owned()));
        }
        for text in ["", "a.example", "https://", "://a", "https://a/b", "https://u@a"] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_are_plain_absolute_paths() {
        for (text, prefix) in [("", ""), ("/", ""), ("/a", "/a"), ("/a/b-c/", "/a/b-c")] {
            assert_eq!(parse_prefix(text), Ok(prefix.to_owned()));
        }
        for text in ["a", "//a", "/a//b", "/..", "/a/./b", "/a b", "/a?b", "/%41"] {
            assert!(parse_prefix(text).is_err(), "{text}");
        }
    }
}
