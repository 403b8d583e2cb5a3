//! The findings of a check.

use crate::error::{Error, ErrorKind};
use crate::printable::escape;
use std::fmt;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Unusual, but no reader fails or gives wrong data because of it.
    Note,
    /// Could not be checked, for lack of a key or of permission.
    Unchecked,
    /// Wrong.
    Problem,
}

impl Level {
    /// The level as the output shows it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Note => "note",
            Level::Unchecked => "unchecked",
            Level::Problem => "problem",
        }
    }
}

/// What is wrong, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something could not be read or decoded.
    Error(ErrorKind),
    /// A file is not as long as the metadata says, or tiles do not fill it.
    Size,
    /// A validity byte is neither 0 nor 1.
    Validity,
    /// The R-tree does not fit the coordinates, or a node its children.
    RTree,
    /// The non-empty domain is not the union of the tiles' bounding boxes.
    NonEmptyDomain,
    /// Cells are not in global order.
    Order,
    /// A minimum, maximum, sum or null count is not that of the values.
    Statistics,
    /// A cell's timestamp or index of a delete condition is out of range.
    Timestamps,
    /// An index is outside of its enumeration, or an enumeration has another name than the schema says.
    Enumeration,
    /// A schema is missing, or an enumeration or label that a schema refers to; or a fragment has an
    /// attribute with another type than the schema in force, so that it cannot be read.
    Schema,
    /// A commit, ignore, vacuum or delete file does not agree with the fragments or the schema.
    Commit,
    /// Consolidated fragment metadata differs from the fragment's own.
    ConsolidatedMetadata,
    /// A member of a group is missing, or is not what the group says.
    Group,
    /// A file has a malformed name, or belongs to nothing.
    Name,
}

impl Kind {
    /// The kind as the output shows it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Error(kind) => match kind {
                ErrorKind::NotFound | ErrorKind::Missing => "missing",
                ErrorKind::Truncated => "truncated",
                ErrorKind::Corrupt => "corrupt",
                ErrorKind::Changed => "changed",
                ErrorKind::ChecksumMismatch => "checksum",
                ErrorKind::UnsupportedVersion => "unsupported_version",
                ErrorKind::Unsupported => "unsupported",
                ErrorKind::LimitExceeded => "limit",
                ErrorKind::KeyRequired => "key_required",
                ErrorKind::WrongKey => "wrong_key",
                ErrorKind::Io(_) => "io",
                ErrorKind::InvalidInput => "invalid",
                ErrorKind::Abandoned => "abandoned",
                ErrorKind::Internal => "internal",
            },
            Kind::Size => "size",
            Kind::Validity => "validity",
            Kind::RTree => "rtree",
            Kind::NonEmptyDomain => "non_empty_domain",
            Kind::Order => "order",
            Kind::Statistics => "statistics",
            Kind::Timestamps => "timestamps",
            Kind::Enumeration => "enumeration",
            Kind::Schema => "schema",
            Kind::Commit => "commit",
            Kind::ConsolidatedMetadata => "consolidated_metadata",
            Kind::Group => "group",
            Kind::Name => "name",
        }
    }
}

/// One finding, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How serious it is.
    pub level: Level,
    /// What is wrong, in one word.
    pub kind: Kind,
    /// The file or directory, relative to the source; the source's own path for the source itself.
    pub path: String,
    /// The part of the format, outermost first, e.g. ``field `a`, tile 3``.
    pub part: Option<String>,
    /// Byte offset in the file; in the unfiltered bytes of `part` if the part is stored filtered.
    pub offset: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    /// A finding of level [`Level::Problem`] in the file at `path`.
    pub fn new(kind: Kind, path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem {
            level: Level::Problem,
            kind,
            path: path.into(),
            part: None,
            offset: None,
            message: message.into(),
        }
    }

    /// A finding that something could not be read or decoded. `path` is used if the error names no file. A
    /// missing key and a lack of permission say nothing about the data: they are [`Level::Unchecked`].
    pub fn from_error(error: &Error, path: impl Into<String>) -> Problem {
        let level = match error.kind() {
            ErrorKind::KeyRequired | ErrorKind::Io(libc::EACCES | libc::EPERM) => Level::Unchecked,
            _ => Level::Problem,
        };
        Problem {
            level,
            kind: Kind::Error(error.kind()),
            path: error.file().map_or_else(|| path.into(), str::to_owned),
            part: error.part().map(str::to_owned),
            offset: error.offset(),
            message: error.message().to_owned(),
        }
    }

    /// Sets the level to [`Level::Note`].
    #[must_use]
    pub fn noted(self) -> Problem {
        Problem {
            level: Level::Note,
            ..self
        }
    }

    /// Adds `part` of the format in front of the part that is set, as the outer one.
    #[must_use]
    pub fn in_part(mut self, part: impl fmt::Display) -> Problem {
        self.part = Some(match self.part {
            Some(inside) => format!("{part}, {inside}"),
            None => part.to_string(),
        });
        self
    }

    /// Sets the byte offset.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Problem {
        self.offset = Some(offset);
        self
    }
}

impl fmt::Display for Problem {
    /// Writes `path: part at byte N: message` without what is not known. Control characters are escaped, so
    /// that it is one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", escape(&self.path))?;
        match (&self.part, self.offset) {
            (Some(part), Some(offset)) => write!(f, "{} at byte {offset}: ", escape(part))?,
            (Some(part), None) => write!(f, "{}: ", escape(part))?,
            (None, Some(offset)) => write!(f, "at byte {offset}: ")?,
            (None, None) => {}
        }
        f.write_str(&escape(&self.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line() {
        let problem = Problem::new(Kind::Size, "a\nb", "too\tlong")
            .in_part("tile 3")
            .in_part("field `é`")
            .at(7);
        assert_eq!(
            problem.to_string(),
            "a\\nb: field `é`, tile 3 at byte 7: too\\tlong"
        );
        assert_eq!(problem.noted().level, Level::Note);
    }

    #[test]
    fn errors_keep_their_place_and_a_missing_key_is_no_damage() {
        let error = Error::corrupt("x").in_part("footer").at(4).in_file("f");
        let problem = Problem::from_error(&error, "elsewhere");
        assert_eq!(problem.to_string(), "f: footer at byte 4: x");
        assert_eq!((problem.level, problem.kind.name()), (Level::Problem, "corrupt"));
        let error = Error::new(ErrorKind::KeyRequired, "k");
        let problem = Problem::from_error(&error, "here");
        assert_eq!((problem.level, problem.path.as_str()), (Level::Unchecked, "here"));
    }
}
