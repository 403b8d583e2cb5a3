//! Checks the metadata of a fragment, section by section, and makes jobs for its fields.

use super::queue::Job;
use super::rtree::TileBoxes;
use super::{Checker, Kind, Problem, coordinates, field};
use crate::catalog::Array;
use crate::error::{Error, Result};
use crate::format::datatype::Datatype;
use crate::format::fragment::sections::{
    FragmentStatistics, parse_fragment_statistics, parse_processed_conditions, parse_u64_list,
};
use crate::format::fragment::{Footer, MinMax};
use crate::format::name::{Part, TimestampedName};
use crate::fragment::field::Role;
use crate::fragment::info::FragmentInfo;
use crate::fragment::{Fragment, file_name};
use crate::storage::EntryType;
use std::collections::HashSet;
use std::sync::Arc;

/// A job that checks a fragment of `array`.
pub(super) fn job(array: Arc<Array>, fragment: Arc<Fragment>) -> Job {
    Box::new(move |checker| check(checker, array, &fragment))
}

fn check(checker: &Checker, array: Arc<Array>, fragment: &Fragment) {
    checker.tally.fragments.add(1);
    let metadata_path = fragment.metadata_path();
    let info = match fragment.look() {
        Ok(info) => info,
        Err(e) => {
            let own = checker.show(&metadata_path);
            // The error of the schema itself was reported with the schemas. Here the finding is that
            // the fragment cannot be read because of it.
            let of_schema = e.file().is_some_and(|file| file != own);
            let problem = Problem::from_error(&e, own.clone());
            checker.report(match of_schema {
                true => Problem {
                    level: problem.level,
                    ..Problem::new(
                        Kind::Schema,
                        own,
                        format!("the fragment's schema cannot be read: {e}"),
                    )
                },
                false => problem,
            });
            return;
        }
    };
    let mut shared = Shared {
        boxes: None,
        statistics: None,
        conditions: None,
        array,
        info: info.clone(),
    };
    match &info.footer.inline {
        Some(inline) => shared.boxes = TileBoxes::of_mbrs(checker, &info, &inline.mbrs),
        None => {
            let sections = Sections {
                checker,
                info: &info,
                footer: &info.footer,
            };
            sections.check_sizes();
            sections.check_lists();
            shared.boxes = sections.boxes();
            shared.statistics = sections.statistics();
            shared.conditions = sections.conditions();
        }
    }
    check_files(checker, &info);

    let shared = Arc::new(shared);
    let mut jobs: Vec<Job> = Vec::new();
    for stored in info.fields.iter().filter(|field| info.stores(field)) {
        // The dimensions are checked together, by `coordinates`.
        if !matches!(
            stored.role,
            Role::Dimension(_) | Role::ZippedDimension(_) | Role::Coordinates
        ) {
            let (shared, field) = (shared.clone(), stored.clone());
            jobs.push(Box::new(move |checker| field::check(checker, shared, field)));
        }
    }
    if !info.footer.dense {
        jobs.push(Box::new(move |checker| coordinates::check(checker, shared)));
    }
    checker.queue.push(jobs);
}

/// Notes the files in the fragment's directory that are neither its metadata nor belong to a field.
fn check_files(checker: &Checker, info: &FragmentInfo) {
    let Some(entries) = checker.take(checker.engine.storage.list(&info.path), &info.path) else {
        return;
    };
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    known.insert(file_name(&info.metadata_path()).to_vec());
    for field in &info.fields {
        for part in [Part::Fixed, Part::Var, Part::Validity] {
            known.extend(info.file_path(field, part).map(|path| file_name(&path).to_vec()));
        }
    }
    for entry in entries {
        let path = info.path.join(&entry.name);
        if entry.entry_type == EntryType::Directory || !known.contains(file_name(&path)) {
            let message = "belongs to no field of the fragment";
            checker.report(checker.problem(Kind::Name, &path, message).noted());
        }
    }
}

/// The sections of a fragment metadata file.
struct Sections<'a> {
    checker: &'a Checker,
    info: &'a Arc<FragmentInfo>,
    footer: &'a Footer,
}

impl Sections<'_> {
    fn section<T>(
        &self,
        what: impl std::fmt::Display,
        offset: u64,
        parse: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Option<T> {
        let path = self.info.metadata_path();
        let read = || {
            let engine = &self.info.engine;
            let blob = engine.open_immutable(&path)?;
            let (tile, body) = engine.generic_tile(&*blob, offset, self.info.writer.key.as_ref())?;
            if tile.codec.cell_size() != 1 || tile.codec.datatype() != Datatype::Char {
                return Err(
                    Error::corrupt("the generic tile must hold CHAR cells of 1 byte").in_file(blob.display())
                );
            }
            parse(&body).map_err(|e| e.in_file(blob.display()))
        };
        let result = read().map_err(|e: Error| e.in_part(format_args!("{what} at byte {offset}")));
        self.checker.take(result, &path)
    }

    /// Checks that the footer gives size 0 for files that the fields do not have.
    fn check_sizes(&self) {
        let footer = self.footer;
        let fields = &self.info.fields;
        let of_slot = |slot: usize| fields.iter().find(move |field| field.slot == slot);
        let sizes = [
            (&footer.file_sizes, Part::Fixed),
            (&footer.file_var_sizes, Part::Var),
            (&footer.file_validity_sizes, Part::Validity),
        ];
        for (sizes, part) in sizes {
            for (slot, &size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
                let wanted = of_slot(slot).is_some_and(|field| match part {
                    Part::Fixed => true,
                    Part::Var => field.cell_val_num.is_var(),
                    Part::Validity => field.nullable,
                });
                if !wanted {
                    let message = format!(
                        "a size of {size} bytes is given for a file that no field has (slot {slot}, {part:?})"
                    );
                    let path = self.checker.show(&self.info.metadata_path());
                    self.checker
                        .report(Problem::new(Kind::Size, path, message).in_part("footer"));
                }
            }
        }
    }

    /// Decodes every list of every slot, also of slots that no field uses.
    fn check_lists(&self) {
        let (o, tiles) = (&self.footer.offsets, self.info.geometry.tile_num);
        // When libtiledb 2.2 writes nullable attributes in global order, it appends empty tiles: one, or as
        // many as there are tiles.
        let more = self.info.footer.dense && matches!(self.footer.version, 7 | 8);
        let numbers = |body: &[u8]| {
            let list = parse_u64_list(body)?;
            let count = list.len() as u64;
            let rest = list.iter().skip(tiles as usize);
            let surplus =
                more && count > tiles && count.div_ceil(2) <= tiles && rest.clone().all(|&n| n == 0);
            match count == 0 || count == tiles || surplus {
                true => Ok(()),
                false => Err(Error::corrupt(format!(
                    "the list has {count} entries, but the fragment has {tiles} tiles"
                ))),
            }
        };
        let lists = [
            ("tile offsets", &o.tile_offsets),
            ("var offsets", &o.tile_var_offsets),
            ("var sizes", &o.tile_var_sizes),
            ("validity offsets", &o.tile_validity_offsets),
            ("tile sums", &o.tile_sums),
            ("tile null counts", &o.tile_null_counts),
        ];
        for (name, offsets) in lists {
            for (slot, &offset) in offsets.iter().enumerate() {
                self.section(format_args!("{name} of slot {slot}"), offset, numbers);
            }
        }
        let bounds = [
            ("tile minima", &o.tile_mins),
            ("tile maxima", &o.tile_maxs),
            ("global-order minima", &o.global_order_mins),
            ("global-order maxima", &o.global_order_maxs),
        ];
        for (name, offsets) in bounds {
            for (slot, &offset) in offsets.iter().enumerate() {
                self.section(format_args!("{name} of slot {slot}"), offset, MinMax::parse);
            }
        }
    }

    fn boxes(&self) -> Option<TileBoxes> {
        let offset = self.footer.offsets.rtree;
        let (version, schema) = (self.footer.version, &self.info.schema);
        let (rtree, body) = self.section("R-tree", offset, |body| {
            let body = body.to_vec();
            crate::format::fragment::RTree::parse(&body, version, schema).map(|rtree| (rtree, body))
        })?;
        TileBoxes::of_rtree(self.checker, self.info, rtree, body)
    }

    fn statistics(&self) -> Option<Vec<FragmentStatistics>> {
        let offset = self.footer.offsets.fragment_statistics?;
        let slots = self.footer.slots.fixed();
        self.section("fragment statistics", offset, |body| {
            parse_fragment_statistics(body, slots)
        })
    }

    /// Counts the processed conditions, and checks that they name delete or update files. The files may be
    /// gone.
    fn conditions(&self) -> Option<u64> {
        let Some(offset) = self.footer.offsets.processed_conditions else {
            return Some(0);
        };
        let paths = self.section("processed conditions", offset, parse_processed_conditions)?;
        for path in &paths {
            let condition = path.ends_with(b".del") || path.ends_with(b".upd");
            if !condition || TimestampedName::parse(path).is_err() {
                let message = format!(
                    "{:?} is not the path of a delete or update condition",
                    String::from_utf8_lossy(path)
                );
                let file = self.checker.show(&self.info.metadata_path());
                let problem = Problem::new(Kind::Commit, file, message).in_part("processed conditions");
                self.checker.report(problem.at(offset));
            }
        }
        Some(paths.len() as u64)
    }
}

/// The decoded metadata of a fragment, for the checks of its fields.
pub(super) struct Shared {
    /// The fragment.
    pub info: Arc<FragmentInfo>,
    /// Its array, for enumerations.
    pub array: Arc<Array>,
    /// The bounding boxes of its tiles; None for a dense fragment, or if they cannot be read.
    pub boxes: Option<TileBoxes>,
    /// Statistics of the whole fragment, by slot; None below version 12, or if they cannot be read.
    pub statistics: Option<Vec<FragmentStatistics>>,
    /// Number of processed conditions; None if they cannot be read.
    pub conditions: Option<u64>,
}
