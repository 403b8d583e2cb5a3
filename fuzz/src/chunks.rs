//! The targets that undo filters: inputs are read as numbers that are valid by themselves (which filter, its
//! options, the type of the values), so that what the fuzzer changes are the chunks and how the filters are
//! put together, and no input ends at a number that no filter has.

use super::seal::seal;
use super::{key, render};
use tiledbfs::Result;
use tiledbfs::internals::cursor::Cursor;
use tiledbfs::internals::describe;
use tiledbfs::internals::filter::TileCodec;
use tiledbfs::internals::filter::chunk::ChunkIndex;
use tiledbfs::internals::format::datatype::Datatype;
use tiledbfs::internals::format::pipeline::Pipeline;
use tiledbfs::internals::parse_pipeline;
use tiledbfs::internals::storage::{Blob, MemoryBlob};

/// Every filter that does something: its number, its compressor's number, the bytes of its options.
pub const FILTERS: [(u8, u8, usize); 18] = [
    (1, 1, 5),
    (2, 2, 5),
    (3, 3, 5),
    (4, 4, 5),
    (5, 5, 5),
    (6, 6, 6),
    (7, 0, 4),
    (8, 0, 0),
    (9, 0, 0),
    (10, 0, 4),
    (11, 0, 0),
    (12, 0, 0),
    (13, 0, 0),
    (14, 7, 5),
    (15, 0, 24),
    (16, 0, 0),
    (18, 0, 12),
    (19, 8, 6),
];

/// Bits of the switches: types are propagated, offsets are embedded, the number of cells is not told, digests
/// and tags are put on, and the length of a tile is what its chunks say.
pub const PROPAGATES: u8 = 1;
pub const EMBEDS: u8 = 2;
pub const NO_CELLS: u8 = 4;
pub const SEALS: u8 = 8;
pub const FOLLOWS: u8 = 16;

/// What may be decoded at once: chunks declare what they like, and who reads them knows better.
const LARGEST: u32 = 1 << 20;

/// What a chunk's decoder is told beyond its pipeline: datatype, cell size, version, switches, original
/// length u32, cells u16.
struct Settings {
    datatype: Datatype,
    cell_size: u64,
    version: u32,
    switches: u8,
    original: u32,
    cells: u64,
}

/// What became of a chunk.
pub enum Outcome {
    /// The input ended before the chunk.
    Short,
    /// It was refused.
    Refused,
    /// It was decoded, by the filter of this number where there is only one.
    Decoded(u8),
}

/// Reads a filter from an input, its place in [`FILTERS`] and its options, and appends it as pipelines store
/// it.
fn read_filter(c: &mut Cursor<'_>, stored: &mut Vec<u8>) -> Result<u8> {
    let (number, compressor, length) = FILTERS[usize::from(c.u8("filter")?) % FILTERS.len()];
    let mut options = c.bytes(length as u64, "options")?.to_vec();
    match number {
        _ if compressor != 0 => {
            options[0] = compressor;
            if let Some(datatype) = options.get_mut(5) {
                *datatype %= Datatype::ALL.len() as u8;
            }
        }
        15 => {
            let width = 1u64 << (options[16].trailing_zeros() % 8 % 4);
            options[16..].copy_from_slice(&width.to_le_bytes());
        }
        18 => options[4] %= 5,
        _ => {}
    }
    stored.push(number);
    stored.extend((length as u32).to_le_bytes());
    stored.extend(options);
    Ok(number)
}

fn read_pipeline(c: &mut Cursor<'_>, count: u8) -> Result<(Pipeline, u8)> {
    let mut stored = (64u32 << 10).to_le_bytes().to_vec();
    stored.extend(u32::from(count).to_le_bytes());
    let mut last = 0;
    for _ in 0..count {
        last = read_filter(c, &mut stored)?;
    }
    let pipeline = parse_pipeline(&stored)?;
    render(&describe::schema::pipeline_json(&pipeline));
    Ok((pipeline, last))
}

/// One filter on one chunk: the settings, the filter, length of the metadata u16, metadata, data.
pub fn filter(data: &[u8]) {
    filter_outcome(data);
}

/// The same, and says what became of it.
pub fn filter_outcome(data: &[u8]) -> Outcome {
    let mut c = Cursor::new(data);
    let run = |c: &mut Cursor<'_>| -> Result<Outcome> {
        let settings = Settings::read(c)?;
        let (pipeline, number) = read_pipeline(c, 1)?;
        let length = c.u16("metadata")?;
        let metadata = c.bytes(u64::from(length), "metadata")?;
        Ok(match settings.decode(pipeline, metadata, c.rest()) {
            true => Outcome::Decoded(number),
            false => Outcome::Refused,
        })
    };
    run(&mut c).unwrap_or(Outcome::Short)
}

impl Settings {
    fn read(c: &mut Cursor<'_>) -> Result<Settings> {
        Ok(Settings {
            datatype: Datatype::ALL[usize::from(c.u8("datatype")?) % Datatype::ALL.len()],
            cell_size: u64::from(c.u8("cell size")?).max(1),
            version: u32::from(c.u8("version")? % 24),
            switches: c.u8("switches")?,
            original: c.u32("original length")? % LARGEST,
            cells: u64::from(c.u16("cells")?),
        })
    }

    /// Whether the chunk decodes.
    fn decode(&self, pipeline: Pipeline, metadata: &[u8], data: &[u8]) -> bool {
        let sealed = (self.switches & SEALS != 0).then(|| seal(&pipeline, metadata, data));
        let (metadata, data) = match &sealed {
            Some((metadata, data)) => (&metadata[..], &data[..]),
            None => (metadata, data),
        };
        let library = if self.switches & PROPAGATES != 0 { 20 } else { 19 };
        let mut codec = TileCodec::new(pipeline, self.datatype, self.cell_size, self.version, library)
            .with_key(Some(key()));
        if self.switches & EMBEDS != 0 {
            codec = codec.embedding_offsets();
        }
        codec.is_identity();
        let decoded = match self.switches & NO_CELLS {
            0 => codec.decode_chunk_of_cells(self.original, self.cells, metadata, data),
            _ => codec.decode_chunk(self.original, metadata, data),
        };
        let Ok(decoded) = decoded else { return false };
        assert_eq!(decoded.data.len() as u64, u64::from(self.original));
        if let Some(offsets) = &decoded.offsets {
            assert!(offsets.is_sorted());
            let last = offsets.last().copied().unwrap_or(0);
            assert!(last <= decoded.data.len() as u64);
            assert!(self.switches & NO_CELLS != 0 || offsets.len() as u64 == self.cells);
        }
        true
    }
}

/// A pipeline on the chunks of a tile: the settings, the number of filters, the filters, the expected bytes
/// u32, the tile.
pub fn pipeline(data: &[u8]) {
    pipeline_outcome(data);
}

/// The same, and gives the number of chunks that decoded.
pub fn pipeline_outcome(data: &[u8]) -> u64 {
    let mut c = Cursor::new(data);
    let mut decoded = 0;
    let mut run = || -> Result<()> {
        let mut settings = Settings::read(&mut c)?;
        let count = c.u8("filters")? % 7;
        let (pipeline, _) = read_pipeline(&mut c, count)?;
        let mut expected = u64::from(c.u32("expected")?);
        let tile = MemoryBlob::new(c.rest(), "fuzz");
        if settings.switches & FOLLOWS != 0 {
            expected = declared(c.rest()).unwrap_or(expected);
        }
        let index = ChunkIndex::read(&tile, 0, tile.len(), expected)?;
        let chunks = index.chunks();
        let sum: u64 = chunks.iter().map(|chunk| u64::from(chunk.original_length)).sum();
        assert_eq!(sum, expected);
        for chunk in chunks.iter().take(16) {
            let found = index.find(chunk.original_offset).and_then(|i| chunks.get(i));
            assert_eq!(found, Some(chunk));
            let stored = tile.read(chunk.stored_offset, chunk.stored_length())?;
            let Some((metadata, data)) = stored.split_at_checked(chunk.metadata_length as usize) else {
                panic!("a chunk shorter than its metadata");
            };
            settings.original = chunk.original_length % LARGEST;
            decoded += u64::from(settings.decode(pipeline.clone(), metadata, data));
        }
        Ok(())
    };
    let _ = run();
    decoded
}

/// The sum of the lengths that the headers of a tile's chunks declare.
fn declared(tile: &[u8]) -> Result<u64> {
    let mut c = Cursor::new(tile);
    let mut sum = 0;
    for _ in 0..c.u64("chunks")?.min(1000) {
        sum += u64::from(c.u32("original length")?);
        let (filtered, metadata) = (c.u32("filtered length")?, c.u32("metadata length")?);
        c.bytes(u64::from(filtered) + u64::from(metadata), "chunk")?;
    }
    Ok(sum)
}
