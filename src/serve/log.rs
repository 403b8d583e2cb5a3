//! The log of requests, in the combined format of web servers.

use crate::runtime::lock;
use hyper::header::{REFERER, USER_AGENT};
use hyper::http::request::Parts;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

/// Where the log goes.
pub struct AccessLog {
    /// None for stderr.
    path: Option<PathBuf>,
    out: Mutex<Box<dyn Write + Send>>,
}

impl AccessLog {
    /// Opens the log at `path` for appending; `-` is stderr.
    pub fn open(path: &Path) -> io::Result<AccessLog> {
        let path = match path.as_os_str() == "-" {
            true => None,
            false => Some(std::path::absolute(path)?),
        };
        let out = Mutex::new(open(path.as_deref())?);
        Ok(AccessLog { path, out })
    }

    /// Opens the file anew. If that fails, the open one stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        let opened = open(self.path.as_deref())?;
        *lock(&self.out) = opened;
        Ok(())
    }

    /// Writes a line. One that cannot be written is lost, because there is nobody to tell.
    pub fn write(&self, line: &str) {
        let _ = lock(&self.out).write_all(line.as_bytes());
    }
}

fn open(path: Option<&Path>) -> io::Result<Box<dyn Write + Send>> {
    Ok(match path {
        Some(path) => Box::new(File::options().append(true).create(true).open(path)?),
        None => Box::new(io::stderr()),
    })
}

/// What the line of a request says before it is answered.
pub struct Line {
    client: String,
    user: String,
    time: SystemTime,
    request: String,
    referer: String,
    agent: String,
}

impl Line {
    /// The line of a request from `client`. It has no query and no credentials.
    pub fn new(client: &str, parts: &Parts) -> Line {
        let header = |name| {
            parts
                .headers
                .get(name)
                .map_or(&b"-"[..], |value| value.as_bytes())
        };
        let referer = header(REFERER).split(|byte| matches!(byte, b'?' | b'#')).next();
        let referer = without_user(referer.unwrap_or_default());
        let authority = parts.uri.authority().map(|authority| {
            let scheme = parts.uri.scheme_str().unwrap_or_default();
            format!("{scheme}://{authority}").into_bytes()
        });
        let authority = authority.map(|authority| without_user(&authority));
        let authority = authority.map(|authority| String::from_utf8_lossy(&authority).into_owned());
        let target = authority.unwrap_or_default() + parts.uri.path();
        let request = format!("{} {target} {:?}", parts.method, parts.version);
        Line {
            request: escape(request.as_bytes()),
            referer: escape(&referer),
            agent: escape(header(USER_AGENT)),
            ..Line::unread(client)
        }
    }

    /// The line of what `client` has sent that is no request.
    pub fn unread(client: &str) -> Line {
        let nothing = || "-".to_owned();
        Line {
            client: client.to_owned(),
            user: nothing(),
            time: SystemTime::now(),
            request: nothing(),
            referer: nothing(),
            agent: nothing(),
        }
    }

    /// Sets the name of the user.
    pub fn set_user(&mut self, user: &str) {
        let name = escape(user.as_bytes()).replace(' ', "\\x20");
        self.user = if name.is_empty() { "-".to_owned() } else { name };
    }

    /// The line, with the status and the bytes that were sent after the head.
    pub fn end(&self, status: u16, sent: u64) -> String {
        // `Tue, 04 Feb 2025 00:00:00 GMT`, which always has these places.
        let date = httpdate::fmt_http_date(self.time);
        let (day, month, year, clock) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        format!(
            "{} - {} [{day}/{month}/{year}:{clock} +0000] \"{}\" {status} {sent} \"{}\" \"{}\"\n",
            self.client, self.user, self.request, self.referer, self.agent
        )
    }
}

/// A URL without the user and the password before its host.
fn without_user(url: &[u8]) -> Vec<u8> {
    let Some(start) = url.windows(2).position(|two| two == b"//").map(|at| at + 2) else {
        return url.to_vec();
    };
    let (scheme, rest) = url.split_at(start);
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let host = rest[..end]
        .iter()
        .rposition(|byte| *byte == b'@')
        .map_or(0, |at| at + 1);
    [scheme, &rest[host..]].concat()
}

/// Text with `\xHH` in place of quotes, backslashes, and all that is not printable ASCII.
fn escape(text: &[u8]) -> String {
    let mut out = String::new();
    for byte in text {
        match byte {
            b'"' | b'\\' => _ = write!(out, "\\x{byte:02X}"),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => _ = write!(out, "\\x{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_neither_queries_nor_bytes_that_end_it() {
        let request = hyper::Request::builder()
            .uri("http://ann:secret@h/a%22b?token=secret")
            .header("referer", "http://h/x?secret")
            .header("user-agent", &b"a\"b\\c\td\xffe"[..])
            .body(())
            .unwrap();
        let mut line = Line::new("127.0.0.1", &request.into_parts().0);
        line.set_user("a b\n");
        line.time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_738_627_201);
        assert_eq!(
            line.end(206, 7),
            "127.0.0.1 - a\\x20b\\x0A [04/Feb/2025:00:00:01 +0000] \"GET http://h/a%22b HTTP/1.1\" 206 7 \
             \"http://h/x\" \"a\\x22b\\x5Cc\\x09d\\xFFe\"\n"
        );
    }
}
