//! Arrays as a reader sees them: every column of every view that an input holds, within bounds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiledbfs::Output;
use tiledbfs::internals::engine::Engine;
use tiledbfs::internals::open_array;
use tiledbfs::internals::storage::MemoryStorage;
use tiledbfs::{Content, ErrorKind, TimeRange, View};

/// Arrays of an input that are looked at.
const ARRAYS: usize = 4;

/// Bytes read at the beginning and at the end of each content.
const BYTES: u64 = 16 << 10;

/// Reads columns of the arrays in `storage`, as of now and as of the first fragment's time. An error must not
/// be a bug's, and lengths must hold.
pub fn views(storage: &MemoryStorage) {
    let mut paths = BTreeSet::new();
    for (path, _) in storage.files() {
        let inside = |part: &std::path::Component<'_>| {
            let name = part.as_os_str();
            name == "__schema" || name == "__array_schema.tdb"
        };
        let parts: Vec<_> = path.components().collect();
        if let Some(at) = parts.iter().position(inside) {
            paths.insert(parts[..at].iter().collect::<PathBuf>());
        }
    }
    for path in paths.into_iter().take(ARRAYS) {
        array(storage, &path);
    }
}

fn array(storage: &MemoryStorage, path: &Path) {
    let keys = vec![(PathBuf::new(), super::key())];
    let engine = Engine::new(Arc::new(storage.clone()), 16 << 20, keys, Arc::default());
    let array = open_array(Arc::new(engine), path);
    let Some(now) = checked(array.at(TimeRange::ALL).open()) else {
        return;
    };
    columns(&now);
    let first = now.fragments().first().map(|fragment| fragment.name.timestamps.1);
    let earlier = first.map(|end| array.at(TimeRange::until(end)).open());
    if let Some(earlier) = earlier.and_then(checked) {
        columns(&earlier);
    }
}

/// What a view gave. An error must not be a bug's.
fn checked<T>(result: tiledbfs::Result<T>) -> Option<T> {
    if let Err(error) = &result {
        assert!(error.kind() != ErrorKind::Internal, "{error:?}");
    }
    result.ok()
}

fn columns(view: &View) {
    let count = checked(view.count());
    for (index, field) in view.fields().iter().enumerate() {
        let Some(cells) = checked(view.open(index)) else {
            continue;
        };
        if !view.is_dense() {
            assert_eq!(Some(cells.count()), count);
        }
        let mut contents = vec![Content::Data];
        if field.cell_size().is_none() {
            contents.push(Content::Offsets);
        }
        if field.nullable {
            contents.push(Content::Validity);
        }
        for content in contents {
            let Some(len) = checked(cells.len(content)) else {
                continue;
            };
            for range in [0..len.min(BYTES), len.saturating_sub(BYTES)..len] {
                let length = range.end - range.start;
                if let Some(bytes) = checked(Output::of(|out| cells.read(content, range, out))) {
                    assert_eq!(bytes.len() as u64, length);
                }
            }
        }
    }
}
