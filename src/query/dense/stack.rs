//! The fragments of a dense view, newer ones over older ones.

use super::overlay::{Layer, Overlay};
use super::space::{Area, Space};
use crate::catalog::Array;
use crate::error::{Error, Result};
use crate::format::field::{Form, Stored};
use crate::format::schema::Schema;
use crate::fragment::Fragment;
use crate::fragment::info::FragmentInfo;
use crate::fragment::prefetch::outlines;
use crate::query::selection::Changes;
use std::sync::Arc;

/// The visible fragments of an array that have cells.
pub(super) struct Stack {
    pub(super) space: Space,
    /// The boxes of the fragments, oldest first.
    pub(super) overlay: Overlay,
    /// The fragment of each layer, with its schema.
    pub(super) fragments: Vec<(Arc<Fragment>, Arc<Schema>)>,
    /// How often a file of it had been found changed when the view was made.
    changes: Vec<u64>,
    pub(super) array: Arc<Array>,
}

/// What a fragment has of an attribute: its index in the fragment's schema.
pub(super) type Slot = Stored<usize>;

impl Stack {
    /// Reads which cells `fragments`, oldest first, cover. Metadata that cannot be read is an error, because
    /// the fragment might hide others.
    pub(super) fn new(
        array: Arc<Array>,
        schema: &Schema,
        fragments: Vec<Arc<Fragment>>,
        changes: &Changes,
    ) -> Result<Stack> {
        let space = Space::new(schema)?;
        let outlines = outlines(&array.engine, &fragments)?;
        let (mut layers, mut kept, mut kept_changes) = (Vec::new(), Vec::new(), Vec::new());
        let mut agreed: Option<Arc<Schema>> = None;
        for ((index, fragment), outline) in fragments.iter().enumerate().zip(outlines) {
            let Some(domain) = &outline.domain else { continue };
            let place = |error: Error| {
                let file = array.engine.storage.display(&fragment.metadata_path());
                error.at(0).in_part("`non_empty_domain`").in_file(file)
            };
            let area = space.area(domain).map_err(place)?;
            let same = agreed
                .as_ref()
                .is_some_and(|agreed| Arc::ptr_eq(agreed, &outline.schema));
            if !same {
                if !Space::new(&outline.schema).map_err(place)?.agrees_with(&space) {
                    let message =
                        "the domain or tile extents of the fragment's schema differ from the array's";
                    return Err(place(Error::corrupt(message)));
                }
                agreed = Some(outline.schema.clone());
            }
            layers.push(Layer {
                area,
                dense: outline.dense,
            });
            kept.push((fragment.clone(), outline.schema.clone()));
            kept_changes.push(changes.of(index));
        }
        Ok(Stack {
            space,
            overlay: Overlay::new(layers),
            fragments: kept,
            changes: kept_changes,
            array,
        })
    }

    /// The metadata of the fragment of layer `layer`. `Changed` if one of its files has changed since the
    /// view was made.
    pub(super) fn open(&self, layer: usize) -> Result<Arc<FragmentInfo>> {
        self.fragments[layer].0.open_after(self.changes[layer])
    }

    /// The smallest box that contains all fragments; None if there are none.
    pub(super) fn bounds(&self) -> Option<Area> {
        let mut areas = self.overlay.layers().iter().map(|layer| &layer.area);
        let first = areas.next()?.clone();
        Some(areas.fold(first, |all, next| all.around(next)))
    }

    /// What each fragment has of the attribute of this name. One that has nothing hides nothing of what older
    /// ones have.
    pub(super) fn slots(&self, name: &[u8], wanted: Form) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::with_capacity(self.fragments.len());
        let mut last: Option<&Arc<Schema>> = None;
        for (_, schema) in &self.fragments {
            // Most fragments have the same schema as the one before.
            let slot = match (last, slots.last()) {
                (Some(before), Some(slot)) if Arc::ptr_eq(before, schema) => *slot,
                _ => {
                    let found = schema.attribute_index(name);
                    let found = found.map(|index| (index, schema.attributes[index].form()));
                    Slot::of(found, wanted)
                }
            };
            slots.push(slot);
            last = Some(schema);
        }
        slots
    }
}
