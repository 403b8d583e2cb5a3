//! Damages one thing at a time in the sample source, and checks what `tiledbfs check` finds.

use crate::common::bytes::generic_tile;
use crate::common::copying::copy;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tiledbfs::internals::check::{CheckOptions, Level, Problem, Tally, check};
use tiledbfs::internals::format::fragment::Footer;
use tiledbfs::internals::fragment::info::FragmentInfo;
use tiledbfs::internals::{fragment_info, listing};
use tiledbfs::{Source, SourceOptions};

/// A copy of the sample group that may be damaged.
struct Sample(TempDir);

impl Sample {
    fn new() -> Sample {
        let place = tempfile::tempdir().unwrap();
        copy(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sample"),
            place.path(),
        );
        Sample(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The only entry of `directory` whose name contains `part`; if there are several, the first by name.
    fn entry(&self, directory: &str, part: &str) -> String {
        let entries = fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains(part))
            .collect();
        names.sort();
        format!("{directory}/{}", names.first().expect(part))
    }

    /// The older fragment of an array.
    fn fragment(&self, array: &str) -> String {
        self.entry(&format!("{array}/__fragments"), "__")
    }

    fn change(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(file)).unwrap();
        change(&mut bytes);
        fs::write(self.path(file), bytes).unwrap();
    }

    fn check(&self) -> Vec<Problem> {
        let found: Arc<Mutex<Vec<Problem>>> = Arc::default();
        let options = CheckOptions {
            cache_size: 1 << 20,
            keys: Vec::new(),
            follow_symlinks: false,
            threads: 2,
        };
        let report = found.clone();
        let report = Box::new(move |problem| report.lock().unwrap().push(problem));
        check(self.0.path(), &options, report, Arc::new(Tally::default())).unwrap();
        let found = found.lock().unwrap();
        found.clone()
    }

    /// Asserts that the check finds a problem of `kind` in the file at `path` with a message that contains
    /// `text`, and nothing in other files.
    fn finds(&self, kind: &str, path: &str, text: &str) {
        let found = self.check();
        let hit = |p: &Problem| {
            p.level == Level::Problem
                && p.kind.name() == kind
                && p.path == path
                && p.to_string().contains(text)
        };
        assert!(
            found.iter().any(hit),
            "{kind}, {path}, {text:?} not in {found:#?}"
        );
        assert!(found.iter().all(|p| p.path == path), "{found:#?}");
    }

    /// The metadata of the older fragment of `array`.
    fn info(&self, array: &str) -> Arc<FragmentInfo> {
        let source = Source::open(self.0.path(), &SourceOptions::default()).unwrap();
        let array = source.array(array);
        let listing = listing(&array).unwrap();
        fragment_info(&listing.fragments[0].fragment).unwrap()
    }

    /// Changes the body of a section of the older fragment of `array`, the one that `which` picks, with
    /// `change`. Returns the path of the metadata file.
    fn change_section(
        &self,
        array: &str,
        which: impl Fn(&Footer) -> u64,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> String {
        let info = self.info(array);
        let (footer, position) = (&info.footer, info.footer_position.unwrap());
        let old = which(footer);
        let first_slot = footer.offsets.tile_offsets[0];
        let mut body = info.section(old).unwrap();
        change(&mut body);
        let file = info.metadata_path().to_str().unwrap().to_owned();
        self.change(&file, |bytes| {
            // Puts the new section before the footer, and its offset into the footer.
            let at = position.offset as usize;
            let tile = generic_tile(22, &body);
            let mut footer = bytes.split_off(at);
            // The R-tree's offset may be 0, like many numbers. It is just before the tile offsets of the
            // first slot.
            let (needle, before) = match old {
                0 => (first_slot, 8),
                _ => (old, 0),
            };
            let places: Vec<usize> = (0..footer.len() - 8)
                .filter(|&i| footer[i..i + 8] == needle.to_le_bytes())
                .collect();
            let [place] = places[..] else {
                panic!("offset {needle} is at {places:?} of the footer");
            };
            let place = place - before;
            footer[place..place + 8].copy_from_slice(&(at as u64).to_le_bytes());
            bytes.extend(tile);
            bytes.extend(footer);
        });
        file
    }
}

#[test]
fn the_sample_is_clean() {
    assert_eq!(Sample::new().check(), []);
}

#[test]
fn sections_can_be_replaced() {
    let sample = Sample::new();
    sample.change_section("lightning", |footer| footer.offsets.rtree, |_| {});
    assert_eq!(sample.check(), []);
}

#[test]
fn every_flipped_bit_under_a_checksum_is_found() {
    let sample = Sample::new();
    let file = format!("{}/a1.tdb", sample.fragment("lightning"));
    let length = fs::metadata(sample.path(&file)).unwrap().len() as usize;
    for at in (0..length).step_by(101) {
        sample.change(&file, |bytes| bytes[at] ^= 1 << (at % 8));
        let found = sample.check();
        assert!(
            found.iter().any(|p| p.level == Level::Problem && p.path == file),
            "byte {at}: {found:?}"
        );
        sample.change(&file, |bytes| bytes[at] ^= 1 << (at % 8));
    }
    let last = length - 1;
    sample.change(&file, |bytes| bytes[last] ^= 1);
    sample.finds("checksum", &file, "field `current`, tile 2");
}

#[test]
fn a_truncated_data_file() {
    let sample = Sample::new();
    let file = format!("{}/a0.tdb", sample.fragment("weather"));
    sample.change(&file, |bytes| bytes.truncate(bytes.len() - 1));
    sample.finds("size", &file, "the metadata says");
    sample.finds("truncated", &file, "field `temperature`, tile 9");
}

#[test]
fn a_data_file_that_is_too_long() {
    let sample = Sample::new();
    let file = format!("{}/a5_var.tdb", sample.fragment("weather"));
    sample.change(&file, |bytes| bytes.push(0));
    // Readers do not read these bytes.
    let found = sample.check();
    let of = |p: &Problem| (p.level, p.kind.name(), p.path.clone());
    let found: Vec<_> = found.iter().map(of).collect();
    assert_eq!(found, [(Level::Note, "size", file)]);
}

#[test]
fn a_missing_data_file() {
    for name in ["weather/a1_validity.tdb", "weather/a5.tdb", "lightning/d0.tdb"] {
        let sample = Sample::new();
        let (array, name) = name.split_once('/').unwrap();
        let file = format!("{}/{name}", sample.fragment(array));
        fs::remove_file(sample.path(&file)).unwrap();
        sample.finds("missing", &file, "No such file");
    }
}

#[test]
fn a_damaged_footer() {
    let sample = Sample::new();
    let file = format!("{}/__fragment_metadata.tdb", sample.fragment("weather"));
    sample.change(&file, |bytes| *bytes.last_mut().unwrap() = 1);
    sample.finds("truncated", &file, "footer");
    let sample = Sample::new();
    let file = format!("{}/__fragment_metadata.tdb", sample.fragment("weather"));
    sample.change(&file, |bytes| bytes.truncate(bytes.len() / 2));
    assert!(
        sample
            .check()
            .iter()
            .all(|p| p.path == file && p.level == Level::Problem)
    );
    assert!(!sample.check().is_empty());
}

/// A count of tiles is not trusted if no file is large enough for it.
#[test]
fn a_footer_of_very_many_tiles() {
    let sample = Sample::new();
    let info = sample.info("lightning");
    let (footer, position) = (&info.footer, info.footer_position.unwrap());
    let file = info.metadata_path().to_str().unwrap().to_owned();
    sample.change(&file, |bytes| {
        let footer_bytes = &mut bytes[position.offset as usize..];
        let mut set = |from: u64, to: u64| {
            let places = footer_bytes.windows(8).position(|w| w == from.to_le_bytes());
            let at = places.unwrap();
            footer_bytes[at..at + 8].copy_from_slice(&to.to_le_bytes());
        };
        set(footer.sparse_tile_num, 1 << 58);
        for &size in footer.file_sizes.iter().filter(|size| **size > 0) {
            set(size, 1 << 62);
        }
    });
    let found = sample.check();
    assert!(
        found.iter().any(|p| p.level == Level::Problem && p.path == file),
        "{found:#?}"
    );
    assert!(found.len() < 100);
}

#[test]
fn bytes_behind_the_only_generic_tile_of_a_file() {
    for (directory, part) in [
        ("weather/__schema", "__17"),
        ("weather/__meta", "__17"),
        ("__group", "_2"),
    ] {
        let sample = Sample::new();
        let file = sample.entry(directory, part);
        sample.change(&file, |bytes| bytes.extend(b"more"));
        sample.finds("size", &file, "4 bytes are left over after the generic tile");
    }
}

#[test]
fn a_missing_metadata_file_and_a_missing_schema() {
    let sample = Sample::new();
    let file = format!("{}/__fragment_metadata.tdb", sample.fragment("weather"));
    fs::remove_file(sample.path(&file)).unwrap();
    sample.finds("missing", &file, "");

    let sample = Sample::new();
    let schema = sample.entry("lightning/__schema", "__17");
    fs::copy(
        sample.path(&schema),
        sample.path("lightning/__schema/__1_1_00000000000000000000000000000001"),
    )
    .unwrap();
    fs::remove_file(sample.path(&schema)).unwrap();
    let found = sample.check();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|p| p.kind.name() == "schema"), "{found:?}");
}

#[test]
fn boxes_that_are_not_those_of_the_coordinates() {
    let sample = Sample::new();
    let rtree = |footer: &Footer| footer.offsets.rtree;
    // The root comes first, one box of two dimensions; then the leaves. This leaf is too small by one unit in
    // the last place:
    let leaf = 8 + 8 + 32 + 8;
    let file = sample.change_section("lightning", rtree, |body| body[leaf] ^= 1);
    sample.finds("rtree", &file, "bounding box, dimension `lat`, tile 0");

    let sample = Sample::new();
    let file = sample.change_section("lightning", rtree, |body| body[8 + 8 + 8] ^= 1);
    sample.finds("rtree", &file, "level 0, node 0");
    sample.finds("rtree", &file, "range of dimension 0 is not the union");
}

#[test]
fn a_non_empty_domain_that_is_not_that_of_the_tiles() {
    let sample = Sample::new();
    let info = sample.info("lightning");
    let lowest = info.non_empty_domain().unwrap()[1].lo.clone();
    let position = info.footer_position.unwrap();
    let file = info.metadata_path().to_str().unwrap().to_owned();
    sample.change(&file, |bytes| {
        let footer = position.offset as usize;
        let places = bytes[footer..].windows(8);
        let at = footer + places.clone().position(|w| w == lowest).unwrap();
        bytes[at] ^= 1;
    });
    sample.finds("non_empty_domain", &file, "dimension 1");
}

#[test]
fn statistics_that_are_not_those_of_the_values() {
    type Which = fn(&Footer) -> u64;
    // In both arrays, attribute 1 is nullable with integer values; attribute 2 of `lightning` is var-sized
    // text.
    let cases: [(&str, Which, usize, &str); 8] = [
        ("weather", |f| f.offsets.tile_mins[1], 16, "field `rain`, tile 0"),
        (
            "weather",
            |f| f.offsets.tile_maxs[0],
            16 + 4,
            "field `temperature`, tile 1",
        ),
        (
            "weather",
            |f| f.offsets.tile_sums[3],
            8,
            "field `measured`, tile 0",
        ),
        (
            "weather",
            |f| f.offsets.tile_null_counts[1],
            8 + 8,
            "field `rain`, tile 1",
        ),
        (
            "lightning",
            |f| f.offsets.tile_maxs[1],
            16,
            "field `current`, tile 0",
        ),
        (
            "lightning",
            |f| f.offsets.tile_maxs[2],
            16 + 24,
            "field `network`, tile 0",
        ),
        // Slot 3 is that of zipped coordinates, which is unused.
        (
            "lightning",
            |f| f.offsets.tile_sums[4],
            8 + 7,
            "field `lat`, tile 0",
        ),
        (
            "weather",
            |f| f.offsets.fragment_statistics.unwrap(),
            8,
            "field `temperature`, fragment statistics",
        ),
    ];
    for (array, which, at, place) in cases {
        let sample = Sample::new();
        let file = sample.change_section(array, which, |body| body[at] ^= 0x10);
        sample.finds("statistics", &file, place);
        assert_eq!(sample.check().len(), 1, "{place}");
    }
}

#[test]
fn a_section_that_cannot_be_decoded() {
    let sample = Sample::new();
    // A list that no field uses.
    let info = sample.info("weather");
    let footer = &info.footer;
    let at = footer.offsets.tile_offsets[6] as usize;
    let file = info.metadata_path().to_str().unwrap().to_owned();
    sample.change(&file, |bytes| bytes[at + 34 + 18 + 8 + 12 + 20] ^= 0xFF);
    sample.finds("corrupt", &file, "tile offsets of slot 6");
}

#[test]
fn commits_without_fragments_and_fragments_without_commits() {
    let sample = Sample::new();
    let fragment = sample.fragment("weather");
    let name = fragment.rsplit('/').next().unwrap();
    fs::remove_dir_all(sample.path(&fragment)).unwrap();
    sample.finds(
        "commit",
        &format!("weather/__commits/{name}.wrt"),
        "does not exist",
    );

    let sample = Sample::new();
    let commit = sample.entry("lightning/__commits", ".wrt");
    fs::remove_file(sample.path(&commit)).unwrap();
    let found = sample.check();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].level, found[0].kind.name()), (Level::Note, "commit"));
}

#[test]
fn consolidated_commits_and_ignore_files() {
    let uuid = "0".repeat(32);
    let sample = Sample::new();
    let consolidated = format!("weather/__commits/__1_2_{uuid}_22.con");
    let gone = format!("__commits/__7_7_{uuid}_22.wrt\n");
    fs::write(sample.path(&consolidated), &gone).unwrap();
    sample.finds("commit", &consolidated, "does not exist");
    fs::write(
        sample.path(&format!("weather/__commits/__3_3_{uuid}_22.ign")),
        &gone,
    )
    .unwrap();
    assert_eq!(sample.check(), []);
    fs::write(sample.path(&consolidated), "rubbish\n").unwrap();
    sample.finds("corrupt", &consolidated, "timestamped name");
}

#[test]
fn vacuum_files_and_delete_conditions() {
    let uuid = "0".repeat(32);
    let sample = Sample::new();
    let vacuum = format!("weather/__commits/__1_2_{uuid}_22.vac");
    let mut line = format!("/{}\n", sample.fragment("weather").trim_start_matches("weather/"));
    fs::write(sample.path(&vacuum), &line).unwrap();
    assert_eq!(sample.check(), []);
    line.replace_range(20..21, "\u{1}");
    fs::write(sample.path(&vacuum), &line).unwrap();
    sample.finds("commit", &vacuum, "is not the path of a fragment");
    // At its own line, although the line before has the same text in it.
    line.replace_range(20.., "1\n1\n");
    fs::write(sample.path(&vacuum), &line).unwrap();
    let offsets: Vec<_> = sample.check().iter().map(|problem| problem.offset).collect();
    assert_eq!(offsets, [Some(0), Some(22)]);

    let sample = Sample::new();
    let delete = format!("lightning/__commits/__9_9_{uuid}_22.del");
    // `current <= 5` as one node.
    let mut condition = vec![1, 1, 7, 0, 0, 0];
    condition.extend(b"current");
    condition.extend(4u64.to_le_bytes());
    condition.extend(5i32.to_le_bytes());
    fs::write(sample.path(&delete), generic_tile(22, &condition)).unwrap();
    assert_eq!(sample.check(), []);
    let mut damaged = condition.clone();
    damaged[0] = 2;
    fs::write(sample.path(&delete), generic_tile(22, &damaged)).unwrap();
    sample.finds("corrupt", &delete, "unknown node type");
    fs::write(sample.path(&delete), &generic_tile(22, &condition)[..40]).unwrap();
    sample.finds("truncated", &delete, "generic tile header");
    let mut short = condition[..condition.len() - 2].to_vec();
    short[13] = 2;
    fs::write(sample.path(&delete), generic_tile(22, &short)).unwrap();
    sample.finds(
        "commit",
        &delete,
        "the constant has 2 bytes, but a value of the field has 4",
    );
}

#[test]
fn consolidated_fragment_metadata() {
    let sample = Sample::new();
    let info = sample.info("weather");
    let position = info.footer_position.unwrap();
    let own = fs::read(sample.path(info.metadata_path().to_str().unwrap())).unwrap();
    let footer = &own[position.offset as usize..][..position.size as usize];
    let name = sample.fragment("weather");
    let name = name.rsplit('/').next().unwrap();
    let mut body = 1u32.to_le_bytes().to_vec();
    body.extend((name.len() as u64).to_le_bytes());
    body.extend(name.as_bytes());
    body.extend((4 + 16 + name.len() as u64).to_le_bytes());
    body.extend(footer);
    fs::create_dir(sample.path("weather/__fragment_meta")).unwrap();
    let file = format!("weather/__fragment_meta/__1_2_{}_22.meta", "0".repeat(32));
    fs::write(sample.path(&file), generic_tile(22, &body)).unwrap();
    assert_eq!(sample.check(), []);
    *body.last_mut().unwrap() ^= 0x40;
    fs::write(sample.path(&file), generic_tile(22, &body)).unwrap();
    sample.finds("consolidated_metadata", &file, "differs from the fragment's own");
}

#[test]
fn schemas_enumerations_metadata_and_groups() {
    let sample = Sample::new();
    let file = sample.entry("weather/__schema/__enumerations", "__");
    fs::remove_file(sample.path(&file)).unwrap();
    sample.finds("missing", &file, "");

    let sample = Sample::new();
    let file = sample.entry("weather/__meta", "__");
    sample.change(&file, |bytes| bytes.truncate(bytes.len() - 1));
    sample.finds("truncated", &file, "generic tile");

    let sample = Sample::new();
    let file = sample.entry("__group", "__");
    sample.change(&file, |bytes| *bytes.last_mut().unwrap() ^= 1);
    sample.finds("corrupt", &file, "");

    let sample = Sample::new();
    let source = fs::canonicalize(sample.0.path()).unwrap();
    fs::remove_dir_all(sample.path("weather")).unwrap();
    sample.finds(
        "group",
        source.to_str().unwrap(),
        "member \"weather\": the member is missing",
    );
}

#[test]
fn stray_files_are_noted() {
    let sample = Sample::new();
    fs::write(
        sample.path(&format!("{}/core.1234", sample.fragment("weather"))),
        b"x",
    )
    .unwrap();
    let found = sample.check();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].level, found[0].kind.name()), (Level::Note, "name"));
}

#[test]
fn loops_of_links_end() {
    let sample = Sample::new();
    std::os::unix::fs::symlink(".", sample.path("itself")).unwrap();
    fs::create_dir(sample.path("plain")).unwrap();
    std::os::unix::fs::symlink("../", sample.path("plain/above")).unwrap();
    let found = sample.check();
    assert!(
        matches!(&found[..], [note] if note.level == Level::Note && note.path == "itself"),
        "{found:?}"
    );
}

/// All files below `directory`, relative to the sample.
fn files(sample: &Sample, directory: &str, all: &mut Vec<String>) {
    for entry in fs::read_dir(sample.path(directory)).unwrap().map(Result::unwrap) {
        let path = format!("{directory}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files(sample, &format!("{path}/"), all);
        } else {
            all.push(path);
        }
    }
}

#[test]
fn damage_anywhere_is_no_reason_to_panic_and_mostly_found() {
    let sample = Sample::new();
    let mut all = Vec::new();
    files(&sample, "", &mut all);
    all.sort();
    let (mut mutants, mut found) = (0, 0);
    for (i, file) in all.iter().enumerate() {
        let intact = fs::read(sample.path(file)).unwrap();
        if intact.is_empty() {
            continue;
        }
        let at = i * 7919 % intact.len();
        let mut flipped = intact.clone();
        flipped[at] ^= 1 << (i % 8);
        for damaged in [&flipped[..], &intact[..at]] {
            fs::write(sample.path(file), damaged).unwrap();
            let problems = sample.check();
            assert!(
                problems.iter().all(|p| p.kind.name() != "internal"),
                "{file}: {problems:?}"
            );
            mutants += 1;
            found += usize::from(problems.iter().any(|p| p.level == Level::Problem));
        }
        fs::write(sample.path(file), intact).unwrap();
    }
    // Uncovered bytes, such as low bits of coordinates inside their box, cannot be found.
    assert!(mutants > 80 && found * 10 >= mutants * 9, "{found} of {mutants}");
}
