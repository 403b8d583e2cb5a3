//! Groups: what lies in a source.

use super::metadata::ObjectMetadata;
use crate::catalog::group::{OpenGroup, group_metadata, unregistered_member};
use crate::catalog::source::{ObjectKind, Source, classify};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::EntryType;
use std::path::{Path, PathBuf};

impl Source {
    /// Whether the directory at `path`, relative to the source, is an array, a group or neither.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no directory; fails if the storage does.
    pub fn kind(&self, path: impl AsRef<Path>) -> Result<ObjectKind> {
        let path = path.as_ref();
        let kind = classify(&self.0, path)?;
        let storage = &self.0.storage;
        if kind == ObjectKind::Directory && storage.metadata(path)?.entry_type != EntryType::Directory {
            return Err(Error::not_found("not a directory").in_file(storage.display(path)));
        }
        Ok(kind)
    }

    /// The group at `path`, relative to the source; empty for the source itself. Reads nothing: if there is
    /// no group, listing its members fails or finds none.
    ///
    /// ```
    /// use tiledbfs::{ObjectKind, Source, SourceOptions};
    ///
    /// let source = Source::open("tests/data/sample", &SourceOptions::default())?;
    /// let members = source.group("").members()?;
    /// let weather = members.iter().find(|member| member.name == b"weather");
    /// assert_eq!(weather.map(|member| member.kind), Some(ObjectKind::Array));
    /// # Ok::<(), tiledbfs::Error>(())
    /// ```
    pub fn group(&self, path: impl Into<PathBuf>) -> Group {
        Group(OpenGroup::new(self.0.clone(), path.into()))
    }
}

/// A group of arrays and other groups. Made by [`Source::group`].
pub struct Group(OpenGroup);

/// A member of a [`Group`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its name in the group, or the last component of its location.
    pub name: Vec<u8>,
    /// Where it is, relative to the source: for [`Source::array`] and [`Source::group`].
    pub path: PathBuf,
    /// An array or a group; a directory, if there is neither where a member is registered.
    pub kind: ObjectKind,
}

impl Member {
    /// Its name, if that is UTF-8.
    pub fn name_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.name).ok()
    }
}

impl Group {
    /// The members, in the order of the group. Members outside of the source are left out, and those
    /// that are not there. A group in which nothing was ever registered, as before TileDB 2.8, has all arrays
    /// and groups in its directory.
    ///
    /// # Errors
    ///
    /// If the group's details or the directories of members cannot be read.
    pub fn members(&self) -> Result<Vec<Member>> {
        let members = self.0.members()?;
        let mut found = Vec::new();
        for place in &members.places {
            let kind = match place.registered {
                true => classify(self.0.engine(), &place.at).map(Some),
                false => unregistered_member(self.0.engine(), &place.at, members.unregistered),
            };
            match kind {
                Ok(Some(kind)) => found.push(Member {
                    name: place.name.clone(),
                    path: place.at.clone(),
                    kind,
                }),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The group's metadata.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if it takes more memory than the cache allows; fails if a file of it cannot be read.
    pub fn metadata(&self) -> Result<ObjectMetadata> {
        let (engine, path) = (self.0.engine(), self.0.path());
        let files = group_metadata(engine, path)?;
        ObjectMetadata::read(engine, files.iter().map(PathBuf::as_path), engine.key_for(path))
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::Datatype;
    use crate::{ErrorKind, ObjectKind, Source, SourceOptions, TimeRange};

    #[test]
    fn members_and_metadata_are_those_of_the_group() {
        let source = Source::open("tests/data/sample", &SourceOptions::default()).unwrap();
        let group = source.group("");
        let members = group.members().unwrap();
        let names = members.iter().map(|member| (member.name_str(), member.kind));
        let expected = ["lightning", "weather"].map(|name| (Some(name), ObjectKind::Array));
        assert_eq!(Vec::from_iter(names), expected);
        let source_of_group = group.metadata().unwrap();
        let text = source_of_group.get("source").and_then(|value| value.text());
        assert_eq!(text.as_deref(), Some("tests/data/write_sample.py"));
        assert_eq!(source.kind("").unwrap(), ObjectKind::Group);
        assert_eq!(source.kind(&members[1].path).unwrap(), ObjectKind::Array);
        assert_eq!(source.kind("weather/__meta").unwrap(), ObjectKind::Directory);
        for none in ["none", "__tiledb_group.tdb", "weather/none"] {
            assert_eq!(
                source.kind(none).unwrap_err().kind(),
                ErrorKind::NotFound,
                "{none}"
            );
        }
        let array = source.array(&members[1].path);
        let metadata = array.at(TimeRange::ALL).open().unwrap().metadata().unwrap();
        let heights = metadata.get("station_heights").unwrap();
        assert_eq!(heights.datatype, Datatype::Float32);
        assert_eq!(
            heights.numbers::<f32>().unwrap(),
            [12., 105., 230., 341., 560., 1020.]
        );
        assert_eq!(heights.numbers::<f64>(), None);
        assert_eq!(metadata.iter().count(), 2);
        let before = array.at(TimeRange::until(1_700_000_000_000 + 30_000_000_000));
        let before = before.open().unwrap().metadata().unwrap();
        assert_eq!(before.iter().count(), 0);
    }
}
