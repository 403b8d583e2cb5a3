//! Recognises schema files from before format versions, which cannot be read.
//!
//! In TileDB 1.3: <https://github.com/TileDB-Inc/TileDB/blob/1.3.2/tiledb/sm/tile/tile_io.cc>
//! In GenomicsDB: <https://github.com/GenomicsDB/TileDB/blob/c429d7b2f6/core/src/array/array_schema.cc>

/// The writer of a schema file that has no format version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predecessor {
    /// TileDB up to 1.3: a generic tile without a leading version.
    TileDb,
    /// GenomicsDB, and TileDB before 1.0 on which it is built.
    GenomicsDb,
}

impl Predecessor {
    /// The bytes from the start of the file that [`Predecessor::of`] needs.
    pub const HEAD_SIZE: usize = 4096;

    /// The writer of a file of `len` bytes that begins with `head`; None if it is neither.
    pub fn of(head: &[u8], len: u64) -> Option<Predecessor> {
        let u32_at = |at: usize| {
            head.get(at..)?
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes))
        };
        let u64_at = |at: usize| {
            head.get(at..)?
                .first_chunk()
                .map(|bytes| u64::from_le_bytes(*bytes))
        };
        // Stored and unfiltered length, datatype (CHAR), cell size, compressor, level.
        const HEADER: u64 = 30;
        let stored = u64_at(0)?;
        if stored.checked_add(HEADER) == Some(len) && head.get(16) == Some(&4) && u64_at(17) == Some(1) {
            return Some(Predecessor::TileDb);
        }
        // A negative version in eight bytes, or none, then the length (u32) and the bytes of the array's
        // path.
        let version = u32_at(0)?.cast_signed();
        let at = if (-16..0).contains(&version) && u32_at(4) == Some(0) {
            8
        } else {
            0
        };
        let length = usize::try_from(u32_at(at)?).ok()?;
        let path = head.get(at + 4..)?.get(..length)?;
        // Text with a length of at most 16 may be a numbered schema: its version has the place of the length.
        let text = length > 16 || at > 0 && length > 0;
        let text = text && path.contains(&b'/') && path.iter().all(|byte| *byte >= b' ');
        text.then_some(Predecessor::GenomicsDb)
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Predecessor::TileDb => "TileDB 1.3 or before",
            Predecessor::GenomicsDb => "GenomicsDB or TileDB before 1.0",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_told_by_their_beginnings() {
        let tile = [
            &81_u64.to_le_bytes()[..],
            &99_u64.to_le_bytes(),
            &[4],
            &1_u64.to_le_bytes(),
            &[1, 1, 0, 0, 0],
        ];
        let tile = tile.concat();
        assert_eq!(Predecessor::of(&tile, 111), Some(Predecessor::TileDb));
        assert_eq!(Predecessor::of(&tile, 110), None);
        let path = b"/tmp/ws/t0_1_2/more";
        let headed = [&(-3_i32).to_le_bytes()[..], &[0; 4], &19_u32.to_le_bytes(), path].concat();
        assert_eq!(Predecessor::of(&headed, 100), Some(Predecessor::GenomicsDb));
        assert_eq!(Predecessor::of(&headed[8..], 100), Some(Predecessor::GenomicsDb));
        assert_eq!(Predecessor::of(&headed[..20], 100), None);
        // A schema of version 1, and text that is no schema.
        let counted = [
            &1_u32.to_le_bytes()[..],
            &96_u64.to_le_bytes(),
            &106_u64.to_le_bytes(),
            &[4],
        ]
        .concat();
        assert_eq!(Predecessor::of(&counted, 148), None);
        for head in [
            &b""[..],
            b"\xff",
            &[0xFF; 100],
            &[0; 100],
            b"text that is no schema at all/",
        ] {
            assert_eq!(Predecessor::of(head, head.len() as u64), None);
        }
    }
}
