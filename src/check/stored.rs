//! Compares the statistics of a field in the fragment metadata with those of its values.

use super::fragment::Shared;
use super::statistics::{Class, Summaries};
use super::{Checker, Kind, Problem};
use crate::error::Result;
use crate::format::datatype::Datatype;
use crate::format::fragment::MinMax;
use crate::format::fragment::sections::parse_u64_list;
use crate::fragment::field::{Role, StoredField};
use crate::fragment::info::FragmentInfo;
use crate::fragment::tile_list::TileListKey;

/// The stored statistics of one field; None for those that are missing or known to be meaningless.
pub(super) struct Stored {
    field: StoredField,
    bounds: Option<(Section<MinMax>, Section<MinMax>)>,
    sums: Option<Section<Vec<u64>>>,
    null_counts: Option<Section<Vec<u64>>>,
}

/// A decoded section, and its byte offset in the metadata file.
struct Section<T> {
    offset: u64,
    content: T,
}

impl Stored {
    /// Reads the lists of a field. Lists that cannot be read are left out: the check of the fragment
    /// reports them.
    pub(super) fn read(info: &FragmentInfo, field: &StoredField) -> Stored {
        let mut stored = Stored {
            field: field.clone(),
            bounds: None,
            sums: None,
            null_counts: None,
        };
        let class = Class::of(field.datatype, field.cell_val_num);
        // With a lossy filter, the stored statistics are those of the values before the filter.
        let lossy = field.is_lossy(&info.schema);
        let attribute = matches!(field.role, Role::Attribute(_));
        // In dense fragments, libtiledb computes the statistics of var-sized values from freed memory. It
        // takes the null counts of var-sized values and of text from other cells.
        let text = field.nullable && class == Class::Text;
        let garbage = info.footer.dense && (field.cell_val_num.is_var() || text);
        if attribute && class != Class::Opaque && !garbage && !lossy {
            let read = |list| {
                let section = section(info, list, field.slot, MinMax::parse)?;
                let empty = section.content.fixed.is_empty();
                (!empty).then_some(section)
            };
            stored.bounds = read(TileListKey::Mins).zip(read(TileListKey::Maxs));
        }
        let numbers = |list| {
            let section = section(info, list, field.slot, parse_u64_list)?;
            let empty = section.content.is_empty();
            (!empty).then_some(section)
        };
        if class == Class::Number && !lossy {
            stored.sums = numbers(TileListKey::Sums);
        }
        if field.nullable && class != Class::Opaque && !garbage {
            stored.null_counts = numbers(TileListKey::NullCounts);
        }
        stored
    }

    /// Compares the stored statistics of a tile with those of its values.
    pub(super) fn check_tile(&self, checker: &Checker, info: &FragmentInfo, tile: u64, summary: &Summaries) {
        let report = |offset: u64, message: Option<String>| {
            if let Some(message) = message {
                let problem = self
                    .problem(info, message)
                    .in_part(format_args!("field `{}`, tile {tile}", self.name()));
                checker.report(problem.at(offset));
            }
        };
        let missing = || Some("the list has no entry for the tile".to_owned());
        let index = tile as usize;
        if let Some((mins, maxs)) = &self.bounds {
            let (datatype, size) = (self.field.datatype, self.field.cell_size());
            let min = mins.content.tile(tile, size);
            report(
                mins.offset,
                min.map_or_else(missing, |min| summary.wrong(|s| s.wrong_min(datatype, min))),
            );
            let max = maxs.content.tile(tile, size);
            report(
                maxs.offset,
                max.map_or_else(missing, |max| summary.wrong(|s| s.wrong_max(datatype, max))),
            );
        }
        if let Some(sums) = &self.sums {
            let sum = sums.content.get(index);
            let datatype = self.field.datatype;
            let wrong = |sum: &u64| summary.wrong(|s| s.wrong_sum(datatype, sum.to_le_bytes()));
            let wrong = sum.map_or_else(missing, wrong);
            report(sums.offset, wrong);
        }
        if let Some(counts) = &self.null_counts {
            let count = counts.content.get(index);
            let wrong = count.map_or_else(missing, |count| summary.wrong(|s| s.wrong_null_count(*count)));
            report(counts.offset, wrong);
        }
    }

    /// Compares the stored statistics of the whole fragment with those of its values.
    pub(super) fn check_fragment(&self, checker: &Checker, shared: &Shared, summary: &Summaries) {
        let slot = self.field.slot;
        let Some(stored) = shared.statistics.as_ref().and_then(|all| all.get(slot)) else {
            return;
        };
        let datatype = self.field.datatype;
        let mut wrong = Vec::new();
        // libtiledb merges the bounds of text tile by tile, and takes the missing bounds of a tile of nulls
        // for empty text.
        let text = summary.tile_of_nulls && matches!(datatype, Datatype::Char | Datatype::StringAscii);
        if self.bounds.is_some() && !text {
            wrong.extend(summary.wrong(|s| s.wrong_min(datatype, &stored.min)));
            wrong.extend(summary.wrong(|s| s.wrong_max(datatype, &stored.max)));
        }
        if self.sums.is_some() {
            wrong.extend(summary.wrong(|s| s.wrong_sum(datatype, stored.sum)));
        }
        if self.null_counts.is_some() {
            wrong.extend(summary.wrong(|s| s.wrong_null_count(stored.null_count)));
        }
        for message in wrong {
            let part = format!("field `{}`, fragment statistics", self.name());
            checker.report(self.problem(&shared.info, message).in_part(part));
        }
    }

    fn name(&self) -> String {
        String::from_utf8_lossy(&self.field.name).into_owned()
    }

    fn problem(&self, info: &FragmentInfo, message: String) -> Problem {
        let path = info.engine.storage.display(&info.metadata_path());
        Problem::new(Kind::Statistics, path, message)
    }
}

fn section<T>(
    info: &FragmentInfo,
    list: TileListKey,
    slot: usize,
    parse: impl FnOnce(&[u8]) -> Result<T>,
) -> Option<Section<T>> {
    let (offset, content) = info.parsed_list(list, slot, parse).ok()??;
    Some(Section { offset, content })
}
