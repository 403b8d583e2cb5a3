//! Who may ask: names of this server, tokens.

use crate::error::{Error, ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The fewest bytes of a token.
const SHORTEST_TOKEN: usize = 16;

/// The names that the header Host may have without tokens, so that no page of another site reads through a
/// name that it made lead here (DNS rebinding).
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// Names besides addresses and `localhost`, in lower case.
    pub names: Vec<String>,
    /// Whether any name will do.
    pub any: bool,
}

impl Hosts {
    /// Those of `--host`.
    pub fn new(names: &[String]) -> Hosts {
        Hosts {
            any: names.iter().any(|name| name == "*"),
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
        }
    }

    /// Whether `host`, a name or address with or without a port, is one of this server's.
    pub fn allows(&self, host: &str) -> bool {
        if self.any {
            return true;
        }
        let Some(name) = without_port(host) else {
            return false;
        };
        let is_address = name.parse::<IpAddr>().is_ok()
            || name
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'))
                .is_some_and(|name| name.parse::<Ipv6Addr>().is_ok());
        let name = name.to_ascii_lowercase();
        is_address || name == "localhost" || self.names.contains(&name)
    }
}

/// The name or address of a Host; None if it is neither.
pub fn without_port(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let digits = match port {
        "" => "",
        port => port.strip_prefix(':')?,
    };
    (!name.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// The tokens that let in. Only their hashes are kept.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<Token>);

#[derive(Debug, Clone)]
struct Token {
    name: Option<String>,
    hash: [u8; 32],
}

impl Tokens {
    /// Reads the lines `TOKEN` or `NAME:TOKEN` of a file that only its owner and group may read.
    /// Empty lines and those that begin with `#` are skipped. Errors never show a token.
    pub fn read(path: &Path) -> Result<Tokens> {
        let place = |error: Error| error.in_file(path.display());
        let metadata = std::fs::metadata(path).map_err(|error| place(Error::io(&error)))?;
        if metadata.mode() & 0o007 != 0 {
            let message = "others may read or write it: `chmod o= FILE`";
            return Err(place(Error::new(ErrorKind::InvalidInput, message)));
        }
        let text = std::fs::read_to_string(path).map_err(|error| place(Error::io(&error)))?;
        Tokens::parse(&text).map_err(place)
    }

    fn parse(text: &str) -> Result<Tokens> {
        let invalid = |line: usize, cause: &str| {
            Error::new(ErrorKind::InvalidInput, format!("line {}: {cause}", line + 1))
        };
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, token) = match line.split_once(':') {
                Some((name, token)) => (Some(name.to_owned()), token),
                None => (None, line),
            };
            if token.len() < SHORTEST_TOKEN {
                return Err(invalid(number, "the token has fewer than 16 characters"));
            }
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(invalid(
                    number,
                    "the token has characters besides letters, digits and signs of ASCII",
                ));
            }
            tokens.push(Token {
                name,
                hash: hash(token.as_bytes()),
            });
        }
        match tokens.is_empty() {
            true => Err(Error::new(ErrorKind::InvalidInput, "there is no token in it")),
            false => Ok(Tokens(tokens)),
        }
    }

    /// The name of the user that the header Authorization proves, `-` for one without a name; None for a
    /// wrong one.
    pub fn user(&self, authorization: &str) -> Option<String> {
        let (scheme, credentials) = authorization.split_once(' ')?;
        let credentials = credentials.trim();
        let (user, token) = if scheme.eq_ignore_ascii_case("bearer") {
            (None, credentials.as_bytes().to_vec())
        } else if scheme.eq_ignore_ascii_case("basic") {
            let decoded = STANDARD.decode(credentials).ok()?;
            let colon = decoded.iter().position(|byte| *byte == b':')?;
            let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
            (Some(user), decoded[colon + 1..].to_vec())
        } else {
            return None;
        };
        let given = hash(&token);
        let mut found = None;
        // All of them, so that the time tells nothing.
        for token in &self.0 {
            let named = match (&user, &token.name) {
                (Some(user), Some(name)) => user == name,
                _ => true,
            };
            if is_same(&given, &token.hash) & named {
                found = Some(token.name.clone().unwrap_or_else(|| "-".to_owned()));
            }
        }
        found
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Compares in a time that does not depend on where they differ.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differing = one
        .iter()
        .zip(other)
        .fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_given_names_are_hosts() {
        let hosts = Hosts::new(&["Data.example".to_owned()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "192.168.0.7:8470",
            "[::1]",
            "[::1]:8470",
            "localhost",
            "LOCALHOST:1",
            "data.example",
            "DATA.EXAMPLE:443",
            "localhost:",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil@localhost",
            "::1",
            "[::1",
            "[localhost]",
            "localhost:80x",
            "localhost:80:80",
            "localhost ",
            "a,localhost",
            "[::1]x",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
        assert!(Hosts::new(&["*".to_owned()]).allows("evil.example"));
    }

    #[test]
    fn tokens_let_in_by_bearer_and_basic() {
        let tokens = Tokens::parse("# us\nabcdefghijklmnop\n\nann:qrstuvwxyz0123456:x\n").unwrap();
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (header, user) in [
            ("Bearer abcdefghijklmnop".to_owned(), Some("-")),
            ("bearer qrstuvwxyz0123456:x".to_owned(), Some("ann")),
            (basic("ann:qrstuvwxyz0123456:x"), Some("ann")),
            (basic("anybody:abcdefghijklmnop"), Some("-")),
            (basic(":abcdefghijklmnop"), Some("-")),
            (basic("bob:qrstuvwxyz0123456:x"), None),
            (basic("abcdefghijklmnop"), None),
            ("Bearer abcdefghijklmno".to_owned(), None),
            ("Bearer abcdefghijklmnopq".to_owned(), None),
            ("Bearer".to_owned(), None),
            ("Digest abcdefghijklmnop".to_owned(), None),
            ("Basic !!!".to_owned(), None),
        ] {
            assert_eq!(tokens.user(&header).as_deref(), user, "{header}");
        }
    }

    #[test]
    fn files_of_bad_tokens_are_refused_without_showing_them() {
        for text in [
            "",
            "# x\n",
            "short",
            "ann:short",
            "abcdefghijklmnop\nann:has spaces in it all over",
        ] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(!error.contains("short") && !error.contains("spaces"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "abcdefghijklmnop\n").unwrap();
        for (mode, good) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Tokens::read(&path).is_ok(), good, "{mode:o}");
        }
    }
}
