//! Builds structures of the format by hand.
#![allow(dead_code)]

/// Little-endian bytes under construction.
#[derive(Default, Clone)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn u8(mut self, v: u8) -> Self {
        self.0.push(v);
        self
    }
    pub fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    pub fn u64s(self, values: &[u64]) -> Self {
        values.iter().fold(self, |bytes, v| bytes.u64(*v))
    }
    pub fn i32s(mut self, values: &[i32]) -> Self {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }
    pub fn raw(mut self, v: &[u8]) -> Self {
        self.0.extend_from_slice(v);
        self
    }
    pub fn text32(self, text: &str) -> Self {
        self.u32(text.len() as u32).raw(text.as_bytes())
    }
    pub fn text64(self, text: &str) -> Self {
        self.u64(text.len() as u64).raw(text.as_bytes())
    }
    /// Appends a filter pipeline with chunks of at most 64 KiB.
    pub fn pipeline(self, filters: &[&[u8]]) -> Self {
        let bytes = self.u32(65_536).u32(filters.len() as u32);
        filters.iter().fold(bytes, |bytes, filter| bytes.raw(filter))
    }
}

/// A generic tile without filters, of one chunk.
pub fn generic_tile(version: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    let pipeline = Bytes::default().pipeline(&[]).0;
    let tile = Bytes::default().u32(version);
    let tile = tile.u64(20 + u64::from(length)).u64(length.into());
    // Bytes, of one value a cell, and not encrypted.
    let tile = tile.u8(4).u64(1).u8(0).u32(pipeline.len() as u32).raw(&pipeline);
    tile.u64(1).u32(length).u32(length).u32(0).raw(body).0
}
