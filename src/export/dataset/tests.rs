use super::*;
use crate::catalog::Array;
use crate::engine::Engine;
use crate::export::tests::{OneTile, write_metadata, write_raster, written};
use crate::format::testing::Bytes;
use crate::storage::MemoryStorage;
use std::path::{Path, PathBuf};

/// The data set of a group of arrays, and of groups in it that are empty.
fn dataset(arrays: &[(&str, MemoryStorage)], groups: &[&str]) -> Dataset {
    let mut storage = MemoryStorage::default();
    for (name, own) in arrays {
        for (path, bytes) in own.files() {
            storage.insert(&Path::new(name).join(path), bytes.clone());
        }
    }
    let engine = Arc::new(Engine::new(
        Arc::new(storage),
        64 << 20,
        Vec::new(),
        Arc::default(),
    ));
    let source = |path: &str| DatasetSource {
        group: Arc::new(OpenGroup::new(engine.clone(), PathBuf::from(path))),
        arrays: Vec::new(),
        groups: Vec::new(),
        left_out: Vec::new(),
    };
    let mut root = source("");
    // One without a name is what the group itself has.
    for (name, _) in arrays.iter().filter(|(name, _)| !name.is_empty()) {
        let array = Arc::new(Array::new(engine.clone(), PathBuf::from(name)));
        root.arrays
            .push((name.as_bytes().to_vec(), SourceArray::new(array)));
    }
    let groups = groups.iter().map(|name| (name.as_bytes().to_vec(), source(name)));
    root.groups.extend(groups);
    let state = root.state().unwrap();
    Dataset::new(root, state).unwrap()
}

fn reason(dataset: &Dataset, what: &str) -> String {
    let mut left_out = dataset.root.left_out.iter();
    left_out.find(|(own, _)| own == what).unwrap().1.clone()
}

#[test]
fn an_attribute_whose_type_changed_is_left_out_alone() {
    let of = |datatype| [("v", datatype, 1, false), ("w", Datatype::Int32, 1, false)];
    let dimensions = &[("x", 4)];
    let mut storage = written(&OneTile {
        dimensions,
        attributes: &of(Datatype::Int32),
    });
    let changed = OneTile {
        dimensions,
        attributes: &of(Datatype::Float64),
    };
    changed.create(&mut storage, 2);
    let dataset = dataset(&[("a", storage)], &[]);
    assert!(reason(&dataset, "a/v").contains("another datatype"));
    assert_eq!(dataset.zarr().unwrap().names().collect::<Vec<_>>(), ["w"]);
    dataset.netcdf().unwrap();
}

#[test]
fn variables_have_the_names_of_the_file() {
    let array = |dimension, attribute| {
        written(&OneTile {
            dimensions: &[(dimension, 4)],
            attributes: &[(attribute, Datatype::Int32, 1, false)],
        })
    };
    let names = |arrays: &[(&str, MemoryStorage)]| {
        let dataset = dataset(arrays, &[]);
        let names: Vec<String> = dataset.zarr().unwrap().names().map(str::to_owned).collect();
        (names, dataset.root.left_out.len())
    };
    // Of a file with `a.data` over x, `a` over y, and `time` over time.
    let arrays = [
        ("array0", array("x", "a.data")),
        ("array1", array("y", "a")),
        ("array2", array("time", "time.data")),
    ];
    assert_eq!(
        names(&arrays),
        (vec!["a.data".to_owned(), "a".to_owned(), "time".to_owned()], 0)
    );
    // Each variable of xarray is an array.
    let arrays = [
        ("array1", array("array1", "array1_")),
        ("a", array("a", "a_")),
        ("array2", array("a", "array2")),
    ];
    assert_eq!(
        names(&arrays),
        (vec!["array1".to_owned(), "a".to_owned(), "array2".to_owned()], 0)
    );
}

#[test]
fn labels_of_dimensions_are_left_out_with_a_reason() {
    let array = OneTile {
        dimensions: &[("x", 4)],
        attributes: &[("v", Datatype::Int32, 1, false)],
    };
    let label = Bytes::default().u32(1).u32(0).text32("x_label").u8(1);
    let label = label.text64("__labels/l0").text32("label").u8(1);
    let label = label.u8(Datatype::Float64 as u8).u32(1).u8(0).bytes;
    let mut storage = MemoryStorage::default();
    array.create_with(&mut storage, 1, &label, "", &Bytes::default().u32(0).bytes);
    array.write(&mut storage, 1);
    let dataset = dataset(&[("a", storage)], &[]);
    assert!(reason(&dataset, "a/x_label").contains("labels"));
    assert_eq!(dataset.zarr().unwrap().names().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn attributes_of_dimensions_are_left_out_with_a_reason() {
    let mut storage = written(&OneTile {
        dimensions: &[("x", 4), ("y", 2)],
        attributes: &[("v", Datatype::Int32, 1, false)],
    });
    let pairs: [(&str, _, &[u8]); 2] = [
        ("__tiledb_dim.x.units", Datatype::StringUtf8, b"m"),
        ("__tiledb_attr.v.units", Datatype::StringUtf8, b"K"),
    ];
    write_metadata(&mut storage, &pairs);
    let dataset = dataset(&[("a", storage)], &[]);
    let described = dataset.root.described_dimensions().unwrap();
    let described: Vec<&str> = described.iter().map(|(what, _)| &**what).collect();
    assert_eq!(described, ["a/__tiledb_dim.x"]);
}

#[test]
fn an_attribute_of_a_group_that_is_too_long_for_hdf5_is_left_out_with_a_reason() {
    let array = written(&OneTile {
        dimensions: &[("x", 4)],
        attributes: &[("v", Datatype::Int32, 1, false)],
    });
    // What is around a text in a message of 65,535 bytes takes 23 bytes and its name.
    for (length, is_told) in [(65_511, false), (65_512, true)] {
        let mut group = MemoryStorage::default();
        let text = vec![b'x'; length];
        write_metadata(&mut group, &[("k", Datatype::StringUtf8, &text)]);
        let dataset = dataset(&[("", group), ("a", array.clone())], &[]);
        let left_out = &dataset.root.left_out;
        assert_eq!(left_out.len(), usize::from(is_told), "{length}");
        assert!(
            left_out
                .iter()
                .all(|(what, why)| what == "k" && why.starts_with("dataset.nc: "))
        );
    }
}

#[test]
fn attributes_of_a_group_that_old_releases_keep_in_an_array_are_those_of_the_data_set() {
    let array = written(&OneTile {
        dimensions: &[("x", 4)],
        attributes: &[("v", Datatype::Int32, 1, false)],
    });
    let mut kept = MemoryStorage::default();
    let of_group = OneTile {
        dimensions: &[("dim", 1)],
        attributes: &[("attr", Datatype::Int32, 1, false)],
    };
    of_group.create(&mut kept, 1);
    let pairs: [(&str, _, &[u8]); 2] = [
        ("title", Datatype::StringUtf8, b"old"),
        ("_hidden", Datatype::StringUtf8, b"too"),
    ];
    write_metadata(&mut kept, &pairs);
    let mut group = MemoryStorage::default();
    write_metadata(&mut group, &[("title", Datatype::StringUtf8, b"new")]);
    for (group, title) in [(MemoryStorage::default(), "old"), (group, "new")] {
        let arrays = [
            ("", group),
            ("a", array.clone()),
            ("__tiledb_group", kept.clone()),
        ];
        let dataset = dataset(&arrays, &[]);
        let text = |key: &str, text: &str| (key.as_bytes().to_vec(), grid::Value::Text(text.to_owned()));
        let wanted = [text("_hidden", "too"), text("title", title)];
        assert_eq!(dataset.root.metadata.attributes, wanted);
        assert_eq!(dataset.zarr().unwrap().names().collect::<Vec<_>>(), ["a"]);
    }
}

#[test]
fn damaged_metadata_make_another_version_that_does_not_stay() {
    let of = |damaged| {
        let mut storage = written(&OneTile {
            dimensions: &[("Y", 4), ("X", 4)],
            attributes: &[("v", Datatype::Int32, 1, false)],
        });
        write_raster(&mut storage, [3, 2], damaged);
        dataset(&[("a", storage)], &[])
    };
    let (whole, damaged) = (of(false), of(true));
    let lengths = |dataset: &Dataset| {
        dataset
            .root
            .dimensions
            .iter()
            .map(|one| one.1)
            .collect::<Vec<_>>()
    };
    assert_eq!((lengths(&whole), whole.is_makeshift()), (vec![2, 3], false));
    assert_eq!((lengths(&damaged), damaged.is_makeshift()), (vec![4, 4], true));
    assert_eq!(whole.state(), damaged.state());
    assert_ne!(whole.version(), damaged.version());
    reason(&damaged, "a/__meta");
}

#[test]
fn a_format_needs_no_metadata_of_what_it_leaves_out() {
    let array = |datatype, values| {
        let array = OneTile {
            dimensions: &[("x", 4)],
            attributes: &[("v", datatype, values, false)],
        };
        written(&array)
    };
    let mut text = array(Datatype::Char, 3);
    write_raster(&mut text, [3, 2], true);
    let dataset = dataset(&[("a", array(Datatype::Int32, 1)), ("b", text)], &[]);
    assert_eq!(dataset.zarr().unwrap().names().collect::<Vec<_>>(), ["a"]);
    assert!(dataset.netcdf().is_err());
}

#[test]
fn groups_have_other_names_than_all_else() {
    let array = written(&OneTile {
        dimensions: &[("x", 4)],
        attributes: &[("v", Datatype::Int32, 2, true), ("-u", Datatype::Int32, 1, false)],
    });
    let dataset = dataset(&[("a", array)], &["x", "v_cell", "v__validity", "_-u", "other"]);
    for naming in [Naming::Zarr, Naming::NetCdf] {
        let group = dataset.file_group(&dataset.root, "", naming).unwrap();
        let variables = group.grid.variables.iter().map(|variable| &variable.name);
        let dimensions = group.grid.dimensions.iter().map(|(name, _)| name);
        let groups = group.groups.iter().map(|(name, _)| name);
        let all: Vec<&String> = variables.chain(dimensions).chain(groups).collect();
        assert_eq!(all.len(), 3 + 2 + 5);
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "{all:?}");
        assert!(group.groups.iter().any(|(name, _)| name == "other"));
    }
    dataset.netcdf().unwrap();
}

#[test]
fn what_is_too_much_for_hdf5_is_left_out() {
    let names: Vec<String> = (0..=MAX_RANK).map(|number| format!("d{number}")).collect();
    let dimensions: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
    let arrays = [("a", &dimensions[..]), ("b", &dimensions[1..])].map(|(name, dimensions)| {
        let attributes = &[("v", Datatype::Int32, 1, false)];
        (
            name,
            written(&OneTile {
                dimensions,
                attributes,
            }),
        )
    });
    let ranks = dataset(&arrays, &[]);
    assert!(reason(&ranks, "a/v").starts_with("dataset.nc: "));
    assert_eq!(ranks.zarr().unwrap().names().collect::<Vec<_>>(), ["a", "b"]);
    let group = ranks.file_group(&ranks.root, "", Naming::NetCdf).unwrap();
    assert_eq!(group.grid.variables.len(), 1);
    ranks.netcdf().unwrap();
    // A dimension within the cells of each attribute.
    let names: Vec<String> = (0..=netcdf::MAX_DIMENSIONS)
        .map(|number| format!("v{number}"))
        .collect();
    let attributes: Vec<_> = names
        .iter()
        .map(|name| (&**name, Datatype::Int8, 2, false))
        .collect();
    let mut scalars = MemoryStorage::default();
    let array = OneTile {
        dimensions: &[(SCALARS, 1)],
        attributes: &attributes,
    };
    array.create(&mut scalars, 1);
    let many = dataset(&[("a", scalars)], &[]);
    assert!(many.absent.is_none() && reason(&many, "dataset.nc").contains("dimensions"));
    assert!(many.absent_netcdf.is_some());
}

#[test]
fn groups_of_any_release_of_bioimg_are_images() {
    let mut array = written(&OneTile {
        dimensions: &[("Y", 4), ("X", 4)],
        attributes: &[("intensity", Datatype::Uint8, 1, false)],
    });
    write_metadata(&mut array, &[("level", Datatype::Int64, &0i64.to_le_bytes())]);
    for name in ["bioimg", "BIOIMG"] {
        let mut group = MemoryStorage::default();
        write_metadata(
            &mut group,
            &[("dataset_type", Datatype::StringUtf8, name.as_bytes())],
        );
        let dataset = dataset(&[("", group), ("l_0.tdb", array.clone())], &[]);
        assert_eq!((dataset.kind, dataset.absent), (Kind::Image, None), "{name}");
    }
}

#[test]
fn arrays_of_a_raster_are_overviews_of_its_full_resolution() {
    let array = written(&OneTile {
        dimensions: &[("Y", 4), ("X", 4)],
        attributes: &[("v", Datatype::Int32, 1, false)],
    });
    let of = |names: &[&str]| {
        let mut group = MemoryStorage::default();
        write_metadata(&mut group, &[("dataset_type", Datatype::StringUtf8, b"raster")]);
        let arrays: Vec<_> = names.iter().map(|name| (*name, array.clone())).collect();
        let dataset = dataset(&[&[("", group)], &*arrays].concat(), &[]);
        reason(&dataset, "l_1")
    };
    assert_eq!(of(&["l_0", "l_1"]), "it is an overview");
    assert!(of(&["l_1"]).contains("l_0"));
}
