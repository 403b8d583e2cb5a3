//! The one error type of the crate: what went wrong, in which file, in which part of it, at which byte.
//!
//! Code that reads bytes makes an error that says only what was wrong. The layers above add the part of the
//! format ([`Error::in_part`]) and the file ([`Error::in_file`]). It is cheap to clone, because every reader
//! that waited for one failed decode gets the same error.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What kind of thing went wrong. Decides the errno that a file system call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file or directory that should exist does not (ENOENT when it is the path asked for).
    NotFound,
    /// A file that another file refers to does not exist: the array is damaged.
    Missing,
    /// The bytes end before the structure that they hold.
    Truncated,
    /// The bytes contradict the format.
    Corrupt,
    /// The file is not the one any more that was opened.
    Changed,
    /// A checksum filter's digest differs from that of the data.
    ChecksumMismatch,
    /// A format version that this program does not know.
    UnsupportedVersion,
    /// A filter or another feature that this program does not know.
    Unsupported,
    /// A length or count above what the metadata or a fixed limit allows.
    LimitExceeded,
    /// The array is encrypted and no key was given.
    KeyRequired,
    /// The array is encrypted with another key than the one given.
    WrongKey,
    /// The operating system refused; the value is its errno.
    Io(i32),
    /// A caller asked for something that does not make sense, such as listing a file.
    InvalidInput,
    /// Nobody waits for the result any more (EINTR).
    Abandoned,
    /// A bug in this program, caught.
    Internal,
}

/// An error with its place: which file, which part of it, and at which byte.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    /// Part of the format, outermost first, e.g. `footer, `last_tile_cell_num``.
    part: Option<String>,
    /// Byte offset: in the file, or in the unfiltered body of the part when that was stored filtered.
    offset: Option<u64>,
    file: Option<String>,
}

/// The crate's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` whose cause is described by `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            part: None,
            offset: None,
            file: None,
        }))
    }

    /// Bytes that contradict the format.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// A file that was replaced or written to after it was opened.
    pub fn changed() -> Self {
        Self::new(ErrorKind::Changed, "the file has changed since it was opened")
    }

    /// Bytes that end too early.
    pub fn truncated(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Truncated, message)
    }

    /// A length or count beyond what can be true.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LimitExceeded, message)
    }

    /// A feature that is not understood.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Something that is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A bug in this program, caught.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// An operating system error. ENOENT and ENOTDIR become [`ErrorKind::NotFound`].
    pub fn io(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT) | Some(libc::ENOTDIR) => Self::not_found(error.to_string()),
            errno => Self::new(ErrorKind::Io(errno.unwrap_or(libc::EIO)), error.to_string()),
        }
    }

    fn map(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone());
        change(&mut inner);
        Error(Arc::new(inner))
    }

    /// Adds the byte offset, unless a more precise one is known already.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        self.map(|inner| {
            inner.offset.get_or_insert(offset);
        })
    }

    /// Puts `part` in front of the parts that are known already.
    #[must_use]
    pub fn in_part(self, part: impl fmt::Display) -> Self {
        self.map(|inner| {
            inner.part = Some(match inner.part.take() {
                Some(inside) => format!("{part}, {inside}"),
                None => part.to_string(),
            });
        })
    }

    /// Names the file, unless one is named already.
    #[must_use]
    pub fn in_file(self, file: impl fmt::Display) -> Self {
        self.map(|inner| {
            if inner.file.is_none() {
                inner.file = Some(file.to_string());
            }
        })
    }

    /// Makes it another kind, keeping message and place.
    #[must_use]
    pub fn with_kind(self, kind: ErrorKind) -> Self {
        self.map(|inner| inner.kind = kind)
    }

    /// The error of a file that another one names, or a listing: if it is not there, what needs it is
    /// incomplete.
    pub(crate) fn missing_if_not_found(self) -> Self {
        match self.kind() {
            ErrorKind::NotFound => self.with_kind(ErrorKind::Missing).at(0),
            _ => self,
        }
    }

    /// What kind of error this is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed the next time: the system or a store has refused it or failed, the
    /// file was replaced meanwhile, or nobody waited for it any more. All others are of what the files hold.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Io(_) | ErrorKind::Abandoned | ErrorKind::Changed
        )
    }

    /// Whether the same call may succeed the next time, or a file is missing that may turn up.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_transient() || matches!(self.kind(), ErrorKind::NotFound | ErrorKind::Missing)
    }

    /// Whether it tells why there is nothing of a name.
    pub(crate) fn is_of_a_name(&self) -> bool {
        self.kind() == ErrorKind::NotFound && self.file().is_none()
    }

    /// Whether it names a file that is missing. Who takes what does not exist for zeros must not be told that
    /// what needs the file does not exist.
    pub(crate) fn is_of_a_missing_file(&self) -> bool {
        self.kind() == ErrorKind::NotFound && self.file().is_some()
    }

    /// The cause alone, without its place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The file concerned, where one is known.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The part of the format concerned, outermost first, where one is known.
    pub fn part(&self) -> Option<&str> {
        self.0.part.as_deref()
    }

    /// The byte offset, where one is known. See [`fmt::Display`] for what it counts from.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The errno that a file system call which met this error returns: EACCES for a missing or wrong key,
    /// ENOENT for what is not there, EINVAL for what makes no sense to ask, EINTR if nobody waits any more,
    /// the system's own for system errors, EIO for the rest.
    pub fn errno(&self) -> i32 {
        match self.0.kind {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::KeyRequired | ErrorKind::WrongKey => libc::EACCES,
            ErrorKind::Io(errno) => errno,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::Abandoned => libc::EINTR,
            _ => libc::EIO,
        }
    }
}

impl fmt::Display for Error {
    /// `file: part at byte N: cause`, leaving out what is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        if let Some(file) = &inner.file {
            write!(f, "{file}: ")?;
        }
        match (&inner.part, inner.offset) {
            (Some(part), Some(offset)) => write!(f, "{part} at byte {offset}: ")?,
            (Some(part), None) => write!(f, "{part}: ")?,
            (None, Some(offset)) => write!(f, "at byte {offset}: ")?,
            (None, None) => {}
        }
        f.write_str(&inner.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "no message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_from_the_outside_in() {
        let error = Error::truncated("8 bytes wanted, 3 left")
            .at(1234)
            .in_part("`last_tile_cell_num`")
            .in_part("footer")
            .in_file("a/__fragment_metadata.tdb");
        assert_eq!(
            error.to_string(),
            "a/__fragment_metadata.tdb: footer, `last_tile_cell_num` at byte 1234: 8 bytes wanted, 3 left"
        );
        assert_eq!(error.errno(), libc::EIO);
    }

    #[test]
    fn the_innermost_place_wins() {
        let error = Error::corrupt("x").at(1).at(2).in_file("a").in_file("b");
        assert_eq!((error.offset(), error.file()), (Some(1), Some("a")));
    }
}
