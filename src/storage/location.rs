//! Parses the argument SOURCE: a local directory, or a prefix in an object store.
//!
//! A URL with a user, a password or a query is refused, because `ps` and `/proc/mounts` show SOURCE to
//! everybody. Credentials come from the environment or from files.

use crate::error::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A local path, as given.
    Local(PathBuf),
    /// A URL of an object store or web server, without a trailing slash.
    Remote(String),
}

/// URL schemes of object stores.
const SCHEMES: [&str; 11] = [
    "s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "http", "https",
];

impl Location {
    /// Parses an argument; `InvalidInput` if it is wrong. As in TileDB, `file://` paths are taken literally.
    pub fn parse(argument: &OsStr) -> Result<Location> {
        let bytes = argument.as_bytes();
        if let Some(path) = bytes.strip_prefix(b"file://") {
            return Ok(Location::Local(OsStr::from_bytes(path).into()));
        }
        let Some((scheme, rest)) = split_scheme(bytes) else {
            return Ok(Location::Local(argument.into()));
        };
        let refuse = |shown: String, why: &str| {
            Err(Error::new(ErrorKind::InvalidInput, why.to_owned()).in_file(shown))
        };
        if !SCHEMES.contains(&scheme.as_str()) {
            // A directory may have such a name.
            return match Path::new(argument).exists() {
                true => Ok(Location::Local(argument.into())),
                false => refuse(
                    format!("{scheme}://"),
                    "unknown scheme: give a path, or a URL with s3, gs, az, abfss, https or http",
                ),
            };
        }
        let Ok(rest) = std::str::from_utf8(rest) else {
            return refuse(format!("{scheme}://"), "the URL is not UTF-8");
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = authority
            .split_once('?')
            .map_or(authority, |(authority, _)| authority);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        // In Azure's URLs, the part before `@` is the container.
        let is_azure = ["az", "azure", "adl", "abfs", "abfss"].contains(&scheme.as_str());
        let shown = |path: &str| {
            let path = path.split_once('?').map_or(path, |(path, _)| path);
            match user {
                Some(user) if is_azure && !user.contains(':') => format!("{scheme}://{user}@{host}/{path}"),
                _ => format!("{scheme}://{host}/{path}"),
            }
        };
        if user.is_some_and(|user| !is_azure || user.contains(':')) {
            return refuse(
                shown(path),
                "the URL contains a user or a password, which `ps` and /proc/mounts would show: give \
                 credentials by the environment",
            );
        }
        if rest.contains('?') {
            return refuse(
                shown(path),
                "the URL contains a query (presigned, SAS), which `ps` and /proc/mounts would show: give \
                 credentials by the environment",
            );
        }
        // Keys of object stores may have it.
        if scheme.starts_with("http") && rest.contains('#') {
            return refuse(shown(path), "what is behind a # is no part of a path: write %23");
        }
        if host.is_empty() {
            return refuse(format!("{scheme}:///{path}"), "the URL names no bucket");
        }
        let scheme = usual_scheme(&scheme);
        let rest = rest.trim_end_matches('/');
        Ok(Location::Remote(format!("{scheme}://{rest}")))
    }

    /// Whether an argument has the scheme of an object store; the rest may be invalid.
    pub fn is_remote(argument: &OsStr) -> bool {
        split_scheme(argument.as_bytes()).is_some_and(|(scheme, _)| SCHEMES.contains(&scheme.as_str()))
    }
}

/// The one of several schemes for a store that URLs have here. TileDB calls Azure's `azure`, and Google's
/// `gcs` or `gs`.
fn usual_scheme(scheme: &str) -> &str {
    match scheme {
        "s3a" => "s3",
        "gcs" => "gs",
        "azure" | "adl" => "az",
        other => other,
    }
}

/// `url` with the scheme that [`Location::parse`] would give it.
pub fn with_usual_scheme(url: &str) -> Cow<'_, str> {
    match split_scheme(url.as_bytes()) {
        Some((scheme, _)) if usual_scheme(&scheme) != scheme => {
            let rest = url.get(scheme.len()..).unwrap_or_default();
            Cow::Owned(format!("{}{rest}", usual_scheme(&scheme)))
        }
        _ => Cow::Borrowed(url),
    }
}

/// The error for remote URLs in builds without the feature `remote`.
#[cfg(not(feature = "remote"))]
pub fn without_stores() -> Error {
    Error::unsupported("this program was built without support for object stores (feature `remote`)")
}

/// The scheme of a URL, in lower case, and the bytes after `://`.
fn split_scheme(bytes: &[u8]) -> Option<(String, &[u8])> {
    let at = bytes.windows(3).position(|window| window == b"://")?;
    let (scheme, rest) = bytes.split_at_checked(at)?;
    let is_scheme = scheme.first()?.is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    let scheme = String::from_utf8_lossy(scheme).to_ascii_lowercase();
    is_scheme.then_some((scheme, rest.get(3..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn arguments_are_paths_or_urls() {
        for (argument, path) in [
            ("a/b", "a/b"),
            ("/s3:/b", "/s3:/b"),
            ("file:///a%20b", "/a%20b"),
            ("./s3://bucket/a", "./s3://bucket/a"),
            ("s3:bucket", "s3:bucket"),
            ("://", "://"),
        ] {
            assert_eq!(
                parse(argument).unwrap(),
                Location::Local(path.into()),
                "{argument}"
            );
        }
        for (argument, url) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("S3://Bucket/a b/%20#c//", "s3://Bucket/a b/%20#c"),
            ("gcs://b/c", "gs://b/c"),
            ("azure://container/a", "az://container/a"),
            ("s3a://b/c", "s3://b/c"),
            ("az://container/a", "az://container/a"),
            (
                "abfss://c@account.dfs.core.windows.net/a",
                "abfss://c@account.dfs.core.windows.net/a",
            ),
            ("https://example.com:8080/a@b:c", "https://example.com:8080/a@b:c"),
            ("http://[::1]:80/a", "http://[::1]:80/a"),
        ] {
            assert_eq!(
                parse(argument).unwrap(),
                Location::Remote(url.into()),
                "{argument}"
            );
            assert!(Location::is_remote(OsStr::new(argument)));
        }
        let bytes = OsStr::from_bytes(b"/a\xff");
        assert_eq!(Location::parse(bytes).unwrap(), Location::Local(bytes.into()));
    }

    #[test]
    fn secrets_in_a_url_are_refused_and_not_shown() {
        for argument in [
            "s3://key:hidden@bucket/a",
            "s3://hidden@bucket/a",
            "https://hidden:hidden@example.com/a",
            "https://example.com/a?X-Amz-Signature=hidden",
            "https://example.com?sig=hidden/a",
            "az://container:hidden@account/a",
            "abfss://c@account/a?sv=hidden",
            "s3://key:hid@den@bucket/a?hidden",
        ] {
            let error = parse(argument).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let message = error.to_string();
            assert!(!message.contains("hid"), "{argument}: {message}");
            assert!(message.contains("by the environment"), "{argument}: {message}");
        }
        for (argument, part) in [
            ("hdfs://a/b", "unknown scheme"),
            ("s3:///a", "no bucket"),
            ("s3://", "no bucket"),
            ("https://example.com/a#b", "write %23"),
        ] {
            let message = parse(argument).unwrap_err().to_string();
            assert!(message.contains(part), "{argument}: {message}");
        }
        assert!(Location::parse(OsStr::from_bytes(b"s3://b/\xff")).is_err());
    }
}
