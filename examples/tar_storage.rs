//! Reads an array where it lies in a tar file, which is a storage of one's own:
//! `cargo run --example tar_storage -- FILE.tar ARRAY` prints the array's fields and the number of its cells.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::{EntryType, ReadStorage, Source, SourceOptions, TimeRange};

/// A tar file without compression.
struct Tar {
    file: File,
    members: BTreeMap<PathBuf, Member>,
}

enum Member {
    Directory,
    /// The place of the first byte, and the number of bytes.
    File(u64, u64),
}

impl Tar {
    fn open(path: &str) -> io::Result<Tar> {
        let mut archive = tar::Archive::new(File::open(path)?);
        let mut members = BTreeMap::new();
        for entry in archive.entries_with_seek()? {
            let entry = entry?;
            // Without the `./` that many of them begin with.
            let path: PathBuf = entry
                .path()?
                .components()
                .filter(|part| part.as_os_str() != ".")
                .collect();
            // Directories need no members of their own.
            for above in path.ancestors().skip(1) {
                members.insert(above.to_owned(), Member::Directory);
            }
            match entry.header().entry_type().is_dir() {
                true => members.insert(path, Member::Directory),
                false => members.insert(path, Member::File(entry.raw_file_position(), entry.size())),
            };
        }
        let file = archive.into_inner();
        Ok(Tar { file, members })
    }

    fn member(&self, path: &Path) -> tiledbfs::Result<&Member> {
        let found = self.members.get(path);
        found.ok_or_else(|| tiledbfs::Error::not_found("no such member"))
    }
}

impl ReadStorage for Tar {
    fn list(&self, directory: &Path) -> tiledbfs::Result<Vec<(String, EntryType)>> {
        self.member(directory)?;
        let below = self
            .members
            .iter()
            .filter(|(path, _)| path.parent() == Some(directory));
        let named = below.filter_map(|(path, member)| Some((path.file_name()?.to_str()?.to_owned(), member)));
        Ok(named.map(|(name, member)| (name, entry_type(member))).collect())
    }

    fn metadata(&self, path: &Path) -> tiledbfs::Result<(EntryType, u64)> {
        let member = self.member(path)?;
        let bytes = match member {
            Member::Directory => 0,
            Member::File(_, bytes) => *bytes,
        };
        Ok((entry_type(member), bytes))
    }

    fn read(&self, path: &Path, offset: u64, out: &mut [u8]) -> tiledbfs::Result<()> {
        let Member::File(start, bytes) = self.member(path)? else {
            return Err(tiledbfs::Error::not_found("no file"));
        };
        if offset
            .checked_add(out.len() as u64)
            .is_none_or(|end| end > *bytes)
        {
            return Err(tiledbfs::Error::truncated("the member ends before"));
        }
        let read = self.file.read_exact_at(out, start + offset);
        read.map_err(|error| tiledbfs::Error::io(&error))
    }
}

fn entry_type(member: &Member) -> EntryType {
    match member {
        Member::Directory => EntryType::Directory,
        Member::File(..) => EntryType::File,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tar, array] = arguments.as_slice() else {
        return Err("usage: tar_storage FILE.tar ARRAY".into());
    };
    let source = Source::over(Arc::new(Tar::open(tar)?), &SourceOptions::default());
    let view = source.array(array).at(TimeRange::ALL).open()?;
    for field in view.fields() {
        println!(
            "{}: {}",
            String::from_utf8_lossy(&field.name),
            field.datatype.name()
        );
    }
    println!("{} cells", view.count()?);
    Ok(())
}
