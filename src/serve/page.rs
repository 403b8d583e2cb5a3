//! Directories as pages for people.
