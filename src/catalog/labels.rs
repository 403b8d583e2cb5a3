//! Dimension labels: arrays inside the directory of an array, whose values name the coordinates of a dimension.

use super::Array;
use crate::format::schema::DimensionLabel;
use crate::runtime::lock::lock;
use std::path::Path;
use std::sync::Arc;

impl Array {
    /// The array of a dimension label. None if it is not inside this array's directory, or lies behind a
    /// symbolic link. Reads no file of it.
    pub(crate) fn label(&self, label: &DimensionLabel) -> Option<Arc<Array>> {
        let uri = std::str::from_utf8(&label.uri).ok()?;
        let is_name = |part: &str| !matches!(part, "" | "." | "..");
        if !label.relative || !uri.split('/').all(is_name) {
            return None;
        }
        let path = self.path.join(Path::new(uri));
        let mut below = path.ancestors().take_while(|path| *path != self.path);
        let moved = below.any(|path| self.engine.storage.is_link(path));
        (!moved).then(|| {
            let mut labels = lock(&self.labels);
            let array = labels.entry(path.clone());
            array
                .or_insert_with(|| Arc::new(Array::new(self.engine.clone(), path)))
                .clone()
        })
    }
}
