//! Every export of the test arrays has the length that it says, and any range read alone is that part of the
//! whole.

use super::*;
use crate::bytes::Output;
use crate::catalog::Array;
use crate::error::ErrorKind;
use crate::format::datatype::Datatype;
use crate::format::testing::{Bytes, Random};
use crate::query::testing::{Files, Parts, UUID, generic, open, open_local, tile};
use crate::runtime::tuning::Tuning;
use crate::storage::MemoryStorage;
use crate::tree::{Tree, TreeOptions};
use std::fs;
use std::path::{Path, PathBuf};

/// The test arrays, nested ones too, in a fixed order.
pub(super) fn arrays() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")];
    while let Some(directory) = waiting.pop() {
        let is = |name: &str| directory.join(name).exists();
        if is("__schema") || is("__array_schema.tdb") {
            found.push(directory.clone());
        }
        let entries = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
        waiting.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

/// A dense array of one tile. Its dimensions are of UINT64 and begin at 0.
pub(super) struct OneTile<'a> {
    /// Names and lengths.
    pub(super) dimensions: &'a [(&'a str, u64)],
    /// Name, type, values in a cell, and whether cells may be null.
    pub(super) attributes: &'a [(&'a str, Datatype, u32, bool)],
}

impl OneTile<'_> {
    /// Writes the schema of this time.
    pub(super) fn create(&self, storage: &mut MemoryStorage, time: u64) {
        let none = Bytes::default().u32(0);
        self.create_with(storage, time, &none.bytes, "", &none.bytes);
    }

    /// [`OneTile::create`] with dimension labels and enumerations: the number of each, and what the schema
    /// has of them. All attributes have the enumeration of this name.
    pub(super) fn create_with(
        &self,
        storage: &mut MemoryStorage,
        time: u64,
        labels: &[u8],
        enumeration: &str,
        enumerations: &[u8],
    ) {
        let b = Bytes::default().u32(22).u8(0).u8(0).u8(0).u8(0).u64(1);
        let b = b.pipeline(&[]).pipeline(&[]).pipeline(&[]);
        let mut b = b.u32(self.dimensions.len() as u32);
        for (name, length) in self.dimensions {
            let of = b.text32(name).u8(Datatype::Uint64 as u8).u32(1).pipeline(&[]);
            b = of.u64(16).u64(0).u64(length - 1).u8(0).u64(*length);
        }
        b = b.u32(self.attributes.len() as u32);
        for (name, datatype, values, nullable) in self.attributes {
            let fill = vec![0; datatype.size() * *values as usize];
            let of = b.text32(name).u8(*datatype as u8).u32(*values).pipeline(&[]);
            let of = of.u64(fill.len() as u64).raw(&fill);
            b = of.u8(u8::from(*nullable)).u8(0).u8(0).text32(enumeration);
        }
        let body = b.raw(labels).raw(enumerations).u32(0).u8(1).bytes;
        let path = format!("__schema/__{time}_{time}_{UUID}");
        storage.insert(Path::new(&path), generic(&body));
    }

    /// Writes a fragment of all cells, with this time and the schema of this time.
    pub(super) fn write(&self, storage: &mut MemoryStorage, time: u64) {
        let cells: u64 = self.dimensions.iter().map(|(_, length)| length).product();
        let attributes = self.attributes.iter().enumerate();
        let mut fields: Vec<(String, Files)> = attributes
            .map(|(number, (_, datatype, values, nullable))| {
                let mut files = Files::default();
                let data = vec![1; cells as usize * datatype.size() * *values as usize];
                Files::put(&mut files.fixed, &tile(&[], &data, 1 << 16));
                if *nullable {
                    Files::put(&mut files.validity, &tile(&[], &vec![1; cells as usize], 1 << 16));
                }
                (format!("a{number}"), files)
            })
            .collect();
        let dimensions = (0..self.dimensions.len()).map(|number| format!("d{number}"));
        fields.extend(
            [String::new()]
                .into_iter()
                .chain(dimensions)
                .map(|name| (name, Files::default())),
        );
        let ends = self.dimensions.iter().flat_map(|(_, length)| [0, length - 1]);
        let parts = Parts {
            schema: format!("__{time}_{time}_{UUID}"),
            dense: true,
            domain: Bytes::default().u64s(&ends.collect::<Vec<_>>()).bytes,
            rtree: Bytes::default().u32(10).u32(0).bytes,
            tiles: 0,
            last_tile_cells: cells,
            has_timestamps: false,
            has_delete_metadata: false,
            fields,
        };
        parts.write(storage, &format!("__{time}_{time}_{UUID}_22"));
    }
}

/// An array of all cells.
pub(super) fn written(array: &OneTile) -> MemoryStorage {
    let mut storage = MemoryStorage::default();
    array.create(&mut storage, 1);
    array.write(&mut storage, 1);
    storage
}

/// Writes what GDAL tells of a raster of so many columns and rows, damaged or not.
pub(super) fn write_raster(storage: &mut MemoryStorage, [columns, rows]: [u64; 2], damaged: bool) {
    let xml = format!(
        "<PAMDataset><GeoTransform>5, 1, 0, 7, 0, -1</GeoTransform><Metadata domain=\"IMAGE_STRUCTURE\">\
         <MDI key=\"X_SIZE\">{columns}</MDI><MDI key=\"Y_SIZE\">{rows}</MDI></Metadata></PAMDataset>"
    );
    let pair = Bytes::default()
        .text32("_gdal")
        .u8(0)
        .u8(Datatype::StringUtf8 as u8);
    let mut file = generic(&pair.text32(&xml).bytes);
    if damaged {
        file.truncate(file.len() - 1);
    }
    storage.insert(Path::new(&format!("__meta/__1_1_{UUID}")), file);
}

/// Writes pairs of metadata: keys with types and bytes.
pub(super) fn write_metadata(storage: &mut MemoryStorage, pairs: &[(&str, Datatype, &[u8])]) {
    let body = pairs
        .iter()
        .fold(Bytes::default(), |body, (key, datatype, bytes)| {
            let count = bytes.len() / datatype.size();
            let body = body.text32(key).u8(0).u8(*datatype as u8);
            body.u32(count as u32).raw(bytes)
        });
    storage.insert(Path::new(&format!("__meta/__1_1_{UUID}")), generic(&body.bytes));
}

/// A dense array of 3 rows and 4 columns with the attribute `a`, whose bytes are all 1.
pub(super) fn array_of_a(datatype: Datatype) -> MemoryStorage {
    written(&OneTile {
        dimensions: &[("Y", 3), ("X", 4)],
        attributes: &[("a", datatype, 1, false)],
    })
}

/// A raster of 3 rows and 4 columns with the attribute `a`, with what GDAL tells of it, damaged or not.
pub(super) fn raster(datatype: Datatype, nullable: bool, damaged: bool) -> Arc<View> {
    let mut storage = written(&OneTile {
        dimensions: &[("Y", 3), ("X", 4)],
        attributes: &[("a", datatype, 1, nullable)],
    });
    write_raster(&mut storage, [4, 3], damaged);
    Arc::new(View::new(open(&storage).0, None, None).unwrap())
}

/// Damaged metadata may be whole again in the same state.
#[test]
fn what_damaged_metadata_change_is_another_version() {
    let versions = [false, true].map(|damaged| {
        let view = raster(Datatype::Uint8, false, damaged);
        assert_eq!(zarr::ZarrGroup::of(view.clone()).is_err(), damaged);
        let overviews = tiff::overviews_layout(&view, "a.tif".as_ref(), &[(view.clone(), 2..3)]);
        let files = [parquet::layout(&view), tiff::layout(&view, 2..3), overviews];
        (view.state(), files.map(|file| file.unwrap().version()))
    });
    let [(state, whole), (same, damaged)] = versions;
    assert_eq!(state, same);
    assert_eq!(whole[..2], [state; 2]);
    assert!(
        whole
            .iter()
            .zip(damaged)
            .all(|(whole, damaged)| *whole != damaged)
    );
}

/// A label that was damaged when files were read may be whole again in the same state.
#[test]
fn files_have_a_label_as_soon_as_it_is_whole() {
    let of = |attribute| OneTile {
        dimensions: &[("y", 4)],
        attributes: attribute,
    };
    let label = Bytes::default().u32(1).u32(0).text32("lat").u8(1);
    let label = label.text64("__labels/l0").text32("label").u8(1);
    let label = label.u8(Datatype::Float64 as u8).u32(1).u8(0).bytes;
    let mut storage = MemoryStorage::default();
    let (array, own) = (
        of(&[("a", Datatype::Int32, 1, false)]),
        of(&[("label", Datatype::Float64, 1, false)]),
    );
    array.create_with(&mut storage, 1, &label, "", &Bytes::default().u32(0).bytes);
    array.write(&mut storage, 1);
    for (path, bytes) in written(&own).files() {
        storage.insert(&Path::new("__labels/l0").join(path), bytes.clone());
    }
    let folder = tempfile::tempdir().unwrap();
    for (path, bytes) in storage.files() {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let options = TreeOptions {
        cache_size: 64 << 20,
        ..TreeOptions::default()
    };
    let open = || Tree::open(folder.path(), &options).unwrap();
    let names = [
        "table.csv",
        "head.csv",
        "table.parquet",
        "array.nc",
        "array.zarr/zarr.json",
    ];
    let read = |tree: &Tree| {
        names.map(|name| {
            let file = tree.root.find(&format!("data/{name}")).unwrap().unwrap();
            file.read_all().unwrap()
        })
    };
    let whole = read(&open());
    let metadata = format!("__labels/l0/__fragments/__1_1_{UUID}_22/__fragment_metadata.tdb");
    let metadata = folder.path().join(metadata);
    let bytes = fs::read(&metadata).unwrap();
    fs::write(&metadata, &bytes[..bytes.len() / 2]).unwrap();
    let tree = open();
    let damaged = read(&tree);
    fs::write(&metadata, &bytes).unwrap();
    let mended = read(&tree);
    for (place, name) in names.iter().enumerate() {
        assert!(damaged[place] != whole[place], "{name}");
        assert!(mended[place] == whole[place], "{name}");
    }
}

/// The view of an array that is written, all of whose attributes have the enumeration of these letters.
fn enumerated(array: &OneTile, letters: &str) -> Arc<View> {
    let mut storage = MemoryStorage::default();
    let none = Bytes::default().u32(0);
    let enumerations = Bytes::default().u32(1).text32("letters").text32("__0123_0");
    array.create_with(&mut storage, 1, &none.bytes, "letters", &enumerations.bytes);
    array.write(&mut storage, 1);
    let stored = Bytes::default().u32(0).text32("letters").text32("__0123_0");
    let stored = stored
        .u8(Datatype::StringAscii as u8)
        .u32(1)
        .u8(0)
        .text64(letters);
    let path = Path::new("__schema/__enumerations/__0123_0");
    storage.insert(path, generic(&stored.bytes));
    Arc::new(View::new(open(&storage).0, None, None).unwrap())
}

/// BOOL has one byte, which may be the index of more than two labels.
#[test]
fn booleans_with_an_enumeration_are_indexes_and_have_labels() {
    let array = OneTile {
        dimensions: &[("d", 3)],
        attributes: &[("a", Datatype::Bool, 1, false)],
    };
    let view = enumerated(&array, "xyz");
    let table = csv::layout(&view).unwrap();
    let table = Output::of(|out| table.read(0..table.len(), out)).unwrap();
    assert_eq!(&*table, b"d,a\n0,y\n1,y\n2,y\n");
    let grid = grid::Grid::of(&view, grid::Naming::Zarr).unwrap();
    assert_eq!(grid.variable("a").unwrap().datatype, Datatype::Uint8);
    #[cfg(feature = "arrow")]
    {
        use arrow_array::cast::AsArray;

        let batch = crate::Batches::new(view).unwrap().next().unwrap().unwrap();
        let labels = batch.column(1).as_dictionary::<arrow_array::types::UInt8Type>();
        assert_eq!(labels.keys().values(), &[1; 3]);
        assert_eq!(labels.values().as_string::<i64>().value(1), "y");
    }
}

/// Labels are stored once, and told of each attribute.
#[test]
fn flags_of_many_attributes_are_bounded() {
    let names: Vec<String> = (0..1200).map(|number| format!("a{number}")).collect();
    let of = |number: usize| {
        let attributes: Vec<_> = names[..number]
            .iter()
            .map(|name| (&**name, Datatype::Int64, 1, false))
            .collect();
        let array = OneTile {
            dimensions: &[("d", 3)],
            attributes: &attributes,
        };
        grid::Grid::of(&enumerated(&array, &"x".repeat(8000)), grid::Naming::Zarr).map(drop)
    };
    assert_eq!(of(1200).unwrap_err().kind(), ErrorKind::LimitExceeded);
    of(300).unwrap();
}

/// An attribute of HDF5 has less room than one of Zarr: both flags are there, or none.
#[test]
fn labels_that_fit_into_no_attribute_are_no_flags() {
    let array = OneTile {
        dimensions: &[("d", 3)],
        attributes: &[("a", Datatype::Int64, 1, false)],
    };
    for (labels, has_flags) in [(8_186, true), (8_187, false)] {
        let view = enumerated(&array, &"x".repeat(labels));
        let file = netcdf::layout(&view).unwrap();
        let file = Output::of(|out| file.read(0..file.len(), out)).unwrap();
        for name in [&b"flag_values\0"[..], b"flag_meanings\0"] {
            let found = file.windows(name.len()).any(|part| part == name);
            assert_eq!(found, has_flags, "{labels}");
        }
    }
}

/// Bytes as `hexdump -C` shows them.
pub(super) fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut before: &[u8] = &[];
    for (i, line) in bytes.chunks(16).enumerate() {
        if line == before {
            out += if out.ends_with("*\n") { "" } else { "*\n" };
            continue;
        }
        before = line;
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let (left, right) = hex.split_at(hex.len().min(8));
        let both = format!("{}  {}", left.join(" "), right.join(" "));
        let text = line.iter().map(|&byte| match byte {
            b' '..=b'~' => byte as char,
            _ => '.',
        });
        let text: String = text.collect();
        out += &format!("{:08x}  {both:<48}  |{text}|\n", 16 * i);
    }
    out + &format!("{:08x}\n", bytes.len())
}

/// Reads ranges of a file first, then all of it. Returns 1, or 0 if its source cannot be read.
fn check(what: &str, layout: impl Fn() -> Result<FileLayout>, numbers: &mut Random) -> u64 {
    match try_check(what, layout, numbers) {
        Ok(()) => 1,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            0
        }
    }
}

fn try_check(what: &str, layout: impl Fn() -> Result<FileLayout>, numbers: &mut Random) -> Result<()> {
    let file = layout()?;
    let len = file.len();
    let mut parts = Vec::new();
    for _ in 0..12 {
        let start = numbers.below(len + 1);
        let end = start + numbers.below(20_000);
        let part = Output::of(|out| file.read(start..end, out))?.to_vec();
        parts.push((start as usize, part));
    }
    let mut whole = Vec::new();
    let file = layout()?;
    while (whole.len() as u64) < len {
        let at = whole.len() as u64;
        let part = Output::of(|out| file.read(at..at + 50_000, out))?;
        assert_eq!(part.len() as u64, (len - at).min(50_000), "{what}");
        whole.extend_from_slice(&part);
    }
    for (start, part) in parts {
        let end = (start + part.len()).min(whole.len());
        assert!(whole[start.min(whole.len())..end] == part, "{what} at {start}");
    }
    Ok(())
}

#[test]
fn exports_are_as_long_as_they_say_and_any_range_is_part_of_the_whole() {
    let options = ExportOptions::default();
    let (mut files, mut numbers) = ([0; 3], Random(5));
    let both = [&Tuning::SMALL, &Tuning::PRODUCTION];
    for (path, tuning) in arrays().iter().flat_map(|path| both.map(|tuning| (path, tuning))) {
        let Ok(view) = open_local(path, tuning).and_then(|array| View::new(array, None, None)) else {
            continue;
        };
        let view = Arc::new(view);
        for export in Export::all(&view) {
            if !matches!(export.absent(&view, &options), Ok(None)) {
                continue;
            }
            let what = format!("{} of {}", export.path(), path.display());
            match export {
                Export::File(format) => files[0] += check(&what, || format.layout(&view), &mut numbers),
                Export::Image(_, fields) => {
                    files[1] += check(&what, || tiff::layout(&view, fields.clone()), &mut numbers);
                }
                Export::Zarr => {
                    let group = zarr::ZarrGroup::of(view.clone()).unwrap();
                    let document: serde_json::Value = serde_json::from_slice(&group.json()).unwrap();
                    for name in group.names() {
                        let array = group.array(name).unwrap();
                        let known = &document["consolidated_metadata"]["metadata"][name];
                        assert_eq!(
                            *known,
                            serde_json::from_slice::<serde_json::Value>(&array.json()).unwrap()
                        );
                        let shape = known["chunk_grid"]["configuration"]["chunk_shape"].as_array();
                        let sides = shape.unwrap().iter().map(|side| side.as_u64().unwrap());
                        let chunk_cells: u64 = sides.product();
                        let counts = array.counts();
                        let last: Vec<u64> = counts.iter().map(|count| count - 1).collect();
                        for chunk in [vec![0; counts.len()], last] {
                            let values = array.chunk(&chunk).unwrap().len() / chunk_cells;
                            assert_eq!(values * chunk_cells, array.chunk(&chunk).unwrap().len());
                            assert!([1, 2, 4, 8].contains(&values), "bytes of a value");
                            files[2] += check(&what, || array.chunk(&chunk), &mut numbers);
                        }
                        assert!(array.chunk(&counts).is_err() && array.chunk(&[]).is_err());
                    }
                }
            }
        }
    }
    let least = [160, 80, 300];
    assert!(
        files.iter().zip(least).all(|(files, least)| *files >= least),
        "{files:?}"
    );
}

/// Listing a dense view takes the schema and one fragment that shows that it has cells.
#[test]
fn listings_look_at_no_more_fragments_than_they_must() {
    let options = ExportOptions::default();
    let mut seen = 0;
    for path in arrays() {
        let open = |given: &dyn Fn(&View)| {
            let view = View::new(Array::open(&path).ok()?, None, None).ok()?;
            let few = view.snapshot().fragments().count() < 2;
            if !view.is_dense() || few || !matches!(view.region(), Ok(Some(_))) {
                return None;
            }
            // A fresh cache.
            let view = View::new(Array::open(&path).ok()?, None, None).ok()?;
            let before = view.array().engine.stats.bytes_read.get();
            given(&view);
            Some(view.array().engine.stats.bytes_read.get() - before)
        };
        let listing = open(&|view| {
            // table.csv has a bound on values, which takes the domains of all fragments.
            for format in [Format::Parquet, Format::NetCdf] {
                assert!(format.is_listed(view, &options).unwrap());
            }
            zarr::is_listed(view).unwrap();
            tiff::all_absent(view).unwrap();
        });
        let shape = open(&|view| drop(view.shape().unwrap()));
        let Some((listing, shape)) = listing.zip(shape) else {
            continue;
        };
        assert!(listing < shape, "{}: {listing} bytes of {shape}", path.display());
        seen += 1;
    }
    assert!(seen > 2, "{seen} arrays");
}
