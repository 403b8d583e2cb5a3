//! A group of a file of variables, as `array.nc` and `array.zarr/` have one: a [`Grid`], the views that its
//! values come from, and further groups.

use super::dataset::image::Image;
use super::grid::{Grid, Naming, Variable};
use super::metadata::Metadata;
use super::raster;
use crate::error::Result;
use crate::query::View;
use std::sync::Arc;

/// A group, and all that is in it.
pub struct FileGroup {
    /// Its dimensions, variables and attributes.
    pub grid: Arc<Grid>,
    /// What the variables are of: see [`Variable::view`].
    pub views: Vec<Arc<View>>,
    /// The groups in it by name. A name is unique among them, the variables and the dimensions.
    pub groups: Vec<(String, Arc<FileGroup>)>,
    /// The image whose levels the variables are, in order; None if it is none.
    pub image: Option<Arc<Image>>,
}

impl FileGroup {
    /// The group of one view, for which [`grid::absent`](super::grid::absent) returns None. A raster ends
    /// where GDAL says. Reads only metadata.
    pub fn of_view(view: Arc<View>, naming: Naming) -> Result<FileGroup> {
        let view = raster::cropped(&view, Metadata::of)?;
        Ok(FileGroup {
            grid: Grid::of(&view, naming)?,
            views: vec![view],
            groups: Vec::new(),
            image: None,
        })
    }

    /// The view that has the values of a variable of the grid.
    pub fn view(&self, variable: &Variable) -> &Arc<View> {
        &self.views[variable.view]
    }
}
