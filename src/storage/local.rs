//! Local files.
pub struct LocalStorage;
