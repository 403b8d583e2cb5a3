//! The deletes of an array: finding them, decoding them, and binding them to a fragment.
//!
//! In libtiledb: <https://github.com/TileDB-Inc/TileDB/blob/main/tiledb/sm/query/readers/reader_base.cc>

use super::condition::{BoundCondition, ViewCondition};
use crate::catalog::commits::DeleteFile;
use crate::catalog::listing::ArrayListing;
use crate::catalog::time::TimeRange;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::filter::EncryptionKey;
use crate::format::commits::last_component;
use crate::format::condition::{Condition, UpdateValue};
use crate::format::schema::Schema;
use crate::fragment::field::Role;
use crate::fragment::info::FragmentInfo;
use crate::runtime::{InUse, lock, shared};
use std::collections::HashSet;
use std::sync::{Arc, LazyLock, Mutex};

/// The content of a delete or update file: the condition of the cells that are kept; for an update, the
/// values assigned to the others.
pub type StoredCondition = (Condition, Option<Vec<UpdateValue>>);

/// Parses the unfiltered body of the delete or update file called `name`.
pub fn parse(name: &[u8], body: &[u8]) -> Result<StoredCondition> {
    match name.ends_with(b".upd") {
        true => Condition::parse_update(body).map(|(condition, values)| (condition, Some(values))),
        false => Condition::parse(body).map(|condition| (condition, None)),
    }
}

/// The conditions that views use, by their bytes and the fields that they compare: all views of an array have
/// the same ones, which may be long.
static CONDITIONS: LazyLock<InUse<u64, ViewCondition>> = LazyLock::new(InUse::default);

/// Decodes the condition of a file for an array with the schema `view`. `LimitExceeded` if that takes more
/// memory than the cache allows.
fn read_condition(
    file: &DeleteFile,
    engine: &Engine,
    key: Option<&EncryptionKey>,
    view: &Schema,
) -> Result<Arc<ViewCondition>> {
    let blob = engine
        .storage
        .open(&file.path)
        .map_err(Error::missing_if_not_found)?;
    let (_, body) = engine.generic_tile(&*blob, file.offset, key)?;
    let condition =
        parse(file.name.as_bytes(), &body).and_then(|(condition, _)| ViewCondition::new(&condition, view));
    let condition = condition.map_err(|e| place(e, file, blob.display()))?;
    let number = engine.number(&(&body, condition.fields()));
    Ok(shared(&CONDITIONS, number, || condition))
}

/// A delete, resolved for an array with one schema. An update counts as a delete, as in libtiledb: the cells
/// that it selects are deleted, and the values that it assigns are ignored.
pub struct Delete {
    /// The file of the delete.
    pub file: DeleteFile,
    condition: Arc<ViewCondition>,
    /// Its bindings, each once: there may be many fragments and many deletes, and most fragments have the
    /// same fields.
    bound: Mutex<Vec<Arc<BoundCondition>>>,
    /// The path in messages.
    shown: String,
}

/// Whether any delete applies to a reader of `times`.
pub fn any_in_force(listing: &ArrayListing, times: TimeRange) -> bool {
    let mut files = listing.deletes.iter();
    files.any(|file| times.covers(file.parsed.timestamps))
}

/// The deletes that apply to a reader of `times` in a sparse array with the schema `view`, oldest first.
/// Fails if one cannot be decoded, or cannot be evaluated with that schema: see [`ViewCondition::new`].
pub fn in_force(
    engine: &Engine,
    key: Option<&EncryptionKey>,
    listing: &ArrayListing,
    times: TimeRange,
    view: &Schema,
) -> Result<Vec<Delete>> {
    let files = listing.deletes.iter();
    files
        .filter(|file| times.covers(file.parsed.timestamps))
        .map(|file| {
            let shown = engine.storage.display(&file.path);
            Ok(Delete {
                file: file.clone(),
                condition: read_condition(file, engine, key, view)?,
                bound: Mutex::default(),
                shown,
            })
        })
        .collect()
}

/// The conditions of `deletes` that apply to a fragment: not those from before it was written, nor those that
/// a consolidation has carried out. If the fragment stores timestamps and was partly written after a delete,
/// the condition applies only to the older cells.
pub fn bind(deletes: &[Delete], info: &FragmentInfo) -> Result<Vec<Arc<BoundCondition>>> {
    let (start, end) = info.name.timestamps;
    let has = |role| info.fields.iter().any(|field| field.role == role);
    let processed = match has(Role::DeleteTimestamps) && !deletes.is_empty() {
        true => info.processed_conditions()?.unwrap_or_default(),
        false => Vec::new(),
    };
    let processed: HashSet<&[u8]> = processed.iter().map(|path| last_component(path)).collect();
    let has_timestamps = has(Role::Timestamps);
    deletes
        .iter()
        .filter(|delete| delete.file.stamp() >= start && !processed.contains(delete.file.name.as_bytes()))
        .map(|delete| {
            let stamp = delete.file.stamp();
            let until = (has_timestamps && stamp <= end).then_some(stamp);
            let bound = delete.condition.bind(&info.fields, until).map_err(|e| {
                let fragment = info.path.file_name().unwrap_or_default();
                let error = place(e, &delete.file, &delete.shown);
                error.in_part(format_args!("fragment {}", fragment.display()))
            })?;
            let mut all = lock(&delete.bound);
            let found = all.iter().find(|other| other.is_same(&bound)).cloned();
            Ok(found.unwrap_or_else(|| {
                all.push(Arc::new(bound));
                all[all.len() - 1].clone()
            }))
        })
        .collect()
}

/// Adds the file to an error about a delete's condition.
fn place(error: Error, file: &DeleteFile, shown: &str) -> Error {
    error.in_part("condition").at(file.offset).in_file(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::datatype::Datatype;
    use crate::format::testing::{Bytes, field, schema};
    use crate::fragment::Fragment;
    use crate::fragment::repeated_footers::RepeatedFooters;
    use crate::fragment::schemas::Schemas;
    use crate::storage::MemoryStorage;
    use std::path::{Path, PathBuf};

    /// A condition on a field of type INT32: `field != 7`.
    fn condition(field: &str) -> Bytes {
        Bytes::default().u8(1).u8(5).text32(field).text64("\x07\0\0\0")
    }

    /// A file that is one unfiltered tile.
    fn generic(body: &[u8]) -> Vec<u8> {
        let length = body.len() as u32;
        let chunk = Bytes::default().u64(1).u32(length).u32(length).u32(0).raw(body);
        Bytes::default()
            .u32(22)
            .count64(chunk.bytes.len())
            .count64(body.len())
            .u8(4)
            .u64(1)
            .u8(0)
            .u32(8)
            .pipeline(&[])
            .raw(&chunk.bytes)
            .bytes
    }

    fn name(stamp: u64, extension: &str) -> String {
        format!("__{stamp}_{stamp}_{stamp:032x}_22.{extension}")
    }

    /// Deletes at 5 and 3, and an update at 7. The delete at 3 is in a consolidated commit file, with a copy
    /// of that at 5.
    fn engine() -> Arc<Engine> {
        let mut storage = MemoryStorage::new();
        let file = |field: &str| generic(&condition(field).bytes);
        let update = generic(&condition("a").u64(1).text64("a").text64("\x09\0\0\0").bytes);
        let mut consolidated = Vec::new();
        let embedded = [
            (name(3, "del"), file("a")),
            (name(5, "del"), file("gone")),
            (name(7, "upd"), update),
        ];
        for (name, bytes) in embedded {
            consolidated.extend(format!("__commits/{name}\n").into_bytes());
            consolidated.extend((bytes.len() as u64).to_le_bytes());
            consolidated.extend(bytes);
        }
        storage.insert(
            Path::new("__commits").join(name(5, "del")).as_path(),
            file("gone"),
        );
        storage.insert(
            Path::new("__commits").join(name(1, "con")).as_path(),
            consolidated,
        );
        storage.insert(Path::new("__commits/odd.del"), file("a"));
        Arc::new(Engine::new(
            Arc::new(storage),
            1 << 20,
            Vec::new(),
            Arc::default(),
        ))
    }

    fn listing(engine: &Arc<Engine>) -> ArrayListing {
        let schemas = Arc::new(Schemas::new(engine.clone(), PathBuf::new(), None));
        let make = |path, _: &str, name| {
            let footers = Arc::new(RepeatedFooters::new(engine.clone(), None));
            Arc::new(Fragment::new(
                engine.clone(),
                schemas.clone(),
                footers,
                path,
                name,
                None,
            ))
        };
        ArrayListing::read(engine, Path::new(""), make).unwrap()
    }

    #[test]
    fn each_delete_is_listed_once() {
        let listing = listing(&engine());
        let deletes = listing.deletes.iter();
        let found: Vec<_> = deletes
            .map(|file| (file.stamp(), file.name.clone(), file.offset > 0))
            .collect();
        let expected = [
            (3, name(3, "del"), true),
            (5, name(5, "del"), false),
            (7, name(7, "upd"), true),
        ];
        assert_eq!(found, expected);
        assert_eq!(listing.instants(), [3, 5, 7]);
    }

    #[test]
    fn only_the_deletes_of_a_range_of_time_are_decoded() {
        let engine = engine();
        let listing = listing(&engine);
        let view = schema(
            22,
            true,
            &[field("x", Datatype::Int32)],
            &[field("a", Datatype::Int32)],
        );
        let of = |start, end| {
            let deletes = in_force(&engine, None, &listing, TimeRange { start, end }, &view)?;
            Ok::<_, Error>(
                deletes
                    .iter()
                    .map(|delete| delete.file.stamp())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(0, 2).unwrap(), [0u64; 0]);
        assert_eq!(of(0, 3).unwrap(), [3]);
        assert_eq!(of(6, 9).unwrap(), [7]);
        // The delete at 5 is on a field that the schema lacks.
        let error = of(0, 5).unwrap_err().to_string();
        assert!(error.contains(&name(5, "del")), "{error}");
        assert!(error.contains("condition, field `gone`"), "{error}");
    }
}
