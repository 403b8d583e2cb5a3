//! NumPy headers.
