//! The chunks of a tile: where each lies, found without decoding any.
