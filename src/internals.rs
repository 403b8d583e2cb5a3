//! What is not public, opened to the crate's own tests, benchmarks and fuzzing targets (feature `internals`).
//! Nothing of it is promised to stay.

use crate::array::engine::Engine;
use crate::array::fragment_info::FragmentInfo;
use crate::array::listing::ArrayListing;
use crate::cursor::Cursor;
use crate::format::pipeline::Pipeline;
use crate::{Array, Fragment, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Public modules with what is in private ones.
macro_rules! open {
    ($($module:ident)*) => {$(
        #[allow(missing_docs)]
        pub mod $module {
            pub use crate::$module::*;
        }
    )*};
}

open!(array bytes check cursor export filter format layout stats storage tree view);
#[cfg(feature = "mount")]
open!(fuse);
#[cfg(feature = "serve")]
open!(serve);

/// The array at `path` of any storage, relative to its root.
pub fn open_array(engine: Arc<Engine>, path: impl Into<PathBuf>) -> Arc<Array> {
    Arc::new(Array::new(engine, path.into()))
}

/// What the array's directory holds.
pub fn listing(array: &Array) -> Result<Arc<ArrayListing>> {
    array.listing()
}

/// The pipeline that `bytes` begin with, as the format stores it.
pub fn parse_pipeline(bytes: &[u8]) -> Result<Pipeline> {
    Pipeline::parse(&mut Cursor::new(bytes))
}

/// What the fragment's metadata says.
pub fn fragment_info(fragment: &Fragment) -> Result<Arc<FragmentInfo>> {
    fragment.open()
}
