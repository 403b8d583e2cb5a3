//! The fragments of a dense view, laid over each other.

use super::overlay::{Layer, Overlay};
use super::space::{Area, Space};
use crate::array::Array;
use crate::array::fragment::Fragment;
use crate::error::{Error, Result};
use crate::format::schema::Schema;
use crate::view::parallel;
use std::sync::Arc;

/// The visible fragments that have cells.
pub(super) struct Stack {
    pub(super) space: Space,
    /// Where they lie.
    pub(super) overlay: Overlay,
    /// The fragment of each layer, with its schema.
    pub(super) fragments: Vec<(Arc<Fragment>, Arc<Schema>)>,
    /// The array.
    pub(super) array: Arc<Array>,
}

/// Fragments whose metadata is read by one thread in one go.
const TOGETHER: usize = 64;

impl Stack {
    /// Reads what the metadata of `fragments`, oldest first, says of where they lie. One that cannot be read is an error: nobody knows what it hides.
    pub(super) fn new(array: Arc<Array>, schema: &Schema, fragments: Vec<Arc<Fragment>>) -> Result<Stack> {
        let space = Space::new(schema)?;
        let parts: Vec<&[Arc<Fragment>]> = fragments.chunks(TOGETHER).collect();
        let outlines = parallel::each(parts.len() as u64, |number| {
            let part = parts.get(number as usize).copied().unwrap_or_default();
            part.iter()
                .map(|fragment| fragment.outline())
                .collect::<Result<Vec<_>>>()
        })?;
        let (mut layers, mut kept) = (Vec::new(), Vec::new());
        let mut agreed: Option<Arc<Schema>> = None;
        for (fragment, outline) in fragments.iter().zip(outlines.into_iter().flatten()) {
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
                    let message = "the fragment's schema has another domain or other tiles than the array's";
                    return Err(place(Error::corrupt(message)));
                }
                agreed = Some(outline.schema.clone());
            }
            layers.push(Layer {
                area,
                dense: outline.dense,
            });
            kept.push((fragment.clone(), outline.schema.clone()));
        }
        Ok(Stack {
            space,
            overlay: Overlay::new(layers),
            fragments: kept,
            array,
        })
    }

    /// The smallest box with the cells of all fragments; None where there are none.
    pub(super) fn bounds(&self) -> Option<Area> {
        let mut areas = self.overlay.layers().iter().map(|layer| &layer.area);
        let first = areas.next()?.clone();
        Some(areas.fold(first, |all, next| all.around(next)))
    }
}
