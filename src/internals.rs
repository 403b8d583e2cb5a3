//! What is not public, opened to the crate's own tests, benchmarks and fuzzing targets (feature `internals`).
//! Nothing of it is promised to stay.

use crate::catalog::listing::ArrayListing;
use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::format::datatype::{CellValNum, Datatype};
use crate::format::field::{Field, Role};
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

/// A field that is neither nullable nor enumerated.
pub fn field(name: &str, role: Role, datatype: Datatype, cell_val_num: CellValNum) -> Field {
    Field {
        name: name.as_bytes().to_vec(),
        role,
        datatype,
        cell_val_num,
        nullable: false,
        fill_value: Vec::new(),
        fill_value_valid: true,
        enumeration: None,
    }
}

/// What the fragment's metadata says.
pub fn fragment_info(fragment: &Fragment) -> Result<Arc<FragmentInfo>> {
    fragment.open()
}
