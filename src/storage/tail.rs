//! A file whose end is in memory.

use super::Blob;
use crate::error::Result;

/// A file whose last [`Tail::SIZE`] bytes are in memory, from one read.
pub struct Tail<'a> {
    blob: &'a dyn Blob,
    start: u64,
    bytes: &'a [u8],
}

impl Tail<'_> {
    /// How many bytes are in memory, if the file has as many: enough to open most fragments.
    pub const SIZE: usize = 8192;

    /// Reads the end of `blob` into `room`.
    pub fn new<'a>(blob: &'a dyn Blob, room: &'a mut [u8; Tail::SIZE]) -> Result<Tail<'a>> {
        let len = blob.len().min(Self::SIZE as u64);
        let start = blob.len() - len;
        let bytes = room.get_mut(..len as usize).unwrap_or_default();
        blob.read_at(start, bytes)?;
        Ok(Tail { blob, start, bytes })
    }
}

impl Blob for Tail<'_> {
    fn len(&self) -> u64 {
        self.blob.len()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let known = offset
            .checked_sub(self.start)
            .and_then(|from| usize::try_from(from).ok())
            .and_then(|from| self.bytes.get(from..)?.get(..out.len()));
        match known {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => self.blob.read_at(offset, out),
        }
    }

    fn display(&self) -> &str {
        self.blob.display()
    }
}
