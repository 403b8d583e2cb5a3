//! A file with its end in memory.

use super::Blob;
use crate::error::Result;

/// A file whose last [`Tail::SIZE`] bytes were read at once. Other bytes are read when they are asked for.
pub struct Tail<'a> {
    blob: &'a dyn Blob,
    start: u64,
    bytes: &'a [u8],
}

impl Tail<'_> {
    /// Bytes in memory, or fewer if the file is shorter. Enough to open most fragments.
    pub const SIZE: usize = 8192;

    /// Reads the end of `blob` into `room`. Fails if the read does.
    pub fn new<'a>(blob: &'a dyn Blob, room: &'a mut [u8; Tail::SIZE]) -> Result<Tail<'a>> {
        let len = blob.len().min(Self::SIZE as u64);
        let start = blob.len() - len;
        let bytes = &mut room[..len as usize];
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
