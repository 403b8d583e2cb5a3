//! What is not public, opened to the crate's own tests, benchmarks and fuzzing targets (feature `internals`).
//! Nothing of it is promised to stay.

use crate::catalog::listing::ArrayListing;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::format::pipeline::Pipeline;
use crate::fragment::info::FragmentInfo;
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

open!(bytes calendar catalog check cursor describe engine export filter format fragment layout query runtime storage tree);
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
