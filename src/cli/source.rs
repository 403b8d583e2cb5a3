//! Opens SOURCE: a local directory, or a prefix in an object store.

#[cfg(feature = "remote")]
use super::paths::is_of_experiment;
use super::{Failure, show_path, stale};
use crate::check;
use crate::error::{Error, ErrorKind};
use crate::format::MAX_VERSION;
#[cfg(feature = "remote")]
use crate::runtime::stats::Stats;
use crate::storage::location::Location;
#[cfg(not(feature = "remote"))]
use crate::storage::location::without_stores;
#[cfg(feature = "remote")]
use crate::storage::{
    Storage,
    remote::{
        RemoteSettings, RemoteStorage, Store,
        disk_cache::DiskCache,
        following::FollowingStorage,
        store::{self, StoreOptions},
    },
};
#[cfg(feature = "remote")]
use crate::tree::is_object_in;
use crate::tree::{Tree, TreeOptions};
#[cfg(feature = "remote")]
use clap::{Args, ValueHint};
use glob::Pattern;
#[cfg(feature = "remote")]
use percent_encoding::percent_decode_str;
use std::ffi::{OsStr, OsString};
use std::fs;
#[cfg(feature = "remote")]
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "remote")]
use std::time::Duration;

/// The heading of options for sources in object stores. `next_help_heading` would head what follows, too.
#[cfg(feature = "remote")]
const STORES: &str = "Object stores";

/// Options for sources in object stores. Credentials are never arguments, because `ps` shows arguments.
#[cfg(feature = "remote")]
#[derive(Debug, Clone, Default, Args)]
pub(super) struct RemoteArgs {
    /// Read without credentials, as from a public bucket
    #[arg(long, help_heading = STORES)]
    anonymous: bool,
    /// The AWS profile to take keys, region and endpoint from [default: AWS_PROFILE]
    #[arg(long, help_heading = STORES, value_name = "NAME")]
    profile: Option<String>,
    /// The URL of the store, for stores compatible with S3, GCS or Azure
    #[arg(long, help_heading = STORES, value_name = "URL", value_parser = parse_endpoint)]
    endpoint_url: Option<String>,
    /// The region of an S3 bucket [default: AWS_REGION, the profile's, or the store's answer]
    #[arg(long, help_heading = STORES, value_name = "NAME")]
    region: Option<String>,
    /// Pay for requests to a requester-pays S3 bucket
    #[arg(long, help_heading = STORES)]
    requester_pays: bool,
    /// Request BUCKET.HOST/KEY instead of HOST/BUCKET/KEY
    #[arg(long, help_heading = STORES)]
    virtual_hosted_style: bool,
    /// A PEM file of certificates to trust in addition to those of the system
    #[arg(long, help_heading = STORES, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ca_bundle: Option<PathBuf>,
    /// Time for which a listing is valid; 0 means forever
    #[arg(long, help_heading = STORES, value_name = "SECONDS", default_value_t = 60)]
    refresh: u32,
    /// Also show group members outside of SOURCE, in other prefixes and buckets
    #[arg(long, help_heading = STORES)]
    follow_members: bool,
    /// Cache fetched data in DIR, for this, other and later mounts
    #[arg(long, help_heading = STORES, value_name = "DIR", value_hint = ValueHint::DirPath)]
    disk_cache: Option<PathBuf>,
    /// Limit of the disk cache, with a suffix as for --cache-size
    #[arg(long, help_heading = STORES, value_name = "BYTES", default_value = "10G")]
    #[arg(value_parser = super::options::parse_disk_cache_size)]
    disk_cache_size: u64,
    /// Whether other users may read with the credentials, by `--umask`.
    #[arg(skip)]
    pub(super) shared: bool,
}

/// Parses an endpoint, which must not contain a secret.
#[cfg(feature = "remote")]
fn parse_endpoint(text: &str) -> Result<String, String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    match is_url && !text.contains(['@', '?']) {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("give http://HOST or https://HOST, without a user or a query".to_owned()),
    }
}

/// Options for opening SOURCE.
#[derive(Debug)]
pub(super) struct OpenOptions {
    pub(super) tree: TreeOptions,
    #[cfg(feature = "remote")]
    pub(super) remote: RemoteArgs,
}

impl OpenOptions {
    /// Removes the size limits of exports, which do not apply to sequential reads.
    pub(super) fn without_bounds(mut self) -> Self {
        self.tree = self.tree.without_bounds();
        self
    }
}

/// Parses SOURCE. Returns a local one as a canonical path; fails if it does not exist.
pub(super) fn check_source(source: &OsStr) -> Result<Location, Failure> {
    let path = match Location::parse(source).map_err(|error| Failure::new(error.to_string()))? {
        Location::Local(path) => path,
        remote => return Ok(remote),
    };
    let path = or_here(&path);
    // `canonicalize` succeeds on a dead mount, `metadata` fails.
    let checked = fs::canonicalize(path).and_then(|path| fs::metadata(&path).map(|_| path));
    checked.map(Location::Local).map_err(|error| {
        let name = show_path(path);
        Failure::new(match error.raw_os_error() {
            Some(libc::ENOENT) => format!("{name}: no such file or directory"),
            Some(libc::ENOTCONN) => stale(path),
            _ => format!("{name}: {error}"),
        })
    })
}

/// Warns about options that do nothing for this kind of source.
fn warn_of_idle_options(source: &Location, options: &OpenOptions) {
    match source {
        #[cfg(feature = "remote")]
        Location::Local(path) if options.remote.follow_members => log::warn!(
            "{}: --follow-members does nothing for a SOURCE on this machine: members of groups are shown if \
             they lie in SOURCE",
            show_path(path)
        ),
        Location::Remote(url) if options.tree.follow_symlinks => log::warn!(
            "{url}: --follow-symlinks does nothing for an object store, which has no symbolic links: \
             --follow-members shows members of groups that lie elsewhere"
        ),
        _ => {}
    }
}

/// Opens SOURCE. Warns if there is no array or group in a local one.
pub(super) fn open_tree(source: &Location, options: &OpenOptions) -> Result<Tree, Failure> {
    warn_of_idle_options(source, options);
    match source {
        Location::Local(path) => {
            let tree = guarded(|| Tree::open(path, &options.tree)).map_err(|error| refused(path, &error))?;
            if tree.is_bare() == Some(true) {
                log::warn!(
                    "{}: there is no array or group in it, at any depth",
                    show_path(path)
                );
            }
            Ok(tree)
        }
        Location::Remote(url) => open_remote(url, options),
    }
}

/// Checks a local or remote SOURCE; see [`check::check`].
pub(super) fn check_tree(
    source: &Location,
    open_options: &OpenOptions,
    options: &check::CheckOptions,
    report: check::Report,
    tally: Arc<check::Tally>,
) -> crate::Result<Vec<PathBuf>> {
    warn_of_idle_options(source, open_options);
    match source {
        Location::Local(path) => check::check(path, options, report, tally),
        #[cfg(feature = "remote")]
        Location::Remote(url) => {
            let Listed { storage, stats } = open_options.remote.open(url)?;
            check::check_over(storage, stats, options, report, tally)
        }
        #[cfg(not(feature = "remote"))]
        Location::Remote(_) => {
            let _ = open_options;
            Err(without_stores())
        }
    }
}

/// Turns a panic into an error.
fn guarded<T>(open: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| {
        let message = crate::error::panic_message(&*panic);
        Err(Error::internal(format!("internal error: {message}")))
    })
}

/// The failure for a SOURCE that could not be opened.
fn refused(source: &Path, error: &Error) -> Failure {
    let place = match error.file() {
        // The error names the file itself.
        Some(file) if Path::new(file).starts_with(source) => String::new(),
        _ => format!("{}: ", show_path(source)),
    };
    Failure::new(match error.kind() {
        ErrorKind::NotFound if !Location::is_remote(source.as_os_str()) && !source.exists() => {
            format!("{}: no such file or directory", show_path(source))
        }
        ErrorKind::UnsupportedVersion => {
            format!("{place}{error}; this program reads TileDB format versions 1 to {MAX_VERSION}")
        }
        _ => format!("{place}{error}"),
    })
}

#[cfg(not(feature = "remote"))]
fn open_remote(url: &str, _: &OpenOptions) -> Result<Tree, Failure> {
    Err(refused(Path::new(url), &without_stores()))
}

/// Without stores, always fails.
#[cfg(not(feature = "remote"))]
pub(super) fn open_within(
    url: &str,
    options: &OpenOptions,
) -> Result<(Tree, String, Vec<OsString>), Failure> {
    open_remote(url, options).map(|tree| (tree, url.to_owned(), Vec::new()))
}

/// Opens the source at `url`.
#[cfg(feature = "remote")]
fn open_remote(url: &str, options: &OpenOptions) -> Result<Tree, Failure> {
    let opened = guarded(|| options.remote.open(url)?.tree(options));
    opened.map_err(|error| refused(Path::new(url), &error))
}

/// Opens the longest prefix of `url` below which there are keys. Returns its tree, the prefix, and the rest
/// as names in the tree. Fails if the prefix is neither array nor group, unless the rest is empty or begins
/// with a pattern.
#[cfg(feature = "remote")]
pub(super) fn open_within(
    url: &str,
    options: &OpenOptions,
) -> Result<(Tree, String, Vec<OsString>), Failure> {
    warn_of_idle_options(&Location::Remote(url.to_owned()), options);
    let (mut part, mut names) = (url.to_owned(), Vec::new());
    let opened = guarded(|| {
        // Components that are patterns belong to the tree.
        while is_pattern(last_of(&part)) && shorten(&mut part, &mut names) {}
        let mut store = options.remote.remote(&part)?;
        loop {
            match store.list() {
                Ok(opened) => {
                    let first: Option<&OsString> = names.last();
                    let fits = first.is_none_or(|name| is_pattern(&name.to_string_lossy()));
                    if !fits && !is_object_in(opened.storage.clone()) {
                        break;
                    }
                    let mut opened = opened;
                    if first.is_some_and(is_of_experiment) {
                        for _ in 0..2 {
                            if shorten(&mut part, &mut names) {
                                store.move_to(&part)?;
                            }
                        }
                        opened = store.list()?;
                    }
                    names.reverse();
                    return opened.tree(options);
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Err(_) => {}
            }
            if !shorten(&mut part, &mut names) {
                break;
            }
            store.move_to(&part)?;
        }
        Err(Error::not_found("not found: no object is below this URL"))
    });
    let tree = opened.map_err(|error| refused(Path::new(url), &error))?;
    Ok((tree, part, names))
}

#[cfg(feature = "remote")]
fn last_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// Moves the last component of a URL to `names`, as it is in the tree. Returns false if only the bucket is
/// left.
#[cfg(feature = "remote")]
fn shorten(part: &mut String, names: &mut Vec<OsString>) -> bool {
    let start = part.find("://").map_or(0, |at| at + 3);
    let Some((rest, last)) = part.get(start..).and_then(|rest| rest.rsplit_once('/')) else {
        return false;
    };
    // As in SOURCE, the URLs of web servers alone are percent-encoded.
    names.push(match part.starts_with("http") {
        true => OsString::from_vec(percent_decode_str(last).collect()),
        false => last.into(),
    });
    let length = start + rest.len();
    part.truncate(length);
    true
}

/// A prefix of a store, not listed yet.
#[cfg(feature = "remote")]
struct Remote {
    store: Store,
    settings: RemoteSettings,
    args: RemoteArgs,
}

/// A prefix below which there are objects.
#[cfg(feature = "remote")]
struct Listed {
    storage: Arc<dyn Storage>,
    stats: Arc<Stats>,
}

#[cfg(feature = "remote")]
impl RemoteArgs {
    /// The prefix at `url`.
    fn remote(&self, url: &str) -> crate::Result<Remote> {
        let disk_cache = self.disk_cache.as_ref().and_then(|directory| {
            DiskCache::open(directory, self.disk_cache_size)
                .inspect_err(|error| {
                    log::warn!(
                        "{}: the disk cache cannot be used, so nothing is kept in it: {error}",
                        show_path(directory)
                    );
                })
                .ok()
        });
        let settings = RemoteSettings {
            refresh: (self.refresh > 0).then(|| Duration::from_secs(self.refresh.into())),
            disk_cache: disk_cache.map(Arc::new),
            stats: Arc::default(),
            memory: Arc::default(),
        };
        Ok(Remote {
            store: self.store(url, &settings)?,
            settings,
            args: self.clone(),
        })
    }

    /// The store of `url`.
    fn store(&self, url: &str, settings: &RemoteSettings) -> crate::Result<Store> {
        let options = StoreOptions {
            anonymous: self.anonymous,
            profile: self.profile.clone(),
            endpoint_url: self.endpoint_url.clone(),
            region: self.region.clone(),
            requester_pays: self.requester_pays,
            virtual_hosted_style: self.virtual_hosted_style,
            ca_bundle: self.ca_bundle.clone(),
        };
        let mut store = store::open(url, &options, settings.stats.clone())?;
        store.unsigned |= self.shared;
        Ok(store)
    }

    fn open(&self, url: &str) -> crate::Result<Listed> {
        self.remote(url)?.list()
    }
}

#[cfg(feature = "remote")]
impl Remote {
    fn list(&self) -> crate::Result<Listed> {
        let mut storage = RemoteStorage::open(self.store.clone(), self.settings.clone())?;
        if self.args.follow_members {
            let (args, settings) = (self.args.clone(), self.settings.clone());
            let open = move |url: &str| RemoteStorage::open(args.store(url, &settings)?, settings.clone());
            storage = Arc::new(FollowingStorage::new(storage, Arc::new(open)));
        }
        Ok(Listed {
            storage,
            stats: self.settings.stats.clone(),
        })
    }

    /// Makes it the prefix at `url`, of the same store.
    fn move_to(&mut self, url: &str) -> crate::Result<()> {
        self.store = self.store.at(url)?;
        Ok(())
    }
}

#[cfg(feature = "remote")]
impl Listed {
    fn tree(self, options: &OpenOptions) -> crate::Result<Tree> {
        Tree::over(self.storage, &options.tree, self.stats)
    }
}

#[cfg(all(test, feature = "remote"))]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shortened_down_to_the_bucket() {
        let (mut part, mut names) = ("s3://b/a/x y/z".to_owned(), Vec::new());
        let mut parts = Vec::new();
        while shorten(&mut part, &mut names) {
            parts.push(part.clone());
        }
        assert_eq!(parts, ["s3://b/a/x y", "s3://b/a", "s3://b"]);
        assert_eq!(names, ["z", "x y", "a"]);
    }

    #[test]
    fn names_behind_the_url_of_a_web_server_are_decoded_as_it_is() {
        for (url, name) in [
            ("https://h/a/x%20%C3%A9", "x \u{e9}"),
            ("http://h/a/2024-01-01%2000:00", "2024-01-01 00:00"),
            ("s3://b/a/x%20y", "x%20y"),
        ] {
            let (mut part, mut names) = (url.to_owned(), Vec::new());
            assert!(shorten(&mut part, &mut names));
            assert_eq!(names, [name], "{url}");
        }
    }

    #[test]
    fn endpoints_with_secrets_are_refused() {
        assert_eq!(parse_endpoint("http://h:1/").unwrap(), "http://h:1");
        for text in ["h:1", "ftp://h", "https://k:s@h", "https://h?k=s"] {
            assert!(parse_endpoint(text).is_err(), "{text}");
        }
    }
}

/// A path, or `.` if it is empty.
pub fn or_here(path: &Path) -> &Path {
    match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    }
}

/// Whether a name is a pattern.
#[cfg(feature = "remote")]
fn is_pattern(name: &str) -> bool {
    pattern(OsStr::new(name)).is_some()
}

/// Parses a name as a pattern; None without `*`, `?` or `[`, or if it is malformed.
pub fn pattern(name: &OsStr) -> Option<Pattern> {
    let text = name.to_str().filter(|text| text.contains(['*', '?', '[']))?;
    Pattern::new(text).ok()
}
