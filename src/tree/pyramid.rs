//! `raster/<name>.tif.ovr`: overviews of a raster that GDAL wrote as a group, in which `l_0` is the full
//! resolution, and `l_1`, `l_2` and so on are smaller ones.
//!
//! They exist beside the images of `l_0`, if its directory lies in that of the group: of now, and of a range
//! of time, but not of a part, nor of a state that a pin names. Programs find overviews in listings, so these
//! show them, but not in stores, where nothing is asked of other arrays for a listing.

use super::array_at::ArrayAt;
use super::node::{File, Node};
use super::permissions::Origin;
use super::view_source::ViewSource;
use crate::catalog::group::{MemberPlace, Members, OpenGroup};
use crate::catalog::source::{ObjectKind, classify};
use crate::catalog::time::When;
use crate::error::{Error, ErrorKind, Result};
use crate::export::dataset::{FULL_RESOLUTION, is_raster};
use crate::export::tiff;
use crate::layout::FileLayout;
use crate::names;
use crate::query::View;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The most smaller resolutions: each is at most half as long as the one before, and has at most 2^32 pixels
/// along a side.
const MAX_LEVELS: usize = 32;

/// The group and the smaller resolutions of what is shown, larger ones first; None if it is not all of the
/// full resolution of a raster. Reads names, and metadata of the group.
fn pyramid(source: &ViewSource) -> Result<Option<(Arc<OpenGroup>, Vec<ViewSource>)>> {
    let path = &source.array_at.array.path;
    let is_whole = source.part.is_none() && !matches!(source.array_at.when, When::Pinned(_));
    let is_first = path
        .file_name()
        .is_some_and(|name| name.as_bytes() == FULL_RESOLUTION);
    let Some(directory) = path.parent().filter(|_| is_whole && is_first) else {
        return Ok(None);
    };
    let context = &source.context;
    if classify(&context.engine, directory)? != ObjectKind::Group {
        return Ok(None);
    }
    let group = context.group(directory);
    if !is_raster(&group)? {
        return Ok(None);
    }
    let members = group.members()?;
    if place_of(source, &members, FULL_RESOLUTION)?.is_none_or(|place| place.at != *path) {
        return Ok(None);
    }
    let mut smaller = Vec::new();
    for number in 1..=MAX_LEVELS {
        let Some(place) = place_of(source, &members, format!("l_{number}").as_bytes())? else {
            break;
        };
        smaller.push(ViewSource {
            array_at: ArrayAt {
                array: context.array(&place.at),
                when: source.array_at.when.clone(),
            },
            last: Arc::default(),
            ..source.clone()
        });
    }
    Ok(Some((group, smaller)))
}

/// The place of the member of this name, if it is an array that was there at the time shown.
fn place_of<'m>(source: &ViewSource, members: &'m Members, name: &[u8]) -> Result<Option<&'m MemberPlace>> {
    let Some(place) = members.places.iter().find(|place| place.name == name) else {
        return Ok(None);
    };
    match place.kind(&source.context.engine, members) {
        Ok(Some(ObjectKind::Array)) => Ok((!source.context.is_later(&place.at)?).then_some(place)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of overviews of this name; None if no image with overviews is called so.
pub fn find(source: &ViewSource, name: &OsStr) -> Result<Option<Node>> {
    let Some(image) = name.as_bytes().strip_suffix(tiff::OVERVIEWS.as_bytes()) else {
        return Ok(None);
    };
    let file = OverviewFile {
        source: source.clone(),
        image: OsStr::from_bytes(image).to_owned(),
    };
    Ok((!file.images()?.is_empty()).then(|| Node::File(Arc::new(file))))
}

/// The names of the files of overviews that a listing shows beside these images. If it is unknown whether an
/// image has overviews, it has a name, and accesses fail.
pub fn listed(source: &ViewSource, images: &[OsString]) -> Vec<OsString> {
    if source.context.engine.storage.is_remote() || matches!(pyramid(source), Ok(None)) {
        return Vec::new();
    }
    let named = images.iter().map(|image| {
        let mut name = image.clone();
        name.push(tiff::OVERVIEWS);
        name
    });
    let listed = named.filter(|name| name.len() <= names::MAX && !matches!(find(source, name), Ok(None)));
    listed.collect()
}

/// The overviews of an image.
struct OverviewFile {
    /// The full resolution.
    source: ViewSource,
    /// The name of the image.
    image: OsString,
}

impl OverviewFile {
    /// The fields of each overview, with its view.
    fn images(&self) -> Result<Vec<(Arc<View>, Range<usize>)>> {
        let Some((_, smaller)) = pyramid(&self.source)? else {
            return Ok(Vec::new());
        };
        let smaller = smaller.iter().map(ViewSource::view);
        let found = tiff::overviews(
            &self.source.view()?,
            &self.image,
            &smaller.collect::<Result<Vec<_>>>()?,
        );
        self.source.placed(found)
    }

    fn layout(&self) -> Result<FileLayout> {
        let found = self.images()?;
        match found.is_empty() {
            true => Err(Error::not_found("the image has no overviews")),
            false => tiff::overviews_layout(&self.source.view()?, &self.image, &found),
        }
    }
}

impl File for OverviewFile {
    fn mtime(&self) -> u64 {
        let smaller = pyramid(&self.source).ok().flatten();
        let all = smaller
            .iter()
            .flat_map(|(_, smaller)| smaller)
            .map(ViewSource::mtime);
        all.chain([self.source.mtime()]).max().unwrap_or(0)
    }

    /// All resolutions, and what tells that they belong together; nothing that others may read if that is
    /// unknown.
    fn origin(&self) -> Origin {
        let Ok(Some((group, smaller))) = pyramid(&self.source) else {
            return Origin::Private;
        };
        let smaller = smaller.iter().map(|source| source.array_at.clone());
        Origin::Several(vec![
            Origin::DescribedCells(self.source.array_at.clone()),
            Origin::joined([&group], smaller),
        ])
    }

    fn open(&self) -> Result<Arc<FileLayout>> {
        let layout = self.source.placed(self.layout())?;
        Ok(Arc::new(layout.of(self.source.display())))
    }
}
